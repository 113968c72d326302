"""Freeing large values without making anyone wait for it.

Two kinds of work, depending on whether the interpreter's lock is needed:

- The C memory of a large value (a stream of many nodes) is freed by a background thread, which needs the lock only to
  fetch the next piece. `release` decides by the value's own estimate, `free_effort`; small values are freed at once.
- The Python objects of a flushed database (keys, key records, dictionaries), and the records of which clients read its keys,
  can only be freed under the lock, so a thread would block the loop all the same. They are released in slices: the
  server calls `step(budget)` from a timer while `has_slices` is true, and it returns after about `budget` objects.

One LazyFree serves all databases of a process. Everything but `_run` is called from the thread of the loop.
"""

from __future__ import annotations

import threading
from collections import deque
from queue import SimpleQueue
from typing import Protocol

from streamd.heap import trim, trim_freed

__all__ = ["THRESHOLD", "Detachable", "LazyFree", "Remains", "Sliced"]

THRESHOLD = 64
"""Values whose effort is at most this are freed immediately: handing them over would cost more."""


WORTH_TRIMMING = 20_000
"""Number of freed objects after which returning memory to the system is worthwhile: a few megabytes."""


class Remains(Protocol):
    """The memory of a value, apart from the value."""

    def free(self) -> None:
        """Free all of it; the slow part runs without the interpreter's lock."""


class Detachable(Protocol):
    """A value that may be slow to free."""

    def free_effort(self) -> int:
        """About how many blocks of memory there are to free. O(1)."""

    def detach(self) -> Remains:
        """Empty the value and hand over what it owned. O(1)."""


class Sliced(Protocol):
    """Many Python objects that are released a few at a time."""

    @property
    def count(self) -> int:
        """Number of objects left."""

    def release_some(self, budget: int, trash: LazyFree) -> int:
        """Release at most `budget` objects; returns how many."""


class Trim:
    """Represents all free memory, to be returned to the system."""

    def free(self) -> None:
        trim()


class LazyFree:
    """Values that are unlinked and waiting to be freed."""

    def __init__(self) -> None:
        self._slices: deque[Sliced] = deque()
        self._queue: SimpleQueue[tuple[Remains | None, int]] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._handed_over = 0  # objects given to the thread; written only by the loop's thread
        self._done = 0  # objects that the thread has freed; written only by the thread
        self._done_at_reset = 0
        self._sliced = 0
        self._untrimmed = 0  # objects released in slices whose memory has not yet been returned to the system

    # --- For the databases ---------------------------------------------------------------------------------------

    def release(self, value: Detachable, objects: int = 1) -> None:
        """Free an unreachable value: immediately when it is small, otherwise on the thread.

        objects  how many objects it counts as
        """
        if value.free_effort() > THRESHOLD:
            self._hand_over(value.detach(), objects)

    def free_later(self, remains: Remains) -> None:
        """Have the thread free something that is no value."""
        self._hand_over(remains, 0)

    def trim_later(self) -> None:
        """Have the thread return free memory to the system once it has freed its queue."""
        self.free_later(Trim())

    def _hand_over(self, piece: Remains, objects: int) -> None:
        self._handed_over += objects
        self._queue.put((piece, objects))
        if self._thread is None or not self._thread.is_alive():  # a forked child has lost its thread
            self._thread = threading.Thread(target=self._run, name="lazyfree", daemon=True)
            self._thread.start()

    def add(self, remains: Sliced) -> None:
        """Add objects to be released in slices."""
        if remains.count:
            self._slices.append(remains)

    # --- For the server ------------------------------------------------------------------------------------------

    @property
    def has_slices(self) -> bool:
        """Whether `step` has work to do."""
        return bool(self._slices)

    def step(self, budget: int) -> int:
        """Release at most `budget` objects of flushed databases; returns how many. About 0.3 us each."""
        released = 0
        handed_over = self._handed_over
        while self._slices and released < budget:
            remains = self._slices[0]
            released += remains.release_some(budget - released, self)
            if not remains.count:
                self._slices.popleft()
        self._sliced += released - (self._handed_over - handed_over)  # the others are counted by the thread
        self._untrimmed += released
        if not self._slices and self._untrimmed > WORTH_TRIMMING:
            self._untrimmed = 0
            self.trim_later()
        return released

    def pending_objects(self) -> int:
        count = self._handed_over - self._done
        for remains in self._slices:
            count += remains.count
        return count

    def freed_objects(self) -> int:
        """Values and keys freed in the background since the start or the last reset."""
        return self._done - self._done_at_reset + self._sliced

    def reset_statistics(self) -> None:
        """CONFIG RESETSTAT: start counting freed objects from 0."""
        self._done_at_reset = self._done
        self._sliced = 0

    # --- The thread ----------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Wait until the thread has freed everything, and end it."""
        if self._thread is not None and self._thread.is_alive():
            self._queue.put((None, 0))
            self._thread.join()

    def _run(self) -> None:
        while True:
            piece, objects = self._queue.get()
            if piece is None:
                return
            piece.free()
            self._done += objects
            if self._queue.empty():
                trim_freed()
