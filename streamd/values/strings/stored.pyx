# cython: language_level=3, boundscheck=False, wraparound=False
"""Strings in a database: storing, changing and extending one."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF

from streamd.keyspace.database cimport Database
from streamd.keyspace.key_record cimport KeyRecord
from streamd.keyspace.listener cimport EVENT_STRING
from streamd.keyspace.value_type cimport number_of
from streamd.values.strings.string_type cimport HINT_BY_VALUE, HINT_RAW

__all__ = ["append_string", "change_string", "set_string"]

cdef extern from *:
    """
    /* A bytes object that nobody else knows of, with more at its end; it may move. NULL when there is no memory:
       then it is as it was, where _PyBytes_Resize would have freed it. */
    static PyObject *streamd_extend(PyObject *string, const char *more, Py_ssize_t size)
    {
        Py_ssize_t length = PyBytes_GET_SIZE(string);
        PyBytesObject *moved = PyObject_Realloc(string, offsetof(PyBytesObject, ob_sval) + length + size + 1);
        if (moved == NULL)
            return NULL;
        memcpy(moved->ob_sval + length, more, size);
        moved->ob_sval[length + size] = 0;
        Py_SET_SIZE(moved, length + size);
    #pragma GCC diagnostic push
    #pragma GCC diagnostic ignored "-Wdeprecated-declarations"
        moved->ob_shash = -1;
    #pragma GCC diagnostic pop
        return (PyObject *)moved;
    }
    """
    PyObject *extend "streamd_extend"(PyObject *string, const char *more, Py_ssize_t size) noexcept


cpdef int set_string(Database db, bytes key, bytes value, bint keep_expiry=False) except -1:
    """Store a string under a key, whatever it held, and report `set`. An expiry goes, unless `keep_expiry`."""
    db.set_typed(key, value, number_of(value), keep_expiry)
    return db.event(EVENT_STRING, b"set", key)


cpdef int change_string(Database db, bytes key, bytes value, bytes event, int hint=HINT_BY_VALUE) except -1:
    """Store what has become of the string under a key, which keeps its expiry; a missing key is added.

    event  the event to report
    hint   ENCODING_*: how the string was made
    """
    cdef KeyRecord record = db.lookup(key)
    if record is None:
        record = db.add_typed(key, value, number_of(value))
    else:
        db.overwrite(record, value, number_of(value))
    record.hint = <unsigned char>hint
    return db.event(EVENT_STRING, event, key)


cpdef int append_string(Database db, bytes key, bytes more) except -1:
    """Add to the end of the string under a key, and report the event `append`; KeyError when there is none.

    A string without other references grows in place: appending a little to a long one is cheap.
    """
    cdef KeyRecord record = db.lookup(key)
    cdef PyObject *string
    cdef PyObject *grown
    if more is None:
        raise TypeError("a string is bytes, not None")
    if record is None or type(record.value) is not bytes:
        raise KeyError(key)
    string = <PyObject *>record.value
    if string.ob_refcnt > 1:
        return change_string(db, key, <bytes>record.value + more, b"append", HINT_RAW)
    db.weigh(record, -1)
    Py_INCREF(<object>string)
    record.value = None
    grown = extend(string, PyBytes_AS_STRING(more), PyBytes_GET_SIZE(more))
    record.value = <object>(string if grown is NULL else grown)
    Py_DECREF(record.value)
    db.weigh(record, 1)
    if grown is NULL:
        raise MemoryError("no memory for a longer string")
    db.overwrite(record, record.value, record.type_number)
    record.hint = HINT_RAW
    return db.event(EVENT_STRING, b"append", key)
