"""The archiver: nothing lost and nothing twice, wherever it is killed, while producers append and groups consume.

Runs here need no Java.
"""

from __future__ import annotations

import io
import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import redis

pytest.importorskip("pyspark", reason="archives need streamd-server[spark]")

import pyarrow.parquet as pq
from click.testing import CliRunner
from support.archives.runs import KEY, Killed, archive_once, expire_lock, fill, kill_at, rows_of_history
from support.servers import eventually
from support.spark.session import ON_BOTH, random_source

from streamd.archive.archive_errors import (
    ArchiveError,
    CorruptArchiveError,
    IncarnationError,
    LockedError,
    LockLostError,
    VerifyError,
)
from streamd.archive.archived_rows import read_archived
from streamd.archive.archiver import STEPS
from streamd.archive.delete import DELETE_STEPS, delete
from streamd.archive.full_history import plan_history, read_part
from streamd.archive.layout import Layout
from streamd.archive.leases import leased_boundary, release_lease, take_lease
from streamd.archive.lock import ArchiveLock
from streamd.archive.manifest_log import ManifestLog
from streamd.archive.restore import restore
from streamd.archive.rewriting import Rewrite
from streamd.archive.status import read_status
from streamd.archive.verify import file_faults, verify_archive
from streamd.cli.subcommands import program
from streamd.client.archive_keys import key_beside
from streamd.client.connection import connect, server_features
from streamd.client.points import MAX_ID, format_entry_id, ms_of, parse_entry_id
from streamd.client.url_options import ConnectionOptions
from streamd.disk import Disk
from streamd.spark.source.schema import DEFAULT_SCHEMA, table_layout
from streamd.transfer.read_options import SourceOptions

pytestmark = pytest.mark.long

Options = dict[str, str]
DAY_S = 86_400


class Traffic:
    """Producers that append and a group that consumes, all the time that an archiver works."""

    def __init__(self, port: int, pause_s: float) -> None:
        self.store = redis.Redis(port=port, protocol=2)
        self.pause_s = pause_s
        self.produced: list[str] = []
        self.acknowledged: set[str] = set()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._produce), threading.Thread(target=self._consume)]

    def start(self) -> None:
        self.store.xgroup_create(KEY, "workers", "0", mkstream=True)
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _produce(self) -> None:
        number = 0
        while not self._stop.is_set():
            pipe = self.store.pipeline(transaction=False)
            for _ in range(5):
                pipe.xadd(KEY, {"n": number})
                number += 1
            self.produced += [found.decode() for found in pipe.execute()]
            self._stop.wait(self.pause_s)

    def _consume(self) -> None:
        late: list[bytes] = []
        while not self._stop.is_set():
            found: Any = self.store.xreadgroup("workers", "one", {KEY: ">"}, count=20, block=20)
            # Every third entry stays pending until the next ones come.
            ids = [entry_id for _, entries in found or [] for entry_id, _ in entries]
            done, late = [*late, *(each for at, each in enumerate(ids) if at % 3)], ids[::3]
            if done:
                self.store.xack(KEY, "workers", *done)
                self.acknowledged |= {each.decode() for each in done}


@contextmanager
def traffic(store: redis.Redis, pause_s: float = 0.002) -> Iterator[Traffic]:
    # Files are of a day: those that are to be merged must be of the same one.
    eventually(lambda: time.time() % DAY_S < DAY_S - 60, timeout_s=100, what="another day")
    made = Traffic(store.connection_pool.connection_kwargs["port"], pause_s)
    made.start()
    try:
        eventually(lambda: len(made.produced) > 100 and len(made.acknowledged) > 50)
        yield made
    finally:
        made.stop()


def assert_whole(path: Path, options: Options, produced: list[str]) -> None:
    """The union of cold and hot is what was produced, in its order; and the archive is in order in itself."""
    assert [entry_id for entry_id, _ in rows_of_history(path, options)] == produced
    verdict = verify_archive(Layout(path), KEY)
    assert verdict.faults == []


def check_nothing_needed_is_gone(store: redis.Redis, traffic: Traffic) -> None:
    """What the group has not acknowledged is still on the server."""
    held = {entry_id.decode() for entry_id, _ in store.xrange(KEY)}
    assert set(traffic.produced) - traffic.acknowledged <= held


# --- The crash matrix -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", STEPS)
def test_a_run_killed_at_any_step_is_repaired_by_the_next(
    step: str, store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    with traffic(store) as produced:
        rows = archive_once(tmp_path, source_options).rows  # something to go on from
        # Something to trim, and so much that the first file is worth merging with the next.
        eventually(lambda: len(produced.acknowledged) > 2 * rows)
        with pytest.raises(Killed, match=step):
            archive_once(tmp_path, source_options, hook=kill_at(step), merge_files=2, checkpoint_every=2)
        expire_lock(store)
        seen = len(produced.produced)
        eventually(lambda: len(produced.produced) > seen)
        assert_prefix(list(rows_of_history(tmp_path, source_options)), produced.produced)
        report = archive_once(tmp_path, source_options)
        assert report.is_success, report.to_json()
    assert archive_once(tmp_path, source_options).is_success
    assert_whole(tmp_path, source_options, produced.produced)
    check_nothing_needed_is_gone(store, produced)
    assert verify_archive(Layout(tmp_path), KEY).strangers == []
    assert not list((tmp_path / "_staging").rglob("*.parquet"))


def assert_prefix(rows: list[tuple[str, Any]], produced: list[str]) -> None:
    """While producers go on, what is read is what was produced up to some moment."""
    found = [entry_id for entry_id, _ in rows]
    eventually(lambda: len(produced) >= len(found))
    assert found == produced[: len(found)]
    assert len(found) > 100


KILLED_RUN = """
import sys
from support.archives.runs import archive_once, sigkill_at
archive_once(sys.argv[1], {"port": sys.argv[2]}, hook=sigkill_at(sys.argv[3]))
"""


@pytest.mark.parametrize("step", ["staged", "moving", "pending", "committed", "trimming"])
def test_a_process_killed_at_a_step_is_taken_over_at_once(
    step: str, store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    produced = fill(store, 300)
    folder = tmp_path / "archive"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    argv = [sys.executable, "-c", KILLED_RUN, str(folder), source_options["port"], step]
    assert subprocess.run(argv, env=environment, check=False).returncode == -signal.SIGKILL
    # Its lock would hold for an hour; but the process is seen to be gone.
    store.pexpire(key_beside("lock", KEY), 3_600_000)
    assert archive_once(folder, source_options, lock_wait_ms=0).is_success
    assert_whole(folder, source_options, produced)
    assert store.xlen(KEY) == 0


def test_a_stalled_archiver_commits_and_trims_nothing_more(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    produced = fill(store, 300)

    def taken_over() -> None:
        # As if this process had slept until its lock expired.
        store.delete(key_beside("lock", KEY))
        assert archive_once(tmp_path, source_options, hook=lambda step: None).rows == 300

    for step in ("staged", "verified", "moving", "moved", "pending"):
        store.delete(KEY)
        for path in (tmp_path / "_manifest").rglob("*.json"):
            path.unlink()
        store.delete(key_beside("trimmed", KEY))
        fill(store, 300)
        done = []

        def hook(name: str, step: str = step, done: list[str] = done) -> None:
            if name == step and not done:
                done.append(name)
                taken_over()

        report = archive_once(tmp_path, source_options, hook=hook)
        assert not report.is_success
        assert "LockLostError" in str(report.streams[0].error)
        assert [entry_id for entry_id, _ in rows_of_history(tmp_path, source_options)] == produced
        assert verify_archive(Layout(tmp_path), KEY).faults == []


def test_a_stalled_archiver_does_not_commit_files_that_were_removed(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    """The one that takes over removes what no manifest names, and dies before it has a manifest of its own."""
    produced = fill(store, 300)

    def hook(step: str) -> None:
        if step == "pending":
            store.delete(key_beside("lock", KEY))
            with pytest.raises(Killed, match="recovered"):
                archive_once(tmp_path, source_options, hook=kill_at("recovered"))

    report = archive_once(tmp_path, source_options, hook=hook)
    assert "LockLostError" in str(report.streams[0].error)
    expire_lock(store)
    assert_whole(tmp_path, source_options, produced)
    assert archive_once(tmp_path, source_options).rows == 300
    assert_whole(tmp_path, source_options, produced)


RUNS_ON_END = """
import sys
from support.archives.runs import archive_once
def told(step):
    print(step, flush=True)
while True:
    report = archive_once(sys.argv[1], {"port": sys.argv[2]}, hook=told, merge_files=3, checkpoint_every=3)
    assert report.is_success, report.to_json()
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_process_killed_twenty_times_at_random_loses_and_doubles_nothing(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    source = random_source()
    folder = tmp_path / "archive"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    argv = [sys.executable, "-c", RUNS_ON_END, str(folder), source_options["port"]]
    with traffic(store, pause_s=0.01) as produced:
        for _ in range(20):
            with subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE) as process:
                assert process.stdout is not None
                # Some runs and a part of one: it is killed at a step, or a little behind it.
                steps = [process.stdout.readline() for _ in range(source.randint(1, 4 * len(STEPS)))]
                assert all(each.strip().decode() in STEPS for each in steps)
                process.kill()
            if (folder / "archive.json").exists():
                assert_prefix(list(rows_of_history(folder, source_options)), produced.produced)
    assert archive_once(folder, source_options, depth="content").is_success
    assert_whole(folder, source_options, produced.produced)
    check_nothing_needed_is_gone(store, produced)
    log = ManifestLog.read(Layout(folder), KEY)
    assert log.base is not None
    assert verify_archive(Layout(folder), KEY).strangers == []


def test_a_server_that_closes_idle_connections_does_not_end_a_run(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    """As its `timeout` does while files are copied, compared and written anew."""
    closed_at: list[str] = []

    def close_others(step: str) -> None:
        if step.endswith(("staged", "verified", "recovered")) or step == "removed":
            closed_at.append(step)
            store.client_kill_filter(_type="normal", skipme=True)

    def close_but_when_recovered(step: str) -> None:
        if step != "recovered":
            close_others(step)

    produced = archive_in_steps(store, tmp_path, source_options, 2, hook=close_but_when_recovered, merge_files=2)
    only = parse_entry_id(produced[3])
    delete(str(tmp_path), KEY, source_options, [(only, only)], hook=close_others)
    assert {"staged", "verified", "merge verified", "delete verified", "removed"} <= set(closed_at)
    assert_whole(tmp_path, source_options, [each for each in produced if each != produced[3]])
    assert store.exists(key_beside("lock", KEY)) == 0
    eventually(lambda: len(store.client_list()) == 1)


class StallingDisk(Disk):
    """A disk on which this process sleeps at the first use of an operation, while something else is done."""

    def __init__(self, operation: str, meanwhile: Callable[[], None]) -> None:
        self.left = 1
        real = getattr(self, operation)

        def operate(*args: Any) -> Any:
            if self.left:
                self.left -= 1
                meanwhile()
            return real(*args)

        setattr(self, operation, operate)


@pytest.mark.parametrize("operation", ["remove_tree", "remove", "sync_directory"])
def test_a_stalled_archiver_removes_nothing_that_another_has_committed(
    operation: str, store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    """It sleeps in the middle of mending, and wakes up when another has archived and trimmed everything."""
    produced = fill(store, 300)
    with pytest.raises(Killed, match="pending"):
        archive_once(tmp_path, source_options, hook=kill_at("pending"))  # something to mend
    expire_lock(store)

    def taken_over() -> None:
        store.delete(key_beside("lock", KEY))
        assert archive_once(tmp_path, source_options).rows == 300

    report = archive_once(tmp_path, source_options, disk=StallingDisk(operation, taken_over))
    assert "LockLostError" in str(report.streams[0].error)
    assert_whole(tmp_path, source_options, produced)
    assert store.xlen(KEY) == 0


class FullDisk(Disk):
    """A disk on which one operation fails, once."""

    def __init__(self, operation: str) -> None:
        self.left = 1
        setattr(self, operation, self._failing(getattr(self, operation)))

    def _failing(self, real: Any) -> Any:
        def operate(*args: Any) -> Any:
            if self.left:
                self.left -= 1
                raise OSError(28, "No space left on device")
            return real(*args)

        return operate


@pytest.mark.parametrize("operation", ["write_new", "publish", "rename", "sync_directory", "sync_file", "remove_tree"])
def test_a_disk_that_fails_is_reported_and_the_next_run_recovers(
    operation: str, store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    produced = fill(store, 50)
    Layout(tmp_path).create(Disk())
    report = archive_once(tmp_path, source_options, disk=FullDisk(operation))
    assert not report.is_success
    assert "No space left" in str(report.streams[0].error)
    assert archive_once(tmp_path, source_options).is_success
    assert_whole(tmp_path, source_options, produced)


class EndingDisk(Disk):
    """A disk at whose use number `at` something is raised, before or after it is done."""

    def __init__(self, at: int, error: BaseException, *, is_done: bool) -> None:
        self.left = at
        self.error = error
        self.is_done = is_done
        for name in (
            "write_new",
            "link",
            "rename",
            "remove",
            "remove_tree",
            "make_directories",
            "sync",
            "sync_directory",
        ):
            setattr(self, name, self._ending(getattr(self, name)))

    def _ending(self, real: Any) -> Any:
        def operate(*args: Any) -> Any:
            self.left -= 1
            if self.left == 0:
                if self.is_done:
                    real(*args)
                raise self.error
            return real(*args)

        return operate


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("error", [Killed("at an operation"), OSError(5, "Input/output error")], ids=["kill", "fault"])
def test_a_run_that_ends_at_any_use_of_the_disk_is_repaired(
    error: BaseException, is_done: bool, store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    """Everything that a run does is in these: it archives, trims, merges, and writes a checkpoint."""
    produced: list[str] = []
    at = ended = 0
    settings = {"merge_files": 2, "checkpoint_every": 2}
    while ended < 2:  # two runs in a row that did not come to use number `at`
        at += 1
        assert at < 200
        produced += fill(store, 6, start_ms=1_700_000_000_000 + at * 100_000, step_ms=1000)
        disk = EndingDisk(at, error, is_done=is_done)
        try:
            report = archive_once(tmp_path, source_options, disk=disk, **settings)
            assert report.is_success or disk.left <= 0, report.to_json()
        except (Killed, OSError):
            pass
        ended = ended + 1 if disk.left > 0 else 0
        expire_lock(store)
        if (tmp_path / "archive.json").exists():
            assert [entry_id for entry_id, _ in rows_of_history(tmp_path, source_options)] == produced
    assert at > 25
    archive_once(tmp_path, source_options, **settings)
    assert_whole(tmp_path, source_options, produced)
    assert verify_archive(Layout(tmp_path), KEY).strangers == []
    assert store.xlen(KEY) == 0


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
def test_a_deletion_that_ends_at_any_use_of_the_disk_is_done_again(
    is_done: bool, store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    produced: list[str] = []
    at = 0
    while True:
        at += 1
        produced += fill(store, 6, start_ms=1_700_000_000_000 + at * 100_000, step_ms=1000)
        archive_once(tmp_path, source_options, trim=False)
        gone = parse_entry_id(produced[-3])
        disk = EndingDisk(at, Killed("at an operation"), is_done=is_done)
        with suppress(Killed):
            delete(str(tmp_path), KEY, source_options, [(gone, gone)], disk=disk, lock_wait_ms=5000)
        expire_lock(store)
        kept = [each for each in produced if each != produced[-3]]
        assert [entry_id for entry_id, _ in rows_of_history(tmp_path, source_options)] in (produced, kept)
        delete(str(tmp_path), KEY, source_options, [(gone, gone)], lock_wait_ms=5000)
        produced = kept
        assert_whole(tmp_path, source_options, produced)
        if disk.left > 0:
            break
    assert at > 8
    assert verify_archive(Layout(tmp_path), KEY).strangers == []


# --- Checkpoints and merged files -------------------------------------------------------------------------------------------


def archive_in_steps(store: redis.Redis, path: Path, options: Options, runs: int, **changes: Any) -> list[str]:
    """So many runs with a few new entries each; the IDs of all."""
    produced = []
    for at in range(runs):
        produced += fill(store, 4, start_ms=1_700_000_000_000 + at * 1_000_000, step_ms=1000)
        assert archive_once(path, options, **changes).is_success
    return produced


COUNTED_READ = """
import sys
from streamd.archive.layout import Layout
from streamd.archive.manifest_log import ManifestLog
layout = Layout(sys.argv[1])
opened = []
def see(event, args):
    if event == "open" and str(args[0]).startswith(str(layout.manifests(sys.argv[2]))):
        opened.append(args[0])
sys.addaudithook(see)
ManifestLog.read(layout, sys.argv[2])
print(len(opened))
"""


def manifests_opened(path: Path) -> int:
    """How many files are opened to read the manifests; in a process of its own, which the hook ends with."""
    argv = [sys.executable, "-c", COUNTED_READ, str(path), KEY]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return int(subprocess.run(argv, env=environment, check=True, stdout=subprocess.PIPE).stdout)


def test_few_files_are_read_however_many_runs_there_were(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    produced = archive_in_steps(store, tmp_path, source_options, 100, merge_files=8, checkpoint_every=10)
    folder = Layout(tmp_path).manifests(KEY)
    log = ManifestLog.read(Layout(tmp_path), KEY)
    assert log.sequence >= 100
    assert 1 <= manifests_opened(tmp_path) <= 11
    assert len(list(folder.iterdir())) <= 2 * 11 + 2
    assert len(log.files) < 30
    assert len(list(Layout(tmp_path).data_files(KEY))) == len(log.files)
    assert_whole(tmp_path, source_options, produced)
    assert [log.boundary_at(each.created_ms) for each in log.manifests] == [each.high for each in log.manifests]


def test_readers_beside_merges_and_checkpoints_miss_nothing(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    """Without any delay: files are removed at the moment they are replaced."""
    produced = archive_in_steps(store, tmp_path, source_options, 3)
    source = SourceOptions.parse({**source_options, "stream": KEY, "archive": str(tmp_path), "archiveLease": "0"})
    parts = plan_history(source)
    table = table_layout(DEFAULT_SCHEMA, source)
    more = fill(store, 400, start_ms=1_700_100_000_000, step_ms=1000)
    is_done = threading.Event()

    def archive_on() -> None:
        for at in range(0, 400, 10):
            window_ms = int(redis_ms(store)) - ms_of(parse_entry_id(more[at])) - 10_000
            archive_once(
                tmp_path, source_options, hot_window_ms=window_ms, merge_files=2, checkpoint_every=2, trim=False
            )
        is_done.set()

    thread = threading.Thread(target=archive_on)
    thread.start()
    while not is_done.is_set():
        found = [entry_id for entry_id, _ in rows_of_history(tmp_path, source_options)]
        assert found[: len(produced)] == produced
        assert found[len(produced) :] == more
        # A read that was planned long ago finds what took the place of its files.
        rows = [row["id"] for part in parts for batch in read_part(source, table, part) for row in batch.to_pylist()]
        assert rows == produced
    thread.join()
    assert ManifestLog.read(Layout(tmp_path), KEY).sequence > 40
    assert verify_archive(Layout(tmp_path), KEY).faults == []


def redis_ms(store: redis.Redis) -> float:
    seconds, micros = store.time()
    return seconds * 1000 + micros / 1000


def test_replaced_files_stay_as_long_as_readers_may_need_them(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    settings = {"merge_files": 2, "trim_delay_ms": 3_600_000}
    produced = archive_in_steps(store, tmp_path, source_options, 4, **settings)
    log = ManifestLog.read(Layout(tmp_path), KEY)
    lying = {Layout(tmp_path).relative(each) for each in Layout(tmp_path).data_files(KEY)}
    assert log.replaced
    assert lying == {file.path for file in log.files} | log.replaced.keys()
    assert verify_archive(Layout(tmp_path), KEY).strangers == []
    archive_once(tmp_path, source_options)
    lying = {Layout(tmp_path).relative(each) for each in Layout(tmp_path).data_files(KEY)}
    assert lying == {file.path for file in log.files}
    assert_whole(tmp_path, source_options, produced)


def test_files_that_were_merged_and_forgotten_meanwhile_are_no_fault(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    archive_in_steps(store, tmp_path, source_options, 2)
    before = ManifestLog.read(Layout(tmp_path), KEY)
    fill(store, 4, start_ms=1_700_005_000_000, step_ms=1000)
    assert archive_once(tmp_path, source_options, merge_files=2, checkpoint_every=1).is_success
    assert not any((tmp_path / file.path).exists() for file in before.files)
    assert ManifestLog.read(Layout(tmp_path), KEY).replaced == {}
    assert list(file_faults(before, quick=False)) == []
    for file in ManifestLog.read(Layout(tmp_path), KEY).files:
        (tmp_path / file.path).unlink()
        assert len(list(file_faults(ManifestLog.read(Layout(tmp_path), KEY), quick=True))) == 1


class PruningLayout(Layout):
    """A layout under which an archiver removes the oldest checkpoint once a reader has seen it."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.looks = 0

    def manifests(self, stream: str) -> Path:
        folder = super().manifests(stream)
        self.looks += 1
        if self.looks == 2:
            min(folder.glob("*.checkpoint")).unlink()
        return folder


def test_a_long_read_follows_any_number_of_replacements(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    produced = archive_in_steps(store, tmp_path, source_options, 12)
    gone = [parse_entry_id(each) for each in produced[1::4]]
    found: list[str] = []
    for batch in read_archived(Layout(tmp_path), KEY, 0, MAX_ID, ("id",)):
        found += batch.column(0).to_pylist()
        # The next file is written anew each time, and the old one removed at once.
        ahead = [each for each in gone if format_entry_id(each) > found[-1]][:1]
        delete(str(tmp_path), KEY, source_options, [(each, each) for each in ahead])
    assert found == [each for each in produced if each not in produced[5::4]]


def test_a_checkpoint_removed_while_it_is_looked_for_is_reported_as_what_it_is(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    archive_in_steps(store, tmp_path, source_options, 4, checkpoint_every=2)
    assert len(list(Layout(tmp_path).manifests(KEY).glob("*.checkpoint"))) == 2
    with pytest.raises(CorruptArchiveError, match=r"\.checkpoint is missing"):
        ManifestLog.read_up_to(PruningLayout(tmp_path), KEY, 4)


def test_a_damaged_file_is_not_merged(store: redis.Redis, source_options: Options, tmp_path: Path) -> None:
    archive_in_steps(store, tmp_path, source_options, 1)
    (path,) = Layout(tmp_path).data_files(KEY)
    whole = path.read_bytes()
    path.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
    fill(store, 4, start_ms=1_700_001_000_000, step_ms=1000)
    report = archive_once(tmp_path, source_options, merge_files=2).streams[0]
    assert "its bytes differ from those that were written" in str(report.error)
    path.write_bytes(whole)
    assert verify_archive(Layout(tmp_path), KEY).is_whole


def test_a_rewrite_that_misses_an_entry_is_reported_as_one(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    archive_in_steps(store, tmp_path, source_options, 2)
    layout = Layout(tmp_path)
    groups = [[each] for each in ManifestLog.read(layout, KEY).files]
    (tmp_path / "new").mkdir()
    rewrite = Rewrite(layout, groups, tmp_path / "new", "new", Disk())
    rewrite.write()
    rewrite.compare()
    del rewrite.written[0]
    with pytest.raises(VerifyError, match="is in the files before, but not in the written file"):
        rewrite.compare()


# --- Deleting -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", DELETE_STEPS)
def test_a_deletion_killed_at_any_step_is_done_by_the_same_again(
    step: str, store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    with traffic(store) as running:
        archive_once(tmp_path, source_options)
        seen = len(running.produced)
        eventually(lambda: len(running.produced) > max(400, seen + 200))
        # What is produced from now on is not archived, and there is some of it, however seldom the producer gets a turn.
        seen = len(running.produced)
        since_ms = redis_ms(store)
        eventually(lambda: len(running.produced) > seen and redis_ms(store) - since_ms > 1000)
        archive_once(tmp_path, source_options, trim=False, hot_window_ms=1000)
        eventually(lambda: len(running.produced) > 500)
        noted = ManifestLog.read(Layout(tmp_path), KEY).manifests[-1].next_id
        assert noted is not None
        gone = running.produced[90:95] + running.produced[200:210] + [running.produced[300], format_entry_id(noted)]
        ranges = [(parse_entry_id(each), parse_entry_id(each)) for each in gone]
        with pytest.raises(Killed, match=step):
            delete(str(tmp_path), KEY, source_options, ranges, hook=kill_at(step))
        expire_lock(store)
        found = [entry_id for entry_id, _ in rows_of_history(tmp_path, source_options)]
        eventually(lambda: running.produced[-1] >= found[-1])
        # Each entry that was to go is there or not; all others are.
        assert [each for each in found if each not in gone] == [
            each for each in running.produced[: len(running.produced)] if each not in gone and each <= found[-1]
        ]
        assert archive_once(tmp_path, source_options).is_success
        delete(str(tmp_path), KEY, source_options, ranges, lock_wait_ms=5000)
    kept = [each for each in running.produced if each not in gone]
    assert_whole(tmp_path, source_options, kept)
    assert not set(gone) & {entry_id.decode() for entry_id, _ in store.xrange(KEY)}
    assert verify_archive(Layout(tmp_path), KEY).strangers == []
    assert not any(each.encode() in data for each in gone for data in all_bytes(tmp_path))


def all_bytes(path: Path) -> list[bytes]:
    return [b"".join(str(row["id"]).encode() for row in pq.read_table(each).to_pylist())
            for each in Layout(path).data_files(KEY)]  # fmt: skip


@ON_BOTH
def test_ranges_are_deleted_on_both_sides(store: redis.Redis, source_options: Options, tmp_path: Path) -> None:
    produced = fill(store, 5000)
    archive_once(tmp_path, source_options, trim=False)
    new = [store.xadd(KEY, {"f": "v"}).decode() for _ in range(10)]
    store.xgroup_create(KEY, "g", "0")
    store.xreadgroup("g", "one", {KEY: ">"}, count=20)
    ranges = [(parse_entry_id(low), parse_entry_id(high)) for low, high in [
        (produced[10], produced[15]), (produced[12], produced[3000]), (produced[4999], new[2]), (new[5], new[4]),
    ]]  # fmt: skip
    options = {**source_options}
    trial = delete(str(tmp_path), KEY, options, ranges, is_trial=True)
    assert store.xlen(KEY) == 5010
    report = delete(str(tmp_path), KEY, options, ranges)
    assert (report.archived, report.on_server) == (2992, 2995) == (trial.archived, trial.on_server)
    assert report.files == trial.files
    kept = produced[:10] + produced[3001:4999] + new[3:]
    assert_whole(tmp_path, source_options, kept)
    assert [entry_id.decode() for entry_id, _ in store.xrange(KEY)] == kept
    with connect(ConnectionOptions.parse(source_options)) as connection:
        has_acked_trim = server_features(connection).has_acked_trim
    if has_acked_trim:
        assert store.xpending(KEY, "g")["pending"] == 10
    assert archive_once(tmp_path, source_options).is_success
    assert_whole(tmp_path, source_options, kept)
    again = delete(str(tmp_path), KEY, options, ranges)
    assert (again.archived, again.on_server, again.files) == (0, 0, 0)


@ON_BOTH
def test_many_ids_take_few_requests(store: redis.Redis, source_options: Options, tmp_path: Path) -> None:
    produced = fill(store, 3000)
    archive_once(tmp_path, source_options, trim=False)
    store.xdel(KEY, produced[1])
    gone = produced[1::2]
    ranges = [(parse_entry_id(each), parse_entry_id(each)) for each in gone]
    assert delete(str(tmp_path), KEY, source_options, ranges, is_trial=True).on_server == 1499
    before = requests_served(store)
    assert delete(str(tmp_path), KEY, source_options, ranges).on_server == 1499
    # Of 63 of them digests are noted, which are read at once. Two locks are taken, watched and released.
    assert requests_served(store) - before < 200
    assert ManifestLog.read(Layout(tmp_path), KEY).manifests == [], "nobody reads the notes of 1,499 entries again"
    assert [entry_id.decode() for entry_id, _ in store.xrange(KEY)] == produced[::2]


def requests_served(store: redis.Redis) -> int:
    return int(store.info("stats")["total_commands_processed"])


def test_everything_can_be_deleted(store: redis.Redis, source_options: Options, tmp_path: Path) -> None:
    fill(store, 100)
    archive_once(tmp_path, source_options, trim=False)
    assert delete(str(tmp_path), KEY, source_options, [(0, 2**128 - 1)]).archived == 100
    assert store.xlen(KEY) == 0
    assert_whole(tmp_path, source_options, [])
    assert list(Layout(tmp_path).data_files(KEY)) == []
    new = store.xadd(KEY, {"f": "v"}).decode()
    assert archive_once(tmp_path, source_options).rows == 1
    assert_whole(tmp_path, source_options, [new])


def test_a_deletion_leaves_no_copy_in_files_that_were_merged(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    produced = archive_in_steps(store, tmp_path, source_options, 4, merge_files=2, trim_delay_ms=3_600_000)
    assert ManifestLog.read(Layout(tmp_path), KEY).replaced
    only = parse_entry_id(produced[0])
    assert delete(str(tmp_path), KEY, source_options, [(only, only)], archive_only=True).archived == 1
    assert not any(produced[0].encode() in data for data in all_bytes(tmp_path))
    assert store.xlen(KEY) == 16
    assert_whole(tmp_path, source_options, produced[1:])


def everything_below(path: Path) -> dict[str, bytes]:
    return {str(each.relative_to(path)): each.read_bytes() for each in path.rglob("*") if each.is_file()}


@pytest.mark.parametrize("archive_only", [False, True])
@pytest.mark.parametrize("is_trial", [False, True])
def test_a_deletion_on_another_server_touches_nothing(
    is_trial: bool, archive_only: bool, store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    """The other database stands for it: there is a stream of the same name, with the same entries and more."""
    fill(store, 100)
    archive_once(tmp_path, source_options, trim=False)
    other = redis.Redis(port=int(source_options["port"]), db=1, protocol=2)
    fill(other, 150)
    archive_once_killed_before_commit(store, tmp_path, source_options)
    files, entries = everything_below(tmp_path), other.xrange(KEY)
    with pytest.raises(IncarnationError, match="another server"):
        delete(
            str(tmp_path),
            KEY,
            {**source_options, "db": "1"},
            [(0, MAX_ID)],
            archive_only=archive_only,
            is_trial=is_trial,
        )
    assert everything_below(tmp_path) == files
    assert other.xrange(KEY) == entries
    assert other.keys() == [KEY.encode()]
    other.close()


def archive_once_killed_before_commit(store: redis.Redis, path: Path, options: Options) -> None:
    """Leave files that have their names, and that no manifest names yet: those of an archiver that is at work."""
    fill(store, 4, start_ms=1_800_000_000_000, step_ms=1000)
    with pytest.raises(Killed, match="moved"):
        archive_once(path, options, hook=kill_at("moved"), hot_window_ms=-(2**50))


def test_a_deletion_of_a_stream_recreated_touches_nothing(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    produced = fill(store, 100)
    archive_once(tmp_path, source_options, trim=False)
    archive_once_killed_before_commit(store, tmp_path, source_options)
    expire_lock(store)
    store.delete(KEY)
    files = everything_below(tmp_path)
    for archive_only in (False, True):
        fill(store, 5)
        with pytest.raises(IncarnationError, match="recreated"):
            delete(str(tmp_path), KEY, source_options, [(0, MAX_ID)], archive_only=archive_only)
        assert everything_below(tmp_path) == files
        assert store.xlen(KEY) == 5
        store.delete(KEY)
    with pytest.raises(IncarnationError, match="no stream"):
        delete(str(tmp_path), KEY, source_options, [(0, MAX_ID)])
    assert everything_below(tmp_path) == files
    only = parse_entry_id(produced[0])
    assert delete(str(tmp_path), KEY, source_options, [(only, only)], archive_only=True).archived == 1
    assert_whole(tmp_path, source_options, produced[1:])


def test_a_run_over_a_stream_recreated_removes_nothing(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    fill(store, 100)
    archive_once(tmp_path, source_options, trim=False)
    archive_once_killed_before_commit(store, tmp_path, source_options)
    expire_lock(store)
    store.delete(KEY)
    files = everything_below(tmp_path)
    assert "the stream is gone" in str(archive_once(tmp_path, source_options).streams[0].error)
    fill(store, 5)
    assert "recreated" in str(archive_once(tmp_path, source_options).streams[0].error)
    assert everything_below(tmp_path) == files


@pytest.mark.parametrize("step", ["delete staged", "delete moving", "delete moved", "delete pending"])
def test_a_deletion_that_was_taken_over_says_so(
    step: str, store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    produced = fill(store, 5000)  # of three days
    archive_once(tmp_path, source_options, trim=False)
    store.xadd(KEY, {"f": "v"}, id="1800000000000-0")

    def hook(name: str) -> None:
        if name == step:
            store.delete(key_beside("lock", KEY))
            assert archive_once(tmp_path, source_options, hot_window_ms=-(2**50), trim=False).rows == 1

    with pytest.raises(LockLostError, match="the lock of 'readings' is lost"):
        delete(str(tmp_path), KEY, source_options, [(0, parse_entry_id(produced[4000]))], hook=hook)
    assert_whole(tmp_path, source_options, [*produced, "1800000000000-0"])
    assert store.xlen(KEY) == 5001


def test_a_stream_that_was_never_archived_is_not_deleted_from(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    fill(store, 10)
    Layout(tmp_path).create(Disk())
    for is_trial in (True, False):
        with pytest.raises(ArchiveError, match="has no entries of stream"):
            delete(str(tmp_path), KEY, source_options, [(0, MAX_ID)], is_trial=is_trial)
    assert store.xlen(KEY) == 10


def test_the_entry_that_is_noted_as_the_next_one_is_one_that_is_left(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    """So that the next run misses nothing: a server before Redis 7 does not tell what was deleted."""
    fill(store, 10)
    new = [store.xadd(KEY, {"f": "v"}).decode() for _ in range(8)]
    archive_once(tmp_path, source_options, hot_window_ms=3_600_000, trim=False)
    assert ManifestLog.read(Layout(tmp_path), KEY).manifests[-1].next_id == parse_entry_id(new[0])
    ids = [parse_entry_id(each) for each in new]
    ranges = [(ids[0], ids[2]), (ids[3], ids[3]), (ids[5], ids[5])]
    assert delete(str(tmp_path), KEY, source_options, ranges, archive_only=True).archived == 0
    assert ManifestLog.read(Layout(tmp_path), KEY).manifests[-1].next_id == ids[0]
    assert delete(str(tmp_path), KEY, source_options, ranges).on_server == 5
    assert ManifestLog.read(Layout(tmp_path), KEY).manifests[-1].next_id == ids[4]
    assert delete(str(tmp_path), KEY, source_options, [(ids[4], MAX_ID)]).on_server == 3
    assert ManifestLog.read(Layout(tmp_path), KEY).manifests[-1].next_id is None
    assert archive_once(tmp_path, source_options).is_success


def test_a_deletion_without_an_end_leaves_what_comes_in_meanwhile(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    produced = fill(store, 20)
    archive_once(tmp_path, source_options, trim=False)
    new: list[str] = []

    def hook(step: str) -> None:
        if step == "removed":
            new.append(store.xadd(KEY, {"f": "new"}).decode())

    report = delete(str(tmp_path), KEY, source_options, [(parse_entry_id(produced[5]), MAX_ID)], hook=hook)
    assert (report.archived, report.on_server) == (15, 15)
    assert_whole(tmp_path, source_options, produced[:5] + new)
    assert [entry_id.decode() for entry_id, _ in store.xrange(KEY)] == produced[:5] + new


def test_nothing_is_deleted_while_an_archiver_works(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    fill(store, 10)
    archive_once(tmp_path, source_options)
    fill(store, 10, start_ms=1_700_001_000_000)

    def hook(step: str) -> None:
        if step == "staged":
            with pytest.raises(LockedError, match="stream 'readings' is being archived by process"):
                delete(str(tmp_path), KEY, source_options, [(0, MAX_ID)])

    assert archive_once(tmp_path, source_options, hook=hook).is_success


# --- What may be trimmed --------------------------------------------------------------------------------------------------


@ON_BOTH
def test_what_groups_need_stays_and_goes_when_they_have_it(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    produced = fill(store, 100)
    store.xgroup_create(KEY, "slow", "0")
    store.xreadgroup("slow", "one", {KEY: ">"}, count=60)
    store.xack(KEY, "slow", *produced[:20], *produced[30:60])
    report = archive_once(tmp_path, source_options).streams[0]
    assert report.held_by == {"slow": format_entry_id(parse_entry_id(produced[20]) - 1)}
    held = [entry_id.decode() for entry_id, _ in store.xrange(KEY)]
    assert set(produced[20:30] + produced[60:]) <= set(held)
    assert_whole(tmp_path, source_options, produced)
    store.xack(KEY, "slow", *produced[20:30])
    store.xreadgroup("slow", "one", {KEY: ">"}, noack=True)
    archive_once(tmp_path, source_options)
    assert store.xlen(KEY) == 0
    assert_whole(tmp_path, source_options, produced)


@ON_BOTH
def test_a_server_without_acked_trims_keeps_what_groups_need(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    """An ignored group makes the archiver compute what may go, as it does for Redis before 8.2 and Valkey."""
    produced = fill(store, 100)
    store.xgroup_create(KEY, "dead", "0")
    store.xgroup_create(KEY, "slow", "0")
    store.xreadgroup("slow", "one", {KEY: ">"}, count=60)
    store.xack(KEY, "slow", *produced[:20], *produced[30:60])
    report = archive_once(tmp_path, source_options, ignored_groups=frozenset({"dead"})).streams[0]
    assert report.trimmed == 20
    assert [entry_id.decode() for entry_id, _ in store.xrange(KEY)] == produced[20:]


@pytest.mark.parametrize("name", ["valkey_server", "older_redis"])
def test_servers_without_new_commands_are_archived_too(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    port = request.getfixturevalue(name).port
    options = {"port": str(port)}
    with redis.Redis(port=port, protocol=2) as store:
        store.flushall()
        produced = fill(store, 100)
        store.xgroup_create(KEY, "slow", "0")
        store.xreadgroup("slow", "one", {KEY: ">"}, count=60)
        store.xack(KEY, "slow", *produced[:20], *produced[30:60])
        report = archive_once(tmp_path, options).streams[0]
        # Trimmed up to the first entry that the group needs; what it has acknowledged above it stays for now.
        assert (report.rows, report.trimmed) == (100, 20)
        assert_whole(tmp_path, options, produced)
        ids = [parse_entry_id(each) for each in produced]
        assert delete(str(tmp_path), KEY, options, [(ids[10], ids[20])]).on_server == 1
        store.xreadgroup("slow", "one", {KEY: ">"}, noack=True)
        store.xack(KEY, "slow", *produced[20:30])
        new = store.xadd(KEY, {"f": "v"}).decode()
        assert archive_once(tmp_path, options).streams[0].trimmed == 79
        assert_whole(tmp_path, options, [*produced[:10], *produced[21:], new])
        assert restore(str(tmp_path), KEY, options, into="back").rows == 90
        store.flushall()


def test_a_group_that_never_read_is_warned_of(store: redis.Redis, source_options: Options, tmp_path: Path) -> None:
    fill(store, 10)
    store.xgroup_create(KEY, "never", "0")
    report = archive_once(tmp_path, source_options).streams[0]
    assert (report.rows, report.trimmed) == (10, 0)
    assert "'never' has never read" in report.warnings[0]


def test_only_manifests_of_some_age_are_trimmed(store: redis.Redis, source_options: Options, tmp_path: Path) -> None:
    fill(store, 10)
    archive_once(tmp_path, source_options, trim_delay_ms=3_600_000)
    assert store.xlen(KEY) == 10
    archive_once(tmp_path, source_options, trim=False)
    assert store.xlen(KEY) == 10
    archive_once(tmp_path, source_options)
    assert store.xlen(KEY) == 0


@ON_BOTH
def test_a_lease_holds_trimming_back_until_it_is_given_back(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    produced = fill(store, 10)
    with connect(ConnectionOptions.parse(source_options)) as connection:
        take_lease(connection, KEY, "a", parse_entry_id(produced[3]), 60_000)
        take_lease(connection, KEY, "b", parse_entry_id(produced[5]), 60_000)
        take_lease(connection, KEY, "short", 0, 1)
        eventually(lambda: leased_boundary(connection, KEY) == parse_entry_id(produced[3]))
        report = archive_once(tmp_path, source_options).streams[0]
        assert (report.trimmed, report.held_by_readers) == (4, produced[3])
        release_lease(connection, KEY, "a")
        assert archive_once(tmp_path, source_options).streams[0].trimmed == 2
        release_lease(connection, KEY, "b")
        assert store.exists(key_beside("leases", KEY)) == 0
        assert archive_once(tmp_path, source_options).streams[0].trimmed == 4


# --- What is refused ------------------------------------------------------------------------------------------------------


@ON_BOTH
def test_a_stream_recreated_is_refused(store: redis.Redis, source_options: Options, tmp_path: Path) -> None:
    fill(store, 10)
    archive_once(tmp_path, source_options, trim=False)
    store.delete(KEY)
    assert "the stream is gone" in str(archive_once(tmp_path, source_options).streams[0].error)
    fill(store, 5)
    assert "IncarnationError" in str(archive_once(tmp_path, source_options).streams[0].error)
    store.xadd(KEY, {"f": "v"})  # its last ID is high enough now, but it has had fewer entries
    assert "IncarnationError" in str(archive_once(tmp_path, source_options).streams[0].error)


@ON_BOTH
def test_entries_trimmed_by_others_before_they_were_archived_are_notified(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    fill(store, 10)
    store.xadd(KEY, {"f": "new"})
    archive_once(tmp_path, source_options, hot_window_ms=3_600_000, trim=False)
    store.xadd(KEY, {"f": "newer"})
    store.xtrim(KEY, maxlen=1, approximate=False)
    assert "DataLossError" in str(archive_once(tmp_path, source_options).streams[0].error)
    report = archive_once(tmp_path, source_options, allow_gaps=True).streams[0]
    assert (report.status, report.rows) == ("archived", 1)
    assert "before it was archived" in report.warnings[0]


@ON_BOTH
def test_two_archivers_do_not_work_on_one_stream(store: redis.Redis, source_options: Options, tmp_path: Path) -> None:
    fill(store, 10)
    options = ConnectionOptions.parse(source_options)
    with connect(options) as connection, connect(options) as other:
        lock = ArchiveLock.acquire(connection, KEY, run="first", archive="x")
        report = archive_once(tmp_path, source_options, lock_wait_ms=0)
        assert "LockedError" in str(report.streams[0].error)
        with pytest.raises(LockedError, match=f"process {os.getpid()}"):
            ArchiveLock.acquire(other, KEY, run="second", archive="x")
        lock.release()
        later = ArchiveLock.acquire(other, KEY, run="second", archive="x")
        assert later.token > lock.token
        with pytest.raises(LockLostError, match="the lock of 'readings' is lost"):
            lock.guarded([("DEL", KEY)])
        assert store.exists(KEY)
        later.release()


def count_rises(numbers: list[int]) -> int:
    return sum(later > earlier for earlier, later in pairwise(numbers))


def test_a_lock_is_renewed_as_long_as_its_run_lives(store: redis.Redis, source_options: Options) -> None:
    options = ConnectionOptions.parse(source_options)
    with connect(options) as connection:
        lock = ArchiveLock.acquire(connection, KEY, run="first", archive="x", ttl_ms=6000)
        lock.start_renewing(options)
        left = [store.pttl(key_beside("lock", KEY))]
        eventually(lambda: left.append(store.pttl(key_beside("lock", KEY))) or count_rises(left) > 2)
        assert min(left) > 0
        lock.release()
        assert store.exists(key_beside("lock", KEY)) == 0


def test_a_server_that_lost_its_counter_gets_a_higher_token(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    produced = fill(store, 10)
    archive_once(tmp_path, source_options)
    archive_once(tmp_path, source_options)
    store.delete(key_beside("token", KEY))
    store.xadd(KEY, {"f": "v"}, id="1800000000000-0")
    archive_once(tmp_path, source_options, hot_window_ms=-(2**50))
    tokens = [each.token for each in ManifestLog.read(Layout(tmp_path), KEY).manifests]
    assert tokens == sorted(set(tokens))
    assert_whole(tmp_path, source_options, [*produced, "1800000000000-0"])


# --- Copies of a server ---------------------------------------------------------------------------------------------------


@pytest.fixture
def copy(store: redis.Redis) -> Iterator[redis.Redis]:
    """Another database of the same server, to be made a copy by `become`."""
    with redis.Redis(port=store.connection_pool.connection_kwargs["port"], db=1, protocol=2) as other:
        other.flushdb()
        yield other
        other.flushdb()


def become(store: redis.Redis, original: redis.Redis) -> None:
    """Have just what another database has, the keys of archivers too."""
    store.flushdb()
    for key in original.scan_iter():
        store.restore(key, max(original.pttl(key), 0), original.dump(key))


def add_entries(store: redis.Redis, *numbers: int) -> list[str]:
    return [store.xadd(KEY, {"n": number}, id=f"{1_800_000_000_000 + number}-0").decode() for number in numbers]


@pytest.mark.parametrize("trim", [True, False])
@pytest.mark.parametrize("idle_runs", [0, 3])
def test_a_server_whose_copy_was_archived_is_refused(
    idle_runs: int, trim: bool, store: redis.Redis, copy: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    """It has entries that would be trimmed, and that no archive has."""
    far = {"hot_window_ms": -(2**50), "trim": trim}
    produced = fill(store, 100)
    assert archive_once(tmp_path, source_options, **far).rows == 100
    become(copy, store)
    for _ in range(idle_runs):  # they count as locks of the server
        assert archive_once(tmp_path, source_options, **far).is_success
    theirs = add_entries(copy, 2, 4, 6)
    assert archive_once(tmp_path, {**source_options, "db": "1"}, **far).rows == 3
    ours = add_entries(store, 1, 3, 5, 7)
    held = store.xrange(KEY)
    for _ in range(3):
        (found,) = archive_once(tmp_path, source_options, **far).streams
        assert "A copy of the server has been archived in its place" in (found.error or "")
        with pytest.raises(IncarnationError, match=r"another server|A copy of the server"):
            delete(str(tmp_path), KEY, source_options, [(1, 2)])
    assert store.xrange(KEY) == held
    assert archive_once(tmp_path, {**source_options, "db": "1"}, **far).is_success
    # Who says that it shall be so gives up what is below the boundary.
    assert archive_once(tmp_path, source_options, accept_server=True, **far).rows == 1
    add_entries(store, 8)
    assert archive_once(tmp_path, source_options, **far).rows == 1
    assert [each for each, _ in rows_of_history(tmp_path, source_options)] == [
        *produced,
        *theirs,
        ours[-1],
        "1800000000008-0",
    ]


@pytest.mark.parametrize("trim", [True, False])
def test_a_server_that_was_set_back_goes_on(
    trim: bool, store: redis.Redis, copy: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    """After a crash it has the entries that were archived, and not what archivers have noted since; after a fail-over, too."""
    far = {"hot_window_ms": -(2**50), "trim": trim}
    produced = fill(store, 100)
    become(copy, store)
    for number in range(3):
        assert archive_once(tmp_path, source_options, **far).is_success
        if number == 1:
            become(store, copy)
    become(store, copy)
    produced += add_entries(store, 1)
    assert archive_once(tmp_path, source_options, **far).rows == 1
    assert_whole(tmp_path, source_options, produced)


def test_two_archives_of_a_stream_do_not_mistake_each_other(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    far = {"hot_window_ms": -(2**50), "trim": False}
    produced = fill(store, 10)
    for number in range(3):
        for name in ("a", "b"):
            assert archive_once(tmp_path / name, source_options, **far).is_success
        produced += add_entries(store, number + 1)
    assert_whole(tmp_path / "a", source_options, produced)
    assert len(store.keys("streamd:archive:manifest:*")) == 2


# --- What is written ------------------------------------------------------------------------------------------------------


def test_files_are_sorted_dated_and_compressed(store: redis.Redis, source_options: Options, tmp_path: Path) -> None:
    produced = fill(store, 5000)
    archive_once(tmp_path, source_options)
    log = ManifestLog.read(Layout(tmp_path), KEY)
    assert len(log.files) > 2
    found = []
    for file in log.files:
        day = file.path.split("/")[2].removeprefix("date=")
        parquet = pq.ParquetFile(tmp_path / file.path)
        group = parquet.metadata.row_group(0)
        assert {group.column(at).compression for at in range(group.num_columns)} == {"ZSTD"}
        assert group.column(1).statistics.min == file.first >> 64
        rows = parquet.read().to_pylist()
        assert {str(row["time"].date()) for row in rows} == {day}
        found += [row["id"] for row in rows]
    assert found == produced


@ON_BOTH
def test_any_bytes_and_any_id_come_back(store: redis.Redis, source_options: Options, tmp_path: Path) -> None:
    entries = [
        ("0-1", [b"a", b"1", b"a", b"2", b"", b""]),
        ("0-2", [b"\xff\x00\r\n", b"\x80" * 300]),
        ("253402300799999-0", [b"f", b"last day"]),
        ("253402300800000-0", [b"f", b"no day"]),
        ("9223372036854775807-9223372036854775807", [b"f", b"v"]),
        ("9223372036854775807-9223372036854775808", [b"f", b"v"]),
        ("9223372036854775808-0", [b"f", b"v"]),
        ("18446744073709551615-18446744073709551615", [b"f", b"v"]),
    ]
    for entry_id, fields in entries:
        store.execute_command("XADD", KEY, entry_id, *fields)
    before = list(rows_of_history_without_archive(tmp_path, source_options))
    report = archive_once(tmp_path, source_options, hot_window_ms=-(2**70), depth="content")
    assert report.rows == len(entries), report.to_json()
    assert store.xlen(KEY) == 1  # nothing is above the last ID of all, so nothing can be trimmed to there
    assert list(rows_of_history(tmp_path, source_options)) == before
    assert [(entry_id, [part for pair in fields for part in pair]) for entry_id, fields in before] == entries


def rows_of_history_without_archive(path: Path, options: Options) -> Iterator[tuple[str, list[tuple[bytes, bytes]]]]:
    Layout(path).create(Disk())
    yield from rows_of_history(path, options)


def test_damage_is_found(store: redis.Redis, source_options: Options, tmp_path: Path) -> None:
    fill(store, 100)
    archive_once(tmp_path, source_options)
    layout = Layout(tmp_path)
    assert verify_archive(layout, KEY).is_whole
    path = layout.data_files(KEY)[0]
    whole = path.read_bytes()
    for at in (0, 10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert verify_archive(layout, KEY).faults, f"byte {at}"
    path.write_bytes(whole[:-1])
    assert verify_archive(layout, KEY, quick=True).faults
    path.unlink()
    assert verify_archive(layout, KEY, quick=True).faults
    path.write_bytes(whole)
    (path.parent / "stranger.parquet").touch()
    assert verify_archive(layout, KEY).strangers == [layout.relative(path.parent / "stranger.parquet")]
    assert verify_archive(layout, KEY).is_whole


def test_a_copy_that_misses_an_entry_is_not_committed(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    produced = fill(store, 100)

    def hook(step: str) -> None:
        """During the copy the key has a stream without an entry in the middle."""
        if step == "bounded":
            store.copy(KEY, "whole")
            store.xdel(KEY, produced[50])
        elif step == "staged":
            store.rename("whole", KEY)

    report = archive_once(tmp_path, source_options, hook=hook).streams[0]
    assert "VerifyError" in str(report.error)
    assert store.xlen(KEY) == 100
    assert_whole(tmp_path, source_options, produced)


def test_entries_deleted_while_they_are_archived_are_no_fault(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    produced = fill(store, 100)

    def hook(step: str) -> None:
        if step == "staged":
            store.xdel(KEY, produced[0], produced[50], produced[99])
            store.xtrim(KEY, minid=produced[10], approximate=False)

    report = archive_once(tmp_path, source_options, hook=hook).streams[0]
    assert (report.rows, report.deleted_meanwhile) == (100, 12)


# --- Restore, status, commands --------------------------------------------------------------------------------------------


def test_a_range_comes_back_with_its_ids(store: redis.Redis, source_options: Options, tmp_path: Path) -> None:
    produced = fill(store, 5000)
    entries = store.xrange(KEY, produced[100], produced[4800])
    archive_once(tmp_path, source_options)
    low, high = parse_entry_id(produced[100]), parse_entry_id(produced[4800])
    report = restore(str(tmp_path), KEY, source_options, into="back", low=low, high=high)
    assert (report.rows, report.first, report.last) == (4701, produced[100], produced[4800])
    assert store.xrange("back") == entries


def test_a_restore_cut_short_is_taken_up(store: redis.Redis, source_options: Options, tmp_path: Path) -> None:
    produced = fill(store, 5000)
    entries = store.xrange(KEY)
    archive_once(tmp_path, source_options)

    def cut(done: int, total: int) -> None:
        if done < total:
            raise Killed

    with pytest.raises(Killed):  # noqa: PT011  it says nothing
        restore(str(tmp_path), KEY, source_options, into="back", progress=cut)
    assert 0 < store.xlen("back") < 5000
    with pytest.raises(Exception, match="only higher ones"):
        restore(str(tmp_path), KEY, source_options, into="back")
    report = restore(str(tmp_path), KEY, source_options, into="back", resume=True)
    assert report.last == produced[-1]
    assert store.xrange("back") == entries


def run_command(*words: object) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "streamd", *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.run(argv, capture_output=True, text=True, env=environment, check=False)


def test_the_commands_do_what_they_say(store: redis.Redis, source_options: Options, tmp_path: Path) -> None:
    produced = fill(store, 100)
    folder, where = tmp_path / "archive", ["-p", source_options["port"]]
    ran = run_command("archive", "run", folder, "--pattern", "read*", "--json", *where)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["rows"] == 100
    status = read_status(str(folder), source_options)[0]
    assert (status.rows, status.on_server, status.boundary) == (100, 100, produced[-1])
    shown = json.loads(run_command("archive", "status", folder, "--json", *where).stdout)
    assert shown[0]["boundary"] == produced[-1]
    assert run_command("archive", "verify", folder).returncode == 0
    back = run_command("archive", "restore", folder, KEY, "--into", "back", "--until", produced[9], "--json", *where)
    assert json.loads(back.stdout)["rows"] == 10
    refused = run_command("archive", "status", tmp_path / "nothing", *where)
    assert refused.returncode == 1
    assert "is not an archive" in refused.stderr


def test_names_that_cannot_be_printed_are_shown_in_one_line(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    key, shown, where = "a\udcff\n[/b]", r"a\xff\n[/b]", ("-p", source_options["port"])
    for at in range(10):
        store.xadd(os.fsencode(key), {"n": at}, id=f"{at + 1}-0")

    def run(*words: str) -> str:
        done = CliRunner().invoke(program, words)
        assert done.exit_code == 0, done.output
        return done.output

    folder = str(tmp_path / "archive")
    assert run("archive", "run", folder, key, "--keep", "0s", *where).startswith(f"{shown}: 10")
    assert f" {shown} " in run("archive", "status", folder, *where)
    assert run("archive", "verify", folder).startswith(f"{shown}: valid")
    assert run("archive", "restore", folder, key, "--into", f"{key}2", *where).startswith(f"10 entries into {shown}2, ")
    assert run("archive", "delete", folder, key, "--since", "1-0", "--yes", *where).startswith(f"{shown}: 10 archived")


def test_the_command_deletes_what_was_asked_for(store: redis.Redis, source_options: Options, tmp_path: Path) -> None:
    produced = fill(store, 100)
    archive_once(tmp_path, source_options)
    words = ["archive", "delete", str(tmp_path), KEY, "-p", source_options["port"]]
    some = [*words, "--id", produced[0], "--since", produced[90]]

    def run(*words: str, **how: Any) -> Any:
        return CliRunner().invoke(program, words, **how)

    assert json.loads(run(*some, "--dry-run", "--json").stdout)["archived"] == 11
    asked = run(*some, input="n\n")
    assert asked.exit_code == 1
    assert "Delete 11 archived entries and 0 on the server permanently?" in asked.output
    assert read_status(str(tmp_path), None)[0].rows == 100
    assert "11 archived entries in" in run(*some, input="y\n").output
    (tmp_path / "ids").write_text(f"{produced[1]}\n\n{produced[2]}\n")
    assert json.loads(run(*words, "--ids-from", str(tmp_path / "ids"), "--yes", "--json").stdout)["archived"] == 2
    assert read_status(str(tmp_path), None)[0].rows == 87
    for wrong, said in [
        ((), "nothing to delete"),
        (("--id", "5", "--yes"), "write it in full, 5-0"),
        (("--id", "later", "--yes"), "not an entry ID"),
        (("--id", "5-0", "--json"), "--json needs --yes"),
    ]:
        refused = run(*words, *wrong)
        assert refused.exit_code == 2
        assert said in refused.output


def test_the_command_deletes_no_more_than_it_has_asked_for(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    produced = fill(store, 20)
    archive_once(tmp_path, source_options, trim=False)
    words = ["archive", "delete", str(tmp_path), KEY, "-p", source_options["port"], "--since", produced[15]]
    new: list[str] = []

    class Answer(io.BytesIO):
        """Entries come in before the question is answered."""

        def read1(self, size: int | None = -1, /) -> bytes:
            new.append(store.xadd(KEY, {"f": "new"}).decode())
            return super().read1(size)

    told = CliRunner().invoke(program, words, input=Answer(b"y\n"))
    assert "5 archived entries in 1 files, and 5 on the server, deleted" in told.output
    assert new
    assert_whole(tmp_path, source_options, produced[:15] + new)


def test_a_terminal_gets_a_bar(store: redis.Redis, source_options: Options, tmp_path: Path) -> None:
    produced = fill(store, 100)
    ours, theirs = pty.openpty()
    words = ["archive", "run", tmp_path / "archive", "--stream", KEY, "-p", source_options["port"]]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "TERM": "xterm",
        "COLUMNS": "100",
    }
    with subprocess.Popen(
        [sys.executable, "-m", "streamd", *map(str, words)], stdout=subprocess.PIPE, stderr=theirs, text=True,
        env=environment,
    ) as process:  # fmt: skip
        os.close(theirs)
        shown = b""
        # The end of a terminal is an error on Linux, and nothing more to read elsewhere.
        with suppress(OSError):
            while data := os.read(ours, 10_000):
                shown += data
        os.close(ours)
        assert process.stdout is not None
        told = process.stdout.read()
    assert process.returncode == 0
    assert f"100 entries up to {produced[-1]}" in told
    assert KEY.encode() in shown
    assert "━".encode() in shown
    assert b"\x1b[" in shown
