"""The engine that copies by a Spark job: read with format("streamd"), written by the tasks through a data source of its own.

Spark's own Parquet writer is not used: it would sort the rows by date once more, does not report which files an attempt has
written, and leaves those of failed attempts behind. Here each attempt of a task writes files under names of its own and
reports them; what Spark considers committed is listed in `result.json`, and nothing else counts.

Where the files go depends on the archive:

    in a folder         to the run's staging folder, which all machines see; they get their final names later
    in an object store  to the data folder at once, as there is no rename: their names have the run's and the attempt's in
                        them, no manifest names them yet, and the next run removes those that none will

Executors find the store and its credentials by their environment (see store.py): Spark shows options, which are no place for
secrets. `result.json` is in the staging folder in either case, on the machine of the driver.
"""

from __future__ import annotations

import json
import re
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from streamd.archive.archive_errors import ArchiveError
from streamd.archive.layout import Layout
from streamd.archive.manifest import FileRecord
from streamd.archive.object_disk import disk_for
from streamd.archive.parquet import COLUMNS, ROWS_PER_FILE, DatedFile, write_files
from streamd.archive.staging import Progress, engine_options
from streamd.archive.store import ObjectPath, parse_place
from streamd.client.points import format_entry_id
from streamd.disk import Disk
from streamd.spark.spark_errors import told_in_one_line

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = ["SparkEngine", "StagingSource"]

RESULT = "result.json"
TASKS_ERROR = re.compile(r"^streamd\.[\w.]+: (.+)", re.MULTILINE)


class SparkEngine:
    """Copies by a Spark job, whose tasks must see the archive's folder under the same path, or may write to its store.

    options  those of format("streamd") that say where the server is, and minPartitions and the like
    """

    def __init__(self, spark: SparkSession, options: Mapping[str, str], *, rows_per_file: int = ROWS_PER_FILE) -> None:
        from streamd.spark.session import register

        self._spark = spark
        self._options = engine_options(options)
        self._rows_per_file = rows_per_file
        register(spark)
        spark.dataSource.register(StagingSource)

    def copy(
        self, stream: str, low: int, high: int, folder: Path, layout: Layout, progress: Progress
    ) -> list[DatedFile]:
        reader = self._spark.read.format("streamd").options(**self._options)
        entries = (
            reader.option("stream", stream)
            .option("startingId", format_entry_id(low))
            .option("endingId", format_entry_id(high))
            .load()
            .select(*COLUMNS)
        )
        data = layout.data(stream)
        options = {"folder": str(folder), "rowsPerFile": str(self._rows_per_file)}
        if isinstance(data, ObjectPath):
            options["data"] = str(data)
        with watched(self._spark, progress), tasks_errors_in_one_line():
            entries.write.format(StagingSource.name()).mode("append").options(**options).save()
        try:
            found = json.loads((folder / RESULT).read_bytes())
        except FileNotFoundError:
            raise ArchiveError(
                f"{folder} is not there: Spark's driver and this process must share the folder"
            ) from None
        files = []
        for day, json_record in found:
            record = FileRecord.from_json(json_record)
            where = layout.relative(data / record.path) if isinstance(data, ObjectPath) else str(folder / record.path)
            files.append(DatedFile(day, replace(record, path=where)))
        return sorted(files, key=lambda file: file.record.first)


@contextmanager
def tasks_errors_in_one_line() -> Iterator[None]:
    """Raises ArchiveError for a job that fails by a StreamdError of its tasks: Spark's own has the stacks of all attempts."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        said = TASKS_ERROR.search(str(error))
        if said is None:
            raise
        raise ArchiveError(f"Spark's tasks: {said[1]}") from error


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
    """What one task has written: date and record of each file, as JSON; paths are below the folder."""

    files: list[tuple[str, dict[str, Any]]]


class StagingSource(DataSource):
    """Writes record batches to files of the archive. Options: `folder`, `rowsPerFile`; `data`: see StagingWriter."""

    @classmethod
    def name(cls) -> str:
        return "streamd_archive_staging"

    def writer(self, schema: StructType, overwrite: bool) -> StagingWriter:
        if overwrite:
            raise ArchiveError("files of an archive are not overwritten")
        rows_per_file = int(self.options.get("rowsPerFile", ROWS_PER_FILE))
        return StagingWriter(str(self.options["folder"]), self.options.get("data"), rows_per_file)


class StagingWriter(DataSourceArrowWriter):
    """Writes the files of a run.

    folder  the run's staging folder
    data    the address of the stream's data folder in an object store, which files are written to; None: to `folder`
    """

    def __init__(self, folder: str, data: str | None, rows_per_file: int) -> None:
        self.folder = folder
        self.data = data
        self.rows_per_file = rows_per_file

    @told_in_one_line()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        target = parse_place(self.data or self.folder)
        prefix = uuid.uuid4().hex  # of this attempt; others of the same task may be running
        if self.data is not None:
            prefix = f"{Path(self.folder).name}-{prefix}"
        written = []
        try:
            for file in write_files(iterator, target, prefix, disk_for(target), rows_per_file=self.rows_per_file):
                record = replace(file.record, path=file.record.path.removeprefix(f"{target}/"))
                written.append((file.day, record.to_json()))
        except OSError as error:
            raise ArchiveError(f"nothing can be written to {target}: {error}") from error
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
