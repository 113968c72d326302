"""An archive as a Delta table: `data/` is the table, `data/_delta_log/` its log."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

from streamd.spark.archive.layout import Layout
from streamd.spark.archive.manifest import FileRecord
from streamd.spark.archive.manifest_log import ManifestLog
from streamd.spark.archive.open_table import day_of, id_bounds, mark_of, ms_bounds, stream_text
from streamd.spark.archive.parquet import file_schema
from streamd.spark.archive.store import ObjectPath, disk_for

__all__ = ["DeltaArchiveTable"]

PARTITIONS = ["stream", "date"]
CONFIGURATION = {
    "delta.checkpointInterval": "32",
    # Earlier versions name files that are removed soon after they were replaced.
    "delta.logRetentionDuration": "interval 1 hours",
    "delta.deletedFileRetentionDuration": "interval 1 hours",
}


def table_schema() -> pa.Schema:
    return pa.schema([*file_schema(), pa.field("stream", pa.string()), pa.field("date", pa.date32())])


class DeltaArchiveTable:
    """The Delta table of an archive."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._uri = str(layout.root / "data")
        # As for obstore, whether it is HTTP is said by the endpoint.
        self._options = {"allow_http": "true"} if isinstance(layout.root, ObjectPath) else None
        self._schema = Schema.from_arrow(table_schema())
        self._table: DeltaTable | None = None

    def create(self) -> None:
        self._open()

    def bring_up(self, log: ManifestLog) -> bool:
        table, mark = self._open(), mark_of(log.stream)
        if (table.transaction_version(mark) or 0) >= log.sequence:
            return True
        wanted = {below_data(file.path): file for file in log.files}
        named = self._named(table, log.stream)
        added = [add_action(log.stream, path, file) for path, file in wanted.items() if path not in named]
        removed = [remove_action(log.stream, path, size) for path, size in named.items() if path not in wanted]
        if not added and not removed:
            return True
        try:
            # One attempt: what is added and removed depends on the version that it is based on.
            table.create_write_transaction(
                [*added, *removed],
                "append",
                self._schema,
                PARTITIONS,
                commit_properties=CommitProperties(
                    app_transactions=[Transaction(mark, log.sequence)], max_commit_retries=0
                ),
            )
        except CommitFailedError:
            self._table = None
            return False
        return True

    def forget(self, log: ManifestLog, moment_ms: int) -> None:
        """Nothing to do: a version of a Delta table is readable as long as its files are there, as after any VACUUM."""

    def drop(self) -> None:
        disk_for(self._layout.root).remove_tree(self._layout.delta_log)
        self._table = None

    def _open(self) -> DeltaTable:
        """The table as it is now, made when it is missing."""
        if self._table is not None:
            self._table.update_incremental()
            return self._table
        try:
            self._table = DeltaTable(self._uri, storage_options=self._options)
        except TableNotFoundError:
            create_table_with_add_actions(
                self._uri, self._schema, [], mode="ignore", partition_by=PARTITIONS, configuration=CONFIGURATION,
                name="archive", description="Entries of streams, archived by streamd", storage_options=self._options,
            )  # fmt: skip
            self._table = DeltaTable(self._uri, storage_options=self._options)
        return self._table

    def _named(self, table: DeltaTable, stream: str) -> dict[str, int]:
        """The files that the table names of a stream, below `data/`, and their sizes."""
        below = below_data(self._layout.relative(self._layout.data(stream))) + "/"
        found = pa.table(table.get_add_actions(flatten=True)).select(["path", "size_bytes"]).to_pydict()
        # The log has them percent-encoded.
        paths = zip(map(unquote, found["path"]), found["size_bytes"], strict=True)
        return {path: size for path, size in paths if path.startswith(below)}


def below_data(path: str) -> str:
    return path.removeprefix("data/")


def partition_of(stream: str, path: str) -> dict[str, str | None]:
    return {"stream": stream_text(stream), "date": day_of(path)}


def add_action(stream: str, path: str, file: FileRecord) -> AddAction:
    return AddAction(
        path=path,
        size=file.size,
        partition_values=partition_of(stream, path),
        modification_time=int(time.time() * 1000),
        data_change=True,
        stats=json.dumps(statistics_of(file)),
    )


def remove_action(stream: str, path: str, size: int) -> RemoveAction:
    return RemoveAction(
        path=path,
        data_change=True,
        deletion_timestamp=int(time.time() * 1000),
        size=size,
        partition_values=partition_of(stream, path),
    )


def statistics_of(file: FileRecord) -> dict[str, Any]:
    """What lets readers skip the file."""
    low: dict[str, int | str] = {}
    high: dict[str, int | str] = {}
    if (ms := ms_bounds(file)) is not None:
        low["ms"], high["ms"] = ms
    if (ids := id_bounds(file)) is not None:
        low["id"], high["id"] = ids
    return {"numRecords": file.rows, "minValues": low, "maxValues": high, "nullCount": {"id": 0} | zero(low)}


def zero(names: Iterable[str]) -> dict[str, int]:
    return dict.fromkeys(names, 0)
