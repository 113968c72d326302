"""Listening: the sockets of a port on every address of a setting such as `bind`; opens, closes and moves them.

A server has a port for plain connections, one for TLS, one for its metrics and one for its console. A `PortListener` keeps one of them as configured.
Sockets listen as soon as they are bound; the event loop starts to accept a moment later, and until then connections
wait in the kernel.

Invariant: `_open` has exactly the open sockets, by address and port.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from streamd.errors import ConfigError

__all__ = ["Accepting", "ListenError", "PortListener", "bind_unix"]

log = logging.getLogger("streamd")

NO_SUCH_ADDRESS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT, errno.ENOPROTOOPT)
"""Errors that mean an address is missing on this machine, for example without IPv6."""

Where = tuple[str, int]
"""An address as written in the settings, without a leading `-`, and a port."""


class ListenError(OSError):
    """Listening on an address failed; the reason has been logged.

    place  where the server should have listened, for the log: `port 6379 (tcp)`
    """

    def __init__(self, text: str, place: str) -> None:
        super().__init__(text)
        self.place = place


class Accepting(Protocol):
    """What accepts the connections of a listening socket; `close` closes the socket, too."""

    def close(self) -> object: ...


@dataclass(eq=False)
class Opened:
    """A listening socket and what accepts its connections, which is None until the event loop has created it."""

    sock: socket.socket
    server: Accepting | None = None

    def close(self) -> None:
        if self.server is None:
            self.sock.close()
        else:
            self.server.close()


class PortListener:
    """One port.

    setting      name of the setting with the port; 0 closes it
    make_client  creates the event loop's protocol object for a new connection
    context      for TLS: the context that connections are accepted with; `change_context` changes it
    addresses    name of the setting with the addresses
    any_port     listen on a free port instead of the configured one
    accept       starts to accept the connections of a socket without TLS; None: the event loop does it
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        config: Any,
        setting: str,
        make_client: Callable[[], asyncio.BaseProtocol],
        *,
        addresses: str = "bind",
        any_port: bool = False,
        accept: Callable[[socket.socket], Accepting] | None = None,
    ) -> None:
        self._loop = loop
        self._config = config
        self._setting = setting
        self._addresses = addresses
        self._make_client = make_client
        self._accept_plain = accept
        self.any_port = any_port
        self.context: ssl.SSLContext | None = None
        self._open: dict[Where, Opened] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """The port that the server listens on; 0 if there is none."""
        return next((port for _, port in self._open), 0)

    @property
    def _wanted_port(self) -> int:
        return 0 if self.any_port else int(getattr(self._config, self._setting.replace("-", "_")))

    @property
    def _wanted_addresses(self) -> tuple[str, ...]:
        found: tuple[str, ...] = getattr(self._config, self._addresses.replace("-", "_"))
        return found

    @property
    def _place(self) -> str:
        return f"port {self._wanted_port} ({'tls' if self.context is not None else 'tcp'})"

    async def start(self) -> None:
        """Listen if a port is configured; raises ListenError."""
        if not self._wanted_port and not self.any_port:
            return
        for where, sock in self._bind_missing().items():
            self._open[where] = opened = Opened(sock)
            await self._accept(where, opened)

    def close(self) -> None:
        """Stop listening; existing connections stay open."""
        for opened in self._open.values():
            opened.close()
        self._open.clear()

    def follow_settings(self) -> None:
        """CONFIG SET port or bind: close addresses that are no longer configured, open new ones; raises ConfigError.

        Closing comes first, because a single address and the wildcard address cannot be bound together.
        """
        port = self._wanted_port
        wanted = {(address.removeprefix("-"), port) for address in self._wanted_addresses} if port else set()
        is_new_port = port != self.port
        closed = [where for where in self._open if where not in wanted]
        for where in closed:
            self._open.pop(where).close()
        try:
            missing = self._bind_missing() if port else {}
        except ListenError as error:
            self._serve({where: bind_tcp(any_host(where[0]), where[1], self._config.tcp_backlog) for where in closed})
            if is_new_port:
                raise ConfigError(self._setting, "Unable to listen on this port. Check server logs.") from error
            raise ConfigError(self._addresses, "Failed to bind to specified addresses.") from error
        self._serve(missing)

    def change_context(self, context: ssl.SSLContext) -> None:
        """Accept new connections with another context. The sockets stay open: no connection is refused meanwhile."""
        self.context = context
        for where, old in list(self._open.items()):
            sock = old.sock.dup()
            sock.setblocking(False)
            old.close()
            self._serve({where: sock})

    def _bind_missing(self) -> dict[Where, socket.socket]:
        """Bind all configured addresses that are not open yet; if it raises ListenError, nothing is bound.

        An address may be `*` (all IPv4) or `::*` (all IPv6); with a leading `-` it may be missing on this machine.
        """
        bound: dict[Where, socket.socket] = {}
        port = self._wanted_port
        for address in self._wanted_addresses:
            host = address.removeprefix("-")
            if (host, port) in self._open:
                continue
            try:
                sock = bind_tcp(any_host(host), port, self._config.tcp_backlog)
            except OSError as error:
                reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
                log.warning("Warning: Could not create server TCP listening socket %s:%d: bind: %s", host, port, reason)
                if address.startswith("-") and error.errno in NO_SUCH_ADDRESS:
                    continue
                for other in bound.values():
                    other.close()
                raise ListenError(f"cannot listen on {host}:{port}: {reason}", self._place) from error
            port = sock.getsockname()[1]
            bound[host, port] = sock
        if self._wanted_addresses and not bound and not self._open:
            raise ListenError(f"cannot listen on port {port}", self._place)
        return bound

    def _serve(self, bound: dict[Where, socket.socket]) -> None:
        """Schedule accepting connections on these sockets."""
        for where, sock in bound.items():
            self._open[where] = opened = Opened(sock)
            self._tasks.add(task := self._loop.create_task(self._accept(where, opened)))
            task.add_done_callback(self._tasks.discard)

    async def _accept(self, where: Where, opened: Opened) -> None:
        if self._open.get(where) is not opened:
            return
        if self._accept_plain is not None and self.context is None:
            opened.server = self._accept_plain(opened.sock)
            return
        server = await self._loop.create_server(
            self._make_client, sock=opened.sock, backlog=self._config.tcp_backlog, ssl=self.context
        )
        if self._open.get(where) is opened:
            opened.server = server
        else:
            server.close()


def any_host(address: str) -> str:
    """The host to bind to for an address of the setting `bind`."""
    return {"*": "0.0.0.0", "::*": "::"}.get(address, address)  # noqa: S104


def bind_tcp(host: str, port: int, backlog: int) -> socket.socket:
    """A socket that listens on one address; port 0 means any free port. Raises OSError."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    sock = socket.socket(family, kind, protocol)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    return listening(sock, address, backlog)


def bind_unix(path: str, backlog: int) -> socket.socket:
    """A socket that listens on a path, which does not exist. Raises OSError."""
    return listening(socket.socket(socket.AF_UNIX), path, backlog)


def listening(sock: socket.socket, address: Any, backlog: int) -> socket.socket:
    """The socket, which listens and does not block; it is closed if this raises OSError."""
    try:
        sock.bind(address)
        sock.listen(backlog)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock
