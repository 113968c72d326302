"""What a run leaves on the server about itself: see streamd/client/archive_runs.py."""

from __future__ import annotations

from streamd.archive.layout import Layout
from streamd.archive.origin import archive_label
from streamd.archive.run_outcome import StreamReport
from streamd.client.archive_runs import ArchiveRun, format_runs, parse_runs, runs_key
from streamd.client.connection import Connection, server_ms

__all__ = ["find_run", "note_run"]


def find_run(connection: Connection, layout: Layout, stream: str) -> ArchiveRun | None:
    """The last run over a stream into an archive; None when none is known."""
    return parse_runs(connection.command("GET", runs_key(stream))).get(archive_label(layout))


def note_run(
    connection: Connection, layout: Layout, report: StreamReport, run_name: str, *, every_ms: int | None, is_new: bool
) -> None:
    """Note a run over a stream.

    is_new  note it even if no run is known: the stream is one that is archived
    """
    key, label, now_ms = runs_key(report.stream), archive_label(layout), server_ms(connection)
    runs = parse_runs(connection.command("GET", key))
    before = runs.get(label)
    if before is None and not is_new:
        return
    has_failed = report.status == "failed"
    run = ArchiveRun(
        archive=str(layout.root),
        run=run_name,
        at_ms=now_ms,
        every_ms=every_ms,
        success_ms=None if has_failed else now_ms,
        error=report.error if has_failed else None,
        error_kind=report.error_kind if has_failed else None,
        error_ms=now_ms if has_failed else None,
        boundary=report.high or (before.boundary if before is not None else "0-0"),
        first=report.first,
        rows=report.archived_rows,
        bytes=report.archived_bytes,
        held_by=report.held_by,
    )
    connection.command("SET", key, format_runs({**runs, label: run.after(before)}))
