"""`format("streamd")`: the data source.

    StreamdDataSource           opens the readers and writers
    PushingStreamdDataSource    the same, whose batch readers take filters; `register(spark, pushdown=True)` chooses it

Spark creates readers and writers in several processes and several times over, and pickles them from one process to another.
So constructors only read options: no connection, no clock.

This module is imported with the first use of any Python data source (through the package pyspark_streamd), so what is
expensive to import is imported where it is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from streamd.client.client_errors import OptionError
from streamd.errors import StreamdError
from streamd.spark.source.batch import PushingRangesReader, RangesReader
from streamd.spark.spark_errors import VersionError, told_in_one_line
from streamd.transfer.read_options import SourceOptions
from streamd.transfer.write_options import SinkOptions

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter

__all__ = ["PushingStreamdDataSource", "StreamdDataSource"]


class StreamdDataSource(DataSource):
    """The data source `streamd`; its options are declared in `transfer/read_options.py` and `transfer/write_options.py`."""

    pushes_filters = False

    @classmethod
    def name(cls) -> str:
        return "streamd"

    @told_in_one_line()
    def schema(self) -> StructType:
        from streamd.spark.source.schema import default_schema

        self._refuse_tables()
        options = SourceOptions.parse(self.options)
        return default_schema(options.metadata_prefix, options.fields)

    @told_in_one_line()
    def reader(self, schema: StructType) -> DataSourceReader:
        self._refuse_tables()
        options = SourceOptions.parse_batch(self.options)
        pushes = self.pushes_filters if options.pushdown is None else options.pushdown
        if options.archive is not None:
            from streamd.spark.source.archived import HistoryReader, PushingHistoryReader

            return (PushingHistoryReader if pushes else HistoryReader)(options, schema)
        return (PushingRangesReader if pushes else RangesReader)(schema, options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        try:
            return self._stream_reader(schema)
        except StreamdError as error:
            # Spark's process, which always stops its reader, would fail for the lack of one, and report only that.
            return FailingStreamReader(error)

    def _stream_reader(self, schema: StructType) -> DataSourceStreamReader:
        try:
            from streamd.spark.source.streaming import StreamdStreamReader
        except ModuleNotFoundError as error:
            if error.name != "pyspark.sql.streaming.datasource":
                raise
            raise VersionError("queries that read streams") from None
        return StreamdStreamReader(schema, SourceOptions.parse(self.options))

    @told_in_one_line()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from streamd.spark.sink.writer import StreamdWriter

        return StreamdWriter(schema, SinkOptions.parse(self.options), overwrite)

    @told_in_one_line()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from streamd.spark.sink.writer import StreamdStreamWriter

        return StreamdStreamWriter(schema, SinkOptions.parse(self.options), overwrite)

    def _refuse_tables(self) -> None:
        """Raise OptionError where Spark creates or reads a table of its catalog.

        Spark 4.3 passes the options of such a table when it asks for its columns, then also as `option.<name>`, and never
        again: a read has none, unless its statement has a clause WITH.
        """
        if not self.options or any(name.lower().startswith("option.") for name in self.options):
            raise OptionError("stream", NO_TABLES)


NO_TABLES = (
    "not given. Spark does not pass the options of CREATE TABLE ... USING streamd to a data source in Python: use "
    "CREATE TEMPORARY VIEW ... USING streamd OPTIONS (stream '...'), or read a table that has columns with "
    "SELECT ... FROM table WITH (stream = '...')"
)


class FailingStreamReader(DataSourceStreamReader):
    """Raises an error at the first thing that Spark asks."""

    def __init__(self, error: StreamdError) -> None:
        self.error = error

    @told_in_one_line()
    def initialOffset(self) -> dict[str, Any]:
        raise self.error

    @told_in_one_line()
    def latestOffset(self, *_: Any) -> dict[str, Any]:  # with arguments from PySpark 4.2 on
        raise self.error

    @told_in_one_line()
    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        raise self.error


class PushingStreamdDataSource(StreamdDataSource):
    """The data source for sessions in which Spark passes filters to Python readers."""

    pushes_filters = True
