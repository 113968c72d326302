"""Groups that are ordered by key and read through the archive: the order holds in the archive, across the border and after a restart.

oracle   the same group of the uncut stream, all of which is in memory: replies, what is pending and the progress are the same
limits   HELD, and replies that hold few entries: nothing behind them is delivered from memory
who else transactions get an error where they would need keys; a replica, and the file, know what was passed over
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.servers import eventually, start_streamd
from support.wire import encode

pytest.importorskip("pyarrow", reason="archives need streamd-server[archive]")

from support.tiers import FIRST_MS, KEY, UNCUT, Stage, id_at

from streamd.archive.delete import delete

pytestmark = pytest.mark.long


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path, stream_archive_readers="1", stream_archive_groups="yes", appendonly="yes")
    yield made
    made.close()


def create(stage: Stage, field: str, *rule: Any, after: Any = "0") -> None:
    for key in (KEY, UNCUT):
        stage.call("XGROUP", "CREATE", key, "g", after)
        assert stage.call("STREAMD.GROUP", "SET", key, "g", "KEYED", field, *rule) == b"OK"


def both(stage: Stage, *words: Any) -> Any:
    """What a request about the archived stream returns, which must be what it returns about the uncut one."""
    found = stage.wire.call(*words)
    expected = stage.wire.call(*(UNCUT if word == KEY else word for word in words))
    name, uncut = (b"$%d\r\n%s\r\n" % (len(key), key.encode()) for key in (KEY, UNCUT))
    assert encode(found) == encode(expected).replace(uncut, name), words
    return found.plain()


def take(stage: Stage, *options: Any, consumer: str = "c") -> list[bytes]:
    found = both(stage, "XREADGROUP", "GROUP", "g", consumer, *options, "STREAMS", KEY, ">")
    return [each[0] for each in found[0][1]] if found else []


def pending(stage: Stage, key: str = KEY) -> list[Any]:
    return [[*each[:2], each[3]] for each in stage.call("XPENDING", key, "g", "-", "+", 10**6)]


def assert_same(stage: Stage) -> None:
    assert pending(stage) == pending(stage, UNCUT)
    assert stage.call("XINFO", "GROUPS", KEY) == stage.call("XINFO", "GROUPS", UNCUT)


def restart(stage: Stage) -> None:
    stage.wire.close()
    stage.server.restart()
    stage.wire = stage.server.connect()


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(("field", "rule"), [("text", ()), ("text", ("HELD", 40)), ("n", ()), ("absent", ())])
def test_replies_are_those_of_the_uncut_stream(stage: Stage, field: str, rule: tuple[Any, ...], restarts: bool) -> None:
    """`text` has seven values, one of them empty; `n` is another one for each entry, twice in some."""
    stage.prepare()
    create(stage, field, *rule)
    draw = random.Random(f"{field} {rule}")
    in_flight: list[bytes] = []
    done: list[bytes] = []
    for step in range(1000):
        in_flight += take(stage, "COUNT", draw.choice((1, 3, 20, 100)), consumer=draw.choice("cd"))
        if in_flight and draw.random() < 0.2:
            # The first delivery is taken back: it is the next one of its key again.
            given_back = in_flight.pop(draw.randrange(len(in_flight)))
            both(stage, "XNACK", KEY, "g", "SILENT", "IDS", 1, given_back)
            if field == "absent":  # it has no turn, as the next read finds out
                in_flight += take(stage, "COUNT", 1)
                both(stage, "XCLAIM", KEY, "g", "e", 0, given_back)
                in_flight.append(given_back)
        if in_flight and draw.random() < 0.2:
            both(stage, "XCLAIM", KEY, "g", "e", 0, draw.choice(in_flight), "JUSTID")
        if restarts and step % 15 == 5:
            # Several keys would be free in an order that only the server before the restart knows.
            while found := take(stage, "COUNT", 1000):
                in_flight += found
            restart(stage)
            assert take(stage) == []
        ended = draw.sample(in_flight, draw.randint(0, len(in_flight)))
        for each in ended:
            both(stage, "XACK", KEY, "g", each)
        in_flight = [each for each in in_flight if each not in ended]
        done += ended
        if step % 10 == 0:
            assert_same(stage)
        if len(done) == stage.added:
            break
    assert sorted(done) == sorted(id_at(at).encode() for at in range(stage.added))
    assert_same(stage)


def test_after_a_restart_nothing_overtakes_what_is_in_flight(stage: Stage) -> None:
    stage.prepare()
    create(stage, "text")
    taken = take(stage)
    assert len(taken) == 7
    assert len(pending(stage)) == stage.added
    restart(stage)
    assert stage.call("XCLAIM", KEY, "g", "d", 0, id_at(8)) == []
    assert take(stage) == []
    assert stage.call("XCLAIM", KEY, "g", "d", 0, id_at(8)) == []
    for at, each in enumerate(taken):
        both(stage, "XACK", KEY, "g", each)
        assert take(stage) == [id_at(at + 7).encode()]


def test_a_replica_knows_what_was_passed_over(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "replica").mkdir()
    replica = start_streamd(tmp_path / "replica", {"replicaof": f"127.0.0.1 {stage.server.port}"}, name="replica")
    try:
        eventually(lambda: b"state=online" in stage.call("INFO", "replication"), what="a replica in sync")
        stage.prepare()
        create(stage, "text")
        for form in ("8.6", "8.8"):
            stage.call("CONFIG", "SET", "rdb-form", form)
            taken = take(stage, "COUNT", 12)
            both(stage, "XACK", KEY, "g", *taken[:5])
        take(stage)
        with replica.connect() as wire:
            words = ("XPENDING", KEY, "g", "-", "+", 10**6)
            mine = pending(stage)
            eventually(
                lambda: [[*each[:2], each[3]] for each in wire.call(*words).plain()] == mine, what="the replica in sync"
            )
    finally:
        replica.stop()


def test_one_that_both_tiers_have_deleted_is_dropped_when_its_turn_comes(stage: Stage) -> None:
    stage.prepare()
    create(stage, "text")
    taken = take(stage)
    number = FIRST_MS + 2 << 64 | 1
    delete(str(stage.archive), KEY, {"port": str(stage.server.port)}, [(number, number)], archive_only=True)
    stage.call("XDEL", UNCUT, id_at(7))
    both(stage, "XACK", KEY, "g", taken[0])
    assert take(stage) == [id_at(14).encode()]
    assert id_at(7).encode() not in [each[0] for each in pending(stage)]


def test_a_reader_of_memory_alone_overtakes_nothing(stage: Stage) -> None:
    stage.prepare()
    create(stage, "text")
    taken = take(stage)
    restart(stage)
    assert stage.call("STREAMD.NOARCHIVE", "ON") == b"OK"
    words = ("XREADGROUP", "GROUP", "g", "c", "STREAMS", KEY, ">")
    assert stage.call(*words) is None
    stage.call("XACK", KEY, "g", taken[0])
    assert stage.call(*words) is None
    assert stage.call("STREAMD.NOARCHIVE", "OFF") == b"OK"
    assert [each[0] for each in stage.call(*words)[0][1]] == [id_at(7).encode()]


@pytest.mark.parametrize("way", ["memory alone", "transaction"])
def test_whoever_reads_no_archive_gets_the_turns_in_memory(stage: Stage, way: str) -> None:
    for at, key in enumerate("aab"):
        stage.call("XADD", KEY, f"{FIRST_MS}-{at}", "key", key)
    stage.archived()
    stage.call("XADD", KEY, f"{FIRST_MS}-3", "key", "b")
    stage.call("XGROUP", "CREATE", KEY, "g", "0")
    stage.call("STREAMD.GROUP", "SET", KEY, "g", "KEYED", "key")
    words = ("XREADGROUP", "GROUP", "g", "c", "STREAMS", KEY, ">")

    def ids(found: Any) -> list[bytes]:
        return [each[0] for each in found[0][1]] if found else []

    assert ids(stage.call(*words)) == [b"%d-0" % FIRST_MS, b"%d-2" % FIRST_MS]
    stage.call("XACK", KEY, "g", f"{FIRST_MS}-0", f"{FIRST_MS}-2")  # next: an archived one, one in memory
    if way == "transaction":
        stage.call("MULTI")
        stage.call(*words)
        assert ids(stage.call("EXEC")[0]) == [b"%d-3" % FIRST_MS]
    else:
        stage.call("STREAMD.NOARCHIVE", "ON")
        assert ids(stage.call(*words)) == [b"%d-3" % FIRST_MS]
        stage.call("STREAMD.NOARCHIVE", "OFF")
    assert ids(stage.call(*words)) == [b"%d-1" % FIRST_MS]


def test_a_transaction_gets_an_error_instead_of_another_order(stage: Stage) -> None:
    stage.prepare()
    create(stage, "text")
    take(stage)
    restart(stage)
    stage.call("MULTI")
    stage.call("XREADGROUP", "GROUP", "g", "c", "STREAMS", KEY, ">")
    (said,) = stage.call("EXEC")
    assert str(said).count("ordered by key")


def test_an_archive_that_cannot_be_read_delivers_nothing(stage: Stage) -> None:
    stage.prepare()
    create(stage, "text")
    take(stage)
    restart(stage)
    before = pending(stage)
    stage.archive.rename(stage.folder / "moved")
    assert stage.error("XREADGROUP", "GROUP", "g", "c", "STREAMS", KEY, ">").startswith("ARCHIVE ")
    assert pending(stage) == before
    (stage.folder / "moved").rename(stage.archive)
    assert take(stage) == []


@pytest.mark.parametrize("options", [(), ("COUNT", 4), ("COUNT", 1)])
def test_many_of_one_key_in_front_are_passed_over_in_several_answers(stage: Stage, options: tuple[Any, ...]) -> None:
    """An answer holds ten entries; those of the first key fill several."""
    stage.call("CONFIG", "SET", "stream-archive-max-reply", "1mb")
    for at in range(60):
        for key in (KEY, UNCUT):
            stage.call("XADD", key, f"{FIRST_MS + at}-0", "key", "ab"[at >= 50], "large", "x" * 100_000)
        if at in (20, 55):
            stage.archived()
    create(stage, "key")
    seen: list[bytes] = []
    while len(seen) < 2:
        found = stage.call("XREADGROUP", "GROUP", "g", "c", *options, "STREAMS", KEY, ">")
        seen += [each[0] for each in found[0][1]]
    assert seen == [f"{FIRST_MS}-0".encode(), f"{FIRST_MS + 50}-0".encode()]
    for at in range(1, 10):
        stage.call("XACK", KEY, "g", f"{FIRST_MS + at - 1}-0", f"{FIRST_MS + at + 49}-0")
        found = stage.call("XREADGROUP", "GROUP", "g", "c", "COUNT", 2, "STREAMS", KEY, ">")
        assert sorted(each[0] for each in found[0][1]) == [f"{FIRST_MS + each}-0".encode() for each in (at, at + 50)], (
            at
        )


@pytest.mark.parametrize("size", [300_000, 1_500_000])
def test_after_a_restart_what_is_in_flight_may_be_larger_than_a_reply(stage: Stage, size: int) -> None:
    stage.call("CONFIG", "SET", "stream-archive-max-reply", "1mb")
    ids = [f"{FIRST_MS + at}-0".encode() for at in range(10)]
    for at, entry_id in enumerate(ids):
        stage.call("XADD", KEY, entry_id, "key", at // 2, "large", "x" * size)
    stage.archived()
    stage.call("XGROUP", "CREATE", KEY, "g", "0")
    stage.call("STREAMD.GROUP", "SET", KEY, "g", "KEYED", "key")
    read = ("XREADGROUP", "GROUP", "g", "c", "COUNT", 1, "STREAMS", KEY, ">")
    taken = [stage.call(*read)[0][1][0][0] for _ in range(5)]
    assert taken == ids[::2]
    assert stage.call(*read) is None
    restart(stage)
    stage.call("CONFIG", "SET", "stream-archive-max-reply", "1mb")
    assert stage.call(*read) is None
    for before, after in zip(ids[::2], ids[1::2], strict=True):
        stage.call("XACK", KEY, "g", before)
        assert stage.call(*read)[0][1][0][0] == after
    assert stage.call("XACK", KEY, "g", *ids[1::2]) == 5
    assert stage.call(*read) is None


def test_what_was_read_of_keys_leaves_room_for_the_entries(stage: Stage) -> None:
    """After a restart: the keys of entries in flight are known from an answer of almost the longest size, and then two that were passed
    over, whose keys are free, are read by their IDs."""
    stage.call("CONFIG", "SET", "stream-archive-max-reply", "1mb")
    ids = [f"{FIRST_MS + at}-0".encode() for at in range(5)]
    for entry_id, key in zip(ids, "aabbc", strict=True):
        stage.call("XADD", KEY, entry_id, "key", key, "large", "x" * 300_000)
    stage.archived()
    stage.call("XGROUP", "CREATE", KEY, "g", "0")
    stage.call("STREAMD.GROUP", "SET", KEY, "g", "KEYED", "key")
    read = ("XREADGROUP", "GROUP", "g", "c", "COUNT", 2, "STREAMS", KEY, ">")
    seen: list[bytes] = []
    while len(seen) < 3:
        seen += [each[0] for each in stage.call(*read)[0][1]]
    assert seen == [ids[0], ids[2], ids[4]]
    stage.call("XACK", KEY, "g", ids[0], ids[2])
    restart(stage)
    stage.call("CONFIG", "SET", "stream-archive-max-reply", "1mb")
    found = stage.wire.call(*read).plain()
    assert [each[0] for each in found[0][1]] == [ids[1], ids[3]], found
