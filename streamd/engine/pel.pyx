# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The pending entries list (PEL) of a consumer group: who got which entry, when, how often.

A pending entry is one PelRecord of 44 bytes. It is found in three orders: by entry ID in the group, by entry ID at its
consumer, by delivery time in the group. Interface: pel.pxd. `PelProbe` at the end is the same for tests and the shell.

Slab. Records lie in blocks that never move, so that a record keeps its address for life. A record is named by its
handle, 32 bits, which say block and place. The first blocks are small, for most groups have few pending entries:

    block     0       1        2         3         4          5           6           7
    handles   0..7    8..15    16..31    32..63    64..127    128..255    256..511    512..767   ... 256 each

Free places of a block are chained; blocks with room are chained; a block without records is given back.

Index. A sorted sequence of handles, cut into chunks of up to 126, which hang in a radix tree. Handles cost four bytes
where pointers or IDs would cost 8 to 24, which is how a pending entry costs little more than its record.

    tree: key, big-endian     chunk: key | count | capacity | handle handle handle ...   -> records, ascending

A chunk's key is a lower bound: not above its first record, and above the last record of the chunk before. So the chunk
where a record is, or belongs, is the floor of the record's key. Keys are (ms, seq) of the ID in the two orders by ID,
and (delivery time, turn, ms, seq) in the order by time.

Turns. Records of one delivery time are ordered as they got it, which is the order in which Redis hands them out. So
every setting of a time takes a number, the turn, from a counter of 32 bits. When that begins anew, records whose turns
are from before and after may be in the wrong order, and two may have the same; the ID still tells them apart, so no two
records are ever equal.

The NACK zone. A record may have no owner: its entry was given back and waits for anybody. Such records come before all
others in the order by time, in the order in which they came. Their delivery times are not needed, so that field has the
place in the zone instead, which is negative; those of owned records are not. The zone is an interval of the order by
time and needs no index of its own.

Growing and shrinking. Insertion at the end, the common case, fills the last chunk and then begins a new one, so chunks
are full. In the middle a full chunk is split. A chunk down to a quarter of its capacity is joined with a neighbour if
the two leave room to spare, else it shrinks to half. Capacities are 2^n - 2: with its head a chunk then fills the
sizes that malloc hands out. Nothing here is O(n), whatever the order of IDs, times and removals.

Failure. An insertion without memory changes nothing; removals need none.

What must hold: see pel_check.
"""

cimport cython
from libc.stdint cimport INT64_MIN, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t
from streamd.heap cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy, memmove, memset

from streamd.engine.ids cimport StreamID, id_cmp, make_id
from streamd.engine.rax cimport (
    rax_check, rax_drain, rax_first, rax_floor, rax_higher, rax_init, rax_lower, rax_remove, rax_replace,
    rax_try_insert, store_be64,
)

__all__ = ["PelProbe", "PelWalk"]


cdef enum:
    FIRST_BLOCK = 8             # records of block 0
    FULL_BLOCK = 256            # records of block 6 and those after it
    MAX_BLOCKS = (1 << 24) + 5  # as many as handles of 32 bits can name
    NO_HANDLE = 0xFFFFFFFF

    ID_KEY = 16
    TIME_KEY = 28
    MIN_CAPACITY = 2
    NEXT_CAPACITY = 30          # of a chunk behind a full one: more will follow
    MAX_CAPACITY = 126
    MERGED_MOST = 95            # two chunks are joined when no more than this many handles come together


cdef struct Block:
    # Head of a block of the slab; its records follow.
    Block *previous       # in the chain of the blocks with room
    Block *next
    uint32_t index        # in Pel.blocks
    uint32_t live         # records
    uint32_t touched      # places that ever had a record: those from here on are free and not chained
    uint32_t free_head    # first free place below `touched`, or NO_HANDLE; a free place keeps the next one in `owner`

cdef struct Chunk:
    # Head of a chunk; its handles follow.
    uint8_t key[TIME_KEY]  # of the radix tree: ID_KEY or TIME_KEY bytes
    uint16_t count        # handles, 1 or more
    uint16_t capacity

cdef struct Place:
    # Where a record is, or belongs, in an index. In the orders by ID time and turn mean nothing.
    int64_t delivery_ms
    uint32_t turn
    StreamID id


cdef int no_memory() except -1 with gil:
    raise MemoryError("no memory for a pending entry")


# --- Slab -----------------------------------------------------------------------------------------------------------


cdef inline uint32_t block_records(uint32_t index) noexcept nogil:
    """How many records block `index` has room for."""
    if index > 5:
        return FULL_BLOCK
    return FIRST_BLOCK if index == 0 else FIRST_BLOCK << (index - 1)


cdef inline uint32_t block_base(uint32_t index) noexcept nogil:
    """The handle of the first record of block `index`."""
    if index > 5:
        return (index - 5) * FULL_BLOCK
    return 0 if index == 0 else FIRST_BLOCK << (index - 1)


cdef inline size_t block_size(uint32_t index) noexcept nogil:
    return sizeof(Block) + block_records(index) * sizeof(PelRecord)


cdef inline PelRecord *block_record(Block *block, uint32_t place) noexcept nogil:
    return <PelRecord *>(block + 1) + place


cdef inline uint32_t block_of(uint32_t handle) noexcept nogil:
    """The index of the block where `handle` is."""
    cdef uint32_t index = 0
    if handle >= FULL_BLOCK:
        return handle // FULL_BLOCK + 5
    handle //= FIRST_BLOCK
    while handle:
        handle >>= 1
        index += 1
    return index


cdef inline PelRecord *record_of(const Pel *pel, uint32_t handle) noexcept nogil:
    cdef uint32_t index = block_of(handle)
    return block_record(<Block *>pel.blocks[index], handle - block_base(index))


# An entry of Pel.blocks whose block has been given back is odd: the index of the next such entry, doubled, plus 1.


cdef inline bint is_given_back(const void *entry) noexcept nogil:
    return <uintptr_t>entry & 1


cdef inline void open_link(Pel *pel, Block *block) noexcept nogil:
    """Put a block at the head of the chain of those with room."""
    block.previous = NULL
    block.next = <Block *>pel.open_block
    if block.next != NULL:
        block.next.previous = block
    pel.open_block = block


cdef inline void open_unlink(Pel *pel, Block *block) noexcept nogil:
    if block.previous != NULL:
        block.previous.next = block.next
    else:
        pel.open_block = block.next
    if block.next != NULL:
        block.next.previous = block.previous


cdef Block *new_block(Pel *pel) noexcept nogil:
    """Add a block to the slab, at the head of the chain; NULL without memory."""
    cdef void **blocks
    cdef Block *block
    cdef uint32_t index, capacity
    if pel.free_index != NO_HANDLE:
        index = pel.free_index
    else:
        index = pel.block_count
        if index == MAX_BLOCKS:
            return NULL
        if index == pel.block_capacity:
            capacity = 2 if index == 0 else index * 2
            blocks = <void **>realloc(pel.blocks, capacity * sizeof(void *))
            if blocks == NULL:
                return NULL
            pel.memory += (capacity - pel.block_capacity) * sizeof(void *)
            pel.blocks = blocks
            pel.block_capacity = capacity
    block = <Block *>malloc(block_size(index))
    if block == NULL:
        return NULL
    pel.memory += block_size(index)
    if index == pel.free_index:
        pel.free_index = <uint32_t>(<uintptr_t>pel.blocks[index] >> 1)
    else:
        pel.block_count += 1
    pel.blocks[index] = block
    block.index = index
    block.live = 0
    block.touched = 0
    block.free_head = NO_HANDLE
    open_link(pel, block)
    return block


cdef PelRecord *new_record(Pel *pel) noexcept nogil:
    """A record with its handle set, and nothing else; NULL without memory."""
    cdef Block *block = <Block *>pel.open_block
    cdef PelRecord *record
    if block == NULL:
        block = new_block(pel)
        if block == NULL:
            return NULL
    if block.free_head != NO_HANDLE:
        record = block_record(block, block.free_head)
        record.handle = block_base(block.index) + block.free_head
        block.free_head = record.owner
    else:
        record = block_record(block, block.touched)
        record.handle = block_base(block.index) + block.touched
        block.touched += 1
    block.live += 1
    if block.live == block_records(block.index):
        open_unlink(pel, block)
    return record


cdef void free_record(Pel *pel, PelRecord *record) noexcept nogil:
    cdef Block *block = <Block *>pel.blocks[block_of(record.handle)]
    cdef uint32_t index = block.index
    if block.live == block_records(index):
        open_link(pel, block)
    block.live -= 1
    if block.live:
        record.owner = block.free_head
        block.free_head = record.handle - block_base(index)
        record.handle = NO_HANDLE
        return
    open_unlink(pel, block)
    pel.memory -= block_size(index)
    free(block)
    pel.blocks[index] = <void *>((<uintptr_t>pel.free_index << 1) | 1)
    pel.free_index = index
    if pel.by_id.count == 0:        # the last record of all has been taken out
        free_slab(pel)


cdef void free_slab(Pel *pel) noexcept nogil:
    """Give all blocks back, whatever is in them."""
    cdef uint32_t i
    for i in range(pel.block_count):
        if not is_given_back(pel.blocks[i]):
            pel.memory -= block_size(i)
            free(pel.blocks[i])
    pel.memory -= pel.block_capacity * sizeof(void *)
    free(pel.blocks)
    pel.blocks = NULL
    pel.open_block = NULL
    pel.block_count = 0
    pel.block_capacity = 0
    pel.free_index = NO_HANDLE


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
    """Negative, zero or positive as the record comes before the place, is there, or comes behind it."""
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
    """The key of a place, ID_KEY or TIME_KEY bytes, which compare as places do."""
    if by_time:
        # Times are signed: with the sign bit turned over they ascend as unsigned numbers.
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


cdef Chunk *new_chunk(Pel *pel, uint32_t capacity) noexcept nogil:
    """A chunk without key and handles, or NULL."""
    cdef Chunk *chunk = <Chunk *>malloc(chunk_size(capacity))
    if chunk == NULL:
        return NULL
    pel.memory += chunk_size(capacity)
    memset(chunk.key, 0, sizeof(chunk.key))
    chunk.count = 0
    chunk.capacity = <uint16_t>capacity
    return chunk


cdef inline void free_chunk(Pel *pel, Chunk *chunk) noexcept nogil:
    pel.memory -= chunk_size(chunk.capacity)
    free(chunk)


cdef Chunk *resize_chunk(Pel *pel, PelIndex *index, Chunk *chunk, uint32_t capacity) noexcept nogil:
    """Move a chunk into one of another capacity; NULL, and no change, without memory."""
    cdef Chunk *moved = new_chunk(pel, capacity)
    if moved == NULL:
        return NULL
    memcpy(moved.key, chunk.key, sizeof(chunk.key))
    memcpy(handles_of(moved), handles_of(chunk), chunk.count * sizeof(uint32_t))
    moved.count = chunk.count
    rax_replace(&index.chunks, moved)
    free_chunk(pel, chunk)
    return moved


cdef Chunk *start_chunk(Pel *pel, PelIndex *index, const Place *place, uint32_t capacity) noexcept nogil:
    """An empty chunk whose key is that of `place`, in the tree; NULL, and no change, without memory."""
    cdef Chunk *chunk = new_chunk(pel, capacity)
    if chunk == NULL:
        return NULL
    write_key(chunk.key, place, is_by_time(index))
    if rax_try_insert(&index.chunks, chunk) != 1:
        free_chunk(pel, chunk)
        return NULL
    return chunk


cdef Chunk *open_downwards(Pel *pel, PelIndex *index) noexcept nogil:
    """Give the first chunk the smallest key there is, so that it takes whatever is below; NULL without memory."""
    cdef Chunk *old = <Chunk *>rax_first(&index.chunks)
    cdef Chunk *chunk = new_chunk(pel, old.capacity)
    if chunk == NULL:
        return NULL
    memcpy(handles_of(chunk), handles_of(old), old.count * sizeof(uint32_t))
    chunk.count = old.count
    if rax_try_insert(&index.chunks, chunk) != 1:
        free_chunk(pel, chunk)
        return NULL
    rax_remove(&index.chunks, old.key)
    free_chunk(pel, old)
    return chunk


cdef Chunk *split_chunk(Pel *pel, PelIndex *index, Chunk *chunk) noexcept nogil:
    """Move the upper half of a chunk into a new one, which is returned; NULL, and no change, without memory."""
    cdef uint32_t stay = chunk.count // 2
    cdef Place place = place_of(record_of(pel, handles_of(chunk)[stay]))
    cdef Chunk *upper = start_chunk(pel, index, &place, MAX_CAPACITY)
    if upper == NULL:
        return NULL
    upper.count = <uint16_t>(chunk.count - stay)
    memcpy(handles_of(upper), handles_of(chunk) + stay, upper.count * sizeof(uint32_t))
    chunk.count = <uint16_t>stay
    return upper


cdef bint join_chunks(Pel *pel, PelIndex *index, Chunk *lower, Chunk *upper) noexcept nogil:
    """Move the handles of `upper` behind those of its neighbour `lower`; False, and no change, without memory."""
    cdef uint32_t count = lower.count + upper.count
    cdef uint32_t capacity = lower.capacity
    if count > capacity:
        while capacity < count:
            capacity = capacity * 2 + 2
        lower = resize_chunk(pel, index, lower, capacity)
        if lower == NULL:
            return False
    memcpy(handles_of(lower) + lower.count, handles_of(upper), upper.count * sizeof(uint32_t))
    lower.count = <uint16_t>count
    rax_remove(&index.chunks, upper.key)
    free_chunk(pel, upper)
    return True


cdef inline uint32_t guess(const PelRecord *first, const PelRecord *last, const Place *place, bint by_time,
                           uint32_t most) noexcept nogil:
    """Where `place`, between two records `most` handles apart, would be if the records between were spread evenly."""
    # Only a guess: differences that a double rounds to nothing give a share that is no number, and `most`.
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


cdef uint32_t count_below(const Pel *pel, const Chunk *chunk, const Place *place, bint by_time) noexcept nogil:
    """How many records of a chunk come before `place`: where it is, or belongs."""
    # With many records each look at one is a cache miss, and halving needs seven. A guess from the ends is mostly right
    # within a few records, and these are neighbours in memory when they came in order. From the guess on the steps
    # double for a while, then it is halving after all: uneven IDs cost a few looks more.
    cdef const uint32_t *handles = handles_of(chunk)
    cdef const PelRecord *first
    cdef const PelRecord *last
    cdef uint32_t lo = 0, hi = chunk.count      # all below `lo` come before the place, none from `hi` on does
    cdef uint32_t mid, step = 0
    cdef int order
    if hi == 0:
        return 0
    first = record_of(pel, handles[0])
    if compare(first, place, by_time) >= 0:     # removal from the front
        return 0
    last = record_of(pel, handles[hi - 1])
    if compare(last, place, by_time) < 0:
        return hi
    lo = 1
    mid = guess(first, last, place, by_time, hi - 1)
    if mid < lo:
        mid = lo
    while lo < hi:
        order = compare(record_of(pel, handles[mid]), place, by_time)
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


cdef void tidy_chunk(Pel *pel, PelIndex *index, Chunk *chunk) noexcept nogil:
    """See that a chunk from which a record has been taken is not there for too few."""
    cdef Chunk *beside
    if chunk.count == 0:
        rax_remove(&index.chunks, chunk.key)
        free_chunk(pel, chunk)
        return
    if chunk.count > chunk.capacity >> 2:
        return
    beside = <Chunk *>rax_higher(&index.chunks, chunk.key)
    if beside != NULL and beside.count + chunk.count <= MERGED_MOST and join_chunks(pel, index, chunk, beside):
        return
    beside = <Chunk *>rax_lower(&index.chunks, chunk.key)
    if beside != NULL and beside.count + chunk.count <= MERGED_MOST and join_chunks(pel, index, beside, chunk):
        return
    resize_chunk(pel, index, chunk, chunk.capacity // 2 - 1)      # without memory it stays as it is, which is no harm


# --- Indexes --------------------------------------------------------------------------------------------------------


cdef void index_init(PelIndex *index, unsigned int key_len) noexcept nogil:
    rax_init(&index.chunks, key_len)
    index.count = 0
    index.version = 0


cdef void release_chunk(void *chunk) noexcept nogil:
    free(chunk)


cdef void index_clear(PelIndex *index) noexcept nogil:
    """Free the chunks without Pel.memory being told."""
    rax_drain(&index.chunks, release_chunk)
    index.count = 0
    index.version += 1


cdef Chunk *find_chunk(const PelIndex *index, const Place *place) noexcept nogil:
    """The chunk where `place` is, or belongs; NULL when it lies below all chunks."""
    cdef uint8_t key[TIME_KEY]
    write_key(key, place, is_by_time(index))
    return <Chunk *>rax_floor(&index.chunks, key)


cdef PelRecord *index_find(const Pel *pel, const PelIndex *index, const Place *place) noexcept nogil:
    """The record at `place`, or NULL."""
    cdef Chunk *chunk = find_chunk(index, place)
    cdef bint by_time = is_by_time(index)
    cdef PelRecord *record
    cdef uint32_t at
    if chunk == NULL:
        return NULL
    at = count_below(pel, chunk, place, by_time)
    if at == chunk.count:
        return NULL
    record = record_of(pel, handles_of(chunk)[at])
    return record if compare(record, place, by_time) == 0 else NULL


cdef bint index_add(Pel *pel, PelIndex *index, const Place *place, uint32_t handle) noexcept nogil:
    """Put `handle` at a place where nothing is; False, and the same handles as before, without memory.

    The record itself is not looked at. A chunk with room takes it without needing memory.
    """
    cdef Chunk *chunk = <Chunk *>index.chunks.last
    cdef bint by_time = is_by_time(index)
    cdef Chunk *upper
    cdef uint32_t *handles
    cdef uint32_t at = 0
    if chunk == NULL:
        chunk = start_chunk(pel, index, place, MIN_CAPACITY)
    elif chunk.count and compare(record_of(pel, handles_of(chunk)[chunk.count - 1]), place, by_time) < 0:
        at = chunk.count
        if at == MAX_CAPACITY:
            chunk = start_chunk(pel, index, place, NEXT_CAPACITY)
            at = 0
    else:
        chunk = find_chunk(index, place)
        if chunk == NULL:
            chunk = open_downwards(pel, index)
        if chunk != NULL:
            at = count_below(pel, chunk, place, by_time)
    if chunk == NULL:
        return False
    if chunk.count == chunk.capacity:
        if chunk.capacity < MAX_CAPACITY:
            chunk = resize_chunk(pel, index, chunk, chunk.capacity * 2 + 2)
            if chunk == NULL:
                return False
        else:
            upper = split_chunk(pel, index, chunk)
            if upper == NULL:
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


cdef Chunk *index_take(PelIndex *index, const Place *place, uint32_t handle) noexcept nogil:
    """Take `handle`, which is at `place`, out; returns its chunk, for tidy_chunk, with one handle less."""
    cdef Chunk *chunk = find_chunk(index, place)
    cdef uint32_t *handles = handles_of(chunk)
    cdef uint32_t at = 0
    # Handles lie side by side: to look through them costs less than to look at the records of a few.
    while handles[at] != handle:
        at += 1
    chunk.count -= 1
    memmove(handles + at, handles + at + 1, (chunk.count - at) * sizeof(uint32_t))
    index.count -= 1
    index.version += 1
    return chunk


cdef inline void index_remove(Pel *pel, PelIndex *index, const PelRecord *record) noexcept nogil:
    cdef Place place = place_of(record)
    tidy_chunk(pel, index, index_take(index, &place, record.handle))


# --- The PEL --------------------------------------------------------------------------------------------------------


cdef int pel_init(Pel *pel) except -1 nogil:
    """An empty PEL without consumers. It has no memory of its own until something is in it."""
    memset(pel, 0, sizeof(Pel))
    pel.free_index = NO_HANDLE
    index_init(&pel.by_id, ID_KEY)
    index_init(&pel.by_time, TIME_KEY)
    return 0


cdef void pel_clear(Pel *pel) noexcept nogil:
    """Free everything: records, consumers. The PEL is as pel_init leaves it. O(n / 100), without the GIL."""
    cdef uint32_t i
    for i in range(pel.owner_count):
        if pel.owners[i] != NULL:
            index_clear(pel.owners[i])
            free(pel.owners[i])
    free(pel.owners)
    free(pel.free_owners)
    index_clear(&pel.by_id)
    index_clear(&pel.by_time)
    free_slab(pel)
    memset(pel, 0, sizeof(Pel))
    pel.free_index = NO_HANDLE
    index_init(&pel.by_id, ID_KEY)
    index_init(&pel.by_time, TIME_KEY)


cdef size_t pel_memory(const Pel *pel) noexcept nogil:
    """Bytes malloc'ed for all of it, without the struct itself. O(consumers)."""
    cdef size_t total = pel.memory + pel.by_id.chunks.memory + pel.by_time.chunks.memory
    cdef uint32_t i
    for i in range(pel.owner_count):
        if pel.owners[i] != NULL:
            total += pel.owners[i].chunks.memory
    return total


cdef int64_t pel_add_owner(Pel *pel) except -1 nogil:
    """Make room for one more consumer and return its number; numbers of dropped ones come again."""
    cdef PelIndex **owners
    cdef uint32_t *free_owners
    cdef PelIndex *index
    cdef uint32_t number, capacity
    if pel.free_owner_count == 0 and pel.owner_count == pel.owner_capacity:
        if pel.owner_capacity > NO_HANDLE // 2:
            return no_memory()
        capacity = pel.owner_capacity * 2 if pel.owner_capacity else 2
        owners = <PelIndex **>realloc(pel.owners, capacity * sizeof(PelIndex *))
        if owners == NULL:
            return no_memory()
        pel.owners = owners
        free_owners = <uint32_t *>realloc(pel.free_owners, capacity * sizeof(uint32_t))
        if free_owners == NULL:
            return no_memory()
        pel.free_owners = free_owners
        pel.memory += (capacity - pel.owner_capacity) * (sizeof(PelIndex *) + sizeof(uint32_t))
        pel.owner_capacity = capacity
    index = <PelIndex *>malloc(sizeof(PelIndex))
    if index == NULL:
        return no_memory()
    pel.memory += sizeof(PelIndex)
    index_init(index, ID_KEY)
    if pel.free_owner_count:
        pel.free_owner_count -= 1
        number = pel.free_owners[pel.free_owner_count]
    else:
        number = pel.owner_count
        pel.owner_count += 1
    pel.owners[number] = index
    return number


cdef void pel_drop_owner(Pel *pel, uint32_t owner) noexcept nogil:
    """Remove a consumer and all of its records. Nothing happens for a number not in use. O(k log n), k records."""
    cdef PelIndex *index
    cdef PelRecord *record
    cdef Chunk *chunk
    cdef Chunk *next_chunk
    cdef uint32_t i
    if owner >= pel.owner_count or pel.owners[owner] == NULL:
        return
    index = pel.owners[owner]
    chunk = <Chunk *>rax_first(&index.chunks)
    while chunk != NULL:
        for i in range(chunk.count):
            record = record_of(pel, handles_of(chunk)[i])
            index_remove(pel, &pel.by_id, record)
            index_remove(pel, &pel.by_time, record)
            free_record(pel, record)
        next_chunk = <Chunk *>rax_higher(&index.chunks, chunk.key)
        pel.memory -= chunk_size(chunk.capacity)
        chunk = next_chunk
    index_clear(index)
    free(index)
    pel.memory -= sizeof(PelIndex)
    pel.owners[owner] = NULL
    pel.free_owners[pel.free_owner_count] = owner
    pel.free_owner_count += 1


cdef size_t pel_owner_size(const Pel *pel, uint32_t owner) noexcept nogil:
    """How many records a consumer has; 0 for a number not in use."""
    if owner >= pel.owner_count or pel.owners[owner] == NULL:
        return 0
    return pel.owners[owner].count


cdef PelRecord *pel_find(Pel *pel, StreamID id) noexcept nogil:
    """The record of an entry, or NULL. O(log n)."""
    cdef Place place
    place.delivery_ms = 0
    place.turn = 0
    place.id = id
    return index_find(pel, &pel.by_id, &place)


cdef inline uint32_t next_turn(Pel *pel) noexcept nogil:
    pel.turn += 1
    return pel.turn


cdef PelRecord *pel_insert(
    Pel *pel, StreamID id, uint32_t owner, int64_t delivery_ms, uint64_t count
) except NULL nogil:
    """Add a record for an entry that has none; `owner` must be in use. O(log n), less at the end of each order."""
    cdef PelRecord *record = new_record(pel)
    cdef Place place
    if record == NULL:
        no_memory()
        return NULL
    record.id = id
    record.delivery_ms = delivery_ms
    record.delivery_count = count
    record.turn = next_turn(pel)
    record.owner = owner
    place = place_of(record)
    if index_add(pel, &pel.by_id, &place, record.handle):
        if index_add(pel, pel.owners[owner], &place, record.handle):
            if index_add(pel, &pel.by_time, &place, record.handle):
                return record
            index_remove(pel, pel.owners[owner], record)
        index_remove(pel, &pel.by_id, record)
    free_record(pel, record)
    no_memory()
    return NULL


cdef void pel_remove(Pel *pel, PelRecord *record) noexcept nogil:
    """Take a record out and free it. O(log n)."""
    index_remove(pel, &pel.by_id, record)
    index_remove(pel, &pel.by_time, record)
    if record.owner == NO_OWNER:
        leave_zone(pel)
    else:
        index_remove(pel, pel.owners[record.owner], record)
    free_record(pel, record)


cdef int pel_assign(Pel *pel, PelRecord *record, uint32_t owner) except -1 nogil:
    """Make another consumer, which must be in use, the owner of an owned record. O(log n)."""
    cdef Place place = place_of(record)
    if owner == record.owner:
        return 0
    if not index_add(pel, pel.owners[owner], &place, record.handle):
        return no_memory()
    index_remove(pel, pel.owners[record.owner], record)
    record.owner = owner
    return 0


cdef inline bint move_in_time(Pel *pel, PelRecord *record, int64_t delivery_ms, uint32_t turn) noexcept nogil:
    """Move a record to another place in the order by time; False, and no change, without memory."""
    cdef Place old = place_of(record)
    cdef Place new = old
    cdef bint added
    new.delivery_ms = delivery_ms
    new.turn = turn
    # The old chunk is left as it is, maybe empty, until the new place is found: so there is room to go back to. By then
    # it may have moved, but it is still the one where the old place belongs.
    index_take(&pel.by_time, &old, record.handle)
    added = index_add(pel, &pel.by_time, &new, record.handle)
    if added:
        record.delivery_ms = delivery_ms
        record.turn = turn
    else:
        index_add(pel, &pel.by_time, &old, record.handle)
    tidy_chunk(pel, &pel.by_time, find_chunk(&pel.by_time, &old))
    return added


cdef int pel_set_time(Pel *pel, PelRecord *record, int64_t delivery_ms) except -1 nogil:
    """Set the delivery time of an owned record, and put it behind all that have that time. O(log n)."""
    return 0 if move_in_time(pel, record, delivery_ms, next_turn(pel)) else no_memory()


# --- The NACK zone --------------------------------------------------------------------------------------------------


cdef inline void leave_zone(Pel *pel) noexcept nogil:
    """Note that the zone has a record less."""
    pel.unowned -= 1
    if pel.unowned == 0:
        pel.zone_next = 0


cdef PelRecord *pel_insert_unowned(Pel *pel, StreamID id, uint64_t count) except NULL nogil:
    """Add a record for an entry that has none, without an owner, at the end of the zone. O(log n)."""
    cdef PelRecord *record = new_record(pel)
    cdef Place place
    if record == NULL:
        no_memory()
        return NULL
    record.id = id
    record.delivery_ms = zone_time(pel.zone_next)
    record.delivery_count = count
    record.turn = 0
    record.owner = NO_OWNER
    place = place_of(record)
    if index_add(pel, &pel.by_id, &place, record.handle):
        if index_add(pel, &pel.by_time, &place, record.handle):
            pel.unowned += 1
            pel.zone_next += 1
            return record
        index_remove(pel, &pel.by_id, record)
    free_record(pel, record)
    no_memory()
    return NULL


cdef int pel_disown(Pel *pel, PelRecord *record) except -1 nogil:
    """Take a record from its owner, if it has one, and put it at the end of the zone. O(log n)."""
    if not move_in_time(pel, record, zone_time(pel.zone_next), 0):
        return no_memory()
    pel.zone_next += 1
    if record.owner != NO_OWNER:
        index_remove(pel, pel.owners[record.owner], record)
        record.owner = NO_OWNER
        pel.unowned += 1
    return 0


cdef int pel_adopt(Pel *pel, PelRecord *record, uint32_t owner, int64_t delivery_ms) except -1 nogil:
    """Give a record of the zone to a consumer, which must be in use, as delivered at `delivery_ms`. O(log n)."""
    cdef Place place = place_of(record)
    if not index_add(pel, pel.owners[owner], &place, record.handle):
        return no_memory()
    if not move_in_time(pel, record, delivery_ms, next_turn(pel)):
        index_remove(pel, pel.owners[owner], record)
        return no_memory()
    record.owner = owner
    leave_zone(pel)
    return 0


cdef PelRecord *pel_first(Pel *pel) noexcept nogil:
    """The record with the smallest ID, or NULL."""
    cdef Chunk *chunk = <Chunk *>rax_first(&pel.by_id.chunks)
    return NULL if chunk == NULL else record_of(pel, handles_of(chunk)[0])


cdef PelRecord *pel_last(Pel *pel) noexcept nogil:
    """The record with the greatest ID, or NULL. O(1)."""
    cdef Chunk *chunk = <Chunk *>pel.by_id.chunks.last
    return NULL if chunk == NULL else record_of(pel, handles_of(chunk)[chunk.count - 1])


cdef PelRecord *pel_oldest(Pel *pel) noexcept nogil:
    """The first record of the NACK zone, else the one delivered longest ago, or NULL.

    Of several of one time it is the one that got its time first.
    """
    cdef Chunk *chunk = <Chunk *>rax_first(&pel.by_time.chunks)
    return NULL if chunk == NULL else record_of(pel, handles_of(chunk)[0])


# --- Cursors --------------------------------------------------------------------------------------------------------


cdef void settle(PelCursor *cursor) noexcept nogil:
    """Find the cursor's place in the index as it is now."""
    cdef PelIndex *index = cursor.index
    cdef bint by_time = is_by_time(index)
    cdef Chunk *chunk
    cdef Place place
    place.delivery_ms = cursor.delivery_ms
    place.turn = cursor.turn
    place.id = cursor.id
    chunk = find_chunk(index, &place)
    cursor.at = 0
    if chunk == NULL:
        chunk = <Chunk *>rax_first(&index.chunks)
    else:
        cursor.at = count_below(cursor.pel, chunk, &place, by_time)
        if cursor.met and cursor.at < chunk.count:
            if compare(record_of(cursor.pel, handles_of(chunk)[cursor.at]), &place, by_time) == 0:
                cursor.at += 1
    cursor.chunk = chunk
    cursor.version = index.version


cdef void seek(PelCursor *cursor, Pel *pel, PelIndex *index, int64_t delivery_ms, StreamID id) noexcept nogil:
    cursor.pel = pel
    cursor.index = index
    cursor.chunk = NULL
    cursor.at = 0
    cursor.version = 0
    cursor.met = False
    cursor.delivery_ms = delivery_ms
    cursor.turn = 0
    cursor.id = id
    if index != NULL:
        settle(cursor)


cdef void pel_seek(Pel *pel, PelCursor *cursor, int64_t owner, StreamID first) noexcept nogil:
    """Begin a walk by ID, at `first` or what follows it, over the records of `owner` (negative: over all)."""
    if owner < 0:
        seek(cursor, pel, &pel.by_id, 0, first)
    elif owner >= pel.owner_count:
        seek(cursor, pel, NULL, 0, first)
    else:
        seek(cursor, pel, pel.owners[owner], 0, first)


cdef void pel_seek_oldest(Pel *pel, PelCursor *cursor) noexcept nogil:
    """Begin a walk over all records by delivery time, oldest first; those of one time in the order they got it."""
    seek(cursor, pel, &pel.by_time, INT64_MIN, make_id(0, 0))


cdef PelRecord *pel_next(PelCursor *cursor) noexcept nogil:
    """The next record of a walk, or NULL at the end. O(1), and O(log n) after a change of what is walked."""
    cdef PelRecord *record
    cdef Chunk *chunk
    if cursor.index == NULL:
        return NULL
    if cursor.version != cursor.index.version:
        settle(cursor)
    chunk = <Chunk *>cursor.chunk
    if chunk == NULL:
        return NULL
    if cursor.at == chunk.count:
        chunk = <Chunk *>rax_higher(&cursor.index.chunks, chunk.key)
        cursor.chunk = chunk
        cursor.at = 0
        if chunk == NULL:
            return NULL
    record = record_of(cursor.pel, handles_of(chunk)[cursor.at])
    cursor.at += 1
    cursor.met = True
    cursor.delivery_ms = record.delivery_ms
    cursor.turn = record.turn
    cursor.id = record.id
    return record


# --- Invariants -----------------------------------------------------------------------------------------------------


cdef int expect(bint holds, str what) except -1:
    if not holds:
        raise AssertionError(what)
    return 0


cdef int check_slab(const Pel *pel, size_t *memory) except -1:
    """Check the blocks against their counts and chains; add their bytes to `memory`."""
    cdef Block *block
    cdef Block *previous = NULL
    cdef size_t live = 0
    cdef uint32_t i, place, chained, opened = 0, open_blocks = 0, given_back = 0
    memory[0] += pel.block_capacity * sizeof(void *)
    expect(pel.block_count <= pel.block_capacity, "the table of blocks has room for its entries")
    for i in range(pel.block_count):
        if is_given_back(pel.blocks[i]):
            given_back += 1
            continue
        block = <Block *>pel.blocks[i]
        memory[0] += block_size(i)
        live += block.live
        expect(block.index == i, "a block knows its index")
        expect(0 < block.live <= block.touched <= block_records(i), "a block has records, not more than touched places")
        opened += block.live < block_records(i)
        chained = 0
        place = block.free_head
        while place != NO_HANDLE:
            expect(place < block.touched, "a free place has been touched")
            expect(block_record(block, place).handle == NO_HANDLE, "a free place has no handle")
            chained += 1
            expect(chained <= block.touched, "the free places of a block are a chain")
            place = block_record(block, place).owner
        expect(block.live + chained == block.touched, "a touched place is a record or free")
        for place in range(block.touched):
            if block_record(block, place).handle != NO_HANDLE:
                expect(block_record(block, place).handle == block_base(i) + place, "a record knows its handle")
                expect(record_of(pel, block_base(i) + place) == block_record(block, place), "a handle finds its record")
                chained += 1
        expect(chained == block.touched, "each touched place is counted once")
    block = <Block *>pel.open_block
    while block != NULL:
        expect(block.previous == previous, "the chain of blocks with room is linked both ways")
        expect(block.live < block_records(block.index), "a block in the chain has room")
        open_blocks += 1
        previous = block
        block = block.next
    expect(open_blocks == opened, "every block with room is in the chain")
    i = pel.free_index
    while i != NO_HANDLE:
        expect(i < pel.block_count and is_given_back(pel.blocks[i]), "the chain of given back entries")
        expect(given_back > 0, "the chain of given back entries ends")
        given_back -= 1
        i = <uint32_t>(<uintptr_t>pel.blocks[i] >> 1)
    expect(given_back == 0, "every given back entry is in the chain")
    return expect(live == pel.by_id.count, "as many records in the slab as in the order by ID")


cdef int check_index(const Pel *pel, const PelIndex *index, int64_t owner, size_t *memory) except -1:
    """Check one order; add the bytes of its chunks to `memory`."""
    cdef bint by_time = is_by_time(index)
    cdef Chunk *chunk = <Chunk *>rax_first(&index.chunks)
    cdef PelRecord *record
    cdef PelRecord *previous = NULL
    cdef uint8_t key[TIME_KEY]
    cdef size_t count = 0
    cdef Place place
    cdef uint32_t i
    rax_check(&index.chunks)
    while chunk != NULL:
        memory[0] += chunk_size(chunk.capacity)
        expect(MIN_CAPACITY <= chunk.capacity <= MAX_CAPACITY, "a chunk's capacity is in its bounds")
        expect((chunk.capacity + 2) & (chunk.capacity + 1) == 0, "a chunk's capacity is 2^n - 2")
        expect(0 < chunk.count <= chunk.capacity, "a chunk has handles, and room for them")
        if previous != NULL:
            place = place_of(previous)
            write_key(key, &place, by_time)
            expect(memcmp(key, chunk.key, index.chunks.key_len) < 0, "a chunk's key is above the chunk before")
        for i in range(chunk.count):
            record = record_of(pel, handles_of(chunk)[i])
            expect(record.handle == handles_of(chunk)[i], "a handle names a record")
            expect(owner < 0 or record.owner == owner, "a consumer has its own records")
            place = place_of(record)
            expect(previous == NULL or compare(previous, &place, by_time) < 0, "records ascend")
            if i == 0:
                write_key(key, &place, by_time)
                expect(memcmp(chunk.key, key, index.chunks.key_len) <= 0, "a chunk's key is not above its first record")
            previous = record
        count += chunk.count
        chunk = <Chunk *>rax_higher(&index.chunks, chunk.key)
    return expect(count == index.count, "the number of records in an order")


cdef int check_zone(const Pel *pel) except -1:
    """Check that the records without an owner, and no others, are in the NACK zone."""
    cdef Chunk *chunk = <Chunk *>rax_first(&pel.by_time.chunks)
    cdef PelRecord *record
    cdef size_t unowned = 0
    cdef uint32_t i
    while chunk != NULL:
        for i in range(chunk.count):
            record = record_of(pel, handles_of(chunk)[i])
            expect((record.owner == NO_OWNER) == (record.delivery_ms < 0), "who has no owner has a place in the zone")
            if record.owner == NO_OWNER:
                expect(record.delivery_ms < zone_time(pel.zone_next), "a place in the zone has been given out")
                unowned += 1
        chunk = <Chunk *>rax_higher(&pel.by_time.chunks, chunk.key)
    expect(pel.unowned > 0 or pel.zone_next == 0, "an empty zone starts again")
    return expect(unowned == pel.unowned, "the number of records without an owner")


cdef int pel_check(const Pel *pel) except -1:
    """Walk everything and raise AssertionError when something is wrong. O(n)."""
    cdef size_t memory = pel.owner_capacity * (sizeof(PelIndex *) + sizeof(uint32_t))
    cdef size_t owned = 0
    cdef uint32_t i, unused = 0
    check_slab(pel, &memory)
    check_index(pel, &pel.by_id, -1, &memory)
    check_index(pel, &pel.by_time, -1, &memory)
    expect(pel.by_time.count == pel.by_id.count, "as many records by time as by ID")
    for i in range(pel.owner_count):
        if pel.owners[i] == NULL:
            unused += 1
            continue
        memory += sizeof(PelIndex)
        check_index(pel, pel.owners[i], i, &memory)
        owned += pel.owners[i].count
    expect(owned + pel.unowned == pel.by_id.count, "each record has one owner, or is in the NACK zone")
    check_zone(pel)
    expect(unused == pel.free_owner_count, "every number not in use is on the stack")
    for i in range(pel.free_owner_count):
        expect(pel.free_owners[i] < pel.owner_count and pel.owners[pel.free_owners[i]] == NULL, "a number on the stack")
    return expect(memory == pel.memory, "bytes malloc'ed")


# --- The Python face ------------------------------------------------------------------------------------------------


cdef tuple as_tuple(const PelRecord *record):
    if record == NULL:
        return None
    owner = None if record.owner == NO_OWNER else record.owner
    return (record.id.ms, record.id.seq), owner, delivered_ms(record), record.delivery_count


@cython.final
@cython.no_gc
cdef class PelProbe:
    """A PEL for tests and the shell. IDs are tuples `(ms, seq)`, records `(id, owner, delivery_ms, delivery_count)`.

    Records of the NACK zone have the owner None and the time 0.
    """

    cdef Pel pel
    cdef uint64_t ended         # how often something has happened that ends the life of cursors

    def __cinit__(self):
        pel_init(&self.pel)
        self.ended = 0

    def __dealloc__(self):
        pel_clear(&self.pel)

    cdef PelRecord *get(self, tuple id) except NULL:
        cdef PelRecord *record = pel_find(&self.pel, make_id(id[0], id[1]))
        if record == NULL:
            raise KeyError(id)
        return record

    cdef uint32_t in_use(self, owner) except? NO_HANDLE:
        if not 0 <= owner < self.pel.owner_count or self.pel.owners[<uint32_t>owner] == NULL:
            raise ValueError(f"no consumer has the number {owner}")
        return owner

    cdef PelRecord *get_owned(self, tuple id) except NULL:
        cdef PelRecord *record = self.get(id)
        if record.owner == NO_OWNER:
            raise ValueError(f"{id} is in the NACK zone")
        return record

    cdef int64_t time(self, int64_t delivery_ms) except -1:
        if delivery_ms < 0:
            raise ValueError("a delivery time is not negative")
        return delivery_ms

    def add_owner(self):
        """The number of a new consumer."""
        return pel_add_owner(&self.pel)

    def drop_owner(self, uint32_t owner):
        """Remove a consumer and its records. Walks that have begun cannot go on."""
        self.ended += 1
        pel_drop_owner(&self.pel, self.in_use(owner))

    def owner_size(self, uint32_t owner):
        """How many records a consumer has."""
        return pel_owner_size(&self.pel, owner)

    def insert(self, tuple id not None, owner, int64_t delivery_ms, uint64_t delivery_count=1):
        """Add a record. KeyError when the entry is pending already."""
        cdef StreamID entry = make_id(id[0], id[1])
        if pel_find(&self.pel, entry) != NULL:
            raise KeyError(id)
        pel_insert(&self.pel, entry, self.in_use(owner), self.time(delivery_ms), delivery_count)

    def insert_unowned(self, tuple id not None, uint64_t delivery_count=0):
        """Add a record at the end of the NACK zone. KeyError when the entry is pending already."""
        cdef StreamID entry = make_id(id[0], id[1])
        if pel_find(&self.pel, entry) != NULL:
            raise KeyError(id)
        pel_insert_unowned(&self.pel, entry, delivery_count)

    def find(self, tuple id not None):
        """The record of an entry, or None."""
        return as_tuple(pel_find(&self.pel, make_id(id[0], id[1])))

    def remove(self, tuple id not None):
        """Take a record out. KeyError when there is none."""
        pel_remove(&self.pel, self.get(id))

    def assign(self, tuple id not None, owner):
        """Give a record to another consumer. ValueError when it has no owner."""
        pel_assign(&self.pel, self.get_owned(id), self.in_use(owner))

    def disown(self, tuple id not None):
        """Take a record from its owner, if it has one, and put it at the end of the NACK zone."""
        pel_disown(&self.pel, self.get(id))

    def adopt(self, tuple id not None, owner, int64_t delivery_ms):
        """Give a record of the NACK zone to a consumer. ValueError when it has an owner."""
        cdef PelRecord *record = self.get(id)
        if record.owner != NO_OWNER:
            raise ValueError(f"{id} has an owner")
        pel_adopt(&self.pel, record, self.in_use(owner), self.time(delivery_ms))

    def set_time(self, tuple id not None, int64_t delivery_ms):
        """Set a record's delivery time; it comes behind the others of that time. ValueError when it has no owner."""
        pel_set_time(&self.pel, self.get_owned(id), self.time(delivery_ms))

    def first(self):
        """The record with the smallest ID, or None."""
        return as_tuple(pel_first(&self.pel))

    def last(self):
        """The record with the greatest ID, or None."""
        return as_tuple(pel_last(&self.pel))

    def oldest(self):
        """The first record of the NACK zone, else the one delivered longest ago, or None."""
        return as_tuple(pel_oldest(&self.pel))

    def walk(self, owner=None, tuple first not None=(0, 0)):
        """An iterator over the records by ID from `first` on, of one consumer or of all. It survives changes."""
        cdef PelWalk walk = PelWalk.__new__(PelWalk)
        walk.probe = self
        walk.ended = self.ended
        pel_seek(&self.pel, &walk.cursor, -1 if owner is None else self.in_use(owner), make_id(first[0], first[1]))
        return walk

    def walk_oldest(self):
        """An iterator over all records, first the NACK zone, then by delivery time. It survives changes."""
        cdef PelWalk walk = PelWalk.__new__(PelWalk)
        walk.probe = self
        walk.ended = self.ended
        pel_seek_oldest(&self.pel, &walk.cursor)
        return walk

    def clear(self):
        """Remove all records and consumers. Walks that have begun cannot go on."""
        self.ended += 1
        with nogil:
            pel_clear(&self.pel)

    def __len__(self):
        return self.pel.by_id.count

    @property
    def unowned(self):
        """How many records are in the NACK zone."""
        return self.pel.unowned

    @property
    def turn(self):
        """The turn given out last, 32 bits: the order among the records of one delivery time. It can be set."""
        return self.pel.turn

    @turn.setter
    def turn(self, uint32_t turn):
        self.pel.turn = turn

    @property
    def memory(self):
        """Bytes malloc'ed."""
        return pel_memory(&self.pel)

    def check_invariants(self):
        """Raise AssertionError when something is damaged. O(n)."""
        pel_check(&self.pel)


@cython.final
cdef class PelWalk:
    """A walk over the records of a PelProbe: see its `walk` and `walk_oldest`."""

    cdef PelProbe probe
    cdef PelCursor cursor
    cdef uint64_t ended         # as it was in the probe when the walk began

    def __init__(self):
        raise TypeError("walks come from PelProbe.walk and PelProbe.walk_oldest")

    def __iter__(self):
        return self

    def __next__(self):
        cdef PelRecord *record
        if self.ended != self.probe.ended:
            raise RuntimeError("the records walked may be gone")
        record = pel_next(&self.cursor)
        if record == NULL:
            raise StopIteration
        return as_tuple(record)
