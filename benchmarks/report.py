"""Rows become tables, files and pictures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.table import Table

from benchmarks.cases import UNITS, Row

WIDTH = 168
"""Columns of a table, whatever the terminal: tables go into files."""


def table_of(title: str, rows: Sequence[Row]) -> Table:
    table = Table(title=title)
    for heading in ("case", "streamd", "ratio", "aim"):
        table.add_column(heading)
    for row in rows:
        cell = row.cells.get("streamd")
        table.add_row(row.name, f"{cell.figure:,.2f} {UNITS[row.by]}" if cell else "", str(row.ratio()), str(row.aim))
    return table


def shortfalls(rows: Sequence[Row]) -> Iterator[str]:
    """A line for each row that falls short."""
    for row in rows:
        if row.is_short:
            yield f"short: {row.name}"
