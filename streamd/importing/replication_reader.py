"""The stream of replication of a source, read as a replica reads it, but without its data: only the commands that follow.

The source is asked for a snapshot without keys, which Redis 7.0 and newer can make; the snapshot of an older one is read and dropped.
"""

from __future__ import annotations

import time
from contextlib import suppress

from streamd.client.client_errors import ServerError, UnreachableError
from streamd.client.connection import Connection, dial, pack_command
from streamd.client.place import Place
from streamd.client.reply_reader import ReplyReader
from streamd.client.reply_types import UNREAD

__all__ = ["Command", "Stream"]

TIMEOUT_S = 30.0
ACK_EVERY_S = 1.0
RECEIVE_BYTES = 1 << 20
MARK_BYTES = 40

Command = tuple[int, list[bytes]]
"""Its words, and the offset of its last byte."""


class Stream:
    """The stream of one source; `read` returns its commands in order, each once.

    history  the replication ID of the source; `?` before it has been followed
    offset   of the last byte of what `read` has returned
    is_open  the connection stands; otherwise `open` is to be called
    """

    def __init__(self, place: Place) -> None:
        self.offset = 0
        self.is_open = False
        self.history = "?"
        self._place = place
        self._connection: Connection | None = None
        self._reader = ReplyReader()
        self._snapshot: _Snapshot | None = None
        self._acknowledged_at = 0.0

    def open(self) -> bool:
        """Connect. False: what was missed is no longer available, and the stream starts over. Raises UnreachableError, ServerError."""
        self.close()
        connection = self._connection = dial(self._place, timeout_s=TIMEOUT_S)
        connection.command("REPLCONF", "capa", "eof", "capa", "psync2")
        with suppress(ServerError):
            connection.command("REPLCONF", "rdb-filter-only", "")
        connection.socket_send(pack_command(("PSYNC", self.history, self.offset + 1 if self.history != "?" else -1)))
        words = self._read_line(connection).decode("utf-8", "replace").split()
        self._reader = ReplyReader()
        self.is_open = True
        if words[:1] == ["+CONTINUE"]:
            self.history = words[1] if len(words) > 1 else self.history
            return True
        if words[:1] != ["+FULLRESYNC"]:
            self.close()
            raise ServerError(" ".join(words).removeprefix("-"))
        self.history, self.offset = words[1], int(words[2])
        self._snapshot = _Snapshot()
        return False

    def _read_line(self, connection: Connection) -> bytes:
        """The next line that is not empty: a source that is busy sends empty ones. No byte is read that follows it."""
        line, byte = bytearray(), bytearray(1)
        while True:
            connection.receive(byte)
            if byte != b"\n":
                line += byte
            elif stripped := line.strip():
                return bytes(stripped)

    def read(self, timeout_s: float) -> list[Command]:
        """The commands that have arrived, after a wait for some. Raises UnreachableError: then it is closed."""
        assert self._connection is not None  # noqa: S101
        if time.monotonic() >= self._acknowledged_at + ACK_EVERY_S:
            self.acknowledge()
        sock = self._connection.socket
        sock.settimeout(max(timeout_s, 0.001))
        try:
            data = sock.recv(RECEIVE_BYTES)
        except TimeoutError:
            return []
        except OSError as error:
            data, reason = b"", str(error)
        else:
            reason = "it was closed by the server"
        if not data:
            self.close()
            raise UnreachableError(f"the connection broke: {reason}")
        if self._snapshot is not None:
            rest = self._snapshot.feed(data)
            if rest is None:
                return []
            self._snapshot, data = None, rest
            self.acknowledge()
        return self._commands_of(data)

    def _commands_of(self, data: bytes) -> list[Command]:
        self._reader.feed(data)
        found = []
        while (words := self._reader.next()) is not UNREAD:
            self.offset += len(pack_command(words))
            found.append((self.offset, words))
        return found

    def acknowledge(self) -> None:
        """Report to the source how far it has been read; a source drops replicas that do not. Raises UnreachableError."""
        assert self._connection is not None  # noqa: S101
        self._connection.socket.settimeout(TIMEOUT_S)
        self._acknowledged_at = time.monotonic()
        try:
            # During a snapshot, replicas send empty lines.
            self._connection.socket_send(
                pack_command(("REPLCONF", "ACK", self.offset)) if self._snapshot is None else b"\n"
            )
        except UnreachableError:
            self.close()
            raise

    def close(self) -> None:
        self.is_open = False
        self._snapshot = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class _Snapshot:
    """Drops a snapshot, whose length comes first, or a mark that will end it."""

    def __init__(self) -> None:
        self._head = b""
        self._left: int | None = None
        self._mark = b""

    def feed(self, data: bytes) -> bytes | None:
        """What follows the snapshot; None: it is not complete yet."""
        if self._left is None and not self._mark:
            self._head = (self._head + data).lstrip(b"\n")
            line, end, data = self._head.partition(b"\r\n")
            if not end:
                return None
            self._head = b""
            if line.startswith(b"$EOF:"):
                self._mark = line[5:]
            else:
                self._left = int(line[1:])
        if self._left is None:
            # Nothing follows the mark before the source has been sent an acknowledgement.
            self._head = (self._head + data)[-MARK_BYTES:]
            return b"" if self._head == self._mark else None
        self._left, rest = max(self._left - len(data), 0), data[self._left :]
        return rest if self._left == 0 else None
