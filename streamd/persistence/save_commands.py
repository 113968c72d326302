"""Commands that write the data to files: SAVE, BGSAVE, LASTSAVE, BGREWRITEAOF.

Behaviour: Redis 8.6.
"""

from __future__ import annotations

from streamd.core.dispatch import ServerContext
from streamd.core.spec import command, optional, token
from streamd.errors import OptionSyntaxError
from streamd.persistence.persistence import Persistence

__all__: list[str] = []


@command(
    "SAVE", arity=1, group="server", flags="admin noscript no_async_loading no_multi", since="1.0.0",
    complexity="O(N) with N being the number of keys",
    summary="Writes a snapshot of all databases to a file, while all clients wait.",
)  # fmt: skip
def save(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.get(Persistence).saving.save()
    ctx.reply.ok()


@command(
    "BGSAVE", arity=-1, group="server", flags="admin noscript no_async_loading", since="1.0.0",
    complexity="O(1) for the server; a child process does the work", history=(("3.2.2", "`SCHEDULE`."),),
    summary="Has a child process write a snapshot of all databases to a file.",
    args=(optional(token("SCHEDULE"), since="3.2.2"),),
)  # fmt: skip
def bgsave(ctx: ServerContext, args: list[bytes]) -> None:
    if len(args) > 2 or (len(args) == 2 and args[1].upper() != b"SCHEDULE"):
        raise OptionSyntaxError
    ctx.reply.simple(ctx.get(Persistence).saving.start(may_wait=len(args) == 2, must_wait=ctx.in_transaction))


@command(
    "LASTSAVE", arity=1, group="server", flags="loading stale fast", categories="admin dangerous", since="1.0.0",
    tips=("nondeterministic_output",), summary="Returns the Unix time of the last snapshot that was written.",
)  # fmt: skip
def lastsave(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.reply.integer(ctx.get(Persistence).saving.last_save)


@command(
    "BGREWRITEAOF", arity=1, group="server", flags="admin noscript no_async_loading", since="1.0.0",
    complexity="O(1) for the server; a child process does the work",
    summary="Rewrites the append-only file in a child process, as short as possible.",
)  # fmt: skip
def bgrewriteaof(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.reply.simple(ctx.get(Persistence).append_only.start(must_wait=ctx.in_transaction))
