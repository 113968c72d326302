"""FLUSHALL and FLUSHDB of large databases: who waits until the memory has been given up, and what is counted."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.servers import Server, eventually
from support.wire import Reply, Wire

pytestmark = pytest.mark.long

StartServer = Callable[..., Server]

KEYS = 50_000


def lazyfree(wire: Wire) -> dict[bytes, int]:
    words = wire.call("INFO", "memory").value.split()
    return {
        name: int(value) for name, _, value in (word.partition(b":") for word in words) if name.startswith(b"lazyfree")
    }


def freed_by(server: Server, request: list[str]) -> tuple[dict[bytes, int], Reply]:
    """What INFO says when the answer has come."""
    with server.connect() as wire:
        wire.call("DEBUG", "POPULATE", KEYS)
        wire.call("CONFIG", "RESETSTAT")
        answer = wire.call(*request, timeout_s=60)
        return lazyfree(wire), answer


@pytest.mark.real
@pytest.mark.parametrize("request_", [["FLUSHALL"], ["FLUSHDB"], ["FLUSHALL", "SYNC"]], ids=" ".join)
def test_a_flush_is_answered_when_everything_is_given_up(
    new_streamd: StartServer, new_redis: StartServer, request_: list[str]
) -> None:
    ours, theirs = (freed_by(start(), request_) for start in (new_streamd, new_redis))
    assert ours == theirs == ({b"lazyfree_pending_objects": 0, b"lazyfreed_objects": KEYS}, Reply("+", b"OK"))


def test_who_does_not_wait_is_answered_at_once_and_all_is_given_up_later(new_streamd: StartServer) -> None:
    server = new_streamd()
    counted, answer = freed_by(server, ["FLUSHALL", "ASYNC"])
    assert answer == Reply("+", b"OK")
    assert counted[b"lazyfree_pending_objects"] + counted[b"lazyfreed_objects"] == KEYS
    with server.connect() as wire:
        eventually(lambda: lazyfree(wire) == {b"lazyfree_pending_objects": 0, b"lazyfreed_objects": KEYS})
        wire.call("DEBUG", "POPULATE", KEYS)
        assert wire.pipeline([["MULTI"], ["FLUSHALL"], ["EXEC"]])[-1].value == (Reply("+", b"OK"),)


def test_others_are_served_while_a_client_waits_for_its_flush(new_streamd: StartServer) -> None:
    server = new_streamd()
    with server.connect() as wire, server.connect() as other:
        number = str(wire.client_id())

        def is_seen_waiting() -> bool:
            """On a busy machine everything may have been given up before anybody asks."""
            wire.call("DEBUG", "POPULATE", 20 * KEYS, timeout_s=60)
            wire.send("FLUSHALL")
            wire.send("PING")
            size, clients, unblocked = other.pipeline([["DBSIZE"], ["INFO", "clients"], ["CLIENT", "UNBLOCK", number]])
            assert unblocked == Reply(":", 0)
            assert [wire.read(60), wire.read(60)] == [Reply("+", b"OK"), Reply("+", b"PONG")]
            assert lazyfree(other)[b"lazyfree_pending_objects"] == 0
            return size == Reply(":", 0) and b"blocked_clients:1\r\n" in clients.value

        eventually(is_seen_waiting)


@pytest.mark.real
@pytest.mark.parametrize(
    "request_", [["XTRIM", "s", "MAXLEN", "1"], ["XADD", "s", "MAXLEN", "1", "*", "f", "v"]], ids=" ".join
)
def test_nodes_that_a_trim_frees_are_not_counted(
    new_streamd: StartServer, new_redis: StartServer, request_: list[str]
) -> None:
    """They are no objects, though many of them are freed out of line."""
    for start in (new_streamd, new_redis):
        with start(**{"stream-node-max-entries": "1"}).connect() as wire:
            wire.pipeline([["XADD", "s", f"1-{n + 1}", "f", "v"] for n in range(500)])
            wire.call(*request_)
            assert wire.call("XLEN", "s") == Reply(":", 1)
            eventually(lambda wire=wire: lazyfree(wire)[b"lazyfree_pending_objects"] == 0)
            assert lazyfree(wire)[b"lazyfreed_objects"] == 0
