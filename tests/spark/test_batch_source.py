"""Batch reads through Spark: what comes out is what is in the stream, whatever is asked for and however it is cut."""

from __future__ import annotations

import datetime
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis
from support.servers import Server, free_port, python_environment
from support.spark.session import HAS_LIMITS, ON_BOTH

from streamd.spark.session import PUSHDOWN_CONF

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.long, pytest.mark.spark]

Options = dict[str, str]


def read(spark: SparkSession, options: Options, schema: str | None = None, **more: str) -> DataFrame:
    reader = spark.read.format("streamd").options(**options, **more)
    return (reader.schema(schema) if schema is not None else reader).load()


def fill(store: redis.Redis, key: str, count: int, per_ms: int = 3) -> list[str]:
    """Entries 1-0, 1-1, 1-2, 2-0 ... with two fields; their IDs."""
    ids = [f"{1 + at // per_ms}-{at % per_ms}" for at in range(count)]
    pipe = store.pipeline(transaction=False)
    for at, each in enumerate(ids):
        pipe.xadd(key, {"n": at, "half": at / 2}, id=each)
    pipe.execute()
    return ids


@ON_BOTH
def test_every_entry_comes_once_and_whole(spark: SparkSession, store: redis.Redis, source_options: Options) -> None:
    store.xadd("s", {b"a": b"1", b"\xff": b"\xfe\x00"}, id="5-1")
    store.execute_command("XADD", "s", "1700000000123-7", "a", "1", "a", "2", "", "")
    store.xadd("s", {"x": "y"}, id="18446744073709551615-18446744073709551615")
    rows = read(spark, source_options, stream="s").orderBy("ms").collect()
    found = {
        row.id: (row.ms, row.seq, row.stream, [(bytes(f.field), bytes(f.value)) for f in row.fields]) for row in rows
    }
    assert found == {
        "5-1": (5, 1, "s", [(b"a", b"1"), (b"\xff", b"\xfe\x00")]),
        "1700000000123-7": (1700000000123, 7, "s", [(b"a", b"1"), (b"a", b"2"), (b"", b"")]),
        "18446744073709551615-18446744073709551615": (None, None, "s", [(b"x", b"y")]),
    }
    times = {row.id: row.time for row in rows}
    assert times["1700000000123-7"].astimezone(datetime.UTC) == datetime.datetime(
        2023, 11, 14, 22, 13, 20, 123000, datetime.UTC
    )
    assert times["18446744073709551615-18446744073709551615"] is None


def test_a_schema_flattens_and_casts(spark: SparkSession, store: redis.Redis, source_options: Options) -> None:
    store.xadd("s", {"n": "7", "t": "2024-02-29T10:00:00+02:00", "price": "3.455", "ok": "yes"}, id="1-1")
    store.xadd("s", {"n": "seven", "ok": "0"}, id="2-1")
    schema = "n int, ok boolean, price decimal(6,2), t timestamp, id string, ms decimal(20,0), _corrupt_record string"
    first, second = read(spark, source_options, schema, stream="s").orderBy("ms").collect()
    assert (first.n, first.ok, first.price, first.ms, first._corrupt_record) == (7, True, Decimal("3.46"), 1, None)
    assert first.t.astimezone(datetime.UTC) == datetime.datetime(2024, 2, 29, 8, tzinfo=datetime.UTC)
    assert (second.n, second.ok, second.price, second._corrupt_record) == (None, False, None, '{"n":"seven","ok":"0"}')
    dropped = read(spark, source_options, "n int", stream="s", mode="DROPMALFORMED").collect()
    assert [row.n for row in dropped] == [7]
    with pytest.raises(Exception, match=r"entry 2-1 of stream s: field n is not of type int32: b'seven'"):
        read(spark, source_options, "n int", stream="s", mode="FAILFAST").collect()


@pytest.mark.parametrize(
    "more", [{"minPartitions": "7"}, {"maxRecordsPerPartition": "37"}, {"fetchSize": "10", "batchSize": "25"}]
)
def test_partitions_hold_every_entry_once(
    spark: SparkSession, store: redis.Redis, source_options: Options, more: Options
) -> None:
    ids = fill(store, "s", 500)
    frame = read(spark, source_options, stream="s", **more)
    assert [row.id for row in frame.select("id").collect()] == ids
    sizes = [size for size in frame.rdd.mapPartitions(lambda rows: [sum(1 for _ in rows)]).collect() if size]
    if "minPartitions" in more:
        assert len(sizes) == 7
        assert max(sizes) < 2 * 500 / 7
    if "maxRecordsPerPartition" in more:
        assert len(sizes) == 14
        assert max(sizes) <= 37


def test_filters_are_applied(spark: SparkSession, store: redis.Redis, source_options: Options) -> None:
    fill(store, "a", 300)
    fill(store, "b", 300)
    frame = read(spark, source_options, streams="a,b")
    assert frame.where("ms > 90").union(frame).count() == 60 + 600
    assert frame.where("stream = 'b' and id in ('7-0', '9-2')").count() == 2


def test_filters_narrow_what_is_read_when_that_is_asked_for(
    spark: SparkSession, store: redis.Redis, source_options: Options
) -> None:
    fill(store, "a", 300)
    fill(store, "b", 300)

    def count(condition: str) -> int:
        # A DataFrame of its own each: PySpark keeps the filters of its first use.
        return read(spark, source_options, streams="a,b", pushdown="true").where(condition).count()

    spark.conf.set(PUSHDOWN_CONF, "true")
    try:
        assert count("ms >= 11 and ms < 13") == 12
        assert count("id = '5-1'") == 2
        assert count("stream = 'b' and id in ('7-0', '9-2')") == 2
        assert count("time <= timestamp'1970-01-01 00:00:00.010'") == 60
        assert count("ms > 50 or stream = 'a'") == 450
        before = store.info("commandstats")["cmdstat_xrange"]["calls"]
        assert count("ms = 5 and stream = 'a'") == 3
        assert store.info("commandstats")["cmdstat_xrange"]["calls"] - before < 10
    finally:
        spark.conf.set(PUSHDOWN_CONF, "false")


def test_sql_finds_the_source_by_its_name(spark: SparkSession, store: redis.Redis, source_options: Options) -> None:
    ids = fill(store, "s", 9)
    given = ", ".join(
        f"{name} '{value}'" for name, value in {**source_options, "stream": "s", "startingId": "2"}.items()
    )
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW entries USING streamd OPTIONS ({given})")
    assert [row.id for row in spark.sql("SELECT id FROM entries").collect()] == ids[3:]


def test_the_source_is_found_without_a_call(spark: SparkSession, store: redis.Redis, source_options: Options) -> None:
    """By the package pyspark_streamd, in a session in which nothing was registered."""
    store.xadd("s", {"a": "b"})
    other = spark.newSession()
    assert other.read.format("streamd").options(**source_options, stream="s").load().count() == 1
    other.sql(f"CREATE TEMPORARY VIEW v USING streamd OPTIONS (port '{source_options['port']}', stream 's')")
    assert [row.id for row in other.sql("SELECT id FROM v").collect()] == [store.xrange("s")[0][0].decode()]


def test_patterns_and_missing_streams(spark: SparkSession, store: redis.Redis, source_options: Options) -> None:
    fill(store, "sensor:1", 4)
    fill(store, "sensor:2", 5)
    store.set("sensor:string", "x")
    counts = read(spark, source_options, streamPattern="sensor:*").groupBy("stream").count().collect()
    assert {row.stream: row["count"] for row in counts} == {"sensor:1": 4, "sensor:2": 5}
    assert read(spark, source_options, streamPattern="nothing:*").count() == 0
    with pytest.raises(Exception, match=r"WRONGTYPE .*\(stream sensor:string\)"):
        read(spark, source_options, stream="sensor:string").count()


@ON_BOTH
def test_a_named_stream_that_is_not_there_is_an_error(
    spark: SparkSession, store: redis.Redis, source_options: Options
) -> None:
    store.xadd("s", {"a": "b"})
    store.xadd("empty", {"a": "b"}, id="1-1")
    store.xdel("empty", "1-1")
    with pytest.raises(Exception, match=r"MissingStreamError: there is no stream 'nosuch' at 127\.0\.0\.1:"):
        read(spark, source_options, streams="s,nosuch").count()
    assert read(spark, source_options, streams="s,nosuch", failOnMissing="false").count() == 1
    assert read(spark, source_options, streams="s,empty").count() == 1
    assert sorted(store.keys()) == [b"empty", b"s"]


def test_fields_may_be_text(
    spark: SparkSession, store: redis.Redis, source_options: Options, capsys: pytest.CaptureFixture[str]
) -> None:
    store.execute_command("XADD", "s", "5-1", "a", "1", "a", "2", "b", "é")
    frame = read(spark, source_options, stream="s", fields="text")
    frame.select("id", "fields").show(truncate=False)
    assert "|5-1|[{a, 1}, {a, 2}, {b, é}]|" in capsys.readouterr().out
    frame.write.format("streamd").mode("append").options(**source_options, stream="copy").save()
    assert store.xrange("copy")[0][1] == {b"a": b"2", b"b": "é".encode()}


def test_errors_are_one_line_without_a_stack(
    spark: SparkSession, store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    store.xadd("s", {"a": "b"}, id="1-1")
    closed = {"port": str(free_port()), "retries": "0", "stream": "s"}
    rows = spark.range(1).selectExpr("string(id) AS n")
    failing = [
        (lambda: read(spark, closed).count(), "UnreachableError: Could not connect"),
        (
            lambda: read(spark, source_options, "a int", stream="s", mode="FAILFAST").count(),
            "MalformedError: entry 1-1",
        ),
        (lambda: read(spark, source_options, strean="s").count(), "OptionError: option strean: unknown option"),
        (lambda: rows.write.format("streamd").mode("append").options(**closed).save(), "UnreachableError: Could not"),
    ]
    if HAS_LIMITS:
        failing.append((lambda: read_in_a_query(spark, closed, tmp_path), "UnreachableError: Could not connect"))
    for action, text in failing:
        with pytest.raises(Exception, match=text) as caught:
            action()
        assert "Traceback" not in str(caught.value)
        assert text in "".join(str(caught.value).splitlines()[:4])  # older releases begin with words of their own


def read_in_a_query(spark: SparkSession, options: Options, folder: Path) -> None:
    frame = spark.readStream.format("streamd").options(**options).load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination(200)


@pytest.mark.long
@pytest.mark.usefixtures("java")
def test_a_session_prints_nothing_but_what_it_was_asked_for(store: redis.Redis, source_options: Options) -> None:
    """In a process of its own, with the log that `session` sets up: no stack of Java, no warning of ours."""
    store.xadd("s", {"sensor": "a"}, id="1-1")
    program = f"""
import streamd.spark
from streamd.spark.analytics import gaps

spark = streamd.spark.session(master="local[2]")
streamd.spark.register(spark)
frame = spark.read.format("streamd").options(port="{source_options["port"]}", fields="text").option("stream", "s").load()
frame.select("id", "fields").show()
gaps(frame.drop("stream")).count()
try:
    spark.range(1).selectExpr("string(id) AS n").write.format("streamd").mode("append").options(
        port="{free_port()}", stream="s", retries="0").save()
except Exception as error:
    print(error)
"""
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env=python_environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-5000:]
    assert "|1-1|[{sensor, a}]|" in ran.stdout
    assert "UnreachableError: Could not connect" in ran.stdout
    # What the Java virtual machine itself says, before there is a log.
    said = [line for line in ran.stderr.splitlines() if not line.startswith(("WARNING:", "NOTE:", "Picked up"))]
    assert said == []


def test_what_cannot_be_taken_is_said_with_the_name_of_the_option(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="option port: 'many' is not a whole number from 1 to 65535"):
        read(spark, {}, stream="s", port="many").count()
    with pytest.raises(Exception, match="option strean: unknown option; did you mean stream"):
        read(spark, {}, strean="s").count()


def test_passwords_are_in_no_plan(
    spark: SparkSession, new_streamd: Any, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    server: Server = new_streamd(requirepass="hidden-word")
    client = redis.Redis(port=server.port, password="hidden-word", protocol=2)
    client.xadd("s", {"a": "b"})
    client.close()
    secret = tmp_path / "password"
    secret.write_text("hidden-word\n")
    for given in (
        {"password": "hidden-word", "port": str(server.port)},
        {"passwordFile": str(secret), "port": str(server.port)},
        {"url": f"redis://:hidden-word@127.0.0.1:{server.port}/0"},
    ):
        frame = read(spark, given, stream="s")
        frame.explain("extended")
        assert "hidden-word" not in capsys.readouterr().out
        assert frame.count() == 1
    with pytest.raises(Exception, match="WRONGPASS") as caught:
        read(spark, {"password": "wrong-hidden-word", "port": str(server.port)}, stream="s").count()
    assert "wrong-hidden-word" not in str(caught.value)
