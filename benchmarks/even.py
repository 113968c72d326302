"""A low, even load: what a request costs when requests come one at a time, at fixed times, as most servers see all day.

    python -m benchmarks.even [--rounds N] [--only WORD] [--quick] [--servers NAMES]

Forty connections take turns; each has at most one request under way. An operation is what an application does in one
go: a transaction with WATCH is two round trips. Between two operations the server sleeps, so the cost of waking up, of
cold caches, and of the server's own timers is part of the figure: CPU per operation. The last row is the CPU of a
second in which nothing comes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from benchmarks.cases import Case, Sample, measuring, remove, send_all
from benchmarks.load import Counter, make_request, open_connections
from benchmarks.script import command
from benchmarks.servers import Server
from streamd.digests import sha1_hex

CONNECTIONS = 40
SECONDS = 8
SUBSCRIBERS = 20
SCRIPT = "return redis.call('INCRBY', KEYS[1], ARGV[1])"

Steps = Sequence[Sequence[bytes]]
"""The round trips of an operation, each the requests that are sent together."""


def at_rate(rate: int, steps: Steps, *prepare: bytes, subscribers: int = 0) -> Callable[[Server, float], Sample]:
    """An operation `rate` times a second; `subscribers` of the channel `news` are sent what it publishes."""

    def run(server: Server, scale: float) -> Sample:
        remove(server, ["k", "s", "n"])
        send_all(server, prepare, depth=1)
        with ExitStack() as stack:
            for listener in stack.enter_context(open_connections(server.port, subscribers)) if subscribers else ():
                listener.sendall(make_request("SUBSCRIBE", "news"))
                listener.recv(1000)
            socks = stack.enter_context(open_connections(server.port, CONNECTIONS))
            counter = Counter()
            number = max(rate, int(rate * SECONDS * scale))
            with measuring(server, number) as sample:
                began = time.perf_counter()
                for at in range(number):
                    wait = began + at / rate - time.perf_counter()
                    if wait > 0:
                        time.sleep(wait)
                    sock = socks[at % CONNECTIONS]
                    for requests in steps:
                        expected = counter.replies + len(requests)
                        sock.sendall(b"".join(requests))
                        while counter.replies < expected:
                            counter.feed(sock.recv(65536))
        if counter.errors:
            raise ValueError(f"{server.name} has answered with {counter.errors} errors")
        return sample

    return run


def idle(server: Server, scale: float) -> Sample:
    """Nothing comes; an operation is a second."""
    seconds = max(2.0, SECONDS * scale)
    with measuring(server, seconds) as sample:
        time.sleep(seconds)
    return sample


ADD = make_request("XADD", "s", "MAXLEN", "~", 1000, "*", "sensor-id", 1234, "temperature", "19.8")
GROUP = make_request("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
READ = make_request("XREADGROUP", "GROUP", "g", "c", "COUNT", 1, "STREAMS", "s", ">")
ACK = make_request("XACK", "s", "g", "1-1")
RUN = make_request("EVAL", SCRIPT, 1, "n", 1)
RUN_KNOWN = make_request("EVALSHA", sha1_hex(SCRIPT.encode()), 1, "n", 1)
CHANGE = [make_request(*words) for words in (("MULTI",), ("INCR", "n"), ("EXEC",))]

OPERATIONS: dict[str, Callable[[int], Callable[[Server, float], Sample]]] = {
    "PING": lambda rate: at_rate(rate, [[make_request("PING")]]),
    "XADD": lambda rate: at_rate(rate, [[ADD]]),
    "PUBLISH to 20": lambda rate: at_rate(rate, [[make_request("PUBLISH", "news", "x" * 50)]], subscribers=SUBSCRIBERS),
    "XADD, XREADGROUP, XACK": lambda rate: at_rate(rate, [[ADD], [READ], [ACK]], GROUP),
    "EVAL": lambda rate: at_rate(rate, [[RUN]], RUN),  # the first script loads the interpreter
    "EVALSHA": lambda rate: at_rate(rate, [[RUN_KNOWN]], RUN),
    "WATCH ... EXEC": lambda rate: at_rate(
        rate, [[make_request("WATCH", "n")], [make_request("GET", "n")], CHANGE], make_request("SET", "n", 1)
    ),
    "XINFO STREAM": lambda rate: at_rate(rate, [[make_request("XINFO", "STREAM", "s")]], ADD),
}

CASES = [
    *(Case(f"{name}, {rate:,} a second", make(rate), 1.0) for name, make in OPERATIONS.items() for rate in (200, 1000)),
    Case("nothing, for a second", idle, 1.0),
]

main = command(CASES, __doc__, "even")

if __name__ == "__main__":
    main()
