"""`io-threads`: connections on threads. tests/clients/test_sockets.py runs its tests with them, too."""

from __future__ import annotations

import re
import resource
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from support.servers import Server, eventually, find_oracle, start_redis, start_streamd
from support.wire import Argument, Reply, Wire, encode_request

StartServer = Callable[..., Server]

THREADS = 3
SETTINGS = {"io-threads": str(THREADS + 1)}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = start_streamd(tmp_path_factory.mktemp("threads"), SETTINGS)
    yield running
    assert running.is_running, running.log()
    running.end()


def request(*words: Argument) -> bytes:
    return encode_request(words)


def read_to_end(sock: socket.socket) -> bytes:
    found = b""
    while piece := sock.recv(65536):
        found += piece
    return found


def places(wire: Wire) -> list[int]:
    """The thread of each connection, in the order of their IDs."""
    found = {}
    for line in wire.call("CLIENT", "LIST").value.splitlines():
        fields = dict(field.split(b"=", 1) for field in line.split())
        assert b"io-thread" in fields, line
        found[int(fields[b"id"])] = int(fields[b"io-thread"])
    return [found[number] for number in sorted(found)]


def alone(wire: Wire) -> None:
    eventually(lambda: len(places(wire)) == 1, what="all others have gone")


def info(wire: Wire, section: str) -> dict[str, str]:
    lines = wire.call("INFO", section).value.decode().splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def threads_of(server: Server) -> dict[str, Path]:
    return {(task / "comm").read_text().strip(): task for task in Path(f"/proc/{server.process.pid}/task").iterdir()}


def test_connections_are_spread_and_shown_as_in_redis(new_streamd: StartServer, tmp_path: Path) -> None:
    if find_oracle() is None:
        pytest.skip("needs a redis-server")

    def shown(each: Server) -> list[object]:
        with ExitStack() as stack:
            wires = [stack.enter_context(each.connect()) for _ in range(7)]
            for one in wires:
                one.call("PING")
            threads = info(wires[0], "threads")
            return [
                places(wires[0]),
                [re.sub("reads=[1-9].*", "", text) for text in threads.values()],
                list(threads),
                info(wires[0], "server")["io_threads_active"],
                [name for name in info(wires[0], "stats") if name.startswith("io_thread")],
                wires[0].call("CONFIG", "SET", "io-threads", "2"),
                wires[0].call("CONFIG", "GET", "io-threads"),
            ]

    redis = start_redis(tmp_path, SETTINGS)
    try:
        # The first connection to each has seen that the server is ready.
        assert sorted(shown(new_streamd(SETTINGS)), key=str) == sorted(shown(redis), key=str)
    finally:
        redis.end()


def test_what_threads_have_done_is_counted_and_reset(server: Server, wire: Wire) -> None:
    for _ in range(50):
        wire.call("PING")
    stats = info(wire, "stats")
    assert int(stats["io_threaded_reads_processed"]) >= 50
    assert int(stats["io_threaded_writes_processed"]) >= 50
    assert int(stats["total_writes_processed"]) >= 50
    assert info(wire, "threads")["io_thread_0"].startswith("clients=0,reads=0,")
    wire.call("CONFIG", "RESETSTAT")
    assert 1 <= int(info(wire, "stats")["io_threaded_reads_processed"]) < 10


def test_threads_without_work_sleep(server: Server, wire: Wire) -> None:
    alone(wire)
    number = places(wire)[0]
    names = [f"io_thd_{at}" for at in range(1, THREADS + 1) if at != number]
    tasks = threads_of(server)

    def switches() -> list[str]:
        return [line for name in names for line in (tasks[name] / "status").read_text().splitlines() if "ctxt" in line]

    before = switches()
    for _ in range(200):
        wire.call("PING")
    assert switches() == before


def test_unknown_numbers_are_refused_with_the_text_of_redis(tmp_path: Path) -> None:
    for number, text in (
        ("0", "between 1 and 128"),
        ("129", "between 1 and 128"),
        ("x", "couldn't be parsed into an integer"),
    ):
        with pytest.raises(RuntimeError, match=text):
            start_streamd(tmp_path, {"io-threads": number}).end()


def test_where_no_thread_can_serve_the_log_says_so(new_streamd: StartServer) -> None:
    server = new_streamd({"io-threads": "2", "socket-poller": "no"})
    with server.connect() as wire:
        assert places(wire) == [0]
        assert info(wire, "server")["io_threads_active"] == "0"
    assert server.log().count("io-threads has no effect") == 1


def test_everything_written_before_a_shutdown_arrives(new_streamd: StartServer) -> None:
    server = new_streamd(SETTINGS)
    count = 2000
    with server.connect() as other, server.connect() as wire:
        other.call("SUBSCRIBE", "news")
        wire.socket.sendall(request("PUBLISH", "news", "x" * 100) * count + request("SHUTDOWN", "NOSAVE"))
        assert read_to_end(wire.socket) == b":1\r\n" * count
        assert read_to_end(other.socket).count(b"x" * 100) == count
    server.process.wait(60)


@contextmanager
def written(server: Server, data: bytes, replies: int) -> Iterator[None]:
    """Four clients send `data` and await its replies, over and over, until the block ends."""
    done = threading.Event()

    def write() -> None:
        with server.connect() as writer:
            while not done.is_set():
                writer.socket.sendall(data)
                for _ in range(replies):
                    writer.read()

    writers = [threading.Thread(target=write) for _ in range(4)]
    for each in writers:
        each.start()
    try:
        yield
    finally:
        done.set()
        for each in writers:
            each.join()


def test_a_replica_takes_its_connection_home(server: Server, wire: Wire, new_streamd: StartServer) -> None:
    """While others write: nothing that it sends or gets is lost, and its link breaks and is made again."""
    replica = new_streamd({**SETTINGS, "replicaof": f"127.0.0.1 {server.port}"})

    def is_connected() -> bytes:
        return wire.call("CLIENT", "LIST", "TYPE", "replica").value

    with replica.connect() as copy:
        with written(server, request("INCR", "n") * 50, 50):
            for _ in range(4):
                eventually(is_connected, what="the replica is connected")
                wire.call("CLIENT", "KILL", "TYPE", "replica")
                eventually(lambda: info(copy, "replication")["master_link_status"] == "up", what="the link is up")
            eventually(is_connected, what="the replica is connected")
            assert b" flags=S " in is_connected()
            assert b" io-thread=0 " in is_connected()
        count = wire.call("GET", "n")
        assert int(count.value) > 0
        eventually(lambda: copy.call("GET", "n") == count, what="the replica has everything")
    replica.end()


def test_a_child_begins_while_threads_work(server: Server, wire: Wire) -> None:
    """Snapshots under load: the child has the data, and none of the threads."""
    with written(server, request("INCR", "n") * 100, 100):
        for _ in range(10):
            assert wire.call("BGSAVE").value.startswith(b"Background saving started")
            eventually(lambda: info(wire, "persistence")["rdb_bgsave_in_progress"] == "0", what="the child ends")
            assert info(wire, "persistence")["rdb_last_bgsave_status"] == "ok"
    count = wire.call("GET", "n").value
    assert int(count) > 0
    assert int(count) % 100 == 0


def test_one_who_does_not_read_is_closed_while_its_thread_sends(server: Server, wire: Wire) -> None:
    wire.call("SET", "k", "x" * 1_000_000)
    wire.call("CONFIG", "SET", "client-output-buffer-limit", "normal 4mb 0 0")
    try:
        for _ in range(10):
            sock = socket.create_connection(("127.0.0.1", server.port), 60)
            with sock:
                sock.sendall(request("GET", "k") * 100)
                alone(wire)
    finally:
        wire.call("CONFIG", "SET", "client-output-buffer-limit", "normal 0 0 0")
    assert wire.call("STRLEN", "k") == Reply(":", 1_000_000)


def test_clients_that_go_while_a_message_is_sent_to_them(server: Server, wire: Wire) -> None:
    """Subscribers that read, do not read, close and reset, each while its thread has something for it."""
    with ExitStack() as stack:
        faithful = [stack.enter_context(server.connect()) for _ in range(5)]
        for each in faithful:
            each.call("SUBSCRIBE", "news")
        count = 0
        for turn in range(40):
            going = [socket.create_connection(("127.0.0.1", server.port), 60) for _ in range(6)]
            for sock in going:
                sock.sendall(request("SUBSCRIBE", "news"))
            for sock in going[:3]:
                assert sock.recv(1)
            wire.socket.sendall(request("PUBLISH", "news", "m" * 3000) * 20)
            for at, sock in enumerate(going):
                if at % 2:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                sock.close()
            assert [wire.read().kind for _ in range(20)] == [":"] * 20
            count += 20
            if turn % 10 == 9:
                for each in faithful:
                    assert [each.read().value[2] for _ in range(count)] == [Reply("$", b"m" * 3000)] * count
                count = 0
    alone(wire)


def test_pipelines_larger_than_the_rings_wait_for_room(server: Server, wire: Wire) -> None:
    """Requests and replies of one round are several times what a ring holds."""
    value = "v" * 5000
    with ExitStack() as stack:
        several = [stack.enter_context(server.connect()) for _ in range(12)]
        senders = []
        for at, each in enumerate(several):
            data = b"".join(request("ECHO", f"{at}-{number}-{value}") for number in range(1000))
            senders.append(threading.Thread(target=each.socket.sendall, args=(data,)))
        for sender in senders:
            sender.start()
        for at, each in enumerate(several):
            for number in range(1000):
                assert each.read() == Reply("$", f"{at}-{number}-{value}".encode())
        for sender in senders:
            sender.join()


@pytest.mark.long
def test_one_who_sends_much_at_once_is_within_the_limit_of_requests(new_streamd: StartServer) -> None:
    """A client that has to wait is not received from in the same turn, or all would count as one request."""
    count = 1_000_000
    running = new_streamd(SETTINGS | {"client-query-buffer-limit": "1mb"})
    with running.connect() as wire, written(running, request("PING") * count, count):
        assert wire.call("PING").value == b"PONG"


@pytest.mark.parametrize("count", [10_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_many_connections_leave_no_descriptor(count: int, server: Server, wire: Wire) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 3000:
        pytest.skip("needs 3000 descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 3000), hard))
    alone(wire)
    before = len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))
    for turn in range(count // 1000):
        with ExitStack() as stack:
            several = [
                stack.enter_context(socket.create_connection(("127.0.0.1", server.port), 60)) for _ in range(1000)
            ]
            for sock in several:
                sock.sendall(b"PING\r\n")
            if turn % 2:
                assert all(sock.recv(7) for sock in several)
    alone(wire)
    assert places(wire)[0] > 0
    assert len(list(Path(f"/proc/{server.process.pid}/fd").iterdir())) == before
    assert [text.split(",")[0] for text in info(wire, "threads").values()].count("clients=1") == 1
