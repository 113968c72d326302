"""What is done to one stream of an archive while its lock is held: recovering, committing, and rewriting files.

    held(...)      the lock, for as long as a block runs
    StreamWork     the steps that runs (archiver.py) and deletions (delete.py) share

Files are rewritten to merge them, since frequent runs leave many small ones, and to delete entries (rewriting.py). A rewrite is
committed like everything else: new files are staged, compared with those that they replace, moved, and named by a
manifest of kind "rewrite", by which the old ones stop counting at the same moment. The old ones remain for a while, for
readers that have planned to read them. Open tables follow each manifest (see publishing.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import groupby
from typing import Any

from streamd.archive.archive_errors import ArchiveError, LockLostError, TableError
from streamd.archive.layout import Layout, date_in
from streamd.archive.lock import ArchiveLock, merging_run
from streamd.archive.manifest import NOTHING, Excused, FileRecord, Manifest, Range
from streamd.archive.manifest_log import ManifestLog
from streamd.archive.origin import manifest_key, manifests_note
from streamd.archive.parquet import ROWS_PER_FILE, DatedFile, near, placed
from streamd.archive.publishing import Noted, OpenTables
from streamd.archive.rewriting import Rewrite, no_rows
from streamd.archive.same_stream import OwnStream, check_is_archived_stream, excuse, still_excused
from streamd.archive.store import ObjectPath, Place
from streamd.client.client_errors import UnreachableError
from streamd.client.connection import Connection, Features, connect, server_features, server_ms
from streamd.client.url_options import ConnectionOptions
from streamd.disk import Disk

__all__ = ["Hook", "StreamWork", "files_to_merge", "held", "no_hook"]

Hook = Callable[[str], None]
"""Called with the name of each step as it is reached; tests kill the process there."""


def no_hook(step: str) -> None:
    """No hook: work that no test interrupts."""


@contextmanager
def held(lock: ArchiveLock, options: ConnectionOptions) -> Iterator[ArchiveLock]:
    """Renew a lock while a block runs, and release it after that; not when the process ends (see lock.py).

    The lock's connection may be another one at the end (see StreamWork.refresh), which is closed here.
    Raises LockLostError for failures in the block that happen because another archiver has taken over, which removes or
    replaces the files of this one.
    """
    given = lock.connection
    try:
        lock.start_renewing(options)
        try:
            yield lock
        except (ArchiveError, OSError):
            with suppress(UnreachableError):
                lock.check()
            raise
        lock.release()
    except (Exception, KeyboardInterrupt):
        lock.release()
        raise
    except BaseException:
        # The end of the process: nothing is cleaned up, as nothing would be after a SIGKILL.
        lock.stop_renewing()
        raise
    finally:
        if lock.connection is not given:
            lock.connection.close()


class StreamWork:
    """One stream, its manifests, and what the holder of the lock may do to them."""

    def __init__(
        self,
        layout: Layout,
        disk: Disk,
        connection: Connection,
        lock: ArchiveLock,
        run_name: str,
        hook: Hook,
        tables: OpenTables | None = None,
    ) -> None:
        self.layout = layout
        self.archive_id = layout.id
        self.disk = disk
        self.connection = connection
        self.lock = lock
        self.stream = lock.stream
        self.run_name = run_name
        self.hook = hook
        self.features: Features = server_features(connection)
        self.seen = OwnStream(self.stream, None)  # the stream, when it was last compared with the manifests
        self.server_id = ""  # the name of the server's data, for manifests; empty: it was not asked
        self.log = ManifestLog(layout, self.stream)
        self.tables = tables or OpenTables(layout, disk)
        self.table_fault: TableError | None = None  # why open tables are not up to the manifests
        # Called with numbers of rows as they are rewritten, and again as they are compared.
        self.rewriting: Callable[[int], None] = no_rows
        self._placed = 0  # files that have been moved into place

    def own_stream(self, **how: Any) -> OwnStream:
        """As `check_is_archived_stream`, of which these are arguments, by the manifests that are known."""
        self.seen = check_is_archived_stream(self.connection, self.layout, self.log, **how)
        return self.seen

    def refresh(self) -> None:
        """After work that may have taken hours: reconnect if the connection was closed meanwhile."""
        try:
            self.connection.command("PING")
        except UnreachableError:  # which closes it on this side, too
            self.connection = self.lock.connection = connect(self.connection.options)

    # --- Recovering

    def recover(self, replaced_delay_ms: int) -> None:
        """Clean up after a run that ended midway. The order matters: see manifest.py.

        An object store has no rename that fails once the pending manifest is removed: a run that has lost its lock between
        its last look at it and its put could still commit a manifest, whose files would be removed here. So before any file
        is removed there, its number is taken by an empty manifest (`fence`).

        The server's stream must be the one that was archived: call `own_stream` before.
        replaced_delay_ms  files that were replaced at least this long ago are removed
        """
        lying = self.layout.data_files(self.stream)
        staging = [each for each in self.layout.staging_folders(self.stream) if each.name != self.run_name]
        noted = self.note_derived()
        self.lock.check()
        self.log.remove_pending(self.disk)
        self.log = ManifestLog.read(self.layout, self.stream)
        self.lock.raise_token(self.log.token)
        merging = merging_run(
            self.connection, self.stream
        )  # asked now: whoever has made one of the folders had its lock before
        for folder in staging:
            if folder.name != merging:
                self.disk.remove_tree(folder)
        unnamed = self.unnamed(lying)
        if unnamed and isinstance(self.layout.root, ObjectPath):
            self.fence()
            unnamed = self.unnamed(unnamed)
        for path in unnamed:
            self.disk.remove(path)
        if self.bring_tables_up():
            self.keep_tables(lambda: self.tables.sweep(self.log, noted))
        self.remove_replaced(replaced_delay_ms)
        self.log.prune(self.disk)
        self.lock.check()

    def unnamed(self, files: Iterable[Place]) -> list[Place]:
        """Those of the files that no manifest names, or has named."""
        named = {file.path for file in self.log.files} | self.log.replaced.keys()
        return [each for each in files if self.layout.relative(each) not in named]

    def fence(self) -> None:
        """Take the number of the next manifest, so that no earlier holder of the lock can commit any more."""
        while True:
            manifest = self.empty_manifest() if self.log.last is None else self.rewritten(self.log.last)
            try:
                self.log.commit(manifest, self.log.write_pending(manifest, self.disk), self.disk)
            except (LockLostError, FileExistsError):
                # That holder was faster, with this manifest; its files are named, then. Or there is another archiver.
                self.lock.check()
                self.log = ManifestLog.read(self.layout, self.stream, known=self.log)
                self.lock.raise_token(self.log.token)
            else:
                return

    def empty_manifest(self) -> Manifest:
        """The first manifest, by which nothing is archived."""
        return Manifest(
            stream=self.stream,
            sequence=1,
            low=NOTHING,
            high=NOTHING,
            rows=0,
            files=(),
            run=self.run_name,
            token=self.lock.token,
            created_ms=server_ms(self.connection),
            server=str(self.features),
            server_id=self.server_id,
        )

    def remove_replaced(self, delay_ms: int) -> None:
        """Remove the files that were replaced long enough ago, unless open tables still name them."""
        until_ms = server_ms(self.connection) - delay_ms
        lying = [
            (path, moment) for name, moment in self.log.replaced.items() if (path := self.layout.root / name).exists()
        ]
        due = {path: moment for path, moment in lying if moment <= until_ms}
        if due and self.keep_tables(lambda: self.tables.forget(self.log, max(due.values()))):
            for path in due:
                self.disk.remove(path)

    # --- Open tables

    def note_derived(self) -> Noted:
        """What lies there of typed tables' own files; nothing when that cannot be seen, which bringing them up will say."""
        try:
            return self.tables.note(self.stream)
        except TableError:
            return {}

    def bring_tables_up(self) -> bool:
        """Bring the open tables up to the manifests; False, and `table_fault`, when one cannot be."""
        return self.keep_tables(lambda: self.tables.bring_up(self.log))

    def keep_tables(self, action: Callable[[], None]) -> bool:
        try:
            action()
        except TableError as error:
            self.table_fault = error
            return False
        self.table_fault = None
        return True

    # --- Committing

    def move(self, files: Iterable[DatedFile], prefix: str = "") -> list[FileRecord]:
        """Give files their final names, and sync those.

        prefix  put before the names of the steps that the hook is called with
        """
        self.lock.check()
        records: list[FileRecord] = []
        folders: set[Place] = set()
        for file in files:
            target = self.layout.data_file(self.stream, file.day, self.run_name, self._placed)
            self.disk.make_directories(target.parent)
            self.disk.rename(file.record.path, target)
            self._placed += 1
            records.append(placed(file, self.layout.relative(target)))
            folders.add(target.parent)
            if len(records) == 1:
                self.hook(f"{prefix}moving")
        for folder in sorted(folders, key=str):
            self.disk.sync_directory(folder)
        self.hook(f"{prefix}moved")
        return records

    def commit(self, manifest: Manifest, prefix: str = "") -> None:
        """The manifest becomes the next one, if the lock is still this run's, and the archive still in its place."""
        pending = self.log.write_pending(manifest, self.disk)
        self.note_manifests(manifest)
        self.hook(f"{prefix}pending")
        self.layout.check_is(self.archive_id)
        self.log.commit(manifest, pending, self.disk)
        self.hook(f"{prefix}committed")
        self.bring_tables_up()
        self.hook(f"{prefix}published")

    def note_manifests(self, coming: Manifest | None = None) -> None:
        """Note the last manifest, the coming one and the stream on the server, if the lock is still this run's; see origin.py."""
        if known := [each for each in (self.log.last, coming) if each is not None]:
            note = manifests_note(known, self.seen.replaced, self.seen.state)
            self.lock.guarded([("SET", manifest_key(self.layout, self.stream), note)])

    # --- Rewriting

    def rewrite(self, groups: Sequence[Sequence[FileRecord]], leave_out: Sequence[Range] = (), *, prefix: str) -> int:
        """Replace each group of files by one file, without the entries with these IDs. Returns how many those were.

        groups     neighbours among the files that count, in order
        leave_out  ranges of IDs, ascending and disjoint
        prefix     put before the names of the steps that the hook is called with
        """
        folder = self.layout.staging(self.stream, self.run_name)
        rewrite = Rewrite(
            self.layout, groups, folder, prefix.strip(), self.disk, leave_out=leave_out, progress=self.rewriting
        )
        if not rewrite.files:
            return 0
        self.disk.make_directories(folder)
        rewrite.write()
        self.hook(f"{prefix}staged")
        rewrite.compare()
        self.hook(f"{prefix}verified")
        self.refresh()
        return self.replace_files(rewrite, leave_out, prefix=prefix)

    def replace_files(self, rewrite: Rewrite, leave_out: Sequence[Range] = (), *, prefix: str) -> int:
        """Move what was rewritten into place, and commit that it replaces the old files, which still count."""
        last = self.log.last
        if last is None:
            return 0
        records = self.move(rewrite.written, prefix)
        manifest = self.rewritten(last, records, [each.path for each in rewrite.files])
        manifest = replace(manifest, excused=(*self.still_excused(), *self.excuse(leave_out)))
        self.commit(manifest, prefix)
        return sum(each.rows for each in rewrite.files) - manifest.rows

    def rewritten(self, last: Manifest, files: Iterable[FileRecord] = (), replaced: Iterable[str] = ()) -> Manifest:
        """The next manifest, by which files replace others."""
        files = tuple(files)
        return replace(
            last,
            sequence=last.sequence + 1,
            low=last.high,
            rows=sum(each.rows for each in files),
            files=files,
            run=self.run_name,
            token=self.lock.token,
            created_ms=server_ms(self.connection),
            server=str(self.features),
            kind="rewrite",
            replaced=tuple(replaced),
        )

    def still_excused(self) -> tuple[Excused, ...]:
        """What is left on the server of what the last manifest excuses."""
        return () if self.log.last is None else still_excused(self.connection, self.stream, self.log.last.excused)

    def excuse(self, ranges: Iterable[Range]) -> tuple[Excused, ...]:
        """What the server holds now of the archived part of ranges."""
        return tuple(excuse(self.connection, self.stream, ranges, self.log.boundary))

    def settle(self, prefix: str = "", gone: Sequence[Range] = ()) -> None:
        """Drop what was excused and is gone, so that nothing that is written at its IDs later is taken for it.

        gone  ranges of which nothing is left, ascending and disjoint, which need not be asked
        """
        if (last := self.log.last) is None:
            return
        asked = [
            each
            for each in last.excused
            if not any(low <= each.low and each.high <= high for low, high in near(gone, each.low, each.high))
        ]
        if (left := still_excused(self.connection, self.stream, asked)) != last.excused:
            self.commit(replace(self.rewritten(last), excused=left), prefix)

    def merge(self, at_least: int) -> bool:
        """Merge small files of one date if there are enough of them; return whether there were."""
        if not (groups := self.groups_to_merge(at_least)):
            return False
        self.rewrite(groups, prefix="merge ")
        return True

    def groups_to_merge(self, at_least: int) -> list[list[FileRecord]]:
        return files_to_merge(self.log.files, at_least, lambda file: date_in(file.path))

    # --- Checkpoints

    def checkpoint(self, every: int) -> bool:
        """Write a checkpoint if there have been enough manifests since the last one; return whether it was written."""
        if len(self.log.manifests) < every:
            return False
        pending = self.log.write_pending_checkpoint(self.run_name, self.disk)
        self.lock.check()
        self.hook("checkpoint pending")
        self.log.commit_checkpoint(pending, self.disk)
        self.hook("checkpointed")
        self.log.prune(self.disk)
        self.hook("pruned")
        return True


def files_to_merge(
    files: Iterable[FileRecord], at_least: int, date_of: Callable[[FileRecord], str], *, max_rows: int = ROWS_PER_FILE
) -> list[list[FileRecord]]:
    """Groups of neighbouring files of one date, in order, each of which is to become one file.

    The last ones of a date, back to one that has no more rows than those after it together. So a row is copied a few times
    only (about log2 of the number of files), however many small files come one after the other.
    """
    found = []
    for _, group in groupby(files, date_of):
        dated = list(group)
        rows = chosen = 0
        for count, file in enumerate(reversed(dated), 1):
            if rows + file.rows > max_rows:
                break
            if file.rows <= rows and count >= at_least:
                chosen = count
            rows += file.rows
        if chosen:
            found.append(dated[-chosen:])
    return found
