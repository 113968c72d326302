"""Connections: which are accepted, their limits, and when idle ones are closed.

A new connection is rejected when there are too many (`maxclients`), and, in protected mode, when it comes from another
machine while the default user has no password.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from streamd.clients.pause import Pause
from streamd.core.capability import Capability
from streamd.core.client import Client
from streamd.core.host import Host
from streamd.core.info import Fields
from streamd.errors import CommandError
from streamd.process.log import VERBOSE
from streamd.users.acl import Acl

__all__ = ["Connections"]

log = logging.getLogger("streamd")

MAX_CLIENTS_ERROR = b"-ERR max number of clients reached\r\n"
PROTECTED_ERROR = (
    b"-DENIED Protected mode: the default user has no password, so only connections from this machine are accepted."
    b" To accept others, set a password (requirepass, or ACL SETUSER default), or, in a trusted network, run CONFIG SET"
    b" protected-mode no on this machine.\r\n"
)
"""The answer to other machines in protected mode. Clients know the code, DENIED; the text is streamd's own."""


def refuse_node(client: Client, secret: bytes) -> None:
    """AUTH "internal connection" without a cluster."""
    raise CommandError("ERR Cannot authenticate as an internal connection on non-cluster instances")


class Connections(Capability):
    """The connections of a server.

    total     accepted since the statistics were reset
    rejected  not accepted
    log_in_node  logs a client in as another node of the cluster; raises CommandError
    """

    info = {
        "clients": (
            Fields(
                "connected_clients maxclients blocked_clients clients_in_timeout_table total_blocking_keys"
                " total_blocking_keys_on_nokey",
                lambda self: self.counts(),
            ),
        ),
        "stats": (Fields("total_connections_received rejected_connections", lambda self: (self.total, self.rejected)),),
    }

    def __init__(self, host: Host) -> None:
        self.host = host
        self.total = 0
        self.rejected = 0
        self.log_in_node: Callable[[Client, bytes], object] = refuse_node
        self._acl = host.get(Acl)
        self._pause: Pause

    def start(self) -> None:
        self._pause = self.host.get(Pause)

    def counts(self) -> tuple[int, ...]:
        """For INFO."""
        host = self.host
        connected, blocked = len(host.clients) - host.dispatcher.replica_count, len(host.blocked)
        if not blocked:
            return connected, host.config.maxclients, len(self._pause.held), 0, 0, 0
        return connected, host.config.maxclients, blocked + len(self._pause.held), *self.waiting()

    def waiting(self) -> tuple[int, int, int]:
        """Numbers of clients that wait for a time, of keys that are waited for, and of those of them that may be gone."""
        waiters: list[dict[bytes, Any]] = [db.waiters for db in self.host.databases if db.waiters]
        return (
            sum(each.deadline != float("inf") for each in self.host.blocked),
            sum(map(len, waiters)),
            sum(bool(queues.lines) for each in waiters for queues in each.values()),
        )

    def apply_settings(self) -> None:
        config, dispatcher = self.host.config, self.host.dispatcher
        dispatcher.max_bulk_len = config.proto_max_bulk_len
        dispatcher.query_buffer_limit = config.client_query_buffer_limit
        for number, name in enumerate(("normal", "replica", "pubsub")):
            limit = config.client_output_buffer_limit[name]
            hard = limit.hard_bytes
            if name == "replica" and hard:
                # A replica that was closed for less would continue from the backlog, be closed for it again, and so on.
                hard = max(hard, config.repl_backlog_size)
            dispatcher.set_output_limit(number, hard, limit.soft_bytes, limit.soft_seconds)
        for client in self.host.clients.values():
            if client.is_primary:
                continue
            client.parser.max_bulk_len = config.proto_max_bulk_len

    def client_connected(self, client: Client, sock: Any) -> None:
        """Count a new connection, or reject it."""
        config = self.host.config
        refusal = b""
        if len(self.host.clients) > config.maxclients:
            refusal = MAX_CLIENTS_ERROR
        elif config.protected_mode and self._acl.default.is_nopass and not client.is_local:
            refusal = PROTECTED_ERROR
        if refusal:
            self.rejected += 1
            client.close_after_reply = True  # nothing that it sends is executed
            client.transport.write(refusal)
            client.transport.close()
            return
        self.total += 1
        if sock is not None and not client.is_unix and config.tcp_keepalive:
            with suppress(OSError):  # more seconds than the system accepts
                set_keepalive(sock, config.tcp_keepalive)

    def each_second(self, now_ms: int) -> None:
        """The setting `timeout`: close clients that have been idle for this long.

        Except those that are expected to be silent: blocked clients, subscribers and monitors.
        """
        if not self.host.config.timeout:
            return
        limit = time.monotonic() - self.host.config.timeout
        for client in list(self.host.clients.values()):
            is_waiting = client.blocked is not None or client.postponed is not None
            is_listening = is_waiting or client.is_subscribed or client.is_monitor or client.is_primary
            if client.last_interaction < limit and not is_listening:
                log.log(VERBOSE, "Closing idle client")
                client.close()

    def reset_statistics(self) -> None:
        self.total = self.rejected = 0

    def close(self) -> None:
        for client in list(self.host.clients.values()):
            client.shut_down()


def set_keepalive(sock: Any, idle_s: int) -> None:
    """Have the kernel probe an idle connection after `idle_s` seconds, and close it after three more probes."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    idle = getattr(socket, "TCP_KEEPIDLE", getattr(socket, "TCP_KEEPALIVE", None))
    if idle is not None:
        sock.setsockopt(socket.IPPROTO_TCP, idle, idle_s)
    if hasattr(socket, "TCP_KEEPINTVL"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, idle_s // 3))
    if hasattr(socket, "TCP_KEEPCNT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
