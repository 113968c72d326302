"""Client-side caching: who is told of what, and when, as by a real Redis. Marked `real`."""

from __future__ import annotations

import re

import pytest
from support.compare.dialogues import compare_dialogue
from support.compare.differential import Pair, Request
from support.compare.tables import cases
from support.servers import Server, eventually
from support.wire import Reply, Wire

pytestmark = pytest.mark.real

REQUESTS = """
== nothing is tracked
CLIENT TRACKINGINFO
CLIENT GETREDIR
CLIENT CACHING yes
CLIENT CACHING no
CLIENT CACHING what
CLIENT TRACKING off
CLIENT TRACKINGINFO x
CLIENT GETREDIR x
CLIENT CACHING
CLIENT CACHING yes x

== options of tracking
CLIENT TRACKING
CLIENT TRACKING what
CLIENT TRACKING on what
CLIENT TRACKING on PREFIX a
CLIENT TRACKING on PREFIX
CLIENT TRACKING on BCAST PREFIX
CLIENT TRACKING on REDIRECT
CLIENT TRACKING on REDIRECT x
CLIENT TRACKING on REDIRECT 0
CLIENT TRACKING on REDIRECT -1
CLIENT TRACKING on REDIRECT 99999999
CLIENT TRACKING off REDIRECT 99999999
CLIENT TRACKING what REDIRECT 99999999
CLIENT TRACKING what PREFIX
CLIENT TRACKING on BCAST OPTIN
CLIENT TRACKING on BCAST OPTOUT
CLIENT TRACKING on OPTIN OPTOUT
CLIENT TRACKING on OPTIN OPTOUT PREFIX a
CLIENT TRACKING off OPTIN OPTOUT PREFIX a
CLIENT TRACKING on NOLOOP NOLOOP
CLIENT TRACKINGINFO
CLIENT GETREDIR
CLIENT TRACKING off

== from one mode to another
CLIENT TRACKING on
CLIENT CACHING yes
CLIENT CACHING no
CLIENT CACHING what
CLIENT TRACKING on BCAST
CLIENT TRACKING on OPTIN
CLIENT TRACKINGINFO
CLIENT CACHING no
CLIENT CACHING YES
CLIENT TRACKINGINFO
PING
CLIENT TRACKINGINFO
CLIENT CACHING yes
CLIENT TRACKING on OPTIN
CLIENT TRACKINGINFO
CLIENT TRACKING on OPTOUT
CLIENT TRACKING on BCAST OPTOUT
CLIENT TRACKING on
CLIENT TRACKINGINFO
CLIENT TRACKING on optout noloop
CLIENT CACHING yes
CLIENT CACHING no
CLIENT TRACKINGINFO
CLIENT TRACKING on optin
CLIENT TRACKING off
CLIENT TRACKINGINFO
CLIENT TRACKING on BCAST
CLIENT CACHING yes
CLIENT TRACKING on
CLIENT TRACKING on BCAST NOLOOP
CLIENT TRACKINGINFO
CLIENT TRACKING off

== prefixes
CLIENT TRACKING on BCAST PREFIX foo PREFIX foobar
CLIENT TRACKING on BCAST PREFIX foobar PREFIX foo
CLIENT TRACKING on BCAST PREFIX foo PREFIX foo
CLIENT TRACKING on BCAST PREFIX c PREFIX a PREFIX ""
CLIENT TRACKING on BCAST PREFIX foo
CLIENT TRACKING on BCAST PREFIX foobar
CLIENT TRACKING on BCAST PREFIX z PREFIX foobar PREFIX zz
CLIENT TRACKING on BCAST PREFIX fo
CLIENT TRACKING on BCAST PREFIX bar PREFIX "a b"
CLIENT TRACKINGINFO
CLIENT TRACKING on BCAST
CLIENT TRACKINGINFO
CLIENT TRACKING on BCAST
CLIENT TRACKING on BCAST PREFIX foo
CLIENT TRACKING on BCAST PREFIX x
CLIENT TRACKING off
CLIENT TRACKINGINFO

== reset
CLIENT TRACKING on BCAST PREFIX foo NOLOOP
RESET
CLIENT TRACKINGINFO
CLIENT GETREDIR
"""


@pytest.mark.parametrize("script", cases(REQUESTS))
def test_requests(pair: Pair, script: list[Request]) -> None:
    pair.run(script)


DIALOGUES = {
    "own and foreign changes": """
        a: CLIENT TRACKING on
        a: GET k ; SET k 1 ; GET k ; SET k 2 ; PING
        b2: SET k 3 ; SET k 4
        a: GET k
        b2: SET k 3 ; SET k 4
        b2: SET k 5
    """,
    "noloop": """
        a: CLIENT TRACKING on NOLOOP
        a: GET k ; SET k 1 ; GET k
        b2: SET k 2
        a: GET k ; SET k 3
        b2: SET k 4
        a: GET k ; MULTI ; SET k 3 ; EXEC
    """,
    "what is remembered": """
        a: CLIENT TRACKING on
        a: XLEN s
        b2: XADD s 1 f v ; DEL s
        a: XRANGE s - +
        b2: XADD s 1 f v ; DEL s
        a: XREVRANGE s + -
        b2: XADD s 1 f v ; DEL s
        a: XINFO STREAM s
        b2: XADD s 1 f v ; DEL s
        a: XINFO GROUPS s
        b2: XADD s 1 f v ; DEL s
        a: XPENDING s g
        b2: XADD s 1 f v ; DEL s
        a: XREAD STREAMS s t 0 0
        b2: XADD s 1 f v ; XADD t 1 f v ; DEL s t
        a: EXISTS s t
        b2: XADD s 1 f v ; XADD t 1 f v ; DEL s t
        a: TYPE s ; TTL t
        b2: XADD s 1 f v ; XADD t 1 f v ; DEL s t
        a: OBJECT ENCODING s ; DUMP t
        b2: XADD s 1 f v ; XADD t 1 f v ; DEL s t
        a: STRLEN s ; GETRANGE t 0 1
        b2: XADD s 1 f v ; XADD t 1 f v ; DEL s t
        a: MGET s t u
        b2: XADD s 1 f v ; XADD t 1 f v ; DEL s t
        a: TOUCH s t
        b2: XADD s 1 f v ; XADD t 1 f v ; DEL s t
        a: GET s
        b2: XADD s 1 f v
        a: GET s
        b2: DEL s
    """,
    "what is not remembered": """
        a: CLIENT TRACKING on
        b2: SET s 1
        a: KEYS * ; SCAN 0 ; RANDOMKEY ; DBSIZE
        b2: DEL s
        a: XADD s 1 f v
        b2: DEL s
        a: GETDEL s ; GETEX s ; SET s 1 GET
        b2: DEL s
        a: XGROUP CREATE s g 0 MKSTREAM ; XREADGROUP GROUP g c STREAMS s >
        b2: XADD s 1 f v
        a: XREADGROUP GROUP g c STREAMS s >
        b2: DEL s
        a: XRANGE s - ; XREAD STREAMS s ; GET
        b2: XADD s 1 f v
    """,
    "which commands on streams change a key": """
        b2: XADD s 1 f v ; XGROUP CREATE s g 0
        a: CLIENT TRACKING on ; XLEN s
        b2: XREADGROUP GROUP g c STREAMS s >
        a: XLEN s
        b2: XACK s g 1
        a: XLEN s
        b2: XGROUP CREATE s h 0
        a: XLEN s
        b2: XGROUP SETID s h 1
        a: XLEN s
        b2: XGROUP CREATECONSUMER s h alice
        a: XLEN s
        b2: XGROUP DELCONSUMER s h alice
        a: XLEN s
        b2: XGROUP DESTROY s h
        a: XLEN s
        b2: XCLAIM s g c 0 1
        a: XLEN s
        b2: XAUTOCLAIM s g c 0 0
        a: XLEN s
        b2: XDEL s 7
        a: XLEN s
        b2: XDEL s 1
        a: XLEN s
        b2: XADD s 2 f v
        a: XLEN s
        b2: XTRIM s MAXLEN 5
        a: XLEN s
        b2: XTRIM s MAXLEN 0
        a: XLEN s
        b2: XSETID s 9
        a: XLEN s
        b2: XADD s 1 f v
        a: XLEN s
        b2: XACKDEL s g IDS 1 2
        a: XLEN s
        b2: XADD s NOMKSTREAM 99 f v
    """,
    "every key by itself": """
        a: CLIENT TRACKING on ; MGET x y z
        b2: MSET x 1 y 2
        a: MGET x y z
        b2: DEL z y x
        a: MGET x y z
        a: MSET x 1 y 2 z 3 ; GET x
        a: MGET x y z
        a: DEL x y z ; PING
    """,
    "several readers": """
        a: CLIENT TRACKING on ; GET k
        c: CLIENT TRACKING on NOLOOP ; GET k ; GET k
        d2: CLIENT TRACKING on ; GET k
        b2: INFO nosuch ; SET k 1
        a: GET k
        c: GET k ; SET k 2
        c: GET k
        a: GET k ; SET k 3
        b2: SET k 4
    """,
    "inside a transaction": """
        a: CLIENT TRACKING on
        a: MULTI ; GET k ; SET k 5 ; GET k ; EXEC ; PING
        b2: SET k 1
        a: MULTI ; GET k ; SET k 5 ; SET k 6 ; SET z 1 ; FLUSHDB ; GET k ; EXEC ; PING
        b2: MULTI ; SET k 1 ; GET k ; SET k 2 ; EXEC
        a: MGET k l m
        b2: MULTI ; SET l 1 ; SET k 2 ; FLUSHALL ; SET m 1 ; EXEC
        a: MULTI ; GET k ; SET k 1 ; CLIENT TRACKING off ; EXEC
        a: CLIENT TRACKING on ; MULTI ; GET k ; SET k 1 ; RESET
        b2: SET k 2
        c: MULTI ; GET k ; CLIENT TRACKING on ; GET l ; EXEC
        b2: SET k 2 ; SET l 2
        c: MULTI ; GET k ; NOSUCH ; EXEC
        b2: SET k 2
        c: MULTI ; GET k ; DISCARD
        b2: SET k 2
    """,
    "a watched key": """
        a: CLIENT TRACKING on ; WATCH k ; GET k
        b2: SET k 1
        a: MULTI ; GET k ; EXEC ; GET k
        b2: SET k 2
    """,
    "flushes": """
        a: CLIENT TRACKING on ; GET k
        b2: FLUSHALL
        b2: SET k 1
        a: GET k
        b2: FLUSHDB
        b2: SET k 1
        a: FLUSHALL ; PING
        a: FLUSHDB ; PING
        a: FLUSHALL SYNC ; PING
        a: FLUSHALL ASYNC ; PING
        a: FLUSHDB ASYNC ; PING
        a: FLUSHDB what ; PING
        b2: SELECT 3 ; FLUSHDB ; SELECT 5 ; FLUSHDB ; SELECT 0
        b2: MULTI ; FLUSHDB ; FLUSHALL ; EXEC
        a: CLIENT TRACKING on NOLOOP ; FLUSHALL ; PING
        a: CLIENT REPLY SKIP ; FLUSHALL ; PING
        c2: CLIENT TRACKING on ; FLUSHALL ; PING
        a: CLIENT TRACKING off
        b2: FLUSHALL
    """,
    "other databases": """
        a: CLIENT TRACKING on ; GET k
        b2: SELECT 1 ; SET k 1 ; SELECT 0
        a: GET k
        b2: SET k 1 ; SELECT 1 ; DEL k ; SELECT 0
        a: GET k
        b2: SWAPDB 0 1
        a: GET k
        b2: SWAPDB 0 1 ; MOVE k 1
        b2: SELECT 1 ; DEL k ; SELECT 0
    """,
    "whole keys": """
        b2: SET k 1
        a: CLIENT TRACKING on ; GET k
        b2: EXPIRE k 100
        b2: PERSIST k
        a: GET k
        b2: PERSIST k
        b2: TOUCH k
        a: GET k
        b2: RENAME k k2
        a: MGET k2 k3
        b2: COPY k2 k3
        a: GET k3
        b2: RENAMENX k2 k4
        a: MGET k3 k4
        b2: RENAME k4 k3
        a: GET k3
        b2: SET k3 1 ; SET k3 1
        a: GET k3
        b2: APPEND k3 ""
        a: GET k3
        b2: SET k3 1 NX
        b2: GETEX k3 EX 100
        a: GET k3
        b2: GETEX k3
        b2: UNLINK k3
    """,
    "silenced replies": """
        a: CLIENT TRACKING on
        a: CLIENT REPLY OFF ; GET k ; SET k 1 ; CLIENT REPLY ON
        a: CLIENT REPLY SKIP ; GET k ; CLIENT REPLY SKIP ; SET k 1 ; PING
        a: CLIENT REPLY OFF ; MULTI ; GET k ; SET k 1 ; EXEC ; CLIENT REPLY ON
        c: CLIENT TRACKING on ; CLIENT REPLY SKIP ; RESET ; ECHO x
        d2: MULTI ; CLIENT REPLY SKIP ; EXEC ; RESET ; ECHO x
    """,
    "waiting for a stream": """
        a: CLIENT TRACKING on
        a& XREAD BLOCK 0 STREAMS s $
        b2: XADD s 1 f v
        a.
        b2: XADD s 2 f v
        b2: XADD s 3 f v
        a& XREAD BLOCK 0 STREAMS s t $ $
        b2: XADD t 1 f v ; XADD t 2 f v ; SET s2 1
        a.
        b2: XADD s 4 f v
    """,
    "redirected to a subscriber": """
        r2: SUBSCRIBE foo
        a2: CLIENT TRACKING on REDIRECT {r2} ; GET k
        a2: CLIENT TRACKINGINFO ; CLIENT GETREDIR
        b2: SET k 1
        a2: GET k ; SET k 2
        a2: MGET k l ; MSET k 1 l 2
        b2: FLUSHALL
        a2: FLUSHALL
        a2: MULTI ; GET k ; SET k 1 ; EXEC
        r2: UNSUBSCRIBE
        a2: GET k ; SET k 1
        r2: PSUBSCRIBE foo*
        a2: GET k ; SET k 1
        c2: CLIENT TRACKING on REDIRECT {r2} ; GET k
        a2: GET k
        b2: SET k 3
    """,
    "redirected to itself": """
        a2: CLIENT TRACKING on REDIRECT {a2} ; GET k
        b2: SET k 1
        a2: GET k ; SUBSCRIBE foo
        b2: SET k 1
        a2: RESET
        c2: CLIENT TRACKING on REDIRECT {c2} BCAST PREFIX k ; SUBSCRIBE __redis__:invalidate
        b2: SET k 1 ; SET ka 1 ; SET l 1
        b2: FLUSHALL
        c2: UNSUBSCRIBE ; SET k 2
    """,
    "redirected, and ended in the transaction": """
        r+
        a: CLIENT TRACKING on REDIRECT {r} ; MGET k l
        a: MULTI ; SET k 1 ; CLIENT TRACKING off ; SET l 1 ; EXEC ; PING
        a: CLIENT TRACKING on REDIRECT {r} ; MGET k l
        a: MULTI ; SET k 1 ; CLIENT TRACKING off ; CLIENT TRACKING on ; GET k ; SET k 2 ; EXEC ; PING
        a: SET k 3 ; PING
        a: CLIENT TRACKING on REDIRECT {r} ; MULTI ; FLUSHALL ; CLIENT TRACKING off ; EXEC ; PING
    """,
    "redirected in RESP3": """
        r+
        a: CLIENT TRACKING on REDIRECT {r} ; GET k
        b2: SET k 1
        a: GET k
        r: SET k 2 ; PING
        a: GET k
        r: MULTI ; SET k 2 ; SET k 3 ; EXEC ; PING
        a: FLUSHALL
        r: FLUSHALL
        a: CLIENT TRACKING on REDIRECT {a} ; GET k ; SET k 1 ; PING
        a: CLIENT TRACKING on ; GET k
        b2: SET k 1
    """,
    "redirected to one that leaves": """
        r+
        a: CLIENT TRACKING on REDIRECT {r} ; MGET k l
        c2: CLIENT TRACKING on REDIRECT {r} ; GET k
        r!
        a: CLIENT TRACKINGINFO
        b2: SET k 1
        a: CLIENT TRACKINGINFO ; CLIENT GETREDIR
        c2: CLIENT TRACKINGINFO
        a: GET k ; SET k 1 ; PING
        b2: FLUSHALL
        a: CLIENT TRACKING on ; CLIENT TRACKINGINFO ; GET k
        b2: SET k 1
    """,
    "one that leaves": """
        a: CLIENT TRACKING on ; GET k
        c: CLIENT TRACKING on BCAST PREFIX k
        a!
        c!
        b2: SET k 1
    """,
    "off and on again": """
        a: CLIENT TRACKING on ; GET k ; CLIENT TRACKING off
        b2: GET k
        a: CLIENT TRACKING on
        b2: SET k 1
        a: GET k ; CLIENT TRACKING off
        b2: SET k 1
        a: CLIENT TRACKING on ; GET k ; CLIENT TRACKING off ; CLIENT TRACKING on BCAST PREFIX z
        b2: SET k 1
    """,
    "bcast": """
        a: CLIENT TRACKING on BCAST
        b2: SET k 1 ; SET a 1 ; SET k 2 ; DEL a ; DEL none
        a: SET k 1 ; SET a 2 ; GET k ; PING
        a: MULTI ; SET k 1 ; SET z 2 ; EXEC ; PING
        b2: XADD s 1 f v ; XLEN s ; XDEL s 1
        b2: GET k ; EXISTS z
        a: FLUSHDB ASYNC ; SET x 1
        b2: FLUSHDB ASYNC ; SET x 1
        a: CLIENT TRACKING off ; SET k 1
        b2: SET k 1
    """,
    "bcast of prefixes": """
        a: CLIENT TRACKING on BCAST PREFIX a PREFIX bb NOLOOP
        a: SET a1 1 ; SET bb1 1
        b2: SET a1 1 ; SET bb1 1 ; SET c1 1 ; SET bb2 1 ; SET a2 1 ; SET b 1
        c: CLIENT TRACKING on BCAST PREFIX "" ; CLIENT TRACKINGINFO
        b2: SET bb 1 ; SET a 1 ; SET d 1
        a: SET a 1 ; SET d 1
        c: SET d 1
        b2: SET "" 1
        d: CLIENT TRACKING on BCAST PREFIX a
        b2: SET a1 1
        a: CLIENT TRACKING on BCAST PREFIX c
        b2: SET c1 1 ; SET a1 1
        a: SET c1 1 ; SET a1 1
        c: CLIENT TRACKING off
        a: CLIENT TRACKING off
        b2: SET a1 1
    """,
    "bcast to a subscriber": """
        r2: SUBSCRIBE foo
        a2: CLIENT TRACKING on BCAST REDIRECT {r2}
        b2: SET k 1 ; SET a 1
        a2: SET k 1
        r2!
        b2: SET k 1
    """,
    "optin": """
        a: CLIENT TRACKING on OPTIN ; GET k
        b2: SET k 1
        a: CLIENT CACHING yes ; GET k ; GET l
        b2: SET k 1 ; SET l 1
        a: CLIENT CACHING yes ; CLIENT ID ; GET k ; GET l
        b2: SET k 1 ; SET l 1
        a: CLIENT CACHING yes ; NOSUCH ; GET k
        b2: SET k 1
        a: CLIENT CACHING yes ; GET ; GET k
        b2: SET k 1
        a: CLIENT CACHING yes ; CLIENT NOSUCH ; GET k
        b2: SET k 1
        a: CLIENT CACHING yes ; CLIENT ; GET k
        b2: SET k 1
        a: CLIENT CACHING yes ; CLIENT ID x ; GET k
        b2: SET k 1
        a: CLIENT CACHING yes ; CLIENT CACHING what ; GET k
        b2: SET k 1
        a: CLIENT CACHING yes ; WATCH k ; GET k
        b2: SET k 1
        a: CLIENT CACHING yes ; MULTI ; GET k ; GET l ; EXEC ; GET m
        b2: SET k 1 ; SET l 1 ; SET m 1
        a: MULTI ; GET k ; CLIENT CACHING yes ; GET l ; GET n ; EXEC ; GET m
        b2: SET k 1 ; SET l 1 ; SET n 1 ; SET m 1
        a: CLIENT CACHING yes ; MULTI ; GET k ; DISCARD ; GET m
        b2: SET k 1 ; SET m 1
        a: CLIENT CACHING yes ; MULTI ; GET k ; NOSUCH ; EXEC ; GET m
        b2: SET k 1 ; SET m 1
        a& CLIENT CACHING yes ; XREAD BLOCK 0 STREAMS s 0 ; GET m
        b2: XADD s 1 f v
        a.
        b2: XADD s 2 f v ; SET m 1
    """,
    "optout": """
        a: CLIENT TRACKING on OPTOUT ; GET k ; CLIENT CACHING no ; GET l ; GET m
        b2: SET k 1 ; SET l 1 ; SET m 1
        a: CLIENT CACHING no ; MULTI ; GET k ; GET l ; EXEC ; GET m
        b2: SET k 1 ; SET l 1 ; SET m 1
    """,
    "among the messages of a subscriber": """
        b2: CONFIG SET notify-keyspace-events KEA
        a: PSUBSCRIBE __key*
        a: CLIENT TRACKING on ; GET k ; SET k 1 ; PING
        a: MULTI ; GET k ; SET k 1 ; SET k 2 ; PUBLISH __keyx 1 ; EXEC ; PING
        a: GET k
        b2: SET k 3
        a: MGET k l
        b2: MULTI ; SET k 1 ; SET l 1 ; EXEC
        b2: CONFIG SET notify-keyspace-events ""
    """,
}


@pytest.mark.parametrize("name", DIALOGUES, ids=lambda name: name.replace(" ", "_"))
def test_dialogues(streamd_server: Server, redis_server: Server, name: str) -> None:
    compare_dialogue(streamd_server, redis_server, DIALOGUES[name])


# --- What no dialogue can compare: chance, time, and where Redis does not say all ------------------------------------


@pytest.fixture(params=["streamd", "redis"])
def server(request: pytest.FixtureRequest) -> Server:
    running: Server = request.getfixturevalue(f"{request.param}_server")
    with running.connect() as wire:
        wire.call("FLUSHALL")
    return running


def invalidation(*keys: bytes) -> Reply:
    return Reply(">", (Reply("$", b"invalidate"), Reply("*", tuple(Reply("$", key) for key in keys))))


def counters(wire: Wire) -> dict[str, int]:
    text = wire.call("INFO", "stats", "clients").value.decode()
    return {name: int(value) for name, value in re.findall(r"tracking_(\w+):(\d+)", text)}


def test_an_expired_key_is_reported(server: Server) -> None:
    with server.connect(3) as reader, server.connect() as other:
        reader.call("CLIENT", "TRACKING", "ON")
        other.call("SET", "k", "1", "PX", "2000")
        reader.call("GET", "k")
        assert reader.read() == invalidation(b"k")


@pytest.mark.parametrize("mode", ["BCAST", "NOLOOP"])
def test_a_key_that_expires_under_its_reader(server: Server, mode: str) -> None:
    with server.connect(3) as reader, server.connect() as other:
        other.call("DEBUG", "SET-ACTIVE-EXPIRE", "0")
        try:
            other.call("SET", "k", "1", "PX", "2000")
            reader.call("CLIENT", "TRACKING", "ON", "NOLOOP", *(["BCAST"] if mode == "BCAST" else []))
            reader.call("GET", "k")
            eventually(lambda: other.call("PTTL", "k").value < 0)
            # By then it has been removed on behalf of the other one.
            assert reader.read() == invalidation(b"k")
            other.call("SET", "k", "1", "PX", "1")
            if mode == "BCAST":
                assert reader.read() == invalidation(b"k")
            other.call("DEBUG", "SLEEP", "0.01")
            assert reader.call("GET", "k").value is None
            if mode == "BCAST":
                assert reader.read() == invalidation(b"k")
            assert reader.call("ECHO", "x").value == b"x"
        finally:
            other.call("DEBUG", "SET-ACTIVE-EXPIRE", "1")


def test_counters(server: Server) -> None:
    with server.connect(3) as a, server.connect(3) as c, server.connect() as other:
        before = counters(other)
        a.call("CLIENT", "TRACKING", "ON")
        c.call("CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "x", "PREFIX", "y")
        with server.connect(3) as d:
            d.call("CLIENT", "TRACKING", "ON")
            d.call("MGET", "k", "l")
            a.call("MGET", "k", "m")
            now = counters(other)
            assert {name: now[name] - before[name] for name in now} == {
                "clients": 3, "total_keys": 3, "total_items": 4, "total_prefixes": 2,
            }  # fmt: skip
        eventually(lambda: counters(other)["clients"] == before["clients"] + 2)
        assert counters(other)["total_items"] == before["total_items"] + 4, "what it has read stays"
        c.call("RESET")
        assert counters(other)["total_prefixes"] == before["total_prefixes"]
        other.call("SET", "k", "1")
        assert counters(other)["total_keys"] == before["total_keys"] + 2
        other.call("FLUSHALL")
        assert counters(other)["total_items"] == 0


def test_no_more_keys_are_remembered_than_the_setting_allows(server: Server) -> None:
    with server.connect(3) as reader, server.connect() as other:
        other.call("CONFIG", "SET", "tracking-table-max-keys", "3")
        try:
            reader.call("CLIENT", "TRACKING", "ON")
            names = [b"k%d" % number for number in range(10)]
            assert reader.call("MGET", *names).value is not None
            other.call("PING")
            told = {reader.read().value[1].value[0].value for _ in range(7)}
            assert told < set(names)
            assert counters(other)["total_keys"] == 3
            other.call("MSET", *[word for name in names for word in (name, "1")])
            told |= {reader.read().value[1].value[0].value for _ in range(3)}
            assert told == set(names)
        finally:
            other.call("CONFIG", "SET", "tracking-table-max-keys", "1000000")


def test_a_flush_leaves_what_was_remembered_to_be_freed_out_of_line(server: Server) -> None:
    def freed() -> int:
        match = re.search(rb"lazyfreed_objects:(\d+)", other.call("INFO", "memory").value)
        assert match is not None
        return int(match[1])

    with server.connect(3) as reader, server.connect() as other:
        before = freed()
        reader.call("CLIENT", "TRACKING", "ON")
        reader.call("MGET", *[f"k{number}" for number in range(5000)])
        assert counters(other)["total_keys"] == 5000
        other.call("FLUSHALL")
        assert counters(other)["total_keys"] == 0
        eventually(lambda: freed() >= before + 5000)


def test_client_list_shows_who_tracks(server: Server) -> None:
    with server.connect(3) as reader, server.connect() as other, server.connect(3) as target:

        def shown() -> tuple[str, str]:
            line = other.call("CLIENT", "LIST", "ID", reader_id).value.decode()
            match = re.search(r" flags=(\S+) .* redir=(\S+)", line)
            assert match is not None
            return match[1], match[2]

        reader_id, target_id = reader.client_id(), target.client_id()
        assert shown() == ("N", "-1")
        reader.call("CLIENT", "TRACKING", "ON")
        assert shown() == ("t", "0")
        reader.call("CLIENT", "TRACKING", "ON", "REDIRECT", target_id)
        assert shown() == ("t", str(target_id))
        reader.call("GET", "k")
        target.close()
        eventually(lambda: f"id={target_id} " not in other.call("CLIENT", "LIST").value.decode())
        other.call("SET", "k", "1")
        assert shown() == ("tR", str(target_id))
        reader.read()
        reader.call("CLIENT", "TRACKING", "OFF")
        reader.call("CLIENT", "TRACKING", "ON", "BCAST")
        assert shown() == ("tB", "0")
        reader.call("RESET")
        assert shown() == ("N", "-1")
