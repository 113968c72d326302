"""Groups that a rule orders by key: what `>` delivers, what it passes over, and what frees a key."""

from __future__ import annotations

import pytest
from support.commands.handler import START_MS, HandlerContext, make_context, run, set_time
from support.commands.observed import run_observed

from streamd.serve.families import load_all

load_all()


@pytest.fixture
def ctx() -> HandlerContext:
    """A stream `s` with the entries 1-0 to 6-0 of the keys a a b a b c, and a group `g` that is ordered by `k`."""
    made = make_context(resp=3, stream_node_max_entries=3)
    made.is_propagating = made.has_xnack = True
    for number, key in enumerate("aababc", 1):
        run(made, "XADD", "s", f"{number}-0", "n", number, "k", key)
    run(made, "XGROUP", "CREATE", "s", "g", "0")
    assert run(made, "STREAMD.GROUP", "SET", "s", "g", "KEYED", "k") == b"OK"
    return made


def read(ctx: HandlerContext, *words: object, consumer: str = "c", key: str = "s") -> list[int]:
    """The numbers of the entries that a consumer gets."""
    reply = run(ctx, "XREADGROUP", "GROUP", "g", consumer, *words, "STREAMS", key, ">")
    assert reply is None or reply[key.encode()], "no stream without entries is in a reply"
    return [int(entry[0].split(b"-")[0]) for entry in reply[key.encode()]] if reply else []


def ack(ctx: HandlerContext, *numbers: int) -> int:
    acknowledged: int = run(ctx, "XACK", "s", "g", *(f"{number}-0" for number in numbers))
    return acknowledged


def pending(ctx: HandlerContext) -> dict[int, tuple[str, int]]:
    """Consumer and delivery count of what is pending."""
    rows = run(ctx, "XPENDING", "s", "g", "-", "+", 100)
    return {int(id.split(b"-")[0]): (owner.decode(), count) for id, owner, _, count in rows}


def passed_over(ctx: HandlerContext) -> int:
    found: int = run(ctx, "STREAMD.LAG", "s", "g")[b"passed-over"]
    return found


# --- What is delivered -------------------------------------------------------------------------------------------------


def test_one_entry_of_a_key_is_in_a_reply_and_the_rest_are_pending_without_a_consumer(ctx: HandlerContext) -> None:
    assert read(ctx) == [1, 3, 6]
    assert pending(ctx) == {1: ("c", 1), 2: ("", 0), 3: ("c", 1), 4: ("", 0), 5: ("", 0), 6: ("c", 1)}
    assert passed_over(ctx) == 3
    assert read(ctx) == read(ctx, consumer="d") == []


def test_an_acknowledged_entry_is_followed_by_the_next_of_its_key_before_anything_new(ctx: HandlerContext) -> None:
    assert read(ctx, "COUNT", 2) == [1, 3]
    assert ack(ctx, 1) == 1
    assert read(ctx, "COUNT", 1, consumer="d") == [2]
    assert read(ctx) == [6]
    ack(ctx, 3)
    ack(ctx, 2)
    # In the order in which the keys have become free.
    assert read(ctx) == [5, 4]
    assert pending(ctx) == {4: ("c", 1), 5: ("c", 1), 6: ("c", 1)}
    assert passed_over(ctx) == 0


def test_entries_without_the_field_are_not_ordered(ctx: HandlerContext) -> None:
    for number in (7, 8):
        run(ctx, "XADD", "s", f"{number}-0", "other", "a")
    assert read(ctx) == [1, 3, 6, 7, 8]


def test_a_key_is_its_text_in_whatever_form_and_its_first_field_counts() -> None:
    ctx = make_context(resp=3)
    for number, words in enumerate(
        (("k", "10"), ("x", 1, "k", "10", "k", "11"), ("k", "010"), ("k", "11"), ("k", "")), 1
    ):
        run(ctx, "XADD", "s", f"{number}-0", *words)
    run(ctx, "XGROUP", "CREATE", "s", "g", "0")
    run(ctx, "STREAMD.GROUP", "SET", "s", "g", "KEYED", "k")
    assert read(ctx) == [1, 3, 4, 5]


def test_effects_of_a_read_that_passes_over(ctx: HandlerContext) -> None:
    request = b"XREADGROUP GROUP g c COUNT 2 STREAMS s >".split()
    effects = [b" ".join(effect) for effect in run_observed(ctx, request)]
    assert effects == [
        b"XCLAIM s g c 0 1-0 TIME %d RETRYCOUNT 1 FORCE JUSTID LASTID 0-0" % START_MS,
        b"XNACK s g SILENT IDS 1 2-0 RETRYCOUNT 0 FORCE",
        b"XCLAIM s g c 0 3-0 TIME %d RETRYCOUNT 1 FORCE JUSTID LASTID 0-0" % START_MS,
        b"XGROUP SETID s g 3-0 ENTRIESREAD 3",
    ]
    effects = [b" ".join(effect) for effect in run_observed(ctx, request)]
    assert effects == [
        b"XNACK s g SILENT IDS 1 4-0 RETRYCOUNT 0 FORCE",
        b"XNACK s g SILENT IDS 1 5-0 RETRYCOUNT 0 FORCE",
        b"XGROUP SETID s g 5-0 ENTRIESREAD 5",
        b"XCLAIM s g c 0 6-0 TIME %d RETRYCOUNT 1 FORCE JUSTID LASTID 5-0" % START_MS,
        b"XGROUP SETID s g 6-0 ENTRIESREAD 6",
    ]
    ack(ctx, 1)
    assert [b" ".join(effect) for effect in run_observed(ctx, request)] == [
        b"XCLAIM s g c 0 2-0 TIME %d RETRYCOUNT 1 FORCE JUSTID LASTID 6-0" % START_MS
    ]
    assert not run_observed(ctx, request)
    ctx.has_xnack = False
    run(ctx, "XADD", "s", "7-0", "k", "c")
    effects = [b" ".join(effect) for effect in run_observed(ctx, request)]
    assert [effect.split(b" TIME")[0] for effect in effects] == [
        b"XCLAIM s g  -1 7-0",
        b"XGROUP SETID s g 7-0 ENTRIESREAD 7",
    ]


def test_held_limits_how_many_are_passed_over(ctx: HandlerContext) -> None:
    run(ctx, "STREAMD.GROUP", "SET", "s", "g", "HELD", 1)
    assert read(ctx) == [1, 3]
    assert pending(ctx).keys() == {1, 2, 3}
    ack(ctx, 3)
    # 4-0 would have to be passed over, too.
    assert read(ctx) == []
    ack(ctx, 1)
    assert read(ctx) == [2, 5, 6]
    assert pending(ctx)[4] == ("", 0)


def test_an_entry_that_need_not_be_passed_over_is_delivered_at_the_limit(ctx: HandlerContext) -> None:
    run(ctx, "STREAMD.GROUP", "SET", "s", "g", "HELD", 1)
    run(ctx, "XDEL", "s", "4-0", "5-0")
    assert read(ctx) == [1, 3, 6]


def test_noack_knows_no_order(ctx: HandlerContext) -> None:
    assert read(ctx, "COUNT", 1) == [1]
    assert read(ctx, "NOACK", "COUNT", 2) == [2, 3]
    assert read(ctx) == [5, 6]
    assert passed_over(ctx) == 1


def test_limits_on_what_is_in_hand_do_not_count_what_was_passed_over(ctx: HandlerContext) -> None:
    run(ctx, "STREAMD.GROUP", "SET", "s", "g", "MAXPENDING", 2)
    assert read(ctx) == [1, 3]
    assert read(ctx) == []
    ack(ctx, 1)
    assert read(ctx) == [2]
    ack(ctx, 2, 3)
    assert read(ctx) == [4, 5]
    assert pending(ctx) == {4: ("c", 1), 5: ("c", 1)}


def test_a_reply_of_limited_size(ctx: HandlerContext) -> None:
    assert read(ctx, "MAXSIZE", 1) == [1]
    assert read(ctx, "MAXSIZE", 1) == [3]
    ack(ctx, 1, 3)
    assert read(ctx, "MAXSIZE", 1) == [2]
    assert read(ctx, "MAXCOUNT", 2) == [5, 6]


def test_the_example_of_the_manual() -> None:
    ctx = make_context(resp=3)
    rule = "STREAMD.GROUP SET jobs workers KEYED account MAXDELIVERIES 5 DEADLETTER jobs:dead"
    assert run(ctx, *rule.split()) == b"OK"
    for number, account in enumerate((7, 7, 8), 1):
        assert run(ctx, "XADD", "jobs", f"{number}-0", "account", account) == b"%d-0" % number
    run(ctx, "XGROUP", "CREATE", "jobs", "workers", "0")
    read_as = "XREADGROUP GROUP workers {} STREAMS jobs >".format
    assert [entry[0] for entry in run(ctx, *read_as("a").split())[b"jobs"]] == [b"1-0", b"3-0"]
    assert run(ctx, *read_as("b").split()) is None
    assert run(ctx, "XACK", "jobs", "workers", "1-0") == 1
    assert [entry[0] for entry in run(ctx, *read_as("b").split())[b"jobs"]] == [b"2-0"]


# --- What frees a key --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_",
    [
        "XACK s g 1-0",
        "XACKDEL s g IDS 1 1-0",
        "XACKDEL s g DELREF IDS 1 1-0",
        "XDEL s 1-0",
        "XDELEX s KEEPREF IDS 1 1-0",
        "XDELEX s DELREF IDS 1 1-0",
        "XTRIM s MINID 2",
        "XTRIM s MINID 2 DELREF",
        "XNACK s g FATAL IDS 1 1-0",
        "XGROUP DELCONSUMER s g c",
    ],
)
def test_what_frees_a_key(ctx: HandlerContext, request_: str) -> None:
    run(ctx, "STREAMD.GROUP", "SET", "s", "g", "DEADLETTER", "dead")
    assert read(ctx, "COUNT", 1) == [1]
    assert read(ctx, consumer="d") == [3, 6]
    run(ctx, *request_.split())
    assert read(ctx, consumer="d") == [2]
    assert read(ctx, consumer="d") == []


@pytest.mark.parametrize("claim", ["XCLAIM s g d 0 1-0", "XAUTOCLAIM s g d 0 - COUNT 1"])
def test_a_claim_that_drops_a_deleted_entry_leaves_its_key_free(ctx: HandlerContext, claim: str) -> None:
    assert read(ctx, "COUNT", 1) == [1]
    run(ctx, "XDEL", "s", "1-0")
    assert read(ctx) == [2, 3, 6]
    run(ctx, *claim.split())
    assert 1 not in pending(ctx)
    assert read(ctx) == []


@pytest.mark.parametrize(
    "request_",
    ["XNACK s g FAIL IDS 1 1-0", "XCLAIM s g d 0 1-0", "XCLAIM s g d 0 1-0 JUSTID", "XAUTOCLAIM s g d 0 - COUNT 1"],
)
@pytest.mark.parametrize("back_off", [(), ("BACKOFF", 1000)])
def test_what_does_not_free_a_key(ctx: HandlerContext, request_: str, back_off: tuple[object, ...]) -> None:
    if back_off:
        run(ctx, "STREAMD.GROUP", "SET", "s", "g", *back_off)
    assert read(ctx) == [1, 3, 6]
    run(ctx, *request_.split())
    assert read(ctx) == []
    ack(ctx, 1)
    assert read(ctx) == [2]


def test_an_entry_that_is_given_back_as_if_undelivered_comes_first_again(ctx: HandlerContext) -> None:
    assert read(ctx) == [1, 3, 6]
    run(ctx, "XNACK", "s", "g", "SILENT", "IDS", 1, "1-0")
    assert read(ctx, consumer="d") == [1]
    assert pending(ctx)[1] == ("d", 1)


def test_the_last_dead_letter_frees_the_key(ctx: HandlerContext) -> None:
    run(ctx, "STREAMD.GROUP", "SET", "s", "g", "DEADLETTER", "dead", "MAXDELIVERIES", 1)
    assert read(ctx) == [1, 3, 6]
    run(ctx, "XNACK", "s", "g", "FAIL", "IDS", 1, "1-0")
    assert run(ctx, "XLEN", "dead") == 1
    assert read(ctx) == [2]


def test_a_redriven_entry_waits_for_its_turn_and_then_comes_first(ctx: HandlerContext) -> None:
    run(ctx, "STREAMD.GROUP", "SET", "s", "g", "DEADLETTER", "dead")
    assert read(ctx) == [1, 3, 6]
    run(ctx, "XNACK", "s", "g", "FATAL", "IDS", 1, "1-0")
    assert read(ctx) == [2]
    assert run(ctx, "STREAMD.REDRIVE", "s", "g", "dead") == 1
    assert pending(ctx)[1] == ("", 0)
    assert read(ctx) == []
    ack(ctx, 2)
    assert read(ctx) == [1]
    ack(ctx, 1)
    assert read(ctx) == [4]


def test_a_deleted_entry_that_was_passed_over_blocks_nothing_and_stops_being_pending(ctx: HandlerContext) -> None:
    assert read(ctx) == [1, 3, 6]
    run(ctx, "XDEL", "s", "2-0")
    ack(ctx, 1)
    effects = [b" ".join(effect) for effect in run_observed(ctx, b"XREADGROUP GROUP g c STREAMS s >".split())]
    assert effects[0] == b"XACK s g 2-0"
    assert pending(ctx).keys() == {3, 4, 5, 6}
    run(ctx, "XTRIM", "s", "MAXLEN", 0)
    assert read(ctx) == []
    ack(ctx, 3, 4)
    assert read(ctx) == []
    assert pending(ctx).keys() == {6}


# --- Claims ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "claim",
    [
        "XCLAIM s g d 0 2-0 4-0 5-0", "XCLAIM s g d 0 2-0 4-0 5-0 JUSTID", "XCLAIM s g d 0 2-0 4-0 5-0 FORCE",
        "XAUTOCLAIM s g d 0 2-0 COUNT 1", "XAUTOCLAIM s g d 0 4-0 JUSTID COUNT 2",
    ],
)  # fmt: skip
def test_no_claim_gets_what_waits_for_its_turn(ctx: HandlerContext, claim: str) -> None:
    assert read(ctx) == [1, 3, 6]
    run(ctx, *claim.split())
    assert {number: owner for number, (owner, _) in pending(ctx).items() if not owner} == {2: "", 4: "", 5: ""}
    assert passed_over(ctx) == 3


def test_a_claim_gets_the_first_of_a_free_key_and_no_other(ctx: HandlerContext) -> None:
    assert read(ctx) == [1, 3, 6]
    ack(ctx, 1)
    assert [entry[0] for entry in run(ctx, "XCLAIM", "s", "g", "d", 0, "4-0", "2-0", "4-0")] == [b"2-0"]
    ack(ctx, 3)
    assert [entry[0] for entry in run(ctx, "XAUTOCLAIM", "s", "g", "d", 0, "3-0")[1]] == [b"5-0", b"6-0"]
    assert read(ctx) == []


def test_a_read_that_claims_gets_what_failed_and_then_whose_turn_it_is(ctx: HandlerContext) -> None:
    assert read(ctx) == [1, 3, 6]
    set_time(ctx, START_MS + 1000)
    run(ctx, "XNACK", "s", "g", "FAIL", "IDS", 1, "3-0")
    assert read(ctx, "CLAIM", 5000, consumer="d") == [3]
    ack(ctx, 1)
    reply = run(ctx, "XREADGROUP", "GROUP", "g", "d", "CLAIM", 1000, "STREAMS", "s", ">")[b"s"]
    assert [(entry[0], *entry[2:]) for entry in reply] == [(b"6-0", 1000, 1), (b"2-0", 0, 0)]


def test_history_shows_what_a_consumer_has(ctx: HandlerContext) -> None:
    assert read(ctx) == [1, 3, 6]
    history = run(ctx, "XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", 0)[b"s"]
    assert [entry[0] for entry in history] == [b"1-0", b"3-0", b"6-0"]


# --- Where the group stands, and what becomes of its rule -----------------------------------------------------------------


def test_setid_back_delivers_nothing_twice_that_is_in_flight_or_waits(ctx: HandlerContext) -> None:
    assert read(ctx) == [1, 3, 6]
    run(ctx, "XGROUP", "SETID", "s", "g", 0)
    assert read(ctx, consumer="d") == []
    ack(ctx, 1, 6)
    run(ctx, "XGROUP", "SETID", "s", "g", 0)
    # 1-0 is undelivered again, and of a key of which 2-0 comes now.
    assert read(ctx, consumer="d") == [2, 6]
    assert pending(ctx)[1] == ("", 0)
    ack(ctx, 2)
    assert read(ctx, consumer="d") == [1]
    ack(ctx, 1)
    assert read(ctx, consumer="d") == [4]


def test_a_read_that_takes_much_over_keeps_the_order(ctx: HandlerContext) -> None:
    run(ctx, "XTRIM", "s", "MAXLEN", 0)
    for number in range(7, 1507):
        run(ctx, "XADD", "s", f"{number}-0", "other", "a")
    for number in (1507, 1508):
        run(ctx, "XADD", "s", f"{number}-0", "k", "a")
    assert len(read(ctx)) == 1501
    run(ctx, "XGROUP", "SETID", "s", "g", 0)
    assert read(ctx, consumer="d") == list(range(7, 1507))


def test_setid_ahead_keeps_what_was_passed_over(ctx: HandlerContext) -> None:
    assert read(ctx, "COUNT", 2) == [1, 3]
    run(ctx, "XGROUP", "SETID", "s", "g", "$")
    ack(ctx, 1, 3)
    assert read(ctx) == [2]


def test_a_rule_for_a_group_with_pending_entries(ctx: HandlerContext) -> None:
    run(ctx, "STREAMD.GROUP", "UNSET", "s", "g", "KEYED")
    assert read(ctx, "COUNT", 4) == [1, 2, 3, 4]
    run(ctx, "STREAMD.GROUP", "SET", "s", "g", "KEYED", "k")
    assert read(ctx) == [6]
    ack(ctx, 1, 3)
    assert read(ctx) == [5]
    run(ctx, "XADD", "s", "7-0", "k", "a")
    ack(ctx, 2)
    assert read(ctx) == []
    ack(ctx, 4)
    assert read(ctx) == [7]


def test_another_field_and_no_field_any_more(ctx: HandlerContext) -> None:
    assert read(ctx, "COUNT", 3) == [1, 3, 6]
    run(ctx, "STREAMD.GROUP", "SET", "s", "g", "KEYED", "n")
    assert read(ctx) == [2, 4, 5]
    run(ctx, "XNACK", "s", "g", "SILENT", "IDS", 3, "2-0", "4-0", "5-0")
    run(ctx, "STREAMD.GROUP", "UNSET", "s", "g")
    assert read(ctx) == []
    assert run(ctx, "STREAMD.LAG", "s", "g")[b"passed-over"] == 0
    assert read(ctx, "CLAIM", 0, "COUNT", 3) == [2, 4, 5]


def test_what_was_delivered_without_the_rule_is_known_to_it_later(ctx: HandlerContext) -> None:
    assert read(ctx, "COUNT", 1) == [1]
    run(ctx, "STREAMD.GROUP", "UNSET", "s", "g")
    assert read(ctx, "COUNT", 2) == [2, 3]
    run(ctx, "STREAMD.GROUP", "SET", "s", "g", "KEYED", "k")
    ack(ctx, 1)
    assert read(ctx) == [6]
    ack(ctx, 2, 3)
    assert read(ctx) == [4, 5]


def test_a_renamed_stream_and_a_copy(ctx: HandlerContext) -> None:
    assert read(ctx) == [1, 3, 6]
    run(ctx, "STREAMD.GROUP", "SET", "t", "g", "KEYED", "k")
    run(ctx, "STREAMD.GROUP", "SET", "u", "g", "KEYED", "k")
    run(ctx, "COPY", "s", "u")
    run(ctx, "RENAME", "s", "t")
    for key in ("t", "u"):
        assert read(ctx, key=key) == []
        run(ctx, "XACK", key, "g", "1-0")
        assert read(ctx, key=key) == [2]


def test_much_that_changes_between_two_reads(ctx: HandlerContext) -> None:
    assert read(ctx) == [1, 3, 6]
    run(ctx, "XACK", "s", "g", "1-0")
    for number in range(7, 3000):
        run(ctx, "XADD", "s", f"{number}-0", "k", "new")
        run(ctx, "XDEL", "s", f"{number}-0")
    run(ctx, "XDEL", "s", "3-0")
    # More has changed than is pending: all that is pending is looked at again.
    assert read(ctx) == [2, 5]
    assert passed_over(ctx) == 1
    ack(ctx, 2)
    assert read(ctx) == [4]


def test_many_keys_that_become_free_at_once(ctx: HandlerContext) -> None:
    run(ctx, "XTRIM", "s", "MAXLEN", 0)
    for number in range(1000, 4000):
        run(ctx, "XADD", "s", f"{number}-0", "k", number % 1000)
    assert read(ctx) == list(range(1000, 2000))
    assert passed_over(ctx) == 2000
    run(ctx, "XGROUP", "DELCONSUMER", "s", "g", "c")
    assert read(ctx, "COUNT", 600) == list(range(2000, 2600))
    assert read(ctx, consumer="d") == list(range(2600, 3000))
    run(ctx, "XTRIM", "s", "MINID", 2999)
    assert read(ctx) == [*range(3000, 3999)]
    ack(ctx, 2999)
    assert read(ctx) == [3999]


def test_the_rule_is_shown_and_its_bounds(ctx: HandlerContext) -> None:
    assert run(ctx, "STREAMD.GROUP", "GET", "s", "g") == {b"keyed": b"k"}
    run(ctx, "STREAMD.GROUP", "SET", "s", "g", "HELD", 5)
    assert run(ctx, "STREAMD.GROUP", "GET", "s", "g") == {b"keyed": b"k", b"held": 5}
    assert str(run(ctx, "STREAMD.GROUP", "UNSET", "s", "g", "KEYED")) == "ERR HELD needs KEYED"
    assert str(run(ctx, "STREAMD.GROUP", "SET", "s", "g", "KEYED", "")) == "ERR KEYED must not be empty"


def test_a_dead_letter_that_a_read_moves_frees_the_key_for_that_read(ctx: HandlerContext) -> None:
    run(ctx, "STREAMD.GROUP", "SET", "s", "g", "DEADLETTER", "dead", "MAXDELIVERIES", 1)
    assert read(ctx) == [1, 3, 6]
    set_time(ctx, START_MS + 1000)
    ack(ctx, 3, 6)
    assert read(ctx) == [5]
    assert read(ctx, "CLAIM", 500, "BLOCK", 0, consumer="d") == [2]
    assert run(ctx, "XLEN", "dead") == 1
