"""A node over the wire: a connection that is made when it is needed, and again when it broke."""

from __future__ import annotations

from typing import Any

from streamd.client.client_errors import ServerError, UnreachableError
from streamd.client.connection import Connection, dial
from streamd.client.place import Place
from streamd.clustering.view import NodeView, parse_nodes

__all__ = ["BUS_OFFSET", "Node"]

BUS_OFFSET = 10_000
"""From the port for clients to that of the bus, unless cluster-port says otherwise."""


class Node:
    """
    place     where it listens for clients
    bus_port  where it listens for other nodes; None: it is asked
    """

    def __init__(self, place: Place, bus_port: int | None = None, *, timeout_s: float = 10.0) -> None:
        self.place = place
        self._bus_port = bus_port
        self._timeout_s = timeout_s
        self._connection: Connection | None = None
        self._id: str | None = None

    def __str__(self) -> str:
        return str(self.place)

    def ask(self, *words: str | int) -> Any:
        """The reply. Raises ServerError, UnreachableError."""
        if self._connection is None:
            self._connection = dial(self.place, timeout_s=self._timeout_s)
        try:
            return self._connection.command(*words)
        except UnreachableError:
            self.close()
            raise

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def id(self) -> str:
        if self._id is None:
            self._id = self.ask("CLUSTER", "MYID").decode()
        return self._id

    @property
    def bus_port(self) -> int:
        if self._bus_port is None:
            self._bus_port = int(self.setting("cluster-port")) or self.place.port + BUS_OFFSET
        return self._bus_port

    def setting(self, name: str) -> str:
        """The value of a setting; empty if the node does not have it."""
        found = self.ask("CONFIG", "GET", name)
        return found[1].decode() if found else ""

    def answers(self) -> bool:
        """Whether it accepts connections, perhaps only to say that it is loading."""
        try:
            self.ask("PING")
        except UnreachableError:
            return False
        except ServerError:
            return True
        return True

    def nodes(self) -> dict[str, NodeView]:
        """The cluster as this node sees it."""
        return parse_nodes(self.ask("CLUSTER", "NODES").decode())

    def info(self, *section: str) -> dict[str, str]:
        """The fields of INFO."""
        return _fields(self.ask("INFO", *section))

    def cluster_info(self) -> dict[str, str]:
        """The fields of CLUSTER INFO."""
        return _fields(self.ask("CLUSTER", "INFO"))


def _fields(reply: bytes) -> dict[str, str]:
    pairs = (line.partition(":") for line in reply.decode(errors="replace").splitlines())
    return {name: value for name, colon, value in pairs if colon}
