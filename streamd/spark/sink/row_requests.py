"""Rows of a table as XADD requests: which column is what, and how its values become text.

The entry of a row is its `fieldsColumn` (an array of field and value, as the source gives it, or a map), and all other
columns are ignored. Without such a column, each column that has no role of its own (stream, ID; the idempotency key
remains a field) is a field of that name. What values become: arrow/as_text.py; arrays, maps and structs are refused, to be converted
to strings first, with to_json for example; nulls are as `nullValues` says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    MapType,
    NullType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from streamd.client.client_errors import OptionError
from streamd.transfer.write_options import SinkOptions

if TYPE_CHECKING:
    import pyarrow

__all__ = ["RowPlan"]

TEXT_TYPES = (StringType, BinaryType)
VALUE_TYPES = (NumericType, BooleanType, DateType, TimestampType, TimestampNTZType, NullType, *TEXT_TYPES)


@dataclass(frozen=True)
class RowPlan:
    """Which column of a table has which role; names of columns, or None."""

    options: SinkOptions
    stream: str | None
    entry_id: str | None
    key: str | None
    pairs: str | None
    fields: tuple[str, ...]

    @classmethod
    def of(cls, schema: StructType, options: SinkOptions) -> RowPlan:
        """Read a schema. Raises OptionError naming the option whose column is missing or unsuitable."""
        kinds = {each.name: each.dataType for each in schema.fields}
        if len(kinds) != len(schema.fields):
            raise OptionError("fieldsColumn", "two columns have the same name")
        stream = None
        if options.stream is None:
            stream = options.stream_column
            if stream not in kinds:
                raise OptionError("stream", f"name the stream to write to, or add a column {stream} that names it")
            _check_kind("streamColumn", stream, kinds[stream], TEXT_TYPES)
        for name, column in (("idColumn", options.id_column), ("idempotencyKey", options.idempotency_key)):
            if column is not None:
                if column not in kinds:
                    raise OptionError(name, f"there is no column {column}")
                _check_kind(name, column, kinds[column], VALUE_TYPES)
        pairs = options.fields_column if _is_pairs(kinds.get(options.fields_column)) else None
        fields: tuple[str, ...] = ()
        if pairs is None and options.fields_column != SinkOptions.fields_column:
            raise OptionError(
                "fieldsColumn",
                f"there is no column {options.fields_column} that is an array of field and value, or a map",
            )
        if pairs is None:
            roles = {options.stream_column, options.id_column}
            fields = tuple(name for name in kinds if name not in roles)
            for name in fields:
                _check_kind("fieldsColumn", name, kinds[name], VALUE_TYPES)
            if not fields:
                raise OptionError("fieldsColumn", "no column is left to be a field of the entries")
        return cls(options, stream, options.id_column, options.idempotency_key, pairs, fields)

    @property
    def columns(self) -> list[str]:
        """The required columns, each once."""
        named = (self.stream, self.entry_id, self.key, self.pairs, *self.fields)
        return list(dict.fromkeys(name for name in named if name is not None))

    def encoder(self, *, with_idmp: bool) -> Any:
        """The encoder of record batches that have `columns`."""
        from streamd.arrow.encode import XAddEncoder

        at = {name: index for index, name in enumerate(self.columns)}
        options = self.options
        return XAddEncoder(
            key=None if options.stream is None else options.stream.encode(),
            key_column=-1 if self.stream is None else at[self.stream],
            id_column=-1 if self.entry_id is None else at[self.entry_id],
            fields_column=-1 if self.pairs is None else at[self.pairs],
            field_names=[name.encode() for name in self.fields],
            field_columns=[at[name] for name in self.fields],
            options=self.words,
            idempotency_column=at[self.key] if with_idmp and self.key is not None else -1,
            producers=options.idmp_producers if with_idmp else 1,
            null_values=options.null_values,
        )

    @property
    def words(self) -> list[bytes]:
        """Arguments of XADD between the key and the ID."""
        return [] if self.options.create else [b"NOMKSTREAM"]

    def prepare(self, batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
        """The required columns, as text. Raises OptionError for a null where none is allowed."""
        import pyarrow

        from streamd.arrow.as_text import as_text, pairs_as_text

        names = self.columns
        arrays = []
        for name in names:
            column = batch.column(name)
            arrays.append(pairs_as_text(column) if name == self.pairs else as_text(column))
        made = pyarrow.RecordBatch.from_arrays(arrays, names)
        for option, column in (
            ("streamColumn", self.stream),
            ("idColumn", self.entry_id),
            ("idempotencyKey", self.key),
        ):
            if column is not None:
                _check_filled(option, column, made.column(column))
        if self.pairs is not None and made.column(self.pairs).values.null_count:
            raise OptionError("fieldsColumn", f"column {self.pairs} has an array with a null in it")
        return made


def _check_kind(option: str, column: str, kind: DataType, kinds: tuple[type[DataType], ...]) -> None:
    if not isinstance(kind, kinds):
        raise OptionError(option, f"column {column} cannot be {kind.simpleString()}; make it a string")


def _is_pairs(kind: DataType | None) -> bool:
    """Whether a column of this type is a whole entry."""
    if isinstance(kind, ArrayType) and isinstance(kind.elementType, StructType):
        inner = [each.dataType for each in kind.elementType.fields]
        return len(inner) == 2 and isinstance(inner[0], TEXT_TYPES) and isinstance(inner[1], VALUE_TYPES)
    if isinstance(kind, MapType):
        return isinstance(kind.keyType, TEXT_TYPES) and isinstance(kind.valueType, VALUE_TYPES)
    return False


def _check_filled(option: str, column: str, values: pyarrow.Array) -> None:
    import pyarrow.compute

    if values.null_count:
        raise OptionError(option, f"column {column} is null in {values.null_count} rows")
    if (
        option != "streamColumn"
        and len(values)
        and pyarrow.compute.min(pyarrow.compute.binary_length(values)).as_py() == 0
    ):
        raise OptionError(option, f"column {column} is empty in some rows")
