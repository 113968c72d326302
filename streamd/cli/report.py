"""`streamd report`: a page about one stream, with plots; or the same for programs, as JSON, Parquet or entries.

Exit status: 0 it was written, 1 it could not be made, 2 the command line is wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from streamd.cli.archive import parse_range
from streamd.cli.one_line import errors_in_one_line, say
from streamd.cli.progress import bar
from streamd.cli.spark_options import collect_options, make_session, with_server_options, with_spark_options
from streamd.client.client_errors import MissingStreamError, ServerError
from streamd.client.connection import Connection, connect
from streamd.client.key_names import stream_key
from streamd.client.options import ConnectionOptions
from streamd.client.points import format_entry_id, parse_duration_ms
from streamd.disk import replace_file
from streamd.printable import printable
from streamd.report import Report, collect, publish, render_html, render_json, write_tables
from streamd.report.profile import Profile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ReportRequest", "make_report", "report"]

PREFIX = "__entry_"
"""Before the names of the metadata columns, so that no field of an entry has the same name."""


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
    groups: tuple[str, ...] = ()  # none: all
    watch_s: float = 2.0
    above: int = 5
    parquet: str | None = None  # a folder
    to_stream: str | None = None  # a key
    master: str | None = None  # of Spark; None: without Spark
    confs: tuple[str, ...] = ()  # settings of Spark
    archive: str | None = None  # a folder


@click.command()
@click.argument("stream")
@click.option("--out", metavar="FILE", help="File to write to, `-` for standard output.  [default: report.html]")
@click.option("--format", "form", type=click.Choice(["html", "json"]), help="[default: as the file's name ends]")
@click.option("--since", metavar="WHEN", help="Start: an ID, a time (2026-01-31T12:00Z), or -1h.  [default: the start]")
@click.option("--until", metavar="WHEN", help="End: an ID (included) or a time (excluded).  [default: the end]")
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=1_000_000,
    show_default=True,
    help="Read at most this many entries, the newest; Spark (--master) has no limit.",
)
@click.option(
    "--field", "fields", multiple=True, metavar="NAME", help="Draw this numeric field.  [default: those found]"
)
@click.option(
    "--group", "groups", multiple=True, metavar="NAME", help="Report only this consumer group; may be repeated."
)
@click.option(
    "--watch",
    default="2s",
    show_default=True,
    metavar="DURATION",
    help="Watch the groups for this time, to see what they process.",
)
@click.option(
    "--above",
    type=click.IntRange(0),
    default=5,
    show_default=True,
    help="Report pending entries that were delivered more often as dead letters.",
)
@click.option("--parquet", type=click.Path(), help="Folder to write the findings to, as Parquet files.")
@click.option("--to-stream", metavar="KEY", help="Append the state of the groups, and dead letters, to this stream.")
@click.option("--archive", type=click.Path(), help="Include the entries of this archive, by Spark.")
@with_spark_options
@with_server_options
def report(stream: str, form: str | None, watch: str, **given: Any) -> None:
    """Draw a page about STREAM: its rate, gaps and numeric fields; lag, pending entries, deliveries and processing of its groups.

    Entries are read without Spark, unless --master or --archive is given.
    """
    options = collect_options(given)
    try:
        watch_s = parse_duration_ms(watch) / 1000
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--watch") from None
    make_report(ReportRequest(stream, options, form=form, watch_s=watch_s, **given))


def make_report(request: ReportRequest, *, spark: SparkSession | None = None) -> None:
    """Make the report and write it to all requested places.

    spark  the session to use; without it one is made when the request needs one, and stopped again
    Raises click.ClickException when that fails.
    """
    try:
        with errors_in_one_line(), connect(ConnectionOptions.parse(request.options)) as connection:
            try:
                connection.command("XINFO", "STREAM", stream_key(request.stream))
            except ServerError as error:
                if error.is_missing_key:
                    raise MissingStreamError(request.stream) from None
                raise
            _write(request, connection, _collect(request, connection, spark))
    except OSError as error:
        raise click.ClickException(str(error)) from None


def _collect(request: ReportRequest, connection: Connection, spark: SparkSession | None) -> Report:
    low, high = parse_range(request.since, request.until)
    fields = request.fields or None
    groups = request.groups or None
    if request.master is None and request.archive is None and spark is None:
        length = connection.command("XLEN", stream_key(request.stream))
        with bar(request.stream, min(request.limit, length), unit="entries") as progress:
            return collect(
                connection, request.stream, low=low, high=high, limit=request.limit, fields=fields, groups=groups,
                watch_s=request.watch_s, above=request.above, progress=progress,
            )  # fmt: skip
    session, is_own = (
        (spark, False) if spark is not None else (make_session("streamd report", request.master, request.confs), True)
    )

    def profile(names: Sequence[str], last: int) -> Profile:
        return spark_profile(session, request, names, low, last)

    source = "read by Spark" if request.archive is None else "read by Spark, including the archive"
    try:
        return collect(
            connection, request.stream, profile=profile, source=source, low=low, high=high, fields=fields, groups=groups,
            watch_s=request.watch_s, above=request.above,
        )  # fmt: skip
    finally:
        if is_own:
            session.stop()


def spark_profile(spark: SparkSession, request: ReportRequest, fields: Sequence[str], low: int, high: int) -> Profile:
    """The shape of the stream, counted by Spark, of the archive too when one is named."""
    from pyspark.sql.types import LongType, StringType, StructField, StructType

    columns = [StructField(PREFIX + "ms", LongType()), StructField(PREFIX + "seq", LongType())]
    columns += [StructField(name, StringType()) for name in fields]
    options = {
        **request.options,
        "stream": request.stream,
        "startingId": format_entry_id(low),
        "endingId": format_entry_id(high),
        "metadataPrefix": PREFIX,
    }
    if request.archive is not None:
        options["archive"] = request.archive
    frame = spark.read.format("streamd").schema(StructType(columns)).options(**options).load()
    from streamd.spark.frames import frame_profile

    return frame_profile(frame, fields=fields, prefix=PREFIX)


def _write(request: ReportRequest, connection: Connection, made: Report) -> None:
    if request.parquet is not None:
        for path in write_tables(made, request.parquet):
            say(f"written    {path}", err=True)
    if request.to_stream is not None:
        count = publish(connection, made, request.to_stream)
        say(f"appended   {count:,} entries to {request.to_stream}", err=True)
    if request.out is None and (request.parquet is not None or request.to_stream is not None):
        return
    out = request.out or "report.html"
    name = request.form or ("json" if out.endswith(".json") else "html")
    text = render_json(made) if name == "json" else render_html(made)
    if out == "-":
        click.echo(printable(text) if sys.stdout.isatty() else text, nl=False)
        return
    replace_file(out, text.encode(), mode=0o666)
    say(f"written    {out}: {made.profile.entries:,} entries, {len(made.states)} groups", err=True)
