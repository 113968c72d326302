"""Every list command, option, boundary and refusal, written down by hand and compared with a real Redis. Marked `real`."""

from __future__ import annotations

import random

import pytest
from support.compare.differential import Pair, Request
from support.compare.tables import cases

pytestmark = pytest.mark.real

KEYS = (b"l", b"m", b"n", b"k", b"s", b"x")
LONG = "x" * 5000
HUGE = "y" * 9000
MAX = 2**63 - 1

CASES = f"""
== pushing
LPUSH l a b c
RPUSH l 1 -1 0 01 +1 " 1" -0 {MAX} {MAX + 1} ""
LRANGE l 0 -1
LPUSHX l d
RPUSHX l e e
LPUSHX none a
RPUSHX none a
LLEN l
LLEN none
LRANGE l 0 -1
LPUSH
LPUSH l
RPUSHX l

== popping
RPUSH l a b c d e f 7
LPOP l
RPOP l
LPOP l 0
LPOP l 2
RPOP l 2
LPOP l -1
LPOP l x
LPOP l {MAX + 1}
LPOP l 1 2
RPOP l 1 2
RPOP l {MAX}
EXISTS l
LPOP l
RPOP l
LPOP l 0
RPOP l 3

== other types
SET s v
XADD x 1-1 f v
LPUSH s a
RPUSHX s a
LPOP s
LPOP s -1
LLEN s
LRANGE s 0 -1
LRANGE s a -1
LINDEX s 0
LINDEX s x
LSET s 0 a
LSET s x a
LINSERT s BEFORE a b
LINSERT s SIDE a b
LREM s 0 a
LREM s x a
LTRIM s 0 1
LTRIM s x 1
LPOS s a
LPOS s a RANK 0
RPUSH l a
LMOVE s l LEFT LEFT
LMOVE l s LEFT LEFT
LMOVE l s LEFT SIDE
LMOVE none s LEFT LEFT
RPOPLPUSH l x
LMPOP 2 s l LEFT
LMPOP 2 none s LEFT
BLPOP s l 0
BLPOP none l s 0
GET l
APPEND l a
INCR l
XADD l * f v
TYPE l
SET l v
TYPE l

== ranges
RPUSH l a b c d e
LRANGE l 0 0
LRANGE l -3 2
LRANGE l -100 100
LRANGE l 3 1
LRANGE l 5 9
LRANGE l -1 -2
LRANGE l 0 {MAX}
LRANGE l -{MAX} -1
LRANGE none 0 -1
LRANGE l 0 x
LRANGE l +0 1
LRANGE l 0
LINDEX l 0
LINDEX l -1
LINDEX l 5
LINDEX l -6
LINDEX none 0
LINDEX none x
LINDEX l x
LINDEX l {MAX}
LINDEX l -{MAX}

== replacing
RPUSH l a b c
LSET l 0 x
LSET l -1 12345
LSET l 1 {LONG}
LSET l 3 x
LSET l -4 x
LSET l x x
LSET none 0 x
LRANGE l 0 -1
OBJECT ENCODING l
LSET l 1 b
OBJECT ENCODING l

== inserting
RPUSH l a b a
LINSERT l BEFORE a x
LINSERT l after a 7
LINSERT l BEFORE 7 8
LINSERT l BEFORE none x
LINSERT none BEFORE a x
LINSERT none SIDE a x
LINSERT l AFTER a
LRANGE l 0 -1

== removing
RPUSH l a b a 1 b a 1 c a
LREM l 1 a
LREM l -1 a
LREM l 0 1
LREM l 0 none
LREM l -{MAX} b
LREM l {-MAX - 1} b
LREM l 1.5 a
LREM none 0 a
LRANGE l 0 -1
LREM l 0 a
LREM l 5 c
EXISTS l

== trimming
RPUSH l a b c d e
LTRIM l 1 -2
LTRIM l 0 -1
LTRIM l -100 100
LRANGE l 0 -1
LTRIM l 1 1
LTRIM l 5 6
EXISTS l
LTRIM none 0 1
LTRIM none x 1
RPUSH l a b c
LTRIM l 2 0
EXISTS l

== positions
RPUSH l a b c 1 2 3 c c
LPOS l c
LPOS l 1
LPOS l none
LPOS none a
LPOS none a COUNT 1
LPOS l c RANK 2
LPOS l c RANK -1
LPOS l c RANK -3
LPOS l c RANK 4
LPOS l c COUNT 0
LPOS l c COUNT 2
LPOS l c RANK -1 COUNT 0
LPOS l c RANK 2 COUNT 1
LPOS l c MAXLEN 2
LPOS l c MAXLEN 3 COUNT 0
LPOS l c MAXLEN 0
LPOS l c RANK -1 MAXLEN 1
LPOS l c RANK 0
LPOS l c RANK x
LPOS l c RANK {-MAX - 1}
LPOS l c RANK -{MAX}
LPOS l c COUNT -1
LPOS l c COUNT x
LPOS l c MAXLEN -1
LPOS l c MAXLEN x
LPOS l c COUNT 1 COUNT 2
LPOS l c COUNT
LPOS l c SIDE 1
LPOS none c RANK 0

== moving
RPUSH l a b c
LMOVE l m LEFT RIGHT
LMOVE l m right left
LMOVE l l LEFT RIGHT
LMOVE l l LEFT LEFT
LMOVE l m UP LEFT
LMOVE l m LEFT UP
LMOVE none m UP LEFT
LMOVE none m LEFT LEFT
LMOVE l m LEFT LEFT
EXISTS l
LRANGE m 0 -1
RPOPLPUSH m n
RPOPLPUSH m m
RPOPLPUSH none m
RPOPLPUSH n n
LRANGE m 0 -1
LRANGE n 0 -1

== several keys
RPUSH l a b c
RPUSH m 1 2 3 4
LMPOP 3 none l m LEFT
LMPOP 2 none m RIGHT COUNT 2
LMPOP 2 m l left count 100
LMPOP 2 m l RIGHT COUNT 1
LMPOP 1 none LEFT
LMPOP 0 l LEFT
LMPOP -1 l LEFT
LMPOP x l LEFT
LMPOP 2147483648 l LEFT
LMPOP 2 l LEFT
LMPOP 1 l
LMPOP 1 l UP
LMPOP 1 l LEFT COUNT
LMPOP 1 l LEFT COUNT 0
LMPOP 1 l LEFT COUNT x
LMPOP 1 l LEFT COUNT 1 COUNT 1
LMPOP 1 l LEFT SIDE 1

== commands that wait, with something there
RPUSH l a b c d e f g h
BLPOP none l 0
BRPOP l none 0
BLMOVE l m LEFT RIGHT 0
BRPOPLPUSH l m 0
BLMPOP 0 2 none l RIGHT COUNT 2
BLMPOP 0 1 l LEFT
BLPOP l 0x10
BLPOP l 1e-3
EXISTS l

== timeouts
BLPOP l 0.001
BRPOP l m l 0.002
BLMOVE l m LEFT LEFT 0.001
BRPOPLPUSH l m 0.001
BLMPOP 0.001 1 l LEFT
BLPOP l -1
BLPOP l x
BLPOP l ""
BLPOP l " 1"
BLPOP l "1 "
BLPOP l nan
BLPOP l inf
BLPOP l -inf
BLPOP l 1e400
BLPOP l 9223372036854775
BLPOP l 9223372036854776000
BLMOVE l m UP LEFT x
BLMOVE l m LEFT LEFT x
BRPOPLPUSH l m -1
BLMPOP x 0 l LEFT
BLMPOP x 1 l UP
BLMPOP x 1 l LEFT
BLMPOP -1 1 l LEFT
BLMPOP 0 1 l LEFT COUNT 0

== inside transactions and scripts
MULTI
BLPOP l 0
BRPOP l 0
BLMOVE l m LEFT LEFT 0
BRPOPLPUSH l m 0
BLMPOP 0 1 l LEFT
RPUSH l a b c
BLPOP l 0
BLMOVE l m LEFT LEFT 0
EXEC
EVAL "return {{redis.call('BLPOP', 'none', 0), redis.call('BLMOVE', 'none', 'm', 'LEFT', 'LEFT', 0)}}" 0
EVAL "return redis.call('LRANGE', 'm', 0, -1)" 0
EVAL "return redis.call('LPOP', 'none')" 0
EVAL "return redis.call('LPOP', 'none', 2)" 0

== encodings by size
RPUSH l {LONG} a
OBJECT ENCODING l
RPUSH l {LONG}
OBJECT ENCODING l
LPOP l
OBJECT ENCODING l
LPUSH m {HUGE}
OBJECT ENCODING m
LPUSH m a
RPOP m
OBJECT ENCODING m
LPUSH m {HUGE}
LSET m 0 b
LRANGE m 0 -1
LINSERT m AFTER b {HUGE}
LINSERT m BEFORE {HUGE} c
LPOS m {HUGE}
LREM m 0 {HUGE}
LRANGE m 0 -1

== encodings by number
CONFIG SET list-max-ziplist-size 4
RPUSH l a b c d
OBJECT ENCODING l
RPUSH l e
OBJECT ENCODING l
LPOP l 2
OBJECT ENCODING l
LPOP l
OBJECT ENCODING l
CONFIG SET list-max-listpack-size 0
RPUSH m a
OBJECT ENCODING m
RPUSH m b
OBJECT ENCODING m
CONFIG SET list-max-listpack-size -2
CONFIG GET list-max-*
CONFIG SET list-compress-depth 1
CONFIG GET list-compress-depth
CONFIG SET list-compress-depth 0

== whole values
RPUSH l a 1 {LONG} {LONG}
RPUSH m a 1 xyz
COPY l k
LPUSH l first
DEBUG DIGEST-VALUE l k m
DUMP m
SCAN 0 TYPE list COUNT 100
OBJECT FREQ l
RENAME k n
LRANGE n 0 1
INFO keysizes
LPOP n 2
LTRIM l 1 0
INFO keysizes
"""


@pytest.mark.parametrize("script", cases(CASES))
def test_list_commands_answer_alike(pair: Pair, script: list[Request]) -> None:
    pair.compare_script(script, keys=KEYS, groups=())


WORDS = ["a", "b", "7", "-1", "x" * 70, "y" * 700, LONG, HUGE]


def random_requests(chance: random.Random, count: int) -> list[Request]:
    """Commands that change three lists, in ways that cut their nodes anywhere."""

    def key() -> str:
        return chance.choice("lmn")

    def word() -> str:
        return chance.choices(WORDS, [5, 5, 5, 5, 5, 5, 1, 1])[0]

    def index() -> str:
        return str(chance.choice([0, 1, -1, -2, chance.randint(-60, 60)]))

    makers = [
        lambda: [chance.choice(["LPUSH", "RPUSH"]), key(), *(word() for _ in range(chance.choice([1, 3, 20])))],
        lambda: [chance.choice(["LPUSH", "RPUSH"]), key(), word()],
        lambda: [chance.choice(["LPOP", "RPOP"]), key()],
        lambda: [chance.choice(["LPOP", "RPOP"]), key(), str(chance.choice([0, 2, 9]))],
        lambda: ["LSET", key(), index(), word()],
        lambda: ["LINSERT", key(), chance.choice(["BEFORE", "AFTER"]), word(), word()],
        lambda: ["LREM", key(), str(chance.choice([0, 1, -1, 3, -3])), word()],
        lambda: ["LTRIM", key(), chance.choice(["0", "1", "2"]), chance.choice(["-1", "-2", "40"])],
        lambda: ["LMOVE", key(), key(), chance.choice(["LEFT", "RIGHT"]), chance.choice(["LEFT", "RIGHT"])],
        lambda: ["LRANGE", key(), index(), index()],
        lambda: ["LPOS", key(), word(), "COUNT", "0", "RANK", chance.choice(["1", "-1", "2"])],
        lambda: ["LINDEX", key(), index()],
    ]
    return [tuple(each.encode() for each in chance.choice(makers)()) for _ in range(count)]


@pytest.mark.parametrize("size", ["-2", "3", "-1"])
@pytest.mark.parametrize("seed", range(3))
def test_random_changes_leave_the_same_lists(pair: Pair, size: str, seed: int) -> None:
    setting = (b"CONFIG", b"SET", b"list-max-listpack-size")
    requests = random_requests(random.Random(f"{seed} {size}"), 300)
    looks = [(b"LRANGE", key, b"0", b"-1") for key in (b"l", b"m", b"n")]
    pair.compare_script([(*setting, size.encode()), *requests, *looks, (*setting, b"-2")], keys=KEYS, groups=())
