"""RaxMap against a SortedDict, and its count of Redis nodes against the definition."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from sortedcontainers import SortedDict
from support.compiled import compiled

RaxMap = compiled("rax_map").RaxMap


def redis_nodes(keys: list[bytes], depth: int = 0) -> int:
    """Nodes of Redis's radix tree below a point that `keys`, in order, reach after `depth` bytes."""
    if not keys or depth == len(keys[0]):
        return 1
    common = next((i for i, (a, b) in enumerate(zip(keys[0], keys[-1], strict=True)) if a != b), len(keys[0]))
    if common > depth:
        return 1 + redis_nodes(keys, common)
    return 1 + sum(redis_nodes(list(below), depth + 1) for _, below in groupby(keys, key=lambda key: key[depth]))


class RaxAgainstSortedDict(RuleBasedStateMachine):
    @initialize(
        key_len=st.sampled_from([1, 2, 3, 8, 16, 24, 32]),
        alphabet=st.sampled_from([b"\x00\xff", b"\x00\x01\x7f\x80\xff", bytes(range(20)), bytes(range(256))]),
    )
    def start(self, key_len: int, alphabet: bytes) -> None:
        self.key_len = key_len
        self.map = RaxMap(key_len)
        self.oracle: SortedDict[bytes, int] = SortedDict()
        self.fresh = st.lists(st.sampled_from(list(alphabet)), min_size=key_len, max_size=key_len).map(bytes)

    def key(self, data: st.DataObject) -> bytes:
        """A key that is there, or one that leaves such a key at some byte, or any."""
        fresh = data.draw(self.fresh)
        if not self.oracle or data.draw(st.booleans()):
            return fresh
        known: bytes = self.oracle.keys()[data.draw(st.integers(0, len(self.oracle) - 1))]
        shared = data.draw(st.integers(0, len(known)))
        return known[:shared] + fresh[shared:]

    @rule(data=st.data(), value=st.integers(0, 1000))
    def insert(self, data: st.DataObject, value: int) -> None:
        key = self.key(data)
        assert self.map.insert(key, value) == (key not in self.oracle)
        self.oracle.setdefault(key, value)

    @rule(data=st.data(), count=st.integers(1, 60), step=st.sampled_from([1, 3, 255, 256]))
    def insert_ascending(self, data: st.DataObject, count: int, step: int) -> None:
        start = int.from_bytes(self.key(data), "big")
        for number in range(start, min(start + count * step, 256**self.key_len), step):
            key = number.to_bytes(self.key_len, "big")
            assert self.map.insert(key, number % 1000) == (key not in self.oracle)
            self.oracle.setdefault(key, number % 1000)

    @rule(data=st.data())
    def gather(self, data: st.DataObject) -> None:
        low, high = self.key(data), self.key(data)
        want = [(key, self.oracle[key]) for key in self.oracle.irange(low, high)] if low <= high else []
        assert self.map.between(low, high) == want
        limit = data.draw(st.integers(0, len(want) + 1))
        assert self.map.between(low, high, limit) == want[:limit]

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        key = self.key(data)
        assert self.map.remove(key) == self.oracle.pop(key, None)

    @rule(data=st.data(), count=st.integers(1, 60), from_the_right=st.booleans())
    def remove_run(self, data: st.DataObject, count: int, from_the_right: bool) -> None:
        start = self.oracle.bisect_left(self.key(data))
        first = max(0, start - count) if from_the_right else start
        doomed = self.oracle.keys()[first : first + count]
        for key in reversed(doomed) if from_the_right else doomed:
            assert self.map.remove(key) == self.oracle.pop(key)

    @rule(data=st.data(), value=st.integers(0, 1000))
    def replace(self, data: st.DataObject, value: int) -> None:
        key = self.key(data)
        assert self.map.replace(key, value) == self.oracle.get(key)
        if key in self.oracle:
            self.oracle[key] = value

    @rule(data=st.data())
    def search(self, data: st.DataObject) -> None:
        for key in self.around(self.key(data)):
            left, right = self.oracle.bisect_left(key), self.oracle.bisect_right(key)
            assert self.map.find(key) == self.oracle.get(key)
            assert self.map.lower(key) == self.item(left - 1)
            assert self.map.floor(key) == self.item(right - 1)
            assert self.map.higher(key) == self.item(right)

    def around(self, key: bytes) -> Iterator[bytes]:
        """The key, and keys that leave it at each of its bytes, to the next value and to the farthest, both ways."""
        yield key
        for place, byte in enumerate(key):
            for other in {max(0, byte - 1), min(255, byte + 1), 0, 255} - {byte}:
                yield key[:place] + bytes([other]) + key[place + 1 :]
                yield key[:place] + bytes([other]) + bytes(len(key) - place - 1)

    def item(self, place: int) -> tuple[bytes, int] | None:
        return self.oracle.peekitem(place) if 0 <= place < len(self.oracle) else None

    @invariant()
    def agree(self) -> None:
        self.map.check_invariants()
        assert self.map.items() == list(self.oracle.items())
        assert len(self.map) == len(self.oracle)
        assert self.map.first() == self.item(0)
        assert self.map.last() == self.item(len(self.oracle) - 1)
        assert self.map.redis_nodes == redis_nodes(list(self.oracle))


RaxAgainstSortedDict.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestRax = RaxAgainstSortedDict.TestCase
