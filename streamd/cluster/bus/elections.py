"""Elections: a replica of a failed primary asks the primaries with slots for their votes, and with a majority takes its place.

    the primary is FAIL ─▶ wait 0.5 to 1 s, and 1 s more for each replica with more data ─▶ current epoch + 1, requests
                                                                                             │ a majority of votes
    the next attempt after four node timeouts ◀── too few votes in two node timeouts ◀───────┴──▶ primary, by this epoch

The wait lets a primary that is only cut off notice that it is in a minority. One whose process has ended, as its closed connection shows, is
not waited for: replicas then only wait until they know how much data the others have, which takes 0.2 to 0.4 s, and a single one not at all.

A vote is a promise: one per epoch, and per failed primary one in two node timeouts. It is on the disk before it is sent.
"""

from __future__ import annotations

from .claims import Claims
from .failures import Failures
from .gossip import Gossiping
from .nodes import Flag, Node, State
from .outbox import Outbox
from .packets import FORCE_ACK, Header, PacketType
from .role import Role

__all__ = ["Elections"]

_DELAY_MS = (500, 1000)
_SHORT_DELAY_MS = (
    200,
    400,
)  # until replicas know how much data the others have; by chance, so that they do not ask at once
_RANK_MS = 1000
_LEAST_ATTEMPT_MS = 2000


class Elections:
    """See the head of the module."""

    def __init__(
        self, state: State, outbox: Outbox, gossiping: Gossiping, failures: Failures, claims: Claims, role: Role
    ) -> None:
        self._state = state
        self._outbox = outbox
        self._gossiping = gossiping
        self._failures = failures
        self._claims = claims
        self._role = role
        self._start_ms = 0  # of the attempt under way or the last one: when requests are sent; 0: none yet
        self._epoch = 0  # of the attempt; 0: its requests have not been sent
        self._rank = 0
        self._voters: set[bytes] = set()

    # --- Standing for election ---------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Go on with an attempt, or begin one, if this node is a replica that should."""
        primary = self._state.myself.primary
        if primary is None or not primary.slots or not self._should_stand(primary):
            return
        now_ms = self._state.now_ms
        attempt_ms = max(2 * self._state.options.node_timeout_ms, _LEAST_ATTEMPT_MS)
        if abs(now_ms - self._start_ms) > 2 * attempt_ms:
            self._begin(primary)
        elif not self._epoch and not self._is_requested:
            self._update_rank()
        if now_ms < self._start_ms or now_ms - self._start_ms > attempt_ms:
            return
        if not self._epoch:
            self._request_votes(primary)
        self._count()

    @property
    def _is_requested(self) -> bool:
        """Whether a CLUSTER FAILOVER has reached the point at which votes are requested."""
        return self._role.hand_over is not None and self._role.hand_over.may_start

    def start_over(self) -> None:
        """A fail-over on request need not wait for the time of the next attempt."""
        self._start_ms = 0
        self._epoch = 0
        self._voters.clear()

    def _should_stand(self, primary: Node) -> bool:
        if self._is_requested:
            return True
        if not primary.is_failed or self._state.options.replica_no_failover:
            return False
        return self._has_recent_data()

    def _has_recent_data(self) -> bool:
        options = self._state.options
        age_ms = self._state.local.silence_ms
        if age_ms > options.node_timeout_ms:
            age_ms -= options.node_timeout_ms
        allowed_ms = options.repl_ping_period_s * 1000 + options.node_timeout_ms * options.replica_validity_factor
        return not options.replica_validity_factor or age_ms <= allowed_ms

    def _begin(self, primary: Node) -> None:
        state = self._state
        self.start_over()
        self._start_ms, self._rank = state.now_ms, 0
        if self._is_requested:
            return
        self._rank = self._compute_rank()
        delay_ms = self._rank * _RANK_MS
        if not primary.has_hung_up:
            delay_ms += state.random.randrange(*_DELAY_MS)
        elif any(each is not state.myself and not each.is_failed for each in primary.replicas):
            delay_ms += state.random.randrange(*_SHORT_DELAY_MS)
        self._start_ms += delay_ms
        self._outbox.log(
            f"Start of election delayed for {delay_ms} milliseconds (rank #{self._rank}, offset {state.local.offset})."
        )
        self._gossiping.send_pong_to_shard()

    def _compute_rank(self) -> int:
        """How many replicas of the same primary have more data."""
        myself = self._state.myself
        primary, offset = myself.primary, self._state.local.offset
        assert primary is not None
        return sum(
            each is not myself and not each.flags & Flag.NOFAILOVER and each.offset > offset
            for each in primary.replicas
        )

    def _update_rank(self) -> None:
        rank = self._compute_rank()
        if rank > self._rank:
            added_ms = (rank - self._rank) * _RANK_MS
            self._start_ms += added_ms
            self._rank = rank
            self._outbox.log(f"Replica rank updated to #{rank}, added {added_ms} milliseconds of delay.")

    def _request_votes(self, primary: Node) -> None:
        state = self._state
        if not self._is_requested and self._is_news(primary):  # a node that does not know it yet would refuse
            self._outbox.broadcast(PacketType.FAIL, self._outbox.compose(PacketType.FAIL, primary.id))
        state.current_epoch += 1
        self._epoch = state.current_epoch
        state.changed(sync=True)
        self._outbox.log(f"Starting a failover election for epoch {self._epoch}.")
        packet = self._outbox.compose(PacketType.VOTE_REQUEST, force_ack=self._is_requested)
        self._outbox.broadcast(PacketType.VOTE_REQUEST, packet)

    def _is_news(self, failed: Node) -> bool:
        """Whether the agreement that a node has failed is so young that nobody can have revoked it.

        That it had failed when this node wrote its nodes.conf is no agreement.
        """
        state = self._state
        age_ms = state.now_ms - failed.fail_ms
        return state.started_ms < failed.fail_ms and age_ms <= 2 * state.options.node_timeout_ms

    def read_vote(self, sender: Node, header: Header) -> None:
        """A primary has voted for this node."""
        if sender.is_voter and self._epoch and header.current_epoch >= self._epoch:
            self._voters.add(sender.id)
            self.tick()

    def _count(self) -> None:
        if len(self._voters) < self._failures.quorum:
            return
        self._outbox.log("Failover election won: I'm the new master.")
        if self._state.myself.config_epoch < self._epoch:
            self._state.myself.config_epoch = self._epoch
            self._outbox.log(f"configEpoch set to {self._epoch} after successful failover")
        self.replace_primary()

    def replace_primary(self) -> None:
        """Take the place of the primary, by the config epoch that this node has."""
        state = self._state
        primary = state.myself.primary
        self.start_over()
        self._role.lead()
        if primary is not None:
            state.assign(primary.slots & ~state.unclaimed, state.myself)
        state.changed(sync=True)
        self._failures.judge()
        self._gossiping.broadcast_pong()
        self._role.end_hand_over()

    # --- Voting --------------------------------------------------------------------------------------------------------------

    def read_request(self, sender: Node, header: Header) -> None:
        """A replica asks for a vote."""
        state = self._state
        if not state.myself.is_voter:
            return
        if (reason := self._find_objection(sender, header)) is not None:
            self._outbox.log(f"Failover auth denied to {sender.id.decode()} ({sender.human_name}): {reason}")
            return
        primary = sender.primary
        assert primary is not None
        self._note_vote(primary)
        self._outbox.log(
            f"Failover auth granted to {sender.id.decode()} ({sender.human_name}) for epoch {state.current_epoch}"
        )
        if sender.link is not None:
            self._outbox.send(sender.link, PacketType.VOTE, self._outbox.compose(PacketType.VOTE))

    def _note_vote(self, primary: Node) -> None:
        state = self._state
        primary.voted_ms = state.now_ms
        state.last_vote_epoch = state.current_epoch
        state.changed(sync=True)

    def _find_objection(self, sender: Node, header: Header) -> str | None:
        """Why a replica does not get the vote of this node; None: it does."""
        state = self._state
        if header.current_epoch < state.current_epoch:
            return f"reqEpoch ({header.current_epoch}) < curEpoch({state.current_epoch})"
        if state.last_vote_epoch == state.current_epoch:
            return f"already voted for epoch {state.current_epoch}"
        primary = sender.primary
        if sender.is_primary:
            return "it is a master node"
        if primary is None:
            return "I don't know its master"
        if not primary.is_failed and not header.message_flags & FORCE_ACK:
            return "its master is up"
        waited_ms = state.now_ms - primary.voted_ms
        if waited_ms < 2 * state.options.node_timeout_ms:
            left_ms = 2 * state.options.node_timeout_ms - waited_ms
            return f"can't vote about this master before {left_ms} milliseconds"
        claimed = int.from_bytes(header.slot_bytes, "little") & state.assigned
        while claimed:
            slot = (claimed & -claimed).bit_length() - 1
            owner = state.owners[slot]
            assert owner is not None
            if owner.config_epoch > header.config_epoch:
                return f"slot {slot} epoch ({owner.config_epoch}) > reqEpoch ({header.config_epoch})"
            claimed &= ~owner.slots
        return None
