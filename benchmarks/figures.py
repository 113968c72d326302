"""The picture of README: server CPU of the main operations, streamd beside Redis, from the results of a run.

python -m benchmarks.figures        draws docs/figures.svg from benchmarks/results/results.json
"""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from pathlib import Path

import click

from benchmarks.cases import Row
from benchmarks.report import RESULTS, rows_of
from benchmarks.servers import BASE

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
STYLE = """
svg { --ink: #24292f; --dim: #66707a; --ours: #2f7fc1; --theirs: #c3cad1; }
@media (prefers-color-scheme: dark) { svg { --ink: #e4e8ec; --dim: #9aa4ae; --ours: #5aa9e6; --theirs: #4b545d; } }
text { font: 13px system-ui, sans-serif; fill: var(--ink); }
.dim { fill: var(--dim); } .title { font-weight: 600; } .ours { fill: var(--ours); } .theirs { fill: var(--theirs); }
"""
ABOUT = "Server CPU per operation, streamd (blue) beside Redis 8.6 (grey); shorter is better"


def read_rows(file: Path = RESULTS / "results.json") -> list[Row]:
    return rows_of(json.loads(file.read_text())["rows"])


def draw(rows: Sequence[Row]) -> str:
    """An SVG with a pair of bars for each operation of SHOWN. Raises KeyError when a row is missing."""
    by_name = {row.name: row for row in rows}
    unit = PLOT / max(1, *(ratio for name in SHOWN if (ratio := 1 / (by_name[name].ratio(of="cpu_us") or 1))))
    height = TOP + LINE * len(SHOWN) + BOTTOM
    width = LABELS + PLOT + VALUES
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
        f"<title>{ABOUT}</title><style>{STYLE}</style>",
        f'<text class="title" x="8" y="22">{ABOUT}</text>',
    ]
    for at, (name, label) in enumerate(SHOWN.items()):
        cells = by_name[name].cells
        ours, theirs = cells["streamd"].cpu_us, cells[BASE].cpu_us
        y = TOP + LINE * at
        words = html.escape(f"{label}: streamd {ours:.3g} us, Redis {theirs:.3g} us")
        out += [
            f"<g><title>{words}</title>",
            f'<text x="{LABELS - 10}" y="{y + 15}" text-anchor="end">{html.escape(label)}</text>',
            f'<rect class="theirs" x="{LABELS}" y="{y}" width="{unit:.1f}" height="22"/>',
            f'<rect class="ours" x="{LABELS}" y="{y + 4}" width="{ours / theirs * unit:.1f}" height="14"/>',
            f'<text class="dim" x="{LABELS + PLOT + 8}" y="{y + 15}">{ours:.3g} of {theirs:.3g} us</text></g>',
        ]
    return "\n".join([*out, "</svg>", ""])


@click.command()
@click.option("--out", default=PICTURE, type=click.Path(dir_okay=False, path_type=Path), help="File to write.")
def main(out: Path) -> None:
    """Draw the picture of README from the committed results."""
    out.write_text(draw(read_rows()))
    click.echo(f"written    {out}")


if __name__ == "__main__":
    main()
