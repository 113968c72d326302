"""Persistence: when the data is written to files and read from them, and what clients see meanwhile.

    at the start    existing files are read in steps; commands that need the data are answered with LOADING    start_loading
    snapshots       SAVE, BGSAVE, the save points, shutdown                                                  bgsave
    append-only     effects of commands -> AofBuffer -> file, before any reply leaves; the rewrite           append_only
    backups         a copy as of one moment                                                                  backup
    refusals        writes, while the last snapshot or the append-only file could not be written             this module

Below them: data_directory (where files are, and locks), writing (the data set to a file), child (a forked process). One
child runs at a time; what cannot start now is remembered and started by `cron`. Behaviour: Redis 8.6.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress

from streamd.core.capability import Capability
from streamd.core.client import Client
from streamd.core.dispatch import SERVER_STATES
from streamd.core.host import Host
from streamd.core.route import Route
from streamd.errors import ConfigError
from streamd.observe.latency import LatencyMonitor
from streamd.persistence.aof.buffer import AofBuffer
from streamd.persistence.aof.file import AofState
from streamd.persistence.aof.tail import CannotPersistError
from streamd.persistence.append_only import AppendOnly
from streamd.persistence.backup import Backup
from streamd.persistence.bgsave import Saving
from streamd.persistence.child import Children
from streamd.persistence.data_directory import DataDirectory
from streamd.persistence.directory_lock import DirectoryInUseError
from streamd.persistence.start_loading import Loader
from streamd.persistence.writing import DataWriter

__all__ = ["Persistence", "do_nothing"]

log = logging.getLogger("streamd")

LOADING_TEXT = "LOADING Redis is loading the dataset in memory"


def do_nothing() -> None:
    """The default of `Persistence.before_sync`."""


class Persistence(Capability):
    """A server's files.

    children     the forked child, if there is one
    saving       snapshots; `append_only`, `backup`, `loader`: as named
    """

    children: Children
    saving: Saving
    append_only: AppendOnly
    backup: Backup
    loader: Loader

    refusal_rank = 30

    def __init__(self, host: Host) -> None:
        self._host = host
        self._config = config = host.config
        self._latency = host.get(LatencyMonitor)
        self._sinks: list[AofBuffer] = []
        self.before_sync: Callable[[], object] = do_nothing
        """Called in each turn with effects before the append-only file is written, and synced if it has to be."""
        self.server_bits = SERVER_STATES["refusing"]
        self.children = Children(host.loop)
        self.children.begin = host.child_begins
        self.directory = DataDirectory(config, is_embedded=host.is_embedded)
        writer = DataWriter(host, self.directory)
        self.saving = Saving(
            config, host.dispatcher.context, self.children, self.directory, writer, self._latency, changed=self.refresh
        )
        self.backup = Backup(config, self.children, self.directory, writer, changed=self.refresh)
        self.append_only = AppendOnly(host, self.children, self.directory, writer, self.backup, changed=self.refresh)
        self._tail = self.append_only.aof.tail
        self.loader = Loader(
            host, self.directory, writer, self.saving, self.backup, self.append_only, changed=self.refresh
        )
        self.apply_settings()
        self.refresh()
        config.callbacks |= {
            "append-only": self.append_only.switch,
            "directory": self.directory.change,
            "save-points": self.change_save_points,
        }

    # --- Settings ----------------------------------------------------------------------------------------------------

    def apply_settings(self) -> None:
        """Update everything that keeps copies of settings."""
        self.append_only.apply_settings()
        self.refresh()

    def change_save_points(self) -> None:
        """CONFIG SET save. Raises ConfigError when another server writes to the data directory."""
        try:
            self.directory.claim()
        except DirectoryInUseError as error:
            raise ConfigError("save", str(error.strerror)) from error
        self.directory.settle()
        self.refresh()

    # --- Requests ----------------------------------------------------------------------------------------------------

    def find_refusal(self, client: Client, route: Route, args: list[bytes]) -> str | None:
        """The error that a command is refused with because of the state of the files, or None."""
        command, is_write = route.command, self._host.dispatcher.is_write(client, route)
        if (is_write or command.name == "PING") and (reason := self.find_write_error()):
            return reason
        loading = self.loader.loading
        if loading is None:
            return None
        is_refused = "no_async_loading" in command.flags if loading.is_async else "loading" not in command.flags
        return LOADING_TEXT if is_refused else None

    def find_write_error(self) -> str:
        """The error that writes are refused with because of the files; empty when they are accepted."""
        return self.saving.find_refusal() or self.append_only.find_refusal()

    def refresh(self) -> None:
        """Update the core from the state of the files. Called after everything that may change that state."""
        host, dispatcher = self._host, self._host.dispatcher
        loading = self.loader.loading
        host.is_loading = loading is not None and not loading.is_async
        dispatcher.is_refusing = loading is not None or bool(self.find_write_error())
        sinks = [self.append_only.aof.buffer] if self.append_only.is_on else []
        if self.backup.buffer is not None:
            sinks.append(self.backup.buffer)
        if sinks != self._sinks:
            self._sinks = sinks
            dispatcher.effects.set_files(sinks)

    @property
    def has_no_files(self) -> bool:
        """Whether neither snapshots nor the append-only file are wanted."""
        return not self._config.save and not self._config.appendonly

    def data_dropped(self) -> None:
        self.saving.data_dropped()

    # --- Turns and time ----------------------------------------------------------------------------------------------

    def before_replies(self) -> int:
        """Write the effects of this turn, before its replies leave."""
        self.before_sync()
        started = time.monotonic()
        try:
            self._tail.flush()  # append_only's tail, called directly since this runs every turn
        except CannotPersistError as error:
            self.append_only.give_up(error)
        self.backup.flush()
        took_ms = int((time.monotonic() - started) * 1000)
        if took_ms:
            event = "aof-fsync-always" if self._config.appendfsync == "always" else "aof-write"
            self._latency.add(event, took_ms)
        if self._tail.error or self.append_only.was_failing:
            self.append_only.look_at_errors()
        return 0

    def cron(self, now_ms: int) -> None:
        """Called `hz` times a second: start what is due."""
        if self.loader.loading is not None:
            return
        self.backup.cron()
        if self.append_only.is_idle and not (self._config.save or self.saving.is_scheduled):
            # Nothing is persisted. Everything below would have the same result and take four times as long.
            return
        self.append_only.cron()
        if self.children.current is None and not self.append_only.begin_if_due():
            self.saving.begin_if_due()

    # --- Shutdown -----------------------------------------------------------------------------------------------------

    def finish(self, *, save: bool | None, force: bool = False) -> bool:
        """Sync everything to disk before shutdown. Returns False when that failed and the server must keep running.

        save   whether to write a snapshot; None: if there are save points
        force  shut down regardless: tries everything, and returns True
        """
        if self.append_only.aof.state is AofState.WAIT_REWRITE:
            # Neither file has everything yet.
            log.warning("Writing initial AOF. Exit anyway." if force else "Writing initial AOF, can't exit.")
            if not force:
                self._host.supervisor.tell("STATUS=Writing initial AOF, can't exit.")
                return False
        if self.children.current is not None:
            self._kill_child()
        if self.append_only.is_on:
            log.info("Calling fsync() on the AOF file.")
        is_written = self.append_only.finish()
        if not is_written and not force:
            return False
        if save or (save is None and self._config.save):
            log.info("Saving the final RDB snapshot before exiting.")
            self._host.supervisor.tell("STATUS=Saving the final RDB snapshot")
            if not self.saving.save_now():
                log.warning(
                    "Error trying to save the DB. Exit anyway." if force else "Error trying to save the DB, can't exit."
                )
                if not force:
                    self._host.supervisor.tell("STATUS=Error trying to save the DB, can't exit.")
                    return False
        # Only now: a server that keeps running needs its file.
        with suppress(CannotPersistError):
            self.append_only.aof.close()
        return True

    def _kill_child(self) -> None:
        child = self.children.current
        assert child is not None  # noqa: S101
        if child.kind == "rdb":
            log.warning("There is a child saving an .rdb. Killing it!")
        else:
            log.warning("There is a child rewriting the AOF. Killing it!")
            log.info("Killing running AOF rewrite child: %d", child.pid)
        self.children.kill()

    def close(self) -> None:
        """The server is shutting down: release the files."""
        self.children.kill()
        self.backup.close()
        self.directory.release()
