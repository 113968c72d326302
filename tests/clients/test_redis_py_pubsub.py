"""redis-py, as a user calls it: publish/subscribe, transactions, locks, client-side caching, and connections that break.

Runs against streamd always, and against a real Redis when there is one (marked `real`).
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.backoff import ConstantBackoff
from redis.cache import CacheConfig
from redis.retry import Retry
from support.redis_py import connection_arguments
from support.servers import Server, eventually


@pytest.fixture
def client(server: Server, protocol: int | None) -> Iterator[redis.Redis]:
    with redis.Redis(**connection_arguments(server.port, protocol)) as client:
        yield client


def next_message(pubsub: Any, timeout_s: float = 60.0) -> dict[str, Any]:
    message = pubsub.get_message(timeout=timeout_s)
    assert message is not None, "no message in time"
    return dict(message)


def told(message: dict[str, Any]) -> tuple[Any, ...]:
    return message["type"], message["pattern"], message["channel"], message["data"]


# --- Publish/subscribe -----------------------------------------------------------------------------------------------


def test_channels_and_patterns(client: redis.Redis) -> None:
    with client.pubsub() as pubsub:
        pubsub.subscribe("news")
        pubsub.psubscribe("n*", "[xyz]?")
        assert {told(next_message(pubsub)) for _ in range(3)} == {
            ("subscribe", None, "news", 1), ("psubscribe", None, "n*", 2), ("psubscribe", None, "[xyz]?", 3),
        }  # fmt: skip
        assert client.publish("news", "one") == 2
        assert told(next_message(pubsub)) == ("message", None, "news", "one")
        assert told(next_message(pubsub)) == ("pmessage", "n*", "news", "one")
        assert client.publish("x1", "two") == 1
        assert told(next_message(pubsub)) == ("pmessage", "[xyz]?", "x1", "two")
        assert client.publish("other", "three") == 0
        assert client.pubsub_channels() == ["news"]
        assert client.pubsub_numpat() == 2
        assert client.pubsub_numsub("news", "none") == [("news", 1), ("none", 0)]
        pubsub.unsubscribe()
        pubsub.punsubscribe("n*", "[xyz]?")
        types = [next_message(pubsub)["type"] for _ in range(3)]
        assert sorted(types) == ["punsubscribe", "punsubscribe", "unsubscribe"]
        assert not pubsub.subscribed


def test_listen_and_handlers(client: redis.Redis) -> None:
    heard: list[Any] = []
    with client.pubsub(ignore_subscribe_messages=True) as pubsub:
        pubsub.subscribe(a=lambda message: heard.append(message["data"]))
        pubsub.subscribe("b")
        eventually(lambda: client.pubsub_numsub("a", "b") == [("a", 1), ("b", 1)])
        for number in range(3):
            client.publish("a", f"a{number}")
            client.publish("b", f"b{number}")
        messages = []
        for message in pubsub.listen():
            messages.append(message["data"])
            if len(messages) == 3:
                break
        assert messages == ["b0", "b1", "b2"]
        assert heard == ["a0", "a1", "a2"]


def test_a_thread_that_listens(client: redis.Redis) -> None:
    heard: queue.Queue[str] = queue.Queue()
    pubsub = client.pubsub(ignore_subscribe_messages=True)
    pubsub.psubscribe(**{"news.*": lambda message: heard.put(message["data"])})
    thread = pubsub.run_in_thread(sleep_time=0.01, daemon=True)
    try:
        eventually(lambda: client.publish("news.art", "one") == 1)
        assert heard.get(timeout=60) == "one"
        client.publish("news.art", "two")
        assert heard.get(timeout=60) == "two"
    finally:
        thread.stop()
        thread.join(60)
    assert not thread.is_alive()


def test_sharded_channels(client: redis.Redis) -> None:
    with client.pubsub(ignore_subscribe_messages=True) as pubsub:
        pubsub.ssubscribe("shard")
        eventually(lambda: client.execute_command("SPUBLISH", "shard", "one") == 1)
        while (message := pubsub.get_message(timeout=60)) is None:
            pass
        assert told(message) == ("smessage", None, "shard", "one")


def test_keyspace_events(client: redis.Redis) -> None:
    client.config_set("notify-keyspace-events", "KEA")
    try:
        with client.pubsub(ignore_subscribe_messages=True) as pubsub:
            pubsub.psubscribe("__keyevent@0__:*")
            eventually(lambda: client.pubsub_numpat() == 1)
            client.xadd("s", {"f": "v"})
            client.expire("s", 100)
            client.delete("s")
            client.set("k", "1", px=20)
            seen = []
            while len(seen) < 6:
                message = pubsub.get_message(timeout=60)
                if message is not None:
                    seen.append((message["channel"].removeprefix("__keyevent@0__:"), message["data"]))
            assert seen == [
                ("xadd", "s"), ("expire", "s"), ("del", "s"), ("set", "k"), ("expire", "k"), ("expired", "k"),
            ]  # fmt: skip
    finally:
        client.config_set("notify-keyspace-events", "")


def test_asyncio_pubsub(server: Server, protocol: int | None) -> None:
    async def play() -> None:
        arguments = connection_arguments(server.port, protocol)
        async with redis.asyncio.Redis(**arguments) as client, client.pubsub() as pubsub:
            await pubsub.psubscribe("news.*")
            first = await pubsub.get_message(timeout=60)
            assert first is not None
            assert told(first) == ("psubscribe", None, "news.*", 1)
            for number in range(100):
                assert await client.publish("news.art", str(number)) == 1
            heard = []
            async for message in pubsub.listen():
                heard.append(message["data"])
                if len(heard) == 100:
                    break
            assert heard == [str(number) for number in range(100)]
            await pubsub.punsubscribe("news.*")

    asyncio.run(play())


# --- Transactions ----------------------------------------------------------------------------------------------------


def test_a_transaction(client: redis.Redis) -> None:
    with client.pipeline(transaction=True) as pipe:
        entry_id, length, text, number = (
            pipe.xadd("s", {"f": "v"}, id="1-1").xlen("s").set("k", "1").incr("k").execute()
        )
    assert (entry_id, length, text, number) == ("1-1", 1, True, 2)
    with client.pipeline(transaction=True) as pipe, pytest.raises(redis.ResponseError, match="wrong kind of value"):
        pipe.set("k", "5").xlen("k").incr("k").execute()
    assert client.get("k") == "6", "nothing is rolled back"
    with (
        client.pipeline(transaction=True) as pipe,
        pytest.raises((redis.ResponseError, redis.exceptions.ExecAbortError)),
    ):
        pipe.set("k", "7").execute_command("NOSUCH").execute()
    assert client.get("k") == "6"


def test_watching_and_trying_again(client: redis.Redis) -> None:
    """A counter that many add to: each addition is made, by those whose key was changed meanwhile in another try."""
    tries = 0

    def add() -> None:
        nonlocal tries
        for _ in range(20):
            while True:
                with client.pipeline() as pipe:
                    tries += 1
                    try:
                        pipe.watch("counter")
                        value = int(pipe.get("counter") or 0)
                        pipe.multi()
                        pipe.set("counter", value + 1)
                        pipe.execute()
                        break
                    except redis.WatchError:
                        continue

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert client.get("counter") == "80"
    assert tries >= 80


def test_the_transaction_helper(client: redis.Redis) -> None:
    client.set("k", "1")

    def double(pipe: Any) -> None:
        value = int(pipe.get("k"))
        if value == 1:
            client.set("k", "10")  # behind its back: the first try fails
        pipe.multi()
        pipe.set("k", value * 2)

    assert client.transaction(double, "k") == [True]
    assert client.get("k") == "20"


def test_asyncio_transactions(server: Server, protocol: int | None) -> None:
    async def play() -> None:
        async with redis.asyncio.Redis(**connection_arguments(server.port, protocol)) as client:
            async with client.pipeline(transaction=True) as pipe:
                assert await pipe.set("k", "1").incr("k").get("k").execute() == [True, 2, "2"]
            async with client.pipeline() as pipe:
                await pipe.watch("k")
                await client.set("k", "3")
                pipe.multi()
                pipe.set("k", "4")
                with pytest.raises(redis.WatchError, match="Watched variable changed"):
                    await pipe.execute()
            assert await client.get("k") == "3"

    asyncio.run(play())


# --- Locks: SET NX takes one; redis-py gives it back with a script ------------------------------------------------------


def test_taking_a_lock(client: redis.Redis) -> None:
    lock = client.lock("lock", timeout=100)
    assert lock.acquire(blocking=False)
    assert not client.lock("lock", timeout=100).acquire(blocking=False)
    assert lock.locked()
    assert lock.owned()
    assert 0 < client.pttl("lock") <= 100_000


def test_a_lock_given_back_without_a_script(client: redis.Redis) -> None:
    """What `Lock.release` does in a script, as a transaction: the key goes only if it is still one's own."""
    assert client.set("lock", "me", nx=True, px=100_000)

    def release(pipe: Any) -> None:
        is_mine = pipe.get("lock") == "me"
        pipe.multi()
        if is_mine:
            pipe.delete("lock")

    assert client.transaction(release, "lock") == [1]
    assert not client.exists("lock")


# --- Client-side caching ------------------------------------------------------------------------------------------------


def test_a_cache_is_kept_up_to_date(server: Server) -> None:
    arguments = connection_arguments(server.port, 3)
    with redis.Redis(**arguments, cache_config=CacheConfig()) as client, redis.Redis(**arguments) as other:
        cache = client.get_cache()
        assert cache is not None
        other.set("k", "1")
        assert client.get("k") == "1"
        assert cache.size == 1
        calls = other.info("commandstats")["cmdstat_get"]["calls"]
        for _ in range(20):
            assert client.get("k") == "1"
        assert other.info("commandstats")["cmdstat_get"]["calls"] == calls
        other.set("k", "2")
        eventually(lambda: client.get("k") == "2")
        other.delete("k")
        eventually(lambda: client.get("k") is None)
        other.set("k", "3")
        eventually(lambda: client.get("k") == "3")
        other.flushall()
        eventually(lambda: client.get("k") is None)


# --- Connections that break ------------------------------------------------------------------------------------------------


def patient_arguments(port: int, protocol: int | None) -> dict[str, Any]:
    return connection_arguments(port, protocol, retry=Retry(ConstantBackoff(0.05), 100))


def test_a_killed_connection_is_made_again(server: Server, client: redis.Redis, protocol: int | None) -> None:
    with redis.Redis(**patient_arguments(server.port, protocol), single_connection_client=True) as victim:
        number = victim.client_id()
        assert client.client_kill_filter(_id=number) == 1
        assert victim.set("k", "1")
        assert victim.client_id() != number


def test_a_killed_subscriber_subscribes_again(server: Server, client: redis.Redis, protocol: int | None) -> None:
    with redis.Redis(**patient_arguments(server.port, protocol)) as victim:
        pubsub = victim.pubsub(ignore_subscribe_messages=True)
        pubsub.psubscribe("news.*")
        eventually(lambda: client.pubsub_numpat() == 1)
        assert client.client_kill_filter(_type="pubsub") == 1
        heard = None
        while heard is None:
            # It notices while it reads; until then nobody is subscribed.
            heard = pubsub.get_message(timeout=0.01)
            client.publish("news.art", "again")
        assert heard["data"] == "again"
        pubsub.close()


@pytest.fixture(params=["streamd", pytest.param("redis", marks=pytest.mark.real)])
def own_server(request: pytest.FixtureRequest) -> Server:
    started: Server = request.getfixturevalue(f"new_{request.param}")()
    return started


def test_the_server_restarts(own_server: Server, protocol: int | None) -> None:
    with redis.Redis(**patient_arguments(own_server.port, protocol)) as client:
        pubsub = client.pubsub(ignore_subscribe_messages=True)
        pubsub.subscribe("news")
        client.set("k", "1")
        own_server.restart()
        assert client.get("k") is None
        heard = None
        while heard is None:
            heard = pubsub.get_message(timeout=0.01)
            client.publish("news", "again")
        assert heard["data"] == "again"
        pubsub.close()


def test_the_server_restarts_under_asyncio(own_server: Server, protocol: int | None) -> None:
    async def play() -> None:
        arguments = connection_arguments(own_server.port, protocol)
        retry = redis.asyncio.retry.Retry(ConstantBackoff(0.05), 100)
        async with redis.asyncio.Redis(**arguments, retry=retry) as client:
            assert await client.set("k", "1")
            await asyncio.to_thread(own_server.restart)
            assert await client.get("k") is None
            assert await client.xadd("s", {"f": "v"}, id="1-1") == "1-1"

    asyncio.run(play())
