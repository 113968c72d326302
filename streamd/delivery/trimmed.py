"""How much the rules for retention have trimmed since the server started: by option, and by stream."""

from __future__ import annotations

from dataclasses import dataclass, field

from streamd.core.context import Context
from streamd.delivery.per_server import part_of

__all__ = ["REASONS", "Amount", "Trimmed", "trimmed_of"]

REASONS = ("length", "bytes", "age", "acked", "atmost")
"""The options that entries are trimmed for, as INFO has them."""


@dataclass
class Amount:
    """Entries, and bytes of memory that their nodes used."""

    entries: int = 0
    bytes: int = 0

    def add(self, entries: int, bytes: int) -> None:
        self.entries += entries
        self.bytes += bytes


@dataclass
class Trimmed:
    """Since the server started.

    by_reason  by the option that an entry was trimmed for
    by_stream  by the index of the database and the key, for streams that have a rule
    """

    by_reason: dict[str, Amount] = field(default_factory=lambda: {reason: Amount() for reason in REASONS})
    by_stream: dict[tuple[int, bytes], Amount] = field(default_factory=dict)


def trimmed_of(context: Context) -> Trimmed:
    """That of the server that commands run in."""
    return part_of(context, Trimmed)
