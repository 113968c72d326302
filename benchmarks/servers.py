"""The servers that are held beside each other: found, started on free ports, pinned alike, and what their processes use.

    streamd     this tree
    redis       Redis 8.6: $STREAMD_REDIS_BIN, else the folder that the tests' Redis is in, else redis-server on PATH
    valkey      valkey-server: $STREAMD_VALKEY_BIN, else beside that Redis, else on PATH
    redis-7.0   the system's redis-server when it is of version 7.0

A server that is not there is left out, and named (`find_servers`). All run on one CPU and the load on another, with the
settings that they come with, except `--save ""`: nothing is written that has not been asked for.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Protocol

from benchmarks.load import make_request

__all__ = ["BASE", "NAMES", "Server", "commit", "describe_machine", "end_in_order", "find_binary", "find_redis", "find_servers",
           "make_request", "pin", "pin_load", "start_server", "start_servers"]  # fmt: skip

NAMES = ("streamd", "redis", "valkey", "redis-7.0")
BASE = "redis"
"""Ratios are to this one."""
SERVER_CPU = 0
LOAD_CPU = 1
START_DEADLINE_S = 60
ATTEMPTS = 3
MOST_WITH_BUS = 55_535
"""The greatest port of a node of a cluster, whose bus listens 10,000 above."""
"""How often a server is started that ends instead of being ready: other programs take ports too."""
END_DEADLINE_S = 30
"""How long a server may take to end before it is killed."""
ROOT = Path(__file__).parents[1]


# --- Finding them ------------------------------------------------------------------------------------------------------


def find_redis() -> Path | None:
    """The folder of Redis 8.6 or whatever stands for it."""
    for folder in (os.environ.get("STREAMD_REDIS_BIN"), Path.home() / ".cache/streamd-oracle/bin"):
        if folder and (Path(folder) / "redis-server").exists():
            return Path(folder)
    found = shutil.which("redis-server")
    return Path(found).parent if found else None


def version_of(binary: Path) -> str:
    """The version that a redis-server says it has; empty when it says none."""
    said = subprocess.run([str(binary), "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"v=([0-9.]+)", said)
    return found[1] if found else ""


@cache
def find_binary(name: str) -> Path | None:
    """The executable of a server other than streamd, or None."""
    redis = find_redis()
    if name == "redis":
        return redis / "redis-server" if redis else None
    if name == "valkey":
        folders = [os.environ.get("STREAMD_VALKEY_BIN"), redis, Path(shutil.which("valkey-server") or "/").parent]
        return next((Path(f) / "valkey-server" for f in folders if f and (Path(f) / "valkey-server").exists()), None)
    if name == "redis-7.0":
        beside = Path(shutil.which("redis-server") or "/nowhere"), Path("/usr/bin/redis-server")
        return next((each for each in beside if each.exists() and version_of(each).startswith("7.0")), None)
    raise ValueError(f"no server is called {name}")


def find_servers(wanted: Sequence[str] = NAMES) -> tuple[list[str], list[str]]:
    """Those of the wanted servers that are there, and those that are not."""
    there = [name for name in wanted if name == "streamd" or find_binary(name)]
    return there, [name for name in wanted if name not in there]


# --- Running them ------------------------------------------------------------------------------------------------------


def pin(cpu: int) -> list[str]:
    """The command prefix that keeps a process on one CPU; nothing where that is not to be had."""
    return ["taskset", "-c", str(cpu)] if shutil.which("taskset") and (os.cpu_count() or 1) > 1 else []


def pin_load() -> None:
    """Keep this process, which makes the load, away from the servers' CPU, where that is to be had."""
    if hasattr(os, "sched_setaffinity") and (os.cpu_count() or 1) > 1:
        os.sched_setaffinity(0, {LOAD_CPU})


def end_in_order() -> None:
    """Have SIGTERM end this process as an exception does, so that no server outlives it."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


@dataclass
class Server:
    """A running server process."""

    name: str
    pid: int
    port: int

    def connect(self) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self.port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def send(self, *args: bytes | str | int) -> bytes:
        """Send one request; the reply's bytes as far as they come in one piece."""
        with self.connect() as sock:
            sock.sendall(make_request(*args))
            return sock.recv(1 << 16)

    def cpu_s(self) -> float:
        """User and system time that the process has used in all its threads, in seconds; on Linux, exact to the us."""
        if sys.platform == "linux":
            # The number of the clock that counts a process's CPU time, as clock_getcpuclockid() makes it.
            return time.clock_gettime((~self.pid << 3) | 2)
        said = subprocess.run(["ps", "-o", "time=", "-p", str(self.pid)], capture_output=True, text=True, check=True)
        seconds = 0.0
        for part in said.stdout.strip().replace("-", ":").split(":"):
            seconds = seconds * 60 + float(part)
        return seconds

    def rss_bytes(self) -> int:
        if sys.platform == "linux":
            return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        said = subprocess.run(["ps", "-o", "rss=", "-p", str(self.pid)], capture_output=True, text=True, check=True)
        return int(said.stdout) * 1024

    def info(self, section: str) -> dict[str, str]:
        """The fields of one section of INFO."""
        lines = self.send("INFO", section).decode("latin-1").splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def version(self) -> str:
        fields = self.info("server")
        for key, title in (("streamd_version", "streamd"), ("valkey_version", "Valkey"), ("redis_version", "Redis")):
            if key in fields:
                return f"{title} {fields[key]}"
        return self.name


@contextmanager
def start_server(name: str, *arguments: str, cpu: int = SERVER_CPU) -> Iterator[Server]:
    """Run a server on a free port, pinned to one CPU, until the block ends; it is ready when the block begins."""
    if name == "streamd":
        command = [sys.executable, "-m", "streamd", "server"]
    else:
        binary = find_binary(name)
        if binary is None:
            raise SystemExit(f"{name} has not been found; see benchmarks/servers.py for where it is looked for")
        command = [str(binary)]
    with tempfile.TemporaryDirectory() as folder:
        options = ["--save", "", "--dir", folder, *arguments]
        server, process = spawn(name, [*pin(cpu), *command], options)
        try:
            yield server
        finally:
            end(process)


def spawn(name: str, command: Sequence[str], options: Sequence[str]) -> tuple[Server, subprocess.Popen[bytes]]:
    """Start a server and wait until it is ready; on another port when somebody was faster to take the first one."""
    for left in range(ATTEMPTS - 1, -1, -1):
        port = MOST_WITH_BUS + 1
        while port > MOST_WITH_BUS:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = probe.getsockname()[1]
        process = subprocess.Popen([*command, "--port", str(port), *options], stdout=subprocess.DEVNULL, cwd=ROOT)
        server = Server(name, process.pid, port)
        try:
            wait_until_ready(server, process)
        except BaseException as error:
            end(process)
            if left and isinstance(error, RuntimeError):
                continue
            raise
        return server, process
    raise AssertionError("the last attempt returns or raises")


def end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(END_DEADLINE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def wait_until_ready(server: Server, process: subprocess.Popen[bytes]) -> None:
    """Wait until the server answers PING, which it does when it has loaded its files."""
    deadline = time.monotonic() + START_DEADLINE_S
    while True:
        try:
            if server.send("PING") == b"+PONG\r\n":
                return
        except OSError:
            pass
        if process.poll() is not None:
            raise RuntimeError(f"{server.name} has ended with status {process.returncode} instead of being ready")
        if time.monotonic() > deadline:
            raise TimeoutError(f"{server.name} is not ready after {START_DEADLINE_S} s")
        time.sleep(0.005)


@contextmanager
def start_servers(names: Sequence[str], *arguments: str) -> Iterator[list[Server]]:
    """Run several servers beside each other until the block ends."""
    with ExitStack() as stack:
        yield [stack.enter_context(start_server(name, *arguments)) for name in names]


# --- What a figure depends on ------------------------------------------------------------------------------------------


def commit() -> str:
    """The commit of this tree, with a plus sign when files differ from it."""

    def git(*args: str) -> str:
        try:
            done = subprocess.run(["git", *args], capture_output=True, text=True, cwd=ROOT, check=False)
        except FileNotFoundError:  # nor is there a commit without git
            return ""
        return done.stdout.strip()

    return (git("rev-parse", "--short", "HEAD") or "?") + ("+" if git("status", "--porcelain", "-uno") else "")


def describe_cpu() -> str:
    with_model = Path("/proc/cpuinfo")
    if with_model.exists():
        lines = with_model.read_text().splitlines()
        models = [line.partition(":")[2].strip() for line in lines if "model name" in line]
        if models:
            return f"{len(models)} x {models[0]}"
    return f"{os.cpu_count()} x {platform.processor() or platform.machine()}"


class HasVersion(Protocol):
    """A server, wherever it runs."""

    def version(self) -> str: ...


def describe_machine(*servers: HasVersion, **settings: object) -> str:
    """What a figure depends on: machine, versions, commit, date, settings; one line each."""
    versions = [server.version() for server in servers]
    lines = [
        f"machine   {describe_cpu()}, {platform.system()} {platform.release()}",
        f"versions  {', '.join([*versions, f'Python {platform.python_version()}'])}, commit {commit()}",
        f"date      {datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        f"settings  {', '.join(f'{key}={value}' for key, value in settings.items())}",
    ]
    return "\n".join(lines)
