"""Archives under test: runs that are killed at a step, and what must hold after every one of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import redis

from streamd.archive.archiver import Archiver, ArchiveSettings, RunReport
from streamd.archive.background_merge import BackgroundMerges
from streamd.archive.full_history import plan_history, read_part
from streamd.archive.open_format import TableConfig
from streamd.client.archive_keys import key_beside
from streamd.disk import Disk
from streamd.spark.source.schema import DEFAULT_SCHEMA, table_layout
from streamd.transfer.read_options import SourceOptions

__all__ = [
    "KEY",
    "Killed",
    "archive_once",
    "expire_lock",
    "fill",
    "kill_at",
    "now_settings",
    "rows_of_history",
    "runs_killed_after",
    "sigkill_at",
]

KEY = "readings"


class Killed(BaseException):
    """The end of a process, as far as a test can simulate it: nothing may be cleaned up."""


def kill_at(step: str, before: Callable[[], None] = lambda: None) -> Callable[[str], None]:
    """A hook that ends the run when it reaches a step."""

    def hook(name: str) -> None:
        if name == step:
            before()
            raise Killed(step)

    return hook


def sigkill_at(step: str) -> Callable[[str], None]:
    """A hook that kills this process when it reaches a step."""

    def hook(name: str) -> None:
        if name == step:
            os.kill(os.getpid(), signal.SIGKILL)

    return hook


RUNS = """
import json, sys
from support.archives.runs import archive_once
from streamd.archive.open_format import TableConfig
configs = tuple(map(TableConfig.from_json, json.loads(sys.argv[3])))
print("ready", flush=True)
while True:
    archive_once(sys.argv[1], {"port": sys.argv[2]}, publish=configs, merge_files=2)
"""


@contextmanager
def runs_killed_after(
    seconds: float, path: Path, options: Mapping[str, str], configs: Iterable[TableConfig]
) -> Iterator[None]:
    """Archive again and again in a process of its own, which is killed some time after the block.

    configs  the open tables that are kept
    """
    described = json.dumps([asdict(each) for each in configs])
    command = [sys.executable, "-c", RUNS, str(path), options["port"], described]
    root = Path(__file__).parents[3]
    environment = {**os.environ, "PYTHONPATH": "tests:."}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, cwd=root) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield
        time.sleep(seconds)  # where it is killed is what is tried
        process.send_signal(signal.SIGKILL)


def now_settings(**changes: Any) -> ArchiveSettings:
    """Archive everything, trim it at once, and wait for others."""
    return ArchiveSettings(**{"hot_window_ms": 0, "trim_delay_ms": 0, "lock_wait_ms": 5000, **changes})


def expire_lock(store: redis.Redis) -> None:
    """Remove the lock of a run, as its expiry does."""
    store.delete(key_beside("lock", KEY))


def archive_once(
    path: object,
    options: Mapping[str, str],
    *,
    hook: Callable[[str], None] = lambda step: None,
    disk: Disk | None = None,
    merges: BackgroundMerges | None = None,
    **changes: Any,
) -> RunReport:
    """One run over the stream KEY; a round of a service if its merges are given."""
    given = {"stream": KEY, **options}
    return Archiver(str(path), given, now_settings(**changes), disk=disk, hook=hook, merges=merges).run()


def rows_of_history(
    path: object, options: Mapping[str, str], **more: str
) -> Iterator[tuple[str, list[tuple[bytes, bytes]]]]:
    """ID and fields of every entry, cold and hot, read without Spark, and without a lease unless `more` says so."""
    source = SourceOptions.parse({"stream": KEY, "archiveLease": "0", **options, "archive": str(path), **more})
    table = table_layout(DEFAULT_SCHEMA, source)
    for part in plan_history(source):
        for batch in read_part(source, table, part):
            for row in batch.select(["id", "fields"]).to_pylist():
                yield row["id"], [(pair["field"], pair["value"]) for pair in row["fields"]]


def fill(store: redis.Redis, count: int, *, start_ms: int = 1_700_000_000_000, step_ms: int = 40_000) -> list[str]:
    """Append entries from some days in 2023; return their IDs."""
    pipe = store.pipeline(transaction=False)
    for at in range(count):
        pipe.xadd(KEY, {"sensor": at % 7, "value": at}, id=f"{start_ms + at * step_ms}-{at % 3}")
    return [str(found.decode()) for found in pipe.execute()]
