"""SCRIPT, on a server that runs no scripts: no script exists, and there is nothing to flush.

Behaviour: Redis 8.6 whose cache of scripts is empty, as seen on a running server.
"""

from __future__ import annotations

from streamd.core.context import Context
from streamd.core.help import write_help
from streamd.core.spec import command, container, multiple, oneof, optional, string, token
from streamd.errors import CommandError

__all__: list[str] = []

container("SCRIPT", group="scripting", since="2.6.0", summary="Groups the commands about scripts.")


@command(
    "SCRIPT EXISTS", arity=-3, group="scripting", flags="noscript", since="2.6.0",
    complexity="O(N) with N being the number of scripts asked for",
    tips=("request_policy:all_shards", "response_policy:agg_logical_and"),
    summary="Returns which scripts are known: none.", args=(multiple(string("sha1")),),
)  # fmt: skip
def script_exists(ctx: Context, args: list[bytes]) -> None:
    ctx.reply.value([0] * (len(args) - 2))


@command(
    "SCRIPT FLUSH", arity=-2, group="scripting", flags="noscript", since="2.6.0",
    tips=("request_policy:all_nodes", "response_policy:all_succeeded"),
    summary="Forgets all scripts.", history=(("6.2.0", "`ASYNC` and `SYNC`."),),
    args=(optional(oneof("flush-type", token("ASYNC"), token("SYNC"), since="6.2.0")),),
)  # fmt: skip
def script_flush(ctx: Context, args: list[bytes]) -> None:
    if len(args) > 3 or (len(args) == 3 and args[2].upper() not in (b"SYNC", b"ASYNC")):
        raise CommandError("ERR SCRIPT FLUSH only support SYNC|ASYNC option")
    ctx.reply.ok()


@command(
    "SCRIPT KILL", arity=2, group="scripting", flags="noscript allow_busy", since="2.6.0",
    tips=("request_policy:all_shards", "response_policy:one_succeeded"), summary="Answers that no script runs.",
)  # fmt: skip
def script_kill(ctx: Context, args: list[bytes]) -> None:
    raise CommandError("NOTBUSY No scripts in execution right now.")


@command(
    "SCRIPT HELP", arity=2, group="scripting", flags="loading stale", since="5.0.0",
    summary="Lists the subcommands of SCRIPT.",
)  # fmt: skip
def script_help(ctx: Context, args: list[bytes]) -> None:
    write_help(
        ctx.reply,
        args,
        (
            "EXISTS <sha1> [<sha1> ...]",
            "    Which scripts are known: none.",
            "FLUSH [ASYNC|SYNC]",
            "    Forget all scripts.",
            "KILL",
            "    End the script that runs: none does.",
        ),
    )
