# cython: language_level=3, boundscheck=False, wraparound=False
"""FCALL and FCALL_RO. Behaviour: Redis 8.6, as seen on a running server."""

from streamd.core.client cimport Client
from streamd.core.context cimport Context
from streamd.core.dispatch cimport HAS_MONITORS
from streamd.core.spec import KeysCounted, command
from streamd.errors import CommandError
from streamd.scripting.eval_commands import COMPLEXITY, FLAGS, KEYS, WRITING_FLAGS, arguments, count_keys
from streamd.scripting.functions cimport Function, Functions

__all__ = ["fcall", "fcall_ro"]

from streamd.scripting.functions import Functions as functions_type


cdef int run(Context ctx, list args, bint is_read_only) except -1:
    """Call the function of a request."""
    cdef Functions functions = <Functions>ctx.parts[functions_type]
    cdef Function function
    if functions.host.dispatcher.state & HAS_MONITORS and not ctx.is_replaying:
        # Before the commands that it calls.
        functions.host.dispatcher.monitor.show_request(<Client>ctx.client, args)
    function = functions.find(<bytes>args[1])
    if function is None:
        raise CommandError("ERR Function not found")
    return functions.run(ctx, function, args, count_keys(args, "ERR Bad number of keys provided"), is_read_only)


@command(
    "FCALL", arity=-3, group="scripting", flags=WRITING_FLAGS, keys=KEYS, since="7.0.0", complexity=COMPLEXITY,
    summary="Calls a function.", args=arguments("function"),
)
def fcall(Context ctx not None, list args not None):
    run(ctx, args, False)


@command(
    "FCALL_RO", arity=-3, group="scripting", flags=FLAGS + " readonly", keys=KeysCounted(2), since="7.0.0",
    complexity=COMPLEXITY, summary="Calls a function that does not write.", args=arguments("function"),
)
def fcall_ro(Context ctx not None, list args not None):
    run(ctx, args, True)
