"""What an open table is, and what both formats say of a file. kept_tables.py keeps them, published_files.py makes what they name."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from streamd.archive.archive_errors import TableError
from streamd.archive.layout import NO_DATE, Layout, date_in, folder_name
from streamd.archive.manifest import FileRecord
from streamd.archive.manifest_log import ManifestLog
from streamd.archive.name_patterns import pattern_of
from streamd.client.points import ms_of
from streamd.integers import INT64_MAX

__all__ = [
    "PLAIN_NAME",
    "TYPED_NAME",
    "ArchiveTable",
    "TableConfig",
    "check_is_described",
    "day_of",
    "id_bounds",
    "mark_of",
    "ms_bounds",
    "rejects_of",
]

PLAIN_NAME = "streamd.archive"
TYPED_NAME = "streamd.typed"


@dataclass(frozen=True)
class TableConfig:
    """A table that is kept.

    name        `namespace.table`
    catalog     Iceberg: the name of a catalog that pyiceberg is configured for; None: the archive's own, in SQLite
    properties  of the catalog, on top of what pyiceberg is configured for. No secrets: they belong to pyiceberg's own
                configuration
    schema      the columns for fields of entries; None: the plain table, which names the archive's files in place
    prefix      before the names of the other columns of a typed table (published_columns.py)
    streams     whose entries a typed table has, together with those that match `pattern`; neither is given: all
    rows        of a typed table: `all`; those that `fit` the schema; or `rejects`, the others, with the reason
    id          identifies this very table, so that another one of its name is not mistaken for it
    is_dropped  it is being removed
    """

    format: str
    name: str = PLAIN_NAME
    catalog: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    schema: str | None = None
    prefix: str = ""
    streams: tuple[str, ...] = ()
    pattern: str | None = None
    rows: str = "all"
    id: str = field(default="", compare=False)
    is_dropped: bool = field(default=False, compare=False)

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> TableConfig:
        """Raises TypeError when it is not what `asdict` gives."""
        return cls(**{**found, "streams": tuple(found.get("streams", ()))})

    @property
    def label(self) -> str:
        """The name of its description and its folder in the archive."""
        return self.format if self.schema is None else f"{self.format}-{self.name}"

    def column(self, name: str) -> str:
        """What a column that is not for a field is called."""
        return self.prefix + name

    @property
    def definition(self) -> dict[str, Any]:
        """What decides what the table holds."""
        found = {"schema": self.schema, "prefix": self.prefix, "streams": list(self.streams), "pattern": self.pattern}
        return found if self.rows == "all" else {**found, "rows": self.rows}

    def with_rejects(self) -> tuple[TableConfig, TableConfig]:
        """This table without the rows that do not fit, and the one that has them."""
        return replace(self, rows="fit"), replace(self, name=rejects_of(self.name), rows="rejects")

    def covers(self, stream: str) -> bool:
        """Whether it has the entries of a stream."""
        if not self.streams and self.pattern is None:
            return True
        is_match = self.pattern is not None and re.fullmatch(pattern_of(self.pattern), stream, re.DOTALL) is not None
        return is_match or stream in self.streams

    def __str__(self) -> str:
        return f"{self.format} table" if self.schema is None else f"{self.format} table {self.name}"


def rejects_of(name: str) -> str:
    """The name of the table of rejects."""
    return f"{name}_rejects"


class ArchiveTable(Protocol):
    """One table."""

    def unknown_id(self) -> str | None:
        """The `id` of this table if this archive has made it without learning so; None: it has not.

        That happens when a catalog has made the table, and its answer was lost.
        """
        ...

    def create(self) -> None:
        """Make the table, unless it is there. Raises TableError when another one has its name."""
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
        """Remove the table and its metadata, both of which may be gone already; not the files that it names."""
        ...


def day_of(path: str) -> str | None:
    """The value of the column `date` for a file: ISO, or None for entries of years that dates cannot hold."""
    day = date_in(path)
    return None if day == NO_DATE else day


def mark_of(stream: str, revision: str = "") -> str:
    """The name under which a table keeps the number of the last manifest that it follows, with files of a revision."""
    return f"streamd.manifest.{folder_name(stream)}{revision}"


def check_is_described(layout: Layout, config: TableConfig) -> None:
    """Raise TableError if somebody else has given a table another schema: then it must not get this one again."""
    found = TableConfig.from_json(json.loads(layout.table(config.label).read_bytes()))
    if found.schema != config.schema:
        raise TableError("its schema has changed meanwhile: the next run follows it")


def ms_bounds(file: FileRecord) -> tuple[int, int] | None:
    """The lowest and the highest value of `ms`, none of which is null; None when the column cannot hold them."""
    low, high = ms_of(file.first), ms_of(file.last)
    return (low, high) if high <= INT64_MAX else None


def id_bounds(file: FileRecord) -> tuple[str, str] | None:
    """Bounds of `id` in the order of texts; None when the texts of the file's IDs are not in the order of the IDs.

    They are not themselves IDs: '-' follows each millisecond, and '.' is the character after it.
    """
    low, high = str(ms_of(file.first)), str(ms_of(file.last))
    return (f"{low}-", f"{high}.") if len(low) == len(high) else None
