"""Streaming queries that read through an archive: the option `archive` of format("streamd").

    QueryArchive         what lies in the archive behind a position: used by planner.py
    read_through(...)    the rows of a part of a batch, wherever they are by now: used by the tasks (streaming.py)

An archiver commits a manifest before it trims what the manifest names. Therefore:

    the planner looks at the stream first and at the manifests afterwards: if these end at or below a position, nothing above it
    had been trimmed when the stream was looked at

    a task takes what the manifests name from the files, and the rest from the server. After each batch of rows it asks the server
    how far archivers have trimmed: if that is above the start of the batch, the batch may lack entries, so it is dropped, and
    read again from the archive

A part of a batch is the same IDs wherever it is read, so a batch that is repeated after its entries were archived has the
same rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from streamd.archive.archive_errors import IncarnationError
from streamd.archive.archived_rows import read_file
from streamd.archive.boundary import entries_behind
from streamd.archive.full_history import plan_cold, read_part
from streamd.archive.layout import Layout
from streamd.archive.live_stream import find_state
from streamd.archive.lock import trimmed_to
from streamd.archive.manifest import RowGroup
from streamd.archive.manifest_log import ManifestLog, archived_streams
from streamd.archive.name_patterns import pattern_of
from streamd.archive.same_stream import check_is_archived_stream
from streamd.arrow.decode import EntryDecoder
from streamd.client.client_errors import DataLossError
from streamd.client.connection import Connection, connect
from streamd.client.key_names import stream_key
from streamd.client.points import format_entry_id, parse_entry_id
from streamd.client.stream_info import StreamInfo
from streamd.spark.source.offsets import Lag, Part
from streamd.transfer.ranges import read_range
from streamd.transfer.read_options import SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from streamd.arrow.entry_table import TableLayout

__all__ = ["ArchivedBatch", "QueryArchive", "archived_lag", "read_through", "rows_above"]


@dataclass(frozen=True)
class ArchivedBatch:
    """What a batch reads of the archived part of a stream.

    last       ID up to which it reads
    cuts       first entry and number of entries of each part
    following  the next archived entry; None: no more are archived
    """

    last: int
    cuts: tuple[tuple[int, int | None], ...]
    following: int | None

    @property
    def count(self) -> int:
        return sum(count or 0 for _, count in self.cuts)


class QueryArchive:
    """The archive of a query, as its planner sees it."""

    def __init__(self, options: SourceOptions, path: str) -> None:
        self._options = options
        self._layout = Layout(path)
        self._logs: dict[str, ManifestLog] = {}

    def streams(self) -> set[str]:
        """Archived streams that the query reads."""
        self._layout.check()
        archived = set(archived_streams(self._layout))
        if self._options.stream_pattern is None:
            return archived.intersection(self._options.named_streams)
        matches = re.compile(pattern_of(self._options.stream_pattern), re.DOTALL)
        return {each for each in archived if matches.fullmatch(each)}

    def log(self, stream: str) -> ManifestLog:
        """The manifests of a stream, as they are now."""
        self._layout.check()
        self._logs[stream] = ManifestLog.read(self._layout, stream, known=self._logs.get(stream))
        return self._logs[stream]

    def checked_log(self, connection: Connection, stream: str) -> ManifestLog:
        """The same. Raises DataLossError unless the server's stream is the archived one, with no entries lost between the two."""
        log = self.log(stream)
        if self._options.fail_on_data_loss:
            try:
                check_is_archived_stream(connection.at(stream_key(stream)), self._layout, log, may_be_gone=True)
            except IncarnationError as error:
                raise DataLossError(f"stream {stream}: {error}") from error
        return log

    def plan(self, log: ManifestLog, at: int, high: int, limit: int | None, part_rows: int) -> ArchivedBatch | None:
        """The next archived entries above `at` and up to `high`; None at the end of the archive.

        limit      maximum number of entries
        part_rows  how many entries a part should have: as many row groups as fit, or a part of one
        """
        pieces: list[tuple[int, int]] = []  # first entry and number of entries
        last, left = at, limit
        for first, rows, end in self._pieces(log, at, high, part_rows):
            if left is not None and rows > left:
                ids = self._ids(log, first, end)[: left + 1]
                if left:
                    pieces, last = [*pieces, (first, left)], ids[left - 1]
                return made(pieces, last, ids[left], part_rows) if pieces else None
            pieces, last = [*pieces, (first, rows)], end
            left = None if left is None else left - rows
        # Above the last entry nothing was archived up to the boundary, unless it was deleted.
        return made(pieces, max(last, min(log.boundary, high)), None, part_rows) if pieces else None

    def _pieces(self, log: ManifestLog, at: int, high: int, part_rows: int) -> Iterator[tuple[int, int, int]]:
        """First entry, number of entries and last entry of row groups, or of parts of one, in (at, high]."""
        for group in groups_above(log, at):
            if group.first > high:
                return
            if at < group.first and group.last <= high and group.rows <= part_rows:
                yield group.first, group.rows, group.last
                continue
            ids = self._ids(log, max(group.first, at + 1), min(group.last, high))
            for start in range(0, len(ids), part_rows):
                piece = ids[start : start + part_rows]
                yield piece[0], len(piece), piece[-1]

    def _ids(self, log: ManifestLog, low: int, high: int) -> list[int]:
        """The archived IDs in [low, high], which are those of one row group."""
        found: list[int] = []
        for file in log.files:
            if file.first <= high and file.last >= low:
                groups = (0, len(file.row_groups))
                for batch in read_file(self._layout, log.stream, file, low, high, ("id",), groups=groups):
                    found += map(parse_entry_id, batch.column("id").to_pylist())
        return found


def groups_above(log: ManifestLog, at: int) -> Iterator[RowGroup]:
    """Row groups that have entries above an ID, in order."""
    for file in log.files:
        if file.last > at:
            yield from (group for group in file.row_groups if group.last > at)


def rows_above(log: ManifestLog, at: int) -> int:
    """How many archived entries lie above an ID; up to a row group more where it lies in one."""
    return sum(group.rows for group in groups_above(log, at))


def made(pieces: list[tuple[int, int]], last: int, following: int | None, part_rows: int) -> ArchivedBatch:
    """A batch of these pieces, joined to parts as long as these do not get larger than they should be."""
    cuts: list[tuple[int, int]] = []
    for first, rows in pieces:
        if cuts and cuts[-1][1] + rows <= part_rows:
            cuts[-1] = (cuts[-1][0], cuts[-1][1] + rows)
        else:
            cuts.append((first, rows))
    return ArchivedBatch(last, tuple(cuts), following)


def archived_lag(log: ManifestLog, at: int, following: int | None, info: StreamInfo | None) -> Lag:
    """What a stream has behind a position in its archive, and on the server.

    following  the next archived entry, if it is known
    """
    above = 0 if info is None else entries_behind(info, log.last)
    end = max(log.boundary, 0 if info is None else info.last_generated)
    if following is None:
        following = next((group.first for group in groups_above(log, at) if group.first > at), None)
    return Lag(end, None if above is None else rows_above(log, at) + above, following)


# --- In a task ------------------------------------------------------------------------------------------------------------


def read_through(options: SourceOptions, table: TableLayout, part: Part) -> Iterator[pa.RecordBatch]:
    """The rows of a part, from the archive and the server. Raises DataLossError after the last one if some were lost."""
    layout, key = Layout(options.archive or ""), stream_key(part.stream)
    layout.check()
    place = options.connection.at(part.stream).live_only()
    own = replace(options, connection=place)
    log, low, count, trimmed = None, part.low, 0, 0
    with connect(place) as connection:
        while low <= part.high:
            log = ManifestLog.read(layout, part.stream, known=log)
            if trimmed > log.boundary:
                raise DataLossError(
                    f"{part.stream!r} is trimmed up to {format_entry_id(trimmed)}, and archived here only up to "
                    f"{format_entry_id(log.boundary)}: it is archived elsewhere too"
                )
            for cold in plan_cold(log.files, part.stream, low, min(part.high, log.boundary)):
                for rows in read_part(own, table, cold):
                    count += rows.num_rows
                    yield rows
            low = max(low, log.boundary + 1)
            if low > part.high:
                return  # all of it is archived, so what is not there was deleted
            decoder = EntryDecoder(table, key)
            taken = 0  # entries of the batches that were returned
            live = read_range(
                place, decoder, key, low, part.high, fetch_size=options.fetch_size, batch_rows=options.batch_size
            )
            with closing(live):
                for rows in live:
                    if (trimmed := trimmed_up_to(connection, part.stream)) >= low:
                        break
                    low, taken = decoder.last_id + 1, decoder.total_entries
                    yield rows
                else:
                    if (trimmed := trimmed_up_to(connection, part.stream)) < low:
                        low = part.high + 1
            count += taken
        if options.mode == "DROPMALFORMED" or part.count != count:
            check_for_loss(options, connection, part, is_short=options.mode != "DROPMALFORMED")


def trimmed_up_to(connection: Connection, stream: str) -> int:
    """Up to which ID archivers have trimmed; 0 when none has."""
    noted = trimmed_to(connection, stream)
    return 0 if noted is None else parse_entry_id(noted)


def check_for_loss(options: SourceOptions, connection: Connection, part: Part, *, is_short: bool) -> None:
    """Raise DataLossError if others than an archiver removed entries of a part before they were read.

    is_short  there were fewer entries than were counted
    """
    if not options.fail_on_data_loss:
        return
    state = find_state(connection, part.stream)
    where = f"stream {part.stream}, {format_entry_id(part.low)} to {format_entry_id(part.high)}"
    if state is None or state.last_generated < part.high:
        raise DataLossError(f"{where}: the stream was deleted or recreated while it was read")
    was_deleted = state.max_deleted is not None and state.max_deleted >= part.low
    if was_deleted or not state.has_none_up_to(part.low):
        return
    if (is_short and part.count is not None) or trimmed_up_to(connection, part.stream) < part.low:
        raise DataLossError(f"{where}: entries were trimmed that are not archived")
