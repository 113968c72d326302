"""Replies that several modules read: maps, texts, times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["as_text", "clock_ms", "pairs", "text_map"]


def pairs(reply: Sequence[Any]) -> dict[bytes, Any]:
    """A map of RESP2: alternating names and values."""
    return dict(zip(reply[::2], reply[1::2], strict=True))


def clock_ms(reply: Sequence[bytes]) -> int:
    """The reply of TIME as Unix time in milliseconds."""
    return int(reply[0]) * 1000 + int(reply[1]) // 1000


def text_map(reply: Any) -> dict[str, Any]:
    """A map of either protocol, with text keys."""
    if isinstance(reply, dict):
        return {as_text(name): value for name, value in reply.items()}
    return {as_text(reply[at]): reply[at + 1] for at in range(0, len(reply) - 1, 2)}


def as_text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
