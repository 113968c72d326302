"""A delayed queue: jobs with a due time, and workers that share the jobs that are due.

    python examples/delayed_queue.py                          its own server
    python examples/delayed_queue.py --url redis://host:6379

    add ---> queue:due:<slot> ---> move ---> queue:ready ---> consumer group `workers` ---> done, or delivered again
             a stream for each               a stream
             tenth of a second

Jobs that are due in the same tenth of a second wait in their own stream until it is over, so none is early. Any number of processes
may call `move` at any time: the script moves the streams that are due, in order, and records its position in a string. A
job is in exactly one of the streams at any moment, since a script runs as one step, and its changes are saved as one.
Needs redis-py, which `./install` installs.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import redis
from redis.exceptions import ResponseError

import streamd.embedded

SLOT_MS = 100
GROUP = "workers"
READY, DUE, MOVED = "{queue}:ready", "{queue}:due:", "{queue}:moved"
"""Jobs that are due; the others, followed by their slot; the last slot that was moved."""

NOW = """
local time = redis.call('TIME')
local ms = time[1] * 1000 + time[2] / 1000
local now = math.floor(ms / tonumber(ARGV[1]))
"""

ADD = (
    NOW
    + """
-- KEYS: ready, due, moved. ARGV: ms of a slot, the delay in ms, the job. Returns where the job is, and its ID there.
redis.call('SET', KEYS[3], now, 'NX')
local slot = math.ceil((ms + tonumber(ARGV[2])) / tonumber(ARGV[1]))
local key = KEYS[1]
if tonumber(ARGV[2]) > 0 and slot > tonumber(redis.call('GET', KEYS[3])) then
    key = KEYS[2] .. string.format('%.0f', slot)
end
return {key, redis.call('XADD', key, '*', 'job', ARGV[3])}
"""
)

MOVE = (
    NOW
    + """
-- KEYS: ready, due, moved. ARGV: ms of a slot, how many slots at most. Returns how many jobs have become due.
local moved, jobs = tonumber(redis.call('GET', KEYS[3]) or now), 0
for slot = moved + 1, math.min(now, moved + tonumber(ARGV[2])) do
    local key = KEYS[2] .. string.format('%.0f', slot)
    for _, entry in ipairs(redis.call('XRANGE', key, '-', '+')) do
        redis.call('XADD', KEYS[1], '*', unpack(entry[2]))
        jobs = jobs + 1
    end
    redis.call('DEL', key)
    moved = slot
end
redis.call('SET', KEYS[3], string.format('%.0f', moved))
return jobs
"""
)


class DelayedQueue:
    """The queue, as those see it who add jobs, move them, or work."""

    KEYS = (READY, DUE, MOVED)

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._add = client.register_script(ADD)
        self._move = client.register_script(MOVE)
        try:
            client.xgroup_create(READY, GROUP, id="0", mkstream=True)
        except ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise

    def add(self, job: str, delay_s: float = 0.0) -> None:
        """Add a job that is due after `delay_s`."""
        self._add(keys=self.KEYS, args=[SLOT_MS, math.ceil(delay_s * 1000), job])

    def move(self, slots: int = 1000) -> int:
        """Make the jobs ready whose time has come; returns how many."""
        return int(self._move(keys=self.KEYS, args=[SLOT_MS, slots]))

    def take(self, worker: str, count: int = 10, block_ms: int = 100) -> list[tuple[bytes, str]]:
        """Jobs for a worker, with the IDs to be acknowledged."""
        found = self._client.xreadgroup(GROUP, worker, {READY: ">"}, count=count, block=block_ms) or []
        return [(entry, fields[b"job"].decode()) for _, entries in found for entry, fields in entries]

    def done(self, *entries: bytes) -> None:
        """Acknowledge jobs, and remove them."""
        with self._client.pipeline() as pipeline:
            pipeline.xack(READY, GROUP, *entries)
            pipeline.xdel(READY, *entries)
            pipeline.execute()


@dataclass
class Summary:
    """What happened."""

    order: list[str] = field(default_factory=list)  # jobs as they came
    late_s: list[float] = field(default_factory=list)  # how long after its time each one came


def run(client: redis.Redis, delays_s: Sequence[float] = (0.6, 0.2, 0.4, 0.0)) -> Summary:
    """Add jobs with the given delays, and work them off."""
    client.delete(*DelayedQueue.KEYS)
    queue, summary = DelayedQueue(client), Summary()
    began = time.monotonic()
    for delay_s in delays_s:
        queue.add(f"due after {delay_s}", delay_s)
    while len(summary.order) < len(delays_s):
        queue.move()
        for entry, job in queue.take("worker"):
            summary.order.append(job)
            summary.late_s.append(time.monotonic() - began - float(job.split()[-1]))
            queue.done(entry)
    return summary


@contextlib.contextmanager
def connected(url: str | None) -> Iterator[redis.Redis]:
    """A client of the server at `url`, or of one of its own."""
    if url is not None:
        with redis.Redis.from_url(url, socket_timeout=None) as client:
            yield client
        return
    with streamd.embedded.start() as server, server.client() as client:
        yield client


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--url", help="the server; one of its own by default")
    with connected(parser.parse_args().url) as client:
        found = run(client)
    for job, late_s in zip(found.order, found.late_s, strict=True):
        print(f"{job} s: came {late_s * 1000:.0f} ms after that")


if __name__ == "__main__":
    main()
