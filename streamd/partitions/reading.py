"""A reader as steps, without I/O: which parts it wants, the lease of each, entries under the lease.

`Reading.keep` and `Reading.read` are generators of steps. Whoever drives them carries a step out and sends the result; a call that has
no reply, since a node does not answer or has no owner for the slot, is thrown in as `NoReplyError`. Nothing is remembered then: a
reader may hold a lease that it does not know of, and gets it again.

    keep        JOIN, which tells all readers that live; share the parts; RENEW the leases; pause; again
    read(part)  ACQUIRE until the lease is ours ─▶ TAKE what is pending, of whomever ─▶ TAKE new entries, or wait ─▶ RELEASE
                handle each batch; it is acknowledged with the next TAKE, or with RELEASE
"""

from __future__ import annotations

import uuid
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from streamd.partitions.partition_error import PartitionError
from streamd.partitions.partition_scripts import ACQUIRE, JOIN, LEAVE, RELEASE, RENEW, TAKE, Script
from streamd.partitions.parts import Parts
from streamd.partitions.sharing import share

__all__ = ["Batch", "Call", "Handle", "NoReplyError", "Pause", "Reading", "Steps", "WaitForEntry"]

Text = str | bytes

MAX_ENTRIES = 5000
"""Scripts of Redis cannot acknowledge more at once."""


@dataclass(frozen=True)
class Batch:
    """Entries of one part, in order.

    part     its number
    stream   its key
    entries  the ID of each, and its fields; text if the client decodes replies, else bytes
    """

    part: int
    stream: str
    entries: Sequence[tuple[Any, dict[Any, Any]]]


@dataclass(frozen=True)
class Call:
    """Run a script; the result is its reply."""

    script: Script
    keys: tuple[str, ...]
    arguments: tuple[Text | int, ...]


@dataclass(frozen=True)
class Handle:
    """Pass entries to the user's function."""

    batch: Batch


@dataclass(frozen=True)
class WaitForEntry:
    """Return when a stream has an entry above an ID, or the time has passed."""

    stream: str
    after: Text
    seconds: float


@dataclass(frozen=True)
class Pause:
    """Return when the time has passed, or the reader stops."""

    seconds: float


Step = Call | Handle | WaitForEntry | Pause
Steps = Generator[Step, Any, None]


class NoReplyError(Exception):
    """A call may or may not have been carried out."""


class Reading:
    """What a reader of some parts wants and holds.

    parts     of which stream
    group     the consumer group of each part, which is created where it does not exist
    consumer  its name in the groups, and as a holder of leases
    lease_s   how long a part waits for a reader that has died
    count     entries of a batch, at most
    start     the ID behind which a new group starts
    """

    def __init__(
        self, parts: Parts, group: str, *, consumer: str | None, lease_s: float, count: int, start: str
    ) -> None:
        if not group:
            raise PartitionError("A consumer group needs a name: give one")
        if lease_s < 0.1:
            raise PartitionError(f"A lease of {lease_s} s is too short: use at least 0.1 s")
        if not 1 <= count <= MAX_ENTRIES:
            raise PartitionError(f"A batch cannot have {count} entries: use 1 to {MAX_ENTRIES}")
        unique = uuid.uuid4().hex[:12]
        self.parts = parts
        self.group = group
        self.consumer = consumer or unique
        # A program that starts again under its name is another reader: what the first one holds has to expire.
        self.token = f"{self.consumer}/{unique}"
        self.wanted: frozenset[int] = frozenset()
        self.held: set[int] = set()
        """Parts whose lease this reader had when it last heard of it."""
        self.is_stopping = False
        self._start = start
        self._count = count
        self._lease_ms = round(lease_s * 1000)
        self._often_s = lease_s / 3
        self._soon_s = lease_s / 20
        self._wait_s = min(lease_s / 3, 1.0)

    def keys(self, part: int) -> tuple[str, str]:
        """The part, and its lease."""
        stream = self.parts.stream(part)
        return stream, f"{stream}:lease:{self.group}"

    @property
    def readers_key(self) -> str:
        return f"{self.parts.name}:readers:{self.group}"

    def wants(self, part: int) -> bool:
        return part in self.wanted and not self.is_stopping

    def stop(self) -> None:
        """Let all generators come to their end."""
        self.is_stopping = True

    # --- All parts -------------------------------------------------------------------------------------------------

    def keep(self) -> Steps:
        """Share the parts with the readers that live, and keep the leases. After each pause `wanted` is up to date."""
        while not self.is_stopping:
            try:
                readers = yield Call(JOIN, (self.readers_key,), (self.token, self._lease_ms))
            except NoReplyError:
                pass  # as before: the leases decide who reads
            else:
                names = [each.decode() if isinstance(each, bytes) else each for each in readers]
                self.wanted = share(self.parts.count, names)[self.token]
            yield from self._renew()
            yield Pause(self._often_s)
        with suppress(NoReplyError):
            yield Call(LEAVE, (self.readers_key,), (self.token,))
        while self.held:  # batches that are still handled
            yield from self._renew()
            yield Pause(self._often_s)

    def _renew(self) -> Steps:
        for part in sorted(self.held):
            with suppress(NoReplyError):
                yield Call(RENEW, self.keys(part)[1:], (self.token, self._lease_ms))

    # --- One part --------------------------------------------------------------------------------------------------

    def read(self, part: int) -> Steps:
        """Read a part for as long as it is wanted."""
        done: list[Text] = []
        while self.wants(part):
            with suppress(NoReplyError):
                is_ours = yield Call(ACQUIRE, self.keys(part), (self.token, self._lease_ms, self.group, self._start))
                if is_ours:
                    self.held.add(part)
                    try:
                        yield from self._hold(part, done)
                    finally:
                        self.held.discard(part)
            if self.wants(part):
                yield Pause(self._soon_s)

    def _hold(self, part: int, done: list[Text]) -> Steps:
        """Read a part under its lease, until that is lost or the part is not wanted.

        done  IDs of entries that have been handled, and perhaps not acknowledged
        """
        keys = self.keys(part)
        next_pending: Text = "0-0"
        while self.wants(part):
            reply = yield Call(
                TAKE, keys, (self.token, self._lease_ms, self.group, self.consumer, self._count, next_pending, *done)
            )
            if not reply:
                return
            found, next_pending, last = reply
            done.clear()
            if found:
                yield Handle(Batch(part, keys[0], [(entry_id, pairs(flat)) for entry_id, flat in found]))
                done += [entry_id for entry_id, _ in found]
            elif not next_pending:
                yield WaitForEntry(keys[0], last, self._wait_s)
        yield self.release(part, done)

    def release(self, part: int, done: Sequence[Text] = ()) -> Call:
        """The call that lets others have a part at once."""
        return Call(RELEASE, self.keys(part), (self.token, self.group, *done))


def pairs(flat: Sequence[Any]) -> dict[Any, Any]:
    return dict(zip(flat[::2], flat[1::2], strict=True))
