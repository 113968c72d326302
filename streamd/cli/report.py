"""`streamd report`: a page about the entries of one stream, with plots; or the same for programs, as JSON.

Exit status: 0 it was written, 1 it could not be made, 2 the command line is wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from streamd.cli.archive import parse_range
from streamd.cli.one_line import errors_in_one_line, say
from streamd.cli.progress_bar import bar, counted
from streamd.cli.server_options import collect_options, with_server_options
from streamd.client.client_errors import MissingStreamError, ServerError
from streamd.client.connection import Connection, run
from streamd.client.key_names import stream_key
from streamd.client.points import format_entry_id
from streamd.client.url_options import ConnectionOptions
from streamd.disk import replace_file
from streamd.printable import printable
from streamd.report import Report, collect, render_html, render_json
from streamd.report.profile import Profile, profile_of

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ReportRequest", "make_report", "report"]


@dataclass(frozen=True)
class ReportRequest:
    """What to report, and where to write it."""

    stream: str
    options: Mapping[str, str]  # of the data source
    out: str | None = None  # a file, `-` for standard output; the format is that of its suffix unless `format` says
    form: str | None = None  # html, json
    since: str | None = None  # a time or an ID
    until: str | None = None
    limit: int = 1_000_000
    fields: tuple[str, ...] = ()  # numeric fields; none: those that are found
    archive: str | None = None  # a folder


@click.command()
@click.argument("stream")
@click.option("--out", metavar="FILE", help="File to write to, `-` for standard output.  [default: report.html]")
@click.option("--format", "form", type=click.Choice(["html", "json"]), help="[default: by the suffix of the file]")
@click.option("--since", metavar="WHEN", help="Start: an ID, a time (2026-01-31T12:00Z), or -1h.  [default: the start]")
@click.option("--until", metavar="WHEN", help="End: an ID (included) or a time (excluded).  [default: the end]")
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=1_000_000,
    show_default=True,
    help="Read at most this many entries, the newest.",
)
@click.option(
    "--field", "fields", multiple=True, metavar="NAME", help="Draw this numeric field.  [default: those found]"
)
@click.option("--archive", type=click.Path(), help="Include the entries of this archive.")
@with_server_options
def report(stream: str, form: str | None, **given: Any) -> None:
    """Draw a page about the entries of STREAM: their rate over time, the gaps between them, their numeric fields."""
    options = collect_options(given)
    make_report(ReportRequest(stream, options, form=form, **given))


def make_report(request: ReportRequest) -> None:
    """Make the report and write it. Raises click.ClickException when that fails."""
    with errors_in_one_line():
        place = ConnectionOptions.parse(request.options)
        try:
            made = run(place.at(request.stream), lambda connection: _collect(request, connection))
        except ServerError as error:
            if error.is_missing_key:
                raise MissingStreamError(request.stream) from None
            raise
        _write(request, made)


def _collect(request: ReportRequest, connection: Connection) -> Report:
    low, high = parse_range(request.since, request.until)
    fields = request.fields or None
    if request.archive is not None:
        return collect(
            connection, request.stream, low=low, high=high, fields=fields, source="read from the server and the archive",
            profile=lambda names, last: read_archived_profile(request, names, low, last),
        )  # fmt: skip
    length = connection.command("XLEN", stream_key(request.stream))
    with bar(request.stream, min(request.limit, length), unit="entries") as progress:
        return collect(
            connection, request.stream, low=low, high=high, limit=request.limit, fields=fields, progress=progress
        )


def read_archived_profile(request: ReportRequest, fields: Sequence[str], low: int, high: int) -> Profile:
    """The shape of the stream with its archived entries."""
    from streamd.archive.full_history import read_history
    from streamd.arrow.entry_table import default_table
    from streamd.transfer.read_options import SourceOptions

    bounds = {"startingId": format_entry_id(low), "endingId": format_entry_id(high)}
    options = {**request.options, **bounds, "stream": request.stream, "archive": request.archive or ""}
    batches = read_history(SourceOptions.parse(options), default_table("ms", "fields"))
    with bar(request.stream, None, unit="entries") as progress:
        return profile_of(entries_of(counted(batches, progress)), fields, request.limit)


def entries_of(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, list[bytes]]]:
    """Milliseconds and fields of entries; IDs beyond what a bigint can hold are not times."""
    for batch in batches:
        for ms, pairs in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            if ms is not None:
                yield ms, [part for pair in pairs for part in (pair["field"], pair["value"])]


def _write(request: ReportRequest, made: Report) -> None:
    out = request.out or "report.html"
    name = request.form or ("json" if out.endswith(".json") else "html")
    text = render_json(made) if name == "json" else render_html(made)
    if out == "-":
        click.echo(printable(text) if sys.stdout.isatty() else text, nl=False)
        return
    replace_file(out, text.encode(), mode=0o666)
    say(f"written    {out}: {made.profile.entries:,} entries", err=True)
