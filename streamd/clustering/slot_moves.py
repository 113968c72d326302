"""Moving slots with all their keys, by CLUSTER MIGRATION of the node that gets them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from streamd.clustering.cluster_error import ClusterError
from streamd.clustering.deadline_waits import Patience
from streamd.clustering.node_connection import Node
from streamd.clustering.shares import Move

__all__ = ["carry_out"]

ATTEMPTS = 30
"""A node tries again a second after an attempt has failed, for ever; this is when to give up."""


def carry_out(
    moves: Sequence[Move], nodes: Mapping[str, Node], patience: Patience, report: Callable[[Move], object]
) -> None:
    """Move slots, one move after the other; `report` is called before each.

    nodes  by their IDs
    Raises ClusterError when a move fails, after cancelling it: the slots of that move stay where they are. So they do when the wait is
    ended by its check.
    """
    for move in moves:
        report(move)
        _carry_out(move, nodes[move.source], nodes[move.target], patience)


def _carry_out(move: Move, source: Node, target: Node, patience: Patience) -> None:
    task = target.ask("CLUSTER", "MIGRATION", "IMPORT", *(end for both in move.ranges for end in both)).decode()
    last: dict[str, str] = {}

    def problem() -> str:
        return f"Slots of {source} have not moved to {target}: {last.get('last_error') or last.get('state')}"

    try:
        patience.wait(lambda: _is_over(target, task, last), problem)
    except BaseException:
        target.ask("CLUSTER", "MIGRATION", "CANCEL", "ID", task)
        raise
    if last.get("state") != "completed":
        target.ask("CLUSTER", "MIGRATION", "CANCEL", "ID", task)
        raise ClusterError(problem())
    # The old owner learns it from the bus, and goes on as the owner until then.
    patience.wait(lambda: _is_over(source, task, {}), lambda: f"{source} does not know yet that {target} has its slots")


def _is_over(node: Node, task: str, last: dict[str, str]) -> bool:
    """Whether a task has ended, or is not worth waiting for; `last` gets all that is said of it."""
    reply: list[Any] = node.ask("CLUSTER", "MIGRATION", "STATUS", "ID", task)
    flat = reply[0] if reply else []
    last.clear()
    for name, value in zip(flat[::2], flat[1::2], strict=True):
        last[name.decode()] = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    return last.get("state") in (None, "completed", "canceled") or int(last.get("retries", 0)) >= ATTEMPTS
