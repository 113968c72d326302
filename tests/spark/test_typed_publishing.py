"""`archive publish --schema`: what it keeps, refuses, and drops."""

from __future__ import annotations

import json
import os
from contextlib import suppress
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
from support.archives.table_kinds import TYPED_TABLES
from support.archives.table_readers import (
    SCHEMA,
    read_iceberg,
)
from support.archives.typed_tables import (
    TYPED,
    Options,
    derived_files,
    typed_fill,
)

from streamd.archive import published_files
from streamd.archive.archive_errors import TableError
from streamd.archive.delete import delete
from streamd.archive.kept_tables import drop_table
from streamd.archive.layout import Layout
from streamd.archive.open_format import TYPED_NAME, TableConfig
from streamd.archive.publishing import publish
from streamd.cli.subcommands import program
from streamd.client.points import parse_entry_id
from streamd.disk import Disk

pytestmark = pytest.mark.long


def test_publishing_that_was_killed_goes_on_where_it_was(
    store: redis.Redis, source_options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        typed_fill(store, 50, number)
        archive_once(tmp_path, source_options, merge_files=99)
    made: list[Path] = []
    write = published_files.write_file

    def write_some(path: Path, *given: Any) -> None:
        if len(made) in (2, 4):
            made.append(path)
            raise Killed
        made.append(path)
        write(path, *given)

    monkeypatch.setattr(published_files, "write_file", write_some)
    for _ in range(2):
        with pytest.raises(Killed):  # noqa: PT011  it says nothing
            publish(Layout(tmp_path), TYPED[1])
    publish(Layout(tmp_path), TYPED[1])
    files = Layout(tmp_path).data_files(KEY)
    assert len(made) == len(files) + 2, "each file is made once"
    publish(Layout(tmp_path), TYPED[0])
    TYPED_TABLES.assert_are_whole(tmp_path, source_options)


def command(*words: object) -> Any:
    return CliRunner().invoke(program, ["archive", *map(str, words)])


def test_the_command_keeps_a_table_that_runs_carry_on(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    typed_fill(store, 50)
    typed_fill(store, 50, key="other")
    for key in (KEY, "other"):
        archive_once(tmp_path, source_options | {"stream": key})
    words = ("--stream", KEY, "--name", TYPED_NAME, "--json")
    for form in ("iceberg", "delta"):
        done = command("publish", tmp_path, "--format", form, "--schema", SCHEMA, *words)
        assert json.loads(done.output) == {"format": form, "files": {KEY: 1}}
        assert command("publish", tmp_path, "--format", form, "--name", TYPED_NAME).exit_code == 0
    for key in (KEY, "other"):
        typed_fill(store, 50, 1, key=key)
        archive_once(tmp_path, source_options | {"stream": key})
    TYPED_TABLES.assert_are_whole(tmp_path, source_options)
    for form in ("iceberg", "delta"):
        # The same, written in another form.
        columns = [each.split(" ") for each in SCHEMA.split(", ")]
        again = " ,\n".join(f"{name}: {kind.upper()}" for name, kind in columns).replace("BIGINT", "long")
        done = command("publish", tmp_path, "--format", form, "--schema", again, *words)
        assert done.exit_code == 0, done.output
        assert "keeps no" in command("publish", tmp_path, "--format", form, "--drop").output
        assert f"but {TYPED_NAME}" in command("publish", tmp_path, "--format", form, "--drop").output
        assert command("publish", tmp_path, "--format", form, "--drop", "--name", TYPED_NAME).exit_code == 0
    assert not list((tmp_path / "_tables").rglob("*.parquet"))
    assert sorted(os.listdir(tmp_path / "_tables")) == ["iceberg"]


WRONG = {
    "n float8": "column n cannot be float8: the types of fields are string, binary",
    "n int(5)": "column n cannot be int",
    "n array<int>": "cannot read 'n array<int>'",
    "n": "cannot read 'n': columns are written 'user string, amount double'",
    "n int,": "a column is missing: columns are written",
    "n int m int": "cannot read 'n int m int'",
    "a-b int": "cannot read 'a-b int'",
    "n decimal(39)": "column n cannot be decimal(39,0)",
    "n int, m string, N double": "column N comes twice",
    "ms bigint": "column ms is part of every table; when a field of that name is meant, give --metadata-prefix",
    "n int, Date date": "column Date is part of every table",
    "fields string": "column fields is part of every table",
    "`a b` int": "column 'a b': tables cannot have such a name",
    "_corrupt_record int": "column _corrupt_record must be a string",
}


@pytest.mark.parametrize("schema", WRONG)
def test_a_schema_that_is_wrong_is_refused_in_one_line(schema: str, tmp_path: Path) -> None:
    Layout(tmp_path).create(Disk())
    done = command("publish", tmp_path, "--format", "delta", "--schema", schema)
    assert done.exit_code == 1
    assert done.output.startswith(f"Error: option schema: {WRONG[schema]}"), done.output
    assert done.output.count("\n") == 1
    assert not (tmp_path / "_tables").exists()


@pytest.mark.parametrize("form", ["iceberg", "delta"])
def test_another_table_of_a_name_is_refused(
    form: str, store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    typed_fill(store, 10)
    archive_once(tmp_path, source_options, publish=(TableConfig(form),))
    publishing = ("publish", tmp_path, "--format", form)
    assert command(*publishing, "--schema", "user string").exit_code == 0
    for words, said in (
        (("--schema", "amount double"), "column user is missing: the columns of a table may grow, not go"),
        (("--schema", "amount double", "--stream", KEY), f"keeps the {form} table streamd.typed with another schema: user string"),
        (("--schema", "user string", "--name", "streamd.archive"), "streamd.archive is the name of the table without a schema"),
        (("--schema", "user string", "--stream", KEY), f"keeps another {form} table, streamd.typed: drop it first"),
        (("--schema", "user string", "--metadata-prefix", "x"), f"keeps another {form} table, streamd.typed: drop it first"),
        (("--stream", KEY), "need --schema"),
        (("--drop", "--name", "a.b"), f"keeps no {form} table a.b, but {form}"),
    ):  # fmt: skip
        done = command(*publishing, *words)
        assert done.exit_code != 0
        assert said.replace(f"but {form}", "but streamd.archive, streamd.typed") in done.output.replace(
            "typed, streamd.archive", "archive, streamd.typed"
        )
    # Another schema needs another name, or the other table to go.
    assert command(*publishing, "--schema", "user string, amount double", "--name", "streamd.more").exit_code == 0
    assert command(*publishing, "--drop", "--name", "streamd.typed").exit_code == 0
    assert command(*publishing, "--schema", "user binary").exit_code == 0
    assert command(*publishing).exit_code == 0


@pytest.mark.parametrize("form", ["iceberg", "delta"])
def test_a_drop_that_is_killed_anywhere_is_ended_by_a_drop_alone(
    form: str, store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    typed_fill(store, 30)
    archive_once(tmp_path, source_options)
    config = TableConfig(form, TYPED_NAME, schema=SCHEMA)

    class DroppingDisk(Disk):
        left = 0

        def _end(self, action: Any, *given: Any) -> None:
            self.left -= 1
            if self.left == 0:
                raise Killed
            action(*given)

        def rename(self, *given: Any) -> None:
            self._end(super().rename, *given)

        def remove_tree(self, path: Any) -> None:
            self._end(super().remove_tree, path)

        def unlink(self, path: Any) -> None:
            self._end(super().unlink, path)

    for at in range(1, 10):
        publish(Layout(tmp_path), config)
        disk = DroppingDisk()
        disk.left = at
        with suppress(Killed):
            drop_table(Layout(tmp_path), form, TYPED_NAME, disk=disk)
        is_done = disk.left > 0
        assert not archive_once(tmp_path, source_options).streams[0].warnings  # which does not make it again
        if not is_done and at % 2:
            drop_table(Layout(tmp_path), form, TYPED_NAME)
        if is_done or at % 2:
            with pytest.raises(TableError, match="keeps no"):
                drop_table(Layout(tmp_path), form, TYPED_NAME)
            assert not derived_files(tmp_path)
        if is_done:
            return
    raise AssertionError


@pytest.mark.parametrize("form", ["iceberg", "delta"])
def test_a_deletion_reaches_what_a_killed_drop_has_left(
    form: str, store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    produced = typed_fill(store, 30)
    archive_once(tmp_path, source_options)
    publish(Layout(tmp_path), TableConfig(form, TYPED_NAME, schema=SCHEMA))

    class NoDisk(Disk):
        def remove_tree(self, path: Any) -> None:
            raise Killed

    with pytest.raises(Killed):  # noqa: PT011  it says nothing
        drop_table(Layout(tmp_path), form, TYPED_NAME, disk=NoDisk())
    files = derived_files(tmp_path)
    assert files
    others = Path(next(iter(files))).with_name("of-a-later-table.00000000.parquet")
    others.write_bytes(b"")
    gone = parse_entry_id(produced[3])
    delete(str(tmp_path), KEY, source_options, [(gone, gone)])
    assert derived_files(tmp_path) == {str(others)}
    drop_table(Layout(tmp_path), form, TYPED_NAME)


def test_tables_of_an_archive_that_was_moved_are_dropped_and_made_anew(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    typed_fill(store, 30)
    both = (TableConfig("iceberg"), *TYPED)
    TYPED_TABLES.run_once(tmp_path / "old", source_options, publish=both)
    moved = (tmp_path / "old").rename(tmp_path / "new")
    for name in (None, TYPED_NAME):
        drop_table(Layout(moved), "iceberg", name)
    TYPED_TABLES.run_once(moved, source_options, publish=both)
    typed_fill(store, 30, 1)
    TYPED_TABLES.run_once(moved, source_options)
    TYPED_TABLES.assert_are_whole(moved, source_options)
    TYPED_TABLES.assert_no_file_is_left_over(moved)
    assert read_iceberg(moved).num_rows == 60
