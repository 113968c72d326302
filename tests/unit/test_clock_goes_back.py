"""The wall clock is set back while a server runs: IDs still rise, no idle time is negative, expiry stays an absolute time."""

from __future__ import annotations

from typing import Any

import pytest
from support.commands.handler import START_MS, HandlerContext, make_context, run, set_time

from streamd.serve.families import load_all
from streamd.values.streams.idempotency import registry_of

load_all()

BACK_MS = START_MS - 3_600_000


@pytest.fixture
def ctx() -> HandlerContext:
    """Two entries, one pending for alice since START_MS; it is an hour earlier now."""
    ctx = make_context()
    run(ctx, "XADD", "s", "*", "f", "1")
    run(ctx, "XADD", "s", "*", "f", "2")
    run(ctx, "XGROUP", "CREATE", "s", "g", "0")
    run(ctx, "XREADGROUP", "GROUP", "g", "alice", "COUNT", "1", "STREAMS", "s", ">")
    set_time(ctx, BACK_MS)
    return ctx


def numbers_of(info: Any) -> dict[bytes, Any]:
    return dict(zip(info[::2], info[1::2], strict=True))


def test_ids_go_on_in_the_last_millisecond(ctx: HandlerContext) -> None:
    assert run(ctx, "XADD", "s", "*", "f", "3") == b"%d-2" % START_MS
    assert run(ctx, "XADD", "s", "*", "f", "4") == b"%d-3" % START_MS
    assert run(ctx, "XADD", "new", "*", "f", "1") == b"%d-0" % BACK_MS


def test_ids_go_on_after_the_last_sequence_number(ctx: HandlerContext) -> None:
    run(ctx, "XADD", "s", f"{START_MS}-{2**64 - 1}", "f", "3")
    assert run(ctx, "XADD", "s", "*", "f", "4") == b"%d-0" % (START_MS + 1)


def test_pending_entries_are_idle_for_no_time(ctx: HandlerContext) -> None:
    assert run(ctx, "XPENDING", "s", "g", "-", "+", "10") == [[b"%d-0" % START_MS, b"alice", 0, 1]]
    assert run(ctx, "XPENDING", "s", "g", "IDLE", "1", "-", "+", "10") == []


def test_consumers_are_idle_for_no_time(ctx: HandlerContext) -> None:
    (info,) = run(ctx, "XINFO", "CONSUMERS", "s", "g")
    consumer = numbers_of(info)
    assert consumer[b"idle"] == consumer[b"inactive"] == 0


def test_what_was_delivered_in_the_future_is_claimed_without_a_minimum_only(ctx: HandlerContext) -> None:
    pending = b"%d-0" % START_MS
    assert run(ctx, "XCLAIM", "s", "g", "bob", "1", pending, "JUSTID") == []
    assert run(ctx, "XAUTOCLAIM", "s", "g", "bob", "1", "0", "JUSTID")[1] == []
    assert run(ctx, "XAUTOCLAIM", "s", "g", "bob", "0", "0", "JUSTID")[1] == [pending]
    assert run(ctx, "XPENDING", "s", "g", "-", "+", "10") == [[pending, b"bob", 0, 1]]


def test_a_claiming_reader_looks_again_soon_enough(ctx: HandlerContext) -> None:
    run(ctx, "XREADGROUP", "GROUP", "g", "alice", "STREAMS", "s", ">")
    assert run(ctx, "XREADGROUP", "GROUP", "g", "bob", "BLOCK", "0", "CLAIM", "50", "STREAMS", "s", ">") is None
    assert ctx.blocked is not None
    assert ctx.blocked.ready_at_ms >= 0
    assert BACK_MS < ctx.blocked.ready_at_ms <= BACK_MS + 50


def test_keys_expire_at_the_time_that_was_said(ctx: HandlerContext) -> None:
    set_time(ctx, START_MS)
    run(ctx, "SET", "k", "v", "PX", "1000")
    set_time(ctx, BACK_MS)
    assert run(ctx, "PTTL", "k") == 3_601_000
    assert ctx.db.expire_due(10) == 0
    set_time(ctx, START_MS + 1001)
    assert run(ctx, "GET", "k") is None


def test_repeated_entries_are_known_as_such(ctx: HandlerContext) -> None:
    set_time(ctx, START_MS)
    first = run(ctx, "XADD", "once", "IDMP", "p", "i", "*", "f", "v")
    set_time(ctx, BACK_MS)
    registry_of(ctx).expire(ctx.now_ms)
    assert run(ctx, "XADD", "once", "IDMP", "p", "i", "*", "f", "v") == first
    run(ctx, "XADD", "once", "IDMP", "p", "j", "*", "f", "v")
    set_time(ctx, START_MS + 101_000)
    registry_of(ctx).expire(ctx.now_ms)
    assert run(ctx, "XADD", "once", "IDMP", "p", "i", "*", "f", "v") != first
