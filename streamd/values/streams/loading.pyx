# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Reading a stream out of an RDB file or a payload: nodes, counters, groups, idempotent producers. Drawn in saving.pyx.

    nodes             window ──> Stream.adopt_node: a node's bytes go from the window, through the decoder if
                      compressed, straight into the block that the stream keeps
    pending entries   those of a group are read into an array, already sorted; then each consumer lists its own, and
                      they go into the group only when every one of them has an owner

Invalid data raises CorruptFileError; the stream must then be discarded.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport INT64_MAX, UINT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport qsort

from streamd.engine.ids cimport StreamID, id_cmp, make_id
from streamd.engine.listpack cimport LP_SHORTEST_CONVERTED, lp_convert
from streamd.engine.rax cimport load_be64
from streamd.heap cimport free, realloc
from streamd.keyspace.value_type cimport ValueType
from streamd.persistence.rdb.codes cimport TYPE_STREAM_2, TYPE_STREAM_3, TYPE_STREAM_4, TYPE_STREAM_5
from streamd.persistence.rdb.window cimport Window
from streamd.values.streams.delivery cimport distance_from_first
from streamd.values.streams.group cimport Consumer, Group, new_group
from streamd.values.streams.pel cimport NO_OWNER, pel_insert, pel_insert_unowned
from streamd.values.streams.stream cimport Stream

from streamd.errors import one_line
from streamd.values.streams.forms import BUILT_IN_IDMP
from streamd.values.streams.idempotency import Idempotency, IdempotencyRegistry, registry_of

__all__ = []

cdef enum:
    PENDING_BETWEEN_STEPS = 8192
    MAX_IDMP_DURATION = 86400
    MAX_IDMP_MAXSIZE = 10000

cdef tuple BUILT_IN = (4096, 100, *BUILT_IN_IDMP)    # limits of nodes and of idempotency, unless settings say otherwise


@cython.final
cdef class StreamLoader:
    """Reads one stream after another from a window."""

    def __init__(self, ValueType type not None, Window window not None, options):
        super().__init__(type, window)
        context = options.context
        self.settings = BUILT_IN if context is None else (
            context.stream_node_max_bytes, context.stream_node_max_entries,
            context.stream_idmp_duration, context.stream_idmp_maxsize,
        )
        self.registry = IdempotencyRegistry() if context is None or options.is_apart else registry_of(context)

    def take_over(self, context):
        registry_of(context).take(self.registry)

    def __dealloc__(self):
        free(self.pending)
        free(self.unowned)

    cpdef object begin(self, int rdb_type):
        return self.read(rdb_type)

    def read(self, int type):
        """Read a stream of this type into `value`; a generator that stops wherever a step may end."""
        cdef Stream stream
        cdef uint64_t left, length, added, consumers
        cdef StreamID last, deleted = make_id(0, 0)
        cdef Group group
        cdef Consumer consumer
        cdef size_t at
        cdef int64_t offset
        stream = Stream(*self.settings)
        left = self.window.get_count()
        while left:
            length = stream.length
            offset = <int64_t>self.window.position()
            self.load_node(stream)
            if stream.length == length and type >= TYPE_STREAM_5 and self.is_strict:
                self.window.corrupt("a node with live entries", "one without", offset)
            left -= 1
            if self.window.is_step_over():
                yield
        offset = <int64_t>self.window.position()
        length = self.window.get_count()
        if length != stream.length:
            self.window.corrupt(f"the number of live entries, {stream.length}", str(length), offset)
        offset = <int64_t>self.window.position()
        last = get_id(self.window)
        if id_cmp(last, stream.last_id) < 0:
            self.window.corrupt(f"an ID not below the last entry's, {show(stream.last_id)}", show(last), offset)
        added = length
        if type >= TYPE_STREAM_2:
            get_id(self.window)      # the first entry's: known from the entries
            offset = <int64_t>self.window.position()
            deleted = get_id(self.window)
            if id_cmp(deleted, last) > 0:
                self.window.corrupt(f"a deleted ID not above the last one, {show(last)}", show(deleted), offset)
            offset = <int64_t>self.window.position()
            added = self.window.get_small(INT64_MAX, "a number of entries added")
            if added < length:
                self.window.corrupt(f"at least {length} entries added", str(added), offset)
        stream.last_id = last
        stream.max_deleted_id = deleted
        stream.entries_added = added
        left = self.window.get_count()
        while left:
            group = self.get_group(stream, type)
            self.pending_count = self.unowned_count = 0
            length = self.window.get_count()
            while length:
                self.get_pending()
                length -= 1
                if self.window.is_step_over():
                    yield
            consumers = self.window.get_count()
            while consumers:
                consumer = self.get_consumer(group, type)
                length = self.window.get_count()
                at = 0
                while length:
                    at = self.get_owned(NO_OWNER if consumer is None else consumer.number, at)
                    length -= 1
                    if self.window.is_step_over():
                        yield
                consumers -= 1
                if self.window.is_step_over():
                    yield
            if type >= TYPE_STREAM_5:
                length = self.window.get_count()
                while length:
                    self.get_unowned()
                    length -= 1
                    if self.window.is_step_over():
                        yield
            elif self.unowned_count:
                qsort(self.unowned, self.unowned_count, sizeof(Unowned), compare_places)
            length = 0
            while length < self.pending_count:
                length = self.keep_pending(group, length)
                if length < self.pending_count:
                    yield
            length = 0
            while length < self.unowned_count:
                length = self.keep_unowned(group, length)
                if length < self.unowned_count:
                    yield
            left -= 1
        if type >= TYPE_STREAM_4:
            self.get_idempotency(stream)
        self.value = stream

    cdef int load_node(self, Stream stream) except -1:
        cdef int64_t offset = <int64_t>self.window.position()
        cdef StreamID master
        cdef uint64_t size
        cdef uint8_t *block
        cdef uint8_t *wide
        cdef size_t wide_size
        cdef bytes text
        cdef const char *reason = NULL
        cdef size_t where = 0
        cdef int done
        self.window.need(17)
        if self.window.at[0] == 16:
            self.window.at += 1
            master = get_raw_id(self.window)
        else:
            text = self.window.get_bytes()
            if PyBytes_GET_SIZE(text) != 16:
                self.window.corrupt("a node's ID, 16 bytes", f"{PyBytes_GET_SIZE(text)} bytes", offset)
            master = make_id(
                load_be64(<const uint8_t *>PyBytes_AS_STRING(text)),
                load_be64(<const uint8_t *>PyBytes_AS_STRING(text) + 8))
        block = self.window.get_block(&size)
        done = stream.adopt_node(master, block, size, &reason, &where)
        if done == 0 and size >= LP_SHORTEST_CONVERTED:
            done = lp_convert(block, size, False, &wide, &wide_size)
            if done == 1:
                free(block)
                block = wide
                size = wide_size
                done = stream.adopt_node(master, block, size, &reason, &where)
        if done == 1:
            return 0
        free(block)
        if done < 0:
            raise MemoryError
        self.window.corrupt(
            "a sound node of a stream",
            f"{(<bytes>reason).decode()}, at byte {where} of {size} of node {show(master)}", offset)

    cdef Group get_group(self, Stream stream, int type):
        """Read the name and counters of a group, and add it to the stream."""
        cdef int64_t offset = <int64_t>self.window.position()
        cdef bytes name = self.window.get_bytes()
        cdef StreamID last
        cdef uint64_t read
        cdef bint is_beyond
        cdef Group group
        if name in stream.groups:
            self.window.corrupt("another group", f"'{one_line(name)}' a second time", offset)
        last = get_id(self.window)
        offset = <int64_t>self.window.position()
        if type >= TYPE_STREAM_2:
            read = self.window.get_count()
            is_beyond = self.is_strict and type >= TYPE_STREAM_5 and read > stream.entries_added
            if (read > INT64_MAX or is_beyond) and read != UINT64_MAX:
                self.window.corrupt("how many entries a group has read", str(read), offset)
        else:
            read = <uint64_t>distance_from_first(stream, last)
        group = new_group(name, last, <int64_t>read)
        stream.groups[name] = group
        return group

    cdef int get_pending(self) except -1:
        """Read one pending entry of a group into the array."""
        cdef int64_t offset = <int64_t>self.window.position()
        cdef Pending *pending
        cdef size_t room
        if self.pending_count == self.pending_room:
            room = 64 if self.pending_room == 0 else self.pending_room * 2
            pending = <Pending *>realloc(self.pending, room * sizeof(Pending))
            if pending is NULL:
                raise MemoryError
            self.pending = pending
            self.pending_room = room
        pending = self.pending + self.pending_count
        pending.id = get_raw_id(self.window)
        if self.pending_count and id_cmp(pending.id, (pending - 1).id) <= 0:
            self.window.corrupt(f"a pending entry above {show((pending - 1).id)}", show(pending.id), offset)
        pending.delivery_ms = self.get_time("a delivery time", 0)
        pending.delivery_count = min(self.window.get_count(), <uint64_t>INT64_MAX)     # Redis 8.6 may count higher
        pending.owner = -1
        self.pending_count += 1
        return 0

    cdef int64_t get_time(self, str what, int64_t least) except? -2:
        cdef int64_t value = <int64_t>self.window.get_le(8)
        if value < least:
            self.window.corrupt(what, str(value), <int64_t>self.window.position() - 8)
        return value

    cdef Consumer get_consumer(self, Group group, int type):
        """Read the name and times of a consumer, and add it to the group; None for the placeholder consumer."""
        cdef int64_t offset = <int64_t>self.window.position()
        cdef bytes name = self.window.get_bytes()
        cdef Consumer consumer
        cdef int64_t seen_ms, active_ms
        if name in group.consumers:
            self.window.corrupt("another consumer", f"'{one_line(name)}' a second time", offset)
        seen_ms = active_ms = self.get_time("the time when a consumer was seen", 0)
        if type >= TYPE_STREAM_3:
            active_ms = self.get_time("the time when a consumer was active", -1)
        if seen_ms == 0 and active_ms <= 0 and type < TYPE_STREAM_5 and not name.strip(b"\0"):
            return None        # see saving.pyx
        consumer = group.add_consumer(name, seen_ms)
        consumer.active_ms = active_ms
        return consumer

    cdef size_t get_owned(self, uint32_t owner, size_t first) except? 0:
        """Read the ID of a pending entry of a consumer, at `first` in the array or later; the place after it."""
        cdef int64_t offset = <int64_t>self.window.position()
        cdef StreamID id = get_raw_id(self.window)
        cdef size_t at = self.find_pending(id, first)
        if at == self.pending_count:
            self.window.corrupt("an entry pending in the group, in order of the IDs", show(id), offset)
        if self.pending[at].owner >= 0:
            self.window.corrupt("an entry of no other consumer", show(id), offset)
        self.pending[at].owner = owner
        if owner == NO_OWNER:
            self.note_unowned(self.pending[at].delivery_ms, at)
        return at + 1

    cdef int get_unowned(self) except -1:
        """Read the ID of an unowned pending entry."""
        cdef int64_t offset = <int64_t>self.window.position()
        cdef StreamID id = get_raw_id(self.window)
        cdef size_t at = self.find_pending(id, 0)
        if at == self.pending_count:
            self.window.corrupt("an entry pending in the group", show(id), offset)
        if self.pending[at].owner >= 0:
            self.window.corrupt("an entry that no consumer has", show(id), offset)
        self.pending[at].owner = NO_OWNER
        return self.note_unowned(<int64_t>self.unowned_count, at)

    cdef int note_unowned(self, int64_t place, size_t at) except -1:
        cdef Unowned *unowned
        cdef size_t room
        if self.unowned_count == self.unowned_room:
            room = 64 if self.unowned_room == 0 else self.unowned_room * 2
            unowned = <Unowned *>realloc(self.unowned, room * sizeof(Unowned))
            if unowned is NULL:
                raise MemoryError
            self.unowned = unowned
            self.unowned_room = room
        self.unowned[self.unowned_count].place = place
        self.unowned[self.unowned_count].at = at
        self.unowned_count += 1
        return 0

    cdef size_t find_pending(self, StreamID id, size_t first) noexcept nogil:
        """The place of a pending entry at `first` or later; pending_count when there is none."""
        cdef size_t lo = first, hi = self.pending_count, mid, step = 1
        # The entries of a consumer come in order, and mostly close together.
        while lo + step < hi and id_cmp(self.pending[lo + step].id, id) <= 0:
            lo += step
            step *= 2
        if lo + step < hi:
            hi = lo + step
        while lo < hi:
            mid = (lo + hi) // 2
            if id_cmp(self.pending[mid].id, id) < 0:
                lo = mid + 1
            else:
                hi = mid
        if lo < self.pending_count and id_cmp(self.pending[lo].id, id) == 0:
            return lo
        return self.pending_count

    cdef size_t keep_pending(self, Group group, size_t first) except? 0:
        """Add the next of the pending entries to the group; return where to continue."""
        cdef size_t stop = first + PENDING_BETWEEN_STEPS
        cdef Pending *pending
        if stop > self.pending_count:
            stop = self.pending_count
        while first < stop:
            pending = self.pending + first
            if pending.owner < 0:
                self.window.corrupt(f"a consumer that has the pending entry {show(pending.id)}", "none")
            if pending.owner != NO_OWNER:
                pel_insert(
                    &group.pel, pending.id, <uint32_t>pending.owner, pending.delivery_ms, pending.delivery_count)
            first += 1
        return first

    cdef size_t keep_unowned(self, Group group, size_t first) except? 0:
        """Add the next of the unowned entries to the group; return where to continue."""
        cdef size_t stop = min(first + PENDING_BETWEEN_STEPS, self.unowned_count)
        cdef Pending *pending
        while first < stop:
            pending = self.pending + self.unowned[first].at
            pel_insert_unowned(&group.pel, pending.id, pending.delivery_count)
            first += 1
        return first

    cdef int get_idempotency(self, Stream stream) except -1:
        cdef int64_t offset = <int64_t>self.window.position()
        cdef uint64_t producers, iids
        cdef bytes pid, iid
        cdef StreamID id
        stream.idmp_duration = <uint32_t>self.window.get_small(MAX_IDMP_DURATION, "an idempotency duration")
        stream.idmp_maxsize = <uint32_t>self.window.get_small(MAX_IDMP_MAXSIZE, "a number of IIDs")
        if stream.idmp_duration == 0 or stream.idmp_maxsize == 0:
            self.window.corrupt("idempotency settings", "zero", offset)
        producers = self.window.get_count()
        if producers:
            stream.idempotency = Idempotency(self.registry, stream.idmp_duration, stream.idmp_maxsize)
        seen = set()
        while producers:
            offset = <int64_t>self.window.position()
            pid = self.window.get_bytes()
            if pid in seen:
                self.window.corrupt("another producer", f"'{one_line(pid)}' a second time", offset)
            seen.add(pid)
            offset = <int64_t>self.window.position()
            iids = self.window.get_small(stream.idmp_maxsize, "a number of IIDs")
            if iids == 0:
                self.window.corrupt("a producer with IIDs", "one without", offset)
            while iids:
                offset = <int64_t>self.window.position()
                iid = self.window.get_bytes()
                id = get_id(self.window)
                if stream.idempotency.find(pid, iid) is not None:
                    self.window.corrupt("another IID", f"'{one_line(iid)}' a second time", offset)
                stream.idempotency.record(pid, iid, (id.ms, id.seq))
                iids -= 1
            producers -= 1
        stream.iids_added = self.window.get_small(INT64_MAX, "a number of IIDs added")
        stream.iids_duplicates = self.window.get_small(INT64_MAX, "a number of duplicates")
        return 0


cdef int compare_places(const void *left, const void *right) noexcept nogil:
    cdef const Unowned *a = <const Unowned *>left
    cdef const Unowned *b = <const Unowned *>right
    if a.place != b.place:
        return -1 if a.place < b.place else 1
    return -1 if a.at < b.at else 1


cdef StreamID get_id(Window window) except *:
    """Read an ID of two lengths."""
    cdef StreamID id
    id.ms = window.get_count()
    id.seq = window.get_count()
    return id


cdef inline StreamID get_raw_id(Window window) except *:
    """Read an ID of 16 bytes."""
    window.need(16)
    window.at += 16
    return make_id(load_be64(window.at - 16), load_be64(window.at - 8))


cdef str show(StreamID id):
    return f"{id.ms}-{id.seq}"
