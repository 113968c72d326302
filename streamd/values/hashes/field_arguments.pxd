# cython: language_level=3
"""The arguments of the commands that expire fields. See field_arguments.pyx."""

from libc.stdint cimport int64_t


cdef enum FieldCondition:
    IF_ANY
    IF_MISSING                 # NX: the field has no expiry; FNX: it does not exist
    IF_PRESENT                 # XX: it has one; FXX: it exists
    IF_GREATER                 # GT: the new expiry is later
    IF_LESS                    # LT: it is sooner


cdef struct FieldOptions:
    Py_ssize_t first           # index of the first field
    Py_ssize_t count           # fields
    Py_ssize_t step            # from one field to the next: 2 if each has a value
    FieldCondition condition
    int64_t at_ms              # the expiry, Unix time in ms; NEVER: none
    Py_ssize_t time_at         # index of the time; 0: there is none
    bint keeps                 # the expiry of the fields stays


cdef int parse_plain(list args, FieldOptions *out) except -1
cdef int parse_hexpire(list args, long long base_ms, int scale, str command_name, FieldOptions *out) except -1
cdef int parse_hgetex(list args, long long now_ms, FieldOptions *out) except -1
cdef int parse_hsetex(list args, long long now_ms, FieldOptions *out) except -1
