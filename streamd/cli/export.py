"""`streamd export`: streams to files, with what `streamd load` needs to make them again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streamd.cli.entry_formats import check_output, is_file, refuse_file, write
from streamd.cli.one_line import errors_in_one_line, say
from streamd.cli.progress_bar import bar
from streamd.cli.server_options import collect_options, with_server_options
from streamd.printable import in_one_line
from streamd.transfer.files import FORMATS, format_of

if TYPE_CHECKING:
    import pyarrow as pa

    from streamd.client.connection import Connection
    from streamd.client.stream_info import StreamInfo
    from streamd.client.url_options import ConnectionOptions

__all__ = ["command"]


@click.command()
@click.argument("streams", nargs=-1, metavar="STREAM...")
@click.option("--pattern", metavar="GLOB", help="Export the streams whose keys match.")
@click.option(
    "--to", required=True, type=click.Path(), metavar="FOLDER|FILE|-",
    help="A folder for one file per stream; for a single stream also a file with the suffix of its format; - for a pipe.",
)  # fmt: skip
@click.option(
    "--format", "form", type=click.Choice([*FORMATS]), help="[default: by the suffix of FILE, otherwise parquet]"
)
@click.option("--replace", "replaces", is_flag=True, help="Replace existing files.  [default: an error]")
@with_server_options
def command(
    streams: tuple[str, ...], pattern: str | None, to: str, form: str | None, replaces: bool, **server: Any
) -> None:
    """Write all entries of each STREAM to a file, and its groups, pending entries and counters to a second one.

    `streamd load` restores the stream from both. Files appear when they are complete. Entries that are added during the export are
    omitted. A pipe receives only the entries, stream by stream.
    """
    if bool(streams) == bool(pattern):
        raise click.UsageError("give either STREAM... or --pattern")
    options = collect_options(server)
    with errors_in_one_line():
        import pyarrow  # noqa: F401  a missing extra is reported before anything else

        from streamd.client.connection import connect
        from streamd.client.url_options import ConnectionOptions

        place = ConnectionOptions.parse(options)
        with connect(place) as connection:
            names = list(streams) if pattern is None else find_streams(connection, pattern)
            if not names:
                raise click.ClickException(f"no stream matches {pattern}")
            if to == "-":
                to_pipe(place, names, form or "json")
                return
            known = format_of(to)
            if known is None and form is None and Path(to).suffix and not to.endswith(os.sep) and not Path(to).is_dir():
                suffixes = ", ".join(suffix for suffix, *_ in FORMATS.values())
                raise click.UsageError(
                    f"{to}: a file ends in {suffixes}; the name of a folder that is made ends in {os.sep}"
                )
            is_folder = known is None or Path(to).is_dir()
            if is_folder:
                paths = in_folder(names, form or "parquet", to)
            elif len(names) > 1:
                raise click.UsageError("several streams need --to FOLDER: each gets a file of its own")
            else:
                paths, form = [to], form or known
            if not replaces:
                refuse_files(paths)
            for name in names:
                state_of(place, name)
            if is_folder:
                os.makedirs(to, exist_ok=True)
            for name, path in zip(names, paths, strict=True):
                export(place, name, form or "parquet", path)


def find_streams(connection: Connection, pattern: str) -> list[str]:
    from streamd.transfer.partitions import find_streams
    from streamd.transfer.read_options import SourceOptions

    return find_streams(connection, SourceOptions(stream_pattern=pattern))


def state_of(place: ConnectionOptions, name: str) -> StreamInfo:
    """What the server, or the node of a cluster that has it, says of a stream. Raises MissingStreamError."""
    from streamd.archive.live_stream import need_state
    from streamd.client.connection import run

    return run(place.at(name), lambda connection: need_state(connection, name))


def to_pipe(place: ConnectionOptions, names: list[str], form: str) -> None:
    try:
        check_output(form, None)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    lasts = {name: state_of(place, name).last_generated for name in names}
    batches = (batch for name in names for batch in read(place, name, lasts[name]))
    with suppress(BrokenPipeError):
        write(batches, form, None)


def in_folder(names: list[str], form: str, to: str) -> list[str]:
    """The files of streams in a folder."""
    from streamd.archive.layout import folder_name

    return [os.path.join(to, folder_name(name) + FORMATS[form][0]) for name in names]


def refuse_files(paths: list[str]) -> None:
    """Raise click.ClickException for a file that is there, or for one beside it that belongs to an export."""
    from streamd.transfer.load_files import STATE_SUFFIX

    for path in paths:
        for each in (path, path + STATE_SUFFIX):
            refuse_file(each, "exported")


def export(place: ConnectionOptions, name: str, form: str, path: str) -> None:
    """One stream to a file. Raises StreamdError, OSError."""
    from streamd.client.connection import run
    from streamd.client.points import parse_entry_id
    from streamd.disk import Disk, replace_file
    from streamd.transfer.load_files import STATE_SUFFIX
    from streamd.transfer.stream_copy import read_state

    state = run(place.at(name), lambda connection: read_state(connection, name))
    gone, rows = state.pending_ids, 0

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal rows
        for batch in read(place, name, parse_entry_id(state.last_generated_id)):
            if gone:
                gone.difference_update(batch.column(0).to_pylist())
            yield batch
            rows += batch.num_rows
            progress(rows)
        # The file appears now, and must never be seen beside the state of an earlier export.
        Disk().remove(path + STATE_SUFFIX)

    with bar(name, state.rows, unit="entries") as progress:
        write(counted(), form, path)
    if is_file(path):
        replace_file(path + STATE_SUFFIX, state.exported(rows, gone).to_bytes(), mode=0o666)
    say(f"{in_one_line(name)}: {rows:,} entries, {len(state.groups)} groups to {path}", err=True)
    if rows != state.rows:
        missing = state.rows - rows
        say(f"  {missing:,} entries were trimmed or deleted while the stream was read; they are missing", err=True)


def read(place: ConnectionOptions, name: str, last: int) -> Iterator[pa.RecordBatch]:
    """The entries up to an ID."""
    from streamd.archive.live_stream import read_entries
    from streamd.arrow.entry_table import default_table

    return read_entries(place, name, 0, last, default_table())
