"""Power failures and failing disks for a real server, by a small library that is preloaded into it (shim.c).

    power = PowerLoss(folder, scratch)           before the server starts: the current contents of `folder` are safe
    ... start a server with power.environment() in `folder` ...
    power.rules("fsync 5 1+")                    from now on each sync fails with EIO; power.rules() ends that
    ... kill it ...
    power.happen()                               `folder` is now what a disk would hold that kept only what was synced

The strictest disk is simulated: a name exists only once its directory was synced, a byte only once its file was, and what
was never synced is lost. A real disk may keep more.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["PowerLoss", "find_compiler"]

SOURCE = Path(__file__).with_name("shim.c")


def find_compiler() -> str | None:
    """A C compiler, or None: then the shim cannot be built. Linux only."""
    return (shutil.which("cc") or shutil.which("gcc")) if sys.platform == "linux" else None


@functools.cache
def build() -> Path:
    """The library, compiled once for each run of the tests."""
    compiler = find_compiler()
    assert compiler is not None, "the caller must have looked for a compiler"
    folder = Path(tempfile.mkdtemp(prefix="fsync-shim-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    library = folder / "shim.so"
    subprocess.run(
        [compiler, "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl", "-lpthread"],
        check=True,
    )
    return library


@dataclass
class _Disk:
    """What is safe: sizes of files by inode, names in directories by their inode."""

    sizes: dict[int, int] = field(default_factory=dict)
    names: dict[int, dict[str, int]] = field(default_factory=dict)


class PowerLoss:
    """A power failure that can happen to the files of one folder.

    folder   where the server works
    scratch  an empty folder on the same file system, outside of it
    """

    def __init__(self, folder: Path, scratch: Path) -> None:
        self.folder = folder.resolve()
        self._log = scratch / "log"
        self._kept = scratch / "kept"
        self._control = scratch / "control"
        self._kept.mkdir(parents=True)
        self._look()

    def _look(self) -> None:
        self._before = _Disk()
        for path in [self.folder, *self.folder.rglob("*")]:
            about = path.stat()
            if path.is_dir():
                self._before.names[about.st_ino] = {each.name: each.stat().st_ino for each in path.iterdir()}
            else:
                self._before.sizes[about.st_ino] = about.st_size

    def environment(self) -> dict[str, str]:
        """For the server's process, on top of its own environment."""
        return {
            "LD_PRELOAD": str(build()),
            "FSYNC_SHIM_ROOT": str(self.folder),
            "FSYNC_SHIM_LOG": str(self._log),
            "FSYNC_SHIM_KEEP": str(self._kept),
            "FSYNC_SHIM_CONTROL": str(self._control),
        }

    def rules(self, *lines: str) -> None:
        """Make calls fail from now on, as described at the head of shim.c; without lines, let everything work again."""
        fresh = self._control.with_suffix(".new")
        fresh.write_text("".join(f"{line}\n" for line in lines))
        fresh.replace(self._control)

    def renew(self) -> None:
        """Treat the current contents as safe and forget earlier calls; before another server starts."""
        self._log.unlink(missing_ok=True)
        for path in self._kept.iterdir():
            path.unlink()
        self.rules()
        self._look()

    @property
    def syncs(self) -> int:
        """Successful syncs so far, of files and of directories."""
        return sum(words[0] in "SD" for words in self._records())

    def _records(self) -> list[list[str]]:
        text = self._log.read_text() if self._log.exists() else ""
        return [line.split("\t") for line in text.splitlines()]

    def _disk(self) -> _Disk:
        disk = _Disk(dict(self._before.sizes), dict(self._before.names))
        for kind, inode, *rest in self._records():
            number = int(inode)
            if kind == "S":
                disk.sizes[number] = int(rest[0])
            elif kind == "T":
                disk.sizes[number] = min(disk.sizes.get(number, 0), int(rest[0]))
            else:
                disk.names[number] = {name: int(each) for each, name in zip(rest[1::3], rest[2::3], strict=True)}
        return disk

    def happen(self) -> None:
        """Reduce the folder to what is safe. The server must be dead; its remaining children are killed."""
        for pid in self._processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        while self._processes():
            time.sleep(0.001)
        disk = self._disk()
        contents: dict[int, bytes] = {}
        for path in [*self._kept.iterdir(), *self.folder.rglob("*")]:
            about = path.stat()
            if path.is_file():
                contents[about.st_ino] = path.read_bytes()[: disk.sizes.get(about.st_ino, 0)]
        folders = {path.stat().st_ino for path in self.folder.rglob("*") if path.is_dir()}
        top = self.folder.stat().st_ino
        for path in self.folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        self._restore(self.folder, top, disk, contents, folders)

    def _processes(self) -> list[int]:
        """Processes whose working directory is the folder."""
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdigit() and (entry / "cwd").readlink() == self.folder:
                    found.append(int(entry.name))
        return found

    def _restore(self, path: Path, inode: int, disk: _Disk, contents: dict[int, bytes], folders: set[int]) -> None:
        for name, each in disk.names.get(inode, {}).items():
            if each in folders:
                (path / name).mkdir()
                self._restore(path / name, each, disk, contents, folders)
            else:
                (path / name).write_bytes(contents.get(each, b""))
