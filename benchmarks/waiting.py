"""Waking waiting clients: one consumer of a group for each message, or every reader of a stream.

    python -m benchmarks.waiting [--rounds N] [--only WORD] [--quick] [--servers NAMES]

A message to a group with N waiting consumers wakes one of them, which waits again immediately, as a worker does: the
cost of a message is its XADD, the reply to the consumer that was woken, and its next XREADGROUP, on every server. BATCH
messages are under way at a time, whatever N is, so that N alone makes the difference: with N=1 they go to as many streams,
each with a consumer of its own, otherwise to one stream. The last row compares the cost at N=1,000 with that at N=1.

A message to N waiting readers wakes them all: an operation is one message delivered to one of them, including the XREAD
with which it waits for the next. A PING between the messages lets all of them wait again before the next one comes.
With N=1, it is BATCH streams again.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence

from benchmarks.cases import Case, Sample, measuring, remove, send_all
from benchmarks.load import Requests, make_request, open_connections, run_fan
from benchmarks.script import command
from benchmarks.servers import Server

BATCH = 16
"""Messages to a group that are under way at a time."""
PAYLOAD = "x" * 50
DEADLINE_S = 20


def wait_until_blocked(server: Server, number: int) -> None:
    """Return when this number of clients wait for a key."""
    deadline = time.monotonic() + DEADLINE_S
    while (waiting := server.info("clients").get("blocked_clients")) != str(number):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{waiting} clients of {server.name} wait, not {number}")
        time.sleep(0.001)


def send_each(socks: Sequence[socket.socket], requests: Sequence[bytes]) -> None:
    """Send a request over each connection, and await nothing."""
    for sock, request in zip(socks, requests, strict=True):
        sock.sendall(request)


def to_waiting(
    clients: int,
    number: int,
    push: Callable[[str], bytes],
    wait: Callable[[str, int], bytes],
    prepare: Callable[[str], bytes] | None = None,
) -> Callable[[Server, float], Sample]:
    """What keys get while `clients` wait for each.

    push     key -> the request that serves a client
    wait     key, number of a client -> the request with which it waits, again after each reply
    prepare  key -> a request that is sent before
    """
    keys = [f"work:{i}" for i in range(BATCH if clients == 1 else 1)]

    def run(server: Server, scale: float) -> Sample:
        rounds = max(2, int(number * scale) // BATCH)
        remove(server, (f"work:{i}" for i in range(BATCH)))
        if prepare is not None:
            send_all(server, [prepare(key) for key in keys])
        waiting = [wait(keys[i % len(keys)], i) for i in range(len(keys) * clients)]
        pushes = Requests(push(keys[i % len(keys)]) for i in range(BATCH))
        with open_connections(server.port, 1 + len(waiting)) as (sender, *listeners):
            send_each(listeners, waiting)
            wait_until_blocked(server, len(waiting))
            with measuring(server, rounds * BATCH) as sample:
                run_fan(sender, listeners, pushes, rounds, expected=BATCH, depth=BATCH,
                        answers=Requests(waiting), has_own_answers=True)  # fmt: skip
        return sample

    return run


def to_group(consumers: int, number: int) -> Callable[[Server, float], Sample]:
    """Messages to groups with `consumers` waiting for each."""
    return to_waiting(
        consumers,
        number,
        push=lambda key: make_request("XADD", key, "*", "message", PAYLOAD),
        wait=lambda key, i: make_request(
            "XREADGROUP", "GROUP", "g", f"c{i}", "COUNT", 1, "BLOCK", 0, "STREAMS", key, ">"
        ),
        prepare=lambda key: make_request("XGROUP", "CREATE", key, "g", "$", "MKSTREAM"),
    )


def times_as_much(few: Callable[[Server, float], Sample], many: Callable[[Server, float], Sample]) -> Callable[[Server, float], Sample]:  # fmt: skip
    """How many times as much server CPU an operation of one takes as that of another."""

    def run(server: Server, scale: float) -> Sample:
        costs = [sample.cpu_s / sample.operations for sample in (few(server, scale), many(server, scale))]
        return Sample(1, cpu_s=costs[1], figure=costs[1] / costs[0])

    return run


def to_readers(readers: int, messages: int) -> Callable[[Server, float], Sample]:
    """Messages to streams with `readers` waiting for each."""
    streams = BATCH if readers == 1 else 1

    def run(server: Server, scale: float) -> Sample:
        rounds = max(3, int(messages * scale) // streams)
        keys = [f"news:{i}" for i in range(streams)]
        remove(server, (f"news:{i}" for i in range(BATCH)))
        send_all(server, [make_request("XADD", key, "*", "message", PAYLOAD) for key in keys])
        waiting = [
            make_request("XREAD", "BLOCK", 0, "STREAMS", keys[i % streams], "$") for i in range(streams * readers)
        ]
        sent = Requests(make_request("XADD", key, "*", "message", PAYLOAD) for key in keys)
        with open_connections(server.port, 1 + len(waiting)) as (sender, *listeners):
            send_each(listeners, waiting)
            wait_until_blocked(server, len(waiting))
            with measuring(server, rounds * len(waiting)) as sample:
                run_fan(sender, listeners, sent, rounds, expected=len(waiting), depth=streams,
                        answers=Requests(waiting), has_own_answers=True, barrier=make_request("PING"))  # fmt: skip
        return sample

    return run


CASES = [
    Case("message to a group, 1 consumer waits", to_group(1, 60_000)),
    Case("message to a group, 100 consumers wait", to_group(100, 20_000)),
    Case("message to a group, 1,000 consumers wait", to_group(1000, 3_000), 100),
    Case(
        "message to a group: cost with 1,000 over cost with 1",
        times_as_much(to_group(1, 20_000), to_group(1000, 2_000)),
        by="times",
        limit=1.2,
    ),
    Case("message to 1 waiting reader", to_readers(1, 20_000), 1.2),
    Case("message to 100 waiting readers, per delivery", to_readers(100, 600), 1.2),
    Case("message to 1,000 waiting readers, per delivery", to_readers(1000, 60), 1.2),
]

main = command(CASES, __doc__, "waiting")

if __name__ == "__main__":
    main()
