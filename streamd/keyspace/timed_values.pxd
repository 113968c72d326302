# cython: language_level=3
"""Values that have something to do at a time of their own. See timed_values.pyx."""

cimport cython
from cpython.object cimport Py_TYPE, PyObject, PyTypeObject

from streamd.keyspace.key_record cimport block_of, object_size


@cython.no_gc
cdef class TimedValue:
    cdef bytes timed_key                  # the key that it is stored under, while it is due some time
    cdef unsigned int timed_place         # its place in TimedValues, from 1; 0: it has none
    cdef unsigned char form               # what its type keeps here, to fill the gap


cdef inline Py_ssize_t timed_size(TimedValue value) noexcept:
    """Bytes of memory of the objects of a value that is due some time: they are there as long as it is."""
    return block_of((<PyTypeObject *>Py_TYPE(value)).tp_basicsize) + object_size(value.timed_key)


cdef struct Timed:
    long long at_ms                       # Unix time in ms
    PyObject *value                       # TimedValue, borrowed: whoever takes it out of the database drops it here


@cython.final
@cython.no_gc
cdef class TimedValues:
    cdef Timed *heap                      # owned; no parent is later than its child
    cdef Py_ssize_t count
    cdef Py_ssize_t room
    cdef long long counted                # bytes of `timed_size` of all

    cdef int put(self, TimedValue value, bytes key, long long at_ms) except -1   # adds it, or moves it to another time
    cdef void drop(self, TimedValue value) noexcept                              # no effect if it has no place
    cdef void place(self, Py_ssize_t at, Timed timed) noexcept
    cdef void sift_up(self, Py_ssize_t at) noexcept
    cdef void sift_down(self, Py_ssize_t at) noexcept
