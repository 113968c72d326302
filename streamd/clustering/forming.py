"""Nodes that know nothing become a cluster, and waiting until all nodes of a cluster agree.

Nodes learn of each other's slots with the PINGs of the bus, which are rare by default. While a cluster forms they are sent at every
tick (`cluster-ping-interval`), and each node meets every other, so that all agree within half a second.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import combinations

from streamd.client.client_errors import ServerError, UnreachableError
from streamd.clustering.cluster_error import ClusterError
from streamd.clustering.deadline_waits import Patience
from streamd.clustering.node_connection import Node
from streamd.clustering.shares import first_shares, replicas_of
from streamd.clustering.view import NodeView

__all__ = ["check_counts", "find_disagreement", "form", "frequent_pings", "meet", "wait_for_agreement"]

PING_INTERVAL = "cluster-ping-interval"


def check_counts(nodes: int, replicas: int) -> None:
    """Refuse a cluster without primaries. Raises ClusterError."""
    if replicas and nodes < replicas + 1:
        raise ClusterError(
            f"--replicas {replicas}: {nodes} nodes are too few for a primary with {replicas} replicas; start {replicas + 1} or more"
        )


def form(nodes: Sequence[Node], replicas: int, patience: Patience) -> None:
    """Make new nodes one cluster; returns when all see `cluster_state:ok` and the same owners of slots.

    replicas  of each primary; the primaries are the first nodes
    Raises ClusterError, and before anything has changed if a node is not new.
    """
    check_counts(len(nodes), replicas)
    for node in nodes:
        if len(node.nodes()) > 1 or node.cluster_info()["cluster_slots_assigned"] != "0":
            raise ClusterError(f"The node {node} belongs to a cluster already: use an empty one")
        if node.info("keyspace"):
            raise ClusterError(f"The node {node} has keys: use an empty one, or delete them with FLUSHALL")
    followed = replicas_of(len(nodes), replicas)
    primaries = nodes[: len(nodes) - len(followed)]
    with frequent_pings(nodes):
        for number, node in enumerate(nodes, 1):
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", number)
        for node, (first, last) in zip(primaries, first_shares(len(primaries)), strict=True):
            node.ask("CLUSTER", "ADDSLOTSRANGE", first, last)
        meet(nodes, patience)
        for node, primary in zip(nodes[len(primaries) :], followed, strict=True):
            node.ask("CLUSTER", "REPLICATE", primaries[primary].id)
        wait_for_agreement(nodes, patience)


def meet(nodes: Sequence[Node], patience: Patience, strangers: Sequence[Node] | None = None) -> None:
    """Let all nodes know each other. strangers: those that the others do not know yet; None: all."""
    new = nodes if strangers is None else strangers
    for one, other in combinations(nodes, 2):
        if one in new or other in new:
            one.ask("CLUSTER", "MEET", other.place.host, other.place.port, other.bus_port)
    ids = {node.id for node in nodes}

    def is_known(node: Node) -> bool:
        known = node.nodes()
        return ids <= known.keys() and all(each.is_settled for each in known.values())

    patience.wait(
        lambda: all(map(is_known, nodes)),
        lambda: "The nodes do not meet: check that they reach each other's ports, and cluster-announce-ip",
    )


@contextmanager
def frequent_pings(nodes: Sequence[Node]) -> Iterator[None]:
    """Let nodes tell each other of changes at once, inside this block."""
    before = [node.setting(PING_INTERVAL) for node in nodes]
    try:
        for node, value in zip(nodes, before, strict=True):
            if value:
                node.ask("CONFIG", "SET", PING_INTERVAL, 1)
        yield
    finally:
        for node, value in zip(nodes, before, strict=True):
            if value:
                with suppress(UnreachableError, ServerError):
                    node.ask("CONFIG", "SET", PING_INTERVAL, value)


def wait_for_agreement(nodes: Sequence[Node], patience: Patience) -> None:
    """Return when all nodes see `cluster_state:ok`, and the same owners and primaries. Raises ClusterError."""
    patience.wait(
        lambda: find_disagreement(nodes) is None, lambda: f"{find_disagreement(nodes)}; see the logs of the nodes"
    )


def find_disagreement(nodes: Sequence[Node]) -> str | None:
    """What is missing for all nodes to agree; None: they do."""
    views = []
    for node in nodes:
        try:
            if node.cluster_info().get("cluster_state") != "ok":
                return f"The node {node} does not see cluster_state:ok"
            views.append(beliefs(node.nodes()))
        except (ServerError, UnreachableError) as error:
            return str(error)
    for node, view in zip(nodes, views, strict=True):
        if view != views[0]:
            return f"The nodes {nodes[0]} and {node} see different owners of slots"
    return None


def beliefs(nodes: dict[str, NodeView]) -> object:
    """What all nodes have to agree on: who owns which slots, and who follows whom."""
    return {node.id: (node.primary_id, node.ranges) for node in nodes.values()}
