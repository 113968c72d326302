"""Typed open tables under test: entries of every kind, and what a read with the schema gives."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import redis
from pyspark.sql import types

from streamd.archive.open_format import TYPED_NAME, TableConfig
from support.archives.runs import KEY
from support.archives.table_readers import (
    SCHEMA,
    delta_folder,
    read_typed_history,
    typed_digest,
)

__all__ = [
    "SPARK_SCHEMA",
    "TYPED",
    "Options",
    "derived_files",
    "expected_of",
    "typed_fill",
]

Options = dict[str, str]

KINDS: dict[str, types.DataType] = {
    "user": types.StringType(), "amount": types.DoubleType(), "at": types.TimestampType(),
    "local": types.TimestampNTZType(), "day": types.DateType(), "small": types.ByteType(), "short": types.ShortType(),
    "number": types.IntegerType(), "big": types.LongType(), "ratio": types.FloatType(), "flag": types.BooleanType(),
    "price": types.DecimalType(10, 2), "wide": types.DecimalType(38, 6), "blob": types.BinaryType(),
    "odd-name": types.StringType(), "_corrupt_record": types.StringType(),
}  # fmt: skip
METADATA: dict[str, types.DataType] = {
    "id": types.StringType(), "ms": types.LongType(), "seq": types.LongType(), "time": types.TimestampType(),
    "stream": types.StringType(),
}  # fmt: skip
SPARK_SCHEMA = types.StructType([types.StructField(*each) for each in (METADATA | KINDS).items()])
"""What SCHEMA says, written for Spark."""

TYPED = (TableConfig("iceberg", TYPED_NAME, schema=SCHEMA), TableConfig("delta", TYPED_NAME, schema=SCHEMA))


def typed_fill(store: redis.Redis, count: int, number: int = 0, key: str = KEY) -> list[str]:
    """Append entries with values that fit, values that do not, missing fields, and fields that come twice; their IDs."""
    chosen = random.Random(number)
    values: dict[str, list[Any]] = {
        "user": ["ann", "", "Zoë", "名前"], "amount": [1.5, "-0", "nan", "1e400", "much"],
        "at": ["2024-02-29T12:30:00.25Z", 1_700_000_000_000, "yesterday"], "local": ["2024-02-29 12:30", "2024-13-01"],
        "day": ["2024-02-29", "2023-02-29"], "small": [-128, 128, "7 "], "short": [32_767, 40_000],
        "number": [5, -(2**31), 2**31], "big": [2**63 - 1, 2**63], "ratio": [0.1, "inf"],
        "flag": ["true", "0", "perhaps"], "price": ["12.345", "99999999.99", "1e9"], "wide": ["0.0000001", 10**31],
        "blob": [b"\xff\x00", b"text"], "odd-name": ["x", "y"], "other": ["unknown to the schema"],
    }  # fmt: skip
    pipe = store.pipeline(transaction=False)
    for at in range(count):
        words: list[Any] = []
        for name in chosen.sample(sorted(values), chosen.randint(1, len(values))):
            for _ in range(chosen.choice((1, 1, 1, 2))):
                words += [name, chosen.choice(values[name])]
        entry_id = f"{1_700_000_000_000 + number * 20_000_000 + at * 40_000}-{at % 3}"
        pipe.execute_command("XADD", key, entry_id, *words)
    return [found.decode() for found in pipe.execute()]


def expected_of(path: Path, options: Options, stream: str = KEY) -> tuple[int, str]:
    return typed_digest(read_typed_history(path, options, SPARK_SCHEMA, stream))


def derived_files(path: Path, name: str = TYPED_NAME) -> set[str]:
    """The files of both typed tables that lie there."""
    folders = (path / "_tables" / f"iceberg-{name}" / "data", delta_folder(path, name))
    return {str(each) for folder in folders for each in folder.rglob("*.parquet") if "_delta_log" not in each.parts}
