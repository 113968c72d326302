"""The row groups that were read last, decoded: `id` and `fields` of each, as one batch."""

from __future__ import annotations

from collections import OrderedDict

import pyarrow as pa

from streamd.archive.manifest import FileRecord
from streamd.archive.parquet import open_file
from streamd.archive.store import Place

__all__ = ["RowGroupCache"]


class RowGroupCache:
    """At most `most_bytes` of them; the least recently used one goes first."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._held: OrderedDict[tuple[str, int], pa.Table] = OrderedDict()
        self._bytes = 0

    def read(self, root: Place, file: FileRecord, at: int) -> pa.Table:
        """The row group `at` of a file. Raises what `open_file` does, for one that is not in the cache."""
        key = (file.path, at)
        if (found := self._held.get(key)) is not None:
            self._held.move_to_end(key)
            return found
        with open_file(root, file) as opened:
            found = opened.read_row_group(at, columns=["id", "fields"], use_threads=False).combine_chunks()
        self._keep(key, found)
        return found

    def _keep(self, key: tuple[str, int], group: pa.Table) -> None:
        if group.nbytes > self._most_bytes:
            return
        self._held[key] = group
        self._bytes += group.nbytes
        while self._bytes > self._most_bytes:
            _, oldest = self._held.popitem(last=False)
            self._bytes -= oldest.nbytes

    def clear(self) -> None:
        self._held.clear()
        self._bytes = 0
