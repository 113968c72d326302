"""BACKUP: a copy of the data as of one moment, made while the server is running.

    idle ── START ──▶ pending ──▶ snapshotting ──▶ incrementing ── SEAL ──▶ sealed
                      (another     (a child writes   (effects are
                       child runs)  the base)         appended)
    from any of the middle three: ABORT or an error ──▶ failed;    sealed, failed ── CLEANUP ──▶ idle

A backup is an append-only file of its own in `backupdirname`: a base, an incremental file and a manifest. The server
loads it, as Redis does, with `appenddirname` or `preload-file`. The server's own append-only file may be off. While a
backup is being made, effects go to its buffer as well. SEAL syncs it and records its end in the manifest, which
distinguishes a sealed backup from the leftovers of a killed server. A failed backup leaves no files.

Where the documentation of Redis 8.10 is silent, this module decides: START requires an empty directory, so that
leftovers are deleted only by CLEANUP; a sealed backup is found again at the next start; times are Unix seconds, 0 when
there is none.
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
from streamd.persistence.aof.aof_manifest import ManifestError, ManifestFile
from streamd.persistence.aof.aof_options import AofOptions
from streamd.persistence.aof.buffer import AofBuffer
from streamd.persistence.aof.file import AppendOnlyFile
from streamd.persistence.aof.syncer import Syncer
from streamd.persistence.aof.tail import CannotPersistError
from streamd.persistence.child import Child, Children, Report
from streamd.persistence.data_directory import DataDirectory
from streamd.persistence.writing import DataWriter
from streamd.settings.config import Config

__all__ = ["IN_PROGRESS", "Backup", "BackupState"]

log = logging.getLogger("streamd")


class BackupState(Enum):
    IDLE = "idle"
    PENDING = "pending"
    SNAPSHOTTING = "snapshotting"
    INCREMENTING = "incrementing"
    SEALED = "sealed"
    FAILED = "failed"


IDLE = BackupState.IDLE
"""What is often asked for: Python 3.11 calls a function for a member of an enumeration."""
IN_PROGRESS = (BackupState.PENDING, BackupState.SNAPSHOTTING, BackupState.INCREMENTING)


class Backup:
    """The backup of one server.

    state       see the head of this module
    error       why it failed
    start_time  Unix seconds of START; `end_time`: of SEAL, or of the failure
    parent      absolute path of the data directory that holds it, or that was searched last
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
        changed  called when effects start or stop being needed
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

    # --- Queries -----------------------------------------------------------------------------------------------------

    @property
    def is_in_progress(self) -> bool:
        return self.state in IN_PROGRESS

    @property
    def buffer(self) -> AofBuffer | None:
        """Where effects go; None while they are not needed."""
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
        """Names in the directory that belong to a backup."""
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
        """BACKUP SEAL; must_wait: only once the effects of this transaction have arrived. Raises CommandError."""
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
        """BACKUP CLEANUP: delete the files, including those left by a killed server. Raises CommandError."""
        if self.is_in_progress:
            raise CommandError("ERR Backup in progress")
        try:
            if self.state is BackupState.IDLE:
                self.parent = os.path.abspath(self._data_directory.here)
            self._delete_files()
        except OSError as error:
            raise CommandError(f"ERR {error.strerror}") from error
        self._forget()

    # --- Steps -------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Have a child write the base; effects are recorded from here on."""
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
        """Write the effects collected in this turn."""
        aof = self._aof
        if aof is None:
            return
        aof.flush()
        if aof.write_error:
            self.fail(os.strerror(aof.write_error))
        elif self._is_seal_due:
            self._seal()

    def cron(self) -> None:
        """Start a pending backup, and delete a sealed one that has expired."""
        if self.state is IDLE:
            return
        if self.state is BackupState.PENDING and self._children.current is None:
            self._begin()
        keep_s = self._config.backup_sealed_ttl
        if self.state is BackupState.SEALED and keep_s and time.time() - self.end_time >= keep_s:
            log.info("Deleting the sealed backup after %d seconds", keep_s)
            try:
                self.clean_up()
            except CommandError as error:
                log.warning("The sealed backup could not be deleted: %s", error)
                self._forget()

    def _seal(self) -> bool:
        """Sync everything to disk and finish. Returns False when that failed."""
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
        """Give up the backup in progress, if there is one."""
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
        """The server is shutting down."""
        self.fail("the server has ended")
        self._syncer.stop()

    def _delete_files(self) -> None:
        """Delete a backup's files, the manifest first, and then the directory if it is empty."""
        names = self._names()
        for name in sorted(names, key=lambda name: not name.endswith(".manifest")):
            self._syncer.unlink(os.path.join(self.directory, name))
        with suppress(OSError):
            os.rmdir(self.directory)

    # --- Start -------------------------------------------------------------------------------------------------------

    def find(self) -> None:
        """Look for a sealed backup left by an earlier server."""
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
