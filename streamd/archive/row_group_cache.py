"""The row groups that were read last: `id` and `fields` of each, decoded from its start to what was needed so far."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from streamd.archive.manifest import FileRecord
from streamd.archive.parquet import open_file
from streamd.archive.store import Place
from streamd.arrow.entry_batches import EntryBatch

__all__ = ["RowGroupCache"]

COLUMNS = ("id", "fields")

BATCH_ROWS = 4096
BATCH_BYTES = 1 << 20
"""What is decoded at a time: so many rows, or fewer if they are long."""

OPEN_MOST = 16
"""How many row groups are kept that are not decoded to their end: each has a file, and pages, in addition to its batches."""


class RowGroup:
    """A row group of a file.

    batches  decoded so far, with the last ID of each
    nbytes   of the batches, and of what is read and not decoded
    """

    def __init__(self, file: pq.ParquetFile, at: int) -> None:
        self._file: pq.ParquetFile | None = file
        metadata = file.metadata.row_group(at)
        self._rows_left = metadata.num_rows
        self._pages = metadata.total_byte_size
        row_bytes = max(1, metadata.total_byte_size // max(1, metadata.num_rows))
        size = max(1, min(BATCH_ROWS, BATCH_BYTES // row_bytes))
        self._decoding: Iterator[pa.RecordBatch] = file.iter_batches(
            size, row_groups=[at], columns=list(COLUMNS), use_threads=False
        )
        self.batches: list[tuple[EntryBatch, int]] = []
        self._decoded = 0

    @property
    def is_open(self) -> bool:
        return self._file is not None

    @property
    def nbytes(self) -> int:
        return self._decoded + (self._pages if self.is_open else 0)

    def decode(self) -> bool:
        """Decode another batch; False at the end."""
        if self._file is None:
            return False
        batch = EntryBatch(next(self._decoding))
        self.batches.append((batch, batch.last))
        self._decoded += batch.nbytes
        self._rows_left -= batch.rows
        if self._rows_left <= 0:
            self._decoding = iter(())
            self._file.close()
            self._file = None
        return True


class RowGroupCache:
    """At most `most_bytes` of them; the least recently used one goes first."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._held: OrderedDict[tuple[str, int], RowGroup] = OrderedDict()

    def rows(
        self, root: Place, file: FileRecord, at: int, low: int, high: int
    ) -> Iterator[tuple[EntryBatch, int, int]]:
        """The rows with IDs in [low, high] of the row group `at` of a file, ascending: batches, and rows [start, stop) of each.

        No more is decoded than the caller takes. Raises what `open_file` does, for a row group that is not in the cache.
        """
        key = (file.path, at)
        group = self._held.pop(key, None)
        if group is None:
            group = RowGroup(open_file(root, file), at)
        self._held[key] = group
        number = 0
        while number < len(group.batches) or self._decode(key, group):
            batch, last = group.batches[number]
            number += 1
            if last < low:
                continue
            start, stop = batch.between(low, high)
            if stop > start:
                yield batch, start, stop
            if last >= high:
                return

    def _decode(self, key: tuple[str, int], group: RowGroup) -> bool:
        try:
            is_more = group.decode()
        except BaseException:
            self._held.pop(key, None)  # it cannot go on
            raise
        self._trim(key)
        return is_more

    def _trim(self, newest: tuple[str, int]) -> None:
        held = self._held
        if newest in held and held[newest].nbytes > self._most_bytes:
            del held[newest]
        while sum(group.nbytes for group in held.values()) > self._most_bytes:
            held.popitem(last=False)
        opened = [key for key, group in held.items() if group.is_open]
        for key in opened[:-OPEN_MOST]:
            del held[key]

    def clear(self) -> None:
        self._held.clear()
