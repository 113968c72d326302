"""A shutdown waits for replicas that have not received everything (shutdown-timeout), beside Redis."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
from support.replicas.nodes import Node, wait_in_sync, wait_until
from support.wire import ConnectionClosed

NewNode = Callable[..., Node]

every_kind = pytest.mark.parametrize("kind", ["streamd", "redis"])
pytestmark = [pytest.mark.long, pytest.mark.real]


def begin(new_node: NewNode, kind: str, **settings: str) -> tuple[Node, Node]:
    """A primary, and a replica that is frozen while something is on its way to it."""
    primary, replica = new_node(kind, **settings), new_node("redis")
    replica.follow(primary)
    wait_in_sync(primary, replica)
    wait_until(lambda: "state=online" in primary.info().get("slave0", ""), "a replica that is online")
    replica.freeze()
    primary.must("SET", "k", "v")
    return primary, replica


@every_kind
def test_it_ends_when_the_replica_has_everything(new_node: NewNode, kind: str) -> None:
    primary, replica = begin(new_node, kind, shutdown_timeout="3600")
    with primary.connect() as wire, primary.connect() as writer:
        wire.send("SHUTDOWN", "NOSAVE")
        wait_until(
            lambda: "blocked_clients:1" in primary.must("INFO", "clients").value.decode(), "the client that waits"
        )
        writer.send("SET", "later", "v")  # writes wait until the end, which takes them along
        assert not wire.has_input()
        replica.thaw()
        with pytest.raises(ConnectionClosed, match="before the end"):
            wire.read()
    wait_until(lambda: not primary.is_running, "the end of the primary")
    assert replica.must("GET", "k").value == b"v"
    assert replica.must("GET", "later").value is None


@every_kind
def test_it_ends_after_its_time(new_node: NewNode, kind: str) -> None:
    primary, replica = begin(new_node, kind, shutdown_timeout="1")
    primary.process.send_signal(signal.SIGTERM)
    wait_until(lambda: not primary.is_running, "the end of the primary")
    replica.thaw()
    assert "0 of 1 replicas are in sync when shutting down" in primary.log()


@every_kind
def test_it_can_be_called_off(new_node: NewNode, kind: str) -> None:
    primary, replica = begin(new_node, kind, shutdown_timeout="3600")
    with primary.connect() as wire, primary.connect() as writer:
        wire.send("SHUTDOWN")
        wait_until(
            lambda: "blocked_clients:1" in primary.must("INFO", "clients").value.decode(), "the client that waits"
        )
        writer.send("SET", "later", "v")
        primary.line("SHUTDOWN ABORT")
        assert wire.read().value == b"ERR Errors trying to SHUTDOWN. Check logs."
        assert writer.read().value == b"OK"
    assert primary.call("SHUTDOWN", "ABORT").value == b"ERR No shutdown in progress."
    replica.thaw()
    wait_in_sync(primary, replica)


@every_kind
def test_now_does_not_wait(new_node: NewNode, kind: str) -> None:
    primary, replica = begin(new_node, kind, shutdown_timeout="3600")
    with pytest.raises(ConnectionClosed, match="before the end"):
        primary.call("SHUTDOWN", "NOW", "NOSAVE")
    wait_until(lambda: not primary.is_running, "the end of the primary")
    replica.thaw()
