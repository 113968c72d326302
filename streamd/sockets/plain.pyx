# cython: language_level=3, boundscheck=False, wraparound=False
"""SocketTransport and SocketListener: plain connections, TCP and Unix, on a `Poller`.

A transport has the interface of `asyncio.Transport` as far as `Client` and the capabilities use it. Received bytes go
directly to the client's parser, from memory that all connections of the server share. Replies do not come through here:
the client sends them itself, and hands over a rest only when the kernel takes no more (`write`); from then on the
transport asks for WRITABLE, until all of it is sent.
"""

from libc.errno cimport EAGAIN, EINTR, errno
from posix.uio cimport iovec, readv

import errno as errors
import logging
import os
import socket

from streamd.core.client cimport Client
from streamd.sockets.poller cimport BROKEN, INPUT_SIZE, READABLE, WRITABLE, Poller

__all__ = ["SocketListener", "SocketTransport"]

log = logging.getLogger("streamd")

cdef extern from "<sys/socket.h>" nogil:
    ssize_t c_recv "recv"(int fd, void *data, size_t size, int flags)
    ssize_t c_send "send"(int fd, const void *data, size_t size, int flags)

cdef enum:
    MOST_ACCEPTED = 64          # connections per turn and listener
    ACCEPT_PAUSE_S = 1          # how long nothing is accepted when descriptors or memory are exhausted

cdef int SEND_FLAGS = getattr(socket, "MSG_NOSIGNAL", 0)

EXHAUSTED = (errors.EMFILE, errors.ENFILE, errors.ENOBUFS, errors.ENOMEM)


cdef class SocketTransport(Watched):
    """The transport of one accepted connection; `start` begins to read."""

    def __cinit__(self, Poller poller not None, Client client not None, object sock):
        self.poller = poller
        self.client = client
        self.sock = sock
        self.fd = sock.fileno()

    def start(self):
        """Announce the connection to its client, which may close it at once."""
        self.client.connection_made(self)
        self.follow_reading()

    # --- Events ------------------------------------------------------------------------------------------------------

    cdef int happened(self, int events) except -1:
        if events & WRITABLE and self.unsent is not None:
            self.send_unsent()
        if self.is_lost:
            return 0
        if not (self.is_paused or self.is_early or self.is_at_end or self.is_ending):
            if events & (READABLE | BROKEN):
                self.receive()
        elif events & BROKEN:
            self.end(OSError(errors.ECONNRESET, os.strerror(errors.ECONNRESET)))
        elif events & READABLE:
            self.watch(self.wanted & ~READABLE)     # until it is wanted again
        return 0

    cdef int receive(self) except -1:
        cdef char *place
        cdef ssize_t size, room = self.client.parser.place(&place)
        if room:
            size = self.receive_long(place, room)
        else:
            size = c_recv(self.fd, self.poller.input, INPUT_SIZE, 0)
            if size > 0:
                self.client.received(self.poller.input, size, None)
        if size > 0:
            return 0
        if size == 0:
            self.is_at_end = True
            self.watch(self.wanted & ~READABLE)
            if not self.client.eof_received():
                self.close()
        elif errno != EAGAIN and errno != EINTR:
            self.end(OSError(errno, os.strerror(errno)))
        return 0

    cdef ssize_t receive_long(self, char *place, ssize_t room) except -2:
        """Receive more of a long argument in its place, and what comes behind it. Returns as recv."""
        cdef iovec[2] parts
        cdef ssize_t size
        parts[0].iov_base, parts[0].iov_len = place, <size_t>room
        parts[1].iov_base, parts[1].iov_len = self.poller.input, INPUT_SIZE
        size = readv(self.fd, parts, 2)
        if size > 0:
            self.client.received_in_place(min(size, room), self.poller.input, max(0, size - room))
        return size

    cdef int send_unsent(self) except -1:
        cdef ssize_t sent = c_send(self.fd, <char *>self.unsent, <size_t>len(self.unsent), SEND_FLAGS)
        if sent < 0:
            if errno != EAGAIN and errno != EINTR:
                self.end(OSError(errno, os.strerror(errno)))
        elif sent < len(self.unsent):
            del self.unsent[:sent]
        else:
            self.unsent = None
            self.watch(self.wanted & ~WRITABLE)
            if self.is_ending:
                self.end(None)
            else:
                self.client.resume_writing()
        return 0

    cdef int failed(self, object error) except -1:
        self.poller.loop.call_exception_handler({
            "message": "Fatal error: handling the events of a connection failed.",
            "exception": error, "transport": self, "protocol": self.client,
        })
        return self.end(error)

    cdef int follow_reading(self) except -1:
        """Ask for input, if it is wanted."""
        if not (self.is_paused or self.is_early or self.is_at_end or self.is_ending):
            self.watch(max(self.wanted, 0) | READABLE)
        return 0

    cdef int end(self, object error) except -1:
        """The connection is over; the client hears of it in the next turn, as of a transport of the loop."""
        if not self.is_lost:
            self.is_lost = self.is_ending = True
            self.unsent = None
            self.leave()
            self.poller.loop.call_soon(self._lose, error)
        return 0

    def _lose(self, error):
        try:
            self.client.connection_lost(error)
        finally:
            self.sock.close()
            self.client = self.sock = None
            self.fd = -1
            self.poller.close_if_empty()

    # --- As asyncio.Transport ----------------------------------------------------------------------------------------

    def get_extra_info(self, str name not None, default=None):
        """`socket`, `peername` or `sockname`."""
        if self.sock is None:
            return default
        if name == "socket":
            return self.sock
        try:
            if name == "peername":
                return self.sock.getpeername()
            if name == "sockname":
                return self.sock.getsockname()
        except OSError:     # the peer has gone
            pass
        return default

    def set_write_buffer_limits(self, high=None, low=None):
        """The client's writing always pauses as soon as anything is unsent, until nothing is."""

    def get_write_buffer_size(self):
        return 0 if self.unsent is None else len(self.unsent)

    def write(self, data):
        cdef ssize_t sent = 0
        cdef bytes piece
        if self.is_lost or not data:
            return
        if self.unsent is not None:
            self.unsent += data
            return
        piece = bytes(data)
        sent = c_send(self.fd, <const char *>piece, <size_t>len(piece), SEND_FLAGS)
        if sent < 0:
            if errno != EAGAIN and errno != EINTR:
                self.end(OSError(errno, os.strerror(errno)))
                return
            sent = 0
        if sent < len(piece):
            self.unsent = bytearray(piece[sent:])
            self.watch(max(self.wanted, 0) | WRITABLE)
            self.client.pause_writing()

    def pause_reading(self):
        self.is_paused = True

    def resume_reading(self):
        self.is_paused = False
        self.follow_reading()

    def is_closing(self):
        return self.is_ending

    def close(self):
        """Send what is unsent, then close."""
        if self.is_ending:
            return
        self.is_ending = True
        if self.unsent is None:
            self.end(None)
        elif self.wanted & READABLE:
            self.watch(self.wanted & ~READABLE)

    def abort(self):
        """Close at once."""
        self.end(None)


cdef class SocketListener(Watched):
    """Accepts the connections of a non-blocking listening socket; `make_client` creates the client of each."""

    def __cinit__(self, Poller poller not None, object sock, object make_client):
        self.poller = poller
        self.sock = sock
        self.make_client = make_client
        self.is_tcp = sock.family != getattr(socket, "AF_UNIX", None)
        self.fd = sock.fileno()
        self.watch(READABLE)

    def close(self):
        """Stop listening; accepted connections stay open."""
        if self.sock is not None:
            self.leave()
            self.sock.close()
            self.sock = None
            self.poller.close_if_empty()

    cdef int happened(self, int events) except -1:
        cdef int _
        for _ in range(MOST_ACCEPTED):
            if self.sock is None:   # closed by a client that has just connected
                return 0
            try:
                sock = self.sock.accept()[0]
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return 0
            except OSError as error:
                if error.errno not in EXHAUSTED:
                    raise
                self.watch(0)
                self.poller.loop.call_later(ACCEPT_PAUSE_S, self._go_on)
                log.warning("Accepting client connection: accept: %s", error.strerror)
                return 0
            self.welcome(sock)
        return 0

    cdef int welcome(self, object sock) except -1:
        try:
            sock.setblocking(False)
            if self.is_tcp:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.poller.crew is not None:
                self.poller.crew.adopt(self.make_client(), sock)
            else:
                SocketTransport(self.poller, self.make_client(), sock).start()
        except OSError:     # the peer has gone already
            sock.close()
        return 0

    cdef int failed(self, object error) except -1:
        self.poller.loop.call_exception_handler({"message": "Accepting a connection failed.", "exception": error})
        return 0

    def _go_on(self):
        if self.sock is not None:
            self.watch(READABLE)
