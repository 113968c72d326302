"""Which commands change a hash, list, set or sorted set: what stops a watched transaction, and what a tracking client
is told. Marked `real`."""

from __future__ import annotations

import pytest
from support.compare.dialogues import compare_dialogue
from support.compare.differential import Pair, parse_script
from support.servers import Server

pytestmark = pytest.mark.real

PRELUDE = """
    HSET h a 1 b 2
    HSET timed a 1 b 2
    HPEXPIRE timed 1000000 FIELDS 1 a
    RPUSH l a b c a
    SADD set a b c
    SADD numbers 1 2 3
    ZADD z 1 a 2 b 3 c
    SETBIT bits 7 1
    PFADD hll a b c
"""
KEYS = ("h", "timed", "l", "set", "numbers", "z", "bits", "hll", "none")

CHANGES = """
    HSET h a 1
    HSETNX h c 1
    HMSET h a 1
    HINCRBY h a 0
    HINCRBYFLOAT h a 0
    HDEL h a
    HDEL h a b
    HGETDEL h FIELDS 1 a
    HGETEX h EX 100 FIELDS 1 a
    HGETEX timed PERSIST FIELDS 1 a
    HSETEX h FIELDS 1 a 1
    HEXPIRE h 100 FIELDS 1 a
    HPEXPIRE h 0 FIELDS 1 a
    HPERSIST timed FIELDS 1 a
    LPUSH l a
    RPUSHX l a
    LPOP l
    RPOP l 4
    LSET l 0 a
    LINSERT l BEFORE a x
    LREM l 0 a
    LTRIM l 0 0
    LTRIM l 9 9
    LTRIM l 0 -1
    LMOVE l l LEFT RIGHT
    LMOVE l none LEFT RIGHT
    LMPOP 2 none l LEFT
    BLPOP none l 0
    BLMOVE l none LEFT LEFT 0
    RPOPLPUSH l none
    SADD set d
    SADD numbers x
    SREM set a
    SREM numbers 1 2 3
    SPOP set
    SPOP set 9
    SMOVE set numbers a
    SMOVE set none a
    SINTERSTORE none set set
    SUNIONSTORE set numbers none
    SDIFFSTORE set set set
    ZADD z 1 d
    ZADD z 5 a
    ZADD z XX CH 5 a
    ZINCRBY z 1 a
    ZREM z a
    ZREMRANGEBYRANK z 0 -1
    ZREMRANGEBYSCORE z 1 1
    ZREMRANGEBYLEX z - +
    ZPOPMIN z
    ZPOPMAX z 9
    ZMPOP 1 z MIN
    BZPOPMIN none z 0
    ZRANGESTORE none z 0 -1
    ZRANGESTORE z none 0 -1
    ZUNIONSTORE z 1 set
    ZINTERSTORE z 2 set none
    ZDIFFSTORE none 1 z
    SETBIT bits 7 0
    BITFIELD bits SET u8 0 2
    BITOP NOT none bits
    BITOP AND bits bits none
    PFADD hll new
    PFCOUNT hll
    PFADD none
    PFMERGE hll hll
    PFMERGE none hll
    RENAME h none
    COPY z none
    DEL set
    UNLINK l none
    EXPIRE z 100
"""

NO_CHANGES = """
    HSETNX h a 5
    HDEL h x
    HDEL none x
    HGETDEL h FIELDS 1 x
    HGETEX h FIELDS 1 a
    HGETEX h EX 100 FIELDS 1 x
    HGETEX h PERSIST FIELDS 1 a
    HSETEX h FNX FIELDS 1 a 5
    HEXPIRE h 100 FIELDS 1 x
    HEXPIRE timed 100 NX FIELDS 1 a
    HPERSIST h FIELDS 1 a
    HINCRBY h a x
    HGETALL h
    HRANDFIELD h 1
    HSCAN h 0
    LPUSHX none a
    LPOP none
    LPOP l 0
    LSET none 0 a
    LSET l 9 a
    LINSERT l AFTER x y
    LREM l 0 x
    LTRIM none 0 0
    LMOVE none l LEFT LEFT
    LRANGE l 0 -1
    LPOS l a
    SADD set a
    SREM set x
    SPOP none
    SPOP set 0
    SMOVE set numbers x
    SMOVE set set a
    SINTERSTORE none set none
    SMEMBERS set
    SSCAN set 0
    SRANDMEMBER set 5
    ZADD z 1 a
    ZADD z NX 5 a
    ZADD z XX 5 x
    ZADD z GT 0 a
    ZINCRBY z 0 a
    ZREM z x
    ZREMRANGEBYSCORE z 8 9
    ZPOPMIN none
    ZPOPMIN z 0
    ZMPOP 1 none MIN
    ZRANGESTORE none z 8 9
    ZUNIONSTORE none 1 none
    ZRANGE z 0 -1
    ZRANK z a
    ZSCAN z 0
    ZRANDMEMBER z 2
    GETBIT bits 7
    BITCOUNT bits
    BITFIELD bits GET u8 0
    SETBIT bits 7 1
    BITFIELD bits SET u8 0 1
    PFADD hll a
    SPOP h
    ZADD l 1 a
"""

READS = """
    HGET h a
    HMGET h a x
    HGETALL h
    HLEN h
    HTTL timed FIELDS 1 a
    HSCAN h 0
    HRANDFIELD h
    HGETEX h FIELDS 1 a
    LRANGE l 0 -1
    LINDEX l 0
    LLEN l
    LPOS l a
    SMEMBERS set
    SISMEMBER set x
    SMISMEMBER set a x
    SCARD set
    SINTER set numbers
    SINTERCARD 2 set numbers
    SUNION numbers none
    SDIFF numbers none
    SSCAN set 0
    SRANDMEMBER set
    ZRANGE z 0 -1
    ZSCORE z a
    ZMSCORE z a x
    ZRANK z a
    ZCARD z
    ZCOUNT z 0 9
    ZLEXCOUNT z - +
    ZUNION 2 z set
    ZINTERCARD 2 z set
    ZSCAN z 0
    ZRANDMEMBER z
    GETBIT bits 0
    BITCOUNT bits
    BITPOS bits 1
    BITFIELD_RO bits GET u8 0
    PFCOUNT hll none
    LPUSHX none a
    OBJECT ENCODING z
    MEMORY USAGE none
    TYPE h
"""


def lines_of(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def is_stopped(pair: Pair, line: str) -> bool:
    """Whether the command, the same on both servers, stops a transaction of one that watches all keys."""
    script = f"{PRELUDE}\nWATCH {' '.join(KEYS)}\n{line}\nMULTI\nECHO ran\nEXEC\nUNWATCH"
    return pair.run(parse_script(script))[-2].value is None


def tracking(prelude: str, *lines: str) -> str:
    return "\n".join(["b2: " + " ; ".join(lines_of(prelude)), "a: CLIENT TRACKING on", *lines])


ANY = frozenset({"SPOP set", "HRANDFIELD h", "HRANDFIELD h 1", "SRANDMEMBER set", "SRANDMEMBER set 5", "ZRANDMEMBER z",
                 "ZRANDMEMBER z 2", "SPOP set 9"})  # fmt: skip
"""What returns elements at random."""


@pytest.mark.parametrize("line", [each for each in lines_of(CHANGES) if each not in ANY])
def test_a_change_stops_the_transaction_of_those_who_watch(pair: Pair, line: str) -> None:
    assert is_stopped(pair, line)


@pytest.mark.parametrize("line", [each for each in lines_of(NO_CHANGES) if each not in ANY])
def test_what_changes_nothing_stops_no_transaction(pair: Pair, line: str) -> None:
    assert not is_stopped(pair, line)


@pytest.mark.parametrize("line", [each for each in lines_of(CHANGES + NO_CHANGES) if each not in ANY])
def test_those_who_track_are_told_of_the_same_keys(streamd_server: Server, redis_server: Server, line: str) -> None:
    reads = "a: " + " ; ".join(f"TYPE {key}" for key in KEYS)
    compare_dialogue(streamd_server, redis_server, tracking(PRELUDE, reads, f"b2: {line}", f"b2: {line}", "a: PING"))


@pytest.mark.parametrize("line", [each for each in lines_of(READS) if each not in ANY])
def test_the_same_reads_are_tracked(streamd_server: Server, redis_server: Server, line: str) -> None:
    removed = "b2: " + " ; ".join(f"RPUSH {key} x ; DEL {key}" for key in KEYS)
    compare_dialogue(streamd_server, redis_server, tracking(PRELUDE, f"a: {line}", removed, "a: PING"))
