"""Snapshots and the append-only file: how long they take, how large they are, and how long clients wait meanwhile.

    python -m benchmarks.persistence [--rounds N] [--only WORD] [--quick] [--servers NAMES]

One stream of five million entries of two short fields. streamd and Redis load the same file, which Redis has made; a
server that cannot read that (its format is newer) loads one of its own. Loading time is taken from the server's
log, saving time is measured by the client that waits for it. A file is in the page cache when it is
loaded, and saving ends with an fsync, as it always does. The stalls are the longest PING of a client that sends one after
the other from before a child is requested: while it is forked, and while it writes. The append-only file has a million
XADDs. The cost of appending while the file is written is measured by append.py.
"""

from __future__ import annotations

import atexit
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path

from benchmarks.cases import Case, Sample, fill, measuring, send_all
from benchmarks.load import ErrorReply, Requests, make_request, open_connections, run_loop
from benchmarks.script import command
from benchmarks.servers import BASE, Server, find_servers, start_server

ENTRIES = 5_000_000
LOGGED = 1_000_000
"""XADDs in the append-only file."""
FIRST = 1_700_000_000_000
STEP = 3
"""Milliseconds between two entries."""
LOADED = re.compile(r"DB loaded from disk: ([0-9.]+) seconds")
REPLAYED = re.compile(r"DB loaded from append only file: ([0-9.]+) seconds")
STALL_S = 1.5
"""How long clients are watched after a child was requested."""


# --- The files -----------------------------------------------------------------------------------------------------------


@cache
def workplace() -> Path:
    """The folder for all files, removed when the process ends."""
    folder = tempfile.mkdtemp(prefix="streamd-persistence-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def start(name: str, folder: Path, *more: str) -> AbstractContextManager[Server]:
    """A server over the folder, with a log of its own there."""
    log = str(folder / "log")
    return start_server(name, "--dir", str(folder), "--logfile", log, "--enable-debug-command", "yes", *more)


def maker_for(name: str) -> str:
    """The server that makes the files that another one loads."""
    return BASE if name == "streamd" and find_servers([BASE])[0] else name


@cache
def snapshot(maker: str, entries: int) -> Path:
    """A snapshot of one stream."""
    folder = workplace() / f"{maker}-snapshot"
    folder.mkdir()
    with start(maker, folder) as server:
        fill(server, "big", entries, first=FIRST, step=STEP)
        send_all(server, [make_request("SAVE")])
    return folder / "dump.rdb"


@cache
def log_of_commands(maker: str, number: int) -> Path:
    """The folder of an append-only file of XADDs."""
    folder = workplace() / f"{maker}-commands"
    folder.mkdir()
    arguments = ("--appendonly", "yes", "--auto-aof-rewrite-percentage", "0")
    with start(maker, folder, *arguments) as server:
        fill(server, "big", number, first=FIRST, step=STEP)
        server.send("SHUTDOWN", "NOSAVE")
    (folder / "log").unlink()
    return folder


def own_folder(name: str, use: str) -> Path:
    """An empty folder for a run."""
    folder = workplace() / f"{name}-{use}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def with_snapshot(name: str, scale: float, use: str) -> Path:
    folder = own_folder(name, use)
    shutil.copy(snapshot(maker_for(name), int(ENTRIES * scale)), folder / "dump.rdb")
    return folder


def said_seconds(folder: Path, pattern: re.Pattern[str]) -> float:
    """The loading time in a server's log."""
    found = pattern.search((folder / "log").read_text(errors="replace"))
    if found is None:
        raise RuntimeError(f"the server in {folder.name} has not loaded its file")
    return float(found[1])


# --- The cases -----------------------------------------------------------------------------------------------------------


def load(server: Server, scale: float) -> Sample:
    folder = with_snapshot(server.name, scale, "loading")
    with start(server.name, folder) as loaded:
        if loaded.send("DBSIZE") != b":1\r\n":
            raise RuntimeError(f"{server.name} has not loaded the snapshot")
    return Sample(int(ENTRIES * scale), figure=said_seconds(folder, LOADED))


def replay(server: Server, scale: float) -> Sample:
    number = int(LOGGED * scale)
    folder = workplace() / f"{server.name}-replaying"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(log_of_commands(maker_for(server.name), number), folder)
    with start(server.name, folder, "--appendonly", "yes") as loaded:
        if loaded.send("XLEN", "big") != b":%d\r\n" % number:
            raise RuntimeError(f"{server.name} has not run all commands of the file")
    return Sample(number, figure=said_seconds(folder, REPLAYED))


def save(server: Server, scale: float) -> Sample:
    folder = with_snapshot(server.name, scale, "saving")
    with start(server.name, folder) as saving:
        with measuring(saving, int(ENTRIES * scale)) as sample:
            send_all(saving, [make_request("SAVE")])
        sample.figure = sample.seconds
    return sample


def snapshot_bytes(server: Server, scale: float) -> Sample:
    made = workplace() / f"{server.name}-saving" / "dump.rdb"
    if not made.exists():
        save(server, scale)
    size = made.stat().st_size
    return Sample(int(ENTRIES * scale), figure=size)


def stall(request: str) -> Callable[[Server, float], Sample]:
    """The longest time that a PING took while a child was forked and wrote."""

    def run(server: Server, scale: float) -> Sample:
        folder = with_snapshot(server.name, scale, "stalling")
        with start(server.name, folder) as watched, open_connections(watched.port, 2) as (asker, *socks):
            ping = Requests([make_request("PING")])
            run_loop(socks, ping, 1)
            # The reply is not awaited: when it comes, the server has forked already, and that is the stall.
            asker.sendall(make_request(request))
            longest, end = 0.0, time.monotonic() + STALL_S
            while time.monotonic() < end:
                longest = max(longest, run_loop(socks, ping, 1).seconds)
            said = asker.recv(1 << 16)
        if not said.startswith(b"+"):
            raise ErrorReply(said.decode("latin-1").strip().removeprefix("-"))
        return Sample(1, figure=longest * 1000)

    return run


CASES = [
    Case("load 5M entries", load, 1.5, "seconds", limit=0.3),
    Case("save 5M entries", save, 1.5, "seconds"),
    Case("replay 1M XADDs", replay, 1.2, "seconds"),
    Case("size of the snapshot", snapshot_bytes, None, "bytes", rounds=1),
    Case("longest PING during BGSAVE", stall("BGSAVE"), None, "ms", rounds=2),
    Case("longest PING during BGREWRITEAOF", stall("BGREWRITEAOF"), None, "ms", rounds=2),
]

main = command(CASES, __doc__, "persistence")

if __name__ == "__main__":
    main()
