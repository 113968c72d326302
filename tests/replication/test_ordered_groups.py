"""Groups that are ordered by key on running servers: readers that wait, scripts, restarts, kills, replicas, and files that Redis reads."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress

import pytest
from support.files.real_files import RealRedis
from support.replicas.nodes import Node, assert_same_state, wait_in_sync
from support.servers import Server, eventually, find_oracle
from support.wire import ConnectionClosed, Wire

pytestmark = pytest.mark.long

StartServer = Callable[..., Server]
NewNode = Callable[..., Node]


def read(wire: Wire, consumer: str, *words: object) -> list[bytes]:
    """The IDs of the entries that a consumer gets."""
    reply = wire.call("XREADGROUP", "GROUP", "g", consumer, *words, "STREAMS", "s", ">").plain()
    return [entry[0] for entry in reply[0][1]] if reply else []


def fill(wire: Wire, *rule: object, keys: str = "aab") -> None:
    """Entries 1-0, 2-0, ... of these keys; `a` reads one."""
    wire.call("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    for number, key in enumerate(keys, 1):
        wire.call("XADD", "s", f"{number}-0", "k", key)
    assert wire.call("STREAMD.GROUP", "SET", "s", "g", "KEYED", "k", *rule).value == b"OK"
    assert read(wire, "a", "COUNT", 1) == [b"1-0"]


def wait(wire: Wire, reader: Wire, consumer: str, *words: object) -> None:
    """Have a reader wait for an entry."""
    before = blocked(wire)
    reader.send("XREADGROUP", "GROUP", "g", consumer, *words, "BLOCK", 0, "STREAMS", "s", ">")
    eventually(lambda: blocked(wire) == before + 1)


def blocked(wire: Wire) -> int:
    return int(wire.call("INFO", "clients").value.split(b"\nblocked_clients:")[1].split(b"\r")[0])


def pending(wire: Wire) -> list[list[object]]:
    """ID, consumer and delivery count of what is pending."""
    return [[row[0], row[1], row[3]] for row in wire.call("XPENDING", "s", "g", "-", "+", 10_000).plain()]


# --- Readers that wait -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_",
    [
        "XACK s g 1-0",
        "XACKDEL s g IDS 1 1-0",
        "XDEL s 1-0",
        "XDELEX s KEEPREF IDS 1 1-0",
        "XDELEX s DELREF IDS 1 1-0",
        "XTRIM s MINID 2",
        "XNACK s g FATAL IDS 1 1-0",
        "XNACK s g FAIL IDS 1 1-0 RETRYCOUNT 9",
        "XGROUP DELCONSUMER s g a",
        "STREAMD.STREAM SET s RETAIN LENGTH 1",
        "STREAMD.STREAM SET s EXPIRES until",
    ],
)
@pytest.mark.parametrize("words", [(), ("CLAIM", 10**9)])
def test_a_reader_that_waits_is_served_as_soon_as_its_key_is_free(
    new_streamd: StartServer, request_: str, words: tuple[object, ...]
) -> None:
    server = new_streamd(stream_node_max_entries="1")
    with server.connect() as wire, server.connect() as reader:
        wire.call("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
        wire.call("XADD", "s", "1-0", "k", "a", "until", 1)
        wire.call("XADD", "s", "2-0", "k", "a")
        rule = ("KEYED", "k", "DEADLETTER", "dead", "MAXDELIVERIES", 5)
        assert wire.call("STREAMD.GROUP", "SET", "s", "g", *rule).value == b"OK"
        assert read(wire, "a") == [b"1-0"]
        wait(wire, reader, "b", *words)
        wire.call(*request_.split())
        assert reader.read().plain()[0][1][0][0] == b"2-0"


def test_each_key_that_becomes_free_serves_a_reader(new_streamd: StartServer) -> None:
    server = new_streamd()
    with server.connect() as wire, server.connect() as first, server.connect() as second, server.connect() as third:
        fill(wire, keys="aabbc")
        assert read(wire, "a") == [b"3-0", b"5-0"]
        for consumer, reader in zip("xyz", (first, second, third), strict=True):
            wait(wire, reader, consumer, "COUNT", 1)
        assert wire.call("XACK", "s", "g", "1-0", "3-0").value == 2
        # In the turn of that request: the next request sees it.
        assert [row[1] for row in pending(wire)] == [b"x", b"y", b"a"]
        assert first.read().plain()[0][1][0][0] == b"2-0"
        assert second.read().plain()[0][1][0][0] == b"4-0"
        wire.call("XADD", "s", "6-0", "k", "c")
        assert pending(wire)[-1] == [b"6-0", b"", 0]
        wire.call("XADD", "s", "7-0", "k", "d")
        assert third.read().plain()[0][1][0][0] == b"7-0"


def test_a_claim_of_a_deleted_entry_serves_nobody_twice(new_streamd: StartServer) -> None:
    server = new_streamd()
    with server.connect() as wire, server.connect() as reader:
        fill(wire)
        assert read(wire, "b") == [b"3-0"]
        wait(wire, reader, "b", "COUNT", 5)
        for claim in ("XCLAIM s g c 0 2-0", "XAUTOCLAIM s g c 0 2-0 COUNT 1", "XCLAIM s g c 0 1-0"):
            wire.call(*claim.split())
        assert pending(wire)[:2] == [[b"1-0", b"c", 2], [b"2-0", b"", 0]]
        wire.call("XDEL", "s", "1-0")
        assert reader.read().plain()[0][1][0][0] == b"2-0"


def test_transactions_and_scripts(new_streamd: StartServer) -> None:
    with new_streamd().connect() as wire:
        fill(wire, keys="aabab")
        wire.call("MULTI")
        for request in ("XREADGROUP GROUP g b STREAMS s >", "XACK s g 1-0", "XREADGROUP GROUP g c STREAMS s >"):
            wire.call(*request.split())
        replies = wire.call("EXEC").plain()
        assert [[entry[0] for entry in reply[0][1]] for reply in (replies[0], replies[2])] == [[b"3-0"], [b"2-0"]]
        script = "redis.call('XACK', KEYS[1], 'g', '2-0', '3-0') return redis.call('XREADGROUP', 'GROUP', 'g', 'd', 'STREAMS', KEYS[1], '>')"
        assert [entry[0] for entry in wire.call("EVAL", script, 1, "s").plain()[0][1]] == [b"4-0", b"5-0"]


# --- Restarts, kills, fail-over ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["8.6", "8.8"])
@pytest.mark.parametrize("is_killed", [True, False])
@pytest.mark.parametrize("appendonly", ["yes", "no"])
def test_the_order_goes_on_after_a_restart(
    new_streamd: StartServer, form: str, is_killed: bool, appendonly: str
) -> None:
    server = new_streamd(appendonly=appendonly, appendfsync="always", rdb_form=form, aof_use_rdb_preamble="no")
    with server.connect() as wire:
        fill(wire, keys="aabab")
        assert read(wire, "a", "COUNT", 1) == [b"3-0"]
        before = pending(wire)
        if appendonly == "no":
            wire.call("SAVE")
        elif not is_killed:
            wire.call("BGREWRITEAOF")
            eventually(lambda: b"aof_rewrite_in_progress:0" in wire.call("INFO", "persistence").value)
    if is_killed:
        server.kill()
    server.restart()
    with server.connect() as wire:
        assert pending(wire) == before == [[b"1-0", b"a", 1], [b"2-0", b"", 0], [b"3-0", b"a", 1]]
        assert wire.call("STREAMD.LAG", "s", "g").plain()[7] == 1
        assert read(wire, "b") == []
        wire.call("XACK", "s", "g", "1-0", "3-0")
        assert read(wire, "b") == [b"2-0", b"5-0"]
        wire.call("XACK", "s", "g", "2-0")
        assert read(wire, "b") == [b"4-0"]


KEYS, ENTRIES = 7, 600


def fill_at_random(wire: Wire, chance: random.Random) -> dict[bytes, list[bytes]]:
    """Entries of several keys for a group that is ordered; returns their IDs by key."""
    wire.call("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    wire.call("STREAMD.GROUP", "SET", "s", "g", "KEYED", "k", "HELD", 50)
    expected: dict[bytes, list[bytes]] = defaultdict(list)
    for number in range(1, ENTRIES + 1):
        key = b"k%d" % chance.randrange(KEYS)
        wire.call("XADD", "s", f"{number}-0", "k", key)
        expected[key].append(b"%d-0" % number)
    return expected


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_lost_or_out_of_order_when_the_server_is_killed(new_streamd: StartServer, seed: int) -> None:
    """Each consumer acknowledges in a script that also notes the entry in a list of its key: that is the journal, and as durable."""
    server = new_streamd(appendonly="yes", appendfsync="always")
    chance = random.Random(seed)
    with server.connect() as wire:
        expected = fill_at_random(wire, chance)
    for kill in range(4):
        stop = threading.Event()
        faults: list[str] = []
        workers = [
            threading.Thread(target=consume, args=(server, f"{seed}-{kill}-{each}", stop, faults)) for each in range(3)
        ]
        for worker in workers:
            worker.start()
        with server.connect() as wire:
            most = ENTRIES if kill == 3 else (kill + 1) * ENTRIES // 5 + chance.randrange(30)
            eventually(lambda least=most: int(wire.call("GET", "done").value or 0) >= least)
        if kill < 3:
            server.kill()
        stop.set()
        for worker in workers:
            worker.join()
        assert not faults
        if kill < 3:
            server.restart()
    with server.connect() as wire:
        assert {key: wire.call("LRANGE", key, 0, -1).plain() for key in expected} == expected
        assert pending(wire) == []


def test_planned_switches_keep_the_order(new_node: NewNode) -> None:
    """FAILOVER there and back while consumers work; each goes on at the new primary."""
    nodes = [new_node("streamd"), new_node("streamd")]
    nodes[1].follow(nodes[0])
    wait_in_sync(*nodes)
    with nodes[0].connect() as wire:
        expected = fill_at_random(wire, random.Random(9))
    faults: list[str] = []
    for turn in range(4):
        primary, other = nodes
        stop = threading.Event()
        workers = [
            threading.Thread(target=consume, args=(primary, f"{turn}-{each}", stop, faults)) for each in range(3)
        ]
        for worker in workers:
            worker.start()
        most = ENTRIES if turn == 3 else (turn + 1) * ENTRIES // 5
        eventually(lambda: int(primary.must("GET", "done").value or 0) >= most)  # noqa: B023
        if turn < 3:
            primary.must("FAILOVER")
            eventually(lambda: other.info()["role"] == "master")  # noqa: B023
            eventually(lambda: primary.info()["role"] == "slave")  # noqa: B023
            nodes.reverse()
        stop.set()
        for worker in workers:
            worker.join()
    assert not faults
    with nodes[0].connect() as wire:
        assert {key: wire.call("LRANGE", key, 0, -1).plain() for key in expected} == expected
        assert pending(wire) == []
    wait_in_sync(*nodes)
    assert_same_state(*nodes)


DONE = """
if redis.call('XACK', 's', 'g', ARGV[1]) == 1 then
    redis.call('RPUSH', KEYS[1], ARGV[1])
    redis.call('INCR', 'done')
end
"""


def consume(server: Server, name: str, stop: threading.Event, faults: list[str]) -> None:
    """Read, and fail or be done with what was read, until told to stop, or the server is gone."""
    chance = random.Random(name)
    with suppress(ConnectionClosed, OSError), server.connect() as wire:
        while not stop.is_set():
            reply = wire.call("XREADGROUP", "GROUP", "g", name, "COUNT", 5, "CLAIM", 20, "STREAMS", "s", ">")
            if reply.is_error:  # it is a replica now
                return
            entries = reply.plain()[0][1] if reply.plain() else []
            keys = [entry[1][1] for entry in entries]
            if len(set(keys)) < len(keys):
                faults.append(f"one key twice in a reply: {keys}")
            for entry, key in zip(entries, keys, strict=True):
                if chance.random() < 0.1:
                    wire.call("XNACK", "s", "g", "FAIL", "IDS", 1, entry[0])
                else:
                    wire.call("EVAL", DONE, 1, key, entry[0])


@pytest.mark.real
@pytest.mark.parametrize("form", ["8.6", "8.8"])
def test_replicas_have_the_same_and_a_new_primary_goes_on(new_node: NewNode, form: str) -> None:
    """With form 8.8 effects contain XNACK, which Redis 8.6 does not know: then only streamd follows."""
    primary = new_node("streamd", rdb_form=form)
    replicas = [new_node(kind) for kind in (("streamd", "redis") if form == "8.6" else ("streamd",))]
    for replica in replicas:
        replica.follow(primary)
    wait_in_sync(primary, *replicas)
    chance = random.Random(form)
    with primary.connect() as wire, replicas[0].connect() as other:
        fill(wire, "HELD", 20, "DEADLETTER", "dead", "MAXDELIVERIES", 3)
        for number in range(4, 300):
            any_id = f"{chance.randint(1, number)}-0"
            for request in chance.sample([
                ("XADD", "s", f"{number}-0", "k", chance.randrange(4)),
                ("XREADGROUP", "GROUP", "g", "a", "COUNT", 2, "STREAMS", "s", ">"),
                ("XREADGROUP", "GROUP", "g", "b", "COUNT", 3, "CLAIM", 0, "STREAMS", "s", ">"),
                ("XACK", "s", "g", any_id),
                ("XNACK", "s", "g", chance.choice(["FAIL", "SILENT", "FATAL"]), "IDS", 1, any_id),
                ("XAUTOCLAIM", "s", "g", "b", 0, any_id, "COUNT", 2),
                ("XDEL", "s", any_id),
                ("STREAMD.REDRIVE", "s", "g", "dead", "COUNT", 1),
            ], 4):  # fmt: skip
                wire.call(*request)
            # A replica knows its order, too, and keeps it up while it follows.
            other.call("STREAMD.LAG", "s", "g")
        wait_in_sync(primary, *replicas)
        assert_same_state(primary, replicas[0])
        assert other.call("STREAMD.LAG", "s", "g").plain()[7] == wire.call("STREAMD.LAG", "s", "g").plain()[7] > 0
        if form == "8.6":
            with replicas[1].connect() as redis:
                assert pending(redis) == pending(wire)
        replicas[0].follow(None)
        # Who is promoted delivers what the primary would have delivered.
        for id, _, _ in pending(wire)[::3]:
            assert wire.call("XACK", "s", "g", id).value == other.call("XACK", "s", "g", id).value
        assert sorted(read(wire, "c")) == sorted(read(other, "c"))
        assert pending(wire) == pending(other)


@pytest.mark.real
def test_redis_reads_the_file_with_all_entries(new_streamd: StartServer) -> None:
    """Form 8.6 is the default; the form of 8.8 (RDB type 27) needs that release."""
    server = new_streamd(appendonly="yes", appendfsync="always")
    with server.connect() as wire:
        fill(wire, keys="aaab")
        assert read(wire, "a") == [b"4-0"]
        wire.call("BGREWRITEAOF")
        eventually(lambda: b"aof_rewrite_in_progress:0" in wire.call("INFO", "persistence").value)
        wire.call("XADD", "s", "5-0", "k", "b")
        read(wire, "a")
    server.kill()
    oracle = find_oracle()
    assert oracle is not None
    redis = RealRedis(oracle, server.folder)
    try:
        assert redis.started, redis.log
        with Wire(redis.port) as wire:
            assert pending(wire) == [
                [b"1-0", b"a", 1], [b"2-0", b"", 0], [b"3-0", b"", 0], [b"4-0", b"a", 1], [b"5-0", b"", 0],
            ]  # fmt: skip
            assert wire.call("XLEN", "s").value == 5
            claimed = wire.call("XAUTOCLAIM", "s", "g", "b", 1000 * 3600, "0").plain()[1]
            assert [entry[0] for entry in claimed] == [b"2-0", b"3-0", b"5-0"]
    finally:
        redis.stop()
