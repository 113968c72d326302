"""Files: access to the operating system, and how a file is replaced atomically.

`Disk` is the operating system in one object. Everything that must survive a crash goes through one, so that a test can
pass in a disk that fails. Every operation may raise OSError. A new name is safe only once its directory is synced.

A file is always replaced in the same four steps. After each of them the name leads to the complete old file or the
complete new one:

    write a temporary file in the same directory  ->  sync it  ->  rename it  ->  sync the directory

    replace_file(path, content)             when the content is at hand
    with replacing(path) as fd: ...         when it is written piece by piece
    with new_file(temporary) as fd: ...     the first two steps; the caller renames when ready

When a step up to the rename fails, the temporary file is removed and the old file is unchanged.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

__all__ = ["SYNC_EVERY", "Disk", "StrPath", "SyncingSink", "new_file", "replace_file", "replacing"]

SYNC_EVERY = 4 << 20
"""Bytes after which a file that is being written is synced, so that the last sync does not take long."""

StrPath = str | os.PathLike[str]

if sys.platform == "darwin":
    import fcntl

    def _sync(fd: int) -> None:
        """fsync on macOS leaves the data in the disk's own cache; this does not."""
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)

    _sync_data = _sync
else:
    _sync = os.fsync
    _sync_data = getattr(os, "fdatasync", os.fsync)


class Disk:
    """The operating system. Tests subclass it to make operations fail."""

    # --- Descriptors -------------------------------------------------------------------------------------------------

    def open_append(self, path: StrPath, *, new: bool = False, mode: int = 0o644) -> int:
        """Open a file for appending, creating it if missing; `new`: truncate it if not. Returns its descriptor.

        mode  permissions of a file that is created, less the umask
        """
        # O_APPEND also for new files: after a short write is cut off again, the next one must not leave a gap.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | (os.O_TRUNC if new else 0)
        return os.open(path, flags, mode)

    def write(self, fd: int, data: memoryview) -> int:
        """Write some of `data`; return how many bytes."""
        return os.write(fd, data)

    def write_all(self, fd: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[self.write(fd, view) :]

    def sync_data(self, fd: int) -> None:
        """Sync what was written, and the length of the file."""
        _sync_data(fd)

    def sync(self, fd: int) -> None:
        """Sync a file and all of its metadata."""
        _sync(fd)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def close(self, fd: int) -> None:
        os.close(fd)

    # --- Files -------------------------------------------------------------------------------------------------------

    def size(self, path: StrPath) -> int:
        return os.stat(path).st_size

    def write_new(self, path: StrPath, data: bytes) -> None:
        """Write a file that must not exist yet (O_EXCL), and sync it."""
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            self.write_all(fd, data)
            self.sync(fd)
        finally:
            self.close(fd)

    def sync_file(self, path: StrPath) -> None:
        """Sync a file that has been written through another descriptor."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.sync(fd)
        finally:
            self.close(fd)

    def cut(self, path: StrPath, size: int) -> None:
        """Truncate a file to `size`, and sync it."""
        fd = self.open_append(path)
        try:
            self.truncate(fd, size)
            self.sync(fd)
        finally:
            self.close(fd)

    def rename(self, old: StrPath, new: StrPath) -> None:
        """Rename `old` to `new`, atomically replacing an existing file."""
        os.rename(old, new)

    def link(self, old: StrPath, new: StrPath) -> None:
        """Give a file a second name, which must not be taken."""
        os.link(old, new)

    def publish(self, temporary: StrPath, final: StrPath) -> None:
        """Give a file its final name atomically, never replacing another. FileExistsError when the name is taken."""
        try:
            self.link(temporary, final)
        except FileExistsError:
            raise
        except OSError:
            if not os.path.exists(temporary):
                raise FileNotFoundError(str(temporary)) from None
            # A file system without hard links: rely on the caller's lock.
            if os.path.exists(final):
                raise FileExistsError(str(final)) from None
            self.rename(temporary, final)
        else:
            with suppress(FileNotFoundError):
                os.unlink(temporary)

    def unlink(self, path: StrPath) -> None:
        os.unlink(path)

    def remove(self, path: StrPath) -> None:
        """Remove a file, which may be missing."""
        with suppress(FileNotFoundError):
            self.unlink(path)

    # --- Directories -------------------------------------------------------------------------------------------------

    def make_directory(self, path: StrPath) -> None:
        """Create a directory, unless it exists, and sync its name."""
        with suppress(FileExistsError):
            os.mkdir(path, 0o755)
            self.sync_directory(os.path.dirname(path) or ".")

    def make_directories(self, path: StrPath) -> None:
        """Create a directory and its parents, and sync their names."""
        missing = []
        name = os.fspath(path)
        while not os.path.isdir(name):
            missing.append(name)
            name = os.path.dirname(name) or "."
        for each in reversed(missing):
            os.makedirs(each, exist_ok=True)
            self.sync_directory(os.path.dirname(each) or ".")

    def remove_tree(self, path: StrPath) -> None:
        """Remove a directory, which may be missing, and everything in it."""
        import shutil

        with suppress(FileNotFoundError):
            shutil.rmtree(path)

    def sync_directory(self, path: StrPath) -> None:
        """Sync the names in a directory."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _sync(fd)
        finally:
            os.close(fd)


class SyncingSink:
    """Writes everything it receives to a descriptor, and syncs now and then.

    sync_every  bytes; 0: never
    """

    def __init__(self, disk: Disk, fd: int, *, sync_every: int) -> None:
        self._disk = disk
        self._fd = fd
        self._sync_every = sync_every
        self._unsynced = 0

    def write(self, data: bytes) -> None:
        self._disk.write_all(self._fd, data)
        self._unsynced += len(data)
        if self._sync_every and self._unsynced >= self._sync_every:
            self._disk.sync_data(self._fd)
            self._unsynced = 0


# --- Replacing a file ----------------------------------------------------------------------------------------------------


@contextmanager
def new_file(path: StrPath, *, mode: int = 0o644, disk: Disk | None = None) -> Iterator[int]:
    """The descriptor of a new file, which is synced when the block ends, and removed when anything fails.

    mode  its permissions, less the umask
    """
    disk = disk or Disk()
    fd = disk.open_append(path, new=True, mode=mode)
    try:
        try:
            yield fd
            disk.sync(fd)
        finally:
            disk.close(fd)
    except BaseException:
        with suppress(OSError):
            disk.unlink(path)
        raise


@contextmanager
def replacing(
    path: StrPath, *, temporary: StrPath | None = None, mode: int = 0o644, disk: Disk | None = None
) -> Iterator[int]:
    """The descriptor of a new file that takes the place of `path` when the block ends.

    temporary  where it is written, in the same directory; None: under a hidden, random name
    mode       its permissions, less the umask
    When the directory cannot be synced, the new file is in place nevertheless.
    """
    disk = disk or Disk()
    directory, name = os.path.split(path)
    temporary = os.path.join(directory, f".{name}.{os.urandom(4).hex()}.tmp") if temporary is None else temporary
    with new_file(temporary, mode=mode, disk=disk) as fd:
        yield fd
    try:
        disk.rename(temporary, path)
    except BaseException:
        with suppress(OSError):
            disk.unlink(temporary)
        raise
    disk.sync_directory(directory or ".")


def replace_file(path: StrPath, content: bytes, *, mode: int = 0o644, disk: Disk | None = None) -> None:
    """Replace the content of a file atomically: a reader sees the old file or the new one, after a crash too.

    mode  permissions, less the umask, of a new file; an existing file keeps its permissions
    """
    disk = disk or Disk()
    kept = stat.S_IMODE(os.stat(path).st_mode) if os.path.exists(path) else None
    with replacing(path, mode=mode if kept is None else kept, disk=disk) as fd:
        if kept is not None:
            os.fchmod(fd, kept)  # what the umask takes away
        disk.write_all(fd, content)
