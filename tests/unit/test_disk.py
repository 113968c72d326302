"""Replacing a file: what is there after each step, and after each step that fails."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.files.aof import FailingDisk

from streamd.disk import Disk, SyncingSink, new_file, replace_file, replacing

STEPS = ["open_append", "write", "sync", "rename"]
"""Of a replacement, up to the one that cannot be taken back."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "some.conf"
    path.write_bytes(b"old")
    return path


@pytest.fixture(params=[0o022, 0o077], ids=["umask 022", "umask 077"])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_the_steps_of_a_replacement(path: Path) -> None:
    disk = FailingDisk()
    replace_file(path, b"new", disk=disk)
    assert [call[0] for call in disk.calls] == ["open_append", "write", "sync", "rename", "sync_directory"]
    (temporary, name) = disk.calls[3][1:]
    assert disk.calls[0] == ("open_append", temporary)
    assert (name, disk.calls[4]) == ("some.conf", ("sync_directory", path.parent.name))
    assert temporary.startswith(".some.conf.")
    assert path.read_bytes() == b"new"
    assert os.listdir(path.parent) == ["some.conf"]


@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_fails_leaves_the_old_file_alone(path: Path, step: str) -> None:
    disk = FailingDisk()
    disk.fail(step, errno.ENOSPC)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        replace_file(path, b"new", disk=disk)
    assert path.read_bytes() == b"old"
    assert os.listdir(path.parent) == ["some.conf"]


def test_a_directory_that_cannot_be_synced_is_reported_though_the_file_is_in_place(path: Path) -> None:
    disk = FailingDisk()
    disk.fail("sync_directory")
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        replace_file(path, b"new", disk=disk)
    assert path.read_bytes() == b"new"
    assert os.listdir(path.parent) == ["some.conf"]


def test_whoever_writes_and_fails_leaves_the_old_file_alone(path: Path) -> None:
    def write() -> None:
        with replacing(path) as fd:
            os.write(fd, b"half")
            raise KeyError

    with pytest.raises(KeyError):  # noqa: PT011  it says nothing
        write()
    assert path.read_bytes() == b"old"
    assert os.listdir(path.parent) == ["some.conf"]


def test_the_old_file_is_there_until_the_new_one_is_whole(path: Path) -> None:
    with replacing(path) as fd:
        os.write(fd, b"half")
        assert path.read_bytes() == b"old"
        os.write(fd, b" and half")
    assert path.read_bytes() == b"half and half"


def test_a_replaced_file_keeps_its_permissions(path: Path, umask: int) -> None:
    for mode in (0o600, 0o664):
        path.chmod(mode)
        replace_file(path, b"new")
        assert mode_of(path) == mode


def test_a_file_that_is_for_one_user_is_so_while_it_is_written(path: Path) -> None:
    class Watched(Disk):
        def write(self, fd: int, data: memoryview) -> int:
            assert os.fstat(fd).st_mode & 0o777 == 0o600
            return super().write(fd, data)

        def open_append(self, path: Any, **options: Any) -> int:
            fd = super().open_append(path, **options)
            assert os.fstat(fd).st_mode & 0o077 == 0
            return fd

    path.chmod(0o600)
    replace_file(path, b"new", disk=Watched())


def test_a_new_file_has_the_permissions_that_the_umask_leaves(tmp_path: Path, umask: int) -> None:
    replace_file(tmp_path / "some.conf", b"new")
    replace_file(tmp_path / "shared", b"new", mode=0o666)
    assert mode_of(tmp_path / "some.conf") == 0o644 & ~umask
    assert mode_of(tmp_path / "shared") == 0o666 & ~umask


def test_a_name_without_a_directory_is_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    replace_file("some.conf", b"new")
    assert (tmp_path / "some.conf").read_bytes() == b"new"


@pytest.mark.parametrize("step", STEPS[:-1])
def test_a_new_file_is_whole_or_gone(tmp_path: Path, step: str) -> None:
    disk = FailingDisk()
    disk.fail(step)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)), new_file(tmp_path / "new", disk=disk) as fd:
        disk.write_all(fd, b"content")
    assert os.listdir(tmp_path) == []


def test_a_sink_syncs_after_so_many_bytes(tmp_path: Path) -> None:
    disk = FailingDisk()
    with new_file(tmp_path / "new", disk=disk) as fd:
        sink = SyncingSink(disk, fd, sync_every=10)
        for _ in range(5):
            sink.write(b"123456")
    assert [call[0] for call in disk.calls].count("sync_data") == 2
    assert (tmp_path / "new").read_bytes() == b"123456" * 5


def test_directories_and_those_above_are_made_and_synced(tmp_path: Path) -> None:
    disk = FailingDisk()
    disk.make_directories(tmp_path / "a" / "b")
    disk.make_directories(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    assert disk.calls == [("sync_directory", tmp_path.name), ("sync_directory", "a")]


def test_what_is_cut_off_is_gone_for_good(path: Path) -> None:
    disk = FailingDisk()
    disk.cut(path, 1)
    assert path.read_bytes() == b"o"
    assert [call[0] for call in disk.calls] == ["open_append", "truncate", "sync"]
