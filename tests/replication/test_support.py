"""What the other tests of replication stand on: the proxy passes and cuts what it says, the comparison sees differences."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from support.replicas.nodes import Node, Proxy, assert_same_state, state_of, wait_in_sync, wait_until

NewNode = Callable[..., Node]


class Echo:
    """A server that answers every byte with itself, and keeps what it has received."""

    def __init__(self) -> None:
        self.received = b""
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.listener.getsockname()[1])
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        while True:
            connection, _ = self.listener.accept()
            with connection:
                while data := receive(connection):
                    if data == b"END":
                        return
                    self.received += data
                    connection.sendall(data)

    def close(self) -> None:
        with socket.create_connection(("127.0.0.1", self.port)) as last:
            last.sendall(b"END")
            self.thread.join(10)
        self.listener.close()


def receive(connection: socket.socket) -> bytes:
    try:
        return connection.recv(1 << 16)
    except ConnectionResetError:
        return b""


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Proxy]:
    with Proxy(echo.port) as proxy:
        yield proxy


def read_to_end(connection: socket.socket) -> bytes:
    found = b""
    while data := receive(connection):
        found += data
    return found


@pytest.mark.parametrize("count", [1, 5, 9])
def test_a_proxy_cuts_behind_the_byte_that_it_is_told(echo: Echo, proxy: Proxy, count: int) -> None:
    for down in (True, False):
        echo.received = b""
        proxy.cut_after(count, down=down)
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=60) as connection:
            connection.sendall(b"123456789")
            found = read_to_end(connection)
        if down:
            assert found == b"123456789"[:count]
            wait_until(lambda: echo.received == b"123456789", "the server to have received all")
        else:
            wait_until(lambda: len(echo.received) >= count, "the server to have received a part")
            assert echo.received == b"123456789"[:count]
        assert proxy.refuse
        proxy.refuse = False
    assert proxy.cuts == 2
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=60) as connection:
        connection.sendall(b"whole")
        assert connection.recv(100) == b"whole"


def test_a_proxy_holds_and_delays_without_loss(echo: Echo, proxy: Proxy) -> None:
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=60) as connection:
        proxy.hold()
        connection.sendall(b"held")
        proxy.heal()
        assert connection.recv(100) == b"held"
        proxy.delay_s = 0.05
        start = time.monotonic()
        connection.sendall(b"late")
        assert connection.recv(100) == b"late"
        assert time.monotonic() - start >= 0.1


def test_a_proxy_that_swallows_closes_what_has_lost_something(echo: Echo, proxy: Proxy) -> None:
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=60) as connection:
        connection.sendall(b"a")
        assert connection.recv(100) == b"a"
        proxy.swallow()
        connection.sendall(b"lost")
        proxy.heal()
        assert read_to_end(connection) == b""
    proxy.refuse = True
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=60) as connection:
        assert read_to_end(connection) == b""


@pytest.mark.real
def test_the_comparison_sees_what_a_replica_lacks(new_node: NewNode) -> None:
    primary, replica = new_node("redis"), new_node("redis", replica_read_only="no")
    for line in ("SET text v", "XADD s 1-1 f v", "XGROUP CREATE s g 0", "XREADGROUP GROUP g alice STREAMS s >"):
        primary.line(line)
    replica.follow(primary)
    assert list(assert_same_state(primary, replica)) == [(0, b"s"), (0, b"text")]
    for line in ("XACK s g 1-1", "SET text w", "PEXPIRE s 1000000", "SET more v"):
        before = state_of(replica)
        replica.line(line)
        assert state_of(replica) != before, line
    with pytest.raises(AssertionError, match="is not as"):
        assert_same_state(primary, replica)


@pytest.mark.real
def test_a_node_comes_back_where_it_was(new_node: NewNode) -> None:
    primary, replica = new_node("redis"), new_node("redis")
    replica.follow(primary)
    wait_in_sync(primary, replica)
    replica.freeze()
    primary.line("SET k v")
    replica.thaw()
    assert_same_state(primary, replica)
    primary.kill()
    wait_until(lambda: not replica.has_link(), "the link down")
    primary.start()
    primary.line("SET k w")
    assert assert_same_state(primary, replica)[0, b"k"][2] == b"w"
