"""Collector: keeps the collector of cyclic garbage out of the way of requests, in a process that is a server."""

from __future__ import annotations

import gc

from streamd.core.capability import Capability
from streamd.core.host import Host

__all__ = ["Collector"]

YOUNG_OBJECTS_LIMIT = 50_000
"""Number of collectable objects created since the last collection that makes the next second collect the young ones."""


class Collector(Capability):
    """Collections between requests, of young objects only."""

    def __init__(self, host: Host) -> None:
        self._is_ours = not host.is_embedded
        if self._is_ours:
            # Everything that exists now lives as long as the process: collections need not scan it.
            gc.collect()
            gc.freeze()
            gc.disable()

    def each_second(self, now_ms: int) -> None:
        if self._is_ours and gc.get_count()[0] > YOUNG_OBJECTS_LIMIT:
            # Nothing here should become cyclic garbage; errors with their tracebacks may. Survivors are frozen, so
            # no collection ever scans them again.
            gc.collect(0)
            gc.freeze()
