"""Replacement: a primary that Sentinels have replaced, or cannot reach, no longer accepts writes.

Sentinel makes a server that it has replaced a replica some ten seconds after it returns; what it accepts until then is lost. A
hello of a Sentinel (sentinels.py) tells the server at once. It then refuses writes as a replica does, so that clients look for the
primary, and closes ordinary connections, as Sentinel does with CLIENT KILL, for clients that wait without a time-out.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

from streamd.core.capability import Capability
from streamd.core.client import Client
from streamd.core.host import Host
from streamd.core.info import Lines
from streamd.pubsub.hub import Hub
from streamd.replication.replication import Replication
from streamd.replication.sentinels import Address, Hello, Sentinels
from streamd.settings.declarations import boolean, declare, integer

__all__ = ["Replacement"]

log = logging.getLogger("streamd")

declare(
    "Replication",
    boolean(
        "refuse-when-replaced", True, apply="refresh",
        doc="Refuse writes, and close ordinary connections, when a Sentinel announces that another server has become the primary.",
    ),
    integer(
        "refuse-without-sentinels", 0, lo=0, hi=2**31 - 1, unit="milliseconds", apply="refresh",
        doc="Refuse writes while most of the Sentinels that have watched this server have been silent for this long. 0: never.",
    ),
)  # fmt: skip


class Replacement(Capability):
    """
    sentinels    those that watch this server
    is_refusing  this server is a primary that refuses writes
    observers    called when that has changed
    """

    rests = True
    info = {"replication": (Lines("replaced_by", lambda self: self._lines() if self.sentinels.successor else ()),)}

    def __init__(self, host: Host) -> None:
        self._host = host
        self._config = host.config
        self._replication = host.get(Replication)
        self._replication.role_observers.append(self._follow_role)
        host.get(Hub).hello_observer = self._hear
        self.sentinels = Sentinels()
        self.is_refusing = False
        self.observers: list[Callable[[], object]] = []

    def apply_settings(self) -> None:
        config = self._config
        port = config.replica_announce_port or config.port
        self.sentinels.announced = (config.replica_announce_ip, port) if config.replica_announce_ip else None
        if config.refuse_without_sentinels:
            self._host.wake(self)
        self._decide()

    def _follow_role(self) -> None:
        self.sentinels.begin()
        self._decide()

    def _lines(self) -> Iterator[str]:
        if self.sentinels.successor is not None:
            yield "replaced_by:{}:{}".format(*self.sentinels.successor)

    # --- Sentinels ----------------------------------------------------------------------------------------------------

    def _hear(self, client: Client, message: bytes) -> None:
        """A client has published on the channel of hellos."""
        if client.is_primary or not self._is_trusted(client):
            return
        try:
            hello = Hello.parse(message)
        except ValueError:
            return
        self.sentinels.hear(hello, client, _reached_at(client), time.monotonic())
        self._decide()

    def _is_trusted(self, client: Client) -> bool:
        """Whether a client may do what Sentinels do: it could make this server a replica as well."""
        user: Any = client.user
        slaveof = self._host.dispatcher.routes.by_full_name.get("slaveof")
        if user is None or slaveof is None:
            return slaveof is not None
        return user.permissions.find_denial(slaveof.index, [b"SLAVEOF", b"NO", b"ONE"]) is None

    def each_second(self, now_ms: int) -> None:
        """Find the Sentinels that have connected again: their hello may be two seconds away."""
        if not self.sentinels.known:
            return
        for client in self._host.clients.values():
            known = self.sentinels.find(client)
            if known is not None and known.client is not client and self._is_trusted(client):
                known.client = client

    def cron(self, now_ms: int) -> None:
        if self._config.refuse_without_sentinels:
            self._decide()

    # --- What follows -------------------------------------------------------------------------------------------------

    def _decide(self) -> None:
        """Whether this server refuses writes."""
        successor, silence_s = self.sentinels.successor, self._config.refuse_without_sentinels / 1000
        is_replaced = successor is not None and self._config.refuse_when_replaced
        is_alone = bool(silence_s) and not self.sentinels.is_majority_heard(time.monotonic() - silence_s)
        is_refusing = not self._replication.is_replica and (is_replaced or is_alone)
        if is_refusing == self.is_refusing:
            return
        self.is_refusing = is_refusing
        if not is_refusing:
            log.info(
                "Writes are accepted again." if not self._replication.is_replica else "This server is a replica now."
            )
        elif successor is not None and is_replaced:
            log.warning("Sentinels have replaced this server with %s:%d: it refuses writes.", *successor)
            self._close_connections()
        else:
            log.warning("Most Sentinels have been silent for %g s: writes are refused.", silence_s)
        for observer in self.observers:
            observer()

    def _close_connections(self) -> None:
        """Close the connections of ordinary clients, so that they look for the primary."""
        sentinels = {known.client for known in self.sentinels.known.values()}
        for client in list(self._host.clients.values()):
            is_ordinary = not client.is_primary and client.id not in self._replication.replicas
            if is_ordinary and client not in sentinels and not client.name.startswith(b"sentinel-"):
                self._host.kill(client)


def _reached_at(client: Client) -> Address | None:
    """The address of this server that a client is connected to."""
    name = client.transport.get_extra_info("sockname") if client.transport is not None else None
    return (str(name[0]), int(name[1])) if isinstance(name, tuple) and len(name) >= 2 else None
