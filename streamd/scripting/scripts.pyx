# cython: language_level=3, boundscheck=False, wraparound=False
"""Scripts: the scripts that a server knows, and how they are run.

A script is known by the SHA1 of its body. Those that came by EVAL are thrown out when there are many of them, the
longest unused first; those that came by SCRIPT LOAD stay until SCRIPT FLUSH. None is saved or propagated.
"""

cimport cython
from libc.stdint cimport int64_t

from streamd.core.capability cimport Capability
from streamd.core.client cimport Client
from streamd.core.context cimport Context
from streamd.core.dispatch cimport BUSY
from streamd.core.info cimport numbers
from streamd.core.route cimport ALLOW_BUSY, DENY_OOM, MAY_REPLICATE, RUNS_SCRIPT, STALE, WRITE, Route
from streamd.core.transaction cimport Transaction
from streamd.digests import sha1_hex
from streamd.errors import CommandError
from streamd.scripting.script_host cimport ALLOW_OOM, ALLOW_STALE, NO_WRITES, UNDECLARED, ScriptHost
from streamd.scripting.shebang import read_first_line
from streamd.scripting.short_scripts import is_short
from streamd.scripting.stage cimport Stage
from streamd.scripting.world cimport World

__all__ = ["Script", "Scripts"]

MOST_PASSING = 500
"""Scripts that came by EVAL and are kept."""

BUSY_TEXT = "BUSY Redis is busy running a script. You can only call {} KILL or SHUTDOWN NOSAVE."


@cython.final
cdef class Script:
    """A compiled script."""


cdef int read_memory(object capability, int64_t *to) except -1:
    cdef Scripts self = <Scripts>capability
    to[0] = to[1] = to[2] = <int64_t>self.world.heap.used
    to[3] = self.bodies
    to[4] = len(self.scripts)
    return 0


cdef int read_evicted(object capability, int64_t *to) except -1:
    to[0] = (<Scripts>capability).evicted
    return 0


cdef class Scripts(Capability):
    """All scripts of a server."""

    refusal_rank = 12       # behind permissions, and the routing of a cluster

    info = {
        "memory": (
            numbers(
                "used_memory_lua used_memory_vm_eval used_memory_lua_human:size used_memory_scripts_eval"
                " number_of_cached_scripts",
                read_memory,
            ),
        ),
        "stats": (numbers("evicted_scripts", read_evicted),),
    }

    def __init__(self, host not None):
        self.dispatcher = host.dispatcher
        self.config = host.config
        self.eval_route = self.dispatcher.routes.by_full_name.get("eval")
        self.evalsha_route = self.dispatcher.routes.by_full_name.get("evalsha")
        self.host = ScriptHost(host)
        self.world = World(self.host, "script")
        self.stage = Stage(host)
        self.host.pause = self.stage.interrupt
        self.dispatcher.script_runner = self
        self.server_bits = BUSY
        self.scripts = {}
        self.by_body = {}
        self.passing = {}

    def apply_settings(self):
        self.host.busy_us = 1000 * <long long>self.config.busy_reply_threshold
        self.world.heap.limit = self.config.lua_memory_limit or <size_t>-1

    def close(self):
        self.host.is_killed = True
        self.stage.close()

    def reset_statistics(self):
        self.evicted = 0

    def __len__(self):
        return len(self.scripts)

    @property
    def size(self):
        """Bytes that the bodies of the scripts take."""
        return self.bodies

    # --- Knowing scripts --------------------------------------------------------------------------------------------

    def has(self, bytes sha not None):
        """Whether a script is known."""
        return sha.lower() in self.scripts

    cdef Script find(self, bytes sha):
        """A script by its SHA1, as it was sent; None if it is not known."""
        cdef Script script = <Script>self.scripts.get(sha)
        if script is None:
            script = <Script>self.scripts.get(sha.lower())
        if script is not None:
            self.note_use(script)
        return script

    cdef int note_use(self, Script script) except -1:
        """A script has been asked for: if it passes, it is the last to be thrown out."""
        if script is not self.latest and not script.is_lasting:
            del self.passing[script.sha]
            self.passing[script.sha] = None
            self.latest = script
        return 0

    cdef Script add(self, bytes body, bint is_lasting):
        """The script with a body, compiled unless it is known. Raises CommandError."""
        cdef Script script = <Script>self.by_body.get(body)
        cdef bytes sha
        if script is not None:
            self.note_use(script)
        else:
            sha = sha1_hex(body)
            script = self.find(sha)     # another body may have the same
        if script is None:
            script = Script.__new__(Script)
            script.sha = sha
            script.body = body
            script.flags, code = read_first_line(body)
            script.function = self.world.compile(code)
            script.is_lasting = is_lasting
            self.scripts[sha] = self.by_body[body] = script
            self.bodies += len(body)
            if not is_lasting:
                self.passing[sha] = None
                self.latest = script
                if len(self.passing) > MOST_PASSING:
                    self.throw_out(next(iter(self.passing)))
        elif is_lasting and not script.is_lasting:
            script.is_lasting = True
            del self.passing[script.sha]
            self.latest = None
        return script

    def load(self, bytes body not None):
        """SCRIPT LOAD: the SHA1 of a script that is known from now on."""
        return self.add(body, True).sha

    cdef int throw_out(self, bytes sha) except -1:
        """Forget a script that came by EVAL."""
        cdef Script script = <Script>self.scripts.pop(sha)
        del self.passing[sha], self.by_body[script.body]
        self.bodies -= len(script.body)
        self.world.forget(script.function)
        self.evicted += 1
        return 0

    def flush(self):
        """SCRIPT FLUSH: forget all scripts, and all that they have left in the interpreter."""
        self.scripts.clear()
        self.by_body.clear()
        self.passing.clear()
        self.latest = None
        self.bodies = 0
        self.world.close()

    # --- Running scripts --------------------------------------------------------------------------------------------

    cdef int run(self, Context ctx, Script script, list args, Py_ssize_t keys, bint is_read_only) except -1:
        """Run a script for a request with so many keys; its reply is written.

        is_read_only  the command says that the script does not write
        """
        cdef Client client = ctx.client
        self.host.begin(client, "script", script.sha, args, script.flags, is_read_only)
        try:
            self.world.run(script.function, args, 3, keys, client.reply)
        finally:
            self.host.end()
        if self.world.has_error:
            self.host.count_failure(args)
        return 0

    cdef int run_unit(self, Client client, Route route, list args) except -1:
        if route is self.dispatcher.routes.exec_route and (
            client.transaction is None or not (<Transaction>client.transaction).flags & RUNS_SCRIPT
        ):
            return self.dispatcher.run(client, route, args)
        if self.ends_soon(route, args):
            return self.dispatcher.run(client, route, args)
        return self.stage.run(client, route, args)

    cdef bint ends_soon(self, Route route, list args) except -1:
        """Whether a request runs a script that is known to be short. A new one is examined when it comes again."""
        cdef Script script = None
        if route is self.evalsha_route:
            script = <Script>self.scripts.get(<bytes>args[1])
        elif route is self.eval_route:
            script = <Script>self.by_body.get(<bytes>args[1])
        if script is None:
            return False
        if not script.is_examined:
            script.is_short = is_short(self.world.dump(script.function))
            script.is_examined = True
        return script.is_short

    cdef int request_flags(self, Client client, Route route, list args) except -1:
        cdef Script script
        cdef int flags = route.flags, declared
        if route is self.dispatcher.routes.exec_route:
            return flags
        if route.command.name.startswith("FCALL"):
            found = self.functions.find_flags(args[1])
            if found is None:
                return flags
            declared = found
        elif b"SHA" in (<bytes>args[0]).upper():
            script = self.find(<bytes>args[1])
            if script is None:
                return flags
            declared = script.flags
        else:
            try:
                declared = read_first_line(<bytes>args[1])[0]
            except CommandError:
                return flags
        if declared & UNDECLARED:
            return flags
        if not declared & ALLOW_STALE:
            flags &= ~STALE
        if declared & NO_WRITES:
            return flags & ~MAY_REPLICATE
        return flags | WRITE | (0 if declared & ALLOW_OOM else DENY_OOM)

    # --- Scripts that run for too long ------------------------------------------------------------------------------

    cpdef str find_refusal(self, Client client, Route route, list args):
        if route.flags & ALLOW_BUSY:
            return None
        return self.busy_text

    @property
    def is_interrupted(self):
        """Whether a script has been running for too long, and others are answered meanwhile."""
        return self.dispatcher.is_busy

    @property
    def busy_text(self):
        """The error for requests that have to wait for a script to end."""
        return BUSY_TEXT.format(self.host.kind.upper())

    def kill(self, str kind not None):
        """SCRIPT KILL, FUNCTION KILL: end the script, or the function, that has been running for too long.

        Raises CommandError.
        """
        if not self.dispatcher.is_busy:
            raise CommandError("NOTBUSY No scripts in execution right now.")
        if self.host.has_written:
            raise CommandError(
                "UNKILLABLE Sorry the script already executed write commands against the dataset. You can either wait"
                " the script termination or kill the server in a hard way using the SHUTDOWN NOSAVE command."
            )
        if kind != self.host.kind:
            raise CommandError(self.busy_text)
        self.host.is_killed = True
