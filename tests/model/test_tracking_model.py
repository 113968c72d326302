"""Client-side caching against its purpose: no client ever keeps a value that the server no longer has.

Clients in every mode read, keep what they read, and drop what they are told of; writers change keys in many ways. After each
step everything that is kept is compared with what the server has, and the server's own records are checked.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from support.wire import Reply, Wire

from streamd import embedded
from streamd.caching.tracking import Tracking
from streamd.embedded.hosts import ThreadHost

KEYS = [b"a", b"ab", b"abc", b"b", b"ba"]
MODES: dict[str, tuple[str, ...]] = {
    "default": (),
    "noloop": ("NOLOOP",),
    "optin": ("OPTIN",),
    "optout": ("OPTOUT",),
    "bcast": ("BCAST",),
    "bcast noloop": ("BCAST", "NOLOOP", "PREFIX", "a", "PREFIX", "b"),
}
MARKER = Reply("$", b"<heard>")


class CachingClient:
    """A client that keeps what it reads."""

    def __init__(self, port: int, mode: str) -> None:
        self.mode = mode
        self.wire = Wire(port)
        self.wire.call("HELLO", "3")
        assert self.wire.call("CLIENT", "TRACKING", "ON", *MODES[mode]).value == b"OK"
        self.kept: dict[bytes, bytes | None] = {}

    def call(self, *args: Any) -> Reply:
        """A request; pushes that come before its reply are heeded."""
        self.wire.send(*args)
        while (reply := self.wire.read()).kind == ">":
            self.heed(reply)
        return reply

    def heed(self, push: Reply) -> None:
        kind, keys = push.value
        assert kind.value == b"invalidate"
        if keys.value is None:
            self.kept.clear()
        else:
            for key in keys.value:
                self.kept.pop(key.value, None)

    def listen(self) -> None:
        """Heed all that the server has said so far."""
        self.wire.send("PING", MARKER.value)
        while (reply := self.wire.read()) != MARKER:
            self.heed(reply)

    def read(self, key: bytes, chance: random.Random) -> None:
        """Keep the value of a key when it is tracked; its place in a pipeline matters for OPTIN and OPTOUT."""
        if self.mode == "optin":
            self.call("CLIENT", "CACHING", "YES")
        elif self.mode == "optout" and chance.random() < 0.3:
            self.call("CLIENT", "CACHING", "NO")
            self.call("GET", key)
            return
        if chance.random() < 0.3:
            self.call("MULTI")
            self.call("GET", key)
            value = self.call("EXEC").value[0].value
        else:
            value = self.call("GET", key).value
        self.kept[key] = value

    def write(self, key: bytes, value: bytes) -> None:
        """With NOLOOP, one's own change is not told: what is kept is changed by oneself."""
        self.kept.pop(key, None)
        self.call("SET", key, value)
        if "NOLOOP" in MODES[self.mode] and key in self.kept:
            del self.kept[key]


@pytest.fixture
def server() -> Iterator[embedded.EmbeddedServer]:
    with embedded.start(**{"tracking-table-max-keys": 3}) as server:
        yield server


def check_invariants(server: embedded.EmbeddedServer) -> None:
    """In the server's own thread, between two of its turns."""
    assert isinstance(server._host, ThreadHost)
    server._host.inside(lambda server: server.get(Tracking).check_invariants())


def change(writer: Wire, chance: random.Random, number: int) -> None:
    key, other = chance.choice(KEYS), chance.choice(KEYS)
    value = b"%d" % number
    requests: list[tuple[Any, ...]] = chance.choice([
        [("SET", key, value)],
        [("SET", key, value)],
        [("MSET", key, value, other, value)],
        [("DEL", key, other)],
        [("APPEND", key, "x")],
        [("RENAME", key, other)],
        [("COPY", key, other, "REPLACE")],
        [("EXPIRE", key, "-1")],
        [("SELECT", "1"), ("SET", key, value), ("SELECT", "0")],
        [("MULTI",), ("SET", key, value), ("DEL", other), ("EXEC",)],
        [("GETDEL", key)],
        [("FLUSHDB",)] if chance.random() < 0.2 else [("PERSIST", key)],
    ])  # fmt: skip
    writer.pipeline(requests)


@pytest.mark.parametrize("seed", range(6))
def test_nothing_stale_is_kept(server: embedded.EmbeddedServer, seed: int) -> None:
    chance = random.Random(seed)
    writer = Wire(server.port)
    clients = [CachingClient(server.port, mode) for mode in MODES]
    try:
        for number in range(150):
            doing = chance.random()
            client = chance.choice(clients)
            if doing < 0.5:
                client.read(chance.choice(KEYS), chance)
            elif doing < 0.6:
                client.write(chance.choice(KEYS), b"own %d" % number)
            elif doing < 0.62:
                clients.remove(client)
                client.wire.close()
                clients.append(CachingClient(server.port, client.mode))
            else:
                change(writer, chance, number)
            for one in clients:
                one.listen()
            current = {key: writer.call("GET", key).value for key in KEYS}
            for one in clients:
                stale = {key: value for key, value in one.kept.items() if value != current[key]}
                assert not stale, f"step {number}: a client in mode {one.mode!r} keeps {stale}, but it is {current}"
            check_invariants(server)
    finally:
        for one in clients:
            one.wire.close()
        writer.close()
