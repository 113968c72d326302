"""AppendOnlyFile: every change goes to a file before anybody is told that it was made.

    dir/appendonlydir/appendonly.aof.manifest          which files there are (manifest.py)
                      appendonly.aof.2.base.rdb        everything up to the last rewrite
                      appendonly.aof.3.incr.aof        what happened since; the last one is written to

The parts: buffer.pyx turns commands into bytes, reader.pyx and load.py read them back, rewrite.py writes a base,
and this module decides what is written where and when it is synced. It is given paths, a policy and commands; it forks
nothing and knows no connection. Behaviour, log lines and numbers in INFO are Redis's, except where it says so.

What a server does:

    aof = AppendOnlyFile(AofOptions(directory=".", ...))
    aof.read_manifest()                               at start, always; ManifestError: refuse to start
    for loaded in aof.load(apply, ...):               with appendonly yes; bytes loaded so far: answer LOADING in between
        ...                                           CorruptFileError, AofLoadError: refuse to start
    aof.open(write_base)                              begins to write; the first base, when there is none yet

    aof.buffer.append_effects(effects, now_ms)        after each command that changed something (compiled)
    aof.flush()                                       at the end of each turn, before any reply leaves
    aof.cron()                                        ten times a second or so
    aof.write_error                                   when not 0: refuse writes with MISCONF and os.strerror of it

    aof.close()                                       at the end: writes and syncs what there is

A rewrite, begun by BGREWRITEAOF or when `aof.wants_rewrite()` says so, and only while no other child runs:

    aof.begin_rewrite()                               a new incremental file; OSError, StreamdError: it cannot begin
    pid = fork
      child   write_base(aof.temporary_base(os.getpid()), ...); exit 0 or 1
      parent  aof.rewrite_started(pid)                the fork failed: aof.rewrite_failed("...")
    aof.finish_rewrite(ok)                            when the child has ended; False: everything is as it was

CONFIG SET appendonly yes is `aof.enable()`, then a rewrite as above; no is `aof.disable()`.

`flush` raises CannotPersistError when the policy is `always` and something cannot be written or synced. Nothing of that
turn may be acknowledged, and what is in memory cannot be taken back, so the process must end, as Redis does: log the
text, exit with status 1 without sending anything. When the server goes on all the same, every later flush raises again.

What must hold (check_invariants): the file has `written` bytes, of which `synced` are on the disk for certain; `written`
is the end of a whole command, unless a short write could not be taken back; the manifest in memory is the one on the
disk; current_size is what its files have together.

Where this is sounder than Redis:
- Files are opened for appending always. Redis cuts a short write off in a file that is not, and the next write leaves a
  gap of zero bytes.
- A rewrite does not begin while something is left to be written: the new base would contain it, and the file after it
  would bring it again.
- A failed sync in the background is tried again each second, and once it succeeds the file is rewritten: the system may
  have dropped what it could not write.
- After a replacement of the manifest that was not synced no file is deleted, and when the file that is written to may have
  no name on the disk yet, writes are refused until it has.
- Base and incremental files without a manifest refuse the start.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from queue import Queue
from typing import Literal

from streamd.disk import Disk
from streamd.engine.database import Database
from streamd.errors import StreamdError
from streamd.persistence.aof.buffer import AofBuffer
from streamd.persistence.aof.load import AofLoadError, LoadOptions, LoadRdb, load_files
from streamd.persistence.aof.manifest import AofFile, Manifest, ManifestFile, NotSyncedError

__all__ = ["AofOptions", "AofState", "AppendOnlyFile", "CannotPersistError", "Syncer"]

log = logging.getLogger("streamd")

FsyncPolicy = Literal["always", "everysec", "no"]

SYNC_INTERVAL_S = 1.0
MAX_POSTPONED_S = 2.0
"""How long a write waits for a sync in the background."""
ERROR_LOG_INTERVAL_S = 30.0
FAILURES_BEFORE_DELAY = 3
MAX_DELAY_MINUTES = 60


class CannotPersistError(StreamdError):
    """With `appendfsync always` something could not be brought to the disk: the process must end."""


class AofState(Enum):
    OFF = "off"
    ON = "on"
    WAIT_REWRITE = "wait-rewrite"  # switched on at run time; the first base is not there yet


@dataclass
class AofOptions:
    """Settings; those from `appendfsync` on may change at any time.

    directory            `dir`
    dirname              `appenddirname`
    filename             `appendfilename`: what the names of all files begin with
    appendfsync          when to sync
    no_fsync_on_rewrite  not while a child writes
    use_rdb_preamble     bases are snapshots, else commands
    keep_history         leave files behind that are no longer needed (aof-disable-auto-gc)
    rewrite_percentage   rewrite when the files have grown by so much since the last time; 0: never
    rewrite_min_size     ... and have this many bytes
    """

    directory: str = "."
    dirname: str = "appendonlydir"
    filename: str = "appendonly.aof"
    appendfsync: FsyncPolicy = "everysec"
    no_fsync_on_rewrite: bool = False
    use_rdb_preamble: bool = True
    keep_history: bool = False
    rewrite_percentage: int = 100
    rewrite_min_size: int = 64 * 1024 * 1024


class AppendOnlyFile:
    """The append-only file of one server. All methods are for the thread of the loop.

    options             settings
    parent              absolute path of the data directory that it is in; `directory`: of its own directory there
    buffer              what has not been written; commands are appended to it
    manifest            the files there are
    state               off, on, or waiting for the first base
    written             bytes of the last incremental file
    synced              of them, those that are on the disk, as far as is known
    current_size        bytes of all files; `base_size`: as they were after the last rewrite or at start
    last_write_ok       False: the last write failed; `last_write_errno` says why
    delayed_fsync       writes that did not wait any longer for a sync in the background
    rewrite_pid         of the child that writes a base, or None
    rewrite_scheduled   a rewrite shall begin as soon as no other child runs
    rewrite_started_at  Unix time, or None; `last_rewrite_s`: how long the last one took, -1: none yet
    last_rewrite_ok     how it ended; `rewrites`: begun, `rewrite_failures`: failed since the last good one
    synced_offset       the replication offset up to which everything is on the disk
    loaded_offset       the replication offset that the loaded files end at; None: they do not say
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
        self.manifest = Manifest()
        self.state = AofState.OFF
        self.written = 0
        self.synced = 0
        self.current_size = 0
        self.base_size = 0
        self.last_write_ok = True
        self.last_write_errno = 0
        self.delayed_fsync = 0
        self.rewrite_pid: int | None = None
        self.rewrite_scheduled = False
        self.rewrite_started_at: float | None = None
        self.last_rewrite_s = -1
        self.last_rewrite_ok = True
        self.rewrites = 0
        self.rewrite_failures = 0
        self.synced_offset = 0
        self.loaded_offset: int | None = None
        self._clock = clock
        self._replication_offset = replication_offset
        self._has_child = has_child
        self._fd = -1
        self._generation = 0  # goes up with every file: descriptors are used again
        self._syncer = Syncer(self.disk)
        self._last_sync = clock()
        self._postponed_since: float | None = None
        self._last_error_log = -ERROR_LOG_INTERVAL_S
        self._next_retry = 0.0
        self._fatal: str | None = None
        self._sync_was_broken = False
        self._directory_error = 0  # errno of a sync of the directory that is to be tried again
        self._delay_minutes = 0
        self._delayed_until: float | None = None
        self._use_directory(options.directory)

    def _use_directory(self, directory: str) -> None:
        # Absolute: CONFIG SET dir must not move what is being written.
        self.parent = os.path.abspath(directory)
        self.directory = os.path.join(self.parent, self.options.dirname)
        self._manifest_file = ManifestFile(self.directory, self.options.filename, self.disk)

    def set_directory(self, directory: str) -> None:
        """CONFIG SET dir, while it is off. While it is on, or a base is being written, it stays where it is.

        Raises StreamdError, OSError when the manifest there cannot be read: it stays where it is.
        """
        parent = self.parent
        if not self.is_movable or os.path.abspath(directory) == parent:
            return
        self._use_directory(directory)
        try:
            self.read_manifest()
        except BaseException:
            self._use_directory(parent)
            raise

    @property
    def is_movable(self) -> bool:
        """Whether nothing is written: the next one may begin in another directory."""
        return self.state is AofState.OFF and self.rewrite_pid is None

    # --- Start ---------------------------------------------------------------------------------------------------

    def read_manifest(self) -> None:
        """Read which files there are. Raises ManifestError, OSError: the server must not start."""
        self.manifest = self._manifest_file.load()

    def load(
        self,
        apply: Callable[[list[bytes]], object],
        options: LoadOptions,
        *,
        load_rdb: LoadRdb,
        knows: Callable[[list[bytes]], object] | None = None,
        databases: Sequence[Database] = (),
    ) -> Iterator[int]:
        """Run everything in the files, a step at a time; yields the bytes read so far. See load.load_files.

        Nothing to load is no error. Raises CorruptFileError, AofLoadError, OSError: the server must not start.
        """
        old_file = os.path.join(self.parent, self.options.filename)
        if self._is_old_style(old_file):
            self._upgrade(old_file)
        if self.manifest.is_empty:
            self._refuse_unlisted()
            return
        sizes = yield from load_files(
            self.directory, self.manifest.to_load, apply, options,
            load_rdb=load_rdb, knows=knows, databases=databases, disk=self.disk,
        )  # fmt: skip
        self.current_size = sum(sizes)
        self.base_size = sizes[0] if self.manifest.base is not None else 0
        self.loaded_offset = self._end_of(self.manifest, sizes[-1])

    @staticmethod
    def _end_of(manifest: Manifest, size: int) -> int | None:
        """The replication offset at which the last incremental file ends, when it says at least where it begins."""
        last = manifest.incrementals[-1] if manifest.incrementals else None
        if last is None or last.start_offset is None:
            return None
        return last.start_offset + size if last.end_offset is None else last.end_offset

    @property
    def total_to_load(self) -> int:
        """Bytes of all files that `load` will read; raises nothing, a file that is missing has none."""
        return sum(self._size_of(file) for file in self.manifest.to_load)

    def _size_of(self, file: AofFile) -> int:
        try:
            return self.disk.size(self._path(file.name))
        except OSError:
            return 0

    def _path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def _is_old_style(self, old_file: str) -> bool:
        """Whether there is a file of Redis before 7.0, or an upgrade from one was interrupted."""
        if not os.path.isfile(old_file):
            return False
        if self.manifest.is_empty:
            return not self._manifest_file.unlisted(self.manifest)
        base = self.manifest.base
        return (
            base is not None
            and not self.manifest.incrementals
            and base.name == self.options.filename
            and not os.path.exists(self._path(base.name))
        )

    def _upgrade(self, old_file: str) -> None:
        """Take the single file of older versions as the base, under its own name."""
        self.disk.make_directory(self.directory)
        manifest = Manifest(base=AofFile(self.options.filename, 1, "b"))
        # The manifest first: the file stays where it is until it says where it will be found.
        self._manifest_file.replace(manifest)
        self.manifest = manifest
        self.disk.rename(old_file, self._path(self.options.filename))
        self.disk.sync_directory(self.directory)
        self.disk.sync_directory(self.parent)
        log.info(
            "Successfully migrated an old-style AOF configuration (%s) into the AOF directory (%s).",
            self.options.filename, self.options.dirname,
        )  # fmt: skip

    def _refuse_unlisted(self) -> None:
        """Raise AofLoadError when there is data that no manifest lists."""
        unlisted = self._manifest_file.unlisted(self.manifest)
        if unlisted:
            raise AofLoadError(
                f"The manifest {self._manifest_file.path} is missing or lists nothing, but there are files of an"
                f" append-only file: {', '.join(unlisted)}. Restore the manifest, or move these files away to begin with"
                " an empty data set"
            )

    def open(self, write_base: Callable[[str], object]) -> None:
        """Begin to write: `appendonly yes` at start, after `load`.

        write_base  is called with a path when there is no base yet, to write the data set there
        Raises OSError, StreamdError: the server must not start.
        """
        self.disk.make_directory(self.directory)
        manifest = self.manifest.copy()
        is_first = manifest.is_empty
        if is_first:
            self._refuse_unlisted()
            manifest.set_base(self._next_base(manifest))
            log.info("Creating AOF base file %s on server start", _name_of_base(manifest))
        is_new = not manifest.incrementals
        if is_new:
            manifest.incrementals.append(self._next_incremental(manifest))
        manifest.close_last(None)
        self._manifest_file.prepare(manifest, is_first=is_first)
        if is_first:
            self._put_base(manifest, self.temporary_base(os.getpid()), write_base)
        name = manifest.incrementals[-1].name
        log.info("%s AOF incr file %s on server start", "Creating" if is_new else "Opening", name)
        fd = self.disk.open_append(self._path(name))
        try:
            self._manifest_file.commit(is_first=is_first)
        except BaseException:
            self.disk.close(fd)
            raise
        self.manifest = manifest
        self._fd = fd
        self._generation += 1
        self.written = self.synced = self.disk.size(self._path(name))
        if is_first:
            self.current_size = self.base_size = self._size_of_base()
        self.state = AofState.ON
        self.buffer.clear()
        self.buffer.is_open = True
        self._last_sync = self._clock()
        self.synced_offset = self._replication_offset()
        self._delete_history()

    def _put_base(self, manifest: Manifest, temporary: str, write_base: Callable[[str], object]) -> None:
        """Write the first base, under a name that says that it is not whole, and then under its own."""
        try:
            write_base(temporary)
            self.disk.rename(temporary, self._path(_name_of_base(manifest)))
        except BaseException:
            with suppress(OSError):
                self.disk.unlink(temporary)
            raise

    def _size_of_base(self) -> int:
        return self._size_of(self.manifest.base) if self.manifest.base is not None else 0

    # --- Names ---------------------------------------------------------------------------------------------------

    def temporary_base(self, pid: int) -> str:
        """Where the process `pid` writes a new base."""
        return os.path.join(self.parent, f"temp-rewriteaof-bg-{pid}.aof")

    @property
    def _temporary_incremental(self) -> str:
        return self._path(f"temp-{self.options.filename}.incr")

    def _next_base(self, manifest: Manifest) -> AofFile:
        # Without a manifest there may be files that nobody has looked at: their numbers are taken.
        seq = manifest.base_seq or (self._manifest_file.highest_seqs()[0] if manifest.is_empty else 0)
        ending = "rdb" if self.options.use_rdb_preamble else "aof"
        return AofFile(f"{self.options.filename}.{seq + 1}.base.{ending}", seq + 1, "b")

    def _next_incremental(self, manifest: Manifest) -> AofFile:
        seq = manifest.incremental_seq or (self._manifest_file.highest_seqs()[1] if self.manifest.is_empty else 0)
        return AofFile(f"{self.options.filename}.{seq + 1}.incr.aof", seq + 1, "i", self._replication_offset())

    # --- Writing -------------------------------------------------------------------------------------------------

    def flush(self, *, force: bool = False) -> None:
        """Write what has been appended, and sync it as the policy says. Before any reply of the turn leaves.

        force  do not wait for a sync in the background
        A failed write is kept and tried again by `cron`; see write_error. Raises CannotPersistError: head of this module.
        """
        if self._fd < 0:
            return
        if self._fatal is not None:
            raise CannotPersistError(self._fatal)
        policy = self.options.appendfsync
        if not self.buffer:
            if self.synced != self.written and (policy == "always" or (policy == "everysec" and self._is_sync_due())):
                self._sync()
            return
        if policy == "everysec" and not force and self._syncer.pending and self._postpone():
            return
        if self._write():
            self._sync()

    def _postpone(self) -> bool:
        """Whether a write still waits for the sync in the background: it might hang in the kernel behind it."""
        now = self._clock()
        if self._postponed_since is None:
            self._postponed_since = now
            return True
        if now - self._postponed_since < MAX_POSTPONED_S:
            return True
        self.delayed_fsync += 1
        log.info(
            "Asynchronous AOF fsync is taking too long (disk is busy?). Writing the AOF buffer without waiting for fsync"
            " to complete, this may slow down the server."
        )
        return False

    def _write(self) -> bool:
        """Write the buffer to the file; False when that failed."""
        self._postponed_since = None
        done = 0
        error: OSError | None = None
        with self.buffer.view() as view:
            total = len(view)
            while done < total and error is None:
                try:
                    with view[done:] as rest:  # let go at once, also when an exception has hold of it
                        done += self.disk.write(self._fd, rest)
                except InterruptedError:
                    continue
                except OSError as failure:
                    error = failure
        if error is None:
            self.buffer.drop(total)
            self._count_written(total)
            if not self.last_write_ok:
                log.info("AOF write error looks solved. The server can write again.")
                self.last_write_ok = True
            return True
        self._write_failed(error, done, total)
        return False

    def _count_written(self, n: int) -> None:
        self.written += n
        self.current_size += n

    def _write_failed(self, error: OSError, done: int, total: int) -> None:
        now = self._clock()
        can_log = now - self._last_error_log >= ERROR_LOG_INTERVAL_S
        if can_log:
            self._last_error_log = now
            if done:
                log.warning("Short write while writing to the AOF file: (nwritten=%d, expected=%d): %s",
                            done, total, error.strerror)  # fmt: skip
            else:
                log.warning("Error writing to the AOF file: %s", error.strerror)
        self.last_write_errno = error.errno or errno.EIO
        if done:
            try:
                self.disk.truncate(self._fd, self.written)
            except OSError as failure:
                # Half a command is in the file: the other half has to follow.
                self.buffer.drop(done)
                self._count_written(done)
                if can_log:
                    log.warning(
                        "Could not remove short write from the append-only file. The AOF may not load the next time"
                        " the server starts. ftruncate: %s", failure.strerror,
                    )  # fmt: skip
        if self.options.appendfsync == "always":
            self._die("Can't recover from AOF write error when the AOF fsync policy is 'always'. Exiting...")
        self.last_write_ok = False
        self._next_retry = now + SYNC_INTERVAL_S

    def _die(self, text: str) -> None:
        self._fatal = text
        raise CannotPersistError(text)

    # --- Syncing -------------------------------------------------------------------------------------------------

    def _is_sync_due(self) -> bool:
        return self._clock() - self._last_sync >= SYNC_INTERVAL_S and not self._syncer.pending

    def _sync(self) -> None:
        """Bring what has been written to the disk, now or soon, as the policy says."""
        policy = self.options.appendfsync
        if policy == "no" or (self.options.no_fsync_on_rewrite and self._has_child()):
            return
        if policy == "always":
            try:
                self.disk.sync_data(self._fd)
            except OSError as error:
                self._die(
                    "Can't persist AOF for fsync error when the AOF fsync policy is 'always':"
                    f" {error.strerror}. Exiting..."
                )
            self.synced = self.written
            self.synced_offset = self._replication_offset()
            self._last_sync = self._clock()
        elif self._is_sync_due():
            self._sync_in_background()

    def _sync_in_background(self) -> None:
        self._syncer.submit(self._fd, (self._generation, self.written, self._replication_offset()))
        self._last_sync = self._clock()

    def _directory_not_synced(self, error: NotSyncedError) -> None:
        """The file that is written to may have no name after a power failure: nothing is to be promised until it has."""
        log.warning("%s", error)
        cause = error.__cause__
        if self.options.appendfsync == "always":
            self._fatal = (
                f"Can't persist AOF for fsync error when the AOF fsync policy is 'always': {error}. Exiting..."
            )
        else:
            self._directory_error = (cause.errno if isinstance(cause, OSError) else None) or errno.EIO
            self._next_retry = self._clock() + SYNC_INTERVAL_S

    def _sync_directory_again(self) -> None:
        if self._clock() < self._next_retry:
            return
        try:
            self.disk.sync_directory(self.directory)
        except OSError:
            self._next_retry = self._clock() + SYNC_INTERVAL_S
        else:
            self._directory_error = 0
            log.info("The directory of the AOF could be synced. The server can write again.")

    def _look_at_syncer(self) -> None:
        """Take over what the syncs in the background have come to."""
        syncer = self._syncer
        generation, size, offset = syncer.last_done
        if generation == self._generation and size > self.synced:
            self.synced = size
            self.synced_offset = max(self.synced_offset, offset)
        if syncer.error:
            self._sync_was_broken = True
        elif self._sync_was_broken and not syncer.pending:
            self._sync_was_broken = False
            log.info("AOF fsync error looks solved. The file is rewritten, for what may have been lost.")
            self.rewrite_scheduled = True

    @property
    def write_error(self) -> int:
        """Why writes have to be refused (MISCONF): an errno, or 0 when they need not be."""
        if self.state is AofState.OFF:
            return 0
        if not self.last_write_ok:
            return self.last_write_errno
        return self._syncer.error or self._directory_error

    @property
    def pending_fsyncs(self) -> int:
        """Syncs in the background that have not come to their end."""
        return self._syncer.pending

    # --- Time ----------------------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Off, with nothing to be done about it."""
        return self._fd < 0 and self.state is AofState.OFF and not self.rewrite_scheduled

    def cron(self) -> None:
        """Write what had to wait, try again what failed, sync what was written. Raises CannotPersistError."""
        if self._fd < 0:
            return
        self._look_at_syncer()
        if self._directory_error:
            self._sync_directory_again()
        if self._syncer.error and self._is_sync_due():
            # Writes are refused meanwhile, so that nothing else may come that is to be synced.
            self._sync_in_background()
        if not self.last_write_ok and self._clock() < self._next_retry:
            return
        self.flush()

    def wants_rewrite(self) -> bool:
        """Whether a rewrite shall begin, which may happen only while no other child runs; see the head of this module.

        Scheduled ones, and those for which the files have grown enough; after three failures in a row they have to
        wait, a minute, then two, up to an hour.
        """
        if self.rewrite_pid is not None:
            return False
        if self.rewrite_scheduled:
            return not self._is_delayed()
        if self.state is not AofState.ON or not self.options.rewrite_percentage:
            return False
        if self.current_size <= self.options.rewrite_min_size:
            return False
        growth = self.current_size * 100 // (self.base_size or 1) - 100
        if growth < self.options.rewrite_percentage or self._is_delayed():
            return False
        log.info("Starting automatic rewriting of AOF on %d%% growth", growth)
        return True

    def _is_delayed(self) -> bool:
        if self.rewrite_failures < FAILURES_BEFORE_DELAY:
            self._delay_minutes = 0
            self._delayed_until = None
            return False
        now = self._clock()
        if self._delayed_until is not None:
            if now < self._delayed_until:
                return True
            self._delayed_until = None
            return False
        self._delay_minutes = min(self._delay_minutes * 2 or 1, MAX_DELAY_MINUTES)
        self._delayed_until = now + self._delay_minutes * 60
        log.warning(
            "Background AOF rewrite has repeatedly failed and triggered the limit, will retry in %d minutes",
            self._delay_minutes,
        )
        return True

    # --- Rewrite -------------------------------------------------------------------------------------------------

    def begin_rewrite(self) -> None:
        """Get ready for a child that writes a new base: what comes from here on goes to a new incremental file.

        Raises OSError, StreamdError: nothing has changed, and it counts as a failed rewrite.
        """
        try:
            self.disk.make_directory(self.directory)
            if self.state is not AofState.OFF:
                self._switch_file()
        except (OSError, StreamdError) as error:
            self._count_rewrite(False)
            log.warning("Can't rewrite append only file in background: %s", error)
            raise

    def _switch_file(self) -> None:
        """Write to a new incremental file; while waiting for the first base it has a name that no manifest lists."""
        if self.state is AofState.WAIT_REWRITE:
            self.buffer.clear()
            self._replace_file(self.disk.open_append(self._temporary_incremental, new=True))
            return
        self.flush(force=True)
        if self.buffer:
            raise CannotBeginRewriteError(
                f"there are changes that cannot be written to the AOF file: {os.strerror(self.last_write_errno)}"
            )
        manifest = self.manifest.copy()
        incremental = self._next_incremental(manifest)
        manifest.incrementals.append(incremental)
        fd = self.disk.open_append(self._path(incremental.name), new=True)
        try:
            self._manifest_file.replace(manifest)
        except NotSyncedError as error:
            self._directory_not_synced(error)  # it is in place all the same, and names both files
        except OSError:
            self.disk.close(fd)
            with suppress(OSError):
                self.disk.unlink(self._path(incremental.name))
            raise
        log.info("Creating AOF incr file %s on background rewrite", incremental.name)
        self.manifest = manifest
        self._replace_file(fd)

    def _replace_file(self, fd: int) -> None:
        """Write to another file; the one before is closed in the background, and synced if there is anything to sync."""
        if self._fd >= 0 and self.synced == self.written:
            self._syncer.close_later(self._fd)  # a sync that fails would stop writers for nothing
        elif self._fd >= 0:
            done = (self._generation, self.written, self._replication_offset())
            self._syncer.submit(self._fd, done, close=True)
            self._last_sync = self._clock()
        self._fd = fd
        self._generation += 1
        self.written = self.synced = 0
        self._postponed_since = None
        self.buffer.begin_file()

    def rewrite_started(self, pid: int) -> None:
        """The child has been forked."""
        self.rewrite_pid = pid
        self.rewrite_scheduled = False
        self.rewrite_started_at = time.time()
        self.rewrites += 1
        self.buffer.is_open = self.state is not AofState.OFF
        log.info("Background append only file rewriting started by pid %d", pid)

    def rewrite_failed(self, reason: str) -> None:
        """It could not be forked."""
        log.warning("Can't rewrite append only file in background: %s", reason)
        self._count_rewrite(False)

    def finish_rewrite(self, ok: bool, *, was_asked: bool = False) -> bool:
        """The child has ended: put the new base in place, or leave everything as it was. Whether there is a new base.

        ok         it has written the base
        was_asked  it was killed on purpose: no failure
        """
        pid = self.rewrite_pid
        assert pid is not None, "no rewrite is running"  # noqa: S101
        self.rewrite_pid = None
        if ok:
            try:
                self._install(self.temporary_base(pid))
            except OSError as error:
                log.warning("The rewritten append only file could not be put in place: %s", error)
                ok = False
        if not was_asked or ok:
            self._count_rewrite(ok)
        with suppress(OSError):
            self.disk.unlink(self.temporary_base(pid))
        self.last_rewrite_s = int(time.time() - (self.rewrite_started_at or time.time()))
        self.rewrite_started_at = None
        if self.state is AofState.WAIT_REWRITE:
            if ok:
                self.state = AofState.ON
            else:
                self._forget_waiting()
                self.rewrite_scheduled = True
        if ok:
            log.info("Background AOF rewrite finished successfully")
        return ok

    def _count_rewrite(self, ok: bool) -> None:
        self.last_rewrite_ok = ok
        self.rewrite_failures = 0 if ok else self.rewrite_failures + 1

    def _install(self, temporary: str) -> None:
        """Make the file at `temporary` the base. Raises OSError: the old files are still the ones that count."""
        manifest = self.manifest.copy()
        is_first = manifest.is_empty
        waits = self.state is AofState.WAIT_REWRITE
        manifest.set_base(self._next_base(manifest))
        manifest.forget_incrementals(but_last=self.state is AofState.ON)
        if waits:
            # The numbers go on, though all the old files are history now.
            manifest.incrementals.append(self._next_incremental(self.manifest))
        if is_first:
            self._manifest_file.prepare(manifest, is_first=True)
        placed = [(temporary, self._path(_name_of_base(manifest)))]
        if waits:
            placed.append((self._temporary_incremental, self._path(manifest.incrementals[-1].name)))
        is_synced = True
        try:
            for old, new in placed:
                self.disk.rename(old, new)
            if not is_first:
                self._manifest_file.prepare(manifest)
            self._manifest_file.commit(is_first=is_first)
        except NotSyncedError as error:
            is_synced = False
            if waits:
                self._directory_not_synced(error)
            else:
                log.warning("%s", error)  # the old files have everything too
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
        self.manifest = manifest
        if self.state is not AofState.OFF:
            self.current_size = self.base_size = self._size_of_base() + self.written
        if is_synced:
            self._delete_history()

    def _delete_history(self) -> None:
        """Delete the files that are no longer needed, and take them out of the manifest."""
        if not self.manifest.history or self.options.keep_history:
            return
        for file in self.manifest.history:
            log.info("Removing the history file %s in the background", file.name)
            with suppress(FileNotFoundError):
                try:
                    self._syncer.unlink(self._path(file.name))
                except FileNotFoundError:
                    raise
                except OSError as error:
                    log.warning("Could not delete %s: %s", file.name, error.strerror)
        manifest = replace(self.manifest, history=[])
        try:
            self._manifest_file.replace(manifest)
        except NotSyncedError:
            pass  # either of the two is right
        except OSError as error:
            log.warning("The manifest still lists deleted files: %s", error.strerror)
            return
        self.manifest = manifest

    # --- On and off ----------------------------------------------------------------------------------------------

    def enable(self) -> None:
        """CONFIG SET appendonly yes. Nothing is kept until a rewrite has begun, and it is on when that has ended.

        Errors of the time before are forgotten. When the rewrite cannot begin, call `disable`.
        """
        if self.state is AofState.OFF:
            self.state = AofState.WAIT_REWRITE
            self.rewrite_scheduled = True
            self.last_write_ok = True
            self._syncer.error = 0
            self._sync_was_broken = False
            self._directory_error = 0
            self._fatal = None
            self._last_sync = self._clock()

    def disable(self) -> int | None:
        """CONFIG SET appendonly no: write and sync what there is. The pid of the child that is to be killed, or None.

        Call finish_rewrite(False, was_asked=True) when that child has ended. Raises CannotPersistError.
        """
        if self.state is AofState.ON:
            self.flush(force=True)
            self._sync_at_end()
            self._note_end()
        if self._fd >= 0:
            self._syncer.close_later(self._fd)
        if self.state is AofState.WAIT_REWRITE:
            with suppress(OSError):
                self.disk.unlink(self._temporary_incremental)
        self._fd = -1
        self.buffer.clear()
        self.buffer.is_open = False
        self.rewrite_scheduled = False
        self.last_write_ok = True
        self.written = self.synced = 0
        self._postponed_since = None
        self.state = AofState.OFF
        return self.rewrite_pid

    def _forget_waiting(self) -> None:
        """Nothing is kept any more until another rewrite begins."""
        self.buffer.clear()
        self.buffer.is_open = False
        if self._fd >= 0:
            self._syncer.close_later(self._fd)
            self._fd = -1
        with suppress(OSError):
            self.disk.unlink(self._temporary_incremental)

    def close(self) -> None:
        """The end of the server: write and sync what there is, and end the thread. Raises CannotPersistError."""
        try:
            self.disable()
        finally:
            self._syncer.stop()

    def discard(self) -> None:
        """End, with nothing written or synced any more: the files are about to be deleted."""
        self._forget_waiting()
        self.state = AofState.OFF
        self._syncer.stop()

    def _sync_at_end(self) -> None:
        try:
            self.disk.sync(self._fd)
        except OSError as error:
            log.warning("Fail to fsync the AOF file: %s.", error.strerror)
            if self.options.appendfsync == "always":
                self._die(f"Can't persist AOF for fsync error: {error.strerror}. Exiting...")
        else:
            self.synced = self.written
            self.synced_offset = self._replication_offset()

    def _note_end(self) -> None:
        """Note the replication offset at which the file ends."""
        manifest = self.manifest.copy()
        manifest.close_last(self._replication_offset())
        try:
            self._manifest_file.replace(manifest)
        except NotSyncedError:
            pass
        except OSError as error:
            log.warning("The end of the append only file could not be noted: %s", error.strerror)
            return
        self.manifest = manifest

    def check_invariants(self) -> None:
        """Assert what the head of this module says. Looks at the files."""
        assert self.synced <= self.written  # noqa: S101
        assert (self._fd >= 0) >= (self.state is AofState.ON)  # noqa: S101
        if self.state is AofState.ON:
            assert self.written == os.fstat(self._fd).st_size, "bytes of the last file"  # noqa: S101
            assert self._manifest_file.load() == self.manifest, "the manifest on the disk"  # noqa: S101
            total = sum(self.disk.size(self._path(file.name)) for file in self.manifest.to_load)
            assert self.current_size == total, f"{self.current_size} bytes, the files have {total}"  # noqa: S101


class CannotBeginRewriteError(StreamdError):
    """A rewrite cannot begin now."""


def _name_of_base(manifest: Manifest) -> str:
    assert manifest.base is not None  # noqa: S101
    return manifest.base.name


# --- Syncing in the background -----------------------------------------------------------------------------------------


Done = tuple[int, int, int]
"""Which file, how many bytes of it, and the replication offset at that place."""


@dataclass
class _Job:
    fd: int
    done: Done | None  # None: is not synced
    close: bool


class Syncer:
    """A thread that syncs and closes files, in the order in which it is asked to.

    pending    syncs that are not done, without those of files that are closed then: nobody waits to write to these
    error      errno of the last sync, 0 when it was good
    last_done  what the last good sync brought to the disk
    """

    def __init__(self, disk: Disk) -> None:
        self.error = 0
        self.last_done: Done = (-1, 0, 0)
        self._disk = disk
        self._queue: Queue[_Job | None] = Queue()
        self._submitted = 0  # written by the loop's thread only
        self._done = 0  # written by the thread only
        self._thread: threading.Thread | None = None

    @property
    def pending(self) -> int:
        return self._submitted - self._done

    def submit(self, fd: int, done: Done, *, close: bool = False) -> None:
        """Sync a file, and close it then if asked to."""
        self._put(_Job(fd, done, close))

    def close_later(self, fd: int) -> None:
        """Close a file, which may take long when it has no name any more."""
        self._put(_Job(fd, None, True))

    def unlink(self, path: str) -> None:
        """Delete a file without waiting until its blocks have been given back, which takes long for large ones."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._disk.unlink(path)
        finally:
            self.close_later(fd)

    def drain(self) -> None:
        """Wait until everything is done."""
        self._queue.join()

    def stop(self) -> None:
        """Wait until everything is done, and end the thread; it begins again with the next that is asked for."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def _put(self, job: _Job) -> None:
        self._submitted += not job.close
        self._queue.put(job)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="aof-fsync", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            job = self._queue.get()
            if job is None:
                self._queue.task_done()
                return
            try:
                self._do(job)
            finally:
                self._done += not job.close
                self._queue.task_done()

    def _do(self, job: _Job) -> None:
        if job.done is not None:
            try:
                self._disk.sync_data(job.fd)
            except OSError as error:
                # Redis passes these two over: the descriptor may have been closed, or be no file.
                if error.errno not in (errno.EBADF, errno.EINVAL):
                    if not self.error:
                        log.warning("Fail to fsync the AOF file: %s", error.strerror)
                    self.error = error.errno or errno.EIO
            else:
                self.error = 0
                self.last_done = job.done
        if job.close:
            with suppress(OSError):
                self._disk.close(job.fd)
