"""The registry of waiting clients under everything that makes them wait and go on.

Clients wait for several keys, named twice at times, with and without a group, with time-outs and claims; others add, delete,
rename and overwrite, unblock them, and connections break. After each step the server's own records are checked, and at the
end nobody waits who has been answered, and nobody has been forgotten.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.wire import Wire

from streamd import embedded
from streamd.embedded.hosts import ThreadHost

KEYS = ["a", "b", "c"]
CLIENTS = 12
DEADLINE_S = 60


@pytest.fixture
def server() -> Iterator[embedded.EmbeddedServer]:
    with embedded.start() as server:
        yield server


def inside(server: embedded.EmbeddedServer, ask: Callable[[Any], Any]) -> Any:
    """What `ask` says of the registry, in the server's own thread, between two of its turns."""
    assert isinstance(server._host, ThreadHost)
    return server._host.inside(lambda server: ask(server.blocked))


def wait_somehow(chance: random.Random) -> list[Any]:
    """A request that may have to wait."""
    keys = chance.choices(KEYS, k=chance.randint(1, 3))
    timeout_ms = chance.choice([0, 0, 1, 3, 20, 10_000])
    if chance.random() < 0.4:
        return ["XREAD", "BLOCK", timeout_ms, "STREAMS", *keys, *["$"] * len(keys)]
    claim = ["CLAIM", chance.choice([1, 5, 1000])] if chance.random() < 0.2 else []
    who = ["GROUP", chance.choice(["g", "h"]), f"c{chance.randrange(5)}"]
    return ["XREADGROUP", *who, "BLOCK", timeout_ms, *claim, "STREAMS", *keys, *[">"] * len(keys)]


def change(writer: Wire, chance: random.Random, ids: list[int]) -> None:
    key, other = chance.choice(KEYS), chance.choice(KEYS)
    doing = chance.random()
    if doing < 0.7:
        for _ in range(chance.choice([1, 1, 3])):
            writer.call("XADD", key, "*", "f", "v")
    elif doing < 0.8:
        writer.call("CLIENT", "UNBLOCK", chance.choice(ids), chance.choice(["TIMEOUT", "ERROR"]))
    elif doing < 0.85:
        writer.call("DEL", key)
    elif doing < 0.9:
        writer.call("RENAME", key, other)
    elif doing < 0.93:
        writer.call("SET", key, "text")
    elif doing < 0.96:
        writer.call("XGROUP", "DESTROY", key, "g")
    for each in KEYS:  # so that there is something to wait for again
        if writer.call("TYPE", each).value == b"string":
            writer.call("DEL", each)
        for group in ("g", "h"):
            writer.call("XGROUP", "CREATE", each, group, "$", "MKSTREAM")


@pytest.mark.parametrize("seed", range(6))
def test_the_records_of_who_waits_stay_true(server: embedded.EmbeddedServer, seed: int) -> None:
    chance = random.Random(seed)
    writer = Wire(server.port)
    change(writer, chance, [1])

    def join() -> tuple[Wire, int]:
        wire = Wire(server.port)
        return wire, wire.call("CLIENT", "ID").value

    clients = [join() for _ in range(CLIENTS)]
    asked = [0] * CLIENTS
    try:
        for _ in range(150):
            at = chance.randrange(CLIENTS)
            doing = chance.random()
            if doing < 0.5:
                clients[at][0].send(*wait_somehow(chance))
                asked[at] += 1
            elif doing < 0.55:
                clients[at][0].close()
                clients[at], asked[at] = join(), 0
            else:
                change(writer, chance, [client_id for _, client_id in clients])
            inside(server, lambda registry: registry.check_invariants())
        deadline = time.monotonic() + DEADLINE_S
        while any(asked):  # what is still waiting gets the null array, and after it comes what was asked next
            assert time.monotonic() < deadline
            for _, client_id in clients:
                writer.call("CLIENT", "UNBLOCK", client_id)
            inside(server, lambda registry: registry.check_invariants())
            for at, (wire, _) in enumerate(clients):
                if asked[at]:
                    wire.read()
                    asked[at] -= 1
        assert inside(server, len) == 0
        assert [wire.call("PING").value for wire, _ in clients] == [b"PONG"] * CLIENTS
    finally:
        for wire, _ in clients:
            wire.close()
        writer.close()
