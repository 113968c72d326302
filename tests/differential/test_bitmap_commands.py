"""Bitmaps and fields of bits: the same replies, encodings and payloads as a real Redis. Marked `real`."""

from __future__ import annotations

import random

import pytest
from support.compare.differential import Pair, Request
from support.compare.tables import cases

pytestmark = pytest.mark.real

SEED = 20_260_301
SCRIPTS = 40
LENGTH = 60

CASES = """
== setbit and getbit
SETBIT a 7 1
GETBIT a 7
GETBIT a 6
GETBIT a 100
GETBIT none 0
SETBIT a 7 1
SETBIT a 7 0
SETBIT a 100 0
STRLEN a
SETBIT a 0 1
SETBIT a 8 1
GET a
OBJECT ENCODING a
== a single byte, an empty string, numbers
SET a x
SETBIT a 0 1
GET a
SET a ""
SETBIT a 3 0
STRLEN a
SET a 12
OBJECT ENCODING a
SETBIT a 2 1
OBJECT ENCODING a
GET a
SET a 12
SETBIT a 0 1
OBJECT ENCODING a
SET a text
GETBIT a 1
OBJECT ENCODING a
SETBIT a 6 0
GET a
== copies do not change with the original
SET a 0123456789
COPY a b
SETBIT a 0 1
BITFIELD a SET u8 8 255
GET a
GET b
APPEND b x
SETBIT b 0 1
GET a
GET b
SET k abc
SETBIT k 4 1
SET k2 abc
GET k2
GET k
== bad offsets and bits
SETBIT a 4294967296 1
SETBIT a -1 1
SETBIT a x 1
SETBIT a "" 1
SETBIT a 01 1
SETBIT a #1 1
SETBIT a 0 2
SETBIT a 0 -1
SETBIT a 0 x
SETBIT a 0 ""
SETBIT a x 2
SETBIT a
SETBIT a 0
SETBIT a 0 1 2
GETBIT a 4294967296
GETBIT a 4294967295
GETBIT a -1
GETBIT a #1
GETBIT a
EXISTS a
RPUSH l x
SETBIT l 0 1
SETBIT l x 1
SETBIT l 0 2
GETBIT l 0
GETBIT l x
== bitcount
SET a foobar
BITCOUNT a
BITCOUNT none
BITCOUNT a 0 0
BITCOUNT a 1 1
BITCOUNT a 0 -1
BITCOUNT a -1 -2
BITCOUNT a -2 -1
BITCOUNT a 100 200
BITCOUNT a -100 -200
BITCOUNT a -200 -100
BITCOUNT a 5 2
BITCOUNT a 1 1 BYTE
BITCOUNT a 5 30 BIT
BITCOUNT a 5 30 bit
BITCOUNT a 5 5 BIT
BITCOUNT a 6 4 BIT
BITCOUNT a -1 -1 BIT
BITCOUNT a -9 -1 BIT
BITCOUNT a 0 -1 BIT
BITCOUNT a 47 100 BIT
BITCOUNT a 48 100 BIT
BITCOUNT a -9223372036854775808 9223372036854775807
BITCOUNT a -9223372036854775808 9223372036854775807 BIT
BITCOUNT a -9223372036854775808 -9223372036854775808 BIT
BITCOUNT none 0 1
BITCOUNT none -1 -2
SET e ""
BITCOUNT e
BITCOUNT e 0 0
BITCOUNT e -1 -1 BIT
SET n 12345
BITCOUNT n
== bad bitcounts
SET a foobar
BITCOUNT a 0
BITCOUNT a 0 1 FOO
BITCOUNT a 0 1 BIT x
BITCOUNT a x 1
BITCOUNT a 0 x
BITCOUNT a x 1 FOO
BITCOUNT a 0 1 x
BITCOUNT a 0 9223372036854775808
BITCOUNT
RPUSH l x
BITCOUNT l
BITCOUNT l x
BITCOUNT l 0 x
BITCOUNT l 0 0 FOO
BITCOUNT l 0 0
== bitpos
SETBIT a 100 1
SETBIT a 103 1
BITPOS a 1
BITPOS a 0
BITPOS a 1 12
BITPOS a 1 13
BITPOS a 1 0 11
BITPOS a 1 0 -1 BIT
BITPOS a 1 101 -1 BIT
BITPOS a 1 101 102 BIT
BITPOS a 1 104 200 BIT
BITPOS a 0 100 100 BIT
BITPOS a 0 100 101 BIT
BITPOS a 1 -3
BITPOS a 1 -1 -1
BITPOS a 1 -1 -5
BITPOS a 1 5 2
BITPOS none 0
BITPOS none 1
BITPOS none 0 5
BITPOS none 1 0 -1 BIT
BITPOS none 0 5 3
BITFIELD f SET i64 0 -1 SET i64 64 -1 SET i64 128 -1
BITPOS f 0
BITPOS f 1
BITPOS f 0 0
BITPOS f 0 3
BITPOS f 0 0 -1
BITPOS f 0 0 -1 BIT
BITPOS f 0 24
BITPOS f 0 24 30
BITPOS f 0 9223372036854775807
BITPOS f 1 -9223372036854775808 9223372036854775807
SETBIT f 190 0
BITPOS f 0
BITPOS f 0 0 -1
BITPOS f 0 5 180 BIT
SET e ""
BITPOS e 0
BITPOS e 1
BITPOS e 0 0
BITPOS e 0 0 -1
== bad bitposes
SET a foobar
BITPOS a
BITPOS a 2
BITPOS a -1
BITPOS a x
BITPOS a 2 x
BITPOS a 0 x
BITPOS a 0 0 x
BITPOS a 0 x 0
BITPOS a 0 0 0 FOO
BITPOS a 0 0 x FOO
BITPOS a 0 x 0 FOO
BITPOS a 0 0 0 BIT x
BITPOS a 0 x 0 BIT x
BITPOS a 2 0 0 BIT x
RPUSH l x
BITPOS l 0
BITPOS l 2
BITPOS l 0 0 x
BITPOS l 0 0 0 FOO
== bitop
SET a abcdefghijklmnopqrstuvwxyz
SET b 0123456789
SET c "\\xff\\x00\\xf0\\x0f"
BITOP AND d a b
GET d
BITOP OR d a b c
GET d
BITOP XOR d a b c
GET d
BITOP NOT d c
GET d
BITOP DIFF d a b c
GET d
BITOP DIFF1 d a b c
GET d
BITOP DIFF1 d c a b
GET d
BITOP ANDOR d a b c
GET d
BITOP ONE d a b c
GET d
BITOP ONE d a
GET d
BITOP ONE d a a b b a c
GET d
BITOP and d a
GET d
BITOP or d a none
GET d
BITOP and d a none b
GET d
BITOP xor a a a
GET a
BITOP NOT c c
GET c
BITOP AND d d d
OBJECT ENCODING d
== bitop and its target
SET a x
RPUSH d y
BITOP OR d a
TYPE d
SET d y EX 100
BITOP OR d a
TTL d
BITOP OR d none
EXISTS d
BITOP OR d none
BITOP NOT d none
SET e ""
BITOP AND d e
EXISTS d
SET n 12
BITOP OR d n
OBJECT ENCODING d
== bad bitops
SET a x
RPUSH l x
BITOP FOO d a
BITOP FOO d l
BITOP NOT d a a
BITOP NOT d l l
BITOP DIFF d a
BITOP diff1 d l
BITOP ANDOR d a
BITOP ONE d
BITOP AND d
BITOP AND
BITOP AND d a l
BITOP OR d l a
EXISTS d
== bitfield
BITFIELD a SET u8 0 255 GET u8 0 GET i8 0
BITFIELD a INCRBY u8 0 1
BITFIELD a SET i8 #1 -5 GET i8 #1 GET u8 #1 GET u8 #100
BITFIELD a INCRBY i5 100 1 GET u4 0
BITFIELD a INCRBY u2 100 1 OVERFLOW SAT INCRBY u2 102 1
BITFIELD a INCRBY u2 100 1 OVERFLOW SAT INCRBY u2 102 1
BITFIELD a INCRBY u2 100 1 OVERFLOW SAT INCRBY u2 102 1
BITFIELD a INCRBY u2 100 1 OVERFLOW SAT INCRBY u2 102 1
BITFIELD a OVERFLOW FAIL INCRBY u2 102 1
BITFIELD a OVERFLOW FAIL INCRBY u2 102 1 SET u2 102 1 OVERFLOW WRAP INCRBY u2 102 7
BITFIELD a OVERFLOW FAIL OVERFLOW SAT INCRBY u2 102 100
BITFIELD a GET u63 0 GET i64 0 GET i1 0 GET u1 0
BITFIELD a SET i64 3 -9223372036854775808 SET i64 3 9223372036854775807 GET i64 3
BITFIELD a INCRBY i64 3 1 OVERFLOW SAT INCRBY i64 3 -1 INCRBY i64 3 9223372036854775807
BITFIELD a
BITFIELD none
BITFIELD none GET u8 0
BITFIELD none OVERFLOW SAT
EXISTS none
GET a
OBJECT ENCODING a
BITFIELD_RO a GET u8 0 GET i16 #2
BITFIELD_RO a
BITFIELD_RO none GET i64 4294967295
== numbers beyond a field
BITFIELD a SET u8 0 -1 GET u8 0
BITFIELD a SET u8 0 256 GET u8 0
BITFIELD a SET i8 0 128 GET i8 0
BITFIELD a SET i8 0 -129 GET i8 0
BITFIELD a OVERFLOW SAT SET u8 0 -1 GET u8 0
BITFIELD a OVERFLOW SAT SET u8 0 256 GET u8 0
BITFIELD a OVERFLOW SAT SET i8 0 128 GET i8 0
BITFIELD a OVERFLOW SAT SET i8 0 -129 GET i8 0
BITFIELD a OVERFLOW FAIL SET u8 0 -1 SET u8 0 256 SET i8 0 128 SET i8 0 -129 SET i8 0 5
BITFIELD a OVERFLOW SAT SET u63 0 -1 INCRBY u63 0 1 INCRBY u63 0 -9223372036854775808 INCRBY u63 0 -1
BITFIELD a SET u63 0 9223372036854775807 INCRBY u63 0 9223372036854775807 INCRBY u63 0 -9223372036854775808
BITFIELD a SET i64 0 -1 INCRBY i64 0 -9223372036854775808 INCRBY i64 0 -1
BITFIELD a SET i63 0 4611686018427387903 INCRBY i63 0 1 OVERFLOW SAT INCRBY i63 0 9223372036854775807
BITFIELD a OVERFLOW SAT INCRBY i63 0 -9223372036854775808 INCRBY i63 0 -9223372036854775808
BITFIELD a SET i1 0 1 GET i1 0 SET i1 0 -1 INCRBY i1 0 1 OVERFLOW SAT INCRBY i1 0 1 INCRBY i1 0 -1
== bad bitfields
BITFIELD a GET I8 0
BITFIELD a GET x8 0
BITFIELD a GET u 0
BITFIELD a GET "" 0
BITFIELD a GET u64 0
BITFIELD a GET i65 0
BITFIELD a GET i0 0
BITFIELD a GET u-1 0
BITFIELD a GET u08 0
BITFIELD a GET "u8\\x00z" 0
BITFIELD a GET u8 x
BITFIELD a GET u8 -1
BITFIELD a GET u8 #-1
BITFIELD a GET u8 ##1
BITFIELD a GET u8 #
BITFIELD a GET u8 4294967295
BITFIELD a GET u8 4294967296
BITFIELD a GET u8 #536870911
BITFIELD a GET u8 #536870912
BITFIELD a GET u8 #9223372036854775807
BITFIELD a SET u8 0
BITFIELD a SET u8 0 x
BITFIELD a SET u8 x x
BITFIELD a SET z8 x x
BITFIELD a INCRBY u8 0
BITFIELD a GET u8
BITFIELD a GET
BITFIELD a FOO u8 0
BITFIELD a OVERFLOW
BITFIELD a OVERFLOW FOO
BITFIELD a OVERFLOW FOO SET u8
BITFIELD a SET u8 0 1 FOO
BITFIELD a SET u8 0 1 GET z8 0
EXISTS a
BITFIELD_RO a SET u8 0 1
BITFIELD_RO a INCRBY u8 0 1
BITFIELD_RO a OVERFLOW SAT
BITFIELD_RO a OVERFLOW FOO
BITFIELD_RO a OVERFLOW SAT GET u8 0
BITFIELD_RO a GET u8 0 SET u8 0 1 FOO
RPUSH l x
BITFIELD l
BITFIELD l FOO
BITFIELD l GET u8 0
BITFIELD l SET u8 0 1
BITFIELD_RO l GET u8 0
BITFIELD_RO l SET u8 0 1
BITFIELD_RO l
EXISTS a
== getkeys and flags
COMMAND GETKEYS BITOP AND d a b c
COMMAND GETKEYSANDFLAGS BITOP AND d a b c
COMMAND GETKEYSANDFLAGS BITFIELD a GET u8 0
COMMAND GETKEYSANDFLAGS BITFIELD a
COMMAND GETKEYSANDFLAGS BITFIELD a OVERFLOW SAT GET u8 0
COMMAND GETKEYSANDFLAGS BITFIELD a GET u8 0 SET u8 0 1
COMMAND GETKEYSANDFLAGS BITFIELD a GET u8
COMMAND GETKEYSANDFLAGS BITFIELD a OVERFLOW
COMMAND GETKEYSANDFLAGS BITFIELD a FOO
COMMAND GETKEYSANDFLAGS BITFIELD a INCRBY u8 0
COMMAND GETKEYSANDFLAGS SETBIT a 0 1
COMMAND GETKEYSANDFLAGS BITFIELD_RO a GET u8 0
COMMAND GETKEYSANDFLAGS PFCOUNT a b
COMMAND GETKEYSANDFLAGS PFADD a b
COMMAND GETKEYSANDFLAGS PFMERGE a b c
COMMAND GETKEYSANDFLAGS PFMERGE a
== permissions
ACL SETUSER reader nopass on ~x %R~a +@all
ACL DRYRUN reader BITFIELD a GET u8 0
ACL DRYRUN reader BITFIELD a SET u8 0 1
ACL DRYRUN reader BITFIELD a FOO
ACL DRYRUN reader BITOP AND x a
ACL DRYRUN reader BITOP AND a x
ACL DRYRUN reader PFCOUNT a
ACL DRYRUN reader PFMERGE x a
ACL SETUSER reader -@bitmap -@hyperloglog
ACL DRYRUN reader GETBIT x 0
ACL DRYRUN reader PFCOUNT x
ACL DELUSER reader
== watch
SET a x
WATCH a
SETBIT a 1 1
BITCOUNT a
BITFIELD a GET u8 0
BITFIELD a SET u8 0 120
MULTI
GET a
EXEC
WATCH a
SETBIT a 7 1
MULTI
GET a
EXEC
WATCH a
BITFIELD a SET u8 0 1
MULTI
GET a
EXEC
WATCH d
BITOP AND d none
MULTI
GET a
EXEC
WATCH d
BITOP OR d a
MULTI
GET d
EXEC
WATCH d
BITOP OR d a
MULTI
GET d
EXEC
== scripts
EVAL "return redis.call('setbit', 'a', 7, 1)" 0
EVAL "return redis.call('bitfield', 'a', 'get', 'u8', 0, 'overflow', 'fail', 'incrby', 'u1', 7, 1)" 0
EVAL "return redis.call('setbit', 'a', -7, 1)" 0
EVAL_RO "return redis.call('bitcount', 'a')" 0
EVAL_RO "return redis.call('setbit', 'a', 0, 1)" 0
EVAL_RO "return redis.call('bitfield', 'a', 'get', 'u8', 0)" 0
EVAL_RO "return redis.call('bitfield_ro', 'a', 'get', 'u8', 0)" 0
"""


def state_of(pair: Pair) -> None:
    """Compare what the keys hold, byte for byte."""
    for key in ("a", "b", "c", "d", "e"):
        pair.run([("DUMP", key), ("PTTL", key), ("OBJECT", "ENCODING", key)])


@pytest.fixture(autouse=True)
def uncompressed(pair: Pair) -> None:
    for wire in pair.wires:
        wire.call("CONFIG", "SET", "rdbcompression", "no")


@pytest.mark.parametrize("script", cases(CASES))
def test_replies_are_those_of_redis(pair: Pair, script: list[Request]) -> None:
    pair.run(script)
    state_of(pair)


# --- Random scripts --------------------------------------------------------------------------------------------------

KEYS = ["a", "b", "c"]
BOUNDS = [-9, -8, -1, 0, 1, 2, 7, 8, 9, 63, 64, 65, 300, 2**63 - 1, -(2**63)]


def random_field(chance: random.Random) -> list[str]:
    kind = chance.choice("iu")
    bits = chance.choice([1, 2, 7, 8, 9, 31, 32, 33, 62, 63, chance.randint(1, 63), 64 if kind == "i" else 63])
    offset = chance.randint(0, 300)
    return [f"{kind}{bits}", f"#{offset // bits}" if chance.random() < 0.3 else str(offset)]


def random_number(chance: random.Random) -> str:
    edge = 1 << chance.randint(0, 62)
    choices = [0, 1, -1, edge, -edge, edge - 1, -edge - 1, 2**63 - 1, -(2**63), chance.randint(-(2**63), 2**63 - 1)]
    return str(chance.choice(choices))


def random_bitfield(chance: random.Random) -> list[str]:
    words = ["BITFIELD", chance.choice(KEYS)]
    for _ in range(chance.randint(1, 6)):
        if chance.random() < 0.4:
            words += ["OVERFLOW", chance.choice(["WRAP", "SAT", "FAIL"])]
        action = chance.choice(["GET", "SET", "INCRBY", "INCRBY"])
        words += [action, *random_field(chance)]
        if action != "GET":
            words.append(random_number(chance))
    return words


def random_range(chance: random.Random) -> list[str]:
    words = [str(chance.choice([*BOUNDS, chance.randint(-400, 400)])) for _ in range(2)]
    return words + chance.choice([[], ["BIT"], ["BYTE"]])


def random_request(chance: random.Random) -> list[str | bytes]:
    key = chance.choice(KEYS)
    kind = chance.randrange(10)
    if kind < 3:
        return [*random_bitfield(chance)]
    if kind == 3:
        return ["SETBIT", key, str(chance.randint(0, 300)), chance.choice("01")]
    if kind == 4:
        return ["BITCOUNT", key, *random_range(chance)]
    if kind == 5:
        return ["BITPOS", key, chance.choice("01"), *chance.choice([[], ["3"], random_range(chance)])]
    if kind == 6:
        operation = chance.choice(["AND", "OR", "XOR", "NOT", "DIFF", "DIFF1", "ANDOR", "ONE"])
        sources = [chance.choice([*KEYS, "none"]) for _ in range(chance.randint(1, 5))]
        return ["BITOP", operation, chance.choice(["d", *KEYS]), *sources]
    if kind == 7:
        return ["SET", key, chance.choice([b"", b"7", b"\xff" * 20, chance.randbytes(chance.randint(0, 300))])]
    if kind == 8:
        return ["COPY", key, chance.choice(KEYS), "REPLACE"]
    return chance.choice([["DEL", key], ["APPEND", key, "x"], ["GETBIT", key, str(chance.randint(0, 300))]])


@pytest.mark.parametrize("seed", range(SCRIPTS))
def test_random_scripts_leave_the_same_bytes(pair: Pair, seed: int) -> None:
    chance = random.Random(SEED + seed)
    pair.run([random_request(chance) for _ in range(LENGTH)])
    state_of(pair)
