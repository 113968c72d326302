"""What releases after 8.6.3 changed, and streamd with them: where tests that compare with a Redis 8.6.3 look it up."""

from __future__ import annotations

from collections.abc import Iterable

from .wire import Reply

__all__ = ["LATER_OPTIONS", "flags_before"]

INCOMPLETE_KEYS = frozenset({"xread", "xreadgroup"})
"""Commands whose key specification is marked as incomplete since 8.6.6."""

LATER_OPTIONS: dict[str, frozenset[bytes]] = {}
"""Arguments in COMMAND DOCS that are newer, by the name of their command."""


def flags_before(command: str, flags: Iterable[Reply]) -> list[Reply]:
    """The flags of a key specification as 8.6.3 has them."""
    return [flag for flag in flags if command not in INCOMPLETE_KEYS or flag.value != b"incomplete"]
