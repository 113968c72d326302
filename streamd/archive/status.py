"""How far the streams of an archive are archived, and what prevents trimming."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from streamd.archive.archive_errors import IncarnationError
from streamd.archive.boundary import entries_behind, holders
from streamd.archive.layout import Layout
from streamd.archive.leases import leased_boundary
from streamd.archive.live_stream import find_entry_above, find_state
from streamd.archive.lock import holder_of, trimmed_to
from streamd.archive.manifest_log import ManifestLog, archived_streams
from streamd.archive.run_records import find_run
from streamd.archive.same_stream import check_is_archived_stream
from streamd.client.archive_runs import ArchiveRun
from streamd.client.client_errors import DataLossError
from streamd.client.connection import Connection, server_ms
from streamd.client.key_names import stream_key
from streamd.client.points import format_entry_id, ms_of
from streamd.client.primaries import at_streams
from streamd.client.stream_info import find_groups
from streamd.client.url_options import ConnectionOptions
from streamd.stream_state import age_s

__all__ = ["StreamStatus", "read_status"]


@dataclass
class StreamStatus:
    """One stream. IDs as text; what the server says is None when it was not asked, or has no such stream."""

    stream: str
    boundary: str  # archived up to here
    rows: int
    files: int
    bytes: int
    manifests: int
    archived_at_ms: int | None  # when the last manifest was written, by the server's clock
    on_server: int | None = None  # entries the server holds, archived ones among them
    last_id: str | None = None
    behind_entries: int | None = None  # entries above the boundary (boundary.py); None: unknown, too
    behind_ms: int | None = None  # how long the first of them has been waiting; None: also if its ID is not a time
    trimmed_to: str | None = None
    held_by: dict[str, str] = field(default_factory=dict)  # groups that still need archived entries
    held_by_readers: str | None = None
    locked_by: dict[str, Any] | None = None  # the run that holds the lock
    last_run: ArchiveRun | None = None  # as the server knows it; None: it knows none
    success_age_ms: int | None = None  # since the last run over it succeeded; None: unknown
    fault: str | None = None  # why the next run will refuse the server's stream; None: it will not

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def is_late(self, max_age_ms: int) -> bool:
        """Whether the stream is on the server, and no run over it has succeeded for longer than this."""
        return self.on_server is not None and (self.success_age_ms is None or self.success_age_ms > max_age_ms)


def read_status(path: str, options: Mapping[str, str] | None, streams: list[str] | None = None) -> list[StreamStatus]:
    """The state of the streams of an archive, all of them unless some are named.

    options  where the server is; None: only the archive is read
    """
    layout = Layout(path)
    layout.check()
    found = [of_archive(layout, stream) for stream in streams or archived_streams(layout)]
    if options is not None:
        asked = {status.stream: (status, log) for status, log in found}
        at_streams(
            ConnectionOptions.parse(options).live_only(), asked, lambda each, name: ask_server(each, *asked[name])
        )
    return [status for status, _ in found]


def of_archive(layout: Layout, stream: str) -> tuple[StreamStatus, ManifestLog]:
    log = ManifestLog.read(layout, stream)
    files = log.files
    status = StreamStatus(
        stream=stream,
        boundary=format_entry_id(log.boundary),
        rows=log.rows,
        files=len(files),
        bytes=sum(file.size for file in files),
        manifests=log.sequence,
        archived_at_ms=log.last.created_ms if log.last is not None else None,
    )
    return status, log


def ask_server(connection: Connection, status: StreamStatus, log: ManifestLog) -> None:
    stream = status.stream
    status.locked_by = holder_of(connection, stream)
    status.last_run, now_ms = find_run(connection, log.layout, stream), server_ms(connection)
    if status.last_run is not None and status.last_run.success_ms is not None:
        status.success_age_ms = max(0, now_ms - status.last_run.success_ms)
    status.trimmed_to = trimmed_to(connection, stream)
    leased = leased_boundary(connection, stream)
    status.held_by_readers = None if leased is None or leased >= log.boundary else format_entry_id(leased)
    state = find_state(connection, stream)
    if state is None:
        return
    status.on_server = state.length
    status.last_id = format_entry_id(state.last_generated)
    status.behind_entries = entries_behind(state, log.last)
    status.behind_ms = waiting_ms(find_entry_above(connection, stream, log.boundary), now_ms)
    status.held_by = dict(holders(find_groups(connection, stream_key(stream)), log.boundary))
    try:
        check_is_archived_stream(connection, log.layout, log)
    except (IncarnationError, DataLossError) as error:
        status.fault = str(error)


def waiting_ms(entry: int | None, now_ms: int) -> int | None:
    """How long ago an entry was added, by its ID: 0 without an entry, None if the ID is not a time."""
    if entry is None:
        return 0
    age = age_s((ms_of(entry), 0), now_ms)
    return None if age is None else round(age * 1000)
