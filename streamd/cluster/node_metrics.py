"""The metrics of a node of a cluster. All have the label `shard`, by which those of several nodes are added."""

from __future__ import annotations

from collections.abc import Iterator

from streamd.cluster.bus.nodes import Flag, State
from streamd.keyspace.hash_slot import SLOTS
from streamd.observe.metrics.metric_families import Family

__all__ = ["node_metrics"]

NODE = Family("streamd_cluster_node", "info", "A node of a cluster: labels `shard`, `node`, `role`.")


def gauge(name: str, help_text: str) -> Family:
    return Family(f"streamd_cluster_{name}", "gauge", f"{help_text} Label `shard`.")


UP = gauge("up", "Whether this node serves requests: cluster_state.")
OWN_SLOTS = gauge("slots", "Slots that this node serves; 0 on a replica.")
UNSERVED = gauge("slots_unserved", "Slots of the cluster without a primary that works, as this node sees it.")
KNOWN = gauge("known_nodes", "Nodes that this one knows, itself among them.")
FAILED = gauge("failed_nodes", "Those of them that have failed, or do not answer this node.")
SHARD_NODES = gauge("shard_nodes", "Nodes of its shard that work.")
EPOCH = gauge("current_epoch", "The highest epoch of the cluster that this node knows.")
CONFIG_EPOCH = gauge("config_epoch", "The epoch in which its primary has taken its slots.")


def node_metrics(state: State) -> Iterator[tuple[Family, list[tuple[dict[str, str], float]]]]:
    """Each metric with its samples: labels and value."""
    own, nodes = state.myself, state.nodes.values()
    shard = {"shard": own.shard_id.decode()}
    failed = [node for node in nodes if node.flags & (Flag.FAIL | Flag.PFAIL)]
    role = "primary" if own.is_primary else "replica"
    yield NODE, [({**shard, "node": own.id.decode(), "role": role}, 1)]
    values = {
        UP: state.is_ok,
        OWN_SLOTS: own.slot_count if own.is_primary else 0,
        UNSERVED: SLOTS - state.assigned.bit_count() + sum(node.slot_count for node in failed),
        KNOWN: len(nodes),
        FAILED: len(failed),
        SHARD_NODES: sum(node.shard_id == own.shard_id and node not in failed for node in nodes),
        EPOCH: state.current_epoch,
        CONFIG_EPOCH: (own.primary or own).config_epoch,
    }
    for family, value in values.items():
        yield family, [(shard, int(value))]
