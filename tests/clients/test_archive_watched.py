"""What is known of an archive from outside: its lag, its runs, and what holds up trims; as metrics and as a status."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis
from support.pages.console import Visitor
from support.pages.illnesses import examine, kinds, the
from support.servers import Server, eventually, free_port, python_environment, start_streamd

pytest.importorskip("pyarrow", reason="archives need streamd-server[archive]")

from prometheus_client.parser import text_string_to_metric_families

from streamd.archive.archiver import ArchiveSettings, archive
from streamd.archive.status import StreamStatus, read_status
from streamd.client.archive_runs import ArchiveRun, parse_runs, runs_key
from streamd.client.points import parse_entry_id
from streamd.watching.case import Thresholds

pytestmark = pytest.mark.long

KEY = "readings"
Metrics = dict[tuple[str, ...], float]


@pytest.fixture
def store(streamd_server: Server) -> Iterator[redis.Redis]:
    with redis.Redis(port=streamd_server.port, decode_responses=True) as store:
        store.flushall()
        yield store


def add(store: redis.Redis, count: int, key: str = KEY) -> list[str]:
    pipe = store.pipeline(transaction=False)
    for at in range(count):
        pipe.xadd(key, {"n": at})
    return list(map(str, pipe.execute()))


def run(path: Path, port: int, *options: str, code: int = 0) -> None:
    command = [
        sys.executable, "-m", "streamd", "archive", "run", str(path), "--pattern", "*", "--port", str(port), "--keep", "0s",
        "--trim-delay", "0s", *options,
    ]  # fmt: skip
    found = subprocess.run(command, env=python_environment(), capture_output=True, text=True, timeout=100)
    assert found.returncode == code, found.stderr


@contextmanager
def served(path: Path, port: int, file: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [
        sys.executable, "-m", "streamd", "archive", "run", str(path), "--pattern", "*", "--port", str(port), "--keep", "0s",
        "--trim-delay", "0s", "--every", "1s", "--metrics-file", str(file), *options,
    ]  # fmt: skip
    with subprocess.Popen(command, env=python_environment(), stdout=subprocess.DEVNULL) as service:
        try:
            yield service
        finally:
            service.kill()


def metrics_in(file: Path) -> Metrics:
    """The samples of a file: name without the prefix, and the values of labels by their names."""
    return {
        (sample.name.removeprefix("streamd_archive_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(file.read_text())
        for sample in family.samples
    }


def shows(file: Path, condition: Callable[[Metrics], object]) -> Metrics:
    """The metrics as soon as they meet a condition."""
    found: Metrics = {}

    def is_met() -> bool:
        if file.exists():
            found.clear()
            found.update(metrics_in(file))
        return bool(found and condition(found))

    eventually(is_met, 100, f"metrics, last {found}")
    return found


def is_newer(file: Path, began: int) -> bool:
    return file.exists() and os.stat(file).st_mtime_ns > began


def status_of(path: Path, port: int) -> StreamStatus:
    (found,) = read_status(str(path), {"port": str(port)})
    return found


def test_the_service_writes_what_is_archived_and_what_is_not(
    store: redis.Redis, streamd_server: Server, tmp_path: Path
) -> None:
    path, file = tmp_path / "archive", tmp_path / "streamd.prom"
    add(store, 20)
    with served(path, streamd_server.port, file, "--keep", "1h"):
        first = shows(file, lambda found: ("stream_lag_entries", KEY) in found)
        assert (first["stream_lag_entries", KEY], first["stream_rows", KEY]) == (20, 0)
        assert (first["last_run_failed",], first["interval_seconds",]) == (0, 1)
        assert ("stream_last_failure_timestamp_seconds", KEY) not in first
    with served(path, streamd_server.port, file):
        found = shows(file, lambda found: found.get(("stream_rows", KEY)) == 20)
        assert (found["stream_lag_entries", KEY], found["stream_lag_seconds", KEY]) == (0, 0)
        assert found["stream_bytes", KEY] == status_of(path, streamd_server.port).bytes
        seconds, _ = store.time()
        assert seconds - 100 < found["stream_last_success_timestamp_seconds", KEY] <= seconds + 1


def test_a_server_that_is_down_leaves_out_the_lag_and_keeps_the_last_success(tmp_path: Path) -> None:
    path, file, folder = tmp_path / "archive", tmp_path / "streamd.prom", tmp_path / "server"
    folder.mkdir()
    server = start_streamd(folder, {"appendonly": "yes", "appendfsync": "always"})
    try:
        with redis.Redis(port=server.port, decode_responses=True) as store:
            add(store, 20)
        with served(path, server.port, file):
            before = shows(file, lambda found: found.get(("stream_rows", KEY)) == 20)
            server.stop()
            found = shows(file, lambda found: found["last_run_failed",])
            assert ("stream_lag_entries", KEY) not in found
            assert found["stream_rows", KEY] == 20
            success = ("stream_last_success_timestamp_seconds", KEY)
            assert found[success] >= before[success]
            server.start_again()
            shows(file, lambda found: found["last_run_failed",] == 0 and ("stream_lag_entries", KEY) in found)
    finally:
        server.stop()


def test_a_stream_that_is_refused_is_told_with_its_error(
    store: redis.Redis, streamd_server: Server, tmp_path: Path
) -> None:
    path, file, port = tmp_path / "archive", tmp_path / "streamd.prom", streamd_server.port
    add(store, 20)
    with served(path, port, file):
        shows(file, lambda found: found.get(("stream_rows", KEY)) == 20)
        store.delete(KEY)
        add(store, 5)
        found = shows(file, lambda found: found.get(("stream_failing", KEY)))
        assert found["stream_last_error_info", "IncarnationError", KEY] == 1
        assert found["stream_refused", KEY] == 1
        assert found["last_run_failed",] == 1


def test_the_group_that_holds_up_trims_is_named(store: redis.Redis, streamd_server: Server, tmp_path: Path) -> None:
    path, file, port = tmp_path / "archive", tmp_path / "streamd.prom", streamd_server.port
    add(store, 20)
    for group in ("billing", "audit"):
        store.xgroup_create(KEY, group, "0")
    run(path, port, "--ignore-group", "audit", "--metrics-file", str(file))
    found = metrics_in(file)
    assert found["stream_held_by_group", "billing", KEY] == 1
    assert ("stream_held_by_group", "audit", KEY) not in found
    assert ("interval_seconds",) not in found
    for _, entries in store.xreadgroup("billing", "alice", {KEY: ">"}):
        store.xack(KEY, "billing", *(each for each, _ in entries))
    run(path, port, "--ignore-group", "audit", "--metrics-file", str(file))
    assert ("stream_held_by_group", "billing", KEY) not in metrics_in(file)


def test_a_run_that_cannot_begin_is_a_failed_one(tmp_path: Path, streamd_server: Server) -> None:
    file = tmp_path / "streamd.prom"
    run(tmp_path / "archive", 1, "--metrics-file", str(file), code=1)
    assert metrics_in(file)["last_run_failed",] == 1


def test_a_reader_of_the_file_never_sees_half_of_it(store: redis.Redis, streamd_server: Server, tmp_path: Path) -> None:
    path, port, file = tmp_path / "archive", streamd_server.port, tmp_path / "metrics" / "streamd.prom"
    file.parent.mkdir()
    for at in range(50):
        add(store, 1, f"stream-{at:03}")
    for _ in range(3):
        with served(path, port, file) as service:
            began = os.stat(file).st_mtime_ns if file.exists() else 0
            eventually(partial(is_newer, file, began), 100, "metrics")
            service.send_signal(signal.SIGKILL)
        assert len([each for each in metrics_in(file) if each[0] == "stream_rows"]) == 50


def test_a_file_that_cannot_be_written_does_not_stop_the_archiver(
    store: redis.Redis, streamd_server: Server, tmp_path: Path
) -> None:
    path, file = tmp_path / "archive", tmp_path / "missing" / "streamd.prom"
    add(store, 20)
    with served(path, streamd_server.port, file):
        eventually(lambda: store.xlen(KEY) == 0, 100, "a trim")
        file.parent.mkdir()
        shows(file, lambda found: found[("stream_rows", KEY)] == 20)


# --- The lag in entries --------------------------------------------------------------------------------------------------


def archive_up_to(path: Path, port: int, entry_id: str) -> None:
    """A run that archives the entries up to an ID, and trims what it may."""
    now_ms = parse_entry_id(entry_id) >> 64
    with redis.Redis(port=port) as store:
        seconds, micros = store.time()
    window = seconds * 1000 + micros // 1000 - now_ms - 1
    report = archive(
        str(path), {"port": str(port), "stream": KEY}, settings=ArchiveSettings(hot_window_ms=window, trim_delay_ms=0)
    )
    assert report.is_success, report.streams


def above(store: redis.Redis, boundary: str) -> int:
    return len(store.xrange(KEY, f"({boundary}"))


@pytest.mark.parametrize("seed", range(4))
def test_the_lag_in_entries_is_that_of_the_stream(
    store: redis.Redis, streamd_server: Server, tmp_path: Path, seed: int
) -> None:
    """Also where a group keeps archived entries on the server, so that no length tells how many are above the boundary."""
    path, port, where = tmp_path / "archive", streamd_server.port, random.Random(seed)
    seconds, _ = store.time()
    at_ms = seconds * 1000 - 10_000_000
    store.xgroup_create(KEY, "billing", "0", mkstream=True)
    ids: list[str] = []
    for turn in range(8):
        for _ in range(where.randrange(60)):
            at_ms += where.randrange(2) and 1000
            ids.append(str(store.xadd(KEY, {"n": 1}, id=f"{at_ms}-*")))
        if ids and turn:
            archive_up_to(path, port, where.choice(ids))
            status = status_of(path, port)
            assert status.behind_entries == above(store, status.boundary)
        read = store.xreadgroup("billing", "alice", {KEY: ">"}, count=where.randrange(1, 30))
        for _, entries in read:
            store.xack(KEY, "billing", *(each for each, _ in entries[where.randrange(2) :]))
    assert status_of(path, port).behind_entries == above(store, status_of(path, port).boundary)


def test_entries_that_are_deleted_before_they_are_archived_count_until_the_archive_has_caught_up(
    store: redis.Redis, streamd_server: Server, tmp_path: Path
) -> None:
    path, port = tmp_path / "archive", streamd_server.port
    seconds, _ = store.time()
    store.xgroup_create(KEY, "billing", "0", mkstream=True)
    ids = [str(store.xadd(KEY, {"n": 1}, id=f"{(seconds - 1000 + at) * 1000}-0")) for at in range(100)]
    archive_up_to(path, port, ids[49])
    assert status_of(path, port).behind_entries == 50
    store.xdel(KEY, *ids[60:70])
    assert status_of(path, port).behind_entries == 50
    archive_up_to(path, port, ids[99])
    assert status_of(path, port).behind_entries == 0


def test_the_lag_in_seconds_is_that_of_the_first_entry_that_is_not_archived(
    store: redis.Redis, streamd_server: Server, tmp_path: Path
) -> None:
    path, port = tmp_path / "archive", streamd_server.port
    seconds, _ = store.time()
    for ago in (5000, 4000, 3000):
        store.xadd(KEY, {"n": 1}, id=f"{(seconds - ago) * 1000}-0")
    archive_up_to(path, port, f"{(seconds - 5000) * 1000}-0")
    assert 4_000_000 <= (status_of(path, port).behind_ms or 0) < 4_100_000
    archive_up_to(path, port, f"{(seconds - 3000) * 1000}-0")
    assert status_of(path, port).behind_ms == 0


# --- The doctor and the console ------------------------------------------------------------------------------------------


def change_record(store: redis.Redis, **changes: Any) -> None:
    """Change what the last run has left of itself; a number is added, anything else replaces."""
    key = runs_key(KEY)
    runs = json.loads(str(store.get(key)))
    for run in runs.values():
        for name, value in changes.items():
            run[name] = run[name] + value if isinstance(value, int) else value
    store.set(key, json.dumps(runs))


def record_of(store: redis.Redis) -> ArchiveRun:
    (found,) = parse_runs(str(store.get(runs_key(KEY))).encode()).values()
    return found


def found_of_archives(server: Server, **thresholds: float) -> list[str]:
    return [each for each in kinds(examine(server, Thresholds(**thresholds))) if each.startswith("archive-")]


def test_a_gap_is_found(store: redis.Redis, streamd_server: Server, tmp_path: Path) -> None:
    path, port = tmp_path / "archive", streamd_server.port
    add(store, 20)
    run(path, port)
    assert found_of_archives(streamd_server) == []
    add(store, 20)
    store.xtrim(KEY, maxlen=5, approximate=False)
    run(path, port, code=1)
    found = examine(streamd_server)
    finding = the("archive-gap", found)
    assert (finding.severity, finding.values["error_kind"]) == ("critical", "DataLossError")
    assert f"# streamd archive run {path} --stream {KEY} --allow-gaps   accepts the gap" in found.page(shows_all=True)
    run(path, port, "--allow-gaps")
    assert found_of_archives(streamd_server) == []


def test_a_run_that_fails_is_found_and_is_worse_when_none_has_succeeded_for_long(
    store: redis.Redis, streamd_server: Server, tmp_path: Path
) -> None:
    path, port = tmp_path / "archive", streamd_server.port
    add(store, 20)
    run(path, port)
    store.delete(KEY)
    add(store, 5)
    run(path, port, code=1)
    finding = the("archive-fails", examine(streamd_server))
    assert (finding.severity, finding.values["error_kind"]) == ("warning", "IncarnationError")
    change_record(store, success_ms=-3_600_000)
    assert the("archive-fails", examine(streamd_server)).severity == "critical"


def test_no_run_for_longer_than_usual_is_found(store: redis.Redis, streamd_server: Server, tmp_path: Path) -> None:
    path, port = tmp_path / "archive", streamd_server.port
    add(store, 20)
    run(path, port)
    change_record(store, success_ms=-86_400_000, at_ms=-86_400_000)
    assert found_of_archives(streamd_server) == [], "one run says nothing about the next"
    run(path, port)
    run(path, port)
    assert record_of(store).usual_ms == pytest.approx(86_400_000, abs=100_000), "not the shortest of the times"
    change_record(store, success_ms=-2 * 86_400_000)
    assert found_of_archives(streamd_server) == []
    change_record(store, success_ms=-2 * 86_400_000)
    finding = the("archive-late", examine(streamd_server))
    assert finding.severity == "warning"
    assert finding.figure == "The last run that succeeded ended 4.0 d ago; usually runs are 1.0 d apart."
    change_record(store, every_ms=None)
    store.delete(runs_key(KEY))
    assert found_of_archives(streamd_server) == []


def test_a_service_that_has_stopped_is_found(store: redis.Redis, streamd_server: Server, tmp_path: Path) -> None:
    path, port, file = tmp_path / "archive", streamd_server.port, tmp_path / "streamd.prom"
    add(store, 20)
    with served(path, port, file):
        shows(file, lambda found: found.get(("stream_rows", KEY)) == 20)
        assert found_of_archives(streamd_server) == []
    change_record(store, success_ms=-60_000)
    assert found_of_archives(streamd_server) == []
    change_record(store, success_ms=-60_000)
    assert the("archive-late", examine(streamd_server)).values["usual_s"] == 1


def test_a_group_that_holds_up_trims_is_found(store: redis.Redis, streamd_server: Server, tmp_path: Path) -> None:
    path, port = tmp_path / "archive", streamd_server.port
    seconds, _ = store.time()
    for hours in (5, 4, 3):
        store.xadd(KEY, {"n": 1}, id=f"{(seconds - hours * 3600) * 1000}-0")
    for group in ("billing", "audit", "done"):
        store.xgroup_create(KEY, group, "$" if group == "done" else "0")
    run(path, port, "--ignore-group", "audit")
    finding = the("archive-held", examine(streamd_server))
    assert finding.subject == f"stream {KEY}, group billing"
    assert "which are 2.0 h older" in finding.figure
    assert found_of_archives(streamd_server, held_s=7201) == []
    for _, entries in store.xreadgroup("billing", "alice", {KEY: ">"}):
        store.xack(KEY, "billing", *(each for each, _ in entries))
    assert found_of_archives(streamd_server) == []


@pytest.mark.parametrize(
    "change",
    [
        {"held_by": [1]}, {"held_by": {"\ud800": "1-1"}}, {"boundary": "x"}, {"first": 1}, {"rows": "many"}, {"at_ms": 10**400},
        {"intervals_ms": [1e400]}, {"error": {}}, {"held_by": {"g": "x"}},
    ],
)  # fmt: skip
def test_a_record_that_is_none_harms_nobody(
    store: redis.Redis, streamd_server: Server, tmp_path: Path, change: dict[str, Any]
) -> None:
    add(store, 20)
    store.set(runs_key(KEY), json.dumps({"a": {"archive": "/a", "run": "r", "at_ms": 1} | change}))
    assert parse_runs(str(store.get(runs_key(KEY))).encode()) == {}
    assert found_of_archives(streamd_server) == []


def test_the_console_tells_what_is_archived_and_since_when(new_streamd: Callable[..., Server], tmp_path: Path) -> None:
    port = free_port()
    server = new_streamd(http_port=str(port))
    path = tmp_path / "archive"
    with redis.Redis(port=server.port, decode_responses=True) as store:
        visitor = Visitor(port)
        visitor.log_in()
        ids = add(store, 20)
        assert visitor.get("stream", key=KEY)["archives"] == []
        run(path, server.port)
        (found,) = visitor.get("stream", key=KEY)["archives"]
        assert (found["archive"], found["first"], found["last"], found["rows"]) == (str(path), ids[0], ids[-1], 20)
        assert found["bytes"] == status_of(path, server.port).bytes
        assert (found["error"], found["success_ms"]) == (None, found["at_ms"])
        add(store, 20)
        store.xtrim(KEY, maxlen=5, approximate=False)
        run(path, server.port, code=1)
        (found,) = visitor.get("stream", key=KEY)["archives"]
        assert found["error"].startswith("DataLossError: ")
        assert (found["rows"], found["first"]) == (20, ids[0])
