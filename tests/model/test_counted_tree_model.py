"""CountedList, the counted tree, against a SortedList.

A bug that was planted and found at once: the first record below a child is not noted again when it is removed.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from sortedcontainers import SortedList
from support.compiled import compiled

CountedList = compiled("counted_list").CountedList
Pair = tuple[int, int]


class TreeAgainstSortedList(RuleBasedStateMachine):
    @initialize(prefixes=st.sampled_from([1, 3, 1000]))
    def start(self, prefixes: int) -> None:
        self.prefixes = prefixes
        self.tree = CountedList()
        self.oracle: SortedList[Pair] = SortedList()

    def pair(self, data: st.DataObject) -> Pair:
        """A pair that is there, a neighbour of one, or any."""
        if self.oracle and data.draw(st.booleans()):
            prefix, rest = self.oracle[data.draw(st.integers(0, len(self.oracle) - 1))]
            return prefix, max(0, rest + data.draw(st.integers(-1, 1)))
        return data.draw(st.integers(0, self.prefixes - 1)), data.draw(st.integers(0, 10**6))

    def insert(self, pair: Pair) -> None:
        if pair not in self.oracle:
            self.tree.insert(*pair)
            self.oracle.add(pair)

    @rule(data=st.data())
    def insert_one(self, data: st.DataObject) -> None:
        self.insert(self.pair(data))

    @rule(seed=st.integers(0, 2**32), count=st.sampled_from([20, 150, 1200]))
    def insert_many(self, seed: int, count: int) -> None:
        chance = random.Random(seed)
        for _ in range(count):
            self.insert((chance.randrange(self.prefixes), chance.randrange(10**6)))

    @rule(count=st.integers(1, 600))
    def append_many(self, count: int) -> None:
        prefix, rest = self.oracle[-1] if self.oracle else (0, 0)
        for number in range(1, count + 1):
            self.tree.append(prefix, rest + number)
            self.oracle.add((prefix, rest + number))

    @rule(data=st.data(), count=st.integers(1, 400))
    def insert_downwards(self, data: st.DataObject, count: int) -> None:
        prefix, rest = self.pair(data)
        for number in range(min(count, rest)):
            self.insert((prefix, rest - number))

    @rule(data=st.data())
    def remove_one(self, data: st.DataObject) -> None:
        pair = self.pair(data)
        assert self.tree.remove(*pair) == (pair in self.oracle)
        self.oracle.discard(pair)

    @precondition(lambda self: self.oracle)
    @rule(data=st.data(), share=st.sampled_from([0.1, 0.5, 1.0]))
    def remove_range(self, data: st.DataObject, share: float) -> None:
        first = data.draw(st.integers(0, len(self.oracle) - 1))
        for pair in list(self.oracle[first : first + int(len(self.oracle) * share) + 1]):
            assert self.tree.remove(*pair)
            self.oracle.remove(pair)

    @rule(seed=st.integers(0, 2**32), share=st.sampled_from([0.3, 0.9]))
    def thin_out(self, seed: int, share: float) -> None:
        chance = random.Random(seed)
        for pair in [each for each in self.oracle if chance.random() < share]:
            assert self.tree.remove(*pair)
            self.oracle.remove(pair)

    @rule(data=st.data())
    def rename(self, data: st.DataObject) -> None:
        pair = self.pair(data)
        assert self.tree.rename(*pair) == (pair in self.oracle)

    @rule(data=st.data(), kind=st.sampled_from(["pair", "before", "after"]))
    def rank(self, data: st.DataObject, kind: str) -> None:
        prefix, rest = self.pair(data)
        if kind == "pair":
            want = self.oracle.bisect_left((prefix, rest))
            found = self.tree.rank(prefix, rest)
        else:
            want = self.oracle.bisect_left((prefix + (kind == "after"), -1))
            found = self.tree.rank(prefix, after=kind == "after")
        assert found == (want, self.oracle[want] if want < len(self.oracle) else None)

    @rule(data=st.data(), backwards=st.booleans())
    def walk(self, data: st.DataObject, *, backwards: bool) -> None:
        rank = data.draw(st.integers(0, len(self.oracle)))
        want = [] if rank == len(self.oracle) else list(self.oracle[rank::-1] if backwards else self.oracle[rank:])
        assert self.tree.walk(rank, backwards) == want
        assert self.tree[rank] == (self.oracle[rank] if rank < len(self.oracle) else None)

    @invariant()
    def agree(self) -> None:
        self.tree.check()
        assert len(self.tree) == len(self.oracle)


TestTree = TreeAgainstSortedList.TestCase
TestTree.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


@pytest.mark.parametrize("order", ["up", "down", "mixed"])
def test_a_tree_takes_six_bytes_for_a_handle(order: str) -> None:
    tree = CountedList()
    numbers = list(range(50_000))
    if order == "down":
        numbers.reverse()
    elif order == "mixed":
        random.Random(1).shuffle(numbers)
    for number in numbers:
        tree.insert(number, 0)
    tree.check()
    assert tree.held < 6 * len(numbers)
    assert tree.walk(0) == [(number, 0) for number in range(50_000)]
