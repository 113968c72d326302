"""A schema as text, read without Spark: `user string, amount decimal(10,2), at timestamp`.

The names and types are those of Spark's SQL, of which this reads what the value of a field can become. Names other than
letters, digits and `_` stand in backquotes, a backquote in them twice; a colon may stand between name and type.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from streamd.arrow.entry_table import Column
from streamd.client.client_errors import OptionError

__all__ = ["FieldColumn", "parse_columns"]

TYPES: dict[str, tuple[str, pa.DataType]] = {
    "string": ("string", pa.string()),
    "binary": ("binary", pa.binary()),
    "boolean": ("boolean", pa.bool_()),
    "tinyint": ("tinyint", pa.int8()),
    "smallint": ("smallint", pa.int16()),
    "int": ("int", pa.int32()),
    "bigint": ("bigint", pa.int64()),
    "float": ("float", pa.float32()),
    "double": ("double", pa.float64()),
    "date": ("date", pa.date32()),
    "timestamp": ("timestamp", pa.timestamp("us", "UTC")),
    "timestamp_ntz": ("timestamp", pa.timestamp("us")),
}
"""Each type but decimals: how its values are made (KINDS in rows.pyx), and what it is in Arrow."""

ALIASES = {
    "byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint", "real": "float",
    "timestamp_ltz": "timestamp", "dec": "decimal", "numeric": "decimal",
}  # fmt: skip

MAX_PRECISION = 38

_PLAIN = re.compile(r"\w+")
_NAME = re.compile(r"\s*(?:`((?:[^`]|``)+)`|(\w+))")
_TYPE = re.compile(r"\s*:?\s*([A-Za-z_]\w*)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?\s*")


@dataclass(frozen=True)
class FieldColumn:
    """A column with the values of a field.

    name  of the column and the field
    type  as Spark writes it
    """

    name: str
    type: str
    column: Column
    arrow: pa.DataType

    def __str__(self) -> str:
        name = self.name if _PLAIN.fullmatch(self.name) else "`" + self.name.replace("`", "``") + "`"
        return f"{name} {self.type}"


def parse_columns(text: str) -> list[FieldColumn]:
    """The columns of a schema. Raises OptionError naming what cannot be read, or a name that comes twice.

    Names that differ in case only are one name: most programs that read tables take them so.
    """
    found: dict[str, FieldColumn] = {}
    for each in read_columns(text):
        if each.name.lower() in found:
            raise OptionError("schema", f"column {each.name} comes twice")
        found[each.name.lower()] = each
    return list(found.values())


def read_columns(text: str) -> Iterator[FieldColumn]:
    at = 0
    while True:
        name = _NAME.match(text, at)
        kind = _TYPE.match(text, name.end()) if name is not None else None
        is_apart = kind is not None and (name is None or name[1] is not None or text[kind.start()] in " \t\n\r:")
        if name is None or kind is None or not is_apart or text[kind.end() : kind.end() + 1] not in ("", ","):
            rest = " ".join(text[at:].split())
            fault = f"cannot read {rest!r}" if rest else "a column is missing"
            raise OptionError("schema", f"{fault}: columns are written 'user string, amount double'")
        column = name[2] if name[1] is None else name[1].replace("``", "`")
        yield made(column, kind[1].lower(), kind[2], kind[3])
        at = kind.end() + 1
        if at > len(text):
            return


def made(name: str, word: str, precision: str | None, scale: str | None) -> FieldColumn:
    word = ALIASES.get(word, word)
    if word == "decimal":
        return decimal(name, int(precision or 10), int(scale or 0))
    if word not in TYPES or precision is not None:
        known = ", ".join([*TYPES, "decimal(p,s)"])
        raise OptionError("schema", f"column {name} cannot be {word}: the types of fields are {known}")
    kind, arrow = TYPES[word]
    return FieldColumn(name, word, Column(name, "field", kind), arrow)


def decimal(name: str, precision: int, scale: int) -> FieldColumn:
    if not (1 <= precision <= MAX_PRECISION and scale <= precision):
        raise OptionError(
            "schema",
            f"column {name} cannot be decimal({precision},{scale}): 1 to {MAX_PRECISION} digits, some after the point",
        )
    column = Column(name, "field", "decimal", precision, scale)
    return FieldColumn(name, f"decimal({precision},{scale})", column, pa.decimal128(precision, scale))
