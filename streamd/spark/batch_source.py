"""`format("streamd")`: the data source, and its batch reader.

    StreamdDataSource           what Spark is given; opens the readers and writers
    PushingStreamdDataSource    the same, whose batch reader takes filters; `register(spark, pushdown=True)` chooses it
    RangesReader                partitions, and the record batches of each

Spark makes these objects in several processes and several times over, and pickles them from one to the other. So
constructors only read options: no connection, no clock. What depends on the time (`-1h`, `latest`) is settled once, in
`partitions`, and is part of the partitions from then on.

Filters come to `pushFilters` when spark.sql.python.filterPushdown.enabled is set, and only then may a reader have that
method; hence two classes of each. A filter narrows the ranges that are read; Spark still applies all of them itself. It is
not the default, because PySpark 4.3 keeps the plan of a DataFrame's first use: what a filter narrowed once stays narrow for
every other use of the same DataFrame (seen: `loaded.where("ms > 90").union(loaded)` had the filtered rows twice). For the same
reason a DataFrame goes on reading the entries that were there when it was used first; load it anew to see later ones.

This module is imported with the first use of any Python data source (through the package pyspark_streamd), so what is
heavy is imported where it is used.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)
from pyspark.sql.types import StructType

from streamd.spark.errors import DataLossError
from streamd.spark.ids import MAX_ID, MIN_ID, first_id_of, last_id_of, ms_of, parse_entry_id
from streamd.spark.options import SinkOptions, SourceOptions

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.datasource import DataSourceStreamReader, DataSourceStreamWriter, DataSourceWriter

    from streamd.spark.connect import Connection

__all__ = ["Bounds", "PushingStreamdDataSource", "RangesReader", "StreamdDataSource", "bounds_of_filters"]


class StreamdDataSource(DataSource):
    """The data source `streamd`: see streamd.spark.options for what it can be told."""

    pushes_filters = False

    @classmethod
    def name(cls) -> str:
        return "streamd"

    def schema(self) -> StructType:
        from streamd.spark.schema import default_schema

        return default_schema(SourceOptions.parse(self.options).metadata_prefix)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = SourceOptions.parse(self.options)
        pushes = self.pushes_filters if options.pushdown is None else options.pushdown
        if options.archive is not None:
            from streamd.spark.history import HistoryReader, PushingHistoryReader

            return (PushingHistoryReader if pushes else HistoryReader)(options, schema)
        return (PushingRangesReader if pushes else RangesReader)(schema, options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from streamd.spark.stream_source import StreamdStreamReader

        return StreamdStreamReader(schema, SourceOptions.parse(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from streamd.spark.sink import StreamdWriter

        return StreamdWriter(schema, SinkOptions.parse(self.options), overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from streamd.spark.sink import StreamdStreamWriter

        return StreamdStreamWriter(schema, SinkOptions.parse(self.options), overwrite)


class PushingStreamdDataSource(StreamdDataSource):
    """The data source for sessions in which Spark hands filters to Python readers."""

    pushes_filters = True


# --- Filters --------------------------------------------------------------------------------------------------------------


class Bounds:
    """What filters leave of the ranges: never less than they let through, so that Spark may apply them once more.

    low, high      inclusive IDs
    streams        the only streams that are wanted, or None
    stream_prefix  what their names begin with
    id_texts       conditions on `id` as text, `(operator, text)`, for `of_id_texts`
    """

    def __init__(self) -> None:
        self.low = MIN_ID
        self.high = MAX_ID
        self.streams: set[str] | None = None
        self.stream_prefix = ""
        self.id_texts: list[tuple[str, str]] = []

    def narrow(self, low: int, high: int) -> None:
        self.low, self.high = max(self.low, low), min(self.high, high)

    def only_streams(self, names: Iterable[str]) -> None:
        self.streams = set(names) if self.streams is None else self.streams & set(names)

    def wants(self, stream: str) -> bool:
        return (self.streams is None or stream in self.streams) and stream.startswith(self.stream_prefix)

    def of_id_texts(self, first: int, last: int) -> tuple[int, int]:
        """What the conditions on `id` as text leave of [first, last], the extent of a stream.

        Text order is ID order as far as all the numbers have the same number of digits, which those of milliseconds have
        from 2001 to 2286; otherwise nothing is narrowed. Within one millisecond it never is.
        """
        digits = len(str(ms_of(first)))
        if digits != len(str(ms_of(last))):
            return first, last
        low, high = first, last
        for operator, text in self.id_texts:
            ms_text = text.partition("-")[0]
            if not (ms_text.isascii() and ms_text.isdigit()):
                continue
            if operator == "prefix" and ("-" in text or len(ms_text) <= digits):
                padding = digits - len(ms_text)
                low = max(low, first_id_of(int(ms_text + "0" * padding)))
                high = min(high, last_id_of(int(ms_text + "9" * padding)))
            elif len(ms_text) == digits and operator == "from":
                low = max(low, first_id_of(int(ms_text)))
            elif len(ms_text) == digits and operator == "to":
                high = min(high, last_id_of(int(ms_text)))
        return low, high


def bounds_of_filters(filters: Iterable[Filter], prefix: str) -> Bounds:
    """What can be read off filters on the metadata columns; other filters say nothing."""
    bounds = Bounds()
    for each in filters:
        attribute: tuple[str, ...] = getattr(each, "attribute", ())
        if len(attribute) == 1 and attribute[0].startswith(prefix):
            column = attribute[0].removeprefix(prefix)
            if column == "ms":
                _narrow_by_ms(bounds, each)
            elif column == "time":
                _narrow_by_time(bounds, each)
            elif column == "id":
                _narrow_by_id(bounds, each)
            elif column == "stream":
                _narrow_by_stream(bounds, each)
    return bounds


def _narrow_by_number(bounds: Bounds, each: Filter, of: Any) -> None:
    """Narrow by a filter on a column that grows with the ID; `of(value)` are the lowest and highest ms it can mean."""
    if isinstance(each, EqualTo):
        low, high = of(each.value)
        bounds.narrow(first_id_of(low), last_id_of(high))
    elif isinstance(each, In):
        spans = [of(value) for value in each.value if value is not None]
        if spans:
            bounds.narrow(first_id_of(min(low for low, _ in spans)), last_id_of(max(high for _, high in spans)))
    elif isinstance(each, GreaterThan | GreaterThanOrEqual):
        bounds.narrow(first_id_of(of(each.value)[0]), MAX_ID)
    elif isinstance(each, LessThan | LessThanOrEqual):
        bounds.narrow(MIN_ID, last_id_of(of(each.value)[1]))


def _narrow_by_ms(bounds: Bounds, each: Filter) -> None:
    def of(value: Any) -> tuple[int, int]:
        return int(value), int(value)

    if isinstance(each, GreaterThan):
        bounds.narrow(first_id_of(int(each.value) + 1), MAX_ID)
    elif isinstance(each, LessThan):
        # Nothing is below the first millisecond.
        bounds.narrow(MIN_ID, first_id_of(int(each.value)) - 1)
    else:
        _narrow_by_number(bounds, each, of)


def _narrow_by_time(bounds: Bounds, each: Filter) -> None:
    def of(value: datetime) -> tuple[int, int]:
        moment = value if value.tzinfo is not None else value.astimezone()
        ms = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
        return ms, ms + 1

    values = each.value if isinstance(each, In) else [getattr(each, "value", None)]
    if all(isinstance(value, datetime) for value in values):
        _narrow_by_number(bounds, each, of)


def _narrow_by_id(bounds: Bounds, each: Filter) -> None:
    if isinstance(each, EqualTo | In):
        values = each.value if isinstance(each, In) else [each.value]
        try:
            numbers = [parse_entry_id(value) for value in values if value is not None]
        except ValueError:
            return  # no ID is written like that; Spark finds nothing by itself
        if numbers:
            bounds.narrow(min(numbers), max(numbers))
    elif isinstance(each, GreaterThan | GreaterThanOrEqual):
        bounds.id_texts.append(("from", each.value))
    elif isinstance(each, LessThan | LessThanOrEqual):
        bounds.id_texts.append(("to", each.value))
    elif isinstance(each, StringStartsWith):
        bounds.id_texts.append(("prefix", each.value))


def _narrow_by_stream(bounds: Bounds, each: Filter) -> None:
    if isinstance(each, EqualTo):
        bounds.only_streams([each.value])
    elif isinstance(each, In):
        bounds.only_streams(each.value)
    elif isinstance(each, StringStartsWith) and each.value.startswith(bounds.stream_prefix):
        bounds.stream_prefix = each.value


# --- The batch reader -----------------------------------------------------------------------------------------------------


class RangesReader(DataSourceReader):
    """Reads ranges of streams, in parts."""

    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        from streamd.spark.schema import table_layout

        self.options = options
        self.layout = table_layout(schema, options)
        self.bounds = Bounds()

    def partitions(self) -> list[InputPartition]:
        from streamd.spark.connect import run

        now_ms = time.time_ns() // 1_000_000
        return run(self.options.connection, lambda connection: self._plan(connection, now_ms)) or [NoEntries()]

    def _plan(self, connection: Connection, now_ms: int) -> list[InputPartition]:
        from streamd.spark import split

        wanted = []
        for stream in split.find_streams(connection, self.options):
            if self.bounds.wants(stream):
                low = max(self.options.start_of(stream).resolve(now_ms), self.bounds.low)
                high = min(self.options.end_of(stream).resolve(now_ms, is_end=True), self.bounds.high)
                wanted.append((stream, low, high))
        if self.bounds.id_texts:
            extents = split.find_extents(connection, [each for each in wanted if each[1] <= each[2]])
            wanted = [(each.stream, *self.bounds.of_id_texts(each.first, each.last)) for each in extents]
        found = split.plan_partitions(connection, self.options, wanted, parallelism=os.cpu_count() or 1)
        return list(found)

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        from streamd.spark.arrow_decode import EntryDecoder
        from streamd.spark.ranges import read_range
        from streamd.spark.schema import arrow_schema
        from streamd.spark.split import StreamRange, stream_key

        if not isinstance(partition, StreamRange):
            return
        key = stream_key(partition.stream)
        decoder = EntryDecoder(self.layout.columns, arrow_schema(self.layout.schema), key, mode=self.layout.mode)
        yield from read_range(
            self.options.connection,
            decoder,
            key,
            partition.start,
            partition.end,
            fetch_size=self.options.fetch_size,
            batch_rows=self.options.batch_size,
        )
        # When all that were counted have come, nothing needs to be asked.
        if self.options.fail_on_data_loss and decoder.total_entries != partition.count:
            self._check_for_loss(partition)

    def _check_for_loss(self, partition: Any) -> None:
        """Raise DataLossError when the stream begins later than it did when the partition was planned.

        Trimming takes entries from the beginning, so a stream that begins where it did has lost none of them.
        """
        from streamd.spark.connect import run
        from streamd.spark.ids import format_entry_id
        from streamd.spark.split import stream_key

        key = stream_key(partition.stream)
        entries = run(
            self.options.connection, lambda connection: connection.command("XRANGE", key, "-", "+", "COUNT", 1)
        )
        first = parse_entry_id(entries[0][0]) if entries else MAX_ID + 1
        if first > max(partition.start, partition.first):
            begins = f"begins at {format_entry_id(first)}" if entries else "is empty"
            raise DataLossError(
                f"stream {partition.stream} {begins} now: entries from {format_entry_id(partition.start)} on went while they "
                "were read; set failOnDataLoss=false to take what is there"
            )


class PushingRangesReader(RangesReader):
    """The same for sessions in which Spark hands over filters."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self.bounds = bounds_of_filters(filters, self.options.metadata_prefix)
        return filters


class NoEntries(InputPartition):
    """The one partition of a read that finds nothing: Spark wants at least one."""

    def __init__(self) -> None:
        super().__init__(0)
