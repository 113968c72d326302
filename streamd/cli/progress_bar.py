"""How far the reading of a file, or of entries, is, on a terminal, where rich is installed (of the extra `archive`).

Elsewhere nothing is shown, nor for what takes less than a second.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from streamd.printable import key_in_one_line

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Update", "bar", "counted"]

SHOWN_AFTER_S = 1.0


class Update(Protocol):
    def __call__(self, done: int, total: int | None = None, /) -> None:
        """So much is done; the total, once it is known."""


def nothing(done: int, total: int | None = None, /) -> None:
    """Where nothing is shown."""


@contextmanager
def bar(name: str, total: int | None, *, unit: str = "bytes", is_wanted: bool = True) -> Iterator[Update]:
    """A callback for the number of bytes, or whatever `unit` says, read so far; a total of None is not known."""
    if not is_wanted or not sys.stderr.isatty():
        yield nothing
        return
    try:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )
    except ImportError:
        yield nothing
        return
    sizes = (DownloadColumn(), TransferSpeedColumn()) if unit == "bytes" else (MofNCompleteColumn(), TextColumn(unit))
    progress = Progress(
        TextColumn("{task.description}", markup=False), BarColumn(), *sizes, TimeRemainingColumn(),
        console=Console(stderr=True), transient=True,
    )  # fmt: skip
    task = progress.add_task(key_in_one_line(name), total=total)
    shown_at = time.monotonic() + SHOWN_AFTER_S
    is_shown = False

    def update(done: int, total: int | None = None, /) -> None:
        nonlocal is_shown
        if not is_shown and time.monotonic() >= shown_at:
            progress.start()
            is_shown = True
        progress.update(task, completed=done, total=total)  # None: as it was

    try:
        yield update
    finally:
        progress.stop()


def counted(batches: Iterable[pa.RecordBatch], progress: Callable[[int], None]) -> Iterator[pa.RecordBatch]:
    """The batches; `progress` is told how many rows there were."""
    rows = 0
    for batch in batches:
        yield batch
        rows += batch.num_rows
        progress(rows)
