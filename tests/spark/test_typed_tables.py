"""Typed open tables: pyiceberg, deltalake, polars and DuckDB read what a read with a schema gives, wherever a run was killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis

pytest.importorskip("pyiceberg", reason="open tables need streamd-server[tables]")
pytest.importorskip("deltalake", reason="open tables need streamd-server[tables]")
pytest.importorskip("polars", reason="what reads the tables comes with streamd-server[test]")
pytest.importorskip("duckdb_extension_delta", reason="what reads the tables comes with streamd-server[test]")

from click.testing import CliRunner
from pyspark.sql import types
from support.archives import KEY, Killed, archive_once, expire_lock, kill_at
from support.table_readers import (
    READERS,
    SCHEMA,
    delta_folder,
    files_named,
    iceberg_table,
    read_by_all,
    read_delta,
    read_iceberg,
    read_typed_history,
    typed_digest,
)

from streamd.cli.subcommands import program
from streamd.disk import Disk
from streamd.spark.archive import table_files, tables
from streamd.spark.archive.delete import DELETE_STEPS, delete
from streamd.spark.archive.layout import Layout
from streamd.spark.archive.open_table import TYPED_NAME, TableConfig
from streamd.spark.archive.run import STEPS, RunReport
from streamd.spark.archive.tables import drop_table, publish
from streamd.spark.arrow.ddl import parse_columns
from streamd.spark.source.read_options import SourceOptions
from streamd.spark.source.schema import table_layout
from streamd.spark.wire.ids import parse_entry_id

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long

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


def run_once(path: Path, options: Options, **changes: Any) -> RunReport:
    report = archive_once(path, options, **{"publish": TYPED, **changes})
    assert report.is_success, report.to_json()
    assert not report.streams[0].warnings
    return report


def expected_of(path: Path, options: Options, stream: str = KEY) -> tuple[int, str]:
    return typed_digest(read_typed_history(path, options, SPARK_SCHEMA, stream))


def derived_files(path: Path, name: str = TYPED_NAME) -> set[str]:
    """The files of both typed tables that lie there."""
    folders = (path / "_tables" / f"iceberg-{name}" / "data", delta_folder(path, name))
    return {str(each) for folder in folders for each in folder.rglob("*.parquet") if "_delta_log" not in each.parts}


def assert_tables_are(path: Path, options: Options) -> None:
    """Both tables have what history has, name no file that is not there, and leave none that nobody names."""
    expected = expected_of(path, options)
    assert typed_digest(read_iceberg(path, TYPED_NAME)) == expected
    assert typed_digest(read_delta(path, TYPED_NAME)) == expected
    assert_no_file_is_missing(path)
    assert not list((path / "_staging").rglob("*.parquet"))


def assert_no_file_is_missing(path: Path) -> None:
    missing = {each for each in files_named(path, TYPED_NAME) if not os.path.exists(each)}
    assert not missing


def assert_no_file_is_left_over(path: Path) -> None:
    assert derived_files(path) == files_named(path, TYPED_NAME)


# --- What is read ---------------------------------------------------------------------------------------------------------


def test_every_reader_reads_what_a_read_with_the_schema_gives(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    produced: list[str] = []
    for number in range(5):  # some days, merged files among them, and one from which entries are deleted
        produced += typed_fill(store, 300, number)
        run_once(tmp_path, source_options, merge_files=3)
    ranges = [(parse_entry_id(produced[20]), parse_entry_id(produced[40]))]
    delete(str(tmp_path), KEY, source_options, ranges)
    expected = expected_of(tmp_path, source_options)
    assert expected[0] == 1500 - 21
    assert_no_file_is_left_over(tmp_path)
    assert read_by_all(tmp_path, TYPED_NAME) == dict.fromkeys(READERS, expected)


def test_bytes_that_are_no_text_are_shown_as_such(store: redis.Redis, source_options: Options, tmp_path: Path) -> None:
    store.execute_command("XADD", KEY, "1700000000000-0", "user", b"\xffann\xc3", "amount", b"\xfe")
    store.execute_command("XADD", KEY, "1700000000001-0", "user", "Zoë")
    run_once(tmp_path, source_options)
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
    run_once(tmp_path, source_options, hot_window_ms=-(10**19))
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
    run_once(tmp_path, source_options)
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


# --- The crash matrix -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", STEPS)
def test_a_run_killed_at_any_step_leaves_tables_that_the_next_brings_up(
    step: str, store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    for number in range(2):
        typed_fill(store, 100, number)
        run_once(tmp_path, source_options)
    typed_fill(store, 100, 2)
    with pytest.raises(Killed):
        archive_once(tmp_path, source_options, hook=kill_at(step), merge_files=2, checkpoint_every=2)
    expire_lock(store)
    assert_no_file_is_missing(tmp_path)
    found = typed_digest(read_iceberg(tmp_path, TYPED_NAME))
    assert found[0] in (200, 300)
    assert typed_digest(read_delta(tmp_path, TYPED_NAME)) == found
    run_once(tmp_path, source_options)
    assert_tables_are(tmp_path, source_options)
    run_once(tmp_path, source_options)
    assert_no_file_is_left_over(tmp_path)


@pytest.mark.parametrize("step", DELETE_STEPS)
def test_a_deletion_killed_at_any_step_is_done_in_the_tables_too(
    step: str, store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    for number in range(2):
        typed_fill(store, 100, number)
        run_once(tmp_path, source_options)
    extra = typed_fill(store, 3, 2)
    run_once(tmp_path, source_options, hot_window_ms=10**12)  # they stay on the server
    found = read_iceberg(tmp_path, TYPED_NAME).column("id").to_pylist()
    gone = [found[7], found[150], extra[0]]
    ranges = [(parse_entry_id(each), parse_entry_id(each)) for each in gone]
    with suppress(Killed):
        delete(str(tmp_path), KEY, source_options, ranges, hook=kill_at(step))
    expire_lock(store)
    assert_no_file_is_missing(tmp_path)
    delete(str(tmp_path), KEY, source_options, ranges, lock_wait_ms=5000)
    run_once(tmp_path, source_options)
    assert_tables_are(tmp_path, source_options)
    assert_no_file_is_left_over(tmp_path)
    assert not {*gone} & {*read_iceberg(tmp_path, TYPED_NAME).column("id").to_pylist()}


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("is_run", "step"), [*((True, step) for step in STEPS), *((False, step) for step in DELETE_STEPS)]
)
def test_every_reader_reads_a_whole_table_wherever_it_was_killed(
    is_run: bool, step: str, store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    """That of before or that of after, and after the next run what a read with the schema gives."""
    produced: list[str] = []
    for number in range(2):
        produced += typed_fill(store, 60, number)
        run_once(tmp_path, source_options)
    whole = [expected_of(tmp_path, source_options)]
    ranges = [(parse_entry_id(produced[7]), parse_entry_id(produced[90]))]
    if is_run:
        typed_fill(store, 60, 2)
        whole.append(expected_of(tmp_path, source_options))
        with pytest.raises(Killed):
            archive_once(tmp_path, source_options, hook=kill_at(step), merge_files=2, checkpoint_every=2)
    else:
        with suppress(Killed):
            delete(str(tmp_path), KEY, source_options, ranges, hook=kill_at(step))
        expire_lock(store)
        whole.append(expected_of(tmp_path, source_options))
    expire_lock(store)
    found = read_by_all(tmp_path, TYPED_NAME)
    assert len(set(found.values())) == 1
    assert found["pyiceberg"] in whole
    if not is_run:
        delete(str(tmp_path), KEY, source_options, ranges, lock_wait_ms=5000)
    run_once(tmp_path, source_options)
    assert read_by_all(tmp_path, TYPED_NAME) == dict.fromkeys(READERS, expected_of(tmp_path, source_options))


class EndingDisk(Disk):
    """Ends the process at its change number `at` to the folder of tables, before or after it is done."""

    def __init__(self, at: int, *, is_done: bool) -> None:
        self.left = at
        self.is_done = is_done

    def _end(self, action: Any, *paths: Any) -> None:
        self.left -= any("_tables" in str(path) or "table-" in str(path) for path in paths)
        if self.left == 0 and not self.is_done:
            raise Killed("before")
        action(*paths)
        if self.left == 0:
            raise Killed("after")

    def publish(self, temporary: Any, final: Any) -> None:
        self._end(super().publish, temporary, final)

    def sync_file(self, path: Any) -> None:
        self._end(super().sync_file, path)

    def make_directories(self, path: Any) -> None:
        self._end(super().make_directories, path)

    def sync_directory(self, path: Any) -> None:
        self._end(super().sync_directory, path)

    def unlink(self, path: Any) -> None:
        self._end(super().unlink, path)


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
def test_a_run_that_ends_at_any_change_of_a_tables_files_is_repaired(
    is_done: bool, store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    at = 0
    typed_fill(store, 20)
    run_once(tmp_path, source_options)
    while True:
        at += 1
        assert at < 200
        typed_fill(store, 20, at)
        disk = EndingDisk(at, is_done=is_done)
        with suppress(Killed):
            archive_once(tmp_path, source_options, merge_files=2, disk=disk)
        expire_lock(store)
        assert_no_file_is_missing(tmp_path)
        if disk.left > 0:
            break
        run_once(tmp_path, source_options, merge_files=2)
    assert at > 8
    run_once(tmp_path, source_options)
    assert_tables_are(tmp_path, source_options)
    assert_no_file_is_left_over(tmp_path)


KILLED_RUNS = """
import sys
from support.archives import archive_once
from support.table_readers import SCHEMA
from streamd.spark.archive.open_table import TableConfig
configs = tuple(TableConfig(form, "streamd.typed", schema=SCHEMA) for form in ("iceberg", "delta"))
print("ready", flush=True)
while True:
    archive_once(sys.argv[1], {"port": sys.argv[2]}, publish=configs, merge_files=2)
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_process_killed_at_random_leaves_tables_that_can_be_brought_up(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    for number in range(15):
        typed_fill(store, 100, 2 * number)
        command = [sys.executable, "-c", KILLED_RUNS, str(tmp_path), source_options["port"]]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": "tests:."}, cwd=Path(__file__).parents[2]
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            typed_fill(store, 100, 2 * number + 1)
            time.sleep(0.02 * number)  # where it is killed is what is tried
            process.send_signal(signal.SIGKILL)
        run_once(tmp_path, source_options)
        assert_tables_are(tmp_path, source_options)
    run_once(tmp_path, source_options)
    assert_no_file_is_left_over(tmp_path)


# --- Replaced files, and what is left over ------------------------------------------------------------------------------------


def test_files_go_after_the_snapshots_that_name_them(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    for number in range(4):
        typed_fill(store, 50, number)
        run_once(tmp_path, source_options, merge_files=2, trim_delay_ms=3_600_000)
        assert_no_file_is_missing(tmp_path)
    # Nothing may go yet: all of the earlier snapshots are readable.
    assert {50, 100, 150, 200} <= rows_of_snapshots(tmp_path)
    run_once(tmp_path, source_options)  # and now all replaced files may
    assert 200 in rows_of_snapshots(tmp_path)
    assert not {50, 100} & rows_of_snapshots(tmp_path)
    assert_tables_are(tmp_path, source_options)
    assert_no_file_is_left_over(tmp_path)
    assert len(derived_files(tmp_path)) == 2 * len(Layout(tmp_path).data_files(KEY))


def rows_of_snapshots(path: Path) -> set[int]:
    table = iceberg_table(path, TYPED_NAME)
    return {table.scan(snapshot_id=each.snapshot_id).to_arrow().num_rows for each in table.snapshots()}


def test_what_nobody_names_is_swept_and_nothing_else(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    for number in range(3):
        typed_fill(store, 50, number)
        run_once(tmp_path, source_options, merge_files=2, trim_delay_ms=3_600_000)
    named = derived_files(tmp_path)
    for each in list(named):
        path = Path(each)
        run, _, columns = path.name.removesuffix(".parquet").rpartition(".")
        path.with_name(f"{run}.00000000.parquet").write_bytes(b"of other columns")
        path.with_name(f"20200101T000000-{run}.{columns}.parquet").write_bytes(b"of a source that is gone")
    assert len(derived_files(tmp_path)) == 3 * len(named)
    run_once(tmp_path, source_options, trim_delay_ms=3_600_000)
    assert derived_files(tmp_path) == named


def test_a_half_written_file_that_is_cleaned_up_is_written_again(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    """A run removes what `publish` is writing, which it takes for something left over."""
    typed_fill(store, 100)
    archive_once(tmp_path, source_options)
    cleaned: list[int] = []

    class CleaningDisk(Disk):
        def sync_file(self, path: Any) -> None:
            if "table-" in str(path):
                cleaned.append(1)
                archive_once(tmp_path, source_options)
            super().sync_file(path)

    for config in TYPED:
        publish(Layout(tmp_path), config, disk=CleaningDisk())
    assert len(cleaned) == 2
    assert_tables_are(tmp_path, source_options)


def test_publishing_goes_on_while_files_are_merged_and_entries_deleted(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    produced = typed_fill(store, 50)
    archive_once(tmp_path, source_options)
    words = [sys.executable, "-m", "streamd", "archive", "publish", str(tmp_path), "--schema", SCHEMA, "--format"]
    processes = [subprocess.Popen([*words, form]) for form in ("iceberg", "delta") for _ in range(2)]
    for number in range(1, 12):
        produced += typed_fill(store, 50, number)
        assert archive_once(tmp_path, source_options, merge_files=2).is_success
        gone = parse_entry_id(produced[number * 3])
        with suppress(tables.TableError):  # all of them work on the tables at once
            delete(str(tmp_path), KEY, source_options, [(gone, gone)])
    assert [each.wait(120) for each in processes] == [0] * 4
    for _ in range(2):
        run_once(tmp_path, source_options)
    assert_tables_are(tmp_path, source_options)
    assert_no_file_is_left_over(tmp_path)


# --- Publishing -------------------------------------------------------------------------------------------------------------


def test_publishing_that_was_killed_goes_on_where_it_was(
    store: redis.Redis, source_options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        typed_fill(store, 50, number)
        archive_once(tmp_path, source_options, merge_files=99)
    made: list[Path] = []
    write = table_files.write_file

    def write_some(path: Path, *given: Any) -> None:
        if len(made) in (2, 4):
            made.append(path)
            raise Killed
        made.append(path)
        write(path, *given)

    monkeypatch.setattr(table_files, "write_file", write_some)
    for _ in range(2):
        with pytest.raises(Killed):
            publish(Layout(tmp_path), TYPED[1])
    publish(Layout(tmp_path), TYPED[1])
    files = Layout(tmp_path).data_files(KEY)
    assert len(made) == len(files) + 2, "each file is made once"
    publish(Layout(tmp_path), TYPED[0])
    assert_tables_are(tmp_path, source_options)


def command(*words: object) -> Any:
    return CliRunner().invoke(program, ["archive", *map(str, words)])


def test_the_command_keeps_a_table_that_runs_carry_on(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    typed_fill(store, 50)
    typed_fill(store, 50, key="other")
    for key in (KEY, "other"):
        archive_once(tmp_path, source_options | {"stream": key})
    words = ("--stream", KEY, "--name", TYPED_NAME, "--json")
    for form in ("iceberg", "delta"):
        done = command("publish", tmp_path, "--format", form, "--schema", SCHEMA, *words)
        assert json.loads(done.output) == {"format": form, "files": {KEY: 1}}
        assert command("publish", tmp_path, "--format", form, "--name", TYPED_NAME).exit_code == 0
    for key in (KEY, "other"):
        typed_fill(store, 50, 1, key=key)
        archive_once(tmp_path, source_options | {"stream": key})
    assert_tables_are(tmp_path, source_options)
    for form in ("iceberg", "delta"):
        # The same, written in another form.
        columns = [each.split(" ") for each in SCHEMA.split(", ")]
        again = " ,\n".join(f"{name}: {kind.upper()}" for name, kind in columns).replace("BIGINT", "long")
        done = command("publish", tmp_path, "--format", form, "--schema", again, *words)
        assert done.exit_code == 0, done.output
        assert "keeps no" in command("publish", tmp_path, "--format", form, "--drop").output
        assert f"but {TYPED_NAME}" in command("publish", tmp_path, "--format", form, "--drop").output
        assert command("publish", tmp_path, "--format", form, "--drop", "--name", TYPED_NAME).exit_code == 0
    assert not list((tmp_path / "_tables").rglob("*.parquet"))
    assert sorted(os.listdir(tmp_path / "_tables")) == ["iceberg"]


WRONG = {
    "n float8": "column n cannot be float8: the types of fields are string, binary",
    "n int(5)": "column n cannot be int",
    "n array<int>": "cannot read 'n array<int>'",
    "n": "cannot read 'n': columns are written 'user string, amount double'",
    "n int,": "cannot read ''",
    "n int m int": "cannot read 'n int m int'",
    "a-b int": "cannot read 'a-b int'",
    "n decimal(39)": "column n cannot be decimal(39,0)",
    "n int, m string, N double": "column N comes twice",
    "ms bigint": "column ms is part of every table; when a field of that name is meant, give --metadata-prefix",
    "n int, Date date": "column Date is part of every table",
    "fields string": "column fields is part of every table",
    "`a b` int": "column 'a b': tables cannot have such a name",
    "_corrupt_record int": "column _corrupt_record must be a string",
}


@pytest.mark.parametrize("schema", WRONG)
def test_a_schema_that_is_wrong_is_refused_in_one_line(schema: str, tmp_path: Path) -> None:
    Layout(tmp_path).create(Disk())
    done = command("publish", tmp_path, "--format", "delta", "--schema", schema)
    assert done.exit_code == 1
    assert done.output.startswith(f"Error: option schema: {WRONG[schema]}"), done.output
    assert done.output.count("\n") == 1
    assert not (tmp_path / "_tables").exists()


@pytest.mark.parametrize("form", ["iceberg", "delta"])
def test_another_table_of_a_name_is_refused(
    form: str, store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    typed_fill(store, 10)
    archive_once(tmp_path, source_options, publish=(TableConfig(form),))
    publishing = ("publish", tmp_path, "--format", form)
    assert command(*publishing, "--schema", "user string").exit_code == 0
    for words, said in (
        (("--schema", "user string, amount double"), f"keeps the {form} table streamd.typed with another schema: user string"),
        (("--schema", "user string", "--name", "streamd.archive"), f"keeps the {form} table streamd.archive without a schema"),
        (("--schema", "user string", "--stream", KEY), f"keeps another {form} table, streamd.typed: drop it first"),
        (("--schema", "user string", "--metadata-prefix", "x"), f"keeps another {form} table, streamd.typed: drop it first"),
        (("--stream", KEY), "need --schema"),
        (("--drop", "--name", "a.b"), f"keeps no {form} table a.b, but {form}"),
    ):  # fmt: skip
        done = command(*publishing, *words)
        assert done.exit_code != 0
        assert said.replace(f"but {form}", "but streamd.archive, streamd.typed") in done.output.replace(
            "typed, streamd.archive", "archive, streamd.typed"
        )
    # Another schema needs another name, or the other table to go.
    assert command(*publishing, "--schema", "user string, amount double", "--name", "streamd.more").exit_code == 0
    assert command(*publishing, "--drop", "--name", "streamd.typed").exit_code == 0
    assert command(*publishing, "--schema", "user binary").exit_code == 0
    assert command(*publishing).exit_code == 0


@pytest.mark.parametrize("form", ["iceberg", "delta"])
def test_a_drop_that_is_killed_anywhere_is_ended_by_a_drop_alone(
    form: str, store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    typed_fill(store, 30)
    archive_once(tmp_path, source_options)
    config = TableConfig(form, TYPED_NAME, schema=SCHEMA)

    class DroppingDisk(Disk):
        left = 0

        def _end(self, action: Any, *given: Any) -> None:
            self.left -= 1
            if self.left == 0:
                raise Killed
            action(*given)

        def rename(self, *given: Any) -> None:
            self._end(super().rename, *given)

        def remove_tree(self, path: Any) -> None:
            self._end(super().remove_tree, path)

        def unlink(self, path: Any) -> None:
            self._end(super().unlink, path)

    for at in range(1, 10):
        publish(Layout(tmp_path), config)
        disk = DroppingDisk()
        disk.left = at
        with suppress(Killed):
            drop_table(Layout(tmp_path), form, TYPED_NAME, disk=disk)
        is_done = disk.left > 0
        assert not archive_once(tmp_path, source_options).streams[0].warnings  # which does not make it again
        if not is_done and at % 2:
            drop_table(Layout(tmp_path), form, TYPED_NAME)
        if is_done or at % 2:
            with pytest.raises(tables.TableError, match="keeps no"):
                drop_table(Layout(tmp_path), form, TYPED_NAME)
            assert not derived_files(tmp_path)
        if is_done:
            return
    raise AssertionError


@pytest.mark.parametrize("form", ["iceberg", "delta"])
def test_a_deletion_reaches_what_a_killed_drop_has_left(
    form: str, store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    produced = typed_fill(store, 30)
    archive_once(tmp_path, source_options)
    publish(Layout(tmp_path), TableConfig(form, TYPED_NAME, schema=SCHEMA))

    class NoDisk(Disk):
        def remove_tree(self, path: Any) -> None:
            raise Killed

    with pytest.raises(Killed):
        drop_table(Layout(tmp_path), form, TYPED_NAME, disk=NoDisk())
    assert derived_files(tmp_path)
    gone = parse_entry_id(produced[3])
    delete(str(tmp_path), KEY, source_options, [(gone, gone)])
    assert not derived_files(tmp_path)
    drop_table(Layout(tmp_path), form, TYPED_NAME)


def test_tables_of_an_archive_that_was_moved_are_dropped_and_made_anew(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    typed_fill(store, 30)
    both = (TableConfig("iceberg"), *TYPED)
    run_once(tmp_path / "old", source_options, publish=both)
    moved = (tmp_path / "old").rename(tmp_path / "new")
    for name in (None, TYPED_NAME):
        drop_table(Layout(moved), "iceberg", name)
    run_once(moved, source_options, publish=both)
    typed_fill(store, 30, 1)
    run_once(moved, source_options)
    assert_tables_are(moved, source_options)
    assert_no_file_is_left_over(moved)
    assert read_iceberg(moved).num_rows == 60
