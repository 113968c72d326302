"""What order by key costs: entries read and acknowledged by several consumers, without it, with it, and with a key that is stuck.

    python -m benchmarks.keyed [--entries N] [--keys N] [--consumers N] [--count N] [--runs N]

Entries are appended first, with keys at random. Then each consumer in turn acknowledges what it has and reads the next entries, in
one round trip, until all are done: while one reads, the others have theirs in hand. `stuck`: a consumer of its own has read the first entry
of one key, and never acknowledges it; the entries of the other keys are counted. Each run has a new stream, and the cases alternate.
"""

from __future__ import annotations

import random
import re
import socket
import statistics
import time

import click

from benchmarks.servers import start_server

ID = re.compile(rb"\n(\d+-0)\r\n\*")
CASES = ("without", "keyed", "stuck")


class Connection:
    """Requests as inline commands; a reply ends with that to a PING."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))

    def ask(self, *requests: bytes) -> bytes:
        self.socket.sendall(b"".join(request + b"\r\n" for request in (*requests, b"PING")))
        parts = [b""]
        while not parts[-1].endswith(b"+PONG\r\n"):
            parts.append(self.socket.recv(1 << 20))
        return b"".join(parts)


def fill(wire: Connection, case: str, entries: int, keys: int) -> None:
    chance = random.Random(1)
    wire.ask(b"FLUSHALL")
    for start in range(1, entries + 1, 1000):
        numbers = range(start, min(start + 1000, entries + 1))
        wire.ask(*(b"XADD s %d-0 key user:%d amount 1234" % (each, chance.randrange(keys)) for each in numbers))
    wire.ask(b"XGROUP CREATE s g 0")
    if case != "without":
        wire.ask(b"STREAMD.GROUP SET s g KEYED key")
    if case == "stuck":
        wire.ask(b"XREADGROUP GROUP g stuck COUNT 1 STREAMS s >")


def cpu_s(wire: Connection) -> float:
    """Processor time of the server so far."""
    return sum(float(each) for each in re.findall(rb"\nused_cpu_(?:user|sys):([0-9.]+)", wire.ask(b"INFO cpu")))


def consume(wires: list[Connection], count: int) -> tuple[float, float]:
    """Entries per second, and per second of the server's processor time, which other programs disturb less."""
    in_hand: list[list[bytes]] = [[] for _ in wires]
    done = 0
    began, cpu_began = time.perf_counter(), cpu_s(wires[0])
    while True:
        before = done
        for at, wire in enumerate(wires):
            requests = [b"XREADGROUP GROUP g c%d COUNT %d STREAMS s >" % (at, count)]
            if in_hand[at]:
                requests.insert(0, b"XACK s g " + b" ".join(in_hand[at]))
                done += len(in_hand[at])
            in_hand[at] = ID.findall(wire.ask(*requests))
        if done == before and not any(in_hand):
            return done / (time.perf_counter() - began), done / (cpu_s(wires[0]) - cpu_began)


@click.command(help=__doc__)
@click.option("--entries", default=200_000, show_default=True)
@click.option("--keys", default=1000, show_default=True)
@click.option("--consumers", default=4, show_default=True)
@click.option("--count", default=10, show_default=True, help="Entries in a reply.")
@click.option("--runs", default=5, show_default=True)
def main(entries: int, keys: int, consumers: int, count: int, runs: int) -> None:
    found: dict[str, list[tuple[float, float]]] = {case: [] for case in CASES}
    with start_server("streamd") as server:
        wires = [Connection(server.port) for _ in range(consumers)]
        for _ in range(runs):
            for case in CASES:
                fill(wires[0], case, entries, keys)
                found[case].append(consume(wires, count))
    base = [statistics.median(each) for each in zip(*found["without"], strict=True)]
    for case in CASES:
        rate, of_cpu = (statistics.median(each) for each in zip(*found[case], strict=True))
        print(
            f"{case:8} {rate:10,.0f} entries/s, {rate / base[0]:.2f} of that without;"
            f" {of_cpu:10,.0f} per second of processor time, {of_cpu / base[1]:.2f}"
        )


if __name__ == "__main__":
    main()
