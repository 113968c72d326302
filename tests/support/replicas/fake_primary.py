"""A primary that a test plays: it answers the handshake, sends what it is told to, and keeps what the replica says.

with FakePrimary() as primary:
    node.must("REPLICAOF", "127.0.0.1", primary.port)
    link = primary.accept()
    link.shake_hands()                      # answers up to PSYNC; link.psync is what was asked for
    link.send_snapshot(payload, offset=100)
    link.send_stream(("SET", "k", "v"))
"""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Self

from ..wire import Argument, encode_request
from .nodes import DEADLINE_S

__all__ = ["FakeLink", "FakePrimary"]

REPLID = "f" * 40


class FakeLink:
    """One connection of a replica. `psync` is the last PSYNC that it has sent, in words."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        connection.settimeout(DEADLINE_S)
        self.received = b""
        self.psync: list[str] = []

    def read_request(self) -> list[str]:
        """The next request of the replica, as words; [] for a bare newline. Raises EOFError."""
        while (request := self._take()) is None:
            data = self.connection.recv(65536)
            if not data:
                raise EOFError
            self.received += data
        return request

    def _take(self) -> list[str] | None:
        line, end, rest = self.received.partition(b"\n")
        if not end:
            return None
        if not line.startswith(b"*"):
            self.received = rest
            return line.decode().split()
        words = []
        for _ in range(int(line[1:])):
            head, end, rest = rest.partition(b"\r\n")
            size = int(head[1:] or 0) if end else 0
            if not end or len(rest) < size + 2:
                return None
            words.append(rest[:size].decode())
            rest = rest[size + 2 :]
        self.received = rest
        return words

    def shake_hands(self) -> list[list[str]]:
        """Answer everything up to PSYNC, which is left to the caller; returns the requests."""
        requests = []
        while True:
            request = self.read_request()
            requests.append(request)
            if request[:1] == ["PSYNC"]:
                self.psync = request
                return requests
            self.send(b"+PONG\r\n" if request == ["PING"] else b"+OK\r\n")

    def send(self, data: bytes) -> None:
        self.connection.sendall(data)

    def send_snapshot(self, payload: bytes, *, offset: int = 0, replid: str = REPLID, mark: bytes = b"") -> None:
        """+FULLRESYNC and a snapshot, of known length or up to a mark."""
        self.send(b"+FULLRESYNC %s %d\r\n" % (replid.encode(), offset))
        head, tail = (b"$EOF:%s\r\n" % mark, mark) if mark else (b"$%d\r\n" % len(payload), b"")
        self.send(head + payload + tail)

    def send_stream(self, *requests: tuple[Argument, ...]) -> int:
        """Commands of the stream; returns how many bytes they are."""
        data = b"".join(map(encode_request, requests))
        self.send(data)
        return len(data)

    def read_acks(self) -> int:
        """The offset of the next REPLCONF ACK."""
        while True:
            request = self.read_request()
            if request[:2] == ["REPLCONF", "ACK"]:
                return int(request[2])

    def wait_for_ack(self, offset: int) -> None:
        """Skip the acknowledgements before that of `offset`."""
        while True:
            if self.read_acks() == offset:
                return

    def wait_for_end(self) -> None:
        """Read until the replica has closed the connection."""
        with suppress(EOFError, ConnectionError):
            while True:
                self.read_request()

    def close(self) -> None:
        self.connection.close()


class FakePrimary:
    """Listens on a port of its own; the links that were accepted close with it."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(DEADLINE_S)
        self.port = int(self.listener.getsockname()[1])
        self.links: list[FakeLink] = []

    def accept(self) -> FakeLink:
        """The next connection."""
        connection, _ = self.listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = FakeLink(connection)
        self.links.append(link)
        return link

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        for link in self.links:
            link.close()
        self.listener.close()
