"""When a stream was last archived, as the server knows it, for whoever watches archives: health checks, metrics, the doctor.

    streamd:archive:runs:<key>   string: JSON, {<archive>: {...}}: the last run over the stream into each archive (ArchiveRun)

An archiver writes it after each run over the stream, also after one that has failed or had nothing to archive, of which no manifest is
left. Nothing that is promised depends on it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from streamd.client.archive_keys import key_beside

__all__ = ["ArchiveRun", "format_runs", "parse_runs", "runs_key"]


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

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> ArchiveRun:
        """Raises TypeError, ValueError and KeyError for what is no such record; further members are ignored."""
        known = {each.name for each in fields(cls)}
        made = cls(**{name: value for name, value in found.items() if name in known})
        return replace(made, at_ms=int(made.at_ms))

    @property
    def has_failed(self) -> bool:
        """Whether the last run has failed."""
        return self.error_ms is not None and self.error_ms >= self.at_ms

    def after(self, before: ArchiveRun | None) -> ArchiveRun:
        """This run with what is to be kept of the one before."""
        if before is None:
            return self
        if self.has_failed:
            return replace(self, success_ms=before.success_ms)
        return replace(self, error=before.error, error_kind=before.error_kind, error_ms=before.error_ms)


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
