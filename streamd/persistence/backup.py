"""BACKUP: a copy of the data as of one moment, made while the server works.

    idle ── START ──▶ pending ──▶ snapshotting ──▶ incrementing ── SEAL ──▶ sealed
                      (another     (a child writes   (what happens is
                       child runs)  the base)         appended)
    from the three in the middle: ABORT or an error ──▶ failed;    sealed, failed ── CLEANUP ──▶ idle

A backup is an append-only file of its own in `backupdirname`: a base, an incremental file and a manifest, which the server
loads, as Redis does, with `appenddirname` or `preload-file`. It needs no append-only file beside it. While it is made,
effects go to its buffer as well; SEAL syncs it and notes in the manifest where it ends, which distinguishes a sealed one
from the remains of a server that was killed. A failed one leaves no files.

Where the documents of Redis 8.10 say nothing, the reading is here: START asks for an empty directory, so that remains are only
ever deleted by CLEANUP; a sealed one is found again at the next start; times are Unix seconds, 0 when there is none.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import Enum

from streamd.disk import Disk
from streamd.errors import CommandError, StreamdError
from streamd.persistence.aof.aof_options import AofOptions
from streamd.persistence.aof.buffer import AofBuffer
from streamd.persistence.aof.file import AppendOnlyFile
from streamd.persistence.aof.manifest import ManifestError, ManifestFile
from streamd.persistence.aof.syncer import Syncer
from streamd.persistence.aof.tail import CannotPersistError
from streamd.persistence.child import Child, Children, Report
from streamd.persistence.data_directory import DataDirectory
from streamd.persistence.writing import DataWriter
from streamd.settings.config import Config

__all__ = ["Backup", "BackupState"]

log = logging.getLogger("streamd")


class BackupState(Enum):
    IDLE = "idle"
    PENDING = "pending"
    SNAPSHOTTING = "snapshotting"
    INCREMENTING = "incrementing"
    SEALED = "sealed"
    FAILED = "failed"


IN_PROGRESS = {BackupState.PENDING, BackupState.SNAPSHOTTING, BackupState.INCREMENTING}


class Backup:
    """The backup of one server.

    state       see the head of this module
    error       why it failed
    start_time  Unix seconds of START; `end_time`: of SEAL, or of the failure
    parent      absolute path of the data directory that it is in, or that was looked at last
    """

    def __init__(
        self,
        config: Config,
        children: Children,
        directory: DataDirectory,
        writer: DataWriter,
        *,
        changed: Callable[[], object],
    ) -> None:
        """
        changed  is called when effects are wanted, or no longer
        """
        self._config = config
        self._children = children
        self._data_directory = directory
        self._writer = writer
        self._on_change = changed
        self._aof: AppendOnlyFile | None = None
        self._syncer = Syncer(Disk())
        self._is_seal_due = False
        self.parent = os.path.abspath(directory.here)
        self._forget()
        directory.writers.append(self._written_directories)

    def _written_directories(self) -> Iterator[str]:
        if self.is_in_progress:
            yield self.parent

    def _changed(self) -> None:
        self._data_directory.settle()
        self._on_change()

    def _forget(self) -> None:
        self.state = BackupState.IDLE
        self.error = ""
        self.start_time = self.end_time = 0

    # --- What others ask ---------------------------------------------------------------------------------------------

    @property
    def is_in_progress(self) -> bool:
        return self.state in IN_PROGRESS

    @property
    def buffer(self) -> AofBuffer | None:
        """Where effects go, while they are wanted."""
        return None if self._aof is None else self._aof.buffer

    @property
    def directory(self) -> str:
        return self._directory_in(self.parent)

    def _directory_in(self, parent: str) -> str:
        return os.path.join(parent, self._config.backupdirname)

    def status(self) -> dict[str, str]:
        """BACKUP STATUS."""
        return {
            "state": self.state.value,
            "error": self.error,
            "start_time": str(self.start_time),
            "end_time": str(self.end_time),
        }

    def files(self) -> list[str]:
        """BACKUP LIST: the paths of a sealed backup."""
        if self.state is not BackupState.SEALED:
            return []
        return [os.path.join(self.directory, name) for name in self._names()]

    def _names(self) -> list[str]:
        """Names in the directory that a backup gives to files."""
        prefixes = tuple(f"{before}{self._config.appendfilename}." for before in ("", "temp-", "first-"))
        with suppress(FileNotFoundError):
            return sorted(name for name in os.listdir(self.directory) if name.startswith(prefixes))
        return []

    # --- The commands ------------------------------------------------------------------------------------------------

    def start(self, *, must_wait: bool) -> None:
        """BACKUP START. Raises CommandError."""
        if self.is_in_progress:
            raise CommandError("ERR Backup already in progress")
        try:
            parent = os.path.abspath(self._data_directory.here)
            directory = self._directory_in(parent)
            if os.path.isdir(directory) and os.listdir(directory):
                raise CommandError("ERR Backup directory is not empty")
            self._data_directory.claim(parent)
        except OSError as error:
            raise CommandError(f"ERR {error.strerror}") from error
        self.parent = parent
        self.state = BackupState.PENDING
        self.error = ""
        self.start_time, self.end_time = int(time.time()), 0
        if not must_wait and self._children.current is None:
            self._begin()

    def seal(self, *, must_wait: bool) -> None:
        """BACKUP SEAL; must_wait: only when the effects of this transaction have come. Raises CommandError."""
        if self.state is not BackupState.INCREMENTING:
            raise CommandError("ERR No backup ready to seal")
        if must_wait:
            self._is_seal_due = True
        elif not self._seal():
            raise CommandError(f"ERR {self.error}")

    def abort(self) -> None:
        """BACKUP ABORT. Raises CommandError."""
        if not self.is_in_progress:
            raise CommandError("ERR No backup in progress")
        self.fail("aborted by user")

    def clean_up(self) -> None:
        """BACKUP CLEANUP: delete the files, also those that a killed server has left. Raises CommandError."""
        if self.is_in_progress:
            raise CommandError("ERR Backup in progress")
        try:
            if self.state is BackupState.IDLE:
                self.parent = os.path.abspath(self._data_directory.here)
            self._delete_files()
        except OSError as error:
            raise CommandError(f"ERR {error.strerror}") from error
        self._forget()

    # --- How it goes -------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Have a child write the base; effects from here on are kept."""
        options = AofOptions(
            directory=self.parent,
            dirname=self._config.backupdirname,
            filename=self._config.appendfilename,
            appendfsync="no",
        )
        aof = self._aof = AppendOnlyFile(options)
        try:
            aof.enable()
            aof.begin_rewrite()
            child = self._children.start("backup", self._write, self._written, keys_total=self._writer.count_keys())
        except (OSError, StreamdError) as error:
            self.fail(str(error))
            return
        aof.rewrite_started(child.pid)
        self.state = BackupState.SNAPSHOTTING
        self._changed()

    def _write(self, report: Report) -> None:
        assert self._aof is not None  # noqa: S101
        path = self._aof.files.temporary_base(os.getpid())
        self._writer.write_base(path, self._writer.slowed(report.keys), logged=report.log, is_snapshot=True)

    def _written(self, child: Child) -> None:
        aof = self._aof
        assert aof is not None  # noqa: S101
        if aof.finish_rewrite(not child.error, was_asked=child.was_killed):
            self.state = BackupState.INCREMENTING
        elif self.is_in_progress:
            self.fail(child.error or "the base could not be put in place")

    def flush(self) -> None:
        """Write what has been collected in this turn."""
        aof = self._aof
        if aof is None:
            return
        aof.flush()
        if aof.write_error:
            self.fail(os.strerror(aof.write_error))
        elif self._is_seal_due:
            self._seal()

    def cron(self) -> None:
        """Begin what had to wait, delete what has been kept long enough."""
        if self.state is BackupState.PENDING and self._children.current is None:
            self._begin()
        keep_s = self._config.backup_sealed_ttl
        if self.state is BackupState.SEALED and keep_s and time.time() - self.end_time >= keep_s:
            log.info("The sealed backup is deleted after %d seconds", keep_s)
            try:
                self.clean_up()
            except CommandError as error:
                log.warning("The sealed backup could not be deleted: %s", error)
                self._forget()

    def _seal(self) -> bool:
        """Bring everything to the disk, and end; False when that failed."""
        aof = self._aof
        assert aof is not None  # noqa: S101
        self._is_seal_due = False
        aof.options.appendfsync = "always"
        try:
            aof.flush(force=True)
            aof.close()
        except CannotPersistError as error:
            self.fail(str(error))
            return False
        if not self._find_sealed():
            self.fail("the manifest could not be written")
            return False
        self._aof = None
        self.state = BackupState.SEALED
        self.end_time = int(time.time())
        self._changed()
        return True

    def fail(self, error: str) -> None:
        """It is not going to be a backup, when one is in progress."""
        if not self.is_in_progress:
            return
        self.state = BackupState.FAILED
        self.error = error
        self.end_time = int(time.time())
        self._is_seal_due = False
        child = self._children.current
        if child is not None and child.kind == "backup":
            self._children.kill()
        aof, self._aof = self._aof, None
        if aof is not None:
            aof.discard()
        log.warning("Backup failed: %s", error)
        with suppress(OSError):
            self._delete_files()
        self._changed()

    def close(self) -> None:
        """The end of the server."""
        self.fail("the server has ended")
        self._syncer.stop()

    def _delete_files(self) -> None:
        """Delete what a backup has written, the manifest first, and the directory when nothing else is in it."""
        names = self._names()
        for name in sorted(names, key=lambda name: not name.endswith(".manifest")):
            self._syncer.unlink(os.path.join(self.directory, name))
        with suppress(OSError):
            os.rmdir(self.directory)

    # --- Start -------------------------------------------------------------------------------------------------------

    def find(self) -> None:
        """Look for a sealed backup that an earlier server has left."""
        path = ManifestFile(self.directory, self._config.appendfilename).path
        if self._find_sealed():
            self.state = BackupState.SEALED
            self.start_time = self.end_time = int(os.stat(path).st_mtime)

    def _find_sealed(self) -> bool:
        try:
            manifest = ManifestFile(self.directory, self._config.appendfilename).load()
        except (OSError, ManifestError):
            return False
        return bool(manifest.incrementals) and manifest.incrementals[-1].end_offset is not None
