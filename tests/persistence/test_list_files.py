"""Lists in snapshots, payloads and append-only files: exchanged with a real Redis, damaged, and as old releases wrote them."""

from __future__ import annotations

import random

import pytest
from support.compiled import compiled
from support.files.rdb import make_length, make_payload, make_string, make_ziplist
from support.servers import Server, eventually

from streamd.errors import CorruptFileError
from streamd.persistence.rdb.format import WriteOptions
from streamd.persistence.rdb.read import restore_value
from streamd.persistence.rdb.write import dump_value
from streamd.values.lists.list_value import List

encode = compiled("listpack").encode

ELEMENTS: list[bytes] = [
    b"a", b"", b"0", b"12", b"13", b"-1", b"127", b"-128", b"255", b"4095", b"-4097", b"32767", b"8388607", b"-8388608",
    b"2147483647", b"-2147483649", b"9223372036854775807", b"01", b"x" * 63, b"y" * 64, b"z" * 300, b"w" * 5000,
]  # fmt: skip


def elements_of(value: object) -> list[bytes]:
    assert isinstance(value, List)
    value.check_invariants()
    return value.elements()


def packed(*nodes: bytes) -> bytes:
    """A value of type 18, of packed nodes."""
    return b"\x12" + make_length(len(nodes)) + b"".join(b"\x02" + make_string(node) for node in nodes)


OLD = {
    "type 1": b"\x01" + make_length(len(ELEMENTS)) + b"".join(map(make_string, ELEMENTS)),
    "type 10": b"\x0a" + make_string(make_ziplist(ELEMENTS)),
    "type 14": b"\x0e\x03" + b"".join(make_string(make_ziplist(part)) for part in (ELEMENTS[:9], [], ELEMENTS[9:])),
    "type 18": b"\x12\x03"
    + b"\x02" + make_string(encode(ELEMENTS[:-2]))
    + b"\x01" + make_string(ELEMENTS[-2])
    + b"\x02" + make_string(encode(ELEMENTS[-1:])),
}  # fmt: skip


@pytest.mark.parametrize("name", OLD)
def test_lists_of_every_release_are_read(name: str) -> None:
    assert elements_of(restore_value(make_payload(OLD[name]))) == ELEMENTS


@pytest.mark.parametrize("form", ["8.10", "8.6", "7.0"])
@pytest.mark.parametrize("compression", [True, False])
def test_a_list_comes_back(form: str, compression: bool) -> None:
    value = restore_value(make_payload(OLD["type 18"]))
    found = restore_value(dump_value(value, WriteOptions(form, compression=compression)))
    assert elements_of(found) == ELEMENTS


def test_back_lengths_of_later_releases_are_written_and_read() -> None:
    """An element of 16383 encoded bytes, whose back-length Redis 8.8 writes in one byte less."""
    elements = [b"a", b"x" * 16378, b"b"]
    value = restore_value(make_payload(packed(encode(elements))))
    later = dump_value(value, WriteOptions("8.8", compression=False))
    assert len(later) == len(dump_value(value, WriteOptions(compression=False))) - 1
    assert elements_of(restore_value(later)) == elements


BROKEN = {
    "no nodes": b"\x12\x00",
    "no elements": b"\x01\x00",
    "only empty nodes": packed(encode([])),
    "only empty ziplists": b"\x0e\x01" + make_string(make_ziplist([])),
    "an empty ziplist": b"\x0a" + make_string(make_ziplist([])),
    "container 0": b"\x12\x01\x00" + make_string(b"a"),
    "container 3": b"\x12\x01\x03" + make_string(encode([b"a"])),
    "no listpack": packed(b"not a listpack"),
    "wrong count": packed(encode([b"a", b"b"])[:4] + b"\x03" + encode([b"a", b"b"])[5:]),
    "wrong back-length": packed(encode([b"abc"]).replace(b"abc\x04", b"abc\x03")),
    "an element beyond the end": packed(encode([b"abc"]).replace(b"\x83abc", b"\x89abc")),
    "a wrong offset in a ziplist": b"\x0a" + make_string(make_ziplist([b"a", b"b"]).replace(b"\x0d", b"\x0c", 1)),
    "a wrong count in a ziplist": b"\x0a" + make_string(make_ziplist([b"a"])[:8] + b"\x02" + make_ziplist([b"a"])[9:]),
    "a wrong previous length": b"\x0a" + make_string(make_ziplist([b"a", b"b"]).replace(b"\x03\x01b", b"\x02\x01b")),
    "an unknown encoding": b"\x0a" + make_string(make_ziplist([b"5"]).replace(b"\xf6", b"\xc1")),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_lists_are_refused(name: str) -> None:
    with pytest.raises(CorruptFileError, match="expected"):
        restore_value(make_payload(BROKEN[name]))


@pytest.mark.parametrize("seed", range(4))
def test_mutated_payloads_are_refused_or_sound(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(1500):
        body = bytearray(chance.choice(list(OLD.values())))
        for _ in range(chance.choice([1, 1, 2, 4])):
            where = chance.randrange(len(body))
            kind = chance.randrange(3)
            if kind == 0:
                body[where] = chance.choice([0, 1, 0x7F, 0x80, 0xFE, 0xFF, chance.randrange(256)])
            elif kind == 1:
                del body[where : where + chance.randrange(1, 9)]
            else:
                body[where:where] = chance.randbytes(chance.randrange(1, 9))
            if not body:
                body = bytearray(b"\x12")
        if body[0] not in (1, 10, 14, 18):
            continue
        try:
            value = restore_value(make_payload(bytes(body)))
        except CorruptFileError:
            continue
        found = elements_of(value)
        assert elements_of(restore_value(dump_value(value))) == found


# --- With Redis ---------------------------------------------------------------------------------------------------------


@pytest.mark.real
@pytest.mark.parametrize("name", OLD)
def test_redis_reads_the_same_from_old_payloads(name: str, redis_server: Server) -> None:
    with redis_server.connect() as wire:
        wire.call("FLUSHALL")
        assert wire.call("RESTORE", "l", "0", make_payload(OLD[name])).value == b"OK"
        assert wire.call("LRANGE", "l", "0", "-1").plain() == ELEMENTS


@pytest.mark.real
@pytest.mark.parametrize("count", [1, 100, 5000])
def test_payloads_go_both_ways(count: int, streamd_server: Server, redis_server: Server) -> None:
    chance = random.Random(count)
    words = [
        chance.choice([b"%d" % chance.randrange(-(2**40), 2**40), b"v" * chance.randrange(120)]) for _ in range(count)
    ]
    if count > 100:
        words[77] = b"h" * 20_000
    with streamd_server.connect() as ours, redis_server.connect() as theirs:
        dumps = []
        for wire in (ours, theirs):
            wire.call("FLUSHALL")
            wire.call("CONFIG", "SET", "rdbcompression", "no")
            for start in range(0, count, 500):
                wire.call("RPUSH", "l", *words[start : start + 500])
            dumps.append(wire.call("DUMP", "l").plain())
            wire.call("CONFIG", "SET", "rdbcompression", "yes")
        assert dumps[0] == dumps[1]
        for wire in (ours, theirs):
            assert wire.call("RESTORE", "back", "0", dumps[0]).value == b"OK"
            assert wire.call("LRANGE", "back", "0", "-1").plain() == words
        digests = [wire.call("DEBUG", "DIGEST").value for wire in (ours, theirs)]
        assert digests[0] == digests[1]
        encodings = [wire.call("OBJECT", "ENCODING", "back").plain() for wire in (ours, theirs)]
        assert encodings[0] == encodings[1]


@pytest.mark.real
@pytest.mark.parametrize("preamble", ["yes", "no"])
def test_a_rewritten_append_only_file_keeps_lists(preamble: str, streamd_server: Server) -> None:
    with streamd_server.connect() as wire:
        wire.call("FLUSHALL")
        wire.call("CONFIG", "SET", "aof-use-rdb-preamble", preamble)
        for start in range(0, 700, 100):
            wire.call("RPUSH", "l", *(f"{number}-{'v' * (number % 90)}" for number in range(start, start + 100)))
        wire.call("RPUSH", "m", "1", "x" * 20_000, "-7", "")
        before = wire.call("DEBUG", "DIGEST").value
        wire.call("CONFIG", "SET", "appendonly", "yes")
        try:
            eventually(lambda: b"aof_rewrite_in_progress:0" in wire.call("INFO", "persistence").value)
            assert wire.call("DEBUG", "LOADAOF").value == b"OK"
            assert wire.call("DEBUG", "DIGEST").value == before
            assert wire.call("DEBUG", "RELOAD").value == b"OK"
            assert wire.call("DEBUG", "DIGEST").value == before
        finally:
            wire.call("CONFIG", "SET", "appendonly", "no")
            wire.call("CONFIG", "SET", "aof-use-rdb-preamble", "yes")
