"""What is asked of all primaries of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar

from streamd.client.client_errors import UnreachableError
from streamd.client.connection import Connection, find_topology, open_node, repeated, run
from streamd.client.options import ConnectionOptions

__all__ = ["on_primaries"]

T = TypeVar("T")

MAX_ROUNDS = 8
"""How often the primaries are asked while slots move; each moves once, so that two rounds find everything."""


def on_primaries(options: ConnectionOptions, action: Callable[[Connection], Collection[T]]) -> set[T]:
    """What an action finds at the server, or at all primaries of a cluster together.

    It is done again at all of them when slots have moved meanwhile, so that nothing is missed that went from a node that had not been
    asked to one that had been; and when a node has failed, until another one serves its slots. The action must be repeatable.
    """
    if not options.cluster_nodes:
        return set(run(options, action))
    found: set[T] = set()

    def attempt() -> bool:
        """Whether no slot moved, and none was about to."""
        before = find_topology(options)
        is_moving = False
        for node in before.primaries:
            with open_node(options, node) as connection:
                is_moving |= has_open_slots(connection)
                found.update(action(connection))
                is_moving |= has_open_slots(connection)
        if before.unserved:
            raise UnreachableError(f"{before.unserved} slots of {options.place} are not served")
        return not is_moving and find_topology(options).owners == before.owners

    for _ in range(MAX_ROUNDS):
        if repeated(options, attempt):
            break
    return found


def has_open_slots(connection: Connection) -> bool:
    """Whether slots are being moved from or to a node, key by key: it lists them in brackets."""
    return b"[" in connection.command("CLUSTER", "NODES")
