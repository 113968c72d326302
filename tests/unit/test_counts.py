"""STREAMD.COUNT and STREAMD.LAG: requests, replies and refusals. What they count is in tests/model/test_count_model.py."""

from __future__ import annotations

import hiredis
import pytest
from support.commands.handler import START_MS, HandlerContext, make_context, run

from streamd.core.spec import table
from streamd.serve.families import load_all

load_all()


@pytest.fixture
def ctx() -> HandlerContext:
    """A stream `s` with five entries, one a second, the last of them now; two groups; and a string `t`."""
    made = make_context(resp=3)
    for ago_s in (4, 3, 2, 1, 0):
        run(made, "XADD", "s", f"{START_MS - 1000 * ago_s}-0", "f", "v")
    run(made, "XGROUP", "CREATE", "s", "new", "$")
    run(made, "XGROUP", "CREATE", "s", "all", "0")
    run(made, "SET", "t", "v")
    return made


def test_a_range_has_the_bounds_of_xrange(ctx: HandlerContext) -> None:
    second = START_MS - 3000
    assert run(ctx, "STREAMD.COUNT", "s") == 5
    assert run(ctx, "STREAMD.COUNT", "s", "-", "+") == 5
    assert run(ctx, "STREAMD.COUNT", "s", second, START_MS - 1000) == 3
    assert run(ctx, "STREAMD.COUNT", "s", f"({second}-0", "+") == 3
    assert run(ctx, "STREAMD.COUNT", "s", "+", "-") == 0
    assert run(ctx, "STREAMD.COUNT", "missing", "-", "+") == 0


@pytest.mark.parametrize(
    ("request_line", "error"),
    [
        ("STREAMD.COUNT t", "WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("STREAMD.COUNT s -", "ERR syntax error"),
        ("STREAMD.COUNT s - + COUNT", "ERR syntax error"),
        ("STREAMD.COUNT s x +", "ERR Invalid stream ID specified as stream command argument"),
        ("STREAMD.LAG missing", "ERR no such key"),
        ("STREAMD.LAG missing all", "ERR no such key"),
        ("STREAMD.LAG s missing", "NOGROUP No such consumer group 'missing' for key name 's'"),
        ("STREAMD.LAG s all more", "ERR syntax error"),
        ("STREAMD.LAG t", "WRONGTYPE Operation against a key holding the wrong kind of value"),
    ],
)
def test_refused(ctx: HandlerContext, request_line: str, error: str) -> None:
    reply = run(ctx, *request_line.split())
    assert isinstance(reply, hiredis.ReplyError)
    assert str(reply) == error


def test_a_group_that_has_read_everything_has_no_lag(ctx: HandlerContext) -> None:
    assert run(ctx, "STREAMD.LAG", "s", "new") == {
        b"undelivered": 0, b"pending": 0, b"held-back": 0, b"passed-over": 0, b"lag-ms": 0, b"oldest-pending-ms": 0, b"dead-lettered": 0,
    }  # fmt: skip


def test_lag_is_exact_after_deletions_ahead_of_the_group(ctx: HandlerContext) -> None:
    run(ctx, "XREADGROUP", "GROUP", "all", "c", "COUNT", 1, "STREAMS", "s", ">")
    run(ctx, "XDEL", "s", f"{START_MS - 2000}-0")
    assert run(ctx, "XINFO", "GROUPS", "s")[0][b"lag"] is None
    assert run(ctx, "STREAMD.LAG", "s", "all") == {
        b"undelivered": 3, b"pending": 1, b"held-back": 0, b"passed-over": 0, b"lag-ms": 3000, b"oldest-pending-ms": 4000, b"dead-lettered": 0,
    }  # fmt: skip


def test_lag_without_a_group_lists_all_groups_by_name(ctx: HandlerContext) -> None:
    assert list(run(ctx, "STREAMD.LAG", "s")) == [b"all", b"new"]
    run(ctx, "XADD", "empty", "1-1", "f", "v")
    assert run(ctx, "STREAMD.LAG", "empty") == {}


def test_they_are_fast_reads_of_streams() -> None:
    for name in ("STREAMD.COUNT", "STREAMD.LAG"):
        assert set(table[name].acl_categories) == {"read", "stream", "fast"}
