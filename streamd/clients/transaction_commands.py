"""Transactions: MULTI, EXEC, DISCARD, WATCH, UNWATCH.

Requests are queued, and run by EXEC, where all requests are run: in the server's dispatcher. What is left to say here is
what each command asks of it. Behaviour: Redis 8.6.
"""

from __future__ import annotations

from streamd.core.dispatch import ServerContext
from streamd.core.spec import KeysAt, command, key, multiple
from streamd.errors import CommandError

__all__: list[str] = []

FLAGS = "noscript loading stale fast allow_busy"


@command(
    "MULTI", arity=1, group="transactions", flags=FLAGS, since="1.2.0",
    summary="Begins a transaction: what follows is queued until EXEC.",
)  # fmt: skip
def multi(ctx: ServerContext, args: list[bytes]) -> None:
    if ctx.client.transaction is not None:
        raise CommandError("ERR MULTI calls can not be nested")
    ctx.begin_transaction()
    ctx.reply.ok()


@command(
    "EXEC", arity=1, group="transactions", flags="noscript loading stale skip_slowlog", since="1.2.0",
    complexity="that of the queued commands",
    summary="Runs what is queued, with no other client's commands in between.",
)  # fmt: skip
def exec_(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.run_transaction()


@command(
    "DISCARD", arity=1, group="transactions", flags=FLAGS, since="2.0.0",
    complexity="O(N) with N being the number of queued commands", summary="Ends a transaction; nothing that is queued is run.",
)  # fmt: skip
def discard(ctx: ServerContext, args: list[bytes]) -> None:
    if ctx.client.transaction is None:
        raise CommandError("ERR DISCARD without MULTI")
    ctx.end_transaction()
    ctx.reply.ok()


@command(
    "WATCH", arity=-2, group="transactions", flags=FLAGS, keys=KeysAt(1, -1, flags="RO"), since="2.2.0",
    summary="Lets the next transaction be dropped when one of these keys changes before EXEC.", args=(multiple(key()),),
)  # fmt: skip
def watch(ctx: ServerContext, args: list[bytes]) -> None:
    if ctx.client.transaction is not None:
        raise CommandError("ERR WATCH inside MULTI is not allowed")
    for name in args[1:]:
        ctx.watch(name)
    ctx.reply.ok()


@command(
    "UNWATCH", arity=1, group="transactions", flags=FLAGS, since="2.2.0",
    complexity="O(N) with N being the number of watched keys", summary="Watches no keys any more.",
)  # fmt: skip
def unwatch(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.unwatch()
    ctx.reply.ok()
