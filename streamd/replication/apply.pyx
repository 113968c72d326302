# cython: language_level=3, boundscheck=False, wraparound=False
"""PrimaryClient: the connection to the primary while it carries the replication stream, and what runs that stream.

What arrives are effects, complete requests that have the same result wherever they are run. Each is parsed, routed and
run like a request of a client, but without what a client needs: no permissions, no refusals, no limits, no reply.

    data_received ─▶ RequestParser ─▶ apply ─▶ handler ─▶ engine
                                        │                    └─▶ events of keys   ─▶ WATCH, caching, keyspace events
                                        ├─▶ effects: the append-only file
                                        └─▶ keys that became ready: waiting clients are served
         bytes of complete commands ─▶ follower.stream_passed: the offset, the backlog, replicas of this replica

A transaction is run when its EXEC has arrived, as one unit; until then none of it counts. So the offset is always that
of a state which the primary had, and a link that breaks in the middle of a command or a transaction asks for all of it
again.

While commands are applied, expired keys are kept: the primary sends a DEL when it removes one, and until then its
commands may still change it.

Invariants, between two calls: `passed` <= `executed` <= `fed`, and `pieces` holds the bytes from `passed` to `fed`,
behind the first `taken` ones.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.ref cimport PyObject
from libc.stdint cimport INT64_MAX

from collections import deque
import logging

from streamd.core.client cimport Client
from streamd.core.clock cimport monotonic_us
from streamd.core.context cimport act_for
from streamd.core.dispatch cimport BUSY, HAS_MONITORS, PAUSED, REFUSING, Dispatcher
from streamd.core.effects cimport EVERYWHERE
from streamd.core.redaction import redacted
from streamd.core.route cimport ADMIN, FAILED, SKIP_MONITOR, Route
from streamd.keyspace.database cimport Database
from streamd.errors import INTERNAL_ERROR, CommandError, ProtocolError, ReplicationError, StreamLostError
from streamd.protocol.reply cimport ReplyWriter

__all__ = ["PrimaryClient"]

log = logging.getLogger("streamd")

cdef bytes VIEW_MARK = b"view:"     # begins the argument of GETACK that is the beginning of a view, see views.py

cdef enum:
    SHARE_US = 5000             # how long the stream may be applied before clients get their turn


@cython.final
cdef class PrimaryClient(Client):
    """The connection to the primary, from the end of the synchronization on; made with the server's dispatcher."""

    def __init__(self, Dispatcher dispatcher not None):
        cdef dict routes = dispatcher.routes.by_full_name
        self.dispatcher = dispatcher
        self.context = dispatcher.context
        self.is_primary = True
        self.user = None
        self.authenticated = self.parser.authenticated = True
        self.state = 0
        self.parser.max_bulk_len = INT64_MAX
        self.unsent = ReplyWriter()
        self.pieces = deque()
        self.multi, self.exec, self.discard = routes.get("multi"), routes.get("exec"), routes.get("discard")
        self.replconf = routes.get("replconf")

    def begin(self, follower not None, int db_index):
        """Say who is told about the stream (see the stub), and which database the stream has selected."""
        self.follower = follower
        self.db = self.dispatcher.databases[db_index]

    # --- Callbacks of the event loop -----------------------------------------------------------------------------

    def connection_made(self, transport):
        self.transport = transport
        self.dispatcher.clients[self.id] = self
        sock = transport.get_extra_info("socket")
        if sock is not None and transport.get_extra_info("ssl_object") is None:
            transport.set_write_buffer_limits(high=0)       # see `Client.connection_made`
            self.fd = sock.fileno()

    @property
    def unexecuted(self):
        """Bytes of the stream that have arrived and were not executed."""
        return self.fed - self.executed

    def tell(self, bytes request not None):
        """Send the primary a request, at once: clients there may wait for it."""
        if self.is_congested or self.fd < 0:
            self.transport.write(request)
        else:
            self.send_some(PyBytes_AS_STRING(request), <size_t>PyBytes_GET_SIZE(request))

    def data_received(self, bytes data):
        cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
        self.total_net_in += size
        self.read_events += 1
        self.dispatcher.total_reads += 1
        self.last_interaction_us = monotonic_us()
        if self.is_stopped or not size:
            return
        self.pieces.append(data)
        self.fed += size
        self.parser.feed(data)
        if not self.is_put_off_here:
            self.work()

    def eof_received(self):
        return False

    def connection_lost(self, exc):
        Client.connection_lost(self, exc)
        self.is_stopped = True
        self.follower.stream_ended(self)

    def stop(self):
        """Run nothing more, and close the connection."""
        self.is_stopped = True
        self.close()

    # --- The stream ------------------------------------------------------------------------------------------------

    cdef int work(self) except -1:
        """Run what has arrived, for as long as it is the stream's turn."""
        cdef object failure = None
        if self.dispatcher.state & (BUSY | PAUSED):
            return 0
        self.enter()
        try:
            self.work_on()
        except (ProtocolError, ReplicationError) as error:
            failure = error
        finally:
            self.leave()
        self.pass_on()
        self.dispatcher.schedule()
        if failure is not None:
            self.is_stopped = True
            self.follower.stream_failed(failure)
        return 0

    def resume(self):
        """Run the rest of what was received: in a turn of its own, or after a pause."""
        self.is_put_off_here = False
        self.share_turn = -1
        if not self.is_stopped:
            self.go_on()
            self.work()

    cdef int work_on(self) except -1:
        cdef list args
        cdef long long end
        cdef long long applied = 0
        while not self.is_stopped:
            if self.parser.args is None and self.parser.pos < self.parser.size:
                if self.parser.input[self.parser.pos] not in b"*\r\n":
                    raise StreamLostError("WARNING: Receiving inline protocol from master, master stream corruption?")
            args = self.parser.next_request()
            if args is None:
                break
            end = self.fed - (self.parser.size - self.parser.pos)
            if args:
                self.apply(args)
                applied += 1
                if self.queued is None:
                    self.executed = end
            else:
                self.dispatcher.ended_us = monotonic_us()
                if self.queued is None:
                    # A keepalive. It is not part of the history that replicas of this replica get.
                    self.pass_on()
                    self.take(<Py_ssize_t>(end - self.passed))
                    self.executed = end
            if self.dispatcher.ended_us > self.share_ends_us:
                # Even if nothing is left: the event loop reads on as long as there is something to read.
                self.is_put_off_here = True
                if self.transport is not None and not self.transport.is_closing():
                    self.transport.pause_reading()
                self.dispatcher.loop.call_soon(self.resume)
                break
        if applied:
            self.batches += 1
            self.batched_commands += applied
        return 0

    cdef int enter(self) except -1:
        """From now on, handlers apply what the primary has decided."""
        cdef ServerContext context = self.context
        cdef Database db
        self.dispatcher.look_at_clocks()
        if self.share_turn != self.dispatcher.turns:
            self.share_turn = self.dispatcher.turns
            self.share_ends_us = self.dispatcher.ended_us + SHARE_US
        self.has_files = len(self.dispatcher.effects.files) > 0
        if self.dispatcher.state & REFUSING:
            self.follower.stream_refused()
        for db in context.databases:
            db.keeps_expired = True
        context.is_replaying = context.in_transaction = True
        context.is_propagating = False
        self.dispatcher.executing = self
        return 0

    cdef int leave(self) except -1:
        """The opposite of `enter`."""
        cdef ServerContext context = self.context
        cdef Database db
        self.dispatcher.executing = None
        context.is_replaying = context.in_transaction = False
        self.dispatcher.effects.follow_sinks()
        for db in context.databases:
            db.keeps_expired = False
        return 0

    cdef int apply(self, list args) except -1:
        """Run one command of the stream, or queue it until the EXEC of its transaction."""
        cdef Route route = self.dispatcher.routes.find(args)
        cdef Py_ssize_t argc = len(args)
        if route is None:
            self.follower.stream_unknown(args, self.dispatcher.routes.explain_unknown(args))
        elif not route.accepts(argc):
            self.follower.stream_unknown(args, route.wrong_arity)
        elif route is self.multi:
            self.queued = []
        elif self.queued is None:
            if route is not self.replconf:
                self.call(route, args)
                return self.finish_unit()
            if argc > 2 and (<bytes>args[2]).startswith(VIEW_MARK):
                self.follower.stream_marked(args[2])
            self.follower.stream_asked(<Py_ssize_t>(self.executed - self.passed))
        elif route is self.exec:
            return self.apply_group()
        elif route is self.discard:
            self.queued = None
        else:
            self.queued.append((route, args))
        self.dispatcher.ended_us = monotonic_us()   # as after a call: the share of the turn is measured by it
        return 0

    cdef int apply_group(self) except -1:
        """Run a transaction."""
        cdef list queued = self.queued
        cdef Route route
        cdef list args
        self.queued = None
        for route, args in queued:
            self.call(route, args)
        return self.finish_unit()

    cdef int call(self, Route route, list args) except -1:
        """Call a handler."""
        cdef Dispatcher dispatcher = self.dispatcher
        cdef ServerContext context = self.context
        cdef Database db = self.db
        cdef unsigned long long dirty = context.dirty
        cdef long long started = dispatcher.ended_us
        act_for(context, self, db, self.unsent)
        context.now_ms = db.now_ms = (started + dispatcher.wall_offset_us) // 1000
        db.touch_on_access = True
        self.last_command = route.command
        dispatcher.executing_args = <PyObject *>args
        try:
            route.handler(context, args)
        except Exception as error:
            self.note_error(route, args, error)
        self.unsent.truncate(0)
        dispatcher.ended_us = monotonic_us()
        dispatcher.count(self, route, args, dispatcher.ended_us - started)
        if self.has_files and context.dirty != dirty:
            context.is_propagating = True
            dispatcher.effects.add(db.index, args, EVERYWHERE)
            context.is_propagating = False
        if dispatcher.state & HAS_MONITORS and not route.flags & (ADMIN | SKIP_MONITOR):
            dispatcher.monitor.show_request(self, redacted(route.command.full_name, args))
        return 0

    cdef int note_error(self, Route route, list args, error) except -1:
        """A command of the primary has failed here: the two may no longer hold the same data."""
        cdef Dispatcher dispatcher = self.dispatcher
        cdef str text = str(error)
        if not isinstance(error, CommandError):
            log.exception("Unexpected error while running a command of the primary", exc_info=error)
            text = INTERNAL_ERROR
        dispatcher.unexpected_errors += 1
        dispatcher.count_error(route, FAILED, text)
        self.follower.stream_error(text, route.command.full_name, args)
        return 0

    cdef int finish_unit(self) except -1:
        """What follows a unit: its effects go to files, and clients that wait for its keys are served."""
        cdef Dispatcher dispatcher = self.dispatcher
        if dispatcher.effects.pending:
            dispatcher.effects.finish_unit()
        if dispatcher.has_after_reply:
            dispatcher.read_observer.unit_done(self)
        if dispatcher.ready:
            self.leave()
            try:
                dispatcher.serve_ready()
            finally:
                self.enter()
        return 0

    # --- Bytes -------------------------------------------------------------------------------------------------------

    cdef int pass_on(self) except -1:
        """Pass on the bytes of the commands that have been executed since the last time."""
        cdef long long count = self.executed - self.passed
        if count > 0:
            self.follower.stream_passed(self.take(<Py_ssize_t>count))
        return 0

    cdef bytes take(self, Py_ssize_t count):
        """Remove the first bytes of `pieces`. O(count)."""
        cdef list taken = []
        cdef bytes piece
        cdef Py_ssize_t size
        self.passed += count
        while count:
            piece = self.pieces[0]
            size = min(count, PyBytes_GET_SIZE(piece) - self.taken)
            taken.append(piece if size == PyBytes_GET_SIZE(piece) else piece[self.taken : self.taken + size])
            self.taken += size
            count -= size
            if self.taken == PyBytes_GET_SIZE(piece):
                self.pieces.popleft()
                self.taken = 0
        return b"".join(taken)
