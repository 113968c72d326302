# cython: language_level=3, boundscheck=False, wraparound=False
"""Client: one connection, as the event loop's protocol object and as what commands see of it.

Bytes that arrive go to the parser, and the dispatcher runs what is complete. Replies gather in `reply` and leave once
per turn of the event loop (`flush`), straight from that buffer with one `send`. Of what the kernel does not take, a
piece is handed to the transport; until the transport has got rid of it the client is congested and its replies wait in
`reply`, so that unsent bytes are held, and counted, in one place, and never copied as a whole.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport SIZE_MAX

import socket

from streamd.engine.database cimport Database
from streamd.protocol.reply cimport ReplyWriter
from streamd.protocol.request cimport RequestParser
from streamd.core.clock cimport monotonic_us, wall_us

__all__ = ["CLIENT_STATES", "Client", "ClientHost"]

CLIENT_STATES = {
    "stranger": STRANGER, "in-multi": IN_MULTI, "subscribed": SUBSCRIBED, "monitoring": MONITORING, "limited": LIMITED,
    "tracking": TRACKING,
}  # fmt: skip
"""ClientState, for `Capability.client_bits` in Python."""

cdef extern from "<sys/socket.h>" nogil:
    ssize_t c_send "send"(int fd, const void *data, size_t size, int flags)

cdef enum:
    PIECE = 65536       # bytes that the transport gets at a time when the kernel takes no more
    TURN_MOST = 1048576     # bytes that one client is sent in a turn, however fast it reads
    WALL_CLOCK_US = 1000    # how old an answer of the clock of Unix time may be

cdef dict NOTHING = {}

cdef int SEND_FLAGS = getattr(socket, "MSG_NOSIGNAL", 0) | socket.MSG_DONTWAIT


cdef class ClientHost:
    """What connections need of their server: its clock, counters and limits, and who runs requests."""

    def __cinit__(self, *args):
        cdef int output_class
        self.clients = {}
        self.writers = []
        self.put_off = []
        for output_class in range(OUTPUT_CLASSES):
            self.output_watch[output_class] = self.output_most[output_class] = SIZE_MAX

    cpdef long long new_client_id(self):
        self.last_client_id += 1
        return self.last_client_id

    cdef void look_at_clocks(self) noexcept:
        """Take the time, before requests are run.

        A look at a clock is not for nothing: Unix time follows from monotonic time, mostly.
        """
        self.ended_us = monotonic_us()
        if self.ended_us - self.wall_read_us >= WALL_CLOCK_US:
            self.wall_read_us = self.ended_us
            self.wall_offset_us = wall_us() - self.ended_us

    def take_peaks(self):
        """The most that any one client has had waiting since the last call: bytes of requests, and of replies.

        Of replies, what is beyond the block that everyone may fill: nothing, as long as clients read.
        """
        peaks = self.peak_input, (self.peak_output - REPLY_BLOCK if self.peak_output > REPLY_BLOCK else 0)
        self.peak_input = self.peak_output = 0
        return peaks

    cdef int register(self, Client client, object sock) except -1:
        """A connection has been made."""
        raise NotImplementedError

    cdef int forget(self, Client client) except -1:
        """A connection is gone; called once or more for each."""
        raise NotImplementedError

    cdef int schedule(self) except -1:
        """Have the turn of the loop ended by what is to be done then."""
        raise NotImplementedError

    cdef int process(self, Client client) except -1:
        """Run every complete request of a client. The caller has looked at the clocks."""
        raise NotImplementedError

    cdef int run_again(self, Client client) except -1:
        """Run the request of a client that waits: 1 when it has been answered, 0 when it waits on."""
        raise NotImplementedError

    cdef int finish_wait(self, Client client, size_t mark) except -1:
        """What a client waited for has been answered, from `mark` on."""
        raise NotImplementedError

    cdef int answer_error(self, Client client, str text) except -1:
        """Write an error reply and count it by its code."""
        raise NotImplementedError

    cdef int check_output(self, Client client) except -1:
        """Close a client, at the end of the turn, whose unsent replies have grown beyond its limit."""
        raise NotImplementedError

    cdef int close_for_output(self, Client client) except -1:
        """Close a client, at the end of the turn, that does not read."""
        raise NotImplementedError


cdef class Client:
    """A connection. Made by the server's listeners; leaves `ClientHost.clients` when the connection is lost."""

    def __cinit__(self, ClientHost host not None, bint is_unix=False):
        self.host = host
        self.id = host.new_client_id()
        self.parser = RequestParser()
        self.parser.max_bulk_len = host.max_bulk_len
        self.reply = ReplyWriter()
        self.db = host.databases[0]
        self.fd = -1
        self.is_unix = is_unix
        self.reply_mode = REPLY_ON
        self.name = self.lib_name = self.lib_ver = b""
        self.set_authenticated(not host.needs_password)
        self.created_us = self.last_interaction_us = monotonic_us()

    # --- What the event loop calls -------------------------------------------------------------------------------

    def connection_made(self, transport):
        cdef ClientHost host = self.host
        self.transport = transport
        sock = transport.get_extra_info("socket")
        # With these high-water marks a transport says pause_writing as soon as it holds anything unsent: a plain one
        # above the mark, one of TLS at the mark.
        if transport.get_extra_info("ssl_object") is not None:
            transport.set_write_buffer_limits(high=1, low=0)
        else:
            transport.set_write_buffer_limits(high=0)
            if sock is not None:
                self.fd = sock.fileno()
        host.register(self, sock)

    def data_received(self, bytes data):
        cdef ClientHost host = self.host
        cdef Py_ssize_t size = len(data), waiting
        self.total_net_in += size
        host.net_input_bytes += size
        host.total_reads += 1
        self.read_events += 1
        host.look_at_clocks()
        self.last_interaction_us = host.ended_us
        self.parser.feed(data)
        waiting = self.parser.size - self.parser.pos + self.parser.partial_size
        if waiting > host.peak_input:
            host.peak_input = waiting
        host.process(self)

    def eof_received(self):
        """The peer sends no more. What it asked before is answered, then the connection is closed."""
        if self.blocked is not None or self.fd < 0:
            return False    # TLS has no connections that are closed in one direction only
        self.close_after_reply = True
        self.want_write()
        return True

    def pause_writing(self):
        self.is_congested = True

    def resume_writing(self):
        self.is_congested = False
        if self.reply.length or self.close_after_reply:
            self.want_write()

    def connection_lost(self, exc):
        cdef ClientHost host = self.host
        self.transport = None
        self.fd = -1
        self.postponed = self.deferred = self.confirmed = None
        self.reply.release()
        self.reply.set_limit(SIZE_MAX, None)
        host.forget(self)

    # --- Output --------------------------------------------------------------------------------------------------

    cdef int want_write(self) except -1:
        """Have `flush` called before the loop sleeps."""
        cdef ClientHost host = self.host
        if not self.is_writer:
            self.is_writer = True
            host.writers.append(self)
            host.schedule()
        return 0

    cdef int flush(self) except -1:
        """Send what has gathered in `reply`; close when that is all, if that was asked for."""
        cdef ClientHost host = self.host
        cdef ssize_t sent = 0
        cdef size_t left
        self.is_writer = False
        if self.transport is None or self.is_congested or self.reply.is_cut:
            return 0
        if self.reply.length > host.peak_output:
            host.peak_output = self.reply.length
        left = self.reply.length - TURN_MOST if self.reply.length > TURN_MOST else 0
        while self.reply.length > left and not self.is_congested:
            if self.fd >= 0:
                sent = c_send(self.fd, self.reply.data, self.reply.length - left, SEND_FLAGS)
                if sent < 0:
                    if errno != EAGAIN and errno != EINTR:
                        self.reply.release()
                        self.transport.abort()
                        return 0
                    sent = 0
                self.count_sent(<size_t>sent)
                host.total_writes += 1
            if self.reply.length > left:
                self.hand_over()
        if self.is_congested:
            host.check_output(self)
        elif self.reply.length:
            self.want_write()       # others come in between
            host.check_output(self)
        elif self.close_after_reply:
            self.transport.close()
        return 0

    cdef bint is_sending(self) noexcept:
        """Whether there is more to be sent than a turn takes, to a peer that reads."""
        return self.reply.length > TURN_MOST and not self.is_congested and self.transport is not None

    cdef int hand_over(self) except -1:
        """Give the transport a piece of what the kernel did not take; when it has got rid of that, there is more."""
        cdef size_t size = self.reply.length if self.reply.length < PIECE else PIECE
        self.transport.write(PyBytes_FromStringAndSize(self.reply.data, <Py_ssize_t>size))
        return self.count_sent(size)

    cdef int count_sent(self, size_t size) except -1:
        """Forget bytes of `reply` that have been sent."""
        self.total_net_out += size
        self.host.net_output_bytes += size
        return self.reply.consume(size)

    cdef int deliver(self, const char *data, size_t length) except -1:
        """Add an encoded push to what is sent; to the client whose command runs, after that has been answered."""
        return self.deliver_parts(data, length, NULL, 0)

    cdef int deliver_parts(self, const char *head, size_t head_length, const char *tail, size_t tail_length) except -1:
        """As `deliver`, for a push in two pieces."""
        cdef ClientHost host = self.host
        if self.transport is None or self.close_after_reply:
            return 0
        if host.executing is self:
            if self.deferred is None:
                self.deferred = self.new_writer()
            self.deferred.raw_parts(head, head_length, tail, tail_length)
            return 0
        self.reply.raw_parts(head, head_length, tail, tail_length)
        if not self.is_congested:
            self.want_write()
        if self.reply.length >= host.output_watch[self.output_class]:
            host.check_output(self)
        return 0

    cdef ReplyWriter new_writer(self):
        """A writer for what is sent later, to which the limit holds, too."""
        cdef ReplyWriter writer = ReplyWriter(self.reply.resp)
        writer.set_limit(self.reply.limit, self.reply.on_limit)
        return writer

    cdef int limit_output(self) except -1:
        """Take over the hard limit of the client's class, for replies that pass it while they are written."""
        cdef size_t limit = self.host.output_most[self.output_class]
        return self.reply.set_limit(limit, None if limit == SIZE_MAX else self.pass_limit)

    def pass_limit(self):
        """More is unsent than the hard limit of the client's class."""
        self.host.close_for_output(self)

    # --- What commands see and do ---------------------------------------------------------------------------------

    cdef bint can_run(self) noexcept:
        """Whether the next request may be taken from the parser."""
        return self.blocked is None and not self.close_after_reply and self.transport is not None \
            and self.postponed is None and not self.is_put_off

    cdef int put_off(self) except -1:
        """Wait for the next turn with what is left of a pipeline; nothing more is read until `go_on`."""
        cdef ClientHost host = self.host
        self.is_put_off = True
        host.put_off.append(self)
        host.schedule()
        if not self.transport.is_closing():
            self.transport.pause_reading()
        return 0

    cdef int go_on(self) except -1:
        """Read again: nothing is left to be run."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()
        return 0

    def set_reply_mode(self, bytes mode not None):
        """CLIENT REPLY: b"ON", b"OFF" or b"SKIP"."""
        if mode == b"ON":
            if self.reply_mode != REPLY_SKIP_ARMED:  # inside a transaction, a SKIP before it holds nevertheless
                self.reply_mode = REPLY_ON
        elif mode == b"OFF":
            self.reply_mode = REPLY_OFF
        elif self.reply_mode != REPLY_OFF:
            self.reply_mode = REPLY_SKIP_ARMED

    cdef bint is_silent(self) noexcept:
        """Whether what is replied now is not to be sent."""
        return self.reply_mode == REPLY_OFF or self.reply_mode == REPLY_SKIP

    def set_authenticated(self, bint authenticated, user=None):
        """Who the client is from now on: an acl.User, or the default one."""
        cdef ClientHost host = self.host
        self.authenticated = authenticated
        self.user = host.default_user if user is None else user
        self.follow_user()

    def follow_user(self):
        """Take over what the client's user may do now, and whether the default user needs a password."""
        cdef ClientHost host = self.host
        cdef bint is_stranger = host.needs_password and not self.authenticated
        self.parser.authenticated = not is_stranger
        self.change_state(STRANGER, is_stranger)
        self.change_state(LIMITED, self.user is not None and self.user.is_limited)

    cdef int change_state(self, int state, bint is_on) except -1:
        """Put one ClientState into the client's set, or take it out."""
        self.state = self.state | state if is_on else self.state & ~state
        return 0

    # What it is subscribed to; kept by Hub.

    @property
    def is_subscribed(self):
        """Whether it has a subscription of any kind."""
        return self.subscribed is not None

    @property
    def channels(self):
        """The channels that it is subscribed to: a view."""
        return NOTHING.keys() if self.subscribed is None else self.subscribed[0].keys()

    @property
    def patterns(self):
        return NOTHING.keys() if self.subscribed is None else self.subscribed[1].keys()

    @property
    def shard_channels(self):
        return NOTHING.keys() if self.subscribed is None else self.subscribed[2].keys()

    @property
    def is_monitor(self):
        """Whether it is shown every request."""
        return self.state & MONITORING != 0

    @property
    def created_at(self):
        """Monotonic seconds."""
        return self.created_us / 1e6

    @property
    def last_interaction(self):
        """Monotonic seconds of the last bytes that came."""
        return self.last_interaction_us / 1e6

    @property
    def db_index(self):
        return self.db.index

    def select(self, Database db not None):
        self.db = db

    @property
    def address(self):
        """The peer as CLIENT LIST shows it: `ip:port`, `[ip]:port`, or `path:0`."""
        if self._address is None:
            self._address = self._format("peername", "sockname")
        return self._address

    @property
    def is_local(self):
        """Whether the peer is on this machine. Protected mode and the settings with the value `local` rely on it."""
        return self.is_unix or self.address.startswith(("127.", "[::1]:"))

    @property
    def local_address(self):
        if self._local_address is None:
            self._local_address = self._format("sockname", "sockname")
        return self._local_address

    def _format(self, kind, unix_kind):
        if self.transport is None:
            return "?:0"
        name = self.transport.get_extra_info(unix_kind if self.is_unix else kind)
        if isinstance(name, tuple):
            return f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}"
        if isinstance(name, bytes):
            name = name.decode("utf-8", "surrogateescape")
        return f"{name or '?'}:0"

    @property
    def fileno(self):
        if self.fd >= 0 or self.transport is None:
            return self.fd
        sock = self.transport.get_extra_info("socket")
        return -1 if sock is None else sock.fileno()

    @property
    def query_buffer_size(self):
        """Bytes received and not yet run."""
        return self.parser.buffered

    @property
    def query_buffer_free(self):
        """Bytes that are allotted for requests and not in use."""
        return max(0, self.parser.allocated - self.parser.buffered)

    @property
    def args_size(self):
        """Bytes of the arguments of a request that waits, for a key or the end of a pause, or that has come in part."""
        waiting = self.postponed or ()
        if self.blocked is not None:
            waiting = self.blocked.request.args
        return self.parser.pending_args_size + sum(map(len, waiting))

    @property
    def output_size(self):
        """Bytes of replies not yet taken by the kernel."""
        unsent = self.transport.get_write_buffer_size() if self.transport is not None else 0
        return self.reply.length + unsent

    cdef int hold_name(self, bytes name) except -1:
        """Count a name that the client is subscribed to, watches or tracks by, from now on."""
        cdef ClientHost host = self.host
        cdef Py_ssize_t size = PyBytes_GET_SIZE(name) + NAME_BYTES
        self.names_size += size
        host.names_size += size + NAME_SHARED_BYTES
        return 0

    cdef int drop_name(self, bytes name) except -1:
        """Count a name no more."""
        cdef ClientHost host = self.host
        cdef Py_ssize_t size = PyBytes_GET_SIZE(name) + NAME_BYTES
        self.names_size -= size
        host.names_size -= size + NAME_SHARED_BYTES
        return 0

    def memory_usage(self):
        """Bytes this client costs, buffers and names included; an estimate of the fixed part."""
        queued = 0 if self.transaction is None else self.transaction.size + self.transaction.objects_size
        return 1024 + self.parser.allocated + self.args_size + queued + self.output_size + self.names_size

    def reset(self, *, bint needs_password):
        """RESET: forget everything that the peer has set."""
        cdef ClientHost host = self.host
        self.db = host.databases[0]
        self.reply.resp = 2
        self.name = b""
        self.no_evict = self.no_touch = False
        if self.reply_mode != REPLY_SKIP:  # which holds for RESET's own answer
            self.reply_mode = REPLY_ON
        self.set_authenticated(not needs_password)

    def shut_down(self):
        """Send what is ready and close."""
        self.close_after_reply = True
        self.flush()
        if self.transport is not None and (self.is_congested or self.reply.length):
            if not self.reply.is_cut:
                self.transport.write(self.reply.take())
            self.transport.close()

    def close(self):
        """Drop the connection at once; unsent replies are lost, and the client is forgotten."""
        cdef ClientHost host = self.host
        self.close_after_reply = True
        self.reply.release()
        host.forget(self)
        if self.transport is not None:
            self.transport.abort()
