"""What the sink makes of schemas, values and markers, without Spark running and without a server."""

# ruff: noqa: E402 - without PySpark all of this is skipped

from __future__ import annotations

import datetime
import decimal

import pytest

pytest.importorskip("pyspark")
pyarrow = pytest.importorskip("pyarrow")

import hiredis
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from streamd.client.client_errors import DeliveryError, OptionError
from streamd.spark.sink.keyed import key_capacity
from streamd.spark.sink.row_requests import RowPlan
from streamd.spark.sink.writer import StreamdStreamWriter, StreamdWriter
from streamd.spark.source.schema import DEFAULT_SCHEMA
from streamd.transfer.batch_rows import BatchRows
from streamd.transfer.marked import Marker
from streamd.transfer.trimming import parse_minid
from streamd.transfer.write_options import SinkOptions


def schema(**columns):
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def plan(table, **options):
    return RowPlan.of(table, SinkOptions.parse({"stream": "s", **options}))


def requests(made, batch, *, with_idmp=False):
    """What is sent for the rows of a batch, as lists of arguments."""
    reader = hiredis.Reader()
    rows = BatchRows(made, made.encoder(with_idmp=with_idmp), made.prepare(batch))
    reader.feed(rows.encode(0, batch.num_rows, b"q"))
    return [reader.gets() for _ in range(batch.num_rows)]


# --- Markers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("marker", [Marker(0, 0, 0), Marker(7, 4000, 0x9F3C2A11), Marker(7, 4000, 1, (3998, 3999))])
def test_a_marker_survives_its_text(marker):
    assert Marker.parse(b"k", marker.to_bytes()) == marker


def test_a_marker_that_is_not_there_is_before_the_first_batch():
    assert Marker.parse(b"k", None).batch == -1


@pytest.mark.parametrize("raw", [b"", b"7", b"7 4000", b"7 4000 xyz", b"7 4000 9f3c2a11 ,a", b"hello"])
def test_a_marker_of_another_making_is_refused_with_its_key(raw):
    with pytest.raises(DeliveryError, match="key k should hold a marker"):
        Marker.parse(b"k", raw)


# --- Numbers --------------------------------------------------------------------------------------------------------


def test_what_is_remembered_for_certain_is_below_what_fits():
    assert key_capacity(10_000, 1) == 10_000
    assert 0.95 * 2_560_000 < key_capacity(10_000, 256) < 2_560_000
    assert key_capacity(4, 256) == 4


@pytest.mark.parametrize(
    ("text", "number"),
    [("5-3", 5 << 64 | 3), ("5", 5 << 64), ("-1s", 9_000 << 64), ("1970-01-01T00:00:02Z", 2_000 << 64)],
)
def test_minid_is_an_id_or_a_time(text, number):
    assert parse_minid(text, 10_000) == number


# --- Which column is what -------------------------------------------------------------------------------------------


def test_a_table_of_the_source_is_written_by_its_fields_column():
    made = RowPlan.of(DEFAULT_SCHEMA, SinkOptions.parse({}))
    assert (made.stream, made.pairs, made.fields) == ("stream", "fields", ())


def test_columns_without_a_part_of_their_own_are_fields():
    table = schema(stream=StringType(), id=StringType(), k=LongType(), v=StringType())
    made = RowPlan.of(table, SinkOptions.parse({"idColumn": "id"}))
    assert (made.stream, made.entry_id, made.fields) == ("stream", "id", ("k", "v"))


def test_the_idempotency_key_stays_a_field():
    assert plan(schema(k=LongType(), v=StringType()), idempotencykey="k").fields == ("k", "v")


@pytest.mark.parametrize(
    ("columns", "options", "name"),
    [
        ({"v": StringType()}, {}, "stream"),
        ({"v": StringType(), "stream": LongType()}, {}, "streamColumn"),
        ({"v": StringType()}, {"stream": "s", "idcolumn": "id"}, "idColumn"),
        ({"v": StringType()}, {"stream": "s", "idempotencykey": "k"}, "idempotencyKey"),
        ({"v": ArrayType(LongType())}, {"stream": "s"}, "fieldsColumn"),
        ({"id": StringType()}, {"stream": "s", "idcolumn": "id"}, "fieldsColumn"),
        ({"k": ArrayType(LongType()), "v": StringType()}, {"stream": "s", "idempotencykey": "k"}, "idempotencyKey"),
    ],
)
def test_what_a_schema_lacks_is_said_with_the_options_name(columns, options, name):
    with pytest.raises(OptionError, match=f"option {name}: ") as caught:
        RowPlan.of(schema(**columns), SinkOptions.parse(options))
    assert caught.value.option == name


def test_a_stream_is_not_overwritten():
    with pytest.raises(OptionError, match="option mode"):
        StreamdWriter(schema(v=StringType()), SinkOptions.parse({"stream": "s"}), True)


@pytest.mark.parametrize("writer", [StreamdWriter, StreamdStreamWriter])
def test_a_wrong_minid_is_found_before_anything_is_written(writer):
    with pytest.raises(OptionError, match="option minId"):
        writer(schema(v=StringType()), SinkOptions.parse({"stream": "s", "minid": "yesterday"}), False)


# --- Values ---------------------------------------------------------------------------------------------------------

BERLIN_NOON = datetime.datetime(2024, 2, 29, 11, 0, 0, 5, datetime.UTC)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (pyarrow.array(["ä"]), "ä".encode()),
        (pyarrow.array([b"\xff\x00"]), b"\xff\x00"),
        (pyarrow.array(["a"], pyarrow.large_string()), b"a"),
        (pyarrow.array([-42], pyarrow.int8()), b"-42"),
        (pyarrow.array([2**63 - 1]), b"9223372036854775807"),
        (pyarrow.array([0.1]), b"0.1"),
        (pyarrow.array([1e20]), b"1e+20"),
        (pyarrow.array([float("nan")]), b"nan"),
        (pyarrow.array([True]), b"true"),
        (pyarrow.array([decimal.Decimal("-1.50")]), b"-1.50"),
        (pyarrow.array([datetime.date(2024, 2, 29)]), b"2024-02-29"),
        (pyarrow.array([BERLIN_NOON], pyarrow.timestamp("us", "Europe/Berlin")), b"2024-02-29T11:00:00.000005Z"),
        (pyarrow.array([BERLIN_NOON], pyarrow.timestamp("us", "UTC")), b"2024-02-29T11:00:00.000005Z"),
        (pyarrow.array([BERLIN_NOON.replace(tzinfo=None)], pyarrow.timestamp("us")), b"2024-02-29T11:00:00.000005"),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pyarrow.Array) else "",
)
def test_values_become_text(values, text):
    made = plan(schema(v=StringType()))
    assert requests(made, pyarrow.record_batch({"v": values})) == [[b"XADD", b"s", b"*", b"v", text]]


def test_nulls_are_left_out_or_empty_or_refused():
    table = schema(a=LongType(), b=StringType())
    batch = pyarrow.record_batch({"a": pyarrow.array([1, None]), "b": pyarrow.array([None, "x"])})
    assert [each[3:] for each in requests(plan(table), batch)] == [[b"a", b"1"], [b"b", b"x"]]
    empty = [each[3:] for each in requests(plan(table, nullvalues="empty"), batch)]
    assert empty == [[b"a", b"1", b"b", b""], [b"a", b"", b"b", b"x"]]
    with pytest.raises(OptionError, match="option nullValues: row 0"):
        requests(plan(table, nullvalues="fail"), batch)


def test_a_row_of_nulls_is_no_entry():
    with pytest.raises(OptionError, match="row 1: an entry needs at least one field"):
        requests(plan(schema(a=StringType())), pyarrow.record_batch({"a": ["x", None]}))


PAIR = StructType([StructField("field", BinaryType()), StructField("value", BinaryType())])


def test_pairs_keep_their_order_and_their_duplicates():
    kind = pyarrow.list_(pyarrow.struct([("field", pyarrow.binary()), ("value", pyarrow.binary())]))
    pairs = [{"field": b"b", "value": b"\xff"}, {"field": b"a", "value": b""}, {"field": b"b", "value": b"2"}]
    batch = pyarrow.record_batch({"fields": pyarrow.array([[], pairs], kind)}).slice(1)
    found = requests(plan(schema(fields=ArrayType(PAIR))), batch)
    assert found == [[b"XADD", b"s", b"*", b"b", b"\xff", b"a", b"", b"b", b"2"]]


@pytest.mark.parametrize("start", [0, 1])
def test_a_map_of_numbers_is_an_entry(start):
    kind = pyarrow.map_(pyarrow.string(), pyarrow.float64())
    batch = pyarrow.record_batch({"fields": pyarrow.array([[("x", 0.0)], [("a", 1.5), ("b", 2.0)]], kind)}).slice(start)
    found = requests(plan(schema(fields=MapType(StringType(), LongType()))), batch)
    assert found[-1][3:] == [b"a", b"1.5", b"b", b"2"]


@pytest.mark.parametrize(
    ("column", "option", "values"),
    [
        ("stream", "streamColumn", ["s", None]),
        ("id", "idColumn", ["1-1", None]),
        ("id", "idColumn", ["1-1", ""]),
        ("k", "idempotencyKey", ["a", None]),
        ("k", "idempotencyKey", ["a", ""]),
    ],
)
def test_a_row_without_stream_id_or_key_is_refused_with_the_options_name(column, option, values):
    options = {} if column == "stream" else {"stream": "s", option.lower(): column}
    made = RowPlan.of(schema(**{column: StringType(), "v": StringType()}), SinkOptions.parse(options))
    with pytest.raises(OptionError, match=f"option {option}: ") as caught:
        made.prepare(pyarrow.record_batch({column: values, "v": ["x", "y"]}))
    assert caught.value.option == option


def test_what_goes_before_the_id():
    table = schema(k=StringType(), t=TimestampType())
    batch = pyarrow.record_batch({"k": ["a"], "t": pyarrow.array([BERLIN_NOON], pyarrow.timestamp("us", "UTC"))})
    made = plan(table, createstream="false", idempotencykey="k", idempotencyproducers="1")
    assert requests(made, batch, with_idmp=True)[0][:7] == [b"XADD", b"s", b"NOMKSTREAM", b"IDMP", b"q", b"a", b"*"]


def test_a_key_has_the_same_producer_wherever_its_row_is():
    made = plan(schema(k=StringType()), idempotencykey="k", idempotencyproducers="8")
    one = requests(made, pyarrow.record_batch({"k": [f"key-{n}" for n in range(100)]}), with_idmp=True)
    other = requests(made, pyarrow.record_batch({"k": [f"key-{n}" for n in reversed(range(100))]}), with_idmp=True)
    producer_of = {each[4]: each[3] for each in one}
    assert producer_of == {each[4]: each[3] for each in other}
    assert set(producer_of.values()) == {b"q:%d" % n for n in range(8)}
