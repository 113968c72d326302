"""Processes that work on an archive, killed by SIGKILL at every step: nothing is lost or there twice, and the next run repairs the rest.

The archive has typed tables with rejects, as Iceberg and as Delta, so a step may lie between the four of them, or within one of their files.
Runs trim and merge; a growth of the schema moves entries from the rejects to the table.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

pytest.importorskip("pyiceberg", reason="open tables need streamd-server[tables]")
pytest.importorskip("deltalake", reason="open tables need streamd-server[tables]")

from support.archives.killed_work import delete_entries, is_killed, publish_tables, run_once
from support.archives.runs import KEY, archive_once, rows_of_history
from support.archives.table_readers import files_named, read_delta, read_iceberg
from support.archives.typed_tables import derived_files

from streamd.archive.archiver import STEPS
from streamd.archive.delete import DELETE_STEPS
from streamd.archive.layout import Layout
from streamd.archive.open_format import TYPED_NAME, rejects_of
from streamd.archive.verify import verify_archive
from streamd.client.points import parse_entry_id

pytestmark = pytest.mark.long

Options = dict[str, str]
FIRST_MS = 1_700_000_000_000
SCHEMA, LARGER = "n smallint", "n int, x string"
VALUES = ("1", "70000", "seven")
"""Of the field n, in turn: the second fits when the schema has grown, the third never does."""
NAMES = (TYPED_NAME, rejects_of(TYPED_NAME))

FILES, DELTA, ICEBERG = "streamd.archive.published_files", "streamd.archive.delta", "streamd.archive.iceberg"


IN_TABLES = (
    f"{FILES}:write_file#1 before",
    *(f"{FILES}:write_file#{number} after" for number in (1, 2, 3, 4)),
    *(f"{FILES}:RejectsCaster.cast#{number} after" for number in (1, 2)),
    f"{DELTA}:DeltaArchiveTable._commit#1 before",
    *(f"{DELTA}:DeltaArchiveTable._commit#{number} after" for number in (1, 2)),
    f"{ICEBERG}:IcebergTable._remove_metadata#1 before",
    *(f"{ICEBERG}:IcebergTable.bring_up#{number} after" for number in (1, 2)),
)  # fmt: skip
"""Between the tables, and within a file and a commit of one."""
IN_GROWTH = (
    *(f"{DELTA}:DeltaArchiveTable._evolve#1 {when}" for when in ("before", "after")),
    *(f"{ICEBERG}:IcebergTable._evolve#1 {when}" for when in ("before", "after")),
)  # fmt: skip
IN_REMOVAL = (f"{FILES}:DerivedFiles._remove#1 before", *(f"{FILES}:DerivedFiles._remove#{at} after" for at in (1, 3)))


def add(store: redis.Redis, count: int, number: int) -> list[str]:
    """Append entries of a round; their IDs."""
    pipe = store.pipeline(transaction=False)
    for at in range(count):
        entry_id = f"{FIRST_MS + number * 1_000_000 + at * 1000}-{at % 2}"
        pipe.xadd(KEY, {"n": VALUES[at % len(VALUES)], "x": "y"}, id=entry_id)
    return [found.decode() for found in pipe.execute()]


def redis_ms(store: redis.Redis) -> int:
    return int(store.time()[0]) * 1000


class Scene:
    """A stream of which two rounds are archived and one is not, and its tables."""

    def __init__(self, store: redis.Redis, options: Options, path: Path) -> None:
        self.store, self.options, self.path = store, options, path
        self.schema = SCHEMA
        self.produced: list[str] = []
        for number in range(2):
            self.produced += add(store, 30, number)
            assert archive_once(path, options, merge_files=99).is_success
            if number == 0:
                publish_tables(lambda step: None, str(path), SCHEMA)
        self.produced += add(store, 30, 2)

    def kill(self, work: str, point: str) -> None:
        path = str(self.path)
        if work == "run":
            assert is_killed(run_once, point, path, self.options)
        elif work == "growth":
            self.schema = LARGER
            assert is_killed(publish_tables, point, path, LARGER)
        else:
            # Archived alone, archived and on the server, the first that is not archived, and the last.
            self.produced += add(self.store, 10, 3)
            settings = {"merge_files": 99, "trim": False, "hot_window_ms": redis_ms(self.store) - FIRST_MS - 2_500_000}
            assert archive_once(self.path, self.options, **settings).streams[0].rows == 30
            gone = [self.produced[at] for at in (7, 8, 40, 62, 90, 99)]
            ranges = [(number, number) for number in map(parse_entry_id, gone)]
            assert is_killed(delete_entries, point, path, self.options, ranges)
            self.assert_is_readable({*self.produced} - {*gone})
            delete_entries(lambda step: None, path, self.options, ranges)
            self.produced = [each for each in self.produced if each not in gone]

    def assert_is_readable(self, kept: set[str]) -> None:
        """What may have been deleted is there or not; no table names a file that is gone."""
        found = [entry_id for entry_id, _ in rows_of_history(self.path, self.options)]
        assert found == [each for each in self.produced if each in kept or each in found]
        assert kept <= {*found}
        for name in NAMES:
            assert [each for each in files_named(self.path, name) if not Path(each).exists()] == []

    def assert_is_repaired(self) -> None:
        publish_tables(lambda step: None, str(self.path), self.schema)
        for _ in range(2):  # the second removes what the first has replaced
            report = archive_once(self.path, self.options)
            assert report.is_success, report.to_json()
            assert (
                not report.streams[0].warnings or "deleted before they were archived" in report.streams[0].warnings[0]
            )
        self.assert_is_readable({*self.produced})
        found = verify_archive(Layout(self.path), KEY)
        assert (found.faults, found.strangers) == ([], [])
        assert self.store.xlen(KEY) == 0
        assert not list((self.path / "_staging").rglob("*.parquet"))
        values = ("1", "70000") if self.schema == LARGER else ("1",)
        entries = dict(rows_of_history(self.path, self.options))
        fit = sorted(each for each in entries if entries[each][0][1].decode() in values)
        rejected = sorted({*entries} - {*fit})
        for read in (read_iceberg, read_delta):
            assert [sorted(read(self.path, name).column("id").to_pylist()) for name in NAMES] == [fit, rejected]
        for name in NAMES:
            assert derived_files(self.path, name) == files_named(self.path, name)


@pytest.mark.parametrize(
    ("work", "point"),
    [
        *(("run", each) for each in (*STEPS, *IN_TABLES, *IN_REMOVAL)),
        *(("growth", each) for each in (*IN_TABLES, *IN_GROWTH)),
        *(pytest.param("deletion", each, marks=pytest.mark.slow) for each in DELETE_STEPS),
    ],
)
def test_nothing_is_lost_or_there_twice_after_a_kill(
    work: str, point: str, store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    scene = Scene(store, source_options, tmp_path)
    scene.kill(work, point)
    scene.assert_is_readable({*scene.produced})
    scene.assert_is_repaired()
