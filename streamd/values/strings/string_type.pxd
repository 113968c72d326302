# cython: language_level=3
"""Strings as a type of value. See string_type.pyx."""

from streamd.keyspace.value_type cimport ValueType


# What OBJECT ENCODING says of a string depends on how it was made, not only on what it is:
cdef enum:
    HINT_BY_VALUE = 0   # SET and its like: int when it reads as one, else by length
    HINT_BY_LENGTH = 1  # INCRBYFLOAT: embstr or raw, by length
    HINT_RAW = 2        # APPEND, SETRANGE: raw however short; and it stays so under another name


cdef class StringType(ValueType):
    pass
