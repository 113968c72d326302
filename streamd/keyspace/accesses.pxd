# cython: language_level=3
"""How often and when keys are accessed. See accesses.pyx."""

from streamd.keyspace.deadlines cimport Deadlines
from streamd.keyspace.key_record cimport KeyRecord


cdef class Accesses(Deadlines):
    cdef public long long now_ms          # the clock for expiry; set by the caller before each command
    cdef public int access_mode           # AccessMode
    cdef public int log_factor            # the greater, the more accesses it takes for `uses` to grow (lfu-log-factor)
    cdef public int decay_minutes         # in how many minutes without access `uses` falls by one; 0: never
    cdef unsigned long long dice          # state of a generator of random numbers, never 0

    cdef unsigned long long roll(self) noexcept
    cdef int decayed_uses(self, KeyRecord *record) noexcept
    cdef void note_use(self, KeyRecord *record) noexcept
