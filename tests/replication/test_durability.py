"""min-replicas-durable: no reply leaves before replicas have on disk what it acknowledges.

The replica is played over a raw socket, so that the test decides what it confirms, and when.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import pytest
from support.replicas.durable import LOSS_FREE, REFUSED, UNKNOWN, attached, open_replica
from support.replicas.nodes import DEADLINE_S, Node, wait_in_sync, wait_until
from support.wire import Wire

pytestmark = pytest.mark.long

NewNode = Callable[..., Node]


def is_silent(wire: Wire) -> bool:
    """Whether there is no reply, after the server has done all that it was asked before."""
    return not wire.has_input()


@pytest.fixture
def primary(new_node: NewNode) -> Node:
    return new_node("streamd", **LOSS_FREE, min_replicas_durable_timeout="3600000", repl_ping_replica_period="3600")


def say_hello(wire: Wire, number: int, port: int, epoch: int = 1) -> None:
    """What a Sentinel publishes: the primary is at this port of 127.0.0.1 since an epoch."""
    message = f"127.0.0.1,{30000 + number},{number:040x},{epoch},service,127.0.0.1,{port},{epoch}"
    assert not wire.call("PUBLISH", "__sentinel__:hello", message).is_error


def turns(primary: Node) -> None:
    """Let the primary do what it has to: several requests, each in a turn of its own."""
    for _ in range(5):
        primary.must("PING")


def test_data_is_refused_until_a_replica_confirms(primary: Node) -> None:
    for request in (("XADD", "s", "*", "f", "v"), ("GET", "k"), ("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">")):
        assert primary.call(*request).value == REFUSED
    for request in (("PING",), ("INFO",), ("PUBLISH", "c", "m"), ("CONFIG", "GET", "dir"), ("SUBSCRIBE", "c")):
        with primary.connect() as wire:
            assert not wire.call(*request).is_error
    with attached(primary):
        assert primary.info()["durable_fenced"] == "0"
        assert not primary.call("GET", "k").is_error


def test_a_replica_without_an_append_only_file_confirms_nothing(primary: Node) -> None:
    with open_replica(primary) as replica:
        replica.ack(primary.offset)
        turns(primary)
        assert primary.call("GET", "k").value == REFUSED


def test_a_write_is_answered_when_its_offset_is_on_the_replicas_disk(primary: Node) -> None:
    with attached(primary) as replica, primary.connect() as wire:
        before = primary.offset
        wire.send("SET", "k", "v")
        wait_until(lambda: primary.offset > before, "the write in the stream")
        for offset in (before, before + 1):
            replica.confirm(offset)
            turns(primary)
            assert is_silent(wire)
        replica.send("REPLCONF", "ACK", primary.offset, "FACK", before)  # received, but not on disk
        turns(primary)
        assert is_silent(wire)
        replica.confirm()
        assert wire.read().value == b"OK"


def test_replicas_are_asked_at_once(primary: Node) -> None:
    with attached(primary) as replica, primary.connect() as wire:
        replica.read_stream(primary.offset)
        wire.send("SET", "k", "v")
        assert b"SET" in replica.read_exactly(1) + replica.read_exactly(100)
        replica.confirm()
        assert wire.read().value == b"OK"


def test_a_read_waits_for_what_it_has_seen(primary: Node) -> None:
    with attached(primary) as replica, primary.connect() as writer, primary.connect() as reader:
        before = primary.offset
        writer.send("SET", "k", "v")
        wait_until(lambda: primary.offset > before, "the write in the stream")
        reader.send("GET", "k")
        turns(primary)
        assert is_silent(reader)
        replica.confirm()
        assert (writer.read().value, reader.read().value) == (b"OK", b"v")
        assert reader.call("GET", "k").value == b"v", "nothing is outstanding"


def test_replies_stay_in_order(primary: Node) -> None:
    with attached(primary) as replica, primary.connect() as wire:
        wire.send("PING", "first")
        assert wire.read().value == b"first"
        wire.send_bytes(b"PING a\r\nSET k v\r\nPING b\r\nGET k\r\nECHO c\r\n")
        assert wire.read().value == b"a", "what precedes a held reply leaves"
        turns(primary)
        assert is_silent(wire)
        replica.confirm()
        assert [wire.read().value for _ in range(4)] == [b"OK", b"b", b"v", b"c"]


def test_pipelines_go_on_while_replies_wait(primary: Node) -> None:
    with attached(primary) as replica, primary.connect() as wire:
        offsets = []
        for number in range(3):
            before = primary.offset
            wire.send("SET", f"k{number}", "v")
            wait_until(lambda before=before: primary.offset > before, "the write")  # type: ignore[misc]
            offsets.append(primary.offset)
        turns(primary)
        assert is_silent(wire)
        replica.confirm(offsets[0])
        assert wire.read().value == b"OK"
        turns(primary)
        assert is_silent(wire)
        replica.confirm(offsets[2])
        assert [wire.read().value for _ in range(2)] == [b"OK", b"OK"]


def test_deliveries_and_transactions_are_held_as_one(primary: Node) -> None:
    with attached(primary) as replica, primary.connect() as wire, primary.connect() as reader:
        wire.send_bytes(b"XGROUP CREATE s g $ MKSTREAM\r\n")
        wait_until(lambda: primary.info()["durable_clients_waiting"] == "1", "the reply held")
        replica.confirm()
        assert wire.read().value == b"OK"
        reader.send("XREADGROUP", "GROUP", "g", "c", "BLOCK", 0, "STREAMS", "s", ">")
        wait_until(lambda: "blocked_clients:1" in primary.must("INFO", "clients").value.decode(), "a waiting reader")
        wire.send_bytes(b"MULTI\r\nXADD s 1-1 f v\r\nXLEN s\r\nEXEC\r\n")
        assert [wire.read().value for _ in range(3)] == [b"OK", b"QUEUED", b"QUEUED"]
        turns(primary)
        assert is_silent(wire)
        assert is_silent(reader)
        replica.confirm()
        assert wire.read().plain() == [b"1-1", 1]
        assert reader.read().plain() == [[b"s", [[b"1-1", [b"f", b"v"]]]]]


def test_what_is_not_confirmed_in_time_is_answered_with_errors(new_node: NewNode) -> None:
    primary = new_node("streamd", **LOSS_FREE, min_replicas_durable_timeout="300", repl_ping_replica_period="3600")
    with attached(primary) as replica, primary.connect() as wire:
        wire.send_bytes(b"SET k v\r\nPING\r\nMULTI\r\nGET k\r\nEXEC\r\n")
        assert [wire.read().value for _ in range(5)] == [UNKNOWN] * 5
        assert wire.call("SET", "k", "w").value == REFUSED
        assert wire.call("GET", "k").value == REFUSED
        assert wire.call("PING").value == b"PONG"
        info = primary.info()
        assert (info["durable_fenced"], info["durable_replies_refused"]) == ("1", "5")

        def is_open() -> bool:
            replica.confirm()
            return primary.info()["durable_fenced"] == "0"

        wait_until(is_open, "the end of the fence")
        assert wire.call("GET", "k").value == b"v", "it was executed"


def test_a_client_that_leaves_while_its_replies_wait_leaves_nothing_behind(primary: Node) -> None:
    with attached(primary) as replica:
        wire = primary.connect()
        wire.send("SET", "k", "v")
        wait_until(lambda: primary.info()["durable_clients_waiting"] == "1", "the reply held")
        wire.close()
        turns(primary)
        replica.confirm()
        wait_until(lambda: "connected_clients:1" in primary.must("INFO", "clients").value.decode(), "the client gone")
        assert primary.info()["durable_clients_waiting"] == "0"
        assert primary.call("GET", "k").value == b"v"


def test_two_replicas_when_two_are_wanted(new_node: NewNode) -> None:
    settings = {**LOSS_FREE, "min_replicas_durable": "2", "min_replicas_durable_timeout": "3600000"}
    primary = new_node("streamd", **settings, repl_ping_replica_period="3600")
    with open_replica(primary) as one, open_replica(primary) as other, primary.connect() as wire:

        def is_open() -> bool:
            one.confirm()
            other.confirm()
            return primary.info()["durable_fenced"] == "0"

        wait_until(is_open, "the end of the fence")
        wire.send("SET", "k", "v")
        wait_until(lambda: primary.info()["durable_clients_waiting"] == "1", "the reply held")
        one.confirm()
        turns(primary)
        assert is_silent(wire)
        other.confirm()
        assert wire.read().value == b"OK"


def test_nothing_leaves_while_most_sentinels_are_silent(new_node: NewNode) -> None:
    settings = {"min_replicas_durable_timeout": "3600000", "min_replicas_durable_sentinel_timeout": "400"}
    primary = new_node("streamd", **LOSS_FREE, **settings, repl_ping_replica_period="3600")
    with attached(primary) as replica, primary.connect() as wire, ExitStack() as stack:
        sentinels = [stack.enter_context(primary.connect()) for _ in range(3)]
        for number, sentinel in enumerate(sentinels):
            say_hello(sentinel, number, primary.port)
        wait_until(lambda: primary.info()["durable_sentinels_heard"] == "0", "their silence")
        wire.send("SET", "k", "v")
        wait_until(lambda: primary.info()["durable_clients_waiting"] == "1", "the reply held")
        replica.confirm()
        turns(primary)
        assert is_silent(wire)

        def is_answered() -> bool:
            for sentinel in sentinels[:2]:
                sentinel.call("PING")
            replica.confirm()
            return wire.has_input()

        wait_until(is_answered, "the reply, when two of three are heard")
        assert wire.read().value == b"OK"


def test_only_who_may_replace_a_server_counts_as_a_sentinel(new_node: NewNode) -> None:
    settings = {"min_replicas_durable_timeout": "3600000", "min_replicas_durable_sentinel_timeout": "100"}
    primary = new_node("streamd", **LOSS_FREE, **settings, repl_ping_replica_period="3600")
    primary.must(
        "ACL", "SETUSER", "worker", "on", ">pw", "~*", "&*", "+@all", "-@admin", "-@dangerous", "+client|setname"
    )
    with attached(primary) as replica, primary.connect() as wire:
        assert wire.call("AUTH", "worker", "pw").value == b"OK"
        for number in range(3):
            wire.call("CLIENT", "SETNAME", f"sentinel-0000000{number}-cmd")
            say_hello(wire, number, 1, epoch=9)
        wire.send("SET", "k", "v")
        wait_until(lambda: primary.info()["durable_clients_waiting"] == "1", "the reply held")
        replica.confirm()
        assert wire.read().value == b"OK"
        assert primary.info()["durable_sentinels_heard"] == "1"
        assert "replaced_by" not in primary.info()


def test_it_needs_an_append_only_file(new_node: NewNode) -> None:
    node = new_node("streamd")
    reply = node.call("CONFIG", "SET", "min-replicas-durable", "1")
    assert reply.is_error
    assert b"min-replicas-durable needs appendonly yes" in reply.value


def test_a_primary_that_becomes_a_replica_refuses_what_waits(primary: Node, new_node: NewNode) -> None:
    other = new_node("streamd")
    with attached(primary), primary.connect() as wire:
        wire.send("SET", "k", "v")
        wait_until(lambda: primary.info()["durable_clients_waiting"] == "1", "the reply held")
        primary.follow(other)
        assert wire.read().value == UNKNOWN
        wait_in_sync(other, primary)
        assert primary.call("GET", "k").value is None


@pytest.mark.real
@pytest.mark.parametrize("kind", ["streamd", "redis"])
def test_real_replicas_confirm(new_node: NewNode, kind: str) -> None:
    primary = new_node("streamd", **LOSS_FREE, min_replicas_durable_timeout="60000")
    replica = new_node(kind, appendonly="yes", appendfsync="always")
    replica.follow(primary)
    wait_until(lambda: not primary.call("SET", "k", "0").is_error, "a write that is confirmed", DEADLINE_S)
    with primary.connect() as wire:
        assert not any(reply.is_error for reply in wire.pipeline([["XADD", "s", "*", "f", str(n)] for n in range(500)]))
        primary.must("CONFIG", "SET", "min-replicas-durable-timeout", "1000")
        replica.freeze()
        assert wire.call("SET", "k", "1").value == UNKNOWN
        assert wire.call("SET", "k", "2").value == REFUSED
        replica.thaw()
        wait_until(lambda: not wire.call("SET", "k", "3").is_error, "writes that are confirmed again", DEADLINE_S)
    wait_in_sync(primary, replica)
    assert replica.call("XLEN", "s").value == 500


def test_an_idle_replica_confirms_what_it_got_in_the_snapshot(new_node: NewNode) -> None:
    """Also when it had counted further in a history of its own, with data that is larger."""
    settings = {"appendonly": "yes", "appendfsync": "always", "min_replicas_durable_timeout": "60000"}
    primary, replica = new_node("streamd", **settings), new_node("streamd", **settings)
    for number in range(100):
        replica.must("XADD", "old", "*", "n", number)
    primary.must("XADD", "s", "1-1", "f", "v")
    replica.follow(primary)
    wait_in_sync(primary, replica)
    primary.must("CONFIG", "SET", "min-replicas-durable", 1)
    wait_until(lambda: primary.info()["durable_fenced"] == "0", "the end of the fence")
    primary.must("XADD", "s", "2-1", "f", "v")


def test_nothing_is_confirmed_before_there_is_a_base(new_node: NewNode) -> None:
    """The new append-only file of a replica is worth nothing until the base is written that it continues."""
    primary = new_node("streamd", appendonly="yes", appendfsync="always")
    replica = new_node("streamd", appendonly="yes", appendfsync="always", rdb_key_save_delay="100000")
    for number in range(100):
        primary.must("SET", f"k{number}", number)
    replica.follow(primary)
    wait_in_sync(primary, replica)
    with primary.connect() as wire:
        wire.call("SET", "last", 1)
        assert replica.info("persistence")["aof_rewrite_in_progress"] == "1"
        assert wire.call("WAITAOF", 1, 1, 1).plain() == [1, 0]
        assert wire.call("WAITAOF", 1, 1, int(DEADLINE_S * 1000)).plain() == [1, 1]


def test_what_was_there_at_the_start_is_confirmed_too(primary: Node) -> None:
    with attached(primary) as replica, primary.connect() as wire:
        for _ in range(3):
            wire.send("SET", "k", "v")
            wait_until(lambda: primary.info()["durable_clients_waiting"] == "1", "the reply held")
            replica.confirm()
            assert wire.read().value == b"OK"
    primary.kill()
    primary.start()
    assert primary.offset > 0
    with open_replica(primary) as replica:
        replica.confirm(0)
        turns(primary)
        assert primary.call("GET", "k").value == REFUSED
        replica.confirm()
        wait_until(lambda: primary.call("GET", "k").value == b"v", "the end of the fence")
