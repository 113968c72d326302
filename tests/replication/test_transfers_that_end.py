"""Full syncs without a file whose replica goes away or stops reading, on streamd and on a real Redis. Marked `real`."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from support.replicas.nodes import Node, wait_until
from support.replicas.raw_replica import RawReplica
from support.wire import is_readable

pytestmark = [pytest.mark.long, pytest.mark.real]

VALUE = random.Random(1).randbytes(1 << 20)
"""So many of these are in the snapshot that no socket takes all of it."""


@pytest.fixture(params=["streamd", "redis"])
def primary(request: pytest.FixtureRequest, new_node: Callable[..., Node]) -> Node:
    node = new_node(request.param, save="", repl_diskless_sync="yes", repl_timeout="3600")
    for number in range(40):
        node.must("SET", f"k{number}", VALUE)
    return node


@pytest.fixture
def begin(primary: Node) -> Iterator[Callable[..., list[RawReplica]]]:
    """Begin a transfer to `count` replicas that read nothing of it; their connections, that of the snapshot last."""
    with ExitStack() as stack:

        def begin_transfer(way: str, count: int = 1) -> list[RawReplica]:
            primary.must("CONFIG", "SET", "repl-diskless-sync-max-replicas", str(count))
            primary.must("CONFIG", "SET", "repl-diskless-sync-delay", "3600")
            connections = []
            for _ in range(count):
                main = stack.enter_context(RawReplica(primary))
                main.introduce("eof", "psync2", *(["rdb-channel-repl"] if way == "channel" else []))
                connections.append(main)
                if way == "channel":
                    client_id = main.psync().removeprefix(b"+RDBCHANNELSYNC ")
                    second = stack.enter_context(RawReplica(primary))
                    second.introduce("eof", "psync2")
                    assert second.ask("REPLCONF", "rdb-channel", "1", "main-ch-client-id", client_id) == b"+OK"
                    connections.append(second)
                connections[-1].send("PSYNC", "?", "-1")
            wait_until(lambda: is_transferring(primary), "a transfer")
            wait_until(lambda: is_readable(connections[-1].socket, 0), "its first bytes")
            return connections

        yield begin_transfer


def is_transferring(primary: Node) -> bool:
    return primary.info("persistence")["rdb_bgsave_in_progress"] == "1"


def wait_for_the_end(primary: Node) -> None:
    wait_until(lambda: not is_transferring(primary), "the end of the transfer")
    wait_until(lambda: primary.info()["connected_slaves"] == "0", "replicas that are gone")


@pytest.mark.parametrize("way", ["connection", "channel"])
def test_a_replica_is_listed_once_with_a_connection_for_its_snapshot(
    way: str, primary: Node, begin: Callable[..., list[RawReplica]]
) -> None:
    begin(way)
    listed = [name for name in primary.info() if name.removeprefix("slave").isdigit()]
    assert (primary.info()["connected_slaves"], listed) == ("1", ["slave0"])
    lines = primary.must("CLIENT", "LIST", "TYPE", "replica").value.decode().splitlines()
    assert [line.split(" flags=")[1].split()[0] for line in lines] == (["S"] if way == "connection" else ["S", "SC"])


@pytest.mark.parametrize("way", ["connection", "channel"])
@pytest.mark.parametrize("end", ["close", "half"])
def test_a_replica_that_is_gone_ends_its_transfer(
    way: str, end: str, primary: Node, begin: Callable[..., list[RawReplica]]
) -> None:
    *_, connection = begin(way)
    if end == "close":
        connection.close()
    else:
        connection.socket.shutdown(socket.SHUT_WR)  # nothing is reset: what was sent is still unread
    wait_for_the_end(primary)
    assert "# Diskless rdb transfer, last replica dropped, killing fork child." in primary.log()


@pytest.mark.parametrize("way", ["connection", "channel"])
def test_a_shorter_timeout_holds_for_the_transfer_that_is_running(
    way: str, primary: Node, begin: Callable[..., list[RawReplica]]
) -> None:
    begin(way)
    primary.must("CONFIG", "SET", "repl-timeout", "1")
    wait_for_the_end(primary)
    assert "# Disconnecting timedout replica (full sync): 127.0.0.1:" in primary.log()


def test_a_replica_that_is_closed_is_sent_no_more(primary: Node, begin: Callable[..., list[RawReplica]]) -> None:
    """Though the child of the transfer goes on for the other one."""
    first, second = begin("connection", 2)
    host, port = first.socket.getsockname()
    assert primary.must("CLIENT", "KILL", "ADDR", f"{host}:{port}").value == 1
    received = len(first.read_to_end())
    assert received < 40 << 20
    assert is_transferring(primary)
    answer = second.read_line()
    assert len(second.read_full_sync(answer).payload) > 40 << 20
