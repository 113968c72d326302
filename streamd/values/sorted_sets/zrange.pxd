# cython: language_level=3
"""Ranges of ranks, for other handlers of sorted sets. See zrange.pyx."""

from libc.stdint cimport int64_t, uint64_t

cdef uint64_t clip_ranks(int64_t start, int64_t stop, uint64_t count, uint64_t *first) noexcept
    # How many ranks there are from start to stop, both included, from the end if negative; and the first of them.
