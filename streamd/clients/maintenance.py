"""Maintenance: planned switches are announced to the connections that have asked for it (CLIENT MAINT_NOTIFICATIONS).

    FAILING_OVER number seconds          requests may take longer than usual
    FAILED_OVER number                   that is over
    MOVING number seconds host:port      connect there; null: connect again to the address that you know

A cluster adds SMIGRATING and SMIGRATED (`cluster/announcing.py`).

Announcements are pushes of RESP3, in the forms that the clients of Redis's enterprise servers read. A number is a Unix time in ms, so
that it differs from those of all other servers: clients drop what they have seen.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from streamd.core.capability import Capability
from streamd.core.client import Client
from streamd.core.host import Host
from streamd.protocol.reply import ReplyWriter

__all__ = ["Maintenance"]

MOVING_S = 15
"""How long a client connects to the address of a MOVING; after that, to its own again. Programs may not end earlier: redis-py
waits for it in a thread."""


@dataclass(slots=True)
class Listener:
    """A connection that has asked.

    wants_address  MOVING gives the address of the other server; else the client asks its name service again
    told           the number of the last MOVING
    """

    client: Client
    wants_address: bool
    told: int = 0

    @property
    def can_listen(self) -> bool:
        client = self.client
        return client.reply.resp == 3 and client.transport is not None and not client.close_after_reply


class Maintenance(Capability):
    """The connections that have asked."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._listeners: dict[int, Listener] = {}
        self._number = 0

    # --- Who has asked -----------------------------------------------------------------------------------------------

    def listen(self, client: Client, *, wants_address: bool) -> None:
        """Announce to this connection from now on."""
        self._listeners[client.id] = Listener(client, wants_address)

    def ignore(self, client: Client) -> None:
        """Announce nothing to this connection any more."""
        self._listeners.pop(client.id, None)

    def client_gone(self, client: Client) -> None:
        self.ignore(client)

    def client_reset(self, client: Client) -> None:
        self.ignore(client)

    def is_listening(self, client: Client) -> bool:
        """Whether a connection can be told of a switch."""
        listener = self._listeners.get(client.id)
        return listener is not None and listener.can_listen

    # --- Announcements -----------------------------------------------------------------------------------------------

    def make_number(self) -> int:
        """The number of an announcement; each is greater than the last."""
        self._number = max(self._number + 1, time.time_ns() // 1_000_000)
        return self._number

    def announce(self, name: str, *values: object) -> None:
        """Tell everybody: the name, a new number, and values as `ReplyWriter.value` accepts them."""
        self._tell(self._listeners.values(), name, self.make_number(), *values)

    def move(self, number: int, host: str, port: int) -> None:
        """Send everybody to another server."""
        for wants_address in (True, False):
            found = [each for each in self._listeners.values() if each.wants_address is wants_address]
            self._move(found, number, host, port)

    def move_one(self, client: Client, number: int, host: str, port: int) -> None:
        """Send one connection to another server, and close it. What it has sent and was not executed, it sends again there."""
        listener = self._listeners[client.id]
        if listener.told != number:
            self._move([listener], number, host, port)
        client.close_after_reply = True
        client.send_later()

    def waiting(self) -> list[Client]:
        """The connections that wait for keys or for replicas."""
        return [each.client for each in self._listeners.values() if each.can_listen and each.client.blocked is not None]

    def _move(self, listeners: list[Listener], number: int, host: str, port: int) -> None:
        """All of them want an address, or none."""
        if listeners:
            address = f"{host}:{port}".encode() if listeners[0].wants_address else None
            self._tell(listeners, "MOVING", number, MOVING_S, address)
            for listener in listeners:
                listener.told = number

    def _tell(self, listeners: Iterable[Listener], name: str, *values: object) -> None:
        writer = ReplyWriter(3)
        writer.push(1 + len(values))
        writer.bulk(name.encode())
        for value in values:
            writer.value(value)  # type: ignore[arg-type]
        message = writer.take()
        executing = self._host.dispatcher.executing
        for listener in listeners:
            if listener.client is executing:  # its reply comes first
                self._host.loop.call_soon(send, listener, message)
            else:
                send(listener, message)


def send(listener: Listener, message: bytes) -> None:
    """Push a message to a connection."""
    if listener.can_listen:
        listener.client.reply.raw(message)
        listener.client.send_later()
