"""Readers that wait for a limit of their group: who makes room for them, who is served, and what replicas have."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.replicas.nodes import Node, assert_same_state, wait_in_sync
from support.servers import Server, eventually
from support.wire import Wire

pytestmark = pytest.mark.long

StartServer = Callable[..., Server]
NewNode = Callable[..., Node]


def read(consumer: str, *words: object) -> tuple[object, ...]:
    return ("XREADGROUP", "GROUP", "g", consumer, *words, "STREAMS", "s", ">")


def fill(wire: Wire, *rule: object) -> None:
    """Entries 1-0 and 2-0, of which `a` has the first."""
    for number in (1, 2):
        wire.call("XADD", "s", f"{number}-0", "f", number)
    wire.call("XGROUP", "CREATE", "s", "g", "0")
    assert wire.call("STREAMD.GROUP", "SET", "s", "g", *rule).value == b"OK"
    assert wire.call(*read("a", "COUNT", 1)).plain()[0][1][0][0] == b"1-0"


def wait(server: Server, wire: Wire, reader: Wire, consumer: str) -> None:
    """Have a reader wait for an entry."""
    before = blocked(wire)
    reader.send(*read(consumer, "COUNT", 1, "BLOCK", 0))
    eventually(lambda: blocked(wire) == before + 1)


def blocked(wire: Wire) -> int:
    return int(wire.call("INFO", "clients").value.split(b"\nblocked_clients:")[1].split(b"\r")[0])


@pytest.mark.parametrize(
    "request_",
    [
        "XACK s g 1-0",
        "XACKDEL s g IDS 1 1-0",
        "XNACK s g FAIL IDS 1 1-0",
        "XNACK s g SILENT IDS 1 1-0",
        "XNACK s g FATAL IDS 1 1-0",
        "XGROUP DELCONSUMER s g a",
        "XDELEX s DELREF IDS 1 1-0",
        "XTRIM s MINID 2 DELREF",
    ],
)
@pytest.mark.parametrize("rule", ["MAXPENDING 1", "CONSUMERPENDING 1"])
def test_a_reader_that_waits_is_served_as_soon_as_there_is_room(
    new_streamd: StartServer, request_: str, rule: str
) -> None:
    server = new_streamd()
    with server.connect() as wire, server.connect() as reader:
        fill(wire, *rule.split(), "DEADLETTER", "dead", "BACKOFF", 60_000)
        wait(server, wire, reader, "a")
        wire.call(*request_.split())
        # In the turn of that request: the next request sees it.
        assert wire.call("XPENDING", "s", "g", "2-0", "2-0", 1).plain()[0][1] == b"a"
        assert reader.read().plain()[0][1][0][0] == b"2-0"


def test_an_entry_that_another_claims_makes_room(new_streamd: StartServer) -> None:
    server = new_streamd()
    with server.connect() as wire, server.connect() as reader:
        for claim in ("XCLAIM s g b 0 1-0", "XAUTOCLAIM s g b 0 0", "XREADGROUP GROUP g b CLAIM 0 COUNT 1 STREAMS s >"):
            wire.call("FLUSHALL")
            fill(wire, "CONSUMERPENDING", 1)
            wait(server, wire, reader, "a")
            wire.call(*claim.split())
            assert reader.read().plain()[0][1][0][0] == b"2-0", claim


def test_who_is_at_its_limit_holds_nobody_up(new_streamd: StartServer) -> None:
    server = new_streamd()
    with server.connect() as wire, server.connect() as first, server.connect() as second:
        fill(wire, "CONSUMERPENDING", 1)
        wire.call("XDEL", "s", "2-0")
        wait(server, wire, first, "a")
        wait(server, wire, second, "b")
        wire.call("XADD", "s", "3-0", "f", 3)
        assert second.read().plain()[0][1][0][0] == b"3-0"
        wire.call("XADD", "s", "4-0", "f", 4)
        wire.call("XACK", "s", "g", "1-0")
        assert first.read().plain()[0][1][0][0] == b"4-0"


@pytest.mark.real
def test_replicas_of_both_kinds_have_the_same(new_node: NewNode) -> None:
    primary = new_node("streamd", rdb_form="8.6")
    replicas = [new_node("redis"), new_node("streamd")]
    for replica in replicas:
        replica.follow(primary)
    wait_in_sync(primary, *replicas)
    with primary.connect() as wire:
        fill(wire, "MAXPENDING", 2, "CONSUMERPENDING", 1)
        for number in range(3, 20):
            wire.call("XADD", "s", f"{number}-0", "f", number)
        for number in range(1, 20):
            for consumer in "abc":
                wire.call(*read(consumer))
            wire.call("XACK", "s", "g", f"{number}-0")
        assert len(wire.call("XPENDING", "s", "g", "-", "+", 100).plain()) == 0
    assert_same_state(primary, *replicas)
