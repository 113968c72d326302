"""Reports about a server: INFO and CLIENT LIST, as exporters and job libraries request them.

    python -m benchmarks.info [--rounds N] [--only WORD] [--quick] [--servers NAMES]

Fifty connections send the same request over and over, one at a time each. CLIENT LIST lists them. The server has a key.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.cases import Case, Sample, measure
from benchmarks.load import Requests, make_request
from benchmarks.script import command
from benchmarks.servers import Server


def request(number: int, *words: str) -> Callable[[Server, float], Sample]:
    """The same request, `number` of times."""

    def run(server: Server, scale: float) -> Sample:
        return measure(server, Requests([make_request(*words)]), int(number * scale))

    return run


def store_something(server: Server, scale: float) -> None:
    server.send("SET", "key", "value")


CASES = [
    Case("INFO", request(10_000, "INFO"), prepare=store_something),
    Case("INFO all", request(10_000, "INFO", "all"), prepare=store_something),
    Case("CLIENT LIST of 50", request(5_000, "CLIENT", "LIST"), prepare=store_something),
]

main = command(CASES, __doc__, "info")

if __name__ == "__main__":
    main()
