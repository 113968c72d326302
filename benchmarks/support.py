"""What the benchmarks share: servers side by side, pinned alike, and what is read from their processes."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Server", "describe_machine", "find_redis", "make_request", "pin", "spread", "start_server"]

SERVER_CPU = 0
LOAD_CPU = 1
START_DEADLINE_S = 20


def find_redis() -> Path | None:
    """The folder of a real Redis: $STREAMD_REDIS_BIN, the oracle's cache, or that of redis-server on PATH."""
    for folder in (os.environ.get("STREAMD_REDIS_BIN"), Path.home() / ".cache/streamd-oracle/bin"):
        if folder and (Path(folder) / "redis-server").exists():
            return Path(folder)
    found = shutil.which("redis-server")
    return Path(found).parent if found else None


def pin(cpu: int) -> list[str]:
    """The command prefix that keeps a process on one CPU; nothing where that is not to be had."""
    return ["taskset", "-c", str(cpu)] if shutil.which("taskset") and (os.cpu_count() or 1) > 1 else []


def make_request(*args: bytes | str | int) -> bytes:
    """A request as an array of bulk strings."""
    parts = [a if isinstance(a, bytes) else str(a).encode() for a in args]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts)


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
        """User and system time that the process has used, in seconds."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss_bytes(self) -> int:
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def version(self) -> str:
        for line in self.send("INFO", "server").decode("latin-1").splitlines():
            if line.startswith("streamd_version:"):
                return "streamd " + line.partition(":")[2]
        for line in self.send("INFO", "server").decode("latin-1").splitlines():
            if line.startswith("redis_version:"):
                return "Redis " + line.partition(":")[2]
        return self.name


@contextmanager
def start_server(name: str, *arguments: str) -> Iterator[Server]:
    """Run `streamd` or `redis` on a free port, pinned to the servers' CPU, until the block ends."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    if name == "streamd":
        command = [sys.executable, "-m", "streamd", "server"]
    else:
        folder = find_redis()
        if folder is None:
            raise SystemExit("no redis-server found: set STREAMD_REDIS_BIN to the folder that has one")
        command = [str(folder / "redis-server")]
    with tempfile.TemporaryDirectory() as folder_name:
        process = subprocess.Popen(
            [*pin(SERVER_CPU), *command, "--port", str(port), "--save", "", "--dir", folder_name, *arguments],
            stdout=subprocess.DEVNULL,
            cwd=Path(__file__).parents[1],
        )
        try:
            server = Server(name, process.pid, port)
            wait_until_ready(server)
            yield server
        finally:
            process.terminate()
            process.wait()


def wait_until_ready(server: Server) -> None:
    deadline = time.monotonic() + START_DEADLINE_S
    while True:
        try:
            if server.send("PING") == b"+PONG\r\n":
                return
        except OSError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.02)


def describe_machine(*servers: Server, **settings: object) -> str:
    """What a figure depends on: machine, versions, commit, settings."""
    cpu = platform.processor() or platform.machine()
    with_model = Path("/proc/cpuinfo")
    if with_model.exists():
        models = [
            line.partition(":")[2].strip() for line in with_model.read_text().splitlines() if "model name" in line
        ]
        cpu = f"{len(models)} x {models[0]}" if models else cpu
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=Path(__file__).parent, check=False
    ).stdout.strip()
    lines = [
        f"machine   {cpu}, {platform.system()} {platform.release()}",
        f"versions  {', '.join(s.version() for s in servers)}, Python {platform.python_version()}, commit {commit or '?'}",
        f"settings  {', '.join(f'{k}={v}' for k, v in settings.items())}",
    ]
    return "\n".join(lines)


def spread(values: list[float]) -> float:
    """Half the distance between the extremes, relative to the median."""
    middle = statistics.median(values)
    return (max(values) - min(values)) / 2 / middle if middle else 0.0
