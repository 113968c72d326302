# cython: language_level=3, boundscheck=False, wraparound=False
"""Delivery: how entries of a stream reach the consumers of its groups, and change owners while they are pending.

The rules for one entry are here. Compiled callers that walk a stream and write replies use them directly
(xread, xclaim); the Python functions apply the same rules and return lists.

The engine tracks how far a group has read in two ways: its last-delivered ID, and `entries_read`, a position counted
from the first entry the stream ever had. With the second the lag is a subtraction, but it can be lost: an entry
deleted from the middle leaves no trace of its position. It is then unknown (-1) until the group reaches an entry whose
position can be derived from one end of the stream:

    entries_added = 9      . . 3 4 5 6 7 8 9     two were trimmed: first_id is 3, length 7
    position of an ID          3           9     the first is entries_added - length + 1, the last entries_added

    entries_added = 9      1 2 3 . 5 6 7 8 9     one was deleted: max_deleted_id is 4, length 8
    position of an ID                      9     unknown for the others: counting cannot pass 4

    "a tombstone ahead of X"                     the stream has entries and X <= max_deleted_id

These are Redis's rules, as observed on a running server. They are estimates: where a tombstone may be ahead, one is
assumed.
"""

from libc.stdint cimport UINT64_MAX, int64_t, uint64_t

from streamd.engine.ids cimport StreamID, id_cmp, id_increment, id_is_zero, make_id
from streamd.values.streams.group cimport Consumer, Group
from streamd.values.streams.node cimport StreamCursor
from streamd.values.streams.pel cimport PelRecord, count_delivery, pel_find, pel_insert, pel_remove
from streamd.values.streams.stream cimport Stream, cursor_next, cursor_seek

__all__ = ["claim", "lag", "next_unread", "read_new"]

cdef enum:
    STEPS = 16
    # Entries to step over before looking an ID up from the root; costs about as much as the lookup.


# --- How far a group has read ---------------------------------------------------------------------------------------

cdef inline bint has_tombstone_ahead(Stream stream, StreamID id) noexcept nogil:
    """Whether an entry after `id` may have been deleted."""
    return stream.length > 0 and not id_is_zero(stream.max_deleted_id) and id_cmp(id, stream.max_deleted_id) <= 0


cdef int64_t distance_from_first(Stream stream, StreamID id) noexcept nogil:
    """The position of `id` counted from the first entry the stream ever had; -1 when unknown."""
    cdef int order
    if stream.entries_added == 0:
        return 0
    order = id_cmp(id, stream.last_id)
    if stream.length == 0 and order <= 0:
        return <int64_t>stream.entries_added
    if not id_is_zero(id) and id_cmp(id, stream.max_deleted_id) < 0:
        return -1
    if order == 0:
        return <int64_t>stream.entries_added
    if order > 0:
        return -1
    if id_is_zero(stream.max_deleted_id) or id_cmp(stream.max_deleted_id, stream.first_id) < 0:
        order = id_cmp(id, stream.first_id)
        if order < 0:
            return <int64_t>(stream.entries_added - stream.length)
        if order == 0:
            return <int64_t>(stream.entries_added - stream.length + 1)
    return -1


cdef bint lag_of(Stream stream, Group group, int64_t *out) noexcept nogil:
    """How many entries the group has not read yet. Negative when ENTRIESREAD was set too high."""
    cdef int64_t position
    if stream.entries_added == 0 or stream.length == 0:
        out[0] = 0
    elif id_cmp(group.last_id, stream.first_id) < 0 and id_cmp(stream.max_deleted_id, stream.first_id) < 0:
        out[0] = <int64_t>stream.length
    elif group.entries_read >= 0 and not has_tombstone_ahead(stream, group.last_id):
        out[0] = <int64_t>stream.entries_added - group.entries_read
    else:
        position = distance_from_first(stream, group.last_id)
        out[0] = <int64_t>stream.entries_added - position
        return position >= 0
    return True


cdef void advance(Stream stream, Group group, StreamID id) noexcept nogil:
    """Note that the group has read the entry `id`, which is after its last-delivered ID."""
    if (
        group.entries_read >= 0
        and id_cmp(group.last_id, stream.first_id) >= 0
        and not has_tombstone_ahead(stream, group.last_id)
    ):
        group.entries_read += 1
    elif stream.entries_added:
        group.entries_read = distance_from_first(stream, id)
    group.last_id = id


def lag(Stream stream not None, Group group not None):
    """How many entries of `stream` the group has not read yet; None when unknown. O(1)."""
    cdef int64_t entries
    return entries if lag_of(stream, group, &entries) else None


def next_unread(Stream stream not None, Group group not None):
    """The ID of the first entry that the group has not read, or None. O(log n), n entries."""
    cdef StreamCursor cursor
    cdef StreamID after = group.last_id
    if id_cmp(after, stream.last_id) >= 0 or not id_increment(&after):
        return None
    cursor_seek(stream, &cursor, after, stream.last_id, False)
    return (cursor.id.ms, cursor.id.seq) if cursor_next(&cursor) else None


def read_new(
    Stream stream not None, Group group not None, bytes consumer not None, *,
    int64_t now_ms, count=None, bint no_ack=False,
):
    """Deliver new entries of the group to `consumer`; returns a list of (id, [(field, value), ...]).

    consumer  its name; created when missing
    now_ms    Unix time in ms, recorded as the time of delivery
    count     maximum number of entries; None: all
    no_ack    the entries do not become pending
    O(count log n), n pending. Behaviour: Redis manual, XREADGROUP with the ID `>`.
    """
    cdef Consumer reader = seen_consumer(group, consumer, now_ms)
    cdef StreamID after = group.last_id
    cdef StreamID id
    if not id_increment(&after):
        return []
    entries = stream.range((after.ms, after.seq), count=count)
    for (ms, seq), _ in entries:
        id = make_id(ms, seq)
        advance(stream, group, id)
        if not no_ack:
            group.deliver(id, reader, now_ms)
            reader.active_ms = now_ms
    return entries


cdef Consumer seen_consumer(Group group, bytes name, int64_t now_ms):
    """The consumer of that name, created if missing; its seen time is updated."""
    cdef Consumer consumer = group.find_consumer(name)
    if consumer is None:
        consumer = group.add_consumer(name, now_ms)
    consumer.seen_ms = now_ms
    return consumer


# --- Claiming ---------------------------------------------------------------------------------------------------------

cdef int claim_one(
    Group group, PelRecord *record, StreamID id, bint exists, Consumer consumer, const ClaimRule *rule
) except -1 nogil:
    """Hand one entry over to `consumer`, according to the rule; returns a Claim.

    record  the pending record of `id`, or NULL; invalid afterwards when the result is CLAIM_DROPPED
    exists  whether the stream still has the entry
    """
    if not exists:
        if record is NULL:
            return CLAIM_LEFT
        group.note(id)
        pel_remove(&group.pel, record)
        return CLAIM_DROPPED
    if record is NULL:
        if not rule.force:
            return CLAIM_LEFT
        # Redis counts the creation of this record as one delivery and the claim as another.
        group.note(id)
        record = pel_insert(&group.pel, id, consumer.number, rule.delivery_ms, 1)
    elif not is_claimable(record, rule):
        return CLAIM_LEFT
    else:
        group.hand_over(record, consumer, rule.delivery_ms)
    if rule.delivery_count >= 0:
        record.delivery_count = <uint64_t>rule.delivery_count
    elif rule.count_up:
        count_delivery(record)
    consumer.active_ms = rule.now_ms
    return CLAIM_MOVED


def claim(
    Stream stream not None, Group group not None, bytes consumer not None, ids, *,
    int64_t min_idle_ms, int64_t now_ms, bint force=False,
):
    """Hand pending entries over to `consumer`; return the IDs that moved, in the order given.

    consumer     its name; created when missing
    ids          those not pending are skipped, unless `force` makes them pending
    min_idle_ms  entries delivered more recently than this are left alone, unless they have no owner
    now_ms       Unix time in ms, recorded as the new time of delivery
    Entries deleted from the stream stop being pending along the way. O(len(ids) log n), n pending.
    Behaviour: Redis manual, XCLAIM.
    """
    cdef Consumer claimer = seen_consumer(group, consumer, now_ms)
    cdef ClaimRule rule
    cdef StreamID id
    rule.now_ms = rule.delivery_ms = now_ms
    rule.min_idle_ms = min_idle_ms
    rule.delivery_count = -1
    rule.count_up = True
    rule.force = force
    moved = []
    for ms, seq in ids:
        id = make_id(ms, seq)
        if claim_one(group, pel_find(&group.pel, id), id, stream.has_entry(id), claimer, &rule) == CLAIM_MOVED:
            moved.append((ms, seq))
    return moved


# --- Finding entries one after another --------------------------------------------------------------------------------

cdef bint find_entry(Finder *finder, Stream stream, StreamID id) noexcept nogil:
    cdef int order, _
    # The same ID is looked up again: the cursor has already been read from.
    if finder.started and id_cmp(id, finder.asked) > 0:
        finder.asked = id
        for _ in range(STEPS):
            if finder.at_end:
                return False
            order = id_cmp(finder.cursor.id, id)
            if order >= 0:
                return order == 0
            finder.at_end = not cursor_next(&finder.cursor)
    cursor_seek(stream, &finder.cursor, id, make_id(UINT64_MAX, UINT64_MAX), False)
    finder.started = True
    finder.asked = id
    finder.at_end = not cursor_next(&finder.cursor)
    return not finder.at_end and id_cmp(finder.cursor.id, id) == 0
