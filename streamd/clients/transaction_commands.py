"""Transactions: MULTI, EXEC, DISCARD, WATCH, UNWATCH.

Requests are queued, and EXEC runs them, in the server's dispatcher like all requests. This module only maps commands
to it. Behaviour: Redis 8.6.
"""

from __future__ import annotations

from streamd.core.dispatch import ServerContext
from streamd.core.spec import KeysAt, command, key, multiple
from streamd.errors import CommandError

__all__: list[str] = []

FLAGS = "noscript loading stale fast allow_busy"


@command(
    "MULTI", arity=1, group="transactions", flags=FLAGS, since="1.2.0",
    summary="Starts a transaction: further commands are queued until EXEC.",
)  # fmt: skip
def multi(ctx: ServerContext, args: list[bytes]) -> None:
    if ctx.client.transaction is not None:
        raise CommandError("ERR MULTI calls can not be nested")
    ctx.begin_transaction()
    ctx.reply.ok()


@command(
    "EXEC", arity=1, group="transactions", flags="noscript loading stale skip_slowlog runs_script", since="1.2.0",
    complexity="that of the queued commands",
    summary="Runs the queued commands, with no other client's commands in between.",
)  # fmt: skip
def exec_(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.run_transaction()


@command(
    "DISCARD", arity=1, group="transactions", flags=FLAGS, since="2.0.0",
    complexity="O(N) with N being the number of queued commands", summary="Ends a transaction without running the queued commands.",
)  # fmt: skip
def discard(ctx: ServerContext, args: list[bytes]) -> None:
    if ctx.client.transaction is None:
        raise CommandError("ERR DISCARD without MULTI")
    ctx.end_transaction()
    ctx.reply.ok()


@command(
    "WATCH", arity=-2, group="transactions", flags=FLAGS, keys=KeysAt(1, -1, flags="RO"), since="2.2.0",
    summary="Aborts the next transaction if one of these keys changes before EXEC.", args=(multiple(key()),),
)  # fmt: skip
def watch(ctx: ServerContext, args: list[bytes]) -> None:
    if ctx.client.transaction is not None:
        raise CommandError("ERR WATCH inside MULTI is not allowed")
    for name in args[1:]:
        ctx.watch(name)
    ctx.reply.ok()


@command(
    "UNWATCH", arity=1, group="transactions", flags=FLAGS, since="2.2.0",
    complexity="O(N) with N being the number of watched keys", summary="Stops watching all keys.",
)  # fmt: skip
def unwatch(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.unwatch()
    ctx.reply.ok()
