"""`streamd archive run --every`: a process that archives what there is, until SIGTERM, whatever fails or is killed meanwhile."""

from __future__ import annotations

import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import redis
from support.replicas.network import Network
from support.servers import Server, eventually, free_port, python_environment, start_streamd

pytest.importorskip("pyspark", reason="archives are read here by streamd-server[spark]")

from support.archives.object_stores import s3_store
from support.archives.runs import KEY, archive_once, now_settings, rows_of_history

from streamd.archive.archive_errors import ArchiveError
from streamd.archive.archiver import Archiver
from streamd.archive.layout import Layout
from streamd.archive.object_disk import disk_for
from streamd.archive.service import ArchiveService
from streamd.archive.verify import verify_archive
from streamd.client.archive_keys import key_beside
from streamd.client.archive_runs import runs_key

pytestmark = pytest.mark.long

NOW = ("--keep", "0s", "--trim-delay", "0s")


class Service:
    """A running service, and the rounds that it has reported."""

    def __init__(self, path: Path | str, port: int, *options: str) -> None:
        command = [
            sys.executable, "-m", "streamd", "archive", "run", str(path), "--every", "1s", "--json", "--port", str(port),
            *NOW, *(options or ("--pattern", "*")),
        ]  # fmt: skip
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, env=python_environment(), text=True)
        self.rounds: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.rounds.append(json.loads(line))

    def next_round(self, condition: Callable[[dict[str, Any]], object], what: str) -> dict[str, Any]:
        """The first round from now on for which a condition is true."""
        at = len(self.rounds)
        eventually(lambda: any(map(condition, self.rounds[at:])) or self.process.poll() is not None, 100, what)
        return next(each for each in self.rounds[at:] if condition(each))

    def end(self, sign: int = signal.SIGTERM) -> int:
        self.process.send_signal(sign)
        return self.process.wait(100)

    def wait_for_reports(self) -> None:
        """Of a process that has ended."""
        self._reader.join()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.wait_for_reports()
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def served(path: Path | str, port: int, *options: str) -> Iterator[Service]:
    service = Service(path, port, *options)
    try:
        yield service
    finally:
        service.close()


class ObjectStore:
    """A bucket of an object store that can be out of reach: its URL is `url`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("obstore", reason="object stores need streamd-server[store]")
        pytest.importorskip("moto", reason="the S3 server of tests is moto")
        with ExitStack() as stack:
            self._network = stack.enter_context(Network())
            store = stack.enter_context(s3_store())
            self._port = int(store.endpoint.rpartition(":")[2])
            for name, value in store.environment(f"http://127.0.0.1:{self._network.gate('store')}").items():
                monkeypatch.setenv(name, value)
            self.url = f"{store.make_bucket('bucket')}/archive"
            self._stack = stack.pop_all()
        self.bring_back()

    def take_down(self) -> None:
        """Refuse connections, and end those that are open, in the middle of a request, too."""
        self._network.lead("store", free_port())
        self._network.cut([("clients", "store")])
        self._network.heal(drop=True)

    def silence(self) -> None:
        """Let what is sent to it, and what it answers, wait."""
        self._network.cut([("clients", "store")])

    def bring_back(self, *, drop: bool = False) -> None:
        """drop  whether what waits is lost, and its connections are reset"""
        self._network.lead("store", self._port)
        self._network.heal(drop=drop)

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def object_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ObjectStore]:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))  # where files are staged
    store = ObjectStore(monkeypatch)
    yield store
    store.close()


@pytest.fixture
def store(streamd_server: Server) -> Iterator[redis.Redis]:
    with redis.Redis(port=streamd_server.port, decode_responses=True) as store:
        store.flushall()
        yield store


def add(store: redis.Redis, key: str, count: int) -> list[str]:
    pipe = store.pipeline(transaction=False)
    for at in range(count):
        pipe.xadd(key, {"n": at, "text": "x" * 20})
    return list(map(str, pipe.execute()))


def archived(stream: str, rows: int) -> Callable[[dict[str, Any]], bool]:
    """Whether a round has archived so many entries of a stream."""
    return lambda report: any(
        (each["stream"], each["rows"]) == (stream, rows) for each in report.get("streams", [])
    )  # fmt: skip


def assert_whole(path: Path | str, port: int, produced: list[str]) -> None:
    """Each entry is there once: in the archive, or on the server above it."""
    assert [entry_id for entry_id, _ in rows_of_history(path, {"port": str(port)})] == produced
    assert verify_archive(Layout(path), KEY).faults == []


def status_of(path: Path | str, port: int, *options: str) -> tuple[int, list[dict[str, Any]], str]:
    command = [sys.executable, "-m", "streamd", "archive", "status", str(path), "--json", "--port", str(port), *options]
    said = subprocess.run(command, env=python_environment(), capture_output=True, text=True, timeout=100)
    return said.returncode, json.loads(said.stdout or "[]"), said.stderr


def test_streams_that_are_made_meanwhile_join(store: redis.Redis, streamd_server: Server, tmp_path: Path) -> None:
    path, port = tmp_path / "archive", streamd_server.port
    with served(path, port, "--pattern", "reading*") as service:
        first = service.next_round(lambda report: "error" in report, "a round without streams")
        assert "NoStreamsError: no stream of" in first["error"]
        assert status_of(path, port, "--max-age", "1m")[:2] == (0, [])
        add(store, "other", 5)
        add(store, "readings", 5)
        service.next_round(archived("readings", 5), "a stream that was made meanwhile")
        assert sum("error" in each for each in service.rounds) == 1
        add(store, "readings-too", 7)
        seen = service.next_round(archived("readings-too", 7), "another stream")
        assert [each["stream"] for each in seen["streams"]] == ["readings", "readings-too"]
        code, found, _ = status_of(path, port, "--max-age", "1m")
        assert (code, [each["rows"] for each in found]) == (0, [5, 7])
        assert {each["last_run"]["every_ms"] for each in found} == {1000}
        assert service.end() == 0


def test_sigterm_ends_a_run_at_a_step(store: redis.Redis, streamd_server: Server, tmp_path: Path) -> None:
    path, port = tmp_path / "archive", streamd_server.port
    produced = [each for _ in range(30) for each in add(store, KEY, 5000)]
    with served(path, port) as service:
        eventually(lambda: (path / "_staging").is_dir() and any((path / "_staging").rglob("*.parquet")), 100, "a copy")
        assert service.end() == 0
        assert service.rounds == []
    assert not store.keys("streamd:archive:lock:*")
    assert not any((path / "_staging").rglob("*.parquet"))
    assert (Layout(path).streams(), store.xlen(KEY)) == ([], len(produced))
    with served(path, port) as service:
        service.next_round(archived(KEY, len(produced)), "what was not archived")
        assert service.end() == 0
    assert store.xlen(KEY) == 0
    assert_whole(path, port, produced)


class StopsAtDeath:
    """Kills a server that has just given a lock, and asks for a stop from then on."""

    def __init__(self, server: Server, lock: str) -> None:
        self.server, self.lock = server, lock
        self.steps = 0  # that were done under the lock

    @property
    def is_requested(self) -> bool:
        if self.server.process.poll() is not None:
            return True
        with redis.Redis(port=self.server.port) as store:
            self.steps += store.exists(self.lock)
        if self.steps == 2:
            self.server.process.kill()
            self.server.process.wait()
        return False

    def wait(self, seconds: float) -> None:
        """No round follows."""


def test_sigterm_ends_a_run_before_its_next_stream_if_the_server_is_down(
    new_streamd: Callable[..., Server], tmp_path: Path
) -> None:
    """Otherwise each of the streams waits for a connection first."""
    server, told = new_streamd(), list[Any]()
    names = [f"{KEY}{number}" for number in range(3)]
    with redis.Redis(port=server.port) as store:
        for name in names:
            store.xadd(name, {"n": 1})
    options = {"port": str(server.port), "streams": json.dumps(names)}
    settings = now_settings(every_ms=1000)
    stop = StopsAtDeath(server, key_beside("lock", names[0]))
    ArchiveService(
        str(tmp_path / "archive"), options, settings, stop=stop, tell_round=told.append, tell_failure=told.append
    ).run()
    assert stop.steps == 2
    assert told == []


@pytest.mark.parametrize("sign", [signal.SIGSTOP, signal.SIGKILL], ids=["silent", "down"])
def test_sigterm_ends_a_run_whose_server_does_not_answer(sign: signal.Signals, tmp_path: Path) -> None:
    """It does not wait for a reply for as long as a run otherwise does, which is a minute."""
    path, folder = tmp_path / "archive", tmp_path / "server"
    folder.mkdir()
    server = start_streamd(folder, {"appendonly": "yes", "appendfsync": "always"})
    try:
        with redis.Redis(port=server.port, decode_responses=True) as store:
            produced = [each for _ in range(30) for each in add(store, KEY, 5000)]
        with served(path, server.port) as service:
            eventually(
                lambda: (path / "_staging").is_dir() and any((path / "_staging").rglob("*.parquet")), 100, "a copy"
            )
            server.process.send_signal(sign)
            service.process.send_signal(signal.SIGTERM)
            code = service.process.wait(40)
            service.wait_for_reports()
        assert service.rounds == [{"is_success": False, "error": service.rounds[0]["error"]}]
        assert "the server does not answer" in service.rounds[0]["error"]
        assert f"127.0.0.1:{server.port}" in service.rounds[0]["error"]
        assert code == 1
        if sign == signal.SIGSTOP:
            server.process.send_signal(signal.SIGCONT)
        else:
            server.process.wait()
            server.start_again()
        with served(path, server.port) as service:
            service.next_round(archived(KEY, len(produced)), "what was not archived")
            assert service.end() == 0
        assert_whole(path, server.port, produced)
        assert verify_archive(Layout(path), KEY).strangers == []
        assert not any((path / "_staging").rglob("*.parquet"))
    finally:
        server.stop()


def test_kills_lose_nothing(store: redis.Redis, streamd_server: Server, tmp_path: Path) -> None:
    path, port, where = tmp_path / "archive", streamd_server.port, random.Random(8)
    produced = add(store, KEY, 500)
    for _ in range(8):
        with served(path, port) as service:
            produced += add(store, KEY, 3000)
            # Killed somewhere in the run, which begins when its lock is there.
            eventually(lambda: store.keys("streamd:archive:lock:*") or service.rounds, 100, "a run")
            for _ in range(where.randrange(200)):
                store.ping()
            service.end(signal.SIGKILL)
        assert [entry_id for entry_id, _ in rows_of_history(path, {"port": str(port)})] == produced
    with served(path, port) as service:
        service.next_round(lambda report: report.get("is_success"), "a round after the kills")
        assert service.end() == 0
    assert store.xlen(KEY) == 0
    assert_whole(path, port, produced)
    assert verify_archive(Layout(path), KEY).strangers == []


def test_two_services_share_the_streams(store: redis.Redis, streamd_server: Server, tmp_path: Path) -> None:
    path, port = tmp_path / "archive", streamd_server.port
    produced: list[str] = []
    with served(path, port) as one, served(path, port) as other:
        while not (one.rounds and other.rounds and len(one.rounds) + len(other.rounds) > 8):
            produced += add(store, KEY, 2000)
        faults = [
            stream["error"]
            for report in one.rounds + other.rounds
            for stream in report.get("streams", ())
            if stream["error"] and not stream["error"].startswith("LockedError: ")
        ]
        assert faults == []
        eventually(lambda: store.xlen(KEY) == 0, 100, "the end of the stream")
        assert (one.end(), other.end()) == (0, 0)
    assert_whole(path, port, produced)
    assert status_of(path, port, "--max-age", "1m")[0] == 0


def test_a_server_that_was_down_is_archived_when_it_is_back(tmp_path: Path) -> None:
    path, folder = tmp_path / "archive", tmp_path / "server"
    folder.mkdir()
    server = start_streamd(folder, {"appendonly": "yes", "appendfsync": "always"})
    port = server.port
    try:
        with redis.Redis(port=port, decode_responses=True) as store:
            produced = add(store, KEY, 20)
        with served(path, port) as service:
            service.next_round(archived(KEY, 20), "the first entries")
            server.stop()
            failed = service.next_round(lambda report: report.get("is_success") is False, "a server that is down")
            assert str(port) in (failed.get("error") or failed["streams"][0]["error"])
            assert status_of(path, port, "--max-age", "1m")[0] == 1
            server.start_again()
            with redis.Redis(port=port, decode_responses=True) as store:
                produced += add(store, KEY, 30)
            service.next_round(archived(KEY, 30), "the entries after that")
            assert service.end() == 0
        assert_whole(path, port, produced)
    finally:
        server.stop()


def test_a_full_disk_is_an_error_until_there_is_space(
    store: redis.Redis, streamd_server: Server, tmp_path: Path
) -> None:
    path, port = tmp_path / "archive", streamd_server.port
    produced = add(store, KEY, 20)
    with served(path, port) as service:
        service.next_round(archived(KEY, 20), "the first entries")
        limits = resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, (0, limits[1]))  # no file may grow
        produced += add(store, KEY, 30)
        failed = service.next_round(lambda report: report.get("is_success") is False, "a disk that is full")
        assert "OSError" in failed["streams"][0]["error"]
        _, (found,), _ = status_of(path, port)
        assert (found["last_run"]["error"], found["rows"]) == (failed["streams"][0]["error"], 20)
        resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, limits)
        service.next_round(archived(KEY, 30), "the entries that there was no space for")
        assert service.end() == 0
    assert_whole(path, port, produced)
    _, (found,), _ = status_of(path, port)
    assert found["last_run"]["success_ms"] >= found["last_run"]["error_ms"]


def test_an_object_store_that_is_down_is_an_error_until_it_is_back(
    store: redis.Redis, streamd_server: Server, object_store: ObjectStore
) -> None:
    url, port = object_store.url, streamd_server.port
    produced = add(store, KEY, 20)
    with served(url, port) as service:
        service.next_round(archived(KEY, 20), "the first entries")
        object_store.take_down()
        produced += add(store, KEY, 30)
        failed = service.next_round(lambda report: report.get("is_success") is False, "a store that is down")
        assert url in (failed.get("error") or failed["streams"][0]["error"])
        assert store.xlen(KEY) == 30
        object_store.bring_back()
        service.next_round(archived(KEY, 30), "the entries that the store did not get")
        assert service.end() == 0
    assert_whole(url, port, produced)


@pytest.mark.parametrize("place", ["nothing", "another archive"])
@pytest.mark.parametrize("last", ["begun", "locked", "bounded", "staged", "moved", "pending"])
def test_an_archive_that_goes_during_a_run_is_not_trimmed_for(
    store: redis.Redis, streamd_server: Server, tmp_path: Path, last: str, place: str
) -> None:
    path, away, options = tmp_path / "archive", tmp_path / "away", {"port": str(streamd_server.port)}
    produced = add(store, KEY, 20)
    archive_once(path, options)
    archive_id = Layout(path).id
    produced += add(store, KEY, 30)

    def take_away(step: str) -> None:
        if step == last:
            os.rename(path, away)
            if place == "another archive":
                Layout(path).create(disk_for(path))

    archiver = Archiver(str(path), {"stream": KEY, **options}, now_settings(), hook=take_away, archive_id=archive_id)
    take_away("begun")  # after a service has looked at it
    if last == "begun":
        with pytest.raises(ArchiveError, match="is not "):
            archiver.run()
    else:
        (report,) = archiver.run().streams
        assert report.status == "failed"
    assert store.xlen(KEY) == 30
    shutil.rmtree(path, ignore_errors=True)
    os.rename(away, path)
    assert archive_once(path, options).streams[0].rows == 30
    assert_whole(path, streamd_server.port, produced)


@pytest.mark.parametrize("place", ["an empty folder", "another archive"])
def test_no_other_archive_takes_the_place_of_one_that_is_gone(
    store: redis.Redis, streamd_server: Server, tmp_path: Path, place: str
) -> None:
    path, away, port = tmp_path / "archive", tmp_path / "away", streamd_server.port
    produced = add(store, KEY, 20)
    with served(path, port) as service:
        service.next_round(archived(KEY, 20), "the first entries")
        os.rename(path, away)
        path.mkdir()  # as where a file system is not mounted
        reason = "is not an archive: it has no archive.json"
        if place == "another archive":
            Layout(path).create(disk_for(path))
            reason = "is not the archive that it was"
        there = os.listdir(path)
        produced += add(store, KEY, 30)
        failed = service.next_round(lambda report: reason in report.get("error", ""), "an archive that is gone")
        assert failed["error"] == f"ArchiveError: {path} {reason}"
        assert (os.listdir(path), store.xlen(KEY)) == (there, 30)
        shutil.rmtree(path)
        os.rename(away, path)
        service.next_round(archived(KEY, 30), "the rest")
        assert service.end() == 0
    assert_whole(path, port, produced)


def test_a_stream_that_was_not_archived_for_too_long_is_late(
    store: redis.Redis, streamd_server: Server, tmp_path: Path
) -> None:
    path, port = tmp_path / "archive", streamd_server.port
    add(store, KEY, 20)
    with served(path, port) as service:
        service.next_round(archived(KEY, 20), "the entries")
        assert service.end() == 0
    assert status_of(path, port, "--max-age", "1h")[0] == 0
    runs = json.loads(store.get(runs_key(KEY)))
    for each in runs.values():
        each["success_ms"] -= 7_200_000
    store.set(runs_key(KEY), json.dumps(runs))
    code, _, said = status_of(path, port, "--max-age", "1h")
    assert code == 1
    assert re.match(rf"{KEY}: the last run that succeeded ended 7,\d\d\d", said), said
    store.set(runs_key(KEY), "[no record")
    assert status_of(path, port, "--max-age", "1h")[::2] == (1, f"{KEY}: the server knows no run into this archive\n")
    store.delete(KEY)
    assert status_of(path, port, "--max-age", "1h")[0] == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--every", "0"), "Invalid value for '--every': '0' is too short; the shortest time is 1s"),
        (("--every", "-5s"), "Invalid value for '--every': '-5s' is not a duration; write for example 500ms, 10s, 15m, 1h, 2d12h"),
        (("--every", "often"), "Invalid value for '--every': 'often' is not a duration; write for example 500ms, 10s, 15m, 1h, 2d12h"),
        (("--every", "30s", "--accept-server"), "--accept-server is a decision about one run: omit --every"),
        (("--every", "30s", "--wait", "1m"), "--wait is not needed with --every: the next round tries again"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_one_line(options: tuple[str, ...], said: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "streamd", "archive", "run", str(tmp_path / "a"), "--pattern", "*", *options]
    found = subprocess.run(command, env=python_environment(), capture_output=True, text=True, timeout=100)
    assert (found.returncode, found.stderr.splitlines()[-1]) == (2, f"Error: {said}")
    assert not (tmp_path / "a").exists()


def test_a_folder_of_other_files_is_refused_at_the_start(streamd_server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with served(tmp_path, streamd_server.port) as service:
        assert service.process.wait(100) == 1
    assert os.listdir(tmp_path) == ["file"]


# --- Everything at once ---------------------------------------------------------------------------------------------------


class Faults:
    """A server, two services that archive it, and what befalls them, one fault after the other.

    object_store  where the archive is; None: in the folder
    """

    def __init__(self, folder: Path, seed: int, object_store: ObjectStore | None) -> None:
        self.random = random.Random(seed)
        self.object_store = object_store
        self.path, self.away = folder / "archive", folder / "away"
        self.place = object_store.url if object_store else str(self.path)
        (folder / "server").mkdir()
        self.server = start_streamd(folder / "server", {"appendonly": "yes", "appendfsync": "always"})
        self.services = [Service(self.place, self.server.port) for _ in range(2)]
        self.produced: list[str] = []
        self.counts: Counter[str] = Counter()

    def add(self) -> None:
        with redis.Redis(port=self.server.port, decode_responses=True) as store:
            self.produced += add(store, KEY, self.random.randint(1, 500))

    def add_ahead_of_the_clock(self) -> None:
        """As after a clock that went back: the IDs that follow are those of the later time."""
        with redis.Redis(port=self.server.port, decode_responses=True) as store:
            now_ms = store.time()[0] * 1000
            if int(self.produced[-1].split("-")[0]) < now_ms:
                self.produced.append(str(store.xadd(KEY, {"n": 0}, id=f"{now_ms + 3000}-0")))
            self.produced += add(store, KEY, 10)

    def kill_a_service(self) -> None:
        chosen = self.random.randrange(2)
        self.services[chosen].end(self.random.choice([signal.SIGKILL, signal.SIGTERM]))
        self.services[chosen].close()
        self.services[chosen] = Service(self.place, self.server.port)

    def kill_the_server(self) -> None:
        self.server.process.kill()
        self.server.process.wait()
        self.wait_for_a_round()
        self.server.start_again()

    def fill_the_disk(self) -> None:
        limits = [resource.prlimit(each.process.pid, resource.RLIMIT_FSIZE) for each in self.services]
        for each, (_, most) in zip(self.services, limits, strict=True):
            resource.prlimit(each.process.pid, resource.RLIMIT_FSIZE, (0, most))
        self.add()
        self.wait_for_a_round()
        for each, limit in zip(self.services, limits, strict=True):
            resource.prlimit(each.process.pid, resource.RLIMIT_FSIZE, limit)

    def take_the_archive_away(self) -> None:
        # A process that begins while it is away would make another one.
        eventually(lambda: all(each.rounds for each in self.services), 200, "a round of each service")
        os.rename(self.path, self.away)
        self.wait_for_a_round()
        eventually(self.put_back, 100, "the archive in its place")

    def put_back(self) -> bool:
        """False if a run that was under way has just written to where the archive was."""
        shutil.rmtree(self.path, ignore_errors=True)
        with suppress(OSError):
            os.rename(self.away, self.path)
        return not self.away.exists()

    def take_the_store_down(self) -> None:
        assert self.object_store is not None
        self.add()
        self.object_store.take_down()
        self.random.choice((self.add, self.kill_a_service))()
        self.wait_for_a_round()
        self.object_store.bring_back()

    def silence_the_store(self) -> None:
        """For a moment: what was sent to it arrives after that, or is lost; so is what it has answered."""
        assert self.object_store is not None
        self.add()
        self.object_store.silence()
        self.random.choice((self.add, self.kill_a_service))()
        self.object_store.bring_back(drop=self.random.random() < 0.5)

    def wait_for_a_round(self) -> None:
        """One of both services has reported something, whatever it is."""
        seen = sum(len(each.rounds) for each in self.services)
        eventually(lambda: sum(len(each.rounds) for each in self.services) > seen, 100, "a round")

    def befall(self) -> None:
        of_the_place = (
            (self.take_the_store_down, self.silence_the_store) if self.object_store else (self.take_the_archive_away,)
        )
        faults = (
            self.add, self.add, self.add_ahead_of_the_clock, self.kill_a_service, self.kill_the_server, self.fill_the_disk,
            self.wait_for_a_round, *of_the_place,
        )  # fmt: skip
        fault = self.random.choice(faults)
        self.counts[fault.__name__] += 1
        fault()

    def end(self) -> None:
        """Everything is archived in the end, once, and both services stop."""
        print(f"{len(self.produced):,} entries; {dict(self.counts)}")
        with redis.Redis(port=self.server.port) as store:
            eventually(lambda: store.xlen(KEY) == 0, 200, "the end of the stream")
        # One that has just started would be ended by the signal itself.
        eventually(lambda: all(each.rounds for each in self.services), 200, "a round of each service")
        assert [each.end() for each in self.services] == [0, 0]
        assert_whole(self.place, self.server.port, self.produced)

    def close(self) -> None:
        for each in self.services:
            each.close()
        self.server.stop()


@pytest.mark.parametrize("place", ["folder", "object store"])
@pytest.mark.parametrize("seconds", [10, pytest.param(3600, marks=[pytest.mark.slow, pytest.mark.timeout(5000)])])
def test_services_survive_whatever_befalls_them(
    seconds: int, place: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    seed = int(os.environ.get("STREAMD_TEST_SEED") or random.randrange(2**32))
    print(f"STREAMD_TEST_SEED={seed}")
    object_store = request.getfixturevalue("object_store") if place == "object store" else None
    story = Faults(tmp_path, seed, object_store)
    try:
        story.add()
        with redis.Redis(port=story.server.port) as store:
            eventually(lambda: store.xlen(KEY) == 0, 100, "the first entries in an archive")
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            story.befall()
        story.end()
    finally:
        story.close()
