"""Archive and server as one table: no entry twice, none missing, and an error instead of too few."""

from __future__ import annotations

import csv
import json
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis

pytest.importorskip("pyspark", reason="archives need streamd-server[spark]")

import pyarrow.parquet as pq
from click.testing import CliRunner
from support.archives.runs import KEY, archive_once, fill, rows_of_history
from support.servers import eventually
from support.spark.session import ON_BOTH

from streamd.archive.full_history import ColdPart, HotPart, end_read, plan_history, read_part
from streamd.archive.layout import Layout
from streamd.archive.name_patterns import pattern_of
from streamd.cli.subcommands import program
from streamd.client.archive_keys import key_beside
from streamd.client.client_errors import DataLossError
from streamd.client.points import MAX_ID
from streamd.disk import Disk
from streamd.spark.source.schema import DEFAULT_SCHEMA, table_layout
from streamd.transfer.read_options import SourceOptions

pytestmark = pytest.mark.long

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Options = dict[str, str]


def ids_of(path: Path, options: Options, **more: str) -> list[str]:
    return [entry_id for entry_id, _ in rows_of_history(path, options, **more)]


def source_of(path: Path, options: Options, **more: str) -> SourceOptions:
    return SourceOptions.parse({"stream": KEY, **options, "archive": str(path), **more})


def read_all(source: SourceOptions, parts: list[Any]) -> list[str]:
    table = table_layout(DEFAULT_SCHEMA, source)
    return [row["id"] for part in parts for batch in read_part(source, table, part) for row in batch.to_pylist()]


def half_archived(store: redis.Redis, path: Path, options: Options) -> list[str]:
    """A stream with 5000 archived entries, some of them still on the server, and 50 newer ones."""
    old = fill(store, 5000)
    archive_once(path, options, trim_delay_ms=3_600_000)
    return old + [store.xadd(KEY, {"sensor": at % 7, "value": at}).decode() for at in range(50)]


@ON_BOTH
def test_cold_and_hot_are_one(store: redis.Redis, source_options: Options, tmp_path: Path) -> None:
    produced = half_archived(store, tmp_path, source_options)
    assert store.xlen(KEY) == 5050  # the archived ones are on the server too
    assert ids_of(tmp_path, source_options) == produced
    archive_once(tmp_path, source_options, hot_window_ms=3_600_000)
    assert store.xlen(KEY) == 50
    assert ids_of(tmp_path, source_options) == produced
    archive_once(tmp_path, source_options)
    assert store.xlen(KEY) == 0
    assert ids_of(tmp_path, source_options) == produced
    store.delete(KEY)
    assert ids_of(tmp_path, source_options) == produced


@pytest.mark.parametrize(
    ("first", "last"), [(0, 5049), (10, 20), (4990, 5010), (5010, 5020), (2160, 2161), (4999, 5000)]
)
def test_a_range_is_cut_at_the_entry(
    first: int, last: int, store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    produced = half_archived(store, tmp_path, source_options)
    bounds = {"startingId": produced[first], "endingId": produced[last]}
    assert ids_of(tmp_path, source_options, **bounds) == produced[first : last + 1]
    parts = plan_history(source_of(tmp_path, source_options, **bounds))
    cold = [part for part in parts if isinstance(part, ColdPart)]
    assert len({part.file.path for part in cold}) == len(cold) <= 4
    if last < 100:
        assert len(cold) == 1, "files outside of the range are not opened"


def test_files_that_no_manifest_names_are_not_read(store: redis.Redis, source_options: Options, tmp_path: Path) -> None:
    produced = half_archived(store, tmp_path, source_options)
    for path in list(Layout(tmp_path).data_files(KEY)):
        path.with_name("stranger.parquet").write_bytes(path.read_bytes())
    assert ids_of(tmp_path, source_options) == produced


def test_streams_are_found_by_pattern_on_both_sides(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    fill(store, 10)
    archive_once(tmp_path, source_options)
    store.delete(KEY)
    store.xadd("readings:new", {"f": "v"})
    store.xadd("other", {"f": "v"})
    source = SourceOptions.parse({**source_options, "archive": str(tmp_path), "streamPattern": "read[a-c]*"})
    assert plan_history(source) == []
    source = SourceOptions.parse({**source_options, "archive": str(tmp_path), "streamPattern": "rea?ing*"})
    assert [part.stream for part in plan_history(source)] == [KEY, "readings:new"]
    source = SourceOptions.parse({**source_options, "archive": str(tmp_path)})
    assert [part.stream for part in plan_history(source)] == [KEY]


@pytest.mark.parametrize(
    "glob",
    [
        "*",
        "a*",
        "?b",
        "[a-c]x",
        "[^a-c]x",
        "a\\*",
        "a[",
        "[]x",
        "a.b",
        "[a&&b]x",
        "[\\]x]y",
        "[c-a]x",
        "[a",
        "[^]x",
        "x[^a",
    ],
)
def test_patterns_mean_what_they_mean_to_the_server(glob: str, store: redis.Redis) -> None:
    keys = ["a", "ab", "bb", "ax", "dx", "a*", "a[", "a.b", "axb", "]x", "x", "&x", "]y", "\\y", "xy", "a\nb"]
    for key in keys:
        store.xadd(key, {"f": "v"})
    matches = re.compile(pattern_of(glob), re.DOTALL)
    assert {key for key in keys if matches.fullmatch(key)} == {key.decode() for key in store.keys(glob)}


# --- While an archiver runs beside it -------------------------------------------------------------------------------------


def test_reads_beside_an_archiver_find_everything_or_say_so(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    """Without leases and trim delay, the worst case: an answer that is given is right."""
    produced: list[str] = []
    stop = threading.Event()
    port = int(source_options["port"])

    def produce() -> None:
        client = redis.Redis(port=port)
        while not stop.is_set():
            produced.append(client.xadd(KEY, {"f": "v"}).decode())

    def run_archiver() -> None:
        while not stop.is_set():
            archive_once(tmp_path, source_options)

    Layout(tmp_path).create(Disk())
    threads = [threading.Thread(target=produce), threading.Thread(target=run_archiver)]
    for thread in threads:
        thread.start()
    try:
        eventually(lambda: len(produced) > 200)
        answers = refusals = 0
        while answers < 5:
            try:
                found = ids_of(tmp_path, source_options)
            except DataLossError:
                refusals += 1
                assert refusals < 500
                continue
            answers += 1
            eventually(lambda found=found: len(produced) >= len(found))
            assert found == produced[: len(found)]
            assert found
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_a_lease_keeps_what_a_read_has_planned(store: redis.Redis, source_options: Options, tmp_path: Path) -> None:
    produced = fill(store, 500)
    Layout(tmp_path).create(Disk())
    source = source_of(tmp_path, source_options)
    parts = plan_history(source, reader="me")
    report = archive_once(tmp_path, source_options).streams[0]
    assert (report.rows, report.trimmed, report.held_by_readers) == (500, 0, "0-0")
    assert read_all(source, parts) == produced
    end_read(source, "me")
    assert archive_once(tmp_path, source_options).streams[0].trimmed == 500
    assert ids_of(tmp_path, source_options) == produced


def test_without_a_lease_a_trim_is_reported(store: redis.Redis, source_options: Options, tmp_path: Path) -> None:
    fill(store, 500)
    Layout(tmp_path).create(Disk())
    source = source_of(tmp_path, source_options, archiveLease="0")
    parts = plan_history(source)
    archive_once(tmp_path, source_options)
    with pytest.raises(DataLossError, match="an archiver has trimmed"):
        read_all(source, parts)
    careless = source_of(tmp_path, source_options, archiveLease="0", failOnDataLoss="false")
    assert read_all(careless, parts) == []


Change = Callable[[redis.Redis, list[str]], object]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda store, ids: store.xtrim(KEY, maxlen=10, approximate=False), "was trimmed"),
        (lambda store, ids: store.xtrim(KEY, maxlen=0, approximate=False), "was trimmed"),
        (lambda store, ids: store.delete(KEY), "was deleted"),
        (lambda store, ids: (store.delete(KEY), store.xadd(KEY, {"f": "v"}, id="5-0")), "recreated"),
        (lambda store, ids: store.xdel(KEY, ids[0]), None),
        (lambda store, ids: store.xadd(KEY, {"f": "v"}), None),
    ],
)
def test_what_others_do_to_the_stream_is_reported(
    change: Change, said: str | None, store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    produced = fill(store, 100)
    Layout(tmp_path).create(Disk())
    source = source_of(tmp_path, source_options)
    parts = plan_history(source)
    change(store, produced)
    if said is None:
        assert read_all(source, parts)[-1] == produced[-1]
    else:
        with pytest.raises(DataLossError, match=said):
            read_all(source, parts)


def test_a_stream_that_another_archive_trims_is_reported(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    fill(store, 100)
    archive_once(tmp_path / "one", source_options)
    store.xadd(KEY, {"f": "v"})
    Layout(tmp_path / "two").create(Disk())
    with pytest.raises(DataLossError, match="archived elsewhere"):
        ids_of(tmp_path / "two", source_options)


def test_a_user_who_may_only_read_reads(store: redis.Redis, source_options: Options, tmp_path: Path) -> None:
    produced = half_archived(store, tmp_path, source_options)
    store.execute_command("ACL", "SETUSER", "reader", "on", ">secret", "~*", "+@read", "+@connection", "+info", "+time")
    try:
        options = {**source_options, "username": "reader", "password": "secret", "archiveLease": "1m"}
        assert ids_of(tmp_path, options) == produced
        assert store.exists(key_beside("leases", KEY)) == 0
    finally:
        store.execute_command("ACL", "DELUSER", "reader")


# --- The command ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def history_of(store: redis.Redis, source_options: Options, tmp_path: Path) -> Callable[..., str]:
    """Run `streamd history` over a stream that is half archived."""
    half_archived(store, tmp_path / "archive", source_options)

    def run(*words: str) -> str:
        where = ["-p", source_options["port"], "--archive", str(tmp_path / "archive")]
        result = CliRunner().invoke(program, ["history", KEY, *where, *words])
        assert result.exit_code == 0, result.output
        return result.stdout

    return run


def test_history_prints_json_csv_and_tables(history_of: Callable[..., str], store: redis.Redis, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in history_of("--format", "json").splitlines()]
    assert len(rows) == 5050
    assert rows[0] == {
        "id": "1700000000000-0", "ms": 1_700_000_000_000, "seq": 0, "time": "2023-11-14T22:13:20.000000+00:00",
        "stream": KEY, "fields": {"sensor": "0", "value": "0"},
    }  # fmt: skip
    table = list(csv.reader(history_of("--format", "csv", "--since", "2023-11-15", "--limit", "5").splitlines()))
    assert len(table) == 6
    assert table[1][0].startswith("1700006400")
    assert "sensor=6 value=4990" not in history_of("--limit", "3")
    assert "sensor=2 value=9" in history_of("--until", rows[9]["id"])
    history_of("--format", "parquet", "--out", str(tmp_path / "out.parquet"), "--since", "-1h")
    assert pq.read_table(tmp_path / "out.parquet").num_rows == 50
    assert store.exists(key_beside("leases", KEY)) == 0, "the command gives its lease back"


def test_a_table_keeps_to_its_lines(store: Any, source_options: Options) -> None:
    store.delete("odd")
    store.xadd("odd", {"a": "line\n\x1b[31mred", "b": "\u00e9"}, id="1-1")
    store.xadd("odd", {"longer": "x" * 300}, id="20-1")
    shown = CliRunner().invoke(program, ["history", "odd", "-p", source_options["port"]]).output.splitlines()
    assert shown[0].split() == ["id", "time", "fields"]
    assert shown[2:] == [
        "1-1   1970-01-01T00:00:00.001000+00:00  a=line\\n\\x1b[31mred b=\u00e9",
        "20-1  1970-01-01T00:00:00.020000+00:00  longer=" + "x" * 300,
    ]


def test_history_says_what_is_wrong(source_options: Options, tmp_path: Path) -> None:
    runner = CliRunner()
    where = ["-p", source_options["port"]]
    for words, said in [
        (["--since", "yesterday"], "neither an ID nor a time"),
        (["--archive", str(tmp_path)], "is not an archive"),
    ]:
        result = runner.invoke(program, ["history", KEY, *where, *words])
        assert result.exit_code != 0
        assert said in result.output


# --- By Spark -------------------------------------------------------------------------------------------------------------


@pytest.mark.spark
def test_spark_reads_cold_and_hot_in_any_schema(
    spark: SparkSession, store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    produced = half_archived(store, tmp_path, source_options)
    store.xadd(KEY, {"sensor": "none", "value": "1.5", "x": "\x00"})
    reader = (
        spark.read.format("streamd").options(**source_options).option("stream", KEY).option("archive", str(tmp_path))
    )
    whole = reader.load()
    assert whole.count() == 5051
    table = whole.sort("ms", "seq").toArrow()
    assert table.column("id").to_pylist()[:-1] == produced
    assert set(table.column("stream").to_pylist()) == {KEY}
    typed = reader.schema("sensor int, value double, id string, _corrupt_record string").load()
    # One decoder for both sides: the same casts, and the same column for what does not fit.
    rows = {row.id: row for row in typed.collect()}
    assert [rows[each].value for each in produced[:5]] == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert rows[produced[5049]].sensor == 49 % 7
    assert [row._corrupt_record is not None for row in rows.values()].count(True) == 1
    few = whole.where(f"ms >= {produced[4990].split('-')[0]} and id != '0-0'")
    assert few.count() == 61
    assert whole.where(f"id = '{produced[77]}'").select("id").collect()[0].id == produced[77]
    assert whole.where("stream = 'other'").count() == 0
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW old USING streamd OPTIONS (port '{source_options['port']}', "
              f"stream '{KEY}', archive '{tmp_path}')")  # fmt: skip
    assert spark.sql("SELECT count(*) AS n FROM old WHERE time < '2023-11-15'").collect()[0].n == 160


@pytest.mark.spark
def test_history_takes_conditions_in_sql(spark: SparkSession, history_of: Callable[..., str]) -> None:
    found = history_of("--where", "fields['sensor'] = '3' and seq = 1", "--format", "json", "--limit", "2")
    rows = [json.loads(line) for line in found.splitlines()]
    assert [row["fields"] for row in rows] == [{"sensor": "3", "value": "10"}, {"sensor": "3", "value": "31"}]
    typed = history_of("--schema", "id string, sensor int, value int", "--where", "value > 4998", "--format", "csv")
    assert typed.splitlines()[0] == "id,sensor,value"
    assert typed.splitlines()[1].endswith(f",{4999 % 7},4999")


@pytest.mark.spark
def test_conditions_lose_no_field(spark: SparkSession, history_of: Callable[..., str], store: redis.Redis) -> None:
    store.execute_command("XADD", KEY, "*", "twice", "a", "x", "1", "twice", "b")
    store.execute_command("XADD", KEY, "*", "twice", "c", b"\xff", b"\xfe")
    store.execute_command("XADD", KEY, "*", "twice", "c")
    words = ("--where", "fields['twice'] in ('b', 'c') and ms > 0", "--format", "json")
    rows = [json.loads(line)["fields"] for line in history_of(*words).splitlines()]
    assert rows == [
        [["twice", "a"], ["x", "1"], ["twice", "b"]],
        [["twice", "c"], [{"base64": "/w=="}, {"base64": "/g=="}]],
        {"twice": "c"},
    ]
    assert [json.loads(line)["fields"] for line in history_of("--format", "json").splitlines()][-3:] == rows
    assert history_of("--where", "fields['twice'] = 'a'", "--format", "json") == ""
    assert spark.conf.get("spark.sql.mapKeyDedupPolicy") == "EXCEPTION"


def test_the_highest_id_is_read(store: redis.Redis, source_options: Options, tmp_path: Path) -> None:
    last = "18446744073709551615-18446744073709551615"
    store.xadd(KEY, {"f": "v"}, id=last)
    Layout(tmp_path).create(Disk())
    assert ids_of(tmp_path, source_options) == [last]
    assert plan_history(source_of(tmp_path, source_options))[0].high == MAX_ID
    assert isinstance(plan_history(source_of(tmp_path, source_options))[0], HotPart)
