# cython: language_level=3, boundscheck=False, wraparound=False
"""KeyRecord: one key of a database, with its value, expiry and accesses.

There are as many records as keys, so a record and the bytes of its key are one block of memory:

    +----------------+-------+----------------+--------+-----------------+    The structure has 56 bytes, of which the
    | object's head  | value | place, access  | counts | bytes of key ...|    key begins in the last eight: with a key
    |       16       |   8   |       20       |    4   |                 |    of up to 16 bytes a record takes 64.
    +----------------+-------+----------------+--------+-----------------+

There may be as many small values, each of which is one block of memory and an object around it. The object is only
there while the value is in use: the values of the last OPEN_RECORDS records that were added or opened have one. Any
other is closed: its record holds the block itself, and a new object is created for whoever asks next (`value_of`). What
can be closed is for the type to say (ValueType.close, ValueType.open).
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.object cimport PyObject_Hash
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport uint32_t
from libc.string cimport memcpy

from streamd.heap cimport free
from streamd.keyspace.value_type cimport ValueType, type_at

cdef extern from *:
    """
    /* What the next record takes beyond its structure: the interpreter's allocators are not told of it. */
    static Py_ssize_t streamd_record_excess = 0;

    static PyObject *streamd_allocate_record(PyTypeObject *type, Py_ssize_t items) {
        PyObject *record = (PyObject *)PyObject_Malloc((size_t)(type->tp_basicsize + streamd_record_excess));
        (void)items;
        if (record == NULL)
            return PyErr_NoMemory();
        memset(record, 0, (size_t)type->tp_basicsize);
        return PyObject_Init(record, type);
    }
    static void streamd_allocate_with(PyObject *type) { ((PyTypeObject *)type)->tp_alloc = streamd_allocate_record; }
    """
    Py_ssize_t streamd_record_excess
    void streamd_allocate_with(object type) noexcept

__all__ = ["ACCESS_MODES", "KeyRecord"]

cdef enum:
    OPEN_RECORDS = 64           # that are kept open; fewer than RECORD_IN_USE

cdef PyObject *opened[OPEN_RECORDS]     # records that were opened or added last, borrowed; NULL: it has gone
cdef int oldest = 0                     # the place of the one that was opened before all others

ACCESS_MODES = {"time": ACCESS_TIME, "frequency": ACCESS_FREQUENCY, "changes": ACCESS_CHANGES}
"""AccessMode, for Python."""


@cython.final
@cython.no_gc
cdef class KeyRecord:
    """One key of a database with its value, expiry and accesses. Read-only for Python; owned by its database."""

    def __cinit__(self):
        self.deadline_at = -1
        self.uses = NEW_USES

    def __dealloc__(self):
        if self.state >= RECORD_CLOSED:
            free(self.held)
            return
        if 0 < self.state < RECORD_IN_USE:
            opened[self.state - 1] = NULL
        Py_XDECREF(self.held)

    @property
    def key(self):
        """The key, as a new object."""
        return key_of(self)

    @property
    def value(self):
        """The value; None: it has none yet."""
        return None if self.held is NULL else value_of(self)

    @property
    def accessed_ms(self):
        """Unix time in ms of the last access that counted."""
        return accessed_of(self)

    @property
    def type(self):
        """The type of the value."""
        return type_at(self.type_number)

    @property
    def encoding(self):
        """How Redis would store the value, as OBJECT ENCODING says it."""
        return type_at(self.type_number).encoding(key_of(self), value_of(self), self.hint)


streamd_allocate_with(KeyRecord)


cdef KeyRecord new_record(bytes key):
    """A record of a key, without a value."""
    global streamd_record_excess
    cdef Py_ssize_t size
    cdef KeyRecord record
    if key is None:
        raise TypeError("a key is bytes, not None")
    size = PyBytes_GET_SIZE(key)
    if size > <Py_ssize_t>0xFFFFFFFF:
        raise MemoryError("a key of more than 4 GiB")
    streamd_record_excess = max(<Py_ssize_t>0, RECORD_HEAD + size - RECORD_LEAST)
    record = KeyRecord.__new__(KeyRecord)
    streamd_record_excess = 0
    memcpy(record.text, PyBytes_AS_STRING(key), <size_t>size)
    record.size = <uint32_t>size
    record.hash = <uint32_t>PyObject_Hash(key)
    return record


cdef void put_value(KeyRecord record, object value, int number) noexcept:
    """Give a record another value, of the type with a number; the old one must not be closed."""
    cdef PyObject *old = record.held
    Py_INCREF(value)
    record.held = <PyObject *>value
    record.type_number = <unsigned char>number
    if type_at(number).closes and not record.state:
        keep_open(record)
    Py_XDECREF(old)


# --- Values that are closed -------------------------------------------------------------------------------------------


cdef object open_value(KeyRecord record):
    if record.state == RECORD_IN_USE:
        value = <object>record.held
    else:
        value = type_at(record.type_number).open(record.held, record.state - RECORD_CLOSED)
        Py_INCREF(value)
        record.held = <PyObject *>value
    keep_open(record)
    return value


cdef void keep_open(KeyRecord record) noexcept:
    """Remember that a value is open; the one that has been open for the longest time is closed."""
    global oldest
    cdef PyObject *closing = opened[oldest]
    if closing is not NULL:
        close_value(<KeyRecord>closing)
    opened[oldest] = <PyObject *>record
    oldest = (oldest + 1) % OPEN_RECORDS
    record.state = <unsigned char>(oldest if oldest else OPEN_RECORDS)


cdef void close_value(KeyRecord record) noexcept:
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
