"""What releases after 8.6.3 changed, and streamd with them: where tests that compare with a Redis 8.6.3 look it up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .wire import Reply

__all__ = ["LATER_OPTIONS", "flags_before", "without_created"]

INCOMPLETE_KEYS = frozenset({"xread", "xreadgroup"})
"""Commands whose key specification is marked as incomplete since 8.6.6."""

LATER_OPTIONS: dict[str, frozenset[bytes]] = {}
"""Arguments in COMMAND DOCS that are newer, by the name of their command."""


def flags_before(command: str, flags: Iterable[Reply]) -> list[Reply]:
    """The flags of a key specification as 8.6.3 has them."""
    return [flag for flag in flags if command not in INCOMPLETE_KEYS or flag.value != b"incomplete"]


def without_created(effects: Iterable[Sequence[bytes]]) -> tuple[Sequence[bytes], ...]:
    """Effects without the consumers that they create: 8.6.3 does not propagate those that a read creates without a delivery."""
    return tuple(effect for effect in effects if effect[:2] != (b"XGROUP", b"CREATECONSUMER"))
