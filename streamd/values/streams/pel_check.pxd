# cython: language_level=3
"""The invariants of a PEL. See pel_check.pyx."""

from streamd.values.streams.pel cimport Pel


cdef int pel_check(const Pel *pel) except -1
