"""Entries as text or in a file: a table, JSON Lines, CSV, Parquet, Arrow IPC.

Whole entries, which is what is read without Spark, become text in compiled code (`arrow/text.pyx`); the columns of a
schema, whatever their types, go through Python objects.

A file appears when it is complete: it is written under a hidden name. Pipes, and what else is no regular file, are written as
they are.
"""

from __future__ import annotations

import base64
import csv
import io
import itertools
import json
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from streamd.cli.one_line import OnTerminal
from streamd.disk import replacing

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["check_output", "is_file", "refuse_file", "write"]

WIDTHS_FROM = 1000
"""The number of rows from which the widths of a table's columns are taken."""

GROUP_ROWS = 128 * 1024
GROUP_BYTES = 64 * 1024 * 1024
"""Rows, and bytes in memory, of one row group of a Parquet file, whichever comes first."""


def is_file(out: str | None) -> bool:
    """Whether what is written to `out`, or to the standard output, ends in a regular file."""
    try:
        return stat.S_ISREG((os.fstat(sys.stdout.fileno()) if out is None else os.stat(out)).st_mode)
    except FileNotFoundError:
        return True
    except (OSError, ValueError):  # a standard output without a descriptor
        return False


def check_output(form: str, out: str | None) -> None:
    """Raise ValueError for bytes that would go to a terminal."""
    if out is None and form in ("parquet", "arrow") and sys.stdout.isatty():
        raise ValueError(f"{form} is not for a terminal: name a file with --out, or a pipe")


def refuse_file(path: str, done: str) -> None:
    """Raise click.ClickException for a file that is there, so that nothing is `done`. Pipes are written to."""
    if os.path.isfile(path):
        raise click.ClickException(f"{path} exists, and nothing was {done}: use --replace, or another path")


def write(batches: Iterator[pa.RecordBatch], form: str, out: str | None) -> None:
    """Write entries.

    form  one of FORMATS (transfer/files.py), or `table`
    out   a file; None: the standard output
    Raises OSError.
    """
    with opened(out) as file:
        if form == "parquet":
            write_parquet(batches, file)
        elif form == "arrow":
            write_arrow(batches, file, is_seekable=is_file(out))
        elif form == "json":
            write_json(batches, file)
        elif form == "csv":
            write_csv(batches, file)
        else:
            print_table(batches, file)


@contextmanager
def opened(out: str | None) -> Iterator[BinaryIO]:
    if out is None and sys.stdout.isatty():
        yield OnTerminal()  # type: ignore[misc]
    elif out is None:
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    elif is_file(out):
        with replacing(out, mode=0o666) as fd, os.fdopen(fd, "wb", closefd=False) as file:
            yield file
    else:
        with open(out, "wb") as file:
            yield file


def write_parquet(batches: Iterator[pa.RecordBatch], file: BinaryIO) -> None:
    import pyarrow.parquet as pq

    first, batches = looked_ahead(batches)
    with pq.ParquetWriter(file, first, compression="zstd") as writer:
        for group in grouped(batches):
            writer.write_table(group)


def write_arrow(batches: Iterator[pa.RecordBatch], file: BinaryIO, *, is_seekable: bool) -> None:
    """The IPC file format, for whoever can seek; else the stream format."""
    import pyarrow as pa

    first, batches = looked_ahead(batches)
    new = pa.ipc.new_file if is_seekable else pa.ipc.new_stream
    with new(file, first, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        for batch in batches:
            writer.write_batch(batch)


def looked_ahead(batches: Iterator[pa.RecordBatch]) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The schema of the batches, and all of them."""
    from streamd.arrow.entry_table import default_schema

    first = next(batches, None)
    return (default_schema(), iter(())) if first is None else (first.schema, itertools.chain([first], batches))


def grouped(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches as tables that are large enough for a row group."""
    import pyarrow as pa

    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= GROUP_ROWS or size >= GROUP_BYTES:
            yield pa.Table.from_batches(held)
            held, rows, size = [], 0, 0
    if held:
        yield pa.Table.from_batches(held)


def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    """Rows with values as JSON has them; fields as an object, or as a list of pairs when a name comes twice."""
    for batch in batches:
        for row in batch.to_pylist():
            yield {name: plain(value) for name, value in row.items()}


def plain(value: Any) -> Any:
    if isinstance(value, list):
        pairs = [(pair["field"], pair["value"]) if isinstance(pair, dict) else pair for pair in value]
        texts = [(plain(name), plain(content)) for name, content in pairs]
        names = [name for name, _ in texts]
        if all(isinstance(name, str) for name in names) and len(set(names)) == len(names):
            return dict(texts)
        return [list(pair) for pair in texts]
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds")
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def write_json(batches: Iterable[pa.RecordBatch], file: BinaryIO) -> None:
    for batch in batches:
        if is_default(batch):
            write_texts(json_lines(batch), file)
        else:
            file.writelines(json_text(row).encode() + b"\n" for row in rows_of([batch]))


def json_lines(batch: pa.RecordBatch) -> pa.StringArray:
    """The rows of a batch of the default table, each with the end of its line."""
    import pyarrow.compute as pc

    from streamd.arrow.text import time_texts

    ids, ms, seq, times, streams, fields = batch.columns
    stream = json_text(plain(streams[0].as_buffer().to_pybytes())) if batch.num_rows else ""
    # One null would make the whole line null: parts of an ID beyond int64 are.
    times = pc.binary_join_element_wise('"', time_texts(times), '"', "").fill_null("null")
    ms, seq = (column.cast("string").fill_null("null") for column in (ms, seq))
    return pc.binary_join_element_wise(
        '{"id": "', ids, '", "ms": ', ms, ', "seq": ', seq, ', "time": ',
        times, f', "stream": {stream}, "fields": ', shown_fields(fields), "}\n", "",
    )  # fmt: skip


def shown_fields(fields: pa.ListArray) -> pa.StringArray:
    from streamd.arrow.text import field_texts

    return field_texts(fields, lambda row: json_text(plain(fields[row].as_py())))


def write_texts(texts: pa.StringArray, file: BinaryIO) -> None:
    """Write all texts of a new array, one behind the other: as they lie in memory."""
    if len(texts):
        file.write(texts.buffers()[2])


def is_default(batch: pa.RecordBatch) -> bool:
    """Whether it is of the default table: whole entries of one stream."""
    from streamd.arrow.entry_table import default_schema

    return bool(batch.schema.equals(default_schema()))


def json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def write_csv(batches: Iterable[pa.RecordBatch], file: BinaryIO) -> None:
    """A line for each entry, below one with the names of the columns. Fields are a JSON object in one cell."""
    import pyarrow as pa
    import pyarrow.csv as pc

    from streamd.arrow.text import time_texts

    is_first = True
    for batch in batches:
        if is_default(batch):
            ids, ms, seq, times, streams, fields = batch.columns
            columns = [ids, ms, seq, time_texts(times), streams, shown_fields(fields)]
        else:
            rows = [{name: cell(value) for name, value in row.items()} for row in rows_of([batch])]
            columns = [pa.array([row[name] for row in rows]) for name in batch.schema.names]
        table = pa.Table.from_arrays(columns, batch.schema.names)
        if is_first:
            header = io.StringIO()
            csv.writer(header, lineterminator="\n").writerow(batch.schema.names)
            file.write(header.getvalue().encode())
            is_first = False
        pc.write_csv(table, file, pc.WriteOptions(include_header=False))


def cell(value: Any) -> Any:
    return json_text(value) if isinstance(value, dict | list) else value


def print_table(batches: Iterator[pa.RecordBatch], file: BinaryIO) -> None:
    """One line for each entry; ms and seq are in the ID. The first lines decide how wide the columns are."""
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return
    rows = [*map(shown_cells, rows_of([first.slice(0, WIDTHS_FROM)]))]
    widths = {name: max(len(name), *(len(row[name]) for row in rows)) for name in rows[0]}
    last = next(reversed(widths))
    lines = [{name: name for name in widths}, {name: "\u2500" * width for name, width in widths.items()}]
    widths[last] = 0  # the last column ends where its text does
    file.write(text_lines(lines, widths))
    for batch in itertools.chain([first], batches):
        if is_default(batch):
            write_texts(table_lines(batch, widths), file)
        else:
            file.write(text_lines(map(shown_cells, rows_of([batch])), widths))


def text_lines(rows: Iterable[dict[str, str]], widths: dict[str, int]) -> bytes:
    lines = ("  ".join(f"{row[name]:<{width}}" for name, width in widths.items()).rstrip() + "\n" for row in rows)
    return "".join(lines).encode("utf-8", "backslashreplace")


def table_lines(batch: pa.RecordBatch, widths: dict[str, int]) -> pa.StringArray:
    """The lines of a batch of the default table."""
    import pyarrow.compute as pc

    from streamd.arrow.text import pair_texts, time_texts

    ids, _, _, times, _, fields = batch.columns
    shown = pair_texts(fields, lambda row: on_a_line(str(table_cell(plain(fields[row].as_py())))))
    padded = [pc.utf8_rpad(ids, widths["id"]), pc.utf8_rpad(time_texts(times).fill_null(""), widths["time"])]
    lines = pc.binary_join_element_wise(*padded, shown, "  ")
    return pc.binary_join_element_wise(pc.utf8_rtrim_whitespace(lines), "\n", "")


def shown_cells(row: dict[str, Any]) -> dict[str, str]:
    return {
        name: on_a_line(str(table_cell(row[name])))
        for name in row
        if name not in ("ms", "seq", "stream") or "id" not in row
    }


def on_a_line(text: str) -> str:
    """The text with what would break the line, or steer a terminal, as Python writes it: `\\n`, `\\x1b`."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def table_cell(value: Any) -> Any:
    if isinstance(value, dict):
        return " ".join(f"{name}={content}" for name, content in value.items())
    return "" if value is None else value
