"""redis-py's clients of clusters, sync and asyncio, on streamd nodes and a Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import redis
import redis.asyncio
from redis.asyncio.cluster import RedisCluster as AsyncRedisCluster
from redis.cluster import LoadBalancingStrategy, RedisCluster
from support.cluster.nodes import Nodes, start_cluster
from support.replicas.nodes import Node, wait_until

pytestmark = [pytest.mark.real, pytest.mark.long]

NewNode = Callable[..., Node]


@pytest.fixture(scope="module")
def cluster(new_shared_node: NewNode) -> Nodes:
    return start_cluster(new_shared_node, ("streamd", "redis", "streamd"), ("streamd",))


@pytest.mark.parametrize("protocol", [2, 3])
def test_streams_and_groups_work_on_all_nodes(cluster: Nodes, protocol: int) -> None:
    with RedisCluster(host="127.0.0.1", port=cluster[0].port, protocol=protocol, decode_responses=True) as client:
        for number in range(30):
            name = f"stream:{protocol}:{number}"
            client.xadd(name, {"n": number}, id="1-1")
            client.xgroup_create(name, "g", id="0")
            replies = client.xreadgroup("g", "c", {name: ">"}, count=10)
            entries = replies[name][0] if isinstance(replies, dict) else replies[0][1]
            assert entries[0][1] == {"n": str(number)}
            assert client.xack(name, "g", "1-1") == 1
        assert client.xread({f"{{a}}{protocol}": "0"}, block=10) in ({}, [])
        assert len(list(client.scan_iter(f"stream:{protocol}:*"))) == 30
        pipe = client.pipeline()
        for number in range(10):
            pipe.set(f"p:{number}", number)
        assert pipe.execute() == [True] * 10
        assert client.mget_nonatomic([f"p:{number}" for number in range(10)]) == [str(number) for number in range(10)]


def test_transactions_and_scripts_use_one_slot(cluster: Nodes) -> None:
    with RedisCluster(host="127.0.0.1", port=cluster[0].port, decode_responses=True) as client:
        with client.pipeline(transaction=True) as pipe:
            pipe.set("{t}1", "a")
            pipe.get("{t}1")
            assert pipe.execute()[1] == "a"
        assert client.eval("return redis.call('GET', KEYS[1])", 1, "{t}1") == "a"
        with pytest.raises(redis.exceptions.RedisClusterException, match="slot"):
            client.eval("return 1", 2, "a", "b")


def reads_of(node: Node) -> int:
    """How often GET has been called on a node."""
    return int(node.info("commandstats").get("cmdstat_get", "calls=0").split("calls=")[1].split(",")[0])


def test_replicas_are_read_from(cluster: Nodes) -> None:
    cluster[0].must("SET", "bar", "v")  # a replica is not shown to clients before it has something
    wait_until(lambda: len(cluster[0].call("CLUSTER", "SLOTS").value[0].value) == 4, "the replica is shown")
    before = reads_of(cluster[3])
    strategy = LoadBalancingStrategy.ROUND_ROBIN
    with RedisCluster(
        host="127.0.0.1", port=cluster[0].port, load_balancing_strategy=strategy, decode_responses=True
    ) as client:
        wait_until(lambda: [client.get("bar") for _ in range(6)] == ["v"] * 6, "all copies have it")
    assert reads_of(cluster[3]) > before


def test_shard_channels_reach_their_subscribers(cluster: Nodes) -> None:
    with RedisCluster(host="127.0.0.1", port=cluster[1].port, decode_responses=True) as client:
        pubsub = client.pubsub()
        names = [f"news:{number}" for number in range(6)]
        for name in names:
            pubsub.ssubscribe(name)
        heard: set[str] = set()

        def listen() -> bool:
            message = pubsub.get_sharded_message(timeout=0.2)
            if message is not None and message["type"] == "smessage":
                heard.add(message["channel"])
            return len(heard) == len(names)

        for name in names:
            client.spublish(name, "hello")
        wait_until(listen, "all messages arrive")
        pubsub.close()


def test_the_asyncio_client_works(cluster: Nodes) -> None:
    async def use() -> None:
        async with AsyncRedisCluster(host="127.0.0.1", port=cluster[2].port, decode_responses=True) as client:
            for number in range(20):
                await client.xadd(f"async:{number}", {"n": number}, id="1-1")
            assert [await client.xlen(f"async:{number}") for number in range(20)] == [1] * 20
            assert await client.cluster_keyslot("foo") == 12182

    asyncio.run(use())
