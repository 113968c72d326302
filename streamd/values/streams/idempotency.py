"""Idempotent producers: which entries a stream received from which producer, so that a resent entry is not added twice.

A producer has an ID (pid) and marks each entry with an idempotent ID (iid). Per stream, `Idempotency` keeps pid -> iid
-> the ID the entry got, in order of arrival, at most `max_size` for each producer. An IID is forgotten `duration_s`
after its entry's time, but only when `expire` is called: the server does that once a second, for all streams at once,
through an `IdempotencyRegistry`.

Invariants (check_invariants): every producer has IIDs; each has one element in the heap of deadlines, which is not
above the milliseconds of its oldest IID. (Evicting an IID for lack of room leaves the element unchanged; it is
corrected when it comes up.) So `expire` only looks at producers that have, or may have, something to expire.
"""

# ruff: noqa: S101 (check_invariants consists of assertions)
from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamd.core.context import Context

__all__ = ["Idempotency", "IdempotencyRegistry", "automatic_iid", "registry_of"]

EntryID = tuple[int, int]

_LOW = 2**64 - 1


class IdempotencyRegistry:
    """All that is tracked in one server. Does not keep streams alive."""

    def __init__(self) -> None:
        self._tracked: weakref.WeakSet[Idempotency] = weakref.WeakSet()

    def __len__(self) -> int:
        return len(self._tracked)

    def add(self, tracked: Idempotency) -> None:
        self._tracked.add(tracked)

    def take(self, other: IdempotencyRegistry) -> None:
        """Take over all that is tracked in another registry, which is not used any more."""
        for tracked in list(other._tracked):
            tracked.move_to(self)

    def expire(self, now_ms: int) -> int:
        """Forget every expired IID; returns how many. O(streams with IIDs + producers concerned)."""
        return sum(tracked.expire(now_ms) for tracked in list(self._tracked))


def registry_of(context: Context) -> IdempotencyRegistry:
    """The registry of the server that commands run in; the server calls its `expire` once a second."""
    registry = context.parts.get(IdempotencyRegistry)
    if registry is None:
        registry = context.parts[IdempotencyRegistry] = IdempotencyRegistry()
    return registry


class Idempotency:
    """What one stream remembers of its idempotent producers.

    registry    where it is registered for expiry
    duration_s  how long an IID is remembered, in seconds after the time of its entry's ID
    max_size    IIDs per producer; the oldest is evicted
    """

    __slots__ = ("__weakref__", "_deadlines", "_producers", "_registry", "duration_s", "max_size")

    def __init__(self, registry: IdempotencyRegistry, duration_s: int, max_size: int) -> None:
        self.duration_s = duration_s
        self.max_size = max_size
        self._registry = registry
        self._producers: dict[bytes, dict[bytes, EntryID]] = {}
        self._deadlines: list[tuple[int, bytes]] = []  # heap of (ms of the oldest IID, pid)
        registry.add(self)

    def move_to(self, registry: IdempotencyRegistry) -> None:
        """Be registered elsewhere."""
        self._registry = registry
        registry.add(self)

    @property
    def producer_count(self) -> int:
        return len(self._producers)

    @property
    def iid_count(self) -> int:
        """All IIDs of all producers. O(producers)."""
        return sum(map(len, self._producers.values()))

    def find(self, pid: bytes, iid: bytes) -> EntryID | None:
        """The ID of the entry that `pid` sent as `iid`, or None when it is not remembered."""
        iids = self._producers.get(pid)
        return None if iids is None else iids.get(iid)

    def record(self, pid: bytes, iid: bytes, entry_id: EntryID) -> None:
        """Remember an IID, replacing any earlier record of it; beyond max_size the oldest one is evicted."""
        iids = self._producers.get(pid)
        if iids is None:
            iids = self._producers[pid] = {}
            heappush(self._deadlines, (entry_id[0], pid))
        else:
            iids.pop(iid, None)
        iids[iid] = entry_id
        if len(iids) > self.max_size:
            del iids[next(iter(iids))]

    def expire(self, now_ms: int) -> int:
        """Forget the IIDs whose entries are at least duration_s old at `now_ms`; returns how many."""
        newest = now_ms - self.duration_s * 1000
        deadlines = self._deadlines
        expired = 0
        while deadlines and deadlines[0][0] <= newest:
            pid = heappop(deadlines)[1]
            iids = self._producers[pid]
            old = 0
            for entry_id in iids.values():
                if entry_id[0] > newest:
                    heappush(deadlines, (entry_id[0], pid))
                    break
                old += 1
            if old == len(iids):
                del self._producers[pid]
            else:
                for _ in range(old):
                    del iids[next(iter(iids))]
            expired += old
        return expired

    def producers(self) -> Iterator[tuple[bytes, list[tuple[bytes, EntryID]]]]:
        """Each producer in byte order with its IIDs, oldest first."""
        for pid in sorted(self._producers):
            yield pid, list(self._producers[pid].items())

    def copy(self) -> Idempotency:
        """A copy, for another stream."""
        twin = Idempotency(self._registry, self.duration_s, self.max_size)
        twin._producers = {pid: iids.copy() for pid, iids in self._producers.items()}
        twin._deadlines = [(next(iter(iids.values()))[0], pid) for pid, iids in twin._producers.items()]
        heapify(twin._deadlines)
        return twin

    def check_invariants(self) -> None:
        """Raise AssertionError if the state is inconsistent. O(n)."""
        deadlines = {pid: ms for ms, pid in self._deadlines}
        assert len(deadlines) == len(self._deadlines), "a producer has two deadlines"
        assert deadlines.keys() == self._producers.keys(), "deadlines and producers"
        for pid, iids in self._producers.items():
            assert 0 < len(iids) <= self.max_size, f"{len(iids)} IIDs of {pid!r}"
            oldest = next(iter(iids.values()))
            assert deadlines[pid] <= oldest[0], f"deadline of {pid!r} is late"


def automatic_iid(fields: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The IID that IDMPAUTO derives from an entry: 16 bytes that depend on its pairs but not on their order.

    Each pair is hashed (XXH3, 128 bits) as field, length of the field, value; the halves are added and xor-ed over all
    pairs, and each half of the result mixes one sum with the other xor. Behaviour: Redis 8.6, as seen in a DUMP.
    """
    import xxhash  # not earlier: it takes memory that most servers never need

    low_sum = low_xor = high_sum = high_xor = 0
    for field, value in fields:
        digest = xxhash.xxh3_128_intdigest(field + len(field).to_bytes(8, "little") + value)
        low, high = digest & _LOW, digest >> 64
        low_sum += low
        low_xor ^= low
        high_sum += high
        high_xor ^= high
    low = low_sum & _LOW ^ _rotate(high_xor)
    high = high_sum & _LOW ^ _rotate(low_xor)
    return low.to_bytes(8, "little") + high.to_bytes(8, "little")


def _rotate(half: int) -> int:
    """Rotate 64 bits to the left by one."""
    return (half << 1) & _LOW | half >> 63
