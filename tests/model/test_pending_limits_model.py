"""Limits on what is in the hands of consumers, against a dict: reads of new entries get what there is room for, and no less."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.commands.handler import make_context, run

from streamd.serve.families import load_all

load_all()

CONSUMERS = "abc"
GIVEN_BACK = ""
FAILED = "failed"


class LimitsAgainstDict(RuleBasedStateMachine):
    """The oracle has for each pending entry who has it in hand: a consumer, or nobody, since it was given back or failed."""

    @initialize(limit=st.integers(0, 5), each=st.integers(0, 3))
    def begin(self, limit: int, each: int) -> None:
        self.ctx = make_context(resp=3, stream_node_max_entries=3)
        self.added = self.read_to = 0
        self.hands: dict[int, str] = {}
        self.done: set[int] = set()
        run(self.ctx, "XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
        self.set_limits(limit, each)

    @rule(limit=st.integers(0, 5), each=st.integers(0, 3))
    def set_limits(self, limit: int, each: int) -> None:
        self.limit, self.each = limit or 10**9, each or 10**9
        run(self.ctx, "STREAMD.GROUP", "UNSET", "s", "g")
        words = ["BACKOFF", 1000, *["MAXPENDING", limit] * (limit > 0), *["CONSUMERPENDING", each] * (each > 0)]
        assert run(self.ctx, "STREAMD.GROUP", "SET", "s", "g", *words) == b"OK"

    @rule(count=st.integers(1, 4))
    def add(self, count: int) -> None:
        for _ in range(count):
            self.added += 1
            run(self.ctx, "XADD", "s", f"{self.added}-0", "f", "v")

    def in_hand(self, consumer: str = CONSUMERS) -> int:
        return sum(who in consumer for who in self.hands.values() if who)

    @rule(consumer=st.sampled_from(CONSUMERS), count=st.integers(0, 4), no_ack=st.booleans())
    def read(self, consumer: str, count: int, no_ack: bool) -> None:
        words = [*["COUNT", count] * (count > 0), *["NOACK"] * no_ack]
        reply = run(self.ctx, "XREADGROUP", "GROUP", "g", consumer, *words, "STREAMS", "s", ">")
        room = min(self.limit - self.in_hand(), self.each - self.in_hand(consumer))
        most = min(count or 10**9, self.added - self.read_to, 10**9 if no_ack else max(0, room))
        got = [int(id.split(b"-")[0]) for id, _ in reply[b"s"]] if reply else []
        assert got == list(range(self.read_to + 1, self.read_to + 1 + most))
        self.read_to += most
        if no_ack:
            self.done.update(got)
        else:
            self.hands.update(dict.fromkeys(got, consumer))

    @rule(data=st.data(), command=st.sampled_from(["XACK", "XACKDEL"]))
    def acknowledge(self, data: st.DataObject, command: str) -> None:
        entry = data.draw(st.integers(1, self.added + 1))
        run(self.ctx, command, "s", "g", *["IDS", 1] * (command == "XACKDEL"), f"{entry}-0")
        if self.hands.pop(entry, None) is not None:
            self.done.add(entry)

    @rule(data=st.data(), mode=st.sampled_from(["FAIL", "SILENT"]))
    def return_one(self, data: st.DataObject, mode: str) -> None:
        entry = data.draw(st.integers(1, self.added + 1))
        run(self.ctx, "XNACK", "s", "g", mode, "IDS", 1, f"{entry}-0")
        if entry in self.hands:
            # What has no consumer cannot be held back.
            fails = mode == "FAIL" and self.hands[entry] != GIVEN_BACK
            self.hands[entry] = FAILED if fails else GIVEN_BACK

    @rule(data=st.data(), consumer=st.sampled_from(CONSUMERS))
    def claim(self, data: st.DataObject, consumer: str) -> None:
        entry = data.draw(st.integers(1, self.added + 1))
        known = entry in self.hands
        run(self.ctx, "XCLAIM", "s", "g", consumer, 0, f"{entry}-0", *["FORCE"] * known)
        if known:
            self.hands[entry] = consumer

    @invariant()
    def each_entry_is_in_one_place(self) -> None:
        if not self.added:
            return
        pending = {int(row[0].split(b"-")[0]) for row in run(self.ctx, "XPENDING", "s", "g", "-", "+", 1000)}
        assert pending == set(self.hands)
        assert not pending & self.done
        assert pending | self.done == set(range(1, self.read_to + 1))


TestLimitsAgainstDict = LimitsAgainstDict.TestCase
TestLimitsAgainstDict.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
