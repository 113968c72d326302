"""An open connection to a server: requests and replies.

A Connection blocks, and speaks RESP2 unless another protocol is asked for. It has two interfaces, not to be mixed while replies are outstanding: `command`,
`pipeline`, `read` and `replies` decode replies to Python values; `socket_send` and `receive` move raw bytes for the compiled
coders.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from streamd.client.client_errors import ServerError, UnreachableError
from streamd.client.features import Features
from streamd.client.place import Place, open_socket
from streamd.client.reply_reader import ReplyReader
from streamd.client.reply_types import UNREAD, Push
from streamd.errors import ProtocolError
from streamd.protocol.request_bytes import encode_request

if TYPE_CHECKING:  # the prompt and health checks start at once, without options
    from streamd.client.url_options import ConnectionOptions

__all__ = ["Argument", "Connection", "Reply", "Request", "dial", "log_in", "pack_command", "reason_of"]

Argument = bytes | str | int
Request = Sequence[Argument]
Reply = Any
"""See reply_reader.pyx; ServerError from `read`, and in the lists of `pipeline` and `replies` with `raise_errors=False`."""


RECEIVE_BYTES = 256 * 1024
"""Bytes to receive from the socket at a time."""


def pack_command(args: Request) -> bytes:
    """A request as bytes."""
    return encode_request(*args)


class Connection:
    """An open connection. Made by `dial` or `connect`; closed at the end of its `with` block, or by `close`.

    place    the server, for messages
    options  those that it was opened with, by `connect`
    is_only  it was inherited, and another one cannot be opened
    """

    options: ConnectionOptions
    is_only = False

    def __init__(self, place: str, sock: socket.socket) -> None:
        self.place = place
        self.socket = sock
        self._reader = ReplyReader()
        self.features: Features | None = None  # once `server_features` has asked

    def command(self, *args: Argument) -> Reply:
        """Send one request, return its reply. Raises ServerError, UnreachableError when the connection breaks."""
        self.socket_send(pack_command(args))
        reply = self.read()
        while type(reply) is Push:
            reply = self.read()
        return self._raised(reply)

    def pipeline(self, requests: Sequence[Request], *, raise_errors: bool = True) -> list[Reply]:
        """Send requests at once, return their replies in order.

        raise_errors  raise the first error reply (after all have been read); otherwise errors are elements of the list
        """
        if not requests:
            return []
        self.send_all(requests)
        return self.replies(len(requests), raise_errors=raise_errors)

    def send_all(self, requests: Sequence[Request]) -> None:
        """Send requests, whose replies `read` or `replies` will return. Raises UnreachableError."""
        self.socket_send(b"".join(map(pack_command, requests)))

    def replies(self, count: int, *, raise_errors: bool = True) -> list[Reply]:
        """The next replies, to requests that were sent; errors as in `pipeline`."""
        found = [self.read() for _ in range(count)]
        if raise_errors:
            for each in found:
                self._raised(each)
        return found

    def read(self) -> Reply:
        """The next reply, or message; an error reply is returned, not raised. Raises UnreachableError."""
        try:
            while (reply := self._reader.next()) is UNREAD:
                self._reader.feed(self._receive())
        except ProtocolError as error:
            self.close()
            raise UnreachableError(f"{self.place} does not speak the protocol of Redis: it sent {error}") from None
        return reply

    def expect(self, expected: bytes) -> bool:
        """Receive replies to requests that were sent with `socket_send`, and drop these bytes, if they begin with them.

        Otherwise `replies` has all of them. No reply may be outstanding that was sent before.
        """
        held = b""
        while len(held) < len(expected) and expected.startswith(held):
            held += self._receive()
        is_expected = held.startswith(expected)
        self._reader.feed(held[len(expected) :] if is_expected else held)
        return is_expected

    def transaction(self, requests: Sequence[Request]) -> list[Reply] | None:
        """MULTI, the requests and EXEC at once: the replies, or None when a watched key was touched.

        Raises ServerError for a request that is refused (nothing was done), or that failed (the others were done).
        """
        *queued, done = self.pipeline([("MULTI",), *requests, ("EXEC",)], raise_errors=False)
        for each in queued:
            self._raised(each)
        self._raised(done)
        for each in done or ():
            self._raised(each)
        return cast("list[Reply] | None", done)

    def socket_send(self, data: bytes | bytearray | memoryview) -> None:
        """Send raw bytes. Raises UnreachableError."""
        try:
            self.socket.sendall(data)
        except OSError as error:
            raise self._lost(error) from None

    def receive(self, buffer: bytearray | memoryview) -> int:
        """Receive raw bytes into a buffer, at least one; return how many. Raises UnreachableError."""
        try:
            count = self.socket.recv_into(buffer)
        except OSError as error:
            raise self._lost(error) from None
        if count == 0:
            raise self._lost(None)
        return count

    def at(self, key: bytes) -> Connection:
        """The connection over which a key is reached: this one."""
        return self

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Connection to {self.place}>"

    def _receive(self) -> bytes:
        try:
            data = self.socket.recv(RECEIVE_BYTES)
        except OSError as error:
            raise self._lost(error) from None
        if not data:
            raise self._lost(None)
        return data

    def _raised(self, reply: Reply) -> Reply:
        if isinstance(reply, ServerError):
            raise reply
        return reply

    def _lost(self, error: OSError | None) -> UnreachableError:
        """What to raise when the connection broke; it is closed, since replies may be outstanding."""
        if isinstance(error, TimeoutError):
            reason = f"No reply from {self.place} within {round(1000 * (self.socket.gettimeout() or 0))} ms"
        else:
            why = "it was closed by the server" if error is None else reason_of(error)
            reason = f"The connection to {self.place} broke: {why}"
        self.close()
        return UnreachableError(reason)


def reason_of(error: OSError) -> str:
    return "timed out" if isinstance(error, TimeoutError) else error.strerror or str(error)


def dial(place: Place, *, protocol: int = 2, timeout_s: float | None = 10.0) -> Connection:
    """Open a connection: socket, TLS, AUTH, SELECT. Raises UnreachableError, ServerError when the login is refused.

    protocol   2 or 3
    timeout_s  how long to wait for the connection, and then for each reply; None: forever
    """
    try:
        connection = Connection(str(place), open_socket(place, timeout_s))
    except OSError as error:
        raise UnreachableError(f"Could not connect to {place}: {reason_of(error)}") from None
    try:
        log_in(connection, place.username, place.password, protocol)
        if place.db:
            connection.command("SELECT", place.db)
    except BaseException:
        connection.close()
        raise
    return connection


def log_in(connection: Connection, username: str | None, password: str | None, protocol: int = 2) -> None:
    login = [] if password is None else ["AUTH", username or "default", password]
    if protocol == 3:
        connection.command("HELLO", 3, *login)
    elif login:
        connection.command("AUTH", *(login[1:] if username else login[2:]))
