"""The streaming reader without Spark: a Query calls it as Spark does, every offset and partition going through bytes.

What needs no Java is tested here, in no time; test_stream_source.py has what only a real query shows.
"""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from support.servers import Server
from support.spark.planned import Query, stop_queries, through_json
from support.spark.session import ON_BOTH

pytest.importorskip("pyspark.sql.streaming.datasource", reason="needs PySpark 4.2 or newer")

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows, ReadMinRows

from streamd.spark import DataLossError, MissingStreamError, OptionError, ServerError
from streamd.spark.source.schema import DEFAULT_SCHEMA
from streamd.spark.source.streaming import StreamdStreamReader
from streamd.transfer.read_options import SourceOptions

pytestmark = [pytest.mark.long, ON_BOTH]

Options = dict[str, str]
Offset = dict[str, Any]


@pytest.fixture(autouse=True)
def end_queries() -> Iterator[None]:
    yield
    stop_queries()


def fill(store: redis.Redis, key: str, first: int, last: int, *, size: int = 1) -> list[str]:
    """Entries first-0 ... last-0."""
    pipe = store.pipeline(transaction=False)
    for at in range(first, last + 1):
        pipe.xadd(key, {"n": at, "payload": "x" * size}, id=f"{at}-0")
    pipe.execute()
    return [f"{at}-0" for at in range(first, last + 1)]


# --- Where a query begins -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["1-0", "2-0", "3-0", "4-0"]),
        ({"startingId": "earliest"}, ["1-0", "2-0", "3-0", "4-0"]),
        ({"startingId": "latest"}, ["4-0"]),
        ({"startingId": "2-0"}, ["2-0", "3-0", "4-0"]),
        ({"startingId": "(2-0"}, ["3-0", "4-0"]),
        ({"startingId": "3"}, ["3-0", "4-0"]),
        ({"startingId": "4"}, ["4-0"]),
        ({"startingId": "5"}, []),
        ({"startingTimestamp": "2"}, ["2-0", "3-0", "4-0"]),
        ({"startingTimestamp": "1970-01-01T00:00:00.003Z"}, ["3-0", "4-0"]),
        ({"startingTimestamp": "-1h"}, []),
        ({"startingId": '{"s": "latest", "t": "earliest"}'}, ["4-0"]),
        ({"startingId": '{"t": "3", "*": "2-0"}'}, ["2-0", "3-0", "4-0"]),
    ],
)
def test_where_a_query_begins(
    store: redis.Redis, source_options: Options, options: Options, expected: list[str]
) -> None:
    fill(store, "s", 1, 3)
    query = Query(source_options, stream="s", **options)
    fill(store, "s", 4, 4)
    assert query.ids() == expected
    assert query.ids() == []


def test_a_stream_that_comes_later_is_read_from_its_first_entry(store: redis.Redis, source_options: Options) -> None:
    query = Query(source_options, stream="s", startingId="latest")
    assert query.ids() == []
    fill(store, "s", 1, 2)
    assert query.ids() == ["1-0", "2-0"]


def test_a_query_waits_for_a_stream_that_is_not_there_unless_told_to_fail(
    store: redis.Redis, source_options: Options, caplog: pytest.LogCaptureFixture
) -> None:
    query = Query(source_options, stream="s")
    assert caplog.messages == ["there is no stream s yet: the query waits for it"]
    assert query.ids() == []
    with pytest.raises(MissingStreamError, match="there is no stream 's' at"):
        Query(source_options, stream="s", failOnMissing="true")
    store.xadd("s", {"a": "b"}, id="1-1")
    assert query.ids() == ["1-1"]
    Query(source_options, stream="s", failOnMissing="true")


@pytest.mark.parametrize("start", ["latest", "earliest", "-1h", "2-0"])
def test_a_crash_in_the_first_batch_loses_nothing(store: redis.Redis, source_options: Options, start: str) -> None:
    option = {"startingTimestamp": start} if start == "-1h" else {"startingId": start}
    store.xadd("s", {"a": 1})
    query = Query(source_options, stream="s", **option)
    store.xadd("s", {"a": 2})
    end = query.poll()
    expected = query.read(query.start, end)
    assert expected
    store.xadd("s", {"a": 3})
    # A new process asks for the initial offset again, and takes the end of the batch from the checkpoint.
    again = Query(source_options, stream="s", **option)
    assert again.read(again.start, end) == expected
    again.start = end
    assert len(again.ids()) == 1


def test_the_initial_offset_is_the_same_at_every_call(store: redis.Redis, source_options: Options) -> None:
    query = Query(source_options, stream="s", startingId="latest")
    store.xadd("s", {"a": 1})
    assert through_json(query.reader.initialOffset()) == query.start


@pytest.mark.parametrize("option", ["endingId", "endingTimestamp"])
def test_options_of_batch_reads_are_refused(source_options: Options, option: str) -> None:
    with pytest.raises(OptionError, match=f"{option}: is for batch reads"):
        StreamdStreamReader(DEFAULT_SCHEMA, SourceOptions.parse({**source_options, "stream": "s", option: "5"}))


def test_a_key_of_another_type_is_named(store: redis.Redis, source_options: Options) -> None:
    fill(store, "a", 1, 1)
    store.set("b", "x")
    with pytest.raises(ServerError, match=r"WRONGTYPE.*key b is not a stream"):
        Query(source_options, streams="a,b")
    store.delete("b")
    query = Query(source_options, streams="a,b")
    store.set("b", "x")
    with pytest.raises(ServerError, match=r"WRONGTYPE.*key b is not a stream"):
        query.poll()


# --- Offsets and replays --------------------------------------------------------------------------------------------------


def test_an_idle_poll_gives_back_the_offset_itself(store: redis.Redis, source_options: Options) -> None:
    fill(store, "s", 1, 5)
    query = Query(source_options, stream="s")
    query.batch()
    assert query.reader.latestOffset(query.start, ReadAllAvailable()) is query.start
    assert query.restarted().poll() == query.start


def test_an_idle_poll_is_one_round_trip_for_any_number_of_streams(store: redis.Redis, source_options: Options) -> None:
    keys = [f"s{n}" for n in range(50)]
    for key in keys:
        fill(store, key, 1, 2)
    query = Query(source_options, streams=",".join(keys))
    assert len(query.batch()) == 100
    before = store.info("commandstats")
    for _ in range(20):
        assert query.poll(after_s=0.04) == query.start
    after = store.info("commandstats")
    calls = {name: each["calls"] - before.get(name, {"calls": 0})["calls"] for name, each in after.items()}
    calls.pop("cmdstat_info", None)
    assert calls.pop("cmdstat_xread") == 20
    assert calls.pop("cmdstat_xinfo|stream", 0) in (0, 50)
    assert not {name for name, count in calls.items() if count}


def test_the_newest_entries_are_reported(store: redis.Redis, source_options: Options) -> None:
    fill(store, "s", 1, 50)
    query = Query(source_options, stream="s", maxEntriesPerTrigger="10")
    assert query.reader.reportLatestOffset() is None
    query.batch()
    assert query.start["streams"]["s"]["at"] == "10-0"
    report = query.reader.reportLatestOffset()
    assert report["streams"]["s"]["at"] == "50-0"
    assert (report["behindEntries"], report["streams"]["s"]["behindEntries"]) == (40, 40)
    assert report["behindSeconds"] is None  # the IDs are no times


def test_lag_is_reported_for_each_stream_and_in_all(store: redis.Redis, source_options: Options) -> None:
    now_ms = time.time_ns() // 1_000_000
    for key, count in (("a", 30), ("b", 4), ("c", 1)):
        fill(store, key, now_ms - 3_600_000, now_ms - 3_600_000 + count - 1)
    query = Query(source_options, streams="a,b,c,d", maxEntriesPerTrigger="12")
    assert len(query.batch()) == 12
    report = query.reader.reportLatestOffset()
    behind = {name: each["behindEntries"] for name, each in report["streams"].items()}
    assert sum(behind.values()) == report["behindEntries"] == 23
    assert behind["a"] > behind["b"] == behind["c"] == behind["d"] == 0
    assert report["behindSeconds"] == report["streams"]["a"]["behindSeconds"] == pytest.approx(3600, abs=600)
    assert report["streams"]["b"]["behindSeconds"] == 0
    for _ in query.all_batches():
        pass
    report = query.reader.reportLatestOffset()
    assert (report["behindEntries"], report["behindSeconds"]) == (0, 0)
    fill(store, "b", now_ms - 60_000, now_ms - 59_999)
    waiting = query.restarted(minEntriesPerTrigger="5", maxTriggerDelay="1h", maxEntriesPerTrigger="100")
    assert waiting.batch() == []
    report = waiting.reader.reportLatestOffset()
    assert report["behindEntries"] == 2
    assert report["behindSeconds"] == pytest.approx(60, abs=600)


@pytest.mark.parametrize(
    "limits",
    [
        {},
        {"maxEntriesPerTrigger": "700"},
        {"maxBytesPerTrigger": "32k"},
        {"minPartitions": "5"},
        {"maxRecordsPerPartition": "130"},
        {"maxEntriesPerTrigger": "701", "maxRecordsPerPartition": "100"},
        {"maxEntriesPerTrigger": "999", "maxBytesPerTrigger": "64k", "minPartitions": "3"},
    ],
)
def test_a_replay_has_the_same_partitions(store: redis.Redis, source_options: Options, limits: Options) -> None:
    ids = fill(store, "a", 1, 2000, size=20) + fill(store, "b", 1500, 2200)
    query = Query(source_options, streams="a,b", **limits)
    seen: list[tuple[str, str]] = []
    batches = 0
    while (end := query.poll()) != query.start:
        planned = query.parts(query.start, end)
        found = query.read(query.start, end)
        assert len(found) <= int(limits.get("maxEntriesPerTrigger", len(ids)))
        for part in planned:
            assert part.count is not None
            assert part.count <= int(limits.get("maxRecordsPerPartition", part.count))
        if (batches := batches + 1) <= 3:
            fill(store, "a", 3000 + batches, 3000 + batches)  # what comes meanwhile changes nothing
        again = query.restarted(maxEntriesPerTrigger="3", minPartitions="7", maxRecordsPerPartition="2")
        assert again.parts(query.start, end) == planned
        assert again.read(query.start, end) == found
        seen += found
        query.start = end
    assert max(Counter(seen).values()) == 1
    assert len(seen) == len(ids) + min(batches, 3)


def test_the_same_offset_twice_is_no_batch(store: redis.Redis, source_options: Options) -> None:
    fill(store, "s", 1, 5)
    query = Query(source_options, stream="s")
    query.batch()
    assert query.parts(query.start, query.start) == []


def test_batches_are_cut_for_the_partitions_asked_for(store: redis.Redis, source_options: Options) -> None:
    fill(store, "s", 1, 1000)
    query = Query(source_options, stream="s", minPartitions="4")
    counts = [each.count or 0 for each in query.parts(query.start, query.poll())]
    assert len(counts) == 4
    assert sum(counts) == 1000
    assert max(counts) <= 1.1 * min(counts)


def test_a_long_backlog_is_cut_without_being_looked_through(
    store: redis.Redis, source_options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamd.spark.source.planner.SCAN_LIMIT", 100)
    ids = fill(store, "s", 1, 3000)
    query = Query(source_options, stream="s", minPartitions="3")
    parts = query.parts(query.start, query.poll())
    assert len(parts) >= 3
    # streamd tells how many there are.
    counts = {each.count for each in parts}
    assert counts == ({1000} if "streamd_version" in store.info("server") else {None})
    assert query.ids() == ids


# --- Limits ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limits", [{}, {"maxEntriesPerTrigger": "100"}, {"minEntriesPerTrigger": "100"}])
def test_a_user_who_may_not_ask_for_cuts_reads_all_the_same(
    store: redis.Redis, source_options: Options, limits: Options
) -> None:
    ids = fill(store, "s", 1, 250)
    listed = "+client|setname +info +command +xrange +xrevrange +xinfo|stream +xread"
    store.execute_command("ACL", "SETUSER", "reader", "on", ">word", "~*", *listed.split())
    user = {"username": "reader", "password": "word", "minPartitions": "4"}
    try:
        query = Query(source_options, stream="s", startingId="earliest", **user, **limits)
        found = [each for batch in query.all_batches() for _, each in batch]
    finally:
        store.execute_command("ACL", "DELUSER", "reader")
    assert found == ids


def test_each_limit_is_reported_to_spark(source_options: Options) -> None:
    def limit(**more: str) -> ReadLimit:
        options = SourceOptions.parse({**source_options, "stream": "s", **more})
        return StreamdStreamReader(DEFAULT_SCHEMA, options).getDefaultReadLimit()

    assert limit() == ReadAllAvailable()
    assert limit(maxEntriesPerTrigger="5") == ReadMaxRows(5)
    assert limit(maxBytesPerTrigger="1k") == ReadMaxBytes(1024)
    assert limit(minEntriesPerTrigger="5") == ReadMinRows(5)


def test_entries_are_limited_evenly_over_streams(store: redis.Redis, source_options: Options) -> None:
    fill(store, "a", 1, 100)
    fill(store, "b", 1, 5)
    fill(store, "c", 1, 100)
    query = Query(source_options, streams="a,b,c", maxEntriesPerTrigger="60")
    sizes = [Counter(stream for stream, _ in batch) for batch in query.all_batches()]
    assert sizes[0]["b"] == 5
    assert abs(sizes[0]["a"] - sizes[0]["c"]) <= 20
    assert [each.total() for each in sizes] == [60, 60, 60, 25]


def test_the_oldest_entries_come_first_when_not_every_stream_gets_one(
    store: redis.Redis, source_options: Options
) -> None:
    for n, key in enumerate("dbac"):
        fill(store, key, 10 * n + 1, 10 * n + 2)
    query = Query(source_options, streams="a,b,c,d", maxEntriesPerTrigger="2")
    batches = list(query.all_batches())
    assert batches[0] == [("b", "11-0"), ("d", "1-0")]
    assert sorted(itertools.chain(*batches)) == sorted(
        (key, f"{10 * n + i}-0") for n, key in enumerate("dbac") for i in (1, 2)
    )


def test_bytes_are_limited(store: redis.Redis, source_options: Options) -> None:
    fill(store, "s", 1, 300, size=100)
    store.xadd("s", {"large": "y" * 20_000}, id="301-0")
    fill(store, "s", 302, 400, size=100)
    one = len("*2\r\n$5\r\n100-0\r\n*4\r\n$1\r\nn\r\n$3\r\n100\r\n$7\r\npayload\r\n$3\r\n100\r\n\r\n") + 100
    query = Query(source_options, stream="s", maxBytesPerTrigger="8k")
    sizes = [len(batch) for batch in query.all_batches()]
    assert sum(sizes) == 400
    assert 1 in sizes
    assert all(size * (one - 8) <= 8192 for size in sizes)
    assert max(sizes) * (one + 8) > 8192 * 0.9


def test_trigger_once_reads_everything(store: redis.Redis, source_options: Options) -> None:
    fill(store, "s", 1, 100)
    query = Query(source_options, stream="s", maxEntriesPerTrigger="7", minEntriesPerTrigger="7")
    assert len(query.ids(ReadAllAvailable())) == 100


def test_a_batch_waits_for_enough_entries(store: redis.Redis, source_options: Options) -> None:
    query = Query(source_options, streams="a,b", minEntriesPerTrigger="5")
    fill(store, "a", 1, 2)
    assert query.ids() == []
    fill(store, "b", 1, 2)
    assert query.ids() == []
    fill(store, "a", 3, 3)
    assert len(query.ids()) == 5
    fill(store, "b", 3, 6)
    assert query.restarted().ids() == []
    assert query.ids() == []


def test_the_wait_for_enough_entries_has_an_end(store: redis.Redis, source_options: Options) -> None:
    query = Query(source_options, stream="s", minEntriesPerTrigger="5", maxTriggerDelay="1m")
    fill(store, "s", 1, 2)
    assert query.ids() == []
    query.now += 56
    assert query.ids() == []
    assert query.ids() == ["1-0", "2-0"]
    fill(store, "s", 3, 3)
    assert query.ids() == []


def test_enough_is_counted_in_the_middle_of_a_backlog_too(store: redis.Redis, source_options: Options) -> None:
    fill(store, "s", 1, 23)
    query = Query(source_options, stream="s", minEntriesPerTrigger="5", maxEntriesPerTrigger="10")
    assert [len(batch) for batch in query.all_batches()] == [10, 10]
    fill(store, "s", 24, 25)
    assert len(query.ids()) == 5


# --- Trigger.AvailableNow -------------------------------------------------------------------------------------------------


def test_available_now_ends_where_the_streams_ended(store: redis.Redis, source_options: Options) -> None:
    fill(store, "a", 1, 25)
    query = Query(source_options, streams="a,b", maxEntriesPerTrigger="10", minEntriesPerTrigger="10")
    query.reader.prepareForTriggerAvailableNow()
    found = []
    for batch in query.all_batches():
        found += batch
        fill(store, "a", 26 + len(found), 26 + len(found))
        fill(store, "b", 1 + len(found), 1 + len(found))
    assert found == [("a", f"{n}-0") for n in range(1, 26)]
    # The next run reads the rest, from where this one ended.
    following = query.restarted()
    following.reader.prepareForTriggerAvailableNow()
    assert sum(map(len, following.all_batches())) == 6


# --- Patterns -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_new_streams_of_a_pattern_are_picked_up(store: redis.Redis, source_options: Options, start: str) -> None:
    fill(store, "s:a", 1, 2)
    store.set("s:other", "x")
    query = Query(source_options, streamPattern="s:*", startingId=start, patternInterval="1m")
    query.batch()
    fill(store, "s:b", 1, 2)
    fill(store, "t:b", 1, 2)
    fill(store, "s:a", 3, 3)
    assert query.batch() == [("s:a", "3-0")]
    query.poll(after_s=60)  # looks for streams, and finds one
    assert query.batch() == [("s:b", "1-0"), ("s:b", "2-0")]
    fill(store, "s:b", 3, 3)
    assert query.restarted().batch() == [("s:b", "3-0")]


def test_streams_made_while_the_query_was_down_are_read_whole(store: redis.Redis, source_options: Options) -> None:
    fill(store, "s:a", 1, 2)
    query = Query(source_options, streamPattern="s:*", startingId="latest")
    fill(store, "s:b", 1, 2)
    assert query.restarted().batch() == [("s:b", "1-0"), ("s:b", "2-0")]


def test_a_pattern_without_streams_waits(store: redis.Redis, source_options: Options) -> None:
    query = Query(source_options, streamPattern="s:*", patternInterval="1ms")
    assert query.batch() == []
    fill(store, "s:a", 1, 1)
    query.poll()
    assert query.batch() == [("s:a", "1-0")]


def test_names_that_are_no_text_are_read(store: redis.Redis, source_options: Options) -> None:
    store.xadd(b"s:\xff", {"a": 1}, id="1-0")
    query = Query(source_options, streamPattern="s:*")
    end = query.poll()
    parts = query.parts(query.start, end)
    assert [each.stream for each in parts] == ["s:\udcff"]
    assert sum(batch.num_rows for batch in query.reader.read(InputPartition(parts[0]))) == 1


# --- Loss -----------------------------------------------------------------------------------------------------------------


def lose_by_trim(store: redis.Redis) -> None:
    fill(store, "s", 6, 20)
    store.xtrim("s", maxlen=3, approximate=False)


def lose_by_deletion(store: redis.Redis) -> None:
    store.delete("s")


def lose_by_new_stream_with_lower_ids(store: redis.Redis) -> None:
    store.delete("s")
    fill(store, "s", 1, 2)


def lose_by_new_stream_with_higher_ids(store: redis.Redis) -> None:
    store.delete("s")
    fill(store, "s", 100, 101)


def lose_by_new_stream_with_more_entries(store: redis.Redis) -> None:
    store.delete("s")
    fill(store, "s", 100, 140)


LOSSES = {
    lose_by_trim: ("12 entries of stream s after 5-0 were removed before they were read", ["18-0", "19-0", "20-0"]),
    lose_by_deletion: ("stream s has been deleted", []),
    lose_by_new_stream_with_lower_ids: ("stream s was recreated.*: its last ID is 2-0", ["1-0", "2-0"]),
    lose_by_new_stream_with_higher_ids: ("stream s was recreated: 2 entries were ever added", ["100-0", "101-0"]),
    lose_by_new_stream_with_more_entries: ("stream s was recreated", [f"{n}-0" for n in range(100, 141)]),
}


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("lose", LOSSES)
def test_loss_is_reported(store: redis.Redis, source_options: Options, lose: Any, is_restarted: bool) -> None:
    text, left = LOSSES[lose]
    fill(store, "s", 1, 5)
    query = Query(source_options, stream="s")
    assert len(query.ids()) == 5
    lose(store)
    with pytest.raises(DataLossError, match=text + ".*failOnDataLoss"):
        (query.restarted() if is_restarted else query).poll()
    careless = query.restarted(failOnDataLoss="false")
    assert careless.ids() == left
    assert careless.ids() == []
    fill(store, "s", 200, 201)
    assert careless.ids() == ["200-0", "201-0"]
    assert careless.restarted(failOnDataLoss="true").ids() == []


def test_a_trimmed_backlog_is_reported(store: redis.Redis, source_options: Options) -> None:
    fill(store, "s", 1, 50)
    query = Query(source_options, stream="s", maxEntriesPerTrigger="10")
    assert len(query.ids()) == 10
    store.xtrim("s", minid="11-0", approximate=False)
    assert len(query.ids()) == 10
    store.xtrim("s", minid="25-0", approximate=False)
    with pytest.raises(
        DataLossError,
        match="entries of stream s from 21-0 on were removed before they were read; the first one left is 25-0",
    ):
        query.poll()
    careless = query.restarted(failOnDataLoss="false")
    assert careless.ids() == [f"{n}-0" for n in range(25, 35)]
    assert careless.restarted(failOnDataLoss="true").ids() == [f"{n}-0" for n in range(35, 45)]


def test_trimming_what_was_read_is_no_loss(store: redis.Redis, source_options: Options) -> None:
    query = Query(source_options, stream="s")
    for round_ in range(10):
        ids = fill(store, "s", 10 * round_ + 1, 10 * round_ + 10)
        assert query.ids() == ids
        store.xtrim("s", maxlen=round_ % 3, approximate=False)


def test_deleting_single_entries_is_no_loss(store: redis.Redis, source_options: Options) -> None:
    fill(store, "s", 1, 10)
    query = Query(source_options, stream="s", maxEntriesPerTrigger="4")
    store.xdel("s", "2-0")
    assert query.ids() == ["1-0", "3-0", "4-0", "5-0"]
    store.xdel("s", "6-0", "8-0")
    assert query.ids() == ["7-0", "9-0", "10-0"]


def test_a_loss_of_an_idle_stream_among_many_is_seen(store: redis.Redis, source_options: Options) -> None:
    keys = [f"s{n:02}" for n in range(30)]
    for key in keys:
        fill(store, key, 1, 5)
    query = Query(source_options, streams=",".join(keys))
    query.batch()
    store.delete("s17")
    fill(store, "s17", 1, 1)
    assert query.poll(after_s=0.5) == query.start
    with pytest.raises(DataLossError, match="stream s17 was recreated"):
        query.poll()


def test_entries_trimmed_between_plan_and_read_are_notified(store: redis.Redis, source_options: Options) -> None:
    fill(store, "s", 1, 50)
    query = Query(source_options, stream="s", maxRecordsPerPartition="10")
    end = query.poll()
    store.xtrim("s", minid="15-0", approximate=False)
    with pytest.raises(DataLossError, match=r"from 1-0 to .* there were 0 of 10 entries left"):
        query.read(query.start, end)
    careless = query.restarted(failOnDataLoss="false")
    assert len(careless.read(query.start, end)) == 36


def test_entries_deleted_between_plan_and_read_are_no_loss(store: redis.Redis, source_options: Options) -> None:
    fill(store, "s", 1, 50)
    query = Query(source_options, stream="s", maxRecordsPerPartition="10")
    end = query.poll()
    store.xdel("s", "11-0", "12-0", "25-0")
    assert len(query.read(query.start, end)) == 47


@pytest.mark.parametrize("is_new", [False, True])
def test_a_stream_deleted_between_plan_and_read_is_reported(
    store: redis.Redis, source_options: Options, is_new: bool
) -> None:
    fill(store, "s", 1, 50)
    query = Query(source_options, stream="s")
    end = query.poll()
    store.delete("s")
    if is_new:
        fill(store, "s", 1, 3)
    with pytest.raises(DataLossError, match="trimmed, deleted or recreated"):
        query.read(query.start, end)


class Story:
    """Producers, trims and deletions in between polls; what a query must have read is kept beside it.

    waiting   entries that are there and have not been read, by stream
    is_lost   entries were trimmed before they were read, and the query has not gone on without them
    doubtful  streams an unread entry of which was deleted: with nothing left before it, this looks like a trim
    """

    def __init__(self, store: redis.Redis, query: Query, seed: int) -> None:
        self.store = store
        self.query = query
        self.random = random.Random(seed)
        self.ids = {"a": 0, "b": 0}
        self.read: Counter[tuple[str, str]] = Counter()
        self.waiting: dict[str, list[str]] = {"a": [], "b": []}
        self.is_lost = False
        self.doubtful: set[str] = set()

    def add(self) -> None:
        key = self.random.choice("ab")
        first = self.ids[key] + self.random.randint(1, 3)
        self.ids[key] = first + self.random.randint(0, 12)
        self.waiting[key] += fill(self.store, key, first, self.ids[key])

    def trim(self) -> None:
        """Mostly of what was read, sometimes further."""
        key = self.random.choice("ab")
        there = [each.decode() for each, _ in self.store.xrange(key)]
        unread = self.waiting[key]
        keep = len(unread) if self.random.random() < 0.9 else self.random.randint(0, len(there))
        self.store.xtrim(key, maxlen=keep, approximate=False)
        left = set(there[len(there) - keep :])
        self.is_lost = self.is_lost or not left.issuperset(unread)
        self.waiting[key] = [each for each in unread if each in left]

    def delete(self) -> None:
        """An entry, not the first one: that would look like a trim."""
        key = self.random.choice("ab")
        there = [each.decode() for each, _ in self.store.xrange(key)][1:]
        if there and there[0] not in self.waiting[key]:
            gone = self.random.choice(there)
            self.store.xdel(key, gone)
            if gone in self.waiting[key]:
                self.doubtful.add(key)
            self.waiting[key] = [each for each in self.waiting[key] if each != gone]

    def poll(self) -> None:
        if self.random.random() < 0.3:
            self.query = self.query.restarted()
        before = self.query.start
        try:
            found = self.query.batch()
        except DataLossError:
            assert self.is_lost or self.doubtful
            # Somebody decides to go on without what is lost, for one batch.
            careless = self.query.restarted(failOnDataLoss="false")
            found = careless.batch()
            self.query = Query(self.query.options, careless.start)
            if found:
                self.is_lost, self.doubtful = False, set()
        if self.random.random() < 0.3:
            assert self.query.restarted(maxEntriesPerTrigger="2").read(before, self.query.start) == found
        self.read.update(found)
        for key, each in found:
            assert self.waiting[key].pop(0) == each
            if not self.waiting[key]:
                self.doubtful.discard(key)

    def tell(self, steps: int) -> None:
        actions = [self.add, self.add, self.poll, self.poll, self.trim, self.delete]
        for _ in range(steps):
            self.random.choice(actions)()
        for key in "ab":
            self.ids[key] += 1
            self.waiting[key] += fill(self.store, key, self.ids[key], self.ids[key])
        while any(self.waiting.values()):
            self.poll()
        assert not self.is_lost
        assert max(self.read.values(), default=1) == 1


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("limits", [{}, {"maxEntriesPerTrigger": "9"}, {"maxBytesPerTrigger": "500"}])
def test_every_entry_is_read_once_or_its_loss_is_reported(
    store: redis.Redis, source_options: Options, limits: Options, seed: int
) -> None:
    query = Query(source_options, streams="a,b", **limits)
    Story(store, query, seed).tell(60)


# --- The mirror group -----------------------------------------------------------------------------------------------------


def mirror(store: redis.Redis, key: str = "s") -> tuple[str, int | None]:
    """Where the group is, and its lag."""
    (found,) = store.xinfo_groups(key)
    assert found["name"] == b"spark"
    return found["last-delivered-id"].decode(), found["lag"]


def test_the_mirror_group_follows_what_has_been_processed(store: redis.Redis, source_options: Options) -> None:
    fill(store, "s", 1, 25)
    query = Query(source_options, stream="s", maxEntriesPerTrigger="10", group="spark")
    assert mirror(store) == ("0-0", 25)
    query.batch()
    assert mirror(store) == ("0-0", 25)  # the batch is read; whether it was processed is not known yet
    query.batch()
    assert mirror(store) == ("10-0", 15)
    query.reader.commit(query.start)
    assert mirror(store) == ("20-0", 5)
    query.batch()
    assert query.batch() == []
    assert mirror(store) == ("25-0", 0)
    fill(store, "s", 26, 28)
    assert mirror(store) == ("25-0", 3)


def test_the_mirror_group_shows_lag_after_trims_too(store: redis.Redis, source_options: Options) -> None:
    fill(store, "s", 1, 40)
    store.xtrim("s", minid="11-0", approximate=False)
    query = Query(source_options, stream="s", maxEntriesPerTrigger="10", group="spark")
    assert mirror(store) == ("0-0", 30)
    query.batch()
    query.poll()
    assert mirror(store) == ("20-0", 20)


def test_the_mirror_group_is_not_moved_by_a_crash_in_the_first_batch(
    store: redis.Redis, source_options: Options
) -> None:
    fill(store, "s", 1, 5)
    Query(source_options, stream="s", startingId="latest", group="spark").poll()
    fill(store, "s", 6, 9)
    Query(source_options, stream="s", startingId="latest", group="spark")
    assert mirror(store) == ("5-0", 4)


def test_the_mirror_group_goes_back_for_a_query_that_begins_before_it(
    store: redis.Redis, source_options: Options
) -> None:
    fill(store, "s", 1, 5)
    store.xgroup_create("s", "spark", "$")
    Query(source_options, stream="s", group="spark")
    assert mirror(store) == ("0-0", 5)


def test_a_mirror_group_that_was_destroyed_is_made_again(store: redis.Redis, source_options: Options) -> None:
    fill(store, "s", 1, 5)
    query = Query(source_options, stream="s", group="spark")
    query.batch()
    store.xgroup_destroy("s", "spark")
    query.batch()
    assert mirror(store) == ("5-0", 0)


def test_streams_that_come_later_get_the_mirror_group(store: redis.Redis, source_options: Options) -> None:
    query = Query(source_options, stream="s", group="spark")
    fill(store, "s", 1, 5)
    query.batch()
    assert query.batch() == []
    assert mirror(store) == ("5-0", 0)
    pattern = Query(source_options, streamPattern="t*", group="spark")
    fill(store, "t1", 1, 5)
    pattern.poll(after_s=60)
    pattern.batch()
    assert mirror(store, "t1") == ("0-0", 5)
    pattern.batch()
    assert mirror(store, "t1") == ("5-0", 0)


def test_trims_of_what_is_acknowledged_respect_the_query(
    server: Server, store: redis.Redis, source_options: Options
) -> None:
    fill(store, "s", 1, 30)
    query = Query(source_options, stream="s", maxEntriesPerTrigger="10", group="spark")
    query.batch()
    query.poll()
    try:
        store.execute_command("XTRIM", "s", "MINID", "26-0", "ACKED")
    except redis.ResponseError:
        pytest.skip("this server has no ACKED")
    assert store.xrange("s", count=1)[0][0] == b"11-0"
    assert len(query.ids()) == 10


# --- Broken connections ---------------------------------------------------------------------------------------------------


def test_a_poll_survives_a_killed_connection(store: redis.Redis, source_options: Options) -> None:
    fill(store, "s", 1, 5)
    query = Query(source_options, stream="s", retryBackoff="1ms")
    assert len(query.ids()) == 5
    store.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    fill(store, "s", 6, 8)
    assert query.ids() == ["6-0", "7-0", "8-0"]
