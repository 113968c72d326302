# cython: language_level=3, boundscheck=False, wraparound=False
"""Consumer groups: how far a group has read, its consumers, and what was delivered to them but not acknowledged.

    Group ── last_id, entries_read         how far it has read; see delivery.pyx for what moves them
      ├── consumers: name -> Consumer      seen and active times
      └── pel: Pel                         one record per pending entry: its consumer, time and number of deliveries

A consumer is identified in the Pel by a small number; `by_number` maps a pending record's owner back to its consumer.

An entry returned with XNACK stays pending without a consumer, before all others, until it is claimed.

Invariants (check_invariants): every existing consumer is in `consumers` under its name and in `by_number` under its
number, and no other is; every pending record's owner is such a number, or NO_OWNER; the consumers' pending counts and
the number of entries without an owner add up to the group's total.

A group does not know its stream: an entry may be pending although it has been deleted from the stream. Whatever needs
both (reading, claiming, lag) is in delivery.pyx. Time is an argument, Unix milliseconds.
"""

cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t

from streamd.engine.ids cimport StreamID, id_cmp, make_id
from streamd.heap cimport count_object
from streamd.values.streams.pel cimport (
    NO_OWNER, PelCursor, PelRecord, delivered_ms, pel_add_owner, pel_adopt, pel_assign, pel_clear, pel_disown,
    pel_drop_owner, pel_find, pel_first, pel_hold, pel_init, pel_insert, pel_insert_unowned, pel_last, pel_memory,
    pel_next, pel_owner_size, pel_remove, pel_seek, pel_seek_oldest, pel_set_time,
)
from streamd.values.streams.pel_check cimport pel_check

__all__ = ["ARCHIVED_MARK", "UNOWNED_MARK", "Consumer", "Group", "GroupRemains"]

UNOWNED_MARK = b"-1"
"""What a file says for readers that do not support pending entries without a consumer: such an entry is claimed by a
placeholder consumer (Group.free_name) with this min-idle-time. Redis treats it as 0 and never writes it itself."""

ARCHIVED_MARK = b"-2"
"""The min-idle-time of claims, in files and for replicas, of entries that are pending and not in memory.

They were delivered from the archive. Redis treats it as 0, and such an entry as deleted."""

MAX_ID = (2**64 - 1, 2**64 - 1)

cdef enum:
    # Approximate bytes for a Python object with its name and its entries in dictionaries and lists.
    GROUP_BYTES = 600
    CONSUMER_BYTES = 350


cdef inline StreamID as_id(object pair):
    """An ID given as a tuple (ms, seq)."""
    ms, seq = pair
    return make_id(ms, seq)


@cython.final
@cython.no_gc
cdef class Consumer:
    """One consumer of a group. Created by its group."""

    def __cinit__(self):
        count_object(CONSUMER_BYTES)

    def __dealloc__(self):
        count_object(-CONSUMER_BYTES)

    def __repr__(self):
        return f"<Consumer {self.name!r}>"


cdef Group new_group(bytes name, StreamID last_id, int64_t entries_read):
    cdef Group group = Group.__new__(Group)
    group.name = name
    group.last_id = last_id
    group.entries_read = entries_read
    return group


@cython.final
@cython.no_gc
cdef class Group:
    """A consumer group without consumers.

    name          its name, any bytes
    last_id       the last-delivered ID, (ms, seq)
    entries_read  how many entries it has read, counted from the first entry the stream ever had; -1: unknown
    """

    def __cinit__(self):
        count_object(GROUP_BYTES)
        self.consumers = {}
        self.by_number = []
        self.ordered = []
        self.entries_read = -1
        pel_init(&self.pel)

    def __init__(self, bytes name not None, last_id=(0, 0), int64_t entries_read=-1):
        self.name = name
        self.last_id = as_id(last_id)
        self.entries_read = entries_read

    def __dealloc__(self):
        count_object(-GROUP_BYTES)
        pel_clear(&self.pel)

    def __repr__(self):
        return f"<Group {self.name!r}: {len(self.consumers)} consumers, {self.pel.by_id.count} pending>"

    # --- Consumers ------------------------------------------------------------------------------------------------

    cdef Consumer consumer_by_number(self, uint32_t number):
        return <Consumer>self.by_number[number]

    cdef bytes owner_name(self, const PelRecord *record):
        return b"" if record.owner == NO_OWNER else (<Consumer>self.by_number[record.owner]).name

    cdef Consumer find_consumer(self, bytes name):
        return <Consumer>self.consumers.get(name)

    cdef Consumer add_consumer(self, bytes name, int64_t seen_ms):
        cdef Consumer consumer = Consumer.__new__(Consumer)
        cdef int64_t number = pel_add_owner(&self.pel)
        consumer.name = name
        consumer.seen_ms = seen_ms
        consumer.active_ms = -1
        consumer.number = <uint32_t>number
        while len(self.by_number) <= number:
            self.by_number.append(None)
        self.by_number[number] = consumer
        self.consumers[name] = consumer
        self.ordered = None
        return consumer

    cdef int64_t drop_consumer(self, bytes name) except -2:
        cdef Consumer consumer = <Consumer>self.consumers.pop(name, None)
        cdef int64_t pending
        if consumer is None:
            return -1
        pending = <int64_t>self.pending_of(consumer)
        if pending and self.order is not None:
            self.note_all_of(consumer)
        pel_drop_owner(&self.pel, consumer.number)
        self.by_number[consumer.number] = None
        self.ordered = None
        return pending

    cdef void note_all_of(self, Consumer consumer) noexcept nogil:
        cdef PelCursor cursor
        cdef PelRecord *record
        pel_seek(&self.pel, &cursor, consumer.number, make_id(0, 0))
        record = pel_next(&cursor)
        while record is not NULL:
            self.note(record.id)
            record = pel_next(&cursor)

    cdef uint64_t pending_of(self, Consumer consumer) noexcept nogil:
        return pel_owner_size(&self.pel, consumer.number)

    cdef bytes free_name(self):
        """A name not used by any consumer, for a placeholder consumer where entries must have an owner."""
        cdef bytes name = b""
        while name in self.consumers:
            name += b"\0"
        return name

    cdef list consumers_by_name(self):
        """The consumers in byte order of their names, as Redis lists them."""
        if self.ordered is None:
            self.ordered = [self.consumers[name] for name in sorted(self.consumers)]
        return self.ordered

    def create_consumer(self, bytes name not None, *, int64_t now_ms):
        """Add a consumer, seen at `now_ms` and never active; False, with no change, when that name exists."""
        if name in self.consumers:
            return False
        self.add_consumer(name, now_ms)
        return True

    def delete_consumer(self, bytes name not None):
        """Remove a consumer and its pending entries; return how many there were, or None without such a consumer."""
        cdef int64_t pending = self.drop_consumer(name)
        return None if pending < 0 else pending

    # --- Pending entries ------------------------------------------------------------------------------------------

    cdef bint has_pending(self, StreamID id) noexcept nogil:
        return pel_find(&self.pel, id) is not NULL

    cdef bint forget(self, StreamID id) noexcept nogil:
        cdef PelRecord *record = pel_find(&self.pel, id)
        if record is NULL:
            return False
        self.note(id)
        pel_remove(&self.pel, record)
        return True

    cdef int deliver(self, StreamID id, Consumer consumer, int64_t now_ms) except -1 nogil:
        """Record a first delivery of `id` to `consumer`.

        An entry may already be pending if the group's last-delivered ID was set back: it now belongs to this consumer,
        and its delivery count starts again.
        """
        cdef PelRecord *record
        if self.pel.by_id.count == 0 or id_cmp(id, pel_last(&self.pel).id) > 0:
            pel_insert(&self.pel, id, consumer.number, now_ms, 1)
            return 0
        record = pel_find(&self.pel, id)
        if record is NULL:
            pel_insert(&self.pel, id, consumer.number, now_ms, 1)
            return 0
        self.hand_over(record, consumer, now_ms)
        record.delivery_count = 1
        return 0

    cdef int hand_over(self, PelRecord *record, Consumer consumer, int64_t delivery_ms) except -1 nogil:
        """Assign a pending entry to a consumer, delivered at `delivery_ms`. The caller sets the delivery count."""
        if record.owner != consumer.number:
            self.note(record.id)
            if record.owner == NO_OWNER:
                return pel_adopt(&self.pel, record, consumer.number, delivery_ms)
            pel_assign(&self.pel, record, consumer.number)
        return pel_set_time(&self.pel, record, delivery_ms)

    @property
    def pending_count(self):
        """How many entries are pending."""
        return self.pel.by_id.count

    @property
    def oldest_pending_id(self):
        """The smallest ID that is pending, or None. O(log n), n pending."""
        cdef PelRecord *record = pel_first(&self.pel)
        return None if record is NULL else (record.id.ms, record.id.seq)

    @property
    def held_back_count(self):
        """Pending entries that failed and wait, by the back-off of the group's rule."""
        return self.pel.held.count

    @property
    def dead_letter_count(self):
        """Entries that were moved to a dead-letter stream."""
        return self.dead_lettered

    def count_delivered_above(self, uint64_t times, Py_ssize_t limit):
        """How many of the `limit` pending entries with the smallest IDs were delivered more often than `times`."""
        cdef PelCursor cursor
        cdef PelRecord *record
        cdef Py_ssize_t found = 0
        pel_seek(&self.pel, &cursor, -1, make_id(0, 0))
        while limit > 0:
            limit -= 1
            record = pel_next(&cursor)
            if record is NULL:
                break
            found += record.delivery_count > times
        return found

    def pending_count_of(self, bytes consumer not None):
        """How many entries of one consumer are pending; KeyError when there is no such consumer."""
        return self.pending_of(<Consumer>self.consumers[consumer])

    def is_pending(self, id):
        """Whether the entry with this ID is pending."""
        return self.has_pending(as_id(id))

    def pending(self, first=(0, 0), last=MAX_ID, *, consumer=None):
        """The pending entries from ID `first` to `last`: a list of (id, consumer, delivery_ms, delivery_count) by ID.

        consumer  restricts the list to this consumer's entries; KeyError when there is no such consumer
        Entries that were returned have the consumer None and the time 0.
        """
        cdef PelCursor cursor
        cdef PelRecord *record
        cdef StreamID end = as_id(last)
        cdef int64_t owner = -1
        if consumer is not None:
            owner = (<Consumer>self.consumers[consumer]).number
        found = []
        pel_seek(&self.pel, &cursor, owner, as_id(first))
        while True:
            record = pel_next(&cursor)
            if record is NULL or id_cmp(record.id, end) > 0:
                return found
            name = None if record.owner == NO_OWNER else self.consumer_by_number(record.owner).name
            found.append(((record.id.ms, record.id.seq), name, delivered_ms(record), record.delivery_count))

    def acknowledge(self, ids):
        """Drop the pending records of these IDs; returns how many there were. O(len(ids) log n), n pending."""
        cdef uint64_t found = 0
        for id in ids:
            found += self.forget(as_id(id))
        return found

    cdef int give_back(self, StreamID id, uint64_t delivery_count) except -1 nogil:
        cdef PelRecord *record = pel_find(&self.pel, id)
        self.note(id)
        if record is NULL:
            pel_insert_unowned(&self.pel, id, delivery_count)
            return 0
        pel_disown(&self.pel, record)
        record.delivery_count = delivery_count
        return 0

    cdef int hold_back(self, PelRecord *record, uint64_t delivery_count, int64_t failed_ms) except -1 nogil:
        pel_hold(&self.pel, record, failed_ms)
        record.delivery_count = delivery_count
        return 0

    @property
    def held_count(self):
        """How many of the pending entries failed, and have not been delivered again since."""
        return self.pel.held.count

    @property
    def unowned_count(self):
        """How many of the pending entries were returned and belong to no consumer."""
        return self.pel.unowned

    def unowned(self):
        """The IDs of those entries in the order in which they will be delivered again."""
        cdef PelCursor cursor
        cdef PelRecord *record
        found = []
        pel_seek_oldest(&self.pel, &cursor)
        record = pel_next(&cursor)
        while record is not NULL and record.owner == NO_OWNER:
            found.append((record.id.ms, record.id.seq))
            record = pel_next(&cursor)
        return found

    def disown(self, id, uint64_t delivery_count):
        """Make an entry pending without a consumer, after those disowned earlier, whoever owned it."""
        self.give_back(as_id(id), delivery_count)

    def restore_pending(self, id, bytes consumer not None, *, int64_t delivery_ms, uint64_t delivery_count):
        """Make an entry pending as it was when it was saved; `consumer` must exist.

        It comes after the entries with that delivery time restored earlier.
        Raises ValueError when it is already pending or the time is negative, KeyError when there is no such consumer.
        """
        cdef StreamID entry = as_id(id)
        cdef Consumer owner = <Consumer>self.consumers[consumer]
        if self.has_pending(entry):
            raise ValueError(f"{entry.ms}-{entry.seq} is pending already")
        if delivery_ms < 0:
            raise ValueError("a delivery time is not negative")
        pel_insert(&self.pel, entry, owner.number, delivery_ms, delivery_count)

    # --- How far it has read ----------------------------------------------------------------------------------------

    @property
    def last_delivered_id(self):
        """The ID up to which entries have been delivered, (ms, seq)."""
        return self.last_id.ms, self.last_id.seq

    def set_id(self, id, int64_t entries_read=-1):
        """Continue reading after `id`. Pending entries stay pending."""
        self.last_id = as_id(id)
        self.entries_read = entries_read

    # --- The whole group --------------------------------------------------------------------------------------------

    def copy(self):
        """A group with the same name and contents that shares nothing with this one. O(n log n), n pending.

        Entries with the same delivery time are ordered by ID in the copy, as in Redis. The order of entries without an
        owner is kept.
        """
        cdef Group twin = new_group(self.name, self.last_id, self.entries_read)
        cdef Consumer consumer, other
        cdef PelCursor cursor
        cdef PelRecord *record
        for consumer in self.consumers.values():
            other = twin.add_consumer(consumer.name, consumer.seen_ms)
            other.active_ms = consumer.active_ms
        pel_seek(&self.pel, &cursor, -1, make_id(0, 0))
        while True:
            record = pel_next(&cursor)
            if record is NULL:
                break
            if record.owner != NO_OWNER:
                other = <Consumer>twin.consumers[self.consumer_by_number(record.owner).name]
                pel_insert(&twin.pel, record.id, other.number, record.delivery_ms, record.delivery_count)
        pel_seek_oldest(&self.pel, &cursor)
        record = pel_next(&cursor)
        while record is not NULL and record.owner == NO_OWNER:
            pel_insert_unowned(&twin.pel, record.id, record.delivery_count)
            record = pel_next(&cursor)
        return twin

    @property
    def memory_bytes(self):
        """About how many bytes the group uses: exact for the pending entries, estimated for the consumers."""
        cdef Consumer consumer
        cdef uint64_t total = pel_memory(&self.pel) + <uint64_t>self.__sizeof__() + <uint64_t>self.name.__sizeof__()
        total += <uint64_t>(self.consumers.__sizeof__() + self.by_number.__sizeof__())
        if self.order is not None:
            total += self.order.memory()
        for consumer in self.consumers.values():
            total += <uint64_t>(consumer.__sizeof__() + consumer.name.__sizeof__())
        return total

    def free_effort(self):
        """About how many blocks of memory there are to free. O(1)."""
        return self.pel.by_id.count // 64 + <size_t>len(self.consumers)

    def detach(self):
        """Give up the pending entries, to be freed elsewhere; the group has no consumers from then on. O(1)."""
        cdef GroupRemains remains = GroupRemains.__new__(GroupRemains)
        remains.pel, self.pel = self.pel, remains.pel
        self.consumers = {}
        self.by_number = []
        self.ordered = []
        self.order = None
        return remains

    def check_invariants(self):
        """Walk everything and raise AssertionError where the group is inconsistent. O(n log n), n pending."""
        cdef Consumer consumer
        cdef PelCursor cursor
        cdef PelRecord *record
        cdef uint64_t total = 0, count
        pel_check(&self.pel)
        known = [found for found in self.by_number if found is not None]
        assert len(known) == len(self.consumers), "as many consumers by number as by name"
        for name, consumer in self.consumers.items():
            assert consumer.name == name, f"consumer {name!r} is called {consumer.name!r}"
            assert self.by_number[consumer.number] is consumer, f"consumer {name!r} is not the one of its number"
            count = 0
            pel_seek(&self.pel, &cursor, consumer.number, make_id(0, 0))
            while True:
                record = pel_next(&cursor)
                if record is NULL:
                    break
                assert record.owner == consumer.number, f"a pending entry of {name!r} has another owner"
                assert pel_find(&self.pel, record.id) is record, f"a pending entry of {name!r} is not the group's"
                count += 1
            assert count == self.pending_of(consumer), f"pending count of {name!r}"
            total += count
        total += self.pel.unowned
        assert total == self.pel.by_id.count, f"{total} pending for some or nobody, {self.pel.by_id.count} in all"
        assert self.ordered is None or [c.name for c in self.ordered] == sorted(self.consumers), "consumers in order"
        if self.order is not None:
            self.order.check_invariants()
        assert self.entries_read >= -1, f"entries_read is {self.entries_read}"


@cython.final
@cython.no_gc
cdef class GroupRemains:
    """The pending entries of a group that is no longer reachable."""

    def __cinit__(self):
        pel_init(&self.pel)

    def __dealloc__(self):
        pel_clear(&self.pel)

    def free(self):
        """Free them, without the interpreter's lock."""
        with nogil:
            pel_clear(&self.pel)
