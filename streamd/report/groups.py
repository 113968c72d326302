"""What the consumer groups of a stream are doing, as far as a server reports it. Without Spark.

    look_at_groups(connection, stream)   one look: a GroupState for each group, with its pending entries
    Watch(connection, stream)            repeated looks: what was acknowledged in between, and how long it took
    find_dead_letters(states, above)     pending entries that were delivered too often

The sources are XINFO, XPENDING and XRANGE. An acknowledgement leaves no trace except that the entry is no longer
pending; so the processing times of a Watch lie between two bounds (its two looks), and an entry that comes and goes
between two looks is not seen individually, only counted. All times are the server's (TIME), taken together with
what they belong to.

    entry ID's ms        first delivery    delivery (the last one)                acknowledged
        |----- waiting -----|---- ... ----|----------- processing ---------------------|
        |------- delivery latency --------|  processing_min_ms .. processing_max_ms

The lag in entries is the server's own number, which differs between servers when entries were trimmed or deleted that the
group had not read (Redis counts the entries left, Valkey all that were ever added); so each state names its server. A
server that does not know it answers null; then the entries are counted, up to a limit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from streamd.client.connection import Connection, server_features
from streamd.client.key_names import stream_key, stream_name
from streamd.client.points import format_entry_id, ms_of, parse_entry_id
from streamd.client.replies import clock_ms, pairs
from streamd.stream_state import is_time

__all__ = [
    "Ack",
    "DeadLetter",
    "GroupLag",
    "GroupState",
    "PendingEntry",
    "Throughput",
    "Watch",
    "acks_between",
    "find_dead_letters",
    "look_at_groups",
    "throughput_between",
]

PAGE = 1000
"""Pending entries per request."""

DEFAULT_PENDING_LIMIT = 100_000
DEFAULT_COUNT_LIMIT = 100_000


def _distance(later_ms: int, earlier_ms: int, now_ms: int) -> int | None:
    """From one moment to another; None unless both are times, which IDs that a producer has made up are not."""
    return later_ms - earlier_ms if is_time(later_ms, now_ms) and is_time(earlier_ms, now_ms) else None


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000


# --- Results: flat records, each of which is a row of a table -------------------------------------------------------------


@dataclass(frozen=True)
class GroupLag:
    """How far a group is behind."""

    stream: str
    group: str
    server: str  # name and version: the meaning of `lag` is the server's
    observed_ms: int  # Unix time of the server
    length: int  # entries of the stream
    consumers: int
    pending: int  # entries delivered and not acknowledged
    entries_read: int | None  # None: the server does not know
    lag: int | None  # entries not delivered yet; None: too many to count
    is_lag_counted: bool  # the server did not know it, so the entries were counted
    lag_s: float | None  # age of the oldest undelivered entry; 0: there is none
    behind_s: float | None  # from the last delivered entry to the newest one, by their IDs
    oldest_pending_s: float | None  # age of the oldest pending entry, by its ID; None: nothing is pending
    last_delivered_id: str


@dataclass(frozen=True)
class PendingEntry:
    """An entry of a group's PEL."""

    stream: str
    group: str
    consumer: str
    id: str
    observed_ms: int  # Unix time of the server
    delivered_ms: int  # the same, of the last delivery
    deliveries: int
    idle_s: float  # since the last delivery
    delivery_latency_s: float | None  # from the entry's ID to its last delivery; the first one when `deliveries` is 1


@dataclass(frozen=True)
class Ack:
    """An entry that was pending at one look and no longer at the next."""

    stream: str
    group: str
    consumer: str
    id: str
    deliveries: int
    delivered_ms: int  # Unix time of the server, of the last delivery that was seen
    delivery_latency_s: float | None
    processing_min_s: float  # from that delivery to the look that still saw it
    processing_max_s: float  # ... to the look that did not

    @property
    def processing_s(self) -> float:
        return (self.processing_min_s + self.processing_max_s) / 2


@dataclass(frozen=True)
class DeadLetter:
    """A pending entry that was delivered too often."""

    stream: str
    group: str
    consumer: str
    id: str
    deliveries: int
    idle_s: float
    is_deleted: bool  # the stream no longer holds it: nobody can ever process it
    fields: tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True)
class GroupState:
    """One group at one look."""

    lag: GroupLag
    pending: tuple[PendingEntry, ...]  # by rising ID
    is_pending_complete: bool  # otherwise only the lowest IDs of the PEL were looked at

    @property
    def group(self) -> str:
        return self.lag.group


# --- Looking --------------------------------------------------------------------------------------------------------------


def look_at_groups(
    connection: Connection,
    stream: str,
    *,
    groups: Iterable[str] | None = None,
    pending_limit: int = DEFAULT_PENDING_LIMIT,
    count_limit: int = DEFAULT_COUNT_LIMIT,
    server: str | None = None,
) -> list[GroupState]:
    """The state of the groups of a stream, by name.

    groups         only these; unknown names are ignored
    pending_limit  maximum number of pending entries of a group to look at, from the lowest ID on
    count_limit    maximum number of entries to count for a group whose lag the server does not know
    server         name and version, if known; otherwise the server is asked
    Raises ServerError: no such key, no stream, no permission. Some round trips, and one for each 1000 pending entries.
    """
    server = server or str(server_features(connection))
    key = stream_key(stream)
    # Nothing is watched, so EXEC cannot fail; a transaction, so that groups and stream are from the same moment.
    looked = connection.transaction([("TIME",), ("XINFO", "STREAM", key), ("XINFO", "GROUPS", key)]) or []
    now_ms, info, found = clock_ms(looked[0]), pairs(looked[1]), [pairs(each) for each in looked[2]]
    wanted = None if groups is None else set(groups)
    names = [stream_name(each[b"name"]) for each in found]
    return [
        _look(connection, stream, name, group, info, now_ms, server, pending_limit, count_limit)
        for name, group in sorted(zip(names, found, strict=True), key=lambda each: each[0])
        if wanted is None or name in wanted
    ]


def _look(
    connection: Connection,
    stream: str,
    name: str,
    group: dict[bytes, Any],
    info: dict[bytes, Any],
    now_ms: int,
    server: str,
    pending_limit: int,
    count_limit: int,
) -> GroupState:
    key, last = stream_key(stream), parse_entry_id(group[b"last-delivered-id"])
    next_entries = connection.command("XRANGE", key, f"({format_entry_id(last)}", "+", "COUNT", 1)
    lag, is_counted = group.get(b"lag"), False
    if lag is None or lag < 0:  # a group whose ENTRIESREAD is higher than what was added
        lag, is_counted = _count_after(connection, key, last, count_limit), True
    newest = info[b"last-entry"]
    behind = _distance(ms_of(parse_entry_id(newest[0])), ms_of(last), now_ms) if newest and next_entries else 0
    waiting = _distance(now_ms, ms_of(parse_entry_id(next_entries[0][0])), now_ms) if next_entries else 0
    pending, is_complete = _pending(connection, stream, name, pending_limit)
    oldest = _distance(now_ms, ms_of(parse_entry_id(pending[0].id)), now_ms) if pending else None
    return GroupState(
        GroupLag(
            stream=stream,
            group=name,
            server=server,
            observed_ms=now_ms,
            length=info[b"length"],
            consumers=group[b"consumers"],
            pending=group[b"pending"],
            entries_read=group.get(b"entries-read"),
            lag=lag,
            is_lag_counted=is_counted,
            lag_s=_seconds(waiting),
            # A group at 0-0 has read nothing: the distance would be counted from 1970.
            behind_s=_seconds(behind if last else waiting),
            oldest_pending_s=_seconds(oldest),
            last_delivered_id=format_entry_id(last),
        ),
        tuple(pending),
        is_complete,
    )


def _count_after(connection: Connection, key: bytes, last: int, limit: int) -> int | None:
    """How many entries come after an ID, or None when they are more than the limit."""
    count = 0
    while True:
        page = connection.command("XRANGE", key, f"({format_entry_id(last)}", "+", "COUNT", PAGE)
        count += len(page)
        if len(page) < PAGE:
            return count
        if count >= limit:
            return None
        last = parse_entry_id(page[-1][0])


def _pending(connection: Connection, stream: str, group: str, limit: int) -> tuple[list[PendingEntry], bool]:
    """The PEL of a group, up to a limit, and whether that was all of it."""
    found: list[PendingEntry] = []
    start, key, name = "-", stream_key(stream), stream_key(group)
    while True:
        wanted = min(PAGE, limit - len(found))
        if wanted <= 0:
            return found, False
        clock, page = connection.pipeline([("TIME",), ("XPENDING", key, name, start, "+", wanted)])
        now_ms = clock_ms(clock)
        found += (_pending_entry(stream, group, now_ms, *each) for each in page)
        if len(page) < wanted:
            return found, True
        start = f"({stream_name(page[-1][0])}"


def _pending_entry(
    stream: str, group: str, now_ms: int, entry_id: bytes, consumer: bytes, idle_ms: int, deliveries: int
) -> PendingEntry:
    delivered_ms = now_ms - idle_ms
    return PendingEntry(
        stream=stream,
        group=group,
        consumer=stream_name(consumer),
        id=entry_id.decode(),
        observed_ms=now_ms,
        delivered_ms=delivered_ms,
        deliveries=deliveries,
        idle_s=idle_ms / 1000,
        delivery_latency_s=_seconds(_distance(delivered_ms, ms_of(parse_entry_id(entry_id)), now_ms)),
    )


def find_dead_letters(
    connection: Connection, states: Iterable[GroupState], *, above: int, limit: int = 10_000
) -> list[DeadLetter]:
    """Pending entries delivered more than `above` times, those delivered most often first, with their fields.

    limit  maximum number; the entries are fetched in one pipeline
    """
    found = [each for state in states for each in state.pending if each.deliveries > above]
    found = sorted(found, key=lambda each: (-each.deliveries, parse_entry_id(each.id)))[:limit]
    entries = connection.pipeline([("XRANGE", stream_key(each.stream), each.id, each.id) for each in found])
    return [
        DeadLetter(
            stream=each.stream,
            group=each.group,
            consumer=each.consumer,
            id=each.id,
            deliveries=each.deliveries,
            idle_s=each.idle_s,
            is_deleted=not entry,
            fields=tuple(zip(entry[0][1][::2], entry[0][1][1::2], strict=True)) if entry else (),
        )
        for each, entry in zip(found, entries, strict=True)
    ]


# --- Looking again --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Throughput:
    """What a group did between two looks.

    read, acked   entries delivered for the first time, entries that left the PEL or were never in it (NOACK)
    processing_s  how long an entry stays pending on average, including those not seen individually: pending entries by
                  acknowledgements per second (Little's law). None when nothing was acknowledged
    """

    stream: str
    group: str
    observed_ms: int
    seconds: float
    read: int
    acked: int
    processing_s: float | None


@dataclass
class Watch:
    """Looks at the groups of a stream repeatedly, and keeps what changed between looks.

    Of each kind of record the newest `keep` are kept.
    """

    connection: Connection
    stream: str
    groups: tuple[str, ...] | None = None
    pending_limit: int = 10_000
    keep: int = 100_000
    acks: list[Ack] = field(default_factory=list)
    lags: list[GroupLag] = field(default_factory=list)
    throughputs: list[Throughput] = field(default_factory=list)
    _server: str | None = None
    _before: dict[str, GroupState] = field(default_factory=dict)

    def look(self) -> list[GroupState]:
        """Look once more. Returns what was seen."""
        if self._server is None:
            self._server = str(server_features(self.connection))
        states = look_at_groups(
            self.connection, self.stream, groups=self.groups, pending_limit=self.pending_limit, server=self._server
        )
        for state in states:
            self.lags.append(state.lag)
            before = self._before.get(state.group)
            if before is not None:
                self.acks += acks_between(before, state)
                self.throughputs += throughput_between(before.lag, state.lag)
        for kept in (self.acks, self.lags, self.throughputs):
            del kept[: -self.keep]
        self._before = {state.group: state for state in states}
        return states


def acks_between(before: GroupState, after: GroupState) -> list[Ack]:
    """The entries that were pending and are no longer, as far as both looks reach.

    An entry that was removed from the PEL otherwise (its consumer deleted, XDEL with DELREF) looks the same.
    """
    still = {each.id: each for each in after.pending}
    reach = None if after.is_pending_complete else parse_entry_id(after.pending[-1].id) if after.pending else -1
    # The pages of a PEL are read one after the other; no page of this look is later than the last.
    seen_ms = max((each.observed_ms for each in after.pending), default=after.lag.observed_ms)
    found = []
    for each in before.pending:
        if each.id in still or (reach is not None and parse_entry_id(each.id) > reach):
            continue
        found.append(
            Ack(
                stream=each.stream,
                group=each.group,
                consumer=each.consumer,
                id=each.id,
                deliveries=each.deliveries,
                delivered_ms=each.delivered_ms,
                delivery_latency_s=each.delivery_latency_s,
                processing_min_s=each.idle_s,
                processing_max_s=max(each.idle_s, (seen_ms - each.delivered_ms) / 1000),
            )
        )
    return found


def throughput_between(before: GroupLag, after: GroupLag) -> list[Throughput]:
    """What a group did between two looks; nothing when the server does not count, or the group was recreated."""
    read_before, read_after = _entries_read(before), _entries_read(after)
    if read_before is None or read_after is None or read_after < read_before:
        return []
    elapsed_ms = after.observed_ms - before.observed_ms
    if elapsed_ms < 0:  # the clock was set
        return []
    seconds = max(elapsed_ms, 1) / 1000
    read = read_after - read_before
    acked = max(0, read - (after.pending - before.pending))
    mean_pending = (before.pending + after.pending) / 2
    return [
        Throughput(
            stream=after.stream,
            group=after.group,
            observed_ms=after.observed_ms,
            seconds=seconds,
            read=read,
            acked=acked,
            processing_s=mean_pending * seconds / acked if acked else None,
        )
    ]


def _entries_read(lag: GroupLag) -> int | None:
    """A group positioned before all entries has read none, whether the server says so or not."""
    return 0 if lag.entries_read is None and lag.last_delivered_id == "0-0" else lag.entries_read
