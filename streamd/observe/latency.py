"""LatencyMonitor: events that took long enough for clients to notice.

Code that may block the server measures itself and calls `add(event, ms)`; what took less than the setting
latency-monitor-threshold is not kept, and nothing is kept while that is 0. Events have Redis's names, since tools ask
for them:

    command, fast-command       a command, or one that is declared fast
    expire-cycle                the expiry cycle ran
    eviction-cycle              keys were evicted to make room
    fork                        a child process was forked
    aof-write, aof-fsync-always and others of the files

LATENCY shows them (latency_commands.py). The distribution of each command's times is in histogram.pyx.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from streamd.core.capability import Capability
from streamd.core.client import Client
from streamd.core.host import Host
from streamd.core.route import Route
from streamd.integers import INT64_MAX

__all__ = ["Event", "LatencyMonitor"]

NEVER = INT64_MAX
SAMPLES = 160
"""Samples of an event that are kept."""


@dataclass
class Event:
    """The samples of one event.

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


class LatencyMonitor(Capability):
    """The events of a server.

    threshold_ms  shorter ones are not kept; 0: none are
    clock         Unix time in seconds
    """

    def __init__(self, host: Host | None = None, *, clock: Callable[[], float] = time.time) -> None:
        self._host = host
        self.threshold_ms = 0
        self._clock = clock
        self._events: dict[str, Event] = {}

    def apply_settings(self) -> None:
        if self._host is not None:
            self.threshold_ms = self._host.config.latency_monitor_threshold
            self.slow_us = self.threshold_ms * 1000 if 0 < self.threshold_ms <= NEVER // 1000 else NEVER
            self._host.dispatcher.tracks_latency = self._host.config.latency_tracking

    def command_took(self, client: Client, route: Route, args: list[bytes], took_us: int) -> int:
        self.add("fast-command" if "fast" in route.command.flags else "command", took_us // 1000)
        return 0

    @property
    def events(self) -> Mapping[str, Event]:
        """By name, in the order in which they first happened."""
        return self._events

    def add(self, event: str, ms: int) -> None:
        """Something took `ms` milliseconds."""
        if self.threshold_ms and ms >= self.threshold_ms:
            self._events.setdefault(event, Event()).add(int(self._clock()), ms)

    def reset(self, names: Iterable[str] | None = None) -> int:
        """Clear these events, or all; return how many there were."""
        found = list(self._events) if names is None else [name for name in names if name in self._events]
        return sum(self._events.pop(name, None) is not None for name in found)
