"""Delays against dicts: each entry is waiting, moved, cancelled, replaced or expired, and only one of them.

The oracle knows when each entry is due and expires, and which value makes it unique. The target is now and then a string, so that nothing
can be moved. What the server does by itself is replayed on a copy, which must become equal.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.commands.handler import START_MS, make_context, run, set_time

from streamd.delivery.progress import progress_of
from streamd.delivery.rules import StreamRule
from streamd.serve.families import load_all
from streamd.values.streams.delays import Delays

load_all()

FAR_US = 2**62


@dataclass
class Entry:
    id: tuple[int, int]
    due: int | None
    until: int | None
    user: int | None


class DelaysAgainstDicts(RuleBasedStateMachine):
    @initialize(is_unique=st.booleans(), node=st.integers(1, 4))
    def begin(self, is_unique: bool, node: int) -> None:
        self.ctx = make_context(resp=3, stream_node_max_entries=node)
        self.copy = make_context(resp=3, stream_node_max_entries=node)
        self.ctx.is_propagating = True
        self.unique = b"user" if is_unique else b""
        self.now = 0
        self.waiting: dict[int, Entry] = {}
        self.moved: list[int] = []
        self.gone: dict[str, set[int]] = {"cancelled": set(), "replaced": set(), "expired": set()}
        self.added = 0
        self.is_blocked = False
        self.retry = 0
        self.restart()

    @rule()
    def restart(self) -> None:
        """The index is lost, and built again."""
        self.delays = Delays(b"later", StreamRule(b"jobs", b"due", self.unique, b"until"))
        self.retry = 0

    def both(self, *request: object) -> bytes:
        reply: bytes = run(self.ctx, *request)
        run(self.copy, *request)
        return reply

    times = st.none() | st.integers(-2, 12)

    @rule(due=times, until=times, user=st.none() | st.integers(1, 3), is_number=st.integers(0, 9))
    def append(self, due: int | None, until: int | None, user: int | None, is_number: int) -> None:
        self.added += 1
        fields: list[object] = ["n", self.added]
        if not is_number:
            fields += ["due", "soon"]
            due = 10**6
        elif due is not None:
            due += self.now
            fields += ["due", START_MS + due]
        if until is not None:
            until += self.now
            fields = ["until", START_MS + until, *fields]
        if user is not None:
            fields += ["user", user]
        id = self.both("XADD", "later", f"{self.added}-0", *fields)
        ms, _, seq = id.partition(b"-")
        self.waiting[self.added] = Entry((int(ms), int(seq)), due, until, user if is_number else None)

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        if self.waiting:
            number = data.draw(st.sampled_from(sorted(self.waiting)))
            assert self.both("XDEL", "later", f"{number}-0") == 1
            del self.waiting[number]
            self.gone["cancelled"].add(number)

    @rule()
    def trim(self) -> None:
        if self.waiting:
            number = min(self.waiting)
            assert self.both("XTRIM", "later", "MAXLEN", len(self.waiting) - 1) == 1
            del self.waiting[number]
            self.gone["cancelled"].add(number)

    @rule()
    def block(self) -> None:
        """The target becomes a string, or a stream again."""
        if self.is_blocked:
            self.both("DEL", "jobs")
            if self.both("EXISTS", "kept"):
                self.both("RENAME", "kept", "jobs")
        else:
            if self.both("EXISTS", "jobs"):
                self.both("RENAME", "jobs", "kept")
            self.both("SET", "jobs", "no stream")
        self.is_blocked = not self.is_blocked

    @precondition(lambda self: self.added)
    @rule(pause=st.integers(0, 5) | st.just(2000))
    def work(self, pause: int) -> None:
        self.now += pause
        set_time(self.ctx, START_MS + self.now)
        if not run(self.ctx, "EXISTS", "later"):
            return
        self.ctx.effects = []
        while self.delays.follow(self.ctx, self.ctx.db.peek(b"later"), FAR_US, True):
            pass
        for effect in self.ctx.effects or []:
            run(self.copy, *effect)
        if self.unique:
            latest = {entry.user: number for number, entry in self.waiting.items() if entry.user is not None}
            for number, entry in list(self.waiting.items()):
                if entry.user is not None and latest[entry.user] != number:
                    del self.waiting[number]
                    self.gone["replaced"].add(number)
        for number, entry in list(self.waiting.items()):
            if entry.until is not None and entry.until <= self.now:
                del self.waiting[number]
                self.gone["expired"].add(number)
        due = [(-START_MS if e.due is None else e.due, n) for n, e in self.waiting.items() if (e.due or 0) <= self.now]
        if self.now < self.retry or not due:
            return
        if self.is_blocked:
            self.retry = self.now + 1000
            assert progress_of(self.ctx, b"later").error.startswith("WRONGTYPE")
            return
        for _, number in sorted(due):
            del self.waiting[number]
            self.moved.append(number)
        assert not progress_of(self.ctx, b"later").error

    @invariant()
    def each_entry_is_in_one_state(self) -> None:
        if not hasattr(self, "ctx") or not self.added:
            return
        states = [set(self.waiting), set(self.moved), *self.gone.values()]
        assert sum(len(state) for state in states) == len(set().union(*states)) == self.added
        for ctx in (self.ctx, self.copy):
            later = run(ctx, "XRANGE", "later", "-", "+")
            assert [int(id.split(b"-")[0]) for id, _ in later] == sorted(self.waiting)
            jobs = [
                dict(zip(fields[::2], fields[1::2], strict=True))
                for _, fields in run(ctx, "XRANGE", "kept" if self.is_blocked else "jobs", "-", "+")
            ]
            assert [int(fields[b"n"]) for fields in jobs] == self.moved
            assert all(b"due" not in fields for fields in jobs)
        self.delays.check_invariants()


TestDelaysAgainstDicts = DelaysAgainstDicts.TestCase
TestDelaysAgainstDicts.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
