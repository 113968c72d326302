"""The files that open tables name.

    TableFiles      those of the archive: a plain table takes no space
    DerivedFiles    a typed table's own, one for each file of the archive, in the table's folder:

        data/stream=<name>/date=<day>/<run>-<n>.parquet
        _tables/<label>/data/stream=<name>/date=<day>/<run>-<n>.<table>.parquet      Iceberg
        _tables/<label>/stream=<name>/date=<day>/<run>-<n>.<table>.parquet           Delta

A derived file follows from its source and the table's columns, and appears complete, under a name that is never replaced.
So it does not matter who makes it, or how often that was begun: whoever needs one takes the one that is there. `<table>` is a
hash of the columns and of what tells the table from others of its name, so that what is removed late is never a later table's.
Three things remove them:

    forget       those of sources that were replaced, once no snapshot names them: just before the sources themselves
    sweep        those that no table will name: of columns that the table had before, or made by somebody who was killed, or was late, for a source that was replaced
                 meanwhile. As with the archive's own files, an archiver removes only what it has noted while the lock was its
                 own (manifest.py), and what follows from no file that counts, nor from one that was replaced and is still there.
    remove_all   those of a table that is being dropped, from which nothing else would ever remove deleted entries
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pyarrow as pa
import pyarrow.parquet as pq

from streamd.archive.layout import Layout, folder_name
from streamd.archive.manifest import FileRecord
from streamd.archive.manifest_log import ManifestLog
from streamd.archive.open_format import TableConfig
from streamd.archive.parquet import COMPRESSION_LEVEL, ENCODINGS, ROW_GROUP, open_parquet, read_rows
from streamd.archive.published_columns import RejectsCaster, readable, stored_schema, typed_layout
from streamd.archive.staging_folder import staged
from streamd.archive.store import Place, files_below
from streamd.arrow.recast import RowCaster
from streamd.client.key_names import stream_key
from streamd.client.points import MAX_ID
from streamd.disk import Disk

__all__ = ["DerivedFiles", "Progress", "TableFiles", "files_of"]

REVISION = 1
"""Of the way in which files are derived; part of their names."""

ATTEMPTS = 20
"""How often a file is started again because an archiver's clean-up has removed it half written."""

Progress = Callable[[int], None]
"""Called with a number of rows that have been derived."""


def no_progress(rows: int) -> None:
    """For work whose progress nobody watches."""


class TableFiles:
    """Which files a table names: the archive's own, which archivers remove. All paths are relative to the archive's root.

    folder    where they lie, in folders by stream and date
    revision  the end of their names, which changes with the columns of the table; empty for the archive's own
    """

    revision = ""

    def __init__(self, layout: Layout) -> None:
        self.folder = layout.root / "data"

    def path_of(self, source: str) -> str:
        """The path of the file for one of the archive's."""
        return source

    def make(self, stream: str, source: FileRecord) -> FileRecord:
        """The file for one of the archive's, made unless it is there."""
        return source

    def lying(self, stream: str) -> list[Place]:
        """The derived files of a stream, named or not."""
        return []

    def forget(self, log: ManifestLog, moment_ms: int) -> None:
        """Remove what was derived from files that were replaced up to this moment (the server's Unix ms)."""

    def sweep(self, log: ManifestLog, noted: Iterable[Place]) -> None:
        """Remove those of the noted files that no table names, nor will name."""

    def remove_all(self, stream: str) -> None:
        """Remove the derived files of a stream, of this very table."""


class DerivedFiles(TableFiles):
    """The files of a typed table."""

    def __init__(self, layout: Layout, config: TableConfig, disk: Disk, progress: Progress | None = None) -> None:
        super().__init__(layout)
        self.folder = layout.table_folder(config.label)
        if config.format == "iceberg":
            self.folder = self.folder / "data"
        self._layout = layout
        self._config = config
        self._disk = disk
        self._progress = progress or no_progress
        self._table = typed_layout(config)
        self._stored = stored_schema(config)
        about = f"{REVISION}\n{config.format}\n{config.prefix}\n{config.schema}\n{config.id}"
        if config.rows != "all":
            about += f"\n{config.rows}"
        self.revision = f".{hashlib.sha256(about.encode()).hexdigest()[:8]}.parquet"

    def path_of(self, source: str) -> str:
        day = PurePosixPath(source).parent
        folder = f"{self._layout.relative(self.folder)}/{self._prefixed(day.parent.name)}/{self._prefixed(day.name)}"
        return f"{folder}/{PurePosixPath(source).stem}{self.revision}"

    def _prefixed(self, folder: str) -> str:
        """Readers that take partitions from the names of folders look for the columns' names there."""
        return self._config.prefix + folder

    def make(self, stream: str, source: FileRecord) -> FileRecord:
        path = self.path_of(source.path)
        target = self._layout.root / path
        for _ in range(ATTEMPTS):
            if not target.exists():
                try:
                    self._write(stream, source, target)
                except FileExistsError:
                    continue  # somebody else was faster
                except FileNotFoundError:
                    continue  # somebody has cleaned up
            self._disk.sync_directory(target.parent)
            made = replace(source, path=path, size=target.stat().st_size, row_groups=(), sha256="")
            if self._config.rows == "all":
                return made
            with open_parquet(target) as file:
                return replace(made, rows=file.metadata.num_rows)
        raise FileNotFoundError(2, "it was removed again and again while it was written", str(target))

    def _write(self, stream: str, source: FileRecord, target: Place) -> None:
        folder = self._layout.staging(stream, f"table-{uuid.uuid4().hex}")
        with staged(self._layout.root, folder, self._disk) as staging:
            self._disk.make_directories(staging)
            temporary = staging / "file.parquet"
            encodings = {self._config.column(name): encoding for name, encoding in ENCODINGS.items()}
            write_file(temporary, self._stored, encodings, self._rows(stream, source))
            self._disk.sync_file(temporary)
            self._disk.make_directories(target.parent)
            self._disk.publish(temporary, target)

    def _rows(self, stream: str, source: FileRecord) -> Iterator[pa.RecordBatch]:
        key = stream_key(stream)
        caster: RowCaster | RejectsCaster = RowCaster(self._table, key)
        if self._config.rows == "rejects":
            caster = RejectsCaster(self._config, key, key.decode(errors="backslashreplace"))
        for batch in read_rows(self._layout.root, source, 0, MAX_ID, ("id", "fields")):
            yield readable(caster.cast(batch.column("id"), batch.column("fields"))).cast(self._stored)
            self._progress(batch.num_rows)

    def lying(self, stream: str) -> list[Place]:
        return list(files_below(self.folder / self._prefixed(f"stream={folder_name(stream)}")))

    def forget(self, log: ManifestLog, moment_ms: int) -> None:
        gone = {self.path_of(path) for path, moment in log.replaced.items() if moment <= moment_ms}
        if gone:
            self._remove(each for each in self.lying(log.stream) if self._layout.relative(each) in gone)

    def sweep(self, log: ManifestLog, noted: Iterable[Place]) -> None:
        named = {self.path_of(file.path) for file in log.files}
        waiting = {self.path_of(path): path for path in log.replaced}
        for each in noted:
            path = self._layout.relative(each)
            if path in named or (path in waiting and (self._layout.root / waiting[path]).exists()):
                continue
            self._remove([each])

    def remove_all(self, stream: str) -> None:
        self._remove(each for each in self.lying(stream) if each.name.endswith(self.revision))

    def _remove(self, files: Iterable[Place]) -> None:
        for each in files:
            self._disk.remove(each)


def write_file(path: Path, schema: pa.Schema, encodings: Mapping[str, str], batches: Iterable[pa.RecordBatch]) -> None:
    """Write a Parquet file, in row groups like those of the archive.

    encodings  of columns that need no dictionary
    """
    with pq.ParquetWriter(
        path, schema, compression="zstd", compression_level=COMPRESSION_LEVEL, store_decimal_as_integer=True,
        use_dictionary=[name for name in schema.names if name not in encodings], column_encoding=dict(encodings),
    ) as writer:  # fmt: skip
        for table in grouped(batches, schema):
            writer.write_table(table, row_group_size=table.num_rows)


def grouped(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(each.num_rows for each in waiting) >= ROW_GROUP:
            yield pa.Table.from_batches(waiting, schema)
            waiting = []
    if any(each.num_rows for each in waiting):
        yield pa.Table.from_batches(waiting, schema)


def files_of(layout: Layout, config: TableConfig, disk: Disk, progress: Progress | None = None) -> TableFiles:
    if config.schema is None:
        return TableFiles(layout)
    return DerivedFiles(layout, config, disk, progress)
