"""redis-py's asyncio client: the same calls, many of them at once, and reads that are cancelled while they block.

Runs against streamd always, and against a real Redis when there is one (marked `real`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import redis.asyncio as redis
from redis.exceptions import ResponseError
from support.redis_py import connection_arguments, read_entries
from support.servers import Server

PAYLOAD = {"sensor-id": "1234", "temperature": "19.8"}
DEADLINE_S = 100


@pytest.fixture
def play(server: Server, protocol: int | None) -> Callable[[Callable[[redis.Redis], Awaitable[None]]], None]:
    """Run a coroutine function with a connected client; everything is closed and nothing left running at the end."""

    async def with_client(story: Callable[[redis.Redis], Awaitable[None]]) -> None:
        async with redis.Redis(**connection_arguments(server.port, protocol)) as client:
            await asyncio.wait_for(story(client), DEADLINE_S)

    return lambda story: asyncio.run(with_client(story))


async def blocked(client: redis.Redis, count: int) -> None:
    """Wait until so many clients are blocked."""
    async with asyncio.timeout(DEADLINE_S):
        while (await client.info("clients"))["blocked_clients"] != count:
            await asyncio.sleep(0.002)


def test_adding_and_reading(play: Any) -> None:
    async def story(client: redis.Redis) -> None:
        entry_id = await client.xadd("s", PAYLOAD)
        assert await client.xlen("s") == 1
        assert await client.xrange("s") == [(entry_id, PAYLOAD)]
        assert await client.xrevrange("s", count=1) == [(entry_id, PAYLOAD)]
        assert read_entries(await client.xread({"s": "0"})) == {"s": [(entry_id, PAYLOAD)]}
        assert await client.xtrim("s", maxlen=0, approximate=False) == 1
        assert await client.xdel("s", entry_id) == 0

    play(story)


def test_a_group(play: Any) -> None:
    async def story(client: redis.Redis) -> None:
        await client.xgroup_create("s", "g", mkstream=True)
        for n in range(1, 4):
            await client.xadd("s", {"n": n}, id=f"{n}-0")
        got = read_entries(await client.xreadgroup("g", "a", {"s": ">"}, count=2))["s"]
        assert [entry_id for entry_id, _ in got] == ["1-0", "2-0"]
        assert (await client.xpending("s", "g"))["pending"] == 2
        assert await client.xclaim("s", "g", "b", 0, ["1-0"], justid=True) == ["1-0"]
        assert (await client.xautoclaim("s", "g", "b", 0))[1] == [("1-0", {"n": "1"}), ("2-0", {"n": "2"})]
        assert await client.xack("s", "g", "1-0", "2-0") == 2
        assert (await client.xinfo_groups("s"))[0]["lag"] == 1
        assert (await client.xinfo_consumers("s", "g"))[1]["name"] == "b"
        assert (await client.xinfo_stream("s"))["length"] == 3

    play(story)


def test_many_calls_at_once_over_one_pool(play: Any) -> None:
    async def story(client: redis.Redis) -> None:
        ids = await asyncio.gather(*(client.xadd("s", {"n": n}) for n in range(90)))
        assert len(set(ids)) == 90
        assert await client.xlen("s") == 90
        lengths = await asyncio.gather(*(client.xlen("s") for _ in range(90)))
        assert set(lengths) == {90}

    play(story)


def test_a_pipeline_without_a_transaction(play: Any) -> None:
    async def story(client: redis.Redis) -> None:
        async with client.pipeline(transaction=False) as pipe:
            for n in range(300):
                pipe.xadd("s", {"n": n}, id=f"{n + 1}-0")
            pipe.xlen("s")
            assert (await pipe.execute())[-1] == 300

    play(story)


def test_a_blocking_read_ends_with_its_time(play: Any) -> None:
    async def story(client: redis.Redis) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        assert not await client.xread({"s": "$"}, block=50)
        assert loop.time() - started >= 0.049

    play(story)


def test_blocked_readers_are_woken(play: Any) -> None:
    async def story(client: redis.Redis) -> None:
        readers = [asyncio.create_task(client.xread({"s": "$"}, block=0)) for _ in range(20)]
        await blocked(client, 20)
        await client.xadd("s", PAYLOAD, id="1-1")
        for reply in await asyncio.gather(*readers):
            assert read_entries(reply) == {"s": [("1-1", PAYLOAD)]}

    play(story)


def test_group_readers_get_each_entry_once(play: Any) -> None:
    async def story(client: redis.Redis) -> None:
        await client.xgroup_create("s", "g", mkstream=True)
        got: list[str] = []

        async def work(name: str) -> None:
            while True:
                try:
                    reply = await client.xreadgroup("g", name, {"s": ">"}, count=5, block=0)
                except ResponseError:
                    return
                got.extend(entry_id for entry_id, _ in read_entries(reply)["s"])

        workers = [asyncio.create_task(work(f"w{n}")) for n in range(5)]
        await blocked(client, len(workers))
        sent = [await client.xadd("s", {"n": n}) for n in range(100)]
        await blocked(client, len(workers))
        await client.xgroup_destroy("s", "g")
        await asyncio.gather(*workers)
        assert sorted(got) == sorted(sent)

    play(story)


def test_a_cancelled_read_leaves_nothing_behind(play: Any) -> None:
    """The library drops the connection of a cancelled call; the server must forget its client."""

    async def story(client: redis.Redis) -> None:
        reader = asyncio.create_task(client.xread({"s": "$"}, block=0))
        await blocked(client, 1)
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):  # noqa: PT011  it says nothing
            await reader
        await blocked(client, 0)
        await client.xadd("s", PAYLOAD, id="1-1")
        assert await client.xlen("s") == 1

    play(story)


def test_errors_have_their_text(play: Any) -> None:
    async def story(client: redis.Redis) -> None:
        await client.set("text", "value")
        with pytest.raises(ResponseError, match="wrong kind of value"):
            await client.xadd("text", PAYLOAD)
        with pytest.raises(ResponseError, match="Invalid stream ID"):
            await client.xadd("s", PAYLOAD, id="x")
        with pytest.raises(ResponseError, match="unknown command"):
            await client.execute_command("NOSUCH")
        assert await client.ping()

    play(story)


def test_a_local_cache_is_invalidated_over_the_connection_that_subscribes(server: Server) -> None:
    """As cashews does it: one connection in RESP2 tracks by prefix, and is told itself, on a channel."""

    async def story() -> None:
        async with redis.Redis(**connection_arguments(server.port, 2)) as client, client.pubsub() as pubsub:
            await pubsub.execute_command("CLIENT", "ID")
            client_id = await pubsub.parse_response()
            await pubsub.execute_command(
                "CLIENT", "TRACKING", "on", "REDIRECT", client_id, "BCAST", "PREFIX", "cached:"
            )
            assert await pubsub.parse_response() == "OK"
            await pubsub.subscribe("__redis__:invalidate")

            async def told() -> Any:
                while (message := await pubsub.get_message(ignore_subscribe_messages=True, timeout=1)) is None:
                    pass
                return message["data"]

            await client.set("other", "x")
            await client.set("cached:a", "x")
            assert await told() == ["cached:a"]
            async with client.pipeline(transaction=True) as pipeline:
                await pipeline.set("cached:b", "x").set("cached:c", "x", px=1000).execute()
            assert await told() == ["cached:b", "cached:c"]
            assert await told() == ["cached:c"], "expired"
            await client.unlink("cached:a", "cached:b")
            assert await told() == ["cached:a", "cached:b"]
            await client.flushdb()
            assert await told() is None

    asyncio.run(asyncio.wait_for(story(), DEADLINE_S))
