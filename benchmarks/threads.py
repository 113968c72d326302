"""Threads for connections: CPU of the thread that runs commands, for XADD and for messages to many, with `io-threads`.

    python -m benchmarks.threads [--threads 2] [--requests 200000] [--only WORD]

256 connections send XADD over and over, P of them at a time each; 16 send long values; then one publishes messages of 64 bytes and of 10 KiB to 100 and to
1,000 subscribers, and adds entries of 10 KiB to a stream of which as many wait for the next one (XREAD), where the figures are per message delivered. The figures are read from /proc/PID/task: the first thread
runs the commands, those named io_thd_N receive and send. Linux only.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.load import Requests, make_request, open_connections, run_fan, run_loop
from benchmarks.pubsub import CHANNEL, PAYLOAD, audience
from benchmarks.servers import Server, describe_machine, find_servers, start_server
from benchmarks.waiting import send_each, wait_until_blocked

CONNECTIONS = 256
LONG = "x" * 10240
FIELDS = ("*", "sensor-id", "1234", "temperature", "19.8")


def cpu_by_thread_s(pid: int) -> dict[str, float]:
    """Seconds that each thread of a process has run, exact to the nanosecond: the name of a thread, `main` for the first."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        name = "main" if task.name == str(pid) else (task / "comm").read_text().strip()
        found[name] = int((task / "schedstat").read_text().split()[0]) / 1e9
    return found


@contextmanager
def measuring_threads(server: Server, total: int) -> Iterator[list[str]]:
    """The list gets the figures, in microseconds for one of `total` operations."""
    found: list[str] = []
    before, began = cpu_by_thread_s(server.pid), time.perf_counter()
    yield found
    took_s, after = time.perf_counter() - began, cpu_by_thread_s(server.pid)
    spent = {name: 1e6 * (after[name] - before.get(name, 0.0)) / total for name in after}
    threads = [us for name, us in spent.items() if name.startswith("io_thd_")]
    found.append(
        f"commands {spent['main']:5.2f} us, connections {sum(threads):5.2f} us on {len(threads)} threads,"
        f" {total / took_s:9,.0f} per second"
    )


def append(server: Server, depth: int, total: int) -> str:
    with open_connections(server.port, CONNECTIONS) as socks:
        requests = Requests([make_request("XADD", "mystream", *FIELDS)])
        run_loop(socks, requests, total // 10, depth=depth)
        server.send("DEL", "mystream")
        with measuring_threads(server, total) as found:
            run_loop(socks, requests, total, depth=depth)
    return found[0]


def put(server: Server, size: int, total: int) -> str:
    with open_connections(server.port, 16) as socks:
        requests = Requests([make_request("SET", "key", "x" * size)])
        run_loop(socks, requests, 32)
        with measuring_threads(server, total) as found:
            run_loop(socks, requests, total)
    return found[0]


def publish(server: Server, subscribers: int, total: int, payload: str = PAYLOAD) -> str:
    rounds = total // subscribers
    with audience(server, subscribers, []) as (publisher, *listeners):
        requests = Requests([make_request("PUBLISH", CHANNEL, payload)])
        with measuring_threads(server, rounds * subscribers) as found:
            run_fan(publisher, listeners, requests, rounds, expected=subscribers, depth=1, window=2)
    return found[0]


def add_entries(server: Server, readers: int, total: int) -> str:
    rounds = total // readers
    waiting = make_request("XREAD", "BLOCK", 0, "STREAMS", "news", "$")
    sent = Requests([make_request("XADD", "news", "MAXLEN", 10, "*", "message", LONG)])
    with open_connections(server.port, 1 + readers) as (sender, *listeners):
        send_each(listeners, [waiting] * readers)
        wait_until_blocked(server, readers)
        with measuring_threads(server, rounds * readers) as found:
            run_fan(
                sender,
                listeners,
                sent,
                rounds,
                expected=readers,
                answers=Requests([waiting]),
                barrier=make_request("PING"),
            )
    return found[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", default="2")
    parser.add_argument("--requests", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="Measure the rows with this word in their name. Default: all")
    options = parser.parse_args()
    names = find_servers(("streamd", "redis"))[0]
    print(describe_machine(connections=CONNECTIONS, io_threads=options.threads))
    rows = [
        ("XADD, P=1", lambda server: append(server, 1, options.requests)),
        ("XADD, P=16", lambda server: append(server, 16, 5 * options.requests)),
        ("SET 100 KiB", lambda server: put(server, 100 << 10, options.requests // 10)),
        ("SET 1 MiB", lambda server: put(server, 1 << 20, options.requests // 100)),
        ("PUBLISH to 100", lambda server: publish(server, 100, 5 * options.requests)),
        ("PUBLISH to 1,000", lambda server: publish(server, 1000, 5 * options.requests)),
        ("10 KiB to 100", lambda server: publish(server, 100, options.requests, LONG)),
        ("10 KiB to 1,000", lambda server: publish(server, 1000, options.requests, LONG)),
        ("XREAD of 100", lambda server: add_entries(server, 100, options.requests // 2)),
        ("XREAD of 1,000", lambda server: add_entries(server, 1000, options.requests // 2)),
    ]
    for row, measure in rows:
        if options.only not in row:
            continue
        for _ in range(options.rounds):
            for name in names:
                with start_server(name, "--io-threads", options.threads) as server:
                    for task in Path(f"/proc/{server.pid}/task").iterdir():
                        os.sched_setaffinity(int(task.name), range(os.cpu_count() or 1))
                    print(f"{row:16} {name:8} {measure(server)}", flush=True)


if __name__ == "__main__":
    main()
