# cython: language_level=3
"""One key of a database. See key_record.pyx."""

cimport cython
from cpython.bytes cimport PyBytes_GET_SIZE
from cpython.object cimport PyObject_Hash
from libc.stdint cimport uint64_t

from streamd.keyspace.hash_slot cimport slot_of


cdef enum:
    SHARD_BITS = 8
    SHARDS = 1 << SHARD_BITS
    NEW_USES = 5        # initial count of a key, so that it is not evicted first
    MINUTE_MS = 60_000
    # Bytes of memory, as the interpreter and the C library hand it out.
    SMALL_OBJECT = 512  # up to this size the interpreter uses its own allocator, in multiples of 16 bytes
    RECORD_BYTES = 64
    BYTES_HEAD = 33     # of a bytes object, and its zero at the end
    LOOKUP_BYTES = 48   # about what a key takes in its shard and the dense list
    LIST_BYTES = 88     # an empty list, with what the collector needs


@cython.final
@cython.no_gc
cdef class KeyRecord:
    cdef readonly bytes key
    cdef readonly object value
    cdef readonly long long expire_at_ms    # Unix time in ms; -1: never
    cdef readonly long long accessed_ms     # Unix time in ms of the last access that counted, see AccessMode
    cdef readonly unsigned char type_number     # of the value's type, see value_type.pyx
    cdef readonly unsigned char hint        # a number that the type keeps here of a value; 0 at first
    cdef readonly unsigned char uses        # how often it is accessed, on a logarithmic scale; see accesses.pyx
    cdef readonly unsigned short used_minute    # when `uses` was brought up to date: Unix minutes, the low 16 bits
    cdef unsigned int at                    # place in the dense list
    cdef int deadline_at                    # place in the heap of deadlines; -1: has none


# What counts as an access, and what is noted of it. It follows maxmemory-policy.
cdef enum AccessMode:
    ACCESS_TIME                   # reads and writes: `accessed_ms`
    ACCESS_FREQUENCY              # reads and writes: `uses`
    ACCESS_CHANGES                # changes: `accessed_ms`


cdef inline Py_ssize_t object_size(bytes text) noexcept:
    """Bytes of memory of a bytes object."""
    cdef Py_ssize_t size = PyBytes_GET_SIZE(text) + BYTES_HEAD
    return (size + 15) & ~15 if size <= SMALL_OBJECT else (size + 23) & ~15


cdef inline unsigned short minute_of(long long now_ms) noexcept:
    return <unsigned short>(now_ms // MINUTE_MS)


cdef inline Py_ssize_t shard_of(bytes key, bint by_slot) except -1:
    """Which shard a key belongs to; in a cluster, keys are kept by hash slot."""
    if by_slot:
        return slot_of(key)
    if key is None:
        raise TypeError("a key is bytes, not None")
    return <Py_ssize_t>(<uint64_t>PyObject_Hash(key) >> (64 - SHARD_BITS))
