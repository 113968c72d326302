# cython: language_level=3
"""An index of a PEL: handles of its records in one order, by entry ID or by delivery time.

A sorted sequence of handles, cut into chunks of up to 126, which are kept in a radix tree. Handles cost four bytes
where pointers or IDs would cost 8 to 24, so a pending entry costs little more than its record.

    tree: key, big-endian     chunk: key | count | capacity | handle handle handle ...   -> records, ascending

A chunk's key is a lower bound: not above its first record, but above the last record of the previous chunk. So the
chunk that holds a record, or where it belongs, is the floor of the record's key. Keys are (ms, seq) of the ID in the
two orders by ID, and (delivery time, turn, ms, seq) in the order by time.

Growing and shrinking. Insertion at the end, the common case, fills the last chunk and then starts a new one, so chunks
are full. In the middle a full chunk is split. A chunk that is down to a quarter of its capacity is merged with a
neighbour if that leaves room to spare, else it shrinks to half. Capacities are 2^n - 2: with its head a chunk then
fills the sizes that malloc hands out. Nothing here is O(n), whatever the order of IDs, times and removals.

For pel.pyx; inline, for the reason given in pel_slab.pxd.
"""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove, memset

from streamd.engine.ids cimport StreamID, id_cmp
from streamd.engine.rax cimport (
    Rax, rax_drain, rax_first, rax_floor, rax_higher, rax_init, rax_lower, rax_remove, rax_replace, rax_try_insert,
    store_be64,
)
from streamd.heap cimport free, malloc
from streamd.values.streams.pel_slab cimport PelRecord, Slab, record_of


cdef enum:
    ID_KEY = 16
    TIME_KEY = 28
    MIN_CAPACITY = 2
    NEXT_CAPACITY = 30          # of a chunk after a full one: more will follow
    MAX_CAPACITY = 126
    MERGED_MOST = 95            # two chunks are merged when they have no more than this many handles together


cdef struct PelIndex:
    # Handles of records in one order, in sorted chunks; the chunks are in a radix tree by their key.
    Rax chunks                 # the chunks belong to the index
    size_t count               # records
    uint32_t version           # increases with every change: tells a cursor that its place may have moved
    uint32_t held              # in the order of a consumer: its records that are held back; else unused


cdef struct Chunk:
    # Head of a chunk; its handles follow.
    uint8_t key[TIME_KEY]  # of the radix tree: ID_KEY or TIME_KEY bytes
    uint16_t count        # number of handles, 1 or more
    uint16_t capacity


cdef struct Place:
    # Where a record is, or belongs, in an index. In the orders by ID, time and turn are ignored.
    int64_t delivery_ms
    uint32_t turn
    StreamID id


# --- Places and keys ------------------------------------------------------------------------------------------------


cdef inline Place place_of(const PelRecord *record) noexcept nogil:
    cdef Place place
    place.delivery_ms = record.delivery_ms
    place.turn = record.turn
    place.id = record.id
    return place


cdef inline bint is_by_time(const PelIndex *index) noexcept nogil:
    return index.chunks.key_len == TIME_KEY


cdef inline int compare(const PelRecord *record, const Place *place, bint by_time) noexcept nogil:
    """Negative, zero or positive when the record comes before the place, is there, or comes after it."""
    if by_time:
        if record.delivery_ms != place.delivery_ms:
            return -1 if record.delivery_ms < place.delivery_ms else 1
        if record.turn != place.turn:
            return -1 if record.turn < place.turn else 1
    return id_cmp(record.id, place.id)


cdef inline void store_be32(uint8_t *p, uint32_t v) noexcept nogil:
    cdef int i
    for i in range(4):
        p[i] = <uint8_t>(v >> (24 - 8 * i))


cdef inline void write_key(uint8_t *key, const Place *place, bint by_time) noexcept nogil:
    """The key of a place, ID_KEY or TIME_KEY bytes, comparing in the order of places."""
    if by_time:
        # Times are signed: with the sign bit flipped they ascend as unsigned numbers.
        store_be64(key, <uint64_t>place.delivery_ms ^ (<uint64_t>1 << 63))
        store_be32(key + 8, place.turn)
        key += 12
    store_be64(key, place.id.ms)
    store_be64(key + 8, place.id.seq)


# --- Chunks ---------------------------------------------------------------------------------------------------------


cdef inline uint32_t *handles_of(const Chunk *chunk) noexcept nogil:
    return <uint32_t *>(chunk + 1)


cdef inline size_t chunk_size(uint32_t capacity) noexcept nogil:
    return sizeof(Chunk) + capacity * sizeof(uint32_t)


cdef inline Chunk *new_chunk(Slab *slab, uint32_t capacity) noexcept nogil:
    """A chunk without a key or handles, or NULL."""
    cdef Chunk *chunk = <Chunk *>malloc(chunk_size(capacity))
    if chunk is NULL:
        return NULL
    slab.memory += chunk_size(capacity)
    memset(chunk.key, 0, sizeof(chunk.key))
    chunk.count = 0
    chunk.capacity = <uint16_t>capacity
    return chunk


cdef inline void free_chunk(Slab *slab, Chunk *chunk) noexcept nogil:
    slab.memory -= chunk_size(chunk.capacity)
    free(chunk)


cdef inline Chunk *resize_chunk(Slab *slab, PelIndex *index, Chunk *chunk, uint32_t capacity) noexcept nogil:
    """Move a chunk into one of another capacity; NULL, with no change, when out of memory."""
    cdef Chunk *moved = new_chunk(slab, capacity)
    if moved is NULL:
        return NULL
    memcpy(moved.key, chunk.key, sizeof(chunk.key))
    memcpy(handles_of(moved), handles_of(chunk), chunk.count * sizeof(uint32_t))
    moved.count = chunk.count
    rax_replace(&index.chunks, moved)
    free_chunk(slab, chunk)
    return moved


cdef inline Chunk *start_chunk(Slab *slab, PelIndex *index, const Place *place, uint32_t capacity) noexcept nogil:
    """An empty chunk whose key is that of `place`, in the tree; NULL, with no change, when out of memory."""
    cdef Chunk *chunk = new_chunk(slab, capacity)
    if chunk is NULL:
        return NULL
    write_key(chunk.key, place, is_by_time(index))
    if rax_try_insert(&index.chunks, chunk) != 1:
        free_chunk(slab, chunk)
        return NULL
    return chunk


cdef inline Chunk *open_downwards(Slab *slab, PelIndex *index) noexcept nogil:
    """Give the first chunk the smallest key there is, so that it takes any record below it; NULL when out of memory."""
    cdef Chunk *old = <Chunk *>rax_first(&index.chunks)
    cdef Chunk *chunk = new_chunk(slab, old.capacity)
    if chunk is NULL:
        return NULL
    memcpy(handles_of(chunk), handles_of(old), old.count * sizeof(uint32_t))
    chunk.count = old.count
    if rax_try_insert(&index.chunks, chunk) != 1:
        free_chunk(slab, chunk)
        return NULL
    rax_remove(&index.chunks, old.key)
    free_chunk(slab, old)
    return chunk


cdef inline Chunk *split_chunk(Slab *slab, PelIndex *index, Chunk *chunk) noexcept nogil:
    """Move the upper half of a chunk into a new one, which is returned; NULL, with no change, when out of memory."""
    cdef uint32_t stay = chunk.count // 2
    cdef Place place = place_of(record_of(slab, handles_of(chunk)[stay]))
    cdef Chunk *upper = start_chunk(slab, index, &place, MAX_CAPACITY)
    if upper is NULL:
        return NULL
    upper.count = <uint16_t>(chunk.count - stay)
    memcpy(handles_of(upper), handles_of(chunk) + stay, upper.count * sizeof(uint32_t))
    chunk.count = <uint16_t>stay
    return upper


cdef inline bint join_chunks(Slab *slab, PelIndex *index, Chunk *lower, Chunk *upper) noexcept nogil:
    """Append the handles of `upper` to those of its neighbour `lower`; False, with no change, when out of memory."""
    cdef uint32_t count = lower.count + upper.count
    cdef uint32_t capacity = lower.capacity
    if count > capacity:
        while capacity < count:
            capacity = capacity * 2 + 2
        lower = resize_chunk(slab, index, lower, capacity)
        if lower is NULL:
            return False
    memcpy(handles_of(lower) + lower.count, handles_of(upper), upper.count * sizeof(uint32_t))
    lower.count = <uint16_t>count
    rax_remove(&index.chunks, upper.key)
    free_chunk(slab, upper)
    return True


@cython.cdivision(True)
cdef inline uint32_t guess(const PelRecord *first, const PelRecord *last, const Place *place, bint by_time,
                           uint32_t most) noexcept nogil:
    """Where `place`, between two records `most` handles apart, would be if the records between were spread evenly."""
    # Only a guess: differences that a double rounds to 0 give a share that is not a number, and so `most`.
    cdef double share
    if by_time and first.delivery_ms != last.delivery_ms:
        share = (<double>place.delivery_ms - <double>first.delivery_ms) / (
            <double>last.delivery_ms - <double>first.delivery_ms)
    elif by_time and first.turn != last.turn:
        share = (<double>place.turn - <double>first.turn) / (<double>last.turn - <double>first.turn)
    elif first.id.ms != last.id.ms:
        share = <double>(place.id.ms - first.id.ms) / <double>(last.id.ms - first.id.ms)
    else:
        share = <double>(place.id.seq - first.id.seq) / <double>(last.id.seq - first.id.seq)
    return <uint32_t>(share * most) if 0.0 < share < 1.0 else 0 if share <= 0.0 else most


cdef inline uint32_t count_below(const Slab *slab, const Chunk *chunk, const Place *place, bint by_time) noexcept nogil:
    """How many records of a chunk come before `place`, which is its position in the chunk."""
    # With many records each access to one is a cache miss, and bisection needs seven. A guess from the ends is mostly
    # within a few records, which are adjacent in memory if they arrived in order. From the guess on, the steps double
    # for a while, then it bisects after all: uneven IDs cost a few more accesses.
    cdef const uint32_t *handles = handles_of(chunk)
    cdef const PelRecord *first
    cdef const PelRecord *last
    cdef uint32_t lo = 0, hi = chunk.count      # all below `lo` come before the place, none from `hi` on
    cdef uint32_t mid, step = 0
    cdef int order
    if hi == 0:
        return 0
    first = record_of(slab, handles[0])
    if compare(first, place, by_time) >= 0:     # removal from the front
        return 0
    last = record_of(slab, handles[hi - 1])
    if compare(last, place, by_time) < 0:
        return hi
    lo = 1
    mid = guess(first, last, place, by_time, hi - 1)
    if mid < lo:
        mid = lo
    while lo < hi:
        order = compare(record_of(slab, handles[mid]), place, by_time)
        if order == 0:
            return mid
        if order < 0:
            lo = mid + 1
            mid = lo + step
        else:
            hi = mid
            mid = hi - 1 - step if hi > step else 0
        step = step * 2 + 1
        if not lo <= mid < hi or step > 15:
            mid = (lo + hi) // 2
    return lo


cdef inline void tidy_chunk(Slab *slab, PelIndex *index, Chunk *chunk) noexcept nogil:
    """Remove, merge or shrink a chunk that a removal left with too few records."""
    cdef Chunk *beside
    if chunk.count == 0:
        rax_remove(&index.chunks, chunk.key)
        free_chunk(slab, chunk)
        return
    if chunk.count > chunk.capacity >> 2:
        return
    beside = <Chunk *>rax_higher(&index.chunks, chunk.key)
    if beside is not NULL and beside.count + chunk.count <= MERGED_MOST and join_chunks(slab, index, chunk, beside):
        return
    beside = <Chunk *>rax_lower(&index.chunks, chunk.key)
    if beside is not NULL and beside.count + chunk.count <= MERGED_MOST and join_chunks(slab, index, beside, chunk):
        return
    resize_chunk(slab, index, chunk, chunk.capacity // 2 - 1)    # out of memory: it stays as it is, which is harmless


# --- Indexes --------------------------------------------------------------------------------------------------------


cdef inline void index_init(PelIndex *index, unsigned int key_len) noexcept nogil:
    rax_init(&index.chunks, key_len)
    index.count = 0
    index.version = 0
    index.held = 0


cdef inline void release_chunk(void *chunk) noexcept nogil:
    free(chunk)


cdef inline void index_clear(PelIndex *index) noexcept nogil:
    """Free the chunks without updating Slab.memory."""
    rax_drain(&index.chunks, release_chunk)
    index.count = 0
    index.version += 1


cdef inline Chunk *find_chunk(const PelIndex *index, const Place *place) noexcept nogil:
    """The chunk where `place` is, or belongs; NULL when it is below all chunks."""
    cdef uint8_t key[TIME_KEY]
    write_key(key, place, is_by_time(index))
    return <Chunk *>rax_floor(&index.chunks, key)


cdef inline PelRecord *index_find(const Slab *slab, const PelIndex *index, const Place *place) noexcept nogil:
    """The record at `place`, or NULL."""
    cdef Chunk *chunk = find_chunk(index, place)
    cdef bint by_time = is_by_time(index)
    cdef PelRecord *record
    cdef uint32_t at
    if chunk is NULL:
        return NULL
    at = count_below(slab, chunk, place, by_time)
    if at == chunk.count:
        return NULL
    record = record_of(slab, handles_of(chunk)[at])
    return record if compare(record, place, by_time) == 0 else NULL


cdef inline bint index_add(Slab *slab, PelIndex *index, const Place *place, uint32_t handle) noexcept nogil:
    """Put `handle` at an unused place; False, with the handles unchanged, when out of memory.

    The record itself is not accessed. A chunk with room takes it without needing memory.
    """
    cdef Chunk *chunk = <Chunk *>index.chunks.last
    cdef bint by_time = is_by_time(index)
    cdef Chunk *upper
    cdef uint32_t *handles
    cdef uint32_t at = 0
    if chunk is NULL:
        chunk = start_chunk(slab, index, place, MIN_CAPACITY)
    elif chunk.count and compare(record_of(slab, handles_of(chunk)[chunk.count - 1]), place, by_time) < 0:
        at = chunk.count
        if at == MAX_CAPACITY:
            chunk = start_chunk(slab, index, place, NEXT_CAPACITY)
            at = 0
    else:
        chunk = find_chunk(index, place)
        if chunk is NULL:
            chunk = open_downwards(slab, index)
        if chunk is not NULL:
            at = count_below(slab, chunk, place, by_time)
    if chunk is NULL:
        return False
    if chunk.count == chunk.capacity:
        if chunk.capacity < MAX_CAPACITY:
            chunk = resize_chunk(slab, index, chunk, chunk.capacity * 2 + 2)
            if chunk is NULL:
                return False
        else:
            upper = split_chunk(slab, index, chunk)
            if upper is NULL:
                return False
            if at > chunk.count:
                at -= chunk.count
                chunk = upper
    handles = handles_of(chunk)
    memmove(handles + at + 1, handles + at, (chunk.count - at) * sizeof(uint32_t))
    handles[at] = handle
    chunk.count += 1
    index.count += 1
    index.version += 1
    return True


cdef inline Chunk *index_take(PelIndex *index, const Place *place, uint32_t handle) noexcept nogil:
    """Remove `handle`, which is at `place`; returns its chunk, with one handle fewer, for tidy_chunk."""
    cdef Chunk *chunk = find_chunk(index, place)
    cdef uint32_t *handles = handles_of(chunk)
    cdef uint32_t at = 0
    # Handles are contiguous: scanning them costs less than accessing even a few of the records.
    while handles[at] != handle:
        at += 1
    chunk.count -= 1
    memmove(handles + at, handles + at + 1, (chunk.count - at) * sizeof(uint32_t))
    index.count -= 1
    index.version += 1
    return chunk


cdef inline void index_remove(Slab *slab, PelIndex *index, const PelRecord *record) noexcept nogil:
    cdef Place place = place_of(record)
    tidy_chunk(slab, index, index_take(index, &place, record.handle))
