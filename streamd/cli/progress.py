"""How far the reading of a file is, on a terminal, where rich is installed (of the extra `archive`); else nothing is shown."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["bar"]


@contextmanager
def bar(name: str, total_bytes: int) -> Iterator[Callable[[int], None]]:
    """A callback for the number of bytes read so far."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    try:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )
    except ImportError:
        yield lambda done: None
        return
    with Progress(
        TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn(),
        console=Console(stderr=True), transient=True,
    ) as progress:  # fmt: skip
        task = progress.add_task(name, total=total_bytes)
        yield lambda done: progress.update(task, completed=done)
