# cython: language_level=3
"""One key of a database. See key_record.pyx."""

from cpython.bytes cimport PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport uint16_t, uint32_t

from streamd.heap cimport sized_memory


cdef enum:
    NEW_USES = 5        # initial count of a key, so that it is not evicted first
    MINUTE_MS = 60_000
    # Bytes of memory, as the interpreter and the C library hand it out.
    SMALL_OBJECT = 512  # up to this size the interpreter uses its own allocator, in multiples of 16 bytes
    BYTES_HEAD = 33     # of a bytes object, and its zero at the end
    LOOKUP_BYTES = 10   # about what a key takes in its shard
    RECORD_HEAD = 28    # of a record, before its key
    # States of a record.
    RECORD_IN_USE = 127     # the value stayed open when it was to be closed: others held it, or it was too large
    RECORD_CLOSED = 128     # and the form: the value is closed


cdef struct KeyRecord:
    PyObject *held                  # the value, owned; where it is closed, its block (`state`)
    int deadline_at                 # place in the heap of deadlines; -1: it never expires
    uint32_t size                   # bytes of the key
    uint32_t accessed_low           # Unix time in ms of the last access that counted (AccessMode), 32 bits
    uint16_t accessed_high          # ... and 16 more
    unsigned short used_minute      # when `uses` was brought up to date: Unix minutes, the low 16 bits
    unsigned char type_number       # of the value's type, see value_type.pyx
    unsigned char hint              # a number that the type keeps here of a value; 0 at first
    unsigned char uses              # how often it is accessed, on a logarithmic scale; see accesses.pyx
    unsigned char state             # from RECORD_IN_USE: see there; below: its place among the records that were
                                    # opened last, from 1; 0: it has none; its type closes no value
    char text[4]                    # the key: `size` bytes, most of which follow the structure


# What counts as an access, and what is noted of it. It follows maxmemory-policy.
cdef enum AccessMode:
    ACCESS_TIME                   # reads and writes: the time
    ACCESS_FREQUENCY              # reads and writes: `uses`
    ACCESS_CHANGES                # changes: the time


cdef KeyRecord *new_record(bytes key) except NULL       # without a value
cdef void free_record(KeyRecord *record) noexcept       # with its value
cdef object take_value(KeyRecord *record)               # which has none afterwards
cdef object open_value(KeyRecord *record)       # of a record whose state is RECORD_IN_USE or above
cdef void put_value(KeyRecord *record, object value, int number) noexcept    # of the type with a number
cdef uint32_t hash_of(const KeyRecord *record) noexcept     # of the key, see key_index.pyx


cdef inline object value_of(KeyRecord *record):
    """The value; it is opened if it is closed."""
    return open_value(record) if record.state >= RECORD_IN_USE else <object>record.held


cdef inline long long accessed_of(const KeyRecord *record) noexcept:
    """When it was accessed last, as far as that counted: Unix time in ms."""
    return <long long>record.accessed_high << 32 | record.accessed_low


cdef inline void set_accessed(KeyRecord *record, long long at_ms) noexcept:
    record.accessed_low = <uint32_t>at_ms
    record.accessed_high = <uint16_t>(at_ms >> 32)


cdef inline bytes key_of(const KeyRecord *record):
    """The key, as a new object."""
    return PyBytes_FromStringAndSize(record.text, record.size)


cdef inline Py_ssize_t block_of(Py_ssize_t size) noexcept:
    """Bytes of memory of an object of a size."""
    return (size + 15) & ~15 if size <= SMALL_OBJECT else (size + 23) & ~15


cdef inline Py_ssize_t object_size(bytes text) noexcept:
    """Bytes of memory of a bytes object."""
    return block_of(PyBytes_GET_SIZE(text) + BYTES_HEAD)


cdef inline size_t record_bytes(size_t key_size) noexcept nogil:
    """Bytes of a record with a key of a size."""
    return RECORD_HEAD + key_size if key_size > sizeof(KeyRecord) - RECORD_HEAD else sizeof(KeyRecord)


cdef inline Py_ssize_t record_size(KeyRecord *record) noexcept:
    """Bytes of memory of a record with its key."""
    return <Py_ssize_t>sized_memory(record, record_bytes(record.size))


cdef inline unsigned short minute_of(long long now_ms) noexcept:
    return <unsigned short>(now_ms // MINUTE_MS)
