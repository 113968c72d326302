"""Waiting: clients that wait until replicas, or this server's disk, have what they wrote (WAIT, WAITAOF)."""

from __future__ import annotations

from streamd.core.capability import Capability
from streamd.core.client import Client
from streamd.core.context import BlockRequest
from streamd.core.dispatch import ServerContext
from streamd.core.host import Host
from streamd.persistence.persistence import Persistence
from streamd.replication.replication import Replication

__all__ = ["Waiting"]


class Waiting(Capability):
    """Clients are in `clients` while they wait. Acknowledgements are asked for once per turn, however many wait."""

    rests = True

    def __init__(self, host: Host) -> None:
        self._host = host
        self._dispatcher = host.dispatcher
        self._replication = host.get(Replication)
        self._append_only = host.get(Persistence).append_only
        self.clients: dict[int, Client] = {}
        self.skips_turns = True
        """Nothing is to be asked in this turn."""

    # --- What has been acknowledged -----------------------------------------------------------------------------------

    def count_replicas(self, offset: int) -> int:
        """How many replicas have received the stream up to `offset`."""
        return sum(each.is_online and each.ack_offset >= offset for each in self._replication.replicas.values())

    def count_durable_replicas(self, offset: int) -> int:
        """How many replicas have it on their disks."""
        return sum(
            each.is_online and max(each.fack_offset, 0) >= offset for each in self._replication.replicas.values()
        )

    def is_on_disk(self, offset: int) -> bool:
        """Whether it is on the disk of this server."""
        return self._append_only.is_on and self._append_only.aof.tail.synced_offset >= offset

    # --- Waiting ------------------------------------------------------------------------------------------------------

    def block(self, ctx: ServerContext, request: BlockRequest) -> None:
        """Make a client wait. When it begins to, replicas are asked where they are."""
        if ctx.client.blocked is None:
            self._host.wake(self)
            self.clients[ctx.client.id] = ctx.client
            self.ask()
        ctx.block_on(request)

    def ask(self) -> None:
        """Ask replicas for acknowledgements at the end of this turn."""
        if self.skips_turns:
            self.skips_turns = False
            self._dispatcher.ask_before_replies()

    def retry(self) -> None:
        """Something has been acknowledged: answer those for whom that is enough."""
        for client in list(self.clients.values()):
            self._dispatcher.blocked.retry(client)
            if client.blocked is None:
                del self.clients[client.id]

    def put_question(self) -> None:
        """Put the question into the stream, if it is to be asked in this turn."""
        if not self.skips_turns:
            self.skips_turns = True
            self._replication.say([b"REPLCONF", b"GETACK", b"*"])

    def before_replies(self) -> int:
        self.put_question()
        return 0

    def cron(self, now_ms: int) -> None:
        if self.clients:
            self.retry()

    def client_gone(self, client: Client) -> None:
        self.clients.pop(client.id, None)
