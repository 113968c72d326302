"""Commands on keys of any type and on strings: their options, their use of the clock, and what they count.

Replies are compared with Redis's by the differential tests; here are the rules behind them, one by one.
"""

from __future__ import annotations

import re
from typing import Any

import hiredis
import pytest
from support.commands.handler import START_MS, HandlerContext, make_context, run, set_time

from streamd.core.scans import parse_cursor
from streamd.core.spec import table
from streamd.errors import CommandError, NotIntegerError, OptionSyntaxError
from streamd.keyspace.commands.expire_ttl import allows, conditions_of
from streamd.keyspace.commands.keys import ScanOptions
from streamd.long_double import LongDouble
from streamd.serve.families import load_all
from streamd.values.streams.stream import Stream
from streamd.values.strings.set_options import SetOptions, expiry_at_ms

load_all()

SYNTAX = "ERR syntax error"
WRONG_TYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"


@pytest.fixture
def ctx() -> HandlerContext:
    return make_context()


def error(ctx: HandlerContext, *args: bytes | str | int) -> str:
    reply = run(ctx, *args)
    assert isinstance(reply, hiredis.ReplyError), f"answered with {reply!r}"
    return str(reply)


def words(text: str) -> list[bytes]:
    return text.encode().split()


# --- SET -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("", SetOptions()),
        ("nx get", SetOptions(only_missing=True, returns_old=True)),
        ("XX KeepTTL", SetOptions(only_existing=True, keeps_expiry=True)),
        ("EX 1 EX 2", SetOptions(unit="EX", time=b"2")),
        ("PXAT nonsense", SetOptions(unit="PXAT", time=b"nonsense")),
        ("IFEQ NX", SetOptions(comparison="IFEQ", operand=b"NX")),
        ("IFDNE a GET", SetOptions(comparison="IFDNE", operand=b"a", returns_old=True)),
    ],
)
def test_set_options(text: str, want: SetOptions) -> None:
    assert SetOptions.parse(words(text)) == want


@pytest.mark.parametrize(
    "text",
    ["FOO", "NX XX", "XX NX", "EX", "IFEQ", "EX 1 PX 1", "EX 1 KEEPTTL", "KEEPTTL PXAT 1", "NX IFEQ a", "XX IFDNE a",
     "IFEQ a IFNE b", "IFDEQ a IFEQ b",
     "IFEQ a ifeq b", "IFNE a NX", "IFDNE a XX GET", "PERSIST", "GET EX"],
)  # fmt: skip
def test_set_options_that_are_refused(text: str) -> None:
    with pytest.raises(OptionSyntaxError, match="ERR syntax error"):
        SetOptions.parse(words(text))


@pytest.mark.parametrize(
    ("present", "equal", "unequal"), [(None, False, True), (b"v", True, False), (b"w", False, True)]
)
def test_comparisons_of_set(present: bytes | None, equal: bool, unequal: bool) -> None:
    digest = b"F7042BE43FB80714"  # XXH3 of "v", in either case
    for option, operand, want in (
        ("IFEQ", b"v", equal), ("IFNE", b"v", unequal), ("IFDEQ", digest, equal), ("IFDNE", digest.lower(), unequal),
    ):  # fmt: skip
        assert SetOptions(comparison=option, operand=operand).is_met(present) is want, option


def test_a_digest_has_sixteen_digits_but_a_missing_key_is_not_compared() -> None:
    with pytest.raises(CommandError, match=r"^ERR must be exactly 16 hexadecimal characters$"):
        SetOptions(comparison="IFDEQ", operand=b"f7").is_met(b"v")
    assert SetOptions(comparison="IFDNE", operand=b"f7").is_met(None)
    assert not SetOptions(comparison="IFDEQ", operand=b"sixteen letters!").is_met(b"v")


def test_what_set_does_with_its_key() -> None:
    for text, want in (
        ("", "OW update"),
        ("nx ex 10", "OW update"),
        ("ifeq x", "RW update"),
        ("xx get", "RW access update"),
    ):
        assert SetOptions.key_flags([b"SET", b"k", b"v", *words(text)]) == want


def test_set_removes_the_expiry_by_default(ctx: HandlerContext) -> None:
    run(ctx, "SET", "k", "v", "EX", 10)
    run(ctx, "SET", "k", "w", "KEEPTTL")
    assert run(ctx, "PTTL", "k") == 10_000
    run(ctx, "INCR", "n"), run(ctx, "EXPIRE", "n", 10), run(ctx, "INCR", "n"), run(ctx, "APPEND", "n", "0")
    assert (run(ctx, "GET", "n"), run(ctx, "TTL", "n")) == (b"20", 10)
    run(ctx, "SET", "k", "x")
    assert run(ctx, "TTL", "k") == -1


def test_set_with_a_time_that_has_passed_leaves_a_key_for_the_next_who_looks(ctx: HandlerContext) -> None:
    assert run(ctx, "SET", "k", "v", "PXAT", 5) == b"OK"
    assert run(ctx, "DBSIZE") == 1
    assert run(ctx, "GET", "k") is None
    assert run(ctx, "DBSIZE") == 0


def test_a_stream_is_no_string(ctx: HandlerContext) -> None:
    ctx.db.add(b"s", Stream())
    for request in ("GET s", "SET s v GET", "SET s v IFEQ v", "GETDEL s", "GETEX s", "APPEND s v", "STRLEN s", "INCR s",
                    "INCRBYFLOAT s 1", "GETRANGE s 0 1", "SETRANGE s 0 v"):  # fmt: skip
        assert error(ctx, *request.split()) == WRONG_TYPE, request
    assert run(ctx, "MGET", "s", "t") == [None, None]
    assert run(ctx, "SETNX", "s", "v") == 0
    assert run(ctx, "TYPE", "s") == b"stream"
    assert run(ctx, "SET", "s", "v") == b"OK"
    assert run(ctx, "TYPE", "s") == b"string"


# --- Times -----------------------------------------------------------------------------------------------------------

TOP = 2**63 - 1


@pytest.mark.parametrize(
    ("text", "unit", "want"),
    [
        (b"10", "EX", 11_000), (b"10", "PX", 1010), (b"10", "EXAT", 10_000), (b"10", "PXAT", 10),
        (b"%d" % TOP, "PXAT", TOP), (b"%d" % (TOP - 1000), "PX", TOP), (b"%d" % (TOP // 1000), "EXAT", TOP // 1000 * 1000),
        (b"0", "EX", None), (b"-1", "PXAT", None), (b"%d" % TOP, "PX", None), (b"%d" % (TOP // 1000), "EX", None),
        (b"%d" % (TOP // 1000 + 1), "EXAT", None),
    ],
)  # fmt: skip
def test_times_of_set(text: bytes, unit: str, want: int | None) -> None:
    if want is not None:
        assert expiry_at_ms(text, unit, 1000, "set") == want
        return
    with pytest.raises(CommandError, match=r"^ERR invalid expire time in 'set' command$"):
        expiry_at_ms(text, unit, 1000, "set")


def test_a_time_is_an_integer() -> None:
    with pytest.raises(NotIntegerError, match="ERR value is not an integer or out of range"):
        expiry_at_ms(b"1.5", "EX", 0, "set")


@pytest.mark.parametrize(
    ("options", "present", "at_ms", "want"),
    [
        ("", -1, 5, True), ("", 9, 5, True),
        ("NX", -1, 5, True), ("NX", 9, 5, False), ("XX", -1, 5, False), ("XX", 9, 5, True),
        ("GT", -1, 5, False), ("GT", 4, 5, True), ("GT", 5, 5, False), ("GT", 6, 5, False),
        ("LT", -1, 5, True), ("LT", 4, 5, False), ("LT", 5, 5, False), ("LT", 6, 5, True),
        ("xx gt", -1, 5, False), ("XX LT", -1, 5, False), ("XX LT", 6, 5, True), ("NX NX", -1, 5, True),
    ],
)  # fmt: skip
def test_conditions_of_expire(options: str, present: int, at_ms: int, want: bool) -> None:
    assert allows(conditions_of(words(options)), present, at_ms) is want


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("foo", "ERR Unsupported option foo"),
        ("NX XX foo", "ERR Unsupported option foo"),
        ("NX XX", "ERR NX and XX, GT or LT options at the same time are not compatible"),
        ("GT NX LT", "ERR NX and XX, GT or LT options at the same time are not compatible"),
        ("GT LT", "ERR GT and LT options at the same time are not compatible"),
    ],
)
def test_conditions_of_expire_that_are_refused(options: str, reason: str) -> None:
    with pytest.raises(CommandError, match=f"^{re.escape(reason)}$"):
        conditions_of(words(options))


@pytest.mark.parametrize(
    ("command", "time", "is_valid"),
    [
        ("EXPIRE", TOP // 1000, False), ("EXPIRE", (TOP - START_MS) // 1000, True), ("EXPIRE", -(TOP // 1000), True),
        ("EXPIRE", -(TOP // 1000) - 1, False), ("EXPIREAT", TOP // 1000, True), ("EXPIREAT", TOP // 1000 + 1, False),
        ("PEXPIRE", TOP, False), ("PEXPIRE", TOP - START_MS, True), ("PEXPIREAT", TOP, True), ("PEXPIREAT", -TOP - 1, True),
    ],
)  # fmt: skip
def test_the_greatest_times_of_expire(ctx: HandlerContext, command: str, time: int, is_valid: bool) -> None:
    run(ctx, "SET", "k", "v")
    if is_valid:
        assert run(ctx, command, "k", time) == 1
        assert run(ctx, "EXISTS", "k") == (time > 0)
    else:
        assert error(ctx, command, "k", time) == f"ERR invalid expire time in '{command.lower()}' command"


def test_times_to_live_are_rounded_to_seconds(ctx: HandlerContext) -> None:
    run(ctx, "SET", "k", "v", "PX", 1500)
    assert [run(ctx, name, "k") for name in ("TTL", "PTTL")] == [2, 1500]
    assert run(ctx, "PEXPIRETIME", "k") == START_MS + 1500
    assert run(ctx, "EXPIRETIME", "k") == (START_MS + 2000) // 1000
    set_time(ctx, START_MS + 1001)
    assert [run(ctx, name, "k") for name in ("TTL", "PTTL")] == [0, 499]
    set_time(ctx, START_MS + 1500)
    assert [run(ctx, name, "k") for name in ("TTL", "PTTL")] == [0, 0]
    set_time(ctx, START_MS + 1501)
    assert [run(ctx, name, "k") for name in ("TTL", "PTTL", "EXPIRETIME", "PEXPIRETIME")] == [-2] * 4


def test_expiring_in_the_past_deletes_and_is_not_counted_as_expired(ctx: HandlerContext) -> None:
    for request in ("EXPIRE k 0", "PEXPIREAT k 5", "GETEX k EXAT 1"):
        run(ctx, "SET", "k", "v")
        run(ctx, *request.split())
        assert run(ctx, "DBSIZE") == 0, request
    assert ctx.db.expired_keys == 0


# --- SCAN ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (b"0", 0), (b"17", 17), (b"+1", 1), (b" \t1", 1), (b"007", 7), (b"-0", 0), (b"0\0x", 0),
        (b"18446744073709551615", 2**64 - 1), (b"-01", 2**64 - 1), (b"0" * 50 + b"1", 1),
    ],
)  # fmt: skip
def test_cursors(text: bytes, want: int) -> None:
    assert parse_cursor(text) == want


@pytest.mark.parametrize(
    "text", [b"", b" ", b"abc", b"1 ", b"1a", b"0x10", b"-1", b"-9223372036854775808", b"+-1", b"1.0",
             b"18446744073709551616", b"9" * 4000, b"\0"]
)  # fmt: skip
def test_cursors_that_are_refused(text: bytes) -> None:
    with pytest.raises(CommandError, match=r"^ERR invalid cursor$"):
        parse_cursor(text)


def test_scan_options() -> None:
    assert ScanOptions.parse([]) == ScanOptions(None, 10, None)
    assert ScanOptions.parse(words("match a MATCH * count 5 TYPE STREAM")) == ScanOptions(b"*", 5, b"stream")
    for text in ("FOO", "FOO x", "COUNT", "MATCH", "COUNT 0", "COUNT -1", "COUNT 0 COUNT 1"):
        with pytest.raises(OptionSyntaxError, match="ERR syntax error"):
            ScanOptions.parse(words(text))
    with pytest.raises(NotIntegerError, match="ERR value is not an integer or out of range"):
        ScanOptions.parse(words("COUNT x FOO"))


def test_scan_filters_by_type_and_name(ctx: HandlerContext) -> None:
    ctx.db.add(b"stream:1", Stream())
    run(ctx, "MSET", "string:1", "", "string:2", "")
    scan: Any = lambda *options: sorted(run(ctx, "SCAN", 0, "COUNT", 100, *options)[1])  # noqa: E731
    assert scan() == [b"stream:1", b"string:1", b"string:2"]
    assert scan("TYPE", "Stream") == [b"stream:1"]
    assert scan("TYPE", "string", "MATCH", "*1") == [b"string:1"]
    assert scan("TYPE", "hash") == scan("MATCH", "") == []
    assert sorted(run(ctx, "KEYS", "str[ei]*:1")) == [b"stream:1", b"string:1"]


# --- Keys and databases ----------------------------------------------------------------------------------------------


def test_other_databases_go_by_the_same_clock(ctx: HandlerContext) -> None:
    run(ctx, "SET", "k", "v", "PX", 10)
    run(ctx, "COPY", "k", "k", "DB", 1)
    ctx.now_ms = START_MS + 11  # only the selected database is told by `run`
    ctx.db.set(b"k", b"new")
    assert run(ctx, "MOVE", "k", 1) == 1, "the key there has expired"
    assert ctx.databases[1].find(b"k") == b"new"


def test_copies_are_independent_and_keep_the_expiry(ctx: HandlerContext) -> None:
    stream = Stream()
    ctx.db.add(b"s", stream)
    run(ctx, "EXPIRE", "s", 100)
    assert run(ctx, "COPY", "s", "t") == 1
    assert ctx.db.find(b"t") is not stream
    assert run(ctx, "TTL", "t") == 100
    assert run(ctx, "COPY", "s", "t") == 0
    assert run(ctx, "COPY", "s", "t", "REPLACE") == 1


def test_what_databases_are_called(ctx: HandlerContext) -> None:
    run(ctx, "SET", "k", "v")
    out_of_range = "ERR DB index is out of range"
    for index in (16, -1):
        assert error(ctx, "MOVE", "k", index) == error(ctx, "COPY", "k", "x", "DB", index) == out_of_range
        assert error(ctx, "SWAPDB", 0, index) == error(ctx, "SWAPDB", index, 0) == out_of_range
    wide = "ERR value is out of range, value must between -2147483648 and 2147483647"
    assert error(ctx, "MOVE", "k", 2**31) == error(ctx, "COPY", "k", "x", "DB", -(2**31) - 1) == wide
    assert error(ctx, "SWAPDB", 2**31, "x") == "ERR invalid first DB index"
    assert error(ctx, "SWAPDB", 16, "x") == "ERR invalid second DB index", "both are read before one is looked for"
    same = "ERR source and destination objects are the same"
    assert error(ctx, "MOVE", "none", 0) == error(ctx, "COPY", "none", "none", "DB", 0) == same
    assert error(ctx, "COPY", "k", "k", "FOO") == error(ctx, "COPY", "k", "k", "DB") == SYNTAX


def test_flushing(ctx: HandlerContext) -> None:
    for index in (0, 1):
        ctx.databases[index].add(b"k", b"v")
    assert error(ctx, "FLUSHALL", "LATER") == error(ctx, "FLUSHDB", "SYNC", "ASYNC") == SYNTAX
    assert run(ctx, "FLUSHDB", "sync") == b"OK"
    assert [len(db) for db in ctx.databases[:2]] == [0, 1]
    assert run(ctx, "FLUSHALL", "async") == b"OK"
    assert [len(db) for db in ctx.databases[:2]] == [0, 0]
    assert ctx.dirty == 2


def test_keys_that_clients_wait_for_become_ready(ctx: HandlerContext) -> None:
    ctx.db.waiters = {b"k": None}
    for request, is_change in (
        ("SET k v", True), ("GET k", False), ("EXPIRE k 10", False), ("PERSIST k", False), ("TOUCH k", False),
        ("RENAME k x", True), ("RENAME x k", True), ("RENAME k k", False), ("COPY k x REPLACE", False),
        ("COPY x k", False), ("COPY x k REPLACE", True), ("MOVE k 1", True), ("SWAPDB 0 1", True), ("DEL k", True),
        ("DEL k", False), ("SETNX k v", True), ("EXPIRE k 0", True), ("FLUSHALL", True),
    ):  # fmt: skip
        ctx.db.ready.clear()
        run(ctx, *request.split())
        assert bool(ctx.db.ready) is is_change, request


@pytest.mark.parametrize(
    ("request_text", "hits", "misses"),
    [
        ("GET k", 1, 0), ("GET none", 0, 1), ("MGET k none s", 2, 1), ("EXISTS k none", 1, 1), ("TYPE none", 0, 1),
        ("TTL k", 1, 0), ("PEXPIRETIME none", 0, 1), ("TOUCH k none", 1, 1), ("OBJECT ENCODING none", 0, 1),
        ("OBJECT IDLETIME k", 1, 0), ("OBJECT REFCOUNT k", 1, 0), ("SET k v", 0, 0), ("SET k v GET", 1, 0),
        ("SET none v GET", 0, 1), ("SET k v NX", 0, 0), ("SET k v IFEQ v", 1, 0), ("SETNX k v", 0, 0), ("INCR n", 0, 0),
        ("GETDEL none", 0, 1), ("GETEX k", 1, 0), ("APPEND k v", 0, 0), ("STRLEN none", 0, 1), ("DEL k none", 0, 0),
        ("GETRANGE k 0 0", 1, 0), ("RENAME k x", 0, 0), ("COPY k x", 1, 0), ("COPY none x", 0, 1), ("MOVE k 1", 0, 0),
        ("EXPIRE none 1", 0, 0), ("PERSIST k", 0, 0), ("RANDOMKEY", 0, 0), ("KEYS *", 0, 0), ("SCAN 0", 0, 0),
    ],
)  # fmt: skip
def test_hits_and_misses(ctx: HandlerContext, request_text: str, hits: int, misses: int) -> None:
    ctx.db.add(b"k", b"v")
    ctx.db.add(b"s", Stream())
    run(ctx, *request_text.split())
    assert (ctx.db.hits, ctx.db.misses) == (hits, misses)


@pytest.mark.parametrize(
    ("request_text", "dirty"),
    [
        ("SET k w", 1), ("SET k w NX", 0), ("MSET a 1 b 2", 2), ("MSETNX a 1 k 2", 0), ("GETDEL k", 1), ("GETDEL none", 0),
        ("GETEX k", 0), ("GETEX k PERSIST", 0), ("GETEX k EX 1", 1), ("DEL k k s", 2), ("RENAME k k", 0), ("RENAME k x", 1),
        ("EXPIRE k 1", 1), ("EXPIRE k 1 XX", 0), ("PERSIST k", 0), ("MOVE k 1", 1), ("COPY none x", 0), ("SETRANGE k 0 ", 0),
    ],
)  # fmt: skip
def test_changes_are_counted(ctx: HandlerContext, request_text: str, dirty: int) -> None:
    ctx.db.add(b"k", b"v")
    ctx.db.add(b"s", Stream())
    run(ctx, *request_text.split(" "))
    assert ctx.dirty == dirty


# --- OBJECT ----------------------------------------------------------------------------------------------------------


def test_idle_time_counts_from_the_last_use(ctx: HandlerContext) -> None:
    run(ctx, "SET", "k", "v")
    set_time(ctx, START_MS + 3999)
    for look in ("EXISTS", "TYPE", "TTL"):
        run(ctx, look, "k")
        assert run(ctx, "OBJECT", "IDLETIME", "k") == 3
    ctx.db.touch_on_access = False
    run(ctx, "GET", "k")
    assert run(ctx, "OBJECT", "IDLETIME", "k") == 3
    run(ctx, "TOUCH", "k")
    assert run(ctx, "OBJECT", "IDLETIME", "k") == 0
    set_time(ctx, START_MS)
    assert run(ctx, "OBJECT", "IDLETIME", "k") == 0, "the clock went back"


def test_encodings_follow_how_a_string_was_made(ctx: HandlerContext) -> None:
    encoding: Any = lambda: run(ctx, "OBJECT", "ENCODING", "k")  # noqa: E731
    for request, want in (
        ("APPEND k 12", b"int"), ("APPEND k 3", b"raw"), ("INCR k", b"int"), ("INCRBYFLOAT k 1", b"embstr"),
        ("SETRANGE k 0 9", b"raw"), ("SET k 9", b"int"), ("GETEX k EX 100", b"int"), ("SETRANGE k 1 9", b"raw"),
    ):  # fmt: skip
        run(ctx, *request.split())
        assert encoding() == want, request
    assert run(ctx, "OBJECT", "ENCODING", "none") is None
    assert run(ctx, "OBJECT", "REFCOUNT", "k") == 1
    assert error(ctx, "OBJECT", "FREQ", "k").startswith("ERR An LFU maxmemory policy is not selected")


def test_object_help_names_every_subcommand(ctx: HandlerContext) -> None:
    lines = run(ctx, "OBJECT", "HELP")
    assert {line.split()[0].decode() for line in lines[1:] if not line.startswith(b" ")} == set(
        table["OBJECT"].subcommands
    )


# --- Strings ---------------------------------------------------------------------------------------------------------


def test_lengths_are_limited(ctx: HandlerContext) -> None:
    ctx.config.proto_max_bulk_len = 10
    too_long = "ERR string exceeds maximum allowed size (proto-max-bulk-len)"
    run(ctx, "SET", "k", "12345")
    assert run(ctx, "APPEND", "k", "67890") == 10
    assert error(ctx, "APPEND", "k", "x") == error(ctx, "SETRANGE", "k", 10, "x") == too_long
    assert error(ctx, "SETRANGE", "none", TOP, "x") == too_long
    assert run(ctx, "SETRANGE", "none", TOP, "") == 0
    assert error(ctx, "SETRANGE", "k", -1, "") == "ERR offset is out of range"
    assert run(ctx, "GET", "k") == b"1234567890"


@pytest.mark.parametrize(
    ("start", "end", "want"),
    [(0, -1, b"abcde"), (1, 2, b"bc"), (-2, -1, b"de"), (-1, -2, b""), (3, 1, b""), (-99, 99, b"abcde"), (5, 9, b""),
     (-99, -99, b"a"), (0, -99, b"a"), (-TOP, TOP, b"abcde"), (TOP, TOP, b"")],
)  # fmt: skip
def test_getrange(ctx: HandlerContext, start: int, end: int, want: bytes) -> None:
    run(ctx, "SET", "k", "abcde")
    assert run(ctx, "GETRANGE", "k", start, end) == want
    assert run(ctx, "GETRANGE", "none", start, end) == b""


def test_counters_stay_within_64_bits(ctx: HandlerContext) -> None:
    overflow = "ERR increment or decrement would overflow"
    run(ctx, "SET", "k", TOP)
    assert error(ctx, "INCR", "k") == error(ctx, "INCRBY", "k", 1) == error(ctx, "DECRBY", "k", -1) == overflow
    assert error(ctx, "DECRBY", "k", -TOP - 1) == "ERR decrement would overflow"
    assert run(ctx, "DECR", "k") == TOP - 1
    assert run(ctx, "DECRBY", "none", TOP) == -TOP
    assert run(ctx, "DECR", "none") == -TOP - 1
    assert error(ctx, "DECR", "none") == overflow
    run(ctx, "SET", "k", "01")
    assert error(ctx, "INCR", "k") == error(ctx, "INCRBY", "n", "x") == "ERR value is not an integer or out of range"


def test_mset_counts_its_arguments_itself(ctx: HandlerContext) -> None:
    assert error(ctx, "MSET", "a", "1", "b") == "ERR wrong number of arguments for 'mset' command"
    assert error(ctx, "MSETNX", "a", "1", "b") == "ERR wrong number of arguments for 'msetnx' command"


# --- The numbers of INCRBYFLOAT --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "total"),
    [
        (b"10.5", b"0.1", b"10.6"), (b"10.6", b"5.0e3", b"5010.60000000000000009"), (b"5010.600000000000000001", b"0", b"5010.60000000000000009"),
        (b"3", b"-3.0", b"0"), (b"-1e-18", b"0", b"0"), (b"3", b"1e-17", b"3.00000000000000001"), (b"0", b"0x1F", b"31"),
        (b".5", b"+5.", b"5.5"), (b"-0", b"-0", b"0"), (b"1e20", b"16", b"100000000000000000016"), (b"0", b"0x.8p1", b"1"),
        (b"18446744073709551616", b"1", b"18446744073709551616"), (b"18446744073709551618", b"1", b"18446744073709551620"),
    ],
)  # fmt: skip
def test_sums_have_64_bits(one: bytes, other: bytes, total: bytes) -> None:
    a, b = LongDouble.parse(one), LongDouble.parse(other)
    assert a is not None
    assert b is not None
    assert (a + b).format() == total


@pytest.mark.parametrize(
    "text", [b"", b" 1", b"1 ", b"abc", b"nan", b"1e", b"0x", b".", b"1e5000", b"1e-5000", b"1e4933", b"0x1p16384", b"1" * 5120,
             b"1e999999999999", b"1e" + b"9" * 5000, b"1\0", b"1,5", b"--1"]
)  # fmt: skip
def test_texts_that_are_no_numbers(text: bytes) -> None:
    assert LongDouble.parse(text) is None


def test_the_greatest_numbers() -> None:
    greatest = LongDouble.parse(b"1e4932")
    assert greatest is not None
    assert len(greatest.format()) == 4933
    assert not (greatest + greatest).is_finite
    infinite = LongDouble.parse(b"-Infinity")
    assert infinite is not None
    assert not infinite.is_finite
    assert not (infinite + greatest).is_finite
    assert LongDouble.parse(b"0e99999") is not None
    assert LongDouble.parse(b"0." + b"0" * 5000 + b"1e5001") is not None
