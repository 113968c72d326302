"""Reading ranges: XRANGE, XREVRANGE and XREAD of 10, 100 and 1,000 entries anywhere in a stream, and its last entry.

    python -m benchmarks.ranges [--rounds N] [--only WORD] [--quick] [--servers NAMES]

The stream has a million entries of two short fields. Ten connections ask for ranges that begin at places chosen by
chance, the same ones on every server; some 1,600 entries are under way per connection.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from benchmarks.cases import SEED, Case, Sample, ensure_stream, measure
from benchmarks.load import Requests, make_request
from benchmarks.script import command
from benchmarks.servers import Server

ENTRIES = 1_000_000
CONNECTIONS = 10
UNDER_WAY = 1600
"""Entries that a connection has asked for at a time."""
PREPARED = 5000


def entries(scale: float) -> int:
    return int(ENTRIES * scale)


def prepare(server: Server, scale: float) -> None:
    ensure_stream(server, "big", entries(scale))


def xrange(start: int, count: int) -> bytes:
    return make_request("XRANGE", "big", f"{start}-0", "+", "COUNT", count)


def xrevrange(start: int, count: int) -> bytes:
    return make_request("XREVRANGE", "big", f"{start + count}-0", "-", "COUNT", count)


def xread(start: int, count: int) -> bytes:
    return make_request("XREAD", "COUNT", count, "STREAMS", "big", f"{start}-0")


def read(make: Callable[[int, int], bytes], count: int, number: int) -> Callable[[Server, float], Sample]:
    """Ranges of `count` entries, all of which are there."""

    def run(server: Server, scale: float) -> Sample:
        chance = random.Random(SEED)
        requests = Requests(make(chance.randrange(1, entries(scale) - count), count) for _ in range(PREPARED))
        depth = max(2, min(100, UNDER_WAY // count))
        return measure(server, requests, int(number * scale), connections=CONNECTIONS, depth=depth)

    return run


def read_last(number: int) -> Callable[[Server, float], Sample]:
    def run(server: Server, scale: float) -> Sample:
        request = make_request("XREVRANGE", "big", "+", "-", "COUNT", 1)
        return measure(server, Requests([request]), int(number * scale), connections=CONNECTIONS, depth=100)

    return run


CASES = [
    *(
        Case(f"{name} COUNT {count}", read(make, count, number), aim, prepare=prepare)
        for name, make in (("XRANGE", xrange), ("XREVRANGE", xrevrange), ("XREAD", xread))
        for count, number, aim in ((10, 120_000, 1.2), (100, 25_000, 1.8), (1000, 3000, 2.0))
    ),
    Case("XREVRANGE, last entry", read_last(400_000), 1.0, prepare=prepare),
]

main = command(CASES, __doc__, "ranges")

if __name__ == "__main__":
    main()
