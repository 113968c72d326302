"""What a run of the archiver reports."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import Any

from streamd.archive.archive_errors import LockedError, LockLostError

__all__ = ["Round", "RunReport", "StreamReport"]


@dataclass
class StreamReport:
    """The result of a run over one stream. IDs are text; None: no such ID."""

    stream: str
    status: str = "failed"  # archived, nothing (to archive), or failed
    low: str | None = None  # the boundary before
    high: str | None = None  # the boundary now
    rows: int = 0  # archived by this run
    files: int = 0
    bytes: int = 0
    deleted_meanwhile: int = 0  # of those rows, removed from the server before they were compared
    trimmed: int = 0  # entries removed from the server
    trimmed_to: str | None = None
    held_by: dict[str, str] = field(
        default_factory=dict
    )  # groups that still need archived entries, and up to which ID they do not
    first: str | None = None  # the first archived ID; None: nothing is archived
    archived_rows: int = 0  # in all
    archived_bytes: int = 0
    held_by_readers: str | None = None  # the boundary that readers lease
    seconds: float = 0.0
    warnings: list[str] = field(default_factory=list)
    error: str | None = None
    error_kind: str | None = None  # the name of its type

    @property
    def is_left_to_another(self) -> bool:
        """Whether another archiver is working on the stream, so that nothing has failed."""
        return self.error_kind in (LockedError.__name__, LockLostError.__name__)


@dataclass
class RunReport:
    """What a run did."""

    run: str
    archive: str
    server: str = ""
    read_from: str | None = None  # the replica that entries were read from; None: none
    started: str = ""
    seconds: float = 0.0
    streams: list[StreamReport] = field(default_factory=list)

    @property
    def is_success(self) -> bool:
        return all(each.status != "failed" for each in self.streams)

    @property
    def has_failed(self) -> bool:
        """Whether a stream was not archived, and not because another archiver is working on it."""
        return any(each.status == "failed" and not each.is_left_to_another for each in self.streams)

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.streams)

    def to_round(self, seconds: float) -> Round:
        """The end of this run, now."""
        return Round(time.time(), seconds, self.has_failed, tuple(each.stream for each in self.streams))

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "is_success": self.is_success, "rows": self.rows}


@dataclass(frozen=True)
class Round:
    """The end of a run, for metrics.

    at_s     when, in Unix time by the clock of this machine
    failed   whether there was no run, or some stream was not archived
    streams  those that were found, archived or not
    """

    at_s: float
    seconds: float
    failed: bool
    streams: tuple[str, ...] = ()
