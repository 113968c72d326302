"""Sorted sets in files: payloads and digests exchanged with a real Redis both ways, append-only files, and damaged payloads."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from support.commands.sorted_set_requests import MEMBERS, SCORES
from support.files.rdb import load, make_databases, make_payload, make_string, make_ziplist, save
from support.servers import Server, eventually, start_redis, start_streamd
from support.wire import Reply, Wire

from streamd.errors import CorruptFileError
from streamd.keyspace.value_type import type_of
from streamd.persistence.rdb.codes import (
    TYPE_SORTED_SET,
    TYPE_SORTED_SET_LISTPACK,
    TYPE_SORTED_SET_TEXT,
    TYPE_SORTED_SET_ZIPLIST,
)
from streamd.persistence.rdb.read import restore_value
from streamd.persistence.rdb.write import dump_value
from streamd.values.sorted_sets.sorted_set import SortedSet


def fill(wire: Wire, seed: int = 1) -> None:
    """Sets of all sizes and kinds, some of them not small."""
    chance = random.Random(seed)
    for number, members in enumerate([1, 2, 10, 128, 129, 700]):
        words: list[bytes] = []
        for index in range(members):
            member = (
                chance.choice(MEMBERS) if chance.random() < 0.1 else b"%d-%s" % (index, b"x" * chance.randrange(40))
            )
            score = chance.choice(SCORES) if chance.random() < 0.5 else repr(chance.uniform(-1e9, 1e9)).encode()
            words += [score, member]
        assert wire.call("ZADD", f"set-{number}", *words).kind == ":"
    wire.call("ZADD", "long", "1", "x" * 65, "2", "y" * 20_000)
    wire.call("ZADD", "once-large", *[word for n in range(300) for word in (str(n), str(n))])
    wire.call("ZREMRANGEBYRANK", "once-large", "3", "-1")


def keys_of(wire: Wire) -> list[bytes]:
    return sorted(each.value for each in wire.call("KEYS", "*").value)


def see(wire: Wire, key: bytes) -> tuple[object, ...]:
    return (
        wire.call("ZRANGE", key, "0", "-1", "WITHSCORES"), wire.call("OBJECT", "ENCODING", key),
        wire.call("DEBUG", "DIGEST-VALUE", key),
    )  # fmt: skip


@pytest.fixture
def wires(streamd_server: Server, redis_server: Server) -> Iterator[tuple[Wire, Wire]]:
    with streamd_server.connect() as ours, redis_server.connect() as theirs:
        for wire in (ours, theirs):
            wire.call("FLUSHALL")
            wire.call("CONFIG", "SET", "rdbcompression", "no")
        yield ours, theirs
        for wire in (ours, theirs):
            wire.call("CONFIG", "SET", "rdbcompression", "yes")


@pytest.mark.real
@pytest.mark.parametrize("is_ours", [True, False], ids=["to Redis", "from Redis"])
def test_payloads_are_the_same_bytes_and_are_understood(wires: tuple[Wire, Wire], is_ours: bool) -> None:
    source, target = wires if is_ours else wires[::-1]
    for wire in wires:
        fill(wire)
    for key in keys_of(source):
        payload = source.call("DUMP", key)
        assert payload == target.call("DUMP", key), key
        assert target.call("RESTORE", key + b"-copy", "0", payload.value) == Reply("+", b"OK")
        # A copy is small if it can be, whatever it was made from.
        assert see(target, key + b"-copy")[0] == see(source, key)[0]
    assert [see(source, key) for key in keys_of(source)] == [see(target, key) for key in keys_of(source)]


@pytest.mark.real
def test_copies_have_the_encoding_that_redis_chooses(wires: tuple[Wire, Wire]) -> None:
    for wire in wires:
        fill(wire)
        for key in keys_of(wire):
            wire.call("RESTORE", key + b"-copy", "0", wire.call("DUMP", key).value)
    ours, theirs = wires
    assert [see(ours, key) for key in keys_of(ours)] == [see(theirs, key) for key in keys_of(theirs)]
    assert ours.call("DEBUG", "DIGEST") == theirs.call("DEBUG", "DIGEST")


@pytest.mark.real
@pytest.mark.parametrize("preamble", ["yes", "no"])
def test_rewritten_files_are_read_by_the_other_server(tmp_path: Path, preamble: str) -> None:
    settings = {"appendonly": "yes", "aof-use-rdb-preamble": preamble, "enable-debug-command": "yes"}
    seen = []
    for start in (start_streamd, start_redis, start_streamd):
        server = start(tmp_path, settings)
        with server.connect() as wire:
            if not seen:
                fill(wire)
            seen.append(
                {key: without_minus_zero(wire.call("ZRANGE", key, "0", "-1", "WITHSCORES")) for key in keys_of(wire)}
            )
            wire.call("BGREWRITEAOF")
            eventually(partial(is_rewritten, wire), what="the end of a rewrite")
        server.stop()
    assert seen[1] == seen[0]
    assert seen[2] == seen[0]
    assert len(seen[0]) == 8


def without_minus_zero(reply: Reply) -> list[bytes]:
    """The first ZADD of a large set in a file makes a listpack, on either server, and a listpack keeps -0 as 0."""
    return [b"0" if each.value == b"-0" else each.value for each in reply.value]


def is_rewritten(wire: Wire) -> bool:
    text = wire.call("INFO", "persistence").value
    return b"aof_rewrite_in_progress:0" in text and b"aof_rewrite_scheduled:0" in text


# --- Without a server --------------------------------------------------------------------------------------------------


def text(data: bytes) -> bytes:
    return bytes([len(data)]) + data


def listpack(*elements: bytes) -> bytes:
    """A listpack of short strings, as a string."""
    body = b"".join(bytes([0x80 | len(each)]) + each + bytes([len(each) + 1]) for each in elements)
    return text(struct.pack("<IH", len(body) + 7, len(elements)) + body + b"\xff")


def ziplist(*elements: bytes) -> bytes:
    return make_string(make_ziplist(elements))


def pair(member: bytes, score: float) -> bytes:
    return text(member) + struct.pack("<d", score)


def restored(rdb_type: int, body: bytes) -> list[tuple[bytes, float]]:
    value = restore_value(make_payload(bytes([rdb_type]) + body))
    value.check_invariants()
    return list(value)


def test_old_forms_are_read() -> None:
    inf = float("inf")
    assert restored(TYPE_SORTED_SET_TEXT, b"\3" + text(b"a") + b"\3" + b"1.5" + text(b"b") + b"\xfe" + text(b"c") + b"\xff") == [
        (b"c", -inf), (b"a", 1.5), (b"b", inf)
    ]  # fmt: skip
    assert restored(TYPE_SORTED_SET, b"\2" + pair(b"b", 2.0) + pair(b"a", -0.0)) == [(b"a", 0.0), (b"b", 2.0)]
    assert restored(TYPE_SORTED_SET_LISTPACK, listpack(b"a", b"1.5", b"b", b"2.5")) == [(b"a", 1.5), (b"b", 2.5)]


@pytest.mark.real
@pytest.mark.parametrize("members", [1, 128, 129])
def test_ziplists_of_redis_before_7_are_read_alike(wires: tuple[Wire, Wire], members: int) -> None:
    elements = [b"text", b"-inf", b"7", b"-300", b"x" * 300, b"0.10000000000000001"]
    elements += [word for number in range(13, members + 10) for word in (b"%d" % number, b"%d" % number)]
    payload = make_payload(bytes([TYPE_SORTED_SET_ZIPLIST]) + ziplist(*elements[: 2 * members]), 9)
    for wire in wires:
        assert wire.call("RESTORE", "key", "0", payload) == Reply("+", b"OK")
    ours, theirs = wires
    assert see(ours, b"key") == see(theirs, b"key")
    assert ours.call("ZCARD", "key").value == members


@pytest.mark.parametrize(
    ("rdb_type", "body"),
    [
        (TYPE_SORTED_SET, b"\0"),
        (TYPE_SORTED_SET, b"\2" + pair(b"a", 1.0) + pair(b"a", 2.0)),
        (TYPE_SORTED_SET, b"\1" + pair(b"a", float("nan"))),
        (TYPE_SORTED_SET, b"\2" + pair(b"a", 1.0)),
        (TYPE_SORTED_SET_TEXT, b"\1" + text(b"a") + b"\xfd"),
        (TYPE_SORTED_SET_TEXT, b"\1" + text(b"a") + b"\1x"),
        (TYPE_SORTED_SET_TEXT, b"\1" + text(b"a") + b"\3nan"),
        (TYPE_SORTED_SET_LISTPACK, listpack()),
        (TYPE_SORTED_SET_LISTPACK, listpack(b"a")),
        (TYPE_SORTED_SET_LISTPACK, listpack(b"a", b"1.5", b"b")),
        (TYPE_SORTED_SET_LISTPACK, listpack(b"a", b"x")),
        (TYPE_SORTED_SET_LISTPACK, listpack(b"a", b"nan")),
        (TYPE_SORTED_SET_LISTPACK, listpack(b"b", b"1.5", b"a", b"1.5")),
        (TYPE_SORTED_SET_LISTPACK, listpack(b"a", b"2.5", b"b", b"1.5")),
        (TYPE_SORTED_SET_LISTPACK, listpack(b"a", b"1.5", b"a", b"1.5")),
        (TYPE_SORTED_SET_LISTPACK, listpack(b"a", b"1.5", b"a", b"2.5")),
        (TYPE_SORTED_SET_ZIPLIST, ziplist()),
        (TYPE_SORTED_SET_ZIPLIST, ziplist(b"a", b"1.5", b"b")),
        (TYPE_SORTED_SET_ZIPLIST, ziplist(b"a", b"x")),
        (TYPE_SORTED_SET_ZIPLIST, ziplist(b"a", b"2", b"b", b"1")),
        (TYPE_SORTED_SET_ZIPLIST, ziplist(b"a", b"1", b"a", b"1")),
        (TYPE_SORTED_SET_ZIPLIST, ziplist(b"a", b"1")[:-1]),
    ],
)
def test_what_is_no_sorted_set_is_refused(rdb_type: int, body: bytes) -> None:
    with pytest.raises(CorruptFileError, match="expected"):
        restored(rdb_type, body)


@pytest.mark.parametrize("members", [3, 20, 200])
def test_damaged_payloads_are_refused_or_are_sound(members: int) -> None:
    """Any byte may be another one; what is accepted in spite of it has to hold together."""
    elements = [word for n in range(members) for word in (b"m%03d" % n, b"%d.5" % n)]
    pairs = b"".join(pair(b"m%03d" % n, n) for n in range(members))
    kinds = [bytes([TYPE_SORTED_SET, 0x40 | members >> 8, members & 255]) + pairs]
    if members < 10:
        kinds.append(bytes([TYPE_SORTED_SET_LISTPACK]) + listpack(*elements))
    chance = random.Random(members)
    accepted = 0
    for body in kinds:
        for _ in range(1500):
            damaged = bytearray(body)
            for _ in range(chance.choice([1, 1, 2, 4])):
                damaged[chance.randrange(1, len(damaged))] = chance.choice(
                    [0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)]
                )
            try:
                value = restore_value(make_payload(bytes(damaged[: chance.choice([len(damaged), len(damaged) - 1])])))
            except (CorruptFileError, MemoryError):
                continue
            accepted += 1
            assert type(value) is SortedSet
            value.check_invariants()
            assert list(restore_value(dump_value(value))) == list(value)
    assert accepted


def test_a_set_survives_a_snapshot() -> None:
    value = restore_value(make_payload(bytes([TYPE_SORTED_SET]) + b"\2" + pair(b"a", 1.0) + pair(b"b" * 60, 2.0)))
    databases = make_databases(0)
    databases[0].set(b"key", value)
    found = load(save(databases))[0].peek(b"key")
    assert list(found) == list(value)
    assert found.is_packed
    assert type_of(found).encoding(b"key", found, 0) == b"listpack"
