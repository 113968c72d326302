"""The snapshot that a primary sends at a full resync: where it ends, and what becomes of it while it arrives.

    $<n>          n bytes follow
    $EOF:<mark>   bytes follow until the mark of 40 characters

A `Spool` writes it to a file. A `Parser` reads it into databases of its own, in a thread: the thread waits for bytes,
and the event loop goes on. Nothing of the server's data is touched before all of it has arrived.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import NamedTuple

from streamd.errors import ReplicationError
from streamd.integers import find_count
from streamd.keyspace.database import Database
from streamd.persistence.rdb.format import LoadOptions
from streamd.persistence.rdb.read import RdbReader
from streamd.replication.primary_connection import Connection

__all__ = ["Header", "Parser", "Spool", "pieces_of", "read_header"]

MARK_BYTES = 40
PARSER_KEPT = 1 << 20
"""Bytes that wait for the thread before the primary has to wait."""
SYNC_EVERY = 8 << 20
"""Bytes after which the file is synced, so that the last sync does not take long."""


class Header(NamedTuple):
    """What precedes a snapshot: its size in bytes, or None and the mark at its end."""

    size: int | None
    mark: bytes = b""


async def read_header(connection: Connection) -> Header:
    """Read the line before a snapshot. Raises ReplicationError."""
    line = await connection.read_line()
    shown = line[:128].decode("utf-8", "replace")
    if line.startswith(b"-"):
        raise ReplicationError(f"MASTER aborted replication with an error: {shown[1:]}")
    if line.startswith(b"$EOF:") and len(line) >= 5 + MARK_BYTES:
        return Header(None, line[5 : 5 + MARK_BYTES])
    if line.startswith(b"$") and (size := find_count(line[1:].decode("latin-1"))) is not None:
        return Header(size)
    raise ReplicationError(
        f"Bad protocol from MASTER, the first byte is not '$' (we received '{shown}'), are you sure the host and port"
        " are right?"
    )


async def pieces_of(connection: Connection, header: Header) -> AsyncGenerator[bytes, None]:
    """The bytes of a snapshot; what follows them stays in the connection. Raises ReplicationError."""
    if header.size is not None:
        left = header.size
        while left:
            data = await connection.read_some()
            connection.unread(data[left:])
            data = data[:left]
            left -= len(data)
            yield data
        return
    held = b""
    while True:
        held += await connection.read_some()
        end = held.find(header.mark)
        if end >= 0:
            connection.unread(held[end + MARK_BYTES :])
            if end:
                yield held[:end]
            return
        if len(held) >= MARK_BYTES:
            # The last bytes may be the start of the mark.
            yield held[: 1 - MARK_BYTES]
            held = held[1 - MARK_BYTES :]


def sync_and_close(fd: int) -> None:
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class Spool:
    """A file that a snapshot is written to while it arrives. Raises OSError."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        self._unsynced = 0

    async def put(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]
        self._unsynced += len(data)
        if self._unsynced >= SYNC_EVERY:
            await self._sync()

    async def finish(self) -> None:
        """All is written: have it on disk."""
        await self._sync()
        self._close()

    async def _sync(self) -> None:
        self._unsynced = 0
        await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, sync_and_close, os.dup(self._fd)))

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def discard(self) -> None:
        """Remove the file, unless it has another name by now."""
        self._close()
        with suppress(FileNotFoundError):
            os.unlink(self.path)


class _UnwantedError(Exception):
    """Nobody waits for the databases any more."""


class Parser:
    """Reads a snapshot into databases in a thread.

    databases  empty ones, which nobody else uses
    options    how the snapshot is read; what it reads is kept apart
    """

    def __init__(self, databases: list[Database], options: LoadOptions, name: str) -> None:
        self.reader = RdbReader(self, databases, options=options, name=name)
        self._loop = asyncio.get_running_loop()
        self._pieces: deque[bytes] = deque()
        self._size = 0
        self._is_complete = False
        self._is_unwanted = False
        self._changed = threading.Condition()
        self._room = asyncio.Event()
        self._room.set()
        self._done: asyncio.Future[BaseException | None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, name="replica-load", daemon=True)
        self._thread.start()

    # --- In the event loop -------------------------------------------------------------------------------------------

    async def put(self, data: bytes) -> None:
        """Pass on some bytes; waits while many are waiting. Raises what reading them raises."""
        with self._changed:
            self._pieces.append(data)
            self._size += len(data)
            if self._size > PARSER_KEPT:
                self._room.clear()
            self._changed.notify()
        if not self._room.is_set():
            await self._room.wait()
        if self._done.done():
            self._raise_failure()

    async def finish(self) -> None:
        """There are no more bytes: wait until all have been read. Raises what reading them raises."""
        with self._changed:
            self._is_complete = True
            self._changed.notify()
        await self._done
        self._raise_failure()

    def _raise_failure(self) -> None:
        error = self._done.result()
        if error is not None:
            raise error

    def discard(self) -> None:
        """End the thread, wherever it is."""
        with self._changed:
            self._is_unwanted = True
            self._changed.notify()
        self._thread.join()

    # --- In the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        failure: BaseException | None = None
        try:
            self.reader.load()
        except BaseException as error:
            failure = error
        self._tell(self._end, failure)

    def _end(self, failure: BaseException | None) -> None:
        if not self._done.done():
            self._done.set_result(failure)
        self._room.set()

    def _tell(self, callback: Callable[..., object], *args: object) -> None:
        """Call something in the event loop, if it still runs."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, *args)

    def readinto(self, buffer: memoryview) -> int:
        """The source of the reader: wait for bytes; 0 at the end."""
        with self._changed:
            while not self._pieces and not self._is_complete and not self._is_unwanted:
                self._changed.wait()
            if self._is_unwanted:
                raise _UnwantedError
            if not self._pieces:
                return 0
            data = self._pieces.popleft()
            size = min(len(data), len(buffer))
            buffer[:size] = data[:size]
            if size < len(data):
                self._pieces.appendleft(data[size:])
            self._size -= size
            if self._size <= PARSER_KEPT // 2 and not self._room.is_set():
                self._tell(self._room.set)
            return size
