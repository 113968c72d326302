"""New files from those of an archive: written to a staging folder and compared with the old ones. Nothing that counts is changed here.

Merges and deletions rewrite files (commit_recovery.py); a service merges in the background (background_merge.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from streamd.archive.archive_errors import CorruptArchiveError, VerifyError
from streamd.archive.layout import Layout
from streamd.archive.manifest import FileRecord, Range
from streamd.archive.parquet import COLUMNS, DatedFile, hash_of, read_rows, without, write_files
from streamd.archive.verify import count_gone
from streamd.client.points import MAX_ID
from streamd.disk import Disk

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Rewrite", "no_rows"]


def no_rows(rows: int) -> None:
    """For work whose progress nobody watches."""


class Rewrite:
    """Each group of files becomes one, without the entries with some IDs.

    groups     neighbours among the files that count, in order
    folder     a staging folder, which exists
    prefix     of the names of the files there; nobody else may use it
    leave_out  ranges of IDs, ascending and disjoint
    progress   called with numbers of rows as they are written, and again as they are compared
    """

    def __init__(
        self,
        layout: Layout,
        groups: Sequence[Sequence[FileRecord]],
        folder: Path,
        prefix: str,
        disk: Disk,
        *,
        leave_out: Sequence[Range] = (),
        progress: Callable[[int], None] = no_rows,
    ) -> None:
        self.files = [file for group in groups for file in group]
        self.written: list[DatedFile] = []
        self._root = layout.root
        self._groups = groups
        self._folder = folder
        self._prefix = prefix
        self._disk = disk
        self._leave_out = leave_out
        self._progress = progress

    def write(self) -> None:
        """Raises CorruptArchiveError for a file that differs from what was written."""
        for number, group in enumerate(self._groups):
            for file in group:
                if file.sha256 and hash_of(self._root / file.path) != file.sha256:
                    raise CorruptArchiveError(f"{file.path}: its bytes differ from those that were written")
            batches = without(self._counted(self._rows_of(group, COLUMNS)), self._leave_out)
            self.written += write_files(batches, self._folder, f"{self._prefix}-{number}", self._disk)

    def compare(self) -> None:
        """Raise VerifyError unless the new files hold what the old ones do, except what is left out: entry by entry."""
        columns = ("id", "fields")
        wanted = without(self._counted(self._rows_of(self.files, columns)), self._leave_out)
        written = self._rows_of([each.record for each in self.written], columns)
        if count_gone(written, wanted, "in the files before"):
            raise VerifyError("the rewritten files hold entries that the old ones do not")

    def _rows_of(self, files: Iterable[FileRecord], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """What files hold, in order."""
        for file in files:
            yield from read_rows(self._root, file, 0, MAX_ID, columns)

    def _counted(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            self._progress(batch.num_rows)
