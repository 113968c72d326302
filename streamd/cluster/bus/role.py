"""Role: this node becomes a replica or a primary. Every way to get there (an election, a command, lost slots) goes through here."""

from __future__ import annotations

from dataclasses import dataclass

from .actions import Follow, Promote, ResumeWrites
from .nodes import Node, State
from .outbox import Outbox

__all__ = ["HandOver", "Role"]


@dataclass(slots=True)
class HandOver:
    """A fail-over on request that is under way. On a replica it waits for its primary; on a primary, `replica` takes over."""

    end_ms: int
    replica: Node | None = None  # on the primary: who takes over
    offset: int = -1  # on the replica: where the primary has stopped, -1 until it is known
    may_start: bool = False  # on the replica: it need not wait any more


class Role:
    """The role of this node, and what depends on it."""

    def __init__(self, state: State, outbox: Outbox) -> None:
        self._state = state
        self._outbox = outbox
        self._followed: Follow | None = None  # the last instruction to the server
        self.hand_over: HandOver | None = None

    def follow(self, primary: Node) -> None:
        """Become a replica of a node."""
        state, myself = self._state, self._state.myself
        if myself.is_primary:
            state.migrating.clear()
            state.importing.clear()
            state.left_slots |= myself.slots
            state.unassign(myself.slots)
        elif myself.primary is not None and myself.primary is not primary:
            state.left_slots |= myself.primary.slots
        state.attach(myself, primary)
        state.left_slots &= ~primary.slots
        self.end_hand_over()
        self.check_followed()

    def lead(self) -> None:
        """Become a primary, without slots yet."""
        if self._state.myself.is_primary:
            return
        self._state.make_primary(self._state.myself)
        self._followed = None
        self._outbox.do(Promote())

    def check_followed(self) -> None:
        """Have the server replicate from the primary of this node, unless that was the last instruction."""
        primary = self._state.myself.primary
        if self._state.myself.is_primary or primary is None or not primary.has_address:
            return
        wanted = Follow(primary.id, primary.ip, primary.port, primary.tls_port)
        if wanted != self._followed:
            self._followed = wanted
            self._outbox.do(wanted)

    def end_hand_over(self) -> None:
        """Forget a fail-over on request; writes that waited for it go on."""
        if self._state.is_paused:
            self._state.is_paused = False
            self._outbox.do(ResumeWrites())
        self.hand_over = None
