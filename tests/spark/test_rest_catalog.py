"""An Iceberg table in a REST catalog, over HTTP: kept, changed by several at a time, and by a catalog that fails."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import redis

pytest.importorskip("pyiceberg", reason="open tables need streamd-server[tables]")

from click.testing import CliRunner
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.rest import ConfigResponse
from support.archives.rest_catalog import RestCatalogServer, rest_catalog
from support.archives.runs import KEY, archive_once, fill
from support.archives.table_readers import digest, read_history
from support.servers import python_environment

from streamd.archive import iceberg_catalog
from streamd.archive.archive_errors import TableError
from streamd.archive.delete import delete
from streamd.archive.kept_tables import drop_table, with_reason
from streamd.archive.layout import Layout
from streamd.archive.manifest_log import ManifestLog
from streamd.archive.open_format import TableConfig
from streamd.archive.publishing import OpenTables
from streamd.archive.verify import verify_archive
from streamd.cli.subcommands import program
from streamd.client.points import parse_entry_id

pytestmark = pytest.mark.long

Options = dict[str, str]


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RestCatalogServer]:
    """A catalog that pyiceberg's environment calls `lake`."""
    with rest_catalog(tmp_path / "catalog") as server:
        monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__TYPE", "rest")
        monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", server.uri)
        yield server


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "archive"


def command(*words: object) -> Any:
    return CliRunner().invoke(program, ["archive", *map(str, words)])


def publish(path: Path, *words: str) -> Any:
    return command("publish", path, "--format", "iceberg", "--catalog", "lake", *words)


def read(server: RestCatalogServer, name: str = "streamd.archive") -> Any:
    """What another program reads, over HTTP."""
    return load_catalog("other", type="rest", uri=server.uri).load_table(name).scan().to_arrow()


def assert_table_is(server: RestCatalogServer, path: Path, options: Options) -> None:
    assert digest(read(server)) == digest(read_history(path, options))


def more(store: redis.Redis, number: int) -> list[str]:
    return fill(store, 50, start_ms=1_700_000_000_000 + number * 20_000_000)


def table_names(server: RestCatalogServer) -> list[str]:
    found = load_catalog("other", type="rest", uri=server.uri).list_tables("streamd")
    return sorted(".".join(each) for each in found)


def test_a_table_in_a_rest_catalog_is_kept_and_dropped(
    catalog: RestCatalogServer, store: redis.Redis, source_options: Options, path: Path
) -> None:
    produced = more(store, 0)
    archive_once(path, source_options)
    done = publish(path, "--json")
    assert json.loads(done.output) == {"format": "iceberg", "files": {KEY: 1}}, done.output
    done = publish(path, "--schema", "sensor int, value long")
    assert done.exit_code == 0, done.output
    for number in range(1, 5):
        produced += more(store, number)
        assert not archive_once(path, source_options, merge_files=2).streams[0].warnings
    gone = parse_entry_id(produced[7])
    delete(str(path), KEY, source_options, [(gone, gone)])
    assert_table_is(catalog, path, source_options)
    typed = read(catalog, "streamd.typed")
    assert typed.num_rows == 249
    assert set(typed.column("value").to_pylist()) == set(range(50))
    assert table_names(catalog) == ["streamd.archive", "streamd.typed"]
    assert publish(path, "--drop").exit_code == 0
    assert table_names(catalog) == ["streamd.typed"]
    assert publish(path, "--drop", "--name", "streamd.typed").exit_code == 0
    assert table_names(catalog) == []
    assert not [each for each in (path / "_tables").rglob("*") if each.is_file()]
    assert publish(path, "--name", "some.levels.archive").exit_code == 0
    assert digest(read(catalog, "some.levels.archive")) == digest(read_history(path, source_options))


def test_a_catalog_may_be_named_by_properties_alone(
    catalog: RestCatalogServer, store: redis.Redis, source_options: Options, path: Path
) -> None:
    more(store, 0)
    archive_once(path, source_options)
    done = command("publish", path, "--format", "iceberg", "--property", f"uri={catalog.uri}")
    assert done.exit_code == 0, done.output
    assert_table_is(catalog, path, source_options)


def test_the_table_of_another_archive_is_not_taken(
    catalog: RestCatalogServer, store: redis.Redis, source_options: Options, path: Path, tmp_path: Path
) -> None:
    more(store, 0)
    for each in (path, tmp_path / "another"):
        archive_once(each, source_options, trim=False)
    assert publish(path).exit_code == 0
    done = publish(tmp_path / "another")
    assert done.exit_code == 1
    assert done.output == (
        "Error: the iceberg table: its catalog has another table named streamd.archive: give another --name\n"
    )
    assert publish(tmp_path / "another", "--name", "streamd.another").exit_code == 0
    assert publish(tmp_path / "another", "--drop", "--name", "streamd.another").exit_code == 0
    assert_table_is(catalog, path, source_options)


def conflicts(server: RestCatalogServer) -> int:
    return sum(status == 409 and "/tables/" in path for _, path, status in server.asked)


def test_of_two_publishers_one_commits_and_the_other_compares_again(
    catalog: RestCatalogServer, store: redis.Redis, source_options: Options, path: Path
) -> None:
    more(store, 0)
    archive_once(path, source_options)
    assert publish(path).exit_code == 0
    more(store, 1)
    layout = Layout(path)

    def come_between() -> None:
        OpenTables(layout).bring_up(ManifestLog.read(layout, KEY))

    catalog.before_commit = come_between
    report = archive_once(path, source_options)
    assert not report.streams[0].warnings
    assert conflicts(catalog) == 1
    assert_table_is(catalog, path, source_options)
    snapshots = load_catalog("other", type="rest", uri=catalog.uri).load_table("streamd.archive").snapshots()
    assert len(snapshots) == 2, "nothing was named twice"


def test_publishers_and_runs_at_the_same_time_agree(
    catalog: RestCatalogServer, store: redis.Redis, source_options: Options, path: Path
) -> None:
    more(store, 0)
    archive_once(path, source_options)
    words = ["archive", "publish", str(path), "--format", "iceberg", "--catalog", "lake"]
    processes = [
        subprocess.Popen([sys.executable, "-m", "streamd", *words], env=python_environment()) for _ in range(3)
    ]
    for number in range(1, 8):
        more(store, number)
        assert archive_once(path, source_options, merge_files=3).is_success
    assert [each.wait(300) for each in processes] == [0] * 3
    assert not archive_once(path, source_options).streams[0].warnings
    assert_table_is(catalog, path, source_options)


def run_words(path: Path, options: Options) -> tuple[object, ...]:
    words = ("--stream", KEY, "--keep", "0s", "--trim-delay", "0s")
    return ("run", path, *words, "--port", options["port"])


def test_a_dead_catalog_is_one_line_and_the_archive_is_whole(
    store: redis.Redis, source_options: Options, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    produced = more(store, 0)
    archive_once(path, source_options)
    with rest_catalog(tmp_path / "catalog") as server:
        monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", server.uri)
        assert publish(path).exit_code == 0
    produced += more(store, 1)
    done = command(*run_words(path, source_options))
    assert done.exit_code == 0, done.output
    first, warning = done.output.splitlines()
    assert first.startswith(f"{KEY}: 50 entries up to")
    assert warning.startswith("  warning: the iceberg table: ")
    assert verify_archive(Layout(path), KEY).is_whole
    assert read_history(path, source_options).column("id").to_pylist() == produced
    deletion = ("delete", path, KEY, "--id", produced[0], "--archive-only", "--yes", "--port", source_options["port"])
    publishing = ("publish", path, "--format", "iceberg")
    for words in (deletion, publishing, (*publishing, "--drop")):
        refused = command(*words)
        assert refused.exit_code == 1
        assert refused.output.startswith("Error: the iceberg table: ")
        assert refused.output.count("\n") == 1, refused.output
    with rest_catalog(tmp_path / "catalog") as server:
        # The drop that did not end is finished, and the table is made again.
        monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", server.uri)
        assert publish(path).exit_code == 0
        gone = parse_entry_id(produced[0])
        delete(str(path), KEY, source_options, [(gone, gone)])
        assert_table_is(server, path, source_options)
        assert read(server).num_rows == 99


def test_a_table_that_was_never_made_is_not_kept(
    store: redis.Redis, source_options: Options, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more(store, 0)
    archive_once(path, source_options)
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", "http://127.0.0.1:1")
    refused = publish(path)
    assert refused.exit_code == 1
    assert refused.output.count("\n") == 1
    assert not (path / "_tables").exists()
    assert not archive_once(path, source_options).streams[0].warnings


@pytest.mark.parametrize("schema", [(), ("--schema", "sensor int, value long")], ids=["plain", "typed"])
def test_a_table_whose_creation_was_not_answered_is_taken_by_the_next_publish(
    schema: tuple[str, ...], catalog: RestCatalogServer, store: redis.Redis, source_options: Options, path: Path
) -> None:
    more(store, 0)
    archive_once(path, source_options)
    name = "streamd.typed" if schema else "streamd.archive"
    catalog.lost_answers = 1
    refused = publish(path, *schema)
    assert refused.exit_code == 1
    assert refused.output.count("\n") == 1
    assert table_names(catalog) == [name]
    assert list((path / "_tables").glob("*.json")) == []
    done = publish(path, *schema)
    assert done.exit_code == 0, done.output
    more(store, 1)
    assert not archive_once(path, source_options).streams[0].warnings
    assert read(catalog, name).num_rows == 100
    assert publish(path, "--drop", "--name", name).exit_code == 0
    assert table_names(catalog) == []


@pytest.mark.parametrize("change", ["copied", "defined otherwise", "made by somebody"])
def test_a_table_that_this_archive_has_not_made_so_is_not_taken(
    change: str, catalog: RestCatalogServer, store: redis.Redis, source_options: Options, path: Path, tmp_path: Path
) -> None:
    more(store, 0)
    archive_once(path, source_options)
    schema = ["--schema", "sensor int, value long"]
    if change == "made by somebody":
        lake = load_catalog("other", type="rest", uri=catalog.uri)
        lake.create_namespace("streamd")
        location = f"file://{path}/_tables/iceberg-streamd.typed"
        lake.create_table("streamd.typed", pa.schema([("id", pa.string())]), location)
    else:
        catalog.lost_answers = 1
        assert publish(path, *schema).exit_code == 1
    if change == "copied":
        path = Path(shutil.copytree(path, tmp_path / "copy"))
    if change == "defined otherwise":
        schema = ["--schema", "sensor int"]
    refused = publish(path, *schema)
    assert refused.exit_code == 1
    assert refused.output.endswith(": its catalog has another table named streamd.typed: give another --name\n"), (
        refused.output
    )
    assert read(catalog, "streamd.typed").num_rows == 0
    assert list((path / "_tables").glob("*.json")) == []


def test_an_address_that_is_not_a_catalogs_is_named_as_the_fault() -> None:
    with pytest.raises(TableError, match="the iceberg table: its uri is not that of an Iceberg REST catalog"):
        with_reason(TableConfig("iceberg"), lambda: ConfigResponse.model_validate_json("<html>"))


@pytest.mark.parametrize("fault", [500, 502, 503, "lost"])
def test_a_commit_whose_outcome_is_unknown_is_settled_by_the_next_run(
    fault: int | str, catalog: RestCatalogServer, store: redis.Redis, source_options: Options, path: Path
) -> None:
    more(store, 0)
    archive_once(path, source_options)
    assert publish(path).exit_code == 0
    more(store, 1)
    if isinstance(fault, int):
        catalog.statuses = [fault]
    else:
        catalog.lost_answers = 1
    report = archive_once(path, source_options)
    assert report.is_success
    assert read(catalog).num_rows == (50 if isinstance(fault, int) else 100)
    with suppress(IndexError):
        assert "iceberg table" in report.streams[0].warnings[0]
    assert not archive_once(path, source_options).streams[0].warnings
    assert_table_is(catalog, path, source_options)


def test_a_catalog_that_does_not_answer_holds_nobody_up(
    catalog: RestCatalogServer, store: redis.Redis, source_options: Options, path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    more(store, 0)
    archive_once(path, source_options)
    assert publish(path).exit_code == 0
    more(store, 1)
    catalog.is_silent = True
    done = threading.Event()
    reports: list[Any] = []

    def run() -> None:
        reports.append(archive_once(path, source_options))
        done.set()

    with monkeypatch.context() as patched:
        patched.setattr(iceberg_catalog, "TIMEOUT_S", (0.5, 0.5))
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        assert done.wait(200)
        thread.join()
    assert reports[0].is_success
    assert "timed out" in reports[0].streams[0].warnings[0]
    catalog.is_silent = False
    with pytest.raises(TableError, match="keeps no delta table"):
        drop_table(Layout(path), "delta")
    assert not archive_once(path, source_options).streams[0].warnings
    assert_table_is(catalog, path, source_options)
