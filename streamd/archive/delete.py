"""Deletes entries permanently: from the archive, by rewriting the files that hold them, and from the server.

An entry that is deleted on the server with XDEL stays in the archive if it was archived before. This deletes it everywhere.
Under the stream's lock, one step after the other:

    locked                the locks are held, of the stream and of merges in the background: one that was under way is discarded
    recovered             the stream is the one that was archived; what an interrupted run or deletion has left is cleaned up
    delete staged         the files that hold such entries are rewritten without them
    delete verified       and compared with the old ones
    delete moving, moved  and have their final names
    delete pending
    delete committed      the manifest names them instead of the old ones: from here on nobody reads the entries
    delete published      the open tables name them too
    removed               the old ones are removed, and those that other rewrites have left behind
    next pending          when the first entry that is not archived, which the manifests note, is one of them, they
    next committed,       note the one that will be the first
    next published
    unserved              the entries that are still on the server are deleted there
    settled pending,      the manifests no longer excuse them there
    settled committed,
    settled published

After a crash between any two of them, the same deletion again does the rest. Readers that have planned to read an old file
read what took its place.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

from streamd.archive.archive_errors import IncarnationError, TableError
from streamd.archive.commit_recovery import Hook, StreamWork, held, no_hook
from streamd.archive.layout import Layout
from streamd.archive.live_stream import find_entry_above, find_state
from streamd.archive.lock import ArchiveLock, used_tokens
from streamd.archive.manifest import FileRecord, Range, joined
from streamd.archive.manifest_log import ManifestLog
from streamd.archive.object_disk import disk_for
from streamd.archive.parquet import near, read_rows, without
from streamd.archive.same_stream import OwnStream, check_is_archived_stream
from streamd.archive.staging_folder import staged
from streamd.client.archive_keys import token_key
from streamd.client.connection import Connection, connect
from streamd.client.key_names import stream_key
from streamd.client.points import MAX_ID, format_entry_id
from streamd.client.stream_info import StreamInfo
from streamd.client.url_options import ConnectionOptions
from streamd.disk import Disk

__all__ = ["DELETE_STEPS", "DeleteReport", "delete", "fixed_ranges"]

DELETE_STEPS = (
    "recovered", "delete staged", "delete verified", "delete moving", "delete moved", "delete pending",
    "delete committed", "delete published", "removed", "next pending", "next committed", "next published", "unserved",
    "settled pending", "settled committed", "settled published",
)  # fmt: skip

CHUNK = 1000
"""Entries, or entry IDs, per round trip to the server."""

MANY = 1000
"""A deletion that has noted more ranges of what the server held than this ends with a checkpoint."""

REPLACED_DELAY_MS = 900_000
"""How long other replaced files stay, when nothing is deleted after all: as long as a run leaves them by default."""


@dataclass
class DeleteReport:
    """What a deletion did, or would do."""

    stream: str
    archived: int = 0  # entries that left the archive
    files: int = 0  # files that held them
    on_server: int = 0  # entries that left the server
    is_trial: bool = False  # nothing was changed

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class Progress:
    """How far a deletion is: entries that were counted, rewritten, compared, or deleted on the server.

    tell  called with how many there have been, and how many there will be, as far as that is known
    """

    def __init__(self, tell: Callable[[int, int], None] | None = None) -> None:
        self._tell = tell
        self._done = self._total = 0

    def expect(self, entries: int) -> None:
        self._total += entries

    def add(self, entries: int) -> None:
        self._done += entries
        if self._tell is not None:
            self._tell(self._done, max(self._done, self._total))


def capped(ranges: Iterable[Range], state: StreamInfo | None) -> list[Range]:
    """Merged ranges, capped at the stream's last ID: what is added from now on is not included."""
    if state is None:
        return joined(ranges)
    return joined((low, min(high, state.last_generated)) for low, high in ranges)


def fixed_ranges(stream: str, options: Mapping[str, str], ranges: Iterable[Range]) -> list[Range]:
    """What the ranges mean now, for callers that count first and delete later."""
    with connect(ConnectionOptions.parse(options).live_only().at(stream)) as connection:
        return capped(ranges, find_state(connection, stream))


def delete(
    path: str,
    stream: str,
    options: Mapping[str, str],
    ranges: Iterable[Range],
    *,
    archive_only: bool = False,
    is_trial: bool = False,
    lock_ttl_ms: int = 60_000,
    lock_wait_ms: int = 0,
    disk: Disk | None = None,
    hook: Hook = no_hook,
    progress: Callable[[int, int], None] | None = None,
) -> DeleteReport:
    """Delete the entries of a stream whose IDs lie in any of the ranges [low, high].

    A range that reaches above the stream's last ID ends there, whatever is added meanwhile.

    options       where the server is, as for format("streamd")
    archive_only  leave what is on the server as it is; entries that are not archived yet will be
    is_trial      only count
    progress      called with how many entries were looked at or deleted, and how many will be, as far as that is known
    Raises LockedError while an archiver is running, IncarnationError when the server's stream is not the one that was
    archived (or there is none, unless `archive_only`), and what reading the archive and the server raises. Then nothing
    was deleted.
    """
    layout = Layout(path)
    layout.check()
    connection_options = ConnectionOptions.parse(options).live_only().at(stream)
    report, done = DeleteReport(stream, is_trial=is_trial), Progress(progress)
    with connect(connection_options) as connection:
        # Before the lock is taken, which changes the server's counter; what an archiver does meanwhile may look like a gap.
        log, found = check_place(layout, connection, stream, archive_only=archive_only, allow_gaps=True)
        state = found.state
        wanted = capped(ranges, state)
        if is_trial:
            count(log, connection, wanted, archive_only=archive_only, report=report, done=done)
            return report
        run = f"{datetime.now(UTC).strftime('%Y%m%dT%H%M%S')}-{uuid.uuid4().hex[:12]}"
        lock = ArchiveLock.acquire(
            connection, stream, run=run, archive=str(layout.root), ttl_ms=lock_ttl_ms, wait_ms=lock_wait_ms
        )
        disk = disk or disk_for(layout.root)
        with (
            held(lock, connection_options),
            held(lock.take_merging(), connection_options),
            staged(layout.root, layout.staging(stream, run), disk),
        ):
            _, found = check_place(layout, connection, stream, archive_only=archive_only, allow_gaps=archive_only)
            work = StreamWork(layout, disk, connection, lock, run, hook)
            work.seen = found
            work.recover(REPLACED_DELAY_MS)
            hook("recovered")
            work.rewriting = done.add
            delete_archived(work, wanted, report, done)
            work.refresh()
            # A server that reads the archive itself forgets what it has read ahead when this number changes (tiered).
            lock.guarded([("INCR", token_key(stream))])
            if not archive_only:
                note_next(work, wanted)
                ones, wide = separated(wanted)
                done.expect(len(ones) + (state.length if wide and state is not None else 0))
                delete_served(work, wanted, report, done)
                hook("unserved")
                work.refresh()
                noted = 0 if work.log.last is None else len(work.log.last.excused)
                work.settle("settled ", wanted)
                if noted > MANY:  # which nobody should have to read again
                    work.checkpoint(1)
    return report


def check_place(
    layout: Layout, connection: Connection, stream: str, *, archive_only: bool, allow_gaps: bool
) -> tuple[ManifestLog, OwnStream]:
    """The manifests, and what the server says of the stream. Raises if it was not archived, or evidently from another server.

    allow_gaps  entries may have been trimmed before they were archived
    """
    log = ManifestLog.read_archived(layout, stream)
    state = find_state(connection, stream)
    if state is None and not archive_only:
        raise IncarnationError(
            f"the server has no stream {stream!r}: is it the right one? Without a stream, only the archive can be changed"
        )
    # The counter of archivers tells servers apart whose streams of the same name look alike.
    if state is not None and (counted := used_tokens(connection, stream)) < log.token:
        raise IncarnationError(
            f"archivers have had {counted} locks of {stream!r} on this server, and {log.token} when it was archived: that was "
            "another server, or this one has lost the counter, which a run of the archiver sets right"
        )
    return log, check_is_archived_stream(connection, layout, log, allow_gaps=allow_gaps, may_be_gone=True)


def delete_archived(work: StreamWork, ranges: Sequence[Range], report: DeleteReport, done: Progress) -> None:
    files = [file for file in work.log.files if holds(work.layout, file, ranges)]
    if files:
        done.expect(2 * sum(file.rows for file in files))
        report.files = len(files)
        report.archived = work.rewrite([[file] for file in files], ranges, prefix="delete ")
    # Also when there was nothing to rewrite: a deletion before this one may have ended here.
    work.refresh()
    work.remove_replaced(0)
    if work.table_fault is not None:
        raise TableError(
            f"{work.table_fault}; what was replaced is still there: delete again when that has been repaired"
        )
    work.hook("removed")


def holds(layout: Layout, file: FileRecord, ranges: Sequence[Range]) -> bool:
    """Whether a file holds entries of the ranges; it is read up to the first one."""
    return any(found > kept for found, kept in counts_in(layout, file, ranges))


def count_in(layout: Layout, file: FileRecord, ranges: Sequence[Range]) -> int:
    """How many entries in the ranges a file holds."""
    return sum(found - kept for found, kept in counts_in(layout, file, ranges))


def counts_in(layout: Layout, file: FileRecord, ranges: Sequence[Range]) -> Iterator[tuple[int, int]]:
    """For each batch of a file: its rows, and those of them that are in none of the ranges.

    Of the row groups, only those that may hold such entries are read.
    """
    for at, group in enumerate(file.row_groups):
        if met := near(ranges, group.first, group.last):
            for batch in read_rows(layout.root, file, met[0][0], met[-1][1], ("id",), groups=(at, at + 1)):
                yield batch.num_rows, sum(each.num_rows for each in without([batch], met))


def note_next(work: StreamWork, ranges: Sequence[Range]) -> None:
    """Note the first entry that will be left above what is archived, when the one that is noted will not be.

    A run would miss it, and servers before Redis 7 do not show that it was deleted and not trimmed.
    """
    work.refresh()
    last = work.log.last
    if last is None or last.next_id is None or not near(ranges, last.next_id, last.next_id):
        return
    next_id = find_entry_above(work.connection, work.stream, last.high)
    while next_id is not None and (met := near(ranges, next_id, next_id)):
        next_id = find_entry_above(work.connection, work.stream, met[0][1])
    work.commit(replace(work.rewritten(last), next_id=next_id), "next ")


def delete_served(work: StreamWork, ranges: Sequence[Range], report: DeleteReport, done: Progress) -> None:
    """Delete what is still on the server, and references of groups to it where the server can."""
    key = stream_key(work.stream)
    work.refresh()
    ones, wide = separated(ranges)
    for some in chunks(ones):
        report.on_server += delete_ids(work, key, some)
        done.add(len(some))
    for low, high in wide:
        while ids := ids_on_server(work.connection, key, low, high, CHUNK):
            report.on_server += delete_ids(work, key, ids)
            done.add(len(ids))


def delete_ids(work: StreamWork, key: bytes, ids: Sequence[bytes | str]) -> int:
    """Delete entries, some of which may be gone already; return how many existed."""
    if work.features.has_acked_trim:
        (answer,) = work.lock.guarded([("XDELEX", key, "DELREF", "IDS", len(ids), *ids)])
        return sum(each == 1 for each in answer)
    (answer,) = work.lock.guarded([("XDEL", key, *ids)])
    return int(answer)


def separated(ranges: Sequence[Range]) -> tuple[list[str], list[Range]]:
    """The ranges of a single ID, many of which fit in one request, and the other ranges."""
    ones = [format_entry_id(low) for low, high in ranges if low == high]
    return ones, [(low, high) for low, high in ranges if low != high]


def chunks(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(ids), CHUNK):
        yield ids[start : start + CHUNK]


def ids_on_server(connection: Connection, key: bytes, low: int, high: int, limit: int) -> list[bytes]:
    if low > MAX_ID:
        return []
    end = format_entry_id(min(high, MAX_ID))
    return [entry_id for entry_id, _ in connection.command("XRANGE", key, format_entry_id(low), end, "COUNT", limit)]


def count(
    log: ManifestLog, connection: Connection, ranges: Sequence[Range], *, archive_only: bool, report: DeleteReport,
    done: Progress,
) -> None:  # fmt: skip
    """Count what a deletion would delete."""
    done.expect(log.rows)
    for file in log.files:
        rows = count_in(log.layout, file, ranges)
        report.archived += rows
        report.files += rows > 0
        done.add(file.rows)
    if archive_only:
        return
    key = stream_key(log.stream)
    ones, wide = separated(ranges)
    for some in chunks(ones):
        report.on_server += sum(map(len, connection.pipeline([("XRANGE", key, each, each) for each in some])))
    for low, high in wide:
        while ids := ids_on_server(connection, key, low, high, CHUNK):
            report.on_server += len(ids)
            done.add(len(ids))
            milliseconds, _, sequence = ids[-1].partition(b"-")
            low = (int(milliseconds) << 64 | int(sequence)) + 1
