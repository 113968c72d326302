"""Failures: which nodes do not answer (PFAIL), which have failed for a majority (FAIL), and whether the cluster serves.

PFAIL is an opinion of this node. FAIL needs a majority of primaries with slots whose opinions, at most two node timeouts old, agree; it is
broadcast, so all nodes learn of it at once.
"""

from __future__ import annotations

from .actions import StateChanged
from .links import Links
from .nodes import Flag, Node, State
from .outbox import Outbox
from .packets import PacketType
from .slots import ALL_SLOTS

__all__ = ["Failures"]

_START_DELAY_MS = 2000
"""For how long a primary that has just started does not serve, unless all nodes that it knows have sent it their slots: others may have
replaced it."""

_REJOIN_MS = (500, 5000)
"""The same after it was in a minority: bounds of the node timeout."""


class Failures:
    """See the head of the module."""

    def __init__(self, state: State, outbox: Outbox, links: Links) -> None:
        self._state = state
        self._outbox = outbox
        self._links = links
        self._minority_ms = 0  # when this node was last in a minority
        self.suspects: list[Node] = []  # nodes with PFAIL at the last tick
        self.has_news = False  # this node, a voter, suspects one more

    @property
    def quorum(self) -> int:
        """How many voters are a majority: of those known now, which need not be those of the last input."""
        state = self._state
        return (len(state.find_voters()) if state.must_judge else state.size) // 2 + 1

    # --- Suspicion -------------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Look at the nodes that owe an answer."""
        state = self._state
        now_ms, timeout_ms = state.now_ms, state.options.node_timeout_ms
        suspects = []
        for node in state.nodes.values():
            if node.ping_sent_ms and not node.flags & (Flag.MYSELF | Flag.NOADDR | Flag.HANDSHAKE):
                silent_ms = now_ms - max(node.ping_sent_ms, node.data_received_ms)
                if silent_ms > timeout_ms // 2:
                    link = node.link
                    if link is not None and now_ms - link.created_ms > timeout_ms:
                        self._links.close(link)
                    if silent_ms > timeout_ms and not node.flags & (Flag.PFAIL | Flag.FAIL):
                        self._suspect(node)
            if node.flags & Flag.PFAIL:
                suspects.append(node)
        self.suspects = suspects

    def _suspect(self, node: Node) -> None:
        state = self._state
        self._outbox.log(f"NODE {node.id.decode()} ({node.human_name}) possibly failing.", "debug")
        node.flags |= Flag.PFAIL
        self.has_news = state.myself.is_voter
        state.changed()
        if state.size == 1 and state.myself.is_voter:
            self._fail_if_agreed(node)

    # --- Agreement -------------------------------------------------------------------------------------------------------

    def report(self, node: Node, reporter: Node) -> None:
        """A primary reports that a node fails."""
        if reporter not in node.reports:
            self._outbox.log(
                f"Node {reporter.id.decode()} ({reporter.human_name}) reported node {node.id.decode()} "
                f"({node.human_name}) as not reachable."
            )
        node.reports[reporter] = self._state.now_ms
        self._fail_if_agreed(node)

    def retract(self, node: Node, reporter: Node) -> None:
        """A primary reports that a node works."""
        if node.reports.pop(reporter, None) is not None:
            self._outbox.log(
                f"Node {reporter.id.decode()} ({reporter.human_name}) reported node {node.id.decode()} "
                f"({node.human_name}) is back online."
            )

    def count_reports(self, node: Node) -> int:
        """How many reports still count."""
        if not node.reports:
            return 0
        oldest_ms = self._state.now_ms - 2 * self._state.options.node_timeout_ms
        for reporter in [each for each, reported_ms in node.reports.items() if reported_ms < oldest_ms]:
            del node.reports[reporter]
        return len(node.reports)

    def _fail_if_agreed(self, node: Node) -> None:
        if not node.flags & Flag.PFAIL or node.is_failed:
            return
        self.count_reports(node)
        # Redis also counts primaries without slots, which are no part of the majority that must agree.
        agreed = sum(reporter.is_voter for reporter in node.reports) + self._state.myself.is_voter
        if agreed < self.quorum:
            return
        self._outbox.log(f"Marking node {node.id.decode()} ({node.human_name}) as failing (quorum reached).")
        self.mark_failed(node)
        self._outbox.broadcast(PacketType.FAIL, self._outbox.compose(PacketType.FAIL, node.id))

    def mark_failed(self, node: Node) -> None:
        node.flags = node.flags & ~Flag.PFAIL | Flag.FAIL
        node.fail_ms = self._state.now_ms
        self._state.changed()

    def answered(self, node: Node) -> None:
        """A node has sent a PONG. A primary with slots that has failed works again only if nobody replaces it for some time."""
        state = self._state
        if node.flags & Flag.PFAIL:
            node.flags &= ~Flag.PFAIL
            state.changed()
        elif node.is_failed:
            is_old = state.now_ms - node.fail_ms > 2 * state.options.node_timeout_ms
            if not node.is_voter or is_old:
                self._outbox.log(
                    f"Clear FAIL state for node {node.id.decode()} ({node.human_name}): it is reachable again."
                )
                node.flags &= ~Flag.FAIL
                state.changed()

    # --- Whether the cluster serves ------------------------------------------------------------------------------------------

    def judge(self) -> None:
        """Compute the cluster state, the number of primaries with slots with it."""
        state = self._state
        state.must_judge = False
        voters = state.find_voters()
        state.size = len(voters)
        now_ms = state.now_ms
        if state.myself.is_primary and not state.is_ok and self._may_be_replaced():
            return
        is_ok = True
        if state.options.require_full_coverage:
            is_ok = state.assigned == ALL_SLOTS and not any(node.is_failed for node in voters)
        reachable = sum(not node.flags & (Flag.FAIL | Flag.PFAIL) for node in voters)
        if reachable < self.quorum:
            is_ok = False
            if voters:  # without any, there is nothing to have missed
                self._minority_ms = now_ms
        if is_ok == state.is_ok:
            return
        rejoin_ms = min(max(state.options.node_timeout_ms, _REJOIN_MS[0]), _REJOIN_MS[1])
        if is_ok and state.myself.is_primary and 0 <= now_ms - self._minority_ms < rejoin_ms:
            return
        state.is_ok = is_ok
        self._outbox.log(f"Cluster state changed: {'ok' if is_ok else 'fail'}")
        self._outbox.do(StateChanged(is_ok))

    def _may_be_replaced(self) -> bool:
        """Whether this node has just started, and some node that may have its slots has not been heard of."""
        state = self._state
        if not 0 <= state.now_ms - state.started_ms < _START_DELAY_MS:
            return False
        return any(
            not node.data_received_ms
            for node in state.nodes.values()
            if not node.flags & (Flag.MYSELF | Flag.HANDSHAKE)
        )
