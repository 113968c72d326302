"""STREAMD.COUNT and STREAMD.LAG against a dict of entries, on nodes of three entries, through the commands that change streams.

The oracle is a dict of live IDs, and for the group its position and the set of what is pending. What was deleted, trimmed or
set may lie ahead of the group or behind it, and pending entries may have been deleted (ghosts).
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.commands.handler import START_MS, make_context, run, set_time

from streamd.serve.families import load_all

load_all()

ID = tuple[int, int]
MAX = 2**64 - 1
STEPS = st.sampled_from([(0, 1), (0, 1), (0, 300), (1, 0), (256, 0), (70_000, 0), (2**40, 0)])


def text(id: ID) -> str:
    return f"{id[0]}-{id[1]}"


class CountsAgainstDict(RuleBasedStateMachine):
    @initialize(node_max_entries=st.sampled_from([3, 3, 1, 100, 0]), start=st.sampled_from([(0, 0), (START_MS, 5)]))
    def begin(self, node_max_entries: int, start: ID) -> None:
        self.ctx = make_context(resp=3, stream_node_max_entries=node_max_entries, stream_node_max_bytes=4096)
        self.entries: dict[ID, None] = {}
        self.pending: set[ID] = set()
        self.last = start
        self.max_deleted: ID = (0, 0)
        self.position: ID = (0, 0)
        run(self.ctx, "XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
        self.now = START_MS

    def an_id(self, data: st.DataObject) -> ID:
        """An ID that exists or has existed, one next to it, or a bound."""
        kind = data.draw(st.integers(0, 9))
        known = [*self.entries, *sorted(self.pending), self.position, self.last]
        ms, seq = data.draw(st.sampled_from(known))
        if kind == 0:
            return data.draw(st.sampled_from([(0, 0), (MAX, MAX), self.max_deleted]))
        return (ms, min(MAX, max(0, seq + data.draw(st.sampled_from([1, -1]))))) if kind == 1 else (ms, seq)

    # --- Changes ------------------------------------------------------------------------------------------------------

    @rule(steps=st.lists(STEPS, min_size=1, max_size=20))
    def append(self, steps: list[ID]) -> None:
        for step_ms, step_seq in steps:
            id = (self.last[0] + step_ms, self.last[1] + step_seq if step_ms == 0 else 0)
            run(self.ctx, "XADD", "s", text(id), "f", "v")
            self.entries[id] = None
            self.last = id

    @rule(data=st.data(), policy=st.sampled_from(["KEEPREF", "KEEPREF", "DELREF", "ACKED"]))
    def delete(self, data: st.DataObject, policy: str) -> None:
        id = self.an_id(data)
        if policy == "KEEPREF":
            assert run(self.ctx, "XDEL", "s", text(id)) == (id in self.entries)
        else:
            if policy == "ACKED" and (id in self.pending or id > self.position):
                assert run(self.ctx, "XDELEX", "s", policy, "IDS", 1, text(id)) == [2]
                return
            assert run(self.ctx, "XDELEX", "s", policy, "IDS", 1, text(id)) == [1 if id in self.entries else -1]
            self.pending.discard(id)
        if id in self.entries:
            del self.entries[id]
            self.max_deleted = max(self.max_deleted, id)

    @rule(data=st.data(), by_length=st.booleans())
    def trim(self, data: st.DataObject, by_length: bool) -> None:
        if by_length:
            length = data.draw(st.integers(0, len(self.entries) + 1))
            gone = sorted(self.entries)[: max(0, len(self.entries) - length)]
            assert run(self.ctx, "XTRIM", "s", "MAXLEN", length) == len(gone)
        else:
            low = self.an_id(data)
            gone = [id for id in self.entries if id < low]
            assert run(self.ctx, "XTRIM", "s", "MINID", text(low)) == len(gone)
        for id in gone:
            del self.entries[id]

    @rule(length=st.integers(0, 12))
    def trim_roughly(self, length: int) -> None:
        removed = run(self.ctx, "XTRIM", "s", "MAXLEN", "~", length)
        for id in sorted(self.entries)[:removed]:
            del self.entries[id]

    @rule(ahead=st.sampled_from([0, 1, 1000]))
    def set_last_id(self, ahead: int) -> None:
        self.last = (self.last[0] + ahead, self.last[1] + 1)
        run(self.ctx, "XSETID", "s", text(self.last), "ENTRIESADDED", len(self.entries) + ahead, "MAXDELETEDID", "0-0")
        self.max_deleted = (0, 0)

    # --- The group ----------------------------------------------------------------------------------------------------

    @rule(count=st.integers(1, 9), no_ack=st.booleans())
    def read(self, count: int, no_ack: bool) -> None:
        new = sorted(id for id in self.entries if id > self.position)[:count]
        run(self.ctx, "XREADGROUP", "GROUP", "g", "c", "COUNT", count, *["NOACK"] * no_ack, "STREAMS", "s", ">")
        if new:
            self.position = new[-1]
            self.pending |= set() if no_ack else set(new)

    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        id = self.an_id(data)
        assert run(self.ctx, "XACK", "s", "g", text(id)) == (id in self.pending)
        self.pending.discard(id)

    @rule(data=st.data())
    def set_position(self, data: st.DataObject) -> None:
        self.position = self.an_id(data)
        run(self.ctx, "XGROUP", "SETID", "s", "g", text(self.position))

    @rule(minutes=st.integers(1, 10**7))
    def wait(self, minutes: int) -> None:
        self.now += minutes * 60_000
        set_time(self.ctx, self.now)

    @rule()
    def copy(self) -> None:
        run(self.ctx, "COPY", "s", "t", "REPLACE")
        run(self.ctx, "RENAME", "t", "s")

    # --- Questions ----------------------------------------------------------------------------------------------------

    @rule(data=st.data(), opens=st.tuples(st.booleans(), st.booleans()))
    def count(self, data: st.DataObject, opens: tuple[bool, bool]) -> None:
        low, high = self.an_id(data), self.an_id(data)
        bounds = ["(" * is_open + text(id) for id, is_open in zip((low, high), opens, strict=True)]
        want = [
            id for id in self.entries
            if low <= id <= high and not (opens[0] and id == low) and not (opens[1] and id == high)
        ]  # fmt: skip
        if (opens[0] and low == (MAX, MAX)) or (opens[1] and high == (0, 0)):
            return  # refused, as by XRANGE
        assert run(self.ctx, "STREAMD.COUNT", "s", *bounds) == len(want)

    @invariant()
    def counts_are_exact(self) -> None:
        if not hasattr(self, "ctx"):
            return
        undelivered = sorted(id for id in self.entries if id > self.position)
        lag = {
            b"undelivered": len(undelivered),
            b"pending": len(self.pending),
            b"lag-ms": max(0, self.now - undelivered[0][0]) if undelivered else 0,
            b"oldest-pending-ms": max(0, self.now - min(self.pending)[0]) if self.pending else 0,
            b"held-back": 0,
            b"passed-over": 0,
            b"dead-lettered": 0,
        }
        assert run(self.ctx, "STREAMD.LAG", "s", "g") == lag
        assert run(self.ctx, "STREAMD.LAG", "s") == {b"g": lag}
        assert run(self.ctx, "STREAMD.COUNT", "s") == len(self.entries)
        self.ctx.db.peek(b"s").check_invariants()


TestCountsAgainstDict = CountsAgainstDict.TestCase
TestCountsAgainstDict.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
