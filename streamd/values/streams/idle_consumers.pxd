# cython: language_level=3
"""Consumers that left. See idle_consumers.pyx."""

from libc.stdint cimport int64_t

from streamd.core.context cimport Context
from streamd.values.streams.ruled_group cimport RuledGroup


cdef int note_waiting(Context ctx, RuledGroup ruled) except -1      # who waits is seen
cdef list idle_consumers(Context ctx, RuledGroup ruled, int64_t since_ms)      # names of those to be removed
cdef bint retire(Context ctx, RuledGroup ruled, bytes name) except -1      # a slice of it; True: there is more
