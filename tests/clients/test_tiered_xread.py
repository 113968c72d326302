"""`stream-archive-dir`: XREAD from the archive into memory, as if the stream had never been trimmed.

    which entries   IDs at the border and elsewhere, `$` and `+`; COUNT, MAXCOUNT and MAXSIZE; several streams; RESP2 and RESP3
    waiting         BLOCK is for what comes: what is archived is sent at once; what is not there is waited for
    meanwhile       one of several streams is trimmed, or replaced, while another one is read
    errors          in any of the streams; the next request works

Replies are those of the uncut streams, except for their names, byte for byte.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.servers import eventually
from support.wire import Reply, Wire, encode

pytest.importorskip("pyarrow", reason="archives need streamd-server[archive]")

from support.tiers import ARCHIVED, KEY, UNCUT, Stage, id_at

pytestmark = pytest.mark.long


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path, stream_archive_readers="1")
    yield made
    made.close()


def named(reply: Reply) -> bytes:
    """A reply with the name of the archived stream in place of the uncut one."""
    return encode(reply).replace(
        b"$%d\r\n%s\r\n" % (len(UNCUT), UNCUT.encode()), b"$%d\r\n%s\r\n" % (len(KEY), KEY.encode())
    )


def assert_read_equal(wire: Wire, *words: Any) -> None:
    found = wire.call(*words)
    expected = wire.call(*(UNCUT if word == KEY else word for word in words))
    assert not expected.is_error
    assert encode(found) == named(expected), words


@pytest.mark.parametrize("protocol", [2, 3])
def test_every_read_is_that_of_the_uncut_stream(stage: Stage, protocol: int) -> None:
    stage.prepare()
    stage.call("HELLO", protocol)
    draw = random.Random(protocol)
    for _ in range(200):
        at = draw.choice((ARCHIVED, ARCHIVED, ARCHIVED // 3, 0, stage.added, draw.randrange(stage.added)))
        words: list[Any] = ["XREAD"]
        if draw.random() < 0.7:
            words += ["COUNT", draw.choice((1, 2, 49, 50, 51, ARCHIVED, draw.randint(1, stage.added), 0))]
        if draw.random() < 0.3:
            words += ["BLOCK", draw.choice((1, 1000))]
        words += ["STREAMS", KEY, draw.choice((id_at(max(0, at + draw.randint(-2, 2))), "0", "+"))]
        if draw.random() < 0.2:
            words[words.index("STREAMS") + 2] = id_at(stage.added - 2)
        assert_read_equal(stage.wire, *words)


def second_stream(stage: Stage) -> None:
    """`small` and `small-uncut`, of which the first is archived, too, and has nothing in memory."""
    for at in range(30):
        for key in ("small", "small-uncut"):
            stage.call("XADD", key, id_at(at), "small", at)
    stage.archived(key="small")
    assert stage.call("XLEN", "small") == 0


@pytest.mark.parametrize("limits", [(), ("COUNT", 10), ("COUNT", 301), ("MAXCOUNT", 45), ("MAXCOUNT", 310), ("MAXSIZE", 3000),
                                    ("COUNT", 40, "MAXCOUNT", 45), ("MAXSIZE", 1), ("COUNT", 20, "MAXSIZE", 600)])  # fmt: skip
@pytest.mark.parametrize(
    "order", [("readings", "small", "live"), ("live", "small", "readings"), ("small", "none", "small")]
)
def test_several_streams_in_one_reply(stage: Stage, limits: tuple[Any, ...], order: tuple[str, ...]) -> None:
    stage.prepare()
    second_stream(stage)
    for at in range(20):
        stage.call("XADD", "live", id_at(at), "live", at)
    uncut = {KEY: UNCUT, "small": "small-uncut"}
    for ids in (
        ("0", "0", "0"),
        (id_at(20), id_at(10), id_at(5)),
        (id_at(ARCHIVED + 20), id_at(28), "0"),
        ("+", "+", "+"),
    ):
        found = stage.wire.call("XREAD", *limits, "STREAMS", *order, *ids)
        expected = stage.wire.call("XREAD", *limits, "STREAMS", *(uncut.get(each, each) for each in order), *ids)
        if limits[-2:-1] == ("MAXSIZE",):  # the names count, and differ in length
            found, expected = (Reply(each.kind, each.value[:1]) for each in (found, expected))
            entries = [each.value[0].value[1].value for each in (found, expected)]
            shorter = min(len(each) for each in entries)
            assert shorter > 0
            assert entries[0][:shorter] == entries[1][:shorter]
            assert max(len(each) for each in entries) - shorter <= 1
            continue
        assert found.kind == expected.kind
        assert [(each.value[0].value, each.value[1]) for each in found.value or ()] == [
            (
                {name: key for key, name in uncut.items()}.get(name := each.value[0].value.decode(), name).encode(),
                each.value[1],
            )
            for each in expected.value or ()
        ]


def test_the_last_entry_is_in_the_archive(stage: Stage) -> None:
    stage.prepare()
    assert_read_equal(stage.wire, "XREAD", "STREAMS", KEY, "+")
    stage.archived()
    assert stage.call("XLEN", KEY) == 0
    assert_read_equal(stage.wire, "XREAD", "STREAMS", KEY, "+")
    assert_read_equal(stage.wire, "XREAD", "STREAMS", KEY, "$")
    assert stage.wire.call("XREAD", "BLOCK", 1, "STREAMS", KEY, "$").kind == "*-1"


def test_what_is_archived_is_not_waited_for(stage: Stage) -> None:
    stage.prepare()
    stage.archived()
    assert_read_equal(stage.wire, "XREAD", "BLOCK", 1, "STREAMS", KEY, id_at(stage.added - 2))
    assert_read_equal(stage.wire, "XREAD", "BLOCK", 0, "COUNT", 3, "STREAMS", KEY, "nothing", "0", "$")


def waits(stage: Stage, wire: Wire, *words: Any) -> None:
    wire.send(*words)
    eventually(lambda: b"blocked_clients:1" in stage.call("INFO", "clients"), what="a client that waits")


def test_what_neither_tier_has_is_waited_for(stage: Stage) -> None:
    """The entry after the ID was deleted in both tiers: the request waits, first for the archive and then for the key."""
    stage.add(10)
    stage.archived()
    stage.add(1)
    last = id_at(stage.added - 1)
    stage.call("XDEL", KEY, last)
    with stage.server.connect() as wire:
        after = id_at(stage.added - 2)
        started = time.monotonic()
        assert wire.call("XREAD", "BLOCK", 300, "STREAMS", KEY, after).kind == "*-1"
        assert time.monotonic() - started >= 0.3
        waits(stage, wire, "XREAD", "BLOCK", 0, "STREAMS", "none", KEY, "0", after)
        stage.call("CLIENT", "NO-TOUCH", "ON")
        stage.add(1)
        found = wire.read().plain()
        assert [entry[0] for entry in found[0][1]] == [id_at(stage.added - 1).encode()]
        assert b"blocked_clients:0" in stage.call("INFO", "clients")


def test_readers_that_wait_while_everything_is_archived(stage: Stage) -> None:
    """Clients wait at the end of a stream that is emptied; each gets the next entry."""
    stage.prepare()
    last = id_at(stage.added - 1)
    wires = [stage.server.connect() for _ in range(5)]
    try:
        for wire in wires:
            wire.send("XREAD", "BLOCK", 0, "STREAMS", KEY, last)
        eventually(lambda: b"blocked_clients:5" in stage.call("INFO", "clients"), what="clients that wait")
        stage.archived()
        stage.add(3)
        for wire in wires:
            found = wire.read().plain()
            assert found[0][1][0][0] == id_at(stage.added - 3).encode()
    finally:
        for wire in wires:
            wire.close()


def test_what_comes_while_the_archive_is_read_is_in_the_reply(stage: Stage) -> None:
    stage.prepare()
    with stage.reading("XREAD", "STREAMS", "live", KEY, "$", "0") as other:
        stage.call("XADD", "live", "5-0", "f", "v")
        stage.add(10)
    found = other.read().plain()
    assert [each[0] for each in found] == [b"live", KEY.encode()]
    assert len(found[0][1]) == 1
    assert len(found[1][1]) == stage.added


@pytest.mark.parametrize("order", [(KEY, "small"), ("small", KEY)])
def test_one_of_two_streams_is_trimmed_while_they_are_read(stage: Stage, order: tuple[str, str]) -> None:
    stage.prepare()
    second_stream(stage)
    with stage.reading("XREAD", "STREAMS", *order, "0", "0") as other:
        stage.add(60)
        stage.archived(merge_files=2)
        stage.add(3)
    found = {each[0]: each[1] for each in other.read().plain()}
    assert found[KEY.encode()] == stage.call("XRANGE", UNCUT, "-", "+")
    assert found[b"small"] == stage.call("XRANGE", "small-uncut", "-", "+")


def test_one_of_two_streams_cannot_be_read(stage: Stage) -> None:
    stage.prepare()
    second_stream(stage)
    with stage.reading("XREAD", "STREAMS", "small", KEY, "0", "0") as other:
        stage.call("XTRIM", KEY, "MAXLEN", 10)
    found = other.read()
    assert found.is_error
    assert b"The archived part of readings cannot be read" in found.plain()
    assert len(stage.call("XREAD", "STREAMS", "small", "0")[0][1]) == 30
    assert len(stage.call("XREAD", "STREAMS", KEY, id_at(stage.added - 3))[0][1]) == 2


def test_the_answers_to_one_request_are_limited_together(stage: Stage) -> None:
    for key in (KEY, "other"):
        stage.wire.pipeline([("XADD", key, "*", "f", "x" * 100_000) for _ in range(8)])
        stage.archived(key=key)
    stage.call("CONFIG", "SET", "stream-archive-max-reply", "1mb")
    assert len(stage.call("XREAD", "STREAMS", KEY, "0")[0][1]) == 8
    assert "larger than stream-archive-max-reply" in stage.error("XREAD", "STREAMS", KEY, "other", "0", "0")
    assert len(stage.call("XREAD", "COUNT", 4, "STREAMS", KEY, "other", "0", "0")) == 2
    # With MAXSIZE no more is read than the reply takes.
    stage.wire.pipeline([("XADD", KEY, "*", "f", "x" * 100_000) for _ in range(8)])
    stage.archived()
    assert len(stage.call("XREAD", "MAXSIZE", 250_000, "STREAMS", KEY, "0")[0][1]) == 3
    stage.wire.pipeline([("XADD", "small", "*", "f", "x" * 2000) for _ in range(1500)])
    stage.archived(key="small")
    assert len(stage.call("XREAD", "MAXSIZE", 20_000, "STREAMS", "small", "0")[0][1]) == 10


def test_what_is_in_memory_too_makes_no_reply_too_long(stage: Stage) -> None:
    stage.wire.pipeline([("XADD", KEY, f"{at}-0", "f", "x" * 100_000) for at in range(1, 21)])
    stage.archived(trim=False)
    stage.call("XTRIM", KEY, "MINID", "6-0")
    stage.call("CONFIG", "SET", "stream-archive-max-reply", "1mb")
    assert stage.call("XLEN", KEY) == 15
    for words in (("XRANGE", KEY, "-", "+"), ("XREVRANGE", KEY, "+", "-")):
        assert len(stage.call(*words)) == 20
    assert len(stage.call("XREAD", "STREAMS", KEY, "0")[0][1]) == 20


def test_transactions_and_scripts_read_memory(stage: Stage) -> None:
    stage.prepare()
    stage.call("MULTI")
    stage.call("XREAD", "STREAMS", KEY, "0")
    assert len(stage.call("EXEC")[0][0][1]) == 50
    script = "return redis.call('XREAD', 'STREAMS', KEYS[1], '0')"
    assert len(stage.call("EVAL", script, 1, KEY)[0][1]) == 50


def test_another_archive_is_set_while_one_is_read(stage: Stage, tmp_path: Path) -> None:
    stage.prepare()
    with stage.reading("XREAD", "STREAMS", KEY, "0") as other:
        stage.call("CONFIG", "SET", "stream-archive-dir", str(tmp_path / "elsewhere"))
        found = other.read()
    assert found.is_error
    assert b"has stopped using this archive" in found.plain()


def test_a_reader_that_hangs_is_ended_even_if_nobody_waits_for_it(stage: Stage) -> None:
    stage.prepare()
    stage.call("XRANGE", KEY, "-", "+", "COUNT", 1)
    stage.call("CONFIG", "SET", "stream-archive-timeout", "2000")
    (pid,) = stage.readers()
    os.kill(pid, signal.SIGSTOP)
    other = stage.server.connect()
    waits(stage, other, "XREAD", "STREAMS", KEY, "0")
    other.close()
    eventually(lambda: pid not in stage.readers(), what="the end of the reader")
    stage.call("CONFIG", "SET", "stream-archive-timeout", "60000")
    assert_read_equal(stage.wire, "XREAD", "STREAMS", KEY, "0")
