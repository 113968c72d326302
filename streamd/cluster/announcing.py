"""Announcing: connections that have asked (`clients/maintenance.py`) are notified of hand-overs, and of slots that move.

    FAILING_OVER, FAILED_OVER                a replica of this primary takes over
    SMIGRATING number ranges                 slots begin to move away
    SMIGRATED number [[from to ranges] ...]  slots have other owners

Slots are announced together, in the step of the cron that follows: a client reads the topology again each time, and redis-cli moves slots
one by one. Until then, and for others, MOVED says the same.
"""

from __future__ import annotations

from streamd.clients.maintenance import Maintenance
from streamd.cluster.bus.nodes import Node, State
from streamd.cluster.bus.slots import from_slots, ranges_of
from streamd.cluster.topology import Topology

__all__ = ["Announcing"]

HAND_OVER_S = 10
"""How long a hand-over may last, as it is announced."""


def show_ranges(slots: int) -> bytes:
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges_of(slots)).encode()


class Announcing:
    """What has been announced, and what has changed since."""

    def __init__(self, maintenance: Maintenance, topology: Topology, state: State) -> None:
        self._maintenance = maintenance
        self._topology = topology
        self._state = state
        self._owned = state.myself.slots
        self._migrating = 0

    def begin_hand_over(self) -> None:
        self._maintenance.announce("FAILING_OVER", HAND_OVER_S)

    def end_hand_over(self) -> None:
        self._maintenance.announce("FAILED_OVER")

    def look(self) -> None:
        """The view of the node may have changed: announce what has."""
        state = self._state
        owned, migrating = state.myself.slots, from_slots(state.migrating)
        lost, self._owned = self._owned & ~owned, owned
        begun, self._migrating = migrating & ~self._migrating, migrating
        if begun:
            self._maintenance.announce("SMIGRATING", show_ranges(begun))
        moves = [
            [self._place(state.myself), self._place(node), show_ranges(node.slots & lost)]
            for node in state.nodes.values()
            if node.slots & lost
        ]
        if moves:
            self._maintenance.announce("SMIGRATED", moves)

    def _place(self, node: Node) -> bytes:
        return f"{self._topology.endpoint(node) or node.ip}:{node.port or node.tls_port}".encode()
