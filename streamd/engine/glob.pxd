# cython: language_level=3
"""Glob patterns as used by KEYS, SCAN and PSUBSCRIBE. See glob.pyx."""

cimport cython
from libc.stdint cimport uint64_t


cdef struct LongPart:
    # A part of a pattern that would be long to read again: a set, or a run of stars.
    const char *start            # its first byte
    const char *end              # behind its last one
    uint64_t bits[4]             # of a set: bit c is whether it holds the byte c


@cython.no_gc
cdef class Glob:
    cdef readonly bytes text     # the pattern
    cdef bint nocase             # ignoring ASCII case
    cdef LongPart *parts         # in the order of the pattern; owned
    cdef Py_ssize_t count        # of the parts

    cdef int read_long_parts(self) except -1
    cdef LongPart *find_long(self, const char *start) noexcept nogil
    cdef const char *behind_stars(self, const char *start, const char *end) noexcept nogil
    cdef bint set_has(self, const char **pattern, const char *end, int c) noexcept nogil
    cdef bint matches(self, const char *text, Py_ssize_t text_len) noexcept
