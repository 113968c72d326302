"""Sessions: who is logged in to the console.

A session is a token in a cookie and a connection to the server, authenticated as a user. It ends when its user logs out, when no
request has come for `http-session-timeout` (a stream that is followed counts as one), when the port is closed, and when the server closes
the connection (CLIENT KILL, ACL DELUSER, `timeout`).
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from streamd.client.client_errors import ServerError
from streamd.client.replies import as_text
from streamd.console.guard import RefusedError
from streamd.console.inner_client import Connection, GoneError, Peer
from streamd.core.host import Host
from streamd.errors import StreamdError
from streamd.process.http_guard import find_crowding, network_of
from streamd.users.acl import Acl
from streamd.watching.board import Board

__all__ = ["FoundKeys", "LoginError", "Session", "Sessions"]

SESSIONS = 64
"""At most; the user and address with the most make room, with one that was never used, or has been idle for longest."""
SESSIONS_EACH = 32
"""... of a user from one address, at most."""
TAILS = 4
"""Streams that a session follows live at the same time, at most."""
FAILED_S = 0.5
"""How long a wrong password takes. Logins from one address take turns."""
LOGINS_WAITING = 20
"""From one address, at most."""
ALL_LOGINS_WAITING = 100
NAMING = ("CLIENT", "SETNAME", "console")


class LoginError(StreamdError):
    """The login is refused; str() says why.

    needs_password  whether a user and password may help
    """

    def __init__(self, text: str, *, needs_password: bool = False) -> None:
        super().__init__(text)
        self.needs_password = needs_password


@dataclass
class FoundKeys:
    """Keys of streams, in order, as they were found at a moment."""

    at_s: float
    keys: list[bytes]
    is_whole: bool


@dataclass(eq=False)
class Session:
    """Somebody who is logged in.

    token   in the cookie
    proof   sent with every request that changes something, against forged ones
    tails   connections that follow streams
    found   the keys of streams that were last found, by database, pattern and their limit
    seen_s  when a request came last, monotonic
    used    whether any has come since the login
    findings   what the last examination of a database has found, and when
    asking  connections of examinations
    """

    token: str
    proof: str
    connection: Connection
    peer: Peer
    local: Peer
    tails: set[Connection] = field(default_factory=set)
    found: dict[tuple[int, bytes, int], FoundKeys] = field(default_factory=dict)
    seen_s: float = 0.0
    used: bool = False
    findings: dict[int, tuple[float, dict[str, Any]]] = field(default_factory=dict)
    asking: set[Connection] = field(default_factory=set)

    @property
    def owner(self) -> Hashable:
        return self.user, network_of(self.peer[0])

    @property
    def user(self) -> str:
        user = self.connection.client.user
        return "default" if user is None else as_text(user.name)

    @property
    def is_open(self) -> bool:
        return self.connection.is_open

    def close(self) -> None:
        for each in (self.connection, *self.tails, *self.asking):
            each.close()


@dataclass
class Turns:
    """Logins from one address, of which one is tried at a time.

    waiting  how many there are, with the one that is tried
    """

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0


class Sessions:
    """The sessions of a server.

    examining  held while the server is examined: once at a time
    board      the last two looks at all nodes of the cluster; None: nobody has opened that view
    looking    held while the nodes are looked at
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._of: dict[str, Session] = {}
        self.examining = asyncio.Lock()
        self.board: Board | None = None
        self.looking = asyncio.Lock()
        self._turns: dict[str, Turns] = {}  # by address, while somebody logs in from there

    def find(self, token: str) -> Session | None:
        """The session of a token, unless it has ended. A request has come."""
        session = self._of.get(token)
        if session is None:
            return None
        if not session.is_open or time.monotonic() - session.seen_s > self._host.config.http_session_timeout:
            self.end(session)
            return None
        session.seen_s = time.monotonic()
        session.used = True
        return session

    def end(self, session: Session) -> None:
        self._of.pop(session.token, None)
        session.close()

    def end_old(self) -> None:
        """End those whose time is over."""
        limit = time.monotonic() - self._host.config.http_session_timeout
        for session in list(self._of.values()):
            if session.seen_s < limit or not session.is_open:
                self.end(session)

    def close(self) -> None:
        for session in list(self._of.values()):
            self.end(session)
        if self.board is not None:
            self.board.reader.close()

    async def log_in(self, name: bytes, password: bytes | None, peer: Peer, local: Peer) -> Session:
        """Begin a session; without a password, as the default user that needs none. Raises LoginError."""
        if password is None:
            return await self._log_in(name, password, peer, local)
        turns = self._turns.get(peer[0]) or Turns()
        if turns.waiting >= LOGINS_WAITING or sum(each.waiting for each in self._turns.values()) >= ALL_LOGINS_WAITING:
            raise LoginError("Too many logins at the same time; try again.", needs_password=True)
        self._turns[peer[0]] = turns
        turns.waiting += 1
        try:
            async with turns.lock:
                try:
                    return await self._log_in(name, password, peer, local)
                except LoginError:
                    await asyncio.sleep(FAILED_S)
                    raise
        finally:
            turns.waiting -= 1
            if not turns.waiting:
                del self._turns[peer[0]]

    async def _log_in(self, name: bytes, password: bytes | None, peer: Peer, local: Peer) -> Session:
        if password is None and self._host.get(Acl).needs_password:
            raise LoginError("A user and a password are needed.", needs_password=True)
        try:
            connection = Connection(self._host, peer, local)
        except GoneError as error:
            raise LoginError(str(error)) from None
        try:
            if password is not None:
                await connection.call("AUTH", name, password)
            if connection.denial(*NAMING) is None:
                await connection.ask([NAMING])
        except ServerError as error:
            connection.close()
            raise LoginError(str(error), needs_password=True) from None
        except GoneError as error:
            raise LoginError(str(error)) from None
        session = Session(secrets.token_urlsafe(32), secrets.token_urlsafe(32), connection, peer, local)
        self._make_room(session.owner)
        session.seen_s = time.monotonic()
        self._of[session.token] = session
        return session

    def _make_room(self, owner: Hashable) -> None:
        """End a session if there are too many for another one of an owner."""
        own = [each for each in self._of.values() if each.owner == owner]
        crowd = own if len(own) >= SESSIONS_EACH else self._of.values() if len(self._of) >= SESSIONS else ()
        if crowd:
            self.end(find_crowding(crowd, lambda each: each.owner, lambda each: (each.used, each.seen_s)))

    def new_tail(self, session: Session) -> Connection:
        """A further connection of a session's user, for what blocks. Raises RefusedError, GoneError."""
        if len(session.tails) >= TAILS:
            raise RefusedError(409, f"At most {TAILS} streams are followed at the same time.")
        tail = self.new_connection(session)
        session.tails.add(tail)
        return tail

    def new_connection(self, session: Session) -> Connection:
        """A further connection of a session's user. Raises GoneError."""
        if not session.is_open:
            raise GoneError("The session has ended.")
        connection = Connection(self._host, session.peer, session.local)
        of = session.connection.client
        connection.client.set_authenticated(of.authenticated, of.user)
        return connection
