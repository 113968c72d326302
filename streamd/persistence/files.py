"""What the files ask of the operating system, in one object, so that tests can hand in a disk that fails.

Every operation raises OSError. Directories are synced too: a new name is on the disk only when its directory is.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

__all__ = ["SYNC_EVERY", "Files", "SyncingSink"]

SYNC_EVERY = 4 << 20
"""Bytes after which a file that is being written is brought to the disk, so that the last time does not take long."""

if sys.platform == "darwin":
    import fcntl

    def _sync(fd: int) -> None:
        """fsync of macOS leaves the data in the disk's own memory; this does not."""
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)

    _sync_data = _sync
else:
    _sync = os.fsync
    _sync_data = getattr(os, "fdatasync", os.fsync)


class Files:
    """The operating system. Derive from it to make an operation fail."""

    def open_append(self, path: str, *, new: bool = False) -> int:
        """Open a file for appending, made when it is missing; `new`: emptied when it is not. Returns its descriptor."""
        # O_APPEND also for new files: after a short write is cut off again, the next one must not leave a gap.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | (os.O_TRUNC if new else 0)
        return os.open(path, flags, 0o644)

    def write(self, fd: int, data: memoryview) -> int:
        """Write some of `data`; how many bytes."""
        return os.write(fd, data)

    def sync_data(self, fd: int) -> None:
        """Bring what was written, and the length of the file, to the disk."""
        _sync_data(fd)

    def sync(self, fd: int) -> None:
        _sync(fd)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def close(self, fd: int) -> None:
        os.close(fd)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def rename(self, old: str, new: str) -> None:
        """Put `old` in the place of `new`, at once."""
        os.rename(old, new)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def make_directory(self, path: str) -> None:
        """Make a directory that may be there already, and bring its name to the disk."""
        with suppress(FileExistsError):
            os.mkdir(path, 0o755)
            self.sync_directory(os.path.dirname(path) or ".")

    def sync_directory(self, path: str) -> None:
        """Bring the names in a directory to the disk."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _sync(fd)
        finally:
            os.close(fd)

    def write_file(self, path: str, data: bytes) -> None:
        """Write a whole file and bring it to the disk."""
        fd = self.open_append(path, new=True)
        try:
            view = memoryview(data)
            while view:
                view = view[self.write(fd, view) :]
            self.sync(fd)
        finally:
            self.close(fd)


class SyncingSink:
    """Writes to a descriptor, all of what it is given, and syncs now and then.

    sync_every  bytes; 0: never
    """

    def __init__(self, files: Files, fd: int, *, sync_every: int) -> None:
        self._files = files
        self._fd = fd
        self._sync_every = sync_every
        self._unsynced = 0

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[self._files.write(self._fd, view) :]
        self._unsynced += len(data)
        if self._sync_every and self._unsynced >= self._sync_every:
            self._files.sync_data(self._fd)
            self._unsynced = 0
