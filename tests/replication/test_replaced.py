"""A primary that Sentinels have replaced takes no writes any more: what they say decides, and who says it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.replicas.nodes import Node, wait_until
from support.servers import free_port, target_is_redis
from support.wire import ConnectionClosed, Wire

pytestmark = [pytest.mark.long, pytest.mark.skipif(target_is_redis(), reason="Redis does not listen to Sentinels")]

NewNode = Callable[..., Node]
READONLY = b"READONLY You can't write against a read only replica."


def say_hello(wire: Wire, port: int, epoch: int) -> None:
    """What a Sentinel publishes: the primary is at this port of 127.0.0.1 since an epoch."""
    message = f"127.0.0.1,26379,{7:040x},{epoch},service,127.0.0.1,{port},{epoch}"
    assert not wire.call("PUBLISH", "__sentinel__:hello", message).is_error


def test_a_replaced_primary_refuses_writes_and_closes_connections_until_it_is_named_again(new_node: NewNode) -> None:
    node = new_node("streamd")
    with node.connect() as sentinel, node.connect() as client:
        sentinel.call("CLIENT", "SETNAME", "sentinel-00000000-cmd")
        say_hello(sentinel, node.port, 1)
        assert client.call("SET", "k", "1").value == b"OK"
        other = free_port()
        say_hello(sentinel, other, 2)
        with pytest.raises((ConnectionClosed, OSError)):
            client.call("SET", "k", "2")
        node.hang_up()
        assert node.call("SET", "k", "3").value == READONLY
        assert node.call("GET", "k").value == b"1"
        assert node.info()["replaced_by"] == f"127.0.0.1:{other}"
        say_hello(sentinel, node.port, 1)  # an older Sentinel, which has not heard of it
        assert node.call("SET", "k", "4").value == READONLY
        say_hello(sentinel, node.port, 3)
        assert node.call("SET", "k", "5").value == b"OK"


def test_it_is_a_setting(new_node: NewNode) -> None:
    node = new_node("streamd", refuse_when_replaced="no")
    with node.connect() as sentinel:
        say_hello(sentinel, node.port, 1)
        say_hello(sentinel, free_port(), 2)
        assert node.call("SET", "k", "1").value == b"OK"
        node.must("CONFIG", "SET", "refuse-when-replaced", "yes")
        node.hang_up()
        assert node.call("SET", "k", "2").value == READONLY


def test_a_server_that_announces_its_address_knows_at_its_start_that_it_was_replaced(new_node: NewNode) -> None:
    node = new_node("streamd", replica_announce_ip="127.0.0.1")
    with node.connect() as sentinel:
        sentinel.call("CLIENT", "SETNAME", "sentinel-00000000-cmd")
        say_hello(sentinel, free_port(), 2)
        node.hang_up()
        assert node.call("SET", "k", "1").value == READONLY


def test_an_address_that_was_never_named_may_be_this_server_s_own(new_node: NewNode) -> None:
    node = new_node("streamd")
    with node.connect() as sentinel:
        say_hello(sentinel, free_port(), 2)  # as behind a port that is forwarded
        assert node.call("SET", "k", "1").value == b"OK"


def test_a_promoted_server_does_not_take_old_news_for_new(new_node: NewNode) -> None:
    one, two = new_node("streamd"), new_node("streamd")
    two.follow(one)
    wait_until(two.has_link, "the link")
    with two.connect() as sentinel:
        sentinel.call("CLIENT", "SETNAME", "sentinel-00000000-cmd")
        say_hello(sentinel, two.port, 1)
        say_hello(sentinel, one.port, 2)
        two.follow(None)
        say_hello(sentinel, one.port, 2)
        assert two.call("SET", "k", "1").value == b"OK"


@pytest.mark.parametrize("is_changed_later", [False, True])
def test_writes_are_refused_without_sentinels_where_that_is_wanted(is_changed_later: bool, new_node: NewNode) -> None:
    if is_changed_later:
        node = new_node("streamd")
        node.must("CONFIG", "SET", "refuse-without-sentinels", "300")
    else:
        node = new_node("streamd", refuse_without_sentinels="300")
    assert node.call("SET", "k", "1").value == b"OK"
    with node.connect() as sentinel:
        say_hello(sentinel, node.port, 1)
        wait_until(lambda: node.call("SET", "k", "2").value == READONLY, "the refusal")

        def is_accepted() -> bool:
            sentinel.call("PING")
            return node.call("SET", "k", "3").value == b"OK"

        wait_until(is_accepted, "writes again")
