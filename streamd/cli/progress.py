"""How far the reading of a file, or of entries, is, on a terminal, where rich is installed (of the extra `archive`); else nothing is shown."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["bar"]


@contextmanager
def bar(name: str, total: int, *, unit: str = "bytes") -> Iterator[Callable[[int], None]]:
    """A callback for the number of bytes, or whatever `unit` says, read so far."""
    if not sys.stderr.isatty():
        yield lambda done: None
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
        yield lambda done: None
        return
    sizes = (DownloadColumn(), TransferSpeedColumn()) if unit == "bytes" else (MofNCompleteColumn(), TextColumn(unit))
    with Progress(
        TextColumn("{task.description}"), BarColumn(), *sizes, TimeRemainingColumn(),
        console=Console(stderr=True), transient=True,
    ) as progress:  # fmt: skip
        task = progress.add_task(name, total=total)
        yield lambda done: progress.update(task, completed=done)
