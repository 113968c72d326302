"""Hashes in files: payloads and files exchanged with a real Redis both ways, old forms, and damaged bytes."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from support.compiled import compiled
from support.files.rdb import NOW_MS, make_length, make_payload, make_string, make_ziplist, make_zipmap
from support.servers import Server, start_redis, start_streamd
from support.wire import Reply, Wire

from streamd.errors import CorruptFileError
from streamd.persistence.rdb.format import LoadOptions, WriteOptions
from streamd.persistence.rdb.read import PayloadError, restore_value
from streamd.persistence.rdb.write import dump_value
from streamd.values.hashes.hash import Hash

encode = compiled("listpack").encode

FAR = 2_000_000_000_000


def restored(body: bytes, version: int = 13) -> Hash:
    value = restore_value(make_payload(body, version), LoadOptions(now_ms=NOW_MS))
    assert isinstance(value, Hash)
    value.check_invariants()
    return value


def see(value: Hash) -> dict[bytes, tuple[bytes, int]]:
    return {name: (content, at_ms) for name, content, at_ms in value.items()}


def listpack(*elements: bytes) -> bytes:
    return bytes(encode(list(elements)))


# --- Payloads that Redis wrote ----------------------------------------------------------------------------------------

SAMPLES = {
    "10141400000004008266310382763103816e020c01ff": {b"f1": (b"v1", -1), b"n": (b"12", -1)},
    "1900204aa9d101000020200000000600816e020c01f400204aa9d10100000982663103827631030001ff": {
        b"f1": (b"v1", -1), b"n": (b"12", FAR),
    },
    "1800204aa9d10100000201016ec00c00026631027631": {b"f1": (b"v1", -1), b"n": (b"12", FAR)},
}  # fmt: skip


@pytest.mark.parametrize("sample", SAMPLES)
def test_payloads_of_redis_are_read_and_written(sample: str) -> None:
    value = restored(bytes.fromhex(sample))
    assert see(value) == SAMPLES[sample]
    if not sample.startswith("18"):  # a small one is kept in a listpack
        assert dump_value(value, WriteOptions(compression=False))[:-10].hex() == sample


@pytest.mark.parametrize(("fields", "encoding"), [(3, b"listpackex"), (600, b"hashtable")])
def test_fields_with_expiries_come_back(fields: int, encoding: bytes) -> None:
    written = restored(
        b"\x04" + make_length(fields) + b"".join(make_string(b"f%d" % i) + make_string(b"v") for i in range(fields))
    )
    for i in range(0, fields, 2):
        written.expire(b"f%d" % i, FAR + i)
    for form in ("8.6", "8.10"):
        found = restore_value(dump_value(written, WriteOptions(form)))
        assert (see(found), found.encoding) == (see(written), encoding)
    bare = restore_value(dump_value(written, WriteOptions("7.2")))
    assert see(bare) == {name: (value, -1) for name, (value, _) in see(written).items()}


# --- Forms of older releases --------------------------------------------------------------------------------------------


NUMBERS = [0, 12, 13, -1, 127, -129, 40_000, -9_000_000, 2**31, -(2**63)]
OLD = {
    "ziplist": (
        b"\x0d" + make_string(make_ziplist(
            [b"a", b"x" * 300, b"b", b"y" * 20_000, *(part for i, n in enumerate(NUMBERS) for part in (b"n%d" % i, b"%d" % n))]
        )),
        {b"a": b"x" * 300, b"b": b"y" * 20_000, **{b"n%d" % i: b"%d" % n for i, n in enumerate(NUMBERS)}},
    ),
    "zipmap": (
        b"\x09" + make_string(make_zipmap((b"a", b"1"), (b"n" * 260, b"v" * 300), unused=3)), {b"a": b"1", b"n" * 260: b"v" * 300},
    ),
    "7.4 RC, packed": (
        b"\x17" + make_string(listpack(b"n", b"12", b"%d" % FAR, b"a", b"1", b"0")), {b"n": b"12", b"a": b"1"},
    ),
    "7.4 RC, table": (
        b"\x16" + make_length(2) + b"\x81" + struct.pack(">Q", FAR) + make_string(b"n") + make_string(b"12")
        + make_length(0) + make_string(b"a") + make_string(b"1"), {b"n": b"12", b"a": b"1"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OLD)
def test_old_forms_are_read(name: str) -> None:
    body, wanted = OLD[name]
    found = see(restored(body, 9))
    assert {field: value for field, (value, _) in found.items()} == wanted
    if "RC" in name:
        assert found[b"n"][1] == FAR


@pytest.mark.real
@pytest.mark.parametrize("name", OLD)
def test_redis_reads_these_old_forms_alike(redis_server: Server, name: str) -> None:
    body, wanted = OLD[name]
    with redis_server.connect() as wire:
        wire.call("DEL", "h")
        assert wire.call("RESTORE", "h", "0", make_payload(body, 9)) == Reply("+", b"OK")
        flat = wire.call("HGETALL", "h").plain()
        encoding = wire.call("OBJECT", "ENCODING", "h").value
    assert dict(zip(flat[::2], flat[1::2], strict=True)) == wanted
    assert restored(body, 9).encoding == encoding


# --- What is refused -----------------------------------------------------------------------------------------------------

PAIR = make_string(b"a") + make_string(b"1")
REFUSED = {
    "no field in a table": b"\x04\x00",
    "no field in a listpack": b"\x10" + make_string(listpack()),
    "no field in a ziplist": b"\x0d" + make_string(make_ziplist([])),
    "a field twice in a table": b"\x04\x02" + PAIR + PAIR,
    "a field twice in a listpack": b"\x10" + make_string(listpack(b"a", b"1", b"b", b"2", b"a", b"3")),
    "a number twice in a listpack": b"\x10" + make_string(listpack(b"7", b"1", b"7", b"2")),
    "a field twice among many": b"\x10"
    + make_string(listpack(*(w for i in [*range(30), 5] for w in (b"f%d" % i, b"v")))),
    "a field twice in a ziplist": b"\x0d" + make_string(make_ziplist([b"a", b"1", b"a", b"2"])),
    "a field without value": b"\x10" + make_string(listpack(b"a", b"1", b"b")),
    "a field without value in a ziplist": b"\x0d" + make_string(make_ziplist([b"a", b"1", b"b"])),
    "a field without expiry": b"\x19" + bytes(8) + make_string(listpack(b"a", b"1", b"0", b"b", b"2")),
    "an expiry that is text": b"\x19" + bytes(8) + make_string(listpack(b"a", b"1", b"x")),
    "an expiry before 1970": b"\x19" + bytes(8) + make_string(listpack(b"a", b"1", b"-5")),
    "expiries in the wrong order": b"\x19" + bytes(8) + make_string(listpack(b"a", b"1", b"9", b"b", b"1", b"8")),
    "an expiry after none": b"\x19" + bytes(8) + make_string(listpack(b"a", b"1", b"0", b"b", b"1", b"8")),
    "a wrong number of elements": b"\x10" + make_string(listpack(b"a", b"1")[:4] + b"\x04" + listpack(b"a", b"1")[5:]),
    "a wrong back-length": b"\x10" + make_string(listpack(b"a", b"1").replace(b"\x81a\x02", b"\x81a\x03")),
    "an element past the end": b"\x10" + make_string(listpack(b"a", b"1").replace(b"\x81a", b"\x9fa")),
    "an earliest expiry before 1970": b"\x18" + b"\xff" * 8 + b"\x01\x01" + PAIR,
    "an expiry beyond all times": b"\x18" + struct.pack("<q", 2**62) + b"\x01\x81" + b"\x7f" * 8 + PAIR,
    "a wrong tail in a ziplist": b"\x0d"
    + make_string(make_ziplist([b"a", b"1"])[:4] + b"\x0b" + make_ziplist([b"a", b"1"])[5:]),
    "a wrong number of pairs in a zipmap": b"\x09" + make_string(b"\x02" + make_zipmap((b"a", b"1"))[1:]),
    "more fields than bytes": b"\x04\x80\xff\xff\xff\xff" + PAIR,
}


@pytest.mark.parametrize("name", REFUSED)
def test_damaged_hashes_are_refused(name: str) -> None:
    with pytest.raises(CorruptFileError, match="expected"):
        restored(REFUSED[name])


def flipped(payload: bytes, chance: random.Random) -> bytes:
    """The value with some bytes changed, cut off or repeated, under a checksum that is right."""
    body = bytearray(payload[:-10])
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(body))
        how = chance.randrange(3)
        if how == 0:
            body[at] = chance.randrange(256)
        elif how == 1:
            del body[at:]
            body += bytes([chance.randrange(256)])
        else:
            body[at:at] = body[at : at + chance.randint(1, 4)]
    return make_payload(bytes(body))


@pytest.mark.parametrize("seed", range(6))
def test_mutated_payloads_are_refused_or_sound(seed: int) -> None:
    chance = random.Random(seed)
    hashes = [restored(bytes.fromhex(sample)) for sample in SAMPLES]
    large = restored(
        b"\x04\x40\xc8" + b"".join(make_string(b"field%d" % i) + make_string(b"v" * i) for i in range(200))
    )
    large.expire(b"field7", FAR)
    payloads = [dump_value(value, WriteOptions(compression=chance.random() < 0.5)) for value in (*hashes, large)]
    payloads += [make_payload(body, 9) for body, _ in OLD.values()]
    for _ in range(400):
        try:
            found = restore_value(flipped(chance.choice(payloads), chance))
        except (CorruptFileError, PayloadError):
            continue
        if isinstance(found, Hash):
            found.check_invariants()
            for name, _, _ in found.items()[:20]:
                found.put(name, b"changed", FAR)
                found.remove(name)
            found.check_invariants()


# --- Files that go to Redis and come from it ---------------------------------------------------------------------------------


def fill(wire: Wire) -> None:
    def pairs(count: int) -> list[str]:
        return [word for i in range(count) for word in (f"f{i}", str(i) if i % 2 else "v" * (i % 50))]

    for count in (1, 10, 512, 513, 3000):
        wire.call("HSET", f"plain{count}", *pairs(count))
        wire.call("HSET", f"timed{count}", *pairs(count))
        wire.call("HPEXPIREAT", f"timed{count}", str(FAR), "FIELDS", "2", "f0", "f9")
        wire.call("HPEXPIREAT", f"timed{count}", str(FAR - 1), "FIELDS", "1", "f5")
    wire.call("HSET", "large", "text", "t" * 40_000, "f", "v")
    wire.call("HSET", "binary", b"\x00\xff\r\n", b"\r\n\x00")
    wire.call("HPEXPIREAT", "binary", "70000000000000", "FIELDS", "1", b"\x00\xff\r\n")
    wire.call("PEXPIREAT", "plain10", str(FAR))


def everything(wire: Wire) -> dict[bytes, object]:
    found = {}
    for key in sorted(wire.call("KEYS", "*").plain()):
        found[key] = [wire.call(*request).plain() for request in (
            ("DEBUG", "DIGEST-VALUE", key), ("HLEN", key), ("OBJECT", "ENCODING", key), ("PEXPIRETIME", key),
            ("HPEXPIRETIME", key, "FIELDS", "3", "f0", "f5", "f9"),
        )]  # fmt: skip
    return found


AOF_AS_COMMANDS = {"appendonly": "yes", "aof-use-rdb-preamble": "no", "save": ""}
AOF = {"appendonly": "yes", "save": ""}
RDB = {"appendonly": "no", "save": ""}


@pytest.mark.real
@pytest.mark.parametrize("directives", [RDB, AOF, AOF_AS_COMMANDS], ids=["rdb", "aof", "aof of commands"])
@pytest.mark.parametrize(
    "direction", [(start_streamd, start_redis), (start_redis, start_streamd)], ids=["to redis", "from redis"]
)
def test_files_are_exchanged(
    tmp_path: Path, direction: tuple[Callable[..., Server], ...], directives: dict[str, str]
) -> None:
    found = []
    for number, start in enumerate(direction):
        server = start(tmp_path, directives)
        with server.connect() as wire:
            if number == 0:
                fill(wire)
                if directives is RDB:
                    assert wire.call("SAVE") == Reply("+", b"OK")
                else:
                    wire.call("BGREWRITEAOF")
                    wire.call("HSET", "later", "a", "1")
            found.append(everything(wire))
        server.stop()
    assert found[0] == found[1]


@pytest.mark.real
@pytest.mark.parametrize("compression", ["yes", "no"])
def test_payloads_are_exchanged(streamd_server: Server, redis_server: Server, compression: str) -> None:
    with streamd_server.connect() as ours, redis_server.connect() as theirs:
        for wire in (ours, theirs):
            wire.call("FLUSHALL")
            wire.call("CONFIG", "SET", "rdbcompression", compression)
            fill(wire)
        for source, target in ((ours, theirs), (theirs, ours)):
            for key in source.call("KEYS", "*").plain():
                payload = source.call("DUMP", key).value
                assert target.call("RESTORE", key, "0", payload, "REPLACE") == Reply("+", b"OK"), key
        assert {key: state[0] for key, state in everything(ours).items()} == {
            key: state[0] for key, state in everything(theirs).items()
        }
