"""STREAMD.STREAM: the rules of a stream. Commands specific to streamd."""

from __future__ import annotations

from streamd.core.context import Context
from streamd.core.spec import KeysAfter, KeysAt, command, container, key
from streamd.delivery.defaults import stream_rule_in_force
from streamd.delivery.progress import all_progress
from streamd.delivery.rule_commands import FROM_CONFIGURATION, reply_with, store_rules
from streamd.delivery.rule_options import arguments_of, describe, find_value, parse_changes, parse_names
from streamd.delivery.rules import StreamRule, read_all_rules, stream_rules_with
from streamd.delivery.trimmed import trimmed_of

__all__: list[str] = []

container("STREAMD.STREAM", group="stream", since="0.2.0", summary="Groups the commands about the rules of streams.")


def find_target(args: list[bytes]) -> range | None:
    """Where the key of FEEDS is among the arguments of STREAMD.STREAM SET."""
    at = find_value(StreamRule, "FEEDS", args[3:])
    return range(0) if at is None else range(3 + at, 4 + at)


@command(
    "STREAMD.STREAM SET", arity=-4, group="stream", flags="write denyoom",
    keys=(KeysAt(2, flags="RW update"), KeysAfter(b"FEEDS", start=3, flags="RW insert incomplete", find=find_target)), since="0.2.0",
    summary="Sets rules of a stream: when entries move to another stream, when they expire, and how long they are kept.",
    complexity="O(N) with N the streams that are fed on the way; entries are read, moved and trimmed later, between other commands.",
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
    own = rule = stream_rule_in_force(ctx, ctx.db, args[2])
    try:
        own = read_all_rules(ctx.db, args[2]).stream
    except ValueError as error:
        shown.append((b"parse-error", str(error).encode(errors="backslashreplace")))
    shown += describe(rule)
    if rule != own:
        shown.append(FROM_CONFIGURATION)
    progress = all_progress(ctx).by_stream.get((ctx.db.index, args[2]))
    if progress is not None:
        shown += [(name.encode(), value) for name, value in vars(progress).items() if value and name != "error"]
        if progress.error:
            shown.append((b"last-error", progress.error.encode()))
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
