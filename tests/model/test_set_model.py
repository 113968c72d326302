"""Sets by their commands against Python's sets: every form, small limits, results of several sets."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.commands.handler import make_context, run

from streamd.keyspace.value_type import type_of
from streamd.persistence.rdb.read import restore_value
from streamd.persistence.rdb.write import dump_value
from streamd.serve.families import load_all

load_all()

KEYS = st.sampled_from(["s", "t", "u"])
MEMBERS = st.one_of(
    st.integers(-3, 30).map(str),
    st.sampled_from(["a", "b", "", "01", "-0", "x" * 64, "y" * 65, str(2**63 - 1), str(-(2**63)), str(2**31)]),
    st.integers(0, 20).map("m{}".format),
)

WIDE = [0, 1, -1, 2**15 - 1, 2**15, -(2**15) - 1, 2**31, -(2**31) - 1, 2**63 - 1, -(2**63)]


class SetsAgainstPython(RuleBasedStateMachine):
    @initialize(bulk=st.sampled_from([0, 100, 600]), words=st.booleans())
    def start(self, bulk: int, words: bool) -> None:
        self.ctx = make_context()
        self.oracle: dict[str, set[bytes]] = {}
        if bulk:
            self.add("s", [f"m{number}" if words else str(number) for number in range(bulk)])

    def of(self, key: str) -> set[bytes]:
        return self.oracle.get(key, set())

    def become(self, key: str, members: set[bytes]) -> None:
        self.oracle[key] = members
        if not members:
            self.oracle.pop(key)

    def add(self, key: str, members: list[str]) -> None:
        new = {member.encode() for member in members}
        assert run(self.ctx, "SADD", key, *members) == len(new - self.of(key))
        self.become(key, self.of(key) | new)

    @rule(key=KEYS, members=st.lists(MEMBERS, min_size=1, max_size=12))
    def sadd(self, key: str, members: list[str]) -> None:
        self.add(key, members)

    @rule(key=KEYS, numbers=st.lists(st.sampled_from(WIDE), min_size=2, max_size=6))
    def integers_of_all_widths(self, key: str, numbers: list[int]) -> None:
        run(self.ctx, "DEL", key)
        self.become(key, set())
        for number in numbers:
            self.add(key, [str(number)])
            assert self.ctx.db.peek(key.encode()).encoding == b"intset"
            assert set(self.ctx.db.peek(key.encode()).members()) == self.of(key)

    @rule(key=KEYS, members=st.lists(MEMBERS, min_size=1, max_size=12))
    def srem(self, key: str, members: list[str]) -> None:
        gone = {member.encode() for member in members} & self.of(key)
        assert run(self.ctx, "SREM", key, *members) == len(gone)
        self.become(key, self.of(key) - gone)

    @rule(source=KEYS, destination=KEYS, member=MEMBERS)
    def smove(self, source: str, destination: str, member: str) -> None:
        moved = member.encode() in self.of(source)
        assert run(self.ctx, "SMOVE", source, destination, member) == moved
        if moved:
            self.become(source, self.of(source) - {member.encode()})
            self.become(destination, self.of(destination) | {member.encode()})

    @rule(key=KEYS, share=st.integers(0, 110))
    def spop(self, key: str, share: int) -> None:
        count = len(self.of(key)) * share // 100
        popped = run(self.ctx, "SPOP", key, str(count))
        assert len(popped) == len(set(popped)) == min(count, len(self.of(key)))
        assert set(popped) <= self.of(key)
        self.become(key, self.of(key) - set(popped))

    @rule(key=KEYS, share=st.integers(0, 110))
    def srandmember(self, key: str, share: int) -> None:
        count = len(self.of(key)) * share // 100
        drawn = run(self.ctx, "SRANDMEMBER", key, str(count))
        assert len(drawn) == len(set(drawn)) == min(count, len(self.of(key)))
        assert set(drawn) <= self.of(key)
        assert set(run(self.ctx, "SRANDMEMBER", key, "-5")) <= self.of(key)

    @rule(key=KEYS, members=st.lists(MEMBERS, min_size=1, max_size=5))
    def smismember(self, key: str, members: list[str]) -> None:
        assert run(self.ctx, "SMISMEMBER", key, *members) == [member.encode() in self.of(key) for member in members]

    @rule(destination=KEYS, sources=st.lists(KEYS, min_size=1, max_size=3), limit=st.integers(0, 20))
    def combine(self, destination: str, sources: list[str], limit: int) -> None:
        sets = [self.of(key) for key in sources]
        intersection = set.intersection(*sets)
        difference = sets[0].difference(*sets[1:])
        union = set().union(*sets)
        for name, wanted in (("SINTER", intersection), ("SDIFF", difference), ("SUNION", union)):
            found = run(self.ctx, name, *sources)
            assert len(found) == len(wanted)
            assert set(found) == wanted
        counted = run(self.ctx, "SINTERCARD", str(len(sources)), *sources, "LIMIT", str(limit))
        assert counted == (min(limit, len(intersection)) if limit else len(intersection))
        name, wanted = (("SINTER", intersection), ("SDIFF", difference), ("SUNION", union))[limit % 3]
        assert run(self.ctx, f"{name}STORE", destination, *sources) == len(wanted)
        self.become(destination, wanted)

    @rule(key=KEYS)
    def copy_and_reload(self, key: str) -> None:
        value = self.ctx.db.peek(key.encode())
        if value is not None:
            self.ctx.db.set(key.encode(), type_of(value).copy(value))
            self.ctx.db.set(key.encode(), restore_value(dump_value(value)))

    @invariant()
    def agrees(self) -> None:
        self.ctx.db.check_invariants()
        assert sorted(self.ctx.db.keys()) == sorted(key.encode() for key in self.oracle)
        for key, members in self.oracle.items():
            value = self.ctx.db.peek(key.encode())
            value.check_invariants()
            assert set(value.members()) == members
            assert run(self.ctx, "SCARD", key) == len(members)
            cursor, found = "0", set()
            while True:
                cursor, page = run(self.ctx, "SSCAN", key, cursor, "COUNT", "50")
                found.update(page)
                if cursor == b"0":
                    break
            assert found == members


TestSets = SetsAgainstPython.TestCase
TestSets.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
