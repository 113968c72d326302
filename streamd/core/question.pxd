# cython: language_level=3
"""What a waiting client asks of the values of its keys. See question.pyx."""

cimport cython


@cython.no_gc
cdef class Question:
    cdef readonly type value_class
    cdef readonly object line
    cdef readonly bint passes

    cdef bint is_met(self, object value, bint is_first) except -1
    cdef bint lets_pass(self, object value) except -1
