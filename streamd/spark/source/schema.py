"""The schemas of Spark: that of the default table (arrow/entry_table.py), and what a user's schema may ask for.

A user's schema may have any column of the default table, in any order, some in another type (`ms decimal(20,0)`,
`fields map<string,string>`); each other column is the value of the entry's field of that name, cast to the column's
type. If several fields have the same name, the last one counts; a missing field is null. One string column may receive
the entries that do not fit (`columnNameOfCorruptRecord`).
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from streamd.arrow.entry_table import METADATA_NAMES, Column, TableLayout
from streamd.client.client_errors import OptionError
from streamd.transfer.read_options import SourceOptions

if TYPE_CHECKING:
    import pyarrow

__all__ = ["DEFAULT_SCHEMA", "arrow_schema", "default_schema", "table_layout"]

DEFAULT_CORRUPT_COLUMN = "_corrupt_record"


def default_schema(prefix: str = "", fields: str = "binary") -> StructType:
    """The schema of a read without one.

    prefix  before all names (`metadataPrefix`)
    fields  what names and values of fields are: `binary`, `text`
    """
    kind = StringType() if fields == "text" else BinaryType()
    types = {
        "id": StringType(),
        "ms": LongType(),
        "seq": LongType(),
        "time": TimestampType(),
        "stream": StringType(),
        "fields": ArrayType(StructType([StructField("field", kind), StructField("value", kind)])),
    }
    return StructType([StructField(prefix + name, each) for name, each in types.items()])


DEFAULT_SCHEMA = default_schema()


def _is_binary_or_string(kind: DataType) -> bool:
    return isinstance(kind, BinaryType | StringType)


def _metadata_kind(name: str, kind: DataType) -> str | None:
    """How a metadata column of this type is built, or None when that is impossible."""
    if name in ("id", "stream") and _is_binary_or_string(kind):
        return "binary" if isinstance(kind, BinaryType) else "string"
    if name in ("ms", "seq"):
        if isinstance(kind, LongType):
            return "bigint"
        if isinstance(kind, DecimalType) and kind.scale == 0 and kind.precision >= 20:
            return "decimal"
    if name == "time" and isinstance(kind, TimestampType | TimestampNTZType):
        return "timestamp"
    if name == "fields":
        return _fields_kind(kind)
    return None


def _fields_kind(kind: DataType) -> str | None:
    if isinstance(kind, ArrayType) and isinstance(kind.elementType, StructType):
        inner = kind.elementType
        if inner.names == ["field", "value"] and all(_is_binary_or_string(each.dataType) for each in inner.fields):
            return "pairs"
    if isinstance(kind, MapType) and _is_binary_or_string(kind.keyType) and _is_binary_or_string(kind.valueType):
        return "map"
    return None


_FIELD_KINDS: dict[type[DataType], str] = {
    StringType: "string",
    BinaryType: "binary",
    ByteType: "tinyint",
    ShortType: "smallint",
    IntegerType: "int",
    LongType: "bigint",
    FloatType: "float",
    DoubleType: "double",
    BooleanType: "boolean",
    DecimalType: "decimal",
    TimestampType: "timestamp",
    TimestampNTZType: "timestamp",
    DateType: "date",
}
"""The types that the value of a field can be cast to."""


def table_layout(schema: StructType, options: SourceOptions) -> TableLayout:
    """Read a schema. Raises OptionError naming the column that cannot be built."""
    corrupt = options.corrupt_record_column or (
        DEFAULT_CORRUPT_COLUMN if DEFAULT_CORRUPT_COLUMN in schema.names else None
    )
    if options.corrupt_record_column and corrupt not in schema.names:
        raise OptionError("columnNameOfCorruptRecord", f"the schema has no column {corrupt}")
    columns = tuple(_column(each, options.metadata_prefix, corrupt) for each in schema.fields)
    return TableLayout(columns, options.mode, arrow_schema(schema))


def _column(column: StructField, prefix: str, corrupt: str | None) -> Column:
    name, kind = column.name, column.dataType
    if name == corrupt:
        if not isinstance(kind, StringType):
            raise OptionError("columnNameOfCorruptRecord", f"column {name} must be a string")
        return Column(name, "corrupt", "string")
    bare = name.removeprefix(prefix)
    if name.startswith(prefix) and bare in METADATA_NAMES:
        made = _metadata_kind(bare, kind)
        if made is None:
            raise OptionError(
                "schema",
                f"column {name} cannot be {kind.simpleString()}; when a field of the entries is meant, "
                "set metadataPrefix, so that the metadata get other names",
            )
        return Column(name, bare, made, *_digits(kind))
    field_kind = _FIELD_KINDS.get(type(kind))
    if field_kind is None:
        raise OptionError("schema", f"column {name} cannot be {kind.simpleString()}: fields hold single values")
    return Column(name, "field", field_kind, *_digits(kind))


def _digits(kind: DataType) -> tuple[int, int]:
    return (kind.precision, kind.scale) if isinstance(kind, DecimalType) else (0, 0)


def arrow_schema(schema: StructType) -> pyarrow.Schema:
    """The Arrow schema that Spark expects of a reader's record batches."""
    from pyspark.sql.pandas.types import to_arrow_schema

    if "timezone" in inspect.signature(to_arrow_schema).parameters:
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema)  # PySpark 4.1, where it is UTC
