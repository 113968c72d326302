"""What ACL DRYRUN says of every command that both servers have, with random arguments, for users with all kinds of key rules.

Marked `real`. XREAD and XREADGROUP are left out: which of their words are keys is decided as since Redis 8.6.6.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from support.servers import Server
from support.wire import Reply, Wire, join_line

pytestmark = pytest.mark.real

SEED = 20_261_122
USERS = {
    "reader": "%R~k*",
    "writer": "%W~k*",
    "both": "~k*",
    "nothing": "",
    "split": "%R~k1 %W~k2",
    "selector": "%R~k1 (%W~k2 +@all)",
    "everything": "~*",
}
WORDS = ["k1", "k2", "k3", "x", "0", "1", "2", "GET", "STORE", "KEYS"]
NEWER = {"xread", "xreadgroup"}
SPOKEN = """
    set k1 v GET|set k1 v NX|set k1 v EX 1|getex k1|getex k1 EX 1|getex k1 PERSIST|copy k1 k2|copy k2 k1|rename k1 k2
    touch k1|touch k1 k2|touch x|exists k1 x|type k2|ttl k1|object encoding k2|xlen k1|xlen x|strlen k2|delex k1 IFEQ x
    msetex 2 k1 a k2 b|lcs k1 k2|migrate h 1 k1 0 1|migrate h 1 "" 0 1 KEYS k1 k2|restore k1 0 x|memory usage k1
"""
"""Requests whose form chance would hardly meet."""


def arities(wire: Wire) -> dict[str, int]:
    """The number of arguments of each command by its full name, as COMMAND tells it."""

    def walk(commands: Iterable[Reply]) -> Iterator[tuple[str, int]]:
        for command in commands:
            fields: tuple[Any, ...] = command.value
            yield fields[0].value.decode(), fields[1].value
            yield from walk(fields[9].value)

    return dict(walk(wire.call("COMMAND").value))


def requests_of(name: str, arity: int, chance: random.Random, count: int) -> Iterator[list[str]]:
    words = name.split("|")
    least = abs(arity) - len(words)
    for _ in range(count):
        more = chance.randrange(4) if arity < 0 else 0
        yield [*words, *chance.choices(WORDS, k=least + more)]
    yield [*words, *["k1"] * least]
    yield [*words, *["x"] * least]


@pytest.mark.parametrize("count", [6, pytest.param(100, marks=pytest.mark.slow)])
def test_every_command_is_allowed_to_whom_redis_allows_it(
    streamd_server: Server, redis_server: Server, count: int
) -> None:
    chance = random.Random(SEED)
    with streamd_server.connect() as ours, redis_server.connect() as theirs:
        mine, its = arities(ours), arities(theirs)
        requests = [part.split() for line in SPOKEN.split("\n") for part in line.split("|") if part.strip()]
        for name in sorted((mine.keys() & its.keys()) - NEWER):
            requests += requests_of(name, its[name], chance, count)
        try:
            for user, rules in USERS.items():
                asked = [("ACL", "DRYRUN", user, *request) for request in requests]
                said = []
                for wire in (ours, theirs):
                    reply = wire.line(f"ACL SETUSER {user} reset on nopass +@all {rules}")
                    assert reply == Reply("+", b"OK"), reply
                    said.append(
                        [reply for at in range(0, len(asked), 200) for reply in wire.pipeline(asked[at : at + 200])]
                    )
                for request, one, other in zip(asked, *said, strict=True):
                    assert one == other, join_line([word.encode() for word in request])
        finally:
            for wire in (ours, theirs):
                wire.call("ACL", "DELUSER", *USERS)
