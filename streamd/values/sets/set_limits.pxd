# cython: language_level=3
"""The settings of sets, for compiled handlers. See set_limits.pyx."""

cimport cython

from streamd.core.capability cimport Capability


@cython.final
cdef class SetLimits(Capability):
    cdef object host
    cdef readonly unsigned long long max_integers   # of a set that stays an intset
    cdef readonly unsigned long long max_members    # of a set that stays one listpack
    cdef readonly unsigned long long max_bytes      # of its longest member


cdef SetLimits limits_in(object context)            # of the server with this context; None: those that are built in
