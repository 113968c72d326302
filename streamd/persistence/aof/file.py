"""AppendOnlyFile: every change is written to a file before it is acknowledged.

    dir/appendonlydir/appendonly.aof.manifest          which files there are (aof_manifest.py)
                      appendonly.aof.2.base.rdb        everything up to the last rewrite
                      appendonly.aof.3.incr.aof        changes since then; the last file is the current one

The parts, from the bytes up:

    buffer, command_writer   commands as bytes: those of this turn, and those of a base
    reader, load, check      reading them back; handling damaged files; checking files
    manifest, file_set       which files there are, and how new ones are named
    syncer, tail             the current file: when it is written and synced, what happens when that fails
    schedule, rewrite        when a rewrite is due; writing a base
    file (this module)       switching on and off, startup, the steps of a rewrite

It works on paths, a policy and commands; it does not fork and knows nothing of connections. Behaviour, log lines and
INFO figures are those of Redis, except where noted.

What a server does:

    aof = AppendOnlyFile(AofOptions(directory=".", ...))
    aof.files.read_manifest()                         always, at startup; ManifestError: refuse to start
    for loaded in aof.load(apply, ...):               with appendonly yes; bytes loaded so far; answer LOADING meanwhile
        ...                                           CorruptFileError, AofLoadError: refuse to start
    aof.open(write_base)                              starts writing; creates the first base if there is none

    aof.buffer.take_effects(effects, now_ms)          after each command that changed something (compiled)
    aof.flush()                                       at the end of each turn, before any reply leaves
    aof.cron()                                        ten times a second or so
    aof.write_error                                   when not 0: refuse writes with MISCONF and os.strerror of it

    aof.close()                                       at the end: writes and syncs the rest

A rewrite, started by BGREWRITEAOF or when `aof.wants_rewrite()` says so, and only while no other child runs:

    aof.begin_rewrite()                               a new incremental file; OSError, StreamdError: it cannot start
    pid = fork
      child   write_base(aof.files.temporary_base(os.getpid()), ...); exit 0 or 1
      parent  aof.rewrite_started(pid)                the fork failed: aof.rewrite_failed("...")
    aof.finish_rewrite(ok)                            when the child has ended; False: nothing has changed

`CONFIG SET appendonly yes` is `aof.enable()`, then a rewrite as above; `no` is `aof.disable()`.

`flush` raises CannotPersistError when the policy is `always` and something cannot be written or synced. Nothing of that
turn may be acknowledged, and changes in memory cannot be undone, so the process must end, as Redis does: log the text
and exit with status 1 without sending anything. If the server keeps running anyway, every later flush raises again.

Invariants (check_invariants): those at the head of tail.py; the manifest in memory equals the one on disk; current_size
is the total size of its files.

Where this is safer than Redis:
- Files are always opened in append mode. Redis truncates a short write in a file that is not, and the next write leaves
  a gap of zero bytes.
- A rewrite does not start while unwritten data is left: the new base would contain it, and the next incremental file
  would repeat it.
- A failed fsync in the background is retried every second, and once it succeeds the file is rewritten: the system may
  have dropped what it could not write.
- After a manifest replacement that was not synced, no file is deleted. While the current file may not have a name on
  disk yet, writes are refused.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from enum import Enum

from streamd.disk import Disk
from streamd.errors import StreamdError
from streamd.keyspace.database import Database
from streamd.persistence.aof.aof_manifest import Manifest, NotSyncedError
from streamd.persistence.aof.aof_options import AofOptions
from streamd.persistence.aof.buffer import AofBuffer
from streamd.persistence.aof.file_set import FileSet
from streamd.persistence.aof.replay import LoadOptions, LoadRdb
from streamd.persistence.aof.schedule import RewriteSchedule
from streamd.persistence.aof.syncer import Syncer
from streamd.persistence.aof.tail import Tail

__all__ = ["AofState", "AppendOnlyFile"]

log = logging.getLogger("streamd")


class AofState(Enum):
    OFF = "off"
    ON = "on"
    WAIT_REWRITE = "wait-rewrite"  # switched on at run time; the first base does not exist yet


OFF = AofState.OFF
"""What is often asked for: Python 3.11 calls a function for a member of an enumeration."""


class AppendOnlyFile:
    """The append-only file of one server. Call all methods in the event loop's thread.

    options        settings
    disk           the operating system
    buffer         what has not been written; commands are appended to it
    files          which files there are
    tail           the current file, and its errors
    rewriting      when rewrites are due, and how they went
    state          off, on, or waiting for the first base
    base_size      bytes of all files, as of the last rewrite or the start
    loaded_offset  the replication offset at the end of the loaded files; None: not recorded
    """

    def __init__(
        self,
        options: AofOptions,
        *,
        disk: Disk | None = None,
        clock: Callable[[], float] = time.monotonic,
        replication_offset: Callable[[], int] = lambda: 0,
        has_child: Callable[[], bool] = lambda: False,
    ) -> None:
        self.options = options
        self.disk = disk or Disk()
        self.buffer = AofBuffer()
        self.state = AofState.OFF
        self.base_size = 0
        self.loaded_offset: int | None = None
        self._syncer = Syncer(self.disk)
        self._counted = 0  # bytes of all files, except for the growth of the tail since then
        self.files = FileSet(options, self.disk, replication_offset)
        self.tail = Tail(
            options, self.disk, self.buffer, self._syncer,
            clock=clock, replication_offset=replication_offset, has_child=has_child,
        )  # fmt: skip
        self.rewriting = RewriteSchedule(options, clock)

    @property
    def current_size(self) -> int:
        """Bytes of all files."""
        return self._counted + self.tail.grown

    def _count(self, size: int) -> None:
        self._counted = size
        self.tail.grown = 0

    def set_directory(self, directory: str) -> None:
        """CONFIG SET dir, while the append-only file is off. While it is on, or a base is being written, nothing moves.

        Raises StreamdError, OSError when the manifest there cannot be read: nothing moves.
        """
        if self.is_movable:
            self.files.move(directory)

    @property
    def is_movable(self) -> bool:
        """Whether nothing is being written, so that the next file may start in another directory."""
        return self.state is AofState.OFF and self.rewriting.pid is None

    # --- Start ---------------------------------------------------------------------------------------------------

    def load(
        self,
        apply: Callable[[list[bytes]], object],
        options: LoadOptions,
        *,
        load_rdb: LoadRdb,
        knows: Callable[[list[bytes]], object] | None = None,
        databases: Sequence[Database] = (),
    ) -> Iterator[int]:
        """Replay the files step by step; yields the number of bytes read so far. See FileSet.load."""
        sizes = yield from self.files.load(apply, options, load_rdb=load_rdb, knows=knows, databases=databases)
        if sizes:
            self._count(sum(sizes))
            self.base_size = sizes[0] if self.files.manifest.base is not None else 0
            self.loaded_offset = self.files.end_of(sizes[-1])

    def open(self, write_base: Callable[[str], object]) -> None:
        """Start writing: `appendonly yes` at start, after `load`.

        write_base  called with a path when there is no base yet, to write the data set there
        Raises OSError, StreamdError: the server must not start.
        """
        files = self.files
        self.disk.make_directory(files.directory)
        manifest = files.manifest.copy()
        is_first = manifest.is_empty
        if is_first:
            files.refuse_unlisted()
            manifest.set_base(files.next_base(manifest))
        is_new = not manifest.incrementals
        if is_new:
            manifest.incrementals.append(files.next_incremental(manifest))
        manifest.close_last(None)
        files.manifest_file.prepare(manifest, is_first=is_first)
        if is_first:
            self._put_base(manifest, files.temporary_base(os.getpid()), write_base)
            log.info("Creating AOF base file %s on server start", _name_of_base(manifest))
        name = manifest.incrementals[-1].name
        log.info("%s AOF incr file %s on server start", "Creating" if is_new else "Opening", name)
        fd = self.disk.open_append(files.path(name))
        try:
            files.manifest_file.commit(is_first=is_first)
        except BaseException:
            self.disk.close(fd)
            raise
        files.manifest = manifest
        self.tail.open(fd, self.disk.size(files.path(name)))
        if is_first:
            self.base_size = files.size_of_base()
            self._count(self.base_size)
        self.state = AofState.ON
        self.buffer.clear()
        self.buffer.is_open = True
        files.delete_history(self._syncer)

    def _put_base(self, manifest: Manifest, temporary: str, write_base: Callable[[str], object]) -> None:
        """Write the first base under a name that marks it as incomplete, then rename it."""
        try:
            write_base(temporary)
            self.disk.rename(temporary, self.files.path(_name_of_base(manifest)))
        except BaseException:
            with suppress(OSError):
                self.disk.unlink(temporary)
            raise

    # --- Writing -------------------------------------------------------------------------------------------------

    def flush(self, *, force: bool = False) -> None:
        """Write what has been appended, and sync it according to the policy, before any reply of the turn leaves.

        force  do not wait for a sync in the background
        A failed write is kept and retried by `cron`; see write_error. Raises CannotPersistError: see the head of this
        module.
        """
        self.tail.flush(force=force)

    @property
    def write_error(self) -> int:
        """Why writes have to be refused (MISCONF): an errno, or 0 when they need not be."""
        return 0 if self.state is OFF else self.tail.error

    @property
    def is_idle(self) -> bool:
        """Off, with no work pending."""
        return not self.tail.is_open and self.state is AofState.OFF and not self.rewriting.is_requested

    def cron(self) -> None:
        """Write what was postponed, retry what failed, sync what was written. Raises CannotPersistError."""
        if self.tail.is_open:
            if self.tail.look_at_syncs():
                self.rewriting.is_requested = True
            self.tail.try_again()

    def wants_rewrite(self) -> bool:
        """Whether a rewrite should start: only while no other child runs; see the head of this module."""
        return self.rewriting.is_due(self.current_size, self.base_size, may_grow=self.state is AofState.ON)

    # --- Rewrite -------------------------------------------------------------------------------------------------

    def begin_rewrite(self) -> None:
        """Prepare for a child that writes a new base: from here on, changes go to a new incremental file.

        Raises OSError, StreamdError: nothing has changed, and it counts as a failed rewrite.
        """
        try:
            self.disk.make_directory(self.files.directory)
            if self.state is not AofState.OFF:
                self._switch_file()
        except (OSError, StreamdError) as error:
            self.rewriting.note(False)
            log.warning("Can't rewrite append only file in background: %s", error)
            raise

    def _switch_file(self) -> None:
        """Write to a new incremental file; while waiting for the first base it has a name that no manifest lists."""
        files = self.files
        if self.state is AofState.WAIT_REWRITE:
            self.buffer.clear()
            self.tail.replace(self.disk.open_append(files.temporary_incremental, new=True))
            self.tail.wait_for_base()
            log.info("Creating AOF incr file %s on background rewrite", os.path.basename(files.temporary_incremental))
            return
        self.flush(force=True)
        if self.buffer:
            raise CannotBeginRewriteError(
                f"there are changes that cannot be written to the AOF file: {os.strerror(self.tail.last_write_errno)}"
            )
        manifest = files.manifest.copy()
        incremental = files.next_incremental(manifest)
        manifest.incrementals.append(incremental)
        fd = self.disk.open_append(files.path(incremental.name), new=True)
        try:
            files.manifest_file.replace(manifest)
        except NotSyncedError as error:
            self.tail.directory_not_synced(files.directory, error)  # it is in place nevertheless, and names both files
        except OSError:
            self.disk.close(fd)
            with suppress(OSError):
                self.disk.unlink(files.path(incremental.name))
            raise
        log.info("Creating AOF incr file %s on background rewrite", incremental.name)
        files.manifest = manifest
        self.tail.replace(fd)

    def rewrite_started(self, pid: int) -> None:
        """The child has been forked."""
        self.rewriting.started(pid)
        self.buffer.is_open = self.state is not AofState.OFF
        log.info("Background append only file rewriting started by pid %d", pid)

    def rewrite_failed(self, reason: str) -> None:
        """The fork failed."""
        log.warning("Can't rewrite append only file in background: %s", reason)
        self.rewriting.note(False)

    def finish_rewrite(self, ok: bool, *, was_asked: bool = False) -> bool:
        """The child has ended: install the new base, or change nothing. Returns whether there is a new base.

        ok         the child has written the base
        was_asked  the child was killed on purpose, which is not a failure
        Raises CannotPersistError.
        """
        if ok:
            self.flush(force=True)  # the file that continues the base has to say where in the stream it begins
        temporary = self.files.temporary_base(self.rewriting.ended())
        if ok:
            try:
                self._install(temporary)
            except OSError as error:
                log.warning("The rewritten append only file could not be put in place: %s", error)
                ok = False
        if not was_asked or ok:
            self.rewriting.note(ok)
        with suppress(OSError):
            self.disk.unlink(temporary)
        self.rewriting.note_time()
        if self.state is AofState.WAIT_REWRITE:
            if ok:
                self.state = AofState.ON
            else:
                self._forget_waiting()
                self.rewriting.is_requested = True
        if ok:
            log.info("Background AOF rewrite finished successfully")
        return ok

    def _install(self, temporary: str) -> None:
        """Make the file at `temporary` the base. Raises OSError: the old files remain in use."""
        files = self.files
        manifest = files.manifest.copy()
        is_first = manifest.is_empty
        waits = self.state is AofState.WAIT_REWRITE
        manifest.set_base(files.next_base(manifest))
        manifest.forget_incrementals(but_last=self.state is AofState.ON)
        if waits:
            # The numbers continue, though all the old files are history now.
            manifest.incrementals.append(files.next_incremental(files.manifest))
        if is_first:
            files.manifest_file.prepare(manifest, is_first=True)
        placed = [(temporary, files.path(_name_of_base(manifest)))]
        if waits:
            placed.append((files.temporary_incremental, files.path(manifest.incrementals[-1].name)))
        is_synced = True
        try:
            for old, new in placed:
                self.disk.rename(old, new)
            if not is_first:
                files.manifest_file.prepare(manifest)
            files.manifest_file.commit(is_first=is_first)
        except NotSyncedError as error:
            is_synced = False
            if waits:
                self.tail.directory_not_synced(files.directory, error)
            else:
                log.warning("%s", error)  # the old files contain everything too
        except OSError:
            for _, new in placed:
                with suppress(OSError):
                    self.disk.unlink(new)
            raise
        for (old, new), kind in zip(placed, ("base", "incr"), strict=False):
            log.info(
                "Successfully renamed the temporary AOF %s file %s into %s",
                kind, os.path.basename(old), os.path.basename(new),
            )  # fmt: skip
        files.manifest = manifest
        self.tail.base_is_there()
        if self.state is not AofState.OFF:
            self.base_size = files.size_of_base() + self.tail.written
            self._count(self.base_size)
        if is_synced:
            files.delete_history(self._syncer)

    # --- On and off ----------------------------------------------------------------------------------------------

    def enable(self) -> None:
        """CONFIG SET appendonly yes. Nothing is recorded until a rewrite starts; the file is on once that has ended.

        Earlier errors are cleared. If the rewrite cannot start, call `disable`.
        """
        if self.state is AofState.OFF:
            self.state = AofState.WAIT_REWRITE
            self.rewriting.is_requested = True
            self.tail.forget_errors()
            self.tail.wait_for_base()

    def disable(self) -> int | None:
        """CONFIG SET appendonly no: write and sync the rest. Returns the pid of the child to kill, or None.

        Call finish_rewrite(False, was_asked=True) when that child has ended. Raises CannotPersistError.
        """
        if self.state is AofState.ON:
            self.flush(force=True)
            self.tail.sync_at_end()
            self.files.note_end()
        self.tail.close()
        if self.state is AofState.WAIT_REWRITE:
            with suppress(OSError):
                self.disk.unlink(self.files.temporary_incremental)
        self.buffer.clear()
        self.buffer.is_open = False
        self.rewriting.is_requested = False
        self.tail.forget()
        self.state = AofState.OFF
        return self.rewriting.pid

    def _forget_waiting(self) -> None:
        """Stop recording until another rewrite starts."""
        self.buffer.clear()
        self.buffer.is_open = False
        self.tail.close()
        with suppress(OSError):
            self.disk.unlink(self.files.temporary_incremental)

    def close(self) -> None:
        """Shut down: write and sync the rest, and stop the thread. Raises CannotPersistError."""
        try:
            self.disable()
        finally:
            self._syncer.stop()

    def discard(self) -> None:
        """Stop without writing or syncing anything more: the files are about to be deleted."""
        self._forget_waiting()
        self.state = AofState.OFF
        self._syncer.stop()

    def check_invariants(self) -> None:
        """Assert the invariants at the head of this module. Inspects the files."""
        tail, files = self.tail, self.files
        assert tail.synced <= tail.written  # noqa: S101
        assert tail.is_open >= (self.state is AofState.ON)  # noqa: S101
        if self.state is AofState.ON:
            assert tail.written == os.fstat(tail.fd).st_size, "bytes of the last file"  # noqa: S101
            assert files.manifest_file.load() == files.manifest, "the manifest on the disk"  # noqa: S101
            total = sum(self.disk.size(files.path(file.name)) for file in files.manifest.to_load)
            assert self.current_size == total, f"{self.current_size} bytes, the files have {total}"  # noqa: S101


class CannotBeginRewriteError(StreamdError):
    """A rewrite cannot start now."""


def _name_of_base(manifest: Manifest) -> str:
    assert manifest.base is not None  # noqa: S101
    return manifest.base.name
