"""INCREX, as the manual and the tests of Redis 8.8 describe it: there is no server to compare with yet."""

from __future__ import annotations

from typing import Any

import hiredis
import pytest
from support.commands.handler import START_MS, HandlerContext, make_context, run
from support.commands.observed import run_observed

from streamd.core.spec import table
from streamd.errors import WrongTypeError
from streamd.serve.families import load_all
from streamd.values.streams.stream import Stream

load_all()

GREATEST, LEAST = 2**63 - 1, -(2**63)
SYNTAX = "ERR syntax error"


@pytest.fixture
def ctx() -> HandlerContext:
    return make_context()


def increase(ctx: HandlerContext, options: str) -> Any:
    return run(ctx, "INCREX", "k", *options.split())


def observed(ctx: HandlerContext, options: str) -> list[tuple[bytes, ...]]:
    """What a request is propagated as."""
    ctx.is_propagating = True
    return [tuple(effect) for effect in run_observed(ctx, [b"INCREX", b"k", *options.encode().split()])]


# What the key holds (None: it is missing), the options, the answer, and what the key holds then; an error as a string.
WHOLE: list[tuple[int | None, str, list[int] | str, int | None]] = [
    (None, "", [1, 1], 1),
    (10, "", [11, 1], 11),
    (100, "BYINT 5", [105, 5], 105),
    (100, "byint -10", [90, -10], 90),
    (95, "BYINT 0", [95, 0], 95),
    (5, "BYINT 1 LBOUND 0 UBOUND 10", [6, 1], 6),
    (5, "BYINT 5 UBOUND 10", [10, 5], 10),
    (10, "BYINT -10 LBOUND 0", [0, -10], 0),
    (50, "BYINT 100 UBOUND 80", [50, 0], 50),
    (50, "BYINT 100 UBOUND 80 SATURATE", [80, 30], 80),
    (10, "SATURATE LBOUND 0 BYINT -100", [0, -10], 0),
    (50, "BYINT 5 UBOUND 30", [50, 0], 50),
    (50, "BYINT 5 UBOUND 30 SATURATE", [30, -20], 30),
    (-50, "BYINT -5 LBOUND -30 SATURATE", [-30, 20], -30),
    (50, "BYINT -25 UBOUND 30", [25, -25], 25),
    (50, "BYINT -5 UBOUND 30", [50, 0], 50),
    (None, "BYINT 5 LBOUND 10", [0, 0], None),
    (None, "BYINT 5 LBOUND 10 SATURATE", [10, 10], 10),
    (None, "BYINT 5 UBOUND 10", [5, 5], 5),
    (GREATEST - 7, f"BYINT {GREATEST - 7}", [GREATEST - 7, 0], GREATEST - 7),
    (GREATEST - 7, f"BYINT {GREATEST - 7} SATURATE", [GREATEST, 7], GREATEST),
    (GREATEST - 7, f"BYINT {GREATEST - 7} SATURATE UBOUND 3", "ok", 3),
    (LEAST + 8, f"BYINT {LEAST + 8} SATURATE", [LEAST, -8], LEAST),
    (GREATEST - 7, f"BYINT 1 SATURATE UBOUND {LEAST}", "ERR applied increment would overflow", GREATEST - 7),
    (1, "FOO", SYNTAX, 1),
    (1, "BYINT", SYNTAX, 1),
    (1, "EX", SYNTAX, 1),
    (1, "BYINT 1 BYFLOAT 1.5", SYNTAX, 1),
    (1, "BYFLOAT 1.5 BYINT 1", SYNTAX, 1),
    (1, "BYINT 1 BYINT 2", SYNTAX, 1),
    (1, "LBOUND 0 LBOUND 1", SYNTAX, 1),
    (1, "UBOUND 9 UBOUND 8", SYNTAX, 1),
    (1, "SATURATE SATURATE LBOUND 0", SYNTAX, 1),
    (1, "EX 10 PX 5000", SYNTAX, 1),
    (1, "EX 10 EX 20", SYNTAX, 1),
    (1, "EX 10 PERSIST", SYNTAX, 1),
    (1, "PERSIST EXAT 99999999999", SYNTAX, 1),
    (1, "PERSIST PERSIST", SYNTAX, 1),
    (1, "PERSIST ENX", SYNTAX, 1),
    (1, "ENX PERSIST EX 10", SYNTAX, 1),
    (1, "ENX ENX EX 10", SYNTAX, 1),
    (1, "ENX", "ERR ENX flag requires an expiration", 1),
    (1, "BYINT abc", "ERR Increment is not an integer or out of range", 1),
    (1, "BYINT 1.5", "ERR Increment is not an integer or out of range", 1),
    (1, "LBOUND 1.5", "ERR LBOUND is not an integer or out of range", 1),
    (1, "UBOUND x", "ERR UBOUND is not an integer or out of range", 1),
    (1, "LBOUND 10 UBOUND 5", "ERR LBOUND can't be greater than UBOUND", 1),
    (1, "EX 0", "ERR invalid expire time in 'increx' command", 1),
    (1, "PX -1", "ERR invalid expire time in 'increx' command", 1),
    (1, "EX x", "ERR value is not an integer or out of range", 1),
]


@pytest.mark.parametrize(("before", "options", "answer", "after"), WHOLE)
def test_whole_numbers(
    ctx: HandlerContext, before: int | None, options: str, answer: list[int] | str, after: int | None
) -> None:
    if before is not None:
        run(ctx, "SET", "k", before)
    reply = increase(ctx, options)
    if isinstance(answer, str) and answer != "ok":
        assert isinstance(reply, hiredis.ReplyError)
        assert str(reply) == answer
    elif answer != "ok":
        assert reply == answer
    assert run(ctx, "GET", "k") == (None if after is None else b"%d" % after)


FLOATS: list[tuple[str | None, str, list[bytes] | str, bytes | None]] = [
    ("1.5", "BYFLOAT 0.25", [b"1.75", b"0.25"], b"1.75"),
    ("10", "BYFLOAT 1", [b"11", b"1"], b"11"),
    (None, "BYFLOAT 5.5 UBOUND 10", [b"5.5", b"5.5"], b"5.5"),
    (None, "BYFLOAT -0.5 UBOUND -1.5", [b"0", b"0"], None),
    ("10", "BYFLOAT 100 UBOUND 42.5 SATURATE", [b"42.5", b"32.5"], b"42.5"),
    ("0", "BYFLOAT -100 LBOUND -5.5 SATURATE", [b"-5.5", b"-5.5"], b"-5.5"),
    ("50.5", "BYFLOAT 5.5 UBOUND 30", [b"50.5", b"0"], b"50.5"),
    ("50.5", "BYFLOAT 5.5 UBOUND 30 SATURATE", [b"30", b"-20.5"], b"30"),
    ("50", "BYFLOAT -25 UBOUND 30 LBOUND -inf", [b"25", b"-25"], b"25"),
    ("0.1", "BYFLOAT 0.2", [b"0.3", b"0.2"], b"0.3"),
    ("10", "BYFLOAT 5 UBOUND 15.0", [b"15", b"5"], b"15"),
    ("1", "BYFLOAT +inf", "ERR BYFLOAT increment cannot be Infinity", b"1"),
    ("inf", "BYFLOAT 1", "ERR value cannot be Infinity", b"inf"),
    ("1", "BYFLOAT abc", "ERR Increment is not a valid float", b"1"),
    ("1", "BYFLOAT 1 LBOUND abc", "ERR LBOUND is not a valid float", b"1"),
    ("1", "BYFLOAT 1 LBOUND inf", "ERR LBOUND is not a valid float", b"1"),
    ("1", "BYFLOAT 0.5 LBOUND 10.5 UBOUND 1.5", "ERR LBOUND can't be greater than UBOUND", b"1"),
    ("hello", "BYFLOAT 1", "ERR value is not a valid float", b"hello"),
    ("hello", "BYINT 1", "ERR value is not an integer or out of range", b"hello"),
    ("1.5", "", "ERR value is not an integer or out of range", b"1.5"),
]


@pytest.mark.parametrize(("before", "options", "answer", "after"), FLOATS)
def test_floating_point_numbers(
    ctx: HandlerContext, before: str | None, options: str, answer: list[bytes] | str, after: bytes | None
) -> None:
    if before is not None:
        run(ctx, "SET", "k", before)
    reply = increase(ctx, options)
    assert (str(reply) if isinstance(reply, hiredis.ReplyError) else reply) == answer
    assert run(ctx, "GET", "k") == after


def test_the_greatest_number_bounds_a_sum_that_has_no_bound(ctx: HandlerContext) -> None:
    run(ctx, "SET", "k", "1e4932")
    assert increase(ctx, "BYFLOAT 1e4932")[1] == b"0"
    total, applied = increase(ctx, "BYFLOAT 1e4932 SATURATE")
    assert total.startswith(b"118973149535723176")
    assert len(total) == 4933
    assert applied.startswith(b"1897314953572317")


def test_floats_are_doubles_in_resp3() -> None:
    ctx = make_context(resp=3)
    table["INCREX"].handler(ctx, [b"INCREX", b"k", b"BYFLOAT", b"0.5"])  # type: ignore[misc]
    table["INCREX"].handler(ctx, [b"INCREX", b"n"])  # type: ignore[misc]
    assert ctx.reply.take() == b"*2\r\n,0.5\r\n,0.5\r\n*2\r\n:1\r\n:1\r\n"


def test_a_key_of_another_type_is_refused(ctx: HandlerContext) -> None:
    ctx.db.add(b"k", Stream())
    assert str(increase(ctx, "BYFLOAT 1")) == str(WrongTypeError())


# What the key expires at before (-1: never), the options, and at what it expires then.
EXPIRIES = [
    (-1, "", -1),
    (5000, "", 5000),
    (5000, "PERSIST", -1),
    (-1, "PERSIST", -1),
    (-1, "EX 100", 100_000),
    (5000, "PX 100", 100),
    (5000, "PX 100 ENX", 5000),
    (-1, "PX 100 ENX", 100),
    (5000, "EXAT 1 ENX", 5000),
    (-1, "UBOUND 1 EX 100", -1),
    (5000, "UBOUND 1 PERSIST", 5000),
    (-1, "UBOUND 1 SATURATE EX 100", 100_000),
]


@pytest.mark.parametrize(("before", "options", "after"), EXPIRIES)
def test_expiries(ctx: HandlerContext, before: int, options: str, after: int) -> None:
    run(ctx, "SET", "k", "10")
    if before >= 0:
        ctx.db.set_expiry(b"k", START_MS + before)
    increase(ctx, options)
    assert ctx.db.expiry(b"k") == (-1 if after < 0 else START_MS + after)


def test_a_time_that_has_passed_deletes_the_key(ctx: HandlerContext) -> None:
    run(ctx, "SET", "k", "10")
    assert increase(ctx, "EXAT 1") == [11, 1]
    assert b"k" not in ctx.db
    assert increase(ctx, "PXAT 1") == [1, 1]
    assert b"k" not in ctx.db


# It is propagated as what an older Redis understands, with the result and the absolute time.
EFFECTS = [
    ("BYINT 5", [(b"SET", b"k", b"15", b"KEEPTTL")]),
    ("BYFLOAT 0.5", [(b"SET", b"k", b"10.5", b"KEEPTTL")]),
    ("PERSIST", [(b"SET", b"k", b"11")]),
    ("EX 100", [(b"SET", b"k", b"11", b"PXAT", b"%d" % (START_MS + 100_000))]),
    ("PX 100 ENX", [(b"SET", b"k", b"11", b"PXAT", b"%d" % (START_MS + 100))]),
    ("BYINT 100 UBOUND 80 SATURATE", [(b"SET", b"k", b"80", b"KEEPTTL")]),
    ("BYINT 100 UBOUND 80 EX 10", []),
    ("EXAT 1", [(b"DEL", b"k")]),
]


@pytest.mark.parametrize(("options", "effects"), EFFECTS)
def test_effects(ctx: HandlerContext, options: str, effects: list[tuple[bytes, ...]]) -> None:
    run(ctx, "SET", "k", "10")
    assert observed(ctx, options) == effects


def test_an_expiry_that_stays_is_kept_by_the_effect(ctx: HandlerContext) -> None:
    run(ctx, "SET", "k", "10", "EX", "500")
    assert observed(ctx, "EX 10 ENX") == [(b"SET", b"k", b"11", b"KEEPTTL")]
