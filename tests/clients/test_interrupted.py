"""Ctrl-C on a terminal: each subcommand that takes a while shows a bar, ends with 130, and leaves nothing half."""

from __future__ import annotations

import fcntl
import json
import os
import selectors
import socket
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis
from support.pages.terminals import open_terminal
from support.servers import Server, python_environment

pytestmark = pytest.mark.long

pytest.importorskip("pyarrow")
pytest.importorskip("rich")

ENTRIES = 60_000
DEADLINE_S = 200
STREAM = "readings"


class SlowProxy:
    """Between a client and a server: passes on about 1 MB a second each way, so that whatever is asked takes a while."""

    PIECE = 8 * 1024
    PAUSE_S = 0.008

    def __init__(self, port: int) -> None:
        self._target = port
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._start(self._accept)

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        with (
            suppress(OSError), client, socket.create_connection(("127.0.0.1", self._target)) as server,
            selectors.DefaultSelector() as selector,
        ):  # fmt: skip
            selector.register(client, selectors.EVENT_READ, server)
            selector.register(server, selectors.EVENT_READ, client)
            while not self._stopped.wait(self.PAUSE_S):
                for key, _ in selector.select(0.1):
                    source: Any = key.fileobj
                    data = source.recv(self.PIECE)
                    if not data:
                        return
                    key.data.sendall(data)

    def close(self) -> None:
        self._stopped.set()
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes `accept`
        for thread in self._threads:
            thread.join(DEADLINE_S)
        self._listener.close()


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, *words: str, program: Sequence[str] = ("-m", "streamd")) -> None:
        self._ours, theirs = open_terminal()
        self.shown = b""

        def take() -> None:
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        environment = {**python_environment(), "TERM": "xterm", "COLUMNS": "100", "PYTHONFAULTHANDLER": "1"}
        self._process = subprocess.Popen(
            [sys.executable, *program, *words], stdin=theirs, stdout=theirs, stderr=theirs,
            env=environment, preexec_fn=take,
        )  # fmt: skip
        os.close(theirs)

    def read_until(self, wanted: bytes) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._ours, selectors.EVENT_READ)
            while wanted not in self.shown:
                assert selector.select(DEADLINE_S), self.shown
                data = self._read()
                assert data, self.shown
                self.shown += data

    def _read(self) -> bytes:
        try:
            return os.read(self._ours, 10_000)
        except OSError:  # the end of a terminal, on Linux
            return b""

    def interrupt(self, *, is_question: bool = False) -> int:
        """Press Ctrl-C, at a question until it is taken (not in the moment before it is read); returns the exit status."""
        os.write(self._ours, b"\x03")
        with selectors.DefaultSelector() as selector:
            selector.register(self._ours, selectors.EVENT_READ)
            while True:
                if is_question and not selector.select(10):
                    os.write(self._ours, b"\x03")
                elif data := self._read():
                    self.shown += data
                else:
                    return self._process.wait(DEADLINE_S)

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(DEADLINE_S)
        os.close(self._ours)


@pytest.fixture
def proxy(streamd_server: Server) -> Iterator[SlowProxy]:
    made = SlowProxy(streamd_server.port)
    yield made
    made.close()


@pytest.fixture
def store(streamd_server: Server) -> Iterator[redis.Redis]:
    with redis.Redis(port=streamd_server.port) as client:
        client.flushall()
        for start in range(0, ENTRIES, 10_000):
            pipe = client.pipeline(transaction=False)
            for at in range(start, start + 10_000):
                pipe.xadd(STREAM, {"sensor": "a", "value": at, "text": "x" * 40}, id=f"{1_700_000_000_000 + at}-0")
            pipe.execute()
        yield client
        client.flushall()


BAR = "━".encode()


def interrupted(*words: str, shows: bytes = BAR, program: Sequence[str] = ("-m", "streamd")) -> None:
    terminal = Terminal(*words, program=program)
    try:
        terminal.read_until(shows)
        status = terminal.interrupt(is_question=shows != BAR)
        assert b"Traceback" not in terminal.shown, terminal.shown
        assert status == 130, terminal.shown
    finally:
        terminal.close()


def run(port: int, *words: str) -> str:
    found = subprocess.run(
        [sys.executable, "-m", "streamd", *words, *([] if "verify" in words else ["-p", str(port)])],
        capture_output=True, text=True, timeout=DEADLINE_S, env=python_environment(), check=False,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    assert "━" not in found.stderr, "there is no bar without a terminal"
    return found.stdout


@pytest.mark.parametrize("form", ["csv", "json", "parquet", "arrow", "table"])
def test_history(form: str, store: redis.Redis, proxy: SlowProxy, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("what was there")
    words = ("history", STREAM, "-p", str(proxy.port), "--format", form, "--out", str(tmp_path / "out"), "--replace")
    interrupted(*words)
    assert os.listdir(tmp_path) == ["out"]
    assert (tmp_path / "out").read_text() == "what was there"


def test_export(store: redis.Redis, proxy: SlowProxy, tmp_path: Path) -> None:
    interrupted("export", STREAM, "-p", str(proxy.port), "--to", str(tmp_path / "folder"))
    assert os.listdir(tmp_path / "folder") == []


def test_load(store: redis.Redis, proxy: SlowProxy, streamd_server: Server, tmp_path: Path) -> None:
    run(streamd_server.port, "export", STREAM, "--to", str(tmp_path))
    load = ("load", str(tmp_path), "--into", "copy")
    interrupted(*load, "-p", str(proxy.port))
    assert 0 < store.xlen("copy") < ENTRIES
    run(streamd_server.port, *load)
    assert store.xrange("copy") == store.xrange(STREAM)


def test_load_that_replaces(store: redis.Redis, proxy: SlowProxy, streamd_server: Server, tmp_path: Path) -> None:
    run(streamd_server.port, "export", STREAM, "--to", str(tmp_path))
    store.xadd("copy", {"old": 1}, id="7-7")
    load = ("load", str(tmp_path), "--into", "copy", "--replace")
    interrupted(*load, "-p", str(proxy.port))
    assert store.xrange("copy") == [(b"7-7", {b"old": b"1"})]
    assert sorted(store.keys("*")) == [b"copy", STREAM.encode()]
    run(streamd_server.port, *load)
    assert store.xrange("copy") == store.xrange(STREAM)


def test_report(store: redis.Redis, proxy: SlowProxy, tmp_path: Path) -> None:
    interrupted("report", STREAM, "-p", str(proxy.port), "--out", str(tmp_path / "report.html"))
    assert os.listdir(tmp_path) == []


def test_archive_run_and_restore(store: redis.Redis, proxy: SlowProxy, streamd_server: Server, tmp_path: Path) -> None:
    folder = str(tmp_path / "archive")
    archive = ("archive", "run", folder, "--stream", STREAM, "--trim-delay", "0s")
    interrupted(*archive, "-p", str(proxy.port))
    assert store.xlen(STREAM) == ENTRIES
    # Nobody waits for the lock of the run that ended.
    run(streamd_server.port, *archive)
    run(streamd_server.port, "archive", "verify", folder)
    assert store.xlen(STREAM) == 0
    one = ("--id", "1700000000000-0", "-p", str(streamd_server.port))
    interrupted("archive", "delete", folder, STREAM, *one, shows=b"permanently? [y/N]: ")
    interrupted("archive", "restore", folder, STREAM, "--into", "lost", "-p", str(proxy.port))
    assert 0 < store.xlen("lost") < ENTRIES
    run(streamd_server.port, "archive", "restore", folder, STREAM, "--into", "lost", "--resume")
    assert store.xlen("lost") == ENTRIES
    out = tmp_path / "out"
    store.xadd(STREAM, {"n": 1})
    history = ("history", STREAM, "--archive", folder, "--format", "json", "--out", str(out))
    run(streamd_server.port, *history)
    assert len(out.read_text().splitlines()) == ENTRIES + 1


def test_archive_delete(store: redis.Redis, proxy: SlowProxy, streamd_server: Server, tmp_path: Path) -> None:
    folder = str(tmp_path / "archive")
    archive = ("archive", "run", folder, "--stream", STREAM, "--no-trim", "--keep", "0s")
    run(streamd_server.port, *archive)
    deletion = ("archive", "delete", folder, STREAM, "--since", "1700000000001-0", "--yes")
    interrupted(*deletion, "-p", str(proxy.port))
    assert store.xlen(STREAM) > 1
    # The same deletion does the rest, and nobody waits for the lock.
    run(streamd_server.port, *deletion)
    run(streamd_server.port, "archive", "verify", folder)
    assert store.xlen(STREAM) == 1
    out = tmp_path / "out"
    history = ("history", STREAM, "--archive", folder, "--format", "json", "--out", str(out))
    run(streamd_server.port, *history)
    assert len(out.read_text().splitlines()) == 1


def slowed(module: str, name: str, seconds: float) -> tuple[str, str]:
    """The program with a function that takes longer, so that there is time to interrupt it."""
    return (
        "-c",
        f"""
import time
from streamd.cli import main
from streamd.archive import {module}
known = {module}.{name}
def slow(batch):
    time.sleep({seconds})
    return known(batch)
{module}.{name} = slow
main()
""",
    )


def test_archive_verify(store: redis.Redis, streamd_server: Server, tmp_path: Path) -> None:
    folder = str(tmp_path / "archive")
    for _ in range(2):
        run(streamd_server.port, "archive", "run", folder, "--stream", STREAM, "--keep", "0s")
        store.xadd(STREAM, {"n": 1})
    interrupted("archive", "verify", folder, program=slowed("verify", "first_disorder", 4))
    run(streamd_server.port, "archive", "verify", folder)


@pytest.mark.parametrize("form", ["iceberg", "delta"])
def test_archive_publish(form: str, store: redis.Redis, streamd_server: Server, tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg", reason="open tables need streamd-server[tables]")
    pytest.importorskip("deltalake", reason="open tables need streamd-server[tables]")
    folder = tmp_path / "archive"
    archive = ("archive", "run", str(folder), "--stream", STREAM, "--no-trim", "--keep", "0s")
    run(streamd_server.port, *archive)
    words = ("archive", "publish", str(folder), "--format", form, "--schema", "sensor string, value int")
    interrupted(*words, program=slowed("published_files", "readable", 1.5))
    assert not list(folder.rglob("_staging/**/*.parquet"))
    assert not list(folder.glob("_tables/**/*.parquet"))
    told = subprocess.run(
        [sys.executable, "-m", "streamd", *words, "--json"],
        capture_output=True, text=True, timeout=DEADLINE_S, env=python_environment(), check=True,
    )  # fmt: skip
    assert told.stderr == "", "there is no bar without a terminal"
    assert json.loads(told.stdout) == {"format": form, "files": {STREAM: 1}}
    assert len(list(folder.glob("_tables/**/*.parquet"))) - form_files(folder) == 1


def form_files(folder: Path) -> int:
    """Parquet files of a Delta log, which has some of its own."""
    return len(list(folder.glob("_tables/**/_delta_log/*.parquet")))
