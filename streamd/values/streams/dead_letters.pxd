# cython: language_level=3
"""Pending entries that are not delivered again. See dead_letters.pyx."""

from libc.stdint cimport int64_t, uint64_t

from streamd.core.context cimport Context
from streamd.engine.ids cimport StreamID
from streamd.values.streams.group cimport Group
from streamd.values.streams.stream cimport Stream


cdef class DeadLetterBox:
    cdef bytes key                        # of the stream
    cdef Stream stream
    cdef Group group
    cdef readonly bytes dead_letter       # key of the stream that entries are moved to
    cdef readonly uint64_t limit          # the delivery count from which on an entry is not delivered again
    cdef readonly int64_t ack_wait_ms     # 0: never by itself

    cdef bint move(self, Context ctx, StreamID id, bint is_fatal) except -1     # False: it stays pending
    cdef int move_idle(self, Context ctx, int64_t min_idle_ms) except -1
    cdef int store(self, Context ctx, StreamID id, bint is_fatal) except -1
    cdef int describe(self, StreamID id, bint is_fatal, list request) except -1


cdef DeadLetterBox find_box(Context ctx, bytes key, Stream stream, Group group)
