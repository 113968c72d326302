"""Cores with a bug, each of which the simulation must find."""

from __future__ import annotations

import re

from streamd.cluster.bus.actions import Action, Save, Send
from streamd.cluster.bus.claims import Claims
from streamd.cluster.bus.core import ClusterCore
from streamd.cluster.bus.elections import Elections
from streamd.cluster.bus.failures import Failures
from streamd.cluster.bus.nodes import Flag, Node
from streamd.cluster.bus.packets import Header, PacketType, Update

__all__ = ["BUGS"]


class VoteNotSaved(ClusterCore):
    """nodes.conf does not say in which epoch the node has voted."""

    def take_actions(self) -> list[Action]:
        return [
            Save(re.sub(rb"lastVoteEpoch \d+", b"lastVoteEpoch 0", each.content), each.must_sync)
            if isinstance(each, Save)
            else each
            for each in super().take_actions()
        ]


class VoteNotSynced(ClusterCore):
    """A vote is written, but need not be on the disk when it is sent."""

    def take_actions(self) -> list[Action]:
        taken = super().take_actions()
        has_vote = any(isinstance(each, Send) and each.packet[13] == PacketType.VOTE for each in taken)
        return [Save(each.content, False) if has_vote and isinstance(each, Save) else each for each in taken]


class EpochReused(ClusterCore):
    """A replica that is elected goes on with the config epoch of its primary."""

    class Elections(Elections):
        def replace_primary(self) -> None:
            primary = self._state.myself.primary
            if primary is not None:
                self._state.myself.config_epoch = primary.config_epoch
            super().replace_primary()

    elections_type = Elections


class EpochNotSaved(ClusterCore):
    """A greater epoch that others know of is not written."""

    class Claims(Claims):
        def read_epochs(self, sender: Node, header: Header) -> None:
            state = self._state
            must_save, must_sync = state.must_save, state.must_sync
            super().read_epochs(sender, header)
            state.must_save, state.must_sync = must_save, must_sync

    claims_type = Claims


class UpdateIgnored(ClusterCore):
    """Nobody believes an UPDATE."""

    class Claims(Claims):
        def read_update(self, update: Update) -> None:
            pass

    claims_type = Claims


class FailOnOneReport(ClusterCore):
    """One report is enough to call a node failed."""

    class Failures(Failures):
        def report(self, node: Node, reporter: Node) -> None:
            if not node.is_failed:
                node.flags |= Flag.PFAIL
                node.reports.update(dict.fromkeys(self._state.nodes.values(), self._state.now_ms))
            super().report(node, reporter)

    failures_type = Failures


class VoteForAnybody(ClusterCore):
    """A voter does not look at whether it has voted in this epoch."""

    class Elections(Elections):
        def _find_objection(self, sender: Node, header: Header) -> str | None:
            self._state.last_vote_epoch = 0
            return super()._find_objection(sender, header)

    elections_type = Elections


BUGS: dict[str, type[ClusterCore]] = {
    each.__name__: each
    for each in (
        VoteNotSaved,
        VoteNotSynced,
        EpochReused,
        EpochNotSaved,
        UpdateIgnored,
        FailOnOneReport,
        VoteForAnybody,
    )
}
