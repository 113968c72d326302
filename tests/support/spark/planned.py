"""A streaming query without Spark: every offset and partition goes through bytes, as between Spark's processes."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from streamd.spark.source.offsets import Part
from streamd.spark.source.schema import DEFAULT_SCHEMA
from streamd.spark.source.streaming import StreamdStreamReader
from streamd.transfer.read_options import SourceOptions

__all__ = ["Query", "stop_queries", "through_json"]

Options = dict[str, str]
Offset = dict[str, Any]

started: list[Query] = []


def stop_queries() -> None:
    """Close the connections of all queries: what Spark does by killing processes."""
    while started:
        started.pop().reader.stop()


class Query:
    """A streaming query: offsets, and the entries of each batch, by stream and ID."""

    def __init__(self, options: Options, checkpoint: Offset | None = None, **more: str) -> None:
        self.options = {**options, **more}
        self.now = 0.0
        self.reader = StreamdStreamReader(DEFAULT_SCHEMA, SourceOptions.parse(self.options))
        started.append(self)
        self.reader.planner._clock = lambda: self.now
        self.start = through_json(self.reader.initialOffset()) if checkpoint is None else checkpoint

    def restarted(self, **more: str) -> Query:
        """The same query in a new process."""
        return Query({**self.options, **more}, self.start)

    def poll(self, limit: ReadLimit | None = None, *, after_s: float = 2) -> Offset:
        """The offset that Spark would get, so many seconds later."""
        self.now += after_s
        limit = limit or self.reader.getDefaultReadLimit()
        end = through_json(self.reader.latestOffset(self.start, limit))
        through_json(self.reader.reportLatestOffset())
        return end

    def parts(self, start: Offset, end: Offset) -> list[Part]:
        return [pickle.loads(pickle.dumps(each)).value for each in self.reader.partitions(start, end)]

    def read(self, start: Offset, end: Offset) -> list[tuple[str, str]]:
        return [entry for rows in self.record_batches(start, end) for entry in rows]

    def record_batches(self, start: Offset, end: Offset) -> Iterator[list[tuple[str, str]]]:
        """The entries of each record batch, as they are read."""
        for part in self.parts(start, end):
            reader = pickle.loads(pickle.dumps(self.reader))
            for batch in reader.read(InputPartition(part)):
                yield list(zip(batch["stream"].to_pylist(), batch["id"].to_pylist(), strict=True))

    def batch(self, limit: ReadLimit | None = None) -> list[tuple[str, str]]:
        """Read the next batch; nothing when there is none."""
        end = self.poll(limit)
        found = self.read(self.start, end)
        self.start = end
        return found

    def ids(self, limit: ReadLimit | None = None) -> list[str]:
        return [each for _, each in self.batch(limit)]

    def all_batches(self) -> Iterator[list[tuple[str, str]]]:
        while found := self.batch():
            yield found


def through_json(offset: Any) -> Any:
    return json.loads(json.dumps(offset))
