"""The modules that declare commands, each a family of them in the table of `core.spec`."""

from __future__ import annotations

import importlib

from streamd.absent.commands import FOREIGN_COMMANDS
from streamd.core.spec import CommandTable, table
from streamd.errors import ConfigError
from streamd.settings.config import Config, directive
from streamd.values import VALUE_TYPES

__all__ = ["FAMILIES", "load_all", "renamed_table"]

FAMILIES = (
    "clients.connection_commands", "clients.ping_echo", "clients.maintenance_commands", "clients.transaction_commands",
    "serve.server_commands", "debug.debug_commands", "debug.cluster_commands", "observe.command_info", "keyspace.commands.keys",
    "keyspace.commands.existence", "keyspace.commands.expire_ttl", "keyspace.commands.dump", "keyspace.commands.migrate",
    "caching.tracking_commands",
    "pubsub.subscribe", "pubsub.publish", "observe.slowlog_commands", "observe.hotkeys_commands",
    "observe.latency_commands", "observe.monitor_commands", "observe.lolwut", "memory.memory_commands",
    "users.acl_commands", "persistence.save_commands", "persistence.backup_commands", "cluster.client_commands",
    "cluster.operator_commands", "cluster.view_commands", "cluster.key_commands", "cluster.migration_commands", "absent.module", "scripting.eval_commands", "scripting.script_commands", "scripting.fcall_commands",
    "scripting.function_commands", "replication.primary_commands", "replication.failover_commands",
    "replication.replica_commands", "delivery.group_commands", "delivery.stream_commands", "tiered.tier_commands",
)  # fmt: skip
"""The modules that declare commands, relative to the package, but for those of types of value (ValueType.families)."""


def load_all() -> None:
    """Import every family, so that the command table is complete. A second call does nothing."""
    of_types = [family for each in VALUE_TYPES for family in each.families]
    for family in [*(f"streamd.{each}" for each in FAMILIES), *of_types]:
        importlib.import_module(family)


def renamed_table(config: Config) -> CommandTable:
    """The command table with the renames of a configuration."""
    load_all()
    commands = table.copy()
    for old, new in config.rename_command:
        commands.rename(old, new)
    return commands


@directive("rename-command", words=2)
def rename_command(config: Config, args: list[str]) -> None:
    """Record a rename after trying it. Renaming a command of Redis that is not supported has no effect."""
    old, new = args
    if old.lower() in FOREIGN_COMMANDS:
        return
    try:
        renamed_table(config).rename(old, new)
    except ValueError as error:
        raise ConfigError("rename-command", str(error)) from error
    config.rename_command.append((old, new))
