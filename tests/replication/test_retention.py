"""Retention of running servers: by itself, after kills, on replicas of both kinds, and in files that Redis reads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

import pytest
from support.files.real_files import RealRedis
from support.replicas.nodes import Node, assert_same_state, wait_in_sync
from support.servers import Server, eventually, find_oracle
from support.wire import ConnectionClosed, Reply, Wire

from streamd.delivery.rules import key_of_rules

pytestmark = pytest.mark.long

StartServer = Callable[..., Server]
NewNode = Callable[..., Node]

NODE = 100
"""Entries of a full node (stream-node-max-entries)."""


def set_rule(wire: Wire, options: str, key: str = "s") -> None:
    assert wire.call("STREAMD.STREAM", "SET", key, *options.split()) == Reply("+", b"OK")


def append(wire: Wire, first: int, last: int) -> None:
    """Entries `first`-0 to `last`-0, in one pipeline."""
    for number in range(first, last + 1):
        wire.send("XADD", "s", f"{number}-0", "f", number)
    for _ in range(first, last + 1):
        assert wire.read().kind == "$"


def numbers(wire: Wire) -> list[int]:
    return [int(id.split(b"-")[0]) for id, _ in wire.call("XRANGE", "s", "-", "+").plain()]


def test_a_stream_is_kept_at_its_length(new_streamd: StartServer) -> None:
    with new_streamd().connect() as wire:
        set_rule(wire, "RETAIN LENGTH 150")
        for start in range(1, 5001, 500):
            append(wire, start, start + 499)
            eventually(lambda: wire.call("XLEN", "s").value < 150 + NODE)
        eventually(lambda: numbers(wire) == list(range(4851, 5001)))
        assert b"trimmed_by_length:entries=4850,bytes=" in wire.call("INFO", "delivery").value
        shown = wire.call("STREAMD.STREAM", "GET", "s").plain()
        assert shown[:5] == [b"retain", 1, b"length", 150, b"trimmed-entries"]
        set_rule(wire, "RETAIN LENGTH 100")
        eventually(lambda: numbers(wire) == list(range(4901, 5001)))
        assert wire.call("STREAMD.STREAM", "UNSET", "s") == Reply("+", b"OK")
        append(wire, 5001, 5300)
        wire.call("SET", "tick", "", "PX", 2500)  # the clock of the server has struck at least twice by then
        eventually(lambda: wire.call("INFO", "stats").value.count(b"expired_keys:1\r\n") == 1)
        assert wire.call("XLEN", "s").value == 400


def test_rules_are_plain_strings_and_follow_what_happens_to_them(new_streamd: StartServer) -> None:
    with new_streamd().connect() as wire:
        append(wire, 1, 1000)
        wire.call("SET", "elsewhere", "STREAM RETAIN LENGTH 500")
        wire.call("RENAME", "elsewhere", key_of_rules(b"s"))
        eventually(lambda: wire.call("XLEN", "s").value == 500)
        wire.call("SETRANGE", key_of_rules(b"s"), len("STREAM RETAIN LENGTH "), "300")
        eventually(lambda: wire.call("XLEN", "s").value == 300)
        wire.call("SWAPDB", 0, 1)
        wire.call("SELECT", 1)
        set_rule(wire, "RETAIN LENGTH 100")
        eventually(lambda: wire.call("XLEN", "s").value == 100)
        wire.call("FLUSHALL")
        append(wire, 1, 200)
        assert wire.call("STREAMD.STREAM", "GET", "s").plain() == []
        set_rule(wire, "RETAIN LENGTH 40")
        eventually(lambda: wire.call("XLEN", "s").value == 40)


def test_work_queues_lose_nothing_that_is_not_acknowledged(new_streamd: StartServer) -> None:
    with new_streamd().connect() as wire:
        set_rule(wire, "RETAIN ACKED")
        append(wire, 1, 1000)
        wire.call("XGROUP", "CREATE", "s", "g", "0")
        for _ in range(10):
            entries = wire.call("XREADGROUP", "GROUP", "g", "c", "COUNT", 60, "STREAMS", "s", ">").plain()[0][1]
            wire.call("XACK", "s", "g", *(id for id, _ in entries[:-1]))
        eventually(lambda: numbers(wire)[0] == 60)
        assert numbers(wire) == list(range(60, 1001))
        wire.call("XACK", "s", "g", *(f"{number}-0" for number in range(60, 600, 60)))
        eventually(lambda: numbers(wire) == list(range(600, 1001)))


def added(wire: Wire) -> int:
    """Entries ever added."""
    fields = wire.call("XINFO", "STREAM", "s").plain()
    return int(fields[fields.index(b"entries-added") + 1])


def fill(server: Server, stop: threading.Event) -> None:
    """Append until the server is gone."""
    with suppress(ConnectionClosed, OSError), server.connect() as wire:
        while not stop.is_set():
            for _ in range(100):
                wire.send("XADD", "s", "*", "f", "v")
            for _ in range(100):
                wire.read()


def test_a_killed_server_goes_on_trimming(new_streamd: StartServer) -> None:
    server = new_streamd(appendonly="yes", appendfsync="always")
    with server.connect() as wire:
        set_rule(wire, "RETAIN LENGTH 300 DELREF")
        wire.call("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    for _ in range(3):
        stop = threading.Event()
        producer = threading.Thread(target=fill, args=(server, stop))
        producer.start()
        with server.connect() as wire:
            some = added(wire) + 3000
            eventually(lambda: added(wire) > some)  # noqa: B023
            wire.call("XREADGROUP", "GROUP", "g", "c", "COUNT", 50, "STREAMS", "s", ">")
        server.kill()
        stop.set()
        producer.join()
        server.restart()
        with server.connect() as wire:
            eventually(lambda: wire.call("XLEN", "s").value == 300)
            first = numbers(wire)[0]
            pending = wire.call("XPENDING", "s", "g", "-", "+", 1000).plain()
            assert all(int(row[0].split(b"-")[0]) >= first for row in pending)


@pytest.mark.real
def test_replicas_of_both_kinds_have_the_same_state(new_node: NewNode) -> None:
    primary = new_node("streamd")
    replicas = [new_node(kind) for kind in ("streamd", "redis")]
    for replica in replicas:
        replica.follow(primary)
    with primary.connect() as wire:
        wire.call("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
        for number, rule in enumerate(
            ["LENGTH 250", "LENGTH 200 DELREF", "BYTES 3000", "LENGTH 120 ACKED", "ACKED DELREF", "AGE 1"]
        ):
            before = wire.call("INFO", "delivery").value
            set_rule(wire, f"RETAIN {rule}")
            append(wire, 1000 * number + 1, 1000 * number + 600)
            reply = wire.call("XREADGROUP", "GROUP", "g", "c", "COUNT", 300, "STREAMS", "s", ">").plain()
            if reply is not None:  # None: AGE has been faster
                entries = reply[0][1]
                wire.call("XACK", "s", "g", *(id for id, _ in entries[:-5]))
                wire.call("XDEL", "s", *(id for id, _ in entries[::7]))
                if "ACKED" in rule:
                    wire.call(
                        "XACK", "s", "g", *(row[0] for row in wire.call("XPENDING", "s", "g", "-", "+", 9999).plain())
                    )
            eventually(lambda: wire.call("INFO", "delivery").value != before)  # noqa: B023
        eventually(lambda: wire.call("XLEN", "s").value == 0)
    assert_same_state(primary, *replicas)


def test_a_replica_trims_nothing_until_it_is_promoted(new_node: NewNode) -> None:
    primary, replica = new_node("streamd"), new_node("streamd")
    replica.follow(primary)
    with primary.connect() as wire, replica.connect() as other:
        append(wire, 1, 500)
        wait_in_sync(primary, replica)
        wire.call("CLIENT", "PAUSE", 600_000, "WRITE")  # the primary trims nothing by itself during a pause, either
        other.call("CONFIG", "SET", "replica-read-only", "no")
        set_rule(other, "RETAIN LENGTH 10")
        other.call("SET", "tick", "", "PX", 2500)  # removed by the clock of the replica
        eventually(lambda: other.call("INFO", "stats").value.count(b"expired_keys:1\r\n") == 1)
        assert other.call("XLEN", "s").value == 500
        replica.follow(None)
        eventually(lambda: other.call("XLEN", "s").value == 10)
        assert wire.call("XLEN", "s").value == 500


@pytest.mark.real
def test_redis_reads_the_file(new_streamd: StartServer) -> None:
    server = new_streamd(appendonly="yes", appendfsync="always")
    with server.connect() as wire:
        set_rule(wire, "RETAIN LENGTH 40 DELREF")
        append(wire, 1, 1000)
        eventually(lambda: wire.call("XLEN", "s").value == 40)
    server.kill()
    oracle = find_oracle()
    assert oracle is not None
    redis = RealRedis(oracle, server.folder)
    try:
        assert redis.started, redis.log
        with Wire(redis.port) as wire:
            assert wire.call("GET", key_of_rules(b"s")).value == b"STREAM RETAIN LENGTH 40 DELREF"
            assert numbers(wire) == list(range(961, 1001))
    finally:
        redis.process.kill()
        redis.process.wait()
