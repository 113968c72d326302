"""CLUSTER MEET of what is no node of this cluster: nothing that listens, a server without a cluster, the same ID twice, another cluster."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.cluster.nodes import Nodes, start_cluster_node
from support.replicas.nodes import Node, wait_until
from support.servers import free_port

pytestmark = [pytest.mark.real, pytest.mark.parametrize("kind", ["streamd", "redis"])]

NewNode = Callable[..., Node]


def start_serving(new_node: NewNode, kind: str) -> Nodes:
    """A node that serves all slots."""
    nodes = Nodes([start_cluster_node(new_node, kind, cluster_node_timeout="1000")])
    nodes[0].must("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
    wait_until(lambda: nodes.state(nodes[0]) == "ok", "the node serves")
    return nodes


def meet(node: Node, port: int, bus_port: int) -> None:
    node.must("CLUSTER", "MEET", "127.0.0.1", str(port), str(bus_port))


def bus_port(node: Node) -> int:
    return int(node.must("CONFIG", "GET", "cluster-port").value[1].value)


def test_an_address_without_a_node_is_forgotten(new_node: NewNode, kind: str) -> None:
    nodes = start_serving(new_node, kind)
    plain = new_node("streamd")
    for port, bus in ((free_port(), free_port()), (plain.port, plain.port)):
        meet(nodes[0], port, bus)
        wait_until(lambda: len(nodes.lines(nodes[0])) == 1, "the node knows only itself again")
    assert nodes.state(nodes[0]) == "ok"
    assert plain.must("PING").value == b"PONG"


def test_a_node_with_the_same_id_is_not_joined(new_node: NewNode, kind: str) -> None:
    nodes = start_serving(new_node, kind)
    twin = start_cluster_node(new_node, kind)
    bus = bus_port(twin)
    twin.stop()
    (twin.folder / "nodes.conf").write_bytes((nodes[0].folder / "nodes.conf").read_bytes())
    twin.start()
    assert nodes.id_of(twin) == nodes.id_of(nodes[0])
    for node, port, other in ((nodes[0], twin.port, bus), (twin, nodes[0].port, bus_port(nodes[0]))):
        meet(node, port, other)
        wait_until(lambda node=node: len(nodes.lines(node)) == 1, "the node knows only itself again")
    for node in (nodes[0], twin):
        wait_until(lambda node=node: nodes.state(node) == "ok", "both serve, each by itself")


def test_a_node_of_another_cluster_makes_them_one(new_node: NewNode, kind: str) -> None:
    """Both claim all slots: the greater epoch wins, then the smaller ID, and one node has everything."""
    nodes = start_serving(new_node, kind)
    nodes.extend(start_serving(new_node, kind))
    nodes[0].must("SET", "k", "first")
    nodes[1].must("SET", "k", "second")
    meet(nodes[0], nodes[1].port, bus_port(nodes[1]))

    def agree() -> bool:
        owners = [nodes.owners(node) for node in nodes]
        return owners[0] == owners[1] and list(owners[0].values()) == ["0-16383"]

    wait_until(agree, "both see one owner of all slots")
    owner = next(node for node in nodes if nodes.id_of(node) in nodes.owners(node))
    assert owner.must("GET", "k").value == (b"first" if owner is nodes[0] else b"second")
    other = next(node for node in nodes if node is not owner)
    assert other.call("GET", "k").value == b"MOVED 7629 127.0.0.1:%d" % owner.port
    other.must("READONLY")
    wait_until(
        lambda: other.call("GET", "k").value == owner.must("GET", "k").value,
        "it follows the node that took its last slot",
    )
