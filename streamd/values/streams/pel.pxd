# cython: language_level=3
"""Pending entries of one consumer group, as C structs. See pel.pyx."""

from libc.stdint cimport INT64_MAX, int64_t, uint32_t, uint64_t

from streamd.engine.ids cimport StreamID
from streamd.values.streams.pel_index cimport PelIndex
from streamd.values.streams.pel_slab cimport NO_OWNER, PelRecord, Slab


cdef struct Pel:
    Slab slab                  # the records, and the bytes malloc'ed for everything except the nodes of the radix trees
    uint32_t owner_count       # entries of `owners` in use, including dropped ones
    uint32_t owner_capacity    # entries malloc'ed for `owners` and `free_owners`
    uint32_t free_owner_count
    uint32_t turn              # the last one given out; wraps around to 0
    PelIndex **owners          # per consumer number: its records by entry ID; NULL for a number not in use; owned
    uint32_t *free_owners      # dropped numbers, a stack; owned
    PelIndex by_id             # all records of the group by entry ID
    PelIndex by_time           # the same by (delivery_ms, turn, entry ID): NACK zone, then oldest delivery first
    size_t unowned             # records in the NACK zone
    uint64_t zone_next         # the next place in the zone; 0 when the zone is empty
    PelIndex held              # owned records that are held back, by entry ID: see pel_hold


cdef inline int64_t zone_time(uint64_t place) noexcept nogil:
    """The delivery_ms of a place in the NACK zone: negative, ascending, and exact as a double."""
    return <int64_t>place - (<int64_t>1 << 53)


cdef inline uint64_t zone_place(const PelRecord *record) noexcept nogil:
    """The place of a record in the NACK zone: ascending, with gaps."""
    return <uint64_t>(record.delivery_ms + (<int64_t>1 << 53))


cdef inline int64_t delivered_ms(const PelRecord *record) noexcept nogil:
    """Unix time of the last delivery as clients see it; 0 when the record is unowned."""
    return record.delivery_ms if record.delivery_ms > 0 else 0


cdef inline void count_delivery(PelRecord *record) noexcept nogil:
    if record.delivery_count < <uint64_t>INT64_MAX:
        record.delivery_count += 1


cdef struct PelCursor:
    # A position in an index. The Pel may change during a walk, for example by removing the record returned last: the
    # walk continues at the first record above that one, in the index as it is then. After a change to the walked
    # index, pel_next costs a search: to change times and owners, walk all records by ID, which leaves that order
    # alone.
    # A walk by time returns a record again if its time is meanwhile set to the same or a later value.
    # A cursor is invalid after pel_clear, and after pel_drop_owner of the consumer whose records it walks.
    Pel *pel
    PelIndex *index            # NULL: nothing to walk
    void *chunk                # NULL: past the last record
    uint32_t at                # the next record, in the chunk
    uint32_t version           # of the index when `chunk` and `at` were right
    bint met                   # the place below is that of the last record returned; else where the walk starts
    uint32_t turn
    int64_t delivery_ms
    StreamID id


cdef int pel_init(Pel *pel) except -1 nogil
cdef void pel_clear(Pel *pel) noexcept nogil                      # frees everything; the Pel is as new. No GIL needed
cdef size_t pel_memory(const Pel *pel) noexcept nogil             # bytes malloc'ed for all of it
cdef int64_t pel_add_owner(Pel *pel) except -1 nogil              # number for a new consumer
cdef void pel_drop_owner(Pel *pel, uint32_t owner) noexcept nogil  # removes all of its records too
cdef size_t pel_owner_size(const Pel *pel, uint32_t owner) noexcept nogil
cdef PelRecord *pel_find(Pel *pel, StreamID id) noexcept nogil
cdef PelRecord *pel_insert(                                       # the ID must be absent, the owner in use
    Pel *pel, StreamID id, uint32_t owner, int64_t delivery_ms, uint64_t count) except NULL nogil
cdef void pel_remove(Pel *pel, PelRecord *record) noexcept nogil
cdef int pel_assign(                # gives an owned record to another consumer
    Pel *pel, PelRecord *record, uint32_t owner) except -1 nogil
cdef int pel_set_time(              # moves an owned record behind all others of that time, even if unchanged
    Pel *pel, PelRecord *record, int64_t delivery_ms) except -1 nogil
# Held back: entries that failed, stay with their owner, and are in nobody's hands until they are delivered again.
cdef void pel_release(Pel *pel, PelRecord *record) noexcept nogil
cdef int pel_hold(                  # a new delivery time, or owner, ends it
    Pel *pel, PelRecord *record, int64_t failed_ms) except -1 nogil
cdef inline size_t pel_in_hand(const Pel *pel) noexcept nogil:
    """Records that are not held back."""
    return pel.by_id.count - pel.held.count


cdef inline size_t pel_owner_in_hand(const Pel *pel, uint32_t owner) noexcept nogil:
    """Those of a consumer that are not held back; 0 for a number not in use."""
    if owner >= pel.owner_count or pel.owners[owner] is NULL:
        return 0
    return pel.owners[owner].count - pel.owners[owner].held


# The NACK zone: the records without an owner, first come, first served, before all others in the order by time.
cdef PelRecord *pel_insert_unowned(Pel *pel, StreamID id, uint64_t count) except NULL nogil    # the ID must be absent
cdef int pel_disown(Pel *pel, PelRecord *record) except -1 nogil  # moves a record, owned or not, to the end of the zone
cdef int pel_adopt(                 # gives a record of the zone to a consumer
    Pel *pel, PelRecord *record, uint32_t owner, int64_t delivery_ms) except -1 nogil
cdef PelRecord *pel_first(Pel *pel) noexcept nogil                # smallest ID, or NULL
cdef PelRecord *pel_last(Pel *pel) noexcept nogil                 # greatest ID, or NULL
cdef PelRecord *pel_oldest(Pel *pel) noexcept nogil               # oldest delivery, or NULL
# Walks: seek, then next until NULL. owner < 0: all records of the group by ID.
cdef void pel_seek(Pel *pel, PelCursor *cursor, int64_t owner, StreamID first) noexcept nogil  # at the first ID >= it
cdef void pel_seek_oldest(Pel *pel, PelCursor *cursor) noexcept nogil                       # by delivery time
cdef void pel_seek_time(                                                                    # ... from a place on
    Pel *pel, PelCursor *cursor, int64_t delivery_ms, uint32_t turn, StreamID id) noexcept nogil
cdef PelRecord *pel_next(PelCursor *cursor) noexcept nogil
