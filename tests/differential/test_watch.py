"""WATCH on keys of any type: what stops a transaction, and what does not. Marked `real`."""

from __future__ import annotations

import re

import pytest
from support.compare.differential import Pair, parse_script
from support.servers import Server
from support.wire import Reply

pytestmark = pytest.mark.real

WATCHING = re.compile(r"(?:watching_clients|total_watched_keys):(\d+)")

PRELUDE = """
    SET text value
    SET number 5
    SET expiring value EX 1000
    XADD s 1-1 f v
    SELECT 1
    SET text other
    SET only-there value
    SELECT 0
"""
WATCHED = ("text", "number", "expiring", "s", "none", "only-there")

TOUCHING = """
    SET text value
    SET text new KEEPTTL
    SET text new EX 100
    SET text new PXAT 1
    SET text new IFEQ value
    SET none value NX
    SET s value
    SETNX none value
    SETEX text 10 value
    GETSET text value
    GETDEL text
    GETEX text EX 10
    GETEX expiring PERSIST
    GETEX text PXAT 1
    DELEX text
    DELEX text IFEQ value
    MSET text value
    MSETNX none 1 none2 2
    INCR number
    INCR none
    DECRBY number 0
    INCRBYFLOAT number 0
    APPEND text more
    APPEND text ""
    SETRANGE text 0 v
    DEL text
    DEL none text
    UNLINK s
    RENAME text other
    RENAME number text
    RENAME text none
    RENAMENX text none
    COPY text none
    COPY text number REPLACE
    MOVE number 1
    EXPIRE text 100
    EXPIRE text -1
    PEXPIREAT text 99999999999999
    PERSIST expiring
    FLUSHALL
    FLUSHDB
    SWAPDB 0 1
"""

NOT_TOUCHING = """
    SET text value NX
    SET none value XX
    SET text value IFEQ other
    SETNX text value
    MSETNX text 1 none 2
    SETRANGE text 0 ""
    SETRANGE none 0 ""
    INCR text
    GET text
    GETEX text
    GETEX text PERSIST
    GETDEL none
    DELEX text IFEQ other
    STRLEN text
    MGET text number
    EXISTS text
    TOUCH text
    TYPE text
    TTL expiring
    OBJECT ENCODING text
    MEMORY USAGE none
    DEL none
    RENAME text text
    RENAMENX text number
    RENAME none text
    COPY text elsewhere
    COPY text number
    COPY text elsewhere DB 1
    MOVE text 1
    MOVE none 1
    EXPIRE none 100
    EXPIRE text 100 XX
    EXPIRE expiring 2000 LT
    PERSIST text
    KEYS *
    SCAN 0
    RANDOMKEY
    DBSIZE
    SWAPDB 0 0
    SWAPDB 2 3
    SET other value
    XREAD STREAMS s 0
"""


def attempts(line: str, *between: str) -> list[tuple[bytes, ...]]:
    """A script: watch all, run a command, try a transaction."""
    script = [PRELUDE, f"WATCH {' '.join(WATCHED)}", *between, line, "MULTI\nECHO ran\nEXEC", "UNWATCH"]
    return parse_script("\n".join(script))


def lines_of(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def is_stopped(replies: list[Reply]) -> bool:
    return replies[-2].value is None


@pytest.mark.parametrize("line", lines_of(TOUCHING))
def test_a_change_stops_the_transaction(pair: Pair, line: str) -> None:
    assert is_stopped(pair.run(attempts(line)))


@pytest.mark.parametrize("line", lines_of(NOT_TOUCHING))
def test_what_changes_nothing_does_not_stop_it(pair: Pair, line: str) -> None:
    assert not is_stopped(pair.run(attempts(line)))


# --- Expired keys ---------------------------------------------------------------------------------------------------------

NO_CYCLE = "DEBUG SET-ACTIVE-EXPIRE 0"
PASSES = "DEBUG SLEEP 0.004"
TIME, TIME_PASSES = "PX 100", "DEBUG SLEEP 0.12"
"""Time enough to watch a key before it expires, on a busy machine, too."""

EXPIRED_BEFORE = {
    "it is not met": "PING",
    "it is met": "GET k",
    "it is deleted": "DEL k",
    "it is written": "SET k w",
    "it is written if it is missing": "SET k w NX",
    "it is not written": "SET k w XX",
    "its expiry is to be changed": "EXPIRE k 100",
    "all keys are deleted": "FLUSHALL",
    "all keys of its database are deleted": "FLUSHDB",
    "its database gets other keys": "SWAPDB 0 1",
    "its database gets such a key": "SELECT 1\nSET k v\nSELECT 0\nSWAPDB 0 1",
    "its database gets such a key, expired": f"SELECT 1\nSET k v PX 1\nSELECT 0\n{PASSES}\nSWAPDB 0 1",
    "it is met, then written": "GET k\nSET k w",
    "all keys are deleted, then it is written": "FLUSHALL\nSET k w",
}


@pytest.mark.parametrize("what", EXPIRED_BEFORE)
def test_a_key_that_had_expired_before_counts_as_missing(pair: Pair, what: str) -> None:
    pair.run_text(
        f"{NO_CYCLE}\nSET k v PX 1\n{PASSES}\nWATCH k\n{EXPIRED_BEFORE[what]}\nMULTI\nECHO ran\nEXEC\n"
        "DEBUG SET-ACTIVE-EXPIRE 1"
    )


@pytest.mark.parametrize("what", EXPIRED_BEFORE)
def test_a_key_that_expires_while_it_is_watched_stops_the_transaction(pair: Pair, what: str) -> None:
    replies = pair.run_text(
        f"{NO_CYCLE}\nSET k v {TIME}\nWATCH k\n{TIME_PASSES}\n{EXPIRED_BEFORE[what]}\nMULTI\nECHO ran\nEXEC\n"
        "DEBUG SET-ACTIVE-EXPIRE 1"
    )
    assert replies[-2].value is None


@pytest.mark.parametrize("swapped", ["SWAPDB 0 1", "SWAPDB 1 0"])
def test_a_missing_key_that_becomes_an_expired_one_stays_missing(pair: Pair, swapped: str) -> None:
    replies = pair.run_text(
        f"{NO_CYCLE}\nSELECT 1\nSET k v PX 1\nSELECT 0\nWATCH k\n{PASSES}\n{swapped}\nMULTI\nECHO ran\nEXEC\n"
        "DEBUG SET-ACTIVE-EXPIRE 1"
    )
    assert replies[-2].value is not None


@pytest.mark.parametrize(
    "restore", ["RESTORE k 0 {dump}", "RESTORE k 0 {dump} REPLACE", "RESTORE k 1 {dump} REPLACE ABSTTL"]
)
def test_restoring_a_key_stops_the_transaction(pair: Pair, restore: str) -> None:
    wire = pair.wires[0]
    assert wire.call("SET", "source", "v") == Reply("+", b"OK")
    dump = wire.call("DUMP", "source").value
    words: list[bytes] = [dump if word == "{dump}" else word.encode() for word in restore.split()]
    missing = [(b"DEL", b"k")] if b"REPLACE" not in words else [(b"SET", b"k", b"v")]
    pair.run([*missing, (b"WATCH", b"k"), tuple(words), (b"MULTI",), (b"ECHO", b"ran"), (b"EXEC",)])


def test_watching_is_over_after_each_attempt(pair: Pair) -> None:
    replies = pair.run_text(
        "SET k v\nWATCH k\nSET k w\nMULTI\nEXEC\nMULTI\nECHO 2\nEXEC\nWATCH k\nSET k w\nUNWATCH\nMULTI\nECHO 3\nEXEC\n"
        "WATCH k\nSET k w\nMULTI\nDISCARD\nMULTI\nECHO 4\nEXEC"
    )
    assert [reply.value is None for reply in replies if reply.kind in ("*", "*-1", "_")] == [True, False, False, False]


def test_a_key_of_another_database_is_another_key(pair: Pair) -> None:
    replies = pair.run_text("SELECT 1\nWATCH k\nSELECT 0\nSET k v\nMULTI\nECHO ran\nEXEC")
    assert replies[-1].value is not None
    replies = pair.run_text("SELECT 1\nWATCH k\nSET k v\nSELECT 0\nMULTI\nECHO ran\nEXEC")
    assert replies[-1].value is None


@pytest.mark.parametrize("change", ["SET text 1", "FLUSHALL", "SWAPDB 0 1", "DEL number", "GET text", "SET more 1"])
def test_a_client_whose_transaction_will_not_run_watches_nothing(
    streamd_server: Server, redis_server: Server, change: str
) -> None:
    def watching(server: Server) -> list[list[str]]:
        counts = []
        with server.connect() as wire, server.connect() as other:
            for line in ("FLUSHALL", "MSET text value number 5"):
                other.line(line)
            for client, line in (
                (wire, "WATCH text number none"), (other, change), (wire, "WATCH more"), (other, "SET more 2"),
                (wire, "UNWATCH"), (wire, "WATCH more"),
            ):  # fmt: skip
                client.line(line)
                counts.append(WATCHING.findall(other.call("INFO", "clients").value.decode()))
        return counts

    assert watching(streamd_server) == watching(redis_server)
