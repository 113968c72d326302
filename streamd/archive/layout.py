"""Where things lie in an archive.

    <root>/
        archive.json                                       format of the archive, and its random `id`
        data/stream=<name>/date=YYYY-MM-DD/<run>-<n>.parquet
        _manifest/<name>/<sequence>.json                   what is archived; written by rename, read by everyone
        _manifest/<name>/<sequence>.checkpoint             summary of the manifests up to this one
        _manifest/<name>/<sequence>.<run>.pending          a manifest or checkpoint that is not committed yet
        _staging/<name>/<run>/...                          files that a run is writing
        _probe/...                                         what shows that an object store can hold an archive
        _tables/<label>.json, _tables/<label>/...          open tables that are kept (see publishing.py)
        data/_delta_log/...                                the log of one of them

`<name>` is the stream's key percent-encoded, so that every key has a folder name, and Spark and others, which decode
such names, see the key in the column `stream`. The date is that of the entries' IDs, in UTC; entries of years that
dates cannot hold lie under `date=__HIVE_DEFAULT_PARTITION__`, which is what null is called there. Names with `_` in
front are not seen by readers of Parquet folders.

The root is a folder of a file system that all processes see under the same name, with atomic renames (a local disk, NFS), or
a prefix of an object store with conditional puts; there `_staging` is a temporary folder of the machine (see staging_folder.py),
and Spark's tasks give their files final names at once, `<run>-<attempt>-<n>.parquet`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import uuid
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from streamd.archive.archive_errors import ArchiveError
from streamd.archive.object_disk import PROBES, ObjectDisk
from streamd.archive.staging_folder import staging_root
from streamd.archive.store import ObjectPath, Place, files_below, files_in, folders_in, parse_place
from streamd.client.archive_keys import quote_key
from streamd.disk import Disk

__all__ = ["Layout", "date_in", "date_of", "folder_name"]

FORMAT = 1
MAX_NAME = 200
"""Longest percent-encoded key that becomes a folder name as it is; file systems take 255 bytes."""

NO_DATE = "__HIVE_DEFAULT_PARTITION__"
_LAST_DATED_MS = int(datetime(9999, 12, 31, 23, 59, 59, 999000, tzinfo=UTC).timestamp() * 1000)
_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*")


def folder_name(stream: str) -> str:
    """The name of a stream's folder. Long keys are cut, and distinguished by a hash."""
    quoted = quote_key(stream)
    if len(quoted) <= MAX_NAME:
        return quoted
    return f"{quoted[: MAX_NAME - 40].rstrip('%')}~{hashlib.sha256(quoted.encode()).hexdigest()[:32]}"


def date_of(ms: int) -> str:
    """The date of the folder for entries of this millisecond."""
    if ms > _LAST_DATED_MS:
        return NO_DATE
    return (date(1970, 1, 1) + timedelta(days=ms // 86_400_000)).isoformat()


def date_in(path: str) -> str:
    """The date of a file of the archive, as its path says."""
    return Path(path).parent.name.rpartition("date=")[2]


class Layout:
    """The paths of an archive."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root: Place = parse_place(os.fspath(root))

    def __repr__(self) -> str:
        return f"Layout({str(self.root)!r})"

    # --- The archive as a whole

    @property
    def marker(self) -> Place:
        return self.root / "archive.json"

    def create(self, disk: Disk) -> None:
        """Make the archive's folder, or see that what is there is one."""
        if self.marker.exists():
            self.check()
            return
        if isinstance(disk, ObjectDisk) and isinstance(self.root, ObjectPath):
            disk.check(self.root)
        there = {each.name for each in (*files_in(self.root), *folders_in(self.root))}
        if there - {"_manifest", "_staging", PROBES}:
            raise ArchiveError(f"{self.root} holds files but is not an archive; name an empty folder")
        disk.make_directories(self.root)
        text = json.dumps({"format": FORMAT, "kind": "streamd-archive", "id": uuid.uuid4().hex}, indent=1) + "\n"
        with suppress(FileExistsError):  # another run was faster
            disk.write_new(self.marker, text.encode())
        disk.sync_directory(self.root)

    @property
    def id(self) -> str:
        """A random name, shared only by copies of this archive; empty if it has none. Raises what `check` raises."""
        return str(self._described().get("id", ""))

    def check(self) -> None:
        """Raise ArchiveError unless this is an archive that this program can read."""
        self._described()

    def check_is(self, archive_id: str) -> None:
        """Raise ArchiveError unless the archive is the one with this `id`: its file system may not be mounted any more."""
        if self.id != archive_id:
            raise ArchiveError(f"{self.root} is not the archive that it was")

    def _described(self) -> dict[str, Any]:
        try:
            found = json.loads(self.marker.read_bytes())
        except FileNotFoundError:
            raise ArchiveError(f"{self.root} is not an archive: it has no {self.marker.name}") from None
        except ValueError:
            # Truncated by a crash while the archive was being created, before any manifest was written.
            found = {"format": FORMAT, "kind": "streamd-archive"} if not self.streams() else {}
        if not isinstance(found, dict) or found.get("kind") != "streamd-archive":
            raise ArchiveError(f"{self.marker} does not describe an archive")
        if found.get("format") != FORMAT:
            raise ArchiveError(f"{self.root} has format {found.get('format')!r}; this program reads format {FORMAT}")
        return found

    def streams(self) -> list[str]:
        """Names of the folders of all streams that have manifests."""
        return sorted(each.name for each in folders_in(self.root / "_manifest"))

    @property
    def tables(self) -> Place:
        return self.root / "_tables"

    def table(self, label: str) -> Place:
        """What describes an open table that is kept."""
        return self.tables / f"{label}.json"

    def table_folder(self, label: str) -> Place:
        """Where the metadata of an open table lies, and its own files if it has some."""
        return self.tables / label

    # --- One stream

    def manifests(self, stream: str) -> Place:
        return self.root / "_manifest" / folder_name(stream)

    def data(self, stream: str) -> Place:
        return self.root / "data" / f"stream={folder_name(stream)}"

    def data_file(self, stream: str, day: str, run: str, number: int) -> Place:
        return self.data(stream) / f"date={day}" / f"{run}-{number}.parquet"

    def staging(self, stream: str, run: str | None = None) -> Path:
        folder = staging_root(self.root) / folder_name(stream)
        return folder if run is None else folder / check_run(run)

    def staging_folders(self, stream: str) -> Iterator[Path]:
        """The folders in which runs are writing, or have been."""
        folder = self.staging(stream)
        if folder.is_dir():
            yield from sorted(folder.iterdir())

    def data_files(self, stream: str) -> list[Place]:
        """All files below a stream's data folder, of any kind, in order."""
        return sorted(files_below(self.data(stream)), key=str)

    def relative(self, path: Place) -> str:
        return str(path).removeprefix(f"{self.root}/")


def check_run(run: str) -> str:
    """A run's name becomes part of file names: ensure that it cannot lead out of the folder."""
    if not _RUN.fullmatch(run):
        raise ArchiveError(f"{run!r} is not a valid name of a run")
    return run
