"""A small blocking client: one connection, one request at a time, replies as Python values.

    with Caller(Place.from_url("redis://:secret@localhost:6379/2")) as caller:
        caller.call("XADD", "readings", "*", "sensor", "a")

For programs that must start at once, and in an installation without extras: the prompt, health checks, embedded servers, doctor,
top, import. It needs only the standard library; connection.py, which reads replies in bulk, needs hiredis.

Replies become: bytes for strings, `Status` for simple ones, int, float, bool, None, list, dict for maps, `SetReply`,
`Push`, `Verbatim`. An error reply is raised as `ReplyError`; inside another reply it is a `ReplyError` element.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any

from streamd.client.place import Place, open_socket
from streamd.errors import StreamdError
from streamd.protocol.request_bytes import encode_request

__all__ = [
    "Caller",
    "NoConnectionError",
    "Push",
    "ReplyError",
    "SetReply",
    "Status",
    "Verbatim",
]

Reply = Any
RECEIVE_BYTES = 64 * 1024


class NoConnectionError(StreamdError):
    """The server does not answer, or the connection broke; str() is the line to print."""


class ReplyError(StreamdError):
    """An error reply; str() is its text."""


class Status(str):
    """A simple string, such as OK."""

    __slots__ = ()


class Verbatim(bytes):
    """Text that is meant to be shown as it is."""


class SetReply(list[Any]):
    """A set; a list, since elements need not be hashable."""

    __slots__ = ()


class Push(list[Any]):
    """A message that is not a reply to a request."""

    __slots__ = ()


class Caller:
    """A connection, logged in. Raises NoConnectionError if there is no answer, ReplyError if the password is refused.

    protocol  2 or 3
    timeout_s how long to wait for a reply; None: forever
    """

    def __init__(self, place: Place, *, protocol: int = 2, timeout_s: float | None = 10.0) -> None:
        self.place = place
        self.protocol = protocol
        self._input = bytearray()
        self._at = 0
        try:
            self.socket = open_socket(place, timeout_s)
        except OSError as error:
            raise NoConnectionError(f"Could not connect to {place}: {reason_of(error)}") from None
        try:
            self._greet()
        except BaseException:
            self.close()
            raise

    def _greet(self) -> None:
        login: list[str] = []
        if self.place.password is not None:
            login = ["AUTH", self.place.username or "default", self.place.password]
        if self.protocol == 3:
            self.call("HELLO", "3", *login)
        elif login:
            self.call("AUTH", *(login[1:] if self.place.username else login[2:]))
        if self.place.db:
            self.call("SELECT", str(self.place.db))

    def call(self, *words: str | bytes | int) -> Reply:
        """Send a request and return its reply; raises ReplyError for an error reply, NoConnectionError."""
        self.send(*words)
        reply = self.read()
        while isinstance(reply, Push):
            reply = self.read()
        if isinstance(reply, ReplyError):
            raise reply
        return reply

    def send(self, *words: str | bytes | int) -> None:
        """Send a request whose reply `read` will return."""
        self.send_all([words])

    def send_all(self, requests: Sequence[Sequence[str | bytes | int]]) -> None:
        """Send requests in one go; `read` will return their replies, in order."""
        try:
            self.socket.sendall(b"".join(encode_request(*words) for words in requests))
        except OSError as error:
            raise NoConnectionError(f"The connection to {self.place} broke: {reason_of(error)}") from None

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Caller:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- Replies ---------------------------------------------------------------------------------------------------

    def read(self) -> Reply:
        """The next reply; an error reply is returned, not raised."""
        line = self._line()
        kind, rest = line[:1], line[1:]
        if kind == b"$":
            return self._bulk(rest)
        if kind == b"+":
            return Status(rest.decode("utf-8", "replace"))
        if kind == b"-":
            return ReplyError(rest.decode("utf-8", "replace"))
        if kind in b":(":
            return int(rest)
        if kind in b"*~>":
            return self._elements(kind, int(rest))
        if kind == b"%":
            return {hashable(self.read()): self.read() for _ in range(int(rest))}
        if kind == b",":
            return float(rest)
        if kind == b"#":
            return rest == b"t"
        if kind == b"_":
            return None
        if kind == b"=":
            text = self._bulk(rest)
            return Verbatim(text[4:])
        if kind == b"!":
            return ReplyError(self._bulk(rest).decode("utf-8", "replace"))
        if kind == b"|":
            for _ in range(2 * int(rest)):
                self.read()
            return self.read()
        raise NoConnectionError(f"{self.place} does not speak the protocol of Redis: it sent {bytes(line[:40])!r}")

    def _elements(self, kind: bytes, count: int) -> Reply:
        if count < 0:
            return None
        found = [self.read() for _ in range(count)]
        return SetReply(found) if kind == b"~" else Push(found) if kind == b">" else found

    def _line(self) -> bytes:
        while (end := self._input.find(b"\r\n", self._at)) < 0:
            self._receive()
        line = bytes(self._input[self._at : end])
        self._at = end + 2
        return line

    def _bulk(self, length: bytes) -> Any:
        count = int(length)
        if count < 0:
            return None
        while len(self._input) < self._at + count + 2:
            self._receive()
        value = bytes(self._input[self._at : self._at + count])
        self._at += count + 2
        return value

    def _receive(self) -> None:
        if self._at:
            del self._input[: self._at]
            self._at = 0
        try:
            data = self.socket.recv(RECEIVE_BYTES)
        except TimeoutError:
            raise NoConnectionError(f"{self.place} does not answer") from None
        except OSError as error:
            raise NoConnectionError(f"The connection to {self.place} broke: {reason_of(error)}") from None
        if not data:
            raise NoConnectionError(f"{self.place} closed the connection")
        self._input += data


def hashable(value: Reply) -> Any:
    """A reply as the key of a map."""
    return tuple(map(hashable, value)) if isinstance(value, list) else value


def reason_of(error: OSError) -> str:
    return "timed out" if isinstance(error, TimeoutError) else error.strerror or str(error)
