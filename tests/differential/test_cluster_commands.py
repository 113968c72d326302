"""A node of a cluster beside a Redis: each is alone, and has all slots. Replies are compared byte for byte, but for IDs and ports."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from support.cluster.nodes import Nodes, start_cluster_node
from support.compare.differential import Tally, parse_script
from support.replicas.nodes import Node, wait_until
from support.wire import Reply, Wire, encode, show

pytestmark = pytest.mark.real

SLOTS = """
    CLUSTER KEYSLOT foo
    CLUSTER KEYSLOT foo{bar}{zap}
    CLUSTER KEYSLOT ""
    CLUSTER COUNTKEYSINSLOT 12182
    CLUSTER COUNTKEYSINSLOT 16384
    CLUSTER COUNTKEYSINSLOT -1
    CLUSTER COUNTKEYSINSLOT x
    CLUSTER GETKEYSINSLOT 12182 10
    CLUSTER GETKEYSINSLOT 12182 -1
    CLUSTER GETKEYSINSLOT 16384 1
    CLUSTER GETKEYSINSLOT 1 x
    SET foo 1
    CLUSTER COUNTKEYSINSLOT 12182
    CLUSTER GETKEYSINSLOT 12182 10
    CLUSTER GETKEYSINSLOT 12182 0
    CLUSTER ADDSLOTS 1
    CLUSTER ADDSLOTS 16384
    CLUSTER ADDSLOTS x
    CLUSTER ADDSLOTSRANGE 5 2
    CLUSTER ADDSLOTSRANGE 1 2 3
    CLUSTER ADDSLOTSRANGE 1 x
    CLUSTER DELSLOTS 1 1
    CLUSTER DELSLOTS 200
    CLUSTER DELSLOTS 200
    CLUSTER ADDSLOTS 200 200
    CLUSTER ADDSLOTS 200
    CLUSTER DELSLOTSRANGE 100 110
    CLUSTER DELSLOTSRANGE 105 120
    CLUSTER ADDSLOTSRANGE 100 102 101 110
    CLUSTER ADDSLOTSRANGE 100 104 105 110
    CLUSTER FLUSHSLOTS
    DEL foo
"""
SETSLOT = """
    CLUSTER SETSLOT 1 MIGRATING xyz
    CLUSTER SETSLOT 1 IMPORTING xyz
    CLUSTER SETSLOT 1 NODE xyz
    CLUSTER SETSLOT 1 STABLE
    CLUSTER SETSLOT 1 STABLE now
    CLUSTER SETSLOT 1 MIGRATING
    CLUSTER SETSLOT 1 FOO xyz
    CLUSTER SETSLOT 16384 STABLE
    CLUSTER SETSLOT x STABLE
    CLUSTER SETSLOT 1
"""
NODES = """
    CLUSTER MEET 127.0.0.1 x
    CLUSTER MEET 127.0.0.1 1 y
    CLUSTER MEET localhost 7000
    CLUSTER MEET 127.0.0.1 0
    CLUSTER MEET 127.0.0.1 70000
    CLUSTER MEET 127.0.0.1 60000
    CLUSTER MEET 127.0.0.1 1 2 3
    CLUSTER MEET 127.0.0.1
    CLUSTER FORGET xyz
    CLUSTER REPLICATE xyz
    CLUSTER REPLICAS xyz
    CLUSTER SLAVES xyz
    CLUSTER COUNT-FAILURE-REPORTS xyz
    CLUSTER FAILOVER
    CLUSTER FAILOVER FORCE
    CLUSTER FAILOVER FOO
    CLUSTER FAILOVER FORCE FORCE
    CLUSTER RESET FOO
    CLUSTER RESET HARD SOFT
    CLUSTER SET-CONFIG-EPOCH -1
    CLUSTER SET-CONFIG-EPOCH x
    CLUSTER SAVECONFIG
    CLUSTER LINKS
    CLUSTER FOO
    CLUSTER
    CLUSTER INFO x
    CLUSTER SYNCSLOTS
"""
STATISTICS = """
    CLUSTER SLOT-STATS SLOTSRANGE 0 2
    CLUSTER SLOT-STATS SLOTSRANGE 5 1
    CLUSTER SLOT-STATS SLOTSRANGE 5 x
    CLUSTER SLOT-STATS SLOTSRANGE 5 16384
    CLUSTER SLOT-STATS SLOTSRANGE 5
    CLUSTER SLOT-STATS ORDERBY KEY-COUNT LIMIT 2
    CLUSTER SLOT-STATS ORDERBY KEY-COUNT LIMIT 2 ASC
    CLUSTER SLOT-STATS ORDERBY KEY-COUNT ASC LIMIT 2 DESC
    CLUSTER SLOT-STATS ORDERBY KEY-COUNT LIMIT 2 LIMIT 3
    CLUSTER SLOT-STATS ORDERBY KEY-COUNT LIMIT 0
    CLUSTER SLOT-STATS ORDERBY KEY-COUNT LIMIT x
    CLUSTER SLOT-STATS ORDERBY CPU-USEC LIMIT 1
    CLUSTER SLOT-STATS ORDERBY FOO
    CLUSTER SLOT-STATS ORDERBY KEY-COUNT FOO
    CLUSTER SLOT-STATS FOO 1 2
    SET foo 1
    SET foo2{foo} 1
    CLUSTER SLOT-STATS ORDERBY KEY-COUNT LIMIT 2
    DEL foo foo2{foo}
"""
ROUTING = """
    MSET a 1 b 2
    MSET {a}1 1 {a}2 2
    MGET {a}1 {a}2
    DEL {a}1 {a}2
    RENAME a b
    COPY a b
    COPY {a}1 {a}2 DB 1
    COPY {a}1 {a}2 DB 0
    SELECT 0
    SELECT 1
    SELECT x
    SWAPDB 0 1
    MOVE foo 1
    MOVE foo 0
    XREAD STREAMS a b 0 0
    XREAD STREAMS {a}1 {a}2 0 0
    XREADGROUP GROUP g c STREAMS a b > >
    ASKING
    READONLY
    READWRITE
    READONLY x
    REPLICAOF NO ONE
    REPLICAOF 127.0.0.1 1
    SLAVEOF NO ONE
    FAILOVER
    CONFIG GET databases
    CONFIG SET cluster-enabled no
    CONFIG SET cluster-announce-ip localhost
    CONFIG SET cluster-announce-hostname a_b
    CONFIG SET cluster-announce-human-nodename "a b"
    CONFIG SET cluster-slot-stats-enabled mem
    CONFIG SET cluster-node-timeout -1
    CONFIG SET cluster-preferred-endpoint-type foo
    CONFIG GET cluster-ping-interval
    CONFIG GET cluster-pr*
    SSUBSCRIBE a b
    SPUBLISH a b
    WATCH a b
    WATCH {a}1 {a}2
    UNWATCH
    EVAL "return 1" 2 a b
    EVAL "return redis.call('GET', 'b')" 1 a
    EVAL "return redis.call('MGET', 'a', 'b')" 0
    EVAL "#!lua\\nreturn redis.call('GET', 'b')" 1 a
    EVAL "#!lua\\nredis.call('GET', 'b') return redis.call('GET', 'a')" 0
    EVAL "#!lua flags=allow-cross-slot-keys\\nredis.call('SET', 'b', 1) return redis.call('DEL', 'b')" 1 a
    EVAL "#!lua flags=no-cluster\\nreturn 1" 0
    OBJECT ENCODING foo
    TOUCH a b
    DBSIZE
    KEYS *
    RANDOMKEY
    TRIMSLOTS FOO 1 1 2
    TRIMSLOTS RANGES 1 1 2
    RESTORE-ASKING foo 0 x
"""
TRANSACTIONS = """
    MULTI
    GET a
    GET b
    EXEC
    EXEC
    MULTI
    MGET a b
    EXEC
    MULTI
    SET {a}1 1
    SET {a}2 1
    DEL {a}1 {a}2
    EXEC
    MULTI
    CLUSTER KEYSLOT a
    SELECT 1
    EXEC
"""
HOT_KEYS = "\n".join(
    ["CLUSTER DELSLOTS 16383"]
    + [
        f"HOTKEYS START METRICS 2 CPU NET {words}\nHOTKEYS STOP\nHOTKEYS RESET"
        for words in (
            "SLOTS 1 5", "SLOTS", "SLOTS 0", "SLOTS 0 1", "SLOTS x 1", "SLOTS -1 1", "SLOTS 16385 1", "SLOTS 2 1",
            "SLOTS 1 x", "SLOTS 1 16384", "SLOTS 1 -1", "SLOTS 1 16383", "SLOTS 2 16383 x", "SLOTS 2 x 16383",
            "SLOTS 2 1 1", "SLOTS 3 1 1 16383", "SLOTS 3 1 2 COUNT", "SLOTS 1 1 COUNT", "SLOTS 1 1 COUNT 2 SAMPLE 3",
            "COUNT 2 SLOTS 1 1", "SLOTS 1 1 SLOTS 1 2", "SLOTS 1 1 2",
        )
    ]
    + ["CLUSTER ADDSLOTS 16383"]
)  # fmt: skip
SCRIPTS = {
    "slots": SLOTS, "setslot": SETSLOT, "nodes": NODES, "statistics": STATISTICS, "routing": ROUTING, "transactions": TRANSACTIONS,
    "hot keys": HOT_KEYS,
}  # fmt: skip


@pytest.fixture(scope="module")
def alone(new_shared_node: object) -> Nodes:
    """Two nodes that know nobody: a streamd and a Redis."""
    nodes = Nodes(start_cluster_node(new_shared_node, kind) for kind in ("streamd", "redis"))  # type: ignore[arg-type]
    for node in nodes:
        node.must("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
    for node in nodes:
        wait_until(lambda node=node: nodes.state(node) == "ok", "the node serves")  # type: ignore[misc]
    return nodes


@pytest.fixture(params=[2, 3], ids=["RESP2", "RESP3"])
def wires(alone: Nodes, request: pytest.FixtureRequest) -> Iterator[list[Wire]]:
    opened = [node.connect(request.param, timeout_s=20) for node in alone]
    yield opened
    for wire in opened:
        wire.close()


def masked(node: Node, nodes: Nodes, reply: Reply) -> bytes:
    """A reply without what is the node's own."""
    text = encode(reply)
    for own, mask in ((nodes.id_of(node), b"<id>"), (nodes.ask(node, "CLUSTER", "MYSHARDID"), b"<shard>")):
        text = text.replace(own.encode(), mask)
    bus_port = node.call("CONFIG", "GET", "cluster-port").value[1].value
    return text.replace(str(node.port).encode(), b"<port>").replace(bus_port, b"<bus-port>")


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_node_answers_as_redis(alone: Nodes, wires: list[Wire], name: str, tally: Tally) -> None:
    for node in alone:
        node.must("FLUSHALL")
    requests = parse_script(SCRIPTS[name])
    for request in requests:
        request = tuple(part.replace(b"\\n", b"\n") for part in request)
        ours, theirs = (wire.call(*request) for wire in wires)
        assert show(ours) == show(theirs), request
    tally.scripts += 1
    tally.commands += len(requests)


@pytest.mark.parametrize(
    "request_", ["CLUSTER NODES", "CLUSTER SLOTS", "CLUSTER SHARDS", "CLUSTER INFO", "CLUSTER MYID", "INFO cluster"]
)
def test_a_node_shows_itself_as_redis_does(alone: Nodes, wires: list[Wire], request_: str) -> None:
    ours, theirs = (masked(node, alone, wire.call(*request_.split())) for node, wire in zip(alone, wires, strict=True))
    assert ours == theirs


@pytest.mark.parametrize("kind", ["ip", "hostname", "unknown-endpoint"])
@pytest.mark.parametrize("hostname", ["", "node.example"])
def test_endpoints_are_shown_as_by_redis(alone: Nodes, wires: list[Wire], kind: str, hostname: str) -> None:
    for node in alone:
        node.must("CONFIG", "SET", "cluster-preferred-endpoint-type", kind, "cluster-announce-hostname", hostname)
    for request_ in ("CLUSTER SLOTS", "CLUSTER SHARDS", "CLUSTER NODES"):
        ours, theirs = (
            masked(node, alone, wire.call(*request_.split())) for node, wire in zip(alone, wires, strict=True)
        )
        assert ours == theirs, request_
    for node in alone:
        node.must("CONFIG", "SET", "cluster-preferred-endpoint-type", "ip", "cluster-announce-hostname", "")


@pytest.mark.parametrize("options", ["", "SLOTS 5 3 1 5061 9 2", "SLOTS 1 5061 SAMPLE 1", "SLOTS 2 0 2 SAMPLE 1000000"])
@pytest.mark.parametrize("metrics", ["1 NET", "2 CPU NET"])
def test_hot_keys_are_counted_by_slots(wires: list[Wire], options: str, metrics: str) -> None:
    """foo is in slot 12182, bar in 5061."""
    found = []
    for wire in wires:
        assert wire.call(*f"HOTKEYS START METRICS {metrics} {options}".split()).value == b"OK"
        for request in ("SET foo 1", "SET bar 12", "MGET bar {bar}2", "GET foo", "PING"):
            assert not wire.call(*request.split()).is_error
        (session,) = wire.call("HOTKEYS", "GET").plain()
        flat = [*session.items()] if isinstance(session, dict) else [*zip(session[::2], session[1::2], strict=True)]
        found.append([(name, None if name.endswith((b"us", b"ms")) else value) for name, value in flat])
        wire.pipeline([("HOTKEYS", "STOP"), ("HOTKEYS", "RESET"), ("DEL", "foo"), ("DEL", "bar")])
    assert found[0] == found[1]


def test_hello_tells_the_mode(alone: Nodes) -> None:
    found = []
    for node in alone:
        with node.connect(timeout_s=20) as wire:
            found.append(wire.call("HELLO", "2").plain()[8:10])
    assert found[0] == found[1]


def test_the_file_of_a_node_is_that_of_redis(alone: Nodes) -> None:
    texts = []
    for node in alone:
        node.must("CLUSTER", "SAVECONFIG")
        text = (node.folder / "nodes.conf").read_text()
        for own, mask in ((alone.id_of(node), "<id>"), (alone.ask(node, "CLUSTER", "MYSHARDID"), "<shard>")):
            text = text.replace(own, mask)
        texts.append(re.sub(r":\d+@\d+", ":<port>@<bus>", text))
    assert texts[0] == texts[1]
