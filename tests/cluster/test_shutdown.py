"""SHUTDOWN FAILOVER: a primary has a replica take over before it stops, and clients lose no request."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
from support.cluster.nodes import Nodes, start_cluster
from support.cluster.writers import Writers, check_written
from support.replicas.nodes import Node, wait_in_sync, wait_until
from support.wire import ConnectionClosed

pytestmark = [pytest.mark.real, pytest.mark.long, pytest.mark.timeout(300)]

NewNode = Callable[..., Node]
ASK = ("CLIENT", "MAINT_NOTIFICATIONS", "ON", "moving-endpoint-type", "internal-ip")


def start(new_node: NewNode, replica: str = "streamd", **settings: str) -> Nodes:
    # Only a hand-over is fast enough: a fail-over would take minutes.
    return start_cluster(new_node, ("streamd",) * 3, (replica,), cluster_node_timeout="300000", **settings)


@pytest.mark.parametrize("replica", ["streamd", "redis"])
@pytest.mark.parametrize("way", ["command", "signal"])
def test_clients_lose_no_request(new_node: NewNode, replica: str, way: str) -> None:
    nodes = start(new_node, replica)
    primary, successor = nodes[0], nodes[3]
    with primary.connect(3) as wire:
        assert wire.call(*ASK).value == b"OK"
        writers = Writers(nodes[1])
        try:
            writers.wait_for_more()
            if way == "signal":
                primary.must("CONFIG", "SET", "shutdown-on-sigterm", "failover")
                primary.process.send_signal(signal.SIGTERM)
            else:
                with primary.connect() as other:
                    other.send("SHUTDOWN", "FAILOVER")
                    with pytest.raises(ConnectionClosed, match="before the end"):
                        other.read()
            wait_until(lambda: not primary.is_running, "the end of the primary")
            assert nodes.owner_of(5061) is successor
            writers.wait_for_more()
        finally:
            writers.stop()
        pushes = [[part.value for part in wire.read().value] for _ in range(3)]
        assert [push[0] for push in pushes] == [b"FAILING_OVER", b"FAILED_OVER", b"SMIGRATED"]
    assert "A replica has taken over" in primary.log()
    primary.hang_up()
    primary.start()
    check_written(writers, nodes)
    assert primary.info()["role"] == "slave"


def test_without_a_replica_that_can_it_stops_as_ever(new_node: NewNode) -> None:
    nodes = start(new_node)
    nodes[1].call("CONFIG", "SET", "shutdown-on-sigterm", "failover")
    nodes[1].process.send_signal(signal.SIGTERM)
    wait_until(lambda: not nodes[1].is_running, "the end of a primary without replicas")
    assert "There is no replica that could take over" in nodes[1].log()
    nodes[3].must("CONFIG", "SET", "cluster-replica-no-failover", "yes")
    own = nodes.id_of(nodes[3])
    wait_until(lambda: "nofailover" in nodes.lines(nodes[0])[own][2], "the primary knows")
    nodes[0].hang_up()
    with nodes[0].connect() as wire:
        wire.send("SHUTDOWN", "FAILOVER", "NOSAVE")
        with pytest.raises(ConnectionClosed, match="before the end"):
            wire.read()
    wait_until(lambda: not nodes[0].is_running, "the end of a primary whose replica must not take over")


def test_it_can_be_called_off(new_node: NewNode) -> None:
    nodes = start(new_node, shutdown_timeout="3600")
    nodes[3].freeze()
    primary = nodes[0]
    primary.hang_up()
    with primary.connect() as wire, primary.connect() as other:
        wire.send("SHUTDOWN", "FAILOVER")
        wait_until(lambda: b"blocked_clients:1" in other.call("INFO", "clients").value, "the shutdown waits")
        assert other.call("SHUTDOWN", "ABORT").value == b"OK"
        assert wire.read().value.startswith(b"ERR Errors trying to SHUTDOWN")
        assert other.call("SHUTDOWN", "NOW", "FAILOVER").value == b"ERR syntax error"
    nodes[3].thaw()


def test_without_a_cluster(new_node: NewNode) -> None:
    primary, replica = new_node("streamd"), new_node("streamd")
    replica.follow(primary)
    wait_in_sync(primary, replica)
    wait_until(lambda: "state=online" in primary.info().get("slave0", ""), "a replica that is online")
    primary.must("SET", "k", "v")
    with primary.connect(3) as wire:
        assert wire.call(*ASK).value == b"OK"
        primary.hang_up()
        with primary.connect() as other:
            other.send("SHUTDOWN", "FAILOVER")
            with pytest.raises(ConnectionClosed, match="before the end"):
                other.read()
        wait_until(lambda: not primary.is_running, "the end of the primary")
        assert [wire.read().value[0].value for _ in range(3)] == [b"FAILING_OVER", b"FAILED_OVER", b"MOVING"]
    assert replica.info()["role"] == "master"
    assert replica.must("GET", "k").value == b"v"
