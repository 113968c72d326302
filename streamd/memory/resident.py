"""What the system has given to this process."""

from __future__ import annotations

import os
import resource
import sys

__all__ = ["resident_memory"]

PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")
MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024
"""The unit of getrusage's maximum resident size, in bytes."""


def resident_memory() -> int:
    """Bytes of memory that this process holds now; where that is unknown, the most that it has held."""
    try:
        with open("/proc/self/statm", "rb", buffering=0) as file:
            return int(file.read(100).split()[1]) * PAGE_SIZE
    except OSError:
        return _maxrss()


def _maxrss() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * MAXRSS_UNIT
