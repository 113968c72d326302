"""`streamd load`: the rows of files to streams. The work is done in `streamd/transfer/load_files.py`."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from streamd.cli.one_line import errors_in_one_line, say
from streamd.cli.progress_bar import bar
from streamd.cli.server_options import collect_options, with_server_options
from streamd.printable import in_one_line
from streamd.transfer.files import FORMATS

__all__ = ["command"]


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(allow_dash=True), metavar="FILE|FOLDER|-...")
@click.option(
    "--into", metavar="KEY", help="The stream to append to.  [default: as in the column `stream`, or in the export]"
)
@click.option("--format", "form", type=click.Choice([*FORMATS]), help="[default: by the suffixes of the files]")
@click.option(
    "--id-column", metavar="NAME",
    help="Column with the entries' IDs.  [default: id, if its first value looks like 1526919030474-55]",
)  # fmt: skip
@click.option("--new-ids", is_flag=True, help="Ignore the IDs of the files: the server creates new ones.")
@click.option(
    "--stream-column", default="stream", show_default=True, metavar="NAME", help="Column with the streams' keys."
)
@click.option(
    "--fields-column", default="fields", show_default=True, metavar="NAME",
    help="Column that holds whole entries: a list of pairs, a map, or JSON. Without it each column is a field.",
)  # fmt: skip
@click.option(
    "--nulls", type=click.Choice(["omit", "empty", "fail"]), default="omit", show_default=True,
    help="Treat a null as no field, an empty value, or an error. An empty cell of CSV is null, unless it is quoted.",
)  # fmt: skip
@click.option("--no-groups", is_flag=True, help="Append the entries of an export without its groups and counters.")
@click.option(
    "--replace",
    "replaces",
    is_flag=True,
    help="Replace an existing key with the stream of an export once it is complete.",
)
@click.option("--name", metavar="NAME", help="Name by which the load is continued.  [default: computed from the file]")
@click.option("--again", is_flag=True, help="Load files again that were loaded before.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, a line for each file, and no progress.")
@with_server_options
def command(
    paths: tuple[str, ...],
    into: str | None,
    form: str | None,
    id_column: str | None,
    new_ids: bool,
    stream_column: str,
    fields_column: str,
    nulls: str,
    no_groups: bool,
    replaces: bool,
    name: str | None,
    again: bool,
    as_json: bool,
    **server: Any,
) -> None:
    """Append the rows of Parquet, Arrow, CSV and JSON Lines files to streams, each row once.

    Repeating the command continues a load that was interrupted, even by SIGKILL, without missing or duplicate entries. The groups of
    streams that `streamd export` has written are restored, too. Exit status: 0 success, 1 failure.
    """
    if new_ids and id_column is not None:
        raise click.UsageError("--new-ids and --id-column exclude each other")
    if replaces and (no_groups or new_ids):
        raise click.UsageError("--replace needs the groups and IDs of the export: not with --no-groups or --new-ids")
    options = collect_options(server)
    with errors_in_one_line():
        import pyarrow  # noqa: F401  a missing extra is reported before anything else

        from streamd.client.url_options import ConnectionOptions
        from streamd.transfer.files import Roles
        from streamd.transfer.load_files import LoadSettings, find_files, load

        files = find_files(paths, form)
        settings = LoadSettings(
            into=into,
            roles=Roles(id_column or "id", stream_column, fields_column, id_column is not None, not new_ids),
            nulls=nulls,
            with_state=not (no_groups or new_ids),
            replaces=replaces,
            name=name,
            again=again,
        )
        sizes = [file.size for file in files]
        total = None if None in sizes else sum(size or 0 for size in sizes)
        with bar(into or "load", total, is_wanted=not as_json) as progress:
            for report in load(files, ConnectionOptions.parse(options), settings, progress=progress):
                show(report, as_json=as_json)


def show(report: Any, *, as_json: bool) -> None:
    if as_json:
        say(json.dumps(report.to_json()))
        return
    streams = ", ".join(map(in_one_line, report.streams)) or "no stream"
    text = f"{report.path}: {report.rows:,} entries into {streams}"
    if report.before:
        text += (
            f", {report.before:,} of them before; --again loads them once more"
            if report.before == report.rows
            else f", {report.before:,} of them before"
        )
    if report.groups is not None:
        text += f", {report.groups} groups"
    say(f"{text} ({report.seconds:.1f} s)", err=True)
    sys.stderr.flush()
