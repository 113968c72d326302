"""STREAMD.GROUP: rules as text and as commands, and what a rule does to entries that are not delivered again."""

from __future__ import annotations

from pathlib import Path

import hiredis
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.commands.handler import START_MS, HandlerContext, make_context, run, set_time
from support.commands.observed import run_observed as observe

from streamd.core.spec import keys_of, table
from streamd.delivery.rule_options import DISTANT_MS, table_of
from streamd.delivery.rules import GroupRule, Rules, format_rules, key_of_rules, parse_rules, stream_of_rules
from streamd.delivery.state import state_of
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
        st.builds(
            GroupRule,
            dead_letter=st.binary(min_size=1, max_size=8),
            max_deliveries=st.integers(1, 1000),
            ack_wait_ms=st.integers(0, 10**6),
            back_off_ms=st.integers(1, 10**6),
            factor=st.integers(1000, 100_000),
            max_back_off_ms=st.integers(10**6, DISTANT_MS),
            jitter=st.integers(0, 100),
            max_pending=st.integers(0, 100),
            consumer_pending=st.integers(0, 100),
            consumer_ttl_ms=st.integers(1000, DISTANT_MS),
            keyed=st.binary(min_size=1, max_size=8),
            held=st.integers(1, 10**6),
        ),
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
    run(ctx, "STREAMD.GROUP", "SET", "s", "g", "BACKOFF", 1000, "FACTOR", "2.50")
    shown = {b"deadletter": b"dead", b"maxdeliveries": 2, b"ackwait": 500, b"backoff": 1000, b"factor": b"2.5"}
    assert run(ctx, "STREAMD.GROUP", "GET", "s", "g") == shown
    assert str(run(ctx, "STREAMD.GROUP", "UNSET", "s", "g", "BACKOFF")) == "ERR FACTOR needs BACKOFF"
    run(ctx, "STREAMD.GROUP", "UNSET", "s", "g", "ACKWAIT", "MAXDELIVERIES", "BACKOFF", "FACTOR")
    assert run(ctx, "STREAMD.GROUP", "GET", "s", "g") == {b"deadletter": b"dead"}
    assert run(ctx, "STREAMD.GROUP", "GET", "s", "other") == {}


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ("MAXDELIVERIES 5", "ERR MAXDELIVERIES needs DEADLETTER"),
        ("DEADLETTER d ACKWAIT 5", "ERR ACKWAIT needs MAXDELIVERIES"),
        ("MAXDELIVERIES 0 DEADLETTER d", "ERR MAXDELIVERIES must be an integer between 1 and 1000000"),
        ("MAXDELIVERIES x DEADLETTER d", "ERR MAXDELIVERIES must be an integer between 1 and 1000000"),
        ("DEADLETTER d HELD 5", "ERR HELD needs KEYED"),
        ("DEADLETTER d ORDER f", "ERR unknown option 'ORDER'"),
        ("FACTOR 2", "ERR FACTOR needs BACKOFF"),
        ("BACKOFF 5 FACTOR 0.9", "ERR FACTOR must be a number between 1 and 100 with at most three decimal places"),
        ("BACKOFF 5 FACTOR 1.0005", "ERR FACTOR must be a number between 1 and 100 with at most three decimal places"),
        ("BACKOFF 5 FACTOR 1e1", "ERR FACTOR must be a number between 1 and 100 with at most three decimal places"),
        ("BACKOFF 5 JITTER 101", "ERR JITTER must be an integer between 1 and 100"),
        ("BACKOFF 5 MAX 4", "ERR MAX must not be less than BACKOFF"),
        ("DEADLETTER d DEADLETTER e", "ERR DEADLETTER is given twice"),
        ("DEADLETTER d MAXDELIVERIES", "ERR MAXDELIVERIES has no value"),
        ("DEADLETTER new", "ERR DEADLETTER 'new' leads back to 'new'"),
        ("CONSUMERTTL 999", f"ERR CONSUMERTTL must be an integer between 1000 and {DISTANT_MS}"),
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
        reply = run(ctx, "XREADGROUP", "GROUP", "g", "d", "COUNT", 2, "CLAIM", 1000, "STREAMS", "s", ">")
        assert [entry[0] for entry in reply[b"s"]] == [b"2-0", b"3-0"]
    elif claim == "XCLAIM":
        reply = run(ctx, "XCLAIM", "s", "g", "d", 1000, "1-0", "2-0")
        assert [entry[0] for entry in reply] == [b"2-0"]
    else:
        next_id, entries, deleted = run(ctx, "XAUTOCLAIM", "s", "g", "d", 1000, "0", "COUNT", 1)
        assert [entry[0] for entry in entries] == [b"2-0"]
        assert (next_id, deleted) == (b"0-0", [])
    assert pending(ctx) == {b"2-0": 2} | ({b"3-0": 1} if claim == "XREADGROUP" else {})
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


# --- Back-off ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def slow(ctx: HandlerContext) -> HandlerContext:
    """The same, but an entry waits 100 ms after its first delivery, then 200, 300 at most; nothing is moved."""
    run(ctx, "STREAMD.GROUP", "UNSET", "s", "g")
    run(ctx, "STREAMD.GROUP", "SET", "s", "g", "BACKOFF", 100, "FACTOR", 2, "MAX", 300)
    return ctx


def claimed(ctx: HandlerContext, claim: str, consumer: str = "d", *words: str) -> list[bytes]:
    """The IDs that a claim of 1-0, or of all, without a minimum idle time gets."""
    if claim == "XREADGROUP":
        reply = run(
            ctx, "XREADGROUP", "GROUP", "g", consumer, "COUNT", 1, "CLAIM", 0, "STREAMS", "s", "other", ">", ">"
        )
        return [entry[0] for entry in (reply or {}).get(b"s", [])]
    if claim == "XAUTOCLAIM":
        entries = run(ctx, "XAUTOCLAIM", "s", "g", consumer, 0, "0", *words)[1]
    else:
        entries = run(ctx, "XCLAIM", "s", "g", consumer, 0, "1-0", *words)
    return [entry if isinstance(entry, bytes) else entry[0] for entry in entries]


@pytest.mark.parametrize("claim", ["XREADGROUP", "XCLAIM", "XAUTOCLAIM"])
def test_no_claim_gets_an_entry_before_its_back_off_is_over(slow: HandlerContext, claim: str) -> None:
    run(slow, "XGROUP", "CREATE", "other", "g", "0", "MKSTREAM")
    deliver(slow)
    run(slow, "XGROUP", "SETID", "s", "g", "$")
    now = START_MS
    for wait_ms in (100, 200, 300, 300):
        set_time(slow, now + wait_ms - 1)
        assert claimed(slow, claim) == []
        now += wait_ms
        set_time(slow, now)
        assert claimed(slow, claim) == [b"1-0"]
    assert pending(slow) == {b"1-0": 5}


def test_force_overrides_back_off_and_its_own_consumer_may_renew(slow: HandlerContext) -> None:
    deliver(slow)
    set_time(slow, START_MS + 50)
    assert claimed(slow, "XCLAIM", "d", "JUSTID") == []
    assert claimed(slow, "XCLAIM", "c", "JUSTID") == [b"1-0"]
    set_time(slow, START_MS + 149)
    assert claimed(slow, "XCLAIM", "d") == []
    assert claimed(slow, "XCLAIM", "d", "FORCE") == [b"1-0"]


def test_xnack_fail_starts_the_back_off_and_leaves_the_consumer(slow: HandlerContext) -> None:
    deliver(slow, 3)
    set_time(slow, START_MS + 1000)
    effects = run_observed(slow, ["XNACK", "s", "g", "FAIL", "IDS", "1", "1-0"])
    assert effects == [(
        b"XCLAIM", b"s", b"g", b"c", b"0", b"1-0", b"TIME", b"%d" % (START_MS + 1000), b"RETRYCOUNT", b"1", b"FORCE",
        b"JUSTID", b"LASTID", b"3-0",
    )]  # fmt: skip
    set_time(slow, START_MS + 1099)
    assert claimed(slow, "XCLAIM") == []
    assert run(slow, "XPENDING", "s", "g", "-", "+", 1) == [[b"1-0", b"c", 99, 1]]
    set_time(slow, START_MS + 1100)
    assert claimed(slow, "XCLAIM") == [b"1-0"]


@pytest.mark.parametrize(
    ("words", "deleted"), [("SILENT", False), ("FATAL", False), ("FAIL RETRYCOUNT 0", False), ("FAIL", True)]
)
def test_what_else_is_given_back_has_no_owner_and_waits_for_nothing(
    slow: HandlerContext, words: str, deleted: bool
) -> None:
    """A replica that receives the owner of a deleted entry drops the entry."""
    deliver(slow)
    if deleted:
        run(slow, "XDEL", "s", "1-0")
    mode, *more = words.split()
    run(slow, "XNACK", "s", "g", mode, "IDS", 1, "1-0", *more)
    assert run(slow, "XPENDING", "s", "g", "-", "+", 1)[0][1] == b""
    assert claimed(slow, "XCLAIM") == ([] if deleted else [b"1-0"])


def test_history_shows_what_is_held_back(slow: HandlerContext) -> None:
    deliver(slow)
    assert run(slow, "XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", "0")[b"s"][0][0] == b"1-0"


def test_jitter_is_fixed_for_an_entry_and_spreads_them(slow: HandlerContext) -> None:
    run(slow, "STREAMD.GROUP", "SET", "s", "g", "BACKOFF", 1000, "MAX", 1000, "JITTER", 20)
    for number in range(6, 206):
        run(slow, "XADD", "s", f"{number}-0", "f", "v")
    deliver(slow, 205)
    ready: dict[bytes, int] = {}
    for after_ms in range(700, 1301, 10):
        set_time(slow, START_MS + after_ms)
        for id in claimed(slow, "XAUTOCLAIM", "d", "COUNT", "1000"):
            ready.setdefault(id, after_ms)
    assert len(ready) == 205
    assert 800 <= min(ready.values()) < 830
    assert 1170 < max(ready.values()) <= 1200
    assert 950 < sum(ready.values()) / 205 < 1050


def test_claims_meet_all_entries_when_many_are_held_back(slow: HandlerContext) -> None:
    """Those in front wait for an hour, those behind them for 10 ms: no request looks at all of them, but some soon at the last."""
    run(slow, "STREAMD.GROUP", "SET", "s", "g", "BACKOFF", 10, "FACTOR", 100, "MAX", 3_600_000)
    for number in range(6, 3006):
        run(slow, "XADD", "s", f"{number}-0", "f", "v")
    deliver(slow, 3005)
    first = [f"{number}-0" for number in range(1, 2901)]
    run(slow, "XCLAIM", "s", "g", "c", 0, *first, "RETRYCOUNT", 9, "FORCE")
    set_time(slow, START_MS + 1)
    for number in range(2901, 3006):
        run(slow, "XCLAIM", "s", "g", "c", 0, f"{number}-0", "FORCE", "JUSTID")
    set_time(slow, START_MS + 1000)
    got: list[bytes] = []
    for _ in range(30):
        reply = run(slow, "XREADGROUP", "GROUP", "g", "d", "COUNT", 10, "CLAIM", 0, "STREAMS", "s", ">")
        got += [entry[0] for entry in (reply or {}).get(b"s", [])]
    assert sorted(got) == sorted(b"%d-0" % number for number in range(2901, 3006))


def test_lag_shows_what_is_held_back_and_what_was_moved(slow: HandlerContext) -> None:
    def shown(ctx: HandlerContext) -> tuple[int, int, int]:
        lag = run(ctx, "STREAMD.LAG", "s", "g")
        return lag[b"pending"], lag[b"held-back"], lag[b"dead-lettered"]

    run(slow, "STREAMD.GROUP", "SET", "s", "g", "DEADLETTER", "dead")
    deliver(slow, 3)
    assert shown(slow) == (3, 0, 0)
    run(slow, "XNACK", "s", "g", "FAIL", "IDS", 2, "1-0", "2-0")
    run(slow, "XNACK", "s", "g", "FATAL", "IDS", 1, "3-0")
    assert shown(slow) == (2, 2, 1)
    set_time(slow, START_MS + 100)
    run(slow, "XCLAIM", "s", "g", "d", 0, "1-0")
    run(slow, "XACK", "s", "g", "2-0")
    assert shown(slow) == (1, 0, 1)
    run(slow, "XGROUP", "DESTROY", "s", "g")
    run(slow, "XGROUP", "CREATE", "s", "g", "0")
    assert shown(slow) == (0, 0, 0)


@pytest.mark.parametrize("way", ["DEL s", "XGROUP DESTROY s g", "SET s x", "FLUSHDB", "RENAME s t", "COPY s t"])
def test_the_figures_of_a_group_end_with_it(slow: HandlerContext, way: str) -> None:
    run(slow, "STREAMD.GROUP", "SET", "s", "g", "DEADLETTER", "dead")
    deliver(slow, 3)
    run(slow, "XNACK", "s", "g", "FATAL", "IDS", 1, "3-0")
    run(slow, "XNACK", "s", "g", "FAIL", "IDS", 1, "2-0")
    run(slow, "STREAMD.GROUP", "UNSET", "s", "g")
    run(slow, *way.split())
    if way.startswith("RENAME"):
        assert run(slow, "STREAMD.LAG", "t", "g")[b"dead-lettered"] == 1
    if way.startswith("COPY"):
        assert run(slow, "STREAMD.LAG", "t", "g")[b"dead-lettered"] == 0
    run(slow, "DEL", "s")
    run(slow, "XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    shown = run(slow, "STREAMD.LAG", "s", "g")
    assert [shown[name] for name in (b"pending", b"held-back", b"dead-lettered")] == [0, 0, 0]


# --- Suspects ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def crashed(ctx: HandlerContext) -> HandlerContext:
    """1-0 to 3-0 were delivered once, 4-0 was not; who was delivered once is delivered alone."""
    run(ctx, "STREAMD.GROUP", "SET", "s", "g", "MAXDELIVERIES", 5, "ISOLATE", 1)
    deliver(ctx, 3)
    set_time(ctx, START_MS + 1000)
    return ctx


def test_suspects_are_delivered_one_for_each_reply(crashed: HandlerContext) -> None:
    run(crashed, "XADD", "t", "1-0", "f", "v")
    run(crashed, "XGROUP", "CREATE", "t", "g", "0")
    for expected in (b"1-0", b"2-0", b"3-0"):
        reply = run(crashed, "XREADGROUP", "GROUP", "g", "d", "CLAIM", 500, "STREAMS", "s", "t", ">", ">")
        assert [(name, [entry[0] for entry in entries]) for name, entries in reply.items()] == [(b"s", [expected])]
    reply = run(crashed, "XREADGROUP", "GROUP", "g", "d", "CLAIM", 500, "STREAMS", "s", "t", ">", ">")
    assert {name: [entry[0] for entry in entries] for name, entries in reply.items()} == {
        b"s": [b"4-0", b"5-0"], b"t": [b"1-0"],
    }  # fmt: skip


def test_a_suspect_does_not_follow_entries_of_another_stream(crashed: HandlerContext) -> None:
    run(crashed, "XADD", "t", "1-0", "f", "v")
    run(crashed, "XGROUP", "CREATE", "t", "g", "0")
    reply = run(crashed, "XREADGROUP", "GROUP", "g", "d", "CLAIM", 500, "STREAMS", "t", "s", ">", ">")
    assert {name: [entry[0] for entry in entries] for name, entries in reply.items()} == {
        b"t": [b"1-0"], b"s": [b"4-0", b"5-0"],
    }  # fmt: skip


def test_claims_by_id_and_by_scan_deliver_suspects_alone(crashed: HandlerContext) -> None:
    assert [entry[0] for entry in run(crashed, "XCLAIM", "s", "g", "d", 500, "2-0", "1-0", "3-0")] == [b"2-0"]
    assert run(crashed, "XAUTOCLAIM", "s", "g", "d", 500, "0")[:2] == [b"2-0", [[b"1-0", [b"f", b"v1"]]]]
    assert run(crashed, "XCLAIM", "s", "g", "d", 0, "1-0", "2-0", "3-0", "JUSTID") == [b"1-0", b"2-0", b"3-0"]


def test_nothing_follows_a_suspect_in_a_reply(ctx: HandlerContext) -> None:
    run(ctx, "STREAMD.GROUP", "SET", "s", "g", "MAXDELIVERIES", 9, "ISOLATE", 2)
    deliver(ctx, 3)
    run(ctx, "XCLAIM", "s", "g", "c", 0, "1-0")
    assert run(ctx, "XAUTOCLAIM", "s", "g", "d", 0, "0")[:2] == [b"2-0", [[b"1-0", [b"f", b"v1"]]]]
    assert [entry[0] for entry in run(ctx, "XCLAIM", "s", "g", "d", 0, "1-0", "2-0")] == [b"1-0"]
    assert [entry[0] for entry in run(ctx, "XCLAIM", "s", "g", "d", 0, "3-0", "1-0")] == [b"3-0"]


# --- Limits on what is in hand -----------------------------------------------------------------------------------------


def read(ctx: HandlerContext, consumer: str, *words: object) -> list[bytes]:
    """The IDs of the new entries that a consumer gets."""
    reply = run(ctx, "XREADGROUP", "GROUP", "g", consumer, *words, "STREAMS", "s", ">")
    return [entry[0] for entry in reply[b"s"]] if reply else []


def test_a_single_active_consumer(ctx: HandlerContext) -> None:
    run(ctx, "STREAMD.GROUP", "SET", "s", "g", "MAXPENDING", 1)
    assert read(ctx, "a") == [b"1-0"]
    assert read(ctx, "a") == read(ctx, "b") == []
    run(ctx, "XACK", "s", "g", "1-0")
    assert read(ctx, "b", "COUNT", 10) == [b"2-0"]
    assert read(ctx, "c", "NOACK", "COUNT", 1) == [b"3-0"]


def test_consumers_have_limits_of_their_own(ctx: HandlerContext) -> None:
    run(ctx, "STREAMD.GROUP", "SET", "s", "g", "CONSUMERPENDING", 2)
    assert read(ctx, "a") == [b"1-0", b"2-0"]
    assert read(ctx, "a") == []
    assert read(ctx, "b", "COUNT", 1) == [b"3-0"]
    assert read(ctx, "b", "COUNT", 2) == [b"4-0"]
    run(ctx, "XCLAIM", "s", "g", "b", 0, "1-0")  # claims are not limited
    assert read(ctx, "b") == []
    assert read(ctx, "a") == [b"5-0"]


def test_what_nobody_has_in_hand_does_not_count(ctx: HandlerContext) -> None:
    run(ctx, "STREAMD.GROUP", "SET", "s", "g", "MAXPENDING", 1, "BACKOFF", 1000)
    assert read(ctx, "a") == [b"1-0"]
    run(ctx, "XNACK", "s", "g", "FAIL", "IDS", 1, "1-0")
    assert read(ctx, "a") == [b"2-0"]
    run(ctx, "XNACK", "s", "g", "SILENT", "IDS", 1, "2-0")
    assert read(ctx, "a") == [b"3-0"]
    set_time(ctx, START_MS + 2000)
    # The claim takes the room that its entry needs, and more.
    assert read(ctx, "b", "CLAIM", 0, "COUNT", 5) == [b"2-0", b"1-0", b"3-0"]
    assert read(ctx, "b") == []


# --- Redrive -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def moved(ctx: HandlerContext) -> HandlerContext:
    """1-0 and 2-0 were moved, after two deliveries, and 2-0 was deleted then; 3-0 is pending."""
    deliver(ctx, 3)
    for number in (1, 2):
        run(ctx, "XCLAIM", "s", "g", "c", 0, f"{number}-0")
        run(ctx, "XNACK", "s", "g", "FAIL", "IDS", 1, f"{number}-0")
    run(ctx, "XDEL", "s", "2-0")
    assert [each[b"dlq.id"] for each in dead(ctx)] == [b"1-0", b"2-0"]
    return ctx


@pytest.mark.parametrize("has_xnack", [True, False])
def test_redrive_gives_letters_back_as_if_they_had_not_been_delivered(moved: HandlerContext, has_xnack: bool) -> None:
    moved.has_xnack = has_xnack
    letter = run(moved, "XRANGE", "dead", "-", "+")[0][0]
    effects = run_observed(moved, ["STREAMD.REDRIVE", "s", "g", "dead"])
    assert effects[1:] == [(b"XDEL", b"dead", letter)]
    if has_xnack:
        assert effects[0] == (b"XNACK", b"s", b"g", b"FAIL", b"IDS", b"1", b"1-0", b"RETRYCOUNT", b"0", b"FORCE")
    else:
        assert effects[0][:6] == (b"XCLAIM", b"s", b"g", b"", b"-1", b"1-0")
    assert pending(moved) == {b"1-0": 0, b"3-0": 1}
    assert [each[b"dlq.id"] for each in dead(moved)] == [b"2-0"], "it is deleted, and there is no TO"
    reply = run(moved, "XREADGROUP", "GROUP", "g", "d", "COUNT", 1, "CLAIM", 1000, "STREAMS", "s", ">")
    assert reply[b"s"][0][0] == b"1-0"


def test_a_letter_whose_entry_is_gone_becomes_a_new_entry_with_its_own_fields(moved: HandlerContext) -> None:
    assert run(moved, "STREAMD.REDRIVE", "s", "g", "dead", "TO", "s") == 2
    assert run(moved, "XREVRANGE", "s", "+", "-", "COUNT", 1)[0][1] == [b"f", b"v2"]
    assert not dead(moved)


def test_redrive_of_one_or_some(moved: HandlerContext) -> None:
    ids = [entry[0] for entry in run(moved, "XRANGE", "dead", "-", "+")]
    assert run(moved, "STREAMD.REDRIVE", "s", "g", "dead", "TO", "s", "ID", ids[1], "9-9") == 1
    assert [each[b"dlq.id"] for each in dead(moved)] == [b"1-0"]
    run(moved, "XADD", "dead", "*", "f", "of another hand")
    run(
        moved,
        "XADD",
        "dead",
        "*",
        *(word for name in run(moved, "XRANGE", "dead", "-", "+")[0][1] for word in (name, "x")),
    )
    assert run(moved, "STREAMD.REDRIVE", "s", "g", "dead", "COUNT", 1) == 1
    assert run(moved, "STREAMD.REDRIVE", "s", "g", "dead") == 0
    assert run(moved, "XLEN", "dead") == 2


def test_redrive_of_a_repeated_id_gives_it_back_once(moved: HandlerContext) -> None:
    letter = run(moved, "XRANGE", "dead", "-", "+")[1][0]
    effects = run_observed(moved, ["STREAMD.REDRIVE", "s", "g", "dead", "TO", "t", "ID", *[letter.decode()] * 3])
    assert [effect[0] for effect in effects] == [b"XADD", b"XDEL"]
    assert run(moved, "XLEN", "t") == 1


def test_redrive_passes_over_the_letters_of_other_groups(moved: HandlerContext) -> None:
    letters = run(moved, "XRANGE", "dead", "-", "+")
    run(moved, "DEL", "dead")
    for number in range(1, 101):
        run(moved, "XADD", "dead", f"{number}-0", "f", "of another hand")
    for number, (_, fields) in enumerate(letters):
        run(moved, "XADD", "dead", f"{2**64 - 1}-{2**64 - 2 + number}", *fields)
    assert run(moved, "STREAMD.REDRIVE", "s", "g", "dead", "COUNT", 1) == 1
    assert run(moved, "STREAMD.REDRIVE", "s", "g", "dead", "TO", "t", "COUNT", 2) == 1
    assert run(moved, "XLEN", "dead") == 100


def test_redrive_looks_at_so_many_letters_only(moved: HandlerContext) -> None:
    ((_, fields), _) = run(moved, "XRANGE", "dead", "-", "+")
    run(moved, "DEL", "dead")
    for number in range(1, 100_001):
        run(moved, "XADD", "dead", f"{number}-0", "f", "")
    run(moved, "XADD", "dead", "100001-0", *fields)
    assert run(moved, "STREAMD.REDRIVE", "s", "g", "dead") == 0
    assert run(moved, "STREAMD.REDRIVE", "s", "g", "dead", "ID", "100001-0") == 1


def test_redrive_is_for_the_group_that_a_letter_comes_from(moved: HandlerContext) -> None:
    run(moved, "XGROUP", "CREATE", "s", "other", "0")
    run(moved, "XGROUP", "CREATE", "t", "g", "0", "MKSTREAM")
    assert run(moved, "STREAMD.REDRIVE", "s", "other", "dead") == 0
    assert run(moved, "STREAMD.REDRIVE", "t", "g", "dead") == 0


def test_what_the_group_has_already_is_not_given_back_twice(moved: HandlerContext) -> None:
    run(moved, "XNACK", "s", "g", "FAIL", "IDS", 1, "1-0", "RETRYCOUNT", 1, "FORCE")
    run(moved, "XCLAIM", "s", "g", "d", 0, "1-0")
    effects = run_observed(moved, ["STREAMD.REDRIVE", "s", "g", "dead"])
    assert [effect[0] for effect in effects] == [b"XDEL"]
    assert run(moved, "XPENDING", "s", "g", "1-0", "1-0", 1)[0][1] == b"d"


def test_what_is_undelivered_again_is_not_made_pending(moved: HandlerContext) -> None:
    run(moved, "XGROUP", "SETID", "s", "g", "0")
    assert run(moved, "STREAMD.REDRIVE", "s", "g", "dead") == 1
    assert pending(moved) == {b"3-0": 1}


def test_a_letter_without_fields_cannot_become_an_entry(ctx: HandlerContext) -> None:
    deliver(ctx)
    run(ctx, "XDEL", "s", "1-0")
    run(ctx, "XNACK", "s", "g", "FATAL", "IDS", 1, "1-0")
    assert run(ctx, "STREAMD.REDRIVE", "s", "g", "dead", "TO", "s") == 0
    assert len(dead(ctx)) == 1


def test_redrive_that_fails_propagates_what_it_has_done(moved: HandlerContext) -> None:
    run(moved, "XADD", "t", f"{2**64 - 1}-{2**64 - 1}", "f", "v")
    effects = run_observed(moved, ["STREAMD.REDRIVE", "s", "g", "dead", "TO", "t"])
    assert [effect[0] for effect in effects] == [b"XNACK", b"XDEL"]
    assert "exhausted" in str(run(moved, "STREAMD.REDRIVE", "s", "g", "dead", "TO", "t"))


def test_redrive_to_a_key_of_another_type_changes_nothing(moved: HandlerContext) -> None:
    run(moved, "SET", "t", "no stream")
    assert str(run(moved, "STREAMD.REDRIVE", "s", "g", "dead", "TO", "t")).startswith("WRONGTYPE")
    assert pending(moved) == {b"3-0": 1}


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("s no dead", "NOGROUP"),
        ("no g dead", "NOGROUP"),
        ("s g s", "ERR the dead-letter stream must be another one"),
        ("s g dead TO dead", "ERR the dead-letter stream must be another one"),
        ("s g dead COUNT 0", "ERR COUNT must be an integer between 1 and 1000"),
        ("s g dead COUNT 1001", "ERR COUNT must be an integer between 1 and 1000"),
        ("s g dead ID", "ERR syntax error"),
        ("s g dead ID x", "ERR Invalid stream ID"),
        ("s g dead AT 1", "ERR syntax error"),
    ],
)
def test_redrive_refuses(moved: HandlerContext, words: str, error: str) -> None:
    assert str(run(moved, "STREAMD.REDRIVE", *words.split())).startswith(error)
    assert len(dead(moved)) == 2


def test_the_keys_of_redrive() -> None:
    def positions(words: str) -> list[int]:
        request = [b"STREAMD.REDRIVE", *words.encode().split()]
        return [use.position for use in keys_of(table["STREAMD.REDRIVE"], request)]

    assert positions("s g dead") == [1, 3]
    assert positions("s g dead count 5 to t id 1-1") == [1, 3, 7]
    assert positions("TO g TO ID 1-1 TO t") == [1, 3]


def test_the_table_of_the_manual_is_that_of_the_options() -> None:
    page = (Path(__file__).parents[2] / "docs/delivery.md").read_text(encoding="utf-8")
    assert table_of(GroupRule) in page
