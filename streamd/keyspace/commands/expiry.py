"""Expiry: removes expired keys, and expired parts of values, that no client accesses."""

from __future__ import annotations

import asyncio
import time

from streamd.core.capability import Capability
from streamd.core.host import Host
from streamd.core.info import Field, Fields
from streamd.keyspace.database import has_any_due, has_due, has_timed_due
from streamd.observe.latency import LatencyMonitor

__all__ = ["Expiry"]

STEP = 100
"""Number of expired keys removed between two readings of the clock."""

PARTS_STEP = 20
"""Likewise, of parts of values: the fields of a hash."""

SLICE_S = 0.0004
"""How long due work of values may run before clients have their turn."""

PAUSE_S = 0.0012
"""How long clients have it: the work takes a quarter of the time."""


class Expiry(Capability):
    """Active expiry.

    is_on  DEBUG SET-ACTIVE-EXPIRE
    has_arrivals  keys are arriving from another node, which clients do not see: what extends the life of one may still be on its way
    """

    info = {
        "stats": (
            Field("expired_stale_perc", "0.00"),
            Fields(
                "expired_keys_active expired_subkeys_active expired_time_cap_reached_count expire_cycle_cpu_milliseconds",
                lambda self: (self.expired_keys, self.expired_parts, self.cycles_cut, self.cycle_us // 1000),
            ),
        ),
    }

    def __init__(self, host: Host) -> None:
        self.host = host
        self.is_on = True
        self.has_arrivals = False
        self._next_slice: asyncio.TimerHandle | None = None  # of what values have to do
        self._latency = host.get(LatencyMonitor)
        self.reset_statistics()

    def reset_statistics(self) -> None:
        self.expired_keys = 0
        """Keys removed because their time had come, not because a client accessed them."""
        self.expired_parts = 0
        """Parts of values, likewise."""
        self.cycles_cut = 0
        """How often a cycle ran out of time before it ran out of expired keys."""
        self.cycle_us = 0
        for db in self.host.databases:
            db.expired_keys = db.expired_parts = 0

    def close(self) -> None:
        if self._next_slice is not None:
            self._next_slice.cancel()

    def cron(self, now_ms: int) -> None:
        """Remove expired keys, for at most a quarter of the time between two calls.

        On a replica, only those whose expiry was set here: the primary removes the others.
        """
        databases = self.host.databases
        if not has_any_due(databases, now_ms) or self._is_held():
            return
        dispatcher = self.host.dispatcher
        if self._next_slice is None and not dispatcher.is_replica and has_timed_due(databases, now_ms):
            self._run_values()
        if not has_due(databases, now_ms):
            return
        if dispatcher.is_replica:
            self.expired_keys += sum(db.expire_own() for db in databases)
            return
        started = time.monotonic()
        limit = started + 0.25 / self.host.config.hz
        for db in databases:
            removed = STEP
            while removed == STEP:
                removed = db.expire_due(STEP)
                self.expired_keys += removed
                if removed == STEP and time.monotonic() >= limit:
                    self.cycles_cut += 1
                    break
        took_us = int((time.monotonic() - started) * 1_000_000)
        self.cycle_us += took_us
        self._latency.add("expire-cycle", took_us // 1000)

    def _is_held(self) -> bool:
        """Whether nothing may expire by itself now."""
        dispatcher = self.host.dispatcher
        is_held = self.host.is_loading or dispatcher.pause or dispatcher.keeps_keys or dispatcher.is_busy
        return not self.is_on or self.has_arrivals or bool(is_held)

    def _run_values(self) -> None:
        """Run due work of values for a slice of time, and continue after a pause if more is due."""
        databases = self.host.databases
        self._next_slice = None
        if (
            self._is_held()
            or self.host.dispatcher.is_replica
            or not has_timed_due(databases, self.host.dispatcher.unix_ms())
        ):
            return
        started = time.monotonic()
        for db in databases:
            while done := db.run_timed(PARTS_STEP):
                self.expired_parts += done
                if time.monotonic() - started >= SLICE_S:
                    break
        self.cycle_us += int((time.monotonic() - started) * 1_000_000)
        self._next_slice = self.host.loop.call_later(PAUSE_S, self._run_values)
