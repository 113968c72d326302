"""SIGTERM, or other signals, as something that a program looks at, and can wait for."""

from __future__ import annotations

import os
import select
import signal
from types import FrameType, TracebackType

__all__ = ["StopSignal"]


class StopSignal:
    """Catches signals, by default SIGTERM, for as long as a block runs.

    The handler writes to a pipe, so that a wait that is about to begin ends as well; an Event could be locked by the code that the
    handler interrupts.
    """

    def __init__(self, *numbers: signal.Signals) -> None:
        self._numbers = numbers or (signal.SIGTERM,)
        self.is_requested = False
        self._reader = self._writer = -1

    def __enter__(self) -> StopSignal:
        self._reader, self._writer = os.pipe()
        self._before = {number: signal.signal(number, self._handle) for number in self._numbers}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        os.close(self._reader)
        os.close(self._writer)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self.is_requested:
            self.is_requested = True
            os.write(self._writer, b"!")

    def wait(self, seconds: float) -> None:
        """Return after this time, or earlier if the signal comes, or has come."""
        select.select([self._reader], [], [], max(seconds, 0))
