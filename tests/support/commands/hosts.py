"""A whole server without sockets: every capability, the real dispatcher and real clients, on a loop that the test turns.

    with Host(requirepass="secret") as host:
        client = host.connect()
        assert client.ask("PING") == ...

For tests of what one capability keeps or answers, where a server process would hide it. A client's requests take the way of
all requests, from its parser to its transport, which keeps what is sent. Time does not pass by itself: `turn` runs turns of
the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Self

import hiredis

from streamd.core.capability import Capability
from streamd.core.client import Client
from streamd.persistence.persistence import Persistence
from streamd.serve.app import CAPABILITIES, Server
from streamd.settings.config import Config

__all__ = ["Host", "Peer", "Transport"]

TURNS = 20
"""More than clients are put off, although a busy machine may take their share of a turn from them."""


class Transport(asyncio.Transport):
    """A connection; `sent` is what the peer has not read yet. The client learns in the next turn that it is closed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, peer: Any, own: Any) -> None:
        super().__init__({"peername": peer, "sockname": own})
        self.sent = b""
        self.is_closed = False
        self.client: Client
        self._loop = loop

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += bytes(data)

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._loop.call_soon(self.client.connection_lost, None)

    abort = close

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class Peer:
    """A client, and what talks to it."""

    def __init__(self, host: Host, client: Client, transport: Transport) -> None:
        self.host = host
        self.client = client
        self.transport = transport

    def send(self, *args: bytes | str | int) -> None:
        """Send one request."""
        words = [arg if isinstance(arg, bytes) else str(arg).encode() for arg in args]
        self.client.data_received(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(w), w) for w in words))

    def read(self) -> list[Any]:
        """The replies and pushes that have been sent since the last time; errors as hiredis.ReplyError."""
        self.host.turn()
        reader = hiredis.Reader()
        reader.feed(self.transport.sent)
        self.transport.sent = b""
        replies = []
        while (reply := reader.gets()) is not False:
            replies.append(reply)
        return replies

    def ask(self, *args: bytes | str | int) -> Any:
        """The reply to one request, which must have exactly one."""
        self.send(*args)
        (reply,) = self.read()
        return reply

    def close(self) -> None:
        """The peer goes."""
        self.transport.close()
        self.host.turn()


class Host:
    """A server that nobody can connect to but the test.

    config    its configuration; without one, that of an embedded server with these settings
    more      capabilities beside those that every server has
    """

    def __init__(
        self, config: Config | None = None, *, more: Sequence[Callable[[Any], Capability]] = (), **settings: Any
    ) -> None:
        self.loop = asyncio.new_event_loop()
        self.server = Server(Config.for_embedding(settings) if config is None else config)
        try:
            self.server.open(self.loop, [*CAPABILITIES, *more])
            self.server.apply_settings()
        except BaseException:
            self.loop.close()
            raise
        # What `Loader.load` does when there are no files.
        self.server.get(Persistence).loader.loading = None
        self.server.get(Persistence).refresh()

    def connect(
        self,
        address: tuple[str, int] = ("127.0.0.1", 50000),
        own: tuple[str, int] = ("127.0.0.1", 6379),
        *,
        is_unix: bool = False,
    ) -> Peer:
        """A new connection, from an address to one of the server's own."""
        transport = Transport(self.loop, address, own)
        transport.client = client = Client(self.server.dispatcher, is_unix)
        client.connection_made(transport)
        return Peer(self, client, transport)

    def turn(self) -> None:
        """Run what the loop has to do now, and end the turn, and those to which clients were put off meanwhile."""
        for _ in range(TURNS):
            self.loop.run_until_complete(asyncio.sleep(0))

    def close(self) -> None:
        for capability in self.server.capabilities:
            capability.close()
        self.turn()
        self.loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
