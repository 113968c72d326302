"""Which commands on streams touch their key: WATCH stops a transaction after those, and after no others. Marked `real`."""

from __future__ import annotations

import pytest
from support.compare.differential import Pair, parse_script
from support.wire import Reply

pytestmark = pytest.mark.real

PRELUDE = """
    XADD s 1-1 f v
    XADD s 1-2 f v
    XADD s 1-3 f v
    XADD s 1-4 f v
    XGROUP CREATE s g 0
    XGROUP CREATE s h 0
    XREADGROUP GROUP g a COUNT 2 STREAMS s >
    XADD p IDMP p i * f v
    XADD deleted 1-1 f v
    XGROUP CREATE deleted g 0
    XREADGROUP GROUP g a STREAMS deleted >
    XDEL deleted 1-1
    SET text value
"""

TOUCHING = """
    XADD s 2-1 f v
    XADD s MAXLEN 0 2-1 f v
    XADD new 1-1 f v
    XADD new MAXLEN 0 1-1 f v
    XADD p IDMP p j * f v
    XTRIM s MAXLEN 2
    XTRIM s MINID ~ 9
    XDEL s 1-1
    XDELEX s IDS 2 9-9 1-2
    XDELEX s DELREF IDS 1 1-2
    XACKDEL s g IDS 1 1-1
    XACKDEL s g DELREF IDS 1 1-1
    XGROUP CREATE new g $ MKSTREAM
"""

NOT_TOUCHING = """
    XADD new NOMKSTREAM 1-1 f v
    XADD s 1-1 f v
    XADD s 0-0 f v
    XADD p IDMP p i * f v
    XADD text 1-1 f v
    XTRIM s MAXLEN 9
    XTRIM s MAXLEN ~ 2
    XTRIM new MAXLEN 0
    XDEL s 9-9
    XDEL s x
    XDELEX s ACKED IDS 1 1-1
    XDELEX deleted DELREF IDS 1 1-1
    XACK s g 1-1
    XACKDEL s g ACKED IDS 1 1-1
    XACKDEL deleted g IDS 1 1-1
    XACKDEL s g IDS 1 9-9
    XREAD STREAMS s 0
    XREADGROUP GROUP g a STREAMS s >
    XREADGROUP GROUP g a NOACK STREAMS s >
    XREADGROUP GROUP g a STREAMS s 0
    XREADGROUP GROUP g a CLAIM 0 STREAMS s >
    XREADGROUP GROUP g other STREAMS s 0
    XREADGROUP GROUP g other STREAMS deleted >
    XCLAIM s g b 0 1-1
    XCLAIM s g b 0 1-3 FORCE
    XCLAIM s g b 0 1-1 LASTID 9-9
    XCLAIM deleted g b 0 1-1
    XAUTOCLAIM s g b 0 0
    XAUTOCLAIM deleted g b 0 0
    XGROUP CREATE s i 0
    XGROUP CREATE s i 0 MKSTREAM
    XGROUP CREATE s g 0
    XGROUP SETID s g 1-1
    XGROUP DESTROY s g
    XGROUP CREATECONSUMER s g c
    XGROUP DELCONSUMER s g a
    XSETID s 9-9
    XCFGSET s IDMP-MAXSIZE 7
    XIDMPRECORD s p i 1-1
    XPENDING s g
    XINFO STREAM s FULL
    XLEN s
    XRANGE s - +
"""

KEYS = (b"s", b"p", b"new", b"deleted", b"text")


def is_stopped(pair: Pair, line: str, *, watched: tuple[bytes, ...]) -> bool:
    """Whether a transaction does not run because of this command; the same in both servers."""
    request = parse_script(line)
    pair.run_text(PRELUDE)
    replies = pair.run([(b"WATCH", *watched), *request, (b"MULTI",), (b"PING",), (b"EXEC",)])
    return replies[-1] != Reply("*", (Reply("+", b"PONG"),))


@pytest.mark.parametrize("line", [line.strip() for line in TOUCHING.strip().splitlines()])
def test_touches(pair: Pair, line: str) -> None:
    key = line.split()[2 if line.startswith("XGROUP") else 1].encode()
    assert is_stopped(pair, line, watched=(key,))
    pair.reset()
    assert not is_stopped(pair, line, watched=tuple(other for other in KEYS if other != key))


@pytest.mark.parametrize("line", [line.strip() for line in NOT_TOUCHING.strip().splitlines()])
def test_does_not_touch(pair: Pair, line: str) -> None:
    assert not is_stopped(pair, line, watched=KEYS)


def test_serving_a_client_that_waited_touches_nothing(pair: Pair) -> None:
    for wire, server in zip(pair.wires, pair.servers, strict=True):
        with server.connect() as reader, server.connect() as other:
            assert wire.line("XGROUP CREATE s g $ MKSTREAM").value == b"OK"
            reader.send(*b"XREADGROUP GROUP g a BLOCK 0 STREAMS s >".split())
            while b"blocked_clients:1\r\n" not in wire.call("INFO", "clients").value:
                pass
            # The entry is added and its reader is served before the key is watched; acknowledging changes no entry.
            other.line("XADD s 1-1 f v")
            assert wire.line("WATCH s").value == b"OK"
            reader.read()
            other.line("XACK s g 1-1")
            wire.line("MULTI")
            assert wire.line("EXEC").value == ()
