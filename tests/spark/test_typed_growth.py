"""Typed tables whose schema grows, and schemas that are inferred: what every reader sees then, and what a growth that was killed leaves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import redis

pytest.importorskip("pyiceberg", reason="open tables need streamd-server[tables]")
pytest.importorskip("deltalake", reason="open tables need streamd-server[tables]")
pytest.importorskip("polars", reason="what reads the tables comes with streamd-server[test]")
pytest.importorskip("duckdb_extension_delta", reason="what reads the tables comes with streamd-server[test]")

import pyarrow as pa
from click.testing import CliRunner
from deltalake import DeltaTable
from support.archives.runs import KEY, Killed, archive_once
from support.archives.table_kinds import TYPED_TABLES
from support.archives.table_readers import (
    READERS,
    SCHEMA,
    delta_folder,
    iceberg_table,
    read_by_all,
    read_delta,
    read_iceberg,
)
from support.archives.typed_tables import Options, expected_of, typed_fill

from streamd.archive import delta, iceberg, published_files
from streamd.archive.layout import Layout
from streamd.archive.open_format import TYPED_NAME, TableConfig
from streamd.archive.publishing import publish
from streamd.cli.subcommands import program
from streamd.disk import Disk

pytestmark = pytest.mark.long

FIRST = "number smallint, ratio float, price decimal(8,2), big int, user string, short tinyint, amount float"
"""Columns of SCHEMA, some of them with narrower types."""


def configs_of(schema: str) -> tuple[TableConfig, TableConfig]:
    return TableConfig("iceberg", TYPED_NAME, schema=schema), TableConfig("delta", TYPED_NAME, schema=schema)


def started(store: redis.Redis, path: Path, options: Options) -> None:
    """An archive of two streams, each in two files, and both tables of it with the columns FIRST."""
    for number in range(2):
        for key in (KEY, "other"):
            typed_fill(store, 60, number, key)
            archive_once(path, {**options, "stream": key}, merge_files=99)
        if number == 0:
            grow(path, FIRST)


def grow(path: Path, schema: str) -> None:
    for config in configs_of(schema):
        publish(Layout(path), config)


def assert_is_grown(path: Path, options: Options) -> None:
    expected = [expected_of(path, options, key)[0] for key in (KEY, "other")]
    TYPED_TABLES.assert_no_file_is_missing(path)
    for table in (read_iceberg(path, TYPED_NAME), read_delta(path, TYPED_NAME)):
        assert table.num_rows == sum(expected)
        assert table.schema.field("big").type == "int64"
        # Entries that were archived before the table had the column have its value, too.
        assert table.column("day").null_count < table.num_rows


def test_every_reader_reads_the_new_columns_and_the_wider_types(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    typed_fill(store, 200)
    TYPED_TABLES.run_once(tmp_path, source_options, publish=configs_of(FIRST))
    typed_fill(store, 200, 1)
    TYPED_TABLES.run_once(tmp_path, source_options, publish=())
    grow(tmp_path, SCHEMA)
    expected = expected_of(tmp_path, source_options)
    assert read_by_all(tmp_path, TYPED_NAME) == dict.fromkeys(READERS, expected)
    typed_fill(store, 200, 2)
    TYPED_TABLES.run_once(tmp_path, source_options, publish=())
    assert read_by_all(tmp_path, TYPED_NAME) == dict.fromkeys(READERS, expected_of(tmp_path, source_options))
    TYPED_TABLES.assert_no_file_is_missing(tmp_path)
    TYPED_TABLES.assert_no_file_is_left_over(tmp_path)


STEPS = (
    (published_files, "write_file"),
    (iceberg.IcebergTable, "_evolve"),
    (iceberg.IcebergTable, "_remove_metadata"),
    (delta.DeltaArchiveTable, "_evolve"),
    (delta.DeltaArchiveTable, "_commit"),
)


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize(("owner", "step"), STEPS, ids=[each[1] + str(n) for n, each in enumerate(STEPS)])
def test_a_growth_that_is_killed_at_a_step_is_ended_by_runs_or_by_itself(
    owner: Any,
    step: str,
    is_after: bool,
    store: redis.Redis,
    source_options: Options,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started(store, tmp_path, source_options)
    works = getattr(owner, step)

    def die(*given: Any, **named: Any) -> Any:
        if is_after:
            works(*given, **named)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(owner, step, die)
        for config in configs_of(SCHEMA):
            try:
                publish(Layout(tmp_path), config)
            except Killed:
                TYPED_TABLES.assert_no_file_is_missing(tmp_path)
    for number, key in enumerate((KEY, "other")):
        typed_fill(store, 10, 5 + number, key)
        archive_once(tmp_path, {**source_options, "stream": key}, merge_files=99)
    TYPED_TABLES.assert_no_file_is_missing(tmp_path)
    grow(tmp_path, SCHEMA)
    assert_is_grown(tmp_path, source_options)
    for key in (KEY, "other"):
        archive_once(tmp_path, {**source_options, "stream": key})
    assert_is_grown(tmp_path, source_options)
    TYPED_TABLES.assert_no_file_is_left_over(tmp_path)


NARROWER = {
    "user string, price decimal(10,3)": "column n is missing: the columns of a table may grow, not go",
    "n int, user string, price decimal(10,3)": "column n cannot become int: it is bigint",
    "n double, user string, price decimal(10,3)": "column n cannot become double: it is bigint",
    "n bigint, user binary, price decimal(10,3)": "column user cannot become binary: it is string",
    "n bigint, user string, price decimal(12,2)": "column price cannot become decimal(12,2): it is decimal(10,3)",
    "n bigint, user string, price decimal(9,3)": "column price cannot become decimal(9,3): it is decimal(10,3)",
}


@pytest.mark.parametrize("form", ["iceberg", "delta"])
def test_a_schema_that_narrows_is_refused_in_one_line(form: str, tmp_path: Path) -> None:
    def command(schema: str) -> Any:
        words = ["archive", "publish", str(tmp_path), "--format", form, "--schema", schema]
        return CliRunner().invoke(program, words)

    Layout(tmp_path).create(Disk())
    before = "n bigint, user string, price decimal(10,3)"
    assert command(before).exit_code == 0
    for schema, said in NARROWER.items():
        done = command(schema)
        assert (done.exit_code, done.output.count("\n")) == (1, 1)
        assert done.output.startswith(f"Error: option schema: {said}")
        assert "drop the table first, or give another --name" in done.output
    assert command(before).exit_code == 0
    assert command("price decimal(11,3), user string, n bigint, more date").exit_code == 0


# --- Rejects --------------------------------------------------------------------------------------------------------------


def rows_of(path: Path, name: str, *columns: str) -> set[tuple[Any, ...]]:
    """What each reader finds in these columns, which must be the same."""
    found = []
    for read in READERS.values():
        table = read(path, name)
        assert table.num_rows == len(set(table.column("id").to_pylist()))
        found.append(set(zip(*(table.column(each).to_pylist() for each in columns), strict=True)))
    assert all(each == found[0] for each in found)
    noted = sum(task.file.record_count for task in iceberg_table(path, name).scan().plan_files())
    counts = pa.table(DeltaTable(delta_folder(path, name)).get_add_actions(flatten=True)).column("num_records")
    assert noted == sum(counts.to_pylist()) == len(found[0])
    return found[0]


@pytest.mark.filterwarnings("ignore")  # polars and DuckDB warn
def test_what_does_not_fit_is_in_the_table_of_rejects_until_the_schema_grows(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    def publish_all(schema: str) -> None:
        for form in ("iceberg", "delta"):
            words = ["archive", "publish", str(tmp_path), "--format", form, "--schema", schema, "--rejects"]
            done = CliRunner().invoke(program, words)
            assert done.exit_code == 0, done.output

    entries: list[dict[str, str]] = [{"n": "1"}, {"n": "70000", "x": "y"}, {"x": "y"}, {"n": "seven"}, {"n": "2"}]
    for entry in entries:
        store.xadd(KEY, entry)  # type: ignore[arg-type]
    archive_once(tmp_path, source_options)
    publish_all("n smallint")
    rejects = f"{TYPED_NAME}_rejects"
    wide = ("field n is not of type int16: b'70000'", '{"n":"70000","x":"y"}')
    word = ("field n is not of type int16: b'seven'", '{"n":"seven"}')
    assert rows_of(tmp_path, TYPED_NAME, "n") == {(1,), (None,), (2,)}
    assert rows_of(tmp_path, rejects, "reason", "entry") == {wide, word}
    for entry in ({"n": "3"}, {"n": "4"}):  # a file in which nothing is rejected
        store.xadd(KEY, entry)  # type: ignore[arg-type]
    archive_once(tmp_path, source_options)
    assert rows_of(tmp_path, TYPED_NAME, "n") == {(1,), (None,), (2,), (3,), (4,)}
    assert rows_of(tmp_path, rejects, "reason", "entry") == {wide, word}
    publish_all("n int, x string")
    assert rows_of(tmp_path, TYPED_NAME, "n", "x") == {
        (1, None), (70000, "y"), (None, "y"), (2, None), (3, None), (4, None)
    }  # fmt: skip
    assert rows_of(tmp_path, rejects, "reason") == {("field n is not of type int32: b'seven'",)}
    for form in ("iceberg", "delta"):
        words = ["archive", "publish", str(tmp_path), "--format", form, "--drop", "--name", TYPED_NAME]
        assert CliRunner().invoke(program, words).exit_code == 0
    assert not list((tmp_path / "_tables").glob("*.json"))


# --- Inferred schemas -----------------------------------------------------------------------------------------------------


def infer(*words: object) -> Any:
    return CliRunner().invoke(program, ["archive", "schema", "infer", *map(str, words)])


VALUES: dict[str, list[object]] = {
    "number": [5, -3, 0, 2**62],
    "amount": ["1.5", "7", "-2e3", "nan"],
    "flag": ["true", "FALSE"],
    "day": ["2024-02-29", "1999-12-31"],
    "at": ["2024-02-29T12:30:00Z", "2024-02-29 12:30:00.25"],
    "zip": ["01234", "99999"],
    "huge": [2**63, 1],
    "text": ["ann", "1", ""],
    "blob": [b"\xff\x00", b"x"],
    "odd name": ["x"],
    "id": ["x"],
    "Text": ["x"],
}


def test_a_schema_is_inferred_from_a_sample(store: redis.Redis, source_options: Options, tmp_path: Path) -> None:
    for at in range(40):
        store.xadd(KEY, {name: values[at % len(values)] for name, values in VALUES.items()})  # type: ignore[misc, arg-type]
    store.xadd(KEY, {b"\xff": "a name that is no text"})
    archive_once(tmp_path, source_options)
    done = infer(tmp_path)
    assert done.exit_code == 0, done.output
    assert done.stdout == (
        "number bigint, amount double, flag boolean, day date, at timestamp, zip string, huge double, text string, blob binary\n"
    )
    assert "left out: column 'odd name': tables cannot have such a name" in done.stderr
    assert "left out: column id is part of every table" in done.stderr
    assert "left out: column Text comes twice" in done.stderr
    for config in configs_of(done.stdout.strip()):
        publish(Layout(tmp_path), config)
    table = read_delta(tmp_path, TYPED_NAME)
    assert {each: table.column(each).null_count for each in ("number", "amount", "flag", "day", "at")} == dict.fromkeys(
        ("number", "amount", "flag", "day", "at"), 1
    )
    assert infer(tmp_path, KEY, "--metadata-prefix", "x_").stdout.strip().endswith("blob binary, id string")
    assert json.loads(infer(tmp_path, "--rows", "10", "--json").stdout)[0] == {
        "name": "number",
        "type": "bigint",
        "values": 10,
    }
    assert "has no entries of stream 'none'" in infer(tmp_path, "none").stderr
