"""Rows become tables, files and pictures.

    python -m benchmarks.report [RESULTS.json]      the table of a run, and its page and pictures made again

`table_of` makes a table for the terminal, `markdown` the page of a run, `picture` an SVG: a bar for each path, from 1 to
the ratio to Redis, on a logarithmic scale, with the aim as a mark on it and the other servers as dots. Pictures need
nothing but themselves, and are readable on light and on dark pages.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from benchmarks.cases import Cell, Row
from benchmarks.servers import BASE, NAMES
from streamd.report.drawing import Drawing

__all__ = ["markdown", "picture", "rows_of", "shortfalls", "show", "table_of", "write"]

WIDTH = 190
"""Columns of a table, whatever the terminal: tables go into files."""
RESULTS = Path(__file__).with_name("results")
PROFILES = "docs/performance.md"
TITLES = {"streamd": "streamd", "redis": "Redis 8.6", "valkey": "Valkey", "redis-7.0": "Redis 7.0"}
WHAT_IT_SAYS = """\
Figures are medians over the rounds, less is better in all of them: us of server CPU per operation (user and system time
of the process) where nothing else is said. Ratios are to Redis 8.6, more than 1 is better than Redis: `ratio` is that of
the figures and is what the aim is compared with; `CPU` and `rate` are those of server CPU per operation and of operations
per second of the clock. `busy` says who was the bottleneck, for streamd / for Redis: the server, the load generator or both when
it used 90 % of one CPU, else neither. `x` is what an operation costs at the greater size over what it costs at the smaller
one, with the server CPU at the greater size beside it. `±` is half the distance between the extremes of streamd's figure."""


# --- Words and numbers -------------------------------------------------------------------------------------------------


def show(value: float, by: str) -> str:
    """A figure in the unit that its row is judged by."""
    if by in ("cpu", "clock", "us"):
        return f"{value:,.0f} us" if value >= 100 else f"{value:.3g} us"
    if by == "bytes":
        return f"{value / 1e6:,.1f} MB" if value >= 1e6 else f"{value:,.0f} B" if value >= 100 else f"{value:.3g} B"
    if by == "seconds":
        return f"{value:.3f} s"
    return f"{value:,.2f} ms" if by == "ms" else f"x {value:.2f}"


def show_ratio(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.0f}" if ratio >= 100 else f"{ratio:.2f}"


def aim_of(row: Row) -> str:
    """What is to be reached: a ratio, a bound of the figure, or both."""
    bound = "" if row.limit is None else f"<= {show(row.limit, row.by)}"
    return "; ".join(each for each in ("" if row.aim is None else f"{row.aim:g}", bound) if each)


def names_of(rows: Sequence[Row]) -> list[str]:
    """The servers that have been measured, in their usual order."""
    found = {name for row in rows for name in (*row.cells, *row.lacking)}
    return [name for name in NAMES if name in found] + sorted(found - set(NAMES))


def headings(names: Sequence[str]) -> list[str]:
    others = [f"/ {TITLES.get(name, name)}" for name in names if name not in ("streamd", BASE)]
    return ["path", *(TITLES.get(name, name) for name in names), "ratio", "aim", "CPU", "rate", *others, "busy", "±"]


def cells_of(row: Row, names: Sequence[str]) -> list[str]:
    """The words of a line of the table, as `headings` has them."""

    def figure(name: str) -> str:
        cell = row.cells.get(name)
        if cell is None:
            return "-"
        # What is so many times as much says little without what it is.
        beside = f" ({show(cell.cpu_us, 'cpu')})" if row.by == "times" and cell.cpu_us else ""
        return show(cell.figure, row.by) + beside

    ours = row.cells.get("streamd")
    busy = [cell.bottleneck for name in ("streamd", BASE) if (cell := row.cells.get(name)) and cell.bottleneck]
    return [
        row.name + (" *" if row.is_short else ""),
        *(figure(name) for name in names),
        show_ratio(row.ratio()),
        aim_of(row),
        show_ratio(row.ratio(of="cpu_us")),
        show_ratio(row.ratio(of="per_s")),
        *(show_ratio(row.ratio(base=name)) for name in names if name not in ("streamd", BASE)),
        "/".join(busy),
        f"{ours.varies:.0%}" if ours else "",
    ]


def shortfalls(rows: Sequence[Row]) -> Iterator[str]:
    """A line for each row that falls short of its aim, and for each cell that is empty."""
    for row in rows:
        if row.is_short and "streamd" in row.cells:
            figure = show(row.cells["streamd"].figure, row.by)
            ratio = "" if row.ratio() is None else f", ratio {show_ratio(row.ratio())}"
            yield f"Short: {row.name}: {figure}{ratio}; the aim is {aim_of(row)}."
    for row in rows:
        for name, reason in row.lacking.items():
            yield f"Empty: {row.name}: {TITLES.get(name, name)} lacks it ({reason})."


# --- Tables --------------------------------------------------------------------------------------------------------------


def table_of(title: str, rows: Sequence[Row]) -> Table:
    """The rows for the terminal."""
    names = names_of(rows)
    table = Table(title=title, title_justify="left")
    for heading in headings(names):
        table.add_column(heading, justify="left" if heading == "path" else "right", no_wrap=True)
    for _, group in groupby(rows, key=lambda row: row.script):
        for row in group:
            table.add_row(*cells_of(row, names), style="bold red" if row.is_short else "")
        table.add_section()
    return table


def markdown(rows: Sequence[Row], about: str, pictures: Mapping[str, str], more: Mapping[str, str]) -> str:
    """The page of a run.

    about     the machine, versions and settings
    pictures  file names of the ratios' pictures by script, and of all ratios as "all"
    more      file names of pictures that scripts make themselves
    """
    names = names_of(rows)
    lines = ["# streamd beside Redis and Valkey", "", "Made by `python -m benchmarks`.", "", "```", about, "```", ""]
    lines += [WHAT_IT_SAYS, ""]
    short = list(shortfalls(rows))
    with_aim = [row for row in rows if (row.aim is not None or row.limit is not None) and "streamd" in row.cells]
    reached = sum(not row.is_short for row in with_aim)
    lines += [
        f"{reached} of {len(with_aim)} paths that have an aim reach it."
        + (" Marked with * otherwise:" if short else "")
    ]
    lines += [
        "",
        *(f"- {line}" for line in short),
        "",
        f"Where the time goes on each path: [{PROFILES}](../../{PROFILES}).",
        "",
    ]
    if "all" in pictures:
        lines += [f"![ratios to Redis 8.6]({pictures['all']})", ""]
    for script, group in groupby(rows, key=lambda row: row.script):
        heads = headings(names)
        lines += [f"## {script}", ""]
        lines += ["| " + " | ".join(heads) + " |", "|---" + "|---:" * (len(heads) - 1) + "|"]
        lines += ["| " + " | ".join(each.replace("|", "\\|") for each in cells_of(row, names)) + " |" for row in group]
        lines += [""]
        if script in pictures:
            lines += [f"![{script}: ratios to Redis 8.6]({pictures[script]})", ""]
        if script in more:
            lines += [f"![{script}]({more[script]})", ""]
    return "\n".join(lines)


# --- Pictures ------------------------------------------------------------------------------------------------------------

LETTER, PLOT, VALUES, LINE, TOP, BOTTOM = 6.7, 460, 70, 20, 46, 34


def picture(title: str, rows: Sequence[Row]) -> str:
    """A bar for each row that has a ratio, as the text of an SVG."""
    drawn = [row for row in rows if row.ratio() is not None]
    others = [name for name in names_of(rows) if name not in ("streamd", BASE)]
    found = [value for row in drawn for value in (row.ratio(), row.aim, *(row.ratio(name) for name in others)) if value]
    labels = max(300, round(LETTER * max((len(row.name) for row in drawn), default=0)) + 18)
    low, high = min([0.5, *found]) / 1.1, max([2.0, *found]) * 1.1
    span = math.log(high / low)

    def x_of(ratio: float) -> float:
        return labels + PLOT * math.log(ratio / low) / span

    bottom = TOP + LINE * len(drawn)
    width, height = labels + PLOT + VALUES, bottom + BOTTOM
    out = Drawing(width, height)
    out.text(8, 20, title, kind="title")
    dots = " and ".join(f"{mark} {TITLES.get(name, name)}" for name, mark in zip(others, ("○", "□"), strict=False))
    more = f"; {dots}" if dots else ""
    out.text(
        8,
        height - 8,
        f"bar: streamd; thick mark: the aim{more}; more than 1 is better than Redis 8.6; logarithmic scale",
    )
    for tick in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000):
        if low <= tick <= high:
            out.line(x_of(tick), TOP - 4, x_of(tick), bottom, kind="axis" if tick == 1 else "grid")
            out.text(x_of(tick), TOP - 8, f"{tick:g}", anchor="middle")
    for at, row in enumerate(drawn):
        ratio = row.ratio() or 1.0
        y, middle = TOP + LINE * at, TOP + LINE * at + LINE / 2
        left, right = sorted((x_of(1.0), x_of(ratio)))
        said = f"{row.name}: {show_ratio(ratio)}" + (f", aim {row.aim:g}" if row.aim is not None else "")
        out.text(labels - 10, middle + 4, row.name, kind="name", anchor="end")
        out.bar(left, y + 3, max(1.0, right - left), LINE - 6, said, colour="bad" if row.is_short else "c0")
        if row.aim is not None:
            out.line(x_of(row.aim), y + 1, x_of(row.aim), y + LINE - 1, kind="aim")
        for name, is_round in zip(others, (True, False), strict=False):
            other = row.ratio(name)
            if other is not None:
                x, told = x_of(other), f"{row.name}: {TITLES.get(name, name)} {show_ratio(other)}"
                if is_round:
                    out.dot(x, middle, 3.5, told, kind="ring")
                else:
                    out.bar(x - 3.5, middle - 3.5, 7, 7, told, kind="ring")
        out.text(labels + PLOT + 8, middle + 4, show_ratio(ratio), kind="name")
    return out.file(title)


# --- Files ---------------------------------------------------------------------------------------------------------------


def rows_of(found: Sequence[Mapping[str, object]]) -> list[Row]:
    """Rows from what `Row.to_dict` has made of them."""
    rows = []
    for each in found:
        known = {key: value for key, value in each.items() if key in Row.__dataclass_fields__}
        row = Row(**known)  # type: ignore[arg-type]
        row.cells = {name: Cell(**cell) for name, cell in row.cells.items()}  # type: ignore[arg-type]
        rows.append(row)
    return rows


def write(folder: Path, rows: Sequence[Row], about: str, pictured: Sequence[str] = ()) -> None:
    """The page, the rows as JSON, and a picture of each script and of all rows.

    pictured  scripts that have made a picture of these rows themselves, in a file of their name, which has its place in
              the page; another file of that name is of an earlier run
    """
    folder.mkdir(parents=True, exist_ok=True)
    pictures = {}
    more = {script: f"{script}.svg" for script in pictured}
    for script, group in groupby(rows, key=lambda row: row.script):
        these = list(group)
        if any(row.ratio() is not None for row in these):
            pictures[script] = f"ratios-{script}.svg"
            (folder / pictures[script]).write_text(picture(f"{script}: ratio to Redis 8.6", these))
    if pictures:
        pictures["all"] = "ratios.svg"
        (folder / "ratios.svg").write_text(picture("streamd: ratio to Redis 8.6", rows))
    (folder / "table.md").write_text(markdown(rows, about, pictures, more))
    found = {"about": about.splitlines(), "pictured": [*pictured], "rows": [row.to_dict() for row in rows]}
    (folder / "results.json").write_text(json.dumps(found, indent=1) + "\n")


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path), default=RESULTS / "results.json")
def main(file: Path) -> None:
    """Print the table of a run, and make its page and pictures again."""
    found = json.loads(file.read_text())
    rows, about = rows_of(found["rows"]), "\n".join(found["about"])
    console = Console(width=WIDTH, highlight=False)
    console.print(about)
    console.print(table_of("streamd beside Redis and Valkey", rows))
    for line in shortfalls(rows):
        console.print(line, soft_wrap=True)
    write(file.parent, rows, about, found.get("pictured", ()))


if __name__ == "__main__":
    main()
