# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""INFO's figures about the last seconds: rates and maxima. Sampled `hz` times a second by the cron.

Compiled for the sake of latency: when the cron runs, its code is not in the processor's caches, and as Python it
took several times as long as in a tight loop.
"""

cimport cython
from libc.math cimport floor

__all__ = ["Rate", "RecentMost"]


@cython.final
cdef class RecentMost:
    """The greatest of the values of the last SECONDS seconds."""

    def __cinit__(self):
        for place in range(SECONDS):
            self.second[place] = -1
        self.last = -1

    cpdef void sample(self, double now, long long value) noexcept:
        """`now`: monotonic, in seconds."""
        cdef long long second = <long long>floor(now)
        cdef int place = <int>(second % SECONDS)
        if self.second[place] != second or value > self.value[place]:
            self.second[place] = second
            self.value[place] = value
        self.last = second

    cpdef long long most(self) noexcept:
        """0 when there were none."""
        cdef long long found = 0
        cdef int place
        for place in range(SECONDS):
            if self.second[place] >= 0 and self.second[place] > self.last - SECONDS and self.value[place] > found:
                found = self.value[place]
        return found


@cython.final
cdef class Rate:
    """A counter's change per second, averaged over the last sixteen steps between samples."""

    cpdef void sample(self, double now, long long value) noexcept:
        """`now`: monotonic, in seconds."""
        self.time[self.next] = now
        self.value[self.next] = value
        self.next = (self.next + 1) % SAMPLES
        if self.count < SAMPLES:
            self.count += 1

    cpdef double per_second(self) noexcept:
        """0.0 when there are no two samples, or the counter went back."""
        if self.count < 2:
            return 0.0
        cdef int newest = (self.next + SAMPLES - 1) % SAMPLES
        cdef int oldest = (self.next + SAMPLES - self.count) % SAMPLES
        cdef double seconds = self.time[newest] - self.time[oldest]
        cdef double change = <double>(self.value[newest] - self.value[oldest])
        return change / seconds if seconds > 0 and change > 0 else 0.0
