"""Two servers and one data directory: one of them has it, the other is told which process that is."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.files.crash import launch_in
from support.servers import Server, eventually
from support.wire import Wire

import streamd.embedded
from streamd.errors import StreamdError
from streamd.persistence.directory_lock import DirectoryInUseError, DirectoryLocks, find_holder

pytestmark = pytest.mark.long

StartServer = Callable[..., Server]
POINTS = "900 1"
CHANGEABLE = {"enable-protected-configs": "yes"}


def refused(folder: Path, **directives: str) -> str:
    """The last line of a server that does not start on a directory."""
    server = launch_in(folder, directives, name="second")
    mark = server.log_mark()
    assert server.process.wait(60) != 0
    return server.log_since(mark).splitlines()[-1]


def told(path: Path, pid: int) -> str:
    return f"The data directory {path} is in use by process {pid}"


@pytest.mark.parametrize("directives", [{"save": POINTS}, {"appendonly": "yes"}])
def test_a_second_server_on_a_directory_ends_and_names_the_first(
    new_streamd: StartServer, directives: dict[str, str]
) -> None:
    first = new_streamd(**directives)
    assert told(first.folder, first.process.pid) in refused(first.folder, save=POINTS)
    assert told(first.folder, first.process.pid) in refused(first.folder, save="", appendonly="yes")
    first.kill()
    with new_streamd(dir=str(first.folder), save=POINTS).connect() as wire:
        ok(wire, "PING")


def test_a_server_that_writes_nothing_shares_its_directory_until_it_is_to_write(new_streamd: StartServer) -> None:
    first = new_streamd(save=POINTS)
    second = new_streamd(dir=str(first.folder))
    where = told(first.folder, first.process.pid)
    with second.connect() as wire:
        ok(wire, "SET", "k", "v")
        assert wire.call("SAVE").is_error
        assert wire.call("BGSAVE").is_error
        assert wire.call("BGREWRITEAOF").is_error
        assert wire.call("CONFIG", "SET", "save", POINTS).value.decode().endswith(where)
        assert wire.call("CONFIG", "SET", "appendonly", "yes").is_error
        assert wire.call("CONFIG", "GET", "save").plain() == [b"save", b""]
        first.kill()
        ok(wire, "SAVE")
        ok(wire, "CONFIG", "SET", "save", POINTS)
    assert told(first.folder, second.process.pid) in refused(first.folder, save=POINTS)


def test_a_snapshot_asked_for_locks_only_while_it_is_written(new_streamd: StartServer) -> None:
    server = new_streamd()
    with server.connect() as wire:
        ok(wire, "DEBUG", "POPULATE", "2000")
        ok(wire, "SAVE")
        ok(wire, "CONFIG", "SET", "rdb-key-save-delay", "10000")
        wire.call("BGSAVE")
        locks = DirectoryLocks()
        with pytest.raises(DirectoryInUseError, match="in use"):
            locks.hold([str(server.folder)])
        os.kill(child_of(wire), signal.SIGKILL)
        eventually(lambda: "rdb_bgsave_in_progress:0" in info(wire))
        locks.hold([str(server.folder)])
        locks.keep([])


def test_config_set_dir_is_refused_for_a_directory_in_use(new_streamd: StartServer, tmp_path: Path) -> None:
    first = new_streamd(save=POINTS)
    second = new_streamd(**CHANGEABLE)
    third = new_streamd(save=POINTS, **CHANGEABLE)
    free = tmp_path / "free"
    free.mkdir()
    for server in (second, third):
        with server.connect() as wire:
            reply = wire.call("CONFIG", "SET", "dir", str(first.folder))
            assert reply.value.decode() == (
                f"ERR CONFIG SET failed (possibly related to argument 'dir') - {told(first.folder, first.process.pid)}"
            )
            assert wire.call("CONFIG", "GET", "dir").plain() == [b"dir", bytes(server.folder)]
            ok(wire, "CONFIG", "SET", "dir", str(free))
            ok(wire, "CONFIG", "SET", "dir", str(server.folder))
            # One that is refused because of another setting leaves the lock where it was.
            assert wire.call("CONFIG", "SET", "dir", str(free), "maxclients", "4000000000").is_error
            assert wire.call("CONFIG", "GET", "dir").plain() == [b"dir", bytes(server.folder)]
    assert told(third.folder, third.process.pid) in refused(third.folder, save=POINTS)


@pytest.mark.parametrize("appendonly", ["no", "yes"])
def test_a_server_whose_directory_is_gone_continues_and_may_move(
    new_streamd: StartServer, tmp_path: Path, appendonly: str
) -> None:
    gone, other = tmp_path / "gone", tmp_path / "other"
    gone.mkdir()
    other.mkdir()
    server = new_streamd(dir=str(gone), save=POINTS, appendonly=appendonly, **CHANGEABLE)
    with server.connect() as wire:
        ok(wire, "SET", "k", "v")
        shutil.rmtree(gone)
        assert wire.call("SAVE").value == b"ERR"
        assert b"internal" not in wire.call("BGREWRITEAOF").value
        assert wire.call("BACKUP", "START").value == b"ERR No such file or directory"
        assert wire.call("BACKUP", "CLEANUP").value == b"ERR No such file or directory"
        wire.call("BGSAVE")
        eventually(lambda: "rdb_last_bgsave_status:err" in info(wire))
        ok(wire, "CONFIG", "SET", "stop-writes-on-bgsave-error", "no")
        ok(wire, "FLUSHALL")
        ok(wire, "CONFIG", "SET", "save", "")
        ok(wire, "CONFIG", "SET", "save", POINTS)
        ok(wire, "CONFIG", "SET", "dir", str(other))
        ok(wire, "SAVE")
        assert told(other, server.process.pid) in refused(other, save=POINTS)


def test_an_append_only_file_that_stays_behind_keeps_its_directory(new_streamd: StartServer, tmp_path: Path) -> None:
    server = new_streamd(appendonly="yes", **CHANGEABLE)
    other = tmp_path / "other"
    other.mkdir()
    with server.connect() as wire:
        ok(wire, "CONFIG", "SET", "dir", str(other))
        assert told(server.folder, server.process.pid) in refused(server.folder, save=POINTS)
        ok(wire, "CONFIG", "SET", "appendonly", "no")
    with new_streamd(dir=str(server.folder), save=POINTS).connect() as wire:
        ok(wire, "PING")


def test_a_child_that_outlives_its_server_blocks_nobody(new_streamd: StartServer) -> None:
    server = new_streamd(save=POINTS)
    with server.connect() as wire:
        ok(wire, "DEBUG", "POPULATE", "20000")
        ok(wire, "CONFIG", "SET", "rdb-key-save-delay", "1000")
        wire.call("BGSAVE")
        child = child_of(wire)
    server.kill()
    os.kill(child, 0)
    next_one = new_streamd(dir=str(server.folder), save=POINTS)
    with next_one.connect() as wire:
        assert wire.call("DBSIZE").value == 0
    eventually(lambda: not Path(f"/proc/{child}").exists(), what="the end of the child")
    assert not (server.folder / "dump.rdb").exists()


def test_embedded_servers_lock_too(tmp_path: Path) -> None:
    with streamd.embedded.start(dir=str(tmp_path), appendonly=True):
        with pytest.raises(StreamdError, match=f"in use by process {os.getpid()}"):
            streamd.embedded.start(dir=str(tmp_path), appendonly=True)
        with streamd.embedded.start(dir=str(tmp_path)):
            pass
    with streamd.embedded.start(dir=str(tmp_path), appendonly=True):
        pass


def test_a_lock_that_a_fork_inherited_ends_with_its_holder(tmp_path: Path) -> None:
    locks, others = DirectoryLocks(), DirectoryLocks()
    locks.hold([str(tmp_path)])
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write_end)
        os.read(read_end, 1)
        os._exit(0)
    locks.keep([])
    others.hold([str(tmp_path)])
    others.keep([])
    os.close(write_end)
    os.close(read_end)
    os.waitpid(child, 0)


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "read-only"
    folder.mkdir(mode=0o555)
    if os.access(folder, os.W_OK):
        pytest.skip("everything may be written by this user")
    yield folder
    folder.chmod(0o755)


def test_a_directory_that_cannot_be_written_to_is_not_locked(read_only: Path) -> None:
    first, second = DirectoryLocks(), DirectoryLocks()
    first.hold([str(read_only)])
    second.hold([str(read_only)])


def info(wire: Wire) -> str:
    return wire.call("INFO", "persistence").value.decode()


def child_of(wire: Wire) -> int:
    """The process that writes a snapshot for a server."""
    pid = int(
        next(line for line in wire.call("INFO", "server").value.decode().splitlines() if "process_id" in line)[11:]
    )
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def ok(wire: Wire, *request: str) -> None:
    reply = wire.call(*request)
    assert not reply.is_error, reply


def test_the_holder_is_looked_up_by_device_and_inode(tmp_path: Path) -> None:
    """Inode numbers are counted by each file system for itself: one alone may be of a file that has nothing to do with it."""
    locks = DirectoryLocks()
    locks.hold([str(tmp_path)])
    found = tmp_path.stat()
    assert find_holder(found.st_dev, found.st_ino) == os.getpid()
    assert find_holder(found.st_dev + 1, found.st_ino) is None
    assert find_holder(found.st_dev, found.st_ino + 1) is None
    locks.keep(())
