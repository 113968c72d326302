"""Every command of sorted sets, its options, boundaries and refusals, compared with a real Redis. Marked `real`.

Each case runs in RESP2 and RESP3, with sets that are listpacks, and with sets that are not.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest
from support.commands.sorted_set_requests import make_requests
from support.compare.differential import Pair, Request
from support.compare.tables import cases
from support.wire import Reply

pytestmark = pytest.mark.real

KEYS = (b"z", b"y", b"x", b"dst", b"lex")
LOOKS = [
    look for key in KEYS
    for look in ((b"OBJECT", b"ENCODING", key), (b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"), (b"DUMP", key))
]  # fmt: skip
"""Requests that return all of the sorted sets, those in files included."""
TEXT = (b"SET", b"text", b"hello")

CASES = """
== zadd adds and changes
ZADD z 1 a 2 b 3 c
ZADD z 1 a 5 b 4 d
ZADD z CH 1 a 6 b 7 e
ZADD z 1 a 1 a 2 a
ZRANGE z 0 -1 WITHSCORES
ZADD z 1
ZADD z
ZADD text 1 a

== zadd with conditions
ZADD z XX 1 a
ZADD z XX INCR 1 a
EXISTS z
ZADD z NX 1 a 2 b
ZADD z NX 9 a 3 c
ZADD z XX CH 9 a 9 q
ZADD z GT CH 1 a 10 b
ZADD z LT CH 1 a 100 b
ZADD z GT 5 new
ZADD z LT XX 5 newer
ZADD z nx gt 1 a
ZADD z gt lt 1 a
ZADD z NX XX 1 a
ZADD z NX XX GT 1
ZADD z FOO 1 a
ZADD z INCR 1 a 2 b
ZADD z INCR 1 a
ZADD z INCR NX 1 a
ZADD z INCR NX 1 brand-new
ZADD z INCR GT -1 a
ZADD z INCR GT 0 a
ZADD z INCR LT -1 a
ZADD z INCR CH 0 a
ZRANGE z 0 -1 WITHSCORES

== zadd with scores of all kinds
ZADD z inf a -inf b +inf c INFINITY d -Infinity e
ZADD z 0x10 a 0x1p4 b 1. c .5 d +5 e -0 f 1e5 g
ZADD z 1e20 h 1e-7 i 99999999999999990000000 j 12345.678901234 k 1700000000.1234567 l 0.000025 m 1.23456789e-5 n
ZADD z 4611686018427387904 o 9007199254740993 p 5e-324 q 1.7976931348623157e308 r 1725529404.0087306 s
ZRANGE z 0 -1 WITHSCORES
ZMSCORE z a b c d e f g h i j k l m n o p q r s none
ZADD z nan a
ZADD z 1 a nan b
ZADD z " 1" a
ZADD z "" a
ZADD z 1e a
ZADD z 1e309 a
ZADD z 1e-330 a
ZADD z 1_0 a
ZADD z "1\\x00" a
ZSCORE z a

== zincrby
ZINCRBY z 5 a
ZINCRBY z 0.1 b
ZINCRBY z 0.2 b
ZINCRBY z inf a
ZINCRBY z -inf a
ZINCRBY z x a
ZINCRBY text 1 a
ZINCRBY z 0 c
ZRANGE z 0 -1 WITHSCORES

== members of all kinds
ZADD z 0 "" 0 a 0 ab 0 01 0 1 0 -1 0 10 0 9 0 "\\x00" 0 "\\xff" 0 9223372036854775807 0 9223372036854775808
ZRANGE z 0 -1
ZRANGE z - + BYLEX
ZRANK z ""
ZRANK z 1
ZRANK z 10
ZREM z 1 1 01 none
ZRANGE z 0 -1

== zrem
ZREM z a
ZADD z 1 a 2 b 3 c
ZREM z a a b
ZREM z
ZREM text a
ZREM z c
EXISTS z

== zcard zscore zmscore
ZADD z 1 a 2.5 b
ZCARD z
ZCARD none
ZCARD text
ZSCORE z a
ZSCORE z none
ZSCORE none a
ZSCORE text a
ZMSCORE z a none b
ZMSCORE none a b
ZMSCORE text a

== zrank zrevrank
ZADD z 1 a 2 b 2 c 3 d
ZRANK z a
ZRANK z c
ZREVRANK z c
ZRANK z none
ZRANK none a
ZRANK z c WITHSCORE
ZREVRANK z a withscore
ZRANK z none WITHSCORE
ZRANK none a WITHSCORE
ZRANK z a FOO
ZRANK z a WITHSCORE WITHSCORE
ZREVRANK z a b c
ZRANK text a

== zrange by rank
ZADD z 1 a 2 b 3 c 4 d 5 e
ZRANGE z 0 -1
ZRANGE z 1 2 WITHSCORES
ZRANGE z -2 -1
ZRANGE z -100 100
ZRANGE z 3 1
ZRANGE z 5 6
ZRANGE z 0 1 REV
ZRANGE z -1 -1 REV WITHSCORES
ZRANGE z 0 -1 WITHSCORES WITHSCORES
ZRANGE z 0 -1 REV REV
ZRANGE z 0 -1 LIMIT 0 1
ZRANGE z 0 -1 LIMIT 1 -1
ZRANGE z a 1
ZRANGE z 0 1.0
ZRANGE z 0
ZRANGE none 0 -1
ZRANGE text 0 -1
ZRANGE text a 1
ZREVRANGE z 0 1 WITHSCORES
ZREVRANGE z 0 1 REV
ZREVRANGE z 0 1 BYSCORE

== zrange by score
ZADD z 1 a 2 b 2 c 3 d 4.5 e inf f -inf g
ZRANGE z 2 3 BYSCORE
ZRANGE z (2 3 BYSCORE WITHSCORES
ZRANGE z 2 (3 BYSCORE
ZRANGE z (2 (3 BYSCORE
ZRANGE z -inf +inf BYSCORE
ZRANGE z (-inf (inf BYSCORE
ZRANGE z 3 2 BYSCORE
ZRANGE z 3 2 BYSCORE REV
ZRANGE z inf (2 BYSCORE REV WITHSCORES LIMIT 1 2
ZRANGE z 0 10 BYSCORE LIMIT 1 2
ZRANGE z 0 10 BYSCORE LIMIT -1 2
ZRANGE z 0 10 BYSCORE LIMIT 1 -1
ZRANGE z 0 10 BYSCORE LIMIT 100 2
ZRANGE z 0 10 BYSCORE LIMIT 0 0
ZRANGE z 0 10 BYSCORE LIMIT 0 1 LIMIT 1 1
ZRANGE z 0 10 BYSCORE LIMIT 0
ZRANGE z 0 10 BYSCORE LIMIT a 1
ZRANGE z 0 10 BYSCORE BYSCORE
ZRANGE z 0 10 BYSCORE BYLEX
ZRANGE z x 10 BYSCORE
ZRANGE z 0x1 10 BYSCORE
ZRANGE z nan 10 BYSCORE
ZRANGE z 1e400 +inf BYSCORE
ZRANGE z ( 10 BYSCORE
ZRANGE z "" 10 BYSCORE
ZRANGE z "2\\x00junk" 10 BYSCORE
ZRANGEBYSCORE z 2 3 WITHSCORES LIMIT 0 1
ZRANGEBYSCORE z 2 3 LIMIT 0 1 WITHSCORES
ZRANGEBYSCORE z 2 3 REV
ZRANGEBYSCORE z 2 3 LIMIT 0 -1 REV
ZREVRANGEBYSCORE z 3 2
ZREVRANGEBYSCORE z +inf -inf WITHSCORES LIMIT 2 2
ZREVRANGEBYSCORE z 2 3
ZCOUNT z 2 3
ZCOUNT z (2 +inf
ZCOUNT z 3 2
ZCOUNT z a b
ZCOUNT none 1 2
ZCOUNT text 1 2
ZCOUNT text 1 x

== zrange by lex
ZADD z 0 a 0 b 0 c 0 d 0 e 0 bb
ZRANGE z [b [d BYLEX
ZRANGE z (b (d BYLEX
ZRANGE z - + BYLEX
ZRANGE z + - BYLEX
ZRANGE z + - BYLEX REV
ZRANGE z [d [b BYLEX REV LIMIT 1 1
ZRANGE z [b [b BYLEX
ZRANGE z (b [b BYLEX
ZRANGE z [ ( BYLEX
ZRANGE z [ + BYLEX
ZRANGE z - (c BYLEX LIMIT 1 100
ZRANGE z b d BYLEX
ZRANGE z "" d BYLEX
ZRANGE z [b [d BYLEX WITHSCORES
ZRANGE z -- + BYLEX
ZRANGEBYLEX z [b (d
ZRANGEBYLEX z [b (d LIMIT 1 1
ZRANGEBYLEX z [b (d WITHSCORES
ZREVRANGEBYLEX z (d [b
ZLEXCOUNT z [b (d
ZLEXCOUNT z - +
ZLEXCOUNT z + -
ZLEXCOUNT z b d
ZLEXCOUNT none - +
ZLEXCOUNT text - +

== zrangestore
ZADD z 1 a 2 b 3 c 4 d
ZRANGESTORE dst z 1 2
ZRANGE dst 0 -1 WITHSCORES
ZRANGESTORE dst z 0 1 REV
ZRANGE dst 0 -1 WITHSCORES
ZRANGESTORE dst z (1 3 BYSCORE LIMIT 1 5
ZRANGE dst 0 -1 WITHSCORES
ZRANGESTORE dst z 0 1 WITHSCORES
EXPIRE dst 100
ZRANGESTORE dst z - + BYLEX
TTL dst
ZRANGESTORE z z 0 1
ZRANGE z 0 -1
ZRANGESTORE dst none 0 -1
EXISTS dst
ZRANGESTORE text z 0 -1
TYPE text
SET text x
ZRANGESTORE dst text 0 -1

== zremrangeby
ZADD z 1 a 2 b 3 c 4 d 5 e 6 f 7 g
ZREMRANGEBYRANK z 1 2
ZREMRANGEBYRANK z 10 20
ZREMRANGEBYRANK z a 1
ZREMRANGEBYSCORE z (4 5
ZREMRANGEBYSCORE z 100 200
ZREMRANGEBYSCORE z x 1
ZRANGE z 0 -1
ZREMRANGEBYLEX z [a (f
ZRANGE z 0 -1
ZREMRANGEBYLEX z a b
ZREMRANGEBYRANK none 0 -1
ZREMRANGEBYRANK text 0 -1
ZREMRANGEBYSCORE text 0 x
ZREMRANGEBYRANK z 0 -1
EXISTS z

== zpopmin zpopmax
ZADD z 1 a 2 b 2 c 3 d 4 e
ZPOPMIN z
ZPOPMAX z
ZPOPMAX z 2
ZPOPMIN z 0
ZPOPMIN z -1
ZPOPMIN z x
ZPOPMIN z 1 2
ZPOPMIN none
ZPOPMIN none 2
ZPOPMIN text
ZPOPMIN text -1
ZPOPMIN z 9223372036854775807
ZPOPMIN z 9223372036854775808
EXISTS z

== zmpop
ZADD z 1 a 2 b 3 c
ZADD y 1 a
ZMPOP 2 none z MIN
ZMPOP 2 z y max COUNT 10
ZMPOP 2 z y MAX COUNT 10
ZMPOP 2 z y MAX
ZMPOP 0 z MIN
ZMPOP -1 z MIN
ZMPOP x z MIN
ZMPOP 2 z MIN
ZMPOP 1 z MID
ZMPOP 1 z
ZMPOP 1 z MIN COUNT
ZMPOP 1 z MIN COUNT 0
ZMPOP 1 z MIN COUNT x
ZMPOP 1 z MIN COUNT 1 COUNT 2
ZMPOP 1 z MIN COUNT 99999999999
ZMPOP 9223372036854775807 z MIN
ZMPOP 2 text z MIN
ZMPOP 2 z text MIN

== pops that would wait, in a transaction
ZADD z 1 a 2 b
BZPOPMIN none z 0
BZPOPMAX z 0
MULTI
BZPOPMIN none 0
BZMPOP 0 1 none MIN
EXEC
BZPOPMIN z x
BZPOPMIN z -1
BZPOPMIN z inf
BZPOPMIN z 1e400
BZPOPMIN z 9223372036854775
BZPOPMIN z " 1"
BZPOPMIN z ""
BZPOPMIN text 0
BZPOPMIN none text 0
BZMPOP 0 0 z MIN
BZMPOP x 1 z MIN
BZMPOP x 0 z MIN
BZMPOP 0 1 z FOO
BZMPOP 0.001 1 none MIN
BZPOPMAX none 0.001
BZPOPMIN none 0x0p0.1

== zunion zinter zdiff
ZADD z 1 a 2 b 3 c
ZADD y 10 b 20 c 30 d
ZADD x inf c
ZUNION 2 z y
ZUNION 2 z y WITHSCORES
ZUNION 2 z y WEIGHTS 2 0.5 WITHSCORES
ZUNION 2 z y AGGREGATE MIN WITHSCORES
ZUNION 2 z y AGGREGATE max WEIGHTS 1 -1 WITHSCORES
ZUNION 3 z y x WEIGHTS 1 1 0 WITHSCORES
ZUNION 2 z none WITHSCORES
ZUNION 1 none
ZINTER 2 z y WITHSCORES
ZINTER 3 z y x WITHSCORES
ZINTER 2 z none
ZINTER 2 z z WITHSCORES
ZDIFF 2 z y WITHSCORES
ZDIFF 2 z none
ZDIFF 2 none z
ZDIFF 1 z WITHSCORES
ZDIFF 2 z z
ZUNION 0 z
ZUNION x z
ZUNION 3 z y
ZUNION 1 z FOO
ZUNION 1 z WEIGHTS
ZUNION 1 z WEIGHTS 1 1
ZUNION 1 z WEIGHTS x
ZUNION 1 z WEIGHTS nan
ZUNION 1 z AGGREGATE
ZUNION 1 z AGGREGATE AVG
ZUNION 2 z text
ZUNION 2 z text WEIGHTS x x
ZDIFF 1 z WEIGHTS 1
ZDIFF 1 text
ZUNION 4611686018427387904 z
ZINTERCARD 2 z y
ZINTERCARD 2 z y LIMIT 1
ZINTERCARD 2 z y LIMIT 0
ZINTERCARD 2 z y LIMIT 5 LIMIT 1
ZINTERCARD 2 z y LIMIT -1
ZINTERCARD 2 z y LIMIT x
ZINTERCARD 2 z y LIMIT
ZINTERCARD 1 z WITHSCORES
ZINTERCARD 0 z
ZINTERCARD 2 z text

== zunionstore zinterstore zdiffstore
ZADD z 1 a 2 b 3 c
ZADD y 10 b 20 c 30 d
SET dst v EX 100
ZUNIONSTORE dst 2 z y WEIGHTS 1 2
TTL dst
ZRANGE dst 0 -1 WITHSCORES
ZINTERSTORE dst 2 z y AGGREGATE MAX
ZRANGE dst 0 -1 WITHSCORES
ZDIFFSTORE dst 2 z y
ZRANGE dst 0 -1 WITHSCORES
ZINTERSTORE dst 2 z none
EXISTS dst
ZUNIONSTORE z 2 z y
ZRANGE z 0 -1 WITHSCORES
ZUNIONSTORE dst 1 z WITHSCORES
ZUNIONSTORE dst 0 z
ZUNIONSTORE dst 1 text
ZDIFFSTORE dst 1 z WITHSCORES

== zrandmember
ZADD z 1 a
ZRANDMEMBER z
ZRANDMEMBER none
ZRANDMEMBER none 3
ZRANDMEMBER z 3
ZRANDMEMBER z 3 WITHSCORES
ZRANDMEMBER z -3
ZRANDMEMBER z -2 WITHSCORES
ZRANDMEMBER z 0
ZRANDMEMBER z x
ZRANDMEMBER z 3 FOO
ZRANDMEMBER z 3 WITHSCORES FOO
ZRANDMEMBER z -9223372036854775808
ZRANDMEMBER z -9223372036854775808 WITHSCORES
ZRANDMEMBER none -9223372036854775807
ZRANDMEMBER none -9223372036854775807 WITHSCORES
ZRANDMEMBER z 4611686018427387904 WITHSCORES
ZRANDMEMBER z 9223372036854775807
ZRANDMEMBER text
ZRANDMEMBER text x

== zscan
ZADD z 1 a
ZADD y 0.1 a
ZADD x 1e-7 a
ZSCAN z 0
ZSCAN y 0
ZSCAN x 0
ZSCAN none 0
ZSCAN z x
ZSCAN none x
ZSCAN z 0 COUNT 0
ZSCAN z 0 COUNT x
ZSCAN z 0 TYPE zset
ZSCAN z 0 NOVALUES
ZSCAN none 0 COUNT 0
ZSCAN z 0 MATCH b* COUNT 10
ZSCAN z 0 MATCH a*
ZSCAN text 0

== other commands
ZADD z 1 a 2 b
TYPE z
SCAN 0 TYPE zset
OBJECT ENCODING z
COPY z y
ZRANGE y 0 -1 WITHSCORES
RENAME y x
ZADD x 3 c
ZCARD z
GET z
SET z v GET
MGET z
SETNX z v
APPEND z v
XADD z * f v
SET x v
EVAL "return redis.call('ZRANGE', 'z', 0, -1, 'WITHSCORES')" 0
EVAL "return redis.call('ZSCORE', 'z', 'a')" 0
EVAL "redis.setresp(3) return redis.call('ZRANGE', 'z', 0, -1, 'WITHSCORES')" 0
EVAL "redis.setresp(3) return redis.call('ZSCORE', 'z', 'a')" 0
EVAL "return redis.call('BZPOPMIN', 'none', 0)" 0
"""


DEFAULTS = {"zset-max-listpack-entries": "128", "zset-max-listpack-value": "64", "rdbcompression": "yes"}


def configure(pair: Pair, **settings: int | str) -> None:
    for wire in pair.wires:
        for name, value in settings.items():
            assert wire.call("CONFIG", "SET", name.replace("_", "-"), str(value)) == Reply("+", b"OK")


@pytest.fixture
def sets(pair: Pair) -> Iterator[Pair]:
    """Both servers; payloads are not compressed, for which servers choose different matches."""
    configure(pair, rdbcompression="no")
    yield pair
    configure(pair, **DEFAULTS)


@pytest.mark.parametrize("most", [128, 0], ids=["listpack", "skiplist"])
@pytest.mark.parametrize("script", cases(CASES))
def test_a_case_is_answered_alike(sets: Pair, script: list[Request], most: int) -> None:
    configure(sets, zset_max_listpack_entries=most)
    sets.compare_script([TEXT, *script, *LOOKS], keys=(*KEYS, b"text"), groups=())


@pytest.mark.parametrize("seed", range(6))
def test_random_requests_are_answered_alike(sets: Pair, seed: int) -> None:
    chance = random.Random(seed)
    configure(
        sets, zset_max_listpack_entries=chance.choice([0, 3, 8, 128]), zset_max_listpack_value=chance.choice([4, 64])
    )
    sets.compare_script([TEXT, *make_requests(chance, 700), *LOOKS], keys=(*KEYS, b"text"), groups=())


def grow(members: int, size: int = 2) -> list[Request]:
    return [(b"ZADD", b"z", b"%d" % n, b"%0*d" % (size, n)) for n in range(members)]


def pairs(members: int, distinct: int) -> Request:
    words = [word for n in range(members) for word in (b"%d" % n, b"m%d" % (n % distinct))]
    return (b"ZADD", b"z", *words)


ENCODINGS: dict[str, Callable[[], list[Request]]] = {
    "128 members": lambda: grow(128),
    "129 members": lambda: grow(129),
    "a member of 64 bytes": lambda: grow(3, 64),
    "a member of 65 bytes": lambda: grow(3, 65),
    "129 pairs of one member": lambda: [pairs(129, 1)],
    "129 pairs of one member of a set": lambda: [pairs(1, 1), pairs(129, 1)],
    "128 pairs of one member": lambda: [pairs(128, 1)],
    "a long member that is not added": lambda: [(b"ZADD", b"z", b"1", b"a"), (b"ZADD", b"z", b"XX", b"1", b"x" * 65)],
    "cut to one member": lambda: [*grow(129), (b"ZREMRANGEBYRANK", b"z", b"1", b"-1")],
    "a limit that is lowered": lambda: [*grow(5), (b"CONFIG", b"SET", b"zset-max-listpack-entries", b"3")],
    "and the next write": lambda: [
        *grow(5), (b"CONFIG", b"SET", b"zset-max-ziplist-entries", b"3"), (b"ZADD", b"z", b"1", b"new"),
    ],
    "a score alone is changed": lambda: [
        *grow(5), (b"CONFIG", b"SET", b"zset-max-ziplist-entries", b"3"), (b"ZADD", b"z", b"100", b"01"),
    ],
    "stored again": lambda: [*grow(129), (b"ZRANGESTORE", b"z", b"z", b"0", b"9")],
    "a large union": lambda: [*grow(129), (b"ZUNIONSTORE", b"z", b"1", b"z")],
    "a union of long members": lambda: [*grow(3, 65), (b"ZUNIONSTORE", b"z", b"1", b"z")],
    "restored": lambda: [*grow(129), (b"ZREMRANGEBYRANK", b"z", b"1", b"-1"), (b"DEBUG", b"RELOAD")],
    "copied": lambda: [*grow(129), (b"ZREMRANGEBYRANK", b"z", b"1", b"-1"), (b"COPY", b"z", b"y")],
}  # fmt: skip


@pytest.mark.parametrize("name", ENCODINGS)
def test_the_encoding_is_that_of_redis(sets: Pair, name: str) -> None:
    sets.compare_script([*ENCODINGS[name](), *LOOKS], keys=KEYS, groups=())


def test_the_digests_of_scores_are_those_of_redis(sets: Pair) -> None:
    """The text of a score has an exponent where replies write an integer in full."""
    for score in ("0", "-0", "-5", "3.3", "1e15", "4.5e15", "1e17", "1e18", "1e19", "1e21", "1.5e300", "inf", "1e-7"):
        sets.run_text(f"ZADD z {score} member\nDEBUG DIGEST-VALUE z")
