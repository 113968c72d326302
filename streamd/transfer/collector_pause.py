"""Pauses Python's cyclic collector for tasks.

It would run during reading and writing, triggered by thousands of short-lived objects, none of them part of a cycle, and
take a third of the time. And PySpark's workers run a full collection after every task: some 15 ms of traversing what
PySpark and PyArrow have imported.

    with collector_paused():          no collections while the block runs
    yield from made_paused(batches)   none while an item is produced; the consumer's code runs with the collector as it was
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from typing import TypeVar

__all__ = ["CollectorPause", "collector_paused", "made_paused"]

T = TypeVar("T")


class CollectorPause:
    """Pauses of this process's collector: it is off during any of them, however they nest and overlap, and afterwards as it
    was before the first. Thread-safe.

    is_task  whether the process is running a task of Spark: then what exists at the first pause is also frozen for
             good, cyclic garbage included, so that collections traverse only what was created later
    """

    def __init__(self, is_task: Callable[[], bool]) -> None:
        self._is_task = is_task
        self._lock = threading.Lock()
        self._count = 0  # active pauses
        self._was_enabled = False  # before the first of them
        self._is_frozen = False  # what the process had is frozen

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """No collections inside."""
        with self._lock:
            if not self._is_frozen and self._is_task():
                gc.freeze()
                self._is_frozen = True
            if self._count == 0:
                self._was_enabled = gc.isenabled()
                gc.disable()
            self._count += 1
        try:
            yield
        finally:
            with self._lock:
                self._count -= 1
                if self._count == 0 and self._was_enabled:
                    gc.enable()


def _is_spark_task() -> bool:
    """Whether this is a worker of Spark that runs a task. Tasks have imported PySpark; other processes may not have it."""
    module = sys.modules.get("pyspark.taskcontext")
    return module is not None and module.TaskContext.get() is not None


collector_paused = CollectorPause(_is_spark_task)
"""The pauses of this process: it has one collector."""


def made_paused(items: Generator[T]) -> Generator[T]:
    """The items of a generator, each produced in a pause that ends before it is yielded. Closes the generator."""
    with closing(items):
        while True:
            with collector_paused():
                try:
                    item = next(items)
                except StopIteration:
                    return
            yield item
