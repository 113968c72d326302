"""The sink against servers: deliveries by themselves, then under Spark with tasks that fail and batches that are repeated."""

from __future__ import annotations

import collections
import contextlib
import random
import shutil
import socket
import tempfile
import threading
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow
import pyarrow.parquet
import redis
from pyspark.errors import StreamingQueryException
from pyspark.sql.types import LongType, StringType, StructField, StructType
from support.servers import Server, eventually, free_port
from support.spark.session import batches_planned, random_source, session_of_its_own, wait_for_batches

from streamd.client.client_errors import DeliveryError, OptionError, ServerError, UnreachableError
from streamd.spark import register
from streamd.spark.sink.deliveries import open_delivery
from streamd.spark.sink.journal import Content, Journal
from streamd.spark.sink.row_requests import RowPlan
from streamd.spark.sink.writer import write_rows
from streamd.transfer.batch_rows import BatchRows
from streamd.transfer.marked import Marked, Marker
from streamd.transfer.task import Task
from streamd.transfer.write_options import SinkOptions

pytestmark = pytest.mark.long

TASK = Task("query", 3, 0)
TABLE = StructType([StructField("k", StringType()), StructField("n", LongType())])
ROUTED = StructType([*TABLE.fields, StructField("stream", StringType())])
WITH_IDS = StructType([*TABLE.fields, StructField("id", StringType())])

MODES = {
    "marker": {"delivery": "exactly-once"},
    "key": {"idempotencykey": "k"},
    "id": {"idcolumn": "id"},
}
PLAIN: dict[str, str] = {}


@pytest.fixture(params=["streamd", pytest.param("redis", marks=pytest.mark.real), "valkey"])
def server(request: pytest.FixtureRequest) -> Server:
    found: Server = request.getfixturevalue(f"{request.param}_server")
    return found


@pytest.fixture
def streamd_store(streamd_server) -> Iterator[redis.Redis]:
    with redis.Redis(port=streamd_server.port, protocol=2) as client:
        client.flushall()
        yield client
        client.flushall()


def plan_for(port: int, table: StructType = TABLE, **options: str) -> RowPlan:
    given = {"port": str(port), "chunksize": "200", "retrybackoff": "10", "retrymaxbackoff": "50", **options}
    if "stream" not in table.names:
        given.setdefault("stream", "s")
    return RowPlan.of(table, SinkOptions.parse(given))


def record_batches(count, size=500, *, streams=None):
    """Rows 0 to `count`: key k<n>, number n, ID <n + 1>-0; and by turns each of `streams`."""
    for start in range(0, count, size):
        numbers = range(start, min(start + size, count))
        columns = {"k": [f"k{n}" for n in numbers], "n": [*numbers], "id": [f"{n + 1}-0" for n in numbers]}
        if streams:
            columns["stream"] = [streams[n % len(streams)] for n in numbers]
        yield pyarrow.record_batch(columns)


def stops_after(batches, rows):
    """Some batches, then the failure of a task."""
    for batch in batches:
        if rows <= 0:
            break
        rows -= batch.num_rows
        yield batch
    raise ConnectionAbortedError("the task fails")


def numbers_in(store, stream="s"):
    """How often each row is there."""
    return collections.Counter(int(fields[b"n"]) for _, fields in store.xrange(stream))


def once_each(count):
    return collections.Counter(range(count))


def fail_then_repeat(plan, count=2500):
    with pytest.raises(ConnectionAbortedError, match="the task fails"):
        write_rows(plan, TASK, stops_after(record_batches(count), 1500))
    write_rows(plan, TASK, record_batches(count, 777))
    write_rows(plan, TASK, record_batches(count))


# --- Tasks that fail, batches that are repeated ---------------------------------------------------------------------


def test_plain_delivery_doubles_what_is_repeated(server, store):
    fail_then_repeat(plan_for(server.port))
    assert sum(numbers_in(store).values()) == 1500 + 2500 + 2500


@pytest.mark.parametrize("mode", MODES)
def test_exactly_the_input_is_there_after_failures_and_repetitions(server, store, mode):
    fail_then_repeat(plan_for(server.port, WITH_IDS if mode == "id" else TABLE, **MODES[mode]))
    assert numbers_in(store) == once_each(2500)


def test_the_marker_tells_batches_and_partitions_apart(server, store):
    plan = plan_for(server.port, **MODES["marker"])
    for task in (Task("q", 0, 0), Task("q", 0, 1), Task("q", 1, 0), Task("r", 0, 0), Task("q", 1, 0)):
        write_rows(plan, task, record_batches(300))
    assert numbers_in(store) == collections.Counter(dict.fromkeys(range(300), 4))


def test_streams_are_routed_by_the_column(server, store):
    write_rows(plan_for(server.port, ROUTED, **MODES["marker"]), TASK, record_batches(1000, streams=["a", "b", "c"]))
    assert numbers_in(store, "a") == collections.Counter(range(0, 1000, 3))
    assert sorted(store.keys("?")) == [b"a", b"b", b"c"]
    assert b"stream" not in store.xrange("a", count=1)[0][1]


@pytest.mark.parametrize("count", [0, 1, 199, 200, 201])
def test_chunks_of_any_length_are_whole(server, store, count):
    plan = plan_for(server.port, **MODES["marker"])
    assert write_rows(plan, TASK, record_batches(count)) == ({b"s": count} if count else {})
    assert numbers_in(store) == once_each(count)


def test_nothing_is_asked_of_the_server_without_rows():
    assert write_rows(plan_for(free_port(), **MODES["key"]), TASK, record_batches(0)) == {}


# --- Connections that break -----------------------------------------------------------------------------------------


class Proxy:
    """Between client and server; cuts the connection once, at the `cut_at`-th EXEC.

    loses  `request`: EXEC never reaches the server; `reply`: the server executes it, and the client is not told
    """

    def __init__(self, port: int, cut_at: int, loses: str) -> None:
        self._port = port
        self._left = cut_at
        self._loses = loses
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def has_cut(self) -> bool:
        return self._left <= 0

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with client, socket.create_connection(("127.0.0.1", self._port)) as server:
                self._carry(client, server)

    def _carry(self, client: socket.socket, server: socket.socket) -> None:
        is_cut = threading.Event()
        answers = threading.Thread(target=self._copy, args=(server, client, is_cut), daemon=True)
        answers.start()
        seen = b""
        while not is_cut.is_set() and (data := client.recv(65536)):
            *executed, seen = (seen + data).split(b"\r\nEXEC\r\n")
            seen = seen[-20:]
            if 0 < self._left <= len(executed):
                is_cut.set()
            self._left -= len(executed)
            if is_cut.is_set() and self._loses == "request":
                break
            server.sendall(data)
        # The server reads to the end, executes what it has, answers and closes; `_copy` sees that.
        server.shutdown(socket.SHUT_WR)
        answers.join(100)

    def _copy(self, server: socket.socket, client: socket.socket, is_cut: threading.Event) -> None:
        while data := server.recv(65536):
            if not is_cut.is_set():
                with contextlib.suppress(OSError):
                    client.sendall(data)

    def close(self) -> None:
        self._listener.close()


@pytest.mark.parametrize("loses", ["request", "reply"])
@pytest.mark.parametrize("mode", MODES)
def test_a_connection_that_breaks_in_a_transaction_doubles_and_loses_nothing(server, store, mode, loses):
    # The first EXEC of the mode `key` is that of the stream's settings.
    proxy = Proxy(server.port, cut_at=4, loses=loses)
    try:
        plan = plan_for(proxy.port, WITH_IDS if mode == "id" else TABLE, **MODES[mode])
        write_rows(plan, TASK, record_batches(2000))
    finally:
        proxy.close()
    assert proxy.has_cut
    assert numbers_in(store) == once_each(2000)


def test_plain_delivery_writes_a_chunk_again_when_its_reply_is_lost(server, store):
    proxy = Proxy(server.port, cut_at=4, loses="reply")
    try:
        write_rows(plan_for(proxy.port), TASK, record_batches(2000))
    finally:
        proxy.close()
    assert sum(numbers_in(store).values()) == 2200


def test_no_server_is_an_error_after_all_attempts():
    with pytest.raises(UnreachableError, match="Could not connect"):
        write_rows(plan_for(free_port(), retries="2"), TASK, record_batches(1))


def test_a_full_server_is_waited_for(server, store):
    store.config_set("maxmemory", 1)
    before = store.info("stats")["total_error_replies"]
    written = threading.Thread(
        target=write_rows, args=(plan_for(server.port, retries="2000", **MODES["marker"]), TASK, record_batches(1000))
    )
    try:
        written.start()
        eventually(lambda: store.info("stats")["total_error_replies"] > before + 5, what="a refusal")
        assert numbers_in(store) == {}
    finally:
        store.config_set("maxmemory", 0)
        written.join(100)
    assert numbers_in(store) == once_each(1000)


def test_a_full_server_is_an_error_that_names_what_helps(server, store):
    store.config_set("maxmemory", 1)
    try:
        with pytest.raises(ServerError, match=r"OOM.*maxLen or minId"):
            write_rows(plan_for(server.port, retries="1"), TASK, record_batches(1))
    finally:
        store.config_set("maxmemory", 0)


def test_a_missing_password_is_said_with_the_options_name(new_streamd):
    server = new_streamd(requirepass="secret")
    with pytest.raises(OptionError, match=r"option password.*NOAUTH"):
        write_rows(plan_for(server.port), TASK, record_batches(1))


def test_a_user_without_permission_is_said_with_the_options_name(server, store):
    store.execute_command("ACL", "SETUSER", "writer", "on", ">w", "~*", "+@all", "-xadd")
    try:
        with pytest.raises(OptionError, match=r"option username.*NOPERM"):
            write_rows(plan_for(server.port, username="writer", password="w"), TASK, record_batches(1))
    finally:
        store.execute_command("ACL", "DELUSER", "writer")


def test_without_transactions_nothing_is_written_at_all(server, store):
    store.execute_command("ACL", "SETUSER", "writer", "on", ">w", "~*", "+@all", "-multi")
    try:
        with pytest.raises(OptionError, match=r"option username.*NOPERM"):
            write_rows(plan_for(server.port, username="writer", password="w"), TASK, record_batches(1))
    finally:
        store.execute_command("ACL", "DELUSER", "writer")
    assert store.keys() == []


# --- The marker -----------------------------------------------------------------------------------------------------


def open_rows(plan, count, *, streams=None):
    """A delivery that may begin, and all rows in one batch."""
    delivery = open_delivery(plan.options, TASK)
    assert isinstance(delivery, Marked)
    (batch,) = record_batches(count, count, streams=streams)
    rows = BatchRows(plan, plan.encoder(with_idmp=False), plan.prepare(batch))
    journal = Journal(plan.options, TASK, delivery.link, None)
    journal.open("marker")
    content = Content(count, zlib.crc32(rows.encode(0, count)))
    delivery.begin(rows.streams(0, count), lambda: journal.agree(content))
    return delivery, rows


def test_two_attempts_at_the_same_time_write_the_input_once(server, store):
    draw = random.Random(5)
    attempts = []
    for size in ("300", "170"):
        attempts.append([*open_rows(plan_for(server.port, chunksize=size, **MODES["marker"]), 3000), int(size), 0])
    while any(each[3] < 3000 for each in attempts):
        turn = draw.choice([each for each in attempts if each[3] < 3000])
        delivery, rows, size, start = turn
        turn[3] = delivery.deliver(rows, start, min(start + size, 3000))
    for delivery, *_ in attempts:
        delivery.finish()
        delivery.close()
    assert numbers_in(store) == once_each(3000)


@pytest.mark.parametrize("mode", MODES)
def test_attempts_that_run_at_the_same_time_write_the_input_once(server, store, mode):
    failures = []

    def attempt(size):
        try:
            plan = plan_for(server.port, WITH_IDS if mode == "id" else TABLE, chunksize=size, **MODES[mode])
            write_rows(plan, TASK, record_batches(2000))
        except Exception as error:
            failures.append(error)

    attempts = [threading.Thread(target=attempt, args=(size,)) for size in ("50", "60", "70")]
    for each in attempts:
        each.start()
    for each in attempts:
        each.join(100)
    assert failures == []
    assert numbers_in(store) == once_each(2000)


def test_an_attempt_that_a_later_batch_has_overtaken_ends(server, store):
    plan = plan_for(server.port, **MODES["marker"])
    late, rows = open_rows(plan, 400)
    late.deliver(rows, 0, 200)
    write_rows(plan, TASK, record_batches(400))
    write_rows(plan, Task(TASK.query, TASK.batch + 1, TASK.partition), record_batches(400))
    with pytest.raises(DeliveryError, match="overtaken"):
        late.deliver(rows, 200, 400)
    late.close()
    assert sum(numbers_in(store).values()) == 800


def other_rows(count):
    yield from record_batches(count - 100, count - 100)
    yield pyarrow.record_batch({"k": ["other"] * 100, "n": [*range(100)]})


@pytest.mark.parametrize(
    ("changed", "count", "options"),
    [(other_rows, 1000, {}), (record_batches, 700, {}), (record_batches, 1000, {"stream": "t"})],
    ids=["other rows", "fewer rows", "other stream"],
)
def test_a_repeated_batch_that_has_changed_is_an_error(server, store, changed, count, options):
    write_rows(plan_for(server.port, **MODES["marker"]), TASK, record_batches(1000))
    with pytest.raises(DeliveryError, match="repeated with other rows"):
        write_rows(plan_for(server.port, **MODES["marker"], **options), TASK, changed(count))
    assert numbers_in(store) == once_each(1000)
    assert not store.exists("t")


def test_other_rows_are_passed_over_when_that_is_asked_for(server, store):
    plan = plan_for(server.port, verifyreplay="false", **MODES["marker"])
    write_rows(plan, TASK, record_batches(1000))
    write_rows(plan, TASK, other_rows(1000))
    assert numbers_in(store) == once_each(1000)


def test_rows_that_were_refused_are_written_by_the_next_attempt(server, store):
    plan = plan_for(server.port, ROUTED, chunksize="100", **MODES["marker"])
    delivery, rows = open_rows(plan, 300, streams=["a", "b"])
    delivery.deliver(rows, 0, 100)
    # Behind the back of the check that comes before the first row of a stream.
    store.delete("b")
    store.set("b", "no stream")
    with pytest.raises(OptionError, match=r"option streamColumn: b does not hold a stream \(and 49 more rows\)"):
        delivery.deliver(rows, 100, 200)
    delivery.close()
    marker = Marker.parse(b"", store.get("streamd:sink:query:0"))
    assert (marker.rows, marker.missing) == (200, tuple(range(101, 200, 2)))
    with pytest.raises(OptionError, match="option streamColumn"):
        write_rows(plan, TASK, record_batches(300, streams=["a", "b"]))
    store.delete("b")
    write_rows(plan, TASK, record_batches(300, streams=["a", "b"]))
    assert numbers_in(store, "a") == collections.Counter(range(0, 300, 2))
    assert numbers_in(store, "b") == collections.Counter(range(101, 300, 2))
    assert Marker.parse(b"", store.get("streamd:sink:query:0")).missing == ()


def test_a_key_that_is_no_stream_is_found_before_anything_is_written(server, store):
    store.set("b", "no stream")
    with pytest.raises(OptionError, match="option streamColumn: b does not hold a stream"):
        write_rows(plan_for(server.port, ROUTED, **MODES["marker"]), TASK, record_batches(100, streams=["a", "b"]))
    assert not store.exists("a")
    store.delete("b")
    write_rows(plan_for(server.port, ROUTED, **MODES["marker"]), TASK, record_batches(100, streams=["a", "c"]))
    assert (store.xlen("a"), store.xlen("c")) == (50, 50), "nothing was written, so other rows may be"


def test_a_marker_that_vanishes_is_noticed(server, store):
    delivery, rows = open_rows(plan_for(server.port, **MODES["marker"]), 400)
    delivery.deliver(rows, 0, 200)
    store.flushall()
    with pytest.raises(DeliveryError, match="gone or was reset"):
        delivery.deliver(rows, 200, 400)
    delivery.close()


def test_markers_expire_when_that_is_asked_for(server, store):
    write_rows(plan_for(server.port, markerttl="1h", markerprefix="m:", **MODES["marker"]), TASK, record_batches(10))
    assert 3_500_000 < store.pttl("m:query:0") <= 3_600_000
    assert 3_500_000 < store.pttl("m:query") <= 3_600_000


# --- The journal ----------------------------------------------------------------------------------------------------


def parts(count, number, *, size=100):
    """The rows of each of a number of partitions."""
    whole = pyarrow.Table.from_batches(record_batches(count))
    length = -(-count // number)
    return [whole.slice(at * length, length).to_batches(size) for at in range(number)]


def attempt(plan, name, partitions, *, numbers=None):
    """Run the tasks of an attempt one after the other, as with one core; stop at the first that fails."""
    for number in range(len(partitions)) if numbers is None else numbers:
        write_rows(plan, Task("query", 3, number, name), iter(partitions[number]))


def partly(plan, name, partitions, number, rows):
    """A task that dies after this number of rows, a multiple of the chunk's size."""

    class Dead(Exception):
        pass

    class Dying(Marked):
        def deliver(self, given, start, stop):
            if self._row >= rows:
                raise Dead
            return super().deliver(given, start, stop)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamd.spark.sink.writer.Marked", Dying)
        with pytest.raises(Dead):  # noqa: PT011  it says nothing
            write_rows(plan, Task("query", 3, number, name), iter(partitions[number]))


@pytest.mark.parametrize(("before", "after"), [(4, 1), (1, 4), (4, 3), (3, 4), (4, 8)])
@pytest.mark.parametrize("begun", [1, 2, "all"])
def test_a_batch_in_other_partitions_is_refused_before_its_first_row(
    streamd_server, streamd_store, before, after, begun
):
    plan = plan_for(streamd_server.port, **MODES["marker"])
    first = parts(4800, before)
    attempt(plan, "a", first, numbers=range(before if begun == "all" else min(begun, before) - 1))
    if begun != "all":
        partly(plan, "a", first, min(begun, before) - 1, 200)
    written = numbers_in(streamd_store)
    for _ in range(2):
        with pytest.raises(DeliveryError, match="partition 0 of batch 3 is repeated with other rows"):
            attempt(plan, "b", parts(4800, after))
        for number in range(1, after):
            with pytest.raises(DeliveryError, match="is not written: partition 0 has other rows"):
                attempt(plan, "b", parts(4800, after), numbers=[number])
    assert numbers_in(streamd_store) == written
    attempt(plan, "c", first)
    assert numbers_in(streamd_store) == once_each(4800)


def test_a_partition_that_nobody_has_begun_waits_for_those_that_were(streamd_server, streamd_store):
    plan = plan_for(streamd_server.port, **MODES["marker"])
    first = parts(4800, 4)
    partly(plan, "a", first, 0, 400)
    with ThreadPoolExecutor(4) as pool:
        # The one that was begun comes last, and shows that the others are not theirs.
        others = [pool.submit(attempt, plan, "b", parts(4800, 3), numbers=[number]) for number in (1, 2)]
        eventually(lambda: streamd_store.get("streamd:sink:query").count(b"rows") == 3, 60)
        with pytest.raises(DeliveryError, match="repeated with other rows"):
            attempt(plan, "b", parts(4800, 3), numbers=[0])
        for other in others:
            with pytest.raises(DeliveryError, match="partition 0 has other rows"):
                other.result(60)
        assert sum(numbers_in(streamd_store).values()) == 400
        # And if they are, all goes on.
        others = [pool.submit(attempt, plan, "c", first, numbers=[number]) for number in (3, 2, 1)]
        eventually(lambda: streamd_store.get("streamd:sink:query").count(b"rows 3") == 1, 60)
        attempt(plan, "c", first, numbers=[0])
        for other in others:
            other.result(60)
    assert numbers_in(streamd_store) == once_each(4800)


def test_a_partition_without_rows_is_refused_where_there_were_some(streamd_server, streamd_store):
    plan = plan_for(streamd_server.port, **MODES["marker"])
    attempt(plan, "a", parts(400, 2), numbers=[0])
    with pytest.raises(DeliveryError, match=r"other rows than those that were written \(0 rows, not 200\)"):
        attempt(plan, "b", [[], parts(400, 1)[0]])
    assert sum(numbers_in(streamd_store).values()) == 200


def test_an_attempt_that_is_still_running_begins_nothing_more(streamd_server, streamd_store):
    plan = plan_for(streamd_server.port, **MODES["marker"])
    first = parts(800, 4)
    attempt(plan, "a", first, numbers=[0])
    attempt(plan, "b", first, numbers=[0, 1])
    with pytest.raises(DeliveryError, match="partition 2 of batch 3 is overtaken: another attempt has followed"):
        attempt(plan, "a", first, numbers=[2])
    attempt(plan, "b", first)
    assert numbers_in(streamd_store) == once_each(800)


def test_what_was_noted_but_not_written_may_come_otherwise(streamd_server, streamd_store):
    plan = plan_for(streamd_server.port, **MODES["marker"])
    first = parts(900, 3)
    for number in range(3):
        partly(plan, "a", first, number, 0)
    attempt(plan, "b", parts(900, 2))
    assert numbers_in(streamd_store) == once_each(900)


def test_an_attempt_that_was_struck_out_does_not_write(streamd_server, streamd_store):
    plan = plan_for(streamd_server.port, **MODES["marker"])
    late, rows = open_rows(plan, 400)
    attempt(plan, "b", parts(400, 2), numbers=[1])
    with pytest.raises(DeliveryError, match="gone or was reset"):
        late.deliver(rows, 0, 200)
    late.close()
    attempt(plan, "b", parts(400, 2))
    assert numbers_in(streamd_store) == once_each(400)


def test_a_journal_that_vanishes_is_noticed(streamd_server, streamd_store):
    plan = plan_for(streamd_server.port, **MODES["marker"])
    attempt(plan, "a", parts(400, 2), numbers=[0])
    streamd_store.delete("streamd:sink:query")
    with pytest.raises(DeliveryError, match="journal streamd:sink:query does not know"):
        attempt(plan, "b", parts(400, 2))
    assert sum(numbers_in(streamd_store).values()) == 200


@pytest.mark.parametrize(
    "change",
    [{"nullvalues": "empty"}, {"createstream": "false"}, {"stream": "t"}],
    ids=lambda change: next(iter(change)),
)
def test_options_that_change_entries_are_refused_and_others_are_not(streamd_server, streamd_store, change):
    rows = [[pyarrow.record_batch({"k": ["a", None], "n": [n, n + 1]})] for n in (0, 2)]
    attempt(plan_for(streamd_server.port, **MODES["marker"]), "a", rows, numbers=[0])
    if "stream" in change or "createstream" in change:
        streamd_store.xadd("t", {"n": 9})
    with pytest.raises(DeliveryError, match="repeated with other rows"):
        attempt(plan_for(streamd_server.port, **MODES["marker"], **change), "b", rows)
    assert numbers_in(streamd_store) == once_each(2)
    same = {"chunksize": "1", "maxlen": "100", "markerttl": "1h", "verifyreplay": "false", "clientname": "x"}
    attempt(plan_for(streamd_server.port, **MODES["marker"], **same), "c", rows)
    assert numbers_in(streamd_store) == once_each(4)


@pytest.mark.parametrize(
    "change",
    [{"idempotencyproducers": "7"}, {"idempotencykey": "n"}, {"idempotencykey": "", "delivery": "exactly-once"}],
)
def test_another_way_of_recognizing_rows_is_refused_while_a_batch_lasts(streamd_server, streamd_store, change):
    def options(**given):
        return plan_for(streamd_server.port, **{name: value for name, value in given.items() if value})

    write_rows(options(**MODES["key"]), TASK, record_batches(100))
    with pytest.raises(DeliveryError, match="batch 3 was begun with delivery 'key k string 256'"):
        write_rows(options(**{**MODES["key"], **change}), TASK, record_batches(200))
    assert numbers_in(streamd_store) == once_each(100)
    write_rows(options(**{**MODES["key"], **change}), Task("query", 4, 0), record_batches(200))
    assert sum(numbers_in(streamd_store).values()) in (200, 300)


def test_rows_beyond_what_memory_holds_are_kept_in_sparks_folder(streamd_server, streamd_store, tmp_path, monkeypatch):
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    monkeypatch.setattr("streamd.spark.sink.spool.MEMORY_BYTES", 1000)
    made = []

    def watched(*args, **options):
        made.append(real(*args, **options))
        return made[-1]

    real = tempfile.TemporaryFile
    monkeypatch.setattr("tempfile.TemporaryFile", watched)
    write_rows(plan_for(streamd_server.port, **MODES["marker"]), TASK, record_batches(2000, 100))
    assert len(made) == 1
    assert made[0].closed
    assert [*tmp_path.iterdir()] == []
    assert numbers_in(streamd_store) == once_each(2000)


# --- Keys -----------------------------------------------------------------------------------------------------------


def test_keys_do_not_depend_on_order_or_partition(server, store):
    plan = plan_for(server.port, **MODES["key"])
    (batch,) = record_batches(2000, 2000)
    order = [*range(2000)]
    random.Random(1).shuffle(order)
    shuffled = batch.take(pyarrow.array(order))
    write_rows(plan, Task("q", 0, 0), iter([batch]))
    write_rows(plan, Task("q", 0, 0), iter([shuffled.slice(0, 900)]))
    write_rows(plan, Task("q", 0, 1), iter([shuffled.slice(900)]))
    assert numbers_in(store) == once_each(2000)


def test_a_key_that_comes_twice_in_a_chunk_is_written_once(server, store):
    batch = pyarrow.record_batch({"k": ["a", "b", "a"], "n": [0, 1, 2]})
    write_rows(plan_for(server.port, **MODES["key"]), TASK, iter([batch]))
    assert numbers_in(store) == once_each(2)


def test_the_same_key_in_another_stream_is_another_row(server, store):
    plan = plan_for(server.port, ROUTED, **MODES["key"])
    batch = pyarrow.record_batch({"k": ["a"] * 3, "n": [0, 1, 2], "stream": ["x", "y", "x"]})
    write_rows(plan, TASK, iter([batch]))
    assert (store.xlen("x"), store.xlen("y")) == (1, 1)


def test_more_rows_than_a_producer_remembers_are_still_not_doubled(streamd_server):
    with redis.Redis(port=streamd_server.port, protocol=2) as store:
        store.flushall()
        plan = plan_for(streamd_server.port, chunksize="1000", **MODES["key"])
        for _ in range(2):
            write_rows(plan, TASK, record_batches(25_000, 10_000))
        assert store.xlen("s") == 25_000
        store.flushall()


@pytest.fixture(params=["streamd", pytest.param("redis", marks=pytest.mark.real)])
def idmp_store(request):
    server = request.getfixturevalue(f"{request.param}_server")
    with redis.Redis(port=server.port, protocol=2) as client:
        client.flushall()
        client.own_port = server.port
        yield client
        client.flushall()


def idmp_settings(store):
    info = store.xinfo_stream("s")
    return info["idmp-duration"], info["idmp-maxsize"]


def test_a_new_stream_remembers_as_much_as_it_can(idmp_store):
    write_rows(plan_for(idmp_store.own_port, **MODES["key"]), TASK, record_batches(10))
    assert idmp_settings(idmp_store) == (86_400, 10_000)
    assert idmp_store.xinfo_groups("s") == []


def test_a_stream_that_remembers_nothing_yet_is_configured(idmp_store):
    idmp_store.xadd("s", {"n": 99})
    plan = plan_for(idmp_store.own_port, idempotencyduration="1h", idempotencymaxsize="500", **MODES["key"])
    write_rows(plan, TASK, record_batches(10))
    assert idmp_settings(idmp_store) == (3600, 500)


def test_a_stream_that_remembers_keys_of_others_is_left_as_it_is(idmp_store):
    idmp_store.execute_command("XADD", "s", "IDMP", "someone", "1", "*", "n", "99")
    before = idmp_settings(idmp_store)
    write_rows(plan_for(idmp_store.own_port, **MODES["key"]), TASK, record_batches(10))
    assert idmp_settings(idmp_store) == before
    for name, value in (("idempotencyMaxSize", "500"), ("idempotencyDuration", "1h")):
        with pytest.raises(OptionError, match=rf"option {name}.*would forget them all"):
            write_rows(plan_for(idmp_store.own_port, **{name.lower(): value}, **MODES["key"]), TASK, record_batches(10))
    assert idmp_store.execute_command("XADD", "s", "IDMP", "someone", "1", "*", "n", "99") is not None
    assert idmp_store.xlen("s") == 11


def test_more_keys_than_are_remembered_are_refused(idmp_store):
    plan = plan_for(idmp_store.own_port, idempotencymaxsize="100", idempotencyproducers="1", **MODES["key"])
    with pytest.raises(OptionError, match=r"option idempotencyProducers.*remembers 100 keys"):
        write_rows(plan, TASK, record_batches(300, 50))
    assert idmp_store.xlen("s") == 100


def test_remembered_keys_expire_on_servers_without_idmp(valkey_server):
    with redis.Redis(port=valkey_server.port, protocol=2) as store:
        store.flushall()
        write_rows(plan_for(valkey_server.port, idempotencyduration="1h", **MODES["key"]), TASK, record_batches(10))
        names = store.keys("streamd:sink:query:key:*")
        assert len(names) == 10
        assert all(3500 < store.ttl(name) <= 3600 for name in names)


# --- IDs ------------------------------------------------------------------------------------------------------------


def with_ids(*ids):
    return iter([pyarrow.record_batch({"k": ["x"] * len(ids), "n": [*range(len(ids))], "id": [*ids]})])


@pytest.mark.parametrize("ids", [("5-1", "5-0"), ("5-1", "5-1"), ("0-0",), ("5-1", "hello")])
def test_ids_that_cannot_be_are_an_error(server, store, ids):
    with pytest.raises(OptionError, match="option idColumn"):
        write_rows(plan_for(server.port, WITH_IDS, **MODES["id"]), TASK, with_ids(*ids))


def test_the_server_completes_ids(server, store):
    write_rows(plan_for(server.port, WITH_IDS, **MODES["id"]), TASK, with_ids("5-*", "5-*", "6", "*"))
    assert [entry_id for entry_id, _ in store.xrange("s")][:3] == [b"5-0", b"5-1", b"6-0"]
    with pytest.raises(OptionError, match="option idColumn: exactly-once needs IDs like"):
        write_rows(plan_for(server.port, WITH_IDS, delivery="exactly-once", **MODES["id"]), TASK, with_ids("7-*"))


def test_an_entry_that_would_have_been_trimmed_need_not_be_written_again(server, store):
    plan = plan_for(server.port, WITH_IDS, maxlen="100", trimexactly="true", **MODES["id"])
    for _ in range(2):
        write_rows(plan, TASK, record_batches(1000))
    assert numbers_in(store) == collections.Counter(range(900, 1000))


# --- Trimming -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["plain", *MODES])
def test_a_stream_is_trimmed_while_it_is_written(server, store, mode):
    table = WITH_IDS if mode == "id" else TABLE
    write_rows(plan_for(server.port, table, maxlen="300", **MODES.get(mode, PLAIN)), TASK, record_batches(2000))
    assert 300 <= store.xlen("s") < 300 + 200
    write_rows(
        plan_for(server.port, table, maxlen="70", trimexactly="true", **MODES.get(mode, PLAIN)),
        Task("q", 9, 0),
        (pyarrow.record_batch({"k": ["last"], "n": [2000], "id": ["9999-0"]}) for _ in range(1)),
    )
    assert numbers_in(store) == collections.Counter(range(1931, 2001))


def test_old_entries_are_trimmed_by_id_or_age(server, store):
    store.xadd("s", {"n": 0}, id="5-0")
    write_rows(plan_for(server.port, minid="-1h", trimexactly="true"), TASK, record_batches(10))
    assert store.xlen("s") == 10
    store.xadd("t", {"n": 0}, id="5-0")
    store.xadd("t", {"n": 0}, id="6-0")
    write_rows(plan_for(server.port, stream="t", minid="6", trimexactly="true"), TASK, record_batches(10))
    assert store.xlen("t") == 11


@pytest.mark.parametrize("how", [{"maxlen": "10"}, {"minid": "200-0"}])
def test_acked_trimming_keeps_what_groups_still_need(server, store, how):
    store.xgroup_create("s", "g", "0", mkstream=True)
    plan = plan_for(server.port, WITH_IDS, trimpolicy="ACKED", trimexactly="true", chunksize="10", **how, **MODES["id"])
    write_rows(plan, TASK, record_batches(100))
    assert store.xlen("s") == 100
    ids = [entry_id for entry_id, _ in store.xreadgroup("g", "c", {"s": ">"}, count=50)[0][1]]
    store.xack("s", "g", *ids[:30])
    write_rows(plan, Task("q", 4, 0), with_ids("300-0"))
    assert store.xrange("s", count=1)[0][0] == b"31-0"


def test_a_policy_that_a_server_lacks_is_refused_with_the_options_name(valkey_server):
    with pytest.raises(OptionError, match=r"option trimPolicy: valkey .* has no DELREF"):
        write_rows(plan_for(valkey_server.port, maxlen="5", trimpolicy="DELREF"), TASK, record_batches(10))


@pytest.mark.parametrize("policy", ["KEEPREF", "DELREF"])
def test_the_policy_decides_about_pending_references(server, store, policy):
    if policy == "DELREF" and "valkey" in server.name:
        pytest.skip("Valkey has no DELREF")
    store.xgroup_create("s", "g", "0", mkstream=True)
    write_rows(plan_for(server.port), TASK, record_batches(20))
    store.xreadgroup("g", "c", {"s": ">"})
    write_rows(plan_for(server.port, maxlen="5", trimexactly="true", trimpolicy=policy), TASK, record_batches(5))
    assert store.xpending("s", "g")["pending"] == (20 if policy == "KEEPREF" else 0)


@pytest.mark.parametrize("mode", ["plain", "marker", "key"])
def test_no_stream_is_made_when_none_is_to_be(server, store, mode):
    plan = plan_for(server.port, createstream="false", **MODES.get(mode, PLAIN))
    with pytest.raises(OptionError, match="option createStream: there is no stream s"):
        write_rows(plan, TASK, record_batches(10))
    assert not store.exists("s")
    store.xadd("s", {"n": 10})
    write_rows(plan, TASK, record_batches(10))
    assert numbers_in(store) == once_each(11)


# --- Under Spark ----------------------------------------------------------------------------------------------------

ROWS = 4000


@pytest.fixture(scope="module")
def small_batches(spark_session):
    """Rows come to the writer in small batches, so that it has written some when the task fails."""
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    spark_session.conf.set(name, "250")
    yield
    spark_session.conf.unset(name)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files, which Spark reads as two partitions."""
    folder = tmp_path_factory.mktemp("input")
    for part in range(2):
        numbers = range(part * ROWS // 2, (part + 1) * ROWS // 2)
        table = pyarrow.table({"k": [f"k{n}" for n in numbers], "n": [*numbers]})
        pyarrow.parquet.write_table(table, folder / f"{part}.parquet")
    return folder


@pytest.fixture(scope="module")
def failing(spark_session):
    """Data sources `once` and `always`: the sink, with tasks that fail in their middle at the first attempt, or each time."""
    from streamd.spark.data_source import StreamdDataSource
    from streamd.spark.sink.writer import StreamdStreamWriter, StreamdWriter

    # Classes of a function go to the workers by value: they cannot import this file.
    def make(fails: str):
        @contextlib.contextmanager
        def cut():
            from pyspark import TaskContext

            from streamd.transfer.chunk_delivery import Delivery

            def deliver(delivery, rows, start, stop):
                if sum(delivery.stream_rows.values()) > 1500:
                    raise ConnectionAbortedError("the task fails")
                return real(delivery, rows, start, stop)

            real = Delivery.deliver
            if fails == "always" or TaskContext.get().attemptNumber() == 0:
                Delivery.deliver = deliver
            try:
                yield
            finally:
                Delivery.deliver = real

        class Writer(StreamdWriter):
            def write(self, iterator):
                with cut():
                    return super().write(iterator)

        class StreamWriter(StreamdStreamWriter):
            def write(self, iterator):
                with cut():
                    return super().write(iterator)

        class Failing(StreamdDataSource):
            @classmethod
            def name(cls):
                return fails

            def writer(self, schema, overwrite):
                return Writer(schema, SinkOptions.parse(self.options), overwrite)

            def streamWriter(self, schema, overwrite):
                return StreamWriter(schema, SinkOptions.parse(self.options), overwrite)

        return Failing

    for fails in ("once", "always"):
        spark_session.dataSource.register(make(fails))


def run_query(spark, server: Server, files: Path, checkpoint: Path, options, *, sink: str) -> None:
    query = (
        spark.readStream.schema(TABLE)
        .parquet(str(files))
        .writeStream.format(sink)
        .options(port=str(server.port), stream="s", chunkSize="200", **options)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


@pytest.mark.spark
@pytest.mark.parametrize("mode", ["marker", "key"])
def test_a_batch_that_is_repeated_from_the_checkpoint_is_there_once(
    spark, small_batches, failing, streamd_server, streamd_store, files, tmp_path, mode
):
    def run(sink):
        run_query(spark, streamd_server, files, tmp_path / "checkpoint", MODES[mode], sink=sink)

    with pytest.raises(StreamingQueryException, match="the task fails"):
        run("always")
    assert 0 < streamd_store.xlen("s") < ROWS
    run("once")
    assert numbers_in(streamd_store) == once_each(ROWS)
    if mode == "marker":
        # The whole batch again: Spark has lost that it was done.
        shutil.rmtree(tmp_path / "checkpoint" / "commits")
        run("streamd")
        assert numbers_in(streamd_store) == once_each(ROWS)


@pytest.mark.spark
def test_a_plain_query_doubles_what_a_task_had_written(
    spark, small_batches, failing, streamd_server, streamd_store, files, tmp_path
):
    run_query(spark, streamd_server, files, tmp_path / "checkpoint", PLAIN, sink="once")
    found = numbers_in(streamd_store)
    assert set(found) == set(range(ROWS))
    assert sum(found.values()) > ROWS + 1000


@pytest.mark.spark
@pytest.mark.parametrize(
    ("name", "mode"), [pytest.param("redis", "key", marks=pytest.mark.real), ("valkey", "key"), ("valkey", "marker")]
)
def test_tasks_that_fail_double_nothing_in_other_servers(
    request, spark, small_batches, failing, files, tmp_path, name, mode
):
    server = request.getfixturevalue(f"{name}_server")
    with redis.Redis(port=server.port, protocol=2) as store:
        store.flushall()
        run_query(spark, server, files, tmp_path / "checkpoint", MODES[mode], sink="once")
        found = numbers_in(store)
        store.flushall()
    assert found == once_each(ROWS)


@pytest.mark.spark
def test_a_batch_write_with_a_name_is_written_once(spark, small_batches, failing, streamd_server, files):
    with redis.Redis(port=streamd_server.port, protocol=2) as store:
        store.flushall()
        options = {"port": str(streamd_server.port), "stream": "s", "delivery": "exactly-once"}
        frame = spark.read.schema(TABLE).parquet(str(files))
        frame.write.format("once").mode("append").options(**options).save()
        assert numbers_in(store) == once_each(ROWS)
        for _ in range(2):
            frame.write.format("streamd").mode("append").options(runId="today", **options).save()
        assert sum(numbers_in(store).values()) == 2 * ROWS
        store.flushall()


@pytest.mark.spark
@pytest.mark.parametrize(("before", "after"), [(4, 1), (1, 4)])
def test_a_named_batch_write_in_other_partitions_is_refused(spark, streamd_server, streamd_store, files, before, after):
    def write(partitions):
        frame = spark.range(0, ROWS, 1, partitions).selectExpr("id AS n")
        options = {"port": str(streamd_server.port), "stream": "s", "delivery": "exactly-once", "runId": "today"}
        frame.write.format("streamd").mode("append").options(**options).save()

    write(before)
    with pytest.raises(Exception, match=r"partition \d of batch 0 is (repeated with other rows|not written)"):
        write(after)
    write(before)
    assert numbers_in(streamd_store) == once_each(ROWS)


def has_begun(store, partition):
    """Whether a query has written rows of this partition."""
    return any(Marker.parse(key, store.get(key)).rows for key in store.keys(f"streamd:sink:*:{partition}"))


@pytest.mark.spark
def test_a_query_that_is_killed_and_goes_on_with_fewer_cores_is_refused(java, streamd_server, streamd_store, tmp_path):
    """A file source has as many partitions as there are cores."""
    files = tmp_path / "files"
    files.mkdir()
    for part in range(4):
        numbers = range(part * 8000, (part + 1) * 8000)
        table = pyarrow.table({"k": [f"k{n}" for n in numbers], "n": [*numbers]})
        pyarrow.parquet.write_table(table, files / f"{part}.parquet")
    sink = {"port": str(streamd_server.port), "stream": "s", "delivery": "exactly-once", "chunkSize": "10"}
    job = {"sink": sink, "files": str(files), "is_final": True}
    with session_of_its_own(tmp_path, {}, master="local[4]", **job):
        eventually(lambda: has_begun(streamd_store, 0) and has_begun(streamd_store, 3), 200)
    with (
        pytest.raises(AssertionError, match="partition 0 of batch 0 is repeated with other rows"),
        session_of_its_own(tmp_path, {}, master="local[1]", **job) as process,
    ):
        process.wait(300)
    # The workers of the killed session may still have finished their partitions.
    assert set(numbers_in(streamd_store).values()) == {1}
    with session_of_its_own(tmp_path, {}, master="local[4]", **job) as process:
        process.wait(300)
    assert numbers_in(streamd_store) == once_each(32_000)


@pytest.mark.spark
def test_what_is_read_can_be_written(spark, streamd_server):
    """Entries with their IDs, fields in order and with duplicates, from streams into streams named by a column."""
    with redis.Redis(port=streamd_server.port, protocol=2) as store:
        store.flushall()
        for n in range(1, 51):
            store.execute_command("XADD", f"in{n % 2}", f"{n}-1", "b", n, "a", b"\xff\x00", "b", "again")
        port = str(streamd_server.port)
        frame = spark.read.format("streamd").options(port=port, streams="in0,in1").load()
        frame = frame.withColumn("stream", frame.stream.substr(3, 1)).coalesce(1).sortWithinPartitions("ms")
        frame.write.format("streamd").mode("append").options(port=port, idColumn="id").save()
        for n in range(2):
            assert store.execute_command("XRANGE", str(n), "-", "+") == store.execute_command(
                "XRANGE", f"in{n}", "-", "+"
            )
        store.flushall()


@pytest.mark.spark
def test_a_thread_writes_after_it_has_registered(spark, streamd_store, streamd_server):
    """Spark finds no data source in a thread without an active session."""

    def write() -> None:
        register(spark)
        rows = spark.range(3).selectExpr("string(id) AS n")
        rows.write.format("streamd").mode("append").options(port=str(streamd_server.port), stream="s").save()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(write).result()
    assert streamd_store.xlen("s") == 3


@pytest.mark.spark
def test_a_wrong_option_is_named_to_the_user(spark):
    with pytest.raises(Exception, match="option stream: name the stream to write to"):
        spark.range(1).write.format("streamd").mode("append").save()
    with pytest.raises(Exception, match="option mode: streams can only be appended to"):
        spark.range(1).write.format("streamd").mode("overwrite").option("stream", "s").save()


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mode", [{"delivery": "exactly-once"}, {"idempotencyKey": "key"}], ids=["marker", "key"])
def test_a_session_that_is_killed_at_random_writes_everything_once(java, streamd_server, streamd_store, tmp_path, mode):
    """From stream to stream: what came in goes out once, whatever was being done when everything was killed."""
    source = random_source()
    options = {"port": str(streamd_server.port), "stream": "in", "maxEntriesPerTrigger": "3000", "minPartitions": "2"}
    sink = {"port": str(streamd_server.port), "stream": "out", "chunkSize": "100", **mode}
    stop = threading.Event()
    added = []

    def add():
        while not stop.wait(0.05):
            pipe = streamd_store.pipeline(transaction=False)
            for number in range(len(added), len(added) + 50):
                pipe.xadd("in", {"n": number})
            pipe.execute()
            added.extend(range(len(added), len(added) + 50))

    thread = threading.Thread(target=add)
    thread.start()
    try:
        for _ in range(6):
            wanted = batches_planned(tmp_path) + source.randint(1, 3)
            with session_of_its_own(tmp_path, options, is_final=False, sink=sink):
                wait_for_batches(tmp_path, wanted, timeout_s=300)
                written = streamd_store.xlen("out") + source.randint(0, 2000)
                eventually(lambda written=written: streamd_store.xlen("out") >= written, 300)
    finally:
        stop.set()
        thread.join()
    with session_of_its_own(
        tmp_path, {**options, "maxEntriesPerTrigger": "20000"}, is_final=True, sink=sink
    ) as process:
        process.wait(600)
    assert numbers_in(streamd_store, "out") == once_each(len(added))
