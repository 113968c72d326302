"""MONITOR: what is shown of whose requests, and what a monitor may do itself, as a real Redis has it. Marked `real`."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest
from support.compare.differential import Request
from support.compare.observing import Watcher, call_all, client_fields, same_story
from support.compare.tables import cases
from support.servers import Server, eventually
from support.wire import Reply, Wire, split_line

pytestmark = pytest.mark.real

StartServer = Callable[..., Server]

CASES = """
== arguments are quoted and escaped
ECHO "a b"
ECHO ""
ECHO "\\x00\\x01\\x1f\\x7f\\xff\\n\\r\\t\\a\\b\\"\\\\'"
set k v
SeT k "\\xc3\\xa4"

== refused requests are not shown, failed ones are
GET
FOO bar
GET a b
CLIENT FOO
XADD s 1-1 f v
GET s
XADD s 1-1 f v

== but EXEC is shown though it is refused
EXEC now
eXeC "a b"
MULTI
GET
EXEC now
EXEC
ECHO last

== administration is not shown
CONFIG GET save
CONFIG RESETSTAT
CLIENT LIST
CLIENT KILL ID 99999999
CLIENT ID
CLIENT GETNAME
SLOWLOG LEN
SLOWLOG HELP
LATENCY LATEST
LATENCY HELP
DEBUG SLEEP 0
DEBUG HELP
ACL WHOAMI
ACL LIST
ACL SETUSER observer on >secret ~*
ACL DELUSER observer
INFO server
COMMAND COUNT
TIME
DBSIZE
MEMORY USAGE k
LOLWUT VERSION 99
LASTSAVE
PUBSUB NUMPAT

== passwords are not shown
AUTH secret
AUTH someone secret
auth someone secret
HELLO 2 AUTH someone secret
HELLO 2 AUTH default secret SETNAME me
HELLO 2 SETNAME me AUTH default secret
HELLO 2 SETNAME AUTH
hello 2 auth default secret
HELLO 2
HELLO 2 SETNAME me

== the database is the one that the request left
SELECT 3
SET k v
SELECT 0
SELECT 99
FLUSHALL

== a transaction is shown as it is run, and its end last
MULTI
SET a 1
GET a
SELECT 2
GET a
SELECT 0
EXEC
MULTI
PING
DISCARD
MULTI
FOO
EXEC
EXEC
WATCH a
UNWATCH

== requests that wait are shown once
XREAD BLOCK 1 STREAMS nothing $
XREADGROUP GROUP g c BLOCK 1 STREAMS nothing >

== publish and subscribe
PUBLISH c m
SUBSCRIBE c
UNSUBSCRIBE
SPUBLISH c m

== expiry by itself is not shown
SET k v PXAT 1
GET k

== reset
RESET
"""


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("script", cases(CASES))
def test_lines_are_those_of_redis(
    script: list[Request], protocol: int, streamd_server: Server, redis_server: Server
) -> None:
    def story(server: Server) -> object:
        with Watcher(server, protocol) as watcher, server.connect() as wire:
            wire.call("FLUSHALL")
            watcher.until_end(wire)
            for request in script:
                wire.call(*request)
            wire.call("RESET")
            return watcher.until_end(wire)

    same_story(story, streamd_server, redis_server)


def test_a_served_request_is_shown_when_it_began_to_wait(streamd_server: Server, redis_server: Server) -> None:
    def story(server: Server) -> object:
        with Watcher(server) as watcher, server.connect() as wire, server.connect() as reader:
            wire.call("DEL", "s")
            watcher.until_end(wire)
            reader.send("XREAD", "BLOCK", "0", "STREAMS", "s", "$")
            first = watcher.next_line().split(b"]")[1]
            wire.call("XADD", "s", "1-1", "f", "v")
            reader.read()
            return first, watcher.until_end(wire)

    same_story(story, streamd_server, redis_server)


@pytest.mark.parametrize("protocol", [2, 3])
def test_what_a_monitor_may_do(protocol: int, streamd_server: Server, redis_server: Server) -> None:
    """Everything that does not touch keys; it sees its own requests after their replies."""
    requests = (
        "GET k", "SET k v", "XLEN s", "DEL k", "PUBLISH c m", "KEYS *", "DBSIZE", "SCAN 0", "FLUSHALL", "RANDOMKEY", "EXISTS k",
        "PING", "ECHO x", "SELECT 1", "WATCH k", "CLIENT ID", "MULTI", "GET k", "EXEC", "MULTI", "PING", "EXEC", "TIME",
        "CLIENT SETNAME m", "CLIENT GETNAME",
    )  # fmt: skip

    def story(server: Server) -> object:
        said: list[object] = []
        with Watcher(server, protocol) as watcher, server.connect() as wire:
            for line in requests:
                reply = watcher.wire.call(*split_line(line))
                # The own request comes after its reply, and before another's that follows.
                said.append((line if line in ("TIME", "CLIENT ID") else reply, watcher.until_end(wire)))
        return said

    same_story(story, streamd_server, redis_server)


def test_monitor_in_a_transaction_is_refused(streamd_server: Server, redis_server: Server) -> None:
    def story(server: Server) -> object:
        with server.connect() as wire:
            replies = call_all(wire, [("MULTI",), ("MONITOR",), ("EXEC",), ("MONITOR", "x"), ("PING",)])
            return replies, client_fields(wire)["flags"]

    same_story(story, streamd_server, redis_server)


def test_a_second_monitor_is_not_answered(streamd_server: Server, redis_server: Server) -> None:
    def story(server: Server) -> object:
        with Watcher(server) as watcher:
            watcher.wire.send("MONITOR")
            return watcher.wire.call("PING"), watcher.next_line()[18:21]

    same_story(story, streamd_server, redis_server)


@pytest.mark.parametrize("protocol", [2, 3])
def test_reset_ends_it(protocol: int, streamd_server: Server, redis_server: Server) -> None:
    def story(server: Server) -> object:
        with Watcher(server, protocol) as watcher, server.connect() as wire:
            shown = [client_fields(wire, watcher_id := int(watcher_ids(wire)[0]))["flags"]]
            watcher.until_end(wire)
            replies = [watcher.wire.call("RESET")]
            wire.call("SET", "k", "v")
            replies.append(watcher.wire.call("GET", "k"))
            shown.append(client_fields(wire, watcher_id)["flags"])
            return replies, shown

    same_story(story, streamd_server, redis_server)


def watcher_ids(wire: Wire) -> list[str]:
    lines = wire.call("CLIENT", "LIST").value.decode().splitlines()
    return [line.split()[0].removeprefix("id=") for line in lines if "flags=O " in line]


def test_quit_ends_it(streamd_server: Server, redis_server: Server) -> None:
    def story(server: Server) -> object:
        with Watcher(server) as watcher:
            watcher.wire.send("QUIT")
            return watcher.wire.read(), b"QUIT" in watcher.wire.read_to_end()

    same_story(story, streamd_server, redis_server)


def test_a_monitor_is_a_normal_client(streamd_server: Server, redis_server: Server) -> None:
    """For CLIENT LIST TYPE and CLIENT KILL TYPE, and so for the limits of its output."""

    def story(server: Server) -> object:
        with Watcher(server) as watcher, server.connect() as wire:
            found = [
                sum(b"flags=O" in line for line in wire.call("CLIENT", "LIST", "TYPE", kind).value.split(b"\n"))
                for kind in ("normal", "replica", "pubsub")
            ]
            killed = wire.call("CLIENT", "KILL", "TYPE", "replica")
            watcher.until_end(wire)
            return found, killed

    same_story(story, streamd_server, redis_server)


def test_a_monitor_continues_during_a_pause(streamd_server: Server, redis_server: Server) -> None:
    def story(server: Server) -> object:
        with Watcher(server) as watcher, server.connect() as wire:
            wire.call("CLIENT", "PAUSE", "20000")
            watcher.wire.send("ECHO", "still")
            reply = watcher.wire.read()
            shown = watcher.next_line()
            watcher.wire.call("CLIENT", "UNPAUSE")
            return reply, shown.split(b"] ")[1]

    same_story(story, streamd_server, redis_server)


def test_requests_over_a_unix_socket(new_streamd: StartServer, new_redis: StartServer) -> None:
    def story(server: Server) -> object:
        with Watcher(server) as watcher, server.connect() as wire:
            other = socket.socket(socket.AF_UNIX)
            other.connect(str(server.folder / "s.sock"))
            with other:
                other.sendall(b"PING\r\n")
                assert other.recv(100) == b"+PONG\r\n"
            return watcher.until_end(wire)

    # A relative path: those of tests are longer than a socket's may be.
    same_story(story, new_streamd(unixsocket="s.sock"), new_redis(unixsocket="s.sock"))


def test_every_monitor_is_shown_the_same(streamd_server: Server) -> None:
    with Watcher(streamd_server, 3) as first, Watcher(streamd_server) as second, streamd_server.connect() as wire:
        wire.call("SET", "k", "v")
        wire.call("ECHO", "x")
        assert first.next_line() == second.next_line()
        assert first.next_line() == second.next_line()


def test_nothing_is_shown_when_the_last_monitor_has_gone(streamd_server: Server) -> None:
    with streamd_server.connect() as wire:
        with Watcher(streamd_server):
            assert watcher_ids(wire)
        eventually(lambda: not watcher_ids(wire))
        assert wire.call("PING") == Reply("+", b"PONG")


def test_a_monitor_that_does_not_read_is_closed(new_streamd: StartServer) -> None:
    server = new_streamd(client_output_buffer_limit="normal 1000000 0 0")
    with Watcher(server) as watcher, server.connect() as wire:
        value = b"x" * 100_000

        def is_gone() -> bool:
            wire.pipeline([("SET", "k", value)] * 20)
            return not watcher_ids(wire)

        eventually(is_gone)
        assert wire.call("INFO", "stats").value.count(b"client_output_buffer_limit_disconnections:1") == 1
        assert server.is_running
        del watcher
