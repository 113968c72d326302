"""When a stream was last archived, as the server knows it, for whoever watches archives: health checks, metrics, the doctor.

    streamd:archive:runs:{<tag>}:<key>   string: JSON, {<archive>: {...}}: the last run over the stream into each archive (ArchiveRun)

An archiver writes it after each run over the stream, also after one that has failed or had nothing to archive, of which no manifest is
left. Nothing that is promised depends on it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from streamd.client.archive_keys import key_beside
from streamd.client.key_names import stream_key
from streamd.client.points import format_entry_id, parse_entry_id

__all__ = ["ArchiveRun", "format_runs", "parse_runs", "runs_key"]

INTERVALS = 5
"""Times between runs that are noted: one that somebody has started by hand does not make the usual time short."""


@dataclass(frozen=True)
class ArchiveRun:
    """The last run over a stream into one archive. Moments are Unix times in ms, by the server's clock."""

    archive: str  # its address
    run: str
    at_ms: int  # when the run ended
    every_ms: int | None = None  # how often runs are repeated; None: nobody has said
    success_ms: int | None = None  # the last run that succeeded
    error: str | None = None  # of the last run that failed
    error_kind: str | None = None  # the name of its type
    error_ms: int | None = None
    boundary: str = "0-0"  # the ID up to which the stream is archived
    first: str | None = None  # the first archived ID; None: nothing is archived
    rows: int = 0  # archived entries
    bytes: int = 0  # of the files that hold them
    held_by: Mapping[str, str] = field(
        default_factory=dict
    )  # groups that kept archived entries from being trimmed: see StreamReport
    intervals_ms: tuple[int, ...] = ()  # between the ends of the last runs

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> ArchiveRun:
        """Raises TypeError and ValueError for what is no such record, since anybody may write the key; further members are ignored."""
        read = {each.name: READ[str(each.type)] for each in fields(cls)}
        read |= {"boundary": entry_id, "first": optional(entry_id)}
        return cls(**{member: read[member](value) for member, value in found.items() if member in read})

    @property
    def usual_ms(self) -> int | None:
        """How long it takes until the next run, usually; None: unknown."""
        return self.every_ms or max(self.intervals_ms, default=None)

    @property
    def has_failed(self) -> bool:
        """Whether the last run has failed."""
        return self.error_ms is not None and self.error_ms >= self.at_ms

    def after(self, before: ArchiveRun | None) -> ArchiveRun:
        """This run with what is to be kept of the one before."""
        if before is None:
            return self
        intervals_ms = (*before.intervals_ms, max(0, self.at_ms - before.at_ms))[-INTERVALS:]
        if self.has_failed:
            kept = {name: getattr(before, name) for name in ("success_ms", "first", "rows", "bytes", "held_by")}
        else:
            kept = {name: getattr(before, name) for name in ("error", "error_kind", "error_ms")}
        return replace(self, intervals_ms=intervals_ms, **kept)


def entry_id(value: Any) -> str:
    return format_entry_id(parse_entry_id(text(value)))


def text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def name(value: Any) -> str:
    stream_key(text(value))
    return str(value)


def whole(value: Any) -> int:
    if not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise ValueError(f"{value!r} is no number of this size")
    return value


def optional(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else read(value)


READ: Mapping[str, Callable[[Any], Any]] = {
    "str": text,
    "str | None": optional(text),
    "int": whole,
    "int | None": optional(whole),
    "Mapping[str, str]": lambda value: {name(group): entry_id(until) for group, until in dict(value).items()},
    "tuple[int, ...]": lambda value: tuple(map(whole, value)),
}
"""How a field of a record is read, by its type."""


def runs_key(stream: str) -> str:
    """The key with the last runs over a stream."""
    return key_beside("runs", stream)


def parse_runs(value: bytes | None) -> dict[str, ArchiveRun]:
    """The runs that the key holds, by archive; what cannot be read is left out."""
    try:
        found = json.loads(value or b"{}")
    except (ValueError, RecursionError):
        return {}
    runs = {}
    for archive, described in found.items() if isinstance(found, dict) else ():
        try:
            runs[archive] = ArchiveRun.from_json(described)
        except (TypeError, ValueError, KeyError, AttributeError):
            continue
    return runs


def format_runs(runs: Mapping[str, ArchiveRun]) -> bytes:
    return json.dumps({archive: asdict(run) for archive, run in runs.items()}).encode()
