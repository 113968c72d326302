"""Typed open tables: pyiceberg, deltalake, polars and DuckDB read what a read with a schema gives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
import redis

pytest.importorskip("pyiceberg", reason="open tables need streamd-server[tables]")
pytest.importorskip("deltalake", reason="open tables need streamd-server[tables]")
pytest.importorskip("polars", reason="what reads the tables comes with streamd-server[test]")
pytest.importorskip("duckdb_extension_delta", reason="what reads the tables comes with streamd-server[test]")

from support.archives.runs import KEY, archive_once
from support.archives.table_kinds import TYPED_TABLES
from support.archives.table_readers import (
    READERS,
    SCHEMA,
    iceberg_table,
    read_by_all,
    read_delta,
    read_iceberg,
)
from support.archives.typed_tables import (
    TYPED,
    Options,
    expected_of,
    typed_fill,
)

from streamd.archive.delete import delete
from streamd.archive.open_format import TYPED_NAME, TableConfig
from streamd.arrow.ddl import parse_columns
from streamd.client.points import parse_entry_id
from streamd.spark.source.schema import table_layout
from streamd.transfer.read_options import SourceOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long


def test_a_deletion_leaves_no_value_in_any_file(store: redis.Redis, source_options: Options, tmp_path: Path) -> None:
    """Of an entry that fits the schema, and of one that is in the tables of rejects; in files that were merged before, too."""
    fitting, rejected = "fitting-secret", "rejected-secret"
    plain = [TableConfig(form) for form in ("delta", "iceberg")]
    typed = [TableConfig(form, TYPED_NAME, schema="n int, note string") for form in ("delta", "iceberg")]
    tables = (*plain, *(each for config in typed for each in config.with_rejects()))
    gone = []
    for at in range(4):
        store.xadd(KEY, {"n": at, "note": "kept"})
        if at == 1:
            gone = [store.xadd(KEY, {"n": 1, "note": fitting}), store.xadd(KEY, {"n": "no", "note": rejected})]
        report = archive_once(tmp_path, source_options, publish=tables, merge_files=2, trim_delay_ms=3_600_000)
        assert report.streams[0].warnings == []
    assert values_in(tmp_path, fitting) >= 5  # two files of the archive, and of each typed table
    assert values_in(tmp_path, rejected) >= 4
    delete(str(tmp_path), KEY, source_options, [(each, each) for each in map(parse_entry_id, gone)])
    assert values_in(tmp_path, fitting) == values_in(tmp_path, rejected) == 0
    assert values_in(tmp_path, "kept") >= 3


def values_in(path: Path, value: str) -> int:
    """The number of files below a folder that have a value, as bytes or in a column."""
    found = 0
    for each in path.rglob("*"):
        if each.suffix == ".parquet" and each.is_file() and "_delta_log" not in each.parts:
            rows = pq.ParquetFile(each).read().to_pylist()
            found += value in str(rows)
        elif each.is_file():
            found += value.encode() in each.read_bytes()
    return found


def test_every_reader_reads_what_a_read_with_the_schema_gives(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    produced: list[str] = []
    for number in range(5):  # some days, merged files among them, and one from which entries are deleted
        produced += typed_fill(store, 300, number)
        TYPED_TABLES.run_once(tmp_path, source_options, merge_files=3)
    ranges = [(parse_entry_id(produced[20]), parse_entry_id(produced[40]))]
    delete(str(tmp_path), KEY, source_options, ranges)
    expected = expected_of(tmp_path, source_options)
    assert expected[0] == 1500 - 21
    TYPED_TABLES.assert_no_file_is_left_over(tmp_path)
    assert read_by_all(tmp_path, TYPED_NAME) == dict.fromkeys(READERS, expected)


def test_bytes_that_are_no_text_are_shown_as_such(store: redis.Redis, source_options: Options, tmp_path: Path) -> None:
    store.execute_command("XADD", KEY, "1700000000000-0", "user", b"\xffann\xc3", "amount", b"\xfe")
    store.execute_command("XADD", KEY, "1700000000001-0", "user", "Zoë")
    TYPED_TABLES.run_once(tmp_path, source_options)
    for found in (read_iceberg(tmp_path, TYPED_NAME), read_delta(tmp_path, TYPED_NAME)):
        assert sorted(found.column("user").to_pylist()) == ["Zoë", "\ufffdann\ufffd"]
        assert '{"user":"\\\\xffann\\\\xc3","amount":"\\\\xfe"}' in found.column("_corrupt_record").to_pylist()
    assert len(set(read_by_all(tmp_path, TYPED_NAME).values())) == 1


def test_ids_that_columns_cannot_hold_are_there_nevertheless(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    """Years above 9999, and halves of IDs above 2^63-1."""
    for entry_id in ("0-1", "99-5", "1700000000000-18446744073709551615", "300000000000000-0", "9300000000000000000-7"):
        store.xadd(KEY, {"big": 7}, id=entry_id)
    TYPED_TABLES.run_once(tmp_path, source_options, hot_window_ms=-(10**19))
    expected = expected_of(tmp_path, source_options)
    assert expected[0] == 5
    assert read_by_all(tmp_path, TYPED_NAME) == dict.fromkeys(READERS, expected)


def test_tables_of_several_schemas_and_streams_are_kept_beside_each_other(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    """Plain ones too; fields that have the names of columns are read with a prefix before those."""
    configs = [TableConfig("iceberg"), TableConfig("delta"), *TYPED]
    for form in ("iceberg", "delta"):
        configs.append(TableConfig(form, "a.ids", schema="id string, time timestamp", prefix="x_", streams=("a:1",)))
        configs.append(TableConfig(form, "a.all", schema="n int", pattern="a:[12]"))
    for number in range(2):
        for key in ("a:1", "a:2", "b"):
            for at in range(10):
                entry_id = f"{1_700_000_000_000 + 10 * number + at}-0"
                store.xadd(key, {"n": at, "id": f"mine {at}", "time": at * 1000}, id=entry_id)
            archive_once(tmp_path, source_options | {"stream": key}, publish=tuple(configs))
    gone = parse_entry_id("1700000000003-0")
    delete(str(tmp_path), "a:1", source_options, [(gone, gone)])
    for read in (read_iceberg, read_delta):
        rows = {name: read(tmp_path, name) for name in ("streamd.archive", TYPED_NAME, "a.ids", "a.all")}
        assert {name: table.num_rows for name, table in rows.items()} == {
            "streamd.archive": 59, TYPED_NAME: 59, "a.ids": 19, "a.all": 39,
        }  # fmt: skip
        ids = rows["a.ids"].sort_by([("x_ms", "ascending"), ("x_seq", "ascending")]).to_pylist()
        assert {each["x_stream"] for each in ids} == {"a:1"}
        assert [each["id"] for each in ids] == [f"mine {at % 10}" for at in range(20) if at != 3]
        assert ids[1]["x_id"] == "1700000000001-0"
        assert ids[1]["time"].timestamp() == 1
        assert ids[1]["x_time"].timestamp() == 1_700_000_000.001
        assert set(rows["a.all"].column("stream").to_pylist()) == {"a:1", "a:2"}


KEYS = ["a:b c%d/é", "x.y~z", "#?&=", " ", "k" * 300, "%2E"]


def test_any_key_is_a_value_of_the_column(store: redis.Redis, source_options: Options, tmp_path: Path) -> None:
    configs = tuple(replace(each, prefix="p_", schema="number int") for each in TYPED)
    for number in range(2):
        for key in KEYS:
            store.xadd(key, {"number": number}, id=f"{1_700_000_000_000 + number}-0")
            archive_once(tmp_path, source_options | {"stream": key}, publish=configs, merge_files=2)
    for read in (read_iceberg, read_delta):
        found = read(tmp_path, TYPED_NAME).to_pylist()
        assert sorted((row["p_stream"], row["number"]) for row in found) == sorted(
            (key, n) for key in KEYS for n in (0, 1)
        )


def test_filters_skip_files_and_nothing_else(store: redis.Redis, source_options: Options, tmp_path: Path) -> None:
    produced = typed_fill(store, 5000)
    TYPED_TABLES.run_once(tmp_path, source_options)
    table = iceberg_table(tmp_path, TYPED_NAME)
    entry_id, ms = produced[2500], int(produced[2500].partition("-")[0])
    for condition in (f"id = '{entry_id}'", f"ms = {ms}"):
        scan = table.scan(row_filter=condition)
        assert len(list(scan.plan_files())) == 1, condition
        assert scan.to_arrow().column("id").to_pylist() == [entry_id], condition
    assert len(list(table.scan().plan_files())) == 4


@pytest.mark.spark
def test_a_schema_means_what_it_means_to_spark(spark: SparkSession) -> None:
    text = SCHEMA + ", `a``b` long, n: dec, s short, b byte, r real, x numeric(5, 1)"
    made = table_layout(spark.createDataFrame([], text).schema, SourceOptions.parse({"stream": KEY}))
    ours = parse_columns(text)
    assert [each.arrow for each in ours] == made.schema.types
    theirs = [each for each in made.columns if each.source != "corrupt"]
    assert [each.column for each in ours if each.name != "_corrupt_record"] == theirs
