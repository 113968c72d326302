"""Shared by the commands that set and show rules: storing them as a plain string, replying with a map."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from streamd.core.context import Context
from streamd.delivery.per_server import part_of
from streamd.delivery.rules import Rules, format_rules, key_of_rules
from streamd.keyspace.database import Database
from streamd.keyspace.listener import EVENTS

__all__ = ["FROM_CONFIGURATION", "RulesStored", "reply_with", "store_rules"]

FROM_CONFIGURATION = (b"from", b"configuration")
"""What GET shows of a rule that was not set by command."""


class RulesStored:
    """`follow` is called with each string that a command stores or removes, so that the next request finds the rule in force."""

    follow: Callable[[Database, bytes], None] | None = None


def store_rules(ctx: Context, stream: bytes, rules: Rules) -> None:
    """Make these the rules of a stream, as a plain string, and propagate that; nothing if they are so already."""
    where, text = key_of_rules(stream), format_rules(rules)
    ctx.effects = []
    if (ctx.db.peek(where) or b"") == text:
        return
    ctx.dirty += 1
    if text:
        ctx.db.set(where, text)
        ctx.db.event(EVENTS["string"], b"set", where)
        ctx.propagate([b"SET", where, text])
    else:
        ctx.db.delete(where, tells=True)
        ctx.propagate([b"DEL", where])
    follow = part_of(ctx, RulesStored).follow
    if follow is not None:
        follow(ctx.db, where)


def reply_with(ctx: Context, shown: Sequence[tuple[bytes, bytes | int]]) -> None:
    """Reply with a map of names and values."""
    ctx.reply.map(len(shown))
    for name, value in shown:
        ctx.reply.bulk(name)
        if isinstance(value, bytes):
            ctx.reply.bulk(value)
        else:
            ctx.reply.integer(value)
