"""An RDB file on disk.

Saving never touches the existing file: everything goes into `temp-PID.rdb` beside it, which is synced and renamed over
the existing file; then the directory is synced too. Whatever happens between two of these steps, the name leads to a
complete snapshot, the old one or the new one.

    saved = save_to_file(databases, path, options)              # in a forked child, or in the server itself (SAVE)
    for line in saved.losses:
        log.warning(line)                                       # what the form had no room for

    reader = load_file(path, databases, options)
    for done in reader.steps():                                 # about 1 MiB each; serve clients in between
        ...                                                     # `done` of reader.size bytes: INFO, the log
    reader.aux, reader.keys_loaded ...

An invalid file raises CorruptFileError, and the databases must be discarded; a missing one raises FileNotFoundError.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple

from streamd.disk import SYNC_EVERY, Disk, SyncingSink, replacing
from streamd.keyspace.database import Database
from streamd.persistence.rdb.format import LoadOptions, WriteOptions
from streamd.persistence.rdb.read import RdbReader
from streamd.persistence.rdb.write import RdbWriter

__all__ = ["Saved", "load_file", "save_to_file", "summary", "temporary_path"]


def temporary_path(path: str, pid: int | None = None) -> str:
    """Where a snapshot is written before it is renamed to `path`. What a killed child leaves there may be removed."""
    return os.path.join(os.path.dirname(path), f"temp-{os.getpid() if pid is None else pid}.rdb")


def summary(writer: RdbWriter) -> str:
    """What has been written, as a line for the log in Redis's words."""
    return f"BGSAVE done, {writer.keys_written} keys saved, 0 keys skipped, {writer.bytes_written} bytes written."


class Saved(NamedTuple):
    """What has been written.

    keys, size  keys and bytes
    losses      what the form had no room for, a line for the log each
    """

    keys: int
    size: int
    losses: list[str]


def save_to_file(
    databases: Iterable[Database],
    path: str,
    options: WriteOptions | None = None,
    *,
    now_ms: int | None = None,
    used_memory: int = 0,
    incremental_fsync: bool = True,
    progress: Callable[[int], object] | None = None,
    written: Callable[[str], object] | None = None,
    libraries: Iterable[bytes] = (),
    disk: Disk | None = None,
) -> Saved:
    """Write a snapshot and put it at `path`; the old file stays intact until the new one is safe.

    now_ms             Unix time; None: the system's
    used_memory        bytes, noted in the file
    incremental_fsync  sync the file every 4 MiB (`rdb-save-incremental-fsync`)
    progress           called with the number of keys written so far, often
    written            called with a line for the log when all of it is written, before the rename
    libraries          code of the libraries of functions
    Raises OSError; the temporary file is gone then.
    """
    disk = Disk() if disk is None else disk
    options = WriteOptions() if options is None else options
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    with replacing(path, temporary=temporary_path(path), disk=disk) as fd:
        sink = SyncingSink(disk, fd, sync_every=SYNC_EVERY if incremental_fsync else 0)
        writer = RdbWriter(sink, options)
        writer.write(databases, now_ms=now_ms, used_memory=used_memory, progress=progress, libraries=libraries)
        if written is not None:
            written(summary(writer))
    return Saved(writer.keys_written, writer.bytes_written, writer.losses.describe(options.form))


def load_file(path: str, databases: Iterable[Database] | None, options: LoadOptions | None = None) -> RdbReader:
    """The reader of a file; `load` or `steps` reads it. Raises OSError.

    databases  those that get the keys; None: the file is only checked
    """
    source = _Source(path)
    return RdbReader(source, databases, options=options, name=path, size=source.size)


class _Source:
    """A file that is open while it is read."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115 (closed by __del__)
        self.size = os.fstat(self._file.fileno()).st_size
        self.readinto = self._file.readinto

    def __del__(self) -> None:
        with suppress(AttributeError):  # it could not be opened
            self._file.close()
