"""Listpacks that are edited in place, against a list: after each step, byte for byte what is written in one go."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.compiled import compiled

ListpackEditor = compiled("listpack_editor").ListpackEditor
encode = compiled("listpack").encode

VALUES = st.one_of(
    st.sampled_from([b"", b"a", b"b", b"ab", b"a" * 63, b"a" * 64, b"a" * 4095, b"a" * 4096, b"-0", b"01"]),
    st.sampled_from([2**n + d for n in (7, 12, 15, 23, 31, 62) for d in (-1, 0, 1)]).map(b"%d".__mod__),
    st.integers(-(2**63), 2**63 - 1).map(b"%d".__mod__),
    st.integers(-3, 130).map(b"%d".__mod__),
)


class ListpackAgainstList(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.edited = ListpackEditor()
        self.oracle: list[bytes] = []

    def index(self, data: st.DataObject, end: int = 0) -> int:
        count = len(self.oracle)
        return data.draw(st.integers(-count, count - 1 + end)) if count + end else 0

    @rule(data=st.data(), value=VALUES)
    def insert(self, data: st.DataObject, value: bytes) -> None:
        index = self.index(data, 1)
        self.edited.insert(index, value)
        self.oracle.insert(index, value)

    @rule(data=st.data(), number=st.integers(-(2**63), 2**63 - 1) | st.integers(-200, 200))
    def insert_number(self, data: st.DataObject, number: int) -> None:
        index = self.index(data, 1)
        self.edited.insert_int(index, number)
        self.oracle.insert(index, b"%d" % number)
        self.edited.append_int(number)
        self.oracle.append(b"%d" % number)

    @rule(values=st.lists(VALUES, max_size=20))
    def append(self, values: list[bytes]) -> None:
        for value in values:
            self.edited.append(value)
        self.oracle += values

    @rule(data=st.data(), one=VALUES, two=VALUES)
    def insert_two(self, data: st.DataObject, one: bytes, two: bytes) -> None:
        index = self.index(data, 1) % (len(self.oracle) + 1)
        self.edited.insert_pair(index, one, two)
        self.oracle[index:index] = [one, two]

    @rule(data=st.data(), value=VALUES)
    def replace(self, data: st.DataObject, value: bytes) -> None:
        if self.oracle:
            index = self.index(data)
            self.edited.replace(index, value)
            self.oracle[index] = value

    @rule(data=st.data(), count=st.integers(0, 5))
    def delete(self, data: st.DataObject, count: int) -> None:
        if self.oracle:
            index = self.index(data) % len(self.oracle)
            self.edited.delete(index, count)
            del self.oracle[index : index + count]

    @rule(data=st.data(), value=VALUES, skip=st.sampled_from([0, 1, 2]))
    def find(self, data: st.DataObject, value: bytes, skip: int) -> None:
        value = data.draw(st.sampled_from([*self.oracle, value]))
        looked_at = self.oracle[:: skip + 1]
        want = looked_at.index(value) * (skip + 1) if value in looked_at else None
        assert self.edited.find(value, skip) == (None if want is None else self.edited.place_of(want))

    @rule()
    def continue_with_a_copy(self) -> None:
        self.edited = self.edited.copy()

    @invariant()
    def is_written_as_in_one_go(self) -> None:
        assert self.edited.encoded() == encode(self.oracle)
        assert self.edited.values() == self.oracle
        assert self.edited.last() == (self.oracle[-1] if self.oracle else None)
        assert len(self.edited) == len(self.oracle)
        for index in range(0, len(self.oracle), 7):
            assert self.edited.place_of(index) == self.edited.place_of(index - len(self.oracle))


TestListpackEdit = ListpackAgainstList.TestCase
TestListpackEdit.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


def test_more_elements_than_the_header_can_count() -> None:
    edited = ListpackEditor()
    for number in range(65540):
        edited.append_int(number % 100)
    assert edited.encoded()[4:6] == b"\xff\xff"
    assert len(edited) == 65540
    assert edited.place_of(65539) == edited.place_of(-1)
    edited.delete(-65540, 10)
    assert edited.encoded()[4:6] == b"\xff\xff"
    assert len(edited) == 65530
