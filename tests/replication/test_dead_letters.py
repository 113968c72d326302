"""Dead letters of running servers: by themselves, after kills, on replicas of both kinds, and in files that Redis reads."""

from __future__ import annotations

import random
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

ENTRIES = 300
RULES = key_of_rules(b"s")


def set_rule(wire: Wire, *options: object, limit: int = 1) -> None:
    request = ("STREAMD.GROUP", "SET", "s", "g", "MAXDELIVERIES", limit, "DEADLETTER", "dead", *options)
    assert wire.call(*request) == Reply("+", b"OK")


def fill(wire: Wire, count: int = 3) -> None:
    """Entries 1-0 and so on in `s`, all delivered once to `c`."""
    for number in range(1, count + 1):
        wire.call("XADD", "s", f"{number}-0", "f", number)
    wire.call("XGROUP", "CREATE", "s", "g", "0")
    wire.call("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">")


def ids_of_dead(wire: Wire) -> list[bytes]:
    entries = wire.call("XRANGE", "dead", "-", "+").plain()
    return [dict(zip(fields[::2], fields[1::2], strict=True))[b"dlq.id"] for _, fields in entries]


def ids_pending(wire: Wire) -> list[bytes]:
    return [row[0] for row in wire.call("XPENDING", "s", "g", "-", "+", 100_000).plain()]


# --- By itself ---------------------------------------------------------------------------------------------------------


def test_what_nobody_claims_is_moved_and_a_waiting_reader_gets_it(new_streamd: StartServer) -> None:
    server = new_streamd()
    with server.connect() as wire, server.connect() as reader:
        fill(wire)
        wire.call("XACK", "s", "g", "2-0")
        reader.send("XREAD", "BLOCK", 0, "STREAMS", "dead", "$")
        set_rule(wire, "ACKWAIT", 50)
        assert reader.read().plain()[0][1]
        eventually(lambda: ids_of_dead(wire) == [b"1-0", b"3-0"])
        assert ids_pending(wire) == []
        assert b"dead_letters_moved:2\r\n" in wire.call("INFO", "delivery").value


def test_what_could_not_be_moved_is_tried_again(new_streamd: StartServer) -> None:
    with new_streamd().connect() as wire:
        fill(wire)
        set_rule(wire, limit=5)
        wire.call("SET", "dead", "no stream")
        assert wire.call("XNACK", "s", "g", "FATAL", "IDS", 1, "1-0").value == 1
        assert b"dead_letters_not_moved:1\r\n" in wire.call("INFO", "delivery").value
        assert wire.call("XCLAIM", "s", "g", "d", 0, "2-0").plain()[0][0] == b"2-0"
        wire.call("DEL", "dead")
        eventually(lambda: ids_of_dead(wire) == [b"1-0"])
        assert b"dead_letters_not_moved:0\r\n" in wire.call("INFO", "delivery").value


def test_memory_that_is_used_up_keeps_entries_pending(new_streamd: StartServer) -> None:
    with new_streamd().connect() as wire:
        fill(wire)
        set_rule(wire, limit=5)
        wire.call("CONFIG", "SET", "maxmemory", 1)
        assert wire.call("XNACK", "s", "g", "FATAL", "IDS", 1, "1-0").value == 1
        shown = wire.call("STREAMD.GROUP", "GET", "s", "g").plain()
        assert shown[shown.index(b"last-error") + 1].startswith(b"OOM")
        wire.call("CONFIG", "SET", "maxmemory", 0)
        eventually(lambda: ids_of_dead(wire) == [b"1-0"])


def test_who_may_not_write_dead_letters_may_not_set_the_rule(new_streamd: StartServer) -> None:
    server = new_streamd()
    with server.connect() as wire, server.connect() as other:
        wire.call("ACL", "SETUSER", "deployer", "on", "nopass", "+@all", "~s", "%R~dead")
        assert other.call("AUTH", "deployer", "any") == Reply("+", b"OK")
        request = ("STREAMD.GROUP", "SET", "s", "g", "DEADLETTER", "dead")
        assert other.call(*request).value.startswith(b"NOPERM")
        wire.call("ACL", "SETUSER", "deployer", "%RW~dead")
        assert other.call(*request) == Reply("+", b"OK")


def test_in_a_cluster_both_keys_are_in_one_slot(new_streamd: StartServer) -> None:
    with new_streamd(cluster_enabled="yes").connect() as wire:
        wire.call("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        eventually(lambda: b"cluster_state:ok" in wire.call("CLUSTER", "INFO").value)
        refused = wire.call("STREAMD.GROUP", "SET", "a}{s}", "g", "DEADLETTER", "dead").value
        assert refused.startswith(b"CROSSSLOT")
        assert wire.call("STREAMD.GROUP", "SET", "a}{s}", "g", "DEADLETTER", "{s}dead") == Reply("+", b"OK")
        assert wire.call("GET", key_of_rules(b"a}{s}")).value == b"GROUP g DEADLETTER {s}dead"


def test_a_rule_that_was_written_by_hand_reaches_no_other_slot(new_streamd: StartServer) -> None:
    with new_streamd(cluster_enabled="yes").connect() as wire:
        wire.call("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        eventually(lambda: b"cluster_state:ok" in wire.call("CLUSTER", "INFO").value)
        wire.call("XADD", "s", "1-1", "f", "v")
        wire.call("XGROUP", "CREATE", "s", "g", "0")
        wire.call("SET", key_of_rules(b"s"), "GROUP g DEADLETTER dead")
        wire.call("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">")
        assert wire.call("XNACK", "s", "g", "FATAL", "IDS", 1, "1-1") == Reply(":", 1)
        assert wire.call("EXISTS", "dead").value == 0
        assert wire.call("XPENDING", "s", "g").value[0].value == 1
        error = b"CROSSSLOT The dead-letter stream is in another slot"
        assert error in [each.value for each in wire.call("STREAMD.GROUP", "GET", "s", "g").value]


# --- After kills -------------------------------------------------------------------------------------------------------


def work(server: Server, seed: int, stop: threading.Event) -> None:
    """Read, fail and claim until the server is gone."""
    chance = random.Random(seed)
    with suppress(ConnectionClosed, OSError), server.connect() as wire:
        while not stop.is_set():
            reply = wire.call(
                "XREADGROUP", "GROUP", "g", f"c{seed}", "COUNT", 3, "CLAIM", 0, "STREAMS", "s", ">"
            ).plain()
            for entry in reply[0][1] if reply else ():
                mode = chance.choice(["FAIL", "FAIL", "FATAL", "SILENT"])
                wire.call("XNACK", "s", "g", mode, "IDS", 1, entry[0])


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_entry_is_lost_or_moved_twice_when_the_server_is_killed(new_streamd: StartServer, seed: int) -> None:
    server = new_streamd(appendonly="yes", appendfsync="always")
    with server.connect() as wire:
        wire.call("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
        set_rule(wire, "BACKOFF", 1, limit=2)
        for number in range(1, ENTRIES + 1):
            wire.call("XADD", "s", f"{number}-0", "f", number)
    for kill in range(3):
        stop = threading.Event()
        workers = [threading.Thread(target=work, args=(server, 10 * kill + each, stop)) for each in range(2)]
        for worker in workers:
            worker.start()
        with server.connect() as wire:
            some = (kill + 1) * ENTRIES // 5 + random.Random(seed).randrange(20)
            eventually(lambda: wire.call("XLEN", "dead").value >= some)  # noqa: B023
        server.kill()
        stop.set()
        for worker in workers:
            worker.join()
        server.restart()
        with server.connect() as wire:
            dead, pending = ids_of_dead(wire), ids_pending(wire)
            undelivered = wire.call("STREAMD.LAG", "s", "g").plain()[1]
            assert len(dead) == len(set(dead))
            assert not set(dead) & set(pending)
            assert len(dead) + len(pending) + undelivered == ENTRIES
            assert wire.call("GET", RULES).value == b"GROUP g DEADLETTER dead MAXDELIVERIES 2 BACKOFF 1"


# --- Replicas and files ------------------------------------------------------------------------------------------------


@pytest.mark.real
@pytest.mark.parametrize("form", ["8.6", "8.8"])
def test_replicas_of_both_kinds_have_the_same_state(new_node: NewNode, form: str) -> None:
    """With form 8.8 effects contain XNACK, which Redis 8.6 does not know: then only streamd follows."""
    primary = new_node("streamd", rdb_form=form)
    replicas = [new_node(kind) for kind in (("streamd", "redis") if form == "8.6" else ("streamd",))]
    for replica in replicas:
        replica.follow(primary)
    chance = random.Random(form)
    with primary.connect() as wire:
        wire.call("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
        set_rule(wire, "ACKWAIT", 100_000, "BACKOFF", 1, limit=2)
        for number in range(1, 400):
            any_id = f"{chance.randint(1, number)}-0"
            for request in chance.sample([
                ("XADD", "s", f"{number}-0", "f", number),
                ("XREADGROUP", "GROUP", "g", "a", "COUNT", 2, "STREAMS", "s", ">"),
                ("XREADGROUP", "GROUP", "g", "b", "COUNT", 2, "CLAIM", 0, "STREAMS", "s", ">"),
                ("XNACK", "s", "g", chance.choice(["FAIL", "SILENT", "FATAL"]), "IDS", 1, any_id),
                ("XCLAIM", "s", "g", "a", 0, any_id),
                ("XAUTOCLAIM", "s", "g", "b", 0, any_id, "COUNT", 2),
                ("XDEL", "s", any_id),
                ("STREAMD.REDRIVE", "s", "g", "dead", "COUNT", 1, *chance.choice([(), ("TO", "again")])),
            ], 3):  # fmt: skip
                wire.call(*request)
        # To a Redis, an entry without a consumer belongs to one without a name: none is left.
        wire.call("XAUTOCLAIM", "s", "g", "b", 0, "0", "COUNT", 1000)
        assert wire.call("XLEN", "dead").value > 5
        assert wire.call("XLEN", "again").value > 5
    assert_same_state(primary, *replicas)


def test_a_replica_moves_nothing_until_it_is_promoted(new_node: NewNode) -> None:
    primary, replica = new_node("streamd"), new_node("streamd")
    replica.follow(primary)
    with primary.connect() as wire, replica.connect() as other:
        fill(wire)
        wait_in_sync(primary, replica)
        wire.call("CLIENT", "PAUSE", 600_000, "WRITE")  # the primary moves nothing by itself during a pause, either
        other.call("CONFIG", "SET", "replica-read-only", "no")
        set_rule(other, "ACKWAIT", 1)
        # A key of the replica's own, which it removes by itself: its clock has struck at least twice by then.
        other.call("SET", "tick", "", "PX", 2500)
        eventually(lambda: other.call("INFO", "stats").value.count(b"expired_keys:1\r\n") == 1)
        assert len(ids_pending(other)) == 3
        replica.follow(None)
        eventually(lambda: ids_of_dead(other) == [b"1-0", b"2-0", b"3-0"])


def test_back_off_goes_on_after_a_fail_over(new_node: NewNode) -> None:
    primary, replica = new_node("streamd"), new_node("streamd")
    replica.follow(primary)
    with primary.connect() as wire, replica.connect() as other:
        fill(wire)
        set_rule(wire, "BACKOFF", 3000, limit=5)
        wire.call("XNACK", "s", "g", "FAIL", "IDS", 1, "1-0")
        wait_in_sync(primary, replica)
        replica.follow(None)
        failed_ms = int(wire.call("XPENDING", "s", "g", "-", "+", 1, "c").plain()[0][2])
        assert failed_ms < 3000, "the machine is too slow for this test"
        assert other.call("XCLAIM", "s", "g", "d", 0, "1-0").plain() == []
        eventually(lambda: other.call("XCLAIM", "s", "g", "d", 0, "1-0").plain() != [])
        assert int(wire.call("XPENDING", "s", "g", "-", "+", 1, "c").plain()[0][2]) >= 3000


@pytest.mark.real
def test_redis_reads_the_file_with_all_entries(new_streamd: StartServer) -> None:
    server = new_streamd(appendonly="yes", appendfsync="always")
    with server.connect() as wire:
        fill(wire)
        set_rule(wire)
        wire.call("XNACK", "s", "g", "FAIL", "IDS", 1, "1-0")
        set_rule(wire, "BACKOFF", 1000, limit=5)
        wire.call("XNACK", "s", "g", "FAIL", "IDS", 1, "2-0")
    server.kill()
    oracle = find_oracle()
    assert oracle is not None
    redis = RealRedis(oracle, server.folder)
    try:
        assert redis.started, redis.log
        with Wire(redis.port) as wire:
            assert wire.call("GET", RULES).value == b"GROUP g DEADLETTER dead MAXDELIVERIES 5 BACKOFF 1000"
            assert (ids_of_dead(wire), ids_pending(wire)) == ([b"1-0"], [b"2-0", b"3-0"])
            assert wire.call("XPENDING", "s", "g", "2-0", "2-0", 1).plain()[0][1] == b"c"
            assert wire.call("XLEN", "s").value == 3
    finally:
        redis.process.kill()
        redis.process.wait()
