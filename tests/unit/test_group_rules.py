"""STREAMD.GROUP: rules as text and as commands, and what a rule does to entries that are not delivered again."""

from __future__ import annotations

import hiredis
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.commands.handler import START_MS, HandlerContext, make_context, run, set_time
from support.commands.observed import run_observed as observe

from streamd.core.spec import keys_of, table
from streamd.delivery.failures import state_of
from streamd.delivery.rules import GroupRule, Rules, format_rules, key_of_rules, parse_rules, stream_of_rules
from streamd.keyspace.hash_slot import SLOTS, slot_of, tag_of
from streamd.serve.families import load_all

load_all()

RULES_OF_S = key_of_rules(b"s")


@pytest.fixture
def ctx() -> HandlerContext:
    """A stream `s` with entries 1-0 to 5-0 and a group `g`, whose rule is: two deliveries, then `dead`."""
    made = make_context(resp=3)
    made.is_propagating = made.has_xnack = True
    for number in range(1, 6):
        run(made, "XADD", "s", f"{number}-0", "f", f"v{number}")
    run(made, "XGROUP", "CREATE", "s", "g", "0")
    assert run(made, "STREAMD.GROUP", "SET", "s", "g", "MAXDELIVERIES", 2, "DEADLETTER", "dead") == b"OK"
    return made


def run_observed(ctx: HandlerContext, request: list[str]) -> list[tuple[bytes, ...]]:
    """The effects of a request."""
    return [
        tuple(each if isinstance(each, bytes) else str(each).encode() for each in effect)
        for effect in observe(ctx, [word.encode() for word in request])
    ]


def deliver(ctx: HandlerContext, count: int = 1, consumer: str = "c") -> None:
    run(ctx, "XREADGROUP", "GROUP", "g", consumer, "COUNT", count, "STREAMS", "s", ">")


def dead(ctx: HandlerContext) -> list[dict[bytes, bytes]]:
    """The entries of `dead`, as fields."""
    entries = run(ctx, "XRANGE", "dead", "-", "+")
    return [dict(zip(fields[::2], fields[1::2], strict=True)) for _, fields in entries]


def pending(ctx: HandlerContext) -> dict[bytes, int]:
    """The delivery counts of what is pending."""
    return {id: count for id, _, _, count in run(ctx, "XPENDING", "s", "g", "-", "+", 100)}


# --- Where rules lie ---------------------------------------------------------------------------------------------------


@given(
    st.dictionaries(
        st.binary(max_size=8),
        st.builds(GroupRule, st.binary(min_size=1, max_size=8), st.integers(1, 1000), st.integers(0, 10**6)),
        min_size=1,
        max_size=4,
    )
)
def test_rules_survive_format_and_parse(rules: dict[bytes, GroupRule]) -> None:
    assert parse_rules(format_rules(Rules(groups=rules))).groups == rules


@given(st.binary(max_size=40))
def test_any_other_text_parses_or_is_refused(text: bytes) -> None:
    try:
        parse_rules(text)
    except ValueError:
        return


@given(st.binary(max_size=20) | st.sampled_from([b"{a}b", b"a}b", b"{}x", b"{{a}}", b"}:{"]))
def test_the_string_of_a_stream_has_its_slot_and_tells_its_key(key: bytes) -> None:
    assert slot_of(key_of_rules(key)) == slot_of(key)
    assert stream_of_rules(key_of_rules(key)) == key


def test_every_slot_has_a_tag() -> None:
    for slot in range(0, SLOTS, 37):
        assert slot_of(b"{%s}:x" % tag_of(slot)) == slot
    assert tag_of(SLOTS - 1) == tag_of(SLOTS - 1)


def test_a_rule_is_one_plain_string(ctx: HandlerContext) -> None:
    assert run(ctx, "GET", RULES_OF_S) == b"GROUP g DEADLETTER dead MAXDELIVERIES 2"
    told = run_observed(ctx, ["STREAMD.GROUP", "SET", "s", "a b", "DEADLETTER", "d"])
    text = b'GROUP "a b" DEADLETTER d\nGROUP g DEADLETTER dead MAXDELIVERIES 2'
    assert told == [(b"SET", RULES_OF_S, text)]
    assert not run_observed(ctx, ["STREAMD.GROUP", "SET", "s", "a b", "DEADLETTER", "d"])
    assert run_observed(ctx, ["STREAMD.GROUP", "UNSET", "s", "a b"]) == [
        (b"SET", RULES_OF_S, b"GROUP g DEADLETTER dead MAXDELIVERIES 2")
    ]
    assert run_observed(ctx, ["STREAMD.GROUP", "UNSET", "s", "g"]) == [(b"DEL", RULES_OF_S)]
    assert not run_observed(ctx, ["STREAMD.GROUP", "UNSET", "s", "g"])


def test_set_replaces_the_options_that_it_names(ctx: HandlerContext) -> None:
    run(ctx, "STREAMD.GROUP", "SET", "s", "g", "ackwait", 500)
    assert run(ctx, "STREAMD.GROUP", "GET", "s", "g") == {
        b"maxdeliveries": 2, b"deadletter": b"dead", b"ackwait": 500,
    }  # fmt: skip
    run(ctx, "STREAMD.GROUP", "UNSET", "s", "g", "ACKWAIT", "MAXDELIVERIES")
    assert run(ctx, "STREAMD.GROUP", "GET", "s", "g") == {b"deadletter": b"dead"}
    assert run(ctx, "STREAMD.GROUP", "GET", "s", "other") == {}


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ("MAXDELIVERIES 5", "ERR MAXDELIVERIES needs DEADLETTER"),
        ("DEADLETTER d ACKWAIT 5", "ERR ACKWAIT needs MAXDELIVERIES"),
        ("MAXDELIVERIES 0 DEADLETTER d", "ERR MAXDELIVERIES must be an integer between 1 and 1000000"),
        ("MAXDELIVERIES x DEADLETTER d", "ERR MAXDELIVERIES must be an integer between 1 and 1000000"),
        ("DEADLETTER d KEYED f", "ERR unknown option 'KEYED'"),
        ("DEADLETTER d DEADLETTER e", "ERR DEADLETTER is given twice"),
        ("DEADLETTER d MAXDELIVERIES", "ERR MAXDELIVERIES has no value"),
        ("DEADLETTER new", "ERR DEADLETTER 'new' leads back to 'new'"),
        ("DEADLETTER s", "ERR DEADLETTER 's' leads back to 'new'"),
    ],
)
def test_refused_and_nothing_changed(ctx: HandlerContext, options: str, error: str) -> None:
    run(ctx, "STREAMD.GROUP", "SET", "dead", "g", "DEADLETTER", "new")
    reply = run(ctx, "STREAMD.GROUP", "SET", "new", "g", *options.split())
    assert isinstance(reply, hiredis.ReplyError)
    assert str(reply) == error
    assert run(ctx, "STREAMD.GROUP", "GET", "new", "g") == {}


def test_the_dead_letter_stream_is_a_key_of_the_request() -> None:
    request = [b"STREAMD.GROUP", b"SET", b"s", b"DEADLETTER", b"maxdeliveries", b"1", b"deadletter", b"d"]
    found = table["STREAMD.GROUP"].subcommands["SET"]
    assert [use.position for use in keys_of(found, request)] == [2, 7]
    assert [use.position for use in keys_of(found, request[:6])] == [2]


def test_rules_belong_to_the_name(ctx: HandlerContext) -> None:
    run(ctx, "RENAME", "s", "t")
    assert run(ctx, "STREAMD.GROUP", "GET", "t", "g") == {}
    run(ctx, "COPY", "t", "s")
    assert run(ctx, "STREAMD.GROUP", "GET", "s", "g")
    run(ctx, "DEL", "s")
    assert run(ctx, "STREAMD.GROUP", "GET", "s", "g")
    run(ctx, "FLUSHALL")
    assert run(ctx, "STREAMD.GROUP", "GET", "s", "g") == {}
    assert ctx.db.reserved is None


def test_a_destroyed_group_loses_its_rule(ctx: HandlerContext) -> None:
    effects = run_observed(ctx, ["XGROUP", "DESTROY", "s", "g"])
    assert effects == [(b"XGROUP", b"DESTROY", b"s", b"g"), (b"DEL", RULES_OF_S)]
    assert run(ctx, "STREAMD.GROUP", "GET", "s", "g") == {}


def test_text_that_does_not_parse_is_kept_shown_and_not_obeyed(ctx: HandlerContext) -> None:
    run(ctx, "SET", RULES_OF_S, "GROUP g MAXDELIVERIES many DEADLETTER dead")
    assert list(run(ctx, "STREAMD.GROUP", "GET", "s", "g")) == [b"parse-error"]
    assert "do not parse" in str(run(ctx, "STREAMD.GROUP", "SET", "s", "g", "DEADLETTER", "d"))
    deliver(ctx)
    run(ctx, "XNACK", "s", "g", "FATAL", "IDS", 1, "1-0")
    assert not dead(ctx)


# --- Moves -------------------------------------------------------------------------------------------------------------


def test_xnack_of_the_last_delivery_moves_the_entry(ctx: HandlerContext) -> None:
    deliver(ctx)
    run(ctx, "XNACK", "s", "g", "FAIL", "IDS", 1, "1-0")
    assert pending(ctx) == {b"1-0": 1}
    run(ctx, "XCLAIM", "s", "g", "c", 0, "1-0")
    effects = run_observed(ctx, ["XNACK", "s", "g", "FAIL", "IDS", "1", "1-0"])
    fields = (
        b"f", b"v1", b"dlq.stream", b"s", b"dlq.id", b"1-0", b"dlq.group", b"g", b"dlq.consumer", b"c",
        b"dlq.deliveries", b"2", b"dlq.first", b"1", b"dlq.last", b"%d" % START_MS, b"dlq.reason", b"max-deliveries",
    )  # fmt: skip
    assert effects == [(b"XADD", b"dead", b"%d-0" % START_MS, *fields), (b"XACK", b"s", b"g", b"1-0")]
    assert pending(ctx) == {}
    assert run(ctx, "XLEN", "s") == 5


def test_fatal_moves_at_once_and_silent_takes_a_delivery_back(ctx: HandlerContext) -> None:
    deliver(ctx, 3)
    effects = run_observed(ctx, ["XNACK", "s", "g", "FATAL", "IDS", "1", "1-0"])
    assert [effect[0] for effect in effects] == [b"XADD", b"XACK"]
    assert dead(ctx)[0][b"dlq.reason"] == b"fatal"
    run(ctx, "XCLAIM", "s", "g", "c", 0, "2-0")
    effects = run_observed(ctx, ["XNACK", "s", "g", "SILENT", "IDS", "1", "2-0"])
    assert effects == [(b"XNACK", b"s", b"g", b"SILENT", b"IDS", b"1", b"2-0", b"RETRYCOUNT", b"1", b"FORCE")]
    assert pending(ctx) == {b"2-0": 1, b"3-0": 1}


@pytest.mark.parametrize("claim", ["XREADGROUP", "XCLAIM", "XAUTOCLAIM"])
def test_a_claim_gets_the_next_one(ctx: HandlerContext, claim: str) -> None:
    deliver(ctx, 2)
    run(ctx, "XCLAIM", "s", "g", "c", 0, "1-0")
    set_time(ctx, START_MS + 1000)
    if claim == "XREADGROUP":
        reply = run(ctx, "XREADGROUP", "GROUP", "g", "d", "COUNT", 1, "CLAIM", 1000, "STREAMS", "s", ">")
        assert [entry[0] for entry in reply[b"s"]] == [b"2-0"]
    elif claim == "XCLAIM":
        reply = run(ctx, "XCLAIM", "s", "g", "d", 1000, "1-0", "2-0")
        assert [entry[0] for entry in reply] == [b"2-0"]
    else:
        next_id, entries, deleted = run(ctx, "XAUTOCLAIM", "s", "g", "d", 1000, "0", "COUNT", 1)
        assert [entry[0] for entry in entries] == [b"2-0"]
        assert (next_id, deleted) == (b"0-0", [])
    assert pending(ctx) == {b"2-0": 2}
    assert [(each[b"dlq.id"], each[b"dlq.consumer"]) for each in dead(ctx)] == [(b"1-0", b"c")]


def test_what_is_not_idle_enough_or_only_renewed_stays(ctx: HandlerContext) -> None:
    deliver(ctx)
    run(ctx, "XCLAIM", "s", "g", "c", 0, "1-0")
    set_time(ctx, START_MS + 999)
    assert (
        run(ctx, "XREADGROUP", "GROUP", "g", "d", "COUNT", 1, "CLAIM", 1000, "STREAMS", "s", ">")[b"s"][0][0] == b"2-0"
    )
    run(ctx, "XCLAIM", "s", "g", "d", 1000, "1-0")
    run(ctx, "XAUTOCLAIM", "s", "g", "d", 1000, "0")
    assert run(ctx, "XCLAIM", "s", "g", "c", 0, "1-0", "JUSTID") == [b"1-0"]
    assert pending(ctx)[b"1-0"] == 2
    assert not dead(ctx)
    assert run(ctx, "XACK", "s", "g", "1-0") == 1


def test_a_lower_limit_is_no_sweep(ctx: HandlerContext) -> None:
    deliver(ctx, 2)
    run(ctx, "STREAMD.GROUP", "SET", "s", "g", "MAXDELIVERIES", 1)
    assert not dead(ctx)
    run(ctx, "XCLAIM", "s", "g", "d", 0, "2-0")
    assert [each[b"dlq.id"] for each in dead(ctx)] == [b"2-0"]


def test_a_deleted_entry_moves_without_its_fields(ctx: HandlerContext) -> None:
    deliver(ctx)
    run(ctx, "XDEL", "s", "1-0")
    run(ctx, "XNACK", "s", "g", "FATAL", "IDS", 1, "1-0")
    assert dead(ctx)[0][b"dlq.reason"] == b"trimmed"
    assert b"f" not in dead(ctx)[0]


def test_what_cannot_be_moved_stays_pending_and_is_not_delivered(ctx: HandlerContext) -> None:
    run(ctx, "SET", "dead", "no stream")
    deliver(ctx, 2)
    run(ctx, "XCLAIM", "s", "g", "c", 0, "1-0")
    assert [entry[0] for entry in run(ctx, "XCLAIM", "s", "g", "d", 0, "1-0", "2-0")] == [b"2-0"]
    assert pending(ctx) == {b"1-0": 2, b"2-0": 2}
    assert run(ctx, "XREADGROUP", "GROUP", "g", "d", "COUNT", 1, "CLAIM", 0, "STREAMS", "s", ">")[b"s"][0][0] == b"3-0"
    shown = run(ctx, "STREAMD.GROUP", "GET", "s", "g")
    assert shown[b"last-error"].startswith(b"WRONGTYPE")
    assert shown[b"not-moved"] == 2
    run(ctx, "DEL", "dead")
    run(ctx, "XCLAIM", "s", "g", "d", 0, "1-0", "2-0")
    assert [each[b"dlq.id"] for each in dead(ctx)] == [b"1-0", b"2-0"]
    assert not state_of(ctx).failures


def test_what_is_replayed_moves_nothing(ctx: HandlerContext) -> None:
    deliver(ctx)
    ctx.is_replaying = True
    run(ctx, "XNACK", "s", "g", "FATAL", "IDS", 1, "1-0")
    run(ctx, "XCLAIM", "s", "g", "c", 0, "1-0")
    run(ctx, "XGROUP", "DESTROY", "s", "g")
    ctx.is_replaying = False
    assert not dead(ctx)
    assert run(ctx, "STREAMD.GROUP", "GET", "s", "g")


def test_the_invariants_hold_with_reserved_keys(ctx: HandlerContext) -> None:
    other = ctx.databases[1]
    run(ctx, "SET", "streamd:rules:", "only the prefix")
    run(ctx, "SWAPDB", 0, 1)
    assert (ctx.db.reserved, other.reserved) == (None, {RULES_OF_S})
    for db in (ctx.db, other):
        db.check_invariants()
    run(ctx, "SWAPDB", 0, 1)
    run(ctx, "RENAME", RULES_OF_S, "elsewhere")
    assert ctx.db.reserved is None
    run(ctx, "COPY", "elsewhere", RULES_OF_S)
    assert ctx.db.reserved == {RULES_OF_S}
    ctx.db.check_invariants()
