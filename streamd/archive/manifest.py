"""Manifests: what is archived of a stream. Only they decide; files that none of them names do not count.

The manifests of a stream are numbered from 1 without a gap. Each takes over where the one before ended:

    1.json  from 0 (nothing)  to a        files f1, f2
    2.json  from a            to b        files f3
    3.json  from b            to b        kind "rewrite": files f3' in the place of f3

`from` is exclusive, `to` inclusive. The last `to` is the *boundary*: what is at or below it is read from the files that are
named, what is above it from the server. A manifest appears atomically, by the rename of a complete and synced file
that nobody could read before (the commit point of a run), and never changes afterwards.

So that nobody has to read a year of them, an archiver summarizes them from time to time in a *checkpoint*:

    128.checkpoint    the files that count after 128.json, what it said about the stream, boundaries of earlier moments

Readers use the newest checkpoint and the manifests above it. Two checkpoints are kept, and the manifests above the older
one; what is below is removed, so that a folder holds few files however often an archiver runs. A checkpoint only repeats
what manifests say: it appears at once, as they do, before any of them is removed, and a reader that misses one because it
was removed meanwhile looks again.

Two archivers can work at the same time only if one of them was considered dead (see lock.py). Then the order of their steps
keeps them apart, and requires only that renames are atomic:

    the one that commits    1. writes its pending file   2. sees that the lock is still its own   3. renames it
    the one that takes over 1. gets the lock   2. notes the data files that are there   3. sees that the lock is still its own
                            4. removes all pending files   5. reads the manifests   6. removes the noted files they do not name

Either the rename comes before the removal of the pending file, and the new archiver finds the manifest; or it fails,
because the pending file is gone; or no pending file was there yet, and then step 2 of the old archiver fails. A
manifest never remains whose files are removed. (Fencing tokens rise from run to run, and a manifest with one that does
not is refused, so violations of this order are detected.) Noting before step 3 makes step 6 safe however late it
happens: whoever wrote a noted file had lost the lock by step 3, or is the archiver itself. In an object store, where
nothing is renamed, an empty manifest takes the place of step 4 when there is something to remove (StreamWork.recover).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from streamd.archive.layout import check_run
from streamd.client.archive_keys import quote_key
from streamd.client.points import format_entry_id, parse_entry_id

__all__ = ["Checkpoint", "Excused", "FileRecord", "Manifest", "Range", "RowGroup", "joined"]

FORMAT = 1
NOTHING = 0
"""The boundary of a stream of which nothing is archived: there is no entry 0-0."""

Range = tuple[int, int]
"""IDs [low, high]."""

HOUR_MS, DAY_MS = 3_600_000, 86_400_000


@dataclass(frozen=True)
class RowGroup:
    """A row group of a Parquet file: rows in the order of their IDs."""

    rows: int
    first: int  # ID of the first row
    last: int  # ID of the last row


@dataclass(frozen=True)
class FileRecord:
    """A Parquet file of the archive."""

    path: str  # relative to the archive's root, with slashes
    size: int  # bytes
    rows: int
    first: int  # ID of the first row
    last: int  # ID of the last row
    row_groups: tuple[RowGroup, ...]
    sha256: str  # of the whole file; empty when it was not computed

    def to_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "size": self.size,
            "rows": self.rows,
            "first": format_entry_id(self.first),
            "last": format_entry_id(self.last),
            "row_groups": [
                [each.rows, format_entry_id(each.first), format_entry_id(each.last)] for each in self.row_groups
            ],
            "sha256": self.sha256,
        }

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> FileRecord:
        groups = (RowGroup(int(rows), parse_entry_id(a), parse_entry_id(b)) for rows, a, b in found["row_groups"])
        path = str(found["path"])
        if path.startswith("/") or ".." in path.split("/"):
            raise ValueError(f"the path {path!r} leads out of the archive")
        return cls(
            path=path,
            size=int(found["size"]),
            rows=int(found["rows"]),
            first=parse_entry_id(found["first"]),
            last=parse_entry_id(found["last"]),
            row_groups=tuple(groups),
            sha256=str(found.get("sha256", "")),
        )


@dataclass(frozen=True)
class Excused:
    """IDs [low, high] at which the server may hold entries that are not archived, and the last one of these as it was."""

    low: int
    high: int  # ID of the last one
    digest: str  # of its fields; empty: it was not read, one of many

    def to_json(self) -> list[str]:
        return [format_entry_id(self.low), format_entry_id(self.high), self.digest]

    @classmethod
    def from_json(cls, found: list[str]) -> Excused:
        if len(found) != 3:
            raise ValueError(
                "it was written before 0.2.0, and notes accepted entries without their digests; make a new archive"
            )
        low, high, digest = found
        return cls(parse_entry_id(low), parse_entry_id(high), digest)


@dataclass(frozen=True)
class Manifest:
    """One manifest: the entries of (low, high], and the files that hold them."""

    stream: str  # the key
    sequence: int  # 1, 2, 3 ...
    low: int  # the boundary before; exclusive
    high: int  # the boundary after; inclusive
    rows: int
    files: tuple[FileRecord, ...]
    run: str  # name of the run that wrote it
    token: int  # fencing token of that run
    created_ms: int  # Unix time of the server, when it was written
    entries_added: int | None = None  # of the stream, when the range was chosen; None: the server does not count
    last_generated: int = 0  # the same
    next_id: int | None = None  # the first entry above `high` then; None: there was none
    server: str = ""  # name and version
    server_id: str = ""  # the name of its data (origin.py); empty: it was not asked
    kind: str = "archive"  # or "rewrite": `files` take the place of `replaced`, which may hold more rows
    replaced: tuple[str, ...] = ()  # paths of files that count no longer
    length: int | None = None  # entries of the stream when `entries_added` was; None: it was not noted
    above: int | None = None  # those of them above `high` (boundary.py); None: unknown
    gap: str = ""  # what had gone before it was archived; the next run repeats it: this one may have been killed before it reported
    excused: tuple[Excused, ...] = ()  # what the server may hold though it is not archived (same_stream.py)

    def to_bytes(self) -> bytes:
        return (json.dumps(self.to_json(), indent=1) + "\n").encode()

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "kind": self.kind,
            "stream": quote_key(self.stream),
            "sequence": self.sequence,
            "from": format_entry_id(self.low),
            "to": format_entry_id(self.high),
            "rows": self.rows,
            "run": self.run,
            "token": self.token,
            "created_ms": self.created_ms,
            "server": self.server,
            "server_id": self.server_id,
            "entries_added": self.entries_added,
            "length": self.length,
            "above": self.above,
            "last_generated_id": format_entry_id(self.last_generated),
            "next_id": None if self.next_id is None else format_entry_id(self.next_id),
            "files": [each.to_json() for each in self.files],
            "replaced": list(self.replaced),
            "gap": self.gap,
            "excused": [each.to_json() for each in self.excused],
        }

    @classmethod
    def from_bytes(cls, data: bytes, stream: str) -> Manifest:
        """Read a manifest back. Raises ValueError, KeyError or TypeError when it is not one of this stream."""
        return cls.from_json(json.loads(data), stream)

    @classmethod
    def from_json(cls, found: dict[str, Any], stream: str) -> Manifest:
        if found["format"] != FORMAT:
            raise ValueError(f"its format is {found['format']!r}, not {FORMAT}")
        if found["stream"] != quote_key(stream):
            raise ValueError(f"it belongs to stream {found['stream']!r}, not {quote_key(stream)!r}")
        if found["kind"] not in ("archive", "rewrite"):
            raise ValueError(f"its kind is {found['kind']!r}")
        return cls(
            stream=stream,
            sequence=int(found["sequence"]),
            low=parse_entry_id(found["from"]),
            high=parse_entry_id(found["to"]),
            rows=int(found["rows"]),
            files=tuple(FileRecord.from_json(each) for each in found["files"]),
            run=check_run(found["run"]),
            token=int(found["token"]),
            created_ms=int(found["created_ms"]),
            entries_added=None if found["entries_added"] is None else int(found["entries_added"]),
            length=None if found.get("length") is None else int(found["length"]),
            above=None if found.get("above") is None else int(found["above"]),
            last_generated=parse_entry_id(found["last_generated_id"]),
            next_id=None if found["next_id"] is None else parse_entry_id(found["next_id"]),
            server=str(found["server"]),
            server_id=str(found.get("server_id", "")),
            kind=found["kind"],
            replaced=tuple(map(str, found["replaced"])),
            gap=str(found.get("gap", "")),
            excused=tuple(Excused.from_json(each) for each in found.get("excused", ())),
        )

    def check(self, previous: Manifest | None) -> None:
        """Raise ValueError unless this manifest is consistent and follows `previous`."""
        sequence, boundary = (0, NOTHING) if previous is None else (previous.sequence, previous.high)
        if self.sequence != sequence + 1:
            raise ValueError(f"it has number {self.sequence}; {sequence + 1} is next")
        if self.low != boundary:
            raise ValueError(
                f"it starts at {format_entry_id(self.low)}; the one before ends at {format_entry_id(boundary)}"
            )
        if (
            previous is not None
            and (self.token, self.run) != (previous.token, previous.run)
            and self.token <= previous.token
        ):
            raise ValueError(
                f"its fencing token {self.token} is not above {previous.token}, which another run has used"
            )
        if self.high < self.low or (self.kind == "rewrite" and self.high != self.low):
            raise ValueError(f"it ends at {format_entry_id(self.high)}, which is impossible")
        if self.rows != sum(each.rows for each in self.files):
            raise ValueError("its number of rows differs from that of its files")
        if self.kind == "archive":
            check_order(self.files, self.low, self.high)


def check_order(files: Iterable[FileRecord], low: int, high: int) -> None:
    """Raise ValueError unless the files, and the row groups in them, follow each other within (low, high]."""
    last = low
    for file in files:
        if file.rows < 1 or file.rows != sum(group.rows for group in file.row_groups):
            raise ValueError(f"{file.path}: its number of rows differs from that of its row groups")
        if (file.first, file.last) != (file.row_groups[0].first, file.row_groups[-1].last):
            raise ValueError(f"{file.path}: its bounds differ from those of its row groups")
        for group in file.row_groups:
            if not last < group.first <= group.last <= high or (group.rows == 1) != (group.first == group.last):
                raise ValueError(f"{file.path}: a row group is out of order")
            last = group.last


def joined(ranges: Iterable[Range]) -> list[Range]:
    """Ranges in order, adjacent and overlapping ones merged, empty ones dropped."""
    found: list[Range] = []
    for low, high in sorted(ranges):
        if low > high:
            continue
        if found and low <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        else:
            found.append((low, high))
    return found


@dataclass(frozen=True)
class Checkpoint:
    """The summary of the manifests up to a number."""

    last: Manifest  # the one of that number, without its files
    files: tuple[FileRecord, ...]  # those that count, in the order of their IDs
    replaced: tuple[tuple[str, int], ...]  # paths of files that counted once and may still lie there, and since when
    boundaries: tuple[tuple[int, int], ...]  # when manifests were written, and their boundaries; the older, the fewer
    token: int  # the highest of all

    def to_bytes(self) -> bytes:
        found = {
            "format": FORMAT,
            "kind": "checkpoint",
            "last": self.last.to_json(),
            "token": self.token,
            "boundaries": [[moment, format_entry_id(boundary)] for moment, boundary in self.boundaries],
            "replaced": [list(each) for each in self.replaced],
            "files": [each.to_json() for each in self.files],
        }
        return (json.dumps(found, separators=(",", ":")) + "\n").encode()

    @classmethod
    def from_bytes(cls, data: bytes, stream: str) -> Checkpoint:
        """Read a checkpoint back. Raises ValueError, KeyError or TypeError when it is not one of this stream."""
        found = json.loads(data)
        if (found["format"], found["kind"]) != (FORMAT, "checkpoint"):
            raise ValueError(f"it is a {found['kind']!r} of format {found['format']!r}")
        made = cls(
            last=Manifest.from_json(found["last"], stream),
            files=tuple(FileRecord.from_json(each) for each in found["files"]),
            replaced=tuple((str(path), int(moment)) for path, moment in found["replaced"]),
            boundaries=tuple((int(moment), parse_entry_id(boundary)) for moment, boundary in found["boundaries"]),
            token=int(found["token"]),
        )
        check_order(made.files, NOTHING, made.last.high)
        return made


def thinned(boundaries: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Moments and boundaries, in order: all of the last day, one for each hour of two months, one for each day before.

    The last one of an hour or day is kept, so that the boundary of a moment is never too high.
    """
    found = list(boundaries)
    newest = max((moment for moment, _ in found), default=0)
    kept: dict[int, tuple[int, int]] = {}
    for at, (moment, boundary) in enumerate(found):
        age = newest - moment
        span = 0 if age < DAY_MS else HOUR_MS if age < 60 * DAY_MS else DAY_MS
        kept[at if span == 0 else -1 - moment // span] = (moment, boundary)
    return tuple(sorted(kept.values()))
