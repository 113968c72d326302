"""`streamd check-rdb`: check a snapshot as strictly as a server that loads it, without keeping anything.

Exit status, like redis-check-rdb: 0 the file is valid, 1 it is not, or cannot be read.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import streamd.values  # noqa: F401  the types that a file may hold
from streamd.cli.one_line import say
from streamd.cli.progress_bar import bar
from streamd.errors import CorruptFileError, one_line
from streamd.persistence.rdb.format import LoadOptions
from streamd.persistence.rdb.read import RdbReader
from streamd.persistence.rdb.snapshot import load_file

__all__ = ["check"]


def check(path: str) -> int:
    """Check the file and print what was found; return the exit status."""
    notes: list[str] = []
    options = LoadOptions(now_ms=time.time_ns() // 1_000_000, log=notes.append)
    try:
        reader = load_file(path, None, options)
    except OSError as error:
        say(f"{path}: {error.strerror}", err=True)
        return 1
    try:
        look_through(reader)
    except OSError as error:
        say(f"{path}: {error.strerror}", err=True)
        return 1
    except CorruptFileError as error:
        for line in findings(reader):
            say(line)
        say(f"at byte    {error.offset:,} of {reader.size:,}" + where(reader))
        say(f"expected   {error.expected}")
        say(f"found      {error.found}")
        say(f"{path}: NOT valid", err=True)
        return 1
    for line in findings(reader):
        say(line)
    for note in notes:
        say(f"note       {note}")
    say(f"{path}: valid")
    return 0


def look_through(reader: RdbReader) -> None:
    """Read all of it, with a progress bar on a terminal."""
    with bar(os.path.basename(reader.name), reader.size) as moved:
        for done in reader.steps():
            moved(done)


def where(reader: RdbReader) -> str:
    """Which key was being read."""
    return "" if reader.key is None else f", at key '{one_line(reader.key)}' or after it"


def findings(reader: RdbReader) -> Iterator[str]:
    """What the file contains, as far as it was read."""
    if reader.version:
        yield f"format     RDB version {reader.version}"
    for name, value in reader.aux.items():
        yield f"{name:10} {one_line(value.encode('latin-1'))}"
    kinds = ", ".join(f"{count:,} {name}" for name, count in sorted(reader.types.items()))
    yield f"keys       {sum(reader.types.values()):,}" + (f": {kinds}" if kinds else "")
    yield f"expiries   {reader.keys_with_expiry:,}, {reader.keys_expired:,} of them expired"
    if reader.libraries:
        yield f"functions  {len(reader.libraries):,} libraries"
    foreign = sum(count for name, count in reader.types.items() if name not in ("stream", "string"))
    if foreign:
        yield f"note       {foreign:,} keys have types that streamd does not support: loading requires rdb-skip-unsupported yes"
    if reader.checksum is not None:
        yield "checksum   " + {"ok": "right", "none": "none"}[reader.checksum]
    behind = reader.size - reader.end_offset
    if reader.end_offset >= 0 and behind:
        yield f"note       {behind:,} bytes after the end do not belong to it"
