"""STREAMD.STREAM: the rules of a stream. Commands specific to streamd."""

from __future__ import annotations

from streamd.core.context import Context
from streamd.core.spec import KeysAt, command, container, key
from streamd.delivery.options import arguments_of, describe, parse_changes, parse_names
from streamd.delivery.rule_commands import reply_with, store_rules
from streamd.delivery.rules import StreamRule, read_all_rules, stream_rules_with
from streamd.delivery.trimmed import trimmed_of

__all__: list[str] = []

container("STREAMD.STREAM", group="stream", since="0.2.0", summary="Groups the commands about the rules of streams.")


@command(
    "STREAMD.STREAM SET", arity=-4, group="stream", flags="write denyoom", keys=KeysAt(2, flags="RW update"), since="0.2.0",
    summary="Sets rules of a stream: how long entries are kept.", complexity="O(1); entries are trimmed later, between other commands.",
    args=(key(), arguments_of(StreamRule, with_values=True)),
)  # fmt: skip
def streamd_stream_set(ctx: Context, args: list[bytes]) -> None:
    store_rules(ctx, args[2], stream_rules_with(ctx.db, args[2], parse_changes(StreamRule, args[3:])))
    ctx.reply.ok()


@command(
    "STREAMD.STREAM GET", arity=3, group="stream", flags="readonly fast", keys=KeysAt(2, flags="RO access"), since="0.2.0",
    summary="Returns the rules of a stream, and what they have done.", complexity="O(1)", args=(key(),),
)  # fmt: skip
def streamd_stream_get(ctx: Context, args: list[bytes]) -> None:
    shown: list[tuple[bytes, bytes | int]] = []
    try:
        shown += describe(read_all_rules(ctx.db, args[2]).stream)
    except ValueError as error:
        shown.append((b"parse-error", str(error).encode(errors="backslashreplace")))
    trimmed = trimmed_of(ctx).by_stream.get((ctx.db.index, args[2]))
    if trimmed is not None:
        shown += [(b"trimmed-entries", trimmed.entries), (b"trimmed-bytes", trimmed.bytes)]
    reply_with(ctx, shown)


@command(
    "STREAMD.STREAM UNSET", arity=-3, group="stream", flags="write", keys=KeysAt(2, flags="RW update"), since="0.2.0",
    summary="Removes rules of a stream: the given ones, or all.", complexity="O(1)",
    args=(key(), arguments_of(StreamRule, with_values=False)),
)  # fmt: skip
def streamd_stream_unset(ctx: Context, args: list[bytes]) -> None:
    changes = parse_names(StreamRule, args[3:]) if len(args) > 3 else None
    store_rules(ctx, args[2], stream_rules_with(ctx.db, args[2], changes))
    ctx.reply.ok()
