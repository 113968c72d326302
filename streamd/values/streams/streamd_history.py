"""STREAMD.HISTORY: what a stream has in memory, and what its archive has. A command specific to streamd."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamd.core.spec import KeysAt, command, key
from streamd.entry_id import format_id
from streamd.errors import NoSuchKeyError, WrongTypeError
from streamd.values.streams.stream import Stream

if TYPE_CHECKING:
    from streamd.core.context import Context

__all__: list[str] = []


@command(
    "STREAMD.HISTORY", arity=2, group="stream", flags="readonly", keys=KeysAt(1), since="0.2.0",
    summary="Returns what a stream has in memory, and what its archive (stream-archive-dir) has.",
    complexity="O(1) in memory. The client waits while the archive is read.",
    args=(key(),),
)  # fmt: skip
def streamd_history(ctx: Context, args: list[bytes]) -> None:
    stream = ctx.db.find(args[1])
    if stream is None:
        raise NoSuchKeyError()
    if not isinstance(stream, Stream):
        raise WrongTypeError()
    facts: dict[str, int | str] | None = None
    if ctx.tiers is not None and not ctx.in_transaction:
        facts = ctx.tiers.facts(ctx, args, args[1], stream)
        if facts is None:
            return
    found = stream.range(count=1)
    memory: dict[str, Any] = {
        "entries": stream.length,
        "first-id": format_id(*found[0][0]) if found else b"",
        "last-id": format_id(*stream.last_entry_id) if found else b"",
    }
    tiers: dict[Any, Any] = {"memory": memory, "archive": facts}
    ctx.reply.value(tiers)
