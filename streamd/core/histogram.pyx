# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Histogram: the durations of one command, counted in buckets that grow with the value.

Values are nanoseconds from 1 to 1,000,000,000; what lies outside counts as the nearer end. A bucket is at most 1/128 of
its value wide, so that two significant digits are kept:

    page     covers ns              a bucket is
    0        0 .. 127               1 ns
    1        128 .. 255             1 ns
    2        256 .. 511             2 ns
    p        128 << (p-1) ..        1 << (p-1) ns
    23       2**29 .. 2**30 - 1     4.2 ms

A page is 128 counters, 1 KiB, and is allotted when the first value falls into it; durations of a command spread over
three to six. Buckets, and with them the percentiles of INFO latencystats and the bounds of LATENCY HISTOGRAM, are those
of the histograms of Redis.

What must hold: `count` is the sum of all counters. Called by the dispatcher for each command, and read by INFO and
LATENCY.
"""

cimport cython
from libc.stdint cimport uint64_t

from streamd.heap cimport calloc, free

__all__ = ["Histogram"]

cdef enum:
    FIRST_BOUND = 1024        # ns: the first bound of `cumulative`; each next one is twice as far
    BOUNDS = 20


cdef inline uint64_t lowest_of(int page, int at) noexcept nogil:
    """The smallest value of a bucket, ns."""
    return <uint64_t>at if page == 0 else <uint64_t>(PAGE + at) << (page - 1)


cdef inline uint64_t highest_of(int page, int at) noexcept nogil:
    """The greatest value of a bucket, ns."""
    return lowest_of(page, at) if page == 0 else lowest_of(page, at) + (<uint64_t>1 << (page - 1)) - 1


cdef inline uint64_t highest_beside(uint64_t ns) noexcept nogil:
    """The greatest value that falls into the same bucket as `ns`."""
    cdef int page = page_of(ns)
    return ns if page == 0 else ns | ((<uint64_t>1 << (page - 1)) - 1)


@cython.final
cdef class Histogram:
    def __dealloc__(self):
        for page in range(PAGES):
            free(self.pages[page])

    cdef int add_page(self, int page) except -1:
        """Make room for values of a page."""
        self.pages[page] = <uint64_t *>calloc(PAGE, sizeof(uint64_t))
        if self.pages[page] is NULL:
            raise MemoryError
        return 0

    def add(self, long long us):
        """Count one duration, in microseconds."""
        self.record(us)

    cdef uint64_t value_at(self, double percentile) noexcept nogil:
        """The value that this part of all values, 0 to 100, does not exceed, ns; 0 when there are none."""
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
        """A percentile, 0 to 100, in microseconds with three decimals; 0 when nothing was recorded."""
        return self.value_at(percentile) / 1000.0

    def cumulative(self):
        """How many values lie below bounds that double: a list of (bound in whole microseconds, values up to it).

        A bound at which nothing has been added since the one before is left out. O(pages in use).
        """
        cdef uint64_t seen = 0, reported = 0, bound, top = highest_beside(FIRST_BOUND)
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
                        # Beyond the last bound there is one page more, up to its end.
                        top = highest_beside(<uint64_t>FIRST_BOUND << level) if level < BOUNDS else (1 << 30) - 1
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
        """Raise AssertionError unless the counters sum up to `count`."""
        cdef uint64_t total = 0
        cdef int page, at
        for page in range(PAGES):
            if self.pages[page] is not NULL:
                for at in range(PAGE):
                    total += self.pages[page][at]
                assert page != 0 or self.pages[0][0] == 0, "a duration of zero is counted as 1 ns"
        assert total == self.count, (total, self.count)
