"""A program for tests of archives in object stores, copied by Spark: the store is known by its environment only, as to a user's.

Each line of standard input is a job, JSON: `story` names a function below, `place` is where the archive goes, `options` say how
to reach the server. The answer is a line of JSON: null, or what failed.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import redis
from pyspark import TaskContext
from pyspark.sql.types import StructType

import streamd.spark
from streamd.archive.archiver import STEPS
from streamd.archive.delete import delete
from streamd.archive.layout import Layout
from streamd.archive.manifest_log import ManifestLog
from streamd.archive.verify import verify_archive
from streamd.client.points import parse_entry_id
from streamd.spark.archive_engine import SparkEngine, StagingSource, StagingWriter
from streamd.spark.session import CI_SETTINGS
from support.archives.runs import KEY, Killed, archive_once, expire_lock, fill, kill_at, rows_of_history

Options = dict[str, str]
AFTER_THE_COPY = STEPS[STEPS.index("staged") : STEPS.index("trimmed")]


class FailingWriter(StagingWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Any:
        written = super().write(iterator)
        context = TaskContext.get()
        if context is not None and (context.partitionId(), context.attemptNumber()) == (0, 0):
            raise RuntimeError("the first attempt")
        return written


class FailingSource(StagingSource):
    """Takes the place of the one that it is derived from, by its name; the first task fails once, when it has written all."""

    def writer(self, schema: StructType, overwrite: bool) -> StagingWriter:
        given = super().writer(schema, overwrite)
        return FailingWriter(given.folder, given.data, given.rows_per_file)


class Stories:
    def __init__(self, place: str, options: Options) -> None:
        self.place = place
        self.options = options
        self.layout = Layout(place)
        self.store = redis.Redis(port=int(options["port"]), protocol=2)
        self.spark = streamd.spark.session("archives", master="local[2,3]", config=CI_SETTINGS)
        self.engine = SparkEngine(self.spark, {**options, "minPartitions": "2"}, rows_per_file=1000)

    def archive(self, **more: Any) -> Any:
        report = archive_once(self.place, self.options, engine=self.engine, **more)
        assert report.is_success, report.to_json()
        return report

    def history(self) -> list[str]:
        return [entry_id for entry_id, _ in rows_of_history(self.place, self.options)]

    def check(self, produced: list[str]) -> None:
        assert self.history() == produced
        verdict = verify_archive(self.layout, KEY)
        assert (verdict.faults, verdict.strangers) == ([], [])

    # --- The stories

    def kills(self) -> None:
        """A run that is killed at any step after the copy leaves what the next one clears up, and loses nothing."""
        produced = fill(self.store, 100, step_ms=1000)
        self.archive()
        for number, step in enumerate(AFTER_THE_COPY, 1):
            produced += fill(self.store, 100, start_ms=1_700_000_000_000 + number * 10_000_000, step_ms=1000)
            try:
                self.archive(hook=kill_at(step))
                raise AssertionError(f"a run ended without the step {step}")
            except Killed:
                expire_lock(self.store)
            assert self.history() == produced, step
        self.archive(depth="content")
        self.check(produced)
        assert self.store.xlen(KEY) == 0

    def failing_tasks(self) -> None:
        """What an attempt leaves that Spark repeats is in no manifest, and the next run removes it."""
        produced = fill(self.store, 3000)
        self.spark.dataSource.register(FailingSource)
        report = self.archive().streams[0]
        assert report.rows == 3000
        assert report.files > 3, "two tasks, and files of a thousand rows"
        assert verify_archive(self.layout, KEY).strangers, "the first attempt of the first task has written files"
        assert self.history() == produced
        self.spark.dataSource.register(StagingSource)
        self.archive()
        self.check(produced)

    def reading(self) -> None:
        """Spark reads what is archived and what is live as one, after merges and a deletion, too."""
        produced: list[str] = []
        for number in range(3):
            produced += fill(self.store, 500, start_ms=1_700_000_000_000 + number * 40_000_000)
            self.archive(merge_files=2)
        assert any(each.kind == "rewrite" for each in ManifestLog.read(self.layout, KEY).manifests)
        gone = produced.pop(7)
        number = parse_entry_id(gone)
        assert delete(self.place, KEY, self.options, [(number, number)]).archived == 1
        produced += fill(self.store, 10, start_ms=1_800_000_000_000)
        reader = self.spark.read.format("streamd").options(**self.options, stream=KEY, archive=self.place)
        assert sorted(row.id for row in reader.load().select("id").collect()) == sorted(produced)
        self.archive(hot_window_ms=10**12)
        self.check(produced)


def main() -> None:
    for line in sys.stdin:
        job = json.loads(line)
        fault = None
        try:
            getattr(Stories(job["place"], job["options"]), job["story"])()
        except BaseException:
            fault = traceback.format_exc()
        print(json.dumps(fault), flush=True)


if __name__ == "__main__":
    main()
