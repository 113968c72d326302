"""A small blocking client: one connection, one request at a time, replies as Python values.

    with Caller(Place.from_url("redis://:secret@localhost:6379/2")) as caller:
        caller.call("XADD", "readings", "*", "sensor", "a")

For the prompt, for health checks and for programs that embed a server: it needs only the standard library. To read many
replies fast, use redis-py with hiredis.

Replies become: bytes for strings, `Status` for simple ones, int, float, bool, None, list, dict for maps, `SetReply`,
`Push`, `Verbatim`. An error reply is raised as `ReplyError`; inside another reply it is a `ReplyError` element.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

from streamd.errors import StreamdError
from streamd.protocol.request_bytes import encode_request

if TYPE_CHECKING:
    import ssl

__all__ = [
    "BadUrlError",
    "Caller",
    "NoConnectionError",
    "Place",
    "Push",
    "ReplyError",
    "SetReply",
    "Status",
    "Verbatim",
]

Reply = Any
RECEIVE_BYTES = 64 * 1024
DEFAULT_PORT = 6379


class BadUrlError(StreamdError):
    """A URL that does not name a server; str() says what is wrong with it."""


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


@dataclass(frozen=True)
class Place:
    """Where a server is, and how to log in there.

    unix_path   path of a unix socket, which is then used instead of host and port
    ca_file     certificates to verify the server's with, instead of the system's
    cert_file, key_file  the client's own
    """

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    unix_path: str | None = None
    username: str | None = None
    password: str | None = None
    db: int = 0
    is_tls: bool = False
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    is_verified: bool = True
    checks_host: bool = True

    def __str__(self) -> str:
        return self.unix_path or (f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}")

    @classmethod
    def from_url(cls, url: str) -> Place:
        """`redis://[[user]:password@]host[:port][/db]`, `rediss://` for TLS, `unix://[[user]:password@]path[?db=n]`.

        Of redis-py's options after `?`, those about certificates are supported. Raises BadUrlError.
        """
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise BadUrlError(f"{url}: {error}") from None
        if parts.scheme not in ("redis", "rediss", "unix"):
            raise BadUrlError(f"{url}: a URL begins with redis://, rediss:// (TLS) or unix:// (a socket's path)")
        options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        place = cls(
            username=unquote(parts.username) if parts.username else options.get("username"),
            password=unquote(parts.password) if parts.password else options.get("password"),
            is_tls=parts.scheme == "rediss",
            ca_file=options.get("ssl_ca_certs"),
            cert_file=options.get("ssl_certfile"),
            key_file=options.get("ssl_keyfile"),
            is_verified=options.get("ssl_cert_reqs", "required") != "none",
            checks_host=options.get("ssl_check_hostname", "true").lower() not in ("false", "no", "0"),
        )
        name = options.get("db", "")
        if parts.scheme == "unix":
            place = replace(place, unix_path=unquote(parts.path))
        else:
            place = replace(place, host=parts.hostname or place.host, port=port or place.port)
            name = parts.path.strip("/") or name
        if name and not name.isdecimal():
            raise BadUrlError(f"{url}: the database is a number, not {name!r}")
        return replace(place, db=int(name or 0))


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
            self.socket = connect(place, timeout_s)
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


def connect(place: Place, timeout_s: float | None) -> socket.socket:
    """A connected socket; raises OSError."""
    if place.unix_path is not None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(timeout_s)
            sock.connect(place.unix_path)
        except BaseException:
            sock.close()
            raise
        return sock
    sock = socket.create_connection((place.host, place.port), timeout_s)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return make_tls_context(place).wrap_socket(sock, server_hostname=place.host) if place.is_tls else sock
    except BaseException:
        sock.close()
        raise


def make_tls_context(place: Place) -> ssl.SSLContext:
    import ssl

    for name in (place.ca_file, place.cert_file, place.key_file):
        if name is not None:
            os.stat(name)  # for an error that names the file
    context = ssl.create_default_context(cafile=place.ca_file)
    if not (place.is_verified and place.checks_host):
        context.check_hostname = False
    if not place.is_verified:
        context.verify_mode = ssl.CERT_NONE
    if place.cert_file is not None:
        context.load_cert_chain(place.cert_file, place.key_file)
    return context
