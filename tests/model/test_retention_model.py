"""Retention against lists: an entry stays if and only if the rule, read entry by entry from the head, lets it.

The oracle knows all entries, and what each group has read and not acknowledged. BYTES, which depends on nodes, is checked by its effect:
as few whole nodes are removed as are needed.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.commands.handler import make_context, run, set_time

from streamd.delivery.rules import StreamRule
from streamd.serve.families import load_all
from streamd.values.streams.retention import Retention

load_all()

LAST = (2**64 - 1, 0)


def text(id: tuple[int, int]) -> str:
    return f"{id[0]}-{id[1]}"


class RetentionAgainstLists(RuleBasedStateMachine):
    @initialize(node=st.integers(1, 5))
    def begin(self, node: int) -> None:
        self.ctx = make_context(resp=3, stream_node_max_entries=node)
        self.copy = make_context(resp=3, stream_node_max_entries=node)
        self.ctx.is_propagating = True
        self.now = 1
        self.entries: list[tuple[int, int]] = []
        self.last = (0, 0)
        self.read_to: dict[str, tuple[int, int]] = {}
        self.pending: dict[str, set[tuple[int, int]]] = {}
        set_time(self.ctx, self.now)

    def both(self, *request: object) -> None:
        """A request of a client, for the stream and for its copy."""
        for ctx in (self.ctx, self.copy):
            run(ctx, *request)

    @rule(count=st.integers(1, 6), pause=st.integers(0, 2))
    def append(self, count: int, pause: int) -> None:
        self.now += pause
        set_time(self.ctx, self.now)
        for _ in range(count):
            self.last = (self.now, self.last[1] + 1 if self.last[0] == self.now else 0)
            self.entries.append(self.last)
            self.both("XADD", "s", text(self.last), "f", "v")

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        if self.entries:
            entry = data.draw(st.sampled_from(self.entries))
            self.entries.remove(entry)
            self.both("XDEL", "s", text(entry))

    @rule(name=st.sampled_from("gh"), at_end=st.booleans())
    def create_group(self, name: str, at_end: bool) -> None:
        if name not in self.read_to:
            self.both("XGROUP", "CREATE", "s", name, "$" if at_end else "0", "MKSTREAM")
            self.read_to[name] = self.last if at_end else (0, 0)
            self.pending[name] = set()

    @rule(name=st.sampled_from("gh"))
    def destroy_group(self, name: str) -> None:
        if name in self.read_to:
            self.both("XGROUP", "DESTROY", "s", name)
            del self.read_to[name], self.pending[name]

    @rule(name=st.sampled_from("gh"), count=st.integers(1, 5))
    def read(self, name: str, count: int) -> None:
        if name in self.read_to:
            new = [entry for entry in self.entries if entry > self.read_to[name]][:count]
            self.both("XREADGROUP", "GROUP", name, "c", "COUNT", count, "STREAMS", "s", ">")
            self.pending[name].update(new)
            self.read_to[name] = max([self.read_to[name], *new])

    @rule(name=st.sampled_from("gh"), data=st.data())
    def acknowledge(self, name: str, data: st.DataObject) -> None:
        if self.pending.get(name):
            done = data.draw(st.lists(st.sampled_from(sorted(self.pending[name])), max_size=5, unique=True))
            for entry in done:
                self.both("XACK", "s", name, text(entry))
            self.pending[name].difference_update(done)

    @rule(
        length=st.just(0) | st.integers(1, 8),
        age=st.just(0) | st.integers(1, 4),
        acked=st.booleans(),
        groups=st.integers(1, 2),
        at_most=st.just(0) | st.integers(4, 8),
        delref=st.booleans(),
    )
    def trim(self, length: int, age: int, acked: bool, groups: int, at_most: int, delref: bool) -> None:
        if not (length or age or acked):
            return
        rule = StreamRule(
            retain=True,
            length=length,
            age_ms=age,
            acked=acked,
            groups=groups,
            at_most_ms=at_most if acked else 0,
            delete_references=delref,
        )
        self.apply(rule)
        barrier = LAST
        if acked:
            barrier = (0, 0) if len(self.read_to) < groups else min(self.needed(name) for name in self.read_to)
        while self.entries:
            first = self.entries[0]
            is_beyond = (length and len(self.entries) > length) or (age and first[0] < self.now - age)
            is_beyond = is_beyond or not (length or age)
            if not (first < barrier and is_beyond) and not (rule.at_most_ms and first[0] < self.now - at_most):
                break
            self.entries.pop(0)
            if delref:
                for pending in self.pending.values():
                    pending.discard(first)

    def needed(self, name: str) -> tuple[int, int]:
        """The first entry that a group needs."""
        ms, seq = self.read_to[name]
        return min([(ms, seq + 1), *self.pending[name].intersection(self.entries)])

    @rule(limit=st.integers(100, 600))
    def trim_by_bytes(self, limit: int) -> None:
        before = self.nodes()
        self.apply(StreamRule(retain=True, max_bytes=limit))
        stream = self.ctx.db.peek(b"s")
        left = len(self.nodes())
        if stream is not None:
            self.entries = self.entries[len(self.entries) - len(stream) :]
            assert left == len(before) or left >= 1
            assert before[len(before) - left :] == self.nodes()
            if left < len(before):  # with the last node that was removed, the limit would be exceeded
                assert sum(len(listpack) for _, listpack in before[len(before) - left - 1 :]) + 500 * left > limit

    def nodes(self) -> list[tuple[tuple[int, int], bytes]]:
        stream = self.ctx.db.peek(b"s")
        return [] if stream is None else stream.list_nodes()

    def apply(self, rule: StreamRule) -> None:
        """As the server does by itself; its effects reach the copy."""
        if self.ctx.db.peek(b"s") is None:
            return
        self.ctx.effects = None
        while Retention(rule).trim(self.ctx, b"s", self.ctx.db.peek(b"s"), True):
            pass
        for effect in self.ctx.effects or []:
            run(self.copy, *effect)

    @invariant()
    def what_stays_is_what_the_rule_lets(self) -> None:
        if not hasattr(self, "ctx") or self.ctx.db.peek(b"s") is None:
            return
        stream, copy = self.ctx.db.peek(b"s"), self.copy.db.peek(b"s")
        assert [id for id, _ in stream.range()] == self.entries
        assert stream.list_nodes() == copy.list_nodes()
        stream.check_invariants()
        for name, pending in self.pending.items():
            for ctx in (self.ctx, self.copy):
                rows = run(ctx, "XPENDING", "s", name, "-", "+", 1000)
                assert [row[0] for row in rows] == [text(entry).encode() for entry in sorted(pending)]


TestRetentionAgainstLists = RetentionAgainstLists.TestCase
TestRetentionAgainstLists.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
