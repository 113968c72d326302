"""What changes files of an archive: in a folder a `Disk` (streamd/disk.py), in an object store an `ObjectDisk`.

                    folder                            object store
a manifest appears  by a link, which never replaces   by a conditional put, which never replaces
a file gets its     by a rename from `_staging`       by an upload from a temporary folder of this machine
final name
safe on the disk    when file and folder are synced   when the put has been answered
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from pathlib import Path

from streamd.archive.archive_errors import ArchiveError
from streamd.archive.store import ObjectPath, Place, plain_errors
from streamd.disk import Disk, StrPath, replace_file

__all__ = ["PROBES", "ObjectDisk", "disk_for", "replace_at"]

PROBES = "_probe"
"""Below it lie objects that are put only to see whether a store can hold an archive."""


def disk_for(root: Place) -> Disk:
    return ObjectDisk() if isinstance(root, ObjectPath) else Disk()


def replace_at(path: Place, data: bytes, disk: Disk) -> None:
    """Replace a file, or make it: readers see the old content or the new."""
    if isinstance(path, ObjectPath):
        import obstore

        with plain_errors(path):
            obstore.put(path.store, path.key, data)
        return
    disk.make_directories(path.parent)
    replace_file(path, data, disk=disk)


class ObjectDisk(Disk):
    """A disk whose paths may be objects; files of this machine are files."""

    def check(self, root: ObjectPath) -> None:
        """Raise ArchiveError unless the store can be written to, and refuses to put what is there already."""
        probe = root / f"{PROBES}/{uuid.uuid4().hex}"
        assert isinstance(probe, ObjectPath)  # noqa: S101  # its name is relative
        try:
            self.write_new(probe, b"1")
        except FileNotFoundError:
            raise ArchiveError(f"{root} cannot hold an archive: there is no {root.url}") from None
        except OSError as error:
            raise ArchiveError(f"{root} cannot hold an archive: {error}") from error
        try:
            self.write_new(probe, b"2")
        except FileExistsError:
            return
        except OSError as error:
            raise ArchiveError(f"{root} cannot hold an archive: {error}") from error
        finally:
            with suppress(OSError):
                self.remove(probe)
        raise ArchiveError(
            f"{root} cannot hold an archive: its store ignores the condition for new objects (If-None-Match)"
        )

    def write_new(self, path: StrPath, data: bytes) -> None:
        if not isinstance(path, ObjectPath):
            super().write_new(path, data)
            return
        import obstore

        try:
            with plain_errors(path):
                obstore.put(path.store, path.key, data, mode="create")
        except FileExistsError:
            # obstore repeats a put whose answer was lost, which then meets what it has put itself.
            if path.read_bytes() != data:
                raise

    def rename(self, old: StrPath, new: StrPath) -> None:
        """Upload a file of this machine."""
        if not isinstance(new, ObjectPath):
            super().rename(old, new)
            return
        import obstore

        with plain_errors(new):
            obstore.put(new.store, new.key, Path(old))
        super().unlink(old)

    def publish(self, temporary: StrPath, final: StrPath) -> None:
        if not isinstance(final, ObjectPath):
            super().publish(temporary, final)
            return
        # In one request, which needs all of it in memory.
        content = temporary if isinstance(temporary, ObjectPath) else Path(temporary)
        self.write_new(final, content.read_bytes())
        self.remove(temporary)

    def unlink(self, path: StrPath) -> None:
        if not isinstance(path, ObjectPath):
            super().unlink(path)
            return
        import obstore

        with plain_errors(path):
            obstore.delete(path.store, path.key)

    def remove_tree(self, path: StrPath) -> None:
        if not isinstance(path, ObjectPath):
            super().remove_tree(path)
            return
        for each in path.below():
            self.remove(each)

    def make_directories(self, path: StrPath) -> None:
        if not isinstance(path, ObjectPath):
            super().make_directories(path)

    def sync_directory(self, path: StrPath) -> None:
        if not isinstance(path, ObjectPath):
            super().sync_directory(path)
