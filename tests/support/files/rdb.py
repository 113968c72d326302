"""Databases, RDB files and payloads for tests: created, inspected, and damaged."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from streamd.keyspace.database import Database
from streamd.persistence.rdb.crc64 import crc64
from streamd.persistence.rdb.format import LoadOptions, WriteOptions
from streamd.persistence.rdb.read import RdbReader
from streamd.persistence.rdb.write import RdbWriter
from streamd.values.streams.group import Group
from streamd.values.streams.idempotency import Idempotency, IdempotencyRegistry
from streamd.values.streams.stream import Stream

__all__ = [
    "NOW_MS",
    "Memory",
    "load",
    "make_databases",
    "make_file",
    "make_length",
    "make_payload",
    "make_stream",
    "make_string",
    "make_ziplist",
    "save",
    "see",
    "use",
]

NOW_MS = 1_700_000_000_000
LATER_MS = 4_000_000_000_000
"""Far in the future: such keys do not expire during tests."""


class Memory:
    """A file in memory, to be written."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.pieces.append(data)

    @property
    def data(self) -> bytes:
        return b"".join(self.pieces)


# --- Values ----------------------------------------------------------------------------------------------------------


def make_stream(
    seed: int = 0, entries: int = 30, node_max_entries: int = 7, groups: int = 2, *, has_unowned: bool = True
) -> Stream:
    """A stream with tombstones, groups, pending entries of all ages, idle consumers, idempotent producers.

    has_unowned  some of the pending entries have no owner, which a Redis before 8.8 does not know
    """
    chance = random.Random(seed)
    stream = Stream(node_max_entries=node_max_entries)
    ids = []
    for i in range(entries):
        names = (b"a", b"b") if chance.random() < 0.8 else (b"other",)
        fields = [(name, chance.choice([b"%d" % chance.randrange(-9999, 99999), b"text" * (i % 60)])) for name in names]
        ids.append(stream.append(fields, id=(NOW_MS + 5 * i, chance.randrange(3))))
    for each in chance.sample(ids, len(ids) // 6):
        stream.delete(each)
    for number in range(groups):
        group = Group(b"group-%d" % number, chance.choice(ids) if ids else (0, 0), chance.choice([-1, 0, number]))
        stream.groups[group.name] = group
        names = [b"77", b"alice", b"bob" * 20]
        for name in names:
            group.create_consumer(name, now_ms=NOW_MS + number)
            group.consumers[name].active_ms = chance.choice([-1, NOW_MS, NOW_MS + 9])
        for each in chance.sample(ids, len(ids) // 2):
            group.restore_pending(
                each,
                chance.choice(names[:2]),
                delivery_ms=NOW_MS + chance.randrange(50),
                delivery_count=chance.choice([1, 2, 2**40]),
            )
        for each in chance.sample(ids, len(ids) // 5 if number and has_unowned else 0):
            group.disown(each, chance.choice([0, 1, 2**63 - 1]))
    if chance.random() < 0.5:
        stream.idempotency = Idempotency(IdempotencyRegistry(), 100, 100)
        for i in range(5):
            stream.idempotency.record(b"p%d" % (i % 2), b"iid%d" % i, (LATER_MS + i, i))
        stream.iids_added, stream.iids_duplicates = 7, 2
    return stream


STRINGS = (b"", b"hello", b"0", b"-1", b"127", b"-128", b"128", b"32767", b"-32769", b"2147483647", b"-2147483648",
           b"2147483648", b"007", b"+1", b"-0", b"12345678901", b"a" * 20, b"a" * 21, b"abc" * 1000, bytes(range(256)) * 3,
           b"x" * 16383, b"y" * 16384 + bytes(random.Random(5).randbytes(20000)))  # fmt: skip
"""Strings on both sides of every boundary between encodings."""


def make_databases(seed: int = 0) -> list[Database]:
    """Three databases, the second empty: strings of all encodings, streams, expiries."""
    databases = [Database(index) for index in range(3)]
    for db in databases:
        db.now_ms = NOW_MS
    for number, text in enumerate(STRINGS):
        databases[0].add(b"string-%d" % number, text)
    databases[0].add(b"12345", b"a key that is a number")
    databases[0].add(b"", b"a key of no bytes")
    for number in range(4):
        databases[0].add(b"stream-%d" % number, make_stream(seed + number, entries=[0, 1, 30, 200][number]))
    databases[0].set_expiry(b"string-1", NOW_MS + 1000)
    databases[0].set_expiry(b"stream-2", NOW_MS + 10**12)
    databases[2].add(b"k" * 100, make_stream(seed + 9))
    return databases


def see(value: Any) -> Any:
    """All visible state of a value, for comparison."""
    if not isinstance(value, Stream):
        return value
    value.check_invariants()
    return {
        "entries": value.range(),
        "nodes": value.list_nodes(),
        "ids": (value.last_generated_id, value.first_entry_id, value.last_entry_id, value.max_deleted_entry_id),
        "counts": (len(value), value.entries_added, value.iids_added, value.iids_duplicates),
        "idmp": (value.idmp_duration, value.idmp_maxsize),
        "iids": [] if value.idempotency is None else list(value.idempotency.producers()),
        "groups": {
            name: (
                group.last_delivered_id,
                group.entries_read,
                sorted((c.name, c.seen_ms, c.active_ms) for c in group.consumers.values()),
                group.pending(),
                group.unowned(),
            )
            for name, group in value.groups.items()
        },
    }


def use(stream: Stream) -> None:
    """Run all kinds of operations on a loaded stream; none may find it inconsistent."""
    stream.check_invariants()
    entries = stream.range()
    assert stream.range(reverse=True) == entries[::-1]
    stream.copy().check_invariants()
    for group in stream.groups.values():
        for each in group.unowned()[::2]:
            group.disown(each, 1)
        group.acknowledge([each for each, *_ in group.pending()][::2])
        for name in list(group.consumers)[:1]:
            group.delete_consumer(name)
    for each, _ in entries[:3]:
        stream.delete(each)
    stream.check_invariants()
    stream.trim(max_length=len(stream) // 2)
    if stream.last_generated_id < (2**64 - 2, 0):
        stream.append([(b"a", b"1"), (b"b", b"2")], id=(stream.last_generated_id[0] + 1, 0))
    stream.check_invariants()
    stream.trim(max_length=0, policy="acked")
    stream.check_invariants()
    for group in stream.groups.values():
        group.check_invariants()


# --- Files -----------------------------------------------------------------------------------------------------------


def save(databases: Sequence[Database], options: WriteOptions | None = None) -> bytes:
    file = Memory()
    RdbWriter(file, options).write(databases, now_ms=NOW_MS)
    return file.data


def load(data: bytes, options: LoadOptions | None = None, databases: int = 16) -> list[Database]:
    """The databases of a file, including empty ones."""
    loaded = [Database(index) for index in range(databases)]
    for db in loaded:
        db.now_ms = NOW_MS
    RdbReader(data, loaded, options=options or LoadOptions(now_ms=NOW_MS)).load()
    for db in loaded:
        db.check_invariants()
    return loaded


def make_length(value: int) -> bytes:
    if value < 64:
        return bytes([value])
    if value < 16384:
        return (0x4000 | value).to_bytes(2, "big")
    return b"\x80" + value.to_bytes(4, "big") if value < 2**32 else b"\x81" + value.to_bytes(8, "big")


def make_string(text: bytes) -> bytes:
    """A string, not encoded further."""
    return make_length(len(text)) + text


def make_ziplist(elements: Sequence[bytes]) -> bytes:
    """A ziplist, as Redis before 7.0 writes it: decimal numbers in the shortest form."""
    body, previous, last = b"", 0, 10
    for each in elements:
        head = bytes([previous]) if previous < 254 else b"\xfe" + previous.to_bytes(4, "little")
        try:
            number = int(each)
            is_number = b"%d" % number == each and -(2**63) <= number < 2**63
        except ValueError:
            is_number = False
        if is_number:
            if 0 <= number <= 12:
                tail = bytes([0xF1 + number])
            else:
                for code, width in ((0xFE, 1), (0xC0, 2), (0xF0, 3), (0xD0, 4), (0xE0, 8)):
                    if -(1 << (8 * width - 1)) <= number < 1 << (8 * width - 1):
                        tail = bytes([code]) + number.to_bytes(width, "little", signed=True)
                        break
        elif len(each) < 64:
            tail = bytes([len(each)]) + each
        elif len(each) < 16384:
            tail = bytes([0x40 | len(each) >> 8, len(each) & 255]) + each
        else:
            tail = b"\x80" + len(each).to_bytes(4, "big") + each
        last = 10 + len(body)
        body += head + tail
        previous = len(head + tail)
    count = min(len(elements), 65535)
    return (
        (11 + len(body)).to_bytes(4, "little")
        + last.to_bytes(4, "little")
        + count.to_bytes(2, "little")
        + body
        + b"\xff"
    )


def make_zipmap(*pairs: tuple[bytes, bytes], unused: int = 0) -> bytes:
    """A zipmap, as Redis before 2.6 wrote it; `unused` bytes follow each value."""

    def length(n: int) -> bytes:
        return bytes([n]) if n < 254 else b"\xfe" + n.to_bytes(4, "little")

    body = b"".join(
        length(len(name)) + name + length(len(value)) + bytes([unused]) + value + bytes(unused) for name, value in pairs
    )
    return bytes([len(pairs)]) + body + b"\xff"


def make_file(body: bytes, version: int = 13) -> bytes:
    """A file around opcodes and keys, with the right checksum."""
    data = b"REDIS%04d" % version + body + b"\xff"
    return data + crc64(data).to_bytes(8, "little")


def make_payload(body: bytes, version: int = 13) -> bytes:
    """A payload of DUMP around type and value, with the right checksum."""
    data = body + version.to_bytes(2, "little")
    return data + crc64(data).to_bytes(8, "little")
