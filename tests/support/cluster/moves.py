"""Atomic slot migration as a test sees it: begin a task, and see where it stands."""

from __future__ import annotations

from typing import Any

from ..replicas.nodes import Node

__all__ = ["begin", "keys_inside", "plain", "status"]


def plain(reply: Any) -> Any:
    """A reply as Python values."""
    value = reply.value
    return [plain(each) for each in value] if isinstance(value, tuple) else value


def status(node: Node, task: bytes) -> dict[str, Any]:
    """What a node says of a task; empty if it knows none."""
    found = plain(node.call("CLUSTER", "MIGRATION", "STATUS", "ID", task))
    if not found:
        return {}
    flat = found[0]
    return {name.decode(): value for name, value in zip(flat[::2], flat[1::2], strict=True)}


def begin(target: Node, *ranges: int) -> bytes:
    task: bytes = target.call("CLUSTER", "MIGRATION", "IMPORT", *map(str, ranges)).value
    assert len(task) == 40, task
    return task


def keys_inside(node: Node) -> int:
    """All keys that a node has in memory, shown or not."""
    return int(node.info("keyspace").get("db0", "keys=0,").split("=")[1].split(",")[0])
