"""Reports on streams, and what Spark computes over event time."""

from __future__ import annotations

import datetime
import json
import math
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis
from click.testing import CliRunner
from support.servers import Server
from support.spark.session import ON_BOTH, QUERIES

from streamd.archive.archiver import ArchiveSettings, archive
from streamd.cli.report import ReportRequest, read_archived_profile
from streamd.cli.subcommands import program
from streamd.client.connection import Connection, connect
from streamd.client.points import MAX_ID, parse_entry_id
from streamd.client.url_options import ConnectionOptions
from streamd.report.profile import Profile, find_numeric_fields, read_profile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.long

Options = dict[str, str]

ROOT = Path(__file__).parents[2]


@pytest.fixture
def connection(source_options: Options) -> Iterator[Connection]:
    with connect(ConnectionOptions.parse(source_options)) as found:
        yield found


def fill(store: redis.Redis, key: str, ids: list[str], **fields: list[Any]) -> None:
    pipe = store.pipeline(transaction=False)
    for at, each in enumerate(ids):
        pipe.xadd(key, {"n": at, **{name: values[at] for name, values in fields.items()}}, id=each)
    pipe.execute()


# --- Profiles, without Spark ----------------------------------------------------------------------------------------------


def uneven_stream(store: redis.Redis, key: str, count: int = 5000) -> None:
    """Bursts, pauses, several entries in a millisecond, and fields that are numbers now and then."""
    chance, pipe = random.Random(7), store.pipeline(transaction=False)
    ms, seq = 1_700_000_000_000, 0
    for at in range(count):
        step = chance.choice([0, 0, 1, 3, 40, 500]) * chance.choice([1, 1, 1, 10]) + (
            600_000 if at == count // 3 else 0
        )
        ms, seq = ms + step, (seq + 1 if step == 0 else 0)
        celsius = chance.choice([f"{chance.gauss(20, 5):.3f}", "1e3", "bad", "", "-.5"])
        pipe.execute_command("XADD", key, f"{ms}-{seq}", "celsius", "9", "celsius", celsius, "a.b", at % 7, "n", at)
    pipe.execute()


@ON_BOTH
def test_a_profile_of_the_newest_entries_only(store: redis.Redis, connection: Connection) -> None:
    uneven_stream(store, "s")
    whole, part = read_profile(connection, "s"), read_profile(connection, "s", limit=2345)
    assert (whole.entries, whole.is_whole) == (5000, True)
    assert (part.entries, part.is_whole, part.last_ms) == (2345, False, whole.last_ms)
    assert read_profile(connection, "s", limit=5000).is_whole
    assert read_profile(connection, "s", high=parse_entry_id("5-0")).entries == 0


def test_numeric_fields_are_found(store: redis.Redis, connection: Connection) -> None:
    fill(store, "s", [f"{at}-0" for at in range(1, 301)], x=[at % 5 for at in range(300)], name=["b"] * 300)
    # `n` only counts the entries.
    assert find_numeric_fields(connection, "s") == ["x"]
    assert find_numeric_fields(connection, "missing") == []


def test_archived_entries_are_in_the_profile(
    store: redis.Redis, connection: Connection, source_options: Options, tmp_path: Path
) -> None:
    uneven_stream(store, "s")
    fields, low = ("celsius", "a.b"), parse_entry_id("1700000001000-0")
    limits = (5000, 3000)
    wanted = [read_profile(connection, "s", low=low, fields=fields, limit=limit) for limit in limits]
    settings = ArchiveSettings(hot_window_ms=0, trim_delay_ms=0)
    assert archive(str(tmp_path), {**source_options, "stream": "s"}, settings=settings).is_success
    assert store.xlen("s") == 0
    requests = [ReportRequest("s", source_options, limit=limit, archive=str(tmp_path)) for limit in limits]
    for request, profile in zip(requests, wanted, strict=True):
        found = read_archived_profile(request, fields, low, MAX_ID)
        assert found.is_whole == profile.is_whole
        assert_same(found, profile)
    store.xadd("s", {"celsius": "1"}, id="1800000000000-0")
    result = run("s", "-p", source_options["port"], "--archive", str(tmp_path), "--out", "-", "--format", "json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["profile"]["entries"] == 5001


# --- The command ----------------------------------------------------------------------------------------------------------


def run(*arguments: str) -> Any:
    return CliRunner().invoke(program, ["report", *arguments], prog_name="streamd")


def test_the_command_writes_a_page(store: redis.Redis, server: Server, tmp_path: Path) -> None:
    uneven_stream(store, "s")
    out = tmp_path / "page.html"
    result = run("s", "-p", str(server.port), "--out", str(out))
    assert result.exit_code == 0, result.output
    text = out.read_text()
    assert text.count("<svg") >= 3
    assert "5,000" in text
    assert [path.name for path in tmp_path.iterdir()] == [out.name]


def test_the_command_speaks_json_and_takes_ranges(store: redis.Redis, server: Server) -> None:
    fill(store, "s", [f"{at}-0" for at in range(1, 101)])
    result = run("s", "-p", str(server.port), "--out", "-", "--format", "json", "--since", "11-0", "--until", "20-0")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["profile"]["entries"] == 10


def test_the_command_says_what_is_wrong_in_one_line(store: redis.Redis, server: Server, tmp_path: Path) -> None:
    port = ("-p", str(server.port))
    fill(store, "s", ["1-0"])
    missing = run("missing", *port)
    assert (missing.exit_code, missing.output) == (1, "Error: there is no stream 'missing'\n")
    nowhere = run("s", *port, "--out", str(tmp_path / "no" / "folder.html"))
    assert nowhere.exit_code == 1
    assert "No such file" in nowhere.output
    assert run("s", *port, "--since", "soon").exit_code == 2
    refused = run("s", "-p", "1", "-o", "retries=0")
    assert refused.exit_code == 1
    assert "Could not connect" in refused.output


WITHOUT_SPARK = """
import sys
sys.modules.update(dict.fromkeys(("pyspark", "pyarrow", "redis")))  # None: cannot be imported
from streamd.cli.subcommands import program
program(["report", *sys.argv[1:]])
"""


def test_the_command_needs_neither_spark_nor_arrow(store: redis.Redis, server: Server, tmp_path: Path) -> None:
    fill(store, "s", ["1-0", "2-0"])
    arguments = ("s", "-p", str(server.port), "--out", "page.html")
    plain = subprocess.run(
        [sys.executable, "-c", WITHOUT_SPARK, *arguments], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert plain.returncode == 0, plain.stderr
    assert "<svg" in (tmp_path / "page.html").read_text()


# --- With Spark -----------------------------------------------------------------------------------------------------------

MINUTE = 60_000
START = 1_700_000_040_000  # a full minute


@pytest.fixture
def readings(spark: SparkSession) -> DataFrame:
    """Entries as the source gives them: two streams, values that are numbers and values that are not."""
    from streamd.spark.source.schema import DEFAULT_SCHEMA

    def row(ms: int, seq: int, stream: str, *pairs: tuple[str, str]) -> tuple[Any, ...]:
        moment = datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC)
        return f"{ms}-{seq}", ms, seq, moment, stream, [(f.encode(), v.encode()) for f, v in pairs]

    rows = [
        row(START, 0, "a", ("x", "1.5")),
        row(START + 500, 0, "a", ("x", "9"), ("x", "2")),
        row(START + 500, 1, "b", ("x", "30")),
        row(START + MINUTE, 0, "a", ("x", "nan")),
        row(START + MINUTE + 2000, 0, "a", ("x", "1\n")),
        row(START + MINUTE + 2000, 1, "a", ("x", "1e999")),
        row(START + MINUTE + 3000, 0, "b", ("y", "1")),
        row(START + 3 * MINUTE, 0, "a", ("x", "-7")),
    ]
    return spark.createDataFrame(rows, DEFAULT_SCHEMA)


def minute_of(row: Any) -> int:
    return int(row.window_start.replace(tzinfo=datetime.UTC).timestamp() * 1000 - START) // MINUTE


@pytest.mark.spark
def test_rates_are_counted_in_windows_of_event_time(readings: DataFrame) -> None:
    from streamd.spark.analytics import rates

    found = rates(readings, "1 minute", by=["stream"]).collect()
    assert {(minute_of(row), row.stream): row.entries for row in found} == {
        (0, "a"): 2, (0, "b"): 1, (1, "a"): 3, (1, "b"): 1, (3, "a"): 1,
    }  # fmt: skip
    assert all(row.per_second == row.entries / 60 for row in found)
    # From IDs alone; where windows overlap, each entry counts twice.
    twice = rates(readings.select("id"), "1 minute", slide="30 seconds").collect()
    assert sorted(row.entries for row in twice) == [1, 1, 3, 3, 4, 4]


@pytest.mark.spark
def test_aggregates_take_finite_numbers_only(readings: DataFrame) -> None:
    from streamd.spark.analytics import FIGURES, aggregates, with_numbers

    numbers = with_numbers(readings, "x", "not there")
    figures = (*FIGURES, "p50", "p100")
    found = {
        minute_of(row): row for row in aggregates(numbers, ["x", "not there"], "1 minute", figures=figures).collect()
    }
    assert [found[0][f"x_{each}"] for each in ("count", "min", "max", "sum", "p50", "p100")] == [
        3,
        1.5,
        30,
        33.5,
        2,
        30,
    ]
    assert found[0]["x_avg"] == pytest.approx(33.5 / 3)
    assert (found[1]["x_count"], found[1]["x_max"]) == (0, None)
    assert (found[3]["x_count"], found[3]["x_max"]) == (1, -7)
    assert found[0]["not there_count"] == 0
    with pytest.raises(ValueError, match="unknown figure 'median'"):
        aggregates(numbers, "x", "1 minute", figures=["median"])


@pytest.mark.spark
def test_gaps_are_those_between_neighbours_of_one_stream(readings: DataFrame) -> None:
    from streamd.spark.analytics import gaps

    found = {row.id: row.gap_ms for row in gaps(readings).where("stream = 'a'").orderBy("ms", "seq").collect()}
    assert list(found.values()) == [None, 500, 59_500, 2000, 0, 118_000]
    with pytest.raises(ValueError, match="no seq"):
        gaps(readings.select("ms"))


@pytest.mark.spark
@pytest.mark.parametrize("by", [(), ("st.ream",)])
def test_gaps_are_those_of_one_window_over_everything(spark: SparkSession, by: tuple[str, ...]) -> None:
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    from streamd.spark.analytics import gaps

    source = random.Random(1)
    rows = [(source.choice(["a", "b", None]), int(1000 * source.paretovariate(0.7)), at) for at in range(1000)]
    rows += [("a", None, None), ("only once", 5, 0)]
    frame = spark.createDataFrame(rows, "`st.ream` string, ms bigint, seq bigint")
    order = Window.partitionBy(*(f"`{each}`" for each in by)).orderBy("ms", "seq")
    wanted = frame.withColumn("gap_ms", F.col("ms") - F.lag("ms").over(order))
    found = gaps(frame, by=by)
    assert found.columns == wanted.columns
    assert sorted(map(repr, found.collect())) == sorted(map(repr, wanted.collect()))
    for few in (frame.limit(1), frame.where("ms < 0"), frame.where("ms is null")):
        assert {row.gap_ms for row in gaps(few, by=by).collect()} <= {None}


@QUERIES
@pytest.mark.spark
def test_a_streaming_frame_gives_what_the_batch_gives(
    spark: SparkSession, store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    from streamd.spark.analytics import aggregates, gaps, with_numbers

    ids = [f"{START + at * 700}-0" for at in range(1000)]
    fill(store, "s", ids, x=[at % 50 for at in range(1000)])
    fill(store, "s", [f"{START + 100 * MINUTE}-0"], x=[0])  # moves the watermark past all windows before it

    def windows(frame: DataFrame, watermark: str | None) -> DataFrame:
        return aggregates(with_numbers(frame, "x"), "x", "1 minute", watermark=watermark)

    options = {**source_options, "stream": "s"}
    stream = spark.readStream.format("streamd").options(**options, startingId="earliest", maxEntriesPerTrigger="600")
    with pytest.raises(ValueError, match="batch frame"):
        gaps(stream.load())
    # Without entries that follow, a last batch without entries closes the windows.
    spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "true")
    query = (
        windows(stream.load(), "10 seconds").writeStream.format("parquet").outputMode("append")
        .option("path", str(tmp_path / "out")).option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    assert query.awaitTermination(200)
    assert query.exception() is None
    streamed = {row.window_start: row for row in spark.read.parquet(str(tmp_path / "out")).collect()}
    batch = {
        row.window_start: row for row in windows(spark.read.format("streamd").options(**options).load(), None).collect()
    }
    last = max(batch)
    # The last window is open still; all others came out once, and are the same.
    assert streamed == {start: row for start, row in batch.items() if start != last}
    assert sum(row.x_count for row in streamed.values()) == 1000


def assert_same(found: Profile, wanted: Profile) -> None:
    """Equal but for the order in which sums were made."""
    names = ("entries", "first_ms", "last_ms", "bin_ms", "gaps", "fields", "longest_gaps")
    assert [getattr(found, each) for each in names] == [getattr(wanted, each) for each in names]
    for one, other in zip(found.bins, wanted.bins, strict=True):
        assert (one.start_ms, one.entries, one.longest_gap) == (other.start_ms, other.entries, other.longest_gap)
        for a, b in zip(one.numbers, other.numbers, strict=True):
            assert (a is None) == (b is None)
            if a is not None and b is not None:
                assert (a.count, a.low, a.high) == (b.count, b.low, b.high)
                assert math.isclose(a.total, b.total, abs_tol=1e-6)
