"""A server inside the program that uses it."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from support.servers import eventually, free_port

import streamd.embedded
from streamd.errors import ConfigError
from streamd.pytest_plugin import OtherServer
from streamd.serve.app import ListenError


@pytest.fixture
def other_server() -> OtherServer:
    """As with --streamd-url."""
    return OtherServer("redis://localhost:1", "master")


def connect(port: int) -> redis.Redis:
    """A client that does not try again."""
    return redis.Redis(port=port, retry=Retry(NoBackoff(), 0))


def test_a_stream_in_five_lines() -> None:
    with streamd.embedded.start() as server, closing(redis.Redis(port=server.port, decode_responses=True)) as client:
        entry_id = client.xadd("readings", {"sensor": "a", "celsius": "19.8"})
        assert client.xrange("readings") == [(entry_id, {"sensor": "a", "celsius": "19.8"})]


def test_its_clients_wait_as_long_as_their_command(other_server: OtherServer) -> None:
    """redis-py's own default is 5 seconds, whatever BLOCK says."""
    with streamd.embedded.start() as server:
        for client in (server.client(), other_server.client()):
            assert client.connection_pool.connection_kwargs["socket_timeout"] is None
            client.close()
        for waiting in (server.async_client(), other_server.async_client()):
            assert waiting.connection_pool.connection_kwargs["socket_timeout"] is None
        with server.client(socket_timeout=3) as client:
            assert client.connection_pool.connection_kwargs["socket_timeout"] == 3


@pytest.mark.long
def test_a_client_waits_longer_than_the_default_of_redis_py() -> None:
    with streamd.embedded.start() as server, server.client() as client:
        client.xgroup_create("s", "g", mkstream=True)
        assert not client.xreadgroup("g", "c", {"s": ">"}, block=6000)


def test_two_servers_share_nothing() -> None:
    with streamd.embedded.start() as one, streamd.embedded.start() as two:
        assert one.port != two.port
        with closing(redis.Redis.from_url(one.url)) as first, closing(redis.Redis.from_url(two.url)) as second:
            first.set("k", "v")
            assert second.get("k") is None


def test_settings_are_taken_by_name() -> None:
    with (
        streamd.embedded.start(stream_node_max_entries=3, requirepass="secret") as server,
        closing(redis.Redis(port=server.port, password="secret")) as client,
    ):
        assert client.config_get("stream-node-max-entries") == {"stream-node-max-entries": "3"}


def test_a_setting_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="there is no setting no_such_setting"):
        streamd.embedded.start(no_such_setting=1)


def test_a_port_that_is_taken_is_reported_and_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    with streamd.embedded.start() as server, pytest.raises(ListenError, match="Address already in use"):
        streamd.embedded.start(port=server.port)
    eventually(lambda: set(threading.enumerate()) <= before, what="the end of its threads")


def test_a_server_with_a_log_leaves_no_thread(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with streamd.embedded.start(dir=str(tmp_path), appendonly=True) as server:
        with closing(connect(server.port)) as client:
            client.config_set("appendfsync", "everysec")
            client.set("k", "v")
            client.bgrewriteaof()
            eventually(lambda: client.info("persistence")["aof_rewrite_in_progress"] == 0)
        assert len(set(threading.enumerate()) - before) > 1
    eventually(lambda: set(threading.enumerate()) <= before, what="the end of its threads")


def test_stopping_wakes_and_closes_waiting_clients() -> None:
    server = streamd.embedded.start()
    client = connect(server.port)
    failures: list[Exception] = []

    def wait() -> None:
        try:
            client.xread({"s": "$"}, block=0)
        except redis.ConnectionError as error:
            failures.append(error)

    waiting = threading.Thread(target=wait)
    with closing(redis.Redis(port=server.port)) as other:
        waiting.start()
        eventually(lambda: other.info("clients")["blocked_clients"] == 1, what="the client waiting")
    server.stop()
    waiting.join(100)
    client.close()
    assert failures


def test_port_and_bind_change_while_it_runs() -> None:
    with (
        streamd.embedded.start(port=free_port()) as server,
        closing(redis.Redis(port=server.port)) as client,
        socket.socket() as taken,
    ):
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(redis.ResponseError, match="Unable to listen on this port"):
            client.config_set("port", taken.getsockname()[1])
        with closing(redis.Redis(port=server.port)) as other:
            assert other.ping()
        new_port = free_port()
        client.config_set("port", new_port)
        client.config_set("bind", "*")
        with closing(redis.Redis(port=new_port)) as other:
            assert other.ping()
        with closing(connect(server.port)) as other, pytest.raises(redis.ConnectionError, match="Connection refused"):
            other.ping()


def test_a_free_port_is_known_and_kept_when_bind_changes() -> None:
    with streamd.embedded.start() as server, closing(connect(server.port)) as client:
        assert client.config_get("port") == {"port": str(server.port)}
        client.config_set("bind", "*")
        with closing(connect(server.port)) as other:
            assert other.ping()


def test_idle_clients_are_closed_but_not_those_that_wait() -> None:
    with (
        streamd.embedded.start() as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=60) as idle,
        socket.create_connection(("127.0.0.1", server.port), timeout=60) as waiting,
        closing(redis.Redis(port=server.port)) as client,
    ):
        waiting.sendall(b"XREAD BLOCK 0 STREAMS s $\r\n")
        eventually(lambda: client.info("clients")["blocked_clients"] == 1, what="the client waiting")
        client.config_set("timeout", 1)
        assert idle.recv(1) == b""
        client.xadd("s", {"f": "v"})
        assert waiting.recv(100).startswith(b"*1\r\n")


def test_a_client_above_the_soft_limit_for_too_long_is_closed() -> None:
    with (
        streamd.embedded.start(client_output_buffer_limit=["normal", "0", "200000", "1"]) as server,
        closing(connect(server.port)) as client,
        socket.create_connection(("127.0.0.1", server.port), timeout=60) as lazy,
    ):
        client.xadd("s", {"f": b"x" * 4_000_000})
        lazy.sendall(b"PING\r\n")
        assert lazy.recv(100) == b"+PONG\r\n"
        assert len(client.client_list()) == 2
        started = time.monotonic()
        lazy.sendall(b"XRANGE s - +\r\n" * 5)
        eventually(lambda: len(client.client_list()) == 1, what="the lazy client gone")
        assert time.monotonic() - started > 0.9, "closed before the second was over"
