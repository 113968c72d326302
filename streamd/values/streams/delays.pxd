# cython: language_level=3
"""Entries that move to another stream when they are due, and those that expire. See delays.pyx."""

cimport cython
from libc.stdint cimport int64_t, uint64_t

from streamd.core.context cimport Context
from streamd.values.streams.due_index cimport DueIndex
from streamd.values.streams.node cimport StreamCursor
from streamd.values.streams.stream cimport Stream


@cython.final
cdef class Delays:
    cdef bytes key                         # of the stream
    cdef readonly bytes target             # where entries move to; empty: they do not
    cdef readonly DueIndex waiting         # when they move; None: they do not
    cdef bint replaces                     # an entry replaces the waiting one that has the same value of a field
    cdef DueIndex expiring                 # when they expire; None: they do not
    cdef uint64_t unreadable               # entries whose time is not a number, as last shown
    cdef int64_t retry_ms                  # Unix time before which nothing is moved, since that was impossible

    cpdef bint follow(self, Context ctx, Stream stream, long long until_us, bint may_act) except -1
    cdef int replace(self, Context ctx, Stream stream, list request, long long until_us) except -1
    cdef int delete_superseded(self, Context ctx, Stream stream) except -1
    cdef bint expire(self, Context ctx, Stream stream, long long until_us) except -1
    cdef bint move_due(self, Context ctx, Stream stream, long long until_us) except -1
    cdef int note_unreadable(self, Context ctx) except -1
    cdef int require_same_slot(self, Context ctx) except -1
    cdef list words_of(self, StreamCursor *cursor)
    cdef int note_deleted(self, Context ctx, list effect, Py_ssize_t count) except -1
    cdef int forget(self) except -1
    cdef int64_t next_ms(self) noexcept
