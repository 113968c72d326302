"""What CLUSTER INFO shows of the core."""

from __future__ import annotations

from .nodes import Flag, State
from .packets import PacketType

__all__ = ["describe_state"]


def describe_state(state: State) -> list[tuple[str, str]]:
    """The fields from cluster_state to cluster_stats_messages_received, in Redis's order."""
    suspect = sum(node.slot_count for node in state.nodes.values() if node.flags & Flag.PFAIL)
    failed = sum(node.slot_count for node in state.nodes.values() if node.flags & Flag.FAIL)
    assigned = state.assigned.bit_count()
    speaker = state.myself.primary or state.myself
    fields = [
        ("cluster_state", "ok" if state.is_ok else "fail"),
        ("cluster_slots_assigned", assigned),
        ("cluster_slots_ok", assigned - suspect - failed),
        ("cluster_slots_pfail", suspect),
        ("cluster_slots_fail", failed),
        ("cluster_known_nodes", len(state.nodes)),
        ("cluster_size", state.size),
        ("cluster_current_epoch", state.current_epoch),
        ("cluster_my_epoch", speaker.config_epoch),
    ]
    for direction, counts in (("sent", state.sent), ("received", state.received)):
        for type_, name in enumerate(PacketType.NAMES):
            if counts.get(type_):
                fields.append((f"cluster_stats_messages_{name}_{direction}", counts[type_]))
        fields.append((f"cluster_stats_messages_{direction}", sum(counts.values())))
    return [(name, str(value)) for name, value in fields]
