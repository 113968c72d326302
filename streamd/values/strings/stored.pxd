# cython: language_level=3
"""Strings in a database. See stored.pyx."""

from streamd.keyspace.database cimport Database

cpdef int set_string(Database db, bytes key, bytes value, bint keep_expiry=*) except -1       # reports `set`
cpdef int change_string(Database db, bytes key, bytes value, bytes event, int hint=*) except -1  # keeps its expiry
cpdef int append_string(Database db, bytes key, bytes more) except -1
