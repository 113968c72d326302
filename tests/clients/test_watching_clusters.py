"""`streamd doctor` and `streamd top` on clusters: any node is named, all are looked at, and what ails the whole is found."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import redis
from support.cluster.nodes import start_cluster
from support.replicas.nodes import Node
from support.servers import eventually, python_environment

from streamd.client.archive_runs import ArchiveRun, format_runs, runs_key
from streamd.client.client_errors import UnreachableError
from streamd.client.place import Place
from streamd.embedded import EmbeddedCluster
from streamd.watching.board import Board
from streamd.watching.case import Thresholds
from streamd.watching.cluster_reading import ClusterLook, ClusterReader, reader_of
from streamd.watching.diagnosis import Diagnosis, diagnose
from streamd.watching.findings import Finding
from streamd.watching.look import Limits

pytestmark = pytest.mark.long

CLUSTER_KINDS = ("slots-uncovered", "node-down", "epochs-differ", "cluster-skew", "stream-hot", "replication-lag")


def examine(
    cluster: EmbeddedCluster, *, at: int = 0, during: Callable[[], object] = lambda: None, **limits: float
) -> Diagnosis:
    """A diagnosis by one of the nodes; `during` happens between the looks."""
    return diagnose(
        Place(port=cluster.nodes[at].port), Limits(), Thresholds(slow_ms=10_000, **limits), interval_s=0.0,
        wait=lambda seconds: during() and None,
    )  # fmt: skip


def of_kinds(found: Diagnosis, *kinds: str) -> list[Finding]:
    return [each for each in found.findings if each.kind in (kinds or CLUSTER_KINDS)]


def ask(cluster: EmbeddedCluster, at: int, *words: Any) -> Any:
    with cluster.nodes[at].client(decode_responses=True) as client:
        return client.execute_command(*words)


@pytest.fixture
def with_replicas(streamd_start_cluster: Callable[..., EmbeddedCluster]) -> EmbeddedCluster:
    cluster = streamd_start_cluster(nodes=6, replicas=1, repl_diskless_sync_delay=0, cluster_node_timeout=1000)
    eventually(lambda: all(ask(cluster, at, "ROLE")[3] == "connected" for at in (3, 4, 5)))
    return cluster


# --- Healthy clusters --------------------------------------------------------------------------------------------------


@pytest.mark.real
@pytest.mark.parametrize("kinds", [("streamd",) * 3, ("redis",) * 3, ("streamd", "redis", "streamd")], ids="-".join)
def test_all_streams_and_nodes_are_looked_at_by_any_node(new_node: Callable[..., Node], kinds: tuple[str, ...]) -> None:
    nodes = start_cluster(new_node, kinds, kinds[:1])
    client = redis.RedisCluster(host="127.0.0.1", port=nodes[0].port)
    with client:
        for number in range(20):
            client.xadd(f"s:{number}", {"n": number})
            client.xgroup_create(f"s:{number}", "g", id="0")
    for node in nodes:
        found = diagnose(Place(port=node.port), Limits(), Thresholds(), interval_s=0.0)
        assert sorted(found.look.streams) == sorted(f"s:{number}".encode() for number in range(20))
        assert of_kinds(found) == []
        assert {each.node for each in found.findings if each.kind == "persistence"} == {
            f"127.0.0.1:{each.port}" for each in nodes[:3]
        }
        assert "a cluster of 3 primaries, 1 replica, up" in found.page()
    told = json.loads(top(nodes[3].port, "--json"))
    assert len(told["streams"]) == len(told["groups"]) == 20
    assert {each["stream"]: each["lag"] for each in told["groups"]} == {f"s:{number}": 1 for number in range(20)}
    assert {each["node"]: each["role"] for each in told["nodes"]} == {
        f"127.0.0.1:{node.port}": "primary" if node in nodes[:3] else "replica" for node in nodes
    }
    assert sum(each["slots"] for each in told["nodes"]) == 16384
    assert sum(each["keys"] for each in told["nodes"] if each["role"] == "primary") == 20
    assert {each["state"] for each in told["nodes"]} == {"online"}
    assert told["used_memory"] == sum(each["used_memory"] for each in told["nodes"] if each["role"] == "primary")
    # Each node counts its own: the sum of all.
    assert next(each["calls"] for each in told["commands"] if each["command"] == "xadd") >= 20


def top(port: int, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "streamd", "top", "-p", str(port), "--interval", "0.1", *words],
        env=python_environment(), capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_table_of_nodes_is_printed(with_replicas: EmbeddedCluster) -> None:
    head, figures, _, columns, *rows = top(with_replicas.nodes[0].port, "--once", "--table", "nodes").splitlines()
    assert "a cluster of 6 nodes" in head
    assert "commands/s" in figures
    assert columns.split()[:5] == ["node", "role", "state", "slots", "keys"]
    assert [row.split()[1] for row in rows].count("replica") == 3
    assert sorted(row.split()[3] for row in rows if "primary" in row) == ["5,461", "5,461", "5,462"]


def test_pending_entries_and_their_fields_are_found_at_their_node(streamd_cluster: EmbeddedCluster) -> None:
    client = streamd_cluster.client()
    for number in range(9):
        client.xadd(f"s:{number}", {"n": number}, id="1-1")
        client.xgroup_create(f"s:{number}", "g", id="0")
        client.xreadgroup("g", "c", {f"s:{number}": ">"})
    reader = reader_of(Place(port=streamd_cluster.nodes[1].port), Limits())
    assert isinstance(reader, ClusterReader)
    board = Board(reader)
    board.refresh()
    for number in range(9):
        assert [row["id"] for row in board.pending(f"s:{number}", "g")] == ["1-1"]
        assert board.entry(f"s:{number}", "g", "1-1") == [("n", str(number))]
    reader.close()


def test_the_records_of_archivers_are_beside_the_streams(streamd_cluster: EmbeddedCluster) -> None:
    client = streamd_cluster.client()
    for number in range(9):
        client.xadd(f"s:{number}", {"n": number})
        client.set(runs_key(f"s:{number}"), format_runs({"a": ArchiveRun(archive=f"/{number}", run="r", at_ms=1)}))
    reader = ClusterReader(Place(port=streamd_cluster.nodes[0].port), Limits())
    found = reader.archive_runs(reader.look().streams)
    assert {key: runs[0].archive for key, runs in found.items()} == {f"s:{n}".encode(): f"/{n}" for n in range(9)}
    reader.close()


# --- What ails them ----------------------------------------------------------------------------------------------------


def test_slots_that_nobody_has_are_found(streamd_cluster: EmbeddedCluster) -> None:
    assert of_kinds(examine(streamd_cluster)) == []
    with pytest.raises(UnreachableError, match=r"^Could not connect to 127\.0\.0\.1:1: "):
        diagnose(Place(port=1), Limits(), Thresholds(), interval_s=0.0)
    for at in range(3):
        ask(streamd_cluster, at, "CLUSTER", "DELSLOTSRANGE", 0, 9)
    (finding,) = of_kinds(examine(streamd_cluster, at=2))
    assert (finding.severity, finding.kind, finding.subject) == ("critical", "slots-uncovered", "10 slots")
    assert finding.figure == "Of 16,384 slots, 10 belong to no node."
    assert finding.values == {"slots": 10, "unassigned": 10, "failed": 0}


def test_a_primary_that_dies_between_two_looks_is_found_and_the_others_are_looked_at(
    with_replicas: EmbeddedCluster,
) -> None:
    client = with_replicas.client()
    for number in range(20):
        client.xadd(f"s:{number}", {"n": number})
    victim = with_replicas.nodes[0]
    place = f"127.0.0.1:{victim.port}"
    killed: list[bool] = []

    def kill() -> None:
        if not killed:
            killed.append(True)
            victim.kill()

    found = examine(with_replicas, during=kill)  # by the node that dies
    (finding,) = of_kinds(found, "node-down")
    assert (finding.severity, finding.subject) == ("critical", f"primary {place}")
    assert 0 < len(found.look.streams) < 20
    # The replica takes over.
    eventually(lambda: len(examine(with_replicas, at=1).look.streams) == 20)
    (finding,) = of_kinds(examine(with_replicas, at=1), "node-down")
    assert (finding.severity, "copy less" in finding.why) == ("warning", True)
    assert not of_kinds(examine(with_replicas, at=1), "slots-uncovered")
    victim.restart()
    with_replicas.wait_until_ok()
    eventually(lambda: not of_kinds(examine(with_replicas)))


def test_a_primary_that_fails_without_a_replica_leaves_slots_uncovered(
    streamd_start_cluster: Callable[..., EmbeddedCluster],
) -> None:
    cluster = streamd_start_cluster(nodes=3, cluster_node_timeout=500)
    cluster.nodes[2].kill()
    eventually(lambda: of_kinds(examine(cluster), "slots-uncovered"))
    (finding,) = of_kinds(examine(cluster), "slots-uncovered")
    assert finding.values == {"slots": 5461, "unassigned": 0, "failed": 5461}
    assert finding.why.startswith("All requests are refused")


def test_a_replica_that_dies_and_one_without_its_primary_are_found(
    streamd_start_cluster: Callable[..., EmbeddedCluster],
) -> None:
    cluster = streamd_start_cluster(nodes=4, replicas=1, repl_diskless_sync_delay=0)
    eventually(lambda: all(ask(cluster, at, "ROLE")[3] == "connected" for at in (2, 3)))
    places = [f"127.0.0.1:{node.port}" for node in cluster.nodes]
    cluster.nodes[2].kill()
    expected = [("warning", f"replica {places[2]}")]
    eventually(lambda: [(each.severity, each.subject) for each in of_kinds(examine(cluster), "node-down")] == expected)
    cluster.nodes[1].kill()
    eventually(lambda: of_kinds(examine(cluster), "replication-lag"))
    (finding,) = of_kinds(examine(cluster), "replication-lag")
    assert (finding.severity, finding.subject, finding.node) == ("critical", f"primary {places[1]}", places[3])


def test_uneven_shares_are_found(streamd_start_cluster: Callable[..., EmbeddedCluster]) -> None:
    cluster = streamd_start_cluster(nodes=2)
    client = cluster.client()
    places = [f"127.0.0.1:{node.port}" for node in cluster.nodes]

    def use() -> None:
        with cluster.nodes[0].client() as node:
            pipeline = node.pipeline(transaction=False)
            for _ in range(2000):
                pipeline.ping()
            pipeline.execute()

    (finding,) = of_kinds(examine(cluster, during=use))
    assert (finding.kind, finding.subject) == ("cluster-skew", f"commands of {places[0]}")
    assert finding.values["most"] > 1.5 * finding.values["mean"]
    assert of_kinds(examine(cluster, during=use, skew=2.5)) == []
    client.setrange("k", 80 * 1024 * 1024, "x")
    owner = places[[node.port for node in cluster.nodes].index(client.get_node_from_key("k").port)]
    (finding,) = of_kinds(examine(cluster))
    assert finding.subject == f"memory of {owner}"
    client.delete("k")
    ask(cluster, 1, "CLUSTER", "MIGRATION", "IMPORT", 0, 4999)
    eventually(lambda: [each.subject for each in of_kinds(examine(cluster))] == [f"slots of {places[1]}"])


def test_a_stream_that_gets_most_of_the_entries_is_found(streamd_cluster: EmbeddedCluster) -> None:
    client = streamd_cluster.client()
    client.xadd("hot", {"n": 0})
    client.xadd("cold", {"n": 0})

    def add() -> None:
        with client.pipeline() as pipeline:
            for number in range(1000):
                pipeline.xadd("hot", {"n": number})
            for number in range(100):
                pipeline.xadd("cold", {"n": number})
            pipeline.execute()

    (finding,) = of_kinds(examine(streamd_cluster, during=add), "stream-hot")
    assert finding.subject == "stream hot"
    assert 0.9 < finding.values["share"] < 0.92
    assert of_kinds(examine(streamd_cluster, during=add, hot=0.95), "stream-hot") == []
    assert of_kinds(examine(streamd_cluster), "stream-hot") == []


def test_nodes_that_disagree_are_found(streamd_cluster: EmbeddedCluster) -> None:
    first = f"127.0.0.1:{streamd_cluster.nodes[0].port}"
    ask(streamd_cluster, 0, "CLUSTER", "DELSLOTS", 7)
    found = of_kinds(examine(streamd_cluster, at=1), "epochs-differ")
    assert [each.severity for each in found] == ["warning"]
    assert found[0].subject.startswith(f"{first} and 127.0.0.1:")
    assert found[0].figure.startswith(f"{first} claims 5,460 slots in epoch 1; ")
    ask(streamd_cluster, 0, "CLUSTER", "ADDSLOTS", 7)
    eventually(lambda: not of_kinds(examine(streamd_cluster, at=1)))


def test_the_board_survives_a_fail_over(with_replicas: EmbeddedCluster) -> None:
    client = with_replicas.client()
    for number in range(20):
        client.xadd(f"s:{number}", {"n": number})
    reader = reader_of(Place(port=with_replicas.nodes[0].port), Limits())
    board = Board(reader)
    board.refresh()
    with_replicas.nodes[0].kill()

    def all_are_back() -> bool:
        board.refresh()
        return len(board.rows("streams")) == 20

    eventually(all_are_back)
    states = {row["node"]: row["state"] for row in board.rows("nodes")}
    assert states[f"127.0.0.1:{with_replicas.nodes[0].port}"] == "no answer"
    assert isinstance(board.look, ClusterLook)
    assert len(board.look.primaries) == 3
    reader.close()


def test_the_exit_status_and_the_page_of_the_command(streamd_cluster: EmbeddedCluster) -> None:
    command = [sys.executable, "-m", "streamd", "doctor", "-p", str(streamd_cluster.nodes[1].port), "--interval", "0"]
    streamd_cluster.client().xadd("s", {"n": 1})
    done = subprocess.run(command, env=python_environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, "a cluster of 3 primaries, 0 replicas" in done.stdout) == (3, True), done.stdout
    done = subprocess.run([*command, "--json"], env=python_environment(), capture_output=True, text=True, check=False)
    told = json.loads(done.stdout)
    assert told["role"] == "a cluster of 3 primaries, 0 replicas"
    assert {each["node"] for each in told["findings"]} >= {f"127.0.0.1:{node.port}" for node in streamd_cluster.nodes}
