"""Writing the data set to a file as the settings say: a snapshot, or the base of an append-only file."""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Callable, Mapping
from functools import partial

from streamd.core.host import Host
from streamd.disk import Disk, StrPath
from streamd.memory.eviction import Eviction
from streamd.persistence.aof.rewrite import BaseOptions, write_base
from streamd.persistence.data_directory import DataDirectory
from streamd.persistence.rdb.format import WriteOptions, lossless_form
from streamd.persistence.rdb.snapshot import save_to_file

__all__ = ["ChildDisk", "DataWriter", "describe_save_error", "log_line", "now_ms", "pause_s"]

log = logging.getLogger("streamd")

Logged = Callable[[int, str], object]
"""Takes the level and the text of a log line."""
Progress = Callable[[int], object] | None
"""Called with the number of keys written so far."""


def now_ms() -> int:
    """Unix time in ms."""
    return int(time.time() * 1000)


SLICE_S = 0.05
"""How long one pause lasts at most: a signal that arrives just before it is handled behind it."""


def pause_s(delay: int, keys: int) -> float:
    """How long to pause after `keys` keys, in seconds.

    delay  microseconds per key; if negative, one microsecond per that many keys
    """
    if keys <= 0 or not delay:
        return 0.0
    return keys * delay / 1e6 if delay > 0 else keys / -delay / 1e6


class ChildDisk(Disk):
    """The operating system as a child uses it. A child whose server is gone renames nothing: another may be running.

    server_pid  of the process that forked it
    """

    def __init__(self, server_pid: int) -> None:
        self._server_pid = server_pid

    def rename(self, old: StrPath, new: StrPath) -> None:
        if os.getppid() != self._server_pid:
            raise OSError(errno.ECHILD, "The server has ended")
        super().rename(old, new)


def describe_save_error(error: OSError) -> str:
    """Why a snapshot could not be written, in Redis's words, by the step that failed: names in the error tell which."""
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


def log_line(level: int, text: str) -> None:
    """Log a line in this process."""
    log.log(level, "%s", text)


class DataWriter:
    """Writes all databases of a server."""

    def __init__(self, host: Host, directory: DataDirectory) -> None:
        self._config = host.config
        self._context = host.dispatcher.context
        self._databases = host.databases
        self._eviction = host.get(Eviction)
        self._directory = directory
        self.replication_aux: Callable[[], dict[str, str | int]] = dict
        """What a snapshot says of the replication stream (repl-id and so on): with it, a restarted server continues."""
        self.libraries: Callable[[], list[bytes]] = list
        """The code of the libraries of functions."""

    def count_keys(self) -> int:
        return sum(map(len, self._databases))

    def used_memory(self) -> int:
        """Bytes of memory in use, as snapshots note it."""
        return self._eviction.used()

    def write_options(self, form: str, aux: Mapping[str, str | int], *, compressed: bool = True) -> WriteOptions:
        config = self._config
        return WriteOptions(
            form=form,
            compression=compressed and config.rdbcompression,
            checksum=config.rdbchecksum,
            access_times=config.maxmemory_policy.endswith("-lru"),
            access_counts=config.maxmemory_policy.endswith("-lfu"),
            aux=aux,
            context=self._context,
        )

    def write_snapshot(self, logged: Logged, progress: Progress = None, disk: Disk | None = None) -> None:
        """Write a snapshot; `logged` gets the log lines."""
        saved = save_to_file(
            self._databases, self._directory.snapshot_path, self.write_options(self._config.rdb_form, self.replication_aux()),
            now_ms=now_ms(), used_memory=self.used_memory(),
            incremental_fsync=self._config.rdb_save_incremental_fsync, progress=progress,
            written=partial(logged, logging.INFO), libraries=self.libraries(), disk=disk,
        )  # fmt: skip
        for line in saved.losses:
            logged(logging.WARNING, line)
        logged(logging.INFO, "DB saved on disk")

    def write_base(
        self, path: str, progress: Progress = None, *, logged: Logged = log_line, is_snapshot: bool = False
    ) -> None:
        """Write the data set as the base of an append-only file; is_snapshot: in RDB form whatever the settings say."""
        config = self._config
        options = BaseOptions(
            use_rdb_preamble=is_snapshot or config.aof_use_rdb_preamble,
            timestamp=config.aof_timestamp_enabled,
            incremental_fsync=config.aof_rewrite_incremental_fsync,
            rdb=self.write_options(lossless_form(config.rdb_form), {"aof-base": 1}),
        )
        write_base(
            path, self._databases, options,
            now_ms=now_ms(), used_memory=self.used_memory(), progress=progress,
            written=partial(logged, logging.INFO), libraries=self.libraries(),
        )  # fmt: skip

    def slowed(self, progress: Progress) -> Callable[[int], None]:
        """`progress`, slowed down as `rdb-key-save-delay` says."""
        done = 0

        def slowed(keys: int) -> None:
            nonlocal done
            if progress is not None:
                progress(keys)
            end = time.monotonic() + pause_s(self._config.rdb_key_save_delay, keys - done)
            while (left := end - time.monotonic()) > 0:
                time.sleep(min(left, SLICE_S))
            done = keys

        return slowed
