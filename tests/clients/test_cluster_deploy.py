"""The files that run a cluster in containers: valid, and with command lines that start nodes and make them a cluster."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.replicas.nodes import Node
from support.servers import free_port, python_environment

from streamd.cli.cluster import group
from streamd.cli.container import server_arguments

pytestmark = pytest.mark.long

FOLDER = Path(__file__).parents[2] / "deploy" / "cluster"
NewNode = Callable[..., Node]


def documents(name: str) -> dict[str, Any]:
    """The documents of a file by their kind; a Compose file has none."""
    yaml = pytest.importorskip("yaml")
    return {each.get("kind", ""): each for each in yaml.safe_load_all((FOLDER / name).read_text())}


def compose() -> tuple[list[list[str]], list[str]]:
    """The command lines of the nodes, and the one that makes them a cluster."""
    services = documents("compose.yaml")[""]["services"]
    lines = {name: shlex.split(service["command"]) for name, service in services.items()}
    return [words for name, words in lines.items() if name.startswith("node-")], lines["create"]


def kubernetes() -> tuple[list[list[str]], list[str]]:
    found = documents("statefulset.yaml")
    spec = found["StatefulSet"]["spec"]
    (node,), (create,) = (each["template"]["spec"]["containers"] for each in (spec, found["Job"]["spec"]))
    return [node["args"]] * spec["replicas"], create["args"]


@pytest.mark.parametrize("read", [compose, kubernetes])
def test_every_node_is_named_where_the_cluster_is_made(read: Callable[[], tuple[list[list[str]], list[str]]]) -> None:
    nodes, create = read()
    assert create[:3] == ["streamd", "cluster", "create"]
    assert server_arguments(create, {}) is None, "it runs as a program, not as a server"
    made = group.commands["create"].make_context("create", create[3:])
    assert len(set(made.params["addresses"])) == len(nodes)
    assert len(nodes) // (made.params["replicas"] + 1) == 3


def test_manifests_have_what_they_refer_to() -> None:
    found = documents("statefulset.yaml")
    service, nodes = found["Service"], found["StatefulSet"]
    name = service["metadata"]["name"]
    assert nodes["spec"]["serviceName"] == nodes["metadata"]["name"] == name
    labels = nodes["spec"]["template"]["metadata"]["labels"]
    assert labels == nodes["spec"]["selector"]["matchLabels"] == service["spec"]["selector"]
    assert labels == found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"]
    _, create = kubernetes()
    assert [word for word in create if ":" in word] == [
        f"{name}-{number}.{name}:6379" for number in range(nodes["spec"]["replicas"])
    ]
    parsed = documents("compose.yaml")[""]
    nodes_by_name = {key: value for key, value in parsed["services"].items() if key.startswith("node-")}
    assert {each["volumes"][0].partition(":")[0] for each in nodes_by_name.values()} == parsed["volumes"].keys()
    addresses = [each["networks"]["nodes"]["ipv4_address"] for each in nodes_by_name.values()]
    assert [f"{each}:6379" for each in addresses] == compose()[1][3:]


@pytest.mark.parametrize("read", [compose, kubernetes])
def test_the_command_lines_start_nodes_and_make_a_cluster(
    new_node: NewNode, read: Callable[[], tuple[list[list[str]], list[str]]]
) -> None:
    lines, create = read()
    nodes = []
    for words in lines:
        arguments = server_arguments([word.replace("$(POD_IP)", "127.0.0.1") for word in words], {})
        assert arguments is not None
        settings = {
            name.removeprefix("--").replace("-", "_"): value
            for name, value in zip(arguments[::2], arguments[1::2], strict=True)
        }
        nodes.append(new_node("streamd", **settings, cluster_port=str(free_port())))
    places = iter(nodes)
    words = [f"127.0.0.1:{next(places).port}" if re.search(r":6379$", word) else word for word in create]
    for expected in (f"{len(nodes)} nodes are a cluster.", "The nodes are a cluster already."):
        said = subprocess.run(
            [sys.executable, "-m", *words], env=python_environment(), capture_output=True, text=True, timeout=200
        )
        assert said.returncode == 0, said.stderr
        assert said.stdout.startswith(expected)
    assert {b"cluster_state:ok" in node.call("CLUSTER", "INFO").value for node in nodes} == {True}
    replicas = sum(b"role:slave" in node.call("INFO", "replication").value for node in nodes)
    assert replicas == len(nodes) - 3
