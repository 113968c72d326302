"""The disk is full: writes are refused, reads go on, nothing acknowledged is lost, and all is well when there is room again.

A small file system of its own where it can be mounted (root on Linux); else the shim lets writes fail as a full disk does.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import pytest
from support.files.crash import Trial
from support.files.fsync_shim import PowerLoss, find_compiler
from support.servers import eventually
from support.wire import Reply, Wire

pytestmark = pytest.mark.long

MISCONF_AOF = Reply("-", b"MISCONF Errors writing to the AOF file: No space left on device")
MISCONF_RDB = b"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk."
SIZE = 4 << 20
VALUE = b"x" * 1000


class Disk(Protocol):
    """A folder that can be full."""

    folder: Path

    def environment(self) -> dict[str, str]: ...

    def fill(self, *, leave: int = 0) -> None:
        """From now on there is no room, or nearly none; `leave` is in bytes."""

    def empty(self) -> None:
        """There is room again."""


class SmallFileSystem:
    """A file system of 4 MiB in memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    def environment(self) -> dict[str, str]:
        return {}

    def fill(self, *, leave: int = 0) -> None:
        with self._filler.open("ab") as file:
            while (room := self._room()) > leave:
                with suppress(OSError):  # a server has taken some of it in the meantime
                    os.posix_fallocate(file.fileno(), file.tell(), room - leave)
                    return

    def _room(self) -> int:
        about = os.statvfs(self.folder)
        return about.f_bavail * about.f_frsize

    def empty(self) -> None:
        self._filler.unlink()


class FailingDisk:
    """A folder in which writes fail when a test wants it."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        self.folder = folder
        self._power = PowerLoss(folder, scratch)

    def environment(self) -> dict[str, str]:
        return self._power.environment()

    def fill(self, *, leave: int = 0) -> None:
        self._power.rules(f"write {errno.ENOSPC} 1+")

    def empty(self) -> None:
        self._power.rules()


def can_mount(folder: Path) -> bool:
    if sys.platform != "linux" or os.geteuid() != 0:
        return False
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "none", folder], capture_output=True, check=False
    )
    return done.returncode == 0


@pytest.fixture(params=["file system", "shim"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    if request.param == "shim":
        if find_compiler() is None:
            pytest.skip("needs Linux and a C compiler")
        yield FailingDisk(folder, tmp_path / "scratch")
        return
    if not can_mount(folder):
        pytest.skip("a file system cannot be mounted here: needs Linux and root")
    try:
        yield SmallFileSystem(folder)
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@pytest.fixture
def begin(disk: Disk) -> Iterator[Callable[..., Trial]]:
    made: list[Trial] = []

    def begin_one(**directives: str) -> Trial:
        trial = Trial(disk.folder, seed=1, workers=2, **directives)
        trial.environment = disk.environment()
        made.append(trial)
        return trial

    yield begin_one
    for trial in made:
        trial.close()


def temporary_files(folder: Path) -> list[str]:
    return [str(path.relative_to(folder)) for path in folder.rglob("temp-*")]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.name != "filler"}


def write_until_refused(wire: Wire) -> Reply:
    """Write until a write is refused, one at a time."""
    reply = wire.call("SET", "big", VALUE)
    for _ in range(20_000):
        if reply.is_error:
            break
        reply = wire.call("SET", "big", VALUE)
    return reply


@pytest.mark.parametrize("policy", ["everysec", "no"])
def test_writes_are_refused_and_taken_again_when_there_is_room(
    disk: Disk, begin: Callable[..., Trial], policy: str
) -> None:
    trial = begin(appendonly="yes", appendfsync=policy, auto_aof_rewrite_percentage="0")
    with trial.load() as load:
        load.wait_for(100)
        disk.fill(leave=100_000)
        eventually(lambda: all(worker.refused for worker in trial.workers))
        with trial.server.connect() as wire:  # type: ignore[union-attr]
            assert write_until_refused(wire) == MISCONF_AOF
            assert wire.call("PING") == MISCONF_AOF
            assert wire.call("XLEN", "shared").kind == ":"
            assert b"aof_last_write_status:err" in wire.call("INFO", "persistence").value
        disk.empty()
        eventually(lambda: trial.order("SET", "big", "small") == Reply("+", b"OK"))
        load.wait_for(load.acknowledged + 100)
        assert trial.info("aof_last_write_status") == "ok"
        load.stop()
        eventually(lambda: trial.info("aof_buffer_length") == "0")  # a write waits for a sync in the background
        trial.kill()
    trial.check()
    assert trial.order("GET", "big") == Reply("$", b"small")


def test_with_always_the_server_ends_before_it_acknowledges(disk: Disk, begin: Callable[..., Trial]) -> None:
    trial = begin(appendonly="yes", appendfsync="always", auto_aof_rewrite_percentage="0")
    with trial.load() as load:
        load.wait_for(100)
        disk.fill(leave=50_000)
        server = trial.server
        assert server is not None
        eventually(lambda: not server.is_running)
    assert server.process.returncode == 1
    assert "Can't recover from AOF write error when the AOF fsync policy is 'always'. Exiting..." in server.log()
    disk.empty()
    trial.check()


def test_the_end_waits_for_room(disk: Disk, begin: Callable[..., Trial]) -> None:
    trial = begin(appendonly="yes", appendfsync="everysec", auto_aof_rewrite_percentage="0")
    trial.start()
    server = trial.server
    assert server is not None
    with server.connect() as wire:
        disk.fill()
        write_until_refused(wire)
        assert wire.call("SHUTDOWN") == Reply("-", b"ERR Errors trying to SHUTDOWN. Check logs.")
        disk.empty()
        eventually(lambda: wire.call("SET", "last", "one") == Reply("+", b"OK"))
        wire.send("SHUTDOWN")
        assert server.process.wait(60) == 0
    trial.start()
    assert trial.order("GET", "last") == Reply("$", b"one")
    assert trial.order("GET", "big") == Reply("$", VALUE)


@pytest.mark.parametrize("preamble", ["yes", "no"])
def test_a_rewrite_that_fails_leaves_the_old_files_whole(
    disk: Disk, begin: Callable[..., Trial], preamble: str
) -> None:
    trial = begin(
        appendonly="yes", appendfsync="everysec", auto_aof_rewrite_percentage="0", aof_use_rdb_preamble=preamble
    )
    with trial.load() as load:
        trial.ordered("DEBUG", "POPULATE", "10000")
        load.wait_for(200)
    server = trial.server
    assert server is not None
    trial.ordered("BGREWRITEAOF")  # so that the keys of DEBUG POPULATE are in the files
    trial.wait_for_child()
    trial.ordered("CONFIG", "SET", "rdbcompression", "no")
    before = contents(disk.folder)
    disk.fill(leave=40_000)
    reply = trial.order("BGREWRITEAOF")
    assert reply is not None
    if not reply.is_error:  # a disk without any room has none for the new incremental file either
        trial.wait_for_child()
        eventually(lambda: "Background AOF rewrite terminated with error: " in server.log())
    assert trial.info("aof_last_bgrewrite_status") == "err"
    after = contents(disk.folder)
    del before["appendonlydir/appendonly.aof.manifest"], after["appendonlydir/appendonly.aof.manifest"]
    assert {name: after.get(name) for name in before} == before
    assert temporary_files(disk.folder) == []
    disk.empty()
    assert trial.ordered("SET", "after", "that") == Reply("+", b"OK")
    trial.kill()
    trial.check()
    assert trial.order("GET", "after") == Reply("$", b"that")
    assert trial.order("GET", "key:9999") == Reply("$", b"value:9999")


def test_a_snapshot_that_fails_leaves_the_old_one_whole(disk: Disk, begin: Callable[..., Trial]) -> None:
    trial = begin(save="3600 1000000")
    server = trial.start()
    with server.connect() as wire:
        wire.call("XADD", "s", "1-1", "f", "v")
        assert wire.call("SAVE") == Reply("+", b"OK")
        before = contents(disk.folder)
        for _ in range(300):
            wire.call("XADD", "s", "*", "f", os.urandom(1000))
        disk.fill(leave=100_000)
        for command in ("SAVE", "BGSAVE"):
            reply = wire.call(command)
            if command == "SAVE":
                assert reply.is_error, reply
            trial.wait_for_child()
            assert contents(disk.folder) == before
            assert temporary_files(disk.folder) == []
            # A SAVE that fails tells its client; writes are refused after a BGSAVE that failed.
            status = "ok" if command == "SAVE" else "err"
            assert f"rdb_last_bgsave_status:{status}" in wire.call("INFO", "persistence").value.decode()
        assert wire.call("XADD", "s", "*", "f", "v").value.startswith(MISCONF_RDB)
        assert wire.call("XLEN", "s") == Reply(":", 301)
        disk.empty()
        assert wire.call("BGSAVE") == Reply("+", b"Background saving started")
        eventually(lambda: not wire.call("XADD", "s", "*", "f", "v").is_error)
        assert wire.call("SAVE") == Reply("+", b"OK")
    trial.kill()
    trial.start()
    assert trial.order("XLEN", "s") == Reply(":", 302)


def test_a_first_start_without_room_fails_and_is_no_hindrance_to_the_next(
    disk: Disk, begin: Callable[..., Trial]
) -> None:
    trial = begin(appendonly="yes")
    disk.fill()
    with pytest.raises(RuntimeError, match="No space left on device"):
        trial.start()
    disk.empty()
    with trial.load() as load:
        load.wait_for(100)
        trial.kill()
    trial.check()
