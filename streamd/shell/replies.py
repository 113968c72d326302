"""The shapes of replies that depend on the protocol, made one."""

from __future__ import annotations

from typing import Any

__all__ = ["as_text", "pairs"]


def pairs(reply: Any) -> dict[str, Any]:
    """A map, which RESP2 sends as a list, with text keys."""
    if isinstance(reply, dict):
        return {as_text(name): value for name, value in reply.items()}
    return {as_text(reply[at]): reply[at + 1] for at in range(0, len(reply) - 1, 2)}


def as_text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
