"""`redis-cli --cluster`, as an operator runs it."""

from __future__ import annotations

import re
import subprocess

from ..replicas.nodes import Node
from ..servers import find_oracle

__all__ = ["cluster_cli", "place", "start_cluster_cli"]

TIMEOUT_S = 120


def cluster_cli(*arguments: str, expects: int | None = 0) -> str:
    """What `redis-cli --cluster` prints. expects: its exit status; None: any."""
    oracle = find_oracle()
    assert oracle is not None
    done = subprocess.run(
        [oracle.cli, "--cluster", *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert expects is None or done.returncode == expects, done.stdout + done.stderr
    return re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)


def start_cluster_cli(*arguments: str) -> subprocess.Popen[bytes]:
    """`redis-cli --cluster`, running."""
    oracle = find_oracle()
    assert oracle is not None
    return subprocess.Popen(
        [oracle.cli, "--cluster", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def place(node: Node) -> str:
    return f"127.0.0.1:{node.port}"
