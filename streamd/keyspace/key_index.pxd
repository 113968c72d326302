# cython: language_level=3
"""The index of a shard: its records by their keys. See key_index.pyx."""

from cpython.object cimport PyObject
from libc.stdint cimport uint32_t, uint64_t, uintptr_t
from libc.string cimport memcmp

from streamd.keyspace.key_record cimport KeyRecord


cdef enum:
    SHARD_BITS = 10
    SHARDS = 1 << SHARD_BITS
    TAG_SHIFT = 48              # addresses have fewer bits


cdef struct KeyIndex:
    # All zero: it is empty.
    uint64_t *slots             # [mask + 1], owned: address of a record, and above it bits of its hash; 0: free
    uint32_t mask
    uint32_t count              # records


cdef long long index_reserve(KeyIndex *index) except? -1      # room for one more; how many bytes it has grown by
cdef void index_put(KeyIndex *index, KeyRecord record) noexcept     # after index_reserve; the key must be missing
cdef long long index_remove(KeyIndex *index, KeyRecord record) noexcept   # how many bytes it has shrunk by
cdef void index_clear(KeyIndex *index) noexcept


cdef inline PyObject *record_in(uint64_t slot) noexcept:
    """The record of a slot that is not free."""
    return <PyObject *><uintptr_t>(slot & ((<uint64_t>1 << TAG_SHIFT) - 1))


cdef inline uint32_t shard_of(uint32_t hash) noexcept:
    """Which shard a key belongs to where keys are not kept by slot."""
    return hash >> (32 - SHARD_BITS)


cdef inline uint64_t tag_of(uint32_t hash) noexcept:
    return hash >> 8 & 0xFFFF


cdef inline PyObject *index_find(const KeyIndex *index, const char *key, Py_ssize_t size, uint32_t hash) noexcept:
    """The record of a key, borrowed; NULL: there is none."""
    cdef uint32_t at = hash & index.mask
    cdef uint64_t slot
    cdef PyObject *record
    if index.slots is NULL:
        return NULL
    while True:
        slot = index.slots[at]
        if slot == 0:
            return NULL
        if slot >> TAG_SHIFT == tag_of(hash):
            record = record_in(slot)
            if (<KeyRecord>record).hash == hash and <Py_ssize_t>(<KeyRecord>record).size == size \
                    and memcmp((<KeyRecord>record).text, key, <size_t>size) == 0:
                return record
        at = at + 1 & index.mask


cdef inline uint64_t index_bytes(const KeyIndex *index) noexcept:
    """Bytes of memory of the slots."""
    return 0 if index.slots is NULL else (<uint64_t>index.mask + 1) * sizeof(uint64_t)
