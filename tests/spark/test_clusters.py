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
from streamd.client.options import ConnectionOptions
from streamd.client.points import format_entry_id
from streamd.embedded import EmbeddedCluster
from streamd.partitions import Parts
from streamd.spark.sink.requests import RowPlan
from streamd.spark.sink.writer import write_rows
from streamd.spark.source.offsets import Offset
from streamd.spark.source.planner import Planner
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


def test_a_write_names_one_stream_and_its_markers_are_in_its_slot() -> None:
    cluster = {"url": "redis+cluster://h:1"}
    with pytest.raises(OptionError, match=r"^option stream: must be given for a cluster"):
        SinkOptions.parse(cluster)
    with pytest.raises(OptionError, match=r"^option markerPrefix: must not contain a hash tag"):
        SinkOptions.parse({**cluster, "stream": "s", "delivery": "exactly-once", "markerPrefix": "{a}"})
    made = SinkOptions.parse({**cluster, "stream": "{a}:s", "delivery": "exactly-once"})
    assert (made.marker_prefix, made.connection.key) == ("streamd:sink:{a}:", b"{a}:s")


TABLE = StructType([StructField("k", StringType()), StructField("n", LongType())])
WITH_IDS = StructType([*TABLE.fields, StructField("id", StringType())])
ROWS = 3000


def batches_of(table: StructType) -> Iterator[pyarrow.RecordBatch]:
    numbers = [*range(1, ROWS + 1)]
    columns = {"k": [f"k{n}" for n in numbers], "n": numbers, "id": [f"{n}-0" for n in numbers]}
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
