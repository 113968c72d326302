"""The columns of open tables.

    plain   id, ms, seq, time, stream, fields, date
    typed   id, ms, seq, time, stream, date, and a column for each field that the schema names

`stream` and `date` are partitions: the files do not repeat them. What fills the column of a field is decided where it is for
a user's schema in Spark (arrow/rows.pyx): of several fields with one name the last one counts, a missing field is null, and
so is a value that does not fit; then the whole entry, as JSON, is in the column `_corrupt_record` if the schema has one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa

from streamd.archive.open_format import TableConfig
from streamd.archive.parquet import file_schema
from streamd.arrow.ddl import FieldColumn, parse_columns
from streamd.arrow.entry_table import METADATA_NAMES, Column, TableLayout, default_table
from streamd.client.client_errors import OptionError

__all__ = [
    "CORRUPT",
    "canonical",
    "grown",
    "readable",
    "stored_schema",
    "table_schema",
    "typed_columns",
    "typed_layout",
]

CORRUPT = "_corrupt_record"
PARTITIONS = ("stream", "date")
KEPT = ("id", "ms", "seq", "time")
"""Columns of an entry's ID in a typed table's files."""

FORBIDDEN = re.compile(r"[\s,;{}()=.`\"\x00-\x1f]")
"""What Delta tables, or programs that read them, do not take in names of columns."""


def canonical(schema: str, prefix: str = "") -> str:
    """A schema in one form, for whatever form it was written in. Raises OptionError when no table can have it."""
    return ", ".join(map(str, checked(parse_columns(schema), prefix)))


def checked(columns: list[FieldColumn], prefix: str) -> list[FieldColumn]:
    taken = {(prefix + name).lower() for name in (*METADATA_NAMES, *PARTITIONS)}
    for each in columns:
        if each.name.lower() in taken:
            raise OptionError(
                "schema",
                f"column {each.name} is part of every table; when a field of that name is meant, give --metadata-prefix",
            )
        if FORBIDDEN.search(each.name):
            raise OptionError("schema", f"column {each.name!r}: tables cannot have such a name")
        if each.name == CORRUPT and each.type != "string":
            raise OptionError("schema", f"column {CORRUPT} must be a string")
    return columns


WIDER = {
    "tinyint": ("smallint", "int", "bigint"),
    "smallint": ("int", "bigint"),
    "int": ("bigint",),
    "float": ("double",),
}
"""What a type may become in a table that exists: what both formats allow."""


def grown(before: str, after: str) -> str:
    """A schema that has new columns and wider types, in the order of the one before, whose columns it keeps.

    Raises OptionError, naming the column, for one that narrows.
    """
    old, new = parse_columns(before), {each.name: each for each in parse_columns(after)}
    for each in old:
        if each.name not in new:
            raise OptionError(
                "schema", f"column {each.name} is missing: the columns of a table may grow, not go; {ANEW}"
            )
        if not is_as_wide(each, new[each.name]):
            raise OptionError(
                "schema", f"column {each.name} cannot become {new[each.name].type}: it is {each.type}; {ANEW}"
            )
    names = {each.name for each in old}
    return ", ".join(
        [*(str(new[each.name]) for each in old), *(str(each) for name, each in new.items() if name not in names)]
    )


ANEW = "drop the table first, or give another --name"


def is_as_wide(old: FieldColumn, new: FieldColumn) -> bool:
    """Whether a column holds every value that it held before, and may become so in place."""
    if old.column.kind == new.column.kind == "decimal":
        return old.column.scale == new.column.scale and old.column.precision <= new.column.precision
    return new.type == old.type or new.type in WIDER.get(old.type, ())


def typed_columns(config: TableConfig) -> list[FieldColumn]:
    return checked(parse_columns(config.schema or ""), config.prefix)


def typed_layout(config: TableConfig) -> TableLayout:
    """What is in the files of a typed table, in order."""
    plain, fields = default_table(*KEPT), typed_columns(config)
    columns = [Column(config.column(each.name), each.source, each.kind) for each in plain.columns]
    columns += [Column(CORRUPT, "corrupt", "string") if each.name == CORRUPT else each.column for each in fields]
    kinds = [*plain.schema.types, *(each.arrow for each in fields)]
    names = [each.name for each in columns]
    return TableLayout(tuple(columns), "PERMISSIVE", pa.schema(list(zip(names, kinds, strict=True))))


def stored_schema(config: TableConfig) -> pa.Schema:
    """What is in the files of a typed table, in the types of its format: Iceberg has no integers of 8 and 16 bits."""
    found = typed_layout(config).schema
    if config.format != "iceberg":
        return found
    small = (pa.int8(), pa.int16())
    return pa.schema([each.with_type(pa.int32()) if each.type in small else each for each in found])


def table_schema(config: TableConfig) -> pa.Schema:
    """All columns of a table, in order."""
    partitions = [pa.field(config.column("stream"), pa.string()), pa.field(config.column("date"), pa.date32())]
    if config.schema is None:
        return pa.schema([*file_schema(), *partitions])
    found = list(stored_schema(config))
    return pa.schema([*found[: len(KEPT)], *partitions, *found[len(KEPT) :]])


def readable(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows; in strings, U+FFFD for what is not UTF-8, at which programs would stop that read the file."""
    columns = [repaired(each) if pa.types.is_string(each.type) else each for each in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def repaired(column: pa.Array) -> pa.Array:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        values: Sequence[bytes | None] = column.view(pa.binary()).to_pylist()
        texts = [None if each is None else each.decode(errors="replace") for each in values]
        return pa.array(texts, pa.string())
    return column
