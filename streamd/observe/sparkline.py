"""A row of numbers as a small text graph, for LATENCY GRAPH.

      _o#        The lowest number stands at the bottom, the highest at the top, with three steps to a line:
   _o#|||        `_`, `o`, `#`. Below each there is a stem, and below that a label, read from top to bottom.
_o#||||||
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

__all__ = ["draw"]

STEPS = "_o#"
STEM = "|"


def _column(height: int, rows: int) -> str:
    """A column from top to bottom; `height` counts steps from the bottom."""
    line, step = divmod(height, len(STEPS))
    return " " * (rows - 1 - line) + STEPS[step] + STEM * line


def draw(values: Sequence[float], labels: Sequence[str], *, rows: int = 4, columns: int = 80) -> str:
    """The graph of `values`, of `rows` lines; what does not fit into `columns` continues below, as another graph.

    labels  one for each value
    """
    low = min(values)
    span = max(values) - low or 1
    steps = rows * len(STEPS)
    heights = [min(steps - 1, int((value - low) / span * steps)) for value in values]
    parts = []
    for start in range(0, len(values), columns):
        end = start + columns
        lines = ["".join(line) for line in zip(*(_column(height, rows) for height in heights[start:end]), strict=True)]
        lines.append(" " * len(lines[0]))
        lines += ["".join(line) for line in zip_longest(*labels[start:end], fillvalue=" ")]
        parts.append("".join(f"{line}\n" for line in lines))
    return "\n".join(parts)
