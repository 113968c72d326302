# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The pending entries list (PEL) of a consumer group: which consumer got which entry, when, and how often.

A pending entry is one PelRecord of 44 bytes. It is indexed in three orders: by entry ID in the group, by entry ID for
its consumer, by delivery time in the group. Those that are held back are in a fourth one, by entry ID.

    pel_slab.pxd    where the records are stored, and how they are named
    pel_index.pxd   the three orders: handles of records in chunks
    pel.pxd         what consumer groups use: records, consumers, the NACK zone, walks (here)
    pel_check.pyx   the invariants

Turns. Records with one delivery time are ordered by when they were assigned it, which is the order in which Redis
delivers them. So every setting of a time takes a number, the turn, from a 32-bit counter. When that wraps around,
records with turns from before and after may be in the wrong order, and two may have the same turn; the ID still tells
them apart, so no two records are ever equal.

The NACK zone. A record may have no owner: its entry was returned and is waiting for any consumer. Such records come
before all others in the order by time, in the order in which they came. Their delivery times are not needed, so that
field holds the place in the zone instead, which is negative; times of owned records are not. The zone is an interval of
the order by time and needs no index of its own.

Failure. An insertion that runs out of memory changes nothing; removals need no memory.

Invariants: see pel_check.pyx.
"""

from libc.stdint cimport INT64_MIN, int64_t, uint32_t, uint64_t
from libc.string cimport memset

from streamd.engine.ids cimport StreamID, make_id
from streamd.engine.rax cimport rax_first, rax_higher
from streamd.heap cimport free, malloc, realloc
from streamd.values.streams.pel_index cimport (
    ID_KEY, TIME_KEY, Chunk, PelIndex, Place, chunk_size, compare, count_below, find_chunk, handles_of, index_add,
    index_clear, index_find, index_init, index_remove, index_take, is_by_time, place_of, tidy_chunk,
)
from streamd.values.streams.pel_slab cimport (
    NO_HANDLE, NO_OWNER, PelRecord, free_record, free_slab, new_record, record_of,
)

__all__ = []


cdef int no_memory() except -1 with gil:
    raise MemoryError("no memory for a pending entry")


# --- The PEL --------------------------------------------------------------------------------------------------------


cdef int pel_init(Pel *pel) except -1 nogil:
    """An empty PEL without consumers. It allocates nothing until the first insertion."""
    memset(pel, 0, sizeof(Pel))
    pel.slab.free_index = NO_HANDLE
    index_init(&pel.by_id, ID_KEY)
    index_init(&pel.by_time, TIME_KEY)
    index_init(&pel.held, ID_KEY)
    return 0


cdef void pel_clear(Pel *pel) noexcept nogil:
    """Free everything: records, consumers. The PEL is as pel_init leaves it. O(n / 100), without the GIL."""
    cdef uint32_t i
    for i in range(pel.owner_count):
        if pel.owners[i] is not NULL:
            index_clear(pel.owners[i])
            free(pel.owners[i])
    free(pel.owners)
    free(pel.free_owners)
    index_clear(&pel.by_id)
    index_clear(&pel.by_time)
    index_clear(&pel.held)
    free_slab(&pel.slab)
    memset(pel, 0, sizeof(Pel))
    pel.slab.free_index = NO_HANDLE
    index_init(&pel.by_id, ID_KEY)
    index_init(&pel.by_time, TIME_KEY)
    index_init(&pel.held, ID_KEY)


cdef size_t pel_memory(const Pel *pel) noexcept nogil:
    """Bytes malloc'ed for all of it, excluding the struct itself. O(consumers)."""
    cdef size_t total = pel.slab.memory + pel.by_id.chunks.memory + pel.by_time.chunks.memory + pel.held.chunks.memory
    cdef uint32_t i
    for i in range(pel.owner_count):
        if pel.owners[i] is not NULL:
            total += pel.owners[i].chunks.memory
    return total


cdef int64_t pel_add_owner(Pel *pel) except -1 nogil:
    """Make room for one more consumer and return its number; numbers of dropped consumers are reused."""
    cdef PelIndex **owners
    cdef uint32_t *free_owners
    cdef PelIndex *index
    cdef uint32_t number, capacity
    if pel.free_owner_count == 0 and pel.owner_count == pel.owner_capacity:
        if pel.owner_capacity > NO_HANDLE // 2:
            return no_memory()
        capacity = pel.owner_capacity * 2 if pel.owner_capacity else 2
        owners = <PelIndex **>realloc(pel.owners, capacity * sizeof(PelIndex *))
        if owners is NULL:
            return no_memory()
        pel.owners = owners
        free_owners = <uint32_t *>realloc(pel.free_owners, capacity * sizeof(uint32_t))
        if free_owners is NULL:
            return no_memory()
        pel.free_owners = free_owners
        pel.slab.memory += (capacity - pel.owner_capacity) * (sizeof(PelIndex *) + sizeof(uint32_t))
        pel.owner_capacity = capacity
    index = <PelIndex *>malloc(sizeof(PelIndex))
    if index is NULL:
        return no_memory()
    pel.slab.memory += sizeof(PelIndex)
    index_init(index, ID_KEY)
    if pel.free_owner_count:
        pel.free_owner_count -= 1
        number = pel.free_owners[pel.free_owner_count]
    else:
        number = pel.owner_count
        pel.owner_count += 1
    pel.owners[number] = index
    return number


cdef inline void drop_record(Pel *pel, PelRecord *record) noexcept nogil:
    """Free a record that is no longer in any index; with the last record, free the slab."""
    if free_record(&pel.slab, record) and pel.by_id.count == 0:
        free_slab(&pel.slab)


cdef void pel_drop_owner(Pel *pel, uint32_t owner) noexcept nogil:
    """Remove a consumer and all of its records. Does nothing for a number not in use. O(k log n), k records."""
    cdef PelIndex *index
    cdef PelRecord *record
    cdef Chunk *chunk
    cdef Chunk *next_chunk
    cdef uint32_t i
    if owner >= pel.owner_count or pel.owners[owner] is NULL:
        return
    index = pel.owners[owner]
    chunk = <Chunk *>rax_first(&index.chunks)
    while chunk is not NULL:
        for i in range(chunk.count):
            record = record_of(&pel.slab, handles_of(chunk)[i])
            pel_release(pel, record)
            index_remove(&pel.slab, &pel.by_id, record)
            index_remove(&pel.slab, &pel.by_time, record)
            drop_record(pel, record)
        next_chunk = <Chunk *>rax_higher(&index.chunks, chunk.key)
        pel.slab.memory -= chunk_size(chunk.capacity)
        chunk = next_chunk
    index_clear(index)
    free(index)
    pel.slab.memory -= sizeof(PelIndex)
    pel.owners[owner] = NULL
    pel.free_owners[pel.free_owner_count] = owner
    pel.free_owner_count += 1


cdef size_t pel_owner_size(const Pel *pel, uint32_t owner) noexcept nogil:
    """How many records a consumer has; 0 for a number not in use."""
    if owner >= pel.owner_count or pel.owners[owner] is NULL:
        return 0
    return pel.owners[owner].count


cdef PelRecord *pel_find(Pel *pel, StreamID id) noexcept nogil:
    """The record of an entry, or NULL. O(log n)."""
    cdef Place place
    place.delivery_ms = 0
    place.turn = 0
    place.id = id
    return index_find(&pel.slab, &pel.by_id, &place)


cdef inline uint32_t next_turn(Pel *pel) noexcept nogil:
    pel.turn += 1
    return pel.turn


cdef PelRecord *pel_insert(
    Pel *pel, StreamID id, uint32_t owner, int64_t delivery_ms, uint64_t count
) except NULL nogil:
    """Add a record for an entry that has none; `owner` must be in use. O(log n), less at the end of each order."""
    cdef PelRecord *record = new_record(&pel.slab)
    cdef Place place
    if record is NULL:
        no_memory()
        return NULL
    record.id = id
    record.delivery_ms = delivery_ms
    record.delivery_count = count
    record.turn = next_turn(pel)
    record.owner = owner
    place = place_of(record)
    if index_add(&pel.slab, &pel.by_id, &place, record.handle):
        if index_add(&pel.slab, pel.owners[owner], &place, record.handle):
            if index_add(&pel.slab, &pel.by_time, &place, record.handle):
                return record
            index_remove(&pel.slab, pel.owners[owner], record)
        index_remove(&pel.slab, &pel.by_id, record)
    drop_record(pel, record)
    no_memory()
    return NULL


cdef void pel_remove(Pel *pel, PelRecord *record) noexcept nogil:
    """Remove a record and free it. O(log n)."""
    pel_release(pel, record)
    index_remove(&pel.slab, &pel.by_id, record)
    index_remove(&pel.slab, &pel.by_time, record)
    if record.owner == NO_OWNER:
        leave_zone(pel)
    else:
        index_remove(&pel.slab, pel.owners[record.owner], record)
    drop_record(pel, record)


cdef int pel_assign(Pel *pel, PelRecord *record, uint32_t owner) except -1 nogil:
    """Make another consumer, which must be in use, the owner of an owned record. O(log n)."""
    cdef Place place = place_of(record)
    if owner == record.owner:
        return 0
    if not index_add(&pel.slab, pel.owners[owner], &place, record.handle):
        return no_memory()
    pel_release(pel, record)
    index_remove(&pel.slab, pel.owners[record.owner], record)
    record.owner = owner
    return 0


cdef inline bint move_in_time(Pel *pel, PelRecord *record, int64_t delivery_ms, uint32_t turn) noexcept nogil:
    """Move a record to another place in the order by time; False, with no change, when out of memory."""
    cdef Place old = place_of(record)
    cdef Place new = old
    cdef bint added
    new.delivery_ms = delivery_ms
    new.turn = turn
    # The old chunk is left unchanged, maybe empty, until the new place is found, so there is room to move back. The
    # chunk may have moved by then, but the old place still belongs in it.
    index_take(&pel.by_time, &old, record.handle)
    added = index_add(&pel.slab, &pel.by_time, &new, record.handle)
    if added:
        record.delivery_ms = delivery_ms
        record.turn = turn
    else:
        index_add(&pel.slab, &pel.by_time, &old, record.handle)
    tidy_chunk(&pel.slab, &pel.by_time, find_chunk(&pel.by_time, &old))
    return added


cdef int pel_set_time(Pel *pel, PelRecord *record, int64_t delivery_ms) except -1 nogil:
    """Set the delivery time of an owned record, and put it after all records with that time. O(log n)."""
    pel_release(pel, record)
    return 0 if move_in_time(pel, record, delivery_ms, next_turn(pel)) else no_memory()


# --- Held back ------------------------------------------------------------------------------------------------------


cdef void pel_release(Pel *pel, PelRecord *record) noexcept nogil:
    """Hold a record back no longer, if it was. Costs a test while none is."""
    cdef Place place
    if pel.held.count == 0:
        return
    place = place_of(record)
    if index_find(&pel.slab, &pel.held, &place) is not NULL:
        index_remove(&pel.slab, &pel.held, record)
        pel.owners[record.owner].held -= 1


cdef int pel_hold(Pel *pel, PelRecord *record, int64_t failed_ms) except -1 nogil:
    """Note that the last delivery of an owned record failed, at a time that becomes its delivery time. O(log n)."""
    cdef Place place
    pel_set_time(pel, record, failed_ms)
    place = place_of(record)
    if not index_add(&pel.slab, &pel.held, &place, record.handle):
        return no_memory()
    pel.owners[record.owner].held += 1
    return 0


# --- The NACK zone --------------------------------------------------------------------------------------------------


cdef inline void leave_zone(Pel *pel) noexcept nogil:
    """Note that the zone has one record fewer."""
    pel.unowned -= 1
    if pel.unowned == 0:
        pel.zone_next = 0


cdef PelRecord *pel_insert_unowned(Pel *pel, StreamID id, uint64_t count) except NULL nogil:
    """Add a record for an entry that has none, without an owner, at the end of the zone. O(log n)."""
    cdef PelRecord *record = new_record(&pel.slab)
    cdef Place place
    if record is NULL:
        no_memory()
        return NULL
    record.id = id
    record.delivery_ms = zone_time(pel.zone_next)
    record.delivery_count = count
    record.turn = 0
    record.owner = NO_OWNER
    place = place_of(record)
    if index_add(&pel.slab, &pel.by_id, &place, record.handle):
        if index_add(&pel.slab, &pel.by_time, &place, record.handle):
            pel.unowned += 1
            pel.zone_next += 1
            return record
        index_remove(&pel.slab, &pel.by_id, record)
    drop_record(pel, record)
    no_memory()
    return NULL


cdef int pel_disown(Pel *pel, PelRecord *record) except -1 nogil:
    """Take a record from its owner, if it has one, and put it at the end of the zone. O(log n)."""
    if not move_in_time(pel, record, zone_time(pel.zone_next), 0):
        return no_memory()
    pel.zone_next += 1
    if record.owner != NO_OWNER:
        pel_release(pel, record)
        index_remove(&pel.slab, pel.owners[record.owner], record)
        record.owner = NO_OWNER
        pel.unowned += 1
    return 0


cdef int pel_adopt(Pel *pel, PelRecord *record, uint32_t owner, int64_t delivery_ms) except -1 nogil:
    """Give a record in the zone to a consumer, which must be in use, as delivered at `delivery_ms`. O(log n)."""
    cdef Place place = place_of(record)
    if not index_add(&pel.slab, pel.owners[owner], &place, record.handle):
        return no_memory()
    if not move_in_time(pel, record, delivery_ms, next_turn(pel)):
        index_remove(&pel.slab, pel.owners[owner], record)
        return no_memory()
    record.owner = owner
    leave_zone(pel)
    return 0


cdef PelRecord *pel_first(Pel *pel) noexcept nogil:
    """The record with the smallest ID, or NULL."""
    cdef Chunk *chunk = <Chunk *>rax_first(&pel.by_id.chunks)
    return NULL if chunk is NULL else record_of(&pel.slab, handles_of(chunk)[0])


cdef PelRecord *pel_last(Pel *pel) noexcept nogil:
    """The record with the greatest ID, or NULL. O(1)."""
    cdef Chunk *chunk = <Chunk *>pel.by_id.chunks.last
    return NULL if chunk is NULL else record_of(&pel.slab, handles_of(chunk)[chunk.count - 1])


cdef PelRecord *pel_oldest(Pel *pel) noexcept nogil:
    """The first record of the NACK zone, else the one delivered longest ago, or NULL.

    Of several with the same time it is the one that was assigned it first.
    """
    cdef Chunk *chunk = <Chunk *>rax_first(&pel.by_time.chunks)
    return NULL if chunk is NULL else record_of(&pel.slab, handles_of(chunk)[0])


# --- Cursors --------------------------------------------------------------------------------------------------------


cdef void settle(PelCursor *cursor) noexcept nogil:
    """Find the cursor's place in the index in its current state."""
    cdef PelIndex *index = cursor.index
    cdef bint by_time = is_by_time(index)
    cdef Chunk *chunk
    cdef Place place
    place.delivery_ms = cursor.delivery_ms
    place.turn = cursor.turn
    place.id = cursor.id
    chunk = find_chunk(index, &place)
    cursor.at = 0
    if chunk is NULL:
        chunk = <Chunk *>rax_first(&index.chunks)
    else:
        cursor.at = count_below(&cursor.pel.slab, chunk, &place, by_time)
        if cursor.met and cursor.at < chunk.count:
            if compare(record_of(&cursor.pel.slab, handles_of(chunk)[cursor.at]), &place, by_time) == 0:
                cursor.at += 1
    cursor.chunk = chunk
    cursor.version = index.version


cdef void seek(
    PelCursor *cursor, Pel *pel, PelIndex *index, int64_t delivery_ms, uint32_t turn, StreamID id
) noexcept nogil:
    cursor.pel = pel
    cursor.index = index
    cursor.chunk = NULL
    cursor.at = 0
    cursor.version = 0
    cursor.met = False
    cursor.delivery_ms = delivery_ms
    cursor.turn = turn
    cursor.id = id
    if index is not NULL:
        settle(cursor)


cdef void pel_seek(Pel *pel, PelCursor *cursor, int64_t owner, StreamID first) noexcept nogil:
    """Start a walk by ID, at `first` or the next record, over the records of `owner` (negative: over all)."""
    if owner < 0:
        seek(cursor, pel, &pel.by_id, 0, 0, first)
    elif owner >= pel.owner_count:
        seek(cursor, pel, NULL, 0, 0, first)
    else:
        seek(cursor, pel, pel.owners[owner], 0, 0, first)


cdef void pel_seek_oldest(Pel *pel, PelCursor *cursor) noexcept nogil:
    """Start a walk over all records by delivery time, oldest first; those with one time in order of assignment."""
    pel_seek_time(pel, cursor, INT64_MIN, 0, make_id(0, 0))


cdef void pel_seek_time(Pel *pel, PelCursor *cursor, int64_t delivery_ms, uint32_t turn, StreamID id) noexcept nogil:
    """As pel_seek_oldest, but start at the place of such a record, or the next one."""
    seek(cursor, pel, &pel.by_time, delivery_ms, turn, id)


cdef PelRecord *pel_next(PelCursor *cursor) noexcept nogil:
    """The next record of a walk, or NULL at the end. O(1), and O(log n) after a change to the walked index."""
    cdef PelRecord *record
    cdef Chunk *chunk
    if cursor.index is NULL:
        return NULL
    if cursor.version != cursor.index.version:
        settle(cursor)
    chunk = <Chunk *>cursor.chunk
    if chunk is NULL:
        return NULL
    if cursor.at == chunk.count:
        chunk = <Chunk *>rax_higher(&cursor.index.chunks, chunk.key)
        cursor.chunk = chunk
        cursor.at = 0
        if chunk is NULL:
            return NULL
    record = record_of(&cursor.pel.slab, handles_of(chunk)[cursor.at])
    cursor.at += 1
    cursor.met = True
    cursor.delivery_ms = record.delivery_ms
    cursor.turn = record.turn
    cursor.id = record.id
    return record
