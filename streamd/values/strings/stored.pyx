# cython: language_level=3, boundscheck=False, wraparound=False
"""Strings in a database: storing, changing and extending one."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from libc.string cimport memcpy, memset

from streamd.errors import WrongTypeError
from streamd.keyspace.database cimport Database
from streamd.keyspace.key_record cimport KeyRecord, key_of, put_value, value_of
from streamd.keyspace.listener cimport EVENT_STRING
from streamd.keyspace.value_type cimport number_of
from streamd.values.strings.string_type cimport HINT_BY_VALUE, HINT_RAW

__all__ = ["append_string", "change_string", "find_string", "find_string_for_write", "set_string"]

cdef extern from *:
    """
    /* A bytes object that nobody else knows of, with another length; it may move, and what is new is not set.
       NULL when there is no memory: then it is as it was, where _PyBytes_Resize would have freed it. */
    static PyObject *streamd_resize(PyObject *string, Py_ssize_t length)
    {
        PyBytesObject *moved = PyObject_Realloc(string, offsetof(PyBytesObject, ob_sval) + length + 1);
        if (moved == NULL)
            return NULL;
        moved->ob_sval[length] = 0;
        Py_SET_SIZE(moved, length);
        return (PyObject *)moved;
    }

    /* The bytes of a bytes object that nobody else knows of, to be written: it forgets its hash. */
    static char *streamd_writable(PyObject *string)
    {
    #pragma GCC diagnostic push
    #pragma GCC diagnostic ignored "-Wdeprecated-declarations"
        ((PyBytesObject *)string)->ob_shash = -1;
    #pragma GCC diagnostic pop
        return PyBytes_AS_STRING(string);
    }
    """
    PyObject *resize "streamd_resize"(PyObject *string, Py_ssize_t length) noexcept
    char *writable "streamd_writable"(PyObject *string) noexcept


# --- Reading ----------------------------------------------------------------------------------------------------------


cpdef bytes find_string(Database db, bytes key):
    """The string at a key to be read, or None; WrongTypeError when the key holds something else."""
    value = db.find(key)
    if value is not None and type(value) is not bytes:
        raise WrongTypeError
    return <bytes>value


cpdef bytes find_string_for_write(Database db, bytes key):
    """Like find_string, for a key to be changed."""
    value = db.find_for_write(key)
    if value is not None and type(value) is not bytes:
        raise WrongTypeError
    return <bytes>value


# --- Replacing --------------------------------------------------------------------------------------------------------


cpdef int set_string(Database db, bytes key, bytes value, bint keep_expiry=False) except -1:
    """Store a string under a key, whatever it held, and report `set`. An expiry goes, unless `keep_expiry`."""
    db.set_typed(key, value, number_of(value), keep_expiry)
    return db.event(EVENT_STRING, b"set", key)


cpdef int change_string(Database db, bytes key, bytes value, bytes event, int hint=HINT_BY_VALUE) except -1:
    """Store what has become of the string under a key, which keeps its expiry; a missing key is added.

    event  the event to report
    hint   ENCODING_*: how the string was made
    """
    cdef KeyRecord *record = db.lookup(key)
    if record is NULL:
        record = db.add_typed(key, value, number_of(value))
    else:
        db.overwrite(record, key, value, number_of(value))
    record.hint = <unsigned char>hint
    return db.event(EVENT_STRING, event, key)


# --- In place ---------------------------------------------------------------------------------------------------------


cpdef int append_string(Database db, bytes key, bytes more) except -1:
    """Add to the end of the string under a key, and report the event `append`; KeyError when there is none.

    A string without other references grows in place: appending a little to a long one is cheap.
    """
    cdef KeyRecord *record = db.lookup(key)
    cdef Py_ssize_t length
    if more is None:
        raise TypeError("a string is bytes, not None")
    if record is NULL or type(value_of(record)) is not bytes:
        raise KeyError(key)
    if record.held.ob_refcnt > 1:
        return change_string(db, key, <bytes>record.held + more, b"append", HINT_RAW)
    length = PyBytes_GET_SIZE(<object>record.held)
    memcpy(lengthen(db, record, length + PyBytes_GET_SIZE(more)) + length, PyBytes_AS_STRING(more),
           <size_t>PyBytes_GET_SIZE(more))
    return string_written(db, record, b"append")


cdef KeyRecord *open_string(Database db, bytes key, Py_ssize_t length) except NULL:
    """The record of a string that is to be written in place, with zeros up to `length`. A missing key is added.

    `written_bytes` returns its bytes. The caller must hold no reference to the string, and ends with `string_written`.
    """
    cdef KeyRecord *record = db.lookup(key)
    cdef Py_ssize_t old_length
    cdef bytes fresh
    if record is NULL:
        return db.add_typed(key, bytes(length), number_of(b""))
    old_length = PyBytes_GET_SIZE(<object>record.held)
    if record.held.ob_refcnt > 1 or length > 2 * old_length:
        # `bytes` has zeros of the system, which take no time and no memory until they are used.
        fresh = bytes(max(length, old_length))
        memcpy(PyBytes_AS_STRING(fresh), PyBytes_AS_STRING(<object>record.held), <size_t>old_length)
        db.weigh(record, -1)
        put_value(record, fresh, record.type_number)
        db.weigh(record, 1)
    elif length > old_length:
        memset(lengthen(db, record, length) + old_length, 0, <size_t>(length - old_length))
    return record


cdef char *written_bytes(KeyRecord *record) noexcept:
    """The bytes of a string from `open_string`; valid until the database is used again."""
    return writable(record.held)


cdef int string_written(Database db, KeyRecord *record, bytes event) except -1:
    """A string was changed in place; reports `event`, or none (None)."""
    cdef bytes key = key_of(record)
    db.overwrite(record, key, <object>record.held, record.type_number)
    record.hint = HINT_RAW
    return 0 if event is None else db.event(EVENT_STRING, event, key)


cdef int mark_raw(Database db, bytes key) except -1:
    """A command that writes in place has left a string as it was: OBJECT ENCODING is `raw` all the same."""
    cdef KeyRecord *record = db.lookup(key)
    if record is not NULL:
        record.hint = HINT_RAW
    return 0


cdef char *lengthen(Database db, KeyRecord *record, Py_ssize_t length) except NULL:
    """Make a string longer that has no other references; returns its bytes, of which the new ones are not set."""
    cdef PyObject *grown
    db.weigh(record, -1)
    grown = resize(record.held, length)
    if grown is not NULL:
        record.held = grown
    db.weigh(record, 1)
    if grown is NULL:
        raise MemoryError("no memory for a longer string")
    return writable(record.held)
