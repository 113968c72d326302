# cython: language_level=3
"""When keys expire. See deadlines.pyx."""

cimport cython
from cpython.object cimport PyObject

from streamd.keyspace.key_record cimport KeyRecord


cdef struct Deadline:
    long long at_ms
    PyObject *record                          # borrowed: the dense list owns it


cdef class Deadlines:
    cdef Deadline *deadlines              # binary heap, earliest first; owned
    cdef Py_ssize_t deadline_count
    cdef Py_ssize_t deadline_room         # allocated, in elements
    cdef object deadline_sum              # int: sum of all deadlines, for the average

    cdef int set_deadline(self, KeyRecord record, long long at_ms) except -1
    cdef void drop_deadline(self, KeyRecord record) noexcept
    cdef void sift_up(self, Py_ssize_t at) noexcept
    cdef void sift_down(self, Py_ssize_t at) noexcept
    cdef object take_deadlines(self)


@cython.final
@cython.no_gc
cdef class Block:
    cdef void *data    # owned
    cdef size_t size   # bytes
