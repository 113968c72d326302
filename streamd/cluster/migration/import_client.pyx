# cython: language_level=3, boundscheck=False, wraparound=False
"""ImportClient: runs the commands by which another node hands slots over.

They are effects, as those of a primary are: complete requests, each with the same result wherever it is run. So no
permissions, limits or redirections apply, and nothing is answered. Unlike those of a primary, they become part of this
server's own history: each is propagated to the append-only file and to replicas as it has arrived.
"""

cimport cython
from cpython.ref cimport PyObject
from libc.stdint cimport INT64_MAX

import logging

from streamd.core.client cimport Client
from streamd.core.clock cimport monotonic_us
from streamd.core.context cimport act_for
from streamd.core.dispatch cimport HAS_MONITORS, Dispatcher, ServerContext
from streamd.core.effects cimport EVERYWHERE
from streamd.core.redaction import redacted
from streamd.core.route cimport ADMIN, SKIP_MONITOR, Route
from streamd.errors import INTERNAL_ERROR, CommandError
from streamd.keyspace.database cimport Database
from streamd.protocol.reply cimport ReplyWriter

__all__ = ["ImportClient"]

log = logging.getLogger("streamd")


@cython.final
cdef class ImportClient(Client):
    """A client without a connection; made with the server's dispatcher."""

    cdef Dispatcher dispatcher
    cdef ReplyWriter unsent

    def __init__(self, Dispatcher dispatcher not None):
        self.dispatcher = dispatcher
        self.unsent = ReplyWriter()
        self.user = None
        self.state = 0
        self.parser.authenticated = True
        self.parser.max_bulk_len = INT64_MAX

    def feed(self, bytes data not None):
        """Take in bytes, cut anywhere."""
        self.parser.feed(data)

    @property
    def unrun(self):
        """Bytes that were taken in and not run, because they are no complete command yet."""
        return self.parser.size - self.parser.pos + self.parser.partial_size

    def run_some(self, long long budget_us):
        """Run what was taken in, up to a CLUSTER SYNCSLOTS, whose words are returned: it concerns the migration itself.

        None: more bytes are needed; []: the time is over. Raises CommandError when a command fails, ProtocolError.
        """
        cdef long long until = monotonic_us() + budget_us
        cdef list args = self.parser.next_request()
        while args is not None:
            if not args:
                pass
            elif is_word(args[0], b"CLUSTER") and len(args) > 2 and is_word(args[1], b"SYNCSLOTS"):
                return args
            else:
                self.run(args)
                if self.dispatcher.ended_us > until:
                    return []
            args = self.parser.next_request()
        return None

    cdef int run(self, list args) except -1:
        """Run one command, with all that follows from it. Raises CommandError when it fails."""
        cdef Dispatcher dispatcher = self.dispatcher
        cdef ServerContext context = dispatcher.context
        cdef Route route = dispatcher.routes.find(args)
        cdef Database db = self.db
        cdef unsigned long long dirty = context.dirty
        cdef long long started
        cdef object failure = None
        if route is None:
            raise CommandError(dispatcher.routes.explain_unknown(args))
        if not route.accepts(len(args)):
            raise CommandError(route.wrong_arity)
        dispatcher.look_at_clocks()
        started = dispatcher.ended_us
        db.keeps_expired = True
        context.is_replaying = context.in_transaction = True
        context.is_propagating = False
        dispatcher.executing = self
        dispatcher.executing_args = <PyObject *>args
        act_for(context, self, db, self.unsent)
        context.now_ms = db.now_ms = (started + dispatcher.wall_offset_us) // 1000
        db.touch_on_access = True
        self.last_command = route.command
        try:
            route.handler(context, args)
        except CommandError as error:
            failure = error
        except Exception as error:
            log.exception("Unexpected error while running a command of a migration", exc_info=error)
            failure = CommandError(INTERNAL_ERROR)
        finally:
            self.unsent.truncate(0)
            context.is_replaying = context.in_transaction = False
            db.keeps_expired = False
            dispatcher.executing = None
            dispatcher.effects.follow_sinks()
        dispatcher.ended_us = monotonic_us()
        dispatcher.count(self, route, args, dispatcher.ended_us - started)
        if context.dirty != dirty:
            dispatcher.effects.add(db.index, args, EVERYWHERE)
        dispatcher.effects.finish_unit()
        if dispatcher.has_after_reply:
            dispatcher.read_observer.unit_done(self)
        if dispatcher.ready:
            dispatcher.serve_ready()
        if dispatcher.state & HAS_MONITORS and not route.flags & (ADMIN | SKIP_MONITOR):
            dispatcher.monitor.show_request(self, redacted(route.command.full_name, args))
        if failure is not None:
            raise failure
        return 0


cdef inline bint is_word(bytes text, bytes word):
    return len(text) == len(word) and text.upper() == word
