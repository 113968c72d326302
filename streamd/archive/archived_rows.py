"""Reads what is archived, also while an archiver replaces files (to merge them, or to delete entries)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from streamd.archive.archive_errors import MissingFileError
from streamd.archive.layout import Layout
from streamd.archive.manifest import FileRecord
from streamd.archive.manifest_log import LOOKS, ManifestLog
from streamd.archive.parquet import COLUMNS, read_rows

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["find_archived", "read_archived", "read_file"]


def read_archived(
    layout: Layout,
    stream: str,
    low: int,
    high: int,
    columns: Iterable[str] = COLUMNS,
    *,
    log: ManifestLog | None = None,
    batch_rows: int = 10_000,
) -> Iterator[pa.RecordBatch]:
    """The archived rows with IDs in [low, high], in order, with these columns.

    log  the manifests, when they have been read already
    Raises CorruptArchiveError for a file that is not there although the newest manifests name it.
    """
    log = log or ManifestLog.read(layout, stream)
    looks = 0  # consecutive failures
    while True:
        try:
            for file in log.files:
                if file.last < low or file.first > high:
                    continue
                # A file that is open can be read to its end, even when it is removed.
                yield from read_rows(layout.root, file, low, high, columns, batch_rows=batch_rows)
                low, looks = file.last + 1, 0
        except MissingFileError:
            log, looks = ManifestLog.read(layout, stream, known=log), looks + 1
            if looks == LOOKS or any(each.path == file.path for each in log.files):
                raise
        else:
            return


def find_archived(layout: Layout, log: ManifestLog, number: int) -> list[bytes] | None:
    """Fields and values, in turn, of the archived entry with this ID, or None. Reads one row group."""
    for batch in read_archived(layout, log.stream, number, number, ("fields",), log=log):
        for row in batch.to_pylist():
            return [word for pair in row["fields"] for word in (pair["field"], pair["value"])]
    return None


def read_file(
    layout: Layout,
    stream: str,
    file: FileRecord,
    low: int,
    high: int,
    columns: Iterable[str] = COLUMNS,
    *,
    groups: tuple[int, int],
    batch_rows: int = 10_000,
) -> Iterator[pa.RecordBatch]:
    """The rows with IDs in [low, high] of the row groups [first, stop) of a file; from its replacement, if it is gone."""
    columns = list(columns)
    try:
        yield from read_rows(layout.root, file, low, high, columns, groups=groups, batch_rows=batch_rows)
        return
    except MissingFileError:
        log = ManifestLog.read(layout, stream)
        if any(each.path == file.path for each in log.files):
            raise
    first, stop = groups
    low, high = max(low, file.row_groups[first].first), min(high, file.row_groups[stop - 1].last)
    yield from read_archived(layout, stream, low, high, columns, log=log, batch_rows=batch_rows)
