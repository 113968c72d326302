"""The data directory: where files are, and the locks on the directories that are written to."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from streamd.disk import Disk
from streamd.errors import ConfigError
from streamd.persistence.directory_lock import DirectoryInUseError, DirectoryLocks
from streamd.settings.config import Config

__all__ = ["DataDirectory"]

log = logging.getLogger("streamd")

LOCK_WAIT_S = 1.0
"""How long a start waits for the data directory: a server that was just killed may still be exiting."""
LOCK_POLL_S = 0.02


class DataDirectory:
    """
    writers  each yields the directories that it may write to at any time; these are locked
    """

    def __init__(self, config: Config, *, is_embedded: bool) -> None:
        self.writers: list[Callable[[], Iterable[str]]] = []
        self._config = config
        self._is_embedded = is_embedded
        self._locks = DirectoryLocks()
        self._start_directory = os.getcwd()

    def path(self, name: str) -> str:
        """The path of a file in the data directory, the working directory too unless the server is embedded."""
        return os.path.join(self._config.dir or ".", name) if self._is_embedded else name

    @property
    def here(self) -> str:
        """The current data directory."""
        return self.path("") or "."

    @property
    def snapshot_path(self) -> str:
        return self.path(self._config.dbfilename)

    # --- Locks -------------------------------------------------------------------------------------------------------

    def _written(self) -> set[str]:
        return {each for writer in self.writers for each in writer()}

    def claim(self, *more: str) -> None:
        """Lock the directories that may be written to, and `more`, until `settle`. Raises DirectoryInUseError."""
        self._locks.hold({*self._written(), *more})

    def settle(self) -> None:
        """Unlock the directories that are no longer used."""
        self._locks.keep(self._written())

    def release(self) -> None:
        """Unlock all directories."""
        self._locks.keep(())

    async def claim_at_start(self) -> None:
        """Like `claim`, but retry for up to LOCK_WAIT_S."""
        deadline = time.monotonic() + LOCK_WAIT_S
        while True:
            try:
                return self.claim()
            except DirectoryInUseError:
                if time.monotonic() > deadline:
                    raise
            await asyncio.sleep(LOCK_POLL_S)

    # --- Files that were read in part ---------------------------------------------------------------------------------

    def keep(self, path: str, name: str = "") -> None:
        """Keep a file that is about to be replaced by less than it holds, under another name. Raises OSError.

        name  which one; by default one with the file's time, under which it is kept once however often it is read. A file in a
              directory that this server does not write to stays as it is.
        """
        if not name and os.path.realpath(os.path.dirname(path)) not in self._own:
            return
        import shutil

        disk = Disk()
        modified = os.stat(path).st_mtime_ns
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(modified // 10**9))
        kept = name or f"{path}.whole-{stamp}.{modified % 10**9:09}"
        if name or not os.path.exists(kept):
            temporary = f"{kept}.new"
            with suppress(FileNotFoundError):
                os.unlink(temporary)
            try:
                os.link(path, temporary)
            except OSError:  # a file system without links
                shutil.copy2(path, temporary)
                disk.sync_file(temporary)
            os.replace(temporary, kept)
            disk.sync_directory(os.path.dirname(kept) or ".")
        log.warning(
            "%s could be loaded only in part, and will be replaced by that part. The original file is kept as %s:"
            " remove it when you no longer need it.",
            path,
            kept,
        )

    @property
    def _own(self) -> set[str]:
        """The directories that this server may write to."""
        return {os.path.realpath(each) for each in (self.here, self.path(self._config.appenddirname))}

    # --- Settings ----------------------------------------------------------------------------------------------------

    def change(self) -> None:
        """CONFIG SET dir. Raises ConfigError, also if another server is using the directory."""
        path = self._config.dir or self._start_directory
        try:
            self.claim(path)
            if not self._is_embedded:
                os.chdir(path)
        except OSError as error:
            raise ConfigError("dir", error.strerror or str(error)) from error
        finally:
            self.settle()
