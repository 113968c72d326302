# cython: language_level=3
"""The clocks of the system: monotonic for durations and waits, wall for Unix time. See ClientHost.unix_ms."""

from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec


cdef inline long long monotonic_us() noexcept nogil:
    """Microseconds since an arbitrary moment in the past; never goes backwards."""
    cdef timespec t
    clock_gettime(CLOCK_MONOTONIC, &t)
    return <long long>t.tv_sec * 1000000 + t.tv_nsec // 1000


cdef inline long long wall_us() noexcept nogil:
    """Unix time in microseconds."""
    cdef timespec t
    clock_gettime(CLOCK_REALTIME, &t)
    return <long long>t.tv_sec * 1000000 + t.tv_nsec // 1000
