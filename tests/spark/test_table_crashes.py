"""Open tables, plain and typed, are whole wherever a run or a deletion was killed, and leave no file behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis

pytest.importorskip("pyiceberg", reason="open tables need streamd-server[tables]")
pytest.importorskip("deltalake", reason="open tables need streamd-server[tables]")
pytest.importorskip("polars", reason="what reads the tables comes with streamd-server[test]")
pytest.importorskip("duckdb_extension_delta", reason="what reads the tables comes with streamd-server[test]")

from support.archives.runs import KEY, Killed, archive_once, expire_lock, kill_at, runs_killed_after
from support.archives.table_kinds import PLAIN_TABLES, TYPED_TABLES, TableKind
from support.archives.table_readers import READERS, iceberg_table, read_by_all

from streamd.archive import kept_tables, publishing
from streamd.archive.archiver import STEPS
from streamd.archive.delete import DELETE_STEPS, delete
from streamd.archive.manifest_log import ManifestLog
from streamd.archive.open_format import ArchiveTable
from streamd.client.points import parse_entry_id
from streamd.disk import Disk

pytestmark = pytest.mark.long

Options = dict[str, str]


@pytest.fixture(params=[PLAIN_TABLES, TYPED_TABLES], ids=["plain", "typed"])
def kind(request: pytest.FixtureRequest) -> TableKind:
    found: TableKind = request.param
    return found


@pytest.fixture(scope="module", autouse=True)
def _import_before_tests() -> None:
    """Libraries that take a second to import do it outside of the tests that are timed."""
    import pyiceberg.catalog.sql  # noqa: F401


@pytest.mark.in_turn("step", "kind", 2)
@pytest.mark.parametrize("step", STEPS)
def test_a_run_killed_at_any_step_leaves_tables_that_the_next_brings_up(
    kind: TableKind, step: str, store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    for number in range(2):
        kind.fill(store, 100, number)
        kind.run_once(tmp_path, source_options)
    kind.fill(store, 100, 2)
    with pytest.raises(Killed, match=step):
        archive_once(tmp_path, source_options, hook=kill_at(step), merge_files=2, checkpoint_every=2)
    expire_lock(store)
    kind.assert_no_file_is_missing(tmp_path)
    assert kind.read(tmp_path)[0] in (200, 300)
    kind.run_once(tmp_path, source_options)
    kind.assert_are_whole(tmp_path, source_options)
    kind.run_once(tmp_path, source_options)
    kind.assert_no_file_is_left_over(tmp_path)


@pytest.mark.in_turn("step", "kind", 2)
@pytest.mark.parametrize("step", DELETE_STEPS)
def test_a_deletion_killed_at_any_step_is_done_in_the_tables_too(
    kind: TableKind, step: str, store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    for number in range(2):
        kind.fill(store, 100, number)
        kind.run_once(tmp_path, source_options)
    extra = kind.fill(store, 3, 2)
    kind.run_once(tmp_path, source_options, hot_window_ms=10**12)  # they stay on the server
    found = kind.ids(tmp_path)
    gone = [found[7], found[150], extra[0]]
    ranges = [(parse_entry_id(each), parse_entry_id(each)) for each in gone]
    with suppress(Killed):
        delete(str(tmp_path), KEY, source_options, ranges, hook=kill_at(step))
    expire_lock(store)
    kind.assert_no_file_is_missing(tmp_path)
    delete(str(tmp_path), KEY, source_options, ranges, lock_wait_ms=5000)
    kind.run_once(tmp_path, source_options)
    kind.assert_are_whole(tmp_path, source_options)
    kind.assert_no_file_is_left_over(tmp_path)
    assert not {*gone} & {*kind.ids(tmp_path)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("is_run", "step"), [*((True, step) for step in STEPS), *((False, step) for step in DELETE_STEPS)]
)
def test_every_reader_reads_a_whole_table_wherever_it_was_killed(
    is_run: bool, step: str, store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    """That of before or that of after, and after the next run what a read with the schema gives."""
    kind = TYPED_TABLES
    produced: list[str] = []
    for number in range(2):
        produced += kind.fill(store, 60, number)
        kind.run_once(tmp_path, source_options)
    whole = [kind.expected(tmp_path, source_options)]
    ranges = [(parse_entry_id(produced[7]), parse_entry_id(produced[90]))]
    if is_run:
        kind.fill(store, 60, 2)
        whole.append(kind.expected(tmp_path, source_options))
        with pytest.raises(Killed, match=step):
            archive_once(tmp_path, source_options, hook=kill_at(step), merge_files=2, checkpoint_every=2)
    else:
        with suppress(Killed):
            delete(str(tmp_path), KEY, source_options, ranges, hook=kill_at(step))
        expire_lock(store)
        whole.append(kind.expected(tmp_path, source_options))
    expire_lock(store)
    found = read_by_all(tmp_path, kind.name)
    assert len(set(found.values())) == 1
    assert found["pyiceberg"] in whole
    if not is_run:
        delete(str(tmp_path), KEY, source_options, ranges, lock_wait_ms=5000)
    kind.run_once(tmp_path, source_options)
    assert read_by_all(tmp_path, kind.name) == dict.fromkeys(READERS, kind.expected(tmp_path, source_options))


class Ending:
    """A table that ends the process at its use number `at`, before or after it is done."""

    def __init__(self, real: ArchiveTable, counter: Iterator[int], at: int, *, is_done: bool) -> None:
        self.real, self.counter, self.at, self.is_done = real, counter, at, is_done

    def _ending(self, action: Any) -> Any:
        is_last = next(self.counter) == self.at
        if is_last and not self.is_done:
            raise Killed("before")
        found = action()
        if is_last:
            raise Killed("after")
        return found

    def unknown_id(self) -> str | None:
        return self.real.unknown_id()

    def create(self) -> None:
        self._ending(self.real.create)

    def bring_up(self, log: ManifestLog) -> bool:
        return bool(self._ending(lambda: self.real.bring_up(log)))

    def forget(self, log: ManifestLog, moment_ms: int) -> None:
        self._ending(lambda: self.real.forget(log, moment_ms))

    def drop(self) -> None:
        self.real.drop()


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
def test_a_run_that_ends_at_any_use_of_a_table_is_repaired(
    is_done: bool, store: redis.Redis, source_options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = PLAIN_TABLES
    real = kept_tables.make_table
    at = ended = 0
    while ended < 2:
        at += 1
        assert at < 60
        kind.fill(store, 20, at)
        counter = iter(range(1, 1000))

        def make(*given: Any, at: int = at, counter: Iterator[int] = counter) -> Ending:
            return Ending(real(*given), counter, at, is_done=is_done)

        for module in (publishing, kept_tables):
            monkeypatch.setattr(module, "make_table", make)
        try:
            archive_once(tmp_path, source_options, publish=kind.configs, merge_files=2)
            ended += next(counter) <= at
        except Killed:
            ended = 0
        expire_lock(store)
        if (tmp_path / "data" / "_delta_log").exists() and (tmp_path / "_tables" / "iceberg").exists():
            with suppress(Exception):  # neither may be complete yet
                iceberg_table(tmp_path)
                kind.assert_no_file_is_missing(tmp_path)
    assert at > 8
    monkeypatch.undo()
    kind.run_once(tmp_path, source_options)
    kind.assert_are_whole(tmp_path, source_options)


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
    kind, at = TYPED_TABLES, 0
    kind.fill(store, 20, 0)
    kind.run_once(tmp_path, source_options)
    while True:
        at += 1
        assert at < 200
        kind.fill(store, 20, at)
        disk = EndingDisk(at, is_done=is_done)
        with suppress(Killed):
            archive_once(tmp_path, source_options, merge_files=2, disk=disk)
        expire_lock(store)
        kind.assert_no_file_is_missing(tmp_path)
        if disk.left > 0:
            break
        kind.run_once(tmp_path, source_options, merge_files=2)
    assert at > 8
    kind.run_once(tmp_path, source_options)
    kind.assert_are_whole(tmp_path, source_options)
    kind.assert_no_file_is_left_over(tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_process_killed_at_random_leaves_tables_that_can_be_brought_up(
    kind: TableKind, store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    for number in range(15):
        kind.fill(store, 100, 2 * number)
        with runs_killed_after(0.017 * number, tmp_path, source_options, kind.configs):
            kind.fill(store, 100, 2 * number + 1)
        kind.run_once(tmp_path, source_options)
        kind.assert_are_whole(tmp_path, source_options)
    kind.run_once(tmp_path, source_options)
    kind.assert_no_file_is_left_over(tmp_path)


def test_snapshots_go_before_the_files_that_they_name(
    kind: TableKind, store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    for number in range(4):
        kind.fill(store, 50, number)
        kind.run_once(tmp_path, source_options, merge_files=2, trim_delay_ms=3_600_000)
        kind.assert_no_file_is_missing(tmp_path)
    # Nothing may go yet: all of the earlier snapshots are readable.
    assert {50, 100, 150, 200} <= kind.rows_of_snapshots(tmp_path)
    kind.run_once(tmp_path, source_options)  # and now all replaced files may
    assert 200 in kind.rows_of_snapshots(tmp_path)
    assert not {50, 100} & kind.rows_of_snapshots(tmp_path)
    kind.assert_are_whole(tmp_path, source_options)
    kind.assert_no_file_is_left_over(tmp_path)
