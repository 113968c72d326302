"""The cluster as one node sees it: the lines of CLUSTER NODES."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["NodeView", "parse_nodes", "ranges_of", "slots_in"]


@dataclass(frozen=True)
class NodeView:
    """A node, as another one sees it.

    host, port  for clients
    primary_id  of a replica
    ranges      its slots, each range with both ends
    config_epoch  in which it got them; of a replica, that of its primary
    """

    id: str
    host: str
    port: int
    bus_port: int
    flags: frozenset[str]
    primary_id: str | None
    is_connected: bool
    ranges: tuple[tuple[int, int], ...]
    config_epoch: int = 0

    @property
    def is_myself(self) -> bool:
        return "myself" in self.flags

    @property
    def is_primary(self) -> bool:
        return "master" in self.flags

    @property
    def is_settled(self) -> bool:
        """Whether its handshake is over."""
        return "handshake" not in self.flags

    @property
    def slots(self) -> list[int]:
        return slots_in(self.ranges)


def parse_nodes(text: str) -> dict[str, NodeView]:
    """The lines of CLUSTER NODES by ID."""
    found = {}
    for line in text.splitlines():
        node_id, address, flags, primary, _, _, epoch, link, *slots = line.split()
        ports = address.partition(",")[0]
        host, _, both = ports.rpartition(":")
        port, _, bus_port = both.partition("@")
        # Slots that are on their way stand in brackets, besides the range of their owner.
        ranges = tuple(_parse_range(each) for each in slots if not each.startswith("["))
        found[node_id] = NodeView(
            node_id, host, int(port), int(bus_port or 0), frozenset(flags.split(",")),
            None if primary == "-" else primary, link == "connected", ranges, int(epoch),
        )  # fmt: skip
    return found


def _parse_range(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    return int(first), int(last or first)


def slots_in(ranges: Iterable[tuple[int, int]]) -> list[int]:
    return [slot for first, last in ranges for slot in range(first, last + 1)]


def ranges_of(slots: Iterable[int]) -> list[tuple[int, int]]:
    """Slots as the fewest ranges, each with both ends."""
    found: list[tuple[int, int]] = []
    for slot in sorted(slots):
        if found and found[-1][1] == slot - 1:
            found[-1] = (found[-1][0], slot)
        else:
            found.append((slot, slot))
    return found
