"""Keyspace events of the commands of sorted sets, and which of their requests change what is watched. Marked `real`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.compare.differential import Pair
from support.compare.events import EventWatch
from support.servers import Server
from support.wire import split_line

pytestmark = pytest.mark.real

STORIES = {
    "adding": """
        ZADD z 1 a 2 b
        ZADD z 1 a
        ZADD z 3 a 4 c
        ZADD z NX 9 a
        ZADD z XX 9 none
        ZADD z GT 1 a
        ZADD z INCR 1 a
        ZADD z INCR 0 a
        ZINCRBY z 1 new
        ZINCRBY y 1 new
        ZADD x XX 1 a
        ZADD z 1 a nan b
    """,
    "removing": """
        ZADD z 1 a 2 b 3 c 4 d 5 e 6 f
        ZREM z none
        ZREM z a
        ZREMRANGEBYRANK z 100 200
        ZREMRANGEBYRANK z 0 0
        ZREMRANGEBYSCORE z 3 3
        ZREMRANGEBYLEX z [d [d
        ZREM z e f
        ZADD z 1 a
        ZREMRANGEBYRANK z 0 -1
        ZADD z 1 a
        ZREMRANGEBYSCORE z -inf +inf
        ZREM z a
    """,
    "popping": """
        ZADD z 1 a 2 b 3 c 4 d 5 e 6 f
        ZPOPMIN z
        ZPOPMAX z 2
        ZPOPMIN z 0
        ZMPOP 2 none z MIN
        BZPOPMAX z 0
        BZMPOP 0 1 z MAX COUNT 10
        ZPOPMIN z
    """,
    "storing": """
        ZADD z 1 a 2 b 3 c
        ZADD y 1 a
        ZUNIONSTORE dst 2 z y
        ZUNIONSTORE dst 2 z y
        ZINTERSTORE dst 2 z y
        ZDIFFSTORE dst 2 z y
        ZRANGESTORE dst z 0 1
        ZRANGESTORE dst z 9 10
        ZRANGESTORE dst z 9 10
        SET dst v
        ZUNIONSTORE dst 1 z
        SET dst v EX 100
        ZINTERSTORE dst 2 z none
        ZUNION 1 none
        ZSCORE none a
        ZRANGE none 0 -1
        ZPOPMIN none
        COPY z y REPLACE
        RENAME z y
    """,
}


@pytest.fixture
def watch(streamd_server: Server, redis_server: Server) -> Iterator[EventWatch]:
    with EventWatch(streamd_server, redis_server) as watch:
        yield watch


@pytest.mark.parametrize("story", STORIES)
def test_events_come_as_from_redis(watch: EventWatch, story: str) -> None:
    assert watch.compare(STORIES[story])


def test_the_letter_z_selects_the_events_of_sorted_sets(watch: EventWatch) -> None:
    events = watch.compare("ZADD z 1 a\nSET k v\nZREM z a", letters="KEz")
    assert [event.event for event in events] == [b"zadd", b"zrem"]


TOUCHING = [
    "ZADD z 1 a", "ZADD z 5 a", "ZADD z 9 new", "ZADD z XX 5 none", "ZADD z NX 5 a", "ZADD z GT 0 a", "ZINCRBY z 0 a", "ZINCRBY z 1 a",
    "ZREM z none", "ZREM z a", "ZREMRANGEBYRANK z 9 9", "ZREMRANGEBYRANK z 0 0", "ZREMRANGEBYSCORE z 7 7", "ZREMRANGEBYLEX z (x [y",
    "ZPOPMIN z 0", "ZPOPMIN z", "ZPOPMAX z", "ZMPOP 1 z MIN", "BZPOPMIN z 0", "ZRANGESTORE z z 0 -1", "ZRANGESTORE z none 0 -1",
    "ZUNIONSTORE z 1 z", "ZINTERSTORE z 1 none", "ZRANGESTORE other z 0 -1", "ZRANGE z 0 -1", "ZRANDMEMBER z", "ZSCAN z 0",
]  # fmt: skip


@pytest.mark.parametrize("line", TOUCHING)
def test_watch_sees_what_redis_sees(pair: Pair, line: str) -> None:
    before = ["ZADD z 1 a 2 b", "WATCH z"]
    after = ["MULTI", "PING", "EXEC", "ZRANGE z 0 -1 WITHSCORES"]
    if line.startswith(("ZRANDMEMBER", "ZSCAN")):
        replies = [
            wire.pipeline([tuple(split_line(each)) for each in ("DEL z", *before, line, *after)]) for wire in pair.wires
        ]
        assert replies[0][-2:] == replies[1][-2:]
    else:
        pair.run_text("\n".join([*before, line, *after]))
