"""Which node of a cluster serves a key, and which nodes are primaries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from streamd.client.client_errors import UnreachableError
from streamd.client.key_slots import SLOT_COUNT, slot_of
from streamd.client.options import Address
from streamd.client.place import Place
from streamd.client.shards import parse_shards

__all__ = ["Topology"]


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
