# cython: language_level=3, boundscheck=False, wraparound=False
"""KeyRecord: one key of a database, with its value, expiry and accesses.

There are as many records as keys, so a record and the bytes of its key are one block of memory:

    +----------------+-------+---------------+--------+-----------------+      The structure has 64 bytes, of which the
    | object's head  | value | times, places | counts | bytes of key ...|      key begins in the last two: with a key of
    |       16       |   8   |      32       |    6   |                 |      18 bytes a record takes 80.
    +----------------+-------+---------------+--------+-----------------+
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.object cimport PyObject_Hash
from libc.stdint cimport uint32_t
from libc.string cimport memcpy

from streamd.keyspace.value_type cimport type_at

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

ACCESS_MODES = {"time": ACCESS_TIME, "frequency": ACCESS_FREQUENCY, "changes": ACCESS_CHANGES}
"""AccessMode, for Python."""


@cython.final
@cython.no_gc
cdef class KeyRecord:
    """One key of a database with its value, expiry and accesses. Read-only for Python; owned by its database."""

    def __cinit__(self):
        self.expire_at_ms = -1
        self.deadline_at = -1
        self.uses = NEW_USES

    @property
    def key(self):
        """The key, as a new object."""
        return key_of(self)

    @property
    def type(self):
        """The type of the value."""
        return type_at(self.type_number)

    @property
    def encoding(self):
        """How Redis would store the value, as OBJECT ENCODING says it."""
        return type_at(self.type_number).encoding(key_of(self), self.value, self.hint)


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
