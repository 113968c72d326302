"""Puts what is archived back into a stream, with its IDs.

A stream only grows at its end: the IDs that come back must be above all that the target has ever had. So the target is
usually a new key. An interrupted restore continues with `resume`: the target's own last ID says how far it
got, whatever was acknowledged or not.

The source is the archive alone. What is above its boundary is on a server, and is not copied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from streamd.archive.archive_errors import ArchiveError
from streamd.archive.archived_rows import read_archived
from streamd.archive.layout import Layout
from streamd.archive.live_stream import find_state
from streamd.archive.manifest_log import ManifestLog
from streamd.archive.same_stream import check_ends
from streamd.arrow.encode import XAddEncoder
from streamd.client.connection import Connection, connect
from streamd.client.key_names import stream_key
from streamd.client.points import MAX_ID, format_entry_id
from streamd.client.url_options import ConnectionOptions

__all__ = ["RestoreReport", "restore"]

CHUNK = 1000
"""Entries of one round trip."""


@dataclass
class RestoreReport:
    """What a restore did. IDs as text; None: there was nothing to restore."""

    stream: str
    into: str
    rows: int = 0
    first: str | None = None
    last: str | None = None
    resumed_after: str | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def restore(
    path: str,
    stream: str,
    options: Mapping[str, str],
    *,
    into: str,
    low: int = 0,
    high: int = MAX_ID,
    resume: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> RestoreReport:
    """Append the archived entries of `stream` with IDs in [low, high] to the stream `into`, with their IDs.

    options   where the server is, as for format("streamd")
    resume    continue after the target's last ID; otherwise the target's last ID must be below the first ID to restore
    progress  called with the rows restored so far, and their total
    Raises ArchiveError when the target's IDs are in the way, or it is to be continued and has entries of its own, and what reading the archive and the server raises. The
    entries before the failure stay: restore again with `resume`.
    """
    layout = Layout(path)
    layout.check()
    log = ManifestLog.read_archived(layout, stream)
    report = RestoreReport(stream, into)
    with connect(ConnectionOptions.parse(options).live_only().at(into)) as connection:
        state = find_state(connection, into)
        if state is not None and state.last_generated:
            if resume:
                check_ends(connection, into, layout, log, 0, state.last_generated)
                low = max(low, state.last_generated + 1)
                report.resumed_after = format_entry_id(state.last_generated)
            elif any(low <= file.last and file.first <= high for file in log.files):
                check_target(into, state.last_generated, max(low, log.files[0].first))
        total = sum(
            group.rows for file in log.files for group in file.row_groups if group.last >= low and group.first <= high
        )
        encoder = XAddEncoder(key=stream_key(into), id_column=0, fields_column=1)
        for batch in read_archived(layout, stream, low, high, ("id", "fields"), log=log):
            append(connection, encoder, batch)
            report.rows += batch.num_rows
            report.first = report.first or batch.column(0)[0].as_py()
            report.last = batch.column(0)[-1].as_py()
            if progress is not None:
                progress(report.rows, max(total, report.rows))
    return report


def check_target(into: str, last_generated: int, first: int) -> None:
    if last_generated >= first:
        raise ArchiveError(
            f"stream {into!r} has had the ID {format_entry_id(last_generated)}, and accepts only higher ones: "
            f"{format_entry_id(first)} cannot be put back there. Name another key, or resume an interrupted restore"
        )


def append(connection: Connection, encoder: XAddEncoder, batch: Any) -> None:
    for start in range(0, batch.num_rows, CHUNK):
        stop = min(start + CHUNK, batch.num_rows)
        connection.socket_send(encoder.encode(batch, start, stop))
        connection.replies(stop - start)
