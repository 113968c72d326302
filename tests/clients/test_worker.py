"""A consumer-group worker that is killed in the middle of its work and started again gets its pending entries first.

Runs against streamd always, and against a real Redis when there is one (marked `real`).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from support.servers import Server, eventually

WORKER = Path(__file__).parents[1] / "support" / "worker.py"


class Run:
    """A worker process and what it has said."""

    def __init__(self, port: int, consumer: str, *more: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(WORKER), str(port), "s", "g", consumer, *more], stdout=subprocess.PIPE, text=True
        )

    def says(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the worker has ended"
        return json.loads(line)

    def says_until(self, phase: str) -> list[dict[str, Any]]:
        """What it says before it says `phase`."""
        said = []
        while (what := self.says())["phase"] != phase:
            said.append(what)
        return said

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def start(server: Server) -> Iterator[Callable[..., Run]]:
    runs: list[Run] = []

    def start(consumer: str, *more: str) -> Run:
        runs.append(Run(server.port, consumer, *more))
        return runs[-1]

    yield start
    for run in runs:
        if run.process.poll() is None:
            run.kill()


@pytest.fixture
def client(server: Server) -> Iterator[redis.Redis]:
    with redis.Redis(port=server.port, decode_responses=True) as client:
        client.xgroup_create("s", "g", mkstream=True)
        yield client


def add(client: redis.Redis, count: int) -> list[str]:
    return [client.xadd("s", {"n": n}) for n in range(count)]


def pending(client: redis.Redis) -> list[str]:
    return [row["message_id"] for row in client.xpending_range("s", "g", "-", "+", 1000)]


def test_a_killed_worker_gets_its_pending_entries_first(client: redis.Redis, start: Callable[..., Run]) -> None:
    ids = add(client, 25)
    first = start("alice", "--stuck-after", "4")
    handled = [what["id"] for what in first.says_until("stuck") if "id" in what]
    assert handled == ids[:4]
    first.kill()
    assert pending(client) == ids[4:10]

    later = add(client, 5)
    second = start("alice")
    backlog = second.says_until("waiting")
    assert [(what["phase"], what["id"]) for what in backlog] == [("backlog", entry_id) for entry_id in ids[4:10]]
    new = [second.says() for _ in range(len(ids) - 10 + len(later))]
    assert [(what["phase"], what["id"]) for what in new] == [("new", entry_id) for entry_id in [*ids[10:], *later]]
    eventually(lambda: pending(client) == [])


def test_a_worker_killed_while_it_waits_loses_nothing(client: redis.Redis, start: Callable[..., Run]) -> None:
    first = start("alice")
    assert first.says_until("waiting") == []
    eventually(lambda: client.info("clients")["blocked_clients"] == 1)
    first.kill()
    eventually(lambda: client.info("clients")["blocked_clients"] == 0)
    ids = add(client, 3)
    assert pending(client) == []
    second = start("alice")
    assert second.says_until("waiting") == []
    assert [second.says()["id"] for _ in ids] == ids


def test_another_worker_takes_over_what_a_dead_one_left(client: redis.Redis, start: Callable[..., Run]) -> None:
    ids = add(client, 10)
    first = start("alice", "--stuck-after", "0")
    first.says_until("stuck")
    first.kill()
    assert client.xautoclaim("s", "g", "bob", 0, justid=True) == ids
    second = start("bob")
    assert [what["id"] for what in second.says_until("waiting")] == ids
    eventually(lambda: pending(client) == [])
    counts = {c["name"]: c["pending"] for c in client.xinfo_consumers("s", "g")}
    assert counts == {"alice": 0, "bob": 0}


def test_two_workers_share_the_work(client: redis.Redis, start: Callable[..., Run]) -> None:
    runs = [start("alice"), start("bob")]
    for run in runs:
        run.says_until("waiting")
    eventually(lambda: client.info("clients")["blocked_clients"] == 2)
    ids = add(client, 2)
    assert sorted(run.says()["id"] for run in runs) == sorted(ids)
    eventually(lambda: pending(client) == [])
