"""BusLinks: the connections between the nodes of a cluster, on which the core's packets travel.

The core numbers its links; here each has a `BusConnection`, the protocol object of the event loop. Data sent on a link waits until its
connection is established. Everyone who can connect to the port of the bus is trusted, as in Redis: it must not be open to others.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Protocol, cast

__all__ = ["BusConnection", "BusLinks"]

log = logging.getLogger("streamd")

_READ_AT_ONCE = 64 << 10


class Receiver(Protocol):
    """The receiver of the events of the bus."""

    def link_accepted(self, peer_ip: str, local_ip: str) -> int:
        """A peer has connected; returns the number of the link."""

    def link_opened(self, link: int, local_ip: str) -> None:
        """A connection is established."""

    def link_closed(self, link: int) -> None:
        """A connection is lost, or could not be made."""

    def received(self, link: int, data: bytes) -> None:
        """Bytes, cut anywhere."""


class BusConnection(asyncio.BufferedProtocol):
    """One connection of the bus.

    link  its number; -1: accepted, but not established yet
    """

    def __init__(self, links: BusLinks, link: int = -1) -> None:
        self._links = links
        self.link = link
        self.transport: asyncio.Transport | None = None
        self._waiting: list[bytes] = []
        self.is_closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport = cast(asyncio.Transport, transport)
        if self.is_closed:
            transport.abort()
            return
        self._links.established(self)
        waiting, self._waiting = self._waiting, []
        for packet in waiting:
            transport.write(packet)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._links.buffer

    def buffer_updated(self, nbytes: int) -> None:
        if not self.is_closed:
            self._links.receiver.received(self.link, bytes(self._links.buffer[:nbytes]))

    def connection_lost(self, exc: Exception | None) -> None:
        self._links.lost(self)

    def send(self, packet: bytes) -> None:
        if self.transport is None:
            self._waiting.append(packet)
        else:
            self.transport.write(packet)

    @property
    def unsent(self) -> int:
        """Bytes that wait to be sent."""
        waiting = sum(map(len, self._waiting))
        return waiting + (self.transport.get_write_buffer_size() if self.transport is not None else 0)

    def close(self) -> None:
        """Close it at once; unsent bytes are lost."""
        self.is_closed = True
        if self.transport is not None:
            self.transport.abort()


class BusLinks:
    """All connections of the bus, by the number of their link.

    receiver    is notified of events
    send_limit  unsent bytes at which a connection is closed; 0: no limit
    over_limit  connections that were closed for exceeding it
    make_tls    makes the context of connections to other nodes; None: without TLS
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, receiver: Receiver) -> None:
        self._loop = loop
        self.receiver = receiver
        self.send_limit = 0
        self.over_limit = 0
        self.make_tls: Callable[[], ssl.SSLContext] | None = None
        self.source_address = ""
        self.may_accept: Callable[[], bool] = lambda: True
        self.buffer = bytearray(_READ_AT_ONCE)  # what any connection receives is taken out at once
        self._open: dict[int, BusConnection] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._open)

    @property
    def memory(self) -> int:
        """Bytes that wait to be sent."""
        return sum(each.unsent for each in self._open.values())

    def unsent(self, link: int) -> int:
        """Bytes that wait on a link."""
        found = self._open.get(link)
        return found.unsent if found is not None else 0

    def accept(self) -> BusConnection:
        """The protocol object of a connection that another node opens."""
        return BusConnection(self)

    def connect(self, link: int, ip: str, port: int) -> None:
        """Open a connection to another node."""
        connection = self._open[link] = BusConnection(self, link)
        self._tasks.add(task := self._loop.create_task(self._connect(connection, ip, port)))
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, connection: BusConnection, ip: str, port: int) -> None:
        local = (self.source_address, 0) if self.source_address else None
        try:
            context = self.make_tls() if self.make_tls is not None else None
            await self._loop.create_connection(
                lambda: connection, ip, port, ssl=context, local_addr=local, server_hostname=ip if context else None
            )
        except Exception as error:  # of sockets, of TLS, of the settings of TLS: the core tries again
            log.debug("Unable to connect to Cluster Node [%s]:%d -> %s", ip, port, error)
            self.lost(connection)

    def send(self, link: int, packet: bytes) -> None:
        """Send a packet. A link that is gone is ignored; one whose peer does not read is closed."""
        connection = self._open.get(link)
        if connection is None:
            return
        connection.send(packet)
        if 0 < self.send_limit < connection.unsent:
            log.warning("Freeing outbound cluster link to %d: it has exceeded cluster-link-sendbuf-limit", link)
            self.over_limit += 1
            connection.close()
            self.lost(connection)

    def close_link(self, link: int) -> None:
        """Close a connection; the receiver knows."""
        connection = self._open.pop(link, None)
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """Close all connections."""
        for task in self._tasks:
            task.cancel()
        for link in list(self._open):
            self.close_link(link)

    # --- What connections tell ------------------------------------------------------------------------------------------

    def established(self, connection: BusConnection) -> None:
        """A connection exists now."""
        assert connection.transport is not None  # noqa: S101
        local_ip = _address(connection.transport.get_extra_info("sockname"))
        if connection.link >= 0:
            self.receiver.link_opened(connection.link, local_ip)
        elif not self.may_accept():
            connection.close()
        else:
            peer_ip = _address(connection.transport.get_extra_info("peername"))
            connection.link = self.receiver.link_accepted(peer_ip, local_ip)
            self._open[connection.link] = connection

    def lost(self, connection: BusConnection) -> None:
        """A connection has ended, or was never made."""
        connection.is_closed = True
        if self._open.get(connection.link) is connection:
            del self._open[connection.link]
            self.receiver.link_closed(connection.link)


def _address(name: object) -> str:
    return str(name[0]) if isinstance(name, tuple) and name else ""
