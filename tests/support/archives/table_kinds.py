"""Open tables under test, plain and typed, each as Iceberg and as Delta: what goes in, and what must hold of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import redis

from streamd.archive.archiver import RunReport
from streamd.archive.layout import Layout
from streamd.archive.open_format import PLAIN_NAME, TYPED_NAME, TableConfig
from support.archives.runs import KEY, archive_once, fill
from support.archives.table_readers import (
    digest,
    files_named,
    iceberg_table,
    read_delta,
    read_history,
    read_iceberg,
    typed_digest,
)
from support.archives.typed_tables import TYPED, derived_files, expected_of, typed_fill

__all__ = ["PLAIN_TABLES", "TYPED_TABLES", "TableKind"]

Options = dict[str, str]
Digest = tuple[int, str]
"""The number of rows, and a checksum of them."""


@dataclass(frozen=True)
class TableKind:
    """Tables of one kind.

    name      of both
    configs   of both
    fill      appends a number of entries, of a round with a number; their IDs
    digest    of what a reader reads
    expected  what that must be for an archive
    lying     the files that lie there for the tables
    """

    name: str
    configs: tuple[TableConfig, TableConfig]
    fill: Callable[[redis.Redis, int, int], list[str]]
    digest: Callable[[pa.Table], Digest]
    expected: Callable[[Path, Options], Digest]
    lying: Callable[[Path], set[str]]

    def run_once(self, path: Path, options: Options, **changes: Any) -> RunReport:
        report = archive_once(path, options, **{"publish": self.configs, **changes})
        assert report.is_success, report.to_json()
        # What a deletion took from the server before it was archived is a gap, and reported as one.
        assert not [
            text
            for text in report.streams[0].warnings
            if "were trimmed or deleted before they were archived" not in text
        ]
        return report

    def ids(self, path: Path) -> list[str]:
        found: list[str] = read_iceberg(path, self.name).column("id").to_pylist()
        return found

    def read(self, path: Path) -> Digest:
        """What both tables have, which must be the same."""
        found = self.digest(read_iceberg(path, self.name))
        assert self.digest(read_delta(path, self.name)) == found
        return found

    def rows_of_snapshots(self, path: Path) -> set[int]:
        table = iceberg_table(path, self.name)
        return {table.scan(snapshot_id=each.snapshot_id).to_arrow().num_rows for each in table.snapshots()}

    def assert_are_whole(self, path: Path, options: Options) -> None:
        """Both tables have what history has, and name no file that is not there."""
        assert self.read(path) == self.expected(path, options)
        self.assert_no_file_is_missing(path)
        assert not list((path / "_staging").rglob("*.parquet"))

    def assert_no_file_is_missing(self, path: Path) -> None:
        missing = {each for each in files_named(path, self.name) if not os.path.exists(each)}
        assert not missing

    def assert_no_file_is_left_over(self, path: Path) -> None:
        assert self.lying(path) == files_named(path, self.name)


def plain_fill(store: redis.Redis, count: int, number: int) -> list[str]:
    return fill(store, count, start_ms=1_700_000_000_000 + number * 20_000_000)


def plain_expected(path: Path, options: Options) -> Digest:
    return digest(read_history(path, options))


def data_files(path: Path) -> set[str]:
    return {str(each) for each in Layout(path).data_files(KEY)}


PLAIN_TABLES = TableKind(
    PLAIN_NAME, (TableConfig("iceberg"), TableConfig("delta")), plain_fill, digest, plain_expected, data_files
)
TYPED_TABLES = TableKind(TYPED_NAME, TYPED, typed_fill, typed_digest, expected_of, derived_files)
