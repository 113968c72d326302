"""Hand-overs and moving slots under clients that ask for announcements: an unmodified RedisCluster loses no request."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import redis
from support.cluster.nodes import start_cluster
from support.cluster.writers import Writers, check_written
from support.replicas.nodes import Node, wait_until
from support.wire import Reply

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

NewNode = Callable[..., Node]
ASK = ("CLIENT", "MAINT_NOTIFICATIONS", "ON", "moving-endpoint-type", "internal-ip")


def words_of(push: Reply) -> list[object]:
    assert push.kind == ">", push
    return [part.value for part in push.value]


def test_a_manual_fail_over(new_node: NewNode) -> None:
    nodes = start_cluster(new_node, ("streamd",) * 3, ("streamd",))
    primary, replica = nodes[0], nodes[3]
    with primary.connect(3) as wire, primary.connect(2) as other:
        assert wire.call(*ASK).value == b"OK"
        writers = Writers(nodes[1])
        try:
            writers.wait_for_more()
            assert replica.call("CLUSTER", "FAILOVER").value == b"OK"
            wait_until(lambda: nodes.owner_of_or_none(5061) is replica, "the replica takes over")
            writers.wait_for_more()
        finally:
            writers.stop()
        begins, ends, moved = (words_of(wire.read()) for _ in range(3))
        assert (begins[0], ends[0], moved[0]) == (b"FAILING_OVER", b"FAILED_OVER", b"SMIGRATED")
        assert [[part.value for part in move.value] for move in moved[2]] == [
            [f"127.0.0.1:{primary.port}".encode(), f"127.0.0.1:{replica.port}".encode(), b"0-5460"]
        ]
        assert other.call("PING").value == b"PONG"
    check_written(writers, nodes)


def test_a_consumer_waits_on_at_the_new_primary(new_node: NewNode) -> None:
    nodes = start_cluster(new_node, ("streamd",) * 3, ("streamd",))
    primary, replica = nodes[0], nodes[3]
    primary.must("XGROUP", "CREATE", "bar", "g", "$", "MKSTREAM")
    assert primary.call("WAIT", "1", "5000").value == 1
    got: list[object] = []
    with redis.RedisCluster(host="127.0.0.1", port=nodes[1].port) as client:
        thread = threading.Thread(target=lambda: got.append(client.xreadgroup("g", "c", {"bar": ">"}, block=4500)))
        thread.start()
        wait_until(lambda: primary.info("clients")["blocked_clients"] == "1", "the consumer waits")
        assert replica.call("CLUSTER", "FAILOVER").value == b"OK"
        wait_until(lambda: replica.info("clients")["blocked_clients"] == "1", "it waits at the new primary")
        replica.must("XADD", "bar", "1-1", "f", "v")
        thread.join()
    assert b"1-1" in repr(got).encode()


def test_slots_that_move_by_atomic_migration(new_node: NewNode) -> None:
    nodes = start_cluster(new_node, ("streamd",) * 3)
    target = nodes[2]
    writers = Writers(nodes[1])
    try:
        writers.wait_for_more()
        assert not target.call("CLUSTER", "MIGRATION", "IMPORT", "5000", "5460").is_error
        wait_until(lambda: nodes.owner_of_or_none(5061) is target, "the slots are at the target")
        writers.wait_for_more()
    finally:
        writers.stop()
    check_written(writers, nodes)


def test_a_slot_that_moves(new_node: NewNode) -> None:
    nodes = start_cluster(new_node, ("streamd",) * 3)
    source, target = nodes[0], nodes[2]
    source_id, target_id = nodes.id_of(source), nodes.id_of(target)
    with source.connect(3) as wire:
        assert wire.call(*ASK).value == b"OK"
        writers = Writers(nodes[1])
        try:
            writers.wait_for_more()
            assert target.call("CLUSTER", "SETSLOT", "5061", "IMPORTING", source_id).value == b"OK"
            assert source.call("CLUSTER", "SETSLOT", "5061", "MIGRATING", target_id).value == b"OK"
            assert words_of(wire.read())[::2] == [b"SMIGRATING", b"5061"]
            for name in writers.counts:
                source.must("MIGRATE", "127.0.0.1", str(target.port), name, "0", "5000")
            for node in (target, source, nodes[1]):
                assert node.call("CLUSTER", "SETSLOT", "5061", "NODE", target_id).value == b"OK"
            writers.wait_for_more()
        finally:
            writers.stop()
        moved = words_of(wire.read())
        assert moved[0] == b"SMIGRATED"
        assert [part.value for part in moved[2][0].value] == [
            f"127.0.0.1:{source.port}".encode(), f"127.0.0.1:{target.port}".encode(), b"5061"
        ]  # fmt: skip
    check_written(writers, nodes)
