"""Cold and hot as one table: the archived part of a stream and what is only on the server, without gaps or duplicates.

The manifests' boundary B separates them: at or below B exactly the files that manifests name, above B the server up to the
last ID that it had when the read was planned. What the server still holds below B (entries that a group has not
acknowledged, or that are not trimmed yet) is archived too, and is not read again.

An archiver that runs during a read may trim what the read planned to take from the server. Three things prevent that:

    its trim delay   only what has been archived for a while is trimmed
    a lease          the reader notes its boundary beside the stream (archive/leases.py), for as long as `archiveLease` says;
                     a user who may not write to the server reads without
    a check          after a partition has been read: archivers note on the server, together with each trim, up to where
                     they have trimmed; and the stream's first entry shows whether others have. Missing entries raise
                     DataLossError (unless failOnDataLoss is false) instead of a shorter result

Files that an archiver has replaced since a read was planned (small ones are merged, deleted entries left out) remain for a
while; after that, their replacement is read.

A DataFrame is planned at its first use, and Spark keeps that plan: if it is used again much later, it reads by the old
boundary, without a lease; the check detects what was trimmed since.

    plan_history(...)    the parts of a read, in the order of their IDs
    read_part(...)       the rows of one part as record batches
    read_history(...)    those of all parts, in this process
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from streamd.archive.archive_errors import IncarnationError
from streamd.archive.layout import Layout
from streamd.archive.leases import release_lease, take_lease
from streamd.archive.live_stream import (
    find_entry_above,
    find_state,
    read_entries,
)
from streamd.archive.lock import trimmed_to
from streamd.archive.manifest import FileRecord
from streamd.archive.manifest_log import ManifestLog, archived_streams
from streamd.archive.name_patterns import pattern_of
from streamd.archive.same_stream import check_is_archived_stream
from streamd.arrow.entry_table import TableLayout
from streamd.client.client_errors import DataLossError, OptionError, ServerError
from streamd.client.connection import Connection, connect, server_ms
from streamd.client.key_names import stream_key
from streamd.client.points import MAX_ID, format_entry_id, parse_entry_id
from streamd.client.primaries import at_streams
from streamd.printable import key_text
from streamd.transfer.collector_pause import made_paused
from streamd.transfer.partitions import find_streams, plan_partitions, refuse_missing
from streamd.transfer.read_options import SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from streamd.transfer.narrowed import Narrowed


__all__ = ["ColdPart", "HotPart", "end_read", "plan_history", "read_history", "read_part"]

COLD_ROWS = 500_000
"""Approximate number of rows in a cold partition."""

ATTEMPTS = 10
"""How often a read is planned again because an archiver trimmed meanwhile."""

PLAIN = {"id": "string", "ms": "bigint", "seq": "bigint", "time": "timestamp", "fields": "pairs", "stream": "string"}
"""Columns that are read from the files unchanged, and their kinds."""


@dataclass(frozen=True)
class ColdPart:
    """Rows of one file: the row groups [first, stop), and of those the IDs in [low, high]."""

    stream: str
    low: int
    high: int
    file: FileRecord
    first: int
    stop: int


@dataclass(frozen=True)
class HotPart:
    """Entries on the server with IDs in [low, high].

    first_hot      the first entry above the boundary when the read was planned: while it exists, nothing has been trimmed
    entries_added  how many entries the stream had had then, which a stream in its place may have not; 0: the server does not count
    """

    stream: str
    low: int
    high: int
    first_hot: int
    entries_added: int = 0


Part = ColdPart | HotPart


# --- Planning -------------------------------------------------------------------------------------------------------------


def plan_history(
    options: SourceOptions,
    *,
    reader: str | None = None,
    narrowed: Narrowed | None = None,
) -> list[Part]:
    """The parts of a read, stream by stream and in the order of IDs; none for a stream without entries in the range.

    reader    name of the lease (archiveLease) that this takes; a later lease of that name replaces it
    narrowed  what a filter leaves, on top of what the options say
    """
    if options.archive is None:
        raise OptionError("archive", "must name a folder")
    layout = Layout(options.archive)
    layout.check()
    place = options.connection.live_only()
    if options.fail_on_missing is not False:
        archived = set(archived_streams(layout)) if options.named_streams else ()
        named = [each for each in options.named_streams if each not in archived]
        at_streams(place, named, lambda each, stream: refuse_missing(each, [stream]))
    with connect(place) as connection:
        streams = [each for each in streams_of(options, layout, connection) if narrowed is None or narrowed.wants(each)]
    name = reader or uuid.uuid4().hex

    def plan(connection: Connection, stream: str) -> list[Part]:
        own = replace(options, connection=options.connection.at(stream))
        return plan_stream(own, layout, connection, stream, name, narrowed)

    return [part for parts in at_streams(place, streams, plan) for part in parts]


def streams_of(options: SourceOptions, layout: Layout, connection: Connection) -> list[str]:
    """The streams to read: those named, or those that match on the server or in the archive, or all of the archive."""
    if options.named_streams:
        return list(options.named_streams)
    archived = archived_streams(layout)
    if options.stream_pattern is None:
        return archived
    matches = re.compile(pattern_of(options.stream_pattern), re.DOTALL)
    return sorted({*find_streams(connection, options), *filter(matches.fullmatch, archived)})


def plan_stream(
    options: SourceOptions,
    layout: Layout,
    connection: Connection,
    stream: str,
    reader: str,
    narrowed: Narrowed | None,
) -> list[Part]:
    # The order of these matters: see archive/leases.py.
    lease_ms = options.archive_lease_ms
    has_lease = lease_ms > 0 and trying(connection, lambda: take_lease(connection, stream, reader, 0, lease_ms))
    log = ManifestLog.read(layout, stream)
    parts: list[Part] = []
    for _ in range(ATTEMPTS):
        fault: DataLossError | None = None
        try:
            parts = plan_above(options, layout, connection, stream, log, narrowed)
        except DataLossError as error:
            fault = error
        # Without a lease, an archiver may have trimmed while this was planned, or deleted entries: then there is a newer manifest.
        noted, seen = trimmed_to(connection, stream), log.sequence
        if fault is None and (noted is None or parse_entry_id(noted) <= log.boundary):
            break
        log = ManifestLog.read(layout, stream, known=log)
        if fault is not None and log.sequence == seen:
            raise fault
    else:
        if fault is not None:
            raise fault
        if options.fail_on_data_loss:
            raise DataLossError(
                f"{stream!r} is trimmed up to {noted}, and archived here only up to {format_entry_id(log.boundary)}: "
                "it is archived elsewhere too, and what was trimmed then is not here"
            )
    if has_lease:
        take_lease(connection, stream, reader, log.boundary, lease_ms)
    if has_lease and not any(isinstance(part, HotPart) for part in parts):
        release_lease(connection, stream, reader)
    return parts


def plan_above(
    options: SourceOptions,
    layout: Layout,
    connection: Connection,
    stream: str,
    log: ManifestLog,
    narrowed: Narrowed | None,
) -> list[Part]:
    """The parts of one stream, by these manifests."""
    now_ms = server_ms(connection)
    low = options.start_of(stream).resolve(now_ms)
    high = options.end_of(stream).resolve(now_ms, is_end=True)
    if narrowed is not None:
        low, high = max(low, narrowed.low), min(high, narrowed.high)
        low, high = narrow_by_texts(connection, stream, log, narrowed, low, high)
    cold = plan_cold(log.files, stream, low, min(high, log.boundary))
    hot = plan_hot(options, layout, connection, stream, max(low, log.boundary + 1), high, log)
    return [*cold, *hot]


def narrow_by_texts(
    connection: Connection, stream: str, log: ManifestLog, narrowed: Narrowed, low: int, high: int
) -> tuple[int, int]:
    """What conditions on `id` as text leave of a range; that depends on which IDs exist."""
    state = find_state(connection, stream) if narrowed.id_texts else None
    first = log.files[0].first if log.files else (state.first_entry if state else None)
    if state is None or first is None:
        return low, high
    text_low, text_high = narrowed.of_id_texts(first, max(state.last_generated, first))
    return max(low, text_low), min(high, text_high)


def trying(connection: Connection, change: Callable[[], None]) -> bool:
    """Change a lease; False without permission, or on a server that refuses writes."""
    try:
        change()
    except ServerError as error:
        connection.pipeline([("DISCARD",), ("UNWATCH",)], raise_errors=False)
        if error.code in ("NOPERM", "READONLY", "MISCONF", "OOM", "EXECABORT"):
            return False
        raise
    return True


def plan_cold(files: Iterable[FileRecord], stream: str, low: int, high: int) -> list[Part]:
    parts: list[Part] = []
    for file in files:
        if file.last < low or file.first > high:
            continue
        first, rows = 0, 0
        for at, group in enumerate(file.row_groups):
            rows += group.rows
            if rows >= COLD_ROWS or at + 1 == len(file.row_groups):
                if group.last >= low and file.row_groups[first].first <= high:
                    parts.append(ColdPart(stream, low, high, file, first, at + 1))
                first, rows = at + 1, 0
    return parts


def plan_hot(
    options: SourceOptions,
    layout: Layout,
    connection: Connection,
    stream: str,
    low: int,
    high: int,
    log: ManifestLog,
) -> list[Part]:
    if options.fail_on_data_loss:
        try:
            state = check_is_archived_stream(connection, layout, log, may_be_gone=True).state
        except IncarnationError as error:
            raise DataLossError(str(error)) from error
    else:
        state = find_state(connection, stream)
    if state is None:
        return []
    first_hot = find_entry_above(connection, stream, log.boundary)
    if low > high or first_hot is None:
        return []
    ranges = plan_partitions(connection, options, [(stream, low, high)], parallelism=os.cpu_count() or 1)
    return [HotPart(stream, each.start, each.end, first_hot, state.entries_added or 0) for each in ranges]


# --- Reading --------------------------------------------------------------------------------------------------------------


def read_part(options: SourceOptions, table: TableLayout, part: Part) -> Iterator[pa.RecordBatch]:
    """The rows of a part, in order. Raises DataLossError after the last one if some were lost meanwhile."""
    if isinstance(part, ColdPart):
        yield from made_paused(read_cold(options, table, part))
        return
    yield from read_entries(
        options.connection,
        part.stream,
        part.low,
        part.high,
        table,
        fetch_size=options.fetch_size,
        batch_rows=options.batch_size,
    )
    if options.fail_on_data_loss:
        check_for_loss(options, part)


def read_history(options: SourceOptions, table: TableLayout) -> Iterator[pa.RecordBatch]:
    """The rows of all parts, in order."""
    reader = uuid.uuid4().hex
    try:
        for part in plan_history(options, reader=reader):
            yield from read_part(options, table, part)
    finally:
        end_read(options, reader)


def end_read(options: SourceOptions, reader: str) -> None:
    """Release the leases of a read before they expire. Spark does not report the end of a read; other callers know it."""
    place = options.connection.live_only()
    with connect(place) as connection:
        streams = streams_of(options, Layout(options.archive or ""), connection)
    at_streams(place, streams, lambda each, stream: trying(each, partial(release_lease, each, stream, reader)))


def check_for_loss(options: SourceOptions, part: HotPart) -> None:
    """Raise DataLossError when entries of a part may have been trimmed since the read was planned."""
    with connect(options.connection.live_only().at(part.stream)) as connection:
        state = find_state(connection, part.stream)
        noted = trimmed_to(connection, part.stream)
    where = f"{part.stream!r}, {format_entry_id(part.low)} to {format_entry_id(part.high)}"
    if noted is not None and parse_entry_id(noted) >= part.low:
        raise DataLossError(
            f"{where}: an archiver has trimmed up to {noted} since this read was planned. Load the DataFrame again, with a longer archiveLease if necessary"
        )
    if state is None:
        raise DataLossError(f"{where}: the stream was deleted while it was read")
    if state.last_generated < part.high or (state.entries_added or part.entries_added) < part.entries_added:
        raise DataLossError(f"{where}: the stream was recreated while it was read")
    first = MAX_ID if state.first_entry is None else state.first_entry
    # XDEL of the first entry moves it too, but records the highest ID that it removed; trimming does not.
    was_deleted = state.max_deleted is not None and state.max_deleted >= part.first_hot
    if first > max(part.first_hot, part.low) and not was_deleted:
        raise DataLossError(f"{where}: the stream was trimmed while it was read")


def read_cold(options: SourceOptions, table: TableLayout, part: ColdPart) -> Generator[pa.RecordBatch]:
    from streamd.archive.archived_rows import read_file

    layout = Layout(options.archive or "")
    groups = (part.first, part.stop)
    if all(PLAIN.get(each.source) == each.kind for each in table.columns):
        yield from read_plain(layout, table, part, options.batch_size)
        return
    batches = read_file(
        layout,
        part.stream,
        part.file,
        part.low,
        part.high,
        ("id", "fields"),
        groups=groups,
        batch_rows=options.batch_size,
    )
    yield from cast(batches, table, part.stream)


def read_plain(layout: Layout, table: TableLayout, part: ColdPart, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Columns that are stored as they were requested; the others are not even read."""
    import pyarrow as pa

    from streamd.archive.archived_rows import read_file

    schema = table.schema
    wanted = list(dict.fromkeys(each.source for each in table.columns if each.source != "stream")) or ["seq"]
    groups = (part.first, part.stop)
    batches = read_file(
        layout, part.stream, part.file, part.low, part.high, wanted, groups=groups, batch_rows=batch_rows
    )
    for batch in batches:
        columns: list[Any] = []
        for column, field in zip(table.columns, schema, strict=True):
            if column.source == "stream":
                text = pa.scalar(key_text(part.stream).encode())
                columns.append(pa.repeat(text, batch.num_rows).view(pa.binary()).view(field.type))
            else:
                found = batch.column(batch.schema.get_field_index(column.source))
                columns.append(found if found.type == field.type else found.cast(field.type))
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def cast(batches: Iterable[pa.RecordBatch], table: TableLayout, stream: str) -> Iterator[pa.RecordBatch]:
    """The same rows in the columns of a user's schema, by the same rules as for entries of a server."""
    from streamd.arrow.recast import RowCaster

    caster = RowCaster(table, stream_key(stream))
    for batch in batches:
        found = caster.cast(batch.column("id"), batch.column("fields"))
        if found.num_rows:
            yield found
