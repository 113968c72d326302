"""Memory that parsers and writers take must come back: a loop in a process of its own must not make it grow."""

from __future__ import annotations

import subprocess
import sys

import pytest

PARSER = """
    for data in (PING, PING[:9], b"*3\\r\\n$1\\r\\na\\r\\n$9", b"*1\\r\\nx\\r\\n", b"a 'b\\n", b"POST\\n", LONG, LONG[:60_000], MANY):
        parser = RequestParser(authenticated=True)
        with contextlib.suppress(ProtocolError):
            parser.feed(data[:30_000])
            parser.next_request()
            parser.feed(data[30_000:])
            parser.feed(b"x")
            parser.next_request()
"""

DRAIN = """
    for data in (PING * 3 + LONG[:40_000], LONG[:60_000], MANY[:500]):
        parser = RequestParser(authenticated=True)
        parser.feed(data)
        while parser.next_request() is not None:
            pass
        parser.drain()
        parser.feed(data)
        parser.clear()
"""

WRITER = """
    writers = [ReplyWriter() for _ in range(100)]
    for writer in writers:
        writer.bulk(b"x" * 1000)
    writers[0].bulk(LONG)
    writers[1].bulk(LONG)
    writers[1].consume(100)
    writers[2].take()
    writers[3].value([1, {b"a": [2.5, None]}])
    writers[3].truncate(0)
"""

FRAME = """
import contextlib, resource, sys
from streamd.errors import ProtocolError
from streamd.protocol.reply import ReplyWriter
from streamd.protocol.request import RequestParser

PING = b"*1\\r\\n$4\\r\\nPING\\r\\n"
LONG = b"*1\\r\\n$100000\\r\\n" + b"x" * 100_000 + b"\\r\\n"
MANY = b"*200\\r\\n" + b"$3\\r\\nabc\\r\\n" * 200

def once():
%s

def peak_kib():
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // 1024 if sys.platform == "darwin" else peak

for _ in range(100):
    once()
before = peak_kib()
for _ in range(2000):
    once()
print(peak_kib() - before)
"""


@pytest.mark.parametrize("body", [PARSER, DRAIN, WRITER], ids=["parser", "drain", "writer"])
def test_a_loop_does_not_grow(body: str) -> None:
    grown = subprocess.run([sys.executable, "-c", FRAME % body], capture_output=True, text=True, check=True).stdout
    # Each run handles more than 100 KB: one block lost per run would be 30 MB.
    assert int(grown) < 4000
