"""Parquet files of the archive: written in the order of IDs, one date each, and read back.

Columns: `id` (string), `ms`, `seq` (bigint, null above 2^63-1), `time` (timestamp), `fields` (array of field and value, as
binaries, in order and with duplicates): the default table of the data source, less the stream, which the folder names.
zstd; row groups of at most ROW_GROUP rows with statistics, so that readers skip what they do not need.

Used in Spark's tasks as well as without Spark, so this module depends on neither.
"""

from __future__ import annotations

import dataclasses
import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streamd.archive.archive_errors import ArchiveError, CorruptArchiveError, MissingFileError
from streamd.archive.layout import date_of
from streamd.archive.manifest import FileRecord, RowGroup
from streamd.archive.store import ObjectPath, ObjectReader, Place
from streamd.arrow.entry_table import default_table
from streamd.client.points import last_id_of, ms_of, parse_entry_id
from streamd.disk import Disk

__all__ = [
    "COLUMNS",
    "DatedFile",
    "FileWriter",
    "file_schema",
    "first_disorder",
    "ids_of",
    "near",
    "without",
    "write_files",
]

COLUMNS = ("id", "ms", "seq", "time", "fields")
ROW_GROUP = 65_536
ROWS_PER_FILE = 4_000_000
COMPRESSION_LEVEL = 3
DAY_MS = 86_400_000

ENCODINGS = {
    "id": "DELTA_BYTE_ARRAY",
    "ms": "DELTA_BINARY_PACKED",
    "seq": "DELTA_BINARY_PACKED",
    "time": "DELTA_BINARY_PACKED",
}
"""Of the columns of IDs, which rise."""

_FIELDS = "fields.list.element"


def file_schema() -> pa.Schema:
    """The schema of the files."""
    return default_table(*COLUMNS).schema


@dataclass(frozen=True)
class DatedFile:
    """A file that has been written, and the date that it belongs to. Its path is absolute until it is moved into place."""

    day: str
    record: FileRecord


@dataclass
class FileWriter:
    """Writes one file: rows of one date, in ascending order of IDs."""

    path: Path
    day: str
    schema: pa.Schema
    groups: list[RowGroup] = field(default_factory=list)
    rows: int = 0  # written and buffered
    _waiting: list[pa.RecordBatch] = field(default_factory=list)
    _waiting_rows: int = 0
    _writer: Any = None

    def add(self, batch: pa.RecordBatch) -> None:
        while batch.num_rows:
            head = batch.slice(0, ROW_GROUP - self._waiting_rows)
            self._waiting.append(head)
            self._waiting_rows += head.num_rows
            self.rows += head.num_rows
            if self._waiting_rows == ROW_GROUP:
                self._write_group()
            batch = batch.slice(head.num_rows)

    def _write_group(self) -> None:
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self.path,
                self.schema,
                compression="zstd",
                compression_level=COMPRESSION_LEVEL,
                write_statistics=["id", "ms", "seq", "time"],
                use_dictionary=[f"{_FIELDS}.field", f"{_FIELDS}.value"],
                column_encoding=ENCODINGS,
            )
        table = pa.Table.from_batches(self._waiting, self.schema)
        self._writer.write_table(table, row_group_size=ROW_GROUP)
        ids = table.column("id")
        first, last = parse_entry_id(ids[0].as_py()), parse_entry_id(ids[-1].as_py())
        self.groups.append(RowGroup(table.num_rows, first, last))
        self._waiting, self._waiting_rows = [], 0

    def close(self, disk: Disk) -> DatedFile:
        """Finish the file and sync it."""
        if self._waiting:
            self._write_group()
        self._writer.close()
        disk.sync_file(self.path)
        record = FileRecord(
            path=str(self.path),
            size=self.path.stat().st_size,
            rows=self.rows,
            first=self.groups[0].first,
            last=self.groups[-1].last,
            row_groups=tuple(self.groups),
            sha256=hash_of(self.path),
        )
        return DatedFile(self.day, record)


def write_files(
    batches: Iterable[pa.RecordBatch], folder: Path, prefix: str, disk: Disk, *, rows_per_file: int = ROWS_PER_FILE
) -> Iterator[DatedFile]:
    """Write batches, in ascending order of IDs, to files in a folder; yield each file when it is complete and synced.

    folder  a staging folder, which exists
    prefix  of the files' names; nobody else may use it
    Raises ArchiveError when the IDs are not ascending.
    """
    schema = file_schema()
    writer: FileWriter | None = None
    last, number = -1, 0
    for whole in batches:
        for day, batch in by_day(conformed(whole, schema)):
            ids = batch.column("id")
            if parse_entry_id(ids[0].as_py()) <= last or first_disorder(batch) is not None:
                raise ArchiveError(f"the source returned entries out of order, near {ids[0].as_py()}")
            last = parse_entry_id(ids[-1].as_py())
            if writer is not None and (writer.day != day or writer.rows >= rows_per_file):
                yield writer.close(disk)
                writer = None
            if writer is None:
                writer = FileWriter(folder / f"{prefix}-{number}.parquet", day, schema)
                number += 1
            writer.add(batch)
    if writer is not None:
        yield writer.close(disk)
    disk.sync_directory(folder)


def conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of the file schema, without what Spark adds to types (nullability)."""
    arrays = []
    for wanted in schema:
        array = batch.column(batch.schema.get_field_index(wanted.name))
        arrays.append(array if array.type == wanted.type else array.cast(wanted.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def by_day(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Cut a batch in the order of IDs into runs of one date."""
    ids = batch.column("id")
    start = 0
    while start < batch.num_rows:
        ms = ms_of(parse_entry_id(ids[start].as_py()))
        day = date_of(ms)
        # The first row of a later date, by bisection: most batches have none, and are done after one comparison.
        stop = batch.num_rows
        if date_of(ms_of(parse_entry_id(ids[stop - 1].as_py()))) != day:
            end = last_id_of(ms // DAY_MS * DAY_MS + DAY_MS - 1)
            low, high = start, stop - 1
            while low < high:
                middle = (low + high) // 2
                if parse_entry_id(ids[middle].as_py()) > end:
                    high = middle
                else:
                    low = middle + 1
            stop = low
        yield day, batch.slice(start, stop - start)
        start = stop


def first_disorder(batch: pa.RecordBatch) -> int | None:
    """The first row whose ID is not above the one before; None when all are in order."""
    if batch.num_rows < 2:
        return None
    ms, seq = batch.column("ms"), batch.column("seq")
    if ms.null_count or seq.null_count:  # IDs that do not fit: compare their texts
        ids = ids_of(batch.column("id"))
        return next((row for row in range(1, len(ids)) if ids[row] <= ids[row - 1]), None)
    rises = pc.or_(pc.greater(ms[1:], ms[:-1]), pc.and_(pc.equal(ms[1:], ms[:-1]), pc.greater(seq[1:], seq[:-1])))
    if pc.all(rises).as_py():
        return None
    return int(pc.index(rises, False).as_py()) + 1


def ids_of(column: pa.Array | pa.ChunkedArray) -> list[int]:
    return [parse_entry_id(text) for text in column.to_pylist()]


def hash_of(path: Place) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def open_parquet(path: Place) -> pq.ParquetFile:
    """Open any Parquet file. An object is read in few requests, each for what neighbouring columns need together."""
    source = ObjectReader(path) if isinstance(path, ObjectPath) else path
    return pq.ParquetFile(source, pre_buffer=source is not path)


def open_file(root: Place, record: FileRecord) -> pq.ParquetFile:
    """Open a file of the archive; raises CorruptArchiveError when it is missing or differs from its manifest."""
    path = root / record.path
    try:
        if path.stat().st_size != record.size:
            raise CorruptArchiveError(f"{path} has {path.stat().st_size} bytes; its manifest says {record.size}")
        file = open_parquet(path)
    except FileNotFoundError:
        raise MissingFileError(f"{path} is missing; a manifest names it") from None
    except pa.ArrowInvalid as error:
        raise CorruptArchiveError(f"{path} cannot be read: {error}") from error
    found = [file.metadata.row_group(at).num_rows for at in range(file.metadata.num_row_groups)]
    if found != [group.rows for group in record.row_groups]:
        file.close()
        raise CorruptArchiveError(f"{path} has row groups of {found} rows; its manifest says otherwise")
    return file


def read_rows(
    root: Place,
    record: FileRecord,
    low: int,
    high: int,
    columns: Iterable[str] = COLUMNS,
    *,
    groups: tuple[int, int] | None = None,
    batch_rows: int = 10_000,
) -> Iterator[pa.RecordBatch]:
    """The rows of a file with IDs in [low, high], in order, with these columns.

    groups  only the row groups [first, stop)
    Row groups outside of the range are not read; those at its edges are cut at the row.
    """
    first, stop = groups or (0, len(record.row_groups))
    wanted = [
        at for at in range(first, stop) if record.row_groups[at].last >= low and record.row_groups[at].first <= high
    ]
    if not wanted:
        return
    names = list(columns)
    with open_file(root, record) as file:
        for at in wanted:
            group = record.row_groups[at]
            is_whole = low <= group.first and group.last <= high
            asked = names if is_whole or "id" in names else ["id", *names]
            start, end = 0, group.rows
            seen = 0
            if not is_whole:
                ids = file.read_row_group(at, columns=["id"]).column("id")
                start, end = bounds_within(ids, low, high)
            for batch in file.iter_batches(batch_rows, row_groups=[at], columns=asked, use_threads=False):
                skip, keep = max(start - seen, 0), min(end - seen, batch.num_rows)
                seen += batch.num_rows
                if keep > skip:
                    yield batch.slice(skip, keep - skip).select(names)


def bounds_within(ids: pa.Array | pa.ChunkedArray, low: int, high: int) -> tuple[int, int]:
    """The rows [start, stop) with IDs in [low, high], of a column in order."""

    def rows_below(bound: int) -> int:
        start, stop = 0, len(ids)
        while start < stop:
            middle = (start + stop) // 2
            if parse_entry_id(ids[middle].as_py()) < bound:
                start = middle + 1
            else:
                stop = middle
        return start

    return rows_below(low), rows_below(high + 1)


def near(ranges: Sequence[tuple[int, int]], low: int, high: int) -> Sequence[tuple[int, int]]:
    """Those of the ranges, ascending and disjoint, that have IDs in [low, high]."""
    first = bisect_left(ranges, low, key=lambda each: each[1])
    return ranges[first : bisect_right(ranges, high, lo=first, key=lambda each: each[0])]


def without(batches: Iterable[pa.RecordBatch], ranges: Sequence[tuple[int, int]]) -> Iterator[pa.RecordBatch]:
    """Batches in ascending order of IDs, without the rows with IDs in any of the ranges, ascending and disjoint."""
    for batch in batches:
        if not batch.num_rows:
            continue
        ids = batch.column("id")
        start = 0
        for low, high in near(ranges, parse_entry_id(ids[0].as_py()), parse_entry_id(ids[-1].as_py())):
            first, stop = bounds_within(ids, low, high)
            if first > start:
                yield batch.slice(start, first - start)
            start = max(start, stop)
        if start < batch.num_rows:
            yield batch.slice(start)


def placed(file: DatedFile, path: str) -> FileRecord:
    """The record of a file that has been moved into place."""
    return dataclasses.replace(file.record, path=path)
