"""A raw RESP client that loses nothing of a reply's type.

A test against a real server compares what was on the wire, so a client that turns `+OK` and `$2 OK`, or `*-1` and
`$-1`, into the same value is of no use. Here a reply is a tree of `Reply(kind, value)` where the kind is the type byte
of the protocol. The reader is strict: it refuses anything that is not written in the one canonical way, so two equal
trees have equal bytes (`encode` reproduces them).

    kind                  value
    + - ! = ( ,           bytes, without the line end (`=` keeps its `txt:` prefix)
    $                     bytes
    :                     int
    #                     bool
    $-1  *-1  _           None: null bulk, null array, RESP3 null
    * ~ > % |             tuple of Reply; a map alternates keys and values
"""

from __future__ import annotations

import re
import select
import socket
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = [
    "ConnectionClosed",
    "Reply",
    "ReplyReader",
    "Wire",
    "encode",
    "encode_request",
    "is_readable",
    "receive",
    "show",
    "split_line",
]

Argument = bytes | str | int

_LENGTH = re.compile(rb"(?:0|[1-9][0-9]*)")
_INTEGER = re.compile(rb"-?(?:0|[1-9][0-9]*)")
_LINE_KINDS = "+-(,"
_BULK_KINDS = "$!="
_NESTED_KINDS = "*~>%|"


class ConnectionClosed(Exception):
    """The server closed the connection while a reply was expected."""


class _NeedMore(Exception):
    """The bytes so far end inside a reply."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply, or one element of one; see the head of the module."""

    kind: str
    value: Any

    def __repr__(self) -> str:
        return show(self)

    @property
    def is_error(self) -> bool:
        return self.kind in "-!"

    def plain(self) -> Any:
        """The value as a client library would return it: bytes, int, None, list, dict for a map."""
        if self.kind in ("%", "|"):
            return {_hashable(k.plain()): v.plain() for k, v in zip(self.value[::2], self.value[1::2], strict=True)}
        if self.kind in _NESTED_KINDS:
            return [element.plain() for element in self.value]
        return self.value


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def encode(reply: Reply) -> bytes:
    """The bytes that a server sends for `reply`."""
    kind, value = reply.kind, reply.value
    if kind in ("$-1", "*-1", "_"):
        return kind.encode() + b"\r\n"
    if kind == ":":
        return b":%d\r\n" % value
    if kind == "#":
        return b"#t\r\n" if value else b"#f\r\n"
    if kind in _BULK_KINDS:
        return b"%s%d\r\n%s\r\n" % (kind.encode(), len(value), value)
    if kind in _NESTED_KINDS:
        count = len(value) // 2 if kind in "%|" else len(value)
        return b"%s%d\r\n%s" % (kind.encode(), count, b"".join(map(encode, value)))
    return b"%s%s\r\n" % (kind.encode(), value)


def show(reply: Reply) -> str:
    """A one-line rendering in which all types are distinguishable."""
    kind, value = reply.kind, reply.value
    if kind in ("$-1", "*-1", "_"):
        return {"$-1": "null-bulk", "*-1": "null-array", "_": "null"}[kind]
    if kind == "$":
        return '"' + _printable(value) + '"'
    if kind == ":":
        return f":{value}"
    if kind == "#":
        return "#t" if value else "#f"
    if kind in "%|":
        pairs = zip(value[::2], value[1::2], strict=True)
        return ("|" if kind == "|" else "") + "{" + ", ".join(f"{show(k)}: {show(v)}" for k, v in pairs) + "}"
    if kind in _NESTED_KINDS:
        return ("" if kind == "*" else kind) + "[" + ", ".join(map(show, value)) + "]"
    return kind + _printable(value)


def _printable(data: bytes) -> str:
    return repr(data)[2:-1]


class ReplyReader:
    """Bytes in, replies out. `next_reply` returns None while the bytes end inside a reply."""

    def __init__(self) -> None:
        self.buffer = bytearray()
        self._at = 0

    def feed(self, data: bytes) -> None:
        self.buffer += data

    def next_reply(self) -> Reply | None:
        self._at = 0
        try:
            reply = self._parse()
        except _NeedMore:
            return None
        del self.buffer[: self._at]
        return reply

    def _line(self) -> bytes:
        end = self.buffer.find(b"\r\n", self._at)
        if end < 0:
            raise _NeedMore
        line = bytes(self.buffer[self._at : end])
        if b"\n" in line or b"\r" in line:
            raise ValueError(f"a line end inside the line {line!r}")
        self._at = end + 2
        return line

    def _parse(self) -> Reply:
        line = self._line()
        kind, rest = line[:1].decode("latin-1"), line[1:]
        if kind and kind in _LINE_KINDS:
            return Reply(kind, rest)
        if kind == ":":
            return Reply(kind, int(_canonical(_INTEGER, rest)))
        if kind == "#" and rest in (b"t", b"f"):
            return Reply(kind, rest == b"t")
        if line == b"_":
            return Reply("_", None)
        if line in (b"$-1", b"*-1"):
            return Reply(line.decode(), None)
        if kind and kind in _BULK_KINDS:
            return Reply(kind, self._bulk(int(_canonical(_LENGTH, rest))))
        if kind and kind in _NESTED_KINDS:
            count = int(_canonical(_LENGTH, rest)) * (2 if kind in "%|" else 1)
            return Reply(kind, tuple(self._parse() for _ in range(count)))
        raise ValueError(f"not the first line of a RESP reply: {line!r}")

    def _bulk(self, length: int) -> bytes:
        if len(self.buffer) < self._at + length + 2:
            raise _NeedMore
        data = bytes(self.buffer[self._at : self._at + length])
        self._at += length + 2
        if self.buffer[self._at - 2 : self._at] != b"\r\n":
            raise ValueError(f"a bulk of {length} bytes is not followed by a line end: {data!r}")
        return data


def _canonical(pattern: re.Pattern[bytes], text: bytes) -> bytes:
    if not pattern.fullmatch(text):
        raise ValueError(f"not a number in RESP's form: {text!r}")
    return text


def encode_request(args: Iterable[Argument]) -> bytes:
    """A request as clients send it: an array of bulk strings."""
    parts = [as_bytes(a) for a in args]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts)


def as_bytes(value: Argument) -> bytes:
    if isinstance(value, bytes):
        return value
    return str(value).encode()


_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "b": b"\b", "a": b"\a"}
_TOKEN = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|(\S+))(?=\s|$)')


def unescape(text: str) -> bytes:
    r"""Text with `\n \r \t \xHH \\ \"` escapes as bytes."""

    def one(match: re.Match[str]) -> str:
        word = match[1]
        if word.startswith("x"):
            return chr(int(word[1:], 16))
        return _ESCAPES.get(word, word.encode("latin-1")).decode("latin-1")

    return re.sub(r"\\(x[0-9a-fA-F]{2}|.)", one, text).encode("latin-1")


def split_line(line: str) -> list[bytes]:
    """A command as typed into redis-cli, split into arguments."""
    args, at, line = [], 0, line.rstrip()
    while at < len(line):
        match = _TOKEN.match(line, at)
        if match is None:
            raise ValueError(f"cannot split {line!r} at {line[at:]!r}")
        args.append(unescape(match[1]) if match[1] is not None else match[2].encode("latin-1"))
        at = match.end()
    return args


def join_line(args: Sequence[bytes]) -> str:
    """Arguments as a line that can be pasted into redis-cli; the inverse of `split_line`."""

    def quote(arg: bytes) -> str:
        if re.fullmatch(rb"[!#-&(-\[\]-~]+", arg):
            return arg.decode()
        text = "".join(chr(c) if 32 <= c < 127 and c not in b'"\\' else f"\\x{c:02x}" for c in arg)
        return f'"{text}"'

    return " ".join(map(quote, args))


def is_readable(connection: socket.socket, timeout_s: float) -> bool:
    """Whether something arrives in time, the end included."""
    poll = select.poll()  # unlike select() it takes any file descriptor
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


def receive(connection: socket.socket, deadline: float, held: bytes | bytearray) -> bytes:
    """What has arrived, at least one byte; TimeoutError when nothing comes before a monotonic time.

    held  what was received before and not used, for messages
    Raises ConnectionClosed when there will be no more.
    """
    left = deadline - time.monotonic()
    if left <= 0 or not is_readable(connection, left):
        raise TimeoutError(f"no reply in time; received so far: {bytes(held[:200])!r}")
    try:
        data = connection.recv(1 << 20)
    except ConnectionResetError:
        data = b""
    if not data:
        raise ConnectionClosed(f"received before the end: {bytes(held[:200])!r}")
    return data


class Wire:
    """One connection to a server. Every wait has a deadline; `ConnectionClosed` when the server closed it."""

    def __init__(self, port: int, host: str = "127.0.0.1", timeout_s: float = 60.0) -> None:
        self.timeout_s = timeout_s
        self.reader = ReplyReader()
        self.socket = socket.create_connection((host, port), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send_bytes(self, data: bytes) -> None:
        self.socket.settimeout(self.timeout_s)
        self.socket.sendall(data)

    def send(self, *args: Argument) -> None:
        self.send_bytes(encode_request(args))

    def read(self, timeout_s: float | None = None) -> Reply:
        """The next reply; TimeoutError when the deadline passes first."""
        deadline = time.monotonic() + (self.timeout_s if timeout_s is None else timeout_s)
        while (reply := self.reader.next_reply()) is None:
            self._receive(deadline)
        return reply

    def _receive(self, deadline: float) -> None:
        self.reader.feed(receive(self.socket, deadline, self.reader.buffer))

    def read_bytes(self, count: int, timeout_s: float | None = None) -> bytes:
        """Exactly `count` raw bytes."""
        deadline = time.monotonic() + (self.timeout_s if timeout_s is None else timeout_s)
        while len(self.reader.buffer) < count:
            self._receive(deadline)
        data = bytes(self.reader.buffer[:count])
        del self.reader.buffer[:count]
        return data

    def read_raw_line(self) -> bytes:
        """Raw bytes up to and including the next line end."""
        deadline = time.monotonic() + self.timeout_s
        while b"\r\n" not in self.reader.buffer:
            self._receive(deadline)
        return self.read_bytes(self.reader.buffer.index(b"\r\n") + 2)

    def read_to_end(self, timeout_s: float | None = None) -> bytes:
        """Everything until the server closes the connection; TimeoutError when it stays open."""
        deadline = time.monotonic() + (self.timeout_s if timeout_s is None else timeout_s)
        try:
            while True:
                self._receive(deadline)
        except ConnectionClosed:
            data = bytes(self.reader.buffer)
            self.reader.buffer.clear()
            return data

    def has_input(self) -> bool:
        """Whether something can be read now: a reply, part of one, or the end."""
        return bool(self.reader.buffer) or is_readable(self.socket, 0)

    def drain(self) -> None:
        """Take what has arrived into the reader's buffer, without waiting."""
        while is_readable(self.socket, 0):
            try:
                data = self.socket.recv(1 << 20)
            except ConnectionResetError:
                return
            if not data:
                return
            self.reader.feed(data)

    def call(self, *args: Argument, timeout_s: float | None = None) -> Reply:
        self.send(*args)
        return self.read(timeout_s)

    def line(self, text: str) -> Reply:
        """A command as typed into redis-cli."""
        return self.call(*split_line(text))

    def pipeline(self, requests: Sequence[Sequence[Argument]]) -> list[Reply]:
        """Send all requests at once, then read as many replies."""
        self.send_bytes(b"".join(map(encode_request, requests)))
        return [self.read() for _ in requests]

    def client_id(self) -> int:
        return int(self.call("CLIENT", "ID").value)
