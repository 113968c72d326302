"""How fast entries that are due move to another stream, and how soon the first one moves after a start with many that wait.

    python -m benchmarks.delayed [--entries N]

Entries are appended with times in the past before the stream has its rule (STREAMD.STREAM SET later FEEDS jobs DUE due); then the time until
all have moved is measured. For the start, entries wait for another day, but for one that is overdue and was appended last: it moves
when the index has been read. How late entries are is measured with 20,000 a second, each due 50 ms after it was appended.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

import click
import redis

DAY_MS = 86_400_000
PORT = 29_871
RATE, BATCH, SECONDS = 20_000, 200, 5


@contextmanager
def server(folder: str, *options: str) -> Iterator[redis.Redis]:
    command = [sys.executable, "-m", "streamd", "server", "--port", str(PORT), "--save", "", "--dir", folder, *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    client = redis.Redis(port=PORT, socket_timeout=60)
    try:
        for _ in range(600):
            try:
                client.ping()
                break
            except redis.exceptions.RedisError:
                time.sleep(0.1)
        yield client
    finally:
        client.close()
        process.terminate()
        process.wait()


def append(client: redis.Redis, count: int, due: int) -> None:
    for start in range(0, count, 10_000):
        pipe = client.pipeline(transaction=False)
        for number in range(start, min(count, start + 10_000)):
            pipe.xadd("later", {"due": due, "job": number, "at": due})
        pipe.execute()


def wait_for(client: redis.Redis, moved: int) -> float:
    began = time.perf_counter()
    while client.xlen("jobs") < moved:
        time.sleep(0.002)
    return time.perf_counter() - began


def set_rule(client: redis.Redis) -> None:
    client.execute_command("STREAMD.STREAM", "SET", "later", "FEEDS", "jobs", "DUE", "due")


@click.command(help=__doc__)
@click.option("--entries", default=300_000, show_default=True, help="Entries that move, and that wait.")
def main(entries: int) -> None:
    for options in ((), ("--appendonly", "yes")):
        with tempfile.TemporaryDirectory() as folder, server(folder, *options) as client:
            append(client, entries, 1000)
            set_rule(client)
            took = wait_for(client, entries)
            print(f"{' '.join(options) or 'in memory'}: {entries / took:,.0f} moves/s")
    with tempfile.TemporaryDirectory() as folder:
        with server(folder) as client:
            append(client, entries, int(time.time() * 1000) + DAY_MS)
            client.xadd("later", {"due": 1000, "job": "overdue"})
            client.save()
        with server(folder) as client:
            set_rule(client)
            print(
                f"index of {entries:,} entries: the one that is overdue moved after {1000 * wait_for(client, 1):,.0f} ms"
            )
        with server(folder) as client:
            client.flushall()
            set_rule(client)
            began = time.perf_counter()
            for step in range(RATE * SECONDS // BATCH):
                time.sleep(max(0.0, began + step * BATCH / RATE - time.perf_counter()))
                append(client, BATCH, int(time.time() * 1000) + 50)
            wait_for(client, RATE * SECONDS)
            late = sorted(int(id.partition(b"-")[0]) - int(fields[b"at"]) for id, fields in client.xrange("jobs"))
    print(f"late at {RATE:,}/s: median {statistics.median(late)} ms, p99 {late[len(late) * 99 // 100]} ms")


if __name__ == "__main__":
    main()
