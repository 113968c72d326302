"""Publish/subscribe: what a delivered message costs, and how long one takes, with few and many subscribers and patterns.

    python -m benchmarks.pubsub [--rounds N] [--only WORD] [--quick] [--servers NAMES]

Two questions for each number of subscribers. What a delivered message costs when a publisher sends as fast as it may:
PUBLISH requests in a pipeline, so many at a time that a bounded number of messages is under way; an operation is one
message delivered to one subscription. And how long one message takes, from before it is sent until the last subscriber has
it and the publisher its reply, when messages come one at a time at a rate that every server bears: median and 99th
percentile of the same messages, in us. There is no rate in these rows, since it is given.
"""

from __future__ import annotations

import socket
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from benchmarks.cases import Case, Sample, measuring
from benchmarks.load import Counter as ReplyCounter
from benchmarks.load import Histogram, Requests, make_request, open_connections, run_fan
from benchmarks.script import command
from benchmarks.servers import Server

PAYLOAD = "x" * 64
CHANNEL = "news:0000000000"
UNDER_WAY = 100_000
"""Messages that may be on their way to subscribers at a time: what sockets hold without being read."""
MAX_DEPTH = 500
PATTERNS = 1000

# The channel's namespace, and the same first bytes: nothing that is seen at a glance.
IDLE = [f"news:{i:010d}:*" for i in range(PATTERNS)]
MATCHING = [f"news:{i:010b}".replace("1", "?") for i in range(PATTERNS)]


@contextmanager
def audience(server: Server, subscribers: int, patterns: list[str]) -> Iterator[list[socket.socket]]:
    """A publisher and, behind it, those who listen: to the channel, each over its own connection, and to the patterns."""
    with open_connections(server.port, 1 + subscribers + bool(patterns)) as socks:
        for sock in socks[1 : subscribers + 1]:
            subscribe(sock, "SUBSCRIBE", [CHANNEL])
        if patterns:
            subscribe(socks[-1], "PSUBSCRIBE", patterns)
        yield socks


def subscribe(sock: socket.socket, word: str, names: list[str]) -> None:
    """Subscribe, and wait until the server has said so for each name."""
    sock.sendall(make_request(word, *names))
    count = ReplyCounter()
    while count.replies + count.pushes < len(names):
        count.feed(sock.recv(1 << 16))


def deliver(subscribers: int, publish: int, patterns: list[str] | None = None) -> Callable[[Server, float], Sample]:
    """Publish `publish` messages in pipelines, two of which are under way at a time."""
    patterns = patterns or []
    per_message = subscribers + (len(patterns) if patterns is MATCHING else 0)
    depth = max(1, min(MAX_DEPTH, UNDER_WAY // 2 // per_message))
    requests = Requests([make_request("PUBLISH", CHANNEL, PAYLOAD)]).at_least(depth)

    def run(server: Server, scale: float) -> Sample:
        rounds = max(4, int(publish * scale) // depth)
        with (
            audience(server, subscribers, patterns) as (publisher, *listeners),
            measuring(server, rounds * depth * per_message) as sample,
        ):
            run_fan(publisher, listeners, requests, rounds, expected=depth * per_message, depth=depth, window=2)
        return sample

    return run


class Times:
    """How long messages take that are published at a steady rate, until the last subscriber has them.

    Each percentile is a case of its own, and the n-th run of every one of them is about the same messages.
    """

    def __init__(self, subscribers: int, rate: int) -> None:
        self._subscribers = subscribers
        self._rate = rate
        self._requests = Requests([make_request("PUBLISH", CHANNEL, PAYLOAD)])
        self._runs: dict[int, list[Histogram]] = defaultdict(list)  # by the server's process
        self._told: Counter[tuple[int, float]] = Counter()  # runs of a percentile, by process and percentile

    def percentile(self, share: float) -> Callable[[Server, float], Sample]:
        """The run of a case: below which time that share of all messages is."""

        def run(server: Server, scale: float) -> Sample:
            runs, at = self._runs[server.pid], self._told[server.pid, share]
            if at == len(runs):
                runs.append(self._measure(server, scale))
            self._told[server.pid, share] += 1
            return Sample(runs[at].total, figure=runs[at].percentile_us(share))

        return run

    def _measure(self, server: Server, scale: float) -> Histogram:
        with audience(server, self._subscribers, []) as (publisher, *listeners):
            return run_fan(publisher, listeners, self._requests, max(50, int(self._rate * scale)),
                           expected=self._subscribers, interval_s=1 / self._rate, is_timed=True).times  # fmt: skip


TO_1, TO_100, TO_1000 = Times(1, 2000), Times(100, 500), Times(1000, 50)


CASES = [
    Case("PUBLISH to 1 subscriber, per delivery", deliver(1, 400_000), 1.0),
    Case("PUBLISH to 10 subscribers, per delivery", deliver(10, 200_000), 1.0),
    Case("PUBLISH to 100 subscribers, per delivery", deliver(100, 30_000), 1.0),
    Case("PUBLISH to 1,000 subscribers, per delivery", deliver(1000, 3_000), 1.0),
    Case("PUBLISH, 1,000 patterns, none matches", deliver(1, 20_000, IDLE), 1.5),
    Case("PUBLISH, 1,000 patterns, all match, per delivery", deliver(1, 1_000, MATCHING), 1.5),
    Case("PUBLISH to 1 subscriber, time: median", TO_1.percentile(0.5), by="us"),
    Case("PUBLISH to 1 subscriber, time: p99", TO_1.percentile(0.99), by="us"),
    Case("PUBLISH to 100 subscribers, time: median", TO_100.percentile(0.5), by="us"),
    Case("PUBLISH to 100 subscribers, time: p99", TO_100.percentile(0.99), by="us"),
    Case("PUBLISH to 1,000 subscribers, time: median", TO_1000.percentile(0.5), by="us"),
    Case("PUBLISH to 1,000 subscribers, time: p99", TO_1000.percentile(0.99), by="us"),
]

main = command(CASES, __doc__, "pubsub")

if __name__ == "__main__":
    main()
