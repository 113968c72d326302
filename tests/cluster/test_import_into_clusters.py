"""`streamd import` into a cluster: keys go to the owners of their slots, while slots move, primaries fail, and the source is written to."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from support.cluster.nodes import Nodes, start_cluster, start_cluster_node
from support.importing import Running, run_import, words_of
from support.replicas.nodes import Node
from support.servers import Server, eventually

from streamd.client.client_errors import UnreachableError
from streamd.client.key_slots import SLOT_COUNT, slot_of
from streamd.client.place import Place
from streamd.importing import run
from streamd.importing.cluster_target import ClusterTarget
from streamd.importing.into_cluster import IntoCluster
from streamd.importing.peers import ImportFailedError, Peer, source_slots
from streamd.importing.replication_reader import Stream

pytestmark = [pytest.mark.long, pytest.mark.real]

NewNode = Callable[..., Node]
StartServer = Callable[..., Server]
DEADLINE_S = 120
KEYS = 3000


def client_of(port: int, db: int = 0) -> redis.Redis:
    return redis.Redis(port=port, db=db, protocol=2)


def fill(client: redis.Redis) -> None:
    pipe = client.pipeline(transaction=False)
    for at in range(KEYS):
        pipe.set(f"count:{at}", at, px=10_000_000 if at % 2 else None)
    for at in range(60):
        for number in range(30):
            pipe.xadd(f"readings:{at}", {"sensor": at, "value": number}, id=f"{number + 1}-0")
        pipe.xgroup_create(f"readings:{at}", "workers", "0")
        pipe.xreadgroup("workers", f"worker-{at % 3}", {f"readings:{at}": ">"}, count=10)
        pipe.hset(f"hash:{at}", mapping={"a": at, "b": "x" * 100})
        pipe.rpush(f"list:{at}", *range(20))
        pipe.sadd(f"set:{at}", *range(20))
        pipe.zadd(f"ranks:{at}", {"a": at, "b": 2})
    pipe.execute()


class Load(threading.Thread):
    """Writes of all kinds, which must be applied once, and in order, until it is stopped or nobody answers."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.written = 0
        self._client = client_of(port)
        self._ends = threading.Event()
        self._random = random.Random(1)
        self.start()

    def run(self) -> None:
        with self._client as client:
            while not self._ends.wait(0.003):  # a source that is never idle would not show that the import catches up
                at = self._random.randrange(60)
                other = self._random.randrange(60)
                pipe = client.pipeline(transaction=self._random.random() < 0.3)
                pipe.incr(f"number:{at}")
                pipe.rpush(f"list:{at}", self.written)
                pipe.xadd(f"readings:{at}", {"n": self.written})
                pipe.xreadgroup("workers", "late", {f"readings:{at}": ">"}, count=5)
                pipe.lmove(f"list:{at}", f"list:{other}")
                pipe.rename(f"number:{at}", f"number:{other}")
                pipe.zunionstore(f"ranks:{other}", [f"ranks:{at}", f"ranks:{other}"])
                pipe.set("greeting", "x" * at, px=10_000_000)
                pipe.set(
                    f"new:{self._random.randrange(5000)}", self.written, px=self._random.choice([None, 10_000_000])
                )
                pipe.delete(f"new:{self._random.randrange(5000)}", f"count:{self._random.randrange(KEYS)}")
                pipe.expire(f"count:{self._random.randrange(KEYS)}", 5000)
                try:
                    pipe.execute()
                except redis.ConnectionError:
                    return
                self.written += 1

    def stop(self) -> None:
        self._ends.set()
        self.join()


@pytest.fixture
def source(new_redis: StartServer) -> Server:
    return new_redis(repl_diskless_sync_delay="0")


@pytest.fixture
def load(source: Server) -> Iterator[Load]:
    with client_of(source.port) as client:
        fill(client)
    running = Load(source.port)
    yield running
    running.stop()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def start_one(*arguments: Any) -> Running:
        started.append(Running(words_of(*arguments), tmp_path / f"import{len(started)}.log"))
        return started[-1]

    yield start_one
    for each in started:
        each.close()


def data_of(clients: list[redis.Redis]) -> dict[bytes, Any]:
    """All keys with their values, groups and pending entries, and whether they expire; times are left out."""
    found: dict[bytes, Any] = {}
    for client in clients:
        with client:
            _add_data(client, found)
    return found


def _add_data(client: redis.Redis, found: dict[bytes, Any]) -> None:
    for key in client.scan_iter(count=1000):
        kind = client.type(key)
        value: Any
        if kind == b"stream":
            groups = client.xinfo_groups(key)
            pending = [
                [
                    (each["message_id"], each["consumer"], each["times_delivered"])
                    for each in client.xpending_range(key, group["name"], "-", "+", 10_000)
                ]
                for group in groups
            ]
            value = client.xrange(key), groups, pending
        elif kind == b"string":
            value = client.get(key)
        elif kind == b"hash":
            value = client.hgetall(key)
        elif kind == b"list":
            value = client.lrange(key, 0, -1)
        elif kind == b"set":
            value = sorted(client.smembers(key))
        else:
            value = client.zrange(key, 0, -1, withscores=True)
        assert key not in found
        found[key] = value, client.ttl(key) > 0


def assert_same_data(source: Server, nodes: Nodes) -> None:
    nodes.wait()  # on a busy machine a node may seem to have failed
    primaries = [node for node in nodes.running if "role:master" in nodes.ask(node, "INFO", "replication")]
    theirs = data_of([client_of(source.port)])
    ours = data_of([client_of(node.port) for node in primaries])
    assert ours.keys() == theirs.keys()
    assert [key for key in theirs if ours[key] != theirs[key]] == []


class Moves(threading.Thread):
    """Moves slots whose keys are written to, key by key, from the first node to the second and back."""

    def __init__(self, nodes: Nodes) -> None:
        super().__init__()
        self.moved = 0
        keys = (b"%s:%d" % (name, at) for name in (b"number", b"list", b"readings") for at in range(60))
        self._slots = sorted(slot for slot in map(slot_of, keys) if slot < 5461)
        self._nodes = nodes
        self._ends = threading.Event()
        self._clients = [client_of(node.port) for node in nodes]
        self.start()

    def run(self) -> None:
        while not self._ends.is_set():
            for at in (0, 1):
                for slot in self._slots:
                    if not self._ends.is_set():
                        self._move(slot, at, 1 - at)

    def _move(self, slot: int, source: int, target: int) -> None:
        ids = [self._nodes.id_of(node) for node in self._nodes]
        self._clients[target].execute_command("CLUSTER SETSLOT", slot, "IMPORTING", ids[source])
        self._clients[source].execute_command("CLUSTER SETSLOT", slot, "MIGRATING", ids[target])
        while keys := self._clients[source].execute_command("CLUSTER GETKEYSINSLOT", slot, 2):
            self._clients[source].execute_command(
                "MIGRATE", "127.0.0.1", self._nodes[target].port, "", 0, 5000, "KEYS", *keys
            )
        for client in (self._clients[target], self._clients[source], self._clients[2]):
            client.execute_command("CLUSTER SETSLOT", slot, "NODE", ids[target])
        self.moved += 1

    def stop(self) -> None:
        self._ends.set()
        self.join()
        for client in self._clients:
            client.close()


def finish(running: Running, load: Load, more: int = 200) -> None:
    """Let the source be written to for some time, then end the import."""
    goal = load.written + more
    eventually(lambda: load.written > goal, DEADLINE_S, "more writes")
    load.stop()
    running.press_enter()
    assert running.end() == 0, running.said()
    assert "The cluster has all of them" in running.said()


@pytest.mark.parametrize("kind", ["streamd", "redis"])
def test_everything_arrives_at_the_owner_of_its_slot(
    new_node: NewNode, source: Server, load: Load, start: Callable[..., Running], kind: str
) -> None:
    nodes = start_cluster(new_node, [kind] * 3)
    running = start(source, nodes[1], "--follow")
    running.wait_for("In sync")
    finish(running, load)
    assert_same_data(source, nodes)


@pytest.mark.parametrize("moment", ["while keys are copied", "while it follows"])
def test_slots_that_move_lose_nothing(
    new_node: NewNode, source: Server, load: Load, start: Callable[..., Running], moment: str
) -> None:
    nodes = start_cluster(new_node, ["streamd"] * 3)
    moves = Moves(nodes) if moment == "while keys are copied" else None
    running = start(source, nodes[0], "--follow")
    running.wait_for("In sync")
    moves = moves or Moves(nodes)
    goal = moves.moved + 100
    eventually(lambda: moves.moved > goal or not moves.is_alive(), DEADLINE_S, "moves")
    assert moves.is_alive()
    moves.stop()
    finish(running, load)
    assert_same_data(source, nodes)


class Steps:
    """An import into a cluster whose steps are those of the test: its thread is not started."""

    def __init__(self, source: Server, nodes: Nodes, db: int = 0, *, only: bool = False) -> None:
        self._source = source
        self.following = IntoCluster(
            Peer("source", Place(port=source.port)), ClusterTarget(Place(port=nodes[0].port)), db=db, only=only,
            slots=range(SLOT_COUNT), skip=False, has_functions=False,
        )  # fmt: skip

    def __enter__(self) -> Steps:
        return self

    def __exit__(self, *exc: object) -> None:
        for each in (self.following._stream, self.following._source, self.following._target):
            each.close()

    def follow(self) -> None:
        """Step until the cluster has all that the source has now."""
        with client_of(self._source.port) as client:
            goal = client.info("replication")["master_repl_offset"]
        self.until(lambda: self.following.was_linked and self.following.last_offset() >= goal, "the changes")

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Step until a condition holds."""
        eventually(lambda: self.following._step() or condition(), DEADLINE_S, what)


def test_commands_older_than_a_copy_are_passed_over(new_node: NewNode, source: Server) -> None:
    nodes = start_cluster(new_node, ["streamd"] * 3)
    with client_of(source.port) as client, Steps(source, nodes) as steps:
        client.rpush("list", 1)
        steps.follow()
        client.rpush("list", 2)
        steps.following._copy([b"list"])  # the stream has not come to this point
        client.rpush("list", 3)
        steps.follow()
        assert data_of([client_of(node.port) for node in nodes]) == {b"list": ([b"1", b"2", b"3"], False)}
        assert data_of([client]) == {b"list": ([b"1", b"2", b"3"], False)}


class BrokenStream(Stream):
    """A stream whose link breaks once, when what has been read is acknowledged."""

    breaks_behind: int | None = None

    def acknowledge(self) -> None:
        if self.breaks_behind is not None and self.offset > self.breaks_behind:
            self.breaks_behind = None
            self.close()
            raise UnreachableError("the connection broke")
        super().acknowledge()


def test_a_link_that_breaks_among_commands_loses_none(new_node: NewNode, source: Server) -> None:
    nodes = start_cluster(new_node, ["streamd"] * 3)
    with client_of(source.port) as client, Steps(source, nodes) as steps:
        stream = BrokenStream(Place(port=source.port))
        steps.following._stream = stream
        client.mset({"a": 1, "b": 1})
        steps.follow()
        stream.breaks_behind = stream.offset
        client.incr("a")
        client.wait(1, 1)  # the source asks how far its replicas are
        client.incr("b")
        steps.follow()
        assert stream.breaks_behind is None
    assert_same_data(source, nodes)


def test_the_offset_is_that_of_the_oldest_change_that_is_still_to_be_copied(new_node: NewNode, source: Server) -> None:
    nodes = start_cluster(new_node, ["streamd"] * 3)
    with client_of(source.port) as client, Steps(source, nodes) as steps:
        client.set("count", 1)
        steps.follow()
        client.mset({f"key:{at}": at for at in range(40)})  # in several slots: these keys are copied
        goal = client.info("replication")["master_repl_offset"]
        client.mset({f"later:{at}": at for at in range(40)})
        steps.following._at_once = 1
        steps.until(lambda: steps.following.last_offset() >= goal, "the changes")
        assert sum(node.must("DBSIZE").value for node in nodes) >= 41
        steps.follow()
    assert_same_data(source, nodes)


@pytest.mark.parametrize("kind", ["streamd", "redis"])
def test_keys_that_come_from_other_databases_arrive(new_node: NewNode, source: Server, kind: str) -> None:
    nodes = start_cluster(new_node, [kind] * 3)
    with client_of(source.port) as client, client_of(source.port, 5) as other, Steps(source, nodes, only=True) as steps:
        client.mset({"copied": 1, "goes": 1})
        steps.follow()
        other.mset({"moved": 2, "origin": 2, "stays": 2})
        other.move("moved", 0)
        other.copy("origin", "copied", destination_db=0, replace=True)
        client.move("goes", 5)
        client.copy("copied", "away", destination_db=5)
        steps.follow()
    assert_same_data(source, nodes)


@pytest.mark.parametrize("form", ["8.6", "8.8"])
def test_pending_entries_without_a_consumer_arrive(new_node: NewNode, new_streamd: StartServer, form: str) -> None:
    origin = new_streamd(rdb_form=form)
    nodes = start_cluster(new_node, ["streamd"] * 3)
    with client_of(origin.port) as client, Steps(origin, nodes) as steps:
        client.xadd("jobs", {"n": 1}, id="1-0")
        client.xgroup_create("jobs", "workers", "0")
        steps.follow()
        client.xreadgroup("workers", "worker", {"jobs": ">"})
        client.execute_command("XNACK", "jobs", "workers", "FAIL", "IDS", 1, "1-0")
        steps.follow()
        with client_of(nodes.owner_of(slot_of(b"jobs")).port) as owner:
            for each in (client, owner):
                assert each.xpending("jobs", "workers")["pending"] == 1
                assert [found["name"] for found in each.xinfo_consumers("jobs", "workers")] == [b"worker"]


def test_an_import_whose_target_may_have_lost_something_is_not_complete(new_node: NewNode, source: Server) -> None:
    nodes = start_cluster(new_node, ["streamd"] * 3, cluster_node_timeout="60000")
    owner = nodes.owner_of(slot_of(b"orders"))
    with client_of(source.port) as client, Steps(source, nodes) as steps:
        following = steps.following
        client.set("orders", 1)
        steps.follow()
        moment = time.monotonic()
        assert not following.is_whole_since(moment)  # nobody has looked since then
        steps.until(lambda: following.is_whole_since(moment), "a look at all primaries")
        owner.kill()
        owner.start()
        moment = time.monotonic()
        while not following.was_linked:
            assert not following.is_whole_since(moment)
            assert following.last_offset() == following.state().offset == 0
            following._step()
        steps.until(lambda: following.is_whole_since(moment), "the keys")
        assert owner.must("GET", "orders").value == b"1"
    assert_same_data(source, nodes)


def test_commands_count_in_capitals_or_not(new_node: NewNode, source: Server) -> None:
    nodes = start_cluster(new_node, ["streamd"] * 3)
    owner = nodes.owner_of(slot_of(b"orders"))
    with client_of(source.port) as client, Steps(source, nodes) as steps:
        for name in ("PERSIST", "persist"):
            client.set("orders", name, px=10_000_000)
            steps.follow()
            owner.must("DEL", "orders")  # as if it had expired a little earlier
            client.execute_command(name, "orders")
            steps.follow()
            assert owner.must("GET", "orders").value == name.encode()


def test_a_command_whose_keys_are_not_told_ends_the_import(new_node: NewNode, source: Server) -> None:
    nodes = start_cluster(new_node, ["streamd"] * 3)
    with client_of(source.port) as client, Steps(source, nodes) as steps:
        client.rpush("list", 2, 1)
        steps.follow()
        client.execute_command("ACL", "SETUSER", "default", "-command|getkeys")
        client.execute_command("SORT", "list", "STORE", "sorted")
        with pytest.raises(ImportFailedError, match=r"refuses COMMAND GETKEYS: NOPERM"):
            steps.follow()
        client.execute_command("ACL", "SETUSER", "default", "+command|getkeys")
        client.execute_command("SORT", "list", "STORE", "sorted")
        steps.follow()
    assert_same_data(source, nodes)


def test_a_primary_that_loads_is_scanned_again(new_node: NewNode) -> None:
    nodes = start_cluster(
        new_node, ["redis"] * 3, enable_debug_command="yes", loading_process_events_interval_bytes="1024"
    )
    with redis.Redis(port=nodes[0].port, socket_timeout=DEADLINE_S) as client:
        owned = [key for at in range(6000) if nodes.owner_of(slot_of(key := b"key:%d" % at)) is nodes[0]]
        for key in owned:
            client.set(key, "x" * 100)
        target = ClusterTarget(Place(port=nodes[0].port))
        eventually(lambda: target.refresh() or not target.is_down, DEADLINE_S, "the cluster")
        client.config_set("key-load-delay", 2000)
        reload = threading.Thread(target=lambda: client.execute_command("DEBUG", "RELOAD"))
        reload.start()
        eventually(lambda: "LOADING" in str(nodes[0].call("DBSIZE")), DEADLINE_S, "the load")
        assert sum(map(len, target.scan())) < len(owned)
        assert target.is_down
        reload.join()
        found: set[int] = set()
        eventually(lambda: found.update(target.refresh()) or not target.is_down, DEADLINE_S, "the cluster")
        assert slot_of(owned[0]) in found
        assert sum(map(len, target.scan())) == len(owned)
        target.close()


def test_keys_go_to_a_slot_that_is_half_moved(new_node: NewNode, source: Server) -> None:
    nodes = start_cluster(new_node, ["streamd"] * 3)
    owner = nodes.owner_of(slot_of(b"orders"))
    other = next(node for node in nodes if node is not owner)
    slot = str(slot_of(b"orders"))
    other.must("CLUSTER", "SETSLOT", slot, "IMPORTING", nodes.id_of(owner))
    owner.must("CLUSTER", "SETSLOT", slot, "MIGRATING", nodes.id_of(other))
    with client_of(source.port) as client:
        client.set("orders", 1)
    run_import(source, nodes[0])
    assert owner.must("CLUSTER", "COUNTKEYSINSLOT", slot).value == 0
    assert other.must("CLUSTER", "COUNTKEYSINSLOT", slot).value == 1


def test_slots_that_move_at_once_lose_nothing(
    new_node: NewNode, source: Server, load: Load, start: Callable[..., Running]
) -> None:
    nodes = start_cluster(new_node, ["streamd"] * 3)
    running = start(source, nodes[0], "--follow")
    running.wait_for("In sync")
    for target, ranges in ((1, (0, 3000)), (2, (3001, 4000)), (2, (6000, 7000)), (0, (0, 3000))):
        task = nodes[target].must("CLUSTER", "MIGRATION", "IMPORT", *map(str, ranges)).value

        def is_over(target: int = target, task: Any = task) -> bool:
            return "completed" in str(nodes[target].must("CLUSTER", "MIGRATION", "STATUS", "ID", task).plain())

        eventually(is_over, DEADLINE_S, "the migration")
    finish(running, load)
    assert_same_data(source, nodes)


@pytest.mark.parametrize("moment", ["while keys are copied", "while it follows"])
@pytest.mark.parametrize("kind", ["streamd", "redis"])
def test_a_primary_that_fails_is_replaced_without_a_loss(
    new_node: NewNode, source: Server, load: Load, start: Callable[..., Running], moment: str, kind: str
) -> None:
    nodes = start_cluster(new_node, [kind] * 3, [kind] * 3)
    running = start(source, nodes[1], "--follow")
    running.wait_for("copying" if moment == "while keys are copied" else "lag")
    nodes[0].kill()
    nodes.wait("the replica takes over")
    finish(running, load)
    assert_same_data(source, nodes)


def test_what_a_failover_loses_is_copied_again(
    new_node: NewNode, source: Server, start: Callable[..., Running]
) -> None:
    nodes = start_cluster(
        new_node, ["streamd"] * 3, ["streamd"] * 3, repl_timeout="600", cluster_replica_validity_factor="0"
    )
    running = start(source, nodes[1], "--follow")
    running.wait_for("In sync")
    primary, replica = nodes[0], nodes.replica_of(nodes[0])
    replica.freeze()  # it gets nothing of what follows
    with client_of(source.port) as client:
        fill(client)
        eventually(lambda: f"{client.dbsize():,} keys" in running.said(), DEADLINE_S, "all keys")
    primary.kill()
    running.press_enter()  # at once: what was acknowledged is in a replica, or is not
    replica.thaw()
    nodes.wait("the replica takes over")
    assert running.end() == 0, running.said()
    assert_same_data(source, nodes)


def test_a_primary_that_starts_again_without_data_is_filled_again(
    new_node: NewNode, source: Server, load: Load, start: Callable[..., Running]
) -> None:
    nodes = start_cluster(new_node, ["streamd"] * 3, cluster_node_timeout="60000")
    running = start(source, nodes[1], "--follow")
    running.wait_for("In sync")
    nodes[0].kill()
    nodes[0].start()
    finish(running, load)
    assert_same_data(source, nodes)


@pytest.mark.parametrize("backlog", ["64mb", "16kb"])
def test_a_link_that_breaks_is_made_again(
    new_node: NewNode, source: Server, load: Load, start: Callable[..., Running], backlog: str
) -> None:
    nodes = start_cluster(new_node, ["streamd"] * 3)
    with client_of(source.port) as client:
        client.config_set("repl-backlog-size", backlog)
        running = start(source, nodes[0], "--follow")
        running.wait_for("In sync")
        for _ in range(3):
            client.execute_command("CLIENT", "KILL", "TYPE", "REPLICA")
            finish_some(load)
    finish(running, load)
    assert_same_data(source, nodes)


class Restarts:
    """A screen, on which the source is seen to be caught up with, whereupon it starts again without data, and is given a key."""

    def __init__(self, source: Server, *, starts: bool = True) -> None:
        self.source, self.starts = source, starts
        self.is_done = False
        self.lines: list[str] = []

    def line(self, text: str) -> None:
        self.lines.append(text)

    def progress(self, step: str, done: int, size: int, text: str) -> None:
        if step != "catching up" or self.is_done:
            return
        self.is_done = True
        self.source.process.kill()
        self.source.process.wait()
        if self.starts:
            self.source.start_again()
            with client_of(self.source.port) as client:
                client.set("after", 1)

    def finish(self) -> None:
        """Nothing is drawn."""


class NoSignals:
    """A user who waits for the end."""

    times = 0

    def wait(self, seconds: float, *, listens: bool = False) -> None:
        time.sleep(seconds)


def test_a_source_that_starts_again_without_data_is_followed_from_then_on(new_node: NewNode, source: Server) -> None:
    """What it had before is not waited for."""
    nodes = start_cluster(new_node, ["streamd"] * 3)
    with client_of(source.port) as client:
        fill(client)
        # Without followers, it has no offset.
        with_offset = Stream(Place(port=source.port))
        with_offset.open()
        client.mset({f"large:{at}": "x" * 1000 for at in range(1000)})
        with_offset.close()
    screen = Restarts(source)
    run.run_import(Place(port=source.port), Place(port=nodes[0].port), run.Plan(), screen, NoSignals())
    assert [line for line in screen.lines if "started again" in line] != []
    clients = [client_of(each.port) for each in nodes]
    assert data_of(clients).keys() == {b"after"}


def test_a_source_that_goes_during_an_import_is_an_error(
    new_node: NewNode, source: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "SOURCE_PATIENCE_S", 1.0)
    nodes = start_cluster(new_node, ["streamd"] * 3)
    with client_of(source.port) as client:
        fill(client)
    screen = Restarts(source, starts=False)
    with pytest.raises(ImportFailedError, match="for 1 s") as found:
        run.run_import(Place(port=source.port), Place(port=nodes[0].port), run.Plan(), screen, NoSignals())
    assert "\n" not in str(found.value)


def finish_some(load: Load) -> None:
    goal = load.written + 50
    eventually(lambda: load.written > goal, DEADLINE_S, "more writes")


def test_an_import_that_was_killed_is_started_again(
    new_node: NewNode, source: Server, load: Load, start: Callable[..., Running]
) -> None:
    nodes = start_cluster(new_node, ["streamd"] * 3)
    killed = start(source, nodes[0], "--follow")
    killed.wait_for("lag")
    killed.process.kill()
    killed.end()
    finish_some(load)
    with client_of(source.port) as client:
        client.delete("hash:1", "count:1")  # what is gone from the source must go from the cluster, too
    assert "of these slots: --replace drops them" in run_import(source, nodes[0], status=1)
    running = start(source, nodes[0], "--follow", "--replace")
    running.wait_for("In sync")
    finish(running, load)
    assert_same_data(source, nodes)


def test_commands_that_change_everything(new_node: NewNode, source: Server, start: Callable[..., Running]) -> None:
    nodes = start_cluster(new_node, ["streamd"] * 3)
    with client_of(source.port) as client, client_of(source.port, 5) as other:
        client.execute_command(
            "FUNCTION", "LOAD", "#!lua name=first\nredis.register_function('f', function() return 1 end)"
        )
        fill(client)
        running = start(f"redis://127.0.0.1:{source.port}/0", nodes[0], "--follow")
        running.wait_for("In sync")
        client.execute_command(
            "FUNCTION", "LOAD", "#!lua name=other\nredis.register_function('g', function() return 2 end)"
        )
        other.set("elsewhere", 1)
        client.flushdb()
        client.mset({f"later:{at}": at for at in range(100)})
        client.swapdb(0, 5)
        client.mset({f"latest:{at}": at for at in range(100)})
        client.sort("list", store="sorted")
        running.press_enter()
        assert running.end() == 0, running.said()
    assert_same_data(source, nodes)
    for node in nodes:
        assert node.must("FCALL", "g", "0").value == 2


def test_nodes_of_a_cluster_go_into_another_one_by_one(new_node: NewNode, start: Callable[..., Running]) -> None:
    sources = start_cluster(new_node, ["redis", "streamd"])
    nodes = start_cluster(new_node, ["streamd"] * 3)
    with redis.RedisCluster(host="127.0.0.1", port=sources[0].port) as client:
        for at in range(KEYS):
            client.set(f"count:{at}", at)
    for at, each in enumerate(sources):
        running = start(each, nodes[at], "--follow", "--until-lag", "0")
        assert running.end() == 0, running.said()
    theirs = data_of([client_of(node.port) for node in sources])
    assert data_of([client_of(node.port) for node in nodes]) == theirs
    assert "is itself a node of that cluster" in run_import(nodes[0], nodes[1], status=1)
    running = start(sources[0], nodes[0], "--follow", "--replace")
    running.wait_for("In sync")
    for node in sources:
        node.must("CLUSTER", "SETSLOT", "5", "NODE", sources.id_of(sources[1]))
    assert running.end() == 1
    assert "has other slots now" in running.said()


@pytest.mark.parametrize("kind", ["streamd", "redis"])
def test_the_slots_of_a_source_are_those_of_its_primary(new_node: NewNode, kind: str) -> None:
    nodes = start_cluster(new_node, [kind] * 2, [kind])
    nodes[0].must("CLUSTER", "SETSLOT", "5", "MIGRATING", nodes.id_of(nodes[1]))
    found = []
    for node in nodes:
        peer = Peer("source", Place(port=node.port))
        found.append(source_slots(peer))
        peer.close()
    assert found[0] | found[1] == frozenset(range(SLOT_COUNT))
    assert not found[0] & found[1]
    assert nodes.replica_of(nodes[0]) is nodes[2]
    assert found[2] == found[0]


def test_a_node_that_does_not_tell_its_slots_is_refused(new_node: NewNode) -> None:
    nodes = start_cluster(new_node, ["streamd"] * 3)
    member = start_cluster_node(new_node, "redis", rename_command='CLUSTER ""')
    assert "refuses CLUSTER NODES" in run_import(member, nodes[0], status=1)


def test_what_cannot_go_is_told(new_node: NewNode, source: Server, start: Callable[..., Running]) -> None:
    nodes = start_cluster(new_node, ["streamd"] * 3)
    with client_of(source.port) as client, client_of(source.port, 3) as other:
        other.set("elsewhere", 1)
        assert "has only database 0, the source uses number 3" in run_import(source, nodes[0], status=1)
        other.flushdb()
        assert "cannot be followed, which a cluster needs: --copy asks for it" in run_import(
            source, nodes[0], "--copy", status=1
        )
        client.execute_command("VADD", "vectors", "VALUES", 3, 1, 2, 3, "alice")
        client.set("text", 1)
        assert "Nothing was changed: 1 key cannot be taken" in run_import(source, nodes[0], status=1)
        assert all(node.must("DBSIZE").value == 0 for node in nodes)
        run_import(source, nodes[0], "--skip-unsupported")
        assert sum(node.must("DBSIZE").value for node in nodes) == 1
        client.delete("vectors")
        running = start(source, nodes[0], "--follow", "--replace")
        running.wait_for("In sync")
        client.execute_command("VADD", "vectors", "VALUES", 3, 1, 2, 3, "alice")
        assert running.end() == 1
        assert "does not accept vectors: ERR Bad data format" in running.said()
        client.delete("vectors")
        running = start(source, nodes[0], "--follow", "--replace")
        running.wait_for("In sync")
        other.set("elsewhere", 1)
        assert running.end() == 1
        assert "has had a change of database 3" in running.said()
    nodes[2].kill()
    eventually(lambda: nodes.state(nodes[0]) == "fail", DEADLINE_S, "the cluster is down")
    assert "does not serve all slots" in run_import(
        f"redis://127.0.0.1:{source.port}/0", nodes[0], "--replace", status=1
    )
