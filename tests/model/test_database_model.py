"""Two databases against two dictionaries: values, expiry with a clock that the test sets, waiting clients, scans."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.commands.values import Big

from streamd.keyspace.database import Database
from streamd.keyspace.lazyfree import LazyFree

KEYS = [b"key:%d" % number for number in range(16)]
WAITED_FOR = KEYS[:6]

keys = st.sampled_from(KEYS)
numbers = st.sampled_from([0, 1])
times = st.sampled_from([0, 0, 1, 2, 5, 10, 30])  # what expires now has not expired yet


@dataclass
class Held:
    """What the oracle knows of a key."""

    value: Any
    expire_at_ms: int = -1


@dataclass
class Scan:
    """A walk that has begun."""

    database: int
    cursor: int
    promised: set[bytes]  # keys that were there from the first call until now
    returned: set[bytes] = field(default_factory=set)


class DatabasesAgainstDicts(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.ready: dict[Any, None] = {}
        self.trash = LazyFree()
        self.databases = [Database(index, self.ready, self.trash) for index in range(2)]
        self.oracles: list[dict[bytes, Held]] = [{}, {}]
        self.now_ms = 1000
        self.scans: list[Scan] = []
        self.bigs: list[Big] = []
        self.serial = 0
        for db in self.databases:
            db.seed(db.index)
            db.now_ms = self.now_ms
            db.waiters = dict.fromkeys(WAITED_FOR)

    # --- Helpers -------------------------------------------------------------------------------------------------

    def value(self, is_big: bool) -> Any:
        """A value unlike all others."""
        self.serial += 1
        if not is_big:
            return b"%d" % self.serial
        self.bigs.append(Big())
        return self.bigs[-1]

    def live(self, number: int) -> dict[bytes, Held]:
        """What the oracle has, without what has expired."""
        oracle = self.oracles[number]
        for key in [key for key, held in oracle.items() if 0 <= held.expire_at_ms < self.now_ms]:
            del oracle[key]
        return oracle

    def changed(self, number: int, *changed_keys: bytes) -> None:
        """The last rule changed these keys: whoever waits must have been told."""
        for key in set(changed_keys) & set(WAITED_FOR):
            assert (self.databases[number], key) in self.ready
        self.ready.clear()

    # --- Rules ---------------------------------------------------------------------------------------------------

    @rule(ms=st.sampled_from([1, 1, 2, 5]))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        for db in self.databases:
            db.now_ms = self.now_ms

    @rule(number=numbers, key=keys, is_big=st.booleans(), keep_expiry=st.booleans())
    def set(self, number: int, key: bytes, is_big: bool, keep_expiry: bool) -> None:
        value, oracle = self.value(is_big), self.live(number)
        expire_at_ms = oracle[key].expire_at_ms if keep_expiry and key in oracle else -1
        self.databases[number].set(key, value, keep_expiry)
        oracle[key] = Held(value, expire_at_ms)
        self.changed(number, key)

    @rule(
        number=numbers,
        ttls=st.dictionaries(keys, st.sampled_from([-1, 0, 1, 2, 5, 10]), min_size=4),
        is_big=st.booleans(),
    )
    def fill(self, number: int, ttls: dict[bytes, int], is_big: bool) -> None:
        """Many keys at once, because most other rules need some."""
        db, oracle = self.databases[number], self.live(number)
        for key, ttl_ms in ttls.items():
            oracle[key] = Held(self.value(is_big))
            db.set(key, oracle[key].value)
            if ttl_ms >= 0:
                oracle[key].expire_at_ms = self.now_ms + ttl_ms
                db.set_expiry(key, self.now_ms + ttl_ms)
        self.changed(number, *ttls)

    @rule(number=numbers, key=keys)
    def delete(self, number: int, key: bytes) -> None:
        was_there = self.live(number).pop(key, None) is not None
        assert self.databases[number].delete(key) is was_there
        self.changed(number, *([key] if was_there else []))

    @rule(number=numbers, key=keys, ms=times)
    def set_expiry(self, number: int, key: bytes, ms: int) -> None:
        held = self.live(number).get(key)
        assert self.databases[number].set_expiry(key, self.now_ms + ms) is (held is not None)
        if held is not None:
            held.expire_at_ms = self.now_ms + ms

    @rule(number=numbers, key=keys)
    def persist(self, number: int, key: bytes) -> None:
        held = self.live(number).get(key)
        assert self.databases[number].persist(key) is (held is not None and held.expire_at_ms >= 0)
        if held is not None:
            held.expire_at_ms = -1

    @rule(number=numbers, limit=st.integers(1, 5))
    def expire_due(self, number: int, limit: int) -> None:
        db = self.databases[number]
        before = len(db)
        removed = db.expire_due(limit)
        assert 0 <= removed <= limit
        assert len(db) == before - removed
        assert len(db) >= len(self.live(number)), "what is not due stays"
        if removed < limit:
            assert len(db) == len(self.live(number)), "what is due has gone"

    @rule(number=numbers, key=keys, new_key=keys)
    def rename(self, number: int, key: bytes, new_key: bytes) -> None:
        oracle = self.live(number)
        was_there = key in oracle
        assert self.databases[number].rename(key, new_key) is was_there
        if was_there:
            oracle[new_key] = oracle.pop(key)
        self.changed(number, *([key, new_key] if was_there and key != new_key else []))

    @rule(number=numbers, key=keys)
    def move(self, number: int, key: bytes) -> None:
        source, target = self.live(number), self.live(1 - number)
        is_possible = key in source and key not in target
        assert self.databases[number].move(key, self.databases[1 - number]) is is_possible
        if is_possible:
            target[key] = source.pop(key)
            if key in WAITED_FOR:
                assert (self.databases[number], key) in self.ready
        self.changed(1 - number, *([key] if is_possible else []))

    @rule(number=numbers, to=numbers, key=keys, new_key=keys)
    def copy(self, number: int, to: int, key: bytes, new_key: bytes) -> None:
        if number == to and key == new_key:
            return
        source, target = self.live(number), self.live(to)
        was_there = key in source
        assert self.databases[number].copy(key, self.databases[to], new_key) is was_there
        if was_there:
            copied = self.databases[to].peek(new_key)
            if isinstance(copied, Big):
                assert copied is not source[key].value
                self.bigs.append(copied)
            else:
                assert copied == source[key].value
            target[new_key] = Held(copied, source[key].expire_at_ms)
        self.changed(to, *([new_key] if was_there else []))

    @rule(number=numbers)
    def flush(self, number: int) -> None:
        self.databases[number].flush()
        self.oracles[number].clear()
        self.changed(number, *WAITED_FOR)

    @rule()
    def swap(self) -> None:
        self.databases[0].swap_with(self.databases[1])
        self.oracles.reverse()
        self.scans.clear()
        assert len(self.ready) == 2 * len(WAITED_FOR)
        self.ready.clear()

    @rule(budget=st.integers(1, 20))
    def free_a_slice(self, budget: int) -> None:
        pending = self.trash.pending_objects()
        assert self.trash.step(budget) <= budget
        assert self.trash.pending_objects() <= pending + budget

    # --- Scans ---------------------------------------------------------------------------------------------------

    @rule(number=numbers, count=st.integers(1, 12))
    def begin_scan(self, number: int, count: int) -> None:
        self.scans.append(Scan(number, 0, set(self.live(number))))
        self.step(self.scans[-1], count)

    @precondition(lambda self: self.scans)
    @rule(data=st.data(), count=st.integers(1, 12))
    def go_on_with_scan(self, data: st.DataObject, count: int) -> None:
        self.step(data.draw(st.sampled_from(self.scans)), count)

    def step(self, scan: Scan, count: int) -> None:
        cursor, records = self.databases[scan.database].scan(scan.cursor, count)
        assert cursor < scan.cursor or scan.cursor == 0, "a scan ends"
        names = {record.key for record in records}
        assert len(names) == len(records)
        assert names <= set(self.live(scan.database))
        assert not names & scan.returned & scan.promised, "none of them is returned twice"
        scan.returned |= names
        scan.cursor = cursor
        if cursor == 0:
            self.scans.remove(scan)
            assert scan.promised <= scan.returned, "every key that was there all the time has been returned"

    # --- What holds after each rule ------------------------------------------------------------------------------

    @invariant()
    def scans_promise_only_what_stayed(self) -> None:
        for scan in getattr(self, "scans", []):
            scan.promised &= set(self.live(scan.database))

    @invariant()
    def databases_equal_oracles(self) -> None:
        for number, db in enumerate(getattr(self, "databases", [])):
            oracle = self.live(number)
            db.check_invariants()
            assert sorted(db.keys()) == sorted(oracle)
            assert {key: db.expiry(key) for key in oracle} == {key: held.expire_at_ms for key, held in oracle.items()}
            ttls = [held.expire_at_ms for held in oracle.values() if held.expire_at_ms >= 0]
            assert db.expiring >= len(ttls)
            if db.expiring == len(ttls) > 0:
                assert db.avg_ttl == sum(ttls) // len(ttls) - self.now_ms
                assert db.next_expiry_ms == min(ttls)

    @rule(number=numbers, key=keys)
    def look_up(self, number: int, key: bytes) -> None:
        db, held = self.databases[number], self.live(number).get(key)
        hits, misses = db.hits, db.misses
        assert db.find(key) is (held.value if held else None) or db.peek(key) == held.value
        assert (db.hits - hits, db.misses - misses) == ((1, 0) if held else (0, 1))
        assert db.expiry(key) == (held.expire_at_ms if held else -2)
        assert (key in db) is (held is not None)
        found = db.random_key()
        assert found in self.live(number) if self.live(number) else found is None

    def teardown(self) -> None:
        if not hasattr(self, "databases"):
            return
        for db in self.databases:
            db.expire_due(1000)
        self.trash.step(10**6)
        assert not self.trash.has_slices
        held = {id(held.value) for oracle in self.oracles for held in oracle.values()}
        for big in self.bigs:
            if id(big) in held:
                assert not big.is_detached, "what is still there must not be freed"
        live = {id(h.value) for number in range(2) for h in self.live(number).values()}
        for big in self.bigs:
            assert big.is_detached is (id(big) not in live), "what is gone has been freed"


DatabasesAgainstDicts.TestCase.settings = settings(
    max_examples=100, stateful_step_count=80, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestDatabases = DatabasesAgainstDicts.TestCase
