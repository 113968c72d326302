"""Rules of a group against a dict: each entry is undelivered, pending, acknowledged or dead-lettered, and only one of them.

The oracle has for what is pending the delivery count, the owner and the time of the last delivery, and what has been moved. The
dead-letter stream is now and then a string, so that nothing can be moved.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.commands.handler import START_MS, make_context, run, set_time

from streamd.delivery.state import state_of
from streamd.serve.families import load_all

load_all()

MOST = 2**63 - 1
BACK_OFF_MS = 10
LONGEST_MS = 25


@dataclass
class Pending:
    """A pending entry; `owner` is empty if it was given back, and `at_ms` is 0 then. `turn` orders those of one time."""

    count: int
    owner: str
    at_ms: int
    turn: int
    is_failed: bool = False


class RulesAgainstDict(RuleBasedStateMachine):
    @initialize(limit=st.integers(1, 4), factor=st.integers(0, 2), isolate=st.integers(0, 2))
    def begin(self, limit: int, factor: int, isolate: int) -> None:
        self.ctx = make_context(resp=3, stream_node_max_entries=3)
        self.now = START_MS
        self.added = 0
        self.read_to = 0
        self.pending: dict[int, Pending] = {}
        self.dead: list[int] = []
        self.acknowledged: set[int] = set()
        self.is_blocked = False
        self.turn = 0
        run(self.ctx, "XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
        self.set_rule(limit, factor, isolate)

    @rule(limit=st.integers(1, 4), factor=st.integers(0, 2), isolate=st.integers(0, 2))
    def set_rule(self, limit: int, factor: int, isolate: int) -> None:
        """factor: 0 for no back-off; isolate: 0 for none."""
        self.limit, self.factor, self.isolate = limit, factor, isolate
        back_off = ("BACKOFF", BACK_OFF_MS, "FACTOR", factor, "MAX", LONGEST_MS)
        run(self.ctx, "STREAMD.GROUP", "UNSET", "s", "g")
        assert run(
            self.ctx, "STREAMD.GROUP", "SET", "s", "g", "MAXDELIVERIES", limit, "DEADLETTER", "dead",
            *back_off * (factor > 0), *("ISOLATE", isolate) * (isolate > 0),
        ) == b"OK"  # fmt: skip

    @rule(ms=st.integers(1, LONGEST_MS))
    def pass_time(self, ms: int) -> None:
        self.now += ms
        set_time(self.ctx, self.now)

    @rule()
    def block(self) -> None:
        """What could be moved to no longer exists, or does again."""
        if self.is_blocked:
            run(self.ctx, "RENAME", "kept", "dead") if run(self.ctx, "EXISTS", "kept") else run(self.ctx, "DEL", "dead")
        else:
            if run(self.ctx, "EXISTS", "dead"):
                run(self.ctx, "RENAME", "dead", "kept")
            run(self.ctx, "SET", "dead", "no stream")
        self.is_blocked = not self.is_blocked

    @rule(count=st.integers(1, 4))
    def append(self, count: int) -> None:
        for _ in range(count):
            self.added += 1
            run(self.ctx, "XADD", "s", f"{self.added}-0", "f", "v")

    @rule(count=st.integers(1, 4))
    def read(self, count: int) -> None:
        run(self.ctx, "XREADGROUP", "GROUP", "g", "a", "COUNT", count, "STREAMS", "s", ">")
        while count and self.read_to < self.added:
            self.read_to += 1
            self.put(self.read_to, 1, "a")
            count -= 1

    def put(self, entry: int, count: int, owner: str, is_failed: bool = False) -> None:
        self.turn += 1
        self.pending[entry] = Pending(count, owner, self.now if owner else 0, self.turn, is_failed)

    def is_suspect(self, entry: int) -> bool:
        return 0 < self.isolate <= self.pending[entry].count

    def is_idle(self, entry: int, min_idle_ms: int) -> bool:
        known = self.pending[entry]
        return not known.owner or self.now - known.at_ms >= min_idle_ms

    def is_withheld(self, entry: int, force: bool = False) -> bool:
        """Whether a claim does not get an entry that has been idle for long enough; it may be moved."""
        if self.is_held(entry) and not force:
            return True
        if self.pending[entry].count < self.limit:
            return False
        self.moves(entry, self.pending[entry].count)
        return True

    def hand_over(self, entry: int, consumer: str) -> None:
        self.put(entry, min(MOST, self.pending[entry].count + 1), consumer)

    def is_held(self, entry: int) -> bool:
        known = self.pending[entry]
        if not self.factor or not known.owner or not known.count:
            return False
        delay = LONGEST_MS if known.count > 9 else min(LONGEST_MS, BACK_OFF_MS * self.factor ** (known.count - 1))
        return self.now < known.at_ms + delay

    def moves(self, entry: int, count: int) -> bool:
        """Whether an entry with that count is moved by an event; it is no longer pending then."""
        if count < self.limit or self.is_blocked:
            return False
        self.pending.pop(entry, None)
        self.dead.append(entry)
        return True

    @rule(
        data=st.data(), just_id=st.booleans(), force=st.booleans(), consumer=st.sampled_from("ab"),
        min_idle_ms=st.sampled_from([0, 0, 5]),
    )  # fmt: skip
    def claim(self, data: st.DataObject, just_id: bool, force: bool, consumer: str, min_idle_ms: int) -> None:
        entries = data.draw(st.lists(st.integers(1, self.added + 1), min_size=1, max_size=4, unique=True))
        if force:
            entries = [each for each in entries if each in self.pending] or [self.added + 1]
        words = [*["JUSTID"] * just_id, *["FORCE"] * force]
        reply = run(self.ctx, "XCLAIM", "s", "g", consumer, min_idle_ms, *(f"{each}-0" for each in entries), *words)
        got: list[int] = []
        is_alone = False
        for each in entries:
            if each not in self.pending or not self.is_idle(each, min_idle_ms):
                continue
            if just_id and self.pending[each].owner == consumer:
                self.put(each, self.pending[each].count, consumer)
                got.append(each)
                continue
            is_suspect = self.is_suspect(each) and not just_id
            if is_alone or (is_suspect and got):
                continue
            if self.is_withheld(each, force):
                continue
            self.put(each, min(MOST, self.pending[each].count + (not just_id)), consumer)
            got.append(each)
            is_alone = is_suspect
        assert [each if just_id else each[0] for each in reply] == [b"%d-0" % each for each in got]

    @rule(start=st.integers(0, 5), count=st.integers(1, 5), min_idle_ms=st.sampled_from([0, 0, 5]))
    def claim_by_scan(self, start: int, count: int, min_idle_ms: int) -> None:
        _, entries, _ = run(self.ctx, "XAUTOCLAIM", "s", "g", "b", min_idle_ms, f"{start}-0", "COUNT", count)
        got: list[int] = []
        left = 10 * count
        for entry in sorted(self.pending):
            if len(got) == count or not left:
                break
            if entry < start:
                continue
            left -= 1
            if not self.is_idle(entry, min_idle_ms) or self.is_withheld(entry):
                continue
            is_suspect = self.is_suspect(entry)
            if is_suspect and got:
                break
            self.hand_over(entry, "b")
            got.append(entry)
            if is_suspect:
                break
        assert [entry[0] for entry in entries] == [b"%d-0" % each for each in got]

    @rule(min_idle_ms=st.sampled_from([0, 0, 5]))
    def claim_while_reading(self, min_idle_ms: int) -> None:
        """The new entries are read first, so that only claimed ones are left."""
        self.read(100)
        self.pass_time(1)
        reply = run(self.ctx, "XREADGROUP", "GROUP", "g", "c", "CLAIM", min_idle_ms, "STREAMS", "s", ">")
        got: list[int] = []
        is_alone = False
        for entry in sorted(self.pending, key=lambda each: (self.pending[each].at_ms, self.pending[each].turn)):
            if is_alone or not self.is_idle(entry, min_idle_ms):
                break
            if self.is_withheld(entry):
                continue
            is_alone = self.is_suspect(entry)
            if is_alone and got:
                break
            got.append(entry)
        for entry in got:
            self.hand_over(entry, "c")
        assert [int(entry[0].split(b"-")[0]) for entry in (reply[b"s"] if reply else ())] == got

    @rule(data=st.data(), mode=st.sampled_from(["FAIL", "FAIL", "SILENT", "FATAL"]), force=st.booleans())
    def give_back(self, data: st.DataObject, mode: str, force: bool) -> None:
        entry = data.draw(st.integers(1, self.added + 1))
        reply = run(self.ctx, "XNACK", "s", "g", mode, "IDS", 1, f"{entry}-0", *["FORCE"] * force)
        known = self.pending.get(entry)
        assert reply == (known is not None or (force and entry <= self.added))
        if reply:
            count = 0 if known is None else known.count
            count = MOST if mode == "FATAL" else max(0, count - (mode == "SILENT"))
            self.acknowledged.discard(entry)
            if self.moves(entry, count):
                return
            if self.factor and mode == "FAIL" and known is not None and known.owner and count:
                self.put(entry, count, known.owner, is_failed=True)
            else:
                self.put(entry, count, "")

    @rule(count=st.integers(1, 4))
    def redrive(self, count: int) -> None:
        """Entries are never deleted here, so that each letter can be given back."""
        if self.is_blocked:
            return
        assert run(self.ctx, "STREAMD.REDRIVE", "s", "g", "dead", "COUNT", count) == min(count, len(self.dead))
        for entry in self.dead[:count]:
            if entry <= self.read_to and entry not in self.pending:
                self.put(entry, 0, "")
        del self.dead[:count]

    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        entry = data.draw(st.integers(1, self.added + 1))
        assert run(self.ctx, "XACK", "s", "g", f"{entry}-0") == (entry in self.pending)
        if self.pending.pop(entry, None) is not None:
            self.acknowledged.add(entry)

    @rule(consumer=st.sampled_from("abc"))
    def drop_consumer(self, consumer: str) -> None:
        """What it had is pending no more, as in Redis."""
        run(self.ctx, "XGROUP", "DELCONSUMER", "s", "g", consumer)
        for entry in [each for each, known in self.pending.items() if known.owner == consumer]:
            del self.pending[entry]
            self.acknowledged.add(entry)

    @invariant()
    def each_entry_is_in_one_state(self) -> None:
        if not hasattr(self, "ctx"):
            return
        found = run(self.ctx, "XPENDING", "s", "g", "-", "+", 1000)
        assert {int(id.split(b"-")[0]): (count, owner.decode()) for id, owner, _, count in found} == {
            entry: (known.count, known.owner) for entry, known in self.pending.items()
        }
        entries = run(self.ctx, "XRANGE", "kept" if self.is_blocked else "dead", "-", "+")
        moved = [int(dict(zip(f[::2], f[1::2], strict=True))[b"dlq.id"].split(b"-")[0]) for _, f in entries]
        assert sorted(moved) == sorted(self.dead)
        stream = self.ctx.db.peek(b"s")
        assert stream.groups[b"g"].held_count == sum(known.is_failed for known in self.pending.values())
        if not self.is_blocked and not state_of(self.ctx).failures:
            assert b"last-error" not in run(self.ctx, "STREAMD.GROUP", "GET", "s", "g")
        stream.check_invariants()
        self.ctx.db.check_invariants()


TestRulesAgainstDict = RulesAgainstDict.TestCase
TestRulesAgainstDict.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
