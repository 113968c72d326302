"""Locks on data directories: two servers writing to the same directory would overwrite each other's files.

`DirectoryLocks.hold` locks directories with flock on the directory itself: nothing is left behind in it, and the lock
is released when the process ends, however it ends. Forked children close what they inherited at once
(see persistence.child), so a child that outlives its server does not keep the lock.

A directory that is not writable needs no lock and gets none. A file system without locks gets none either; this is
logged.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
from collections.abc import Iterable
from contextlib import suppress

__all__ = ["DirectoryInUseError", "DirectoryLocks"]

log = logging.getLogger("streamd")


class DirectoryInUseError(OSError):
    """Another server writes to a directory. `strerror` is the whole message.

    pid  of that server; None if the system does not report it
    """

    def __init__(self, path: str, pid: int | None) -> None:
        holder = "another process" if pid is None else f"process {pid}"
        super().__init__(errno.EBUSY, f"The data directory {path} is in use by {holder}")
        self.pid = pid


class DirectoryLocks:
    """The directories that one server has locked."""

    def __init__(self) -> None:
        self._held: dict[str, int] = {}  # descriptors by real path

    def hold(self, directories: Iterable[str]) -> None:
        """Lock these directories too. Raises DirectoryInUseError, in which case nothing has changed."""
        wanted = _real_paths(directories)
        new: dict[str, int] = {}
        try:
            for path in wanted.difference(self._held):
                fd = _lock(path)
                if fd is not None:
                    new[path] = fd
        except DirectoryInUseError:
            _unlock(new.values())
            raise
        self._held |= new

    def keep(self, directories: Iterable[str]) -> None:
        """Unlock all others."""
        wanted = _real_paths(directories)
        _unlock([self._held.pop(path) for path in set(self._held).difference(wanted)])


def _real_paths(directories: Iterable[str]) -> set[str]:
    """Their real paths, except for a working directory that has been removed: no server can write there."""
    found = set()
    for path in directories:
        with suppress(FileNotFoundError):
            found.add(os.path.realpath(path))
    return found


def _lock(path: str) -> int | None:
    """A descriptor that holds the lock; None where there is nothing to lock."""
    if not os.access(path, os.W_OK):
        return None
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        found = os.fstat(fd)
        pid = find_holder(found.st_dev, found.st_ino)
        os.close(fd)
        if isinstance(error, BlockingIOError):
            raise DirectoryInUseError(path, pid) from None
        log.warning("The data directory %s cannot be locked: %s", path, error.strerror)
        return None
    return fd


def _unlock(descriptors: Iterable[int]) -> None:
    for fd in descriptors:
        # Closing is not enough: an embedding program may have forked, and the inherited copy would keep the lock.
        fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)


def find_holder(device: int, inode: int) -> int | None:
    """The process that holds a lock on a directory, or None.

    Linux lists locks as `1: FLOCK ADVISORY WRITE pid major:minor:inode 0 EOF`.
    """
    try:
        with open("/proc/locks", encoding="ascii") as file:
            rows = [line.split() for line in file]
    except OSError:
        return None
    place = f"{os.major(device):02x}:{os.minor(device):02x}:{inode}"
    for row in rows:
        if len(row) > 5 and row[1] == "FLOCK" and row[5] == place:
            return int(row[4])
    return None
