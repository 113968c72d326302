"""`stream-archive-groups`: consumer groups read through the archive into memory, each entry once, as in the uncut stream.

new entries    from 0, from an archived ID, across the border; COUNT, NOACK, CLAIM, several streams; what is pending, and the lag
pending ones   that are not in memory: XREADGROUP with an ID, XCLAIM and XAUTOCLAIM read them; XACK, XPENDING as ever
who else       several consumers share what is read, each entry goes to one; transactions and scripts leave them alone
who follows    the file, a replica, and a Redis that is a replica agree on what was delivered
kills          of the server and its readers at any time: each entry is delivered again, or is pending, and none is missing
"""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.servers import eventually, start_redis, start_streamd
from support.wire import Wire, encode

pytest.importorskip("pyarrow", reason="archives need streamd-server[archive]")

from support.tiers import ARCHIVED, KEY, UNCUT, Stage, id_at

from streamd.archive.delete import delete

pytestmark = pytest.mark.long


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path, stream_archive_readers="1", stream_archive_groups="yes", appendonly="yes")
    yield made
    made.close()


def create(stage: Stage, after: Any = "0", group: str = "g") -> None:
    for key in (KEY, UNCUT):
        assert stage.call("XGROUP", "CREATE", key, group, after) == b"OK"


def both(wire: Wire, *words: Any) -> Any:
    """What a request about the archived stream returns, which must be what it returns about the uncut one."""
    found = wire.call(*words)
    expected = wire.call(*(UNCUT if word == KEY else word for word in words))
    name, uncut = (b"$%d\r\n%s\r\n" % (len(key), key.encode()) for key in (KEY, UNCUT))
    assert encode(found) == encode(expected).replace(uncut, name), words
    return found.plain()


def take(wire: Wire, *options: Any, after: Any = ">", consumer: str = "c", group: str = "g") -> Any:
    return both(wire, "XREADGROUP", "GROUP", group, consumer, *options, "STREAMS", KEY, after)


def progress(stage: Stage, key: str = KEY, group: str = "g") -> dict[bytes, Any]:
    """XINFO GROUPS of a group."""
    for found in stage.call("XINFO", "GROUPS", key):
        facts = found if isinstance(found, dict) else dict(zip(found[::2], found[1::2], strict=True))
        if facts[b"name"] == group.encode():
            return facts
    raise AssertionError(group)


def pending(stage: Stage, key: str = KEY, group: str = "g") -> list[Any]:
    """ID, consumer and delivery count of what is pending."""
    return [[*each[:2], each[3]] for each in stage.call("XPENDING", key, group, "-", "+", 10**6)]


def assert_same_group(stage: Stage, group: str = "g") -> None:
    assert progress(stage, KEY, group) == progress(stage, UNCUT, group)
    assert pending(stage, KEY, group) == pending(stage, UNCUT, group)


# --- New entries -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [2, 3])
def test_a_group_reads_all_of_the_stream_once(stage: Stage, protocol: int) -> None:
    stage.prepare()
    create(stage)
    stage.call("HELLO", protocol)
    draw, seen = random.Random(protocol), 0
    while seen < stage.added:
        count = draw.choice((1, 2, 30, 49, 50, 51))
        found = take(stage.wire, "COUNT", count, *draw.choice(((), ("BLOCK", 1), ("NOACK",))))
        seen += len(next(iter(found.values() if protocol == 3 else [found[0][1]])))
        assert_same_group(stage)
    assert take(stage.wire, "BLOCK", 1) is None


@pytest.mark.parametrize("after", [0, 1, ARCHIVED // 3, ARCHIVED - 2, ARCHIVED - 1, ARCHIVED, ARCHIVED + 10])
def test_a_group_starts_anywhere(stage: Stage, after: int) -> None:
    stage.prepare()
    create(stage, id_at(after))
    take(stage.wire)
    assert_same_group(stage)
    for key in (KEY, UNCUT):
        stage.call("XGROUP", "SETID", key, "g", id_at(max(0, after - 5)))
        stage.call("XACK", key, "g", *(id_at(at) for at in range(stage.added)))
    take(stage.wire, "COUNT", 7)
    take(stage.wire, "COUNT", 400)
    assert_same_group(stage)


def test_the_lag_counts_what_is_archived(stage: Stage) -> None:
    stage.prepare()
    create(stage)
    assert progress(stage)[b"lag"] == progress(stage, UNCUT)[b"lag"] == stage.added
    take(stage.wire, "COUNT", 10)
    assert progress(stage)[b"lag"] == stage.added - 10
    stage.call("XGROUP", "SETID", KEY, "g", id_at(20))
    assert progress(stage)[b"lag"] is None
    found = stage.call("XREADGROUP", "GROUP", "g", "c", "COUNT", 1, "STREAMS", KEY, ">")
    assert found[0][1][0][0] == id_at(21).encode()
    assert progress(stage)[b"lag"] == stage.added - 22
    stage.call("CONFIG", "SET", "stream-archive-groups", "no")
    assert progress(stage)[b"lag"] == 50


def test_several_streams_and_limits(stage: Stage) -> None:
    stage.prepare()
    create(stage)
    for at in range(30):
        stage.call("XADD", "small", id_at(at), "small", at)
    stage.call("XGROUP", "CREATE", "small", "g", "0")
    stage.call("XREADGROUP", "GROUP", "g", "c", "NOACK", "STREAMS", "small", ">")
    stage.archived(key="small")
    assert stage.call("XLEN", "small") == 0
    stage.call("XGROUP", "SETID", "small", "g", "0")
    found = stage.call("XREADGROUP", "GROUP", "g", "c", "MAXCOUNT", 310, "STREAMS", KEY, "small", ">", ">")
    assert [len(each[1]) for each in found] == [310]
    found = stage.call("XREADGROUP", "GROUP", "g", "c", "COUNT", 20, "MAXCOUNT", 50, "STREAMS", "small", KEY, ">", ">")
    assert [len(each[1]) for each in found] == [20, 20]
    found = stage.call("XREADGROUP", "GROUP", "g", "c", "MAXSIZE", 100, "STREAMS", "small", KEY, ">", ">")
    assert [len(each[1]) for each in found] == [2]
    found = stage.call("XREADGROUP", "GROUP", "g", "c", "STREAMS", "small", KEY, ">", ">")
    assert [len(each[1]) for each in found] == [8, 20]


@pytest.mark.parametrize(
    ("size", "options"),
    [
        (2000, ("COUNT", 1)), (2000, ("COUNT", 400)), (2000, ("COUNT", 2000)), (2000, ()), (2000, ("MAXSIZE", 2_000_000)),
        (100_000, ("COUNT", 1)), (1_500_000, ("COUNT", 3)),
    ],
)  # fmt: skip
def test_entries_of_which_few_fit_in_a_reply(stage: Stage, size: int, options: tuple[Any, ...]) -> None:
    """The group gets what fits, at least one entry at a time, all of them, and each once."""
    number = max(3, 1_500_000 // size)
    ids = [b"%d-0" % at for at in range(1, number + 1)]
    for key in (KEY, "other"):
        stage.wire.pipeline([("XADD", key, each, "f", "x" * size) for each in ids])
        stage.archived(key=key)
        stage.call("XADD", key, f"{number + 1}-0", "f", "in memory")
        stage.call("XGROUP", "CREATE", key, "g", "0")
    stage.call("CONFIG", "SET", "stream-archive-max-reply", "1mb")
    expected = [*ids, b"%d-0" % (number + 1)]
    for keys in ((KEY,), (KEY, "other")):
        found: dict[bytes, list[bytes]] = {key.encode(): [] for key in keys}
        while reply := stage.wire.call("XREADGROUP", "GROUP", "g", "c", *options, "STREAMS", *keys, *">" * len(keys)):
            assert not reply.is_error, reply
            if (streams := reply.plain()) is None:
                break
            for key, entries in streams:
                found[key] += [each[0] for each in entries]
        assert found == {key.encode(): expected for key in keys}
        assert progress(stage)[b"lag"] == 0
        history = stage.call("XREADGROUP", "GROUP", "g", "c", "COUNT", 1, "STREAMS", KEY, "0")
        assert history[0][1][0][1] == [b"f", b"x" * size]
        stage.call("XGROUP", "DESTROY", KEY, "g")
        stage.call("XGROUP", "CREATE", KEY, "g", "0")


def test_claim_shows_new_entries_with_their_state(stage: Stage) -> None:
    stage.prepare()
    create(stage)
    take(stage.wire, "CLAIM", 1000, "COUNT", ARCHIVED + 5)
    assert_same_group(stage)


def test_without_the_setting_groups_read_memory(stage: Stage) -> None:
    stage.prepare()
    stage.call("CONFIG", "SET", "stream-archive-groups", "no")
    stage.call("XGROUP", "CREATE", KEY, "g", "0")
    assert len(stage.call("XREADGROUP", "GROUP", "g", "c", "STREAMS", KEY, ">")[0][1]) == 50


def test_an_archive_that_cannot_be_read_delivers_nothing(stage: Stage) -> None:
    stage.prepare()
    create(stage)
    take(stage.wire, "COUNT", 10)
    create(stage, group="other")  # which shares nothing with the first
    stage.archive.rename(stage.folder / "elsewhere")
    text = stage.error("XREADGROUP", "GROUP", "other", "new", "STREAMS", KEY, ">")
    assert text.startswith("ARCHIVE The archived part of readings cannot be read")
    assert_same_group(stage, "other")
    (stage.folder / "elsewhere").rename(stage.archive)
    take(stage.wire, group="other")
    take(stage.wire)
    assert_same_group(stage)
    assert_same_group(stage, "other")


@pytest.mark.parametrize("change", ["run", "merge", "trim", "all"])
def test_a_change_while_the_archive_is_read(stage: Stage, change: str) -> None:
    stage.prepare()
    create(stage)
    if change in ("trim", "all"):
        stage.call("XGROUP", "CREATE", KEY, "held", "$")
        stage.archived(trim=False)
    with stage.reading("XREADGROUP", "GROUP", "g", "c", "STREAMS", KEY, ">") as other:
        if change in ("run", "merge"):
            stage.add(30)
            stage.archived(merge_files=2 if change == "merge" else 64, ignored_groups=frozenset({"g"}))
        else:
            stage.call("XTRIM", KEY, "MAXLEN", 0 if change == "all" else 10)
    found = other.read().plain()
    expected = stage.call("XREADGROUP", "GROUP", "g", "c", "STREAMS", UNCUT, ">")
    assert found[0][1] == expected[0][1]
    assert pending(stage) == pending(stage, UNCUT)


# --- Pending entries -------------------------------------------------------------------------------------------------


def test_pending_entries_are_read_from_the_archive(stage: Stage) -> None:
    stage.prepare()
    create(stage)
    take(stage.wire, "COUNT", ARCHIVED + 10)
    take(stage.wire, after="0")
    take(stage.wire, "COUNT", 3, after=id_at(ARCHIVED - 2))
    for key in (KEY, UNCUT):
        assert stage.call("XACK", key, "g", *(id_at(at) for at in range(0, ARCHIVED, 3))) == ARCHIVED // 3
    take(stage.wire, after=id_at(5))
    both(stage.wire, "XCLAIM", KEY, "g", "d", 0, id_at(1), id_at(3), id_at(4), id_at(ARCHIVED + 1))
    both(stage.wire, "XCLAIM", KEY, "g", "d", 0, id_at(5), id_at(4), "JUSTID")
    both(stage.wire, "XCLAIM", KEY, "g", "d", 10**9, id_at(7))
    both(stage.wire, "XCLAIM", KEY, "g", "d", 0, id_at(0), "FORCE")
    take(stage.wire, after="0", consumer="d")
    cursor = b"0-0"
    while True:
        cursor, claimed, gone = both(stage.wire, "XAUTOCLAIM", KEY, "g", "e", 0, cursor, "COUNT", 30)
        assert gone == []
        if cursor == b"0-0":
            break
    assert len(claimed) <= 30
    take(stage.wire, after="0", consumer="e")
    assert_same_group(stage)


def test_an_entry_that_both_tiers_have_deleted_is_deleted(stage: Stage) -> None:
    stage.prepare()
    create(stage)
    take(stage.wire, "COUNT", 20)
    number = int(id_at(4).split("-")[0]) << 64 | int(id_at(4).split("-")[1])
    delete(str(stage.archive), KEY, {"port": str(stage.server.port)}, [(number, number)], archive_only=True)
    stage.call("XDEL", UNCUT, id_at(4))
    take(stage.wire, after="0")
    assert both(stage.wire, "XAUTOCLAIM", KEY, "g", "e", 0, "0", "COUNT", 10)[2] == [id_at(4).encode()]
    assert both(stage.wire, "XCLAIM", KEY, "g", "e", 0, id_at(4), "FORCE") == []
    assert_same_group(stage)


def test_what_cannot_wait_leaves_them_alone(stage: Stage) -> None:
    stage.prepare()
    create(stage)
    take(stage.wire, "COUNT", 5)
    script = "return redis.call('XAUTOCLAIM', KEYS[1], 'g', 'd', 0, '0')"
    assert stage.call("EVAL", script, 1, KEY) == [b"0-0", [], []]
    stage.call("MULTI")
    stage.call("XCLAIM", KEY, "g", "d", 0, id_at(1))
    stage.call("XREADGROUP", "GROUP", "g", "c", "STREAMS", KEY, "0")
    claimed, history = stage.call("EXEC")
    assert claimed == []
    assert [each[1] for each in history[0][1]] == [None] * 5
    for key in (KEY, UNCUT):
        stage.call("XGROUP", "CREATECONSUMER", key, "g", "d")
    script = "return redis.call('XREADGROUP', 'GROUP', 'g', 'c', 'STREAMS', KEYS[1], '>')"
    assert "has not read all archived entries" in stage.error("EVAL", script, 1, KEY)
    assert_same_group(stage)
    take(stage.wire, "COUNT", ARCHIVED - 5)
    assert len(stage.call("EVAL", script, 1, KEY)[0][1]) == 50


def test_entries_that_are_only_archived_are_held_back(stage: Stage) -> None:
    stage.prepare()
    stage.call("XGROUP", "CREATE", KEY, "g", "0")
    assert stage.call("STREAMD.GROUP", "SET", KEY, "g", "BACKOFF", 600_000) == b"OK"
    stage.call("XREADGROUP", "GROUP", "g", "c", "COUNT", 2, "STREAMS", KEY, ">")
    assert stage.call("XNACK", KEY, "g", "FAIL", "IDS", 1, id_at(0)) == 1
    assert stage.call("XCLAIM", KEY, "g", "d", 0, id_at(0)) == []
    before = pending(stage)
    assert [each[:2] for each in before] == [[id_at(0).encode(), b"c"], [id_at(1).encode(), b"c"]]
    stage.wire.close()
    stage.server.restart()
    stage.wire = stage.server.connect()
    assert pending(stage) == before
    assert stage.call("XCLAIM", KEY, "g", "d", 0, id_at(0)) == []
    assert stage.call("XCLAIM", KEY, "g", "d", 0, id_at(0), "FORCE")[0][0] == id_at(0).encode()


# --- Several consumers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("consumers", [5, 40])
def test_each_entry_goes_to_one_consumer(stage: Stage, consumers: int) -> None:
    stage.prepare()
    stage.call("XGROUP", "CREATE", KEY, "g", "0")
    found: list[bytes] = []

    def consume(name: str) -> None:
        with stage.server.connect() as wire:
            while True:
                reply = wire.call("XREADGROUP", "GROUP", "g", name, "COUNT", 3, "STREAMS", KEY, ">").plain()
                if reply is None:
                    return
                found.extend(entry[0] for entry in reply[0][1])

    threads = [threading.Thread(target=consume, args=(f"c{at}",)) for at in range(consumers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == sorted(id_at(at).encode() for at in range(stage.added))
    assert len(pending(stage)) == stage.added
    assert progress(stage)[b"lag"] == 0


def test_consumers_that_wait_in_line_get_what_comes(stage: Stage) -> None:
    """All wait at the end of a stream that is emptied: the first has to look into the archive, the others wait behind it."""
    stage.prepare()
    create(stage, "$")
    wires = [stage.server.connect() for _ in range(4)]
    try:
        for at, wire in enumerate(wires):
            wire.send("XREADGROUP", "GROUP", "g", f"c{at}", "COUNT", 1, "BLOCK", 0, "STREAMS", KEY, ">")
        eventually(lambda: b"blocked_clients:4" in stage.call("INFO", "clients"), what="clients that wait")
        stage.archived()
        stage.add(4)
        got = [wire.read().plain()[0][1][0][0] for wire in wires]
        assert got == [id_at(at).encode() for at in range(stage.added - 4, stage.added)]
    finally:
        for wire in wires:
            wire.close()


# --- Who follows -----------------------------------------------------------------------------------------------------


def follow(stage: Stage) -> None:
    """Deliver, acknowledge and claim, in the archive and across the border."""
    stage.prepare()
    create(stage)
    take(stage.wire, "COUNT", 100)
    take(stage.wire, "COUNT", ARCHIVED - 80, consumer="d")
    for key in (KEY, UNCUT):
        stage.call("XACK", key, "g", *(id_at(at) for at in range(0, ARCHIVED + 20, 2)))
    both(stage.wire, "XCLAIM", KEY, "g", "e", 0, id_at(1), id_at(ARCHIVED + 1))


def test_the_file_knows_what_was_delivered(stage: Stage) -> None:
    follow(stage)
    before = progress(stage), pending(stage)
    for rewrite in ((), ("BGREWRITEAOF",), ("CONFIG", "SET", "aof-use-rdb-preamble", "no"), ("BGREWRITEAOF",)):
        if rewrite:
            stage.call(*rewrite)
        if rewrite == ("BGREWRITEAOF",):
            eventually(
                lambda: (
                    b"aof_rewrite_in_progress:0" in stage.call("INFO", "persistence")
                    and b"aof_rewrite_scheduled:0" in stage.call("INFO", "persistence")
                ),
                what="the end of the rewrite",
            )
        stage.call("XACK", KEY, "missing", "1-1")
        stage.wire.close()
        stage.server.restart()
        stage.wire = stage.server.connect()
        assert (progress(stage), pending(stage)) == before
    take(stage.wire, after="0")
    take(stage.wire)
    assert_same_group(stage)


def test_a_replica_knows_what_was_delivered(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "replica").mkdir()
    replica = start_streamd(tmp_path / "replica", {"replicaof": f"127.0.0.1 {stage.server.port}"}, name="replica")
    try:
        eventually(lambda: b"state=online" in stage.call("INFO", "replication"), what="a replica in sync")
        follow(stage)
        with replica.connect() as wire:
            words = ("XPENDING", KEY, "g", "-", "+", 10**6)
            mine = pending(stage)
            eventually(
                lambda: [[*each[:2], each[3]] for each in wire.call(*words).plain()] == mine, what="the replica in sync"
            )
            replica_facts = wire.call("XINFO", "GROUPS", KEY).plain()[0]
            facts = dict(zip(replica_facts[::2], replica_facts[1::2], strict=True))
            assert facts[b"last-delivered-id"] == progress(stage)[b"last-delivered-id"]
            assert facts[b"entries-read"] == progress(stage)[b"entries-read"]
    finally:
        replica.stop()


@pytest.mark.real
def test_a_redis_that_follows_knows_how_far_the_group_has_read(stage: Stage, tmp_path: Path) -> None:
    """What is pending in the archive is deleted to Redis; the rest, and the position, are the same."""
    (tmp_path / "redis").mkdir()
    redis = start_redis(tmp_path / "redis", {"replicaof": f"127.0.0.1 {stage.server.port}"})
    try:
        eventually(lambda: b"state=online" in stage.call("INFO", "replication"), what="a replica in sync")
        follow(stage)
        with redis.connect() as wire:
            mine = [each for each in pending(stage) if each[0] >= id_at(ARCHIVED).encode()]
            words = ("XPENDING", KEY, "g", "-", "+", 10**6)
            eventually(
                lambda: [[*each[:2], each[3]] for each in wire.call(*words).plain()] == mine, what="the replica in sync"
            )
            found = wire.call("XINFO", "GROUPS", KEY).plain()[0]
            facts = dict(zip(found[::2], found[1::2], strict=True))
            for name in (b"last-delivered-id", b"entries-read", b"lag"):
                assert facts[name] == progress(stage)[name]
    finally:
        redis.stop()


@pytest.fixture
def durable(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path, stream_archive_groups="yes", appendonly="yes", appendfsync="always")
    yield made
    made.close()


# --- Kills -----------------------------------------------------------------------------------------------------------


def test_kills_of_the_server_and_its_readers(durable: Stage) -> None:
    """With `appendfsync always` what a consumer has received is pending for it after each kill, and nothing is missing."""
    stage = durable
    stage.prepare()
    stage.call("XGROUP", "CREATE", KEY, "g", "0")
    draw, received = random.Random(7), set()
    for _ in range(12):
        for _ in range(draw.randint(0, 4)):
            reply = stage.wire.call(
                "XREADGROUP", "GROUP", "g", "c", "COUNT", draw.choice((1, 9, 40)), "STREAMS", KEY, ">"
            )
            if not reply.is_error and reply.plain():
                received |= {entry[0] for entry in reply.plain()[0][1]}
        if draw.random() < 0.4:
            for pid in stage.readers():
                os.kill(pid, signal.SIGKILL)
            stage.wire.call("XREADGROUP", "GROUP", "g", "c", "COUNT", 1, "STREAMS", KEY, ">")
        else:
            stage.wire.send("XREADGROUP", "GROUP", "g", "c", "COUNT", 30, "STREAMS", KEY, ">")
            stage.server.expect_signal(signal.SIGKILL)
            stage.server.kill()
            stage.wire.close()
            stage.server.restart()
            stage.wire = stage.server.connect()
        known = {each[0] for each in pending(stage)}
        assert received <= known
        assert sorted(known) == sorted(id_at(at).encode() for at in range(len(known)))
    history = stage.call("XREADGROUP", "GROUP", "g", "c", "STREAMS", KEY, "0")[0][1]
    rest = stage.call("XREADGROUP", "GROUP", "g", "c", "STREAMS", KEY, ">")
    assert history + (rest[0][1] if rest else []) == stage.call("XRANGE", UNCUT, "-", "+")
