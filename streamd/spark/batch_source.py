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
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType

from streamd.spark.errors import DataLossError
from streamd.spark.filters import Narrowed, narrow_by_filters
from streamd.spark.ids import MAX_ID, parse_entry_id
from streamd.spark.options import SinkOptions, SourceOptions

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.datasource import DataSourceStreamReader, DataSourceStreamWriter, DataSourceWriter

    from streamd.spark.connect import Connection

__all__ = ["PushingStreamdDataSource", "RangesReader", "StreamdDataSource"]


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


# --- The batch reader -----------------------------------------------------------------------------------------------------


class RangesReader(DataSourceReader):
    """Reads ranges of streams, in parts."""

    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        from streamd.spark.schema import table_layout

        self.options = options
        self.layout = table_layout(schema, options)
        self.narrowed = Narrowed()

    def partitions(self) -> list[InputPartition]:
        from streamd.spark.connect import run

        now_ms = time.time_ns() // 1_000_000
        return run(self.options.connection, lambda connection: self._plan(connection, now_ms)) or [NoEntries()]

    def _plan(self, connection: Connection, now_ms: int) -> list[InputPartition]:
        from streamd.spark import split

        wanted = []
        for stream in split.find_streams(connection, self.options):
            if self.narrowed.wants(stream):
                low = max(self.options.start_of(stream).resolve(now_ms), self.narrowed.low)
                high = min(self.options.end_of(stream).resolve(now_ms, is_end=True), self.narrowed.high)
                wanted.append((stream, low, high))
        if self.narrowed.id_texts:
            extents = split.find_extents(connection, [each for each in wanted if each[1] <= each[2]])
            wanted = [(each.stream, *self.narrowed.of_id_texts(each.first, each.last)) for each in extents]
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
        self.narrowed = narrow_by_filters(filters, self.options.metadata_prefix)
        return filters


class NoEntries(InputPartition):
    """The one partition of a read that finds nothing: Spark wants at least one."""

    def __init__(self) -> None:
        super().__init__(0)
