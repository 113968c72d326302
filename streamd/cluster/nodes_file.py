"""NodesFile: the file in which a node records its view of the cluster (cluster-config-file).

The core defines its content. The file is replaced as a whole, and locked while the server runs: two servers that wrote the same file would
act as one node. The lock is on the file; each new one is locked before it takes the place of the old one, so
that there is no moment without a lock.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable
from typing import NamedTuple

from streamd.disk import Disk, replacing
from streamd.errors import StartError

__all__ = ["NodesFile"]


MOST_REPLACED = 64
"""Replaced files that are kept open at a time."""


class ReplacedFiles(NamedTuple):
    """The descriptors of files that others have replaced."""

    descriptors: list[int]

    def free(self) -> None:
        """Close them, by which the system deletes the files: a run of numbers at a time, for which the interpreter's lock is given up once."""
        first = 0
        fds = sorted(self.descriptors)
        for at in range(1, len(fds) + 1):
            if at == len(fds) or fds[at] != fds[at - 1] + 1:
                os.closerange(fds[first], fds[at - 1] + 1)
                first = at


class NodesFile:
    """
    path  of the file
    """

    def __init__(
        self,
        path: str,
        disk: Disk | None = None,
        free: Callable[[ReplacedFiles], object] = ReplacedFiles.free,
    ) -> None:
        """free: frees replaced files, perhaps later: deleting one takes longer than writing the next one."""
        self.path = path
        self._disk = disk or Disk()
        self._free = free
        self._replaced: list[int] = []
        self._locked = -1  # a descriptor of the file, which has the lock
        self._syncing: threading.Thread | None = None

    def open(self) -> bytes | None:
        """Lock the file, and return its content, or None if it does not exist yet. Raises StartError."""
        try:
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StartError(
                f"Can't open {self.path} in order to acquire a lock: {error.strerror}. Check cluster-config-file and dir"
            ) from error
        if not _lock(fd):
            os.close(fd)
            raise StartError(
                f"Sorry, the cluster configuration file {self.path} is already used by a different Redis Cluster node. Please"
                " make sure that different nodes use different cluster configuration files."
            )
        self._locked = fd
        with open(self.path, "rb") as file:
            return file.read() or None

    def save(self, content: bytes, *, must_sync: bool) -> None:
        """Replace the content; it is on the disk afterwards if `must_sync`. Raises OSError."""
        temporary = f"{self.path}.tmp-{os.getpid()}"
        if must_sync:
            with replacing(self.path, temporary=temporary, disk=self._disk) as fd:
                self._write(fd, content)
                locked = os.dup(fd)
        else:
            locked = self._disk.open_append(temporary, new=True)
            try:
                self._write(locked, content)
                self._disk.rename(temporary, self.path)
            except BaseException:
                self._disk.close(locked)
                raise
        if self._locked >= 0:
            self._replaced.append(self._locked)
        self._locked = locked
        if len(self._replaced) >= MOST_REPLACED:
            self.free_replaced()

    def sync_later(self, failed: Callable[[OSError], object]) -> bool:
        """Sync the file on a thread, on which `failed` is called with an error; False: an earlier one is still being synced."""
        if self._syncing is not None and self._syncing.is_alive():
            return False
        self._syncing = threading.Thread(
            target=self._sync, args=(os.dup(self._locked), failed), name="nodes.conf", daemon=True
        )
        self._syncing.start()
        return True

    def _sync(self, fd: int, failed: Callable[[OSError], object]) -> None:
        try:
            self._disk.sync(fd)
            self._disk.sync_directory(os.path.dirname(self.path) or ".")
        except OSError as error:
            failed(error)
        finally:
            os.close(fd)

    def free_replaced(self) -> None:
        """Have the files freed that were replaced."""
        if self._replaced:
            self._free(ReplacedFiles(self._replaced))
            self._replaced = []

    def _write(self, fd: int, content: bytes) -> None:
        """Write and lock a new file."""
        self._disk.write_all(fd, content)
        _lock(fd)

    def close(self) -> None:
        """Unlock the file."""
        if self._syncing is not None:
            self._syncing.join()
        ReplacedFiles(self._replaced).free()
        self._replaced = []
        if self._locked >= 0:
            os.close(self._locked)
            self._locked = -1


def _lock(fd: int) -> bool:
    """Lock a file; False if another server has the lock. A file system without locks locks nothing."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
