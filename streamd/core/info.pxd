# cython: language_level=3
"""Numbers of INFO that compiled capabilities read. See info.pyx."""

from libc.stdint cimport int64_t

cdef extern from "<stdint.h>":
    const int64_t HIDDEN "INT64_MIN"    # as a number: its line is not shown

ctypedef int (*ReadNumbers)(object capability, int64_t *to) except -1


cdef class Part:
    cdef readonly tuple names
    cdef tuple forms
    cdef readonly object read
    cdef object fixed


cdef Part numbers(str names, ReadNumbers read)
cdef int64_t hundredths(double value) noexcept nogil
