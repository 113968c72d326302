# cython: language_level=3, boundscheck=False, wraparound=False
"""ScriptHost: the script that runs, and what it may ask of the server.

One script runs at a time, of whichever world. A command that it calls is found in the same table and run by the same
handler as any other, on behalf of a client without a connection, which stands in for the caller: it begins in the
caller's database, and has its own after SELECT. Effects join those of the request that runs the script.
"""

import logging

from streamd.core.client cimport LIMITED, TRACKING, Client
from streamd.core.clock cimport monotonic_us
from streamd.core.dispatch cimport FENCED, FEW_REPLICAS, FOLLOWING, MEMORY_LIMITED, REFUSING, Dispatcher
from streamd.core.effects cimport EVERYWHERE
from streamd.core.capability cimport Capability
from streamd.core.route cimport (
    AT_ONCE, DENY_OOM, FAILED, FOR_SUBSCRIBERS, MAY_REPLICATE, NO_AUTH, NO_MULTI, NO_SCRIPT, READ_ONLY, REFUSED,
    RUNS_SCRIPT, SEES_DATA, STALE, WRITE, Route,
)
from streamd.errors import OUT_OF_MEMORY, TOO_FEW_REPLICAS, CommandError
from streamd.memory.eviction import Eviction
from streamd.persistence.persistence import Persistence
from streamd.replication.refusals import READ_ONLY_TEXT, STALE_TEXT, ReplicaRefusals
from streamd.users.acl import Acl

__all__ = ["ScriptHost"]

log = logging.getLogger("streamd")

cdef enum:
    # What a script is never allowed: it needs a connection, or a unit of its own.
    NEEDS_CONNECTION = AT_ONCE | FOR_SUBSCRIBERS | NO_AUTH | NO_MULTI | RUNS_SCRIPT
    # The states of the server in which reading or writing may be refused.
    REFUSES_DATA = FENCED | FEW_REPLICAS | FOLLOWING | REFUSING

cdef unsigned long long FIRST_RANDOM = 0x1234ABCD330E
cdef unsigned long long RANDOM_MASK = 0xFFFFFFFFFFFF

OUT_OF_MEMORY_SCRIPT_TEXT = (
    "OOM allow-oom flag is not set on the script, can not run it when used memory > 'maxmemory'"
)
READ_ONLY_SCRIPT_TEXT = "READONLY Can not run script with write flag on readonly replica"
SNAPSHOT_FAILED_SCRIPT_TEXT = (
    "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk."
    " Writable scripts are blocked. Use 'no-writes' flag for read only scripts."
)
NOT_LOCAL = "ERR Script attempted to access a non local key in a cluster node"
SCRIPT_REDIRECTIONS = {
    "CROSSSLOT": "ERR Command '{}' in script attempted to access keys that don't hash to the same slot",
    "TRYAGAIN": (
        "ERR Unable to execute command '{}' in script because undeclared keys were accessed during rehashing of"
        " the slot"
    ),
    "Hash slot not served": "ERR Script attempted to access a slot not served",
    "The cluster is down": "ERR Script attempted to execute a command while the cluster is down",
    "The cluster is down and only accepts read commands":
        "ERR Script attempted to execute a write command while the cluster is down and readonly",
}
"""What a script is told, by the redirection that a client would get."""
STALE_SCRIPT_TEXT = (
    "MASTERDOWN Link with MASTER is down, replica-serve-stale-data is set to 'no' and 'allow-stale' flag is not set on"
    " the script."
)


cdef class ScriptHost:
    """The running script of a server, if there is one."""

    def __init__(self, host not None):
        self.dispatcher = host.dispatcher
        self.users = host.get(Acl)
        self.eviction = host.get(Eviction)
        self.refusals = host.get(ReplicaRefusals)
        self.saving = host.get(Persistence).saving
        self.kind = "script"
        self.random_state = FIRST_RANDOM

    cdef unsigned long long draw(self) noexcept:
        """The next 31 bits of math.random: a linear congruential generator, drand48."""
        self.random_state = (self.random_state * 0x5DEECE66D + 0xB) & RANDOM_MASK
        return self.random_state >> 17

    cdef void seed(self, int seed) noexcept:
        """Begin the sequence of math.random anew."""
        self.random_state = ((<unsigned long long>seed << 16) | 0x330E) & RANDOM_MASK

    cdef int begin(self, Client caller, str kind, bytes name, list request, int flags, bint is_read_only) except -1:
        """A script begins.

        name     its SHA1, or the name of the function
        flags    set of ScriptFlag
        is_read_only  it was called by a command that does not write
        Raises CommandError if it may not run now.
        """
        cdef Dispatcher dispatcher = self.dispatcher
        cdef str refusal
        if (dispatcher.state or is_read_only) and not dispatcher.context.is_replaying:
            refusal = self.find_first_refusal(flags, is_read_only)
            if refusal is not None:
                raise CommandError(refusal)
        if self.actor is None:
            self.actor = Client(dispatcher)
            self.actor._address = "lua"
        self.actor.act_for(caller)
        self.actor.reply.resp = 2
        self.caller = caller
        self.kind = kind
        self.name = name
        self.request = request
        self.is_read_only = is_read_only or flags & NO_WRITES != 0
        if dispatcher.router is not None:
            self.may_cross = flags & (UNDECLARED | ALLOW_CROSS_SLOT_KEYS) != 0
            self.slot = dispatcher.router.slot_of_request(dispatcher.routes.find(request), request)
        self.checks_memory = dispatcher.state & MEMORY_LIMITED != 0 and not flags & ALLOW_OOM and self.eviction.is_full
        self.has_written = self.is_killed = self.is_slow = False
        self.destination = EVERYWHERE
        self.started_us = monotonic_us()
        self.outer = dispatcher.context.frame()
        dispatcher.context.in_transaction = True
        return 0

    cdef str find_first_refusal(self, int flags, bint is_read_only):
        """Why a script may not begin, or None. The order of the checks is Redis's.

        Most reasons have refused the request before; not those that came about inside the transaction that runs it.
        """
        cdef int state = self.dispatcher.state
        cdef bint is_stale = state & FOLLOWING and self.refusals.is_stale
        if flags & UNDECLARED:
            return STALE_TEXT if is_stale else None     # what it calls decides about the rest
        if flags & NO_CLUSTER and self.dispatcher.router is not None:
            return "ERR Can not run script on cluster, 'no-cluster' flag is set."
        if is_stale and not flags & ALLOW_STALE:
            return STALE_SCRIPT_TEXT
        if flags & NO_WRITES:
            return None
        if state & FOLLOWING and self.refusals.is_read_only:
            return READ_ONLY_SCRIPT_TEXT
        if state & REFUSING and self.saving.find_refusal():
            return SNAPSHOT_FAILED_SCRIPT_TEXT
        if is_read_only:
            return "ERR Can not execute a script with write flag using *_ro command."
        if state & (FENCED | FEW_REPLICAS):
            return TOO_FEW_REPLICAS
        if state & MEMORY_LIMITED and not flags & ALLOW_OOM and self.eviction.is_full:
            return OUT_OF_MEMORY_SCRIPT_TEXT
        return None

    cdef int end(self) except -1:
        """It has ended."""
        self.dispatcher.context.go_back(self.outer)
        self.dispatcher.context.effects = []    # what it has called is propagated, not the command that runs it
        self.outer = None
        self.actor.reply.truncate(0)
        self.caller = None
        self.request = None
        return 0

    cdef int count_failure(self, list args) except -1:
        """The reply to a request that ran a script has an error in it."""
        return self.dispatcher.count_error(self.dispatcher.routes.find(args), FAILED, None)

    cdef int command(self, list args) except -1:
        """Run a command for the script; its reply is in `actor.reply`. Raises CommandError if it may not run."""
        cdef Dispatcher dispatcher = self.dispatcher
        cdef Route route = dispatcher.routes.find(args)
        cdef Py_ssize_t before
        cdef str refusal
        self.actor.reply.truncate(0)
        if route is None:
            self.reject(None, "ERR Unknown Redis command called from script")
        if not route.accepts(len(args)):
            self.reject(route, "ERR Wrong number of args calling Redis command from script")
        if route.flags & NO_SCRIPT and (not dispatcher.trusts_scripts or route.flags & NEEDS_CONNECTION):
            self.reject(route, "ERR This Redis command is not allowed from script")
        if dispatcher.state or self.is_read_only or self.caller.state:
            refusal = self.find_refusal(route, args)
            if refusal is not None:
                self.reject(route, refusal)
        if dispatcher.router is not None and not dispatcher.context.is_replaying:
            refusal = self.find_redirection(route, args)
            if refusal is not None:
                self.reject(route, refusal)
        if route.flags & WRITE:
            self.has_written = True
        before = len(dispatcher.effects.pending)
        dispatcher.run_inner(self.actor, route, args)
        if self.destination != EVERYWHERE:
            dispatcher.effects.redirect(before, self.destination)
        if self.caller.state & TRACKING and route.flags & READ_ONLY:
            dispatcher.read_observer.command_read(self.caller, route, args)
        return 0

    cdef str find_refusal(self, Route route, list args):
        """Why the script may not run a command now, or None. The order of the checks is Redis's."""
        cdef Dispatcher dispatcher = self.dispatcher
        cdef Capability capability
        cdef str refusal
        cdef bint is_replaying = dispatcher.context.is_replaying
        if dispatcher.state & FOLLOWING and self.refusals.is_stale and not route.flags & STALE:
            return "ERR Can not execute the command on a stale replica"
        if self.caller.state & LIMITED:
            refusal = self.users.find_script_refusal(self.caller, route, args)
            if refusal is not None:
                return refusal
        if self.is_read_only and route.flags & (WRITE | MAY_REPLICATE):
            return "ERR Write commands are not allowed from read-only scripts."
        if self.has_written or is_replaying:
            return None     # a script is not cut in half
        if route.flags & SEES_DATA and dispatcher.state & REFUSES_DATA:
            if route.flags & WRITE and dispatcher.state & FOLLOWING and self.refusals.is_read_only:
                return READ_ONLY_TEXT       # before MISCONF, unlike elsewhere
            for capability in dispatcher.refusing:
                if dispatcher.state & REFUSES_DATA & capability.server_bits:
                    refusal = capability.find_refusal(self.actor, route, args)
                    if refusal is not None:
                        return refusal
        if self.checks_memory and route.flags & DENY_OOM:
            return OUT_OF_MEMORY
        return None

    cdef str find_redirection(self, Route route, list args):
        """Why the script may not access keys, which another node of the cluster has, or None."""
        cdef Capability router = self.dispatcher.router
        cdef str refusal = router.find_redirection(self.caller, route, args, route.flags)
        cdef int slot
        if refusal is not None:
            code, _, text = refusal.partition(" ")
            shown = SCRIPT_REDIRECTIONS.get(text if code == "CLUSTERDOWN" else code, NOT_LOCAL)
            return shown.format(route.command.full_name)
        slot = router.slot
        if slot != -1 and not self.may_cross:
            if slot < 0 or self.slot >= 0 and slot != self.slot:
                return "ERR Script attempted to access keys that do not hash to the same slot"
            self.slot = slot
        return None

    cdef int reject(self, Route route, str text) except -1:
        """Count and raise an error."""
        self.dispatcher.answer_error(self.actor, route, REFUSED, text)
        raise CommandError(text)

    cdef str may_call(self, list args):
        """redis.acl_check_cmd: whether the caller may run a request; the answer as text, or an error's."""
        cdef Dispatcher dispatcher = self.dispatcher
        cdef Route route = dispatcher.routes.find(args)
        if route is None:
            return "ERR Invalid command passed to redis.acl_check_cmd()"
        if not route.accepts(len(args)):
            return "ERR Wrong number of args for redis.acl_check_cmd()"
        if not self.caller.state & LIMITED or self.caller.user.permissions.find_denial(route.index, args) is None:
            return "yes"
        return "no"

    cdef int look_at_clock(self) except -1:
        """Called while the script runs, now and then; returns 1 when it has to end."""
        cdef long long took_us
        if self.busy_us and not self.is_killed:
            took_us = monotonic_us() - self.started_us
            if took_us >= self.busy_us:
                if not self.is_slow:
                    self.is_slow = True
                    self.tell_slow(took_us // 1000)
                if self.pause is not None:
                    self.pause()
        return self.is_killed

    cdef int tell_slow(self, long long took_ms) except -1:
        """Log that the script has run for too long."""
        log.warning(
            "Slow script detected: still in execution after %d milliseconds. You can try killing the script using the"
            " %s KILL command. Script name is: %s.",
            took_ms, self.kind.upper(), self.name.decode("utf-8", "surrogateescape"),
        )
        return 0
