"""What commands on hashes are propagated as, and the events that they cause: the same as Redis's. Marked `real`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.compare.effect_stories import NO_CYCLE
from support.compare.events import EventWatch
from support.compare.logs import Log, compare
from support.servers import Server

pytestmark = pytest.mark.real

SETUP = "HSET h a 1 b 2 c 3\n"

STORIES = {
    "setting": """
        HSET h a 1 b 2
        hset h a 1
        HMSET h a 1
        HSETNX h a 1
        HSETNX h c 1
        HDEL h a b nothing
        HDEL h nothing
        HDEL h c
        HDEL h c
    """,
    "numbers": """
        HINCRBY h a 5
        HINCRBY h a x
        HINCRBYFLOAT h b 0.5
        HINCRBYFLOAT h b x
        HINCRBYFLOAT h a 1
    """,
    "reading": SETUP
    + """
        HGET h a
        HGETALL h
        HRANDFIELD h 2
        HSCAN h 0
        HGETEX h FIELDS 1 a
    """,
    "expiries": SETUP
    + """
        HEXPIRE h 100 FIELDS 2 a nothing
        HEXPIRE h 100 NX FIELDS 3 a b c
        HPEXPIRE h 100000 FIELDS 2 b c XX
        HEXPIREAT h 99999999 FIELDS 1 a
        HSET h a 1
        HPEXPIREAT h 70000000000000 FIELDS 1 a
        HPEXPIREAT h 60000000000000 GT FIELDS 1 a
        HPERSIST h FIELDS 3 a b nothing
        HPERSIST h FIELDS 1 a
        HEXPIRE h 0 FIELDS 2 a b
        HEXPIRE h 0 FIELDS 1 c
    """,
    "hgetex": SETUP
    + """
        HGETEX h EX 100 FIELDS 2 a nothing
        HGETEX h PERSIST FIELDS 3 a b nothing
        HGETEX h PERSIST FIELDS 1 a
        HGETEX h PXAT 70000000000000 FIELDS 1 nothing
        HGETEX h EXAT 1 FIELDS 2 a b
        HGETEX h EXAT 1 FIELDS 2 c nothing
    """,
    "hsetex": """
        HSETEX h EX 100 FIELDS 2 a 1 b 2
        HSETEX h FIELDS 1 a 1
        HSETEX h FXX KEEPTTL FIELDS 1 a 2
        HSETEX h FNX FIELDS 1 a 2
        HSETEX h FIELDS 1 a 1 PX 100000
        HSETEX h EXAT 1 FIELDS 2 a 1 new 2
        HSETEX k EXAT 1 FIELDS 1 a 1
        HSETEX h PXAT 70000000000000 FIELDS 1 a 1
    """,
    "hgetdel": SETUP
    + """
        HGETDEL h FIELDS 2 a nothing
        HGETDEL h FIELDS 1 nothing
        HGETDEL h FIELDS 2 b c
    """,
    "transactions": SETUP
    + """
        MULTI
        HSET h a 2
        HEXPIRE h 100 FIELDS 1 a
        HGETDEL h FIELDS 1 b
        EXEC
        COPY h k
        RENAME k l
        DEL l
    """,
    "what is overwritten": """
        SET s v
        HSET h a 1
        SET h v
        HSET k a 1
        RENAME k s
        DEL s
    """,
}

OVERDUE = "HPEXPIRE h 1 FIELDS 2 a b\nDEBUG SLEEP 0.01\n"

MEETINGS = [
    "HGET h a", "HMGET h a b c", "HEXISTS h a", "HSTRLEN h b", "HGETALL h", "HLEN h", "HSETNX h a 9", "HINCRBY h a 9",
    "HINCRBYFLOAT h a 9", "HSET h a 9", "HDEL h a", "HTTL h FIELDS 1 a", "HPERSIST h FIELDS 1 a", "HGETEX h FIELDS 1 a",
    "HGETEX h PX 100000 FIELDS 2 a c", "HGETDEL h FIELDS 2 a c", "HSETEX h FXX PX 100000 FIELDS 2 a 8 c 9",
    "HSETEX h FNX PX 100000 FIELDS 1 a 8", "HSETEX h PX 100000 FIELDS 1 a 8",
    "HDEL h c\nHMGET h a b", "HDEL h c\nHGET h a\nHGET h b", "HDEL h b c\nHSETNX h a 1", "HDEL h b c\nHINCRBY h a 1",
    "MULTI\nHGET h a\nHSET h x 1\nEXEC",
]  # fmt: skip


@pytest.fixture
def no_cycle(streamd_server: Server, redis_server: Server) -> Iterator[None]:
    yield
    for server in (streamd_server, redis_server):
        with server.connect() as wire:
            wire.call("FLUSHALL")
            wire.call("DEBUG", "SET-ACTIVE-EXPIRE", "1")


@pytest.mark.parametrize("story", STORIES)
def test_effects_are_those_of_redis(logs: tuple[Log, Log], story: str) -> None:
    compare(logs, STORIES[story])


@pytest.mark.parametrize("line", MEETINGS)
def test_effects_of_meeting_fields_whose_time_has_come(logs: tuple[Log, Log], line: str) -> None:
    compare(logs, NO_CYCLE + SETUP + OVERDUE + line)


@pytest.mark.parametrize("story", STORIES)
def test_events_are_those_of_redis(watch: EventWatch, story: str) -> None:
    watch.compare(STORIES[story])


@pytest.mark.parametrize("line", MEETINGS)
def test_events_of_meeting_fields_whose_time_has_come(watch: EventWatch, no_cycle: None, line: str) -> None:
    watch.compare(NO_CYCLE + SETUP + OVERDUE + line)


def test_events_of_fields_that_expire_by_themselves(watch: EventWatch) -> None:
    watch.compare("HSET h a 1\nHPEXPIRE h 20 FIELDS 1 a", waits_for=(b"del", b"h"))
    watch.compare("HSET h a 1 b 2\nHPEXPIRE h 20 FIELDS 1 a", "KEh", waits_for=(b"hexpired", b"h"))
