# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Histogram: the durations of one command, counted in buckets that grow with the value.

Values are nanoseconds from 1 to 1,000,000,000; values outside are clamped. A bucket is at most 1/128 of its value
wide, so two significant digits are kept:

    page     range in ns            bucket width
    0        0 .. 127               1 ns
    1        128 .. 255             1 ns
    2        256 .. 511             2 ns
    p        128 << (p-1) ..        1 << (p-1) ns
    23       2**29 .. 2**30 - 1     4.2 ms

A page has 128 counters, 1 KiB, and is allocated when the first value falls into it; the durations of a command spread
over three to six pages. The buckets, and so the percentiles of INFO latencystats and the bounds of LATENCY HISTOGRAM,
are those of Redis's histograms.

Invariant: `count` is the sum of all counters. The dispatcher records each command; INFO and LATENCY read the result.
"""

cimport cython
from libc.stdint cimport uint64_t

from streamd.heap cimport calloc, free

__all__ = ["BOUNDS_US", "Histogram"]

cdef enum:
    FIRST_BOUND = 1024        # ns: the first bound of `cumulative`; each following bound is doubled
    BOUNDS = 20


cdef inline uint64_t lowest_of(int page, int at) noexcept nogil:
    """The smallest value of a bucket, ns."""
    return <uint64_t>at if page == 0 else <uint64_t>(PAGE + at) << (page - 1)


cdef inline uint64_t highest_of(int page, int at) noexcept nogil:
    """The largest value of a bucket, ns."""
    return lowest_of(page, at) if page == 0 else lowest_of(page, at) + (<uint64_t>1 << (page - 1)) - 1


cdef inline uint64_t highest_beside(uint64_t ns) noexcept nogil:
    """The largest value that falls into the same bucket as `ns`."""
    cdef int page = page_of(ns)
    return ns if page == 0 else ns | ((<uint64_t>1 << (page - 1)) - 1)


cdef inline uint64_t bound_of(int level) noexcept nogil:
    """A bound of `cumulative` in ns; beyond the last one there is one more page, counted to its end."""
    return highest_beside(<uint64_t>FIRST_BOUND << level) if level < BOUNDS else (1 << 30) - 1


BOUNDS_US = [bound_of(level) // 1000 for level in range(BOUNDS + 1)]
"""All bounds of `cumulative`, whole microseconds."""


@cython.final
cdef class Histogram:
    def __dealloc__(self):
        for page in range(PAGES):
            free(self.pages[page])

    cdef int add_page(self, int page) except -1:
        """Allocate a page."""
        self.pages[page] = <uint64_t *>calloc(PAGE, sizeof(uint64_t))
        if self.pages[page] is NULL:
            raise MemoryError
        return 0

    def add(self, long long us):
        """Count one duration, in microseconds."""
        self.record(us)

    cdef uint64_t value_at(self, double percentile) noexcept nogil:
        """The value in ns that this percentage (0 to 100) of all values does not exceed; 0 if there are none."""
        cdef uint64_t wanted = <uint64_t>(percentile / 100 * <double>self.count + 0.5)
        cdef uint64_t seen = 0
        cdef int page, at
        if wanted == 0:
            wanted = 1
        for page in range(PAGES):
            if self.pages[page] is NULL:
                continue
            for at in range(PAGE):
                seen += self.pages[page][at]
                if seen >= wanted:
                    return lowest_of(page, at) if percentile == 0 else highest_of(page, at)
        return 0

    def percentile_us(self, double percentile):
        """A percentile (0 to 100) in microseconds with three decimals; 0 if nothing was recorded."""
        return self.value_at(percentile) / 1000.0

    def cumulative(self):
        """Cumulative counts at doubling bounds: a list of (bound in whole microseconds, number of values up to it).

        A bound with the same count as the previous one is left out. O(pages in use).
        """
        cdef uint64_t seen = 0, reported = 0, bound, top = bound_of(0)
        cdef int page, at, level = 0
        cdef list found = []
        for page in range(PAGES):
            if self.pages[page] is NULL:
                continue
            for at in range(PAGE):
                if not self.pages[page][at]:
                    continue
                bound = lowest_of(page, at)
                if bound > top:
                    if seen > reported:
                        found.append((top // 1000, seen))
                        reported = seen
                    while bound > top:
                        level += 1
                        top = bound_of(level)
                seen += self.pages[page][at]
        if seen > reported:
            found.append((top // 1000, seen))
        return found

    @property
    def memory(self):
        """Bytes of the counters."""
        cdef int page
        cdef size_t total = 0
        for page in range(PAGES):
            if self.pages[page] is not NULL:
                total += PAGE * sizeof(uint64_t)
        return total

    def check_invariants(self):
        """Raise AssertionError unless the counters add up to `count`."""
        cdef uint64_t total = 0
        cdef int page, at
        for page in range(PAGES):
            if self.pages[page] is not NULL:
                for at in range(PAGE):
                    total += self.pages[page][at]
                assert page != 0 or self.pages[0][0] == 0, "a duration of zero is counted as 1 ns"
        assert total == self.count, (total, self.count)
