"""The tables that entries become, as the compiled decoders fill them. Depends on Arrow, not on Spark.

    Column, TableLayout   what fills each column of a record batch
    default_table()       the default table, or some of its columns
    default_schema()      its Arrow schema

The default table, which keeps everything of an entry:

    id      string      `ms-seq`, canonical
    ms      int64       null above 2^63-1, as are the next two when they cannot hold the value; `id` holds everything
    seq     int64
    time    timestamp   of `ms`, in UTC
    stream  string      the key
    fields  list<struct<field: binary, value: binary>>   in order, with duplicates
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import pyarrow as pa

__all__ = ["METADATA_NAMES", "Column", "TableLayout", "default_schema", "default_table"]

METADATA_NAMES = ("id", "ms", "seq", "time", "stream", "fields")

DEFAULT_KINDS = {
    "id": "string",
    "ms": "bigint",
    "seq": "bigint",
    "time": "timestamp",
    "stream": "string",
    "fields": "pairs",
}
"""How the columns of the default table are built."""


@dataclass(frozen=True)
class Column:
    """One column of a table, as a decoder needs it.

    name    in the table
    source  what fills it: one of METADATA_NAMES; `field`: the field `name` of the entry; `corrupt`
    kind    how its values are made: see KINDS in rows.pyx
    """

    name: str
    source: str
    kind: str
    precision: int = 0
    scale: int = 0


@dataclass(frozen=True)
class TableLayout:
    """What a decoder fills, and what happens to values that do not fit.

    mode    PERMISSIVE, DROPMALFORMED, FAILFAST
    schema  of the record batches: a field for each column
    """

    columns: tuple[Column, ...]
    mode: str
    schema: pa.Schema


@functools.cache
def default_schema() -> pa.Schema:
    """The Arrow schema of the default table, as Spark has it."""
    pair = pa.struct([("field", pa.binary()), ("value", pa.binary())])
    return pa.schema(
        [
            ("id", pa.string()),
            ("ms", pa.int64()),
            ("seq", pa.int64()),
            ("time", pa.timestamp("us", "UTC")),
            ("stream", pa.string()),
            ("fields", pa.list_(pa.field("element", pair))),
        ]
    )


def default_table(*names: str) -> TableLayout:
    """The default table, or these of its columns."""
    chosen = names or METADATA_NAMES
    schema = default_schema()
    columns = tuple(Column(name, name, DEFAULT_KINDS[name]) for name in chosen)
    return TableLayout(columns, "PERMISSIVE", pa.schema([schema.field(name) for name in chosen]))
