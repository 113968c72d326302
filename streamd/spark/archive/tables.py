"""Open tables: what is archived as an Iceberg or a Delta table, for programs that know nothing of streams.

    _tables/<format>.json    a table that is kept; `archive publish` and `archive run --publish` write it
    _tables/iceberg/         the metadata of the Iceberg table, and its catalog unless another one is named
    data/_delta_log/         the log of the Delta table

The manifests remain the truth. A table names the files of `data/` in place; after each commit it is compared with the
manifests of the stream, and one commit of its own adds and removes what differs. Both formats have the columns of the files
and, as partitions, `stream` and `date`, which the files do not repeat.

The order makes every crash harmless: first the manifest, then the table, and only then are files that were replaced removed
(`StreamWork.remove_replaced`). So a table is behind the manifests for a moment, never ahead of them, and no table names a file
that is gone; the next run begins by bringing the tables up. When a table cannot be brought up, the run goes on and says so,
and replaced files stay.

Several archivers, and `publish`, may bring one table up at a time. Each compares and commits on top of the version it has
seen; the catalog, or the log, lets one of them through, and the others compare again. The number of the last manifest that
a table follows is kept in the table for each stream, so that nobody who has read older manifests takes it back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import asdict
from functools import partial

from streamd.disk import Disk
from streamd.spark.archive.errors import TableError
from streamd.spark.archive.layout import Layout
from streamd.spark.archive.manifest_log import ManifestLog, archived_streams
from streamd.spark.archive.open_table import ArchiveTable, TableConfig
from streamd.spark.archive.store import disk_for, files_below, replace_at

__all__ = ["FORMATS", "OpenTables", "check_libraries", "drop_table", "keep", "publish"]

FORMATS = ("iceberg", "delta")
ATTEMPTS = 20
"""How often a table is compared again because somebody else has changed it meanwhile."""
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
ARROW = "↳"


class OpenTables:
    """The tables of an archive. What is kept is looked up at each use, since `publish` may come at any time."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._made: dict[str, tuple[TableConfig, ArchiveTable]] = {}

    def bring_up(self, log: ManifestLog) -> None:
        """Bring all tables up to the manifests of a stream. Raises TableError."""
        for config, table in self._tables():
            with_reason(config, partial(bring_up, table, log))

    def forget(self, log: ManifestLog, moment_ms: int) -> None:
        """Bring all tables up, and expire what names files of the stream replaced up to this moment. Raises TableError."""
        for config, table in self._tables():
            with_reason(config, partial(forget, table, log, moment_ms))

    def _tables(self) -> Iterable[tuple[TableConfig, ArchiveTable]]:
        for config in kept(self._layout):
            made = self._made.get(config.format)
            if made is None or made[0] != config:
                made = self._made[config.format] = (config, make_table(self._layout, config))
            yield made


def bring_up(table: ArchiveTable, log: ManifestLog) -> None:
    for _ in range(ATTEMPTS):
        if table.bring_up(log):
            return
    raise TableError("others keep changing it")


def forget(table: ArchiveTable, log: ManifestLog, moment_ms: int) -> None:
    bring_up(table, log)
    table.forget(log, moment_ms)


def with_reason(config: TableConfig, action: Callable[[], None]) -> None:
    """Do something with a table. Raises TableError, whatever goes wrong."""
    try:
        action()
    except Exception as error:
        # The libraries raise errors of their own, those of catalogs, and of the clients of catalogs and stores.
        raise TableError(f"the {config.format} table: {in_one_line(error)}") from error


def in_one_line(error: Exception) -> str:
    """The first line of an error's text, with the causes that deltalake puts below it, each after an arrow in colour."""
    text = COLOUR.sub("", str(error)).strip() or type(error).__name__
    first, *others = map(str.strip, text.splitlines())
    return ": ".join([first, *(each.removeprefix(ARROW).strip() for each in others if each.startswith(ARROW))])


def make_table(layout: Layout, config: TableConfig) -> ArchiveTable:
    """Raises TableError when the library is not installed."""
    try:
        if config.format == "iceberg":
            from streamd.spark.archive.iceberg_table import IcebergTable

            return IcebergTable(layout, config)
        from streamd.spark.archive.delta_table import DeltaArchiveTable

        return DeltaArchiveTable(layout)
    except ModuleNotFoundError as error:
        raise TableError(
            f"{error}: the {config.format} table of {layout.root} needs the extra `tables`: ./install '.[tables]'"
        ) from error


# --- Which tables are kept ------------------------------------------------------------------------------------------------


def kept(layout: Layout) -> list[TableConfig]:
    """The tables that an archive keeps. Raises TableError for a description that cannot be read."""
    found = []
    for name in FORMATS:
        path = layout.table(name)
        try:
            text = path.read_bytes()
        except FileNotFoundError:
            continue
        try:
            found.append(TableConfig(**json.loads(text)))
        except (ValueError, TypeError) as error:
            raise TableError(f"{path} does not describe a table: {error}") from error
    return found


def check_libraries(layout: Layout) -> None:
    """Raise TableError when the tables of an archive cannot be kept here."""
    for config in kept(layout):
        make_table(layout, config)


def keep(layout: Layout, config: TableConfig, disk: Disk) -> None:
    """Keep a table from now on; the one that is kept already, if there is one and nothing else is asked for.

    Raises TableError when it is another one, or cannot be made.
    """
    for each in kept(layout):
        if each.format == config.format:
            if config not in (each, TableConfig(config.format)):
                raise TableError(f"{layout.root} keeps another {each.format} table, {each.name}: drop it first")
            return
    with_reason(config, make_table(layout, config).create)
    describe(layout, config, disk)


def describe(layout: Layout, config: TableConfig, disk: Disk) -> None:
    replace_at(layout.table(config.format), json.dumps(asdict(config), indent=1).encode() + b"\n", disk)


def publish(layout: Layout, config: TableConfig, *, disk: Disk | None = None) -> dict[str, int]:
    """Keep a table from now on, and bring it up to what is archived; return how many files it names, by stream.

    Raises TableError, and what reading the archive raises. Then a later run, or the same call, does the rest.
    """
    layout.check()
    keep(layout, config, disk or disk_for(layout.root))
    tables, found = OpenTables(layout), {}
    for stream in archived_streams(layout):
        log = ManifestLog.read(layout, stream)
        tables.bring_up(log)
        found[stream] = len(log.files)
    return found


def drop_table(layout: Layout, name: str, *, disk: Disk | None = None) -> None:
    """Keep the table of a format no longer, and remove it. Raises TableError when there is none, or it is out of reach.

    The description goes first: a run must not make the table again, which nobody would keep then.
    """
    layout.check()
    config = next((each for each in kept(layout) if each.format == name), None)
    if config is None and name == "delta" and any(files_below(layout.delta_log)):
        config = TableConfig(name)  # left by a drop that ended midway
    if config is None:
        raise TableError(f"{layout.root} keeps no {name} table")
    table, disk = make_table(layout, config), disk or disk_for(layout.root)
    disk.remove(layout.table(name))
    try:
        with_reason(config, table.drop)
    except TableError:
        describe(layout, config, disk)  # to be dropped another time
        raise
