# cython: language_level=3
"""Arena: the records of one large collection, in chunks, each named by a handle of 32 bits. See arena.pyx.

A handle is valid until its record is freed; it is never 0. The address of a record (arena_at) is not: it is dead after
the next call of arena_alloc, arena_resize or arena_move.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t


cdef enum:
    ARENA_UNIT = 4                  # bytes: records start at multiples of it, and take multiples of it
    ARENA_CHUNK_UNITS = 16384       # units of a full chunk: 64 KiB
    ARENA_CHUNK_BITS = 14           # of a handle minus 1: the unit within the chunk; the others are the chunk's number
    ARENA_MAX_UNITS = 64            # of a record in a chunk; longer ones have a block of their own
    ARENA_CLASSES = 65              # the records of a chunk are of one class: their units, or 0: addresses of blocks


cdef struct Chunk:
    # Records of one class, from `base`. A hole, a record that was freed, starts with the number of the next hole + 1.
    uint8_t *base              # malloc'ed, owned by the arena; NULL: the number is free
    uint32_t previous, next    # chunks of its class with room; `next` of a free number: the next free one; 0: none
    uint16_t capacity          # records that fit
    uint16_t used              # records that there have been: the rest of the chunk is untouched
    uint16_t live              # records that there are
    uint16_t hole              # number of the first hole + 1; 0: none
    uint8_t units              # of a record; 0: class 0, whose records are addresses of blocks
    bint draining              # no records are added, and its own are being moved elsewhere


cdef struct Arena:
    # All zero is an empty arena.
    Chunk *chunks              # [count], malloc'ed, owned; number 0 is never used
    uint32_t *heads            # [ARENA_CLASSES]: the first chunk of a class with room; NULL as long as chunks are few
    uint32_t count             # chunk numbers, free ones included; room for more is a power of two
    uint32_t free_number       # the first free number; 0: none
    uint32_t draining          # chunks that are being emptied
    uint32_t last_drained      # number after which the search for sparse chunks continues
    uint64_t total             # bytes of chunks that records can use
    uint64_t live              # bytes of records in chunks
    uint64_t drain_total       # `total` and `live` when draining began the last time; 0: it never has
    uint64_t drain_live
    uint64_t held              # bytes of memory: chunks, blocks, and what describes them


cdef inline uint8_t *arena_at(const Arena *arena, uint32_t handle) noexcept nogil:
    """The address of a record."""
    cdef const Chunk *chunk = &arena.chunks[(handle - 1) >> ARENA_CHUNK_BITS]
    cdef uint8_t *p = chunk.base + <size_t>((handle - 1) & (ARENA_CHUNK_UNITS - 1)) * ARENA_UNIT
    return p if chunk.units else (<uint8_t **>p)[0]


cdef inline bint arena_is_draining(const Arena *arena, uint32_t handle) noexcept nogil:
    """Whether a record has to be moved by arena_move, see arena_drain."""
    return arena.chunks[(handle - 1) >> ARENA_CHUNK_BITS].draining


cdef uint32_t arena_alloc(Arena *arena, size_t size) noexcept nogil            # 0: no memory, nothing changed
cdef void arena_release(Arena *arena, uint32_t handle) noexcept nogil
cdef uint32_t arena_resize(Arena *arena, uint32_t handle, size_t size) noexcept nogil
    # The handle of the record with its new size, often the same; its bytes are kept as far as they fit. 0: no memory,
    # nothing changed.
cdef uint32_t arena_move(Arena *arena, uint32_t handle) noexcept nogil
    # A copy of a record of a draining chunk, elsewhere; both are there until one is released. 0: no memory. Of a record
    # in a block the copy is the same block: release one of them with arena_forget.
cdef void arena_forget(Arena *arena, uint32_t handle) noexcept nogil    # release a record after arena_move
cdef bint arena_drain(Arena *arena) noexcept nogil
    # Mark sparse chunks for draining if much of the arena is unused. True: the owner has to walk all its records once,
    # move those for which arena_is_draining, in as many steps as it likes, and then call arena_end_drain.
cdef void arena_end_drain(Arena *arena) noexcept nogil
cdef int arena_copy(Arena *to, const Arena *arena) noexcept nogil      # `to` is empty; the same handles. -1: no memory
cdef void arena_clear(Arena *arena) noexcept nogil                     # frees everything; it is empty then
cdef const char *arena_check(const Arena *arena) noexcept nogil        # NULL, or which invariant does not hold
