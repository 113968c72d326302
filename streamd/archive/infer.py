"""Proposes a schema for typed tables, from a sample of what is archived.

A type fits a field if it can hold all values in the sample, by the rules that make the table's columns (arrow/rows.pyx); the first one that
fits, of TYPES, is proposed. A sample proves nothing about the rest: values that do not fit their column are null, or rejected.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from streamd.archive.archived_rows import read_file
from streamd.archive.layout import Layout
from streamd.archive.manifest_log import ManifestLog
from streamd.arrow.ddl import FieldColumn, parse_columns
from streamd.arrow.entry_table import TableLayout
from streamd.arrow.recast import RowCaster

__all__ = ["InferredColumn", "infer_columns"]

TYPES = ("bigint", "double", "boolean", "date", "timestamp", "string")
"""From narrow to wide; what fits none of them is `binary`."""

WRITTEN = {
    "bigint": re.compile(rb"0|-?[1-9]\d*"),  # a number with leading zeros is a name
    "double": re.compile(rb"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?|(?i:nan|-?inf(inity)?)"),
    "boolean": re.compile(rb"(?i:true|false)"),
    "date": re.compile(rb"\d{4}-\d\d-\d\d"),
    "timestamp": re.compile(rb"\d{4}-\d\d-\d\d[T ].*"),
}
"""How values of a type are written when nothing else is meant by them: more can be cast."""

PIECES = 32
"""From so many row groups a sample is taken, evenly spread over what is archived."""


@dataclass(frozen=True)
class InferredColumn:
    """A field, the type proposed, and how many values of it were in the sample."""

    name: str
    type: str
    values: int

    @property
    def column(self) -> FieldColumn:
        return column_of(self.name, self.type)


def infer_columns(layout: Layout, streams: Iterable[str], rows: int) -> list[InferredColumn]:
    """The fields of a sample of about so many entries of each stream, in the order in which they first occur; names that are not UTF-8
    are left out. Raises ArchiveError for a stream that is not archived."""
    found: dict[str, list[pa.Array]] = {}
    for stream in streams:
        for names, values in sampled(layout, ManifestLog.read_archived(layout, stream), rows):
            for name in pc.unique(names).to_pylist():
                if (text := as_text(name)) is not None:
                    found.setdefault(text, []).append(values.filter(pc.equal(names, name)))
    return [InferredColumn(name, type_of(name, pieces), sum(map(len, pieces))) for name, pieces in found.items()]


def sampled(layout: Layout, log: ManifestLog, rows: int) -> Iterator[tuple[pa.Array, pa.Array]]:
    """Names and values of the fields of entries, from row groups that lie evenly spread."""
    groups = [(file, at) for file in log.files for at in range(len(file.row_groups))]
    pieces = min(PIECES, len(groups))
    for piece in range(pieces):
        file, at = groups[piece * len(groups) // pieces]
        group, left = file.row_groups[at], -(-rows // pieces)
        for batch in read_file(
            layout, log.stream, file, group.first, group.last, ("fields",), groups=(at, at + 1), batch_rows=left
        ):
            fields = batch.column("fields").slice(0, left).flatten()
            yield fields.field("field"), fields.field("value")
            break


def as_text(name: bytes) -> str | None:
    try:
        return name.decode()
    except UnicodeDecodeError:
        return None


def type_of(name: str, pieces: Sequence[pa.Array]) -> str:
    values = pa.concat_arrays(pieces)
    return next((each for each in TYPES if fits(values, each)), "binary")


def fits(values: pa.Array, kind: str) -> bool:
    """Whether all values are written like the type, and can be cast to it."""
    if (written := WRITTEN.get(kind)) is not None and not all(map(written.fullmatch, values.to_pylist())):
        return False
    if kind == "string":
        return None not in map(as_text, values.to_pylist())
    column = column_of("f", kind)
    table = TableLayout((column.column,), "PERMISSIVE", pa.schema([("f", column.arrow)]))
    fields = pa.StructArray.from_arrays([pa.repeat(pa.scalar(b"f"), len(values)), values], ["field", "value"])
    lists = pa.ListArray.from_arrays(pa.array(range(len(values) + 1), pa.int32()), fields)
    return bool(RowCaster(table, b"").cast(pa.repeat("1-1", len(values)), lists).column(0).null_count == 0)


def column_of(name: str, kind: str) -> FieldColumn:
    quoted = name.replace("`", "``")
    (column,) = parse_columns(f"`{quoted}` {kind}")
    return column
