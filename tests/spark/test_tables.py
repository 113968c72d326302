"""Open tables: pyiceberg, deltalake, polars and DuckDB read what `history` gives, whatever is archived, merged and deleted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redis

pytest.importorskip("pyiceberg", reason="open tables need streamd-server[tables]")
pytest.importorskip("deltalake", reason="open tables need streamd-server[tables]")
pytest.importorskip("polars", reason="what reads the tables comes with streamd-server[test]")
pytest.importorskip("duckdb_extension_delta", reason="what reads the tables comes with streamd-server[test]")

from click.testing import CliRunner
from support.archives.runs import KEY, Killed, archive_once
from support.archives.table_kinds import PLAIN_TABLES
from support.archives.table_readers import (
    READERS,
    digest,
    files_named,
    iceberg_table,
    read_by_all,
    read_delta,
    read_history,
    read_iceberg,
)

from streamd.archive.archive_errors import TableError
from streamd.archive.delete import delete
from streamd.archive.kept_tables import drop_table, make_table
from streamd.archive.layout import Layout
from streamd.archive.manifest_log import ManifestLog
from streamd.archive.open_format import ArchiveTable, TableConfig
from streamd.archive.published_files import TableFiles
from streamd.archive.publishing import OpenTables, publish
from streamd.cli.subcommands import program
from streamd.client.key_names import stream_key
from streamd.client.points import parse_entry_id
from streamd.disk import Disk

pytestmark = pytest.mark.long

Options = dict[str, str]
BOTH = PLAIN_TABLES.configs


@pytest.fixture(scope="module", autouse=True)
def _import_before_tests() -> None:
    """Libraries that take a second to import do it outside of the tests that are timed."""
    import pyiceberg.catalog.sql  # noqa: F401


# --- What is read ---------------------------------------------------------------------------------------------------------


def test_every_reader_reads_what_history_gives(store: redis.Redis, source_options: Options, tmp_path: Path) -> None:
    produced: list[str] = []
    for number in range(5):  # some days, merged files among them, and one from which entries are deleted
        produced += PLAIN_TABLES.fill(store, 300, number)
        PLAIN_TABLES.run_once(tmp_path, source_options, merge_files=3)
    ranges = [(parse_entry_id(produced[20]), parse_entry_id(produced[40]))]
    delete(str(tmp_path), KEY, source_options, ranges)
    expected = digest(read_history(tmp_path, source_options))
    assert expected[0] == 1500 - 21
    assert read_by_all(tmp_path) == dict.fromkeys(READERS, expected)


KEYS = ["a:b c%d/é", "x.y~z", "#?&=", " ", "k" * 300, "%2E"]


@pytest.mark.parametrize("key", KEYS, ids=range(len(KEYS)))
def test_any_key_is_a_value_of_the_column(
    key: str, store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    for at in range(20):
        store.xadd(key, {"n": at}, id=f"{1_700_000_000_000 + at}-0")
    archive_once(tmp_path, source_options | {"stream": key}, publish=BOTH)
    expected = digest(read_history(tmp_path, source_options, key))
    assert expected[0] == 20
    found = read_by_all(tmp_path)
    if len(key) > 200:  # polars takes the partitions of a Delta table from the names of the folders
        assert found.pop("polars, Delta")[0] == 20
    assert found == {name: expected for name in READERS if name in found}


def test_ids_that_columns_cannot_hold_are_there_nevertheless(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    """Years above 9999, and halves of IDs above 2^63-1."""
    for entry_id in ("0-1", "99-5", "1700000000000-18446744073709551615", "300000000000000-0", "9300000000000000000-7"):
        store.xadd(KEY, {"n": entry_id}, id=entry_id)
    PLAIN_TABLES.run_once(tmp_path, source_options, hot_window_ms=-(10**19))
    expected = digest(read_history(tmp_path, source_options))
    assert expected[0] == 5
    assert read_by_all(tmp_path) == dict.fromkeys(READERS, expected)


def test_filters_skip_files_and_nothing_else(store: redis.Redis, source_options: Options, tmp_path: Path) -> None:
    produced = PLAIN_TABLES.fill(store, 5000, 0)
    PLAIN_TABLES.run_once(tmp_path, source_options)
    table = iceberg_table(tmp_path)
    entry_id, ms = produced[2500], int(produced[2500].partition("-")[0])
    for condition in (f"id = '{entry_id}'", f"ms = {ms}", f"ms >= {ms} and ms < {ms + 1}"):
        scan = table.scan(row_filter=condition)
        assert len(list(scan.plan_files())) == 1, condition
        assert scan.to_arrow().column("id").to_pylist() == [entry_id], condition
    assert len(list(table.scan().plan_files())) == 4


def test_streams_of_one_archive_are_one_table(store: redis.Redis, source_options: Options, tmp_path: Path) -> None:
    for key in ("a", "ab", "b"):
        for at in range(10):
            store.xadd(key, {"n": at}, id=f"{1_700_000_000_000 + at}-0")
        archive_once(tmp_path, source_options | {"stream": key}, publish=BOTH)
    # A deletion from one leaves the others alone.
    gone = parse_entry_id("1700000000003-0")
    delete(str(tmp_path), "a", source_options, [(gone, gone)])
    for read in (read_iceberg, read_delta):
        found = read(tmp_path)
        streams = found.column("stream").to_pylist()
        assert {each: streams.count(each) for each in streams} == {"a": 9, "ab": 10, "b": 10}


def test_a_key_that_looks_like_one_that_is_no_text_is_another(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    texts = {"\udcff": r"\xff", r"\xff": r"\\xff", "%FF": "%FF"}
    for key in texts:
        for at in range(10):
            store.xadd(stream_key(key), {"n": at}, id=f"{1_700_000_000_000 + at}-0")
        archive_once(tmp_path, source_options | {"stream": key}, publish=BOTH)
    gone = parse_entry_id("1700000000003-0")
    delete(str(tmp_path), "\udcff", source_options, [(gone, gone)])
    for read in (read_iceberg, read_delta):
        streams = read(tmp_path).column("stream").to_pylist()
        assert {each: streams.count(each) for each in streams} == {
            text: 9 if key == "\udcff" else 10 for key, text in texts.items()
        }
    for key, text in texts.items():
        table = read_history(tmp_path, source_options, key)
        assert set(table.column("stream").to_pylist()) == {text}


# --- Replaced files, and old snapshots --------------------------------------------------------------------------------------


def test_metadata_does_not_pile_up(
    store: redis.Redis, source_options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from streamd.archive import iceberg as module

    monkeypatch.setattr(module, "SNAPSHOTS", 3)
    monkeypatch.setattr(module, "READERS_MS", -3_600_000)
    for number in range(30):
        PLAIN_TABLES.fill(store, 10, number)
        PLAIN_TABLES.run_once(tmp_path, source_options, merge_files=3)
    PLAIN_TABLES.assert_are_whole(tmp_path, source_options)
    metadata = list((tmp_path / "_tables" / "iceberg" / "metadata").iterdir())
    assert len(metadata) < 50, [each.name for each in metadata]
    assert read_by_all(tmp_path) == dict.fromkeys(READERS, digest(read_history(tmp_path, source_options)))


def test_a_table_that_cannot_be_reached_does_not_stop_the_archiver(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    produced: list[str] = []
    for number in range(2):
        produced += PLAIN_TABLES.fill(store, 50, number)
        PLAIN_TABLES.run_once(tmp_path, source_options)
    catalog, aside = tmp_path / "_tables/iceberg/catalog.db", tmp_path / "aside"
    catalog.rename(aside)
    catalog.mkdir()  # no database can be opened here
    produced += PLAIN_TABLES.fill(store, 50, 2)
    report = archive_once(tmp_path, source_options, merge_files=2)
    (stream,) = report.streams
    assert stream.status == "archived"
    assert stream.trimmed == 50
    assert any("the iceberg table: " in each for each in stream.warnings)
    # What the table, as it was, names is still there, although it was replaced and its time is over.
    gone = parse_entry_id(produced[3])
    with pytest.raises(TableError, match="delete again"):
        delete(str(tmp_path), KEY, source_options, [(gone, gone)])
    catalog.rmdir()
    aside.rename(catalog)
    PLAIN_TABLES.assert_no_file_is_missing(tmp_path)
    assert read_iceberg(tmp_path).num_rows == 100
    delete(str(tmp_path), KEY, source_options, [(gone, gone)])
    PLAIN_TABLES.assert_are_whole(tmp_path, source_options)
    data = {str(each) for each in Layout(tmp_path).data_files(KEY)}
    assert data == files_named(tmp_path)


# --- Publishing -------------------------------------------------------------------------------------------------------------


def test_an_archive_is_published_later_and_by_several_at_a_time(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    for number in range(3):
        PLAIN_TABLES.fill(store, 100, number)
        archive_once(tmp_path, source_options)
    words = [sys.executable, "-m", "streamd", "archive", "publish", str(tmp_path), "--format"]
    processes = [subprocess.Popen([*words, form]) for form in ("iceberg", "delta") for _ in range(3)]
    assert [each.wait(300) for each in processes] == [0] * 6
    PLAIN_TABLES.assert_are_whole(tmp_path, source_options)
    # From now on every run carries them, without being told.
    PLAIN_TABLES.fill(store, 100, 3)
    assert not archive_once(tmp_path, source_options).streams[0].warnings
    PLAIN_TABLES.assert_are_whole(tmp_path, source_options)


def test_older_manifests_do_not_take_a_table_back(store: redis.Redis, source_options: Options, tmp_path: Path) -> None:
    PLAIN_TABLES.fill(store, 100, 0)
    PLAIN_TABLES.run_once(tmp_path, source_options)
    older = ManifestLog.read(Layout(tmp_path), KEY)
    PLAIN_TABLES.fill(store, 100, 1)
    PLAIN_TABLES.run_once(tmp_path, source_options)
    OpenTables(Layout(tmp_path)).bring_up(older)
    PLAIN_TABLES.assert_are_whole(tmp_path, source_options)


def command(*words: object) -> Any:
    return CliRunner().invoke(program, ["archive", *map(str, words)])


def test_the_command_says_what_is_wrong(store: redis.Redis, source_options: Options, tmp_path: Path) -> None:
    PLAIN_TABLES.fill(store, 10, 0)
    archive_once(tmp_path, source_options)
    done = command("publish", tmp_path, "--format", "delta", "--json")
    assert json.loads(done.output) == {"format": "delta", "files": {KEY: 1}}
    assert "Delta table has no catalog" in command("publish", tmp_path, "--format", "delta", "--catalog", "a").output
    assert "needs --schema" in command("publish", tmp_path, "--format", "delta", "--name", "a.b").output
    assert command("publish", tmp_path, "--format", "iceberg", "--name", "lake.readings").exit_code == 0
    assert command("publish", tmp_path, "--format", "iceberg").exit_code == 0  # the one that is kept
    done = command("publish", tmp_path, "--format", "iceberg", "--name", "lake.other")
    assert done.exit_code == 1
    assert "keeps another iceberg table, lake.readings: drop it first" in done.output
    assert command("publish", tmp_path, "--format", "iceberg", "--drop").exit_code == 0
    assert "keeps no iceberg table" in command("publish", tmp_path, "--format", "iceberg", "--drop").output
    assert command("publish", tmp_path, "--format", "delta", "--drop").exit_code == 0
    assert not (tmp_path / "data" / "_delta_log").exists()
    assert "is not an archive" in command("publish", tmp_path / "nowhere", "--format", "delta").output


def test_a_namespace_that_somebody_else_makes_at_the_same_time_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    create = SqlCatalog.create_namespace

    def create_behind(self: SqlCatalog, *given: Any) -> None:
        """As both see it that looked before either made it."""
        create(self, *given)
        with monkeypatch.context() as patched:
            patched.setattr(SqlCatalog, "namespace_exists", lambda *given: False)
            create(self, *given)

    monkeypatch.setattr(SqlCatalog, "create_namespace", create_behind)
    layout, config = Layout(tmp_path), TableConfig("iceberg")
    layout.create(Disk())
    make_table(layout, config, TableFiles(layout)).create()
    assert (tmp_path / "_tables/iceberg/metadata").is_dir()


@pytest.mark.parametrize("form", ["iceberg", "delta"])
def test_a_drop_that_fails_or_ends_midway_is_repeated(
    form: str, store: redis.Redis, source_options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    PLAIN_TABLES.fill(store, 10, 0)
    archive_once(tmp_path, source_options, publish=BOTH)
    layout = Layout(tmp_path)
    config = TableConfig(form)
    kind = type(make_table(layout, config, TableFiles(layout)))
    errors = [OSError("out of reach"), Killed()]
    for error in errors:

        def fail(table: ArchiveTable, error: BaseException = error) -> None:
            raise error

        with monkeypatch.context() as patched:
            patched.setattr(kind, "drop", fail)
            with pytest.raises((TableError, Killed)):
                drop_table(layout, form)
        PLAIN_TABLES.fill(store, 10, 1 + errors.index(error))
        assert archive_once(tmp_path, source_options).is_success
    drop_table(layout, form)
    assert not ((tmp_path / "data" / "_delta_log").exists() and form == "delta")
    with pytest.raises(TableError, match=f"keeps no {form} table"):
        drop_table(layout, form)


@pytest.mark.parametrize("form", ["iceberg", "delta"])
def test_a_missing_library_is_named_with_what_installs_it(
    form: str, store: redis.Redis, source_options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    PLAIN_TABLES.fill(store, 10, 0)
    archive_once(tmp_path, source_options)
    monkeypatch.setitem(sys.modules, f"streamd.archive.{form}", None)
    with pytest.raises(TableError, match=r"needs the extra `tables`: ./install '.\[tables\]'"):
        publish(Layout(tmp_path), TableConfig(form))
    assert not (tmp_path / "_tables").exists()
    with pytest.raises(TableError, match="needs the extra `tables`"):
        archive_once(tmp_path, source_options, publish=(TableConfig(form),))
