# cython: language_level=3
"""Plain connections and where they come from. See plain.pyx."""

from streamd.core.client cimport Client
from streamd.sockets.poller cimport Watched


cdef class SocketTransport(Watched):
    cdef Client client
    cdef object sock
    cdef bytearray unsent       # what the kernel did not take; None: nothing
    cdef bint is_paused         # nothing is to be read
    cdef bint is_early          # a thread has received what comes first, and the client does not have it yet
    cdef bint is_at_end         # the peer sends no more
    cdef bint is_ending         # it closes once `unsent` is sent
    cdef bint is_lost           # the client has been, or will be, told that the connection is lost

    cdef int receive(self) except -1
    cdef ssize_t receive_long(self, char *place, ssize_t room) except -2
    cdef int send_unsent(self) except -1
    cdef int follow_reading(self) except -1
    cdef int end(self, object error) except -1


cdef class SocketListener(Watched):
    cdef object sock
    cdef object make_client
    cdef bint is_tcp

    cdef int welcome(self, object sock) except -1
