"""Columns of Arrow as strings or bytes, which the encoder of requests needs. Values become bytes as follows:

string, binary            as they are
whole numbers, decimals   decimal digits: 42, -1.50
float, double             the shortest digits that read back as the same number: 0.1, 1e+20, nan, inf
boolean                   true, false
date                      2024-02-29
timestamp                 2024-02-29T12:30:00.000000Z, always UTC; nine digits of nanoseconds; without the Z when it has no zone
null                      null
"""

from __future__ import annotations

import pyarrow
import pyarrow.compute

__all__ = ["as_text", "is_text", "pairs_as_text"]


def as_text(column: pyarrow.Array) -> pyarrow.Array:
    """Values as strings or bytes; the table is at the head of the file."""
    kind = column.type
    types = pyarrow.types
    if types.is_string(kind) or types.is_binary(kind) or types.is_large_string(kind) or types.is_large_binary(kind):
        return column
    if types.is_timestamp(kind):
        # Seconds include their fraction, with the digits of the unit.
        unit = "ns" if kind.unit == "ns" else "us"
        made = column.cast(pyarrow.timestamp(unit, kind.tz)).cast(pyarrow.timestamp(unit))
        return pyarrow.compute.strftime(made, "%Y-%m-%dT%H:%M:%SZ" if kind.tz is not None else "%Y-%m-%dT%H:%M:%S")
    return column.cast(pyarrow.string())


def pairs_as_text(column: pyarrow.Array) -> pyarrow.Array:
    """An array of pairs, or a map, whose values are strings or bytes."""
    is_map = pyarrow.types.is_map(column.type)
    value = column.type.item_type if is_map else column.type.value_type.field(1).type
    if is_text(value):
        return column
    offsets = column.offsets
    lists = column.values
    names, values = lists.flatten()
    pairs = pyarrow.StructArray.from_arrays([names, as_text(values)], ["field", "value"], mask=lists.is_null())
    # Null lists become empty ones, which the encoder refuses as well.
    return pyarrow.ListArray.from_arrays(offsets, pairs)


def is_text(kind: pyarrow.DataType) -> bool:
    types = pyarrow.types
    return bool(
        types.is_string(kind) or types.is_binary(kind) or types.is_large_string(kind) or types.is_large_binary(kind)
    )
