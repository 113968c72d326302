"""The plots of a report: lines and bands over time, and bars, made of what drawing.py draws."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from streamd.report import drawing
from streamd.report.drawing import Drawing

__all__ = ["STYLE", "Series", "bars", "duration", "figure", "time_plot", "when"]

WIDTH, HEIGHT = 760, 220
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 14, 30
WIDEST_BAR = 90
NUMBERED_BARS = 24
"""Up to this number of bars have their value written above them, since a bar may be too small to be seen."""
LABEL = 46
"""The room of a label."""
WIDE_BAR = 60
"""From here on a bar has room for its value, however large the text is drawn."""
CLEAR_OF_UNIT = TOP + 15
"""From here downwards a label of the axis does not touch its unit, however large the text is drawn."""
COLOUR = "c0"
LAST_DATE_MS = 253_402_300_799_999

STYLE = (
    drawing.STYLE
    + """
svg { overflow: visible; }
@media (max-width: 36rem) {
svg text { font-size: 23px; }
svg .minor { display: none; } }
"""
)
"""A plot is as wide as its page. On a narrow one its text is drawn larger, and `minor` text, which would then overlap, is left out."""


@dataclass(frozen=True)
class Series:
    """Values over time; None leaves a hole. `low` and `high` make a band around them."""

    name: str
    times_ms: Sequence[int]
    values: Sequence[float | None]
    low: Sequence[float | None] | None = None
    high: Sequence[float | None] | None = None


# --- Words and numbers ----------------------------------------------------------------------------------------------------


def figure(value: float) -> str:
    """A number for an axis: short, with as many digits as needed."""
    if value == 0:
        return "0"
    size = abs(value)
    for bound, sign in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if bound <= size < 1e18:
            return f"{value / (bound if bound != 1e4 else 1e3):.3g}{sign}"
    return f"{value:,.4g}" if 1e-4 <= size < 1e15 else f"{value:.3g}"


def duration(seconds: float) -> str:
    """A length of time in a suitable unit."""
    if seconds < 0:
        return f"-{duration(-seconds)}"
    for length, unit in ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        if seconds >= length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds * 1000:.3g} ms"


def when(ms: int, step_ms: int = 1) -> str:
    """A moment, in UTC, with the precision of the step between moments."""
    if not 0 <= ms <= LAST_DATE_MS:
        return f"{ms} ms"
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    if step_ms >= 86_400_000:
        return moment.strftime("%Y-%m-%d")
    if step_ms >= 60_000:
        return moment.strftime("%m-%d %H:%M")
    if step_ms >= 1000:
        return moment.strftime("%H:%M:%S")
    return moment.strftime("%H:%M:%S.") + f"{ms % 1000:03d}"


def nice_step(span: float, parts: int) -> float:
    """A round number that cuts a span into about so many parts."""
    if span <= 0 or not math.isfinite(span):
        return 1.0
    rough = span / parts
    scale = 10.0 ** math.floor(math.log10(rough))
    return next((each * scale for each in (1, 2, 5) if each * scale >= rough), 10 * scale)


def ticks(low: float, high: float, parts: int = 4) -> list[float]:
    """Round values between two others."""
    step = nice_step(high - low, parts)
    first = math.ceil(low / step - 1e-9)
    return [each * step for each in range(first, math.floor(high / step + 1e-9) + 1)]


_TIME_STEPS_MS = (
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000, 600_000,
    900_000, 1_800_000, 3_600_000, 7_200_000, 10_800_000, 21_600_000, 43_200_000, 86_400_000, 172_800_000, 604_800_000,
    2_419_200_000,
)  # fmt: skip


def time_ticks(low: int, high: int, parts: int = 6) -> tuple[list[int], int]:
    """Round moments between two others, and the step between them."""
    rough = max(1, (high - low) // parts)
    step = next((each for each in _TIME_STEPS_MS if each >= rough), 0) or math.ceil(rough / 86_400_000) * 86_400_000
    return list(range(-(-low // step) * step, high + 1, step)), step


# --- Drawing --------------------------------------------------------------------------------------------------------------


class _Frame(Drawing):
    """The area of a plot, and how values are placed in it."""

    def __init__(self, low: float, high: float) -> None:
        super().__init__(WIDTH, HEIGHT)
        self.low, self.high = low, high if high > low else low + 1
        self.top, self.bottom = TOP + 6, HEIGHT - BOTTOM
        self.left, self.right = LEFT, WIDTH - RIGHT

    def y(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return self.bottom - share * (self.bottom - self.top)

    def x(self, ms: int, first: int, last: int) -> float:
        """The place of a moment. Times are whole numbers of any size: they are subtracted before they become floats."""
        return self.left + (ms - first) / max(1, last - first) * (self.right - self.left)

    def value_axis(self, unit: str) -> None:
        for value in ticks(self.low, self.high):
            self.line(self.left, self.y(value), self.right, self.y(value))
            if self.y(value) > CLEAR_OF_UNIT:
                self.text(self.left - 6, self.y(value) + 4, figure(value), anchor="end")
        self.text(2, TOP - 3, unit)

    def label(self, x: float, text: str, *, is_minor: bool) -> None:
        self.text(x, self.bottom + 22, text, kind="minor" if is_minor else "", anchor="middle")


def time_plot(title: str, series: Series, *, unit: str, from_zero: bool = True) -> str:
    """A line over time, and a band if the series has one; nothing without values.

    from_zero  whether the axis must start at 0
    """
    columns = (series.values, series.low or (), series.high or ())
    seen = [each for column in columns for each in column if each is not None and math.isfinite(each)]
    if not seen:
        return ""
    low = min(0.0, *seen) if from_zero else min(seen)
    spare = 0.06 * ((max(seen) - low) or abs(low) or 1)
    frame = _Frame(low if from_zero else low - spare, max(seen) + spare)
    first, last = min(series.times_ms), max(series.times_ms)
    frame.value_axis(unit)
    marks, step = time_ticks(first, last)
    for number, ms in enumerate(marks):
        if frame.left + 16 < frame.x(ms, first, last) < frame.right - 24 or len(marks) < 3:
            frame.label(frame.x(ms, first, last), when(ms, step), is_minor=number % 2 == 1)
    xs = [frame.x(ms, first, last) for ms in series.times_ms]
    if series.low is not None and series.high is not None:
        _draw_band(frame, xs, series.low, series.high)
    _draw_line(frame, xs, series, unit)
    return frame.svg(title)


def _runs(*columns: Sequence[float | None]) -> Iterator[range]:
    """The places where all columns have values, in unbroken runs."""
    start = None
    for at, values in enumerate(zip(*columns, strict=True)):
        has_all = all(each is not None and math.isfinite(each) for each in values)
        if has_all and start is None:
            start = at
        elif not has_all and start is not None:
            yield range(start, at)
            start = None
    if start is not None:
        yield range(start, len(columns[0]))


def _draw_band(frame: _Frame, xs: list[float], low: Sequence[float | None], high: Sequence[float | None]) -> None:
    for run in _runs(low, high):
        edge = [(xs[at], high[at]) for at in run] + [(xs[at], low[at]) for at in reversed(run)]
        frame.area([(x, frame.y(value or 0.0)) for x, value in edge], colour=COLOUR)


def _draw_line(frame: _Frame, xs: list[float], one: Series, unit: str) -> None:
    for run in _runs(one.values):
        frame.curve([(xs[at], frame.y(one.values[at] or 0.0)) for at in run], colour=COLOUR)
        for at in run:
            value = one.values[at] or 0.0
            said = f"{one.name}, {when(one.times_ms[at], 1000)}: {figure(value)} {unit}"
            # Visible only where a line is a single point; has a tooltip everywhere.
            frame.dot(xs[at], frame.y(value), 3, said, colour=COLOUR, opacity=1 if len(run) == 1 else 0)


def bars(title: str, labels: Sequence[str], values: Sequence[int], details: Sequence[str], *, unit: str) -> str:
    """Vertical bars; nothing when all are 0. `details` are the tooltips of the bars."""
    if not any(values):
        return ""
    frame = _Frame(0, max(values) * 1.12)
    frame.value_axis(unit)
    width = min((frame.right - frame.left) / len(labels), WIDEST_BAR)
    every = max(1, math.ceil(len(labels) * LABEL / (frame.right - frame.left)))
    for at, (label, value, detail) in enumerate(zip(labels, values, details, strict=True)):
        x, top = frame.left + at * width, frame.y(value)
        if value:
            height = max(frame.bottom - top, 2.0)
            said = f"{detail}: {figure(value)} {unit}"
            frame.bar(x + width * 0.08, frame.bottom - height, width * 0.84, height, said, colour=COLOUR)
        if value and len(labels) <= NUMBERED_BARS:
            is_wide = width >= WIDE_BAR
            text = figure(value) if is_wide or not 1000 <= value < 10_000 else f"{value / 1000:.2g}k"
            frame.text(x + width / 2, top - 4, text, kind="" if is_wide else "minor", anchor="middle")
        if at % every == 0:
            frame.label(x + width / 2, label, is_minor=width * every < 2 * LABEL and at // every % 2 == 1)
    return frame.svg(title)
