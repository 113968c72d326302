"""Sessions elsewhere: Spark Connect, and a standalone cluster with a master and two workers, both started here.

What a program there does is in support/spark/remote.py. Each starts several Java machines, hence the marker.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import redis
from support.archives.object_stores import running_store
from support.archives.runs import KEY, fill
from support.servers import Server, eventually, free_port, python_environment
from support.spark.remote import COUNT
from support.spark.session import HAS_LIMITS

from streamd.archive.layout import Layout
from streamd.archive.verify import verify_archive

pytestmark = [pytest.mark.slow, pytest.mark.spark]

WORKERS = 2
DEADLINE_S = 120


def environment() -> dict[str, str]:
    """For Spark's processes: the Python of the tests, with what it imports."""
    found = python_environment()
    found["PYTHONPATH"] = str(Path(__file__).parents[1]) + os.pathsep + found["PYTHONPATH"]
    return found | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}


def run(job: dict[str, Any]) -> dict[str, Any]:
    command = [sys.executable, "-m", "support.spark.remote"]
    ran = subprocess.run(
        command, input=json.dumps(job), env=environment(), capture_output=True, text=True, timeout=400, check=False
    )
    assert ran.returncode == 0, ran.stderr[-5000:]
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


def check(found: dict[str, Any], store: redis.Redis) -> None:
    assert (found["written"], found["distinct"]) == (COUNT, COUNT)
    assert found["parts"] >= 4
    if HAS_LIMITS:
        assert found["query"] == COUNT == store.xlen("out")
    else:
        assert "queries that read streams need PySpark 4.2" in found["query"]
    assert "MissingStreamError: there is no stream 'nosuch'" in found["missing"]


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("java")
@pytest.mark.skipif(importlib.util.find_spec("grpc") is None, reason="needs streamd-server[spark-connect]")
def test_spark_connect(store: redis.Redis, source_options: dict[str, str], tmp_path: Path) -> None:
    check(run({"remote": "local[2]", "options": source_options, "folder": str(tmp_path)}), store)


@pytest.fixture
def cluster(java: Path, tmp_path: Path) -> Iterator[str]:
    """The address of a master with two workers, of one processor each."""
    import pyspark

    home = Path(pyspark.__file__).parent
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    programs = {"master": (f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port))}
    for number in range(WORKERS):
        folder = str(tmp_path / f"work-{number}")
        words = ("--host", "127.0.0.1", "--cores", "1", "--memory", "700m", "--work-dir", folder, url)
        programs[f"worker-{number}"] = (f"{deploy}.worker.Worker", *words)
    env = environment() | {"JAVA_HOME": str(java), "SPARK_HOME": str(home), "SPARK_WORKER_DIR": str(tmp_path)}
    with ExitStack() as stack:
        for name, words in programs.items():
            log = stack.enter_context((tmp_path / f"{name}.log").open("wb"))
            process = subprocess.Popen(
                [home / "bin" / "spark-class", *words, "--webui-port", "0"],
                env=env,
                stdout=log,
                stderr=log,
                cwd=tmp_path,
            )
            stack.callback(process.wait, 30)
            stack.callback(process.terminate)
            if name == "master":
                eventually(
                    lambda: "I have been elected leader" in text_of(tmp_path / "master.log"), DEADLINE_S, "the master"
                )
        eventually(
            lambda: text_of(tmp_path / "master.log").count("Registering worker") == WORKERS, DEADLINE_S, "the workers"
        )
        yield url


def text_of(path: Path) -> str:
    return path.read_text(errors="replace")


@pytest.mark.timeout(600)
def test_a_cluster_of_two_workers(
    cluster: str, server: Server, store: redis.Redis, source_options: dict[str, str], tmp_path: Path
) -> None:
    check(run({"master": cluster, "options": source_options, "folder": str(tmp_path)}), store)
    took_part = [each for each in tmp_path.glob("work-*/app-*/*") if "Running task" in text_of(each / "stderr")]
    assert len(took_part) == WORKERS, "both workers have read and written"


@pytest.mark.timeout(600)
def test_a_cluster_archives_into_an_object_store(
    cluster: str, store: redis.Redis, source_options: dict[str, str], tmp_path: Path
) -> None:
    """Executors are told of the store by settings of the session; without, the run says what they lack."""
    pytest.importorskip("moto.server", reason="the emulators come with streamd-server[test]")
    fill(store, 5000)
    with running_store("s3") as emulator:
        known = emulator.environment(emulator.endpoint)
        place = emulator.make_bucket("archives") + "/one"
        done = archive_by(cluster, place, source_options, known)
        assert done.returncode == 1
        said = json.loads(done.stdout)["streams"][0]["error"]
        assert said.startswith(f"ArchiveError: Spark's tasks: nothing can be written to {place}/data/stream={KEY}: ")
        done = archive_by(
            cluster,
            place,
            source_options,
            known,
            *(f"spark.executorEnv.{name}={value}" for name, value in known.items()),
        )
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert (report["rows"], report["streams"][0]["trimmed"]) == (5000, 5000)
        with pytest.MonkeyPatch.context() as patch:
            for name, value in known.items():
                patch.setenv(name, value)
            verdict = verify_archive(Layout(place), KEY)
        assert (verdict.rows, verdict.faults, verdict.strangers) == (5000, [], [])


def archive_by(
    master: str, place: str, options: dict[str, str], more: dict[str, str], *confs: str
) -> subprocess.CompletedProcess[str]:
    words = [
        "archive",
        "run",
        place,
        "--stream",
        KEY,
        "--keep",
        "0s",
        "--trim-delay",
        "0s",
        "--json",
        "-p",
        options["port"],
    ]
    words += ["--master", master, "-o", "minPartitions=4"]
    words += [
        word
        for each in ("spark.driver.host=127.0.0.1", "spark.executor.memory=512m", *confs)
        for word in ("--conf", each)
    ]
    return subprocess.run(
        [sys.executable, "-m", "streamd", *words],
        env=environment() | more,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
