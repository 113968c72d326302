"""`streamd history STREAM`: archived and live entries as one, on the terminal or in a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import click

from streamd.cli.archive import parse_range
from streamd.cli.entry_formats import check_output, is_file, refuse_file, write
from streamd.cli.one_line import errors_in_one_line, missing_module
from streamd.cli.progress_bar import bar, counted
from streamd.cli.server_options import collect_options, named, with_server_options
from streamd.transfer.files import FORMATS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.readwriter import DataFrameReader

__all__ = ["history"]


@click.command()
@click.argument("stream")
@click.option("--archive", "path", type=click.Path(), help="Read this archive, too.  [default: only the server]")
@click.option("--since", metavar="WHEN", help="Start: an ID, a time (2026-01-31T12:00Z), or -1h.  [default: the start]")
@click.option("--until", metavar="WHEN", help="End: an ID (included) or a time (excluded).  [default: the end]")
@click.option(
    "--where", metavar="SQL",
    help="Show only entries for which this Spark SQL condition holds: id, ms, seq, time, stream, fields (a map), columns of --schema.",
)  # fmt: skip
@click.option("--schema", metavar="DDL", help="Columns, such as 'id string, celsius double': fields by their names.")
@click.option(
    "--format", "form", type=click.Choice(["table", *FORMATS]), default="table", show_default=True,
    help="json: a line for each entry; arrow: the IPC file format in a file, the stream format in a pipe.",
)  # fmt: skip
@click.option(
    "--out", type=click.Path(), help="File to write to, which appears when it is complete.  [default: standard output]"
)
@click.option("--replace", "replaces", is_flag=True, help="Replace an existing file.  [default: an error]")
@click.option("--limit", type=click.IntRange(0), help="Show at most this many entries.")
@click.option("--master", metavar="URL", help="Spark's master.  [default: local[*], in this process]")
@click.option(
    "--conf", "confs", multiple=True, metavar="NAME=VALUE", help="A setting of Spark's session; may be repeated."
)
@with_server_options
def history(
    stream: str,
    path: str | None,
    since: str | None,
    until: str | None,
    where: str | None,
    schema: str | None,
    form: str,
    out: str | None,
    replaces: bool,
    limit: int | None,
    master: str | None,
    confs: tuple[str, ...],
    **server: Any,
) -> None:
    """Show the entries of STREAM, archived ones and those on the server, in the order of their IDs.

    Only --where and --schema need Spark and Java.
    """
    try:
        check_output(form, out)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if out is not None and not replaces:
        refuse_file(out, "written")
    options = collect_options(server)
    with errors_in_one_line():
        from streamd.client.points import format_entry_id

        low, high = parse_range(since, until)
        there = check_stream(options, stream, path)
        is_whole = path is None and since is None and until is None and where is None
        options |= {"stream": stream} | ({} if path is None else {"archive": path})
        options |= {"startingId": format_entry_id(low), "endingId": format_entry_id(max(high, 0))}
        if where is None and schema is None:
            batches = read_here(options, limit) if low <= high else iter(())
        else:
            batches = read_by_spark(options, where, schema, master, confs, limit)
        counts = [each for each in (limit, there if is_whole else None) if each is not None]
        total = min(counts, default=None)
        with suppress(BrokenPipeError), bar(stream, total, unit="entries", is_wanted=is_file(out)) as progress:
            write(counted(limited(batches, limit), progress), form, out)


def check_stream(options: dict[str, str], stream: str, path: str | None) -> int:
    """How many entries the server has of a stream.

    Raises StreamdError when the server cannot be reached, or the stream is neither there nor in the archive.
    """
    from streamd.archive.layout import Layout
    from streamd.archive.live_stream import find_state, need_state
    from streamd.archive.manifest_log import ManifestLog
    from streamd.client.connection import connect, run
    from streamd.client.url_options import ConnectionOptions

    place = ConnectionOptions.parse(options)
    if path is None:
        return run(place.at(stream), lambda connection: need_state(connection, stream)).length
    with connect(place.at(stream)) as connection:
        state = find_state(connection, stream)
        if state is None:
            layout = Layout(path)
            layout.check()
            ManifestLog.read_archived(layout, stream)
        return 0 if state is None else state.length


def read_here(options: dict[str, str], limit: int | None) -> Iterator[pa.RecordBatch]:
    """The entries, read in this process, without Spark; from an archive it may be more than `limit`."""
    from streamd.archive.full_history import read_history
    from streamd.arrow.entry_table import default_table
    from streamd.client.points import MAX_ID, parse_entry_id
    from streamd.transfer.read_options import SourceOptions

    source = SourceOptions.parse(options)
    table = default_table()
    if source.archive is not None:
        return read_history(source, table)
    from streamd.archive.live_stream import read_entries

    low, high = parse_entry_id(options["startingId"]), parse_entry_id(options["endingId"])
    return read_entries(source.connection, options["stream"], low, min(high, MAX_ID), table, limit=limit)


def read_by_spark(
    options: dict[str, str],
    where: str | None,
    schema: str | None,
    master: str | None,
    confs: tuple[str, ...],
    limit: int | None,
) -> Iterator[pa.RecordBatch]:
    """The entries as read by Spark, sorted by ID."""
    from pyspark.errors import PySparkException

    spark = make_session(master, confs)
    # The frame is used once only, so its filters may narrow what is read.
    with settings_of(spark, {"spark.sql.python.filterPushdown.enabled": "true", **LAST_FIELD_COUNTS}):
        try:
            reader = spark.read.format("streamd").options(**options).option("pushdown", "true")
            frame = typed(reader, spark, where, schema) if schema is not None else lossless(reader, where)
            if limit is not None:
                frame = frame.limit(limit)
            yield from frame.toArrow().to_batches()
        except PySparkException as error:
            lines = [line for line in str(error).splitlines() if line.strip()]
            raise click.ClickException(lines[0].strip() if lines else type(error).__name__) from None


def make_session(master: str | None, confs: tuple[str, ...]) -> SparkSession:
    """A Spark session that knows format("streamd"). Raises click.ClickException when there is no PySpark."""
    # The terminal shows the output of the command, not the warnings of Spark.
    settings = {"spark.log.level": "ERROR", **named(confs, "--conf")}
    try:
        from streamd.spark import session
    except ImportError as error:
        raise click.ClickException(missing_module(error)) from None
    return session("streamd history", master=master, config=settings)


LAST_FIELD_COUNTS = {"spark.sql.mapKeyDedupPolicy": "LAST_WIN"}
"""Of several fields with one name, in maps as in the columns of a schema; Spark would fail."""


@contextmanager
def settings_of(spark: SparkSession, settings: dict[str, str]) -> Iterator[None]:
    """Change settings of the session while a block runs: in tests and notebooks it is shared."""
    before = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, former in before.items():
            if former is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, former)


def typed(reader: DataFrameReader, spark: SparkSession, where: str | None, schema: str) -> DataFrame:
    """The columns of a schema, sorted by ID; conditions may be on ms and seq too."""
    names = spark.createDataFrame([], schema).columns
    hidden = [each for each in ("ms", "seq") if each not in names]
    frame = reader.schema(", ".join([schema, *(f"{each} bigint" for each in hidden)])).load()
    if where is not None:
        frame = frame.where(where)
    return frame.sort("ms", "seq").drop(*hidden)


def lossless(reader: DataFrameReader, where: str | None) -> DataFrame:
    """The default table, sorted by ID. For conditions its fields are a map of strings; the result has all of them."""
    pairs, names = "__pairs", ("id", "ms", "seq", "time", "stream")
    as_map = f"transform({pairs}, pair -> struct(string(pair.field) AS field, string(pair.value) AS value))"
    frame = reader.load().withColumnRenamed("fields", pairs)
    if where is not None:
        frame = frame.selectExpr(*names, pairs, f"map_from_entries({as_map}) AS fields").where(where)
    return frame.sort("ms", "seq").selectExpr(*names, f"{pairs} AS fields")


def limited(batches: Iterable[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    left = limit
    for batch in batches:
        if left is None:
            yield batch
            continue
        if left <= 0:
            return
        yield batch.slice(0, left)
        left -= min(left, batch.num_rows)
