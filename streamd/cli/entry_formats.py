"""Entries as text or in a file: a table, JSON Lines, CSV, Parquet.

Whole entries, which is what is read without Spark, become JSON and CSV in compiled code (`arrow/text.pyx`); the columns of a
schema, whatever their types, go through Python objects.
"""

from __future__ import annotations

import base64
import csv
import itertools
import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from streamd.disk import replacing

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["write"]

WIDTHS_FROM = 1000
"""The number of rows from which the widths of a table's columns are taken."""


def write(batches: Iterator[pa.RecordBatch], form: str, out: str | None) -> None:
    if form == "parquet":
        write_parquet(batches, Path(out or ""))
        return
    with opened(out) as file:
        if form == "json":
            write_json(batches, file)
        elif form == "csv":
            write_csv(batches, file)
        else:
            print_table(batches, file)


@contextmanager
def opened(out: str | None) -> Iterator[TextIO]:
    if out is None:
        yield sys.stdout
        sys.stdout.flush()
        return
    with Path(out).open("w", encoding="utf-8", newline="") as file:
        yield file


def write_parquet(batches: Iterator[pa.RecordBatch], path: Path) -> None:
    """One file, which appears when it is complete."""
    import pyarrow.parquet as pq

    from streamd.spark.arrow.entry_table import default_schema

    first = next(batches, None)
    schema = default_schema() if first is None else first.schema
    with (
        replacing(path, mode=0o666) as fd,
        os.fdopen(fd, "wb", closefd=False) as file,
        pq.ParquetWriter(file, schema, compression="zstd") as writer,
    ):
        if first is not None:
            writer.write_batch(first)
        for batch in batches:
            writer.write_batch(batch)


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


def write_json(batches: Iterable[pa.RecordBatch], file: TextIO) -> None:
    for batch in batches:
        if is_default(batch):
            write_texts(json_lines(batch), file)
        else:
            file.writelines(json_text(row) + "\n" for row in rows_of([batch]))


def json_lines(batch: pa.RecordBatch) -> pa.StringArray:
    """The rows of a batch of the default table, each with the end of its line."""
    import pyarrow.compute as pc

    from streamd.spark.arrow.text import time_texts

    ids, ms, seq, times, streams, fields = batch.columns
    stream = json_text(streams[0].as_py()) if batch.num_rows else ""
    quoted = pc.binary_join_element_wise('"', time_texts(times), '"', "")
    return pc.binary_join_element_wise(
        '{"id": "', ids, '", "ms": ', ms.cast("string"), ', "seq": ', seq.cast("string"), ', "time": ',
        quoted.fill_null("null"), f', "stream": {stream}, "fields": ', shown_fields(fields), "}\n", "",
    )  # fmt: skip


def shown_fields(fields: pa.ListArray) -> pa.StringArray:
    from streamd.spark.arrow.text import field_texts

    return field_texts(fields, lambda row: json_text(plain(fields[row].as_py())))


def write_texts(texts: pa.StringArray, file: TextIO) -> None:
    """Write all texts, one behind the other: as they lie in memory."""
    file.flush()
    file.buffer.write(texts.buffers()[2])


def is_default(batch: pa.RecordBatch) -> bool:
    """Whether it is of the default table: whole entries of one stream."""
    from streamd.spark.arrow.entry_table import default_schema

    return bool(batch.schema.equals(default_schema()))


def json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def write_csv(batches: Iterable[pa.RecordBatch], file: TextIO) -> None:
    """A line for each entry, below one with the names of the columns. Fields are a JSON object in one cell."""
    import pyarrow as pa
    import pyarrow.csv as pc

    from streamd.spark.arrow.text import time_texts

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
            csv.writer(file, lineterminator="\n").writerow(batch.schema.names)
            file.flush()
            is_first = False
        pc.write_csv(table, file.buffer, pc.WriteOptions(include_header=False))


def cell(value: Any) -> Any:
    return json_text(value) if isinstance(value, dict | list) else value


def print_table(batches: Iterator[pa.RecordBatch], file: TextIO) -> None:
    """One line for each entry; ms and seq are in the ID. The first lines decide how wide the columns are."""
    rows = map(shown_cells, rows_of(batches))
    first = list(itertools.islice(rows, WIDTHS_FROM))
    if not first:
        return
    names, *_ = first
    widths = [max(len(name), *(len(row[name]) for row in first)) for name in names]
    widths[-1] = 0  # the last column ends where its text does
    for row in itertools.chain([{name: name for name in names}, {}], first, rows):
        cells = (row.get(name, "\u2500" * max(width, len(name))) for name, width in zip(names, widths, strict=True))
        file.write("  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip() + "\n")


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
