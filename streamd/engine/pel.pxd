# cython: language_level=3
"""Pending entries of one consumer group, as C structs. See pel.pyx."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from streamd.engine.ids cimport StreamID
from streamd.engine.rax cimport Rax


cdef struct PelRecord:
    StreamID id
    int64_t delivery_ms        # Unix time of the last delivery
    uint64_t delivery_count
    uint32_t owner             # number of the consumer in the group, from pel_add_owner
    uint32_t handle            # its own place in the slab


cdef struct PelIndex:
    # Handles of records in one order, in sorted chunks; the chunks hang in a radix tree by their first key.
    Rax chunks
    size_t count


cdef struct Pel:
    void **blocks              # slab of records, in blocks that never move; owned
    uint32_t block_count
    uint32_t free_head         # chain of free handles
    PelIndex by_id             # all records of the group by entry ID
    PelIndex by_time           # the same by (delivery_ms, entry ID): the oldest delivery first
    PelIndex **owners          # per consumer number: its records by entry ID; NULL for a number not in use; owned
    uint32_t owner_count


cdef struct PelCursor:
    # A position in an index. Dead after any change of the Pel, unless the function that changed it says otherwise.
    Pel *pel
    PelIndex *index
    void *chunk
    uint32_t at


cdef int pel_init(Pel *pel) except -1 nogil
cdef void pel_clear(Pel *pel) noexcept nogil
cdef size_t pel_memory(const Pel *pel) noexcept nogil             # bytes malloc'ed for all of it
cdef int64_t pel_add_owner(Pel *pel) except -1 nogil              # number for a new consumer
cdef void pel_drop_owner(Pel *pel, uint32_t owner) noexcept nogil # removes all of its records too
cdef size_t pel_owner_size(const Pel *pel, uint32_t owner) noexcept nogil
cdef PelRecord *pel_find(Pel *pel, StreamID id) noexcept nogil
cdef PelRecord *pel_insert(Pel *pel, StreamID id, uint32_t owner, int64_t delivery_ms, uint64_t count) except NULL nogil  # id must be absent
cdef void pel_remove(Pel *pel, PelRecord *record) noexcept nogil
cdef int pel_assign(Pel *pel, PelRecord *record, uint32_t owner) except -1 nogil        # another consumer owns it from now on
cdef int pel_set_time(Pel *pel, PelRecord *record, int64_t delivery_ms) except -1 nogil
cdef PelRecord *pel_first(Pel *pel) noexcept nogil                # smallest ID, or NULL
cdef PelRecord *pel_last(Pel *pel) noexcept nogil                 # greatest ID, or NULL
cdef PelRecord *pel_oldest(Pel *pel) noexcept nogil               # oldest delivery, or NULL
# Walks: seek, then next until NULL. owner < 0: all records of the group by ID.
cdef void pel_seek(Pel *pel, PelCursor *cursor, int64_t owner, StreamID first) noexcept nogil  # at the first ID >= `first`
cdef void pel_seek_oldest(Pel *pel, PelCursor *cursor) noexcept nogil                          # by delivery time
cdef PelRecord *pel_next(PelCursor *cursor) noexcept nogil
cdef int pel_check(const Pel *pel) except -1
