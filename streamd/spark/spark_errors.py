"""The errors of Spark's part, and how those of its tasks reach the user.

StreamdError
 +- JavaMissingError  there is no Java that Spark can use; says how to install one
 +- WorkerPythonError the Python that Spark runs cannot load streamd; says what to set
 +- VersionError      something that this PySpark is too old for
 +- OffsetError       an offset in a checkpoint that this version does not understand (source/offsets.py)
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from streamd.errors import StreamdError

__all__ = ["JavaMissingError", "VersionError", "WorkerPythonError", "told_in_one_line"]


class VersionError(StreamdError):
    """What needs PySpark 4.2 or newer: there a source is told where a batch begins and how much it may read."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def __str__(self) -> str:
        return f"{self.what} need PySpark 4.2 or newer"


class JavaMissingError(StreamdError):
    """There is no Java that Spark can use."""


class WorkerPythonError(StreamdError):
    """The Python that Spark runs for data sources cannot load this one."""


@contextmanager
def told_in_one_line() -> Iterator[None]:
    """Around what Spark calls in processes of its own: a StreamdError reaches the user without the stack of that process.

    These errors are about options, servers and data, not about code, and Spark puts the stack before the message. The
    process ends after any exception, so the variable, which Spark reads when it reports one, concerns nothing else.
    """
    try:
        yield
    except StreamdError:
        main = getattr(sys.modules["__main__"], "__spec__", None)
        if main is not None and main.name.startswith("pyspark."):
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise
