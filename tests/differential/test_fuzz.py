"""Requests broken at random, with a fixed seed: the server goes on, and its memory is where it was.

`test_the_server_outlives_broken_requests` runs against streamd always. The comparison with a real Redis, byte for byte, is
marked `real`.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator

import pytest
from support.servers import Server, eventually
from support.wire import Wire, encode_request, split_line

pytestmark = pytest.mark.long

SEED = 20_260_101
REQUESTS = 10_000
WARM_UP = 2_000
MARGIN_KIB = 8 * 1024

# Nothing here stops the server, makes it sleep, or changes its settings, not even when a byte of it is changed.
LINES = """
PING
PING greeting
ECHO "some text"
XADD s * field value
XADD s 5-5 field value other "another value"
XADD s MAXLEN ~ 10 * field value
XADD s NOMKSTREAM MINID = 5-0 LIMIT 10 6-* f v
XADD s IDMP p i * f v
XTRIM s MAXLEN 10
XTRIM s MINID ~ 5-0 LIMIT 5
XDEL s 1-1 2-2
XDELEX s DELREF IDS 2 1-1 2-2
XLEN s
XRANGE s - + COUNT 5
XRANGE s (1-1 5
XREVRANGE s + - COUNT 5
XREAD COUNT 2 STREAMS s t 0 0
XREAD BLOCK 1 STREAMS s $
XGROUP CREATE s g $ MKSTREAM
XGROUP SETID s g 0 ENTRIESREAD 1
XGROUP CREATECONSUMER s g alice
XGROUP DELCONSUMER s g alice
XGROUP DESTROY s g
XREADGROUP GROUP g alice COUNT 2 STREAMS s >
XREADGROUP GROUP g bob COUNT 2 NOACK STREAMS s 0
XREADGROUP GROUP g bob CLAIM 10 STREAMS s >
XACK s g 1-1
XACKDEL s g IDS 1 1-1
XPENDING s g
XPENDING s g IDLE 1 - + 10 alice
XCLAIM s g bob 0 1-1 2-2 IDLE 5 RETRYCOUNT 3 FORCE JUSTID
XAUTOCLAIM s g bob 0 0-0 COUNT 5 JUSTID
XINFO STREAM s FULL COUNT 3
XINFO GROUPS s
XINFO CONSUMERS s g
XSETID s 9-9 ENTRIESADDED 100 MAXDELETEDID 1-1
XCFGSET s IDMP-MAXSIZE 10
SET text value EX 100
GET text
DEL s
EXISTS s t
EXPIRE s 100 NX
TTL s
TYPE s
RENAME s t
COPY t s REPLACE
KEYS *
SCAN 0 MATCH s* COUNT 10 TYPE stream
OBJECT ENCODING s
COMMAND GETKEYS XADD s * f v
COMMAND INFO xadd
CLIENT SETNAME name
CLIENT GETNAME
HELLO 3
HELLO 2
SELECT 1
SWAPDB 0 1
FLUSHALL
RESET
"""

# What is left out here is answered with times, with what follows from hashing, with what differs by build, or late: Redis
# holds a client that flushes until another thread is done.
TIMED = ("FLUSHALL", " * ", "BLOCK", "CLAIM 10", "IDLE 1 ", "XINFO", "COMMAND INFO", "HELLO", "TTL", "KEYS *", "SCAN")
TIMELESS = [line for line in LINES.strip().splitlines() if not any(word in line for word in TIMED)]
NASTY = [
    b"",
    b"\r\n",
    b"\x00",
    b"$",
    b"*",
    b"-1",
    b"99999999999999999999",
    b"0",
    b"\xff" * 8,
    b"{",
    b'"',
    b"'",
    b"\r",
    b"\n",
]


def mutated(data: bytes, chance: random.Random) -> bytes:
    """The bytes with one to three changes: one flipped, some cut out, doubled, put in, or the rest dropped."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(changed) + 1)
        kind = chance.randrange(6)
        if kind == 0 and at < len(changed):
            changed[at] = chance.randrange(256)
        elif kind == 1:
            del changed[at : at + chance.randint(1, 4)]
        elif kind == 2:
            changed[at:at] = changed[at : at + chance.randint(1, 20)]
        elif kind == 3:
            changed[at:at] = chance.choice(NASTY)
        elif kind == 4:
            changed[at : at + 1] = chance.choice(NASTY)
        else:
            del changed[at:]
    return bytes(changed)


def broken_requests(chance: random.Random, lines: list[str]) -> Iterator[bytes]:
    """Endless requests, most of them as arrays, some inline; most of them broken, some not."""
    while True:
        line = chance.choice(lines)
        data = encode_request(split_line(line)) if chance.random() < 0.8 else line.encode() + b"\r\n"
        yield mutated(data, chance) if chance.random() < 0.9 else data


class Conversations:
    """Sends bytes over a new connection and gives what comes back, without knowing how many replies there should be."""

    ROUND_TRIPS = 4

    def __init__(self, server: Server) -> None:
        self.server = server
        self.observer = server.connect()

    def close(self) -> None:
        self.observer.close()

    def talk(self, data: bytes) -> tuple[bytes, bool]:
        """What the server says to `data`, and whether it hangs up."""
        with Wire(self.server.port, timeout_s=60) as wire:
            who = wire.client_id()
            before = self.received(who)
            wire.send_bytes(data)
            eventually(lambda: self.received(who) in (None, before + len(data)), what="the server's reading")
            # A server that has answered others several times since has said all that it had to say to this.
            for _ in range(self.ROUND_TRIPS):
                assert self.observer.call("PING").value == b"PONG"
            return self.heard(wire)

    def received(self, who: int) -> int | None:
        """How many bytes the server has read from a client; None when it is gone."""
        found = re.search(rb" tot-net-in=([0-9]+)", self.observer.call("CLIENT", "LIST", "ID", who).value)
        return None if found is None else int(found[1])

    @staticmethod
    def heard(wire: Wire) -> tuple[bytes, bool]:
        said = bytearray()
        wire.socket.setblocking(False)
        while True:
            try:
                more = wire.socket.recv(1 << 20)
            except BlockingIOError:
                return bytes(said), False
            except ConnectionResetError:
                more = b""
            if not more:
                return bytes(said), True
            said += more


def test_the_server_outlives_broken_requests(new_streamd: Callable[..., Server]) -> None:
    server = new_streamd()
    conversations = Conversations(server)
    chance = random.Random(SEED)
    requests = broken_requests(chance, LINES.strip().splitlines())
    settled = 0
    for count in range(REQUESTS + WARM_UP):
        if count == WARM_UP:
            settled = memory_after_flush(server, conversations)
        behind = b"".join(next(requests) for _ in range(chance.choice((0, 0, 0, 20))))
        conversations.talk(next(requests) + behind)
    assert server.is_running
    with server.connect() as wire:
        assert wire.call("PING").value == b"PONG"
        assert wire.call("XADD", "s", "*", "f", "v").kind == "$"
    grown = memory_after_flush(server, conversations) - settled
    conversations.close()
    assert grown < MARGIN_KIB, f"resident memory has grown by {grown} KiB"


def memory_after_flush(server: Server, conversations: Conversations) -> int:
    """Resident memory once everything is deleted and every connection but ours is gone."""
    wire = conversations.observer
    wire.call("FLUSHALL", "SYNC")
    eventually(lambda: wire.call("CLIENT", "LIST").value.count(b"\n") == 1, what="the other clients gone")
    return server.rss_kib()


@pytest.mark.real
@pytest.mark.parametrize("seed", range(20))
def test_broken_requests_are_answered_alike(streamd_server: Server, redis_server: Server, seed: int) -> None:
    """A connection each, one broken request behind a few whole ones: the same bytes come back, and the same end."""
    chance = random.Random(SEED + seed)
    broken = broken_requests(chance, TIMELESS)
    both = [Conversations(server) for server in (streamd_server, redis_server)]
    for conversations in both:
        conversations.observer.call("FLUSHALL")
    for _ in range(50):
        data = b"".join(encode_request(split_line(chance.choice(TIMELESS))) for _ in range(3)) + next(broken)
        ours, theirs = (conversations.talk(data) for conversations in both)
        assert ours == theirs, f"to {data!r}"
    for conversations in both:
        conversations.close()
