"""What grows with a stream: the cost of each operation at ten million entries over its cost at ten thousand.

    python -m benchmarks.growth [--rounds N] [--only WORD] [--quick] [--servers NAMES]

Both streams are in the same server, and every entry of both is pending for a group. A run measures the small stream and
the large one after the other; the row's figure is the quotient of server CPU per operation, and the CPU that is shown
beside it that of the large stream. Ranges and single entries are taken anywhere in a stream, at random, so that cache
misses are part of the figure; a group continues to read and claim where it was. For the small size, entries are appended
to a new stream of ten thousand entries over and over; with MAXLEN ~, where each new node displaces the oldest one, both
streams keep their lengths.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.cases import SEED, Case, Sample, fill, measure, remove, send_all
from benchmarks.load import Requests, make_request, open_connections, run_loop
from benchmarks.script import command
from benchmarks.servers import Server

SMALL = 10_000
LARGE = 10_000_000
FIRST = 1_000_000_000_000
"""The time in the first entry's ID; those of the others are consecutive, all of the same width."""
PER_READ = 100
APPENDED = 400_000
AIM = 1.2


@dataclass(frozen=True)
class Stream:
    """A stream whose entries are `FIRST`-0 and so on."""

    key: str
    size: int

    def id_at(self, at: int) -> str:
        return f"{FIRST + at}-0"


def streams(scale: float) -> tuple[Stream, Stream]:
    """The small one and the large one."""
    return Stream("small", SMALL), Stream("large", int(LARGE * scale) // SMALL * SMALL)


# --- Preparing ---------------------------------------------------------------------------------------------------------


def fill_stream(server: Server, stream: Stream) -> None:
    """All entries, and a group to which all of them have been delivered, none acknowledged."""
    fill(server, stream.key, stream.size, first=FIRST)
    send_all(server, [make_request("XGROUP", "CREATE", stream.key, name, "0") for name in ("held", "work")])
    read = make_request("XREADGROUP", "GROUP", "held", "c", "COUNT", 1000, "STREAMS", stream.key, ">")
    with open_connections(server.port) as socks:
        run_loop(socks, Requests([read]), stream.size // 1000)


def prepare(server: Server, scale: float) -> None:
    for stream in streams(scale):
        if server.send("XLEN", stream.key) == b":0\r\n":
            fill_stream(server, stream)


# --- Loads -------------------------------------------------------------------------------------------------------------


def ranges(stream: Stream, chance: random.Random) -> Iterator[bytes]:
    for _ in range(2000):
        start = stream.id_at(chance.randrange(stream.size - 100))
        yield make_request("XRANGE", stream.key, start, "+", "COUNT", 100)


def group_reads(stream: Stream, chance: random.Random) -> Iterator[bytes]:
    """Read and acknowledge as many entries as the small stream has, from any place, again and again."""
    for _ in range(20):
        start = chance.randrange(stream.size - SMALL + 1)
        yield make_request("XGROUP", "SETID", stream.key, "work", f"{FIRST + start - 1}-0")
        for at in range(start, start + SMALL, PER_READ):
            yield make_request("XREADGROUP", "GROUP", "work", "c", "COUNT", PER_READ, "STREAMS", stream.key, ">")
            yield make_request("XACK", stream.key, "work", *(stream.id_at(i) for i in range(at, at + PER_READ)))


def claims(stream: Stream, chance: random.Random) -> Iterator[bytes]:
    for _ in range(100_000):
        yield make_request("XCLAIM", stream.key, "held", "d", 0, stream.id_at(chance.randrange(stream.size)))


def walking_claims(stream: Stream, chance: random.Random) -> Iterator[bytes]:
    """XAUTOCLAIM on from any place, a hundred at a time, to one consumer and back."""
    for turn in range(20):
        start = chance.randrange(stream.size - SMALL + 1)
        for at in range(start, start + SMALL, PER_READ):
            yield make_request(
                "XAUTOCLAIM", stream.key, "held", f"d{turn % 2}", 0, stream.id_at(at), "COUNT", PER_READ, "JUSTID"
            )


def trimming_appends(stream: Stream, chance: random.Random) -> Iterator[bytes]:
    for _ in range(500):
        yield make_request("XADD", stream.key, "MAXLEN", "~", stream.size, "*", "a", "12345", "b", "xyz")


def compare(
    make: Callable[[Stream, random.Random], Iterator[bytes]], number: int, depth: int, connections: int = 1
) -> Callable[[Server, float], Sample]:
    """The quotient of what the requests cost on the large stream and on the small one; a fifth of them to warm up."""

    def run(server: Server, scale: float) -> Sample:
        costs = []
        for stream in streams(scale):
            requests = Requests(make(stream, random.Random(SEED)))
            total = int(number * scale)
            measure(server, requests, total // 5, connections=connections, depth=depth)
            sample = measure(server, requests, total, connections=connections, depth=depth)
            costs.append(sample.cpu_s)
        sample.figure = costs[1] / costs[0]
        return sample

    return run


def appends(server: Server, scale: float) -> Sample:
    """XADD to the large stream, and to new ones of the small size, which grow by as much again."""
    _, large = streams(scale)
    add = {key: Requests([make_request("XADD", key, "*", "a", "12345", "b", "xyz")]) for key in ("fresh", large.key)}
    total = Sample(0)
    costs = dict.fromkeys(add, 0.0)
    for _ in range(max(2, int(APPENDED * scale) // SMALL)):
        remove(server, ["fresh"])
        fill(server, "fresh", SMALL)
        for key, requests in add.items():
            sample = measure(server, requests, SMALL, connections=10, depth=100)
            costs[key] += sample.cpu_s
        total.operations += sample.operations
        total.seconds += sample.seconds
        total.cpu_s += sample.cpu_s
        total.load_cpu_s += sample.load_cpu_s
    total.figure = costs[large.key] / costs["fresh"]
    return total


def case(name: str, run: Callable[[Server, float], Sample]) -> Case:
    return Case(name, run, by="times", prepare=prepare, limit=AIM, rounds=2)


CASES = [
    case("XRANGE COUNT 100, 10M over 10k entries", compare(ranges, 20_000, 20, 10)),
    case("XREADGROUP + XACK COUNT 100, 10M over 10k entries", compare(group_reads, 8000, 20)),
    case("XCLAIM of one, 10M over 10k pending", compare(claims, 100_000, 100)),
    case("XAUTOCLAIM COUNT 100, 10M over 10k pending", compare(walking_claims, 8000, 20)),
    case("XADD, 10M over 10k entries", appends),
    case("XADD MAXLEN ~, 10M over 10k entries", compare(trimming_appends, 500_000, 100, 10)),
]

main = command(CASES, __doc__, "growth")

if __name__ == "__main__":
    main()
