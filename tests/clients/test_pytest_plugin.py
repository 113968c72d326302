"""The plugin for pytest, in runs of pytest of their own."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.servers import Server, python_environment

pytestmark = pytest.mark.long

PYTEST_ASYNCIO = "pytest_asyncio.plugin"

TESTS = """\
import pytest

@pytest.mark.parametrize("turn", range(3))
def test_each_begins_with_an_empty_server(streamd_client, turn):
    assert streamd_client.dbsize() == 0
    assert streamd_client.xadd("readings", {"turn": turn})
    assert streamd_client.xrange("readings")[0][1] == {"turn": str(turn)}

def test_one_more(streamd_start, streamd_url, streamd_server):
    other = streamd_start(requirepass="secret")
    assert other.url != streamd_url == streamd_server.url
    assert other.client().ping()
"""

ASYNC_TESTS = """\
import pytest

@pytest.fixture
def anyio_backend():
    return "asyncio"

@pytest.mark.{runner}
@pytest.mark.parametrize("turn", range(3))
async def test_each_begins_with_an_empty_server(streamd_async_client, turn):
    assert await streamd_async_client.dbsize() == 0
    await streamd_async_client.set("k", "v")
    assert await streamd_async_client.get("k") == "v"
"""


def run(folder: Path, tests: str, *arguments: str, plugins: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """pytest in a process and a folder of its own, with the plugin and `plugins`, and no others."""
    (folder / "test_it.py").write_text(tests)
    env = python_environment() | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    env.pop("PYTEST_ADDOPTS", None)
    options = [word for plugin in ("streamd.pytest_plugin", *plugins) for word in ("-p", plugin)]
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", *options, *arguments]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)


def needs(module: str) -> str:
    """Skip unless the module is installed; its name."""
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"needs {module}")
    return module


def outcome(said: subprocess.CompletedProcess[str]) -> str:
    assert said.stderr == "", said.stderr
    assert said.returncode == 0, said.stdout
    return said.stdout.splitlines()[-1]


@pytest.mark.parametrize("options", [(), ("--streamd-own-process",), ("-o", "streamd_own_process=true")])
def test_a_clean_server_for_each_test(tmp_path: Path, options: tuple[str, ...]) -> None:
    assert outcome(run(tmp_path, TESTS, *options)).startswith("4 passed")


def test_a_cluster_ends_with_its_test(tmp_path: Path) -> None:
    tests = (
        "import socket, threading, pytest\n"
        "seen = []\n"
        "@pytest.mark.parametrize('turn', range(2))\n"
        "def test_it(streamd_cluster, streamd_start_cluster, turn):\n"
        "    with streamd_cluster.client(decode_responses=True) as client:\n"
        "        assert client.dbsize() == 0\n"
        "        assert [client.set(f'k{n}', n) for n in range(10)] == [True] * 10\n"
        "    other = streamd_start_cluster(nodes=2, replicas=1, requirepass='secret')\n"
        "    assert other.client().set('k', 'v')\n"
        "    seen.extend(node.port for node in [*streamd_cluster.nodes, *other.nodes])\n"
        "def test_nothing_is_left():\n"
        "    assert len(seen) == 10\n"
        "    assert threading.active_count() == 1\n"
        "    for port in seen:\n"
        "        with pytest.raises(ConnectionRefusedError):\n"
        "            socket.create_connection(('127.0.0.1', port))\n"
    )
    assert outcome(run(tmp_path, tests)).startswith("3 passed")
    assert [each.name for each in tmp_path.iterdir() if each.name != "__pycache__"] == ["test_it.py"]


def test_each_worker_of_xdist_has_a_server(tmp_path: Path) -> None:
    needs("xdist")
    tests = TESTS + (
        "import pathlib\n"
        "def test_where(streamd_url, worker_id):\n"
        "    pathlib.Path(f'{worker_id}.url').write_text(streamd_url)\n"
        "test_where_too = test_where\n"
    )
    said = run(tmp_path, tests, "-n", "2", "--dist", "each", plugins=("xdist",))
    assert outcome(said).startswith("12 passed")
    urls = {(tmp_path / f"{worker}.url").read_text() for worker in ("gw0", "gw1")}
    assert len(urls) == 2


def test_settings_are_those_that_a_conftest_returns(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "import pytest\n"
        "@pytest.fixture(scope='session')\n"
        "def streamd_settings():\n"
        "    return {'requirepass': 'p@ss', 'maxmemory': '10mb'}\n"
    )
    tests = (
        "def test_it(streamd_client):\n    assert streamd_client.config_get('maxmemory') == {'maxmemory': '10485760'}\n"
    )
    assert outcome(run(tmp_path, tests)).startswith("1 passed")


def test_another_server_is_used_by_its_url_and_only_a_database_of_it(tmp_path: Path, streamd_server: Server) -> None:
    import redis

    with redis.Redis(port=streamd_server.port) as client:
        client.flushall()
        client.set("theirs", "v")
        url = f"redis://127.0.0.1:{streamd_server.port}/5"
        tests = TESTS + "def test_url(streamd_url):\n    assert streamd_url.endswith('/5')\n"
        assert outcome(run(tmp_path, tests, "--streamd-url", url)).startswith("5 passed")
        assert client.get("theirs") == b"v"
        client.flushall()


def test_coroutines_run_by_pytest_asyncio(tmp_path: Path) -> None:
    needs("pytest_asyncio")
    said = run(tmp_path, ASYNC_TESTS.format(runner="asyncio"), *asyncio_options(), plugins=(PYTEST_ASYNCIO,))
    assert outcome(said).startswith("3 passed")


def test_coroutines_run_by_anyio(tmp_path: Path) -> None:
    needs("anyio")
    said = run(tmp_path, ASYNC_TESTS.format(runner="anyio"), plugins=("anyio.pytest_plugin",))
    assert outcome(said).startswith("3 passed")


def test_coroutines_run_by_anyio_beside_pytest_asyncio(tmp_path: Path) -> None:
    plugins = needs("anyio") + ".pytest_plugin", needs("pytest_asyncio") + ".plugin"
    said = run(tmp_path, ASYNC_TESTS.format(runner="anyio"), *asyncio_options(), plugins=plugins)
    assert outcome(said).startswith("3 passed")


def asyncio_options() -> tuple[str, ...]:
    return ("-o", "asyncio_default_fixture_loop_scope=function")


def test_who_does_not_use_it_does_not_load_a_server(tmp_path: Path) -> None:
    tests = (
        "import sys\n"
        "def test_it():\n"
        "    assert [name for name in sys.modules if name.startswith('streamd.')] == ['streamd.pytest_plugin']\n"
        "    assert 'redis' not in sys.modules\n"
    )
    assert outcome(run(tmp_path, tests)).startswith("1 passed")


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    left = tmp_path / "tmp"
    left.mkdir()
    os.environ["TMPDIR"], before = str(left), os.environ.get("TMPDIR")
    try:
        assert outcome(run(tmp_path, TESTS)).startswith("4 passed")
    finally:
        os.environ.pop("TMPDIR") if before is None else os.environ.__setitem__("TMPDIR", before)
    assert list(left.iterdir()) == []
