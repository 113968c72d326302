"""Connections: which are accepted, what they may take, and when idle ones are closed.

A new connection is turned away when there are too many (`maxclients`), and, in protected mode, when it comes from another
machine while the default user has no password.
"""

from __future__ import annotations

import logging
import socket
import time
from contextlib import suppress
from typing import Any

from streamd.core.capability import Capability
from streamd.core.client import Client
from streamd.core.host import Host
from streamd.core.info import Field
from streamd.core.log import VERBOSE
from streamd.users.acl import Acl

__all__ = ["Connections"]

log = logging.getLogger("streamd")

MAX_CLIENTS_ERROR = b"-ERR max number of clients reached\r\n"
PROTECTED_ERROR = (
    b"-DENIED Redis is running in protected mode because protected mode is enabled and no password is set for the"
    b" default user. In this mode connections are only accepted from the loopback interface. If you want to connect from"
    b" external computers to Redis you may adopt one of the following solutions: 1) Just disable protected mode sending"
    b" the command 'CONFIG SET protected-mode no' from the loopback interface by connecting to Redis from the same host"
    b" the server is running, however MAKE SURE Redis is not publicly accessible from internet if you do so. Use CONFIG"
    b" REWRITE to make this change permanent. 2) Alternatively you can just disable the protected mode by editing the"
    b" Redis configuration file, and setting the protected mode option to 'no', and then restarting the server. 3) If you"
    b" started the server manually just for testing, restart it with the '--protected-mode no' option. 4) Set up an"
    b" authentication password for the default user. NOTE: You only need to do one of the above things in order for the"
    b" server to start accepting connections from the outside.\r\n"
)
"""The answer to strangers in protected mode, as clients of Redis know it."""


class Connections(Capability):
    """The connections of a server.

    total     accepted since the statistics were reset
    rejected  turned away
    """

    info = {
        "clients": (
            Field("connected_clients", lambda self: len(self.host.clients)),
            Field("maxclients", lambda self: self.host.config.maxclients),
        ),
        "stats": (
            Field("total_connections_received", lambda self: self.total),
            Field("rejected_connections", lambda self: self.rejected),
        ),
    }

    def __init__(self, host: Host) -> None:
        self.host = host
        self.total = 0
        self.rejected = 0
        self._acl = host.get(Acl)

    def apply_settings(self) -> None:
        config, dispatcher = self.host.config, self.host.dispatcher
        dispatcher.max_bulk_len = config.proto_max_bulk_len
        dispatcher.query_buffer_limit = config.client_query_buffer_limit
        for number, name in enumerate(("normal", "replica", "pubsub")):
            limit = config.client_output_buffer_limit[name]
            dispatcher.set_output_limit(number, limit.hard_bytes, limit.soft_bytes, limit.soft_seconds)
        for client in self.host.clients.values():
            client.parser.max_bulk_len = config.proto_max_bulk_len

    def client_connected(self, client: Client, sock: Any) -> None:
        """Count a new connection, or turn it away."""
        config = self.host.config
        refusal = b""
        if len(self.host.clients) > config.maxclients:
            refusal = MAX_CLIENTS_ERROR
        elif config.protected_mode and self._acl.default.is_nopass and not client.is_local:
            refusal = PROTECTED_ERROR
        if refusal:
            self.rejected += 1
            client.close_after_reply = True  # nothing that it sends is run
            client.transport.write(refusal)
            client.transport.close()
            return
        self.total += 1
        if sock is not None and not client.is_unix and config.tcp_keepalive:
            with suppress(OSError):  # more seconds than the system takes
                set_keepalive(sock, config.tcp_keepalive)

    def each_second(self, now_ms: int) -> None:
        """The setting `timeout`: close clients that have sent nothing for so long.

        Not those that are expected to be silent: they wait for a key, or for messages, or watch others.
        """
        if not self.host.config.timeout:
            return
        limit = time.monotonic() - self.host.config.timeout
        for client in list(self.host.clients.values()):
            is_waiting = client.blocked is not None or client.postponed is not None
            is_listening = is_waiting or client.is_subscribed or client.is_monitor
            if client.last_interaction < limit and not is_listening:
                log.log(VERBOSE, "Closing idle client")
                client.close()

    def reset_statistics(self) -> None:
        self.total = self.rejected = 0

    def close(self) -> None:
        for client in list(self.host.clients.values()):
            client.shut_down()


def set_keepalive(sock: Any, idle_s: int) -> None:
    """Have the kernel probe an idle connection after `idle_s` seconds, and give it up after three probes more."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    idle = getattr(socket, "TCP_KEEPIDLE", getattr(socket, "TCP_KEEPALIVE", None))
    if idle is not None:
        sock.setsockopt(socket.IPPROTO_TCP, idle, idle_s)
    if hasattr(socket, "TCP_KEEPINTVL"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, idle_s // 3))
    if hasattr(socket, "TCP_KEEPCNT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
