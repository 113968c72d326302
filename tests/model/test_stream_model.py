"""Stream against a SortedDict of entries, with nodes of three entries, so that they split and vanish all the time.

The oracle knows entries and groups, not nodes: what an approximate trim may remove is checked by what must hold of it. The
bytes of nodes are compared with a real Redis in tests/differential.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from sortedcontainers import SortedDict

from streamd.values.streams.group import Group
from streamd.values.streams.stream import Stream

ID = tuple[int, int]
Fields = list[tuple[bytes, bytes]]

MAX = 2**64 - 1
TEXTS = st.one_of(
    st.sampled_from([b"", b"a", b"b", b"17", b"-1", b"007", b"12345678901", b"x" * 63, b"x" * 64, b"y" * 130]),
    st.integers(-(2**63), 2**63 - 1).map(lambda number: b"%d" % number),
    st.binary(max_size=5),
)
FIELDS = st.one_of(
    st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=4),
    st.lists(TEXTS, min_size=2, max_size=2).map(lambda values: list(zip([b"f", b"g"], values, strict=True))),
)
STEPS = st.sampled_from([(0, 1), (0, 7), (1, 0), (3, -1), (1000, 0), (2**40, 0)])


class StreamAgainstSortedDict(RuleBasedStateMachine):
    @initialize(node_max_entries=st.sampled_from([3, 3, 1, 0]), node_max_bytes=st.sampled_from([4096, 200, 0]))
    def start(self, node_max_entries: int, node_max_bytes: int) -> None:
        self.stream = Stream(node_max_bytes, node_max_entries)
        self.oracle: SortedDict[ID, Fields] = SortedDict()
        self.groups: dict[bytes, tuple[ID, set[ID]]] = {}  # name -> last-delivered ID, what is pending
        self.last: ID = (0, 0)
        self.max_deleted: ID = (0, 0)
        self.added = 0

    # --- What to work on ----------------------------------------------------------------------------------------

    def an_id(self, data: st.DataObject) -> ID:
        """An ID that is there, one beside it, a bound, or any."""
        kind = data.draw(st.integers(0, 9))
        if kind == 0 or not self.oracle:
            return data.draw(st.sampled_from([(0, 0), self.last, (MAX, MAX), self.max_deleted]))
        ms, seq = self.oracle.keys()[data.draw(st.integers(0, len(self.oracle) - 1))]
        if kind == 1:
            return ms, max(0, min(MAX, seq + data.draw(st.sampled_from([1, -1]))))
        return ms, seq

    def removable(self, id: ID, policy: str) -> bool:
        return policy != "acked" or all(id <= last and id not in pending for last, pending in self.groups.values())

    def forget(self, id: ID, policy: str) -> None:
        self.oracle.pop(id, None)
        if policy == "delref":
            for _, pending in self.groups.values():
                pending.discard(id)

    # --- Rules --------------------------------------------------------------------------------------------------

    @rule(step=STEPS, fields=FIELDS)
    def append(self, step: tuple[int, int], fields: Fields) -> None:
        id = self.last[0] + step[0], max(0, self.last[1] + step[1]) if step[0] == 0 else max(0, 5 + step[1])
        assert self.stream.append(fields, id) == id
        self.oracle[id] = fields
        self.last = id
        self.added += 1

    @rule(ahead=st.integers(-2, 2), fields=FIELDS)
    def append_now(self, ahead: int, fields: Fields) -> None:
        now_ms = self.last[0] + ahead
        id = (now_ms, 0) if now_ms > self.last[0] else (self.last[0], self.last[1] + 1)
        assert self.stream.append(fields, now_ms=now_ms) == id
        self.oracle[id] = fields
        self.last = id
        self.added += 1

    @rule(data=st.data(), policy=st.sampled_from(["keepref", "keepref", "delref", "acked"]))
    def delete(self, data: st.DataObject, policy: str) -> None:
        id = self.an_id(data)
        there = id in self.oracle
        want = "referenced" if not self.removable(id, policy) else "deleted" if there else "missing"
        assert self.stream.delete(id, policy=policy) == want  # type: ignore[arg-type]
        if want != "referenced":
            self.forget(id, policy)
        if want == "deleted":
            self.max_deleted = max(self.max_deleted, id)

    @rule(data=st.data(), policy=st.sampled_from(["keepref", "keepref", "delref"]))
    def trim_exactly(self, data: st.DataObject, policy: str) -> None:
        if data.draw(st.booleans()):
            length = data.draw(st.integers(0, len(self.oracle) + 1))
            gone = list(self.oracle)[: max(0, len(self.oracle) - length)]
            removed = self.stream.trim(max_length=length, policy=policy)  # type: ignore[arg-type]
        else:
            min_id = self.an_id(data)
            gone = list(self.oracle.irange(maximum=min_id, inclusive=(True, False)))
            removed = self.stream.trim(min_id=min_id, policy=policy)  # type: ignore[arg-type]
        assert removed == len(gone)
        for id in gone:
            self.forget(id, policy)

    @rule(data=st.data(), limit=st.integers(0, 10))
    def trim_roughly(self, data: st.DataObject, limit: int) -> None:
        length = data.draw(st.integers(0, len(self.oracle) + 1))
        before = [id for id, _ in self.stream.list_nodes()]
        removed = self.stream.trim(max_length=length, approximate=True, limit=limit)
        assert removed <= max(0, len(self.oracle) - length)
        assert not limit or removed <= limit
        for id in list(self.oracle)[:removed]:
            self.forget(id, "keepref")
        after = [id for id, _ in self.stream.list_nodes()]
        assert after == before[len(before) - len(after) :]

    @rule(data=st.data())
    def trim_what_is_acknowledged(self, data: st.DataObject) -> None:
        min_id = self.an_id(data)
        gone = [id for id in self.oracle.irange(maximum=min_id, inclusive=(True, False)) if self.removable(id, "acked")]
        removed = self.stream.trim(min_id=min_id, policy="acked")
        assert removed == len(gone)
        for id in gone:
            self.forget(id, "acked")

    @precondition(lambda self: len(self.groups) < 2)
    @rule(data=st.data())
    def add_group(self, data: st.DataObject) -> None:
        name = b"g%d" % len(self.groups)
        last = self.an_id(data)
        pending = {id for id in self.oracle.irange(maximum=last) if data.draw(st.booleans())} if self.oracle else set()
        group = Group(name, last)
        group.create_consumer(b"c", now_ms=0)
        for id in pending:
            group.restore_pending(id, b"c", delivery_ms=0, delivery_count=1)
        self.stream.groups[name] = group
        self.groups[name] = last, pending

    @rule(data=st.data(), ahead=st.integers(0, 5))
    def set_ids(self, data: st.DataObject, ahead: int) -> None:
        last = max([self.max_deleted, *list(self.oracle)[-1:]])
        last = last[0] + ahead, last[1]
        self.stream.set_ids(last, entries_added=len(self.oracle) + ahead)
        self.last, self.added = last, len(self.oracle) + ahead

    @rule(data=st.data(), reverse=st.booleans(), count=st.one_of(st.none(), st.integers(0, 5)))
    def read(self, data: st.DataObject, reverse: bool, count: int | None) -> None:
        low, high = self.an_id(data), self.an_id(data)
        want = [(id, self.oracle[id]) for id in self.oracle.irange(low, high)] if low <= high else []
        if reverse:
            want.reverse()
        assert self.stream.range(low, high, reverse=reverse, count=count) == want[:count]

    @rule(data=st.data())
    def look_for(self, data: st.DataObject) -> None:
        id = self.an_id(data)
        assert (id in self.stream) == (id in self.oracle)

    @rule()
    def go_on_with_a_copy(self) -> None:
        twin = self.stream.copy()
        assert twin.list_nodes() == self.stream.list_nodes()
        self.stream.trim(max_length=0)
        self.stream = twin

    # --- What holds after each ------------------------------------------------------------------------------------

    @invariant()
    def is_sound(self) -> None:
        if not hasattr(self, "stream"):
            return
        self.stream.check_invariants()
        assert len(self.stream) == len(self.oracle)
        assert self.stream.entries_added == self.added
        assert self.stream.last_generated_id == self.last
        assert self.stream.max_deleted_entry_id == self.max_deleted
        assert self.stream.first_entry_id == next(iter(self.oracle), (0, 0))
        assert self.stream.last_entry_id == next(reversed(self.oracle), (0, 0))
        for name, (_, pending) in self.groups.items():
            assert {record[0] for record in self.stream.groups[name].pending()} == pending


TestStreamAgainstSortedDict = StreamAgainstSortedDict.TestCase
TestStreamAgainstSortedDict.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
