"""A stream that was written again, replaced, or copied is not taken for the one that was archived, however alike the two are."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

pytest.importorskip("pyspark", reason="archives need streamd-server[spark]")

from click.testing import CliRunner
from support.archives.runs import KEY, Killed, archive_once, expire_lock, fill, kill_at, rows_of_history
from support.spark.session import ON_BOTH

from streamd.archive.archive_errors import ArchiveError, IncarnationError
from streamd.archive.delete import delete
from streamd.archive.layout import Layout
from streamd.archive.manifest_log import ManifestLog
from streamd.archive.restore import restore
from streamd.archive.status import read_status
from streamd.cli.subcommands import program
from streamd.client.client_errors import DataLossError
from streamd.client.points import parse_entry_id

pytestmark = pytest.mark.long

Options = dict[str, str]
EVERYTHING = {"hot_window_ms": -(2**50)}


def run(*words: str) -> Any:
    return CliRunner().invoke(program, words)


def write_again(store: redis.Redis, ids: list[str], more: int = 10, *, field: str = "corrected") -> None:
    """The same IDs with other values, and some entries more."""
    store.delete(KEY)
    for at, each in enumerate(ids):
        store.xadd(KEY, {field: at}, id=each)
    fill(store, more, start_ms=1_800_000_000_000)


def load_corrected(store: redis.Redis, ids: list[str], folder: Path, *how: str) -> None:
    """An export of the stream, with another value of one entry in the middle, loaded into its place."""
    port = str(store.connection_pool.connection_kwargs["port"])
    file = folder / "corrected.jsonl"
    done = run("export", KEY, "--to", str(file), "-p", port)
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    rows[5]["fields"] = {"corrected": "1"}
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    if "--replace" not in how:
        store.delete(KEY)
    done = run("load", str(file), *how, "-p", port)
    assert done.exit_code == 0, done.output


def renamed(store: redis.Redis, ids: list[str], folder: Path) -> None:
    for at, each in enumerate(ids):
        store.xadd("other", {"other": at}, id=each)
    store.rename("other", KEY)


def restored(store: redis.Redis, ids: list[str], folder: Path) -> None:
    renamed(store, ids, folder)
    payload = store.dump(KEY)
    store.restore(KEY, 0, payload, replace=True)


def copied(store: redis.Redis, ids: list[str], folder: Path) -> None:
    for at, each in enumerate(ids):
        store.xadd("other", {"other": at}, id=each)
    store.copy("other", KEY, replace=True)


def flushed(store: redis.Redis, ids: list[str], folder: Path) -> None:
    store.flushall()
    write_again(store, ids)


def counted_up(store: redis.Redis, ids: list[str], folder: Path) -> None:
    """Fewer entries, with counters that say otherwise."""
    write_again(store, ids[5:7], 0)
    store.execute_command("XSETID", KEY, ids[-1], "ENTRIESADDED", 500, "MAXDELETEDID", "0-0")


WAYS: list[Callable[[redis.Redis, list[str], Path], None]] = [
    lambda store, ids, folder: write_again(store, ids),
    lambda store, ids, folder: write_again(store, ids, 0),
    lambda store, ids, folder: load_corrected(store, ids, folder, "--replace"),
    lambda store, ids, folder: load_corrected(store, ids, folder),
    lambda store, ids, folder: load_corrected(store, ids, folder, "--no-groups", "--into", KEY),
    renamed,
    restored,
    copied,
    flushed,
    counted_up,
]


@ON_BOTH
@pytest.mark.parametrize("has_more", [False, True])
@pytest.mark.parametrize(
    "way",
    WAYS,
    ids=["again+", "again", "load --replace", "load", "load rows", "rename", "restore", "copy", "flush", "setid"],
)
def test_another_stream_under_the_key_is_neither_trimmed_nor_answered(
    way: Callable[..., None], has_more: bool, store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    """Its entries have the IDs that are archived, and other values."""
    folder, ids = tmp_path / "archive", fill(store, 60)
    assert archive_once(folder, source_options, trim=False, **EVERYTHING).rows == 60
    way(store, ids, tmp_path)
    if has_more:
        fill(store, 5, start_ms=1_900_000_000_000)
    held = store.xrange(KEY)
    for depth in ("ids", "content"):
        (report,) = archive_once(folder, source_options, depth=depth, **EVERYTHING).streams
        assert report.status == "failed"
        assert "IncarnationError" in (report.error or "")
        assert "\n" not in (report.error or "")
    with pytest.raises(DataLossError, match=r"was recreated|is not the server"):
        list(rows_of_history(folder, source_options))
    with pytest.raises(IncarnationError, match=r"was recreated|another server|is not the server"):
        delete(str(folder), KEY, source_options, [(1, 2)])
    assert read_status(str(folder), source_options)[0].fault
    assert store.xrange(KEY) == held


@ON_BOTH
def test_a_stream_that_is_written_again_as_it_was_goes_on(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    ids = fill(store, 60)
    archive_once(tmp_path, source_options, trim=False, **EVERYTHING)
    store.delete(KEY)
    assert fill(store, 60) == ids
    more = fill(store, 10, start_ms=1_800_000_000_000)
    (report,) = archive_once(tmp_path, source_options, **EVERYTHING).streams
    assert (report.status, report.rows, report.trimmed) == ("archived", 10, 70)
    assert [each for each, _ in rows_of_history(tmp_path, source_options)] == ids + more


def test_a_change_in_the_middle_is_found_by_content(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    ids = fill(store, 60)
    archive_once(tmp_path, source_options, trim=False, **EVERYTHING)
    entries = store.xrange(KEY)
    store.delete(KEY)
    for at, (entry_id, fields) in enumerate(entries):
        store.xadd(KEY, {"corrected": 1} if at == 30 else fields, id=entry_id)
    (report,) = archive_once(tmp_path, source_options, depth="content", **EVERYTHING).streams
    assert "IncarnationError" in (report.error or "")
    assert store.xlen(KEY) == len(ids)


@ON_BOTH
@pytest.mark.parametrize("removed", ["trimmed", "deleted", "by a run"])
def test_a_stream_that_is_written_again_with_more_in_the_middle_is_found_by_what_was_removed(
    removed: str, store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    """Its ends are as they were, and it has had as many entries; but not as many of them are gone."""
    fill(store, 60)
    archive_once(tmp_path, source_options, trim=False, **EVERYTHING)
    entries = store.xrange(KEY)
    if removed == "trimmed":
        store.xtrim(KEY, maxlen=50, approximate=False)
    elif removed == "deleted":
        store.xdel(KEY, *(each for each, _ in entries[20:40:4]))
    else:
        store.xgroup_create(KEY, "g", entries[19][0])
    (report,) = archive_once(tmp_path, source_options, trim=removed == "by a run", **EVERYTHING).streams
    assert (report.status, report.trimmed) == ("nothing", 20 if removed == "by a run" else 0)

    store.delete(KEY)
    for entry_id, fields in entries:
        store.xadd(KEY, fields, id=entry_id)
        if entry_id == entries[30][0]:
            store.xadd(KEY, {"unarchived": 1}, id=entry_id.partition(b"-")[0] + b"-9")
    fill(store, 5, start_ms=1_760_000_000_000)
    held = store.xrange(KEY)
    (report,) = archive_once(tmp_path, source_options, **EVERYTHING).streams
    assert "IncarnationError" in (report.error or "")
    with pytest.raises(DataLossError, match="was recreated"):
        list(rows_of_history(tmp_path, source_options))
    assert store.xrange(KEY) == held


@pytest.mark.parametrize("step", ["bounded", "staged", "moved", "pending", "committed", "trimming"])
def test_a_stream_that_is_written_again_during_a_run_is_not_trimmed(
    step: str, store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    ids = fill(store, 60)
    archive_once(tmp_path, source_options, trim=False, **EVERYTHING)
    ids += fill(store, 5, start_ms=1_750_000_000_000)
    held: list[Any] = []

    def hook(reached: str) -> None:
        if reached == step and not held:
            write_again(store, ids)
            held.extend(store.xrange(KEY))

    (report,) = archive_once(tmp_path, source_options, hook=hook, **EVERYTHING).streams
    assert store.xrange(KEY) == held
    if step != "trimming":
        assert "IncarnationError" in (report.error or "")
    assert "IncarnationError" in (archive_once(tmp_path, source_options, **EVERYTHING).streams[0].error or "")
    assert store.xrange(KEY) == held


@pytest.fixture
def other(store: redis.Redis) -> Iterator[redis.Redis]:
    with redis.Redis(port=store.connection_pool.connection_kwargs["port"], db=1, protocol=2) as made:
        yield made


def test_a_fork_has_no_history(store: redis.Redis, other: redis.Redis, source_options: Options, tmp_path: Path) -> None:
    """Two primaries go on from the same data; the archive follows one of them."""
    fill(store, 60)
    archive_once(tmp_path, source_options, trim=False, **EVERYTHING)
    for key in store.scan_iter():
        other.restore(key, 0, store.dump(key))
    for number in range(4):
        store.xadd(KEY, {"ours": number}, id=f"{1_800_000_000_000 + 2 * number}-0")
        other.xadd(KEY, {"theirs": number}, id=f"{1_800_000_000_001 + 2 * number}-0")
    archive_once(tmp_path, source_options, trim=False, **EVERYTHING)
    with pytest.raises(DataLossError, match="A copy of the server has been archived in its place"):
        list(rows_of_history(tmp_path, {**source_options, "db": "1"}))
    assert len(list(rows_of_history(tmp_path, source_options))) == 64


# --- Gaps -----------------------------------------------------------------------------------------------------------------


@ON_BOTH
def test_entries_trimmed_when_all_before_were_archived_are_reported(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    fill(store, 10)
    archive_once(tmp_path, source_options, **EVERYTHING)
    fill(store, 100, start_ms=1_800_000_000_000)
    store.xtrim(KEY, maxlen=60, approximate=False)
    (report,) = archive_once(tmp_path, source_options, **EVERYTHING).streams
    assert "DataLossError: 40 of 100 entries" in (report.error or "")
    assert store.xlen(KEY) == 60
    with pytest.raises(DataLossError, match="40 of 100"):
        list(rows_of_history(tmp_path, source_options))
    (report,) = archive_once(tmp_path, source_options, allow_gaps=True, **EVERYTHING).streams
    assert (report.status, report.rows) == ("archived", 60)
    assert "40 of 100 entries" in report.warnings[0]
    # Once more, as nobody knows whether that was read; a run may be killed before it reports.
    (report,) = archive_once(tmp_path, source_options, **EVERYTHING).streams
    assert (report.status, len(report.warnings)) == ("nothing", 1)
    (report,) = archive_once(tmp_path, source_options, **EVERYTHING).streams
    assert (report.status, report.warnings) == ("nothing", [])


@ON_BOTH
def test_a_gap_that_was_allowed_is_not_reported_again(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    """Though nothing was left to archive."""
    fill(store, 10)
    archive_once(tmp_path, source_options, **EVERYTHING)
    fill(store, 10, start_ms=1_800_000_000_000)
    store.xtrim(KEY, maxlen=0, approximate=False)
    assert archive_once(tmp_path, source_options, **EVERYTHING).streams[0].status == "failed"
    assert archive_once(tmp_path, source_options, allow_gaps=True, **EVERYTHING).streams[0].status == "nothing"
    fill(store, 10, start_ms=1_900_000_000_000)
    assert archive_once(tmp_path, source_options, **EVERYTHING).streams[0].rows == 10


@ON_BOTH
def test_entries_deleted_on_purpose_are_a_warning(store: redis.Redis, source_options: Options, tmp_path: Path) -> None:
    fill(store, 10)
    archive_once(tmp_path, source_options, **EVERYTHING)
    new = fill(store, 10, start_ms=1_800_000_000_000)
    store.xdel(KEY, *new[2:5])
    (report,) = archive_once(tmp_path, source_options, **EVERYTHING).streams
    assert (report.status, report.rows) == ("archived", 7)
    assert "3 of 10 entries" in report.warnings[0]


@ON_BOTH
@pytest.mark.parametrize("hot_window_ms", [-(2**50), 0])
def test_entries_trimmed_during_the_copy_are_reported_and_the_others_archived(
    hot_window_ms: int, store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    fill(store, 10)
    archive_once(tmp_path, source_options, hot_window_ms=hot_window_ms)
    fill(store, 10, start_ms=1_750_000_000_000)

    def hook(step: str) -> None:
        if step == "bounded":
            store.xtrim(KEY, maxlen=6, approximate=False)

    (report,) = archive_once(tmp_path, source_options, hook=hook, hot_window_ms=hot_window_ms).streams
    assert "DataLossError" in (report.error or "")
    assert report.rows == 6
    assert archive_once(tmp_path, source_options, hot_window_ms=hot_window_ms).streams[0].status == "nothing"


@ON_BOTH
def test_entries_deleted_during_the_copy_below_earlier_ones_are_a_warning(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    ids = fill(store, 10)
    store.xdel(KEY, ids[8])

    def hook(step: str) -> None:
        if step == "bounded":
            store.xdel(KEY, *ids[2:4])

    (report,) = archive_once(tmp_path, source_options, hook=hook, **EVERYTHING).streams
    assert (report.status, report.rows) == ("archived", 7)
    assert "2 entries were trimmed or deleted" in report.warnings[0]


@ON_BOTH
def test_entries_trimmed_above_what_a_run_copies_are_reported_by_the_next(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    ids = fill(store, 10)
    far_ms = int(store.time()[0]) * 1000 - 1_700_000_000_000 - 4 * 40_000  # five of them are old enough

    def hook(step: str) -> None:
        if step == "staged":
            store.xtrim(KEY, minid=ids[7], approximate=False)

    (report,) = archive_once(tmp_path, source_options, hook=hook, hot_window_ms=far_ms - 20_000).streams
    assert (report.status, report.rows) == ("archived", 5)
    assert "DataLossError" in (archive_once(tmp_path, source_options, **EVERYTHING).streams[0].error or "")


# --- What was accepted ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trim", [True, False])
def test_a_server_that_was_accepted_goes_on(
    trim: bool, store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    ids = fill(store, 20)
    archive_once(tmp_path, source_options, trim=False, **EVERYTHING)
    write_again(store, ids)
    (report,) = archive_once(tmp_path, source_options, accept_server=True, trim=trim, **EVERYTHING).streams
    assert (report.status, report.rows, report.trimmed) == ("archived", 10, 30 if trim else 0)
    assert "Accepted" in report.warnings[0]
    assert ManifestLog.read(Layout(tmp_path), KEY).boundary == parse_entry_id("1800000360000-0")
    fill(store, 1, start_ms=1_900_000_000_000)
    assert archive_once(tmp_path, source_options, trim=trim, **EVERYTHING).rows == 1
    assert len(list(rows_of_history(tmp_path, source_options))) == 31


@pytest.mark.parametrize("step", [None, "delete committed", "removed"])
def test_entries_that_only_the_server_has_left_are_no_other_stream(
    step: str | None, store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    """The first and the last archived one were deleted from the archive."""
    ids = fill(store, 20)
    archive_once(tmp_path, source_options, trim=False, **EVERYTHING)
    ranges = [(parse_entry_id(each), parse_entry_id(each)) for each in (ids[0], ids[1], ids[-1])]
    if step is None:
        delete(str(tmp_path), KEY, source_options, ranges, archive_only=True)
    else:
        with pytest.raises(Killed, match=step):
            delete(str(tmp_path), KEY, source_options, ranges, hook=kill_at(step))
        expire_lock(store)
    assert [each for each, _ in rows_of_history(tmp_path, source_options)] == ids[2:-1]
    assert archive_once(tmp_path, source_options, depth="content", **EVERYTHING).streams[0].trimmed == 20


def archive_and_write_again(store: redis.Redis, folder: Path, options: Options) -> list[str]:
    """Twenty entries that are archived, and have other values now; their IDs."""
    ids = fill(store, 20)
    archive_once(folder, options, trim=False, **EVERYTHING)
    write_again(store, ids, 0)
    return ids


def accept(folder: Path, options: Options, **how: Any) -> None:
    (report,) = archive_once(folder, options, accept_server=True, **{**EVERYTHING, **how}).streams
    assert report.error is None
    assert "Accepted" in report.warnings[0]


def check_is_refused(store: redis.Redis, folder: Path, options: Options) -> None:
    """No run, history or deletion takes the stream for the archived one."""
    held = store.xrange(KEY)
    (report,) = archive_once(folder, options, **EVERYTHING).streams
    assert "IncarnationError" in (report.error or "")
    with pytest.raises(DataLossError, match="was recreated"):
        list(rows_of_history(folder, options))
    with pytest.raises(IncarnationError, match="was recreated"):
        delete(str(folder), KEY, options, [(1, 2)])
    assert store.xrange(KEY) == held


@ON_BOTH
@pytest.mark.parametrize("more", [0, 5])
@pytest.mark.parametrize("count", [20, 200])
@pytest.mark.parametrize("trim", [True, False])
def test_what_was_accepted_is_one_stream_and_no_other(
    trim: bool, count: int, more: int, store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    ids = fill(store, count)
    archive_once(tmp_path, source_options, trim=False, **EVERYTHING)
    write_again(store, ids, 0)
    accept(tmp_path, source_options, trim=trim)
    write_again(store, ids, more, field="again")
    check_is_refused(store, tmp_path, source_options)


def test_what_was_accepted_and_trimmed_is_accepted_once(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    """The same entries written once more would be trimmed, and no archive has them."""
    ids = archive_and_write_again(store, tmp_path, source_options)
    accept(tmp_path, source_options)
    assert store.xlen(KEY) == 0
    write_again(store, ids, 0)
    check_is_refused(store, tmp_path, source_options)


def test_what_was_accepted_may_be_trimmed_by_others(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    """The archive forgets then what it has accepted, at the next run."""
    ids = archive_and_write_again(store, tmp_path, source_options)
    accept(tmp_path, source_options, trim=False)
    store.xtrim(KEY, maxlen=0, approximate=False)
    assert archive_once(tmp_path, source_options, **EVERYTHING).streams[0].status == "nothing"
    write_again(store, ids, 0)
    check_is_refused(store, tmp_path, source_options)


@pytest.mark.parametrize("count", [20, 200])
def test_what_was_accepted_may_go_piece_by_piece(
    count: int, store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    ids = fill(store, count)
    archive_once(tmp_path, source_options, trim=False, **EVERYTHING)
    write_again(store, ids)
    store.xgroup_create(KEY, "g", "0")
    store.xreadgroup("g", "c", {KEY: ">"}, count=count)
    accept(tmp_path, source_options)
    while pending := store.xpending_range(KEY, "g", "-", "+", 1000):
        named = [each["message_id"] for each in pending]
        # From either end, and out of the middle.
        done = {named[0], named[len(named) // 3], named[-1], *named[10:30]}
        store.xack(KEY, "g", *done)
        store.xdel(KEY, named[-1])
        (report,) = archive_once(tmp_path, source_options, **EVERYTHING).streams
        assert report.error is None
    assert len(list(rows_of_history(tmp_path, source_options))) == count + 10


def test_a_run_that_is_killed_while_it_trims_what_was_accepted_is_continued(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    ids = archive_and_write_again(store, tmp_path, source_options)
    with pytest.raises(Killed, match="trimming"):
        accept(tmp_path, source_options, hook=kill_at("trimming"))
    assert store.xlen(KEY) == 0
    expire_lock(store)
    (report,) = archive_once(tmp_path, source_options, **EVERYTHING).streams
    assert (report.status, report.error) == ("nothing", None)
    write_again(store, ids, 0)
    check_is_refused(store, tmp_path, source_options)


def test_accepted_counters_are_those_of_the_accepted_stream(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    """It has had more entries than the archived one, all of them with archived IDs; none of them is missing."""
    archive_and_write_again(store, tmp_path, source_options)
    store.execute_command("XSETID", KEY, "1800000000000-0", "ENTRIESADDED", 60, "MAXDELETEDID", "0-0")
    accept(tmp_path, source_options, allow_gaps=True)
    (report,) = archive_once(tmp_path, source_options, **EVERYTHING).streams
    assert (report.status, report.error, store.xlen(KEY)) == ("nothing", None, 0)


@pytest.mark.parametrize("archive_only", [True, False])
def test_deleted_entries_that_are_written_again_are_not_trimmed(
    archive_only: bool, store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    ids = fill(store, 20)
    archive_once(tmp_path, source_options, trim=False, **EVERYTHING)
    delete(str(tmp_path), KEY, source_options, [(1, parse_entry_id(ids[-1]))], archive_only=archive_only)
    write_again(store, ids, 0)
    check_is_refused(store, tmp_path, source_options)


@pytest.mark.parametrize("step", ["unserved", "settled pending", "settled committed"])
def test_a_deletion_that_is_killed_at_its_end_is_finished_by_a_run(
    step: str, store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    ids = fill(store, 20)
    archive_once(tmp_path, source_options, trim=False, **EVERYTHING)
    with pytest.raises(Killed, match=step):
        delete(str(tmp_path), KEY, source_options, [(1, parse_entry_id(ids[-1]))], hook=kill_at(step))
    expire_lock(store)
    assert archive_once(tmp_path, source_options, **EVERYTHING).streams[0].error is None
    assert list(rows_of_history(tmp_path, source_options)) == []
    store.delete(KEY)
    fill(store, 20)
    check_is_refused(store, tmp_path, source_options)


def test_a_restore_is_continued_in_its_own_stream_only(
    store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    ids = fill(store, 20)
    archive_once(tmp_path, source_options, **EVERYTHING)
    store.xadd("back", {"other": 1}, id=ids[3])
    with pytest.raises(ArchiveError, match="differs from what is archived"):
        restore(str(tmp_path), KEY, source_options, into="back", resume=True)
    assert store.xlen("back") == 1


def test_a_verification_can_look_at_the_server(store: redis.Redis, source_options: Options, tmp_path: Path) -> None:
    fill(store, 20)
    archive_once(tmp_path, source_options, trim=False, **EVERYTHING)
    words = ("archive", "verify", str(tmp_path), "--live", "-p", source_options["port"])
    assert run(*words).exit_code == 0
    entries = store.xrange(KEY)
    store.delete(KEY)
    for at, (entry_id, fields) in enumerate(entries):
        store.xadd(KEY, {"corrected": 1} if at == 10 else fields, id=entry_id)
    done = run(*words)
    assert done.exit_code == 1
    assert "differs from what is archived" in done.output
