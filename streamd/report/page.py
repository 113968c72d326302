"""A report as a self-contained HTML page: plots and tables."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from streamd.report.drawing import escape
from streamd.report.groups import GroupLag
from streamd.report.model import Findings
from streamd.report.plots import (
    LAST_DATE_MS,
    STYLE,
    Series,
    bars,
    duration,
    figure,
    legend,
    rows,
    time_plot,
    when,
)
from streamd.report.profile import GAP_EDGES_MS, Profile

__all__ = ["render_html"]

DAY_MS = 86_400_000
SHOWN_DEAD_LETTERS = 50
SHOWN_VALUE = 120
"""Characters of a dead letter's fields that are shown."""

FOLDED_DELIVERIES = 12
"""Delivery counts from here on share a bar."""


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
td:first-child { white-space: normal; overflow-wrap: anywhere; min-width: 8.5rem; }
td.long { white-space: normal; overflow-wrap: anywhere; min-width: 14rem; font-family: ui-monospace, monospace; }
.bad { color: var(--bad); }
dl { display: flex; flex-wrap: wrap; gap: .4rem 2rem; margin: .8rem 0; }
dt { color: var(--dim); font-size: .8rem; } dd { margin: 0; font-size: 1.15rem; }
"""


def render_html(report: Findings) -> str:
    """The report as a self-contained page: it loads nothing and runs no script."""
    profile = report.profile
    sections = [
        _heading(report),
        *_shape(profile),
        *_numbers(profile),
        *_groups(report),
        *_pending(report),
        *_processing(report),
        *_dead_letters(report),
    ]
    body = "\n".join(each for each in sections if each)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(report.stream)}: streamd report</title><style>{STYLE}{PAGE_STYLE}</style></head>\n"
        f"<body>\n{body}\n</body></html>\n"
    )


def _figure(caption: str, plot: str, names: Sequence[str] = ()) -> str:
    """A plot below its caption and, of several names, a legend."""
    return f"<figure><figcaption>{escape(caption)}</figcaption>{legend(names)}{plot}</figure>" if plot else ""


def _moment(ms: int) -> str:
    return f"{when(ms, DAY_MS)} {when(ms, 1000)}" if ms <= LAST_DATE_MS else when(ms)


def _table(
    heads: Sequence[str], lines: Iterable[Sequence[str]], *, text_columns: int = 1, long_column: int | None = None
) -> str:
    """A table; cells are escaped. The first columns are text, one of them maybe a long one, the others numbers."""

    def row(tag: str, cells: Sequence[str]) -> str:
        kinds = ["" if at < text_columns else ' class="n"' for at in range(len(cells))]
        if long_column is not None:
            kinds[long_column] = ' class="long"'
        return "".join(f"<{tag}{kind}>{escape(cell)}</{tag}>" for kind, cell in zip(kinds, cells, strict=True))

    body = "".join(f"<tr>{row('td', line)}</tr>" for line in lines)
    return f"<table><thead><tr>{row('th', heads)}</tr></thead><tbody>{body}</tbody></table>" if body else ""


def _optional(seconds: float | None) -> str:
    return "?" if seconds is None else duration(seconds)


def _count(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"


def _heading(report: Findings) -> str:
    profile = report.profile
    facts = [("entries looked at", f"{profile.entries:,}"), ("in the server", f"{report.length:,}")]
    if profile.entries:
        facts += [
            ("from", _moment(profile.first_ms)),
            ("over", duration((profile.last_ms - profile.first_ms) / 1000)),
            ("entries per second", figure(profile.per_second)),
        ]
    facts.append(("groups", f"{len(report.states):,}"))
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
        _figure(f"Rate, in bins of {width}", time_plot("rate over time", [series], unit="entries/s")),
        _figure(
            "Gaps between entries", bars("gaps between entries", labels, {"gaps": gaps}, unit="gaps", details=details)
        ),
        _table(("longest gaps: from", "to", "length"), worst, text_columns=2),
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
        found.append(_figure(f"{name}: mean, least and greatest", time_plot(name, [series], unit="", from_zero=False)))
    return ["<h2>Numeric fields</h2>", *found] if any(found) else []


def _groups(report: Findings) -> list[str]:
    if not report.states:
        return ["<h2>Consumer groups</h2><p>There are none.</p>"]
    lags = [state.lag for state in report.states]
    names = [lag.group for lag in lags]
    entries = rows(
        "lag in entries", names, [lag.lag or 0 for lag in lags], [f"{_count(lag.lag)} entries" for lag in lags]
    )
    seconds = rows("lag in time", names, [lag.lag_s or 0.0 for lag in lags], [_optional(lag.lag_s) for lag in lags])
    counted = [lag.group for lag in lags if lag.is_lag_counted]
    lines = [
        (
            lag.group, str(lag.consumers), _count(lag.lag), _optional(lag.lag_s), _count(lag.pending),
            "-" if lag.oldest_pending_s is None else duration(lag.oldest_pending_s), lag.last_delivered_id,
        )
        for lag in lags
    ]  # fmt: skip
    return [
        "<h2>Consumer groups</h2>",
        f"<p>Lag is what {escape(report.server)} says; servers differ in it after trims."
        + (f" Counted, since the server does not know: {escape(', '.join(counted))}." if counted else "")
        + "</p>",
        _figure("Lag in entries, not yet delivered", entries),
        _figure("Lag in time: age of the oldest entry not yet delivered", seconds),
        _figure("Lag while watching", _over_time(report.lags, names, lambda lag: lag.lag, "entries"), names),
        _figure("Pending while watching", _over_time(report.lags, names, lambda lag: lag.pending, "entries"), names),
        _table(("group", "consumers", "lag", "lag in time", "pending", "oldest pending", "last delivered"), lines),
    ]


def _over_time(
    lags: Sequence[GroupLag], names: Sequence[str], value: Callable[[GroupLag], int | None], unit: str
) -> str:
    """A line for each group; nothing when there was one look only."""
    series = []
    for name in names:
        own = [each for each in lags if each.group == name]
        series.append(Series(name, [each.observed_ms for each in own], [value(each) for each in own]))
    if all(len(each.times_ms) < 2 for each in series):
        return ""
    return time_plot(f"{unit} over time", series, unit=unit)


def _histogram(title: str, caption: str, times_s: dict[str, list[float]], unit: str) -> str:
    """Times by group in classes, as a figure."""
    stacks = {}
    for name, found in times_s.items():
        counts = [0] * len(GAP_EDGES_MS)
        for each in found:
            # Clocks that differ, and IDs chosen by clients, lead to negative times.
            counts[bisect_right(GAP_EDGES_MS, max(0.0, each * 1000)) - 1] += 1
        stacks[name] = counts
    together = [sum(column) for column in zip(*stacks.values(), strict=True)]
    _, labels, details = _classes(together)
    used = [at for at, many in enumerate(together) if many]
    if not used:
        return ""
    cut = {name: counts[used[0] : used[-1] + 1] for name, counts in stacks.items()}
    return _figure(caption, bars(title, labels, cut, unit=unit, details=details), list(cut))


def _by_group(report: Findings, records: Iterable[Any], value: Callable[[Any], float | None]) -> dict[str, list[float]]:
    """Times by group: of all groups, so that each has its colour in every plot."""
    found: dict[str, list[float]] = {state.group: [] for state in report.states}
    for each in records:
        number = value(each)
        if number is not None and each.group in found:
            found[each.group].append(number)
    return found


def _pending(report: Findings) -> list[str]:
    pending = [each for state in report.states for each in state.pending]
    if not pending:
        return []
    partly = [state.group for state in report.states if not state.is_pending_complete]
    counts = Counter(min(each.deliveries, FOLDED_DELIVERIES) for each in pending)
    numbers = range(1, max(counts) + 1)
    labels = [f"{each}+" if each == FOLDED_DELIVERIES else str(each) for each in numbers]
    by_consumer = Counter((each.group, each.consumer) for each in pending)
    oldest = {(each.group, each.consumer): each.idle_s for each in sorted(pending, key=lambda each: each.idle_s)}
    lines = [
        (group, consumer, f"{many:,}", duration(oldest[group, consumer]))
        for (group, consumer), many in by_consumer.most_common(20)
    ]
    deliveries = bars(
        "delivery counts", labels, {"entries": [counts[each] for each in numbers]}, unit="entries",
        details=[f"delivered {label} times" for label in labels], is_bad=[each > report.above for each in numbers],
    )  # fmt: skip
    return [
        "<h2>Pending entries</h2>",
        f"<p>Only the first of them were looked at, of: {escape(', '.join(partly))}.</p>" if partly else "",
        _histogram("pending ages", "Age: time since the last delivery", _by_group(report, pending, lambda each: each.idle_s), "entries"),
        _histogram(
            "delivery latency", "Delivery latency: from the entry's ID to its last delivery",
            _by_group(report, pending, lambda each: each.delivery_latency_s), "entries",
        ),
        _figure(f"Delivery counts; more than {report.above} is too often", deliveries),
        _table(("group", "consumer", "pending", "longest idle"), lines, text_columns=2),
    ]  # fmt: skip


def _processing(report: Findings) -> list[str]:
    if not report.throughputs:
        return []
    lines = []
    for state in report.states:
        own = [each for each in report.throughputs if each.group == state.group]
        seconds = sum(each.seconds for each in own)
        if not own or not seconds:
            continue
        acked, read = sum(each.acked for each in own), sum(each.read for each in own)
        waiting = sum(each.processing_s * each.acked for each in own if each.processing_s is not None)
        lines.append(
            (
                state.group, duration(seconds), f"{figure(read / seconds)}/s", f"{figure(acked / seconds)}/s",
                duration(waiting / acked) if acked else "-",
            )
        )  # fmt: skip
    return [
        "<h2>Processing, while watching</h2>",
        "<p>An acknowledgement is seen as an entry that is no longer pending: its time is the middle of the possible range. "
        "Entries that came and went between two looks are only in the means of the table.</p>",
        _histogram(
            "processing latency", "Processing: from delivery to acknowledgement",
            _by_group(report, report.acks, lambda each: each.processing_s), "entries",
        ),
        _table(("group", "watched", "read", "acknowledged", "pending on average"), lines),
    ]  # fmt: skip


def _dead_letters(report: Findings) -> list[str]:
    if not report.dead_letters:
        return []
    shown = report.dead_letters[:SHOWN_DEAD_LETTERS]
    lines = []
    for each in shown:
        content = " ".join(
            f"{name.decode(errors='replace')}={value.decode(errors='replace')}" for name, value in each.fields
        )
        cut = content if len(content) <= SHOWN_VALUE else f"{content[: SHOWN_VALUE - 1]}…"
        content = "deleted from the stream" if each.is_deleted else cut
        lines.append((each.group, each.consumer, each.id, content, f"{each.deliveries:,}", duration(each.idle_s)))
    more = (
        f" The first {len(shown):,} of {len(report.dead_letters):,}." if len(report.dead_letters) > len(shown) else ""
    )
    return [
        f'<h2 class="bad">Dead letters: delivered more than {report.above} times</h2>',
        f"<p>{len(report.dead_letters):,} pending entries that no consumer finishes.{more}</p>",
        _table(("group", "consumer", "entry", "holds", "deliveries", "idle"), lines, text_columns=4, long_column=3),
    ]
