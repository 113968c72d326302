"""A server that reads an archive, and a stream that is kept twice: archived and trimmed, and uncut."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from streamd.archive.archiver import ArchiveSettings, archive
from support.servers import eventually, start_streamd
from support.wire import Reply, Wire

__all__ = ["ARCHIVED", "FIRST_MS", "KEY", "UNCUT", "Stage", "id_at", "is_whole"]

KEY, UNCUT = "readings", "uncut"
FIRST_MS = 1_700_000_000_000
ARCHIVED = 300


class Stage:
    """A server that reads an archive, the archive, and a stream that is kept twice: archived and trimmed, and uncut.

    place  URL of the archive, if it is not in the folder
    """

    def __init__(self, folder: Path, place: str = "", **settings: str) -> None:
        self.folder = folder
        self.archive = folder / "archive"
        self.place = place or str(self.archive)
        directives = {
            "stream-archive-dir": self.place, "stream-archive-timeout": "60000", "enable-protected-configs": "yes",
            **settings,
        }  # fmt: skip
        self.server = start_streamd(folder, {name.replace("_", "-"): value for name, value in directives.items()})
        self.wire = self.server.connect()
        self.others: list[Wire] = []
        self.added = 0

    def close(self) -> None:
        for other in self.others:
            other.close()
        self.wire.close()
        self.server.stop()

    def call(self, *words: Any) -> Any:
        return self.wire.call(*words).plain()

    def add(self, count: int, *words: Any, key: str = KEY) -> None:
        """Add entries to both streams. Their fields have each form that a listpack knows."""
        requests: list[tuple[Any, ...]] = []
        for at in range(self.added, self.added + count):
            entry_id = f"{FIRST_MS + at // 3}-{at % 3}"
            fields = ("n", at, "text", "x" * (at % 7), b"\xff\x00" * (at % 2), -at, "n", "again" * (at % 50 == 0))
            requests += [("XADD", UNCUT, entry_id, *fields), ("XADD", key, *words, entry_id, *fields)]
        self.added += count
        for reply in self.wire.pipeline(requests):
            assert not reply.is_error, reply

    def archived(self, path: Path | None = None, *, key: str = KEY, **settings: Any) -> Any:
        """One run over the stream, of all that is in it."""
        made = ArchiveSettings(**{"hot_window_ms": 0, "trim_delay_ms": 0, **settings})
        report = archive(str(path or self.place), {"stream": key, "port": str(self.server.port)}, settings=made)
        assert report.is_success, report
        return report.streams[0]

    def prepare(self) -> None:
        """Entries in the archive alone, in three files, and some in memory alone."""
        for _ in range(3):
            self.add(ARCHIVED // 3)
            self.archived()
        self.add(50)
        assert self.call("XLEN", KEY) == 50

    def readers(self) -> list[int]:
        """The processes that read the archive."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    words = (entry / "cmdline").read_bytes().split(b"\0")
                except OSError:
                    continue
                if b"streamd.archive.tier_reader" in words and self.place.encode() in words:
                    found.append(int(entry.name))
        return found

    def assert_equal(self, command: str, *words: Any) -> None:
        assert self.wire.call(command, KEY, *words) == self.wire.call(command, UNCUT, *words), (command, words)

    def assert_whole(self) -> None:
        self.assert_equal("XRANGE", "-", "+")
        self.assert_equal("XREVRANGE", "+", "-")

    def error(self, *words: Any) -> str:
        reply = self.wire.call(*(words or ("XRANGE", KEY, "-", "+")))
        assert reply.is_error, reply
        return bytes(reply.plain()).decode()

    @contextmanager
    def reading(self, *words: Any) -> Iterator[Wire]:
        """A connection whose request waits for a reader that is stopped; it goes on at the end of the block."""
        self.call("XRANGE", KEY, "-", "+", "COUNT", 1)  # there is a reader
        stopped = self.readers()
        other = self.server.connect()
        self.others.append(other)
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        try:
            other.send(*(words or ("XRANGE", KEY, "-", "+")))
            eventually(lambda: b"blocked_clients:1" in self.call("INFO", "clients"), what="a client that waits")
            yield other
        finally:
            for pid in stopped:
                if pid in self.readers():
                    os.kill(pid, signal.SIGCONT)


def id_at(at: int) -> str:
    """The ID of an entry by its number."""
    return f"{FIRST_MS + at // 3}-{at % 3}"


def is_whole(stage: Stage, found: Reply, *words: Any) -> bool:
    return found == stage.wire.call(*(words or ("XRANGE", UNCUT, "-", "+")))
