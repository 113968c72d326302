# cython: language_level=3
"""The settings of lists. See list_limits.pyx."""

cimport cython

from streamd.core.capability cimport Capability
from streamd.core.context cimport Context


@cython.final
cdef class ListLimits(Capability):
    cdef object config
    cdef readonly int fill          # list-max-listpack-size

cdef int fill_of(Context ctx) except? 0
