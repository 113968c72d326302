"""What commands on keys of any type and on strings are propagated as, and in which units, seen in the append-only file.

Both servers log; the commands in their logs must be the same, with MULTI, EXEC and SELECT between them, and so must the
number of changes that INFO counts. Marked `real`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from support.differential import Difference, parse_script
from support.observed import OBSERVING, Effect, ServerObserver, masked
from support.servers import Server, eventually
from support.wire import Reply, join_line

pytestmark = pytest.mark.real

NO_CYCLE = "DEBUG SET-ACTIVE-EXPIRE 0\n"

STORIES = {
    "set": """
        SET a 1
        SET a 3 EX 100
        SET a 4 KEEPTTL
        SET a 4 GET KEEPTTL
        SET a 4 get get
        SET a 5 NX
        SET b 5 NX GET
        SET a 5 PX 100000 XX GET
        SET a 5 EXAT 99999999999
        SET a 5 PXAT 99999999999999
        SET a 6 IFEQ 5
        SET a 6 IFEQ 9
        SET a 6 IFEQ 6 EX 100 GET
        SET c 6 IFNE 6
        SET none 6 XX
        SETNX a 1
        SETNX d 1
        SETEX a 10 v
        PSETEX b 10000 v
        GETSET a 1
        MSET a 1 b 2
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
    """,
    "changing": """
        INCR a
        DECR a
        INCRBY a 5
        DECRBY a 5
        INCRBYFLOAT a 1.5
        INCR a
        APPEND c v
        APPEND c ""
        SETRANGE c 1 abc
        SETRANGE c 1 ""
        GETDEL c
        GETDEL c
        SET e v
        GETEX e
        GETEX e EX 100
        GETEX e PXAT 99999999999999
        GETEX e EXAT 99999999999
        GETEX e PERSIST
        GETEX e PERSIST
        GETEX e PXAT 1
        SET d v
        DELEX d IFEQ no
        DELEX d IFNE no
        DELEX d
        SET d v
        DELEX d
    """,
    "whole keys": """
        SET a 1
        SET b 1 EX 100
        DEL none
        UNLINK none a
        SET a 1
        DEL a none a
        RENAME b c
        RENAME c c
        RENAMENX c d
        RENAMENX d d
        COPY d e
        COPY d e
        COPY d e DB 1 REPLACE
        MOVE e 1
        MOVE d 2
        TOUCH d
        SWAPDB 0 1
        SWAPDB 0 0
        FLUSHDB
        FLUSHDB ASYNC
        FLUSHALL
    """,
    "expiry": """
        SET s v
        EXPIRE s 1000
        EXPIRE s 1000 NX
        EXPIRE s 2000 gt
        PEXPIRE s 200000
        EXPIREAT s 99999999999
        PEXPIREAT s 99999999999999
        PERSIST s
        PERSIST s
        EXPIRE s 0
        EXPIRE none 10
        SET s v
        PEXPIREAT s 1
        XADD s 1-1 f v
        EXPIRE s -1
    """,
    "other databases": """
        SET a 1
        SELECT 3
        SET a 1
        INCR a
        GET a
        SELECT 0
        DEL a
    """,
    "transactions": """
        MULTI
        SET a 1
        EXEC
        MULTI
        SET a 1
        INCR a
        GETDEL a
        EXEC
        MULTI
        GET a
        DEL none
        EXEC
        MULTI
        SELECT 1
        SET a 1
        SELECT 0
        SET a 1
        EXEC
        MULTI
        FLUSHDB
        SET a 1
        EXEC
    """,
}  # fmt: skip

MEETINGS = [
    "GET k", "SET k w", "SET k w NX", "SET k w XX", "SETNX k w", "SETEX k 10 w", "GETSET k w", "GETDEL k", "GETEX k EX 10",
    "MSET k w l w", "MSETNX k w l w", "MSETEX 2 k w l w NX", "MSETEX 2 k w k w XX", "LCS k k", "INCR k", "APPEND k w", "SETRANGE k 1 w", "DEL k", "DEL k other", "DELEX k IFEQ v",
    "EXISTS k k", "TYPE k", "TTL k", "EXPIRE k 10", "PERSIST k", "RENAME k l", "RENAME other k", "RENAMENX other k",
    "COPY other k", "COPY other k REPLACE", "MOVE k 1", "OBJECT ENCODING k", "SCAN 0", "KEYS *", "XADD k 1-1 f v",
    "WATCH k", "FLUSHALL", "DUMP k", "MGET k k",
]  # fmt: skip


class Log:
    """A server that logs, and its log."""

    def __init__(self, server: Server) -> None:
        self.observer = ServerObserver(server)
        self.wire = server.connect()

    def run(self, script: str) -> tuple[list[Effect], int]:
        """The effects of a script on an emptied server, and by how much it raised the count of changes."""
        for request in (("SELECT", "0"), ("FLUSHALL",), ("SET", "mark", "")):
            assert self.wire.call(*request) == Reply("+", b"OK")
        self.observer.read_log()
        before = self.changes()
        self.wire.pipeline(parse_script(script))
        changes = self.changes() - before
        return [masked(effect) for effect in self.observer.read_log()], changes

    def changes(self) -> int:
        text = self.wire.call("INFO", "persistence").value
        return int(text.split(b"last_save:")[1].split(b"\r")[0])

    def close(self) -> None:
        self.wire.call("DEBUG", "SET-ACTIVE-EXPIRE", "1")
        self.wire.close()
        self.observer.close()


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Log, Log]]:
    from support.servers import start_redis, start_streamd

    servers = [
        start(tmp_path_factory.mktemp(f"{name}-log"), OBSERVING)
        for name, start in (("streamd", start_streamd), ("redis", start_redis))
    ]
    both = (Log(servers[0]), Log(servers[1]))
    yield both
    for log in both:
        log.close()
    for server in servers:
        server.stop()


def compare(logs: tuple[Log, Log], script: str) -> list[Effect]:
    (ours, our_changes), (theirs, their_changes) = (log.run(script) for log in logs)
    if ours != theirs:
        lines = ["different effects of:", *("    " + join_line(request) for request in parse_script(script))]
        for name, effects in (("streamd", ours), ("redis", theirs)):
            lines += [f"  {name}:", *("    " + join_line(effect) for effect in effects)]
        raise Difference("\n".join(lines))
    assert our_changes == their_changes, f"changes counted: {our_changes}, should be {their_changes}, after:\n{script}"
    return ours


@pytest.mark.parametrize("story", STORIES)
def test_effects_are_those_of_redis(logs: tuple[Log, Log], story: str) -> None:
    assert compare(logs, STORIES[story])


@pytest.mark.parametrize("line", MEETINGS)
def test_an_expired_key_is_deleted_before_the_command_that_met_it(logs: tuple[Log, Log], line: str) -> None:
    compare(logs, f"{NO_CYCLE}SET other v\nSET k v PX 1\nDEBUG SLEEP 0.003\n{line}")


def test_an_expired_key_of_another_database_is_deleted_there(logs: tuple[Log, Log]) -> None:
    compare(logs, f"{NO_CYCLE}SELECT 1\nSET k v PX 1\nSELECT 0\nSET k v\nDEBUG SLEEP 0.003\nMOVE k 1")


def test_keys_that_expire_by_themselves_are_deleted_one_by_one(logs: tuple[Log, Log]) -> None:
    def deleted(log: Log) -> Callable[[], bool]:
        return lambda: log.wire.call("DBSIZE") == Reply(":", 0)

    effects = []
    for log in logs:
        log.run("DEBUG SET-ACTIVE-EXPIRE 1\nDEL mark\nSET a v PX 10\nSET b v PX 10\nSET c v PX 10")
        eventually(deleted(log), what="the end of three keys")
        # What the cycle has deleted is in the log when the next command has been answered.
        log.wire.call("SET", "mark", "")
        effects.append(sorted(log.observer.read_log()))
    assert effects[0] == effects[1]
