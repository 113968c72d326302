"""Keyspace events of the commands on streams: which, of which key, and in which order. Marked `real`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.compare.events import ALL_EVENTS, EventWatch
from support.servers import Server

pytestmark = pytest.mark.real


@pytest.fixture
def watch(streamd_server: Server, redis_server: Server) -> Iterator[EventWatch]:
    with EventWatch(streamd_server, redis_server) as watch:
        yield watch


FILL = "".join(f"XADD s 1-{seq} f v\n" for seq in range(1, 7))
STORIES = {
    "adding": """
        XADD s NOMKSTREAM * f v
        XADD s * f v
        XADD s 1-1 f v
        XADD s MAXLEN 1 * f v
        XADD s MAXLEN ~ 1 * f v
        XADD s MAXLEN 0 * f v
        XADD s MINID 0 * f v
        XADD s NOMKSTREAM * f v
        XADD s 0-0 f v
        XADD t 0-0 f v
        XADD t MAXLEN 0 1-1 f v
    """,
    "idempotent producers": """
        XADD s IDMP p i * f v
        XADD s IDMP p i * f v
        XADD s IDMPAUTO p MAXLEN 1 * f v
        XADD s IDMPAUTO p MAXLEN 0 * f v
        XCFGSET s IDMP-MAXSIZE 5
        XADD s 9999999999999-1 f v
        XIDMPRECORD s p i 9999999999999-1
        XIDMPRECORD s p i 9999999999999-1
    """,
    "trimming": FILL
    + """
        XTRIM s MAXLEN 9
        XTRIM s MAXLEN ~ 3
        XTRIM s MAXLEN 3
        XTRIM s MINID 1-6
        XTRIM s MINID 1-6
        XTRIM s MAXLEN 0
        XTRIM s MAXLEN 0
        XTRIM none MAXLEN 0
        XADD s MAXLEN = 0 ACKED 2-1 f v
    """,
    "deleting": FILL
    + """
        XDEL s 1-1 1-2 1-2
        XDEL s 1-1
        XDEL none 1-1
        XGROUP CREATE s g 0
        XDELEX s ACKED IDS 1 1-3
        XDELEX s DELREF IDS 2 1-3 1-3
        XDELEX s KEEPREF IDS 1 1-3
        XDELEX none IDS 1 1-3
        XREADGROUP GROUP g a STREAMS s >
        XACK s g 1-4
        XACKDEL s g IDS 2 1-4 1-5
        XACKDEL s g IDS 1 1-5
        XDEL s 1-6
        XACKDEL s g IDS 1 1-6
        XDEL s 1-4
    """,
    "groups": """
        XGROUP CREATE s g $
        XGROUP CREATE s g $ MKSTREAM
        XGROUP CREATE s g $ MKSTREAM
        XGROUP CREATE s h 0
        XGROUP SETID s g 5
        XGROUP SETID s g 5
        XGROUP SETID s none 5
        XGROUP CREATECONSUMER s g a
        XGROUP CREATECONSUMER s g a
        XGROUP DELCONSUMER s g a
        XGROUP DELCONSUMER s g a
        XGROUP DESTROY s h
        XGROUP DESTROY s h
        XGROUP DESTROY none h
        XSETID s 9-9
        XSETID s 9-9
        XSETID none 9-9
    """,
    "reading for a group makes consumers": FILL
    + """
        XGROUP CREATE s g 0
        XGROUP CREATE t g 0 MKSTREAM
        XREADGROUP GROUP g a COUNT 1 STREAMS s t > >
        XREADGROUP GROUP g a COUNT 1 STREAMS s t > >
        XREADGROUP GROUP g b STREAMS s t 0 >
        XREADGROUP GROUP g c NOACK BLOCK 1 STREAMS t s > 0
        XREADGROUP GROUP g d BLOCK 1 STREAMS t >
        XREADGROUP GROUP g d BLOCK 1 STREAMS t >
        XREADGROUP GROUP g e CLAIM 0 STREAMS t s > >
        XREADGROUP GROUP none f STREAMS s t > >
    """,
    "claiming makes consumers": FILL
    + """
        XGROUP CREATE s g 0
        XREADGROUP GROUP g a COUNT 3 STREAMS s >
        XCLAIM s g b 0 1-1
        XCLAIM s g c 1000000 1-1
        XCLAIM s g c 0 1-1 JUSTID LASTID 9-9
        XCLAIM s g d 0 1-1 WHAT
        XAUTOCLAIM s g e 1000000 0
        XAUTOCLAIM s g e 0 0
        XAUTOCLAIM s g f 0 0 WHAT
        XDEL s 1-1
        XAUTOCLAIM s g e 0 0
    """,
    "misses": """
        XLEN none
        XRANGE none - +
        XREVRANGE none + - COUNT 0
        XRANGE none - + COUNT x
        XREAD STREAMS none other 0 0
        XREAD COUNT 1 BLOCK 1 STREAMS none other none $ + 5
        XREAD STREAMS none other 0 x
        XREAD STREAMS none 0 0
        XREADGROUP GROUP g a STREAMS none >
        XREADGROUP GROUP g a STREAMS none other x x
        XINFO STREAM none
        XINFO STREAM none FULL
        XINFO GROUPS none
        XINFO CONSUMERS none g
        XPENDING none g
        XPENDING none g - + 5
        XPENDING none g - + x
        XACK none g 1
        XACKDEL none g IDS 1 1
        XACKDEL none g IDS 2 1
        XDELEX none IDS 1 1
        XDEL none 1
        XTRIM none MAXLEN 1
        XCLAIM none g a 0 1
        XCLAIM none g a x 1
        XAUTOCLAIM none g a 0 0
        XAUTOCLAIM none g a x 0
        XAUTOCLAIM none g a 0 0 COUNT 0
        XSETID none 1-1
        XCFGSET none IDMP-MAXSIZE 3
        XIDMPRECORD none p i 1
        XGROUP SETID none g 0
        XGROUP DESTROY none g
    """,
    "reading what is there and what is not": """
        XADD s 1-1 f v
        XREAD STREAMS s none 0 0
        XREAD STREAMS none s 0 0
        XREAD STREAMS none s none s 0 5 0 0
        XGROUP CREATE s g 0
        XREADGROUP GROUP g a STREAMS s none > >
    """,
    "inside a transaction": """
        MULTI
        XADD s 1-1 f v
        XGROUP CREATE s g 0
        XREADGROUP GROUP g a STREAMS s >
        XREADGROUP GROUP g b BLOCK 0 STREAMS s >
        XREAD BLOCK 0 STREAMS none s 0 5
        XADD s MAXLEN 0 2-2 f v
        DEL s
        EXEC
    """,
    "a key that holds something else": """
        SET s value
        XADD s * f v
        XADD s MAXLEN 0 * f v
        XREAD STREAMS s 0
        XREAD STREAMS none s 0 0
        XDEL s 1-1
        XGROUP CREATE s g 0 MKSTREAM
        XAUTOCLAIM s g a 0 0
    """,
}


@pytest.mark.parametrize("name", STORIES)
def test_events_are_those_of_redis(watch: EventWatch, name: str) -> None:
    watch.compare(STORIES[name])


@pytest.mark.parametrize("letters", ["KEt", "KEn", "KEm", "KA", "EA", "Kt", "Em", "KEg$"])
def test_only_the_classes_that_are_asked_for(watch: EventWatch, letters: str) -> None:
    watch.compare(
        """
        XADD s MAXLEN 0 1-1 f v
        XREAD STREAMS none 0
        XGROUP CREATE t g 0 MKSTREAM
        DEL s
        """,
        letters,
    )


def test_every_class_is_reported_in_the_order_of_what_happened(watch: EventWatch) -> None:
    events = watch.compare("XADD s MAXLEN 0 1-1 f v\nXGROUP CREATE t g $ MKSTREAM\nXLEN none", ALL_EVENTS)
    assert [event.event for event in events] == [b"new", b"xadd", b"xtrim", b"new", b"xgroup-create", b"keymiss"]


@pytest.mark.parametrize("count", ["", "COUNT 1 "])
def test_events_of_those_who_are_served_after_a_wait(
    watch: EventWatch, streamd_server: Server, redis_server: Server, count: str
) -> None:
    """The one who waits looks for its keys again, and its consumer is made again when it was deleted."""
    told = []
    for server, listener in zip((streamd_server, redis_server), watch.listeners, strict=True):
        with server.connect() as main, server.connect() as reader:
            for line in ("FLUSHALL", "XGROUP CREATE s g $ MKSTREAM", f"CONFIG SET notify-keyspace-events {ALL_EVENTS}"):
                assert main.line(line).value == b"OK"
            reader.send(*f"XREADGROUP GROUP g a {count}BLOCK 0 STREAMS s >".split())
            events = listener.wait_for(b"xgroup-createconsumer", b"s")
            for line in ("XGROUP DELCONSUMER s g a", "XADD s MAXLEN 0 1-1 f v", "XADD s 1-2 f v"):
                main.line(line)
            reader.read()
            reader.send("XREAD", "BLOCK", "0", "STREAMS", "none", "s", "0", "$")
            events += listener.wait_for(b"keymiss", b"none")
            events += listener.wait_for(b"keymiss", b"none")
            main.line("XADD s 1-3 f v")
            reader.read()
            main.call("PUBLISH", "the-end-of-the-script", "end")
            told.append(events + listener.read_to_end(b"end"))
    assert told[0] == told[1]
