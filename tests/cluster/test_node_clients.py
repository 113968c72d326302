"""ioredis and node-redis as clients of a cluster, while slots move and a primary is killed. See ../clients/node/cluster.cjs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.cluster.moves import begin, status
from support.cluster.nodes import Nodes, start_cluster
from support.node import modules_of
from support.replicas.nodes import Node, wait_until

pytestmark = pytest.mark.long

STORIES = Path(__file__).parents[1] / "clients" / "node"


def move_slots(nodes: Nodes) -> None:
    task = begin(nodes[1], 0, 5000)
    wait_until(lambda: status(nodes[1], task).get("state") == b"completed", "the slots have moved")
    nodes.wait()


@pytest.mark.parametrize(
    ("library", "events"), [("ioredis", ["move slots", "kill a primary"]), ("node_redis", ["move slots"])]
)
def test_clients_follow_slots_and_a_fail_over(new_node: Callable[..., Node], library: str, events: list[str]) -> None:
    nodes = start_cluster(new_node, ("streamd",) * 3, ("streamd",))
    process = subprocess.Popen(
        ["node", str(STORIES / "cluster.cjs"), library, str(nodes[1].port)],
        env={**os.environ, "NODE_PATH": str(modules_of(STORIES))},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdin is not None
    told = []
    try:
        for line in process.stdout:
            told.append(line)
            if line == "move slots\n":
                move_slots(nodes)
            elif line == "kill a primary\n":
                nodes[0].kill()
                wait_until(lambda: nodes.owner_of_or_none(5400) is nodes[3], "the replica takes over")
                nodes.wait()
            else:
                break
            process.stdin.write("done\n")
            process.stdin.flush()
    finally:
        process.kill()
        _, complaints = process.communicate()
    assert told == [*(f"{each}\n" for each in events), "done\n"], complaints
