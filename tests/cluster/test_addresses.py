"""Clusters of both kinds of nodes over IPv6, and over TLS: redis-cli creates, checks and reshards them, and a replica takes over."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.certificates import Certificates, make_certificates
from support.cluster.nodes import Nodes, start_cluster_node
from support.replicas.nodes import Node, wait_until
from support.servers import find_oracle

from streamd.keyspace.hash_slot import slot_of

pytestmark = [pytest.mark.real, pytest.mark.long, pytest.mark.timeout(600)]

NewNode = Callable[..., Node]
TIMEOUT_S = 240
KINDS = ("streamd", "redis", "streamd", "streamd")
MOVED = 5


class Way:
    """How the nodes, and redis-cli, reach each other."""

    host = "127.0.0.1"
    settings: Mapping[str, str] = {}
    options: tuple[str, ...] = ()

    def port(self, node: Node) -> str:
        return str(node.port)

    def place(self, node: Node) -> str:
        return f"{self.host}:{self.port(node)}"

    def cli(self, *arguments: str) -> str:
        oracle = find_oracle()
        assert oracle is not None
        done = subprocess.run(
            [oracle.cli, *self.options, "--cluster", *arguments],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)


class OverIPv6(Way):
    """The tests themselves use 127.0.0.1, which no node has been told of."""

    host = "::1"
    settings: Mapping[str, str] = {"bind": "::1 127.0.0.1"}


class OverTls(Way):
    def __init__(self, certificates: Certificates) -> None:
        self.settings = {"tls_cluster": "yes", "tls_replication": "yes", **certificates.directives}
        self.options = (
            "--tls", "--cacert", certificates.certificate("ca"), "--cert", certificates.certificate("client"),
            "--key", certificates.key("client"),
        )  # fmt: skip

    def port(self, node: Node) -> str:
        return str(node.must("CONFIG", "GET", "tls-port").value[1].value.decode())


@pytest.fixture(params=["ipv6", "tls"])
def way(request: pytest.FixtureRequest, tmp_path: Path) -> Way:
    return OverIPv6() if request.param == "ipv6" else OverTls(make_certificates(tmp_path))


def test_a_cluster_lives_at_other_addresses(new_node: NewNode, way: Way) -> None:
    with ThreadPoolExecutor() as pool:
        nodes = Nodes(pool.map(lambda kind: start_cluster_node(new_node, kind, **way.settings), KINDS))
    *primaries, replica = nodes
    assert "[OK] All 16384 slots covered." in way.cli("create", *map(way.place, primaries), "--cluster-yes")
    Nodes(primaries).wait()
    first = nodes.id_of(primaries[0])
    way.cli("add-node", way.place(replica), way.place(primaries[0]), "--cluster-slave", "--cluster-master-id", first)
    nodes.wait()
    for node in nodes:
        text = way.cli("check", way.place(node))
        assert "[OK] All nodes agree about slots configuration." in text
    assert {words[1].rpartition(":")[0] for words in nodes.lines(replica).values()} == {way.host}

    starts = [int(bounds_of(nodes, node)[0]) for node in primaries]
    for number in range(50_000):
        slot = slot_of(b"%d" % number)
        for start, node in zip(starts, primaries, strict=True):
            if start <= slot < start + MOVED:
                node.must("XADD", str(number), "1-1", "f", "v")
    keys = sum(int(node.must("DBSIZE").value) for node in primaries)
    for source, target in ((0, 1), (1, 0), (2, 0)):
        way.cli(
            "reshard", way.place(primaries[0]), "--cluster-from", nodes.id_of(primaries[source]), "--cluster-to",
            nodes.id_of(primaries[target]), "--cluster-slots", str(MOVED), "--cluster-yes",
        )  # fmt: skip
        nodes.wait()
    assert sum(int(node.must("DBSIZE").value) for node in primaries) == keys
    task = primaries[0].must("CLUSTER", "MIGRATION", "IMPORT", *bounds_of(nodes, primaries[2])).value
    wait_until(lambda: is_done(primaries[0], task), "the slots have moved at once")
    nodes.wait()
    assert sum(int(node.must("DBSIZE").value) for node in primaries) == keys

    replica.must("CLUSTER", "FAILOVER")
    wait_until(lambda: nodes.owner_of_or_none(0) is replica, "the replica has taken over")
    nodes.wait()
    replica.kill()
    wait_until(lambda: nodes.owner_of_or_none(0) is primaries[0], "the old primary was elected", 120)


def bounds_of(nodes: Nodes, node: Node) -> list[str]:
    """The first and the last slot of a run of a node's slots, 100 at most."""
    first, _, last = nodes.owners(node)[nodes.id_of(node)].split()[0].partition("-")
    return [first, str(min(int(last or first), int(first) + 99))]


def is_done(node: Node, task: bytes) -> bool:
    [found] = node.must("CLUSTER", "MIGRATION", "STATUS", "ID", task).plain()
    state = dict(zip(found[::2], found[1::2], strict=True))
    assert int(state[b"retries"]) < 5, [*state.values()]
    return bool(state[b"state"] == b"completed")
