"""When a stream was last archived, as the server knows it, for whoever watches archives: health checks, metrics, the doctor.

    streamd:archive:runs:<key>   string: JSON, {<archive>: {...}}: the last run over the stream into each archive (ArchiveRun)

An archiver writes it after each run over the stream, also after one that has failed or had nothing to archive, of which no manifest is
left. Nothing that is promised depends on it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from itertools import pairwise
from typing import Any

from streamd.client.archive_keys import key_beside

__all__ = ["ArchiveRun", "format_runs", "parse_runs", "runs_key"]

EARLIER = 5
"""Moments of earlier runs that are kept: what is usual is seen from them."""


@dataclass(frozen=True)
class ArchiveRun:
    """The last run over a stream into one archive. Moments are Unix times in ms, by the server's clock."""

    archive: str  # its address
    run: str
    at_ms: int  # when the run ended
    every_ms: int | None = None  # how often runs are repeated; None: nobody has said
    earlier_ms: tuple[int, ...] = ()  # when the runs before ended, oldest first
    success_ms: int | None = None  # the last run that succeeded
    error: str | None = None  # of the last run that failed
    error_kind: str | None = None  # the name of its type
    error_ms: int | None = None
    boundary: str = "0-0"  # the ID up to which the stream is archived
    held_ms: Mapping[str, int] = field(default_factory=dict)  # groups that hold up trims, and since when

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> ArchiveRun:
        """Raises TypeError, ValueError and KeyError for what is no such record; further members are ignored."""
        known = {each.name for each in fields(cls)}
        made = cls(**{name: value for name, value in found.items() if name in known})
        return cls(
            **{
                **asdict(made),
                "at_ms": int(made.at_ms),
                "earlier_ms": tuple(map(int, made.earlier_ms)),
                "held_ms": {str(name): int(since) for name, since in dict(made.held_ms).items()},
            }
        )

    @property
    def has_failed(self) -> bool:
        """Whether the last run has failed."""
        return self.error_ms is not None and self.error_ms >= self.at_ms

    @property
    def usual_ms(self) -> int | None:
        """The longest time between runs that is usual here; None when that cannot be said yet."""
        if self.every_ms is not None:
            return self.every_ms
        moments = (*self.earlier_ms, self.at_ms)
        return max((later - earlier for earlier, later in pairwise(moments)), default=None)

    def after(self, before: ArchiveRun | None) -> ArchiveRun:
        """This run with what is to be kept of the one before."""
        if before is None:
            return self
        kept = asdict(self)
        kept["earlier_ms"] = (*before.earlier_ms, before.at_ms)[-EARLIER:]
        kept["held_ms"] = {group: before.held_ms.get(group, since) for group, since in self.held_ms.items()}
        if self.has_failed:
            kept |= {"success_ms": before.success_ms, "held_ms": {**before.held_ms, **kept["held_ms"]}}
        elif before.error_ms is not None:
            kept |= {"error": before.error, "error_kind": before.error_kind, "error_ms": before.error_ms}
        return ArchiveRun(**kept)


def runs_key(stream: str) -> str:
    """The key with the last runs over a stream."""
    return key_beside("runs", stream)


def parse_runs(value: bytes | None) -> dict[str, ArchiveRun]:
    """The runs that the key holds, by archive; what cannot be read is left out."""
    try:
        found = json.loads(value or b"{}")
    except ValueError:
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
