# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The invariants of a PEL: of its slab, of each index, of the NACK zone, and across them.

For tests and DEBUG, through `Group.check_invariants`. Everything is walked: O(n).
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uintptr_t
from libc.string cimport memcmp

from streamd.engine.rax cimport rax_check, rax_first, rax_higher
from streamd.values.streams.pel cimport Pel, zone_time
from streamd.values.streams.pel_index cimport (
    MAX_CAPACITY, MIN_CAPACITY, TIME_KEY, Chunk, PelIndex, Place, chunk_size, compare, handles_of, index_find,
    is_by_time, place_of, write_key,
)
from streamd.values.streams.pel_slab cimport (
    NO_HANDLE, NO_OWNER, Block, PelRecord, Slab, block_base, block_record, block_records, block_size, is_given_back,
    record_of,
)

__all__ = []


cdef int expect(bint holds, str what) except -1:
    if not holds:
        raise AssertionError(what)
    return 0


cdef int check_slab(const Slab *slab, size_t records, size_t *memory) except -1:
    """Check the blocks against their counts and chains; add their bytes to `memory`."""
    cdef Block *block
    cdef Block *previous = NULL
    cdef size_t live = 0
    cdef uint32_t i, place, chained, opened = 0, open_blocks = 0, given_back = 0
    memory[0] += slab.block_capacity * sizeof(void *)
    expect(slab.block_count <= slab.block_capacity, "the table of blocks has room for its entries")
    for i in range(slab.block_count):
        if is_given_back(slab.blocks[i]):
            given_back += 1
            continue
        block = <Block *>slab.blocks[i]
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
                expect(record_of(slab, block_base(i) + place) == block_record(block, place), "handles find records")
                chained += 1
        expect(chained == block.touched, "each touched place is counted once")
    block = <Block *>slab.open_block
    while block is not NULL:
        expect(block.previous == previous, "the chain of blocks with room is linked both ways")
        expect(block.live < block_records(block.index), "a block in the chain has room")
        open_blocks += 1
        previous = block
        block = block.next
    expect(open_blocks == opened, "every block with room is in the chain")
    i = slab.free_index
    while i != NO_HANDLE:
        expect(i < slab.block_count and is_given_back(slab.blocks[i]), "the chain of given back entries")
        expect(given_back > 0, "the chain of given back entries ends")
        given_back -= 1
        i = <uint32_t>(<uintptr_t>slab.blocks[i] >> 1)
    expect(given_back == 0, "every given back entry is in the chain")
    return expect(live == records, "as many records in the slab as in the order by ID")


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
    while chunk is not NULL:
        memory[0] += chunk_size(chunk.capacity)
        expect(MIN_CAPACITY <= chunk.capacity <= MAX_CAPACITY, "a chunk's capacity is in its bounds")
        expect((chunk.capacity + 2) & (chunk.capacity + 1) == 0, "a chunk's capacity is 2^n - 2")
        expect(0 < chunk.count <= chunk.capacity, "a chunk has handles, and room for them")
        if previous is not NULL:
            place = place_of(previous)
            write_key(key, &place, by_time)
            expect(memcmp(key, chunk.key, index.chunks.key_len) < 0, "a chunk's key is above the chunk before")
        for i in range(chunk.count):
            record = record_of(&pel.slab, handles_of(chunk)[i])
            expect(record.handle == handles_of(chunk)[i], "a handle names a record")
            expect(owner < 0 or record.owner == owner, "a consumer has its own records")
            place = place_of(record)
            expect(previous is NULL or compare(previous, &place, by_time) < 0, "records ascend")
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
    while chunk is not NULL:
        for i in range(chunk.count):
            record = record_of(&pel.slab, handles_of(chunk)[i])
            expect((record.owner == NO_OWNER) == (record.delivery_ms < 0), "who has no owner has a place in the zone")
            if record.owner == NO_OWNER:
                expect(record.delivery_ms < zone_time(pel.zone_next), "a place in the zone has been given out")
                unowned += 1
        chunk = <Chunk *>rax_higher(&pel.by_time.chunks, chunk.key)
    expect(pel.unowned > 0 or pel.zone_next == 0, "an empty zone starts again")
    return expect(unowned == pel.unowned, "the number of records without an owner")


cdef size_t count_held(const Pel *pel, const PelIndex *index) noexcept:
    """How many records of an order are held back."""
    cdef Chunk *chunk = <Chunk *>rax_first(&index.chunks)
    cdef Place place
    cdef size_t count = 0
    cdef uint32_t i
    while chunk is not NULL:
        for i in range(chunk.count):
            place = place_of(record_of(&pel.slab, handles_of(chunk)[i]))
            count += index_find(&pel.slab, &pel.held, &place) is not NULL
        chunk = <Chunk *>rax_higher(&index.chunks, chunk.key)
    return count


cdef int pel_check(const Pel *pel) except -1:
    """Walk everything and raise AssertionError when something is wrong. O(n)."""
    cdef size_t memory = pel.owner_capacity * (sizeof(PelIndex *) + sizeof(uint32_t))
    cdef size_t owned = 0, held = 0
    cdef uint32_t i, unused = 0
    check_slab(&pel.slab, pel.by_id.count, &memory)
    check_index(pel, &pel.by_id, -1, &memory)
    check_index(pel, &pel.by_time, -1, &memory)
    expect(pel.by_time.count == pel.by_id.count, "as many records by time as by ID")
    for i in range(pel.owner_count):
        if pel.owners[i] is NULL:
            unused += 1
            continue
        memory += sizeof(PelIndex)
        check_index(pel, pel.owners[i], i, &memory)
        owned += pel.owners[i].count
        held += pel.owners[i].held
        expect(count_held(pel, pel.owners[i]) == pel.owners[i].held, "held back records of a consumer")
    expect(owned + pel.unowned == pel.by_id.count, "each record has one owner, or is in the NACK zone")
    check_zone(pel)
    check_index(pel, &pel.held, -1, &memory)
    expect(held == pel.held.count, "a record that is held back is counted with its consumer")
    expect(unused == pel.free_owner_count, "every number not in use is on the stack")
    for i in range(pel.free_owner_count):
        expect(pel.free_owners[i] < pel.owner_count and pel.owners[pel.free_owners[i]] is NULL, "a number on the stack")
    return expect(memory == pel.slab.memory, "bytes malloc'ed")
