"""What there is to know about a stream, its groups and its consumers at a moment, for whoever watches a server.

    StreamState ── groups: GroupState ── consumers: ConsumerState

A program that looks from outside fills it from replies (watching/look.py). IDs are tuples `(ms, seq)`. What a server does not
tell is None.

The times come from entry IDs, which is where the time of an entry stands: an ID that a producer has made up (`1-1`) says nothing
about time, so its age is None.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["ConsumerState", "GroupState", "StreamState", "age_s", "is_time"]

EARLIEST_MS = 10**12
"""IDs below this (September 2001) are no times."""
FUTURE_MS = 86_400_000
"""So far ahead a producer's clock may be; what is later is no time."""

ID = tuple[int, int]


def is_time(ms: int, now_ms: int) -> bool:
    """Whether the first part of an ID can be a moment at which an entry was added."""
    return EARLIEST_MS <= ms <= now_ms + FUTURE_MS


def age_s(entry_id: ID | None, now_ms: int) -> float | None:
    """How long ago an entry was added, in seconds; None if there is none, or its ID is no time."""
    if entry_id is None or not is_time(entry_id[0], now_ms):
        return None
    return max(0, now_ms - entry_id[0]) / 1000


@dataclass(slots=True)
class ConsumerState:
    """A consumer.

    idle_ms      since it last tried to read or claim
    inactive_ms  since it last got something; None: never, or unknown
    """

    name: bytes
    pending: int
    idle_ms: int
    inactive_ms: int | None = None


@dataclass(slots=True)
class GroupState:
    """A consumer group.

    entries_read    entries of the stream's history that it has read; None: unknown
    lag             entries that it has not read; None: unknown
    next_id         the first entry that it has not read; None: it has read all
    oldest_pending  the smallest pending ID
    consumer_count  also of those that are not in `consumers`, whose number is bounded
    """

    name: bytes
    last_delivered: ID
    entries_read: int | None
    lag: int | None
    next_id: ID | None
    pending: int
    oldest_pending: ID | None
    consumer_count: int
    consumers: list[ConsumerState] = field(default_factory=list)

    def lag_s(self, now_ms: int) -> float | None:
        """How long the first entry that it has not read has been waiting; 0 when there is none."""
        return 0.0 if self.next_id is None else age_s(self.next_id, now_ms)

    def oldest_pending_s(self, now_ms: int) -> float | None:
        """The age of its oldest pending entry; 0 when there is none."""
        return 0.0 if self.oldest_pending is None else age_s(self.oldest_pending, now_ms)

    @property
    def done_before(self) -> ID:
        """Entries below this ID were delivered and acknowledged."""
        beyond = self.last_delivered[0], self.last_delivered[1] + 1
        return beyond if self.oldest_pending is None else min(beyond, self.oldest_pending)


@dataclass(slots=True)
class StreamState:
    """A stream.

    first_id, last_id  of its entries; None: it is empty
    entries_added      in all its life
    bytes              of memory; None: unknown
    ttl_ms             until its key expires; None: it does not
    """

    key: bytes
    length: int
    entries_added: int
    first_id: ID | None
    last_id: ID | None
    bytes: int | None = None
    ttl_ms: int | None = None
    groups: list[GroupState] = field(default_factory=list)

    @property
    def is_untouched(self) -> bool:
        """Nothing was ever trimmed or deleted."""
        return self.length == self.entries_added

    @property
    def done_entries(self) -> int | None:
        """Entries that every group has acknowledged: a lower bound; None: there is no group, or a lag is unknown."""
        left = [None if group.lag is None else group.lag + group.pending for group in self.groups]
        known = [each for each in left if each is not None]
        return None if not left or len(known) < len(left) else max(0, self.length - max(known))

    @property
    def done_before(self) -> ID | None:
        """Entries below this ID were acknowledged by all groups; None: there is no group."""
        return min((group.done_before for group in self.groups), default=None)
