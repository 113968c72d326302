"""Links: the connections of the bus. This node opens one to each other node; each other node opens one to it.

PING, MEET, FAIL, votes and messages go out on the link that this node opened; PONG goes back on the link that the PING came on.
"""

from __future__ import annotations

from .actions import Close, Connect
from .nodes import Flag, Link, Node, State
from .outbox import Outbox
from .packets import Reader

__all__ = ["Links"]


class Links:
    """Every connection, by number."""

    def __init__(self, state: State, outbox: Outbox) -> None:
        self._state = state
        self._outbox = outbox
        self._links: dict[int, Link] = {}
        self._readers: dict[int, Reader] = {}
        self._last_number = 0

    def find(self, number: int) -> Link | None:
        return self._links.get(number)

    def reader(self, link: Link) -> Reader:
        return self._readers[link.id]

    def connect(self, node: Node) -> None:
        """Open a link to a node that has none."""
        link = self._add(is_inbound=False, node=node)
        node.link = link
        self._outbox.do(Connect(link.id, node.ip, node.bus_port))

    def accept(self, peer_ip: str, local_ip: str) -> Link:
        link = self._add(is_inbound=True, node=None)
        link.peer_ip, link.local_ip, link.is_open = peer_ip, local_ip, True
        return link

    def identify(self, link: Link, node: Node) -> None:
        """Note who has opened a link. Only the newest of each node is kept."""
        if link.node is node:
            return
        if link.node is not None and link.node.inbound is link:
            link.node.inbound = None
        if node.inbound is not None:
            self.close(node.inbound)
        link.node, node.inbound = node, link

    def close(self, link: Link) -> None:
        """Close a link from this side."""
        self.forget(link)
        self._outbox.do(Close(link.id))

    def forget(self, link: Link) -> None:
        """A link is gone."""
        del self._links[link.id]
        del self._readers[link.id]
        node, link.node = link.node, None
        if node is not None and node.link is link:
            node.link = None
        if node is not None and node.inbound is link:
            node.inbound = None

    def close_all_of(self, node: Node) -> None:
        for link in (node.link, node.inbound):
            if link is not None:
                self.close(link)

    def remove_node(self, node: Node) -> None:
        """Forget a node and its links."""
        self.close_all_of(node)
        self._state.remove(node)

    def reconnect(self) -> None:
        """Open missing links; forget nodes whose handshake has lasted too long."""
        state = self._state
        handshake_ms = max(state.options.node_timeout_ms, 1000)
        for node in [*state.nodes.values()]:
            if node.link is not None and not node.flags & Flag.HANDSHAKE:
                continue
            if node.flags & (Flag.MYSELF | Flag.NOADDR):
                continue
            if node.in_handshake and state.now_ms - node.created_ms > handshake_ms:
                self.remove_node(node)
            elif node.link is None:
                self.connect(node)

    def check_invariants(self) -> None:
        """Every link of a node is known here, and the other way round."""
        held = [link for node in self._state.nodes.values() for link in (node.link, node.inbound) if link is not None]
        assert all(self._links.get(link.id) is link for link in held)
        for link in self._links.values():
            assert link.node is None or link in (link.node.link, link.node.inbound)
            assert link.is_inbound or link.node is not None

    def _add(self, *, is_inbound: bool, node: Node | None) -> Link:
        self._last_number += 1
        link = Link(self._last_number, is_inbound, self._state.now_ms, node)
        self._links[link.id] = link
        self._readers[link.id] = Reader()
        return link
