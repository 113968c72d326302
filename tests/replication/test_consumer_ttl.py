"""Consumers that left: who is removed, what becomes of what they had, and on which server."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.replicas.nodes import Node, assert_same_state, wait_in_sync
from support.servers import Server, eventually
from support.wire import Wire

pytestmark = pytest.mark.long

StartServer = Callable[..., Server]
NewNode = Callable[..., Node]

TTL = 1000


def fill(wire: Wire, *rule: object) -> None:
    """Entries 1-0 to 4-0, of which `gone` has the first two."""
    wire.call("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    for number in range(1, 5):
        wire.call("XADD", "s", f"{number}-0", "f", number)
    assert wire.call("STREAMD.GROUP", "SET", "s", "g", *rule).value == b"OK"
    wire.call("XREADGROUP", "GROUP", "g", "gone", "COUNT", 2, "STREAMS", "s", ">")


def consumers(wire: Wire, key: str = "s") -> set[bytes]:
    return {row[1] for row in wire.call("XINFO", "CONSUMERS", key, "g").plain()}


def pending(wire: Wire) -> list[list[object]]:
    """ID, consumer and delivery count of what is pending."""
    return [[row[0], row[1], row[3]] for row in wire.call("XPENDING", "s", "g", "-", "+", 1000).plain()]


def test_who_has_nothing_goes_and_who_waits_or_comes_back_stays(new_streamd: StartServer) -> None:
    server = new_streamd()
    with server.connect() as wire, server.connect() as first, server.connect() as second:
        wire.call("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
        for name in ("gone", "busy"):
            wire.call("XGROUP", "CREATECONSUMER", "s", "g", name)
        first.send("XREADGROUP", "GROUP", "g", "first", "BLOCK", 0, "STREAMS", "s", ">")
        second.send("XREADGROUP", "BLOCK", 0, "GROUP", "g", "second", "CLAIM", 1, "STREAMS", "t", "s", ">", ">")
        assert second.read().value.startswith(b"NOGROUP")
        wire.call("XGROUP", "CREATE", "t", "g", "$", "MKSTREAM")
        second.send("XREADGROUP", "BLOCK", 0, "GROUP", "g", "second", "CLAIM", 1, "STREAMS", "t", "s", ">", ">")
        eventually(lambda: b"blocked_clients:2" in wire.call("INFO", "clients").value)
        wire.call("STREAMD.GROUP", "SET", "s", "g", "CONSUMERTTL", TTL)

        def only_gone_is_gone() -> bool:
            wire.call("XREADGROUP", "GROUP", "g", "busy", "STREAMS", "s", ">")
            return b"gone" not in consumers(wire)

        eventually(only_gone_is_gone)
        assert consumers(wire) == {b"first", b"second", b"busy"}
        assert consumers(wire, "t") == {b"second"}
        wire.call("XADD", "s", "1-0", "f", 1)
        assert first.read().plain()[0][1][0][0] == b"1-0"
        assert b"consumers_removed:1\r\n" in wire.call("INFO", "delivery").value


def test_who_has_nothing_goes_while_others_wait_without_the_group(new_streamd: StartServer) -> None:
    with (server := new_streamd()).connect() as wire, server.connect() as reader:
        wire.call("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
        wire.call("XGROUP", "CREATECONSUMER", "s", "g", "gone")
        reader.send("XREAD", "BLOCK", 0, "STREAMS", "s", "$")
        eventually(lambda: b"blocked_clients:1" in wire.call("INFO", "clients").value)
        wire.call("STREAMD.GROUP", "SET", "s", "g", "CONSUMERTTL", TTL)
        eventually(lambda: not consumers(wire))


def test_what_it_had_is_given_back_with_its_delivery_count_and_wakes_who_claims(new_streamd: StartServer) -> None:
    server = new_streamd(appendonly="yes")
    with server.connect() as wire, server.connect() as reader:
        fill(wire, "CONSUMERTTL", TTL)
        wire.call("XCLAIM", "s", "g", "gone", 0, "2-0")
        reader.send("XREADGROUP", "GROUP", "g", "a", "COUNT", 3, "BLOCK", 0, "CLAIM", 10**9, "STREAMS", "s", ">")
        assert [entry[0] for entry in reader.read().plain()[0][1]] == [b"3-0", b"4-0"]
        reader.send("XREADGROUP", "GROUP", "g", "a", "COUNT", 3, "BLOCK", 0, "CLAIM", 10**9, "STREAMS", "s", ">")
        assert [[entry[0], entry[3]] for entry in reader.read().plain()[0][1]] == [[b"1-0", 1], [b"2-0", 2]]
        assert consumers(wire) == {b"a"}
        assert pending(wire)[:2] == [[b"1-0", b"a", 2], [b"2-0", b"a", 3]]
        server.restart()
    with server.connect() as wire:
        assert consumers(wire) == {b"a"}
        assert len(pending(wire)) == 4


def test_an_entry_whose_last_delivery_this_was_is_a_dead_letter(new_streamd: StartServer) -> None:
    with new_streamd().connect() as wire:
        fill(wire, "CONSUMERTTL", TTL, "MAXDELIVERIES", 2, "DEADLETTER", "dead")
        wire.call("XCLAIM", "s", "g", "gone", 0, "2-0")
        eventually(lambda: b"gone" not in consumers(wire))
        assert pending(wire) == [[b"1-0", b"", 1]]
        letter = wire.call("XRANGE", "dead", "-", "+").plain()[0][1]
        assert letter[letter.index(b"dlq.id") + 1] == b"2-0"
        assert letter[letter.index(b"dlq.consumer") + 1] == b"gone"


def test_what_is_held_back_keeps_its_consumer_until_that_is_over(new_streamd: StartServer) -> None:
    with new_streamd().connect() as wire:
        fill(wire, "CONSUMERTTL", TTL, "BACKOFF", 3_600_000)
        wire.call("XCLAIM", "s", "g", "gone", 0, "2-0", "RETRYCOUNT", 0, "JUSTID")
        eventually(lambda: pending(wire) == [[b"1-0", b"gone", 1], [b"2-0", b"", 0]])
        assert consumers(wire) == {b"gone"}
        wire.call("STREAMD.GROUP", "UNSET", "s", "g", "BACKOFF")
        eventually(lambda: not consumers(wire))


def test_more_than_a_slice_is_given_back_whole(new_streamd: StartServer) -> None:
    with new_streamd().connect() as wire:
        wire.call("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
        for number in range(1, 1002):
            wire.send("XADD", "s", f"{number}-0", "f", number)
        for _ in range(1001):
            wire.read()
        wire.call("XREADGROUP", "GROUP", "g", "gone", "STREAMS", "s", ">")
        wire.call("STREAMD.GROUP", "SET", "s", "g", "CONSUMERTTL", TTL)
        eventually(lambda: not consumers(wire))
        assert pending(wire) == [[b"%d-0" % number, b"", 1] for number in range(1, 1001)]


@pytest.mark.real
def test_only_the_primary_removes_and_replicas_of_both_kinds_have_the_same(new_node: NewNode) -> None:
    primary = new_node("streamd", rdb_form="8.6")
    replicas = [new_node("redis"), new_node("streamd")]
    for replica in replicas:
        replica.follow(primary)
    wait_in_sync(primary, *replicas)
    with primary.connect() as wire, replicas[1].connect() as other:
        wire.call("CLIENT", "PAUSE", 10**9, "WRITE")
        wire.call("CLIENT", "UNPAUSE")
        fill(wire, "CONSUMERTTL", TTL)
        wire.call("CLIENT", "PAUSE", 10**9, "WRITE")
        wait_in_sync(primary, *replicas)
        # Seconds pass: both would act if they might.
        eventually(lambda: other.call("XINFO", "CONSUMERS", "s", "g").plain()[0][5] > 3 * TTL)
        assert consumers(wire) == consumers(other) == {b"gone"}
        wire.call("CLIENT", "UNPAUSE")
        eventually(lambda: not consumers(wire))
        wait_in_sync(primary, *replicas)
        # Redis has a consumer without a name for what nobody has.
        assert not consumers(other)
        assert pending(other) == pending(wire) == [[b"1-0", b"", 1], [b"2-0", b"", 1]]
    with replicas[0].connect() as redis:
        assert consumers(redis) == {b""}
        assert pending(redis) == [[b"1-0", b"", 1], [b"2-0", b"", 1]]
    assert_same_state(primary, replicas[1])


def test_a_server_that_has_started_could_not_have_seen_anybody_before(new_node: NewNode) -> None:
    node = new_node("streamd", appendonly="yes")
    with node.connect() as wire:
        fill(wire, "CONSUMERTTL", 3_600_000, "ACKWAIT", 1, "MAXDELIVERIES", 1, "DEADLETTER", "dead")
    node.stop()
    parts = sorted((node.folder / "appendonlydir").glob("*.incr.aof"))
    with parts[-1].open("ab") as file:
        words = [b"XGROUP", b"CREATECONSUMER", b"s", b"g", b"old"]
        file.write(b"*5\r\n" + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))
        file.write(b"#STREAMD:0 consumer 1000 1000\r\n")
    node.start()
    with node.connect() as wire:
        for id in (b"1-0", b"3-0"):
            # Each is moved by another second of the server.
            eventually(lambda id=id: id in str(wire.call("XRANGE", "dead", "-", "+").plain()).encode())
            wire.call("XREADGROUP", "GROUP", "g", "gone", "COUNT", 1, "STREAMS", "s", ">")
        assert wire.call("XINFO", "CONSUMERS", "s", "g").plain()[1][5] > 10**9
        assert consumers(wire) == {b"gone", b"old"}
