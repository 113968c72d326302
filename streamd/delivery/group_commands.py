"""STREAMD.GROUP: the rules of a group. Commands specific to streamd."""

from __future__ import annotations

from streamd.core.context import Context
from streamd.core.spec import KeysAfter, KeysAt, command, container, key, string
from streamd.delivery.defaults import group_rule_in_force
from streamd.delivery.rule_commands import FROM_CONFIGURATION, reply_with, store_rules
from streamd.delivery.rule_options import arguments_of, describe, find_value, parse_changes, parse_names
from streamd.delivery.rules import GroupRule, read_all_rules, read_rules, rules_with, rules_without
from streamd.delivery.state import Place, state_of

__all__ = ["drop_rules_of_group"]

container(
    "STREAMD.GROUP", group="stream", since="0.2.0", summary="Groups the commands about the rules of consumer groups."
)


def find_dead_letter(args: list[bytes]) -> range:
    """Where the key of DEADLETTER is among the arguments of STREAMD.GROUP SET."""
    at = find_value(GroupRule, "DEADLETTER", args[4:])
    return range(0) if at is None else range(4 + at, 5 + at)


@command(
    "STREAMD.GROUP SET", arity=-6, group="stream", flags="write denyoom",
    keys=(KeysAt(2, flags="RW update"), KeysAfter(b"DEADLETTER", start=4, flags="RW insert incomplete", find=find_dead_letter)),
    since="0.2.0",
    summary="Sets rules of a consumer group: when entries are retried, and after how many deliveries they are moved.",
    complexity="O(N) with N the streams that have rules and are reached by dead letters.",
    args=(key(), string("group"), arguments_of(GroupRule, with_values=True)),
)  # fmt: skip
def streamd_group_set(ctx: Context, args: list[bytes]) -> None:
    store_rules(ctx, args[2], rules_with(ctx.db, args[2], args[3], parse_changes(GroupRule, args[4:])))
    ctx.reply.ok()


@command(
    "STREAMD.GROUP GET", arity=4, group="stream", flags="readonly fast", keys=KeysAt(2, flags="RO access"), since="0.2.0",
    summary="Returns the rules of a consumer group, and why an entry could not be moved.", complexity="O(1)",
    args=(key(), string("group")),
)  # fmt: skip
def streamd_group_get(ctx: Context, args: list[bytes]) -> None:
    shown: list[tuple[bytes, bytes | int]] = []
    try:
        own = read_rules(ctx.db, args[2]).get(args[3])
    except ValueError as error:
        shown.append((b"parse-error", str(error).encode(errors="backslashreplace")))
        own = None
    rule = group_rule_in_force(ctx, ctx.db, args[2], args[3])
    if rule is not None:
        shown += describe(rule)
        if own is None:
            shown.append(FROM_CONFIGURATION)
    failure = state_of(ctx).failures.get(Place(ctx.db.index, args[2], args[3]))
    if failure is not None:
        shown += [(b"last-error", failure.error.encode()), (b"not-moved", len(failure.ids))]
    reply_with(ctx, shown)


@command(
    "STREAMD.GROUP UNSET", arity=-4, group="stream", flags="write", keys=KeysAt(2, flags="RW update"), since="0.2.0",
    summary="Removes rules of a consumer group: the given ones, or all.", complexity="O(1)",
    args=(key(), string("group"), arguments_of(GroupRule, with_values=False)),
)  # fmt: skip
def streamd_group_unset(ctx: Context, args: list[bytes]) -> None:
    if len(args) == 4:
        rules = rules_without(ctx.db, args[2], args[3])
    else:
        rules = rules_with(ctx.db, args[2], args[3], parse_names(GroupRule, args[4:]))
    store_rules(ctx, args[2], rules)
    ctx.reply.ok()


def drop_rules_of_group(ctx: Context, stream: bytes, group: bytes) -> None:
    """The group is destroyed: its rules go, too. The caller propagates the rest."""
    state_of(ctx).forget_group(Place(ctx.db.index, stream, group))
    try:
        rules = read_all_rules(ctx.db, stream)
    except ValueError:
        return
    if group in rules.groups:
        store_rules(ctx, stream, rules_without(ctx.db, stream, group))
