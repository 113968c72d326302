"""What reads of a stream through its archive cost: ranges, a consumer group, the other clients, and memory.

    python -m benchmarks.tiered [--rows N] [--rounds N] [--quick]

A stream is archived and trimmed; the server reads it with `stream-archive-dir`. Row groups have 65,536 entries of three fields.

    range, cold     XRANGE COUNT 100 in a row group that the process does not have in its cache; the file is in the system's
    range, cached   the same from one that it has
    group           one consumer that reads all of the stream by XREADGROUP COUNT 1000, with NOACK, or acknowledging: an XACK of all
                    1000 goes before the next XREADGROUP. The same from a stream that is in memory, with a tenth of the entries
    PING            of another client, every millisecond: alone, and during each of these; then in rounds, of each in turn, during nothing,
                    a process that computes on the load's CPU and asks nothing, and reads, of the archive and of memory
    memory          the most that a process that reads the archive has ever used

Times of the clock mean little while others use the processors; CPU time of the server and of the reader is shown beside them.

The server has a CPU of its own, the load and the processes that read the archive share the other one.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from benchmarks.load import Counter, make_request
from benchmarks.servers import LOAD_CPU, Server, describe_machine, end_in_order, pin_load, start_server
from streamd.arrow.encode import XAddEncoder

__all__ = ["main"]

STREAM, LIVE = "readings", "live"
FIRST_MS = 1_767_225_600_000
FILL = 50_000
"""Entries that are added at a time."""
PER_RUN = 1_000_000
"""Entries that the archiver finds in each of its runs."""
RANGES = 100
COUNT = 1000
"""Of XREADGROUP."""
PINGER = """
import socket, sys, time
sock = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
print(flush=True)
while True:
    begun = time.perf_counter_ns()
    sock.sendall(b"PING\\r\\n")
    sock.recv(100)
    print(time.perf_counter_ns() - begun, flush=True)
    time.sleep(0.001)
"""


class Line:
    """A connection whose replies are counted, not parsed."""

    def __init__(self, server: Server) -> None:
        self.sock = server.connect()
        self.counter = Counter()

    def send(self, requests: bytes) -> None:
        self.sock.sendall(requests)

    def wait(self, replies: int) -> None:
        """Until there have been so many in all."""
        while self.counter.replies < replies:
            data = self.sock.recv(1 << 20)
            if not data:
                raise SystemExit("the server has closed the connection")
            self.counter.feed(data)
        if self.counter.errors:
            raise SystemExit(f"the server has answered with an error: {data[:300]!r}")

    def call(self, *words: bytes | str | int) -> None:
        expected = self.counter.replies + 1
        self.send(make_request(*words))
        self.wait(expected)


def entry_id(number: int) -> str:
    return f"{FIRST_MS + number // 2}-{number % 2}"


def fill(line: Line, start: int, stop: int, key: str = STREAM) -> None:
    encoder = XAddEncoder(
        key=key.encode(), id_column=0, field_names=[b"sensor_id", b"temperature", b"num"], field_columns=[1, 2, 3]
    )
    for begin in range(start, stop, FILL):
        numbers = range(begin, min(begin + FILL, stop))
        batch = pa.record_batch(
            {
                "id": [entry_id(at) for at in numbers],
                "sensor_id": [f"sensor-{at % 100:04d}" for at in numbers],
                "temperature": [f"{20 + at % 150 / 10:.1f}" for at in numbers],
                "num": [str(at) for at in numbers],
            }
        )
        expected = line.counter.replies + len(numbers)
        sender = threading.Thread(target=line.send, args=(encoder.encode(batch),))
        sender.start()
        line.wait(expected)
        sender.join()


def prepare(server: Server, line: Line, path: str, rows: int) -> None:
    """A stream of which all but ten entries are archived, and nothing of that is in memory."""
    from streamd.archive.archiver import ArchiveSettings, archive

    for begin in range(0, rows, PER_RUN):
        fill(line, begin, min(begin + PER_RUN, rows))
        settings = ArchiveSettings(hot_window_ms=0, trim_delay_ms=0)
        report = archive(path, {"host": "127.0.0.1", "port": str(server.port), "stream": STREAM}, settings=settings)
        if not report.is_success:
            raise SystemExit(f"{report}")
    fill(line, rows, rows + 10)


def reader_pids(path: str) -> list[int]:
    """The processes that read the archive."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"streamd.archive.tier_reader" in words and path.encode() in words:
                found.append(int(entry.name))
    return found


def move_readers(path: str) -> None:
    """Off the server's CPU, which they have inherited."""
    for pid in reader_pids(path):
        os.sched_setaffinity(pid, {LOAD_CPU})


def most_mb(path: str) -> float:
    """The most that any of the processes has had resident."""
    found = [0.0]
    for pid in reader_pids(path):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        found += [int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:")]
    return max(found)


@contextmanager
def pinging(server: Server) -> Iterator[list[float]]:
    """Another client; its round trips in milliseconds are in the list at the end of the block."""
    times: list[float] = []
    command = [sys.executable, "-c", PINGER, str(server.port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        reading = threading.Thread(target=lambda: times.extend(int(line) / 1e6 for line in process.stdout or ()))
        reading.start()
        try:
            yield times
        finally:
            process.terminate()
            reading.join()


@dataclass(frozen=True)
class Took:
    """What something took, in seconds.

    clock   of each request
    server  CPU time, of all requests
    reader  CPU time of the processes that read the archive
    """

    clock: list[float]
    server: float
    reader: float

    def times(self, operations: int) -> str:
        server, reader = self.server / operations * 1e6, self.reader / operations * 1e6
        return f"{server:.2f} + {reader:.2f}"


BURN = "while True: pass"

PING_S = 5.0
"""How long each way is pinged in a round."""


@contextmanager
def burning() -> Iterator[None]:
    """A process that computes, on the load's CPU."""
    with subprocess.Popen([sys.executable, "-c", BURN]) as process:
        try:
            yield
        finally:
            process.kill()


class Bench:
    """A server that reads an archive, and a client of it."""

    def __init__(self, server: Server, path: str) -> None:
        self.server = server
        self.path = path
        self.line = Line(server)

    def measure(self, requests: Iterable[Callable[[], None]]) -> Took:
        """Run requests, one after the other."""
        pids = reader_pids(self.path)
        before, clock = (self.server.cpu_s(), cpu_of(pids)), []
        for each in requests:
            begun = time.perf_counter()
            each()
            clock.append(time.perf_counter() - begun)
        return Took(clock, self.server.cpu_s() - before[0], cpu_of(pids) - before[1])

    def ranges(self, numbers: Iterable[int], key: str = STREAM) -> Took:
        """XRANGE from each of these entries on."""

        def request(number: int) -> Callable[[], None]:
            return lambda: self.line.call("XRANGE", key, entry_id(number), "+", "COUNT", 100)

        return self.measure(map(request, numbers))

    def group_reads(self, rows: int, *, acks: bool, key: str = STREAM) -> Took:
        """One consumer that reads all of a stream."""
        line = self.line
        line.call("XGROUP", "CREATE", key, "g", "0")
        options = () if acks else ("NOACK",)
        read = make_request("XREADGROUP", "GROUP", "g", "c", "COUNT", COUNT, *options, "STREAMS", key, ">")
        acknowledge = b""

        def request(at: int) -> Callable[[], None]:
            def run() -> None:
                nonlocal acknowledge
                expected = line.counter.replies + (2 if acknowledge else 1)
                line.send(acknowledge + read)
                if acks:
                    # While the server works.
                    acknowledge = make_request("XACK", key, "g", *(entry_id(each) for each in range(at, at + COUNT)))
                line.wait(expected)

            return run

        took = self.measure(map(request, range(0, rows, COUNT)))
        line.call("XGROUP", "DESTROY", key, "g")
        return took


def ping_in_rounds(bench: Bench, rows: int, rounds: int) -> Table:
    """Each way in turn, again and again: the machine does other work, which changes."""
    step, marks = rows // RANGES, range(RANGES)

    def burn() -> None:
        with burning():
            time.sleep(PING_S)

    ways: dict[str, Callable[[], object]] = {
        "nothing": lambda: time.sleep(PING_S),
        "nothing; the load's CPU is busy": burn,
        "ranges, archive, cold": lambda: bench.ranges(at * 37 % RANGES * step for at in marks),
        "ranges, archive, cached": lambda: bench.ranges(range(0, RANGES * 100, 10)),
        "ranges, memory": lambda: bench.ranges(range(0, RANGES * 100, 10), LIVE),
        "group, archive": lambda: bench.group_reads(rows // 4, acks=False),
        "group, memory": lambda: bench.group_reads(rows // 10, acks=False, key=LIVE),
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, run in ways.items():
            until = time.monotonic() + PING_S
            with pinging(bench.server) as pings:
                while time.monotonic() < until:
                    run()
            found[name].append(tail(pings))
    table = Table(f"PING in {rounds} rounds, during", "median, ms", "99.9 %, ms", "lowest and highest 99.9 %")
    for name, tails in found.items():
        middles, ends = zip(*tails, strict=True)
        spread = f"{min(ends):.2f}, {max(ends):.2f}"
        table.add_row(name, f"{statistics.median(middles):.2f}", f"{statistics.median(ends):.2f}", spread)
    return table


def cpu_of(pids: list[int]) -> float:
    return sum(time.clock_gettime((~pid << 3) | 2) for pid in pids)


def tail(times: list[float]) -> tuple[float, float]:
    """The median, and the 99.9th percentile."""
    times = sorted(times)
    return statistics.median(times), times[min(len(times) - 1, int(0.999 * len(times)))]


def text(tails: tuple[float, float]) -> str:
    return f"{tails[0]:.2f}, {tails[1]:.2f}"


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--rows", default=10_000_000, show_default=True, help="Archived entries.")
@click.option("--rounds", default=5, show_default=True, help="Of PING during each way.")
@click.option("--quick", is_flag=True, help="A tenth of the rows.")
def main(rows: int, rounds: int, quick: bool) -> None:
    end_in_order()
    pin_load()
    rows = rows // 10 if quick else rows
    table = Table("what", "figure", "CPU us: server + reader", "PING: median, 99.9 %, ms")
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/archive"
        options = ("--stream-archive-dir", path, "--stream-archive-groups", "yes")
        with start_server("streamd", *options, "--stream-archive-readers", "1") as server:
            machine = describe_machine(server, rows=rows, count=COUNT)
            bench = Bench(server, path)
            prepare(server, bench.line, path, rows)
            bench.ranges([0])
            move_readers(path)
            with pinging(server) as pings:
                time.sleep(5)
            table.add_row("nothing", "", "", text(tail(pings)))
            step = rows // RANGES
            for name, numbers in (
                ("range, cold", [(at * 37 % RANGES) * step for at in range(RANGES)]),
                ("range, cached", range(0, RANGES * 100, 10)),
            ):
                with pinging(server) as pings:
                    took = bench.ranges(numbers)
                middle = statistics.median(took.clock) * 1000
                table.add_row(name, f"{middle:.2f} ms", took.times(len(took.clock)), text(tail(pings)))
            fill(bench.line, 0, rows // 10, LIVE)
            for key, number, where in ((STREAM, rows, "archive"), (LIVE, rows // 10, "memory")):
                for acks in (False, True):
                    with pinging(server) as pings:
                        took = bench.group_reads(number, acks=acks, key=key)
                    name = f"group, {'acknowledging' if acks else 'NOACK'}, {where}"
                    rate = number / sum(took.clock)
                    table.add_row(name, f"{rate:,.0f} entries/s", took.times(number), text(tail(pings)))
            rounds_table = ping_in_rounds(bench, rows, rounds)
            table.add_row("memory", f"{most_mb(path):.0f} MB", "", "")
    console = Console(width=120)
    console.print(machine)
    console.print(table)
    console.print(rounds_table)


if __name__ == "__main__":
    main()
