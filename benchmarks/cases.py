"""A benchmark is a list of cases; this is what a case is, and how cases become rows with medians and ratios.

A case is run on every server in turn, round by round, so that a drifting machine affects all alike. Each run gives a
`Sample`: so many operations took so much time of the clock, so much CPU time of the server (user and system time of the
process), and so much of the load generator. A row has the medians, what they vary by, who was the bottleneck, and the
ratios to Redis 8.6, of throughput and of CPU; more than 1 is better than Redis in every ratio. Its case
says what a row is judged by: CPU by default, since it is stable where the clock is not.

A server that lacks a command or an option has an empty cell, which keeps the reason.

A script is a list `CASES` and, as its last line, `main = command(CASES, __doc__, NAME)` (script.py); see append.py for an
example.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import groupby

from benchmarks import load
from benchmarks.servers import (
    BASE,
    NAMES,
    Server,
    find_servers,
    start_server,
    start_servers,
)

__all__ = ["Case", "Cell", "Row", "Sample", "ensure_stream", "fill", "measure", "measuring", "remove",
           "run_cases", "send_all", "spread"]  # fmt: skip

SEED = 20_240_501
ROUNDS = 3
FREED_DEADLINE_S = 30
DEPTH = 500
"""Requests under way where nothing is measured."""
CHUNK = 100_000
"""Requests that are prepared at a time."""
QUICK = 0.1
"""The share of the work that --quick does."""
LACKING = (
    "ERR unknown command",
    "ERR unknown subcommand",
    "ERR syntax error",
    "ERR Unknown option",
    "ERR Unknown CONFIG",
)
"""How error replies start when a server lacks a command or an option."""
BUSY = 0.9
"""The share of elapsed time from which on whoever used it is the bottleneck."""
UNITS = {"cpu": "us CPU", "clock": "us", "us": "us", "bytes": "bytes", "seconds": "s", "ms": "ms", "times": "times"}
"""What a case can be judged by, and the unit in which its figure is shown; "clock" is the time of an operation, "us" another."""


# --- Samples and cases -----------------------------------------------------------------------------------------------


@dataclass
class Sample:
    """The result of one run on one server.

    figure  what the case is judged by when that is neither "cpu" nor "clock", in its unit; less is better
    """

    operations: float
    seconds: float = 0.0
    cpu_s: float = 0.0
    load_cpu_s: float = 0.0
    figure: float | None = None


def prepare_nothing(server: Server, scale: float) -> None:
    """For cases that need no preparation."""


@dataclass
class Case:
    """One row.

    name       what is measured, in the words of the table of results
    run        makes one run; `scale` shortens it. Raises load.ErrorReply when the server lacks something
    aim        the ratio to Redis that is to be reached, by what the row is judged by; None: there is none
    by         what the row is judged by: a key of UNITS
    prepare    called once for each server, before the first round
    arguments  of the servers; neighbouring cases with the same ones share the processes
    limit      what the figure of streamd itself may be at most, in the unit of `by`; None: anything
    is_alone   every run gets a freshly started server
    rounds     maximum number, for what does not vary
    names      the servers that are measured; empty: all
    """

    name: str
    run: Callable[[Server, float], Sample]
    aim: float | None = None
    by: str = "cpu"
    prepare: Callable[[Server, float], None] = prepare_nothing
    arguments: tuple[str, ...] = ()
    limit: float | None = None
    is_alone: bool = False
    rounds: int | None = None
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.by not in UNITS:
            raise ValueError(f"{self.name}: a case can be judged by {', '.join(UNITS)}, not by {self.by}")

    def figure_of(self, sample: Sample) -> float:
        """What the case is judged by; less is better. CPU and clock are in microseconds per operation."""
        if self.by == "cpu":
            return sample.cpu_s / sample.operations * 1e6
        if self.by == "clock":
            return sample.seconds / sample.operations * 1e6
        if sample.figure is None:
            raise ValueError(f"{self.name}: a run has returned no figure")
        return sample.figure


# --- Rows ------------------------------------------------------------------------------------------------------------


def spread(values: Sequence[float]) -> float:
    """Half the distance between the extremes, relative to the median."""
    middle = statistics.median(values)
    return (max(values) - min(values)) / 2 / middle if middle else 0.0


@dataclass
class Cell:
    """The result of one server: medians over the rounds.

    figure      what the row is judged by
    varies      the spread of the figure
    per_s       operations per second; 0 where time was not measured
    cpu_us      server CPU per operation; 0 where it was not measured
    server_share, load_share   CPU over time of the clock, of the server and of the load generator
    """

    figure: float
    varies: float = 0.0
    per_s: float = 0.0
    cpu_us: float = 0.0
    server_share: float = 0.0
    load_share: float = 0.0

    @property
    def bottleneck(self) -> str:
        """The bottleneck: `server`, `load`, `both`, or `neither`; empty where time was not measured."""
        if not self.per_s:
            return ""
        if self.server_share >= BUSY:
            return "both" if self.load_share >= BUSY else "server"
        return "load" if self.load_share >= BUSY else "neither"


@dataclass
class Row:
    """A case with the results of its servers.

    lacking  why a server has no cell, by its name
    """

    script: str
    name: str
    by: str = "cpu"
    aim: float | None = None
    limit: float | None = None
    cells: dict[str, Cell] = field(default_factory=dict)
    lacking: dict[str, str] = field(default_factory=dict)

    def ratio(self, name: str = "streamd", base: str = BASE, of: str = "figure") -> float | None:
        """How much better a server is than the base in what the row is judged by, or in "cpu_us" or "per_s"."""
        ours, theirs = self.cells.get(name), self.cells.get(base)
        if ours is None or theirs is None:
            return None
        mine, other = getattr(ours, of), getattr(theirs, of)
        if of == "per_s":
            mine, other = other, mine
        return other / mine if mine > 0 and other > 0 else None

    @property
    def is_short(self) -> bool:
        """Whether it falls short of its aim, or exceeds its limit."""
        ratio = self.ratio()
        if self.aim is not None and ratio is not None and ratio < self.aim:
            return True
        return self.limit is not None and "streamd" in self.cells and self.cells["streamd"].figure > self.limit

    def to_dict(self) -> dict[str, object]:
        ratios = {name: self.ratio(name) for name in self.cells}
        return {**asdict(self), "ratios": ratios, "is_short": self.is_short}


def cell_of(case: Case, samples: Sequence[Sample]) -> Cell:
    """The medians of the samples of one server."""
    timed = [s for s in samples if s.seconds > 0]

    def median(values: Iterable[float]) -> float:
        return statistics.median(list(values) or [0.0])

    figures = [case.figure_of(s) for s in samples]
    return Cell(
        figure=statistics.median(figures),
        varies=spread(figures),
        per_s=median(s.operations / s.seconds for s in timed),
        cpu_us=median(s.cpu_s / s.operations * 1e6 for s in samples),
        server_share=median(s.cpu_s / s.seconds for s in timed),
        load_share=median(s.load_cpu_s / s.seconds for s in timed),
    )


# --- Running ---------------------------------------------------------------------------------------------------------


def run_cases(
    cases: Sequence[Case],
    names: Sequence[str] = NAMES,
    *,
    script: str = "",
    rounds: int = ROUNDS,
    scale: float = 1.0,
    progress: Callable[[str], None] = lambda line: None,
) -> list[Row]:
    """Run every case on every server, rounds in turns; a row for each case. `progress` gets a line for each finished row."""
    rows = []
    there, _ = find_servers(names)
    for key, group in groupby(cases, key=lambda case: (case.arguments, case.is_alone)):
        arguments, is_alone = key
        if is_alone:
            for case in group:
                rows.append(run_case(case, there, partial(start_with, arguments), script, rounds, scale))
                progress(summary(rows[-1]))
        else:
            with start_servers(there, *arguments) as servers:
                running = {server.name: server for server in servers}
                for case in group:
                    rows.append(run_case(case, there, partial(as_it_is, running), script, rounds, scale))
                    progress(summary(rows[-1]))
    return rows


def start_with(arguments: Sequence[str], name: str) -> AbstractContextManager[Server]:
    """A server of its own for one run."""
    return start_server(name, *arguments)


@contextmanager
def as_it_is(running: Mapping[str, Server], name: str) -> Iterator[Server]:
    """A server that is already running."""
    yield running[name]


Open = Callable[[str], AbstractContextManager[Server]]
"""Returns the server with a name, for one run."""


def run_case(case: Case, names: Sequence[str], open_server: Open, script: str, rounds: int, scale: float) -> Row:
    """All rounds of one case."""
    row = Row(script, case.name, case.by, case.aim, case.limit)
    samples: dict[str, list[Sample]] = {name: [] for name in names if not case.names or name in case.names}
    for at in range(min(rounds, case.rounds or rounds)):
        for name in samples:
            if name in row.lacking:
                continue
            try:
                with open_server(name) as server:
                    if case.is_alone or not at:
                        case.prepare(server, scale)
                    samples[name].append(case.run(server, scale))
            except load.ErrorReply as error:
                if not str(error).startswith(LACKING):
                    raise
                row.lacking[name] = str(error)
    row.cells = {name: cell_of(case, each) for name, each in samples.items() if each and name not in row.lacking}
    return row


def summary(row: Row) -> str:
    """A row in one line, for people who wait for the table."""
    cells = ", ".join(f"{name} {cell.figure:,.2f}" for name, cell in row.cells.items())
    ratio = row.ratio()
    judged = "" if ratio is None else f"; ratio {ratio:.2f}" + ("" if row.aim is None else f", aim {row.aim}")
    return f"{row.name}: {UNITS[row.by]}: {cells}{judged}{'  SHORT' if row.is_short else ''}"


# --- Parts of runs ---------------------------------------------------------------------------------------------------


@contextmanager
def measuring(server: Server, operations: float) -> Iterator[Sample]:
    """A sample whose time and server CPU are those of the block; the load's CPU is that of this thread."""
    sample = Sample(operations)
    own, cpu, began = time.thread_time(), server.cpu_s(), time.perf_counter()
    yield sample
    sample.seconds = time.perf_counter() - began
    sample.cpu_s = server.cpu_s() - cpu
    sample.load_cpu_s = time.thread_time() - own


def measure(server: Server, requests: load.Requests, total: int = 0, *, connections: int = 50, depth: int = 1,
            operations: float | None = None) -> Sample:  # fmt: skip
    """A closed loop over prepared requests (load.run_loop); `operations` when they are not the requests."""
    total = total or len(requests)
    with (
        load.open_connections(server.port, connections) as socks,
        measuring(server, total if operations is None else operations) as sample,
    ):
        load.run_loop(socks, requests, total, depth=depth)
    return sample


def send_all(server: Server, requests: Iterable[bytes], *, depth: int = DEPTH) -> None:
    """Send requests in their order over one connection, and await the replies; an error reply raises ErrorReply."""
    prepared = load.Requests(requests)
    with load.open_connections(server.port) as socks:
        load.run_loop(socks, prepared, depth=min(depth, max(1, len(prepared))))


def remove(server: Server, keys: Iterable[str]) -> None:
    """Delete keys, and wait until what they held has been freed: some servers do that later, on a thread."""
    send_all(server, [load.make_request("DEL", *keys)])
    deadline = time.monotonic() + FREED_DEADLINE_S
    while server.info("memory").get("lazyfree_pending_objects", "0") != "0":
        if time.monotonic() > deadline:
            raise TimeoutError(f"{server.name} has not freed the deleted keys")
        time.sleep(0.005)


def fill(server: Server, key: str, number: int, *, first: int = 1, step: int = 1) -> None:
    """Append `number` entries of two short fields, like those of a sensor; their IDs start at `first`-0, `step` apart."""
    # Made from prepared pieces, because there are millions.
    some = [load.make_request("XADD", key, "*", "a", value, "b", "xyz") for value in range(1000)]
    pieces = [each.partition(b"$1\r\n*\r\n")[::2] for each in some]

    def requests(places: range) -> Iterator[bytes]:
        for at in places:
            head, tail = pieces[(first + at) % 1000]
            entry_id = b"%d-0" % (first + step * at)
            yield b"%b$%d\r\n%b\r\n%b" % (head, len(entry_id), entry_id, tail)

    with load.open_connections(server.port) as socks:
        for start in range(0, number, CHUNK):
            load.run_loop(socks, load.Requests(requests(range(start, min(start + CHUNK, number)))), depth=DEPTH)


def ensure_stream(server: Server, key: str, number: int) -> None:
    """The stream has `number` entries as `fill` makes them; nothing is done when it has them already."""
    if server.send("XLEN", key) != b":%d\r\n" % number:
        remove(server, [key])
        fill(server, key, number)
