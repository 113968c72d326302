"""Appending: XADD at several pipeline depths, to many streams, with large values, trimmed, and with the file on.

    python -m benchmarks.append [--rounds N] [--only WORD] [--quick] [--servers NAMES]

Fifty connections send the same request over and over, P of them at a time each. `everysec` and `always` are the policies
of the append-only file, which is in a temporary folder: what `always` costs by the clock is the disk's.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from benchmarks.cases import SEED, Case, Sample, measure, remove
from benchmarks.load import Requests, make_request
from benchmarks.script import command
from benchmarks.servers import Server

FIELDS = ("*", "sensor-id", "1234", "temperature", "19.8")


def append(depth: int, number: int, *words: str) -> Callable[[Server, float], Sample]:
    """XADD to one stream, which is empty at first; `words`: what follows the key."""

    def run(server: Server, scale: float) -> Sample:
        remove(server, ["mystream"])
        request = make_request("XADD", "mystream", *(words or FIELDS))
        return measure(server, Requests([request]), int(number * scale), depth=depth)

    return run


def append_to_many(streams: int, depth: int, number: int) -> Callable[[Server, float], Sample]:
    """XADD to streams at random."""

    def run(server: Server, scale: float) -> Sample:
        remove(server, (f"s:{i}" for i in range(streams)))
        chance = random.Random(SEED)
        made = [make_request("XADD", f"s:{i}", *FIELDS) for i in range(streams)]
        return measure(server, Requests(chance.choices(made, k=50_000)), int(number * scale), depth=depth)

    return run


KILOBYTE = ("*", "f", "x" * 1024)
EVERYSEC = ("--appendonly", "yes", "--appendfsync", "everysec")
ALWAYS = ("--appendonly", "yes", "--appendfsync", "always")

CASES = [
    Case("XADD, P=1", append(1, 100_000), 1.0),
    Case("XADD, P=16", append(16, 700_000), 1.3),
    Case("XADD, P=100", append(100, 1_000_000), 1.6),
    Case("XADD, 1,000 streams, P=16", append_to_many(1000, 16, 600_000), 1.3),
    Case("XADD, 1 KB values, P=16", append(16, 200_000, *KILOBYTE), 1.1),
    Case("XADD, MAXLEN ~ 10000, P=16", append(16, 600_000, "MAXLEN", "~", "10000", *FIELDS), 1.3),
    Case("XADD, everysec, P=16", append(16, 500_000), 1.2, arguments=EVERYSEC),
    Case("XADD, always, P=1", append(1, 60_000), 1.1, arguments=ALWAYS),
    Case("XADD, always, P=16", append(16, 400_000), 1.1, arguments=ALWAYS),
]

main = command(CASES, __doc__, "append")

if __name__ == "__main__":
    main()
