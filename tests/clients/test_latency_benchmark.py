"""The latency test against running servers: every message is accounted for, delays are those that there were.

How long a server takes is not for tests: where a delay is looked at, the server is one whose replies the test gives.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import hiredis
import pytest
import redis
from click.testing import CliRunner
from support.servers import Server, eventually

from benchmarks.latency import Load, Target, main, measure

pytestmark = [pytest.mark.long, pytest.mark.skipif(shutil.which("cc") is None, reason="the load needs a C compiler")]

LOAD = Load(rate=1000, seconds=0.5, producers=3, consumers=2)
MESSAGES = 500
ROOT = Path(__file__).parents[2]
COUNTED = 250
MS = 1_000_000


@pytest.fixture(params=[2, 3])
def target(request: pytest.FixtureRequest, streamd_server: Server) -> Iterator[Target]:
    made = Target("streamd", f"redis://127.0.0.1:{streamd_server.port}/0?protocol={request.param}")
    made.rounds["new"] = []
    yield made
    made.clean_up()


def test_every_message_is_read_once_and_acknowledged(target: Target) -> None:
    key = target.make_group("new", 0)
    for rounds in (1, 2):
        done = measure(target, key, LOAD)
        assert len(done.delays_ns) == len(done.lateness_ns) == COUNTED
        assert min(done.delays_ns) > 0
        assert min(done.lateness_ns) >= 0
        assert target.client.xlen(key) == rounds * MESSAGES
        group = target.client.xinfo_groups(key)[0]
        assert (group["pending"], group["lag"], group["entries-read"]) == (0, 0, rounds * MESSAGES)


def test_connections_may_be_made_over_and_over(target: Target) -> None:
    key = target.make_group("new", 0)
    for _ in range(3):
        measure(target, key, Load(rate=1000, seconds=0.01, producers=20, consumers=20))
    assert target.client.xlen(key) == 30


def test_messages_hold_the_times_they_were_due_at(target: Target) -> None:
    key = target.make_group("new", 0)
    measure(target, key, LOAD)
    times = sorted(int(fields[b"t"]) for _, fields in target.client.xrange(key))
    assert {later - earlier for earlier, later in pairwise(times)} == {MS}


def test_without_acknowledging_all_stay_pending(target: Target) -> None:
    key = target.make_group("new", 12_345)
    measure(target, key, Load(rate=1000, seconds=0.5, acks=False, may_spin=False))
    pending = target.client.xpending(key, "workers")
    assert pending["pending"] == 12_345 + MESSAGES
    assert {each["name"] for each in pending["consumers"]} > {b"gone"}


class HoldingServer:
    """A server that answers nothing but what opens a connection until `expected` XADDs have come from all connections,
    then each of them, and one XREADGROUP with all messages in one reply; of the next ones it answers none."""

    def __init__(self, expected: int) -> None:
        self._expected = expected
        self._lock = threading.Lock()
        self._adds: list[tuple[socket.socket, bytes]] = []  # who has sent it, the time that it holds
        self._readers: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._socks: list[socket.socket] = []
        self._is_over = False
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0?protocol=2"

    def close(self) -> None:
        self._is_over = True
        socket.create_connection(self._listener.getsockname()).close()  # wakes the one that accepts
        self._threads[0].join()
        for sock in self._socks:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join()
        for sock in (self._listener, *self._socks):
            sock.close()

    def _accept(self) -> None:
        while not self._is_over:
            sock, _ = self._listener.accept()
            self._socks.append(sock)
            self._threads.append(threading.Thread(target=self._serve, args=(sock,)))
            self._threads[-1].start()

    def _serve(self, sock: socket.socket) -> None:
        reader = hiredis.Reader()
        with suppress(OSError):
            while got := sock.recv(1 << 16):
                reader.feed(got)
                while (request := reader.gets()) is not False:
                    with self._lock:
                        self._handle(sock, request)

    def _handle(self, sock: socket.socket, request: list[bytes]) -> None:
        if request[0] == b"XADD":
            self._adds.append((sock, request[-1]))
        elif request[0] == b"XREADGROUP":
            self._readers.append(sock)
        elif request[0] == b"XACK":
            sock.sendall(b":%d\r\n" % (len(request) - 3))
        else:
            sock.sendall(b"+OK\r\n")
        if self._readers and len(self._adds) == self._expected:
            entries = b"".join(
                b"*2\r\n$%d\r\n%d-0\r\n*2\r\n$1\r\nt\r\n$%d\r\n%b\r\n" % (len(str(at)) + 2, at, len(due), due)
                for at, (_, due) in enumerate(self._adds)
            )
            self._readers[0].sendall(b"*1\r\n*2\r\n$1\r\ns\r\n*%d\r\n%b" % (len(self._adds), entries))
            for producer, _ in self._adds:
                producer.sendall(b"$3\r\n1-0\r\n")
            self._adds.clear()


@pytest.fixture
def holding_server() -> Iterator[HoldingServer]:
    server = HoldingServer(MESSAGES)
    yield server
    server.close()


def test_messages_that_wait_count_from_when_they_were_due(holding_server: HoldingServer) -> None:
    # All are sent though none is answered, and all are read at one time: each has waited for a millisecond less than the
    # one before it, however late it was sent, and the first for longer than all the others took to become due.
    target = Target("holding", holding_server.url)
    done = measure(target, "s", LOAD)
    assert len(done.delays_ns) == COUNTED
    assert {earlier - later for earlier, later in pairwise(done.delays_ns)} == {MS}
    assert done.delays_ns[0] > (COUNTED - 1) * MS
    assert done.per_read == MESSAGES
    target.client.close()


def test_what_the_server_refuses_ends_the_run(target: Target) -> None:
    target.client.set(target.prefix + "new", "no stream")
    with pytest.raises(RuntimeError, match="the server answered -WRONGTYPE"):
        measure(target, target.prefix + "new", LOAD)


def test_a_unix_socket_is_measured_too(
    new_streamd: Callable[..., Server], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("s") / "s"
    new_streamd(unixsocket=str(path), requirepass="secret")
    target = Target("unix", f"unix://default:secret@{path}?db=3")
    target.rounds["new"] = []
    key = target.make_group("new", 0)
    measure(target, key, LOAD)
    assert target.client.xlen(key) == MESSAGES
    target.clean_up()


class WatchedTarget(Target):
    """Notes which threads there are when its connections are closed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.threads: set[str] = set()

    def connect(self) -> redis.connection.AbstractConnection:
        connection = super().connect()
        disconnect = connection.disconnect

        def noted() -> None:
            self.threads |= {thread.name for thread in threading.enumerate()}
            disconnect()

        connection.disconnect = noted
        return connection


def test_whatever_a_signal_raises_the_load_has_ended_before_its_connections_are_closed(streamd_server: Server) -> None:
    class Interruption(BaseException):
        pass

    def interrupt(number: int, frame: object) -> None:
        raise Interruption

    def wait_for_messages() -> None:
        with redis.Redis(port=streamd_server.port) as client:
            eventually(lambda: client.xlen(key) > 10, 60, "a message")
        os.kill(os.getpid(), signal.SIGUSR1)

    target = WatchedTarget("streamd", f"redis://127.0.0.1:{streamd_server.port}")
    target.rounds["new"] = []
    key = target.make_group("new", 0)
    handler = signal.signal(signal.SIGUSR1, interrupt)
    waiting = threading.Thread(target=wait_for_messages)
    waiting.start()
    try:
        with pytest.raises(Interruption):  # noqa: PT011  it says nothing
            measure(target, key, Load(rate=1000, seconds=600, may_spin=False))
    finally:
        waiting.join()
        signal.signal(signal.SIGUSR1, handler)
        target.clean_up()
    assert "load" not in target.threads


def test_sigterm_ends_the_load_and_leaves_nothing(streamd_server: Server, tmp_path: Path) -> None:
    url = f"redis://127.0.0.1:{streamd_server.port}/11"
    command = [sys.executable, "-m", "benchmarks.latency", "--url", url, "--rate", "1000", "--seconds", "600", "--sleep",
               "--pending", "0", "--picture", f"{tmp_path}/latency.svg"]  # fmt: skip
    with redis.Redis.from_url(url) as client:
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            # Once messages come, the load is at work.
            eventually(lambda: any(client.xlen(key) > 10 for key in client.scan_iter()), 60, "a message")
            process.send_signal(signal.SIGTERM)
            said, _ = process.communicate(timeout=200)
        finally:
            process.kill()
            process.wait()
        assert process.returncode == 128 + signal.SIGTERM, said
        assert "Traceback" not in said
        assert client.keys() == []


def test_the_command_measures_a_running_server_and_leaves_nothing(streamd_server: Server, tmp_path: Path) -> None:
    url = f"redis://default:@127.0.0.1:{streamd_server.port}/9"
    with redis.Redis.from_url(url) as client:
        client.set("kept", "1")
        said = CliRunner().invoke(
            main,
            ["--url", url, "--rate", "1000", "--seconds", "0.4", "--rounds", "1", "--pending", "1000", "--picture",
             f"{tmp_path}/latency.svg"],
        )  # fmt: skip
        assert said.exception is None, said.output
        assert client.keys() == [b"kept"]
        client.delete("kept")
    shown = re.findall(r": \d+ messages\nProcessed between \d+ and \d+ ms -> ", said.output)
    assert len(shown) == 2, said.output
    assert "1,000 entries unacknowledged at the start" in said.output
    assert "default:@" not in said.output
