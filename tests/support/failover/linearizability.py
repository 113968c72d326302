"""Is a history of clients' operations on a stream with a group explained by one order of all of them?

A *history* is a list of operations, each with the times at which it was invoked and answered. It is *linearizable* when every
operation can be given one moment between these two times, such that a single server that ran them in the order of these
moments would have answered as was seen. `check` decides that:

    verdict = check([Add("p1", KEY, 0.0, 1.0, value=b"a", result=(5, 0)), Range("p1", KEY, 2.0, 3.0, result=(((5, 0), b"a"),))])
    assert verdict, verdict.reason

Outcomes. An operation that was answered has `returned`. One whose outcome is unknown (a timeout, a lost connection, a refusal
after the server had already executed it) has `returned=None`: it may have happened at any moment after it was invoked, or
never. Operations that have certainly not happened do not belong into a history.

The search is that of Wing and Gong with the memory of Lowe: depth first; next comes any operation that was invoked before all
remaining ones had returned and that the model answers as was seen; configurations (which operations are placed, state) that
led nowhere are remembered. Keys are independent of each other, so each is searched on its own.

The model is a stream to which entries are added, with one group that was created at its beginning; nothing is deleted. State:

    added       how many entries there are
    delivered   how many of them the group has handed out; all before it are delivered, none behind it
    pending     those that are delivered and not acknowledged, a set of bits
    strays      who got the entries of which no client has said that it received them
    used        which of the reads with unknown outcome have been placed, a set of bits

Three facts make it fast; each is exact, not a heuristic:

- IDs grow, so entries have one possible order, known beforehand, and so have the reads that delivered something. At any moment
  at most one Add and one Deliver that returned something can come next.
- An operation that changes nothing and is answered rightly now can be placed now: whatever comes later does not notice. So can
  an Ack that takes all its entries, if nobody looked at the pending ones in the meantime.
- An unknown Add or Ack is noticed only through what somebody else sees: an entry, a length, a count. It is placed when that
  happens, not before, and an unknown Add whose entry nobody ever saw has not happened, as the history ends with a
  Range over everything. Only unknown Delivers are tried out, and only where entries are missing among the deliveries.

Cost: with n operations, w of them concurrent, and u unknown Delivers, there are at most n * w^2 * 2^u configurations, each
O(w + n / 64) to leave; in practice about n. A history of thousands of operations takes a fraction of a second.

Restrictions, which raise ValueError: values of Adds are unique; the last operation on a key is a Range of all of it that nothing
overlaps; an unknown Ack names entries that had been delivered to somebody before it was invoked.
"""

from __future__ import annotations

import functools
import itertools
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

__all__ = [
    "Ack",
    "Add",
    "Deliver",
    "Entry",
    "EntryId",
    "Length",
    "Operation",
    "Pending",
    "Range",
    "Undecided",
    "Verdict",
    "check",
]

EntryId = tuple[int, int]
Entry = tuple[EntryId, bytes]
"""An ID and the value that was added under it."""


@dataclass(frozen=True, slots=True)
class Operation:
    """What a client asked of one key.

    client    who asked; for reports
    invoked   when the request was sent, seconds
    returned  when its answer was there, on the same clock; None: the outcome is unknown
    """

    client: str
    key: bytes
    invoked: float
    returned: float | None

    @property
    def deadline(self) -> float:
        """The last moment at which it may have happened."""
        return inf if self.returned is None else self.returned


@dataclass(frozen=True, slots=True)
class Add(Operation):
    """XADD with an ID made by the server, which is the result."""

    value: bytes
    result: EntryId | None = None


@dataclass(frozen=True, slots=True)
class Deliver(Operation):
    """XREADGROUP of new entries, at most `count`."""

    consumer: bytes
    count: int
    result: tuple[Entry, ...] = ()


@dataclass(frozen=True, slots=True)
class Ack(Operation):
    """XACK; the result is how many of the entries were pending."""

    ids: tuple[EntryId, ...]
    result: int = 0


@dataclass(frozen=True, slots=True)
class Length(Operation):
    """XLEN."""

    result: int = 0


@dataclass(frozen=True, slots=True)
class Range(Operation):
    """XRANGE from `start` to the end."""

    start: EntryId = (0, 0)
    result: tuple[Entry, ...] = ()


@dataclass(frozen=True, slots=True)
class Pending(Operation):
    """XPENDING of all that is pending: pairs of ID and consumer."""

    result: tuple[tuple[EntryId, bytes], ...] = ()


@dataclass(frozen=True)
class Verdict:
    """The answer of `check`; true when the history is linearizable.

    reason          what is wrong; empty when nothing is
    configurations  how many the search looked at
    """

    reason: str
    configurations: int

    def __bool__(self) -> bool:
        return not self.reason


class Undecided(Exception):
    """The search has taken too long."""


def check(history: Iterable[Operation], most: int = 1_000_000) -> Verdict:
    """Whether the history is linearizable; see the head of the module. Raises Undecided after `most` configurations of a key."""
    by_key: dict[bytes, list[Operation]] = defaultdict(list)
    for operation in history:
        by_key[operation.key].append(operation)
    configurations = 0
    for key, operations in by_key.items():
        try:
            search = Search(operations, most)
            reason = search.run()
            configurations += search.configurations
        except Anomaly as anomaly:
            reason = str(anomaly)
        if reason:
            return Verdict(f"{key.decode()}: {reason}", configurations)
    return Verdict("", configurations)


class Anomaly(Exception):
    """Something that no order can explain and that needs no search."""


class State(NamedTuple):
    """See the head of the module. `strays` holds (first, behind the last, consumer), positions of entries."""

    added: int = 0
    delivered: int = 0
    pending: int = 0
    strays: tuple[tuple[int, int, bytes], ...] = ()
    used: int = 0


class Placed(NamedTuple):
    """Which answered operations, sorted by invocation, are placed: those before `low`, and the bits of `beyond` from there."""

    low: int = 0
    beyond: int = 0

    def has(self, at: int) -> bool:
        return at < self.low or bool(self.beyond >> (at - self.low) & 1)

    def with_one(self, at: int) -> Placed:
        beyond = self.beyond | 1 << (at - self.low)
        low = self.low
        while beyond & 1:
            beyond >>= 1
            low += 1
        return Placed(low, beyond)


@dataclass
class Frame:
    """A configuration on the current path, and the ways on from it that were not tried yet."""

    placed: Placed
    state: State
    onward: Iterator[tuple[Placed, State]]


@dataclass
class Ids:
    """The entries of a key: in the order of their IDs, which is that in which they were added.

    order    all IDs that anybody ever saw
    at       ID -> position in `order`
    values   ID -> value
    since    position -> when its Add was invoked, if that had no answer; None when it had one
    """

    order: list[EntryId]
    at: dict[EntryId, int]
    values: dict[EntryId, bytes]
    since: list[float | None] = field(default_factory=list)


class Search:
    """The search for one key."""

    def __init__(self, operations: Sequence[Operation], most: int) -> None:
        self.most = most
        known = [each for each in operations if each.returned is not None]
        unknown = [each for each in operations if each.returned is None]
        self.operations = operations
        self.known = sorted(known, key=lambda each: (each.invoked, each.deadline))
        self.configurations = 0
        self._furthest: tuple[int, Placed, State] = (-1, Placed(), State())
        self._check_last()
        self.ids = _collect_ids(operations)
        _find_repeated_deliveries(known)
        self.spans = self._find_spans()
        self._takers = self._find_takers()
        self.unknown_delivers = sorted(
            (each for each in unknown if isinstance(each, Deliver)), key=lambda each: each.invoked
        )
        self.unknown_acks = self._find_unknown_acks(unknown)
        looks = [each for each in self.known if isinstance(each, Pending)]
        self._is_watched = {
            at: any(look.invoked <= each.deadline and look.deadline >= each.invoked for look in looks)
            for at, each in enumerate(self.known)
            if isinstance(each, Ack)
        }

    # --- What is known before the search ---------------------------------------------------------------------------------

    def _check_last(self) -> None:
        last = max(self.known, key=lambda each: each.invoked, default=None)
        if (
            not isinstance(last, Range)
            or last.start != (0, 0)
            or any(each.deadline > last.invoked for each in self.known if each is not last)
        ):
            raise ValueError("the last operation on a key must be a Range of all of it, after all others")

    def _find_spans(self) -> dict[int, tuple[int, int]]:
        """Of every answered Deliver that returned something: the positions of its entries."""
        spans = {}
        for index, each in enumerate(self.known):
            if isinstance(each, Deliver) and each.result:
                places = [self.ids.at[entry_id] for entry_id, _ in each.result]
                if places != list(range(places[0], places[0] + len(places))):
                    raise Anomaly(f"{each} left out entries or changed their order")
                spans[index] = places[0], places[-1] + 1
        return spans

    def _find_takers(self) -> list[bytes | None]:
        """Of every entry: which consumer may have got it from an unknown Deliver. Empty: none; None: any."""
        takers: list[bytes | None] = [None] * len(self.ids.order)
        for each in self.known:
            if isinstance(each, Pending):
                for entry_id, consumer in each.result:
                    if entry_id not in self.ids.at:
                        raise Anomaly(f"{entry_id} is pending, and nobody saw it in the stream")
                    takers[self.ids.at[entry_id]] = consumer
        for first, behind in self.spans.values():
            takers[first:behind] = [b""] * (behind - first)
        for entry_id in self._never_delivered():
            takers[self.ids.at[entry_id]] = b""
        return takers

    def _never_delivered(self) -> set[EntryId]:
        """Entries that are not pending at the very end, and that no Ack names either."""
        *others, look, _ = self.known if len(self.known) > 1 else (None, None)
        if not isinstance(look, Pending) or any(each.deadline > look.invoked for each in others):
            return set()
        acknowledged = {entry_id for each in self.operations if isinstance(each, Ack) for entry_id in each.ids}
        return set(self.ids.order) - dict(look.result).keys() - acknowledged

    def _find_unknown_acks(self, unknown: Sequence[Operation]) -> list[tuple[float, int]]:
        """When each unknown Ack was invoked, and the bits of its entries."""
        received = {
            entry_id: self.known[index].deadline
            for index, (first, behind) in self.spans.items()
            for entry_id in self.ids.order[first:behind]
        }
        acks = [each for each in unknown if isinstance(each, Ack)]
        for each in acks:
            if any(received.get(entry_id, inf) > each.invoked for entry_id in each.ids):
                raise ValueError(f"{each} names an entry that nobody had received")
        return sorted((each.invoked, self._bits(each.ids)) for each in acks)

    def _bits(self, ids: Iterable[EntryId]) -> int:
        return sum(1 << self.ids.at[entry_id] for entry_id in set(ids) if entry_id in self.ids.at)

    # --- The search ------------------------------------------------------------------------------------------------------

    def run(self) -> str:
        """Search; return what is wrong, or nothing."""
        seen: set[tuple[Placed, State]] = set()
        path = [self._frame(Placed(), State())]
        while path:
            frame = path[-1]
            if frame.placed.low == len(self.known):
                return ""
            way = next(frame.onward, None)
            if way is None:
                path.pop()
            elif way not in seen:
                seen.add(way)
                path.append(self._frame(*way))
        return self._explain()

    def _frame(self, placed: Placed, state: State) -> Frame:
        self.configurations += 1
        if self.configurations > self.most:
            raise Undecided(self._explain())
        count = placed.low + placed.beyond.bit_count()
        if count > self._furthest[0]:
            self._furthest = count, placed, state
        return Frame(placed, state, self._onward(placed, state))

    def _next_ones(self, placed: Placed) -> tuple[list[int], float]:
        """Operations that may come next, by the time of their answer; and the moment until which that is certain."""
        bound, found = inf, []
        for index in range(placed.low, len(self.known)):
            each = self.known[index]
            if each.invoked > bound:
                break
            if not placed.has(index):
                found.append(index)
                bound = min(bound, each.deadline)
        found = [index for index in found if self.known[index].invoked <= bound]
        return sorted(found, key=lambda index: self.known[index].deadline), bound

    def _onward(self, placed: Placed, state: State) -> Iterator[tuple[Placed, State]]:
        """The configurations that one more operation leads to; only one of them where that is enough."""
        candidates, bound = self._next_ones(placed)
        for index in candidates:
            if self._is_free(index, state):
                yield placed.with_one(index), self._after_free(index, state)
                return
        for index in candidates:
            for after in self._after(index, state, bound):
                yield placed.with_one(index), after
        for after in self._after_unknown_delivers(state, bound):
            yield placed, after

    def _is_free(self, index: int, state: State) -> bool:
        """Whether the operation can be placed now without loss of generality; see the head of the module."""
        each = self.known[index]
        if isinstance(each, Deliver):
            return not each.result and state.added == state.delivered
        if isinstance(each, Length):
            return each.result == state.added
        if isinstance(each, Range):
            return self._range_end(each) == state.added
        if isinstance(each, Ack):
            bits = self._bits(each.ids)
            whole = each.result == bits.bit_count() == len(each.ids) and bits & state.pending == bits
            return whole and not self._is_watched[index]
        return False

    def _after_free(self, index: int, state: State) -> State:
        each = self.known[index]
        if isinstance(each, Ack):
            return state._replace(pending=state.pending & ~self._bits(each.ids))
        return state

    def _after(self, index: int, state: State, bound: float) -> Iterator[State]:
        """The states in which the operation may leave the model, having been answered as it was."""
        each = self.known[index]
        if isinstance(each, Add):
            assert each.result is not None
            place = self.ids.at[each.result]
            if self._can_reach(state.added, place, bound):
                yield state._replace(added=place + 1)
        elif isinstance(each, Deliver):
            yield from self._after_deliver(index, each, state, bound)
        elif isinstance(each, Length):
            if self._can_reach(state.added, each.result, bound):
                yield state._replace(added=each.result)
        elif isinstance(each, Range):
            end = self._range_end(each)
            if end is not None and self._can_reach(state.added, end, bound):
                yield state._replace(added=end)
        elif isinstance(each, Ack):
            yield from self._after_ack(each, state, bound)
        elif isinstance(each, Pending):
            yield from self._after_pending(each, state, bound)

    def _can_reach(self, added: int, want: int, bound: float) -> bool:
        """Whether unknown Adds that were invoked by `bound` can make `want` entries of `added`."""
        if not added <= want <= len(self.ids.order):
            return False
        times = (self.ids.since[place] for place in range(added, want))
        return all(since is not None and since <= bound for since in times)

    def _after_deliver(self, index: int, each: Deliver, state: State, bound: float) -> Iterator[State]:
        if index not in self.spans:
            return  # it returned nothing, and was free or is not to be placed yet
        first, behind = self.spans[index]
        if first != state.delivered or behind - first > each.count:
            return
        added = max(state.added, behind)
        if behind - first < each.count and added > behind:
            return  # it returned fewer than there were
        if self._can_reach(state.added, added, bound):
            new = (1 << behind) - (1 << first)
            yield state._replace(added=added, delivered=behind, pending=state.pending | new)

    def _after_ack(self, each: Ack, state: State, bound: float) -> Iterator[State]:
        bits = self._bits(each.ids)
        there = bits & state.pending
        # Some of them may have been taken by unknown Acks. Which does not matter for these entries, but may for others.
        others = {mask & state.pending for since, mask in self.unknown_acks if since <= bound and mask & there}
        results = set()
        for number in range(len(others) + 1):
            for some in itertools.combinations(others, number):
                taken = 0
                for mask in some:
                    taken |= mask
                if (there & ~taken).bit_count() == each.result:
                    results.add(state.pending & ~taken & ~bits)
        for pending in results:
            yield state._replace(pending=pending)

    def _after_pending(self, each: Pending, state: State, bound: float) -> Iterator[State]:
        seen = self._bits(entry_id for entry_id, _ in each.result)
        if len(each.result) != seen.bit_count() or seen & ~state.pending:
            return
        gone = state.pending & ~seen
        taken = 0
        for since, mask in self.unknown_acks:
            if since <= bound and not mask & seen:
                taken |= mask & state.pending
        if taken & gone == gone and self._are_owners(each, state):
            yield state._replace(pending=seen)

    def _are_owners(self, each: Pending, state: State) -> bool:
        for entry_id, consumer in each.result:
            place = self.ids.at[entry_id]
            owner = next((who for first, behind, who in state.strays if first <= place < behind), None)
            if owner is None:
                owner = self._receivers[place]
            if owner != consumer:
                return False
        return True

    @functools.cached_property
    def _receivers(self) -> dict[int, bytes]:
        """Position -> the consumer that said it received the entry."""
        receivers = {}
        for index, (first, behind) in self.spans.items():
            each = self.known[index]
            assert isinstance(each, Deliver)
            receivers.update(dict.fromkeys(range(first, behind), each.consumer))
        return receivers

    def _range_end(self, each: Range) -> int | None:
        """How many entries there were when this was read; None when it was never like that."""
        first = bisect_left(self.ids.order, each.start)
        end = first + len(each.result)
        seen = [entry_id for entry_id, _ in each.result]
        return end if self.ids.order[first:end] == seen else None

    def _after_unknown_delivers(self, state: State, bound: float) -> Iterator[State]:
        tried = set()
        for number, each in enumerate(self.unknown_delivers):
            kind = each.consumer, each.count
            if each.invoked > bound or state.used >> number & 1 or kind in tried:
                continue
            tried.add(kind)  # of those that do the same, the one invoked first is as good as any
            reached = set()
            for added in range(state.added, len(self.ids.order) + 1):
                if not self._can_reach(state.added, added, bound):
                    break
                behind = min(added, state.delivered + each.count)
                takers = self._takers[state.delivered : behind]
                if takers and behind not in reached and all(who in (None, each.consumer) for who in takers):
                    reached.add(behind)
                    yield self._after_stray(state, number, each, behind)

    def _after_stray(self, state: State, number: int, each: Deliver, behind: int) -> State:
        return State(
            max(state.added, behind),
            behind,
            state.pending | (1 << behind) - (1 << state.delivered),
            (*state.strays, (state.delivered, behind, each.consumer)),
            state.used | 1 << number,
        )

    # --- Reports ---------------------------------------------------------------------------------------------------------

    def _explain(self) -> str:
        """How far the search came, and what could not be placed there."""
        count, placed, state = self._furthest
        stuck = "\n  ".join(str(self.known[index]) for index in self._next_ones(placed)[0])
        return (
            f"{count} of {len(self.known)} operations can be ordered, after which there are {state.added} entries,"
            f" {state.delivered} delivered, {state.pending.bit_count()} pending; then none of these fits:\n  {stuck}"
        )


def _collect_ids(operations: Sequence[Operation]) -> Ids:
    """All IDs that anybody saw. Raises Anomaly when they contradict each other, ValueError when values are not unique."""
    adders: dict[bytes, Add] = {}
    values: dict[EntryId, bytes] = {}
    for each in operations:
        if isinstance(each, Add):
            if each.value in adders:
                raise ValueError(f"the value {each.value!r} was added twice")
            adders[each.value] = each
            if each.result is not None and values.setdefault(each.result, each.value) != each.value:
                raise Anomaly(f"two entries got the ID {each.result}")
    for entry_id, value in _seen_entries(operations):
        adder = adders.get(value)
        if adder is None:
            raise Anomaly(f"nobody added {value!r}, which is there as {entry_id}")
        if values.setdefault(entry_id, value) != value:
            raise Anomaly(f"{entry_id} is {value!r} and {values[entry_id]!r}")
    twice = [value for value, count in Counter(values.values()).items() if count > 1]
    if twice:
        raise Anomaly(f"{twice[0]!r} is there under two IDs")
    order = sorted(values)
    since = [None if adders[values[each]].returned is not None else adders[values[each]].invoked for each in order]
    return Ids(order, {entry_id: place for place, entry_id in enumerate(order)}, values, since)


def _seen_entries(operations: Sequence[Operation]) -> Iterator[Entry]:
    for each in operations:
        if isinstance(each, Deliver | Range):
            yield from each.result


def _find_repeated_deliveries(operations: Sequence[Operation]) -> None:
    delivered: set[EntryId] = set()
    for each in operations:
        if isinstance(each, Deliver):
            for entry_id, _ in each.result:
                if entry_id in delivered:
                    raise Anomaly(f"{entry_id} was delivered twice, last by {each}")
                delivered.add(entry_id)
