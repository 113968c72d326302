"""Hash against a dict, in all its forms; and the times of hashes in a database."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.commands.handler import HandlerContext, make_context, run

from streamd.serve.families import load_all
from streamd.values.hashes.hash import Hash

load_all()

NAMES = st.one_of(
    st.integers(0, 30).map(lambda number: b"f%d" % number),
    st.sampled_from([b"", b"7", b"-1", b"007", b"x" * 63, b"x" * 64, b"y" * 130, b"z" * 20_000]),
)
VALUES = st.one_of(
    st.sampled_from([b"", b"17", b"v" * 62, b"v" * 63, b"v" * 64, b"w" * 65, b"w" * 8191, b"w" * 8192, b"u" * 70_000]),
    st.integers(-(2**63), 2**63 - 1).map(lambda number: b"%d" % number),
    st.binary(max_size=20),
)
TIMES = st.one_of(st.just(-1), st.integers(1, 40))


class HashAgainstDict(RuleBasedStateMachine):
    @initialize(form=st.sampled_from(["packed", "timed", "growing", "table"]))
    def start(self, form: str) -> None:
        context = make_context()
        run(context, "HSET", "h", "first", "value")
        self.hash: Hash = context.db.peek(b"h")
        self.oracle: dict[bytes, tuple[bytes, int]] = {b"first": (b"value", -1)}
        self.only_packed = form == "packed"
        self.is_growing = form == "growing"
        if form == "table":
            self.hash.to_table()

    @rule(names=st.lists(NAMES, min_size=1, max_size=8), value=VALUES, time=TIMES)
    def put(self, names: list[bytes], value: bytes, time: int) -> None:
        for name in names:
            at_ms = -1 if self.only_packed else time
            assert self.hash.put(name, value, at_ms) == (name not in self.oracle)
            self.oracle[name] = (value, at_ms)

    @rule(name=NAMES, time=TIMES)
    def expire(self, name: bytes, time: int) -> None:
        if self.only_packed:
            return
        assert self.hash.expire(name, time) == (name in self.oracle)
        if name in self.oracle:
            self.oracle[name] = (self.oracle[name][0], time)

    @rule(data=st.data(), names=st.lists(NAMES, max_size=3), most=st.integers(0, 10))
    def remove(self, data: st.DataObject, names: list[bytes], most: int) -> None:
        present = (
            data.draw(st.lists(st.sampled_from(sorted(self.oracle)), max_size=most, unique=True)) if self.oracle else []
        )
        for name in [*names, *present]:
            assert self.hash.remove(name) == (self.oracle.pop(name, None) is not None)

    @rule()
    def become_a_table(self) -> None:
        if self.is_growing:
            self.hash.to_table()

    @rule()
    def continue_with_a_copy(self) -> None:
        original, self.hash = self.hash, self.hash.copy()
        original.put(b"first", b"changed")
        original.remove(b"f1")

    @rule(name=NAMES)
    def find(self, name: bytes) -> None:
        assert self.hash.find(name) == self.oracle.get(name)

    @invariant()
    def it_has_what_the_oracle_has(self) -> None:
        if not hasattr(self, "hash"):
            return
        assert {name: (value, time) for name, value, time in self.hash.items()} == self.oracle
        assert len(self.hash) == len(self.oracle)
        assert self.hash.due_ms == min((time for _, time in self.oracle.values() if time >= 0), default=-1)
        self.hash.check_invariants()


TestHashAgainstDict = HashAgainstDict.TestCase
TestHashAgainstDict.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)

KEYS = st.sampled_from(["h", "k", "l"])
FIELDS = st.sampled_from(["a", "b", "c", "d"])


class HashesInADatabase(RuleBasedStateMachine):
    """The database knows at any time which hash is due first, whatever happens to keys."""

    @initialize(limit=st.sampled_from([512, 2]))
    def start(self, limit: int) -> None:
        self.ctx: HandlerContext = make_context()
        self.limit = limit

    def run(self, *args: str | int) -> object:
        return run(self.ctx, *args)

    @rule(key=KEYS, field=FIELDS, value=st.sampled_from(["1", "v" * 70]))
    def hset(self, key: str, field: str, value: str) -> None:
        self.run("HSET", key, field, value)

    @rule(key=KEYS, field=FIELDS, ms=st.integers(0, 50))
    def hpexpire(self, key: str, field: str, ms: int) -> None:
        self.run("HPEXPIRE", key, ms, "FIELDS", 1, field)

    @rule(key=KEYS, field=FIELDS, words=st.sampled_from([("HDEL",), ("HGET",), ("HINCRBY", 1), ("HSETNX", 1)]))
    def change_a_field(self, key: str, field: str, words: tuple[str | int, ...]) -> None:
        self.run(words[0], key, field, *words[1:])

    @rule(key=KEYS, field=FIELDS, word=st.sampled_from(["HPERSIST", "HGETDEL", "HGETEX"]))
    def change_by_count(self, key: str, field: str, word: str) -> None:
        self.run(word, key, "FIELDS", 1, field)

    @rule(key=KEYS, other=KEYS, word=st.sampled_from(["RENAME", "COPY", "SET", "DEL", "FLUSHDB", "SWAPDB", "MOVE"]))
    def change_keys(self, key: str, other: str, word: str) -> None:
        db = self.ctx.db
        source, target = key.encode(), other.encode()
        if word == "RENAME":
            db.rename(source, target)
        elif word == "COPY" and key != other:
            db.copy(source, db, target)
        elif word == "SET":
            db.set(source, b"a string")
            db.delete(source)
        elif word == "DEL":
            db.delete(source)
        elif word == "FLUSHDB":
            db.flush()
        elif word == "SWAPDB":
            db.swap_with(self.ctx.databases[1])
        elif word == "MOVE":
            db.move(source, self.ctx.databases[1])

    @rule(ms=st.integers(1, 30), limit=st.integers(1, 5))
    def let_time_pass(self, ms: int, limit: int) -> None:
        self.ctx.now_ms += ms
        for db in self.ctx.databases:
            db.now_ms = self.ctx.now_ms
        while self.ctx.db.run_timed(limit):
            pass
        assert self.ctx.db.next_timed_ms == -1 or self.ctx.db.next_timed_ms >= self.ctx.now_ms

    @invariant()
    def the_database_is_sound(self) -> None:
        if hasattr(self, "ctx"):
            for db in self.ctx.databases[:2]:
                db.check_invariants()


TestHashesInADatabase = HashesInADatabase.TestCase
TestHashesInADatabase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
