"""Sending snapshots to replicas.

Without a file, a forked child writes the snapshot straight to the connections, all at once: nothing of the data passes
through the event loop. A connection with TLS, whose keys only this process has, gets it through a socket pair. With a
file, the file is sent once it is complete.

    child ──▶ connection of a replica
          ──▶ socket pair ──▶ SocketRelay ──▶ TLS ──▶ connection

A snapshot of unknown length stands between two marks of 40 characters: `$EOF:<mark>`, and the mark again.
"""

from __future__ import annotations

import asyncio
import errno
import os
import select
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from io import FileIO

from streamd.core.client import Client, Outflow
from streamd.replication.replica import Replica

__all__ = ["ConnectionsSink", "FileFlow", "SocketRelay"]

PIECE = 64 * 1024
"""Bytes that are handed to a transport at a time."""
TURN_MOST = 1024 * 1024
"""Bytes of a file sent to one replica per turn."""


class ConnectionsSink:
    """Writes the same bytes to several connections; used in the child. `write` raises OSError when none is left.

    heads       what each connection gets first, by its descriptor, which does not block
    patience_s  its first element: a connection that takes nothing for so long is given up; may change at any time
    on_late     called with the descriptor of such a connection
    """

    def __init__(self, heads: Mapping[int, bytes], patience_s: Sequence[float], on_late: Callable[[int], None]) -> None:
        self._sockets = {fd: socket.socket(fileno=fd) for fd in heads}
        self._patience_s = patience_s
        self._on_late = on_late
        self._send(heads)

    def write(self, data: bytes) -> None:
        self._send(dict.fromkeys(self._sockets, data))

    def _send(self, pieces: Mapping[int, bytes]) -> None:
        unsent = {fd: memoryview(data) for fd, data in pieces.items()}
        moved_at = dict.fromkeys(unsent, time.monotonic())
        poll = select.poll()
        for fd in unsent:
            poll.register(fd, select.POLLOUT)
        while unsent:
            for fd in list(unsent):
                try:
                    sent = self._sockets[fd].send(unsent[fd])
                except BlockingIOError:
                    sent = 0
                except OSError:
                    sent = -1
                if sent > 0:
                    moved_at[fd] = time.monotonic()
                    unsent[fd] = unsent[fd][sent:]
                late = sent == 0 and time.monotonic() - moved_at[fd] > self._patience_s[0]
                if late:
                    self._on_late(fd)
                if sent < 0 or late:
                    self._give_up(fd)
                if sent < 0 or late or not unsent[fd]:
                    poll.unregister(fd)
                    del unsent[fd]
            if unsent:
                poll.poll(1000)
        if not self._sockets:
            raise OSError(errno.EPIPE, "All replicas have disconnected")

    def _give_up(self, fd: int) -> None:
        """Drop a connection; the server sees that it has ended."""
        broken = self._sockets.pop(fd)
        try:
            broken.shutdown(socket.SHUT_RDWR)
        except OSError:
            broken.close()

    def finish(self) -> None:
        """Everything is written: leave the connections to the server."""
        for each in self._sockets.values():
            each.detach()


class SocketRelay(Outflow):
    """Passes on what the child writes to a socket pair, through a connection that only this process can write to.

    far_end  the child's end, to be closed here after the fork
    """

    def __init__(self, client: Client, loop: asyncio.AbstractEventLoop) -> None:
        self._client = client
        self._loop = loop
        self._near, self.far_end = socket.socketpair()
        self._near.setblocking(False)
        self.far_end.setblocking(False)
        self.is_done = False
        self._on_end: Callable[[], None] | None = None
        loop.add_reader(self._near, self._pass_on)

    def _pass_on(self) -> None:
        if self._client.is_congested or self._client.transport is None:
            self._loop.remove_reader(self._near)
            return
        try:
            data = self._near.recv(PIECE)
        except BlockingIOError:
            return
        if data:
            self._client.transport.write(data)
            return
        self.close()
        if self._on_end is not None:
            self._on_end()

    def send(self, client: Client) -> int:
        """The client takes more."""
        if not self.is_done:
            self._loop.add_reader(self._near, self._pass_on)
        return 0

    def when_done(self, on_end: Callable[[], None]) -> None:
        """Have a function called when everything has been passed on."""
        if self.is_done:
            on_end()
        else:
            self._on_end = on_end

    def close(self) -> None:
        """Everything has been passed on, or nobody wants it."""
        if not self.is_done:
            self.is_done = True
            self._loop.remove_reader(self._near)
            self._near.close()
            self.far_end.close()


class FileFlow(Outflow):
    """Sends a snapshot that is a file, behind the line with its length.

    file     open for reading; closed at the end
    on_end   called with the replica when all has been sent
    """

    def __init__(self, file: FileIO, replica: Replica, on_end: Callable[[Replica], None]) -> None:
        self._file = file
        self._replica = replica
        self._on_end = on_end
        self._size = os.fstat(file.fileno()).st_size
        self._at = 0

    @property
    def header(self) -> bytes:
        """What precedes the bytes of the file."""
        return b"$%d\r\n" % self._size

    def send(self, client: Client) -> int:
        """Send a piece."""
        most = self._at + TURN_MOST
        while self._at < self._size and not client.is_congested:
            if self._at >= most:
                client.send_later()
                return 0
            try:
                sent = self._send_some(client)
            except OSError:
                sent = 0
            if not sent:
                client.close()  # the connection is broken, or the file has become shorter
                return 0
            self._at += sent
        if self._at == self._size:
            self.close()
            self._on_end(self._replica)
        return 0

    def close(self) -> None:
        """Everything has been sent, or nobody wants it."""
        self._file.close()

    def _send_some(self, client: Client) -> int:
        """Send some bytes, from the file to the socket where possible; returns how many."""
        left = min(self._size - self._at, TURN_MOST)
        if client.is_plain:
            with suppress(BlockingIOError):
                return os.sendfile(client.fileno, self._file.fileno(), self._at, left)
        data = os.pread(self._file.fileno(), PIECE, self._at)
        client.transport.write(data)
        return len(data)
