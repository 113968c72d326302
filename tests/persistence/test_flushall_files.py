"""FLUSHALL and the files: what was flushed does not come back, and INFO says of snapshots what Redis's says."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from support.servers import Server, eventually
from support.wire import Reply, Wire

StartServer = Callable[..., Server]

FIELDS = (
    "rdb_changes_since_last_save", "rdb_bgsave_in_progress", "rdb_last_bgsave_status", "rdb_last_bgsave_time_sec",
    "rdb_saves", "rdb_saves_consecutive_failures",
)  # fmt: skip


def fields(wire: Wire) -> dict[str, str]:
    lines = wire.call("INFO", "persistence").value.decode().split("\r\n")
    found = dict(line.split(":", 1) for line in lines if ":" in line)
    known = {"rdb_last_bgsave_time_sec": "never" if found["rdb_last_bgsave_time_sec"] == "-1" else "some time"}
    return {name: found[name] for name in FIELDS} | known


@pytest.mark.parametrize("is_saving", [False, True])
@pytest.mark.parametrize("how", [["FLUSHALL"], ["FLUSHALL", "ASYNC"], ["FLUSHALL", "SYNC"]])
def test_flushed_keys_do_not_come_back(new_streamd: StartServer, how: list[str], is_saving: bool) -> None:
    server = new_streamd(save="3600 1")
    with server.connect() as wire:
        wire.call("DEBUG", "POPULATE", "3000")
        wire.call("SAVE")
        if is_saving:
            wire.call("CONFIG", "SET", "rdb-key-save-delay", "10000")
            wire.call("BGSAVE")
        assert wire.call(*how) == Reply("+", b"OK")
    server.kill()
    with new_streamd(dir=str(server.folder)).connect() as wire:
        assert wire.call("DBSIZE") == Reply(":", 0)


def test_a_snapshot_being_written_ends_also_without_save_points(new_streamd: StartServer) -> None:
    server = new_streamd()
    with server.connect() as wire:
        wire.call("DEBUG", "POPULATE", "3000")
        wire.call("CONFIG", "SET", "rdb-key-save-delay", "10000")
        wire.call("BGSAVE")
        wire.call("FLUSHDB")
        assert fields(wire)["rdb_bgsave_in_progress"] == "1"
        wire.call("FLUSHALL")
        assert fields(wire)["rdb_bgsave_in_progress"] == "0"
    assert [path.name for path in server.folder.iterdir()] == ["output.log"]


def test_a_flush_that_is_loaded_writes_no_snapshot(new_streamd: StartServer) -> None:
    server = new_streamd(appendonly="yes", save="3600 1")
    with server.connect() as wire:
        wire.call("FLUSHALL")
        wire.call("SET", "k", "v")
        (server.folder / "dump.rdb").unlink()
        wire.call("DEBUG", "LOADAOF")
        assert wire.call("DBSIZE") == Reply(":", 1)
    assert not (server.folder / "dump.rdb").exists()


def story(server: Server) -> list[dict[str, str]]:
    """What INFO says after each step of a server's life with snapshots."""
    seen: list[dict[str, str]] = []
    blocked = Path(server.folder, "dump.rdb")

    with server.connect() as wire:

        def note(*requests: str) -> None:
            wire.pipeline([shlex.split(request) for request in requests])
            eventually(lambda: fields(wire)["rdb_bgsave_in_progress"] == "0")
            seen.append(fields(wire))

        note("SET a 1", "SET b 1")
        note("FLUSHALL")
        note("SET a 1", "FLUSHDB")
        note("MULTI", "SET a 1", "FLUSHALL", "SET b 2", "EXEC")
        note("SAVE")
        note("SET a 1", "BGSAVE")
        note("SET a 1", "CONFIG SET rdb-key-save-delay 100000000", "BGSAVE", "FLUSHALL ASYNC")
        note("CONFIG SET rdb-key-save-delay 0", "CONFIG SET save ''", "SET a 1", "FLUSHALL SYNC")
        wire.call("CONFIG", "SET", "save", "3600 1")
        blocked.unlink()
        blocked.mkdir()
        note("SET a 1", "SAVE")
        note("SET a 1", "FLUSHALL")
        note("SET a 1", "BGSAVE")
        note("SAVE")
        blocked.rmdir()
        note("SAVE")
        note("SET a 1", "BGSAVE")
    return seen


@pytest.mark.real
def test_info_about_snapshots_is_redis_s(new_streamd: StartServer, new_redis: StartServer) -> None:
    ours, theirs = (story(start(save="3600 1")) for start in (new_streamd, new_redis))
    assert ours == theirs
