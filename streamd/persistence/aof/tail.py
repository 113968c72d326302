"""The tail of an append-only file: the incremental file that effects are written to, and when it is synced.

With `always`, every write is synced before `flush` returns, or CannotPersistError ends the process. With `everysec`, a
thread syncs, and a write waits at most two seconds for a sync in progress, since it might block in the kernel behind
the sync. Except with `always`, what cannot be written or synced is kept and retried every second; `error` tells why, so
that writes are refused meanwhile.

Invariants: the file has `written` bytes, of which `synced` are certainly on disk; `written` is the end of a complete
command, unless a short write could not be undone.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable

from streamd.disk import Disk
from streamd.errors import StreamdError
from streamd.persistence.aof.aof_manifest import NotSyncedError
from streamd.persistence.aof.aof_options import AofOptions
from streamd.persistence.aof.buffer import AofBuffer
from streamd.persistence.aof.reader import STATE_PREFIX
from streamd.persistence.aof.replay import POSITION
from streamd.persistence.aof.syncer import Syncer

__all__ = ["CannotPersistError", "Tail"]

log = logging.getLogger("streamd")

SYNC_INTERVAL_S = 1.0
MAX_POSTPONED_S = 2.0
"""How long a write waits for a sync in the background."""
ERROR_LOG_INTERVAL_S = 30.0


class CannotPersistError(StreamdError):
    """With `appendfsync always`, something could not be written or synced: the process must end."""


class Tail:
    """
    fd              of the file, -1: there is no current file
    written         bytes of it
    synced          how many of them are known to be on disk
    grown           bytes written since the owner set it to 0
    last_write_ok   False: the last write failed; `last_write_errno` says why
    delayed_fsync   writes that gave up waiting for a sync in the background
    position        makes what the file is to say of the data before: its place in the stream; empty: nothing
    is_position_due  it is to be written, whatever else is; otherwise it is written behind the changes of a turn
    synced_offset   the replication offset up to which everything is on disk; 0 until there is a base that the file continues
    """

    def __init__(
        self,
        options: AofOptions,
        disk: Disk,
        buffer: AofBuffer,
        syncer: Syncer,
        *,
        clock: Callable[[], float],
        replication_offset: Callable[[], int],
        has_child: Callable[[], bool],
    ) -> None:
        self.fd = -1
        self.written = 0
        self.synced = 0
        self.grown = 0
        self.last_write_ok = True
        self.last_write_errno = 0
        self.delayed_fsync = 0
        self.position: Callable[[], bytes] = bytes
        self.is_position_due = False
        self.synced_offset = 0
        self._waiting_offset: int | None = None  # what synced_offset becomes when the base is there; None: it is
        self._options = options
        self._disk = disk
        self._buffer = buffer
        self._syncer = syncer
        self._clock = clock
        self._replication_offset = replication_offset
        self._has_child = has_child
        self._generation = 0  # increases with every file: descriptors are reused
        self._last_sync = clock()
        self._postponed_since: float | None = None
        self._last_error_log = -ERROR_LOG_INTERVAL_S
        self._next_retry = 0.0
        self._fatal: str | None = None
        self._sync_was_broken = False
        self._unsynced_directory = ""
        self._directory_error = 0  # errno of the sync of that directory, which must be retried

    # --- Which file --------------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return self.fd >= 0

    def open(self, fd: int, size: int) -> None:
        """Start with a file that has `size` bytes, all of them on disk."""
        self.fd = fd
        self._generation += 1
        self.written = self.synced = size
        self._last_sync = self._clock()
        self._waiting_offset = None
        self.synced_offset = self._replication_offset()

    def wait_for_base(self) -> None:
        """The file continues a base that is still to be written: of the data as it is now."""
        self._waiting_offset = self._replication_offset()
        self.synced_offset = 0

    def base_is_there(self) -> None:
        """The base that was waited for is on disk."""
        if self._waiting_offset is not None:
            self.synced_offset = self._waiting_offset
            self._waiting_offset = None

    def renumber(self, offset: int) -> None:
        """What has been loaded ends at this offset of another history; nothing has been written since."""
        if self._waiting_offset is None:
            self.synced_offset = offset
        else:
            self._waiting_offset = offset

    def _note_synced(self, offset: int) -> None:
        if self._waiting_offset is None:
            self.synced_offset = max(self.synced_offset, offset)
        else:
            self._waiting_offset = max(self._waiting_offset, offset)

    def replace(self, fd: int) -> None:
        """Switch to another file; the previous one is closed in the background, and synced if it needs to be."""
        if self.fd >= 0 and self.synced == self.written:
            self._syncer.close_later(self.fd)  # a sync that fails would stop writers for nothing
        elif self.fd >= 0:
            done = (self._generation, self.written, self._replication_offset())
            self._syncer.submit(self.fd, done, close=True)
            self._last_sync = self._clock()
        self.fd = fd
        self._generation += 1
        self.written = self.synced = 0
        self._postponed_since = None
        self._buffer.begin_file()
        self.is_position_due = True

    def close(self) -> None:
        """Stop writing to the file; it is closed in the background."""
        if self.fd >= 0:
            self._syncer.close_later(self.fd)
            self.fd = -1

    def forget(self) -> None:
        """Stop writing: nothing is written any more."""
        self.last_write_ok = True
        self.written = self.synced = 0
        self._postponed_since = None

    def forget_errors(self) -> None:
        """Clear earlier errors when the append-only file is switched on."""
        self.last_write_ok = True
        self._syncer.error = 0
        self._sync_was_broken = False
        self._directory_error = 0
        self._fatal = None
        self._last_sync = self._clock()

    # --- Writing -------------------------------------------------------------------------------------------------

    def flush(self, *, force: bool = False) -> None:
        """Write what has been appended, and sync it according to the policy, before any reply of the turn leaves.

        force  do not wait for a sync in the background
        A failed write is kept and retried by `cron`; see `error`. Raises CannotPersistError: see the head of file.py.
        """
        if self.fd < 0:
            return
        if self._fatal is not None:
            raise CannotPersistError(self._fatal)
        policy = self._options.appendfsync
        if (self._buffer or self.is_position_due) and (position := self.position()):
            self._buffer.annotate(STATE_PREFIX + POSITION + position + b"\r\n")
        self.is_position_due = False
        if not self._buffer:
            if self.synced != self.written and (policy == "always" or (policy == "everysec" and self._is_sync_due())):
                self._sync()
            return
        if policy == "everysec" and not force and self._syncer.pending and self._postpone():
            return
        if self._write():
            self._sync()

    def _postpone(self) -> bool:
        """Whether a write must still wait for the sync in the background: it might block in the kernel behind it."""
        now = self._clock()
        if self._postponed_since is None:
            self._postponed_since = now
            return True
        if now - self._postponed_since < MAX_POSTPONED_S:
            return True
        self.delayed_fsync += 1
        log.info(
            "Asynchronous AOF fsync is taking too long (disk is busy?). Writing the AOF buffer without waiting for fsync"
            " to complete, this may slow down the server."
        )
        return False

    def _write(self) -> bool:
        """Write the buffer to the file; False when that failed."""
        self._postponed_since = None
        done = 0
        error: OSError | None = None
        with self._buffer.view() as view:
            total = len(view)
            while done < total and error is None:
                try:
                    with view[done:] as rest:  # released at once, even if an exception holds a reference
                        done += self._disk.write(self.fd, rest)
                except InterruptedError:
                    continue
                except OSError as failure:
                    error = failure
        if error is None:
            self._buffer.drop(total)
            self._count_written(total)
            if not self.last_write_ok:
                log.info("AOF write error looks solved. The server can write again.")
                self.last_write_ok = True
            return True
        self._write_failed(error, done, total)
        return False

    def _count_written(self, n: int) -> None:
        self.written += n
        self.grown += n

    def _write_failed(self, error: OSError, done: int, total: int) -> None:
        now = self._clock()
        can_log = now - self._last_error_log >= ERROR_LOG_INTERVAL_S
        if can_log:
            self._last_error_log = now
            if done:
                log.warning("Short write while writing to the AOF file: (nwritten=%d, expected=%d): %s",
                            done, total, error.strerror)  # fmt: skip
            else:
                log.warning("Error writing to the AOF file: %s", error.strerror)
        self.last_write_errno = error.errno or errno.EIO
        if done:
            try:
                self._disk.truncate(self.fd, self.written)
            except OSError as failure:
                # Half a command is in the file: the other half has to follow.
                self._buffer.drop(done)
                self._count_written(done)
                if can_log:
                    log.warning(
                        "Could not remove short write from the append-only file. The AOF may not load the next time"
                        " the server starts. ftruncate: %s", failure.strerror,
                    )  # fmt: skip
        if self._options.appendfsync == "always":
            self._die("Can't recover from AOF write error when the AOF fsync policy is 'always'. Exiting...")
        self.last_write_ok = False
        self._next_retry = now + SYNC_INTERVAL_S

    def _die(self, text: str) -> None:
        self._fatal = text
        raise CannotPersistError(text)

    # --- Syncing -------------------------------------------------------------------------------------------------

    def _is_sync_due(self) -> bool:
        return self._clock() - self._last_sync >= SYNC_INTERVAL_S and not self._syncer.pending

    def _sync(self) -> None:
        """Sync what has been written, now or soon, according to the policy."""
        policy = self._options.appendfsync
        if policy == "no" or (self._options.no_fsync_on_rewrite and self._has_child()):
            return
        if policy == "always":
            try:
                self._disk.sync_data(self.fd)
            except OSError as error:
                self._die(
                    "Can't persist AOF for fsync error when the AOF fsync policy is 'always':"
                    f" {error.strerror}. Exiting..."
                )
            self.synced = self.written
            self._note_synced(self._replication_offset())
            self._last_sync = self._clock()
        elif self._is_sync_due():
            self._sync_in_background()

    def _sync_in_background(self) -> None:
        self._syncer.submit(self.fd, (self._generation, self.written, self._replication_offset()))
        self._last_sync = self._clock()

    def directory_not_synced(self, directory: str, error: NotSyncedError) -> None:
        """The current file may have no name after a power failure: promise nothing until its directory is synced."""
        log.warning("%s", error)
        cause = error.__cause__
        if self._options.appendfsync == "always":
            self._fatal = (
                f"Can't persist AOF for fsync error when the AOF fsync policy is 'always': {error}. Exiting..."
            )
        else:
            self._unsynced_directory = directory
            self._directory_error = (cause.errno if isinstance(cause, OSError) else None) or errno.EIO
            self._next_retry = self._clock() + SYNC_INTERVAL_S

    def _sync_directory_again(self) -> None:
        if self._clock() < self._next_retry:
            return
        try:
            self._disk.sync_directory(self._unsynced_directory)
        except OSError:
            self._next_retry = self._clock() + SYNC_INTERVAL_S
        else:
            self._directory_error = 0
            log.info("The directory of the AOF was synced. The server can write again.")

    def sync_at_end(self) -> None:
        try:
            self._disk.sync(self.fd)
        except OSError as error:
            log.warning("Fail to fsync the AOF file: %s.", error.strerror)
            if self._options.appendfsync == "always":
                self._die(f"Can't persist AOF for fsync error: {error.strerror}. Exiting...")
        else:
            self.synced = self.written
            self._note_synced(self._replication_offset())

    def look_at_syncs(self) -> bool:
        """Take over the results of background syncs. True: syncing had failed, and works again."""
        syncer = self._syncer
        generation, size, offset = syncer.last_done
        if generation == self._generation and size > self.synced:
            self.synced = size
            self._note_synced(offset)
        if syncer.error:
            self._sync_was_broken = True
        elif self._sync_was_broken and not syncer.pending:
            self._sync_was_broken = False
            log.info("AOF fsync error looks solved. Rewriting the file, since parts of it may have been lost.")
            return True
        return False

    def try_again(self) -> None:
        """Write what was postponed, retry what failed, sync what was written. Raises CannotPersistError."""
        if self._directory_error:
            self._sync_directory_again()
        if self._syncer.error and self._is_sync_due():
            # Writes are refused meanwhile, so no further data may arrive to trigger a sync.
            self._sync_in_background()
        if not self.last_write_ok and self._clock() < self._next_retry:
            return
        self.flush()

    @property
    def error(self) -> int:
        """Why writes must be refused (MISCONF): an errno, or 0 when they need not be."""
        if not self.last_write_ok:
            return self.last_write_errno
        return self._syncer.error or self._directory_error

    @property
    def pending_fsyncs(self) -> int:
        """Syncs in the background that have not finished."""
        return self._syncer.pending
