"""Open files: enough for the connections that `maxclients` allows."""

from __future__ import annotations

import resource

__all__ = ["RESERVED_FILES", "allow_clients"]

RESERVED_FILES = 32
"""Open files that are not connections: listeners, logs, the event loop's own."""


def allow_clients(wanted: int) -> int:
    """Raise the process's limit of open files for `wanted` connections; return how many it allows, at most `wanted`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + RESERVED_FILES
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return wanted
    most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    while most > soft:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        except (ValueError, OSError):
            # The kernel may allow less than the hard limit; find the maximum in a few steps.
            most = (most + soft) // 2 if most - soft > 16 else soft
        else:
            soft = most
    return min(wanted, max(1, soft - RESERVED_FILES))
