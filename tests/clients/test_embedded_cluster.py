"""A cluster inside the program that uses it."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from redis.cluster import RedisCluster
from support.servers import eventually, python_environment

import streamd.embedded
from streamd.clustering.cluster_error import ClusterError
from streamd.embedded.hosted_cluster import EmbeddedCluster
from streamd.errors import ConfigError, StreamdError

pytestmark = pytest.mark.long


def use(client: RedisCluster) -> None:
    for number in range(30):
        client.xadd(f"s:{number}", {"n": number}, id="1-1")
    assert [client.xlen(f"s:{number}") for number in range(30)] == [1] * 30


def keys_of(cluster: EmbeddedCluster) -> list[int]:
    """The number of keys of each node."""
    counts = []
    for node in cluster.nodes:
        with node.client() as client:
            counts.append(client.dbsize())
    return counts


@pytest.mark.parametrize("own_process", [False, True])
def test_all_nodes_have_their_share_and_nothing_is_left(own_process: bool) -> None:
    before = threading.active_count()
    with streamd.embedded.start_cluster(nodes=3, own_process=own_process) as cluster:
        use(cluster.client(decode_responses=True))
        assert all(keys_of(cluster))
        assert sum(keys_of(cluster)) == 30
        cluster.flush()
        assert sum(keys_of(cluster)) == 0
        folders = [Path(node.folder) for node in cluster.nodes]
        ports = [node.port for node in cluster.nodes]
    assert not any(folder.exists() for folder in folders)
    assert threading.active_count() == before
    for port in (*ports, *(port + 10_000 for port in ports)):
        with pytest.raises(ConnectionRefusedError, match="refused"):
            socket.create_connection(("127.0.0.1", port))


def test_a_replica_takes_the_place_of_a_node_that_is_killed() -> None:
    with streamd.embedded.start_cluster(
        nodes=6, replicas=1, cluster_node_timeout=1000, repl_diskless_sync_delay=0, requirepass="secret"
    ) as cluster:
        client = cluster.client(decode_responses=True)
        use(client)
        eventually(lambda: [*keys_of(cluster)[3:]] == [*keys_of(cluster)[:3]], what="the replicas have the data")
        cluster.nodes[0].kill()
        cluster.wait_until_ok()  # at first the others have not noticed
        eventually(lambda: all_are_there(client), what="the replica serves")
        cluster.nodes[0].restart()
        cluster.wait_until_ok()


def all_are_there(client: RedisCluster) -> bool:
    try:
        return [client.xlen(f"s:{number}") for number in range(30)] == [1] * 30
    except Exception:
        return False


def test_in_a_loop_it_does_not_block() -> None:
    async def main() -> None:
        async with streamd.embedded.start_cluster(nodes=2) as cluster:
            client = cluster.async_client(decode_responses=True)
            for number in range(10):
                await client.set(f"k:{number}", number)
            assert [await client.get(f"k:{number}") for number in range(10)] == [str(number) for number in range(10)]

    asyncio.run(main())


def test_what_cannot_be_started_is_refused() -> None:
    before = threading.active_count()
    with pytest.raises(ClusterError, match="2 nodes are too few for a primary with 2 replicas"):
        streamd.embedded.start_cluster(nodes=2, replicas=2)
    with pytest.raises(StreamdError, match="at least one node, not 0"):
        streamd.embedded.start_cluster(nodes=0)
    with pytest.raises(StreamdError, match="gives each node a port of its own"):
        streamd.embedded.start_cluster(port=7000)
    with pytest.raises(ConfigError, match="maxmemory"):
        streamd.embedded.start_cluster(maxmemory="much")
    assert threading.active_count() == before


def test_a_program_that_ends_without_stopping_it_leaves_nothing(tmp_path: Path) -> None:
    program = (
        "import os, streamd.embedded\n"
        "cluster = streamd.embedded.start_cluster(nodes=2, own_process=True)\n"
        "print(*(node._host.pid for node in cluster.nodes), *(node.folder for node in cluster.nodes), flush=True)\n"
        "os._exit(1)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=python_environment(), capture_output=True, text=True
    )
    *_, one, other = done.stdout.split()
    eventually(lambda: not Path(one).exists() and not Path(other).exists())
    assert list(tmp_path.iterdir()) == []
