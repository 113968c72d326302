"""The picture of README: server CPU of the main operations, streamd beside Redis, from the results of a run.

python -m benchmarks.figures        draws docs/figures.svg from benchmarks/results/results.json
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click

from benchmarks.cases import Row
from benchmarks.report import RESULTS, rows_of
from benchmarks.servers import BASE
from streamd.report.drawing import Drawing

__all__ = ["SHOWN", "draw", "read_rows"]

PICTURE = Path(__file__).parents[1] / "docs" / "figures.svg"
SHOWN = {
    "XADD, P=1": "XADD, one at a time",
    "XADD, P=16": "XADD, 16 in a pipeline",
    "XADD, everysec, P=16": "XADD with an append-only file, 16 in a pipeline",
    "XRANGE COUNT 100": "XRANGE of 100 entries",
    "XREADGROUP + XACK, COUNT 1, per entry": "XREADGROUP and XACK, one entry",
    "XREADGROUP + XACK, COUNT 100, per entry": "XREADGROUP and XACK, 100 entries",
    "XCLAIM, 1 entry": "XCLAIM of one entry",
    "message to a group, 100 consumers wait": "a message to a group with 100 waiting consumers",
    "PUBLISH to 1 subscriber, per delivery": "PUBLISH to 1 subscriber",
    "PUBLISH to 100 subscribers, per delivery": "PUBLISH to 100 subscribers",
}
"""Names of rows, and their labels in the picture."""
LABELS, PLOT, VALUES, LINE, TOP, BOTTOM = 350, 330, 140, 30, 44, 14
ABOUT = "Server CPU per operation, streamd (blue) beside Redis 8.6 (grey); shorter is better"


def read_rows(file: Path = RESULTS / "results.json") -> list[Row]:
    return rows_of(json.loads(file.read_text())["rows"])


def draw(rows: Sequence[Row]) -> str:
    """An SVG with a pair of bars for each operation of SHOWN. Raises KeyError when a row is missing."""
    by_name = {row.name: row for row in rows}
    unit = PLOT / max(1, *(ratio for name in SHOWN if (ratio := 1 / (by_name[name].ratio(of="cpu_us") or 1))))
    picture = Drawing(LABELS + PLOT + VALUES, TOP + LINE * len(SHOWN) + BOTTOM)
    picture.text(8, 22, ABOUT, kind="title")
    for at, (name, label) in enumerate(SHOWN.items()):
        cells = by_name[name].cells
        ours, theirs = cells["streamd"].cpu_us, cells[BASE].cpu_us
        y = TOP + LINE * at
        said = f"{label}: streamd {ours:.3g} us, Redis {theirs:.3g} us"
        picture.text(LABELS - 10, y + 15, label, kind="name", anchor="end")
        picture.bar(LABELS, y, unit, 22, said, colour="quiet")
        picture.bar(LABELS, y + 4, ours / theirs * unit, 14, said, colour="c0")
        picture.text(LABELS + PLOT + 8, y + 15, f"{ours:.3g} of {theirs:.3g} us")
    return picture.file(ABOUT)


@click.command()
@click.option("--out", default=PICTURE, type=click.Path(dir_okay=False, path_type=Path), help="File to write.")
def main(out: Path) -> None:
    """Draw the picture of README from the committed results."""
    out.write_text(draw(read_rows()))
    click.echo(f"written    {out}")


if __name__ == "__main__":
    main()
