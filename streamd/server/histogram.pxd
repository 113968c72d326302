# cython: language_level=3
"""How long a command has taken, as a distribution. See histogram.pyx."""

cimport cython
from libc.stdint cimport uint64_t

cdef enum:
    PAGE_BITS = 7
    PAGE = 1 << PAGE_BITS     # counters of a page
    PAGES = 24                # covers 0 .. 2**30 - 1 ns


@cython.final
cdef class Histogram:
    cdef uint64_t *pages[PAGES]     # each PAGE counters, owned; NULL while nothing has fallen into it
    cdef readonly uint64_t count    # values recorded

    cdef int record(self, long long us) except -1
    cdef uint64_t value_at(self, double percentile) noexcept nogil
