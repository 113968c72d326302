"""Load an append-only file: replay every command in its files.

A file is a snapshot, commands, or a snapshot and then commands (the single file of Redis 4 to 6); its first bytes
show which. Everything goes through callables, so this module knows nothing about commands or clients:

    apply(args)                 runs one command without a reply: no limits, no blocking, no propagation, `is_replaying`
    knows(args)                 raises UnknownCommandError when there is no such command; called for the commands of a
                                group, which are run only after the whole group has been read
    load_rdb(path, file)        loads a snapshot from an open file positioned at its start; yields bytes read, returns
                                the offset after the snapshot

This module decides what counts as damage, and what happens then:

    the last file ends inside a command          truncated after the last complete command, if `load_truncated` allows
    ... or inside a group (MULTI without EXEC)   truncated before MULTI: the group has not been run, and the next start
                                                 must not find an open MULTI that swallows what is written from now on
    the last file has garbage at its end         the same, if that is shorter than `corrupt_tail_max_size`, whatever
                                                 `load_truncated` says
    everything else                              CorruptFileError, and no file is changed

A file is truncated only after everything before that point has been loaded. The bytes cut off are kept beside it
(`NAME.cut-OFFSET`) if they contain complete commands: a wrong length in the middle looks like a missing end, and hides
everything after it. Behaviour: Redis 8.6, except for groups and for what is kept: Redis truncates inside a group when
the file ends inside a command, and truncates a file that is not the last before refusing it.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Generator, Sequence
from io import FileIO
from typing import NamedTuple

from streamd.disk import Disk, new_file
from streamd.errors import CommandError, CorruptFileError, StreamdError, UnknownCommandError, one_line
from streamd.keyspace.database import Database
from streamd.keyspace.value_type import registered_types
from streamd.persistence.aof.aof_manifest import AofFile
from streamd.persistence.aof.reader import AofFault, AofReader

__all__ = [
    "POSITION",
    "AofLoadError",
    "LoadOptions",
    "LoadRdb",
    "load_file",
    "load_files",
]

log = logging.getLogger("streamd")

Apply = Callable[[list[bytes]], object]
LoadRdb = Callable[[str, FileIO], Generator[int, None, int]]

STEP = 1024
"""Commands run between two steps."""
RDB_MAGIC = (b"REDIS", b"VALKE")
MAX_LOGGED_FAILURES = 10
POSITION = b"at "
"""Begins the annotation that says where in the replication stream the data before it ends; see `Tail.position`."""


class AofLoadError(StreamdError):
    """Files that cannot be loaded, though none is damaged: one is missing, or a command is unknown."""


class LoadOptions(NamedTuple):
    """
    load_truncated         load a last file whose end is missing (aof-load-truncated)
    corrupt_tail_max_size  load one with fewer bad bytes than this at its end (aof-load-corrupt-tail-max-size)
    note_position          called with what is said of the place that the data has in the stream (see `Tail.position`)
    """

    load_truncated: bool = True
    corrupt_tail_max_size: int = 0
    note_position: Callable[[bytes], object] = lambda text: None


def load_files(
    directory: str,
    files: Sequence[AofFile],
    apply: Apply,
    options: LoadOptions,
    *,
    load_rdb: LoadRdb,
    knows: Apply | None = None,
    databases: Sequence[Database] = (),
    disk: Disk | None = None,
) -> Generator[int, None, list[int]]:
    """Load files in order; yields the bytes read so far, about every millisecond. Returns the files' sizes.

    databases  receive the state that no command can express (see command_writer)
    Raises CorruptFileError, AofLoadError, OSError.
    """
    paths = [os.path.join(directory, file.name) for file in files]
    sizes = [size_of(path) for path in paths]
    for file, path, size in zip(files, paths, sizes, strict=True):
        if file.kind == "b":
            check_base(file, path, size)
    done = 0
    for at, (file, path) in enumerate(zip(files, paths, strict=True)):
        started = time.monotonic()
        loading = load_file(
            path, apply, options, is_last=at == len(paths) - 1,
            load_rdb=load_rdb, knows=knows, databases=databases, disk=disk or Disk(),
        )  # fmt: skip
        sizes[at] = yield from _shifted(loading, done)
        done += sizes[at]
        kind = "base" if file.kind == "b" else "incr"
        log.info("DB loaded from %s file %s: %.3f seconds", kind, file.name, time.monotonic() - started)
    return sizes


def _shifted(steps: Generator[int, None, int], by: int) -> Generator[int, None, int]:
    """The same steps, each greater by `by`."""
    while True:
        try:
            step = next(steps)
        except StopIteration as end:
            return int(end.value)
        yield by + step


def size_of(path: str) -> int:
    """The size of a file that must exist."""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        raise AofLoadError(f"The append only file {path} is missing, but the manifest lists it") from None


def check_base(file: AofFile, path: str, size: int) -> None:
    """Refuse a base that has lost its content.

    A base of commands may be empty in one case: Redis creates one, with the number 1, when it starts for the first
    time. Those of streamd never are.
    """
    if size:
        return
    if file.is_rdb or file.seq > 1:
        raise CorruptFileError(path, 0, "a snapshot or commands", "an empty file")
    log.warning("The base %s is empty, as after a first start of Redis", path)


def load_file(
    path: str,
    apply: Apply,
    options: LoadOptions,
    *,
    is_last: bool,
    load_rdb: LoadRdb,
    knows: Apply | None = None,
    databases: Sequence[Database] = (),
    disk: Disk | None = None,
) -> Generator[int, None, int]:
    """Load one file; yields the bytes read so far, returns its size, after truncation if its end was cut off."""
    with FileIO(path) as file:
        start = 0
        if file.read(5) in RDB_MAGIC:
            file.seek(0)
            start = yield from load_rdb(path, file)
        file.seek(start)
        size = os.fstat(file.fileno()).st_size
        reader = AofReader(file, size, start)
        try:
            yield from _replay(reader, path, apply, knows, databases, options.note_position)
        except AofFault as fault:
            if reader.valid < reader.whole:
                log.warning("Revert incomplete MULTI/EXEC transaction in AOF file %s", os.path.basename(path))
            _judge(fault, reader, path, options, is_last=is_last)
            return _cut(reader, fault, path, disk or Disk())
    return size


def _replay(
    reader: AofReader,
    path: str,
    apply: Apply,
    knows: Apply | None,
    databases: Sequence[Database],
    note_position: Callable[[bytes], object],
) -> Generator[int, None, None]:
    failures = 0

    def failed(args: list[bytes], error: CommandError) -> None:
        nonlocal failures
        failures += 1
        if failures <= MAX_LOGGED_FAILURES:
            log.warning(
                "== CRITICAL == This server is sending an error to its AOF-loading-client: '%s' after processing the"
                " command '%s'", error, one_line(args[0][:128]),
            )  # fmt: skip

    def restore(text: bytes, args: list[bytes]) -> None:
        if text.startswith(POSITION):
            note_position(text[len(POSITION) :])
        elif args:
            restore_state(databases, text, args)

    try:
        while reader.replay(apply, STEP, restore if databases else None, failed, knows):
            yield reader.whole
    except UnknownCommandError as error:
        if match := re.search(r"'(.*?)'", str(error)):
            log.warning("Unknown command '%s' reading the append only file %s", match[1], os.path.basename(path))
        raise AofLoadError(f"{error}, reading the append only file {path} before offset {reader.whole}") from error
    if failures > MAX_LOGGED_FAILURES:
        log.warning("%d commands of %s failed", failures, path)


def _judge(fault: AofFault, reader: AofReader, path: str, options: LoadOptions, *, is_last: bool) -> None:
    """Raise CorruptFileError, unless the file may be truncated where it becomes invalid."""
    lost = reader.size - reader.whole
    if fault.is_cut:
        if is_last and options.load_truncated:
            return
        what = f"Unexpected end of file reading the append only file {os.path.basename(path)}"
        setting = "aof-load-truncated is yes"
    else:
        if is_last and lost < options.corrupt_tail_max_size:
            return
        what = f"Bad file format reading the append only file {_short(path)} at offset {reader.whole}"
        setting = f"aof-load-corrupt-tail-max-size is above {lost}"
    if is_last:
        log.warning(
            "%s. Make a backup of the file; then `streamd check-aof --fix %s` cuts it at offset %d, as a start does when %s",
            what, path, reader.valid, setting,
        )  # fmt: skip
    else:
        log.warning("%s", what)
        log.warning("Fatal error: the truncated file is not the last file")
    found = "the end of the file" if fault.is_cut or not fault.found else repr(fault.found)[1:]
    raise CorruptFileError(path, fault.offset, fault.expected, found)


def _cut(reader: AofReader, fault: AofFault, path: str, disk: Disk) -> int:
    """Truncate the file after what has been loaded; returns its new size."""
    lost = reader.size - reader.valid
    name = os.path.basename(path)
    if fault.is_cut:
        allowed_by = "aof-load-truncated"
        log.warning("!!! Warning: short read while loading the AOF file %s!!!", name)
        log.warning("!!! Truncating the AOF %s at offset %d !!!", name, reader.valid)
    else:
        allowed_by = "aof-load-corrupt-tail-max-size"
        log.warning("!!! Warning: corrupt AOF file tail!!!")
        log.warning("!!! Truncating the AOF %s at offset %d (remaining %d) !!!", _short(path), reader.valid, lost)
    log.warning("%s %s", path, fault)
    kept = keep_commands(path, reader.valid, disk)
    if kept:
        log.warning("The file has commands after that offset: the removed part is kept in %s", kept)
    disk.cut(path, reader.valid)
    log.warning("AOF %s loaded anyway because %s is enabled", _short(path), allowed_by)
    return reader.valid


def _short(path: str) -> str:
    """A file and its directory, as some of Redis's log lines name it."""
    return os.path.join(os.path.basename(os.path.dirname(path)), os.path.basename(path))


def keep_commands(path: str, offset: int, disk: Disk) -> str:
    """Save what follows `offset` to a separate file if it has complete commands; returns its path, or ""."""
    tail = read_tail(path, offset)
    return keep_tail(path, offset, tail, disk) if has_commands(tail) else ""


def read_tail(path: str, offset: int) -> bytes:
    """The content of a file from `offset` on."""
    with open(path, "rb") as file:
        file.seek(offset)
        return file.read()


def keep_tail(path: str, offset: int, tail: bytes, disk: Disk) -> str:
    """Save the end of a file, about to be truncated at `offset`, to a file beside it; returns its path."""
    kept = f"{path}.cut-{offset}"
    with new_file(kept, disk=disk) as fd:
        disk.write_all(fd, tail)
    disk.sync_directory(os.path.dirname(path) or ".")
    return kept


def has_commands(tail: bytes) -> bool:
    """Whether there are commands after the first byte, up to the end or the next piece of damage."""
    at = 0
    while (at := tail.find(b"\r\n*", at)) >= 0:
        at += 2
        try:
            if AofReader(_View(tail, at), len(tail), at, strict=True).next_command() is not None:
                return True
        except AofFault:
            continue
    return False


class _View:
    """Bytes from an offset on, as a file."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = memoryview(data)
        self._at = at

    def readinto(self, view: memoryview) -> int:
        piece = self._data[self._at : self._at + len(view)]
        view[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)


# --- State that no command can bring ---------------------------------------------------------------------------------------


def restore_state(databases: Sequence[Database], text: bytes, args: list[bytes]) -> None:
    """Apply one of streamd's annotations to the subject of the preceding command; what is not understood is skipped.

    text  `0 consumer 1700000000000 -1`: database, kind and numbers; ValueType.annotations has the kinds
    args  the command
    """
    words = text.split()
    try:
        db = databases[int(words[0])]
        kind, numbers = words[1], [int(word) for word in words[2:]]
    except (IndexError, ValueError):
        return
    for value_type in registered_types():
        if kind in value_type.annotations:
            value_type.restore_state(db, args, kind, numbers)
