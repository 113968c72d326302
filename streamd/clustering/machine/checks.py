"""What is checked before anything is started. Each problem is a ClusterError with one line."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Sequence
from pathlib import Path

from streamd.clustering.cluster_error import ClusterError
from streamd.clustering.machine.record import Record
from streamd.clustering.node_connection import BUS_OFFSET

__all__ = ["check_folder", "check_identities", "check_memory", "check_ports", "check_settings", "port_range"]

LARGEST_PORT = 65_535 - BUS_OFFSET
BYTES_PER_NODE = 40 << 20
"""What the process of an empty node takes."""

OWN = frozenset(
    (
        "port",
        "dir",
        "cluster-enabled",
        "cluster-config-file",
        "cluster-port",
        "daemonize",
        "supervised",
        "logfile",
        "pidfile",
    )
)
"""Settings that the command gives itself."""
SHARED = frozenset(("tls-port", "tls-cluster", "unixsocket", "metrics-port", "http-port", "replicaof", "slaveof"))
"""Settings that the nodes of one machine cannot share."""


def check_settings(settings: Sequence[tuple[str, ...]]) -> None:
    for name, *_ in settings:
        if name in OWN:
            raise ClusterError(f"--{name} is set by `streamd cluster` for each node: leave it out")
        if name in SHARED:
            raise ClusterError(f"--{name} cannot be the same for all nodes: start such nodes with `streamd server`")


def port_range(first: int, count: int) -> list[int]:
    """Consecutive ports for clients, each with a port for the bus behind it."""
    if first + count - 1 > LARGEST_PORT:
        raise ClusterError(
            f"{count} nodes from port {first} on need ports up to {first + count - 1}, and {LARGEST_PORT} is the last whose bus has"
            f" a port: start fewer nodes, or choose a lower --port"
        )
    return list(range(first, first + count))


def check_ports(ports: Sequence[int]) -> None:
    """Refuse ports that are taken, for clients or for the bus."""
    for port in [*ports, *(port + BUS_OFFSET for port in ports)]:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                what = "port" if port in ports else f"port of the bus of node {port - BUS_OFFSET},"
                raise ClusterError(f"The {what} {port} is taken ({error.strerror}): choose another --port") from None


def check_memory(count: int, path: Path = Path("/proc/meminfo")) -> None:
    """Refuse nodes that do not fit into the memory of the machine even without data."""
    try:
        found = re.search(r"^MemAvailable: *(\d+) kB", path.read_text(encoding="ascii"), re.MULTILINE)
    except OSError:
        return
    available = int(found[1]) << 10 if found is not None else 0
    if available and count * BYTES_PER_NODE > available:
        raise ClusterError(
            f"{count} nodes need {count * BYTES_PER_NODE >> 20} MB of memory without any data, and {available >> 20} MB are available:"
            f" start at most {available // BYTES_PER_NODE}"
        )


def check_folder(folder: Path) -> None:
    """Refuse a folder for a new cluster that has something in it."""
    try:
        content = [name for name in os.listdir(folder) if name != "lock"]
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise ClusterError(f"{folder} is not a directory: choose another --dir") from None
    if content:
        raise ClusterError(f"{folder} is not empty, and holds no cluster (no cluster.json): choose another --dir")


def check_identities(record: Record) -> None:
    """Refuse folders of nodes that are not those of the record."""
    if not record.is_formed:
        raise ClusterError(
            f"The first start of the cluster in {record.folder} was interrupted: run `streamd cluster stop --dir {record.folder}`, remove"
            " the folder, and start again"
        )
    for member in record.members:
        path = record.folder_of(member) / "nodes.conf"
        try:
            found = re.search(r"^(\S+) .*\bmyself\b", path.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
        except OSError as error:
            raise ClusterError(
                f"{path} cannot be read ({error.strerror}): restore it, or choose another --dir"
            ) from None
        if found is None or found[1] != member.id:
            other = found[1] if found is not None else "nobody"
            raise ClusterError(
                f"{path} belongs to another node ({other}, not {member.id}): restore it, or choose another --dir"
            )
