"""Persistence: when the data is written to files and read from them, and what clients are told meanwhile.

    at the start    the append-only file when there is one, else the snapshot, is read in steps; commands that need the
                    data are answered with LOADING
    snapshots       SAVE, BGSAVE, the save points, the end: the files are snapshot.py's, the child is child.py's
    append-only     effects of commands -> AofBuffer -> file, before any reply leaves; the rewrite, by a child
    refusals        writes, while the last snapshot or the append-only file could not be written

One child at a time; what cannot begin now is remembered and begun by `cron`. The dispatcher hands effects over
(`propagate`), and asks for them to be written (`flush`) at the end of each turn of the event loop.
Behaviour: Redis 8.6.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from streamd.core.capability import Capability
from streamd.core.client import Client
from streamd.core.dispatch import SERVER_STATES
from streamd.core.host import Host
from streamd.core.route import Route
from streamd.disk import Disk, StrPath
from streamd.errors import CommandError, ConfigError, CorruptFileError, StreamdError, UnknownCommandError, printable
from streamd.memory.eviction import Eviction
from streamd.observe.latency import LatencyMonitor
from streamd.persistence.aof.file import AofState, AppendOnlyFile
from streamd.persistence.aof.load import LoadOptions as AofLoadOptions
from streamd.persistence.aof.load import load_files
from streamd.persistence.aof.manifest import Manifest
from streamd.persistence.aof.options import AofOptions
from streamd.persistence.aof.rewrite import BaseOptions, write_base
from streamd.persistence.aof.tail import CannotPersistError
from streamd.persistence.backup import Backup
from streamd.persistence.child import Child, Children, Report
from streamd.persistence.directory_lock import DirectoryInUseError, DirectoryLocks
from streamd.persistence.rdb.format import FORMS, LoadOptions, WriteOptions, lossless_form
from streamd.persistence.rdb.read import RdbReader
from streamd.persistence.rdb.snapshot import load_file, save_to_file, temporary_path

__all__ = ["LoadError", "Loading", "Persistence"]

log = logging.getLogger("streamd")

LOCK_WAIT_S = 1.0
"""How long a start waits for the data directory: a server that was killed a moment ago may still be on its way out."""
LOCK_POLL_S = 0.02

RETRY_S = 5
"""How long after a failed snapshot the save points wait, so that a full disk does not keep a child busy."""

LOADING_TEXT = "LOADING Redis is loading the dataset in memory"
SNAPSHOT_FAILED_TEXT = (
    "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. Commands that may"
    " modify the data set are disabled, because this instance is configured to report errors during writes if RDB"
    " snapshotting fails (stop-writes-on-bgsave-error option). Please check the Redis logs for details about the RDB"
    " error."
)


Logged = Callable[[int, str], object]
"""Takes the level and the text of a line for the log."""
Progress = Callable[[int], object] | None
"""Told of the number of keys written so far."""


def now_ms() -> int:
    """Unix time in ms."""
    return int(time.time() * 1000)


def pause_s(delay: int, keys: int) -> float:
    """How long to rest after so many keys, in seconds.

    delay  us for each key; below 0, one us for so many keys
    """
    if keys <= 0 or not delay:
        return 0.0
    return keys * delay / 1e6 if delay > 0 else keys / -delay / 1e6


class LoadError(StreamdError):
    """The data could not be read; the reason has been logged, and the server must not start."""


class ChildDisk(Disk):
    """What a child asks of the system. One whose server is gone puts nothing in place: another may be at work by then.

    server_pid  of the process that forked it
    """

    def __init__(self, server_pid: int) -> None:
        self._server_pid = server_pid

    def rename(self, old: StrPath, new: StrPath) -> None:
        if os.getppid() != self._server_pid:
            raise OSError(errno.ECHILD, "The server is gone")
        super().rename(old, new)


def log_line(level: int, text: str) -> None:
    log.log(level, "%s", text)


def describe_save_error(error: OSError) -> str:
    """Why a snapshot could not be written, in Redis's words: by the step that failed, which follows from the names in the error."""
    reason = error.strerror or error
    if error.filename2 is not None:
        name, place = error.filename, os.path.basename(error.filename2)
        return f"Error moving temp DB file {name} on the final destination {place} (in server root dir {working_directory()}): {reason}"
    if error.filename is not None:
        return f"Failed opening the temp RDB file {error.filename} (in server root dir {working_directory()}) for saving: {reason}"
    return f"Write error while saving DB to the disk(rdbSaveRio): {reason}"


def working_directory() -> str:
    try:
        return os.getcwd()
    except OSError:
        return "unknown"


def log_origin(aux: Mapping[str, str]) -> None:
    """Who wrote a snapshot, and when, by its fields."""
    if version := aux.get("redis-ver"):
        log.info("Loading RDB produced by version %s", version)
    with suppress(KeyError, ValueError):
        log.info("RDB age %d seconds", max(0, int(time.time()) - int(aux["ctime"])))
    with suppress(KeyError, ValueError):
        log.info("RDB memory usage when created %.2f Mb", int(aux["used-mem"]) / (1 << 20))
    if aux.get("aof-base") == "1":
        log.info("RDB is base AOF")


def log_damage(error: CorruptFileError) -> None:
    """What is wrong with a snapshot, in the words that tools look for; where it is, the error says itself."""
    if error.expected.startswith("the checksum "):
        computed = error.expected.removeprefix("the checksum ")
        log.warning("Wrong RDB checksum expected: (%s) but got (%s). Aborting now.", computed, error.found)
        log.warning("Internal error in RDB reading offset %d -> RDB CRC error", error.offset)
    elif error.expected == "the magic REDIS":
        log.warning("Wrong signature trying to load DB from file")
    elif error.expected.startswith("an RDB format version "):
        log.warning("Can't handle RDB format version %s", error.found)
    elif error.found.endswith("it is cut off"):
        log.warning("Short read or OOM loading DB. Unrecoverable error, aborting now.")
        log.warning("Internal error in RDB reading offset %d -> Unexpected EOF reading RDB file", error.offset)
    else:
        log.warning(
            "Internal error in RDB reading offset %d -> expected %s, found %s",
            error.offset,
            error.expected,
            error.found,
        )


class _Abandoned(Exception):
    """The server was told to end while it was reading."""


class Loading:
    """The reading of files, from before the first client can connect until it is done; for good when it fails.

    total        bytes of all files
    done         bytes read
    started      monotonic seconds
    is_unwanted  it is to end before it is complete, because the server is
    """

    def __init__(self) -> None:
        self.total = 0
        self.done = 0
        self.is_unwanted = False
        self.started = time.monotonic()
        self.started_at = int(time.time())

    @property
    def percent(self) -> float:
        return 100 * self.done / self.total if self.total else 0.0

    @property
    def eta_seconds(self) -> int:
        """How long it may still take; 1 while that is not known."""
        elapsed = time.monotonic() - self.started
        return int(elapsed * (self.total - self.done) / self.done) if self.done else 1


class Persistence(Capability):
    """A server's files.

    children              the forked child, if there is one
    loading               not None while files are read, and from the start on
    last_save             Unix time of the last good snapshot, or of the start
    is_last_save_ok       whether the last attempt at a snapshot was good
    """

    refusal_rank = 30

    def __init__(self, host: Host) -> None:
        self._host = host
        self._config = host.config
        self._latency = host.get(LatencyMonitor)
        self._eviction = host.get(Eviction)
        self.server_bits = SERVER_STATES["refusing"]
        self.children = Children(host.loop)
        self.children.begin = host.child_begins
        self.loading: Loading | None = Loading()
        self.last_save = int(time.time())
        self.is_last_save_ok = True
        self.last_save_seconds = -1
        self.last_save_cow = 0
        self.saves = 0
        self.consecutive_save_failures = 0
        self.is_save_scheduled = False
        self.keys_loaded = 0
        self.keys_expired_at_load = 0
        self.last_rewrite_cow = 0
        self._was_failing = False
        self._last_attempt = 0.0
        self._dirty_saved = 0
        """`dirty` at the last good snapshot; the difference is what a crash would lose."""
        self._dirty_at_fork = 0
        self._locks = DirectoryLocks()
        self._start_directory = os.getcwd()
        self._offset_at_start = 0  # the replication offset at which the loaded append-only file ended
        config = self._config
        self.aof = AppendOnlyFile(
            AofOptions(directory=self._directory, dirname=config.appenddirname, filename=config.appendfilename),
            has_child=lambda: self.children.current is not None,
            replication_offset=lambda: self.replication_offset,
        )
        self.backup = Backup(
            config, self.children,
            parent=lambda: self._directory, claim=self._claim, count_keys=self._count_keys,
            write_base=lambda path, report: self._write_base(path, self._slowed(report.keys), is_snapshot=True),
            changed=self._backup_changed,
        )  # fmt: skip
        self.apply_settings()
        self.refresh()
        config.callbacks |= {
            "append-only": self.switch_append_only,
            "directory": self.change_directory,
            "save-points": self.change_save_points,
        }

    def apply_settings(self) -> None:
        """Bring what keeps copies of settings up to date."""
        config, options = self._config, self.aof.options
        options.appendfsync = config.appendfsync
        options.no_fsync_on_rewrite = config.no_appendfsync_on_rewrite
        options.use_rdb_preamble = config.aof_use_rdb_preamble
        options.keep_history = config.aof_disable_auto_gc
        options.rewrite_percentage = config.auto_aof_rewrite_percentage
        options.rewrite_min_size = config.auto_aof_rewrite_min_size
        self.aof.buffer.has_timestamps = config.aof_timestamp_enabled
        self._host.dispatcher.context.has_xnack = FORMS[config.rdb_form].has_xnack

    # --- What others ask ---------------------------------------------------------------------------------------------

    @property
    def changes(self) -> int:
        """Changes since the last good snapshot."""
        return max(0, self._host.dispatcher.context.dirty - self._dirty_saved)

    @property
    def is_logging(self) -> bool:
        """Whether there is an append-only file, or is about to be."""
        return self.aof.state is not AofState.OFF

    @property
    def replication_offset(self) -> int:
        """master_repl_offset: without replicas, the commands that the append-only file has been given."""
        return self._offset_at_start + self.aof.buffer.commands

    @property
    def snapshot_path(self) -> str:
        return self.path(self._config.dbfilename)

    def path(self, name: str) -> str:
        """A file of the data directory. The process works in it, but not one that a server is embedded in."""
        return os.path.join(self._config.dir or ".", name) if self._host.is_embedded else name

    def find_refusal(self, client: Client, route: Route, args: list[bytes]) -> str | None:
        """The error with which a command is refused now because of the files, or None."""
        command, is_write = route.command, self._host.dispatcher.is_write(client, route)
        if (is_write or command.name == "PING") and (reason := self._write_error()):
            return reason
        if self.loading is not None and "loading" not in command.flags:
            return LOADING_TEXT
        return None

    def _write_error(self) -> str:
        if not self.is_last_save_ok and self._config.stop_writes_on_bgsave_error and self._config.save:
            return SNAPSHOT_FAILED_TEXT
        if self.aof.write_error:
            return f"MISCONF Errors writing to the AOF file: {os.strerror(self.aof.write_error)}"
        return ""

    def refresh(self) -> None:
        """Tell the dispatcher whether commands may have to be refused; after everything that may change it."""
        self._host.is_loading = self.loading is not None
        self._host.dispatcher.is_refusing = self.loading is not None or bool(self._write_error())

    # --- The data directory ------------------------------------------------------------------------------------------

    @property
    def _directory(self) -> str:
        return self.path("") or "."

    def _written_directories(self) -> set[str]:
        """Where files may be written to at any time."""
        directories = set()
        child = self.children.current
        if self._config.save or (child is not None and child.kind == "rdb"):
            directories.add(self._directory)
        if self._config.appendonly or self.aof.state is not AofState.OFF or self.aof.rewriting.pid is not None:
            directories.add(self.aof.files.parent)
        if self.backup.is_in_progress:
            directories.add(self.backup.parent)
        return directories

    def _claim(self, *more: str) -> None:
        """Lock the directories that may be written to, and `more`, until `_settle`. Raises DirectoryInUseError."""
        self._locks.hold({*self._written_directories(), *more})

    def _settle(self) -> None:
        """Unlock the directories that are no longer written to."""
        self._locks.keep(self._written_directories())

    async def _claim_at_start(self) -> None:
        deadline = time.monotonic() + LOCK_WAIT_S
        while True:
            try:
                return self._claim()
            except DirectoryInUseError as error:
                if time.monotonic() > deadline:
                    log.critical("%s. Exiting.", error.strerror)
                    raise LoadError(error.strerror) from error
            await asyncio.sleep(LOCK_POLL_S)

    def change_directory(self) -> None:
        """CONFIG SET dir. Raises ConfigError, also when another server writes there."""
        path = self._config.dir or self._start_directory
        try:
            self._claim(path)
            if not self._host.is_embedded:
                os.chdir(path)
        except OSError as error:
            raise ConfigError("dir", error.strerror or str(error)) from error
        finally:
            self._settle()

    def change_save_points(self) -> None:
        """CONFIG SET save. Raises ConfigError when another server writes to the data directory."""
        try:
            self._claim()
        except DirectoryInUseError as error:
            raise ConfigError("save", str(error.strerror)) from error
        self._settle()
        self.refresh()

    def close(self) -> None:
        """The end of the server: leave the files to others."""
        self.children.kill()
        self.backup.close()
        self._locks.keep(())

    # --- Snapshots ---------------------------------------------------------------------------------------------------

    def save(self) -> None:
        """SAVE: write a snapshot while everybody waits. Raises CommandError."""
        child = self.children.current
        if child is not None and child.kind == "rdb":
            raise CommandError("ERR Background save already in progress")
        self.saves += 1
        if not self._save_now():
            raise CommandError("ERR")

    def data_dropped(self) -> None:
        """FLUSHALL: end a child that writes a snapshot, and with save points replace the snapshot, while everybody waits."""
        child = self.children.current
        if child is not None and child.kind == "rdb":
            self.children.kill()
        if self._config.save:
            self._save_now()

    def start_save(self, *, may_wait: bool, must_wait: bool) -> str:
        """BGSAVE: see save_commands."""
        child = self.children.current
        if child is not None and child.kind == "rdb":
            raise CommandError("ERR Background save already in progress")
        if child is not None or must_wait:
            if not (may_wait or must_wait):
                raise CommandError(
                    "ERR Another child process is active (AOF?): can't BGSAVE right now. Use BGSAVE SCHEDULE in order to"
                    " schedule a BGSAVE whenever possible."
                )
            self.is_save_scheduled = True
            return "Background saving scheduled"
        if not self._fork_save():
            raise CommandError("ERR")
        return "Background saving started"

    def _write_options(self, form: str, **aux: str | int) -> WriteOptions:
        config = self._config
        return WriteOptions(
            form=form,
            compression=config.rdbcompression,
            checksum=config.rdbchecksum,
            access_times=config.maxmemory_policy.endswith("-lru"),
            access_counts=config.maxmemory_policy.endswith("-lfu"),
            aux=aux,
            default_idmp=(config.stream_idmp_duration, config.stream_idmp_maxsize),
        )

    def _write_snapshot(self, logged: Logged, progress: Progress = None, disk: Disk | None = None) -> None:
        """Write a snapshot; `logged` gets the lines for the log."""
        saved = save_to_file(
            self._host.databases, self.snapshot_path, self._write_options(self._config.rdb_form),
            now_ms=now_ms(), used_memory=self._eviction.used(),
            incremental_fsync=self._config.rdb_save_incremental_fsync, progress=progress, disk=disk,
        )  # fmt: skip
        logged(logging.INFO, saved.summary)
        for line in saved.losses:
            logged(logging.WARNING, line)
        logged(logging.INFO, "DB saved on disk")

    def _save_now(self) -> bool:
        dirty = self._host.dispatcher.context.dirty
        try:
            self._claim(self._directory)
            self._write_snapshot(log_line, self._slowed(None) if self._config.rdb_key_save_delay else None)
        except OSError as error:
            log.warning("%s", describe_save_error(error))
            return False
        finally:
            self._settle()
        self._saved(dirty)
        return True

    def _count_keys(self) -> int:
        return sum(map(len, self._host.databases))

    def _saved(self, dirty: int) -> None:
        self.is_last_save_ok = True
        self.last_save = int(time.time())
        self._dirty_saved = dirty
        self.refresh()

    def _fork_save(self) -> bool:
        self._last_attempt = time.monotonic()
        self._dirty_at_fork = self._host.dispatcher.context.dirty
        self.is_save_scheduled = False
        self.saves += 1
        server_pid = os.getpid()

        def job(report: Report) -> None:
            try:
                self._write_snapshot(
                    lambda level, text: report.log(text, level), self._slowed(report.keys), ChildDisk(server_pid)
                )
            except OSError as error:
                report.log(describe_save_error(error), logging.WARNING)
                raise

        try:
            self._claim(self._directory)
            child = self.children.start("rdb", job, self._save_ended, keys_total=self._count_keys())
        except OSError as error:
            self._settle()
            reason = error.strerror if isinstance(error, DirectoryInUseError) else f"fork: {error.strerror}"
            log.warning("Can't save in background: %s", reason)
            self.is_last_save_ok = False
            self.refresh()
            return False
        self._latency.add("fork", child.fork_us // 1000)
        log.info("Background saving started by pid %d", child.pid)
        return True

    def _slowed(self, progress: Progress) -> Callable[[int], None]:
        """As slow as `rdb-key-save-delay` says."""
        done = 0

        def slowed(keys: int) -> None:
            nonlocal done
            if progress is not None:
                progress(keys)
            time.sleep(pause_s(self._config.rdb_key_save_delay, keys - done))
            done = keys

        return slowed

    def _save_ended(self, child: Child) -> None:
        self._settle()
        self.last_save_cow = child.cow_bytes
        self.last_save_seconds = child.seconds
        if child.error:
            with suppress(OSError):
                os.unlink(temporary_path(self.snapshot_path, child.pid))
            if not child.was_killed:
                log.warning("Background saving %s", f"terminated by signal {child.signal}" if child.signal else "error")
                self.is_last_save_ok = False
                self.consecutive_save_failures += 1
            self.refresh()
            return
        log.info("Background saving terminated with success")
        self.consecutive_save_failures = 0
        self._saved(self._dirty_at_fork)

    # --- The append-only file ------------------------------------------------------------------------------------------

    def before_replies(self) -> int:
        """Write the effects of this turn, before its replies leave."""
        started = time.monotonic()
        try:
            self.aof.flush()
        except CannotPersistError as error:
            self._give_up(error)
        self.backup.flush()
        took_ms = int((time.monotonic() - started) * 1000)
        if took_ms:
            event = "aof-fsync-always" if self._config.appendfsync == "always" else "aof-write"
            self._latency.add(event, took_ms)
        if self.aof.write_error or self._was_failing:
            self._look_at_errors()
        return 0

    def _give_up(self, error: CannotPersistError) -> None:
        """What was promised cannot be kept: end at once, with nothing acknowledged."""
        log.critical("%s", error)
        self._host.abort()

    def _look_at_errors(self) -> None:
        self._was_failing = self.aof.write_error != 0
        self.refresh()

    def start_rewrite(self, *, must_wait: bool) -> str:
        """BGREWRITEAOF: see save_commands."""
        child = self.children.current
        if child is not None and child.kind == "aof":
            raise CommandError("ERR Background append only file rewriting already in progress")
        if child is not None or must_wait or self.backup.is_in_progress:
            self.aof.rewriting.is_requested = True
            return "Background append only file rewriting scheduled"
        if not self._fork_rewrite():
            raise CommandError(
                "ERR Can't execute an AOF background rewriting. Please check the server logs for more information."
            )
        return "Background append only file rewriting started"

    def _write_base(self, path: str, progress: Progress = None, *, is_snapshot: bool = False) -> None:
        """Write the data set as the base of an append-only file; is_snapshot: whatever the settings say."""
        config = self._config
        options = BaseOptions(
            use_rdb_preamble=is_snapshot or config.aof_use_rdb_preamble,
            timestamp=config.aof_timestamp_enabled,
            incremental_fsync=config.aof_rewrite_incremental_fsync,
            rdb=self._write_options(lossless_form(config.rdb_form), **{"aof-base": 1}),
            idmp=(config.stream_idmp_duration, config.stream_idmp_maxsize),
        )
        write_base(
            path, self._host.databases, options,
            now_ms=now_ms(), used_memory=self._eviction.used(), progress=progress,
        )  # fmt: skip

    def _fork_rewrite(self) -> bool:
        try:
            self._follow_directory()
            self.aof.begin_rewrite()
        except CannotPersistError as error:
            self._give_up(error)
            return False
        except (OSError, StreamdError):
            self._settle()
            return False
        try:
            child = self.children.start(
                "aof", self._rewrite_in_child, self._rewrite_ended, keys_total=self._count_keys()
            )
        except OSError as error:
            self.aof.rewrite_failed(f"fork: {error.strerror}")
            self._settle()
            return False
        self._latency.add("fork", child.fork_us // 1000)
        self.aof.rewrite_started(child.pid)
        return True

    def _follow_directory(self) -> None:
        """CONFIG SET dir is for the next append-only file. Raises OSError, StreamdError."""
        try:
            if self.aof.is_movable:
                self._claim(self._directory)
            self.aof.set_directory(self._directory)
        except (OSError, StreamdError) as error:
            log.warning("Can't begin an append only file in the data directory: %s", error)
            raise

    def _rewrite_in_child(self, report: Report) -> None:
        path = self.aof.files.temporary_base(os.getpid())
        self._write_base(path, self._slowed(report.keys))
        report.log(f"Successfully created the temporary AOF base file {os.path.basename(path)}")

    def _rewrite_ended(self, child: Child) -> None:
        self.last_rewrite_cow = child.cow_bytes
        if not child.error:
            log.info("Background AOF rewrite terminated with success")
        elif not child.was_killed:
            log.warning("Background AOF rewrite terminated with error: %s", child.error)
        self.aof.finish_rewrite(not child.error, was_asked=child.was_killed)
        self._settle()
        self._refresh_propagation()

    def switch_append_only(self) -> None:
        """CONFIG SET appendonly. Raises ConfigError.

        While files are loaded it waits until that is done: a base of now would have a part of the data. In a transaction
        the rewrite waits for its end.
        """
        wanted = self._config.appendonly
        if self.loading is not None or wanted == (self.aof.state is not AofState.OFF):
            self._settle()
            return
        if wanted:
            try:
                self._follow_directory()
            except (OSError, StreamdError) as error:
                raise ConfigError("appendonly", "Unable to turn on AOF. Check server logs.") from error
            self.aof.enable()
            must_wait = self.children.current is not None or self._host.dispatcher.context.in_transaction
            if not must_wait and not self._fork_rewrite():
                self._switch_off()
                raise ConfigError("appendonly", "Unable to turn on AOF. Check server logs.")
        else:
            self._switch_off()
            self.backup.fail("appendonly is stopped")
        self._refresh_propagation()

    def _switch_off(self) -> None:
        pid = None
        try:
            pid = self.aof.disable()
        except CannotPersistError as error:
            self._give_up(error)
        if pid is not None:
            self.children.kill()
        self._settle()
        self._look_at_errors()

    def _refresh_propagation(self) -> None:
        """Have the dispatcher collect effects as long as somebody wants them."""
        dispatcher = self._host.dispatcher
        takers = [self.aof.buffer] if self.aof.state is not AofState.OFF else []
        if self.backup.buffer is not None:
            takers.append(self.backup.buffer)
        dispatcher.effects.set_files(takers)

    def _backup_changed(self) -> None:
        self._settle()
        self._refresh_propagation()

    # --- Loading -----------------------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Read what there is, and begin to write the append-only file. Raises LoadError.

        Returns early, with nothing written, when `abandon_loading` is called meanwhile. Clients are answered with LOADING
        until it is done; after a failure too, as long as they can still be.
        """
        await self._claim_at_start()
        try:
            self.aof.files.read_manifest()
            self.backup.find()
            if self._config.preload_file:
                await self._preload(self._config.preload_file)
            elif self._config.appendonly:
                await self._load_append_only()
            elif self._has_snapshot():
                await self._load_snapshot(self.snapshot_path)
        except _Abandoned:
            return
        except (OSError, StreamdError) as error:
            log.critical("Fatal error loading the DB, check server logs. Exiting. %s", error)
            raise LoadError(str(error)) from error
        self.loading = None
        self.refresh()
        self._dirty_saved = self._host.dispatcher.context.dirty
        self._catch_up()

    def _catch_up(self) -> None:
        """Do what CONFIG SET asked for while files were loaded. Raises LoadError."""
        try:
            self.switch_append_only()
        except ConfigError as error:
            log.critical("%s", error.reason)
            raise LoadError(error.reason) from error

    async def _step(self, steps: Iterator[int]) -> None:
        """Read on, with time for clients in between."""
        assert self.loading is not None  # noqa: S101
        keys = 0
        for done in steps:
            self.loading.done = done
            delay_s = pause_s(self._config.key_load_delay, self._count_keys() - keys)
            keys = self._count_keys()
            await asyncio.sleep(delay_s)
            if self.loading.is_unwanted:
                raise _Abandoned

    def abandon_loading(self) -> None:
        """The server is about to end: read no further."""
        assert self.loading is not None  # noqa: S101
        self.loading.is_unwanted = True

    def _begin_loading(self, total: int) -> None:
        assert self.loading is not None  # noqa: S101
        if self.loading.is_unwanted:
            raise _Abandoned
        self.loading.total = total

    async def _load_append_only(self) -> None:
        self._begin_loading(self.aof.files.total_to_load)
        await self._step(self._replay_append_only())
        if self._count_keys():
            assert self.loading is not None  # noqa: S101
            log.info("DB loaded from append only file: %.3f seconds", time.monotonic() - self.loading.started)
        self._offset_at_start = self.aof.loaded_offset or 0
        self.aof.open(self._write_base)
        self._refresh_propagation()

    async def _preload(self, what: str) -> None:
        """Load what `preload-file` names, instead of the server's own files, and as it is: nothing is cut off."""
        kind, _, name = what.partition(":")
        path = self.path(name)
        if kind == "rdb":
            await self._load_snapshot(path)
        else:
            with open(path, "rb") as file:
                files = Manifest.parse(file.read(), path).to_load
            directory = os.path.dirname(path)
            self._begin_loading(sum(os.path.getsize(os.path.join(directory, each.name)) for each in files))
            options = AofLoadOptions(load_truncated=False)
            await self._step(self._replay(partial(load_files, directory, files), options))
        if self._config.appendonly:
            self._restart_log()

    def _restart_log(self) -> None:
        """Start the append-only file again, with a base of what has been loaded; its old files become history."""
        pid = os.getpid()
        self.aof.enable()
        self.aof.begin_rewrite()
        self.aof.rewrite_started(pid)
        self._write_base(self.aof.files.temporary_base(pid))
        if not self.aof.finish_rewrite(True):
            raise LoadError("The append-only file could not be begun")
        self._refresh_propagation()

    def _replay_append_only(self) -> Iterator[int]:
        """Run the commands of the append-only file; yields bytes read so far."""
        options = AofLoadOptions(
            load_truncated=self._config.aof_load_truncated,
            corrupt_tail_max_size=self._config.aof_load_corrupt_tail_max_size,
        )
        return self._replay(self.aof.load, options)

    def _replay(self, load: Callable[..., Iterator[int]], options: AofLoadOptions) -> Iterator[int]:
        """Run commands of files; load: AppendOnlyFile.load, or its like."""
        server = self._host
        client = Client(server.dispatcher)
        is_propagating = server.dispatcher.context.is_propagating
        server.dispatcher.context.is_propagating = False
        for db in server.databases:
            db.keeps_expired = True
        try:
            yield from load(
                partial(server.dispatcher.replay, client), options,
                load_rdb=self._load_base, knows=self._require_known, databases=server.databases,
            )  # fmt: skip
        finally:
            server.dispatcher.context.is_propagating = is_propagating
            for db in server.databases:
                db.keeps_expired = False

    def _require_known(self, args: list[bytes]) -> None:
        """Raise UnknownCommandError when there is no such command."""
        command = self._host.commands.find(args)
        if command is None or (command.subcommands and len(args) == 1):
            raise UnknownCommandError(f"Unknown command '{printable(args[0][:128])}'")

    def _has_snapshot(self) -> bool:
        try:
            os.stat(self.snapshot_path)
        except FileNotFoundError:
            return False
        return True

    async def _load_snapshot(self, path: str) -> None:
        self._begin_loading(os.stat(path).st_size)
        reader = load_file(path, self._host.databases, self.load_options())
        await self._step(self._read(reader))
        assert self.loading is not None  # noqa: S101
        log.info("DB loaded from disk: %.3f seconds", time.monotonic() - self.loading.started)

    def reload(self, *, save: bool, flush: bool = True) -> None:
        """DEBUG RELOAD: write a snapshot and read it again, at once. Raises CommandError."""
        if save and not self._save_now():
            raise CommandError("ERR Error saving the DB")
        if flush:
            self._empty()
        try:
            reader = load_file(self.snapshot_path, self._host.databases, self.load_options())
            deque(self._read(reader), maxlen=0)
        except (OSError, StreamdError) as error:
            log.warning("%s", error)
            raise CommandError("ERR Error trying to load the RDB dump, check server logs") from error
        log.info("DB reloaded by DEBUG RELOAD")

    def reload_append_only(self) -> None:
        """DEBUG LOADAOF: write what there is to write, and run all of the append-only file again. Raises CommandError."""
        self.before_replies()
        self._empty()
        try:
            if self.aof.state is not AofState.OFF:
                deque(self._replay_append_only(), maxlen=0)
        except (OSError, StreamdError) as error:
            log.warning("%s", error)
            raise CommandError("ERR Error trying to load the AOF files, check server logs") from error
        finally:
            self._dirty_saved = self._host.dispatcher.context.dirty

    def _empty(self) -> None:
        for db in self._host.databases:
            db.flush()

    def _read(self, reader: RdbReader) -> Iterator[int]:
        """The steps of reading a snapshot, and what the log says of it."""
        try:
            yield from reader.steps()
        except CorruptFileError as error:
            log_damage(error)
            raise
        self._note_loaded(reader)

    def _note_loaded(self, reader: RdbReader) -> None:
        log_origin(reader.aux)
        if reader.checksum == "none" and self._config.rdbchecksum:
            log.info("RDB file was saved with checksum disabled: no check performed.")
        self.keys_loaded = reader.keys_loaded
        self.keys_expired_at_load = reader.keys_expired
        log.info("Done loading RDB, keys loaded: %d, keys expired: %d.", reader.keys_loaded, reader.keys_expired)

    def _load_base(self, path: str, file: Any) -> Generator[int, None, int]:
        """Load a snapshot that an append-only file begins with; returns where it ends."""
        size = os.fstat(file.fileno()).st_size
        options = self.load_options(drop_expired=False)
        reader = RdbReader(file, self._host.databases, options=options, name=path, size=size)
        log.info("Reading RDB base file on AOF loading...")
        yield from self._read(reader)
        return reader.end_offset

    def load_options(self, *, drop_expired: bool = True) -> LoadOptions:
        """How snapshots are read, and payloads of RESTORE."""
        config = self._config
        return LoadOptions(
            checksum=config.rdbchecksum,
            drop_expired=drop_expired,
            now_ms=now_ms(),
            skip_unsupported=config.rdb_skip_unsupported,
            node_max_bytes=config.stream_node_max_bytes,
            node_max_entries=config.stream_node_max_entries,
            idmp_duration=config.stream_idmp_duration,
            idmp_maxsize=config.stream_idmp_maxsize,
            registry=self._host.dispatcher.context.idempotency,
            log=lambda text: log.warning("%s", text),
        )

    # --- Time, and the end ---------------------------------------------------------------------------------------------

    def cron(self, now_ms: int) -> None:
        """Called `hz` times a second: begin what is due."""
        if self.loading is not None:
            return
        self.backup.cron()
        if self.aof.is_idle and not (self._config.save or self.is_save_scheduled or self._was_failing):
            # Nothing is kept on the disk. Everything below would come to the same, and take four times as long.
            return
        try:
            self.aof.cron()
        except CannotPersistError as error:
            self._give_up(error)
        if self.aof.write_error or self._was_failing:
            self._look_at_errors()
        if self.children.current is not None:
            return
        # A backup postpones rewrites, but not the first one: until that has ended nothing is kept.
        may_rewrite = not self.backup.is_in_progress or self.aof.state is AofState.WAIT_REWRITE
        if may_rewrite and self.aof.wants_rewrite():
            self._fork_rewrite()
        elif self.is_save_scheduled or self._is_save_due():
            self._fork_save()

    def _is_save_due(self) -> bool:
        changes = self.changes
        if not changes:
            return False
        now = time.time()
        if not self.is_last_save_ok and time.monotonic() - self._last_attempt < RETRY_S:
            return False
        for point in self._config.save:
            if changes >= point.changes and now - self.last_save > point.seconds:
                log.info("%d changes in %d seconds. Saving...", point.changes, point.seconds)
                return True
        return False

    def finish(self, *, save: bool | None, force: bool = False) -> bool:
        """The server is about to end: bring everything to the disk; False when that failed, and the server goes on.

        save   write a snapshot, or do not; None: when there are save points
        force  end all the same; tries everything, and returns True
        """
        if self.aof.state is AofState.WAIT_REWRITE:
            # Neither file has everything yet.
            log.warning("Writing initial AOF. Exit anyway." if force else "Writing initial AOF, can't exit.")
            if not force:
                return False
        if self.children.current is not None:
            self._kill_child()
        if self.aof.state is not AofState.OFF:
            log.info("Calling fsync() on the AOF file.")
        is_written = self._finish_append_only()
        if not is_written and not force:
            return False
        if save or (save is None and self._config.save):
            log.info("Saving the final RDB snapshot before exiting.")
            if not self._save_now():
                log.warning(
                    "Error trying to save the DB. Exit anyway." if force else "Error trying to save the DB, can't exit."
                )
                if not force:
                    return False
        # Only now: a server that goes on must have its file.
        with suppress(CannotPersistError):
            self.aof.close()
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

    def remove_temporary_snapshot(self) -> None:
        """The process ends now: a snapshot that it is writing itself will not be completed."""
        with suppress(OSError):
            os.unlink(temporary_path(self.snapshot_path))

    def _finish_append_only(self) -> bool:
        """Write what is left to be written; False when that failed. What was acknowledged would be gone."""
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
