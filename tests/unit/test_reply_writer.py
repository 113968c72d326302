"""The reply writer: every kind of reply in both protocols, its buffer, and aggregates counted afterwards."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamd.heap import allocated
from streamd.protocol.reply import ReplyWriter, give_back_idle_blocks

SMALL_BLOCK = 1024
BLOCK = 16384
GREAT_BLOCK = 65536
INT64 = st.integers(-(2**63), 2**63 - 1)
UINT64 = st.integers(0, 2**64 - 1)

# Where the number of digits changes, and the ends of the types.
EDGES = sorted(
    {n for digits in range(21) for n in (10**digits - 1, 10**digits, 10**digits + 1)} | {2**32, 2**63, 2**64 - 1}
)


def written(resp: int, method: str, *args: Any) -> bytes:
    writer = ReplyWriter(resp)
    getattr(writer, method)(*args)
    writer.check_invariants()
    taken = writer.take()
    writer.check_invariants()
    return taken


@pytest.mark.parametrize(
    ("method", "args", "resp2", "resp3"),
    [
        ("integer", (0,), b":0\r\n", b":0\r\n"),
        ("integer", (-1,), b":-1\r\n", b":-1\r\n"),
        ("integer", (-(2**63),), b":-9223372036854775808\r\n", b":-9223372036854775808\r\n"),
        ("bulk", (b"",), b"$0\r\n\r\n", b"$0\r\n\r\n"),
        ("bulk", (b"a\r\nb\0",), b"$5\r\na\r\nb\0\r\n", b"$5\r\na\r\nb\0\r\n"),
        ("bulk", (None,), b"$-1\r\n", b"_\r\n"),
        ("null", (), b"$-1\r\n", b"_\r\n"),
        ("null_array", (), b"*-1\r\n", b"_\r\n"),
        ("array", (0,), b"*0\r\n", b"*0\r\n"),
        ("array", (123,), b"*123\r\n", b"*123\r\n"),
        ("map", (3,), b"*6\r\n", b"%3\r\n"),
        ("set", (3,), b"*3\r\n", b"~3\r\n"),
        ("push", (3,), b"*3\r\n", b">3\r\n"),
        ("ok", (), b"+OK\r\n", b"+OK\r\n"),
        ("simple", ("PONG",), b"+PONG\r\n", b"+PONG\r\n"),
        ("simple", (b"a\r\nb",), b"+a  b\r\n", b"+a  b\r\n"),
        ("error", ("ERR a\r\nb\xff\0",), b"-ERR a  b\xff\0\r\n", b"-ERR a  b\xff\0\r\n"),
        ("error", ("ERR \u20ac",), b"-ERR ?\r\n", b"-ERR ?\r\n"),
        ("double", (3.141,), b"$5\r\n3.141\r\n", b",3.141\r\n"),
        ("verbatim", ("txt", b"a\nb"), b"$3\r\na\nb\r\n", b"=7\r\ntxt:a\nb\r\n"),
        ("boolean", (True,), b":1\r\n", b"#t\r\n"),
        ("boolean", (False,), b":0\r\n", b"#f\r\n"),
        ("big_number", (10**30,), b"$31\r\n1" + b"0" * 30 + b"\r\n", b"(1" + b"0" * 30 + b"\r\n"),
        ("bulk_str", ("h\u00e9",), b"$3\r\nh\xc3\xa9\r\n", b"$3\r\nh\xc3\xa9\r\n"),
        ("bulk_str", ("\udcff",), b"$1\r\n\xff\r\n", b"$1\r\n\xff\r\n"),
        ("bulk_array", ([],), b"*0\r\n", b"*0\r\n"),
        ("bulk_array", ([b"a", None],), b"*2\r\n$1\r\na\r\n$-1\r\n", b"*2\r\n$1\r\na\r\n_\r\n"),
        ("raw", (b":1\r\n",), b":1\r\n", b":1\r\n"),
        ("raw", (b"",), b"", b""),
        ("bulk_id", (0, 0), b"$3\r\n0-0\r\n", b"$3\r\n0-0\r\n"),
    ],
)
def test_a_reply_is_written_as_its_protocol_has_it(
    method: str, args: tuple[Any, ...], resp2: bytes, resp3: bytes
) -> None:
    assert written(2, method, *args) == resp2
    assert written(3, method, *args) == resp3


def test_python_values_become_nested_replies() -> None:
    value = [1, b"a", "OK", None, 1.5, True, {b"k": [b"v", ()]}, {7}, frozenset()]
    common = b"*9\r\n:1\r\n$1\r\na\r\n+OK\r\n"
    assert written(2, "value", value) == (
        common + b"$-1\r\n$3\r\n1.5\r\n:1\r\n*2\r\n$1\r\nk\r\n*2\r\n$1\r\nv\r\n*0\r\n*1\r\n:7\r\n*0\r\n"
    )
    assert written(3, "value", value) == (
        common + b"_\r\n,1.5\r\n#t\r\n%1\r\n$1\r\nk\r\n*2\r\n$1\r\nv\r\n*0\r\n~1\r\n:7\r\n~0\r\n"
    )


@pytest.mark.parametrize("value", [object(), [1, object()], {b"k": bytearray()}, [2**63]])
def test_a_value_without_a_reply_is_refused(value: Any) -> None:
    writer = ReplyWriter()
    with pytest.raises((TypeError, OverflowError)):
        writer.value(value)


def test_a_verbatim_format_has_three_letters() -> None:
    with pytest.raises(ValueError, match="three letters"):
        ReplyWriter(3).verbatim("text", b"")


# --- Numbers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", EDGES)
def test_numbers_at_their_edges(n: int) -> None:
    for value in (n, -n):
        if -(2**63) <= value < 2**63:
            text = b"%d" % value
            assert written(2, "integer", value) == b":%b\r\n" % text
            assert written(2, "bulk_int64", value) == b"$%d\r\n%b\r\n" % (len(text), text)
    if n < 2**64:
        for other in (0, 9, 10, n, 2**64 - 1):
            for ms, seq in ((n, other), (other, n)):
                text = b"%d-%d" % (ms, seq)
                assert written(2, "bulk_id", ms, seq) == b"$%d\r\n%b\r\n" % (len(text), text)


@given(value=INT64)
def test_integers_are_written_in_decimal(value: int) -> None:
    text = b"%d" % value
    assert written(3, "integer", value) == b":%b\r\n" % text
    assert written(3, "bulk_int64", value) == b"$%d\r\n%b\r\n" % (len(text), text)


@given(ms=UINT64, seq=UINT64)
def test_entry_ids_are_written_as_text(ms: int, seq: int) -> None:
    text = b"%d-%d" % (ms, seq)
    assert written(3, "bulk_id", ms, seq) == b"$%d\r\n%b\r\n" % (len(text), text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        # As a real Redis answers ZSCORE for them.
        (0.0, b"0"),
        (-0.0, b"-0"),
        (3.0, b"3"),
        (-1.5, b"-1.5"),
        (0.1, b"0.1"),
        (1e17, b"100000000000000000"),
        (1e18, b"1000000000000000000"),
        (2.0**62, b"4611686018427387904"),
        (2.0**62 + 1024, b"4611686018427389000"),
        (-(2.0**63), b"-9223372036854776000"),
        (1e19, b"1e+19"),
        (1.2345e20, b"1.2345e+20"),
        (1e100, b"1e+100"),
        (1.7976931348623157e308, b"1.7976931348623157e+308"),
        (5e-324, b"5e-324"),
        (1e-5, b"0.00001"),
        (1e-6, b"0.000001"),
        (1e-7, b"1e-7"),
        (1.5e-5, b"0.000015"),
        (1.5e-6, b"1.5e-6"),
        (0.00012345, b"1.2345e-4"),
        (-1.25e-9, b"-1.25e-9"),
        (1234567890123456.7, b"1234567890123456.7"),
        (1725529404.0087306, b"1.7255294040087307e+9"),
        (99999999999999990000000.0, b"99999999999999990000000"),
        (2.0**-1074 * 3, b"1.5e-323"),
        (12345.678901234567, b"1.2345678901234567e+4"),
        (math.inf, b"inf"),
        (-math.inf, b"-inf"),
        (math.nan, b"nan"),
    ],
)
def test_doubles_are_written_as_redis_writes_them(value: float, text: bytes) -> None:
    assert written(3, "double", value) == b",%b\r\n" % text
    assert written(2, "double", value) == b"$%d\r\n%b\r\n" % (len(text), text)


@given(value=st.floats(allow_nan=False))
def test_a_double_reads_back_as_the_same_number(value: float) -> None:
    assert float(written(3, "double", value)[1:]) == value


# --- Aggregates counted afterwards ------------------------------------------------------------------------------------


@pytest.mark.parametrize("expected", [0, 1, 9, 10, 99, 1000, 10**18])
@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 100, 4000])
def test_an_array_closed_with_another_count_than_expected_is_right(expected: int, count: int) -> None:
    writer = ReplyWriter()
    writer.integer(7)
    opened = writer.open_array(expected)
    for i in range(count):
        writer.integer(i % 10)
    writer.close_array(opened, count)
    writer.ok()
    writer.check_invariants()
    assert (
        writer.take() == b":7\r\n*%d\r\n" % count + b"".join(b":%d\r\n" % (i % 10) for i in range(count)) + b"+OK\r\n"
    )


def test_an_array_whose_header_grows_past_the_block_is_right() -> None:
    for filler in range(BLOCK - 40, BLOCK + 5):
        writer = ReplyWriter()
        opened = writer.open_array(1)
        writer.raw(b"x" * filler)
        writer.close_array(opened, 123_456_789)
        writer.check_invariants()
        assert writer.take() == b"*123456789\r\n" + b"x" * filler


def test_arrays_nest() -> None:
    writer = ReplyWriter()
    outer = writer.open_array(1)
    for _ in range(12):
        inner = writer.open_array(100)
        writer.ok()
        writer.close_array(inner, 1)
    writer.close_array(outer, 12)
    assert writer.take() == b"*12\r\n" + b"*1\r\n+OK\r\n" * 12


# --- The buffer -------------------------------------------------------------------------------------------------------


def test_an_empty_writer_holds_no_memory() -> None:
    writer = ReplyWriter()
    assert writer.allocated == 0
    writer.ok()
    assert writer.allocated == SMALL_BLOCK
    assert (len(writer), writer.length, writer.peek()) == (5, 5, b"+OK\r\n")
    assert writer.take() == b"+OK\r\n"
    assert writer.allocated == 0
    assert writer.take() == b""
    writer.ok()
    writer.clear()
    assert (writer.allocated, writer.peek()) == (0, b"")


def test_a_small_block_is_left_for_a_large_one() -> None:
    writer = ReplyWriter()
    said = b""
    for size in (SMALL_BLOCK - 100, 200, BLOCK - SMALL_BLOCK - 200, 300):
        writer.raw(b"%d " % size * size)
        said += b"%d " % size * size
        writer.check_invariants()
        assert writer.peek() == said
    writer = ReplyWriter()
    writer.raw(b"a" * 1000)
    writer.consume(600)
    writer.raw(b"b" * 100)
    assert (writer.allocated, writer.peek()) == (SMALL_BLOCK, b"a" * 400 + b"b" * 100)
    writer.raw(b"c" * 600)
    assert (writer.allocated, writer.take()) == (BLOCK, b"a" * 400 + b"b" * 100 + b"c" * 600)


def test_what_was_written_since_a_mark_can_be_dropped() -> None:
    writer = ReplyWriter()
    start = writer.mark()
    writer.ok()
    mark = writer.mark()
    writer.bulk(b"x" * 50_000)
    writer.truncate(mark)
    assert writer.peek() == b"+OK\r\n"
    writer.truncate(mark)
    writer.truncate(100)
    assert writer.peek() == b"+OK\r\n"
    writer.truncate(start)
    assert writer.allocated == 0
    writer.check_invariants()


@pytest.mark.parametrize(
    "size",
    [
        0,
        1,
        SMALL_BLOCK - 12,
        SMALL_BLOCK,
        SMALL_BLOCK + 1,
        BLOCK - 64,
        BLOCK - 7,
        BLOCK,
        BLOCK + 1,
        10 * BLOCK,
        3_000_000,
    ],
)
def test_a_reply_of_any_size_fits(size: int) -> None:
    writer = ReplyWriter()
    writer.ok()
    writer.bulk(b"x" * size)
    writer.check_invariants()
    assert writer.allocated <= (BLOCK if size < BLOCK - 100 else max(GREAT_BLOCK, 2 * (size + 100)))
    assert writer.take() == b"+OK\r\n$%d\r\n" % size + b"x" * size + b"\r\n"


def test_many_writers_share_a_bounded_number_of_free_blocks() -> None:
    writers = [ReplyWriter() for _ in range(5000)]
    for writer in writers:
        writer.ok()
    for writer in writers:
        assert writer.take() == b"+OK\r\n"
        writer.check_invariants()


def test_blocks_of_long_replies_are_kept_for_later_ones() -> None:
    writers = [ReplyWriter() for _ in range(200)]
    kept = []
    for _ in range(2):
        for writer in writers:
            writer.raw(b"x" * (2 * BLOCK))
            writer.raw(b"x" * (2 * BLOCK - 1))
            writer.check_invariants()
        held = allocated()
        for writer in writers:
            assert writer.allocated == GREAT_BLOCK
            writer.clear()
        kept.append(held - allocated())
    blocks = [freed // GREAT_BLOCK for freed in kept]
    assert blocks == [200 - 128] * 2


def test_a_writer_takes_a_great_block_at_once_after_a_long_reply() -> None:
    writer = ReplyWriter()
    seen = []
    for size in (BLOCK, BLOCK + 1, BLOCK, BLOCK):
        writer.raw(b"x" * (BLOCK - 1))
        seen.append(writer.allocated)
        writer.raw(b"x" * (size - BLOCK + 1))
        assert writer.take() == b"x" * size
    assert seen == [BLOCK, BLOCK, GREAT_BLOCK, BLOCK]


def test_a_writer_with_a_limit_below_a_great_block_has_none() -> None:
    writer = ReplyWriter()
    writer.set_limit(2 * BLOCK, None)
    writer.raw(b"x" * (BLOCK + 1))
    assert writer.allocated == 2 * BLOCK
    writer.raw(b"x" * BLOCK)
    assert writer.take() == b""


def test_blocks_that_nobody_takes_are_given_back_little_by_little() -> None:
    writers = [ReplyWriter() for _ in range(1000)]
    for writer in writers:
        writer.raw(b"x" * 2000)
    del writer
    writers.clear()
    give_back_idle_blocks()
    given = [give_back_idle_blocks() for _ in range(40)]
    assert given[0] >= 400
    assert sum(given) >= 1990
    assert given[-1] == 0
    ReplyWriter().ok()
    ReplyWriter().check_invariants()


def test_consuming_more_than_there_is_is_refused() -> None:
    writer = ReplyWriter()
    writer.ok()
    with pytest.raises(ValueError, match="more bytes consumed"):
        writer.consume(6)
    writer.consume(5)
    assert writer.allocated == 0
    with pytest.raises(ValueError, match="more bytes consumed"):
        writer.consume(1)


def test_a_slow_peer_does_not_make_the_buffer_grow_for_ever() -> None:
    writer = ReplyWriter()
    writer.raw(b"x" * 10_000)
    for _ in range(3000):
        writer.raw(b"y" * 1000)
        writer.consume(1000)
        writer.check_invariants()
    assert writer.length == 10_000
    assert writer.allocated <= 64 * 1024


def test_a_full_buffer_drained_as_fast_as_it_fills_takes_linear_time() -> None:
    # Were the unsent bytes moved for every piece, 10**12 bytes would be copied here.
    writer = ReplyWriter()
    writer.raw(b"x" * ((4 << 20) - 10))
    for _ in range(300_000):
        writer.consume(5)
        writer.ok()
    assert writer.length == (4 << 20) - 10
    writer.check_invariants()


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**32), resp=st.sampled_from([2, 3]))
def test_writing_consuming_and_truncating_keep_the_bytes_in_order(seed: int, resp: int) -> None:
    chance = random.Random(seed)
    writer = ReplyWriter(resp)
    want = b""
    for _ in range(60):
        what = chance.random()
        if what < 0.25:
            n = chance.randrange(len(want) + 1)
            writer.consume(n)
            want = want[n:]
        elif what < 0.35:
            mark = chance.randrange(len(want) + 1)
            writer.truncate(mark)
            want = want[:mark]
        elif what < 0.4:
            assert writer.take() == want
            want = b""
        elif what < 0.7:
            data = chance.randbytes(chance.choice([0, 1, 10, 1000, 20_000]))
            writer.bulk(data)
            want += b"$%d\r\n%b\r\n" % (len(data), data)
        else:
            count = chance.choice([0, 5, 50])
            opened = writer.open_array(chance.choice([0, 5, 50, 500]))
            for i in range(count):
                writer.bulk_id(i, seed)
            writer.close_array(opened, count)
            ids = [b"%d-%d" % (i, seed) for i in range(count)]
            want += b"*%d\r\n" % count + b"".join(b"$%d\r\n%b\r\n" % (len(i), i) for i in ids)
        writer.check_invariants()
        assert writer.peek() == want


# --- Limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [0, 1, 1000, BLOCK, 100_000])
@pytest.mark.parametrize("size", [1, 100, 20_000, 500_000])
def test_nothing_is_kept_beyond_a_limit(limit: int, size: int) -> None:
    told: list[int] = []
    writer = ReplyWriter()
    writer.set_limit(limit, lambda: told.append(1))
    wrote = 0
    while not writer.is_cut:
        writer.bulk(b"x" * size)
        wrote += size
        writer.check_invariants()
        assert wrote <= max(limit, BLOCK) + size
    assert told == [1]
    for _ in range(100):
        opened = writer.open_array(1)
        writer.value({"a": [1, 2.5, None, b"x" * size]})
        writer.close_array(opened, 12345)
        writer.error("ERR x" + size * "y")
        writer.check_invariants()
        assert writer.allocated <= max(BLOCK, size + 64)
    assert told == [1]
    writer.clear()
    assert writer.allocated == 0
    assert writer.is_cut


def test_what_is_within_the_limit_is_kept() -> None:
    writer = ReplyWriter()
    writer.set_limit(100_000, None)
    for _ in range(10):
        writer.raw(b"x" * 10_000)
    assert writer.take() == b"x" * 100_000
    assert not writer.is_cut
    writer.raw(b"x" * 100_000)
    writer.integer(1)
    assert writer.is_cut


def test_a_cut_writer_has_no_limit_to_be_given() -> None:
    writer = ReplyWriter()
    writer.cut()
    writer.set_limit(1000, None)
    writer.raw(b"x" * 100)
    assert writer.is_cut


def test_a_slow_reader_keeps_the_writer_within_twice_the_limit() -> None:
    writer = ReplyWriter()
    writer.set_limit(1_000_000, None)
    for _ in range(200):
        writer.raw(b"x" * 60_000)
        if len(writer) > 800_000:
            writer.consume(60_000)
        writer.check_invariants()
        assert writer.allocated <= 2_000_000
    assert not writer.is_cut


@pytest.mark.parametrize("seed", range(20))
def test_what_is_taken_in_pieces_is_what_was_written(seed: int) -> None:
    """However much waits, and however little of it is taken before more is written."""
    chance = random.Random(seed)
    writer = ReplyWriter()
    waiting = bytearray()
    most = 0
    for _ in range(300):
        data = chance.randbytes(chance.choice((1, 10, 1000, 20_000, 200_000)))
        writer.raw(data)
        waiting += data
        most = max(most, len(waiting))
        taken = min(chance.choice((0, 1, 100, 5000, 65536, 300_000)), len(waiting))
        writer.consume(taken)
        del waiting[:taken]
        writer.check_invariants()
        assert len(writer) == len(waiting)
        assert writer.allocated <= max(4 * most, BLOCK)
    assert writer.take() == bytes(waiting)
