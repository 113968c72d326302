"""MigrationTargets: the connections of MIGRATE to other servers. They block on purpose: see migrate.py.

A connection is kept for a few seconds, since a client that moves one key usually moves more. With tls-cluster it uses TLS, as in Redis:
then the ports by which nodes know each other are those with TLS.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress

from streamd.core.capability import Capability
from streamd.core.host import Host
from streamd.core.info import Field
from streamd.errors import StreamdError
from streamd.protocol.request_bytes import encode_request

__all__ = ["MigrationTarget", "MigrationTargets", "TargetIOError"]

log = logging.getLogger("streamd")

KEPT = 64
KEPT_S = 10.0
PIECE = 64 * 1024
ADDRESS = tuple[bytes, bytes]


class TargetIOError(Exception):
    """The other server did not take a request, or did not answer.

    doing       "connecting", "writing" or "reading"
    is_timeout  the time-out was reached
    """

    def __init__(self, doing: str, *, is_timeout: bool = False) -> None:
        super().__init__(doing)
        self.doing = doing
        self.is_timeout = is_timeout


class MigrationTarget:
    """A connection to another server.

    db       the database selected there; -1: none
    used_at  monotonic seconds
    """

    def __init__(self, address: ADDRESS, sock: socket.socket) -> None:
        self.address = address
        self.db = -1
        self.used_at = time.monotonic()
        self._socket = sock
        self._unread = b""

    def send(self, requests: list[list[bytes]], timeout_s: float) -> None:
        """Send requests, with `timeout_s` for each piece, and for each piece of the answers; raises TargetIOError."""
        data = memoryview(b"".join(encode_request(*request) for request in requests))
        if self._socket.gettimeout() != timeout_s:
            self._socket.settimeout(timeout_s)
        try:
            for at in range(0, len(data), PIECE):
                self._socket.sendall(data[at : at + PIECE])
        except OSError as error:
            raise TargetIOError("writing", is_timeout=isinstance(error, TimeoutError)) from None

    def read_line(self) -> bytes:
        """The next line of its answers; raises TargetIOError."""
        while b"\n" not in self._unread:
            try:
                data = self._socket.recv(PIECE)
            except OSError as error:
                raise TargetIOError("reading", is_timeout=isinstance(error, TimeoutError)) from None
            if not data:
                raise TargetIOError("reading")
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return line.removesuffix(b"\r")

    def close(self) -> None:
        self._socket.close()


class MigrationTargets(Capability):
    """The open connections, by host and port. `len()` is their number.

    make_tls  makes the context for tls-cluster; raises StreamdError; set by what knows the certificates
    """

    info = {"stats": (Field("migrate_cached_sockets", lambda self: len(self._kept)),)}

    def __init__(self, host: Host) -> None:
        self._loop = host.loop
        self._config = host.config
        self.make_tls: Callable[[], ssl.SSLContext] = ssl.create_default_context
        self._kept: dict[ADDRESS, MigrationTarget] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._kept)

    def connect(self, host: bytes, port: bytes, timeout_s: float) -> MigrationTarget:
        """A connection, new or reused; raises TargetIOError."""
        target = self._kept.get((host, port))
        if target is not None:
            target.used_at = time.monotonic()
            return target
        if len(self._kept) >= KEPT:
            self.drop(min(self._kept.values(), key=lambda kept: kept.used_at))
        sock = open_socket(host, port, timeout_s)
        if self._config.tls_cluster:
            sock = self._secure(sock)
        target = MigrationTarget((host, port), sock)
        self._kept[host, port] = target
        if self._timer is None:
            self._timer = self._loop.call_later(KEPT_S, self._drop_idle)
        return target

    def _secure(self, sock: socket.socket) -> socket.socket:
        """A connection with TLS over an open one; raises TargetIOError."""
        try:
            return self.make_tls().wrap_socket(sock)
        except (OSError, StreamdError) as error:
            sock.close()
            log.warning("MIGRATE cannot use TLS: %s", error)
            raise TargetIOError("writing", is_timeout=isinstance(error, TimeoutError)) from None

    def drop(self, target: MigrationTarget) -> None:
        """Close a connection: it is broken, or out of step."""
        target.close()
        self._kept.pop(target.address, None)

    def close(self) -> None:
        """Close all connections."""
        for target in list(self._kept.values()):
            self.drop(target)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _drop_idle(self) -> None:
        oldest = time.monotonic() - KEPT_S
        for target in list(self._kept.values()):
            if target.used_at <= oldest:
                self.drop(target)
        self._timer = self._loop.call_later(1, self._drop_idle) if self._kept else None


def open_socket(host: bytes, port: bytes, timeout_s: float) -> socket.socket:
    """Connect; raises TargetIOError, whose text distinguishes an unknown name from an absent server, as in Redis."""
    digits = re.match(rb"\s*(\d+)", port)
    number = int(digits[1]) if digits is not None else 0
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise TargetIOError("connecting") from None
    error: OSError | None = None
    for family, _, _, _, address in found:
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.settimeout(timeout_s)
            sock.connect((address[0], number, *address[2:]))
        except (OSError, OverflowError) as failed:
            sock.close()
            error = failed if isinstance(failed, OSError) else error
        else:
            with suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock
    raise TargetIOError("writing", is_timeout=isinstance(error, TimeoutError))
