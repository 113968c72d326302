"""Python's cyclic collector, kept out of the way of tasks.

It would run in the middle of reading and writing, made to by thousands of short-lived objects of which none is part of a
cycle: a third of the time. And PySpark's workers run a full collection after every task: some 15 ms of looking through what
PySpark and PyArrow have imported.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["collector_paused"]

_frozen: list[bool] = []  # not empty once this process's imports are set aside


@contextmanager
def collector_paused() -> Iterator[None]:
    """No collections inside. In a task of Spark, what the process has by then is also set aside for good, garbage in cycles
    included: collections from then on look at what came later."""
    if not _frozen and _is_task():
        gc.freeze()
        _frozen.append(True)
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _is_task() -> bool:
    """Whether this is a worker of Spark that runs a task. Tasks have imported PySpark; others need not."""
    module = sys.modules.get("pyspark.taskcontext")
    return module is not None and module.TaskContext.get() is not None
