# cython: language_level=3
"""The slab of a PEL: where its records are stored, and how they are named.

Records are in blocks that never move, so a record keeps its address for life. A record is named by its handle,
32 bits that give block and place. The first blocks are small, because most groups have few pending entries:

    block     0       1        2         3         4          5           6           7
    handles   0..7    8..15    16..31    32..63    64..127    128..255    256..511    512..767   ... 256 each

Free places of a block are chained; blocks with room are chained; a block without records is freed.

For pel.pyx and pel_index.pxd. Everything is inline: a PEL is one unit of compiled code, whichever file a step is in.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t, uintptr_t

from streamd.engine.ids cimport StreamID
from streamd.heap cimport free, malloc, realloc


cdef packed struct PelRecord:
    # Its address stays the same until it is removed. Packed into 44 bytes, so its fields may be unaligned: take no
    # pointers to them, but reading and assigning them is fine.
    StreamID id
    # delivery_ms: Unix time of the last delivery, 0 or more; change it only with pel_set_time. It is negative when
    # the record is unowned: it is then the record's place in the NACK zone, see zone_time.
    # owner: change it only with pel_assign, pel_disown and pel_adopt.
    int64_t delivery_ms
    uint64_t delivery_count
    uint32_t turn              # orders the records with one delivery_ms by when they were assigned it
    uint32_t owner             # number of the consumer in the group, from pel_add_owner, or NO_OWNER
    uint32_t handle            # its own place in the slab


cdef enum:
    NO_OWNER = 0xFFFFFFFF      # PelRecord.owner of a record in the NACK zone


cdef enum:
    FIRST_BLOCK = 8             # records in block 0
    FULL_BLOCK = 256            # records in block 6 and later ones
    MAX_BLOCKS = (1 << 24) + 5  # as many as 32-bit handles can name
    NO_HANDLE = 0xFFFFFFFF


cdef struct Slab:
    void **blocks              # hold the records; owned
    void *open_block           # chain of the blocks with room
    uint32_t block_count       # entries of `blocks` in use, including freed ones
    uint32_t block_capacity    # entries malloc'ed for `blocks`
    uint32_t free_index        # chain of the freed entries of `blocks`; NO_HANDLE when there is none
    size_t memory              # bytes malloc'ed for blocks; the indexes add their own here too


cdef struct Block:
    # Head of a block of the slab; its records follow.
    Block *previous       # in the chain of the blocks with room
    Block *next
    uint32_t index        # in Slab.blocks
    uint32_t live         # records
    uint32_t touched      # places that have ever held a record: those from here on are free and not chained
    uint32_t free_head    # first free place below `touched`, or NO_HANDLE; a free place keeps the next one in `owner`


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
    """The index of the block that holds `handle`."""
    cdef uint32_t index = 0
    if handle >= FULL_BLOCK:
        return handle // FULL_BLOCK + 5
    handle //= FIRST_BLOCK
    while handle:
        handle >>= 1
        index += 1
    return index


cdef inline PelRecord *record_of(const Slab *slab, uint32_t handle) noexcept nogil:
    cdef uint32_t index = block_of(handle)
    return block_record(<Block *>slab.blocks[index], handle - block_base(index))


# An entry of Slab.blocks whose block has been freed is odd: the index of the next such entry, doubled, plus 1.


cdef inline bint is_given_back(const void *entry) noexcept nogil:
    return <uintptr_t>entry & 1


cdef inline void open_link(Slab *slab, Block *block) noexcept nogil:
    """Put a block at the head of the chain of blocks with room."""
    block.previous = NULL
    block.next = <Block *>slab.open_block
    if block.next is not NULL:
        block.next.previous = block
    slab.open_block = block


cdef inline void open_unlink(Slab *slab, Block *block) noexcept nogil:
    if block.previous is not NULL:
        block.previous.next = block.next
    else:
        slab.open_block = block.next
    if block.next is not NULL:
        block.next.previous = block.previous


cdef inline Block *new_block(Slab *slab) noexcept nogil:
    """Add a block to the slab, at the head of the chain; NULL when out of memory."""
    cdef void **blocks
    cdef Block *block
    cdef uint32_t index, capacity
    if slab.free_index != NO_HANDLE:
        index = slab.free_index
    else:
        index = slab.block_count
        if index == MAX_BLOCKS:
            return NULL
        if index == slab.block_capacity:
            capacity = 2 if index == 0 else index * 2
            blocks = <void **>realloc(slab.blocks, capacity * sizeof(void *))
            if blocks is NULL:
                return NULL
            slab.memory += (capacity - slab.block_capacity) * sizeof(void *)
            slab.blocks = blocks
            slab.block_capacity = capacity
    block = <Block *>malloc(block_size(index))
    if block is NULL:
        return NULL
    slab.memory += block_size(index)
    if index == slab.free_index:
        slab.free_index = <uint32_t>(<uintptr_t>slab.blocks[index] >> 1)
    else:
        slab.block_count += 1
    slab.blocks[index] = block
    block.index = index
    block.live = 0
    block.touched = 0
    block.free_head = NO_HANDLE
    open_link(slab, block)
    return block


cdef inline PelRecord *new_record(Slab *slab) noexcept nogil:
    """A record with only its handle set; NULL when out of memory."""
    cdef Block *block = <Block *>slab.open_block
    cdef PelRecord *record
    if block is NULL:
        block = new_block(slab)
        if block is NULL:
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
        open_unlink(slab, block)
    return record


cdef inline bint free_record(Slab *slab, PelRecord *record) noexcept nogil:
    """Free a record's place; True when its block was freed too, so that the slab may be empty."""
    cdef Block *block = <Block *>slab.blocks[block_of(record.handle)]
    cdef uint32_t index = block.index
    if block.live == block_records(index):
        open_link(slab, block)
    block.live -= 1
    if block.live:
        record.owner = block.free_head
        block.free_head = record.handle - block_base(index)
        record.handle = NO_HANDLE
        return False
    open_unlink(slab, block)
    slab.memory -= block_size(index)
    free(block)
    slab.blocks[index] = <void *>((<uintptr_t>slab.free_index << 1) | 1)
    slab.free_index = index
    return True


cdef inline void free_slab(Slab *slab) noexcept nogil:
    """Free all blocks, whatever is in them."""
    cdef uint32_t i
    for i in range(slab.block_count):
        if not is_given_back(slab.blocks[i]):
            slab.memory -= block_size(i)
            free(slab.blocks[i])
    slab.memory -= slab.block_capacity * sizeof(void *)
    free(slab.blocks)
    slab.blocks = NULL
    slab.open_block = NULL
    slab.block_count = 0
    slab.block_capacity = 0
    slab.free_index = NO_HANDLE
