"""Pictures as SVG text: the colours, and the marks that plots and charts consist of.

The plots of reports (plots.py) and the charts of the benchmarks are made of these, so that all look alike. A picture is a
few kilobytes and needs nothing else: no library, no font, no script. Colours are those of `COLOURS`, for light and dark
pages. A mark may have a `<title>`, which browsers show as a tooltip and screen readers read. Words may be anything: they are
escaped here.
"""

from __future__ import annotations

import html
from collections.abc import Iterable

__all__ = ["SERIES", "STYLE", "Drawing", "escape", "series_colour"]

SERIES = 6
"""Colours of series: `c0` to `c5`."""

COLOURS = """
:root { --ink: #1d2329; --dim: #66707a; --grid: #dfe3e7; --page: #ffffff; --card: #f7f8f9; --bad: #c62f3d; --quiet: #c3cad1;
        --c0: #1f6fb2; --c1: #d9731a; --c2: #2e8b57; --c3: #8a55b5; --c4: #a8743a; --c5: #c2558d; }
@media (prefers-color-scheme: dark) {
:root { --ink: #e4e8ec; --dim: #9aa4ae; --grid: #38414a; --page: #14181c; --card: #1c2126; --bad: #ff6b78; --quiet: #4b545d;
        --c0: #5aa9e6; --c1: #f2a154; --c2: #63c08b; --c3: #b993d9; --c4: #d0a274; --c5: #e58db8; } }
"""

STYLE = (
    COLOURS
    + """
svg text { font: 11px system-ui, sans-serif; fill: var(--dim); }
svg .name { fill: var(--ink); } svg .title { fill: var(--ink); font-weight: 600; }
svg .grid { stroke: var(--grid); stroke-width: 1; } svg .axis { stroke: var(--ink); } svg .aim { stroke: var(--ink); stroke-width: 2; }
svg .line { fill: none; stroke-width: 1.6; stroke-linejoin: round; }
svg .ring { fill: var(--page); fill-opacity: .8; stroke: var(--ink); }
svg .mark:hover { opacity: .65; }
"""
)
"""What a page or a file with pictures needs."""

FILE_STYLE = "svg { background: var(--page); } svg text { font-size: 12px; }"
"""What else a file needs: on a page, the page decides."""


def escape(text: str) -> str:
    """Text escaped for any place in a page. Control characters and lone surrogates, which HTML forbids, become a box."""
    return html.escape("".join(each if each.isprintable() or each == " " else "\u25a1" for each in text))


def series_colour(rank: int) -> str:
    """The colour of a series; after the last one, they begin anew."""
    return f"c{rank % SERIES}"


class Drawing:
    """The marks of a picture, in the order in which they are drawn.

    width, height  of the picture, in its own units
    Colours are names of COLOURS without the dashes, kinds those of STYLE. `said` is the title of a mark.
    """

    def __init__(self, width: float, height: float) -> None:
        self.width = width
        self.height = height
        self._marks: list[str] = []

    def text(self, x: float, y: float, words: str, *, kind: str = "", anchor: str = "start") -> None:
        """Words on a base line; `anchor` is what is at x: their start, middle or end."""
        placed = "" if anchor == "start" else f' text-anchor="{anchor}"'
        self._marks.append(f'<text{_kind(kind)} x="{x:.1f}" y="{y:.1f}"{placed}>{escape(words)}</text>')

    def line(self, x1: float, y1: float, x2: float, y2: float, *, kind: str = "grid") -> None:
        self._marks.append(f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>')

    def bar(
        self, x: float, y: float, width: float, height: float, said: str = "", *, colour: str = "", kind: str = "mark"
    ) -> None:
        self._mark("rect", f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"', said, colour, kind)

    def dot(
        self, x: float, y: float, radius: float, said: str = "", *, colour: str = "", kind: str = "", opacity: float = 1
    ) -> None:
        shape = f'cx="{x:.1f}" cy="{y:.1f}" r="{radius}"'
        self._mark("circle", shape, said, colour, kind, "" if opacity == 1 else f"opacity:{opacity}")

    def curve(self, points: Iterable[tuple[float, float]], said: str = "", *, colour: str) -> None:
        shape = f'class="line" points="{_points(points)}" style="stroke:var(--{colour})"'
        self._marks.append(f"<polyline {shape}{_titled('polyline', said)}")

    def area(self, points: Iterable[tuple[float, float]], *, colour: str) -> None:
        paint = f"fill:var(--{colour});stroke:var(--{colour});opacity:.22"
        self._marks.append(f'<polygon points="{_points(points)}" style="{paint}"/>')

    def _mark(self, tag: str, shape: str, said: str, colour: str, kind: str, more: str = "") -> None:
        paint = ";".join(each for each in (f"fill:var(--{colour})" if colour else "", more) if each)
        painted = f' style="{paint}"' if paint else ""
        self._marks.append(f"<{tag}{_kind(kind)} {shape}{painted}{_titled(tag, said)}")

    def svg(self, title: str) -> str:
        """The picture as a part of a page, which has STYLE; as wide as its place there."""
        return self._svg(title, "")

    def file(self, title: str) -> str:
        """The picture as the text of a file."""
        size = f' width="{self.width:g}" height="{self.height:g}"'
        return self._svg(title, size, f"<style>{STYLE}{FILE_STYLE}</style>", "\n") + "\n"

    def _svg(self, title: str, size: str, style: str = "", between: str = "") -> str:
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width:g} {self.height:g}"{size} role="img" '
            f'aria-label="{escape(title)}">{between.join([style, *self._marks])}</svg>'
        )


def _kind(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


def _points(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _titled(tag: str, said: str) -> str:
    """The end of a mark, with its title."""
    return f"><title>{escape(said)}</title></{tag}>" if said else "/>"
