"""`streamd archive schema infer`."""

from __future__ import annotations

import json

import click

from streamd.cli.one_line import errors_in_one_line, say
from streamd.printable import in_one_line

__all__ = ["schema"]


@click.group()
def schema() -> None:
    """Propose schemas for typed tables."""


@schema.command()
@click.argument("path", type=click.Path())
@click.argument("streams", nargs=-1)
@click.option(
    "--rows",
    type=click.IntRange(1),
    default=10_000,
    show_default=True,
    help="Sample about this number of entries of each stream.",
)
@click.option(
    "--metadata-prefix",
    "prefix",
    metavar="TEXT",
    default="",
    help="As for publish: then fields may be called id, ms, time and so on.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON: name, type, and number of values in the sample.")
def infer(path: str, streams: tuple[str, ...], rows: int, prefix: str, as_json: bool) -> None:
    """Propose a schema for the fields of STREAMS (default: all) in the archive at PATH, from a sample: the value of `publish --schema`.

    The type of a field is the first of these that fits all of its values in the sample: bigint, double, boolean, date, timestamp, string, binary.
    """
    with errors_in_one_line():
        from streamd.archive.infer import infer_columns
        from streamd.archive.layout import Layout
        from streamd.archive.manifest_log import archived_streams
        from streamd.archive.published_columns import canonical
        from streamd.client.client_errors import OptionError

        layout = Layout(path)
        layout.check()
        found = infer_columns(layout, streams or archived_streams(layout), rows)
        fit, taken = [], set()
        for each in found:
            try:
                canonical(str(each.column), prefix)
                if each.name.lower() in taken:
                    raise OptionError(
                        "schema", f"column {each.name} comes twice: tables do not distinguish upper and lower case"
                    )
            except OptionError as error:
                say(f"left out: {in_one_line(str(error).removeprefix('option schema: '))}", err=True)
                continue
            taken.add(each.name.lower())
            fit.append(each)
    if as_json:
        say(json.dumps([{"name": each.name, "type": each.type, "values": each.values} for each in fit]))
    else:
        say(", ".join(str(each.column) for each in fit))
