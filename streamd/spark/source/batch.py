"""The batch reader of `format("streamd")`: partitions, and the record batches of each.

What depends on the time (`-1h`, `latest`) is resolved once, in `partitions`, and is part of the partitions from then on.

Spark calls `pushFilters` when spark.sql.python.filterPushdown.enabled is set, and only then may a reader have that
method; hence two classes. A filter narrows the ranges that are read; Spark still applies all filters itself. Pushdown
is not the default, because PySpark keeps the plan of a DataFrame's first use: what a filter narrowed once stays
narrow for every other use of the same DataFrame (observed: `loaded.where("ms > 90").union(loaded)` had the filtered
rows twice). For the same reason a DataFrame keeps reading the entries that were there at its first use; load it again
to see later ones.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from streamd.client.client_errors import DataLossError
from streamd.client.key_names import stream_key
from streamd.client.points import MAX_ID, format_entry_id, parse_entry_id
from streamd.spark.source.filters import narrow_by_filters
from streamd.spark.spark_errors import told_in_one_line
from streamd.transfer.narrowed import Narrowed
from streamd.transfer.read_options import SourceOptions

if TYPE_CHECKING:
    import pyarrow

    from streamd.client.connection import Connection
    from streamd.transfer.partitions import StreamRange

__all__ = ["PushingRangesReader", "RangesReader"]


class RangesReader(DataSourceReader):
    """Reads ranges of streams, in parts."""

    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        from streamd.spark.source.schema import table_layout

        self.options = options
        self.layout = table_layout(schema, options)
        self.narrowed = Narrowed()

    @told_in_one_line()
    def partitions(self) -> list[InputPartition]:
        from streamd.client.connection import run

        now_ms = time.time_ns() // 1_000_000
        ranges = run(self.options.connection, lambda connection: self._plan(connection, now_ms))
        return [*map(InputPartition, ranges)] or [InputPartition(None)]  # Spark wants at least one

    def _plan(self, connection: Connection, now_ms: int) -> list[StreamRange]:
        from streamd.transfer.partitions import find_extents, find_streams, plan_partitions, refuse_missing

        wanted = []
        for stream in find_streams(connection, self.options):
            if self.narrowed.wants(stream):
                low = max(self.options.start_of(stream).resolve(now_ms), self.narrowed.low)
                high = min(self.options.end_of(stream).resolve(now_ms, is_end=True), self.narrowed.high)
                wanted.append((stream, low, high))
        if self.narrowed.id_texts:
            extents = find_extents(connection, [each for each in wanted if each[1] <= each[2]])
            wanted = [(each.stream, *self.narrowed.of_id_texts(each.first, each.last)) for each in extents]
        found = plan_partitions(connection, self.options, wanted, parallelism=os.cpu_count() or 1)
        if self.options.fail_on_missing is not False:
            have_entries = {each.stream for each in found}
            refuse_missing(connection, [each for each in self.options.named_streams if each not in have_entries])
        return found

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        from streamd.arrow.decode import EntryDecoder
        from streamd.transfer.ranges import read_range

        part: StreamRange | None = partition.value
        if part is None:
            return
        with told_in_one_line():
            key = stream_key(part.stream)
            decoder = EntryDecoder(self.layout, key)
            yield from read_range(
                self.options.connection,
                decoder,
                key,
                part.start,
                part.end,
                fetch_size=self.options.fetch_size,
                batch_rows=self.options.batch_size,
            )
            # When all counted entries have come, no check is needed.
            if self.options.fail_on_data_loss and decoder.total_entries != part.count:
                self._check_for_loss(part)

    def _check_for_loss(self, part: StreamRange) -> None:
        """Raise DataLossError when the stream starts later than it did when the partition was planned.

        Trimming removes entries from the start, so a stream that still starts at the same entry has lost none.
        """
        from streamd.client.connection import run

        key = stream_key(part.stream)
        place = self.options.connection.at_key(key)
        entries = run(place, lambda connection: connection.command("XRANGE", key, "-", "+", "COUNT", 1))
        first = parse_entry_id(entries[0][0]) if entries else MAX_ID + 1
        if first > max(part.start, part.first):
            now = f"starts at {format_entry_id(first)}" if entries else "is empty"
            raise DataLossError(
                f"stream {part.stream} {now} now: entries from {format_entry_id(part.start)} on were removed while they were read; "
                "set failOnDataLoss=false to accept what is there"
            )


class PushingRangesReader(RangesReader):
    """The same for sessions in which Spark passes filters."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self.narrowed = narrow_by_filters(filters, self.options.metadata_prefix)
        return filters
