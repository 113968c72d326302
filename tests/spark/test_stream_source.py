"""Streaming reads through Spark: checkpoints, replays and crashes. What needs no Spark is in test_stream_planner.py."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis
from support.archives.runs import KEY, archive_once
from support.spark.session import ON_BOTH, QUERIES, batches_planned, session_of_its_own, wait_for_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = [pytest.mark.long, pytest.mark.spark, QUERIES]

Options = dict[str, str]
Entry = tuple[str, str]

DEADLINE_S = 200


def read(spark: SparkSession, options: Options, **more: str) -> DataFrame:
    return spark.readStream.format("streamd").options(**options, **more).load()


def to_parquet(frame: DataFrame, folder: Path, *, available_now: bool = False) -> StreamingQuery:
    writer = frame.select("stream", "id").writeStream.format("parquet")
    writer = writer.option("path", str(folder / "out")).option("checkpointLocation", str(folder / "checkpoint"))
    return (writer.trigger(availableNow=True) if available_now else writer).start()


def finish(query: StreamingQuery) -> None:
    assert query.awaitTermination(DEADLINE_S), query.status


def failure(query: StreamingQuery) -> str:
    """Why a query failed."""
    with pytest.raises(Exception, match="STREAM_FAILED") as caught:
        query.awaitTermination(DEADLINE_S)
    return str(caught.value)


def in_parquet(spark: SparkSession, folder: Path) -> Counter[Entry]:
    rows = spark.read.schema("stream string, id string").parquet(str(folder / "out")).collect()
    return Counter((row.stream, row.id) for row in rows)


def fill(store: redis.Redis, key: str, count: int) -> list[Entry]:
    """So many entries with IDs of the clock."""
    pipe = store.pipeline(transaction=False)
    for at in range(count):
        pipe.xadd(key, {"n": at})
    return [(key, each.decode()) for each in pipe.execute()]


class Producer:
    """Adds entries to streams, from a thread, until it is told to stop."""

    def __init__(self, store: redis.Redis, keys: Sequence[str], pause_s: float) -> None:
        self._store = store
        self._keys = keys
        self._pause_s = pause_s
        self._stopping = threading.Event()
        self.added: list[Entry] = []

    def run(self) -> None:
        source = random.Random(7)
        while not self._stopping.wait(self._pause_s):
            self.added += fill(self._store, source.choice(self._keys), source.randint(1, int(6000 * self._pause_s) + 1))

    @classmethod
    @contextmanager
    def running(cls, store: redis.Redis, keys: Sequence[str], pause_s: float = 0.02) -> Iterator[Producer]:
        producer = cls(store, keys, pause_s)
        thread = threading.Thread(target=producer.run)
        thread.start()
        try:
            yield producer
        finally:
            producer._stopping.set()
            thread.join()


@ON_BOTH
def test_a_query_continues_from_its_checkpoint(
    spark: SparkSession, store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    entries = fill(store, "a", 2500) + fill(store, "b", 300)
    options = {**source_options, "streamPattern": "*", "maxEntriesPerTrigger": "1000", "group": "spark"}
    query = to_parquet(read(spark, options), tmp_path, available_now=True)
    finish(query)
    assert in_parquet(spark, tmp_path) == Counter(entries)
    progress: Any = json.loads(query.lastProgress.json)["sources"][0]  # type: ignore[union-attr]
    assert progress["latestOffset"]["streams"].keys() == {"a", "b"}
    assert [each["lag"] for key in "ab" for each in store.xinfo_groups(key)] == [0, 0]
    entries += fill(store, "b", 5) + fill(store, "c", 5)
    finish(to_parquet(read(spark, options), tmp_path, available_now=True))
    assert in_parquet(spark, tmp_path) == Counter(entries)


def test_a_crash_in_the_first_batch_loses_nothing(
    spark: SparkSession, store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    kept: list[Entry] = []

    def refuse(batch: DataFrame, batch_id: int) -> None:
        raise RuntimeError("the first batch cannot be written")

    def keep(batch: DataFrame, batch_id: int) -> None:
        kept.extend(("a", row.id) for row in batch.select("id").collect())

    with Producer.running(store, "a", pause_s=0.0005) as producer:
        frame = read(spark, source_options, stream="a", startingId="latest")
        for attempt in range(10):
            writer = frame.writeStream.option("checkpointLocation", str(tmp_path / str(attempt)))
            assert "cannot be written" in failure(writer.foreachBatch(refuse).start())
            first = json.loads((tmp_path / str(attempt) / "offsets" / "0").read_text().splitlines()[-1])
            if "parts" in first["streams"]["a"]:
                break  # something came between Spark's asking for the beginning and for the end of the batch
    low = first["streams"]["a"]["parts"][0][0]
    finish(writer.foreachBatch(keep).trigger(availableNow=True).start())
    ids = [each for _, each in producer.added]
    assert Counter(kept) == Counter(producer.added[ids.index(low) :])


def test_what_was_trimmed_unread_fails_the_query(
    spark: SparkSession, store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    entries = fill(store, "s", 100)
    frame = read(spark, source_options, stream="s", maxEntriesPerTrigger="60")
    finish(to_parquet(frame, tmp_path, available_now=True))
    fill(store, "s", 50)
    left = fill(store, "s", 10)
    store.xtrim("s", maxlen=10, approximate=False)
    text = failure(to_parquet(frame, tmp_path, available_now=True))
    assert "DataLossError: 50 entries of stream s" in text
    assert "failOnDataLoss" in text
    careless = read(spark, source_options, stream="s", failOnDataLoss="false")
    finish(to_parquet(careless, tmp_path, available_now=True))
    assert in_parquet(spark, tmp_path) == Counter(entries + left)


def children(spark: SparkSession) -> dict[int, str]:
    """The processes that the session's Java has started: by ID, their command lines."""
    handle = spark._jvm.java.lang.ProcessHandle.current()  # type: ignore[union-attr]
    found = handle.descendants().toArray()
    return {each.pid(): each.info().commandLine().orElse("") for each in found}


def test_a_query_that_is_killed_at_random_reads_everything_once(
    spark: SparkSession, store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    source = random.Random()
    options = {**source_options, "streams": "a,b", "maxEntriesPerTrigger": "700"}
    with Producer.running(store, "ab") as producer:
        for _ in range(2):
            before = batches_planned(tmp_path)
            query = to_parquet(read(spark, options), tmp_path)
            wait_for_batches(tmp_path, before + source.randint(1, 4))
            for process, command in children(spark).items():
                if "python_streaming_source_runner" in command:
                    with suppress(ProcessLookupError):  # that of a query that has ended
                        os.kill(process, signal.SIGKILL)
            failure(query)
    finish(to_parquet(read(spark, options), tmp_path, available_now=True))
    assert in_parquet(spark, tmp_path) == Counter(producer.added)


def test_a_query_that_starts_in_an_archive_and_is_killed_reads_everything_once(
    spark: SparkSession, store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    """While entries are added, archived and trimmed at once."""
    path, source = tmp_path / "archive", random.Random()
    first = fill(store, KEY, 3000)
    archive_once(path, source_options)
    options = {**source_options, "archive": str(path), "startingPosition": "archive", "maxEntriesPerTrigger": "900"}
    stopping = threading.Event()

    def archive_always() -> None:
        while not stopping.is_set():
            archive_once(path, source_options)

    archiver = threading.Thread(target=archive_always)
    archiver.start()
    try:
        with Producer.running(store, [KEY]) as producer:
            for _ in range(2):
                before = batches_planned(tmp_path)
                query = to_parquet(read(spark, options, stream=KEY), tmp_path)
                wait_for_batches(tmp_path, before + source.randint(1, 4))
                for process, command in children(spark).items():
                    if "python_streaming_source_runner" in command:
                        with suppress(ProcessLookupError):
                            os.kill(process, signal.SIGKILL)
                failure(query)
    finally:
        stopping.set()
        archiver.join()
    assert store.xlen(KEY) < len(producer.added)
    finish(to_parquet(read(spark, options, stream=KEY), tmp_path, available_now=True))
    assert in_parquet(spark, tmp_path) == Counter(first + producer.added)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_session_that_is_killed_twenty_times_reads_everything_once(
    spark: SparkSession, store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    source = random.Random()
    options = {**source_options, "streamPattern": "[ab]", "maxEntriesPerTrigger": "700"}
    with Producer.running(store, "ab") as producer:
        for _ in range(20):
            wanted = batches_planned(tmp_path) + source.randint(0, 4)
            with session_of_its_own(tmp_path, options, is_final=False):
                wait_for_batches(tmp_path, wanted, timeout_s=300)
                # Somewhere within a batch, wherever that is.
                threading.Event().wait(source.random())
    with session_of_its_own(tmp_path, {**options, "maxEntriesPerTrigger": "100000"}, is_final=True) as process:
        process.wait(600)
    assert in_parquet(spark, tmp_path) == Counter(producer.added)


def test_an_option_that_a_query_cannot_have_is_said_in_one_line(
    spark: SparkSession, source_options: Options, tmp_path: Path
) -> None:
    query = to_parquet(read(spark, {**source_options, "stream": "s", "endingId": "5"}), tmp_path)
    with pytest.raises(Exception, match="OptionError: option endingId: is for batch reads") as caught:
        query.awaitTermination(DEADLINE_S)
    assert "Traceback" not in str(caught.value)
