"""Where files of an archive are written before they get their final names.

    <root>/_staging/<name>/<run>/                          of an archive in a folder
    <tmp>/streamd-archive-<user>/<root>/<name>/<run>/      of one in an object store; nobody else may read it

At its end, even after an error or Ctrl-C, a run removes its folder, and in the temporary folder also those around it that are
empty then. The next run of the stream removes what a killed one has left.
"""

from __future__ import annotations

import os
import stat
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from streamd.archive.archive_errors import ArchiveError
from streamd.archive.store import ObjectPath, Place
from streamd.disk import Disk

__all__ = ["staged", "staging_root"]

ATTEMPTS = 20
"""How often a folder is made again because another run has removed those around it, which were empty."""


def staging_root(root: Place) -> Path:
    """The folder with those of the streams."""
    if isinstance(root, ObjectPath):
        user = Path(tempfile.gettempdir()) / f"streamd-archive-{os.getuid()}"
        return user / uuid.uuid5(uuid.NAMESPACE_URL, str(root)).hex
    return root / "_staging"


@contextmanager
def staged(root: Place, folder: Path, disk: Disk) -> Iterator[Path]:
    """Remove the staging folder of a run after a block; not when the process ends in it (SystemExit), as after a SIGKILL.

    root    of the archive
    folder  of the run, as the layout has it; made here only if the archive lies in a store
    Raises ArchiveError when somebody else has made the folder of this user.
    """
    if isinstance(root, ObjectPath):
        make(root, folder)
    try:
        yield folder
    except (Exception, KeyboardInterrupt):
        with suppress(OSError):
            remove(root, folder, disk)
        raise
    remove(root, folder, disk)


def make(root: Place, folder: Path) -> None:
    for attempt in range(1, ATTEMPTS + 1):
        try:
            check_user_folder(staging_root(root).parent)
            for each in (staging_root(root), folder.parent, folder):
                each.mkdir(exist_ok=True)
        except FileNotFoundError:
            if attempt == ATTEMPTS:
                raise
        else:
            return


def check_user_folder(folder: Path) -> None:
    """Make the folder of this user. Raises ArchiveError when it is open to others."""
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise ArchiveError(f"{folder} is not a folder of this user alone: remove it, or set TMPDIR")


def remove(root: Place, folder: Path, disk: Disk) -> None:
    disk.remove_tree(folder)
    if isinstance(root, ObjectPath):
        with suppress(OSError):  # another run has something there, or was faster
            for each in (folder.parent, staging_root(root), staging_root(root).parent):
                each.rmdir()
