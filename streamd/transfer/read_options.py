"""The options of a read, batch and streaming."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from streamd.client.client_errors import OptionError
from streamd.client.points import first_id_of, parse_duration_ms, parse_point, parse_timestamp_ms
from streamd.client.url_options import (
    ConnectionOptions,
    Options,
    boolean,
    choice,
    lowered,
    named_by_path,
    names,
    needs,
    only_one_of,
    option,
    read_fields,
    refuse_unknown,
    size,
    text,
    whole_number,
)

__all__ = ["QUERY_OPTIONS", "Bound", "SourceOptions"]


@dataclass(frozen=True)
class Bound:
    """Where reading starts or ends, as written: resolved when used, since `-1h` depends on the clock.

    kind   `id` or `time`
    text   a point or a timestamp, see client/points.py
    """

    kind: Literal["id", "time"]
    text: str

    @property
    def is_latest(self) -> bool:
        """The newest entry when it is resolved; as a start, only what comes later."""
        return self.kind == "id" and self.text.strip().lower() in ("latest", "+", "$")

    @property
    def is_earliest(self) -> bool:
        return self.kind == "id" and self.text.strip().lower() in ("earliest", "-")

    def resolve(self, now_ms: int, *, is_end: bool = False) -> int:
        """The bound as an inclusive ID. A time as an end is exclusive: entries before it. Latest is the last ID."""
        if self.kind == "id":
            return parse_point(self.text, is_end=is_end)
        first = first_id_of(parse_timestamp_ms(self.text, now_ms))
        # There is no ID before the first one: -1 makes every range empty.
        return first - 1 if is_end else first


Bounds = Bound | Mapping[str, Bound]
"""One bound for all streams, or one for each by its name (`*`: all others)."""


def bounds(kind: Literal["id", "time"], *, is_end: bool) -> Callable[[str], Bounds]:
    """A point or timestamp, or a JSON object of them by stream. Checked immediately, resolved later."""

    def one(value: Any) -> Bound:
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise ValueError(f"{value!r} is neither a string nor a number")
        bound = Bound(kind, str(value))
        bound.resolve(2**50, is_end=is_end)
        return bound

    def parse(value: str) -> Bounds:
        if not value.lstrip().startswith("{"):
            return one(value)
        found = json.loads(value)
        return {name: one(each) for name, each in found.items()}

    return parse


NAMES = ("stream", "streams", "streamPattern")
"""Options that name what to read."""

QUERY_OPTIONS = (
    "maxEntriesPerTrigger",
    "maxBytesPerTrigger",
    "minEntriesPerTrigger",
    "maxTriggerDelay",
    "patternInterval",
    "group",
)
"""Options that a batch has no use for."""


@dataclass(frozen=True)
class SourceOptions:
    """What to read. At least one of stream, streams, streamPattern, or an archive."""

    connection: ConnectionOptions = field(default_factory=ConnectionOptions)
    stream: str | None = option("stream", text, None, "key of the stream to read")
    streams: tuple[str, ...] = option(
        "streams", names, (), "keys of several streams, separated by commas or as a JSON array"
    )
    stream_pattern: str | None = option("streamPattern", text, None, "pattern of keys, as for SCAN MATCH")
    pattern_interval_ms: int = option(
        "patternInterval", parse_duration_ms, 10_000, "how often a query looks for new streams of the pattern"
    )
    starting: Bounds | None = option(
        "startingId",
        bounds("id", is_end=False),
        None,
        "`earliest`, `latest`, or an ID, itself included (`(ID`: excluded); or JSON by stream: "
        '`{"a": "latest", "*": "earliest"}`. Default: `earliest`',
    )
    ending: Bounds | None = option(
        "endingId",
        bounds("id", is_end=True),
        None,
        "the same for the end, itself included; batch only. Default: `latest`",
    )
    starting_timestamp: Bounds | None = option(
        "startingTimestamp",
        bounds("time", is_end=False),
        None,
        "entries from this time on: Unix time in ms, ISO 8601, or before now like `-1h`; or JSON by stream",
    )
    ending_timestamp: Bounds | None = option(
        "endingTimestamp", bounds("time", is_end=True), None, "entries from before this time; batch only"
    )
    min_partitions: int | None = option(
        "minPartitions",
        whole_number(1),
        None,
        "minimum number of partitions, if there are as many entries. Default: the session's parallelism",
    )
    max_records_per_partition: int | None = option(
        "maxRecordsPerPartition",
        whole_number(1),
        None,
        "maximum number of entries of a partition; on servers other than streamd the range is scanned when planning",
    )
    fetch_size: int = option(
        "fetchSize",
        whole_number(1, 1_000_000),
        2_000,
        "COUNT of each XRANGE; a higher one makes other clients of the server wait longer",
    )
    batch_size: int = option("batchSize", whole_number(1, 1_000_000), 10_000, "rows of an Arrow record batch")
    pushdown: bool | None = option(
        "pushdown",
        boolean,
        None,
        "whether filters on id, ms, time and stream limit the range that is read (as `register(spark, pushdown=True)` does for all reads); "
        "requires spark.sql.python.filterPushdown.enabled, and a DataFrame that is loaded again for each use: PySpark keeps "
        "the filters of the first one",
    )
    metadata_prefix: str = option(
        "metadataPrefix",
        str,
        "",
        "prefix of the columns id, ms, seq, time, stream and fields, for entries that have fields of these names",
    )
    fields: str = option(
        "fields",
        choice("binary", "text"),
        "binary",
        "type of the names and values in the column `fields`, unless given by a schema: `text` is readable, `binary` preserves any bytes",
    )
    mode: str = option(
        "mode",
        choice("PERMISSIVE", "DROPMALFORMED", "FAILFAST"),
        "PERMISSIVE",
        "what to do with a value that does not fit its column: null, drop the row, or fail",
    )
    corrupt_record_column: str | None = option(
        "columnNameOfCorruptRecord",
        text,
        None,
        "string column of the schema that receives the whole entry as JSON when a value does not fit. Default: "
        "`_corrupt_record` if the schema has it",
    )
    fail_on_missing: bool | None = option(
        "failOnMissing",
        boolean,
        None,
        "fail when a stream of `stream` or `streams` does not exist. Default: true for a batch; a query waits for it",
    )
    fail_on_data_loss: bool = option(
        "failOnDataLoss",
        boolean,
        True,
        "fail when unread entries are lost (trimmed, deleted with their stream, stream recreated); otherwise "
        "continue with the remaining entries",
    )
    max_entries_per_trigger: int | None = option(
        "maxEntriesPerTrigger", whole_number(1), None, "maximum number of entries of a micro-batch"
    )
    max_bytes_per_trigger: int | None = option(
        "maxBytesPerTrigger",
        size,
        None,
        "maximum size of a micro-batch, as replies on the wire; at least one entry is read",
    )
    min_entries_per_trigger: int | None = option(
        "minEntriesPerTrigger", whole_number(1), None, "wait for this number of entries before a micro-batch"
    )
    max_trigger_delay_ms: int = option("maxTriggerDelay", parse_duration_ms, 900_000, "longest such wait")
    group: str | None = option(
        "group",
        text,
        None,
        "consumer group that follows the query's progress, for XINFO GROUPS and ACKED trims; nothing is read through it",
    )
    archive: str | None = option(
        "archive",
        text,
        None,
        "folder or URL of an archive, which is read together with the server; a query reads what was trimmed from there",
    )
    starting_position: str | None = option(
        "startingPosition",
        choice("archive"),
        None,
        "`archive`: start at the first archived entry, which is also the default if an archive is given",
    )
    archive_lease_ms: int = option(
        "archiveLease",
        parse_duration_ms,
        600_000,
        "how long archivers keep entries that a read of an archive is about to read from the server; 0: no such lease",
    )

    @classmethod
    def parse(cls, options: Options) -> SourceOptions:
        """Read the options of a source. Raises OptionError."""
        given = named_by_path(options, NAMES)
        refuse_unknown(given, cls, ConnectionOptions)
        only_one_of(given, *NAMES)
        only_one_of(given, "startingId", "startingTimestamp", "startingPosition")
        only_one_of(given, "endingId", "endingTimestamp")
        made = cls(connection=ConnectionOptions.parse(given), **read_fields(cls, given))
        if made.stream is None and not made.streams and made.stream_pattern is None and made.archive is None:
            raise OptionError("stream", "name what to read: stream, streams or streamPattern")
        if (
            made.min_entries_per_trigger
            and made.max_entries_per_trigger
            and (made.min_entries_per_trigger > made.max_entries_per_trigger)
        ):
            raise OptionError("minEntriesPerTrigger", "is greater than maxEntriesPerTrigger")
        needs(given, ("maxTriggerDelay",), "minEntriesPerTrigger", has=made.min_entries_per_trigger is not None)
        needs(given, ("patternInterval",), "streamPattern", has=made.stream_pattern is not None)
        needs(given, ("archiveLease", "startingPosition"), "archive", has=made.archive is not None)
        if "failonmissing" in given and made.stream_pattern is not None:
            raise OptionError("failOnMissing", "cannot be combined with streamPattern, which names no stream")
        made._check_order()
        return made

    @classmethod
    def parse_batch(cls, options: Options) -> SourceOptions:
        """Read the options of a batch. Raises OptionError for those of queries, too."""
        given = lowered(options)
        for name in QUERY_OPTIONS:
            if name.lower() in given:
                raise OptionError(name, "is for streaming queries; a batch reads its whole range at once")
        return cls.parse(options)

    def _check_order(self) -> None:
        """Raise for a range that ends before it starts."""
        start_name = "startingId" if self.starting_timestamp is None else "startingTimestamp"
        end_name = "endingId" if self.ending_timestamp is None else "endingTimestamp"
        streams = {"*"}
        for given in (self.starting, self.starting_timestamp, self.ending, self.ending_timestamp):
            if isinstance(given, Mapping):
                streams.update(given)
        now_ms = time.time_ns() // 1_000_000
        for stream in streams:
            start, end = self.start_of(stream), self.end_of(stream)
            if start.is_latest or end.is_latest:
                continue
            # One that ends where it starts is empty: a job that found nothing new to read.
            if start.resolve(now_ms) > end.resolve(now_ms, is_end=True) + 1:
                of = "" if stream == "*" else f" of stream {stream}"
                raise OptionError(start_name, f"{start.text}{of} is after {end_name} {end.text}")

    @property
    def named_streams(self) -> tuple[str, ...]:
        """The named streams, in the given order; those of a pattern must be asked of the server."""
        return (self.stream,) if self.stream is not None else self.streams

    def start_of(self, stream: str) -> Bound:
        """Where reading of a stream starts."""
        return _bound_of(stream, self.starting_timestamp or self.starting, Bound("id", "earliest"))

    def end_of(self, stream: str) -> Bound:
        """Where a batch read of a stream ends."""
        return _bound_of(stream, self.ending_timestamp or self.ending, Bound("id", "latest"))


def _bound_of(stream: str, given: Bounds | None, default: Bound) -> Bound:
    if given is None or isinstance(given, Bound):
        return given or default
    return given.get(stream) or given.get("*") or default
