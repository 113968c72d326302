"""Tables of records: what they take, how they grow and shrink, how fair a random record is."""

from __future__ import annotations

import pytest
from support.compiled import compiled

from streamd import heap

table_map = compiled("table_map")
TableMap = table_map.TableMap


@pytest.fixture(autouse=True)
def _repeated() -> None:
    table_map.repeat_hashes(1)


def filled(count: int, size: int = 16) -> TableMap:
    made = TableMap()
    for number in range(count):
        made.set(b"%0*d" % (size, number), b"")
    return made


def scan(table: TableMap) -> list[bytes]:
    cursor, found = table.scan(0)
    while cursor:
        cursor, more = table.scan(cursor)
        found += more
    return found


def test_siphash_gives_the_known_values() -> None:
    # SipHash-1-3 under the key 00 .. 0f, of 00, 01, ..: the vectors of its reference implementation.
    texts = [bytes(range(n)) for n in range(9)]
    got = [table_map.hash_of(text, bytes(range(16))) for text in texts]
    assert len(set(got)) == len(got)
    assert got[0] == 0xABAC0158050FC4DC


def test_a_record_takes_little_more_than_its_bytes() -> None:
    before = heap.allocated()
    table = filled(200_000)
    taken = heap.allocated() - before
    # 8 bytes of head, 1 of length, 16 of key; a handle and a tag, with slots to spare.
    assert taken / 200_000 < 38
    assert table.memory == pytest.approx(taken, rel=0.02)


@pytest.mark.parametrize("count", [1, 7, 8, 56, 57, 224, 225, 1000, 5000])
def test_every_size_is_walked_and_scanned_once(count: int) -> None:
    table = filled(count)
    table.check_invariants()
    keys = [key for key, _ in table.items()]
    assert len(keys) == count == len(set(keys))
    assert sorted(scan(table)) == sorted(keys)


def test_a_reserved_table_is_not_split() -> None:
    table = TableMap()
    table.reserve(10_000)
    depth = table.depth
    for number in range(10_000):
        table.set(b"%d" % number, b"")
    table.check_invariants()
    assert table.depth - depth <= 1


def test_memory_returns_while_records_are_removed() -> None:
    table = filled(100_000)
    full = table.memory
    for number in range(100_000):
        if number % 50:
            table.pop(b"%016d" % number)
    table.check_invariants()
    assert len(table) == 2000
    assert table.moves
    assert table.memory < full / 15
    assert table.depth < 7


def test_memory_does_not_grow_when_lengths_change() -> None:
    table = filled(2000)
    for size in range(0, 400, 7):
        for number in range(2000):
            table.set(b"%016d" % number, bytes(size))
    for number in range(2000):
        table.set(b"%016d" % number, b"")
    for _ in range(3):  # draining goes on as records are removed
        for number in range(2000):
            table.pop(b"%016d" % number)
            table.set(b"%016d" % number, b"")
    table.check_invariants()
    assert table.memory < 3 * filled(2000).memory


def test_a_cleared_table_holds_nothing() -> None:
    before = heap.allocated()
    table = filled(5000, 300)
    table.clear()
    assert heap.allocated() - before == table.memory == 0
    table.set(b"again", b"1")
    assert table.get(b"again") == b"1"


def test_a_copy_shares_nothing() -> None:
    table = filled(3000, 300)
    copied = table.copy()
    for number in range(3000):
        table.pop(b"%0300d" % number)
    copied.check_invariants()
    assert len(copied.items()) == 3000


@pytest.mark.parametrize("kept", [3, 20, 300, 2000])
def test_random_records_are_fair(kept: int) -> None:
    table = filled(2 * kept)
    for number in range(kept):
        table.pop(b"%016d" % number)
    draws = 200 * kept
    counts = dict.fromkeys((key for key, _ in table.items()), 0)
    for _ in range(draws):
        counts[table.random()] += 1
    expected = draws / kept
    chi = sum((count - expected) ** 2 / expected for count in counts.values())
    assert chi < kept + 6 * (2 * kept) ** 0.5
