"""Threads for connections: CPU of the thread that runs commands, for XADD, with `io-threads`.

    python -m benchmarks.threads [--threads 2] [--requests 200000]

256 connections send XADD over and over, P of them at a time each. The figures are read from /proc/PID/task: the first thread
runs the commands, those named io_thd_N receive and send. Linux only.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from benchmarks.load import Requests, make_request, open_connections, run_loop
from benchmarks.servers import Server, describe_machine, find_servers, start_server

CONNECTIONS = 256
FIELDS = ("*", "sensor-id", "1234", "temperature", "19.8")


def cpu_by_thread_s(pid: int) -> dict[str, float]:
    """Seconds that each thread of a process has run, exact to the nanosecond: the name of a thread, `main` for the first."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        name = "main" if task.name == str(pid) else (task / "comm").read_text().strip()
        found[name] = int((task / "schedstat").read_text().split()[0]) / 1e9
    return found


def measure(server: Server, depth: int, total: int) -> str:
    with open_connections(server.port, CONNECTIONS) as socks:
        requests = Requests([make_request("XADD", "mystream", *FIELDS)])
        run_loop(socks, requests, total // 10, depth=depth)
        server.send("DEL", "mystream")
        before, began = cpu_by_thread_s(server.pid), time.perf_counter()
        run_loop(socks, requests, total, depth=depth)
        took_s, after = time.perf_counter() - began, cpu_by_thread_s(server.pid)
    spent = {name: 1e6 * (after[name] - before.get(name, 0.0)) / total for name in after}
    threads = [us for name, us in spent.items() if name.startswith("io_thd_")]
    return (
        f"commands {spent['main']:5.2f} us, connections {sum(threads):5.2f} us on {len(threads)} threads,"
        f" {total / took_s:9,.0f} requests per second"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", default="2")
    parser.add_argument("--requests", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    names = find_servers(("streamd", "redis"))[0]
    print(describe_machine(connections=CONNECTIONS, io_threads=options.threads))
    for depth in (1, 16):
        for _ in range(options.rounds):
            for name in names:
                with start_server(name, "--io-threads", options.threads) as server:
                    for task in Path(f"/proc/{server.pid}/task").iterdir():
                        os.sched_setaffinity(int(task.name), range(os.cpu_count() or 1))
                    total = options.requests * (1 if depth == 1 else 5)
                    print(f"P={depth:<3} {name:8} {measure(server, depth, total)}", flush=True)


if __name__ == "__main__":
    main()
