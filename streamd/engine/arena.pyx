# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Arena: the records of one large collection, in chunks, each named by a handle of 32 bits.

    handle - 1      |<------- 18 bits -------->|<------- 14 bits ------->|
                    | number of the chunk      | unit within the chunk   |       a unit is of 4 bytes

    chunk of class 5, records of 17 to 20 bytes:

    +----------+----------+------+----------+- - - - - - - - - - - - -+
    | record 0 | record 1 | hole | record 3 |  not used so far        |
    +----------+----------+------+----------+- - - - - - - - - - - - -+
                             `-> number of the next hole + 1

A pointer of 8 bytes and malloc's overhead would cost as much as a record of 16 bytes itself; a handle costs 4. Records
of one length share chunks, so that a freed record leaves a hole that the next one of its length fills, and none needs a
header. A record above 256 bytes is a block of its own; the chunk of class 0 holds its address (a hole there has its
lowest bit set, which no address has).

A chunk grows up to 64 KiB, by realloc, and then another one is begun: nothing larger is ever copied, but for the array
of chunks, 32 bytes for each. A chunk without records is freed at once. When records are few for the chunks there are,
the sparse ones are drained: their records are moved to others. Only the owner knows who holds handles, so the owner
does the walk (see arena_drain).

An arena holds 16 GiB of records in chunks; beyond, there is no memory for more.
Caller: table.pyx.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memcpy, memset

from streamd.heap cimport block_memory, block_size, free, malloc, realloc

__all__ = []

cdef enum:
    FEW_CHUNKS = 16             # as many are searched for room one by one
    MAX_CHUNKS = 1 << 18
    FIRST_BYTES = 256           # of a new chunk
    FIRST_BYTES_LARGE = 16384   # ... in a large arena
    LEAST_DRAINED = 4096        # bytes of an arena that is worth draining
    FEW_DRAINED = 16            # chunks that may be drained at a time, or an eighth of all: it takes that much memory


# --- Chunks -----------------------------------------------------------------------------------------------------------


cdef inline size_t record_bytes(const Chunk *chunk) noexcept nogil:
    return <size_t>chunk.units * ARENA_UNIT if chunk.units else sizeof(void *)


cdef inline size_t full_capacity(const Chunk *chunk) noexcept nogil:
    """Records of a chunk that has grown."""
    return ARENA_CHUNK_UNITS * ARENA_UNIT // record_bytes(chunk)


cdef inline bint has_room(const Chunk *chunk) noexcept nogil:
    """Whether a record can be added, if only by letting the chunk grow."""
    return chunk.hole or chunk.used < chunk.capacity or chunk.capacity < full_capacity(chunk)


cdef inline uint8_t *record_at(const Chunk *chunk, size_t number) noexcept nogil:
    return chunk.base + number * record_bytes(chunk)


cdef inline void count_block(Arena *arena, void *block, int sign) noexcept nogil:
    """Count a block that is owned, or subtract one that is no longer."""
    if block is not NULL:
        arena.held += <uint64_t>(<int64_t>sign * <int64_t>(block_memory(block)))


cdef inline void link(Arena *arena, uint32_t number) noexcept nogil:
    """Add a chunk with room to the list of its class."""
    cdef Chunk *chunk = &arena.chunks[number]
    if arena.heads is NULL:
        return
    chunk.previous = 0
    chunk.next = arena.heads[chunk.units]
    if chunk.next:
        arena.chunks[chunk.next].previous = number
    arena.heads[chunk.units] = number


cdef inline void unlink(Arena *arena, uint32_t number) noexcept nogil:
    """Take a chunk out of the list of its class."""
    cdef Chunk *chunk = &arena.chunks[number]
    if arena.heads is NULL:
        return
    if chunk.next:
        arena.chunks[chunk.next].previous = chunk.previous
    if chunk.previous:
        arena.chunks[chunk.previous].next = chunk.next
    else:
        arena.heads[chunk.units] = chunk.next


cdef void begin_lists(Arena *arena) noexcept nogil:
    """List the chunks with room, once they are too many to search one by one. Without memory: tried again later."""
    cdef uint32_t number
    arena.heads = <uint32_t *>malloc(ARENA_CLASSES * sizeof(uint32_t))
    if arena.heads is NULL:
        return
    count_block(arena, arena.heads, 1)
    memset(arena.heads, 0, ARENA_CLASSES * sizeof(uint32_t))
    for number in range(1, arena.count):
        if arena.chunks[number].base is not NULL and not arena.chunks[number].draining:
            if has_room(&arena.chunks[number]):
                link(arena, number)


cdef uint32_t find_room(const Arena *arena, uint8_t units) noexcept nogil:
    """A chunk of a class with room; 0: none has."""
    cdef const Chunk *chunk
    cdef uint32_t number
    if arena.heads is not NULL:
        return arena.heads[units]
    for number in range(1, arena.count):
        chunk = &arena.chunks[number]
        if chunk.units == units and chunk.base is not NULL and not chunk.draining and has_room(chunk):
            return number
    return 0


cdef uint32_t new_number(Arena *arena) noexcept nogil:
    """A chunk number that is not in use; 0: no memory."""
    cdef uint32_t number = arena.free_number
    cdef Chunk *moved
    if number:
        arena.free_number = arena.chunks[number].next
        return number
    number = arena.count if arena.count else 1
    if number == MAX_CHUNKS:
        return 0
    if number & (number - 1) == 0:
        moved = <Chunk *>realloc(arena.chunks, 2 * <size_t>number * sizeof(Chunk))
        if moved is NULL:
            return 0
        if arena.chunks is NULL:
            memset(moved, 0, sizeof(Chunk))
        arena.held += 2 * <size_t>number * sizeof(Chunk) - (0 if arena.count == 0 else number * sizeof(Chunk))
        arena.chunks = moved
    arena.count = number + 1
    return number


cdef uint32_t new_chunk(Arena *arena, uint8_t units) noexcept nogil:
    """Begin a chunk; 0: no memory."""
    cdef uint32_t number = new_number(arena)
    cdef Chunk *chunk
    cdef size_t size = arena.total >> 8
    if number == 0:
        return 0
    chunk = &arena.chunks[number]
    memset(chunk, 0, sizeof(Chunk))
    chunk.units = units
    size = FIRST_BYTES if size < FIRST_BYTES else FIRST_BYTES_LARGE if size > FIRST_BYTES_LARGE else size
    size = size // record_bytes(chunk) * record_bytes(chunk)
    chunk.base = <uint8_t *>malloc(size)
    if chunk.base is NULL:
        chunk.next = arena.free_number
        arena.free_number = number
        return 0
    chunk.capacity = <uint16_t>(size // record_bytes(chunk))
    count_block(arena, chunk.base, 1)
    arena.total += size
    link(arena, number)
    if arena.heads is NULL and arena.count > FEW_CHUNKS:
        begin_lists(arena)
    return number


cdef int grow_chunk(Arena *arena, Chunk *chunk) noexcept nogil:
    """Twice the room, as far as a chunk may grow. -1: no memory."""
    cdef size_t capacity = 2 * <size_t>chunk.capacity
    cdef uint8_t *moved
    if capacity > full_capacity(chunk):
        capacity = full_capacity(chunk)
    count_block(arena, chunk.base, -1)
    moved = <uint8_t *>realloc(chunk.base, capacity * record_bytes(chunk))
    if moved is not NULL:
        chunk.base = moved
        arena.total += (capacity - chunk.capacity) * record_bytes(chunk)
        chunk.capacity = <uint16_t>capacity
    count_block(arena, chunk.base, 1)
    return -1 if moved is NULL else 0


cdef void free_chunk(Arena *arena, uint32_t number) noexcept nogil:
    """Free a chunk without records, which is in no list."""
    cdef Chunk *chunk = &arena.chunks[number]
    arena.total -= chunk.capacity * record_bytes(chunk)
    arena.draining -= chunk.draining
    count_block(arena, chunk.base, -1)
    free(chunk.base)
    memset(chunk, 0, sizeof(Chunk))
    chunk.next = arena.free_number
    arena.free_number = number


# --- Records ----------------------------------------------------------------------------------------------------------


cdef uint32_t take_place(Arena *arena, uint8_t units) noexcept nogil:
    """Place for a record of a class; 0: no memory."""
    cdef uint32_t number = find_room(arena, units)
    cdef Chunk *chunk
    cdef size_t record
    if number == 0:
        number = new_chunk(arena, units)
        if number == 0:
            return 0
    chunk = &arena.chunks[number]
    if chunk.hole:
        record = chunk.hole - 1
        chunk.hole = next_hole(chunk, record)
    else:
        if chunk.used == chunk.capacity and grow_chunk(arena, chunk) < 0:
            return 0
        record = chunk.used
        chunk.used += 1
    chunk.live += 1
    arena.live += record_bytes(chunk)
    if not has_room(chunk):
        unlink(arena, number)
    return (number << ARENA_CHUNK_BITS | <uint32_t>(record * record_bytes(chunk) // ARENA_UNIT)) + 1


cdef inline uint16_t next_hole(const Chunk *chunk, size_t record) noexcept nogil:
    """The content of a hole: the number of the next one + 1; 0: none."""
    if chunk.units:
        return (<const uint16_t *>record_at(chunk, record))[0]
    return <uint16_t>((<const uint64_t *>record_at(chunk, record))[0] >> 1)


cdef inline void *block_of(const Chunk *chunk, size_t record) noexcept nogil:
    """The block of a record of class 0; NULL: it is a hole."""
    cdef uintptr_t value = (<const uintptr_t *>record_at(chunk, record))[0]
    return NULL if value & 1 else <void *>value


cdef uint32_t arena_alloc(Arena *arena, size_t size) noexcept nogil:
    """A record of `size` bytes; 0: no memory."""
    cdef size_t units = (size + ARENA_UNIT - 1) // ARENA_UNIT
    cdef uint32_t handle
    cdef void *block
    if units <= ARENA_MAX_UNITS:
        return take_place(arena, <uint8_t>(units if units else 1))
    block = malloc(size)
    if block is NULL:
        return 0
    handle = take_place(arena, 0)
    if handle == 0:
        free(block)
        return 0
    put_block(arena, handle, block)
    count_block(arena, block, 1)
    return handle


cdef inline void put_block(Arena *arena, uint32_t handle, void *block) noexcept nogil:
    """The block of a record of class 0."""
    cdef Chunk *chunk = &arena.chunks[(handle - 1) >> ARENA_CHUNK_BITS]
    (<void **>(chunk.base + <size_t>((handle - 1) & (ARENA_CHUNK_UNITS - 1)) * ARENA_UNIT))[0] = block


cdef void arena_release(Arena *arena, uint32_t handle) noexcept nogil:
    """Free a record."""
    cdef void *block
    if arena.chunks[(handle - 1) >> ARENA_CHUNK_BITS].units == 0:
        block = arena_at(arena, handle)
        count_block(arena, block, -1)
        free(block)
    arena_forget(arena, handle)


cdef void arena_forget(Arena *arena, uint32_t handle) noexcept nogil:
    """Give up the place of a record; its block, if it has one, belongs to another place now."""
    cdef uint32_t number = (handle - 1) >> ARENA_CHUNK_BITS
    cdef Chunk *chunk = &arena.chunks[number]
    cdef size_t record = <size_t>((handle - 1) & (ARENA_CHUNK_UNITS - 1)) * ARENA_UNIT // record_bytes(chunk)
    cdef bint was_listed = has_room(chunk) and not chunk.draining
    arena.live -= record_bytes(chunk)
    chunk.live -= 1
    if chunk.live == 0:
        if was_listed:
            unlink(arena, number)
        free_chunk(arena, number)
        return
    if chunk.units:
        (<uint16_t *>record_at(chunk, record))[0] = chunk.hole
    else:
        (<uint64_t *>record_at(chunk, record))[0] = <uint64_t>chunk.hole << 1 | 1
    chunk.hole = <uint16_t>(record + 1)
    if not was_listed and not chunk.draining:
        link(arena, number)


cdef uint32_t arena_resize(Arena *arena, uint32_t handle, size_t size) noexcept nogil:
    """Another size for a record; returns its handle, or 0: no memory."""
    cdef uint8_t units = arena.chunks[(handle - 1) >> ARENA_CHUNK_BITS].units
    cdef size_t new_units = (size + ARENA_UNIT - 1) // ARENA_UNIT
    cdef size_t kept
    cdef uint32_t new
    cdef void *block
    if new_units == 0:
        new_units = 1
    if units and new_units == units:
        return handle
    if units == 0 and new_units > ARENA_MAX_UNITS:
        block = arena_at(arena, handle)
        count_block(arena, block, -1)
        block = realloc(block, size)
        if block is not NULL:
            put_block(arena, handle, block)
        count_block(arena, arena_at(arena, handle), 1)
        return 0 if block is NULL else handle
    new = arena_alloc(arena, size)
    if new == 0:
        return 0
    kept = <size_t>units * ARENA_UNIT if units else block_size(arena_at(arena, handle))
    memcpy(arena_at(arena, new), arena_at(arena, handle), kept if kept < size else size)
    arena_release(arena, handle)
    return new


# --- Draining ---------------------------------------------------------------------------------------------------------


cdef bint arena_drain(Arena *arena) noexcept nogil:
    """Begin to empty sparse chunks, if more than half of all is unused."""
    cdef uint32_t most, marked = 0, number, _searched
    cdef Chunk *chunk
    if arena.live * 2 >= arena.total or arena.total < LEAST_DRAINED or arena.draining:
        return False
    if arena.drain_total and arena.total > arena.drain_total // 32 * 31 and arena.live > arena.drain_live // 8 * 7:
        return False       # it did not help the last time, and not much has changed
    arena.drain_total = arena.total
    arena.drain_live = arena.live
    most = arena.count // 8
    if most < FEW_DRAINED:
        most = FEW_DRAINED
    number = arena.last_drained
    for _searched in range(arena.count - 1):
        number = number + 1 if number + 1 < arena.count else 1
        chunk = &arena.chunks[number]
        if chunk.base is NULL or <uint32_t>chunk.live * 8 >= <uint32_t>chunk.capacity * 5:
            continue
        if has_room(chunk):
            unlink(arena, number)
        chunk.draining = True
        marked += 1
        if marked == most:
            break
    arena.last_drained = number
    arena.draining = marked
    return marked > 0


cdef uint32_t arena_move(Arena *arena, uint32_t handle) noexcept nogil:
    """Another place for a record; 0: no memory."""
    cdef uint8_t units = arena.chunks[(handle - 1) >> ARENA_CHUNK_BITS].units
    cdef uint32_t new = take_place(arena, units)
    if new == 0:
        return 0
    if units:
        memcpy(arena_at(arena, new), arena_at(arena, handle), <size_t>units * ARENA_UNIT)
    else:
        put_block(arena, new, arena_at(arena, handle))
    return new


cdef void arena_end_drain(Arena *arena) noexcept nogil:
    """All records have been walked; chunks that are not empty, for want of memory, are used as before."""
    cdef uint32_t number
    if arena.draining == 0:
        return
    for number in range(1, arena.count):
        if arena.chunks[number].draining:
            arena.chunks[number].draining = False
            if has_room(&arena.chunks[number]):
                link(arena, number)
    arena.draining = 0


# --- The whole --------------------------------------------------------------------------------------------------------


cdef void arena_clear(Arena *arena) noexcept nogil:
    """Free everything."""
    cdef uint32_t number
    cdef size_t record
    cdef Chunk *chunk
    for number in range(1, arena.count):
        chunk = &arena.chunks[number]
        if chunk.base is not NULL and chunk.units == 0:
            for record in range(chunk.used):
                free(block_of(chunk, record))
        free(chunk.base)
    free(arena.chunks)
    free(arena.heads)
    memset(arena, 0, sizeof(Arena))


cdef int arena_copy(Arena *to, const Arena *arena) noexcept nogil:
    """Copy all records, with their handles. -1: no memory, `to` is empty."""
    cdef uint32_t number, room = 2
    cdef size_t size
    cdef const Chunk *chunk
    cdef Chunk *made
    memset(to, 0, sizeof(Arena))
    if arena.count == 0:
        return 0
    while room < arena.count:
        room *= 2
    to.chunks = <Chunk *>malloc(room * sizeof(Chunk))
    if to.chunks is NULL:
        return -1
    to.held = room * sizeof(Chunk)
    memset(to.chunks, 0, sizeof(Chunk))
    for number in range(1, arena.count):
        chunk = &arena.chunks[number]
        made = &to.chunks[number]
        made[0] = chunk[0]
        made.draining = False
        to.count = number + 1
        if chunk.base is NULL:
            continue
        size = chunk.capacity * record_bytes(chunk)
        made.base = <uint8_t *>malloc(size)
        if made.base is NULL:
            break
        memcpy(made.base, chunk.base, chunk.used * record_bytes(chunk))
        count_block(to, made.base, 1)
        if chunk.units == 0 and copy_blocks(to, made) < 0:
            break
    else:
        to.free_number = arena.free_number
        to.total = arena.total
        to.live = arena.live
        if to.count > FEW_CHUNKS:
            begin_lists(to)
        return 0
    if to.count < 2 or to.chunks[number].base is NULL:
        to.count = number
    arena_clear(to)
    return -1


cdef int copy_blocks(Arena *to, Chunk *made) noexcept nogil:
    """Replace the blocks of a copied chunk by copies. -1: no memory; those not copied are holes."""
    cdef size_t record, size
    cdef void *block
    cdef void *copied
    cdef bint failed = False
    for record in range(made.used):
        block = block_of(made, record)
        if block is NULL:
            continue
        copied = NULL
        if not failed:
            size = block_size(block)
            copied = malloc(size)
        if copied is NULL:
            failed = True
            (<uint64_t *>record_at(made, record))[0] = 1
            continue
        memcpy(copied, block, size)
        count_block(to, copied, 1)
        (<void **>record_at(made, record))[0] = copied
    return -1 if failed else 0


cdef const char *arena_check(const Arena *arena) noexcept nogil:
    """NULL, or which invariant does not hold."""
    cdef uint64_t total = 0, live = 0, held = 0
    cdef uint32_t number, holes, hole, draining = 0, room = 2
    cdef const Chunk *chunk
    if arena.count == 0:
        return NULL
    while room < arena.count:
        room *= 2
    held = room * sizeof(Chunk)
    if arena.heads is not NULL:
        held += block_memory(arena.heads)
    for number in range(1, arena.count):
        chunk = &arena.chunks[number]
        if chunk.base is NULL:
            continue
        if chunk.live == 0:
            return b"a chunk without records was kept"
        if chunk.used > chunk.capacity or chunk.capacity > full_capacity(chunk):
            return b"a chunk holds more records than fit"
        holes = 0
        hole = chunk.hole
        while hole:
            if hole > chunk.used:
                return b"a hole lies outside of what was used"
            if chunk.units == 0 and block_of(chunk, hole - 1) is not NULL:
                return b"a hole has a block"
            holes += 1
            if holes > chunk.used:
                return b"the list of holes is a circle"
            hole = next_hole(chunk, hole - 1)
        if holes + chunk.live != chunk.used:
            return b"records and holes are not what was used"
        if arena.heads is not NULL and is_listed(arena, number) != (has_room(chunk) and not chunk.draining):
            return b"the lists are not those of the chunks with room"
        total += chunk.capacity * record_bytes(chunk)
        live += chunk.live * record_bytes(chunk)
        held += block_memory(chunk.base)
        draining += chunk.draining
        if chunk.units == 0:
            for hole in range(chunk.used):
                if block_of(chunk, hole) is not NULL:
                    held += block_memory(block_of(chunk, hole))
    number = arena.free_number
    while number:
        if arena.chunks[number].base is not NULL:
            return b"a free number has a chunk"
        number = arena.chunks[number].next
    if total != arena.total or live != arena.live or draining != arena.draining:
        return b"the totals of the arena are not the sums of its chunks"
    if held != arena.held:
        return b"the memory of the arena is not what is counted"
    return NULL


cdef bint is_listed(const Arena *arena, uint32_t number) noexcept nogil:
    """Whether a chunk is in the list of its class. O(chunks)."""
    cdef uint32_t at = arena.heads[arena.chunks[number].units]
    while at:
        if at == number:
            return True
        at = arena.chunks[at].next
    return False
