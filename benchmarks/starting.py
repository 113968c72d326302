"""How soon a server answers, and what it takes then: streamd beside redis-server and the TCP server of fakeredis.

    python -m benchmarks.starting [--times N]

Each server is started N times as a process of its own; the smallest time from the start to the first PONG counts, the CPU
time of the process until then, and its resident set. A server in the program itself, as tests use it, is measured in
this process. fakeredis is left out where it is not installed.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import click
from rich.console import Console
from rich.table import Table

import streamd.embedded
from benchmarks.servers import end, find_redis

READY_S = 60
PAUSE_S = 0.0005
FAKE = "import sys; from fakeredis import TcpFakeServer; TcpFakeServer(('127.0.0.1', int(sys.argv[1]))).serve_forever()"
EMBEDDED = "streamd, in a thread of the program", "streamd, in a process of the program"


class Start(NamedTuple):
    """One start: seconds to the first PONG, seconds of CPU until then, resident bytes."""

    wall_s: float
    cpu_s: float
    rss_bytes: int


def commands(port: int) -> dict[str, list[str]]:
    """The command of each server that is there."""
    options = ["--port", str(port), "--save", ""]
    found = {"streamd": [sys.executable, "-m", "streamd", "server", *options]}
    if redis := find_redis():
        found["redis-server"] = [str(redis / "redis-server"), *options]
    if find_spec("fakeredis"):
        found["fakeredis' TCP server"] = [sys.executable, "-c", FAKE, str(port)]
    return found


def start(command: list[str], port: int) -> Start:
    """Start a server, wait for its PONG, end it."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for_pong(port, process)
        wall_s = time.perf_counter() - began
        ticks = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        pages = Path(f"/proc/{process.pid}/statm").read_text().split()[1]
        return Start(wall_s, sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK"), int(pages) * os.sysconf("SC_PAGE_SIZE"))
    finally:
        end(process)


def wait_for_pong(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(ConnectionError), socket.create_connection(("127.0.0.1", port), READY_S) as sock:
            sock.sendall(b"*1\r\n$4\r\nPING\r\n")
            if sock.recv(7) == b"+PONG\r\n":
                return
        time.sleep(PAUSE_S)
    raise RuntimeError("the server does not answer")


def start_embedded(*, own_process: bool) -> float:
    """Seconds until a server of this program has answered."""
    began = time.perf_counter()
    with streamd.embedded.start(own_process=own_process) as server, server.client() as client:
        client.ping()
        return time.perf_counter() - began


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--times", default=10, show_default=True, help="Starts of each server.")
def main(times: int) -> None:
    table = Table("server", "first PONG", "CPU", "resident", title="Starting a server")
    for name, command in commands(port := free_port()).items():
        starts = [start(command, port) for _ in range(times)]
        least = Start(*map(min, zip(*starts, strict=True)))
        table.add_row(name, f"{least.wall_s:.3f} s", f"{least.cpu_s:.2f} s", f"{least.rss_bytes / 1e6:.1f} MB")
    for name, own_process in zip(EMBEDDED, (False, True), strict=True):
        wall_s = min(start_embedded(own_process=own_process) for _ in range(times))
        table.add_row(name, f"{wall_s:.3f} s", "", "")
    Console(highlight=False).print(table)


if __name__ == "__main__":
    main()
