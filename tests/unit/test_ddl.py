"""Schemas as text: what is read, and that it is written so that it is read again."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa

from streamd.arrow.ddl import TYPES, parse_columns
from streamd.client.client_errors import OptionError


def columns_of(text: str) -> list[tuple[str, str, pa.DataType]]:
    return [(each.name, each.column.kind, each.arrow) for each in parse_columns(text)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("user string, amount double", [("user", "string", pa.string()), ("amount", "double", pa.float64())]),
        (" a:int ,\n b : LONG", [("a", "int", pa.int32()), ("b", "bigint", pa.int64())]),
        ("d DECIMAL, e dec(5), f numeric( 7 , 2 )", [
            ("d", "decimal", pa.decimal128(10, 0)), ("e", "decimal", pa.decimal128(5, 0)),
            ("f", "decimal", pa.decimal128(7, 2)),
        ]),
        ("`a-b`int, `c``d` string", [("a-b", "int", pa.int32()), ("c`d", "string", pa.string())]),
        ("t timestamp_ltz, n timestamp_ntz", [
            ("t", "timestamp", pa.timestamp("us", "UTC")), ("n", "timestamp", pa.timestamp("us")),
        ]),
        ("größe float", [("größe", "float", pa.float32())]),
    ],
)  # fmt: skip
def test_columns_are_read(text: str, found: list[tuple[str, str, pa.DataType]]) -> None:
    assert columns_of(text) == found


def test_what_is_written_is_read_again() -> None:
    text = ", ".join([*(f"`{kind} column` {kind}" for kind in TYPES), "`a``b` decimal(7,2)", "plain int"])
    written = ", ".join(map(str, parse_columns(text)))
    assert written == text
    assert columns_of(written) == columns_of(text)


@pytest.mark.parametrize(
    "text",
    ["", " ", "a", "a int,", ",a int", "a int b int", "a-b int", "`a int", "`` int", "a int(3)", "a decimal(0)", "a decimal(3,4)",
     "a map<string,int>", "a int not null", "a int; b int", "1 2"],
)  # fmt: skip
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match=r"^option schema: "):
        parse_columns(text)


def test_names_that_differ_in_case_only_are_one() -> None:
    with pytest.raises(OptionError, match="column User comes twice"):
        parse_columns("user string, User string")
