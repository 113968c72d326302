# cython: language_level=3, boundscheck=False, wraparound=False
"""Client: one connection, both as the event loop's protocol object and as the object that commands see.

Received bytes go to the parser, and the dispatcher runs the complete requests. They come from a transport of the event
loop as objects (`data_received`), or from a socket of our own, in memory that all clients share (`received`).

Replies accumulate in `reply` and are sent once per turn of the event loop (`flush`), directly from that buffer with one
`send`; long messages to many clients are only linked there (`deliver_shared`), and sent from where they are. When the
kernel does not accept everything, one piece is handed to the transport; until the transport has sent it, the client is
congested and its replies wait in `reply`. So unsent bytes are held and counted in one place, and never copied as a
whole.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport SIZE_MAX
from libc.string cimport memset
from posix.uio cimport iovec

import socket

from streamd.core.clock cimport monotonic_us, wall_us
from streamd.keyspace.database cimport Database
from streamd.protocol.reply cimport Link, ReplyWriter, unsent_bytes
from streamd.protocol.request cimport RequestParser
from streamd.shared_bytes cimport SharedBytes

__all__ = ["CLIENT_STATES", "Client", "ClientHost", "Outflow"]

CLIENT_STATES = {
    "stranger": STRANGER, "in-multi": IN_MULTI, "subscribed": SUBSCRIBED, "monitoring": MONITORING, "limited": LIMITED,
    "tracking": TRACKING, "replica": REPLICA, "asking": ASKING, "asked": ASKED, "reads-copies": READS_COPIES,
}  # fmt: skip
"""ClientState, for `Capability.client_bits` in Python."""

cdef extern from "<sys/socket.h>" nogil:
    struct msghdr:
        iovec *msg_iov
        size_t msg_iovlen
    ssize_t c_send "send"(int fd, const void *data, size_t size, int flags)
    ssize_t c_sendmsg "sendmsg"(int fd, const msghdr *message, int flags)

cdef enum:
    PIECE = 65536       # bytes handed to the transport at a time when only that can send them (TLS)
    WAKING_PIECE = 1024     # ... when the kernel accepts no more: the transport has only to notice when it does again
    ARG_BYTES = 41          # of an argument besides its content: the object and its place in the list
    MOST_PARTS = 64         # pieces sent with one call
    TURN_MOST = 1048576     # bytes sent to one client per turn, however fast it reads
    WALL_CLOCK_US = 1000    # maximum age of a reading of the wall clock

cdef dict NOTHING = {}

cdef const char *LINE_END = b"\r\n"

cdef int SEND_FLAGS = getattr(socket, "MSG_NOSIGNAL", 0) | socket.MSG_DONTWAIT


cdef class ClientHost:
    """What connections need from their server: its clock, counters and limits, and the methods that run requests."""

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

    cpdef long long unix_ms(self):
        """Unix time in ms, as this server has it: its own steps (cron, timers) begin with it."""
        return (wall_us() + self.advanced_us) // 1000

    cdef void look_at_clocks(self) noexcept:
        """Read the time before requests are run.

        Reading a clock has a cost: Unix time is usually derived from monotonic time.
        """
        self.ended_us = monotonic_us()
        if self.ended_us - self.wall_read_us >= WALL_CLOCK_US:
            self.wall_read_us = self.ended_us
            self.wall_offset_us = wall_us() + self.advanced_us - self.ended_us

    def take_peaks(self):
        """The largest backlog of any one client since the last call: bytes of requests, and of replies.

        For replies, only bytes beyond the first block count: zero as long as clients read.
        """
        peaks = self.peak_input, (self.peak_output - REPLY_BLOCK if self.peak_output > REPLY_BLOCK else 0)
        self.peak_input = self.peak_output = 0
        return peaks

    cdef int register(self, Client client, object sock) except -1:
        """A connection has been established."""
        raise NotImplementedError

    cdef int forget(self, Client client) except -1:
        """A connection is closed; called at least once for each."""
        raise NotImplementedError

    cdef int schedule(self) except -1:
        """Schedule the end-of-turn work for this turn of the loop."""
        raise NotImplementedError

    cdef int events_begin(self) except -1:
        """Events of several clients follow in this call of the loop, up to `events_end`."""
        raise NotImplementedError

    cdef int events_end(self) except -1:
        """End the turn, if these events have given it work."""
        raise NotImplementedError

    cdef int process(self, Client client) except -1:
        """Run every complete request of a client. The caller has read the clocks."""
        raise NotImplementedError

    cdef int run_again(self, Client client) except -1:
        """Run the request of a waiting client: 1 when it got its reply, 0 when it keeps waiting."""
        raise NotImplementedError

    cdef int finish_wait(self, Client client, size_t mark) except -1:
        """The request that a client waited on has its reply, starting at `mark`."""
        raise NotImplementedError

    cdef int share_replies(self, bint is_on) except -1:
        """Several clients that wait for one key are run again now: those with the same reply may share it."""
        raise NotImplementedError

    cdef int answer_error(self, Client client, Route route, Failure failure, str text) except -1:
        """Write an error reply and count it. `route`: of the request, or None."""
        raise NotImplementedError

    cdef int check_output(self, Client client) except -1:
        """Close, at the end of the turn, a client whose unsent replies exceed its limit."""
        raise NotImplementedError

    cdef int close_for_output(self, Client client) except -1:
        """Close, at the end of the turn, a client that does not read."""
        raise NotImplementedError


cdef class Sender:
    """See client.pxd."""

    cdef ssize_t hand_over(self, const char *data, size_t size) except -1:
        raise NotImplementedError

    cdef int thread_number(self) noexcept:
        return 0

    cdef ssize_t hand_over_shared(self, SharedBytes *bytes, size_t at, size_t most) except -1:
        raise NotImplementedError

    cdef int come_home(self) except -1:
        raise NotImplementedError


cdef class Outflow:
    """What a client is sent beyond its replies: the replication stream, a snapshot."""

    cpdef int send(self, Client client) except -1:
        """Send what there is, until the client is congested. Called whenever it has no replies left to send."""
        return 0

    cpdef long long unsent(self) except -1:
        """Bytes that are waiting to be sent; they count for the client's output limit."""
        return 0


cdef inline int follow_push(Client client) except -1:
    """A push has been added to the output."""
    if not client.is_congested or client.host.limits_clients:       # a client that does not read is weighed, too
        client.want_write()
    if unsent_bytes(client.reply) >= client.host.output_watch[client.output_class]:
        client.host.check_output(client)
    return 0


cdef inline void count_input(Client client, Py_ssize_t size) noexcept:
    """Bytes have been received."""
    cdef ClientHost host = client.host
    client.total_net_in += size
    host.net_input_bytes += size
    host.total_reads += 1
    client.read_events += 1
    host.look_at_clocks()
    client.last_interaction_us = host.ended_us


cdef inline void count_waiting(Client client) noexcept:
    client.host.peak_input = max(client.host.peak_input, client.parser.unread())


cdef inline int process_input(Client client, const char *data, Py_ssize_t size, bytes source) except -1:
    """As `Client.received`, for bytes that have been counted."""
    if source is None:
        client.parser.feed_in_place(data, size)
    else:
        client.parser.feed(source)
    count_waiting(client)
    try:
        client.host.process(client)
    finally:
        if source is None:
            client.parser.leave()
    return 0


cdef class Client:
    """A connection. Created by the server's listeners; leaves `ClientHost.clients` when the connection is lost."""

    def __cinit__(self, ClientHost host not None, bint is_unix=False):
        self.host = host
        self.id = host.new_client_id()
        self.parser = RequestParser()
        self.parser.max_bulk_len = host.max_bulk_len
        self.reply = ReplyWriter()
        self.db = host.databases[0]
        self.fd = self.sendable = -1
        self.is_unix = is_unix
        self.reply_mode = REPLY_ON
        self.name = self.lib_name = self.lib_ver = b""
        self.set_authenticated(not host.needs_password)
        self.created_us = self.last_interaction_us = monotonic_us()

    # --- Callbacks of the event loop -----------------------------------------------------------------------------

    def connection_made(self, transport):
        cdef ClientHost host = self.host
        self.transport = transport
        sock = transport.get_extra_info("socket")
        # With these high-water marks a transport calls pause_writing as soon as it holds anything unsent: a plain one
        # above the mark, a TLS one at the mark.
        if transport.get_extra_info("ssl_object") is not None:
            transport.set_write_buffer_limits(high=1, low=0)
        elif isinstance(transport, Sender):
            self.sender = transport
        else:
            transport.set_write_buffer_limits(high=0)
            if sock is not None:
                self.fd = sock.fileno()
        host.register(self, sock)

    def data_received(self, bytes data):
        self.received(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), data)

    cdef int received(self, const char *data, Py_ssize_t size, bytes source) except -1:
        """Run the requests in received bytes, those of the object `source`; None: their memory is reused afterwards."""
        count_input(self, size)
        return process_input(self, data, size, source)

    cdef int received_in_place(self, Py_ssize_t there, const char *data, Py_ssize_t size) except -1:
        """`there` bytes were received in the place of the parser, `size` more behind them."""
        count_input(self, there + size)
        self.parser.partial_size += there
        if size:
            return process_input(self, data, size, None)
        count_waiting(self)
        return self.host.process(self)      # for the limit

    cdef bint awaits_argument(self, Py_ssize_t size, Py_ssize_t collected, Py_ssize_t more) except -1:
        """A thread has collected so much of an argument of `size` bytes, `more` of it since the last time.

        False: the client needs these bytes, and those that follow, as input. It does not know yet what they are.
        """
        count_input(self, more)
        if not self.parser.awaits(size, collected):
            return False
        if collected < size:
            count_waiting(self)
            self.host.process(self)     # for the limit
        return True

    cdef int received_argument(self, bytes arg) except -1:
        self.parser.adopt(arg)
        return process_input(self, LINE_END, 2, None)

    cdef int received_instead(self, const char *data, Py_ssize_t size) except -1:
        self.parser.away = 0
        return process_input(self, data, size, None)

    def eof_received(self):
        """The peer will send no more. Its earlier requests get their replies, then the connection is closed.

        A replica has gone: what it has not read has no end.
        """
        if self.state & REPLICA:
            self.close()
            return False
        if self.blocked is not None or (self.fd < 0 and self.sender is None):
            return False    # TLS does not support half-closed connections
        self.close_after_reply = True
        self.want_write()
        return True

    def pause_writing(self):
        self.is_congested = True

    def resume_writing(self):
        self.is_congested = False
        if not unsent_bytes(self.reply):
            self.over_soft_limit_us = 0
        if unsent_bytes(self.reply) or self.close_after_reply or self.outflow is not None:
            self.want_write()

    def connection_lost(self, exc):
        cdef ClientHost host = self.host
        self.transport = self.sender = None
        self.fd = -1
        self.postponed = self.deferred = self.confirmed = self.outflow = None
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
        """Send the contents of `reply`; then close, if requested, once everything is sent."""
        cdef ssize_t sent
        cdef size_t held, left, size = unsent_bytes(self.reply)
        self.is_writer = False
        if self.transport is None or self.is_congested or self.reply.is_cut or self.is_held:
            return 0
        if size > self.host.peak_output:
            self.host.peak_output = size
        held = 0 if self.sendable < 0 else self.reply.length - <size_t>self.sendable
        left = size - TURN_MOST if size > held + TURN_MOST else held
        while size > left and not self.is_congested:
            if self.reply.links is NULL:
                sent = self.send_some(self.reply.data, size - left)
            else:
                sent = self.send_parts(size - left)
            if sent < 0:
                self.reply.release()
                return 0
            self.reply.consume(<size_t>sent)
            size -= <size_t>sent
        if held:
            self.sendable = <Py_ssize_t>(self.reply.length - held)
        if self.outflow is not None and not size and not self.is_congested:
            self.outflow.send(self)
            size = unsent_bytes(self.reply)
        if self.is_congested:
            self.host.check_output(self)
        elif size > held:
            self.want_write()       # other clients get their turn in between
            self.host.check_output(self)
        elif not held:
            self.over_soft_limit_us = 0
            if self.close_after_reply:
                self.transport.close()
        return 0

    cdef bint is_sending(self) noexcept:
        """Whether more remains than one turn may send, to a peer that is reading."""
        return unsent_bytes(self.reply) > TURN_MOST and not self.is_congested and self.transport is not None

    cdef ssize_t send_some(self, const char *data, size_t size) except -2:
        """Send bytes; returns how many need not be sent again, or -1 when the connection is broken.

        If the kernel does not accept all of it, a piece is copied to the transport; the next may follow when that has
        been sent.
        """
        cdef ClientHost host = self.host
        cdef ssize_t sent = 0
        cdef size_t piece
        if self.fd >= 0:
            sent = c_send(self.fd, data, size, SEND_FLAGS)
            if sent < 0:
                if errno != EAGAIN and errno != EINTR:
                    self.transport.abort()
                    return -1
                sent = 0
            host.total_writes += 1
        elif self.sender is not None:
            sent = self.sender.hand_over(data, size)
        if <size_t>sent < size and self.sender is None:
            piece = min(size - <size_t>sent, <size_t>(PIECE if self.fd < 0 else WAKING_PIECE))
            self.transport.write(PyBytes_FromStringAndSize(data + sent, <Py_ssize_t>piece))
            sent += <ssize_t>piece
        self.total_net_out += sent
        host.net_output_bytes += sent
        return sent

    cdef ssize_t send_parts(self, size_t most) except -2:
        """As `send_some`, for what comes first among its own and shared bytes."""
        cdef ClientHost host = self.host
        cdef Link *link = &self.reply.links.items[self.reply.links.first]
        cdef iovec[MOST_PARTS] parts
        cdef msghdr message
        cdef ssize_t sent = 0
        cdef int count
        if self.sender is not None and not link.before:
            sent = self.sender.hand_over_shared(link.bytes, link.at, most)
        else:
            count = self.reply.parts(parts, MOST_PARTS if self.sender is None else 1, most)
            if count > 1:
                memset(&message, 0, sizeof(message))
                message.msg_iov = parts
                message.msg_iovlen = <size_t>count
                sent = c_sendmsg(self.fd, &message, SEND_FLAGS)
            if sent <= 0:       # or else it is only one piece
                return self.send_some(<char *>parts[0].iov_base, parts[0].iov_len)
            host.total_writes += 1
        self.total_net_out += sent
        host.net_output_bytes += sent
        return sent

    cpdef int send_later(self) except -1:
        """There is more to send: go on in the next turn, after other clients."""
        return self.want_write()

    cdef int deliver(self, const char *data, size_t length) except -1:
        """Add an encoded push to the output; for the client whose command is running, after the reply."""
        return self.deliver_parts(data, length, NULL, 0)

    cdef int deliver_parts(self, const char *head, size_t head_length, const char *tail, size_t tail_length) except -1:
        """As `deliver`, for a push in two pieces."""
        if self.transport is None or self.close_after_reply:
            return 0
        if self.host.executing is self:
            if self.deferred is None:
                self.deferred = self.new_writer()
            self.deferred.raw_parts(head, head_length, tail, tail_length)
            return 0
        self.reply.raw_parts(head, head_length, tail, tail_length)
        return follow_push(self)

    cdef bint takes_shared(self) noexcept:
        """Whether `deliver_shared` may be called: not with TLS, nor while a part of the output is held."""
        return (self.fd >= 0 or self.sender is not None) and self.sendable < 0 and self.host.executing is not self

    cdef int deliver_shared(self, SharedBytes *bytes) except -1:
        """As `deliver`, without copying."""
        if self.transport is None or self.close_after_reply:
            return 0
        self.reply.link(bytes)
        return follow_push(self)

    cdef ReplyWriter new_writer(self):
        """A writer for output that is sent later; the limit applies to it, too."""
        cdef ReplyWriter writer = ReplyWriter(self.reply.resp)
        writer.set_limit(self.reply.limit, self.reply.on_limit)
        return writer

    def become_replica(self):
        """It has asked for the replication stream: it gets no other commands' replies, and has its own output limit."""
        self.host.replica_count += 1
        self.change_state(REPLICA, True)
        self.come_home()        # a child process may write to its descriptor
        self.reply_mode = REPLY_LAST
        self.output_class = CLASS_REPLICA
        self.limit_output()

    def come_home(self):
        """From now on the loop's thread serves it, and its descriptor may be used."""
        if self.sender is not None:
            self.sender.come_home()

    cdef int limit_output(self) except -1:
        """Apply the hard limit of the client's class to replies while they are written."""
        cdef size_t limit = self.host.output_most[self.output_class]
        return self.reply.set_limit(limit, None if limit == SIZE_MAX else self.pass_limit)

    def pass_limit(self):
        """The unsent output exceeds the hard limit of the client's class."""
        self.host.close_for_output(self)

    # --- Interface for commands -----------------------------------------------------------------------------------

    cdef bint can_run(self) noexcept:
        """Whether the next request may be taken from the parser."""
        return self.blocked is None and not self.close_after_reply and self.transport is not None \
            and self.postponed is None and not self.is_put_off

    cdef int put_off(self) except -1:
        """Defer the rest of a pipeline to the next turn; nothing more is read until `go_on`."""
        cdef ClientHost host = self.host
        self.is_put_off = True
        host.put_off.append(self)
        host.schedule()
        if not self.transport.is_closing():
            self.transport.pause_reading()
        return 0

    cdef int go_on(self) except -1:
        """Resume reading: nothing is left to run."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()
        return 0

    def set_reply_mode(self, bytes mode not None):
        """CLIENT REPLY: b"ON", b"OFF" or b"SKIP"."""
        if mode == b"ON":
            if self.reply_mode != REPLY_SKIP_ARMED:  # inside a transaction, an earlier SKIP still applies
                self.reply_mode = REPLY_ON
        elif mode == b"OFF":
            self.reply_mode = REPLY_OFF
        elif self.reply_mode != REPLY_OFF:
            self.reply_mode = REPLY_SKIP_ARMED

    cdef bint is_silent(self) noexcept:
        """Whether replies written now are suppressed."""
        return self.reply_mode == REPLY_OFF or self.reply_mode == REPLY_SKIP

    def set_authenticated(self, bint authenticated, user=None):
        """Set the client's user: an acl.User, or the default one."""
        cdef ClientHost host = self.host
        self.authenticated = authenticated
        self.user = host.default_user if user is None else user
        self.follow_user()

    def follow_user(self):
        """Apply the current permissions of the client's user, and whether the default user needs a password."""
        cdef ClientHost host = self.host
        cdef bint is_stranger = host.needs_password and not self.authenticated
        self.parser.authenticated = not is_stranger
        self.change_state(STRANGER, is_stranger)
        self.change_state(LIMITED, self.user is not None and self.user.is_limited)

    cdef int act_for(self, Client caller) except -1:
        """Stand in for a client: for one without a connection, which runs commands in the name of others."""
        self.user = caller.user
        self.db = caller.db
        self.no_touch = caller.no_touch
        self.write_offset = caller.write_offset
        return 0

    cdef int change_state(self, int state, bint is_on) except -1:
        """Add one ClientState to the client's set, or remove it."""
        self.state = self.state | state if is_on else self.state & ~state
        return 0

    # Its subscriptions; maintained by Hub.

    @property
    def is_subscribed(self):
        """Whether it has a subscription of any kind."""
        return self.subscribed is not None

    @property
    def channels(self):
        """The channels that it is subscribed to, as a view."""
        return NOTHING.keys() if self.subscribed is None else self.subscribed[0].keys()

    @property
    def patterns(self):
        return NOTHING.keys() if self.subscribed is None else self.subscribed[1].keys()

    @property
    def shard_channels(self):
        return NOTHING.keys() if self.subscribed is None else self.subscribed[2].keys()

    @property
    def is_monitor(self):
        """Whether it receives every request (MONITOR)."""
        return self.state & MONITORING != 0

    @property
    def created_at(self):
        """Monotonic seconds."""
        return self.created_us / 1e6

    @property
    def last_interaction(self):
        """When bytes were last received, in monotonic seconds."""
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
        """Whether the peer is on this machine. Protected mode and settings with the value `local` rely on it."""
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

    cdef int leave_thread(self, object transport) except -1:
        """The connection goes on with this transport, on the loop's thread."""
        self.sender = None
        self.transport = transport
        self.fd = transport.get_extra_info("socket").fileno()
        return 0

    cdef int thread_number(self) noexcept:
        """The thread that receives and sends for it: 0 is the loop's."""
        return 0 if self.sender is None else self.sender.thread_number()

    @property
    def is_plain(self):
        """Whether bytes may be written to its descriptor, without TLS in between."""
        return self.fd >= 0

    @property
    def fileno(self):
        if self.fd >= 0 or self.transport is None:
            return self.fd
        sock = self.transport.get_extra_info("socket")
        return -1 if sock is None else sock.fileno()

    cdef Py_ssize_t args_size(self) except -1:
        """Bytes of the arguments of a request that is waiting (for a key or the end of a pause) or partly received."""
        cdef Py_ssize_t size = self.parser.args_size
        waiting = self.postponed if self.blocked is None else self.blocked.request.args
        if waiting is not None:
            for arg in waiting:
                size += len(arg)
        return size

    cpdef long long output_size(self) except -1:
        """Bytes of replies not yet accepted by the kernel."""
        cdef long long size = <long long>unsent_bytes(self.reply)
        if self.is_congested and self.transport is not None:
            size += <long long>self.transport.get_write_buffer_size()
        if self.outflow is not None:
            size += self.outflow.unsent()
        return size

    cdef int hold_name(self, bytes name) except -1:
        """Start counting a name that the client subscribes to, watches or tracks."""
        cdef ClientHost host = self.host
        cdef Py_ssize_t size = PyBytes_GET_SIZE(name) + NAME_BYTES
        self.names_size += size
        host.names_size += size + NAME_SHARED_BYTES
        return 0

    cdef int drop_name(self, bytes name) except -1:
        """Stop counting a name."""
        cdef ClientHost host = self.host
        cdef Py_ssize_t size = PyBytes_GET_SIZE(name) + NAME_BYTES
        self.names_size -= size
        host.names_size -= size + NAME_SHARED_BYTES
        return 0

    cdef int hold_args(self, list args) except -1:
        """Start counting a request that waits: for a key, or the end of a pause."""
        cdef bytes arg
        self.drop_args()
        for arg in args:
            self.held_size += PyBytes_GET_SIZE(arg) + ARG_BYTES
        self.host.held_size += self.held_size
        return 0

    cdef int drop_args(self) except -1:
        """Stop counting it."""
        self.host.held_size -= self.held_size
        self.held_size = 0
        return 0

    cpdef long long memory_usage(self) except -1:
        """Memory used by this client in bytes, including buffers and names; the fixed part is an estimate."""
        cdef long long size = 1024 + self.parser.memory() + self.args_size() + self.output_size() + self.names_size
        if self.transaction is not None:
            size += self.transaction.size + self.transaction.objects_size
        return size

    def reset(self, *, bint needs_password):
        """RESET: discard everything that the peer has set."""
        cdef ClientHost host = self.host
        self.db = host.databases[0]
        self.reply.resp = 2
        self.name = b""
        self.no_evict = self.no_touch = False
        if self.reply_mode != REPLY_SKIP:  # which applies to RESET's own reply
            self.reply_mode = REPLY_ON
        self.set_authenticated(not needs_password)

    def shut_down(self):
        """Send what is ready and close."""
        self.close_after_reply = True
        self.flush()
        if self.transport is not None and (self.is_congested or unsent_bytes(self.reply)):
            if not self.reply.is_cut:
                self.transport.write(self.reply.take())
            self.transport.close()

    def close(self):
        """Drop the connection at once; unsent replies are lost, and the client is removed."""
        cdef ClientHost host = self.host
        self.close_after_reply = True
        self.reply.release()
        host.forget(self)
        if self.transport is not None:
            self.transport.abort()
