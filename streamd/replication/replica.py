"""Replica: a replica that is connected to this server."""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from enum import Enum, auto
from typing import TYPE_CHECKING

from streamd.core.client import Client

if TYPE_CHECKING:
    from streamd.replication.replication_stream import Feed
    from streamd.replication.standing import View

__all__ = ["Replica", "ReplicaState"]


class ReplicaState(Enum):
    """How far the synchronisation has come."""

    HANDSHAKE = auto()
    """It has sent REPLCONF, but has not asked for anything yet."""
    WAIT_CHANNEL = auto()
    """It has been told to open a second connection for the snapshot."""
    WAIT_START = auto()
    """It waits for a snapshot to begin."""
    WAIT_END = auto()
    """A snapshot is being written for it, to a file or to its connection."""
    SEND = auto()
    """It is being sent the file."""
    SEND_AND_STREAM = auto()
    """It is being sent a snapshot on another connection, and the stream on this one."""
    ONLINE = auto()
    """It has been sent a snapshot, and gets the stream."""
    SENT = auto()
    """It wanted nothing but a snapshot, and has it."""


class Replica:
    """
    client        its connection
    port, ip      where it says that it listens; empty: the address of the connection
    capabilities  what it understands: eof, psync2, rdb-channel-repl, in lower case
    start_offset  where the stream of this connection starts: the end of its snapshot
    ack_offset    the last byte that it has acknowledged; `ack_at`: when, in monotonic seconds
    has_acknowledged  it has acknowledged something on this connection
    fack_offset   the last byte that is on its disk, as it says; -1: it has not said so
    feed          its place in the stream; None: not yet
    starts_on_ack  the stream is sent once it has acknowledged the snapshot: only then has it read all of it
    is_old        it has sent SYNC: it knows nothing of histories and acknowledges nothing
    is_rdb_only   it wants a snapshot and no stream
    rdb_filter    what is in the snapshot: None for everything, else parts (functions)
    knows_views   it has said where it stands (see standing.py); `view`: the one that it was told to join
    is_ahead      it has data that is missing here: it is not sent anything before that has been taken over
    wants_data    this server is its replica, and has data that is missing there
    is_rdb_channel  the connection is for the snapshot; `main`: the one for the stream
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self.state = ReplicaState.HANDSHAKE
        self.port = 0
        self.announced_ip = ""
        self.capabilities: set[str] = set()
        self.start_offset = 0
        self.ack_offset = 0
        self.ack_at = time.monotonic()
        self.has_acknowledged = False
        self.fack_offset = -1
        self.feed: Feed | None = None
        self.starts_on_ack = False
        self.is_old = False
        self.is_rdb_only = False
        self.wants_uncompressed = False
        self.rdb_filter: frozenset[str] | None = None
        self.knows_views = self.is_ahead = self.wants_data = False
        self.view: View | None = None
        self.main: Replica | None = None
        self.waits_since = 0.0

    @property
    def ip(self) -> str:
        """The address that it announced, or that it is connected from."""
        return self.announced_ip or self.client.address.rpartition(":")[0].strip("[]")

    @property
    def name(self) -> str:
        """How log lines name it: address and port where it listens."""
        return f"{self.ip}:{self.port}" if self.port else self.client.address

    @property
    def is_rdb_channel(self) -> bool:
        return self.client.is_rdb_channel

    @property
    def wants_stream(self) -> bool:
        """Whether it goes on after the snapshot. Others close the connection when they have it."""
        return not (self.is_rdb_only or self.is_rdb_channel)

    @property
    def has_lost_main(self) -> bool:
        """Whether the connection is closed on which the stream would follow its snapshot."""
        return self.main is not None and self.main.client.transport is None

    @property
    def is_online(self) -> bool:
        return self.state is ReplicaState.ONLINE

    @property
    def is_fed(self) -> bool:
        """Whether the stream is being sent."""
        return self.feed is not None and self.client.outflow is self.feed

    @property
    def lag_s(self) -> int:
        """Seconds since its last acknowledgement."""
        return int(time.monotonic() - self.ack_at)

    def begin_stream(self) -> None:
        """Send the stream from now on."""
        self.client.outflow = self.feed
        self.client.send_later()

    def drop_feed(self) -> None:
        if self.feed is not None:
            self.feed.close()
            self.feed = None

    def hang_up(self) -> None:
        """End its connection although a child has it, too."""
        if self.client.is_plain:
            with suppress(OSError), socket.socket(fileno=os.dup(self.client.fileno)) as same:
                same.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close its connection."""
        self.drop_feed()
        self.client.outflow = None
        self.client.close()
