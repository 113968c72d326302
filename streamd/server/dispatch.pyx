# cython: language_level=3, boundscheck=False, wraparound=False
"""Dispatcher: takes requests from clients, checks them, runs their handlers, and ends each turn of the event loop.

One turn: the loop hands received bytes to clients, each runs what is complete (`process`), and the first one schedules
`before_sleep`, which runs once, before the loop waits again:

  1. clients that have been served after waiting for a key go on with their next requests;
  2. so do clients that had more requests than their share of the turn before;
  3. each client's replies leave, at most one write per client.

A client with a long pipeline gets SHARE_US of a turn and goes on in the next one, so that others need not wait until it
has been run: the event loop reads up to 8 MB from one connection, before it looks at another, and that is work for 100
ms.

Clients that wait for a key are served after each command that made one ready, first come, first served, until no key
is.

What must hold: a handler answers exactly once, or raises CommandError (what it had written is dropped), or asks to wait
(`block_on`). Anything else that escapes a handler is a bug of ours: logged, answered with one error, and the server
lives.
"""

from libc.limits cimport LLONG_MAX

import logging

from streamd.commands.context cimport Context
from streamd.errors import CommandError, ProtocolError, printable
from streamd.server.client cimport REPLY_ON, REPLY_SKIP, REPLY_SKIP_ARMED, Client
from streamd.server.clock cimport monotonic_us, wall_ms

__all__ = ["Dispatcher", "Entry", "ServerContext"]

log = logging.getLogger("streamd")

cdef enum:
    SHARE_US = 300              # how long a client may run requests before it is the others' turn
    STRANGER_OUTPUT = 1024      # bytes of unsent replies that a client may have before it has authenticated

NAME_CACHE = 10_000
"""Spellings of command names that are remembered (`xadd`, `XADD`, `XaDd`); beyond, each is folded again."""

cdef class Entry:
    def __init__(self, command):
        self.command = command
        self.handler = command.handler
        self.arity = command.arity
        self.needs_auth = "no_auth" not in command.flags
        self.is_write = "write" in command.flags or "may_replicate" in command.flags
        if command.subcommands:
            self.subcommands = {name.encode(): Entry(sub) for name, sub in command.subcommands.items()}

    def leaves(self):
        """This entry, or those of its subcommands: what can be run and is counted."""
        leaves = [] if self.subcommands is None else list(set(self.subcommands.values()))
        return leaves if self.handler is None else [self, *leaves]


cdef class ServerContext(Context):
    cpdef block_on(self, object request):
        self.registry.block(self.client, self.db, request)


cdef class Dispatcher:
    """The server's inner loop. Made by `app.Server`, whose commands, databases and waiting clients it takes."""

    def __cinit__(self, server, loop):
        self.server = server
        self.loop = loop
        self.context = ServerContext()
        self.context.server = server
        self.context.databases = server.databases
        self.context.registry = self.blocked = server.blocked
        self.ready = {}
        for db in server.databases:
            db.ready = self.ready
        self.clients = {}
        self.errorstats = {}
        self.writers = []
        self.resumed = []
        self.put_off = []
        self.set_output_limit(0, 0, 0)
        self.names = {}
        self.entries = {}
        self.load_table(server.commands)

    def load_table(self, commands):
        """Make an entry of each command of the table (name -> spec.Command)."""
        for name, command in commands.items():
            entry = Entry(command)
            self.names[name.encode()] = self.names[name.lower().encode()] = entry
            for leaf in entry.leaves():
                self.entries[leaf.command.full_name] = leaf

    def reset_stats(self):
        """CONFIG RESETSTAT."""
        for entry in self.entries.values():
            entry.calls = entry.usec = entry.rejected_calls = entry.failed_calls = 0
        self.errorstats.clear()
        self.total_commands = self.total_error_replies = self.unexpected_errors = 0
        self.net_input_bytes = self.net_output_bytes = 0

    # --- Clients come and go --------------------------------------------------------------------------------------

    cpdef long long new_client_id(self):
        self.last_client_id += 1
        return self.last_client_id

    def register(self, Client client not None, sock):
        self.clients[client.id] = client
        self.server.client_connected(client, sock)

    def forget(self, Client client not None):
        if self.clients.pop(client.id, None) is not None:
            self.blocked.drop(client)
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
        cdef list resumed, put_off, writers
        self.is_scheduled = False
        while self.resumed:
            resumed = self.resumed
            self.resumed = []
            for client in resumed:
                self.process(client)
        put_off = self.put_off
        self.put_off = []
        for client in put_off:
            client.is_put_off = False
            self.process(client)
            if not client.is_put_off:
                client.go_on()
        writers = self.writers
        self.writers = []
        for client in writers:
            client.flush()
        if self.put_off:
            self.schedule()

    cdef int process(self, Client client) except -1:
        """Run every complete request of a client, until it has to wait or has had its share of the turn."""
        cdef list args
        cdef long long limit_us = monotonic_us() + SHARE_US
        while client.can_run():
            try:
                args = client.parser.next_request()
            except ProtocolError as error:
                self.refuse(client, str(error))
                break
            if args is None:
                break
            if args:
                self.execute(client, args)
            else:
                self.ended_us = monotonic_us()
            if client.reply.length >= self.output_watch or not client.authenticated:
                self.check_output(client)
            # Whether there is more or not: the event loop may be about to read the next piece.
            if self.ended_us > limit_us and client.can_run():
                client.put_off()
        if client.reply.length or client.close_after_reply:
            client.want_write()
        if client.parser.buffered + client.parser.pending_args_size > self.query_buffer_limit:
            log.warning("Closing client that reached max query buffer length: id=%d addr=%s", client.id, client.address)
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

    def resume(self, Client client not None):
        """Go on, at the end of this turn, with the requests of a client that had to wait."""
        self.resumed.append(client)
        self.schedule()

    # --- Output limits ----------------------------------------------------------------------------------------------

    def set_output_limit(self, long long hard, long long soft, long long soft_seconds):
        """client-output-buffer-limit of the class `normal`; zeros mean no limit."""
        self.output_hard = hard
        self.output_soft = soft
        self.output_soft_us = soft_seconds * 1000000
        limits = [limit for limit in (hard, soft) if limit]
        self.output_watch = min(limits) if limits else LLONG_MAX

    cdef int check_output(self, Client client) except -1:
        """Close a client whose unsent replies have grown beyond its limit."""
        cdef long long size
        cdef long long now_us
        if not client.authenticated and client.reply.length > STRANGER_OUTPUT:
            client.close()
            return 0
        if self.output_watch == LLONG_MAX:
            return 0
        size = client.output_size
        now_us = monotonic_us()
        if not self.output_soft or size < self.output_soft:
            client.over_soft_limit_us = 0
        elif client.over_soft_limit_us == 0:
            client.over_soft_limit_us = now_us
        if (self.output_hard and size >= self.output_hard) or (
            client.over_soft_limit_us and now_us - client.over_soft_limit_us > self.output_soft_us
        ):
            log.warning(
                "Client id=%d addr=%s closed for overcoming of output buffer limits.", client.id, client.address
            )
            client.close()
        return 0

    def run_postponed(self, Client client not None):
        """Run the request that a pause held back, and what came after it."""
        cdef list args = client.postponed
        if args is not None:
            client.postponed = None
            self.execute(client, args)
            self.process(client)

    def cron(self):
        """Serve who waits for keys that expired by themselves; look at the clients that do not read."""
        self.serve_ready()
        if self.output_watch != LLONG_MAX:
            for client in list(self.clients.values()):
                if client.is_congested:
                    self.check_output(client)

    # --- One request ------------------------------------------------------------------------------------------------

    cdef Entry look_up(self, list args):
        """The entry for a request; raises CommandError for an unknown command or subcommand."""
        cdef bytes name = <bytes>args[0]
        cdef object found = self.names.get(name)
        cdef Entry entry
        if found is None:
            found = self.names.get(name.upper())
            if found is None:
                raise CommandError(unknown_command(args))
            if len(self.names) < NAME_CACHE:
                self.names[name] = found
        entry = <Entry>found
        if entry.subcommands is not None and len(args) > 1:
            name = <bytes>args[1]
            found = entry.subcommands.get(name)
            if found is None:
                found = entry.subcommands.get(name.upper())
                if found is None:
                    raise CommandError(
                        f"ERR unknown subcommand '{printable(name[:128])}'. Try {entry.command.name} HELP."
                    )
                if len(entry.subcommands) < NAME_CACHE:
                    entry.subcommands[name] = found
            entry = <Entry>found
        return entry

    cdef int execute(self, Client client, list args) except -1:
        """Check one request and run it."""
        cdef Entry entry
        cdef Py_ssize_t argc = len(args)
        try:
            entry = self.look_up(args)
        except CommandError as error:
            return self.reject(client, None, str(error))
        if entry.arity != argc and (entry.arity >= 0 or argc < -entry.arity):
            return self.reject(
                client, entry, f"ERR wrong number of arguments for '{entry.command.full_name}' command"
            )
        if not client.authenticated and entry.needs_auth:
            return self.reject(client, entry, "NOAUTH Authentication required.")
        if self.pause and (self.pause == 2 or entry.is_write):
            client.postponed = args
            self.server.postpone(client)
            return 0
        return self.run(client, entry, args)

    cdef int reject(self, Client client, Entry entry, str text) except -1:
        """Refuse a request before a handler ran; `entry` is None when there is no such command."""
        cdef size_t mark = client.reply.length
        if entry is not None:
            entry.rejected_calls += 1
        self.answer_error(client, text)
        self.ended_us = monotonic_us()
        return self.finish_reply(client, mark)

    cdef int run(self, Client client, Entry entry, list args) except -1:
        """Run a checked request, count what it took, and serve who waited for what it changed."""
        cdef size_t mark = client.reply.length
        cdef long long started = monotonic_us()
        client.last_command = entry.command
        client.total_commands += 1
        self.call(client, entry, args)
        entry.calls += 1
        self.ended_us = monotonic_us()
        entry.usec += self.ended_us - started
        self.total_commands += 1
        self.finish_reply(client, mark)
        if self.ready:
            self.serve_ready()
        return 0

    def run_again(self, Client client not None, list args not None):
        """Run the request of a client that waited; it may ask to wait again."""
        self.call(client, self.look_up(args), args)

    cdef int call(self, Client client, Entry entry, list args) except -1:
        """Call the handler on behalf of a client, and answer the error that it may raise."""
        cdef ServerContext context = self.context
        cdef size_t mark = client.reply.length
        context.client = client
        context.db = client.db
        context.reply = client.reply
        context.now_ms = wall_ms()
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
        return 0

    cdef int serve_ready(self) except -1:
        """Serve the clients that wait for keys which have changed."""
        if self.ready:
            self.blocked.serve_ready(self.ready)
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

    def write_error(self, Client client not None, str text):
        """As answer_error, for the registry of waiting clients."""
        self.answer_error(client, text)

    def finish_blocked(self, Client client not None, size_t mark):
        """As finish_reply, for a reply that came after a wait."""
        self.finish_reply(client, mark)
        if client.reply.length:
            client.want_write()


def unknown_command(list args):
    """Redis's text for a command that does not exist, with the beginning of its arguments."""
    cdef str text = f"ERR unknown command '{printable(args[0][:128])}'"
    if len(args) == 1:
        return text
    shown = []
    used = 0
    for arg in args[1:]:
        if used >= 128:
            break
        part = arg[: 128 - used]
        shown.append(f"'{printable(part)}' ")
        used += len(part) + 3
    return f"{text}, with args beginning with: {''.join(shown)}"
