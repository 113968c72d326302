"""STREAMD.SPLIT: requests, replies and refusals. What the parts are is in tests/model/test_split_model.py."""

from __future__ import annotations

import hiredis
import pytest
from support.commands.handler import HandlerContext, make_context, run
from support.compiled import compiled

from streamd.serve.families import load_all
from streamd.values.streams.stream import Stream

nodes = compiled("nodes")
count_gathered, split = nodes.count_gathered, nodes.split

load_all()


@pytest.fixture
def ctx() -> HandlerContext:
    """A stream `s` of the entries 1-0 to 9-0 without 4-0, and a string `t`."""
    made = make_context()
    for ms in range(1, 10):
        run(made, "XADD", "s", f"{ms}-0", "f", "v")
    run(made, "XDEL", "s", "4-0")
    run(made, "SET", "t", "v")
    return made


def test_parts_cover_the_range(ctx: HandlerContext) -> None:
    assert run(ctx, "STREAMD.SPLIT", "s", 3) == [[b"1-0", b"2-0", 2], [b"3-0", b"6-0", 3], [b"7-0", b"9-0", 3]]
    assert run(ctx, "streamd.split", "s", 1) == [[b"1-0", b"9-0", 8]]
    assert run(ctx, "STREAMD.SPLIT", "s", 2, "(3-0", "+") == [[b"5-0", b"6-0", 2], [b"7-0", b"9-0", 3]]
    assert run(ctx, "STREAMD.SPLIT", "s", 2, "2", "(6-0") == [[b"2-0", b"2-0", 1], [b"3-0", b"5-0", 2]]


def test_count_takes_the_first_entries_of_the_range(ctx: HandlerContext) -> None:
    assert run(ctx, "STREAMD.SPLIT", "s", 1, "COUNT", 5) == [[b"1-0", b"6-0", 5]]
    assert run(ctx, "STREAMD.SPLIT", "s", 2, "3", "+", "count", 4) == [[b"3-0", b"5-0", 2], [b"6-0", b"7-0", 2]]
    assert run(ctx, "STREAMD.SPLIT", "s", 1, "8", "+", "COUNT", 9) == [[b"8-0", b"9-0", 2]]


def test_no_part_is_empty(ctx: HandlerContext) -> None:
    assert run(ctx, "STREAMD.SPLIT", "s", 9, 2, 5) == [[id, id, 1] for id in (b"2-0", b"3-0", b"5-0")]
    for low, high in [("4", "4"), ("10", "+"), ("6", "5"), ("-", "0")]:
        assert run(ctx, "STREAMD.SPLIT", "s", 2, low, high) == []
    run(ctx, "XTRIM", "s", "MAXLEN", 0)
    assert run(ctx, "STREAMD.SPLIT", "s", 2) == []
    assert run(ctx, "STREAMD.SPLIT", "nothing", 2) == []


@pytest.mark.parametrize(
    ("request_line", "text"),
    [
        ("s 0", "ERR parts must be between 1 and 1000"),
        ("s 1001", "ERR parts must be between 1 and 1000"),
        ("s x", "ERR value is not an integer or out of range"),
        ("s 2 -", "ERR syntax error"),
        ("s 2 - + x", "ERR syntax error"),
        ("s 2 COUNT", "ERR syntax error"),
        ("s 2 COUNT 3 x", "ERR syntax error"),
        ("s 2 COUNT 0", "ERR COUNT must be > 0"),
        ("s 2 - + COUNT x", "ERR value is not an integer or out of range"),
        ("s 2 a +", "ERR Invalid stream ID specified as stream command argument"),
        ("s 2 - (0-0", "ERR invalid end ID for the interval"),
        ("t 2", "WRONGTYPE Operation against a key holding the wrong kind of value"),
    ],
)
def test_refusals(ctx: HandlerContext, request_line: str, text: str) -> None:
    reply = run(ctx, "STREAMD.SPLIT", *request_line.split())
    assert isinstance(reply, hiredis.ReplyError)
    assert str(reply) == text


def test_nothing_is_changed_or_propagated(ctx: HandlerContext) -> None:
    ctx.is_propagating = True
    ctx.effects, dirty = None, ctx.dirty
    run(ctx, "STREAMD.SPLIT", "s", 3)
    assert ctx.effects is None
    assert ctx.dirty == dirty


def test_many_nodes_are_split_exactly() -> None:
    """More nodes than memory is asked for ahead, and tree nodes of every size."""
    stream = Stream(node_max_entries=2)
    for at in range(30_000):
        stream.append([(b"f", b"v")], id=(at // 7 * 3, at % 7 + 1))
    assert [length for *_, length in split(stream, 7)] == [4285, 4286, 4286, 4285, 4286, 4286, 4286]
    firsts = [first for first, *_ in split(stream, 7)]
    assert firsts == [(at // 7 * 3, at % 7 + 1) for at in (30_000 * part // 7 for part in range(7))]


def test_nodes_behind_the_entries_that_are_wanted_are_not_looked_at() -> None:
    stream = Stream(node_max_entries=3)
    for ms in range(30_000):
        stream.append([(b"f", b"v")], id=(ms, 1))
    for ms in range(300, 600):
        assert stream.delete((ms, 1)) == "deleted"
    nodes = 10_000 - 100
    assert count_gathered(stream) == nodes
    assert count_gathered(stream, limit=1) == 16
    assert count_gathered(stream, (1000, 0), limit=16 * 3 - 2) == 16  # the first node has two in the range
    assert count_gathered(stream, (1000, 0), limit=16 * 3) == 32
    assert count_gathered(stream, limit=3000) == 1024
    assert count_gathered(stream, limit=2**64 - 1) == nodes
    assert count_gathered(stream, (600, 1), (608, 1), limit=10) == 3
    assert count_gathered(stream, (300, 0), (500, 0)) == 1
    assert split(stream, 1, (300, 0), (500, 0)) == []
    for limit in (1, 16 * 3 - 2, 16 * 3, 16 * 3 + 1, 256 * 3 - 2, 256 * 3, 28_002, 28_703, 40_000):
        found = split(stream, 1, (1000, 0), limit=limit)
        assert found == [((1000, 1), (min(999 + limit, 29_999), 1), min(limit, 29_000))]
