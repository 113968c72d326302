"""STREAMD.GROUP: the rules of a group. Commands specific to streamd."""

from __future__ import annotations

from streamd.core.context import Context
from streamd.core.spec import (
    KeysAfter,
    KeysAt,
    command,
    container,
    integer,
    key,
    multiple,
    oneof,
    optional,
    string,
    token,
)
from streamd.delivery.failures import Place, state_of
from streamd.delivery.rules import (
    GroupRule,
    describe,
    format_rules,
    key_of_rules,
    parse_changes,
    parse_names,
    read_rules,
    rules_with,
    rules_without,
)  # fmt: skip
from streamd.keyspace.listener import EVENTS

__all__ = ["drop_rules_of_group"]

container(
    "STREAMD.GROUP", group="stream", since="0.2.0", summary="Groups the commands about the rules of consumer groups."
)

OPTION_NAMES = (token("MAXDELIVERIES"), token("DEADLETTER"), token("ACKWAIT"))


def find_dead_letter(args: list[bytes]) -> range | None:
    """Where the key of DEADLETTER is among the options of STREAMD.GROUP SET: at odd places from the fifth argument on."""
    for at in range(4, len(args) - 1, 2):
        if args[at].upper() == b"DEADLETTER":
            return range(at + 1, at + 2)
    return range(0)


@command(
    "STREAMD.GROUP SET", arity=-6, group="stream", flags="write denyoom",
    keys=(KeysAt(2, flags="RW update"), KeysAfter(b"DEADLETTER", start=4, flags="RW insert incomplete", find=find_dead_letter)),
    since="0.2.0",
    summary="Sets rules of a consumer group: after how many deliveries an entry is moved to a dead-letter stream.",
    complexity="O(N) with N the streams that have rules and are reached by dead letters.",
    args=(
        key(), string("group"),
        multiple(oneof(
            "option", integer("n", "MAXDELIVERIES"),
            key("dead-letter-key", spec=1, token="DEADLETTER"),  # noqa: S106
            integer("ms", "ACKWAIT"),
        )),
    ),
)  # fmt: skip
def streamd_group_set(ctx: Context, args: list[bytes]) -> None:
    store_rules(ctx, args[2], rules_with(ctx.db, args[2], args[3], parse_changes(args[4:])))
    ctx.reply.ok()


@command(
    "STREAMD.GROUP GET", arity=4, group="stream", flags="readonly fast", keys=KeysAt(2, flags="RO access"), since="0.2.0",
    summary="Returns the rules of a consumer group, and why an entry could not be moved.", complexity="O(1)",
    args=(key(), string("group")),
)  # fmt: skip
def streamd_group_get(ctx: Context, args: list[bytes]) -> None:
    shown: list[tuple[bytes, bytes | int]] = []
    try:
        rule = read_rules(ctx.db, args[2]).get(args[3])
    except ValueError as error:
        shown.append((b"parse-error", str(error).encode(errors="backslashreplace")))
        rule = None
    if rule is not None:
        shown += describe(rule)
    failure = state_of(ctx).failures.get(Place(ctx.db.index, args[2], args[3]))
    if failure is not None:
        shown += [(b"last-error", failure.error.encode()), (b"not-moved", len(failure.ids))]
    ctx.reply.map(len(shown))
    for name, value in shown:
        ctx.reply.bulk(name)
        if isinstance(value, bytes):
            ctx.reply.bulk(value)
        else:
            ctx.reply.integer(value)


@command(
    "STREAMD.GROUP UNSET", arity=-4, group="stream", flags="write", keys=KeysAt(2, flags="RW update"), since="0.2.0",
    summary="Removes rules of a consumer group: the given ones, or all.", complexity="O(1)",
    args=(key(), string("group"), optional(multiple(oneof("option", *OPTION_NAMES)))),
)  # fmt: skip
def streamd_group_unset(ctx: Context, args: list[bytes]) -> None:
    store_rules(ctx, args[2], rules_without(ctx.db, args[2], args[3], parse_names(args[4:])))
    ctx.reply.ok()


def store_rules(ctx: Context, stream: bytes, rules: dict[bytes, GroupRule]) -> None:
    """Make these the rules of a stream, as a plain string, and propagate that; nothing if they are so already."""
    where, text = key_of_rules(stream), format_rules(rules)
    ctx.effects = []
    if (ctx.db.peek(where) or b"") == text:
        return
    ctx.dirty += 1
    if rules:
        ctx.db.set(where, text)
        ctx.db.event(EVENTS["string"], b"set", where)
        ctx.propagate([b"SET", where, text])
    else:
        ctx.db.delete(where, tells=True)
        ctx.propagate([b"DEL", where])


def drop_rules_of_group(ctx: Context, stream: bytes, group: bytes) -> None:
    """The group is destroyed: its rules go, too. The caller propagates the rest."""
    try:
        rules = read_rules(ctx.db, stream)
    except ValueError:
        return
    if rules.pop(group, None) is not None:
        store_rules(ctx, stream, rules)
