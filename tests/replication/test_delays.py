"""Delays of running servers: in time, after kills, on replicas of both kinds, in a cluster, and in files that Redis reads."""

from __future__ import annotations

import itertools
import random
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from support.files.aof import Store, open_aof
from support.files.real_files import RealRedis
from support.pages.reader import ROOT, block
from support.replicas.nodes import Node, assert_same_state, wait_in_sync
from support.servers import Server, eventually, find_oracle
from support.wire import ConnectionClosed, Reply, Wire

from streamd.delivery.rules import key_of_rules
from streamd.persistence.aof.replay import LoadOptions

pytestmark = pytest.mark.long

StartServer = Callable[..., Server]
NewNode = Callable[..., Node]

HOUR_MS = 3_600_000
NODES = frozenset({b"radix-tree-keys", b"radix-tree-nodes"})
"""Fields of XINFO STREAM that tell where nodes were merged."""


def now_ms() -> int:
    return int(time.time() * 1000)


def set_rule(wire: Wire, options: str = "FEEDS jobs DUE due", key: str = "later") -> None:
    assert wire.call("STREAMD.STREAM", "SET", key, *options.split()) == Reply("+", b"OK")


def add(wire: Wire, due: int, job: object, *fields: object, key: str = "later") -> bytes:
    value: bytes = wire.call("XADD", key, "*", "due", due, *fields, "job", job).value
    return value


def jobs(wire: Wire, key: str = "jobs") -> list[bytes]:
    """What each entry of a stream has as its last value."""
    return [fields[-1] for _, fields in wire.call("XRANGE", key, "-", "+").plain()]


def pass_two_seconds(wire: Wire) -> None:
    """Wait until the clock of a server has struck at least twice."""
    wire.call("CONFIG", "RESETSTAT")
    wire.call("SET", "tick", "", "PX", 2500)
    eventually(lambda: b"expired_keys:1\r\n" in wire.call("INFO", "stats").value)


def test_a_job_is_scheduled_cancelled_and_delivered_in_time(new_streamd: StartServer) -> None:
    server = new_streamd()
    with server.connect() as wire, server.connect() as worker:
        set_rule(wire)
        worker.send("XREAD", "BLOCK", 0, "STREAMS", "jobs", "$")
        begun = now_ms()
        cancelled = add(wire, begun + 400, "cancelled")
        add(wire, begun + 800, "x")
        add(wire, begun + HOUR_MS, "y")
        assert wire.call("XLEN", "later").value == 3
        assert wire.call("XDEL", "later", cancelled) == Reply(":", 1)
        ((_, ((id, fields),)),) = worker.read().plain()
        assert fields == [b"job", b"x"]
        assert int(id.split(b"-")[0]) >= begun + 800
        assert jobs(wire, "later") == [b"y"]
        assert b"entries_delayed_moved:1\r\n" in wire.call("INFO", "delivery").value


def test_many_that_are_due_together_move_in_order(new_streamd: StartServer) -> None:
    count = 3000
    with new_streamd().connect() as wire:
        set_rule(wire)
        due = now_ms() + 1500
        for number in range(count):
            wire.send("XADD", "later", "*", "due", due + number % 3, "job", number)
        for _ in range(count):
            wire.read()
        eventually(lambda: wire.call("XLEN", "jobs").value == count)
        expected = sorted(range(count), key=lambda number: number % 3)
        assert [int(job) for job in jobs(wire)] == expected
        assert wire.call("XLEN", "later").value == 0


def test_debounce_and_expiry(new_streamd: StartServer) -> None:
    with new_streamd().connect() as wire:
        set_rule(wire, "FEEDS jobs DUE due UNIQUE user")
        set_rule(wire, "EXPIRES until", key="jobs")
        due = now_ms() + 1000
        for number in range(5):
            add(wire, due, number, "user", "u", "until", due + 1500)
        eventually(lambda: wire.call("XLEN", "later").value == 1)
        wire.call("XGROUP", "CREATE", "jobs", "g", "0", "MKSTREAM")
        wire.call("XREADGROUP", "GROUP", "g", "c", "BLOCK", 0, "STREAMS", "jobs", ">")
        assert jobs(wire) == [b"4"]
        eventually(lambda: wire.call("XLEN", "jobs").value == 0)
        assert wire.call("XPENDING", "jobs", "g").plain()[0] == 0
        info = wire.call("INFO", "delivery").value
        assert b"entries_delayed_replaced:4\r\nentries_expired:1\r\n" in info


def test_rules_by_hand_that_lead_in_a_circle_are_not_obeyed(new_streamd: StartServer) -> None:
    with new_streamd().connect() as wire:
        wire.call("MULTI")
        for key, target in (("a", "b"), ("b", "a"), ("c", "c")):
            wire.call("SET", key_of_rules(key.encode()), f"STREAM FEEDS {target} DUE due")
        wire.call("EXEC")
        for key in "abc":
            add(wire, 5, key, key=key)
        pass_two_seconds(wire)
        assert sum(wire.call("XLEN", key).value for key in "abc") == 3
        assert b"entries_delayed_moved:0\r\n" in wire.call("INFO", "delivery").value


def test_in_a_cluster_nothing_moves_to_another_slot(new_streamd: StartServer) -> None:
    with new_streamd(cluster_enabled="yes").connect() as wire:
        wire.call("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        eventually(lambda: b"cluster_state:ok" in wire.call("CLUSTER", "INFO").value)
        refused = wire.call("STREAMD.STREAM", "SET", "later", "FEEDS", "jobs", "DUE", "due").value
        assert refused.startswith(b"CROSSSLOT")
        wire.call("SET", key_of_rules(b"later"), "STREAM FEEDS jobs DUE due")
        add(wire, 5, "x")
        set_rule(wire, "FEEDS {a}jobs DUE due", key="{a}later")
        add(wire, 5, "y", key="{a}later")
        eventually(lambda: jobs(wire, "{a}jobs") == [b"y"])
        eventually(
            lambda: b"CROSSSLOT The stream is in another slot" in wire.call("STREAMD.STREAM", "GET", "later").plain()
        )


def test_who_may_not_write_the_target_may_not_set_the_rule(new_streamd: StartServer) -> None:
    server = new_streamd()
    with server.connect() as wire, server.connect() as other:
        wire.call("ACL", "SETUSER", "deployer", "on", "nopass", "+@all", "~later", "%R~jobs")
        assert other.call("AUTH", "deployer", "any") == Reply("+", b"OK")
        request = ("STREAMD.STREAM", "SET", "later", "FEEDS", "jobs", "DUE", "due")
        assert other.call(*request).value.startswith(b"NOPERM")
        wire.call("ACL", "SETUSER", "deployer", "%RW~jobs")
        assert other.call(*request) == Reply("+", b"OK")


# --- After kills -------------------------------------------------------------------------------------------------------


def produce(server: Server, seed: int, stop: threading.Event, acknowledged: list[int]) -> None:
    """Schedule jobs until the server is gone."""
    chance = random.Random(seed)
    number = seed * 1_000_000
    with suppress(ConnectionClosed, OSError), server.connect() as wire:
        while not stop.is_set():
            number += 1
            reply = wire.call("XADD", "later", "*", "due", now_ms() + chance.randrange(-20, 60), "job", number)
            assert reply.kind == "$"
            acknowledged.append(number)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_job_is_lost_or_moved_twice_when_the_server_is_killed(new_streamd: StartServer, seed: int) -> None:
    server = new_streamd(appendonly="yes", appendfsync="always")
    acknowledged: list[int] = []
    with server.connect() as wire:
        set_rule(wire)
    for kill in range(3):
        stop = threading.Event()
        workers = [
            threading.Thread(target=produce, args=(server, 10 * seed + 3 * each + kill, stop, acknowledged))
            for each in range(2)
        ]
        with server.connect() as wire:
            some = wire.call("XLEN", "jobs").value + random.Random(seed * kill).randrange(50, 300)
            for worker in workers:
                worker.start()
            eventually(lambda: wire.call("XLEN", "jobs").value >= some)  # noqa: B023
        server.kill()
        stop.set()
        for worker in workers:
            worker.join()
        server.restart()
        with server.connect() as wire:
            wire.send("MULTI")
            wire.send("XRANGE", "later", "-", "+")
            wire.send("XRANGE", "jobs", "-", "+")
            wire.send("EXEC")
            waiting, moved = [wire.read() for _ in range(4)][-1].plain()
            found = [int(fields[-1]) for _, fields in [*waiting, *moved]]
            assert len(found) == len(set(found))
            assert set(acknowledged) <= set(found)
            eventually(lambda: wire.call("XLEN", "later").value == 0)
            assert sorted(int(job) for job in jobs(wire)) == sorted(found)


def test_after_a_start_those_that_are_overdue_come_first(new_streamd: StartServer) -> None:
    server = new_streamd(appendonly="yes", appendfsync="always")
    with server.connect() as wire:
        set_rule(wire)
        due = now_ms() + 8000
        for number in range(500):
            add(wire, due - number, number)
    server.kill()
    eventually(lambda: now_ms() > due)
    server.restart()
    with server.connect() as wire:
        add(wire, due + 1, "new")
        eventually(lambda: wire.call("XLEN", "jobs").value == 501)
        assert jobs(wire) == [*(b"%d" % number for number in reversed(range(500))), b"new"]


# --- What a later entry replaces ---------------------------------------------------------------------------------------


def users(entries: list[tuple[bytes, list[bytes]]]) -> list[bytes]:
    return [fields[fields.index(b"user") + 1] for _, fields in entries]


def replace_in_all_ways(wire: Wire) -> None:
    """Entries that replace each other: on their own, in transactions, in scripts, with all kinds of IDs."""
    due = now_ms() + HOUR_MS
    for number in range(4):
        add(wire, due, number, "user", "a")
        assert users(wire.call("XRANGE", "later", "-", "+").plain()).count(b"a") == 1
    wire.call("MULTI")
    for user in "aabb":
        wire.call("XADD", "later", "*", "due", due, "user", user)
    wire.call("XLEN", "later")
    assert wire.call("EXEC").plain()[-1] == 2
    script = """
        redis.call('XADD', 'later', '*', 'due', ARGV[1], 'user', 'b')
        redis.call('XADD', 'later', '*', 'due', ARGV[1], 'user', 'c')
        redis.call('XADD', 'later', '*', 'due', ARGV[1], 'user', 'c')
        return redis.call('XLEN', 'later')
    """
    assert wire.call("EVAL", script, 1, "later", due).value == 3
    ms = now_ms() + 1
    for id in (f"{ms}-*", f"{ms}-77"):
        wire.call("XADD", "later", id, "due", due, "user", "a")
    wire.call("XADD", "later", "MAXLEN", "~", 1000, "*", "due", due, "user", "b")
    for _ in range(2):
        wire.call("XADD", "later", "IDMP", "p", "1", "*", "due", due, "user", "c")
    assert sorted(users(wire.call("XRANGE", "later", "-", "+").plain())) == [b"a", b"b", b"c"]


def test_wherever_a_file_is_cut_a_value_has_one_entry(new_streamd: StartServer, tmp_path: Path) -> None:
    """Never the new entry and the one that it replaces, and never neither."""
    server = new_streamd(appendonly="yes", appendfsync="always")
    with server.connect() as wire:
        set_rule(wire, "FEEDS jobs DUE due UNIQUE user")
        replace_in_all_ways(wire)
    server.kill()
    name = "appendonlydir/appendonly.aof.1.incr.aof"
    data = (server.folder / name).read_bytes()
    ends = [match.start() for match in re.finditer(rb"\*\d+\r\n\$", data)] + [len(data)]
    cuts = sorted({cut for end in ends for cut in (end - 2, end, end + 5) if 0 < cut <= len(data)})
    assert len(cuts) > 100
    had: set[bytes] = set()
    for number, cut in enumerate(cuts):
        folder = tmp_path / str(number)
        shutil.copytree(server.folder / "appendonlydir", folder / "appendonlydir")
        (folder / name).write_bytes(data[:cut])
        store = Store()
        open_aof(folder, store, load=LoadOptions()).close()
        found = users(store.run("XRANGE", "later", "-", "+"))
        assert len(found) == len(set(found)), data[:cut][-200:]
        assert had <= set(found), data[:cut][-200:]
        had = set(found)
    assert had == {b"a", b"b", b"c"}


@pytest.mark.real
def test_after_a_kill_redis_finds_one_entry_for_each_value(new_streamd: StartServer) -> None:
    """A Redis does not act on rules, so it shows what the file has."""
    oracle = find_oracle()
    assert oracle is not None
    for seed in range(3):
        server = new_streamd(appendonly="yes", appendfsync="always")
        with server.connect() as wire:
            set_rule(wire, "FEEDS jobs DUE due UNIQUE user")
        last: dict[int, int] = {}

        def produce() -> None:
            chance = random.Random(seed)  # noqa: B023
            with suppress(ConnectionClosed, OSError), server.connect() as wire:  # noqa: B023
                for number in itertools.count():
                    user = chance.randrange(5)
                    add(wire, now_ms() + HOUR_MS, number, "user", user)
                    last[user] = number  # noqa: B023

        worker = threading.Thread(target=produce)
        worker.start()
        eventually(lambda: sum(last.values()) > 800 + 100 * seed)  # noqa: B023
        server.kill()
        worker.join()
        redis = RealRedis(oracle, server.folder)
        try:
            assert redis.started, redis.log
            with Wire(redis.port) as wire:
                entries = wire.call("XRANGE", "later", "-", "+").plain()
        finally:
            redis.process.kill()
            redis.process.wait()
        assert sorted(users(entries)) == [b"%d" % user for user in sorted(last)]
        for _, fields in entries:
            assert int(fields[-1]) >= last[int(fields[3])]


def test_what_comes_by_rules_replaces_in_the_unit_of_the_move(new_streamd: StartServer) -> None:
    """A stream that feeds one with UNIQUE, and dead letters that go to one."""
    server = new_streamd(appendonly="yes", appendfsync="always")
    with server.connect() as wire:
        set_rule(wire, "FEEDS later DUE at", key="first")
        set_rule(wire, "FEEDS jobs DUE due UNIQUE user")
        wire.call("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
        wire.call("STREAMD.GROUP", "SET", "s", "g", "DEADLETTER", "later")
        due = now_ms() + HOUR_MS
        add(wire, due, 0, "user", "u")
        add(wire, due, 1, "at", 5, "user", "u", key="first")
        eventually(lambda: wire.call("XLEN", "first").value == 0)
        id = add(wire, due, 2, "user", "u", key="s")
        wire.call("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">")
        wire.call("XNACK", "s", "g", "FATAL", "IDS", 1, id)
        ((_, fields),) = wire.call("XRANGE", "later", "-", "+").plain()
        assert fields[:6] == [b"due", b"%d" % due, b"user", b"u", b"job", b"2"]
    data = (server.folder / "appendonlydir/appendonly.aof.1.incr.aof").read_bytes()
    units = [unit.rpartition(b"MULTI")[2] for unit in data.split(b"EXEC")]
    found = [unit for unit in units if b"XDEL\r\n$5\r\nlater" in unit]
    assert [unit.count(b"XADD\r\n$5\r\nlater") for unit in found] == [1, 1]


# --- Replicas and files ------------------------------------------------------------------------------------------------


@pytest.mark.real
def test_replicas_of_both_kinds_have_the_same_state(new_node: NewNode) -> None:
    primary = new_node("streamd")
    replicas = [new_node(kind) for kind in ("streamd", "redis")]
    for replica in replicas:
        replica.follow(primary)
    chance = random.Random(7)
    with primary.connect() as wire:
        set_rule(wire, "FEEDS jobs DUE due UNIQUE user EXPIRES until")
        wire.call("XGROUP", "CREATE", "later", "g", "0", "MKSTREAM")
        for number in range(600):
            due = now_ms() + chance.randrange(-5, 100)
            fields = ["user", chance.randrange(100)] if chance.random() < 0.5 else []
            fields += ["until", due + chance.randrange(-50, 50)] if chance.random() < 0.5 else []
            id = add(wire, due, number, *fields)
            wire.call("XREADGROUP", "GROUP", "g", "c", "COUNT", 1, "STREAMS", "later", ">")
            if chance.random() < 0.1:
                wire.call("XDEL", "later", id)
        eventually(lambda: wire.call("XLEN", "later").value == 0)
        assert wire.call("XLEN", "jobs").value > 100
        info = wire.call("INFO", "delivery").value
        assert b"entries_delayed_replaced:0\r\n" not in info
        assert b"entries_expired:0\r\n" not in info
    assert_same_state(primary, *replicas, without=NODES)


def test_a_replica_moves_nothing_until_it_is_promoted(new_node: NewNode) -> None:
    primary, replica = new_node("streamd"), new_node("streamd")
    replica.follow(primary)
    with primary.connect() as wire, replica.connect() as other:
        for number in range(300):
            add(wire, 1000 - number, number)
        wait_in_sync(primary, replica)
        wire.call("CLIENT", "PAUSE", 600_000, "WRITE")  # the primary moves nothing by itself during a pause, either
        other.call("CONFIG", "SET", "replica-read-only", "no")
        set_rule(other)
        pass_two_seconds(other)
        assert other.call("XLEN", "later").value == 300
        replica.follow(None)
        eventually(lambda: jobs(other) == [b"%d" % number for number in reversed(range(300))])
        assert wire.call("EXISTS", "jobs").value == 0


@pytest.mark.parametrize("way", ["script", "transaction"])
def test_what_one_unit_adds_moves_once_and_only_the_last_of_a_value(new_streamd: StartServer, way: str) -> None:
    """Nothing moves in the middle of the unit, and a unit that ends with an error keeps what it has added."""
    with new_streamd().connect() as wire:
        set_rule(wire, "FEEDS jobs DUE due UNIQUE user")
        if way == "script":
            text = """
                for number = 1, 200 do
                    redis.call('XADD', 'later', '*', 'due', '5', 'user', tostring(number % 10), 'job', tostring(number))
                end
                local seen = redis.call('XLEN', 'later') .. ' ' .. redis.call('EXISTS', 'jobs')
                redis.call('SET', 'seen', seen)
                return redis.error_reply('ERR planted')
            """
            assert wire.call("EVAL", text, 3, "later", "jobs", "seen") == Reply("-", b"ERR planted")
            assert wire.call("GET", "seen").value == b"10 0"
        else:
            wire.call("MULTI")
            for number in range(1, 201):
                wire.call("XADD", "later", "*", "due", 5, "user", number % 10, "job", number)
            wire.call("XLEN", "later")
            wire.call("EXISTS", "jobs")
            wire.call("INCR", "later")
            assert [str(each) for each in wire.call("EXEC").value[200:202]] == [
                str(Reply(":", 10)),
                str(Reply(":", 0)),
            ]
        eventually(lambda: wire.call("XLEN", "later").value == 0)
        assert sorted(int(job) for job in jobs(wire)) == list(range(191, 201))


def test_a_planned_switch_moves_each_entry_once(new_node: NewNode) -> None:
    """FAILOVER there and back, while entries become due."""
    nodes = [new_node("streamd"), new_node("streamd")]
    nodes[1].follow(nodes[0])
    wait_in_sync(*nodes)
    count = 400
    with nodes[0].connect() as first, nodes[1].connect() as second:
        wires = [first, second]
        set_rule(first)
        begun = now_ms()
        for number in range(count):
            add(first, begun + number * 10, number)
        for at in (0, 1):
            eventually(lambda at=at: wires[at].call("XLEN", "jobs").value >= count * (at + 1) // 4)
            assert wires[at].call("FAILOVER") == Reply("+", b"OK")
            eventually(lambda at=at: b"role:slave" in wires[at].call("INFO", "replication").value)
            eventually(lambda at=at: b"role:master" in wires[1 - at].call("INFO", "replication").value)
        eventually(lambda: first.call("XLEN", "later").value == 0)
        assert jobs(first) == [b"%d" % number for number in range(count)]
    wait_in_sync(*nodes)
    assert_same_state(*nodes, without=NODES)


@pytest.mark.real
def test_redis_takes_and_changes_a_stream_with_merged_nodes(new_streamd: StartServer, new_redis: StartServer) -> None:
    """Thousands wait, and most of them are cancelled here and there."""
    chance = random.Random(3)
    with (
        new_streamd().connect() as wire,
        new_redis(sanitize_dump_payload="yes").connect() as plain,
        new_streamd().connect() as other,
    ):
        set_rule(wire)
        ids = []
        for number in range(3000):
            fields = [("job",), ("job", "more"), ("user", "job")][number // 40 % 3]
            due = now_ms() + HOUR_MS
            ids.append(
                wire.call("XADD", "later", "*", "due", due, *[x for name in fields for x in (name, number)]).value
            )
        chance.shuffle(ids)
        nodes = dict(zip(*[iter(wire.call("XINFO", "STREAM", "later").plain())] * 2, strict=True))[b"radix-tree-keys"]
        for id in ids[:2800]:
            wire.call("XDEL", "later", id)
        left = dict(zip(*[iter(wire.call("XINFO", "STREAM", "later").plain())] * 2, strict=True))[b"radix-tree-keys"]
        assert nodes >= 30
        assert left <= 12
        payload = wire.call("DUMP", "later").value
        wanted = wire.call("XRANGE", "later", "-", "+")
        for receiver in (plain, other):
            assert receiver.call("RESTORE", "later", 0, payload) == Reply("+", b"OK")
            assert receiver.call("XRANGE", "later", "-", "+") == wanted
        for id in ids[2800:2950]:
            for each in (wire, plain, other):
                assert each.call("XDEL", "later", id) == Reply(":", 1)
        for each in (wire, plain, other):
            each.call("XADD", "later", "9999999999999-1", "due", 9999999999999, "job", 1)
            each.call("XTRIM", "later", "MAXLEN", 20)
        assert wire.call("XRANGE", "later", "-", "+") == plain.call("XRANGE", "later", "-", "+")
        assert other.call("XREVRANGE", "later", "+", "-") == plain.call("XREVRANGE", "later", "+", "-")


@pytest.mark.real
def test_redis_reads_the_file_with_all_entries(new_streamd: StartServer) -> None:
    server = new_streamd(appendonly="yes", appendfsync="always")
    with server.connect() as wire:
        set_rule(wire)
        for number in range(100):
            add(wire, 5 if number % 2 else now_ms() + HOUR_MS, number)
        eventually(lambda: wire.call("XLEN", "jobs").value == 50)
    server.kill()
    oracle = find_oracle()
    assert oracle is not None
    redis = RealRedis(oracle, server.folder)
    try:
        assert redis.started, redis.log
        with Wire(redis.port) as wire:
            assert wire.call("GET", key_of_rules(b"later")).value == b"STREAM FEEDS jobs DUE due"
            assert jobs(wire, "later") == [b"%d" % number for number in range(0, 100, 2)]
            assert sorted(map(int, jobs(wire))) == list(range(1, 100, 2))
    finally:
        redis.process.kill()
        redis.process.wait()


@pytest.mark.real
def test_ten_lines_move_what_is_due_on_a_redis_that_has_taken_over(new_node: NewNode) -> None:
    node = new_node("redis")
    lines = block(ROOT / "docs/delivery.md", "import time").replace("redis.Redis(", f"redis.Redis(port={node.port}, ")
    with node.connect() as wire:
        add(wire, now_ms() + HOUR_MS, "y")
        add(wire, 5, "x")
        process = subprocess.Popen([sys.executable, "-c", lines])
        try:
            eventually(lambda: jobs(wire) == [b"x"])
            assert jobs(wire, "later") == [b"y"]
        finally:
            process.kill()
            process.wait()
