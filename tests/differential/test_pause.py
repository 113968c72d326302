"""CLIENT PAUSE beside a real Redis: who waits and how that is shown, what is not done meanwhile, when it ends. Marked `real`."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest
from support.compare.observing import client_fields, same_story
from support.servers import Server, eventually
from support.wire import ConnectionClosed, Reply, Wire

pytestmark = [pytest.mark.long, pytest.mark.real]

StartServer = Callable[..., Server]
LONG = "100000"


@pytest.fixture
def servers(new_streamd: StartServer, new_redis: StartServer) -> tuple[Server, Server]:
    return new_streamd(), new_redis()


def info(wire: Wire, field: str) -> bytes:
    found = re.search(rb"\r\n%s:([^\r]*)\r\n" % field.encode(), wire.call("INFO", "everything").value)
    assert found is not None, field
    return found[1]


def waits(wire: Wire) -> bool:
    """Whether a client has got nothing for its request, although another's later one has been answered twice."""
    try:
        wire.read(0.05)
    except TimeoutError:
        return True
    return False


def pause(wire: Wire, mode: str = "WRITE", ms: str = LONG) -> None:
    assert wire.call("CLIENT", "PAUSE", ms, mode) == Reply("+", b"OK")


def unpause(wire: Wire) -> None:
    assert wire.call("CLIENT", "UNPAUSE") == Reply("+", b"OK")


def test_who_waits_is_blocked(servers: tuple[Server, Server]) -> None:
    def story(server: Server) -> object:
        with server.connect() as wire, server.connect() as writer, server.connect() as other:
            number = writer.client_id()
            shown = []

            def look() -> None:
                fields = client_fields(wire, number)
                shown.append([fields[name] for name in ("flags", "cmd", "multi", "argv-mem", "tot-cmds")])
                shown.append([info(wire, name) for name in ("blocked_clients", "clients_in_timeout_table")])

            pause(wire)
            writer.send("SET", "key", "value")
            eventually(lambda: client_fields(wire, number)["cmd"] == "set")
            look()
            shown.append(wire.call("CLIENT", "UNBLOCK", number))
            other.send("MULTI")
            other.send("SET", "a", "b")
            eventually(lambda: info(wire, "blocked_clients") == b"2")
            unpause(wire)
            shown += [writer.read(), other.read(), other.read()]
            look()
            pause(wire)
            writer.send("SET", "key", "value")
            eventually(lambda: info(wire, "blocked_clients") == b"1")
            shown.append(wire.call("CLIENT", "KILL", "ID", number))
            eventually(lambda: info(wire, "blocked_clients") == b"0")
            other.send("SET", "x", "y")
            eventually(lambda: info(wire, "blocked_clients") == b"1")
            other.close()
            eventually(lambda: info(wire, "blocked_clients") == b"0")
            return shown

    same_story(story, *servers)


def test_who_waits_is_not_idle(new_streamd: StartServer, new_redis: StartServer) -> None:
    def story(server: Server) -> object:
        with server.connect() as wire, server.connect() as writer, server.connect() as idle:
            wire.call("CONFIG", "SET", "timeout", "4")
            pause(wire)
            writer.send("SET", "key", "value")
            eventually(lambda: info(wire, "connected_clients") == b"2")
            assert idle.read_to_end() == b""
            unpause(wire)
            return writer.read()

    same_story(story, new_streamd(), new_redis())


@pytest.mark.parametrize("mode", ["WRITE", "ALL"])
def test_keys_do_not_expire_meanwhile(mode: str, servers: tuple[Server, Server]) -> None:
    """They are missing to those who ask, and there."""

    def story(server: Server) -> object:
        with server.connect() as wire:
            wire.call("DEBUG", "SET-ACTIVE-EXPIRE", "0")  # however long it takes until the pause
            for key in ("a", "b"):
                wire.call("SET", key, "v", "PX", "30")
            wire.call("XADD", "s", "1-1", "f", "v")
            wire.call("PEXPIRE", "s", "30")
            if mode == "ALL":
                started = time.monotonic()
                pause(wire, "ALL", "500")
                eventually(lambda: time.monotonic() - started > 0.3)
                return wire.pipeline([("GET", "a"), ("DBSIZE",)])[0]  # as soon as the pause ends
            pause(wire)
            wire.call("DEBUG", "SET-ACTIVE-EXPIRE", "1")
            eventually(lambda: wire.call("EXISTS", "a", "b", "s") == Reply(":", 0))
            cycles = int(info(wire, "eventloop_cycles"))
            eventually(lambda: int(info(wire, "eventloop_cycles")) > cycles + 100)
            requests = (
                "GET a", "XREAD STREAMS s 0", "XLEN s", "TYPE b", "TTL a", "KEYS *", "SCAN 0", "TOUCH a", "DUMP a", "OBJECT ENCODING a",
                "MEMORY USAGE nothing", "DBSIZE", "WATCH a", "MULTI", "GET a", "EXEC",
            )  # fmt: skip
            replies = [wire.call(*request.split()) for request in requests]
            replies.append(Reply(":", int(info(wire, "expired_keys"))))
            assert wire.call("MEMORY", "USAGE", "a").kind == ":"
            assert wire.call("RANDOMKEY").value in (b"a", b"b", b"s")
            unpause(wire)
            eventually(lambda: info(wire, "expired_keys") == b"3")
            return replies, wire.call("DBSIZE")

    same_story(story, *servers)


def test_a_random_key_that_lives_is_found_among_many_that_do_not(servers: tuple[Server, Server]) -> None:
    def story(server: Server) -> object:
        with server.connect() as wire:
            wire.pipeline([("SET", f"k{n}", "v", "PX", "20") for n in range(1000)])
            wire.call("SET", "alive", "v")
            pause(wire)
            eventually(lambda: wire.call("EXISTS", *(f"k{n}" for n in range(1000))) == Reply(":", 0))
            return wire.call("RANDOMKEY"), wire.call("EXISTS", "alive")

    same_story(story, *servers)


def test_nothing_is_evicted_meanwhile(servers: tuple[Server, Server]) -> None:
    def story(server: Server) -> object:
        with server.connect() as wire, server.connect() as writer:
            wire.pipeline([("SET", f"k{n}", b"x" * 1000) for n in range(200)])
            wire.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
            pause(wire)
            wire.call("CONFIG", "SET", "maxmemory", "1")
            writer.send("SET", "more", "x")
            eventually(lambda: info(wire, "blocked_clients") == b"1")
            shown = wire.call("DBSIZE"), info(wire, "evicted_keys")
            unpause(wire)
            writer.read()  # written or refused, as there was time to look for room
            eventually(lambda: wire.call("DBSIZE") == Reply(":", 0))
            return shown

    same_story(story, *servers)


def test_a_pause_that_begins_in_a_transaction_holds_from_its_end_on(servers: tuple[Server, Server]) -> None:
    def story(server: Server) -> object:
        with (
            server.connect() as wire,
            server.connect() as writer,
            server.connect() as reader,
            server.connect() as worker,
        ):
            wire.call("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
            reader.send("XREAD", "BLOCK", "0", "STREAMS", "s", "$")
            worker.send("XREADGROUP", "GROUP", "g", "c", "BLOCK", "0", "STREAMS", "s", ">")
            eventually(lambda: info(wire, "blocked_clients") == b"2")
            requests = (
                ("MULTI",),
                ("CLIENT", "PAUSE", LONG, "WRITE"),
                ("SET", "k", "v"),
                ("XADD", "s", "1-1", "f", "v"),
                ("EXEC",),
            )
            shown: list[object] = wire.pipeline(requests)
            shown.append(reader.read())  # changes nothing
            writer.send("SET", "k", "w")
            eventually(lambda: info(wire, "blocked_clients") == b"2")
            shown.append(wire.call("XPENDING", "s", "g"))
            assert waits(worker)
            unpause(wire)
            return [*shown, worker.read(), writer.read(), wire.call("XPENDING", "s", "g")]

    same_story(story, *servers)


def test_a_key_that_is_not_expired_meanwhile_can_be_written_in_the_transaction_that_pauses(
    new_streamd: StartServer,
) -> None:
    """Redis 8.6.3 dies of it."""
    with new_streamd().connect() as wire:
        wire.call("DEBUG", "SET-ACTIVE-EXPIRE", "0")
        for key in ("k", "l"):
            wire.call("SET", key, "v", "PX", "20")
        pause(wire)
        eventually(lambda: wire.call("EXISTS", "k", "l") == Reply(":", 0))
        unpause(wire)
        requests = (
            "MULTI", "CLIENT PAUSE 100000 WRITE", "SET k new", "XADD l 1-1 f v", "EXEC", "GET k", "TTL k", "XLEN l", "DBSIZE",
        )  # fmt: skip
        replies = wire.pipeline([request.split() for request in requests])
        assert [reply.value for reply in replies[4].value] == [b"OK", b"OK", b"1-1"]
        assert [reply.value for reply in replies[5:]] == [b"new", -1, 1, 2]


def test_a_stricter_and_a_longer_pause(servers: tuple[Server, Server]) -> None:
    """The later end and the stricter mode hold."""

    def story(server: Server) -> object:
        with server.connect() as wire, server.connect() as other:
            shown = []
            pause(wire, "WRITE", LONG)
            pause(wire, "WRITE", "1")
            other.send("SET", "k", "v")
            assert waits(other)
            unpause(wire)
            shown.append(other.read())
            pause(wire, "WRITE", "3000")
            pause(wire, "ALL", "1")
            other.send("GET", "k")
            assert waits(other)
            shown.append(other.read())
            pause(wire, "ALL", "200")
            shown.append(wire.call("CLIENT", "PAUSE", "1", "WRITE"))
            return shown

    same_story(story, *servers)


def test_waiting_readers(servers: tuple[Server, Server]) -> None:
    """Their time runs on; what would serve them waits."""

    def story(server: Server) -> object:
        with server.connect() as wire, server.connect() as reader, server.connect() as writer:
            wire.call("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
            shown = []
            reader.send("XREADGROUP", "GROUP", "g", "c", "BLOCK", "2500", "STREAMS", "s", ">")
            eventually(lambda: info(wire, "blocked_clients") == b"1")
            pause(wire)
            shown.append(reader.read())
            reader.send("XREAD", "BLOCK", "0", "STREAMS", "s", "$")
            eventually(lambda: info(wire, "blocked_clients") == b"1")
            writer.send("XADD", "s", "1-1", "f", "v")
            eventually(lambda: info(wire, "blocked_clients") == b"2")
            assert waits(reader)
            unpause(wire)
            return [*shown, writer.read(), reader.read()]

    same_story(story, *servers)


@pytest.mark.parametrize("words", ["SHUTDOWN NOSAVE", "SHUTDOWN NOSAVE NOW"])
def test_a_server_can_be_shut_down_meanwhile(words: str, servers: tuple[Server, Server]) -> None:
    def story(server: Server) -> object:
        with server.connect() as wire, server.connect() as writer:
            pause(wire)
            writer.send("SET", "k", "v")
            eventually(lambda: info(wire, "blocked_clients") == b"1")
            wire.send(*words.split())
            try:
                said = wire.read_to_end(), writer.read_to_end()
            except ConnectionClosed:
                said = b"", b""
            return said, server.process.wait(60)

    same_story(story, *servers)
