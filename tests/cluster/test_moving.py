"""A slot that is being moved: what both nodes answer, step by step. Every test runs on streamd and, to prove it, on Redis."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from support.cluster.nodes import Nodes, start_cluster
from support.cluster.redis_cli import cluster_cli, place
from support.replicas.nodes import Node, wait_until
from support.wire import Wire

pytestmark = [pytest.mark.real, pytest.mark.long]

NewNode = Callable[..., Node]


@pytest.fixture(scope="module", params=["streamd", "redis"])
def cluster(new_shared_node: NewNode, request: pytest.FixtureRequest) -> Nodes:
    return start_cluster(new_shared_node, (request.param, request.param))


class Move:
    """A slot on its way from one node to another. `tag` is a hash tag of the slot."""

    def __init__(self, nodes: Nodes, tag: str) -> None:
        self.nodes = nodes
        self.slot = str(nodes[0].call("CLUSTER", "KEYSLOT", tag).value)
        self.source = nodes.owner_of(int(self.slot))
        self.target = next(node for node in nodes if node is not self.source)

    def begin(self) -> None:
        self.target.must("CLUSTER", "SETSLOT", self.slot, "IMPORTING", self.nodes.id_of(self.source))
        self.source.must("CLUSTER", "SETSLOT", self.slot, "MIGRATING", self.nodes.id_of(self.target))

    def migrate(self, *keys: str) -> None:
        assert self.source.call("MIGRATE", "127.0.0.1", self.target.port, "", "0", "5000", "KEYS", *keys).value == b"OK"

    def end(self) -> None:
        for node in (self.target, self.source):
            node.must("CLUSTER", "SETSLOT", self.slot, "NODE", self.nodes.id_of(self.target))

    @property
    def ask(self) -> bytes:
        return f"ASK {self.slot} 127.0.0.1:{self.target.port}".encode()

    @property
    def moved_to_target(self) -> bytes:
        return f"MOVED {self.slot} 127.0.0.1:{self.target.port}".encode()

    @property
    def moved_to_source(self) -> bytes:
        return f"MOVED {self.slot} 127.0.0.1:{self.source.port}".encode()


@pytest.fixture
def connect() -> Iterator[Callable[..., Wire]]:
    with ExitStack() as open_wires:
        yield lambda node, protocol=2: open_wires.enter_context(node.connect(protocol, timeout_s=20))


TRY_AGAIN = b"TRYAGAIN Multiple keys request during rehashing of slot"


def test_keys_are_served_where_they_are(cluster: Nodes) -> None:
    move = Move(cluster, "m")
    source, target = move.source, move.target
    for name in ("{m}1", "{m}2"):
        source.must("SET", name, "v")
    move.begin()
    assert source.call("GET", "{m}1").value == b"v"
    assert source.call("MGET", "{m}1", "{m}2").value[1].value == b"v"
    assert source.call("GET", "{m}3").value == move.ask
    assert source.call("SET", "{m}3", "v").value == move.ask
    assert source.call("MGET", "{m}1", "{m}3").value == TRY_AGAIN
    assert target.call("GET", "{m}1").value == move.moved_to_source
    assert target.call("ASKING").value == b"OK"
    assert target.call("SET", "{m}3", "w").value == b"OK"
    assert target.call("GET", "{m}3").value == move.moved_to_source
    target.must("ASKING")
    assert target.call("MGET", "{m}3", "{m}1").value == TRY_AGAIN
    target.must("ASKING")
    assert target.call("MGET", "{m}3", "{m}3").value[0].value == b"w"
    target.must("ASKING")
    target.must("PING")
    assert target.call("GET", "{m}3").value == move.moved_to_source
    move.migrate("{m}1")
    assert source.call("GET", "{m}1").value == move.ask
    assert source.call("MGET", "{m}1", "{m}2").value == TRY_AGAIN
    assert source.call("CLUSTER", "GETKEYSINSLOT", move.slot, "10").value[0].value == b"{m}2"
    assert source.call("CLUSTER", "SETSLOT", move.slot, "NODE", cluster.id_of(target)).value.endswith(
        b"to a different node while I still hold keys for this hash slot."
    )
    move.migrate("{m}2")
    assert source.call("MGET", "{m}1", "{m}2").value == move.ask
    move.end()
    assert source.call("GET", "{m}1").value == move.moved_to_target
    assert [target.call("GET", f"{{m}}{number}").value for number in (1, 2, 3)] == [b"v", b"v", b"w"]
    assert target.call("CLUSTER", "COUNTKEYSINSLOT", move.slot).value == 3
    assert source.call("CLUSTER", "COUNTKEYSINSLOT", move.slot).value == 0


def test_asking_holds_for_a_whole_transaction(cluster: Nodes) -> None:
    move = Move(cluster, "t")
    target = move.target
    move.begin()
    target.must("ASKING")
    for words in (("MULTI",), ("SET", "{t}1", "v"), ("GET", "{t}1")):
        assert target.call(*words).value in (b"OK", b"QUEUED")
    assert [reply.value for reply in target.call("EXEC").value] == [b"OK", b"v"]
    assert target.call("GET", "{t}1").value == move.moved_to_source
    target.must("MULTI")
    assert target.call("GET", "{t}1").value == move.moved_to_source
    assert target.call("EXEC").value == b"EXECABORT Transaction discarded because of previous errors."
    move.end()


def test_exec_is_redirected_when_the_slot_has_left_since(cluster: Nodes) -> None:
    move = Move(cluster, "e")
    source = move.source
    source.must("MULTI")
    assert source.call("SET", "{e}1", "v").value == b"QUEUED"
    with source.connect(timeout_s=20) as other:
        target_id = cluster.id_of(move.target)
        for wire_call in (move.target.call, other.call):
            assert wire_call("CLUSTER", "SETSLOT", move.slot, "NODE", target_id).value == b"OK"
    assert source.call("EXEC").value == move.moved_to_target
    assert source.call("EXEC").value == b"ERR EXEC without MULTI"


def test_a_group_that_waits_is_sent_after_its_stream(cluster: Nodes, connect: Callable[..., Wire]) -> None:
    move = Move(cluster, "g")
    source, target = move.source, move.target
    source.must("XGROUP", "CREATE", "{g}s", "g", "$", "MKSTREAM")
    wire, next_wire = connect(source), connect(target)
    wire.send("XREADGROUP", "GROUP", "g", "c", "BLOCK", "0", "STREAMS", "{g}s", ">")
    wait_until(lambda: source.info("clients")["blocked_clients"] == "1", "the consumer waits")
    move.begin()
    move.migrate("{g}s")
    assert wire.read().value == move.ask
    assert next_wire.call("ASKING").value == b"OK"
    next_wire.send("XREADGROUP", "GROUP", "g", "c", "BLOCK", "0", "STREAMS", "{g}s", ">")
    wait_until(lambda: target.info("clients")["blocked_clients"] == "1", "the consumer waits there")
    target.must("ASKING")
    target.must("XADD", "{g}s", "1-1", "f", "v")
    assert next_wire.read().value[0].value[1].value[0].value[0].value == b"1-1"
    move.end()


def test_a_reader_of_a_missing_stream_is_asked_to_go_at_once(cluster: Nodes) -> None:
    move = Move(cluster, "r")
    move.begin()
    assert move.source.call("XREAD", "BLOCK", "0", "STREAMS", "{r}s", "$").value == move.ask
    move.end()


def test_keys_that_leave_are_invalidated_and_break_watch(cluster: Nodes, connect: Callable[..., Wire]) -> None:
    move = Move(cluster, "c")
    source = move.source
    source.must("SET", "{c}1", "v")
    cache, watcher = connect(source, 3), connect(source)
    assert cache.call("CLIENT", "TRACKING", "ON").value == b"OK"
    assert cache.call("GET", "{c}1").value == b"v"
    assert watcher.call("WATCH", "{c}1").value == b"OK"
    move.begin()
    move.migrate("{c}1")
    notice = cache.read()
    assert (notice.kind, notice.value[0].value, notice.value[1].value[0].value) == (">", b"invalidate", b"{c}1")
    move.source.must("CLUSTER", "SETSLOT", move.slot, "STABLE")
    assert watcher.call("MULTI").value == b"OK"
    assert watcher.call("GET", "{c}2").value == b"QUEUED"
    assert watcher.call("EXEC").kind == "*-1"
    move.end()


def test_a_slot_that_is_stable_again_is_moved_nowhere(cluster: Nodes) -> None:
    move = Move(cluster, "s")
    move.begin()
    for node, arrow, other in ((move.source, "->-", move.target), (move.target, "-<-", move.source)):
        assert f"[{move.slot}{arrow}{cluster.id_of(other)}]" in cluster.ask(node, "CLUSTER", "NODES")
        node.must("CLUSTER", "SETSLOT", move.slot, "STABLE")
        assert "[" not in cluster.ask(node, "CLUSTER", "NODES")
    assert move.source.call("GET", "{s}1").kind == "$-1"


def test_keys_that_were_left_behind_are_hidden(cluster: Nodes) -> None:
    move = Move(cluster, "h")
    source, target = move.source, move.target
    source.must("FLUSHALL")
    move.begin()
    target.must("ASKING")
    target.must("SET", "{h}1", "v")
    assert target.call("CLUSTER", "COUNTKEYSINSLOT", move.slot).value == 1
    for node in (source, target):
        node.must("CLUSTER", "SETSLOT", move.slot, "STABLE")
    assert target.call("CLUSTER", "COUNTKEYSINSLOT", move.slot).value == 0
    assert target.call("CLUSTER", "GETKEYSINSLOT", move.slot, "5").value == ()
    assert not any(reply.value == b"{h}1" for reply in target.call("KEYS", "*").value)
    assert not any(reply.value == b"{h}1" for reply in target.call("SCAN", "0", "COUNT", "1000").value[1].value)


@pytest.mark.parametrize(
    ("moved", "event"), [(0, "nothing"), (2, "nothing"), (3, "nothing"), (2, "kill"), (3, "kill"), (2, "fail-over")]
)
def test_fix_finds_keys_that_were_left_at_the_source(new_node: NewNode, moved: int, event: str) -> None:
    """The target claims the slot before the keys have moved, and whoever moved them has gone when the source hears of that."""
    replicas = ("streamd",) * 3 if event == "fail-over" else ()
    nodes = start_cluster(new_node, ("streamd",) * 3, replicas, appendonly="yes", appendfsync="always")
    move = Move(nodes, "r")
    source, target = move.source, move.target
    names = [f"{{r}}{number}" for number in range(5)]
    for name in names:
        source.must("XADD", name, "1-1", "f", "v")
    move.begin()
    if moved:
        move.migrate(*names[-moved:])
    target.must("CLUSTER", "SETSLOT", move.slot, "NODE", nodes.id_of(target))
    wait_until(lambda: is_open(nodes, move), "the source has heard of it")
    assert source.call("XLEN", names[0]).value == move.moved_to_target
    if event == "kill":
        source.kill()
        source.start()
    elif event == "fail-over":
        source = nodes[3 + nodes.index(source)]
        source.must("CLUSTER", "FAILOVER")
        wait_until(
            lambda: [role(each) for each in (move.source, source)] == [b"slave", b"master"],
            "the replica has taken over",
        )
        # No replica knows which slots are open.
        source.must("CLUSTER", "SETSLOT", move.slot, "IMPORTING", nodes.id_of(target))
    wait_until(lambda: all(nodes.state(node) == "ok" for node in nodes), "the cluster is whole")
    cluster_cli("fix", place(target))
    nodes.wait()
    assert "[" not in nodes.ask(source, "CLUSTER", "NODES")
    owner = nodes.owner_of(int(move.slot))
    assert [owner.call("XLEN", name).value for name in names] == [1] * 5
    assert source.call("DBSIZE").value + target.call("DBSIZE").value == 5


def test_a_source_stays_primary_for_keys_that_were_left_behind(new_node: NewNode) -> None:
    """Its last slots are claimed by others: a primary without slots would follow their owner, and drop its data."""
    nodes = start_cluster(new_node, ("streamd",) * 3, cluster_require_full_coverage="no")
    move = Move(nodes, "r")
    source, target = move.source, move.target
    source.must("XADD", "{r}1", "1-1", "f", "v")
    first, last = next(
        map(int, each.split("-")) for name, each in nodes.owners(source).items() if name == nodes.id_of(source)
    )
    source.must("CLUSTER", "DELSLOTSRANGE", str(first), str(last))
    source.must("CLUSTER", "ADDSLOTS", move.slot)
    move.begin()
    target.must("CLUSTER", "SETSLOT", move.slot, "NODE", nodes.id_of(target))
    wait_until(lambda: is_open(nodes, move), "the source has heard of it")
    assert role(source) == b"master"
    other = str(first if first != int(move.slot) else last)
    source.must("CLUSTER", "ADDSLOTS", other)
    source.must("CLUSTER", "SETSLOT", other, "NODE", nodes.id_of(target))
    assert role(source) == b"master"
    assert source.call("DBSIZE").value == 1


def role(node: Node) -> object:
    return node.call("ROLE").value[0].value


def is_open(nodes: Nodes, move: Move) -> bool:
    """Whether the source has the slot as one that is imported from the target."""
    return f"[{move.slot}-<-{nodes.id_of(move.target)}]" in nodes.ask(move.source, "CLUSTER", "NODES")
