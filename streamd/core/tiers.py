"""What a type of value asks of the place that holds entries below those in memory; see streamd/tiered.

IDs are numbers of 128 bits here, `ms << 64 | seq`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamd.core.context import Context
    from streamd.keyspace.database import Database

__all__ = ["TierPart", "TierRange", "Tiers"]


@dataclass(frozen=True, eq=False)
class TierRange:
    """A range of a value, of which a part is not in memory.

    value       as it is now
    first       the lowest ID, `last` the highest
    count       how many entries at most; -1: all
    live_limit  the ID before the first entry in memory; the last ID of an empty stream
    trimmed     up to which ID archivers have trimmed, perhaps around entries that are still in memory; 0: they have not
    """

    key: bytes
    value: object
    first: int
    last: int
    is_reverse: bool
    count: int
    live_limit: int
    trimmed: int

    @property
    def limit(self) -> int:
        """The last ID at or below which entries may have left memory."""
        return max(self.live_limit, self.trimmed)


class TierPart:
    """The archived entries of a range, in its order, as elements of a reply.

    border  the entries at or below this ID come from here, those above it from memory
    rows    for each entry `ms`, `seq` and where it ends in `data`
    """

    def __init__(self, border: int, rows: memoryview, data: memoryview, *, is_reverse: bool) -> None:
        self.border = border
        self._rows = rows
        self._data = data
        self._is_reverse = is_reverse

    def id_at(self, at: int) -> int:
        return int(self._rows[3 * at]) << 64 | int(self._rows[3 * at + 1])

    def end_of(self, at: int) -> int:
        return int(self._rows[3 * at + 2])

    @property
    def count(self) -> int:
        """How many entries it has, those above the border among them."""
        return len(self._rows) // 3

    @property
    def bounds(self) -> tuple[int, int]:
        """The entries [start, stop) that are not above the border."""
        if self._is_reverse:
            return bisect_left(range(self.count), -self.border, key=lambda at: -self.id_at(at)), self.count
        return 0, bisect_right(range(self.count), self.border, key=self.id_at)

    def take(self, most: int) -> tuple[int, memoryview]:
        """The first entries that are not above the border, at most this number (-1: all): how many, and their bytes."""
        start, stop = self.bounds
        if most >= 0:
            stop = min(stop, start + most)
        if stop <= start:
            return 0, memoryview(b"")
        return stop - start, self._data[self.end_of(start - 1) if start else 0 : self.end_of(stop - 1)]


class Tiers:
    """Where entries are that were trimmed from memory.

    live_only  IDs of clients that read what is in memory, and nothing else
    """

    def __init__(self) -> None:
        self.live_only: set[int] = set()

    def trimmed_to(self, db: Database, key: bytes) -> int:
        """Up to which ID archivers have trimmed a key; 0: they have not."""
        raise NotImplementedError

    def read(self, ctx: Context, args: list[bytes], wanted: TierRange) -> TierPart | None:
        """The archived entries of a range. None: the client waits, and the request will be run again.

        Raises CommandError when they cannot be read.
        """
        raise NotImplementedError

    def facts(self, ctx: Context, args: list[bytes], key: bytes, value: object) -> dict[str, int | str] | None:
        """What is archived of a value. None: the client waits, and the request will be run again.

        Raises CommandError when that cannot be read.
        """
        raise NotImplementedError
