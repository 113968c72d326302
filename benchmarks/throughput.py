"""Throughput and memory of streamd beside redis-server, in one run on one machine.

    python -m benchmarks.throughput [--rounds N] [--only WORD] [--quick]

Both servers are pinned to the same CPU and the load to another; rounds alternate between them, so that a machine that
drifts drifts for both. Shown are the medians, what they vary by, the ratio of throughputs, and the ratio of server CPU
time per operation (user and system time of the process), which holds still where the throughput is bounded by the load
generator. More than 1 is better than Redis in both; for memory, less than 1 is.
"""

from __future__ import annotations

import random
import socket
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass

import click
from rich.console import Console
from rich.table import Table

from benchmarks.support import LOAD_CPU, Server, describe_machine, find_redis, make_request, pin, spread, start_server

WIDTH = 116
"""Columns of the table, whatever the terminal: the table goes into files."""
SEED = 20_240_501
ENTRIES = 1_000_000
MARKER = b"$10\r\nthe-marker\r\n"


@dataclass
class Round:
    """What one run on one server gave."""

    per_s: float
    cpu_us: float


@dataclass
class Case:
    """One row of the table: `run(server, scale)` gives a Round; `scale` shortens it."""

    name: str
    run: Callable[[Server, float], Round]


# --- Loads -----------------------------------------------------------------------------------------------------------


def with_redis_benchmark(
    *request: str, pipeline: int, count: int, keyspace: int = 0
) -> Callable[[Server, float], Round]:
    """Fifty connections of redis-benchmark sending one request over and over."""

    def run(server: Server, scale: float) -> Round:
        folder = find_redis()
        assert folder is not None
        number = int(count * scale)
        random_keys = ["-r", str(keyspace)] if keyspace else []
        cpu = server.cpu_s()
        began = time.monotonic()
        subprocess.run(
            [*pin(LOAD_CPU), str(folder / "redis-benchmark"), "-p", str(server.port), "-c", "50", "-q",
             "-P", str(pipeline), "-n", str(number), *random_keys, *request],
            check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        return Round(number / (time.monotonic() - began), (server.cpu_s() - cpu) / number * 1e6)

    return run


def with_prepared_requests(
    make: Callable[[random.Random], bytes], *, per_batch: int, batches: int
) -> Callable[..., Round]:
    """One connection sending prepared batches, each ended by an ECHO whose reply marks its end."""

    def run(server: Server, scale: float) -> Round:
        chance = random.Random(SEED)
        echo = make_request("ECHO", "the-marker")
        prepared = [b"".join(make(chance) for _ in range(per_batch)) + echo for _ in range(int(batches * scale) or 1)]
        with server.connect() as sock:
            cpu = server.cpu_s()
            began = time.monotonic()
            for batch in prepared:
                sock.sendall(batch)
                read_to_marker(sock)
            seconds = time.monotonic() - began
        number = per_batch * len(prepared)
        return Round(number / seconds, (server.cpu_s() - cpu) / number * 1e6)

    return run


def read_to_marker(sock: object) -> None:
    """Read until the reply of the marking ECHO has come."""
    buffer = bytearray(1 << 20)
    view = memoryview(buffer)
    tail = b""
    while True:
        size = sock.recv_into(view)  # type: ignore[attr-defined]
        if not size:
            raise ConnectionError("the server closed the connection")
        tail = (tail + bytes(view[max(0, size - len(MARKER)) : size]))[-len(MARKER) :]
        if tail == MARKER:
            return


def fill(server: Server, key: str, number: int) -> None:
    """Entries 1-0 .. number-0 of two short fields."""
    with server.connect() as sock:
        for start in range(1, number + 1, 1000):
            ids = range(start, min(start + 1000, number + 1))
            sock.sendall(b"".join(make_request("XADD", key, f"{i}-0", "a", i % 1000, "b", "xyz") for i in ids))
            expected = sum(len(f"${len(f'{i}-0')}\r\n{i}-0\r\n") for i in ids)
            while expected > 0:
                expected -= len(sock.recv(1 << 16))


def run_group_loop(server: Server, scale: float) -> Round:
    """XREADGROUP COUNT 100 and XACK of what it gave, over entries whose IDs are known; per entry."""
    number = int(300_000 * scale) // 100 * 100
    server.send("DEL", "work")
    fill(server, "work", number)
    server.send("XGROUP", "CREATE", "work", "g", "0")
    read = make_request("XREADGROUP", "GROUP", "g", "c", "COUNT", "100", "STREAMS", "work", ">")
    rounds = [
        read + make_request("XACK", "work", "g", *(f"{i}-0" for i in range(start, start + 100)))
        for start in range(1, number + 1, 100)
    ]
    echo = make_request("ECHO", "the-marker")
    with server.connect() as sock:
        cpu = server.cpu_s()
        began = time.monotonic()
        for at in range(0, len(rounds), 10):
            sock.sendall(b"".join(rounds[at : at + 10]) + echo)
            read_to_marker(sock)
        seconds = time.monotonic() - began
    return Round(number / seconds, (server.cpu_s() - cpu) / number * 1e6)


def range_at_random(count: int) -> Callable[[random.Random], bytes]:
    return lambda chance: make_request("XRANGE", "big", f"{chance.randrange(1, ENTRIES)}-0", "+", "COUNT", count)


def read_at_random(chance: random.Random) -> bytes:
    return make_request("XREAD", "COUNT", 100, "STREAMS", "big", f"{chance.randrange(1, ENTRIES)}-0")


XADD = ("XADD", "mystream", "*", "sensor-id", "1234", "temperature", "19.8")

CASES = [
    Case("XADD, pipeline 1", with_redis_benchmark(*XADD, pipeline=1, count=200_000)),
    Case("XADD, pipeline 16", with_redis_benchmark(*XADD, pipeline=16, count=1_500_000)),
    Case("XADD, pipeline 100", with_redis_benchmark(*XADD, pipeline=100, count=2_500_000)),
    Case(
        "XADD, 1,000 streams, pipeline 16",
        with_redis_benchmark("XADD", "s:__rand_int__", *XADD[2:], pipeline=16, count=1_500_000, keyspace=1000),
    ),
    Case("XRANGE COUNT 10", with_prepared_requests(range_at_random(10), per_batch=100, batches=1500)),
    Case("XRANGE COUNT 100", with_prepared_requests(range_at_random(100), per_batch=50, batches=600)),
    Case("XRANGE COUNT 1000", with_prepared_requests(range_at_random(1000), per_batch=10, batches=400)),
    Case("XREAD COUNT 100", with_prepared_requests(read_at_random, per_batch=50, batches=600)),
    Case("XREADGROUP COUNT 100 + XACK, per entry", run_group_loop),
]


# --- Memory ------------------------------------------------------------------------------------------------------------


def bytes_per_entry(name: str) -> float:
    """Growth of the resident set by a million entries of two short fields, in a server of its own."""
    with start_server(name) as server:
        fill(server, "warm-up", 1000)
        before = server.rss_bytes()
        fill(server, "big", ENTRIES)
        return (server.rss_bytes() - before) / ENTRIES


def bytes_per_connection(name: str, number: int = 2000) -> float:
    """Growth of the resident set by idle connections that have sent one PING each."""
    with start_server(name, "--maxclients", "10000") as server:

        def open_some(count: int) -> list[socket.socket]:
            socks = []
            for _ in range(count):
                sock = server.connect()
                sock.sendall(make_request("PING"))
                sock.recv(64)
                socks.append(sock)
            return socks

        kept = open_some(100)
        before = server.rss_bytes()
        kept += open_some(number)
        return (server.rss_bytes() - before) / number


# --- The table ---------------------------------------------------------------------------------------------------------


@click.command()
@click.option("--rounds", default=5, show_default=True, help="Rounds per server and case.")
@click.option("--only", default="", help="Only the cases whose name contains this.")
@click.option("--quick", is_flag=True, help="A third of the work and three rounds.")
def main(rounds: int, only: str, quick: bool) -> None:
    """Print the table of streamd beside redis-server."""
    scale = 1 / 3 if quick else 1.0
    rounds = 3 if quick else rounds
    console = Console(width=WIDTH)
    table = Table(title="streamd beside Redis: more than 1 is better (memory: less than 1)")
    for heading in ("case", "streamd", "Redis", "ratio", "us CPU", "Redis", "ratio", "spread"):
        table.add_column(heading, justify="left" if heading == "case" else "right", no_wrap=True)
    with start_server("streamd") as ours, start_server("redis") as theirs:
        console.print(describe_machine(ours, theirs, rounds=rounds, scale=round(scale, 2), seed=SEED, connections=50))
        cases = [case for case in CASES if only in case.name]
        if any("XRANGE" in case.name or case.name.startswith("XREAD ") for case in cases):
            fill(ours, "big", ENTRIES)
            fill(theirs, "big", ENTRIES)
        for case in cases:
            results: dict[str, list[Round]] = {"streamd": [], "redis": []}
            for _ in range(rounds):
                for server in (ours, theirs):
                    server.send("DEL", "mystream")
                    results[server.name].append(case.run(server, scale))
            table.add_row(case.name, *figures(results["streamd"], results["redis"]))
            console.print(f"  {case.name}: done")
    for title, measure in (
        ("bytes per entry, 1M entries", bytes_per_entry),
        ("bytes per idle connection", bytes_per_connection),
    ):
        if only in title:
            mine, redis = measure("streamd"), measure("redis")
            table.add_row(title, f"{mine:,.1f}", f"{redis:,.1f}", f"{mine / redis:.2f}", "", "", "", "")
    console.print(table)


def figures(ours: list[Round], theirs: list[Round]) -> list[str]:
    """The cells of one row."""
    mine, redis = (statistics.median(r.per_s for r in rounds) for rounds in (ours, theirs))
    my_cpu, redis_cpu = (statistics.median(r.cpu_us for r in rounds) for rounds in (ours, theirs))
    varies = max(spread([r.per_s for r in rounds]) for rounds in (ours, theirs))
    cpu_ratio = f"{redis_cpu / my_cpu:.2f}" if my_cpu else "-"
    return [
        f"{mine:,.0f}/s", f"{redis:,.0f}/s", f"{mine / redis:.2f}",
        f"{my_cpu:.2f}", f"{redis_cpu:.2f}", cpu_ratio, f"{varies:.0%}",
    ]  # fmt: skip


if __name__ == "__main__":
    main()
