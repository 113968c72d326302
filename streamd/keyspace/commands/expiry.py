"""Expiry: removes expired keys that no client accesses."""

from __future__ import annotations

import time

from streamd.core.capability import Capability
from streamd.core.host import Host
from streamd.core.info import Field, Fields
from streamd.keyspace.database import has_due
from streamd.observe.latency import LatencyMonitor

__all__ = ["Expiry"]

STEP = 100
"""Number of expired keys removed between two readings of the clock."""


class Expiry(Capability):
    """Active expiry.

    is_on  DEBUG SET-ACTIVE-EXPIRE
    """

    info = {
        "stats": (
            Field("expired_subkeys", 0),
            Field("expired_subkeys_active", 0),
            Field("expired_stale_perc", "0.00"),
            Fields(
                "expired_keys_active expired_time_cap_reached_count expire_cycle_cpu_milliseconds",
                lambda self: (self.expired_keys, self.cycles_cut, self.cycle_us // 1000),
            ),
        ),
    }

    def __init__(self, host: Host) -> None:
        self.host = host
        self.is_on = True
        self._latency = host.get(LatencyMonitor)
        self.reset_statistics()

    def reset_statistics(self) -> None:
        self.expired_keys = 0
        """Keys removed because their time had come, not because a client accessed them."""
        self.cycles_cut = 0
        """How often a cycle ran out of time before it ran out of expired keys."""
        self.cycle_us = 0
        for db in self.host.databases:
            db.expired_keys = 0

    def cron(self, now_ms: int) -> None:
        """Remove expired keys, for at most a quarter of the time between two calls.

        On a replica, only those whose expiry was set here: the primary removes the others.
        """
        databases = self.host.databases
        dispatcher = self.host.dispatcher
        is_held = self.host.is_loading or dispatcher.pause or dispatcher.keeps_keys
        if not self.is_on or is_held or not has_due(databases, now_ms):
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
