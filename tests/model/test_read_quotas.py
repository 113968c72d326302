"""XREAD and XREADGROUP with MAXCOUNT and MAXSIZE against the rules in plain words.

The same entries are read without limits first. From that the rules say what is to be in the reply: bytes are those of the
reply itself, as they would be sent. `expected` is the rules.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from support.commands.handler import HandlerContext, make_context, run, set_time

from streamd.protocol.reply import ReplyWriter
from streamd.values.streams.group import Group
from streamd.values.streams.stream import Stream

KEYS = (b"a", b"long-name", b"c")
START = b"0"


def size_of(resp: int, value: Any) -> int:
    """Bytes of a value in a reply."""
    writer = ReplyWriter(resp)
    writer.value(value)
    return len(writer.take())


def expected(resp: int, whole: list[tuple[bytes, list[Any]]], count: int, most: int, size: int) -> list[Any]:
    """What is in the reply; `whole` is what it would be without limits."""
    found: list[Any] = []
    used = sent = 0
    for key, entries in whole:
        if sent and ((most and sent >= most) or (size and used >= size)):
            break
        used += (size_of(resp, []) if resp == 2 else 0) + size_of(resp, key)
        given: list[Any] = []
        for entry in entries:
            if (count and len(given) == count) or (most and sent >= most) or (size and sent and used >= size):
                break
            given.append(entry)
            used += size_of(resp, entry)
            sent += 1
        used += len(b"*%d\r\n" % len(given))
        found.append([key, given])
    return found


def make(resp: int, lengths: list[int], deleted: set[int]) -> HandlerContext:
    """Streams with entries of different sizes; half of them are delivered, and of those all but every third are pending for `mine`."""
    ctx = make_context(resp)
    for at, length in enumerate(lengths):
        stream = Stream(node_max_entries=3)
        group = stream.groups[b"g"] = Group(b"g", (length // 2, at))
        for number in range(1, length + 1):
            stream.append([(b"f", b"v" * (number * 7 % 30))], id=(number, at))
        group.create_consumer(b"mine", now_ms=1)
        for number in range(1, length // 2 + 1):
            if number % 3:
                group.restore_pending((number, at), b"mine", delivery_ms=ctx.now_ms - 50, delivery_count=1)
        for number in deleted & set(range(1, length + 1)):
            stream.delete((number, at))
        ctx.db.add(KEYS[at], stream)
    return ctx


def as_pairs(resp: int, reply: Any) -> list[Any]:
    if reply is None:
        return []
    return [[key, entries] for key, entries in reply.items()] if resp == 3 else reply


OPTIONS = {"new": ["XREADGROUP", "GROUP", "g", "other"], "history": ["XREADGROUP", "GROUP", "g", "mine"],
           "claim": ["XREADGROUP", "GROUP", "g", "other", "CLAIM", 10], "plain": ["XREAD"]}  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from([2, 3]),
    st.sampled_from(sorted(OPTIONS)),
    st.lists(st.integers(1, 12), min_size=1, max_size=3),
    st.sets(st.integers(1, 12), max_size=3),
    st.integers(0, 5),
    st.integers(0, 9),
    st.integers(0, 700),
)
def test_reads_keep_to_their_quota(
    resp: int, how: str, lengths: list[int], deleted: set[int], count: int, most: int, size: int
) -> None:
    most = 0 if most < count else most
    keys = KEYS[: len(lengths)]
    streams = ["STREAMS", *keys, *([">"] if how in ("new", "claim") else [START]) * len(keys)]
    whole = as_pairs(resp, run(make(resp, lengths, deleted), *OPTIONS[how], *streams))
    limits = [*(["COUNT", count] if count else []), *(["MAXCOUNT", most] if most else [])]
    limits += ["MAXSIZE", size] if size else []
    ctx = make(resp, lengths, deleted)
    ctx.is_propagating = True
    reply = as_pairs(resp, run(ctx, *OPTIONS[how], *limits, *streams))
    assert reply == expected(resp, whole, count, most, size)
    if how == "plain":
        return
    for key in keys:
        group = ctx.db.peek(key).groups[b"g"]
        ctx.db.peek(key).check_invariants()
        entries = dict(map(tuple, reply)).get(key)
        consumer = group.consumers.get(OPTIONS[how][3].encode())  # type: ignore[attr-defined]
        if how != "history":
            if key in dict(map(tuple, whole)):
                assert (consumer is not None) == (entries is not None), key
            taken = group.pending_count_of(b"other") if consumer is not None else 0
            assert taken == len(entries or []), key
    sent = sum(len(entries) for _, entries in reply)
    assert sum(effect[0] == b"XCLAIM" for effect in ctx.effects or []) == (0 if how == "history" else sent)


def test_a_quota_holds_for_each_command_by_itself() -> None:
    ctx = make(2, [5, 5], set())
    for _ in range(2):
        assert [len(entries) for _, entries in run(ctx, "XREAD", "MAXCOUNT", 7, "STREAMS", "a", "long-name", 0, 0)] == [
            5,
            2,
        ]
    set_time(ctx, ctx.now_ms + 1)
    assert len(run(ctx, "XREAD", "MAXSIZE", 1, "STREAMS", "a", 0)[0][1]) == 1


def test_the_last_entry_is_one_entry() -> None:
    ctx = make(2, [5, 5], set())
    assert run(ctx, "XREAD", "MAXCOUNT", 1, "STREAMS", "a", "long-name", "+", "+") == [
        [b"a", [[b"5-0", [b"f", b"v" * 5]]]]
    ]
