"""SLOWLOG: the requests that took longest to run.

They are kept by SlowLog. Behaviour: Redis 8.6, as seen on a running
server.
"""

from __future__ import annotations

from streamd.core.args import integer as read_integer
from streamd.core.dispatch import ServerContext
from streamd.core.help import declare_help
from streamd.core.spec import command, container, integer, optional
from streamd.errors import CommandError, NotIntegerError, printable
from streamd.observe.slowlog import SlowLog

__all__: list[str] = []

SHOWN = 10
"""Entries that SLOWLOG GET returns by default."""


# --- The commands ---------------------------------------------------------------------------------------------------

container("SLOWLOG", group="server", since="2.2.12", summary="Groups the commands about the slow log.")


def _read_count(text: bytes) -> int:
    try:
        count = int(read_integer(text))
    except NotIntegerError:
        count = -2
    if count < -1:
        raise CommandError("ERR count should be greater than or equal to -1")
    return count


@command(
    "SLOWLOG GET", arity=-2, group="server", flags="admin loading stale", since="2.2.12",
    complexity="O(N) with N being the number of entries returned",
    summary="Returns slow requests, the latest first.", args=(optional(integer("count")),),
    history=(("4.0.0", "The client's address and name."), ("8.10.0", "The number of arguments.")), tips=("request_policy:all_nodes", "nondeterministic_output"),
)  # fmt: skip
def slowlog_get(ctx: ServerContext, args: list[bytes]) -> None:
    if len(args) > 3:
        raise CommandError(
            f"ERR unknown subcommand or wrong number of arguments for '{printable(args[1][:128])}'. Try SLOWLOG HELP."
        )
    found = ctx.get(SlowLog).newest(_read_count(args[2]) if len(args) == 3 else SHOWN)
    reply = ctx.reply
    reply.array(len(found))
    for entry in found:
        reply.array(7)
        reply.integer(entry.id)
        reply.integer(entry.at_s)
        reply.integer(entry.took_us)
        reply.bulk_array(list(entry.args))
        reply.bulk(entry.address)
        reply.bulk(entry.name)
        reply.integer(entry.argc)


@command(
    "SLOWLOG LEN", arity=2, group="server", flags="admin loading stale", since="2.2.12",
    summary="Returns how many requests are in the slow log.",
    tips=("request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"),
)  # fmt: skip
def slowlog_len(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.reply.integer(len(ctx.get(SlowLog)))


@command(
    "SLOWLOG RESET", arity=2, group="server", flags="admin loading stale", since="2.2.12",
    complexity="O(N) with N being the number of entries", summary="Empties the slow log.",
    tips=("request_policy:all_nodes", "response_policy:all_succeeded"),
)  # fmt: skip
def slowlog_reset(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.get(SlowLog).clear()
    ctx.reply.ok()


declare_help(
    "SLOWLOG", "server", "6.2.0",
    "GET [<count>]",
    "    Show the last <count> slow requests (10 by default, -1 for all), each with:",
    "    its ID, when it was run, the microseconds that it took, its arguments,",
    "    the address and name of the client, and how many arguments there were",
    "LEN",
    "    Show how many requests are in the log.",
    "RESET",
    "    Empty the log.",
)  # fmt: skip
