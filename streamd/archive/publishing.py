"""Open tables: what is archived as Iceberg or Delta tables, for programs that know nothing of streams.

    _tables/<label>.json     a table that is kept; `archive publish` and `archive run --publish` write it (kept_tables.py)
    _tables/<label>/         its metadata, and the files of a typed table; the label of a plain one is its format
    _tables/iceberg/         the catalog of Iceberg tables, too, unless another one is named
    data/_delta_log/         the log of the plain Delta table

An archive keeps at most one plain table of each format, and any number of typed ones under names of their own. The manifests
remain the truth. After each commit a table is compared with the manifests of the stream, and one commit of its own adds and
removes what differs. A plain table names the files of `data/` in place; a typed one names files that are derived from them, one
of each (published_files.py). All have, as partitions, `stream` and `date`, which the files do not repeat.

The order makes every crash harmless: first the manifest, then the table, and only then are files that were replaced removed
(`StreamWork.remove_replaced`). So a table is behind the manifests for a moment, never ahead of them, and no table names a file
that is gone; the next run begins by bringing the tables up. When a table cannot be brought up, the run goes on and says so,
and replaced files stay.

Several archivers, and `publish`, may bring one table up at a time. Each compares and commits on top of the version it has
seen; the catalog, or the log, lets one of them through, and the others compare again. The number of the last manifest that
a table follows is kept in the table for each stream, so that nobody who has read older manifests takes it back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from streamd.archive.archive_errors import TableError
from streamd.archive.kept_tables import described, is_kept, is_lost, keep, kept, make_table, with_reason
from streamd.archive.layout import Layout
from streamd.archive.manifest_log import ManifestLog, archived_streams
from streamd.archive.object_disk import disk_for
from streamd.archive.open_format import ArchiveTable, TableConfig
from streamd.archive.published_files import Progress, TableFiles, files_of
from streamd.archive.store import Place
from streamd.disk import Disk

__all__ = ["Noted", "OpenTables", "publish"]

ATTEMPTS = 20
"""How often a table is compared again because somebody else has changed it meanwhile."""

Noted = Mapping[str, list[Place]]
"""The derived files of a stream that lay there at a moment, by the label of the table."""


class OpenTables:
    """The tables of an archive. What is kept is looked up at each use, since `publish` may come at any time.

    only      the label of the only table that is meant; None: all
    progress  called with a number of rows that have been derived
    """

    def __init__(
        self, layout: Layout, disk: Disk | None = None, *, only: str | None = None, progress: Progress | None = None
    ) -> None:
        self._layout = layout
        self._disk = disk or disk_for(layout.root)
        self._only = only
        self._progress = progress
        self._made: dict[str, tuple[TableConfig, ArchiveTable, TableFiles]] = {}

    def bring_up(self, log: ManifestLog) -> None:
        """Bring all tables up to the manifests of a stream. Raises TableError, when all have been tried."""
        self._each(log.stream, lambda table, files: bring_up(table, log))

    def forget(self, log: ManifestLog, moment_ms: int) -> None:
        """Bring all tables up, expire snapshots that name files replaced up to this moment, and remove what was derived from those.

        Of a table whose drop has not ended, all of its own files of the stream go.
        Raises TableError, when all have been tried.
        """
        for config in described(self._layout):
            if config.is_dropped and config.covers(log.stream):
                files = files_of(self._layout, config, self._disk)
                with_reason(config, partial(files.remove_all, log.stream))
        self._each(log.stream, partial(forget, log=log, moment_ms=moment_ms))

    def note(self, stream: str) -> Noted:
        """The derived files that lie there, for `sweep`. Raises TableError."""
        found: dict[str, list[Place]] = {}

        def note(label: str, files: TableFiles) -> None:
            found[label] = files.lying(stream)

        for config, _, files in self._tables(stream):
            with_reason(config, partial(note, config.label, files))
        return found

    def sweep(self, log: ManifestLog, noted: Noted) -> None:
        """Remove those of the noted files that no table names, nor will name. Raises TableError."""
        for config, _, files in self._tables(log.stream):
            with_reason(config, partial(files.sweep, log, noted.get(config.label, [])))

    def _each(self, stream: str, action: Callable[[ArchiveTable, TableFiles], None]) -> None:
        faults: list[Exception] = []
        for config, table, files in self._tables(stream):
            fault: Exception | None = None
            try:
                with_reason(config, partial(action, table, files))
            except TableError as error:
                fault = error
            try:
                if is_lost(self._layout, config, self._disk):
                    continue  # what went wrong did so because somebody has dropped it
            except (TableError, OSError) as error:
                fault = fault or error
            if fault is not None:
                faults.append(fault)
        if faults:
            raise TableError("; ".join(map(str, faults))) from faults[0]

    def _tables(self, stream: str) -> Iterable[tuple[TableConfig, ArchiveTable, TableFiles]]:
        for config in kept(self._layout):
            if not config.covers(stream) or self._only not in (None, config.label):
                continue
            made = self._made.get(config.label)
            if made is None or (made[0], made[0].id) != (config, config.id):
                files = files_of(self._layout, config, self._disk, self._progress)
                made = self._made[config.label] = (config, make_table(self._layout, config, files), files)
            yield made


def bring_up(table: ArchiveTable, log: ManifestLog) -> None:
    for _ in range(ATTEMPTS):
        if table.bring_up(log):
            return
    raise TableError("others keep changing it")


def forget(table: ArchiveTable, files: TableFiles, *, log: ManifestLog, moment_ms: int) -> None:
    bring_up(table, log)
    table.forget(log, moment_ms)
    files.forget(log, moment_ms)


def publish(
    layout: Layout, config: TableConfig, *, disk: Disk | None = None, progress: Callable[[int, int], None] | None = None
) -> dict[str, int]:
    """Keep a table from now on, and bring it up to what is archived; return how many files it names, by stream.

    progress  called with the rows that the table has so far, and all that it will have
    Raises TableError, and what reading the archive raises. Then a later run, or the same call, does the rest.
    """
    layout.check()
    disk = disk or disk_for(layout.root)
    config = keep(layout, config, disk)
    logs = [ManifestLog.read(layout, stream) for stream in archived_streams(layout) if config.covers(stream)]
    done, total = 0, sum(log.rows for log in logs)

    def derived(rows: int) -> None:
        nonlocal done
        done += rows
        if progress is not None:
            progress(min(done, total), total)

    tables, found = OpenTables(layout, disk, only=config.label, progress=derived), {}
    before = 0
    for log in logs:
        log = up_to_date(tables, log)
        before += log.rows
        derived(before - done)
        found[log.stream] = len(log.files)
    if not is_kept(layout, config):
        raise TableError(f"the {config}: it was dropped at the same time")
    return found


def up_to_date(tables: OpenTables, log: ManifestLog) -> ManifestLog:
    """Bring tables up to manifests, and to those that others write meanwhile; return the last ones."""
    for _ in range(ATTEMPTS):
        fault = None
        try:
            tables.bring_up(log)
        except TableError as error:
            fault = error
        newer = ManifestLog.read(log.layout, log.stream, known=log)
        if newer.sequence == log.sequence:
            if fault is not None:
                raise fault
            break
        log = newer
    return log
