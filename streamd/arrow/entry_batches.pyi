from typing import final

from streamd.packed_entries import PackedEntries

@final
class EntryBatch:
    """A pyarrow.RecordBatch with the columns `id` and `fields`, ascending, with at least one row.

    Raises TypeError for other columns. IDs are numbers, `ms << 64 | seq`
    """

    rows: int
    nbytes: int

    def __new__(cls, batch: object) -> EntryBatch: ...
    @property
    def last(self) -> int:
        """The last ID."""

    def between(self, low: int, high: int) -> tuple[int, int]:
        """The rows [start, stop) with IDs in [low, high]."""

@final
class EntryPacker:
    """Packs `count` entries, one after the other."""

    count: int

    @property
    def size(self) -> int:
        """Their bytes, without the index."""

    def id_at(self, at: int) -> int: ...
    def size_of(self, count: int) -> int:
        """The bytes of so many of them, the first ones."""

    def add(
        self,
        batch: EntryBatch,
        start: int,
        stop: int,
        *,
        is_reverse: bool = False,
        most_bytes: int,
        enough_rows: int,
        enough_bytes: int,
        least_bytes: int = 0,
    ) -> int:
        """Add rows [start, stop), the last one first if `is_reverse`, until they are enough; returns how many.

        Enough are `enough_rows` entries, or `enough_bytes`, of all that were added, if these are `least_bytes`.
        A row that would make more than `most_bytes` of them is not added.
        """

    def add_all(self, other: EntryPacker, *, is_reverse: bool = False) -> None:
        """Add the entries of another one, the last one first if `is_reverse`."""

    def packed(self) -> PackedEntries: ...
