"""What the server passes to the core of a node: settings (`Options`), and the state of its data (`Local`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Local", "Options"]


@dataclass(frozen=True, slots=True)
class Options:
    """Settings, named as in the configuration without `cluster-`. Replaced as a whole by `ClusterCore.configure`."""

    port: int  # for clients without TLS, announced if set so; 0: none
    tls_port: int = 0  # for clients with TLS, announced if set so; 0: none
    bus_port: int = 0  # announced if set so
    is_tls: bool = False  # tls-cluster: the bus uses TLS, and `tls_port` is the main port
    announce_ip: str = ""
    announce_hostname: str = ""
    announce_human_nodename: str = ""
    node_timeout_ms: int = 15000
    ping_interval_ms: int = 0  # 0: half of the node timeout
    require_full_coverage: bool = True
    replica_validity_factor: int = 10
    replica_no_failover: bool = False
    migration_barrier: int = 1
    allow_replica_migration: bool = True
    repl_ping_period_s: int = 10  # repl-ping-replica-period, for the age of a replica's data


@dataclass(slots=True)
class Local:
    """The data and the replication of this server. The server keeps it up to date before each input of the core."""

    offset: int = 0  # primary: master_repl_offset; replica: the offset up to which the stream has been applied
    is_link_up: bool = False  # replica: the link to the primary is established
    silence_ms: int = 0  # replica: since the primary last sent something, or since the link broke if it is down
    key_count: int = 0  # keys held here
    count_keys: Callable[[int], int] = lambda slot: 0  # those of a slot
    is_durable: bool = True  # writes are on a disk before they are answered: then the owners of slots must be, too
