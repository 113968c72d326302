"""The engine that copies by a Spark job: read with format("streamd"), written by the tasks through a data source of its own.

Spark's own Parquet writer is not used: it would sort the rows by date once more, does not report which files an attempt has
written, and leaves those of failed attempts behind. Here each attempt of a task writes files under names of its own and
reports them; what Spark considers committed is listed in `result.json`, and nothing else counts.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from streamd.disk import Disk
from streamd.spark.archive.errors import ArchiveError
from streamd.spark.archive.manifest import FileRecord
from streamd.spark.archive.parquet import COLUMNS, ROWS_PER_FILE, DatedFile, placed, write_files
from streamd.spark.archive.staging import Progress
from streamd.spark.wire.ids import format_entry_id

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = ["SparkEngine", "StagingSource"]

RESULT = "result.json"


class SparkEngine:
    """Copies by a Spark job, whose tasks must see the archive's folder under the same path.

    options  those of format("streamd") that say where the server is, and minPartitions and the like
    """

    def __init__(self, spark: SparkSession, options: Mapping[str, str], *, rows_per_file: int = ROWS_PER_FILE) -> None:
        from streamd.spark.session import register

        self._spark = spark
        self._options = dict(options)
        self._rows_per_file = rows_per_file
        register(spark)
        spark.dataSource.register(StagingSource)

    def copy(self, stream: str, low: int, high: int, folder: Path, progress: Progress) -> list[DatedFile]:
        reader = self._spark.read.format("streamd").options(**self._options)
        entries = (
            reader.option("stream", stream)
            .option("startingId", format_entry_id(low))
            .option("endingId", format_entry_id(high))
            .load()
            .select(*COLUMNS)
        )
        writer = entries.write.format(StagingSource.name()).mode("append")
        with watched(self._spark, progress):
            writer.option("folder", str(folder)).option("rowsPerFile", str(self._rows_per_file)).save()
        try:
            found = json.loads((folder / RESULT).read_bytes())
        except FileNotFoundError:
            raise ArchiveError(
                f"{folder} is not there: Spark's driver and this process must share the folder"
            ) from None
        files = [DatedFile(day, FileRecord.from_json(record)) for day, record in found]
        return sorted(with_folder(files, folder), key=lambda file: file.record.first)


def with_folder(files: list[DatedFile], folder: Path) -> Iterator[DatedFile]:
    for file in files:
        yield DatedFile(file.day, placed(file, str(folder / file.record.path)))


@contextmanager
def watched(spark: SparkSession, progress: Progress) -> Iterator[None]:
    """Report the job's tasks while it runs."""
    context = spark.sparkContext
    group, done = f"streamd-archive-{uuid.uuid4().hex}", threading.Event()
    tracker = context.statusTracker()

    def watch() -> None:
        while not done.wait(0.5):
            infos = [
                tracker.getStageInfo(stage)
                for job in tracker.getJobIdsForGroup(group)
                for stage in (getattr(tracker.getJobInfo(job), "stageIds", None) or ())
            ]
            progress(
                sum(each.numCompletedTasks for each in infos if each), sum(each.numTasks for each in infos if each)
            )

    names = ("spark.jobGroup.id", "spark.job.description")
    before = {name: context.getLocalProperty(name) for name in names}
    context.setJobGroup(group, "archive")
    watcher = threading.Thread(target=watch, name="archive progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
        for name, value in before.items():
            context.setLocalProperty(name, value)  # type: ignore[arg-type]  # None removes it


# --- The data source that the tasks write through -------------------------------------------------------------------------


@dataclass
class Written(WriterCommitMessage):
    """What one task has written: date and record of each file, as JSON; paths are names in the folder."""

    files: list[tuple[str, dict[str, Any]]]


class StagingSource(DataSource):
    """Writes record batches to files of the archive. Options: `folder`, `rowsPerFile`."""

    @classmethod
    def name(cls) -> str:
        return "streamd_archive_staging"

    def writer(self, schema: StructType, overwrite: bool) -> StagingWriter:
        if overwrite:
            raise ArchiveError("files of an archive are not overwritten")
        return StagingWriter(str(self.options["folder"]), int(self.options.get("rowsPerFile", ROWS_PER_FILE)))


class StagingWriter(DataSourceArrowWriter):
    def __init__(self, folder: str, rows_per_file: int) -> None:
        self.folder = folder
        self.rows_per_file = rows_per_file

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        import dataclasses

        folder = Path(self.folder)
        written = []
        prefix = uuid.uuid4().hex  # of this attempt; others of the same task may be running
        for file in write_files(iterator, folder, prefix, Disk(), rows_per_file=self.rows_per_file):
            record = dataclasses.replace(file.record, path=Path(file.record.path).name)
            written.append((file.day, record.to_json()))
        return Written(written)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        files = [file for message in messages if isinstance(message, Written) for file in message.files]
        folder, disk = Path(self.folder), Disk()
        disk.make_directories(folder)
        temporary = folder / f"{RESULT}.new"
        temporary.unlink(missing_ok=True)
        disk.write_new(temporary, json.dumps(files).encode())
        disk.rename(temporary, folder / RESULT)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing to do: files that no result names are removed with the staging folder."""
