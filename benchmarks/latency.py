"""How long messages take from a producer to a consumer of a group, streamd beside Redis.

    python -m benchmarks.latency [--rate N] [--seconds N] [--pending N] [--io-threads N] [--quick]
    python -m benchmarks.latency --url redis://user:pass@host:port/db

Producers put the time into each message; consumers read through a group with COUNT 10000 and BLOCK, and acknowledge. The
delay is shown as `Processed between 0 and 1 ms -> 74.11%`, a line per millisecond, with percentiles, as text and as a
picture (benchmarks/results/latency.svg): in a new stream, and in one whose group has millions of entries unacknowledged.

Messages are due at fixed times, whatever the server does, and contain the time when they were due: a server that stops
for a second is charged for all messages due in that second. The load is one compiled thread (latency.c) that does not
sleep; its own lateness is shown too, and limits the precision of the figures. A consumer has a message when the whole
reply is there; XACK of all that came and the next XREADGROUP are sent together. The first WARM_UP_S of each round are
not counted.

Without --url, servers are started here, pinned to one CPU and the load to another, and measured in turn. With --url any
running server is measured, over TCP, TLS (`rediss://`, through a relay in Python whose cost is in the figures) or a unix
socket (`unix://`): in keys of its own, which are deleted at the end.

Percentiles mean nothing while others use the processors. With the permission for it, `chrt -f 10 python -m
benchmarks.latency --sleep` gives servers and load priority over everything else.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import selectors
import socket
import ssl
import statistics
import threading
import time
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import click
import redis
from rich.console import Console
from rich.table import Table

from benchmarks.cases import Case, Sample
from benchmarks.delays import NS_PER_MS, Delays, draw, histogram_lines, show_ms
from benchmarks.load import compile_library, make_request
from benchmarks.servers import (
    BASE,
    NAMES,
    Server,
    describe_machine,
    end_in_order,
    find_servers,
    pin_load,
    start_server,
)

__all__ = ["CASES", "ROWS", "Load", "Round", "Target", "main", "measure"]

SOURCE = Path(__file__).with_name("latency.c")
RESULTS = Path(__file__).parent / "results"
WIDTH = 140
GROUP = "workers"
BLOCK_MS = 1000
TIME_DIGITS = 19
WARM_UP_S = 0.5
GRACE_S = 30
"""How long to wait for more after the last message was due."""
FILL_AT_ONCE = 1000
MARKER = "the-end-of-a-batch"
NS_PER_S = 1_000_000_000
SHORTEST_S = 2.0
"""Minimum length of a round in seconds."""
LATE_NS = 100_000
"""A load that was later than this at its own 99.9th percentile is reported."""


@dataclass(frozen=True)
class Load:
    """What is done to each server.

    rate       messages per second, of all producers
    seconds    of one round, those that are not counted included
    count      COUNT of XREADGROUP
    acks       whether consumers acknowledge
    may_spin   whether the load may take a processor for itself
    """

    rate: int = 20_000
    seconds: float = 6.0
    producers: int = 4
    consumers: int = 4
    count: int = 10_000
    acks: bool = True
    may_spin: bool = True


@dataclass
class Round:
    """The result of one round on one server."""

    delays_ns: Sequence[int]  # of the messages that count, in the order they were due
    lateness_ns: Sequence[int]  # of the load, for each of them
    per_read: float  # messages in a reply of XREADGROUP that had any
    seconds: float  # of the clock, from the first message that was due to the last reply
    cpu_s: float | None  # of the server; None: not known
    load_cpu_s: float

    @property
    def tail_ns(self) -> int:
        """The 99.9th percentile."""
        return Delays.of(self.delays_ns).percentile(0.999)


# --- The compiled part ----------------------------------------------------------------------------------------------------


class Plan(ctypes.Structure):
    """As in latency.c."""

    _fields_ = [
        ("producers", ctypes.POINTER(ctypes.c_int32)),
        ("consumers", ctypes.POINTER(ctypes.c_int32)),
        ("reads", ctypes.POINTER(ctypes.c_char_p)),
        ("read_sizes", ctypes.POINTER(ctypes.c_int64)),
        ("add", ctypes.c_char_p),
        ("add_size", ctypes.c_int64),
        ("ack", ctypes.c_char_p),
        ("ack_size", ctypes.c_int64),
        ("n_producers", ctypes.c_int64),
        ("n_consumers", ctypes.c_int64),
        ("messages", ctypes.c_int64),
        ("interval_ns", ctypes.c_int64),
        ("grace_ns", ctypes.c_int64),
        ("may_spin", ctypes.c_int32),
        ("stop", ctypes.c_int32),
    ]


class Result(ctypes.Structure):
    """As in latency.c."""

    _fields_ = [
        ("delays_ns", ctypes.POINTER(ctypes.c_int64)),
        ("lateness_ns", ctypes.POINTER(ctypes.c_int64)),
        ("sent", ctypes.c_int64),
        ("received", ctypes.c_int64),
        ("acknowledged", ctypes.c_int64),
        ("reads", ctypes.c_int64),
        ("late_ns", ctypes.c_int64),
        ("error", ctypes.c_char * 256),
    ]


def run_plan(plan: Plan, result: Result) -> None:
    """Run it in a thread, so that it can be interrupted; the thread has ended when this returns or raises.

    Raises RuntimeError with what went wrong.
    """
    function = compile_library(SOURCE).measure_latency
    function.restype = ctypes.c_int32
    status: list[int] = []
    is_over = threading.Event()

    def run() -> None:
        status.append(function(ctypes.byref(plan), ctypes.byref(result)))
        is_over.set()

    thread = threading.Thread(target=run, name="load")
    thread.start()
    try:
        # Not join(): before Python 3.13, a join() interrupted by a signal treats the thread as ended.
        is_over.wait()
    except BaseException:
        # Whatever a signal has raised, the thread still uses descriptors and arrays that the caller frees.
        plan.stop = 1
        is_over.wait()
        raise
    finally:
        thread.join()
    if status != [0]:
        got = f"{result.received:,} of {result.sent:,} messages read, {result.acknowledged:,} acknowledged"
        raise RuntimeError(f"{result.error.decode(errors='replace')} ({got})")


# --- Servers --------------------------------------------------------------------------------------------------------------


@dataclass
class Target:
    """A server that is measured, and what has been measured.

    url     where it is
    server  its process, when it was started here
    """

    name: str
    url: str
    server: Server | None = None
    rounds: dict[str, list[Round]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.client = redis.Redis.from_url(self.url)
        self.prefix = f"latency:{secrets.token_hex(4)}:"

    @classmethod
    def of_server(cls, server: Server) -> Target:
        """The target for a server that was started here."""
        return cls(server.name, f"redis://127.0.0.1:{server.port}/0", server)

    @property
    def is_secure(self) -> bool:
        return self.url.startswith("rediss:")

    def connect(self) -> redis.connection.AbstractConnection:
        """A connection of its own: the database is selected and the user known."""
        # The pool's own way counts every connection that it ever made, up to a limit.
        pool = self.client.connection_pool
        connection: redis.connection.AbstractConnection = pool.connection_class(**pool.connection_kwargs)
        connection.connect()  # type: ignore[no-untyped-call]
        return connection

    def version(self) -> str:
        if self.server:
            return self.server.version()
        info = self.client.info("server")
        for key, title in (("streamd_version", "streamd"), ("valkey_version", "Valkey"), ("redis_version", "Redis")):
            if key in info:
                return f"{title} {info[key]}"
        return self.name

    def cpu_s(self) -> float | None:
        """CPU time that its process has used; None when that is not known."""
        return self.server.cpu_s() if self.server else None

    def make_group(self, scenario: str, pending: int) -> str:
        """A stream of this server's own with a group that has so many entries unacknowledged; its key.

        The same stream serves all rounds of a scenario.
        """
        key = self.prefix + scenario
        if self.client.exists(key):
            return key
        self.client.xgroup_create(key, GROUP, id="0", mkstream=True)
        connection = self.connect()
        sock = socket_of(connection)
        add = make_request("XADD", key, "*", "t", "0" * TIME_DIGITS)
        read = make_request("XREADGROUP", "GROUP", GROUP, "gone", "COUNT", 10_000, "STREAMS", key, ">")
        try:
            for start in range(0, pending, FILL_AT_ONCE):
                run_batch(sock, add * min(FILL_AT_ONCE, pending - start))
            for _ in range(0, pending, 10_000):
                run_batch(sock, read)
        finally:
            connection.disconnect()  # type: ignore[no-untyped-call]
        found = self.client.xpending(key, GROUP)["pending"]
        if found != pending:
            raise RuntimeError(f"{self.name}: {found:,} entries are pending instead of {pending:,}")
        return key

    def tail_ns(self, scenario: str) -> float:
        """The median over the rounds of their 99.9th percentiles."""
        return statistics.median(each.tail_ns for each in self.rounds[scenario])

    def clean_up(self) -> None:
        """Delete what was made here, in the background where the server can."""
        with suppress(redis.ConnectionError):
            for scenario in self.rounds:
                self.client.unlink(self.prefix + scenario)
        self.client.close()


def socket_of(connection: redis.connection.AbstractConnection) -> socket.socket:
    """The socket of a connection that is open."""
    return cast("socket.socket", connection._sock)


def run_batch(sock: socket.socket, requests: bytes) -> None:
    """Send requests and drop their replies, up to that of an ECHO."""
    sock.sendall(requests + make_request("ECHO", MARKER))
    expected = b"$%d\r\n%s\r\n" % (len(MARKER), MARKER.encode())
    tail = b""
    while tail != expected:
        got = sock.recv(1 << 18)
        if not got:
            raise ConnectionError("the server closed the connection")
        tail = (tail + got)[-len(expected) :]


class Relay:
    """Carries bytes between connections that speak TLS and descriptors that the compiled load can use.

    plain  the other ends, in the order of the connections
    """

    def __init__(self, connections: Sequence[ssl.SSLSocket]) -> None:
        self._selector = selectors.DefaultSelector()
        self._waker, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._waiting: dict[socket.socket, bytes] = {}
        self._ours: list[socket.socket] = []
        self.plain: list[socket.socket] = []
        for secure in connections:
            plain, ours = socket.socketpair()
            secure.setblocking(False)
            ours.setblocking(False)
            for sock, peer in ((secure, ours), (ours, secure)):
                self._selector.register(sock, selectors.EVENT_READ, peer)
            self.plain.append(plain)
            self._ours.append(ours)
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._waker.send(b"x")
        self._thread.join()
        self._selector.close()
        for sock in (self._waker, self._woken, *self.plain, *self._ours):
            sock.close()

    def _work(self) -> None:
        while True:
            # Bytes that could not be passed on are retried soon: nothing signals when there is room.
            for key, _ in self._selector.select(0.0002 if self._waiting else None):
                if key.data is None:
                    return
                self._carry(cast("socket.socket", key.fileobj), key.data)
            for sock, rest in list(self._waiting.items()):
                del self._waiting[sock]
                self._hand_on(sock, rest)

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(ssl.SSLWantReadError, BlockingIOError):
            # A whole record is decrypted at a time: the rest of it does not make the socket readable.
            while got := source.recv(1 << 16):
                self._hand_on(sink, got)
            self._selector.unregister(source)
            with suppress(OSError):
                sink.shutdown(socket.SHUT_WR)

    def _hand_on(self, sink: socket.socket, data: bytes) -> None:
        if sink in self._waiting:
            self._waiting[sink] += data
            return
        try:
            sent = sink.send(data)
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError, BlockingIOError):
            sent = 0
        if sent < len(data):
            self._waiting[sink] = data[sent:]


@contextmanager
def open_sockets(target: Target, number: int) -> Iterator[list[socket.socket]]:
    """Connections whose descriptors the compiled load can use, ready to send requests; closed at the end."""
    with ExitStack() as stack:
        socks: list[socket.socket] = []
        for _ in range(number):
            connection = target.connect()
            stack.callback(connection.disconnect)
            socks.append(socket_of(connection))
        if target.is_secure:
            relay = Relay(cast("list[ssl.SSLSocket]", socks))
            stack.callback(relay.close)
            socks = relay.plain
        for sock in socks:
            sock.setblocking(False)
        yield socks


# --- One round ------------------------------------------------------------------------------------------------------------


def measure(target: Target, key: str, load: Load) -> Round:
    """One round over a stream whose group is there. Raises RuntimeError when messages are lost, or the server refuses."""
    interval_ns = max(1, round(NS_PER_S / load.rate))
    messages = max(1, int(load.seconds * NS_PER_S) // interval_ns)
    uncounted = min(int(WARM_UP_S * NS_PER_S) // interval_ns, messages // 2)
    reads = [
        make_request(
            "XREADGROUP", "GROUP", GROUP, f"consumer-{i}", "COUNT", load.count, "BLOCK", BLOCK_MS, "STREAMS", key, ">"
        )
        for i in range(load.consumers)
    ]
    # All but the last field, and of XACK all but the number of arguments.
    add = make_request("XADD", key, "*", "t", "0" * TIME_DIGITS)[: -TIME_DIGITS - 2]
    ack = make_request("XACK", key, GROUP).partition(b"\r\n")[2] if load.acks else b""
    delays, lateness = array("q", bytes(8 * messages)), array("q", bytes(8 * messages))
    with open_sockets(target, load.producers + load.consumers) as socks:
        descriptors = [sock.fileno() for sock in socks]
        plan = Plan(
            producers=(ctypes.c_int32 * load.producers)(*descriptors[: load.producers]),
            consumers=(ctypes.c_int32 * load.consumers)(*descriptors[load.producers :]),
            reads=(ctypes.c_char_p * load.consumers)(*reads),
            read_sizes=(ctypes.c_int64 * load.consumers)(*map(len, reads)),
            add=add,
            add_size=len(add),
            ack=ack,
            ack_size=len(ack),
            n_producers=load.producers,
            n_consumers=load.consumers,
            messages=messages,
            interval_ns=interval_ns,
            grace_ns=GRACE_S * NS_PER_S,
            may_spin=load.may_spin and not target.is_secure and (os.cpu_count() or 1) > 1,
        )
        result = Result(delays_ns=pointer_to(delays), lateness_ns=pointer_to(lateness))
        own_s, before_s = time.process_time(), target.cpu_s()
        run_plan(plan, result)
        own_s = time.process_time() - own_s
        after_s = target.cpu_s()
    server_s = None if before_s is None or after_s is None else after_s - before_s
    seconds = (messages * interval_ns + result.late_ns) / NS_PER_S
    return Round(delays[uncounted:], lateness[uncounted:], messages / result.reads, seconds, server_s, own_s)


def pointer_to(values: array[int]) -> ctypes._Pointer[ctypes.c_int64]:
    return ctypes.cast(values.buffer_info()[0], ctypes.POINTER(ctypes.c_int64))


# --- As rows of the whole table -------------------------------------------------------------------------------------------


class Rows:
    """The cases for `python -m benchmarks`, and what they have measured, for the picture."""

    def __init__(self, load: Load, pending: int) -> None:
        self.load = load
        self.pending = pending
        self.targets: dict[str, Target] = {}

    def cases(self) -> list[Case]:
        return [
            Case(
                f"p99.9 at {self.load.rate // 1000}k msg/s"
                + (f", {pending / 1e6:g}M unacknowledged" if pending else ""),
                partial(self._run, scenario, pending),
                aim=1.0,
                by="ms",
                prepare=partial(self._prepare, scenario, pending),
            )
            for scenario, (_, pending) in scenarios(self.pending).items()
        ]

    def write_picture(self, path: Path, description: str) -> bool:
        """Of all rounds so far; False, and nothing is written, when there were none."""
        if self.targets:
            write_picture(path, list(self.targets.values()), scenarios(self.pending), description)
        return bool(self.targets)

    def _prepare(self, scenario: str, pending: int, server: Server, scale: float) -> None:
        target = self.targets.get(server.name)
        if target is None or target.server is not server:
            target = self.targets[server.name] = Target.of_server(server)
        target.rounds[scenario] = []
        target.make_group(scenario, int(pending * scale))

    def _run(self, scenario: str, pending: int, server: Server, scale: float) -> Sample:
        target = self.targets[server.name]
        load = replace(self.load, seconds=max(self.load.seconds * scale, SHORTEST_S))
        done = measure(target, target.make_group(scenario, int(pending * scale)), load)
        target.rounds[scenario].append(done)
        return Sample(
            operations=load.seconds * load.rate,
            seconds=done.seconds,
            cpu_s=done.cpu_s or 0.0,
            load_cpu_s=done.load_cpu_s,
            figure=done.tail_ns / NS_PER_MS,
        )


# --- Output ---------------------------------------------------------------------------------------------------------------


def scenarios(pending: int) -> dict[str, tuple[str, int]]:
    """By the suffix of their key: their names, and the number of entries unacknowledged at the start."""
    found = {"new": ("new stream", 0)}
    if pending:
        found["pending"] = (f"{pending:,} entries unacknowledged at the start", pending)
    return found


def pooled(target: Target, scenario: str) -> Delays:
    return Delays.of(*(each.delays_ns for each in target.rounds[scenario]))


def make_table(title: str, targets: Sequence[Target], scenario: str) -> Table:
    """Percentiles over all messages of all rounds, and the ratio of 99.9th percentiles, medians of the rounds, to the base.

    More than 1 is better than the base. `per read`: messages in a reply; `load late`: its own 99.9th percentile.
    """
    table = Table(title=f"delay from when a message was due until a consumer had it, ms: {title}")
    for heading in ("server", "p50", "p99", "p99.9", "longest", "p99.9 by round", "ratio", "server CPU", "per read", "load late"):  # fmt: skip
        table.add_column(heading, justify="left" if heading == "server" else "right", no_wrap=True)
    base = next((each.tail_ns(scenario) for each in targets if each.name == BASE), None)
    for target in targets:
        rounds, delays = target.rounds[scenario], pooled(target, scenario)
        tails = [each.tail_ns for each in rounds]
        shares = [each.cpu_s / each.seconds for each in rounds if each.cpu_s is not None]
        table.add_row(
            target.name,
            *map(show_ms, delays.figures()),
            f"{show_ms(target.tail_ns(scenario))} ({show_ms(min(tails))} to {show_ms(max(tails))})",
            f"{base / target.tail_ns(scenario):.2f}" if base else "",
            f"{statistics.median(shares):.0%}" if shares else "",
            f"{statistics.mean(each.per_read for each in rounds):.1f}",
            show_ms(Delays.of(*(each.lateness_ns for each in rounds)).percentile(0.999)),
        )
    return table


def print_results(console: Console, targets: Sequence[Target], pending: int, description: str, picture: Path) -> None:
    for scenario, (title, _) in scenarios(pending).items():
        for target in targets:
            delays = pooled(target, scenario)
            console.print(f"\n{target.name}, {title}: {len(delays.ordered):,} messages", style="bold")
            for line in histogram_lines(delays):
                console.print(line, highlight=False)
        console.print()
        console.print(make_table(title, targets, scenario))
    late = [
        Delays.of(*(each.lateness_ns for each in rounds)).percentile(0.999)
        for target in targets
        for rounds in target.rounds.values()
    ]
    if max(late) > LATE_NS:
        console.print(
            f"The load was late by up to {show_ms(max(late))} ms at its own p99.9: it had no processor of its own. Delays of"
            " that size are not the servers'."
        )
    write_picture(picture, targets, scenarios(pending), description)
    console.print(f"picture   {picture}", highlight=False)


def write_picture(
    path: Path, targets: Sequence[Target], titles: Mapping[str, tuple[str, int]], description: str
) -> None:
    """A diagram for each scenario, a curve for each server; `description` stands below."""
    panels = {
        title: {each.name: pooled(each, scenario) for each in targets if each.rounds.get(scenario)}
        for scenario, (title, _) in titles.items()
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(draw("Delay from producer to consumer", panels, description.splitlines()))


def measure_all(targets: Sequence[Target], load: Load, pending: int, rounds: int, console: Console) -> None:
    """Rounds alternate between servers; those of a scenario are consecutive."""
    for scenario, (title, unacknowledged) in scenarios(pending).items():
        for target in targets:
            target.rounds[scenario] = []
            target.make_group(scenario, unacknowledged)
        for at in range(rounds):
            for target in targets:
                target.rounds[scenario].append(measure(target, target.make_group(scenario, unacknowledged), load))
            console.print(f"  {title}: round {at + 1} of {rounds} done", highlight=False)


@contextmanager
def open_targets(urls: Sequence[str], names: Sequence[str], *options: str) -> Iterator[list[Target]]:
    """The servers at these addresses, or those of these names, started here with these options."""
    with ExitStack() as stack:
        if urls:
            targets = [Target(shorten(url), url) for url in urls]
        else:
            servers = [stack.enter_context(start_server(name, *options)) for name in names]
            targets = [Target.of_server(each) for each in servers]
            pin_load()
        for target in targets:
            stack.callback(target.clean_up)
        yield targets


def shorten(url: str) -> str:
    """An address without user and password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


ROWS = Rows(Load(), 2_000_000)
CASES = ROWS.cases()


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--url", "urls", multiple=True, help="A running server, instead of those that are started here.")
@click.option("--rate", default=20_000, show_default=True, help="Messages per second, of all producers.")
@click.option("--seconds", default=6.0, show_default=True, help="Seconds of a round.")
@click.option("--rounds", default=3, show_default=True, help="Rounds per server.")
@click.option("--producers", default=4, show_default=True, help="Connections that send.")
@click.option("--consumers", default=4, show_default=True, help="Connections that read, each a consumer of the group.")
@click.option("--count", default=10_000, show_default=True, help="COUNT of XREADGROUP.")
@click.option(
    "--pending", default=2_000_000, show_default=True, help="Unacknowledged entries at the start; 0: only without."
)
@click.option("--no-ack", is_flag=True, help="Consumers do not acknowledge.")
@click.option(
    "--sleep", is_flag=True, help="The load sleeps between messages: less exact, and takes no whole processor."
)
@click.option("--servers", default=",".join(NAMES), show_default=True, help="Which are started here.")
@click.option("--io-threads", default=1, show_default=True, help="The setting of the servers that are started here.")
@click.option(
    "--picture", type=click.Path(path_type=Path), default=RESULTS / "latency.svg", help="Where the picture goes."
)
@click.option("--quick", is_flag=True, help="Two rounds of two seconds, a tenth of the unacknowledged entries.")
def main(
    urls: tuple[str, ...],
    rate: int,
    seconds: float,
    rounds: int,
    producers: int,
    consumers: int,
    count: int,
    pending: int,
    no_ack: bool,
    sleep: bool,
    servers: str,
    io_threads: int,
    picture: Path,
    quick: bool,
) -> None:
    if quick:
        rounds, seconds, pending = 2, 2.0, pending // 10
    end_in_order()
    console = Console(width=WIDTH)
    load = Load(rate, seconds, producers, consumers, count, acks=not no_ack, may_spin=not sleep)
    names, missing = find_servers(servers.split(","))
    settings = {
        "rate": rate, "seconds": seconds, "rounds": rounds, "producers": producers, "consumers": consumers,
        "count": count, "acks": load.acks, "pending": pending,
        "io_threads": io_threads,
    }  # fmt: skip
    with open_targets(urls, names, "--io-threads", str(io_threads)) as targets:
        description = describe_machine(*targets, **settings)
        console.print(description, highlight=False)
        if missing and not urls:
            console.print(f"not found  {', '.join(missing)}")
        if any(target.is_secure for target in targets):
            console.print("TLS goes through a relay in this process, whose cost is part of the delays.")
        measure_all(targets, load, pending, rounds, console)
        print_results(console, targets, pending, description, picture)


if __name__ == "__main__":
    main()
