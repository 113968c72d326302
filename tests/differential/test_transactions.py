"""Transactions: MULTI, EXEC, DISCARD, WATCH, UNWATCH, as by a real Redis. Marked `real`."""

from __future__ import annotations

import os
import random
import re

import pytest
from support.compare.dialogues import compare_dialogue
from support.compare.differential import Pair, Request
from support.compare.observing import command_counts
from support.compare.tables import cases
from support.servers import Server
from support.wire import ConnectionClosed, Reply, Wire, show, split_line

pytestmark = pytest.mark.real

REQUESTS = """
== nothing begun
EXEC
DISCARD
UNWATCH
EXEC x
DISCARD x
MULTI x
WATCH
UNWATCH x

== empty
MULTI
EXEC
EXEC
MULTI
DISCARD
DISCARD

== queued and run
MULTI
SET k 1
INCR k
XADD s 1 f v
XRANGE s - +
XREAD STREAMS s 0
GET none
PING
PING text
ECHO text
EXEC
GET k

== discarded
SET k 1
MULTI
SET k 2
DISCARD
GET k
EXEC

== nested
MULTI
SET k 1
MULTI
SET k 2
MULTI x
EXEC
GET k

== nested without fault
MULTI
SET k 1
MULTI
SET k 2
EXEC
GET k

== watch inside
MULTI
WATCH k
SET k 1
EXEC
GET k
MULTI
WATCH
EXEC

== unwatch inside is queued
WATCH k
MULTI
UNWATCH
SET k 1
EXEC

== run-time errors roll nothing back
SET text abc
MULTI
SET k 1
INCR text
XADD text 1 f v
XADD s 1
XADD s 1 f v
XADD s 1 f v
XGROUP CREATE none g 0
EXEC
MULTI
SET k 1
INCR text
XADD text 1 f v
XADD s 1 f v
XADD s 1 f v
XADD s x f v
XGROUP CREATE none g 0
SELECT 99
SELECT x
CLIENT SETNAME "a b"
OBJECT ENCODING none
EXEC
GET k
XLEN s

== unknown commands abort
MULTI
SET k 1
NOSUCH
SET k 2
EXEC
GET k
MULTI
NOSUCH a b c
EXEC
MULTI
XGROUP NOSUCH
EXEC
MULTI
CLIENT NOSUCH a
EXEC

== arity aborts
MULTI
GET
EXEC
MULTI
SET k
EXEC
MULTI
CLIENT ID x
EXEC
MULTI
XADD s 1 f
EXEC
MULTI
CLIENT
EXEC
MULTI
EXEC x
EXEC
DISCARD
MULTI
DISCARD x
EXEC
MULTI
DISCARD x
DISCARD

== not allowed inside
MULTI
SAVE
SET k 1
EXEC
MULTI
SHUTDOWN NOSAVE
EXEC

== an aborted one can be discarded
MULTI
NOSUCH
DISCARD
EXEC
MULTI
SET k 1
EXEC

== watch and the same client
WATCH k
SET k 1
MULTI
GET k
EXEC
WATCH k
MULTI
SET k 2
EXEC
GET k
WATCH k
MULTI
SET k 3
DISCARD
MULTI
GET k
EXEC
WATCH k
SET k 4
UNWATCH
MULTI
GET k
EXEC
WATCH k
SET k 4
DISCARD
MULTI
GET k
EXEC
WATCH k
SET k 4
MULTI
DISCARD
MULTI
GET k
EXEC
WATCH k k k l
DEL k
MULTI
EXEC
MULTI
EXEC

== watch and an aborted transaction
WATCH k
SET k 1
MULTI
NOSUCH
EXEC
MULTI
EXEC

== watch what changes without a change
SET k 1
WATCH k
SET k 1
MULTI
EXEC
WATCH none
DEL none
EXPIRE none 10
MULTI
EXEC
WATCH k
GETEX k
TOUCH k
GET k
TYPE k
MULTI
EXEC
WATCH k
APPEND k ""
MULTI
EXEC
WATCH k
SETRANGE k 0 ""
MULTI
EXEC
WATCH k
SETNX k 5
SET k 5 NX
SET none 5 XX
PERSIST k
EXPIRE k 100 XX
MULTI
EXEC
WATCH k
EXPIRE k 100
MULTI
EXEC
WATCH k
EXPIRE k 100
UNWATCH
WATCH k
PERSIST k
MULTI
EXEC
WATCH k
EXPIRE k -1
MULTI
EXEC
WATCH none
SET none 1
DEL none
MULTI
EXEC

== watch whole keys
SET k 1
WATCH k
RENAME k l
MULTI
EXEC
WATCH k
RENAME l k
MULTI
EXEC
WATCH k
RENAME k k
MULTI
EXEC
SET l 2
WATCH k
RENAMENX l k
MULTI
EXEC
WATCH l
RENAMENX k l
MULTI
EXEC
WATCH k
COPY k m
MULTI
EXEC
WATCH m
COPY k m
MULTI
EXEC
WATCH m
COPY k m REPLACE
MULTI
EXEC
WATCH k
MOVE k 1
MULTI
EXEC
WATCH k
SELECT 1
DEL k
SELECT 0
MULTI
EXEC
SELECT 1
WATCH k
SELECT 0
SET k 1
MULTI
EXEC
SELECT 1
WATCH k
SET k 1
SELECT 0
MULTI
EXEC
SELECT 1
DEL k

== watch and flush
SET k 1
WATCH k
FLUSHDB
MULTI
EXEC
WATCH k
FLUSHALL
MULTI
EXEC
SET k 1
WATCH k
FLUSHDB ASYNC
MULTI
EXEC
SET k 1
SELECT 1
WATCH k
FLUSHALL
MULTI
EXEC
SELECT 0
SET k 1
WATCH k
SELECT 1
FLUSHDB
SELECT 0
MULTI
EXEC

== watch and swap
SET k 1
WATCH k
SWAPDB 0 1
MULTI
EXEC
WATCH k
SWAPDB 0 1
MULTI
EXEC
WATCH none
SWAPDB 0 1
MULTI
EXEC
WATCH none k
SWAPDB 2 3
MULTI
EXEC
SWAPDB 0 1
FLUSHALL

== watch streams
XADD s 1 f v
XGROUP CREATE s g 0
WATCH s
XREADGROUP GROUP g c STREAMS s >
MULTI
EXEC
WATCH s
XACK s g 1
MULTI
EXEC
WATCH s
XGROUP CREATE s h 0
MULTI
EXEC
WATCH s
XGROUP SETID s h 1
MULTI
EXEC
WATCH s
XGROUP CREATECONSUMER s h alice
MULTI
EXEC
WATCH s
XGROUP DELCONSUMER s h alice
MULTI
EXEC
WATCH s
XGROUP DESTROY s h
MULTI
EXEC
WATCH s
XCLAIM s g c 0 1
MULTI
EXEC
WATCH s
XAUTOCLAIM s g c 0 0
MULTI
EXEC
WATCH s
XDEL s 9
MULTI
EXEC
WATCH s
XDEL s 1
MULTI
EXEC
WATCH s
XADD s 2 f v
MULTI
EXEC
WATCH s
XTRIM s MAXLEN 10
MULTI
EXEC
WATCH s
XTRIM s MAXLEN 0
MULTI
EXEC
WATCH s
XSETID s 9
MULTI
EXEC
WATCH s
XADD s 1 f v
MULTI
EXEC
WATCH s
XRANGE s - +
XINFO STREAM s
XREAD STREAMS s 0
MULTI
EXEC

== a watch ends with each of these
WATCH k
MULTI
EXEC
SET k 1
MULTI
EXEC
WATCH k
MULTI
NOSUCH
EXEC
SET k 1
MULTI
EXEC

== select inside
MULTI
SELECT 1
SET k 1
SELECT 2
SET k 2
EXEC
GET k
SELECT 1
GET k
DEL k
SELECT 0
MULTI
SELECT 1
DISCARD
SET k 0
MULTI
SELECT 1
GET k
SWAPDB 0 1
GET k
EXEC
GET k
FLUSHALL

== waiting inside
XADD s 1 f v
XGROUP CREATE s g $
MULTI
XREAD BLOCK 0 STREAMS s $
XREAD BLOCK 100 STREAMS s none 0 0
XREADGROUP GROUP g c BLOCK 0 STREAMS s >
XREAD BLOCK 0 STREAMS none 0
EXEC

== connection commands inside
MULTI
CLIENT ID
CLIENT GETNAME
CLIENT SETNAME worker
CLIENT GETNAME
CLIENT SETNAME ""
CLIENT NO-TOUCH ON
CLIENT NO-TOUCH OFF
CLIENT NO-EVICT ON
CLIENT NO-EVICT OFF
CLIENT REPLY ON
CLIENT UNBLOCK 99999999
CLIENT KILL ID 99999999
CLIENT KILL 1.2.3.4:5
CLIENT TRACKINGINFO
CLIENT GETREDIR
CLIENT CACHING yes
CLIENT PAUSE 0
CLIENT UNPAUSE
COMMAND COUNT x
EXEC

== reset inside
WATCH k
MULTI
SET k 1
RESET
EXEC
GET k
MULTI
EXEC

== hello inside
MULTI
GET none
HELLO 3
GET none
XREAD STREAMS none 0
HELLO 2
GET none
HELLO 9
GET none
EXEC
GET none

== hello 3 inside
MULTI
HELLO 3
GET none
EXEC
GET none
HELLO 2

== hello 2 inside
HELLO 3
MULTI
HELLO 2
GET none
XREAD STREAMS none 0
EXEC
GET none

== an aborted one in both protocols
HELLO 3
WATCH k
SET k 1
MULTI
HELLO 2
EXEC
MULTI
GET none
HELLO 2
EXEC
GET none

== publish and subscribe inside
MULTI
PUBLISH none x
PUBSUB NUMPAT
PUBSUB CHANNELS
EXEC

== errors keep their place
MULTI
GET none
NOSUCH "a\\r\\nb"
EXEC
MULTI
GET none
INCR none
INCR none
EXEC
"""


@pytest.mark.parametrize("script", cases(REQUESTS))
def test_requests(pair: Pair, script: list[Request]) -> None:
    pair.run(script)


DIALOGUES = {
    "watched by several": """
        a: WATCH k
        c2: WATCH k l
        b2: SET k 1
        a: MULTI ; GET k ; EXEC
        c2: MULTI ; GET k ; EXEC
        c2: MULTI ; GET k ; EXEC
        a: WATCH k
        c2: WATCH l
        b2: SET k 1
        c2: MULTI ; SET k 2 ; EXEC
        a: MULTI ; GET k ; EXEC
    """,
    "changed between multi and exec": """
        a> WATCH k ; MULTI ; GET k
        b2: SET k 1
        a: EXEC
        a> WATCH k ; MULTI ; GET k
        b2: GET k ; SET l 1
        a: EXEC
        a> WATCH k ; MULTI ; GET k
        b2: FLUSHALL
        a: EXEC
        b2: SET k 1
        a> WATCH k ; MULTI ; GET k
        b2: SWAPDB 0 1
        a: EXEC
        b2: FLUSHALL
    """,
    "reset and hanging up end a watch": """
        a: WATCH k ; RESET ; HELLO 3
        b2: SET k 1
        a: MULTI ; GET k ; EXEC
        a: WATCH k ; MULTI ; GET k ; RESET
        b2: SET k 1
        a: MULTI ; GET k ; EXEC
        c: WATCH k
        c!
        b2: SET k 1
        d> WATCH k ; MULTI ; SET k 9
        d!
        b2: GET k
    """,
    "readers of streams are served after the whole": """
        a& XREAD BLOCK 0 STREAMS s $
        c2& XREAD BLOCK 0 STREAMS s 0
        b2: MULTI ; XADD s 1 f v ; XADD s 2 f v ; XLEN s ; EXEC
        a.
        c2.
        a& XREAD BLOCK 0 STREAMS s $
        b2: MULTI ; XADD s 3 f v ; XDEL s 3 ; EXEC
        b2: MULTI ; XADD s 4 f v ; DEL s ; EXEC
        b2: MULTI ; DEL s ; SET s 1 ; DEL s ; XADD s 5 f v ; EXEC
        a.
    """,
    "readers of groups are served after the whole": """
        b2: XGROUP CREATE s g 0 MKSTREAM
        a& XREADGROUP GROUP g a BLOCK 0 STREAMS s >
        c2& XREADGROUP GROUP g c BLOCK 0 STREAMS s >
        b2: MULTI ; XADD s 1 f v ; XREADGROUP GROUP g b COUNT 1 STREAMS s > ; XADD s 2 f v ; EXEC
        a.
        b2: MULTI ; XADD s 3 f v ; XGROUP DESTROY s g ; EXEC
        c2.
    """,
    "a waiting client is no part of it": """
        a& XREAD BLOCK 0 STREAMS s $
        b2: WATCH s ; MULTI ; CLIENT UNBLOCK {a} ; CLIENT UNBLOCK {a} ; EXEC
        a.
        a& XREAD BLOCK 0 STREAMS s $
        b2: MULTI ; CLIENT UNBLOCK {a} ERROR ; PING ; EXEC
        a.
    """,
    "quit inside": """
        a? MULTI ; SET k 1 ; QUIT
        b2: GET k
        a2? MULTI ; SET k 1 ; QUIT ; EXEC
        b2: GET k
    """,
    "killing oneself": """
        a+
        a? MULTI ; SET k 1 ; CLIENT KILL ID {a} SKIPME no ; SET k 2 ; EXEC
        b2: GET k
        c2+
        c2? MULTI ; SET k 3 ; CLIENT KILL {addr c2} ; SET k 4 ; GET k ; EXEC ; PING
        b2: GET k
    """,
    "killing another": """
        a> WATCH k ; MULTI ; SET k 1
        b2: MULTI ; CLIENT KILL ID {a} ; CLIENT KILL ID {a} ; PING ; EXEC
        a?
        b2: GET k
    """,
    "a pause of writes": """
        a> MULTI ; SET k 1
        c2> MULTI ; GET k
        d2> MULTI ; PUBLISH none x
        b2: CLIENT PAUSE 100000 WRITE
        c2: EXEC
        a~ EXEC
        d2~ EXEC ; GET k
        b2: GET k
        a2~ SET l 1
        b2: EXISTS k l
        b2: CLIENT UNPAUSE
        a.
        d2.
        a2.
        b2: EXISTS k l
    """,
    "a pause inside": """
        b2: MULTI ; CLIENT PAUSE 100000 WRITE ; SET k 1 ; GET k ; EXEC ; GET k
        a~ MULTI ; SET k 2 ; EXEC
        b2: GET k
        b2: CLIENT UNPAUSE
        a.
    """,
    "subscriptions inside": """
        a: MULTI ; SUBSCRIBE c ; PUBLISH c 1 ; PSUBSCRIBE c* ; GET k ; EXEC ; PING
        b2: PUBLISH c 2
        a: MULTI ; UNSUBSCRIBE ; PUNSUBSCRIBE ; PUBLISH c 3 ; EXEC
        r2: MULTI ; SUBSCRIBE c ; PING ; GET k ; EXEC
        b2: PUBLISH c 4
        r2: MULTI
        r2: UNSUBSCRIBE c
        r2: MULTI ; UNSUBSCRIBE ; PING ; EXEC
    """,
    "published to oneself": """
        a: SUBSCRIBE c
        a: MULTI ; PUBLISH c 1 ; PING ; PUBLISH c 2 ; EXEC ; PING
        b2: MULTI ; PUBLISH c 1 ; PUBLISH c 2 ; EXEC
    """,
    "a subscriber in RESP2 cannot finish": """
        a2> MULTI ; SUBSCRIBE c ; EXEC ; MULTI
        a2: PING
        a3> SUBSCRIBE c ; MULTI ; GET k ; HELLO 2
        a3> EXEC
        a3: PING
        a4> SUBSCRIBE c ; MULTI ; GET k
        a4> EXEC
        a4: PING
    """,
    "monitor inside": """
        a: MULTI ; GET k ; MONITOR ; EXEC
        a: PING
    """,
}


@pytest.mark.parametrize("name", DIALOGUES, ids=lambda name: name.replace(" ", "_"))
def test_dialogues(streamd_server: Server, redis_server: Server, name: str) -> None:
    compare_dialogue(streamd_server, redis_server, DIALOGUES[name])


SILENCED = (
    "CLIENT REPLY OFF ; MULTI ; SET k 1 ; GET k ; EXEC ; CLIENT REPLY ON ; GET k",
    "CLIENT REPLY SKIP ; MULTI ; GET k ; EXEC ; PING",
    "MULTI ; CLIENT REPLY SKIP ; GET k ; EXEC ; PING ; ECHO x",
    "MULTI ; CLIENT REPLY SKIP ; EXEC ; PING ; ECHO x",
    "MULTI ; GET k ; CLIENT REPLY SKIP ; GET k ; CLIENT REPLY ON ; GET k ; EXEC ; PING",
    "MULTI ; GET k ; CLIENT REPLY OFF ; GET l ; CLIENT REPLY ON ; GET m ; EXEC ; PING",
    "MULTI ; GET k ; CLIENT REPLY OFF ; GET l ; EXEC ; PING ; CLIENT REPLY ON ; PING",
    "MULTI ; CLIENT REPLY OFF ; EXEC ; PING ; CLIENT REPLY ON ; PING",
    "MULTI ; GET k ; CLIENT REPLY OFF ; NOSUCH ; EXEC ; CLIENT REPLY ON ; PING",
    "CLIENT REPLY OFF ; MULTI ; CLIENT REPLY ON ; GET k ; EXEC ; PING",
    "CLIENT REPLY OFF ; MULTI ; GET l ; CLIENT REPLY ON ; GET k ; EXEC ; PING",
    "CLIENT REPLY OFF ; MULTI ; CLIENT REPLY ON ; EXEC ; PING",
    "CLIENT REPLY OFF ; MULTI ; NOSUCH ; EXEC ; CLIENT REPLY ON ; PING",
    "CLIENT REPLY OFF ; WATCH k ; SET k 1 ; MULTI ; EXEC ; CLIENT REPLY ON ; PING",
    "MULTI ; CLIENT REPLY OFF ; RESET ; PING",
    "CLIENT REPLY OFF ; MULTI ; RESET ; PING",
)


@pytest.mark.parametrize("line", SILENCED, ids=lambda line: line.replace(" ", "_"))
@pytest.mark.parametrize("protocol", [2, 3], ids=["RESP2", "RESP3"])
def test_client_reply_in_transactions(streamd_server: Server, redis_server: Server, protocol: int, line: str) -> None:
    """The bytes themselves: a transaction whose elements are silenced is no reply that could be parsed."""
    said = []
    for server in (streamd_server, redis_server):
        with server.connect(protocol) as wire:
            wire.call("FLUSHALL")
            wire.call("SET", "k", "value")
            for request in line.split(" ; "):
                wire.send(*split_line(request))
            wire.send("QUIT")
            said.append(wire.read_to_end())
    assert said[0] == said[1]


@pytest.fixture(params=["streamd", "redis"])
def server(request: pytest.FixtureRequest) -> Server:
    running: Server = request.getfixturevalue(f"{request.param}_server")
    with running.connect() as wire:
        wire.call("FLUSHALL")
    return running


# --- Time -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("active", [b"0", b"1"])
def test_a_watched_key_that_expires_stops_the_transaction(server: Server, active: bytes) -> None:
    with server.connect() as wire, server.connect() as other:
        other.call("DEBUG", "SET-ACTIVE-EXPIRE", active)
        try:
            wire.pipeline([("SET", "k", "1", "PX", "200"), ("WATCH", "k")])
            other.call("DEBUG", "SLEEP", "0.25")
            wire.call("MULTI")
            wire.call("PING")
            assert wire.call("EXEC") == Reply("*-1", None)
        finally:
            other.call("DEBUG", "SET-ACTIVE-EXPIRE", "1")


def test_a_key_that_had_expired_when_it_was_watched_stops_nothing(server: Server) -> None:
    with server.connect() as wire, server.connect() as other:
        other.call("DEBUG", "SET-ACTIVE-EXPIRE", "0")
        try:
            wire.call("SET", "k", "1", "PX", "10")
            other.call("DEBUG", "SLEEP", "0.02")
            wire.call("WATCH", "k")
            assert other.call("GET", "k").value is None
            wire.call("MULTI")
            assert wire.call("EXEC") == Reply("*", ())
        finally:
            other.call("DEBUG", "SET-ACTIVE-EXPIRE", "1")


# --- Limits ------------------------------------------------------------------------------------------------------------


def test_a_queue_larger_than_the_query_buffer_limit_closes_the_connection(server: Server) -> None:
    with server.connect() as other:
        other.call("CONFIG", "SET", "client-query-buffer-limit", str(1 << 20))
        try:
            wire = server.connect()
            wire.call("MULTI")
            with wire, pytest.raises((ConnectionClosed, ConnectionError)):
                wire.pipeline([("SET", "k", b"x" * 60_000)] * 40)
            assert other.call("EXISTS", "k").value == 0
        finally:
            other.call("CONFIG", "SET", "client-query-buffer-limit", str(1 << 30))


def test_no_memory_aborts_what_needs_some(server: Server) -> None:
    with server.connect() as wire, server.connect() as other:
        other.call("SET", "k", "1")
        wire.call("MULTI")
        wire.call("SET", "k", "2")
        other.call("CONFIG", "SET", "maxmemory", "1")
        try:
            said = [show(wire.call("EXEC"))]
            wire.call("MULTI")
            said += [
                show(wire.line(line))
                for line in ("GET k", "SET k 3", "EXEC", "GET k", "MULTI", "GET k", "DEL k", "EXEC")
            ]
        finally:
            other.call("CONFIG", "SET", "maxmemory", "0")
        assert said == [
            "-EXECABORT Transaction discarded because of: OOM command not allowed when used memory > 'maxmemory'.",
            "+QUEUED",
            "-OOM command not allowed when used memory > 'maxmemory'.",
            "-EXECABORT Transaction discarded because of previous errors.",
            '"1"', "+OK", "+QUEUED", "+QUEUED", '["1", :1]',
        ]  # fmt: skip


def test_missing_permissions_abort_or_fail(server: Server) -> None:
    with server.connect() as wire, server.connect() as other:
        other.call("ACL", "SETUSER", "mallory", "reset", "on", "nopass", "+@all", "-set", "~a*", "&*")
        try:
            assert wire.call("AUTH", "mallory", "x").value == b"OK"
            lines = ("MULTI", "GET a", "SET a 1", "EXEC", "MULTI", "GET k", "EXEC", "MULTI", "GET a", "INCR a")
            said = [show(wire.line(line)) for line in lines]
            other.call("ACL", "SETUSER", "mallory", "-incr")
            said.append(show(wire.call("EXEC")))
            wire.call("MULTI")
            wire.call("GET", "a")
            other.call("ACL", "SETUSER", "mallory", "-exec")
            said += [show(wire.line(line)) for line in ("EXEC", "GET a")]
        finally:
            other.call("ACL", "DELUSER", "mallory")
        assert said == [
            "+OK", "+QUEUED", "-NOPERM User mallory has no permissions to run the 'set' command",
            "-EXECABORT Transaction discarded because of previous errors.",
            "+OK", "-NOPERM No permissions to access a key",
            "-EXECABORT Transaction discarded because of previous errors.",
            "+OK", "+QUEUED", "+QUEUED",
            "[null-bulk, -NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This"
            " command is no longer allowed for the following reason: no permission to execute the command or subcommand]",
            "-EXECABORT Transaction discarded because of: NOPERM User mallory has no permissions to run the 'exec' command",
            "null-bulk",
        ]  # fmt: skip


# --- What is counted -----------------------------------------------------------------------------------------------------


def counted(wire: Wire) -> list[str]:
    text = wire.call("INFO", "commandstats", "errorstats").value.decode()
    lines = []
    for line in text.split("\r\n"):
        if re.match(r"cmdstat_(get|set|exec|multi|incr|discard|watch|client\|id):|errorstat_", line):
            lines.append(command_counts(line))
    return sorted(lines)


def test_statistics_of_queued_and_rejected_commands(streamd_server: Server, redis_server: Server) -> None:
    script = """
        MULTI ; GET k ; SET k 1 ; EXEC
        MULTI ; GET ; SET k 1 ; EXEC
        MULTI ; NOSUCH ; EXEC
        MULTI ; GET k ; DISCARD
        MULTI ; MULTI ; WATCH k ; DISCARD
        EXEC ; DISCARD
        SET text abc ; MULTI ; INCR text ; GET text ; EXEC
        WATCH k ; SET k 1 ; MULTI ; GET k ; EXEC
        MULTI ; SAVE ; EXEC
        MULTI ; CLIENT ID x ; CLIENT ID ; DISCARD
        EXEC x
        MULTI ; EXEC x
    """
    results = []
    for server in (streamd_server, redis_server):
        with server.connect() as wire:
            wire.call("FLUSHALL")
            wire.call("CONFIG", "RESETSTAT")
            for line in filter(None, map(str.strip, script.splitlines())):
                for request in line.split(" ; "):
                    wire.line(request)
            results.append(counted(wire))
    assert results[0] == results[1]


def described(wire: Wire, who: str, *fields: str) -> dict[str, str]:
    line = wire.call("CLIENT", "LIST", "ID", who).value.decode()
    found = dict(word.split("=", 1) for word in line.split())
    return {field: found[field] for field in fields}


def test_client_list_shows_transactions(server: Server) -> None:
    with server.connect() as wire, server.connect() as other:
        number = str(wire.client_id())
        fields = ("flags", "multi", "watch", "cmd")
        seen = [described(other, number, *fields)]
        for request in ("WATCH k l", "MULTI", "GET k", "SET k 1"):
            wire.line(request)
            seen.append(described(other, number, *fields))
        other.call("SET", "k", "1")
        seen.append(described(other, number, *fields))
        wire.call("EXEC")
        seen.append(described(other, number, *fields))
        assert [tuple(one.values()) for one in seen] == [
            ("N", "-1", "0", "client|id"),
            ("N", "-1", "2", "watch"),
            ("x", "0", "2", "multi"),
            ("x", "1", "2", "get"),
            ("x", "2", "2", "set"),
            ("xd", "2", "0", "set"),
            ("N", "-1", "0", "exec"),
        ]
        text = other.call("INFO", "clients").value.decode()
        assert re.findall(r"(?:watching_clients|total_watched_keys):(\d+)", text) == ["0", "0"]


# --- Random scripts --------------------------------------------------------------------------------------------------------

STEPS = (
    "MULTI", "MULTI", "MULTI", "EXEC", "EXEC", "EXEC", "EXEC", "DISCARD", "WATCH k", "WATCH s k", "WATCH l", "UNWATCH",
    "GET k", "SET k 1", "SET k 2", "SET l 1", "SET k 1 XX", "INCR k", "INCR s", "DEL k", "DEL s l", "APPEND k x", "APPEND k \"\"",
    "XADD s * f v", "XADD s 5 f v", "XADD k 1 f v", "XLEN s", "XREAD COUNT 1 STREAMS s 0", "XREAD BLOCK 1 STREAMS none $",
    "XTRIM s MAXLEN 1", "XTRIM s MAXLEN 100", "XDEL s 5", "XGROUP CREATE s g $ MKSTREAM", "XGROUP DESTROY s g",
    "XREADGROUP GROUP g c COUNT 1 STREAMS s >", "XACK s g 5", "EXPIRE k 1000", "PERSIST k", "EXPIRE k -1", "RENAME k l",
    "RENAMENX l k", "COPY k l", "COPY k l REPLACE", "MOVE k 1", "SELECT 1", "SELECT 0", "SELECT 99", "FLUSHDB", "FLUSHALL", "SWAPDB 0 1",
    "NOSUCH", "GET", "PING", "ECHO x", "CLIENT GETNAME", "CLIENT NOSUCH", "MSET k 1 l 2", "MGET k l s", "TYPE k", "GETDEL k",
    "GETEX k EX 100", "SETNX l 1", "RESET", "SAVE x", "CLIENT REPLY ON",
)  # fmt: skip
"""What two connections do in turns; often enough what makes a transaction, so that some of every kind come to their end."""
SEEDS = int(os.environ.get("STREAMD_RANDOM_SCRIPTS", "40"))


def random_script(seed: int) -> list[tuple[int, bytes]]:
    """Steps of two connections: which one, and what it sends."""
    chance = random.Random(seed)
    # `*` would give other IDs on the two servers.
    steps = [step for step in STEPS if "*" not in step]
    if seed % 3:
        steps = [step for step in steps if step not in ("NOSUCH", "GET", "CLIENT NOSUCH", "RESET", "SAVE x")]
    return [(chance.random() < 0.3, chance.choice(steps).encode()) for _ in range(60)]


@pytest.mark.parametrize("protocol", [2, 3], ids=["RESP2", "RESP3"])
def test_random_transactions(streamd_server: Server, redis_server: Server, protocol: int) -> None:
    """Two connections each, which take turns; the replies of both are compared, one by one."""
    with (
        streamd_server.connect(protocol) as a, streamd_server.connect(protocol) as b,
        redis_server.connect(protocol) as c, redis_server.connect(protocol) as d,
    ):  # fmt: skip
        for seed in range(SEEDS):
            script = random_script(seed)
            for wire in (a, b, c, d):
                wire.call("RESET")
                wire.call("HELLO", str(protocol))
            for wire in (a, c):
                wire.call("FLUSHALL")
            for at, (who, line) in enumerate(script):
                ours, theirs = ((a, b)[who].line(line.decode()), (c, d)[who].line(line.decode()))
                if ours != theirs:
                    done = "\n".join(f"{'ab'[who]}: {line.decode()}" for who, line in script[: at + 1])
                    raise AssertionError(f"seed {seed}:\n{done}\nstreamd: {show(ours)}\nredis:   {show(theirs)}")
