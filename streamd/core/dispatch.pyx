# cython: language_level=3, boundscheck=False, wraparound=False
"""Dispatcher: takes requests from clients, checks them and runs their handlers.

A request passes through these stages, in one direction:

    process     takes complete requests from a client's parser until it has to wait or has used its share of the turn
    execute     does the command exist, and is the number of arguments right?
    gate        only in special states of the client or the server: not authenticated, in a transaction, paused, ...
    run         one unit, a command or a transaction, with all its consequences: reply, pushes, effects, and the
                clients waiting for a key that is now ready
    perform     one command, counted, timed, and shown to monitors
    call        the handler and its errors

Clients that wait for a key are served after each command that made one ready, first come, first served, until no key
is ready: blocking.pyx decides whose turn it is, and `run_again` runs the request. turn.pyx has the end of a turn of
the loop.

Capabilities are called where a state bit or an attribute says that one of them wants it: `find_refusal`, `monitor`,
`read_observer`, `router`, `slow_us`, the sinks of `effects`.

Invariants: a handler replies exactly once, or raises CommandError (what it had written is dropped), or asks to wait
(`block_on`). Any other exception that escapes a handler is a bug in streamd: it is logged, the client gets one error
reply, and the server keeps running.
"""

from cpython.ref cimport PyObject
from libc.stdint cimport INT64_MAX

import logging

from streamd.core.blocking cimport Blocked, BlockedClients
from streamd.core.capability cimport Capability
from streamd.core.client cimport (
    IN_MULTI, LIMITED, MONITORING, REPLY_LAST, REPLY_NEVER, REPLICA, REPLY_ON, REPLY_SKIP, REPLY_SKIP_ARMED, STRANGER,
    TRACKING, Client,
)
from streamd.core.clock cimport monotonic_us
from streamd.core.context cimport BlockRequest, Context, Frame, act_for
from streamd.core.effects cimport EVERYWHERE, REPLICAS, Effects
from streamd.core.histogram cimport Histogram
from streamd.core.key_changes cimport KeyChanges
from streamd.core.redaction import redacted
from streamd.core.route cimport (
    ADMIN, AT_ONCE, DENY_OOM, FAILED, MAY_REPLICATE, NO_AUTH, NO_MULTI, READ_ONLY, REFUSED, RUNS_SCRIPT, SEES_DATA,
    SKIP_MONITOR, WRITE, Failure, Route, Routes,
)
from streamd.core.transaction cimport Transaction, Transactions
from streamd.keyspace.database cimport Database
from streamd.shared_bytes cimport SharedBytes
from streamd.errors import INTERNAL_ERROR, CommandError, ProtocolError, UnknownCommandError
from streamd.protocol.reply cimport ReplyWriter, give_back_idle_blocks

__all__ = ["SERVER_STATES", "Dispatcher", "ServerContext", "overrides"]

SERVER_STATES = {
    "memory-limited": MEMORY_LIMITED, "refusing": REFUSING, "tracking-full": TRACKING_FULL,
    "few-replicas": FEW_REPLICAS, "following": FOLLOWING, "fenced": FENCED, "busy": BUSY, "clustered": CLUSTERED,
}  # fmt: skip
"""ServerState, for `Capability.server_bits` in Python."""

log = logging.getLogger("streamd")

cdef enum:
    STRANGER_INPUT = 1 << 20    # maximum bytes of a request from an unauthenticated client
    MOST_CODES = 128            # codes of errors that are counted; scripts make up their own
    CODE_ROOM = 31              # characters in which the code of an error ends, if it has one


cdef class ServerContext(Context):
    """The context that a server's handlers get."""

    cpdef block_on(self, object request):
        if self.in_transaction:
            self.reply.null_array()
        else:
            self.dispatcher.blocked.block(self.client, self.db, <BlockRequest>request)

    def data_dropped(self):
        if not self.is_replaying:
            for capability in self.dispatcher.capabilities:
                capability.data_dropped()

    # --- Transactions: MULTI and related commands ------------------------------------------------------------

    def begin_transaction(self):
        """Start queueing the client's requests."""
        self.dispatcher.transactions.begin(self.client)

    def end_transaction(self):
        """Drop the queued requests and the watched keys."""
        self.dispatcher.transactions.end(self.client)

    def run_transaction(self):
        """EXEC: run the queued requests; the reply has one element for each."""
        cdef Client client = self.client
        cdef Transaction transaction = client.transaction
        if transaction is None:
            raise CommandError("ERR EXEC without MULTI")
        if transaction.is_aborted:
            self.end_transaction()
            raise CommandError("EXECABORT Transaction discarded because of previous errors.")
        if self.dispatcher.transactions.is_stale(client):
            self.end_transaction()
            self.dispatcher.unit_flags |= SEES_DATA     # the reply shows that somebody has written
            self.reply.null_array()
            return
        self.dispatcher.run_transaction(client)

    def watch(self, bytes key not None):
        """WATCH: from now on, a change of the key aborts the client's next transaction."""
        self.dispatcher.transactions.watch(self.client, self.db, key)

    def unwatch(self):
        """Stop watching all keys."""
        self.dispatcher.transactions.unwatch(self.client)

    # --- Subscriptions --------------------------------------------------------------------------------------------

    def confirmations(self):
        """Where a command confirms (un)subscriptions: in its reply, but CLIENT REPLY does not suppress them."""
        cdef Client client = self.client
        if client.reply_mode == REPLY_ON:
            return self.reply
        if client.confirmed is None:
            client.confirmed = client.new_writer()
        return client.confirmed

    def propagate_to_replicas(self, list args not None):
        """Propagate a command that changed nothing here to replicas, but not to files."""
        self.dispatcher.effects.add(self.db.index, args, REPLICAS)


cdef class Dispatcher(Turn):
    """The server's inner loop.

    commands   the command table: upper-case name -> spec.Command
    databases  by index
    """

    def __cinit__(self, commands, list databases not None, loop):
        cdef Database db
        self.loop = loop
        self.databases = databases
        self.context = ServerContext()
        self.context.databases = databases
        self.context.dispatcher = self
        self.routes = Routes(commands)
        self.errorstats = {}
        self.ready = {}
        self.blocked = BlockedClients(self, loop)
        self.effects = Effects(self, self.context)
        self.key_changes = KeyChanges(self, self.effects)
        self.transactions = Transactions(self, self.key_changes)
        self.slow_us = INT64_MAX
        self.take_capabilities(())
        for db in databases:
            db.ready = self.ready
            db.listener = self.key_changes

    # --- Capabilities ---------------------------------------------------------------------------------------------

    def take_capabilities(self, capabilities):
        """Install the capabilities; they are called in this order."""
        self.capabilities = (self.transactions, *capabilities)
        self.greeting = tuple([each for each in self.capabilities if overrides(each, "client_connected")])
        self.leaving = tuple([each for each in self.capabilities if overrides(each, "client_gone")])
        self.before = tuple([each for each in self.capabilities if overrides(each, "before_replies")])
        self.after = tuple([each for each in self.capabilities if overrides(each, "after_replies")])
        self.follow_capabilities()

    def follow_capabilities(self):
        """A capability has changed its `client_bits`, `server_bits` or `slow_us`."""
        cdef Capability each
        refusing = [each for each in self.capabilities if each.client_bits or each.server_bits]
        self.refusing = tuple(sorted(refusing, key=rank))
        self.refusing_clients = self.refusing_server = 0
        self.slow_us = INT64_MAX
        for each in self.capabilities:
            self.refusing_clients |= each.client_bits
            self.refusing_server |= each.server_bits
            self.slow_us = min(self.slow_us, each.slow_us)

    def reset_stats(self):
        """CONFIG RESETSTAT."""
        self.routes.reset_statistics()
        self.errorstats.clear()
        self.has_many_codes = False
        self.total_commands = self.total_error_replies = self.unexpected_errors = 0
        self.net_input_bytes = self.net_output_bytes = 0
        self.total_reads = self.total_writes = 0
        self.processing_events = self.batches = self.batched_commands = 0
        self.turns = self.turns_us = self.commands_us = 0
        self.closed_for_input = self.closed_for_output = 0

    # --- Connecting and disconnecting clients ---------------------------------------------------------------------

    cdef int register(self, Client client, object sock) except -1:
        self.clients[client.id] = client
        client.limit_output()
        for capability in self.greeting:
            capability.client_connected(client, sock)
            if client.close_after_reply:
                break
        return 0

    cdef int forget(self, Client client) except -1:
        if self.clients.pop(client.id, None) is not None:
            self.blocked.drop(client)
            client.drop_args()
            if client.state & REPLICA:
                self.replica_count -= 1
            for capability in self.leaving:
                capability.client_gone(client)
        return 0

    cdef int process(self, Client client) except -1:
        """Run every complete request of a client until it has to wait or has used its share of the turn.

        The caller has read the clocks.
        """
        cdef list args
        cdef long long limit_us = self.ended_us + self.share_us
        cdef long long parsed = 0, unread
        self.processing_events += 1
        if self.turn_started_us == 0:
            self.turn_started_us = self.ended_us
        while client.can_run():
            try:
                args = client.parser.next_request()
            except ProtocolError as error:
                self.refuse(client, str(error))
                break
            if args is None:
                break
            parsed += 1
            if args:
                self.execute(client, args)
            else:
                self.ended_us = monotonic_us()
            if client.reply.length >= self.output_watch[client.output_class] or client.state & STRANGER:
                self.check_output(client)
            # Even if nothing is left: the event loop may be about to read the next piece.
            if self.ended_us > limit_us and client.can_run():
                client.put_off()
        if parsed:
            client.batches += 1
            client.batched_commands += parsed
            self.batches += 1
            self.batched_commands += parsed
        if client.reply.length or client.close_after_reply or self.limits_clients:
            client.want_write()
        unread = client.parser.unread()
        if unread + client.parser.args_size > self.query_buffer_limit or (
            client.transaction is not None
            and unread + (<Transaction>client.transaction).size > self.query_buffer_limit
        ) or (client.state & STRANGER and unread > STRANGER_INPUT):
            log.warning("Closing client that reached max query buffer length: id=%d addr=%s", client.id, client.address)
            self.closed_for_input += 1
            client.close()
        return 0

    cdef int refuse(self, Client client, str text) except -1:
        """Reply to a protocol error and close the connection; without a text, close it at once (see RequestParser)."""
        cdef size_t mark = client.reply.length
        if text:
            self.answer_error(client, None, REFUSED, text)
            self.finish_reply(client, mark)
            client.close_after_reply = True
        else:
            client.close()
        return 0

    def run_postponed(self, Client client not None):
        """Run the request held back by a pause, and those after it."""
        cdef list args = client.postponed
        if args is not None:
            client.postponed = None
            client.drop_args()
            self.look_at_clocks()
            self.execute(client, args)
            self.process(client)

    @property
    def pause(self):
        """CLIENT PAUSE: 0: no pause, 1: writes wait, 2: everything waits."""
        return self._pause

    @pause.setter
    def pause(self, int mode):
        self._pause = mode
        self.change_state(PAUSED, mode != 0)
        self.follow_holds()

    @property
    def is_replica(self):
        """Whether the data is a replica's: expired keys count as missing, and the primary says when they go."""
        return self._is_replica

    @is_replica.setter
    def is_replica(self, bint is_replica):
        self._is_replica = is_replica
        self.follow_holds()

    @property
    def keeps_keys(self):
        """Whether a primary must not change data by itself: it is not yet sure to be the primary."""
        return self._keeps_keys

    @keeps_keys.setter
    def keeps_keys(self, bint keeps_keys):
        self._keeps_keys = keeps_keys
        self.follow_holds()

    cdef int follow_holds(self) except -1:
        """During a pause, and where somebody else decides, expired keys are kept."""
        cdef Database db
        for db in self.context.databases:
            db.holds_expired = self._pause != 0 or self._is_replica or self._keeps_keys
        return 0

    cdef bint holds_back(self, Client client, Route route) noexcept:
        """Whether a pause holds back a request."""
        return not client.state & MONITORING and (
            self._pause == 2 or self.has_flags(client, route, WRITE | MAY_REPLICATE) != 0
        )

    def serve_held_back(self):
        """After a pause, a fence or a slow script: serve the clients waiting for a key that has changed since."""
        cdef Database db
        if self.has_held_back:
            self.has_held_back = False
            for db in self.context.databases:
                db.signal_all()
            self.serve_ready()

    @property
    def is_refusing(self):
        """Whether commands are refused because of the server's files or their state."""
        return self.state & REFUSING != 0

    @is_refusing.setter
    def is_refusing(self, bint is_on):
        self.change_state(REFUSING, is_on)

    cpdef int change_state(self, int state, bint is_on) except -1:
        """Add one ServerState to the server's set, or remove it."""
        self.state = self.state | state if is_on else self.state & ~state
        return 0

    def advance(self, long long by_us):
        """Set this server's Unix time forward, for tests. The caller does what is due, and lets clients catch up."""
        self.advanced_us += by_us
        self.wall_read_us = 0
        self.look_at_clocks()
        self.blocked.advance(by_us)

    def cron(self):
        """Serve the clients waiting for keys that expired; check the clients that do not read."""
        cdef Client client
        give_back_idle_blocks()
        self.effects.finish_unit()
        self.serve_ready()
        for client in list(self.clients.values()):
            if client.is_congested:
                self.check_output(client)

    # --- One request ------------------------------------------------------------------------------------------------

    cdef int execute(self, Client client, list args) except -1:
        """Check one request and run it."""
        cdef Route route = self.routes.find(args)
        cdef bint is_plain
        if route is None:
            return self.reject(client, None, args, self.routes.explain_unknown(args))
        if not route.accepts(len(args)):
            return self.reject(client, route, args, route.wrong_arity)
        if client.state or self.state:
            # Most requests to a node of a cluster have one key, which is served here, and nothing else is in the way.
            is_plain = client.state == 0 and self.state == CLUSTERED and self.router.is_served(route, args)
            if not is_plain and self.gate(client, route, args):
                return 0
        if route.flags & RUNS_SCRIPT and self.script_runner is not None:
            return self.script_runner.run_unit(client, route, args)
        return self.run(client, route, args)

    cdef int gate(self, Client client, Route route, list args) except -1:
        """The checks before a handler runs, for special states of the client or the server.

        Returns 1 if the request must not run.
        """
        cdef str refusal
        client.last_command = route.command     # what a refusal notes of the client shows it
        self.script_flags = route.flags
        if route.flags & RUNS_SCRIPT and self.script_runner is not None:
            self.script_flags = self.script_runner.request_flags(client, route, args)
        refusal = self.find_refusal(client, route, args)
        if refusal is not None:
            if refusal:                         # else the client is closed without a reply
                self.reject(client, route, args, refusal)
            return 1
        if self.state & PAUSED and self.holds_back(client, route):
            client.postponed = args
            client.hold_args(args)
            self.pause_keeper.hold_back(client)
            return 1
        if client.state & IN_MULTI and not route.flags & AT_ONCE:
            self.queue(client, route, args)
            return 1
        return 0

    cdef str find_refusal(self, Client client, Route route, list args):
        """The error with which a request is refused now, or None. The order of the checks is Redis's."""
        cdef Capability capability
        cdef str refusal
        if client.state & STRANGER and not route.flags & NO_AUTH:
            return "NOAUTH Authentication required."
        if client.state & IN_MULTI and route.flags & NO_MULTI:
            return "ERR Command not allowed inside a transaction"
        if not client.state & self.refusing_clients and self.state & self.refusing_server == CLUSTERED:
            refusal = self.router.find_refusal(client, route, args)     # nothing else is asked at a node of a cluster
            if refusal is not None:
                self.refuser = self.router
            return refusal
        if client.state & self.refusing_clients or self.state & self.refusing_server:
            for capability in self.refusing:
                if client.state & capability.client_bits or self.state & capability.server_bits:
                    refusal = capability.find_refusal(client, route, args)
                    if refusal is not None:
                        self.refuser = capability
                        return refusal
        return None

    cdef str find_denial(self, Client client, Route route, list args):
        """The error if the client's user may no longer run a request that was permitted before, or None."""
        cdef Capability capability
        for capability in self.refusing:
            if capability.client_bits & LIMITED:
                refusal = capability.find_refusal(client, route, args)
                if refusal is not None:
                    return refusal
        return None

    cdef int has_flags(self, Client client, Route route, int flags) noexcept:
        """Which of the given RouteFlag bits a request has: its own, or, for EXEC, those of the transaction.

        If it runs a script, the script's flags count; they are known of the request in `gate`, and of no other.
        """
        if route is self.routes.exec_route and client.transaction is not None:
            return (<Transaction>client.transaction).flags & flags
        if route.flags & RUNS_SCRIPT:
            return self.script_flags & flags
        return route.flags & flags

    cpdef bint is_write(self, Client client, Route route) noexcept:
        """Whether a request may change data, itself or as a transaction."""
        return self.has_flags(client, route, WRITE) != 0

    cpdef bint needs_memory(self, Client client, Route route) noexcept:
        """Whether a request may make the data set larger, itself or as a transaction."""
        return self.has_flags(client, route, DENY_OOM) != 0

    cdef int queue(self, Client client, Route route, list args) except -1:
        """Queue a request until EXEC."""
        cdef size_t mark = client.reply.length
        (<Transaction>client.transaction).queue(route, self.script_flags, args)
        client.reply.simple(b"QUEUED")
        self.ended_us = monotonic_us()
        self.finish_reply(client, mark)
        if self.reply_keeper is not None:
            self.reply_keeper.reply_written(client, 0, mark)
        return 0

    cdef int reject(self, Client client, Route route, list args, str text) except -1:
        """Refuse a request before its handler runs; `route` is None if the command does not exist."""
        cdef size_t mark = client.reply.length
        client.last_command = None if route is None else route.command
        if client.transaction is not None:
            (<Transaction>client.transaction).is_aborted = True
        if route is not None and route is self.routes.exec_route:
            if self.refuser is None or self.refuser is not self.router:     # clients follow a redirection as it is
                text = f"EXECABORT Transaction discarded because of: {text.removeprefix('ERR ')}"
            self.transactions.end(client)
        self.refuser = None
        if client.state & TRACKING:
            self.read_observer.request_done(client, route)
        self.answer_error(client, route, REFUSED, text)
        self.ended_us = monotonic_us()
        self.finish_reply(client, mark)
        if self.reply_keeper is not None:
            self.reply_keeper.reply_written(client, 0, mark)
        if self.state & HAS_MONITORS and route is not None and route is self.routes.exec_route:
            self.monitor.show_request(client, args)  # of refused requests, Redis shows only EXEC
        return 0

    cdef int run(self, Client client, Route route, list args) except -1:
        """Run a checked request, with all its consequences: reply, pushes, effects, clients waiting for its keys."""
        cdef size_t mark = client.reply.length
        self.unit_mark = mark
        self.unit_flags = 0
        self.executing = client
        self.executing_args = <PyObject *>args
        client.last_command = route.command
        self.perform(client, route, args)
        self.executing = None
        if self.has_run_transaction:
            # CLIENT REPLY inside it was applied to each part of the reply.
            self.has_run_transaction = False
            mark = client.reply.length
        self.finish_reply(client, mark)
        if client.deferred is not None or client.confirmed is not None:
            self.finish_pushes(client)
        if client.state & TRACKING:
            self.read_observer.request_done(client, route)
        if self.has_after_reply:
            self.read_observer.unit_done(client)
        if self.effects.pending:
            self.effects.finish_unit()
            if self.effects.counter is not None:
                client.write_offset = self.effects.counter.offset
        if self.reply_keeper is not None:
            self.reply_keeper.reply_written(client, self.unit_flags, self.unit_mark)
        if self.ready:
            self.serve_ready()
            self.ended_us = monotonic_us()  # time spent serving others does not count for the next command
        return 0

    cdef int perform(self, Client client, Route route, list args) except -1:
        """Run one command, record its duration, and show it to monitors."""
        cdef long long started = self.ended_us
        self.unit_flags |= route.flags
        self.call(client, route, args)
        self.ended_us = monotonic_us()
        if client.blocked is None:
            self.count(client, route, args, self.ended_us - started)
        else:
            (<Blocked>client.blocked).begin(route, args, self.ended_us - started)
        if self.state & HAS_MONITORS and not route.flags & (ADMIN | SKIP_MONITOR):
            self.monitor.show_request(client, redacted(route.command.full_name, args))
        return 0

    cdef int run_inner(self, Client client, Route route, list args) except -1:
        """Run one command as a part of the running one, on behalf of `client`, which has no connection.

        Nothing waits, time stands still, and the effects belong to the running unit. The context's `go_back` follows.
        """
        self.ended_us = monotonic_us()
        return self.perform(client, route, args)

    @property
    def is_busy(self):
        """Whether a unit has been put aside, and most requests are refused until it ends."""
        return self.state & BUSY != 0

    cdef UnitState put_aside(self):
        """Put the running unit aside, so that other requests can run in the middle of it."""
        cdef ServerContext context = self.context
        cdef UnitState unit = UnitState.__new__(UnitState)
        unit.executing = self.executing
        unit.executing_args = self.executing_args
        unit.unit_mark = self.unit_mark
        unit.has_run_transaction = self.has_run_transaction
        unit.unit_flags = self.unit_flags
        unit.frame = context.frame()
        unit.aside_us = self.ended_us
        unit.pending = self.effects.pending
        unit.has_redirected = self.effects.has_redirected
        self.effects.pending = []
        self.effects.has_redirected = False
        self.executing = None
        self.has_run_transaction = context.in_transaction = context.is_replaying = False
        self.change_state(BUSY, True)
        return unit

    cdef int take_up(self, UnitState unit) except -1:
        """Go on with a unit that was put aside."""
        cdef ServerContext context = self.context
        self.change_state(BUSY, False)
        self.executing = unit.executing
        self.executing_args = unit.executing_args
        self.unit_mark = unit.unit_mark
        self.has_run_transaction = unit.has_run_transaction
        self.unit_flags = unit.unit_flags
        self.effects.pending = unit.pending
        self.effects.has_redirected = unit.has_redirected
        context.go_back(unit.frame)
        context.db.now_ms = context.now_ms
        self.ended_us = unit.aside_us
        return 0

    cdef int count(self, Client client, Route route, list args, long long took_us) except -1:
        """Count a command that has finished."""
        route.calls += 1
        route.usec += took_us
        client.total_commands += 1
        self.total_commands += 1
        if not self.context.in_transaction:
            self.commands_us += took_us
        if self.tracks_latency:
            if route.histogram is None:
                route.histogram = Histogram()
            route.histogram.record(took_us)
        if took_us >= self.slow_us:
            self.note_slow(client, route, args, took_us)
        return 0

    cdef int note_slow(self, Client client, Route route, list args, long long took_us) except -1:
        """Notify the capabilities that asked for slow commands."""
        cdef Capability capability
        for capability in self.capabilities:
            if took_us >= capability.slow_us:
                capability.command_took(client, route, args, took_us)
        return 0

    @property
    def reply_size(self):
        """Bytes of the reply to the running request so far; for a transaction, of the whole reply."""
        cdef size_t end = 0 if self.executing is None else self.executing.reply.length
        return end - self.unit_mark if end > self.unit_mark else 0

    def running(self):
        """The client whose command is running, its Route and its arguments; (None, None, ()) between commands."""
        if self.executing is None:
            return None, None, ()
        args = <object>self.executing_args
        return self.executing, self.routes.find(args), args

    cdef int run_transaction(self, Client client) except -1:
        """Run the queued requests of a client, as elements of one reply."""
        cdef Transaction transaction = client.transaction
        cdef Route route
        cdef list args
        cdef size_t mark
        cdef bint is_closing = False
        client.transaction = None
        client.change_state(IN_MULTI, False)
        self.transactions.unwatch(client)
        if not client.is_silent():
            client.reply.array_header(len(transaction.requests))
        self.has_run_transaction = True
        self.context.in_transaction = True
        try:
            for route, args in transaction.requests:
                mark = client.reply.length
                refusal = None
                if client.state & LIMITED:
                    refusal = self.find_denial(client, route, args)
                if refusal is None:
                    self.perform(client, route, args)
                else:
                    self.answer_error(client, route, REFUSED, refusal)
                if client.is_silent() or is_closing:
                    client.reply.truncate(mark)
                elif client.reply.length >= self.output_watch[client.output_class]:
                    self.check_output(client)  # check here: the whole reply may be a thousand times the limit
                is_closing = client.close_after_reply  # CLIENT KILL: its own reply is the last
                if client.confirmed is not None:
                    client.reply.raw_c(client.confirmed.data, client.confirmed.length)
                    client.confirmed = None
        finally:
            self.context.in_transaction = False
        return 0

    cdef int finish_pushes(self, Client client) except -1:
        """Send the pushes of a command to its own client."""
        cdef ReplyWriter confirmed = client.confirmed
        cdef ReplyWriter deferred = client.deferred
        client.confirmed = client.deferred = None
        if confirmed is not None:
            client.deliver(confirmed.data, confirmed.length)
        if deferred is not None:
            client.deliver(deferred.data, deferred.length)
        return 0

    # --- Waiting clients --------------------------------------------------------------------------------------------

    cdef int run_again(self, Client client) except -1:
        """Run the request of a waiting client; it may ask to keep waiting. Returns 1 if the client got its reply."""
        cdef Blocked blocked = client.blocked
        cdef Route route = blocked.route
        cdef list args = blocked.request.args
        cdef size_t mark = client.reply.length
        cdef long long started
        cdef str refusal = None
        if self.state & BUSY or (self.state & PAUSED and self.holds_back(client, route)) or (
            self.state & FENCED and route.flags & SEES_DATA
        ):
            self.has_held_back = True
            return 0
        self.look_at_clocks()
        started = self.ended_us
        self.executing = client
        blocked.waits_on = False
        if client.state & LIMITED:
            refusal = self.find_denial(client, route, args)
        if refusal is None and self.router is not None:
            refusal = self.router.find_redirection(client, route, args, route.flags)
        if refusal is None:
            self.call(client, route, args)
        else:
            self.answer_error(client, route, REFUSED, refusal)
        self.executing = None
        if self.context.takes_shared:
            self.take_shared(client)
        blocked.spent_us += monotonic_us() - started
        # Served or not, its effects are a unit of their own: it may have created a consumer and keep waiting.
        self.effects.finish_unit()
        if not blocked.waits_on:
            self.finish_wait(client, mark)
            return 1
        # It was not served, but its request may have caused messages to other clients, and to itself.
        if client.deferred is not None:
            self.finish_pushes(client)
        if self.has_after_reply:
            self.read_observer.unit_done(client)
        return 0

    cdef int share_replies(self, bint is_on) except -1:
        self.context.is_sharing = is_on
        self.context.shared = None
        return 0

    cdef int take_shared(self, Client client) except -1:
        """The handler has chosen the reply of another waiting client."""
        cdef SharedBytes *bytes = self.context.shared.bytes
        self.context.takes_shared = False
        if self.reply_keeper is None and client.reply_mode == REPLY_ON and client.takes_shared():
            return client.deliver_shared(bytes)
        return client.reply.raw_c(bytes.data, bytes.size)

    cdef int finish_wait(self, Client client, size_t mark) except -1:
        """A waiting client's request has its reply, starting at `mark`; the client resumes at the end of this turn."""
        cdef Blocked blocked = client.blocked
        self.blocked.end(blocked)
        self.count(client, blocked.route, blocked.args, blocked.spent_us)
        self.finish_reply(client, mark)
        if client.deferred is not None or client.confirmed is not None:
            self.finish_pushes(client)
        if client.state & TRACKING:
            self.read_observer.request_done(client, None)
        if self.has_after_reply:
            self.read_observer.unit_done(client)
        self.effects.finish_unit()
        if self.reply_keeper is not None:
            self.reply_keeper.reply_written(client, blocked.route.flags, mark)
        if client.reply.length:
            client.want_write()
        if client.parser.size > client.parser.pos or client.close_after_reply:
            self.resumed.append(client)
            self.schedule()
        return 0

    cdef int call(self, Client client, Route route, list args) except -1:
        """Call the handler on behalf of a client, and reply with the error that it may raise."""
        cdef ServerContext context = self.context
        cdef size_t mark = client.reply.length
        cdef unsigned long long dirty = context.dirty
        cdef int db_index = client.db.index
        act_for(context, client, client.db, client.reply)
        if not context.in_transaction:
            context.now_ms = (self.ended_us + self.wall_offset_us) // 1000
        context.db.now_ms = context.now_ms
        # Set for every command, so nothing needs to be restored when the handler selects another database.
        context.db.touch_on_access = not client.no_touch
        try:
            route.handler(context, args)
        except CommandError as error:
            client.reply.truncate(mark)
            self.answer_error(client, route, FAILED, str(error))
        except Exception as error:
            self.answer_bug(client, route, mark, error)
        if client.state & TRACKING and route.flags & READ_ONLY:
            self.read_observer.command_read(client, route, args)
        if context.is_propagating and route is not self.routes.exec_route:
            if context.effects is not None:
                for effect in context.effects:
                    self.effects.add(db_index, effect, EVERYWHERE)
            elif context.dirty != dirty:
                self.effects.add(db_index, args, EVERYWHERE)
        return 0

    def replay(self, Client client not None, list args not None):
        """Run a command from a file on behalf of `client`, which has no connection.

        No limits apply, nothing waits or expires, and the reply is dropped. A command that triggers this (DEBUG
        LOADAOF) continues as if nothing had been run. Raises CommandError with the error reply; UnknownCommandError if
        the command does not exist or the number of arguments is wrong, which terminates Redis.
        """
        cdef ServerContext context = self.context
        cdef Frame outer
        cdef Route route = self.routes.find(args)
        if route is None:
            raise UnknownCommandError(self.routes.explain_unknown(args))
        if not route.accepts(len(args)):
            raise UnknownCommandError(route.wrong_arity)
        outer = context.frame()
        act_for(context, client, client.db, client.reply)
        context.now_ms = outer.now_ms = self.unix_ms()   # time does not go back afterwards
        context.db.now_ms = context.now_ms
        context.is_replaying = context.in_transaction = True
        try:
            route.handler(context, args)
        finally:
            client.reply.truncate(0)
            context.go_back(outer)

    cdef int serve_ready(self) except -1:
        """Serve the clients that wait for keys that have changed."""
        if self.ready:
            self.blocked.serve_ready(self.ready)
        return 0

    cdef int answer_bug(self, Client client, Route route, size_t mark, error) except -1:
        log.exception("Unexpected error while running a command", exc_info=error)
        self.unexpected_errors += 1
        client.reply.truncate(mark)
        text = "ERR out of memory" if isinstance(error, MemoryError) else INTERNAL_ERROR
        return self.answer_error(client, route, FAILED, text)

    cdef int answer_error(self, Client client, Route route, Failure failure, str text) except -1:
        self.count_error(route, failure, text)
        client.reply.error(text)
        return 0

    cdef int count_error(self, Route route, Failure failure, str text) except -1:
        """Count an error: for its command, and by its code, the first word of its text.

        route  of the request; None: it has none, or has been counted
        text   of the reply; None: the code has been counted
        """
        cdef Py_ssize_t end
        cdef str code
        if route is not None:
            if failure == REFUSED:
                route.rejected_calls += 1
            else:
                route.failed_calls += 1
        if text is None:
            return 0
        end = text.find(" ", 0, CODE_ROOM)
        code = text[:end] if end >= 0 else "ERR"
        self.total_error_replies += 1
        if self.has_many_codes:
            return 0
        if len(self.errorstats) == MOST_CODES and code not in self.errorstats:
            log.warning(
                "Errorstats stopped adding new errors because the number of errors reached the limit, may be misuse of"
                " lua error_reply, please check INFO ERRORSTATS, this can be re-enabled via CONFIG RESETSTAT."
            )
            log.warning("Current errors code list: %s", ", ".join(sorted(self.errorstats)))
            self.has_many_codes = True
            self.errorstats.clear()
            code = "ERRORSTATS_DISABLED"
        self.errorstats[code] = self.errorstats.get(code, 0) + 1
        return 0

    cdef int finish_reply(self, Client client, size_t mark) except -1:
        """CLIENT REPLY: drop the reply if replies are suppressed. Disconnect a replica that asks for one."""
        if client.reply_mode == REPLY_ON:
            return 0
        if client.reply_mode == REPLY_LAST:
            client.reply_mode = REPLY_NEVER
            return 0
        if client.reply_mode == REPLY_NEVER:
            if client.reply.length > mark:
                client.reply.truncate(mark)
                log.warning("Replica sent a command that has a reply: disconnecting it: %s", client.address)
                client.close()
            return 0
        if client.blocked is None:
            client.reply.truncate(mark)
        if client.reply_mode == REPLY_SKIP_ARMED:
            client.reply_mode = REPLY_SKIP
        elif client.reply_mode == REPLY_SKIP and client.blocked is None:
            client.reply_mode = REPLY_ON
        return 0


def rank(Capability capability not None):
    """The position of a capability among those that refuse requests."""
    return capability.refusal_rank


cpdef bint overrides(Capability capability, str name) except -1:
    """Whether a capability overrides a hook."""
    return getattr(type(capability), name) is not getattr(Capability, name)
