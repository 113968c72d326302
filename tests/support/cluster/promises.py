"""What must hold in a simulated cluster at every step, whatever happens to it. See `Promises`."""

from __future__ import annotations

from streamd.cluster.bus import actions
from streamd.cluster.bus.nodes import Flag
from streamd.cluster.bus.packets import HEADER_LENGTH, NO_ID, PacketType

from .simulation import SimulatedNode, Simulation

__all__ = ["Promises"]

_SLACK_MS = 10_000
"""For how long a report may have been under way: stalled nodes read late what others said."""
_FOUND = "Marking node "
"""How the log line begins in which a node finds that a majority suspects another one."""


class Promises:
    """Watches all nodes, and collects in `wrong` what breaks a promise:

    - a node votes twice in one epoch, over any number of restarts
    - the current epoch of a node, or its own config epoch, goes back: within its life or over a restart
    - two nodes own a slot in one config epoch, at the same time or one after the other; only if `elections_only`, for
      operators can have nodes take epochs without a vote
    - a node finds that another one has failed though no majority of the primaries with slots suspected it lately; or says so though
      nobody has found it lately

    A node that was given an old nodes.conf has broken its promises by that: what it does is not judged any more.
    """

    def __init__(self, simulation: Simulation, *, elections_only: bool = True) -> None:
        self._simulation = simulation
        self._elections_only = elections_only
        self._votes: dict[tuple[int, int], int] = {}  # (voter, epoch) -> candidate
        self._current_epochs: dict[int, int] = {}  # the greatest one that a node has sent
        self._config_epochs: dict[int, int] = {}
        self._claims: dict[int, dict[int, int]] = {}  # config epoch -> node -> slots that it has owned in it
        self._last_claims: dict[int, tuple[int, int]] = {}
        self._suspected: dict[tuple[bytes, bytes], float] = {}  # (who, whom) -> when last
        self._suspects: dict[int, object] = {}
        self._agreed: dict[bytes, float] = {}  # of a node when a majority last called it failed
        self.wrong: list[str] = []
        simulation.watchers.append(self._watch)

    def _watch(self, node: SimulatedNode, action: actions.Action | None) -> None:
        if not node.is_up:
            return
        # The list is a new one after each tick, when suspicions arise.
        if self._suspects.get(node.index) is not (suspects := node.live.failures.suspects):
            self._suspects[node.index] = suspects
            self._note_suspicions(node)
        if isinstance(action, actions.Log) and action.text.startswith(_FOUND):
            self._check_agreement(node, action.text[len(_FOUND) :].split()[0].encode())
        if node.has_old_file:
            return
        if isinstance(action, actions.Send):
            self._check_packet(node, action)
        elif action is None and self._elections_only:
            self._check_claims(node)

    def _fail(self, text: str) -> None:
        if text not in self.wrong:
            self._simulation.note(f"WRONG: {text}")
            self.wrong.append(text)

    def _check_packet(self, node: SimulatedNode, action: actions.Send) -> None:
        packet = action.packet
        epoch = int.from_bytes(packet[16:24], "big")
        if epoch < self._current_epochs.get(node.index, 0):
            self._fail(f"the current epoch of {node.index} goes back to {epoch}")
        self._current_epochs[node.index] = epoch
        if packet[2128:2168] == NO_ID:
            own = int.from_bytes(packet[24:32], "big")
            if own < self._config_epochs.get(node.index, 0):
                self._fail(f"the config epoch of {node.index} goes back to {own}")
            self._config_epochs[node.index] = own
        if packet[13] == PacketType.FAIL:
            self._check_failure(node, packet[HEADER_LENGTH:])
        if packet[13] == PacketType.VOTE and action.link in node.peers:
            candidate = node.peers[action.link][0].index
            if (node.index, epoch) in self._votes:
                self._fail(f"{node.index} votes twice in epoch {epoch}")
            self._votes[node.index, epoch] = candidate

    def _note_suspicions(self, node: SimulatedNode) -> None:
        state = node.live.state
        for other in state.nodes.values():
            if other.flags & (Flag.PFAIL | Flag.FAIL):
                self._suspected[state.myself.id, other.id] = self._simulation.now

    def _check_agreement(self, node: SimulatedNode, failed_id: bytes) -> None:
        """A node finds that a majority suspects another one."""
        state = node.live.state
        since = self._since()
        for each in self._simulation.nodes:
            if each.is_up:
                self._note_suspicions(each)
        suspicious = sum(
            self._suspected.get((each.id, failed_id), -1.0) >= since for each in state.nodes.values() if each.is_voter
        )
        if suspicious < state.size // 2 + 1 and not node.has_old_file:
            self._fail(f"{node.index} calls a node failed that {suspicious} of {state.size} suspect")
        self._agreed[failed_id] = self._simulation.now

    def _check_failure(self, node: SimulatedNode, failed_id: bytes) -> None:
        """Replicas repeat that a node has failed when they stand for election; roles and slots may have changed since then."""
        if self._agreed.get(failed_id, -1.0) < self._since():
            self._fail(f"{node.index} calls a node failed, but no majority lately has")

    def _since(self) -> float:
        """Since when something has been lately."""
        return self._simulation.now - 2 * self._simulation.node_timeout_ms - _SLACK_MS

    def _check_claims(self, node: SimulatedNode) -> None:
        myself = node.live.state.myself
        claim = (myself.config_epoch, myself.slots if myself.is_primary else 0)
        if self._last_claims.get(node.index) == claim or not claim[1]:
            return
        self._last_claims[node.index] = claim
        epoch, slots = claim
        claims = self._claims.setdefault(epoch, {})
        claims[node.index] = claims.get(node.index, 0) | slots
        for other, owned in claims.items():
            if other != node.index and owned & slots:
                self._fail(f"{node.index} and {other} own {(owned & slots).bit_count()} slots in epoch {epoch}")
