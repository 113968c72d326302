"""Records of the analytics as tables: Arrow, Parquet, entries of a stream.

A record is a frozen dataclass of plain values (streamd.report.groups has them); its fields are the columns, and their types
follow from the annotations. The records ensure that no value exceeds what its column can hold.
"""

from __future__ import annotations

import dataclasses
import json
import os
import typing
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from streamd.client.connection import Connection
from streamd.client.key_names import stream_key
from streamd.disk import replacing

if TYPE_CHECKING:
    import pyarrow

__all__ = ["append_to_stream", "record_fields", "to_arrow", "write_parquet"]

CHUNK = 1000
"""Records of one round trip."""


def arrow_type(annotation: Any) -> tuple[pyarrow.DataType, bool]:
    """The Arrow type of an annotation, and whether it may be null."""
    import pyarrow as pa

    kinds = [each for each in typing.get_args(annotation) if each is not type(None)]
    is_optional = len(kinds) < len(typing.get_args(annotation)) and len(kinds) == 1
    if is_optional:
        annotation = kinds[0]
    if typing.get_origin(annotation) is tuple:  # pairs of field and value
        pair = pa.struct([pa.field("field", pa.binary()), pa.field("value", pa.binary())])
        return pa.list_(pair), is_optional
    return {int: pa.int64(), float: pa.float64(), str: pa.string(), bool: pa.bool_()}[annotation], is_optional


def arrow_schema_of(kind: type[Any]) -> pyarrow.Schema:
    import pyarrow as pa

    annotations = typing.get_type_hints(kind)
    columns = [(each.name, *arrow_type(annotations[each.name])) for each in dataclasses.fields(kind)]
    return pa.schema([pa.field(name, found, nullable=is_optional) for name, found, is_optional in columns])


def to_arrow(kind: type[Any], records: Sequence[Any]) -> pyarrow.Table:
    """Records of one kind as a table; without records, a table without rows."""
    import pyarrow as pa

    schema = arrow_schema_of(kind)
    columns = [pa.array([_cell(getattr(record, column.name)) for record in records], column.type) for column in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _cell(value: Any) -> Any:
    if isinstance(value, tuple):
        return [{"field": field, "value": content} for field, content in value]
    # Names that are not UTF-8 cannot be stored in a text column.
    return value.encode(errors="surrogateescape").decode(errors="replace") if isinstance(value, str) else value


def write_parquet(kind: type[Any], records: Sequence[Any], path: str | os.PathLike[str]) -> None:
    """Write records as one Parquet file, which appears only when it is complete."""
    import pyarrow.parquet as pq

    with replacing(path, mode=0o666) as fd, os.fdopen(fd, "wb", closefd=False) as file:
        pq.write_table(to_arrow(kind, records), file, compression="zstd")


def record_fields(record: Any) -> list[bytes]:
    """A record as alternating fields and values: `record`, the name of its kind, then what is not null; pairs become JSON."""
    found = [b"record", type(record).__name__.encode()]
    for each in dataclasses.fields(record):
        value = getattr(record, each.name)
        if value is not None:
            found += (each.name.encode(), _value(value))
    return found


def _value(value: Any) -> bytes:
    if isinstance(value, bool):
        return b"1" if value else b"0"
    if isinstance(value, tuple):
        pairs = [[field.decode(errors="replace"), content.decode(errors="replace")] for field, content in value]
        return json.dumps(pairs, ensure_ascii=False).encode()
    return stream_key(value) if isinstance(value, str) else str(value).encode()


def append_to_stream(connection: Connection, key: str, records: Sequence[Any], *, maxlen: int | None = None) -> int:
    """Append each record as an entry; return how many.

    maxlen  trim the stream to about this number of entries meanwhile
    At least once: after a broken connection, some may be written twice.
    """
    trimming: tuple[str | int, ...] = () if maxlen is None else ("MAXLEN", "~", maxlen)
    for at in range(0, len(records), CHUNK):
        connection.pipeline(
            [("XADD", stream_key(key), *trimming, "*", *record_fields(each)) for each in records[at : at + CHUNK]]
        )
    return len(records)
