"""Snapshots: SAVE, BGSAVE, the save points, FLUSHALL, shutdown."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from streamd.core.context import Context
from streamd.errors import CommandError
from streamd.observe.latency import LatencyMonitor
from streamd.persistence.child import Child, Children, Report
from streamd.persistence.data_directory import DataDirectory
from streamd.persistence.directory_lock import DirectoryInUseError
from streamd.persistence.rdb.snapshot import temporary_path
from streamd.persistence.writing import ChildDisk, DataWriter, describe_save_error, log_line
from streamd.settings.config import Config

__all__ = ["Saving"]

log = logging.getLogger("streamd")

SAVE_IN_PROGRESS = "ERR Background save already in progress"

RETRY_S = 5
"""How long the save points wait after a failed snapshot, so that a full disk does not cause fork after fork."""

SNAPSHOT_FAILED_TEXT = (
    "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. Commands that may"
    " modify the data set are disabled, because this instance is configured to report errors during writes if RDB"
    " snapshotting fails (stop-writes-on-bgsave-error option). Please check the Redis logs for details about the RDB"
    " error."
)


class Saving:
    """
    last_save     Unix time of the last successful snapshot, or of the start
    is_last_ok    whether the last attempt succeeded; `failures`: consecutive failures in the background
    is_scheduled  start one as soon as no other child runs
    count         snapshots started
    last_seconds  how long the last one in the background took, -1: none yet; `last_cow`: its copy-on-write memory
    """

    def __init__(
        self,
        config: Config,
        context: Context,
        children: Children,
        directory: DataDirectory,
        writer: DataWriter,
        latency: LatencyMonitor,
        *,
        changed: Callable[[], object],
    ) -> None:
        """
        changed  called when writes start or stop being refused
        """
        self._config = config
        self._context = context
        self._children = children
        self._directory = directory
        self.writer = writer
        self._latency = latency
        self._changed = changed
        self.last_save = int(time.time())
        self.is_last_ok = True
        self.failures = 0
        self.is_scheduled = False
        self.count = 0
        self.last_seconds = -1
        self.last_cow = 0
        self._last_attempt = 0.0
        self._dirty_saved = 0
        """`dirty` at the last successful snapshot; a crash would lose everything counted since then."""
        self._dirty_at_fork = 0
        self._on_end: list[Callable[[bool], None]] = []
        directory.writers.append(self._written_directories)

    def _written_directories(self) -> Iterator[str]:
        child = self._children.current
        if self._config.save or (child is not None and child.kind == "rdb"):
            yield self._directory.here

    # --- Queries -----------------------------------------------------------------------------------------------------

    def changes(self) -> int:
        """Changes since the last successful snapshot."""
        return max(0, self._context.dirty - self._dirty_saved)

    def note_loaded(self) -> None:
        """Loaded data does not count as changes."""
        self._dirty_saved = self._context.dirty

    def find_refusal(self) -> str:
        """The error that writes are refused with; empty when they are accepted."""
        if not self.is_last_ok and self._config.stop_writes_on_bgsave_error and self._config.save:
            return SNAPSHOT_FAILED_TEXT
        return ""

    def begin_if_due(self) -> None:
        """Start a background snapshot if one was requested or a save point is reached."""
        if self.is_scheduled or self._is_due():
            self._fork()

    # --- On request --------------------------------------------------------------------------------------------------

    def save(self) -> None:
        """SAVE: write a snapshot while all clients wait. Raises CommandError."""
        child = self._children.current
        if child is not None and child.kind == "rdb":
            raise CommandError(SAVE_IN_PROGRESS)
        self.count += 1
        if not self.save_now():
            raise CommandError("ERR")

    def kill_child(self) -> None:
        """Kill the child that writes a snapshot, if there is one."""
        child = self._children.current
        if child is not None and child.kind == "rdb":
            self._children.kill()

    def data_dropped(self) -> None:
        """FLUSHALL: kill a snapshot child; with save points, replace the snapshot while all clients wait."""
        self.kill_child()
        if self._config.save:
            self.save_now()

    def start(self, *, may_wait: bool, must_wait: bool) -> str:
        """BGSAVE: see save_commands."""
        child = self._children.current
        if child is not None and child.kind == "rdb":
            raise CommandError(SAVE_IN_PROGRESS)
        if child is not None or must_wait:
            if not (may_wait or must_wait):
                raise CommandError(
                    "ERR Another child process is active (AOF?): can't BGSAVE right now. Use BGSAVE SCHEDULE in order to"
                    " schedule a BGSAVE whenever possible."
                )
            self.is_scheduled = True
            return "Background saving scheduled"
        if not self._fork():
            raise CommandError("ERR")
        return "Background saving started"

    def start_for_replicas(self, on_end: Callable[[bool], None]) -> bool:
        """Start a snapshot; when it has ended, `on_end` is called with whether it succeeded. False: it did not start."""
        is_started = self._fork()
        if is_started:
            self._on_end.append(on_end)
        return is_started

    def remove_temporary_snapshot(self) -> None:
        """The process is exiting: remove the unfinished snapshot that it was writing itself."""
        with suppress(OSError):
            os.unlink(temporary_path(self._directory.snapshot_path))

    # --- Steps -------------------------------------------------------------------------------------------------------

    def save_now(self) -> bool:
        dirty = self._context.dirty
        try:
            self._directory.claim(self._directory.here)
            self.writer.write_snapshot(log_line, self.writer.slowed(None) if self._config.rdb_key_save_delay else None)
        except OSError as error:
            log.warning("%s", describe_save_error(error))
            return False
        finally:
            self._directory.settle()
        self._note(dirty)
        return True

    def _note(self, dirty: int) -> None:
        self.is_last_ok = True
        self.last_save = int(time.time())
        self._dirty_saved = dirty
        self._changed()

    def _fork(self) -> bool:
        self._last_attempt = time.monotonic()
        self._dirty_at_fork = self._context.dirty
        self.is_scheduled = False
        self.count += 1
        server_pid = os.getpid()

        def job(report: Report) -> None:
            try:
                self.writer.write_snapshot(report.log, self.writer.slowed(report.keys), ChildDisk(server_pid))
            except OSError as error:
                report.log(logging.WARNING, describe_save_error(error))
                raise

        try:
            self._directory.claim(self._directory.here)
            child = self._children.start("rdb", job, self._ended, keys_total=self.writer.count_keys())
        except OSError as error:
            self._directory.settle()
            reason = error.strerror if isinstance(error, DirectoryInUseError) else f"fork: {error.strerror}"
            log.warning("Can't save in background: %s", reason)
            self.is_last_ok = False
            self._changed()
            return False
        self._latency.add("fork", child.fork_us // 1000)
        log.info("Background saving started by pid %d", child.pid)
        return True

    def _ended(self, child: Child) -> None:
        self._directory.settle()
        self.last_cow = child.cow_bytes
        self.last_seconds = child.seconds
        if child.error:
            with suppress(OSError):
                os.unlink(temporary_path(self._directory.snapshot_path, child.pid))
            if not child.was_killed:
                log.warning("Background saving %s", f"terminated by signal {child.signal}" if child.signal else "error")
                self.is_last_ok = False
                self.failures += 1
            self._changed()
        else:
            log.info("Background saving terminated with success")
            self.failures = 0
            self._note(self._dirty_at_fork)
        waiting, self._on_end = self._on_end, []
        for on_end in waiting:
            on_end(not child.error)

    def _is_due(self) -> bool:
        changes = self.changes()
        if not changes:
            return False
        now = time.time()
        if not self.is_last_ok and time.monotonic() - self._last_attempt < RETRY_S:
            return False
        for point in self._config.save:
            if changes >= point.changes and now - self.last_save > point.seconds:
                log.info("%d changes in %d seconds. Saving...", point.changes, point.seconds)
                return True
        return False
