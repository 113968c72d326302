"""What requests leave behind beside their replies: counters, logs, what files get; as with a real Redis."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from support.compare.observing import same_story
from support.servers import Server, eventually
from support.wire import ConnectionClosed, Wire, show, split_line

pytestmark = pytest.mark.real

StartServer = Callable[..., Server]

CODES = [
    b"", b"x", b"-x y", b"My Err", b"a\nb", b"x=y z", b"x:y#z z", b"\xc3\xa9 \xff", b"  lead", b"- x", b"-ERR",
    b"A" * 30 + b" b", b"A" * 31 + b" b", b"-" + b"A" * 30 + b" b",
]  # fmt: skip


def errorstats(wire: Wire) -> list[bytes]:
    text: bytes = wire.call("INFO", "errorstats").value
    return text.splitlines()


def test_errors_of_scripts_are_counted_by_their_codes(streamd_server: Server, redis_server: Server) -> None:
    def story(server: Server) -> object:
        said = []
        with server.connect() as wire:
            for code in CODES:
                wire.call("CONFIG", "RESETSTAT")
                said.append((wire.call("EVAL", "return redis.error_reply(ARGV[1])", "0", code), errorstats(wire)))
        return said

    same_story(story, streamd_server, redis_server)


def test_128_codes_are_counted(new_streamd: StartServer, new_redis: StartServer) -> None:
    def story(server: Server) -> object:
        said = []
        with server.connect() as wire:
            for _ in range(2):
                for number in range(128):
                    wire.call("EVAL", "return redis.error_reply(ARGV[1])", "0", f"C{number:03} text")
                wire.call("EVAL", "return redis.error_reply('C000 again')", "0")
                said.append(errorstats(wire))
                for code in ("ONE", "TWO", "C000"):
                    wire.call("EVAL", "return redis.error_reply(ARGV[1])", "0", f"{code} more")
                said.append(errorstats(wire))
                wire.call("CONFIG", "RESETSTAT")
        return said, re.findall(r"(?:Errorstats stopped|Current errors).*", server.log())

    same_story(story, new_streamd(), new_redis())


def test_the_log_of_refusals_shows_the_command(streamd_server: Server, redis_server: Server) -> None:
    requests = """
        PING
        SET a 1
        GET b
        MULTI
        SET a 1
        EXEC
        EVAL "return redis.call('set','a','1')" 0
        NOPE
        SET b 1
        XREADGROUP GROUP g c STREAMS b >
        PUBLISH c x
        CONFIG GET x
        AUTH x y
    """

    def story(server: Server) -> object:
        said = []
        with server.connect() as admin, server.connect() as wire:
            admin.call("ACL", "SETUSER", "bob", "on", "nopass", "+@all", "-set", "-config", "~a*")
            admin.call("ACL", "LOG", "RESET")
            wire.call("AUTH", "bob", "x")
            for request in filter(None, map(str.strip, requests.splitlines())):
                said.append(show(wire.call(*split_line(request))))
                for entry in admin.call("ACL", "LOG").plain():
                    fields = dict(zip(entry[::2], entry[1::2], strict=True))
                    said.append((fields[b"object"], re.search(rb"cmd=\S+", fields[b"client-info"])[0]))
                admin.call("ACL", "LOG", "RESET")
            admin.call("ACL", "DELUSER", "bob")
        return said

    same_story(story, streamd_server, redis_server)


def test_errors_of_function_quote_what_was_sent(streamd_server: Server, redis_server: Server) -> None:
    def story(server: Server) -> object:
        with server.connect() as wire:
            lines = (
                "FUNCTION flush async x y",
                "FUNCTION FlUsH a b",
                "FUNCTION restore x y z",
                "FUNCTION RESTORE x FLUSH y",
            )
            return [show(wire.call(*split_line(line))) for line in lines]

    same_story(story, streamd_server, redis_server)


LOGGED = {"enable_debug_command": "yes", "appendonly": "yes", "appendfsync": "always"}


def logged(server: Server) -> bytes:
    """What the append-only file has got so far."""
    return b"".join(path.read_bytes() for path in sorted((server.folder / "appendonlydir").glob("*.incr.aof")))


def test_what_files_get(new_streamd: StartServer, new_redis: StartServer) -> None:
    requests = """
        SET k v pxat 9999999999999
        set K v PxAt 9999999999999 nx
        SET k v GET pxat 9999999999999
        SET k v xx get PXAT 9999999999999
        SET k v exat 9999999999
        SET k v pxat 1
        MSETEX 1 k v pxat 9999999999999
        GETEX k pxat 9999999999998
    """

    def story(server: Server) -> object:
        with server.connect() as wire:
            for request in filter(None, map(str.strip, requests.splitlines())):
                wire.call(*split_line(request))
            return logged(server)

    same_story(story, new_streamd(**LOGGED), new_redis(**LOGGED))


def test_debug_shows_keys_that_have_expired(new_streamd: StartServer, new_redis: StartServer) -> None:
    def story(server: Server) -> object:
        with server.connect() as wire:
            wire.call("DEBUG", "SET-ACTIVE-EXPIRE", "0")
            wire.call("SET", "k", "v", "PX", "1")
            since = wire.call("TIME")
            eventually(lambda: abs(int(wire.call("TIME").value[1].value) - int(since.value[1].value)) > 2000)
            kind = wire.call("DEBUG", "OBJECT", "k").kind
            assert kind == "+"
            digest = wire.call("DEBUG", "DIGEST-VALUE", "k")
            return kind, digest, logged(server).count(b"DEL"), show(wire.call("DEBUG", "LISTPACK", "k"))

    same_story(story, new_streamd(**LOGGED), new_redis(**LOGGED))


def test_the_append_only_file_is_read_again_while_it_is_off(new_streamd: StartServer, new_redis: StartServer) -> None:
    def story(server: Server) -> object:
        with server.connect() as wire:
            said = [
                show(wire.call(*line.split()))
                for line in ("SET k v", "DEBUG LOADAOF", "GET k", "CONFIG SET appendonly yes")
            ]
            eventually(lambda: b"aof_rewrite_in_progress:0" in wire.call("INFO", "persistence").value)
            wire.call("SET", "kept", "v")
            for line in ("CONFIG SET appendonly no", "SET lost v", "DEBUG LOADAOF", "KEYS *"):
                said.append(show(wire.call(*line.split())))
            return said

    same_story(story, new_streamd(enable_debug_command="yes"), new_redis(enable_debug_command="yes"))


def test_a_flush_that_waits_is_answered_when_the_role_changes(new_streamd: StartServer, new_redis: StartServer) -> None:
    def story(server: Server) -> object:
        said = []

        def is_closed() -> bool:
            """Whether it waited when the role changed."""
            with server.connect() as wire, server.connect() as other:
                wire.call("REPLICAOF", "NO", "ONE")
                wire.call("DEBUG", "POPULATE", "600000")
                other.send("FLUSHDB", "SYNC")
                eventually(lambda: b"blocked_clients:0" not in wire.call("INFO", "clients").value or other.has_input())
                wire.call("REPLICAOF", "127.0.0.1", "1")
                said[:] = [show(other.read())]
                try:
                    return other.call("PING").is_error
                except ConnectionClosed:
                    return True

        eventually(is_closed)
        return said

    same_story(story, new_streamd(**LOGGED), new_redis(**LOGGED))


def test_scripts_may_be_trusted_with_all_commands(new_streamd: StartServer, new_redis: StartServer) -> None:
    """But for those that need a connection, with which Redis crashes or loses it."""
    calls = (
        "'debug','protocol','integer'", "'debug','sleep','0'", "'client','getname'", "'client','setname','x'", "'acl','whoami'",
        "'config','get','maxmemory'", "'config','set','maxmemory','0'", "'script','exists','x'", "'role'", "'lastsave'",
    )  # fmt: skip

    def story(server: Server) -> object:
        said = []
        with server.connect() as wire:
            for switch in ("1", "0", "x"):
                wire.call("DEBUG", "SET-DISABLE-DENY-SCRIPTS", switch)
                for call in calls[: 9 if switch == "1" else 2]:
                    said.append(show(wire.call("EVAL", f"return redis.call({call})", "0")))
        return said

    same_story(story, new_streamd(**LOGGED), new_redis(**LOGGED))


def test_no_script_calls_what_needs_a_connection(new_streamd: StartServer) -> None:
    server = new_streamd(**LOGGED)
    with server.connect() as wire:
        wire.call("DEBUG", "SET-DISABLE-DENY-SCRIPTS", "1")
        for call in (
            "'eval','return 1','0'",
            "'multi'",
            "'exec'",
            "'subscribe','c'",
            "'quit'",
            "'reset'",
            "'psync','?','-1'",
        ):
            reply = wire.call("EVAL", f"return redis.call({call})", "0")
            assert reply.value.startswith(b"ERR This Redis command is not allowed from script")
        assert wire.call("PING").value == b"PONG"
