"""Exit statuses that several subcommands share."""

from __future__ import annotations

__all__ = ["STOPPED"]

STOPPED = 130
"""After Ctrl-C, as shells have it: 128 and the number of SIGINT."""
