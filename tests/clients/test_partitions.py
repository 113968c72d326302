"""Readers of the parts of a stream as processes, on clusters: none is without a reader, none has two, and order is kept."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis
import redis.asyncio
from support.servers import Server, eventually, python_environment

import streamd.embedded
from streamd.embedded import EmbeddedCluster
from streamd.partitions import AsyncReader, Batch, PartitionError, Parts, Reader
from streamd.partitions.sharing import share

pytestmark = pytest.mark.long

COUNT = 12

PROGRAM = """
import signal, sys
import redis
from streamd.partitions import Batch, Parts, Reader

client = redis.RedisCluster.from_url(sys.argv[1])

def handle(batch: Batch) -> None:
    for entry_id, fields in batch.entries:
        client.rpush(f"{batch.stream}:log", entry_id)

reader = Reader(client, Parts.open(client, "orders"), "billing", handle, consumer=sys.argv[2], lease_s=1.0, count=3)
signal.signal(signal.SIGTERM, lambda *_: reader.stop())
reader.run()
"""

ASYNC_PROGRAM = """
import asyncio, signal, sys
import redis.asyncio
from streamd.partitions import AsyncReader, Batch, Parts

async def main() -> None:
    async with redis.asyncio.RedisCluster.from_url(sys.argv[1]) as client:

        async def handle(batch: Batch) -> None:
            for entry_id, fields in batch.entries:
                await client.rpush(f"{batch.stream}:log", entry_id)

        parts = await Parts.open_async(client, "orders")
        reader = AsyncReader(client, parts, "billing", handle, consumer=sys.argv[2], lease_s=1.0, count=3)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, reader.stop)
        await reader.run()

asyncio.run(main())
"""


class Readers:
    """Processes that read, by name; every second one with asyncio."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.url = cluster.url
        self.client = cluster.client(decode_responses=True)
        self.parts = Parts.open(self.client, "orders", COUNT)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.stopped: set[str] = set()
        self.added = [0] * COUNT
        self.names = 0

    def join(self) -> None:
        name = f"reader-{self.names}"
        self.names += 1
        self.processes[name] = subprocess.Popen(
            [sys.executable, "-c", (PROGRAM, ASYNC_PROGRAM)[self.names % 2], self.url, name], env=python_environment()
        )

    def signal(self, name: str, number: int) -> None:
        self.processes[name].send_signal(number)
        if number in (signal.SIGKILL, signal.SIGTERM):
            os.kill(self.processes[name].pid, signal.SIGCONT)
            status = self.processes.pop(name).wait(60)
            assert status == (-signal.SIGKILL if number == signal.SIGKILL else 0)
        (self.stopped.add if number == signal.SIGSTOP else self.stopped.discard)(name)

    @property
    def running(self) -> list[str]:
        return [name for name in self.processes if name not in self.stopped]

    def add(self, entries: int = 4) -> None:
        for number, stream in enumerate(self.parts.streams):
            for _ in range(entries):
                self.added[number] += 1
                self.client.xadd(stream, {"n": self.added[number]}, id=f"{self.added[number]}-0")

    def holders(self) -> list[str]:
        """Who has the lease of each part."""
        found = [self.client.get(f"{stream}:lease:billing") for stream in self.parts.streams]
        return [(each or "nobody").partition("/")[0] for each in found]

    def are_settled(self) -> bool:
        """Whether each part has one reader that runs, and the parts are shared evenly."""
        found = self.holders()
        counts = [found.count(name) for name in self.running]
        return set(found) == set(self.running) and max(counts) - min(counts) <= 1

    def handled(self, number: int) -> list[int]:
        """The entries of a part in the order in which they were handled first."""
        found = self.client.lrange(f"{self.parts.stream(number)}:log", 0, -1)
        return list(dict.fromkeys(int(each.partition("-")[0]) for each in found))

    def check(self) -> None:
        """Everything is handled, in order, and nobody else reads."""
        wanted = [list(range(1, number + 1)) for number in self.added]
        eventually(lambda: [self.handled(number) for number in range(COUNT)] == wanted, what="all handled, in order")
        # A lease that expires on a slow machine moves its part at any time: all is looked at again until it holds at once.
        eventually(
            lambda: self.are_settled() and all(map(self.is_read_by_one, self.parts.streams, self.holders())),
            what=f"{self.running} share the parts, and nobody else reads",
        )

    def is_read_by_one(self, stream: str, holder: str) -> bool:
        """Whether only the holder of the lease has read since it got it, and everything is acknowledged."""
        consumers = {each["name"] for each in self.client.xinfo_consumers(stream, "billing")}
        return consumers <= {holder} and self.client.xpending(stream, "billing")["pending"] == 0


@pytest.fixture
def readers(streamd_cluster: EmbeddedCluster) -> Iterator[Readers]:
    found = Readers(streamd_cluster)
    yield found
    for process in found.processes.values():
        process.kill()
        process.wait()


def test_after_joins_deaths_and_returns_each_part_has_one_reader_and_order_is_kept(readers: Readers) -> None:
    seed = int(os.environ.get("STREAMD_TEST_SEED") or random.randrange(2**32))
    print(f"STREAMD_TEST_SEED={seed}")
    rng = random.Random(seed)
    readers.join()
    readers.add()
    readers.check()
    deeds: list[Callable[[], None]] = [
        readers.join,
        readers.join,
        lambda: readers.signal(rng.choice(sorted(readers.processes)), signal.SIGKILL),
        lambda: readers.signal(rng.choice(readers.running or [*readers.processes]), signal.SIGSTOP),
        lambda: readers.signal(rng.choice(sorted(readers.processes)), signal.SIGCONT),
        lambda: readers.signal(rng.choice(sorted(readers.processes)), signal.SIGTERM),
    ]
    for _ in range(10):
        readers.add()
        rng.choice(deeds)()
        readers.add()
        if not readers.running:
            readers.join()
        readers.check()


@pytest.mark.parametrize("is_async", [False, True])
def test_one_that_was_stopped_gets_nothing_by_its_old_lease(is_async: bool, readers: Readers) -> None:
    readers.names = int(not is_async)
    readers.join()
    readers.add()
    readers.check()
    (first,) = readers.running
    readers.signal(first, signal.SIGSTOP)
    readers.join()
    readers.add()
    readers.check()
    readers.signal(first, signal.SIGCONT)
    readers.add()
    readers.check()


def test_a_primary_fails_and_everything_is_handled_in_order() -> None:
    settings = {"cluster_node_timeout": 2000, "repl_diskless_sync_delay": 0}
    with streamd.embedded.start_cluster(nodes=6, replicas=1, own_process=True, **settings) as cluster:
        found = Readers(cluster)
        try:
            found.join()
            found.join()
            found.add()
            found.check()
            for node in cluster.nodes[:3]:
                with node.client() as client:
                    assert client.wait(1, 30_000) == 1
            cluster.nodes[0].kill()
            cluster.wait_until_ok()
            eventually(lambda: adds(found), what="all parts are served again")
            found.check()
        finally:
            for process in found.processes.values():
                process.kill()
                process.wait()


def adds(readers: Readers) -> bool:
    try:
        for number, stream in enumerate(readers.parts.streams):
            readers.client.xadd(stream, {"n": 0}, id=f"{readers.added[number] + 1}-0")
            readers.added[number] += 1
    except redis.RedisError:
        return False
    return True


# --- In this process ---------------------------------------------------------------------------------------------------


@contextmanager
def running(reader: Reader) -> Iterator[Reader]:
    thread = threading.Thread(target=reader.run)
    thread.start()
    try:
        yield reader
    finally:
        reader.stop()
        thread.join()


@pytest.fixture(params=["cluster", "one server"])
def client(request: pytest.FixtureRequest, streamd_server: Server) -> Iterator[Any]:
    if request.param == "cluster":
        yield request.getfixturevalue("streamd_cluster").client(decode_responses=True)
    else:
        with redis.Redis(port=streamd_server.port, decode_responses=True) as found:
            found.flushall()
            yield found


def test_a_handler_that_fails_ends_the_reader_and_the_next_one_handles_the_batch_again(client: Any) -> None:
    parts = Parts.open(client, "orders", 4)
    client.xadd(parts.stream_of("customer-1"), {"n": "1"}, id="1-1")

    def fail(batch: Batch) -> None:
        raise ValueError(f"cannot handle {batch.entries[0][0]}")

    with pytest.raises(ValueError, match="cannot handle 1-1"):
        Reader(client, parts, "billing", fail, lease_s=3600).run()
    assert client.xpending(parts.stream_of("customer-1"), "billing")["pending"] == 1
    got: list[Batch] = []
    with running(Reader(client, parts, "billing", got.append, consumer="next")) as reader:
        eventually(lambda: got, what="the part is free at once, not when a lease of an hour has expired")
        eventually(lambda: reader.held == {0, 1, 2, 3})
    assert [(batch.part, batch.stream, batch.entries) for batch in got] == [
        (parts.number_of("customer-1"), parts.stream_of("customer-1"), [("1-1", {"n": "1"})])
    ]
    assert client.xpending(parts.stream_of("customer-1"), "billing")["pending"] == 0
    assert [each["name"] for each in client.xinfo_consumers(parts.stream_of("customer-1"), "billing")] == ["next"]


def test_readers_that_end_leave_nothing_behind_but_groups(client: Any) -> None:
    parts = Parts.open(client, "orders", 4)
    with running(Reader(client, parts, "billing", lambda batch: None)) as one:
        with running(Reader(client, parts, "billing", lambda batch: None, lease_s=1)) as other:
            eventually(lambda: len(one.held) == len(other.held) == 2 and not one.held & other.held)
        assert other.held == frozenset()
    assert sorted(client.scan_iter()) == sorted([*parts.streams, "orders:parts"])


def test_a_new_group_starts_where_it_is_told_to(client: Any) -> None:
    parts = Parts.open(client, "orders", 1)
    client.xadd(parts.stream(0), {"n": "1"}, id="1-1")
    client.xadd(parts.stream(0), {"n": "2"}, id="2-1")
    got: list[Batch] = []
    with running(Reader(client, parts, "billing", got.append, start="1-1")):
        eventually(lambda: got)
        client.xadd(parts.stream(0), {"n": "3"}, id="3-1")
        eventually(lambda: len(got) > 1)
    assert [[entry_id for entry_id, _ in batch.entries] for batch in got] == [["2-1"], ["3-1"]]


def test_a_count_that_differs_from_what_exists_is_refused(client: Any) -> None:
    with pytest.raises(PartitionError, match=r"^orders has no parts yet: give their number$"):
        Parts.open(client, "orders")
    assert Parts.open(client, "orders", 4).count == 4
    assert Parts.open(client, "orders").count == 4
    wrong = r"^orders has 4 parts, not 8: use 4, or another name; keys would be in other parts$"
    with pytest.raises(PartitionError, match=wrong):
        Parts.open(client, "orders", 8)
    with pytest.raises(PartitionError, match=wrong):
        Reader(client, Parts("orders", 8), "billing", lambda batch: None).run()
    with pytest.raises(PartitionError, match="orders cannot have 0 parts"):
        Parts.open(client, "orders", 0)
    client.set("other:parts", "many")
    with pytest.raises(PartitionError, match="The key other:parts does not hold a number of parts: use another name"):
        Parts.open(client, "other", 4)
    assert sorted(client.scan_iter()) == ["orders:parts", "other:parts"]


def test_a_key_of_another_type_ends_the_reader(client: Any) -> None:
    parts = Parts.open(client, "orders", 2)
    client.set(parts.stream(1), "text")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        Reader(client, parts, "billing", lambda batch: None).run()


def test_a_cancelled_async_reader_gives_its_parts_back(streamd_cluster: EmbeddedCluster) -> None:
    async def main() -> None:
        async with streamd_cluster.async_client(decode_responses=True) as client:
            parts = await Parts.open_async(client, "orders", 4)
            started = asyncio.Event()

            async def handle(batch: Batch) -> None:
                started.set()
                await asyncio.Event().wait()

            await client.xadd(parts.stream(2), {"n": "1"}, id="1-1")
            task = asyncio.create_task(AsyncReader(client, parts, "billing", handle).run())
            await asyncio.wait_for(started.wait(), 60)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):  # noqa: PT011
                await task
            assert [await client.exists(f"{stream}:lease:billing") for stream in parts.streams] == [0] * 4
            assert (await client.xpending(parts.stream(2), "billing"))["pending"] == 1

    asyncio.run(main())


def test_shares_are_those_that_all_compute(streamd_cluster: EmbeddedCluster) -> None:
    client = streamd_cluster.client(decode_responses=True)
    parts = Parts.open(client, "orders", COUNT)
    readers = [Reader(client, parts, "billing", lambda batch: None, lease_s=1) for _ in range(3)]
    with running(readers[0]), running(readers[1]), running(readers[2]):
        eventually(lambda: held_as_computed(client, readers))


def held_as_computed(client: Any, readers: list[Reader]) -> bool:
    """Whether each reader holds what all compute from the names of those that live."""
    names = client.zrange("orders:readers:billing", 0, -1)
    return sorted(share(COUNT, names).values(), key=sorted) == sorted((each.held for each in readers), key=sorted)
