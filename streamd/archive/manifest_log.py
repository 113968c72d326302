"""The manifests of one stream, read and written; the protocol is described at the head of manifest.py."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace

from streamd.archive.archive_errors import ArchiveError, CorruptArchiveError, LockLostError
from streamd.archive.layout import Layout, check_run
from streamd.archive.manifest import (
    NOTHING,
    Checkpoint,
    FileRecord,
    Manifest,
    thinned,
)
from streamd.archive.store import Place, files_in
from streamd.client.archive_keys import unquote_key
from streamd.disk import Disk

__all__ = ["ManifestLog", "archived_streams"]

_COMMITTED = re.compile(r"(\d{12})\.json")
_CHECKPOINT = re.compile(r"(\d{12})\.checkpoint")
_PENDING = re.compile(r"\d{12}\.[A-Za-z0-9-]+\.pending")

LOOKS = 5
"""How often a folder is listed again when a file of it was removed meanwhile."""


@dataclass
class ManifestLog:
    """The manifests of one stream in an archive, as they were when they were read.

    base       the checkpoint that was read instead of the manifests up to its number, if there was one
    manifests  those above it, in order
    """

    layout: Layout
    stream: str
    base: Checkpoint | None = None
    manifests: list[Manifest] = field(default_factory=list)
    _files: dict[str, FileRecord] = field(default_factory=dict, repr=False)  # those that count, by path
    _replaced: dict[str, int] = field(default_factory=dict, repr=False)  # those that no longer count, and since when

    @classmethod
    def read(cls, layout: Layout, stream: str, *, known: ManifestLog | None = None) -> ManifestLog:
        """Read the manifests of a stream, and check that they follow each other. Raises CorruptArchiveError.

        known  what was read earlier: manifests never change, so only new ones are read
        """
        folder = layout.manifests(stream)
        for look in range(LOOKS):
            numbers, checkpoints = committed_numbers(folder)
            newest = checkpoints[-1] if checkpoints else 0
            try:
                if known is not None and known.sequence >= newest:
                    log = known.copy()
                else:
                    log = cls.from_checkpoint(layout, stream, newest) if newest else cls(layout, stream)
                log.read_on(max(numbers, default=0))
            except FileNotFoundError as error:
                # Removed since the folder was listed, because there is a newer checkpoint now; or lost.
                if look + 1 == LOOKS:
                    number = int(str(error.filename).rpartition("/")[2].partition(".")[0])
                    raise CorruptArchiveError(f"{folder}: manifest {number} is missing") from error
            else:
                return log
        raise AssertionError

    @classmethod
    def read_archived(cls, layout: Layout, stream: str) -> ManifestLog:
        """As `read`. Raises ArchiveError when the archive has nothing of the stream."""
        log = cls.read(layout, stream)
        if log.last is None:
            raise ArchiveError(f"{layout.root} has no entries of stream {stream!r}")
        return log

    @classmethod
    def read_up_to(cls, layout: Layout, stream: str, number: int) -> ManifestLog:
        """Read the manifests up to a number, from the checkpoint before. Raises CorruptArchiveError."""
        _, checkpoints = committed_numbers(layout.manifests(stream))
        before = max((each for each in checkpoints if each < number), default=0)
        try:
            log = cls.from_checkpoint(layout, stream, before) if before else cls(layout, stream)
            log.read_on(number)
        except FileNotFoundError as error:
            raise CorruptArchiveError(f"{error.filename} is missing") from error
        return log

    @classmethod
    def from_checkpoint(cls, layout: Layout, stream: str, number: int) -> ManifestLog:
        path = checkpoint_path(layout, stream, number)
        try:
            base = Checkpoint.from_bytes(path.read_bytes(), stream)
            if base.last.sequence != number:
                raise ValueError(f"it has number {base.last.sequence}")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptArchiveError(f"{path} is not a valid checkpoint here: {error}") from error
        return cls(layout, stream, base, [], {file.path: file for file in base.files}, dict(base.replaced))

    def copy(self) -> ManifestLog:
        return replace(self, manifests=list(self.manifests), _files=dict(self._files), _replaced=dict(self._replaced))

    def read_on(self, last: int) -> None:
        """Read the manifests up to this number. Raises FileNotFoundError for one that is not there."""
        for number in range(self.sequence + 1, last + 1):
            path = self.path(number)
            try:
                manifest = Manifest.from_bytes(path.read_bytes(), self.stream)
                manifest.check(self.last)
                self._add(manifest)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise CorruptArchiveError(f"{path} is not a valid manifest here: {error}") from error

    def _add(self, manifest: Manifest) -> None:
        """Add a manifest. Raises ValueError when it replaces files that do not count."""
        if unknown := [path for path in manifest.replaced if path not in self._files]:
            raise ValueError(f"it replaces {unknown[0]}, which does not count")
        for path in manifest.replaced:
            del self._files[path]
            self._replaced[path] = manifest.created_ms
        self._files.update((file.path, file) for file in manifest.files)
        self.manifests.append(manifest)

    def path(self, sequence: int) -> Place:
        return self.layout.manifests(self.stream) / f"{sequence:012d}.json"

    @property
    def last(self) -> Manifest | None:
        """The last manifest; without its files when a checkpoint was read in its place."""
        if self.manifests:
            return self.manifests[-1]
        return self.base.last if self.base is not None else None

    @property
    def sequence(self) -> int:
        """The number of the last manifest, and so how many there have been."""
        return self.last.sequence if self.last is not None else 0

    @property
    def boundary(self) -> int:
        """What is at or below this ID is archived; 0 when nothing is."""
        return self.last.high if self.last is not None else NOTHING

    @property
    def token(self) -> int:
        """The highest fencing token that was used; 0 when none was."""
        return max([self.base.token if self.base else 0, *(each.token for each in self.manifests)])

    @property
    def files(self) -> list[FileRecord]:
        """The files that count, in the order of their IDs."""
        return sorted(self._files.values(), key=lambda file: file.first)

    @property
    def replaced(self) -> dict[str, int]:
        """Paths of files that counted once and may still lie there, and when they were replaced (the server's Unix ms)."""
        return dict(self._replaced)

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self._files.values())

    @property
    def boundaries(self) -> list[tuple[int, int]]:
        """When manifests were written, and their boundaries."""
        earlier = self.base.boundaries if self.base is not None else ()
        return [*earlier, *((each.created_ms, each.high) for each in self.manifests)]

    def boundary_at(self, created_until_ms: int) -> int:
        """The boundary of the manifests that are at least as old as this moment; for one long ago, possibly a lower one."""
        return max((high for moment, high in self.boundaries if moment <= created_until_ms), default=NOTHING)

    # --- Writing; only the holder of the lock does

    def remove_pending(self, disk: Disk) -> list[Place]:
        """Remove every uncommitted manifest, whoever wrote it, so that it can no longer be committed."""
        folder = self.layout.manifests(self.stream)
        found = [each for each in files_in(folder) if _PENDING.fullmatch(each.name)]
        for path in found:
            disk.remove(path)
        if found:
            disk.sync_directory(folder)
        return found

    def write_pending(self, manifest: Manifest, disk: Disk) -> Place:
        """Write the next manifest where no reader looks, under a name of the run's own, and sync it."""
        manifest.check(self.last)
        path = self.path(manifest.sequence).with_suffix(f".{check_run(manifest.run)}.pending")
        disk.make_directories(path.parent)
        disk.write_new(path, manifest.to_bytes())
        disk.sync_directory(path.parent)
        return path

    def commit(self, manifest: Manifest, pending: Place, disk: Disk) -> None:
        """The commit point: the pending manifest becomes the next one. Raises LockLostError if another run has one."""
        final = self.path(manifest.sequence)
        try:
            disk.publish(pending, final)
        except (FileExistsError, FileNotFoundError) as error:
            raise LockLostError(f"another archiver has taken over {self.stream!r}: {error}") from error
        disk.sync_directory(final.parent)
        self._add(manifest)

    def checkpoint(self) -> Checkpoint:
        """The summary of the manifests so far. Raises IndexError when there are none."""
        if self.last is None:
            raise IndexError("there are no manifests")
        return Checkpoint(
            last=replace(self.last, files=(), rows=0, replaced=()),
            files=tuple(self.files),
            # Those that have been removed meanwhile can be left out.
            replaced=tuple(each for each in self._replaced.items() if (self.layout.root / each[0]).exists()),
            boundaries=thinned(self.boundaries),
            token=self.token,
        )

    def write_pending_checkpoint(self, run: str, disk: Disk) -> Place:
        """Write a checkpoint of the manifests so far where no reader looks."""
        path = self.path(self.sequence).with_suffix(f".{check_run(run)}-checkpoint.pending")
        disk.write_new(path, self.checkpoint().to_bytes())
        disk.sync_directory(path.parent)
        return path

    def commit_checkpoint(self, pending: Place, disk: Disk) -> None:
        """The pending checkpoint becomes one that is read. Raises LockLostError when another archiver has taken over."""
        final = checkpoint_path(self.layout, self.stream, self.sequence)
        try:
            disk.publish(pending, final)
        except (FileExistsError, FileNotFoundError) as error:
            raise LockLostError(f"another archiver has taken over {self.stream!r}: {error}") from error
        disk.sync_directory(final.parent)

    def prune(self, disk: Disk) -> None:
        """Remove what nobody reads any more: all that is below the last checkpoint but one."""
        folder = self.layout.manifests(self.stream)
        numbers, checkpoints = committed_numbers(folder)
        if len(checkpoints) < 2:
            return
        for number in numbers:
            if number <= checkpoints[-2]:
                disk.remove(self.path(number))
        for number in checkpoints[:-2]:
            disk.remove(checkpoint_path(self.layout, self.stream, number))


def checkpoint_path(layout: Layout, stream: str, number: int) -> Place:
    return layout.manifests(stream) / f"{number:012d}.checkpoint"


def committed_numbers(folder: Place) -> tuple[list[int], list[int]]:
    """The numbers of the manifests and of the checkpoints in a folder, in order."""
    names = [each.name for each in files_in(folder)]
    found = ([match for name in names if (match := form.fullmatch(name))] for form in (_COMMITTED, _CHECKPOINT))
    numbers, checkpoints = (sorted(int(match[1]) for match in matches) for matches in found)
    return numbers, checkpoints


def archived_streams(layout: Layout) -> list[str]:
    """The keys of all streams that have manifests."""
    found = []
    for name in layout.streams():
        if "~" in name:  # a long key: any manifest or checkpoint has it in full
            key = whole_key(layout.root / "_manifest" / name)
            found += [key] if key is not None else []
        else:
            found.append(unquote_key(name))
    return found


def whole_key(folder: Place) -> str | None:
    for look in range(LOOKS):
        try:
            for path in files_in(folder):
                if _COMMITTED.fullmatch(path.name):
                    return unquote_key(json.loads(path.read_bytes())["stream"])
                if _CHECKPOINT.fullmatch(path.name):
                    return unquote_key(json.loads(path.read_bytes())["last"]["stream"])
        except FileNotFoundError:  # removed since the folder was listed
            if look + 1 == LOOKS:
                raise
        else:
            return None
    raise AssertionError
