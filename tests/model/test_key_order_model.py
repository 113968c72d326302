"""A group that is ordered by key against lists: per key in order, never two in flight, nothing lost, whatever happens between.

The oracle has the entries that are in the stream with their keys, and what is pending with its owner and delivery count; everything else is
searched for by brute force. Now and then the stream is replaced by a copy, as after a restart: what the server knows beyond the
plain data is then gone.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.commands.handler import START_MS, make_context, run, set_time

from streamd.serve.families import load_all

load_all()

CONSUMERS = "abc"
KEYS = ["x", "y", "10", ""]
NOBODY = ""
BACK_OFF_MS = 5
MOST = 2**63 - 1


@dataclass
class Pending:
    owner: str
    count: int
    at_ms: int
    is_failed: bool = False


class OrderAgainstLists(RuleBasedStateMachine):
    @initialize(held=st.integers(1, 6), limit=st.integers(0, 4), back_off=st.booleans(), dead=st.integers(0, 2))
    def begin(self, held: int, limit: int, back_off: bool, dead: int) -> None:
        self.ctx = make_context(resp=3, stream_node_max_entries=3)
        self.now = START_MS
        self.added = self.read_to = 0
        self.entries: dict[int, str | None] = {}
        self.pending: dict[int, Pending] = {}
        self.keys: dict[int, str | None] = {}
        self.delivered: dict[str, list[int]] = {}
        self.is_in_order = True
        self.held, self.limit, self.back_off, self.dead = held, limit, back_off, dead
        self.moved: list[int] = []
        run(self.ctx, "XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
        words = ["KEYED", "k", "HELD", held, *["MAXPENDING", limit] * (limit > 0), *["BACKOFF", BACK_OFF_MS] * back_off]
        words += ["DEADLETTER", "dead", "MAXDELIVERIES", dead] * (dead > 0)
        assert run(self.ctx, "STREAMD.GROUP", "SET", "s", "g", *words) == b"OK"

    # --- By brute force ---------------------------------------------------------------------------------------------

    def is_passed_over(self, entry: int) -> bool:
        known = self.pending[entry]
        return known.owner == NOBODY and known.count == 0

    def waiting(self) -> list[int]:
        """Those that `>` delivers when their turn comes: with a key, in the stream or not."""
        return [each for each in sorted(self.pending) if self.is_passed_over(each) and self.key_of(each) is not None]

    def key_of(self, entry: int) -> str | None:
        return self.keys[entry]

    def in_flight(self, key: str) -> list[int]:
        return [
            each for each in self.pending
            if each in self.entries and self.key_of(each) == key and not self.is_passed_over(each)
        ]  # fmt: skip

    def is_in_turn(self, entry: int) -> bool:
        key = self.key_of(entry)
        assert key is not None
        return not self.in_flight(key) and entry == min(each for each in self.waiting() if self.key_of(each) == key)

    def room(self) -> int:
        in_hand = sum(known.owner != NOBODY and not known.is_failed for known in self.pending.values())
        return max(0, self.limit - in_hand) if self.limit else 10**9

    # --- What happens -------------------------------------------------------------------------------------------------

    @rule(keys=st.lists(st.sampled_from([*KEYS, None]), min_size=1, max_size=5))
    def add(self, keys: list[str | None]) -> None:
        for key in keys:
            self.added += 1
            self.entries[self.added] = self.keys[self.added] = key
            run(self.ctx, "XADD", "s", f"{self.added}-0", *(("n", 1) if key is None else ("n", 1, "k", key)))

    @rule(consumer=st.sampled_from(CONSUMERS), count=st.integers(0, 4))
    def read(self, consumer: str, count: int) -> None:
        words = ["COUNT", count] if count else []
        reply = run(self.ctx, "XREADGROUP", "GROUP", "g", consumer, *words, "STREAMS", "s", ">")
        got = [int(id.split(b"-")[0]) for id, _ in reply[b"s"]] if reply else []
        most = min(count or 10**9, self.room())
        self.drop_deleted()
        old = [each for each in got if each in self.waiting()]
        assert got[: len(old)] == old, "those that were passed over come first"
        # Any of those whose turn it is, as many as possible.
        ready = [each for each in self.waiting() if self.is_in_turn(each)] if most else []
        assert set(old) <= set(ready)
        assert len(old) == min(most, len(ready))
        for each in old:
            self.deliver(each, consumer)
        for each in got[len(old) :]:
            self.pass_over_until(each)
            assert each == self.read_to + 1
            key = self.key_of(each)
            assert key is None or not self.pending_of_key(key)
            self.read_to = each
            self.deliver(each, consumer)
        if most > len(got):
            # It has got all that there was.
            self.pass_over_until(self.added + 1)
            assert not [each for each in self.waiting() if self.is_in_turn(each)]
            following = [each for each in sorted(self.entries) if each > self.read_to]
            if following:
                assert len(self.waiting()) >= self.held, "it stops at the limit, and nowhere else"

    def pending_of_key(self, key: str) -> list[int]:
        return self.in_flight(key) + [each for each in self.waiting() if self.key_of(each) == key]

    def drop_deleted(self) -> None:
        """Deleted entries whose turn it is, and no others, stop being pending when they are met."""
        left = self.shown()
        while gone := [each for each in self.waiting() if each not in left and self.is_in_turn(each)]:
            assert gone[0] not in self.entries
            del self.pending[gone[0]]

    def pass_over_until(self, end: int) -> None:
        """Entries from where the group has read to, up to one that is delivered, or the limit."""
        while self.read_to + 1 < end:
            each = self.read_to + 1
            if each in self.entries and each not in self.pending:
                key = self.key_of(each)
                assert key is not None or end > self.added
                if key is None or not self.pending_of_key(key) or len(self.waiting()) >= self.held:
                    return
                self.pending[each] = Pending(NOBODY, 0, 0)
            elif each in self.entries and self.key_of(each) is None:
                return
            self.read_to = each

    def deliver(self, entry: int, consumer: str) -> None:
        key = self.key_of(entry)
        if key is not None:
            assert not self.in_flight(key), "two of one key in flight"
            if self.is_in_order:
                assert not self.delivered.get(key) or self.delivered[key][-1] < entry, "out of order"
            self.delivered.setdefault(key, []).append(entry)
        assert entry in self.entries
        self.pending[entry] = Pending(consumer, 1, self.now)

    @rule(data=st.data(), command=st.sampled_from(["XACK", "XACKDEL", "XDEL", "XDELEX"]))
    def be_done(self, data: st.DataObject, command: str) -> None:
        entry = data.draw(st.integers(1, self.added + 1) if not self.pending else st.sampled_from(sorted(self.pending)))
        id = f"{entry}-0"
        if command == "XACK":
            run(self.ctx, "XACK", "s", "g", id)
        elif command == "XACKDEL":
            if run(self.ctx, "XACKDEL", "s", "g", "IDS", 1, id) == [1]:
                self.entries.pop(entry, None)
        elif command == "XDEL":
            run(self.ctx, "XDEL", "s", id)
            self.entries.pop(entry, None)
            return
        else:
            run(self.ctx, "XDELEX", "s", "DELREF", "IDS", 1, id)
            self.entries.pop(entry, None)
        self.pending.pop(entry, None)

    @rule(count=st.integers(1, 3), policy=st.sampled_from(["KEEPREF", "DELREF"]))
    def trim(self, count: int, policy: str) -> None:
        kept = sorted(self.entries)[count:]
        first = kept[0] if kept else self.added + 1
        run(self.ctx, "XTRIM", "s", "MINID", f"{first}-0", policy)
        for each in [each for each in self.entries if each < first]:
            del self.entries[each]
            if policy == "DELREF":
                self.pending.pop(each, None)

    @rule(data=st.data(), mode=st.sampled_from(["FAIL", "SILENT", "FATAL"]))
    def return_one(self, data: st.DataObject, mode: str) -> None:
        if not self.pending:
            return
        entry = data.draw(st.sampled_from(sorted(self.pending)))
        known = self.pending[entry]
        run(self.ctx, "XNACK", "s", "g", mode, "IDS", 1, f"{entry}-0")
        count = MOST if mode == "FATAL" else max(0, known.count - 1) if mode == "SILENT" else known.count
        if self.dead and count >= self.dead:
            del self.pending[entry]
            self.moved.append(entry)
        elif mode == "FAIL" and count and self.back_off and known.owner != NOBODY and entry in self.entries:
            self.pending[entry] = Pending(known.owner, count, self.now, is_failed=True)
        else:
            # One that goes back among those that wait may come after later ones.
            self.is_in_order = self.is_in_order and count > 0
            if entry not in self.entries and not self.is_passed_over(entry):
                self.keys[entry] = None  # nobody knows it any more
            self.pending[entry] = Pending(NOBODY, count, 0)

    @rule(ms=st.integers(1, 2 * BACK_OFF_MS))
    def pass_time(self, ms: int) -> None:
        self.now += ms
        set_time(self.ctx, self.now)

    @rule(data=st.data(), consumer=st.sampled_from(CONSUMERS), just_id=st.booleans(), force=st.booleans())
    def claim(self, data: st.DataObject, consumer: str, just_id: bool, force: bool) -> None:
        if not self.pending:
            return
        entries = data.draw(st.lists(st.sampled_from(sorted(self.pending)), min_size=1, max_size=3, unique=True))
        words = [*["JUSTID"] * just_id, *["FORCE"] * force]
        run(self.ctx, "XCLAIM", "s", "g", consumer, 0, *(f"{each}-0" for each in entries), *words)
        for each in entries:
            self.is_claimed(each, consumer, just_id=just_id, force=force)

    def is_claimed(self, entry: int, consumer: str, *, just_id: bool = False, force: bool = False) -> None:
        known = self.pending[entry]
        if self.is_passed_over(entry) and self.key_of(entry) is not None and not self.is_in_turn(entry):
            return
        if not (just_id and known.owner == consumer):
            if self.is_held(known) and not force:
                return
            if self.dead and known.count >= self.dead:
                del self.pending[entry]
                self.moved.append(entry)
                return
        if entry not in self.entries:
            del self.pending[entry]
            return
        key = self.key_of(entry)
        if self.is_passed_over(entry) and key is not None:
            assert not self.in_flight(key)
            self.delivered.setdefault(key, []).append(entry)
        self.pending[entry] = Pending(consumer, min(MOST, known.count + (not just_id)), self.now)

    def is_held(self, known: Pending) -> bool:
        return self.back_off and known.owner != NOBODY and known.count > 0 and self.now < known.at_ms + BACK_OFF_MS

    @rule(consumer=st.sampled_from(CONSUMERS))
    def remove_consumer(self, consumer: str) -> None:
        run(self.ctx, "XGROUP", "DELCONSUMER", "s", "g", consumer)
        for each in [each for each, known in self.pending.items() if known.owner == consumer]:
            del self.pending[each]

    @rule(data=st.data())
    def set_id(self, data: st.DataObject) -> None:
        self.read_to = data.draw(st.integers(0, self.added))
        self.is_in_order = False
        run(self.ctx, "XGROUP", "SETID", "s", "g", f"{self.read_to}-0")

    @rule(count=st.integers(1, 3))
    def read_without_rules(self, count: int) -> None:
        run(self.ctx, "XREADGROUP", "GROUP", "g", "a", "NOACK", "COUNT", count, "STREAMS", "s", ">")
        following = [each for each in sorted(self.entries) if each > self.read_to][:count]
        self.read_to = max([self.read_to, *following])

    @rule()
    def restart(self) -> None:
        """Entries that were deleted while they waited have no key any more: they are claimed, not delivered by `>`."""
        for request in ("COPY s t", "DEL s", "RENAME t s"):
            run(self.ctx, *request.split())
        for each in list(self.pending):
            if each not in self.entries:
                self.keys[each] = None
            self.pending[each].is_failed = False

    def shown(self) -> dict[int, tuple[str, int]]:
        rows = run(self.ctx, "XPENDING", "s", "g", "-", "+", 1000)
        return {int(id.split(b"-")[0]): (owner.decode(), count) for id, owner, _, count in rows}

    @invariant()
    def all_is_where_it_should_be(self) -> None:
        if not self.added:
            return
        assert self.shown() == {each: (known.owner, known.count) for each, known in sorted(self.pending.items())}
        lag = run(self.ctx, "STREAMD.LAG", "s", "g")
        assert lag[b"passed-over"] == len(self.waiting())
        assert lag[b"undelivered"] == sum(each > self.read_to for each in self.entries)


TestOrderAgainstLists = OrderAgainstLists.TestCase
TestOrderAgainstLists.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
