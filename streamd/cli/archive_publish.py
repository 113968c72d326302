"""`streamd archive publish`: an archive as Iceberg and Delta tables."""

from __future__ import annotations

import json
import re

import click

from streamd.cli.one_line import errors_in_one_line, say
from streamd.cli.progress_bar import bar
from streamd.printable import in_one_line

__all__ = ["publish"]


@click.command()
@click.argument("path", type=click.Path())
@click.option("--format", "form", type=click.Choice(["iceberg", "delta"]), required=True, help="Format of the table.")
@click.option(
    "--schema", metavar="DDL",
    help="Typed columns, such as 'user string, amount double', for a table with its own files.  [default: the archive's files]",
)  # fmt: skip
@click.option(
    "--stream",
    "streams",
    multiple=True,
    metavar="KEY",
    help="With --schema: include this stream; may be repeated.  [default: all]",
)
@click.option("--pattern", metavar="GLOB", help="With --schema: include the streams whose keys match.")
@click.option(
    "--metadata-prefix", "prefix", metavar="TEXT",
    help="With --schema: prefix of id, ms, seq, time, stream and date, if fields have these names.",
)  # fmt: skip
@click.option(
    "--rejects", is_flag=True,
    help="With --schema: move entries that do not fit to the table NAME_rejects, with the reason.  [default: values that do not fit are null]",
)  # fmt: skip
@click.option(
    "--name", metavar="NAMESPACE.TABLE",
    help="Name of the table.  [default: streamd.archive; with --schema: streamd.typed]",
)  # fmt: skip
@click.option(
    "--catalog", metavar="NAME",
    help="Iceberg: a catalog in pyiceberg's configuration.  [default: one in the archive, in SQLite]",
)  # fmt: skip
@click.option(
    "--property", "properties", multiple=True, metavar="NAME=VALUE",
    help="Iceberg: a property of the catalog. It is stored in the archive, so do not use it for secrets. May be repeated.",
)  # fmt: skip
@click.option("--drop", is_flag=True, help="Remove the table and stop maintaining it; the archive remains.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, and no progress.")
def publish(
    path: str,
    form: str,
    schema: str | None,
    streams: tuple[str, ...],
    pattern: str | None,
    prefix: str | None,
    rejects: bool,
    name: str | None,
    catalog: str | None,
    properties: tuple[str, ...],
    drop: bool,
    as_json: bool,
) -> None:
    """Keep the archive at PATH as an Iceberg or Delta table, too. Each later run and deletion brings it up to date."""
    if form == "delta" and (catalog or properties):
        raise click.UsageError("--catalog and --property require Iceberg: a Delta table has no catalog")
    if schema is None and (streams or pattern or prefix or rejects):
        raise click.UsageError(
            "--stream, --pattern, --metadata-prefix and --rejects need --schema: without it, a table has all entries"
        )
    if name is not None and not re.fullmatch(r"\w+(\.\w+)+", name):
        raise click.UsageError("--name must have the form namespace.table")
    if prefix is not None and not re.fullmatch(r"\w*", prefix):
        raise click.UsageError("--metadata-prefix must consist of letters, digits and _")
    if malformed := [each for each in properties if "=" not in each]:
        raise click.UsageError(f"--property {malformed[0]}: it must have the form name=value")
    with errors_in_one_line():
        from streamd.archive import publishing
        from streamd.archive.kept_tables import drop_table
        from streamd.archive.layout import Layout
        from streamd.archive.open_format import PLAIN_NAME, TYPED_NAME, TableConfig
        from streamd.archive.published_columns import canonical

        layout = Layout(path)
        if drop:
            drop_table(layout, form, name)
            return
        config = TableConfig(
            form,
            name=name or (PLAIN_NAME if schema is None else TYPED_NAME),
            catalog=catalog,
            properties=dict(each.split("=", 1) for each in properties),
            schema=None if schema is None else canonical(schema, prefix or ""),
            prefix=prefix or "",
            streams=streams,
            pattern=pattern,
        )
        for each in config.with_rejects() if rejects else (config,):
            with bar(each.name, None, unit="entries", is_wanted=not as_json) as progress:
                found = publishing.publish(layout, each, progress=progress)
    for stream in sorted(set(streams).difference(found)):
        say(f"{in_one_line(stream)} is not archived yet", err=True)
    if as_json:
        say(json.dumps({"format": form, "files": found}))
    else:
        say(f"{form}: {sum(found.values()):,} files of {len(found):,} streams")
