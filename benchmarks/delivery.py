"""What the rules of streams and groups cost: entries that are due, dead letters, and common commands of groups with rules.

    python -m benchmarks.delivery [--entries N] [--rounds N] [--only WORD]

    moves      entries whose time is over, moved to another stream
    late       how late entries move, RATE of them a second
    ping       PINGs, a millisecond apart, while all entries are due at one instant, and without
    load       appending entries that wait, and the same without a rule; their index after a start
    dead       dead letters: XNACK FATAL of 100 entries at a time
    rules      XADD, and XREADGROUP with XACK, for a group with MAXDELIVERIES, BACKOFF and CONSUMERPENDING, and without

Figures are by the clock and, where a machine may do other work, by the CPU time of the server.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from benchmarks.crowding import ping_for
from benchmarks.delays import Delays, show_ms
from benchmarks.load import Requests, make_request, open_connections, run_loop
from benchmarks.servers import Server, describe_machine, end_in_order, pin_load, start_server

DAY_MS = 86_400_000
RATE, BATCH, SECONDS = 20_000, 200, 5
DEPTH = 100
PING_S = 3.0
GROUP_RULE = "DEADLETTER dead MAXDELIVERIES 5 BACKOFF 1000 CONSUMERPENDING 1000000"


def now_ms() -> int:
    return int(time.time() * 1000)


def call(server: Server, text: str) -> bytes:
    return server.send(*text.split())


def number_of(reply: bytes) -> int:
    return int(reply[1:])


def send(server: Server, requests: list[bytes], depth: int = DEPTH) -> None:
    """Send requests over one connection, and wait for all replies."""
    with open_connections(server.port) as socks:
        run_loop(socks, Requests(requests), depth=depth)


def append(server: Server, entries: int, due: int) -> None:
    """Append entries that are due at a time."""
    send(server, [make_request("XADD", "later", "*", "due", due, "job", number) for number in range(entries)])


def set_rule(server: Server) -> None:
    call(server, "STREAMD.STREAM SET later FEEDS jobs DUE due")


def wait_for(server: Server, moved: int) -> None:
    while number_of(call(server, "XLEN jobs")) < moved:
        time.sleep(0.002)


@contextmanager
def timed(server: Server, name: str, operations: int, unit: str) -> Iterator[None]:
    """Print how many operations there were in a second."""
    began, cpu_s = time.perf_counter(), server.cpu_s()
    yield
    took, cpu_s = time.perf_counter() - began, server.cpu_s() - cpu_s
    click.echo(
        f"{name:42}{operations / took:>12,.0f} {unit}/s, {operations / max(cpu_s, 0.01):>11,.0f} in a CPU second"
    )


# --- Entries that are due -------------------------------------------------------------------------------------------------


def moves(entries: int, rounds: int) -> None:
    for name, options in (("moves, in memory", ()), ("moves, append-only file", ("--appendonly", "yes"))):
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as folder, start_server("streamd", "--dir", folder, *options) as server:
                append(server, entries, 1000)
                with timed(server, name, entries, "moves"):
                    set_rule(server)
                    wait_for(server, entries)


def late(entries: int, rounds: int) -> None:
    for _ in range(rounds):
        with start_server("streamd") as server:
            set_rule(server)
            began = time.perf_counter()
            with open_connections(server.port) as socks:
                for step in range(RATE * SECONDS // BATCH):
                    time.sleep(max(0.0, began + step * BATCH / RATE - time.perf_counter()))
                    due = now_ms() + 50
                    request = make_request("XADD", "later", "*", "due", due, "at", due)
                    run_loop(socks, Requests([request]), BATCH, depth=BATCH)
            wait_for(server, RATE * SECONDS)
            found = lateness(server)
            shown = ", ".join(
                f"{name} {found[int(len(found) * share)]}" for name, share in (("p50", 0.5), ("p99", 0.99))
            )
            click.echo(f"{f'late at {RATE:,} a second':42}{shown}, longest {found[-1]} ms")


def lateness(server: Server) -> list[int]:
    """By how many ms each entry in `jobs` was late, in order."""
    with server.connect() as sock, sock.makefile("rb") as file:
        sock.sendall(make_request("XRANGE", "jobs", "-", "+"))
        found = []
        for _ in range(int(file.readline()[1:])):
            words = [line.rstrip() for line in (file.readline() for _ in range(8))]
            found.append(int(words[2].partition(b"-")[0]) - int(words[7]))
    return sorted(found)


def ping(entries: int, rounds: int) -> None:
    for _ in range(rounds):
        with start_server("streamd") as server:
            show_pings("PING, nothing else", ping_for(PING_S, server))
            append(server, entries, 1000)
            set_rule(server)
            cpu_s = server.cpu_s()
            show_pings(f"PING, {entries:,} due at once", ping_for(PING_S, server))
            click.echo(f"moved meanwhile: {number_of(call(server, 'XLEN jobs')):,}, CPU {server.cpu_s() - cpu_s:.2f} s")


def show_pings(name: str, delays: Delays) -> None:
    figures = zip(("p50", "p99", "p99.9", "longest"), delays.figures(), strict=True)
    click.echo(f"{name:42}{', '.join(f'{label} {show_ms(ns)}' for label, ns in figures)} ms")


def load(entries: int, rounds: int) -> None:
    for _ in range(rounds):
        for name in ("load, no rule", "load, entries that wait"):
            with start_server("streamd") as server:
                if name != "load, no rule":
                    set_rule(server)
                with timed(server, name, entries, "entries"):
                    append(server, entries, now_ms() + DAY_MS)
        with tempfile.TemporaryDirectory() as folder:
            with start_server("streamd", "--dir", folder) as server:
                append(server, entries, now_ms() + DAY_MS)
                call(server, "XADD later * due 1000 job overdue")
                call(server, "SAVE")
            with (
                start_server("streamd", "--dir", folder) as server,
                timed(server, "index after a start", entries, "entries"),
            ):
                set_rule(server)
                wait_for(server, 1)


# --- Groups ---------------------------------------------------------------------------------------------------------------


def dead(entries: int, rounds: int) -> None:
    entries = min(entries, 100_000)
    for _ in range(rounds):
        with start_server("streamd") as server:
            call(server, "XGROUP CREATE s g 0 MKSTREAM")
            call(server, "STREAMD.GROUP SET s g DEADLETTER dead MAXDELIVERIES 5")
            send(server, [make_request("XADD", "s", f"{number + 1}-0", "job", number) for number in range(entries)])
            read = make_request("XREADGROUP", "GROUP", "g", "c", "COUNT", 1000, "STREAMS", "s", ">")
            send(server, [read] * (entries // 1000), depth=1)
            requests = [
                make_request(
                    "XNACK", "s", "g", "FATAL", "IDS", 100, *[f"{number + 1}-0" for number in range(at, at + 100)]
                )
                for at in range(0, entries, 100)
            ]
            with timed(server, "dead letters", entries, "letters"):
                send(server, requests, depth=10)
            assert number_of(call(server, "XLEN dead")) == entries


def rules(entries: int, rounds: int) -> None:
    """The costs without and with a rule, in turns, and the median of their ratios."""
    entries = min(entries, 100_000)
    for name, one in (("XADD", add_entries), ("XREADGROUP and XACK", read_entries)):
        figures: list[tuple[float, float]] = []
        with start_server("streamd") as server:
            for turn in range(4 * rounds + 1):
                off = one(server, entries)
                call(server, f"STREAMD.GROUP SET s g {GROUP_RULE}")
                on = one(server, entries)
                call(server, "STREAMD.GROUP UNSET s g")
                if turn:
                    figures.append((off, on))
        off, on = (statistics.median(column) * 1e6 / entries for column in zip(*figures, strict=True))
        ratio = statistics.median(on / off for off, on in figures) - 1
        click.echo(f"{name:42}{off:.3f} µs without rules, {on:.3f} µs with: {ratio:+.1%}")


def prepare(server: Server) -> None:
    call(server, "DEL s")
    call(server, "XGROUP CREATE s g 0 MKSTREAM")


def spent(server: Server, work: Callable[[], None]) -> float:
    cpu_s = server.cpu_s()
    work()
    return server.cpu_s() - cpu_s


def add_entries(server: Server, entries: int) -> float:
    prepare(server)
    requests = [make_request("XADD", "s", f"{number + 1}-0", "job", number) for number in range(entries)]
    return spent(server, lambda: send(server, requests))


def read_entries(server: Server, entries: int) -> float:
    add_entries(server, entries)
    read = make_request("XREADGROUP", "GROUP", "g", "c", "COUNT", 10, "STREAMS", "s", ">")
    requests = []
    for at in range(0, entries, 10):
        requests += [read, make_request("XACK", "s", "g", *[f"{number + 1}-0" for number in range(at, at + 10)])]
    return spent(server, lambda: send(server, requests))


PARTS = {"moves": moves, "late": late, "ping": ping, "load": load, "dead": dead, "rules": rules}


@click.command(help=__doc__)
@click.option("--entries", default=1_000_000, show_default=True, help="Entries that wait, or move.")
@click.option("--rounds", default=1, show_default=True, help="How often each part is measured.")
@click.option("--only", default="", help="One of the parts.")
def main(entries: int, rounds: int, only: str) -> None:
    pin_load()
    end_in_order()
    with start_server("streamd") as server:
        click.echo(describe_machine(server, entries=entries, rounds=rounds))
    for name, part in PARTS.items():
        if only in ("", name):
            part(entries, rounds)


if __name__ == "__main__":
    main()
