"""redis-cli --cluster on nodes of streamd, and of both kinds: create, check, reshard with keys, rebalance, add, remove, repair, import."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.cluster.nodes import Nodes, start_cluster, start_cluster_node
from support.cluster.redis_cli import cluster_cli, place
from support.replicas.nodes import Node, wait_until

pytestmark = [pytest.mark.real, pytest.mark.long]

NewNode = Callable[..., Node]


def start_nodes(new_node: NewNode, *kinds: str) -> Nodes:
    with ThreadPoolExecutor() as pool:
        return Nodes(pool.map(lambda kind: start_cluster_node(new_node, kind), kinds))


@pytest.mark.parametrize("kinds", [("streamd",) * 6, ("streamd", "redis") * 3], ids=["streamd", "mixed"])
def test_redis_cli_creates_a_cluster_and_finds_it_sound(new_node: NewNode, kinds: tuple[str, ...]) -> None:
    nodes = start_nodes(new_node, *kinds)
    text = cluster_cli("create", *map(place, nodes), "--cluster-replicas", "1", "--cluster-yes")
    assert "[OK] All 16384 slots covered." in text
    nodes.wait()
    for node in nodes:
        text = cluster_cli("check", place(node))
        assert "[OK] All nodes agree about slots configuration." in text
        assert "[OK] All 16384 slots covered." in text
    assert "16384 slots" in cluster_cli("info", place(nodes[0])) or "3 masters" in cluster_cli("info", place(nodes[0]))
    assert cluster_cli("call", place(nodes[1]), "PING").count("PONG") == 6


@pytest.fixture(scope="module")
def cluster(new_shared_node: NewNode) -> Nodes:
    return start_cluster(new_shared_node, ("streamd", "redis", "streamd"))


@pytest.mark.parametrize(
    ("source", "target"), [(0, 2), (0, 1), (1, 0)], ids=["streamd-streamd", "streamd-redis", "redis-streamd"]
)
def test_resharding_moves_slots_with_their_streams(cluster: Nodes, source: int, target: int) -> None:
    nodes = Nodes([cluster[source], cluster[target]])
    owned = nodes.owners(nodes[0])[nodes.id_of(nodes[0])]
    slot = int(owned.split()[0].split("-")[0])
    tag = next(
        f"t{number}" for number in range(100_000) if nodes[0].call("CLUSTER", "KEYSLOT", f"t{number}").value == slot
    )
    nodes[0].must("SET", f"{{{tag}}}s", "v", "PX", "1000000")
    stream = f"{{{tag}}}x"
    nodes[0].must("XADD", stream, "1-1", "f", "v")
    nodes[0].must("XADD", stream, "2-1", "f", "v")
    nodes[0].must("XGROUP", "CREATE", stream, "g", "0")
    nodes[0].must("XREADGROUP", "GROUP", "g", "alice", "COUNT", "1", "STREAMS", stream, ">")
    before = [nodes[0].call(*words) for words in (("XINFO", "STREAM", stream), ("XPENDING", stream, "g"))]
    text = cluster_cli(
        "reshard", place(cluster[0]), "--cluster-from", nodes.id_of(nodes[0]), "--cluster-to", nodes.id_of(nodes[1]),
        "--cluster-slots", "3", "--cluster-yes",
    )  # fmt: skip
    assert f"Moving slot {slot} from" in text
    cluster.wait()
    assert nodes[0].call("CLUSTER", "COUNTKEYSINSLOT", str(slot)).value == 0
    assert nodes[1].call("CLUSTER", "COUNTKEYSINSLOT", str(slot)).value == 2
    assert nodes[0].call("XLEN", stream).value.decode() == f"MOVED {slot} {place(nodes[1])}"
    after = [nodes[1].call(*words) for words in (("XINFO", "STREAM", stream), ("XPENDING", stream, "g"))]
    assert after == before
    assert 0 < nodes[1].call("PTTL", f"{{{tag}}}s").value <= 1000000
    nodes[1].must("DEL", stream, f"{{{tag}}}s")


def test_rebalancing_evens_the_slots_out(cluster: Nodes) -> None:
    cluster_cli("rebalance", place(cluster[0]), "--cluster-threshold", "1", "--cluster-use-empty-masters")
    cluster.wait()
    assert "[OK] All 16384 slots covered." in cluster_cli("check", place(cluster[2]))


def test_fix_finishes_a_move_that_was_interrupted(cluster: Nodes) -> None:
    first, second = cluster[0], cluster[2]
    slot = int(cluster.owners(first)[cluster.id_of(first)].split()[0].split("-")[0])
    assert not second.call("CLUSTER", "SETSLOT", str(slot), "IMPORTING", cluster.id_of(first)).is_error
    assert not first.call("CLUSTER", "SETSLOT", str(slot), "MIGRATING", cluster.id_of(second)).is_error
    assert "has slots in importing state" in cluster_cli("check", place(first), expects=1)
    cluster_cli("fix", place(first), "--cluster-yes")
    cluster.wait()
    assert "[OK] All 16384 slots covered." in cluster_cli("check", place(first))


def test_nodes_are_added_and_removed(cluster: Nodes, new_shared_node: NewNode) -> None:
    added = start_nodes(new_shared_node, "streamd", "streamd")
    primary, replica = added
    cluster_cli("add-node", place(primary), place(cluster[0]))
    everybody = Nodes([*cluster, *added])
    Nodes([*cluster, primary]).wait("all know the new node, and it the slots")
    master_id = cluster.id_of(cluster[0])
    cluster_cli("add-node", place(replica), place(cluster[0]), "--cluster-slave", "--cluster-master-id", master_id)
    everybody.wait()
    assert cluster.lines(replica)[cluster.id_of(replica)][3] == master_id
    for node in (replica, primary):
        cluster_cli("del-node", place(cluster[0]), cluster.id_of(node))
    wait_until(lambda: len(cluster.lines(cluster[0])) == 3, "the nodes are forgotten")
    assert len(cluster.lines(primary)) == 1


def test_a_plain_server_is_imported(cluster: Nodes, new_node: NewNode) -> None:
    source = new_node("streamd")
    for number in range(20):
        source.must("XADD", f"import:{number}", "1-1", "f", "v")
    cluster_cli("import", place(cluster[0]), "--cluster-from", place(source), "--cluster-copy")
    held = [node.call("KEYS", "import:*").value for node in cluster]
    assert sum(map(len, held)) == 20
    assert all(held)


def test_the_timeout_is_set_everywhere(cluster: Nodes) -> None:
    text = cluster_cli("set-timeout", place(cluster[0]), "3000", expects=0)
    assert "New node timeout set" in text
    assert all(node.must("CONFIG", "GET", "cluster-node-timeout").value[1].value == b"3000" for node in cluster)
