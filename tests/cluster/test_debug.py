"""DEBUG of nodes of a cluster: the same replies as Redis's, and the same effects. Every effect is shown on Redis, too."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.cluster.moves import begin, keys_inside, plain, status
from support.cluster.nodes import Nodes, start_cluster, start_cluster_node
from support.replicas.nodes import Node, wait_until
from support.wire import Wire

from streamd.keyspace.hash_slot import tag_of

pytestmark = [pytest.mark.real, pytest.mark.long]

NewNode = Callable[..., Node]
KINDS = ("streamd", "redis")
UNKNOWN_ID = "0" * 40
PUBLISH = 4

DIALOGUE = (
    ("INTERNAL_SECRET", "x"), ("MARK-INTERNAL-CLIENT",), ("MARK-INTERNAL-CLIENT", "unmark"), ("MARK-INTERNAL-CLIENT", "x"),
    ("DROP-CLUSTER-PACKET-FILTER",), ("DROP-CLUSTER-PACKET-FILTER", "x"), ("DROP-CLUSTER-PACKET-FILTER", "100"),
    ("DROP-CLUSTER-PACKET-FILTER", "-1"), ("CLOSE-CLUSTER-LINK-ON-PACKET-DROP", "1"),
    ("CLUSTERLINK",), ("CLUSTERLINK", "KILL"), ("CLUSTERLINK", "KILL", "all", UNKNOWN_ID), ("CLUSTERLINK", "KILL", "x", UNKNOWN_ID),
    ("CLUSTERLINK", "KILL", "to", "MYID"), ("CLUSTERLINK", "x", "all", "MYID"),
    ("ASM-FAILPOINT", "x"), ("ASM-FAILPOINT", "x", "y"), ("ASM-FAILPOINT", "import-main-channel", "x"),
    ("ASM-FAILPOINT", "x", "connecting"), ("ASM-FAILPOINT", "Import-Main-Channel", "Connecting"), ("ASM-FAILPOINT", "", ""),
    ("ASM-FAILPOINT", "migrate-rdb-channel", "wait-bgsave-start"), ("ASM-FAILPOINT", "", "none"), ("ASM-FAILPOINT", "", ""),
    ("ASM-TRIM-METHOD",), ("ASM-TRIM-METHOD", "x"), ("ASM-TRIM-METHOD", "none"), ("ASM-TRIM-METHOD", "Active"),
    ("ASM-TRIM-METHOD", "active", "x"), ("ASM-TRIM-METHOD", "active", "-1"), ("ASM-TRIM-METHOD", "bg", "5"),
    ("ASM-TRIM-METHOD", "default", "1", "2"), ("ASM-TRIM-METHOD", "default"),
)  # fmt: skip


@pytest.mark.parametrize("is_node", [True, False])
def test_replies_are_those_of_redis(new_node: NewNode, is_node: bool) -> None:
    settings = {"enable_debug_command": "yes", "cluster_enabled": "yes" if is_node else "no"}
    own, other = (start_cluster_node(new_node, kind, **settings) for kind in KINDS)
    for words in DIALOGUE:
        replies = []
        for node in (own, other):
            myself = node.call("CLUSTER", "MYID").value if is_node else b"x"
            replies.append(node.call("DEBUG", *(myself if word == "MYID" else word for word in words)))
        assert replies[0] == replies[1], words


@pytest.fixture(scope="module", params=KINDS)
def cluster(new_shared_node: NewNode, request: pytest.FixtureRequest) -> Nodes:
    return start_cluster(new_shared_node, (request.param, request.param), enable_debug_command="yes")


def test_nodes_share_a_secret(new_node: NewNode) -> None:
    nodes = start_cluster(new_node, KINDS, enable_debug_command="yes")
    wait_until(lambda: len({node.call("DEBUG", "INTERNAL_SECRET").value for node in nodes}) == 1, "the same secret")


def test_internal_clients_may_do_more(cluster: Nodes) -> None:
    with Wire(cluster[0].port) as wire:
        wire.call("DEBUG", "MARK-INTERNAL-CLIENT")
        assert wire.call("CLUSTER", "SYNCSLOTS", "CONF", "NODE-ID", cluster.id_of(cluster[1])).value == b"OK"
        wire.call("DEBUG", "MARK-INTERNAL-CLIENT", "UNMARK")
        assert wire.call("CLUSTER", "SYNCSLOTS", "CONF", "NODE-ID", cluster.id_of(cluster[1])).is_error


@pytest.mark.parametrize("direction", ["to", "from", "all"])
def test_links_are_closed_and_made_again(cluster: Nodes, direction: str) -> None:
    node, other = cluster

    def links() -> dict[bytes, int]:
        found = [dict(zip(flat[::2], flat[1::2], strict=True)) for flat in plain(node.call("CLUSTER", "LINKS"))]
        return {link[b"direction"]: link[b"create-time"] for link in found}

    wait_until(lambda: len(links()) == 2, "both links")
    before = links()
    node.must("DEBUG", "CLUSTERLINK", "KILL", direction, cluster.id_of(other))
    killed = {b"to", b"from"} if direction == "all" else {direction.encode()}
    wait_until(lambda: len(now := links()) == 2 and all(now[each] > before[each] for each in killed), "new links")
    assert all(links()[each] == before[each] for each in {b"to", b"from"} - killed)
    cluster.wait()


def test_packets_of_a_type_are_dropped(cluster: Nodes) -> None:
    node, other = cluster
    with Wire(other.port) as wire:
        wire.call("SUBSCRIBE", "news")
        other.must("DEBUG", "DROP-CLUSTER-PACKET-FILTER", str(PUBLISH))
        node.must("PUBLISH", "news", "dropped")
        received = "cluster_stats_messages_publish_received"
        wait_until(lambda: cluster.state(other, received) not in ("", "0"), "the packet has arrived")
        other.must("DEBUG", "DROP-CLUSTER-PACKET-FILTER", "-1")
        node.must("PUBLISH", "news", "delivered")
        assert plain(wire.read())[-1] == b"delivered"


@pytest.mark.parametrize(
    ("channel", "state"),
    [
        ("import-main-channel", "syncslots-reply"),
        ("import-rdb-channel", "rdbchannel-transfer"),
        ("migrate-main-channel", "wait-rdbchannel"),
        ("migrate-rdb-channel", "wait-bgsave-start"),
    ],
)
def test_a_task_fails_at_its_fail_point(cluster: Nodes, channel: str, state: str) -> None:
    source, target = cluster.owner_of(0), next(node for node in cluster if node is not cluster.owner_of(0))
    node = target if channel.startswith("import") else source
    node.must("DEBUG", "ASM-FAILPOINT", channel, state)
    task = begin(target, 0, 0)
    wait_until(lambda: status(target, task)["retries"] > 0, "it fails, and is tried again")
    node.must("DEBUG", "ASM-FAILPOINT", "", "")
    wait_until(lambda: status(target, task)["state"] == b"completed", "it succeeds")
    wait_until(lambda: cluster.owner_of(0) is target and cluster.agree(), "the nodes agree")


def test_keys_are_trimmed_as_told(new_node: NewNode) -> None:
    sizes = []
    for kind in KINDS:
        nodes = start_cluster(new_node, (kind, kind), enable_debug_command="yes")
        source, target = nodes
        for number in range(50):
            source.must("SET", f"{{06S}}{number}", "v")
        source.must("DEBUG", "ASM-TRIM-METHOD", "active", "-1")
        task = begin(target, 0, 0)
        wait_until(lambda: status(target, task)["state"] == b"completed", "it is moved")  # noqa: B023
        running = "cluster_slot_migration_active_trim_running"
        wait_until(lambda: nodes.state(source, running) == "1", "trimming has begun")  # noqa: B023
        assert keys_inside(source) == 50
        assert source.call("KEYS", "*").value == ()
        assert keys_inside(target) == 50
        sizes.append([node.call("DBSIZE").value for node in nodes])
        source.must("DEBUG", "ASM-TRIM-METHOD", "default")
        source.must("DEBUG", "ASM-TRIM-METHOD", "active", "0")
        wait_until(lambda: keys_inside(source) == 0, f"{kind} deletes the keys")  # noqa: B023
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("kind", KINDS)
def test_keys_that_are_not_trimmed_stay_hidden_until_others_are(new_node: NewNode, kind: str) -> None:
    nodes = start_cluster(new_node, (kind, kind), enable_debug_command="yes")
    source, target = nodes
    for slot, method in ((0, "none"), (1, "default")):
        for number in range(50):
            source.must("SET", f"{{{tag_of(slot).decode()}}}{number}", "v")
        source.must("DEBUG", "ASM-TRIM-METHOD", method)
        task = begin(target, slot, slot)
        wait_until(lambda: status(target, task)["state"] == b"completed", "it is moved")  # noqa: B023
        wait_until(lambda: nodes.owner_of(slot) is target and nodes.agree(), "the nodes agree")  # noqa: B023
        if method == "none":
            assert nodes.state(source, "cluster_slot_migration_active_trim_running") == "0"
            assert keys_inside(source) == 50
            assert source.call("DBSIZE").value == 0
            assert source.call("KEYS", "*").value == ()
    wait_until(lambda: keys_inside(source) == 0, "the keys of both slots are deleted")
