"""Keys, databases, expiry, SET and GET: the same replies as a real Redis. Marked `real`."""

from __future__ import annotations

import random

import pytest
from support.compare.differential import Pair, Request
from support.compare.mask import mask
from support.compare.tables import cases, keys_of
from support.servers import eventually
from support.wire import Reply

pytestmark = pytest.mark.real

CASES = """
== set and get
SET text value
GET text
GET none
SET text ""
GET text
SET text new NX
SET none new XX
SET none new NX
SET text other XX
SET text again GET
SET u again GET
SET u again NX GET
GET u
SET text v EX 100
TTL text
SET text v KEEPTTL
TTL text
SET text v
TTL text
SET text v PX 100000
PTTL text
SET text v EXAT 99999999999
EXPIRETIME text
SET text v PXAT 99999999999999
PEXPIRETIME text
SET text v EXAT 1
EXISTS text
SET text v EX 100 PX 100
SET text v EX
SET text v EX -1
SET text v PX 0
SET text v EX 9223372036854775807
SET text v KEEPTTL EX 1
SET text v what
SET text v nx xx
SET s "\\x00\\r\\n"
GET s

== set replaces a stream, with its groups and its expiry
XADD s 1-1 f v
XGROUP CREATE s g 0
EXPIRE s 100
SET s value
TYPE s
TTL s
XLEN s
XADD t 1-1 f v
SET t value GET
TYPE t

== lcs
SET s ohmytext
SET t mynewtext
XADD u 1-1 f v
LCS s t
LCS s t LEN
LCS s t len len
LCS s t IDX
LCS s t IDX LEN
LCS s t LEN IDX
LCS s t IDX MINMATCHLEN 4
LCS s t IDX MINMATCHLEN 5 WITHMATCHLEN
LCS s t IDX MINMATCHLEN 2 MINMATCHLEN 4 withmatchlen
LCS s t IDX MINMATCHLEN -1
LCS s t IDX MINMATCHLEN 9223372036854775807
LCS s t MINMATCHLEN 9
LCS s t WITHMATCHLEN
LCS s t IDX MINMATCHLEN
LCS s t IDX MINMATCHLEN x
LCS s t FOO
LCS s t MINMATCHLEN x FOO
LCS s none
LCS none s LEN
LCS none none IDX
LCS s s
LCS u s
LCS none u FOO
LCS s

== lcs of long strings
SETRANGE s 131070 x
SETRANGE t 1022 x
LCS s t LEN
SETRANGE t 1023 x
LCS s t LEN
LCS t s IDX
LCS s none LEN

== msetex
MSETEX 2 s 1 t 2
MGET s t
MSETEX 2 s 3 t 4 NX
MSETEX 2 s 3 none 4 NX
MSETEX 2 s 3 t 4 XX
MSETEX 2 s 5 none 4 XX
MGET s t none
MSETEX 2 text 1 text 2 nx
GET text
MSETEX 2 s 3 t 4 EX 100
TTL s
TTL t
MSETEX 2 s 3 t 4 keepttl XX
TTL s
MSETEX 2 s 3 t 4
TTL s
MSETEX 2 s 3 t 4 PX 100000
PTTL t
MSETEX 2 s 3 t 4 EXAT 99999999999
EXPIRETIME t
MSETEX 2 s 3 t 4 PXAT 99999999999999 XX
PEXPIRETIME t
MSETEX 2 s 3 t 4 EX 100 EX 5000
TTL s
MSETEX 2 s 3 t 4 EXAT 1
EXISTS s t
XADD s 1-1 f v
MSETEX 1 s v EX 100
TYPE s
MSETEX 1 NX v NX
MSETEX 1 s EX EX 100
GET s
OBJECT ENCODING t

== msetex refused
SET s v
MSETEX 0 a b
MSETEX -1 a b
MSETEX x a b
MSETEX 2147483647 a b
MSETEX 2147483648 a b
MSETEX 9999999999999999999999 a b
MSETEX 2 a b
MSETEX 2 a b c
MSETEX 1 a
MSETEX 1 s b NX XX
MSETEX 1 s b XX NX
MSETEX 1 s b EX 1 PX 1
MSETEX 1 s b EX 1 KEEPTTL
MSETEX 1 s b KEEPTTL EX 1
MSETEX 1 s b EX
MSETEX 1 s b EX x
MSETEX 1 s b EX 0
MSETEX 1 s b NX PX -1
MSETEX 1 s b EX 9223372036854775807
MSETEX 1 s b PERSIST
MSETEX 1 s b GET
MSETEX 1 s b IFEQ v
MSETEX 1 s b FOO
GET s
EXISTS a

== del unlink exists touch
XADD s 1-1 f v
SET text value
EXISTS s text none s
TOUCH s text none s
DEL s none s
UNLINK text text none
EXISTS s text
DEL none
UNLINK none

== type and encoding
XADD s 1-1 f v
SET text value
SET t 123
SET u 12345678901234567890123456789012345678901234567890
TYPE s
TYPE text
TYPE none
OBJECT ENCODING s
OBJECT ENCODING text
OBJECT ENCODING t
OBJECT ENCODING u
OBJECT ENCODING none
OBJECT REFCOUNT s
OBJECT REFCOUNT none
OBJECT IDLETIME s
OBJECT IDLETIME none
OBJECT FREQ s
OBJECT FREQ none
OBJECT encoding s more
OBJECT WHAT s

== rename
RENAME none t
XADD s 1-1 f v
XGROUP CREATE s g 0
EXPIRE s 100
RENAME s t
EXISTS s
TTL t
XINFO GROUPS t
SET text value
EXPIRE text 5000
RENAME t text
TTL text
TYPE text
RENAME text text
RENAMENX text text
RENAMENX none none
SET s value
RENAMENX text s
RENAMENX text u
RENAMENX none u

== copy
XADD s 1-1 f v
XGROUP CREATE s g 0
XREADGROUP GROUP g a STREAMS s >
EXPIREAT s 99999999999
COPY s t
COPY s t
COPY s t REPLACE
COPY s text replace DB 0
COPY s s
COPY s s DB 0
COPY s s DB 1
COPY s s DB 1
COPY s s DB 1 REPLACE
COPY none t
COPY none t REPLACE
COPY s t DB 16
COPY s t DB -1
COPY s t DB x
COPY s t DB
COPY s t WHAT
XADD s 2-1 f v
XACK t g 1-1
XINFO STREAM s FULL
XINFO STREAM t FULL
EXPIRETIME t
SELECT 1
XINFO STREAM s FULL
EXPIRETIME s
DBSIZE

== the last time of all
XADD s 1-1 f v
PEXPIREAT s 9223372036854775807
EXPIRETIME s
PEXPIRETIME s
PEXPIREAT s 9223372036854775808
EXPIREAT s 9223372036854775
EXPIREAT s 9223372036854776
EXPIREAT s -9223372036854776
PEXPIRE s 9223372036854775807
PEXPIREAT s -9223372036854775808
EXISTS s

== move
XADD s 1-1 f v
XGROUP CREATE s g 0
EXPIREAT s 99999999999
MOVE s 1
MOVE s 1
XADD s 2-1 f v
MOVE s 1
MOVE s 0
MOVE s 16
MOVE s x
MOVE none 1
MOVE none 0
SELECT 1
XINFO STREAM s FULL
EXPIRETIME s

== select and swapdb
XADD s 1-1 f v
SELECT 1
XADD t 2-1 f v
SWAPDB 0 1
KEYS *
SELECT 0
KEYS *
SWAPDB 0 0
KEYS *
SWAPDB 0 16
SWAPDB -1 0
SWAPDB x 0
SWAPDB 0 x
SELECT 15
DBSIZE
SELECT 16
SELECT -1
SELECT 1x
SELECT 99999999999999999999

== flush
XADD s 1-1 f v
SELECT 1
XADD s 1-1 f v
FLUSHDB
DBSIZE
SELECT 0
DBSIZE
FLUSHALL ASYNC
DBSIZE
XADD s 1-1 f v
FLUSHDB SYNC
XADD s 1-1 f v
flushdb async
FLUSHALL sync
FLUSHALL what
FLUSHALL SYNC ASYNC
FLUSHDB SYNC SYNC

== expire
EXPIRE none 100
XADD s 1-1 f v
TTL s
PTTL s
TTL none
PTTL none
EXPIRETIME s
EXPIRETIME none
PEXPIRETIME s
PEXPIRETIME none
PERSIST s
PERSIST none
EXPIRE s 100
TTL s
PERSIST s
PERSIST s
PEXPIRE s 100000
EXPIREAT s 99999999999
EXPIRETIME s
PEXPIRETIME s
PEXPIREAT s 99999999999999
PEXPIRETIME s
EXPIRETIME s
EXPIREAT s 88888888888 GT
EXPIREAT s 111111111111 GT
EXPIREAT s 111111111112 LT
EXPIREAT s 111111111110 LT
EXPIREAT s 5555555555 NX
EXPIREAT s 5555555555 XX
PERSIST s
EXPIREAT s 99999999999 XX
EXPIREAT s 99999999999 GT
EXPIREAT s 99999999999 LT
PERSIST s
EXPIREAT s 99999999999 NX
EXPIREAT s 99999999998 XX LT
EXPIREAT s 99999999999 xx gt
EXPIREAT s 99999999999 NX XX
EXPIREAT s 99999999999 NX GT
EXPIREAT s 99999999999 NX LT
EXPIREAT s 99999999999 GT LT
EXPIREAT s 99999999999 WHAT
EXPIREAT s 99999999999 NX WHAT
EXPIRE s x
EXPIRE s 1.5
EXPIRE s 9223372036854775807
EXPIRE s -9223372036854775808
PEXPIRE s 9223372036854775807
PEXPIREAT s 9223372036854775807
EXPIREAT s 9223372036854775
EXPIREAT s 9223372036854776
EXISTS s

== expire in the past deletes
XADD s 1-1 f v
EXPIRE s 0
EXISTS s
XADD s 1-1 f v
EXPIRE s -1
EXISTS s
XADD s 1-1 f v
EXPIREAT s 1
XADD s 1-1 f v
PEXPIREAT s 0
XADD s 1-1 f v
EXPIRE s -1 XX
EXISTS s
EXPIRE s -1 GT
EXISTS s
EXPIRE s -1 LT
EXISTS s

== an expired key is as good as missing
XADD s 1-1 f v
XGROUP CREATE s g 0
PEXPIRE s 1
DEBUG SLEEP 0.01
XLEN s
XRANGE s - +
XREAD STREAMS s 0
XREADGROUP GROUP g a STREAMS s >
EXISTS s
TYPE s
TTL s
XADD s NOMKSTREAM 1-1 f v
XADD s 1-1 f v
TTL s
XINFO GROUPS s

== commands keep the expiry of a stream
XADD s 1-1 f v
EXPIREAT s 99999999999
XADD s 2-1 f v
XTRIM s MAXLEN 1
XDEL s 2-1
XGROUP CREATE s g 0
EXPIRETIME s

== keys
SET abc 1
SET abd 1
SET b[c 1
SET "with space" 1
SET \\x00 1
SET h*llo 1
SET h?llo 1
SET "" 1
KEYS *
KEYS a*
KEYS ab?
KEYS a[bc]?
KEYS ab[^c]
KEYS ab[c-d]
KEYS ab[d-c]
KEYS ab[c
KEYS b\\\\[c
KEYS h\\\\*llo
KEYS h[*]llo
KEYS h?llo
KEYS ?
KEYS ""
KEYS **
KEYS *c*
KEYS [
KEYS a\\\\
KEYS [^a]*
KEYS [a-
KEYS *[*
KEYS ABC

== scan
SCAN 0
SET text 1
XADD s 1-1 f v
SCAN 0 COUNT 1000
SCAN 0 COUNT 1000 TYPE stream
SCAN 0 COUNT 1000 TYPE STRING
SCAN 0 COUNT 1000 TYPE what
SCAN 0 COUNT 1000 TYPE none
SCAN 0 COUNT 1000 MATCH s*
SCAN 0 count 1000 match nothing
SCAN 0 MATCH t* COUNT 1000 TYPE string
SCAN 0 MATCH x* MATCH * COUNT 1000
SCAN 00 COUNT 1000
SCAN 0 COUNT 0
SCAN 0 COUNT -5
SCAN 0 COUNT x
SCAN 0 COUNT
SCAN 0 what 1
SCAN x
SCAN -1
SCAN 18446744073709551616
SCAN ""
SCAN

== randomkey and dbsize
RANDOMKEY
DBSIZE
XADD s 1-1 f v
RANDOMKEY
DBSIZE
RANDOMKEY x

== object help and debug
XADD s 1-1 f v
OBJECT ENCODING
OBJECT
DEBUG SET-ACTIVE-EXPIRE 1
DEBUG SET-ACTIVE-EXPIRE 1 2
DEBUG SLEEP 0
DEBUG ERROR "MY error"
DEBUG JMAP
DEBUG WHAT
DEBUG QUICKLIST-PACKED-THRESHOLD 100b
DEBUG QUICKLIST-PACKED-THRESHOLD 0
DEBUG
"""


@pytest.mark.parametrize("script", cases(CASES))
def test_a_case_is_answered_alike(pair: Pair, script: list[Request]) -> None:
    pair.compare_script(script, keys=keys_of(script), groups=(b"g",))


def test_lcs_finds_what_redis_finds(pair: Pair) -> None:
    """Of several longest ones too; lengths beside the word in which positions are compared."""
    chance = random.Random(20)
    script: list[Request] = []
    for size in (1, 2, 8, 63, 64, 65, 130, 300):
        for letters in (b"ab", b"abcd", bytes(range(256))):
            texts = [bytes(chance.choices(letters, k=length)) for length in (size, chance.randint(0, 2 * size))]
            script += [(b"MSET", b"s", texts[0], b"t", texts[1]), (b"LCS", b"s", b"t"), (b"LCS", b"t", b"s", b"LEN")]
            script += [
                (b"LCS", b"s", b"t", b"IDX", b"WITHMATCHLEN"),
                (b"LCS", b"t", b"s", b"IDX", b"MINMATCHLEN", b"2"),
            ]
    pair.run(script)


def test_scan_gives_every_key_that_stays(pair: Pair) -> None:
    """Keys come and go between the steps of the scan; those that were there all the time must be given."""
    stays = {b"stay:%d" % n for n in range(500)}
    for wire in pair.wires:
        wire.pipeline([(b"SET", key, b"v") for key in stays])
        seen: set[bytes] = set()
        cursor, step = b"0", 0
        while step == 0 or cursor != b"0":
            reply = wire.call("SCAN", cursor, "COUNT", "7")
            assert [element.kind for element in reply.value] == ["$", "*"]
            cursor = reply.value[0].value
            seen |= {key.value for key in reply.value[1].value}
            wire.pipeline([(b"SET", b"new:%d:%d" % (step, n), b"v") for n in range(5)])
            wire.call("DEL", *[b"new:%d:%d" % (step - 1, n) for n in range(5)])
            step += 1
            assert step < 5000
        assert stays <= seen


def test_scan_takes_about_as_many_steps(pair: Pair) -> None:
    steps = []
    for wire in pair.wires:
        wire.pipeline([(b"SET", b"key:%d" % n, b"v") for n in range(1000)])
        cursor, count, keys = b"0", 0, []
        while count == 0 or cursor != b"0":
            cursor, found = wire.call("SCAN", cursor, "COUNT", "100").plain()
            keys += found
            count += 1
        assert sorted(set(keys)) == sorted(b"key:%d" % n for n in range(1000))
        steps.append(count)
    assert max(steps) <= 3 * min(steps)


def test_expired_keys_go_without_being_asked_for(pair: Pair) -> None:
    for wire in pair.wires:
        wire.pipeline([(b"SET", b"key:%d" % n, b"v", b"PX", b"20") for n in range(200)])
        eventually(lambda wire=wire: wire.call("DBSIZE") == Reply(":", 0), what="an empty database")


def test_active_expiry_can_be_switched_off(pair: Pair) -> None:
    for wire in pair.wires:
        assert wire.call("DEBUG", "SET-ACTIVE-EXPIRE", "0") == Reply("+", b"OK")
        wire.call("SET", "text", "v", "PX", "1")
        wire.call("DEBUG", "SLEEP", "0.3")
        assert wire.call("DBSIZE") == Reply(":", 1)
        assert wire.call("GET", "text").value is None
        assert wire.call("DBSIZE") == Reply(":", 0)
        assert wire.call("DEBUG", "SET-ACTIVE-EXPIRE", "1") == Reply("+", b"OK")


def test_randomkey_reaches_every_key(pair: Pair) -> None:
    keys = {b"a", b"b", b"c"}
    for wire in pair.wires:
        wire.pipeline([(b"SET", key, b"v") for key in keys])
        seen: set[bytes] = set()
        eventually(lambda wire=wire, seen=seen: seen.add(wire.call("RANDOMKEY").value) or seen == keys)


def test_time_is_now_in_two_bulk_strings(pair: Pair) -> None:
    ours, theirs = (wire.call("TIME") for wire in pair.wires)
    assert mask((b"TIME",), ours) == mask((b"TIME",), theirs)
    assert abs(int(ours.value[0].value) - int(theirs.value[0].value)) <= 60
    assert 0 <= int(ours.value[1].value) < 1_000_000


def test_keyspace_section_of_info_counts_alike(pair: Pair) -> None:
    pair.run_text("SET a 1\nSET b 1 EX 1000\nSELECT 3\nSET c 1\nSELECT 0")
    texts = [wire.call("INFO", "keyspace").value for wire in pair.wires]
    lines = [[line.split(b",avg_ttl")[0] for line in text.split(b"\r\n")] for text in texts]
    assert lines[0] == lines[1]
