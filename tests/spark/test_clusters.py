"""Spark reads streams of a cluster, and writes to one, while slots move and primaries die."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow
import redis
from pyspark.sql.types import LongType, StringType, StructField, StructType
from support.cluster.embedded import move, url_of, wait_for_replicas
from support.servers import eventually
from support.spark.session import QUERIES, batches_planned, session_of_its_own

from streamd.client.client_errors import DeliveryError, OptionError
from streamd.client.connection import connect
from streamd.client.points import format_entry_id
from streamd.client.url_options import ConnectionOptions
from streamd.embedded import EmbeddedCluster
from streamd.partitions import Parts
from streamd.spark.sink.row_requests import RowPlan
from streamd.spark.sink.writer import write_rows
from streamd.spark.source.offsets import Offset
from streamd.spark.source.planner import Planner
from streamd.transfer.batch_rows import BatchRows
from streamd.transfer.chunk_delivery import Delivery
from streamd.transfer.read_options import SourceOptions
from streamd.transfer.task import Task
from streamd.transfer.write_options import SinkOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long

PARTS, DEADLINE_S = 8, 200


def produce(client: redis.RedisCluster, parts: Parts, first: int, last: int) -> None:
    with client.pipeline() as pipeline:
        for number in range(first, last):
            pipeline.xadd(parts.streams[number % PARTS], {"n": number})
        pipeline.execute()


def move_away(cluster: EmbeddedCluster, stream: str) -> None:
    """The slot of a stream to another node."""
    client = cluster.client()  # which knows where it is now
    slot, port = client.keyslot(stream), client.get_node_from_key(stream).port
    owner = next(at for at, node in enumerate(cluster.nodes) if node.port == port)
    move(cluster, slot, slot, (owner + 1) % len(cluster.nodes))


def served_by(cluster: EmbeddedCluster, stream: str) -> int:
    """The port of the primary of a stream now."""
    return int(cluster.client().get_node_from_key(stream).port)


def batches_done(folder: Path) -> int:
    """The batches of the checkpoint that have ended."""
    return sum(each.name.isdigit() for each in (folder / "checkpoint" / "commits").glob("*"))


def planner_of(cluster: EmbeddedCluster, **more: str) -> Planner:
    options = {"url": url_of(cluster, 0, 1), "streamPattern": "orders:*", "startingId": "earliest", **more}
    return Planner(SourceOptions.parse(options))


def rows_of(offset: Offset | None) -> int:
    return 0 if offset is None else sum(part.count or 0 for part in offset.parts())


# --- Without Spark ----------------------------------------------------------------------------------------------------


def test_requests_go_to_the_nodes_of_their_keys(streamd_cluster: EmbeddedCluster) -> None:
    client = streamd_cluster.client()
    for number in range(20):
        client.xadd(f"k:{number}", {"n": number}, id="1-1")
    keys = [b"k:%d" % number for number in range(20)]
    with connect(ConnectionOptions.parse({"url": url_of(streamd_cluster)})) as connection:
        assert connection.pipeline([("XLEN", key) for key in keys]) == [1] * 20
        assert [connection.command("XINFO", "STREAM", key)[1] for key in keys] == [1] * 20
        found = connection.command("XREAD", "COUNT", 1, "STREAMS", *keys, *["0"] * 20)
        assert {key: entries[0][1] for key, entries in found} == {key: [b"n", key[2:]] for key in keys}
        assert connection.command("XREAD", "COUNT", 1, "STREAMS", *keys, *["5"] * 20) is None
        cursor, seen = b"0", []
        while True:
            cursor, page = connection.command("SCAN", cursor, "COUNT", 2)
            seen += page
            if cursor == b"0":
                break
        assert sorted(seen) == sorted(keys)


@pytest.mark.parametrize("limits", [{}, {"maxEntriesPerTrigger": "100"}, {"minPartitions": "16"}])
def test_batches_are_planned_over_all_nodes_while_slots_move(
    streamd_cluster: EmbeddedCluster, limits: dict[str, str]
) -> None:
    client = streamd_cluster.client(decode_responses=True)
    parts = Parts.open(client, "orders", PARTS)
    produce(client, parts, 0, 800)
    planner = planner_of(streamd_cluster, **limits)
    offset, rows = planner.initial(), 0
    for turn in range(9):
        found = planner.latest(offset, is_limited=True)
        rows += rows_of(found)
        offset = found or offset
        move_away(streamd_cluster, parts.streams[turn % PARTS])
    assert rows == 800
    assert {name: client.xinfo_stream(name)["last-generated-id"] for name in parts.streams} == {
        name: format_entry_id(lag.end) for name, lag in planner.lags().items()
    }
    produce(client, parts, 800, 808)
    assert rows_of(planner.latest(offset, is_limited=False)) == 8
    planner.close()


def test_markers_are_in_the_slot_of_their_stream() -> None:
    cluster = {"url": "redis+cluster://h:1"}
    assert SinkOptions.parse(cluster).is_spread
    with pytest.raises(OptionError, match=r"^option markerPrefix: must not contain a hash tag"):
        SinkOptions.parse({**cluster, "stream": "s", "delivery": "exactly-once", "markerPrefix": "{a}"})
    made = SinkOptions.parse({**cluster, "stream": "{a}:s", "delivery": "exactly-once"})
    assert (made.marker_prefix, made.connection.key) == ("streamd:sink:{a}:", b"{a}:s")


TABLE = StructType([StructField("k", StringType()), StructField("n", LongType())])
WITH_IDS = StructType([*TABLE.fields, StructField("id", StringType())])
SPREAD = StructType([StructField("stream", StringType()), *TABLE.fields])
SPREAD_WITH_IDS = StructType([StructField("stream", StringType()), *WITH_IDS.fields])
ROWS = 3000
STREAMS = ("{a}:0", "{a}:1", "b", "c", "d", "e", "f:{", "g}")


def stream_of(number: int) -> str:
    return STREAMS[number * number % 17 % len(STREAMS)]


def batches_of(table: StructType, rows: int = ROWS) -> Iterator[pyarrow.RecordBatch]:
    numbers = [*range(1, rows + 1)]
    columns = {
        "k": [f"k{n}" for n in numbers],
        "n": numbers,
        "id": [f"{n}-0" for n in numbers],
        "stream": [*map(stream_of, numbers)],
    }
    yield from pyarrow.table({name: columns[name] for name in table.names}).to_batches(max_chunksize=500)


@pytest.mark.parametrize(
    ("options", "table"),
    [({"delivery": "exactly-once"}, TABLE), ({"idempotencyKey": "k"}, TABLE), ({"idColumn": "id"}, WITH_IDS)],
    ids=["marker", "key", "id"],
)
def test_rows_are_written_once_while_the_slot_of_the_stream_moves(
    streamd_cluster: EmbeddedCluster, options: dict[str, str], table: StructType
) -> None:
    client = streamd_cluster.client(decode_responses=True)
    given = {"url": url_of(streamd_cluster, 0, 1), "stream": "out", "chunkSize": "20", **options}
    plan = RowPlan.of(table, SinkOptions.parse(given))

    def move_when(count: int) -> None:
        eventually(lambda: streamd_cluster.client().xlen("out") >= count, DEADLINE_S)
        move_away(streamd_cluster, "out")

    with ThreadPoolExecutor() as pool:
        written = pool.submit(write_rows, plan, Task("q", 1, 0), batches_of(table))
        for count in (100, 1000):
            move_when(count)
        assert written.result(DEADLINE_S) == {b"out": ROWS}
    write_rows(plan, Task("q", 1, 0, "again"), batches_of(table))
    assert [int(fields["n"]) for _, fields in client.xrange("out")] == [*range(1, ROWS + 1)]


def test_a_task_that_is_tried_again_after_its_primary_died_writes_each_row_once(
    streamd_start_cluster: Callable[..., EmbeddedCluster],
) -> None:
    cluster = streamd_start_cluster(nodes=6, replicas=1, cluster_node_timeout=1000, repl_diskless_sync_delay=0)
    given = {"url": url_of(cluster, *range(6)), "stream": "out", "chunkSize": "20", "delivery": "exactly-once"}
    plan = RowPlan.of(TABLE, SinkOptions.parse(given))

    def try_as_spark_does() -> dict[bytes, int]:
        # The fail-over may have lost chunks that were answered, and their marker: "is gone or was reset".
        with suppress(DeliveryError):
            return write_rows(plan, Task("q", 1, 0), batches_of(TABLE))
        return write_rows(plan, Task("q", 1, 0), batches_of(TABLE))

    client = cluster.client()
    dying = client.get_node_from_key("out").port
    with ThreadPoolExecutor() as pool:
        written = pool.submit(try_as_spark_does)
        eventually(lambda: client.xlen("out") >= 500, DEADLINE_S)
        next(node for node in cluster.nodes if node.port == dying).kill()
        assert written.result(DEADLINE_S) == {b"out": ROWS}
    found = cluster.client(decode_responses=True).xrange("out")
    assert [int(fields["n"]) for _, fields in found] == [*range(1, ROWS + 1)]


def assert_each_row_once(client: redis.RedisCluster) -> None:
    """Every stream has its rows, in their order."""
    for stream in STREAMS:
        expected = [number for number in range(1, ROWS + 1) if stream_of(number) == stream]
        assert [int(fields["n"]) for _, fields in client.xrange(stream)] == expected


class StoppedError(Exception):
    """In place of the end of a process."""


@pytest.mark.parametrize(
    ("options", "table"),
    [
        ({"delivery": "exactly-once"}, SPREAD),
        ({"idempotencyKey": "k"}, SPREAD),
        ({"idColumn": "id", "delivery": "exactly-once"}, SPREAD_WITH_IDS),
    ],
    ids=["marker", "key", "id"],
)
def test_rows_of_several_streams_are_written_once_however_often_a_task_ends(
    streamd_cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch, options: dict[str, str], table: StructType
) -> None:
    client = streamd_cluster.client(decode_responses=True)
    given = {"url": url_of(streamd_cluster, 0, 1), "chunkSize": "20", **options}
    plan = RowPlan.of(table, SinkOptions.parse(given))
    write, left = Delivery.deliver, 0  # chunks until the task ends

    def deliver_some(delivery: Delivery, rows: BatchRows, start: int, stop: int) -> int:
        nonlocal left
        stop = write(delivery, rows, start, stop)
        left -= 1
        if left == 0:
            raise StoppedError("stopped")
        return stop

    monkeypatch.setattr(Delivery, "deliver", deliver_some)
    for number, chunks in enumerate((1, 3, 20, 60, 111, 140)):
        left = chunks
        with pytest.raises(StoppedError, match="stopped"):
            write_rows(plan, Task("q", 1, 0, f"attempt-{number}"), batches_of(table))
        move_away(streamd_cluster, STREAMS[number])
    left = 0
    streams = [stream_of(number) for number in range(1, ROWS + 1)]
    assert write_rows(plan, Task("q", 1, 0, "last"), batches_of(table)) == {
        name.encode(): count for name, count in Counter(streams).items()
    }
    assert_each_row_once(client)


@pytest.mark.parametrize("query", ["b", "a"])
def test_a_write_may_have_the_name_of_a_stream(streamd_cluster: EmbeddedCluster, query: str) -> None:
    plan = RowPlan.of(SPREAD, SinkOptions.parse({"url": url_of(streamd_cluster), "delivery": "exactly-once"}))
    for attempt in ("first", "again"):
        write_rows(plan, Task(query, 0, 0, attempt), batches_of(SPREAD))
        assert_each_row_once(streamd_cluster.client(decode_responses=True))


def test_another_batch_than_the_one_that_was_begun_is_refused(streamd_cluster: EmbeddedCluster) -> None:
    given = {"url": url_of(streamd_cluster), "delivery": "exactly-once"}
    plan = RowPlan.of(SPREAD, SinkOptions.parse(given))
    write_rows(plan, Task("q", 1, 0, "first"), batches_of(SPREAD))
    with pytest.raises(DeliveryError, match="repeated with other rows"):
        write_rows(plan, Task("q", 1, 0, "again"), batches_of(SPREAD, ROWS - 1))
    with pytest.raises(DeliveryError, match="partition 0 has other rows"):
        write_rows(plan, Task("q", 1, 1, "again"), batches_of(SPREAD))
    write_rows(plan, Task("q", 1, 0, "as-it-was"), batches_of(SPREAD))
    assert_each_row_once(streamd_cluster.client(decode_responses=True))
    write_rows(plan, Task("q", 2, 0, "next"), batches_of(SPREAD, 10))
    with pytest.raises(DeliveryError, match="overtaken"):
        write_rows(plan, Task("q", 1, 0, "late"), batches_of(SPREAD))


def test_a_primary_dies_while_rows_of_several_streams_are_written(
    streamd_start_cluster: Callable[..., EmbeddedCluster],
) -> None:
    cluster = streamd_start_cluster(nodes=6, replicas=1, cluster_node_timeout=1000, repl_diskless_sync_delay=0)
    given = {"url": url_of(cluster, *range(6)), "chunkSize": "20", "delivery": "exactly-once"}
    plan = RowPlan.of(SPREAD, SinkOptions.parse(given))
    first = stream_of(1)

    def try_as_spark_does() -> None:
        for attempt in range(3):
            with suppress(DeliveryError):
                write_rows(plan, Task("q", 1, 0, f"attempt-{attempt}"), batches_of(SPREAD))
                return

    dying = served_by(cluster, first)
    with ThreadPoolExecutor() as pool:
        written = pool.submit(try_as_spark_does)
        eventually(lambda: cluster.client().xlen(first) >= 40, DEADLINE_S)
        next(node for node in cluster.nodes if node.port == dying).kill()
        written.result(DEADLINE_S)
    assert_each_row_once(cluster.client(decode_responses=True))


# --- With Spark -------------------------------------------------------------------------------------------------------


@pytest.mark.spark
def test_a_frame_has_the_entries_of_all_nodes(spark: SparkSession, streamd_cluster: EmbeddedCluster) -> None:
    client = streamd_cluster.client(decode_responses=True)
    parts = Parts.open(client, "orders", PARTS)
    produce(client, parts, 0, 400)
    options = {"url": url_of(streamd_cluster, 1, 2), "streamPattern": "orders:*"}
    frame = spark.read.format("streamd").options(**options).schema("stream string, n long").load()
    assert Counter(row.stream for row in frame.collect()) == dict.fromkeys(parts.streams, 50)
    frame.select("n").write.format("streamd").options(url=options["url"], stream="copy").mode("append").save()
    assert sorted(int(fields["n"]) for _, fields in client.xrange("copy")) == list(range(400))


@pytest.mark.spark
@QUERIES
@pytest.mark.parametrize("victim", ["part", "sink"])
def test_a_query_over_parts_has_each_row_once_when_a_primary_dies(
    java: Path, streamd_start_cluster: Callable[..., EmbeddedCluster], tmp_path: Path, victim: str
) -> None:
    cluster = streamd_start_cluster(nodes=6, replicas=1, cluster_node_timeout=1000, repl_diskless_sync_delay=0)
    client = cluster.client(decode_responses=True)
    parts = Parts.open(client, "orders", PARTS)
    produce(client, parts, 0, 400)
    url = url_of(cluster, *range(6))
    source = {"url": url, "streamPattern": "orders:*", "startingId": "earliest", "maxEntriesPerTrigger": "100"}
    sink = {"url": url, "stream": "out", "delivery": "exactly-once", "chunkSize": "10"}
    with session_of_its_own(tmp_path, source, is_final=False, sink=sink, master="local[2,3]"):
        eventually(lambda: client.xlen("out") >= 100, DEADLINE_S)
        dying = client.get_node_from_key("out" if victim == "sink" else parts.streams[3]).port
        wait_for_replicas(cluster, dying)
        next(node for node in cluster.nodes if node.port == dying).kill()
        eventually(lambda: all(served_by(cluster, name) != dying for name in ["out", *parts.streams]))
        cluster.wait_until_ok()
        produce(cluster.client(decode_responses=True), parts, 400, 800)
        eventually(lambda: cluster.client().xlen("out") >= 800, DEADLINE_S)
        eventually(lambda: batches_done(tmp_path) == batches_planned(tmp_path), DEADLINE_S)
    found = Counter(int(fields["n"]) for _, fields in cluster.client(decode_responses=True).xrange("out"))
    assert found == Counter(range(800))
