"""Sets in snapshots, payloads and append-only files: exchanged with a real Redis, damaged, and in every form."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from support.compiled import compiled
from support.files.rdb import make_length, make_payload, make_string
from support.servers import Server

from streamd.errors import CorruptFileError
from streamd.persistence.rdb.format import WriteOptions
from streamd.persistence.rdb.read import restore_value
from streamd.persistence.rdb.write import dump_value

encode = compiled("listpack").encode

StartServer = Callable[..., Server]


def intset(width: int, *numbers: int) -> bytes:
    head = width.to_bytes(4, "little") + len(numbers).to_bytes(4, "little")
    return b"\x0b" + make_string(head + b"".join(each.to_bytes(width, "little", signed=True) for each in numbers))


def strings(*members: bytes) -> bytes:
    return b"\x02" + make_length(len(members)) + b"".join(map(make_string, members))


def packed(*members: bytes) -> bytes:
    return b"\x14" + make_string(encode(list(members)))


def words(count: int) -> list[bytes]:
    return [b"m%d" % number for number in range(count)]


VALUES = {
    "an intset": (intset(2, -3, 1, 2), b"intset", [b"-3", b"1", b"2"]),
    "an intset of 8 bytes": (intset(8, -(2**63), 5, 2**63 - 1), b"intset", [b"%d" % -(2**63), b"5", b"%d" % (2**63 - 1)]),
    "a wide intset of small numbers": (intset(8, 1, 2), b"intset", [b"1", b"2"]),
    "an intset beyond the limit": (intset(2, *range(513)), b"hashtable", [b"%d" % number for number in range(513)]),
    "strings that are integers": (strings(b"5", b"3"), b"intset", [b"3", b"5"]),
    "strings": (strings(b"a", b"1"), b"listpack", [b"a", b"1"]),
    "many strings": (strings(*words(200)), b"hashtable", words(200)),
    "a long string": (strings(b"a" * 65, b"b"), b"hashtable", [b"a" * 65, b"b"]),
    "a listpack": (packed(b"a", b"1", b""), b"listpack", [b"a", b"1", b""]),
    "a listpack beyond the limit": (packed(*words(129)), b"hashtable", words(129)),
}  # fmt: skip


@pytest.mark.parametrize("name", VALUES)
def test_sets_of_every_type_are_read(name: str) -> None:
    body, encoding, members = VALUES[name]
    value = restore_value(make_payload(body))
    value.check_invariants()
    assert value.encoding == encoding
    assert sorted(value.members()) == sorted(members)


@pytest.mark.parametrize("form", ["8.10", "8.6", "7.2", "7.0"])
@pytest.mark.parametrize("name", VALUES)
def test_a_set_comes_back(name: str, form: str) -> None:
    value = restore_value(make_payload(VALUES[name][0]))
    written = dump_value(value, WriteOptions(form))
    assert written[0] == {b"intset": 11, b"hashtable": 2, b"listpack": 2 if form == "7.0" else 20}[value.encoding]
    found = restore_value(written)
    assert sorted(found.members()) == sorted(value.members())
    assert found.encoding == value.encoding


BROKEN = {
    "no strings": b"\x02\x00",
    "an empty intset": intset(2),
    "an empty listpack": packed(),
    "a string twice": strings(b"a", b"b", b"a"),
    "a string twice among many": strings(*words(600), b"m5"),
    "an integer twice, as strings": strings(b"1", b"2", b"1"),
    "an integer twice": intset(2, 1, 1, 2),
    "integers that are not in order": intset(2, 5, 1, 3),
    "a width of 3": intset(3, 1, 2),
    "a member twice": packed(b"a", b"1", b"a"),
    "an integer twice in a listpack": packed(b"1", b"a", b"1"),
    "no listpack": b"\x14" + make_string(b"not a listpack"),
    "no intset": b"\x0b" + make_string(b"abc"),
    "a wrong number of integers": b"\x0b" + make_string(b"\x02\0\0\0\x03\0\0\0\x01\0\x02\0"),
    "a number of integers that overflows": b"\x0b" + make_string(b"\x08\0\0\0\0\0\0\x20" + bytes(8)),
    "a wrong count": b"\x14" + make_string(encode([b"a", b"b"])[:4] + b"\x03" + encode([b"a", b"b"])[5:]),
    "a wrong back-length": b"\x14" + make_string(encode([b"abc"]).replace(b"abc\x04", b"abc\x03")),
    "an element beyond the end": b"\x14" + make_string(encode([b"abc"]).replace(b"\x83abc", b"\x89abc")),
    "more members announced than there are": b"\x02\x80\xff\xff\xff\xff" + make_string(b"a"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_not_a_set_is_refused(name: str) -> None:
    with pytest.raises(CorruptFileError, match="expected"):
        restore_value(make_payload(BROKEN[name]))


@pytest.mark.parametrize("name", VALUES)
def test_damaged_payloads_are_refused_or_sound(name: str) -> None:
    """Whatever byte is wrong: no crash, and what is loaded keeps what must hold."""
    body = VALUES[name][0]
    chance = random.Random(name)
    for _ in range(300):
        damaged = bytearray(body)
        for _ in range(chance.choice([1, 1, 2])):
            damaged[chance.randrange(1, len(body))] = chance.choice(
                [0, 1, 0x7F, 0x80, 0xFE, 0xFF, chance.randrange(256)]
            )
        cut = chance.choice([len(body), len(body), chance.randrange(1, len(body) + 1)])
        try:
            value = restore_value(make_payload(bytes(damaged[:cut])))
        except CorruptFileError:
            continue
        value.check_invariants()


# --- Exchange with a real Redis ---------------------------------------------------------------------------------------

FILL = [
    ["SADD", "integers", *map(str, range(-5, 300))], ["SADD", "wide", "1", "5000000000", str(-(2**63))],
    ["SADD", "many-integers", *map(str, range(5000))], ["SADD", "words", "a", "b", "17", ""],
    ["SADD", "many-words", *(f"member:{number}" for number in range(3000))], ["SADD", "long", "x" * 100000, "y"],
]  # fmt: skip
KEYS = [request[1] for request in FILL]


def state(server: Server) -> list[object]:
    """What all sets hold, and how."""
    with server.connect() as wire:
        looks = [wire.call("DEBUG", "DIGEST-VALUE", *KEYS), *(wire.call("SCARD", key) for key in KEYS)]
        return [*looks, *(wire.call("OBJECT", "ENCODING", key) for key in KEYS), wire.call("DEBUG", "DIGEST")]


@pytest.mark.real
@pytest.mark.parametrize("way", ["snapshot", "commands", "base"])
@pytest.mark.parametrize("back", [False, True], ids=["from Redis", "to Redis"])
def test_files_are_exchanged(new_redis: StartServer, new_streamd: StartServer, way: str, back: bool) -> None:
    directives = {
        "enable_debug_command": "yes", "save": "", "appendonly": "no" if way == "snapshot" else "yes",
        "aof_use_rdb_preamble": "no" if way == "commands" else "yes",
    }  # fmt: skip
    first, second = (new_streamd, new_redis) if back else (new_redis, new_streamd)
    writer = first(**directives)
    with writer.connect() as wire:
        for request in FILL:
            assert wire.call(*request).kind == ":"
        if way == "snapshot":
            assert wire.call("SAVE").value == b"OK"
        else:
            wire.call("BGREWRITEAOF")
            wire.call("DEBUG", "LOADAOF")
    wanted = state(writer)
    writer.stop()
    reader = second(dir=str(Path(writer.folder)), **directives)
    assert state(reader) == wanted
