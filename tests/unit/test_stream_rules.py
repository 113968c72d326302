"""STREAMD.STREAM: the rules of a stream as text and as commands, and what a rule for retention trims."""

from __future__ import annotations

from pathlib import Path

import hiredis
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.commands.handler import START_MS, HandlerContext, make_context, run, set_time
from support.commands.observed import run_observed as observe
from support.servers import eventually

import streamd.embedded
from streamd.delivery.rule_options import DISTANT_MS, table_of
from streamd.delivery.rules import (
    GroupRule,
    Rules,
    StreamRule,
    format_rules,
    key_of_rules,
    parse_rules,
    read_all_rules,
)
from streamd.delivery.trimmed import trimmed_of
from streamd.errors import CommandError
from streamd.serve.families import load_all
from streamd.values.streams.retention import Retention

load_all()

RULES_OF_S = key_of_rules(b"s")


@pytest.fixture
def ctx() -> HandlerContext:
    """A stream `s` with entries 1-0 to 9-0, three in a node."""
    made = make_context(resp=3, stream_node_max_entries=3)
    made.is_propagating = True
    for number in range(1, 10):
        run(made, "XADD", "s", f"{number}-0", "f", number)
    return made


def set_rule(ctx: HandlerContext, options: str) -> None:
    assert run(ctx, "STREAMD.STREAM", "SET", "s", *options.split()) == b"OK"


def trim(ctx: HandlerContext) -> list[list[bytes]]:
    """Do what the server does by itself; returns the effects."""
    ctx.effects = None
    while Retention(read_all_rules(ctx.db, b"s").stream).trim(ctx, b"s", ctx.db.peek(b"s"), True):
        pass
    return ctx.effects or []


def ids(ctx: HandlerContext) -> list[int]:
    return [int(id.split(b"-")[0]) for id, _ in run(ctx, "XRANGE", "s", "-", "+")]


# --- Text and commands -------------------------------------------------------------------------------------------------


@st.composite
def stream_rules(draw: st.DrawFn) -> StreamRule:
    number = st.integers(1, 10**6)
    acked = draw(st.booleans())
    rule = StreamRule(
        retain=True,
        length=draw(st.just(0) | number),
        max_bytes=draw(st.just(0) | number),
        age_ms=draw(st.just(0) | number),
        acked=acked,
        groups=draw(number) if acked else 1,
        at_most_ms=draw(st.just(0) | st.integers(10**6, DISTANT_MS)) if acked else 0,
        delete_references=draw(st.booleans()),
    )
    return rule if rule.length or rule.max_bytes or rule.age_ms or rule.acked else StreamRule()


@given(stream_rules(), st.booleans())
def test_rules_survive_format_and_parse(rule: StreamRule, has_group: bool) -> None:
    rules = Rules(rule, {b"g": GroupRule(b"dead", 1)} if has_group else {})
    text = format_rules(rules)
    assert bool(text) == (rule.retain or has_group)
    if text:
        assert parse_rules(text) == rules


def test_a_rule_is_a_line_of_one_plain_string(ctx: HandlerContext) -> None:
    request = [b"STREAMD.STREAM", b"SET", b"s", b"retain", b"delref", b"length", b"5"]
    text = b"STREAM RETAIN LENGTH 5 DELREF"
    assert observe(ctx, request) == [[b"SET", RULES_OF_S, text]]
    assert observe(ctx, request) == []
    run(ctx, "STREAMD.GROUP", "SET", "s", "g", "DEADLETTER", "dead")
    assert run(ctx, "GET", RULES_OF_S) == text + b"\nGROUP g DEADLETTER dead"
    assert read_all_rules(ctx.db, b"s").groups[b"g"].dead_letter == b"dead"
    run(ctx, "XGROUP", "CREATE", "s", "g", "0")
    run(ctx, "XGROUP", "DESTROY", "s", "g")
    assert run(ctx, "GET", RULES_OF_S) == text
    assert observe(ctx, [b"STREAMD.STREAM", b"UNSET", b"s"]) == [[b"DEL", RULES_OF_S]]
    assert observe(ctx, [b"STREAMD.STREAM", b"UNSET", b"s"]) == []


def test_a_block_replaces_the_one_that_was_set(ctx: HandlerContext) -> None:
    set_rule(ctx, "RETAIN LENGTH 5 ACKED GROUPS 2 ATMOST 9000")
    shown = {b"retain": 1, b"length": 5, b"acked": 1, b"groups": 2, b"atmost": 9000}
    assert run(ctx, "STREAMD.STREAM", "GET", "s") == shown
    run(ctx, "STREAMD.STREAM", "UNSET", "s", "ATMOST", "GROUPS")
    assert run(ctx, "STREAMD.STREAM", "GET", "s") == {b"retain": 1, b"length": 5, b"acked": 1}
    set_rule(ctx, "RETAIN AGE 1000")
    assert run(ctx, "STREAMD.STREAM", "GET", "s") == {b"retain": 1, b"age": 1000}
    run(ctx, "STREAMD.STREAM", "UNSET", "s", "RETAIN")
    assert run(ctx, "STREAMD.STREAM", "GET", "s") == {}
    assert run(ctx, "EXISTS", RULES_OF_S) == 0


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ("RETAIN", "ERR RETAIN needs LENGTH, BYTES, AGE or ACKED"),
        ("RETAIN DELREF", "ERR RETAIN needs LENGTH, BYTES, AGE or ACKED"),
        ("LENGTH 5", "ERR LENGTH must follow RETAIN"),
        ("RETAIN LENGTH 0", "ERR LENGTH must be an integer between 1 and 9223372036854775807"),
        ("RETAIN AGE x", f"ERR AGE must be an integer between 1 and {DISTANT_MS}"),
        ("RETAIN LENGTH", "ERR LENGTH has no value"),
        ("RETAIN LENGTH 5 LENGTH 6", "ERR LENGTH is given twice"),
        ("RETAIN LENGTH 5 GROUPS 2", "ERR GROUPS needs ACKED"),
        ("RETAIN LENGTH 5 ATMOST 2", "ERR ATMOST needs ACKED"),
        ("RETAIN AGE 5 ACKED ATMOST 4", "ERR ATMOST must not be less than AGE"),
        ("RETAIN LENGTH 5 KEEPREF DELREF", "ERR KEEPREF and DELREF exclude each other"),
        ("PRIORITY 5", "ERR unknown option 'PRIORITY'"),
    ],
)
def test_refused_and_nothing_changed(ctx: HandlerContext, options: str, error: str) -> None:
    reply = run(ctx, "STREAMD.STREAM", "SET", "s", *options.split())
    assert isinstance(reply, hiredis.ReplyError)
    assert str(reply) == error
    assert run(ctx, "STREAMD.STREAM", "GET", "s") == {}
    with pytest.raises((CommandError, ValueError)):
        parse_rules(f"STREAM {options}".encode())


def test_text_that_does_not_parse_is_kept_and_shown(ctx: HandlerContext) -> None:
    run(ctx, "SET", RULES_OF_S, "STREAM RETAIN LENGTH many")
    assert list(run(ctx, "STREAMD.STREAM", "GET", "s")) == [b"parse-error"]
    assert "do not parse" in str(run(ctx, "STREAMD.STREAM", "SET", "s", "RETAIN", "LENGTH", 5))
    assert run(ctx, "GET", RULES_OF_S) == b"STREAM RETAIN LENGTH many"


def test_the_page_has_the_table_of_options() -> None:
    page = (Path(__file__).parents[2] / "docs/delivery.md").read_text(encoding="utf-8")
    assert table_of(StreamRule) in page


def test_the_server_parses_only_what_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = []

    def parse(text: bytes) -> Rules:
        parsed.append(text)
        return parse_rules(text)

    monkeypatch.setattr("streamd.values.streams.rule_timer.parse_rules", parse)
    with streamd.embedded.start(hz=100) as server, server.client() as client:
        client.execute_command("STREAMD.GROUP", "SET", "s", "g", "ISOLATE", 5)
        client.set("bad", "")
        client.rename("bad", RULES_OF_S + b"x")  # the rules of no stream
        eventually(lambda: len(parsed) > 0)
        client.set("tick", "", px=1500)
        eventually(lambda: not client.exists("tick"))
        client.execute_command("STREAMD.STREAM", "SET", "s", "RETAIN", "LENGTH", 1)
        client.xadd("s", {"n": 1})
        client.xadd("s", {"n": 2})
        eventually(lambda: client.xlen("s") == 1)
        client.execute_command("STREAMD.STREAM", "UNSET", "s")
        client.set("tick", "", px=1500)
        eventually(lambda: not client.exists("tick"))
        client.xadd("s", {"n": 3})
        assert client.xlen("s") == 2
    group = b"GROUP g ISOLATE 5"
    assert [text for text in parsed if text] == [group, b"STREAM RETAIN LENGTH 1\n" + group, group]


def test_many_rules_come_change_and_go() -> None:
    """By strings that no command of ours has set, and that the server finds by itself."""
    count = 400
    with streamd.embedded.start(hz=100) as server, server.client() as client:
        for number in range(count):
            client.set(key_of_rules(b"s%d" % number), "STREAM RETAIN LENGTH 1")
            client.xadd(f"s{number}", {"n": 1})
            client.xadd(f"s{number}", {"n": 2})
        eventually(lambda: all(client.xlen(f"s{number}") == 1 for number in range(count)))
        for number in range(0, count, 2):
            client.delete(key_of_rules(b"s%d" % number))
            client.set(key_of_rules(b"s%d" % (number + 1)), "STREAM RETAIN LENGTH 2")
        for number in range(count):
            client.xadd(f"s{number}", {"n": 3})
            client.xadd(f"s{number}", {"n": 4})
        eventually(lambda: all(client.xlen(f"s{number}") == 2 for number in range(1, count, 2)))
        assert all(client.xlen(f"s{number}") == 3 for number in range(0, count, 2))
        client.flushall()
        client.xadd("s1", {"n": 5}, id="1-1")
        for number in range(5):
            client.xadd("s1", {"n": number})
        client.set(key_of_rules(b"s2"), "STREAM RETAIN LENGTH 1")
        client.xadd("s2", {"n": 1})
        client.xadd("s2", {"n": 2})
        eventually(lambda: client.xlen("s2") == 1)
        assert client.xlen("s1") == 6


# --- Retention ---------------------------------------------------------------------------------------------------------


def test_length_and_age_keep_the_newest_entries(ctx: HandlerContext) -> None:
    set_rule(ctx, "RETAIN LENGTH 5")
    assert trim(ctx) == [[b"XTRIM", b"s", b"MINID", b"=", b"4-1"]]
    assert ids(ctx) == [5, 6, 7, 8, 9]
    assert trim(ctx) == []
    set_time(ctx, 1000)
    set_rule(ctx, "RETAIN AGE 993")
    assert trim(ctx) == [[b"XTRIM", b"s", b"MINID", b"=", b"6-1"]]
    assert ids(ctx) == [7, 8, 9]
    set_time(ctx, START_MS)
    trim(ctx)
    assert ids(ctx) == []
    assert run(ctx, "EXISTS", "s") == 1
    shown = run(ctx, "STREAMD.STREAM", "GET", "s")
    assert shown[b"trimmed-entries"] == 9
    assert shown[b"trimmed-bytes"] > 0
    by_reason = trimmed_of(ctx).by_reason
    assert (by_reason["length"].entries, by_reason["age"].entries) == (4, 5)


@pytest.mark.parametrize("options", ["RETAIN AGE 1000", "RETAIN ACKED ATMOST 1000"])
def test_ids_of_64_bits_are_not_old(ctx: HandlerContext, options: str) -> None:
    for ms in (2**63 - 1, 2**63, 2**64 - 1):
        run(ctx, "XADD", "s", f"{ms}-0", "f", "v")
    set_rule(ctx, options)
    set_time(ctx, 500)
    trim(ctx)
    assert len(ids(ctx)) == 12
    set_time(ctx, START_MS)
    trim(ctx)
    assert ids(ctx) == [2**63 - 1, 2**63, 2**64 - 1]


def test_bytes_keeps_the_newest_node(ctx: HandlerContext) -> None:
    set_rule(ctx, "RETAIN BYTES 1")
    assert trim(ctx) == [[b"XTRIM", b"s", b"MINID", b"=", b"6-1"]]
    assert ids(ctx) == [7, 8, 9]


def test_acked_keeps_what_a_group_has_still_to_read_or_to_acknowledge(ctx: HandlerContext) -> None:
    set_rule(ctx, "RETAIN ACKED")
    assert trim(ctx) == []  # there is no group yet: a producer that came first loses nothing
    run(ctx, "XGROUP", "CREATE", "s", "g", "0")
    run(ctx, "XREADGROUP", "GROUP", "g", "c", "COUNT", 6, "STREAMS", "s", ">")
    run(ctx, "XACK", "s", "g", "1-0", "2-0", "3-0", "5-0")
    trim(ctx)
    assert ids(ctx) == [4, 5, 6, 7, 8, 9]
    run(ctx, "XACK", "s", "g", "4-0")
    trim(ctx)
    assert ids(ctx) == [6, 7, 8, 9]
    run(ctx, "XGROUP", "CREATE", "s", "h", "5-0")
    run(ctx, "XACK", "s", "g", "6-0")
    assert trim(ctx) == []
    run(ctx, "XGROUP", "SETID", "s", "h", "$")
    trim(ctx)
    assert ids(ctx) == [7, 8, 9]


def test_acked_waits_for_so_many_groups(ctx: HandlerContext) -> None:
    set_rule(ctx, "RETAIN ACKED GROUPS 2")
    run(ctx, "XGROUP", "CREATE", "s", "g", "$")
    assert trim(ctx) == []
    run(ctx, "XGROUP", "CREATE", "s", "h", "7-0")
    trim(ctx)
    assert ids(ctx) == [8, 9]


def test_with_acked_a_length_is_a_minimum_and_atmost_a_maximum(ctx: HandlerContext) -> None:
    set_rule(ctx, "RETAIN LENGTH 6 ACKED ATMOST 998")
    run(ctx, "XGROUP", "CREATE", "s", "dead", "2-0")
    set_time(ctx, 1000)
    trim(ctx)
    assert ids(ctx) == [3, 4, 5, 6, 7, 8, 9]
    run(ctx, "XGROUP", "SETID", "s", "dead", "$")
    trim(ctx)
    assert ids(ctx) == [4, 5, 6, 7, 8, 9]
    run(ctx, "XGROUP", "SETID", "s", "dead", "0")
    set_time(ctx, 1005)
    trim(ctx)
    assert ids(ctx) == [7, 8, 9]


def test_what_was_trimmed_stays_pending_unless_with_delref(ctx: HandlerContext) -> None:
    run(ctx, "XGROUP", "CREATE", "s", "g", "0")
    run(ctx, "XREADGROUP", "GROUP", "g", "c", "COUNT", 4, "STREAMS", "s", ">")
    set_rule(ctx, "RETAIN LENGTH 7 KEEPREF")
    trim(ctx)
    assert run(ctx, "XPENDING", "s", "g")[0] == 4
    set_rule(ctx, "RETAIN LENGTH 6 DELREF")
    assert trim(ctx) == [[b"XTRIM", b"s", b"MINID", b"=", b"3-1", b"DELREF"]]
    assert run(ctx, "XPENDING", "s", "g")[0] == 3


def test_an_entry_that_is_gone_holds_nothing_though_it_is_pending(ctx: HandlerContext) -> None:
    run(ctx, "XGROUP", "CREATE", "s", "g", "0")
    run(ctx, "XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">")
    run(ctx, "XACK", "s", "g", "2-0", "4-0")
    run(ctx, "XDEL", "s", "1-0", "3-0")
    set_rule(ctx, "RETAIN ACKED")
    assert trim(ctx) == [[b"XTRIM", b"s", b"MINID", b"=", b"4-1"]]
    assert ids(ctx) == [5, 6, 7, 8, 9]
