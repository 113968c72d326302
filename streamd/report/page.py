"""A report as a self-contained HTML page: plots and tables."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from streamd.report.drawing import escape
from streamd.report.plots import LAST_DATE_MS, STYLE, Series, bars, duration, figure, time_plot, when
from streamd.report.profile import GAP_EDGES_MS, Profile

__all__ = ["Report", "render_html"]

DAY_MS = 86_400_000

PAGE_STYLE = """
body { margin: 0 auto; max-width: 52rem; padding: 1.5rem 1rem 3rem; color: var(--ink); background: var(--page);
       font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .2rem; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2rem 0 .3rem; }
p { margin: .3rem 0; color: var(--dim); }
figure { margin: .6rem 0; padding: .6rem .8rem; background: var(--card); border-radius: .5rem; }
figcaption { font-weight: 600; margin-bottom: .3rem; }
svg { width: 100%; height: auto; display: block; }
table { border-collapse: collapse; width: 100%; font-size: .88rem; margin: .6rem 0; display: block; overflow-x: auto; }
th { text-align: left; color: var(--dim); font-weight: 500; }
th, td { padding: .25rem .8rem .25rem 0; border-bottom: 1px solid var(--grid); vertical-align: top; white-space: nowrap; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
dl { display: flex; flex-wrap: wrap; gap: .4rem 2rem; margin: .8rem 0; }
dt { color: var(--dim); font-size: .8rem; } dd { margin: 0; font-size: 1.15rem; }
"""


@dataclass(frozen=True)
class Report:
    """What was found out about a stream. A notebook displays it as a page."""

    stream: str
    server: str  # name and version
    made_ms: int  # Unix time of the server
    length: int  # entries that the server holds
    source: str  # how the entries were read, in words
    profile: Profile

    def _repr_html_(self) -> str:
        """The page in an iframe, since its style is for a whole page."""
        page = html.escape(render_html(self), quote=True)
        return f'<iframe srcdoc="{page}" sandbox="" style="width: 100%; height: 60rem; border: 0"></iframe>'


def render_html(report: Report) -> str:
    """The report as a self-contained page: it loads nothing and runs no script."""
    body = "\n".join([_heading(report), *_shape(report.profile), *_numbers(report.profile)])
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(report.stream)}: streamd report</title><style>{STYLE}{PAGE_STYLE}</style></head>\n"
        f"<body>\n{body}\n</body></html>\n"
    )


def _figure(caption: str, plot: str) -> str:
    return f"<figure><figcaption>{escape(caption)}</figcaption>{plot}</figure>" if plot else ""


def _moment(ms: int) -> str:
    return f"{when(ms, DAY_MS)} {when(ms, 1000)}" if ms <= LAST_DATE_MS else when(ms)


def _table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table; cells are escaped. The last column holds numbers, the others text."""

    def row(tag: str, cells: Sequence[str]) -> str:
        *words, number = map(escape, cells)
        return "".join(f"<{tag}>{word}</{tag}>" for word in words) + f'<{tag} class="n">{number}</{tag}>'

    body = "".join(f"<tr>{row('td', line)}</tr>" for line in lines)
    return f"<table><thead><tr>{row('th', heads)}</tr></thead><tbody>{body}</tbody></table>" if body else ""


def _heading(report: Report) -> str:
    profile = report.profile
    facts = [("entries looked at", f"{profile.entries:,}"), ("in the server", f"{report.length:,}")]
    if profile.entries:
        facts += [
            ("from", _moment(profile.first_ms)),
            ("over", duration((profile.last_ms - profile.first_ms) / 1000)),
            ("entries per second", figure(profile.per_second)),
        ]
    listed = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts)
    part = "" if profile.is_whole else " Only the newest entries were looked at."
    made = f"{_moment(report.made_ms)} UTC"
    return (
        f"<h1>{escape(report.stream)}</h1><p>{escape(report.server)}, {made}; {escape(report.source)}.{part} "
        f"All times are UTC, those of entries are of their IDs.</p><dl>{listed}</dl>"
    )


def _shape(profile: Profile) -> list[str]:
    if not profile.entries:
        return ["<h2>Entries</h2><p>There are none in this range.</p>"]
    middles = [each.start_ms + profile.bin_ms // 2 for each in profile.bins]
    rate = _rates(profile)
    width = duration(profile.bin_ms / 1000)
    series = Series("rate", middles, rate, low=[None if each is None else 0.0 for each in rate], high=rate)
    gaps, labels, details = _classes(list(profile.gaps))
    worst = [
        (_moment(each.until_ms - each.ms), _moment(each.until_ms), duration(each.ms / 1000))
        for each in profile.longest_gaps
    ]
    return [
        "<h2>Entries</h2>",
        _figure(f"Rate, in bins of {width}", time_plot("rate over time", series, unit="entries/s")),
        _figure("Gaps between entries", bars("gaps between entries", labels, gaps, details, unit="gaps")),
        _table(("longest gaps: from", "to", "length"), worst),
    ]


def _rates(profile: Profile) -> list[float | None]:
    """Entries per second in each bin.

    The first and the last bin count only as far as there are entries. Such a part begins, or ends, with an entry, which is not
    counted: what is left came in the time that is left. Of less than half a bin nothing is said.
    """
    found: list[float | None] = []
    for each in profile.bins:
        low, high = max(each.start_ms, profile.first_ms), min(each.start_ms + profile.bin_ms, profile.last_ms)
        is_part = high - low < profile.bin_ms
        if is_part and (not high - low or (len(profile.bins) > 1 and high - low < profile.bin_ms / 2)):
            found.append(None)
        else:
            found.append((each.entries - is_part) * 1000 / (high - low))
    return found


def _classes(counts: list[int]) -> tuple[list[int], list[str], list[str]]:
    """Counts by classes of time without the empty ones at both ends, with a label and words for each."""
    used = [at for at, many in enumerate(counts) if many]
    if not used:
        return [], [], []
    span = range(used[0], used[-1] + 1)
    labels = [duration(GAP_EDGES_MS[at] / 1000).replace(" ", "") if GAP_EDGES_MS[at] else "0" for at in span]
    details = []
    for at in span:
        low = duration(GAP_EDGES_MS[at] / 1000)
        if at + 1 == len(GAP_EDGES_MS):
            details.append(f"{low} or more")
        elif GAP_EDGES_MS[at + 1] - GAP_EDGES_MS[at] == 1:
            details.append(low)
        else:
            details.append(f"from {low} to less than {duration(GAP_EDGES_MS[at + 1] / 1000)}")
    return [counts[at] for at in span], labels, details


def _numbers(profile: Profile) -> list[str]:
    if not profile.entries or not profile.fields:
        return []
    found = []
    middles = [each.start_ms + profile.bin_ms // 2 for each in profile.bins]
    for at, name in enumerate(profile.fields):
        spreads = [each.numbers[at] for each in profile.bins]
        series = Series(
            name,
            middles,
            [each.mean if each else None for each in spreads],
            low=[each.low if each else None for each in spreads],
            high=[each.high if each else None for each in spreads],
        )
        found.append(_figure(f"{name}: mean, least and greatest", time_plot(name, series, unit="", from_zero=False)))
    return ["<h2>Numeric fields</h2>", *found] if any(found) else []
