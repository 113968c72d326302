# cython: language_level=3, boundscheck=False, wraparound=False
"""EVAL, EVALSHA and their read-only forms.

Compiled, because a short script costs little more than its request. Behaviour: Redis 8.6, as seen on a running server.
"""

from streamd.core.args cimport require_int64
from streamd.core.client cimport Client
from streamd.core.context cimport Context
from streamd.core.dispatch cimport HAS_MONITORS, ServerContext
from streamd.core.spec import KeysCounted, command, integer, key, multiple, optional, string
from streamd.errors import NOT_AN_INTEGER, CommandError
from streamd.scripting.scripts cimport Script, Scripts

__all__ = ["eval_", "eval_ro", "evalsha", "evalsha_ro"]

FLAGS = "noscript stale skip_monitor no_mandatory_keys runs_script"
WRITING_FLAGS = FLAGS + " may_replicate"
COMPLEXITY = "that of the script"
KEYS = KeysCounted(2, flags="RW access update", notes="")


cpdef Py_ssize_t count_keys(list args, str problem=NOT_AN_INTEGER) except -1:
    """The number of keys of a request that runs a script. Raises CommandError.

    problem  what is answered if it is no number
    """
    cdef long long keys
    try:
        keys = require_int64(<bytes>args[2])
    except CommandError:
        raise CommandError(problem) from None
    if keys > len(args) - 3:
        raise CommandError("ERR Number of keys can't be greater than number of args")
    if keys < 0:
        raise CommandError("ERR Number of keys can't be negative")
    return <Py_ssize_t>keys


cdef int run(Context ctx, list args, bint is_sha, bint is_read_only) except -1:
    """Run the script of a request."""
    cdef Scripts scripts = <Scripts>(<ServerContext>ctx).dispatcher.script_runner
    cdef Script script
    cdef Py_ssize_t keys
    if scripts.dispatcher.state & HAS_MONITORS and not ctx.is_replaying:
        # Before the commands that it calls.
        scripts.dispatcher.monitor.show_request(<Client>ctx.client, args)
    keys = count_keys(args)
    if is_sha:
        script = scripts.find(<bytes>args[1])
        if script is None:
            raise CommandError("NOSCRIPT No matching script. Please use EVAL.")
    else:
        script = scripts.add(<bytes>args[1], False)
    return scripts.run(ctx, script, args, keys, is_read_only)


def arguments(name):
    """The arguments of a command that runs a script, of which the first has a name."""
    return (string(name), integer("numkeys"), optional(multiple(key())), optional(multiple(string("arg"))))


@command(
    "EVAL", arity=-3, group="scripting", flags=WRITING_FLAGS, keys=KEYS, since="2.6.0", complexity=COMPLEXITY,
    summary="Runs a script.", args=arguments("script"),
)
def eval_(Context ctx not None, list args not None):
    run(ctx, args, False, False)


@command(
    "EVALSHA", arity=-3, group="scripting", flags=WRITING_FLAGS, keys=KEYS, since="2.6.0", complexity=COMPLEXITY,
    summary="Runs a stored script.", args=arguments("sha1"),
)
def evalsha(Context ctx not None, list args not None):
    run(ctx, args, True, False)


@command(
    "EVAL_RO", arity=-3, group="scripting", flags=FLAGS + " readonly", keys=KeysCounted(2), since="7.0.0",
    complexity=COMPLEXITY, summary="Runs a script that does not write.", args=arguments("script"),
)
def eval_ro(Context ctx not None, list args not None):
    run(ctx, args, False, True)


@command(
    "EVALSHA_RO", arity=-3, group="scripting", flags=FLAGS + " readonly", keys=KeysCounted(2), since="7.0.0",
    complexity=COMPLEXITY, summary="Runs a stored script that does not write.",
    args=arguments("sha1"),
)
def evalsha_ro(Context ctx not None, list args not None):
    run(ctx, args, True, True)
