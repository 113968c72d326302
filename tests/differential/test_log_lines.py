"""Lines of the log that people and tools look for: the same events on streamd and on a real Redis say the same."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.compare.log_lines import plain_lines, said
from support.servers import Server, eventually, find_oracle, free_port, python_environment, server_arguments

pytestmark = [pytest.mark.long, pytest.mark.real]

Start = Callable[..., Server]
OPEN = "WARNING: Redis does not require authentication"


@pytest.mark.parametrize(
    "directives",
    [
        {},
        {"protected_mode": "no"},
        {"protected_mode": "no", "bind": "0.0.0.0"},
        {"protected_mode": "no", "bind": "*"},
        {"requirepass": "secret"},
        {"protected_mode": "no", "requirepass": "secret"},
    ],
    ids=str,
)
def test_a_start_warns_of_users_without_a_password(
    new_streamd: Start, new_redis: Start, directives: dict[str, str]
) -> None:
    lines = []
    for server in (new_streamd(**directives), new_redis(**directives)):
        eventually(lambda server=server: "Ready to accept" in server.log())  # type: ignore[misc]
        eventually(lambda server=server: "requirepass" in directives or OPEN in server.log())  # type: ignore[misc]
        lines.append([line for line in said(server) if OPEN in line])
    assert lines[0] == lines[1]


def test_snapshots_from_their_beginning_to_the_next_start(new_streamd: Start, new_redis: Start) -> None:
    lines = []
    for start in (new_streamd, new_redis):
        server = start()
        mark = server.log_mark()
        with server.connect() as wire:
            wire.call("XADD", "s", "1-1", "f", "v")
            wire.call("SAVE")
            wire.call("DEBUG", "RELOAD")
            wire.call("BGSAVE")
            eventually(lambda server=server: "Background saving terminated" in server.log())  # type: ignore[misc]
            wire.send("SHUTDOWN", "SAVE")
            server.process.wait(60)
        found = said(server, mark)
        again = start(dir=str(server.folder))
        found += [line for line in said(again) if "RDB" in line or "DB loaded" in line or "initialized" in line]
        lines.append(sorted(found))  # a child of Redis writes its lines itself, at any time
    assert lines[0] == lines[1]


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A snapshot that a Redis has written."""
    folder = tmp_path_factory.mktemp("snapshot")
    oracle = find_oracle()
    assert oracle is not None
    script = "SET k v\nXADD s 1-1 f v\nSAVE\nSHUTDOWN NOSAVE\n"
    port = str(free_port())
    server = subprocess.Popen([oracle.server, "--port", port, "--save", ""], cwd=folder, stdout=subprocess.DEVNULL)
    try:
        ping = [oracle.cli, "-p", port, "PING"]
        eventually(lambda: subprocess.run(ping, capture_output=True).stdout == b"PONG\n")
        subprocess.run([oracle.cli, "-p", port], input=script.encode(), capture_output=True, check=False)
        server.wait(60)
    finally:
        server.kill()
    return (folder / "dump.rdb").read_bytes()


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "checksum": lambda data: data[:-1] + (b"\x00" if data[-1] else b"\x01"),  # as a number it begins with zeros
    "cut off": lambda data: data[:-9],
    "empty": lambda data: b"",
    "signature": lambda data: b"X" + data[1:],
    "version": lambda data: data[:5] + b"0099" + data[9:],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_snapshot(tmp_path: Path, snapshot: bytes, damage: str) -> None:
    data = DAMAGES[damage](snapshot)
    oracle = find_oracle()
    assert oracle is not None
    reasons = []
    for name in ("streamd", "redis"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "dump.rdb").write_bytes(data)
        port = free_port()
        command = server_arguments(port, {})
        if name == "redis":
            command = [oracle.server, "--port", str(port), "--save", ""]
        ended = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, env=python_environment(), timeout=110
        )
        lines = plain_lines(ended.stdout)
        behind = lines[lines.index("* Server initialized") :]
        reasons.append((ended.returncode, next(line for line in behind if line.startswith("# "))))
        shutil.rmtree(folder)
    assert reasons[0] == reasons[1]
    assert reasons[0][0] == 1


START = ("AOF", "BGSAVE")


@pytest.mark.parametrize("preamble", ["yes", "no"])
def test_the_append_only_file_started_and_rewritten(new_streamd: Start, new_redis: Start, preamble: str) -> None:
    lines = []
    for start in (new_streamd, new_redis):
        server = start(appendonly="yes", aof_use_rdb_preamble=preamble)
        at_start = [line for line in said(server) if any(what in line for what in START)]
        with server.connect() as wire:
            wire.call("XADD", "s", "1-1", "f", "v")
            mark = server.log_mark()
            wire.call("BGREWRITEAOF")
            eventually(lambda server=server, mark=mark: "rewrite finished" in server.log_since(mark))  # type: ignore[misc]
            eventually(
                lambda server=server, mark=mark: server.log_since(mark).count("in the background") == 2  # type: ignore[misc]
            )
        found = sorted(re.sub(r"temp-rewriteaof-bg-\d+|\bpid \d+", "PID", line) for line in said(server, mark))
        lines.append(at_start + found)
    assert lines[0] == lines[1]


OF_PRIMARIES = (
    "Configuration loaded", "no config file specified", "Ready to accept connections tcp", "Server initialized", "asks for synchronization", "Full resync requested by replica",
    "Replication backlog created, my new replication IDs are", "Starting BGSAVE for SYNC with target: disk",
    "Starting BGSAVE for SYNC with target: replicas sockets", "Background saving started by pid",
    "Background saving terminated with success", "Background RDB transfer started by pid",
    "Background RDB transfer terminated with success", "Diskless rdb transfer, done reading from pipe, 1 replicas still up.",
    "succeeded (socket). Waiting for REPLCONF ACK from replica to enable streaming", "Synchronization with replica 127.0.0.1:",
    "Partial resynchronization not accepted: Replication ID mismatch", "Partial resynchronization request from 127.0.0.1:",
    "Connection with replica 127.0.0.1:", "Full sync will continue with dedicated rdb channel.",
    "(rdb-channel)", "Starting to deliver RDB and replication stream to replica", "Connection with replica (rdbchannel)",
    "Received SIGTERM scheduling shutdown", "User requested shutdown...", "is now ready to exit, bye bye...",
    "Waiting for replicas before shutting down", "Saving the final RDB snapshot before exiting.", "DB saved on disk",
)  # fmt: skip
"""Found in the log of a primary, in one way of synchronizing or another."""
OF_REPLICAS = (
    "Before turning into a replica, using my own master parameters to synthesize a cached master",
    "Connecting to MASTER 127.0.0.1:", "MASTER <-> REPLICA sync started", "Non blocking connect for SYNC fired the event.",
    "Master replied to PING, replication can continue...", "Trying a partial resynchronization (request",
    "Discarding previously cached master state.", "MASTER <-> REPLICA sync: receiving", "sync: Flushing old data",
    "PSYNC is not possible, initialize RDB channel.", "Starting to receive RDB and replication stream in parallel.",
    "MASTER <-> REPLICA sync: Loading DB in memory", "MASTER <-> REPLICA sync: Finished with success", "Done loading RDB",
    "sync: Swapping active DB with loaded DB", "sync: Discarding old DB in background", "sync: Starting to stream replication",
    "sync: Successfully streamed replication buffer into the db (", "Full resync from master: ",
    "Creating AOF incr file temp-appendonly.aof.incr on background rewrite", "Configuration loaded",
    "sync: Starting AOF after a successful sync", "Background AOF rewrite finished successfully",
    "Connection with master lost.", "Caching the disconnected master state.", "Reconnecting to MASTER 127.0.0.1:",
    "Successful partial resynchronization with master.", "sync: Master accepted a Partial Resynchronization.",
    "Setting secondary replication ID to", "MASTER MODE enabled (user request from 'id=",
)  # fmt: skip
SYNCHRONIZATIONS = {
    "file": {"repl_diskless_sync": "no", "repl_diskless_load": "disabled", "appendonly": "yes"},
    "connection": {"repl_diskless_load": "swapdb", "repl_rdb_channel": "no"},
    "channel": {"repl_diskless_load": "swapdb", "repl_rdb_channel": "yes"},
}


def phrases(start: Start, settings: dict[str, str]) -> list[list[tuple[str, str]]]:
    """Which phrases a primary and a replica log, each with the sign of its level."""
    primary, replica = (start(repl_diskless_sync_delay="0", **settings) for _ in range(2))
    with primary.connect() as wire, replica.connect() as other:

        def logs(server: Server, text: str, mark: int = 0) -> None:
            eventually(lambda: text in server.log_since(mark), what=text)

        wire.call("SET", "k", "v")
        other.call("REPLICAOF", "127.0.0.1", str(primary.port))
        logs(primary, "Synchronization with replica")
        eventually(lambda: "state=online" in str(wire.call("INFO", "replication")))
        eventually(lambda: "master_link_status:up" in str(other.call("INFO", "replication")))
        logs(primary, "terminated with success")
        mark = replica.log_mark()
        wire.call("CLIENT", "KILL", "TYPE", "replica")
        logs(replica, "Master accepted a Partial Resynchronization", mark)
        if "appendonly" in settings:
            logs(replica, "Background AOF rewrite finished successfully")
        other.call("REPLICAOF", "NO", "ONE")
        logs(replica, "MASTER MODE enabled")
        wire.call("CONFIG", "SET", "save", "3600 1")
    primary.process.terminate()
    assert primary.process.wait(60) == 0
    found = []
    for server, wanted in ((primary, OF_PRIMARIES), (replica, OF_REPLICAS)):
        lines = said(server)
        found.append([(phrase, line[0]) for phrase in wanted for line in lines if phrase in line])
    return [sorted(set(each)) for each in found]


@pytest.mark.parametrize("way", SYNCHRONIZATIONS)
def test_replication_is_logged_with_the_phrases_that_tools_wait_for(
    new_streamd: Start, new_redis: Start, way: str
) -> None:
    settings = SYNCHRONIZATIONS[way]
    assert phrases(new_streamd, settings) == phrases(new_redis, settings)


OURS = re.compile(r": expected |the removed part is kept")
ADVICE = re.compile(r"\. +(You can: |[Mm]ake a backup).*")


def cut(data: bytes) -> bytes:
    return data[:-5]


def in_a_transaction(data: bytes) -> bytes:
    return data + b"*1\r\n$5\r\nMULTI\r\n*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nb\r\n"


def with_garbage(data: bytes) -> bytes:
    return data + b"garbage\r\n"


@pytest.fixture(scope="module")
def append_only_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a Redis with an append-only file."""
    folder = tmp_path_factory.mktemp("append-only")
    oracle = find_oracle()
    assert oracle is not None
    port = str(free_port())
    command = [oracle.server, "--port", port, "--save", "", "--appendonly", "yes"]
    server = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
    try:
        ping = [oracle.cli, "-p", port, "PING"]
        eventually(lambda: subprocess.run(ping, capture_output=True).stdout == b"PONG\n")
        script = b"SET k v\nXADD s 1-1 f v\nSET k w\nSHUTDOWN\n"
        subprocess.run([oracle.cli, "-p", port], input=script, capture_output=True, check=False)
        server.wait(60)
    finally:
        server.kill()
    return folder


@pytest.mark.parametrize(
    ("damage", "options"),
    [
        (cut, {}),
        (cut, {"aof-load-truncated": "no"}),
        (in_a_transaction, {}),
        (in_a_transaction, {"aof-load-truncated": "no"}),
        (with_garbage, {}),
        (with_garbage, {"aof-load-corrupt-tail-max-size": "100"}),
    ],
)
def test_a_damaged_append_only_file(
    tmp_path: Path, append_only_files: Path, damage: Callable[[bytes], bytes], options: dict[str, str]
) -> None:
    """The lines are Redis's, but for its advice; behind them there may be more of ours."""
    oracle = find_oracle()
    assert oracle is not None
    lines = []
    for name in ("streamd", "redis"):
        folder = tmp_path / name
        shutil.copytree(append_only_files, folder)
        file = folder / "appendonlydir" / "appendonly.aof.1.incr.aof"
        file.write_bytes(damage(file.read_bytes()))
        port = free_port()
        command = server_arguments(port, {})
        if name == "redis":
            command = [oracle.server, "--port", str(port), "--save", ""]
        command += ["--appendonly", "yes", *(word for key, value in options.items() for word in (f"--{key}", value))]
        log = folder / "log"
        with log.open("w") as out:
            server = subprocess.Popen(command, cwd=folder, stdout=out, stderr=out, env=python_environment())
        try:
            eventually(
                lambda log=log, server=server: "Ready to accept" in log.read_text() or server.poll() is not None  # type: ignore[misc]
            )
        finally:
            server.kill()
            server.wait(60)
        found = plain_lines(log.read_text())
        behind = found[found.index("* Server initialized") :]
        told = [line for line in behind if line.startswith("# ") and not OURS.search(line)]
        lines.append([ADVICE.sub(".", line) for line in told if "no password" not in line and OPEN not in line])
    assert lines[0] == lines[1]
    assert lines[0]
