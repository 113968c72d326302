"""Append-only files in tests: databases filled by commands without a server, their contents, and disks that fail."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Generator, Iterable, Sequence
from io import FileIO
from pathlib import Path
from typing import Any

import hiredis

from streamd.core.spec import table
from streamd.disk import Disk, StrPath
from streamd.errors import CommandError, UnknownCommandError
from streamd.keyspace.database import Database
from streamd.persistence.aof.aof_options import AofOptions
from streamd.persistence.aof.buffer import AofBuffer
from streamd.persistence.aof.file import AppendOnlyFile
from streamd.persistence.aof.replay import LoadOptions, LoadRdb
from streamd.persistence.aof.rewrite import BaseOptions, write_base
from streamd.persistence.rdb.format import LoadOptions as RdbOptions
from streamd.persistence.rdb.read import RdbReader
from streamd.serve.families import load_all
from streamd.values.streams.stream import Stream

from ..commands.handler import HandlerContext, make_context, run

load_all()  # registers the handlers

__all__ = ["FailingDisk", "Store", "bytes_of", "commands", "make_aof", "open_aof"]


class Store:
    """Sixteen databases and the handlers of all commands, but no server.

    run(...)      runs a request, as a client would; its reply
    apply(args)   runs a command of a file
    applied       the commands that `apply` got
    state()       everything that must outlive the process, for comparison
    """

    def __init__(self, **config: Any) -> None:
        self.context: HandlerContext = make_context(**config)
        self.applied: list[list[bytes]] = []

    @property
    def databases(self) -> list[Database]:
        return self.context.databases

    def run(self, *args: bytes | str | int) -> Any:
        return run(self.context, *args)

    def apply(self, args: list[bytes]) -> None:
        self.applied.append(args)
        if args[0].upper() == b"SELECT":
            self.context.db = self.databases[int(args[1])]
            return
        self.require_known(args)
        command = table[args[0].decode("latin-1").upper()]
        if command.subcommands:
            command = command.subcommands[args[1].decode("latin-1").upper()]
        if not command.accepts(len(args)):
            raise CommandError(f"ERR wrong number of arguments for '{command.full_name}' command")
        self.context.is_replaying = True
        try:
            reply = run(self.context, *args)
        finally:
            self.context.is_replaying = False
        if isinstance(reply, hiredis.ReplyError):
            raise CommandError(str(reply))

    def require_known(self, args: list[bytes]) -> None:
        if args[0].upper() == b"SELECT":
            return
        command = table.find(args)
        if command is None or (command.subcommands and len(args) == 1):
            raise UnknownCommandError(f"Unknown command '{args[0].decode('latin-1')}'")

    def load_rdb(self) -> LoadRdb:
        options = RdbOptions(drop_expired=False, context=self.context)

        def load(path: str, file: FileIO) -> Generator[int, None, int]:
            size = os.fstat(file.fileno()).st_size
            reader = RdbReader(file, self.databases, options=options, name=path, size=size)
            yield from reader.steps()
            return reader.end_offset

        return load

    def write_base(self, path: str, *, use_rdb_preamble: bool = True, **options: Any) -> int:
        return write_base(
            path, self.databases, BaseOptions(use_rdb_preamble=use_rdb_preamble, **options), now_ms=self.context.now_ms
        )

    def state(self) -> list[dict[bytes, Any]]:
        return [
            {record.key: (_value(record.value), db.expiry(record.key)) for record in _records(db)}
            for db in self.databases
        ]


def _records(db: Database) -> Iterable[Any]:
    return [record for key in sorted(db.keys()) if (record := db.record(key)) is not None]


def _value(value: Any) -> Any:
    return stream_state(value) if isinstance(value, Stream) else value


def stream_state(stream: Stream) -> dict[str, Any]:
    stream.check_invariants()
    return {
        "entries": stream.range(),
        "last_id": stream.last_generated_id,
        "max_deleted": stream.max_deleted_entry_id,
        "entries_added": stream.entries_added,
        "groups": {
            name: {
                "last_id": group.last_delivered_id,
                "entries_read": group.entries_read,
                "pending": group.pending(),
                "unowned": group.unowned(),
                "consumers": {each.name: (each.seen_ms, each.active_ms) for each in group.consumers.values()},
            }
            for name, group in sorted(stream.groups.items())
        },
        "idmp": (stream.idmp_duration, stream.idmp_maxsize, stream.iids_added, stream.iids_duplicates),
        "iids": [] if stream.idempotency is None else list(stream.idempotency.producers()),
    }


def commands(*lines: str) -> list[list[bytes]]:
    """Requests, one per line, words separated by blanks."""
    return [line.encode().split() for line in lines]


def bytes_of(requests: Iterable[Sequence[bytes]]) -> bytes:
    """Requests as they are written in a file; all in the same database."""
    buffer = AofBuffer()
    buffer.is_open = True
    for each in requests:
        buffer.append(-1, list(each), 0)
    return bytes(memoryview(buffer))


class FailingDisk(Disk):
    """A disk that fails when a test wants it to.

    fail("sync_data")                    the next call of that operation raises EIO, and so do those after it
    fail("write", errno.ENOSPC, at=2)    the second call from now on, and those after it
    short(3)                             the next write accepts only three bytes, and the one after it fails
    heal()                               everything works again
    calls                                the operations so far, with their paths when they have one
    """

    def __init__(self) -> None:
        self.calls: list[tuple[str, ...]] = []
        self._failures: dict[str, tuple[int, int]] = {}
        self._short: int | None = None

    def fail(self, operation: str, number: int = errno.EIO, at: int = 1) -> None:
        self._failures[operation] = (number, at)

    def short(self, size: int, number: int = errno.ENOSPC) -> None:
        self._short = size
        self._failures["write"] = (number, 2)

    def heal(self) -> None:
        self._failures.clear()
        self._short = None

    def _called(self, operation: str, *paths: StrPath) -> None:
        self.calls.append((operation, *map(os.path.basename, paths)))
        if operation in self._failures:
            number, left = self._failures[operation]
            if left <= 1:
                raise OSError(number, os.strerror(number))
            self._failures[operation] = (number, left - 1)

    def open_append(self, path: StrPath, *, new: bool = False, mode: int = 0o644) -> int:
        self._called("open_append", path)
        return super().open_append(path, new=new, mode=mode)

    def write(self, fd: int, data: memoryview) -> int:
        self._called("write")
        if self._short is not None:
            data, self._short = data[: self._short], None
        return super().write(fd, data)

    def sync_data(self, fd: int) -> None:
        self._called("sync_data")
        super().sync_data(fd)

    def sync(self, fd: int) -> None:
        self._called("sync")
        super().sync(fd)

    def truncate(self, fd: int, size: int) -> None:
        self._called("truncate")
        super().truncate(fd, size)

    def rename(self, old: StrPath, new: StrPath) -> None:
        self._called("rename", old, new)
        super().rename(old, new)

    def unlink(self, path: StrPath) -> None:
        self._called("unlink", path)
        super().unlink(path)

    def sync_directory(self, path: StrPath) -> None:
        self._called("sync_directory", path)
        super().sync_directory(path)


def make_aof(
    folder: Path, disk: Disk | None = None, clock: Callable[[], float] | None = None, **options: Any
) -> AppendOnlyFile:
    """An append-only file under `folder` whose manifest has been read; nothing is loaded or written yet."""
    more = {} if clock is None else {"clock": clock}
    offsets = [lambda: 0]
    aof = AppendOnlyFile(
        AofOptions(directory=str(folder), **options), disk=disk, replication_offset=lambda: offsets[0](), **more
    )
    offsets[0] = lambda: aof.loaded_offset or 0  # as a server that continues where its files end
    aof.files.read_manifest()
    return aof


def open_aof(
    folder: Path, store: Store, disk: Disk | None = None, load: LoadOptions | None = None, **options: Any
) -> AppendOnlyFile:
    """As a server does it at start: what is there is loaded into `store`, and writing begins."""
    aof = make_aof(folder, disk, **options)
    for _ in aof.load(
        store.apply,
        load or LoadOptions(),
        load_rdb=store.load_rdb(),
        knows=store.require_known,
        databases=store.databases,
    ):
        pass
    aof.open(lambda path: store.write_base(path, use_rdb_preamble=aof.options.use_rdb_preamble))
    return aof
