# cython: language_level=3
"""What reads the values of one type from an RDB stream. See value_loader.pyx."""

from streamd.keyspace.value_type cimport ValueType
from streamd.persistence.rdb.window cimport Window


cdef class ValueLoader:
    cdef readonly ValueType type
    cdef readonly Window window
    cdef public object value                  # the last one read
    cdef public bint is_strict                # refuse what Redis refuses of payloads, and loads from files

    cpdef object begin(self, int rdb_type)
