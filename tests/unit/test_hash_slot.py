"""The hash slots of keys, and databases that keep their keys by slot."""

from __future__ import annotations

import random

import pytest

from streamd.keyspace.database import Database
from streamd.keyspace.hash_slot import SLOTS, slot_of


def slow_slot(key: bytes) -> int:
    """The slot, bit by bit."""
    start = key.find(b"{")
    end = key.find(b"}", start + 1) if start >= 0 else -1
    tag = key[start + 1 : end] if end > start + 1 else key
    crc = 0
    for byte in tag:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xFFFF
    return crc % SLOTS


@pytest.mark.parametrize(
    ("key", "slot"),
    [
        (b"", 0), (b"foo", 12182), (b"bar", 5061), (b"123456789", 0x31C3), (b"foo{}{bar}", 8363), (b"foo{{bar}}zap", 4015),
        (b"{user1000}.following", 3443), (b"{user1000}.followers", 3443), (b"foo{bar}{zap}", 5061),
    ],
)  # fmt: skip
def test_the_slot_of_a_key_is_that_of_redis(key: bytes, slot: int) -> None:
    assert slot_of(key) == slot


def test_slots_agree_with_the_slow_twin() -> None:
    draw = random.Random(1)
    for _ in range(2000):
        key = bytes(draw.choice(b"a{}\x00\xff") for _ in range(draw.randrange(12)))
        assert slot_of(key) == slow_slot(key), key


def test_a_database_by_slot_counts_and_lists_the_keys_of_each() -> None:
    draw = random.Random(2)
    db = Database()
    db.keep_by_slot()
    oracle: dict[int, set[bytes]] = {}
    for _ in range(3000):
        key = b"{%d}%d" % (draw.randrange(50), draw.randrange(40))
        if draw.random() < 0.6:
            db.set(key, b"v")
            oracle.setdefault(slow_slot(key), set()).add(key)
        else:
            assert db.delete(key) == (key in oracle.get(slow_slot(key), set()))
            oracle.get(slow_slot(key), set()).discard(key)
    db.check_invariants()
    for slot in range(SLOTS):
        keys = oracle.get(slot, set())
        assert db.count_in_slot(slot) == len(keys)
        assert set(db.keys_in_slot(slot, 1000)) == keys
        assert len(db.keys_in_slot(slot, 2)) == min(2, len(keys))
    assert db.used_slots() == sorted(slot for slot, keys in oracle.items() if keys)


def test_keys_of_slots_that_are_not_served_are_hidden() -> None:
    db = Database()
    db.keep_by_slot()
    for name in (b"foo", b"bar", b"foo2{foo}"):
        db.set(name, b"v")
    db.shown = bytearray(SLOTS)
    assert db.keys() == []
    assert db.random_key() is None
    assert db.scan(0, 10) == (0, [])
    assert db.count_shown() == 0
    db.shown[slot_of(b"foo")] = 1
    assert set(db.keys()) == {b"foo", b"foo2{foo}"}
    assert {db.random_key() for _ in range(50)} == {b"foo", b"foo2{foo}"}
    assert {record.key for record in db.scan(0, 10)[1]} == {b"foo", b"foo2{foo}"}
    assert db.count_shown() == 2
    assert len(db) == 3


def test_a_flushed_database_by_slot_is_freed_and_filled_again() -> None:
    db = Database()
    db.keep_by_slot()
    for number in range(100):
        db.set(b"%d" % number, b"v")
    db.flush()
    assert db.used_slots() == []
    while db.trash.has_slices:
        db.trash.step(7)
    db.set(b"foo", b"v")
    assert db.keys_in_slot(slot_of(b"foo"), 5) == [b"foo"]
    db.check_invariants()


def test_only_an_empty_database_begins_to_keep_keys_by_slot() -> None:
    db = Database()
    db.set(b"foo", b"v")
    with pytest.raises(ValueError, match="empty"):
        db.keep_by_slot()
