"""A table that is published, or brought up by a run, and dropped at the same moment: one wins, and nothing half is left."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

pytest.importorskip("pyiceberg", reason="open tables need streamd-server[tables]")
pytest.importorskip("deltalake", reason="open tables need streamd-server[tables]")

from support.archives.runs import KEY, archive_once, fill
from support.archives.table_readers import delta_folder, iceberg_table

from streamd.archive import kept_tables
from streamd.archive.archive_errors import TableError
from streamd.archive.delta import DeltaArchiveTable
from streamd.archive.iceberg import IcebergTable
from streamd.archive.kept_tables import drop_table
from streamd.archive.layout import Layout
from streamd.archive.manifest_log import ManifestLog
from streamd.archive.open_format import TYPED_NAME, TableConfig
from streamd.archive.publishing import OpenTables, publish
from streamd.disk import Disk

pytestmark = pytest.mark.long

Options = dict[str, str]
TYPED = {"name": TYPED_NAME, "schema": "sensor int, value long"}
KINDS = [TableConfig(form, **given) for form in ("iceberg", "delta") for given in ({}, TYPED)]


@pytest.fixture(autouse=True)
def _nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes in between would wait for what it interrupts."""
    monkeypatch.setattr(kept_tables, "LOCK_WAIT_S", 0)


@pytest.fixture(params=KINDS, ids=str)
def config(request: pytest.FixtureRequest) -> TableConfig:
    found: TableConfig = request.param
    return found


class Interrupted:
    """Calls something once, before or after step number `at` of what is done in the block: a change on the disk, or of the table.

    fault  what was wrong with it; None: nothing
    """

    def __init__(self, at: int, come_between: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = at
        self.come_between = come_between
        self.is_inside = False
        self.fault: str | None = None
        for kind in (IcebergTable, DeltaArchiveTable):
            for name in ("create", "bring_up", "drop", "_named"):
                monkeypatch.setattr(kind, name, self._counted(getattr(kind, name)))
        for name in ("write_new", "publish", "rename", "unlink", "remove_tree"):
            monkeypatch.setattr(Disk, name, self._counted(getattr(Disk, name)))

    def _counted(self, real: Any) -> Any:
        @functools.wraps(real)
        def operate(*given: Any) -> Any:
            self._count()
            found = real(*given)
            self._count()
            return found

        return operate

    def _count(self) -> None:
        if self.is_inside:
            return
        self.left -= 1
        if self.left == 0:
            self.is_inside = True
            self.fault = fault_of(self.come_between)
            self.is_inside = False

    @property
    def is_over(self) -> bool:
        """Whether all steps were done before it came to number `at`."""
        return self.left > 0


def fault_of(action: Callable[[], object]) -> str | None:
    try:
        action()
    except TableError as error:
        return str(error)
    return None


BUSY = "another process is publishing or dropping a table"


def rows_of(path: Path, config: TableConfig) -> int:
    from deltalake import DeltaTable

    if config.format == "iceberg":
        return int(iceberg_table(path, config.name).scan().to_arrow().num_rows)
    return DeltaTable(delta_folder(path, config.name)).to_pyarrow_table().num_rows


def assert_nothing_is_left(path: Path, config: TableConfig) -> None:
    left = {str(each.relative_to(path)) for each in (path / "_tables").rglob("*") if each.is_file()}
    assert left <= {"_tables/iceberg/catalog.db"}
    assert not (path / "data" / "_delta_log").exists()
    if left:
        from pyiceberg.exceptions import NoSuchTableError

        with pytest.raises(NoSuchTableError, match="does not exist"):
            iceberg_table(path, config.name)


def prepare(store: redis.Redis, options: Options, path: Path) -> None:
    for number in range(2):
        fill(store, 20, start_ms=1_700_000_000_000 + number * 100_000_000)
        assert archive_once(path, options).is_success


def drop(path: Path, config: TableConfig) -> None:
    drop_table(Layout(path), config.format, None if config.schema is None else config.name)


def test_a_table_that_is_dropped_at_any_step_of_publishing(
    config: TableConfig, store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    prepare(store, source_options, tmp_path)
    seen = set()
    for at in range(1, 200):
        with pytest.MonkeyPatch.context() as patched:
            steps = Interrupted(at, lambda: drop(tmp_path, config), patched)
            published = fault_of(lambda: publish(Layout(tmp_path), config))
        if steps.is_over:
            break
        if published is None:
            assert steps.fault is not None
            seen.add("busy" if BUSY in steps.fault else "not there")
            assert rows_of(tmp_path, config) == 40
            assert not archive_once(tmp_path, source_options).streams[0].warnings
            drop(tmp_path, config)
        else:
            assert steps.fault is None
            assert published == f"the {config}: it was dropped at the same time"
            seen.add("dropped")
        assert_nothing_is_left(tmp_path, config)
    assert seen >= {"busy", "dropped"}


def test_a_table_that_is_published_at_any_step_of_dropping(
    config: TableConfig, store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    prepare(store, source_options, tmp_path)
    for at in range(1, 200):
        publish(Layout(tmp_path), config)
        with pytest.MonkeyPatch.context() as patched:
            steps = Interrupted(at, lambda: publish(Layout(tmp_path), config), patched)
            drop(tmp_path, config)
        assert_nothing_is_left(tmp_path, config)
        if steps.is_over:
            assert at > 4
            return
        assert (steps.fault is None) == (at == 1), "before the description says so, it is kept, and then dropped"
        assert steps.fault is None or BUSY in steps.fault
    raise AssertionError


def test_a_table_that_is_dropped_at_any_step_of_a_run_is_not_made_again(
    config: TableConfig, store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    prepare(store, source_options, tmp_path)
    for at in range(1, 200):
        publish(Layout(tmp_path), config)
        fill(store, 20, start_ms=1_700_000_000_000 + (at + 2) * 100_000_000)
        with pytest.MonkeyPatch.context() as patched:
            steps = Interrupted(at, lambda: drop(tmp_path, config), patched)
            report = archive_once(tmp_path, source_options, merge_files=3)
        assert report.is_success
        assert not report.streams[0].warnings
        assert steps.fault is None
        if steps.is_over:
            drop(tmp_path, config)
            assert at > 4
            return
        assert_nothing_is_left(tmp_path, config)
    raise AssertionError


class FullDisk(Disk):
    """Writes no description of a table."""

    def rename(self, old: Any, new: Any) -> None:
        if "_tables" in str(new):
            raise OSError(28, "No space left on device")
        super().rename(old, new)


def test_a_fault_in_removing_what_is_left_of_a_dropped_table_is_one_of_the_table(
    store: redis.Redis, source_options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With which a run goes on; it would end with those of the archive."""
    config, layout = TableConfig("delta"), Layout(tmp_path)
    prepare(store, source_options, tmp_path)
    publish(layout, config)
    bring_up = DeltaArchiveTable.bring_up

    def drop_and_bring_up(*given: Any) -> bool:
        drop(tmp_path, config)
        return bring_up(*given)

    monkeypatch.setattr(DeltaArchiveTable, "bring_up", drop_and_bring_up)
    with pytest.raises(TableError, match="No space left on device"):
        OpenTables(layout, FullDisk()).bring_up(ManifestLog.read(layout, KEY))


WITHOUT_LOCKS = """
import sys
sys.modules["fcntl"] = None
from streamd.archive.kept_tables import drop_table
from streamd.archive.layout import Layout
from streamd.archive.open_format import TableConfig
from streamd.archive.publishing import publish
layout = Layout(sys.argv[1])
assert len(publish(layout, TableConfig("delta"))) == 1
drop_table(layout, "delta")
"""


def test_a_system_without_locks_publishes_and_drops(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    """As Windows is."""
    prepare(store, source_options, tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_LOCKS, str(tmp_path)], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    assert_nothing_is_left(tmp_path, TableConfig("delta"))
