"""SCRIPT: the scripts that the server knows, and the one that runs. Behaviour: Redis 8.6, as seen on a running server."""

from __future__ import annotations

from streamd.core.dispatch import ServerContext
from streamd.core.help import declare_help
from streamd.core.spec import command, container, multiple, oneof, optional, string, token
from streamd.errors import CommandError
from streamd.scripting.scripts import Scripts

__all__: list[str] = []

ON_ALL = ("request_policy:all_nodes", "response_policy:all_succeeded")

container("SCRIPT", group="scripting", since="2.6.0", summary="Groups the commands about scripts.")


@command(
    "SCRIPT LOAD", arity=3, group="scripting", flags="noscript stale", since="2.6.0", tips=ON_ALL,
    complexity="O(N) with N being the length of the script", summary="Stores a script for EVALSHA.",
    args=(string("script"),),
)  # fmt: skip
def script_load(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.reply.bulk(ctx.get(Scripts).load(args[2]))


@command(
    "SCRIPT EXISTS", arity=-3, group="scripting", flags="noscript", since="2.6.0",
    complexity="O(N) with N being the number of scripts asked for",
    tips=("request_policy:all_shards", "response_policy:agg_logical_and"),
    summary="Returns which scripts are stored.", args=(multiple(string("sha1")),),
)  # fmt: skip
def script_exists(ctx: ServerContext, args: list[bytes]) -> None:
    scripts = ctx.get(Scripts)
    ctx.reply.value([int(scripts.has(sha)) for sha in args[2:]])


@command(
    "SCRIPT FLUSH", arity=-2, group="scripting", flags="noscript", since="2.6.0", tips=ON_ALL,
    complexity="O(N) with N being the number of scripts", summary="Removes all scripts.",
    history=(("6.2.0", "`ASYNC` and `SYNC`."),),
    args=(optional(oneof("flush-type", token("ASYNC"), token("SYNC"), since="6.2.0")),),
)  # fmt: skip
def script_flush(ctx: ServerContext, args: list[bytes]) -> None:
    if len(args) > 3 or (len(args) == 3 and args[2].upper() not in (b"SYNC", b"ASYNC")):
        raise CommandError("ERR SCRIPT FLUSH only support SYNC|ASYNC option")
    ctx.get(Scripts).flush()
    ctx.reply.ok()


@command(
    "SCRIPT KILL", arity=2, group="scripting", flags="noscript allow_busy", since="2.6.0",
    tips=("request_policy:all_shards", "response_policy:one_succeeded"),
    summary="Ends a script that has been running for too long.",
)  # fmt: skip
def script_kill(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.get(Scripts).kill("script")
    ctx.reply.ok()


@command(
    "SCRIPT DEBUG", arity=3, group="scripting", flags="noscript", since="3.2.0",
    summary="Refuses to start the debugger, which is not supported.",
    args=(oneof("mode", token("YES"), token("SYNC"), token("NO")),),
)  # fmt: skip
def script_debug(ctx: ServerContext, args: list[bytes]) -> None:
    mode = args[2].upper()
    if mode in (b"YES", b"SYNC"):
        raise CommandError("ERR This server has no debugger for scripts")
    if mode != b"NO":
        raise CommandError("ERR Use SCRIPT DEBUG YES/SYNC/NO")
    ctx.reply.ok()


declare_help(
    "SCRIPT", "scripting", "5.0.0",
    "DEBUG NO",
    "    Run scripts without a debugger. There is none.",
    "EXISTS <sha1> [<sha1> ...]",
    "    Which scripts are known.",
    "FLUSH [ASYNC|SYNC]",
    "    Forget all scripts.",
    "KILL",
    "    End a script that has been running for too long and has not written anything.",
    "LOAD <script>",
    "    Make a script known, and return its SHA1.",
)  # fmt: skip
