"""Takeover: CLUSTER FAILOVER, on request of an operator, in three forms.

    (none)    MFSTART to the primary ─▶ it pauses writes, and reports the offset ─▶ the replica gets there ─▶ votes, at once
    force     the primary is not asked; votes, at once
    takeover  nobody is asked: the replica takes an epoch of its own

Voters vote although the primary works, the primary among them. After five seconds all give up, and writes continue.
"""

from __future__ import annotations

from streamd.errors import CommandError

from .actions import PauseWrites
from .claims import Claims
from .elections import Elections
from .gossip import Gossiping
from .nodes import Link, Node, State
from .outbox import Outbox
from .packets import PAUSED, Header, PacketType
from .role import HandOver, Role

__all__ = ["Takeover"]

_LIMIT_MS = 5000
_PAUSE_MS = 10_000


class Takeover:
    """See the head of the module."""

    def __init__(
        self, state: State, outbox: Outbox, gossiping: Gossiping, claims: Claims, elections: Elections, role: Role
    ) -> None:
        self._state = state
        self._outbox = outbox
        self._gossiping = gossiping
        self._claims = claims
        self._elections = elections
        self._role = role

    # --- The replica -----------------------------------------------------------------------------------------------------

    def start(self, mode: str) -> None:
        """CLUSTER FAILOVER with mode "", "force" or "takeover"."""
        myself = self._state.myself
        primary = myself.primary
        if myself.is_primary:
            raise CommandError("ERR You should send CLUSTER FAILOVER to a replica")
        if primary is None:
            raise CommandError("ERR I'm a replica but my master is unknown to me")
        if not mode and (primary.is_failed or primary.link is None):
            raise CommandError("ERR Master is down or failed, please use CLUSTER FAILOVER FORCE")
        self._role.end_hand_over()
        if mode == "takeover":
            self._outbox.log("Taking over the master (user request).")
            self._claims.bump_epoch()
            self._elections.replace_primary()
            return
        self._elections.start_over()
        self._role.hand_over = HandOver(self._state.now_ms + _LIMIT_MS, may_start=mode == "force")
        if mode == "force":
            self._outbox.log("Forced failover user request accepted.")
            self._elections.tick()
        else:
            self._outbox.log("Manual failover user request accepted.")
            self._outbox.send_to([primary], PacketType.MFSTART, self._outbox.compose(PacketType.MFSTART))

    def break_circle(self, sender: Node, header: Header) -> None:
        """My primary reports that it is a replica of mine: the one with more data takes over, without a vote.

        That happens if a node starts with a nodes.conf older than its election. Neither of the two would ever lead, and no
        majority could elect one of them, because other nodes disagree on which one is a replica.
        """
        state, myself = self._state, self._state.myself
        if myself.primary is not sender or header.primary_id != myself.id:
            return
        if header.current_epoch < sender.config_epoch:
            return  # older than its promotion
        if (state.local.offset, myself.id) > (header.offset, sender.id):
            self._outbox.log(
                f"{sender.id.decode()} ({sender.human_name}) and this node follow each other. Taking over.", "warning"
            )
            self._claims.take_new_epoch()
            self._elections.replace_primary()

    def read_pause(self, sender: Node, header: Header) -> None:
        """My primary reports that it has paused, and the offset."""
        hand_over = self._role.hand_over
        if hand_over is None or sender is not self._state.myself.primary or not header.message_flags & PAUSED:
            return
        if hand_over.offset < 0:
            hand_over.offset = header.offset
            self._outbox.log(f"Received replication offset for paused master manual failover: {header.offset}")
            self._wait_for_data(hand_over)

    def _wait_for_data(self, hand_over: HandOver) -> None:
        if not hand_over.may_start and hand_over.offset >= 0 and hand_over.offset == self._state.local.offset:
            hand_over.may_start = True
            self._outbox.log("All master replication stream processed, manual failover can start.")
            self._elections.tick()

    # --- The primary -----------------------------------------------------------------------------------------------------

    def read_start(self, sender: Node) -> None:
        """MFSTART: a replica of mine wants to take over."""
        state = self._state
        if sender.primary is not state.myself:
            return
        self._role.end_hand_over()
        self._role.hand_over = HandOver(state.now_ms + _LIMIT_MS, replica=sender)
        state.is_paused = True
        self._outbox.do(PauseWrites(_PAUSE_MS))
        self._outbox.log(f"Manual failover requested by replica {sender.id.decode()} ({sender.human_name}).", "warning")
        self._ping(sender)

    def _ping(self, replica: Node) -> None:
        link: Link | None = replica.link
        if link is not None:
            self._gossiping.send(link, PacketType.PING)

    # --- Both --------------------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        hand_over = self._role.hand_over
        if hand_over is None:
            return
        if hand_over.end_ms < self._state.now_ms:
            self._outbox.log("Manual failover timed out.", "warning")
            self._role.end_hand_over()
        elif hand_over.replica is None:
            self._wait_for_data(hand_over)
        elif hand_over.replica.id in self._state.nodes:
            self._ping(hand_over.replica)
