"""What the Spark tests share besides their fixtures."""

from __future__ import annotations

import importlib
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from ..servers import eventually, python_environment

__all__ = [
    "HAS_LIMITS",
    "ON_BOTH",
    "QUERIES",
    "batches_planned",
    "random_source",
    "session_of_its_own",
    "wait_for_batches",
]

ON_BOTH = pytest.mark.parametrize(
    "server", ["streamd", pytest.param("redis", marks=pytest.mark.real(since="7.0"))], indirect=True
)
"""The test runs once with streamd and once with a real Redis."""


try:
    importlib.import_module("pyspark.sql.streaming.datasource")
    HAS_LIMITS = True
except ImportError:
    HAS_LIMITS = False

QUERIES = pytest.mark.skipif(not HAS_LIMITS, reason="queries that read streams need PySpark 4.2")


def random_source() -> random.Random:
    """A random source whose seed is shown when the test fails; STREAMD_TEST_SEED repeats it."""
    seed = int(os.environ.get("STREAMD_TEST_SEED") or random.randrange(2**32))
    print(f"STREAMD_TEST_SEED={seed}")
    return random.Random(seed)


def batches_planned(folder: Path) -> int:
    """The batches planned in the checkpoint."""
    offsets = folder / "checkpoint" / "offsets"
    numbers = (int(each.name) for each in offsets.glob("*") if each.name.isdigit())
    return max(numbers, default=-1) + 1


def wait_for_batches(folder: Path, count: int, timeout_s: float = 200) -> None:
    eventually(lambda: batches_planned(folder) >= count, timeout_s, f"batch {count}")


@contextmanager
def session_of_its_own(
    folder: Path, options: dict[str, str], *, is_final: bool, sink: dict[str, str] | None = None, **more: str
) -> Iterator[subprocess.Popen[bytes]]:
    """The query in another process; killed with all its children when the block ends. `more`: see spark_query.py."""
    job = {"folder": str(folder), "options": options, "is_final": is_final, "sink": sink, **more}
    env = python_environment()
    env["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[2]), env["PYTHONPATH"]])
    command = [sys.executable, "-m", "support.spark.query", json.dumps(job)]
    with (folder / "errors").open("ab") as errors:
        process = subprocess.Popen(command, env=env, stdout=errors, stderr=errors, start_new_session=True)
    try:
        yield process
        assert process.poll() in (None, 0), (folder / "errors").read_text()[-5000:]
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
