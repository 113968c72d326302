"""Replies that several modules read: maps in RESP2, and the clock of a server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamd.client.connection import Connection

__all__ = ["clock_ms", "pairs", "server_ms"]


def pairs(reply: Sequence[Any]) -> dict[bytes, Any]:
    """A map of RESP2: alternating names and values."""
    return dict(zip(reply[::2], reply[1::2], strict=True))


def clock_ms(reply: Sequence[bytes]) -> int:
    """The reply of TIME as Unix time in milliseconds."""
    return int(reply[0]) * 1000 + int(reply[1]) // 1000


def server_ms(connection: Connection) -> int:
    """The server's clock: Unix time in milliseconds."""
    return clock_ms(connection.command("TIME"))
