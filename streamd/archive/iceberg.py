"""An archive as an Iceberg table; its metadata lies in `_tables/<label>/metadata/`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from contextlib import suppress
from datetime import date
from typing import Any, cast

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.conversions import to_bytes
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationException,
)
from pyiceberg.expressions import EqualTo
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update.snapshot import ExpireSnapshots
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from streamd.archive.archive_errors import TableError
from streamd.archive.iceberg_catalog import load
from streamd.archive.layout import Layout
from streamd.archive.manifest import FileRecord
from streamd.archive.manifest_log import ManifestLog
from streamd.archive.object_disk import disk_for
from streamd.archive.open_format import TableConfig, check_is_described, day_of, id_bounds, mark_of, ms_bounds
from streamd.archive.published_columns import table_schema
from streamd.archive.published_files import TableFiles
from streamd.archive.store import ObjectPath, Place, files_below
from streamd.printable import key_text

__all__ = ["IcebergTable"]

EPOCH = date(1970, 1, 1)
CATALOG = "iceberg"
"""The folder of the archive's own catalog."""
SNAPSHOTS = 100
"""Snapshots that a table keeps at most: each is repeated in every version of the metadata."""
READERS_MS = 3_600_000
"""How long metadata files stay that no snapshot names any more, for readers that have begun with an older version."""

PAIR = StructType(
    NestedField(9, "field", BinaryType(), required=False), NestedField(10, "value", BinaryType(), required=False)
)
FIELDS = ListType(8, PAIR, element_required=False)
"""The column `fields`, the sixth of seven: catalogs number nested columns after the others."""

PROPERTIES = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "10",
    "commit.manifest.min-count-to-merge": "32",
    # What is added and removed depends on the snapshot that it is based on, so it must not be tried again as it is.
    "commit.retry.num-retries": "0",
}
OWNER, ARCHIVE, DEFINITION = "streamd.table", "streamd.archive", "streamd.definition"
"""Properties of a table: the `id` of its description in the archive, that of the archive, and what the table holds."""
STREAM, MOMENT = "streamd.stream", "streamd.moment-ms"
"""In the summary of a snapshot: the stream that it follows, and when its last manifest was written (the server's Unix ms)."""


class IcebergTable:
    """The Iceberg table of an archive."""

    def __init__(self, layout: Layout, config: TableConfig, files: TableFiles) -> None:
        self._layout = layout
        self._config = config
        self._files = files
        self._name = tuple(config.name.split("."))
        self._catalog: Catalog | None = None
        self._table: Table | None = None

    def unknown_id(self) -> str | None:
        try:
            found = self._load().load_table(self._name)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        except FileNotFoundError:
            return None  # its metadata is gone, and with it what it was
        made = self._origin()
        # A copy of an archive has its `id`, but lies elsewhere.
        is_made_here = bool(made[ARCHIVE]) and found.location() == self._location
        is_own = is_made_here and made.items() <= found.properties.items()
        return found.properties.get(OWNER) if is_own else None

    def create(self) -> None:
        self._open()

    def bring_up(self, log: ManifestLog) -> bool:
        table, mark = self._open(), mark_of(log.stream, self._files.revision)
        if types_of(table.schema()) != types_of(iceberg_schema(table_schema(self._config))) and not self._evolve(table):
            return False
        if log.last is None or int(table.properties.get(mark, 0)) >= log.sequence:
            return True
        wanted = {uri_of(self._layout.root / self._files.path_of(file.path)): file for file in log.files}
        named = self._named(table, log.stream)
        missing = {uri: self._files.make(log.stream, file) for uri, file in wanted.items() if uri not in named}
        added = [self._data_file(table, log.stream, uri, file) for uri, file in missing.items()]
        removed = [file for uri, file in named.items() if uri not in wanted]
        if not added and not removed:
            return True
        summary = {STREAM: mark, MOMENT: str(log.last.created_ms)}
        # Files of the columns that the table had before are swept as soon as the mark is set, so nothing may name them then.
        is_anew = any(not each.file_path.endswith(self._files.revision) for each in removed)
        try:
            with table.transaction() as transaction:
                transaction.set_properties({mark: str(log.sequence)})
                update = transaction.update_snapshot(snapshot_properties=summary)
                with update.overwrite() if removed else update.merge_append() as snapshot:
                    for each in added:
                        snapshot.append_data_file(each)
                    for each in removed:
                        snapshot.delete_data_file(each)
                expired = transaction.table_metadata.snapshots[: -1 if is_anew else -SNAPSHOTS]
                if expired:
                    ExpireSnapshots(transaction).by_ids([each.snapshot_id for each in expired]).commit()
        except (CommitFailedException, ValidationException):
            self._table = None
            return False
        if expired:
            self._remove_metadata(table)
        return True

    def _evolve(self, table: Table) -> bool:
        """Give the table the columns of its description; its files follow, stream by stream. False: somebody else has changed it."""
        check_is_described(self._layout, self._config)
        before = types_of(table.schema())
        try:
            with table.transaction() as transaction:
                with transaction.update_schema() as update:
                    for each in iceberg_schema(table_schema(self._config)).fields:
                        if each.name not in before:
                            update.add_column(each.name, each.field_type)
                        elif before[each.name] != each.field_type:
                            update.update_column(each.name, cast(PrimitiveType, each.field_type))
                transaction.set_properties({DEFINITION: self._origin()[DEFINITION]})
        except CommitFailedException:
            self._table = None
            return False
        return True

    def forget(self, log: ManifestLog, moment_ms: int) -> None:
        table, mark = self._open(), mark_of(log.stream, self._files.revision)
        snapshots = sorted(table.snapshots(), key=lambda each: each.sequence_number or 0)
        # From the first one on that follows the replacement, no snapshot names what was replaced.
        for at, snapshot in enumerate(snapshots):
            summary = snapshot.summary.additional_properties if snapshot.summary is not None else {}
            if summary.get(STREAM) == mark and int(summary[MOMENT]) >= moment_ms:
                self._expire(table, snapshots[:at])
                return

    def drop(self) -> None:
        with suppress(NoSuchTableError):
            if self._is_own():
                self._load().drop_table(self._name)
        self._table = None
        disk_for(self._layout.root).remove_tree(self._metadata)

    # --- The table

    def _is_own(self) -> bool:
        """Whether the table of this name is this one. Raises NoSuchTableError when there is none."""
        try:
            return is_own(self._load().load_table(self._name), self._config)
        except FileNotFoundError:
            # The archive was moved, and a catalog in it still has the old address. Others may know the table better.
            if self._config.catalog is None and not self._config.properties:
                return True
            raise

    def _load(self) -> Catalog:
        if self._catalog is None:
            given = dict(self._config.properties)
            if self._config.catalog is None and not given.keys() & {"type", "uri"}:
                folder = self._layout.table_folder(CATALOG)
                if isinstance(folder, ObjectPath):
                    raise TableError("an object store cannot hold its catalog: name one with --catalog or --property")
                folder.mkdir(parents=True, exist_ok=True)
                own = {"type": "sql", "uri": f"sqlite:///{folder / 'catalog.db'}", "warehouse": folder.as_uri()}
                given = {**own, **given}
            self._catalog = load(self._config.catalog or "streamd", given, self._layout.root)
        return self._catalog

    def _open(self) -> Table:
        """The table as it is now, made when it is missing."""
        if self._table is not None:
            return self._table.refresh()
        catalog = self._load()
        try:
            self._table = catalog.load_table(self._name)
        except NoSuchTableError:
            try:
                catalog.create_namespace(self._name[:-1])
            except Exception:
                # Somebody else was faster. A catalog in a database may say so with the database's own error.
                if not catalog.namespace_exists(self._name[:-1]):
                    raise
            with suppress(TableAlreadyExistsError):
                self._create(catalog)
            self._table = catalog.load_table(self._name)
        if not is_own(self._table, self._config):
            self._table = None
            raise TableError(f"its catalog has another table named {self._config.name}: give another --name")
        return self._table

    def _create(self, catalog: Catalog) -> None:
        schema = iceberg_schema(table_schema(self._config))
        # The files have no field IDs.
        names = {"schema.name-mapping.default": create_mapping_from_schema(schema).model_dump_json()}
        catalog.create_table(
            self._name,
            schema,
            self._location,
            partitions_of(schema, self._config),
            properties={**PROPERTIES, **names, **self._origin(), OWNER: self._config.id},
        )

    def _origin(self) -> dict[str, str]:
        return {ARCHIVE: self._layout.id, DEFINITION: json.dumps(self._config.definition, sort_keys=True)}

    @property
    def _location(self) -> str:
        return uri_of(self._layout.table_folder(self._config.label))

    @property
    def _metadata(self) -> Place:
        return self._layout.table_folder(self._config.label) / "metadata"

    # --- Files

    def _named(self, table: Table, stream: str) -> dict[str, DataFile]:
        """The files that the table names of a stream, by their address."""
        column = self._config.column("stream")
        is_of_stream = EqualTo(column, key_text(stream))  # type: ignore[call-arg, arg-type]  # as pyiceberg's manual has it
        found = table.scan(row_filter=is_of_stream).plan_files()
        return {task.file.file_path: task.file for task in found}

    def _data_file(self, table: Table, stream: str, uri: str, file: FileRecord) -> DataFile:
        day = day_of(file.path)
        low, high = bounds_of(table.schema(), file, self._config)
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=uri,
            file_format=FileFormat.PARQUET,
            partition=Record(key_text(stream), None if day is None else (date.fromisoformat(day) - EPOCH).days),
            record_count=file.rows,
            file_size_in_bytes=file.size,
            column_sizes={},
            value_counts={},
            null_value_counts={},
            nan_value_counts={},
            lower_bounds=low,
            upper_bounds=high,
            spec_id=table.spec().spec_id,
        )

    # --- Expiry

    def _expire(self, table: Table, snapshots: Iterable[Snapshot]) -> None:
        """Expire snapshots, and remove the metadata files that only expired ones name, when no reader needs them."""
        ids = [each.snapshot_id for each in snapshots]
        if not ids:
            return
        # Somebody else may expire them, or commit, at the same time.
        try:
            table.maintenance.expire_snapshots().by_ids(ids).commit()
        except CommitFailedException:
            table.refresh()
            left = {each.snapshot_id for each in table.snapshots()}
            if ids := [each for each in ids if each in left]:
                table.maintenance.expire_snapshots().by_ids(ids).commit()
        self._remove_metadata(table)

    def _remove_metadata(self, table: Table) -> None:
        found = files_below(self._metadata)
        until = time.time() - READERS_MS / 1000
        old = [each for each in found if each.name.endswith(".avro") and each.stat().st_mtime < until]
        if not old:
            return
        named = set()
        for snapshot in table.refresh().snapshots():
            named.add(snapshot.manifest_list)
            named.update(each.manifest_path for each in snapshot.manifests(table.io))
        names = {path.rpartition("/")[2] for path in named}
        disk = disk_for(self._layout.root)
        for path in old:
            if path.name not in names:
                disk.remove(path)


def uri_of(path: Place) -> str:
    """As Iceberg has it: names are not percent-encoded, and what lies in Azure is addressed as in its Data Lake."""
    if not isinstance(path, ObjectPath):
        return f"file://{path}"
    # Without the account, which pyiceberg's PyArrowFileIO would take for a part of the container's name.
    return f"abfss{str(path).removeprefix('az')}" if path.scheme == "az" else str(path)


def is_own(table: Table, config: TableConfig) -> bool:
    return table.properties.get(OWNER, "") == config.id


def types_of(schema: Schema) -> dict[str, IcebergType]:
    """The columns and their types; not those of a list, which catalogs number."""
    return {each.name: each.field_type for each in schema.fields if not isinstance(each.field_type, ListType)}


def iceberg_schema(columns: pa.Schema) -> Schema:
    """The columns in Iceberg's types, numbered as a catalog numbers those of a new table, for the name mapping."""
    found = []
    for number, each in enumerate(columns, 1):
        kind = FIELDS if each.name == "fields" and pa.types.is_list(each.type) else iceberg_type(each.type)
        found.append(NestedField(number, each.name, kind, required=False))
    return Schema(*found)


SINGLE: dict[pa.DataType, PrimitiveType] = {
    pa.string(): StringType(),
    pa.binary(): BinaryType(),
    pa.bool_(): BooleanType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.float32(): FloatType(),
    pa.float64(): DoubleType(),
    pa.date32(): DateType(),
    pa.timestamp("us", "UTC"): TimestamptzType(),
    pa.timestamp("us"): TimestampType(),
}


def iceberg_type(kind: pa.DataType) -> PrimitiveType:
    return DecimalType(kind.precision, kind.scale) if pa.types.is_decimal(kind) else SINGLE[kind]


def partitions_of(schema: Schema, config: TableConfig) -> PartitionSpec:
    columns = [schema.find_field(config.column(name)) for name in ("stream", "date")]
    return PartitionSpec(
        *(PartitionField(each.field_id, 1000 + at, IdentityTransform(), each.name) for at, each in enumerate(columns))
    )


def bounds_of(schema: Schema, file: FileRecord, config: TableConfig) -> tuple[dict[int, bytes], dict[int, bytes]]:
    """What lets readers skip a file."""
    found: dict[str, tuple[Any, Any]] = {}
    if (ms := ms_bounds(file)) is not None:
        found["ms"] = ms
        if ms[1] < 1 << 53:  # what `time` holds in microseconds, in any case
            found["time"] = (ms[0] * 1000, ms[1] * 1000)
    if (ids := id_bounds(file)) is not None:
        found["id"] = ids
    low, high = {}, {}
    for name, bounds in found.items():
        column = schema.find_field(config.column(name))
        kind = cast(PrimitiveType, column.field_type)
        low[column.field_id], high[column.field_id] = (to_bytes(kind, each) for each in bounds)
    return low, high
