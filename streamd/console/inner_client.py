"""Connection: a client of the server within its own process, without a socket.

The server sees a client like any other: it is in CLIENT LIST with the address of the browser, its requests are limited by the
permissions of its user, shown by MONITOR, and cut into the turns of the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from streamd.client.client_errors import ServerError
from streamd.client.reply_reader import ReplyReader
from streamd.client.reply_types import UNREAD
from streamd.core.client import Client
from streamd.core.host import Host
from streamd.core.inner_line import Line, Peer
from streamd.core.slices import Slices
from streamd.errors import StreamdError
from streamd.protocol.request_bytes import encode_request
from streamd.users.acl import Acl
from streamd.users.user import User

__all__ = ["Connection", "GoneError", "Peer", "Reply", "Request"]

Request = Sequence[bytes | str | int]
Reply = Any
AT_ONCE = 100
"""Requests that are handed to the server together."""


class GoneError(StreamdError):
    """The server has closed the connection; str() is what it said last, if anything."""


class Connection:
    """A connection; raises GoneError when the server refuses it.

    peer  the address of the browser
    """

    def __init__(self, host: Host, peer: Peer, local: Peer) -> None:
        self._host = host
        self._replies = ReplyReader()
        self._arrived = asyncio.Event()
        self._busy = asyncio.Lock()
        self._db = 0
        self.is_open = True
        self.client = Client(host.dispatcher)
        self.client.connection_made(Line(self, peer, local))
        if not self.is_open:
            raise GoneError(self._last_words())

    def close(self) -> None:
        if self.is_open:
            self.client.close()

    def take(self, data: Any) -> None:
        """The server has written."""
        self._replies.feed(bytes(data))
        self._arrived.set()

    def line_closed(self) -> None:
        """The server, or `close`, has closed the line."""
        self.is_open = False
        self._arrived.set()
        self._host.loop.call_soon(self.client.connection_lost, None)

    def _last_words(self) -> str:
        said = self._replies.next()
        return str(said) if isinstance(said, ServerError) else ""

    async def ask(self, requests: Sequence[Request], db: int | None = None) -> list[Reply]:
        """Send requests; the replies in order, an error as a `ServerError`. Raises GoneError.

        db  the database in which they run; None: in any
        """
        async with self._busy:
            if db is not None and db != self._db:
                (reply,) = await self._exchange([("SELECT", db)])
                if isinstance(reply, ServerError):
                    return [reply] * len(requests)
                self._db = db
            found: list[Reply] = []
            for at in range(0, len(requests), AT_ONCE):
                found += await self._exchange(requests[at : at + AT_ONCE])
            return found

    async def call(self, *words: bytes | str | int, db: int | None = None) -> Reply:
        """Send a request and return its reply; raises ServerError for an error reply, GoneError."""
        (reply,) = await self.ask([words], db)
        if isinstance(reply, ServerError):
            raise reply
        return reply

    async def _exchange(self, requests: Sequence[Request]) -> list[Reply]:
        if not self.is_open:
            raise GoneError(self._last_words())
        slices = Slices()
        found: list[Reply] = []
        try:
            self.client.data_received(b"".join(encode_request(*words) for words in requests))
            for _ in requests:
                found.append(await self._read())
                await slices.breathe()
        except BaseException:
            self.close()  # which reply is whose would not be known any more
            raise
        return found

    async def _read(self) -> Reply:
        while (reply := self._replies.next()) is UNREAD:
            if not self.is_open:
                raise GoneError(self._last_words())
            self._arrived.clear()
            await self._arrived.wait()
        return reply

    # --- Permissions -------------------------------------------------------------------------------------------------

    def denial(self, *words: bytes | str | int) -> str | None:
        """Why the user may not make a request, as ACL DRYRUN tells; None when it may, or there is no such command.

        For what is not even to be tried: what the server refuses, it writes into ACL LOG.
        """
        user = self.client.user
        if not isinstance(user, User) or not user.is_limited:
            return None
        request = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        called = self._host.commands.find(request)
        if called is None or called.handler is None or not called.accepts(len(request)):
            return None
        found = self._host.get(Acl).explain(user, called, request)
        return None if found is None else f"NOPERM {found.decode('utf-8', 'replace')}"
