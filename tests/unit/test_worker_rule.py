"""The rule of a worker, which it follows on a Redis, is that of the server."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.commands.handler import START_MS, make_context, run, set_time

from streamd.delivery.client.group_rules import GROUP_OPTIONS
from streamd.delivery.client.rule_values import milliseconds, words_for
from streamd.serve.families import load_all
from streamd.worker import Rule
from streamd.worker.periodic import Periodic

load_all()


@settings(max_examples=200)
@given(
    st.integers(1, 10**6),
    st.sampled_from([1, 1.5, 2, 3.125, 100]),
    st.none() | st.integers(10**6, 10**8),
    st.integers(0, 100),
    st.integers(1, 12),
    st.integers(1, START_MS),
    st.integers(0, 2**64 - 1),
)
def test_the_back_off_is_that_of_the_server_to_the_millisecond(
    backoff_ms: int, factor: float, most_ms: int | None, jitter: int, deliveries: int, ms: int, seq: int
) -> None:
    rule = Rule(
        backoff=backoff_ms / 1000,
        factor=factor,
        max_backoff=None if most_ms is None else timedelta(milliseconds=most_ms),
        jitter=jitter,
    )
    entry_id = f"{ms}-{seq}"
    ctx = make_context(resp=3)
    ctx.is_propagating = ctx.has_xnack = True
    run(ctx, "XADD", "s", entry_id, "f", "v")
    run(ctx, "XGROUP", "CREATE", "s", "g", "0")
    options = {name: value for name, value in rule.options().items() if value}
    assert run(ctx, "STREAMD.GROUP", "SET", "s", "g", *map(str, words_for(GROUP_OPTIONS, options))) == b"OK"
    run(ctx, "XCLAIM", "s", "g", "c", 0, entry_id, "FORCE", "RETRYCOUNT", deliveries, "JUSTID")
    wait_ms = rule.wait_ms(entry_id, deliveries)
    if wait_ms:
        set_time(ctx, START_MS + wait_ms - 1)
        assert run(ctx, "XCLAIM", "s", "g", "d", 0, entry_id) == []
    set_time(ctx, START_MS + wait_ms)
    assert len(run(ctx, "XCLAIM", "s", "g", "d", 0, entry_id)) == 1


def test_a_back_off_without_bound_does_not_overflow() -> None:
    assert Rule(backoff=1, factor=100).wait_ms("1-1", 10**6) == 2**53
    assert Rule(backoff=1, factor=100, max_backoff=5).wait_ms("1-1", 10**6) == 5000
    assert Rule().wait_ms("1-1", 3) == Rule(backoff=1).wait_ms("1-1", 0) == 0


@pytest.mark.parametrize(
    "options",
    [
        {"max_deliveries": 5}, {"max_deliveries": 0, "dead_letter": "d"}, {"factor": 2}, {"backoff": 1, "factor": 0.5},
        {"backoff": 1, "jitter": 101}, {"jitter": 5}, {"backoff": 2, "max_backoff": 1},
    ],
)  # fmt: skip
def test_what_the_server_refuses_is_refused(options: dict[str, Any]) -> None:
    ctx = make_context(resp=3)
    words = words_for(GROUP_OPTIONS, options)
    assert str(run(ctx, "STREAMD.GROUP", "SET", "s", "g", *map(str, words))).startswith("ERR ")
    with pytest.raises(ValueError, match=r"must|need"):
        Rule(**options)


def test_what_a_server_has_is_a_rule() -> None:
    shown = {"max_deliveries": 5, "dead_letter": b"d", "backoff": 1.5, "isolate": 3, "last_error": "x"}
    rule = Rule.of(shown)
    assert rule == Rule(max_deliveries=5, dead_letter=b"d", backoff=1.5)
    assert rule.options() == {"max_deliveries": 5, "dead_letter": b"d", "backoff": 1.5}
    assert [rule.is_last(deliveries) for deliveries in (4, 5, 6)] == [False, True, True]
    assert not Rule().is_last(10**9)
    assert milliseconds(timedelta(seconds=1.5)) == milliseconds(1.5) == 1500


def test_times_of_periodic_jobs() -> None:
    assert Periodic("x", {}, 60).next_time(59.9) == 60
    assert Periodic("x", {}, 60).next_time(60) == 120
    assert Periodic("x", {}, timedelta(hours=1)).next_time(5000) == 7200
    assert Periodic("x", {}, lambda now: now + 1).next_time(5) == 6
    with pytest.raises(ValueError, match="cannot be added every"):
        Periodic("x", {}, -1).next_time(5)
    with pytest.raises(ValueError, match="later than 5, not 5"):
        Periodic("x", {}, lambda now: now).next_time(5)
