"""What may differ between two servers that behave alike: times, and values derived from them. Nothing else is masked.

`mask(args, reply)` replaces, by name or by its position in the documented reply:

    XINFO                 what only releases newer than 8.6 have: nacked-count of groups
                          idle, inactive, seen-time, active-time (kept when -1, "never"), delivery times in `pending`
    XPENDING              the idle time of each row
    XREADGROUP ... CLAIM  the idle time of each claimed entry (new entries say 0, 0 and keep it)
    any reply             an entry ID made from the clock (`*`), recognised by its 13-digit milliseconds
    TTL, PTTL, EXPIRETIME, PEXPIRETIME, OBJECT IDLETIME, TIME, CLIENT ID
    HELLO                 the ID of the client, and the modules, which streamd has none of; inside EXEC too
    RANDOMKEY             which key it is;  KEYS, SCAN, CONFIG GET, HGETALL, HKEYS, HVALS, HSCAN: the order
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence

from ..wire import Reply, show

__all__ = ["NEWER_FIELDS", "mask", "mask_tree_shape"]

NEWER_FIELDS = frozenset({b"nacked-count"})
TIME_FIELDS = frozenset({b"idle", b"inactive", b"seen-time", b"active-time"})
TREE_FIELDS = frozenset({b"radix-tree-keys", b"radix-tree-nodes"})
CLOCK_ID = re.compile(rb"\d{13}-\d+")
MASKED_TIME = Reply("+", b"<time>")
MASKED_ID = Reply("$", b"<clock id>")
EXPIRY_SLACK_S = 10_000_000

NESTED = ("*", "%", "~", ">")


def mask(args: Sequence[bytes], reply: Reply) -> Reply:
    """`reply` to the request `args` with everything replaced that depends on the clock or on hashing."""
    name = args[0].upper() if args else b""
    rule = _RULES.get(name)
    masked = reply if rule is None or reply.is_error else rule(args, reply)
    return _map_leaves(masked, _mask_clock_id)


def mask_tree_shape(reply: Reply) -> Reply:
    """Mask the radix tree's size, which depends on the digits of the IDs: for streams with IDs from the clock."""
    return _mask_fields(reply, TREE_FIELDS)


def _map_leaves(reply: Reply, change: Callable[[Reply], Reply]) -> Reply:
    if reply.kind in NESTED:
        return Reply(reply.kind, tuple(_map_leaves(element, change) for element in reply.value))
    return change(reply)


def _mask_clock_id(leaf: Reply) -> Reply:
    return MASKED_ID if leaf.kind == "$" and CLOCK_ID.fullmatch(leaf.value) else leaf


def _mask_time(leaf: Reply) -> Reply:
    return MASKED_TIME if leaf.kind == ":" and leaf.value >= 0 else leaf


def _mask_fields(reply: Reply, names: frozenset[bytes]) -> Reply:
    """Mask the element behind each of the field names, in maps as in flat arrays of names and values."""
    if reply.kind not in NESTED:
        return reply
    elements = [_mask_fields(element, names) for element in reply.value]
    for at in range(0, len(elements) - 1, 2):
        if elements[at].kind == "$" and elements[at].value in names:
            elements[at + 1] = _mask_time(elements[at + 1])
    return Reply(reply.kind, tuple(elements))


def _xinfo(args: Sequence[bytes], reply: Reply) -> Reply:
    return _mask_pending(_mask_fields(_drop_fields(reply, NEWER_FIELDS), TIME_FIELDS))


def _drop_fields(reply: Reply, names: frozenset[bytes]) -> Reply:
    """Without these fields and the elements behind them."""
    if reply.kind not in NESTED:
        return reply
    kept: list[Reply] = []
    elements = iter(reply.value)
    for element in elements:
        if element.kind == "$" and element.value in names:
            next(elements)
        else:
            kept.append(_drop_fields(element, names))
    return Reply(reply.kind, tuple(kept))


def _mask_pending(reply: Reply) -> Reply:
    """XINFO STREAM FULL: rows of `pending`, [id, consumer, time, count] of a group and [id, time, count] of a consumer."""
    if reply.kind not in NESTED:
        return reply
    elements = [_mask_pending(element) for element in reply.value]
    for at in range(0, len(elements) - 1, 2):
        if elements[at] == Reply("$", b"pending") and elements[at + 1].kind == "*":
            rows = (_mask_at(row, len(row.value) - 2) for row in elements[at + 1].value)
            elements[at + 1] = Reply("*", tuple(rows))
    return Reply(reply.kind, tuple(elements))


def _mask_at(row: Reply, index: int) -> Reply:
    if row.kind != "*" or not 0 <= index < len(row.value):
        return row
    elements = list(row.value)
    elements[index] = _mask_time(elements[index])
    return Reply("*", tuple(elements))


def _xpending(args: Sequence[bytes], reply: Reply) -> Reply:
    if len(args) == 3 or reply.kind != "*":
        return reply
    return Reply("*", tuple(_mask_at(row, 2) for row in reply.value))


def _xreadgroup(args: Sequence[bytes], reply: Reply) -> Reply:
    if b"CLAIM" not in (a.upper() for a in args) or reply.kind not in NESTED:
        return reply
    return _mask_claimed(reply)


def _mask_claimed(reply: Reply) -> Reply:
    if reply.kind not in NESTED:
        return reply
    elements = tuple(map(_mask_claimed, reply.value))
    if len(elements) == 4 and [e.kind for e in elements[2:]] == [":", ":"] and any(e.value > 0 for e in elements[2:]):
        elements = (*elements[:2], _mask_time(elements[2]), elements[3])
    return Reply(reply.kind, elements)


def _time_left(args: Sequence[bytes], reply: Reply) -> Reply:
    return _mask_time(reply)


def _expiry_time(args: Sequence[bytes], reply: Reply) -> Reply:
    """Times near now come from a relative expiry; far ones were given as they are."""
    in_ms = args[0].upper() == b"PEXPIRETIME"
    now = time.time() * (1000 if in_ms else 1)
    is_near = abs(reply.value - now) < EXPIRY_SLACK_S * (1000 if in_ms else 1)
    return _mask_time(reply) if is_near else reply


def _object(args: Sequence[bytes], reply: Reply) -> Reply:
    return _mask_time(reply) if args[1:2] and args[1].upper() == b"IDLETIME" else reply


def _client(args: Sequence[bytes], reply: Reply) -> Reply:
    return _mask_time(reply) if args[1:2] and args[1].upper() == b"ID" else reply


def _time(args: Sequence[bytes], reply: Reply) -> Reply:
    return Reply(reply.kind, tuple(Reply(e.kind, b"<time>") for e in reply.value))


def _hello(args: Sequence[bytes], reply: Reply) -> Reply:
    elements = list(_mask_fields(reply, frozenset({b"id"})).value)
    for at in range(1, len(elements)):
        if elements[at - 1] == Reply("$", b"modules"):
            elements[at] = Reply(elements[at].kind, (Reply("+", b"<modules>"),))
    return Reply(reply.kind, tuple(elements))


def _exec(args: Sequence[bytes], reply: Reply) -> Reply:
    if reply.kind != "*":
        return reply
    hello = (Reply("$", b"server"), Reply("$", b"redis"))
    return Reply(
        "*",
        tuple(_hello(args, part) if part.kind in NESTED and part.value[:2] == hello else part for part in reply.value),
    )


def _randomkey(args: Sequence[bytes], reply: Reply) -> Reply:
    return reply if reply.value is None else Reply(reply.kind, b"<some key>")


def _keys(args: Sequence[bytes], reply: Reply) -> Reply:
    return Reply(reply.kind, tuple(sorted(reply.value, key=show)))


def _scan(args: Sequence[bytes], reply: Reply) -> Reply:
    cursor, keys = reply.value
    return Reply(reply.kind, (cursor, _keys(args, keys)))


def _pairs(args: Sequence[bytes], reply: Reply) -> Reply:
    """Names and values in turn, in the order of the names."""
    pairs = sorted(zip(reply.value[::2], reply.value[1::2], strict=True), key=lambda pair: show(pair[0]))
    return Reply(reply.kind, tuple(element for pair in pairs for element in pair))


def _hscan(args: Sequence[bytes], reply: Reply) -> Reply:
    cursor, fields = reply.value
    has_values = b"NOVALUES" not in [word.upper() for word in args]
    return Reply(reply.kind, (cursor, (_pairs if has_values else _keys)(args, fields)))


def _config(args: Sequence[bytes], reply: Reply) -> Reply:
    if args[1:2] == [] or args[1].upper() != b"GET":
        return reply
    return _pairs(args, reply)


_RULES: dict[bytes, Callable[[Sequence[bytes], Reply], Reply]] = {
    b"XINFO": _xinfo,
    b"XPENDING": _xpending,
    b"XREADGROUP": _xreadgroup,
    b"TTL": _time_left,
    b"PTTL": _time_left,
    b"EXPIRETIME": _expiry_time,
    b"PEXPIRETIME": _expiry_time,
    b"OBJECT": _object,
    b"CLIENT": _client,
    b"TIME": _time,
    b"HELLO": _hello,
    b"EXEC": _exec,
    b"RANDOMKEY": _randomkey,
    b"KEYS": _keys,
    b"SCAN": _scan,
    b"CONFIG": _config,
    b"HGETALL": _pairs,
    b"HKEYS": _keys,
    b"HVALS": _keys,
    b"HSCAN": _hscan,
}
