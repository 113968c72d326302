"""Merges of a service, beside its rounds: a merge reads and writes millions of rows, and new entries should not wait for that.

    a round, under the lock of the stream   finds files to merge, and begins
    a thread, without that lock             writes the new file to a staging folder of its own, and compares it with the old ones
    a later round, under its lock           moves the file into place and commits it, if all files that it replaces still count

The staging folder has the name of a run, like any other, and a lock of its own, `streamd:archive:merging:...`: other archivers remove the
folders of runs that have ended, but not this one, and begin no merge of the same stream. If that lock is lost, if one of the files was
replaced, or if the process ends, the new file is discarded: nothing names it before the commit, which is the one of any rewrite. A deletion
takes the lock away and removes the folder, which is made once, so that nothing that was deleted is written to it afterwards.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack, suppress

from streamd.archive.archive_errors import LockedError
from streamd.archive.layout import Layout
from streamd.archive.lock import ArchiveLock, merging_run
from streamd.archive.manifest import FileRecord
from streamd.archive.manifest_log import ManifestLog
from streamd.archive.rewriting import Rewrite
from streamd.archive.staging_folder import staged
from streamd.client.connection import Connection, connect
from streamd.client.url_options import ConnectionOptions
from streamd.disk import Disk

__all__ = ["BackgroundMerge", "BackgroundMerges"]


MOST_MERGES = 16
"""That run or wait for a round, in one process."""

CLOSE_S = 10.0
"""How long merges that are stopped are waited for, if their servers do not answer. Their locks expire."""


class _StoppedError(Exception):
    """The service stops."""


class BackgroundMerge:
    """A merge of one stream: its lock, its staging folder, and the thread that fills that; all of them end with `close`.

    lock  of the merge, acquired
    hook  called, by the thread, with the steps "merge staged" and "merge verified"
    """

    def __init__(
        self,
        layout: Layout,
        stream: str,
        groups: Sequence[Sequence[FileRecord]],
        lock: ArchiveLock,
        disk: Disk,
        hook: Callable[[str], None],
    ) -> None:
        self._lock = lock
        self._hook = hook
        self._stopping = threading.Event()
        self._fault: Exception | None = None
        self._is_verified = False
        self._resources = ExitStack()
        self._resources.callback(lock.connection.close)
        self._resources.callback(lock.release)
        lock.start_renewing(lock.connection.options)
        with self._resources:
            folder = self._resources.enter_context(staged(layout.root, layout.staging(stream, lock.run), disk))
            disk.make_directories(folder)
            self.rewrite = Rewrite(layout, groups, folder, "merge", disk, progress=self._go_on)
            self._thread = threading.Thread(target=self._run, name=f"archive merge of {stream}", daemon=True)
            self._thread.start()
            self._resources = self._resources.pop_all()

    def _run(self) -> None:
        try:
            self.rewrite.write()
            self._hook("merge staged")
            self.rewrite.compare()
            self._hook("merge verified")
            self._is_verified = True
        except Exception as error:  # raised in the round that asks
            self._fault = error

    def _go_on(self, rows: int) -> None:
        if self._stopping.is_set() or self._lock.is_lost:
            raise _StoppedError

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def is_due(self, log: ManifestLog, connection: Connection) -> bool:
        """Whether what has been written may replace files of these manifests. Raises what has gone wrong.

        connection  to the server of the stream, whose lock the caller holds
        """
        counting = {file.path for file in log.files}
        if any(file.path not in counting for file in self.rewrite.files):
            return False
        if merging_run(connection, log.stream) != self._lock.run:
            return False
        if self._fault is not None:
            raise self._fault
        return self._is_verified

    def stop(self) -> None:
        """Have it end soon, if it still runs."""
        self._stopping.set()

    def close(self) -> None:
        """Stop, and remove what has not been moved into place."""
        self.stop()
        self._thread.join()
        with suppress(OSError):
            self._resources.close()


class BackgroundMerges:
    """The merges of one process: one of them runs at a time, and each waits for a round of its stream to commit it.

    Each holds two connections and a folder until then, so their number is limited.
    """

    def __init__(self) -> None:
        self._merges: dict[str, BackgroundMerge] = {}

    def begin(
        self,
        layout: Layout,
        options: ConnectionOptions,
        stream: str,
        run: str,
        groups: Sequence[Sequence[FileRecord]],
        disk: Disk,
        hook: Callable[[str], None],
        *,
        lock_ttl_ms: int,
    ) -> None:
        """Begin a merge, unless another one runs here, or another process merges this stream.

        options  how its server is reached, which has the lock of the merge
        run      a name that no other run has
        """
        if len(self._merges) >= MOST_MERGES or any(each.is_running for each in self._merges.values()):
            return
        connection = connect(options)
        try:
            lock = ArchiveLock.acquire(
                connection, stream, run=run, archive=str(layout.root), ttl_ms=lock_ttl_ms, kind="merging"
            )
        except LockedError:
            connection.close()
            return
        except BaseException:
            connection.close()
            raise
        self._merges[stream] = BackgroundMerge(layout, stream, groups, lock, disk, hook)

    def is_merging(self, stream: str) -> bool:
        return stream in self._merges and self._merges[stream].is_running

    def take(self, stream: str) -> BackgroundMerge | None:
        """The finished merge of a stream, which the caller closes; None if none has finished."""
        return None if self.is_merging(stream) else self._merges.pop(stream, None)

    def keep(self, streams: Collection[str]) -> None:
        """Stop those of other streams, of which there will be no rounds."""
        self._stop(self._merges.keys() - set(streams))

    def drop(self, stream: str) -> None:
        """Stop that of a stream, if there is one: it is unknown whether a round of it will ever get so far again."""
        self._stop(self._merges.keys() & {stream})

    def _stop(self, streams: Collection[str]) -> None:
        # At the same time: a server that is down may make each of them wait.
        merges = [self._merges.pop(each) for each in streams]
        for merge in merges:
            merge.stop()
        threads = [threading.Thread(target=merge.close, daemon=True) for merge in merges]
        for thread in threads:
            thread.start()
        until = time.monotonic() + CLOSE_S
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))

    def close(self) -> None:
        """Stop all."""
        self.keep(())
