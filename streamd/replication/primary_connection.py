"""Connection: a connection to the primary, until it carries the replication stream.

What arrives is kept until it is read, line by line or piece by piece, by one coroutine. When much is waiting to be read,
the peer has to wait: `most` bytes are kept, and a few more.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any, cast

from streamd.errors import ReplicationError

__all__ = ["Connection", "ConnectionLostError"]

KEPT = 1 << 20
"""Bytes that are kept before the peer has to wait."""
LINE_MOST = 64 * 1024
"""Bytes of the longest line."""


class ConnectionLostError(ReplicationError):
    """The primary has closed the connection, or is silent."""


class Connection(asyncio.Protocol):
    """
    timeout_s  how long the peer may be silent while something is waited for
    received   called with the number of bytes, when some have arrived
    last_io    when that was, in monotonic seconds
    size       bytes that have arrived and were not read; `peak`: the most there were; `most`: then the peer has to wait
    """

    def __init__(self, timeout_s: Callable[[], float], received: Callable[[int], object]) -> None:
        self.transport: asyncio.Transport
        self.last_io = time.monotonic()
        self.most = KEPT
        self.size = self.peak = 0
        self._timeout_s = timeout_s
        self._received = received
        self._pieces: deque[bytes] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._is_held = False
        self._is_paused = False
        self._loss = ""

    # --- Callbacks of the event loop ---------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.last_io = time.monotonic()
        self._received(len(data))
        self._pieces.append(data)
        self.size += len(data)
        self.peak = max(self.peak, self.size)
        self._follow_size()
        self._wake()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        is_closed = exc is None or isinstance(exc, ConnectionError)
        self._loss = "the primary has closed the connection" if is_closed else str(exc)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # --- Reading -----------------------------------------------------------------------------------------------------

    async def read_some(self) -> bytes:
        """What has arrived, at least one byte. Raises ConnectionLostError."""
        if not self._pieces:
            await self._wait()
        data = self._pieces.popleft()
        self.size -= len(data)
        self._follow_size()
        return data

    async def _wait(self) -> None:
        """Wait for bytes."""
        try:
            async with asyncio.timeout(self._timeout_s()):
                while not self._pieces and not self._loss:
                    self._waiter = asyncio.get_running_loop().create_future()
                    await self._waiter
        except TimeoutError:
            raise ConnectionLostError(
                f"the primary has sent nothing for {self._timeout_s():g} seconds (repl-timeout)"
            ) from None
        finally:
            self._waiter = None
        if not self._pieces:
            raise ConnectionLostError(self._loss)

    async def read_line(self) -> bytes:
        """The next line that is not empty, without its end. Raises ConnectionLostError, ReplicationError."""
        held = b""
        while True:
            held = (held + await self.read_some()).lstrip(b"\r\n")
            line, end, rest = held.partition(b"\n")
            if end:
                self.unread(rest)
                return line.rstrip(b"\r")
            if len(held) > LINE_MOST:
                raise ReplicationError(f"the primary has sent a line of more than {LINE_MOST} bytes")

    def unread(self, data: bytes) -> None:
        """Put back what was read, to be read next."""
        if data:
            self._pieces.appendleft(data)
            self.size += len(data)

    def take(self) -> bytes:
        """Everything that has arrived and was not read."""
        data = b"".join(self._pieces)
        self._pieces.clear()
        self.size = 0
        return data

    def hold(self, is_on: bool) -> None:
        """Read nothing more for now, or go on."""
        self._is_held = is_on
        self._follow_size()

    def _follow_size(self) -> None:
        wants_pause = self._is_held or self.size >= self.most
        if wants_pause != self._is_paused and not self._loss and not self.transport.is_closing():
            self._is_paused = wants_pause
            if wants_pause:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()

    # --- The rest ----------------------------------------------------------------------------------------------------

    @property
    def is_lost(self) -> bool:
        return bool(self._loss)

    def write(self, data: bytes) -> None:
        if not self._loss and not self.transport.is_closing():
            self.transport.write(data)

    def address(self, end: str) -> Any:
        """The address of one end: `sockname`, `peername`."""
        return self.transport.get_extra_info(end)

    def close(self) -> None:
        """Drop the connection at once."""
        self.transport.abort()
