"""What a stranger can take from the ports that speak HTTP, without a password: nothing that grows, and no time of others."""

from __future__ import annotations

import gzip
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import pytest
import redis
from support.memory import MB, resident
from support.pages.console import Visitor
from support.servers import Server, eventually, free_port

pytestmark = pytest.mark.long

StartServer = Callable[..., Server]
DEADLINE_S = 100
CROWD = 200
PORTS = ("console", "metrics")


class Place:
    """A server, and the port of its console or its metrics."""

    def __init__(self, new_streamd: StartServer, kind: str, **settings: str) -> None:
        self.port = free_port()
        self.kind = kind
        setting = {"console": "http_port", "metrics": "metrics_port"}[kind]
        self.server = new_streamd(**{setting: str(self.port), **settings})
        self.path = {"console": "/api/session", "metrics": "/metrics"}[kind]
        self.method = {"console": "POST", "metrics": "GET"}[kind]

    def connect(self, address: str = "127.0.0.1") -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), DEADLINE_S, source_address=(address, 0))

    def head(self, *lines: str, host: str = "") -> bytes:
        """The head of a request that the port would answer, with further lines, up to its empty line."""
        own = f"127.0.0.1:{self.port}"
        found = [f"{self.method} {self.path} HTTP/1.1", f"Host: {host or own}"]
        if self.method == "POST":
            found += [f"Origin: http://{own}", "Content-Type: application/json"]
        return "\r\n".join([*found, *lines, "", ""]).encode()

    def is_well(self) -> bool:
        """Whether somebody else is answered."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        connection.request("GET", {"console": "/", "metrics": "/metrics"}[self.kind])
        response = connection.getresponse()
        is_well = response.status == 200 and len(response.read()) > 100
        connection.close()
        return is_well


@pytest.fixture(params=PORTS)
def place(request: pytest.FixtureRequest, new_streamd: StartServer) -> Place:
    return Place(new_streamd, request.param)


def status_of(sock: socket.socket) -> int:
    """The status of the answer to what was sent."""
    with HTTPResponse(sock) as response:
        response.begin()
        response.read()
        return response.status


def ends(sock: socket.socket) -> bool:
    """Wait for the end of a connection."""
    with suppress(ConnectionError):
        while sock.recv(1 << 16):
            pass
    return True


def open_files(server: Server) -> int:
    return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))


# --- Requests ------------------------------------------------------------------------------------------------------------


def test_a_packed_body_is_refused_and_not_unpacked(place: Place) -> None:
    packed = gzip.compress(bytes(300 * MB), 1)
    before = resident(place.server)
    with place.connect() as sock:
        sock.sendall(place.head("Content-Encoding: gzip", f"Content-Length: {len(packed)}"))
        with suppress(ConnectionError):
            sock.sendall(packed)
        assert status_of(sock) in (413, 415)
    # A little one, packed well, is refused as well.
    with place.connect() as sock:
        packed = gzip.compress(bytes(30 * MB))[:50_000]
        sock.sendall(place.head("Content-Encoding: gzip", f"Content-Length: {len(packed)}") + packed)
        assert status_of(sock) == 415
    assert resident(place.server) < before + 10 * MB
    assert place.is_well()


def test_a_body_that_is_too_long_is_refused_before_it_is_sent(place: Place) -> None:
    with place.connect() as sock:
        sock.sendall(place.head("Content-Length: 1000000"))
        assert status_of(sock) == 413
    assert place.is_well()


@pytest.mark.in_turn("kind", "place", 2)
@pytest.mark.parametrize("kind", ["body", "chunks", "headers", "line"])
def test_unfinished_requests_keep_little_memory_and_end(place: Place, kind: str) -> None:
    beginning = {
        "body": place.head("Content-Length: 60000"),
        "chunks": place.head("Transfer-Encoding: chunked") + b"fffff\r\n",
        "headers": place.head()[:-2],
        "line": b"GET /",
    }[kind]
    filling = {"headers": b"".join(b"X-%d: %s\r\n" % (at, b"x" * 8000) for at in range(120))}.get(kind, b"x" * MB)
    before = resident(place.server)
    crowd = [place.connect() for _ in range(CROWD)]
    for sock in crowd:
        sock.sendall(beginning)
    for sock in crowd:
        sock.setblocking(False)
        with suppress(ConnectionError, BlockingIOError):
            sock.send(filling[: 59_000 if kind == "body" else MB])
        sock.settimeout(DEADLINE_S)
    assert place.is_well()
    assert resident(place.server) < before + 60 * MB
    assert all(ends(sock) for sock in crowd)
    for sock in crowd:
        sock.close()
    assert place.is_well()


def test_too_many_headers_are_refused_without_a_word_in_the_log(place: Place) -> None:
    with place.connect() as sock:
        sock.sendall(place.head(*(f"X-{at}: 1" for at in range(500))))
        assert status_of(sock) == 400
    assert place.is_well()
    assert "Traceback" not in place.server.log()


# --- Connections ---------------------------------------------------------------------------------------------------------


def test_an_address_with_many_connections_throws_out_its_own_only(place: Place) -> None:
    with place.connect("127.0.0.9") as other:
        other.sendall(b"GET /no")
        crowd = [place.connect() for _ in range(400)]
        assert place.is_well()
        other.sendall(f"thing HTTP/1.1\r\nHost: 127.0.0.1:{place.port}\r\n\r\n".encode())
        assert status_of(other) in (401, 404)
        for sock in crowd:
            sock.close()


def test_answers_that_nobody_reads_are_not_heaped_up(new_streamd: StartServer) -> None:
    place = Place(new_streamd, "console")
    before = resident(place.server)
    asked = f"GET /uplot/uPlot.iife.min.js HTTP/1.1\r\nHost: 127.0.0.1:{place.port}\r\n\r\n".encode()
    crowd = [place.connect() for _ in range(CROWD)]
    for sock in crowd:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.sendall(asked * 100)  # 5 MB of answers each
    assert place.is_well()
    assert resident(place.server) < before + 60 * MB
    eventually(lambda: open_files(place.server) < CROWD // 2, DEADLINE_S, "the end of connections that nobody reads")
    for sock in crowd:
        sock.close()


# --- Sessions ------------------------------------------------------------------------------------------------------------


def test_logins_without_end_throw_out_nobody_who_uses_the_console(new_streamd: StartServer) -> None:
    place = Place(new_streamd, "console")
    visitor = Visitor(place.port)
    visitor.log_in()
    assert visitor.get("session")["user"] == "default"
    for _ in range(70):
        assert Visitor(place.port).log_in()["user"] == "default"
    assert visitor.get("session")["user"] == "default"
    assert visitor.status == 200
    with redis.Redis(port=place.server.port, decode_responses=True) as client:
        assert len(client.client_list()) <= 65


# --- Scrapes -------------------------------------------------------------------------------------------------------------


def test_scrapes_at_the_same_time_share_one_text(new_streamd: StartServer) -> None:
    place = Place(new_streamd, "metrics")
    fill(place.server, 1000)
    texts: list[str] = []

    def scrape() -> None:
        connection = HTTPConnection("127.0.0.1", place.port, timeout=DEADLINE_S)
        connection.request("GET", "/metrics")
        texts.append(connection.getresponse().read().decode())
        connection.close()

    crowd = [threading.Thread(target=scrape) for _ in range(60)]
    for each in crowd:
        each.start()
    for each in crowd:
        each.join()
    assert len(texts) == len(crowd)
    assert all(text.count("streamd_stream_entries{") == 1000 for text in texts)
    assert "streamd_metrics_scrapes_total" in texts[0]
    made = max(int(float(text.partition("\nstreamd_metrics_scrapes_total ")[2].split()[0])) for text in texts)
    assert made < len(crowd) / 2


def test_scrapes_that_nobody_reads_make_room_and_keep_little_memory(new_streamd: StartServer) -> None:
    place = Place(new_streamd, "metrics")
    fill(place.server, 1000)
    assert place.is_well()
    before = resident(place.server)
    crowd = []
    for _ in range(100):
        sock = place.connect()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.sendall(place.head())
        assert sock.recv(20).startswith(b"HTTP/1.1 200")
        crowd.append(sock)
    assert resident(place.server) < before + 60 * MB
    assert place.is_well()
    for sock in crowd:
        sock.close()


def fill(server: Server, streams: int) -> None:
    with redis.Redis(port=server.port) as client, client.pipeline(transaction=False) as pipe:
        for number in range(streams):
            pipe.xadd(f"stream:{number}", {"a": 1})
            for group in range(5):
                pipe.xgroup_create(f"stream:{number}", f"group:{group}", 0)
        pipe.execute()


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200),
        ("[::1]:9121", 200),
        ("localhost:9121", 200),
        ("streamd:9121", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example:9121", 421),
        ("", 421),
    ],
)
def test_metrics_are_told_to_addresses_and_names_of_this_network_only(
    new_streamd: StartServer, host: str, status: int
) -> None:
    place = Place(new_streamd, "metrics")
    with place.connect() as sock:
        sock.sendall(f"GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert status_of(sock) == status


def test_names_of_the_metrics_can_be_allowed(new_streamd: StartServer) -> None:
    place = Place(new_streamd, "metrics", metrics_hosts="metrics.example")

    def ask(host: str) -> int:
        with place.connect() as sock:
            sock.sendall(f"GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            return status_of(sock)

    assert (ask("Metrics.example:9121"), ask("other.example")) == (200, 421)
    with redis.Redis(port=place.server.port) as client:
        client.config_set("metrics-hosts", "*")
    assert ask("other.example") == 200
    eventually(place.is_well, DEADLINE_S)
