# cython: language_level=3
"""One key of a database. See key_record.pyx."""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t


cdef enum:
    NEW_USES = 5        # initial count of a key, so that it is not evicted first
    MINUTE_MS = 60_000
    # Bytes of memory, as the interpreter and the C library hand it out.
    SMALL_OBJECT = 512  # up to this size the interpreter uses its own allocator, in multiples of 16 bytes
    RECORD_HEAD = 62    # of a record, before its key
    RECORD_LEAST = 64
    BYTES_HEAD = 33     # of a bytes object, and its zero at the end
    LOOKUP_BYTES = 20   # about what a key takes in its shard and the dense list
    LIST_BYTES = 88     # an empty list, with what the collector needs


@cython.final
@cython.no_gc
cdef class KeyRecord:
    cdef readonly object value
    cdef readonly long long expire_at_ms    # Unix time in ms; -1: never
    cdef readonly long long accessed_ms     # Unix time in ms of the last access that counted, see AccessMode
    cdef unsigned int at                    # place in the dense list
    cdef int deadline_at                    # place in the heap of deadlines; -1: has none
    cdef uint32_t hash                      # of the key, see key_index.pyx
    cdef uint32_t size                      # bytes of the key
    cdef readonly unsigned char type_number     # of the value's type, see value_type.pyx
    cdef readonly unsigned char hint        # a number that the type keeps here of a value; 0 at first
    cdef readonly unsigned char uses        # how often it is accessed, on a logarithmic scale; see accesses.pyx
    cdef readonly unsigned short used_minute    # when `uses` was brought up to date: Unix minutes, the low 16 bits
    cdef char text[2]                       # the key: `size` bytes, most of which follow the structure


# What counts as an access, and what is noted of it. It follows maxmemory-policy.
cdef enum AccessMode:
    ACCESS_TIME                   # reads and writes: `accessed_ms`
    ACCESS_FREQUENCY              # reads and writes: `uses`
    ACCESS_CHANGES                # changes: `accessed_ms`


cdef KeyRecord new_record(bytes key)          # without a value


cdef inline bytes key_of(KeyRecord record):
    """The key, as a new object."""
    return PyBytes_FromStringAndSize(record.text, record.size)


cdef inline Py_ssize_t block_of(Py_ssize_t size) noexcept:
    """Bytes of memory of an object of a size."""
    return (size + 15) & ~15 if size <= SMALL_OBJECT else (size + 23) & ~15


cdef inline Py_ssize_t object_size(bytes text) noexcept:
    """Bytes of memory of a bytes object."""
    return block_of(PyBytes_GET_SIZE(text) + BYTES_HEAD)


cdef inline Py_ssize_t record_size(KeyRecord record) noexcept:
    """Bytes of memory of a record with its key."""
    return block_of(max(<Py_ssize_t>RECORD_LEAST, RECORD_HEAD + <Py_ssize_t>record.size))


cdef inline unsigned short minute_of(long long now_ms) noexcept:
    return <unsigned short>(now_ms // MINUTE_MS)
