"""The streaming reader of `format("streamd")`: what Spark calls, in the driver's helper process and in the tasks.

The driver's half delegates everything to a Planner (planner.py) and converts offsets to JSON and back (offsets.py). The
same process serves a query from its start to its end, so the Planner keeps its connection and its state. `stop` is not
relied on: Spark kills the process.

The tasks' half, `read`, runs in other processes, on an unpickled copy: it has the options and its part, no more. After
reading, it checks that nothing of the part was trimmed before it was read. Any of these proves it:

    all entries that were counted have come
    the part came in a single reply, which started with the first entry of the part; and the stream is still the same
    the stream still starts at or below the first entry of the part

If it has fewer entries than were counted, the others were deleted one by one, which is not a loss. Otherwise entries
are gone, or may be: DataLossError, if failOnDataLoss is set.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from streamd.client.client_errors import DataLossError, OptionError, ServerError
from streamd.client.connection import run
from streamd.client.key_names import stream_key
from streamd.client.points import format_entry_id, ms_of
from streamd.client.stream_info import StreamInfo
from streamd.spark.source.offsets import VERSION, Lag, Offset, Part
from streamd.spark.source.planner import ADVICE, Planner
from streamd.spark.source.schema import table_layout
from streamd.spark.spark_errors import told_in_one_line
from streamd.stream_state import age_s
from streamd.transfer.ranges import read_range
from streamd.transfer.read_options import SourceOptions

if TYPE_CHECKING:
    import pyarrow

__all__ = ["StreamdStreamReader"]

log = logging.getLogger(__name__)


class StreamdStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads streams as they grow. Made several times over, in several processes: the constructor does no I/O."""

    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        _refuse_batch_options(options)
        self.options = options
        self.layout = table_layout(schema, options)
        self._planner: Planner | None = None
        self._seen: tuple[dict[str, Any], Offset] | None = None  # the last offset from Spark, raw and parsed

    # --- In the driver's helper process -----------------------------------------------------------------------------------

    @property
    def planner(self) -> Planner:
        if self._planner is None:
            self._planner = Planner(self.options)
        return self._planner

    @told_in_one_line()
    def initialOffset(self) -> dict[str, Any]:
        return self.planner.initial().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """One of the limits, since only one can be returned; `latestOffset` applies all of them."""
        options = self.options
        if options.max_entries_per_trigger is not None:
            return ReadMaxRows(options.max_entries_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.min_entries_per_trigger is not None:
            return ReadMinRows(options.min_entries_per_trigger)
        return ReadAllAvailable()

    @told_in_one_line()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next batch; `start` itself when there is nothing to read."""
        # Trigger.Once asks for everything, whatever the limits.
        is_limited = not isinstance(limit, ReadAllAvailable)
        found = self.planner.latest(self._parsed(start), is_limited=is_limited)
        return start if found is None else found.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """How far the streams go, and how far the query is behind, for its progress.

        Spark has no other place for it: it asks sources in Python for no metrics. Called at every poll, so the server is not asked.
        """
        lags = self.planner.lags()
        if not lags:
            return None
        now_ms = time.time_ns() // 1_000_000
        streams = {name: lag_to_json(lags[name], now_ms) for name in sorted(lags)}
        return {"streams": streams, **lag_of_all(streams.values()), "version": VERSION}

    @told_in_one_line()
    def prepareForTriggerAvailableNow(self) -> None:
        self.planner.freeze()

    @told_in_one_line()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """What the batch reads: derived from `end` alone (offsets.py), unless there is no batch at all.

        After a restart Spark calls this with the same offset twice, to report what it has seen.
        """
        if start == end:
            return []
        return [InputPartition(part) for part in Offset.from_json(end).parts()]

    @told_in_one_line()
    def commit(self, end: dict[str, Any]) -> None:
        """A batch has been processed: the mirror group follows, if `latestOffset` has not moved it already."""
        if self.options.group is not None:
            self.planner.mirror(self._parsed(end))

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()

    def _parsed(self, offset: dict[str, Any]) -> Offset:
        if self._seen is None or self._seen[0] != offset:
            self._seen = (offset, Offset.from_json(offset))
        return self._seen[1]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_planner": None, "_seen": None}

    # --- In a task --------------------------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        with told_in_one_line():
            yield from self._read(partition.value)

    def _read(self, part: Part) -> Iterator[pyarrow.RecordBatch]:
        from streamd.arrow.decode import EntryDecoder

        options = self.options
        if options.archive is not None:
            from streamd.spark.source.archived_query import read_through

            yield from read_through(options, self.layout, part)
            return
        key = stream_key(part.stream)
        decoder = EntryDecoder(self.layout, key)
        yield from read_range(
            options.connection,
            decoder,
            key,
            part.low,
            part.high,
            fetch_size=options.fetch_size,
            batch_rows=options.batch_size,
        )
        if decoder.total_entries != part.count:
            is_one_reply = decoder.total_entries < options.fetch_size
            self._check_for_loss(
                part, decoder.total_entries, is_front_seen=is_one_reply and decoder.first_id == part.low
            )

    def _check_for_loss(self, part: Part, count: int, *, is_front_seen: bool) -> None:
        """Raise DataLossError if the stream was replaced, or now starts after the start of the part.

        is_front_seen  the whole part came in one reply, with its first entry: trimming happened later
        """
        try:
            reply = run(
                self.options.connection.at(part.stream),
                lambda connection: connection.command("XINFO", "STREAM", stream_key(part.stream)),
            )
            info = StreamInfo.parse(reply)
        except ServerError as error:
            if not error.is_missing_key:
                raise
            info = StreamInfo(length=0, last_generated=0, first_entry=None)
        if info.last_generated >= part.high and (is_front_seen or not info.has_none_up_to(part.low)):
            return
        expected = "" if part.count is None else f" of {part.count}"
        loss = (
            f"stream {part.stream} was trimmed, deleted or recreated while it was read: from {format_entry_id(part.low)} "
            f"to {format_entry_id(part.high)} there were {count}{expected} entries left"
        )
        if self.options.fail_on_data_loss:
            raise DataLossError(loss + ADVICE)
        log.warning("%s; continuing with what is there", loss)


def lag_to_json(lag: Lag, now_ms: int) -> dict[str, Any]:
    """behindEntries: null when unknown; behindSeconds: how long the first of these entries has been there, by its ID."""
    age = 0.0 if not lag.entries else None if lag.first is None else age_s((ms_of(lag.first), 0), now_ms)
    return {"at": format_entry_id(lag.end), "behindEntries": lag.entries, "behindSeconds": age}


def lag_of_all(streams: Collection[dict[str, Any]]) -> dict[str, Any]:
    """The sum of the entries, and the longest time; null when one of them is unknown."""
    entries = [each["behindEntries"] for each in streams]
    seconds = [each["behindSeconds"] for each in streams]
    return {
        "behindEntries": None if None in entries else sum(entries),
        "behindSeconds": None if None in seconds else max(seconds),
    }


def _refuse_batch_options(options: SourceOptions) -> None:
    given = {"endingId": options.ending, "endingTimestamp": options.ending_timestamp}
    for name, value in given.items():
        if value is not None:
            raise OptionError(name, "is for batch reads; a streaming query has no end")
    if options.archive is not None and not options.named_streams and options.stream_pattern is None:
        raise OptionError("stream", "name what to read: stream, streams or streamPattern")
    if options.archive is not None and options.max_bytes_per_trigger is not None:
        raise OptionError(
            "maxBytesPerTrigger",
            "cannot be combined with archive, whose entries it does not count; use maxEntriesPerTrigger",
        )
