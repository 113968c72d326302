"""Tables of records, with their arena, against a dict: growing, shrinking, draining, scanning."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.compiled import compiled

table_map = compiled("table_map")
TableMap = table_map.TableMap

SIZES = st.sampled_from([0, 1, 3, 4, 9, 100, 120, 127, 128, 236, 239, 240, 241, 300, 5000])


class TableAgainstDict(RuleBasedStateMachine):
    @initialize(seed=st.integers(1, 5), count=st.sampled_from([0, 10, 1000, 4000]))
    def start(self, seed: int, count: int) -> None:
        table_map.repeat_hashes(seed)
        self.map = TableMap()
        self.oracle: dict[bytes, bytes] = {}
        self.scanned: set[bytes] = set()
        self.expected: set[bytes] = set()
        self.cursor = 0
        self.serial = 0
        for number in range(count):
            self.put(self.new_key(number % 5 * 4), b"")

    def new_key(self, size: int) -> bytes:
        self.serial += 1
        return b"%d" % self.serial + bytes(size)

    def known(self, data: st.DataObject) -> bytes:
        return data.draw(st.sampled_from(sorted(self.oracle))) if self.oracle else b"none"

    def put(self, key: bytes, value: bytes) -> None:
        assert self.map.set(key, value) == (key not in self.oracle)
        self.oracle[key] = value

    def drop(self, key: bytes) -> None:
        assert self.map.pop(key) == self.oracle.pop(key, None)
        self.expected.discard(key)

    @rule(count=st.integers(1, 1500), key_size=SIZES, value_size=SIZES)
    def add_many(self, count: int, key_size: int, value_size: int) -> None:
        for _ in range(count if key_size + value_size < 1000 else 5):
            self.put(self.new_key(key_size), b"v" * value_size)

    @rule(data=st.data(), size=SIZES)
    def overwrite(self, data: st.DataObject, size: int) -> None:
        self.put(self.known(data), b"%d" % self.serial * size)

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        self.drop(self.known(data))
        self.drop(b"missing")

    @rule(part=st.sampled_from([2, 3, 10, 50]), kept=st.booleans())
    def remove_many(self, part: int, kept: bool) -> None:
        for at, key in enumerate(list(self.oracle)):
            if (at % part == 0) != kept:
                self.drop(key)
            if at % 97 == 0:
                self.map.check_invariants()  # while chunks are being drained, too

    @rule(steps=st.integers(1, 60))
    def scan_on(self, steps: int) -> None:
        for _ in range(steps):
            if self.cursor == 0:
                self.scanned, self.expected = set(), set(self.oracle)
            self.cursor, keys = self.map.scan(self.cursor)
            for key in keys:
                assert key in self.oracle
                assert key not in self.scanned or key not in self.expected
            self.scanned.update(keys)
            if self.cursor == 0:
                assert self.expected <= self.scanned

    @rule(cursor=st.integers(0, 2**64 - 1))
    def scan_from_anywhere(self, cursor: int) -> None:
        following, keys = self.map.scan(cursor)
        assert following == 0 or following > cursor % 2**32
        assert all(key in self.oracle for key in keys)

    @rule()
    def draw(self) -> None:
        assert self.map.random() in self.oracle or not self.oracle

    @rule()
    def continue_with_a_copy(self) -> None:
        copied = self.map.copy()
        self.map.clear()
        self.map.check_invariants()
        self.map = copied

    @invariant()
    def agrees(self) -> None:
        self.map.check_invariants()
        items = self.map.items()
        assert len(items) == len(self.oracle) == len(self.map)
        assert dict(items) == self.oracle
        assert all(self.map.get(key) == value for key, value in list(self.oracle.items())[::50])


TestTable = TableAgainstDict.TestCase
TestTable.settings = settings(max_examples=40, stateful_step_count=15, deadline=None)
