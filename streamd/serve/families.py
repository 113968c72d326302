"""The modules that declare commands, each a family of them in the table of `core.spec`."""

from __future__ import annotations

import importlib

__all__ = ["FAMILIES", "load_all"]

FAMILIES = (
    "clients.connection_commands", "serve.server_commands", "debug.debug_commands", "observe.command_info", "data.keys",
    "data.dump", "data.migrate", "data.strings.strings", "data.strings.increx", "data.strings.lcs_command",
    "data.streams.entries", "data.streams.reading", "data.streams.groups", "data.streams.splitting", "data.streams.xinfo",
    "clients.transaction_commands", "caching.tracking_commands", "pubsub.subscribe", "pubsub.publish",
    "observe.slowlog_commands", "observe.hotkeys_commands", "observe.latency_commands", "observe.monitor_commands",
    "observe.lolwut", "memory.memory_commands", "users.acl_commands", "persistence.save_commands",
    "persistence.backup_commands", "absent.cluster", "absent.module", "absent.script",
    "replication.replication_commands",
)  # fmt: skip
"""The modules that declare commands, below the package."""


def load_all() -> None:
    """Import every family, so that the command table is complete. A second call does nothing."""
    for family in FAMILIES:
        importlib.import_module(f"streamd.{family}")
