"""Analytics of streams: what is said of groups by a server's side, and what Spark computes over event time."""

from __future__ import annotations

import datetime
import json
import math
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis
from click.testing import CliRunner
from support.servers import Server, eventually
from support.spark.session import ON_BOTH, QUERIES

from streamd.cli.subcommands import program
from streamd.client.client_errors import ServerError
from streamd.client.connection import Connection, connect
from streamd.client.options import ConnectionOptions
from streamd.client.points import MAX_ID, MIN_ID, parse_entry_id
from streamd.report import collect
from streamd.report.groups import DeadLetter, GroupLag, Watch, find_dead_letters, look_at_groups
from streamd.report.profile import Profile, find_numeric_fields, read_profile
from streamd.report.records import append_to_stream
from streamd.spark.frames import to_frame

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


def group_of(connection: Connection, stream: str, group: str, **options: Any) -> Any:
    (found,) = look_at_groups(connection, stream, groups=[group], **options)
    return found


# --- Groups ---------------------------------------------------------------------------------------------------------------


@ON_BOTH
def test_lag_is_reported_in_entries_and_in_seconds(store: redis.Redis, connection: Connection) -> None:
    now = int(store.time()[0] * 1000)
    fill(store, "s", [f"{now - 60_000 + 10_000 * at}-0" for at in range(6)])
    store.xgroup_create("s", "g", "0")
    store.xreadgroup("g", "c", {"s": ">"}, count=2)
    lag = group_of(connection, "s", "g").lag
    assert (lag.lag, lag.pending, lag.entries_read, lag.length, lag.consumers) == (4, 2, 2, 6, 1)
    assert not lag.is_lag_counted
    assert 39 <= lag.lag_s <= 55  # the oldest that is not delivered is 40 s old
    assert lag.behind_s == 40
    assert 59 <= lag.oldest_pending_s <= 75
    assert lag.last_delivered_id == f"{now - 50_000}-0"
    assert lag.server.split()[0] in ("streamd", "redis")


@ON_BOTH
def test_a_group_that_has_read_everything_is_not_behind(store: redis.Redis, connection: Connection) -> None:
    fill(store, "s", ["1-0", "2-0"])
    store.xgroup_create("s", "g", "$")
    state = group_of(connection, "s", "g")
    assert (state.lag.lag, state.lag.lag_s, state.lag.behind_s, state.lag.oldest_pending_s) == (0, 0, 0, None)
    assert state.pending == ()


@ON_BOTH
def test_a_lag_that_the_server_does_not_know_is_counted(store: redis.Redis, connection: Connection) -> None:
    fill(store, "s", [f"{at}-0" for at in range(1, 2501)])
    store.xgroup_create("s", "g", "300-0")  # in the middle, without ENTRIESREAD
    lag = group_of(connection, "s", "g").lag
    assert (lag.lag, lag.is_lag_counted) == (2200, True)
    assert group_of(connection, "s", "g", count_limit=1000).lag.lag is None


@ON_BOTH
def test_a_lag_below_zero_is_counted(store: redis.Redis, connection: Connection) -> None:
    fill(store, "s", [f"{at}-0" for at in range(1, 7)])
    store.xgroup_create("s", "g", "3-0", entries_read=6)  # three more than there are up to this ID
    store.xreadgroup("g", "c", {"s": ">"}, count=2)
    assert store.xinfo_groups("s")[0]["lag"] == -2
    lag = group_of(connection, "s", "g").lag
    assert (lag.lag, lag.is_lag_counted) == (1, True)


@ON_BOTH
def test_groups_of_an_empty_stream_and_of_none(store: redis.Redis, connection: Connection) -> None:
    store.xgroup_create("empty", "g", "0", mkstream=True)
    lag = group_of(connection, "empty", "g").lag
    assert (lag.lag, lag.lag_s, lag.length) == (0, 0, 0)
    assert look_at_groups(connection, "empty", groups=["other"]) == []
    with pytest.raises(ServerError, match="no such key"):
        look_at_groups(connection, "missing")


@ON_BOTH
def test_every_pending_entry_is_seen_page_by_page(store: redis.Redis, connection: Connection) -> None:
    ids = [f"{at}-{at % 3}" for at in range(1, 2346)]
    fill(store, "s", ids)
    store.xgroup_create("s", "g", "0")
    store.xreadgroup("g", "c", {"s": ">"})
    state = group_of(connection, "s", "g")
    assert [each.id for each in state.pending] == ids
    assert state.is_pending_complete
    partly = group_of(connection, "s", "g", pending_limit=1500)
    assert [each.id for each in partly.pending] == ids[:1500]
    assert not partly.is_pending_complete


@ON_BOTH
def test_delivery_times_come_from_idle_times(store: redis.Redis, connection: Connection) -> None:
    now = int(store.time()[0] * 1000)
    fill(store, "s", [f"{now - 5000}-0", f"{now - 4000}-0"])
    store.xgroup_create("s", "g", "0")
    store.xreadgroup("g", "c", {"s": ">"})
    # XCLAIM sets what is seen: delivered 3 s ago, the fifth time.
    store.xclaim("s", "g", "c", 0, [f"{now - 5000}-0"], idle=3000, retrycount=5)
    first, second = group_of(connection, "s", "g").pending
    assert (first.deliveries, second.deliveries) == (5, 1)
    assert first.idle_s == pytest.approx(3, abs=10)
    assert first.idle_s >= 3
    assert first.delivery_latency_s == pytest.approx(2, abs=10)
    assert second.delivery_latency_s >= 4


@ON_BOTH
@pytest.mark.parametrize("entry_id", ["1-1", "18446744073709551615-1"])
def test_ids_that_are_no_times_have_no_latency(store: redis.Redis, connection: Connection, entry_id: str) -> None:
    fill(store, "s", [entry_id])
    store.xgroup_create("s", "g", "0")
    store.xreadgroup("g", "c", {"s": ">"})
    state = group_of(connection, "s", "g")
    assert state.pending[0].delivery_latency_s is None
    assert state.lag.oldest_pending_s is None


@ON_BOTH
def test_names_that_are_no_text_come_through(store: redis.Redis, connection: Connection) -> None:
    store.xadd(b"\xff", {b"a": b"b"}, id="1-0")
    store.xgroup_create(b"\xff", b"\xfe", "0")
    store.xreadgroup(b"\xfe", b"\xfd", {b"\xff": b">"})
    state = group_of(connection, "\udcff", "\udcfe")
    assert state.pending[0].consumer == "\udcfd"
    append_to_stream(connection, "out", [state.lag, state.pending[0]])
    entry = store.xrange("out")[0][1]
    assert (entry[b"stream"], entry[b"group"]) == (b"\xff", b"\xfe")


@ON_BOTH
def test_dead_letters_are_those_delivered_too_often(store: redis.Redis, connection: Connection) -> None:
    fill(store, "s", [f"{at}-0" for at in range(1, 11)])
    store.xgroup_create("s", "g", "0")
    store.xreadgroup("g", "c", {"s": ">"})
    for at in range(1, 11):
        store.xclaim("s", "g", "c", 0, [f"{at}-0"], retrycount=at)
    store.xdel("s", "9-0")
    found = find_dead_letters(connection, look_at_groups(connection, "s"), above=7)
    assert [(each.id, each.deliveries, each.is_deleted) for each in found] == [
        ("10-0", 10, False), ("9-0", 9, True), ("8-0", 8, False),
    ]  # fmt: skip
    assert found[0].fields == ((b"n", b"9"),)
    assert found[1].fields == ()
    assert append_to_stream(connection, "dead", found) == 3
    assert [entry[b"id"] for _, entry in store.xrange("dead")] == [b"10-0", b"9-0", b"8-0"]


@ON_BOTH
def test_a_watch_sees_acknowledgements_and_their_times(store: redis.Redis, connection: Connection) -> None:
    fill(store, "s", [f"{at}-0" for at in range(1, 101)])
    store.xgroup_create("s", "g", "0")
    watch = Watch(connection, "s")
    watch.look()
    store.xreadgroup("g", "c", {"s": ">"}, count=50)
    watch.look()
    delivered = time.monotonic()
    eventually(lambda: time.monotonic() - delivered > 0.05)
    store.xack("s", "g", "1-0", "2-0", "50-0")
    watch.look()
    assert [each.id for each in watch.acks] == ["1-0", "2-0", "50-0"]
    for each in watch.acks:
        assert 0 <= each.processing_min_s <= each.processing_s <= each.processing_max_s
        assert each.processing_max_s >= 0.05
    assert sum(each.read for each in watch.throughputs) == 50
    assert sum(each.acked for each in watch.throughputs) == 3
    assert [each.pending for each in watch.lags] == [0, 50, 47]


def test_times_of_a_steady_consumer_are_what_they_are(store: redis.Redis, source_options: Options) -> None:
    """A consumer that holds each batch for a known time: the bounds that a watch tells contain it."""
    fill(store, "s", [f"{at}-0" for at in range(1, 10_001)])
    store.xgroup_create("s", "g", "0")
    held: dict[bytes, float] = {}
    done = threading.Event()

    def consume() -> None:
        client = redis.Redis(port=int(source_options["port"]), protocol=2)
        while not done.is_set():
            begun = time.monotonic()
            ((_, entries),) = client.xreadgroup("g", "c", {"s": ">"}, count=10)
            done.wait(0.08)
            client.xack("s", "g", *(each for each, _ in entries))
            held.update((each, time.monotonic() - begun) for each, _ in entries)
        client.close()

    with connect(ConnectionOptions.parse(source_options)) as connection:
        watch = Watch(connection, "s")
        thread = threading.Thread(target=consume)
        thread.start()
        try:
            eventually(lambda: (watch.look(), len(watch.acks) >= 40)[1])
        finally:
            done.set()
            thread.join()
    for each in watch.acks:
        really = held[each.id.encode()]
        # The held time begins before the delivery and ends after the acknowledgement.
        assert each.processing_min_s - 0.02 <= really
        assert each.processing_max_s + 0.05 >= 0.08
    means = [each.processing_s for each in watch.throughputs if each.processing_s is not None]
    assert means


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


# --- The command ----------------------------------------------------------------------------------------------------------


def run(*arguments: str) -> Any:
    return CliRunner().invoke(program, ["report", *arguments], prog_name="streamd")


def test_the_command_writes_a_page_and_tables_and_entries(store: redis.Redis, server: Server, tmp_path: Path) -> None:
    uneven_stream(store, "s")
    store.xgroup_create("s", "g", "0")
    store.xreadgroup("g", "c", {"s": ">"}, count=10)
    out, tables = tmp_path / "page.html", tmp_path / "tables"
    more = ("--parquet", str(tables), "--to-stream", "out", "--above", "0", "--watch", "300ms")
    result = run("s", "-p", str(server.port), "--out", str(out), *more)
    assert result.exit_code == 0, result.output
    text = out.read_text()
    assert text.count("<svg") >= 7
    assert "5,000" in text
    assert {path.name for path in tables.iterdir()} >= {"bins.parquet", "groups.parquet", "dead_letters.parquet"}
    records = [entry[b"record"] for _, entry in store.xrange("out")]
    assert records.count(b"GroupLag") == 1
    assert records.count(b"DeadLetter") == 10
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".tmp")] == []


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
    assert run("s", *port, "--watch", "soon").exit_code == 2
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
    arguments = ("s", "-p", str(server.port), "--out", "page.html", "--watch", "0ms")
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


@pytest.mark.spark
def test_findings_become_a_frame(spark: SparkSession, store: redis.Redis, connection: Connection) -> None:
    fill(store, "s", ["1-0", "2-0"])
    store.xgroup_create("s", "g", "0")
    store.xreadgroup("g", "c", {"s": ">"})
    states = look_at_groups(connection, "s")
    (row,) = to_frame(spark, GroupLag, [state.lag for state in states]).where("pending > 0").collect()
    assert (row.group, row.lag, row.pending) == ("g", 0, 2)
    dead = to_frame(spark, DeadLetter, find_dead_letters(connection, states, above=0))
    assert [bytes(row.fields[0].value) for row in dead.orderBy("id").collect()] == [b"0", b"1"]
    assert to_frame(spark, DeadLetter, []).count() == 0


@pytest.mark.spark
def test_spark_and_the_plain_reader_make_the_same_profile(
    spark: SparkSession, store: redis.Redis, connection: Connection, source_options: Options
) -> None:
    from streamd.cli.report import ReportRequest, spark_profile

    uneven_stream(store, "s")
    fields, low = ("celsius", "a.b"), parse_entry_id("1700000001000-0")
    plain = read_profile(connection, "s", low=low, fields=fields)
    assert_same(spark_profile(spark, ReportRequest("s", source_options), fields, low, MAX_ID), plain)
    none = spark_profile(spark, ReportRequest("s", source_options), fields, MIN_ID, MIN_ID)
    assert none.entries == 0


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


@pytest.mark.spark
def test_the_report_lets_spark_read(
    spark: SparkSession, store: redis.Redis, source_options: Options, connection: Connection, tmp_path: Path
) -> None:
    from streamd.cli.report import ReportRequest, make_report

    uneven_stream(store, "s", 500)
    out = tmp_path / "page.json"
    make_report(ReportRequest("s", source_options, out=str(out), watch_s=0), spark=spark)
    found = json.loads(out.read_text())
    assert found["source"] == "read by Spark"
    plain = collect(connection, "s", watch_s=0)
    assert found["profile"]["entries"] == plain.profile.entries == 500
    assert tuple(found["profile"]["gaps"]) == plain.profile.gaps
