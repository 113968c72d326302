"""Snapshots on disk: whatever fails, the name leads to a whole one; and `streamd check-rdb`."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.files.rdb import NOW_MS, make_databases, make_file, make_string, save
from support.pages.terminals import open_terminal

from streamd.cli.subcommands import program
from streamd.disk import Disk, StrPath
from streamd.errors import CorruptFileError
from streamd.keyspace.database import Database
from streamd.persistence.rdb.format import LoadOptions, WriteOptions
from streamd.persistence.rdb.snapshot import load_file, save_to_file, temporary_path


class Journal(Disk):
    """Notes what is asked of the system, and fails at one step of one kind."""

    def __init__(self, fails: str = "", at: int = 0) -> None:
        self.steps: list[str] = []
        self.fails = fails
        self.at = at

    def note(self, step: str) -> None:
        count = self.steps.count(step)
        self.steps.append(step)
        if step == self.fails and count == self.at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def open_append(self, path: StrPath, *, new: bool = False, mode: int = 0o644) -> int:
        self.note("open")
        return super().open_append(path, new=new, mode=mode)

    def write(self, fd: int, data: memoryview) -> int:
        self.note("write")
        return super().write(fd, data[:100_000])  # a file takes as much at a time as it likes

    def sync_data(self, fd: int) -> None:
        self.note("sync data")
        super().sync_data(fd)

    def sync(self, fd: int) -> None:
        self.note("sync")
        super().sync(fd)

    def close(self, fd: int) -> None:
        super().close(fd)
        self.note("close")

    def rename(self, old: StrPath, new: StrPath) -> None:
        self.note("rename")
        super().rename(old, new)

    def sync_directory(self, path: StrPath) -> None:
        self.note("sync directory")
        super().sync_directory(path)


def loaded(path: Path) -> list[Database]:
    databases = [Database(index) for index in range(3)]
    load_file(str(path), databases, LoadOptions(now_ms=NOW_MS)).load()
    return databases


def large() -> list[Database]:
    databases = [Database(0)]
    for number in range(90):
        databases[0].add(b"%d" % number, os.urandom(100_000))
    return databases


def test_the_steps_of_saving(tmp_path: Path) -> None:
    path = tmp_path / "dump.rdb"
    disk = Journal()
    told: list[int] = []
    assert save_to_file(large(), str(path), now_ms=NOW_MS, disk=disk, progress=told.append).losses == []
    assert disk.steps[0] == "open"
    assert [step for step in disk.steps if step not in ("open", "write", "sync data")] == [
        "sync", "close", "rename", "sync directory",
    ]  # fmt: skip
    assert disk.steps.count("sync data") == 2
    assert os.listdir(tmp_path) == ["dump.rdb"]
    assert told == sorted(told)
    assert told[-1] == 90
    assert len(loaded(path)[0]) == 90


def test_without_syncs_in_between(tmp_path: Path) -> None:
    disk = Journal()
    save_to_file(large(), str(tmp_path / "dump.rdb"), disk=disk, incremental_fsync=False)
    assert "sync data" not in disk.steps


@pytest.mark.parametrize("step", ["open", "write", "sync data", "sync", "close", "rename"])
def test_a_step_that_fails_leaves_the_old_snapshot(tmp_path: Path, step: str) -> None:
    path = tmp_path / "dump.rdb"
    save_to_file(make_databases(), str(path), now_ms=NOW_MS)
    before = path.read_bytes()
    for at in (0, 1) if step in ("write", "sync data") else (0,):
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            save_to_file(large(), str(path), now_ms=NOW_MS, disk=Journal(step, at))
        assert path.read_bytes() == before
        assert os.listdir(tmp_path) == ["dump.rdb"]


def test_a_full_disk_is_an_error_of_the_system(tmp_path: Path) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")

    class Full(Disk):
        def open_append(self, path: StrPath, *, new: bool = False, mode: int = 0o644) -> int:
            super().close(super().open_append(path, new=new, mode=mode))
            return os.open("/dev/full", os.O_WRONLY)

    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        save_to_file(make_databases(), str(tmp_path / "dump.rdb"), disk=Full())
    assert os.listdir(tmp_path) == []


def test_a_child_that_is_killed_leaves_the_old_snapshot(tmp_path: Path) -> None:
    path = tmp_path / "dump.rdb"
    save_to_file(make_databases(), str(path), now_ms=NOW_MS)
    before = path.read_bytes()
    script = """
import os, signal, sys
import streamd.values
from streamd.keyspace.database import Database
from streamd.persistence.rdb.snapshot import save_to_file
db = Database(0)
for i in range(20):
    db.add(b"%d" % i, os.urandom(100_000))
save_to_file([db], sys.argv[1], progress=lambda keys: keys < 10 or os.kill(os.getpid(), signal.SIGKILL))
"""
    child = subprocess.Popen(
        [sys.executable, "-c", script, str(path)], env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    )
    assert child.wait() == -9
    assert path.read_bytes() == before
    left = temporary_path(str(path), child.pid)
    assert os.path.exists(left)
    assert len(os.listdir(tmp_path)) == 2


def test_a_missing_file_and_an_empty_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none.rdb"):
        load_file(str(tmp_path / "none.rdb"), [Database(0)])
    (tmp_path / "empty.rdb").touch()
    with pytest.raises(CorruptFileError, match=r"empty\.rdb: at byte 0: expected 9 more bytes, found 0"):
        load_file(str(tmp_path / "empty.rdb"), [Database(0)]).load()


# --- streamd check-rdb ------------------------------------------------------------------------------------------------------


@pytest.fixture
def check(tmp_path: Path) -> Callable[[bytes], tuple[int, str]]:
    def run(data: bytes) -> tuple[int, str]:
        (tmp_path / "x.rdb").write_bytes(data)
        done = CliRunner().invoke(program, ["check-rdb", str(tmp_path / "x.rdb")])
        return done.exit_code, done.output

    return run


def test_check_of_a_file_in_order(check: Callable[[bytes], tuple[int, str]]) -> None:
    status, said = check(save(make_databases(), WriteOptions(aux={"aof-base": 1})) + b"behind")
    assert status == 0
    for line in (
        "format     RDB version 13", "aof-base   1", "keys       29: 5 stream, 24 string", "expiries   2, 1 of them expired",
        "checksum   right", "note       6 bytes after the end do not belong to it",
    ):  # fmt: skip
        assert line in said.splitlines(), said
    assert said.endswith("x.rdb: valid\n")


def test_check_of_a_damaged_file(check: Callable[[bytes], tuple[int, str]]) -> None:
    data = save(make_databases())
    for size in range(0, len(data), 1009):
        status, said = check(data[:size])
        assert status == 1
        assert "expected   " in said
        assert "found      " in said
        assert f"of {size:,}" in said
    status, said = check(data[:-8] + b"\x01" * 8)
    assert status == 1
    assert f"at byte    {len(data) - 8:,} of {len(data):,}" in said
    assert "found      0101010101010101" in said


def test_check_tells_of_types_that_streamd_does_not_have(check: Callable[[bytes], tuple[int, str]]) -> None:
    status, said = check(make_file(b"\x02" + make_string(b"k") + b"\x01" + make_string(b"member")))
    assert status == 0
    assert "1 keys have types that streamd" in said


def test_check_of_a_file_that_is_not_there(tmp_path: Path) -> None:
    done = CliRunner().invoke(program, ["check-rdb", str(tmp_path / "none")])
    assert done.exit_code == 1
    assert os.strerror(errno.ENOENT) in done.output


def test_check_draws_a_bar_on_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "x.rdb").write_bytes(save(make_databases()))
    leader, follower = open_terminal()
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path), TERM="xterm", COLUMNS="80")
    at_once = "from streamd.cli import main, progress_bar; progress_bar.SHOWN_AFTER_S = 0; main()"
    command = [sys.executable, "-c", at_once, "check-rdb", str(tmp_path / "x.rdb")]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=follower, env=env, check=False)
    os.close(follower)
    drawn = os.read(leader, 65536)
    os.close(leader)
    assert done.returncode == 0
    assert b"\x1b[" in drawn
    assert done.stdout.endswith(b": valid\n")
