"""A primary with `min-replicas-durable`, and a replica that confirms when the test says so."""

from __future__ import annotations

from .nodes import Node, wait_until
from .raw_replica import RawReplica

__all__ = ["LOSS_FREE", "REFUSED", "UNKNOWN", "DurableReplica", "attached", "open_replica", "wait_held"]

LOSS_FREE = {"appendonly": "yes", "appendfsync": "always", "min_replicas_durable": "1"}
REFUSED = b"NOREPLICAS Not enough good replicas to write."
UNKNOWN = b"NOREPLICAS Not enough replicas have confirmed this in time. It was executed, and may or may not be lost."


class DurableReplica(RawReplica):
    """A replica that confirms when the test says so."""

    def confirm(self, offset: int | None = None) -> None:
        """Everything, or what is up to an offset, is on disk."""
        at = self.node.offset if offset is None else offset
        self.send("REPLCONF", "ACK", at, "FACK", at)


def open_replica(primary: Node) -> DurableReplica:
    replica = DurableReplica(primary)
    replica.attach()
    return replica


def attached(primary: Node) -> DurableReplica:
    """A replica that has confirmed everything; the primary has noticed."""
    replica = open_replica(primary)

    def is_open() -> bool:
        replica.confirm()
        return primary.info()["durable_fenced"] == "0"

    wait_until(is_open, "the end of the fence")
    return replica


def wait_held(primary: Node, clients: int) -> None:
    """Wait until the replies of so many clients are held."""
    wait_until(
        lambda: primary.info()["durable_clients_waiting"] == str(clients), f"{clients} clients with held replies"
    )
