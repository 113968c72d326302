# cython: language_level=3, boundscheck=False, wraparound=False
"""Dispatcher: takes requests from clients, checks them, runs their handlers, and ends each turn of the event loop.

One turn: the loop hands received bytes to clients, each runs what is complete (`process`), and the first one schedules
`before_sleep`, which runs once, before the loop waits again:

  1. clients that have been served after waiting for a key go on with their next requests;
  2. so do clients that had more requests than their share of the turn before;
  3. each client's replies leave, at most one write per client;
  4. clients that have passed the limit of their output are closed.

A client with a long pipeline gets SHARE_US of a turn and goes on in the next one, so that others need not wait until it
has been run: the event loop reads up to 8 MB from one connection, before it looks at another, and that is work for 100
ms. Where the end of a turn takes longer (a message to a thousand subscribers is a thousand writes, and there may be a
disk to wait for), the share is as long as that was: else most of the time would go into ending turns.

A request passes these stations: `execute` (is there such a command, the right number of arguments), `gate` (only for
clients and times out of the ordinary: not authenticated, in a transaction, paused, ...), `run` (one unit: a command, or
a transaction, with its reply, its pushes and its effects), `perform` (one command, counted and timed), `call` (the
handler and its errors).

Clients that wait for a key are served after each command that made one ready, first come, first served, until no key
is.

What must hold: a handler answers exactly once, or raises CommandError (what it had written is dropped), or asks to wait
(`block_on`). Anything else that escapes a handler is a bug of ours: logged, answered with one error, and the server
lives.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM
from cpython.ref cimport PyObject
from cpython.unicode cimport PyUnicode_DecodeLatin1
from libc.stdint cimport INT64_MAX, SIZE_MAX

import logging

from streamd.core.context cimport BlockRequest, Context
from streamd.engine.database cimport Database
from streamd.errors import CommandError, ProtocolError, printable
from streamd.persistence.aof.reader import UnknownCommandError
from streamd.protocol.reply cimport ReplyWriter, give_back_idle_blocks
from streamd.core.blocking cimport Blocked, BlockedClients
from streamd.core.client cimport (
    IN_MULTI, LIMITED, MONITORING, OUTPUT_CLASSES, REPLY_ON, REPLY_SKIP, REPLY_SKIP_ARMED, STRANGER,
    SUBSCRIBED, TRACKING, Client,
)
from streamd.core.clock cimport monotonic_us, wall_ms, wall_us
from streamd.core.histogram cimport Histogram
from streamd.core.keyspace import Keyspace
from streamd.observe.monitor cimport Monitors
from streamd.pubsub.hub cimport Hub
from streamd.caching.tracking cimport Tracking
from streamd.core.redaction import redacted

__all__ = ["Dispatcher", "Entry", "ServerContext", "Transaction"]

log = logging.getLogger("streamd")

cdef enum:
    SHARE_US = 300              # how long a client may run requests before it is the others' turn, at least
    SHARE_MAX_US = 20000        # ... and at most
    SEEN = 16                   # command names that are found without a look into the table; a power of two
    WALL_CLOCK_US = 1000        # how old an answer of the clock of Unix time may be
    REQUEST_BYTES = 144         # a queued request beside its arguments: a list and a tuple
    ARG_BYTES = 48              # an argument beside its bytes
    REPLY_BLOCK = 16384         # unsent replies that no limit counts
    STRANGER_INPUT = 1 << 20    # bytes of a request that a client may have sent before it has authenticated
    SHOWN = 128                 # bytes of an unknown command, and of its arguments together, that its error shows
    STRANGER_OUTPUT = 1024      # bytes of unsent replies that a client may have before it has authenticated

NAME_CACHE = 10_000
"""Spellings of command names that are remembered (`xadd`, `XADD`, `XaDd`); beyond, each is folded again."""

FLAGS = {
    "no_auth": NO_AUTH, "write": WRITE, "may_replicate": MAY_REPLICATE, "denyoom": DENY_OOM, "no_multi": NO_MULTI,
    "readonly": READ_ONLY, "admin": ADMIN, "skip_slowlog": SKIP_SLOWLOG, "skip_monitor": SKIP_MONITOR,
    "loading": LOADING, "stale": STALE,
}  # fmt: skip
"""EntryFlag by the words of declarations."""
RUN_AT_ONCE = frozenset({"EXEC", "DISCARD", "MULTI", "WATCH", "QUIT", "RESET"})
"""Commands that are not queued inside MULTI."""
SUBSCRIBERS_MAY = frozenset({
    "SUBSCRIBE", "UNSUBSCRIBE", "PSUBSCRIBE", "PUNSUBSCRIBE", "SSUBSCRIBE", "SUNSUBSCRIBE", "PING", "QUIT", "RESET",
})  # fmt: skip
"""Commands that a RESP2 client with subscriptions may send."""


cdef class Entry:
    def __init__(self, command):
        self.command = command
        self.handler = command.handler
        self.arity = command.arity
        self.index = -1
        for word in command.flags:
            self.flags |= FLAGS.get(word, 0)
        if command.name in RUN_AT_ONCE:
            self.flags |= AT_ONCE
        if command.name in SUBSCRIBERS_MAY:
            self.flags |= FOR_SUBSCRIBERS
        if command.has_keys:
            self.flags |= HAS_KEYS
        if command.subcommands:
            self.subcommands = {name.encode(): Entry(sub) for name, sub in command.subcommands.items()}

    cdef int forget_calls(self) except -1:
        """CONFIG RESETSTAT: count from here on."""
        self.calls = self.usec = self.rejected_calls = self.failed_calls = 0
        self.histogram = None
        return 0

    def leaves(self):
        """This entry, or those of its subcommands: what can be run and is counted."""
        leaves = [] if self.subcommands is None else list(set(self.subcommands.values()))
        return leaves if self.handler is None else [self, *leaves]


cdef class Transaction:
    """The requests that a client has queued since MULTI."""

    def __cinit__(self):
        self.requests = []

    def __len__(self):
        return len(self.requests)


cdef class ServerContext(Context):
    cpdef block_on(self, object request):
        if self.in_transaction:
            self.reply.null_array()
        else:
            (<BlockedClients>self.registry).block(self.client, self.db, <BlockRequest>request)

    cpdef int forget_snapshot(self) except -1:
        if not self.is_replaying:
            self.server.persistence.forget_snapshot()
        return 0

    cpdef int answer_flush(self, list args) except -1:
        if self.in_transaction or not self.server.has_much_to_free():
            return self.reply.ok()
        self.block_on(BlockRequest([], args, 0, timeout_reply=b"+OK\r\n"))
        self.server.answer_when_freed(self.client)
        return 0

    # --- Transactions: what MULTI and its kin ask for ------------------------------------------------------------

    def begin_transaction(self):
        """From now on the client's requests are queued."""
        cdef Client client = self.client
        client.transaction = Transaction()
        client.change_state(IN_MULTI, True)

    def end_transaction(self):
        """Drop what is queued, and what is watched."""
        cdef Client client = self.client
        client.transaction = None
        client.change_state(IN_MULTI, False)
        self.dispatcher.keyspace.unwatch(client)

    def run_transaction(self):
        """EXEC: run what is queued; the reply has one element for each."""
        cdef Client client = self.client
        cdef Transaction transaction = client.transaction
        if transaction is None:
            raise CommandError("ERR EXEC without MULTI")
        if transaction.is_aborted:
            self.end_transaction()
            raise CommandError("EXECABORT Transaction discarded because of previous errors.")
        if self.dispatcher.keyspace.is_stale(client):
            self.end_transaction()
            self.reply.null_array()
            return
        self.dispatcher.run_transaction(client)

    def watch(self, bytes key not None):
        """Let changes of a key from now on stop the client's next transaction."""
        self.dispatcher.keyspace.watch(self.client, self.db, key)

    def unwatch(self):
        """Watch nothing any more."""
        self.dispatcher.keyspace.unwatch(self.client)

    # --- Subscriptions --------------------------------------------------------------------------------------------

    cpdef long long publish(self, bytes channel, bytes payload, bint is_sharded) except -1:
        return self.hub.publish(channel, payload, is_sharded)

    def confirmations(self):
        """Where a command tells of (un)subscriptions: in its reply, but CLIENT REPLY does not silence them."""
        cdef Client client = self.client
        if client.reply_mode == REPLY_ON:
            return self.reply
        if client.confirmed is None:
            client.confirmed = client.new_writer()
        return client.confirmed

    def propagate_to_replicas(self, list args not None):
        """Let replicas, but no file, have a command that changed nothing here."""
        if self.dispatcher.has_replicas:
            self.dispatcher.has_replica_effects = True
            self.dispatcher.propagate(~self.db.index, args)


cdef class Dispatcher:
    """The server's inner loop. Made by `app.Server`, whose commands, databases and waiting clients it takes."""

    def __cinit__(self, server, loop):
        self.server = server
        self.loop = loop
        self.context = ServerContext()
        self.context.server = server
        self.context.databases = server.databases
        self.context.registry = self.blocked = <BlockedClients?>server.blocked
        self.context.dispatcher = self
        self.share_us = SHARE_US
        self.ready = {}
        self.hub = self.context.hub = Hub()
        self.tracking = Tracking(self)
        self.keyspace = Keyspace(self)
        self.monitors = Monitors(self)
        self.set_slow_limits(-1, 0)
        for db in server.databases:
            db.ready = self.ready
            db.listener = self.keyspace
        self.effects = []
        self.doomed = []
        self.clients = {}
        self.errorstats = {}
        self.writers = []
        self.resumed = []
        self.put_off = []
        for output_class in range(OUTPUT_CLASSES):
            self.set_output_limit(output_class, 0, 0, 0)
        self.names = {}
        self.seen = [None] * (2 * SEEN)
        self.entries = {}
        self.load_table(server.commands)

    def load_table(self, commands):
        """Make an entry of each command of the table (name -> spec.Command)."""
        for name, command in commands.items():
            entry = Entry(command)
            self.names[name.encode()] = self.names[name.lower().encode()] = entry
            for leaf in entry.leaves():
                (<Entry>leaf).index = len(self.entries)
                self.entries[leaf.command.full_name] = leaf
        self.exec_entry = self.entries.get("exec")

    def reset_stats(self):
        """CONFIG RESETSTAT."""
        for entry in self.entries.values():
            (<Entry>entry).forget_calls()
        self.errorstats.clear()
        self.total_commands = self.total_error_replies = self.unexpected_errors = 0
        self.net_input_bytes = self.net_output_bytes = 0
        self.total_reads = self.total_writes = 0
        self.processing_events = self.batches = self.batched_commands = 0
        self.turns = self.turns_us = self.commands_us = 0
        self.closed_for_input = self.closed_for_output = 0

    # --- Clients come and go --------------------------------------------------------------------------------------

    cpdef long long new_client_id(self):
        self.last_client_id += 1
        return self.last_client_id

    def register(self, Client client not None, sock):
        self.clients[client.id] = client
        client.limit_output()
        self.server.client_connected(client, sock)

    def forget(self, Client client not None):
        if self.clients.pop(client.id, None) is not None:
            (<BlockedClients>self.blocked).drop(client)
            self.keyspace.unwatch(client)
            self.hub.drop(client)
            self.tracking.disable(client)
            self.monitors.remove(client)
            client.transaction = None
            self.server.client_disconnected(client)

    # --- One turn of the loop -------------------------------------------------------------------------------------

    cdef int schedule(self) except -1:
        if not self.is_scheduled:
            self.is_scheduled = True
            self.loop.call_soon(self.before_sleep)
        return 0

    def before_sleep(self):
        """The end of a turn; see the head of this file."""
        cdef Client client
        cdef list resumed, put_off, writers, doomed
        cdef long long ending_us
        self.is_scheduled = False
        while self.resumed:
            resumed = self.resumed
            self.resumed = []
            for client in resumed:
                self.look_at_clocks()
                self.process(client)
        put_off = self.put_off
        self.put_off = []
        for client in put_off:
            if client.is_sending():
                self.put_off.append(client)
                continue
            client.is_put_off = False
            self.look_at_clocks()
            self.process(client)
            if not client.is_put_off:
                client.go_on()
        ending_us = monotonic_us()
        if (<Tracking>self.tracking).news:
            (<Tracking>self.tracking).broadcast()
        if self.has_effects:
            # Before any reply leaves: what it acknowledges is in the file by then.
            self.has_effects = False
            self.server.persistence.flush()
        writers = self.writers
        self.writers = []
        for client in writers:
            client.flush()
        self.share_us = (monotonic_us() - ending_us) // (len(self.put_off) or 1)
        self.share_us = min(max(self.share_us, SHARE_US), SHARE_MAX_US)
        if self.limits_clients:
            for client in writers:
                self.server.eviction.weigh(client)
            self.server.eviction.evict_clients()
        while self.doomed:
            doomed = self.doomed
            self.doomed = []
            for client in doomed:
                client.close()
        self.turns += 1
        if self.turn_started_us:  # 0: nobody's requests were run, there were only messages to be sent
            self.turns_us += monotonic_us() - self.turn_started_us
            self.turn_started_us = 0
        if self.put_off:
            self.schedule()

    cdef inline void look_at_clocks(self) noexcept:
        """Take the time, before requests are run.

        A look at a clock is not for nothing: Unix time follows from monotonic time, mostly.
        """
        self.ended_us = monotonic_us()
        if self.ended_us - self.wall_read_us >= WALL_CLOCK_US:
            self.wall_read_us = self.ended_us
            self.wall_offset_us = wall_us() - self.ended_us

    cdef int process(self, Client client) except -1:
        """Run every complete request of a client, until it has to wait or has had its share of the turn.

        The caller has looked at the clocks.
        """
        cdef list args
        cdef long long limit_us = self.ended_us + self.share_us
        cdef long long parsed = 0
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
            # Whether there is more or not: the event loop may be about to read the next piece.
            if self.ended_us > limit_us and client.can_run():
                client.put_off()
        if parsed:
            client.batches += 1
            client.batched_commands += parsed
            self.batches += 1
            self.batched_commands += parsed
        if client.reply.length or client.close_after_reply or self.limits_clients:
            client.want_write()
        if client.parser.buffered + client.parser.pending_args_size > self.query_buffer_limit or (
            client.transaction is not None
            and client.parser.buffered + (<Transaction>client.transaction).size > self.query_buffer_limit
        ) or (client.state & STRANGER and client.parser.buffered > STRANGER_INPUT):
            log.warning("Closing client that reached max query buffer length: id=%d addr=%s", client.id, client.address)
            self.closed_for_input += 1
            client.close()
        return 0

    cdef int refuse(self, Client client, str text) except -1:
        """Answer a protocol error and close the connection; without a text, close it at once (see RequestParser)."""
        cdef size_t mark = client.reply.length
        if text:
            self.answer_error(client, text)
            self.finish_reply(client, mark)
            client.close_after_reply = True
        else:
            client.close()
        return 0

    # --- Output limits ----------------------------------------------------------------------------------------------

    def set_output_limit(self, int output_class, hard, soft, long long soft_seconds):
        """client-output-buffer-limit of one class (OutputClass, in the order normal, replica, pubsub); 0: no limit.

        `hard` and `soft` may take 64 bits, more than any memory.
        """
        hard, soft = min(hard, INT64_MAX), min(soft, INT64_MAX)
        self.output_hard[output_class] = hard
        self.output_soft[output_class] = soft
        self.output_soft_us[output_class] = soft_seconds * 1000000
        limits = [limit for limit in (hard, soft) if limit]
        self.output_watch[output_class] = min(limits) + REPLY_BLOCK if limits else SIZE_MAX
        self.output_most[output_class] = hard + REPLY_BLOCK if hard else SIZE_MAX
        for client in self.clients.values():
            if (<Client>client).output_class == output_class:
                (<Client>client).limit_output()

    cdef int check_output(self, Client client) except -1:
        """Close a client, at the end of the turn, whose unsent replies have grown beyond its limit."""
        cdef int kind = client.output_class
        cdef long long size, now_us
        if client.state & STRANGER and client.reply.length > STRANGER_OUTPUT:
            return self.doom(client)
        if self.output_watch[kind] == SIZE_MAX or client.reply.is_cut:
            return 0
        size = client.output_size - REPLY_BLOCK
        now_us = monotonic_us()
        if not self.output_soft[kind] or size < self.output_soft[kind]:
            client.over_soft_limit_us = 0
        elif client.over_soft_limit_us == 0:
            client.over_soft_limit_us = now_us
        if (self.output_hard[kind] and size >= self.output_hard[kind]) or (
            client.over_soft_limit_us and now_us - client.over_soft_limit_us > self.output_soft_us[kind]
        ):
            self.close_for_output(client)
        return 0

    cdef int close_for_output(self, Client client) except -1:
        """Close a client, at the end of the turn, that does not read."""
        log.warning("Client id=%d addr=%s closed for overcoming of output buffer limits.", client.id, client.address)
        self.closed_for_output += 1
        return self.doom(client)

    cdef int doom(self, Client client) except -1:
        """Have a client closed at the end of the turn, without what it has not been sent.

        Safe while clients are walked.
        """
        client.close_after_reply = True
        client.reply.cut()
        self.doomed.append(client)
        return self.schedule()

    def run_postponed(self, Client client not None):
        """Run the request that a pause held back, and what came after it."""
        cdef list args = client.postponed
        if args is not None:
            client.postponed = None
            self.look_at_clocks()
            self.execute(client, args)
            self.process(client)

    @property
    def pause(self):
        """CLIENT PAUSE: 0: no pause, 1: writes wait, 2: everything waits."""
        return self._pause

    @pause.setter
    def pause(self, int mode):
        cdef Database db
        self._pause = mode
        self.change_state(PAUSED, mode != 0)
        for db in self.context.databases:
            db.holds_expired = mode != 0

    cdef bint holds_back(self, Client client, Entry entry) noexcept:
        """Whether a pause lets a request wait."""
        return not client.state & MONITORING and (
            self._pause == 2 or self.is_write(client, entry, WRITE | MAY_REPLICATE)
        )

    def serve_held_back(self):
        """After a pause: serve those who waited for a key that has changed meanwhile."""
        cdef Database db
        if self.has_held_back:
            self.has_held_back = False
            for db in self.context.databases:
                db.signal_all()
            self.serve_ready()

    def limit_memory(self, bint is_limited):
        """maxmemory: ask for room before each request, or do not."""
        self.change_state(MEMORY_LIMITED, is_limited)

    @property
    def is_refusing(self):
        """Whether the server's files, or their state, have commands refused."""
        return self.state & REFUSING != 0

    @is_refusing.setter
    def is_refusing(self, bint is_on):
        self.change_state(REFUSING, is_on)

    cdef int change_state(self, int state, bint is_on) except -1:
        """Put one ServerState into the server's set, or take it out."""
        self.state = self.state | state if is_on else self.state & ~state
        return 0

    def take_peaks(self):
        """The most that any one client has had waiting since the last call: bytes of requests, and of replies.

        Of replies, what is beyond the block that everyone may fill: nothing, as long as clients read.
        """
        peaks = self.peak_input, (self.peak_output - REPLY_BLOCK if self.peak_output > REPLY_BLOCK else 0)
        self.peak_input = self.peak_output = 0
        return peaks

    def cron(self):
        """Serve who waits for keys that expired by themselves; look at the clients that do not read."""
        cdef Client client
        give_back_idle_blocks()
        self.finish_effects()
        self.serve_ready()
        for client in list(self.clients.values()):
            if client.is_congested:
                self.check_output(client)

    # --- One request ------------------------------------------------------------------------------------------------

    cdef Entry look_up(self, list args):
        """The entry for a request; None for an unknown command or subcommand."""
        cdef bytes name = <bytes>args[0]
        cdef Py_ssize_t place = (<size_t><PyObject *>name >> 4 & (SEEN - 1)) * 2
        cdef object found
        cdef Entry entry
        # The parser makes one object of a word that comes again and again: then there is nothing to compare.
        if PyList_GET_ITEM(self.seen, place) == <PyObject *>name:
            entry = <Entry>PyList_GET_ITEM(self.seen, place + 1)
        else:
            entry = self.look_up_name(name)
            if entry is None:
                return None
            self.seen[place] = name
            self.seen[place + 1] = entry
        if entry.subcommands is not None and len(args) > 1:
            name = <bytes>args[1]
            found = entry.subcommands.get(name)
            if found is None:
                found = entry.subcommands.get(name.upper())
                if found is None:
                    return None
                if len(entry.subcommands) < NAME_CACHE:
                    entry.subcommands[name] = found
            entry = <Entry>found
        return entry

    cdef Entry look_up_name(self, bytes name):
        """The entry of a command, in whatever case its name is written; None: there is no such command."""
        cdef object found = self.names.get(name)
        if found is None:
            found = self.names.get(name.upper())
            if found is None:
                return None
            if len(self.names) < NAME_CACHE:
                self.names[name] = found
        return <Entry>found

    cdef str explain_unknown(self, list args):
        """The error for a request that has no entry."""
        cdef Entry container = self.look_up_name(<bytes>args[0])
        if container is None:
            return unknown_command(args)
        return f"ERR unknown subcommand '{show(<bytes>args[1], SHOWN)}'. Try {container.command.name} HELP."

    cdef int execute(self, Client client, list args) except -1:
        """Check one request and run it."""
        cdef Entry entry
        cdef Py_ssize_t argc = len(args)
        entry = self.look_up(args)
        if entry is None:
            return self.reject(client, None, args, self.explain_unknown(args))
        if entry.arity != argc and (entry.arity >= 0 or argc < -entry.arity):
            return self.reject(
                client, entry, args, f"ERR wrong number of arguments for '{entry.command.full_name}' command"
            )
        if (client.state or self.state) and self.gate(client, entry, args):
            return 0
        return self.run(client, entry, args)

    cdef int gate(self, Client client, Entry entry, list args) except -1:
        """What stands between a request and its handler for clients and times out of the ordinary.

        1: it is not to run.
        """
        cdef str refusal = self.find_refusal(client, entry, args)
        if refusal is not None:
            self.reject(client, entry, args, refusal)
            return 1
        if self.state & TRACKING_FULL:
            (<Tracking>self.tracking).shrink()
        if self.state & PAUSED and self.holds_back(client, entry):
            client.postponed = args
            client.last_command = entry.command
            self.server.postpone(client)
            return 1
        if client.state & IN_MULTI and not entry.flags & AT_ONCE:
            self.queue(client, entry, args)
            return 1
        return 0

    cdef str find_refusal(self, Client client, Entry entry, list args):
        """The error with which a request is refused now, or None. The order of the questions is Redis's."""
        cdef int state = client.state
        if state & STRANGER and not entry.flags & NO_AUTH:
            return "NOAUTH Authentication required."
        if state & IN_MULTI and entry.flags & NO_MULTI:
            return "ERR Command not allowed inside a transaction"
        if state & LIMITED and (refusal := self.server.acl.find_refusal(client, entry, args, False)) is not None:
            return refusal
        if self.state & MEMORY_LIMITED and not self.server.eviction.make_room() and self.needs_memory(client, entry):
            return "OOM command not allowed when used memory > 'maxmemory'."
        if self.state & REFUSING and (
            refusal := self.server.persistence.find_refusal(entry.command, self.is_write(client, entry, WRITE))
        ) is not None:
            return refusal
        if state & SUBSCRIBED and client.reply.resp == 2 and not entry.flags & FOR_SUBSCRIBERS:
            return (
                f"ERR Can't execute '{entry.command.full_name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT /"
                " RESET are allowed in this context"
            )
        if state & MONITORING and entry.flags & (WRITE | READ_ONLY | MAY_REPLICATE):
            return "ERR Replica can't interact with the keyspace"
        return None

    cdef bint needs_memory(self, Client client, Entry entry) noexcept:
        """Whether a request may make the data set larger: by itself, or as a transaction."""
        if entry is self.exec_entry and client.transaction is not None:
            return (<Transaction>client.transaction).flags & DENY_OOM != 0
        return entry.flags & DENY_OOM != 0

    cdef bint is_write(self, Client client, Entry entry, int flags) noexcept:
        """Whether a request is a write, in the sense of `flags`: by itself, or as a transaction."""
        if entry is self.exec_entry and client.transaction is not None:
            return (<Transaction>client.transaction).flags & flags != 0
        return entry.flags & flags != 0

    cdef int queue(self, Client client, Entry entry, list args) except -1:
        """Keep a request until EXEC."""
        cdef Transaction transaction = client.transaction
        cdef size_t mark = client.reply.length
        transaction.requests.append((entry, args))
        transaction.flags |= entry.flags
        for arg in args:
            transaction.size += len(<bytes>arg)
        transaction.objects_size += REQUEST_BYTES + ARG_BYTES * <long long>len(args)
        client.last_command = entry.command
        client.reply.simple(b"QUEUED")
        self.ended_us = monotonic_us()
        return self.finish_reply(client, mark)

    cdef int reject(self, Client client, Entry entry, list args, str text) except -1:
        """Refuse a request before a handler ran; `entry` is None when there is no such command."""
        cdef size_t mark = client.reply.length
        client.last_command = None if entry is None else entry.command
        if entry is not None:
            entry.rejected_calls += 1
        if client.transaction is not None:
            (<Transaction>client.transaction).is_aborted = True
        if entry is not None and entry is self.exec_entry:
            text = f"EXECABORT Transaction discarded because of: {text.removeprefix('ERR ')}"
            client.transaction = None
            client.change_state(IN_MULTI, False)
            self.keyspace.unwatch(client)
        if client.state & TRACKING:
            (<Tracking>self.tracking).after_command(client, entry)
        self.answer_error(client, text)
        self.ended_us = monotonic_us()
        self.finish_reply(client, mark)
        if self.state & HAS_MONITORS and entry is not None and entry is self.exec_entry:
            self.monitors.feed(client, args)  # of all that is refused, Redis shows EXEC alone
        return 0

    cdef int run(self, Client client, Entry entry, list args) except -1:
        """Run a checked request, with all that follows from it: its reply, pushes, effects, and who waited for them."""
        cdef size_t mark = client.reply.length
        self.unit_mark = mark
        self.executing = client
        self.executing_args = <PyObject *>args
        client.last_command = entry.command
        self.perform(client, entry, args)
        self.executing = None
        if self.has_run_transaction:
            # CLIENT REPLY inside it held for each part of the reply.
            self.has_run_transaction = False
            mark = client.reply.length
        self.finish_reply(client, mark)
        if client.deferred is not None or client.confirmed is not None:
            self.finish_pushes(client)
        if client.state & TRACKING:
            (<Tracking>self.tracking).after_command(client, entry)
        if (<Tracking>self.tracking).pending:
            (<Tracking>self.tracking).finish_unit(client)
        if self.effects:
            self.finish_effects()
        if self.ready:
            self.serve_ready()
            self.ended_us = monotonic_us()  # what others got is not the next command's time
        return 0

    cdef int perform(self, Client client, Entry entry, list args) except -1:
        """Run one command, count what it took, and show it to those who watch."""
        cdef long long started = self.ended_us
        self.call(client, entry, args)
        self.ended_us = monotonic_us()
        if client.blocked is None:
            self.count(client, entry, args, self.ended_us - started)
        else:
            (<Blocked>client.blocked).begin(entry, args, self.ended_us - started)
        if self.state & HAS_MONITORS and not entry.flags & (ADMIN | SKIP_MONITOR):
            self.monitors.feed(client, redacted(entry.command.full_name, args))
        return 0

    cdef int count(self, Client client, Entry entry, list args, long long took_us) except -1:
        """Count a command that has come to its end."""
        entry.calls += 1
        entry.usec += took_us
        client.total_commands += 1
        self.total_commands += 1
        if not self.context.in_transaction:
            self.commands_us += took_us
        if self.tracks_latency:
            if entry.histogram is None:
                entry.histogram = Histogram()
            entry.histogram.record(took_us)
        if took_us >= self.slow_us:
            self.note_slow(client, entry, args, took_us)
        return 0

    cdef int note_slow(self, Client client, Entry entry, list args, long long took_us) except -1:
        """Pass a slow command to the slow log and the latency monitor, and any command to a session of HOTKEYS."""
        cdef size_t end = client.reply.length
        if self.hotkeys is not None and self.executing is client:  # not of one that had to wait
            self.hotkeys.note(
                entry.command, args, took_us, end - self.unit_mark if end > self.unit_mark else 0,
                in_transaction=self.context.in_transaction,
            )
        if took_us >= self.slowlog_us and not entry.flags & SKIP_SLOWLOG:
            self.server.slowlog.add(
                redacted(entry.command.full_name, args), took_us, command=entry.command.full_name,
                at_s=wall_ms() // 1000,
                address=client.address.encode("utf-8", "surrogateescape"), name=client.name,
            )
        if took_us >= self.latency_us:
            self.server.latency.add("fast-command" if "fast" in entry.command.flags else "command", took_us // 1000)
        return 0

    def running(self):
        """The client whose command runs, its Entry and its arguments; (None, None, ()) between commands."""
        if self.executing is None:
            return None, None, ()
        args = <object>self.executing_args
        return self.executing, self.look_up(args), args

    def set_slow_limits(self, long long slowlog_us, long long latency_ms):
        """slowlog-log-slower-than (negative: nothing is logged) and latency-monitor-threshold (0: nothing is)."""
        self.slowlog_us = slowlog_us if slowlog_us >= 0 else INT64_MAX
        self.latency_us = latency_ms * 1000 if 0 < latency_ms <= INT64_MAX // 1000 else INT64_MAX
        self.set_hotkeys(self.hotkeys)

    def set_hotkeys(self, hotkeys):
        """Hand every command over to HotKeys from now on; None: to nobody."""
        self.hotkeys = hotkeys
        self.slow_us = min(self.slowlog_us, self.latency_us) if hotkeys is None else 0

    cdef int run_transaction(self, Client client) except -1:
        """Run what a client has queued, as elements of one reply."""
        cdef Transaction transaction = client.transaction
        cdef Entry entry
        cdef list args
        cdef size_t mark
        cdef bint is_closing = False
        client.transaction = None
        client.change_state(IN_MULTI, False)
        self.keyspace.unwatch(client)
        if not client.is_silent():
            client.reply.array_header(len(transaction.requests))
        self.has_run_transaction = True
        self.context.in_transaction = True
        try:
            for entry, args in transaction.requests:
                mark = client.reply.length
                refusal = None
                if client.state & LIMITED:
                    refusal = self.server.acl.find_refusal(client, entry, args, True)
                if refusal is None:
                    self.perform(client, entry, args)
                else:
                    entry.rejected_calls += 1
                    self.answer_error(client, refusal)
                if client.is_silent() or is_closing:
                    client.reply.truncate(mark)
                elif client.reply.length >= self.output_watch[client.output_class]:
                    self.check_output(client)  # not after the whole reply, which may be a thousand times the limit
                is_closing = client.close_after_reply  # CLIENT KILL: its own reply is the last
                if client.confirmed is not None:
                    client.reply.raw_c(client.confirmed.data, client.confirmed.length)
                    client.confirmed = None
        finally:
            self.context.in_transaction = False
        return 0

    cdef int finish_pushes(self, Client client) except -1:
        """Send what a command has pushed to its own client."""
        cdef ReplyWriter confirmed = client.confirmed
        cdef ReplyWriter deferred = client.deferred
        client.confirmed = client.deferred = None
        if confirmed is not None:
            client.deliver(confirmed.data, confirmed.length)
        if deferred is not None:
            client.deliver(deferred.data, deferred.length)
        return 0

    # --- Effects ----------------------------------------------------------------------------------------------------

    cpdef int propagate(self, int db_index, list args) except -1:
        """Add an effect of the running command, for files and replicas.

        A negative index is ~index, and the effect is for replicas only.
        """
        if self.context.is_propagating:
            self.effects.append((db_index, args))
        return 0

    cdef int finish_effects(self) except -1:
        """Hand over the effects of a unit: of one command, or of one transaction."""
        cdef list effects = self.effects
        if effects:
            self.effects = []
            if self.has_replica_effects:
                self.has_replica_effects = False
                effects = [effect for effect in effects if effect[0] >= 0]
            if self.propagation is not None and effects:
                self.propagation.append_effects(effects, self.context.now_ms)
                self.has_effects = True
                self.schedule()
        return 0

    cdef int run_again(self, Client client, Entry entry, list args) except -1:
        """Run the request of a client that waited; it may ask to wait again."""
        cdef long long started
        cdef str refusal = None
        self.look_at_clocks()
        started = self.ended_us
        self.executing = client
        if client.state & LIMITED:
            refusal = self.server.acl.find_refusal(client, entry, args, False)
        if refusal is None:
            self.call(client, entry, args)
        else:
            entry.rejected_calls += 1
            self.answer_error(client, refusal)
        self.executing = None
        (<Blocked>client.blocked).spent_us += monotonic_us() - started
        # Served or not, what it did is a unit of its own: it made a consumer, say, and waits on.
        if self.effects:
            self.finish_effects()
        return 0

    cdef int wait_on(self, Client client) except -1:
        """A client that waited was not served, but its request may have told others, and itself, of what it did."""
        if client.deferred is not None:
            self.finish_pushes(client)
        if (<Tracking>self.tracking).pending:
            (<Tracking>self.tracking).finish_unit(client)
        return 0

    cdef int call(self, Client client, Entry entry, list args) except -1:
        """Call the handler on behalf of a client, and answer the error that it may raise."""
        cdef ServerContext context = self.context
        cdef size_t mark = client.reply.length
        cdef unsigned long long dirty = context.dirty
        cdef int db_index = client.db.index
        context.client = client
        context.db = client.db
        context.reply = client.reply
        context.effects = None
        if not context.in_transaction:
            context.now_ms = (self.ended_us + self.wall_offset_us) // 1000
        context.db.now_ms = context.now_ms
        # Set for every command, so that nothing is to be put back when the handler selects another database.
        context.db.touch_on_access = not client.no_touch
        try:
            entry.handler(context, args)
        except CommandError as error:
            entry.failed_calls += 1
            client.reply.truncate(mark)
            self.answer_error(client, str(error))
        except Exception as error:
            entry.failed_calls += 1
            self.answer_bug(client, mark, error)
        if client.state & TRACKING and entry.flags & READ_ONLY:
            (<Tracking>self.tracking).remember(client, entry, args)
        if context.is_propagating and entry is not self.exec_entry:
            if context.effects is not None:
                for effect in context.effects:
                    self.effects.append((db_index, effect))
            elif context.dirty != dirty:
                self.effects.append((db_index, args))
        return 0

    def replay(self, Client client not None, list args not None):
        """Run a command from a file on behalf of `client`, which has no connection.

        No limits hold, nothing waits or expires, and the reply is dropped. A command that asks for it (DEBUG LOADAOF)
        goes on as if nothing had been run. Raises CommandError, what it would have answered; UnknownCommandError when
        there is no such command, or it has another number of arguments, of which a Redis dies.
        """
        cdef ServerContext context = self.context
        cdef Client outer_client = context.client
        cdef Database outer_db = context.db
        cdef ReplyWriter outer_reply = context.reply
        cdef list outer_effects = context.effects
        cdef bint was_in_transaction = context.in_transaction
        cdef Entry entry
        cdef Py_ssize_t argc = len(args)
        entry = self.look_up(args)
        if entry is None:
            raise UnknownCommandError(self.explain_unknown(args))
        if entry.arity != argc and (entry.arity >= 0 or argc < -entry.arity):
            raise UnknownCommandError(f"ERR wrong number of arguments for '{entry.command.full_name}' command")
        context.client = client
        context.db = client.db
        context.reply = client.reply
        context.effects = None
        context.now_ms = wall_ms()
        context.db.now_ms = context.now_ms
        context.is_replaying = context.in_transaction = True
        try:
            entry.handler(context, args)
        finally:
            client.reply.truncate(0)
            context.is_replaying = False
            context.in_transaction = was_in_transaction
            context.client = outer_client
            context.db = outer_db
            context.reply = outer_reply
            context.effects = outer_effects

    cdef int serve_ready(self) except -1:
        """Serve the clients that wait for keys which have changed."""
        if self.ready:
            (<BlockedClients>self.blocked).serve_ready(self.ready)
        return 0

    cdef int answer_bug(self, Client client, size_t mark, error) except -1:
        log.exception("Unexpected error while running a command", exc_info=error)
        self.unexpected_errors += 1
        client.reply.truncate(mark)
        if isinstance(error, MemoryError):
            self.answer_error(client, "ERR out of memory")
        else:
            self.answer_error(client, "ERR internal error, see the log of the server")
        return 0

    cdef int answer_error(self, Client client, str text) except -1:
        """Write an error reply and count it by its code."""
        cdef str code = text.partition(" ")[0]
        self.total_error_replies += 1
        self.errorstats[code] = self.errorstats.get(code, 0) + 1
        client.reply.error(text)
        return 0

    cdef int finish_reply(self, Client client, size_t mark) except -1:
        """CLIENT REPLY: drop what the command wrote when nothing is to be sent."""
        if client.reply_mode == REPLY_ON:
            return 0
        if client.blocked is None:
            client.reply.truncate(mark)
        if client.reply_mode == REPLY_SKIP_ARMED:
            client.reply_mode = REPLY_SKIP
        elif client.reply_mode == REPLY_SKIP and client.blocked is None:
            client.reply_mode = REPLY_ON
        return 0

    cdef int finish_blocked(self, Client client, size_t mark) except -1:
        """As finish_reply, for a reply that came after a wait; the client goes on at the end of this turn."""
        self.finish_reply(client, mark)
        if client.deferred is not None or client.confirmed is not None:
            self.finish_pushes(client)
        if client.state & TRACKING:
            (<Tracking>self.tracking).after_command(client, None)
        if (<Tracking>self.tracking).pending:
            (<Tracking>self.tracking).finish_unit(client)
        if self.effects:
            self.finish_effects()
        if client.reply.length:
            client.want_write()
        if client.parser.size > client.parser.pos or client.close_after_reply:
            self.resumed.append(client)
            self.schedule()
        return 0


cdef str show(bytes text, Py_ssize_t most):
    """At most so many bytes of what a user sent, as `printable` shows them."""
    cdef const char *p = PyBytes_AS_STRING(text)
    cdef Py_ssize_t size = min(PyBytes_GET_SIZE(text), most)
    for i in range(size):
        if <unsigned char>p[i] < c' ':
            return printable(text[:size])
    return PyUnicode_DecodeLatin1(p, size, NULL)


cdef str unknown_command(list args):
    """Redis's text for a command that does not exist, with the beginning of its arguments."""
    cdef str text = f"ERR unknown command '{show(<bytes>args[0], SHOWN)}'"
    cdef str part
    cdef list shown
    cdef Py_ssize_t used = 0
    if len(args) == 1:
        return text
    shown = [text, ", with args beginning with: "]
    for at in range(1, len(args)):
        if used >= SHOWN:
            break
        part = show(<bytes>args[at], SHOWN - used)
        shown.append(f"'{part}' ")
        used += len(part) + 3
    return "".join(shown)
