"""Typed open tables are whole wherever a run or a deletion was killed, and leave no file behind."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis

pytest.importorskip("pyiceberg", reason="open tables need streamd-server[tables]")
pytest.importorskip("deltalake", reason="open tables need streamd-server[tables]")
pytest.importorskip("polars", reason="what reads the tables comes with streamd-server[test]")
pytest.importorskip("duckdb_extension_delta", reason="what reads the tables comes with streamd-server[test]")

from support.archives import KEY, Killed, archive_once, expire_lock, kill_at, runs_killed_after
from support.table_readers import (
    READERS,
    SCHEMA,
    iceberg_table,
    read_by_all,
    read_delta,
    read_iceberg,
    typed_digest,
)
from support.typed_tables import (
    TYPED,
    Options,
    assert_no_file_is_left_over,
    assert_no_file_is_missing,
    assert_tables_are,
    derived_files,
    expected_of,
    run_once,
    typed_fill,
)

from streamd.disk import Disk
from streamd.spark.archive import tables
from streamd.spark.archive.delete import DELETE_STEPS, delete
from streamd.spark.archive.layout import Layout
from streamd.spark.archive.open_table import TYPED_NAME
from streamd.spark.archive.run import STEPS
from streamd.spark.archive.tables import publish
from streamd.spark.wire.ids import parse_entry_id

pytestmark = pytest.mark.long


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


CONFIGS = f'tuple(TableConfig(form, "streamd.typed", schema={SCHEMA!r}) for form in ("iceberg", "delta"))'


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_process_killed_at_random_leaves_tables_that_can_be_brought_up(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    for number in range(15):
        typed_fill(store, 100, 2 * number)
        with runs_killed_after(0.02 * number, tmp_path, source_options, CONFIGS):
            typed_fill(store, 100, 2 * number + 1)
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
