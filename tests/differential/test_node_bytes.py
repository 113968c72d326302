"""The nodes of a stream, byte for byte as a real Redis dumps them, after random appends, deletions and trims.

Equal nodes mean equal files, equal radix-tree-keys, and that approximate trims remove as many entries as Redis does.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from support.compiled import compiled
from support.servers import Server
from support.wire import Wire

from streamd.values.streams.group import Group
from streamd.values.streams.stream import Stream

validate_node = compiled("nodes").validate_node

pytestmark = pytest.mark.real

ID = tuple[int, int]
SETTINGS = {"rdbcompression": "no", "stream-node-max-entries": "100", "stream-node-max-bytes": "4096"}
NAMES = [[b"a"], [b"a"], [b"a"], [b"b"], [b"a", b"b"], [b"b", b"a"], [b"17", b"a"], [b"x" * 70]]
VALUES = [
    b"", b"v", b"1", b"-5", b"127", b"128", b"4095", b"4096", b"-4097", b"99999", b"12345678901", b"007",
    b"9223372036854775808", b"y" * 63, b"y" * 64, b"y" * 200, b"y" * 4095, b"z" * 5000,
]  # fmt: skip


@pytest.fixture
def wire(redis_server: Server) -> Iterator[Wire]:
    wire = redis_server.connect()
    before = {name: plain(wire, "CONFIG", "GET", name)[1] for name in SETTINGS}
    for name, value in SETTINGS.items():
        plain(wire, "CONFIG", "SET", name, value)
    yield wire
    for name, value in before.items():
        plain(wire, "CONFIG", "SET", name, value)
    plain(wire, "FLUSHALL")
    wire.close()


def plain(wire: Wire, *args: bytes | str | int) -> Any:
    reply = wire.call(*args)
    assert not reply.is_error, (args, reply)
    return reply.plain()


def text(id: ID) -> bytes:
    return b"%d-%d" % id


class DumpReader:
    """The nodes of a stream in a DUMP payload without compression."""

    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        self.at = 1  # after the type

    def nodes(self) -> list[tuple[ID, bytes]]:
        return [(self.master_id(), self.string()) for _ in range(self.length())]

    def master_id(self) -> ID:
        key = self.string()
        return int.from_bytes(key[:8], "big"), int.from_bytes(key[8:], "big")

    def string(self) -> bytes:
        return self.take(self.length())

    def length(self) -> int:
        first = self.take(1)[0]
        if first < 64:
            return first
        if first < 128:
            return (first & 63) << 8 | self.take(1)[0]
        return int.from_bytes(self.take({0x80: 4, 0x81: 8}[first]), "big")

    def take(self, size: int) -> bytes:
        self.at += size
        return self.payload[self.at - size : self.at]


class Both:
    """One stream in two places: at the key `s` of a real Redis, and here."""

    def __init__(self, wire: Wire, draw: random.Random) -> None:
        self.wire = wire
        self.draw = draw
        self.stream = Stream(draw.choice([4096, 4096, 256, 1000, 0]), draw.choice([1, 2, 3, 7, 100, 0]))
        plain(wire, "FLUSHALL")
        plain(wire, "CONFIG", "SET", "stream-node-max-bytes", self.stream.node_max_bytes)
        plain(wire, "CONFIG", "SET", "stream-node-max-entries", self.stream.node_max_entries)
        plain(wire, "XADD", "s", "1-1", "a", "v")
        self.stream.append([(b"a", b"v")], (1, 1))
        self.ids = [(1, 1)]

    def some_id(self) -> ID:
        ms, seq = self.draw.choice(self.ids)
        return ms, seq + self.draw.choice([0, 0, 0, 1])

    def append(self) -> None:
        ms, seq = self.stream.last_generated_id
        id = self.draw.choice([(ms, seq + 1), (ms, seq + 500), (ms + 1, 0), (ms + 5000, 3), (ms + 2**35, seq)])
        fields = [(name, self.draw.choice(VALUES)) for name in self.draw.choice(NAMES)]
        self.stream.append(fields, id)
        plain(self.wire, "XADD", "s", text(id), *(part for pair in fields for part in pair))
        self.ids.append(id)

    def delete(self) -> None:
        id = self.some_id()
        deleted = self.stream.delete(id) == "deleted"
        assert plain(self.wire, "XDEL", "s", text(id)) == deleted

    def trim(self) -> None:
        approximate = self.draw.random() < 0.5
        policy = self.draw.choice(["keepref", "keepref", "delref", "acked"])
        limit = self.draw.choice([0, self.draw.randrange(1, 40)]) if approximate else 0
        if self.draw.random() < 0.5:
            length = self.draw.randrange(len(self.stream) + 3)
            strategy: list[bytes | str | int] = ["MAXLEN", "~" if approximate else "=", length]
            bound: dict[str, Any] = {"max_length": length}
        else:
            id = self.some_id()
            strategy = ["MINID", "~" if approximate else "=", text(id)]
            bound = {"min_id": id}
        if approximate:
            strategy += ["LIMIT", limit]
        removed = self.stream.trim(**bound, approximate=approximate, limit=limit, policy=policy)  # type: ignore[arg-type]
        assert plain(self.wire, "XTRIM", "s", *strategy, policy) == removed, (strategy, policy)

    def add_group(self) -> None:
        """A group that has read a part of the stream and acknowledged some of it."""
        if self.stream.groups:
            return
        plain(self.wire, "XGROUP", "CREATE", "s", "g", "0")
        count = self.draw.randrange(1, 30)
        plain(self.wire, "XREADGROUP", "GROUP", "g", "c", "COUNT", count, "STREAMS", "s", ">")
        read = [id for id, _ in self.stream.range(count=count)]
        group = self.stream.groups[b"g"] = Group(b"g", read[-1] if read else (0, 0))
        group.create_consumer(b"c", now_ms=0)
        for id in read:
            group.restore_pending(id, b"c", delivery_ms=0, delivery_count=1)
            if self.draw.random() < 0.5:
                group.acknowledge([id])
                plain(self.wire, "XACK", "s", "g", text(id))

    def compare(self) -> None:
        self.stream.check_invariants()
        nodes = self.stream.list_nodes()
        assert nodes == DumpReader(plain(self.wire, "DUMP", "s")).nodes()
        assert all(validate_node(master, listpack) is None for master, listpack in nodes)
        fields = plain(self.wire, "XINFO", "STREAM", "s")
        info = dict(zip(fields[::2], fields[1::2], strict=True))
        assert (info[b"length"], info[b"entries-added"]) == (len(self.stream), self.stream.entries_added)
        assert info[b"radix-tree-keys"] == self.stream.node_count
        assert info[b"radix-tree-nodes"] == self.stream.radix_tree_nodes
        assert info[b"recorded-first-entry-id"] == text(self.stream.first_entry_id)
        assert info[b"max-deleted-entry-id"] == text(self.stream.max_deleted_entry_id)


@pytest.mark.parametrize("seed", range(60))
def test_nodes_are_those_of_redis(wire: Wire, seed: int) -> None:
    draw = random.Random(seed)
    both = Both(wire, draw)
    for _ in range(draw.choice([15, 60, 150])):
        step = draw.choices([both.append, both.delete, both.trim, both.add_group], [12, 4, 1, 1])[0]
        step()
        if draw.random() < 0.1:
            both.compare()
    both.compare()
