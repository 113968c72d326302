"""Loading the data at startup, in steps that leave time for clients, and again for DEBUG RELOAD.

Loads what `preload-file` names if it is set, else the append-only file if that is on, else the snapshot.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from io import FileIO

from streamd.core.client import Client
from streamd.core.host import Host
from streamd.errors import CommandError, ConfigError, CorruptFileError, StreamdError, UnknownCommandError, printable
from streamd.persistence.aof.aof_manifest import Manifest
from streamd.persistence.aof.replay import LoadOptions as AofLoadOptions
from streamd.persistence.aof.replay import load_files
from streamd.persistence.append_only import AppendOnly
from streamd.persistence.backup import Backup
from streamd.persistence.bgsave import Saving
from streamd.persistence.data_directory import DataDirectory
from streamd.persistence.directory_lock import DirectoryInUseError
from streamd.persistence.rdb.format import LoadOptions
from streamd.persistence.rdb.read import RdbReader
from streamd.persistence.rdb.snapshot import load_file
from streamd.persistence.writing import DataWriter, now_ms, pause_s

__all__ = ["LoadError", "Loader", "Loading"]

log = logging.getLogger("streamd")


CHECK_STEP = 256 * 1024
"""Bytes of a snapshot that are checked at a time, while clients are served in between."""


def _ignore(what: object) -> None:
    """Drop a log line: of a check, whose load will have it too."""


class LoadError(StreamdError):
    """The data could not be read; the reason has been logged, and the server must not start."""


def log_origin(aux: Mapping[str, str]) -> None:
    """Log who wrote a snapshot and when, from its auxiliary fields."""
    if version := aux.get("redis-ver"):
        log.info("Loading RDB produced by version %s", version)
    with suppress(KeyError, ValueError):
        log.info("RDB age %d seconds", max(0, int(time.time()) - int(aux["ctime"])))
    with suppress(KeyError, ValueError):
        log.info("RDB memory usage when created %.2f Mb", int(aux["used-mem"]) / (1 << 20))
    if aux.get("aof-base") == "1":
        log.info("RDB is base AOF")


def log_damage(error: CorruptFileError) -> None:
    """Log what is wrong with a snapshot, in the wording that tools look for; the error itself gives the location."""
    if error.expected.startswith("the checksum "):
        computed, found = (int(each, 16) for each in (error.expected.removeprefix("the checksum "), error.found))
        log.warning("Wrong RDB checksum expected: (%x) but got (%x). Aborting now.", computed, found)
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
    """The server was asked to stop while it was loading."""


class Loading:
    """The state of a load, from before the first client can connect until the load is done; for good if it fails.

    total        bytes of all files
    done         bytes read
    started      monotonic seconds
    is_unwanted  the load must stop early because the server is stopping
    is_async     the data can be read meanwhile: it is replaced at the end
    """

    def __init__(self, total: int = 0, *, is_async: bool = False) -> None:
        self.total = total
        self.is_async = is_async
        self.done = 0
        self.is_unwanted = False
        self.started = time.monotonic()
        self.started_at = int(time.time())

    @property
    def percent(self) -> float:
        return 100 * self.done / self.total if self.total else 0.0

    @property
    def eta_seconds(self) -> int:
        """The estimated time left, in seconds; 1 while unknown."""
        elapsed = time.monotonic() - self.started
        return int(elapsed * (self.total - self.done) / self.done) if self.done else 1


class Loader:
    """
    loading       not None from startup until all files are loaded, and while a primary's snapshot is
    aux           auxiliary fields of the snapshot that was loaded at startup
    keys_loaded   of the last snapshot; `keys_expired`: omitted because they had expired
    dropped_keys  these ones, with their databases, of the snapshot that was loaded at startup
    """

    def __init__(
        self,
        host: Host,
        directory: DataDirectory,
        writer: DataWriter,
        saving: Saving,
        backup: Backup,
        append_only: AppendOnly,
        *,
        changed: Callable[[], object],
    ) -> None:
        """
        changed  called when loading has finished
        """
        self._host = host
        self._config = host.config
        self._directory = directory
        self._writer = writer
        self._saving = saving
        self._backup = backup
        self._log = append_only
        self._changed = changed
        self.replace_libraries: Callable[[list[bytes]], object] = _ignore
        """Has the libraries of functions with this code, and no others. Raises CommandError."""
        self.loading: Loading | None = Loading()
        self._left_out = 0
        """What the file that is read has and the data does not get: values of other types, data of modules, libraries."""
        self.aux: Mapping[str, str] = {}
        self.keys_loaded = 0
        self.keys_expired = 0
        self.dropped_keys: list[tuple[int, bytes]] = []

    async def load(self) -> None:
        """Read existing files, and start writing the append-only file. Raises LoadError.

        Returns early, without writing anything, when `abandon` is called in the meantime. Clients get LOADING until
        it is done; after a failure too, for as long as they are still served.
        """
        try:
            await self._directory.claim_at_start()
        except DirectoryInUseError as error:
            log.critical("%s. Exiting.", error.strerror)
            raise LoadError(error.strerror) from error
        try:
            self._log.aof.files.read_manifest()
            self._backup.find()
            if self._config.preload_file:
                await self._preload(self._config.preload_file)
            elif self._config.appendonly:
                await self._load_append_only()
            elif self._has_snapshot():
                await self._load_snapshot(self._directory.snapshot_path)
        except _Abandoned:
            return
        except (OSError, StreamdError) as error:
            log.critical("Fatal error loading the DB, check server logs. Exiting. %s", error)
            raise LoadError(str(error)) from error
        self.loading = None
        self._changed()
        self._saving.note_loaded()
        self._catch_up()

    def _catch_up(self) -> None:
        """Do what CONFIG SET asked for while files were loaded. Raises LoadError."""
        try:
            self._log.switch()
        except ConfigError as error:
            log.critical("%s", error.reason)
            raise LoadError(error.reason) from error

    async def _step(self, steps: Iterator[int]) -> None:
        """Run the steps, with time for clients in between."""
        assert self.loading is not None  # noqa: S101
        keys = 0
        for done in steps:
            self.loading.done = done
            delay_s = pause_s(self._config.key_load_delay, self._writer.count_keys() - keys)
            keys = self._writer.count_keys()
            await asyncio.sleep(delay_s)
            if self.loading.is_unwanted:
                raise _Abandoned

    def abandon(self) -> None:
        """Stop loading: the server is about to stop."""
        assert self.loading is not None  # noqa: S101
        self.loading.is_unwanted = True

    def _begin_loading(self, total: int) -> None:
        assert self.loading is not None  # noqa: S101
        if self.loading.is_unwanted:
            raise _Abandoned
        self.loading.total = total

    async def _load_append_only(self) -> None:
        self._begin_loading(self._log.aof.files.total_to_load)
        await self._step(self._replay_append_only())
        if self._writer.count_keys():
            assert self.loading is not None  # noqa: S101
            log.info("DB loaded from append only file: %.3f seconds", time.monotonic() - self.loading.started)
        self._log.open()

    async def _preload(self, what: str) -> None:
        """Load what `preload-file` names instead of the server's own files; it is never modified or truncated."""
        kind, _, name = what.partition(":")
        path = self._directory.path(name)
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
            self._log.restart()

    def _replay_append_only(self) -> Iterator[int]:
        """Replay the append-only file; yields the number of bytes read so far."""
        options = AofLoadOptions(
            load_truncated=self._config.aof_load_truncated,
            corrupt_tail_max_size=self._config.aof_load_corrupt_tail_max_size,
            note_position=self._log.take_position,
        )
        return self._replay(self._log.aof.load, options)

    def _replay(self, load: Callable[..., Iterator[int]], options: AofLoadOptions) -> Iterator[int]:
        """Replay files; `load` is AppendOnlyFile.load or equivalent."""
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
            os.stat(self._directory.snapshot_path)
        except FileNotFoundError:
            return False
        return True

    async def _load_snapshot(self, path: str) -> None:
        self._begin_loading(os.stat(path).st_size)
        options = self.load_options()._replace(dropped=lambda *place: self.dropped_keys.append(place))
        reader = load_file(path, self._host.databases, options)
        await self._step(self._read(reader))
        self.aux = reader.aux
        assert self.loading is not None  # noqa: S101
        log.info("DB loaded from disk: %.3f seconds", time.monotonic() - self.loading.started)

    def reload(self, *, save: bool, flush: bool = True) -> None:
        """DEBUG RELOAD: write a snapshot and load it again, in one go. Raises CommandError."""
        if save and not self._saving.save_now():
            raise CommandError("ERR Error saving the DB")
        if flush:
            self._empty()
        try:
            reader = load_file(self._directory.snapshot_path, self._host.databases, self.load_options())
            deque(self._read(reader), maxlen=0)
        except (OSError, StreamdError) as error:
            log.warning("%s", error)
            raise CommandError("ERR Error trying to load the RDB dump, check server logs") from error
        log.info("DB reloaded by DEBUG RELOAD")

    def reload_append_only(self) -> None:
        """DEBUG LOADAOF: write what is buffered, then replay the whole append-only file. Raises CommandError."""
        self._log.flush()
        self._empty()
        try:
            deque(self._replay_append_only(), maxlen=0)
            if self._log.aof.files.manifest.is_empty:
                raise StreamdError("The append-only file does not exist")
        except (OSError, StreamdError) as error:
            log.warning("%s", error)
            raise CommandError("ERR Error trying to load the AOF files, check server logs.") from error
        finally:
            self._saving.note_loaded()

    def _empty(self) -> None:
        self.replace_libraries([])
        for db in self._host.databases:
            db.flush()

    def _read(self, reader: RdbReader, *, kept: str = "") -> Iterator[int]:
        """The steps of loading a snapshot, with its log lines; a file of which something is left out is kept beside.

        kept  under which name
        """
        self._left_out = 0
        try:
            yield from reader.steps()
            self._load_libraries(reader)
        except CorruptFileError as error:
            log_damage(error)
            raise
        self._note_loaded(reader)
        if self._left_out:
            self._directory.keep(reader.name, kept)

    def _load_libraries(self, reader: RdbReader) -> None:
        """Load the libraries of functions of a snapshot. Raises CorruptFileError."""
        try:
            self.replace_libraries(reader.libraries)
        except CommandError as error:
            reason = str(error).removeprefix("ERR ")
            if not self._config.rdb_skip_unsupported:
                raise CorruptFileError(reader.name, 0, "libraries of functions that can be loaded", reason) from error
            self._leave_out(f"The libraries of functions are left out: {reason}")

    def _leave_out(self, text: str) -> None:
        log.warning("%s", text)
        self._left_out += 1

    # --- Snapshots of a primary --------------------------------------------------------------------------------------

    @contextmanager
    def receiving(self, total: int, *, is_async: bool = False) -> Iterator[None]:
        """While a primary's snapshot is read, to replace the data: clients get LOADING. Raises LoadError at the end.

        total     bytes; 0: not known
        is_async  the data may be read until it is replaced
        """
        self.loading = Loading(total, is_async=is_async)
        self._changed()
        is_stopping = False
        try:
            yield
            if self._config.appendonly:
                log.info("MASTER <-> REPLICA sync: Starting AOF after a successful sync")
        except asyncio.CancelledError:
            is_stopping = True  # REPLICAOF is not possible meanwhile
            raise
        finally:
            self.loading = None
            self._changed()
            self._saving.note_loaded()
            if not is_stopping:
                self._catch_up()

    def note_progress(self, done: int) -> None:
        """So many bytes of a primary's snapshot have been read."""
        assert self.loading is not None  # noqa: S101
        self.loading.done = done

    async def check_received(self, path: str) -> None:
        """Read a primary's snapshot as a load would, and keep nothing of it. Raises CorruptFileError, OSError."""
        options = self.load_options(database_count=len(self._host.databases), is_apart=True)
        for _ in load_file(path, None, options._replace(log=_ignore)).steps(CHECK_STEP):
            await asyncio.sleep(0)

    async def load_received(self, path: str) -> dict[str, str]:
        """Load a primary's snapshot in place of the data; returns its auxiliary fields. If it fails, nothing is left."""
        reader = load_file(path, self._host.databases, self.load_options())
        with self.receiving(reader.size):
            log.info("MASTER <-> REPLICA sync: Flushing old data")
            self.flush()
            log.info("MASTER <-> REPLICA sync: Loading DB in memory")
            try:
                # One, replaced by that of the next synchronization: the primary has the data.
                await self._step(self._read(reader, kept=f"{self._directory.snapshot_path}.whole-from-primary"))
            except Exception:
                self._empty()  # a part of the data is worse than none
                raise
        return reader.aux

    def take_over(self, reader: RdbReader) -> None:
        """Replace the data by what has been read apart into other databases, which get the old data."""
        assert reader.databases is not None  # noqa: S101
        self._load_libraries(reader)
        self._note_loaded(reader)
        self._stop_writing()
        for db, other in zip(self._host.databases, reader.databases, strict=True):
            db.listener.flushing(db)  # those who watch or cache keys
            db.swap_with(other)
        reader.take_over(self._host.dispatcher.context)

    def flush(self) -> None:
        """Remove all data, to be replaced by a primary's."""
        self._stop_writing()
        self._empty()

    def _stop_writing(self) -> None:
        """The data is about to be replaced: what is being written of it is worth nothing. `_catch_up` begins again."""
        self._saving.kill_child()
        self._log.stop()

    def _note_loaded(self, reader: RdbReader) -> None:
        log_origin(reader.aux)
        if reader.checksum == "none" and self._config.rdbchecksum:
            log.info("RDB file was saved with checksum disabled: no check performed.")
        self.keys_loaded = reader.keys_loaded
        self.keys_expired = reader.keys_expired
        log.info("Done loading RDB, keys loaded: %d, keys expired: %d.", reader.keys_loaded, reader.keys_expired)

    def _load_base(self, path: str, file: FileIO) -> Generator[int, None, int]:
        """Load the snapshot at the start of an append-only file; return where it ends."""
        size = os.fstat(file.fileno()).st_size
        options = self.load_options(drop_expired=False)
        reader = RdbReader(file, self._host.databases, options=options, name=path, size=size)
        log.info("Reading RDB base file on AOF loading...")
        yield from self._read(reader)
        return reader.end_offset

    def load_options(
        self, *, drop_expired: bool = True, database_count: int = 0, is_apart: bool = False
    ) -> LoadOptions:
        """The options for reading snapshots and RESTORE payloads."""
        config = self._config
        return LoadOptions(
            checksum=config.rdbchecksum,
            drop_expired=drop_expired and not self._host.dispatcher.is_replica,
            now_ms=now_ms(),
            database_count=database_count,
            skip_unsupported=config.rdb_skip_unsupported,
            context=self._host.dispatcher.context,
            is_apart=is_apart,
            log=self._leave_out,
        )
