"""redis.set_repl: what a script has changed reaches the files, the replicas, both or neither, as with a real Redis."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.replicas.nodes import Node, wait_in_sync, wait_until
from support.replicas.raw_replica import RawReplica

pytestmark = pytest.mark.real

NewNode = Callable[..., Node]

SCRIPT = """
for _, name in ipairs({'ALL', 'AOF', 'REPLICA', 'NONE', 'SLAVE'}) do
    redis.set_repl(redis['REPL_' .. name])
    redis.call('SET', 'to ' .. name, 1)
    redis.call('XADD', 'stream', '*', 'to', name)
end
return 'done'
"""
LOOK = "return {redis.call('MGET', KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]), redis.call('XLEN', 'stream')}"
KEYS = ("to ALL", "to AOF", "to REPLICA", "to NONE", "to SLAVE")


@pytest.mark.parametrize("kind", ["streamd", "redis"])
def test_changes_go_where_a_script_sends_them(new_node: NewNode, kind: str) -> None:
    primary, replica = new_node(kind, appendonly="yes", enable_debug_command="yes"), new_node("streamd")
    replica.follow(primary)
    wait_in_sync(primary, replica)
    assert primary.must("EVAL", SCRIPT, 0).value == b"done"
    wait_in_sync(primary, replica)

    def seen(node: Node) -> object:
        return node.must("EVAL", LOOK, len(KEYS), *KEYS).plain()

    assert seen(primary) == [[b"1"] * 5, 5]
    assert seen(replica) == [[b"1", None, b"1", None, b"1"], 3]
    primary.must("DEBUG", "LOADAOF")
    assert seen(primary) == [[b"1", b"1", None, None, None], 2]


WAIT_FOR_LOSS = """
local since = os.clock()
repeat until redis.call('INFO', 'replication'):find('connected_slaves:0') or os.clock() - since > 30
return {redis.pcall('SET', 'b', 1), redis.pcall('SET', 'c', 1), redis.pcall('GET', 'b')}
"""


@pytest.mark.parametrize("kind", ["streamd", "redis"])
def test_a_script_is_refused_for_lack_of_replicas_only_before_it_writes(new_node: NewNode, kind: str) -> None:
    primary = new_node(kind, min_replicas_to_write="1", busy_reply_threshold="10")

    def run_while_replica_leaves(script: str) -> object:
        primary.must("CONFIG", "SET", "min-replicas-to-write", "0")
        primary.must("DEL", "b", "c")
        with RawReplica(primary) as replica, primary.connect() as wire:
            replica.attach()
            primary.must("CONFIG", "SET", "min-replicas-to-write", "1")
            wire.send("EVAL", script, 0)
            wait_until(lambda: primary.call("PING").is_error, "a script that takes long")
            replica.close()
            return [element.value for element in wire.read().value]

    refused = b"NOREPLICAS Not enough good replicas to write."
    assert run_while_replica_leaves(WAIT_FOR_LOSS) == [refused, refused, None]
    assert run_while_replica_leaves("redis.call('SET', 'a', 1)" + WAIT_FOR_LOSS) == [b"OK", b"OK", b"1"]
