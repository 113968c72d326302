"""Write the base of an append-only file: the data set as a snapshot, or as commands. What the child of a rewrite does.

The file that results stands for everything up to the moment of the fork; it is complete and synced when `write_base`
returns, and takes its name only then (AppendOnlyFile.finish_rewrite).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from streamd.disk import SYNC_EVERY, Disk, SyncingSink, new_file
from streamd.keyspace.database import Database
from streamd.persistence.aof.command_writer import CommandWriter
from streamd.persistence.rdb.format import WriteOptions
from streamd.persistence.rdb.snapshot import summary
from streamd.persistence.rdb.write import RdbWriter

__all__ = ["BaseOptions", "write_base"]


class BaseOptions(NamedTuple):
    """
    use_rdb_preamble   a snapshot; otherwise commands (aof-use-rdb-preamble)
    timestamp          note the time at the head of commands (aof-timestamp-enabled)
    incremental_fsync  sync the file every 4 MiB (aof-rewrite-incremental-fsync)
    rdb                how a snapshot is written; its form, which commands keep to as well, should lose nothing
    """

    use_rdb_preamble: bool = True
    timestamp: bool = False
    incremental_fsync: bool = True
    rdb: WriteOptions = WriteOptions()


def write_base(
    path: str,
    databases: Iterable[Database],
    options: BaseOptions,
    *,
    now_ms: int,
    used_memory: int = 0,
    progress: Callable[[int], object] | None = None,
    written: Callable[[str], object] | None = None,
    libraries: Iterable[bytes] = (),
    disk: Disk | None = None,
) -> int:
    """Write a base to `path`, and sync it; returns its size in bytes.

    now_ms    Unix time
    progress  called with the number of keys written so far, often
    written   called with a line for the log when all of it is written
    libraries code of the libraries of functions
    Raises OSError; then there is no file at `path`.
    """
    disk = Disk() if disk is None else disk
    with new_file(path, disk=disk) as fd:
        sink = SyncingSink(disk, fd, sync_every=SYNC_EVERY if options.incremental_fsync else 0)
        if options.use_rdb_preamble:
            snapshot = RdbWriter(sink, options.rdb._replace(aux={**options.rdb.aux, "aof-base": 1}))
            snapshot.write(databases, now_ms=now_ms, used_memory=used_memory, progress=progress, libraries=libraries)
            size, line = snapshot.bytes_written, summary(snapshot)
        else:
            timestamp_s = now_ms // 1000 if options.timestamp else None
            commands = CommandWriter(sink, options=options.rdb, timestamp_s=timestamp_s)
            commands.write(databases, progress, libraries)
            size, line = (
                commands.bytes_written,
                f"AOF rewrite done, {commands.keys_written} keys saved, 0 keys skipped.",
            )
        if written is not None:
            written(line)
    return size
