# cython: language_level=3
"""Strings in a database. See stored.pyx."""

from streamd.keyspace.database cimport Database
from streamd.keyspace.key_record cimport KeyRecord

cpdef bytes find_string(Database db, bytes key)                 # or None; WrongTypeError
cpdef bytes find_string_for_write(Database db, bytes key)       # or None; WrongTypeError

cpdef int set_string(Database db, bytes key, bytes value, bint keep_expiry=*) except -1       # reports `set`
cpdef int change_string(Database db, bytes key, bytes value, bytes event, int hint=*) except -1  # keeps its expiry
cpdef int append_string(Database db, bytes key, bytes more) except -1

# Writing in place: open, write, tell.
cdef KeyRecord *open_string(Database db, bytes key, Py_ssize_t length) except NULL     # so long; adds a missing key
cdef char *written_bytes(KeyRecord *record) noexcept                         # until the database is used again
cdef int string_written(Database db, KeyRecord *record, bytes event) except -1   # reports `event`, if not None
cdef int mark_raw(Database db, bytes key) except -1                         # for one that was opened in vain
