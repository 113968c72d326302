"""CLIENT LIST, INFO and KILL in each state that a connection can have, beside a real Redis. Marked `real`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from support.compare.later import LATER_CLIENT_FIELDS
from support.compare.observing import client_fields, same_story
from support.servers import Server, eventually
from support.wire import ConnectionClosed, Reply, Wire, split_line

pytestmark = [pytest.mark.long, pytest.mark.real]

StartServer = Callable[..., Server]

COMPARED = (
    "name", "flags", "db", "sub", "psub", "ssub", "multi", "watch", "argv-mem", "multi-mem", "obl", "oll", "omem", "events",
    "cmd", "user", "redir", "resp", "lib-name", "lib-ver", "io-thread", "tot-cmds",
)  # fmt: skip
"""Fields that say something of the connection, and not of how a server keeps it."""


@pytest.fixture(autouse=True)
def no_pause(streamd_server: Server, redis_server: Server) -> Iterator[None]:
    yield
    for server in (streamd_server, redis_server):
        with server.connect() as wire:
            wire.call("CLIENT", "UNPAUSE")


def own_address(wire: Wire) -> str:
    host, port = wire.socket.getsockname()
    return f"{host}:{port}"


STORIES = {
    "new": "",
    "named": "CLIENT SETNAME worker|CLIENT SETINFO lib-name x|CLIENT SETINFO lib-ver 1.2|SELECT 5",
    "multi": "MULTI",
    "queued": "MULTI|SET abc def|XADD s * field value|SET k " + 1000 * "x",
    "aborted": "MULTI|FOO",
    "discarded": "MULTI|SET a b|DISCARD",
    "executed": "MULTI|SET a b|GET a|EXEC",
    "watching": "WATCH a b c a",
    "dirty": "WATCH a b|SET a x",
    "unwatched": "WATCH a b|UNWATCH",
    "watching in another database": "WATCH a|SELECT 1|WATCH a",
    "subscribed": "SUBSCRIBE a|SUBSCRIBE b|PSUBSCRIBE x*",
    "subscribed to shards": "SSUBSCRIBE a|SSUBSCRIBE b",
    "unsubscribed": "SUBSCRIBE a|UNSUBSCRIBE",
    "subscribed in RESP3": "HELLO 3|SUBSCRIBE a|GET k",
    "tracking": "HELLO 3|CLIENT TRACKING ON|GET a",
    "tracking by prefixes": "HELLO 3|CLIENT TRACKING ON BCAST PREFIX a PREFIX b",
    "not tracking any more": "HELLO 3|CLIENT TRACKING ON|CLIENT TRACKING OFF",
    "not to be evicted": "CLIENT NO-EVICT ON|CLIENT NO-TOUCH ON",
    "monitor": "MONITOR",
    "unknown command": "FOO",
    "wrong arity": "PING|GET",
    "failed": "SET k v|XLEN k",
    "reset": "MULTI|CLIENT SETNAME x|RESET",
    "silent": "CLIENT REPLY ON|CLIENT SETNAME x",
    "many": "PING|PING|PING|ECHO x|CLIENT ID",
}


@pytest.mark.parametrize("requests", STORIES.values(), ids=STORIES)
def test_a_connection_is_described_as_redis_does(requests: str, streamd_server: Server, redis_server: Server) -> None:
    def story(server: Server) -> object:
        with server.connect() as wire, server.connect() as other:
            other.call("FLUSHALL")
            client_id = wire.client_id()
            for line in requests.split("|") if requests else ():
                wire.call(*split_line(line))
            fields = client_fields(other, client_id)
            assert list(fields)[:6] == ["id", "addr", "laddr", "fd", "name", "age"]
            assert 0 <= int(fields["age"]) < 60
            return [name for name in fields if name not in LATER_CLIENT_FIELDS], {
                name: fields[name] for name in COMPARED
            }

    same_story(story, streamd_server, redis_server)


@pytest.mark.parametrize("protocol", [2, 3])
def test_a_connection_describes_itself(protocol: int, streamd_server: Server, redis_server: Server) -> None:
    def story(server: Server) -> object:
        with server.connect(protocol) as wire:
            client_id = str(wire.client_id())
            replies = [wire.call("CLIENT", "INFO"), wire.call("CLIENT", "LIST", "ID", client_id)]
            kinds = [(reply.kind, reply.value.count(b"\n"), reply.value[:7]) for reply in replies]
            fields = client_fields(wire)
            assert fields["addr"] == own_address(wire)
            assert fields["laddr"] == f"127.0.0.1:{server.port}"
            names = ("flags", "argv-mem", "cmd", "tot-cmds", "idle", "resp")
            received = int(fields["tot-net-in"]) - len(client_id)  # IDs may differ in length
            return [kind for kind, *_ in kinds], {name: fields[name] for name in names}, received

    same_story(story, streamd_server, redis_server)


def test_a_waiting_connection(streamd_server: Server, redis_server: Server) -> None:
    def story(server: Server) -> object:
        with server.connect() as wire, server.connect() as reader:
            wire.call("FLUSHALL")
            reader_id = reader.client_id()
            shown = []
            reader.send("XREAD", "BLOCK", "0", "STREAMS", "s", "$")
            eventually(lambda: client_fields(wire, reader_id)["flags"] == "b")
            shown.append(client_fields(wire, reader_id))
            wire.call("XADD", "s", "1-1", "f", "v")
            reader.read()
            shown.append(client_fields(wire, reader_id))
            return [{name: fields[name] for name in COMPARED} for fields in shown]

    same_story(story, streamd_server, redis_server)


def test_a_request_in_parts(streamd_server: Server, redis_server: Server) -> None:
    def story(server: Server) -> object:
        with server.connect() as wire, server.connect() as other:
            other_id = other.client_id()
            other.send_bytes(b"*2\r\n$3\r\nGET\r\n$100000\r\nabc")
            eventually(lambda: client_fields(wire, other_id)["qbuf"] == "3")
            fields = client_fields(wire, other_id)
            return {name: fields[name] for name in (*COMPARED, "qbuf", "tot-net-in")}

    same_story(story, streamd_server, redis_server)


def test_replies_that_are_not_read(new_streamd: StartServer, new_redis: StartServer) -> None:
    def story(server: Server) -> object:
        with server.connect() as wire, server.connect() as other:
            wire.call("SET", "big", b"x" * 3_000_000)
            other_id = other.client_id()
            for _ in range(20):
                other.send("GET", "big")
            eventually(lambda: client_fields(wire, other_id)["tot-cmds"] == "21")
            fields = client_fields(wire, other_id)
            assert int(fields["omem"]) + int(fields["obl"]) > 1_000_000 or server.name != "streamd"
            assert server.name != "streamd" or int(fields["tot-mem"]) > int(fields["omem"])
            return fields["events"]

    same_story(story, new_streamd(), new_redis())


def test_types(streamd_server: Server, redis_server: Server) -> None:
    """A subscriber is one whatever it is subscribed to; a monitor is a normal client."""

    def story(server: Server) -> object:
        with ExitStack() as stack:
            wire = stack.enter_context(server.connect())
            # The server may not have heard yet that other tests have gone.
            eventually(lambda: len(wire.call("CLIENT", "LIST").value.splitlines()) == 1)
            others = [stack.enter_context(server.connect()) for _ in range(4)]
            others[0].call("SUBSCRIBE", "a")
            others[1].call("SSUBSCRIBE", "a")
            others[2].call("MONITOR")
            others[3].call("MULTI")
            return {
                kind: [
                    line.split(b" flags=")[1].split()[0]
                    for line in wire.call("CLIENT", "LIST", "TYPE", kind).value.splitlines()
                ]
                for kind in ("normal", "PubSub", "replica", "slave", "master")
            }

    same_story(story, streamd_server, redis_server)


# --- KILL -------------------------------------------------------------------------------------------------------------


def is_closed(wire: Wire) -> bool:
    try:
        return wire.read_to_end(0.02) is not None
    except (TimeoutError, AssertionError):
        return False
    except (ConnectionClosed, OSError):
        return True


FILTERS = (
    "ID {0}", "ID {0} ID {1}", "ID {0} SKIPME NO", "ID {me}", "ID {me} SKIPME YES", "ADDR {addr0}", "ADDR {addr0} ID {1}", "LADDR {laddr}",
    "LADDR {laddr} TYPE pubsub", "TYPE pubsub", "TYPE PUBSUB ID {1}", "TYPE normal", "TYPE replica", "TYPE slave", "TYPE master",
    "USER default", "USER default TYPE pubsub", "USER reader", "USER reader USER default", "MAXAGE 1000000", "MAXAGE 1000000 ID {0}",
    "USER nobody", "SKIPME NO ID 999999999", "ID {0} TYPE normal TYPE pubsub", "ADDR 1.2.3.4:5",
)  # fmt: skip


@pytest.mark.parametrize("filters", FILTERS)
def test_filters_of_kill(filters: str, new_streamd: StartServer, new_redis: StartServer) -> None:
    """Of three connections, and the one that asks: a normal one, a subscriber, one of another user."""

    def story(server: Server) -> object:
        with ExitStack() as stack:
            me, *others = [stack.enter_context(server.connect()) for _ in range(4)]
            me.call("ACL", "SETUSER", "reader", "on", "nopass", "+@all")
            ids = [wire.client_id() for wire in others]
            others[1].call("SUBSCRIBE", "c")
            others[2].call("AUTH", "reader", "x")
            words = filters.format(
                *ids,
                me=me.client_id(),
                addr0=own_address(others[0]),
                laddr=f"127.0.0.1:{server.port}",
            )
            reply = me.call("CLIENT", "KILL", *words.split())
            lines = me.call("CLIENT", "LIST").value.decode().splitlines()
            left = {int(line.split()[0].removeprefix("id=")) for line in lines}
            return reply, [number in left for number in ids]

    same_story(story, new_streamd(), new_redis())


@pytest.mark.parametrize("how", ["ID {} SKIPME NO", "{addr}"])
def test_a_connection_that_kills_itself_gets_the_reply(how: str, streamd_server: Server, redis_server: Server) -> None:
    def story(server: Server) -> object:
        with server.connect() as wire:
            words = how.format(wire.client_id(), addr=own_address(wire)).split()
            wire.send("CLIENT", "KILL", *words)
            return wire.read(), wire.read_to_end()

    same_story(story, streamd_server, redis_server)


def test_kill_by_age(streamd_server: Server, redis_server: Server) -> None:
    def story(server: Server) -> object:
        with server.connect() as old:
            started = time.monotonic()
            old_id = old.client_id()
            eventually(lambda: time.monotonic() - started > 1.1)
            with server.connect() as wire:
                # Its age in whole seconds has to be at least so much.
                return wire.call("CLIENT", "KILL", "ID", str(old_id), "MAXAGE", "100"), wire.call(
                    "CLIENT", "KILL", "ID", str(old_id), "MAXAGE", "1"
                )

    same_story(story, streamd_server, redis_server)


@pytest.mark.parametrize("state", ["BLOCKED", "MULTI", "WATCH", "SUBSCRIBE", "MONITOR", "TRACKING"])
def test_a_killed_connection_leaves_nothing_behind(state: str, streamd_server: Server) -> None:
    setups = {
        "BLOCKED": "XREAD BLOCK 0 STREAMS s $", "MULTI": "MULTI", "WATCH": "WATCH a b", "SUBSCRIBE": "SUBSCRIBE c",
        "MONITOR": "MONITOR", "TRACKING": "CLIENT TRACKING ON BCAST PREFIX p",
    }  # fmt: skip
    with streamd_server.connect() as wire:
        wire.call("FLUSHALL")
        with streamd_server.connect(3) as other:
            other_id = other.client_id()
            other.send(*setups[state].split())
            eventually(lambda: client_fields(wire, other_id)["cmd"].split("|")[0] == setups[state].split()[0].lower())
            assert wire.call("CLIENT", "KILL", "ID", str(other_id)) == Reply(":", 1)
            assert wire.call("CLIENT", "KILL", "ID", str(other_id)) == Reply(":", 0)
        text = wire.call("INFO", "clients", "stats").value.decode()
        for name in (
            "blocked_clients", "pubsub_clients", "watching_clients", "tracking_clients", "total_watched_keys", "total_blocking_keys",
            "pubsub_channels", "tracking_total_prefixes",
        ):  # fmt: skip
            assert f"{name}:0\r\n" in text, name


# --- Limits that close connections --------------------------------------------------------------------------------------


def test_silent_connections_are_closed(new_streamd: StartServer, new_redis: StartServer) -> None:
    """The setting `timeout`, but not for those that are expected to be silent."""

    def story(server: Server) -> object:
        with ExitStack() as stack:
            wires = {
                name: stack.enter_context(server.connect()) for name in ("normal", "sub", "monitor", "blocked", "multi")
            }
            ids = {name: wire.client_id() for name, wire in wires.items()}
            wires["sub"].call("SUBSCRIBE", "c")
            wires["monitor"].call("MONITOR")
            wires["multi"].call("MULTI")
            wires["blocked"].send("XREAD", "BLOCK", "0", "STREAMS", "s", "$")
            wire = stack.enter_context(server.connect())
            wire.call("CONFIG", "SET", "timeout", "4")

            def left() -> set[int]:
                lines = wire.call("CLIENT", "LIST").value.decode().splitlines()
                return {int(line.split()[0].removeprefix("id=")) for line in lines}

            eventually(lambda: ids["normal"] not in left() and ids["multi"] not in left())
            return sorted(name for name, number in ids.items() if number in left())

    same_story(story, new_streamd(), new_redis())


def test_too_many_connections(new_streamd: StartServer, new_redis: StartServer) -> None:
    def story(server: Server) -> object:
        with ExitStack() as stack:
            wires = [stack.enter_context(server.connect()) for _ in range(3)]
            wires[0].call("CONFIG", "SET", "maxclients", "3")
            refused = stack.enter_context(server.connect())
            said = refused.read_to_end()
            rejected = b"rejected_connections:1\r\n" in wires[0].call("INFO", "stats").value
            wires.pop().close()
            eventually(lambda: wires[0].call("CLIENT", "LIST").value.count(b"\n") == 2)
            with server.connect() as again:
                return said, rejected, again.call("PING")

    same_story(story, new_streamd(), new_redis())


def test_a_query_buffer_has_a_limit(new_streamd: StartServer, new_redis: StartServer) -> None:
    def story(server: Server) -> object:
        with server.connect() as wire, server.connect() as other:
            wire.call("CONFIG", "SET", "client-query-buffer-limit", "1048576")
            try:
                other.send_bytes(b"*2\r\n$4\r\nECHO\r\n$3000000\r\n" + b"x" * 3_000_000)
                said = other.read_to_end()
            except OSError:
                said = b""
            return said, b"client_query_buffer_limit_disconnections:1\r\n" in wire.call("INFO", "stats").value

    same_story(story, new_streamd(), new_redis())


def test_keepalive_is_asked_of_the_kernel(new_streamd: StartServer) -> None:
    """CONFIG GET tells the setting, and connections are made with and without it."""
    for seconds in ("0", "100"):
        server = new_streamd(tcp_keepalive=seconds)
        with server.connect() as wire:
            assert wire.call("CONFIG", "GET", "tcp-keepalive").value[1].value == seconds.encode()
