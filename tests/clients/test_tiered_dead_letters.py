"""Dead letters of entries that are in the archive alone: the server reads their fields, and moves them, each once.

what is moved  by XNACK, by a claim, by ACKWAIT: with its fields; deleted in both tiers: without
what stays     pending, while the archive cannot be read; what was acknowledged during the read is not moved
kills          of the server and its readers at any time: every entry is pending or a dead letter, and never both or twice
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.servers import eventually, start_streamd

pytest.importorskip("pyarrow", reason="archives need streamd-server[archive]")

from support.tiers import ARCHIVED, FIRST_MS, KEY, UNCUT, Stage, id_at

from streamd.archive.delete import delete

pytestmark = pytest.mark.long

DEAD = "dead"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(
        tmp_path, stream_archive_readers="1", stream_archive_groups="yes", appendonly="yes", appendfsync="always"
    )
    yield made
    made.close()


def take(stage: Stage, count: int, *rule: Any) -> list[Any]:
    """Prepare a group with a rule; returns the entries that a consumer has taken from its start."""
    stage.call("XGROUP", "CREATE", KEY, "g", "0")
    assert stage.call("STREAMD.GROUP", "SET", KEY, "g", "DEADLETTER", DEAD, *rule) == b"OK"
    return list(stage.call("XREADGROUP", "GROUP", "g", "c", "COUNT", count, "STREAMS", KEY, ">")[0][1])


def letters(stage: Stage) -> list[tuple[bytes, bytes, list[bytes]]]:
    """ID, reason and own fields of the dead letters."""
    found = []
    for _, words in stage.call("XRANGE", DEAD, "-", "+"):
        known = dict(zip(words[-16::2], words[-15::2], strict=True))
        found.append((known[b"dlq.id"], known[b"dlq.reason"], words[:-16]))
    return found


def pending(stage: Stage) -> list[bytes]:
    return [each[0] for each in stage.call("XPENDING", KEY, "g", "-", "+", 10**6)]


def expect(stage: Stage, count: int) -> list[tuple[bytes, bytes, list[bytes]]]:
    eventually(lambda: len(letters(stage)) >= count, what=f"{count} dead letters")
    return letters(stage)


def facts(stage: Stage) -> dict[bytes, Any]:
    words = stage.call("STREAMD.GROUP", "GET", KEY, "g")
    return words if isinstance(words, dict) else dict(zip(words[::2], words[1::2], strict=True))


def uptime_s(stage: Stage) -> int:
    lines = stage.call("INFO", "server").split()
    return next(int(line.partition(b":")[2]) for line in lines if line.startswith(b"uptime_in_seconds:"))


def test_each_event_moves_an_entry_with_its_fields(stage: Stage) -> None:
    stage.prepare()
    taken = take(stage, 4, "MAXDELIVERIES", 1)
    assert stage.call("XNACK", KEY, "g", "FATAL", "IDS", 1, id_at(0)) == 1
    assert stage.call("XNACK", KEY, "g", "FAIL", "IDS", 1, id_at(1)) == 1
    assert stage.call("XCLAIM", KEY, "g", "d", 0, id_at(2)) == []
    expected = [(taken[at][0], (b"fatal", *[b"max-deliveries"] * 3)[at], taken[at][1]) for at in range(4)]
    assert sorted(expect(stage, 3)) == expected[:3]
    assert pending(stage) == [id_at(3).encode()]
    stage.call("STREAMD.GROUP", "SET", KEY, "g", "ACKWAIT", 1)
    assert sorted(expect(stage, 4)) == expected
    assert pending(stage) == []
    assert b"not-moved" not in facts(stage)


def test_many_are_moved_without_a_second_for_each_hundred(stage: Stage) -> None:
    stage.prepare()
    taken = take(stage, ARCHIVED + 20, "MAXDELIVERIES", 1, "ACKWAIT", 1)
    assert sorted(expect(stage, len(taken))) == [(each, b"max-deliveries", words) for each, words in taken]
    assert pending(stage) == []


def test_a_replica_and_the_file_have_what_was_moved(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "replica").mkdir()
    replica = start_streamd(tmp_path / "replica", {"replicaof": f"127.0.0.1 {stage.server.port}"}, name="replica")
    try:
        stage.prepare()
        take(stage, 30, "MAXDELIVERIES", 1)
        stage.call("XNACK", KEY, "g", "FATAL", "IDS", 20, *(id_at(at) for at in range(20)))
        expect(stage, 20)
        dead = stage.call("XRANGE", DEAD, "-", "+")
        with replica.connect() as wire:
            eventually(
                lambda: (
                    wire.call("XRANGE", DEAD, "-", "+").plain() == dead
                    and [each[0] for each in wire.call("XPENDING", KEY, "g", "-", "+", 100).plain()] == pending(stage)
                ),
                what="the replica in sync",
            )
    finally:
        replica.stop()
    stage.wire.close()
    stage.server.restart()
    stage.wire = stage.server.connect()
    assert stage.call("XRANGE", DEAD, "-", "+") == dead
    assert pending(stage) == [id_at(at).encode() for at in range(20, 30)]


def test_an_entry_that_both_tiers_have_deleted_has_no_fields(stage: Stage) -> None:
    stage.prepare()
    taken = take(stage, 2)
    first = FIRST_MS << 64
    delete(str(stage.archive), KEY, {"port": str(stage.server.port)}, [(first, first)], archive_only=True)
    stage.call("XNACK", KEY, "g", "FATAL", "IDS", 2, id_at(0), id_at(1))
    assert expect(stage, 2) == [(taken[0][0], b"trimmed", []), (taken[1][0], b"fatal", taken[1][1])]


def test_while_the_archive_cannot_be_read_they_stay_pending(stage: Stage) -> None:
    stage.prepare()
    taken = take(stage, 3)
    stage.archive.rename(stage.folder / "moved")
    stage.call("XNACK", KEY, "g", "FATAL", "IDS", 2, id_at(0), id_at(1))
    eventually(lambda: b"is not an archive" in facts(stage).get(b"last-error", b""), what="the reason")
    assert facts(stage)[b"not-moved"] == 2
    assert pending(stage) == [each for each, _ in taken]
    assert stage.call("EXISTS", DEAD) == 0
    assert b"dead_letters_not_moved:2" in stage.call("INFO", "delivery")
    (stage.folder / "moved").rename(stage.archive)
    assert sorted(expect(stage, 2)) == [(each, b"fatal", words) for each, words in taken[:2]]


@pytest.mark.parametrize("change", ["acknowledged", "allowed more"])
def test_what_is_settled_during_the_read_is_not_moved(stage: Stage, change: str) -> None:
    stage.prepare()
    taken = take(stage, 2, "MAXDELIVERIES", 1)
    with stage.reading():
        stage.call("XNACK", KEY, "g", "FAIL", "IDS", 2, id_at(0), id_at(1))
        # One second of the server has asked, another has seen that nothing has come.
        begun = uptime_s(stage)
        eventually(lambda: uptime_s(stage) >= begun + 3, what="seconds of the server")
        if change == "acknowledged":
            assert stage.call("XACK", KEY, "g", id_at(0)) == 1
        else:
            stage.call("STREAMD.GROUP", "SET", KEY, "g", "MAXDELIVERIES", 2)
    if change == "acknowledged":
        assert expect(stage, 1) == [(taken[1][0], b"max-deliveries", taken[1][1])]
        assert pending(stage) == []
    else:
        eventually(lambda: b"not-moved" not in facts(stage), what="that they are forgotten")
        assert [each[0] for each in stage.call("XCLAIM", KEY, "g", "d", 0, id_at(0), id_at(1))] == pending(stage)
    assert len(letters(stage)) == (change == "acknowledged")


def test_entries_that_are_too_large_together_are_moved_one_by_one(stage: Stage) -> None:
    stage.call("CONFIG", "SET", "stream-archive-max-reply", "1mb")
    for at in range(3):
        stage.call("XADD", KEY, f"{FIRST_MS + at}-0", "large", b"%d" % at * 700_000)
    stage.archived()
    take(stage, 1, "MAXDELIVERIES", 1)
    for _ in range(2):
        stage.call("XREADGROUP", "GROUP", "g", "c", "COUNT", 1, "STREAMS", KEY, ">")
    stage.call("XNACK", KEY, "g", "FATAL", "IDS", 3, *(f"{FIRST_MS + at}-0" for at in range(3)))
    found = expect(stage, 3)
    assert sorted((each, words) for each, _, words in found) == [
        (f"{FIRST_MS + at}-0".encode(), [b"large", b"%d" % at * 700_000]) for at in range(3)
    ]


def test_kills_at_any_time(stage: Stage) -> None:
    stage.prepare()
    stage.call("XGROUP", "CREATE", KEY, "g", "0")
    rule = ("STREAMD.GROUP", "SET", KEY, "g", "MAXDELIVERIES", 1, "ACKWAIT", 1, "DEADLETTER", DEAD)
    uncut = dict(stage.call("XRANGE", UNCUT, "-", "+"))
    assert stage.call(*rule) == b"OK"
    draw = random.Random(11)
    for turn in range(10):
        stage.wire.call("XREADGROUP", "GROUP", "g", "c", "COUNT", 35, "STREAMS", KEY, ">")
        wanted = len(letters(stage)) + draw.choice((0, 1, 30))
        eventually(
            lambda wanted=wanted: len(letters(stage)) >= min(wanted, len(uncut)) or not pending(stage),
            what="some dead letters",
        )  # fmt: skip
        if turn % 3 == 0:
            for pid in stage.readers():
                os.kill(pid, signal.SIGKILL)
        else:
            stage.server.expect_signal(signal.SIGKILL)
            stage.server.kill()
            stage.wire.close()
            stage.server.restart()
            stage.wire = stage.server.connect()
        dead, left = [each for each, _, _ in letters(stage)], pending(stage)
        assert sorted(dead + left) == sorted(uncut)[: len(dead) + len(left)]
    while stage.call("XREADGROUP", "GROUP", "g", "c", "STREAMS", KEY, ">"):
        pass
    found = expect(stage, len(uncut))
    assert sorted(found) == sorted((each, b"max-deliveries", words) for each, words in uncut.items())
    assert pending(stage) == []
