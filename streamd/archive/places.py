"""Where an archiver reads, and where it locks and trims: a replica may serve the reading, its primary does the rest.

Replication is in order: a replica whose stream has had the ID n holds every entry up to n that its primary holds, and perhaps
some that were deleted there a moment ago. So what is archived ends at the last ID that the replica has had.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from streamd.archive.archive_errors import ArchiveError
from streamd.client.connection import Connection, connect
from streamd.client.url_options import ConnectionOptions

__all__ = ["Places", "check_replica", "find_places"]

MOST_LINKS = 8
"""Replicas of replicas that are followed up to a primary."""

ADDRESS_OPTIONS = frozenset({"url", "host", "port", "unixsocketpath", "sentinels", "sentinelmaster"})


@dataclass(frozen=True)
class Places:
    """Where to connect to.

    reads    entries are read there
    control  the primary: locks, trims, and what is asked about streams and groups
    """

    reads: ConnectionOptions
    control: ConnectionOptions

    @property
    def are_two(self) -> bool:
        return self.reads is not self.control


def find_places(options: Mapping[str, str], primary: str | None = None) -> Places:
    """The places of an archiver whose options name a primary or a replica.

    options  those of a connection
    primary  URL of the primary; None: as the replica says
    Raises ArchiveError when the one is no replica of the other, UnreachableError, OptionError.
    """
    reads = ConnectionOptions.parse(options).live_only()
    if reads.cluster_nodes:
        if primary is not None:
            raise ArchiveError("the nodes of a cluster are found by themselves, so --primary has no meaning")
        return Places(reads, reads)
    with connect(reads) as connection:
        master = master_of(connection)
        if master is None:
            if primary is not None:
                raise ArchiveError(f"{connection.place} is not a replica, so --primary has no meaning")
            return Places(reads, reads)
        dataset = dataset_of(connection)
    if primary is not None:
        others = {name: value for name, value in options.items() if name.lower() not in ADDRESS_OPTIONS}
        control = ConnectionOptions.parse({**others, "url": primary}).live_only()
        if control.cluster_nodes:
            raise ArchiveError("--primary names the primary of a replica, not a cluster")
    else:
        control = at(reads, master)
    for _ in range(MOST_LINKS):
        with connect(control) as connection:
            master = master_of(connection)
            if master is None:
                if dataset_of(connection) != dataset:
                    raise no_replica(reads, control)
                return Places(reads, control)
        control = at(reads, master)
    raise ArchiveError(f"no primary is found above {reads.place}")


def check_replica(replica: Connection, primary: Connection) -> None:
    """Raise ArchiveError unless a server, which may have been told otherwise since, still replicates the other."""
    if master_of(replica) is None or dataset_of(replica) != dataset_of(primary):
        raise no_replica(replica.options, primary.options)


def no_replica(reads: ConnectionOptions, control: ConnectionOptions) -> ArchiveError:
    return ArchiveError(f"{reads.place} does not replicate {control.place}, or has lost the link to it")


def at(options: ConnectionOptions, address: tuple[str, int]) -> ConnectionOptions:
    return replace(options, host=address[0], port=address[1], unix_socket_path=None)


def master_of(connection: Connection) -> tuple[str, int] | None:
    """Whom a server replicates; None: it is a primary, or does not let this user know."""
    (role,) = connection.pipeline([("ROLE",)], raise_errors=False)
    return (role[1].decode(), int(role[2])) if isinstance(role, list) and role[0] == b"slave" else None


def dataset_of(connection: Connection) -> str:
    """The replication ID: the same on a primary and its replicas."""
    lines = connection.command("INFO", "replication").decode(errors="replace").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("master_replid:")), "")
