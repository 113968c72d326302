"""Syncing in the background: a thread that keeps slow calls away from the event loop."""

from __future__ import annotations

import errno
import logging
import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from queue import Queue

from streamd.disk import Disk

__all__ = ["Done", "Syncer"]

log = logging.getLogger("streamd")

Done = tuple[int, int, int]
"""Which file, how many bytes of it, and the replication offset at that point."""


@dataclass
class _Job:
    fd: int
    done: Done | None  # None: not synced
    close: bool


class Syncer:
    """A thread that syncs and closes files in the order of the requests.

    pending    unfinished syncs, except of files that are then closed: no write waits for these
    error      errno of the last sync, 0 if it succeeded
    last_done  what the last successful sync covered
    """

    def __init__(self, disk: Disk) -> None:
        self.error = 0
        self.last_done: Done = (-1, 0, 0)
        self._disk = disk
        self._queue: Queue[_Job | None] = Queue()
        self._submitted = 0  # written by the loop's thread only
        self._done = 0  # written by the thread only
        self._thread: threading.Thread | None = None

    @property
    def pending(self) -> int:
        return self._submitted - self._done

    def submit(self, fd: int, done: Done, *, close: bool = False) -> None:
        """Sync a file, and then close it if `close` is set."""
        self._put(_Job(fd, done, close))

    def close_later(self, fd: int) -> None:
        """Close a file, which may take long when it no longer has a name."""
        self._put(_Job(fd, None, True))

    def unlink(self, path: str) -> None:
        """Delete a file without waiting until its blocks have been freed, which takes long for large ones."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._disk.unlink(path)
        finally:
            self.close_later(fd)

    def drain(self) -> None:
        """Wait until everything is done."""
        self._queue.join()

    def stop(self) -> None:
        """Wait until everything is done, and stop the thread; the next request restarts it."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def _put(self, job: _Job) -> None:
        self._submitted += not job.close
        self._queue.put(job)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="aof-fsync", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            job = self._queue.get()
            if job is None:
                self._queue.task_done()
                return
            try:
                self._do(job)
            finally:
                self._done += not job.close
                self._queue.task_done()

    def _do(self, job: _Job) -> None:
        if job.done is not None:
            try:
                self._disk.sync_data(job.fd)
            except OSError as error:
                # Redis ignores these two: the descriptor may have been closed, or may not be a file.
                if error.errno not in (errno.EBADF, errno.EINVAL):
                    if not self.error:
                        log.warning("Fail to fsync the AOF file: %s", error.strerror)
                    self.error = error.errno or errno.EIO
            else:
                self.error = 0
                self.last_done = job.done
        if job.close:
            with suppress(OSError):
                self._disk.close(job.fd)
