"""What bitmaps and HyperLogLogs are propagated as, and the events that they cause: the same as Redis's. Marked `real`."""

from __future__ import annotations

import pytest
from support.compare.events import EventWatch
from support.compare.logs import Log, compare

pytestmark = pytest.mark.real

STORIES = {
    "bits": """
        SETBIT a 7 1
        setbit a 7 1
        setbit a 7 0
        SETBIT a 100 0
        SETBIT a -1 0
        GETBIT a 7
        GETBIT none 7
        BITCOUNT a
        BITPOS none 1
        EXPIRE a 1000
        SETBIT a 3 1
    """,
    "several strings": """
        SET a x
        SET b y
        BITOP AND d a b
        bitop and d a b none
        BITOP OR d none
        BITOP OR d none
        RPUSH d x
        BITOP NOT d a
        SET d x EX 100
        BITOP NOT d a
        BITOP FOO d a
    """,
    "fields": """
        BITFIELD a SET u8 0 1 GET u8 0 INCRBY u8 8 1
        BITFIELD a SET u8 0 1
        BITFIELD a SET u8 0 0 SET u8 0 1
        BITFIELD a SET u8 100 0
        BITFIELD a OVERFLOW FAIL INCRBY u2 0 100
        BITFIELD a GET u8 0
        BITFIELD none GET u8 0
        BITFIELD_RO a GET u8 0
        BITFIELD_RO none GET u8 0
        BITFIELD a SET u8 0 9 FOO
    """,
    "hyperloglogs": """
        PFADD a
        PFADD a
        pfadd a x y
        PFADD a x
        PFCOUNT a
        PFCOUNT a
        PFCOUNT a none
        PFADD a z
        pfcount a b
        pfcount a
        PFMERGE d a none
        PFMERGE d a
        PFMERGE e
        EXPIRE d 1000
        PFMERGE d a
        SET s x
        PFADD s x
    """,
    "transactions and scripts": """
        MULTI
        SETBIT a 1 1
        SETBIT a 1 1
        PFADD h x
        PFCOUNT h
        EXEC
        MULTI
        PFADD h x
        PFCOUNT h
        EXEC
        EVAL "redis.call('pfadd', 'h', 'y') redis.call('pfcount', 'h') redis.call('setbit', 'a', 2, 1)" 0
        EVAL "redis.call('pfadd', 'h', 'y') return redis.call('pfcount', 'h')" 0
    """,
}


@pytest.mark.parametrize("story", STORIES)
def test_effects_are_those_of_redis(logs: tuple[Log, Log], story: str) -> None:
    compare(logs, STORIES[story])


@pytest.mark.parametrize("story", STORIES)
def test_events_are_those_of_redis(watch: EventWatch, story: str) -> None:
    watch.compare(STORIES[story])
