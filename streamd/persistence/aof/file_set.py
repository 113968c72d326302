"""The files of an append-only file: which exist, how new ones are named, and which are deleted when no longer needed.

    dir/appendonlydir/appendonly.aof.manifest          which files there are (aof_manifest.py)
                      appendonly.aof.2.base.rdb        everything up to the last rewrite
                      appendonly.aof.3.incr.aof        changes since then; the last file is the current one

Safer than Redis: the server refuses to start when there are base or incremental files but no manifest.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import replace

from streamd.disk import Disk
from streamd.keyspace.database import Database
from streamd.persistence.aof.aof_manifest import AofFile, Manifest, ManifestFile, NotSyncedError
from streamd.persistence.aof.aof_options import AofOptions
from streamd.persistence.aof.replay import AofLoadError, LoadOptions, LoadRdb, load_files
from streamd.persistence.aof.syncer import Syncer

__all__ = ["FileSet"]

log = logging.getLogger("streamd")


class FileSet:
    """
    parent         absolute path of the data directory; `directory`: of the files' own directory there
    manifest       the files that there are
    manifest_file  the manifest on disk
    """

    def __init__(self, options: AofOptions, disk: Disk, replication_offset: Callable[[], int]) -> None:
        self.manifest = Manifest()
        self._options = options
        self._disk = disk
        self._replication_offset = replication_offset
        self._use_directory(options.directory)

    def _use_directory(self, directory: str) -> None:
        # Absolute: CONFIG SET dir must not move what is being written.
        self.parent = os.path.abspath(directory)
        self.directory = os.path.join(self.parent, self._options.dirname)
        self.manifest_file = ManifestFile(self.directory, self._options.filename, self._disk)

    def move(self, directory: str) -> None:
        """Move to another data directory. Raises StreamdError, OSError if its manifest cannot be read: no move."""
        parent = self.parent
        if os.path.abspath(directory) == parent:
            return
        self._use_directory(directory)
        try:
            self.read_manifest()
        except BaseException:
            self._use_directory(parent)
            raise

    def read_manifest(self) -> None:
        """Read which files there are. Raises ManifestError, OSError."""
        self.manifest = self.manifest_file.load()

    # --- Loading -------------------------------------------------------------------------------------------------

    def load(
        self,
        apply: Callable[[list[bytes]], object],
        options: LoadOptions,
        *,
        load_rdb: LoadRdb,
        knows: Callable[[list[bytes]], object] | None = None,
        databases: Sequence[Database] = (),
    ) -> Generator[int, None, list[int]]:
        """Replay the files step by step; yields the number of bytes read so far, returns the files' sizes. See replay.py.

        Having nothing to load is not an error, and returns no sizes. Raises CorruptFileError, AofLoadError, OSError:
        the server must not start.
        """
        old_file = os.path.join(self.parent, self._options.filename)
        if self._is_old_style(old_file):
            self._upgrade(old_file)
        if self.manifest.is_empty:
            self.refuse_unlisted()
            return []
        return (yield from load_files(
            self.directory, self.manifest.to_load, apply, options,
            load_rdb=load_rdb, knows=knows, databases=databases, disk=self._disk,
        ))  # fmt: skip

    @property
    def total_to_load(self) -> int:
        """Total bytes that `load` will read. Does not raise: a missing file counts as empty."""
        return sum(self.size_of(file) for file in self.manifest.to_load)

    def size_of(self, file: AofFile) -> int:
        try:
            return self._disk.size(self.path(file.name))
        except OSError:
            return 0

    def size_of_base(self) -> int:
        return self.size_of(self.manifest.base) if self.manifest.base is not None else 0

    def end_of(self, size: int) -> int | None:
        """The replication offset at the end of the last incremental file, of `size` bytes; None: unknown."""
        last = self.manifest.incrementals[-1] if self.manifest.incrementals else None
        if last is None or last.start_offset is None:
            return None
        return last.start_offset + size if last.end_offset is None else last.end_offset

    def _is_old_style(self, old_file: str) -> bool:
        """Whether there is a file from before Redis 7.0, or an interrupted upgrade from one."""
        if not os.path.isfile(old_file):
            return False
        if self.manifest.is_empty:
            return not self.manifest_file.unlisted(self.manifest)
        base = self.manifest.base
        return (
            base is not None
            and not self.manifest.incrementals
            and base.name == self._options.filename
            and not os.path.exists(self.path(base.name))
        )

    def _upgrade(self, old_file: str) -> None:
        """Adopt the single file of older versions as the base, under its own name."""
        self._disk.make_directory(self.directory)
        manifest = Manifest(base=AofFile(self._options.filename, 1, "b"))
        # The manifest first: the file stays where it is until the manifest says where it will be.
        self.manifest_file.replace(manifest)
        self.manifest = manifest
        self._disk.rename(old_file, self.path(self._options.filename))
        self._disk.sync_directory(self.directory)
        self._disk.sync_directory(self.parent)
        log.info(
            "Successfully migrated an old-style AOF configuration (%s) into the AOF directory (%s).",
            self._options.filename, self._options.dirname,
        )  # fmt: skip

    def refuse_unlisted(self) -> None:
        """Raise AofLoadError when there is data that no manifest lists."""
        unlisted = self.manifest_file.unlisted(self.manifest)
        if unlisted:
            raise AofLoadError(
                f"The manifest {self.manifest_file.path} is missing or lists nothing, but there are files of an"
                f" append-only file: {', '.join(unlisted)}. Restore the manifest, or move these files away to begin with"
                " an empty data set"
            )

    # --- Names ---------------------------------------------------------------------------------------------------

    def path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def temporary_base(self, pid: int) -> str:
        """Where the process `pid` writes a new base."""
        return os.path.join(self.parent, f"temp-rewriteaof-bg-{pid}.aof")

    @property
    def temporary_incremental(self) -> str:
        return self.path(f"temp-{self._options.filename}.incr")

    def next_base(self, manifest: Manifest) -> AofFile:
        # Without a manifest there may be files that are not listed: their numbers are skipped.
        seq = manifest.base_seq or (self.manifest_file.highest_seqs()[0] if manifest.is_empty else 0)
        ending = "rdb" if self._options.use_rdb_preamble else "aof"
        return AofFile(f"{self._options.filename}.{seq + 1}.base.{ending}", seq + 1, "b")

    def next_incremental(self, manifest: Manifest) -> AofFile:
        seq = manifest.incremental_seq or (self.manifest_file.highest_seqs()[1] if self.manifest.is_empty else 0)
        return AofFile(f"{self._options.filename}.{seq + 1}.incr.aof", seq + 1, "i", self._replication_offset())

    # --- What is no longer needed --------------------------------------------------------------------------------

    def delete_history(self, syncer: Syncer) -> None:
        """Delete the files that are no longer needed, and remove them from the manifest."""
        if not self.manifest.history or self._options.keep_history:
            return
        for file in self.manifest.history:
            log.info("Removing the history file %s in the background", file.name)
            with suppress(FileNotFoundError):
                try:
                    syncer.unlink(self.path(file.name))
                except FileNotFoundError:
                    raise
                except OSError as error:
                    log.warning("Could not delete %s: %s", file.name, error.strerror)
        manifest = replace(self.manifest, history=[])
        try:
            self.manifest_file.replace(manifest)
        except NotSyncedError:
            pass  # either version is correct
        except OSError as error:
            log.warning("The manifest still lists deleted files: %s", error.strerror)
            return
        self.manifest = manifest

    def note_end(self) -> None:
        """Note the replication offset at which the file ends."""
        manifest = self.manifest.copy()
        manifest.close_last(self._replication_offset())
        try:
            self.manifest_file.replace(manifest)
        except NotSyncedError:
            pass
        except OSError as error:
            log.warning("The end of the append only file could not be recorded: %s", error.strerror)
            return
        self.manifest = manifest
