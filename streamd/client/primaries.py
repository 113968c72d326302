"""What is asked of all primaries of a cluster, or of the one that each stream is at."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TypeVar

from streamd.client.client_errors import UnreachableError
from streamd.client.connection import Attempts, Connection, connect, find_topology, open_node, repeated, run
from streamd.client.url_options import ConnectionOptions

__all__ = ["at_streams", "on_primaries"]

T = TypeVar("T")


def on_primaries(options: ConnectionOptions, action: Callable[[Connection], Collection[T]]) -> set[T]:
    """What an action finds at the server, or at all primaries of a cluster together.

    It is done again at all of them when slots have moved meanwhile, so that nothing is missed that went from a node that had not been
    asked to one that had been; and when a node has failed, until another one serves its slots. The action must be repeatable. Raises
    UnreachableError when slots were moving at all attempts.
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

    rounds = Attempts(options)
    while not repeated(options, attempt):
        if not rounds.wait():
            raise UnreachableError(
                f"slots of {options.place} were being moved all the time: something may have been missed"
            )
    return found


def at_streams(options: ConnectionOptions, streams: Iterable[str], action: Callable[[Connection, str], T]) -> list[T]:
    """What an action finds of each stream: over one connection to a server, or at the node of a cluster that has it, where it is repeated
    as by `run`."""

    def at_node(stream: str) -> T:
        return run(options.at(stream), lambda connection: action(connection, stream))

    if options.cluster_nodes:
        return [at_node(stream) for stream in streams]
    with connect(options) as connection:
        return [action(connection, stream) for stream in streams]


def has_open_slots(connection: Connection) -> bool:
    """Whether slots are being moved from or to a node, key by key: it lists them in brackets."""
    return b"[" in connection.command("CLUSTER", "NODES")
