"""What the core of a cluster node asks of the server. `ClusterCore.take_actions` returns them in the order of execution.

`Save` comes first: the file must be written, and synced if so required, before any packet of the same list is sent:
a vote that is sent and then forgotten could be given twice.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "Action",
    "AnnounceLater",
    "Close",
    "Connect",
    "DeleteKeys",
    "Deliver",
    "DropData",
    "Follow",
    "Log",
    "PauseWrites",
    "Promote",
    "ResumeWrites",
    "Save",
    "Send",
    "SlotsLeft",
    "StateChanged",
    "Sync",
]


@dataclass(frozen=True, slots=True)
class Save:
    """Replace nodes.conf. A failure is fatal."""

    content: bytes
    must_sync: bool  # file and directory must be on the disk before the next action


@dataclass(frozen=True, slots=True)
class Sync:
    """Sync nodes.conf as soon as possible, without waiting for that."""


@dataclass(frozen=True, slots=True)
class Connect:
    """Open a connection to the bus of a node, then call `link_opened` or `link_closed`.

    Packets may be sent on the link at once; they wait for the connection, or are dropped with it.
    """

    link: int
    ip: str
    port: int


@dataclass(frozen=True, slots=True)
class Send:
    """Write a packet to a link."""

    link: int
    packet: bytes


@dataclass(frozen=True, slots=True)
class Close:
    """Close a connection, and drop unsent bytes. The core has forgotten the link already: no `link_closed`."""

    link: int


@dataclass(frozen=True, slots=True)
class Follow:
    """Become a replica of a node, or go on as one at another address."""

    node_id: bytes
    ip: str
    port: int  # 0: it has no port without TLS
    tls_port: int  # 0: it has no port with TLS


@dataclass(frozen=True, slots=True)
class Promote:
    """Stop replicating, and become a primary with the data at hand."""


@dataclass(frozen=True, slots=True)
class AnnounceLater:
    """Call `announce` of the core after a delay."""

    delay_ms: int


@dataclass(frozen=True, slots=True)
class DropData:
    """Delete all keys (CLUSTER RESET of a replica)."""


@dataclass(frozen=True, slots=True)
class DeleteKeys:
    """Delete the keys of slots that this primary has lost, and propagate the deletions, without keyspace events."""

    slots: list[int]


@dataclass(frozen=True, slots=True)
class SlotsLeft:
    """Slots that have left the shard of this node: end the subscriptions of their shard channels."""

    slots: list[int]


@dataclass(frozen=True, slots=True)
class StateChanged:
    """The cluster state has changed."""

    is_ok: bool


@dataclass(frozen=True, slots=True)
class PauseWrites:
    """Hold back writes of clients: a replica is taking over. The replication stream gets no PING until ResumeWrites."""

    duration_ms: int  # at most


@dataclass(frozen=True, slots=True)
class ResumeWrites:
    """The fail-over has succeeded or failed."""


@dataclass(frozen=True, slots=True)
class Deliver:
    """A message of a PUBLISH or SPUBLISH on another node, for the clients of this one."""

    channel: bytes
    message: bytes
    is_sharded: bool


@dataclass(frozen=True, slots=True)
class Log:
    """A line for the log. level: debug, verbose, notice or warning."""

    level: str
    text: str


Action = (
    Save
    | Sync
    | Connect
    | Send
    | Close
    | Follow
    | Promote
    | AnnounceLater
    | DropData
    | DeleteKeys
    | SlotsLeft
    | StateChanged
    | PauseWrites
    | ResumeWrites
    | Deliver
    | Log
)
