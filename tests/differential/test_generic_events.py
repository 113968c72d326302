"""Keyspace events of the commands on keys of any type and on strings: which, of which key, in which order. Marked `real`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.compare.events import ALL_EVENTS, EventWatch
from support.servers import Server

pytestmark = pytest.mark.real


@pytest.fixture
def watch(streamd_server: Server, redis_server: Server) -> Iterator[EventWatch]:
    with EventWatch(streamd_server, redis_server) as watch:
        yield watch
        # Not at the end of a script: the cycle may begin, and publish, before the script has come to its end.
        for server in (streamd_server, redis_server):
            with server.connect() as wire:
                wire.call("DEBUG", "SET-ACTIVE-EXPIRE", "1")


OVERDUE = "SET {key} v PX 1\nDEBUG SLEEP 0.003\n"
"""A key that has expired, and that nobody has met."""
NO_CYCLE = "DEBUG SET-ACTIVE-EXPIRE 0\n"

STORIES = {
    "set": """
        SET a 1
        SET a 2
        SET a 3 EX 100
        SET a 4 KEEPTTL
        SET a 4 KEEPTTL GET
        SET a 5 NX
        SET b 5 NX
        SET a 5 PX 100000 XX
        SET none 5 XX
        SET a 5 EXAT 99999999999
        SET a 5 PXAT 99999999999999 GET
        SET none 1 GET
        SET none 1 GET NX
        SET a 6 IFEQ 9
        SET a 6 IFEQ 5 EX 100
        SET a 7 IFNE 5
        SET c 7 IFNE 5
        SET d 7 IFEQ 5
        SET d 7 EX 0
        SET d 7 FOO
    """,
    "set over a stream": """
        XADD s 1-1 f v
        SET s v
        XADD t 1-1 f v
        SET t v EX 100
        XADD u 1-1 f v
        SET u v GET
        MSET u v
        XADD x 1-1 f v
        GETSET x v
        MSET x v y v
    """,
    "variants of set": NO_CYCLE
    + """
        SETNX a 1
        SETNX a 1
        SETEX a 10 v
        PSETEX b 10000 v
        GETSET a 1
        GETSET c 1
        MSET a 1 b 2 d 3
        MSET a 1 b 2 a 3
        MSETNX a 1 e 2
        MSETNX e 1 f 2
        MSETEX 2 a 1 g 2
        MSETEX 2 a 1 h 2 NX
        MSETEX 2 a 1 h 2 XX
        MSETEX 2 h 1 i 2 NX EX 100
        MSETEX 2 h 1 i 2 EX 10 ex 100 xx
        MSETEX 2 h 1 i 2 KEEPTTL
        MSETEX 2 h 1 i 2 PX 100000 KEEPTTL
        MSETEX 2 h 1 i 2 PX 100000
        MSETEX 2 h 1 i 2 EXAT 99999999999
        MSETEX 2 h 1 i 2 PXAT 99999999999999
        MSETEX 2 h 1 h 2
        MSETEX 2 h 1 j 2 EXAT 1
        MSETEX 2 j 1 j 2 PXAT 1
        XADD s 1-1 f v
        MSETEX 1 s v EX 100
        MSETNX g 1 g 2
    """,
    "reading": """
        SET a 1
        GET none
        GET a
        MGET a none
        STRLEN none
        LCS none a
        GETRANGE none 0 1
        SUBSTR none 0 1
        DIGEST none
        TYPE none
        TTL none
        PTTL none
        EXPIRETIME none
        PEXPIRETIME none
        EXISTS none a
        TOUCH none a
        OBJECT ENCODING none
        OBJECT FREQ none
        OBJECT IDLETIME none
        OBJECT REFCOUNT none
        MEMORY USAGE none
        KEYS none
        SCAN 0
        RANDOMKEY
        DBSIZE
        WATCH none
        UNWATCH
    """,
    "changing": """
        INCR a
        DECR a
        INCRBY a 5
        DECRBY a 5
        INCRBYFLOAT a 1.5
        INCRBYFLOAT b 1.5
        INCR a
        APPEND c v
        APPEND c v
        APPEND c ""
        APPEND d ""
        SETRANGE c 1 abc
        SETRANGE e 1 abc
        SETRANGE e 1 ""
        SETRANGE f 0 ""
        GETDEL c
        GETDEL c
        GETEX e
        GETEX e EX 100
        GETEX e PX 100000
        GETEX e PERSIST
        GETEX e PERSIST
        GETEX e PXAT 1
        GETEX e EX 100
        DELEX d IFEQ no
        DELEX d IFNE no
        DELEX d IFEQ no
        DELEX d
        DELEX b
        DELEX none
    """,
    "deleting": """
        SET a 1
        SET b 1
        XADD s 1-1 f v
        DEL a none b a
        UNLINK s none
        UNLINK none
        SET a 1
        FLUSHDB
        SET a 1
        FLUSHALL
        FLUSHALL
    """,
    "renaming": """
        SET a 1
        SET b 1 EX 100
        RENAME a b
        RENAME b c
        RENAME c c
        RENAME none c
        RENAMENX c c
        RENAMENX c d
        XADD s 1-1 f v
        RENAMENX d s
        RENAME d s
        XADD t 1-1 f v
        EXPIRE t 100
        RENAME t s
    """,
    "copying and moving": """
        XADD s 1-1 f v
        COPY s u
        COPY s u
        COPY s u REPLACE
        COPY s u DB 1
        COPY s u DB 1 REPLACE
        SET str v EX 1000
        COPY str u REPLACE
        COPY none u
        COPY none u REPLACE
        MOVE none 1
        MOVE str 1
        SET str v
        MOVE str 1
        MOVE u 2
        SWAPDB 0 1
        SWAPDB 0 0
    """,
    "expiry": """
        SET s v
        EXPIRE s 1000
        EXPIRE s 1000 NX
        EXPIRE s 2000 GT
        EXPIRE s 9000 LT
        PEXPIRE s 200000
        EXPIREAT s 99999999999
        PEXPIREAT s 99999999999999
        PERSIST s
        PERSIST s
        EXPIRE none 10
        PERSIST none
        EXPIRE s 0
        XADD s 1-1 f v
        EXPIRE s -1
        SET s v
        EXPIREAT s 1
        SET s v
        PEXPIREAT s 1
    """,
    "set in the past": NO_CYCLE + """
        SET a v
        SET a v PXAT 1
        SET b v PXAT 1
        SET a w
        EXISTS a b
    """,
    "inside transactions": """
        MULTI
        SET a 1
        INCR a
        GETDEL a
        EXEC
    """,
}  # fmt: skip


@pytest.mark.parametrize("story", STORIES)
def test_events_come_as_from_redis(watch: EventWatch, story: str) -> None:
    assert watch.compare(STORIES[story])


MEETINGS = [
    "GET k", "SET k w", "SET k w NX", "SET k w XX", "SET k w GET", "SETNX k w", "SETEX k 10 w", "GETSET k w", "GETDEL k",
    "GETEX k EX 10", "MSET k w l w", "MSETNX k w l w", "MSETEX 2 k w l w NX", "MSETEX 2 k w k w XX", "LCS k k", "INCR k", "APPEND k w",
    "SETRANGE k 1 w", "STRLEN k", "DEL k", "UNLINK k", "DELEX k", "DELEX k IFEQ v", "EXISTS k", "TOUCH k", "TYPE k", "TTL k",
    "EXPIRE k 10", "PERSIST k", "RENAME k l", "RENAMENX k l", "RENAME other k", "RENAMENX other k", "RENAMENX none k",
    "COPY k l", "COPY other k", "COPY other k REPLACE", "MOVE k 1", "OBJECT ENCODING k", "MEMORY USAGE k", "SCAN 0",
    "KEYS *", "DBSIZE", "XADD k 1-1 f v", "XLEN k", "WATCH k", "FLUSHALL", "SWAPDB 0 1", "DUMP k", "MGET k k",
]  # fmt: skip


@pytest.mark.parametrize("line", MEETINGS)
def test_who_meets_an_expired_key_tells_of_it_first(watch: EventWatch, line: str) -> None:
    story = f"{NO_CYCLE}SET other v\n{OVERDUE.format(key='k')}{line}"
    events = watch.compare(story)
    assert events[:4] != []


def test_a_key_that_expires_by_itself_is_reported(watch: EventWatch) -> None:
    assert watch.compare("SET k v PX 20", waits_for=(b"expired", b"k"))


@pytest.mark.parametrize("letters", ["", "K$", "Eg", "Ex", "KEm", "KEn", "Eo", "Ec", "AKE", "Et"])
def test_only_the_classes_that_are_asked_for_are_reported(watch: EventWatch, letters: str) -> None:
    watch.compare(
        f"{NO_CYCLE}XADD s 1-1 f v\nSET s v\nGET none\nRENAME s t\n{OVERDUE.format(key='k')}GET k\nDEL t",
        letters,
    )
    assert ALL_EVENTS
