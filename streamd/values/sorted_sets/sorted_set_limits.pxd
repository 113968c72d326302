# cython: language_level=3
"""The settings of sorted sets, for compiled handlers. See sorted_set_limits.pyx."""

cimport cython

from streamd.core.capability cimport Capability


@cython.final
cdef class SortedSetLimits(Capability):
    cdef object host
    cdef readonly unsigned long long max_members    # of a sorted set that stays one listpack
    cdef readonly unsigned long long max_bytes      # of its longest member


cdef SortedSetLimits limits_in(object context)      # of the server with this context; None: those that are built in
