"""The file operations that an archive needs."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path

__all__ = ["Disk"]


class Disk:
    """The operating system. Tests derive from it to make operations fail.

    Everything raises OSError. A name is on the disk only when its folder has been synced.
    """

    def write_new(self, path: Path, data: bytes) -> None:
        """Write a file that must not exist yet (O_EXCL), and sync it."""
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            self.sync_fd(file.fileno())

    def publish(self, temporary: Path, final: Path) -> None:
        """Give a file its final name atomically, never replacing another. FileExistsError when the name is taken."""
        try:
            self.link(temporary, final)
        except FileExistsError:
            raise
        except OSError:
            if not temporary.exists():
                raise FileNotFoundError(str(temporary)) from None
            # A file system without hard links: rely on the lock, and on nobody else writing this run's pending files.
            if final.exists():
                raise FileExistsError(str(final)) from None
            os.rename(temporary, final)
        else:
            with suppress(FileNotFoundError):
                os.unlink(temporary)

    def link(self, source: Path, target: Path) -> None:
        os.link(source, target)

    def move(self, source: Path, target: Path) -> None:
        os.rename(source, target)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def remove_tree(self, path: Path) -> None:
        with suppress(FileNotFoundError):
            shutil.rmtree(path)

    def make_folder(self, path: Path) -> None:
        """Make a folder and those above it, and sync their names."""
        missing = []
        while not path.is_dir():
            missing.append(path)
            path = path.parent
        for each in reversed(missing):
            each.mkdir(exist_ok=True)
            self.sync_folder(each.parent)

    def sync_file(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.sync_fd(fd)
        finally:
            os.close(fd)

    def sync_folder(self, path: Path) -> None:
        self.sync_file(path)

    def sync_fd(self, fd: int) -> None:
        if sys.platform == "darwin":  # where fsync leaves the data in the disk's own memory
            import fcntl

            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
        else:
            os.fsync(fd)
