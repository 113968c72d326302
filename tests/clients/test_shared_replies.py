"""An entry to many waiting readers: a long reply is made once, and held once."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.servers import Server, eventually, free_port, start_streamd
from support.wire import Argument, Reply, Wire, encode, encode_request

StartServer = Callable[..., Server]
Words = tuple[Argument, ...]

PONG = Reply("+", b"PONG")


@pytest.fixture(scope="module", params=["1", "4"], ids=lambda number: f"io-threads {number}")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = start_streamd(tmp_path_factory.mktemp("shared"), {"io-threads": request.param})
    yield running
    assert running.is_running, running.log()
    running.end()


def number_from(wire: Wire, section: str, field: str) -> int:
    found = re.search(rb"\b%b:(\d+)" % field.encode(), wire.call("INFO", section).value)
    assert found is not None
    return int(found[1])


def all_wait(wire: Wire, count: int) -> None:
    eventually(lambda: number_from(wire, "clients", "blocked_clients") == count, what=f"{count} clients wait")


def read(*words: Argument, options: Words = ()) -> Words:
    return ("XREAD", *options, "BLOCK", 0, "STREAMS", *words)


@pytest.mark.parametrize("size", [10, 2000, 2048, 5000, 200_000])
def test_each_reader_gets_what_it_asked_for(server: Server, wire: Wire, size: int) -> None:
    """Those that wait after the same ID, in one protocol or another, and others among them."""
    wire.call("XADD", "s", "1-1", "f", "first")
    wire.call("XADD", "s", "2-1", "f", "second")
    wire.call("XADD", "other", "1-1", "f", "first")
    asked: list[Words] = [
        read("s", "$"),
        read("s", "2-1"),
        read("s", "3-1"),
        read("s", "3-4"),       # waits on
        read("s", "$", options=("COUNT", 1)),
        read("s", "$", options=("COUNT", 2)),
        read("s", "$", options=("COUNT", 9)),
        read("s", "other", "$", "$"),
        read("s", "s", "$", "$"),
        read("other", "$"),     # waits on
    ]  # fmt: skip
    with ExitStack() as stack:
        readers = []
        for words in asked * 3:
            for protocol in (2, 3):
                one = stack.enter_context(server.connect())
                one.call("HELLO", protocol)
                one.send_bytes(encode_request(words) + encode_request(("PING",)))
                readers.append((one, protocol, words))
        all_wait(wire, len(readers))
        wire.send_bytes(
            encode_request(("MULTI",))
            + b"".join(encode_request(("XADD", "s", f"3-{n}", "f", f"{n}" * size)) for n in (1, 2, 3))
            + encode_request(("EXEC",))
        )
        assert [wire.read().kind for _ in range(5)] == ["+", "+", "+", "+", "*"]
        for one, protocol, words in readers:
            if words in (read("s", "3-4"), read("other", "$")):
                continue
            at_once = [word if word != "$" else "2-1" for word in words if word not in ("BLOCK", 0)]
            wire.call("HELLO", protocol)
            assert one.read() == wire.call(*at_once), words
            assert one.read() == PONG
        wire.call("HELLO", 2)
        all_wait(wire, 12)


def test_a_reader_without_replies_gets_none(server: Server, wire: Wire) -> None:
    with ExitStack() as stack:
        readers = [stack.enter_context(server.connect()) for _ in range(4)]
        for at, one in enumerate(readers):
            before = encode_request(("CLIENT", "REPLY", "SKIP")) if at % 2 else b""
            one.send_bytes(before + encode_request(read("s", "$")) + encode_request(("PING",)))
        all_wait(wire, 4)
        wire.call("XADD", "s", "1-1", "f", "x" * 5000)
        for at, one in enumerate(readers):
            if not at % 2:
                assert one.read() == wire.call("XREAD", "STREAMS", "s", "0")
            assert one.read() == PONG


def test_readers_with_tls(new_streamd: StartServer, certificate: Path) -> None:
    """Their bytes are encrypted for each of them."""
    port = free_port()
    server = new_streamd(
        {
            "tls-port": str(port),
            "tls-cert-file": str(certificate),
            "tls-key-file": str(certificate),
            "tls-auth-clients": "no",
        }
    )
    context = ssl.create_default_context(cafile=str(certificate))
    with ExitStack() as stack:
        wire = stack.enter_context(server.connect())
        readers = []
        for _ in range(4):
            plain = stack.enter_context(socket.create_connection(("127.0.0.1", port), 60))
            readers.append(stack.enter_context(context.wrap_socket(plain, server_hostname="localhost")))
        for one in readers:
            one.sendall(encode_request(read("s", "$")) + encode_request(("PING",)))
        all_wait(wire, 4)
        wire.call("XADD", "s", "1-1", "f", "x" * 5000)
        expected = encode(wire.call("XREAD", "STREAMS", "s", "0")) + encode(PONG)
        for one in readers:
            got = b""
            while len(got) < len(expected):
                got += one.recv(65536)
            assert got == expected


def test_an_entry_to_readers_that_do_not_read_is_held_once(server: Server, wire: Wire) -> None:
    size = 10_000_000
    with ExitStack() as stack:
        readers = [stack.enter_context(server.connect()) for _ in range(20)]
        for one in readers:
            one.send(*read("s", "$"))
        all_wait(wire, 20)
        before = number_from(wire, "memory", "used_memory")
        wire.call("XADD", "s", "1-1", "f", "x" * size)
        assert number_from(wire, "memory", "used_memory") - before < 5 * size  # the stream, the first reader, the rest
        assert wire.call("CLIENT", "LIST").value.count(b"omem=0 ") == 1
        for one in readers:
            assert one.read().value[0].value[1].value[0].value[1].value[1].value == b"x" * size
    eventually(lambda: number_from(wire, "memory", "used_memory") - before < 1.2 * size, what="it is freed")
