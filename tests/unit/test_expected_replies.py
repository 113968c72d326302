"""Replies that are the expected ones are dropped unread; any others are read as always (`Connection.expect`)."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from streamd.client import wire
from streamd.client.client_errors import ServerError, UnreachableError
from streamd.client.connection import Connection

QUEUED = b"+QUEUED\r\n"


@pytest.fixture
def ends() -> Iterator[tuple[Connection, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Connection("127.0.0.1:6379", ours), theirs


def test_replies_are_dropped_wherever_they_are_cut(
    ends: tuple[Connection, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, server = ends
    for size in range(1, len(QUEUED) * 3 + 4):
        monkeypatch.setattr(wire, "RECEIVE_BYTES", size)
        server.sendall(QUEUED * 3 + b":7\r\n")
        assert connection.expect(QUEUED * 3)
        assert connection.replies(1) == [7]


@pytest.mark.parametrize("at", [0, 1, 2])
def test_other_replies_are_read(at: int, ends: tuple[Connection, socket.socket]) -> None:
    connection, server = ends
    parts = [QUEUED] * 3
    parts[at] = b"-ERR refused\r\n"
    server.sendall(b"".join(parts) + b":7\r\n")
    assert not connection.expect(QUEUED * 3)
    *found, last = connection.replies(4, raise_errors=False)
    assert isinstance(found.pop(at), ServerError)
    assert (found, last) == ([b"QUEUED"] * 2, 7)


def test_a_connection_that_ends_is_an_error(ends: tuple[Connection, socket.socket]) -> None:
    connection, server = ends
    server.sendall(QUEUED)
    server.close()
    with pytest.raises(UnreachableError, match="6379 broke: it was closed by the server"):
        connection.expect(QUEUED * 3)
