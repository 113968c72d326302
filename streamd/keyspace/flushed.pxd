# cython: language_level=3
"""What is left of a flushed database. See flushed.pyx."""

cimport cython


@cython.final
@cython.no_gc
cdef class Detached:
    cdef bint by_slot                     # how they are kept, as Database.by_slot
    cdef list shards
    cdef list chunks
    cdef readonly Py_ssize_t count        # records not yet released
