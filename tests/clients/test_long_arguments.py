"""Long arguments: with `io-threads` they are received where they stay, and handed to the thread that runs commands."""

from __future__ import annotations

import random
import re
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support.servers import Server, eventually, start_streamd
from support.wire import Argument, ConnectionClosed, Reply, Wire, encode_request

StartServer = Callable[..., Server]

LONG = 32768
OK = Reply("+", b"OK")


@pytest.fixture(scope="module", params=["1", "2", "4"], ids=lambda number: f"io-threads {number}")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = start_streamd(tmp_path_factory.mktemp("long"), {"io-threads": request.param})
    yield running
    assert running.is_running, running.log()
    running.end()


def request(*words: Argument) -> bytes:
    return encode_request(words)


def noise(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


class Sender:
    """Another connection, whose bytes arrive in the pieces in which they are sent."""

    def __init__(self, server: Server, wire: Wire) -> None:
        self.watcher = wire
        self.wire = server.connect()
        self.number = self.wire.call("CLIENT", "ID").value
        self.before = int(self.shown()["tot-net-in"])
        self.sent = 0

    def __enter__(self) -> Sender:
        return self

    def __exit__(self, *_: object) -> None:
        self.wire.socket.close()

    def shown(self) -> dict[str, str]:
        line = self.watcher.call("CLIENT", "LIST", "ID", self.number).value.decode()
        return dict(field.split("=", 1) for field in line.split())

    def send(self, *pieces: bytes) -> None:
        """Send each piece, but not before the server has those before it."""
        for piece in pieces:
            self.wire.socket.sendall(piece)
            self.sent += len(piece)
            eventually(lambda: int(self.shown()["tot-net-in"]) == self.before + self.sent, what="it is received")


def is_gone(sender: Sender) -> bool:
    return not sender.watcher.call("CLIENT", "LIST", "ID", sender.number).value


def used(wire: Wire) -> int:
    found = re.search(rb"used_memory:(\d+)", wire.call("INFO", "memory").value)
    assert found is not None
    return int(found[1])


def test_an_argument_may_be_cut_anywhere(server: Server, wire: Wire) -> None:
    value = noise(LONG + 700)
    data = request("SET", "key", value) + request("STRLEN", "key")
    head = data.index(value)
    cuts = {*range(1, head + 3), head + LONG, *range(head + len(value) - 3, len(data)), *range(0, len(data), 3001)}
    with Sender(server, wire) as sender:
        for cut in sorted(cuts - {0, len(data)}):
            sender.send(data[:cut])
            sender.wire.socket.sendall(data[cut:])
            sender.sent += len(data) - cut
            assert [sender.wire.read(), sender.wire.read()] == [OK, Reply(":", len(value))], cut
            assert wire.call("GETDEL", "key").value == value, cut


def test_an_argument_in_many_pieces(server: Server, wire: Wire) -> None:
    value = noise(3 << 20)
    data = request("MSET", "a", value, "b", "short", "c", value[:LONG], "d", value[: LONG - 1]) + request("PING")
    cuts = sorted(random.Random(2).sample(range(1, len(data)), 40))
    with Sender(server, wire) as sender:
        sender.send(*(data[at:to] for at, to in zip([0, *cuts], [*cuts, len(data)], strict=True)))
        assert [sender.wire.read(), sender.wire.read()] == [OK, Reply("+", b"PONG")]
    assert wire.call("MGET", "a", "b", "c", "d").plain() == [value, b"short", value[:LONG], value[: LONG - 1]]


def test_requests_before_and_after_long_arguments(server: Server, wire: Wire) -> None:
    """Pipelines of arguments of all lengths, the longest one last or not, in pieces as the system delivers them."""
    dice = random.Random(3)
    lengths = [0, 1, 100, 5000, LONG - 1, LONG, LONG + 1, 65536, 100_000, 300_000, 1_100_000]
    with server.connect() as other:
        for _ in range(30):
            values = [noise(dice.choice(lengths), seed) for seed in range(dice.randrange(1, 12))]
            data = b"".join(
                request("PING") * dice.randrange(3) + request("SET", f"key{at}", value, "EX", "1000")
                for at, value in enumerate(values)
            )
            other.socket.sendall(data + request("ECHO", "end"))
            while (reply := other.read()) != Reply("$", b"end"):
                assert reply in (OK, Reply("+", b"PONG"))
            assert wire.call("MGET", *(f"key{at}" for at in range(len(values)))).plain() == values


def test_what_is_received_of_an_argument_is_shown_and_counted(server: Server, wire: Wire) -> None:
    with Sender(server, wire) as sender:
        before = used(wire)
        sender.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$900000\r\n", b"x" * 800_000)
        shown = sender.shown()
        assert int(shown["qbuf"]) == 800_000
        assert 800_000 < int(shown["tot-mem"]) < 2_000_000
        assert 800_000 < used(wire) - before < 2_000_000
        sender.send(b"x" * 100_000 + b"\r\n")
        assert sender.wire.read() == OK
        assert sender.shown()["qbuf"] == "0"
        assert 900_000 < used(wire) - before < 1_000_000
        assert 900_000 < wire.call("MEMORY", "USAGE", "k").value < 1_000_000
    wire.call("DEL", "k")
    eventually(lambda: used(wire) - before < 50_000, what="its memory is free")


@pytest.mark.parametrize("end", ["close", "reset", "half-close", "kill"])
@pytest.mark.parametrize("received", [0, 1000, 700_000])
def test_a_client_that_goes_in_the_middle_of_an_argument(server: Server, wire: Wire, end: str, received: int) -> None:
    before = used(wire)
    for _ in range(5):
        with Sender(server, wire) as sender:
            sender.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$900000\r\n" + b"x" * received)
            if end == "kill":
                wire.call("CLIENT", "KILL", "ID", sender.number)
            elif end == "half-close":
                sender.wire.socket.shutdown(socket.SHUT_WR)
            elif end == "reset":
                sender.wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if end in ("close", "reset"):
                sender.wire.socket.close()
            eventually(lambda gone=sender: is_gone(gone), what="it has gone")
    eventually(lambda: used(wire) - before < 50_000, what="its memory is free")
    assert wire.call("EXISTS", "k").value == 0


def test_what_was_received_of_an_argument_is_freed(server: Server, wire: Wire) -> None:
    """Of clients that go, and of one whose request waits; and what has become a value."""

    def resident_kib() -> int:
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{server.process.pid}/status").read_text())
        assert found is not None
        return int(found[1])

    def spend() -> None:
        for _ in range(30):
            with Sender(server, wire) as sender:
                sender.send(request("SET", "k", b"x" * 900_000))
                assert sender.wire.read() == OK
                sender.send(request("BLPOP", "queue", "0") + request("SET", "k", b"x" * 900_000)[:700_000])
            with Sender(server, wire) as sender:
                sender.send(request("SET", "k", b"x" * 900_000)[:700_000])
        eventually(lambda: wire.call("CLIENT", "LIST").value.count(b"\n") == 1, what="they have gone")

    spend()
    before = resident_kib()
    spend()
    assert resident_kib() - before < 10_000


def test_an_argument_beyond_the_limit_of_requests(server: Server, wire: Wire) -> None:
    wire.call("CONFIG", "SET", "client-query-buffer-limit", "1mb")
    try:
        with server.connect() as other:
            other.socket.sendall(b"*2\r\n$4\r\nECHO\r\n$900000\r\n" + b"x" * 900_000 + b"\r\n")
            assert len(other.read().value) == 900_000
            with suppress(ConnectionClosed, OSError):
                other.socket.sendall(b"*2\r\n$4\r\nECHO\r\n$50000000\r\n" + b"x" * 40_000_000)
                pytest.fail(str(other.read()))
        assert b"client_query_buffer_limit_disconnections:0\r\n" not in wire.call("INFO", "stats").value
    finally:
        wire.call("CONFIG", "SET", "client-query-buffer-limit", "1gb")


def test_an_argument_longer_than_is_allowed(server: Server, wire: Wire) -> None:
    wire.call("CONFIG", "SET", "proto-max-bulk-len", "1mb")
    try:
        with server.connect() as other:
            other.socket.sendall(b"*2\r\n$4\r\nECHO\r\n$1048577\r\n" + b"x" * 1000)
            assert other.read() == Reply("-", b"ERR Protocol error: invalid bulk length")
    finally:
        wire.call("CONFIG", "SET", "proto-max-bulk-len", "512mb")


def test_a_stranger_sends_no_long_argument(new_streamd: StartServer) -> None:
    server = new_streamd({"io-threads": "4", "requirepass": "secret"})
    with server.connect() as other:
        other.socket.sendall(b"*3\r\n$4\r\nAUTH\r\n$7\r\ndefault\r\n$100000\r\n" + b"x" * 100_000)
        assert other.read() == Reply("-", b"ERR Protocol error: unauthenticated bulk length")


def test_bytes_of_an_argument_that_look_like_requests(server: Server, wire: Wire) -> None:
    """A thread that sees only them must not wait for what they announce."""
    value = b"*1\r\n$100000\r\n" + noise(50_000)
    with Sender(server, wire) as sender:
        for _ in range(3):
            # The header is cut, so that nobody but the parser can know that an argument follows.
            sender.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$50", b"013\r\n", value + b"\r\n")
            assert sender.wire.read() == OK
            assert wire.call("GETDEL", "k").value == value
            sender.send(
                b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$50",
                b"013\r\n",
                *(value[at : at + 9000] for at in range(0, 50_013, 9000)),
                b"\r\n",
            )
            assert sender.wire.read() == OK
            assert wire.call("GETDEL", "k").value == value


def test_a_long_argument_behind_a_request_that_waits(server: Server, wire: Wire) -> None:
    value = noise(200_000)
    with Sender(server, wire) as sender:
        sender.send(request("BLPOP", "queue", "0") + request("SET", "k", value)[:40_000])
        sender.send(request("SET", "k", value)[40_000:] + request("PING"))
        assert wire.call("EXISTS", "k").value == 0
        wire.call("RPUSH", "queue", "job")
        assert [sender.wire.read().kind, sender.wire.read(), sender.wire.read()] == ["*", OK, Reply("+", b"PONG")]
        assert wire.call("GET", "k").value == value
    with Sender(server, wire) as sender:
        sender.send(request("BLPOP", "queue", "0") + request("SET", "k", value)[:40_000])
        sender.wire.socket.close()
        eventually(lambda: is_gone(sender), what="it has gone")


def test_long_arguments_of_a_transaction_and_a_pause(server: Server, wire: Wire) -> None:
    value = noise(200_000)
    with server.connect() as other:
        other.socket.sendall(
            request("MULTI") + request("APPEND", "k", value) * 3 + request("STRLEN", "k") + request("EXEC")
        )
        replies = [other.read() for _ in range(6)]
        assert replies[-1].plain() == [200_000, 400_000, 600_000, 600_000]
        wire.call("CLIENT", "PAUSE", "100", "WRITE")
        other.socket.sendall(request("SET", "k", value) * 3)
        assert [other.read() for _ in range(3)] == [OK] * 3
    assert wire.call("GET", "k").value == value


def test_a_replica_that_is_in_the_middle_of_an_argument(server: Server, wire: Wire) -> None:
    """Its connection goes back to the thread of the loop, with what its own thread has received of the argument.

    A replica that asks for a reply is disconnected, so its request has arrived complete.
    """
    value = noise(200_000)
    data = request("PSYNC", "?", "-1") + request("ECHO", value)
    with Sender(server, wire) as sender:
        sender.wire.socket.sendall(data[:90_000])
        eventually(lambda: "flags" in sender.shown() and "S" in sender.shown()["flags"], what="it is a replica")
        sender.wire.socket.sendall(data[90_000:])
        eventually(lambda: is_gone(sender), what="it has gone")
