# cython: language_level=3
"""When entries of a stream are due. See due_index.pyx."""

cimport cython
from libc.stdint cimport int64_t, uint64_t

from streamd.engine.ids cimport StreamID
from streamd.engine.listpack cimport LpValue
from streamd.values.streams.node cimport StreamCursor
from streamd.values.streams.stream cimport Stream


cdef struct Due:
    int64_t at_ms          # Unix time
    StreamID id


cdef enum Timing:
    IS_TIMED               # the entry has a time
    IS_TIMELESS            # ... and has none
    IS_UNREADABLE          # ... that is not a number


@cython.final
cdef class DueIndex:
    cdef readonly bytes field              # of an entry, with its time
    cdef readonly bytes unique             # of an entry: only the last one with a value counts; empty: all count
    cdef bint always                       # an entry without the field is due at once; otherwise it never is
    cdef Due *heap                         # owned
    cdef readonly size_t count
    cdef size_t room                       # of the heap
    cdef Stream stream                     # that the index is of; None: it has to be built
    cdef StreamID seen                     # entries up to here are in the index
    cdef bytes value                       # of `unique`, in the entry that was looked at; None: it has none
    cdef readonly dict latest              # by value of `unique`: the ID of the last entry, (ms, seq)
    cdef list superseded                   # IDs, (ms, seq), of entries before those, which have still to be deleted
    cdef readonly uint64_t unreadable      # entries whose time is not a number; they are never due
    cdef uint64_t timeless                 # entries that are never due because they have no time

    cdef int clear(self) except -1
    cdef bint catch_up(self, Stream stream, long long until_us) except -1     # False: there is more
    cdef int read(self, StreamCursor *cursor) except -1
    cdef Timing look(self, StreamCursor *cursor, int64_t *at_ms) except *
    cdef bint find_due(self, int64_t now_ms, StreamCursor *cursor, bint *is_superseded) except -1
    cdef bint is_replaced(self, StreamID id) except -1
    cdef bint is_latest(self, StreamID id) except -1
    cdef int take(self) except -1
    cdef int push(self, Due due) except -1
    cdef int pop(self) except -1
    cdef int64_t first_ms(self) noexcept nogil


cdef bytes bytes_of(const LpValue *value)
