"""LatencyMonitor: what took so long that clients noticed, by event.

Whoever does something that may hold up the server measures it and calls `add(event, ms)`; what took less than the setting
latency-monitor-threshold is not kept, and nothing is while that is 0. Events have Redis's names, since tools ask for them:

    command, fast-command       a command, or one that is declared fast
    expire-cycle                expired keys were looked for
    eviction-cycle              keys were evicted to make room
    fork                        a child process was made
    aof-write, aof-fsync-always and others of the files

LATENCY shows them (commands/latency.py). What each command takes as a distribution is in histogram.pyx.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

__all__ = ["Event", "LatencyMonitor"]

SAMPLES = 160
"""Samples of an event that are kept."""


@dataclass
class Event:
    """What is known of one event.

    samples  (Unix seconds, ms), oldest first; at most one for each second, the longest
    most_ms  the longest ever
    """

    samples: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    most_ms: int = 0

    def add(self, at_s: int, ms: int) -> None:
        self.most_ms = max(self.most_ms, ms)
        if self.samples and self.samples[-1][0] == at_s:
            self.samples[-1] = at_s, max(ms, self.samples[-1][1])
        else:
            self.samples.append((at_s, ms))


class LatencyMonitor:
    """The events of a server.

    threshold_ms  shorter ones are not kept; 0: none are
    clock         Unix time in seconds
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.threshold_ms = 0
        self._clock = clock
        self._events: dict[str, Event] = {}

    @property
    def events(self) -> Mapping[str, Event]:
        """By name, in the order in which they first happened."""
        return self._events

    def add(self, event: str, ms: int) -> None:
        """Something took `ms` milliseconds."""
        if self.threshold_ms and ms >= self.threshold_ms:
            self._events.setdefault(event, Event()).add(int(self._clock()), ms)

    def reset(self, names: Iterable[str] | None = None) -> int:
        """Forget these events, or all; returns how many there were."""
        found = list(self._events) if names is None else [name for name in names if name in self._events]
        return sum(self._events.pop(name, None) is not None for name in found)
