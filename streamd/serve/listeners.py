"""Listeners: the ports and the Unix socket on which a server accepts connections, according to the settings."""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from streamd.core.capability import Capability
from streamd.core.client import Client
from streamd.core.host import Host
from streamd.core.info import Field, Lines
from streamd.errors import ConfigError
from streamd.process.listening import Accepting, ListenError, PortListener, bind_unix
from streamd.replication.following import Following
from streamd.serve.tls import TlsError, find_common_name, make_client_context, make_context
from streamd.sockets.loop import ServerLoop
from streamd.sockets.plain import SocketListener
from streamd.sockets.poller import Poller
from streamd.sockets.threads import IoThreads
from streamd.users.acl import Acl

__all__ = ["Listeners"]

log = logging.getLogger("streamd")


def listener_lines(port: int, tls_port: int, bind: Sequence[str], unixsocket: str) -> list[str]:
    """What INFO shows of these settings."""
    lines = []
    addresses = "".join([f"bind={address}," for address in bind])
    if port:
        lines.append(f"listener0:name=tcp,{addresses}port={port}")
    if unixsocket:
        lines.append(f"listener1:name=unix,bind={unixsocket}")
    if tls_port:
        lines.append(f"listener2:name=tls,{addresses}port={tls_port}")
    return lines


def make_poller(host: Host) -> Poller | None:
    """What watches plain connections; None: the event loop does it, because settings, system or loop leave no choice."""
    poller = None
    if host.config.socket_poller:
        poller = open_poller(host)
    if host.config.io_threads > 1:
        host.dispatcher.io_threads = make_threads(poller, host.config.io_threads - 1)
    return poller


def open_poller(host: Host) -> Poller | None:
    try:
        return Poller(host.loop, host.dispatcher, host.loop.events if isinstance(host.loop, ServerLoop) else None)
    except NotImplementedError as error:
        log.info("Connections use the transports of the event loop: %s.", error)
        return None


def make_threads(poller: Poller | None, count: int) -> IoThreads | None:
    """Threads for the connections of the poller; None: all stay on the loop's."""
    try:
        if poller is None:
            raise NotImplementedError("the event loop watches them")
        return IoThreads(poller, count)
    except (NotImplementedError, OSError) as error:
        log.warning("io-threads has no effect, connections stay on the thread of the commands: %s.", error)
        return None


class Listeners(Capability):
    """What a server listens on.

    any_port  listen on a free port instead of the configured one; after `open` that port counts as the configured one
    """

    info = {
        "server": (
            Field("tcp_port", lambda self: self._config.port or self._config.tls_port),
            Lines("listeners", lambda self: self.lines()),
        ),
    }

    def __init__(self, host: Host) -> None:
        self._host = host
        self._config = host.config
        make_client = partial(Client, host.dispatcher)
        self._poller = poller = make_poller(host)
        self._tcp = PortListener(
            host.loop,
            host.config,
            "port",
            make_client,
            accept=None if poller is None else lambda sock: SocketListener(poller, sock, make_client),
        )
        self._tls = PortListener(host.loop, host.config, "tls-port", make_client)
        self._unix: Accepting | None = None
        self._shown: tuple[int, int, Sequence[str], str] = (0, 0, (), "")
        self._lines: tuple[str, ...] = ()
        host.get(Following).make_tls = partial(make_client_context, host.config)
        host.config.callbacks |= {
            "listen": self._follow_port,
            "listen-tls": self._follow_tls_port,
            "tls": self._follow_certificates,
        }

    def lines(self) -> tuple[str, ...]:
        """The line of each listener in INFO."""
        config = self._config
        shown = (config.port, config.tls_port, config.bind, config.unixsocket)
        if shown != self._shown:
            self._shown, self._lines = shown, tuple(listener_lines(*shown))
        return self._lines

    @property
    def port(self) -> int:
        """The TCP port that the server listens on; 0 if there is none."""
        return self._tcp.port

    @property
    def tls_port(self) -> int:
        """The TLS port; 0 if there is none."""
        return self._tls.port

    async def open(self, *, any_port: bool) -> None:
        """Listen; raises ListenError when an address is not available, TlsError when a certificate is invalid."""
        config = self._config
        self._tcp.any_port = any_port
        if config.tls_port:
            try:
                self._tls.context = make_context(config)
            except TlsError as error:
                log.warning("%s", error)
                raise TlsError("Failed to configure TLS. Check logs for more info.") from error
        await self._tcp.start()
        await self._tls.start()
        if config.unixsocket:
            await self._open_unix(config.unixsocket, config.unixsocketperm)
        if any_port:
            # From now on it counts as the configured port: CONFIG GET shows it, and CONFIG SET bind keeps it.
            config.port = self.port
            self._tcp.any_port = False

    async def _open_unix(self, path: str, permissions: int) -> None:
        with suppress(FileNotFoundError):
            os.unlink(path)
        try:
            sock = bind_unix(path, self._config.tcp_backlog)
            make_client = partial(Client, self._host.dispatcher, is_unix=True)
            if self._poller is not None:
                self._unix = SocketListener(self._poller, sock, make_client)
            else:
                self._unix = await self._host.loop.create_unix_server(make_client, sock=sock)
            if permissions:
                os.chmod(path, permissions)
        except OSError as error:
            log.warning("Failed opening Unix socket: bind: %s", error.strerror)
            raise ListenError(f"cannot listen on {path}", "the Unix socket") from error

    def close(self) -> None:
        self._tcp.close()
        self._tls.close()
        if self._unix is not None:
            self._unix.close()
            log.info("Removing the unix socket file.")
            with suppress(OSError):
                os.unlink(self._config.unixsocket)
        if self._poller is not None:
            self._poller.close()

    def finish(self) -> None:
        """Called last of all: what has been written to connections leaves."""
        if self._host.dispatcher.io_threads is not None:
            self._host.dispatcher.io_threads.finish()

    def client_connected(self, client: Client, sock: Any) -> None:
        """With tls-auth-clients-user, a client is authenticated as the user named in its certificate."""
        if self._config.tls_auth_clients_user == "CN":
            name = find_common_name(client.transport)
            if name is not None:
                self._host.get(Acl).authenticate_by_certificate(client, name)

    # --- Reactions to settings; each raises ConfigError --------------------------------------------------------------

    def _follow_port(self) -> None:
        self._tcp.follow_settings()
        self._tls.follow_settings()

    def _follow_tls_port(self) -> None:
        if self._config.tls_port:
            self._tls.context = self._make_tls_context("tls-port")
        self._tls.follow_settings()

    def _follow_certificates(self) -> None:
        """A certificate or another TLS setting has changed. Without TLS it is checked later."""
        if self._config.tls_port:
            self._tls.change_context(self._make_tls_context("tls-cert-file"))

    def _make_tls_context(self, setting: str) -> ssl.SSLContext:
        try:
            return make_context(self._config)
        except TlsError as error:
            log.warning("%s", error)
            raise ConfigError(setting, "Unable to update TLS configuration. Check server logs.") from error
