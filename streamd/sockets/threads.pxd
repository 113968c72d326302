# cython: language_level=3
"""Connections on threads, as the loop sees them. See threads.pyx."""

from streamd.core.client cimport Client, Sender
from streamd.sockets.io_thread cimport Collected, IoThread, Line, Outward
from streamd.sockets.plain cimport SocketTransport
from streamd.sockets.poller cimport Crew, Poller, Watched
from streamd.sockets.ring cimport Record


cdef class Bell(Watched):
    pass


cdef class IoThreads(Crew):
    cdef Poller poller
    cdef IoThread *threads              # owned
    cdef int count
    cdef int pid                        # of the process that has them
    cdef int running                    # how many of them have been started
    cdef Py_ssize_t *sizes              # connections of each; owned
    cdef set transports                 # ThreadTransport: those of which GONE has not come
    cdef Bell bell

    cdef void stop(self) noexcept
    cdef int find_least(self) noexcept


cdef class ThreadTransport(Sender):
    cdef IoThreads threads
    cdef IoThread *thread
    cdef Line *line                     # owned from GONE on; NULL after that
    cdef Client client                  # None after the connection is lost
    cdef object sock
    cdef object error                   # with which it has ended
    cdef SocketTransport home           # its successor; None: it is on its thread
    cdef long long posted               # bytes handed to the thread
    cdef bint is_full                   # the client is congested until ALL_SENT
    cdef bint is_paused
    cdef bint is_at_end                 # the peer sends no more
    cdef bint is_ending                 # it closes once everything is sent
    cdef bint is_lost                   # the client has been, or will be, told that the connection is lost

    cdef int tell(self, Outward kind, const char *data, size_t size) except -1
    cdef long long unsent(self) noexcept
    cdef int wait_until_sent(self) except -1
    cdef int take(self, Record *record) except -1
    cdef int take_argument(self, Collected *argument, bint is_open) except -1
    cdef int follow_argument(self, Collected *argument) except -1
    cdef int follow_end(self) except -1
    cdef int end(self, object error) except -1
    cdef int lose(self) except -1
    cdef void free_line(self) noexcept
