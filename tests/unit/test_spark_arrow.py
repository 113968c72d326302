"""The compiled coders: replies to record batches, and record batches to requests, against plain Python."""

from __future__ import annotations

import datetime
import itertools
import math
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import hiredis
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from pyspark.sql.types import (  # noqa: E402
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from streamd.arrow.decode import EntryDecoder  # noqa: E402
from streamd.arrow.encode import XAddEncoder  # noqa: E402
from streamd.arrow.recast import RowCaster  # noqa: E402
from streamd.client.client_errors import MalformedError, ServerError  # noqa: E402
from streamd.errors import ProtocolError  # noqa: E402
from streamd.spark.source.schema import DEFAULT_SCHEMA, arrow_schema, table_layout  # noqa: E402
from streamd.transfer.read_options import SourceOptions  # noqa: E402

Entry = tuple[tuple[int, int], list[tuple[bytes, bytes]]]

HALVES = st.integers(0, 2**64 - 1) | st.integers(0, 20)
STRINGS = st.binary(max_size=12) | st.binary(min_size=60, max_size=200)
ENTRIES = st.lists(st.tuples(st.tuples(HALVES, HALVES), st.lists(st.tuples(STRINGS, STRINGS), max_size=5)), max_size=8)


def bulk(text: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(text), text)


def reply_of(entries: Sequence[Entry]) -> bytes:
    """An XRANGE reply, written the obvious way."""
    parts = [b"*%d\r\n" % len(entries)]
    for (ms, seq), fields in entries:
        parts += [b"*2\r\n", bulk(b"%d-%d" % (ms, seq)), b"*%d\r\n" % (2 * len(fields))]
        parts += [bulk(each) for pair in fields for each in pair]
    return b"".join(parts)


def decoder_of(schema: StructType, mode: str = "PERMISSIVE", **more: Any) -> EntryDecoder:
    layout = table_layout(schema, SourceOptions.parse({"stream": "key", "mode": mode}))
    return EntryDecoder(layout, b"key", **more)


def feed(decoder: EntryDecoder, data: bytes) -> bool:
    is_whole = False
    while data:
        space = decoder.space()
        part = data[: len(space)]
        space[: len(part)] = part
        is_whole = decoder.advance(len(part))
        decoder.check_invariants()
        data = data[len(part) :]
    return is_whole


def rows_of(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """The default table, made the obvious way."""
    return [
        {
            "id": f"{ms}-{seq}",
            "ms": ms if ms < 2**63 else None,
            "seq": seq if seq < 2**63 else None,
            "time": ms * 1000 if ms <= (2**63 - 1) // 1000 else None,
            "stream": "key",
            "fields": [{"field": field, "value": value} for field, value in fields],
        }
        for (ms, seq), fields in entries
    ]


def as_rows(batch: Any) -> list[dict[str, Any]]:
    batch.validate(full=True)
    # Years beyond 9999 have no Python datetime.
    at = batch.schema.get_field_index("time")
    return batch.set_column(at, "time", batch.column(at).cast(pa.int64())).to_pylist()


@settings(deadline=None)
@given(ENTRIES, st.data())
def test_replies_become_rows_however_they_are_cut(entries: list[Entry], data: st.DataObject) -> None:
    reply = reply_of(entries)
    cuts = sorted({0, len(reply), *data.draw(st.lists(st.integers(0, len(reply)), max_size=6))})
    decoder = decoder_of(DEFAULT_SCHEMA)
    whole = [feed(decoder, reply[start:end]) for start, end in itertools.pairwise(cuts)]
    assert whole == [False] * (len(whole) - 1) + [True]
    assert (decoder.rows, decoder.total_entries, decoder.reply_entries) == (len(entries),) * 3
    assert as_rows(decoder.take()) == rows_of(entries)
    assert decoder.take().num_rows == 0


def test_a_reply_comes_byte_by_byte_and_another_follows() -> None:
    entries: list[Entry] = [((1, 2), [(b"a", b"b")]), ((3, 4), [(b"c" * 300_000, b"d"), (b"", b"")])]
    decoder = decoder_of(DEFAULT_SCHEMA)
    reply = reply_of(entries[:1])
    assert [feed(decoder, reply[at : at + 1]) for at in range(len(reply))] == [False] * (len(reply) - 1) + [True]
    assert feed(decoder, reply_of(entries[1:]))
    assert as_rows(decoder.take()) == rows_of(entries)
    assert (decoder.first_id, decoder.last_id) == (1 << 64 | 2, 3 << 64 | 4)


def test_rows_are_taken_in_the_middle_of_a_reply_and_a_broken_one_is_forgotten() -> None:
    entries: list[Entry] = [((at, 0), [(b"n", b"%d" % at)]) for at in range(10)]
    decoder = decoder_of(DEFAULT_SCHEMA)
    cut = len(reply_of(entries)) - 3
    assert not feed(decoder, reply_of(entries)[:cut])
    assert as_rows(decoder.take()) == rows_of(entries[:9])
    decoder.reset()
    assert decoder.last_id == 8 << 64
    assert feed(decoder, reply_of(entries[9:]))
    assert as_rows(decoder.take()) == rows_of(entries[9:])


def test_marks_are_noted_without_rows() -> None:
    entries: list[Entry] = [((at, 1), [(b"n", b"x" * at)]) for at in range(1, 11)]
    decoder = EntryDecoder(None, b"key", every=4)
    feed(decoder, reply_of(entries))
    assert decoder.marks == [at << 64 | 1 for at in (1, 5, 9)]
    sizes = [len(reply_of([each])) - len(b"*1\r\n") for each in entries]
    assert decoder.mark_bytes == [sum(sizes[:at]) for at in (0, 4, 8)]
    assert decoder.total_bytes == sum(sizes)


def test_errors_and_other_bytes() -> None:
    decoder = decoder_of(DEFAULT_SCHEMA)
    with pytest.raises(ServerError, match="WRONGTYPE no stream"):
        feed(decoder, b"-WRONGTYPE no stream\r\n")
    assert feed(decoder, b"*0\r\n")
    for wrong in (
        b"+OK\r\n",
        b"*x\r\n",
        b"*1\r\n*3\r\n",
        b"*1\r\n*2\r\n$1\r\n5\r\n*0\r\n",
        b"*1\r\n*2\r\n$3\r\n5-1\r\n*1\r\n",
    ):
        decoder = decoder_of(DEFAULT_SCHEMA)
        with pytest.raises(ProtocolError, match="the server's answer is not a reply to XRANGE"):
            feed(decoder, wrong)


@settings(deadline=None)
@given(st.binary(max_size=40))
def test_garbage_is_refused_or_waited_for(data: bytes) -> None:
    decoder = decoder_of(DEFAULT_SCHEMA)
    try:
        feed(decoder, b"*1\r\n*2\r\n" + data)
    except (ProtocolError, ServerError):
        return
    decoder.check_invariants()


# --- Casts ----------------------------------------------------------------------------------------------------------------


def cast(kind: DataType, *texts: bytes) -> list[Any]:
    """What texts become in a column of a type; "no" where they are refused."""
    schema = StructType().add("x", kind).add("_corrupt_record", StringType())
    decoder = decoder_of(schema)
    feed(decoder, reply_of([((1, at), [(b"x", text)]) for at, text in enumerate(texts)]))
    batch = decoder.take()
    batch.validate(full=True)
    assert batch.schema == arrow_schema(schema)
    return [row["x"] if row["_corrupt_record"] is None else "no" for row in batch.to_pylist()]


@pytest.mark.parametrize(("kind", "bits"), [(ByteType(), 8), (ShortType(), 16), (IntegerType(), 32), (LongType(), 64)])
def test_integers(kind: DataType, bits: int) -> None:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    texts = [b"%d" % each for each in (low, high, low - 1, high + 1, 0, -1)]
    assert cast(kind, *texts) == [low, high, "no", "no", 0, -1]
    assert cast(kind, b" 12\t", b"+5", b"", b"-", b"1.0", b"0x1", b"1 2", b"9" * 40, b"007") == [
        12, 5, "no", "no", "no", "no", "no", "no", 7
    ]  # fmt: skip


@settings(deadline=None)
@given(st.floats() | st.decimals(allow_nan=False, allow_infinity=False).map(str))
def test_doubles_are_what_python_reads(value: float | str) -> None:
    text = repr(value) if isinstance(value, float) else value
    (found,) = cast(DoubleType(), text.encode())
    assert found == float(text) or (math.isnan(found) and math.isnan(float(text)))


def test_what_is_no_double() -> None:
    assert (
        cast(DoubleType(), b"", b".", b"1e", b"1e+", b"0x1p3", b"1_0", b"1,5", b"nan(1)", b"--1", b"1.2.3")
        == ["no"] * 10
    )
    assert cast(DoubleType(), b".5", b"5.", b" -Infinity ", b"INF", b"1e400", b"1E-400") == [
        0.5, 5.0, -math.inf, math.inf, math.inf, 0.0
    ]  # fmt: skip
    assert cast(FloatType(), b"0.1") == [pytest.approx(0.1, rel=1e-7)]


def test_booleans_strings_and_dates() -> None:
    assert cast(BooleanType(), b"true", b"F", b"Yes", b"0", b" 1 ", b"2", b"") == [
        True,
        False,
        True,
        False,
        True,
        "no",
        "no",
    ]
    assert cast(StringType(), b"", "ü".encode()) == ["", "ü"]
    assert cast(BinaryType(), b"\xff\x00") == [b"\xff\x00"]
    assert cast(DateType(), b"2024-02-29", b"2023-02-29", b"0001-01-01", b"0000-01-01", b"2024-1-1", b"1969-12-31") == [
        datetime.date(2024, 2, 29), "no", datetime.date(1, 1, 1), "no", "no", datetime.date(1969, 12, 31)
    ]  # fmt: skip


@settings(deadline=None)
@given(st.dates())
def test_dates_are_what_python_reads(day: datetime.date) -> None:
    assert cast(DateType(), day.isoformat().encode()) == [day]


@given(st.datetimes(timezones=st.timezones()))
@settings(max_examples=50, deadline=None)
def test_timestamps_are_what_python_reads(moment: datetime.datetime) -> None:
    offset = moment.utcoffset() or datetime.timedelta()
    if offset.total_seconds() % 60 or not 1 < moment.year < 9999:
        return
    (found,) = cast(TimestampType(), moment.isoformat().encode())
    assert found == datetime.datetime.fromisoformat(moment.isoformat())  # its offset, not its zone


def test_timestamps_in_other_forms() -> None:
    day = datetime.datetime(2024, 2, 29, tzinfo=datetime.UTC)
    assert (
        cast(TimestampType(), b"1709164800000", b"2024-02-29", b"2024-02-29 00:00", b"2024-02-29T01:00:00.000000999+01")
        == [day] * 4
    )
    assert (
        cast(TimestampType(), b"2024-02-29T24:00", b"2024-02-29T", b"2024-02-29T10:00:00.", b"2024-02-29X10:00", b"x")
        == ["no"] * 5
    )


@settings(deadline=None)
@given(st.decimals(allow_nan=False, allow_infinity=False, places=5, min_value=-(10**8), max_value=10**8))
def test_decimals_are_rounded_half_away_from_zero(value: Decimal) -> None:
    want = value.quantize(Decimal("0.01"), rounding="ROUND_HALF_UP")
    assert cast(DecimalType(12, 2), str(value).encode()) == [want]


def test_decimals_at_their_bounds() -> None:
    assert cast(DecimalType(3, 1), b"99.94", b"99.95", b"-99.9", b"1e1", b"1E-1", b"100", b"", b".", b"1e", b"0e99") == [
        Decimal("99.9"), "no", Decimal("-99.9"), Decimal("10.0"), Decimal("0.1"), "no", "no", "no", "no", Decimal("0.0")
    ]  # fmt: skip
    assert cast(DecimalType(38, 0), b"9" * 38, b"9" * 39, b"-" + b"9" * 38) == [
        Decimal(10**38 - 1), "no", Decimal(1 - 10**38)
    ]  # fmt: skip


def test_fields_are_found_wherever_they_stand_and_the_last_one_counts() -> None:
    schema = StructType().add("a", StringType()).add("b", IntegerType()).add("id", StringType())
    decoder = decoder_of(schema)
    feed(decoder, reply_of([
        ((1, 0), [(b"a", b"x"), (b"b", b"1")]), ((2, 0), [(b"b", b"2"), (b"c", b""), (b"a", b"y")]),
        ((3, 0), [(b"a", b"p"), (b"a", b"q")]), ((4, 0), []),
    ]))  # fmt: skip
    assert decoder.take().to_pylist() == [
        {"a": "x", "b": 1, "id": "1-0"}, {"a": "y", "b": 2, "id": "2-0"}, {"a": "q", "b": None, "id": "3-0"},
        {"a": None, "b": None, "id": "4-0"},
    ]  # fmt: skip


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([b"1", b"x", b"", None]), st.sampled_from([b"true", b"?", None])), max_size=30)
)
def test_rows_that_do_not_fit_are_dropped_whole(values: list[tuple[bytes | None, bytes | None]]) -> None:
    schema = StructType().add("n", IntegerType()).add("ok", BooleanType()).add("id", StringType())
    schema = schema.add("fields", MapType(BinaryType(), BinaryType()))
    entries: list[Entry] = [
        ((1, at), [(name, value) for name, value in ((b"n", n), (b"ok", ok)) if value is not None])
        for at, (n, ok) in enumerate(values)
    ]
    want = [
        {"n": 1 if n else None, "ok": True if ok else None, "id": f"1-{at}", "fields": entries[at][1]}
        for at, (n, ok) in enumerate(values)
        if n in (None, b"1") and ok in (None, b"true")
    ]
    decoder = decoder_of(schema, mode="DROPMALFORMED")
    feed(decoder, reply_of(entries))
    batch = decoder.take()
    batch.validate(full=True)
    assert batch.to_pylist() == want
    assert decoder.total_entries == len(values)


def test_a_row_that_does_not_fit_fails_with_its_place() -> None:
    decoder = decoder_of(StructType().add("a", StringType()).add("n", IntegerType()), mode="FAILFAST")
    with pytest.raises(MalformedError, match="entry 1-1 of stream key: field n is not of type int32: b'x'"):
        feed(decoder, reply_of([((1, 0), [(b"n", b"1")]), ((1, 1), [(b"a", b"x"), (b"n", b"x")])]))


def test_what_did_not_fit_is_kept_as_json() -> None:
    schema = StructType().add("n", IntegerType()).add("_corrupt_record", StringType())
    decoder = decoder_of(schema)
    feed(decoder, reply_of([((1, 0), [(b"n", b'"\xff'), (b"n", b"x")])]))
    assert decoder.take().to_pylist() == [{"n": None, "_corrupt_record": '{"n":"\\"\\\\xff","n":"x"}'}]


# --- Rows of an archive ---------------------------------------------------------------------------------------------------

NAMES = st.sampled_from([b"s", b"n", b"d", b"b", b"t", b"x", b"\xff"])
CASTS = st.sampled_from([b"", b"1", b" 7 ", b"-2.5e3", b"yes", b"x", b"2024-02-29T12:30:00Z", b"\xff", b"9" * 30])
ARCHIVED = st.lists(st.tuples(st.tuples(HALVES, HALVES), st.lists(st.tuples(NAMES, CASTS), max_size=80)), max_size=12)

TYPED = StructType()
for _name, _kind in {
    "id": StringType(), "ms": DecimalType(20, 0), "seq": LongType(), "time": TimestampType(), "stream": BinaryType(),
    "s": StringType(), "n": IntegerType(), "d": DoubleType(), "b": BooleanType(), "t": TimestampType(),
}.items():  # fmt: skip
    TYPED.add(_name, _kind)

TABLES = {
    "default": DEFAULT_SCHEMA,
    "typed": TYPED,
    "with what does not fit": StructType().add("n", ByteType()).add("_corrupt_record", StringType()),
    "a map": StructType().add("fields", MapType(StringType(), BinaryType())).add("d", DecimalType(5, 2)),
}


def archived(entries: Sequence[Entry]) -> pa.RecordBatch:
    """Entries as lossless rows."""
    return pa.RecordBatch.from_pylist(rows_of(entries), arrow_schema(DEFAULT_SCHEMA))


def all_rows(decoder: EntryDecoder, data: bytes) -> pa.RecordBatch:
    feed(decoder, data)
    return decoder.take()


@settings(deadline=None, max_examples=40)
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED", "FAILFAST"])
@given(ARCHIVED, st.integers(0, 12), st.integers(0, 12))
def test_archived_rows_become_what_replies_become(
    table: str, mode: str, entries: list[Entry], start: int, count: int
) -> None:
    layout = table_layout(TABLES[table], SourceOptions.parse({"stream": "key", "mode": mode}))
    caster, decoder = RowCaster(layout, b"key"), EntryDecoder(layout, b"key")
    # A slice, as readers take them at the edges of a range; and again, since a caster is used for many batches.
    batch = archived(entries).slice(start, count)
    for some, data in ((batch, entries[start : start + count]), (archived(entries), entries)):
        try:
            want = all_rows(decoder, reply_of(data))
        except MalformedError as error:
            with pytest.raises(MalformedError, match=f"^{re.escape(str(error))}$"):
                caster.cast(some.column("id"), some.column("fields"))
            return
        made = caster.cast(some.column("id"), some.column("fields"))
        made.validate()
        assert made.equals(want)


def test_columns_that_are_no_archived_rows_are_refused() -> None:
    batch = archived([((at, 0), [(b"n", b"1")]) for at in range(3)])
    ids, fields = batch.column("id"), batch.column("fields")
    caster = RowCaster(table_layout(TYPED, SourceOptions.parse({"stream": "key"})), b"key")
    for wrong in (batch.column("ms"), ids.slice(1), pa.array(["1-1", None, "2-2"])):
        with pytest.raises(TypeError, match=r"expected (strings or binaries without nulls|the fields of 2 rows)"):
            caster.cast(wrong, fields)
    with pytest.raises(ValueError, match="x is not an entry ID"):
        caster.cast(pa.array(["1-1", "x", "2-2"]), fields)


# --- Encoding -------------------------------------------------------------------------------------------------------------

CELLS = st.none() | st.binary(max_size=30)


@settings(deadline=None)
@given(st.lists(st.tuples(st.text(max_size=5), CELLS, CELLS), min_size=1, max_size=20), st.data())
def test_columns_become_requests(rows: list[tuple[str, bytes | None, bytes | None]], data: st.DataObject) -> None:
    columns = list(zip(*rows, strict=True))
    arrays = [
        pa.array(columns[0], pa.string()),
        pa.array(columns[1], pa.binary()),
        pa.array(columns[2], pa.large_binary()),
    ]
    skipped = data.draw(st.integers(0, len(rows) - 1))
    batch = pa.RecordBatch.from_arrays(arrays, ["key", "a", "b"]).slice(skipped)
    encoder = XAddEncoder(
        key=None,
        key_column=0,
        field_names=[b"a", b"b"],
        field_columns=[1, 2],
        options=[b"MAXLEN", b"5"],
        null_values="empty",
    )
    want = [
        hiredis.pack_command(("XADD", key, "MAXLEN", "5", "*", "a", a or b"", "b", b or b""))
        for key, a, b in rows[skipped:]
    ]
    assert encoder.encode(batch) == b"".join(want)
    assert encoder.encode(batch, 1, 2) == b"".join(want[1:2])


@settings(deadline=None)
@given(
    st.lists(st.lists(st.tuples(st.binary(max_size=9), CELLS), min_size=1, max_size=4), min_size=1, max_size=9),
    st.booleans(),
)
def test_pairs_become_requests(rows: list[list[tuple[bytes, bytes | None]]], as_map: bool) -> None:
    rows = [[(b"first", b"1"), *row] for row in rows]
    struct = pa.struct([("field", pa.binary()), ("value", pa.binary())])
    fields = (
        pa.array(rows, pa.map_(pa.binary(), pa.binary()))
        if as_map
        else pa.array([[{"field": f, "value": v} for f, v in row] for row in rows], pa.list_(struct))
    )
    ids = [f"{at}-1" for at in range(len(rows))]
    batch = pa.RecordBatch.from_arrays([pa.array(ids), fields], ["id", "fields"])
    want = [
        hiredis.pack_command(("XADD", "k", each, *(x for f, v in row if v is not None for x in (f, v))))
        for each, row in zip(ids, rows, strict=True)
    ]
    assert XAddEncoder(key=b"k", id_column=0, fields_column=1).encode(batch) == b"".join(want)


def test_an_idempotency_key_stands_before_the_id() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array(["one"]), pa.array(["v"])], ["key", "f"])
    encoder = XAddEncoder(key=b"k", field_names=[b"f"], field_columns=[1], idempotency_column=0)
    assert encoder.encode(batch, producer_id=b"me") == hiredis.pack_command(
        ("XADD", "k", "IDMP", "me", "one", "*", "f", "v")
    )


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"key": b"k", "field_names": [b"a"], "field_columns": [1]}, "row 0: an entry needs at least one field"),
        ({"key": b"k", "field_names": [b"a"], "field_columns": [1], "null_values": "fail"}, "row 0: a value is null"),
        (
            {"key": None, "key_column": 1, "field_names": [b"a"], "field_columns": [0]},
            "row 0: the name of the stream is null",
        ),
        ({"key": b"k", "id_column": 1, "field_names": [b"a"], "field_columns": [0]}, "row 0: the ID"),
        ({"key": None}, "a key, or a column of keys, is needed"),
    ],
)
def test_rows_that_are_no_entries_are_refused(arguments: dict[str, Any], text: str) -> None:
    batch = pa.RecordBatch.from_arrays([pa.array(["x"]), pa.array([None], pa.string())], ["a", "b"])
    with pytest.raises(ValueError, match=text):
        XAddEncoder(**arguments).encode(batch)


def test_columns_of_other_types_are_refused() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1])], ["a"])
    with pytest.raises(TypeError, match="column a must be string or binary"):
        XAddEncoder(key=b"k", field_names=[b"a"], field_columns=[0]).encode(batch)
