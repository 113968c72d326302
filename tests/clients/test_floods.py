"""Floods of connections: whatever they leave behind, the server answers others and gives the memory back."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable

from support.memory import MB, resident
from support.servers import Server, eventually
from support.wire import encode_request

StartServer = Callable[..., Server]

CONNECTIONS = 2000
AT_ONCE = 100
HALF = b"*2\r\n$3\r\nGET\r\n$100000\r\n" + b"x" * 20_000
ALLOWED = 16 * MB
"""What a server may keep of a flood: blocks for the next connections, pages that its heap has not given back."""
READERS = 20


def stat(server: Server, section: str, name: str) -> int:
    with server.connect(timeout_s=60) as wire:
        match = re.search(rb"%s:(\d+)" % name.encode(), wire.call("INFO", section).value)
    assert match is not None
    return int(match[1])


def alone(server: Server) -> bool:
    return stat(server, "clients", "connected_clients") == 1


def is_as_before(server: Server, before: int) -> None:
    """Nobody is left, others are answered, and the memory is back."""
    eventually(lambda: alone(server), timeout_s=60, what="the end of all connections")
    eventually(lambda: resident(server) < before + ALLOWED, timeout_s=60, what="the memory")
    with server.connect(timeout_s=60) as wire:
        assert wire.call("PING").value == b"PONG"


def test_connections_that_send_half_a_request_and_vanish(new_streamd: StartServer) -> None:
    server = new_streamd()
    before = resident(server)
    for _ in range(CONNECTIONS // AT_ONCE):
        wires = [server.connect(timeout_s=60) for _ in range(AT_ONCE)]
        for wire in wires:
            wire.send_bytes(HALF)
        for wire in wires:
            wire.close()
    is_as_before(server, before)


def test_connections_beyond_maxclients(new_streamd: StartServer) -> None:
    server = new_streamd(maxclients="10")
    before = resident(server)
    inside = [server.connect(timeout_s=60) for _ in range(10)]
    for wire in inside:
        wire.call("PING")
    for _ in range(CONNECTIONS // AT_ONCE):
        for wire in [server.connect(timeout_s=60) for _ in range(AT_ONCE)]:
            assert wire.read_to_end() == b"-ERR max number of clients reached\r\n"
            wire.close()
    for wire in inside:
        assert wire.call("PING").value == b"PONG"
        wire.close()
    is_as_before(server, before)


def test_subscribers_that_do_not_read(new_streamd: StartServer) -> None:
    server = new_streamd(client_output_buffer_limit="pubsub 1mb 0 0")
    before = resident(server)
    slow = [server.connect(timeout_s=60) for _ in range(READERS)]
    for wire in slow:
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        wire.call("SUBSCRIBE", "c")
    message = encode_request(("PUBLISH", "c", b"x" * 100_000))
    with server.connect(timeout_s=60) as wire:
        for _ in range(100):
            wire.send_bytes(message)
            wire.read()
            assert resident(server) < before + READERS * 2 * MB + ALLOWED
    assert stat(server, "stats", "client_output_buffer_limit_disconnections") == READERS
    is_as_before(server, before)
    for wire in slow:
        wire.close()
