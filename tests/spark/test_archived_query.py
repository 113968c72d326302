"""Streaming queries that start in an archive and go on live, without Spark: every entry once, whoever archives or trims when.

test_stream_source.py has a query in Spark that is killed meanwhile.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

pytest.importorskip("pyspark.sql.streaming.datasource", reason="needs PySpark 4.2 or newer")

from support.archives.runs import KEY, archive_once
from support.spark.planned import Query, stop_queries
from support.spark.session import ON_BOTH

from streamd.archive.delete import delete
from streamd.client.points import parse_entry_id
from streamd.spark import DataLossError, OptionError

pytestmark = [pytest.mark.long, ON_BOTH]

Options = dict[str, str]

HOUR_MS = 3_600_000


@pytest.fixture(autouse=True)
def end_queries() -> Iterator[None]:
    yield
    stop_queries()


def fill(store: redis.Redis, count: int) -> list[str]:
    """So many entries with IDs of the clock."""
    pipe = store.pipeline(transaction=False)
    for at in range(count):
        pipe.xadd(KEY, {"n": at})
    return [each.decode() for each in pipe.execute()]


def query_of(path: Path, options: Options, **more: str) -> Query:
    return Query({"stream": KEY, "startingPosition": "archive", **options, "archive": str(path), **more})


def everything(query: Query) -> list[str]:
    return [each for batch in query.all_batches() for _, each in batch]


LIMITS = [
    {},
    {"maxEntriesPerTrigger": "700"},
    {"minPartitions": "5"},
    {"maxRecordsPerPartition": "130"},
    {"maxEntriesPerTrigger": "701", "maxRecordsPerPartition": "100"},
]


@pytest.mark.parametrize("limits", LIMITS)
def test_a_query_starts_in_the_archive_and_goes_on_live(
    store: redis.Redis, source_options: Options, tmp_path: Path, limits: Options
) -> None:
    produced = fill(store, 3000)
    archive_once(tmp_path, source_options)
    produced += fill(store, 500)
    assert store.xlen(KEY) == 500
    query = query_of(tmp_path, source_options, **limits)
    found = []
    while True:
        before = query.start
        batch = query.ids()
        if not batch:
            break
        found += batch
        parts = query.parts(before, query.start)
        assert len(batch) <= int(limits.get("maxEntriesPerTrigger", len(batch)))
        assert max(part.count or 0 for part in parts) <= int(limits.get("maxRecordsPerPartition", 5000))
        assert len(parts) >= min(len(batch), int(limits.get("minPartitions", 1)))
        assert sum(part.count or 0 for part in parts) == len(batch)
        query = query.restarted()
    assert found == produced
    produced += fill(store, 20)
    assert everything(query) == produced[3500:]


def test_a_start_in_the_middle_of_the_archive_and_latest(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    produced = fill(store, 1000)
    archive_once(tmp_path, source_options)
    produced += fill(store, 10)
    middle = Query({**source_options, "stream": KEY, "archive": str(tmp_path), "startingId": produced[400]})
    assert everything(middle) == produced[400:]
    newest = Query({**source_options, "stream": KEY, "archive": str(tmp_path), "startingId": "latest"})
    assert everything(newest) == []
    later = fill(store, 5)
    archive_once(tmp_path, source_options)
    assert everything(newest) == later


def test_a_batch_that_is_repeated_after_its_entries_were_archived_has_the_same_rows(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    fill(store, 300)
    archive_once(tmp_path, source_options)
    fill(store, 900)
    query = query_of(tmp_path, source_options, maxRecordsPerPartition="200")
    query.batch()
    start, end = query.start, query.poll()
    rows = query.read(start, end)
    assert len(rows) == 900
    archive_once(tmp_path, source_options)
    assert store.xlen(KEY) == 0
    assert query.restarted().read(start, end) == rows


@pytest.mark.parametrize("keep_ms", [0, HOUR_MS])
def test_what_is_trimmed_during_a_read_is_read_from_the_archive(
    store: redis.Redis, source_options: Options, tmp_path: Path, keep_ms: int
) -> None:
    """All of a part that is being read, or its first half."""
    old_ms = time.time_ns() // 1_000_000 - 2 * HOUR_MS
    produced = [store.xadd(KEY, {"n": at}, id=f"{old_ms}-{at}").decode() for at in range(2500)]
    archive_once(tmp_path, source_options, hot_window_ms=4 * HOUR_MS)
    produced += fill(store, 2500)
    query = query_of(tmp_path, source_options, fetchSize="100", batchSize="100", minPartitions="1")
    end = query.poll()
    found: list[str] = []
    for number, rows in enumerate(query.record_batches(query.start, end)):
        found += [each for _, each in rows]
        if number == 3:
            archive_once(tmp_path, source_options, hot_window_ms=keep_ms)
            assert store.xlen(KEY) == (2500 if keep_ms else 0)
    assert found == produced


def test_available_now_ends_where_the_stream_ended(store: redis.Redis, source_options: Options, tmp_path: Path) -> None:
    produced = fill(store, 500)
    archive_once(tmp_path, source_options)
    produced += fill(store, 100)
    query = query_of(tmp_path, source_options, maxEntriesPerTrigger="250")
    query.reader.prepareForTriggerAvailableNow()
    later = fill(store, 300)
    archive_once(tmp_path, source_options)
    assert everything(query) == produced
    assert everything(query.restarted()) == later


def test_the_lag_counts_the_archive_and_the_server(store: redis.Redis, source_options: Options, tmp_path: Path) -> None:
    fill(store, 400)
    archive_once(tmp_path, source_options)
    fill(store, 50)
    query = query_of(tmp_path, source_options, maxEntriesPerTrigger="400")
    seen = []
    while query.batch():
        report = query.reader.reportLatestOffset()
        assert report is not None
        seen.append(report["behindEntries"])
    assert seen == [50, 0]


def test_other_streams_of_a_pattern_and_streams_only_in_the_archive(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    produced = fill(store, 200)
    archive_once(tmp_path, source_options)
    store.delete(KEY)
    other = store.xadd(KEY + "2", {"f": "v"}).decode()
    query = Query({**source_options, "streamPattern": KEY + "*", "archive": str(tmp_path)})
    assert everything(query) == [*produced, other]


def test_what_others_trim_is_an_error(store: redis.Redis, source_options: Options, tmp_path: Path) -> None:
    produced = fill(store, 200)
    archive_once(tmp_path, source_options)
    fill(store, 100)
    query = query_of(tmp_path, source_options, maxEntriesPerTrigger="200")
    assert query.ids() == produced
    store.xtrim(KEY, maxlen=50, approximate=False)
    with pytest.raises(DataLossError, match="archive run --allow-gaps"):
        query.batch()
    with pytest.raises(DataLossError, match="archive run --allow-gaps"):
        query_of(tmp_path, source_options).batch()
    careless = query_of(tmp_path, source_options, failOnDataLoss="false")
    assert len(everything(careless)) == 250


def test_what_others_trim_between_plan_and_read_is_an_error(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    fill(store, 200)
    archive_once(tmp_path, source_options)
    query = query_of(tmp_path, source_options)
    query.batch()
    fill(store, 100)
    end = query.poll()
    store.xtrim(KEY, maxlen=50, approximate=False)
    with pytest.raises(DataLossError, match="trimmed that are not archived"):
        query.read(query.start, end)


def test_another_stream_of_the_name_is_an_error(store: redis.Redis, source_options: Options, tmp_path: Path) -> None:
    fill(store, 200)
    archive_once(tmp_path, source_options)
    store.delete(KEY)
    fill(store, 10)
    with pytest.raises(DataLossError, match="was recreated"):
        query_of(tmp_path, source_options).batch()


def test_entries_deleted_from_the_archive_are_no_loss(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    produced = fill(store, 300)
    archive_once(tmp_path, source_options)
    query = query_of(tmp_path, source_options)
    end = query.poll()
    gone = parse_entry_id(produced[7])
    delete(tmp_path, KEY, source_options, [(gone, gone)])
    assert [each for _, each in query.read(query.start, end)] == produced[:7] + produced[8:]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"maxBytesPerTrigger": "1m"}, "option maxBytesPerTrigger: cannot be combined with archive"),
        ({"startingId": "5"}, "option startingPosition: cannot be combined with startingId"),
        ({"startingPosition": "latest"}, "option startingPosition: 'latest' is none of archive"),
        ({"endingId": "5"}, "option endingId: is for batch reads"),
    ],
)
def test_options_that_do_not_fit(source_options: Options, tmp_path: Path, more: Options, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        query_of(tmp_path, source_options, **more)


@pytest.mark.parametrize("seed", range(8))
def test_every_entry_is_read_once_whatever_is_archived_and_trimmed(
    store: redis.Redis, source_options: Options, tmp_path: Path, seed: int
) -> None:
    """Additions, runs of the archiver, polls, and restarts that repeat a batch, in any order."""
    source = random.Random(seed)
    limits: dict[str, Any] = source.choice(LIMITS)
    produced = fill(store, 50)
    archive_once(tmp_path, source_options)
    query = query_of(tmp_path, source_options, batchSize="100", fetchSize="50", **limits)
    found: list[str] = []
    for _ in range(40):
        match source.randrange(5):
            case 0 | 1:
                produced += fill(store, source.randint(1, 900))
            case 2:
                archive_once(tmp_path, source_options, trim_delay_ms=source.choice([0, 3_600_000]))
            case 3:
                start, end = query.start, query.poll()
                lost = query.read(start, end)  # by a query that is killed before it notes the batch as done
                if source.random() < 0.7:
                    archive_once(tmp_path, source_options)
                query = Query(query.options, start)
                assert query.read(start, end) == lost
                found += [each for _, each in lost]
                query.start = end
            case _:
                found += query.ids()
    found += everything(query)
    assert found == produced
