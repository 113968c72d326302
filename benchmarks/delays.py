"""Delays of messages: percentiles, the lines of the latency test, and the chart that compares servers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from streamd.spark.report.plots import STYLE, escape

__all__ = ["NS_PER_MS", "SHARES", "Delays", "draw", "histogram_lines", "show_ms"]

NS_PER_MS = 1_000_000
SHARES = (0.5, 0.99, 0.999)
"""The percentiles that are shown, besides the longest delay."""
EXACT_MS = 100
"""Delays up to here have a line for each millisecond; above, each line covers a tenth of its decade."""


@dataclass(frozen=True)
class Delays:
    """Delays in nanoseconds, the shortest first."""

    ordered: Sequence[int]

    @classmethod
    def of(cls, *parts: Iterable[int]) -> Delays:
        """Of several rounds together."""
        return cls(sorted(each for part in parts for each in part))

    @property
    def max(self) -> int:
        return self.ordered[-1]

    def percentile(self, share: float) -> int:
        """The shortest delay that is not exceeded by this share of the messages."""
        # 0.999 * 1000 is slightly more than 999 as a float, and must not be rounded up to 1000.
        rank = math.ceil(round(share * len(self.ordered), 6))
        return self.ordered[max(rank, 1) - 1]

    def figures(self) -> list[int]:
        """The percentiles of SHARES, and the longest."""
        return [*(self.percentile(share) for share in SHARES), self.max]


def show_ms(ns: float) -> str:
    """A delay in milliseconds, without the unit."""
    ms = ns / NS_PER_MS
    return f"{ms:.3f}" if ms < 10 else f"{ms:.1f}" if ms < 1000 else f"{ms:,.0f}"


def histogram_lines(delays: Delays) -> list[str]:
    """`Processed between 0 and 1 ms -> 74.11%` for each millisecond in which there were any."""
    counts: dict[int, int] = {}
    for ns in delays.ordered:
        low = ns // NS_PER_MS
        if low >= EXACT_MS:
            low -= low % _width_ms(low)
        counts[low] = counts.get(low, 0) + 1
    total = len(delays.ordered)
    return [
        f"Processed between {low} and {low + _width_ms(low)} ms -> {_percent(count / total)}"
        for low, count in counts.items()
    ]


def _width_ms(low: int) -> int:
    """Width in milliseconds of the line that contains this one."""
    return 1 if low < EXACT_MS else 10 ** (len(str(low)) - 1)


def _percent(share: float) -> str:
    """Two decimals; never rounded to 0 % or 100 %."""
    if share < 0.00005:
        return "<0.01%"
    if 0.99995 <= share < 1:
        return ">99.99%"
    return f"{share:.2%}"


# --- The picture ----------------------------------------------------------------------------------------------------------

WIDTH, PANEL, LEFT, RIGHT, TOP, BOTTOM = 760, 300, 64, 170, 44, 26
MARKS = (0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999)
POINTS_PER_DECADE = 24
PAGE = "svg { background: var(--page); } svg .name { fill: var(--ink); font-weight: 600; }"


def draw(title: str, panels: Mapping[str, Mapping[str, Delays]], notes: Sequence[str] = ()) -> str:
    """An SVG file: for each panel a curve per name, the delay at each percentile, both axes logarithmic.

    Tails matter most: the axis of percentiles gives 99% to 99.9% as much room as 90% to 99%. `notes` are printed below.
    """
    height = TOP + len(panels) * PANEL + 18 * len(notes) + 12
    parts = [f'<text class="name" x="12" y="20">{escape(title)}</text>']
    for at, (name, curves) in enumerate(panels.items()):
        parts += _panel(name, curves, top=TOP + at * PANEL)
    for at, note in enumerate(notes):
        parts.append(f'<text x="12" y="{TOP + len(panels) * PANEL + 18 * at + 8}">{escape(note)}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" aria-label="{escape(title)}"><style>{STYLE}{PAGE}</style>{"".join(parts)}</svg>\n'
    )


def _decades(share: float) -> float:
    """The position of a percentile: 90% at 1, 99% at 2, 99.9% at 3."""
    return -math.log10(1 - share)


def _panel(name: str, curves: Mapping[str, Delays], *, top: int) -> list[str]:
    """One diagram, scaled to the longest delay and to the last percentile that the number of messages supports."""
    low = math.floor(math.log10(max(min(each.percentile(0) for each in curves.values()), 1)))
    high = max(math.ceil(math.log10(max(each.max for each in curves.values()))), low + 1)
    last = max(_decades(1 - 1 / (len(each.ordered) + 1)) for each in curves.values())
    left, right, head, foot = LEFT, WIDTH - RIGHT, top + 24, top + PANEL - BOTTOM - 18

    def x(decades: float) -> float:
        return left + min(decades / last, 1.0) * (right - left)

    def y(ns: float) -> float:
        return foot - (math.log10(max(ns, 1)) - low) / (high - low) * (foot - head)

    parts = [f'<text class="name" x="{left}" y="{top + 10}">{escape(name)}</text>']
    for power in range(low, high + 1):
        level = y(10**power)
        parts.append(f'<line class="grid" x1="{left}" x2="{right}" y1="{level:.1f}" y2="{level:.1f}"/>')
        parts.append(f'<text x="{left - 6}" y="{level + 4:.1f}" text-anchor="end">{_power(power)}</text>')
    for share in MARKS:
        if _decades(share) <= last:
            place = x(_decades(share))
            parts.append(f'<line class="grid" x1="{place:.1f}" x2="{place:.1f}" y1="{head}" y2="{foot}"/>')
            parts.append(f'<text x="{place:.1f}" y="{foot + 16}" text-anchor="middle">{share * 100:.6g}%</text>')
    for rank, (server, delays) in enumerate(curves.items()):
        colour = f"var(--c{rank})"
        ends = _decades(1 - 1 / (len(delays.ordered) + 1))
        steps = [at / POINTS_PER_DECADE for at in range(math.ceil(ends * POINTS_PER_DECADE))]
        corners = [(x(each), y(delays.percentile(1 - 10**-each))) for each in steps] + [(x(ends), y(delays.max))]
        points = " ".join(f"{across:.1f},{down:.1f}" for across, down in corners)
        values = [show_ms(ns) for ns in delays.figures()]
        said = escape(f"{server}, ms: p50 {values[0]}, p99 {values[1]}, p99.9 {values[2]}, longest {values[3]}")
        parts.append(
            f'<polyline class="line" points="{points}" style="stroke:{colour}"><title>{said}</title></polyline>'
        )
        line = head + 8 + 54 * rank
        parts.append(
            f'<rect x="{right + 14}" y="{line - 9}" width="10" height="10" style="fill:{colour}"/>'
            f'<text class="name" x="{right + 30}" y="{line}">{escape(server)}</text>'
            f'<text x="{right + 30}" y="{line + 15}">p99 {values[1]} ms</text>'
            f'<text x="{right + 30}" y="{line + 30}">p99.9 {values[2]} ms</text>'
        )
    return parts


def _power(power: int) -> str:
    """A power of ten of nanoseconds."""
    value, unit = (
        (10**power, "ns") if power < 3 else (10 ** (power - 3), "µs") if power < 6 else (10 ** (power - 6), "ms")
    )
    return f"{value:,} {unit}"
