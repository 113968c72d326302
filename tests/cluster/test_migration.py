"""Atomic slot migration: CLUSTER MIGRATION IMPORT between nodes of any kinds, under load, and what is left when it fails."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from support.cluster.moves import begin, keys_inside, plain, status
from support.cluster.nodes import Nodes, join, start_cluster, start_cluster_node
from support.replicas.nodes import Node, wait_until
from support.wire import Wire

from streamd.keyspace.hash_slot import slot_of

pytestmark = [pytest.mark.real, pytest.mark.long]

NewNode = Callable[..., Node]
KINDS = ("streamd", "redis")
TAG = "{06S}"
"""Of slot 0."""


def begin_in_vain(nodes: Any) -> bytes:
    """A task that fails: a slot of the source is in the middle of another move."""
    source, target = nodes
    source.must("CLUSTER", "SETSLOT", "3", "MIGRATING", nodes.id_of(target))
    task = begin(target, 4, 5)
    wait_until(lambda: status(target, task)["state"] == b"failed", "the task fails")
    return task


def is_completed(source: Node, target: Node, task: bytes) -> bool:
    return all(status(node, task).get("state") == b"completed" for node in (source, target))


def fill(node: Node) -> dict[str, tuple[tuple[str, ...], Any]]:
    """Keys of every type in slot 0; returns for each a question and its answer."""
    for words in (
        ("SET", f"{TAG}string", "v"),
        ("SET", f"{TAG}expiring", "v", "PXAT", "4102444800000"),
        ("HSET", f"{TAG}hash", "f", "1", "g", "2"),
        ("HPEXPIREAT", f"{TAG}hash", "4102444800000", "FIELDS", "1", "f"),
        ("RPUSH", f"{TAG}list", *map(str, range(700))),
        ("SADD", f"{TAG}set", *map(str, range(700))),
        ("ZADD", f"{TAG}zset", "1", "a", "2.5", "b"),
        ("XGROUP", "CREATE", f"{TAG}stream", "g", "0", "MKSTREAM"),
    ):
        node.must(*words)
    for number in range(1, 900):
        node.must("XADD", f"{TAG}stream", f"{number}-0", "f", str(number))
    node.must("XREADGROUP", "GROUP", "g", "alice", "COUNT", "100", "STREAMS", f"{TAG}stream", ">")
    node.must("XREADGROUP", "GROUP", "g", "bob", "COUNT", "5", "STREAMS", f"{TAG}stream", ">")
    node.must("XGROUP", "CREATECONSUMER", f"{TAG}stream", "g", "idle")
    node.must("XDEL", f"{TAG}stream", "7-0")
    questions = [
        ("GET", f"{TAG}string"), ("PEXPIRETIME", f"{TAG}expiring"), ("HGETALL", f"{TAG}hash"),
        ("HPEXPIRETIME", f"{TAG}hash", "FIELDS", "2", "f", "g"), ("LRANGE", f"{TAG}list", "0", "-1"),
        ("SCARD", f"{TAG}set"), ("ZRANGE", f"{TAG}zset", "0", "-1", "WITHSCORES"), ("XLEN", f"{TAG}stream"),
        ("XRANGE", f"{TAG}stream", "-", "+"), ("XPENDING", f"{TAG}stream", "g"),
    ]  # fmt: skip
    return {" ".join(words): (words, plain(node.call(*words))) for words in questions}


def assert_has(node: Node, answers: dict[str, tuple[tuple[str, ...], Any]]) -> None:
    for name, (words, answer) in answers.items():
        assert plain(node.call(*words)) == answer, name


@pytest.mark.parametrize(
    ("source_kind", "target_kind"), [("streamd", "streamd"), ("redis", "streamd"), ("streamd", "redis")]
)
def test_slots_move_with_everything_in_them(new_node: NewNode, source_kind: str, target_kind: str) -> None:
    nodes = start_cluster(new_node, (source_kind, target_kind))
    source, target = nodes
    answers = fill(source)
    source.must("SET", "{b}stays", "v")
    assert (
        source.call("FUNCTION", "LOAD", "#!lua name=lib\nredis.register_function('f', function() return 1 end)").value
        == b"lib"
    )
    task = begin(target, 0, 99, 200, 300)
    wait_until(lambda: is_completed(source, target, task), "the migration is completed")
    assert nodes.owner_of(0) is target
    nodes.wait()
    if source_kind == "redis":
        answers.pop(f"XPENDING {TAG}stream g")  # Redis loses pending entries of entries that were deleted
    assert_has(target, answers)
    assert target.call("FCALL", "f", "0").value == 1
    assert source.call("GET", f"{TAG}string").value == f"MOVED 0 127.0.0.1:{target.port}".encode()
    wait_until(lambda: source.call("DBSIZE").value == 1, "the keys are gone at the source")
    assert target.call("CLUSTER", "COUNTKEYSINSLOT", "0").value == 7
    for node, operation in ((source, b"migrate"), (target, b"import")):
        told = status(node, task)
        assert (told["operation"], told["slots"], told["last_error"]) == (operation, b"0-99 200-300", b"")
        assert (told["source"].decode(), told["dest"].decode()) == (nodes.id_of(source), nodes.id_of(target))


@pytest.mark.parametrize("kind", KINDS)
def test_errors_are_those_of_redis(new_shared_node: NewNode, kind: str) -> None:
    nodes = start_cluster(new_shared_node, (kind, kind, kind))
    target = nodes[0]

    def ask(*words: str) -> bytes:
        return target.call("CLUSTER", "MIGRATION", *words).value

    wrong_count = b"ERR wrong number of arguments for 'cluster|migration' command"
    for words, answer in {
        ("IMPORT", "1", "1"): b"ERR this node is already the owner of the slot range",
        ("IMPORT", "6000", "6000", "16000", "16000"): b"ERR slots belong to different source nodes",
        ("IMPORT", "6000", "6005", "6004", "6007"): b"ERR Slot 6004 specified multiple times",
        ("IMPORT", "6005", "6002"): b"ERR start slot number 6005 is greater than end slot number 6002",
        ("IMPORT", "x", "2"): b"ERR Invalid or out of range slot",
        ("IMPORT", "16384", "16384"): b"ERR Invalid or out of range slot",
        ("IMPORT", "1"): wrong_count,
        ("IMPORT", "6000", "6001", "6002"): wrong_count,
        ("STATUS", "ID"): wrong_count,
        ("STATUS", "ALL", "x"): wrong_count,
        ("STATUS", "ID", "a", "b"): wrong_count,
        ("STATUS",): wrong_count,
        ("STATUS", "FOO"): b"ERR unknown argument",
        ("STATUS", "ID", "abc"): (),
        ("STATUS", "ALL"): (),
        ("CANCEL", "ALL"): 0,
        ("CANCEL", "ID", "abc"): 0,
        ("CANCEL", "ID"): wrong_count,
        ("CANCEL", "FOO"): b"ERR unknown argument",
        ("FOO", "x"): b"ERR unknown argument",
        ("FOO",): wrong_count,
    }.items():
        assert ask(*words) == answer, words
    target.must("CLUSTER", "SETSLOT", "6000", "IMPORTING", nodes.id_of(nodes[1]))
    for slot in ("7000", "1"):
        assert ask("IMPORT", slot, slot) == b"ERR all slot states must be STABLE to start a slot migration task."
    target.must("CLUSTER", "SETSLOT", "6000", "STABLE")
    with target.connect(timeout_s=20) as stranger:
        assert stranger.call("CLUSTER", "SYNCSLOTS", "SNAPSHOT-EOF").value == (
            b"ERR CLUSTER SYNCSLOTS subcommands are only allowed for internal clients"
        )
    with target.connect(timeout_s=20) as stranger:
        assert stranger.call("AUTH", "internal connection", "x").value == b"WRONGPASS invalid internal password"


@pytest.mark.parametrize("kind", KINDS)
def test_a_failed_task_is_tried_again_until_it_is_cancelled(new_shared_node: NewNode, kind: str) -> None:
    nodes = start_cluster(new_shared_node, (kind, kind))
    source, target = nodes
    task = begin_in_vain(nodes)
    error = (
        b"Main channel - Failed to sync with source node: Error reply to CLUSTER SYNCSLOTS SYNC from the source: -ERR all slot"
        b" states must be STABLE to start a slot migration task. (state: syncslots-reply, rdb_channel_state: none)"
    )
    # The first try may come before both nodes agree on the secret of the cluster.
    wait_until(lambda: status(target, task)["last_error"] == error, "the source refuses")
    assert target.call("CLUSTER", "SETSLOT", "4", "STABLE").value.startswith(
        b"ERR Slot 4 is currently in an active atomic slot"
    )
    assert nodes.state(target, "cluster_slot_migration_active_tasks") == "1"
    wait_until(lambda: status(target, task)["retries"] >= 1, "it is tried again")
    wait_until(lambda: status(target, task)["state"] == b"failed", "the task fails again")
    assert target.call("CLUSTER", "MIGRATION", "CANCEL", "ID", task).value == 1
    told = status(target, task)
    assert told["state"] == b"canceled"
    assert told["last_error"] == b"Cancelled due to user request (state: failed, rdb_channel_state: none)"
    assert told["end_time"] >= told["create_time"]
    source.must("CLUSTER", "SETSLOT", "3", "STABLE")
    task = begin(target, 4, 5)
    wait_until(lambda: is_completed(source, target, task), "the migration is completed")
    tasks = plain(target.call("CLUSTER", "MIGRATION", "STATUS", "ALL"))
    assert tasks[0][1] == task
    assert len(tasks) == 2
    assert tasks[0][13] == b""


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_import_takes_the_place_of_one_that_has_failed(new_shared_node: NewNode, kind: str) -> None:
    nodes = start_cluster(new_shared_node, (kind, kind))
    source, target = nodes
    task = begin_in_vain(nodes)
    source.must("CLUSTER", "SETSLOT", "3", "STABLE")
    other = begin(target, 7, 7, 0, 1, 2, 3)
    told = status(target, task)
    assert told["state"] == b"canceled"
    assert told["last_error"] == b"Cancelled due to new import requested (state: failed, rdb_channel_state: none)"
    wait_until(lambda: is_completed(source, target, other), "the migration is completed")
    assert status(target, other)["slots"] == b"0-3 7-7"


class Load(threading.Thread):
    """A client that counts keys up and appends to streams, and follows redirections; the last acknowledged value of each is known."""

    def __init__(self, nodes: Nodes, keys: int) -> None:
        super().__init__(daemon=True)
        self._ports = {node.port: node for node in nodes}
        self._at = nodes[0].port
        self._wires: dict[int, Wire] = {}
        self.acknowledged = dict.fromkeys((f"{TAG}{number}" for number in range(keys)), 0)
        self.is_over = threading.Event()
        self.wrong: list[str] = []
        self.writes = 0

    def run(self) -> None:
        while not self.is_over.is_set():
            for name in self.acknowledged:
                self._write(name)
        for wire in self._wires.values():
            wire.close()

    def _write(self, name: str) -> None:
        while not self.is_over.is_set():
            if self._at not in self._wires:
                self._wires[self._at] = self._ports[self._at].connect(timeout_s=60)
            reply = self._wires[self._at].call("INCR", name)
            value = reply.value
            if isinstance(value, int):
                if value != self.acknowledged[name] + 1:
                    self.wrong.append(f"{name}: {value} after {self.acknowledged[name]}")
                self.acknowledged[name] = value
                self.writes += 1
                return
            if not value.startswith(b"MOVED"):
                self.wrong.append(str(value))
                return
            self._at = int(value.rpartition(b":")[2])


@pytest.mark.parametrize(("first", "second"), [pair for pair in product(KINDS, KINDS) if pair != ("redis", "redis")])
def test_no_write_is_lost_or_done_twice_while_slots_move(new_node: NewNode, first: str, second: str) -> None:
    nodes = start_cluster(new_node, (first, second))
    load = Load(nodes, 500)
    load.start()
    wait_until(lambda: load.writes > 2000, "the load runs")
    for source, target in (nodes, reversed(nodes), nodes):
        seen = load.writes
        task = begin(target, 0, 50)
        wait_until(
            lambda source=source, target=target, task=task: is_completed(source, target, task),
            "the migration is completed",
        )
        wait_until(lambda seen=seen: load.writes > seen + 1000, "the load goes on")
    load.is_over.set()
    load.join()
    assert not load.wrong
    owner = nodes.owner_of(0)
    for name, value in load.acknowledged.items():
        assert owner.call("GET", name).value == str(value).encode()
    wait_until(lambda: nodes[0].call("DBSIZE").value == 0, "nothing is left at the source")


def test_a_key_that_lives_on_is_not_lost_on_its_way(new_node: NewNode) -> None:
    nodes = start_cluster(new_node, ("redis", "streamd"))
    source, target = nodes
    for number in range(2000):
        source.must("SET", f"{TAG}{number}", "v")
    source.must("SET", f"{TAG}short", "v", "PX", "2500")
    source.must("CONFIG", "SET", "rdb-key-save-delay", "2000")  # µs per key: the snapshot takes some seconds
    task = begin(target, 0, 0)
    wait_until(lambda: status(source, task).get("state") == b"send-bulk-and-stream", "the snapshot is sent")
    source.must("PERSIST", f"{TAG}short")
    wait_until(lambda: is_completed(source, target, task), "the migration is completed")
    assert target.call("GET", f"{TAG}short").value == b"v"
    assert target.call("TTL", f"{TAG}short").value == -1


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-random", "volatile-ttl", "noeviction"])
@pytest.mark.parametrize("kind", KINDS)
def test_keys_that_arrive_are_not_evicted(new_node: NewNode, kind: str, policy: str) -> None:
    nodes = start_cluster(new_node, ("redis", kind))
    source, target = nodes
    count = 600
    names = [str(number) for number in range(40_000)]
    for name in [name for name in names if slot_of(name.encode()) < 1000][:count]:
        source.must("SET", name, "v" * 5000, "PXAT", "4102444800000")  # before the own keys
    for name in [name for name in names if slot_of(name.encode()) >= 9000][:count]:
        target.must("SET", name, "v" * 5000, "PXAT", "4102444900000")
    target.must("CONFIG", "SET", "maxmemory-policy", policy)
    used = int(target.call("INFO", "memory").value.split(b"used_memory:")[1].split(b"\r")[0])
    target.must("CONFIG", "SET", "maxmemory", str(used + count * 5000 // 2))
    source.must("CONFIG", "SET", "rdb-key-save-delay", "2000")  # µs per key: the snapshot takes more than a second
    task = begin(target, 0, 999)
    wait_until(lambda: is_completed(target, source, task), "the migration is completed")  # commands make room
    target.must("CONFIG", "SET", "maxmemory", "0")
    arrived = sum(int(target.call("CLUSTER", "COUNTKEYSINSLOT", str(slot)).value) for slot in range(1000))
    own = int(target.call("DBSIZE").value) - arrived
    if policy == "noeviction":
        assert (own, arrived) == (count, count)
    else:
        assert own < count * 0.8
        assert arrived >= count * 0.9  # those of others may go as soon as they are served here
    wait_until(lambda: source.call("DBSIZE").value == 0, "nothing is left at the source")


def test_keys_that_do_not_fit_stay_where_they_are(new_node: NewNode) -> None:
    nodes = start_cluster(new_node, ("streamd", "streamd"))
    source, target = nodes
    count = 100
    for number in range(count):
        source.must("SET", f"{TAG}{number}", "v" * 50_000)
    used = int(target.call("INFO", "memory").value.split(b"used_memory:")[1].split(b"\r")[0])
    target.must("CONFIG", "SET", "maxmemory", str(used + 2_000_000))
    target.must("CLUSTER", "SETSLOT", "0", "IMPORTING", nodes.id_of(source))
    source.must("CLUSTER", "SETSLOT", "0", "MIGRATING", nodes.id_of(target))
    answer = b""
    for number in range(count):
        answer = source.call("MIGRATE", "127.0.0.1", str(target.port), f"{TAG}{number}", "0", "60000").value
        if answer != b"OK":
            break
    assert answer.startswith(b"ERR Target instance replied with error: OOM")
    here, there = (int(node.call("CLUSTER", "COUNTKEYSINSLOT", "0").value) for node in nodes)
    assert here + there == count
    assert 0 < here < count
    target.must("CONFIG", "SET", "maxmemory", "0")
    names = [f"{TAG}{number}" for number in range(count)]
    source.must("MIGRATE", "127.0.0.1", str(target.port), "", "0", "60000", "KEYS", *names)
    assert target.call("CLUSTER", "COUNTKEYSINSLOT", "0").value == count


def test_the_source_hands_over_as_soon_as_the_target_has_the_snapshot(new_node: NewNode) -> None:
    """Whether the child has ended or not: here it cannot, since nobody reads what it writes."""
    nodes = start_cluster(new_node, ("streamd", "streamd"), enable_debug_command="yes")
    source = nodes[0]
    source.must("DEBUG", "POPULATE", "1", f"{TAG}large", "30000000")
    with Wire(source.port) as main, Wire(source.port) as channel:
        for wire in (main, channel):
            wire.call("DEBUG", "MARK-INTERNAL-CLIENT")
        main.call("CLUSTER", "SYNCSLOTS", "CONF", "NODE-ID", nodes.id_of(nodes[1]))
        assert main.call("CLUSTER", "SYNCSLOTS", "SYNC", "1" * 40, "0", "0").value == b"RDBCHANNELSYNCSLOTS"
        assert channel.call("CLUSTER", "SYNCSLOTS", "RDBCHANNEL", "1" * 40).value == b"SLOTSSNAPSHOT"
        main.send("CLUSTER", "SYNCSLOTS", "ACK", "wait-stream-eof", "0")
        assert plain(main.read(20)) == [b"CLUSTER", b"SYNCSLOTS", b"STREAM-EOF"]
    source.must("CLUSTER", "MIGRATION", "CANCEL", "ALL")
    assert source.call("SET", f"{TAG}large", "v").value == b"OK"
    wait_until(lambda: source.call("SAVE").value == b"OK", "the child is gone")


def test_the_connections_of_a_migration_are_on_threads(new_node: NewNode) -> None:
    """The one for the snapshot leaves its thread, since a child writes to it."""
    source, target = start_cluster(new_node, ("streamd", "streamd"), io_threads="4")
    for number in range(100):
        source.must("SET", f"{TAG}{number}", "v" * 10_000)
    task = begin(target, 0, 999)
    wait_until(lambda: is_completed(source, target, task), "the migration is completed")
    assert target.must("GET", f"{TAG}99").value == b"v" * 10_000


def test_slots_that_have_left_are_deleted_before_they_come_back(new_node: NewNode) -> None:
    nodes = start_cluster(new_node, ("streamd", "streamd"))
    source, target = nodes
    for number in range(4000):
        source.must("SET", f"{TAG}{number}", "v")
    for _ in range(3):
        task = begin(target, 0, 999)
        wait_until(lambda: is_completed(source, target, task), "the migration is completed")  # noqa: B023
        wait_until(lambda: b"active_trim_running:0" in source.call("CLUSTER", "INFO").value, "all are deleted")  # noqa: B023
        assert source.call("DBSIZE").value == 0
        assert target.call("DBSIZE").value == 4000
        nodes.wait()
        source, target = target, source


@pytest.mark.parametrize(("first", "second"), [("streamd", "streamd"), ("redis", "streamd"), ("streamd", "redis")])
@pytest.mark.parametrize("victim", ["source", "target"])
def test_the_old_owner_keeps_the_slots_when_a_node_is_killed(
    new_node: NewNode, first: str, second: str, victim: str
) -> None:
    nodes = start_cluster(new_node, (first, second), appendonly="yes", appendfsync="always")
    source, target = nodes
    names = [f"{TAG}{number}" for number in range(1000)]
    for name in names:
        source.must("SET", name, "v")
    source.must("CONFIG", "SET", "rdb-key-save-delay", "5000")
    task = begin(target, 0, 0)
    wait_until(lambda: status(source, task).get("state") == b"send-bulk-and-stream", "the snapshot is sent")
    wait_until(lambda: int(target.info("stats")["total_net_input_bytes"]) > 0, "something arrives")
    killed, other = (source, target) if victim == "source" else (target, source)
    killed.kill()
    wait_until(lambda: status(other, task).get("state") == b"failed", "the other one notices")
    if other is target:
        wait_until(lambda: target.call("DBSIZE").value == 0, "what has arrived is deleted")
        assert target.call("CLUSTER", "MIGRATION", "CANCEL", "ALL").value == 1
    killed.start()
    nodes.wait()
    assert nodes.owner_of(0) is source
    assert target.call("DBSIZE").value == 0
    assert source.call("EXISTS", *names).value == len(names)
    source.must("CONFIG", "SET", "rdb-key-save-delay", "0")
    task = begin(target, 0, 0)
    wait_until(lambda: is_completed(source, target, task), "the migration is completed")
    assert target.call("EXISTS", *names).value == len(names)


@pytest.mark.parametrize(("first", "second"), [("streamd", "streamd"), ("redis", "streamd"), ("streamd", "redis")])
def test_flushall_ends_a_migration(new_node: NewNode, first: str, second: str) -> None:
    nodes = start_cluster(new_node, (first, second))
    source, target = nodes
    for number in range(2000):
        source.must("SET", f"{TAG}{number}", "v")
    source.must("CONFIG", "SET", "rdb-key-save-delay", "5000")
    task = begin(target, 0, 0)
    wait_until(lambda: status(source, task).get("state") == b"send-bulk-and-stream", "the snapshot is sent")
    source.must("FLUSHALL")
    told = status(source, task)
    assert told["state"] == b"canceled"
    assert told["last_error"] == (
        b"Cancelled due to FLUSHALL (state: send-bulk-and-stream, rdb_channel_state: rdbchannel-transfer)"
    )
    source.must("SET", f"{TAG}new", "v")
    source.must("CONFIG", "SET", "rdb-key-save-delay", "0")
    wait_until(lambda: is_completed(source, target, task), "the second attempt succeeds")
    assert target.call("DBSIZE").value == 1
    assert status(target, task)["retries"] >= 1


@pytest.mark.parametrize(("first", "second"), [("streamd", "streamd"), ("redis", "streamd"), ("streamd", "redis")])
def test_replicas_follow(new_node: NewNode, first: str, second: str) -> None:
    nodes = start_cluster(new_node, (first, second), (first, second))
    source, target, source_copy, target_copy = nodes
    source.must("SET", "{b}stays", "v")
    answers = fill(source)
    task = begin(target, 0, 99)
    wait_until(lambda: is_completed(source, target, task), "the migration is completed")
    nodes.wait()
    wait_until(lambda: source_copy.call("DBSIZE").value == 1, "the keys are gone at the copy of the source")
    target_copy.must("READONLY")
    wait_until(lambda: target_copy.call("DBSIZE").value == 7, "the copy of the target has the keys")
    assert_has(target_copy, {name: of for name, of in answers.items() if "XPENDING" not in name})


def begin_slowly(source: Node, target: Node) -> tuple[bytes, list[str]]:
    """Begin to move slot 0, and wait until some of its keys have arrived: the task, and the names of all keys."""
    names = [f"{TAG}{number}" for number in range(2000)]
    for name in names:
        source.must("SET", name, "v")
    source.must("CONFIG", "SET", "rdb-key-save-delay", "10000")
    task = begin(target, 0, 0)
    wait_until(lambda: keys_inside(target) > 0, "keys arrive")
    return task, names


@pytest.mark.parametrize("kind", KINDS)
def test_keys_that_arrive_are_not_shown(new_node: NewNode, kind: str) -> None:
    nodes = start_cluster(new_node, ("streamd", kind))
    source, target = nodes
    task, names = begin_slowly(source, target)
    assert target.call("DBSIZE").value == 0
    assert target.call("RANDOMKEY").value is None
    assert target.call("KEYS", "*").value == ()
    assert target.call("KEYS", f"{TAG}*").value == ()
    assert plain(target.call("SCAN", "0", "COUNT", "10000")) == [b"0", []]
    assert target.call("CLUSTER", "COUNTKEYSINSLOT", "0").value == 0
    assert target.call("CLUSTER", "GETKEYSINSLOT", "0", "10").value == ()
    assert source.call("DBSIZE").value == len(names)
    assert len(plain(source.call("KEYS", "*"))) == len(names)
    assert keys_inside(target) > 0
    assert status(target, task)["state"] == b"accumulate-buffer"
    source.must("CONFIG", "SET", "rdb-key-save-delay", "0")
    target.call("CLUSTER", "MIGRATION", "CANCEL", "ALL")
    task = begin(target, 0, 0)
    wait_until(lambda: is_completed(source, target, task), "the migration is completed")
    assert target.call("DBSIZE").value == len(names)
    wait_until(lambda: source.call("DBSIZE").value == 0, "the keys are gone at the source")


@pytest.mark.parametrize(("kind", "copy_kind"), [*product(KINDS, KINDS)])
def test_a_replica_that_synchronizes_during_an_import_knows_of_it(new_node: NewNode, kind: str, copy_kind: str) -> None:
    nodes = start_cluster(new_node, ("streamd", kind))
    source, target = nodes
    task, names = begin_slowly(source, target)
    copy = start_cluster_node(new_node, copy_kind)
    nodes.append(copy)
    join([target, copy])
    wait_until(lambda: nodes.id_of(target) in nodes.lines(copy), "the replica knows its primary")
    copy.must("CLUSTER", "REPLICATE", nodes.id_of(target))
    wait_until(
        lambda: copy.info("replication").get("master_link_status") == "up" and keys_inside(copy) > 0,
        "the replica has what has arrived",
    )
    assert status(target, task)["state"] == b"accumulate-buffer"
    target.kill()
    copy.must("CLUSTER", "FAILOVER", "TAKEOVER")
    wait_until(lambda: "role:master" in nodes.ask(copy, "INFO", "replication"), "the replica takes over")
    wait_until(lambda: status(source, task)["state"] in (b"canceled", b"failed"), "the source notices")
    wait_until(lambda: keys_inside(copy) == 0, "what has arrived is deleted")
    assert nodes.owner_of_or_none(0) is source
    assert source.call("EXISTS", *names).value == len(names)


@pytest.mark.parametrize("mode", ["hand-over", "take-over"])
@pytest.mark.parametrize("side", ["source", "target"])
def test_a_failover_ends_a_migration(new_node: NewNode, side: str, mode: str) -> None:
    nodes = start_cluster(new_node, ("streamd", "streamd"), ("streamd", "streamd"))
    source, target, source_copy, target_copy = nodes
    names = [f"{TAG}{number}" for number in range(2000)]
    for name in names:
        source.must("SET", name, "v")
    source.must("CONFIG", "SET", "rdb-key-save-delay", "5000")
    before, after = (source, source_copy) if side == "source" else (target, target_copy)
    wait_until(
        lambda: (
            source_copy.info("replication")["slave_repl_offset"] == source.info("replication")["master_repl_offset"]
        ),
        "the copy has everything",
    )
    task = begin(target, 0, 0)
    wait_until(
        lambda: int(target.info("keyspace").get("db0", "keys=0,").split("=")[1].split(",")[0]) > 0, "keys arrive"
    )
    if mode == "take-over":
        before.kill()
        after.must("CLUSTER", "FAILOVER", "TAKEOVER")
    else:
        after.must("CLUSTER", "FAILOVER")
    owner = source_copy if side == "source" else source
    wait_until(lambda: "role:master" in nodes.ask(after, "INFO", "replication"), "the copy takes over")
    wait_until(lambda: nodes.owner_of_or_none(0) is owner, "the owner has the slot")
    other = target if side == "source" else source
    wait_until(lambda: status(other, task)["state"] in (b"canceled", b"failed"), "the other side notices")
    if other is target:
        wait_until(lambda: status(target, task)["state"] == b"canceled", "the other side does not try again")
    holder = target if side == "source" else target_copy
    wait_until(lambda: holder.call("DBSIZE").value == 0, "what has arrived is deleted")
    wait_until(lambda: owner.call("EXISTS", *names).value == len(names), "everything is where it was")
