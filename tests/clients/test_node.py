"""The Node clients ioredis (RESP2) and node-redis (RESP3), as a user calls them.

The stories are in node/; each is a process of its own. The libraries are those of node/package-lock.json (see support/node.py).
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.node import modules_of
from support.servers import Server

pytestmark = pytest.mark.long

HERE = Path(__file__).parent / "node"
STORY_TIMEOUT_S = 200.0

Play = Callable[..., None]


@pytest.fixture(scope="session")
def modules() -> Path:
    """The folder with the libraries."""
    return modules_of(HERE)


def play(modules: Path, library: str, story: str, server: Server) -> None:
    """Play one story; it may ask for the server to be restarted."""
    process = subprocess.Popen(
        ["node", str(HERE / f"{library}.cjs"), story, str(server.port)],
        env={**os.environ, "NODE_PATH": str(modules)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        if story == "restart":
            assert process.stdout is not None
            assert process.stdin is not None
            if process.stdout.readline() == "restart the server\n":
                server.restart()
                process.stdin.write("restarted\n")
                process.stdin.flush()
        said, complaints = process.communicate(timeout=STORY_TIMEOUT_S)
    finally:
        process.kill()
        process.communicate()
    assert (process.returncode, said) == (0, "done\n"), f"{library}, {story}:\n{said}{complaints}"


@pytest.mark.parametrize("story", ["streams", "transactions", "patterns", "events", "killed"])
def test_ioredis(modules: Path, server: Server, story: str) -> None:
    play(modules, "ioredis", story, server)


@pytest.mark.parametrize("story", ["streams", "transactions", "patterns", "caching", "killed"])
def test_node_redis(modules: Path, server: Server, story: str) -> None:
    play(modules, "node_redis", story, server)


@pytest.mark.parametrize("library", ["ioredis", "node_redis"])
@pytest.mark.parametrize("kind", ["streamd", pytest.param("redis", marks=pytest.mark.real)])
def test_a_client_comes_back_when_the_server_does(
    modules: Path, request: pytest.FixtureRequest, library: str, kind: str
) -> None:
    server: Server = request.getfixturevalue(f"new_{kind}")()
    play(modules, library, "restart", server)
