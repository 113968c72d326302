"""Publish/subscribe: what a delivered message costs, and how long one takes, with few and many subscribers and patterns.

    python -m benchmarks.pubsub [--rounds N] [--only WORD] [--quick] [--servers NAMES]

Two questions for each number of subscribers. What a delivered message costs when a publisher sends as fast as it may:
PUBLISH requests in a pipeline, so many at a time that a bounded number of messages is under way; an operation is one
message delivered to one subscription. And how long one message takes, from before it is sent until the last subscriber has
it and the publisher its reply, when messages come one at a time at a rate that every server bears: median and 99th
percentile of a run, in us.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from benchmarks.cases import Case, Sample, command, measuring
from benchmarks.load import Counter, Requests, make_request, open_connections, run_fan
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
    count = Counter()
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


def latency(share: float, subscribers: int, rate: int) -> Callable[[Server, float], Sample]:
    """Publish at a steady rate; below which time that share of all messages has reached its last subscriber."""
    requests = Requests([make_request("PUBLISH", CHANNEL, PAYLOAD)])

    def run(server: Server, scale: float) -> Sample:
        with audience(server, subscribers, []) as (publisher, *listeners):
            times = run_fan(publisher, listeners, requests, max(50, int(rate * scale)), expected=subscribers,
                            interval_s=1 / rate, is_timed=True).times  # fmt: skip
        return Sample(1, seconds=times.percentile_us(share) / 1e6)

    return run


CASES = [
    Case("PUBLISH to 1 subscriber, per delivery", deliver(1, 400_000), 1.0),
    Case("PUBLISH to 10 subscribers, per delivery", deliver(10, 200_000), 1.0),
    Case("PUBLISH to 100 subscribers, per delivery", deliver(100, 30_000), 1.0),
    Case("PUBLISH to 1,000 subscribers, per delivery", deliver(1000, 3_000), 1.0),
    Case("PUBLISH, 1,000 patterns, none matches", deliver(1, 20_000, IDLE), 1.5),
    Case("PUBLISH, 1,000 patterns, all match, per delivery", deliver(1, 1_000, MATCHING), 1.5),
    Case("PUBLISH to 1 subscriber, time: median", latency(0.5, 1, 2000), by="clock"),
    Case("PUBLISH to 1 subscriber, time: p99", latency(0.99, 1, 2000), by="clock"),
    Case("PUBLISH to 100 subscribers, time: median", latency(0.5, 100, 500), by="clock"),
    Case("PUBLISH to 100 subscribers, time: p99", latency(0.99, 100, 500), by="clock"),
    Case("PUBLISH to 1,000 subscribers, time: median", latency(0.5, 1000, 50), by="clock"),
    Case("PUBLISH to 1,000 subscribers, time: p99", latency(0.99, 1000, 50), by="clock"),
]

main = command(CASES, __doc__, "pubsub")

if __name__ == "__main__":
    main()
