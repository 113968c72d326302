"""HyperLogLogs: the same replies and, byte for byte, the same strings as a real Redis. Marked `real`."""

from __future__ import annotations

import random

import pytest
from support.compare.differential import Pair, Request
from support.compare.tables import cases

pytestmark = pytest.mark.real

SEED = 20_260_302

CASES = """
== adding and counting
PFADD a
PFADD a
GET a
PFCOUNT a
GET a
PFADD a x
PFADD a x
GET a
PFADD a y z x
PFCOUNT a
PFCOUNT a
GET a
PFCOUNT none
PFCOUNT a none
PFADD b x u v ""
PFCOUNT a b
PFCOUNT b
PFCOUNT a b a b
OBJECT ENCODING a
STRLEN a
== merging
PFADD a x y
PFADD b y z
PFCOUNT a
PFMERGE d a b
GET d
PFCOUNT d
PFMERGE d
GET d
PFMERGE e
GET e
PFMERGE e none none
PFCOUNT e
PFMERGE a b
PFCOUNT a
PFMERGE a a a
GET a
== copies do not change with the original
PFADD a x y
CONFIG SET hll-sparse-max-bytes 0
PFADD a z
COPY a b
PFADD a u v w
PFCOUNT b
PFCOUNT a
PFADD b u
GET a
GET b
CONFIG SET hll-sparse-max-bytes 3000
== dense ones
CONFIG SET hll-sparse-max-bytes 0
PFADD a
STRLEN a
PFADD a x
STRLEN a
PFADD a x y
PFCOUNT a
GET a
CONFIG SET hll-sparse-max-bytes 3000
PFADD b x z
STRLEN b
PFMERGE d b a
GET d
PFMERGE b d
STRLEN b
PFCOUNT b
PFCOUNT b a d
== the limit of sparse ones
CONFIG SET hll-sparse-max-bytes 20
PFADD a x
STRLEN a
PFADD a y
STRLEN a
PFADD a z
STRLEN a
PFCOUNT a
CONFIG SET hll-sparse-max-bytes 3000
== strings that are none
SET a x
PFADD a x
PFCOUNT a
PFMERGE a
PFMERGE d a
PFCOUNT none a
EXISTS d
SET a ""
PFADD a x
SET a 12
PFADD a x
SET a HYLL
PFADD a x
SET a "HYLL\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00"
PFADD a x
SET a "HYLL\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00"
PFCOUNT a
PFADD a
PFADD a x
PFCOUNT none a
PFMERGE d a
SET a "HYLL\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x80"
PFCOUNT a
PFADD a x
RPUSH l x
PFADD l x
PFCOUNT l
PFMERGE l
PFMERGE a l
PFCOUNT none l
PFADD
PFCOUNT
PFMERGE
== damaged ones
PFADD a x
APPEND a hello
PFCOUNT a
PFMERGE d a
PFCOUNT a none
SETRANGE a 0 0123
PFCOUNT a
PFADD a x
PFADD b x
SETRANGE b 4 "\\x02"
PFADD b x
PFCOUNT b
PFADD c x
SETRANGE c 4 "\\x00"
PFADD c x
PFADD e x
SETRANGE e 5 abc
PFADD e y
PFCOUNT e
GET e
CONFIG SET hll-sparse-max-bytes 0
PFADD f x
APPEND f y
PFCOUNT f
CONFIG SET hll-sparse-max-bytes 3000
== runs that are too long or too short
SET a "HYLL\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x80\\x7f\\xff\\x00"
PFCOUNT a
SET a "HYLL\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x80\\x7f\\xfe"
PFCOUNT a
PFMERGE d a
SET a "HYLL\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x80\\x7f\\xfe\\x80"
PFCOUNT a
SET a "HYLL\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x80\\x7f\\xfe\\x81"
PFCOUNT a
SET a "HYLL\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x80\\x7f\\xff\\x7f"
PFCOUNT a
SET a "HYLL\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x80\\x40"
PFADD a x
PFCOUNT a
EXISTS d
== watch
PFADD a x
WATCH a
PFADD a x
PFCOUNT a none
MULTI
PFCOUNT a
EXEC
PFADD a y
WATCH a
PFCOUNT a
MULTI
PFCOUNT a
EXEC
WATCH a
PFCOUNT a
MULTI
PFCOUNT a
EXEC
WATCH a
PFMERGE a
MULTI
PFCOUNT a
EXEC
== scripts
EVAL "return redis.call('pfadd', 'a', 'x', 'y')" 0
EVAL "return redis.call('pfcount', 'a')" 0
EVAL "return redis.call('pfmerge', 'b', 'a')" 0
EVAL_RO "return redis.call('pfcount', 'a')" 0
EVAL_RO "return redis.call('pfadd', 'a')" 0
"""


@pytest.fixture(autouse=True)
def uncompressed(pair: Pair) -> None:
    pair.run([("CONFIG", "SET", "rdbcompression", "no", "hll-sparse-max-bytes", "3000")])


def state_of(pair: Pair) -> None:
    """Compare what the keys hold, byte for byte."""
    for key in ("a", "b", "c", "d", "e"):
        pair.run([("DUMP", key), ("OBJECT", "ENCODING", key)])


@pytest.mark.parametrize("script", cases(CASES))
def test_replies_are_those_of_redis(pair: Pair, script: list[Request]) -> None:
    pair.run(script)
    state_of(pair)


def elements(chance: random.Random, most: int) -> list[bytes]:
    """Elements of every length, of which some come again."""
    return [
        chance.choice([b"%d" % chance.randrange(most), chance.randbytes(chance.randrange(20))]) for _ in range(most)
    ]


@pytest.mark.parametrize("max_bytes", ["0", "17", "100", "3000", "13000", "100000"])
def test_random_additions_leave_the_same_bytes_at_every_step(pair: Pair, max_bytes: str) -> None:
    chance = random.Random(f"{SEED} {max_bytes}")
    script: list[tuple[str | bytes, ...]] = [("CONFIG", "SET", "hll-sparse-max-bytes", max_bytes)]
    for size in (1, 1, 2, 3, 5, 10, 30, 100, 300, 300, 300, 300, 1000, 3000, 10_000):
        script += [("PFADD", "a", *elements(chance, size)), ("GET", "a"), ("PFCOUNT", "a"), ("GET", "a")]
    pair.run(script)
    state_of(pair)


@pytest.mark.parametrize("seed", range(20))
def test_random_scripts_leave_the_same_bytes(pair: Pair, seed: int) -> None:
    chance = random.Random(SEED + seed)
    keys = ["a", "b", "c", "d", "none"]
    script: list[tuple[str | bytes, ...]] = []
    for _ in range(60):
        kind = chance.randrange(10)
        key = chance.choice(keys[:4])
        if kind < 5:
            script.append(("PFADD", key, *elements(chance, chance.choice([0, 1, 1, 2, 5, 50, 500]))))
        elif kind < 7:
            script.append(("PFCOUNT", *chance.choices(keys, k=chance.randint(1, 3))))
        elif kind == 7:
            script.append(("PFMERGE", key, *chance.choices(keys, k=chance.randint(0, 3))))
        elif kind == 8:
            script.append(("CONFIG", "SET", "hll-sparse-max-bytes", str(chance.choice([0, 100, 1000, 3000, 20000]))))
        else:
            script.append(
                chance.choice([("DEL", key), ("COPY", key, chance.choice(keys[:4]), "REPLACE"), ("GET", key)])
            )
    pair.run(script)
    state_of(pair)


MULTIPLIER, HASH_SEED, WORD = 0xC6A4A7935BD1E995, 0xADC83B19, (1 << 64) - 1


def element_of(register: int, count: int) -> bytes:
    """An element of 8 bytes that raises a register to a count: MurmurHash64A, run backwards."""
    value = 1 << (count + 13) | register if count <= 50 else register
    inverse = pow(MULTIPLIER, -1, 1 << 64)
    value ^= value >> 47
    value = value * inverse & WORD
    value ^= value >> 47
    value = value * inverse & WORD
    value ^= HASH_SEED ^ 8 * MULTIPLIER & WORD
    value = value * inverse & WORD
    value ^= value >> 47
    return (value * inverse & WORD).to_bytes(8, "little")


@pytest.mark.parametrize("count", [1, 2, 31, 32, 33, 50, 51])
def test_a_register_of_any_count_has_the_same_bytes(pair: Pair, count: int) -> None:
    """A sparse string holds counts up to 32; random elements hardly reach 20."""
    registers = (0, 1, 2, 100, 16_382, 16_383)
    pair.run([line for each in registers for line in (("PFADD", "a", element_of(each, count)), ("GET", "a"))])
    pair.run([("PFMERGE", "b", "a"), ("GET", "b"), ("PFCOUNT", "a", "b"), ("STRLEN", "a")])
    assert (len(pair.run([("GET", "a")])[0].value) > 12_000) == (count > 32)
