"""Schemas: which columns become what, and which are refused."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
)

from streamd.arrow import entry_table
from streamd.arrow.entry_table import default_table
from streamd.client.client_errors import OptionError
from streamd.spark.source.schema import DEFAULT_SCHEMA, arrow_schema, default_schema, table_layout
from streamd.transfer.read_options import SourceOptions


def layout_of(columns: dict[str, DataType], **options: str) -> list[tuple[str, str]]:
    schema = StructType()
    for name, kind in columns.items():
        schema.add(name, kind)
    made = table_layout(schema, SourceOptions.parse({"stream": "s", **options}))
    return [(column.source, column.kind) for column in made.columns]


def test_the_default_schema() -> None:
    made = table_layout(DEFAULT_SCHEMA, SourceOptions.parse({"stream": "s"}))
    assert [(each.source, each.kind) for each in made.columns] == [
        ("id", "string"), ("ms", "bigint"), ("seq", "bigint"), ("time", "timestamp"), ("stream", "string"), ("fields", "pairs")
    ]  # fmt: skip
    assert arrow_schema(DEFAULT_SCHEMA).field("time").type.tz == "UTC"


def test_the_default_table_without_spark_is_that_of_spark() -> None:
    assert default_table() == table_layout(DEFAULT_SCHEMA, SourceOptions.parse({"stream": "s"}))
    assert entry_table.default_schema().equals(arrow_schema(DEFAULT_SCHEMA), check_metadata=True)
    some = type(DEFAULT_SCHEMA)([DEFAULT_SCHEMA["id"], DEFAULT_SCHEMA["fields"]])
    assert default_table("id", "fields") == table_layout(some, SourceOptions.parse({"stream": "s"}))


def test_metadata_may_come_in_other_types() -> None:
    assert layout_of(
        {
            "id": BinaryType(),
            "ms": DecimalType(20, 0),
            "time": TimestampNTZType(),
            "fields": MapType(StringType(), BinaryType()),
        }
    ) == [("id", "binary"), ("ms", "decimal"), ("time", "timestamp"), ("fields", "map")]


def test_other_columns_are_fields() -> None:
    found = layout_of({"n": IntegerType(), "price": DecimalType(6, 2), "_corrupt_record": StringType()})
    assert found == [("field", "int"), ("field", "decimal"), ("corrupt", "string")]


def test_a_prefix_frees_the_names_of_the_metadata() -> None:
    assert layout_of({"id": LongType(), "_id": StringType()}, metadataPrefix="_") == [
        ("field", "bigint"),
        ("id", "string"),
    ]
    assert default_schema("_").names[0] == "_id"


@pytest.mark.parametrize(
    ("columns", "options", "text"),
    [
        ({"time": StringType()}, {}, "option schema: column time cannot be string; .*metadataPrefix"),
        ({"ms": IntegerType()}, {}, "column ms cannot be int"),
        ({"ms": DecimalType(19, 0)}, {}, r"column ms cannot be decimal\(19,0\)"),
        ({"fields": ArrayType(StringType())}, {}, "column fields cannot be array<string>"),
        ({"x": ArrayType(DoubleType())}, {}, "column x cannot be array<double>: fields hold single values"),
        ({"x": StringType()}, {"columnNameOfCorruptRecord": "bad"}, "the schema has no column bad"),
        ({"x": LongType()}, {"columnNameOfCorruptRecord": "x"}, "column x must be a string"),
    ],
)
def test_what_cannot_be_made_is_refused(columns: dict[str, DataType], options: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        layout_of(columns, **options)
