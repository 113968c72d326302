"""Open tables: what is archived as Iceberg or Delta tables, for programs that know nothing of streams.

    _tables/<label>.json     a table that is kept; `archive publish` and `archive run --publish` write it
    _tables/<label>/         its metadata, and the files of a typed table; the label of a plain one is its format
    _tables/iceberg/         the catalog of Iceberg tables, too, unless another one is named
    data/_delta_log/         the log of the plain Delta table

An archive keeps at most one plain table of each format, and any number of typed ones under names of their own. The manifests
remain the truth. After each commit a table is compared with the manifests of the stream, and one commit of its own adds and
removes what differs. A plain table names the files of `data/` in place; a typed one names files that are derived from them, one
of each (table_files.py). All have, as partitions, `stream` and `date`, which the files do not repeat.

The order makes every crash harmless: first the manifest, then the table, and only then are files that were replaced removed
(`StreamWork.remove_replaced`). So a table is behind the manifests for a moment, never ahead of them, and no table names a file
that is gone; the next run begins by bringing the tables up. When a table cannot be brought up, the run goes on and says so,
and replaced files stay.

Several archivers, and `publish`, may bring one table up at a time. Each compares and commits on top of the version it has
seen; the catalog, or the log, lets one of them through, and the others compare again. The number of the last manifest that
a table follows is kept in the table for each stream, so that nobody who has read older manifests takes it back.

A table exists as long as its description, no matter who creates what is missing of it. When a catalog does not answer that it
has made one, the description goes; if the table was made, it says of which archive it is, and the next publish takes it. While it is being dropped, the
description says so, and the next drop or publish removes what is left of it.

In a folder, one process at a time makes or drops tables (`alone`). Whoever brings one up does not hold that lock, so a table may
be dropped meanwhile; who has changed it looks for its description afterwards, and removes what is left if there is none
(`is_lost`). Object stores have no locks: there, of two that make and drop a table at once, another drop may have to follow.
"""

from __future__ import annotations

import fcntl
import json
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from typing import TypeVar

import click

from streamd.disk import Disk
from streamd.spark.archive.errors import TableError
from streamd.spark.archive.layout import Layout
from streamd.spark.archive.manifest_log import ManifestLog, archived_streams
from streamd.spark.archive.open_table import PLAIN_NAME, ArchiveTable, TableConfig
from streamd.spark.archive.store import ObjectPath, Place, disk_for, files_in, replace_at
from streamd.spark.archive.table_files import Progress, TableFiles, files_of

__all__ = ["FORMATS", "Noted", "OpenTables", "check_libraries", "drop_table", "keep", "publish"]

FORMATS = ("iceberg", "delta")
ATTEMPTS = 20
"""How often a table is compared again because somebody else has changed it meanwhile."""
ARROW = "↳"
LOCK_WAIT_S = 150.0
"""How long to wait for another process that makes or drops a table: longer than a catalog may take to answer."""

T = TypeVar("T")
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
        faults = []
        for config, table, files in self._tables(stream):
            try:
                try:
                    with_reason(config, partial(action, table, files))
                except TableError:
                    if not is_lost(self._layout, config, self._disk):
                        raise
                else:
                    is_lost(self._layout, config, self._disk)
            except TableError as error:
                faults.append(error)
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


def with_reason(config: TableConfig, action: Callable[[], T]) -> T:
    """Do something with a table. Raises TableError, whatever goes wrong."""
    try:
        return action()
    except Exception as error:
        # The libraries raise errors of their own, those of catalogs, and of the clients of catalogs and stores.
        raise TableError(f"the {config}: {in_one_line(error)}") from error


def in_one_line(error: Exception) -> str:
    """The first line of an error's text, with the causes that deltalake puts below it, each after an arrow in colour."""
    text = click.unstyle(str(error)).strip() or type(error).__name__
    first, *others = map(str.strip, text.splitlines())
    if getattr(error, "title", "").endswith("Response"):  # pydantic's, by which pyiceberg reads answers
        first = f"its uri is not that of an Iceberg REST catalog: {first}"
    return ": ".join([first, *(each.removeprefix(ARROW).strip() for each in others if each.startswith(ARROW))])


def make_table(layout: Layout, config: TableConfig, files: TableFiles) -> ArchiveTable:
    """Raises TableError when the library is not installed."""
    try:
        if config.format == "iceberg":
            from streamd.spark.archive.iceberg_table import IcebergTable

            return IcebergTable(layout, config, files)
        from streamd.spark.archive.delta_table import DeltaArchiveTable

        return DeltaArchiveTable(layout, config, files)
    except ModuleNotFoundError as error:
        raise TableError(
            f"{error}: the {config.format} table of {layout.root} needs the extra `tables`: ./install '.[tables]'"
        ) from error


# --- Which tables are kept ------------------------------------------------------------------------------------------------


def described(layout: Layout) -> list[TableConfig]:
    """The tables of an archive, also those that are being dropped, in the order of their labels.

    Raises TableError for a description that cannot be read.
    """
    found = []
    for path in sorted((each for each in files_in(layout.tables) if each.name.endswith(".json")), key=str):
        try:
            found.append(TableConfig.from_json(json.loads(path.read_bytes())))
        except FileNotFoundError:
            continue  # dropped meanwhile
        except (ValueError, TypeError, AttributeError) as error:
            raise TableError(f"{path} does not describe a table: {error}") from error
    return found


def kept(layout: Layout) -> list[TableConfig]:
    """The tables that an archive keeps. Raises TableError for a description that cannot be read."""
    return [each for each in described(layout) if not each.is_dropped]


def check_libraries(layout: Layout) -> None:
    """Raise TableError when the tables of an archive cannot be kept here."""
    for config in kept(layout):
        make_table(layout, config, files_of(layout, config, disk_for(layout.root)))


@contextmanager
def alone(layout: Layout) -> Iterator[None]:
    """Let nobody else make or drop tables of an archive in a folder. Raises TableError when somebody does for too long."""
    if isinstance(layout.root, ObjectPath):
        yield
        return
    until = time.monotonic() + LOCK_WAIT_S
    with open(layout.marker, "rb+") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise TableError(
                        f"another process is publishing or dropping a table of {layout.root}: try again"
                    ) from None
                time.sleep(0.05)
            except OSError:
                break  # a file system without locks
            else:
                break
        yield


def is_kept(layout: Layout, config: TableConfig) -> bool:
    """Whether this very table is kept."""
    return any(each.label == config.label and each.id == config.id for each in kept(layout))


def is_lost(layout: Layout, config: TableConfig, disk: Disk) -> bool:
    """Whether a table that this process has changed is kept no longer; then what is left of it is removed. Raises TableError."""
    if is_kept(layout, config):
        return False
    with alone(layout):
        # Another one of its label lies in its place: whatever is left is removed with what nobody names (table_files.py).
        if all(each.id == config.id for each in described(layout) if each.label == config.label):
            finish_drop(layout, replace(config, is_dropped=True), disk)
    return True


def keep(layout: Layout, config: TableConfig, disk: Disk) -> TableConfig:
    """Keep a table from now on, and return it: the one that is kept already, if there is one and nothing else is asked for.

    Raises TableError when it is another one, or cannot be made.
    """
    if (found := find_kept(layout, config)) is not None:
        return found
    with alone(layout):
        return keep_new(layout, config, disk)


def keep_new(layout: Layout, config: TableConfig, disk: Disk) -> TableConfig:
    for left in described(layout):
        if left.is_dropped and left.label == config.label:
            finish_drop(layout, left, disk)
    if (found := find_kept(layout, config)) is not None:
        return found
    unknown = with_reason(config, make_table(layout, config, files_of(layout, config, disk)).unknown_id)
    config = replace(config, id=unknown or uuid.uuid4().hex)
    table = make_table(layout, config, files_of(layout, config, disk))
    try:
        describe_new(layout, config, disk)
    except FileExistsError:
        return keep_new(layout, config, disk)  # somebody else was faster
    try:
        with_reason(config, table.create)
    except TableError:
        disk.remove(layout.table(config.label))
        raise
    return config


def find_kept(layout: Layout, config: TableConfig) -> TableConfig | None:
    """The table that is kept and asked for; None when none like it is kept. Raises TableError when it is another one."""
    found = [each for each in kept(layout) if each.format == config.format]
    if config.schema is not None and config.name == PLAIN_NAME:
        raise TableError(f"{PLAIN_NAME} is the name of the table without a schema: give another --name")
    plain = next((each for each in found if each.schema is None), None)
    named = next((each for each in found if each.name == config.name), None)
    if config == TableConfig(config.format) or config == plain:
        return plain
    if named is not None:
        if config in (named, TableConfig(config.format, config.name)):
            return named
        if config.schema == named.schema:
            raise TableError(f"{layout.root} keeps another {config.format} table, {named.name}: drop it first")
        has = "without a schema" if named.schema is None else f"with another schema: {named.schema}"
        raise TableError(
            f"{layout.root} keeps the {config.format} table {named.name} {has}; drop it first, or give another --name"
        )
    if config.schema is None:
        if plain is not None and config.format == "iceberg":
            raise TableError(f"{layout.root} keeps another iceberg table, {plain.name}: drop it first")
        if config.format == "delta":
            raise TableError(f"{layout.root} keeps no delta table {config.name}: a new one of a name needs --schema")
    return None


def describe(layout: Layout, config: TableConfig, disk: Disk) -> None:
    replace_at(layout.table(config.label), described_as(config), disk)


def describe_new(layout: Layout, config: TableConfig, disk: Disk) -> None:
    """Raises FileExistsError when there is a description of this label."""
    path = layout.table(config.label)
    disk.make_directories(path.parent)
    temporary = path.with_suffix(f".{config.id}.new")
    try:
        disk.write_new(temporary, described_as(config))
        disk.publish(temporary, path)
    finally:
        disk.remove(temporary)
    disk.sync_directory(path.parent)


def described_as(config: TableConfig) -> bytes:
    return json.dumps(asdict(config), indent=1).encode() + b"\n"


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
        raise TableError(f"the {config}: somebody has dropped it meanwhile")
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


# --- Dropping -------------------------------------------------------------------------------------------------------------


def drop_table(layout: Layout, format: str, name: str | None = None, *, disk: Disk | None = None) -> None:
    """Keep a table no longer, and remove it, or what a drop that ended midway has left of it.

    name  of the table; None: the plain one of the format
    Raises TableError when there is none, or it is out of reach: then it is not kept, and to be dropped again.
    """
    layout.check()
    disk = disk or disk_for(layout.root)
    with alone(layout):
        finish_drop(layout, replace(find_described(layout, format, name), is_dropped=True), disk)


def find_described(layout: Layout, format: str, name: str | None) -> TableConfig:
    found = [each for each in described(layout) if each.format == format]
    chosen = [each for each in found if (each.schema is None if name is None else each.name == name)]
    if not chosen:
        names = ", ".join(each.name for each in found)
        what = f"no {format} table {name}" if name is not None else f"no {format} table"
        raise TableError(f"{layout.root} keeps {what}" + (f", but {names}: say which with --name" if names else ""))
    return chosen[0]


def finish_drop(layout: Layout, config: TableConfig, disk: Disk) -> None:
    """Remove a table step by step; its description goes last.

    Until then it says that the table is dropped: no run makes it again, which nobody would keep then.
    """
    table = make_table(layout, config, files_of(layout, config, disk))
    describe(layout, config, disk)
    with_reason(config, table.drop)
    if config.schema is not None:
        folder = layout.table_folder(config.label)
        with_reason(config, partial(disk.remove_tree, folder))
    disk.remove(layout.table(config.label))
