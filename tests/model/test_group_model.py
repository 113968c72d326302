"""One consumer group and its consumers against plain dictionaries, through the commands, with a clock that the test sets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.commands.handler import START_MS, make_context, run, set_time

from streamd.values.streams.stream import Stream

ID = tuple[int, int]

CONSUMERS = [b"a", b"b", b"c"]

MOST_DELIVERIES = 2**63 - 1

consumers = st.sampled_from(CONSUMERS)
counts = st.sampled_from([1, 2, 3, 10])


@dataclass
class Pending:
    """What is known of a pending entry."""

    consumer: bytes | None  # None: given back, and nobody's
    delivery_ms: int
    count: int
    turn: int  # which of all settings of a delivery time was the last for this entry


def one_more(count: int) -> int:
    return min(count + 1, MOST_DELIVERIES)


def text(id: ID) -> bytes:
    return b"%d-%d" % id


class GroupAgainstDicts(RuleBasedStateMachine):
    """`entries` has the stream's live IDs, `pending` what was delivered and not acknowledged."""

    @initialize(node_max_entries=st.sampled_from([1, 2, 3, 100]))
    def begin(self, node_max_entries: int) -> None:
        self.ctx = make_context()
        self.stream = Stream(node_max_entries=node_max_entries)
        self.ctx.db.add(b"s", self.stream)
        assert run(self.ctx, "XGROUP", "CREATE", "s", "g", "0") == b"OK"
        self.now_ms = START_MS
        self.last_added: ID = (0, 0)
        self.last_delivered: ID = (0, 0)
        self.entries: set[ID] = set()
        self.pending: dict[ID, Pending] = {}
        self.turn = 0
        self.consumers: set[bytes] = set()
        self.all_ids: list[ID] = [(0, 1)]
        self.add(4, (1, 0))
        self.add(3, (0, 1))
        self.read_new(b"a", 3, False)
        self.read_new(b"b", 2, False)

    # --- Helpers --------------------------------------------------------------------------------------------------

    def draw_ids(self, data: st.DataObject, most: int = 4) -> list[ID]:
        """IDs that were added at some time, those that are pending more often."""
        known = st.sampled_from([*self.all_ids, *self.pending, *self.pending])
        return data.draw(st.lists(known, min_size=1, max_size=most), label="ids")

    def draw_min_idle(self, data: st.DataObject) -> int:
        """A minimum idle time that some entry just has, or just has not yet; or 0."""
        idle = [self.idle_ms(id) for id in self.pending]
        return max(0, data.draw(st.sampled_from([0, 1000, *idle, *(ms + 1 for ms in idle)]), label="min idle"))

    def idle_ms(self, id: ID) -> int:
        return self.now_ms - self.pending[id].delivery_ms

    def shown(self, id: ID, *more: int) -> list[Any]:
        return [text(id), [b"f", text(id)], *more]

    def is_idle(self, id: ID, min_idle_ms: int) -> bool:
        """Whether XCLAIM, XAUTOCLAIM and XPENDING take an entry for idle long enough."""
        return not min_idle_ms or self.pending[id].consumer is None or self.idle_ms(id) >= min_idle_ms

    def handed_out(self, id: ID) -> tuple[bool, int, int]:
        """The order in which XREADGROUP with CLAIM hands entries out."""
        known = self.pending[id]
        return known.consumer is not None, known.delivery_ms, known.turn

    def unowned(self) -> list[ID]:
        return sorted((id for id, known in self.pending.items() if known.consumer is None), key=self.handed_out)

    def take(self, id: ID, consumer: bytes, count: int) -> None:
        self.note(id, consumer, self.now_ms, count)

    def note(self, id: ID, consumer: bytes | None, delivery_ms: int, count: int) -> None:
        self.turn += 1
        self.pending[id] = Pending(consumer, delivery_ms, count, self.turn)

    def read(self, consumer: bytes, *options: Any, id: bytes = b">") -> Any:
        self.consumers.add(consumer)
        reply = run(self.ctx, "XREADGROUP", "GROUP", "g", consumer, *options, "STREAMS", "s", id)
        return [] if reply is None else reply[0][1]

    def new_ids(self, count: int) -> list[ID]:
        return sorted(id for id in self.entries if id > self.last_delivered)[:count]

    # --- The stream -----------------------------------------------------------------------------------------------

    @rule(number=st.integers(1, 4), step=st.sampled_from([(0, 1), (1, 0), (3, 2)]))
    def add(self, number: int, step: ID) -> None:
        for _ in range(number):
            ms, seq = self.last_added
            self.last_added = (ms, seq + 1) if step[0] == 0 else (ms + step[0], step[1])
            self.stream.append([(b"f", text(self.last_added))], id=self.last_added)
            self.entries.add(self.last_added)
            self.all_ids.append(self.last_added)

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        for id in self.draw_ids(data, 3):
            assert self.stream.delete(id) == ("deleted" if id in self.entries else "missing")
            self.entries.discard(id)

    @rule(keep=st.integers(0, 6))
    def trim(self, keep: int) -> None:
        self.stream.trim(max_length=keep)
        self.entries = set(sorted(self.entries)[max(0, len(self.entries) - keep) :])

    @rule(ms=st.sampled_from([-5, 1, 10, 40]))
    def time_goes_by(self, ms: int) -> None:
        self.now_ms += ms
        set_time(self.ctx, self.now_ms)

    # --- Reading --------------------------------------------------------------------------------------------------

    @rule(consumer=consumers, count=counts, no_ack=st.booleans())
    def read_new(self, consumer: bytes, count: int, no_ack: bool) -> None:
        want = self.new_ids(count)
        options = ["COUNT", count, *(["NOACK"] if no_ack else [])]
        assert self.read(consumer, *options) == [self.shown(id) for id in want]
        for id in want:
            self.last_delivered = id
            if not no_ack:
                self.take(id, consumer, 1)

    @rule(consumer=consumers, count=counts, data=st.data())
    def read_history(self, consumer: bytes, count: int, data: st.DataObject) -> None:
        (after,) = self.draw_ids(data, 1)
        own = sorted(id for id, known in self.pending.items() if known.consumer == consumer and id > after)[:count]
        want = [self.shown(id) if id in self.entries else [text(id), None] for id in own]
        assert self.read(consumer, "COUNT", count, id=text(after)) == want
        for id in own:
            if id in self.entries:
                self.take(id, consumer, one_more(self.pending[id].count))

    @rule(consumer=consumers, count=counts, data=st.data())
    def read_with_claim(self, consumer: bytes, count: int, data: st.DataObject) -> None:
        min_idle_ms = self.draw_min_idle(data)
        idle = [id for id in self.pending if id in self.entries and self.idle_ms(id) >= min_idle_ms]
        claimed = sorted(idle, key=self.handed_out)[:count]
        want = [self.shown(id, self.idle_ms(id), self.pending[id].count) for id in claimed]
        new = self.new_ids(count - len(claimed))
        want += [self.shown(id, 0, 0) for id in new]
        assert self.read(consumer, "COUNT", count, "CLAIM", min_idle_ms) == want
        for id in claimed:
            self.take(id, consumer, one_more(self.pending[id].count))
        for id in new:
            self.last_delivered = id
            self.take(id, consumer, 1)

    # --- What is pending ------------------------------------------------------------------------------------------

    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        ids = self.draw_ids(data)
        assert run(self.ctx, "XACK", "s", "g", *map(text, ids)) == len(self.pending.keys() & set(ids))
        for id in ids:
            self.pending.pop(id, None)

    @rule(data=st.data(), policy=st.sampled_from(["KEEPREF", "DELREF", "ACKED"]))
    def acknowledge_and_delete(self, data: st.DataObject, policy: str) -> None:
        ids = self.draw_ids(data)
        want = []
        for id in ids:
            if self.pending.pop(id, None) is None:
                want.append(-1)
            elif policy == "ACKED" and id > self.last_delivered:  # the group is yet to read it again
                want.append(2)
            else:
                want.append(1)
                self.entries.discard(id)
        assert run(self.ctx, "XACKDEL", "s", "g", policy, "IDS", len(ids), *map(text, ids)) == want

    @rule(
        data=st.data(),
        mode=st.sampled_from(["SILENT", "FAIL", "FATAL"]),
        retry_count=st.sampled_from([None, None, 0, 1, 7, MOST_DELIVERIES]),
        force=st.booleans(),
    )
    def give_back(self, data: st.DataObject, mode: str, retry_count: int | None, force: bool) -> None:
        ids = self.draw_ids(data)
        given_back = 0
        for id in ids:
            known = self.pending.get(id)
            if known is None and not (force and id in self.entries):
                continue
            count = known.count if known else 0
            count = {"SILENT": max(0, count - 1), "FAIL": count, "FATAL": MOST_DELIVERIES}[mode]
            self.note(id, None, 0, count if retry_count is None else retry_count)
            given_back += 1
        options: list[Any] = ["FORCE"] * force + ([] if retry_count is None else ["RETRYCOUNT", retry_count])
        assert run(self.ctx, "XNACK", "s", "g", mode, "IDS", len(ids), *map(text, ids), *options) == given_back

    @rule(data=st.data(), consumer=consumers, force=st.booleans(), just_id=st.booleans())
    def claim(self, data: st.DataObject, consumer: bytes, force: bool, just_id: bool) -> None:
        ids = self.draw_ids(data)
        min_idle_ms = self.draw_min_idle(data)
        idle_ms = data.draw(st.sampled_from([None, 0, 7, 50]), label="IDLE")
        want = []
        for id in ids:
            if id not in self.entries:
                self.pending.pop(id, None)
                continue
            if id not in self.pending:
                if not force:
                    continue
                count = 1
            elif not self.is_idle(id, min_idle_ms):
                continue
            else:
                count = self.pending[id].count
            self.note(id, consumer, self.now_ms - (idle_ms or 0), count if just_id else one_more(count))
            want.append(text(id) if just_id else self.shown(id))
        options: list[Any] = ["FORCE"] * force + ["JUSTID"] * just_id + ([] if idle_ms is None else ["IDLE", idle_ms])
        self.consumers.add(consumer)
        assert run(self.ctx, "XCLAIM", "s", "g", consumer, min_idle_ms, *map(text, ids), *options) == want

    @rule(data=st.data(), consumer=consumers, count=counts, just_id=st.booleans())
    def claim_automatically(self, data: st.DataObject, consumer: bytes, count: int, just_id: bool) -> None:
        (start,) = self.draw_ids(data, 1)
        min_idle_ms = self.draw_min_idle(data)
        claimed: list[Any] = []
        deleted: list[bytes] = []
        following = b"0-0"
        for looked_at, id in enumerate(sorted(id for id in self.pending if id >= start)):
            if len(claimed) + len(deleted) == count or looked_at == 10 * count:
                following = text(id)
                break
            if id not in self.entries:
                deleted.append(text(id))
                del self.pending[id]
            elif self.is_idle(id, min_idle_ms):
                self.take(id, consumer, one_more(self.pending[id].count) if not just_id else self.pending[id].count)
                claimed.append(text(id) if just_id else self.shown(id))
        self.consumers.add(consumer)
        options = ["COUNT", count, *(["JUSTID"] if just_id else [])]
        reply = run(self.ctx, "XAUTOCLAIM", "s", "g", consumer, min_idle_ms, text(start), *options)
        assert reply == [following, claimed, deleted]

    # --- The group ------------------------------------------------------------------------------------------------

    @rule(data=st.data())
    def set_id(self, data: st.DataObject) -> None:
        (self.last_delivered,) = self.draw_ids(data, 1)
        assert run(self.ctx, "XGROUP", "SETID", "s", "g", text(self.last_delivered)) == b"OK"

    @rule(consumer=consumers)
    def create_consumer(self, consumer: bytes) -> None:
        assert run(self.ctx, "XGROUP", "CREATECONSUMER", "s", "g", consumer) == (consumer not in self.consumers)
        self.consumers.add(consumer)

    @rule(consumer=consumers)
    def delete_consumer(self, consumer: bytes) -> None:
        own = [id for id, known in self.pending.items() if known.consumer == consumer]
        assert run(self.ctx, "XGROUP", "DELCONSUMER", "s", "g", consumer) == len(own)
        self.consumers.discard(consumer)
        for id in own:
            del self.pending[id]

    @rule()
    def go_on_with_a_copy(self) -> None:
        self.stream = self.stream.copy()
        self.ctx.db.set(b"s", self.stream)
        # Of one delivery time they are by ID in a copy; what was given back keeps its order.
        for id in [*self.unowned(), *sorted(id for id, known in self.pending.items() if known.consumer is not None)]:
            self.turn += 1
            self.pending[id].turn = self.turn

    # --- What must hold after each step ---------------------------------------------------------------------------

    @invariant()
    def group_is_as_expected(self) -> None:
        if not hasattr(self, "ctx"):
            return
        self.stream.check_invariants()
        group = self.stream.groups[b"g"]
        known = [(id, p.consumer, p.delivery_ms, p.count) for id, p in sorted(self.pending.items())]
        assert group.pending() == known
        assert group.unowned() == self.unowned()
        assert group.unowned_count == len(self.unowned())
        assert group.last_delivered_id == self.last_delivered
        assert set(group.consumers) == self.consumers
        for name in self.consumers:
            assert group.pending(consumer=name) == [record for record in known if record[1] == name]

    def row(self, id: ID) -> list[Any]:
        known = self.pending[id]
        if known.consumer is None:
            return [text(id), b"", -1, known.count]
        return [text(id), known.consumer, max(0, self.idle_ms(id)), known.count]

    @rule(data=st.data(), count=counts, consumer=st.one_of(st.none(), consumers))
    def ask_what_is_pending(self, data: st.DataObject, count: int, consumer: bytes | None) -> None:
        (first,), (last,) = self.draw_ids(data, 1), self.draw_ids(data, 1)
        min_idle_ms = self.draw_min_idle(data)
        found = [
            self.row(id)
            for id, known in sorted(self.pending.items())
            if first <= id <= last and consumer in (None, known.consumer) and self.is_idle(id, min_idle_ms)
        ]
        end = [count] if consumer is None else [count, consumer]
        reply = run(self.ctx, "XPENDING", "s", "g", "IDLE", min_idle_ms, text(first), text(last), *end)
        assert reply == found[:count]

    @invariant()
    def summary_agrees(self) -> None:
        if not hasattr(self, "ctx"):
            return
        rows = [self.row(id) for id in sorted(self.pending)]
        assert run(self.ctx, "XPENDING", "s", "g", "-", "+", 1000) == rows
        summary = run(self.ctx, "XPENDING", "s", "g")
        assert summary[0] == len(rows)
        per_consumer = {name: b"%d" % sum(row[1] == name for row in rows) for name in sorted(self.consumers)}
        assert summary[3] == ([[name, n] for name, n in per_consumer.items() if n != b"0"] if rows else None)


TestGroupAgainstDicts = GroupAgainstDicts.TestCase
TestGroupAgainstDicts.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)


class GroupForLongAgainstDicts(GroupAgainstDicts):
    """The same, for longer."""


GroupForLongAgainstDicts.TestCase.settings = settings(max_examples=3000, stateful_step_count=100, deadline=None)
TestGroupForLong = pytest.mark.timeout(3600)(pytest.mark.slow(GroupForLongAgainstDicts.TestCase))
