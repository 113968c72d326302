"""Rows of a table as XADD requests: which column is what, and how its values become text.

The entry of a row is its `fieldsColumn` (an array of field and value, as the source gives it, or a map), and all other
columns are ignored. Without such a column, each column that has no role of its own (stream, ID; the idempotency key
remains a field) is a field of that name. Values become bytes as follows:

    string, binary            as they are
    whole numbers, decimals   decimal digits: 42, -1.50
    float, double             the shortest digits that read back as the same number: 0.1, 1e+20, nan, inf
    boolean                   true, false
    date                      2024-02-29
    timestamp                 2024-02-29T12:30:00.000000Z, always UTC; without the Z for timestamp_ntz
    null                      as `nullValues` says
    array, map, struct ...    refused: convert them to strings first, with to_json for example
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import hiredis
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

from streamd.spark.errors import OptionError
from streamd.spark.sink.write_options import SinkOptions

if TYPE_CHECKING:
    import pyarrow

__all__ = ["BatchRows", "RowPlan"]

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
        from streamd.spark.arrow.encode import XAddEncoder

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

        names = self.columns
        arrays = []
        for name in names:
            column = batch.column(name)
            arrays.append(_pairs_as_text(column) if name == self.pairs else _as_text(column))
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


def _as_text(column: pyarrow.Array) -> pyarrow.Array:
    """Values as strings or bytes; the table is at the head of the file."""
    import pyarrow
    import pyarrow.compute

    kind = column.type
    types = pyarrow.types
    if types.is_string(kind) or types.is_binary(kind) or types.is_large_string(kind) or types.is_large_binary(kind):
        return column
    if types.is_timestamp(kind):
        # Seconds include their fraction, with the digits of the unit.
        made = column.cast(pyarrow.timestamp("us", kind.tz)).cast(pyarrow.timestamp("us"))
        return pyarrow.compute.strftime(made, "%Y-%m-%dT%H:%M:%SZ" if kind.tz is not None else "%Y-%m-%dT%H:%M:%S")
    return column.cast(pyarrow.string())


def _pairs_as_text(column: pyarrow.Array) -> pyarrow.Array:
    """An array of pairs, or a map, whose values are strings or bytes."""
    import pyarrow

    is_map = pyarrow.types.is_map(column.type)
    value = column.type.item_type if is_map else column.type.value_type.field(1).type
    if _is_text(value):
        return column
    offsets = column.offsets
    lists = column.values
    names, values = lists.flatten()
    pairs = pyarrow.StructArray.from_arrays([names, _as_text(values)], ["field", "value"], mask=lists.is_null())
    # Null lists become empty ones, which the encoder refuses as well.
    return pyarrow.ListArray.from_arrays(offsets, pairs)


def _is_text(kind: pyarrow.DataType) -> bool:
    import pyarrow

    types = pyarrow.types
    return bool(
        types.is_string(kind) or types.is_binary(kind) or types.is_large_string(kind) or types.is_large_binary(kind)
    )


class BatchRows:
    """Rows of a prepared record batch, in the form that a Delivery needs."""

    def __init__(self, plan: RowPlan, encoder: Any, batch: pyarrow.RecordBatch) -> None:
        self._plan = plan
        self._encoder = encoder
        self._batch = batch
        self._key = None if plan.options.stream is None else plan.options.stream.encode()
        self._streams: tuple[int, int, dict[bytes, int]] = (0, 0, {})

    def encode(self, start: int, stop: int, producer_id: bytes = b"") -> bytes:
        try:
            return bytes(self._encoder.encode(self._batch, start, stop, producer_id))
        except ValueError as error:
            raise OptionError(
                "nullValues" if "field" in str(error) or "value" in str(error) else "fieldsColumn", str(error)
            ) from None

    def streams(self, start: int, stop: int) -> dict[bytes, int]:
        if self._key is not None:
            return {self._key: stop - start}
        if self._streams[:2] != (start, stop):
            counted = self._column(self._plan.stream, start, stop).value_counts()
            names, counts = counted.field("values").to_pylist(), counted.field("counts").to_pylist()
            found = {_raw(name): count for name, count in zip(names, counts, strict=True)}
            self._streams = (start, stop, found)
        return self._streams[2]

    def keys(self, start: int, stop: int) -> list[bytes]:
        return [_raw(key) for key in self._column(self._plan.key, start, stop).to_pylist()]

    def key_of(self, row: int) -> bytes:
        return self._key if self._key is not None else _raw(self._column(self._plan.stream, row, row + 1)[0].as_py())

    def entry_of(self, row: int) -> tuple[bytes, list[bytes]]:
        reader = hiredis.Reader()
        reader.feed(self.encode(row, row + 1))
        words: list[bytes] = reader.gets()
        at = 2 + len(self._plan.words)
        return words[at], words[at + 1 :]

    def _column(self, name: str | None, start: int, stop: int) -> Any:
        return self._batch.column(name).slice(start, stop - start)


def _raw(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value
