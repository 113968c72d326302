"""Manifests: what is archived of a stream. They alone say so; files that none names do not count.

The manifests of a stream are numbered from 1 without a gap. Each takes over where the one before ended:

    1.json  from 0 (nothing)  to a        files f1, f2
    2.json  from a            to b        files f3
    3.json  from b            to b        kind "rewrite": files f3' in the place of f3

`from` is exclusive, `to` inclusive. The last `to` is the *boundary*: what is at or below it is read from the files that are
named, what is above it from the server. A manifest comes into being at once, by the rename of a complete and synced file
that nobody could read before (the commit point of a run), and never changes afterwards.

Two archivers can be at work at once only when one of them was taken for dead (see lock.py). What keeps them apart then is
the order of what they do, and it needs nothing but that renames are atomic:

    the one that commits    1. writes its pending file   2. sees that the lock is still its own   3. renames it
    the one that takes over 1. gets the lock   2. removes all pending files   3. reads the manifests   4. removes strange data

Either the rename comes before the removal, and the new archiver finds the manifest; or it fails, because the pending file
is gone; or no pending file was there yet, and then step 2 of the old archiver fails. Never is a manifest left whose files
are removed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamd.spark.archive.errors import CorruptArchiveError, LockLostError
from streamd.spark.archive.layout import Disk, Layout, check_run, quote_key, unquote_key
from streamd.spark.ids import format_entry_id, parse_entry_id

__all__ = ["FileRecord", "Manifest", "ManifestLog", "RowGroup", "archived_streams"]

FORMAT = 1
NOTHING = 0
"""The boundary of a stream of which nothing is archived: there is no entry 0-0."""

_COMMITTED = re.compile(r"(\d{12})\.json")
_PENDING = re.compile(r"\d{12}\.[A-Za-z0-9-]+\.pending")


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
    sha256: str  # of the whole file; empty when it was not asked for

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
    entries_added: int | None = None  # of the stream, when the range was chosen; None: the server does not tell
    last_generated: int = 0  # the same
    next_id: int | None = None  # the first entry above `high` then; None: there was none
    server: str = ""  # name and version
    kind: str = "archive"  # or "rewrite": `files` take the place of `replaced`, which may hold more rows
    replaced: tuple[str, ...] = ()  # paths of files that count no longer

    def to_bytes(self) -> bytes:
        found = {
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
            "entries_added": self.entries_added,
            "last_generated_id": format_entry_id(self.last_generated),
            "next_id": None if self.next_id is None else format_entry_id(self.next_id),
            "files": [each.to_json() for each in self.files],
            "replaced": list(self.replaced),
        }
        return (json.dumps(found, indent=1) + "\n").encode()

    @classmethod
    def from_bytes(cls, data: bytes, stream: str) -> Manifest:
        """Read a manifest back. Raises ValueError, KeyError or TypeError when it is none of this stream."""
        found = json.loads(data)
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
            last_generated=parse_entry_id(found["last_generated_id"]),
            next_id=None if found["next_id"] is None else parse_entry_id(found["next_id"]),
            server=str(found["server"]),
            kind=found["kind"],
            replaced=tuple(map(str, found["replaced"])),
        )

    def check(self, previous: Manifest | None) -> None:
        """Raise ValueError unless this manifest is whole in itself and follows `previous`."""
        sequence, boundary = (0, NOTHING) if previous is None else (previous.sequence, previous.high)
        if self.sequence != sequence + 1:
            raise ValueError(f"it has number {self.sequence}; {sequence + 1} is next")
        if self.low != boundary:
            raise ValueError(
                f"it begins at {format_entry_id(self.low)}; the one before ends at {format_entry_id(boundary)}"
            )
        if self.high < self.low or (self.kind == "rewrite" and self.high != self.low):
            raise ValueError(f"it ends at {format_entry_id(self.high)}, which cannot be")
        if self.rows != sum(each.rows for each in self.files):
            raise ValueError("its number of rows is not that of its files")
        if self.kind == "archive":
            check_order(self.files, self.low, self.high)


def check_order(files: Iterable[FileRecord], low: int, high: int) -> None:
    """Raise ValueError unless the files, and the row groups in them, follow each other within (low, high]."""
    last = low
    for file in files:
        if file.rows < 1 or file.rows != sum(group.rows for group in file.row_groups):
            raise ValueError(f"{file.path}: its rows are not those of its row groups")
        if (file.first, file.last) != (file.row_groups[0].first, file.row_groups[-1].last):
            raise ValueError(f"{file.path}: its bounds are not those of its row groups")
        for group in file.row_groups:
            if not last < group.first <= group.last <= high or (group.rows == 1) != (group.first == group.last):
                raise ValueError(f"{file.path}: a row group is out of order")
            last = group.last


@dataclass
class ManifestLog:
    """The manifests of one stream in an archive, as they were when they were read.

    manifests  in order; `files` and `boundary` follow from them
    """

    layout: Layout
    stream: str
    manifests: list[Manifest] = field(default_factory=list)

    @classmethod
    def read(cls, layout: Layout, stream: str, *, known: ManifestLog | None = None) -> ManifestLog:
        """Read all manifests of a stream, and see that they follow each other. Raises CorruptArchiveError.

        known  what was read earlier: manifests never change, so only new ones are read
        """
        log = cls(layout, stream, list(known.manifests) if known is not None else [])
        numbers = committed_numbers(layout.manifests(stream))
        if numbers != list(range(1, len(numbers) + 1)):
            missing = next(at for at, number in enumerate(numbers, 1) if at != number)
            raise CorruptArchiveError(f"{layout.manifests(stream)}: manifest {missing} is missing")
        for number in numbers[len(log.manifests) :]:
            path = log.path(number)
            previous = log.manifests[-1] if log.manifests else None
            try:
                manifest = Manifest.from_bytes(path.read_bytes(), stream)
                manifest.check(previous)
                if manifest.sequence != number:
                    raise ValueError(f"it has number {manifest.sequence}")
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise CorruptArchiveError(f"{path} is not a manifest that can be here: {error}") from error
            log.manifests.append(manifest)
        return log

    def path(self, sequence: int) -> Path:
        return self.layout.manifests(self.stream) / f"{sequence:012d}.json"

    @property
    def last(self) -> Manifest | None:
        return self.manifests[-1] if self.manifests else None

    @property
    def boundary(self) -> int:
        """What is at or below this ID is archived; 0 when nothing is."""
        return self.manifests[-1].high if self.manifests else NOTHING

    @property
    def files(self) -> list[FileRecord]:
        """The files that count, in the order of their IDs."""
        found: dict[str, FileRecord] = {}
        for manifest in self.manifests:
            for path in manifest.replaced:
                del found[path]
            found.update((file.path, file) for file in manifest.files)
        return sorted(found.values(), key=lambda file: file.first)

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    def boundary_at(self, created_until_ms: int) -> int:
        """The boundary of the manifests that are at least as old as this moment."""
        return max((each.high for each in self.manifests if each.created_ms <= created_until_ms), default=NOTHING)

    # --- Writing; only the holder of the lock does

    def remove_pending(self, disk: Disk) -> list[Path]:
        """Take away every manifest that is not committed, whoever writes it: it can be committed no more."""
        folder = self.layout.manifests(self.stream)
        found = [each for each in folder.iterdir() if _PENDING.fullmatch(each.name)] if folder.is_dir() else []
        for path in found:
            disk.remove(path)
        if found:
            disk.sync_folder(folder)
        return found

    def write_pending(self, manifest: Manifest, disk: Disk) -> Path:
        """Write the next manifest where no reader looks, under a name of the run's own, and sync it."""
        manifest.check(self.last)
        path = self.path(manifest.sequence).with_suffix(f".{check_run(manifest.run)}.pending")
        disk.make_folder(path.parent)
        disk.write_new(path, manifest.to_bytes())
        disk.sync_folder(path.parent)
        return path

    def commit(self, manifest: Manifest, pending: Path, disk: Disk) -> None:
        """The commit point: the pending manifest becomes the next one. Raises LockLostError when another one is it."""
        final = self.path(manifest.sequence)
        try:
            disk.publish(pending, final)
        except (FileExistsError, FileNotFoundError) as error:
            raise LockLostError(f"another archiver has taken over {self.stream!r}: {error}") from error
        disk.sync_folder(final.parent)
        self.manifests.append(manifest)


def committed_numbers(folder: Path) -> list[int]:
    if not folder.is_dir():
        return []
    matches = (_COMMITTED.fullmatch(each.name) for each in folder.iterdir())
    return sorted(int(match[1]) for match in matches if match)


def archived_streams(layout: Layout) -> list[str]:
    """The keys of all streams that have manifests."""
    found = []
    for name in layout.streams():
        if "~" in name:  # a long key: the first manifest has it whole
            path = layout.root / "_manifest" / name / f"{1:012d}.json"
            found += [unquote_key(json.loads(path.read_bytes())["stream"])] if path.exists() else []
        else:
            found.append(unquote_key(name))
    return found
