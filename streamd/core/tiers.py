"""What a type of value asks of the place that holds entries below those in memory; see streamd/tiered.

IDs are numbers of 128 bits here, `ms << 64 | seq`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from streamd.packed_entries import PackedEntries

if TYPE_CHECKING:
    from streamd.core.context import Context
    from streamd.keyspace.database import Database

__all__ = ["MAX_ID", "Fetched", "TierPart", "TierRange", "Tiers"]

MAX_ID = (1 << 128) - 1


@dataclass(frozen=True, eq=False)
class TierRange:
    """A range of a value, of which a part is not in memory.

    value       as it is now
    first       the lowest ID, `last` the highest
    count       how many entries at most; -1: all
    live_limit  the ID before the first entry in memory; the last ID of an empty stream
    trimmed     up to which ID archivers have trimmed, perhaps around entries that are still in memory; 0: they have not
    enough      so many bytes are enough, whatever `count` is; 0: they are not
    group       that reads the range: its consumers share what is read; None: nobody does
    ids         only these entries; None: all
    may_be_cut  the first ones of them will do, if together they are too long for a reply
    """

    key: bytes
    value: object
    first: int
    last: int
    is_reverse: bool
    count: int
    live_limit: int
    trimmed: int
    enough: int = 0
    group: bytes | None = None
    ids: tuple[int, ...] | None = None
    may_be_cut: bool = False

    @property
    def limit(self) -> int:
        """The last ID at or below which entries may have left memory."""
        return max(self.live_limit, self.trimmed)


class TierPart:
    """The archived entries of a range, in its order, as elements of a reply.

    border       the entries at or below this ID come from here, those above it from memory
    boundary     up to which ID the stream is archived
    left         archived entries above the last of `entries`; only for a group
    unread       nothing is known of what is above this ID, of the entries that were asked for by their IDs
    entries      of which those from `start` to `stop` are at or above `first` and not above the border
    """

    def __init__(
        self,
        first: int,
        border: int,
        entries: PackedEntries,
        *,
        is_reverse: bool,
        boundary: int = 0,
        left: int = 0,
        unread: int = MAX_ID,
    ) -> None:
        self.border = border
        self.boundary = boundary
        self.left = left
        self.unread = unread
        self.is_reverse = is_reverse
        self.entries = entries
        places = range(entries.count)
        if is_reverse:
            self.start = bisect_left(places, -border, key=lambda at: -entries.id_at(at))
            self.stop = bisect_right(places, -first, key=lambda at: -entries.id_at(at))
        else:
            self.start = bisect_left(places, first, key=entries.id_at)
            self.stop = bisect_right(places, border, key=entries.id_at)
        self.stop = max(self.start, self.stop)

    def find(self, entry_id: int) -> int:
        """The place of an entry; -1: it is not there. Only in ascending order."""
        at = bisect_left(range(self.stop), entry_id, key=self.entries.id_at)
        return at if at < self.stop and self.entries.id_at(at) == entry_id else -1

    @property
    def count(self) -> int:
        return self.stop - self.start

    @property
    def size(self) -> int:
        """In bytes."""
        return self.entries.size(self.start, self.stop)


class Fetched(Protocol):
    """What was read for the server itself."""

    def part(self, now: TierRange) -> TierPart | None:
        """The archived entries of the range, as it is now. None: the stream has changed in such a way that they do not suffice.

        Raises CommandError when they could not be read.
        """


class Tiers:
    """Where entries are that were trimmed from memory.

    live_only     IDs of clients that read what is in memory, and nothing else
    serve_groups  consumer groups read them, too
    """

    def __init__(self) -> None:
        self.live_only: set[int] = set()
        self.serve_groups = False

    def trimmed_to(self, db: Database, key: bytes) -> int:
        """Up to which ID archivers have trimmed a key; 0: they have not."""
        raise NotImplementedError

    def read(self, ctx: Context, args: list[bytes], wanted: TierRange, place: int = 0) -> TierPart | None:
        """The archived entries of a range. None: the client waits, and `args` will be run again.

        place  of the range among those of the request
        Raises CommandError when they cannot be read.
        """
        raise NotImplementedError

    def leave_out(self, ctx: Context, place: int) -> None:
        """What was read for a place is not written: the others may have its share of the longest reply."""
        raise NotImplementedError

    def fetch(self, db: Database, wanted: TierRange, done: Callable[[Fetched], None]) -> None:
        """Read a range for the server itself. `done` is called later, between two commands."""
        raise NotImplementedError

    def facts(self, ctx: Context, args: list[bytes], key: bytes, value: object) -> dict[str, int | str] | None:
        """What is archived of a value. None: the client waits, and the request will be run again.

        Raises CommandError when that cannot be read.
        """
        raise NotImplementedError
