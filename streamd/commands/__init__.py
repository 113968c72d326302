"""The commands: one module per family, each declaring its commands in the table of `spec`."""

from __future__ import annotations

import importlib

__all__ = ["FAMILIES", "load_all"]

FAMILIES = (
    "connection", "server", "debug", "command_info", "generic", "dump", "migrate", "strings", "increx", "lcs", "stream",
    "read", "group", "split", "stream_info", "transaction", "tracking", "pubsub", "publish", "slowlog", "hotkeys", "latency",
    "monitor", "lolwut", "memory", "acl", "persistence", "backup",
    "cluster", "module", "script", "replication",
)  # fmt: skip
"""The modules that declare commands."""


def load_all() -> None:
    """Import every family, so that the command table is complete. A second call does nothing."""
    for family in FAMILIES:
        importlib.import_module(f"streamd.commands.{family}")
