"""A server and its files: what SAVE, BGSAVE, BGREWRITEAOF, save points, the end and the start do, and what clients see."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from support.servers import Server, connect_early, eventually, find_oracle, python_environment
from support.wire import ConnectionClosed, Reply, Wire

pytestmark = pytest.mark.long

StartServer = Callable[..., Server]

ENTRIES = 200
CHANGEABLE = {"enable-protected-configs": "yes"}
"""CONFIG SET dir is allowed."""
LOADING = b"LOADING Redis is loading the dataset in memory"
SLOWLY = ("--key-load-delay", "200")
"""Arguments of a server that loads 20,000 keys in four seconds, time enough to ask it meanwhile on a busy machine."""


def fill(wire: Wire, *, lossless: bool = True) -> None:
    """Streams, groups in all their states, strings, expiries, two databases.

    lossless  also what Redis cannot write as commands: pending entries that have been deleted
    """
    for number in range(ENTRIES):
        wire.call("XADD", "s", f"{number + 1}-0", "number", number, "text", "x" * (number % 40))
    wire.call("XGROUP", "CREATE", "s", "g", "0")
    wire.call("XGROUP", "CREATE", "s", "quiet", "$")
    wire.call("XREADGROUP", "GROUP", "g", "alice", "COUNT", 20, "STREAMS", "s", ">")
    wire.call("XREADGROUP", "GROUP", "g", "bob", "COUNT", 20, "STREAMS", "s", ">")
    wire.call("XCLAIM", "s", "g", "carol", 0, "3-0", "5-0", "RETRYCOUNT", 7)
    wire.call("XACK", "s", "g", "1-0", "30-0")
    if lossless:
        wire.call("XDEL", "s", "2-0", "60-0")
    wire.call("XGROUP", "CREATECONSUMER", "s", "quiet", "nobody")
    wire.call("XGROUP", "CREATE", "empty", "g", "$", "MKSTREAM")
    wire.call("XADD", "once", "IDMP", "producer", "message", "1-1", "f", "v")
    wire.call("SET", "text", "value", "EX", 10_000)
    wire.call("SET", "number", 12345)
    wire.call("SELECT", 3)
    wire.call("XADD", "other", "7-7", "f", "v")
    wire.call("SELECT", 0)


def digest(server: Server) -> tuple[Reply, ...]:
    """Everything there is, as far as commands show it; the same on a streamd and on a Redis."""
    with server.connect(3) as wire:
        # Two compressors find different things to be left out.
        wire.call("CONFIG", "SET", "rdbcompression", "no")
        found: list[Reply] = []
        for db in (0, 3):
            wire.call("SELECT", db)
            for key in sorted(wire.call("KEYS", "*").plain()):
                found.append(wire.call("TYPE", key))
                found.append(wire.call("PEXPIRETIME", key))
                found.append(wire.call("DUMP", key))
        return tuple(found)


def restart(server: Server, start: StartServer, **directives: str) -> Server:
    """Another process that works with the files of `server`, which has ended."""
    return start(dir=str(data_folder(server)), **directives)


def data_folder(server: Server) -> Path:
    """Where a server has its files: its own folder, or that of the first of several."""
    arguments = [str(word) for word in server.process.args]  # type: ignore[union-attr]
    return Path(arguments[arguments.index("--dir") + 1]) if "--dir" in arguments else server.folder


# --- Snapshots --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["SAVE", "BGSAVE"])
def test_what_was_saved_is_there_after_a_restart(new_streamd: StartServer, command: str) -> None:
    first = new_streamd()
    with first.connect() as wire:
        fill(wire)
        before = digest(first)
        assert wire.call(command).kind == "+"
        eventually(lambda: (first.folder / "dump.rdb").exists())
        first.kill()
    assert digest(restart(first, new_streamd)) == before


def test_the_end_saves_when_there_are_save_points(new_streamd: StartServer) -> None:
    first = new_streamd(save="3600 1")
    with first.connect() as wire:
        fill(wire)
    before = digest(first)
    assert first.stop() == 0
    assert digest(restart(first, new_streamd)) == before


@pytest.mark.parametrize(("how", "is_saved"), [("", False), ("SAVE", True), ("NOSAVE", False)])
def test_shutdown_saves_as_requested(new_streamd: StartServer, how: str, is_saved: bool) -> None:
    server = new_streamd()
    with server.connect() as wire:
        wire.call("SET", "k", "v")
        wire.send("SHUTDOWN", *how.split())
        assert server.process.wait(60) == 0
    assert (server.folder / "dump.rdb").exists() == is_saved


@pytest.mark.parametrize(
    ("policy", "opcode"),
    [("noeviction", b""), ("allkeys-lru", b"\xf8\x00"), ("volatile-lfu", b"\xf9\x05"), ("allkeys-lrm", b"")],
)
def test_a_snapshot_tells_of_uses_what_the_policy_asks_for(
    new_streamd: StartServer, policy: str, opcode: bytes
) -> None:
    server = new_streamd(**{"maxmemory-policy": policy})
    with server.connect() as wire:
        wire.call("SET", "k", "v")
        assert wire.call("SAVE") == Reply("+", b"OK")
    data = (server.folder / "dump.rdb").read_bytes()
    assert b"\xfb\x01\x00" + opcode + b"\x00\x01k\x01v\xff" in data
    size = data.index(b"used-mem") + len(b"used-mem")
    width = {0xC1: 2, 0xC2: 4}[data[size]]
    assert int.from_bytes(data[size + 1 : size + 1 + width], "little") > 10_000


def test_a_save_point_saves(new_streamd: StartServer) -> None:
    server = new_streamd(save="1 2")
    with server.connect() as wire:
        wire.call("SET", "a", 1)
        wire.call("SET", "b", 1)
    eventually(lambda: (server.folder / "dump.rdb").exists())
    eventually(lambda: "Background saving terminated with success" in server.log())
    assert "2 changes in 1 seconds. Saving..." in server.log()


def test_a_second_bgsave_is_refused_while_one_runs(new_streamd: StartServer) -> None:
    server = new_streamd()
    with server.connect() as wire:
        # In one turn, so that the child of the first has not been waited for before the others.
        requests = ["BGSAVE", "BGSAVE", "SAVE", "BGREWRITEAOF", "MULTI", "BGREWRITEAOF", "EXEC"]
        first, second, save, rewrite, _, _, group = wire.pipeline([[request] for request in requests])
        assert first == Reply("+", b"Background saving started")
        assert second == save == Reply("-", b"ERR Background save already in progress")
        assert rewrite == group.value[0] == Reply("+", b"Background append only file rewriting scheduled")
    eventually(lambda: "Background AOF rewrite finished successfully" in server.log())


def test_writes_are_refused_while_snapshots_fail_and_taken_again_when_they_do_not(new_streamd: StartServer) -> None:
    server = new_streamd(save="3600 1000000")
    (server.folder / "dump.rdb").mkdir()
    with server.connect() as wire:
        wire.call("SET", "k", "v")
        wire.call("BGSAVE")
        eventually(lambda: wire.call("SET", "k", "v").value.startswith(b"MISCONF Redis is configured to save RDB"))
        assert wire.call("PING").value.startswith(b"MISCONF")
        assert wire.call("GET", "k") == Reply("$", b"v")
        wire.call("MULTI")
        assert wire.call("SET", "k", "x").value.startswith(b"MISCONF")
        assert wire.call("EXEC").value.startswith(b"EXECABORT")
        wire.call("CONFIG", "SET", "stop-writes-on-bgsave-error", "no")
        assert wire.call("SET", "k", "x") == Reply("+", b"OK")
        wire.call("CONFIG", "SET", "stop-writes-on-bgsave-error", "yes")
        assert wire.call("SAVE").is_error
        (server.folder / "dump.rdb").rmdir()
        assert wire.call("SAVE") == Reply("+", b"OK")
        assert wire.call("SET", "k", "y") == Reply("+", b"OK")
    assert not list(server.folder.glob("temp-*"))


def test_a_server_that_cannot_save_continues_unless_it_is_forced(new_streamd: StartServer) -> None:
    server = new_streamd(save="3600 1")
    (server.folder / "dump.rdb").mkdir()
    with server.connect() as wire:
        assert wire.call("SHUTDOWN") == Reply("-", b"ERR Errors trying to SHUTDOWN. Check logs.")
        server.process.send_signal(signal.SIGTERM)
        eventually(lambda: server.log().count("Errors trying to shut down the server") == 2)
        assert wire.call("INFO", "server").kind == "$"
        wire.send("SHUTDOWN", "FORCE")
        assert server.process.wait(60) == 0


def test_a_child_that_is_killed_is_a_failed_save(new_streamd: StartServer) -> None:
    server = new_streamd()
    with server.connect() as wire:
        wire.call("DEBUG", "POPULATE", 20)
        wire.call("CONFIG", "SET", "rdb-key-save-delay", 10_000_000)
        wire.call("BGSAVE")
        wire.call("CONFIG", "SET", "rdb-key-save-delay", 0)  # for the next one
        pid = int(server.log().rpartition("Background saving started by pid ")[2].split()[0])
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: "Background saving terminated by signal 9" in server.log())
        assert "rdb_last_bgsave_status:err" in wire.call("INFO", "persistence").value.decode()
        assert wire.call("BGSAVE").kind == "+"
        eventually(lambda: "rdb_last_bgsave_status:ok" in wire.call("INFO", "persistence").value.decode())
    assert not list(server.folder.glob("temp-*"))


def test_a_damaged_snapshot_refuses_the_start(new_streamd: StartServer) -> None:
    server = new_streamd()
    with server.connect() as wire:
        fill(wire)
        wire.call("SAVE")
    server.kill()
    path = server.folder / "dump.rdb"
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 0x10
    path.write_bytes(damaged)
    with pytest.raises(RuntimeError, match="Fatal error loading the DB"):
        restart(server, new_streamd)
    assert path.read_bytes() == damaged


# --- While it loads ---------------------------------------------------------------------------------------------------


def test_clients_are_notified_that_the_data_is_being_loaded(new_streamd: StartServer) -> None:
    server = new_streamd()
    with server.connect() as wire:
        wire.call("DEBUG", "POPULATE", 20_000)
        wire.call("SAVE")
    server.kill()
    # Started without waiting: PING is answered only when all has been read.
    port = server.port
    command = [*server.process.args, "--dir", str(server.folder), *SLOWLY]  # type: ignore[misc]
    process = subprocess.Popen(
        command, cwd=server.folder, env=python_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        seen: set[bytes] = set()

        def has_loaded() -> bool:
            try:
                with Wire(port) as wire:
                    info = wire.call("INFO", "persistence").value.decode()
                    reply = wire.call("GET", "key:1")
                    if reply.is_error:  # what was still going on after INFO was so before
                        assert "loading:1" in info
                    seen.add(reply.value)
                    return not reply.is_error
            except OSError:
                return False

        eventually(has_loaded, 60)
        assert seen == {LOADING, b"value:1"}
    finally:
        process.kill()
        process.wait()


def test_no_client_learns_that_keys_are_missing_when_the_files_cannot_be_read(new_streamd: StartServer) -> None:
    server = new_streamd()
    with server.connect() as wire:
        wire.call("DEBUG", "POPULATE", 200_000)
        wire.call("SAVE")
    server.kill()
    path = server.folder / "dump.rdb"
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1  # of the checksum: all keys have been read when it is looked at
    path.write_bytes(damaged)
    answers: set[bytes] = set()
    # It pauses after each piece of the file but the last: four seconds for all.
    command = [*server.process.args, "--dir", str(server.folder), "--key-load-delay", "20"]  # type: ignore[misc]
    process = subprocess.Popen(command, cwd=server.folder, env=python_environment(), stderr=subprocess.DEVNULL)
    with ThreadPoolExecutor(16) as clients:
        for _ in range(16):
            clients.submit(ask_until_it_ends, process, server.port, answers)
    assert process.returncode != 0
    assert answers == {LOADING}


def ask_until_it_ends(process: subprocess.Popen[bytes], port: int, answers: set[bytes]) -> None:
    while process.poll() is None:
        with suppress(OSError, ConnectionClosed), Wire(port) as wire:
            while True:
                answers.add(wire.call("GET", "key:1").value)


# --- The append-only file ---------------------------------------------------------------------------------------------


def test_consumers_that_got_nothing_survive_a_kill(new_streamd: StartServer) -> None:
    first = new_streamd(appendonly="yes", appendfsync="always")
    with first.connect() as wire, first.connect() as waiting:
        wire.call("XADD", "s", "1-1", "f", "v")
        wire.call("XGROUP", "CREATE", "s", "g", "$")
        waiting.send("XREADGROUP", "GROUP", "g", "waiting", "BLOCK", "0", "STREAMS", "s", ">")
        eventually(lambda: b"blocked_clients:1" in wire.call("INFO", "clients").value)
        wire.call("XREADGROUP", "GROUP", "g", "early", "STREAMS", "s", ">")
        wire.call("XREADGROUP", "GROUP", "g", "history", "STREAMS", "s", "0")
        wire.call("XREADGROUP", "GROUP", "g", "patient", "BLOCK", "1", "STREAMS", "s", ">")
        wire.call("XREADGROUP", "GROUP", "g", "careless", "NOACK", "STREAMS", "s", ">")
        wire.call("XCLAIM", "s", "g", "claiming", "0", "9-9")
        wire.call("XAUTOCLAIM", "s", "g", "taking", "0", "0")
        first.kill()
    with restart(first, new_streamd, appendonly="yes").connect() as wire:
        names = [consumer[1].decode() for consumer in wire.call("XINFO", "CONSUMERS", "s", "g").plain()]
    assert names == ["careless", "claiming", "early", "history", "patient", "taking", "waiting"]


@pytest.mark.parametrize("policy", ["always", "everysec", "no"])
def test_what_was_acknowledged_survives_a_kill(new_streamd: StartServer, policy: str) -> None:
    first = new_streamd(appendonly="yes", appendfsync=policy)
    with first.connect() as wire:
        fill(wire)
    before = digest_without_times(first)
    if policy != "always":
        wait_until_written(first)
    first.kill()
    second = restart(first, new_streamd, appendonly="yes")
    assert digest_without_times(second) == before
    with second.connect() as wire:
        assert wire.call("BGREWRITEAOF").kind == "+"
        eventually(lambda: "Background AOF rewrite finished successfully" in second.log())
        wire.call("XADD", "s", "9999-0", "after", "rewrite")
    exact = digest(second)
    wait_until_written(second)
    second.kill()
    assert digest(restart(second, new_streamd, appendonly="yes")) == exact


def wait_until_written(server: Server) -> None:
    """Not with `always`: otherwise a write may wait for a sync in the background, up to two seconds."""
    with server.connect() as wire:
        eventually(lambda: "aof_buffer_length:0\r" in wire.call("INFO", "persistence").value.decode())


def digest_without_times(server: Server) -> tuple[Reply, ...]:
    """What commands bring back: everything but when consumers were seen, and consumers that have nothing pending."""
    with server.connect(3) as wire:
        return (
            wire.call("XRANGE", "s", "-", "+"),
            wire.call("XPENDING", "s", "g"),
            wire.call("XINFO", "GROUPS", "s"),
            wire.call("XINFO", "STREAM", "once"),
            wire.call("XINFO", "STREAM", "empty"),
            wire.call("XADD", "once", "IDMP", "producer", "message", "1-1", "f", "v"),
            wire.call("GET", "text"),
            wire.call("GET", "number"),
            wire.call("PEXPIRETIME", "text"),
        )


def test_the_log_can_be_switched_on_and_off(new_streamd: StartServer) -> None:
    server = new_streamd(appendfsync="always")
    with server.connect() as wire:
        wire.call("SET", "before", 1)
        assert wire.call("CONFIG", "SET", "appendonly", "yes") == Reply("+", b"OK")
        wire.call("SET", "during", 1)
        eventually(lambda: "Background AOF rewrite finished successfully" in server.log())
        wire.call("SET", "after", 1)
        assert "aof_enabled:1" in wire.call("INFO", "persistence").value.decode()
    server.kill()
    again = restart(server, new_streamd, appendonly="yes")
    with again.connect() as wire:
        assert wire.call("EXISTS", "before", "during", "after") == Reply(":", 3)
        assert wire.call("CONFIG", "SET", "appendonly", "no") == Reply("+", b"OK")
        wire.call("SET", "unlogged", 1)
        assert "aof_enabled:0" in wire.call("INFO", "persistence").value.decode()
    again.kill()
    with restart(again, new_streamd, appendonly="yes").connect() as wire:
        assert wire.call("EXISTS", "before", "during", "after", "unlogged") == Reply(":", 3)


def begins_log(wire: Wire) -> None:
    eventually(
        lambda: (
            {"aof_enabled:1", "aof_rewrite_in_progress:0", "aof_rewrite_scheduled:0"}
            <= set(wire.call("INFO", "persistence").value.decode().split("\r\n"))
        )
    )


def test_the_log_that_a_transaction_begins_has_all_of_the_transaction(new_streamd: StartServer) -> None:
    server = new_streamd(appendfsync="always")
    with server.connect() as wire:
        requests = [["MULTI"], ["SET", "a", "1"], ["CONFIG", "SET", "appendonly", "yes"], ["SET", "b", "2"], ["EXEC"]]
        assert not wire.pipeline(requests)[-1].is_error
        begins_log(wire)
        wire.call("SET", "c", "3")
    # The base is written after the transaction, as Redis does it, and not in the middle of it.
    words = (server.folder / "appendonlydir" / "appendonly.aof.1.incr.aof").read_bytes().split()
    assert b"c" in words
    assert b"b" not in words
    server.kill()
    with restart(server, new_streamd, appendonly="yes").connect() as wire:
        assert wire.call("DBSIZE") == Reply(":", 3)


@pytest.mark.parametrize("was_on", [False, True])
def test_the_log_is_switched_when_everything_has_been_loaded(new_streamd: StartServer, was_on: bool) -> None:
    server = new_streamd(appendonly="yes" if was_on else "no")
    keys = 20_000
    with server.connect() as wire:
        wire.call("DEBUG", "POPULATE", keys)
        wire.call("BGREWRITEAOF" if was_on else "SAVE")
        eventually(lambda: "aof_rewrite_in_progress:0" in wire.call("INFO", "persistence").value.decode())
    server.kill()
    command = [*server.process.args, "--dir", str(server.folder), *SLOWLY]  # type: ignore[misc]
    process = subprocess.Popen(command, cwd=server.folder, env=python_environment(), stderr=subprocess.DEVNULL)
    try:
        with connect_early(server.port) as wire:
            assert wire.call("GET", "key:1").value == LOADING
            assert wire.call("CONFIG", "SET", "appendonly", "no" if was_on else "yes") == Reply("+", b"OK")
            eventually(lambda: "loading:0" in wire.call("INFO", "persistence").value.decode(), 60)
            if was_on:
                assert "aof_enabled:0" in wire.call("INFO", "persistence").value.decode()
            else:
                begins_log(wire)
    finally:
        process.kill()
        process.wait()
    with restart(server, new_streamd, appendonly="yes").connect() as wire:
        assert wire.call("DBSIZE") == Reply(":", keys)


def test_the_log_is_begun_in_the_directory_that_was_set_meanwhile(new_streamd: StartServer, tmp_path: Path) -> None:
    server = new_streamd(appendfsync="always", **CHANGEABLE)
    with server.connect() as wire:
        wire.call("SET", "before", 1)
        assert wire.call("CONFIG", "SET", "dir", str(tmp_path)) == Reply("+", b"OK")
        assert wire.call("CONFIG", "SET", "appendonly", "yes") == Reply("+", b"OK")
        eventually(lambda: "Background AOF rewrite finished successfully" in server.log())
        wire.call("SET", "after", 1)
    server.kill()
    assert not (server.folder / "appendonlydir").exists()
    with new_streamd(dir=str(tmp_path), appendonly="yes").connect() as wire:
        assert wire.call("EXISTS", "before", "after") == Reply(":", 2)


def test_a_log_that_is_written_stays_where_it_is(new_streamd: StartServer, tmp_path: Path) -> None:
    server = new_streamd(appendonly="yes", **CHANGEABLE)
    with server.connect() as wire:
        assert wire.call("CONFIG", "SET", "dir", str(tmp_path)) == Reply("+", b"OK")
        wire.call("SET", "k", 1)
        assert wire.call("BGREWRITEAOF").kind == "+"
        eventually(lambda: "Background AOF rewrite finished successfully" in server.log())
    server.kill()
    assert list(tmp_path.glob("appendonlydir/*")) == []
    with restart(server, new_streamd, appendonly="yes").connect() as wire:
        assert wire.call("EXISTS", "k") == Reply(":", 1)


def test_the_log_is_not_begun_beside_a_damaged_manifest(new_streamd: StartServer, tmp_path: Path) -> None:
    server = new_streamd(**CHANGEABLE)
    (tmp_path / "appendonlydir").mkdir()
    (tmp_path / "appendonlydir" / "appendonly.aof.manifest").write_text("no such line\n")
    with server.connect() as wire:
        wire.call("CONFIG", "SET", "dir", str(tmp_path))
        assert b"Unable to turn on AOF" in wire.call("CONFIG", "SET", "appendonly", "yes").value
        assert "aof_enabled:0" in wire.call("INFO", "persistence").value.decode()
        assert wire.call("CONFIG", "GET", "appendonly").plain() == [b"appendonly", b"no"]


def test_the_log_can_be_run_again_by_a_command(new_streamd: StartServer) -> None:
    server = new_streamd(appendonly="yes", appendfsync="always")
    with server.connect() as wire:
        fill(wire)
        before = digest_without_times(server)
        wire.call("SELECT", 3)
        log = next((server.folder / "appendonlydir").glob("*.incr.aof"))
        written = log.read_bytes()
        assert wire.call("DEBUG", "LOADAOF") == Reply("+", b"OK")
        assert log.read_bytes() == written
        assert "rdb_changes_since_last_save:0\r" in wire.call("INFO", "persistence").value.decode()
        assert wire.call("EXISTS", "other") == Reply(":", 1)
        wire.call("MULTI")
        wire.call("SET", "first", 1)
        wire.call("DEBUG", "LOADAOF")
        wire.call("SET", "second", 2)
        assert [reply.value for reply in wire.call("EXEC").value] == [b"OK"] * 3
        # What stands before it in the transaction was not in the file yet.
        assert wire.call("EXISTS", "first") == Reply(":", 0)
        assert wire.call("GET", "second") == Reply("$", b"2")
    assert digest_without_times(server) == before


def test_populating_for_tests_is_not_logged(new_streamd: StartServer) -> None:
    server = new_streamd(appendonly="yes", appendfsync="always")
    with server.connect() as wire:
        assert wire.call("DEBUG", "POPULATE", 3) == Reply("+", b"OK")
        wire.call("SET", "k", 1)
    assert b"POPULATE" not in next((server.folder / "appendonlydir").glob("*.incr.aof")).read_bytes()


def test_expired_keys_are_deleted_in_the_log(new_streamd: StartServer) -> None:
    server = new_streamd(appendonly="yes", appendfsync="always")
    with server.connect() as wire:
        wire.call("SET", "k", "v", "PX", 1)
        eventually(lambda: wire.call("EXISTS", "k") == Reply(":", 0))
    log = next((server.folder / "appendonlydir").glob("*.incr.aof")).read_bytes()
    assert b"PXAT" in log
    assert log.endswith(b"*2\r\n$3\r\nDEL\r\n$1\r\nk\r\n")


def test_one_write_of_a_transaction_stands_alone_and_two_stand_together(new_streamd: StartServer) -> None:
    server = new_streamd(appendonly="yes", appendfsync="always")
    with server.connect() as wire:
        for commands in (["SET a 1"], ["SET b 1", "GET a", "SET c 1"], ["GET a"]):
            wire.call("MULTI")
            for command in commands:
                wire.call(*command.split())
            wire.call("EXEC")
    log = next((server.folder / "appendonlydir").glob("*.incr.aof")).read_bytes()
    words = [line.decode() for line in log.split(b"\r\n") if line and line[:1] not in b"*$"]
    assert words == ["SELECT", "0", "SET", "a", "1", "MULTI", "SET", "b", "1", "SET", "c", "1", "EXEC"]


# --- With a real Redis ------------------------------------------------------------------------------------------------


def forms() -> list[str]:
    return ["snapshot", "log with a snapshot", "log of commands"]


@pytest.mark.real
@pytest.mark.parametrize("form", forms())
@pytest.mark.parametrize("writer", ["streamd", "redis"])
def test_files_go_both_ways(new_streamd: StartServer, new_redis: StartServer, form: str, writer: str) -> None:
    start, other = (new_streamd, new_redis) if writer == "streamd" else (new_redis, new_streamd)
    logged = {} if form == "snapshot" else {"appendonly": "yes"}
    preamble = {"aof-use-rdb-preamble": "no"} if form == "log of commands" else {}
    source = start(**logged, **preamble)
    with source.connect() as wire:
        fill(wire, lossless=form != "log of commands")
        if form == "snapshot":
            wire.call("SAVE")
        else:
            wire.call("BGREWRITEAOF")
            eventually(lambda: "aof_rewrite_in_progress:0" in wire.call("INFO", "persistence").value.decode())
            eventually(lambda: (source.folder / "appendonlydir/appendonly.aof.1.base.rdb").exists() is False)
            eventually(lambda: len(list((source.folder / "appendonlydir").glob("*.2.base.*"))) == 1)
    compare = digest if form != "log of commands" else digest_without_times
    before = compare(source)
    source.kill()
    assert compare(other(dir=str(source.folder), **logged)) == before


@pytest.mark.real
def test_redis_finds_nothing_wrong_with_our_files(new_streamd: StartServer) -> None:
    server = new_streamd(appendonly="yes")
    with server.connect() as wire:
        fill(wire)
        wire.call("SAVE")
    server.kill()
    oracle = find_oracle()
    assert oracle is not None
    manifest = server.folder / "appendonlydir/appendonly.aof.manifest"
    for program, path in (("redis-check-rdb", server.folder / "dump.rdb"), ("redis-check-aof", manifest)):
        done = subprocess.run([Path(oracle.folder) / program, path], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout
