"""Sensors, from their readings to their history: a whole pipeline with streamd and Spark.

    python examples/sensors.py                          its own server, a temporary folder
    python examples/sensors.py --url redis://host:6379 --folder pipeline

    readings ---> Structured Streaming ---> readings:by-minute       means in windows of event time, exactly once
       |   \\---> consumer group `alarms`                            a worker among others, with redis-py
       |
       +--------> archive (Parquet) ---> history: one query over archived and live readings
       +--------> report.html

Needs `./install '.[spark]' redis`, and Java 17 or newer. Each step is a function of a few lines: read
them from the top. Run it again with the same server and folder, and it continues where it stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import random
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import redis
from pyspark.sql import DataFrame, SparkSession

import streamd.embedded
import streamd.spark
from streamd.archive.archiver import ArchiveSettings, archive
from streamd.cli.report import ReportRequest, make_report
from streamd.spark.analytics import aggregates

READINGS = "readings"
BY_MINUTE = "readings:by-minute"
SENSORS = ("attic", "cellar", "garden", "hall", "kitchen")
EVERY_MS = 10_000
MINUTE_MS = 60_000

SCHEMA = "id string, time timestamp, sensor string, celsius double"
"""The columns wanted of a reading: its ID and the time in it, and two of its fields, cast."""


@dataclass
class Summary:
    """The results."""

    produced: int
    windows: int  # in the result stream
    archived: int  # readings in the archive
    live: int  # readings on the server
    history: int  # readings in both, as one table
    alarms: int


# --- 1. Sensors append readings, by any client ----------------------------------------------------------------------------


def produce(client: redis.Redis, since_ms: int, until_ms: int) -> int:
    """Append what the sensors measured in a span of time. The entry ID is the time of the measurement."""
    chance = random.Random(since_ms)
    pipe = client.pipeline(transaction=False)
    count = 0
    for ms in range(since_ms, until_ms, EVERY_MS):
        for at, sensor in enumerate(SENSORS):
            celsius = 18 + at + 4 * math.sin(ms / 120_000) + chance.gauss(0, 0.3)
            pipe.xadd(READINGS, {"sensor": sensor, "celsius": f"{celsius:.2f}"}, id=f"{ms}-*")
            count += 1
    pipe.execute()
    return count


# --- 2. A streaming query turns readings into means, in another stream ----------------------------------------------------


def average_by_minute(spark: SparkSession, options: dict[str, str], folder: Path) -> None:
    """Process what has arrived since the last run. A window is emitted once, when the watermark has passed its end."""
    readings = (
        spark.readStream.format("streamd").schema(SCHEMA).options(**options)
        .option("stream", READINGS).option("startingId", "earliest").load()
    )  # fmt: skip
    means = aggregates(readings, "celsius", window="1 minute", watermark="30 seconds", by=["sensor"])
    query = (
        means.writeStream.format("streamd").outputMode("append").options(**options)
        .option("stream", BY_MINUTE).option("delivery", "exactly-once")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()


# --- 3. A consumer group works on the same stream -------------------------------------------------------------------------


def watch_for_alarms(client: redis.Redis, above: float) -> int:
    """Work as one consumer of a group: read, decide, acknowledge. Returns the number of alarms."""
    with contextlib.suppress(redis.ResponseError):  # the group already exists
        client.xgroup_create(READINGS, "alarms", id="0")
    alarms = 0
    while found := client.xreadgroup("alarms", "worker-1", {READINGS: ">"}, count=1000):
        ((_, entries),) = found
        alarms += sum(float(fields[b"celsius"]) > above for _, fields in entries)
        client.xack(READINGS, "alarms", *(entry_id for entry_id, _ in entries))
    return alarms


# --- 4. Old readings move to Parquet, and one table has them and live ones ------------------------------------------------


def archive_old(options: dict[str, str], folder: Path, hot_window_ms: int) -> int:
    """Archive and trim readings older than the hot window; returns their number."""
    settings = ArchiveSettings(hot_window_ms=hot_window_ms, trim_delay_ms=0)
    found = archive(str(folder / "archive"), {**options, "stream": READINGS}, settings=settings)
    if not found.is_success:
        raise SystemExit(f"not archived: {[each.error for each in found.streams]}")
    return found.rows


def history(spark: SparkSession, options: dict[str, str], folder: Path) -> DataFrame:
    """All readings ever made, archived and live."""
    return (
        spark.read.format("streamd").schema(SCHEMA).options(**options)
        .option("stream", READINGS).option("archive", str(folder / "archive")).load()
    )  # fmt: skip


# --- All of it ------------------------------------------------------------------------------------------------------------


def run(spark: SparkSession, url: str, folder: Path) -> Summary:
    """Two hours of readings, in two rounds; the first hour ends up in the archive."""
    options = {"url": url}
    now_ms = int(time.time() * 1000) // MINUTE_MS * MINUTE_MS
    client = redis.Redis.from_url(url, protocol=2)
    newest = client.xrevrange(READINGS, count=1)
    start_ms = int(newest[0][0].split(b"-")[0]) + EVERY_MS if newest else now_ms - 120 * MINUTE_MS

    produced = produce(client, start_ms, now_ms - 60 * MINUTE_MS)
    average_by_minute(spark, options, folder)
    produced += produce(client, max(start_ms, now_ms - 60 * MINUTE_MS), now_ms)
    average_by_minute(spark, options, folder)  # continues from its checkpoint
    alarms = watch_for_alarms(client, above=25)

    archived = archive_old(options, folder, hot_window_ms=60 * MINUTE_MS)
    everything = history(spark, options, folder)
    everything.createOrReplaceTempView("readings")
    warmest = spark.sql("""
        SELECT sensor, count(*) AS readings, round(avg(celsius), 2) AS mean, max(celsius) AS warmest, min(time) AS since
        FROM readings GROUP BY sensor ORDER BY warmest DESC
    """)
    warmest.show(truncate=False)
    request = ReportRequest(READINGS, options, out=str(folder / "report.html"), archive=str(folder / "archive"))
    make_report(request)
    summary = Summary(
        produced=produced,
        windows=client.xlen(BY_MINUTE),
        archived=archived,
        live=client.xlen(READINGS),
        history=everything.count(),
        alarms=alarms,
    )
    client.close()
    return summary


@contextlib.contextmanager
def server_at(url: str | None) -> Iterator[str]:
    """The given server, or one that runs as long as this program."""
    if url is not None:
        yield url
        return
    with streamd.embedded.start() as server:
        yield server.url


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--url", help="a server: streamd, Redis or Valkey; otherwise one is started")
    parser.add_argument(
        "--folder", type=Path, help="where checkpoint, archive and report go; otherwise a temporary one"
    )
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="streamd-sensors-"))
    folder.mkdir(parents=True, exist_ok=True)
    spark = streamd.spark.session("sensors", config={"spark.sql.shuffle.partitions": "2"})
    spark.sparkContext.setLogLevel("ERROR")
    with server_at(given.url) as url:
        summary = run(spark, url, folder)
    spark.stop()
    print(f"{summary.produced:,} readings, {summary.windows:,} windows, {summary.alarms:,} alarms")
    print(f"{summary.archived:,} archived + {summary.live:,} live = {summary.history:,} in the history")
    print(f"checkpoint, archive and report.html are in {folder}")


if __name__ == "__main__":
    main()
