"""How long others wait while one client crowds the server: with garbage, with ranges of a gigabyte, with large values.

    python -m benchmarks.crowding [--seconds N] [--only PATTERN] [--servers NAMES]

While one client does its worst, over and over, another sends PING after PING, a millisecond apart. The output is how
long PINGs took, in ms: the median, the 99th percentile and the longest; and how often the crowd repeated its work.

The crowd reads as fast as it can, or, where a name says so, not at all: then it disconnects after UNREAD_S and connects
again. Without a limit of their output (`client-output-buffer-limit`), servers keep what is not read.
"""

from __future__ import annotations

import re
import select
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass

import click

from benchmarks.delays import Delays, show_ms
from benchmarks.load import make_request
from benchmarks.servers import BASE, Server, describe_machine, end_in_order, find_servers, pin_load, start_server

__all__ = ["CROWDS", "Crowd", "main", "measure"]

INTERVAL_S = 0.001
"""Between a reply and the next PING."""
UNREAD_S = 0.5
GARBAGE = 1 << 20
ENTRIES = 100_000
RANGE = 100 << 20
"""Bytes of all entries of the stream."""
RANGES = 10
LONG = 8 << 20
MIDDLE = 100_000
GETS = 100
AT_ONCE = 100
"""Entries per request when the stream is made."""
PIECE = 1 << 20


def repeated(request: bytes, size: int = GARBAGE) -> bytes:
    """A request repeated up to about `size` bytes."""
    return request * (size // len(request))


@dataclass(frozen=True)
class Crowd:
    """What one client sends at once, and whether it reads the replies."""

    requests: bytes
    reads: bool = True


RANGE_ALL = make_request("XRANGE", "s", "-", "+") * RANGES

CROWDS = {
    "nothing": Crowd(b""),
    "unknown commands, inline": Crowd(repeated(b"nothing at all\r\n")),
    "unknown commands": Crowd(repeated(make_request("nothing", "at", "all"))),
    "unknown subcommands": Crowd(repeated(make_request("CLIENT", "NOTHING"))),
    "wrong number of arguments": Crowd(repeated(make_request("GET"))),
    "wrong type": Crowd(repeated(make_request("XLEN", "middle"))),
    "empty lines": Crowd(repeated(b"\r\n")),
    "an unknown command of 150,000 words": Crowd(make_request("nothing", *["x"] * 150_000)),
    "bytes that are not a request": Crowd(b"x" * GARBAGE),
    "PINGs": Crowd(repeated(b"PING\r\n")),
    "ranges of a gigabyte": Crowd(RANGE_ALL),
    "ranges of a gigabyte, not read": Crowd(RANGE_ALL, reads=False),
    "values of 8 MB": Crowd(make_request("GET", "long") * GETS),
    "values of 8 MB, not read": Crowd(make_request("GET", "long") * GETS, reads=False),
    "values of 100 kB": Crowd(make_request("GET", "middle") * (10 * GETS)),
}
"""By name."""


def fill(server: Server) -> None:
    """Make the keys that crowds ask for."""
    entry = b"x" * (RANGE // ENTRIES)
    with server.connect() as sock:
        for _ in range(ENTRIES // AT_ONCE):
            exchange(sock, make_request("XADD", "s", "*", "f", entry) * AT_ONCE)
        for key, size in (("long", LONG), ("middle", MIDDLE)):
            exchange(sock, make_request("SET", key, b"x" * size))


def exchange(sock: socket.socket, requests: bytes, stop: Callable[[], bool] = lambda: False) -> bool:
    """Send requests and read all replies; False when `stop()` said so, or the server closed the connection."""
    end = b"the end of it\r\n"
    left = memoryview(requests + make_request("ECHO", end[:-2]))
    piece = bytearray(PIECE)
    tail = b""
    sock.setblocking(False)
    while not stop():
        readable, writable, _ = select.select([sock], [sock] if left else [], [], 0.1)
        if writable:
            left = left[sock.send(left[:PIECE]) :]
        if readable:
            size = sock.recv_into(piece)
            if not size:
                return False
            tail = (tail + piece[max(0, size - len(end)) : size])[-len(end) :]
            if tail == end:
                return True
    return False


# --- Measuring ----------------------------------------------------------------------------------------------------------


def crowd_until(stopped: threading.Event, server: Server, crowd: Crowd) -> int:
    """Crowd the server until the event is set; return how often."""
    times = 0
    while crowd.requests and not stopped.is_set():
        with server.connect() as sock, suppress(ConnectionError):
            if crowd.reads:
                exchange(sock, crowd.requests, stopped.is_set)
            else:
                sock.sendall(crowd.requests)
                stopped.wait(UNREAD_S)
        times += 1
    return times


def ping_for(seconds: float, server: Server) -> Delays:
    """How long PINGs take, each sent INTERVAL_S after the reply to the one before."""
    delays_ns: list[int] = []
    end = time.perf_counter() + seconds
    with server.connect() as sock:
        while (sent := time.perf_counter()) < end:
            sock.sendall(b"PING\r\n")
            sock.recv(64)
            delays_ns.append(round((time.perf_counter() - sent) * 1e9))
            time.sleep(INTERVAL_S)
    return Delays.of(delays_ns)


def measure(server: Server, crowd: Crowd, seconds: float) -> tuple[Delays, int]:
    """How long PINGs take in a crowd, and how often the crowd repeated its work."""
    stopped = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        times = pool.submit(crowd_until, stopped, server, crowd)
        try:
            delays = ping_for(seconds, server)
        finally:
            stopped.set()
        return delays, times.result()


@click.command()
@click.option("--seconds", default=3.0, show_default=True, help="Of each crowd on each server.")
@click.option("--only", default="", help="A regular expression of names.")
@click.option("--servers", default=f"streamd,{BASE}", show_default=True, help="The servers, separated by commas.")
def main(seconds: float, only: str, servers: str) -> None:
    """Print how long PINGs take while one client crowds the server, beside Redis."""
    names, absent = find_servers(servers.split(","))
    pin_load()
    end_in_order()
    chosen = {name: crowd for name, crowd in CROWDS.items() if re.search(only, name)}
    with ExitStack() as stack:
        running = [stack.enter_context(start_server(name)) for name in names]
        for server in running:
            fill(server)
        click.echo(describe_machine(*running, seconds=seconds))
        click.echo(f"left out  {', '.join(absent)}" if absent else "", nl=bool(absent))
        click.echo(f"{'':37}{'':12}{'p50':>9}{'p99':>9}{'longest':>9}  ms{'times':>8}")
        for name, crowd in chosen.items():
            for server in running:
                delays, times = measure(server, crowd, seconds)
                figures = (delays.percentile(0.5), delays.percentile(0.99), delays.max)
                shown = "".join(f"{show_ms(each):>9}" for each in figures)
                click.echo(f"{name:37}{server.name:12}{shown}{times:>12}")


if __name__ == "__main__":
    main()
