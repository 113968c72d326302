"""A consumer-group worker as a program: first its own backlog, then new entries, each acknowledged after processing.

    python worker.py PORT STREAM GROUP CONSUMER [--stuck-after N]

Prints one line of JSON per entry, {"phase": "backlog" or "new", "id": ..., "fields": ...}, before it acknowledges it, and
{"phase": "waiting"} when it has processed its backlog. With --stuck-after N it handles N entries, prints
{"phase": "stuck"} in the middle of the next one, and waits there, to be killed.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

import redis

BATCH = 10
BLOCK_MS = 600_000


class Worker:
    def __init__(self, port: int, stream: str, group: str, consumer: str, stuck_after: int | None) -> None:
        self.client = redis.Redis(port=port, decode_responses=True, protocol=2)
        self.stream, self.group, self.consumer = stream, group, consumer
        self.stuck_after = stuck_after
        self.done = 0

    def read(self, start: str) -> list[tuple[str, dict[str, str]]]:
        reply: Any = self.client.xreadgroup(
            self.group, self.consumer, {self.stream: start}, count=BATCH, block=BLOCK_MS
        )
        return reply[0][1] if reply else []

    def run(self) -> None:
        start = "0"
        while backlog := self.read(start):
            for entry_id, fields in backlog:
                self.handle("backlog", entry_id, fields)
                start = entry_id
        say(phase="waiting")
        while True:
            for entry_id, fields in self.read(">"):
                self.handle("new", entry_id, fields)

    def handle(self, phase: str, entry_id: str, fields: dict[str, str]) -> None:
        if self.done == self.stuck_after:
            say(phase="stuck")
            threading.Event().wait()
        say(phase=phase, id=entry_id, fields=fields)
        self.client.xack(self.stream, self.group, entry_id)
        self.done += 1


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    port, stream, group, consumer, *more = sys.argv[1:]
    Worker(int(port), stream, group, consumer, int(more[1]) if more else None).run()
