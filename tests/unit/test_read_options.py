"""XREAD and XREADGROUP: how requests are read, and what they ask to wait for."""

from __future__ import annotations

import re
from typing import Any

import hiredis
import pytest
from support.commands.handler import START_MS, HandlerContext, make_context, run, set_time

import streamd.values.streams.xgroup  # noqa: F401  (declares its commands)
from streamd.errors import CommandError
from streamd.values.streams.stream import Stream
from streamd.values.streams.xread import ReadOptions, find_keys, parse_read

MAX_INT = 2**63 - 1
NOT_OFFERED = "ERR The {} option is only supported by XREADGROUP. You called XREAD instead."
UNBALANCED = "ERR Unbalanced 'xread' list of streams: for each stream key an ID, '+', or '$' must be specified."
UNBALANCED_GROUP = "ERR Unbalanced 'xreadgroup' list of streams: for each stream key an ID or '>' must be specified."
NO_GROUP = "NOGROUP No such key 's' or consumer group 'g' in XREADGROUP with GROUP option"


def parse(text: str) -> ReadOptions:
    args = text.encode().split(b" ")
    return parse_read(args, args[0].upper() == b"XREADGROUP", START_MS)


def add(ctx: HandlerContext, *numbers: int, key: bytes = b"s") -> Stream:
    """Entries n-1 with the field and value `f`, `n` at `key`."""
    stream = ctx.db.peek(key)
    if stream is None:
        stream = Stream(node_max_entries=3)
        ctx.db.add(key, stream)
    for number in numbers:
        stream.append([(b"f", b"%d" % number)], id=(number, 1))
    return stream  # type: ignore[no-any-return]


def entry(number: int, *more: Any) -> list[Any]:
    return [b"%d-1" % number, [b"f", b"%d" % number], *more]


@pytest.fixture
def ctx() -> HandlerContext:
    return make_context()


# --- Reading the request ----------------------------------------------------------------------------------------------


def test_without_options_there_is_no_limit_and_no_waiting() -> None:
    options = parse("XREAD STREAMS a b 1 2")
    assert (options.first_key, options.key_count) == (2, 2)
    assert (options.count, options.timeout_ms, options.min_idle_ms) == (0, -1, -1)
    assert options.group is options.consumer is None
    assert not options.no_ack


def test_every_option_is_read_in_any_order_and_case() -> None:
    options = parse("xreadgroup MaxSize 9 noack claim 7 Count 3 block 0 maxcount 5 group g c streams k >")
    assert (options.group, options.consumer) == (b"g", b"c")
    assert (options.max_count, options.max_bytes) == (5, 9)
    assert (options.count, options.timeout_ms, options.min_idle_ms, options.no_ack) == (3, 0, 7, True)
    assert (options.first_key, options.key_count) == (16, 1)


def test_an_option_given_twice_counts_as_given_last() -> None:
    options = parse("XREADGROUP GROUP g a COUNT 1 GROUP h b COUNT 2 STREAMS k >")
    assert (options.group, options.consumer, options.count) == (b"h", b"b", 2)


def test_what_follows_streams_is_keys_and_ids_whatever_it_looks_like() -> None:
    options = parse("XREAD STREAMS COUNT STREAMS BLOCK 0")
    assert (options.first_key, options.key_count) == (2, 2)


@pytest.mark.parametrize(
    ("line", "keys"),
    [
        ("XREAD STREAMS a b 1 2", "a b"),
        ("XREAD STREAMS STREAMS STREAMS 1 2", "STREAMS STREAMS"),
        ("XREAD COUNT streams STREAMS a 0", "a"),
        ("xread block STREAMS streams a 0", "a"),
        ("XREADGROUP NOACK GROUP g STREAMS STREAMS a >", "a"),
        ("XREADGROUP GROUP STREAMS STREAMS CLAIM STREAMS STREAMS a >", "a"),
        ("XREADGROUP COUNT 1 STREAMS GROUP g", "GROUP"),
        ("XREAD GROUP g c NOACK CLAIM 1 STREAMS a 0", "a"),
        ("XREAD MAXCOUNT STREAMS MAXSIZE STREAMS STREAMS a 0", "a"),
        ("XREAD STREAMS a 0 b", None),
        ("XREAD a STREAMS b 0", None),
        ("XREAD COUNT 1 STREAMS", None),
        ("XREAD COUNT 1 COUNT", None),
        ("XREADGROUP NOACK GROUP STREAMS a", None),
    ],
)
def test_keys_are_those_that_are_read(line: str, keys: str | None) -> None:
    args = line.encode().split(b" ")
    found = find_keys(args)
    assert (None if found is None else b" ".join(args[at] for at in found).decode()) == keys
    try:
        options = parse(line)
    except CommandError:
        return
    assert found == range(options.first_key, options.first_key + options.key_count)


@pytest.mark.parametrize("count", ["0", "-1", str(-(2**63))])
def test_a_count_below_one_is_no_limit(count: str) -> None:
    assert parse(f"XREAD COUNT {count} STREAMS k 0").count == 0


@pytest.mark.parametrize(
    ("request_text", "error"),
    [
        ("XREAD COUNT 1 STREAMS", "ERR syntax error"),
        ("XREAD COUNT 1 COUNT", "ERR syntax error"),
        ("XREAD FOO STREAMS k 0", "ERR syntax error"),
        ("XREADGROUP GROUP g", "ERR syntax error"),
        ("XREAD COUNT x STREAMS k 0", "ERR value is not an integer or out of range"),
        ("XREAD BLOCK x STREAMS k 0", "ERR timeout is not an integer or out of range"),
        ("XREAD BLOCK 1.5 STREAMS k 0", "ERR timeout is not an integer or out of range"),
        ("XREAD BLOCK -1 STREAMS k 0", "ERR timeout is negative"),
        (f"XREAD BLOCK {MAX_INT} STREAMS k 0", "ERR timeout is out of range"),
        (f"XREAD BLOCK {MAX_INT - START_MS + 1} STREAMS k 0", "ERR timeout is out of range"),
        ("XREAD STREAMS a b 0", UNBALANCED),
        ("XREADGROUP GROUP g c STREAMS a b >", UNBALANCED_GROUP),
        ("XREADGROUP STREAMS a b >", UNBALANCED_GROUP),
        ("XREAD GROUP g c STREAMS k 0", NOT_OFFERED.format("GROUP")),
        ("XREAD MAXCOUNT x STREAMS k 0", "ERR value is not an integer or out of range"),
        ("XREAD MAXSIZE 1.5 STREAMS k 0", "ERR value is not an integer or out of range"),
        ("XREAD MAXCOUNT 0 STREAMS k 0", "ERR MAXCOUNT must be a positive integer"),
        ("XREAD MAXSIZE -1 STREAMS k 0", "ERR MAXSIZE must be a positive integer"),
        ("XREAD MAXCOUNT -1", "ERR MAXCOUNT must be a positive integer"),
        ("XREAD COUNT 2 MAXCOUNT 1 k 0", "ERR syntax error"),
        ("XREAD MAXCOUNT 1 COUNT 2 STREAMS k 0", "ERR MAXCOUNT must be greater than or equal to COUNT"),
        ("XREADGROUP MAXCOUNT 1 COUNT 2 STREAMS k 0 1", UNBALANCED_GROUP),
        ("XREADGROUP MAXCOUNT 1 COUNT 2 STREAMS k 0", "ERR Missing GROUP option for XREADGROUP"),
        ("XREADGROUP GROUP g c MAXCOUNT 1 COUNT 2 STREAMS k $", "ERR MAXCOUNT must be greater than or equal to COUNT"),
        ("XREAD MAXSIZE", "ERR syntax error"),
        ("XREAD NOACK STREAMS k 0", NOT_OFFERED.format("NOACK")),
        ("XREAD CLAIM 0 STREAMS k 0", NOT_OFFERED.format("CLAIM")),
        ("XREADGROUP COUNT 1 STREAMS k >", "ERR Missing GROUP option for XREADGROUP"),
        ("XREADGROUP GROUP g c CLAIM x STREAMS k >", "ERR min-idle-time is not an integer or out of range"),
        ("XREADGROUP GROUP g c CLAIM -1 STREAMS k >", "ERR min-idle-time must be a positive integer"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(request_text: str, error: str) -> None:
    with pytest.raises(CommandError, match=f"^{re.escape(error)}$"):
        parse(request_text)


def test_the_longest_timeout_that_does_not_overflow_is_taken() -> None:
    assert parse(f"XREAD BLOCK {MAX_INT - START_MS} STREAMS k 0").timeout_ms == MAX_INT - START_MS


# --- XREAD ------------------------------------------------------------------------------------------------------------


def test_xread_returns_what_comes_after_the_id(ctx: HandlerContext) -> None:
    add(ctx, 1, 2, 3, 4)
    assert run(ctx, "XREAD", "STREAMS", "s", "2-1") == [[b"s", [entry(3), entry(4)]]]
    assert run(ctx, "XREAD", "COUNT", 1, "STREAMS", "s", "2-1") == [[b"s", [entry(3)]]]
    assert run(ctx, "XREAD", "STREAMS", "s", "4-1") is None
    assert run(ctx, "XREAD", "STREAMS", "s", "18446744073709551615-18446744073709551615") is None


def test_xread_leaves_out_streams_without_news_and_keeps_the_order_asked(ctx: HandlerContext) -> None:
    add(ctx, 1, key=b"a")
    add(ctx, 1, key=b"b")
    reply = run(ctx, "XREAD", "STREAMS", "b", "none", "a", "b", "0", "0", "0", "1-1")
    assert reply == [[b"b", [entry(1)]], [b"a", [entry(1)]]]


def test_xread_answers_a_map_in_resp3() -> None:
    ctx = make_context(resp=3)
    add(ctx, 1)
    assert run(ctx, "XREAD", "STREAMS", "s", "0") == {b"s": [entry(1)]}
    assert run(ctx, "XREAD", "STREAMS", "s", "$") is None


def test_a_plus_is_the_last_live_entry(ctx: HandlerContext) -> None:
    stream = add(ctx, 1, 2, 3)
    stream.delete((3, 1))
    assert run(ctx, "XREAD", "STREAMS", "s", "+") == [[b"s", [entry(2)]]]
    assert run(ctx, "XREAD", "STREAMS", "none", "+") is None


@pytest.mark.parametrize("command", ["XREAD STREAMS s text 0 0", "XREAD STREAMS text 0 s x"])
def test_a_key_of_another_type_fails_the_whole_request(ctx: HandlerContext, command: str) -> None:
    ctx.db.set(b"text", b"value")
    reply = run(ctx, *command.split())
    assert str(reply).startswith("WRONGTYPE")


def test_xread_refuses_the_id_of_group_readers(ctx: HandlerContext) -> None:
    assert "ERR The > ID can be specified only when" in str(run(ctx, "XREAD", "STREAMS", "s", ">"))


# --- Waiting ----------------------------------------------------------------------------------------------------------


def test_xread_waits_with_the_dollar_replaced_by_what_it_meant(ctx: HandlerContext) -> None:
    add(ctx, 1, 2)
    assert run(ctx, "XREAD", "COUNT", 1, "BLOCK", 50, "STREAMS", "s", "none", "t", "$", "$", "+") is None
    assert ctx.blocked is not None
    assert ctx.blocked.keys == [b"s", b"none", b"t"]
    assert ctx.blocked.args[-3:] == [b"2-1", b"0-0", b"+"]
    assert ctx.blocked.args[:-3] == [b"XREAD", b"COUNT", b"1", b"BLOCK", b"50", b"STREAMS", b"s", b"none", b"t"]
    assert (ctx.blocked.timeout_ms, ctx.blocked.question.line, ctx.blocked.ready_at_ms) == (50, None, -1)


def test_the_request_as_received_is_not_changed_by_waiting(ctx: HandlerContext) -> None:
    args = [b"XREAD", b"BLOCK", b"0", b"STREAMS", b"s", b"$"]
    assert run(ctx, *args) is None
    assert args[-1] == b"$"


def test_a_waiting_request_is_served_when_it_is_run_again(ctx: HandlerContext) -> None:
    add(ctx, 1)
    assert run(ctx, "XREAD", "BLOCK", 0, "STREAMS", "s", "$") is None
    assert ctx.blocked is not None
    again = ctx.blocked.args
    add(ctx, 2)
    assert run(ctx, *again) == [[b"s", [entry(2)]]]


def test_without_block_there_is_no_waiting(ctx: HandlerContext) -> None:
    assert run(ctx, "XREAD", "STREAMS", "s", "$") is None
    assert ctx.blocked is None


def test_a_group_reader_waits_with_the_name_of_its_group(ctx: HandlerContext) -> None:
    run(ctx, "XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    assert run(ctx, "XREADGROUP", "GROUP", "g", "c", "BLOCK", 9, "STREAMS", "s", ">") is None
    assert ctx.blocked is not None
    assert (ctx.blocked.question.line, ctx.blocked.timeout_ms, ctx.blocked.ready_at_ms) == (b"g", 9, -1)


def test_a_group_reader_run_again_without_its_group_fails(ctx: HandlerContext) -> None:
    run(ctx, "XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    request = ("XREADGROUP", "GROUP", "g", "c", "BLOCK", 0, "STREAMS", "s", ">")
    assert run(ctx, *request) is None
    run(ctx, "XGROUP", "DESTROY", "s", "g")
    assert str(run(ctx, *request)) == NO_GROUP
    ctx.db.delete(b"s")
    assert str(run(ctx, *request)) == NO_GROUP


def test_a_history_read_never_waits(ctx: HandlerContext) -> None:
    run(ctx, "XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    assert run(ctx, "XREADGROUP", "GROUP", "g", "c", "BLOCK", 0, "STREAMS", "s", "0") == [[b"s", []]]
    assert ctx.blocked is None


def test_destroying_a_group_makes_its_key_ready(ctx: HandlerContext) -> None:
    run(ctx, "XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    ctx.db.waiters[b"s"] = object()
    run(ctx, "XGROUP", "SETID", "s", "g", "0")
    run(ctx, "XGROUP", "DESTROY", "s", "other")
    assert not ctx.db.ready
    run(ctx, "XGROUP", "DESTROY", "s", "g")
    assert list(ctx.db.ready) == [(ctx.db, b"s")]


# --- Waiting with CLAIM -----------------------------------------------------------------------------------------------


@pytest.fixture
def pending(ctx: HandlerContext) -> HandlerContext:
    """One entry that is pending for `other` since START_MS."""
    add(ctx, 1)
    run(ctx, "XGROUP", "CREATE", "s", "g", "0")
    run(ctx, "XREADGROUP", "GROUP", "g", "other", "STREAMS", "s", ">")
    return ctx


def claim(ctx: HandlerContext, min_idle_ms: int) -> Any:
    return run(ctx, "XREADGROUP", "GROUP", "g", "c", "BLOCK", 0, "CLAIM", min_idle_ms, "STREAMS", "s", ">")


def ready_after_ms(ctx: HandlerContext) -> int:
    assert ctx.blocked is not None
    assert ctx.blocked.ready_at_ms >= 0
    return ctx.blocked.ready_at_ms - ctx.now_ms


def test_a_claimer_is_ready_when_the_oldest_delivery_is_idle_for_long_enough(pending: HandlerContext) -> None:
    set_time(pending, START_MS + 30)
    assert claim(pending, 100) is None
    assert ready_after_ms(pending) == 70
    set_time(pending, START_MS + 99)
    assert claim(pending, 100) is None
    assert ready_after_ms(pending) == 1
    set_time(pending, START_MS + 100)
    assert claim(pending, 100) == [[b"s", [entry(1, 100, 1)]]]


def test_a_claimer_looks_again_when_what_is_delivered_from_now_on_can_be_idle(ctx: HandlerContext) -> None:
    run(ctx, "XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    assert claim(ctx, 1000) is None
    assert ready_after_ms(ctx) == 1000
    assert claim(ctx, 0) is None
    assert ready_after_ms(ctx) == 10


def test_a_claimer_does_not_spin_on_what_was_deleted(pending: HandlerContext) -> None:
    pending.db.peek(b"s").delete((1, 1))
    set_time(pending, START_MS + 500)
    assert claim(pending, 100) is None
    assert ready_after_ms(pending) == 100


def test_the_time_of_a_claimer_does_not_overflow(pending: HandlerContext) -> None:
    assert claim(pending, MAX_INT) is None
    assert pending.blocked is not None
    assert pending.blocked.ready_at_ms == MAX_INT


def test_entries_made_idle_by_xclaim_do_not_make_the_key_ready(pending: HandlerContext) -> None:
    pending.db.waiters[b"s"] = object()
    run(pending, "XCLAIM", "s", "g", "c", 0, "1-1", "IDLE", 5000)
    assert not pending.db.ready


# --- What a wrong group or ID says ------------------------------------------------------------------------------------


@pytest.mark.parametrize("special", ["$", "+"])
def test_ids_without_a_meaning_for_groups_are_explained(ctx: HandlerContext, special: str) -> None:
    run(ctx, "XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    reply = run(ctx, "XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", special)
    assert str(reply) == (
        f"ERR The {special} ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer "
        "by specifying a proper ID, or use the > ID to get new messages. "
        f"The {special} ID would just return an empty result set."
    )


def test_a_missing_group_is_reported_before_a_wrong_id(ctx: HandlerContext) -> None:
    assert str(run(ctx, "XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", "x")) == NO_GROUP
    add(ctx, 1)
    assert str(run(ctx, "XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", "x")) == NO_GROUP


def test_nothing_is_read_when_one_key_is_wrong(ctx: HandlerContext) -> None:
    stream = add(ctx, 1)
    run(ctx, "XGROUP", "CREATE", "s", "g", "0")
    reply = run(ctx, "XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", "none", ">", ">")
    assert isinstance(reply, hiredis.ReplyError)
    assert stream.groups[b"g"].pending_count == 0
    assert stream.groups[b"g"].consumers == {}


def test_every_key_is_looked_for_twice_as_redis_counts_it(ctx: HandlerContext) -> None:
    add(ctx, 1)
    run(ctx, "XREAD", "STREAMS", "s", "none", "0", "0")
    assert (ctx.db.hits, ctx.db.misses) == (2, 2)
