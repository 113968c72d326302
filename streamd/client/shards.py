"""The shards of a cluster, as CLUSTER SHARDS lists them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from streamd.client.key_slots import SLOT_COUNT
from streamd.client.place import Place
from streamd.client.replies import as_text, text_map

__all__ = ["Shard", "ShardNode", "parse_shards"]


@dataclass(frozen=True)
class ShardNode:
    """A node.

    place   where clients reach it, with the login of the node that was asked
    offset  of its replication
    health  online, loading or fail
    """

    id: str
    place: Place
    is_primary: bool
    offset: int
    health: str

    def __str__(self) -> str:
        return str(self.place)


@dataclass(frozen=True)
class Shard:
    """A primary with its replicas.

    ranges  its slots, each range with both ends
    """

    ranges: tuple[tuple[int, int], ...]
    nodes: tuple[ShardNode, ...]

    @property
    def primary(self) -> ShardNode | None:
        """The one that serves; None: nobody does."""
        return next((node for node in self.nodes if node.is_primary and node.health == "online"), None)

    @property
    def slots(self) -> int:
        return sum(last - first + 1 for first, last in self.ranges)


def parse_shards(reply: Sequence[Any], asked: Place) -> list[Shard]:
    """The shards by their first slots.

    asked  the node that has replied; others are reached as it is, at their own addresses
    """
    found = []
    for each in map(text_map, reply):
        bounds = [int(bound) for bound in each["slots"]]
        nodes = tuple(parse_node(text_map(node), asked) for node in each["nodes"])
        found.append(Shard(tuple(zip(bounds[::2], bounds[1::2], strict=True)), nodes))
    return sorted(found, key=lambda shard: shard.ranges or ((SLOT_COUNT, SLOT_COUNT),))


def parse_node(told: dict[str, Any], asked: Place) -> ShardNode:
    # A node that does not know its own address, or must not name it, is the one that was asked.
    host = as_text(told.get("endpoint") or told.get("ip") or b"")
    port = told.get("tls-port" if asked.is_tls else "port") or asked.port
    place = replace(asked, host=host if host not in ("", "?") else asked.host, port=int(port), unix_path=None)
    return ShardNode(
        as_text(told["id"]),
        place,
        as_text(told["role"]) == "master",
        int(told["replication-offset"]),
        as_text(told["health"]),
    )
