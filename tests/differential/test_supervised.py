"""What a supervisor of the process is told, `--supervised`: the same by streamd and by a real Redis."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.compare.log_lines import said
from support.compare.observing import info_fields
from support.servers import Server, eventually, find_oracle, free_port, python_environment, server_arguments

pytestmark = [
    pytest.mark.long,
    pytest.mark.real,
    pytest.mark.skipif(sys.platform != "linux", reason="systemd, and /proc"),
]

Start = Callable[..., Server]
READY = ["STATUS=Ready to accept connections\n", "READY=1\n"]
SAVING = ["STOPPING=1\n", "STATUS=Saving the final RDB snapshot\n"]


class Supervisor:
    """The socket of a supervisor, and what was sent to it so far."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address)
        self._socket.setblocking(False)
        self._told: list[str] = []

    def told(self) -> list[str]:
        """All since the last call that returned something else than was waited for; names of programs as NAME."""
        try:
            while True:
                message = self._socket.recv(4096).decode()
                self._told.append(message.replace("streamd", "NAME").replace("Redis", "NAME"))
        except BlockingIOError:
            return self._told

    def expect(self, *messages: str) -> None:
        """Wait for these messages, and forget them."""
        eventually(lambda: len(self.told()) >= len(messages), what=repr(messages))
        assert self._told == list(messages)
        self._told.clear()

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["a path", "an abstract name"])
def any_supervisor(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Supervisor]:
    yield from listen("" if request.param == "a path" else "@", tmp_path, monkeypatch)


@pytest.fixture
def supervisor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervisor]:
    yield from listen("", tmp_path, monkeypatch)


def listen(sign: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervisor]:
    path = f"{folder}/supervisor"
    monkeypatch.setenv("NOTIFY_SOCKET", sign + path)
    made = Supervisor("\0" + path if sign else path)
    yield made
    made.close()


@pytest.fixture(params=["streamd", "redis"])
def start(request: pytest.FixtureRequest) -> Start:
    found: Start = request.getfixturevalue(f"new_{request.param}")
    return found


def kind_of(server: Server) -> tuple[str, str]:
    """Who supervises it, as INFO and as CONFIG GET say."""
    with server.connect() as wire:
        reply = wire.call("CONFIG", "GET", "supervised")
        return info_fields(wire, "server")["process_supervised"], reply.value[1].value.decode()


@pytest.mark.parametrize("supervised", ["systemd", "auto"])
@pytest.mark.parametrize("daemonize", ["no", "yes"])
def test_systemd_is_told_of_start_and_stop(
    start: Start, any_supervisor: Supervisor, supervised: str, daemonize: str
) -> None:
    """A supervised server stays in the foreground."""
    server = start(supervised=supervised, daemonize=daemonize, save="60 1000")
    any_supervisor.expect("STATUS=NAME is loading...\n", *READY)
    assert any(line.startswith("* Supervised by systemd. Please make sure") for line in said(server))
    assert kind_of(server) == ("systemd", "systemd")
    server.process.send_signal(signal.SIGTERM)
    any_supervisor.expect(*SAVING)
    assert server.process.wait(60) == 0


def test_a_stop_without_a_snapshot(start: Start, supervisor: Supervisor) -> None:
    server = start(supervised="systemd")
    supervisor.expect("STATUS=NAME is loading...\n", *READY)
    with server.connect() as wire:
        wire.send("SHUTDOWN")
        supervisor.expect("STOPPING=1\n")
    assert server.process.wait(60) == 0


def test_a_stop_that_fails(start: Start, supervisor: Supervisor) -> None:
    server = start(supervised="systemd", save="60 1000")
    supervisor.expect("STATUS=NAME is loading...\n", *READY)
    (server.folder / "dump.rdb" / "in the way").mkdir(parents=True)
    with server.connect() as wire:
        assert wire.call("SHUTDOWN").is_error
        supervisor.expect(*SAVING, "STATUS=Error trying to save the DB, can't exit.\n")
        wire.send("SHUTDOWN", "FORCE")
        supervisor.expect(*SAVING)
    assert server.process.wait(60) == 0


def test_a_stop_before_the_append_only_file_is_whole(start: Start, supervisor: Supervisor) -> None:
    server = start(supervised="systemd", save="60 1000")
    supervisor.expect("STATUS=NAME is loading...\n", *READY)
    with server.connect() as wire:
        for key in "abcdef":
            wire.call("SET", key, "v")
        wire.call("CONFIG", "SET", "rdb-key-save-delay", "10000000")
        wire.call("CONFIG", "SET", "appendonly", "yes")
        assert wire.call("SHUTDOWN").is_error
        supervisor.expect("STOPPING=1\n", "STATUS=Writing initial AOF, can't exit.\n")
        wire.call("CONFIG", "SET", "rdb-key-save-delay", "0")
        wire.send("SHUTDOWN", "FORCE")
        supervisor.expect(*SAVING)
    assert server.process.wait(60) == 0


def test_a_replica_tells_of_its_data(start: Start, supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    primary = start(repl_diskless_sync_delay="0")
    replica = start(supervised="systemd", replicaof=f"127.0.0.1 {primary.port}")
    finished = "STATUS=MASTER <-> REPLICA sync: {}. Ready to accept connections in read-write mode.\n"
    supervisor.expect(
        "STATUS=NAME is loading...\n",
        "STATUS=Ready to accept connections in read-only mode. Waiting for MASTER <-> REPLICA sync\n",
        "READY=1\n",
        finished.format("Finished with success"),
    )
    with primary.connect() as wire:
        wire.call("CLIENT", "KILL", "TYPE", "replica")
    supervisor.expect(finished.format("Partial Resynchronization accepted"))
    with replica.connect() as wire:
        wire.call("REPLICAOF", "NO", "ONE")
        wire.send("SHUTDOWN")
        supervisor.expect("STOPPING=1\n")


@pytest.mark.parametrize("supervised", ["systemd", "auto", "upstart"])
@pytest.mark.parametrize("address", [None, "", "relative", "/nobody/listens/here", "@nobody-listens-here"])
def test_a_supervisor_who_cannot_be_told(
    new_streamd: Start, new_redis: Start, monkeypatch: pytest.MonkeyPatch, supervised: str, address: str | None
) -> None:
    """The server runs; its log says what failed, each time when it was to tell systemd."""
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    monkeypatch.delenv("UPSTART_JOB", raising=False)
    if address is not None:
        monkeypatch.setenv("NOTIFY_SOCKET", address)
    seen = []
    for start in (new_streamd, new_redis):
        server = start(supervised=supervised)
        kind = kind_of(server)
        assert server.stop() == 0
        seen.append((kind, [line for line in said(server) if "superv" in line.lower()]))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("supervised", ["upstart", "auto"])
def test_upstart_sees_the_process_stop_once(tmp_path: Path, supervised: str) -> None:
    oracle = find_oracle()
    assert oracle is not None
    seen = []
    for name in ("streamd", "redis"):
        port = free_port()
        command = server_arguments(port, {"supervised": supervised})
        if name == "redis":
            command = [oracle.server, "--port", str(port), "--supervised", supervised]
        folder = tmp_path / name
        folder.mkdir()
        server = Server(name, command, port, folder, python_environment() | {"UPSTART_JOB": "it"})
        try:
            eventually(lambda server=server: process_state(server.process.pid) == "T", what="stopped")  # type: ignore[misc]
            os.kill(server.process.pid, signal.SIGCONT)
            server.wait_until_ready()
            seen.append((kind_of(server), [line for line in said(server) if "upstart" in line]))
        finally:
            server.kill()
    assert seen[0] == seen[1]
    assert seen[0][0] == ("upstart", "upstart")


def process_state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
