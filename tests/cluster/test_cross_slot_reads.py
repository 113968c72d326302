"""cluster-allow-cross-slot-reads: XREAD and XREADGROUP of streams in several slots of one node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
import redis
from support.cluster.nodes import Nodes, start_cluster
from support.pages.reader import block
from support.replicas.nodes import Node, wait_until
from support.wire import Wire

pytestmark = [pytest.mark.real, pytest.mark.long]

NewNode = Callable[..., Node]

CROSS_SLOT = b"CROSSSLOT Keys in request don't hash to the same slot"
TRY_AGAIN = b"TRYAGAIN Multiple keys request during rehashing of slot"
FIRST, SECOND, AWAY = "{bar}1", "{hello}2", "{foo}3"
"""Streams in the slots 5061 and 866, of the first of two nodes, and 12182, of the second."""
GROUP = ("XREADGROUP", "GROUP", "g", "c")


@pytest.fixture(scope="module")
def cluster(new_shared_node: NewNode) -> Nodes:
    return start_cluster(new_shared_node, ("streamd", "streamd"), ("streamd",), cluster_allow_cross_slot_reads="yes")


@pytest.fixture
def node(cluster: Nodes) -> Node:
    """The first node, with the first two streams, each with a group and one entry, new to the group."""
    first = cluster[0]
    for key in (FIRST, SECOND):
        first.must("DEL", key)
        first.must("XADD", key, "1-1", "f", "v")
        first.must("XGROUP", "CREATE", key, "g", "0")
    return first


@pytest.fixture
def connect() -> Iterator[Callable[..., Wire]]:
    with ExitStack() as open_wires:
        yield lambda node: open_wires.enter_context(node.connect(timeout_s=60))


def names(reply: object) -> list[bytes]:
    """The streams of a reply."""
    return [stream.value[0].value for stream in reply.value]  # type: ignore[attr-defined]


def blocked(node: Node) -> bool:
    return node.info("clients")["blocked_clients"] == "1"


BOTH = [FIRST.encode(), SECOND.encode()]


def test_streams_of_several_slots_are_read_at_once(node: Node) -> None:
    assert names(node.call("XREAD", "STREAMS", FIRST, SECOND, "0", "0")) == BOTH
    assert names(node.call(*GROUP, "STREAMS", FIRST, SECOND, ">", ">")) == BOTH
    assert node.call(*GROUP, "STREAMS", FIRST, SECOND, ">", ">").kind == "*-1"
    for key in (FIRST, SECOND):
        assert node.call("XACK", key, "g", "1-1").value == 1


def test_redis_py_reads_them_from_a_node_that_it_is_told(node: Node) -> None:
    streams, ids = [FIRST, SECOND], ["0", "0"]
    names = {"client": redis.RedisCluster("127.0.0.1", node.port, protocol=2), "streams": streams, "ids": ids}
    exec(block("docs/cluster.md", "node = client.get_node_from_key(streams[0])"), names)
    names["client"].close()
    assert [key for key, _ in names["reply"]] == BOTH


def test_other_commands_are_refused_as_before(node: Node) -> None:
    assert node.call("DEL", FIRST, SECOND).value == CROSS_SLOT
    assert node.call("EXISTS", FIRST, SECOND).value == CROSS_SLOT


def test_a_stream_of_another_node_is_where_it_is(cluster: Nodes, node: Node) -> None:
    moved = f"MOVED 12182 127.0.0.1:{cluster[1].port}".encode()
    for keys in ((FIRST, AWAY), (AWAY, FIRST)):
        assert node.call("XREAD", "BLOCK", "0", "STREAMS", *keys, "$", "$").value == moved


def test_the_default_is_off(node: Node) -> None:
    node.must("CONFIG", "SET", "cluster-allow-cross-slot-reads", "no")
    try:
        for words in (("XREAD",), GROUP):
            assert node.call(*words, "STREAMS", FIRST, SECOND, "0", "0").value == CROSS_SLOT
    finally:
        node.must("CONFIG", "SET", "cluster-allow-cross-slot-reads", "yes")


@pytest.mark.parametrize("words", [("XREAD",), GROUP], ids=["xread", "xreadgroup"])
def test_a_reader_waits_for_several_slots(node: Node, connect: Callable[..., Wire], words: tuple[str, ...]) -> None:
    position = "$" if words == ("XREAD",) else ">"
    node.call(*GROUP, "STREAMS", FIRST, ">")
    node.call(*GROUP, "STREAMS", SECOND, ">")
    wire = connect(node)
    wire.send(*words, "BLOCK", "0", "STREAMS", FIRST, SECOND, position, position)
    wait_until(lambda: blocked(node), "the reader waits")
    node.must("XADD", SECOND, "2-1", "f", "v")
    assert names(wire.read()) == [SECOND.encode()]


def test_transactions_of_reads_may_cross_slots_and_others_not(node: Node) -> None:
    node.must("MULTI")
    node.must("XREAD", "STREAMS", FIRST, SECOND, "0", "0")
    node.must(*GROUP, "STREAMS", SECOND, ">")
    node.must("PING")
    reply = node.call("EXEC")
    assert names(reply.value[0]) == BOTH
    assert names(reply.value[1]) == [SECOND.encode()]
    node.must("MULTI")
    node.must("XREAD", "STREAMS", FIRST, SECOND, "0", "0")
    node.must("XLEN", FIRST)
    assert node.call("EXEC").value == CROSS_SLOT


def test_a_script_needs_its_flag_as_for_other_slots(node: Node) -> None:
    call = "return redis.call('XREAD', 'STREAMS', '{bar}1', '{hello}2', '0', '0')"
    refused = b"ERR Script attempted to access keys that do not hash to the same slot"
    for shebang in ("#!lua", "#!lua flags=no-writes"):
        assert node.call("EVAL", f"{shebang}\n{call}", "0").value.startswith(refused)
        assert node.call("EVAL", f"{shebang}\n{call}", "1", FIRST).value.startswith(refused)
    assert names(node.call("EVAL", f"#!lua flags=allow-cross-slot-keys\n{call}", "0")) == BOTH
    away = call.replace("{hello}2", AWAY)
    reply = node.call("EVAL", f"#!lua flags=allow-cross-slot-keys\n{away}", "0")
    assert reply.value.startswith(b"ERR Script attempted to access a non local key in a cluster node")


def test_a_replica_serves_them_to_clients_that_have_sent_readonly(cluster: Nodes, node: Node) -> None:
    replica = cluster[2]
    assert node.call("WAIT", "1", "60000").value == 1
    moved = f"127.0.0.1:{node.port}".encode()
    request = ("XREAD", "STREAMS", FIRST, SECOND, "0", "0")
    assert replica.call(*request).value.endswith(moved)
    replica.must("READONLY")
    assert names(replica.call(*request)) == BOTH
    assert replica.call(*GROUP, "STREAMS", FIRST, SECOND, ">", ">").value.endswith(moved)
    replica.must("READWRITE")


def test_a_slot_that_is_being_moved(cluster: Nodes, node: Node, connect: Callable[..., Wire]) -> None:
    source, target = node, cluster[1]
    ids = cluster.id_of(source), cluster.id_of(target)
    request = ("XREAD", "STREAMS", FIRST, SECOND, "0", "0")
    waiting = connect(source)
    waiting.send("XREAD", "BLOCK", "0", "STREAMS", FIRST, SECOND, "$", "$")
    wait_until(lambda: blocked(source), "the reader waits")

    target.must("CLUSTER", "SETSLOT", "866", "IMPORTING", ids[0])
    source.must("CLUSTER", "SETSLOT", "866", "MIGRATING", ids[1])
    assert names(source.call(*request)) == BOTH
    assert source.call("XREAD", "STREAMS", FIRST, "{hello}none", "0", "0").value == TRY_AGAIN
    source.must("MIGRATE", "127.0.0.1", str(target.port), SECOND, "0", "60000")
    assert source.call(*request).value == TRY_AGAIN
    assert blocked(source)

    ask = ("XREAD", "STREAMS", AWAY, SECOND, "0", "0")
    assert target.call(*ask).value == f"MOVED 866 127.0.0.1:{source.port}".encode()
    target.must("XADD", AWAY, "*", "f", "v")
    target.must("ASKING")
    assert names(target.call(*ask)) == [AWAY.encode(), SECOND.encode()]
    target.must("ASKING")
    assert target.call("XREAD", "STREAMS", AWAY, "{hello}none", "0", "0").value == TRY_AGAIN

    for each in (target, source):
        each.must("CLUSTER", "SETSLOT", "866", "NODE", ids[1])
    moved = f"MOVED 866 127.0.0.1:{target.port}".encode()
    assert waiting.read().value == moved
    assert waiting.call("PING").value == b"PONG"
    assert source.call(*request).value == moved
    assert names(target.call(*ask)) == [AWAY.encode(), SECOND.encode()]

    assert source.must("CLUSTER", "MIGRATION", "IMPORT", "866", "866")
    wait_until(lambda: cluster.owner_of_or_none(866) is source, "the slot comes back")
    assert names(source.call(*request)) == BOTH


def test_a_group_that_waits_tries_again_when_a_stream_has_left(
    cluster: Nodes, node: Node, connect: Callable[..., Wire]
) -> None:
    source, target = node, cluster[1]
    ids = cluster.id_of(source), cluster.id_of(target)
    node.must(*GROUP, "STREAMS", FIRST, SECOND, ">", ">")
    waiting = connect(source)
    waiting.send(*GROUP, "BLOCK", "0", "STREAMS", FIRST, SECOND, ">", ">")
    wait_until(lambda: blocked(source), "the consumer waits")
    target.must("CLUSTER", "SETSLOT", "866", "IMPORTING", ids[0])
    source.must("CLUSTER", "SETSLOT", "866", "MIGRATING", ids[1])
    source.must("MIGRATE", "127.0.0.1", str(target.port), SECOND, "0", "60000")
    assert waiting.read().value == TRY_AGAIN
    target.must("ASKING")
    target.must("DEL", SECOND)
    for each in (source, target):
        each.must("CLUSTER", "SETSLOT", "866", "STABLE")
