"""What the rules of a stream have done with times in its entries since the server started, and what could not be done."""

from __future__ import annotations

from dataclasses import dataclass, field

from streamd.core.context import Context
from streamd.delivery.per_server import part_of

__all__ = ["Progress", "ProgressOfAll", "all_progress", "progress_of"]


@dataclass
class Progress:
    """That of one stream.

    moved       entries that were due, and were moved
    replaced    entries that a later one has replaced, deleted
    expired     entries whose time was over, deleted
    unreadable  entries whose time is not a number, among those in the stream as it was read last
    error       why an entry that is due could not be moved; empty: it could
    """

    moved: int = 0
    replaced: int = 0
    expired: int = 0
    unreadable: int = 0
    error: str = ""


@dataclass
class ProgressOfAll:
    """That of all streams together, and of each that has a rule, by the index of its database and its key."""

    by_stream: dict[tuple[int, bytes], Progress] = field(default_factory=dict)
    past: Progress = field(default_factory=Progress)

    def sums(self) -> tuple[int, int, int, int, int]:
        """Entries moved, replaced, expired and unreadable, and streams with an entry that could not be moved."""
        found = [self.past, *self.by_stream.values()]
        return (
            sum(each.moved for each in found),
            sum(each.replaced for each in found),
            sum(each.expired for each in found),
            sum(each.unreadable for each in found),
            sum(bool(each.error) for each in found),
        )

    def forget(self, db_index: int, key: bytes) -> None:
        """A stream has no rule any more; what was done still counts in the sums."""
        gone = self.by_stream.pop((db_index, key), None)
        if gone is not None:
            self.past.moved += gone.moved
            self.past.replaced += gone.replaced
            self.past.expired += gone.expired


def all_progress(context: Context) -> ProgressOfAll:
    """That of the server that commands run in."""
    return part_of(context, ProgressOfAll)


def progress_of(context: Context, key: bytes) -> Progress:
    """That of a stream of the selected database."""
    return all_progress(context).by_stream.setdefault((context.db.index, key), Progress())
