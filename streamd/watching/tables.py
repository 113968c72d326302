"""Tables of `streamd top`: their columns, how values are shown, sorted and filtered.

A row is a dictionary with the raw value of each column: seconds, bytes, counts, or text; None where it is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from streamd.printable import in_one_line
from streamd.watching.findings import duration, number, per_second, size

__all__ = ["TABLES", "Column", "Row", "Table", "render", "short_time", "shown_rows"]

Row = dict[str, Any]
UNKNOWN = "-"


def short_time(seconds: float) -> str:
    return f"{seconds * 1e6:,.1f} us" if seconds < 0.001 else f"{seconds * 1000:,.1f} ms"


SHOW: dict[str, Callable[[Any], str]] = {
    "text": in_one_line,
    "count": number,
    "rate": per_second,
    "bytes": size,
    "seconds": duration,
    "short": short_time,
    "share": lambda share: f"{100 * share:.0f} %",
}


@dataclass(frozen=True)
class Column:
    """A column.

    name   of the value in a row, and in JSON
    title  at its head
    kind   of SHOW
    """

    name: str
    title: str
    kind: str = "count"

    def show(self, row: Row) -> str:
        value = row[self.name]
        return UNKNOWN if value is None else SHOW[self.kind](value)

    @property
    def is_text(self) -> bool:
        return self.kind == "text"


@dataclass(frozen=True)
class Table:
    """A table.

    sort  the column that it is sorted by unless told otherwise: numbers from the greatest down, texts from A
    ids   the columns that tell its rows apart
    """

    name: str
    columns: tuple[Column, ...]
    sort: str
    ids: tuple[str, ...]

    def column(self, name: str) -> Column | None:
        return next((each for each in self.columns if each.name == name), None)

    def id_of(self, row: Row) -> str:
        return "\0".join(str(row[name]) for name in self.ids)


def text(name: str, title: str = "") -> Column:
    return Column(name, title or name, "text")


TABLES = {
    table.name: table
    for table in (
        Table(
            "groups",
            (
                text("stream"), text("group"), Column("lag", "lag"), Column("lag_s", "waits", "seconds"),
                Column("in_per_s", "in/s", "rate"), Column("out_per_s", "out/s", "rate"), Column("pending", "pending"),
                Column("takes_s", "takes", "seconds"), Column("oldest_pending_s", "oldest", "seconds"), Column("consumers", "consumers"),
                Column("seen_s", "seen", "seconds"),
            ),
            "lag", ("stream", "group"),
        ),
        Table(
            "streams",
            (
                text("stream"), Column("length", "length"), Column("bytes", "memory", "bytes"), Column("in_per_s", "in/s", "rate"),
                Column("removed_per_s", "trimmed/s", "rate"), Column("groups", "groups"), Column("lag", "worst lag"),
                Column("lag_s", "waits", "seconds"), Column("pending", "pending"), Column("last_s", "last entry", "seconds"),
            ),
            "lag", ("stream",),
        ),
        Table(
            "consumers",
            (
                text("stream"), text("group"), text("consumer"), Column("pending", "pending"), Column("seen_s", "seen", "seconds"),
                Column("active_s", "got something", "seconds"),
            ),
            "pending", ("stream", "group", "consumer"),
        ),
        Table(
            "pending",
            (
                text("id"), text("consumer"), Column("idle_s", "delivered", "seconds"), Column("deliveries", "deliveries"),
                Column("age_s", "age", "seconds"),
            ),
            "age_s", ("id",),
        ),
        Table(
            "commands",
            (
                text("command"), Column("calls_per_s", "calls/s", "rate"), Column("calls", "calls"), Column("mean_s", "mean", "short"),
                Column("p50_s", "p50", "short"), Column("p99_s", "p99", "short"), Column("failed", "failed"),
            ),
            "calls_per_s", ("command",),
        ),
        Table(
            "slow",
            (Column("ago_s", "ago", "seconds"), Column("took_s", "took", "short"), text("command"), text("client")),
            "took_s", ("ago_s", "took_s", "command"),
        ),
        Table(
            "nodes",
            (
                text("node"), text("role"), text("state"), Column("slots", "slots"), Column("keys", "keys"),
                Column("used_memory", "memory", "bytes"), Column("commands_per_s", "commands/s", "rate"),
                Column("input_bytes_per_s", "in/s", "bytes"), Column("output_bytes_per_s", "out/s", "bytes"),
                Column("cpu_share", "CPU", "share"), Column("clients", "clients"), Column("behind", "behind", "bytes"),
                Column("epoch", "epoch"),
            ),
            "node", ("node",),
        ),
    )
}  # fmt: skip
"""By name, in the order in which they are shown."""


def shown_rows(
    table: Table, rows: Iterable[Row], *, sort: str = "", is_reversed: bool = False, wanted: str = ""
) -> list[Row]:
    """The rows whose texts contain `wanted`, sorted; what is unknown comes last."""
    column = table.column(sort) or table.column(table.sort) or table.columns[0]
    kept = [
        row
        for row in rows
        if not wanted or any(wanted.lower() in str(row[each.name]).lower() for each in table.columns if each.is_text)
    ]
    known = [row for row in kept if row[column.name] is not None]
    known.sort(key=lambda row: row[column.name], reverse=column.is_text == is_reversed)
    return known + [row for row in kept if row[column.name] is None]


def render(table: Table, rows: Sequence[Row]) -> list[str]:
    """The lines of a table as text, numbers to the right."""
    cells = [[each.title for each in table.columns], *([each.show(row) for each in table.columns] for row in rows)]
    widths = [max(len(line[at]) for line in cells) for at in range(len(table.columns))]
    return [
        "  ".join(
            cell.ljust(width) if column.is_text else cell.rjust(width)
            for column, cell, width in zip(table.columns, line, widths, strict=True)
        ).rstrip()
        for line in cells
    ]
