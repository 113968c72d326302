"""What an open table is, and what both formats say of a file. tables.py keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from streamd.spark.archive.layout import NO_DATE, date_in, folder_name, quote_key
from streamd.spark.archive.manifest import FileRecord
from streamd.spark.archive.manifest_log import ManifestLog
from streamd.spark.wire.ids import ms_of

__all__ = ["ArchiveTable", "TableConfig", "day_of", "id_bounds", "mark_of", "ms_bounds", "stream_text"]


@dataclass(frozen=True)
class TableConfig:
    """A table that is kept.

    name        `namespace.table`; Iceberg only
    catalog     the name of a catalog that pyiceberg is configured for; None: the archive's own, in SQLite
    properties  of the catalog, on top of what pyiceberg is configured for. No secrets: they belong to pyiceberg's own
                configuration
    """

    format: str
    name: str = "streamd.archive"
    catalog: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


class ArchiveTable(Protocol):
    """One table."""

    def create(self) -> None:
        """Make the table, unless it is there."""
        ...

    def bring_up(self, log: ManifestLog) -> bool:
        """Make the table name the files that count of a stream. False: another archiver has changed it meanwhile."""
        ...

    def forget(self, log: ManifestLog, moment_ms: int) -> None:
        """Expire the snapshots that name files of a stream replaced up to this moment (the server's Unix ms).

        The table has been brought up to `log`.
        """
        ...

    def drop(self) -> None:
        """Remove the table, and not the files that it names."""
        ...


def stream_text(stream: str) -> str:
    """A key as a column holds it; percent-encoded when it is not text."""
    try:
        stream.encode()
    except UnicodeEncodeError:
        return quote_key(stream)
    return stream


def day_of(path: str) -> str | None:
    """The value of the column `date` for a file: ISO, or None for entries of years that dates cannot hold."""
    day = date_in(path)
    return None if day == NO_DATE else day


def mark_of(stream: str) -> str:
    """The name under which a table keeps the number of the last manifest that it follows."""
    return f"streamd.manifest.{folder_name(stream)}"


def ms_bounds(file: FileRecord) -> tuple[int, int] | None:
    """The lowest and the highest value of `ms`, none of which is null; None when the column cannot hold them."""
    low, high = ms_of(file.first), ms_of(file.last)
    return (low, high) if high < 1 << 63 else None


def id_bounds(file: FileRecord) -> tuple[str, str] | None:
    """Bounds of `id` in the order of texts; None when the texts of the file's IDs are not in the order of the IDs.

    They are not themselves IDs: '-' follows each millisecond, and '.' is the character after it.
    """
    low, high = str(ms_of(file.first)), str(ms_of(file.last))
    return (f"{low}-", f"{high}.") if len(low) == len(high) else None
