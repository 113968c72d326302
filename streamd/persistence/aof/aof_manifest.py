"""The manifest of the append-only file: which files it consists of, in which order.

    file appendonly.aof.2.base.rdb seq 2 type b                     the base: everything up to a moment
    file appendonly.aof.1.incr.aof seq 1 type h                     history: no longer needed, to be deleted
    file appendonly.aof.2.incr.aof seq 2 type i startoffset 4711    changes since then, in files of rising numbers

The format is that of Redis 7.0 and later: pairs of words, one file per line. Names with spaces or special characters
are quoted; lines that start with `#` are comments; pairs with other names are skipped.

`Manifest` is that list. `ManifestFile` is the file that holds it: it is read and replaced as a whole. The replacement
has two halves, so that new files are recorded before they are created:

    prepare(manifest)   the text goes to `temp-NAME`, which is synced
                        ... files get the names that it lists ...
    commit()            `temp-NAME` replaces NAME, and the directory is synced

A crash before the rename leaves the old manifest, whose files all still exist; after it, the new one. The very first
manifest is prepared as `first-NAME`, which distinguishes such a crash from a lost manifest: `load` completes a manifest
that only lacks the rename, and base and incremental files without any manifest can be recognised as data that must not
be ignored (Redis would start from scratch, and overwrite files whose names it has already used).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from streamd.disk import Disk, new_file
from streamd.errors import StreamdError
from streamd.protocol.inline import split_line

__all__ = ["AofFile", "Manifest", "ManifestError", "ManifestFile", "NotSyncedError"]

MAX_LINE = 1023
"""The most bytes in a line, its end included."""

BASE, HISTORY, INCREMENTAL = "b", "h", "i"
Kind = Literal["b", "h", "i"]


class ManifestError(StreamdError):
    """A manifest that cannot be read.

    path    the file
    line    number of the line, from 1; 0: the file as a whole
    text    the line
    reason  Redis's words
    """

    def __init__(self, path: str, reason: str, line: int = 0, text: str = "") -> None:
        where = f"line {line} of the manifest {path}, >>> '{text}'" if line else f"the manifest {path}"
        super().__init__(f"{where}: {reason}")
        self.path = path
        self.line = line
        self.text = text
        self.reason = reason


class NotSyncedError(StreamdError):
    """The manifest was replaced, but its directory could not be synced: after a crash either one may be there."""


class AofFile(NamedTuple):
    """One file of the list.

    name          without a directory
    seq           its number, from 1; later files of a kind have higher numbers
    kind          `b` base, `h` history, `i` incremental
    start_offset  replication offset at which the file starts; None: unknown
    end_offset    ... at which it ends; only after a clean end
    """

    name: str
    seq: int
    kind: Kind
    start_offset: int | None = None
    end_offset: int | None = None

    @property
    def is_rdb(self) -> bool:
        """Whether the name says that it is a snapshot."""
        return self.name.endswith(".rdb")

    @property
    def is_incremental(self) -> bool:
        """Whether it is an incremental file, or was one."""
        return self.kind == INCREMENTAL or self.name.endswith(".incr.aof")

    def format(self) -> bytes:
        text = b"file %s seq %d type %s" % (_quoted(os.fsencode(self.name)), self.seq, self.kind.encode())
        if self.start_offset is not None:
            text += b" startoffset %d" % self.start_offset
        if self.end_offset is not None:
            text += b" endoffset %d" % self.end_offset
        return text + b"\n"


@dataclass
class Manifest:
    """The files of an append-only file. Empty when there is none yet.

    base          the base, or None
    history       files that are no longer needed
    incrementals  in the order in which they are to be read
    """

    base: AofFile | None = None
    history: list[AofFile] = field(default_factory=list)
    incrementals: list[AofFile] = field(default_factory=list)

    @classmethod
    def parse(cls, data: bytes, path: str = "") -> Manifest:
        """Parse the text of a manifest; raises ManifestError for what Redis refuses."""
        if not data:
            raise ManifestError(path, "Found an empty AOF manifest")
        manifest = cls()
        lines = data.split(b"\n")
        for number, line in enumerate(lines, 1):
            # Redis reads 1023 bytes at a time and takes a piece without a line end for a line that is too long.
            if number == len(lines):
                if line:
                    raise ManifestError(path, "The AOF manifest file contains too long line")
            elif len(line) >= MAX_LINE:
                raise ManifestError(path, "The AOF manifest file contains too long line")
            elif not line.startswith(b"#"):
                try:
                    manifest._add(parse_line(line))
                except ValueError as error:
                    text = line.decode(errors="backslashreplace")
                    raise ManifestError(path, str(error), number, text) from error
        return manifest

    def _add(self, file: AofFile) -> None:
        if file.kind == BASE:
            if self.base is not None:
                raise ValueError("Found duplicate base file information")
            self.base = file
        elif file.kind == HISTORY:
            self.history.append(file)
        else:
            if self.incrementals and file.seq <= self.incrementals[-1].seq:
                raise ValueError("Found a non-monotonic sequence number")
            self.incrementals.append(file)

    def format(self) -> bytes:
        """The text, in Redis's order."""
        return b"".join(file.format() for file in self)

    def __iter__(self) -> Iterator[AofFile]:
        """Base, history, incremental files."""
        if self.base is not None:
            yield self.base
        yield from self.history
        yield from self.incrementals

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to load."""
        return self.base is None and not self.incrementals

    @property
    def to_load(self) -> list[AofFile]:
        """The files that hold the data, in order."""
        return [file for file in self if file.kind != HISTORY]

    @property
    def base_seq(self) -> int:
        """The highest number of a base, including history; 0 when there is none."""
        return max((file.seq for file in self if not file.is_incremental), default=0)

    @property
    def incremental_seq(self) -> int:
        """The same for incremental files."""
        return max((file.seq for file in self if file.is_incremental), default=0)

    def copy(self) -> Manifest:
        return Manifest(self.base, self.history.copy(), self.incrementals.copy())

    # --- Changes, for a rewrite ----------------------------------------------------------------------------------

    def set_base(self, file: AofFile) -> None:
        """Set a new base; the previous one becomes history."""
        if self.base is not None:
            self.history.insert(0, _as_history(self.base))
        self.base = file

    def forget_incrementals(self, *, but_last: bool) -> None:
        """Turn the incremental files that a new base covers into history."""
        keep = 1 if but_last and self.incrementals else 0
        until = len(self.incrementals) - keep
        self.history[:0] = [_as_history(file) for file in reversed(self.incrementals[:until])]
        del self.incrementals[:until]

    def close_last(self, end_offset: int | None) -> None:
        """Note the replication offset at which the last incremental file ends; None: it does not end here."""
        if self.incrementals:
            self.incrementals[-1] = self.incrementals[-1]._replace(end_offset=end_offset)


def _as_history(file: AofFile) -> AofFile:
    return file._replace(kind="h")


def parse_line(line: bytes) -> AofFile:
    """Parse one line; raises ValueError with Redis's reason."""
    invalid = ValueError("Invalid AOF manifest file format")
    try:
        words = split_line(line.strip(b" \t\r\n"))
    except ValueError:
        raise invalid from None
    if words is None or len(words) < 6 or len(words) % 2:
        raise invalid
    pairs = {name.lower(): value for name, value in zip(words[::2], words[1::2], strict=True)}
    name = pairs.get(b"file", b"")
    if b"/" in name:
        raise ValueError("File can't be a path, just a filename")
    kind = pairs.get(b"type", b"")[:1]
    if kind and kind not in b"bhi":
        raise ValueError("Unknown AOF file type")
    seq = _number(pairs.get(b"seq", b""))
    if not name or not kind or seq == 0:
        raise invalid
    start, end = (_number(pairs[key]) if key in pairs else None for key in (b"startoffset", b"endoffset"))
    return AofFile(os.fsdecode(name), seq, kind.decode(), start, end)  # type: ignore[arg-type]


def _number(text: bytes) -> int:
    """The leading digits as a number, 0 if there are none, like C's atoll."""
    found = re.match(rb"\s*([+-]?\d+)", text)
    return int(found[1]) if found else 0


_PLAIN = re.compile(rb"[!#-&(-\[\]-~]+")
_ESCAPES = {b"\n": b"\\n", b"\r": b"\\r", b"\t": b"\\t", b"\a": b"\\a", b"\b": b"\\b", b'"': b'\\"', b"\\": b"\\\\"}


def _quoted(name: bytes) -> bytes:
    """A name as written in the manifest: quoted if not all its characters are plain."""
    if _PLAIN.fullmatch(name):
        return name
    escaped = (
        _ESCAPES.get(char) or (char if b" " <= char <= b"~" else b"\\x%02x" % ord(char)) for char in _chars(name)
    )
    return b'"' + b"".join(escaped) + b'"'


def _chars(name: bytes) -> Iterator[bytes]:
    return (name[at : at + 1] for at in range(len(name)))


# --- The file --------------------------------------------------------------------------------------------------------


class ManifestFile:
    """The manifest on the disk.

    directory  path of the directory that holds the append-only file
    prefix     prefix of the names of all its files (appendfilename)
    disk       the operating system
    """

    def __init__(self, directory: str, prefix: str, disk: Disk | None = None) -> None:
        self.directory = directory
        self.prefix = prefix
        self.disk = disk or Disk()
        self.path = os.path.join(directory, f"{prefix}.manifest")
        self.temporary_path = os.path.join(directory, f"temp-{prefix}.manifest")
        self.first_path = os.path.join(directory, f"first-{prefix}.manifest")

    def load(self) -> Manifest:
        """The manifest, an empty one when there is none. Raises ManifestError, OSError.

        A first manifest that only lacks the rename is put in place.
        """
        data = _read(self.path)
        if data is not None:
            return Manifest.parse(data, self.path)
        prepared = self._prepared()
        if prepared is None:
            return Manifest()
        if all(os.path.exists(os.path.join(self.directory, file.name)) for file in prepared.to_load):
            self.commit(is_first=True)
            return prepared
        return Manifest()

    def unlisted(self, manifest: Manifest) -> list[str]:
        """Names of base and incremental files in the directory that the manifest does not list.

        Those of a first manifest that was never committed are left out: they hold nothing that was promised.
        """
        prepared = self._prepared()
        known = {file.name for each in (manifest, prepared or Manifest()) for file in each}
        try:
            names = os.listdir(self.directory)
        except FileNotFoundError:
            return []
        return sorted(name for name in names if name not in known and self._seq_of(name))

    def highest_seqs(self) -> tuple[int, int]:
        """The highest numbers in the names of base and incremental files in the directory, 0 if there are none."""
        try:
            names = os.listdir(self.directory)
        except FileNotFoundError:
            return 0, 0
        found = [numbers for name in names if (numbers := self._seq_of(name))]
        return max((base for base, _ in found), default=0), max((incr for _, incr in found), default=0)

    def _seq_of(self, name: str) -> tuple[int, int] | None:
        """The numbers in a name, as base and as incremental file; None for other files."""
        found = re.fullmatch(rf"{re.escape(self.prefix)}\.(\d+)\.(?:(base)\.(?:rdb|aof)|incr\.aof)", name)
        if found is None:
            return None
        return (int(found[1]), 0) if found[2] else (0, int(found[1]))

    def _prepared(self) -> Manifest | None:
        """A complete first manifest that `prepare` wrote but `commit` did not put in place, or None."""
        data = _read(self.first_path)
        try:
            return Manifest.parse(data, self.first_path) if data else None
        except ManifestError:
            return None

    def prepare(self, manifest: Manifest, *, is_first: bool = False) -> None:
        """Write the text to where `commit` finds it; `is_first`: there has been no append-only file before."""
        path = self.first_path if is_first else self.temporary_path
        with new_file(path, disk=self.disk) as fd:
            self.disk.write_all(fd, manifest.format())

    def commit(self, *, is_first: bool = False) -> None:
        """Replace the manifest with the prepared one. Raises OSError: nothing has changed; NotSyncedError: it has."""
        self.disk.rename(self.first_path if is_first else self.temporary_path, self.path)
        try:
            self.disk.sync_directory(self.directory)
        except OSError as error:
            raise NotSyncedError(f"the directory {self.directory} could not be synced: {error.strerror}") from error

    def replace(self, manifest: Manifest) -> None:
        """Do both halves at once."""
        self.prepare(manifest)
        self.commit()


def _read(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None
