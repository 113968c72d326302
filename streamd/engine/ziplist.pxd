# cython: language_level=3
"""Ziplists, what Redis had before listpacks: only read. See ziplist.pyx."""

from libc.stdint cimport uint8_t

cdef uint8_t *ziplist_unpack(
    const uint8_t *zl, size_t size, size_t *lp_size, const char **wrong, size_t *offset) noexcept nogil
    # A listpack with the same elements, malloc'ed. NULL: what is wrong at `offset`, or no memory (`wrong` is NULL).
