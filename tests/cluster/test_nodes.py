"""Clusters of real processes: nodes of both kinds meet, serve their slots, redirect, replicate and fail over."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from support.cluster.nodes import Nodes, start_cluster, start_cluster_node
from support.replicas.nodes import Node, wait_until
from support.wire import Wire

from streamd.keyspace.hash_slot import SLOTS, slot_of

pytestmark = [pytest.mark.real, pytest.mark.long]

NewNode = Callable[..., Node]


def write_somewhere(nodes: Nodes, key: str, value: str) -> None:
    """SET at the node that serves the key, as a client does: it follows redirections."""
    node = nodes.running[0]
    for _ in range(5):
        reply = node.call("SET", key, value)
        if not reply.is_error:
            return
        words = reply.value.decode().split()
        assert words[0] == "MOVED", reply
        node = next(each for each in nodes if each.port == int(words[2].rpartition(":")[2]))
    raise AssertionError(f"{key} goes round in circles")


@pytest.fixture(scope="module")
def cluster(new_shared_node: NewNode) -> Nodes:
    """Three primaries, one of them a Redis; the first one has a replica."""
    return start_cluster(new_shared_node, ("streamd", "redis", "streamd"), ("streamd",))


@pytest.fixture
def connect() -> Iterator[Callable[..., Wire]]:
    """Connections that are closed at the end."""
    with ExitStack() as open_wires:
        yield lambda node, protocol=2: open_wires.enter_context(node.connect(protocol, timeout_s=20))


# --- Without a fault: all in one cluster -------------------------------------------------------------------------------


def test_three_nodes_serve_their_slots_and_send_clients_to_the_others(cluster: Nodes) -> None:
    nodes = cluster
    assert nodes[0].call("SET", "foo", "1").value.decode() == f"MOVED 12182 127.0.0.1:{nodes[2].port}"
    assert nodes[1].call("GET", "foo").value.decode() == f"MOVED 12182 127.0.0.1:{nodes[2].port}"
    assert nodes[2].call("SET", "foo", "1").value == b"OK"
    for number in range(100):
        write_somewhere(nodes, f"key:{number}", "v")
    assert sum(node.call("DBSIZE").value for node in nodes[:3]) >= 100


def test_a_replica_serves_reads_of_clients_that_have_sent_readonly(cluster: Nodes) -> None:
    primary, replica = cluster[0], cluster[3]
    primary.must("SET", "bar", "1")
    assert primary.call("WAIT", "1", "5000").value == 1
    moved = f"MOVED 5061 127.0.0.1:{primary.port}".encode()
    assert replica.call("GET", "bar").value == moved
    assert replica.call("READONLY").value == b"OK"
    assert replica.call("GET", "bar").value == b"1"
    assert replica.call("SET", "bar", "2").value == moved
    assert replica.call("EVAL", "return redis.call('GET', KEYS[1])", "1", "bar").value == b"1"
    assert replica.call("EVAL_RO", "return redis.call('GET', KEYS[1])", "1", "bar").value == b"1"
    assert b" flags=r " in replica.call("CLIENT", "LIST", "ID", str(replica.call("CLIENT", "ID").value)).value
    assert replica.call("READWRITE").value == b"OK"
    assert replica.call("GET", "bar").value == moved


def test_messages_reach_subscribers_of_all_nodes(cluster: Nodes, connect: Callable[..., Wire]) -> None:
    nodes = cluster
    listeners = [connect(node) for node in nodes]
    for wire in listeners:
        assert wire.call("SUBSCRIBE", "news").value[0].value == b"subscribe"
    for number, node in enumerate(nodes):
        assert node.call("PUBLISH", "news", f"{number}").value == 1
        for wire in listeners:
            assert wire.read().value[2].value == b"%d" % number


def test_shard_messages_stay_in_their_shard(cluster: Nodes, connect: Callable[..., Wire]) -> None:
    nodes = cluster
    primary, replica = nodes[0], nodes[3]  # of the channel bar, slot 5061
    wires = [connect(node) for node in (primary, replica)]
    for wire in wires:
        assert wire.call("SSUBSCRIBE", "bar").value[0].value == b"ssubscribe"
    assert nodes[1].call("SSUBSCRIBE", "bar").value.startswith(b"MOVED 5061 ")
    for node in (primary, replica):
        assert node.call("SPUBLISH", "bar", "hello").value == 1
        for wire in wires:
            assert wire.read().value[2].value == b"hello"


def test_a_waiting_client_is_redirected_when_the_slot_leaves(cluster: Nodes, connect: Callable[..., Wire]) -> None:
    first, second = cluster[0], cluster[2]
    wire, listener = connect(first), connect(first, 3)
    assert listener.call("SSUBSCRIBE", "bar").kind == ">"
    first.must("DEL", "bar")
    wire.send("XREAD", "BLOCK", "0", "STREAMS", "bar", "$")
    wait_until(lambda: first.info("clients")["blocked_clients"] == "1", "the client waits")
    target = cluster.id_of(second)
    for node in (second, first):
        assert node.call("CLUSTER", "SETSLOT", "5061", "NODE", target).value == b"OK"
    assert wire.read().value.decode() == f"MOVED 5061 127.0.0.1:{second.port}"
    assert wire.call("PING").value == b"PONG"
    notice = listener.read()
    assert [part.value for part in notice.value] == [b"sunsubscribe", b"bar", 0]


# --- With faults: each in a cluster of its own --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("primaries", "replicas"),
    [
        (("streamd",) * 3, ("streamd",)),
        (("redis", "streamd", "streamd"), ("streamd",)),
        (("streamd", "streamd", "redis"), ("redis",)),
    ],
    ids=["streamd", "replica-of-redis", "redis-as-replica"],
)
def test_a_replica_takes_over_from_a_killed_primary(
    new_node: NewNode, primaries: tuple[str, ...], replicas: tuple[str, ...]
) -> None:
    nodes = start_cluster(new_node, primaries, replicas, cluster_node_timeout="1000")
    old, replica = nodes[0], nodes[3]
    for number in range(100):
        write_somewhere(nodes, f"key:{number}", "v")
    old.must("XADD", "bar", "1-1", "f", "v")  # slot 5061
    old.must("XGROUP", "CREATE", "bar", "g", "0")
    count = old.call("DBSIZE").value
    assert old.call("WAIT", "1", "5000").value == 1
    old.kill()
    wait_until(lambda: nodes.owner_of_or_none(5061) is replica, "the replica takes over")
    nodes.wait()
    assert replica.call("DBSIZE").value == count
    assert replica.call("XLEN", "bar").value == 1
    write_somewhere(nodes, "bar2{bar}", "v")
    old.start()
    nodes.wait("the old primary comes back as a replica")
    wait_until(lambda: old.info().get("role") == "slave", "the old primary is a replica")
    wait_until(lambda: old.call("DBSIZE").value == count + 1, "it has what was written")


@pytest.mark.parametrize("kind", ["streamd", "redis"])
def test_a_manual_fail_over_loses_nothing(new_node: NewNode, kind: str) -> None:
    nodes = start_cluster(new_node, (kind, "streamd", "streamd"), ("streamd",))
    primary, replica = nodes[0], nodes[3]
    primary.must("SET", "bar", "1")
    assert replica.call("CLUSTER", "FAILOVER").value == b"OK"
    wait_until(lambda: nodes.owner_of_or_none(5061) is replica, "the replica takes over")
    nodes.wait()
    assert replica.call("GET", "bar").value == b"1"
    wait_until(lambda: primary.info().get("role") == "slave", "the old primary is a replica")
    assert replica.call("SET", "bar", "2").value == b"OK"


def test_a_primary_that_comes_back_with_an_old_nodes_conf_finds_its_place(new_node: NewNode) -> None:
    """In its file it is a replica of the node that follows it. Redis 8.6 ends up in an endless loop then, on every node."""
    nodes = start_cluster(new_node, ("streamd",) * 3, ("streamd",), cluster_node_timeout="10000")
    old, new = nodes[0], nodes[3]
    file = new.folder / "nodes.conf"
    before = file.read_bytes()
    assert new.call("CLUSTER", "FAILOVER").value == b"OK"
    wait_until(lambda: nodes.owner_of_or_none(5061) is new, "the replica takes over")
    nodes.wait()
    new.must("SET", "bar", "1")
    assert new.call("WAIT", "1", "5000").value == 1
    new.kill()
    file.write_bytes(before)
    new.start()
    nodes.wait("the nodes agree on a primary")
    assert nodes.owner_of(5061) is old
    assert old.call("GET", "bar").value == b"1"
    wait_until(lambda: new.call("DBSIZE").value == 1, "the node that forgot has the data")


@pytest.mark.parametrize("kind", ["streamd", "redis"])
def test_a_primary_gets_back_the_epoch_that_is_missing_in_an_old_nodes_conf(new_node: NewNode, kind: str) -> None:
    """A Redis among Redis nodes keeps the old epoch: they do not tell it."""
    nodes = start_cluster(new_node, (kind, "streamd", "streamd"))
    node = nodes[0]
    file, name = node.folder / "nodes.conf", nodes.id_of(node)
    before = file.read_bytes()
    assert node.call("CLUSTER", "BUMPEPOCH").value == b"BUMPED 4"

    def agree() -> bool:
        return all(nodes.lines(each)[name][6] == "4" for each in nodes)

    wait_until(agree, "all know the new epoch")
    node.kill()
    file.write_bytes(before)
    node.start()
    wait_until(agree, "the node has its epoch again")


def test_a_node_keeps_its_identity_over_a_restart(new_node: NewNode) -> None:
    nodes = start_cluster(new_node, ("streamd", "streamd", "redis"))
    node = nodes[0]
    before = nodes.id_of(node), nodes.owners(node)
    node.stop()
    node.start()
    nodes.wait()
    assert (nodes.id_of(node), nodes.owners(node)) == before


def test_the_cluster_is_down_while_slots_are_not_served(new_node: NewNode) -> None:
    nodes = start_cluster(new_node, ("streamd",) * 3, cluster_node_timeout="1000")
    nodes[2].kill()
    wait_until(lambda: nodes.state(nodes[0]) == "fail", "the cluster is down")
    assert nodes[0].call("GET", "bar").value == b"CLUSTERDOWN The cluster is down"
    nodes[0].must("CONFIG", "SET", "cluster-allow-reads-when-down", "yes")
    assert nodes[0].call("GET", "bar").kind == "$-1"
    assert nodes[0].call("SET", "bar", "1").value == b"CLUSTERDOWN The cluster is down and only accepts read commands"
    nodes[0].must("CONFIG", "SET", "cluster-require-full-coverage", "no")
    wait_until(lambda: nodes.state(nodes[0]) == "ok", "the rest is served")
    assert nodes[0].call("SET", "bar", "1").value == b"OK"


def test_a_frozen_primary_comes_back_as_a_replica(new_node: NewNode) -> None:
    nodes = start_cluster(new_node, ("streamd",) * 3, ("streamd",), cluster_node_timeout="1000")
    old, replica = nodes[0], nodes[3]
    old.freeze()
    wait_until(lambda: nodes.lines(replica)[nodes.id_of(replica)][2] == "myself,master", "the replica takes over")
    old.thaw()
    wait_until(lambda: old.info().get("role") == "slave", "the old primary follows the new one")
    nodes.wait()


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_the_first_migrate_need_not_load_a_library(new_node: NewNode) -> None:
    """It would hold up both nodes for that time, some milliseconds."""
    node = start_cluster_node(new_node, "streamd")
    assert "anycrc" in Path(f"/proc/{node.info('server')['process_id']}/maps").read_text()


def test_a_node_takes_part_in_the_cluster_while_it_runs_a_script(new_node: NewNode) -> None:
    node, other = start_cluster(new_node, ("streamd", "streamd"), busy_reply_threshold="1", cluster_node_timeout="1000")

    def pings() -> int:
        fields = dict(line.split(":") for line in other.call("CLUSTER", "INFO").value.decode().splitlines())
        return int(fields["cluster_stats_messages_ping_received"])

    with Wire(node.port) as wire:
        wire.send("EVAL", "while true do end", "0")
        wait_until(lambda: node.call("PING").value.startswith(b"BUSY"), "the script is slow")
        before = pings()
        wait_until(lambda: pings() > before + 2, "the node sends PINGs")
        assert node.call("SCRIPT", "KILL").value == b"OK"


def test_a_node_takes_part_in_the_cluster_when_it_has_loaded_its_files(new_node: NewNode) -> None:
    settings = {"appendonly": "yes", "cluster_node_timeout": "1000", "key_load_delay": "10000"}
    node, other = nodes = start_cluster(new_node, ("streamd", "redis"), **settings)
    owned = [name for name in map(str, range(4000)) if slot_of(name.encode()) < SLOTS // 2][:1500]
    for name in owned:
        node.must("SET", name, "v")
    node.kill()
    node.hang_up()
    received = "cluster_stats_messages_ping_received"

    def is_loading() -> bool:
        with suppress(OSError), node.connect() as wire:
            return b"loading:1" in wire.call("INFO", "persistence").value
        return False

    with ThreadPoolExecutor() as pool:
        start = pool.submit(node.start)
        wait_until(is_loading, "it loads")
        before = nodes.state(other, received)
        wait_until(lambda: b"fail?" in other.must("CLUSTER", "NODES").value, "the other one suspects it")
        assert nodes.state(other, received) == before
        assert not start.done(), "it has loaded before it was suspected"
        start.result()
    nodes.wait()
