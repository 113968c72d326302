"""NodesFile: replaced as a whole, and locked as long as its server runs."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from streamd.cluster.nodes_file import MOST_REPLACED, NodesFile
from streamd.disk import Disk, StrPath
from streamd.errors import StartError


class NotingDisk(Disk):
    """Notes in which order files are written, synced and renamed."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    def write(self, fd: int, data: memoryview) -> int:
        self.steps.append("write")
        return super().write(fd, data)

    def sync(self, fd: int) -> None:
        self.steps.append("sync")
        super().sync(fd)

    def rename(self, old: StrPath, new: StrPath) -> None:
        self.steps.append("rename")
        super().rename(old, new)

    def sync_directory(self, path: StrPath) -> None:
        self.steps.append("sync directory")
        super().sync_directory(path)


class FullDisk(Disk):
    def write(self, fd: int, data: memoryview) -> int:
        raise OSError(28, "No space left on device")


def test_a_new_file_has_no_content(tmp_path: Path) -> None:
    file = NodesFile(str(tmp_path / "nodes.conf"))
    assert file.open() is None
    file.save(b"one\n", must_sync=False)
    file.save(b"two\n", must_sync=True)
    file.close()
    assert NodesFile(file.path).open() == b"two\n"
    assert os.listdir(tmp_path) == ["nodes.conf"]


def test_replaced_files_leave_no_descriptors(tmp_path: Path) -> None:
    before = len(os.listdir("/dev/fd"))
    file = NodesFile(str(tmp_path / "nodes.conf"))
    file.open()
    for number in range(200):
        file.save(b"%d\n" % number, must_sync=False)
        assert len(os.listdir("/dev/fd")) <= before + MOST_REPLACED + 1
    file.free_replaced()
    assert len(os.listdir("/dev/fd")) == before + 1
    file.save(b"last\n", must_sync=True)
    file.close()
    assert len(os.listdir("/dev/fd")) == before


@pytest.mark.parametrize("must_sync", [False, True])
def test_a_file_is_synced_before_it_takes_the_place_of_the_old_one(tmp_path: Path, must_sync: bool) -> None:
    disk = NotingDisk()
    file = NodesFile(str(tmp_path / "nodes.conf"), disk)
    file.open()
    file.save(b"one\n", must_sync=must_sync)
    file.close()
    assert disk.steps == (["write", "sync", "rename", "sync directory"] if must_sync else ["write", "rename"])


class SlowDisk(NotingDisk):
    """Syncs when it is allowed to; then it may fail."""

    def __init__(self, error: OSError | None = None) -> None:
        super().__init__()
        self.may_sync = threading.Event()
        self.error = error

    def sync(self, fd: int) -> None:
        assert self.may_sync.wait(60)
        if self.error is not None:
            raise self.error
        assert os.fstat(fd).st_ino == self.written
        super().sync(fd)

    def rename(self, old: StrPath, new: StrPath) -> None:
        super().rename(old, new)
        self.written = os.stat(new).st_ino


def test_a_file_is_synced_on_a_thread_while_it_can_be_replaced(tmp_path: Path) -> None:
    before = len(os.listdir("/dev/fd"))
    disk = SlowDisk()
    file = NodesFile(str(tmp_path / "nodes.conf"), disk)
    file.open()
    file.save(b"one\n", must_sync=False)
    assert file.sync_later(pytest.fail)
    assert not file.sync_later(pytest.fail)
    disk.steps.clear()
    disk.may_sync.set()
    file.close()
    assert disk.steps == ["sync", "sync directory"]
    assert len(os.listdir("/dev/fd")) == before


def test_a_file_that_cannot_be_synced_is_reported(tmp_path: Path) -> None:
    disk = SlowDisk(OSError(5, "Input/output error"))
    file = NodesFile(str(tmp_path / "nodes.conf"), disk)
    file.open()
    file.save(b"one\n", must_sync=False)
    disk.may_sync.set()
    reported: list[OSError] = []
    assert file.sync_later(reported.append)
    file.close()
    assert reported == [disk.error]


def test_a_second_server_does_not_get_the_file(tmp_path: Path) -> None:
    file = NodesFile(str(tmp_path / "nodes.conf"))
    file.open()
    for must_sync in (False, True, False):
        with pytest.raises(StartError, match="already used by a different Redis Cluster node"):
            NodesFile(file.path).open()
        file.save(b"text\n", must_sync=must_sync)
    with pytest.raises(StartError, match="already used"):
        NodesFile(file.path).open()
    file.close()
    other = NodesFile(file.path)
    assert other.open() == b"text\n"
    other.close()


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    file = NodesFile(str(tmp_path / "nodes.conf"))
    file.open()
    file.save(b"one\n", must_sync=True)
    file.close()
    broken = NodesFile(file.path, FullDisk())
    assert broken.open() == b"one\n"
    for must_sync in (False, True):
        with pytest.raises(OSError, match="No space"):
            broken.save(b"two\n", must_sync=must_sync)
    broken.close()
    assert Path(file.path).read_bytes() == b"one\n"


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"missing/nodes\.conf"):
        NodesFile(str(tmp_path / "missing" / "nodes.conf")).open()
