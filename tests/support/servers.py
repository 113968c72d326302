"""Servers as subprocesses: found, started on a free port, awaited, stopped, with their output kept.

Environment:

    STREAMD_REDIS_BIN       the folder that holds redis-server and redis-cli
    STREAMD_REQUIRE_REDIS   1: a missing redis-server is a failure, not a skip; 8.6: an older one is, too
    STREAMD_TEST_TARGET     redis: tests meant for streamd run against a second redis-server, to prove the tests
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from .wire import ConnectionClosed, Reply, Wire

__all__ = [
    "Oracle",
    "Server",
    "connect_early",
    "eventually",
    "find_oracle",
    "find_valkey",
    "free_port",
    "server_arguments",
    "start_redis",
    "start_streamd",
    "start_valkey",
    "wait_for_start",
]

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
END_TIMEOUT_S = 10.0

# Directives for every server of the tests; a test's own directives override them.
BASE_DIRECTIVES: Mapping[str, str] = {
    "bind": "127.0.0.1",
    "save": "",
    "enable-debug-command": "yes",
    "loglevel": "notice",
}


def eventually(condition: Callable[[], object], timeout_s: float = 60.0, what: str = "the condition") -> None:
    """Wait until `condition()` is true; fail when the deadline passes first."""
    start = time.monotonic()
    while not condition():
        waited = time.monotonic() - start
        if waited > timeout_s:
            raise AssertionError(f"{what} did not come true within {timeout_s} s")
        # Most conditions query a server, which other tests want to run beside.
        time.sleep(min(0.002 + waited / 20, 0.02))


class Oracle:
    """A folder with the programs of a real Redis."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @functools.cached_property
    def version(self) -> tuple[int, ...]:
        text = subprocess.run([self.server, "--version"], capture_output=True, text=True, check=True).stdout
        match = re.search(r"v=([0-9.]+)", text)
        assert match is not None, text
        return tuple(map(int, match[1].split(".")))

    @property
    def server(self) -> str:
        return str(self.folder / "redis-server")

    @property
    def cli(self) -> str:
        return str(self.folder / "redis-cli")

    @property
    def benchmark(self) -> str:
        return str(self.folder / "redis-benchmark")


@functools.cache
def find_oracle() -> Oracle | None:
    """The real Redis: STREAMD_REDIS_BIN, then ~/.cache/streamd-oracle/bin, then PATH."""
    named = os.environ.get("STREAMD_REDIS_BIN")
    folders = [Path(named)] if named else [Path.home() / ".cache/streamd-oracle/bin"]
    on_path = shutil.which("redis-server")
    if on_path and not named:
        folders.append(Path(on_path).parent)
    for folder in folders:
        if (folder / "redis-server").exists():
            return Oracle(folder)
    return None


PORTS = range(12_000, 32_000)
"""Below those that systems give to sockets that ask for any: no connection takes one before the server that it is meant for."""


def free_port() -> int:
    """A port of 127.0.0.1 that nobody has. No other worker of pytest-xdist is given it, nor this one soon again."""
    with _ports_lock:  # threads that start servers at once must not begin at the same port
        ports = _ports()
    for port in itertools.islice(ports, len(PORTS)):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


_ports_lock = threading.Lock()


@functools.cache
def _ports() -> Iterator[int]:
    worker, workers = os.environ.get("PYTEST_XDIST_WORKER", "gw0"), os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")
    own = PORTS[int(worker.removeprefix("gw")) :: int(workers)]
    first = random.Random(os.getpid()).randrange(len(own))
    return itertools.cycle([*own[first:], *own[:first]])


class Process(subprocess.Popen[bytes]):
    """A process that knows which signals it was sent on purpose, through this object."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        self.sent: set[int] = set()
        super().__init__(*args, **settings)

    def send_signal(self, sig: int) -> None:
        self.sent.add(sig)
        super().send_signal(sig)

    def find_fatal_signal(self) -> str | None:
        """The signal that ended it, unless it was sent here."""
        number = -(self.poll() or 0)
        return signal.Signals(number).name if number > 0 and number not in self.sent else None


class Server:
    """A running server. `stop` ends it; `log_since(mark)` returns its output since `mark`.

    environment  of the process that is started next
    """

    host = "127.0.0.1"

    def __init__(self, name: str, argv: Sequence[str], port: int, folder: Path, env: Mapping[str, str]) -> None:
        self.name = name
        self.port = port
        self.folder = folder
        self.log_path = folder / "output.log"
        self._argv = list(argv)
        self.environment = dict(env)
        self._processes: list[Process] = []
        self._start()

    def _start(self) -> None:
        with self.log_path.open("ab") as log:
            self.process = Process(
                self._argv,
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
        self._processes.append(self.process)

    def restart(self) -> None:
        """Stop it, and start it again on the same port."""
        self.stop()
        self._start()
        self.wait_until_ready()

    def start_again(self, arguments: Sequence[str] = ()) -> None:
        """Start a server that has ended, with these arguments behind those that it had at first."""
        own, self._argv = self._argv, [*self._argv, *arguments]
        try:
            self._start()
        finally:
            self._argv = own
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.name} exited with {self.process.returncode} at start:\n{self.log()}")
            if time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"{self.name} did not answer PING within {START_TIMEOUT_S} s:\n{self.log()}")
            time.sleep(0.01)

    def _answers(self) -> bool:
        try:
            with Wire(self.port, self.host, timeout_s=5.0) as wire:
                reply = wire.call("PING")
                # The server has closed its side when this ends: it counts this client no more.
                wire.socket.shutdown(socket.SHUT_WR)
                wire.read_to_end()
        except (OSError, ConnectionClosed):
            return False
        return reply == Reply("+", b"PONG") or (reply.is_error and bool(reply.value.startswith(b"NOAUTH")))

    def connect(self, protocol: int = 2, timeout_s: float = 60.0) -> Wire:
        wire = Wire(self.port, self.host, timeout_s)
        if protocol == 3:
            reply = wire.call("HELLO", "3")
            assert reply.kind == "%", reply
        return wire

    def rss_kib(self) -> int:
        """Resident memory of the process, in KiB."""
        text = subprocess.run(
            ["ps", "-o", "rss=", "-p", str(self.process.pid)], capture_output=True, text=True, check=True
        ).stdout
        return int(text)

    def log(self) -> str:
        return self.log_since(0)

    def log_mark(self) -> int:
        return self.log_path.stat().st_size

    def log_since(self, mark: int) -> str:
        with self.log_path.open("rb") as log:
            log.seek(mark)
            return log.read().decode(errors="replace")

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def expect_signal(self, number: int) -> None:
        """The test has it end by this signal, in another way than by sending it through `process`."""
        self.process.sent.add(number)

    def find_fatal_signal(self) -> str | None:
        """A signal that has ended it, now or before it was started again, and that no test had sent."""
        return next(filter(None, (process.find_fatal_signal() for process in self._processes)), None)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        """Stop it, and what a killed server has left: the child that wrote its snapshot may run for long."""
        self.stop(END_TIMEOUT_S)
        for process in self._processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Send SIGTERM, then SIGKILL if it has not ended in time; return the exit status."""
        if self.is_running:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.kill()
        return int(self.process.returncode)


def directive_arguments(directives: Mapping[str, str]) -> list[str]:
    merged = {**BASE_DIRECTIVES, **{name.replace("_", "-"): value for name, value in directives.items()}}
    return [word for name, value in merged.items() for word in (f"--{name}", *_values(name, value))]


def _values(name: str, value: str) -> list[str]:
    return value.split() if name in ("client-output-buffer-limit", "rename-command", "replicaof") else [value]


def start_redis(folder: Path, directives: Mapping[str, str] | None = None, name: str = "redis") -> Server:
    oracle = find_oracle()
    assert oracle is not None, "the caller must have checked that there is a redis-server"
    port = free_port()
    argv = [oracle.server, "--port", str(port), *directive_arguments(directives or {})]
    return wait_for_start(Server(name, argv, port, folder, os.environ))


def find_valkey() -> str | None:
    """The program valkey-server: beside redis-server, or on the PATH."""
    oracle = find_oracle()
    beside = oracle and oracle.folder / "valkey-server"
    return str(beside) if beside and beside.exists() else shutil.which("valkey-server")


def start_valkey(folder: Path, directives: Mapping[str, str] | None = None, name: str = "valkey") -> Server:
    program = find_valkey()
    assert program is not None, "the caller must have checked that there is a valkey-server"
    port = free_port()
    argv = [program, "--port", str(port), *directive_arguments(directives or {})]
    return wait_for_start(Server(name, argv, port, folder, os.environ))


def start_streamd(folder: Path, directives: Mapping[str, str] | None = None, name: str = "streamd") -> Server:
    if target_is_redis():
        return start_redis(folder, directives, name)
    port = free_port()
    return wait_for_start(Server(name, server_arguments(port, directives or {}), port, folder, python_environment()))


def server_arguments(port: int, directives: Mapping[str, str]) -> list[str]:
    """The command line of a streamd; $STREAMD_TEST_IO_THREADS is the default of its io-threads."""
    threads = os.environ.get("STREAMD_TEST_IO_THREADS")
    if threads and "io-threads" not in directives:
        directives = {**directives, "io-threads": threads}
    python = os.environ.get("STREAMD_TEST_PYTHON", sys.executable)
    return [python, "-m", "streamd", "server", "--port", str(port), *directive_arguments(directives)]


def connect_early(port: int) -> Wire:
    """A connection to a server that is about to listen."""
    made: list[Wire] = []

    def connects() -> bool:
        with suppress(OSError):
            made.append(Wire(port))
        return bool(made)

    eventually(connects)
    return made[0]


def wait_for_start(server: Server) -> Server:
    """The server, as soon as it answers; it is stopped when it does not."""
    try:
        server.wait_until_ready()
    except BaseException:
        server.stop()
        raise
    return server


def target_is_redis() -> bool:
    return os.environ.get("STREAMD_TEST_TARGET") == "redis"


def python_environment() -> dict[str, str]:
    """The environment in which a Python subprocess finds the same streamd package as the tests do."""
    env = dict(os.environ, PYTHONUNBUFFERED="1")
    spec = importlib.util.find_spec("streamd")
    if spec is not None and spec.submodule_search_locations:
        parent = Path(next(iter(spec.submodule_search_locations))).parent
    else:
        parent = Path(__file__).parents[2]
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(parent), env.get("PYTHONPATH", "")]))
    return env
