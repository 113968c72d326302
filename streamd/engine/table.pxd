# cython: language_level=3
"""Table: a hash table of records in an arena, for sets, hashes and sorted sets that are not small. See table.pyx.

    +--------------------+---------------+-----+-----------------+     a record; head and rest belong to the owner of
    | head: `head` bytes | length of key | key | rest, any bytes |     the table: a score before a member, or a value
    +--------------------+---------------+-----+-----------------+     after a field

Records are named by handles. A handle is valid until its record is removed, resized, or moved; records move only within
table_remove, which reports each move to `moved`, if that is set: a second index of handles must replace the old one,
which can still be read during the call. Addresses of records are dead after the next table_add, table_resize or
table_remove.

All zero, apart from `head`, is an empty table. Nothing here needs the GIL. Functions that can fail for want of memory
leave the table as it was.

    cdef uint64_t hash = table_hash(key, n)
    cdef uint32_t handle = table_find(&t, hash, key, n)
    if not handle:
        record = table_add(&t, hash, t.head + key_room(n) + n + rest, &handle)
        if record is NULL: raise MemoryError
        put_key(record + t.head, key, n)        # the caller writes the whole record, before any other call
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from streamd.engine.arena cimport Arena, arena_at
from streamd.engine.listpack cimport lp_load32
from streamd.engine.siphash cimport siphash


cdef enum:
    TABLE_PAGE = 256        # most records that one call of table_scan returns


cdef struct Segment:
    # Slots for the records whose hashes start with the same `depth` bits, in groups of eight. It is one block: this
    # head, a tag of each slot, a handle of each slot.
    uint16_t live              # slots with a record
    uint16_t worn              # slots without one at which searches do not stop
    uint8_t depth
    uint8_t bits               # log2 of the number of groups
    uint16_t unused


ctypedef void (*table_moved)(void *owner, uint32_t old, uint32_t new) noexcept nogil


cdef struct Table:
    Arena arena                # the records
    Segment **directory        # [1 << depth], malloc'ed: where records are, by the first `depth` bits of their hashes
    uint64_t count             # records
    uint64_t held              # bytes of segments and of the directory
    table_moved moved          # called with `owner` when a record has another handle; NULL: nobody
    void *owner
    uint32_t head              # bytes of a record before the length of its key
    uint32_t segments
    uint32_t deepest           # segments whose depth is that of the directory
    uint64_t drained           # cursor up to which records have been moved out of draining chunks
    uint8_t depth


cdef struct TableWalk:
    # Where a walk is; all zero: at the start.
    uint64_t segment           # place in the directory
    uint32_t slot


cdef uint64_t *secret          # the key of all hashes of this process, and the state of its random numbers: 3 words

# --- Records ------------------------------------------------------------------------------------------------------


cdef inline size_t key_room(size_t n) noexcept nogil:
    """Bytes of the length before a key of n bytes: 1, 2 or 5."""
    return 1 if n < 128 else 2 if n < 16384 else 5


cdef inline uint8_t *put_key(uint8_t *p, const uint8_t *key, size_t n) noexcept nogil:
    """Write length and key; returns the end. Other strings of a record may be written in the same way."""
    if n < 128:
        p[0] = <uint8_t>n
        p += 1
    elif n < 16384:
        p[0] = 0x80 | <uint8_t>(n >> 8)
        p[1] = <uint8_t>n
        p += 2
    else:
        p[0] = 0xC0
        p[1] = <uint8_t>n
        p[2] = <uint8_t>(n >> 8)
        p[3] = <uint8_t>(n >> 16)
        p[4] = <uint8_t>(n >> 24)
        p += 5
    memcpy(p, key, n)
    return p + n


cdef inline const uint8_t *get_key(const uint8_t *p, size_t *n) noexcept nogil:
    """The key whose length is at p; it ends n bytes later."""
    cdef uint8_t b = p[0]
    if b < 0x80:
        n[0] = b
        return p + 1
    if b < 0xC0:
        n[0] = <size_t>(b & 0x3F) << 8 | p[1]
        return p + 2
    n[0] = lp_load32(p + 1)
    return p + 5


cdef inline uint64_t table_hash(const uint8_t *key, size_t n) noexcept nogil:
    """The hash of a key, the same for all tables of this process."""
    return siphash(key, n, secret)


cdef inline uint8_t *table_at(const Table *table, uint32_t handle) noexcept nogil:
    """The address of a record."""
    return arena_at(&table.arena, handle)


cdef inline const uint8_t *table_key(const Table *table, uint32_t handle, size_t *n) noexcept nogil:
    """The key of a record."""
    return get_key(arena_at(&table.arena, handle) + table.head, n)


cdef inline uint64_t table_memory(const Table *table) noexcept nogil:
    """Bytes of memory of a table, all of them, without the struct itself."""
    return table.held + table.arena.held


# --- One record ---------------------------------------------------------------------------------------------------

cdef void table_init(Table *table, uint32_t head) noexcept nogil
    # An empty table; no memory is taken before the first record.
cdef int table_reserve(Table *table, uint64_t count) noexcept nogil
    # Of an empty table: room for that many records at once, for loaders. -1: no memory, 0 otherwise.
cdef uint32_t table_find(const Table *table, uint64_t hash, const uint8_t *key, size_t n) noexcept nogil     # 0: none
cdef uint8_t *table_add(Table *table, uint64_t hash, size_t size, uint32_t *handle) noexcept nogil
    # A new record of `size` bytes, to be written at once; its key must not be in the table. NULL: no memory.
cdef uint8_t *table_resize(Table *table, uint64_t hash, uint32_t *handle, size_t size) noexcept nogil
    # Another size for a record, whose bytes are kept as far as they fit; its handle may become another one (`moved` is
    # not called). Head and key must stay. NULL: no memory.
cdef void table_remove(Table *table, uint64_t hash, uint32_t handle) noexcept nogil     # may move other records
cdef int table_put(Table *table, const uint8_t *key, size_t n) noexcept nogil
    # Add a record that is only a key (head is 0). 1: added; 0: it was there; -1: no memory.
cdef bint table_discard(Table *table, const uint8_t *key, size_t n) noexcept nogil      # remove by key; was it there?

# --- All records --------------------------------------------------------------------------------------------------

cdef uint32_t table_next(const Table *table, TableWalk *walk) noexcept nogil
    # The next record, each once, 0 at the end; the table must not change during the walk.
cdef uint64_t table_scan(const Table *table, uint64_t cursor, uint32_t *handles, uint32_t *count) noexcept nogil
    # The few records (often seven, none, at most TABLE_PAGE) at a cursor, and the next cursor; 0 at start and end.
    # Cursors are below 2^32; any is valid at any time. A record that is in the table from the first call to the last is
    # returned once, whatever happens to the others in between.
cdef uint32_t table_random(const Table *table) noexcept nogil
    # A record, each as likely as the others; 0 if there are none. O(1) on average.
cdef uint64_t random_below(uint64_t bound) noexcept nogil       # 0 .. bound - 1; not for secrets
cdef int table_copy(Table *to, const Table *table) noexcept nogil
    # `to` becomes a copy, with the same handles, without `moved`; it must hold no memory. -1: no memory, `to` is empty.
cdef void table_clear(Table *table) noexcept nogil              # free everything; it is empty, and can be used again
cdef const char *table_check(const Table *table) noexcept nogil     # NULL, or which invariant does not hold
