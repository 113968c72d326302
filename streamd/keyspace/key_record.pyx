# cython: language_level=3, boundscheck=False, wraparound=False
"""KeyRecord: one key of a database, with its value, expiry and accesses.

There are as many records as keys, so a record and the bytes of its key are one block of memory, and no object of the
interpreter's:

    +-------+-----------------+--------+-----------------+    A key of 12 bytes makes a record of 40. It belongs to the
    | value | places, access  | counts | bytes of key ...|    index of a shard. Whoever holds its address must not
    |   8   |       16        |    4   |                 |    use it any more when its key may have been removed.
    +-------+-----------------+--------+-----------------+

There may be as many small values, each of which is one block of memory and an object around it. The object is only
there while the value is in use: the values of the last OPEN_RECORDS records that were added or opened have one. Any
other is closed: its record holds the block itself, and a new object is created for whoever asks next (`value_of`). What
can be closed is for the type to say (ValueType.close, ValueType.open).
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF
from libc.stdint cimport uint32_t
from libc.string cimport memcpy, memset

from streamd.heap cimport free, free_sized, malloc_sized
from streamd.keyspace.value_type cimport ValueType, type_at

cdef extern from *:
    """
    /* The hash of a bytes object. */
    static Py_hash_t streamd_hash(const void *text, Py_ssize_t size) {
        Py_hash_t hash = size == 0 ? 0 : PyHash_GetFuncDef()->hash(text, size);
        return hash == -1 ? -2 : hash;
    }
    """
    Py_hash_t streamd_hash(const void *text, Py_ssize_t size) noexcept

__all__ = ["ACCESS_MODES"]

cdef enum:
    OPEN_RECORDS = 64           # that are kept open; fewer than RECORD_IN_USE

cdef KeyRecord *opened[OPEN_RECORDS]    # records that were opened or added last, borrowed; NULL: it has gone
cdef int oldest = 0                     # the place of the one that was opened before all others

ACCESS_MODES = {"time": ACCESS_TIME, "frequency": ACCESS_FREQUENCY, "changes": ACCESS_CHANGES}
"""AccessMode, for Python."""


cdef KeyRecord *new_record(bytes key) except NULL:
    """A record of a key, without a value."""
    cdef Py_ssize_t size
    cdef KeyRecord *record
    if key is None:
        raise TypeError("a key is bytes, not None")
    size = PyBytes_GET_SIZE(key)
    if size > <Py_ssize_t>0xFFFFFFFF:
        raise MemoryError("a key of more than 4 GiB")
    record = <KeyRecord *>malloc_sized(record_bytes(<size_t>size))
    if record is NULL:
        raise MemoryError("no memory for a key")
    memset(record, 0, sizeof(KeyRecord))
    memcpy(record.text, PyBytes_AS_STRING(key), <size_t>size)
    record.size = <uint32_t>size
    record.deadline_at = -1
    record.uses = NEW_USES
    return record


cdef void free_record(KeyRecord *record) noexcept:
    """Free a record that nobody finds any more, and its value."""
    cdef PyObject *held = record.held
    cdef unsigned char state = record.state
    free_sized(record, record_bytes(record.size))
    if state >= RECORD_CLOSED:
        free(held)
        return
    if 0 < state < RECORD_IN_USE:
        opened[state - 1] = NULL
    Py_XDECREF(held)


cdef object take_value(KeyRecord *record):
    """The value of a record, open, which gives it up."""
    cdef object value = value_of(record)
    if 0 < record.state < RECORD_IN_USE:
        opened[record.state - 1] = NULL
    record.state = 0
    record.held = NULL
    Py_DECREF(value)
    return value


cdef uint32_t hash_of(const KeyRecord *record) noexcept:
    """The low half of the hash of a record's key, as that of the bytes object."""
    return <uint32_t>streamd_hash(record.text, <Py_ssize_t>record.size)


cdef void put_value(KeyRecord *record, object value, int number) noexcept:
    """Give a record another value, of the type with a number; the old one must not be closed."""
    cdef PyObject *old = record.held
    Py_INCREF(value)
    record.held = <PyObject *>value
    record.type_number = <unsigned char>number
    if type_at(number).closes and not record.state:
        keep_open(record)
    Py_XDECREF(old)


# --- Values that are closed -------------------------------------------------------------------------------------------


cdef object open_value(KeyRecord *record):
    if record.state == RECORD_IN_USE:
        value = <object>record.held
    else:
        value = type_at(record.type_number).open(record.held, record.state - RECORD_CLOSED)
        Py_INCREF(value)
        record.held = <PyObject *>value
    keep_open(record)
    return value


cdef void keep_open(KeyRecord *record) noexcept:
    """Remember that a value is open; the one that has been open for the longest time is closed."""
    global oldest
    cdef KeyRecord *closing = opened[oldest]
    if closing is not NULL:
        close_value(closing)
    opened[oldest] = record
    oldest = (oldest + 1) % OPEN_RECORDS
    record.state = <unsigned char>(oldest if oldest else OPEN_RECORDS)


cdef void close_value(KeyRecord *record) noexcept:
    """Close a value, unless it is in use, or its type keeps it open as it is now; then its next use is another try."""
    cdef PyObject *value = record.held
    cdef ValueType type = type_at(record.type_number)
    cdef unsigned char form = 0
    cdef void *block
    record.state = RECORD_IN_USE if type.closes else 0      # another type has taken the place of one that closes
    if not type.closes or value.ob_refcnt > 1:
        return
    block = type.close(<object>value, &form)
    if block is not NULL:
        record.held = <PyObject *>block
        record.state = RECORD_CLOSED | form
        Py_XDECREF(value)
