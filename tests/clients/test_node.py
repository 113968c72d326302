"""The Node clients ioredis (RESP2) and node-redis (RESP3), as a user calls them.

The stories are in node/; each is a process of its own. The libraries are those of node/package-lock.json, installed with npm
into a folder of the cache, once for each content of that file. Without Node or npm, or without the registry, the tests skip;
STREAMD_REQUIRE_NODE=1 makes that a failure.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.servers import Server

pytestmark = pytest.mark.long

HERE = Path(__file__).parent / "node"
OLDEST_NODE = (18, 19)
STORY_TIMEOUT_S = 60.0
INSTALL_TIMEOUT_S = 300.0

Play = Callable[..., None]


def _do_without(reason: str) -> None:
    if os.environ.get("STREAMD_REQUIRE_NODE"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def _check_node() -> None:
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            _do_without(f"no {program}")
    text = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout
    version = tuple(map(int, text.strip().lstrip("v").split(".")[:2]))
    if version < OLDEST_NODE:
        _do_without(f"needs Node {'.'.join(map(str, OLDEST_NODE))}, found {text.strip()}")


@pytest.fixture(scope="session")
def modules() -> Path:
    """The folder with the libraries."""
    _check_node()
    lock = HERE / "package-lock.json"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "streamd-tests" / f"node-{hashlib.sha256(lock.read_bytes()).hexdigest()[:16]}"
    if not (folder / "installed").exists():
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE / name, folder)
        command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            _do_without("npm ci did not end in time")
        if done.returncode != 0:
            _do_without(f"npm ci failed: {done.stderr[-500:]}")
        (folder / "installed").touch()
    return folder / "node_modules"


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
