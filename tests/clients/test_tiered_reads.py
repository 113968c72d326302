"""`stream-archive-dir`: XRANGE and XREVRANGE from the archive into memory, as if the stream had never been trimmed.

How entries could be missing from a reply, each with a test here:

    the stream is trimmed while the archive is read: once, or again and again; a run publishes, merges files, and trims meanwhile
    a trim leaves entries that a group needs, and removes others around them
    COUNT is reached at the border, before it, or behind it; a bound is excluded there; the range is read backwards
    the key is deleted, renamed, recreated or restored meanwhile, or has another stream than the archive
    entries were trimmed that were never archived, or archived elsewhere; the archive is moved, damaged, set back, or another server's
    the process that reads is killed, hangs, or cannot be started; its answer arrives during a pause
    the archive was deleted from; the server restarts; it is a replica

Each reply is that of the uncut stream, which is kept under another key, byte for byte, or an error. Nothing is written where an archive is
read, so a full disk changes nothing.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.servers import eventually, start_streamd

pytest.importorskip("pyarrow", reason="archives need streamd-server[archive]")

from support.tiers import ARCHIVED, FIRST_MS, KEY, UNCUT, Stage, is_whole

from streamd.archive.delete import delete

pytestmark = pytest.mark.long


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path, stream_archive_readers="1")
    yield made
    made.close()


# --- Which entries, in which order -----------------------------------------------------------------------------------


def bounds_of(stage: Stage, draw: random.Random) -> tuple[str, str, list[Any]]:
    """Bounds and a COUNT that lie often at the border, at files' ends, and at entries' IDs."""

    def point() -> str:
        at = draw.choice((ARCHIVED, ARCHIVED, ARCHIVED // 3, 0, stage.added, draw.randrange(stage.added)))
        at += draw.randint(-2, 2)
        entry_id = f"{FIRST_MS + at // 3}-{at % 3}"
        return draw.choice((entry_id, f"({entry_id}", f"{FIRST_MS + at // 3}", "-", "+"))

    count = draw.choice(([], [1], [draw.randint(1, stage.added)], [0], [-1]))
    return point(), point(), ["COUNT", *count] if count else []


def test_every_range_is_that_of_the_uncut_stream(stage: Stage) -> None:
    stage.prepare()
    draw = random.Random(1)
    for _ in range(600):
        first, last, more = bounds_of(stage, draw)
        stage.assert_equal(draw.choice(("XRANGE", "XREVRANGE")), first, last, *more)
    stage.assert_whole()


@pytest.mark.parametrize("count", [ARCHIVED - 1, ARCHIVED, ARCHIVED + 1])
def test_count_is_reached_at_the_border(stage: Stage, count: int) -> None:
    stage.prepare()
    stage.assert_equal("XRANGE", "-", "+", "COUNT", count)
    stage.assert_equal("XREVRANGE", "+", "-", "COUNT", count - ARCHIVED + 50)


def test_what_is_in_memory_needs_no_reader(stage: Stage) -> None:
    stage.prepare()
    stage.assert_whole()
    (pid,) = stage.readers()
    os.kill(pid, signal.SIGSTOP)
    try:
        stage.assert_equal("XREVRANGE", "+", "-", "COUNT", 50)
        stage.assert_equal("XRANGE", f"{FIRST_MS + ARCHIVED // 3}-0", "+")
        stage.add(3, key="other")
        assert len(stage.call("XRANGE", "other", "-", "+")) == 3  # nothing was ever removed
        assert stage.call("XRANGE", KEY, "5-0", "4-0") == []
        assert stage.call("XRANGE", "missing", "-", "+") == []
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_trim_around_entries_that_a_group_needs(stage: Stage) -> None:
    stage.add(100)
    stage.call("XGROUP", "CREATE", KEY, "g", "0")
    delivered = stage.call("XREADGROUP", "GROUP", "g", "c", "COUNT", 60, "STREAMS", KEY, ">")[0][1]
    ids = [entry[0] for entry in delivered]
    stage.call("XACK", KEY, "g", *(each for at, each in enumerate(ids) if at % 7))
    stage.archived()
    assert 0 < stage.call("XLEN", KEY) < 100
    stage.add(10)
    stage.assert_whole()
    first = stage.call("XINFO", "STREAM", KEY, "FULL", "COUNT", 1)
    assert first
    for at in range(0, 70, 3):
        stage.assert_equal("XRANGE", ids[min(at, 59)], "+", "COUNT", 5)
        stage.assert_equal("XREVRANGE", ids[min(at, 59)], "-", "COUNT", 5)


def test_what_other_clients_trim_comes_from_the_archive_if_it_is_there(stage: Stage) -> None:
    stage.add(100)
    stage.archived(trim=False)
    assert stage.call("XTRIM", KEY, "MAXLEN", 30) == 70
    stage.assert_whole()
    assert stage.call("XTRIM", KEY, "MAXLEN", 0) == 30
    stage.assert_whole()
    stage.add(10)
    stage.assert_whole()
    assert stage.call("XTRIM", KEY, "MAXLEN", 5) == 5
    assert "5 of 10 entries that were added above" in stage.error()


def test_a_stream_that_is_not_archived(stage: Stage) -> None:
    stage.prepare()
    for at in range(10):
        stage.call("XADD", "other", "MAXLEN", 4, f"{at + 1}-0", "f", "v")
    assert [each[0] for each in stage.call("XRANGE", "other", "-", "+")] == [b"7-0", b"8-0", b"9-0", b"10-0"]
    assert stage.call("STREAMD.HISTORY", "other")[3][1] == 0


def test_an_archive_that_is_larger_than_the_cache(tmp_path: Path) -> None:
    stage = Stage(tmp_path, stream_archive_cache="1kb", stream_archive_readers="1")
    try:
        stage.prepare()
        stage.assert_whole()
    finally:
        stage.close()


def test_a_reply_that_is_too_long_is_an_error(stage: Stage) -> None:
    for _ in range(3):
        stage.wire.pipeline([("XADD", KEY, "*", "f", "x" * 100_000) for _ in range(20)])
    stage.archived()
    stage.call("CONFIG", "SET", "stream-archive-max-reply", "1mb")
    assert "larger than stream-archive-max-reply (1048576 bytes); use COUNT" in stage.error()
    assert len(stage.call("XRANGE", KEY, "-", "+", "COUNT", 5)) == 5


# --- Meanwhile -------------------------------------------------------------------------------------------------------


def run_of(stage: Stage) -> None:
    stage.add(120)
    stage.archived()


def merges(stage: Stage) -> None:
    stage.add(120)
    assert stage.archived(merge_files=2).status == "archived"
    stage.archived(merge_files=2)


def trims(stage: Stage) -> None:
    stage.call("XTRIM", KEY, "MAXLEN", 10)


def trims_all(stage: Stage) -> None:
    stage.call("XTRIM", KEY, "MAXLEN", 0)


def adds(stage: Stage) -> None:
    stage.add(40, "MAXLEN", 50)


@pytest.mark.parametrize("words", [(), ("XREVRANGE", "+", "-"), ("XRANGE", "-", "+", "COUNT", ARCHIVED + 20)])
@pytest.mark.parametrize("change", [run_of, merges])
def test_a_run_while_the_archive_is_read(stage: Stage, change: Callable[[Stage], None], words: tuple[Any, ...]) -> None:
    stage.prepare()
    command, *more = words or ("XRANGE", "-", "+")
    with stage.reading(command, KEY, *more) as other:
        change(stage)
    assert is_whole(stage, other.read(), command, UNCUT, *more)


@pytest.mark.parametrize("change", [trims, trims_all, adds])
def test_a_trim_of_what_is_archived_while_it_is_read(stage: Stage, change: Callable[[Stage], None]) -> None:
    stage.prepare()
    stage.archived(trim=False)
    with stage.reading() as other:
        change(stage)
    assert is_whole(stage, other.read())


@pytest.mark.parametrize("change", [trims, trims_all, adds])
def test_a_trim_of_what_is_not_archived_is_an_error(stage: Stage, change: Callable[[Stage], None]) -> None:
    stage.prepare()
    with stage.reading() as other:
        change(stage)
    found = other.read()
    assert found.is_error, found
    assert b"trimmed or deleted before" in found.plain()


def deletes(stage: Stage) -> None:
    stage.call("DEL", KEY)


def renames(stage: Stage) -> None:
    stage.call("RENAME", KEY, "elsewhere")


def recreates(stage: Stage) -> None:
    stage.call("DEL", KEY)
    stage.call("XADD", KEY, "1-0", "f", "v")


def takes_the_place(stage: Stage) -> None:
    """Another stream that was trimmed, too."""
    for at in range(4):
        stage.call("XADD", "other", "MAXLEN", 2, f"{at + 1}-0", "f", "v")
    stage.call("RENAME", "other", KEY)


@pytest.mark.parametrize(
    ("change", "expected"),
    [(deletes, []), (renames, []), (recreates, "was recreated"), (takes_the_place, "was recreated")],
)
def test_another_stream_takes_the_place(stage: Stage, change: Callable[[Stage], None], expected: Any) -> None:
    stage.prepare()
    with stage.reading() as other:
        change(stage)
    found = other.read().plain()
    assert expected in found.decode() if expected else found == []


def test_the_same_key_and_the_same_ids_are_not_the_same_stream(stage: Stage) -> None:
    stage.prepare()
    stage.assert_whole()
    entries = stage.call("XRANGE", KEY, "-", "+")
    stage.call("DEL", KEY)
    for entry_id, fields in entries:
        stage.call("XADD", KEY, entry_id, *fields[:-1], "other")
    stage.call("XTRIM", KEY, "MAXLEN", 40)
    assert "10 of 50 entries that were added above" in stage.error()


def test_a_stream_that_comes_back_is_the_archived_one(stage: Stage) -> None:
    stage.prepare()
    stage.assert_whole()
    stage.call("RENAME", KEY, "elsewhere")
    assert stage.call("XRANGE", KEY, "-", "+") == []
    stage.call("RENAME", "elsewhere", KEY)
    stage.assert_whole()
    payload = stage.call("DUMP", KEY)
    stage.call("RESTORE", KEY, 0, payload, "REPLACE")
    stage.assert_whole()


def test_readers_archivers_and_writers_at_once(stage: Stage) -> None:
    """Each reply is the uncut stream up to some entry, or an error; at the end it is whole."""
    stage.prepare()
    stop, faults, replies = threading.Event(), [], [0, 0]

    def read(seed: int) -> None:
        draw = random.Random(seed)
        with stage.server.connect() as wire:
            while not stop.is_set():
                count = draw.choice((1, 100, ARCHIVED + 5, 10**6))
                if draw.random() < 0.5:
                    found = wire.call("XRANGE", KEY, "-", "+", "COUNT", count)
                else:
                    found = wire.call("XREVRANGE", KEY, "+", "-", "COUNT", count)
                replies[found.is_error] += 1
                if found.is_error:
                    faults.append(str(found.plain()))
                    continue
                numbers = sorted(int(entry[1][1]) for entry in found.plain())
                if numbers != list(range(numbers[0], numbers[-1] + 1)):
                    faults.append(f"{numbers[0]} to {numbers[-1]} has {len(numbers)}")

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    try:
        for at in range(60):
            if at >= 6 and replies[0] > 20:  # on a busy machine few are read in a round
                break
            stage.add(40)
            stage.archived(merge_files=3, trim=at % 3 != 1)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert faults == []
    assert replies[0] > 20
    stage.assert_whole()


# --- What the archive cannot give ------------------------------------------------------------------------------------


def moved(stage: Stage) -> None:
    stage.archive.rename(stage.folder / "elsewhere")


def of_a_newer_format(stage: Stage) -> None:
    marker = stage.archive / "archive.json"
    marker.write_text(json.dumps({**json.loads(marker.read_text()), "format": 9}))


def without_a_file(stage: Stage) -> None:
    next(stage.archive.glob("data/*/*/*.parquet")).unlink()


def with_a_short_file(stage: Stage) -> None:
    path = next(stage.archive.glob("data/*/*/*.parquet"))
    path.write_bytes(path.read_bytes()[:-100])


def without_the_last_manifest(stage: Stage) -> None:
    max(stage.archive.glob("_manifest/*/*.json")).unlink()


def without_manifests(stage: Stage) -> None:
    shutil.rmtree(stage.archive / "_manifest")


def of_another_server(stage: Stage) -> None:
    stage.call("SET", "streamd:archive:server", "another")


@pytest.mark.parametrize("is_read_before", [False, True])
@pytest.mark.parametrize(
    ("change", "text"),
    [
        (moved, "is not an archive"),
        (of_a_newer_format, "has format 9"),
        (without_a_file, "is missing"),
        (with_a_short_file, "its manifest says"),
        (without_the_last_manifest, ""),
        (without_manifests, ""),
        (of_another_server, "is not the server whose streams are archived here"),
    ],
)
def test_an_archive_that_is_not_as_it_was_is_an_error(
    tmp_path: Path, change: Callable[[Stage], None], text: str, *, is_read_before: bool
) -> None:
    stage = Stage(tmp_path, stream_archive_readers="1", stream_archive_cache="0")
    try:
        stage.prepare()
        if is_read_before:
            stage.assert_whole()
        change(stage)
        error = stage.error()
        assert error.startswith("ARCHIVE The archived part of readings cannot be read: ")
        assert text in error
        assert "\n" not in error
        assert len(stage.call("XREVRANGE", KEY, "+", "-", "COUNT", 50)) == 50
    finally:
        stage.close()


def test_checkpoints_since_the_last_read(stage: Stage) -> None:
    """The manifests that the reader knows are removed."""
    stage.prepare()
    stage.assert_whole()
    for _ in range(4):
        stage.add(5)
        stage.archived(checkpoint_every=1)
    assert not (stage.archive / "_manifest" / KEY / "000000000003.json").exists()
    stage.assert_whole()


def test_a_fork_that_was_archived_in_its_place_is_an_error(stage: Stage, tmp_path: Path) -> None:
    stage.prepare()
    stage.assert_whole()
    fork = tmp_path / "fork"
    shutil.copytree(stage.archive, fork)
    stage.add(30)
    stage.archived()
    shutil.rmtree(stage.archive)
    fork.rename(stage.archive)
    assert "it is archived elsewhere" in stage.error()


def test_entries_that_another_archive_has_are_an_error(stage: Stage, tmp_path: Path) -> None:
    stage.prepare()
    stage.assert_whole()
    stage.archived(tmp_path / "other")
    assert "it is archived elsewhere" in stage.error()


def test_deleted_entries_are_deleted_in_both_tiers(stage: Stage) -> None:
    stage.prepare()
    stage.assert_whole()
    ids = [f"{FIRST_MS + at // 3}-{at % 3}" for at in (0, 5, ARCHIVED - 1)]
    numbers = [(FIRST_MS + at // 3) << 64 | at % 3 for at in (0, 5, ARCHIVED - 1)]
    delete(str(stage.archive), KEY, {"port": str(stage.server.port)}, [(each, each) for each in numbers])
    stage.call("XDEL", UNCUT, *ids)
    stage.assert_whole()


# --- Readers ---------------------------------------------------------------------------------------------------------


def test_a_reader_that_is_killed_is_an_error_and_the_next_read_works(stage: Stage) -> None:
    stage.prepare()
    with stage.reading() as other:
        (pid,) = stage.readers()
        os.kill(pid, signal.SIGKILL)
        found = other.read()
    assert found.is_error
    assert b"the process that read it has ended" in found.plain()
    stage.assert_whole()


def test_a_reader_that_hangs_is_ended_and_the_next_read_works(tmp_path: Path) -> None:
    stage = Stage(tmp_path, stream_archive_readers="1")
    try:
        stage.prepare()
        stage.assert_whole()
        stage.call("CONFIG", "SET", "stream-archive-timeout", "2000")
        with stage.reading() as other:
            (pid,) = stage.readers()
            found = other.read()
            assert found.is_error
            assert b"within 2000 ms (stream-archive-timeout)" in found.plain()
            assert stage.call("PING") == b"PONG"
            eventually(lambda: pid not in stage.readers(), what="the end of the reader")
        stage.call("CONFIG", "SET", "stream-archive-timeout", "60000")
        assert b"blocked_clients:0" in stage.call("INFO", "clients")
        stage.assert_whole()
    finally:
        stage.close()


def test_a_thousand_reads_at_once(stage: Stage) -> None:
    stage.prepare()
    expected = stage.wire.call("XRANGE", UNCUT, "-", "+", "COUNT", 10)
    wires = [stage.server.connect() for _ in range(1000)]
    try:
        for wire in wires:
            wire.send("XRANGE", KEY, "-", "+", "COUNT", 10)
        assert stage.call("PING") == b"PONG"
        for wire in wires:
            assert wire.read(timeout_s=100) == expected
    finally:
        for wire in wires:
            wire.close()
    assert len(stage.readers()) == 1


def test_clients_that_leave_or_are_unblocked(stage: Stage) -> None:
    stage.prepare()
    with stage.reading() as other:
        stage.call("CLIENT", "UNBLOCK", other_id(stage))
        assert other.read().plain() is None
        other.send("XRANGE", KEY, "-", "+", "COUNT", 1)
        eventually(lambda: b"blocked_clients:1" in stage.call("INFO", "clients"), what="a client that waits")
        stage.call("CLIENT", "UNBLOCK", other_id(stage), "ERROR")
        assert other.read().plain().startswith(b"UNBLOCKED")
        other.send("XRANGE", KEY, "-", "+")
        eventually(lambda: b"blocked_clients:1" in stage.call("INFO", "clients"), what="a client that waits")
        other.close()
        eventually(lambda: b"blocked_clients:0" in stage.call("INFO", "clients"), what="that it has left")
    stage.assert_whole()


def other_id(stage: Stage) -> int:
    lines = stage.call("CLIENT", "LIST").decode().splitlines()
    return next(int(line.split()[0][3:]) for line in lines if "flags=b" in line)


def test_an_answer_that_arrives_during_a_pause_is_sent_after_it(stage: Stage) -> None:
    stage.prepare()
    with stage.reading() as other:
        stage.call("CLIENT", "PAUSE", 2000, "ALL")
    assert is_whole(stage, other.read())


def test_reads_that_do_not_wait_are_of_memory_alone(stage: Stage) -> None:
    stage.prepare()
    live = [each[0] for each in stage.call("XREVRANGE", KEY, "+", "-", "COUNT", 50)][::-1]
    stage.call("MULTI")
    stage.call("XRANGE", KEY, "-", "+")
    stage.call("STREAMD.HISTORY", KEY)
    ranged, history = stage.call("EXEC")
    assert [each[0] for each in ranged] == live
    assert history[3] is None
    script = "return redis.call('XRANGE', KEYS[1], '-', '+')"
    assert [each[0] for each in stage.call("EVAL", script, 1, KEY)] == live
    assert stage.call("STREAMD.NOARCHIVE", "ON") == b"OK"
    assert [each[0] for each in stage.call("XRANGE", KEY, "-", "+")] == live
    stage.call("STREAMD.NOARCHIVE", "OFF")
    stage.assert_whole()
    assert stage.error("STREAMD.NOARCHIVE", "MAYBE") == "ERR syntax error"


def test_the_setting_can_be_changed_while_the_server_runs(stage: Stage) -> None:
    stage.prepare()
    stage.assert_whole()
    stage.call("CONFIG", "SET", "stream-archive-dir", "")
    assert len(stage.call("XRANGE", KEY, "-", "+")) == 50
    assert stage.call("STREAMD.HISTORY", KEY)[3] is None
    eventually(lambda: not stage.readers(), what="the end of the readers")
    stage.call("CONFIG", "SET", "stream-archive-dir", str(stage.archive))
    stage.assert_whole()


def test_history_shows_both_parts(stage: Stage) -> None:
    stage.prepare()
    assert stage.call("XLEN", KEY) == 50
    name, memory, other_name, archived = stage.call("STREAMD.HISTORY", KEY)
    assert (name, other_name) == (b"memory", b"archive")
    border = f"{FIRST_MS + (ARCHIVED - 1) // 3}-{(ARCHIVED - 1) % 3}".encode()
    next_id = f"{FIRST_MS + ARCHIVED // 3}-{ARCHIVED % 3}".encode()
    last = f"{FIRST_MS + (stage.added - 1) // 3}-{(stage.added - 1) % 3}".encode()
    assert memory == [b"entries", 50, b"first-id", next_id, b"last-id", last]
    facts = dict(zip(archived[::2], archived[1::2], strict=True))
    assert facts.pop(b"bytes") > 0
    assert facts == {
        b"entries": ARCHIVED, b"first-id": f"{FIRST_MS}-0".encode(), b"last-id": border, b"boundary": border, b"files": 3,
    }  # fmt: skip
    assert stage.error("STREAMD.HISTORY", "missing") == "ERR no such key"
    stage.call("SET", "string", "v")
    assert stage.error("STREAMD.HISTORY", "string").startswith("WRONGTYPE")


def test_a_restart_and_a_password(tmp_path: Path) -> None:
    stage = Stage(tmp_path, appendonly="yes", stream_archive_readers="1")
    try:
        stage.prepare()
        stage.wire.close()
        stage.server.restart()
        stage.wire = stage.server.connect()
        stage.assert_whole()
        stage.call("ACL", "SETUSER", "reader", "on", ">secret", "~*", "+xrange", "+xrevrange")
        stage.call("CONFIG", "SET", "requirepass", "secret")
        with stage.server.connect() as wire:
            wire.call("AUTH", "reader", "secret")
            assert is_whole(stage, wire.call("XRANGE", KEY, "-", "+"))
    finally:
        stage.close()


def test_a_replica_reads_the_archive_of_its_primary(stage: Stage, tmp_path: Path) -> None:
    stage.prepare()
    (tmp_path / "replica").mkdir()
    replica = start_streamd(
        tmp_path / "replica",
        {"replicaof": f"127.0.0.1 {stage.server.port}", "stream-archive-dir": str(stage.archive)},
        name="replica",
    )
    try:
        with replica.connect() as wire:
            eventually(lambda: wire.call("XLEN", UNCUT).plain() == stage.added, what="the replica in sync")
            eventually(lambda: wire.call("XLEN", KEY).plain() == 50, what="the replica in sync")
            assert is_whole(stage, wire.call("XRANGE", KEY, "-", "+"))
    finally:
        replica.stop()


def test_readers_end_with_the_server(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    try:
        stage.prepare()
        stage.assert_whole()
        assert stage.readers()
        stage.server.expect_signal(signal.SIGKILL)
        stage.server.kill()
        eventually(lambda: not stage.readers(), what="the end of the readers")
    finally:
        stage.close()
