# cython: language_level=3
"""The settings of hashes, for compiled handlers. See hash_limits.pyx."""

cimport cython

from streamd.core.capability cimport Capability


@cython.final
cdef class HashLimits(Capability):
    cdef object host
    cdef readonly unsigned long long max_fields     # of a hash that stays one listpack
    cdef readonly unsigned long long max_bytes      # of its longest field or value


cdef HashLimits limits_in(object context)           # of the server with this context; None: those that are built in
