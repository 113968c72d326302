# cython: language_level=3
"""The distribution of a command's durations. See histogram.pyx."""

cimport cython
from libc.stdint cimport uint64_t

cdef extern from *:
    int leading_zeros "__builtin_clzll"(unsigned long long) noexcept nogil

cdef enum:
    PAGE_BITS = 7
    PAGE = 1 << PAGE_BITS     # counters per page
    PAGES = 24                # covers 0 .. 2**30 - 1 ns
    MOST_NS = 1000000000


cdef inline int page_of(uint64_t ns) noexcept nogil:
    return 64 - PAGE_BITS - leading_zeros(ns | (PAGE - 1))


@cython.final
cdef class Histogram:
    cdef uint64_t *pages[PAGES]     # PAGE counters each, owned; NULL while no value falls into it
    cdef readonly uint64_t count    # values recorded

    # Called in the inner loop of the server: costs a few ns.
    cdef inline int record(self, long long us) except -1:
        """Count one duration, in microseconds."""
        cdef uint64_t ns = 1 if us <= 0 else MOST_NS if us >= MOST_NS // 1000 else <uint64_t>us * 1000
        cdef int page = page_of(ns)
        if self.pages[page] is NULL:
            self.add_page(page)
        self.pages[page][(ns if page == 0 else ns >> (page - 1)) & (PAGE - 1)] += 1
        self.count += 1
        return 0

    cdef int add_page(self, int page) except -1
    cdef uint64_t value_at(self, double percentile) noexcept nogil
