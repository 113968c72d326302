"""What a server says about itself: INFO and CLIENT LIST, and scripts that are flushed and loaded again.

    python -m benchmarks.describing [--rounds N] [--only WORD] [--quick] [--servers NAMES]

Exporters request INFO and CLIENT LIST all the time, and libraries of jobs flush and load their scripts at every start. One
connection sends a request after the other, without a pipeline; with CLIENT LIST so many others are connected and silent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from benchmarks import load
from benchmarks.cases import Case, Sample, measure, measuring
from benchmarks.load import Requests, make_request
from benchmarks.script import command
from benchmarks.servers import Server

SCRIPT = "return redis.call('GET', KEYS[1])"


def ask(number: int, *request: str, connections: int = 1) -> Callable[[Server, float], Sample]:
    """One request again and again, while so many connections are open."""

    def run(server: Server, scale: float) -> Sample:
        with load.open_connections(server.port, connections):
            for _ in range(connections):
                server.send("PING")
            return measure(server, Requests([make_request(*request)]), max(1, int(number * scale)), connections=1)

    return run


def load_again(number: int) -> Callable[[Server, float], Sample]:
    """SCRIPT FLUSH, SCRIPT LOAD and EVALSHA, in turn; an operation is all three."""
    sha = hashlib.sha1(SCRIPT.encode(), usedforsecurity=False).hexdigest()
    requests = [("SCRIPT", "FLUSH"), ("SCRIPT", "LOAD", SCRIPT), ("EVALSHA", sha, "1", "bench:key")]

    def run(server: Server, scale: float) -> Sample:
        turns = max(1, int(number * scale))
        prepared = Requests([make_request(*request) for request in requests])
        with load.open_connections(server.port) as socks, measuring(server, turns) as sample:
            load.run_loop(socks, prepared, 3 * turns)
        return sample

    return run


CASES = [
    Case("INFO", ask(20_000, "INFO"), 0.67),
    Case("INFO all", ask(10_000, "INFO", "all"), 0.67),
    Case("CLIENT LIST of 200", ask(3_000, "CLIENT", "LIST", connections=200), 0.67),
    Case("CLIENT LIST of 5,000", ask(200, "CLIENT", "LIST", connections=5_000), 0.67),
    Case("SCRIPT FLUSH, SCRIPT LOAD, EVALSHA", load_again(3_000), 0.67),
]

main = command(CASES, __doc__, "describing")

if __name__ == "__main__":
    main()
