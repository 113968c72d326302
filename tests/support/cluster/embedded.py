"""Clusters of this process, as tests of the programs on clusters need them."""

from __future__ import annotations

from streamd.embedded import EmbeddedCluster
from support.servers import eventually

__all__ = ["move", "url_of", "wait_for_replicas"]


def url_of(cluster: EmbeddedCluster, *at: int) -> str:
    """The cluster, named by some of its nodes."""
    return "redis+cluster://" + ",".join(f"127.0.0.1:{cluster.nodes[number].port}" for number in at or (0,))


def move(cluster: EmbeddedCluster, first: int, last: int, at: int) -> None:
    """Slots to a node, atomically."""
    with cluster.nodes[at].client(decode_responses=True) as client:
        task = client.execute_command("CLUSTER", "MIGRATION", "IMPORT", first, last)

        def state() -> str:
            told = client.execute_command("CLUSTER", "MIGRATION", "STATUS", "ID", task)[0]
            return str(
                told.get("state") if isinstance(told, dict) else dict(zip(told[::2], told[1::2], strict=True))["state"]
            )

        eventually(lambda: state() == "completed")


def wait_for_replicas(cluster: EmbeddedCluster, port: int) -> None:
    """Until the replica of the primary at this port has all that was written so far."""
    node = next(each for each in cluster.nodes if each.port == port)
    with node.client() as client:
        eventually(lambda: client.wait(1, 1000) == 1)
