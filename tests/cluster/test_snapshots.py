"""Snapshots of nodes: slot by slot, with what Redis says of each slot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.cluster.nodes import start_cluster
from support.replicas.nodes import Node

from streamd.errors import CorruptFileError
from streamd.keyspace.database import Database
from streamd.persistence.rdb.format import WriteOptions
from streamd.persistence.rdb.read import RdbReader
from streamd.persistence.rdb.write import RdbWriter

NewNode = Callable[..., Node]
SLOT_INFO = 0xF4


class Sink(bytearray):
    def write(self, data: bytes) -> None:
        self.extend(data)


def snapshot_of(db: Database, form: str = "8.6") -> bytes:
    sink = Sink()
    RdbWriter(sink, WriteOptions(form)).write([db], now_ms=0)
    return bytes(sink)


def node_database() -> Database:
    db = Database(0)
    db.keep_by_slot()
    return db


def filled() -> Database:
    db = node_database()
    for number in range(50):
        db.set(b"k%d" % number, b"v")
        db.set(b"{k%d}2" % number, b"v")
        db.set_expiry(b"k%d" % number, 4_102_444_800_000)
    return db


@pytest.mark.real
@pytest.mark.long
def test_snapshots_are_those_of_redis(new_node: NewNode) -> None:
    found = []
    for kind in ("streamd", "redis"):
        nodes = start_cluster(new_node, (kind,), rdbcompression="no")
        node = nodes[0]
        for number in range(200):
            node.must("SET", f"key-{number * 7}", "v" * number)
        for number in range(0, 200, 3):
            node.must("PEXPIREAT", f"key-{number * 7}", "4102444800000")
        node.must("SAVE")
        folder = node.call("CONFIG", "GET", "dir").value[1].value.decode()
        content = Path(folder, "dump.rdb").read_bytes()
        found.append(content[content.index(b"\xfe\x00\xfb") : -8])
    assert found[0].count(bytes([SLOT_INFO])) >= 190  # a few keys share a slot
    assert in_parts(found[0]) == in_parts(found[1])


def in_parts(content: bytes) -> list[Any]:
    """The slots in their order, the keys of each in any order."""
    reader = RdbReader(b"REDIS0013" + content + bytes(8), [db := node_database()])
    reader.load()
    parts = content.split(bytes([SLOT_INFO]))
    return [parts[0], [part[:4] for part in parts[1:]], sorted(map(len, parts)), sorted(db.keys_in_slot(0, 9)), len(db)]


@pytest.mark.parametrize("form", ["8.10", "8.6", "7.2"])
def test_a_snapshot_comes_back(form: str) -> None:
    content = snapshot_of(filled(), form)
    assert (bytes([SLOT_INFO]) in content) == (form != "7.2")  # older releases do not know it
    for db in (node_database(), Database(0)):
        RdbReader(content, [db]).load()
        assert len(db) == 100
        assert db.expiry(b"k7") == 4_102_444_800_000
        assert db.expiry(b"{k7}2") == -1
        db.check_invariants()


def test_a_slot_that_does_not_exist_is_refused() -> None:
    for slot, is_good in ((16383, True), (16384, False), (2**31, False), (2**63, False)):
        length = (0x4000 | slot).to_bytes(2, "big") if slot < 16384 else b"\x81" + slot.to_bytes(8, "big")
        content = b"REDIS0013\xfe\x00" + bytes([SLOT_INFO]) + length + b"\x01\x00\x00\x01k\x01v\xff" + bytes(8)
        db = node_database()
        if is_good:
            RdbReader(content, [db]).load()
            assert len(db) == 1
        else:
            with pytest.raises(CorruptFileError, match="a slot of at most 16383"):
                RdbReader(content, [db]).load()
