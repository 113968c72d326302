# cython: language_level=3
"""INFO's figures about the last seconds. See rates.pyx."""

cimport cython

cdef enum:
    SECONDS = 8             # that RecentMost covers
    SAMPLES = 17            # of Rate: the last sixteen steps


@cython.final
cdef class RecentMost:
    cdef long long second[SECONDS]   # by second modulo SECONDS: which second the slot is for; -1: none yet
    cdef long long value[SECONDS]    # ... and the greatest value of it
    cdef long long last              # the second of the last sample

    cpdef void sample(self, double now, long long value) noexcept
    cpdef long long most(self) noexcept


@cython.final
cdef class Rate:
    cdef double time[SAMPLES]        # a ring
    cdef long long value[SAMPLES]
    cdef int count                   # samples in the ring
    cdef int next                    # the place of the next one

    cpdef void sample(self, double now, long long value) noexcept
    cpdef double per_second(self) noexcept
