"""Commands that have the data written to files: SAVE, BGSAVE, LASTSAVE, BGREWRITEAOF.

The work is the server's; what they ask of it is written down as `Persistence`. Behaviour: Redis 8.6.
"""

from __future__ import annotations

from typing import Protocol

from streamd.core.spec import command, optional, token
from streamd.errors import OptionSyntaxError
from streamd.protocol.reply import ReplyWriter

__all__ = ["Persistence", "PersistenceContext"]


class Persistence(Protocol):
    """The server's files. What cannot be done raises CommandError."""

    last_save: int
    """Unix time of the last snapshot that was written, or of the start."""

    def save(self) -> None:
        """Write a snapshot; everybody waits."""

    def start_save(self, *, may_wait: bool, must_wait: bool) -> str:
        """Have a child write a snapshot; returns what to answer.

        may_wait   begin later when another child is at work
        must_wait  begin later in any case
        """

    def start_rewrite(self, *, must_wait: bool) -> str:
        """Have a child rewrite the append-only file; returns what to answer."""


class Server(Protocol):
    persistence: Persistence


class PersistenceContext(Protocol):
    reply: ReplyWriter
    in_transaction: bool
    server: Server


@command(
    "SAVE", arity=1, group="server", flags="admin noscript no_async_loading no_multi", since="1.0.0",
    complexity="O(N) with N being the number of keys",
    summary="Writes a snapshot of all databases to a file, while everybody waits.",
)  # fmt: skip
def save(ctx: PersistenceContext, args: list[bytes]) -> None:
    ctx.server.persistence.save()
    ctx.reply.ok()


@command(
    "BGSAVE", arity=-1, group="server", flags="admin noscript no_async_loading", since="1.0.0",
    complexity="O(1) for the server; a child process does the work", history=(("3.2.2", "`SCHEDULE`."),),
    summary="Has a child process write a snapshot of all databases to a file.",
    args=(optional(token("SCHEDULE"), since="3.2.2"),),
)  # fmt: skip
def bgsave(ctx: PersistenceContext, args: list[bytes]) -> None:
    if len(args) > 2 or (len(args) == 2 and args[1].upper() != b"SCHEDULE"):
        raise OptionSyntaxError
    ctx.reply.simple(ctx.server.persistence.start_save(may_wait=len(args) == 2, must_wait=ctx.in_transaction))


@command(
    "LASTSAVE", arity=1, group="server", flags="loading stale fast", categories="admin dangerous", since="1.0.0",
    tips=("nondeterministic_output",), summary="Returns the Unix time of the last snapshot that was written.",
)  # fmt: skip
def lastsave(ctx: PersistenceContext, args: list[bytes]) -> None:
    ctx.reply.integer(ctx.server.persistence.last_save)


@command(
    "BGREWRITEAOF", arity=1, group="server", flags="admin noscript no_async_loading", since="1.0.0",
    complexity="O(1) for the server; a child process does the work",
    summary="Rewrites the append-only file in a child process, as short as possible.",
)  # fmt: skip
def bgrewriteaof(ctx: PersistenceContext, args: list[bytes]) -> None:
    ctx.reply.simple(ctx.server.persistence.start_rewrite(must_wait=ctx.in_transaction))
