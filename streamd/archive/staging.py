"""How an archiver writes entries of a stream to files: an engine copies a range to a staging folder.

LocalEngine   in this process: for machines without Java, and for small streams
SparkEngine   by a Spark job (spark/archive_engine.py)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from streamd.archive.layout import Layout
from streamd.archive.live_stream import read_entries
from streamd.archive.parquet import COLUMNS, ROWS_PER_FILE, DatedFile, write_files
from streamd.arrow.entry_table import default_table
from streamd.client.options import ConnectionOptions
from streamd.disk import Disk

__all__ = ["Engine", "LocalEngine", "Progress", "engine_options"]

Progress = Callable[[int, int], None]
"""Called with the parts done and the number of parts; all parts take about equally long."""


SELECTION = frozenset({"stream", "streams", "streampattern", "archive"})


def engine_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options without those that select streams: the engine is given one stream at a time."""
    return {name: value for name, value in options.items() if name.lower() not in SELECTION}


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
