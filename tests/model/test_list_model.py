"""Lists against Python's own, through their commands, with nodes of few elements or bytes: after every step, all that
must hold of a list is checked.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.commands.handler import make_context, run

from streamd.persistence.rdb.read import restore_value
from streamd.persistence.rdb.write import dump_value
from streamd.serve.families import load_all
from streamd.values.lists.list_limits import ListLimits

load_all()

WORDS = st.sampled_from(
    [b"", b"a", b"b", b"7", b"-100", b"5000", b"9" * 18, b"x" * 63, b"y" * 64, b"z" * 700, b"h" * 9000]
)
ENDS = st.sampled_from([b"LEFT", b"RIGHT"])


def limits(size: int) -> ListLimits:
    made = ListLimits(SimpleNamespace(config=SimpleNamespace(list_max_listpack_size=size)))  # type: ignore[arg-type]
    made.apply_settings()
    return made


class ListAgainstPythons(RuleBasedStateMachine):
    @initialize(size=st.sampled_from([-2, 3, 1, 10, -1]))
    def begin(self, size: int) -> None:
        self.ctx = make_context()
        self.ctx.parts[ListLimits] = limits(size)
        self.oracle: list[bytes] = []

    def run(self, *args: bytes | str | int) -> Any:
        reply = run(self.ctx, *args)
        assert not isinstance(reply, Exception), reply
        return reply

    def index(self, data: st.DataObject) -> int:
        return data.draw(st.integers(-len(self.oracle) - 1, len(self.oracle)))

    @rule(words=st.lists(WORDS, min_size=1, max_size=12), at_head=st.booleans())
    def push(self, words: list[bytes], at_head: bool) -> None:
        assert self.run("LPUSH" if at_head else "RPUSH", "l", *words) == len(self.oracle) + len(words)
        self.oracle = words[::-1] + self.oracle if at_head else self.oracle + words

    @rule(count=st.integers(1, 20), at_head=st.booleans())
    def pop(self, count: int, at_head: bool) -> None:
        wanted = self.oracle[:count] if at_head else self.oracle[::-1][:count]
        got = self.run("LPOP" if at_head else "RPOP", "l", count)
        assert (got or []) == wanted
        self.oracle = self.oracle[count:] if at_head else self.oracle[: max(0, len(self.oracle) - count)]

    @rule(data=st.data(), word=WORDS)
    def replace(self, data: st.DataObject, word: bytes) -> None:
        if self.oracle:
            index = data.draw(st.integers(-len(self.oracle), len(self.oracle) - 1))
            self.run("LSET", "l", index, word)
            self.oracle[index] = word

    @rule(data=st.data(), word=WORDS, after=st.booleans())
    def insert(self, data: st.DataObject, word: bytes, after: bool) -> None:
        if self.oracle:
            pivot = data.draw(st.sampled_from(self.oracle))
            self.run("LINSERT", "l", "AFTER" if after else "BEFORE", pivot, word)
            self.oracle.insert(self.oracle.index(pivot) + after, word)

    @rule(data=st.data(), count=st.integers(-4, 4))
    def remove(self, data: st.DataObject, count: int) -> None:
        word = data.draw(st.sampled_from(self.oracle) if self.oracle else WORDS)
        here = [at for at, each in enumerate(self.oracle) if each == word]
        chosen = here if count == 0 else here[:count] if count > 0 else here[count:]
        assert self.run("LREM", "l", count, word) == len(chosen)
        self.oracle = [each for at, each in enumerate(self.oracle) if at not in chosen]

    @rule(data=st.data())
    def trim(self, data: st.DataObject) -> None:
        first, last = data.draw(st.integers(0, 3)), data.draw(st.sampled_from([-1, -2, -4, 50]))
        self.run("LTRIM", "l", first, last)
        end = len(self.oracle) + last + 1 if last < 0 else last + 1
        self.oracle = self.oracle[first : max(first, end)]

    @rule(from_end=ENDS, to_end=ENDS)
    def rotate(self, from_end: bytes, to_end: bytes) -> None:
        word = self.run("LMOVE", "l", "l", from_end, to_end)
        if self.oracle:
            assert word == self.oracle.pop(0 if from_end == b"LEFT" else -1)
            self.oracle.insert(0 if to_end == b"LEFT" else len(self.oracle), word)

    @rule(data=st.data())
    def look(self, data: st.DataObject) -> None:
        index = self.index(data)
        wanted = self.oracle[index] if -len(self.oracle) <= index < len(self.oracle) else None
        assert self.run("LINDEX", "l", index) == wanted
        if self.oracle:
            word = data.draw(st.sampled_from(self.oracle))
            here = [at for at, each in enumerate(self.oracle) if each == word]
            assert self.run("LPOS", "l", word, "COUNT", 0) == here
            assert self.run("LPOS", "l", word, "COUNT", 0, "RANK", -1) == here[::-1]

    @rule()
    def save_and_load(self) -> None:
        value = self.ctx.db.peek(b"l")
        if value is not None:
            loaded = restore_value(dump_value(value))
            loaded.check_invariants()
            assert loaded.elements() == self.oracle
            self.ctx.db.set(b"l", loaded)

    @rule()
    def copy(self) -> None:
        value = self.ctx.db.peek(b"l")
        if value is not None:
            copied = value.copy()
            copied.check_invariants()
            self.ctx.db.set(b"l", copied)

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "ctx"):
            return
        value = self.ctx.db.peek(b"l")
        assert (value is None) == (not self.oracle)
        if value is not None:
            value.check_invariants()
            assert value.elements() == self.oracle
            assert self.run("LRANGE", "l", 0, -1) == self.oracle
        self.ctx.db.check_invariants()


TestList = ListAgainstPythons.TestCase
TestList.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@pytest.mark.parametrize("at_head", [True, False])
def test_a_queue_of_many_keeps_its_order_and_gives_its_room_back(at_head: bool) -> None:
    ctx = make_context()
    push, pop = ("LPUSH", "RPOP") if at_head else ("RPUSH", "LPOP")
    words = [b"%d-%d" % (number, number % 7) for number in range(20_000)]
    for start in range(0, len(words), 100):
        run(ctx, push, "q", *words[start : start + 100])
    value = ctx.db.peek(b"q")
    value.check_invariants()
    full = value.free_effort()
    taken = [run(ctx, pop, "q") for _ in range(19_990)]
    assert taken == words[:19_990]
    value.check_invariants()
    assert value.free_effort() == 1 < full
    assert run(ctx, "LRANGE", "q", 0, -1) == (words[:-11:-1] if at_head else words[-10:])
