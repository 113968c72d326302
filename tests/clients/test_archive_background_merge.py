"""Merges of a service beside its rounds: no round waits for one, and nothing is lost or there twice, whatever comes between."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from support.servers import Server, eventually

pytest.importorskip("pyspark", reason="archives are read here by streamd-server[spark]")

from support.archives.killed_work import is_killed, merge_beside_rounds
from support.archives.runs import KEY, archive_once, fill, rows_of_history

from streamd.archive.archiver import STEPS, RunReport
from streamd.archive.background_merge import BackgroundMerges
from streamd.archive.delete import delete
from streamd.archive.layout import Layout
from streamd.archive.manifest_log import ManifestLog
from streamd.archive.verify import verify_archive
from streamd.client.archive_keys import key_beside
from streamd.client.points import parse_entry_id

pytestmark = pytest.mark.long

FIRST_MS = 1_700_000_000_000
PER_ROUND = 10
MERGING = key_beside("merging", KEY)


class Scene:
    """An archive of two rounds of entries, and a service that merges them beside further rounds: its thread waits in the step `held_at`."""

    def __init__(self, store: redis.Redis, path: Path, port: int, held_at: str = "merge verified") -> None:
        self.store, self.path, self.options = store, path, {"port": str(port)}
        self.held_at = held_at
        self.merges = BackgroundMerges()
        self.goes_on, self.is_held = threading.Event(), threading.Event()
        self.produced: list[str] = []
        self.additions = 0
        for _ in range(2):
            self.add()
            assert archive_once(path, self.options, merge_files=99).is_success

    def add(self) -> None:
        self.produced += fill(self.store, PER_ROUND, start_ms=FIRST_MS + self.additions * 60_000, step_ms=1000)
        self.additions += 1

    def hook(self, step: str) -> None:
        if step == self.held_at:
            self.is_held.set()
            self.goes_on.wait(100)

    def round(self, hook: Callable[[str], None] | None = None) -> RunReport:
        self.add()
        report = archive_once(self.path, self.options, merges=self.merges, hook=hook or self.hook, merge_files=2)
        assert report.streams[0].rows == PER_ROUND
        return report

    def begin(self) -> None:
        """A round after which a merge is under way, and is held."""
        assert self.round().is_success
        eventually(self.is_held.is_set, 100, "the merge under way")

    def finish(self) -> None:
        self.goes_on.set()
        eventually(lambda: not self.merges.is_merging(KEY), 100, "the end of the thread")

    @property
    def rows_of_files(self) -> list[int]:
        return [each.rows for each in ManifestLog.read(Layout(self.path), KEY).files]

    @property
    def staged(self) -> list[Path]:
        return [*(self.path / "_staging").rglob("*.parquet")]

    def assert_whole(self) -> None:
        assert [entry_id for entry_id, _ in rows_of_history(self.path, self.options)] == self.produced
        found = verify_archive(Layout(self.path), KEY)
        assert (found.faults, found.strangers) == ([], [])
        assert self.store.xlen(KEY) == 0


@pytest.fixture
def store(streamd_server: Server) -> Iterator[redis.Redis]:
    with redis.Redis(port=streamd_server.port) as store:
        store.flushall()
        yield store


@pytest.fixture
def scene(store: redis.Redis, streamd_server: Server, tmp_path: Path) -> Iterator[Scene]:
    made = Scene(store, tmp_path, streamd_server.port)
    yield made
    made.goes_on.set()
    made.merges.close()
    assert not store.exists(MERGING)
    assert made.staged == []


def test_rounds_do_not_wait_for_a_merge(scene: Scene) -> None:
    scene.begin()
    for _ in range(3):
        assert scene.round().is_success
    assert scene.rows_of_files == [10] * 6
    assert scene.staged != []
    scene.finish()
    assert scene.round().is_success
    assert scene.rows_of_files == [30, 10, 10, 10, 10]
    scene.assert_whole()


def test_a_merge_is_committed_though_nothing_is_added_any_more(scene: Scene) -> None:
    scene.begin()
    scene.finish()
    assert archive_once(scene.path, scene.options, merges=scene.merges, merge_files=2).is_success
    assert scene.rows_of_files == [30]
    scene.assert_whole()


def test_other_archivers_leave_a_merge_alone_and_begin_no_other(scene: Scene) -> None:
    scene.begin()
    other = BackgroundMerges()
    assert archive_once(scene.path, scene.options, merges=other, merge_files=2).is_success
    assert other.take(KEY) is None
    assert scene.staged != []
    scene.finish()
    assert scene.round().is_success
    assert scene.rows_of_files == [30, 10]
    scene.assert_whole()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_merge_whose_thread_ends_before_it_has_verified_is_discarded(scene: Scene) -> None:
    """A thread that raises SystemExit ends silently."""

    def leave(step: str) -> None:
        if step == "merge staged":
            raise SystemExit

    assert scene.round(leave).is_success
    scene.finish()
    assert scene.round(lambda step: None).is_success
    assert scene.rows_of_files == [10] * 4
    scene.finish()
    scene.assert_whole()


@pytest.mark.parametrize("change", ["deletion", "another merge", "lost lock"])
def test_a_merge_of_files_that_have_changed_is_discarded(scene: Scene, change: str) -> None:
    scene.begin()
    if change == "deletion":
        gone = parse_entry_id(scene.produced.pop(5))
        delete(str(scene.path), KEY, scene.options, [(gone, gone)])
    elif change == "another merge":
        assert archive_once(scene.path, scene.options, merge_files=2).is_success
    else:
        scene.store.delete(MERGING)
        assert archive_once(scene.path, scene.options, merge_files=99).is_success
        assert scene.staged == []
    files = scene.rows_of_files
    scene.finish()
    scene.held_at = ""  # the merge that follows
    assert scene.round().is_success
    assert scene.rows_of_files == [*files, PER_ROUND]
    scene.assert_whole()


def test_what_goes_wrong_in_a_merge_is_reported_by_a_round(
    store: redis.Redis, streamd_server: Server, tmp_path: Path
) -> None:
    scene = Scene(store, tmp_path, streamd_server.port)
    path = tmp_path / ManifestLog.read(Layout(tmp_path), KEY).files[0].path
    whole = path.read_bytes()
    path.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
    assert scene.round().is_success
    eventually(lambda: not scene.merges.is_merging(KEY), 100, "the end of the thread")
    (report,) = scene.round().streams
    assert "its bytes differ from those that were written" in str(report.error)
    path.write_bytes(whole)
    scene.begin()
    scene.finish()
    assert scene.round().is_success
    assert scene.rows_of_files == [50, 10]
    scene.assert_whole()


def test_a_stream_that_goes_takes_its_merge_with_it(scene: Scene) -> None:
    scene.held_at = "merge staged"
    scene.begin()
    scene.goes_on.set()
    scene.store.xadd("other", {"n": 1})
    options = {**scene.options, "stream": "other"}
    assert archive_once(scene.path, options, merges=scene.merges).is_success
    assert not scene.store.exists(MERGING)
    assert scene.staged == []
    scene.assert_whole()


def test_the_end_of_the_service_ends_its_merges(scene: Scene) -> None:
    scene.held_at = "merge staged"
    scene.begin()
    scene.goes_on.set()
    scene.merges.close()
    assert scene.staged == []
    assert archive_once(scene.path, scene.options, merge_files=99).is_success
    scene.assert_whole()


@pytest.mark.parametrize("step", [each for each in STEPS if each.startswith("merge ")])
def test_a_kill_during_a_merge_loses_nothing(
    step: str, store: redis.Redis, streamd_server: Server, tmp_path: Path
) -> None:
    scene = Scene(store, tmp_path, streamd_server.port)
    assert is_killed(merge_beside_rounds, step, str(tmp_path), scene.options)
    assert [entry_id for entry_id, _ in rows_of_history(tmp_path, scene.options)] == scene.produced
    if len(scene.rows_of_files) > 1:
        merge_beside_rounds(lambda name: None, str(tmp_path), scene.options)
    assert archive_once(tmp_path, scene.options, merge_files=99).is_success
    assert scene.rows_of_files == [2 * PER_ROUND]
    assert scene.staged == []
    scene.assert_whole()
