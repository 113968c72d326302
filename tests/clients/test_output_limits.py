"""Clients that do not read what they have asked for: closed when a reply passes the hard limit of their class, which it
does while it is written, so that a reply of any size costs no more memory than the limit; what the command has changed
is changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from support.compare.observing import same_story
from support.servers import Server, eventually, start_streamd
from support.wire import Argument, Reply, encode_request

StartServer = Callable[..., Server]
Request = Sequence[Argument]

MB = 1 << 20
ENTRIES = 2400
"""Of 10 kB: about 24 MB of stream."""
ALLOWED = 10 * MB
"""What the server may grow by while it writes one reply of that size for a limit of 1 MB: pages of its heap move, too."""
GROUPS = 3

MANY = 40
BIG = b"y" * MB

REPLIES: dict[str, list[Request]] = {
    "XRANGE": [("XRANGE", "s", "-", "+")],
    "XREVRANGE": [("XREVRANGE", "s", "+", "-")],
    "XREVRANGE COUNT": [("XREVRANGE", "s", "+", "-", "COUNT", ENTRIES - 1)],
    "XREAD": [("XREAD", "STREAMS", "s", "0")],
    "XREAD of several": [("XREAD", "STREAMS", "s", "s", "s", "0", "0", "0")],
    "history": [("XREADGROUP", "GROUP", "read", "c", "STREAMS", "s", "0")],
    "XINFO STREAM FULL": [("XINFO", "STREAM", "s", "FULL", "COUNT", "0")],
    "in a transaction": [("MULTI",), ("XRANGE", "s", "-", "+"), ("XLEN", "s"), ("XRANGE", "s", "-", "+"), ("EXEC",)],
    "MGET": [("MGET", *["big"] * MANY)],
    "GET in a transaction": [("MULTI",), *[("GET", "big")] * MANY, ("EXEC",)],
}


def peak_growth(server: Server, act: Callable[[], object]) -> int:
    """By how many bytes more than before the server was resident at most while `act` ran."""
    process = Path(f"/proc/{server.process.pid}")
    if not (process / "clear_refs").exists():
        pytest.skip("only Linux tells the most memory that a process had within a time")
    (process / "clear_refs").write_text("5")  # the most from now on
    before = resident(process, "VmRSS")
    act()
    return resident(process, "VmHWM") - before


def resident(process: Path, name: str) -> int:
    match = re.search(rf"{name}:\s+(\d+) kB", (process / "status").read_text())
    assert match is not None
    return int(match[1]) * 1024


def fill(server: Server, entries: int = ENTRIES) -> None:
    """A stream `s`, groups g0 to g2 that have read nothing and `read` that has read all, and a string `big`."""
    with server.connect(timeout_s=60) as wire:
        for start in range(0, entries, 100):
            batch = [("XADD", "s", f"{n + 1}-1", "f", b"x" * 10_000) for n in range(start, min(start + 100, entries))]
            wire.pipeline(batch)
        for group in (*(f"g{n}" for n in range(GROUPS)), "read"):
            wire.call("XGROUP", "CREATE", "s", group, "0")
        wire.call("SET", "big", BIG)
        wire.call("CONFIG", "SET", "client-output-buffer-limit", "normal 0 0 0")
        wire.call("XREADGROUP", "GROUP", "read", "c", "STREAMS", "s", ">")
        wire.call("CONFIG", "SET", "client-output-buffer-limit", f"normal {MB} 0 0")


def closed_by_limits(server: Server) -> int:
    with server.connect() as wire:
        found = re.search(rb"client_output_buffer_limit_disconnections:(\d+)", wire.call("INFO", "stats").value)
        assert found is not None
        return int(found[1])


def ask_and_not_read(server: Server, requests: Sequence[Request]) -> None:
    """Send requests from one client that reads nothing, and wait until it has been closed by its limit."""
    before = closed_by_limits(server)
    with server.connect() as lazy:
        lazy.send_bytes(b"".join(map(encode_request, requests)))
        eventually(lambda: closed_by_limits(server) == before + 1, what="the end of the client")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = start_streamd(tmp_path_factory.mktemp("filled"))
    try:
        fill(server)
        yield server
    finally:
        server.stop()


@pytest.mark.parametrize("requests", REPLIES.values(), ids=REPLIES)
def test_a_reply_costs_no_more_than_the_limit(requests: list[Request], filled: Server) -> None:
    assert peak_growth(filled, lambda: ask_and_not_read(filled, requests)) < ALLOWED


def test_entries_that_are_not_sent_have_been_delivered(filled: Server) -> None:
    """XREADGROUP does all that it does, whether the reply can be kept or not."""
    request = ("XREADGROUP", "GROUP", "g0", "c", "STREAMS", "s", ">")
    # A pending entry takes memory that stays.
    assert peak_growth(filled, lambda: ask_and_not_read(filled, [request])) < ALLOWED + 100 * ENTRIES
    with filled.connect() as wire:
        assert wire.call("XPENDING", "s", "g0").value[0] == Reply(":", ENTRIES)


def test_what_follows_in_a_transaction_is_done(filled: Server) -> None:
    requests = [
        ("MULTI",),
        ("XRANGE", "s", "-", "+"),
        ("SET", "done", "yes"),
        ("XAUTOCLAIM", "s", "read", "d", "0", "0"),
        ("EXEC",),
    ]
    ask_and_not_read(filled, requests)
    with filled.connect() as wire:
        assert wire.call("GET", "done").value == b"yes"
        assert wire.call("XPENDING", "s", "read", "-", "+", "1000000", "d").value[0].value[1].value == b"d"


def test_a_reader_of_messages_to_itself(filled: Server) -> None:
    """Messages that a client publishes to itself in a transaction wait for its reply, and are unsent output, too."""
    with filled.connect() as wire:
        wire.call("CONFIG", "SET", "client-output-buffer-limit", f"pubsub {MB} 0 0")
    messages = [
        ("HELLO", "3"),
        ("SUBSCRIBE", "c"),
        ("MULTI",),
        *[("PUBLISH", "c", BIG)] * MANY,
        ("SET", "told", "1"),
        ("EXEC",),
    ]
    queued = MANY * MB  # the requests themselves
    assert peak_growth(filled, lambda: ask_and_not_read(filled, messages)) < queued + 2 * ALLOWED
    with filled.connect() as wire:
        assert wire.call("GET", "told").value == b"1"


def test_subscriptions_to_many_channels(filled: Server) -> None:
    with filled.connect() as wire:
        wire.call("CONFIG", "SET", "client-output-buffer-limit", f"pubsub {MB} 0 0")
        ask_and_not_read(filled, [("SUBSCRIBE", *(f"{'c' * 100}{n}" for n in range(20_000)))])
        assert wire.call("PUBSUB", "CHANNELS").value == ()


def test_a_client_that_waited(filled: Server) -> None:
    """A reply that comes after a wait: of all that there is above an ID when one entry more arrives."""
    with filled.connect() as lazy, filled.connect() as wire:
        before = closed_by_limits(filled)
        lazy.send("XREAD", "BLOCK", "0", "STREAMS", "later", "0")
        eventually(lambda: b" cmd=xread " in wire.call("CLIENT", "LIST", "TYPE", "normal").value)
        transaction = [("MULTI",), *(("XADD", "later", "*", "f", b"x" * 100_000) for _ in range(100)), ("EXEC",)]
        wire.pipeline(transaction)
        eventually(lambda: closed_by_limits(filled) == before + 1, what="the end of the client")


def test_a_client_that_reads_gets_everything_below_the_limit(filled: Server) -> None:
    with filled.connect(timeout_s=60) as wire:
        first = wire.call("XRANGE", "s", "-", "+", "COUNT", "90")
        assert len(first.value) == 90
        assert wire.call("XRANGE", "s", "-", "+", "COUNT", "90") == first


@pytest.mark.real
def test_what_is_done_for_a_client_that_is_closed(new_streamd: StartServer, new_redis: StartServer) -> None:
    def story(server: Server) -> object:
        fill(server, 300)
        for requests in (
            [("XREADGROUP", "GROUP", "g0", "c", "STREAMS", "s", ">")],
            [("XREADGROUP", "GROUP", "g1", "c", "COUNT", "250", "STREAMS", "s", ">")],
            [("MULTI",), ("XRANGE", "s", "-", "+"), ("XADD", "t", "1-1", "f", "v"), ("EXEC",)],
            [("XAUTOCLAIM", "s", "read", "d", "0", "0", "COUNT", "300")],
            [("XRANGE", "s", "-", "+"), ("XADD", "never", "1-1", "f", "v")],
        ):
            ask_and_not_read(server, requests)
        with server.connect() as wire:
            pending = [wire.call("XPENDING", "s", group) for group in ("g0", "g1", "read")]
            return pending, wire.call("XLEN", "t"), wire.call("EXISTS", "never")

    same_story(story, new_streamd(), new_redis())


@pytest.mark.real
@pytest.mark.parametrize("size", [10_000, 16_000])
def test_a_block_of_replies_is_not_counted(size: int, new_streamd: StartServer, new_redis: StartServer) -> None:
    """However small the limit is."""

    def story(server: Server) -> object:
        with server.connect() as wire:
            wire.call("CONFIG", "SET", "client-output-buffer-limit", "normal 100 0 0")
            return wire.call("ECHO", b"x" * size), closed_by_limits(server)

    same_story(story, new_streamd(), new_redis())
