"""STREAMD.NOARCHIVE: a connection that reads what is in memory, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamd.core.spec import command, oneof, token
from streamd.errors import OptionSyntaxError
from streamd.tiered.archive_folder import TieredReads

if TYPE_CHECKING:
    from streamd.core.dispatch import ServerContext

__all__: list[str] = []


@command(
    "STREAMD.NOARCHIVE", arity=2, group="connection", flags="noscript loading stale fast", since="0.2.0",
    summary="Sets whether reads of this connection are answered from memory alone, as programs that archive need them.",
    complexity="O(1)",
    args=(oneof("enabled", token("ON"), token("OFF")),),
)  # fmt: skip
def streamd_noarchive(ctx: ServerContext, args: list[bytes]) -> None:
    live_only = ctx.get(TieredReads).entries.live_only
    word = args[1].upper()
    if word == b"ON":
        live_only.add(ctx.client.id)
    elif word == b"OFF":
        live_only.discard(ctx.client.id)
    else:
        raise OptionSyntaxError()
    ctx.reply.ok()
