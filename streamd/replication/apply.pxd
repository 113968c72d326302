# cython: language_level=3
"""The replication stream of a primary, and what runs it. See apply.pyx."""

from streamd.core.client cimport Client
from streamd.core.dispatch cimport Dispatcher, ServerContext
from streamd.core.route cimport Route
from streamd.protocol.reply cimport ReplyWriter


cdef class PrimaryClient(Client):
    cdef Dispatcher dispatcher
    cdef ServerContext context
    cdef object follower                # StreamFollower
    cdef ReplyWriter unsent             # replies of commands; never sent
    cdef list queued                    # requests since MULTI, each with its route; None: outside a transaction
    cdef Route multi, exec, discard, replconf
    cdef object pieces                  # deque of received bytes that have not been passed on,
    cdef Py_ssize_t taken               # ... but for so many of the first one
    cdef long long fed                  # bytes given to the parser
    cdef long long executed             # ... those of complete commands that have been executed
    cdef long long passed               # ... those that have been passed on or dropped
    cdef bint has_files                 # effects have a receiver in this server
    cdef bint is_put_off_here           # the rest of what was received is run in the next turn
    cdef long long share_turn           # the turn of the loop whose share the stream is using; -1: none yet
    cdef long long share_ends_us        # monotonic: when that share is used up
    cdef bint is_stopped                # nothing is run any more

    cdef int work(self) except -1
    cdef int work_on(self) except -1
    cdef int enter(self) except -1
    cdef int leave(self) except -1
    cdef int apply(self, list args) except -1
    cdef int apply_group(self) except -1
    cdef int call(self, Route route, list args) except -1
    cdef int note_error(self, Route route, list args, error) except -1
    cdef int finish_unit(self) except -1
    cdef int pass_on(self) except -1
    cdef bytes take(self, Py_ssize_t count)
