# cython: language_level=3
"""The index of a shard: its records by their keys. See key_index.pyx."""

from libc.stdint cimport uint32_t, uint64_t, uintptr_t
from libc.string cimport memcmp

from streamd.keyspace.key_record cimport KeyRecord


cdef enum:
    SHARD_BITS = 10
    SHARDS = 1 << SHARD_BITS
    TAG_BITS = 20
    TAGS = 1 << TAG_BITS
    TAG_SHIFT = 64 - TAG_BITS
    UNUSED_BITS = 3             # of an address: it is a multiple of 8, below 2**47


cdef struct KeyIndex:
    # All zero: it is empty.
    uint64_t *slots             # [room], owned: a tag, and below it the address of a record, owned too; 0: free
    uint32_t room
    uint32_t count              # records


cdef struct Found:
    # Records, in no order. All zero: none.
    KeyRecord **records         # [room], owned; the records are borrowed
    Py_ssize_t count
    Py_ssize_t room


cdef long long index_reserve(KeyIndex *index) except? -1      # room for one more; how many bytes it has grown by
cdef long long index_put(KeyIndex *index, KeyRecord *record, uint32_t hash) noexcept     # after index_reserve; the same
cdef long long index_remove(KeyIndex *index, const KeyRecord *record) noexcept   # how many bytes it has shrunk by
cdef void index_clear(KeyIndex *index) noexcept
cdef KeyRecord *index_next(const KeyIndex *index, uint32_t *at) noexcept
cdef uint64_t index_step(const KeyIndex *index, uint64_t limit, Found *found) except? 0


cdef inline KeyRecord *record_in(uint64_t slot) noexcept:
    """The record of a slot that is not free."""
    return <KeyRecord *><uintptr_t>(slot << TAG_BITS >> (TAG_BITS - UNUSED_BITS))


cdef inline uint32_t shard_of(uint32_t hash) noexcept:
    """Which shard a key belongs to where keys are not kept by slot."""
    return hash >> (32 - SHARD_BITS)


cdef inline uint64_t tag_of(uint32_t hash) noexcept:
    return hash >> (32 - SHARD_BITS - TAG_BITS) & (TAGS - 1)


cdef inline uint32_t home_of(uint64_t tag, uint32_t room) noexcept:
    """Where the search for a tag begins: tags are in order."""
    return <uint32_t>(tag * room >> TAG_BITS)


cdef inline KeyRecord *index_find(const KeyIndex *index, const char *key, Py_ssize_t size, uint32_t hash) noexcept:
    """The record of a key, borrowed; NULL: there is none."""
    cdef uint64_t tag = tag_of(hash)
    cdef uint32_t at
    cdef uint64_t slot
    cdef KeyRecord *record
    if index.room == 0:
        return NULL
    at = home_of(tag, index.room)
    while True:
        slot = index.slots[at]
        if slot == 0:
            return NULL
        if slot >> TAG_SHIFT == tag:
            record = record_in(slot)
            if <Py_ssize_t>record.size == size and memcmp(record.text, key, <size_t>size) == 0:
                return record
        at += 1
        if at == index.room:
            at = 0


cdef inline uint64_t index_bytes(const KeyIndex *index) noexcept:
    """Bytes of memory of the slots."""
    return <uint64_t>index.room * sizeof(uint64_t)
