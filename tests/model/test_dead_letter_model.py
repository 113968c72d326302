"""Dead letters against a dict: each entry is undelivered, pending, acknowledged or dead-lettered, and only one of them.

The oracle has the delivery count of what is pending, and what has been moved. The dead-letter stream is now and then a string, so that
nothing can be moved.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.commands.handler import START_MS, make_context, run, set_time

from streamd.delivery.failures import state_of
from streamd.serve.families import load_all

load_all()

MOST = 2**63 - 1


class DeadLettersAgainstDict(RuleBasedStateMachine):
    @initialize(limit=st.integers(1, 4))
    def begin(self, limit: int) -> None:
        self.ctx = make_context(resp=3, stream_node_max_entries=3)
        self.now = START_MS
        self.limit = limit
        self.added = 0
        self.read_to = 0
        self.pending: dict[int, int] = {}
        self.dead: list[int] = []
        self.acknowledged: set[int] = set()
        self.is_blocked = False
        run(self.ctx, "XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
        self.set_limit(limit)

    @rule(limit=st.integers(1, 4))
    def set_limit(self, limit: int) -> None:
        assert run(self.ctx, "STREAMD.GROUP", "SET", "s", "g", "MAXDELIVERIES", limit, "DEADLETTER", "dead") == b"OK"
        self.limit = limit

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
            self.pending[self.read_to] = 1
            count -= 1

    def moves(self, entry: int, count: int) -> bool:
        """Whether an entry with that count is moved by an event; it is no longer pending then."""
        if count < self.limit or self.is_blocked:
            return False
        self.pending.pop(entry, None)
        self.dead.append(entry)
        return True

    def deliver(self, entry: int) -> bool:
        """Whether a claim delivers a pending entry."""
        if self.pending[entry] >= self.limit:
            self.moves(entry, self.pending[entry])
            return False
        self.pending[entry] += 1
        return True

    @rule(data=st.data(), just_id=st.booleans())
    def claim(self, data: st.DataObject, just_id: bool) -> None:
        entries = data.draw(st.lists(st.integers(1, self.added + 1), min_size=1, max_size=4, unique=True))
        reply = run(self.ctx, "XCLAIM", "s", "g", "b", 0, *(f"{each}-0" for each in entries), *["JUSTID"] * just_id)
        known = [each for each in entries if each in self.pending]
        got = known if just_id else [each for each in known if self.deliver(each)]
        assert [each if just_id else each[0] for each in reply] == [b"%d-0" % each for each in got]

    @rule(start=st.integers(0, 5), count=st.integers(1, 5))
    def claim_by_scan(self, start: int, count: int) -> None:
        _, entries, _ = run(self.ctx, "XAUTOCLAIM", "s", "g", "b", 0, f"{start}-0", "COUNT", count)
        got: list[int] = []
        for entry in [each for each in sorted(self.pending) if each >= start][: 10 * count]:  # as many are looked at
            if len(got) == count:
                break
            if self.deliver(entry):
                got.append(entry)
        assert [entry[0] for entry in entries] == [b"%d-0" % each for each in got]

    @rule()
    def claim_while_reading(self) -> None:
        """The new entries are read first, so that only claimed ones are left."""
        self.read(100)
        self.now += 1
        set_time(self.ctx, self.now)
        reply = run(self.ctx, "XREADGROUP", "GROUP", "g", "c", "CLAIM", 0, "STREAMS", "s", ">")
        got = [entry for entry in sorted(self.pending) if self.deliver(entry)]
        assert sorted(int(entry[0].split(b"-")[0]) for entry in (reply[b"s"] if reply else ())) == got

    @rule(data=st.data(), mode=st.sampled_from(["FAIL", "FAIL", "SILENT", "FATAL"]), force=st.booleans())
    def give_back(self, data: st.DataObject, mode: str, force: bool) -> None:
        entry = data.draw(st.integers(1, self.added + 1))
        reply = run(self.ctx, "XNACK", "s", "g", mode, "IDS", 1, f"{entry}-0", *["FORCE"] * force)
        is_known = entry in self.pending or (force and entry <= self.added)
        assert reply == is_known
        if is_known:
            count = self.pending.get(entry, 0)
            count = MOST if mode == "FATAL" else max(0, count - (mode == "SILENT"))
            self.acknowledged.discard(entry)
            if not self.moves(entry, count):
                self.pending[entry] = count

    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        entry = data.draw(st.integers(1, self.added + 1))
        assert run(self.ctx, "XACK", "s", "g", f"{entry}-0") == (entry in self.pending)
        if self.pending.pop(entry, None) is not None:
            self.acknowledged.add(entry)

    @invariant()
    def each_entry_is_in_one_state(self) -> None:
        if not hasattr(self, "ctx"):
            return
        found = run(self.ctx, "XPENDING", "s", "g", "-", "+", 1000)
        assert {int(id.split(b"-")[0]): count for id, _, _, count in found} == self.pending
        entries = run(self.ctx, "XRANGE", "kept" if self.is_blocked else "dead", "-", "+")
        moved = [int(dict(zip(f[::2], f[1::2], strict=True))[b"dlq.id"].split(b"-")[0]) for _, f in entries]
        assert sorted(moved) == sorted(self.dead)
        if not self.is_blocked and not state_of(self.ctx).failures:
            assert b"last-error" not in run(self.ctx, "STREAMD.GROUP", "GET", "s", "g")
        self.ctx.db.peek(b"s").check_invariants()
        self.ctx.db.check_invariants()


TestDeadLettersAgainstDict = DeadLettersAgainstDict.TestCase
TestDeadLettersAgainstDict.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
