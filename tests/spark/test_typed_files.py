"""The files of typed open tables: what nobody names goes, and nothing else, whoever works on them at once."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis

pytest.importorskip("pyiceberg", reason="open tables need streamd-server[tables]")
pytest.importorskip("deltalake", reason="open tables need streamd-server[tables]")
pytest.importorskip("polars", reason="what reads the tables comes with streamd-server[test]")
pytest.importorskip("duckdb_extension_delta", reason="what reads the tables comes with streamd-server[test]")

from support.archives.runs import KEY, archive_once
from support.archives.table_kinds import TYPED_TABLES
from support.archives.table_readers import SCHEMA
from support.archives.typed_tables import (
    TYPED,
    Options,
    derived_files,
    typed_fill,
)

from streamd.archive.archive_errors import TableError
from streamd.archive.delete import delete
from streamd.archive.layout import Layout
from streamd.archive.publishing import publish
from streamd.client.points import parse_entry_id
from streamd.disk import Disk

pytestmark = pytest.mark.long


def test_what_nobody_names_is_swept_and_nothing_else(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    for number in range(3):
        typed_fill(store, 50, number)
        TYPED_TABLES.run_once(tmp_path, source_options, merge_files=2, trim_delay_ms=3_600_000)
    named = derived_files(tmp_path)
    for each in list(named):
        path = Path(each)
        run, _, columns = path.name.removesuffix(".parquet").rpartition(".")
        path.with_name(f"{run}.00000000.parquet").write_bytes(b"of other columns")
        path.with_name(f"20200101T000000-{run}.{columns}.parquet").write_bytes(b"of a source that is gone")
    assert len(derived_files(tmp_path)) == 3 * len(named)
    TYPED_TABLES.run_once(tmp_path, source_options, trim_delay_ms=3_600_000)
    assert derived_files(tmp_path) == named


def test_a_half_written_file_that_is_cleaned_up_is_written_again(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    """A run removes what `publish` is writing, which it takes for something left over."""
    typed_fill(store, 100)
    archive_once(tmp_path, source_options)
    cleaned: list[int] = []

    class CleaningDisk(Disk):
        def sync_file(self, path: Any) -> None:
            if "table-" in str(path):
                cleaned.append(1)
                archive_once(tmp_path, source_options)
            super().sync_file(path)

    for config in TYPED:
        publish(Layout(tmp_path), config, disk=CleaningDisk())
    assert len(cleaned) == 2
    TYPED_TABLES.assert_are_whole(tmp_path, source_options)


def test_publishing_goes_on_while_files_are_merged_and_entries_deleted(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    produced = typed_fill(store, 50)
    archive_once(tmp_path, source_options)
    words = [sys.executable, "-m", "streamd", "archive", "publish", str(tmp_path), "--schema", SCHEMA, "--format"]
    processes = [subprocess.Popen([*words, form]) for form in ("iceberg", "delta") for _ in range(2)]
    for number in range(1, 12):
        produced += typed_fill(store, 50, number)
        assert archive_once(tmp_path, source_options, merge_files=2).is_success
        gone = parse_entry_id(produced[number * 3])
        with suppress(TableError):  # all of them work on the tables at once
            delete(str(tmp_path), KEY, source_options, [(gone, gone)])
    assert [each.wait(300) for each in processes] == [0] * 4
    for _ in range(2):
        TYPED_TABLES.run_once(tmp_path, source_options)
    TYPED_TABLES.assert_are_whole(tmp_path, source_options)
    TYPED_TABLES.assert_no_file_is_left_over(tmp_path)
