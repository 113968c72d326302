"""An archive as a Delta table: the folder of its files is the table, `_delta_log/` in it its log."""

from __future__ import annotations

import json
import time
from typing import Any, Literal
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, TableFeatures, Transaction
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

from streamd.archive.layout import Layout, folder_name
from streamd.archive.manifest import FileRecord
from streamd.archive.manifest_log import ManifestLog, archived_streams
from streamd.archive.object_disk import disk_for
from streamd.archive.open_format import TableConfig, check_is_described, day_of, id_bounds, mark_of, ms_bounds
from streamd.archive.published_columns import table_schema
from streamd.archive.published_files import TableFiles
from streamd.archive.store import ObjectPath
from streamd.printable import key_text

__all__ = ["DeltaArchiveTable"]

CONFIGURATION = {
    "delta.checkpointInterval": "32",
    # Earlier versions name files that are removed soon after they were replaced.
    "delta.logRetentionDuration": "interval 1 hours",
    "delta.deletedFileRetentionDuration": "interval 1 hours",
}


class DeltaArchiveTable:
    """The Delta table of an archive."""

    def __init__(self, layout: Layout, config: TableConfig, files: TableFiles) -> None:
        self._layout = layout
        self._config = config
        self._files = files
        self._uri = str(files.folder)
        # As with obstore, the endpoint decides whether it is HTTP.
        self._options = {"allow_http": "true"} if isinstance(layout.root, ObjectPath) else None
        self._below = f"{layout.relative(files.folder)}/"
        self._schema = Schema.from_arrow(table_schema(config))
        self._partitions = [config.column("stream"), config.column("date")]
        self._table: DeltaTable | None = None

    def unknown_id(self) -> str | None:
        """None: no catalog is asked for a Delta table, so no answer is lost."""
        return None

    def create(self) -> None:
        self._open()

    def bring_up(self, log: ManifestLog) -> bool:
        table, mark = self._open(), mark_of(log.stream, self._files.revision)
        if table.schema() != self._schema:
            return self._evolve(table)
        if (table.transaction_version(mark) or 0) >= log.sequence:
            return True
        wanted = {self._files.path_of(file.path).removeprefix(self._below): file for file in log.files}
        named = self._named(table, log.stream)
        missing = {path: self._files.make(log.stream, file) for path, file in wanted.items() if path not in named}
        added = [self._add(log.stream, path, file) for path, file in missing.items()]
        removed = [self._remove(log.stream, path, size) for path, size in named.items() if path not in wanted]
        if not added and not removed:
            return True
        return self._commit(table, [*added, *removed], "append", [Transaction(mark, log.sequence)])

    def _commit(
        self, table: DeltaTable, actions: list[Any], mode: Literal["append", "overwrite"], marks: list[Transaction]
    ) -> bool:
        """One attempt: what is added and removed depends on the version that it is based on."""
        properties = CommitProperties(app_transactions=marks, max_commit_retries=0)
        try:
            table.create_write_transaction(actions, mode, self._schema, self._partitions, commit_properties=properties)
        except CommitFailedError:
            self._table = None
            return False
        return True

    def _evolve(self, table: DeltaTable) -> bool:
        """Give the table the columns of its description, and write all of its files again, in one commit.

        Without files of the narrower types no reader needs the table feature `typeWidening`.
        """
        check_is_described(self._layout, self._config)
        needed = pa.timestamp("us") in table_schema(self._config).types
        if needed and "timestampNtz" not in (table.protocol().writer_features or ()):
            table.alter.add_feature(TableFeatures.TimestampWithoutTimezone, allow_protocol_versions_increase=True)
        streams = [each for each in archived_streams(self._layout) if self._config.covers(each)]
        logs = [ManifestLog.read(self._layout, each) for each in streams]
        added = [
            self._add(
                log.stream, self._files.path_of(file.path).removeprefix(self._below), self._files.make(log.stream, file)
            )
            for log in logs
            for file in log.files
        ]
        marks = [Transaction(mark_of(log.stream, self._files.revision), log.sequence) for log in logs if log.sequence]
        return self._commit(table, added, "overwrite", marks)

    def forget(self, log: ManifestLog, moment_ms: int) -> None:
        """Nothing to do: a version of a Delta table is readable as long as its files are there, as after any VACUUM."""

    def drop(self) -> None:
        disk_for(self._layout.root).remove_tree(self._files.folder / "_delta_log")
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
                self._uri, self._schema, [], mode="ignore", partition_by=self._partitions, configuration=CONFIGURATION,
                name=self._config.name, description="Entries of streams, archived by streamd", storage_options=self._options,
            )  # fmt: skip
            self._table = DeltaTable(self._uri, storage_options=self._options)
        return self._table

    def _named(self, table: DeltaTable, stream: str) -> dict[str, int]:
        """The files that the table names of a stream, below `data/`, and their sizes."""
        below = f"{self._config.column('stream')}={folder_name(stream)}/"
        found = pa.table(table.get_add_actions(flatten=True)).select(["path", "size_bytes"]).to_pydict()
        # The log has them percent-encoded.
        paths = zip(map(unquote, found["path"]), found["size_bytes"], strict=True)
        return {path: size for path, size in paths if path.startswith(below)}

    def _partition(self, stream: str, path: str) -> dict[str, str | None]:
        return dict(zip(self._partitions, (key_text(stream), day_of(path)), strict=True))

    def _add(self, stream: str, path: str, file: FileRecord) -> AddAction:
        return AddAction(
            path=path,
            size=file.size,
            partition_values=self._partition(stream, path),
            modification_time=int(time.time() * 1000),
            data_change=True,
            stats=json.dumps(statistics_of(file, self._config)),
        )

    def _remove(self, stream: str, path: str, size: int) -> RemoveAction:
        return RemoveAction(
            path=path,
            data_change=True,
            deletion_timestamp=int(time.time() * 1000),
            size=size,
            partition_values=self._partition(stream, path),
        )


def statistics_of(file: FileRecord, config: TableConfig) -> dict[str, Any]:
    """What lets readers skip the file."""
    found: dict[str, tuple[int, int] | tuple[str, str]] = {}
    if (ms := ms_bounds(file)) is not None:
        found[config.column("ms")] = ms
    if (ids := id_bounds(file)) is not None:
        found[config.column("id")] = ids
    low = {name: bounds[0] for name, bounds in found.items()}
    high = {name: bounds[1] for name, bounds in found.items()}
    nulls = dict.fromkeys([config.column("id"), *found], 0)
    return {"numRecords": file.rows, "minValues": low, "maxValues": high, "nullCount": nulls}
