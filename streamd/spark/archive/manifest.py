"""Manifests: what is archived of a stream. They alone say so; files that none names do not count.

The manifests of a stream are numbered from 1 without a gap. Each takes over where the one before ended:

    1.json  from 0 (nothing)  to a        files f1, f2
    2.json  from a            to b        files f3
    3.json  from b            to b        kind "rewrite": files f3' in the place of f3

`from` is exclusive, `to` inclusive. The last `to` is the *boundary*: what is at or below it is read from the files that are
named, what is above it from the server. A manifest comes into being at once, by the rename of a complete and synced file
that nobody could read before (the commit point of a run), and never changes afterwards.

So that nobody has to read a year of them, an archiver writes down now and then what those so far come to, in a *checkpoint*:

    128.checkpoint    the files that count after 128.json, what it said of the stream, boundaries of earlier moments

Who reads takes the newest checkpoint and the manifests above it. Two checkpoints are kept, and the manifests above the older
one; what is below is removed, so that a folder holds few files however often an archiver runs. A checkpoint only repeats
what manifests say: it appears at once, as they do, before any of them is removed, and a reader that misses one because it
was removed meanwhile looks again.

Two archivers can be at work at once only when one of them was taken for dead (see lock.py). What keeps them apart then is
the order of what they do, and it needs nothing but that renames are atomic:

    the one that commits    1. writes its pending file   2. sees that the lock is still its own   3. renames it
    the one that takes over 1. gets the lock   2. notes the data files that are there   3. sees that the lock is still its own
                            4. removes all pending files   5. reads the manifests   6. removes the noted files they do not name

Either the rename comes before the removal of the pending file, and the new archiver finds the manifest; or it fails, because
the pending file is gone; or no pending file was there yet, and then step 2 of the old archiver fails. Never is a manifest
left whose files are removed. (Fencing tokens rise from run to run, and a manifest with one that does not is refused: what
breaks this order is found.) Noting before step 3 is what makes step 6 safe however late it is done: whoever wrote a noted
file had lost the lock by step 3, or is the archiver itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from streamd.spark.archive.errors import CorruptArchiveError, LockLostError
from streamd.spark.archive.layout import Disk, Layout, check_run, quote_key, unquote_key
from streamd.spark.ids import format_entry_id, parse_entry_id

__all__ = ["Checkpoint", "FileRecord", "Manifest", "ManifestLog", "RowGroup", "archived_streams"]

FORMAT = 1
NOTHING = 0
"""The boundary of a stream of which nothing is archived: there is no entry 0-0."""

LOOKS = 5
"""How often a folder is looked at again when a file in it was removed since."""

HOUR_MS, DAY_MS = 3_600_000, 86_400_000

_COMMITTED = re.compile(r"(\d{12})\.json")
_CHECKPOINT = re.compile(r"(\d{12})\.checkpoint")
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
            "entries_added": self.entries_added,
            "last_generated_id": format_entry_id(self.last_generated),
            "next_id": None if self.next_id is None else format_entry_id(self.next_id),
            "files": [each.to_json() for each in self.files],
            "replaced": list(self.replaced),
        }

    @classmethod
    def from_bytes(cls, data: bytes, stream: str) -> Manifest:
        """Read a manifest back. Raises ValueError, KeyError or TypeError when it is none of this stream."""
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
        if (
            previous is not None
            and (self.token, self.run) != (previous.token, previous.run)
            and self.token <= previous.token
        ):
            raise ValueError(
                f"its fencing token {self.token} is not above {previous.token}, which another run has used"
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


@dataclass(frozen=True)
class Checkpoint:
    """What the manifests up to a number come to."""

    last: Manifest  # the one of that number, without its files
    files: tuple[FileRecord, ...]  # those that count, in the order of their IDs
    replaced: tuple[tuple[str, int], ...]  # paths of files that counted once and may still lie there, and since when
    boundaries: tuple[
        tuple[int, int], ...
    ]  # when manifests were written, and their boundaries; fewer the older they are
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
        """Read a checkpoint back. Raises ValueError, KeyError or TypeError when it is none of this stream."""
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


@dataclass
class ManifestLog:
    """The manifests of one stream in an archive, as they were when they were read.

    base       the checkpoint that was read instead of those up to its number, if there was one
    manifests  those above it, in order
    """

    layout: Layout
    stream: str
    base: Checkpoint | None = None
    manifests: list[Manifest] = field(default_factory=list)
    _files: dict[str, FileRecord] = field(default_factory=dict, repr=False)  # those that count, by path
    _replaced: dict[str, int] = field(default_factory=dict, repr=False)  # those that do not any more, and since when

    @classmethod
    def read(cls, layout: Layout, stream: str, *, known: ManifestLog | None = None) -> ManifestLog:
        """Read the manifests of a stream, and see that they follow each other. Raises CorruptArchiveError.

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
                # Removed since the folder was looked at, for the sake of a checkpoint that is there now; or lost.
                if look + 1 == LOOKS:
                    number = int(Path(error.filename).name.partition(".")[0])
                    raise CorruptArchiveError(f"{folder}: manifest {number} is missing") from error
            else:
                return log
        raise AssertionError

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
            raise CorruptArchiveError(f"{path} is not a checkpoint that can be here: {error}") from error
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
                raise CorruptArchiveError(f"{path} is not a manifest that can be here: {error}") from error

    def _add(self, manifest: Manifest) -> None:
        """Let a manifest count. Raises ValueError when it replaces what is not there."""
        if unknown := [path for path in manifest.replaced if path not in self._files]:
            raise ValueError(f"it replaces {unknown[0]}, which does not count")
        for path in manifest.replaced:
            del self._files[path]
            self._replaced[path] = manifest.created_ms
        self._files.update((file.path, file) for file in manifest.files)
        self.manifests.append(manifest)

    def path(self, sequence: int) -> Path:
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
        """The boundary of the manifests that are at least as old as this moment; lower for one that is long ago."""
        return max((high for moment, high in self.boundaries if moment <= created_until_ms), default=NOTHING)

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
        self._add(manifest)

    def checkpoint(self) -> Checkpoint:
        """What the manifests so far come to. Raises IndexError when there are none."""
        if self.last is None:
            raise IndexError("there are no manifests")
        return Checkpoint(
            last=replace(self.last, files=(), rows=0, replaced=()),
            files=tuple(self.files),
            # Those that have been removed meanwhile can be forgotten.
            replaced=tuple(each for each in self._replaced.items() if (self.layout.root / each[0]).exists()),
            boundaries=thinned(self.boundaries),
            token=self.token,
        )

    def write_pending_checkpoint(self, run: str, disk: Disk) -> Path:
        """Write a checkpoint of the manifests so far where no reader looks."""
        path = self.path(self.sequence).with_suffix(f".{check_run(run)}-checkpoint.pending")
        disk.write_new(path, self.checkpoint().to_bytes())
        disk.sync_folder(path.parent)
        return path

    def commit_checkpoint(self, pending: Path, disk: Disk) -> None:
        """The pending checkpoint becomes one that is read. Raises LockLostError when another archiver has taken over."""
        final = checkpoint_path(self.layout, self.stream, self.sequence)
        try:
            disk.publish(pending, final)
        except (FileExistsError, FileNotFoundError) as error:
            raise LockLostError(f"another archiver has taken over {self.stream!r}: {error}") from error
        disk.sync_folder(final.parent)

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


def checkpoint_path(layout: Layout, stream: str, number: int) -> Path:
    return layout.manifests(stream) / f"{number:012d}.checkpoint"


def committed_numbers(folder: Path) -> tuple[list[int], list[int]]:
    """The numbers of the manifests and of the checkpoints in a folder, in order."""
    names = [each.name for each in folder.iterdir()] if folder.is_dir() else []
    found = ([match for name in names if (match := form.fullmatch(name))] for form in (_COMMITTED, _CHECKPOINT))
    numbers, checkpoints = (sorted(int(match[1]) for match in matches) for matches in found)
    return numbers, checkpoints


def archived_streams(layout: Layout) -> list[str]:
    """The keys of all streams that have manifests."""
    found = []
    for name in layout.streams():
        if "~" in name:  # a long key: any manifest or checkpoint has it whole
            key = whole_key(layout.root / "_manifest" / name)
            found += [key] if key is not None else []
        else:
            found.append(unquote_key(name))
    return found


def whole_key(folder: Path) -> str | None:
    for look in range(LOOKS):
        try:
            for path in folder.iterdir():
                if _COMMITTED.fullmatch(path.name):
                    return unquote_key(json.loads(path.read_bytes())["stream"])
                if _CHECKPOINT.fullmatch(path.name):
                    return unquote_key(json.loads(path.read_bytes())["last"]["stream"])
        except FileNotFoundError:  # removed since the folder was looked at
            if look + 1 == LOOKS:
                raise
        else:
            return None
    raise AssertionError
