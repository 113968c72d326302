"""Migration of replicas: a replica that its primary can spare moves to a primary whose replicas have all failed."""

from __future__ import annotations

from .nodes import Flag, Node, State
from .outbox import Outbox
from .role import Role

__all__ = ["ReplicaMigration"]

_DELAY_MS = 5000
"""For how long a primary must have been without replicas: they may come back."""


class ReplicaMigration:
    """See the head of the module."""

    def __init__(self, state: State, outbox: Outbox, role: Role) -> None:
        self._state = state
        self._outbox = outbox
        self._role = role

    def tick(self) -> None:
        """Move this node, if it is the replica to be moved."""
        state, myself = self._state, self._state.myself
        mine = myself.primary
        if mine is None or not state.options.allow_replica_migration:
            return
        orphans, donors, most = self._survey()
        if not orphans or most < 2 or not state.is_ok:
            return
        if mine not in donors or mine.count_working_replicas() <= state.options.migration_barrier:
            return
        working = [each for donor in donors for each in donor.replicas if not each.flags & (Flag.FAIL | Flag.PFAIL)]
        due = [each for each in orphans if state.now_ms - each.orphaned_ms > _DELAY_MS]
        if due and min(working, key=lambda each: each.id) is myself:
            self._outbox.log(f"Migrating to orphaned master {due[0].id.decode()}")
            self._role.follow(due[0])

    def _survey(self) -> tuple[list[Node], list[Node], int]:
        """Primaries without working replicas; those with the most of them; how many these have."""
        orphans: list[Node] = []
        donors: list[Node] = []
        most = 0
        for node in self._state.nodes.values():
            if not node.is_primary or node.is_failed:
                node.orphaned_ms = 0
                continue
            working = node.count_working_replicas()
            if working or not node.slots or not node.flags & Flag.MIGRATE_TO:
                node.orphaned_ms = 0
            else:
                node.orphaned_ms = node.orphaned_ms or self._state.now_ms
                orphans.append(node)
            if working > most:
                most, donors = working, []
            if working == most and working:
                donors.append(node)
        return orphans, donors, most
