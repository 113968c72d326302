"""Batch reads of an archive and its server by Spark: format("streamd").option("archive", path)."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from streamd.archive.full_history import plan_history, read_part
from streamd.spark.source.filters import narrow_by_filters
from streamd.spark.source.schema import table_layout
from streamd.spark.spark_errors import told_in_one_line
from streamd.transfer.narrowed import Narrowed
from streamd.transfer.read_options import SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["HistoryReader", "PushingHistoryReader"]


class HistoryReader(DataSourceReader):
    """Reads for format("streamd") with the option `archive`. Created in Spark's processes; the constructor does no I/O."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self.options = options
        self.table = table_layout(schema, options)
        self.reader = uuid.uuid4().hex
        self.narrowed: Narrowed | None = None

    @told_in_one_line()
    def partitions(self) -> Sequence[InputPartition]:
        parts = plan_history(self.options, reader=self.reader, narrowed=self.narrowed)
        return [*map(InputPartition, parts)] or [InputPartition(None)]  # Spark wants at least one

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is not None:
            with told_in_one_line():
                yield from read_part(self.options, self.table, partition.value)


class PushingHistoryReader(HistoryReader):
    """The same for sessions in which Spark passes filters: files and row groups that they leave out are not read."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self.narrowed = narrow_by_filters(filters, self.options.metadata_prefix)
        return filters
