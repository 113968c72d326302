"""A replica that a test plays over a raw socket: it says what it likes and sees every byte that the primary says.

replica = RawReplica(node)
replica.attach()                    # handshake, full sync, first ACK
node.line("SET k v")
replica.read_commands()             # [(b"SELECT", b"0"), (b"SET", b"k", b"v")]
"""

from __future__ import annotations

import itertools
import re
import socket
import time
from typing import Self

from ..wire import Argument, ConnectionClosed, encode_request, is_readable, receive
from .nodes import DEADLINE_S, Node, wait_until

__all__ = ["PING", "FullSync", "RawReplica", "parse_stream"]

Command = tuple[bytes, ...]

_ports = itertools.count(1)

PING = (b"ping",)
GETACK = (b"REPLCONF", b"GETACK", b"*")
FULLRESYNC = re.compile(rb"\+FULLRESYNC ([0-9a-f]{40}) (\d+)")


class FullSync:
    """What a full sync consisted of.

    replid, offset   of +FULLRESYNC; with SYNC None and -1
    payload          the snapshot, whole
    mark             the mark of $EOF:, or None with $<length>
    """

    def __init__(self, replid: bytes | None, offset: int, payload: bytes, mark: bytes | None) -> None:
        self.replid = replid
        self.offset = offset
        self.payload = payload
        self.mark = mark


class RawReplica:
    """A connection of a replica. `offset` counts the bytes of the stream; every wait has a deadline."""

    def __init__(self, node: Node, timeout_s: float = DEADLINE_S) -> None:
        self.node = node
        self.listening_port = next(_ports)
        """Announced to the primary, whose INFO it tells apart by it."""
        self.timeout_s = timeout_s
        self.socket = socket.create_connection(("127.0.0.1", node.port), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = bytearray()
        self.newlines = 0
        """Keepalives seen so far."""
        self.replid = b""
        self.offset = -1
        """Bytes of the stream up to what has been read here."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    # --- Saying

    def send(self, *args: Argument) -> None:
        self.send_bytes(encode_request(args))

    def send_bytes(self, data: bytes) -> None:
        self.socket.settimeout(self.timeout_s)
        self.socket.sendall(data)

    def ask(self, *args: Argument) -> bytes:
        """One request and the line that answers it, with its type byte, without the line end."""
        self.send(*args)
        return self.read_line()

    def ack(self, offset: int | None = None) -> None:
        """REPLCONF ACK, of all that has been read if nothing else is said."""
        self.send("REPLCONF", "ACK", self.offset if offset is None else offset)

    # --- Hearing

    def _receive(self, deadline: float) -> None:
        self.buffer += receive(self.socket, deadline, self.buffer)

    def read_line(self, timeout_s: float | None = None) -> bytes:
        """The next line without its end; bare newlines before it are counted and skipped."""
        deadline = time.monotonic() + (self.timeout_s if timeout_s is None else timeout_s)
        while True:
            while self.buffer[:1] == b"\n":
                self.newlines += 1
                del self.buffer[0]
            end = self.buffer.find(b"\r\n")
            if end >= 0:
                line = bytes(self.buffer[:end])
                del self.buffer[: end + 2]
                return line
            self._receive(deadline)

    def read_exactly(self, count: int) -> bytes:
        deadline = time.monotonic() + self.timeout_s
        while len(self.buffer) < count:
            self._receive(deadline)
        data = bytes(self.buffer[:count])
        del self.buffer[:count]
        return data

    def read_to_end(self, timeout_s: float | None = None) -> bytes:
        """All that comes until the primary closes the connection; TimeoutError when it stays open."""
        deadline = time.monotonic() + (self.timeout_s if timeout_s is None else timeout_s)
        try:
            while True:
                self._receive(deadline)
        except ConnectionClosed:
            data = bytes(self.buffer)
            self.buffer.clear()
            return data

    def is_closed(self) -> bool:
        """Whether the primary has closed the connection by now; what has arrived stays to be read."""
        while is_readable(self.socket, 0):
            try:
                data = self.socket.recv(1 << 20)
            except ConnectionResetError:
                return True
            if not data:
                return True
            self.buffer += data
        return False

    # --- The steps of a sync

    def introduce(self, *capabilities: str) -> None:
        """REPLCONF listening-port and capa."""
        assert self.ask("REPLCONF", "listening-port", self.listening_port) == b"+OK"
        for each in capabilities:
            assert self.ask("REPLCONF", "capa", each) == b"+OK"

    def psync(self, replid: bytes | str = "?", offset: int | str = -1) -> bytes:
        """PSYNC and the line that answers it."""
        return self.ask("PSYNC", replid, offset)

    def read_full_sync(self, answer: bytes | None = None) -> FullSync:
        """The rest of a full sync after the `answer` to PSYNC; after SYNC, all of it."""
        if answer is None:
            replid, offset = None, -1
        else:
            match = FULLRESYNC.fullmatch(answer)
            assert match, answer
            replid, offset = match[1], int(match[2])
            self.replid, self.offset = replid, offset
        header = self.read_line()
        if header.startswith(b"$EOF:"):
            mark = header[5:]
            assert len(mark) == 40, header
            return FullSync(replid, offset, self._read_until(mark), mark)
        assert header.startswith(b"$"), header
        return FullSync(replid, offset, self.read_exactly(int(header[1:])), None)

    def _read_until(self, mark: bytes) -> bytes:
        deadline = time.monotonic() + self.timeout_s
        while (end := self.buffer.find(mark)) < 0:
            self._receive(deadline)
        payload = bytes(self.buffer[:end])
        del self.buffer[: end + len(mark)]
        return payload

    def attach(self, *capabilities: str) -> FullSync:
        """A whole full sync, until the primary calls this replica online; by default its capabilities are eof and psync2."""
        self.introduce(*(capabilities or ("eof", "psync2")))
        done = self.read_full_sync(self.psync())
        self.come_online()
        return done

    def come_online(self) -> None:
        """ACK until the primary takes it: it does not while the child that made the snapshot is there."""

        def is_online() -> bool:
            self.ack()
            return self.state == "online"

        wait_until(is_online, "an online replica")
        self.ack()  # the one before may have been too early

    @property
    def state(self) -> str | None:
        """What the primary's INFO says of this replica; None when it is not there."""
        return self.fields.get("state")

    @property
    def fields(self) -> dict[str, str]:
        """The primary's line about this replica in INFO; empty when there is none."""
        for name, value in self.node.info().items():
            if name.startswith("slave") and f",port={self.listening_port}," in value:
                return dict(each.split("=", 1) for each in value.split(","))
        return {}

    def resume(self, replid: bytes, offset: int) -> None:
        """A partial resync after `offset` bytes, which must be granted."""
        self.introduce("eof", "psync2")
        answer = self.psync(replid, offset + 1)
        assert answer.startswith(b"+CONTINUE"), answer
        self.replid = answer[10:] or replid
        self.offset = offset

    # --- The stream

    def read_stream(self, to_offset: int) -> bytes:
        """The bytes of the stream up to this offset, which is then `offset`."""
        data = self.read_exactly(to_offset - self.offset)
        self.offset = to_offset
        return data

    def read_commands(self, *, pings: bool = False) -> list[Command]:
        """The commands of the stream up to the primary's offset; without pings and GETACKs."""
        commands = parse_stream(self.read_stream(self.node.offset))
        return commands if pings else [each for each in commands if each not in (PING, GETACK)]


def parse_stream(data: bytes) -> list[Command]:
    """The commands of a stream, which must be whole, and written in the one canonical way."""
    commands: list[Command] = []
    at = 0
    while at < len(data):
        command, end = _parse_command(data, at)
        assert encode_request(command) == data[at:end], data[at:end]
        commands.append(command)
        at = end
    return commands


def _parse_command(data: bytes, at: int) -> tuple[Command, int]:
    count, at = _parse_header(data, at, b"*")
    words = []
    for _ in range(count):
        length, at = _parse_header(data, at, b"$")
        words.append(data[at : at + length])
        assert data[at + length : at + length + 2] == b"\r\n", data[at : at + length + 40]
        at += length + 2
    return tuple(words), at


def _parse_header(data: bytes, at: int, kind: bytes) -> tuple[int, int]:
    end = data.index(b"\r\n", at)
    assert data[at : at + 1] == kind, data[at : at + 80]
    return int(data[at + 1 : end]), end + 2
