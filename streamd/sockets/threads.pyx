# cython: language_level=3, boundscheck=False, wraparound=False
"""IoThreads and ThreadTransport: connections whose bytes threads receive and send (`io-threads`), from the loop's side.

A ThreadTransport has the interface of a SocketTransport. What it is asked to do becomes records for its thread, and
records from there are calls of its client. docs/architecture.md, "Connections on threads", has the rules.
"""

from libc.errno cimport errno

import os

from streamd.core.client cimport Client
from streamd.heap cimport calloc, free
from streamd.shared_bytes cimport SharedBytes, shared_hold
from streamd.sockets.io_thread cimport (
    ABORT, ALL_SENT, ARGUMENT, ASK, AT_END, CLOSE, COLLECTING, FAILED, GONE, HAND_OVER, INPUT, LEAVE, OUTPUT, PAUSE,
    READ_ON, SHARED, Collected, IoThread, Line, Outward, SharedPart, bytes_of, drop_argument, finish_argument,
    io_thread_add, io_thread_close, io_thread_open, io_thread_start, io_thread_stop, open_bell, post, quiet_bell,
    threads_are_supported,
)
from streamd.sockets.plain cimport SocketTransport
from streamd.sockets.poller cimport READABLE, WRITABLE, Crew, Poller, Watched
from streamd.sockets.ring cimport (
    Record, ring_doze, ring_end, ring_is_before, ring_next, ring_publish, ring_release, ring_rouse, ring_wake,
    sched_yield, streamd_load,
)

__all__ = ["IoThreads", "ThreadTransport"]

cdef enum:
    MOST_UNSENT = 65536         # bytes of a connection that its thread may hold
    MOST_OUTPUT = 32768         # bytes of a record

cdef extern from "<unistd.h>" nogil:
    int c_close "close"(int fd)
    int getpid()


cdef class Bell(Watched):
    """Wakes a loop that waits."""

    def __cinit__(self, Poller poller not None):
        self.poller = poller
        self.fd = open_bell()
        if self.fd < 0:
            raise OSError(errno, os.strerror(errno))
        self.watch(READABLE)

    def __dealloc__(self):
        if self.fd >= 0:
            c_close(self.fd)

    cdef int happened(self, int events) except -1:
        quiet_bell(self.fd)
        return 0

    cdef int failed(self, object error) except -1:
        raise error


cdef class IoThreads(Crew):
    """`count` threads for the connections of a poller, which run from now on.

    Raises NotImplementedError where the system cannot do it, OSError without descriptors or threads.
    """

    def __cinit__(self, Poller poller not None, int count):
        cdef int i, failed = 0
        if not threads_are_supported():
            raise NotImplementedError("no epoll")
        self.poller = poller
        self.pid = getpid()
        self.transports = set()
        self.bell = Bell(poller)
        self.threads = <IoThread *>calloc(<size_t>count, sizeof(IoThread))
        self.sizes = <Py_ssize_t *>calloc(<size_t>count, sizeof(Py_ssize_t))
        if self.threads is NULL or self.sizes is NULL:
            raise MemoryError("no memory for threads")
        for i in range(count):
            self.count += 1
            failed = errno if io_thread_open(&self.threads[i], i + 1, self.bell.fd) < 0 else 0
            if not failed:
                failed = io_thread_start(&self.threads[i])
            if failed:
                self.bell.leave()
                raise OSError(failed, os.strerror(failed))
            self.running += 1
        poller.take_crew(self)

    def __dealloc__(self):
        cdef int i
        self.stop()
        for i in range(self.count):
            io_thread_close(&self.threads[i])
        free(self.threads)
        free(self.sizes)

    # --- For the set of descriptors ----------------------------------------------------------------------------------

    cdef int adopt(self, Client client, object sock) except -1:
        cdef ThreadTransport transport = ThreadTransport(self, client, sock)
        try:
            transport.start()
        except OSError:     # the peer has gone already
            transport.end(None)
        except BaseException:
            transport.end(None)
            raise
        return 0

    cdef int serve(self) except -1:
        cdef ThreadTransport transport
        cdef IoThread *thread
        cdef Record *record
        cdef size_t end
        cdef int i
        for i in range(self.count):
            thread = &self.threads[i]
            end = ring_end(&thread.inward)      # what comes later is for the next turn: replies wait for this one
            while ring_is_before(&thread.inward, end):
                record = ring_next(&thread.inward)
                if record is NULL:
                    break
                transport = <ThreadTransport>(<Line *>record.line).transport
                try:
                    transport.take(record)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    self.poller.loop.call_exception_handler({
                        "message": "Fatal error: handling the events of a connection failed.",
                        "exception": error, "transport": transport, "protocol": transport.client,
                    })
                    transport.end(error)
                if ring_release(&thread.inward):
                    ring_wake(thread.outward.wake_fd)
        return 0

    cdef int dispatch(self) except -1:
        cdef int i
        for i in range(self.count):
            ring_publish(&self.threads[i].outward)
        return 0

    cdef bint doze(self) noexcept:
        cdef int i
        cdef bint may_sleep = True
        for i in range(self.count):
            if not ring_doze(&self.threads[i].inward):
                may_sleep = False
        return may_sleep

    cdef int rouse(self) noexcept:
        cdef int i
        for i in range(self.count):
            ring_rouse(&self.threads[i].inward)
        return 0

    cdef int ring(self) noexcept:
        ring_wake(self.bell.fd)
        return 0

    cdef bint is_idle(self) noexcept:
        return not self.transports

    cdef void stop(self) noexcept:
        """End the threads, when they have done all that has been posted. A forked child has none."""
        if self.pid != getpid():
            self.running = 0
        while self.running:
            self.running -= 1
            io_thread_stop(&self.threads[self.running])

    def finish(self):
        """Let the threads do all that has been posted and end; then the connections that are left are lost."""
        cdef ThreadTransport transport
        self.stop()
        self.serve()
        for transport in list(self.transports):
            transport.lose()
        self.poller.close_if_empty()

    cdef int disband(self) except -1:
        self.finish()
        self.bell.leave()
        return 0

    # --- Connections -------------------------------------------------------------------------------------------------

    cdef int find_least(self) noexcept:
        """The thread with the fewest connections."""
        cdef int i, found = 0
        for i in range(1, self.count):
            if self.sizes[i] < self.sizes[found]:
                found = i
        return found

    def figures(self):
        """What each thread has done, as [(connections, calls of recv, calls of send)]."""
        return [
            (self.sizes[i], streamd_load(&self.threads[i].reads), streamd_load(&self.threads[i].writes))
            for i in range(self.count)
        ]


cdef class ThreadTransport(Sender):
    """The transport of one accepted connection; `start` begins to read. Raises OSError if its thread cannot have it."""

    def __cinit__(self, IoThreads threads not None, Client client not None, object sock):
        cdef int i = threads.find_least()
        self.threads = threads
        self.thread = &threads.threads[i]
        self.client = client
        self.sock = sock
        self.line = <Line *>calloc(1, sizeof(Line))
        if self.line is NULL:
            raise MemoryError("no memory for a connection")
        self.line.fd = sock.fileno()
        self.line.transport = <void *>self
        if io_thread_add(self.thread, self.line) < 0:
            raise OSError(errno, os.strerror(errno))
        threads.sizes[i] += 1
        threads.transports.add(self)

    def __dealloc__(self):
        self.free_line()

    cdef void free_line(self) noexcept:
        if self.line is not NULL:
            free(self.line.rest)
            drop_argument(&self.line.argument)
            free(self.line)
            self.line = NULL

    def start(self):
        """Announce the connection to its client, which may close it at once."""
        self.client.connection_made(self)

    cdef int tell(self, Outward kind, const char *data, size_t size) except -1:
        """Write a record for the thread. It sees it at the end of the present events, or else at once."""
        if self.threads.running and (not self.is_lost or kind == ABORT):    # which is the last one
            post(self.thread, self.line, kind, data, size)
            if kind == PAUSE or not self.threads.poller.events.is_handling:
                ring_publish(&self.thread.outward)
        return 0

    # --- Records from the thread -------------------------------------------------------------------------------------

    cdef int take(self, Record *record) except -1:
        """Handle a record from the thread."""
        cdef Client client = self.client        # which it may lose meanwhile
        cdef bint is_open = not (self.is_ending if self.home is None else self.home.is_lost)
        if record.kind == GONE:
            return self.lose()
        if record.kind == INPUT:
            if is_open:
                client.received(<const char *>(record + 1), record.size, None)
            return 0
        if record.kind == ARGUMENT:
            return self.take_argument(<Collected *>(record + 1), is_open)
        if self.is_lost:
            return 0
        if record.kind == COLLECTING:
            if is_open:
                self.follow_argument(<Collected *>(record + 1))
        elif record.kind == ALL_SENT:
            if self.is_full:
                self.is_full = False
                client.resume_writing()
        elif record.kind == AT_END:
            self.is_at_end = True
            self.follow_end()
        elif record.kind == FAILED:
            number = (<int *>(record + 1))[0]
            self.end(OSError(number, os.strerror(number)) if number else None)
        return 0

    cdef int take_argument(self, Collected *argument, bint is_open) except -1:
        """The thread has collected an argument, or as much of it as there is."""
        cdef Py_ssize_t more = <Py_ssize_t>(argument.filled - self.line.counted), size = <Py_ssize_t>argument.size - 2
        self.line.counted = 0
        try:
            if not is_open:
                return 0
            if self.client.awaits_argument(size, size, more) and argument.filled == argument.size:
                self.client.received_argument(finish_argument(argument))
            else:
                self.client.received_instead(bytes_of(argument), <Py_ssize_t>argument.filled)
        finally:
            drop_argument(argument)
        return 0

    cdef int follow_argument(self, Collected *argument) except -1:
        """The thread collects an argument."""
        cdef Py_ssize_t more = <Py_ssize_t>(argument.filled - self.line.counted)
        self.line.counted = argument.filled
        if not self.client.awaits_argument(<Py_ssize_t>argument.size - 2, <Py_ssize_t>argument.filled, more):
            self.tell(HAND_OVER, NULL, 0)
        return 0

    cdef int follow_end(self) except -1:
        """The peer sends no more. A paused client, which may have requests left, hears of it when it reads again."""
        if self.is_at_end and not (self.is_paused or self.is_ending) and not self.client.eof_received():
            self.close()
        return 0

    cdef int end(self, object error) except -1:
        """The connection is over; the client hears of it when the thread has let go."""
        if self.home is not None:
            return self.home.end(error)
        if not self.is_lost:
            self.is_lost = self.is_ending = True
            self.error = error
            self.tell(ABORT, NULL, 0)
        return 0

    cdef int lose(self) except -1:
        """The thread has let go."""
        cdef Client client = self.client
        self.threads.transports.discard(self)
        self.threads.sizes[self.thread.number - 1] -= 1
        self.free_line()
        self.client = None
        if self.home is not None:
            self.home.is_early = False
            return self.home.follow_reading()
        self.is_lost = self.is_ending = True
        try:
            client.connection_lost(self.error)
        finally:
            self.sock.close()
            self.sock = None
            self.threads.poller.close_if_empty()
        return 0

    # --- As core.client.Sender ---------------------------------------------------------------------------------------

    cdef long long unsent(self) noexcept:
        return 0 if self.line is NULL else self.posted - streamd_load(&self.line.sent)

    cdef ssize_t hand_over(self, const char *data, size_t size) except -1:
        cdef ssize_t left = <ssize_t>MOST_UNSENT - self.unsent()
        cdef size_t sent = 0, piece
        if self.is_lost:
            return size
        while sent < size and left > 0:
            piece = min(size - sent, <size_t>min(left, <ssize_t>MOST_OUTPUT))
            self.tell(OUTPUT, data + sent, piece)
            self.posted += piece
            sent += piece
            left -= piece
        if sent < size:
            self.wait_until_sent()
        return sent

    cdef ssize_t hand_over_shared(self, SharedBytes *bytes, size_t at, size_t most) except -1:
        cdef ssize_t left = <ssize_t>MOST_UNSENT - self.unsent()
        cdef size_t size = min(bytes.size - at, most)
        cdef SharedPart part
        if self.is_lost:
            return size
        part.bytes, part.at, part.size = bytes, at, min(size, <size_t>max(left, 0))
        if part.size:
            if self.threads.running:
                shared_hold(bytes)      # until the thread has sent them
            self.tell(SHARED, <char *>&part, sizeof(part))
            self.posted += part.size
        if part.size < size:
            self.wait_until_sent()
        return part.size

    cdef int wait_until_sent(self) except -1:
        """Nothing more is accepted until the thread has sent everything."""
        if not self.is_full:
            self.is_full = True
            self.tell(ASK, NULL, 0)
            self.client.pause_writing()
        return 0

    cdef int thread_number(self) noexcept:
        return self.thread.number

    cdef int come_home(self) except -1:
        """From now on the connection has a SocketTransport; see docs/architecture.md."""
        cdef Line *line = self.line
        cdef SocketTransport home
        if self.is_ending or not self.threads.running:
            return 0
        post(self.thread, line, LEAVE, NULL, 0)
        ring_publish(&self.thread.outward)
        with nogil:
            while not streamd_load(&line.has_left):
                sched_yield()
        home = SocketTransport(self.threads.poller, self.client, self.sock)
        home.is_paused, home.is_ending = self.is_paused, self.is_ending
        home.is_at_end = self.is_at_end and not self.is_paused      # else its client has not heard of it yet
        self.home = home
        self.is_lost = self.is_ending = True
        home.is_early = True
        self.client.leave_thread(home)
        if line.rest is not NULL:
            home.unsent = bytearray(line.rest[line.rest_at:line.rest_size])
            free(line.rest)
            line.rest = NULL
            home.watch(WRITABLE)
            self.client.pause_writing()
        elif self.is_full:
            self.client.resume_writing()
        return 0

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
        """The client's writing always pauses when the thread holds enough, until nothing is unsent."""

    def get_write_buffer_size(self):
        return self.unsent()

    def write(self, data):
        cdef bytes piece = bytes(data)
        cdef const char *at = piece
        cdef size_t size = len(piece), sent = 0, part
        if self.is_lost:
            return
        while sent < size:
            part = min(size - sent, <size_t>MOST_OUTPUT)
            self.tell(OUTPUT, at + sent, part)
            sent += part
        self.posted += size
        if self.unsent() > MOST_UNSENT:
            self.wait_until_sent()

    def pause_reading(self):
        if not self.is_paused:
            self.is_paused = True
            self.tell(PAUSE, NULL, 0)

    def resume_reading(self):
        if self.is_paused:
            self.is_paused = False
            self.tell(READ_ON, NULL, 0)
            self.follow_end()

    def is_closing(self):
        return self.is_ending

    def close(self):
        """Send what is unsent, then close."""
        if not self.is_ending:
            self.is_ending = True
            self.tell(CLOSE, NULL, 0)

    def abort(self):
        """Close at once."""
        self.end(None)
