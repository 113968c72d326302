"""Hashes: the same replies, encodings and payloads as a real Redis. Marked `real`."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from support.compare.differential import Pair, Request
from support.compare.tables import cases
from support.servers import Server, eventually
from support.wire import Reply

pytestmark = pytest.mark.real

CASES = """
== hset and hget
HSET h a 1 b two
HSET h a 2 c 3
HSET h a 1 a 2 a 3
HGET h a
HGET h nothing
HGET none a
HMGET h a nothing c a
HMGET none a b
HGETALL h
HGETALL none
HKEYS h
HVALS h
HKEYS none
HVALS none
HLEN h
HLEN none
HEXISTS h a
HEXISTS h nothing
HEXISTS none a
HSTRLEN h a
HSTRLEN h b
HSTRLEN h nothing
HSTRLEN none a
== wrong numbers of arguments and wrong types
HSET h a
HSET h a 1 b
HSET h
HMSET h a 1 b
HMSET h a
SET s v
HSET s a 1
HSET s a
HGET s a
HMGET s a
HGETALL s
HKEYS s
HVALS s
HLEN s
HEXISTS s a
HSTRLEN s a
HDEL s a
HSETNX s a 1
HINCRBY s a 1
HINCRBY s a x
HINCRBYFLOAT s a 1
HINCRBYFLOAT s a x
HRANDFIELD s
HRANDFIELD s x
HSCAN s 0
HSCAN s x
HSCAN s 0 COUNT 0
HSCAN none 0 COUNT 0
HSCAN none x
GET h
HSET h a 1
GET h
INCR h
APPEND h x
XADD h * f v
TYPE h
MGET h
SETNX h 1
MSET h 1
TYPE h
== hmset, hsetnx, hdel
HMSET h a 1 b 2
HSETNX h a 9
HSETNX h c 3
HSETNX k c 3
HGETALL h
HGETALL k
HDEL h a nothing a
HDEL h nothing
HDEL none a
HDEL h b c
EXISTS h
HDEL k c
EXISTS k
== values of every shape come back
HSET h 0 "" 1 -1 01 +1 -0 " 1" 127 128 -4096 4095 -4097 32767 32768 8388607 8388608 2147483647
HSET h 2147483648 9223372036854775807 -9223372036854775808 9223372036854775808 "" x
HGETALL h
HGET h 0
HGET h -0
HGET h 01
HGET h ""
HSTRLEN h 2147483648
HEXISTS h 1
HDEL h 127 1
HGETALL h
== hincrby
HINCRBY h a 5
HINCRBY h a -7
HINCRBY h a 9223372036854775807
HINCRBY h a 9223372036854775807
HGET h a
HINCRBY h a x
HINCRBY h a 1.5
HINCRBY h a ""
HINCRBY h a 9223372036854775808
HSET h t text f 1.5
HINCRBY h t 1
HINCRBY h f 1
HINCRBY h a -9223372036854775808
HINCRBY h a -9223372036854775808
HGETALL h
== hincrbyfloat
HINCRBYFLOAT h a 0.1
HINCRBYFLOAT h a 0.2
HINCRBYFLOAT h a -0.3
HINCRBYFLOAT h b 3e3
HINCRBYFLOAT h b 0x10
HINCRBYFLOAT h c 1700000000.123456
HINCRBYFLOAT h c 1
HINCRBYFLOAT h a x
HINCRBYFLOAT h a nan
HINCRBYFLOAT h a inf
HINCRBYFLOAT h a -inf
HINCRBYFLOAT h a " 1"
HINCRBYFLOAT h a 1e5000
HINCRBYFLOAT h d 1e-18
HSET h t text
HINCRBYFLOAT h t 1
HSET h big 1e4932
HINCRBYFLOAT h big 1e4932
HINCRBYFLOAT h e 1e100
HGETALL h
== hrandfield, where there is no choice
HRANDFIELD none
HRANDFIELD none 5
HRANDFIELD none -5
HSET h a 1
HRANDFIELD h
HRANDFIELD h 3
HRANDFIELD h -3
HRANDFIELD h 3 WITHVALUES
HRANDFIELD h -3 withvalues
HRANDFIELD h 0
HRANDFIELD h 0 WITHVALUES
HRANDFIELD h x
HRANDFIELD h 1 FOO
HRANDFIELD h 1 WITHVALUES FOO
HRANDFIELD h x FOO
HRANDFIELD h -9223372036854775808
HRANDFIELD h 9223372036854775807
HRANDFIELD h 4611686018427387904 WITHVALUES
HRANDFIELD h -4611686018427387904 WITHVALUES
HRANDFIELD none -9223372036854775808
== hscan of a small hash
HSET h a 1 b 2 abc 3 7 x
HSCAN h 0
HSCAN h 55
HSCAN h 0 MATCH a*
HSCAN h 0 MATCH 7
HSCAN h 0 COUNT 1
HSCAN h 0 NOVALUES
HSCAN h 0 MATCH b NOVALUES COUNT 5
HSCAN h 0 COUNT 0
HSCAN h 0 COUNT x
HSCAN h 0 COUNT
HSCAN h 0 FOO
HSCAN h 0 TYPE hash
HSCAN h x
HSCAN h -1
HSCAN h 18446744073709551615
HSCAN h 18446744073709551616
== a small hash becomes a large one by its number of fields
CONFIG SET hash-max-listpack-entries 3
HSET h a 1 b 2 c 3
OBJECT ENCODING h
HSET h a 1 b 2 c 4
OBJECT ENCODING h
HSETNX h d 4
OBJECT ENCODING h
HDEL h a b c
OBJECT ENCODING h
HSET k a 1 a 2 a 3 a 4
OBJECT ENCODING k
HLEN k
HINCRBY a f1 1
HINCRBY a f2 1
HINCRBY a f3 1
OBJECT ENCODING a
HINCRBY a f4 1
OBJECT ENCODING a
CONFIG SET hash-max-ziplist-entries 512
CONFIG GET hash-max-*
== a small hash becomes a large one by a long field or value
CONFIG SET hash-max-listpack-value 4
HSET h a 1234
OBJECT ENCODING h
HSET h a 12345
OBJECT ENCODING h
HSET k fffff 1
OBJECT ENCODING k
HINCRBY a b 12345
OBJECT ENCODING a
HINCRBYFLOAT a b 0.5
OBJECT ENCODING a
CONFIG SET hash-max-listpack-value 64
DEBUG RELOAD
OBJECT ENCODING h
OBJECT ENCODING k
OBJECT ENCODING a
== a hash under limits of zero
CONFIG SET hash-max-listpack-entries 0
HSET h a 1
OBJECT ENCODING h
HGETALL h
CONFIG SET hash-max-listpack-entries 512
== copy, rename, move, dump, object
HSET h a 1 b 2
HPEXPIREAT h 70368744177663 FIELDS 1 b
COPY h k
HGETALL k
HPEXPIRETIME k FIELDS 2 a b
RENAME k a
HPEXPIRETIME a FIELDS 2 a b
MOVE a 1
SELECT 1
HPEXPIRETIME a FIELDS 2 a b
DEL a
SELECT 0
OBJECT ENCODING h
OBJECT REFCOUNT h
SCAN 0 TYPE hash
SCAN 0 TYPE HASH COUNT 100
== expire fields
HSET h a 1 b 2 c 3
HPEXPIREAT h 70000000000000 FIELDS 3 a nothing b
HPEXPIRETIME h FIELDS 4 a b c nothing
HEXPIRETIME h FIELDS 4 a b c nothing
OBJECT ENCODING h
HEXPIREAT h 60000000000 FIELDS 1 c
HPEXPIRETIME h FIELDS 1 c
HGETALL h
HPEXPIREAT h 70000000000001 NX FIELDS 2 a c
HPEXPIREAT h 70000000000001 XX FIELDS 2 a c
HPEXPIREAT h 70000000000000 GT FIELDS 2 a c
HPEXPIREAT h 70000000000002 GT FIELDS 2 a c
HPEXPIREAT h 70000000000002 LT FIELDS 2 a c
HPEXPIREAT h 50000000000000 LT FIELDS 2 a c
HSET h d 4
HPEXPIREAT h 50000000000000 GT FIELDS 1 d
HPEXPIREAT h 50000000000000 LT FIELDS 1 d
HPERSIST h FIELDS 3 a a nothing
HPERSIST none FIELDS 1 a
HGETALL h
HPEXPIREAT h 40000000000000 FIELDS 1 a NX
HPEXPIREAT none 40000000000000 FIELDS 2 a b
HPEXPIREAT h 1 FIELDS 3 a b nothing
HGETALL h
HEXPIRE h 0 FIELDS 2 c d
EXISTS h
== hset removes expiries, hincrby keeps them
HSET h a 1 b 2 c 3
HPEXPIREAT h 70000000000000 FIELDS 3 a b c
HSET h a 9
HINCRBY h b 1
HINCRBYFLOAT h c 1.5
HSETNX h b 5
HPEXPIRETIME h FIELDS 3 a b c
HGETALL h
HDEL h b
HGETALL h
== hgetex
HSET h a 1 b 2
HGETEX h FIELDS 3 a b nothing
HGETEX h PXAT 70000000000000 FIELDS 2 a nothing
HPEXPIRETIME h FIELDS 2 a b
HGETEX h EXAT 60000000000 FIELDS 1 b
HGETEX h FIELDS 1 b PERSIST
HPEXPIRETIME h FIELDS 2 a b
HGETEX h PERSIST FIELDS 1 nothing
HGETEX h PXAT 1 FIELDS 1 a
HGETALL h
HGETEX none PXAT 1 FIELDS 2 a b
HGETEX h EX 0 FIELDS 1 b
EXISTS h
== hsetex
HSETEX h PXAT 70000000000000 FIELDS 2 a 1 b 2
HPEXPIRETIME h FIELDS 2 a b
HSETEX h FIELDS 1 a 5
HPEXPIRETIME h FIELDS 2 a b
HSETEX h KEEPTTL FIELDS 2 b 6 c 7
HPEXPIRETIME h FIELDS 3 a b c
HSETEX h FNX FIELDS 1 a 5
HSETEX h FNX FIELDS 2 d 1 a 5
HSETEX h FNX FIELDS 1 d 5
HSETEX h FXX FIELDS 2 a 8 nothing 9
HSETEX h FXX FIELDS 2 a 8 b 9 EXAT 60000000000
HGETALL h
HSETEX h PXAT 1 FIELDS 2 a 1 new 2
HGETALL h
HSETEX none FXX FIELDS 1 a 1
HSETEX k EXAT 1 FIELDS 1 a 1
EXISTS k
HSETEX k FNX FIELDS 2 a 1 a 2
HGETALL k
SET s v
HSETEX s FIELDS 1 a 1
HSETEX s FIELDS 1 a
HSETEX s FIELDS 0 a 1
== hgetdel
HSET h a 1 b 2 c 3
HGETDEL h FIELDS 2 a nothing
HGETDEL h FIELDS 2 b b
HGETDEL none FIELDS 2 a b
HGETALL h
HGETDEL h FIELDS 1 c
EXISTS h
== arguments of hexpire and its order of checks
HSET h a 1 b 2
SET s v
HEXPIRE s x FIELDS 0 a
HEXPIRE h x FIELDS 0 a
HEXPIRE h x FOO 1 a
HEXPIRE h -1 FIELDS 0 a
HEXPIRE h 99999999999999999 FIELDS 0 a
HEXPIRE none x FIELDS 1 a
HEXPIRE none 5 FIELDS 0 a
HEXPIRE none 5 FIELDS 2 a
HEXPIRE h 10 FIELDS 2 a
HEXPIRE h 10 FIELDS 1 a b
HEXPIRE h 10 NX XX FIELDS 1 a
HEXPIRE h 10 FIELDS 1 a FIELDS 1 b
HEXPIRE h 10 a b c
HEXPIRE h 10 NX FIELDS 1
HEXPIRE h 10 NX NX FIELDS
HEXPIRE h 10 NX XX FOO
HEXPIRE h 10 EX FIELDS 1
HEXPIRE h 10 FNX FIELDS 1
HEXPIRE h 10 PERSIST FIELDS 1
HEXPIRE h 10 NX GT LT
HEXPIRE h 10 GT LT FIELDS 0 a
HEXPIRE h 10 FIELDS x a
HEXPIRE h 10 FIELDS 99999999999 a
HPEXPIREAT h 70368744177664 FIELDS 1 a
HEXPIREAT h 70368744178 FIELDS 1 a
HPEXPIRE h 9223372036854775807 FIELDS 1 a
HEXPIRE h 10 FIELDS 1 FIELDS
HEXPIRE h 0 FIELDS 1 zz
== arguments of httl, hpersist, hgetdel
HSET h a 1 b 2
SET s v
HTTL s x 0 a
HTTL h FOO 1 a
HTTL h FIELDS 0 a
HTTL h FIELDS x a
HTTL h FIELDS 2 a
HTTL h FIELDS 1 a b
HTTL none FIELDS 0 a
HTTL none FOO 2 a
HTTL none FIELDS 2 a b
HTTL h FIELDS 99999999999 a
HPTTL h FIELDS 1 a
HPERSIST s x 0 a
HPERSIST h FIELDS 0 a
HPERSIST h FIELDS 1 a b
HGETDEL s FOO 1 a
HGETDEL h FOO 1 a
HGETDEL h FIELDS 0 a
HGETDEL none FIELDS 2 a
== arguments of hgetex and hsetex
HSET h a 1 b 2
SET s v
HGETEX s FOO 1 a
HGETEX h FOO 1 a
HGETEX h FIELDS 0 a
HGETEX h FIELDS 2 a
HGETEX h FIELDS 1 a b
HGETEX none FIELDS 0 a
HGETEX none EX x FIELDS 1 a
HGETEX h EX x FIELDS 0 a
HGETEX h EX -1 FOO 1 a
HGETEX h EX 1 PX 1 FIELDS 1 a
HGETEX h EX 1 PERSIST FIELDS 1 a
HGETEX h PERSIST PERSIST FIELDS 1 a
HGETEX h FIELDS 1 a EX
HGETEX h EX FIELDS 1 a
HGETEX h KEEPTTL FIELDS 1 a
HGETEX h FNX FIELDS 1 a
HGETEX h EX 99999999999999 FIELDS 1 a
HGETEX h PX 70368744177664 FIELDS 1 a
HGETEX h FIELDS 1 a FIELDS 1 a
HGETEX h EX 1 FIELDS 1
HSETEX s FOO 1 a 1
HSETEX s EX x FIELDS 1 a 1
HSETEX h FIELDS 1 a 1 b
HSETEX h FIELDS 2 a 1
HSETEX h FNX FXX FIELDS 1 a 1
HSETEX h FNX FNX FIELDS 1 a 1
HSETEX h EX 1 KEEPTTL FIELDS 1 a 1
HSETEX h PERSIST FIELDS 1 a 1
HSETEX h EX -1 FIELDS 1 a 1
HSETEX h EX 99999999999999 FIELDS 1 a 1
HSETEX h FIELDS 1 a 1 FIELDS 1 a 1
HSETEX h FIELDS 99999999999 a 1
== encodings with expiries
HSET h a 1
HEXPIRE h 100 FIELDS 1 nothing
OBJECT ENCODING h
HSET k a 1
HGETEX k FIELDS 1 a
OBJECT ENCODING k
HPERSIST k FIELDS 1 a
OBJECT ENCODING k
HSETEX a FIELDS 1 a 1
OBJECT ENCODING a
HSETEX a KEEPTTL FIELDS 1 a 1
OBJECT ENCODING a
HGETEX a PERSIST FIELDS 1 a
OBJECT ENCODING a
HGETEX a EX 100 FIELDS 1 nothing
OBJECT ENCODING a
== scripts
EVAL "return redis.call('hset', 'h', 'a', 1, 'b', 2)" 0
EVAL "return redis.call('hgetall', 'h')" 0
EVAL "return redis.call('hget', 'h', 'nothing')" 0
EVAL "return {redis.call('hmget', 'h', 'a', 'nothing', 'b'), redis.call('hlen', 'h')}" 0
EVAL "redis.setresp(3) return redis.call('hgetall', 'h')" 0
EVAL "return redis.call('hset', 'h', 'a')" 0
== watch
HSET h a 1
WATCH h
HSET h a 1
MULTI
HGET h a
EXEC
WATCH h
HSETNX h a 1
HDEL h nothing
HGETEX h FIELDS 1 a
MULTI
HGET h a
EXEC
"""


@pytest.fixture(autouse=True)
def default_limits(streamd_server: Server, redis_server: Server) -> Iterator[None]:
    yield
    for server in (streamd_server, redis_server):
        with server.connect() as wire:
            wire.call(
                "CONFIG",
                "SET",
                "hash-max-listpack-entries",
                "512",
                "hash-max-listpack-value",
                "64",
                "rdbcompression",
                "yes",
            )
            wire.call("DEBUG", "SET-ACTIVE-EXPIRE", "1")


def state_of(pair: Pair) -> None:
    """Compare what the keys of the cases hold; those in a listpack byte for byte."""
    for key in (b"h", b"k", b"a"):
        kinds = {wire.call("TYPE", key).value for wire in pair.wires}
        assert len(kinds) == 1, (key, kinds)
        if kinds != {b"hash"}:
            continue
        encoding = pair.run([(b"OBJECT", b"ENCODING", key)])[0].value
        pair.run([(b"HLEN", key), (b"DEBUG", b"DIGEST-VALUE", key)])
        if encoding == b"listpack" or (encoding == b"listpackex" and not has_relative_expiries(pair, key)):
            ours, theirs = (wire.call("DUMP", key).value for wire in pair.wires)
            assert packed(ours) == packed(theirs)


def packed(payload: bytes) -> bytes:
    """What a payload holds, without the earliest expiry, which may be stale in Redis, and the checksum."""
    return payload[:1] + payload[9:-10] if payload[0] == 25 else payload[:-10]


def has_relative_expiries(pair: Pair, key: bytes) -> bool:
    """Whether fields expire at a time that depends on when the request came."""
    times = pair.wires[0].call("HPEXPIRETIME", key, "FIELDS", "1", "a")
    return times.value[0].value % 1000 not in (0, 1, 2, 663, -1 % 1000, -2 % 1000)


@pytest.mark.parametrize("script", cases(CASES))
def test_replies_are_those_of_redis(pair: Pair, script: list[Request]) -> None:
    for wire in pair.wires:
        wire.call("CONFIG", "SET", "rdbcompression", "no")
    pair.run(script)
    state_of(pair)


# --- Random scripts --------------------------------------------------------------------------------------------------

FIELDS = ["a", "b", "c", "7", "-1", "", "x" * 64, "y" * 65]
VALUES = ["1", "", "text", "-5", "1.5", "v" * 64, "w" * 65, "9223372036854775807"]
TIMES = [1, 70_000_000_000_000, 60_000_000_000_000, 50_000_000_000_001]


def random_request(chance: random.Random) -> list[str]:
    def some(pool: list[str], most: int = 3) -> list[str]:
        return [chance.choice(pool) for _ in range(chance.randint(1, most))]

    def pairs(most: int = 3) -> list[str]:
        return [word for name in some(FIELDS, most) for word in (name, chance.choice(VALUES))]

    field, fields, time = chance.choice(FIELDS), some(FIELDS), str(chance.choice(TIMES))
    counted = ["FIELDS", str(len(fields)), *fields]
    setting = pairs()
    counted_pairs = ["FIELDS", str(len(setting) // 2), *setting]
    condition = chance.choice([[], [], ["NX"], ["XX"], ["GT"], ["LT"]])
    expiry = chance.choice([[], ["PXAT", time]])
    return chance.choice([
        ["HSET", "h", *setting], ["HSET", "h", *pairs(1)], ["HMSET", "h", *setting], ["HDEL", "h", *fields], ["HGET", "h", field],
        ["HMGET", "h", *fields], ["HSETNX", "h", *pairs(1)], ["HINCRBY", "h", field, chance.choice(["1", "-3", "x"])],
        ["HINCRBYFLOAT", "h", field, "0.5"], ["HLEN", "h"], ["HEXISTS", "h", field], ["HSTRLEN", "h", field],
        ["HPEXPIREAT", "h", time, *condition, *counted], ["HPERSIST", "h", *counted], ["HPEXPIRETIME", "h", *counted],
        ["HGETEX", "h", *chance.choice([expiry, ["PERSIST"]]), *counted], ["HGETDEL", "h", *counted],
        ["HSETEX", "h", *chance.choice([[], ["FNX"], ["FXX"]]), *chance.choice([expiry, ["KEEPTTL"]]), *counted_pairs],
        ["COPY", "h", "k", "REPLACE"], ["OBJECT", "ENCODING", "h"],
    ])  # fmt: skip


@pytest.mark.parametrize("limits", ["512 64", "3 64", "512 1000"])
@pytest.mark.parametrize("seed", range(4))
def test_random_requests(pair: Pair, seed: int, limits: str) -> None:
    entries, longest = limits.split()
    chance = random.Random(f"{seed} {limits}")
    settings = (
        "CONFIG",
        "SET",
        "hash-max-listpack-entries",
        entries,
        "hash-max-listpack-value",
        longest,
        "rdbcompression",
        "no",
    )
    pair.run([settings])
    for _ in range(12):
        pair.run([random_request(chance) for _ in range(chance.randint(1, 25))])
        state_of(pair)


# --- A large hash ----------------------------------------------------------------------------------------------------


def test_a_large_hash_answers_alike(pair: Pair) -> None:
    pair.run([("HSET", "h", *(word for i in range(5000) for word in (f"f{i}", f"v{i}")))])
    pair.run([("HGET", "h", f"f{i}") for i in range(0, 5000, 37)])
    pair.run([("HDEL", "h", *(f"f{i}" for i in range(0, 5000, 3)))])
    pair.run([("HPEXPIREAT", "h", str(70_000_000_000_000 - i), "FIELDS", "1", f"f{i}") for i in range(1000)])
    pair.run([("HLEN", "h"), ("DEBUG", "DIGEST-VALUE", "h"), ("OBJECT", "ENCODING", "h")])
    pair.run([("DEBUG", "RELOAD"), ("DEBUG", "DIGEST-VALUE", "h"), ("OBJECT", "ENCODING", "h")])
    ours, theirs = (sorted(part.value for part in wire.call("HVALS", "h").value) for wire in pair.wires)
    assert ours == theirs


def scan_all(pair: Pair, *options: str) -> list[bytes]:
    cursor, found = b"0", []
    while True:
        cursor, page = (part.value for part in pair.wires[0].call("HSCAN", "h", cursor, *options).value)
        found += [part.value for part in page]
        if cursor == b"0":
            return found


def test_a_scan_returns_each_field_once(pair: Pair) -> None:
    pair.wires[0].call("HSET", "h", *(word for i in range(3000) for word in (f"f{i}", f"v{i}")))
    names = {b"f%d" % i for i in range(3000)}
    found = scan_all(pair)
    assert len(found) == 6000
    assert set(found[::2]) == names
    assert set(scan_all(pair, "NOVALUES", "COUNT", "500")) == names
    assert set(scan_all(pair, "NOVALUES", "MATCH", "f299?")) == {b"f%d" % i for i in range(2990, 3000)}


def test_random_fields_are_distinct_or_repeated(pair: Pair) -> None:
    wire = pair.wires[0]
    for size in (20, 3000):
        wire.call("HSET", f"h{size}", *(word for i in range(size) for word in (f"f{i}", f"v{i}")))
        for count in (1, 5, size // 2, size - 1, size, size + 5):
            drawn = [part.value for part in wire.call("HRANDFIELD", f"h{size}", str(count)).value]
            assert len(drawn) == len(set(drawn)) == min(count, size)
            assert len(wire.call("HRANDFIELD", f"h{size}", str(-count)).value) == count


def test_every_field_is_drawn_about_as_often(pair: Pair) -> None:
    pair.wires[0].call("HSET", "h", *(word for i in range(600) for word in (f"f{i}", "v")))
    drawn = [part.value for part in pair.wires[0].call("HRANDFIELD", "h", "-60000").value]
    counts = [drawn.count(b"f%d" % i) for i in range(0, 600, 20)]
    assert min(counts) > 50, counts
    assert max(counts) < 170, counts


def test_a_huge_negative_count_is_refused(pair: Pair) -> None:
    wire = pair.wires[0]
    wire.call("HSET", "h", "a", "1")
    reply = wire.call("HRANDFIELD", "h", "-9223372036854775807")
    assert reply == Reply("-", b"ERR value is out of range, the reply would exceed 4 GiB")
    assert wire.call("PING") == Reply("+", b"PONG")


# --- Fields whose time has come --------------------------------------------------------------------------------------

MEETING = """
HSET h a 1 b 2 c 3
HPEXPIRE h 1 FIELDS 2 a b
HSET k a 1
HPEXPIRE k 1 FIELDS 1 a
DEBUG SLEEP 0.01
"""

MEETINGS = [
    "HGET h a", "HMGET h a b c", "HEXISTS h a", "HSTRLEN h a", "HGETALL h", "HKEYS h", "HVALS h", "HLEN h", "HSCAN h 0",
    "HSETNX h a 9", "HINCRBY h a 9", "HINCRBYFLOAT h a 9", "HSET h a 9", "HDEL h a", "HTTL h FIELDS 2 a b",
    "HPERSIST h FIELDS 1 a", "HRANDFIELD h 5", "HRANDFIELD h", "HGETEX h FIELDS 2 a c", "HGETEX h PERSIST FIELDS 2 a c",
    "HGETDEL h FIELDS 2 a c", "HSETEX h FXX FIELDS 2 c 5 a 1", "HSETEX h FNX FIELDS 1 a 1", "HSETEX h FIELDS 1 a 1",
    "HSETEX h KEEPTTL FIELDS 1 a 1", "HGETALL k", "HGET k a", "HLEN k", "HRANDFIELD k", "HRANDFIELD k 3", "HSETNX k a 5",
    "HINCRBY k a 5", "HMGET k a b", "HGETDEL k FIELDS 1 a", "HSETEX k FNX FIELDS 1 a 7", "EXISTS k", "TYPE k", "HSCAN k 0",
    "COPY h k REPLACE", "RENAME h k",
]  # fmt: skip


@pytest.mark.parametrize("encoding", ["packed", "table"])
@pytest.mark.parametrize("line", MEETINGS)
def test_fields_whose_time_has_come_are_met_alike(pair: Pair, line: str, encoding: str) -> None:
    if encoding == "table":
        pair.run_text("CONFIG SET hash-max-listpack-entries 0")
    pair.run_text(f"DEBUG SET-ACTIVE-EXPIRE 0\n{MEETING}")
    looks = "HLEN h\nHLEN k\nHPEXPIRETIME h FIELDS 3 a b c\nHMGET h a b c\nHGET k a\nEXISTS h k"
    pair.run_text(f"{line}\n{looks}")


@pytest.mark.parametrize("fields", [2, 2000])
def test_fields_expire_by_themselves(pair: Pair, fields: int) -> None:
    names = [f"f{i}" for i in range(fields)]
    for wire in pair.wires:
        wire.call("HSET", "h", *(word for name in names for word in (name, "v")), "kept", "v")
        wire.call("HSET", "gone", "a", "1")
        wire.call("HPEXPIRE", "h", "5", "FIELDS", str(fields), *names)
        wire.call("HPEXPIRE", "gone", "5", "FIELDS", "1", "a")
    for wire in pair.wires:
        eventually(lambda wire=wire: (wire.call("HLEN", "h").value, wire.call("EXISTS", "gone").value) == (1, 0))
    pair.run_text("HGETALL h")
    sections = [
        dict(line.split(b":", 1) for line in wire.call("INFO", "stats").value.splitlines() if b":" in line)
        for wire in pair.wires
    ]
    assert int(sections[0][b"expired_subkeys"]) >= fields + 1


def test_hexpire_does_not_revive_a_field(pair: Pair) -> None:
    ours = pair.wires[0]
    ours.pipeline(
        [("DEBUG", "SET-ACTIVE-EXPIRE", "0"), ("HSET", "h", "a", "1"), ("HPEXPIRE", "h", "1", "FIELDS", "1", "a")]
    )
    ours.call("DEBUG", "SLEEP", "0.01")
    assert [part.value for part in ours.call("HEXPIRE", "h", "100", "FIELDS", "1", "a").value] == [-2]
    assert ours.call("HGET", "h", "a").value is None


# --- INFO ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def hashes_of_all_sizes(pair: Pair) -> None:
    for size in (1, 2, 3, 500, 700):
        pair.run([("HSET", f"h{size}", *(word for i in range(size) for word in (f"f{i}", "v")))])
    pair.run_text("HDEL h3 f1 f2\nHEXPIRE h500 100 FIELDS 1 f1\nHSET h700 new 1")


def test_info_counts_hashes_by_size_and_those_with_expiries(pair: Pair, hashes_of_all_sizes: None) -> None:
    texts = [wire.call("INFO", "keysizes").value for wire in pair.wires]
    lines = [[line for line in text.splitlines() if b"hashes_items" in line] for text in texts]
    assert lines[0] == lines[1] != []
    assert hashes_with_expiries(pair) == (1, 1)


def test_redis_counts_a_hash_whose_fields_are_persistent_again_until_their_time_has_passed(pair: Pair) -> None:
    pair.run_text("HSET h a 1 b 2\nHPEXPIRE h 1000000 FIELDS 1 a\nHPERSIST h FIELDS 1 a")
    assert hashes_with_expiries(pair) == (0, 1)
    pair.run_text("HPEXPIRE h 1000000 FIELDS 1 a\nHDEL h a")
    assert hashes_with_expiries(pair) == (0, 0)


def hashes_with_expiries(pair: Pair) -> tuple[int, int]:
    """`subexpiry` of streamd and of Redis."""
    ours, theirs = (wire.call("INFO", "keyspace").value.split(b"subexpiry=")[1] for wire in pair.wires)
    return int(ours), int(theirs)
