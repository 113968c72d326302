"""Replication: what a primary without replicas is to those who ask."""

from __future__ import annotations

import secrets

from streamd.core.capability import Capability
from streamd.core.host import Host
from streamd.core.info import Field
from streamd.persistence.keeper import Persistence

__all__ = ["Replication"]


class Replication(Capability):
    """A server's part in replication.

    id  40 hexadecimal digits
    """

    info = {
        "replication": (
            Field("role", "master"),
            Field("connected_slaves", 0),
            Field("master_failover_state", "no-failover"),
            Field("master_replid", lambda self: self.id),
            Field("master_replid2", "0" * 40),
            Field("master_repl_offset", lambda self: self.offset),
            Field("second_repl_offset", -1),
            Field("repl_backlog_active", 0),
            Field("repl_backlog_size", lambda self: self._config.repl_backlog_size),
            Field("repl_backlog_first_byte_offset", 0),
            Field("repl_backlog_histlen", 0),
        ),
        "memory": (
            Field("mem_replication_backlog", 0),
            Field("mem_total_replication_buffers", 0),
            Field("mem_replica_full_sync_buffer", 0),
        ),
        "stats": (
            Field("total_net_repl_input_bytes", 0),
            Field("total_net_repl_output_bytes", 0),
            Field("instantaneous_input_repl_kbps", "0.00"),
            Field("instantaneous_output_repl_kbps", "0.00"),
            Field("sync_full", 0),
            Field("sync_partial_ok", 0),
            Field("sync_partial_err", 0),
            Field("slave_expires_tracked_keys", 0),
        ),
    }

    def __init__(self, host: Host) -> None:
        self._config = host.config
        self._persistence = host.get(Persistence)
        self.change_id()

    def change_id(self) -> None:
        """Take a new ID."""
        self.id = secrets.token_hex(20)

    @property
    def offset(self) -> int:
        """master_repl_offset."""
        return self._persistence.append_only.replication_offset
