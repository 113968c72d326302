"""XADD, XTRIM and the other commands on streams without groups: how requests are read, the order of checks, replies."""

from __future__ import annotations

import re
from typing import Any

import hiredis
import pytest
from support.commands.handler import START_MS, HandlerContext, make_context, run, set_time

from streamd.errors import CommandError
from streamd.values.streams.idempotency import registry_of
from streamd.values.streams.stream import Stream
from streamd.values.streams.xadd_xtrim import parse_xadd, parse_xtrim

MAX = 2**64 - 1
INVALID_ID = "ERR Invalid stream ID specified as stream command argument"
NOT_INTEGER = "ERR value is not an integer or out of range"
SYNTAX = "ERR syntax error"
WRONG_NUMBER = "ERR wrong number of arguments for 'xadd' command"
WRONG_TYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"
TWO_STRATEGIES = "ERR syntax error, MAXLEN and MINID options at the same time are not compatible"
LIMIT_ALONE = "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy"
LIMIT_EXACT = "ERR syntax error, LIMIT cannot be used without the special ~ option"
IDMP_ID = "ERR syntax error, IDMP/IDMPAUTO can be used only with auto-generated IDs"
IDMP_TWICE = "ERR syntax error, IDMP/IDMPAUTO specified multiple times"
TOP_ITEM = "ERR The ID specified in XADD is equal or smaller than the target stream top item"


def words(text: str) -> list[bytes]:
    """The words of a request; `""` is an empty one."""
    return [b"" if word == '""' else word.encode() for word in text.split(" ")]


@pytest.fixture
def ctx() -> HandlerContext:
    return make_context()


def call(ctx: HandlerContext, text: str) -> Any:
    return run(ctx, *words(text))


def stream_at(ctx: HandlerContext, key: bytes = b"s") -> Stream:
    value = ctx.db.peek(key)
    assert isinstance(value, Stream)
    value.check_invariants()
    return value


def add(ctx: HandlerContext, *numbers: int) -> None:
    for number in numbers:
        assert call(ctx, f"XADD s {number}-1 f {number}") == b"%d-1" % number


def is_error(reply: Any, text: str) -> bool:
    return isinstance(reply, hiredis.ReplyError) and str(reply) == text


# --- Options ------------------------------------------------------------------------------------------------------


def test_the_id_ends_the_options_of_xadd() -> None:
    options = parse_xadd(words("XADD s MAXLEN ~ 10 LIMIT 5 nomkstream delref 7-3 MAXLEN 5"))
    trim = options["trim"]
    assert (trim["strategy"], trim["max_length"], trim["approximate"]) == (1, 10, 1)
    assert (trim["limit"], trim["policy"]) == (5, 1)
    assert (options["no_mkstream"], options["id"], options["id_at"]) == (1, {"ms": 7, "seq": 3}, 9)


def test_a_star_needs_no_options() -> None:
    options = parse_xadd(words("XADD s * f v"))
    assert (options["id_at"], options["id_kind"], options["trim"]["strategy"], options["pid_at"]) == (2, 0, 0, 0)


@pytest.mark.parametrize(
    ("id", "ms"), [("7-*", 7), ("+7-*", 7), ("007-*", 7), (f"{MAX}-*", MAX), ("7-*\0x", 7)]
)  # fmt: skip
def test_the_sequence_number_may_be_left_to_the_server(id: str, ms: int) -> None:
    options = parse_xadd([b"XADD", b"s", id.encode(), b"f", b"v"])
    assert (options["id_kind"], options["id"]["ms"]) == (1, ms)


@pytest.mark.parametrize("id", ["*-*", "-*", "7-**", "7--*", "7-1-*", "7*", "**", "-", "+", "$", ">", '""', "x", "1-"])
def test_what_is_no_option_must_be_an_id(id: str) -> None:
    with pytest.raises(CommandError, match=INVALID_ID):
        parse_xadd(words(f"XADD s {id} f v"))


@pytest.mark.parametrize(
    ("text", "strategy", "approximate", "threshold"),
    [
        ("MAXLEN 5", 1, 0, 5), ("maxlen = 5", 1, 0, 5), ("MaxLen ~ 5", 1, 1, 5), ("MAXLEN 9223372036854775807", 1, 0, 2**63 - 1),
        ("MINID 5", 2, 0, (5, 0)), ("minid = 5-1", 2, 0, (5, 1)), ("MINID ~ 5", 2, 1, (5, 0)),
    ],
)  # fmt: skip
def test_thresholds(text: str, strategy: int, approximate: int, threshold: int | tuple[int, int]) -> None:
    trim = parse_xtrim(words(f"XTRIM s {text}"))["trim"]
    assert (trim["strategy"], trim["approximate"]) == (strategy, approximate)
    found = trim["max_length"] if strategy == 1 else (trim["min_id"]["ms"], trim["min_id"]["seq"])
    assert found == threshold


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("XADD s MAXLEN 5 MINID 5 * f v", TWO_STRATEGIES),
        ("XADD s MAXLEN 5 MAXLEN x * f v", TWO_STRATEGIES),
        ("XADD s MAXLEN x * f v", NOT_INTEGER),
        ("XADD s MAXLEN ~ * f v", NOT_INTEGER),
        ("XADD s MAXLEN -1 * f v", "ERR The MAXLEN argument must be >= 0."),
        ("XADD s MAXLEN 1 LIMIT -1 * f v", "ERR The LIMIT argument must be >= 0."),
        ("XADD s MINID ~ x * f v", INVALID_ID),
        ("XADD s MINID - * f v", INVALID_ID),
        ("XADD s MINID 5-* * f v", INVALID_ID),
        ("XADD s LIMIT 1 * f v", LIMIT_ALONE),
        ("XADD s LIMIT 0 * f v", LIMIT_EXACT),
        ("XADD s MAXLEN 1 LIMIT 1 * f v", LIMIT_EXACT),
        ("XADD s MAXLEN = 1 LIMIT 1 LIMIT 0 * f v", LIMIT_EXACT),
        ("XADD s ACKED ACKED * f v", INVALID_ID),
        ("XADD s KEEPREF DELREF * f v", INVALID_ID),
        ("XADD s IDMP p i IDMPAUTO p * f v", IDMP_TWICE),
        ("XADD s IDMP p i 5-* f v", IDMP_ID),
        ("XADD s IDMPAUTO p 0-0 f", IDMP_ID),
        ("XADD s IDMP p i LIMIT 1 5 f v", IDMP_ID),
        ("XADD s IDMP p i x f v", INVALID_ID),
        ('XADD s IDMP "" "" * f v', "ERR syntax error, IDMP requires a non-empty producer ID"),
        ('XADD s IDMP p "" * f v', "ERR syntax error, IDMP requires a non-empty idempotent ID"),
        ('XADD s IDMPAUTO "" * f v', "ERR syntax error, IDMPAUTO requires a non-empty producer ID"),
        ("XADD s f v", INVALID_ID),
    ],
)
def test_xadd_refuses(text: str, error: str) -> None:
    with pytest.raises(CommandError, match=f"^{re.escape(error)}$"):
        parse_xadd(words(text))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("LIMIT 5", LIMIT_ALONE),
        ("LIMIT 0", "ERR syntax error, XTRIM must be called with a trimming strategy"),
        ("KEEPREF ACKED", SYNTAX),
        ("MAXLEN 5 LIMIT", SYNTAX),
        ("MAXLEN =", NOT_INTEGER),
        ("MAXLEN ~ =", NOT_INTEGER),
        ("MAXLEN 5 FOO", SYNTAX),
        ("NOMKSTREAM MAXLEN 5", SYNTAX),
        ("IDMP p i MAXLEN 5", SYNTAX),
        ("* MAXLEN 5", SYNTAX),
        ("KEEPREF MAXLEN", SYNTAX),
        ("KEEPREF KEEPREF MAXLEN 1", SYNTAX),
        ("MINID +", INVALID_ID),
        ("MAXLEN 99999999999999999999", NOT_INTEGER),
        ("MAXLEN 5 LIMIT 0", LIMIT_EXACT),
    ],
)
def test_xtrim_refuses(text: str, error: str) -> None:
    with pytest.raises(CommandError, match=f"^{re.escape(error)}$"):
        parse_xtrim(words(f"XTRIM s {text}"))


# --- XADD ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["XADD s * f v g", "XADD s 0-0 f v g", "XADD s MAXLEN 5 LIMIT", "XADD s NOMKSTREAM * f v g"]
)
def test_an_entry_is_made_of_pairs(ctx: HandlerContext, text: str) -> None:
    reply = call(ctx, text)
    assert is_error(reply, INVALID_ID if "LIMIT" in text else WRONG_NUMBER)
    assert ctx.db.peek(b"s") is None


def test_options_without_an_id_are_too_few_arguments(ctx: HandlerContext) -> None:
    assert is_error(call(ctx, "XADD s NOMKSTREAM MAXLEN 5 ACKED"), WRONG_NUMBER)


def test_xadd_refuses_0_0_whatever_the_key_holds(ctx: HandlerContext) -> None:
    ctx.db.set(b"s", b"text")
    assert is_error(call(ctx, "XADD s 0-0 f v"), "ERR The ID specified in XADD must be greater than 0-0")
    assert is_error(call(ctx, "XADD s * f v"), WRONG_TYPE)


def test_nomkstream_makes_no_key(ctx: HandlerContext) -> None:
    assert call(ctx, "XADD s NOMKSTREAM * f v") is None
    assert (ctx.db.peek(b"s"), ctx.dirty) == (None, 0)
    add(ctx, 1)
    assert call(ctx, "XADD s NOMKSTREAM 2-1 f v") == b"2-1"


def test_ids_are_made_from_the_time(ctx: HandlerContext) -> None:
    assert call(ctx, "XADD s * f v") == b"%d-0" % START_MS
    assert call(ctx, "XADD s * f v") == b"%d-1" % START_MS
    set_time(ctx, START_MS - 5)
    assert call(ctx, "XADD s * f v") == b"%d-2" % START_MS
    assert call(ctx, f"XADD s {START_MS}-* f v") == b"%d-3" % START_MS
    assert call(ctx, f"XADD s {START_MS + 7}-* f v") == b"%d-0" % (START_MS + 7)
    assert is_error(call(ctx, "XADD s 5-* f v"), TOP_ITEM)
    assert call(ctx, "XADD t 0-* f v") == b"0-1"


def test_ids_end(ctx: HandlerContext) -> None:
    assert call(ctx, f"XADD s 5-{MAX} f v") == b"5-%d" % MAX
    assert is_error(call(ctx, "XADD s 5-* f v"), TOP_ITEM)
    assert is_error(call(ctx, f"XADD s 5-{MAX} f v"), TOP_ITEM)
    assert call(ctx, f"XADD s {MAX}-{MAX} f v") == b"%d-%d" % (MAX, MAX)
    for id in ("*", "1", "1-*", f"{MAX}-{MAX}"):
        reply = call(ctx, f"XADD s {id} f v")
        assert is_error(reply, "ERR The stream has exhausted the last possible ID, unable to add more items")


def test_xadd_trims(ctx: HandlerContext) -> None:
    add(ctx, *range(1, 9))
    assert call(ctx, "XADD s MAXLEN 3 9-1 f v") == b"9-1"
    assert [id[0] for id, _ in stream_at(ctx).range()] == [7, 8, 9]
    assert call(ctx, "XADD s MINID 99 10-1 f v") == b"10-1"
    assert (len(stream_at(ctx)), stream_at(ctx).last_generated_id) == (0, (10, 1))


def test_settings_of_now_decide_when_a_node_is_full(ctx: HandlerContext) -> None:
    add(ctx, 1)
    ctx.stream_node_max_entries = 1
    add(ctx, 2, 3)
    assert stream_at(ctx).node_count == 3


def test_changes_are_counted_and_waiters_notified(ctx: HandlerContext) -> None:
    ctx.db.waiters[b"s"] = object()
    add(ctx, 1, 2, 3)
    assert ctx.dirty == 3
    assert list(ctx.db.ready) == [(ctx.db, b"s")]
    ctx.db.ready.clear()
    call(ctx, "XDEL s 1-1 2-1 9-9")
    call(ctx, "XTRIM s MAXLEN 0")
    call(ctx, "XTRIM s MAXLEN 0")
    assert ctx.dirty == 6
    assert not ctx.db.ready


# --- Idempotent producers -----------------------------------------------------------------------------------------


def test_an_entry_sent_again_is_answered_with_its_id(ctx: HandlerContext) -> None:
    first = call(ctx, "XADD s IDMP p i * f v")
    assert call(ctx, "XADD s IDMP p i MAXLEN 0 * f other") == first
    assert call(ctx, "XADD s IDMP q i * f v") != first
    stream = stream_at(ctx)
    assert (len(stream), stream.iids_added, stream.iids_duplicates) == (2, 2, 1)
    call(ctx, "XDEL s " + first.decode())
    assert call(ctx, "XADD s IDMP p i * f v") == first


def test_idmpauto_goes_by_the_contents(ctx: HandlerContext) -> None:
    first = call(ctx, "XADD s IDMPAUTO p * f v g w")
    assert call(ctx, "XADD s IDMPAUTO p * g w f v") == first
    assert call(ctx, "XADD s IDMPAUTO p * g v f w") != first


def test_iids_are_forgotten_after_their_time(ctx: HandlerContext) -> None:
    first = call(ctx, "XADD s IDMP p i * f v")
    registry_of(ctx).expire(START_MS + 99_999)
    assert call(ctx, "XADD s IDMP p i * f v") == first
    registry_of(ctx).expire(START_MS + 100_000)
    assert call(ctx, "XADD s IDMP p i * f v") != first


def test_an_iid_is_not_remembered_when_nothing_was_added(ctx: HandlerContext) -> None:
    call(ctx, f"XADD s {MAX}-{MAX} f v")
    assert isinstance(call(ctx, "XADD s IDMP p i * f v"), hiredis.ReplyError)
    assert stream_at(ctx).idempotency is None


def test_a_changed_setting_forgets_iids(ctx: HandlerContext) -> None:
    first = call(ctx, "XADD s IDMP p i * f v")
    assert call(ctx, "XCFGSET s IDMP-DURATION 100 IDMP-MAXSIZE 100") == b"OK"
    assert call(ctx, "XADD s IDMP p i * f v") == first
    assert call(ctx, "XCFGSET s idmp-maxsize 1") == b"OK"
    second = call(ctx, "XADD s IDMP p i * f v")
    assert second != first
    call(ctx, "XADD s IDMP p j * f v")
    assert call(ctx, "XADD s IDMP p i * f v") != second
    assert (stream_at(ctx).idmp_maxsize, stream_at(ctx).iids_added) == (1, 4)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("XCFGSET nokey", "ERR no such key"),
        ("XCFGSET text FOO", WRONG_TYPE),
        ("XCFGSET s", "ERR At least one parameter must be specified"),
        ("XCFGSET s FOO", SYNTAX),
        ("XCFGSET s IDMP-DURATION", SYNTAX),
        ("XCFGSET s IDMP-MAXSIZE 5 FOO", SYNTAX),
        ("XCFGSET s IDMP-DURATION x", NOT_INTEGER),
        ("XCFGSET s IDMP-DURATION 0 IDMP-MAXSIZE", "ERR IDMP-DURATION must be between 1 and 86400 seconds"),
        ("XCFGSET s IDMP-DURATION 86401", "ERR IDMP-DURATION must be between 1 and 86400 seconds"),
        ("XCFGSET s IDMP-MAXSIZE 10001", "ERR IDMP-MAXSIZE must be between 1 and 10000 entries"),
        ("XCFGSET s IDMP-DURATION 1 IDMP-DURATION x", "ERR IDMP-DURATION specified multiple times"),
        ("XCFGSET s IDMP-MAXSIZE 5 IDMP-MAXSIZE 6", "ERR IDMP-MAXSIZE specified multiple times"),
        ('XIDMPRECORD nokey "" "" x', INVALID_ID),
        ('XIDMPRECORD nokey "" "" 1-1', "ERR producer ID must be non-empty"),
        ('XIDMPRECORD text p "" 1-1', "ERR idempotent ID must be non-empty"),
        ("XIDMPRECORD nokey p i 1-1", "ERR no such key"),
        ("XIDMPRECORD text p i 1-1", WRONG_TYPE),
        ("XIDMPRECORD s p i 1-2", "ERR No such message in stream"),
        ("XIDMPRECORD s p known 2-1", "ERR IID already exists for this producer with a different stream ID"),
    ],
)
def test_idempotence_commands_refuse(ctx: HandlerContext, text: str, error: str) -> None:
    ctx.db.set(b"text", b"")
    add(ctx, 1, 2)
    assert call(ctx, "XIDMPRECORD s p known 1-1") == b"OK"
    assert call(ctx, "XIDMPRECORD s p known 1-1") == b"OK"
    assert is_error(call(ctx, text), error)


# --- XTRIM, XDEL, XDELEX, XLEN ------------------------------------------------------------------------------------


def test_without_limit_a_rough_trim_takes_a_hundred_nodes(ctx: HandlerContext) -> None:
    ctx.stream_node_max_entries = 1
    add(ctx, *range(1, 250))
    assert call(ctx, "XTRIM s MAXLEN ~ 0") == 100
    assert call(ctx, "XTRIM s MAXLEN ~ 0 LIMIT 10") == 10
    assert call(ctx, "XTRIM s MAXLEN ~ 0 LIMIT 0") == 139


def test_a_missing_key_has_nothing_to_remove(ctx: HandlerContext) -> None:
    assert call(ctx, "XTRIM s MAXLEN 0") == 0
    assert call(ctx, "XDEL s not-an-id") == 0
    assert call(ctx, "XDELEX s IDS 2 not-an-id 1-1") == [-1, -1]
    assert call(ctx, "XLEN s") == 0
    assert ctx.db.peek(b"s") is None


def test_xdel_reads_all_ids_before_it_deletes_one(ctx: HandlerContext) -> None:
    add(ctx, 1, 2)
    assert is_error(call(ctx, "XDEL s 1-1 x"), INVALID_ID)
    assert call(ctx, "XLEN s") == 2
    assert call(ctx, "XDEL s 1-1 1-1 2-2") == 1
    assert call(ctx, "XDEL s 2-1") == 1
    assert len(stream_at(ctx)) == 0  # the key stays


def test_xdelex_answers_for_each_id(ctx: HandlerContext) -> None:
    add(ctx, 1, 2, 3)
    assert call(ctx, "XDELEX s IDS 3 1-1 1-1 9-9") == [1, -1, -1]
    assert is_error(call(ctx, "XDELEX s IDS 1 x"), INVALID_ID)
    assert is_error(call(ctx, "XDELEX s KEEPREF ACKED IDS 1 1-1"), SYNTAX)


@pytest.mark.parametrize("text", ["XTRIM s MAXLEN 0", "XDEL s 1-1", "XDELEX s IDS 1 1-1", "XLEN s", "XRANGE s - +",
                                  "XREVRANGE s + -", "XSETID s 1-1"])  # fmt: skip
def test_a_key_of_another_type_is_refused(ctx: HandlerContext, text: str) -> None:
    ctx.db.set(b"s", b"text")
    assert is_error(call(ctx, text), WRONG_TYPE)


# --- XRANGE, XREVRANGE --------------------------------------------------------------------------------------------


def test_ranges_answer_entries(ctx: HandlerContext) -> None:
    add(ctx, 1, 2, 3)
    entries = [[b"%d-1" % number, [b"f", b"%d" % number]] for number in (1, 2, 3)]
    assert call(ctx, "XRANGE s - +") == entries
    assert call(ctx, "XREVRANGE s + -") == entries[::-1]
    assert call(ctx, "XRANGE s 2 2") == entries[1:2]
    assert call(ctx, "XRANGE s (1-1 (3-1") == entries[1:2]
    assert call(ctx, "XREVRANGE s (3-1 (1-1") == entries[1:2]
    assert call(ctx, "XRANGE s 3 1") == []
    assert call(ctx, "XRANGE s - + COUNT 9 count 2") == entries[:2]
    assert call(ctx, "XREVRANGE s + - COUNT 1") == entries[2:]


def test_a_count_that_is_not_positive_is_null_when_there_is_a_key(ctx: HandlerContext) -> None:
    assert call(ctx, "XRANGE s - + COUNT 0") == []
    add(ctx, 1)
    for count in (0, -1):
        assert call(ctx, f"XRANGE s - + COUNT {count}") is None
        assert call(ctx, f"XREVRANGE s + - COUNT {count}") is None


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (f"XRANGE s ({MAX}-{MAX} x", "ERR invalid start ID for the interval"),
        (f"XREVRANGE s x ({MAX}-{MAX}", "ERR invalid start ID for the interval"),
        ("XRANGE s - (0-0", "ERR invalid end ID for the interval"),
        ("XREVRANGE s (0-0 -", "ERR invalid end ID for the interval"),
        ("XRANGE s (- +", INVALID_ID),
        ("XRANGE s - + COUNT", SYNTAX),
        ("XRANGE s - + FOO 1", SYNTAX),
        ("XRANGE s - + COUNT 1 COUNT x", NOT_INTEGER),
        ("XRANGE s x + COUNT x", INVALID_ID),
    ],
)
def test_ranges_refuse(ctx: HandlerContext, text: str, error: str) -> None:
    ctx.db.set(b"s", b"text")
    assert is_error(call(ctx, text), error)


# --- XSETID -------------------------------------------------------------------------------------------------------


def test_xsetid_sets_what_it_is_given(ctx: HandlerContext) -> None:
    add(ctx, 1, 2)
    assert call(ctx, "XSETID s 9 MAXDELETEDID 4-1 ENTRIESADDED 7") == b"OK"
    stream = stream_at(ctx)
    assert (stream.last_generated_id, stream.max_deleted_entry_id, stream.entries_added) == ((9, 0), (4, 1), 7)
    assert call(ctx, "XSETID s 8 MAXDELETEDID 0-0") == b"OK"
    assert (stream.last_generated_id, stream.max_deleted_entry_id, stream.entries_added) == ((8, 0), (4, 1), 7)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("XSETID s x FOO", INVALID_ID),
        ("XSETID s + FOO 1", INVALID_ID),
        ("XSETID s 5 ENTRIESADDED", SYNTAX),
        ("XSETID s 5 FOO 1", SYNTAX),
        ("XSETID s 5 ENTRIESADDED x", NOT_INTEGER),
        ("XSETID s 5 ENTRIESADDED -1", "ERR entries_added must be positive"),
        ("XSETID s 5 MAXDELETEDID x", INVALID_ID),
        ("XSETID s 5 MAXDELETEDID 6 FOO", "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id"),
        ("XSETID nokey 5", "ERR no such key"),
        ("XSETID s 1-1", "ERR The ID specified in XSETID is smaller than current max_deleted_entry_id"),
        ("XSETID s 3-0", "ERR The ID specified in XSETID is smaller than the target stream top item"),
        ("XSETID s 5 ENTRIESADDED 1", "ERR The entries_added specified in XSETID is smaller than the target stream length"),
    ],
)  # fmt: skip
def test_xsetid_refuses(ctx: HandlerContext, text: str, error: str) -> None:
    add(ctx, 1, 2, 3)
    call(ctx, "XDEL s 2-1")
    assert is_error(call(ctx, text), error)
    assert stream_at(ctx).last_generated_id == (3, 1)
