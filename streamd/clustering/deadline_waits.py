"""Waits that end with a condition, a deadline, or a request to stop."""

from __future__ import annotations

import time
from collections.abc import Callable

from streamd.clustering.cluster_error import ClusterError

__all__ = ["Patience"]

INTERVAL_S = 0.01


def _nothing() -> None:
    """The default check."""


class Patience:
    """How long to wait.

    check      called between two looks; raises what ends the wait, such as StopRequestedError
    timeout_s  for each wait
    """

    def __init__(self, check: Callable[[], object] = _nothing, timeout_s: float = 60.0) -> None:
        self.check = check
        self.timeout_s = timeout_s

    def wait(self, condition: Callable[[], bool], problem: Callable[[], str]) -> None:
        """Return when the condition holds. Raises ClusterError with `problem()` after the time-out."""
        deadline = time.monotonic() + self.timeout_s
        while True:
            self.check()
            if condition():
                return
            if time.monotonic() > deadline:
                raise ClusterError(problem())
            self.pause()

    def pause(self) -> None:
        """The time between two looks."""
        time.sleep(INTERVAL_S)
