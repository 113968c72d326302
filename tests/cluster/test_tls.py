"""A cluster whose bus, replication and clients use TLS."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.certificates import make_certificates
from support.cluster.nodes import start_cluster
from support.replicas.nodes import Node, wait_until

pytestmark = [pytest.mark.real, pytest.mark.long]

NewNode = Callable[..., Node]


def test_the_bus_and_the_replication_of_a_cluster_use_tls(new_node: NewNode, tmp_path: Path) -> None:
    settings = {"tls_cluster": "yes", "tls_replication": "yes", **make_certificates(tmp_path).directives}
    nodes = start_cluster(new_node, ("streamd", "redis"), ("streamd",), **settings)
    assert nodes[0].call("SET", "bar", "1").value == b"OK"
    nodes[1].must("SET", "foo", "1")
    wait_until(lambda: nodes.state(nodes[2]) == "ok", "the replica sees the cluster")
    assert nodes[2].call("READONLY").value == b"OK"
    wait_until(lambda: nodes[2].call("GET", "bar").value == b"1", "the replica has the key")
