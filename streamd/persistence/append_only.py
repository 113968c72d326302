"""The append-only file of a server: written each turn, rewritten by a child, switched on and off."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator

from streamd.core.host import Host
from streamd.errors import CommandError, ConfigError, StreamdError
from streamd.observe.latency import LatencyMonitor
from streamd.persistence.aof.aof_options import AofOptions
from streamd.persistence.aof.file import OFF, AofState, AppendOnlyFile
from streamd.persistence.aof.tail import CannotPersistError
from streamd.persistence.backup import Backup
from streamd.persistence.child import Child, Children, Report
from streamd.persistence.data_directory import DataDirectory
from streamd.persistence.writing import DataWriter

__all__ = ["AppendOnly"]

log = logging.getLogger("streamd")


class AppendOnly:
    """
    aof          the file
    last_cow     copy-on-write memory of the child of the last rewrite
    was_failing  whether writes are refused because of it, as far as `look_at_errors` knows
    """

    def __init__(
        self,
        host: Host,
        children: Children,
        directory: DataDirectory,
        writer: DataWriter,
        backup: Backup,
        *,
        changed: Callable[[], object],
    ) -> None:
        """
        changed  called when effects start or stop being needed, and when writes start or stop being refused
        """
        self._host = host
        self._config = host.config
        self._children = children
        self._directory = directory
        self._writer = writer
        self._backup = backup
        self._changed = changed
        self._latency = host.get(LatencyMonitor)
        self.aof = AppendOnlyFile(
            AofOptions(
                directory=directory.here, dirname=host.config.appenddirname, filename=host.config.appendfilename
            ),
            has_child=lambda: children.current is not None,
            replication_offset=lambda: self.replication_offset(),
        )
        self.last_cow = 0
        self.was_failing = False
        self.replication_offset: Callable[[], int] = lambda: self.aof.buffer.offset
        """master_repl_offset; while there is no backlog, it advances by one for each command in the file."""
        self.loaded_position = b""
        """What the loaded files say of the place that the data has in the stream; see `Tail.position`."""
        self.given_up: Callable[[], object] = lambda: None
        """Called when all data is about to be replaced."""
        directory.writers.append(self._written_directories)

    def _written_directories(self) -> Iterator[str]:
        if self._config.appendonly or self.is_on or self.aof.rewriting.pid is not None:
            yield self.aof.files.parent

    def apply_settings(self) -> None:
        """Bring the options up to date."""
        config, options = self._config, self.aof.options
        options.appendfsync = config.appendfsync
        options.no_fsync_on_rewrite = config.no_appendfsync_on_rewrite
        options.use_rdb_preamble = config.aof_use_rdb_preamble
        options.keep_history = config.aof_disable_auto_gc
        options.rewrite_percentage = config.auto_aof_rewrite_percentage
        options.rewrite_min_size = config.auto_aof_rewrite_min_size
        self.aof.buffer.has_timestamps = config.aof_timestamp_enabled

    # --- Queries -----------------------------------------------------------------------------------------------------

    @property
    def is_on(self) -> bool:
        """Whether there is an append-only file, or one is about to be created."""
        return self.aof.state is not OFF

    @property
    def is_idle(self) -> bool:
        """Off, with no work pending."""
        return self.aof.is_idle and not self.was_failing

    def find_refusal(self) -> str:
        """The error that writes are refused with; empty when they are accepted."""
        if self.aof.write_error:
            return f"MISCONF Errors writing to the AOF file: {os.strerror(self.aof.write_error)}"
        return ""

    # --- Writing -----------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Start writing, after existing files have been loaded. Raises OSError, StreamdError."""
        offset = int(self.loaded_position.split()[0]) if self.loaded_position else self.aof.loaded_offset or 0
        self.aof.buffer.offset = self._host.dispatcher.effects.data_offset = offset
        self.aof.open(self._writer.write_base)
        self._changed()

    def take_position(self, text: bytes) -> None:
        """The files that are loaded say where in the stream the data up to here ends."""
        self.loaded_position = text

    def restart(self) -> None:
        """Restart the append-only file from a base of the loaded data; its old files become history."""
        pid = os.getpid()
        self.aof.enable()
        self.aof.begin_rewrite()
        self.aof.rewrite_started(pid)
        self._writer.write_base(self.aof.files.temporary_base(pid))
        if not self.aof.finish_rewrite(True):
            raise StreamdError("The append-only file could not be created")
        self._changed()

    def flush(self) -> None:
        """Write the effects of this turn, before its replies leave."""
        try:
            self.aof.flush()
        except CannotPersistError as error:
            self.give_up(error)

    def look_at_errors(self) -> None:
        """Check whether writes must be refused because of the last turn's writes."""
        if self.aof.write_error or self.was_failing:
            self.was_failing = self.aof.write_error != 0
            self._changed()

    def cron(self) -> None:
        """Write what was postponed."""
        try:
            self.aof.cron()
        except CannotPersistError as error:
            self.give_up(error)
        self.look_at_errors()

    def give_up(self, error: CannotPersistError) -> None:
        """A durability promise cannot be kept: exit at once, without acknowledging anything."""
        log.critical("%s", error)
        self._host.abort()

    def finish(self) -> bool:
        """Write what is still unwritten. Returns False if that fails: acknowledged changes would be lost."""
        try:
            self.aof.flush(force=True)
        except CannotPersistError as error:
            log.critical("%s", error)
            return False
        if self.aof.write_error:
            log.warning(
                "There are changes that cannot be written to the AOF file: %s", os.strerror(self.aof.write_error)
            )
            return False
        return True

    # --- Rewrites ----------------------------------------------------------------------------------------------------

    def begin_if_due(self) -> bool:
        """Start a rewrite if one was requested or the file has grown enough. Returns whether one was due."""
        # A backup postpones rewrites, but not the first one: nothing is persisted until that one has ended.
        may_rewrite = not self._backup.is_in_progress or self.aof.state is AofState.WAIT_REWRITE
        if not may_rewrite or not self.aof.wants_rewrite():
            return False
        self._fork()
        return True

    def start(self, *, must_wait: bool) -> str:
        """BGREWRITEAOF: see save_commands."""
        child = self._children.current
        if child is not None and child.kind == "aof":
            raise CommandError("ERR Background append only file rewriting already in progress")
        if child is not None or must_wait or self._backup.is_in_progress:
            self.aof.rewriting.is_requested = True
            return "Background append only file rewriting scheduled"
        if not self._fork():
            raise CommandError(
                "ERR Can't execute an AOF background rewriting. Please check the server logs for more information."
            )
        return "Background append only file rewriting started"

    def _fork(self) -> bool:
        try:
            self._follow_directory()
            self.aof.begin_rewrite()
        except CannotPersistError as error:
            self.give_up(error)
            return False
        except (OSError, StreamdError):
            self._directory.settle()
            return False
        try:
            child = self._children.start(
                "aof", self._rewrite_in_child, self._rewrite_ended, keys_total=self._writer.count_keys()
            )
        except OSError as error:
            self.aof.rewrite_failed(f"fork: {error.strerror}")
            self._directory.settle()
            return False
        self._latency.add("fork", child.fork_us // 1000)
        self.aof.rewrite_started(child.pid)
        return True

    def _follow_directory(self) -> None:
        """CONFIG SET dir applies to the next append-only file. Raises OSError, StreamdError."""
        try:
            if self.aof.is_movable:
                self._directory.claim(self._directory.here)
            self.aof.set_directory(self._directory.here)
        except (OSError, StreamdError) as error:
            log.warning("Can't create an append only file in the data directory: %s", error)
            raise

    def _rewrite_in_child(self, report: Report) -> None:
        path = self.aof.files.temporary_base(os.getpid())
        self._writer.write_base(path, self._writer.slowed(report.keys), logged=report.log)
        report.log(logging.INFO, f"Successfully created the temporary AOF base file {os.path.basename(path)}")

    def _rewrite_ended(self, child: Child) -> None:
        self.last_cow = child.cow_bytes
        if not child.error:
            log.info("Background AOF rewrite terminated with success")
        elif not child.was_killed:
            log.warning("Background AOF rewrite terminated with error: %s", child.error)
        try:
            self.aof.finish_rewrite(not child.error, was_asked=child.was_killed)
        except CannotPersistError as error:
            self.give_up(error)
        self._directory.settle()
        self._changed()

    # --- On and off --------------------------------------------------------------------------------------------------

    def switch(self) -> None:
        """CONFIG SET appendonly. Raises ConfigError.

        While files are being loaded, the switch waits for the load to finish: a base written now would hold only part
        of the data. In a transaction, the rewrite waits for the end of the transaction.
        """
        wanted = self._config.appendonly
        if self._host.is_loading or wanted == self.is_on:
            self._directory.settle()
            return
        if wanted:
            try:
                self._follow_directory()
            except (OSError, StreamdError) as error:
                raise ConfigError("appendonly", "Unable to turn on AOF. Check server logs.") from error
            self.aof.enable()
            must_wait = self._children.current is not None or self._host.dispatcher.context.in_transaction
            if not must_wait and not self._fork():
                self._switch_off()
                raise ConfigError("appendonly", "Unable to turn on AOF. Check server logs.")
        else:
            self._switch_off()
            self._backup.fail("appendonly is stopped")
        self._changed()

    def stop(self) -> None:
        """All data is about to be replaced: write nothing until `switch` is called."""
        if self.is_on:
            self._switch_off()
            self._backup.fail("a primary's snapshot is loaded")
            self._changed()
        self.given_up()

    def _switch_off(self) -> None:
        pid = None
        try:
            pid = self.aof.disable()
        except CannotPersistError as error:
            self.give_up(error)
        if pid is not None:
            self._children.kill()
        self._directory.settle()
        self.look_at_errors()
