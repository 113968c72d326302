"""Python's cyclic collector, kept out of the way of tasks.

It would run in the middle of reading and writing, made to by thousands of short-lived objects of which none is part of a
cycle: a third of the time. And PySpark's workers run a full collection after every task: some 15 ms of looking through what
PySpark and PyArrow have imported.

    with collector_paused():          no collections while the block runs
    yield from made_paused(batches)   none while an item is made; whoever takes the items has the collector as it was
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
    """Pauses of this process's collector: it is off while there is one, however they nest and overlap, and afterwards as it
    was before the first. Of use to several threads.

    is_task  whether the process runs a task of Spark just now: then what it has by the first pause is also set aside for
             good, garbage in cycles included, so that collections look at what came later
    """

    def __init__(self, is_task: Callable[[], bool]) -> None:
        self._is_task = is_task
        self._lock = threading.Lock()
        self._count = 0  # pauses that last
        self._was_enabled = False  # before the first of them
        self._is_frozen = False  # what the process had is set aside

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
    """Whether this is a worker of Spark that runs a task. Tasks have imported PySpark; others need not."""
    module = sys.modules.get("pyspark.taskcontext")
    return module is not None and module.TaskContext.get() is not None


collector_paused = CollectorPause(_is_spark_task)
"""The pauses of this process: it has one collector."""


def made_paused(items: Generator[T]) -> Generator[T]:
    """The items of a generator, each made in a pause that ends before it is given out. Closes the generator."""
    with closing(items):
        while True:
            with collector_paused():
                try:
                    item = next(items)
                except StopIteration:
                    return
            yield item
