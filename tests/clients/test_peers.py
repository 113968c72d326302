"""Peers that are slow, rude or gone: what they do to a server, and what is left of them afterwards."""

from __future__ import annotations

import socket
import struct
from contextlib import ExitStack
from threading import Thread

import pytest
from support.servers import Server, eventually
from support.wire import Wire, encode_request


def info(wire: Wire, field: str) -> int:
    text = wire.call("INFO", "everything").value
    return int(next(line for line in text.splitlines() if line.startswith(field.encode() + b":")).partition(b":")[2])


def reset_connection(wire: Wire) -> None:
    """Close with a RST instead of a FIN."""
    wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wire.close()


def accessed_at(wire: Wire, key: str) -> bytes:
    """When a key was last used, as DEBUG OBJECT tells it."""
    text = wire.call("DEBUG", "OBJECT", key).value
    return bytes(text.partition(b"lru:")[2].split()[0])


# --- CLIENT NO-TOUCH ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "requests",
    [
        [("CLIENT", "NO-TOUCH", "ON"), ("CLIENT", "NO-TOUCH", "OFF")],
        [("CLIENT", "NO-TOUCH", "ON"), ("RESET",)],
        [("CLIENT", "NO-TOUCH", "ON"), ("SELECT", "1"), ("SELECT", "0")],
    ],
    ids=["switched off", "reset", "another database"],
)
def test_no_touch_of_one_connection_is_nothing_to_others(server: Server, requests: list[tuple[str, ...]]) -> None:
    with server.connect() as wire, server.connect() as other:
        wire.call("SET", "key", "value")
        before = accessed_at(wire, "key")
        other.pipeline(requests)

        def is_touched() -> bool:
            wire.call("GET", "key")
            return accessed_at(wire, "key") != before

        eventually(is_touched, what="an access")  # seconds are counted


# --- CLIENT REPLY ---------------------------------------------------------------------------------------------------


def test_reply_off_hides_a_protocol_error_too(streamd_server: Server) -> None:
    # Redis says nothing either, but keeps the connection open for ever.
    with streamd_server.connect() as wire:
        wire.send_bytes(encode_request(["CLIENT", "REPLY", "OFF"]) + b"*1\r\n$x\r\n")
        assert wire.read_to_end() == b""


@pytest.mark.parametrize("mode", ["OFF", "SKIP"])
def test_a_wait_is_silent_too(server: Server, mode: str) -> None:
    with server.connect() as wire, server.connect() as writer:
        blocked = info(writer, "blocked_clients")
        wire.send_bytes(
            encode_request(["CLIENT", "REPLY", mode])
            + encode_request(["XREAD", "BLOCK", "0", "STREAMS", "stream", "$"])
            + encode_request(["CLIENT", "REPLY", "ON"])
            + encode_request(["ECHO", "end"])
        )
        eventually(lambda: info(writer, "blocked_clients") == blocked + 1)
        writer.call("XADD", "stream", "*", "field", "value")
        assert [wire.read().value, wire.read().value] == [b"OK", b"end"]


# --- Long pipelines -------------------------------------------------------------------------------------------------

FAIR = 5
"""What another client must see of a pipeline at least. Run in one go, it would be two values; how many more depends also on how often
the system lets that client run, so it may be another pipeline's turn."""
PIPELINES = 20


def test_others_are_served_while_a_long_pipeline_is_run(server: Server) -> None:
    # 32 bytes, so that a piece which the event loop reads ends with a request.
    key = "counter-abc"
    request = encode_request(["INCR", key])
    assert len(request) == 32
    count = 200_000
    with server.connect() as busy, server.connect() as other:

        def send() -> None:
            busy.socket.sendall(b"CLIENT REPLY OFF\r\n" + request * count)

        def values_seen(end: int) -> int:
            sender = Thread(target=send)
            sender.start()
            seen = set()
            while (value := other.call("GET", key).value) != b"%d" % end:
                seen.add(value)
            sender.join()
            return len(seen)

        busy.socket.settimeout(100)
        assert any(values_seen(turn * count) >= FAIR for turn in range(1, PIPELINES + 1))


def test_refused_requests_use_up_the_share_of_a_turn_too(streamd_server: Server) -> None:
    count = 200_000
    with streamd_server.connect() as busy, streamd_server.connect() as other:

        def values_seen() -> int:
            wanted = info(other, "total_error_replies") + count
            sender = Thread(target=lambda: busy.socket.sendall(b"CLIENT REPLY OFF\r\n" + b"NOSUCH\r\n" * count))
            sender.start()
            seen = set()
            while (value := info(other, "total_error_replies")) < wanted:
                seen.add(value)
            sender.join()
            return len(seen)

        busy.socket.settimeout(100)
        assert any(values_seen() >= FAIR for _ in range(PIPELINES))


def test_the_end_of_input_cuts_no_long_pipeline(streamd_server: Server) -> None:
    count = 100_000
    with streamd_server.connect(timeout_s=100) as wire:
        reader = Thread(target=lambda: (wire.send_bytes(b"PING\r\n" * count), wire.socket.shutdown(socket.SHUT_WR)))
        reader.start()
        assert len(wire.read_to_end()) == count * len(b"+PONG\r\n")
        reader.join()


# --- Connections that end badly -------------------------------------------------------------------------------------


def test_nothing_is_left_of_connections_that_were_reset(server: Server) -> None:
    beginnings = (
        encode_request(["XREAD", "BLOCK", "0", "STREAMS", "none", "stream", "$", "$"]),
        encode_request(["XREADGROUP", "GROUP", "g", "c", "BLOCK", "0", "STREAMS", "stream", ">"]) * 2,
        encode_request(["XADD", "stream", "*", "field", "value"])[:20],
        b"*3\r\n$1000000\r\nabc",
        b"PING\r\n" * 5000,
        b"",
    )
    with server.connect() as wire:
        wire.call("XGROUP", "CREATE", "stream", "g", "$", "MKSTREAM")
        clients = info(wire, "connected_clients")
        for number in range(200):
            peer = server.connect()
            peer.send_bytes(beginnings[number % len(beginnings)])
            (reset_connection if number % 2 else Wire.close)(peer)
        eventually(lambda: info(wire, "connected_clients") <= clients)
        eventually(lambda: info(wire, "blocked_clients") == info(wire, "total_blocking_keys") == 0)


def test_many_waiting_for_a_group_all_hear_that_it_is_gone(server: Server) -> None:
    with server.connect() as wire, ExitStack() as stack:
        wire.call("XGROUP", "CREATE", "stream", "g", "$", "MKSTREAM")
        readers = [stack.enter_context(server.connect()) for _ in range(200)]
        for reader in readers:
            reader.send("XREADGROUP", "GROUP", "g", "c", "BLOCK", "0", "STREAMS", "stream", ">")
        eventually(lambda: info(wire, "blocked_clients") == len(readers))
        wire.call("XGROUP", "DESTROY", "stream", "g")
        assert all(reader.read().value.startswith(b"NOGROUP") for reader in readers)
        assert info(wire, "total_blocking_keys") == 0


def test_killing_everybody_reaches_those_that_wait_and_the_one_that_asks(server: Server) -> None:
    with server.connect() as wire, ExitStack() as stack:
        readers = [stack.enter_context(server.connect()) for _ in range(20)]
        for reader in readers:
            reader.send("XREAD", "BLOCK", "0", "STREAMS", "stream", "$")
        eventually(lambda: info(wire, "blocked_clients") == len(readers))
        assert wire.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no").value >= 21
        assert wire.read_to_end() == b""
        assert all(reader.read_to_end() == b"" for reader in readers)
    with server.connect() as wire:
        assert info(wire, "blocked_clients") == info(wire, "total_blocking_keys") == 0
