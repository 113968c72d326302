"""Check the files of an append-only file without loading them.

Stricter than a server: every line end and every number must be canonical, and MULTI and EXEC must come in pairs.
So a file that a server accepts may still be reported as faulty, as with Redis's own checker.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from dataclasses import dataclass
from io import FileIO

from streamd.disk import Disk
from streamd.errors import CorruptFileError
from streamd.persistence.aof.reader import AofFault, AofReader
from streamd.persistence.aof.replay import RDB_MAGIC, keep_tail, read_tail
from streamd.persistence.rdb.format import LoadOptions
from streamd.persistence.rdb.read import RdbReader

__all__ = ["Checked", "check_file", "cut_file", "is_manifest"]

STEP = 4096
"""Commands between two steps."""


@dataclass
class Checked:
    """What was found in one file.

    path        the file
    size        its size in bytes
    valid       up to this offset everything is valid, and no MULTI is open
    commands    complete commands, including MULTI and EXEC
    rdb_keys    keys of the snapshot at its head; None: there is no snapshot
    fault       the first fault, or None
    from_stamp  Unix time of the first `#TS:`, -1 if there is none; `to_stamp`: of the last
    late_at     offset where the commands after the requested time start; None: there are none
    """

    path: str
    size: int = 0
    valid: int = 0
    commands: int = 0
    rdb_keys: int | None = None
    fault: AofFault | CorruptFileError | None = None
    from_stamp: int = -1
    to_stamp: int = -1
    late_at: int | None = None

    @property
    def can_be_cut(self) -> bool:
        """Whether truncating the file at `valid` leaves a valid file."""
        return isinstance(self.fault, AofFault)


def is_manifest(path: str) -> bool:
    """Whether a file is a manifest: its first line that is not a comment starts with `file`. Raises OSError."""
    with open(path, "rb") as file:
        for line in file.read(65536).split(b"\n"):
            if not line.startswith(b"#"):
                return line[:4].lower() == b"file"
    return False


def check_file(path: str, until_stamp: int | None = None) -> Generator[int, None, Checked]:
    """Check a file; yields the number of bytes read so far. Raises OSError.

    until_stamp  stop at the first `#TS:` after this Unix time
    """
    found = Checked(path)
    with FileIO(path) as file:
        found.size = os.fstat(file.fileno()).st_size
        start = 0
        if file.read(5) in RDB_MAGIC:
            file.seek(0)
            snapshot = RdbReader(file, None, options=LoadOptions(drop_expired=False), name=path, size=found.size)
            try:
                yield from snapshot.steps()
            except CorruptFileError as fault:
                found.fault = fault
                return found
            start = snapshot.end_offset
            found.rdb_keys = sum(snapshot.types.values())
        file.seek(start)
        yield from _check_commands(AofReader(file, found.size, start, strict=True), found, until_stamp)
    return found


def _check_commands(reader: AofReader, found: Checked, until_stamp: int | None) -> Generator[int, None, None]:
    before = reader.valid
    try:
        while True:
            is_end = reader.next_command() is None
            if reader.stamp_s != found.to_stamp:
                found.to_stamp = reader.stamp_s
                if found.from_stamp < 0:
                    found.from_stamp = reader.stamp_s
                if until_stamp is not None and reader.stamp_s > until_stamp:
                    found.late_at = before
                    break
            if is_end:
                break
            before = reader.valid
            if not reader.commands % STEP:
                yield reader.whole
    except AofFault as fault:
        found.fault = fault
    found.valid = reader.valid
    found.commands = reader.commands


def cut_file(path: str, offset: int, disk: Disk | None = None) -> str:
    """Truncate a file at `offset`, keeping the rest in a file beside it, whose path is returned. Raises OSError."""
    disk = disk or Disk()
    kept = keep_tail(path, offset, read_tail(path, offset), disk)
    disk.cut(path, offset)
    return kept
