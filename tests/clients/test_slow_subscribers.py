"""Subscribers that do not read: closed by the limit of their class, and the server's memory stays within it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.servers import Server, eventually
from support.wire import Reply, Wire, encode_request

pytestmark = pytest.mark.long

MB = 1 << 20
HARD_LIMIT = 32 * MB
"""That of subscribers by default, as the soft limit of 8 MB for 60 s is."""
BESIDES = 64 * MB
"""What the server may use besides: itself, and what it has received."""


def peak_rss(server: Server) -> int:
    """The most memory that a server has had resident, in bytes; where that is not told, what it has now."""
    status = Path(f"/proc/{server.process.pid}/status")
    if status.exists():
        match = re.search(r"VmHWM:\s+(\d+) kB", status.read_text())
        assert match is not None
        return int(match[1]) * 1024
    return server.rss_kib() * 1024


def publish(wire: Wire, count: int, payload: bytes) -> list[int]:
    """Publish messages; how many heard each."""
    wire.send_bytes(encode_request(("PUBLISH", "c", payload)) * count)
    return [wire.read().value for _ in range(count)]


def subscribe(server: Server, protocol: int = 2) -> Wire:
    """A subscriber that reads no more than the confirmation."""
    wire = server.connect(protocol)
    wire.send("SUBSCRIBE", "c")
    assert wire.read().value[2].value == 1
    return wire


@pytest.mark.parametrize("size", [1000, 65536, 4 * MB])
def test_a_subscriber_that_never_reads_is_closed_and_memory_stays_within_the_limit(
    new_streamd: Callable[..., Server], size: int
) -> None:
    server = new_streamd()
    total = 1024 * MB if size > 1000 else 128 * MB
    batch = max(1, 2 * MB // size)
    with server.connect(timeout_s=60) as publisher, subscribe(server):
        heard = 0
        for _ in range(total // (batch * size)):
            heard += sum(publisher_heard := publish(publisher, batch, b"x" * size))
            assert peak_rss(server) <= HARD_LIMIT + BESIDES
        assert publisher_heard[-1] == 0, "the subscriber was not closed"
        assert heard * size >= HARD_LIMIT, "the subscriber was closed before its limit"
        assert "closed for overcoming of output buffer limits" in server.log()


def test_one_slow_subscriber_after_the_other_leaves_no_memory_behind(new_streamd: Callable[..., Server]) -> None:
    server = new_streamd()
    payload = b"x" * 16384
    with server.connect(timeout_s=60) as publisher:
        for _ in range(12):
            with subscribe(server, 3):
                while publish(publisher, 64, payload)[-1]:
                    pass
            assert peak_rss(server) <= HARD_LIMIT + BESIDES


def unsent(wire: Wire) -> int:
    """Bytes of output that the one subscriber has not been sent."""
    found = re.search(rb" omem=(\d+) ", wire.call("CLIENT", "LIST", "TYPE", "PUBSUB").value)
    assert found, "closed before its time"
    return int(found[1])


def test_a_soft_limit_closes_when_its_time_has_passed(new_streamd: Callable[..., Server]) -> None:
    server = new_streamd(client_output_buffer_limit="pubsub 0 100kb 5")
    with server.connect() as publisher, subscribe(server):
        # Well beyond the limit: what the kernel takes of the last messages is not known.
        while unsent(publisher) < 200_000:
            publish(publisher, 16, b"x" * 65536)
        assert publisher.call("PUBSUB", "NUMSUB", "c").value[1] == Reply(":", 1)
        eventually(
            lambda: publisher.call("PUBSUB", "NUMSUB", "c").value[1] == Reply(":", 0), what="the end of the client"
        )


def test_a_subscriber_that_catches_up_in_time_is_kept(new_streamd: Callable[..., Server]) -> None:
    """However often, and however long after it was beyond the limit for the first time."""
    server = new_streamd(client_output_buffer_limit="pubsub 0 100kb 6")
    with server.connect() as publisher, subscribe(server) as subscriber:
        for _ in range(2):
            began = time.monotonic()
            # Well beyond the limit: what the kernel takes of the last messages is not known.
            sent = 0
            while unsent(publisher) < 200_000:
                sent += sum(publish(publisher, 16, b"x" * 65536))
            for _ in range(sent):
                assert subscriber.read().value[2].value == b"x" * 65536
            eventually(lambda began=began: time.monotonic() - began > 7, what="more than the limit's time")  # type: ignore[misc]


def test_the_limit_of_subscribers_holds_from_the_subscription_on_and_no_longer(
    new_streamd: Callable[..., Server],
) -> None:
    """A reply beyond the limit of subscribers: a client without subscriptions may have it."""
    server = new_streamd(client_output_buffer_limit="pubsub 1mb 0 0")
    with server.connect(3) as client:
        assert client.call("SET", "k", b"x" * 8 * MB) == Reply("+", b"OK")
        assert len(client.call("GET", "k").value) == 8 * MB
        client.send("SUBSCRIBE", "c")
        client.send("UNSUBSCRIBE", "c")
        assert [client.read().kind for _ in range(2)] == [">", ">"]
        assert len(client.call("GET", "k").value) == 8 * MB
        client.send("SUBSCRIBE", "c")
        assert client.read().kind == ">"
        client.send("GET", "k")
        assert client.read_to_end() == b""


def test_subscribers_are_not_idle(new_streamd: Callable[..., Server]) -> None:
    server = new_streamd(timeout="4")
    with server.connect() as idle, subscribe(server) as subscriber:
        idle.read_to_end()
        with server.connect() as publisher:
            assert publisher.call("PUBLISH", "c", "hello") == Reply(":", 1)
        assert subscriber.read().value[2].value == b"hello"
