"""The checker of histories: it accepts what one server could have answered, and nothing else."""

from __future__ import annotations

import copy
import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.failover.linearizability import Ack, Add, Deliver, Entry, EntryId, Length, Operation, Pending, Range, check

pytestmark = pytest.mark.long

KEY = b"s"
A, B, C = (1, 0), (2, 0), (3, 0)
VALUES = {A: b"a", B: b"b", C: b"c"}


# --- Histories by hand --------------------------------------------------------------------------------------------------
#
# Times are small numbers; None as the second one is an unknown outcome.


def add(invoked: float, returned: float | None, entry_id: EntryId, *, seen: bool = True) -> Add:
    known = entry_id if seen and returned is not None else None
    return Add("p", KEY, invoked, returned, value=VALUES[entry_id], result=known)


def deliver(invoked: float, returned: float | None, *ids: EntryId, count: int = 2, to: bytes = b"one") -> Deliver:
    return Deliver("c", KEY, invoked, returned, consumer=to, count=count, result=entries(*ids))


def ack(invoked: float, returned: float | None, *ids: EntryId, result: int = 1) -> Ack:
    return Ack("c", KEY, invoked, returned, ids=ids, result=result)


def length(invoked: float, returned: float, result: int) -> Length:
    return Length("r", KEY, invoked, returned, result=result)


def pending(invoked: float, returned: float, *result: tuple[EntryId, bytes]) -> Pending:
    return Pending("r", KEY, invoked, returned, result=result)


def final(*ids: EntryId) -> Range:
    return Range("r", KEY, 100, 101, result=entries(*ids))


def entries(*ids: EntryId) -> tuple[Entry, ...]:
    return tuple((each, VALUES[each]) for each in ids)


GOOD: dict[str, list[Operation]] = {
    "nothing": [final()],
    "one after the other": [add(0, 1, A), add(2, 3, B), deliver(4, 5, A, B), ack(6, 7, A, B, result=2), final(A, B)],
    "adds that overlap, in either order": [add(0, 5, B), add(1, 4, A), final(A, B)],
    "a read that overlaps an add sees it": [add(0, 5, A), deliver(1, 4, A), final(A)],
    "a read that overlaps an add does not see it": [add(0, 5, A), deliver(1, 4), final(A)],
    "a length that overlaps two adds": [add(0, 9, A), add(0, 9, B), length(1, 2, 1), length(3, 4, 2), final(A, B)],
    "an unknown add that happened late": [add(0, None, A), length(1, 2, 0), length(3, 4, 1), final(A)],
    "an unknown add that never happened": [add(0, None, A), length(1, 2, 0), final()],
    "an unknown add before one with an answer": [add(0, None, A), add(1, 2, B), length(3, 4, 2), final(A, B)],
    "an unknown add that only a length noticed": [add(0, None, A), length(1, 2, 1), deliver(3, 4, A), final(A)],
    "an unknown read that took entries": [
        add(0, 1, A), add(2, 3, B), deliver(4, None, to=b"two", count=1), deliver(5, 6, B),
        pending(90, 91, (A, b"two"), (B, b"one")), final(A, B),
    ],
    "an unknown read that took nothing": [add(0, 1, A), deliver(2, None, to=b"two"), deliver(3, 4, A), final(A)],
    "an unknown read that found one entry of two": [
        add(0, 1, A), deliver(2, None, to=b"two"), add(3, 8, B), deliver(4, 7, B), final(A, B),
    ],
    "an unknown acknowledgement that happened": [
        add(0, 1, A), deliver(2, 3, A), ack(4, None, A), ack(5, 6, A, result=0), final(A),
    ],
    "an unknown acknowledgement that did not happen before": [
        add(0, 1, A), deliver(2, 3, A), ack(4, None, A), ack(5, 6, A, result=1), final(A),
    ],
    "an unknown acknowledgement that pending entries show": [
        add(0, 1, A), add(0, 1, B), deliver(2, 3, A, B), ack(4, None, A), pending(5, 6, (A, b"one"), (B, b"one")),
        pending(7, 8, (B, b"one")), final(A, B),
    ],
    "an acknowledgement before the delivery is known": [add(0, 1, A), deliver(2, 9, A), ack(3, 8, A), final(A)],
    "an acknowledgement of nothing": [add(0, 1, A), ack(2, 3, A, result=0), deliver(4, 5, A), final(A)],
    "a range from the middle": [
        add(0, 1, A), add(2, 3, B), Range("r", KEY, 4, 5, start=B, result=entries(B)), add(6, 7, C), final(A, B, C),
    ],
}  # fmt: skip

BAD: dict[str, tuple[list[Operation], str]] = {
    "a lost entry": ([add(0, 1, A), add(2, 3, B), final(A)], "none of these fits"),
    "an entry that was seen and is lost": ([add(0, None, A), deliver(1, 2, A), final()], "none of these fits"),
    "IDs against time": ([add(0, 1, B), add(2, 3, A), final(A, B)], "none of these fits"),
    "the same ID twice": (
        [add(0, 1, A), Add("p", KEY, 2, 3, value=b"b", result=A), final(A)],
        "two entries got the ID",
    ),
    "an entry from nowhere": ([final(A)], "nobody added"),
    "delivered twice": ([add(0, 1, A), deliver(2, 3, A), deliver(4, 5, A), final(A)], "delivered twice"),
    "a delivery that leaves out an entry": (
        [add(0, 1, A), add(2, 3, B), add(4, 5, C), deliver(6, 7, A, C), final(A, B, C)],
        "left out entries",
    ),
    "a read that left an entry to nobody": ([add(0, 1, A), add(2, 3, B), deliver(4, 5, B), final(A, B)], "fits"),
    "an empty read though there is an entry": ([add(0, 1, A), deliver(2, 3), deliver(4, 5, A), final(A)], "fits"),
    "fewer than there were": ([add(0, 1, A), add(2, 3, B), deliver(4, 5, A), final(A, B)], "fits"),
    "more than were asked for": ([add(0, 1, A), add(2, 3, B), deliver(4, 5, A, B, count=1), final(A, B)], "fits"),
    "an entry before it was added": ([deliver(0, 1, A), add(2, 3, A), final(A)], "fits"),
    "an unknown add before it was invoked": ([length(0, 1, 1), add(2, None, A), final(A)], "fits"),
    "a length that goes back": ([add(0, None, A), length(1, 2, 1), length(3, 4, 0), final(A)], "fits"),
    "acknowledged twice": (
        [add(0, 1, A), deliver(2, 3, A), ack(4, 5, A), ack(6, 7, A), final(A)],
        "fits",
    ),
    "an acknowledgement was dropped": (
        [add(0, 1, A), deliver(2, 3, A), ack(4, 5, A), pending(6, 7, (A, b"one")), final(A)],
        "fits",
    ),
    "acknowledged by nobody": ([add(0, 1, A), deliver(2, 3, A), pending(4, 5), final(A)], "fits"),
    "pending for somebody else": ([add(0, 1, A), deliver(2, 3, A), pending(4, 5, (A, b"two")), final(A)], "fits"),
    "an unknown read that took more than it asked for": (
        [add(0, 1, A), add(2, 3, B), add(4, 5, C), deliver(6, None, count=1), deliver(7, 8, C), final(A, B, C)],
        "fits",
    ),
    "an unknown read for the wrong consumer": (
        [add(0, 1, A), deliver(2, None, to=b"two"), pending(4, 5, (A, b"one")), final(A)],
        "fits",
    ),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_history_that_one_order_explains_passes(name: str) -> None:
    verdict = check(GOOD[name])
    assert verdict, verdict.reason


@pytest.mark.parametrize("name", BAD)
def test_a_history_that_no_order_explains_is_found(name: str) -> None:
    history, reason = BAD[name]
    verdict = check(history)
    assert not verdict
    assert reason in verdict.reason


def test_keys_are_independent() -> None:
    other = [replace(each, key=b"t") for each in GOOD["one after the other"]]
    assert check([*other, *GOOD["one after the other"]])
    verdict = check([*other, *BAD["a lost entry"][0]])
    assert verdict.reason.startswith("s: ")


@pytest.mark.parametrize(
    ("history", "text"),
    [
        ([add(0, 1, A)], "a Range of all of it"),
        ([add(0, 1, A), Range("r", KEY, 2, 3, start=B), add(4, 5, B)], "a Range of all of it"),
        ([add(0, 1, A), add(2, 3, A), final(A)], "was added twice"),
        ([add(0, 1, A), deliver(2, 5, A), ack(4, None, A), final(A)], "nobody had received"),
    ],
)
def test_what_the_search_cannot_take_is_refused(history: list[Operation], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        check(history)


# --- Histories of a simulation ----------------------------------------------------------------------------------------------


class Simulation:
    """A stream whose clients are far away: an operation takes effect at some moment between request and answer.

    An operation whose answer is lost takes effect late, or never; its client goes on with the next one.
    """

    def __init__(self, seed: int, operations: int, clients: int, lose: float) -> None:
        self.chance = random.Random(seed)
        self.left = operations
        self.lose = lose
        self.entries: list[Entry] = []
        self.delivered = 0
        self.pending: dict[EntryId, bytes] = {}
        self.received: dict[int, list[EntryId]] = {client: [] for client in range(clients)}
        self.history: list[Operation] = []
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._serials = itertools.count()

    def run(self) -> list[Operation]:
        """The history of all clients, with a look at everything at its end."""
        for client in self.received:
            self._at(self.chance.random(), partial(self._begin, client))
        while self._events:
            self.now, _, event = heapq.heappop(self._events)
            event()
        last = self.now + 1
        self.history.append(Pending("end", KEY, last, last, result=tuple(self.pending.items())))
        self.history.append(Range("end", KEY, last + 1, last + 1, result=tuple(self.entries)))
        return self.history

    def _at(self, time: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time, next(self._serials), event))

    def _delay(self) -> float:
        return self.chance.expovariate(1)

    def _begin(self, client: int) -> None:
        """The client sends its next request."""
        if self.left == 0:
            return
        self.left -= 1
        request = self._request(client)
        if self.chance.random() < self.lose:
            self.history.append(request)
            if self.chance.random() < 0.5:
                self._at(self.now + 10 * self._delay(), partial(self._take_late_effect, request))
            self._at(self.now + self._delay(), partial(self._begin, client))
        else:
            self._at(self.now + self._delay(), partial(self._answer, client, request))

    def _request(self, client: int) -> Operation:
        """An operation without an answer."""
        asked = (str(client), KEY, self.now, None)
        kind = self.chance.choices(["add", "deliver", "ack", "length", "range"], [8, 5, 5, 1, 1])[0]
        mine = self.received[client]
        if kind == "ack" and mine:
            return Ack(*asked, ids=tuple({self.chance.choice(mine) for _ in range(self.chance.choice([1, 1, 2]))}))
        if kind == "deliver":
            return Deliver(*asked, consumer=b"c%d" % client, count=self.chance.choice([1, 2, 5]))
        if kind == "length":
            return Length(*asked)
        if kind == "range":
            return Range(*asked, start=self.entries[len(self.entries) // 2][0] if self.entries else (0, 0))
        return Add(*asked, value=b"%d" % next(self._serials))

    def _answer(self, client: int, request: Operation) -> None:
        """The request takes effect; its answer is on the way."""
        result = self._take_effect(request)
        answered = with_result(replace(request, returned=self.now + self._delay()), result)
        self._at(answered.deadline, partial(self._receive, client, answered))

    def _receive(self, client: int, answered: Operation) -> None:
        self.history.append(answered)
        if isinstance(answered, Deliver):
            self.received[client] += [entry_id for entry_id, _ in answered.result]
        self._begin(client)

    def _take_late_effect(self, request: Operation) -> None:
        self._take_effect(request)

    def _take_effect(self, request: Operation) -> Any:
        if isinstance(request, Add):
            entry_id = (len(self.entries) + 1, 0)
            self.entries.append((entry_id, request.value))
            return entry_id
        if isinstance(request, Deliver):
            new = self.entries[self.delivered : self.delivered + request.count]
            self.delivered += len(new)
            self.pending |= dict.fromkeys((entry_id for entry_id, _ in new), request.consumer)
            return tuple(new)
        if isinstance(request, Ack):
            return sum(self.pending.pop(entry_id, None) is not None for entry_id in request.ids)
        if isinstance(request, Range):
            return tuple(entry for entry in self.entries if entry[0] >= request.start)
        return len(self.entries)


def with_result(operation: Operation, result: Any) -> Operation:
    changes: Any = {"result": result}
    return replace(operation, **changes)


def simulate(seed: int, operations: int = 150, clients: int = 6, lose: float = 0.03) -> list[Operation]:
    return Simulation(seed, operations, clients, lose).run()


@given(
    seed=st.integers(0, 2**32),
    operations=st.integers(0, 200),
    clients=st.integers(1, 10),
    lose=st.sampled_from([0.0, 0.02, 0.1]),
)
@settings(max_examples=200, deadline=None)
def test_what_a_stream_answers_slow_clients_passes(seed: int, operations: int, clients: int, lose: float) -> None:
    verdict = check(simulate(seed, operations, clients, lose))
    assert verdict, verdict.reason


def test_thousands_of_operations_need_about_as_many_configurations() -> None:
    history = simulate(1, operations=5000, clients=10, lose=0.005)
    verdict = check(history)
    assert verdict, verdict.reason
    assert verdict.configurations < 2 * len(history)


# --- The search against an obvious one ----------------------------------------------------------------------------------------


class Model:
    """One server; `run` says whether it would have answered like this."""

    def __init__(self, ids: dict[bytes, EntryId]) -> None:
        self.ids = ids
        self.entries: list[Entry] = []
        self.delivered = 0
        self.pending: dict[EntryId, bytes] = {}

    def run(self, request: Operation) -> bool:
        result: Any
        if isinstance(request, Add):
            result = self.ids.get(request.value)
            if result is None or (self.entries and result <= self.entries[-1][0]):
                return False
            self.entries.append((result, request.value))
        elif isinstance(request, Deliver):
            result = tuple(self.entries[self.delivered : self.delivered + request.count])
            self.delivered += len(result)
            self.pending |= dict.fromkeys((entry_id for entry_id, _ in result), request.consumer)
        elif isinstance(request, Ack):
            result = sum(self.pending.pop(entry_id, None) is not None for entry_id in set(request.ids))
        elif isinstance(request, Range):
            result = tuple(entry for entry in self.entries if entry[0] >= request.start)
        elif isinstance(request, Pending):
            return self.pending == dict(request.result)
        else:
            result = len(self.entries)
        return request.returned is None or bool(result == request.result)  # type: ignore[attr-defined]


def is_possible(history: Sequence[Operation], model: Model) -> bool:
    """The definition, tried out: every order that the times allow, every choice of unknown operations."""
    if all(each.returned is None for each in history):
        return True
    bound = min(each.deadline for each in history)
    for each in history:
        if each.invoked <= bound:
            after = copy.deepcopy(model)
            if after.run(each) and is_possible([other for other in history if other is not each], after):
                return True
    return False


def disturb(history: list[Operation], chance: random.Random) -> list[Operation]:
    """The same with one answer changed, or one moved in time, which may or may not make it impossible."""
    which = chance.choice(history[:-1])
    changed: Operation
    if chance.random() < 0.5 and which.returned is not None:
        changed = replace(which, invoked=max(0, which.invoked - 2), returned=max(0, which.returned - 2))
    elif isinstance(which, Length):
        changed = replace(which, result=which.result + chance.choice([-1, 1]))
    elif isinstance(which, Ack) and which.returned is not None:
        changed = replace(which, result=abs(which.result - 1))
    elif isinstance(which, Deliver | Range) and which.result:
        changed = replace(which, result=which.result[:-1])
    elif isinstance(which, Pending):
        changed = replace(which, result=which.result[1:])
    else:
        changed = replace(which, returned=None)
    return [changed if each is which else each for each in history]


def test_the_search_agrees_with_trying_out_everything() -> None:
    outcomes = Counter[bool]()
    for seed in range(3000):
        chance = random.Random(seed)
        history = simulate(seed, operations=chance.randint(2, 7), clients=3, lose=0.25)
        for _ in range(chance.choice([0, 1, 1, 2])):
            history = disturb(history, chance)
        ids = {each.value: each.result for each in answered(history, Add) if each.result is not None}
        seen = [entry for each in history if isinstance(each, Deliver | Range) for entry in each.result]
        ids |= {value: entry_id for entry_id, value in seen}
        try:
            found = bool(check(history))
        except ValueError:
            continue
        assert found == is_possible(history, Model(ids)), (seed, history)
        outcomes[found] += 1
    assert min(outcomes[True], outcomes[False]) > 300


# --- Planted bugs -----------------------------------------------------------------------------------------------------------

Kind = TypeVar("Kind", bound=Operation)
Bug = Callable[[list[Operation], random.Random], list[Operation]]


def answered(history: Sequence[Operation], kind: type[Kind]) -> list[Kind]:
    return [each for each in history if isinstance(each, kind) and each.returned is not None]


def an_acknowledgement_is_dropped(history: list[Operation], chance: random.Random) -> list[Operation]:
    """An entry is pending at the end though its XACK was answered with 1."""
    dropped = chance.choice([each for each in answered(history, Ack) if each.result == len(each.ids)])
    look = next(each for each in history if isinstance(each, Pending))
    owner = next(each.consumer for each in answered(history, Deliver) if dropped.ids[0] in dict(each.result))
    after = replace(look, result=tuple(sorted((*look.result, (dropped.ids[0], owner)))))
    return [after if each is look else each for each in history]


def two_entries_are_reordered(history: list[Operation], chance: random.Random) -> list[Operation]:
    """An entry is behind another one that was added after its own XADD had been answered."""
    adds = answered(history, Add)
    first, second = chance.choice([(one, other) for one in adds for other in adds if one.deadline < other.invoked])
    swapped = {first.result: second.value, second.result: first.value}

    def swap(each: Operation) -> Operation:
        if isinstance(each, Deliver | Range):
            return replace(
                each, result=tuple((entry_id, swapped.get(entry_id, value)) for entry_id, value in each.result)
            )
        if each is first or each is second:
            return replace(each, result=(second if each is first else first).result)
        return each

    return [swap(each) for each in history]


def an_entry_is_lost(history: list[Operation], chance: random.Random) -> list[Operation]:
    """An entry whose XADD was answered is missing at the end."""
    lost = chance.choice(answered(history, Add)).result
    *others, last = history
    assert isinstance(last, Range)
    return [*others, replace(last, result=tuple(entry for entry in last.result if entry[0] != lost))]


def an_entry_is_delivered_twice(history: list[Operation], chance: random.Random) -> list[Operation]:
    """A read hands out, before its own entries, one that another has already handed out."""
    some = [each for each in answered(history, Deliver) if each.result]
    first, second = chance.sample(some, 2)
    entry = chance.choice(first.result)
    twice = replace(second, result=(entry, *second.result))
    return [twice if each is second else each for each in history]


def a_read_is_stale(history: list[Operation], chance: random.Random) -> list[Operation]:
    """A length from before the last XADD that was answered, and no other was under way."""
    *others, look, last = history
    assert isinstance(last, Range)
    stale = Length("stale", KEY, look.invoked, look.deadline, result=len(last.result) - 1)
    return [*others, stale, look, last]


BUGS: list[Bug] = [
    an_acknowledgement_is_dropped,
    two_entries_are_reordered,
    an_entry_is_lost,
    an_entry_is_delivered_twice,
    a_read_is_stale,
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_a_planted_bug_is_always_found(bug: Bug, seed: int) -> None:
    lose = 0.0 if bug is a_read_is_stale else 0.03
    history = simulate(seed, operations=200, lose=lose)
    assert check(history)
    assert not check(bug(history, random.Random(seed)))
