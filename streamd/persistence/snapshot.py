"""An RDB file on disk.

Saving never touches the file that is there: everything goes into `temp-PID.rdb` beside it, which is brought to the disk, put
in the other's place, and then the directory is brought to the disk too. Whatever happens between two of these steps, the
name leads to a whole snapshot, the old one or the new one.

    save_to_file(databases, path, options, now_ms=...)          in a forked child, or in the server itself (SAVE)

    with open_snapshot(path, databases, options) as reader:
        for done in reader.steps():                             # about 1 MiB each; serve clients in between
            ...                                                 # `done` of reader.size bytes: INFO, the log
    reader.aux, reader.keys_loaded ...

A file that is not in order raises CorruptFileError, and the databases are of no use then; a missing one FileNotFoundError.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from streamd.engine.database import Database
from streamd.persistence.files import Files
from streamd.persistence.rdb_format import LoadOptions, WriteOptions
from streamd.persistence.rdb_read import RdbReader
from streamd.persistence.rdb_write import RdbWriter

__all__ = ["Saved", "open_snapshot", "save_to_file", "temporary_path"]

SYNC_EVERY = 4 << 20
"""Bytes after which a file that is being written is brought to the disk, so that the last time does not take long."""


@dataclass(frozen=True, slots=True)
class Saved:
    """What has been saved.

    keys      keys in the file
    size      its bytes
    warnings  what the form had no room for, a line for the log each
    """

    keys: int
    size: int
    warnings: list[str]


class _Sink:
    """Writes to a descriptor, all of what it is given, and syncs now and then."""

    def __init__(self, files: Files, fd: int, *, syncs: bool) -> None:
        self._files = files
        self._fd = fd
        self._syncs = syncs
        self._unsynced = 0

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[self._files.write(self._fd, view) :]
        self._unsynced += len(data)
        if self._syncs and self._unsynced >= SYNC_EVERY:
            self._files.sync_data(self._fd)
            self._unsynced = 0


def temporary_path(path: str, pid: int | None = None) -> str:
    """Where a snapshot is written before it is put at `path`. What a killed child leaves there may be removed."""
    return os.path.join(os.path.dirname(path), f"temp-{os.getpid() if pid is None else pid}.rdb")


def save_to_file(
    databases: Iterable[Database],
    path: str,
    options: WriteOptions | None = None,
    *,
    now_ms: int,
    used_memory: int = 0,
    incremental_fsync: bool = True,
    progress: Callable[[int], object] | None = None,
    files: Files | None = None,
) -> Saved:
    """Write a snapshot and put it at `path`; what was there stays, whole, until the new one is safe.

    now_ms             Unix time
    used_memory        bytes, noted in the file
    incremental_fsync  bring the file to the disk every 4 MiB (`rdb-save-incremental-fsync`)
    progress           called with the number of keys written so far, often
    Raises OSError; the temporary file is gone then.
    """
    files = Files() if files is None else files
    options = WriteOptions() if options is None else options
    temporary = temporary_path(path)
    fd = files.open_append(temporary, new=True)
    try:
        try:
            writer = RdbWriter(_Sink(files, fd, syncs=incremental_fsync), options)
            writer.write(databases, now_ms=now_ms, used_memory=used_memory, progress=progress)
            files.sync(fd)
        finally:
            files.close(fd)
        files.rename(temporary, path)
    except BaseException:
        with suppress(OSError):
            files.unlink(temporary)
        raise
    files.sync_directory(os.path.dirname(path) or ".")
    return Saved(writer.keys_written, writer.bytes_written, writer.losses.describe(options.form))


@contextmanager
def open_snapshot(
    path: str, databases: Iterable[Database] | None, options: LoadOptions | None = None
) -> Iterator[RdbReader]:
    """The reader of a file, which is open as long as the block lasts.

    databases  those that get the keys; None: the file is only looked through
    """
    with open(path, "rb", buffering=0) as file:
        yield RdbReader(file, databases, options=options, name=path, size=os.fstat(file.fileno()).st_size)
