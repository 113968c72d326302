"""Snapshots and the append-only file of streamd beside redis-server: sizes, times, and how long clients wait meanwhile.

    python -m benchmarks.persistence [--rounds N] [--entries N] [--only WORD]

One stream of five million entries of two short fields is made once, in Redis; both servers then load the same file and
save it, in turns, pinned to the same CPU. What a server does is timed by its own log (`DB loaded from disk: N seconds`)
for loading, and by the client that waits for it for saving. The file is in the page cache when it is loaded, and saving
ends with an fsync, as it always does. The stalls are the longest PING of a client that sends one after the other while
a child is forked and writes. The append-only file of a million XADDs is made once, by Redis; what XADD costs while it is
written is measured with redis-benchmark. More than 1 is better than Redis in the ratios.
"""

from __future__ import annotations

import re
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from benchmarks.support import (
    LOAD_CPU,
    Server,
    describe_machine,
    find_redis,
    make_request,
    pin,
    spread,
    start_server,
)  # fmt: skip

WIDTH = 116
ENTRIES = 5_000_000
SERVERS = ("streamd", "redis")
LOADED = re.compile(r"DB loaded from disk: ([0-9.]+) seconds")
REPLAYED = re.compile(r"DB loaded from append only file: ([0-9.]+) seconds")
LOGGED = 1_000_000
"""XADDs in the append-only file."""
STALL_S = 2.0
"""For how long clients are watched after a child has been asked for."""
SAVE_DEADLINE_S = 300


@dataclass
class Case:
    """One row of the table: `run(name, folder)` gives a figure of a server over a folder that has the snapshot."""

    name: str
    unit: str
    run: Callable[[str, Path], float]


def fill(server: Server, key: str, number: int) -> None:
    """Entries of two short fields, a few milliseconds apart, as they come from a sensor."""
    first = 1_700_000_000_000
    with server.connect() as sock:
        for start in range(0, number, 2000):
            ids = [b"%d-0" % (first + 3 * i) for i in range(start, min(start + 2000, number))]
            sock.sendall(
                b"".join(
                    make_request("XADD", key, each, "a", at % 1000, "b", "xyz") for at, each in enumerate(ids, start)
                )
            )
            expected = sum(len(each) + len(b"$%d\r\n\r\n" % len(each)) for each in ids)
            while expected > 0:
                expected -= len(sock.recv(1 << 16))


def start(name: str, folder: Path, *more: str) -> AbstractContextManager[Server]:
    """A server over the folder, with a log of its own there."""
    log = str(folder / "log")
    return start_server(name, "--dir", str(folder), "--logfile", log, "--enable-debug-command", "yes", *more)


def wait_for(server: Server, *request: str) -> float:
    """Send a request that takes long; the seconds until its reply."""
    with server.connect() as sock:
        sock.settimeout(SAVE_DEADLINE_S)
        began = time.monotonic()
        sock.sendall(make_request(*request))
        reply = sock.recv(1 << 16)
        seconds = time.monotonic() - began
    if reply != b"+OK\r\n":
        raise RuntimeError(f"{server.name} answered {' '.join(request)} with {reply!r}")
    return seconds


# --- The cases -----------------------------------------------------------------------------------------------------------


def load_seconds(name: str, folder: Path) -> float:
    """How long a server says that it took to load the snapshot."""
    (folder / "log").unlink(missing_ok=True)
    with start(name, folder) as server:
        deadline = time.monotonic() + SAVE_DEADLINE_S
        while server.send("PING") != b"+PONG\r\n" and time.monotonic() < deadline:
            time.sleep(0.02)
        assert server.send("DBSIZE") == b":1\r\n"
    found = LOADED.search((folder / "log").read_text(errors="replace"))
    if found is None:
        raise RuntimeError(f"{name} has not loaded the snapshot")
    return float(found[1])


def save_seconds(name: str, folder: Path) -> float:
    """How long SAVE takes. The file is not that of the other cases."""
    own = folder / "saving"
    own.mkdir(exist_ok=True)
    shutil.copy(folder / "dump.rdb", own / "dump.rdb")
    with start(name, own) as server:
        assert server.send("DBSIZE") == b":1\r\n"
        return statistics.median(wait_for(server, "SAVE") for _ in range(3))


def saved_bytes(name: str, folder: Path) -> float:
    """Bytes of the snapshot that a server makes of what it has loaded."""
    save_seconds(name, folder)
    return float((folder / "saving" / "dump.rdb").stat().st_size)


def stall_seconds(command: str, *arguments: str) -> Callable[[str, Path], float]:
    """The longest time that a PING took while a child was forked and wrote."""

    def run(name: str, folder: Path) -> float:
        own = folder / "stalling"
        shutil.rmtree(own, ignore_errors=True)
        own.mkdir()
        shutil.copy(folder / "dump.rdb", own / "dump.rdb")
        with start(name, own, *arguments) as server, server.connect() as sock, server.connect() as other:
            ping = make_request("PING")
            other.sendall(make_request(command))
            longest = 0.0
            end = time.monotonic() + STALL_S
            while (began := time.monotonic()) < end:
                sock.sendall(ping)
                sock.recv(64)
                longest = max(longest, time.monotonic() - began)
        return longest

    return run


def replay_seconds(name: str, folder: Path) -> float:
    """How long a server says that it took to run the commands of the append-only file again."""
    logged = folder / "logged"
    if not logged.exists():
        logged.mkdir()
        with start("redis", logged, "--appendonly", "yes") as server:
            fill(server, "big", LOGGED)
            server.send("SHUTDOWN", "NOSAVE")
    own = folder / "replaying"
    shutil.rmtree(own, ignore_errors=True)
    shutil.copytree(logged, own)
    (own / "log").unlink(missing_ok=True)
    with start(name, own, "--appendonly", "yes") as server:
        while server.send("PING") != b"+PONG\r\n":
            time.sleep(0.02)
    found = REPLAYED.search((own / "log").read_text(errors="replace"))
    if found is None:
        raise RuntimeError(f"{name} has not loaded the append-only file")
    return float(found[1])


def logged_xadd(policy: str, pipeline: int, number: int, *, by_cpu: bool) -> Callable[[str, Path], float]:
    """Seconds per million XADDs, of the clock or of the server's CPU, with the append-only file on."""

    def run(name: str, folder: Path) -> float:
        redis = find_redis()
        assert redis is not None
        with tempfile.TemporaryDirectory(dir=folder) as own:
            arguments = ["--appendonly", "yes", "--appendfsync", policy, "--auto-aof-rewrite-percentage", "0"]
            with start(name, Path(own), *arguments) as server:
                cpu, began = server.cpu_s(), time.monotonic()
                subprocess.run(
                    [*pin(LOAD_CPU), str(redis / "redis-benchmark"), "-p", str(server.port), "-c", "50", "-q",
                     "-P", str(pipeline), "-n", str(number), "XADD", "s", "*", "id", "1234", "temperature", "19.8"],
                    check=True, stdout=subprocess.DEVNULL,
                )  # fmt: skip
                seconds = server.cpu_s() - cpu if by_cpu else time.monotonic() - began
        return seconds / number * 1e6

    return run


APPENDS = [
    Case(f"XADD, {policy}, P={pipeline}, {what}", "us", logged_xadd(policy, pipeline, number, by_cpu=what == "CPU"))
    for policy, pipeline, number in (("everysec", 16, 500_000), ("always", 1, 50_000), ("always", 16, 300_000))
    for what in ("clock", "CPU")
]


def show(value: float, unit: str) -> str:
    """A figure with its unit: seconds, or milliseconds of them; bytes; microseconds."""
    return {"s": f"{value:.3f} s", "ms": f"{value * 1000:.1f} ms", "B": f"{value:,.0f} B", "us": f"{value:.2f} us"}[
        unit
    ]


CASES = [
    Case("load, by the server's log", "s", load_seconds),
    Case("SAVE, fsync included", "s", save_seconds),
    Case("size of the snapshot", "B", saved_bytes),
    Case("longest PING during BGSAVE", "ms", stall_seconds("BGSAVE")),
    Case("longest PING during BGREWRITEAOF", "ms", stall_seconds("BGREWRITEAOF")),
    Case("append-only file of 1M XADDs, loading", "s", replay_seconds),
    *APPENDS,
]


@click.command()
@click.option("--rounds", default=5, show_default=True, help="Rounds per server and case.")
@click.option("--entries", default=ENTRIES, show_default=True, help="Entries of the stream.")
@click.option("--only", default="", help="Only the cases whose name contains this.")
def main(rounds: int, entries: int, only: str) -> None:
    """Print the table of streamd beside redis-server."""
    console = Console(width=WIDTH)
    table = Table(title=f"files of {entries:,} entries, streamd beside Redis: more than 1 is better")
    for heading in ("case", "streamd", "Redis", "ratio", "spread"):
        table.add_column(heading, justify="left" if heading == "case" else "right", no_wrap=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with start("streamd", folder) as ours, start("redis", folder) as theirs:
            console.print(describe_machine(ours, theirs, rounds=rounds, entries=entries))
            fill(theirs, "big", entries)
            wait_for(theirs, "SAVE")
        for case in (case for case in CASES if only in case.name):
            results: dict[str, list[float]] = {server: [] for server in SERVERS}
            for _ in range(1 if case.unit == "B" else rounds):
                for server in SERVERS:
                    results[server].append(case.run(server, folder))
            mine, redis = (statistics.median(results[server]) for server in SERVERS)
            shown = [show(value, case.unit) for value in (mine, redis)]
            varies = max(spread(values) for values in results.values())
            table.add_row(case.name, *shown, f"{redis / mine:.2f}", f"{varies:.0%}")
            console.print(f"  {case.name}: done")
    console.print(table)


if __name__ == "__main__":
    main()
