"""The settings of a node of a cluster. Names, defaults, bounds and error texts: Redis 8.6, as seen on a running server."""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import ip_address as parse_ip
from typing import Any

from streamd.integers import INT32_MAX, UINT64_MAX
from streamd.settings.declarations import boolean, choice, declare, integer, memory, setting, text
from streamd.settings.kinds import Flags

__all__: list[str] = []

MB = 1 << 20


class SlotStatistics(Flags):
    """As Flags, with a word for all of them."""

    def parse(self, args: Sequence[str], old: Any) -> tuple[str, ...]:
        value = super().parse(args, old)
        if "yes" in value or len(value) == len(self.words) - 2:
            return ("yes",)
        return value or ("no",)


def host_name(text: str) -> str | None:
    """Why a text is not a host name; None: it is one."""
    if len(text) >= 256:
        return "Hostnames must be less than 256 characters"
    if re.fullmatch(r"[A-Za-z0-9.-]*", text) is None:
        return "Hostnames may only contain alphanumeric characters, hyphens or dots"
    return None


def node_name(text: str) -> str | None:
    """Why a text is not a name of a node; None: it is one."""
    if len(text) >= 256:
        return "Human readable node name must be less than 256 characters"
    return None if re.fullmatch(r"[A-Za-z0-9./_`-]*", text) else "Announced human node name contained invalid character"


def ip_address(text: str) -> str | None:
    """Why a text is not an address; None: it is one."""
    try:
        parse_ip(text or "::")
    except ValueError:
        return "Cluster announce IP must be a valid IPv4 or IPv6 address"
    return None


declare(
    "Cluster",
    boolean("cluster-enabled", False, flags="immutable", doc="Be a node of a Redis Cluster: see docs/cluster.md."),
    text("cluster-config-file", "nodes.conf", flags="immutable", doc="File in which the node records its view of the cluster."),
    integer("cluster-port", 0, hi=65535, flags="immutable", doc="Port of the bus between nodes; 0: the client port + 10000."),
    integer(
        "cluster-node-timeout", 15000, unit="ms", apply="refresh", doc="Time without an answer after which a node counts as failing."
    ),
    text("cluster-announce-ip", check=ip_address, apply="refresh", doc="Address that other nodes and clients are given; empty: detected."),
    integer("cluster-announce-port", 0, hi=65535, apply="refresh", doc="Port that other nodes and clients are given; 0: the node's own."),
    integer("cluster-announce-tls-port", 0, hi=65535, apply="refresh", doc="The same with TLS."),
    integer("cluster-announce-bus-port", 0, hi=65535, apply="refresh", doc="Port of the bus that other nodes are given; 0: the node's own."),
    text("cluster-announce-hostname", check=host_name, apply="refresh", doc="Host name that other nodes and clients are given."),
    text("cluster-announce-human-nodename", check=node_name, apply="refresh", doc="Name of the node in logs of all nodes."),
    choice(
        "cluster-preferred-endpoint-type", "ip", ("ip", "hostname", "unknown-endpoint"),
        doc="What clients are given of a node: its address, its host name, or nothing. Without either, they use the address that they know.",
    ),
    boolean(
        "cluster-require-full-coverage", True, apply="refresh", doc="Serve nothing while a slot has no owner, or its owner has failed."
    ),
    integer(
        "cluster-replica-validity-factor", 10, hi=INT32_MAX, apply="refresh", aliases="cluster-slave-validity-factor",
        doc="Maximum age of a replica's data, in node timeouts, for it to take over; 0: any age.",
    ),
    boolean(
        "cluster-replica-no-failover", False, apply="refresh", aliases="cluster-slave-no-failover",
        doc="Never take over from a primary that fails.",
    ),
    integer(
        "cluster-migration-barrier", 1, hi=INT32_MAX, apply="refresh",
        doc="Replicas that a primary keeps when one of them moves to a primary without any.",
    ),
    boolean("cluster-allow-replica-migration", True, apply="refresh", doc="Let replicas move to primaries without any."),
    boolean("cluster-allow-reads-when-down", False, apply="refresh", doc="Serve reads while the cluster is down."),
    boolean(
        "cluster-allow-pubsubshard-when-down", True, apply="refresh", doc="Serve shard channels while the cluster is down."
    ),
    boolean(
        "cluster-allow-cross-slot-reads", False, apply="refresh",
        doc="Serve XREAD and XREADGROUP of streams in several slots, if the node has all of them.",
    ),
    memory(
        "cluster-link-sendbuf-limit", 0, hi=UINT64_MAX, apply="refresh",
        doc="Unsent bytes at which a connection to another node is closed; 0: no limit.",
    ),
    setting(
        "cluster-slot-stats-enabled", SlotStatistics(("no", "yes", "cpu", "net", "mem")), ("no",), apply="refresh",
        doc="Statistics that CLUSTER SLOT-STATS has of each slot, besides its number of keys.",
    ),
    integer("cluster-ping-interval", 0, unit="ms", flags="hidden", apply="refresh", doc="Time between PINGs; 0: half of the node timeout."),
    memory(
        "cluster-slot-migration-handoff-max-lag-bytes", MB,
        doc="Changes that the new node may be behind when an atomic slot migration holds writes back to hand over.",
    ),
    integer(
        "cluster-slot-migration-write-pause-timeout", 10000, unit="ms",
        doc="How long writes may be held back for that; then the migration fails.",
    ),
    integer("cluster-slot-migration-sync-buffer-drain-timeout", 60000, unit="ms", flags="hidden", doc="How long the new node may need to catch up; then the migration fails."),
    integer(
        "cluster-slot-migration-max-archived-tasks", 32, flags="hidden", doc="Tasks that have ended that CLUSTER MIGRATION STATUS lists."
    ),
    boolean("tls-cluster", False, flags="immutable", doc="Use TLS on the bus between nodes."),
)  # fmt: skip
declare(
    "Of other servers",
    integer("cluster-compatibility-sample-ratio", 0, hi=100, flags="foreign", doc=""),
)
