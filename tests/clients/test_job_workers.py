"""Workers on streamd, on a Redis, and on clusters of both: nothing is lost, whatever ends, and a rule means the same everywhere.

What a handler sees is noted in lists; nothing waits for a time, but for what must come true.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import prometheus_client
import pytest
import redis
import redis.asyncio
from support.cluster.nodes import Nodes, start_cluster
from support.replicas.nodes import Node, Proxy, wait_in_sync
from support.servers import Server, eventually, python_environment

import streamd.embedded
from streamd.delivery import group
from streamd.worker import Fatal, Job, Rule, Worker, WorkerError, run
from streamd.worker.metrics import WorkerMetrics

pytestmark = pytest.mark.long

JOBS, DEAD = "{jobs}", "{jobs}:dead"


class Place:
    """A server or a cluster, as a worker's program knows it.

    is_streamd  it follows rules itself
    """

    def __init__(self, port: int, *, is_cluster: bool, is_streamd: bool) -> None:
        self.port = port
        self.is_cluster = is_cluster
        self.is_streamd = is_streamd

    def client(self, **options: Any) -> Any:
        kind = redis.RedisCluster if self.is_cluster else redis.Redis
        return kind(host="127.0.0.1", port=self.port, **{"decode_responses": True, **options})

    def async_client(self, **options: Any) -> Any:
        kind = redis.asyncio.RedisCluster if self.is_cluster else redis.asyncio.Redis
        return kind(host="127.0.0.1", port=self.port, **{"decode_responses": True, **options})


@pytest.fixture(scope="module")
def redis_cluster(new_shared_node: Callable[..., Node]) -> Nodes:
    return start_cluster(new_shared_node, ("redis", "redis", "redis"))


REAL = pytest.mark.real


@pytest.fixture(scope="module")
def old_redis_server(new_shared_node: Callable[..., Node]) -> Node:
    return new_shared_node("redis-7.0")


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Place:
    kind = getattr(request, "param", "streamd")
    if kind == "streamd cluster":
        port = request.getfixturevalue("streamd_cluster").nodes[0].port
    elif kind == "redis cluster":
        port = request.getfixturevalue("redis_cluster")[0].port
    else:
        port = request.getfixturevalue(f"{kind}_server").port
    found = Place(port, is_cluster="cluster" in kind, is_streamd=kind.startswith("streamd"))
    with found.client() as client:
        client.flushall()
    return found


SERVERS = ["streamd", pytest.param("redis", marks=REAL), pytest.param("old_redis", marks=REAL)]
CLUSTERS = ["streamd cluster", pytest.param("redis cluster", marks=REAL)]
EVERYWHERE = pytest.mark.parametrize("place", [*SERVERS, *CLUSTERS], indirect=True)
WITH_IDMP = pytest.mark.parametrize("place", ["streamd", pytest.param("redis", marks=REAL), *CLUSTERS], indirect=True)
BOTH = pytest.mark.parametrize("place", SERVERS[:2], indirect=True)


async def until(condition: Callable[[], Awaitable[object] | object], what: str = "the condition") -> None:
    async with asyncio.timeout(60):
        while True:
            found = condition()
            if await found if isinstance(found, Awaitable) else found:
                return
            await asyncio.sleep(0.005)


@asynccontextmanager
async def working(*workers: Worker) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(worker.run()) for worker in workers]
    try:
        yield
    finally:
        for worker in workers:
            worker.stop()
        await asyncio.gather(*tasks)


async def add(client: Any, count: int, first: int = 0) -> list[str]:
    return [await client.xadd(JOBS, {"n": number}) for number in range(first, first + count)]


async def pending(client: Any) -> int:
    found: int = (await client.xpending(JOBS, "workers"))["pending"]
    return found


async def is_done(client: Any) -> bool:
    """Whether everything was delivered and acknowledged."""
    groups = await client.xinfo_groups(JOBS) if await client.exists(JOBS) else []
    last = await client.xrevrange(JOBS, count=1)
    return bool(groups and last and groups[0]["pending"] == 0 and groups[0]["last-delivered-id"] == last[0][0])


# --- Every entry is handled ----------------------------------------------------------------------------------------------


@EVERYWHERE
@pytest.mark.parametrize("is_async", [True, False])
def test_each_entry_is_handled_and_acknowledged_by_one_of_several_workers(place: Place, is_async: bool) -> None:
    handled: Counter[int] = Counter()
    lock = threading.Lock()
    now, most = Counter[str](), Counter[str]()

    def begin(job: Job) -> None:
        with lock:
            assert (job.stream, job.deliveries) == (JOBS, 1)
            handled[int(job.fields["n"])] += 1

    async def main() -> None:
        async with place.async_client() as client:

            def handler(name: str) -> Callable[[Job], Any]:
                def enter() -> None:
                    now[name] += 1
                    most[name] = max(most[name], now[name])

                async def handle(job: Job) -> None:
                    enter()
                    await asyncio.sleep(0)
                    begin(job)
                    now[name] -= 1

                def handle_in_a_thread(job: Job) -> None:
                    with lock:
                        enter()
                    begin(job)
                    with lock:
                        now[name] -= 1

                return handle if is_async else handle_in_a_thread

            workers = [Worker(client, JOBS, "workers", handler(name), concurrency=3) for name in "abc"]
            async with working(*workers):
                await add(client, 150)
                await until(lambda: is_done(client))
            assert handled == Counter(range(150))
            assert sum(worker.counts.handled for worker in workers) == 150
            assert max(most.values()) <= 3
            assert await client.xinfo_consumers(JOBS, "workers") == []

    asyncio.run(main())


@BOTH
def test_no_more_jobs_than_the_concurrency_are_handled_at_a_time(place: Place) -> None:
    async def main() -> None:
        async with place.async_client() as client:
            go = asyncio.Event()
            begun: list[str] = []

            async def handle(job: Job) -> None:
                begun.append(job.id)
                await go.wait()

            worker = Worker(client, JOBS, "workers", handle, concurrency=4)
            ids = await add(client, 20)
            async with working(worker):
                await until(lambda: len(begun) == 4)
                assert worker.jobs == 4
                assert await pending(client) == 4
                go.set()
                await until(lambda: is_done(client))
            assert begun == ids

    asyncio.run(main())


@BOTH
@pytest.mark.parametrize("protocol", [2, 3])
def test_clients_that_do_not_decode(place: Place, protocol: int) -> None:
    async def main() -> None:
        async with place.async_client(decode_responses=False, protocol=protocol) as client:
            seen: list[Any] = []

            async def handle(job: Job) -> None:
                seen.append((job.id, job.fields))
                if job.deliveries < 2:
                    raise ValueError("again")
                if job.fields == {b"n": b"1"}:
                    raise Fatal

            rule = Rule(max_deliveries=3, dead_letter=DEAD, backoff=0.1)
            ids = [entry_id.decode() for entry_id in await add(client, 2)]
            async with working(Worker(client, JOBS, "workers", handle, rule=rule)):
                await until(lambda: is_done(client))
            assert sorted(seen, key=lambda each: each[0]) == [(ids[0], {b"n": b"0"})] * 2 + [(ids[1], {b"n": b"1"})] * 2
            assert await client.xlen(DEAD) == 1

    asyncio.run(main())


# --- Jobs that fail ------------------------------------------------------------------------------------------------------


@EVERYWHERE
def test_retries_come_in_the_order_of_their_back_off(place: Place) -> None:
    async def main() -> None:
        async with place.async_client() as client:
            seen: list[tuple[str, int]] = []
            times: dict[tuple[str, int], float] = {}

            async def handle(job: Job) -> None:
                key = job.fields["n"], job.deliveries
                times[key] = time.monotonic()
                seen.append(key)
                if key == ("first", 2):
                    await client.xadd(JOBS, {"n": "second"})
                if job.deliveries < 3:
                    raise ValueError("not yet")

            rule = Rule(backoff=0.25, factor=4)
            async with working(Worker(client, JOBS, "workers", handle, rule=rule)):
                await client.xadd(JOBS, {"n": "first"})
                await until(lambda: len(seen) == 6)
                await until(lambda: is_done(client))
            # The first one failed twice, and waits for longer than the second one, which fails later, but once.
            assert seen == [("first", 1), ("first", 2), ("second", 1), ("second", 2), ("first", 3), ("second", 3)]
            for name in ("first", "second"):
                assert times[name, 2] - times[name, 1] >= 0.25
                assert times[name, 3] - times[name, 2] >= 1

    asyncio.run(main())


@EVERYWHERE
def test_dead_letters_are_the_same_everywhere(place: Place) -> None:
    async def main() -> None:
        async with place.async_client() as client:

            async def handle(job: Job) -> None:
                if job.fields["n"] == "1":
                    raise Fatal("no use")
                if job.fields["n"] == "2":
                    await client.xdel(JOBS, job.id)
                if job.fields["n"] != "3":
                    raise ValueError("always")

            rule = Rule(max_deliveries=2, dead_letter=DEAD, backoff=0.05)
            begun_ms = int(time.time() * 1000)
            ids = await add(client, 4)
            worker = Worker(client, JOBS, "workers", handle, rule=rule, consumer="c")
            async with working(worker):
                await until(lambda: is_done(client))
            letters = {fields["dlq.id"]: fields for _, fields in await client.xrange(DEAD)}
            assert [list(fields) for fields in letters.values()] == [
                ["n"][: "n" in fields]
                + [
                    f"dlq.{name}"
                    for name in ("stream", "id", "group", "consumer", "deliveries", "first", "last", "reason")
                ]
                for fields in letters.values()
            ]
            last = [int(fields.pop("dlq.last")) for fields in letters.values()]
            assert all(begun_ms <= each <= time.time() * 1000 for each in last)
            known = {"dlq.stream": JOBS, "dlq.group": "workers", "dlq.consumer": "c"}
            assert letters == {
                entry_id: known | {"dlq.id": entry_id, "dlq.first": entry_id.partition("-")[0]} | more
                for entry_id, more in (
                    (ids[0], {"n": "0", "dlq.deliveries": "2", "dlq.reason": "max-deliveries"}),
                    (ids[1], {"n": "1", "dlq.deliveries": "1", "dlq.reason": "fatal"}),
                )
            }
            assert (worker.counts.handled, worker.counts.failed, worker.counts.dead_lettered) == (1, 4, 2)
            assert await client.xlen(JOBS) == 3, "dead letters stay for other groups"

    asyncio.run(main())


@BOTH
def test_without_dead_letters_a_fatal_job_is_tried_again(place: Place) -> None:
    async def main() -> None:
        async with place.async_client() as client:
            seen: list[int] = []

            async def handle(job: Job) -> None:
                seen.append(job.deliveries)
                if len(seen) < 3:
                    raise Fatal

            async with working(Worker(client, JOBS, "workers", handle)):
                await add(client, 1)
                await until(lambda: is_done(client))
            assert seen == [1, 2, 3]

    asyncio.run(main())


@BOTH
def test_what_cannot_be_moved_stays_and_others_go_on(place: Place) -> None:
    async def main() -> None:
        async with place.async_client() as client:

            async def handle(job: Job) -> None:
                if job.fields["n"] == "0":
                    raise Fatal

            await client.set(DEAD, "no stream")
            rule = Rule(max_deliveries=1, dead_letter=DEAD, backoff=0.05)
            worker = Worker(client, JOBS, "workers", handle, rule=rule, lease=1)
            async with working(worker):
                ids = await add(client, 10)
                await until(lambda: worker.counts.handled == 9)
                assert await pending(client) == 1
                await client.delete(DEAD)
                await until(lambda: is_done(client))
            ((_, letter),) = await client.xrange(DEAD)
            assert letter["dlq.id"] == ids[0]
            assert worker.counts.failed == 1

    asyncio.run(main())


@BOTH
def test_the_back_off_is_that_of_the_server(place: Place) -> None:
    """Another worker, which has just begun, waits for it as well."""

    async def main() -> None:
        async with place.async_client() as client:
            seen: list[tuple[str, float]] = []

            def handler(name: str) -> Callable[[Job], Any]:
                async def handle(job: Job) -> None:
                    seen.append((name, time.monotonic()))
                    if len(seen) < 2:
                        raise ValueError("again")

                return handle

            rule = Rule(backoff=1.5, jitter=20)
            first = Worker(client, JOBS, "workers", handler("first"), rule=rule, lease=0.3)
            async with working(first):
                await add(client, 1)
                await until(lambda: first.counts.failed == 1 and not first.jobs)
            async with working(Worker(client, JOBS, "workers", handler("second"), rule=rule, lease=0.3)):
                await until(lambda: is_done(client))
            assert [name for name, _ in seen] == ["first", "second"]
            assert seen[1][1] - seen[0][1] >= 1.5 * 0.8

    asyncio.run(main())


def test_jobs_with_the_same_key_are_handled_one_after_another(place: Place) -> None:
    """Also those that fail, and are tried again, and those of a worker that is stopped in the middle."""

    async def main() -> None:
        async with place.async_client() as client:
            done: dict[str, list[int]] = {key: [] for key in "abc"}
            now: Counter[str] = Counter()

            async def handle(job: Job) -> None:
                key, number = job.fields["key"], int(job.fields["n"])
                now[key] += 1
                assert now[key] == 1
                await asyncio.sleep(0)
                now[key] -= 1
                if number % 4 == 0 and job.deliveries == 1:
                    raise ValueError("again")
                done[key].append(number)

            rules = group(client, JOBS, "workers")
            await rules.set(keyed="key", max_deliveries=9, dead_letter=DEAD, backoff=0.05)
            for number in range(20):
                for key in done:
                    await client.xadd(JOBS, {"key": key, "n": number})
            first, second = (Worker(client, JOBS, "workers", handle, concurrency=4) for _ in range(2))
            async with working(second):
                async with working(first):
                    await until(lambda: first.counts.handled >= 10)
                await until(lambda: is_done(client))
            assert done == {key: list(range(20)) for key in done}
            assert first.counts.failed + second.counts.failed == 15

    asyncio.run(main())


# --- Workers that end ----------------------------------------------------------------------------------------------------


PROGRAM = """
import asyncio, sys
import redis.asyncio
from streamd.worker import Job, Rule, Worker, run

async def main() -> None:
    kind = redis.asyncio.RedisCluster if sys.argv[2] == "cluster" else redis.asyncio.Redis
    async with kind(host="127.0.0.1", port=int(sys.argv[1]), decode_responses=True) as client:

        async def handle(job: Job) -> None:
            await client.rpush("begun", job.id)
            while not await client.exists(f"go:{job.fields['n']}"):
                await asyncio.sleep(0.01)
            await client.rpush("ended", job.id)

        await run(Worker(client, "{jobs}", "workers", handle, concurrency=3, lease=float(sys.argv[3])))

asyncio.run(main())
"""


@pytest.fixture
def start(place: Place) -> Iterator[Callable[[float], subprocess.Popen[bytes]]]:
    """Start a worker with this lease as a process. Its jobs end when there is a key `go:<n>`."""
    started: list[subprocess.Popen[bytes]] = []

    def start(lease_s: float) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-c", PROGRAM, str(place.port), "cluster" if place.is_cluster else "one", str(lease_s)]
        started.append(subprocess.Popen(words, env=python_environment()))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


@EVERYWHERE
def test_sigterm_lets_jobs_end_and_leaves_the_others(place: Place, start: Callable[[float], Any]) -> None:
    with place.client() as client:
        ids = [client.xadd(JOBS, {"n": number}) for number in range(8)]
        first = start(60)
        eventually(lambda: sorted(client.lrange("begun", 0, -1)) == ids[:3])
        first.send_signal(signal.SIGTERM)
        client.set("go:0", "")
        eventually(lambda: client.llen("ended") == 1)
        assert client.llen("begun") == 3, "it begins nothing any more"
        assert first.poll() is None
        client.set("go:1", "")
        client.set("go:2", "")
        assert first.wait(60) == 0
        assert client.xpending(JOBS, "workers")["pending"] == 0
        for number in range(3, 8):
            client.set(f"go:{number}", "")
        start(60)
        eventually(lambda: sorted(client.lrange("ended", 0, -1)) == ids)
        assert sorted(client.lrange("begun", 0, -1)) == ids


@EVERYWHERE
def test_what_a_killed_worker_had_is_taken_by_another_one_at_a_time(
    place: Place, start: Callable[[float], Any]
) -> None:
    with place.client() as client:
        ids = [client.xadd(JOBS, {"n": number}) for number in range(3)]
        first = start(0.5)
        eventually(lambda: client.llen("begun") == 3)
        first.kill()
        first.wait()
        start(0.5)
        for number, entry_id in enumerate(ids):
            eventually(lambda entry_id=entry_id: client.lrange("begun", 0, -1).count(entry_id) == 2)
            new = client.xadd(JOBS, {"n": f"new-{number}"})
            eventually(lambda new=new: new in client.lrange("begun", 0, -1), what="it is begun beside the old one")
            again = [row for row in client.xpending_range(JOBS, "workers", "-", "+", 10) if row["times_delivered"] > 1]
            assert [row["message_id"] for row in again] == [entry_id]
            client.set(f"go:new-{number}", "")
            client.set(f"go:{number}", "")
        eventually(lambda: client.xpending(JOBS, "workers")["pending"] == 0)
        assert Counter(client.lrange("begun", 0, -1)) == Counter([*ids, *client.lrange("ended", 0, -1)])


@BOTH
def test_what_arrives_after_the_stop_is_given_back_uncounted(place: Place) -> None:
    async def main() -> None:
        async with place.async_client() as client:
            seen: list[tuple[str, int]] = []

            async def handle(job: Job) -> None:
                seen.append((job.id, job.deliveries))

            first = Worker(client, JOBS, "workers", handle, lease=60)
            task = asyncio.create_task(first.run())
            await until(lambda: is_blocked(client))
            first.stop()
            (entry_id,) = await add(client, 1)
            await task
            assert (seen, first.counts.given_back) == ([], 1)
            (row,) = await client.xpending_range(JOBS, "workers", "-", "+", 10)
            assert (row["message_id"], row["times_delivered"]) == (entry_id, 0)
            async with working(Worker(client, JOBS, "workers", handle, lease=60)):
                await until(lambda: is_done(client))
            assert seen == [(entry_id, 1)]

    asyncio.run(main())


async def is_blocked(client: Any) -> bool:
    return bool((await client.info("clients"))["blocked_clients"])


@BOTH
@pytest.mark.parametrize("is_cancelled", [True, False])
def test_a_job_that_does_not_end_in_time_is_left_to_others_at_once(place: Place, is_cancelled: bool) -> None:
    async def main() -> None:
        async with place.async_client() as client:
            seen: list[int] = []

            async def handle(job: Job) -> None:
                seen.append(job.deliveries)
                if job.deliveries == 1:
                    await asyncio.Event().wait()

            first = Worker(client, JOBS, "workers", handle, lease=300, grace=0.1)
            task = asyncio.create_task(first.run())
            await add(client, 1)
            await until(lambda: seen == [1])
            if is_cancelled:
                task.cancel()
                with pytest.raises(asyncio.CancelledError):  # noqa: PT011
                    await task
            else:
                first.stop()
                await task
            async with working(Worker(client, JOBS, "workers", handle, lease=300)):
                await until(lambda: is_done(client))
            assert seen == [1, 2]

    asyncio.run(main())


@EVERYWHERE
def test_a_job_that_waits_for_its_retry_is_left_to_others_by_then(place: Place) -> None:
    async def main() -> None:
        async with place.async_client() as client:
            seen: list[tuple[int, float]] = []

            async def handle(job: Job) -> None:
                seen.append((job.deliveries, time.monotonic()))
                if len(seen) == 1:
                    raise ValueError("again")

            rule = Rule(backoff=1)
            first = Worker(client, JOBS, "workers", handle, rule=rule, lease=100)
            async with working(first):
                await add(client, 1)
                await until(lambda: first.counts.failed == 1 and not first.jobs)
            async with working(Worker(client, JOBS, "workers", handle, rule=rule, lease=100)):
                await until(lambda: is_done(client))
            assert [deliveries for deliveries, _ in seen] == [1, 2]
            assert seen[1][1] - seen[0][1] >= 1

    asyncio.run(main())


@BOTH
def test_a_worker_that_returns_under_its_name_goes_on_with_what_it_had(place: Place) -> None:
    async def main() -> None:
        async with place.async_client() as client:
            ids = await add(client, 3)
            await client.xgroup_create(JOBS, "workers", id="0")
            await client.xreadgroup("workers", "c", {JOBS: ">"}, count=2)
            seen: list[tuple[str, int]] = []

            async def handle(job: Job) -> None:
                seen.append((job.id, job.deliveries))

            async with working(Worker(client, JOBS, "workers", handle, consumer="c", lease=300)):
                await until(lambda: is_done(client))
            assert sorted(seen) == [(ids[0], 2), (ids[1], 2), (ids[2], 1)]
            assert [each["name"] for each in await client.xinfo_consumers(JOBS, "workers")] == ["c"]

    asyncio.run(main())


@EVERYWHERE
def test_renewals_keep_a_long_job_from_others(place: Place) -> None:
    async def main() -> None:
        async with place.async_client() as client:
            ended = asyncio.Event()
            seen: list[str] = []

            async def handle(job: Job) -> None:
                seen.append(job.id)
                await ended.wait()

            ids = await add(client, 1)
            first, second = (Worker(client, JOBS, "workers", handle, lease=1.5) for _ in range(2))
            async with working(first):
                await until(lambda: seen == ids)
                async with working(second):
                    renewals, before = 0, -1
                    while renewals < 8:  # more than two leases
                        (row,) = await client.xpending_range(JOBS, "workers", "-", "+", 1)
                        renewals += before > row["time_since_delivered"]
                        before = row["time_since_delivered"]
                        await asyncio.sleep(0.01)
                ended.set()
                await until(lambda: is_done(client))
            assert seen == ids
            assert (first.counts.handled, first.counts.lost, second.counts.claimed) == (1, 0, 0)

    asyncio.run(main())


@BOTH
def test_a_retry_that_comes_late_does_not_take_a_job_from_others(place: Place) -> None:
    async def main() -> None:
        async with place.async_client() as client:
            seen: list[tuple[str, str]] = []
            ends = {name: asyncio.Event() for name in ("first", "second")}

            def handler(name: str) -> Callable[[Job], Any]:
                async def handle(job: Job) -> None:
                    seen.append((name, job.fields["n"]))
                    if len(seen) == 1:
                        raise ValueError("again")
                    await ends[name].wait()

                return handle

            rule = Rule(backoff=2)
            first = Worker(client, JOBS, "workers", handler("first"), rule=rule, lease=0.6, concurrency=1)
            second = Worker(client, JOBS, "workers", handler("second"), rule=rule, lease=0.6, concurrency=1)
            await add(client, 2)
            async with working(first):
                await until(lambda: len(seen) == 2)  # it is busy when the first job is due again
                async with working(second):
                    await until(lambda: len(seen) == 3)
                    ends["first"].set()
                    await until(lambda: first.counts.handled == 1)
                    await add(client, 1, 2)
                    await until(lambda: len(seen) == 4)
                    assert seen[1:] == [("first", "1"), ("second", "0"), ("first", "2")]
                    ends["second"].set()
                await until(lambda: is_done(client))

    asyncio.run(main())


def test_a_job_whose_lease_has_run_out_is_counted_and_its_failure_is_not_said(place: Place) -> None:
    """The event loop does not run for longer than the lease, and another worker gets the job."""

    async def main() -> None:
        async with place.async_client() as client:
            taken = False

            async def handle(job: Job) -> None:
                nonlocal taken
                with place.client() as other:  # the loop stands still
                    eventually(lambda: other.xautoclaim(JOBS, "workers", "other", 400)[1])
                taken = True
                await until(lambda: worker.counts.lost)
                raise ValueError("too late")

            rule = Rule(max_deliveries=2, dead_letter=DEAD)
            worker = Worker(client, JOBS, "workers", handle, rule=rule, lease=0.3)
            async with working(worker):
                await add(client, 1)
                await until(lambda: worker.counts.failed == 1)
            (row,) = await client.xpending_range(JOBS, "workers", "-", "+", 1)
            assert (taken, row["consumer"]) == (True, "other")

    asyncio.run(main())


# --- Servers that end ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["streamd", pytest.param("redis", marks=REAL)])
def test_a_server_is_started_again_in_the_middle(kind: str, request: pytest.FixtureRequest) -> None:
    server: Server = request.getfixturevalue(f"new_{kind}")(appendonly="yes", appendfsync="always")
    place = Place(server.port, is_cluster=False, is_streamd=kind == "streamd")

    async def main() -> None:
        async with place.async_client() as client:
            handled: Counter[int] = Counter()

            async def handle(job: Job) -> None:
                handled[int(job.fields["n"])] += 1
                await asyncio.sleep(0.02)
                if job.deliveries == 1 and int(job.fields["n"]) % 7 == 0:
                    raise ValueError("again")

            await add(client, 120)
            rule = Rule(max_deliveries=20, dead_letter=DEAD, backoff=0.2)
            workers = [Worker(client, JOBS, "workers", handle, rule=rule, lease=2, concurrency=4) for _ in range(2)]
            async with working(*workers):
                for count in (20, 60):
                    await until(lambda count=count: len(handled) >= count)
                    await asyncio.to_thread(server.restart)
                await until(lambda: len(handled) == 120)
                await until(lambda: is_done(client))
            assert await client.xlen(DEAD) == 0

    asyncio.run(main())


async def handle_numbers(client: Any, switch: Callable[[], object]) -> None:
    """Workers while `switch` runs in a thread: all numbers that were added are handled."""
    handled: Counter[int] = Counter()

    async def handle(job: Job) -> None:
        handled[int(job.fields["n"])] += 1
        if job.deliveries == 1 and int(job.fields["n"]) % 5 == 0:
            raise ValueError("again")

    added = 0

    async def add_more(count: int) -> None:
        nonlocal added
        for _ in range(count):
            while True:
                try:
                    await client.xadd(JOBS, {"n": added})
                    break
                except (redis.RedisError, OSError):
                    await asyncio.sleep(0.02)
            added += 1

    workers = [
        Worker(client, JOBS, "workers", handle, rule=Rule(backoff=0.2), lease=2, concurrency=4) for _ in range(2)
    ]
    async with working(*workers):
        await add_more(50)
        switching = asyncio.create_task(asyncio.to_thread(switch))
        while not switching.done():
            await add_more(1)
            await asyncio.sleep(0.005)
        await switching
        await add_more(50)
        await until(lambda: len(handled) == added)
        await until(lambda: is_done(client))


def test_a_replica_of_a_cluster_takes_over() -> None:
    settings = {"cluster_node_timeout": 2000, "repl_diskless_sync_delay": 0}
    with streamd.embedded.start_cluster(nodes=6, replicas=1, own_process=True, **settings) as cluster:
        place = Place(cluster.nodes[0].port, is_cluster=True, is_streamd=True)
        with cluster.client() as client:
            slot = client.keyslot(JOBS)
            primary = client.get_node_from_key(JOBS)
            nodes = client.cluster_nodes()
            name = next(node["node_id"] for at, node in nodes.items() if at == primary.name)
            port = next(int(at.split(":")[1].split("@")[0]) for at, node in nodes.items() if node["master_id"] == name)
        replica = next(node for node in cluster.nodes if node.port == port)

        def switch() -> None:
            with replica.client(decode_responses=True) as client:
                eventually(lambda: client.info("replication")["master_link_status"] == "up")
                client.execute_command("CLUSTER", "FAILOVER")
                eventually(lambda: client.info("replication")["role"] == "master")

        async def main() -> None:
            async with place.async_client() as client:
                await handle_numbers(client, switch)

        assert 0 <= slot < 16384
        asyncio.run(main())


@pytest.mark.parametrize("kinds", [("streamd", "streamd"), pytest.param(("streamd", "redis"), marks=REAL)])
def test_a_replica_takes_over_by_failover(kinds: tuple[str, str], new_node: Callable[..., Node]) -> None:
    """Also a Redis, which follows no rules: the worker does so then."""
    primary, replica = (new_node(kind) for kind in kinds)
    replica.follow(primary)
    wait_in_sync(primary, replica)
    with Proxy(primary.port) as proxy:

        def switch() -> None:
            primary.must("FAILOVER", "TO", "127.0.0.1", str(replica.port))
            eventually(lambda: replica.info()["role"] == "master")
            proxy.target = replica.port
            proxy.cut()

        async def main() -> None:
            async with Place(proxy.port, is_cluster=False, is_streamd=True).async_client() as client:
                await handle_numbers(client, switch)

        asyncio.run(main())


def test_a_stream_that_is_deleted_begins_again(place: Place) -> None:
    async def main() -> None:
        async with place.async_client() as client:
            seen: list[str] = []

            async def handle(job: Job) -> None:
                seen.append(job.id)

            async with working(Worker(client, JOBS, "workers", handle)):
                ids = await add(client, 1)
                await until(lambda: seen == ids)
                await client.delete(JOBS)
                ids += await add(client, 1)
                await until(lambda: seen == ids)
                await until(lambda: is_done(client))

    asyncio.run(main())


@BOTH
def test_what_does_not_pass_ends_the_worker(place: Place) -> None:
    async def handle(job: Job) -> None:
        raise AssertionError

    async def main() -> None:
        async with place.async_client() as client:
            await client.set(JOBS, "no stream")
            other = Worker(client, "other", "workers", handle)
            with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
                await run(other, Worker(client, JOBS, "workers", handle))
            assert other.jobs == 0

    asyncio.run(main())


# --- Periodic jobs, counts, and rules --------------------------------------------------------------------------------------


@WITH_IDMP
def test_a_periodic_job_is_added_once_whoever_adds_it(place: Place) -> None:
    async def main() -> None:
        async with place.async_client() as client:
            seen: list[str] = []

            async def handle(job: Job) -> None:
                seen.append(job.fields["job"])

            workers = [Worker(client, JOBS, "workers", handle) for _ in range(3)]
            for worker in workers:
                worker.every(0.2, {"job": "often"}, name="often")
                worker.every(lambda now: now // 0.3 * 0.3 + 0.6, {"job": "seldom"}, name="seldom")
            async with working(*workers):
                await until(lambda: all(worker.counts.added >= 10 for worker in workers))
            async with working(Worker(client, JOBS, "workers", handle)):
                await until(lambda: is_done(client))
            most = max(worker.counts.added for worker in workers)
            assert 10 <= len(seen) <= most + 2
            assert len(seen) == await client.xlen(JOBS)
            assert set(seen) == {"often", "seldom"}

    asyncio.run(main())


def test_what_cannot_be_added_is_refused_with_the_reason(place: Place) -> None:
    async def handle(job: Job) -> None:
        raise AssertionError

    async def main() -> None:
        async with place.async_client() as client:
            worker = Worker(client, JOBS, "workers", handle)
            with pytest.raises(ValueError, match="cannot be added every 0 seconds"):
                worker.every(0, {}, name="x")
            with pytest.raises(ValueError, match="must be later"):
                worker.every(lambda now: now, {}, name="x")
            worker.every(0.1, {}, name="x")
            with pytest.raises(WorkerError, match=r"x cannot be added to {jobs}: .*Periodic jobs need"):
                await worker.run()

    asyncio.run(main())


def test_counts_for_prometheus(place: Place) -> None:
    async def main() -> None:
        async with place.async_client() as client:

            async def handle(job: Job) -> None:
                if job.fields["n"] == "0":
                    raise Fatal

            registry = prometheus_client.CollectorRegistry()
            rule = Rule(dead_letter=DEAD)
            worker = Worker(client, JOBS, "workers", handle, rule=rule, consumer="c")
            registry.register(WorkerMetrics(worker))
            async with working(worker):
                await add(client, 5)
                await until(lambda: is_done(client))
            labels = {"stream": JOBS, "group": "workers", "consumer": "c"}
            found = {
                name: registry.get_sample_value(f"streamd_worker_{name}", labels)
                for name in ("handled_total", "failed_total", "dead_lettered_total", "lost_total", "jobs")
            }
            assert found == {
                "handled_total": 4, "failed_total": 1, "dead_lettered_total": 1, "lost_total": 0, "jobs": 0,
            }  # fmt: skip

    asyncio.run(main())


def test_the_rule_of_a_worker_is_set_and_a_later_one_of_the_server_is_followed(place: Place) -> None:
    async def main() -> None:
        async with place.async_client() as client:
            seen: list[int] = []

            async def handle(job: Job) -> None:
                seen.append(job.deliveries)
                raise ValueError("always")

            async with working(Worker(client, JOBS, "workers", handle, rule=Rule(backoff=300), lease=300)):
                rules = group(client, JOBS, "workers")
                await until(lambda: is_blocked(client))
                assert await rules.get() == {"backoff": 300.0}
                await rules.set(backoff=0.05)
                await add(client, 1)
                await until(lambda: seen[:3] == [1, 2, 3])

    asyncio.run(main())


def test_neither_the_server_nor_prometheus_is_imported() -> None:
    program = "import sys, streamd.worker\nprint(*{name.split('.')[1] for name in sys.modules if name.startswith('streamd.')}, 'prometheus_client' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], env=python_environment(), capture_output=True, text=True, check=True
    )
    assert set(done.stdout.split()) == {"worker", "delivery", "partitions", "errors", "False"}
