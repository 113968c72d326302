"""Topology: the nodes and slots of the cluster as clients are shown them: redirections, CLUSTER SLOTS, SHARDS, LINKS.

The endpoint by which clients reach a node is its address, its host name, or nothing (cluster-preferred-endpoint-type). Clients that use TLS
are shown the port with TLS.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from streamd.cluster.bus.slots import ALL_SLOTS, SLOT_COUNT, from_slots, ranges_of
from streamd.cluster.routing import SLOT_STATES

if TYPE_CHECKING:
    from streamd.cluster.bus.core import ClusterCore
    from streamd.cluster.bus.nodes import Node
    from streamd.core.client import Client
    from streamd.settings.config import Config

__all__ = ["Topology", "uses_tls"]

OWNED, UNOWNED, COPIED, MIGRATING, IMPORTING = (
    SLOT_STATES[name] for name in ("owned", "unowned", "copied", "migrating", "importing")
)


def uses_tls(client: Client) -> bool:
    return client.transport is not None and client.transport.get_extra_info("ssl_object") is not None


class Topology:
    """A view of the core for clients.

    states  for each slot, whether this node serves, imports or migrates it: a set of SLOT_STATES
    shown   for each slot, whether its keys are shown: its shard is this one, or it is being moved here
    """

    def __init__(self, config: Config, core: ClusterCore) -> None:
        self._config = config
        self._core = core
        self.states = bytearray([UNOWNED]) * SLOT_COUNT
        self.shown = bytearray(SLOT_COUNT)
        # What they were made of, besides the owners of slots: whether the cluster serves, whether this is a primary, the primary of its
        # shard, the slots that leave and those that come.
        self._seen: tuple[bool | None, bool, Node | None, tuple[int, ...], tuple[int, ...]] = (None, True, None, (), ())

    # --- Redirections ---------------------------------------------------------------------------------------------------

    def moved(self, slot: int, client: Client) -> str:
        """The error for a request whose slot another node serves."""
        owner = self._core.state.owners[slot]
        assert owner is not None  # noqa: S101
        return f"MOVED {slot} {self._place(owner, client)}"

    def ask(self, slot: int, client: Client) -> str:
        """The error for a request whose keys have already moved to the node that the slot is being moved to."""
        return f"ASK {slot} {self._place(self._core.state.migrating[slot], client)}"

    def _place(self, node: Node, client: Client) -> str:
        return f"{self.endpoint(node) or ''}:{self.port(node, client)}"

    def endpoint(self, node: Node) -> str | None:
        """The endpoint of a node; None: clients use the one that they know."""
        kind = self._config.cluster_preferred_endpoint_type
        if kind == "hostname":
            return node.hostname or "?"
        return node.ip if kind == "ip" else None

    @staticmethod
    def port(node: Node, client: Client) -> int:
        """The port of a node for a client."""
        return node.tls_port if uses_tls(client) else node.port

    # --- Slots as the router knows them ------------------------------------------------------------------------------------

    def update(self) -> bool:
        """Bring `states` and `shown` up to date; return whether they, or whether requests are served, may have changed."""
        state = self._core.state
        myself, touched = state.myself, state.touched_slots
        seen = state.is_ok, myself.is_primary, myself.shard_primary, tuple(state.migrating), tuple(state.importing)
        if not touched and seen == self._seen:
            return False
        state.touched_slots = 0
        before, self._seen = self._seen, seen
        if seen[1:3] != before[1:3]:
            touched = ALL_SLOTS
        self._paint(touched | from_slots(before[3] + before[4]))
        return True

    def _paint(self, slots: int) -> None:
        """Set `states` and `shown` of some slots, and of those that are being moved."""
        state = self._core.state
        ours = state.myself.shard_primary
        own = slots & ours.slots if ours is not None else 0
        foreign = (slots ^ own) & state.assigned
        owned = OWNED if state.myself.is_primary else COPIED
        for some, kind, is_shown in ((slots ^ own ^ foreign, UNOWNED, 0), (foreign, 0, 0), (own, owned, 1)):
            for first, last in ranges_of(some):
                self.states[first : last + 1] = kind.to_bytes() * (last + 1 - first)
                self.shown[first : last + 1] = is_shown.to_bytes() * (last + 1 - first)
        for slot in state.migrating:
            self.states[slot] |= MIGRATING
        for slot in state.importing:
            self.states[slot] |= IMPORTING
            self.shown[slot] = 1

    # --- Replies ------------------------------------------------------------------------------------------------------------

    def slot_ranges(self) -> Iterator[tuple[int, int, Node]]:
        """Runs of slots with the same owner, ascending: first, last, owner."""
        runs = [
            (first, last, node)
            for node in self._core.state.nodes.values()
            if node.slots
            for first, last in ranges_of(node.slots)
        ]
        return iter(sorted(runs, key=lambda run: run[0]))

    def offset(self, node: Node) -> int:
        """The replication offset of a node, as far as it is known."""
        return self._core.local.offset if node.is_myself else node.offset

    def describe_slots(self, client: Client) -> list[Any]:
        """CLUSTER SLOTS."""
        return [
            [first, last, *(self._describe_node(each, client) for each in (owner, *self._available_replicas(owner)))]
            for first, last, owner in self.slot_ranges()
        ]

    def _available_replicas(self, primary: Node) -> list[Node]:
        return [each for each in primary.replicas if not each.is_failed and self.offset(each)]

    def _describe_node(self, node: Node, client: Client) -> list[Any]:
        kind = self._config.cluster_preferred_endpoint_type
        endpoint = self.endpoint(node)
        more = {}
        if kind != "ip":
            more[b"ip"] = node.ip.encode()
        if kind != "hostname" and node.hostname:
            more[b"hostname"] = node.hostname.encode()
        return [None if endpoint is None else endpoint.encode(), self.port(node, client), node.id, more]

    def describe_shards(self) -> list[Any]:
        """CLUSTER SHARDS."""
        shards: dict[bytes, list[Node]] = defaultdict(list)
        for node in self._core.state.nodes.values():
            if not node.in_handshake:
                shards[node.shard_id].append(node)
        found = []
        for nodes in shards.values():
            owner = next((each for each in nodes if each.slots), None)
            ranges = [bound for run in (ranges_of(owner.slots) if owner is not None else ()) for bound in run]
            found.append({b"slots": ranges, b"nodes": [self._describe_member(each) for each in nodes]})
        return found

    def _describe_member(self, node: Node) -> dict[bytes, Any]:
        found: dict[bytes, Any] = {b"id": node.id}
        if node.port:
            found[b"port"] = node.port
        if node.tls_port:
            found[b"tls-port"] = node.tls_port
        found[b"ip"] = node.ip.encode()
        found[b"endpoint"] = (self.endpoint(node) or "").encode()
        if node.hostname:
            found[b"hostname"] = node.hostname.encode()
        offset = self.offset(node)
        is_loading = node.is_replica and not offset
        found[b"role"] = b"replica" if node.is_replica else b"master"
        found[b"replication-offset"] = offset
        found[b"health"] = b"fail" if node.is_failed else b"loading" if is_loading else b"online"
        return found

    def describe_links(self, unsent: Callable[[int], int]) -> list[Any]:
        """CLUSTER LINKS. unsent: the bytes that wait on the link with a number."""
        found = []
        for node in self._core.state.nodes.values():
            if node.in_handshake:
                continue
            for link in (node.link, node.inbound):
                if link is not None:
                    waiting = unsent(link.id)
                    found.append({
                        b"direction": b"from" if link.is_inbound else b"to",
                        b"node": node.id,
                        b"create-time": link.created_ms,
                        b"events": b"rw" if waiting else b"r",
                        b"send-buffer-allocated": waiting,
                        b"send-buffer-used": waiting,
                    })  # fmt: skip
        return found
