"""The archiver: moves what is older than the hot window from streams to Parquet, in an order that loses or duplicates nothing.

For each stream, under its lock, one step after the other; the next run recovers from a crash between any two of them:

    locked      the lock is held, with a fencing token
    recovered   the stream is the one that was archived; pending manifests, staging files and data files that no manifest
                names are removed
    retrimmed   what committed manifests allow to be trimmed is trimmed, if an earlier run did not get to it
    bounded     the range: above the last manifest, up to the end of the hot window or the last-generated ID
    staged      the range is read and written to files in a staging folder
    verified    the files are compared with the server, entry by entry
    moving      the first file has its final name
    moved       all files have; names and bytes are on the disk
    pending     the manifest is written under a name that no reader looks at, and the lock is still held
    committed   the manifest has its name: from here on the range is read from the archive
    published   the open tables name the files
    trimming    the first part of what may be trimmed is trimmed
    trimmed     all of it is
    merge ...   staged, verified, moving, moved, pending, committed, published: small files have been merged (see commit_recovery.py;
                in a service the first two are done by a thread, between rounds: background_merge.py)
    checkpoint pending, checkpointed, pruned   the manifests are summarized (see manifest.py)
    released    the lock is released

A manifest more is committed, with the steps `pending` to `published`, where the user accepts something, and after a trim of entries that
were accepted or deleted from the archive: it notes which of them are left.

`hook(step)` is called at each: tests kill the run there. After a failure (an exception, Ctrl-C) the lock is released;
after anything else that ends a run it expires, or is taken from the dead process.

What is trimmed is only what manifests older than `trim_delay` name, so that readers that planned with an older manifest
find what they planned to read; never what a reader has a lease on; and never what a consumer group still needs: entries
that are pending or not yet delivered stay on the server, and are trimmed by a later run. Readers do not see them twice.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from streamd.archive.archive_errors import LockedError, LockLostError, NoStreamsError
from streamd.archive.background_merge import BackgroundMerges
from streamd.archive.boundary import (
    Gap,
    check_incarnation,
    choose_end,
    entries_behind,
    find_gap_in_copy,
    holders,
    trim_limit,
)
from streamd.archive.commit_recovery import Hook, StreamWork, held, no_hook
from streamd.archive.kept_tables import check_libraries, keep
from streamd.archive.layout import Layout
from streamd.archive.leases import leased_boundary
from streamd.archive.live_stream import find_entry_above, find_state, has_entry, read_entries
from streamd.archive.lock import ArchiveLock, trimmed_to
from streamd.archive.manifest import FileRecord, Manifest
from streamd.archive.manifest_log import ManifestLog
from streamd.archive.object_disk import disk_for
from streamd.archive.open_format import TableConfig
from streamd.archive.origin import settle_identity
from streamd.archive.parquet import COLUMNS, DatedFile, write_files
from streamd.archive.places import check_replica, find_places
from streamd.archive.publishing import OpenTables
from streamd.archive.run_outcome import RunReport, StreamReport
from streamd.archive.run_records import note_run
from streamd.archive.same_stream import OwnStream, check_is_archived_stream
from streamd.archive.staging_folder import staged
from streamd.archive.verify import Depth, compare_with_server
from streamd.arrow.entry_table import default_table
from streamd.client.archive_keys import key_beside
from streamd.client.client_errors import DataLossError, OptionError, ServerError, UnreachableError
from streamd.client.connection import TEMPORARY_CODES, Attempts, Connection, connect, server_features, server_ms
from streamd.client.key_names import stream_key
from streamd.client.points import MAX_ID, format_entry_id, parse_entry_id
from streamd.client.stream_info import GroupNeeds, StreamInfo, find_groups
from streamd.client.url_options import ConnectionOptions
from streamd.disk import Disk
from streamd.errors import StreamdError
from streamd.transfer.partitions import find_streams
from streamd.transfer.read_options import SourceOptions

__all__ = [
    "STEPS",
    "ArchiveSettings",
    "Archiver",
    "RunReport",
    "StreamReport",
    "archive",
]

STEPS = (
    "locked", "recovered", "retrimmed", "bounded", "staged", "verified", "moving", "moved", "pending", "committed",
    "published", "trimming", "trimmed", "merge staged", "merge verified", "merge moving", "merge moved", "merge pending", "merge committed",
    "merge published", "checkpoint pending", "checkpointed", "pruned", "released",
)  # fmt: skip

PASSING = (UnreachableError, LockedError, LockLostError)
"""Failures after which a later round commits what was merged meanwhile, if its lock was kept."""

Progress = Callable[[str, str], None]
"""Called with the stream and the step that begins."""


@dataclass(frozen=True)
class ArchiveSettings:
    """How to archive. Times in milliseconds."""

    hot_window_ms: int = 86_400_000  # what is younger stays on the server only
    trim: bool = True  # whether to trim at all
    trim_delay_ms: int = 900_000  # how old a manifest must be before what it names is trimmed
    ignored_groups: frozenset[str] = frozenset()  # groups that need not have seen what is trimmed
    allow_gaps: bool = False  # continue although entries were trimmed before they were archived
    accept_server: bool = False  # continue although the server seems to be another one (origin.py)
    primary: str | None = None  # URL of the primary, if entries are read from a replica; None: as the replica says
    depth: Depth = "ids"  # how thoroughly files are compared with the server before a commit
    lock_ttl_ms: int = 60_000  # after this time without a renewal another archiver may take over
    lock_wait_ms: int = 0  # how long to wait for another archiver
    merge_files: int = 32  # this number of small files of a date are merged
    checkpoint_every: int = 64  # a checkpoint is written after this number of manifests
    publish: tuple[TableConfig, ...] = ()  # open tables to keep from now on
    every_ms: int | None = None  # how often runs are repeated (service.py), which is noted on the server; None: unknown


def archive(
    path: str,
    options: Mapping[str, str],
    *,
    settings: ArchiveSettings | None = None,
    progress: Progress | None = None,
) -> RunReport:
    """Archive streams into the folder `path`, made when it is missing.

    options  those of format("streamd"): where the server is, and stream, streams or streamPattern
    A stream that cannot be archived does not stop the others: its report says why (`is_success` is False then).
    Raises what concerns all of them: OptionError, UnreachableError, ArchiveError.
    """
    return Archiver(path, options, settings or ArchiveSettings(), progress=progress).run()


def chosen_streams(connection: Connection, options: Mapping[str, str]) -> list[str]:
    """The streams that the options name; those of a pattern in order.

    Raises OptionError when they name none, and NoStreamsError when none matches.
    """
    source = SourceOptions.parse({name: value for name, value in options.items() if name.lower() != "archive"})
    if not (found := find_streams(connection, source)):
        raise NoStreamsError(
            f"no stream of {connection.place} matches {source.stream_pattern!r}, so nothing is archived; check the pattern, and the "
            "number of the database"
        )
    return found


def no_progress(stream: str, step: str) -> None:
    """For a run whose progress nobody watches."""


class Archiver:
    """One run. All its dependencies are passed in.

    archive_id  of the archive that must be there; None: it is made when it is missing. A service that has found it must not make another
                one, at any moment, where a file system is not mounted any more
    merges      of the service that this run is a round of; None: the run merges files itself
    """

    def __init__(
        self,
        path: str,
        options: Mapping[str, str],
        settings: ArchiveSettings,
        *,
        disk: Disk | None = None,
        hook: Hook = no_hook,
        progress: Progress | None = None,
        archive_id: str | None = None,
        merges: BackgroundMerges | None = None,
    ) -> None:
        self.layout = Layout(path)
        self.archive_id = archive_id
        self.merges = merges
        self.options = dict(options)
        self.reads = self.control = ConnectionOptions.parse(options).live_only()
        self.settings = settings
        self.disk = disk or disk_for(self.layout.root)
        self.hook = hook
        self.progress = progress or no_progress
        self.tables = OpenTables(self.layout, self.disk)
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
        self.run_name = f"{stamp}-{uuid.uuid4().hex[:12]}"

    def run(self) -> RunReport:
        started = time.monotonic()
        report = RunReport(
            self.run_name, str(self.layout.root), started=datetime.now(UTC).isoformat(timespec="seconds")
        )
        places = find_places(self.options, self.settings.primary)
        self.reads, self.control = places.reads, places.control
        report.read_from = places.reads.place if places.are_two else None
        with connect(self.control) as connection:
            features = server_features(connection)
            report.server = str(features)
            streams = chosen_streams(connection, self.options)
            if self.archive_id is None:
                self.layout.create(self.disk)
                self.archive_id = self.layout.id
            self.layout.check_is(self.archive_id)
            for config in self.settings.publish:
                keep(self.layout, config, self.disk)
            check_libraries(self.layout)
        if self.merges is not None:
            self.merges.keep(streams)
        for stream in streams:
            report.streams.append(self.archive_stream(stream))
        report.seconds = time.monotonic() - started
        return report

    def archive_stream(self, stream: str) -> StreamReport:
        """Archive one stream; failures are in the report."""
        self.progress(stream, "connect")
        report = StreamReport(stream)
        started = time.monotonic()
        try:
            self._attempt(stream, report)
        except OptionError:
            raise
        except (StreamdError, OSError) as error:
            kind = type(error).__name__
            report.status, report.error, report.error_kind = "failed", f"{kind}: {error}", kind
            if self.merges is not None and not isinstance(error, PASSING):
                self.merges.drop(stream)
        self.note(report)
        report.seconds = time.monotonic() - started
        return report

    def _attempt(self, stream: str, report: StreamReport) -> None:
        """Archive a stream; in a cluster again, from the start, when its slot has moved or its primary has failed meanwhile.

        Each attempt is a run of its own, which finds what the last one has left as the one after a kill does.
        """
        place = self.control.at(stream)
        attempts, ended = Attempts(place), list[str]()
        while True:
            run = f"{self.run_name}-{len(ended) + 1}" if ended else self.run_name
            with connect(place) as connection:
                try:
                    self._under_lock(connection, report, run, ended)
                    return
                except (UnreachableError, ServerError, LockLostError) as error:
                    if not is_elsewhere(place, error) or not attempts.wait():
                        raise
            ended.append(run)

    def note(self, report: StreamReport) -> None:
        """Note the run on the server, if that can be done; over a new connection, since the other one may be lost."""
        if report.is_left_to_another:
            return
        place = replace(self.control.at(report.stream), retries=0, failover_timeout_ms=0)
        with suppress(UnreachableError, ServerError), connect(place) as connection:
            note_run(
                connection, self.layout, report, self.run_name, every_ms=self.settings.every_ms,
                is_new=report.status != "failed",
            )  # fmt: skip

    def _under_lock(self, connection: Connection, report: StreamReport, run: str, ended: Sequence[str]) -> None:
        settings, stream = self.settings, report.stream
        # Before a key for its lock is made: is there such a stream, and is it the right server?
        log = ManifestLog.read(self.layout, stream)
        check_is_archived_stream(
            connection, self.layout, log, allow_gaps=settings.allow_gaps, accepts_server=settings.accept_server
        ).need_state()
        server_id = settle_identity(connection, self.layout, log, accepts=settings.accept_server)
        lock = ArchiveLock.acquire(
            connection, stream, run=run, archive=str(self.layout.root), ttl_ms=settings.lock_ttl_ms,
            wait_ms=settings.lock_wait_ms, ended=ended,
        )  # fmt: skip
        staging = self.layout.staging(stream, run)
        with held(lock, connection.options), staged(self.layout.root, staging, self.disk):
            self.hook("locked")
            work = StreamRun(self, connection, lock, report, server_id)
            work.run()
            work.note_archive()
        if work.table_fault is not None:
            report.warnings.append(str(work.table_fault))
        self.hook("released")


def is_elsewhere(place: ConnectionOptions, error: StreamdError) -> bool:
    """Whether a run may have failed because its stream is served by another node of a cluster now, or will be soon."""
    is_of_a_move = not isinstance(error, ServerError) or error.code in TEMPORARY_CODES
    return bool(place.cluster_nodes) and is_of_a_move


@dataclass(frozen=True)
class Bounds:
    """What a run archives, and the stream when that was decided."""

    state: StreamInfo
    low: int  # the IDs [low, high]
    high: int
    first_above: int | None  # the first entry from `low` on; None: there was none
    next_id: int | None  # the first one above `high`
    gap: Gap | None  # what had gone by then


class StreamRun(StreamWork):
    """What a run does with one stream while it holds the lock."""

    def __init__(
        self, archiver: Archiver, connection: Connection, lock: ArchiveLock, report: StreamReport, server_id: str
    ) -> None:
        super().__init__(archiver.layout, archiver.disk, connection, lock, lock.run, archiver.hook, archiver.tables)
        self.archive_id = archiver.archive_id or self.archive_id
        self.settings = archiver.settings
        self.merges = archiver.merges
        self.reads = archiver.reads.at(lock.stream)
        self.server_id = server_id
        self._progress = archiver.progress
        self.report = report

    def run(self) -> None:
        self.step("recover")
        self.log = ManifestLog.read(self.layout, self.stream)
        found = self.check()
        seen = self.log.sequence
        self.recover(self.settings.trim_delay_ms)
        self.hook("recovered")
        if self.log.sequence != seen:  # the previous holder of the lock has committed meanwhile
            found = self.check()
        self.accept(found)
        self.note_manifests()
        self.step("trim")
        self.trim()
        self.settle()
        self.hook("retrimmed")
        # What goes from here on was there: it is found by the counters, and by the first entries of the range and above it.
        again = self.check()
        state = again.need_state()
        low, high = self.log.boundary + 1, choose_end(state, server_ms(self.connection), self.settings.hot_window_ms)
        high = min(high, self.readable_until(state))
        first_above = next_id = None
        if low <= high:
            first_above, next_id = (find_entry_above(self.connection, self.stream, each) for each in (low - 1, high))
        self.report.high = format_entry_id(self.log.boundary)
        self.report.low = self.report.low or self.report.high
        self.hook("bounded")
        self.report.status = "archived" if self.report.files else "nothing"
        if low <= high:
            self.archive_range(Bounds(state, low, high, first_above, next_id, found.gap or again.gap))
        self.step("tidy")
        if self.merge_in_turn():
            self.remove_replaced(self.settings.trim_delay_ms)
        self.checkpoint(self.settings.checkpoint_every)

    def step(self, name: str) -> None:
        self._progress(self.stream, name)

    # --- Before

    def check(self) -> OwnStream:
        """What the server says of the stream. Raises unless it is the one of the manifests."""
        settings = self.settings
        found = self.own_stream(allow_gaps=settings.allow_gaps, accepts_server=settings.accept_server)
        if found.gap is not None:
            self.warn(found.gap.text)
        return found

    def accept(self, found: OwnStream) -> None:
        """Note what the user has accepted, even if there is nothing to archive; otherwise the next run would have to be told again."""
        settings, last = self.settings, self.log.last
        if last is None:
            return
        noted = last
        if last.gap:
            self.warn(f"an earlier run found that {last.gap}")
            noted = replace(noted, gap="")
        if settings.accept_server:
            noted = replace(noted, server_id=self.server_id)
        if found.difference is not None:
            self.warn(f"{found.difference}. Accepted: the archived entries take precedence")
            noted = replace(noted, excused=self.excuse([(0, last.high)]))
        else:
            noted = replace(noted, excused=self.still_excused())
        if found.difference is not None or (found.gap is not None and settings.allow_gaps):
            next_id = find_entry_above(self.connection, self.stream, last.high)
            state = found.need_state()
            noted = replace(
                noted,
                next_id=next_id,
                entries_added=state.entries_added,
                length=state.length,
                above=0 if next_id is None else entries_behind(state, last),
                last_generated=state.last_generated,
            )
        if noted != last:
            self.commit(self.rewritten(noted))

    def warn(self, text: str) -> None:
        if text not in self.report.warnings:
            self.report.warnings.append(text)

    def readable_until(self, state: StreamInfo) -> int:
        """The last ID at which nothing can be added any more where entries are read; see places.py.

        state  of the stream on the primary
        Raises ArchiveError when entries are read from a server that is no replica of it any more.
        """
        if self.reads == self.connection.options:
            return state.last_generated
        with connect(self.reads) as connection:
            found = find_state(connection, self.stream)
            check_replica(connection, self.connection)
        if found is None:
            self.warn(f"the replica {self.reads.place} does not have the stream yet")
            return 0
        return found.last_generated

    # --- Archiving

    def archive_range(self, bounds: Bounds) -> None:
        low, high = bounds.low, bounds.high
        staging = self.layout.staging(self.stream, self.run_name)
        self.step("copy")
        self.disk.make_directories(staging)
        entries = read_entries(self.reads, self.stream, low, high, default_table(*COLUMNS))
        files = list(write_files(entries, staging, "part", self.disk))
        self.hook("staged")
        self.refresh()
        if not files:
            # The range is empty. No manifest, then: they would pile up for idle streams.
            self.check_gap(self.gap_in_copy(bounds, files, 0))
            return
        self.step("verify")
        gone = compare_with_server(
            self.reads, self.stream, low, high, self.layout.root, [each.record for each in files], self.settings.depth
        )
        self.hook("verified")
        self.refresh()
        if self.reads != self.connection.options:
            # Otherwise the files may be of another server's entries, and were compared with these.
            with connect(self.reads) as connection:
                check_replica(connection, self.connection)
        gap = self.gap_in_copy(bounds, files, gone)
        self.step("commit")
        records = self.move(files)
        manifest = self.manifest(bounds, records, gap)
        # It may have become another stream during the copy.
        check_incarnation(self.own_stream(allow_gaps=True).need_state(), manifest)
        self.commit(manifest)
        self.note(manifest, gone)
        self.check_gap(gap)
        self.step("trim")
        self.trim()
        self.settle()
        self.hook("trimmed")

    def merge_in_turn(self) -> bool:
        """Merge small files; in a service, begin that, or commit what has been merged since. Return whether files were replaced."""
        merges, at_least = self.merges, self.settings.merge_files
        if merges is None:
            return self.merge(at_least)
        if (merge := merges.take(self.stream)) is not None:
            try:
                if merge.is_due(self.log, self.connection):
                    self.replace_files(merge.rewrite, prefix="merge ")
                    return True
            finally:
                merge.close()
        if not merges.is_merging(self.stream) and (groups := self.groups_to_merge(at_least)):
            merges.begin(
                self.layout, self.connection.options, self.stream, f"{self.run_name}-merge", groups, self.disk, self.hook,
                lock_ttl_ms=self.settings.lock_ttl_ms,
            )  # fmt: skip
        return False

    def gap_in_copy(self, bounds: Bounds, files: Sequence[DatedFile], gone: int) -> Gap | None:
        now, first_above, next_id = find_state(self.connection, self.stream), bounds.first_above, bounds.next_id
        if now is None or first_above is None or first_above > bounds.high:
            return None
        next_is_there = next_id is None or has_entry(self.connection, self.stream, next_id)
        first = files[0].record.first if files else None
        return find_gap_in_copy(
            bounds.state,
            now,
            low=bounds.low - 1,
            first_above=first_above,
            first=first,
            gone=gone,
            next_is_there=next_is_there,
        )

    def check_gap(self, gap: Gap | None) -> None:
        """Report entries that went during the copy, now that what is left of them is archived."""
        if gap is None:
            return
        if gap.is_certain and not self.settings.allow_gaps:
            raise DataLossError(f"{gap.text}; the others are archived, and the next run continues")
        self.warn(gap.text)

    def manifest(self, bounds: Bounds, files: list[FileRecord], gap: Gap | None) -> Manifest:
        state, rows = bounds.state, sum(each.rows for each in files)
        behind = 0 if bounds.next_id is None else entries_behind(state, self.log.last)
        return Manifest(
            stream=self.stream,
            sequence=self.log.sequence + 1,
            low=bounds.low - 1,
            high=bounds.high,
            rows=rows,
            files=tuple(files),
            run=self.run_name,
            token=self.lock.token,
            created_ms=server_ms(self.connection),
            entries_added=state.entries_added,
            length=state.length,
            above=None if behind is None else max(0, behind - rows),
            last_generated=state.last_generated,
            next_id=bounds.next_id,
            gap="; ".join(each.text for each in (bounds.gap, gap) if each is not None),
            server=str(self.features),
            server_id=self.server_id,
            excused=self.still_excused(),
        )

    def note(self, manifest: Manifest, gone: int) -> None:
        report = self.report
        report.status = "archived"
        report.high = format_entry_id(manifest.high)
        report.rows += manifest.rows
        report.files += len(manifest.files)
        report.bytes += sum(each.size for each in manifest.files)
        report.deleted_meanwhile += gone

    def note_archive(self) -> None:
        """Report what is archived in all."""
        files, report = self.log.files, self.report
        report.first = format_entry_id(files[0].first) if files else None
        report.archived_rows, report.archived_bytes = self.log.rows, sum(each.size for each in files)

    # --- Trimming

    def trim(self) -> None:
        """Trim what may be trimmed now: archived for long enough, held by no reader, needed by no group.

        What is archived as it is on the server, that is: the stream may have become another one since the last look at it.
        """
        if not self.settings.trim:
            return
        state = find_state(self.connection, self.stream)
        if state is None:
            return
        boundary = self.log.boundary_at(server_ms(self.connection) - self.settings.trim_delay_ms)
        leased = leased_boundary(self.connection, self.stream)
        groups = find_groups(self.connection, stream_key(self.stream))
        ignored = self.settings.ignored_groups
        self.note_holders(groups, boundary, leased)
        # ACKED keeps every entry that a group needs, but cannot ignore a group.
        by_server = self.features.has_acked_trim and not any(group.name in ignored for group in groups)
        limit = trim_limit(boundary, leased=leased, groups=() if by_server else groups, ignored=ignored)
        if limit == 0 or state.first_entry is None or state.first_entry > limit:
            return
        noted, depth = self.trimmed_to(), self.settings.depth
        for cut in self.cuts(max(state.first_entry - 1, noted), limit):
            if self.own_stream(allow_gaps=True, may_be_gone=True, depth=depth).state is None:
                return
            depth = "ids"  # all that is to be trimmed has been compared
            # Noted before anything is trimmed, in the same transaction: readers look at the note after they have read.
            threshold = format_entry_id(min(cut + 1, MAX_ID))
            policy = ("ACKED",) if by_server else ()
            _, trimmed = self.lock.guarded(
                [
                    ("SET", key_beside("trimmed", self.stream), format_entry_id(max(cut, noted))),
                    ("XTRIM", stream_key(self.stream), "MINID", "=", threshold, *policy),
                ]
            )
            self.report.trimmed += trimmed
            self.report.trimmed_to = format_entry_id(cut)
            self.hook("trimming")
        self.own_stream(allow_gaps=True, may_be_gone=True)
        self.note_manifests()

    def trimmed_to(self) -> int:
        noted = trimmed_to(self.connection, self.stream)
        return 0 if noted is None else parse_entry_id(noted)

    def cuts(self, done: int, limit: int) -> Iterator[int]:
        """The IDs to trim to, in order: a row group at a time, so that other clients of the server do not wait."""
        if done < limit:
            last_manifests = (file for file in self.log.files if file.last > done)
            for cut in (group.last for file in last_manifests for group in file.row_groups):
                if done < cut < limit:
                    yield cut
        yield limit

    def note_holders(self, groups: Iterable[GroupNeeds], boundary: int, leased: int | None) -> None:
        report, ignored = self.report, self.settings.ignored_groups
        report.held_by = dict(holders((each for each in groups if each.name not in ignored), boundary))
        report.held_by_readers = None if leased is None or leased >= boundary else format_entry_id(leased)
        report.warnings = [each for each in report.warnings if not each.startswith("group ")]
        for group in groups:
            if group.name in report.held_by and group.last_delivered == 0:
                report.warnings.append(
                    f"group {group.name!r} has never read: nothing can be trimmed; ignore it, or destroy it"
                )
