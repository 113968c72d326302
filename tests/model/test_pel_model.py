"""PelProbe against a SortedDict of entry IDs: single steps and long runs, so that chunks split, join and vanish."""

from __future__ import annotations

from itertools import islice
from typing import cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from sortedcontainers import SortedDict
from support.compiled import compiled

pel_probe = compiled("pel_probe")
PelProbe, PelWalk = pel_probe.PelProbe, pel_probe.PelWalk

ID = tuple[int, int]
Record = tuple[ID, int | None, int, int]
Bound = tuple[ID, bool]
Place = tuple[int, int, int, ID]  # 0: in the NACK zone, 1: delivery time or place in the zone, turn, ID

MAX = 2**64 - 1
PARTS = st.one_of(st.integers(0, 30), st.sampled_from([2**32, 2**63, MAX - 1, MAX]))
TIMES = st.one_of(st.integers(0, 40), st.sampled_from([0, 2**63 - 1]))


class PelAgainstSortedDict(RuleBasedStateMachine):
    @initialize(owners=st.integers(1, 4))
    def start(self, owners: int) -> None:
        self.pel = PelProbe()
        self.oracle: SortedDict[ID, tuple[int | None, int, int]] = SortedDict()  # ID -> owner, delivery time, count
        self.zone: dict[ID, int] = {}  # the NACK zone: ID -> place
        self.zone_next = 0
        self.held: set[ID] = set()  # held back
        self.turns: dict[ID, int] = {}  # which setting of a delivery time was the ID's last
        self.turn = 0
        self.owners = [self.pel.add_owner() for _ in range(owners)]
        self.walk: PelWalk | None = None  # a walk over all by ID, in the middle
        self.next_id: Bound = (0, 0), True  # where it goes on; True: there, else above
        self.walk_oldest: PelWalk | None = None  # the same by time
        self.met: Place | None = None  # where it has met a record last

    # --- What to work on ----------------------------------------------------------------------------------------

    def some_id(self, data: st.DataObject) -> ID:
        """An ID that is pending, one beside it, or any."""
        if self.oracle and data.draw(st.integers(0, 3)):
            ms, seq = self.known(data)
            return ms, min(MAX, max(0, seq + data.draw(st.sampled_from([0, 0, 1, -1]))))
        return data.draw(PARTS), data.draw(PARTS)

    def known(self, data: st.DataObject) -> ID:
        entry: ID = self.oracle.keys()[data.draw(st.integers(0, len(self.oracle) - 1))]
        return entry

    def an_owner(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from(self.owners))

    def run(self, data: st.DataObject) -> list[ID]:
        """Pending IDs that follow each other, from somewhere."""
        start = data.draw(st.integers(0, len(self.oracle)))
        return list(self.oracle.keys()[start : start + data.draw(st.integers(1, 300))])

    def insert_one(self, entry: ID, owner: int, delivery_ms: int, count: int = 1) -> None:
        if entry not in self.oracle:
            self.pel.insert(entry, owner, delivery_ms, count)
            self.oracle[entry] = owner, delivery_ms, count
            self.take_turn(entry)

    def take_turn(self, entry: ID) -> None:
        self.turn = (self.turn + 1) % 2**32
        self.turns[entry] = self.turn

    def by_time(self, record: Record) -> Place:
        entry = record[0]
        if entry in self.zone:
            return 0, self.zone[entry], 0, entry
        return 1, record[2], self.turns[entry], entry

    def remove_one(self, entry: ID) -> None:
        self.pel.remove(entry)
        del self.oracle[entry]
        self.held.discard(entry)
        self.leave_zone(entry)

    def enter_zone(self, entry: ID) -> None:
        self.zone[entry] = self.zone_next
        self.zone_next += 1

    def leave_zone(self, entry: ID) -> None:
        if self.zone.pop(entry, None) is not None and not self.zone:
            self.zone_next = 0

    def disown_one(self, entry: ID) -> None:
        self.pel.disown(entry)
        self.held.discard(entry)
        self.oracle[entry] = None, 0, self.oracle[entry][2]
        self.enter_zone(entry)

    def set_time_of(self, entry: ID, delivery_ms: int) -> None:
        if entry in self.zone:
            return
        self.pel.set_time(entry, delivery_ms)
        self.held.discard(entry)
        owner, _, count = self.oracle[entry]
        self.oracle[entry] = owner, delivery_ms, count
        self.take_turn(entry)

    def assign_one(self, entry: ID, owner: int) -> None:
        if entry in self.zone:
            return
        self.pel.assign(entry, owner)
        if owner != self.oracle[entry][0]:
            self.held.discard(entry)
        self.oracle[entry] = owner, *self.oracle[entry][1:]

    # --- Steps --------------------------------------------------------------------------------------------------

    @rule(data=st.data(), delivery_ms=TIMES, count=st.sampled_from([0, 1, MAX]))
    def insert(self, data: st.DataObject, delivery_ms: int, count: int) -> None:
        self.insert_one(self.some_id(data), self.an_owner(data), delivery_ms, count)

    @rule(
        data=st.data(),
        length=st.integers(100, 400),
        descending=st.booleans(),
        step=st.sampled_from([1, 1, 2, 1000]),
        per_ms=st.sampled_from([1, 10, 1000]),
        time_step=st.sampled_from([1, 1, 0, -1]),
        delivery_ms=TIMES,
    )
    def insert_run(
        self,
        data: st.DataObject,
        length: int,
        descending: bool,
        step: int,
        per_ms: int,
        time_step: int,
        delivery_ms: int,
    ) -> None:
        if len(self.oracle) > 1500:
            return
        ms, seq = self.some_id(data)
        owners = [self.an_owner(data), self.an_owner(data)]
        places = range(length - 1, -1, -1) if descending else range(length)
        for n, place in enumerate(places):
            entry = min(MAX, ms + place // per_ms), min(MAX, seq + place % per_ms * step)
            time = min(2**63 - 1, max(0, delivery_ms + n // 20 * time_step))
            self.insert_one(entry, owners[n % 2], time)

    @precondition(lambda self: self.oracle)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        self.remove_one(self.known(data))

    @rule(data=st.data(), descending=st.booleans(), stride=st.sampled_from([1, 1, 2, 5, 40]))
    def remove_run(self, data: st.DataObject, descending: bool, stride: int) -> None:
        run = self.run(data)
        for n, entry in enumerate(reversed(run) if descending else run):
            if stride == 1 or n % stride:
                self.remove_one(entry)

    @precondition(lambda self: self.oracle)
    @rule(data=st.data(), delivery_ms=TIMES)
    def set_time(self, data: st.DataObject, delivery_ms: int) -> None:
        self.set_time_of(self.known(data), delivery_ms)

    @rule(data=st.data(), delivery_ms=TIMES, step=st.sampled_from([0, 1, -1]))
    def set_time_of_run(self, data: st.DataObject, delivery_ms: int, step: int) -> None:
        for n, entry in enumerate(self.run(data)):
            self.set_time_of(entry, min(2**63 - 1, max(0, delivery_ms + n * step)))

    @precondition(lambda self: self.oracle)
    @rule(data=st.data(), rotation=st.integers(0, 300))
    def renew_run(self, data: st.DataObject, rotation: int) -> None:
        """Give many the delivery time of one, themselves among them, from somewhere in the middle on."""
        delivery_ms = self.oracle[self.known(data)][1]
        run = self.run(data)
        for entry in run[rotation:] + run[:rotation]:
            self.set_time_of(entry, delivery_ms)

    @rule(steps=st.integers(0, 200))
    def let_turns_restart_log(self, steps: int) -> None:
        self.turn = self.pel.turn = 2**32 - 1 - steps

    @rule(steps=st.integers(1, 200))
    def let_turns_come_again(self, steps: int) -> None:
        self.turn = self.pel.turn = max(0, self.turn - steps)

    @precondition(lambda self: self.oracle)
    @rule(data=st.data())
    def assign(self, data: st.DataObject) -> None:
        self.assign_one(self.known(data), self.an_owner(data))

    @rule(data=st.data(), stride=st.sampled_from([1, 2, 7]))
    def assign_run(self, data: st.DataObject, stride: int) -> None:
        owner = self.an_owner(data)
        for entry in self.run(data)[::stride]:
            self.assign_one(entry, owner)

    @rule(data=st.data(), count=st.sampled_from([0, 1, MAX]))
    def insert_unowned(self, data: st.DataObject, count: int) -> None:
        entry = self.some_id(data)
        if entry not in self.oracle:
            self.pel.insert_unowned(entry, count)
            self.oracle[entry] = None, 0, count
            self.enter_zone(entry)

    @rule(data=st.data(), descending=st.booleans(), stride=st.sampled_from([1, 2, 7]))
    def disown_run(self, data: st.DataObject, descending: bool, stride: int) -> None:
        run = self.run(data)[::stride]
        for entry in reversed(run) if descending else run:
            self.disown_one(entry)

    @rule(data=st.data(), failed_ms=TIMES, stride=st.sampled_from([1, 2, 7]))
    def hold_run(self, data: st.DataObject, failed_ms: int, stride: int) -> None:
        for entry in self.run(data)[::stride]:
            if entry not in self.zone:
                self.pel.hold(entry, failed_ms)
                self.oracle[entry] = self.oracle[entry][0], failed_ms, self.oracle[entry][2]
                self.take_turn(entry)
                self.held.add(entry)

    @rule(data=st.data(), delivery_ms=TIMES, most=st.sampled_from([1, 5, 300]))
    def adopt_run(self, data: st.DataObject, delivery_ms: int, most: int) -> None:
        owner = self.an_owner(data)
        for entry in list(self.zone)[:most]:
            self.pel.adopt(entry, owner, delivery_ms)
            self.oracle[entry] = owner, delivery_ms, self.oracle[entry][2]
            self.leave_zone(entry)
            self.take_turn(entry)

    @rule(data=st.data())
    def drop_and_add_owner(self, data: st.DataObject) -> None:
        owner = self.an_owner(data)
        self.pel.drop_owner(owner)
        for entry in [entry for entry, record in self.oracle.items() if record[0] == owner]:
            del self.oracle[entry]
            self.held.discard(entry)
        self.walk = self.walk_oldest = None
        self.owners.remove(owner)
        self.owners.append(self.pel.add_owner())
        if len(self.owners) < 5 and data.draw(st.booleans()):
            self.owners.append(self.pel.add_owner())

    # --- A walk between the other steps -------------------------------------------------------------------------

    @rule(data=st.data())
    def begin_walk(self, data: st.DataObject) -> None:
        entry = self.some_id(data)
        self.walk = self.pel.walk(None, entry)
        self.next_id = entry, True

    @precondition(lambda self: self.walk is not None)
    @rule(steps=st.integers(1, 200))
    def go_on(self, steps: int) -> None:
        walk = cast(PelWalk, self.walk)
        for _ in range(steps):
            entry, inclusive = self.next_id
            following = next(self.oracle.irange(entry, inclusive=(inclusive, True)), None)
            assert next(walk, None) == (None if following is None else self.record(following))
            if following is None:
                return
            self.next_id = following, False

    @rule(steps=st.integers(1, 200), anew=st.sampled_from([False, False, False, True]))
    def go_on_by_time(self, steps: int, anew: bool) -> None:
        if anew or self.walk_oldest is None:
            self.walk_oldest = self.pel.walk_oldest()
            self.met = None
        records = sorted(map(self.record, self.oracle), key=self.by_time)
        following = [record for record in records if self.met is None or self.by_time(record) > self.met]
        met = list(islice(self.walk_oldest, steps))
        assert met == following[:steps]
        if met:
            self.met = self.by_time(met[-1])

    # --- What must agree ----------------------------------------------------------------------------------------

    def record(self, entry: ID) -> Record:
        return entry, *self.oracle[entry]

    @rule(data=st.data())
    def search(self, data: st.DataObject) -> None:
        entry = self.some_id(data)
        assert self.pel.find(entry) == (self.record(entry) if entry in self.oracle else None)
        following = [self.record(other) for other in self.oracle.irange(entry)]
        assert list(self.pel.walk(None, entry)) == following
        owner = self.an_owner(data)
        assert list(self.pel.walk(owner, entry)) == [record for record in following if record[1] == owner]

    @invariant()
    def agree(self) -> None:
        self.pel.check_invariants()
        records = [self.record(entry) for entry in self.oracle]
        assert len(self.pel) == len(records)
        assert self.pel.unowned == len(self.zone)
        assert self.pel.held == len(self.held)
        assert list(self.pel.walk()) == records
        assert list(self.pel.walk_oldest()) == sorted(records, key=self.by_time)
        assert self.pel.first() == (records[0] if records else None)
        assert self.pel.last() == (records[-1] if records else None)
        assert self.pel.oldest() == min(records, key=self.by_time, default=None)
        for owner in self.owners:
            assert self.pel.owner_size(owner) == sum(record[1] == owner for record in records)


PelAgainstSortedDict.TestCase.settings = settings(max_examples=100, stateful_step_count=25, deadline=None)
TestPel = PelAgainstSortedDict.TestCase
