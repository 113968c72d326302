"""A network between the processes of a test, in which some cannot reach others.

    network = Network()
    network.add("a", "127.0.1.1")            a process that connects from this address (bind-source-addr)
    port = network.gate("b")                 where everybody reaches b: 127.0.0.1:port
    network.lead("b", b_port)                the gate leads to 127.0.0.1:b_port
    network.cut([("a", "b")])                neither hears the other any more, whoever made the connection
    network.heal()

A connection is known by the address that it comes from; what comes from any other address is `CLIENTS`. The addresses are in
127.0.0.0/8, all of which Linux lets one bind to.

A cut connection stays open and silent, and so does a new one: nobody is told that the other side has ended. `heal` lets
waiting bytes through, as TCP does when packets get through again; with `heal(drop=True)` it resets these connections instead, as
hosts do that have given up, or a firewall that has forgotten them.

The network is a process of its own, this file, so that busy clients in the process of the test do not slow it down. It takes
orders on its input and answers on its output, one JSON object per line, and ends with its input.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterable
from typing import Any, Self

__all__ = ["CLIENTS", "Network"]

CLIENTS = "clients"
"""Who connects from an address that was not added."""

MOST_UNSENT = 1 << 20
"""Bytes that a peer may lag behind before the other side is not read from any more."""


class Network:
    """See the head of the module. Not for several threads at once."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def add(self, name: str, address: str) -> None:
        """Let connections from this address be those of `name`."""
        self._order("add", name, address)

    def gate(self, name: str) -> int:
        """Open a port that leads to `name`, and return it."""
        return int(self._order("gate", name))

    def lead(self, name: str, port: int) -> None:
        """Say where `name` listens."""
        self._order("lead", name, port)

    def cut(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Let the two of each pair not hear each other any more, in addition to earlier cuts."""
        self._order("cut", list(pairs))

    def heal(self, *, drop: bool = False) -> None:
        """End all cuts; see the head of the module."""
        self._order("heal", drop)

    def close(self) -> None:
        self._process.communicate()

    def _order(self, what: str, *arguments: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([what, *arguments]) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


# --- In the process -----------------------------------------------------------------------------------------------------


class _Switchboard:
    """What the network knows, and all its connections."""

    def __init__(self) -> None:
        self.ports: dict[str, int] = {}
        self.connections: set[_Connection] = set()
        self._names: dict[str, str] = {}
        self._cuts: set[frozenset[str]] = set()
        self._servers: list[asyncio.Server] = []

    def name_of(self, address: str) -> str:
        return self._names.get(address, CLIENTS)

    def is_cut(self, one: str, other: str) -> bool:
        return frozenset((one, other)) in self._cuts

    async def obey(self, what: str, *arguments: Any) -> Any:
        """Carry out an order; see the methods of Network."""
        if what == "add":
            self._names[arguments[1]] = arguments[0]
        elif what == "gate":
            return await self._open(arguments[0])
        elif what == "lead":
            self.ports[arguments[0]] = arguments[1]
        elif what == "cut":
            self._change(self._cuts | {frozenset(pair) for pair in arguments[0]}, drop=False)
        else:
            self._change(set(), drop=arguments[0])
        return None

    async def _open(self, name: str) -> int:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _End(_Connection(self, name)), "127.0.0.1", 0)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    def _change(self, cuts: set[frozenset[str]], *, drop: bool) -> None:
        self._cuts = cuts
        for connection in list(self.connections):
            if drop and connection.is_held:
                connection.end()
            else:
                connection.look()


class _Connection:
    """Two sockets, and what is known about the two who talk."""

    def __init__(self, board: _Switchboard, target: str) -> None:
        self._board = board
        self._target = target
        self._source = ""
        self._ends: list[_End] = []
        self._has_ended = False
        self._connecting: asyncio.Task[None] | None = None
        self.is_held = False

    def begin(self, end: _End) -> None:
        """One of the two sockets is there: first that of who connects, then that of the target."""
        self._ends.append(end)
        end.transport.pause_reading()
        if len(self._ends) == 1:
            self._board.connections.add(self)
            self._source = self._board.name_of(end.transport.get_extra_info("peername")[0])
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
        else:
            first, second = self._ends
            first.other, second.other = second, first
            self.look()

    async def _connect(self) -> None:
        try:
            await asyncio.get_running_loop().create_connection(
                lambda: _End(self), "127.0.0.1", self._board.ports[self._target]
            )
        except (OSError, KeyError):  # KeyError: nobody is there yet, and a stranger has taken the gate for another's
            self.lost()

    def look(self) -> None:
        """Hold the connection, or let it go on, as the cuts say."""
        self.is_held = self._board.is_cut(self._source, self._target)
        if self._has_ended and not self.is_held:
            self.end()
        elif len(self._ends) == 2:
            for each in self._ends:
                each.choose()

    def lost(self) -> None:
        """One side has ended; the other hears of it unless the connection is held."""
        self._has_ended = True
        if not self.is_held:
            self.end()

    def end(self) -> None:
        self._board.connections.discard(self)
        if self._connecting is not None:
            self._connecting.cancel()
        for each in self._ends:
            # What one side has said before it ended still has to arrive.
            if self.is_held:
                each.transport.abort()
            else:
                each.transport.close()


class _End(asyncio.Protocol):
    """One socket of a connection; what is read from it is written to the other."""

    transport: asyncio.Transport

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection
        self.other: _End | None = None
        self._early = b""
        """Read before there was another side: CPython 3.11.2 does not honour a pause that is set when a connection is made."""
        self._is_full = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(high=MOST_UNSENT)
        self._connection.begin(self)

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            self._early += data
        else:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        self._is_full = True
        self._connection.look()

    def resume_writing(self) -> None:
        self._is_full = False
        self._connection.look()

    def choose(self) -> None:
        """Read, or do not, depending on the cuts and on whether the other side takes more."""
        assert self.other is not None
        if self._early and not self._connection.is_held:
            self.other.transport.write(self._early)
            self._early = b""
        if self._connection.is_held or self.other._is_full:
            self.transport.pause_reading()
        elif not self.transport.is_closing():
            self.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.lost()


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    board = _Switchboard()
    orders = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    while line := await orders.readline():
        print(json.dumps(await board.obey(*json.loads(line))), flush=True)


if __name__ == "__main__":
    asyncio.run(_serve())
