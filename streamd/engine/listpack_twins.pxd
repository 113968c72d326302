# cython: language_level=3
"""Whether an element of a listpack is there twice. See listpack_twins.pyx."""

from libc.stdint cimport uint8_t, uint64_t


cdef bint lp_has_twins(const uint8_t *lp, unsigned int width) except -1
    # Among the first of each `width` elements of a sound listpack: the fields of a hash, the members of a set.
