"""How an archiver writes entries of a stream to files: an engine copies a range to a staging folder.

LocalEngine   in this process: for machines without Java, and for small streams
SparkEngine   by a Spark job (spark_engine.py)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from streamd.disk import Disk
from streamd.spark.archive.layout import Layout
from streamd.spark.archive.live_stream import read_entries
from streamd.spark.archive.parquet import COLUMNS, ROWS_PER_FILE, DatedFile, write_files
from streamd.spark.arrow.entry_table import default_table
from streamd.spark.wire.options import ConnectionOptions

__all__ = ["Engine", "LocalEngine", "Progress"]

Progress = Callable[[int, int], None]
"""Called with the parts done and the number of parts; all parts take about equally long."""


class Engine(Protocol):
    def copy(
        self, stream: str, low: int, high: int, folder: Path, layout: Layout, progress: Progress
    ) -> list[DatedFile]:
        """Write the entries with IDs in [low, high] to files; return them in the order of their IDs.

        folder  where files go, a staging folder that is named after the run
        layout  of the archive, which the files may be written into at once if it lies in an object store
        """
        ...


class LocalEngine:
    """Copies in this process, over a connection of its own."""

    def __init__(self, options: Mapping[str, str], disk: Disk, *, rows_per_file: int = ROWS_PER_FILE) -> None:
        self._options = ConnectionOptions.parse(options)
        self._disk = disk
        self._rows_per_file = rows_per_file

    def copy(
        self, stream: str, low: int, high: int, folder: Path, layout: Layout, progress: Progress
    ) -> list[DatedFile]:
        batches = read_entries(self._options, stream, low, high, default_table(*COLUMNS))
        files = list(write_files(batches, folder, "part", self._disk, rows_per_file=self._rows_per_file))
        progress(1, 1)
        return files
