"""`streamd check-aof`: check an append-only file, or all files of a manifest, and cut off what is damaged at the end.

Nothing is changed without `--fix` or `--truncate-to-timestamp`, and then only the last file; what is cut off is kept beside
it. Exit status, like redis-check-aof: 0 everything is valid, or has been repaired; 1 it is not, or cannot be read.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Generator, Iterator

import streamd.values  # noqa: F401  the types that a file may hold
from streamd.cli.one_line import say
from streamd.cli.progress_bar import bar
from streamd.persistence.aof.aof_manifest import Manifest, ManifestError, ManifestFile
from streamd.persistence.aof.check import Checked, check_file, cut_file, is_manifest

__all__ = ["check"]


def check(path: str, *, fix: bool = False, yes: bool = False, until_stamp: int | None = None) -> int:
    """Check a file or the files of a manifest, print what was found; return the exit status.

    fix          truncate the last file where it stops being valid, after asking
    yes          do not ask
    until_stamp  truncate the last file at the first `#TS:` after this Unix time
    """
    try:
        files = files_of_manifest(path) if is_manifest(path) else [("file", path)]
        is_fine = True
        for number, (kind, each) in enumerate(files, 1):
            found = look_through(each, until_stamp)
            for line in findings(kind, found):
                say(line)
            is_fine = settle(found, is_last=number == len(files), fix=fix, yes=yes, until_stamp=until_stamp)
            if not is_fine:
                break
    except ManifestError as error:
        say(f"{error}", err=True)
        is_fine = False
    except OSError as error:
        say(f"{error.filename or path}: {error.strerror}", err=True)
        is_fine = False
    say(f"{path}: {'valid' if is_fine else 'NOT valid'}", err=not is_fine)
    return 0 if is_fine else 1


def files_of_manifest(path: str) -> list[tuple[str, str]]:
    """Kind and path of the files that a manifest lists, in order. Reports others in the same folder."""
    with open(path, "rb") as file:
        manifest = Manifest.parse(file.read(), path)
    folder, name = os.path.split(path)
    others = ManifestFile(folder or ".", name.removesuffix(".manifest")).unlisted(manifest)
    if others:
        say(f"note       the manifest does not list {', '.join(others)}")
    kinds = {"b": "base", "i": "incr"}
    return [(kinds[file.kind], os.path.join(folder, file.name)) for file in manifest.to_load]


def look_through(path: str, until_stamp: int | None) -> Checked:
    """Read all of a file, with a progress bar on a terminal."""
    steps = check_file(path, until_stamp)
    with bar(os.path.basename(path), os.path.getsize(path)) as moved:
        return finish(steps, moved)


def finish(steps: Generator[int, None, Checked], moved: Callable[[int], None]) -> Checked:
    """Run all steps, reporting each to the progress bar; return their result."""
    while True:
        try:
            moved(next(steps))
        except StopIteration as end:
            checked: Checked = end.value
            return checked


def findings(kind: str, found: Checked) -> Iterator[str]:
    """What is in a file, line by line."""
    yield f"{kind:10} {found.path}"
    yield f"bytes      {found.size:,}"
    if found.rdb_keys is not None:
        yield f"snapshot   {found.rdb_keys:,} keys"
    yield f"commands   {found.commands:,}"
    if found.from_stamp >= 0:
        yield f"written    {moment(found.from_stamp)} to {moment(found.to_stamp)}"
    if kind == "base" and not found.size:
        yield "note       an empty base: a server accepts it only if it consists of commands and comes first"
    fault = found.fault
    if fault is not None:
        yield f"at byte    {fault.offset:,} of {found.size:,}"
        yield f"expected   {fault.expected}"
        yield f"found      {what_is_there(fault.found)}"
        if found.can_be_cut:
            yield f"valid      up to byte {found.valid:,}; {found.size - found.valid:,} bytes follow"


def what_is_there(found: bytes | str) -> str:
    if not found:
        return "the end of the file"
    return found if isinstance(found, str) else f"{repr(found)[1:]}, bytes {found.hex(' ')}"


def moment(stamp: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(stamp)) + f" UTC ({stamp})"


def settle(found: Checked, *, is_last: bool, fix: bool, yes: bool, until_stamp: int | None) -> bool:
    """Truncate the file if requested; return whether it is valid then."""
    if found.late_at is not None:
        say(f"Commands after {moment(until_stamp or 0)} start at byte {found.late_at:,}")
        if not found.late_at:
            say("Nothing is older than that time: the file is not changed", err=True)
            return False
        return cut(found, found.late_at, is_last=is_last, yes=True)
    if found.fault is None:
        return True
    if not found.can_be_cut:
        say("A snapshot cannot be repaired: only what follows it can be cut off", err=True)
        return False
    if not fix:
        say("Use --fix to truncate the file where it stops being valid", err=True)
        return False
    return cut(found, found.valid, is_last=is_last, yes=yes)


def cut(found: Checked, offset: int, *, is_last: bool, yes: bool) -> bool:
    """Truncate a file; return whether that was done."""
    if not is_last:
        say("It is not the last file: without its end, later files are meaningless. It is not changed", err=True)
        return False
    lost = found.size - offset
    say(f"This will shrink {found.path} from {found.size:,} bytes, by {lost:,} bytes, to {offset:,} bytes")
    if not yes:
        say("Continue? [y/N]: ", nl=False)
        if not sys.stdin.readline().lower().startswith("y"):
            say("The file is not changed", err=True)
            return False
    kept = cut_file(found.path, offset)
    say(f"Truncated. The removed {lost:,} bytes are kept in {kept}")
    return True
