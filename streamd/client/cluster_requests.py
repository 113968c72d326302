"""Which node of a cluster serves a key, and requests that each go to the node of their key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from streamd.client.client_errors import ServerError, UnreachableError
from streamd.client.key_names import stream_key
from streamd.client.key_slots import SLOT_COUNT, slot_of
from streamd.client.place import Place
from streamd.client.shards import parse_shards
from streamd.client.url_options import Address
from streamd.client.wire import Argument, Connection, Reply, Request

__all__ = ["RoutedConnection", "Topology"]


@dataclass(frozen=True)
class Topology:
    """Who serves what.

    owners  the primary of each slot that is served
    """

    owners: dict[int, Address]

    @classmethod
    def read(cls, reply: Sequence[Any], asked: Place) -> Topology:
        """By the reply to CLUSTER SHARDS of a node."""
        owners: dict[int, Address] = {}
        for shard in parse_shards(reply, asked):
            if (primary := shard.primary) is not None:
                address = Address(primary.place.host, primary.place.port)
                owners |= {slot: address for first, last in shard.ranges for slot in range(first, last + 1)}
        return cls(owners)

    @property
    def primaries(self) -> list[Address]:
        """Those that have slots, by their first ones."""
        return list(dict.fromkeys(self.owners[slot] for slot in sorted(self.owners)))

    @property
    def unserved(self) -> int:
        """How many slots nobody serves."""
        return SLOT_COUNT - len(self.owners)

    def owner_of(self, key: bytes) -> Address:
        """The primary that serves a key. Raises UnreachableError when nobody does."""
        slot = slot_of(key)
        if slot not in self.owners:
            raise UnreachableError(f"no node of the cluster serves slot {slot}")
        return self.owners[slot]


KEYLESS = frozenset({"CLIENT", "COMMAND", "INFO", "PING", "TIME"})
"""Requests that any node answers."""

SUBCOMMANDS = frozenset({"XGROUP", "XINFO"})
"""Requests whose key follows a subcommand. The key of others is their first argument."""


class RoutedConnection(Connection):
    """Connections to all primaries of a cluster, opened when they are needed; each request goes to the one of its key.

    `command` and `pipeline` take requests with one key each, XREAD with any, and SCAN, whose cursor goes through one node after the
    other. For raw bytes, and transactions, `at` is the connection to the node of a key. Replies with MOVED are errors: the topology
    was another one when this was opened.
    """

    def __init__(self, place: str, topology: Topology, open_node: Callable[[Address], Connection]) -> None:
        self.place = place
        self.features = None
        self._topology = topology
        self._open_node = open_node
        self._nodes: dict[Address, Connection] = {}

    def at(self, key: bytes) -> Connection:
        return self._node(self._topology.owner_of(key))

    def command(self, *args: Argument) -> Reply:
        (reply,) = self.pipeline([args])
        return reply

    def pipeline(self, requests: Sequence[Request], *, raise_errors: bool = True) -> list[Reply]:
        names = [as_bytes(request[0]).decode().upper() for request in requests]
        parts = [self._parts_of(name, request) for name, request in zip(names, requests, strict=True)]
        sent: dict[Address, list[Request]] = {}
        for node, request in (part for each in parts for part in each):
            sent.setdefault(node, []).append(request)
        try:
            for node, own in sent.items():
                self._node(node).send_all(own)
            replies = {node: iter(self._node(node).replies(len(own), raise_errors=False)) for node, own in sent.items()}
        except BaseException:
            self.close()  # replies of other nodes may be outstanding
            raise
        found = [
            self._joined(name, [(node, next(replies[node])) for node, _ in each])
            for name, each in zip(names, parts, strict=True)
        ]
        if raise_errors:
            for each in found:
                self._raised(each)
        return found

    def close(self) -> None:
        for connection in self._nodes.values():
            connection.close()
        self._nodes.clear()

    def _node(self, node: Address) -> Connection:
        if node not in self._nodes:
            self._nodes[node] = self._open_node(node)
        return self._nodes[node]

    def _parts_of(self, name: str, request: Request) -> list[tuple[Address, Request]]:
        """To which nodes a request goes, and what each of them gets."""
        if name in KEYLESS:
            return [(self._primary(0), request)]
        if name == "SCAN":
            at, _, cursor = as_bytes(request[1]).rpartition(b":")
            return [(self._primary(int(at or 0)), (request[0], cursor, *request[2:]))]
        if name == "XREAD":
            return self._parts_of_xread(request)
        return [(self._topology.owner_of(as_bytes(request[2 if name in SUBCOMMANDS else 1])), request)]

    def _parts_of_xread(self, request: Request) -> list[tuple[Address, Request]]:
        # A request for each stream: together they would be refused, even by the node that has them all.
        start = [as_bytes(word).upper() for word in request].index(b"STREAMS") + 1
        count = (len(request) - start) // 2
        return [
            (self._topology.owner_of(as_bytes(key)), (*request[:start], key, entry_id))
            for key, entry_id in zip(request[start : start + count], request[start + count :], strict=True)
        ]

    def _primary(self, at: int) -> Address:
        primaries = self._topology.primaries
        if at >= len(primaries):
            raise UnreachableError(f"no primary of {self.place} has slots")
        return primaries[at]

    def _joined(self, name: str, replies: Sequence[tuple[Address, Reply]]) -> Reply:
        """The reply to a request, of those to its parts."""
        for _, reply in replies:
            if isinstance(reply, ServerError):
                return reply
        if name == "XREAD":
            return [stream for _, reply in replies for stream in reply or ()] or None
        ((node, reply),) = replies
        if name == "SCAN":
            cursor, keys = reply
            at = self._topology.primaries.index(node)
            is_last = at + 1 == len(self._topology.primaries)
            if cursor == b"0":
                return [b"0" if is_last else b"%d:0" % (at + 1), keys]
            return [b"%d:%s" % (at, cursor), keys]
        return reply


def as_bytes(word: Argument) -> bytes:
    return word if isinstance(word, bytes) else stream_key(str(word))
