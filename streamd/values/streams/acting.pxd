# cython: language_level=3
"""Whether the server may change data by itself. See acting.pyx."""

cdef bint is_held(object host) except -1
