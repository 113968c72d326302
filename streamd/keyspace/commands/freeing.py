"""Freeing: frees the objects of flushed databases in slices, so that clients do not wait.

It also has free memory returned to the system once much has been freed, by whatever commands.
"""

from __future__ import annotations

import asyncio

from streamd.core.capability import Capability
from streamd.core.client import Client
from streamd.core.host import Host
from streamd.core.info import Fields
from streamd.keyspace.database import memory_in_use

__all__ = ["Freeing"]

SLICE_OBJECTS = 1000
"""Number of objects released at a time, about 0.3 ms; then other work gets its turn."""
SLICE_PAUSE_S = 0.002
LEAST_RETURNED = 16 << 20
"""Bytes that have to be freed before returning free memory to the system is worth it."""


class Freeing(Capability):
    """What is to be freed, and the clients waiting for it."""

    info = {
        "memory": (
            Fields(
                "lazyfree_pending_objects lazyfreed_objects",
                lambda self: (self._trash.pending_objects(), self._trash.freed_objects()),
            ),
        ),
    }

    def __init__(self, host: Host) -> None:
        self._host = host
        self._trash = host.trash
        self._handle: asyncio.TimerHandle | None = None
        self._waiting: list[Client] = []
        """Clients that have flushed a database and wait until it has been released."""
        self._most = 0
        """Bytes that there were at most since free memory was returned to the system."""

    def has_more(self) -> bool:
        """Release some objects; returns whether there are more."""
        self._trash.step(SLICE_OBJECTS)
        return self._trash.has_slices

    def answer_when_done(self, client: Client) -> None:
        """Answer a waiting client once the database it flushed has been freed; free that without pauses."""
        self._waiting.append(client)
        self.close()
        self._handle = self._host.loop.call_later(0, self._free_slice)

    def is_waiting(self, client: Client) -> bool:
        return client in self._waiting

    def cron(self, now_ms: int) -> None:
        if self._handle is None and self._trash.has_slices:
            self._free_slice()
        now = memory_in_use(self._host.databases)
        if now >= self._most:
            self._most = now
        elif self._most - now >= max(LEAST_RETURNED, self._most >> 4):
            self._most = now
            self._trash.trim_later()

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _free_slice(self) -> None:
        """Release some objects, and run again soon while there are more."""
        if self.has_more():
            pause_s = 0.0 if self._waiting else SLICE_PAUSE_S
            self._handle = self._host.loop.call_later(pause_s, self._free_slice)
            return
        self._handle = None
        waiting, self._waiting = self._waiting, []
        for client in waiting:
            if client.blocked is not None:
                self._host.blocked.time_out(client.blocked)
