"""Nodes of a stream that entries leave in any order: what the stream shows, against a dict, and how dense its nodes are."""

from __future__ import annotations

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.commands.handler import START_MS, HandlerContext, make_context, run, set_time

from streamd.delivery.rules import StreamRule
from streamd.serve.families import load_all
from streamd.values.streams.delays import Delays
from streamd.values.streams.stream import Stream

load_all()

FAR_US = 2**62
HEADER = 6
"""Bytes of a listpack before its first element."""


def live_and_deleted(listpack: bytes) -> tuple[int, int]:
    """The first two elements of a node, which are below 128."""
    assert listpack[HEADER] < 128
    assert listpack[HEADER + 2] < 128
    return listpack[HEADER], listpack[HEADER + 2]


SHAPES: tuple[tuple[str, ...], ...] = (("n",), ("n", "x"), ("n", "a longer name of a field"), ("n", "x", "y"))
"""Names of fields, after those of the rule."""


class DenseNodes(RuleBasedStateMachine):
    """Entries of a stream move, expire, are replaced, cancelled and trimmed; the copy gets only the effects, and merges nothing."""

    @initialize(entries=st.sampled_from([4, 8, 12]), size=st.sampled_from([150, 400, 4096]))
    def begin(self, entries: int, size: int) -> None:
        nodes = {"stream_node_max_entries": entries, "stream_node_max_bytes": size}
        self.ctx, self.copy = make_context(resp=3, **nodes), make_context(resp=3, **nodes)
        self.ctx.is_propagating = True
        self.delays = Delays(b"later", StreamRule(b"jobs", b"due", b"user", b"until"))
        self.now = 0
        self.last = (5, 5)
        self.both("XGROUP", "CREATE", "later", "g", "0", "MKSTREAM")
        self.work(0)

    @property
    def stream(self) -> Stream:
        stream: Stream = self.ctx.db.peek(b"later")
        return stream

    def both(self, *request: object) -> object:
        run(self.copy, *request)
        return run(self.ctx, *request)

    @rule(
        count=st.integers(1, 5),
        step=st.sampled_from([(0, 1), (0, 1000), (1, 0), (1, -3), (10**6, 0)]),
        shape=st.sampled_from(SHAPES),
        has_due=st.booleans(),
        has_until=st.booleans(),
        size=st.sampled_from([0, 1, 20, 70]),
        data=st.data(),
    )
    def append(
        self,
        count: int,
        step: tuple[int, int],
        shape: tuple[str, ...],
        has_due: bool,
        has_until: bool,
        size: int,
        data: st.DataObject,
    ) -> None:
        for _ in range(count):
            self.last = (self.last[0] + step[0], max(0, self.last[1] + step[1]))
            fields: list[object] = (
                ["due", START_MS + self.now + data.draw(st.integers(1, 9))] if has_due else ["due", "never"]
            )
            if has_until:
                fields += ["until", START_MS + self.now + data.draw(st.integers(1, 9))]
            if data.draw(st.integers(0, 3)) == 0:
                fields += ["user", data.draw(st.integers(1, 3))]
            for name in shape:
                fields += [name, "v" * size or self.now]
            self.both("XADD", "later", f"{self.last[0]}-{self.last[1]}", *fields)

    def some(self, data: st.DataObject) -> list[str]:
        ids = [f"{ms}-{seq}" for (ms, seq), _ in self.stream.range()]
        return data.draw(st.lists(st.sampled_from(ids), min_size=1, max_size=8, unique=True)) if ids else ["1-1"]

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.both("XDEL", "later", *self.some(data))

    @rule(data=st.data(), policy=st.sampled_from(["KEEPREF", "DELREF", "ACKED"]))
    def cancel_for_groups(self, data: st.DataObject, policy: str) -> None:
        ids = self.some(data)
        self.both("XDELEX", "later", policy, "IDS", len(ids), *ids)

    @rule(left=st.integers(0, 30))
    def trim(self, left: int) -> None:
        self.both("XTRIM", "later", "MAXLEN", max(left, len(self.stream) - 3))

    @rule(count=st.integers(1, 9))
    def read(self, count: int) -> None:
        self.both("XREADGROUP", "GROUP", "g", "c", "COUNT", count, "STREAMS", "later", ">")

    @rule(pause=st.integers(0, 4))
    def work(self, pause: int) -> None:
        self.now += pause
        set_time(self.ctx, START_MS + self.now)
        self.ctx.effects = []
        while self.delays.follow(self.ctx, self.stream, FAR_US, True):
            pass
        for effect in self.ctx.effects or []:
            run(self.copy, *effect)

    @rule(data=st.data())
    def look(self, data: st.DataObject) -> None:
        first, last = sorted(
            data.draw(st.tuples(*[st.sampled_from([(0, 0), self.last, *[id for id, _ in self.stream.range()]])] * 2))
        )
        for command, ends in (("XRANGE", (first, last)), ("XREVRANGE", (last, first))):
            request = (command, "later", *(f"{ms}-{seq}" for ms, seq in ends))
            assert run(self.ctx, *request) == run(self.copy, *request)
        assert run(self.ctx, "STREAMD.COUNT", "later") == len(self.stream)

    @invariant()
    def nothing_shows_but_nodes(self) -> None:
        if not hasattr(self, "delays"):
            return
        copy = self.copy.db.peek(b"later")
        self.stream.check_invariants()
        assert self.stream.range() == copy.range()
        assert self.stream.range(reverse=True) == copy.range(reverse=True)
        for name in ("last_generated_id", "first_entry_id", "last_entry_id", "max_deleted_entry_id", "entries_added"):
            assert getattr(self.stream, name) == getattr(copy, name)

    @invariant()
    def few_tombstones_are_left(self) -> None:
        if hasattr(self, "delays"):
            for _, listpack in self.stream.list_nodes()[1:]:  # entries of the first one may have been trimmed
                live, deleted = live_and_deleted(listpack)
                assert 2 * deleted <= live


TestDenseNodes = DenseNodes.TestCase
TestDenseNodes.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


# --- Memory ------------------------------------------------------------------------------------------------------------


def rebuilt(ctx: HandlerContext) -> Stream:
    """The same entries in a stream of their own."""
    own = make_context(resp=3)
    for (ms, seq), pairs in ctx.db.peek(b"later").range():
        run(own, "XADD", "later", f"{ms}-{seq}", *[word for pair in pairs for word in pair])
    stream: Stream = own.db.peek(b"later")
    return stream


@pytest.mark.parametrize("seed", range(3))
def test_memory_is_at_most_twice_that_of_the_entries_that_wait(seed: int) -> None:
    chance = random.Random(seed)
    ctx = make_context(resp=3)
    delays = Delays(b"later", StreamRule(b"", b"", b"", b"until"))
    for number in range(20_000):
        run(
            ctx,
            "XADD",
            "later",
            "*",
            "until",
            START_MS + chance.randrange(1, 1000),
            "job",
            "x" * chance.choice([5, 50]),
            "n",
            number,
        )
    worst = 0.0
    for now in range(0, 991, 30):
        set_time(ctx, START_MS + now)
        stream = ctx.db.peek(b"later")
        while delays.follow(ctx, stream, FAR_US, True):
            pass
        if len(stream) > 500:
            worst = max(worst, stream.memory_usage() / rebuilt(ctx).memory_usage())
    stream.check_invariants()
    assert worst <= 2
