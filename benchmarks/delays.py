"""Delays of messages: percentiles, the lines of the latency test, and the chart that compares servers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from streamd.report.drawing import Drawing, series_colour

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


def draw(title: str, panels: Mapping[str, Mapping[str, Delays]], notes: Sequence[str] = ()) -> str:
    """An SVG file: for each panel a curve per name, the delay at each percentile, both axes logarithmic.

    Tails matter most: the axis of percentiles gives 99% to 99.9% as much room as 90% to 99%. `notes` are printed below.
    """
    picture = Drawing(WIDTH, TOP + len(panels) * PANEL + 18 * len(notes) + 12)
    picture.text(12, 20, title, kind="title")
    for at, (name, curves) in enumerate(panels.items()):
        _draw_panel(picture, name, curves, top=TOP + at * PANEL)
    for at, note in enumerate(notes):
        picture.text(12, TOP + len(panels) * PANEL + 18 * at + 8, note)
    return picture.file(title)


def _decades(share: float) -> float:
    """The position of a percentile: 90% at 1, 99% at 2, 99.9% at 3."""
    return -math.log10(1 - share)


def _draw_panel(picture: Drawing, name: str, curves: Mapping[str, Delays], *, top: int) -> None:
    """One diagram, scaled to the longest delay and to the last percentile that the number of messages supports."""
    low = math.floor(math.log10(max(min(each.percentile(0) for each in curves.values()), 1)))
    high = max(math.ceil(math.log10(max(each.max for each in curves.values()))), low + 1)
    last = max(_decades(1 - 1 / (len(each.ordered) + 1)) for each in curves.values())
    left, right, head, foot = LEFT, WIDTH - RIGHT, top + 24, top + PANEL - BOTTOM - 18

    def x(decades: float) -> float:
        return left + min(decades / last, 1.0) * (right - left)

    def y(ns: float) -> float:
        return foot - (math.log10(max(ns, 1)) - low) / (high - low) * (foot - head)

    picture.text(left, top + 10, name, kind="title")
    for power in range(low, high + 1):
        level = y(10**power)
        picture.line(left, level, right, level)
        picture.text(left - 6, level + 4, _power(power), anchor="end")
    for share in MARKS:
        if _decades(share) <= last:
            place = x(_decades(share))
            picture.line(place, head, place, foot)
            picture.text(place, foot + 16, f"{share * 100:.6g}%", anchor="middle")
    for rank, (server, delays) in enumerate(curves.items()):
        colour = series_colour(rank)
        ends = _decades(1 - 1 / (len(delays.ordered) + 1))
        steps = [at / POINTS_PER_DECADE for at in range(math.ceil(ends * POINTS_PER_DECADE))]
        corners = [(x(each), y(delays.percentile(1 - 10**-each))) for each in steps] + [(x(ends), y(delays.max))]
        values = [show_ms(ns) for ns in delays.figures()]
        said = f"{server}, ms: p50 {values[0]}, p99 {values[1]}, p99.9 {values[2]}, longest {values[3]}"
        picture.curve(corners, said, colour=colour)
        line = head + 8 + 54 * rank
        picture.bar(right + 14, line - 9, 10, 10, colour=colour)
        picture.text(right + 30, line, server, kind="title")
        picture.text(right + 30, line + 15, f"p99 {values[1]} ms")
        picture.text(right + 30, line + 30, f"p99.9 {values[2]} ms")


def _power(power: int) -> str:
    """A power of ten of nanoseconds."""
    value, unit = (
        (10**power, "ns") if power < 3 else (10 ** (power - 3), "µs") if power < 6 else (10 ** (power - 6), "ms")
    )
    return f"{value:,} {unit}"
