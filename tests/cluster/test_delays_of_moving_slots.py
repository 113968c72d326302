"""A slot that is being moved: its entries wait, whichever node has them, and move when the slot has settled."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.cluster.nodes import start_cluster
from support.replicas.nodes import Node
from support.servers import eventually

pytestmark = [pytest.mark.real, pytest.mark.long]

NewNode = Callable[..., Node]


def test_an_entry_waits_while_its_slot_is_being_moved(new_node: NewNode) -> None:
    nodes = start_cluster(new_node, ("streamd", "streamd"))
    slot = nodes[0].call("CLUSTER", "KEYSLOT", "{a}").value
    source = nodes.owner_of(slot)
    target = next(node for node in nodes if node is not source)
    assert source.call("STREAMD.STREAM", "SET", "{a}later", "FEEDS", "{a}jobs", "DUE", "due").value == b"OK"
    source.call("XADD", "{a}later", "*", "job", "first")
    eventually(lambda: source.call("XLEN", "{a}jobs").value == 1)
    source.call("SET", "{a}tick", "", "PX", 3500)  # the clock of the node has struck at least twice when it is gone
    target.must("CLUSTER", "SETSLOT", str(slot), "IMPORTING", nodes.id_of(source))
    source.must("CLUSTER", "SETSLOT", str(slot), "MIGRATING", nodes.id_of(target))
    source.call("XADD", "{a}later", "*", "job", "second")
    eventually(lambda: b"expired_keys:1\r\n" in source.call("INFO", "stats").value)
    assert source.call("XLEN", "{a}later").value == 1
    (rules_key,) = source.call("KEYS", "streamd:rules:*").plain()
    keys = (rules_key, "{a}later", "{a}jobs")
    assert source.call("MIGRATE", "127.0.0.1", target.port, "", "0", "5000", "KEYS", *keys).value == b"OK"
    for node in (target, source):
        node.must("CLUSTER", "SETSLOT", str(slot), "NODE", nodes.id_of(target))
    eventually(lambda: target.call("XLEN", "{a}jobs").value == 2)
    assert [fields for _, fields in target.call("XRANGE", "{a}jobs", "-", "+").plain()] == [
        [b"job", b"first"],
        [b"job", b"second"],
    ]
    assert target.call("XLEN", "{a}later").value == 0
