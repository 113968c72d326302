"""Sets: the same replies, encodings and payloads as a real Redis. Marked `real`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.compare.differential import Pair, Request
from support.compare.tables import cases
from support.wire import Reply

pytestmark = pytest.mark.real

CASES = """
== sadd, srem, scard
SADD s a b a
SADD s a
SADD s c 1 2 01 +1 -0 9223372036854775807 9223372036854775808 ""
SCARD s
SCARD none
SREM s a nothing a b
SREM none a
SREM s c 1 2 01 +1 -0 9223372036854775807 9223372036854775808 "" more
EXISTS s
SADD s 5 3 9 3
SREM s 3
SADD s 70000
SADD s -3000000000
SADD s -9223372036854775808 9223372036854775807
SREM s -9223372036854775808 9223372036854775807
== arity and wrong types
SADD s
SREM s
SCARD
SISMEMBER s
SMISMEMBER s
SMOVE s t
SPOP
SRANDMEMBER
SINTERCARD 1
SSCAN s
SUNION
SUNIONSTORE dst
SET t v
SADD t a
SREM t a
SCARD t
SISMEMBER t a
SMISMEMBER t a
SMEMBERS t
SPOP t
SPOP t 1
SPOP t 0
SPOP t -1
SPOP t x
SRANDMEMBER t
SRANDMEMBER t 1
SRANDMEMBER t x
SSCAN t 0
SSCAN t x
SSCAN t 0 FOO 1
SMOVE t s a
SINTER none t
SUNION none t
SDIFF none t
SINTERSTORE dst none t
SUNIONSTORE dst none t
SDIFFSTORE dst none t
SINTERCARD 2 none t
== sismember, smismember, smembers
SADD s a 1 2
SADD t 1 2 30000
SISMEMBER s a
SISMEMBER s 1
SISMEMBER s 01
SISMEMBER t 30000
SISMEMBER t a
SISMEMBER none a
SMISMEMBER s a x 1
SMISMEMBER t a 1 2 2
SMISMEMBER none a b
SMEMBERS s
SMEMBERS t
SMEMBERS none
== smove
SADD s a b 1
SADD t c
SET text v
SMOVE none text a
SMOVE s text nothing
SMOVE s text a
SMOVE s t nothing
SMOVE s t a
SMOVE s s b
SMOVE s s nothing
SMOVE s u 1
SMOVE s t b
EXISTS s
SADD s c
SMOVE s t c
SMEMBERS t
OBJECT ENCODING u
== spop and its arguments
SADD s a
SPOP s
SPOP s
SPOP none 3
SPOP none 0
SPOP none -1
SPOP none x
SPOP none 9223372036854775808
SPOP none 1 1
SADD s 1 2 3
SPOP s 0
SPOP s 5
EXISTS s
SADD s a b c
SPOP s 3
== srandmember and its arguments
SADD s a
SRANDMEMBER s
SRANDMEMBER s -3
SRANDMEMBER s 3
SRANDMEMBER s 0
SRANDMEMBER none
SRANDMEMBER none 3
SRANDMEMBER none -3
SRANDMEMBER s x
SRANDMEMBER none x
SRANDMEMBER s 1 1
SRANDMEMBER s -9223372036854775808
SRANDMEMBER none -9223372036854775808
SRANDMEMBER none -9223372036854775807
SRANDMEMBER s 9223372036854775807
SADD t 1 2 3
SRANDMEMBER t 5
== intersection, union and difference of small sets
SADD s a b 3 1
SADD t 1 2 3 c
SADD u 5 3 1
SINTER s t
SINTER t s
SINTER s t u
SINTER s none
SINTER none
SINTER s s
SUNION s t
SUNION u
SUNION s none u
SUNION none
SDIFF s t
SDIFF t s u
SDIFF u s
SDIFF s none
SDIFF none s
SDIFF s s
SINTERSTORE dst s t
SUNIONSTORE dst s t
SUNIONSTORE dst s none
SDIFFSTORE dst s t
SDIFFSTORE dst s none
SDIFFSTORE dst u s
OBJECT ENCODING dst
SUNIONSTORE dst u u
OBJECT ENCODING dst
SDIFFSTORE dst s s
EXISTS dst
SINTERSTORE dst s none
SET dst v EX 1000
SUNIONSTORE dst s u
TTL dst
SET dst v
SINTERSTORE dst s none
EXISTS dst
SUNIONSTORE dst s dst
SMEMBERS dst
SDIFFSTORE dst t dst
EXISTS dst
== sintercard
SADD s a b c 1
SADD t b c 1
SINTERCARD 2 s t
SINTERCARD 2 s t LIMIT 2
SINTERCARD 2 s t LIMIT 0
SINTERCARD 2 s t LIMIT 9
SINTERCARD 1 s limit 3 LIMIT 1
SINTERCARD 2 s none
SINTERCARD 0 s
SINTERCARD -1 s
SINTERCARD x s
SINTERCARD 3 s t
SINTERCARD 2 s t LIMIT -1
SINTERCARD 2 s t LIMIT x
SINTERCARD 2 s t LIMIT
SINTERCARD 1 s t
SINTERCARD 2 s t FOO 1
== sscan of small sets
SADD s a b c 1
SADD t 1 2 3
SSCAN s 0
SSCAN s 17 COUNT 1
SSCAN s 0 MATCH [ab]
SSCAN t 0 MATCH 1*
SSCAN t 0 COUNT 2
SSCAN none 0
SSCAN none 5
SSCAN none x
SSCAN s x
SSCAN s -1
SSCAN s 0 COUNT 0
SSCAN s 0 COUNT x
SSCAN s 0 COUNT
SSCAN s 0 TYPE set
SSCAN s 0 NOVALUES
SSCAN none 0 COUNT 0
== keys of any type
SADD s a b 1
SADD t 1 2 3
EXPIREAT s 99999999999
COPY s u
TTL u
SMEMBERS u
OBJECT ENCODING t
OBJECT REFCOUNT s
TYPE s
RENAME t dst
SMEMBERS dst
SCAN 0 TYPE set
DEBUG DIGEST
DEBUG DIGEST-VALUE s u dst none
DEBUG RELOAD
DEBUG DIGEST
SMEMBERS dst
STRLEN s
GET s
MGET s
SETNX s v
APPEND s v
XADD s * a b
SET s v
TYPE s
== scripts
EVAL "return redis.call('sadd', 's', 'a', 'b', '1')" 0
EVAL "return redis.call('smembers', 's')" 0
EVAL "return redis.call('sismember', 's', 'x')" 0
EVAL "redis.setresp(3) local r = redis.call('smembers', 's') local n = 0 for k, v in pairs(r['set']) do n = n + 1 end return n" 0
EVAL "redis.setresp(3) return redis.call('smembers', 's')" 0
EVAL "redis.setresp(3) return redis.call('sinter', 's', 's')" 0
EVAL "redis.setresp(3) return redis.call('spop', 's', 5)" 0
EVAL "return redis.call('spop', 'none')" 0
EVAL "return redis.call('spop', 'none', 2)" 0
EVAL "return redis.call('sadd', 's')" 0
== watch
SADD s a b
WATCH s
SADD s a
SREM s nothing
SPOP s 0
SMOVE s s a
MULTI
SCARD s
EXEC
WATCH s
SINTERSTORE s s
MULTI
SCARD s
EXEC
WATCH s
SREM s a
MULTI
SCARD s
EXEC
"""


@pytest.fixture(autouse=True)
def _uncompressed(pair: Pair) -> Iterator[None]:
    """Payloads are comparable: the servers compress differently."""
    for wire in pair.wires:
        wire.call("CONFIG", "SET", "rdbcompression", "no")
    yield
    for wire in pair.wires:
        wire.call("CONFIG", "SET", "rdbcompression", "yes")


def state_of(pair: Pair) -> None:
    """Compare what the keys of the cases hold; those in which members have an order byte for byte."""
    for key in (b"s", b"t", b"u", b"dst", *(b"e%d" % number for number in range(9))):
        kinds = {wire.call("TYPE", key).value for wire in pair.wires}
        assert len(kinds) == 1, (key, kinds)
        if kinds != {b"set"}:
            continue
        encodings = [wire.call("OBJECT", "ENCODING", key).value for wire in pair.wires]
        assert encodings[0] == encodings[1], (key, encodings)
        members = [sorted(member.value for member in wire.call("SMEMBERS", key).value) for wire in pair.wires]
        assert members[0] == members[1], key
        if encodings[0] == b"intset" or (encodings[0] == b"listpack" and key != b"dst"):  # a union has any order
            dumps = [wire.call("DUMP", key).value for wire in pair.wires]
            assert dumps[0] == dumps[1], key
        digests = [wire.call("DEBUG", "DIGEST-VALUE", key) for wire in pair.wires]
        assert digests[0] == digests[1], key


@pytest.mark.parametrize("script", cases(CASES))
def test_replies_and_state(pair: Pair, script: list[Request]) -> None:
    pair.reset()
    for request in script:
        if request[0] in (b"SUNION", b"SDIFF", b"SPOP", b"EVAL") or request == (b"SMEMBERS", b"dst"):
            replies = [in_order(wire.call(*request)) for wire in pair.wires]
            assert replies[0] == replies[1], request
        else:
            pair.run([request])
    state_of(pair)


def in_order(reply: Reply) -> object:
    """A reply whose elements may have any order."""
    return reply.kind, sorted(member.value for member in reply.value) if reply.kind in "*~" else reply.value


# --- Encodings --------------------------------------------------------------------------------------------------------


def integers(first: int, end: int) -> list[str]:
    return [str(number) for number in range(first, end)]


def words(first: int, end: int) -> list[str]:
    return [f"m{number}" for number in range(first, end)]


def adding() -> Iterator[tuple[str, list[list[str]]]]:
    """Names, and arguments of the SADDs of one key."""
    yield "512 integers", [integers(0, 512)]
    yield "513 integers at once", [integers(0, 513)]
    yield "513 integers one after another", [[each] for each in integers(0, 513)]
    yield "513 times the same integer", [["1"] * 513]
    yield "513 times the same integer, to an intset", [["1"], ["1"] * 513]
    yield "129 times the same word", [["a"] * 129]
    yield "129 times the same word, to a listpack", [["a"], ["a"] * 129]
    yield "128 words", [words(0, 128)]
    yield "129 words", [[each] for each in words(0, 129)]
    yield "127 integers and a word", [integers(0, 127), ["a"]]
    yield "128 integers and a word", [integers(0, 128), ["a"]]
    yield "integers and a long word", [["1", "2"], ["a" * 65]]
    yield "a word of 64 bytes", [["a" * 64]]
    yield "a word of 65 bytes", [["a" * 65]]
    yield "a long word in a listpack", [["a"], ["a" * 65]]
    yield "a word before many integers", [["a", *integers(0, 200)]]
    yield "an integer before many words", [["1", *words(0, 200)]]
    yield "an integer before 127 words", [["1", *words(0, 127)]]
    yield "integers of all widths", [["1", "-70000"], ["5000000000"], ["-9223372036854775808"]]


ADDED = dict(adding())


@pytest.mark.parametrize("name", ADDED)
def test_when_a_set_changes_its_form(pair: Pair, name: str) -> None:
    pair.reset()
    for members in ADDED[name]:
        pair.run([("SADD", "s", *members), ("OBJECT", "ENCODING", "s"), ("SCARD", "s")])
    state_of(pair)
    pair.run([("DEBUG", "RELOAD"), ("OBJECT", "ENCODING", "s"), ("SCARD", "s")])
    state_of(pair)
    pair.run([("SUNIONSTORE", "dst", "s"), ("OBJECT", "ENCODING", "dst")])
    pair.run([("SINTERSTORE", "dst", "s", "s"), ("OBJECT", "ENCODING", "dst")])
    pair.run([("SDIFFSTORE", "dst", "s", "none"), ("OBJECT", "ENCODING", "dst")])
    state_of(pair)


def test_limits_are_settings(pair: Pair) -> None:
    pair.reset()
    pair.run_text("""
        CONFIG GET set-max-*
        CONFIG SET set-max-intset-entries 2 set-max-listpack-entries 3 set-max-listpack-value 4
        SADD e0 1 2
        SADD e0 3
        SADD e1 a b c
        SADD e1 d
        SADD e2 abcde
        SADD e3 abcd
        SADD e4 1 2
        SADD e4 a
        SADD e4 b
        SADD e5 12345
        SADD e5 a
        CONFIG SET set-max-intset-entries 0 set-max-listpack-entries 0
        SADD e6 1
        SADD e7 a
        SADD e3 b
        DEBUG RELOAD
    """)
    state_of(pair)
    pair.run_text("CONFIG SET set-max-intset-entries 512 set-max-listpack-entries 128 set-max-listpack-value 64")


# --- Chance -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("members", [integers(0, 300), words(0, 100), words(0, 1000), integers(0, 1000)])
@pytest.mark.parametrize("count", [1, 5, 60, 90, 99])
def test_pops_and_draws_have_the_right_shape(pair: Pair, members: list[str], count: int) -> None:
    """Which members they are is up to chance: their number, that they differ, and the form that is left are not."""
    pair.reset()
    number = len(members) * count // 100
    shapes = []
    for wire in pair.wires:
        wire.call("SADD", "s", *members)
        drawn = [wire.call("SRANDMEMBER", "s", number), wire.call("SRANDMEMBER", "s", -number)]
        popped = wire.call("SPOP", "s", number)
        left = {member.value for member in wire.call("SMEMBERS", "s").value}
        values = [{member.value for member in reply.value} for reply in (*drawn, popped)]
        assert values[2] | left == {member.encode() for member in members}
        shapes.append([
            len(values[0]), [len(reply.value) for reply in drawn], [reply.kind for reply in (*drawn, popped)],
            len(values[2]), len(left), wire.call("OBJECT", "ENCODING", "s"),
        ])  # fmt: skip
    assert shapes[0] == shapes[1]


def test_a_large_set_is_scanned_whole(pair: Pair) -> None:
    pair.reset()
    ours = pair.wires[0]
    ours.call("SADD", "s", *words(0, 3000))
    found: list[bytes] = []
    cursor, calls = b"0", 0
    while True:
        reply: Reply = ours.call("SSCAN", "s", cursor)
        cursor = reply.value[0].value
        found += [member.value for member in reply.value[1].value]
        calls += 1
        if cursor == b"0":
            break
    assert sorted(found) == sorted(word.encode() for word in words(0, 3000))
    assert 100 < calls < 400
    assert ours.call("SSCAN", "s", "0", "COUNT", "100000", "MATCH", "m1?").value[0].value == b"0"


def test_a_reply_without_end_is_refused(pair: Pair) -> None:
    pair.reset()
    ours = pair.wires[0]
    for member in ("1", "word"):
        ours.call("SADD", "s", member)
        reply = ours.call("SRANDMEMBER", "s", "-9223372036854775807")
        assert reply.kind == "-"
        assert b"out of range" in reply.value
