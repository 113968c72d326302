"""Publish/subscribe of streamd beside redis-server, in one run on one machine.

    python -m benchmarks.pubsub [--rounds N] [--only WORD] [--quick]

Two questions for each number of subscribers. How many messages are delivered per second when publishers send as fast as
they may: PUBLISH requests in a pipeline, so many at a time that a bounded number of messages is under way. And how long
one message takes, from before it is sent to when a subscriber has it, when messages come one at a time at a rate that
both servers bear: the median and the 99th percentile, over all messages of all rounds.

Both servers are pinned to the same CPU and the load to another; rounds alternate between them. The load must not be what
is measured: requests are made beforehand, subscribers only count bytes, reading large pieces when they are there, and one
of them looks at what it reads for the latency. Server CPU per delivered message (user and system time of the process)
holds still where a figure is bounded by the load. More than 1 is better than Redis in every ratio.
"""

from __future__ import annotations

import os
import select
import socket
import statistics
import struct
import time
from contextlib import ExitStack
from dataclasses import dataclass, field

import click
from rich.console import Console
from rich.table import Table

from benchmarks.support import LOAD_CPU, Server, describe_machine, make_request, spread, start_server

WIDTH = 168
"""Columns of the table, whatever the terminal: the table goes into files."""
PAYLOAD = 64
"""Bytes of a message; in the measurement of latency, they begin with the time of sending."""
CHANNEL = "news:0000000000"
UNDER_WAY = 100_000
"""Messages that may be on their way to subscribers at a time: what sockets hold without being read."""
RECEIVE = 1 << 18
DEADLINE_S = 10
IS_LINUX = hasattr(select, "epoll")


@dataclass
class Round:
    """What one run on one server gave."""

    per_s: float  # messages delivered
    cpu_us: float  # of the server, for each
    latencies_us: list[float] = field(default_factory=list)


@dataclass
class Case:
    """One row of the table.

    subscribers  connections subscribed to the channel
    idle         patterns that others are subscribed to and that do not match
    matching     patterns that match, all of one connection
    publish      messages of one round at full speed
    rate         messages published per second in the measurement of latency
    """

    name: str
    subscribers: int
    publish: int
    rate: int
    idle: int = 0
    matching: int = 0

    @property
    def per_message(self) -> int:
        return self.subscribers + self.matching


CASES = [
    Case("1 subscriber", 1, publish=400_000, rate=4000),
    Case("10 subscribers", 10, publish=200_000, rate=2000),
    Case("100 subscribers", 100, publish=30_000, rate=500),
    Case("1,000 subscribers", 1000, publish=3_000, rate=50),
    Case("1,000 patterns, none matches", 1, publish=100_000, rate=2000, idle=1000),
    Case("1,000 patterns, all match", 1, publish=1_000, rate=100, matching=1000),
]


def subscribe(server: Server, command: str, *names: str) -> socket.socket:
    """A connection that has subscribed, and is read without waiting from here on."""
    sock = server.connect()
    sock.sendall(make_request(command, *names))
    said = b""
    while said.count(b"\r\n:") < len(names) or not said.endswith(b"\r\n"):
        said += sock.recv(RECEIVE)
    sock.setblocking(False)
    return sock


class Audience:
    """All subscribers of a case."""

    def __init__(self, server: Server, case: Case) -> None:
        self.per_message = case.subscribers * pushed_size("message")
        socks = [subscribe(server, "SUBSCRIBE", CHANNEL) for _ in range(case.subscribers)]
        if case.idle:
            # The channel's namespace, and the same first bytes: nothing that is seen at a glance.
            socks.append(subscribe(server, "PSUBSCRIBE", *(f"news:{i:010d}:*" for i in range(case.idle))))
        if case.matching:
            names = [f"news:{i:010b}".replace("1", "?") for i in range(case.matching)]
            socks.append(subscribe(server, "PSUBSCRIBE", *names))
            self.per_message += sum(pushed_size("pmessage", name) for name in names)
        self.by_fileno = {sock.fileno(): sock for sock in socks}
        self.poll = select.epoll() if IS_LINUX else select.poll()
        for fileno in self.by_fileno:
            self.poll.register(fileno, select.POLLIN)
        self.buffer = bytearray(RECEIVE)

    def close(self) -> None:
        for sock in self.by_fileno.values():
            sock.close()

    def read(self) -> int:
        """Wait until there is something to read, and read once from every connection that has something; bytes."""
        total = 0
        for fileno, _ in self.poll.poll(DEADLINE_S if IS_LINUX else DEADLINE_S * 1000):
            size = self.by_fileno[fileno].recv_into(self.buffer)
            if not size:
                raise ConnectionError("the server closed the connection of a subscriber")
            total += size
        if not total:
            raise TimeoutError("no message came")
        return total


def pushed_size(*words: str) -> int:
    """Bytes of one message as it is pushed; `words`: what stands before the channel."""
    return len(make_request(*words, CHANNEL, b"x" * PAYLOAD))


# --- Full speed ----------------------------------------------------------------------------------------------------


def deliver(server: Server, case: Case, scale: float) -> Round:
    """Publish in pipelines, as many messages under way as UNDER_WAY allows."""
    pipeline = max(1, min(500, UNDER_WAY // 2 // case.per_message))
    batches = max(4, int(case.publish * scale) // pipeline)
    request = make_request("PUBLISH", CHANNEL, b"x" * PAYLOAD) * pipeline
    reply_size = pipeline * len(f":{case.per_message}\r\n")
    audience = Audience(server, case)
    per_batch = audience.per_message * pipeline
    with server.connect() as publisher:
        cpu = server.cpu_s()
        began = time.perf_counter()
        received = read = 0
        for batch in range(batches):
            publisher.sendall(request)
            # Two batches are under way: while one is read, the server works on the next.
            while received < (batch - 1) * per_batch:
                received += audience.read()
            while read < (batch - 1) * reply_size:
                read += len(publisher.recv(reply_size))
        while received < batches * per_batch:
            received += audience.read()
        seconds = time.perf_counter() - began
        used = server.cpu_s() - cpu
    audience.close()
    number = pipeline * batches * case.per_message
    return Round(number / seconds, used / number * 1e6)


# --- One message at a time -------------------------------------------------------------------------------------------


def measure_latency(server: Server, case: Case, scale: float) -> list[float]:
    """Publish at a steady rate; how long each message took to reach the last subscriber of the channel, in us."""
    number = max(100, int(case.rate * 2 * scale))
    audience = Audience(server, case)
    latencies: list[float] = []
    interval = 1 / case.rate
    with server.connect() as publisher:
        due = time.perf_counter()
        for _ in range(number):
            due += interval
            while (now := time.perf_counter()) < due:
                if due - now > 0.0005:
                    time.sleep(due - now - 0.0004)
            began = time.perf_counter()
            publisher.sendall(make_request("PUBLISH", CHANNEL, struct.pack("d", began).ljust(PAYLOAD, b"x")))
            received = 0
            while received < audience.per_message:
                received += audience.read()
            latencies.append((time.perf_counter() - began) * 1e6)
            publisher.recv(64)
    audience.close()
    return latencies


# --- The table -------------------------------------------------------------------------------------------------------


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def figures(ours: list[Round], theirs: list[Round]) -> list[str]:
    """One row: medians of throughput and CPU, percentiles of latency, each with its ratio to Redis."""
    shown: list[str] = []
    rates = [statistics.median(r.per_s for r in rounds) for rounds in (ours, theirs)]
    shown += [f"{rate:,.0f}" for rate in rates] + [f"{rates[0] / rates[1]:.2f}"]
    cpu = [statistics.median(r.cpu_us for r in rounds) for rounds in (ours, theirs)]
    shown += [f"{us:.2f}" for us in cpu] + [f"{cpu[1] / cpu[0]:.2f}"]
    for share in (0.5, 0.99):
        pair = [percentile([us for r in rounds for us in r.latencies_us], share) for rounds in (ours, theirs)]
        shown += [f"{us:,.0f}" for us in pair] + [f"{pair[1] / pair[0]:.2f}"]
    return [*shown, f"{max(spread([r.per_s for r in rounds]) for rounds in (ours, theirs)):.0%}"]


@click.command()
@click.option("--rounds", default=5, show_default=True, help="Rounds per server and case.")
@click.option("--only", default="", help="Only the cases whose name contains this.")
@click.option("--quick", is_flag=True, help="A third of the work and three rounds.")
def main(rounds: int, only: str, quick: bool) -> None:
    """Print the table of streamd beside redis-server."""
    scale = 1 / 3 if quick else 1.0
    rounds = 3 if quick else rounds
    console = Console(width=WIDTH)
    table = Table(
        title="messages delivered per second, us of server CPU for each, and latency in us: streamd, Redis, ratio"
    )
    for heading in ("case", "streamd", "Redis", "ratio", "CPU", "Redis", "ratio", "p50", "Redis", "ratio", "p99", "Redis", "ratio", "±"):  # fmt: skip
        table.add_column(heading, justify="left" if heading == "case" else "right", no_wrap=True)
    with ExitStack() as stack:
        servers = [stack.enter_context(start_server(name, "--maxclients", "4000")) for name in ("streamd", "redis")]
        if hasattr(os, "sched_setaffinity") and (os.cpu_count() or 1) > 1:
            os.sched_setaffinity(0, {LOAD_CPU})
        console.print(describe_machine(*servers, rounds=rounds, scale=round(scale, 2), payload=PAYLOAD))
        for case in CASES:
            if only not in case.name:
                continue
            results: dict[str, list[Round]] = {"streamd": [], "redis": []}
            for _ in range(rounds):
                for server in servers:
                    done = deliver(server, case, scale)
                    done.latencies_us = measure_latency(server, case, scale)
                    results[server.name].append(done)
            table.add_row(case.name, *figures(results["streamd"], results["redis"]))
    console.print(table)


if __name__ == "__main__":
    main()
