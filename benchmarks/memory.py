"""Memory: bytes per entry, per pending entry, and per idle connection.

    python -m benchmarks.memory [--only WORD] [--quick] [--servers NAMES]

What is measured is the growth of the resident set of a server that was just started and has done a little of the
same work before, so that its buffers exist: a million entries of two short fields; a million entries delivered to ten
consumers and not acknowledged; two thousand connections that have sent one PING each.
"""

from __future__ import annotations

import time

from benchmarks.cases import Case, Sample, fill, send_all
from benchmarks.load import Requests, make_request, open_connections, run_loop
from benchmarks.script import command
from benchmarks.servers import Server

ENTRIES = 1_000_000
CONNECTIONS = 2000
CONSUMERS = 10
PER_READ = 1000
WARM_UP = 20_000
SETTLED_S = 0.3
"""Freed memory is returned to the system after a delay; the resident set must be stable for this long."""


def settled_bytes(server: Server) -> int:
    """The resident set once it has been stable for a moment."""
    found, since = server.rss_bytes(), time.monotonic()
    deadline = since + 5
    while time.monotonic() < min(since + SETTLED_S, deadline):
        time.sleep(0.02)
        now = server.rss_bytes()
        if now != found:
            found, since = now, time.monotonic()
    return found


def entries(server: Server, scale: float) -> Sample:
    number = int(ENTRIES * scale)
    fill(server, "warm-up", WARM_UP)
    before = settled_bytes(server)
    fill(server, "big", number)
    return Sample(number, figure=(settled_bytes(server) - before) / number)


def deliver(server: Server, key: str, number: int) -> None:
    """Have a new group's consumers read the whole stream, and acknowledge nothing."""
    send_all(server, [make_request("XGROUP", "CREATE", key, "group", "0")])
    reads = (
        make_request("XREADGROUP", "GROUP", "group", f"c{i % CONSUMERS}", "COUNT", PER_READ, "STREAMS", key, ">")
        for i in range(-(-number // PER_READ))
    )
    send_all(server, reads, depth=1)


def pending_entries(server: Server, scale: float) -> Sample:
    number = int(ENTRIES * scale)
    fill(server, "warm-up", WARM_UP)
    fill(server, "big", number)
    deliver(server, "warm-up", WARM_UP)
    before = settled_bytes(server)
    deliver(server, "big", number)
    return Sample(number, figure=(settled_bytes(server) - before) / number)


def idle_connections(server: Server, scale: float) -> Sample:
    number = int(CONNECTIONS * scale)
    ping = Requests([make_request("PING")])
    with open_connections(server.port, 100) as first:
        run_loop(first, ping, 100)
        before = settled_bytes(server)
        with open_connections(server.port, number) as socks:
            run_loop(socks, ping, number)
            return Sample(number, figure=(settled_bytes(server) - before) / number)


CASES = [
    Case("bytes per entry", entries, 1.0, "bytes", is_alone=True, rounds=1),
    Case("bytes per pending entry", pending_entries, 4.0, "bytes", limit=60, is_alone=True, rounds=1),
    Case("bytes per idle connection", idle_connections, 1.0, "bytes", is_alone=True, rounds=1),
]

main = command(CASES, __doc__, "memory")

if __name__ == "__main__":
    main()
