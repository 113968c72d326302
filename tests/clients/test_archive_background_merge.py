"""Merges of a service beside its rounds: no round waits for one, and nothing is lost or there twice, whatever comes between."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from support.servers import Server, eventually

pytest.importorskip("pyspark", reason="archives are read here by streamd-server[spark]")

from support.archives.killed_work import is_killed, merge_beside_rounds
from support.archives.runs import KEY, archive_once, fill, now_settings, rows_of_history

from streamd.archive import background_merge
from streamd.archive.archiver import STEPS, Archiver, ArchiveSettings, RunReport
from streamd.archive.background_merge import BackgroundMerges
from streamd.archive.delete import delete
from streamd.archive.layout import Layout
from streamd.archive.manifest_log import ManifestLog
from streamd.archive.service import ArchiveService
from streamd.archive.verify import verify_archive
from streamd.client.archive_keys import key_beside
from streamd.client.points import parse_entry_id
from streamd.disk import Disk

pytestmark = pytest.mark.long

FIRST_MS = 1_700_000_000_000
PER_ROUND = 10
MERGING = key_beside("merging", KEY)


class HeldDisk(Disk):
    """Waits where the first file of a merge is complete, if the scene says `first file`."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    def sync_directory(self, path: Any) -> None:
        super().sync_directory(path)
        if str(path).endswith("-merge"):
            self._scene.hook("first file")


class Scene:
    """An archive of two rounds of entries, and a service that merges them beside further rounds: its thread waits in the step `held_at`."""

    def __init__(self, store: redis.Redis, path: Path, port: int, held_at: str = "merge verified") -> None:
        self.store, self.path, self.options = store, path, {"port": str(port)}
        self.held_at = held_at
        self.disk = HeldDisk(self)
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

    def round(self, hook: Callable[[str], None] | None = None, **changes: Any) -> RunReport:
        self.add()
        changes = {"merge_files": 2, **changes}
        report = archive_once(
            self.path, self.options, merges=self.merges, hook=hook or self.hook, disk=self.disk, **changes
        )
        assert report.streams[0].rows == PER_ROUND
        return report

    def begin_another_day(self) -> None:
        """Two rounds of entries of the next day, which are merged to a file of their own."""
        self.additions = 24 * 60
        for _ in range(2):
            self.add()
            assert archive_once(self.path, self.options, merge_files=99).is_success

    def begin(self, **changes: Any) -> None:
        """A round after which a merge is under way, and is held."""
        assert self.round(**changes).is_success
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


@pytest.mark.parametrize("held_at", ["first file", "merge staged", "merge verified"])
def test_a_deletion_leaves_nothing_of_a_merge_under_way(scene: Scene, held_at: str) -> None:
    """What it has written is removed, and what it goes on to write is not kept: the second day is merged after the first one."""
    scene.begin_another_day()
    scene.held_at = held_at
    scene.begin()
    gone = parse_entry_id(scene.produced.pop(25))
    delete(str(scene.path), KEY, scene.options, [(gone, gone)])
    assert not scene.store.exists(MERGING)
    assert scene.staged == []
    scene.finish()
    assert scene.staged == []
    scene.held_at = ""
    assert scene.round().is_success
    scene.assert_whole()


def test_a_merge_that_goes_on_during_a_deletion_writes_nothing_more(scene: Scene) -> None:
    """The files of its second day are still there when its folder is removed."""
    scene.begin_another_day()
    scene.held_at = "first file"
    scene.begin()

    def go_on(step: str) -> None:
        if step == "recovered":
            scene.finish()

    gone = parse_entry_id(scene.produced.pop(25))
    delete(str(scene.path), KEY, scene.options, [(gone, gone)], hook=go_on)
    assert scene.staged == []
    scene.assert_whole()


def test_a_deletion_lets_no_merge_begin(scene: Scene) -> None:
    """Not even one of a round that has lost the lock of the stream."""
    seen = []

    def look(step: str) -> None:
        seen.append(scene.store.exists(MERGING))

    gone = parse_entry_id(scene.produced.pop(5))
    delete(str(scene.path), KEY, scene.options, [(gone, gone)], hook=look)
    assert set(seen) == {1}
    scene.assert_whole()


def test_a_merge_ends_when_it_has_lost_its_lock(scene: Scene) -> None:
    scene.begin_another_day()
    scene.held_at = "first file"
    scene.begin(lock_ttl_ms=300)
    scene.store.delete(MERGING)
    renewers = [each for each in threading.enumerate() if each.name == f"archive lock of {KEY}"]
    eventually(lambda: not any(each.is_alive() for each in renewers), 100, "the end of the renewals")
    scene.finish()
    assert [each.name for each in scene.staged] == ["merge-0-0.parquet"]
    scene.held_at = ""
    assert scene.round().is_success
    scene.assert_whole()


def test_the_lock_of_a_merge_expires_as_that_of_the_stream(scene: Scene) -> None:
    scene.begin(lock_ttl_ms=600_000)
    assert scene.store.pttl(MERGING) > 100_000
    scene.finish()


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


def test_what_goes_wrong_in_a_merge_that_has_lost_its_lock_is_nobodys_fault(scene: Scene) -> None:
    """Whoever has the lock may have removed its files."""

    def fail(step: str) -> None:
        if step == "merge staged":
            raise OSError("its folder is gone")

    assert scene.round(fail).is_success
    scene.finish()
    scene.store.delete(MERGING)
    assert scene.round(merge_files=99).is_success
    scene.assert_whole()


def test_a_stream_whose_rounds_fail_keeps_no_merge(scene: Scene) -> None:
    scene.begin()
    scene.finish()
    kept = scene.store.dump(KEY)
    scene.store.delete(KEY)
    scene.store.xadd(KEY, {"another": "stream"})
    (report,) = archive_once(scene.path, scene.options, merges=scene.merges).streams
    assert report.error_kind == "IncarnationError"
    assert not scene.store.exists(MERGING)
    assert scene.staged == []
    scene.store.restore(KEY, 0, kept, replace=True)
    scene.assert_whole()


class Never:
    """A service that nobody stops."""

    is_requested = False

    def wait(self, seconds: float) -> None:
        pass


def test_a_service_without_streams_keeps_no_merge(scene: Scene) -> None:
    said: list[str] = []
    settings = ArchiveSettings(hot_window_ms=0, trim_delay_ms=0, merge_files=2, every_ms=1000)
    options = {**scene.options, "streamPattern": f"{KEY}*"}
    service = ArchiveService(
        str(scene.path), options, settings, stop=Never(), tell_round=lambda report: None, tell_failure=said.append
    )
    scene.add()
    service.round()
    assert scene.store.exists(MERGING)
    scene.store.delete(KEY)
    service.round()
    assert len(said) == 1
    assert "no stream" in said[0]
    assert not scene.store.exists(MERGING)
    assert scene.staged == []


def test_merges_whose_server_is_silent_end_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new_streamd: Callable[..., Server]
) -> None:
    """Each of them would wait a minute for an answer."""
    monkeypatch.setattr(background_merge, "CLOSE_S", 0.1)
    server, merges, path = new_streamd(), BackgroundMerges(), tmp_path / "archive"
    streams = [f"{KEY}{number}" for number in range(4)]
    options = {"port": str(server.port), "streams": json.dumps(streams)}

    def one_after_the_other(step: str) -> None:
        if step == "locked":
            eventually(lambda: not any(map(merges.is_merging, streams)), 100, "the end of a thread")

    with redis.Redis(port=server.port) as store:
        for _ in range(2):
            for stream in streams:
                store.xadd(stream, {"n": 1})
            settings = now_settings(merge_files=2)
            assert Archiver(str(path), options, settings, hook=one_after_the_other, merges=merges).run().is_success
        assert sum(store.exists(key_beside("merging", stream)) for stream in streams) == len(streams)
        server.process.send_signal(signal.SIGSTOP)
        try:
            closing = threading.Thread(target=merges.close)
            closing.start()
            eventually(lambda: not closing.is_alive(), 50, "the end of the merges")
            assert [*(path / "_staging").rglob("*.parquet")] == []
        finally:
            server.process.send_signal(signal.SIGCONT)
            closing.join()
        locks = [key_beside("merging", stream) for stream in streams]
        eventually(lambda: not store.exists(*locks), 100, "the locks' release")


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
