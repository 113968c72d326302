"""When an append-only file is rewritten, and how rewrites went."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from streamd.persistence.aof.aof_options import AofOptions

__all__ = ["RewriteSchedule"]

log = logging.getLogger("streamd")

FAILURES_BEFORE_DELAY = 3
MAX_DELAY_MINUTES = 60


class RewriteSchedule:
    """
    is_requested  start a rewrite as soon as no other child runs
    pid           of the child that writes a base, or None
    started_at    Unix time, or None; `last_s`: how long the last one took, -1: none yet
    is_last_ok    whether it succeeded; `count`: started, `failures`: failed since the last successful one
    """

    def __init__(self, options: AofOptions, clock: Callable[[], float]) -> None:
        self.is_requested = False
        self.pid: int | None = None
        self.started_at: float | None = None
        self.last_s = -1
        self.is_last_ok = True
        self.count = 0
        self.failures = 0
        self._options = options
        self._clock = clock
        self._delay_minutes = 0
        self._delayed_until: float | None = None

    def started(self, pid: int) -> None:
        self.pid = pid
        self.is_requested = False
        self.started_at = time.time()
        self.count += 1

    def ended(self) -> int:
        """The child has ended; its pid."""
        pid = self.pid
        assert pid is not None, "no rewrite is running"  # noqa: S101
        self.pid = None
        return pid

    def note(self, ok: bool) -> None:
        """Record how a rewrite went."""
        self.is_last_ok = ok
        self.failures = 0 if ok else self.failures + 1

    def note_time(self) -> None:
        """Record how long it took."""
        self.last_s = int(time.time() - (self.started_at or time.time()))
        self.started_at = None

    def is_due(self, size: int, base_size: int, *, may_grow: bool) -> bool:
        """Whether a rewrite should start, which is allowed only while no other child runs.

        size       bytes of all files; `base_size`: as they were after the last one
        may_grow   growth counts, not only a request
        After three consecutive failures rewrites are delayed by a minute, then two, up to an hour.
        """
        if self.pid is not None:
            return False
        if self.is_requested:
            return not self._is_delayed()
        options = self._options
        if not may_grow or not options.rewrite_percentage or size <= options.rewrite_min_size:
            return False
        growth = size * 100 // (base_size or 1) - 100
        if growth < options.rewrite_percentage or self._is_delayed():
            return False
        log.info("Starting automatic rewriting of AOF on %d%% growth", growth)
        return True

    def _is_delayed(self) -> bool:
        if self.failures < FAILURES_BEFORE_DELAY:
            self._delay_minutes = 0
            self._delayed_until = None
            return False
        now = self._clock()
        if self._delayed_until is not None:
            if now < self._delayed_until:
                return True
            self._delayed_until = None
            return False
        self._delay_minutes = min(self._delay_minutes * 2 or 1, MAX_DELAY_MINUTES)
        self._delayed_until = now + self._delay_minutes * 60
        log.warning(
            "Background AOF rewrite has repeatedly failed and triggered the limit, will retry in %d minutes",
            self._delay_minutes,
        )
        return True
