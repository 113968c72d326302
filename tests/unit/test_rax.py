"""The radix tree through RaxMap: shapes with a story; the rest is in model/test_rax_model.py."""

from __future__ import annotations

import pytest
from support.compiled import compiled

RaxMap = compiled("rax_map").RaxMap


def tree(*keys: bytes) -> RaxMap:
    """A tree of these keys; the value of a key is its place among them."""
    made = RaxMap(len(keys[0]))
    for place, key in enumerate(keys):
        assert made.insert(key, place)
        made.check_invariants()
    return made


def test_an_empty_tree_has_nothing_to_find() -> None:
    empty = RaxMap(4)
    assert len(empty) == 0
    assert empty.memory == 0
    assert empty.items() == []
    assert empty.first() is empty.last() is None
    for query in (empty.find, empty.remove, empty.floor, empty.lower, empty.higher):
        assert query(b"abcd") is None
    empty.check_invariants()


def test_a_key_is_inserted_once() -> None:
    map_ = tree(b"abcd")
    assert not map_.insert(b"abcd", 99)
    assert map_.find(b"abcd") == 0
    assert len(map_) == 1


def test_replacing_keeps_the_shape_and_changes_the_record() -> None:
    map_ = tree(b"aa", b"ab", b"bb")
    nodes, memory = map_.redis_nodes, map_.memory
    assert map_.replace(b"bb", 7) == 2
    assert map_.last() == (b"bb", 7)
    assert map_.replace(b"ba", 7) is None
    assert map_.replace(b"cc", 7) is None
    assert (map_.redis_nodes, map_.memory, len(map_)) == (nodes, memory, 3)
    map_.check_invariants()


def test_bounds_that_leave_the_tree_inside_skipped_bytes() -> None:
    map_ = tree(b"aXXa", b"aXXc")  # one node, at byte 3: bytes 0 to 2 are not stored
    low, high = (b"aXXa", 0), (b"aXXc", 1)
    assert map_.floor(b"aWzz") is None
    assert map_.higher(b"aWzz") == low
    assert map_.floor(b"aYaa") == high
    assert map_.higher(b"aYaa") is None
    assert map_.floor(b"aXXb") == low
    assert map_.higher(b"aXXb") == high
    assert map_.lower(b"aXXa") is None
    assert map_.higher(b"aXXa") == high
    assert map_.find(b"bXXa") is None


def test_a_node_grows_to_all_256_children_and_shrinks_again() -> None:
    map_ = RaxMap(1)
    sizes = []
    for byte in range(256):
        map_.insert(bytes([byte]), byte)
        map_.check_invariants()
        sizes.append(map_.memory)
    assert sizes == sorted(sizes)
    assert len(set(sizes)) == 5  # none for one key, then the four kinds of node
    grown = set(sizes)
    for byte in range(255, -1, -1):
        assert map_.remove(bytes([byte])) == byte
        map_.check_invariants()
        assert map_.last() == ((bytes([byte - 1]), byte - 1) if byte else None)
        sizes.append(map_.memory)
    assert map_.memory == 0
    assert set(sizes[256:]) == grown  # each kind is met again on the way down


def test_a_key_at_the_border_of_two_node_sizes_moves_nothing() -> None:
    map_ = RaxMap(1)
    for byte in range(17):
        map_.insert(bytes([byte]))
    memory = map_.memory
    map_.remove(b"\x00")
    assert map_.memory == memory
    map_.insert(b"\x00")
    assert map_.memory == memory


def test_memory_comes_back_when_keys_go_in_any_order() -> None:
    keys = [(n * 40503 % 65536).to_bytes(2, "big") for n in range(3000)]
    map_ = tree(*keys[:50])
    for key in keys[50:]:
        map_.insert(key)
    for key in keys[::2] + keys[1::2]:
        map_.remove(key)
    map_.check_invariants()
    assert (len(map_), map_.memory, map_.redis_nodes) == (0, 0, 1)


@pytest.mark.parametrize(
    ("ids", "nodes"),
    [
        ([], 1),
        ([(1, 1)], 2),  # the shared bytes, the leaf
        ([(1, 1), (1, 2)], 4),  # the shared bytes, the branch, two leaves
        ([(1, 1), (2, 1)], 6),  # each leaf has bytes of its own in front
        ([(1, 1), (1, 2), (2, 1)], 8),
        ([(5, n) for n in range(1, 401)], 404),
        ([(1700000000000 + n, 0) for n in range(400)], 804),
    ],
)
def test_the_number_of_nodes_is_the_one_redis_shows(ids: list[tuple[int, int]], nodes: int) -> None:
    # Shown as radix-tree-nodes by Redis 8.6.3 for streams of one entry per node.
    map_ = RaxMap(16)
    for ms, seq in ids:
        map_.insert(ms.to_bytes(8, "big") + seq.to_bytes(8, "big"))
    assert map_.redis_nodes == nodes
    map_.check_invariants()


def test_keys_have_one_length() -> None:
    map_ = RaxMap(4)
    for use in (map_.insert, map_.find, map_.remove, map_.floor):
        with pytest.raises(ValueError, match="a key has 4 bytes"):
            use(b"abcde")
    for length in (0, 33, -1):
        with pytest.raises(ValueError, match="key_len must be 1 to 32"):
            RaxMap(length)


def test_clear_leaves_a_tree_that_can_be_filled_again() -> None:
    map_ = tree(b"ab", b"cd", b"ce")
    map_.clear()
    assert (len(map_), map_.memory, map_.redis_nodes) == (0, 0, 1)
    assert map_.insert(b"zz", 5)
    assert map_.items() == [(b"zz", 5)]
    map_.check_invariants()
