"""The columns of open tables.

    plain   id, ms, seq, time, stream, fields, date
    typed   id, ms, seq, time, stream, date, and a column for each field that the schema names

    rejects id, ms, seq, time, stream, date, reason, entry (as JSON): of a typed table, what does not fit its columns

`stream` and `date` are partitions: the files do not repeat them. What fills the column of a field is decided where it is for
a user's schema in Spark (arrow/rows.pyx): of several fields with one name the last one counts, a missing field is null, and
so is a value that does not fit; then the whole entry, as JSON, is in the column `_corrupt_record` if the schema has one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from streamd.archive.open_format import TableConfig
from streamd.archive.parquet import file_schema
from streamd.arrow.ddl import FieldColumn, parse_columns
from streamd.arrow.entry_table import METADATA_NAMES, Column, TableLayout, default_table
from streamd.arrow.recast import RowCaster
from streamd.client.client_errors import MalformedError, OptionError

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
    mode = "PERMISSIVE" if config.rows == "all" else "DROPMALFORMED"
    return TableLayout(tuple(columns), mode, pa.schema(list(zip(names, kinds, strict=True))))


def rejects_layout(config: TableConfig) -> TableLayout:
    """As `typed_layout`, and in one more column, the last one, the whole entry where it does not fit."""
    made = typed_layout(config)
    column = Column(" rejected", "corrupt", "string")
    kept = [each for each in made.columns if each.source != "corrupt"]
    schema = pa.schema([*(made.schema.field(each.name) for each in kept), pa.field(column.name, pa.string())])
    return TableLayout((*kept, column), "PERMISSIVE", schema)


class RejectsCaster:
    """Lossless rows in, the rows of a table of rejects out."""

    def __init__(self, config: TableConfig, stream: bytes, shown: str) -> None:
        self._layout = rejects_layout(config)
        self._stream = stream
        self._shown = shown
        self._schema = stored_schema(config)
        self._caster = RowCaster(self._layout, stream)

    def cast(self, ids: pa.Array, fields: pa.Array) -> pa.RecordBatch:
        rows = self._caster.cast(ids, fields)
        entries = rows.column(rows.num_columns - 1)
        chosen = pa.array([at for at, is_fit in enumerate(entries.is_null().to_pylist()) if not is_fit], pa.int64())
        reasons = [self._reason(ids.slice(at, 1), fields.slice(at, 1)) for at in chosen.to_pylist()]
        kept = [rows.column(at).take(chosen) for at in range(len(KEPT))]
        return pa.RecordBatch.from_arrays(
            [*kept, pa.array(reasons, pa.string()), entries.take(chosen)], schema=self._schema
        )

    def _reason(self, entry_id: pa.Array, fields: pa.Array) -> str:
        strict = RowCaster(replace(self._layout, mode="FAILFAST"), self._stream)
        try:
            strict.cast(entry_id, fields)
        except MalformedError as error:
            return str(error).removeprefix(f"entry {entry_id[0]} of stream {self._shown}: ")
        return "it does not fit"


def stored_schema(config: TableConfig) -> pa.Schema:
    """What is in the files of a typed table, in the types of its format: Iceberg has no integers of 8 and 16 bits."""
    found = typed_layout(config).schema
    if config.rows == "rejects":
        kept = list(found)[: len(KEPT)]
        return pa.schema([*kept, pa.field("reason", pa.string()), pa.field("entry", pa.string())])
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
