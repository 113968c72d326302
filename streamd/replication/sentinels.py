"""Sentinels: those that watch this server, and the role that they give it.

A Sentinel publishes a *hello* on HELLO_CHANNEL through each server that it watches, every two seconds and immediately after a switch:

    ip,port,run ID,epoch,service,primary's ip,primary's port,epoch of that

Only hellos of a user who may run SLAVEOF count: that user could make this server a replica anyway. A Sentinel is identified by its
run ID. One with a new run ID replaces the one that had its address, or else the one that has been silent the longest: pods return
with a new identity, and those that are gone must not count for ever. So their number never falls.

A hello with a newer epoch that names another server says that this one has been replaced, once it is known which address is its
own: the announced one, or one that a hello has named over a connection to that very address.
"""

from __future__ import annotations

from typing import NamedTuple, Self

from streamd.core.client import Client

__all__ = ["HELLO_CHANNEL", "Hello", "Sentinels"]

HELLO_CHANNEL = b"__sentinel__:hello"
GONE_S = 5.0
"""Who was silent for so long makes room for a newcomer that has come since."""

Address = tuple[str, int]


class Hello(NamedTuple):
    """What a Sentinel says: where it is, its run ID, and which server is the primary since which epoch."""

    address: Address
    run_id: str
    primary: Address
    epoch: int

    @classmethod
    def parse(cls, message: bytes) -> Self:
        """Raises ValueError."""
        ip, port, run_id, _, _, primary_ip, primary_port, epoch = message.decode("utf-8").split(",")
        return cls((ip, int(port)), run_id, (primary_ip, int(primary_port)), int(epoch))


class Known:
    """A Sentinel: its address, the connection over which it sends commands, and when it was last heard."""

    def __init__(self, address: Address, client: Client) -> None:
        self.address = address
        self.client = client

    @property
    def heard_at(self) -> float:
        """Monotonic seconds."""
        return self.client.last_interaction


class Sentinels:
    """
    known     by run ID
    announced  the address that this server announces; None: none
    successor  the address of the server that has replaced this one; None: it has not been replaced
    """

    def __init__(self) -> None:
        self.known: dict[str, Known] = {}
        self.announced: Address | None = None
        self.successor: Address | None = None
        self._met_at: list[float] = []
        """When newcomers came that have not taken anybody's place."""
        self._own: set[Address] = set()
        self._epoch = -1
        """The newest epoch in which this server was named."""
        self._newest = -1
        """The newest epoch of all."""

    def hear(self, hello: Hello, client: Client, reached_at: Address | None, now: float) -> None:
        """A Sentinel has said hello; `reached_at`: the address at which it has reached this server."""
        self._meet(hello, client, now)
        self._newest = max(self._newest, hello.epoch)
        if hello.primary in (self.announced, reached_at):
            self._own.add(hello.primary)
        if hello.primary in self._own:
            self._epoch = max(self._epoch, hello.epoch)
            if self._epoch == self._newest:
                self.successor = None
        elif (self._own or self.announced) and hello.epoch > self._epoch and hello.epoch == self._newest:
            self.successor = hello.primary

    def _meet(self, hello: Hello, client: Client, now: float) -> None:
        known = self.known.get(hello.run_id)
        if known is not None:
            known.client = client
        else:
            before = [run_id for run_id, other in self.known.items() if other.address == hello.address]
            for run_id in before:
                del self.known[run_id]
            if not before:
                self._met_at.append(now)
            self.known[hello.run_id] = Known(hello.address, client)
        self._make_room(now)

    def _make_room(self, now: float) -> None:
        """Let each newcomer take the place of one that was not heard any more when it came."""
        for met_at in list(self._met_at):
            gone = [
                (known.heard_at, run_id)
                for run_id, known in self.known.items()
                if known.heard_at < met_at and now - known.heard_at > GONE_S
            ]
            if gone:
                del self.known[min(gone)[1]]
                self._met_at.remove(met_at)

    def find(self, client: Client) -> Known | None:
        """The Sentinel that has made a new connection, by the name that Sentinels give theirs."""
        name = client.name
        if name.startswith(b"sentinel-") and name.endswith(b"-cmd"):
            start = name[9:-4].decode("latin-1")
            return next((known for run_id, known in self.known.items() if run_id[:8] == start), None)
        return None

    def begin(self) -> None:
        """This server has become a primary: what was said of others before is no news."""
        self._epoch = self._newest
        self.successor = None

    def is_majority_heard(self, since: float) -> bool:
        """Whether most have been heard since a time, in monotonic seconds. True without Sentinels."""
        heard = sum(each.client.transport is not None and each.heard_at > since for each in self.known.values())
        return not self.known or 2 * heard > len(self.known)
