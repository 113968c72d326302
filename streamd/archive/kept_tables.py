"""Which open tables an archive keeps: making and dropping them. publishing.py brings them up.

A table exists as long as its description, no matter who creates what is missing of it. When a catalog does not confirm that it
has made one, the description is removed; if the table was made, its properties name the archive, and the next publish takes it
over. While a table is being dropped, the description says so, and the next drop or publish removes what is left of it.

In a folder, one process at a time makes or drops tables (`alone`). Bringing one up does not take that lock, so the table may be
dropped meanwhile: after each change its description is looked up, and without one, what is left of the table is removed
(`is_lost`). Object stores have no locks: when a table is made and dropped there at the same time, a second drop may be needed.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from typing import BinaryIO, TypeVar

import click

from streamd.archive.archive_errors import TableError
from streamd.archive.layout import Layout
from streamd.archive.object_disk import disk_for, replace_at
from streamd.archive.open_format import PLAIN_NAME, ArchiveTable, TableConfig, rejects_of
from streamd.archive.published_columns import grown
from streamd.archive.published_files import TableFiles, files_of
from streamd.archive.store import ObjectPath, Place, files_in
from streamd.disk import Disk

__all__ = [
    "check_libraries",
    "described",
    "drop_table",
    "is_kept",
    "is_lost",
    "keep",
    "kept",
    "make_table",
    "with_reason",
]

ARROW = "↳"
LOCK_WAIT_S = 150.0
"""How long to wait for another process that makes or drops a table: longer than a catalog may take to answer."""

T = TypeVar("T")


def described(layout: Layout) -> list[TableConfig]:
    """The tables of an archive, also those that are being dropped, in the order of their labels.

    Raises TableError for a description that cannot be read.
    """
    paths = sorted((each for each in files_in(layout.tables) if each.name.endswith(".json")), key=str)
    return [found for path in paths if (found := find_in(path)) is not None]


def find_in(path: Place) -> TableConfig | None:
    """The table that a file describes; None when there is no such file. Raises TableError when it cannot be read."""
    try:
        return TableConfig.from_json(json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, AttributeError) as error:
        raise TableError(f"{path} does not describe a table: {error}") from error


def kept(layout: Layout) -> list[TableConfig]:
    """The tables that an archive keeps. Raises TableError for a description that cannot be read."""
    return [each for each in described(layout) if not each.is_dropped]


def check_libraries(layout: Layout) -> None:
    """Raise TableError when the tables of an archive cannot be kept here."""
    for config in kept(layout):
        make_table(layout, config, files_of(layout, config, disk_for(layout.root)))


@contextmanager
def alone(layout: Layout) -> Iterator[None]:
    """Make or drop tables of an archive in a folder while no other process does. Raises TableError when one does for too long."""
    if isinstance(layout.root, ObjectPath):
        yield
        return
    until = time.monotonic() + LOCK_WAIT_S
    with open(layout.marker, "rb+") as file:
        while not try_lock(file):
            if time.monotonic() >= until:
                raise TableError(f"another process is publishing or dropping a table of {layout.root}: try again")
            time.sleep(0.05)
        yield


def try_lock(file: BinaryIO) -> bool:
    """Lock a file until it is closed. False: somebody else has the lock. A system without such locks keeps nobody out."""
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ModuleNotFoundError, OSError):
        return True  # Windows, or a file system without locks
    return True


def is_kept(layout: Layout, config: TableConfig) -> bool:
    """Whether this very table is kept."""
    found = find_in(layout.table(config.label))
    return found is not None and found.id == config.id and not found.is_dropped


def is_lost(layout: Layout, config: TableConfig, disk: Disk) -> bool:
    """Whether a table that this process has changed is no longer kept; what is left of it is removed then.

    Raises TableError, and OSError when the archive cannot be read or changed.
    """
    if is_kept(layout, config):
        return False
    with alone(layout):
        found = find_in(layout.table(config.label))
        # If another one has its label, what is left is removed with the files that no table names (published_files.py).
        if found is None or found.id == config.id:
            finish_drop(layout, replace(config, is_dropped=True), disk)
    return True


def keep(layout: Layout, config: TableConfig, disk: Disk) -> TableConfig:
    """Keep a table from now on, and return it: the one that is kept already, if there is one and nothing else is asked for.

    If its schema has grown, its description is replaced; the table follows when it is next updated.
    Raises TableError when it is another one, or cannot be made; OptionError when its schema would narrow.
    """
    if as_grown(layout, config) is not None:
        with alone(layout):
            if (larger := as_grown(layout, config)) is not None:
                describe(layout, larger, disk)
                return larger
    if (found := find_kept(layout, config)) is not None:
        return found
    with alone(layout):
        return keep_new(layout, config, disk)


def as_grown(layout: Layout, config: TableConfig) -> TableConfig | None:
    """The table that is kept, with the larger schema that is asked for; None when it is not this that is asked for."""
    for each in kept(layout):
        is_named = config.schema is not None and each.schema is not None and replace(config, schema=each.schema) == each
        if is_named and each.schema != config.schema:
            return replace(each, schema=grown(each.schema or "", config.schema or ""))
    return None


def keep_new(layout: Layout, config: TableConfig, disk: Disk) -> TableConfig:
    left = find_in(layout.table(config.label))
    if left is not None and left.is_dropped:
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


# --- Dropping -------------------------------------------------------------------------------------------------------------


def drop_table(layout: Layout, format: str, name: str | None = None, *, disk: Disk | None = None) -> None:
    """Keep a table no longer, and remove it with its rejects, or what a drop that ended midway has left of it.

    name  of the table; None: the plain one of the format
    Raises TableError when there is none, or it is out of reach: then it is not kept, and to be dropped again.
    """
    layout.check()
    disk = disk or disk_for(layout.root)
    with alone(layout):
        chosen = find_described(layout, format, name)
        for each in described(layout):
            if (each.format, each.name, each.rows) == (format, rejects_of(chosen.name), "rejects"):
                finish_drop(layout, replace(each, is_dropped=True), disk)
        finish_drop(layout, replace(chosen, is_dropped=True), disk)


def find_described(layout: Layout, format: str, name: str | None) -> TableConfig:
    found = [each for each in described(layout) if each.format == format]
    chosen = [each for each in found if (each.schema is None if name is None else each.name == name)]
    if not chosen:
        names = ", ".join(each.name for each in found)
        what = f"no {format} table {name}" if name is not None else f"no {format} table"
        raise TableError(f"{layout.root} keeps {what}" + (f", but {names}: choose with --name" if names else ""))
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


# --- One table ------------------------------------------------------------------------------------------------------------


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
            from streamd.archive.iceberg import IcebergTable

            return IcebergTable(layout, config, files)
        from streamd.archive.delta import DeltaArchiveTable

        return DeltaArchiveTable(layout, config, files)
    except ModuleNotFoundError as error:
        raise TableError(
            f"{error}: the {config.format} table of {layout.root} needs the extra `tables`: ./install '.[tables]'"
        ) from error
