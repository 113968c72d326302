"""Files of Redis that hold more than streamd can load are kept, whatever replaces them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.replicas.nodes import Node, wait_in_sync
from support.servers import Server, eventually
from support.wire import Wire

pytestmark = pytest.mark.real

StartServer = Callable[..., Server]
SKIP = {"rdb_skip_unsupported": "yes"}


def fill(server: Server) -> set[bytes]:
    """Write values of which streamd can load one; the names of all."""
    with server.connect() as wire:
        for line in ("VADD v VALUES 3 1 2 3 a", "XADD s 1-1 f v"):
            wire.call(*line.split())
        wire.call("FUNCTION", "LOAD", "#!lua name=lib\nredis.register_function('f', function() return 1 end)")
        return names(wire)


def names(wire: Wire) -> set[bytes]:
    return set(wire.call("KEYS", "*").plain())


def folder_with_a_snapshot(new_redis: StartServer) -> tuple[Path, set[bytes]]:
    server = new_redis()
    written = fill(server)
    with server.connect() as wire:
        wire.call("SAVE")
    server.stop()
    return server.folder, written


def kept_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.whole-*"))


def read_by_redis(new_redis: StartServer, file: Path) -> set[bytes]:
    folder = file.parent / f"redis-{file.name}"
    folder.mkdir()
    (folder / "dump.rdb").write_bytes(file.read_bytes())
    server = new_redis(dir=str(folder))
    with server.connect() as wire:
        return names(wire)


@pytest.mark.parametrize(
    "lines",
    [(), ("SAVE",), ("BGSAVE",), ("FLUSHALL",), ("DEBUG RELOAD",), ("SHUTDOWN SAVE",)],
    ids=lambda lines: " ".join(lines) or "SIGTERM",
)
def test_the_snapshot_is_kept_whatever_saves(
    new_redis: StartServer, new_streamd: StartServer, lines: tuple[str, ...]
) -> None:
    folder, written = folder_with_a_snapshot(new_redis)
    before = (folder / "dump.rdb").read_bytes()
    server = new_streamd(dir=str(folder), save="3600 1", enable_debug_command="yes", **SKIP)
    with server.connect() as wire:
        assert names(wire) == {b"s"}
        for line in lines:
            wire.send(*line.split())
            if not line.startswith("SHUTDOWN"):
                wire.read()
        if lines == ("BGSAVE",):
            eventually(lambda: b"rdb_bgsave_in_progress:0" in wire.call("INFO", "persistence").plain(), 100)
    server.stop()
    assert (folder / "dump.rdb").read_bytes() != before
    (kept,) = kept_in(folder)
    assert kept.read_bytes() == before
    assert f"The original file is kept as dump.rdb.whole-{kept.name.split('whole-')[1]}" in server.log()
    assert read_by_redis(new_redis, kept) == written


def test_a_file_is_kept_once_and_another_one_beside_it(new_redis: StartServer, new_streamd: StartServer) -> None:
    folder, _ = folder_with_a_snapshot(new_redis)
    for _ in range(2):
        server = new_streamd(dir=str(folder), save="", enable_debug_command="yes", **SKIP)
        server.stop()
    (first,) = kept_in(folder)
    assert first.samefile(folder / "dump.rdb"), "nothing has been saved"
    other, _ = folder_with_a_snapshot(new_redis)
    server = new_streamd(dir=str(folder), save="", enable_debug_command="yes", **SKIP)
    (folder / "dump.rdb").unlink()
    (folder / "dump.rdb").write_bytes((other / "dump.rdb").read_bytes())
    with server.connect() as wire:
        wire.call("DEBUG", "RELOAD", "NOSAVE", "NOFLUSH", "MERGE")
        wire.call("DEBUG", "RELOAD", "NOSAVE")
        wire.call("SAVE")
    assert len(kept_in(folder)) == 2
    assert first in kept_in(folder)


def test_the_base_of_an_append_only_file_is_kept(new_redis: StartServer, new_streamd: StartServer) -> None:
    server = new_redis(appendonly="yes")
    written = fill(server)
    with server.connect() as wire:
        wire.call("BGREWRITEAOF")
        eventually(lambda: b"aof_rewrite_in_progress:0" in wire.call("INFO", "persistence").plain(), 100)
    server.stop()
    logs = server.folder / "appendonlydir"
    ours = new_streamd(dir=str(server.folder), appendonly="yes", enable_debug_command="yes", **SKIP)
    with ours.connect() as wire:
        assert names(wire) == {b"s"}
        wire.call("DEBUG", "LOADAOF")
        wire.call("BGREWRITEAOF")
        eventually(lambda: b"aof_rewrite_in_progress:0" in wire.call("INFO", "persistence").plain(), 100)
        eventually(lambda: len(list(logs.glob("*.base.rdb"))) == 1, 100)
    ours.stop()
    (kept,) = kept_in(logs)
    assert read_by_redis(new_redis, kept) == written
    again = new_streamd(dir=str(server.folder), appendonly="yes")
    with again.connect() as wire:
        assert names(wire) == {b"s"}


def test_a_whole_snapshot_is_not_kept_and_a_foreign_preload_neither(
    new_redis: StartServer, new_streamd: StartServer, tmp_path: Path
) -> None:
    folder, _ = folder_with_a_snapshot(new_redis)
    server = new_streamd(preload_file=f"rdb:{folder / 'dump.rdb'}", **SKIP)
    with server.connect() as wire:
        assert names(wire) == {b"s"}
        wire.call("SAVE")
    server.stop()
    assert kept_in(folder) == []
    again = new_streamd(dir=str(server.folder), **SKIP)
    again.stop()
    assert kept_in(server.folder) == []


def test_a_start_is_refused_when_the_file_cannot_be_kept(new_redis: StartServer, new_streamd: StartServer) -> None:
    folder, _ = folder_with_a_snapshot(new_redis)
    before = (folder / "dump.rdb").read_bytes()
    new_streamd(dir=str(folder), save="", **SKIP).stop()
    (kept,) = kept_in(folder)
    kept.unlink()
    Path(f"{kept}.new").mkdir()  # in the way
    with pytest.raises(RuntimeError, match=r"Fatal error loading the DB.*Is a directory"):
        new_streamd(dir=str(folder), save="3600 1", **SKIP)
    assert (folder / "dump.rdb").read_bytes() == before


def test_a_replica_keeps_the_last_snapshot_of_its_primary(new_node: Callable[..., Node]) -> None:
    primary = new_node("redis", repl_diskless_sync="no")
    replica = new_node("streamd", repl_diskless_load="disabled", **SKIP)
    for number in range(2):
        primary.line(f"VADD v{number} VALUES 3 1 2 3 a")
        replica.follow(primary)
        wait_in_sync(primary, replica)
        replica.line("SAVE")
        replica.follow(None)
        replica.line(f"SET own{number} v")
    (kept,) = kept_in(replica.folder)
    assert kept.name == "dump.rdb.whole-from-primary"
    assert b"v1" in kept.read_bytes()
