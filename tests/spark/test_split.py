"""Cutting streams into partitions: nothing is lost or doubled, and parts are even, also where entries come in bursts."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
import redis
from support.servers import Server
from support.spark.session import ON_BOTH

pytest.importorskip("pyspark")

from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from streamd.client.client_errors import DataLossError, ServerError
from streamd.client.connection import SPLIT_COMMAND, Connection, Features, connect, server_features
from streamd.client.points import MAX_ID, MIN_ID, format_entry_id, pack_id
from streamd.spark.source.batch import RangesReader
from streamd.spark.source.filters import narrow_by_filters
from streamd.spark.source.schema import DEFAULT_SCHEMA
from streamd.transfer.partitions import (
    MOST_SLICES,
    SplitForbiddenError,
    StreamRange,
    _goes,
    ask_slices,
    find_cuts,
    find_extents,
    find_streams,
    plan_partitions,
    ranges_between,
)
from streamd.transfer.read_options import SourceOptions

COUNT = 20_000
NO_HELPERS = Features("redis", (7, 0, 0), (7, 0, 0), False, False, False)


@pytest.fixture
def connection(server: Server, store: redis.Redis) -> Iterator[Connection]:
    with connect(SourceOptions.parse({"stream": "s", "port": str(server.port)}).connection) as made:
        yield made


def add(connection: Connection, ids: list[tuple[int, int]], key: str = "s") -> None:
    for at in range(0, len(ids), 5000):
        connection.pipeline([("XADD", key, f"{ms}-{seq}", "f", "v") for ms, seq in ids[at : at + 5000]])


def uniform() -> list[tuple[int, int]]:
    return [(1_700_000_000_000 + 10 * at, 0) for at in range(COUNT)]


def bursty() -> list[tuple[int, int]]:
    """Most of the entries in a few seconds of a day, the rest thinly over it."""
    chance = random.Random(5)
    day = 86_400_000
    found = {(chance.randrange(day), 0) for _ in range(COUNT // 20)}
    for _ in range(5):
        start = chance.randrange(day)
        found |= {(start + chance.randrange(3000), seq) for seq in range(COUNT // 5)}
    return [(1_700_000_000_000 + ms, seq) for ms, seq in sorted(found)]


def one_millisecond() -> list[tuple[int, int]]:
    return [(0, seq) for seq in range(1, COUNT + 1)]


def sizes_of(ids: list[tuple[int, int]], ranges: list[StreamRange]) -> list[int]:
    numbers = [pack_id(*each) for each in ids]
    return [sum(each.start <= number <= each.end for number in numbers) for each in ranges]


@ON_BOTH
@pytest.mark.parametrize(("ids", "bound"), [(uniform, 1.3), (bursty, 4.0), (one_millisecond, 1.3)])
def test_probes_cut_evenly(connection: Connection, ids: object, bound: float) -> None:
    made = ids()  # type: ignore[operator]
    add(connection, made)
    (extent,) = find_extents(connection, [("s", MIN_ID, MAX_ID)])
    ranges = ranges_between(extent, find_cuts(connection, extent, 16, NO_HELPERS))
    sizes = sizes_of(made, ranges)
    assert sum(sizes) == len(made)
    assert len(ranges) == 16
    assert max(sizes) <= bound * len(made) / 16, sizes


@pytest.mark.parametrize("ids", [uniform, bursty, one_millisecond])
def test_streamd_cuts_evenly(connection: Connection, server: Server, ids: object) -> None:
    made = ids()  # type: ignore[operator]
    add(connection, made)
    options = SourceOptions.parse({"stream": "s", "port": str(server.port), "minPartitions": "16"})
    sizes = sizes_of(made, plan_partitions(connection, options, [("s", MIN_ID, MAX_ID)], parallelism=2))
    assert sum(sizes) == len(made)
    assert len(sizes) == 16
    assert max(sizes) - min(sizes) <= 1


def test_streamd_cuts_into_very_many_parts(connection: Connection) -> None:
    made = bursty()
    add(connection, made)
    add(connection, made[:10], "t")
    add(connection, made[:3], "u")
    bounds = [(name, MIN_ID, MAX_ID) for name in ("s", "t", "none", "u")]
    found = ask_slices(connection, bounds, [15_000, 3, 4, 5])
    assert [len(each) for each in found] == [15_000, 3, 0, 3]
    assert {each.count for each in found[0]} == {len(made) // 15_000, len(made) // 15_000 + 1}
    numbers = [pack_id(*each) for each in made]
    assert [(each.first, each.last, each.count) for each in found[1]] == [
        (numbers[0], numbers[2], 3),
        (numbers[3], numbers[5], 3),
        (numbers[6], numbers[9], 4),
    ]
    (limited,) = ask_slices(connection, bounds[:1], [2], [7])
    assert [(each.first, each.count) for each in limited] == [(numbers[0], 3), (numbers[3], 4)]


def test_requests_to_cut_ask_for_as_many_parts_as_the_server_allows(connection: Connection) -> None:
    add(connection, uniform())
    whole = [("s", MIN_ID, MAX_ID)]
    (most,) = connection.pipeline([(SPLIT_COMMAND, "s", MOST_SLICES)])
    assert len(most) == MOST_SLICES
    with pytest.raises(ServerError, match=f"parts must be between 1 and {MOST_SLICES}"):
        connection.command(SPLIT_COMMAND, "s", MOST_SLICES + 1)
    wanted = [MOST_SLICES, 1, MOST_SLICES - 1, 1, 2 * MOST_SLICES, 3]
    assert [len(each) for each in ask_slices(connection, whole * len(wanted), wanted)] == wanted
    assert ask_slices(connection, [], []) == []


def test_requests_to_cut_are_sent_together_up_to_a_number_of_parts() -> None:
    most = MOST_SLICES
    assert list(_goes([most, 1, most - 1, 1, most, 3, 4])) == [(0, 1), (1, 3), (3, 4), (4, 5), (5, 7)]
    assert list(_goes([1] * (2 * most + 1))) == [(0, most), (most, 2 * most), (2 * most, 2 * most + 1)]


def test_large_streams_have_as_many_partitions_as_tasks_run_at_a_time(connection: Connection, server: Server) -> None:
    add(connection, uniform())
    add(connection, uniform()[: COUNT // 2], "t")
    options = SourceOptions.parse({"streams": "s,t", "port": str(server.port)})
    wanted = [(name, MIN_ID, MAX_ID) for name in options.named_streams]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("streamd.transfer.partitions.ENTRIES_PER_PARTITION", 100)
        found = plan_partitions(connection, options, wanted, parallelism=6)
        assert [each.stream for each in found] == ["s"] * 4 + ["t"] * 2
        patched.setattr("streamd.transfer.partitions.MOST_ENTRIES", COUNT // 8)
        assert len(plan_partitions(connection, options, wanted, parallelism=6)) == 12


@ON_BOTH
def test_a_greatest_size_is_kept_exactly(connection: Connection, server: Server) -> None:
    made = bursty()
    add(connection, made)
    options = SourceOptions.parse({"stream": "s", "port": str(server.port), "maxRecordsPerPartition": "999"})
    ranges = plan_partitions(connection, options, [("s", MIN_ID, MAX_ID)], parallelism=2)
    sizes = sizes_of(made, ranges)
    assert sum(sizes) == len(made)
    assert len(sizes) == -(-len(made) // 999)
    assert max(sizes) <= 999
    both = SourceOptions.parse(
        {"stream": "s", "port": str(server.port), "maxRecordsPerPartition": str(COUNT), "minPartitions": "5"}
    )
    assert len(plan_partitions(connection, both, [("s", MIN_ID, MAX_ID)], parallelism=2)) == 5


def test_small_streams_are_not_cut(connection: Connection, server: Server) -> None:
    add(connection, uniform()[:5000])
    add(connection, uniform()[:3], "t")
    options = SourceOptions.parse({"streams": "s,t,none", "port": str(server.port)})
    wanted = [(name, MIN_ID, MAX_ID) for name in options.named_streams]
    found = plan_partitions(connection, options, wanted, parallelism=8)
    assert [each.stream for each in found] == ["s", "t"]
    assert repr(found[1]) == "t[1700000000000-0 .. 1700000000020-0]"


def test_what_need_not_be_cut_is_asked_for_once(connection: Connection, server: Server) -> None:
    for name in ("s", "t"):
        add(connection, uniform()[:3], name)
    options = SourceOptions.parse({"streams": "s,t,none", "port": str(server.port)})
    wanted = [(name, MIN_ID, MAX_ID) for name in options.named_streams]
    connection.command("CONFIG", "RESETSTAT")
    found = plan_partitions(connection, options, wanted, parallelism=8)
    assert [(each.stream, each.count) for each in found] == [("s", 3), ("t", 3)]
    assert read_calls(connection) == {"streamd.split": 3}
    second = found[0].start + (10 << 64)
    found = plan_partitions(connection, options, [("s", second, MAX_ID)], parallelism=8)
    assert [(each.start, each.first, each.count) for each in found] == [(second, second - (10 << 64), 2)]
    assert read_calls(connection) == {"streamd.split": 4, "xrange": 1}


def read_calls(connection: Connection) -> dict[str, int]:
    """How often each command that reads streams was called."""
    lines = connection.command("INFO", "commandstats").decode().splitlines()
    found = {}
    for name, _, fields in (line.removeprefix("cmdstat_").partition(":") for line in lines):
        if name in ("streamd.split", "xlen", "xrange", "xrevrange"):
            found[name] = int(fields.partition("calls=")[2].partition(",")[0])
    return found


@ON_BOTH
def test_a_key_that_is_no_stream_is_named(connection: Connection, server: Server) -> None:
    connection.command("SET", "s", "x")
    options = SourceOptions.parse({"stream": "s", "port": str(server.port)})
    for start in (MIN_ID, pack_id(5, 0)):
        with pytest.raises(ServerError, match=r"WRONGTYPE .* \(stream s\)"):
            plan_partitions(connection, options, [("s", start, MAX_ID)], parallelism=2)


def test_ranges_without_entries_are_no_partitions(connection: Connection, server: Server) -> None:
    add(connection, [(5, 0), (9, 0)])
    options = SourceOptions.parse({"stream": "s", "port": str(server.port)})
    for low, high in [((6, 0), (8, 0)), ((10, 0), (11, 0)), ((8, 0), (6, 0))]:
        assert plan_partitions(connection, options, [("s", pack_id(*low), pack_id(*high))], parallelism=2) == []
    (one,) = plan_partitions(connection, options, [("s", pack_id(6, 0), MAX_ID)], parallelism=2)
    assert (one.start, one.end, one.first) == (pack_id(9, 0), pack_id(9, 0), pack_id(5, 0))


def test_patterns_find_streams_only_also_those_whose_names_are_no_text(connection: Connection, server: Server) -> None:
    add(connection, [(1, 0)], "s:b")
    add(connection, [(1, 0)], "s:a")
    connection.pipeline([("XADD", b"s:\xff", "1-0", "f", "v"), ("SET", "s:c", "x")])
    options = SourceOptions.parse({"streamPattern": "s:*", "port": str(server.port)})
    names = find_streams(connection, options)
    assert names == ["s:a", "s:b", "s:\udcff"]
    assert [each.length for each in find_extents(connection, [(name, MIN_ID, MAX_ID) for name in names])] == [1, 1, 1]


# --- Users that may not call everything -----------------------------------------------------------------------------------

LISTED = "+client|setname +info +command +xrange +xrevrange +xlen"


@pytest.fixture
def restricted(server: Server, store: redis.Redis) -> Iterator[dict[str, str]]:
    """Options for a user whose access control list names the commands that reads need of any server."""
    store.execute_command("ACL", "SETUSER", "reader", "on", ">word", "~*", *LISTED.split())
    yield {"stream": "s", "port": str(server.port), "username": "reader", "password": "word"}
    store.execute_command("ACL", "DELUSER", "reader")


@ON_BOTH
@pytest.mark.parametrize("more", [{"minPartitions": "6"}, {"maxRecordsPerPartition": "4000"}])
def test_a_user_who_may_not_ask_for_cuts_reads_all_the_same(
    connection: Connection, restricted: dict[str, str], more: dict[str, str]
) -> None:
    made = uniform()
    add(connection, made)
    options = SourceOptions.parse({**restricted, **more})
    with connect(options.connection) as mine:
        ranges = plan_partitions(mine, options, [("s", MIN_ID, MAX_ID)], parallelism=2)
        assert not server_features(mine).has_streamd_helpers
    sizes = sizes_of(made, ranges)
    assert sum(sizes) == len(made)
    assert len(sizes) >= 5
    assert max(sizes) <= 4400


def test_cuts_are_asked_for_once_by_a_user_who_may_not(connection: Connection, restricted: dict[str, str]) -> None:
    add(connection, uniform())
    (extent,) = find_extents(connection, [("s", MIN_ID, MAX_ID)])
    with connect(SourceOptions.parse(restricted).connection) as mine:
        assert server_features(mine).has_streamd_helpers
        with pytest.raises(SplitForbiddenError, match="NOPERM"):
            ask_slices(mine, [("s", MIN_ID, MAX_ID)], [2])
        assert not server_features(mine).has_streamd_helpers
        assert len(find_cuts(mine, extent, 8)) == 7
    with connect(SourceOptions.parse(restricted).connection) as mine:
        assert len(find_cuts(mine, extent, 8)) == 7


# --- Filters --------------------------------------------------------------------------------------------------------------


def test_filters_on_ms_narrow() -> None:
    found = narrow_by_filters([GreaterThan(("ms",), 5), LessThanOrEqual(("ms",), 9), EqualTo(("n",), 3)], "")
    assert (found.low, found.high) == (pack_id(6, 0), pack_id(9, 2**64 - 1))
    found = narrow_by_filters([In(("_ms",), (7, 3)), LessThan(("_ms",), 7), GreaterThanOrEqual(("ms",), 5)], "_")
    assert (found.low, found.high) == (pack_id(3, 0), pack_id(7, 0) - 1)
    assert narrow_by_filters([LessThan(("ms",), 0)], "").high < 0


def test_filters_on_id_and_stream_narrow() -> None:
    found = narrow_by_filters([In(("id",), ("7-1", "5-2"))], "")
    assert (format_entry_id(found.low), format_entry_id(found.high)) == ("5-2", "7-1")
    assert narrow_by_filters([EqualTo(("id",), "no ID")], "").high == MAX_ID
    found = narrow_by_filters([In(("stream",), ("a", "b")), EqualTo(("stream",), "b")], "")
    assert (found.wants("b"), found.wants("a")) == (True, False)
    assert narrow_by_filters([StringStartsWith(("stream",), "x")], "").wants("xy")


def test_conditions_on_id_as_text_narrow_only_where_text_order_is_id_order() -> None:
    found = narrow_by_filters([GreaterThan(("id",), "150-7"), LessThan(("id",), "180")], "")
    assert found.of_id_texts(pack_id(100, 0), pack_id(200, 0)) == (pack_id(150, 0), pack_id(180, 2**64 - 1))
    # 20-0 > 150-7 as text, so nothing may be left out.
    assert found.of_id_texts(pack_id(20, 0), pack_id(200, 0)) == (pack_id(20, 0), pack_id(200, 0))
    prefix = narrow_by_filters([StringStartsWith(("id",), "15")], "")
    assert prefix.of_id_texts(pack_id(100, 0), pack_id(200, 0)) == (pack_id(150, 0), pack_id(159, 2**64 - 1))


# --- Loss -----------------------------------------------------------------------------------------------------------------


@ON_BOTH
def test_entries_that_go_while_a_partition_is_read_are_missed(
    connection: Connection, store: redis.Redis, source_options: dict[str, str]
) -> None:
    add(connection, uniform()[:9])
    options = {**source_options, "stream": "s", "minPartitions": "3", "fetchSize": "1"}
    reader = RangesReader(DEFAULT_SCHEMA, SourceOptions.parse(options))
    first, second, third = reader.partitions()
    assert sum(batch.num_rows for batch in reader.read(first)) == 3
    store.xdel("s", store.xrange("s", count=5)[4][0])
    assert sum(batch.num_rows for batch in reader.read(second)) == 2  # deleted one by one: that is no loss
    store.xtrim("s", maxlen=2, approximate=False)
    with pytest.raises(DataLossError, match=r"stream s starts at .* now"):
        list(reader.read(third))
    careless = RangesReader(DEFAULT_SCHEMA, SourceOptions.parse({**options, "failOnDataLoss": "false"}))
    assert sum(batch.num_rows for batch in careless.read(third)) == 2


def test_what_is_trimmed_after_it_was_read_is_not_missed(
    connection: Connection, store: redis.Redis, source_options: dict[str, str]
) -> None:
    add(connection, uniform()[:9])
    reader = RangesReader(DEFAULT_SCHEMA, SourceOptions.parse({**source_options, "stream": "s", "batchSize": "1"}))
    (partition,) = reader.partitions()
    batches = reader.read(partition)
    rows = next(batches).num_rows  # by now all of the reply is here
    store.xtrim("s", maxlen=0, approximate=False)
    assert rows + sum(batch.num_rows for batch in batches) == 9
