"""Consumer groups: reading and acknowledging, claiming, and looking at what is pending.

    python -m benchmarks.groups [--rounds N] [--only WORD] [--quick] [--servers NAMES]

Reading is one consumer that reads COUNT entries and acknowledges them, up to 16 times in a pipeline; an operation is one
entry. Claiming, and asking what is pending, is done in a group with PENDING entries pending for four consumers: ten
connections, each with a pipeline, use positions in the stream chosen at random, the same ones on every server.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from benchmarks.cases import SEED, Case, Sample, ensure_stream, measure, send_all
from benchmarks.load import Requests, make_request
from benchmarks.script import command
from benchmarks.servers import Server

PENDING = 200_000
CONNECTIONS = 10
PREPARED = 2000
"""Requests that are prepared, and sent over and over."""
CONSUMERS = 4
DAY_MS = 86_400_000
"""Longer than any entry of a run has been idle."""


# --- Reading and acknowledging -----------------------------------------------------------------------------------------


def read_and_acknowledge(count: int, number: int) -> Callable[[Server, float], Sample]:
    """Read `number` entries, `count` at a time, and acknowledge each; the IDs are known beforehand."""
    at_a_time = max(1, min(16, 1600 // count))

    def run(server: Server, scale: float) -> Sample:
        rounds = max(1, int(number * scale) // count)
        ensure_stream(server, "work", rounds * count)
        send_all(server, [make_request("XGROUP", "DESTROY", "work", "g"),
                          make_request("XGROUP", "CREATE", "work", "g", "0")])  # fmt: skip
        read = make_request("XREADGROUP", "GROUP", "g", "c", "COUNT", count, "STREAMS", "work", ">")
        requests = []
        for first in range(1, rounds * count + 1, count):
            requests += [read, make_request("XACK", "work", "g", *(f"{i}-0" for i in range(first, first + count)))]
        return measure(server, Requests(requests), connections=1, depth=2 * at_a_time, operations=rounds * count)

    return run


# --- With many pending--------------------------------------------------------------------------------------------------


def pending(scale: float) -> int:
    return max(1, int(PENDING * scale) // 1000) * 1000


def prepare(server: Server, scale: float) -> None:
    """The stream `pend` with a group in which every entry is pending, at first a thousand in a row for the same consumer."""
    number = pending(scale)
    if server.send("XPENDING", "pend", "g").startswith(b"*4\r\n:%d\r\n" % number):
        return
    ensure_stream(server, "pend", number)
    send_all(server, [
        make_request("XGROUP", "DESTROY", "pend", "g"),
        make_request("XGROUP", "CREATE", "pend", "g", "0"),
        *(make_request("XREADGROUP", "GROUP", "g", f"c{i % CONSUMERS}", "COUNT", 1000, "STREAMS", "pend", ">")
          for i in range(number // 1000)),
    ])  # fmt: skip


def ask(make: Callable[[Callable[[], str]], bytes], number: int, depth: int = 50) -> Callable[[Server, float], Sample]:
    """Requests made from IDs at random: `make` gets a function that returns one."""

    def run(server: Server, scale: float) -> Sample:
        chance = random.Random(SEED)
        last = pending(scale)
        requests = Requests(make(lambda: f"{chance.randrange(1, last - 100)}-0") for _ in range(PREPARED))
        return measure(server, requests, max(CONNECTIONS, int(number * scale)), connections=CONNECTIONS, depth=depth)

    return run


def claim(ids: int, number: int) -> Callable[[Server, float], Sample]:
    return ask(lambda some: make_request("XCLAIM", "pend", "g", "other", 0, *(some() for _ in range(ids))), number)


def claim_all(min_idle_ms: int, number: int) -> Callable[[Server, float], Sample]:
    return ask(
        lambda some: make_request("XAUTOCLAIM", "pend", "g", "other", min_idle_ms, some(), "COUNT", 100),
        number,
        depth=5,
    )


def look(*words: object, number: int, depth: int = 50) -> Callable[[Server, float], Sample]:
    """XPENDING; the word ID is replaced by a random one."""
    return ask(
        lambda some: make_request("XPENDING", "pend", "g", *(some() if word == "ID" else str(word) for word in words)),
        number,
        depth,
    )


CASES = [
    Case("XREADGROUP + XACK, COUNT 1, per entry", read_and_acknowledge(1, 100_000), 1.1),
    Case("XREADGROUP + XACK, COUNT 10, per entry", read_and_acknowledge(10, 300_000), 1.4),
    Case("XREADGROUP + XACK, COUNT 100, per entry", read_and_acknowledge(100, 500_000), 1.5),
    Case("XREADGROUP + XACK, COUNT 10000, per entry", read_and_acknowledge(10_000, 500_000), 1.5),
    Case("XCLAIM, 1 entry", claim(1, 100_000), 1.5, prepare=prepare),
    Case("XCLAIM, 10 entries", claim(10, 20_000), 1.5, prepare=prepare),
    Case("XAUTOCLAIM COUNT 100", claim_all(0, 2000), 3, prepare=prepare),
    Case("XAUTOCLAIM COUNT 100, nothing idle enough", claim_all(DAY_MS, 500), 3, prepare=prepare),
    Case("XPENDING summary", look(number=200_000), 1.2, prepare=prepare),
    Case("XPENDING range of 10", look("ID", "+", 10, number=60_000), 1.2, prepare=prepare),
    Case("XPENDING range of 100", look("ID", "+", 100, number=20_000), 1.2, prepare=prepare),
    Case("XPENDING IDLE, 10 of them", look("IDLE", 1, "ID", "+", 10, number=60_000), 1.2, prepare=prepare),
    Case(
        "XPENDING IDLE, nothing idle enough",
        look("IDLE", DAY_MS, "-", "+", 10, number=20, depth=1),
        1.2,
        prepare=prepare,
    ),
]

main = command(CASES, __doc__, "groups")

if __name__ == "__main__":
    main()
