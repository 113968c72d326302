"""The start of a node: what keeps it from starting is said as Redis says it."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.cluster.nodes import start_cluster_node
from support.replicas.nodes import Node, wait_until
from support.servers import find_oracle, free_port, python_environment, server_arguments

pytestmark = pytest.mark.real

NewNode = Callable[..., Node]
IDS = "a98732f1b6ca7855ee2cf050764526b8557fa893", "309d49572b6b91a555bbf6c5a8027584651d4e9c"


def start_and_fail(folder: Path, kind: str, **settings: str) -> str:
    """The log of a server that does not start."""
    port = free_port()
    given = {
        "cluster-enabled": "yes",
        "cluster-port": str(free_port()),
        **{k.replace("_", "-"): v for k, v in settings.items()},
    }
    argv = server_arguments(port, given)
    oracle = find_oracle()
    if kind == "redis" and oracle is not None:
        argv = [oracle.server, *argv[argv.index("--port") :]]
    done = subprocess.run(
        argv, cwd=folder, env=python_environment(), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1, done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("kind", ["streamd", "redis"])
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("garbage line here\n", 'Unrecoverable error: corrupted cluster config file "garbage line here'),
        (
            f"{IDS[0]} :1@2,,tls-port=0,foo=1 myself,master - 0 0 0 connected\n",
            "Unrecoverable error: corrupted cluster config",
        ),
    ],
)
def test_a_damaged_file_names_its_line(tmp_path: Path, kind: str, content: str, expected: str) -> None:
    (tmp_path / "nodes.conf").write_text(content)
    assert expected in start_and_fail(tmp_path, kind)
    assert (tmp_path / "nodes.conf").read_text() == content


@pytest.mark.parametrize("kind", ["streamd", "redis"])
def test_a_port_of_the_bus_that_is_taken_is_named(tmp_path: Path, kind: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port := free_port()))
        taken.listen()
        assert f"Failed listening on port {port} (cluster), aborting." in start_and_fail(
            tmp_path, kind, cluster_port=str(port)
        )


@pytest.mark.parametrize("kind", ["streamd", "redis"])
def test_replicaof_is_refused(tmp_path: Path, kind: str) -> None:
    assert "replicaof directive not allowed in cluster mode" in start_and_fail(tmp_path, kind, replicaof="127.0.0.1 1")


def test_a_second_node_does_not_get_the_file(new_node: NewNode) -> None:
    node = start_cluster_node(new_node, "streamd")
    text = start_and_fail(node.folder, "streamd")
    assert "nodes.conf is already used by a different Redis Cluster node" in text


@pytest.mark.parametrize("kind", ["streamd", "redis"])
def test_keys_of_slots_without_an_owner_are_taken_with_their_slots(new_node: NewNode, kind: str) -> None:
    node = start_cluster_node(new_node, kind)
    node.must("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
    wait_until(lambda: not node.call("SET", "foo", "1").is_error, "the node serves")
    node.must("SAVE")
    node.stop()
    lines = (node.folder / "nodes.conf").read_text().replace(" 0-16383", " 0-5000")
    (node.folder / "nodes.conf").write_text(lines)
    node.start()
    assert node.call("CLUSTER", "COUNTKEYSINSLOT", "12182").value == 1
    assert b" 0-5000 12182\n" in node.call("CLUSTER", "NODES").value
    assert "I have keys for unassigned slot 12182. Taking responsibility for it." in node.log()


def test_a_node_has_one_database(new_node: NewNode) -> None:
    node = start_cluster_node(new_node, "streamd", databases="4")
    assert node.must("CONFIG", "GET", "databases").value[1].value == b"1"
    assert "Changing databases number from 4 to 1 since we are in cluster mode" in node.log()
