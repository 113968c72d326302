"""Trimming: deletes the keys of slots that have left, or that did not arrive, in slices between requests.

The keys are hidden while that lasts: this node does not own their slots.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

from streamd.keyspace.database import Database

__all__ = ["Trimming"]

SLICE_S = 0.001
"""How long keys are deleted before clients get their turn, for as long."""
KEYS_BETWEEN_LOOKS = 50
"""Keys that are deleted between two looks at the clock."""


class Trimming:
    """
    slots       those whose keys are being deleted
    keys, done  how many keys they had, and how many of them were deleted
    started, completed  how often slots were trimmed
    is_off      DEBUG ASM-TRIM-METHOD none: the keys stay, hidden
    delay_s     DEBUG ASM-TRIM-METHOD active: how long to wait after each key; less than 0: do not go on
    """

    def __init__(
        self,
        db: Database,
        loop: asyncio.AbstractEventLoop,
        is_held: Callable[[], bool],
        ended: Callable[[], object],
    ) -> None:
        """is_held: whether nothing may be deleted just now; ended: called when nothing is left to be deleted."""
        self._db = db
        self._loop = loop
        self._is_held = is_held
        self._ended = ended
        self._handle: asyncio.Handle | None = None
        self.is_off, self.delay_s = False, 0.0
        self.slots: list[int] = []
        db.leaving = self.slots
        self.keys = self.done = self.started = self.completed = 0

    @property
    def is_running(self) -> bool:
        return bool(self.slots) and not self.is_off

    def begin(self, slots: Iterable[int]) -> int:
        """Delete the keys of slots; returns how many there are."""
        known = set(self.slots)
        found = [slot for slot in slots if slot not in known and self._db.count_in_slot(slot)]
        count = sum(map(self._db.count_in_slot, found))
        self.started += 1
        if not self.is_running:
            self.keys = self.done = 0
        self.keys += count
        self.slots += found
        self.resume()
        return count

    def resume(self) -> None:
        """Go on with what is left."""
        if self._handle is None and not self.is_off:
            self._handle = self._loop.call_soon(self._go_on)

    def finish(self, slot: int) -> None:
        """Delete what is left of a slot at once: others are about to use it."""
        if slot in self.slots:
            self.slots.remove(slot)
            self._delete(slot, self._db.count_in_slot(slot))

    def forget(self) -> None:
        """The data has been replaced: nothing is left to be deleted."""
        self.slots.clear()

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()

    def _delete(self, slot: int, most: int) -> None:
        names = self._db.keys_in_slot(slot, most)
        for name in names:
            self._db.delete(name)
        self.done += len(names)

    def _go_on(self) -> None:
        self._handle = None
        until = time.monotonic() + SLICE_S
        most = max(1, int(SLICE_S / self.delay_s)) if self.delay_s > 0 else KEYS_BETWEEN_LOOKS
        while self.is_running and self.delay_s >= 0 and not self._is_held() and time.monotonic() < until:
            slot = self.slots[-1]
            self._delete(slot, most)
            if not self._db.count_in_slot(slot):
                self.slots.pop()
            if self.delay_s:
                break
        if self.is_running:
            self._handle = self._loop.call_later(max(self.delay_s, SLICE_S), self._go_on)
        elif not self.slots:
            self.completed = self.started
            self._ended()
