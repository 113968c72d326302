"""The shape of a stream over time: entries, gaps and numbers, in a hundred or so bins.

`read_profile` reads the entries, newest first, up to a limit, in some 3 us each; `profile_of` takes those of whoever has them in
order. A gap is the time between two neighbours, and belongs to the bin of the later one.
"""

from __future__ import annotations

import itertools
import math
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from streamd.client.connection import Connection
from streamd.client.key_names import stream_key, stream_name
from streamd.client.points import MAX_ID, MIN_ID, format_entry_id, parse_entry_id
from streamd.report.field_numbers import find_number

__all__ = [
    "GAP_EDGES_MS",
    "Bin",
    "Gap",
    "Profile",
    "Spread",
    "bin_width",
    "find_numeric_fields",
    "profile_of",
    "read_profile",
]

PAGE = 2000
"""Entries per request: more make other clients of the server wait, fewer cost round trips."""

BINS = 120
LONGEST_GAPS = 5

GAP_EDGES_MS = (
    0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 30_000, 60_000, 120_000, 300_000, 600_000,
    1_800_000, 3_600_000, 7_200_000, 21_600_000, 43_200_000, 86_400_000, 604_800_000,
)  # fmt: skip
"""Where the classes of gaps start; each ends where the next one starts, the last one has no end."""

WIDTHS_MS = (
    *(part * scale for scale in (1, 10, 100) for part in (1, 2, 5)),
    *(part * 1000 for part in (1, 2, 5, 10, 15, 30)),
    *(part * 60_000 for part in (1, 2, 5, 10, 15, 30)),
    *(part * 3_600_000 for part in (1, 2, 3, 6, 12)),
    *(part * 86_400_000 for part in (1, 2, 7, 14, 28)),
)
"""Bin lengths that look round on an axis."""


@dataclass(frozen=True)
class Spread:
    """The numbers of one field in one bin."""

    count: int
    low: float
    high: float
    total: float

    @property
    def mean(self) -> float:
        return self.total / self.count


@dataclass(frozen=True)
class Gap:
    """The time without entries before one of them."""

    until_ms: int
    ms: int


@dataclass(frozen=True)
class Bin:
    """A span of time."""

    start_ms: int
    entries: int
    longest_gap: Gap | None  # of those that end in it
    numbers: tuple[Spread | None, ...]  # for each field of the profile


@dataclass(frozen=True)
class Profile:
    """What a range of a stream looks like.

    bin_ms    length of each bin
    bins      from the first entry's to the last one's, without a hole; none when there are no entries
    gaps      how many gaps of each class, see GAP_EDGES_MS
    fields    the names of the numeric fields
    is_whole  whether all entries of the range were looked at; otherwise the newest
    """

    entries: int
    first_ms: int
    last_ms: int
    bin_ms: int
    bins: tuple[Bin, ...]
    gaps: tuple[int, ...]
    fields: tuple[str, ...]
    is_whole: bool = True

    @property
    def longest_gaps(self) -> list[Gap]:
        """The longest gap of each bin, the longest of them first; a few."""
        found = [each.longest_gap for each in self.bins if each.longest_gap is not None and each.longest_gap.ms > 0]
        return sorted(found, key=lambda gap: (-gap.ms, gap.until_ms))[:LONGEST_GAPS]

    @property
    def per_second(self) -> float:
        """Entries per second from the first to the last."""
        return self.entries * 1000 / max(1, self.last_ms - self.first_ms)


def bin_width(first_ms: int, last_ms: int, bins: int = BINS) -> int:
    """A length that cuts the span into at most `bins` bins that start at its multiples."""
    span = last_ms - first_ms + 1
    for width in WIDTHS_MS:
        if last_ms // width - first_ms // width < bins:
            return width
    # Beyond ten years. The first bin may start before the first entry, hence one bin less.
    return math.ceil(span / max(1, bins - 1) / 86_400_000) * 86_400_000


def find_numeric_fields(
    connection: Connection, stream: str, *, low: int = MIN_ID, high: int = MAX_ID, most: int = 4
) -> list[str]:
    """Names of fields whose values are numbers (nine of ten at least), judged by a few entries at both ends of a range; the
    most frequent first.

    Numbers that only count entries, with another value in each of them and rising, are left out: a line of them says
    nothing.
    """
    key, bounds = stream_key(stream), (format_entry_id(low), format_entry_id(high))
    first, last = connection.pipeline(
        [("XRANGE", key, *bounds, "COUNT", 100), ("XREVRANGE", key, *reversed(bounds), "COUNT", 100)]
    )
    values: dict[bytes, list[float | None]] = {}
    for _, flat in (*first, *reversed(last)):
        for name, value in zip(flat[::2], flat[1::2], strict=True):
            values.setdefault(name, []).append(find_number(value))
    wanted = [name for name, found in values.items() if found.count(None) * 10 <= len(found) and not _is_counter(found)]
    wanted.sort(key=lambda name: (-len(values[name]), name))
    return [stream_name(name) for name in wanted[:most]]


def _is_counter(values: Sequence[float | None]) -> bool:
    distinct = list(dict.fromkeys(values))  # the two ends may overlap
    return len(distinct) > 10 and all(a is not None and b == a + 1 for a, b in itertools.pairwise(distinct[:10]))


Entry = tuple[int, Sequence[bytes]]
"""The milliseconds of its ID, then alternating fields and values."""


def _newest_first(
    connection: Connection, stream: str, low: int, high: int, progress: Callable[[int], object]
) -> Iterator[Entry]:
    key, end, count = stream_key(stream), high, 0
    while end >= low:
        page = connection.command("XREVRANGE", key, format_entry_id(end), format_entry_id(low), "COUNT", PAGE)
        for entry_id, flat in page:
            yield int(entry_id[: entry_id.index(b"-")]), flat
        count += len(page)
        progress(count)
        if len(page) < PAGE:
            return
        end = parse_entry_id(page[-1][0]) - 1


def read_profile(
    connection: Connection,
    stream: str,
    *,
    low: int = MIN_ID,
    high: int = MAX_ID,
    limit: int = 1_000_000,
    fields: Sequence[str] = (),
    progress: Callable[[int], object] = lambda entries: None,
) -> Profile:
    """The profile of the entries from `low` to `high`, both inclusive, or of the newest `limit` of them.

    fields    names of the fields whose numbers are wanted; of several with one name in an entry the last counts
    progress  told after each page how many entries have been read
    Takes 8 bytes of memory for each entry, and 8 more for each field.
    """
    entries = _newest_first(connection, stream, low, high, progress)
    times, columns = _gathered(itertools.islice(entries, limit), fields)
    times.reverse()
    for column in columns:
        column.reverse()
    return _profile_of(times, columns, tuple(fields), is_whole=next(entries, None) is None)


def profile_of(entries: Iterable[Entry], fields: Sequence[str], limit: int) -> Profile:
    """The same of entries that are given in the order of their IDs; the memory is that for all of them."""
    times, columns = _gathered(entries, fields)
    surplus = max(0, len(times) - limit)
    del times[:surplus]
    for column in columns:
        del column[:surplus]
    return _profile_of(times, columns, tuple(fields), is_whole=not surplus)


def _gathered(entries: Iterable[Entry], fields: Sequence[str]) -> tuple[array[int], list[array[float]]]:
    times = array("Q")
    columns = [array("d") for _ in fields]
    places = {stream_key(name): at for at, name in enumerate(fields)}
    for ms, flat in entries:
        times.append(ms)
        if columns:
            _append_numbers(columns, places, flat)
    return times, columns


def _append_numbers(columns: list[array[float]], places: dict[bytes, int], flat: Sequence[bytes]) -> None:
    found = dict.fromkeys(range(len(columns)), math.nan)
    for at in range(0, len(flat), 2):
        place = places.get(flat[at])
        if place is not None:
            number = find_number(flat[at + 1])
            found[place] = math.nan if number is None else number
    for place, value in found.items():
        columns[place].append(value)


def _profile_of(
    times: array[int], columns: list[array[float]], fields: tuple[str, ...], *, is_whole: bool, bins: int = BINS
) -> Profile:
    """The profile of entries in the order of their IDs; NaN stands for no number."""
    if not times:
        return empty_profile(fields)
    width = bin_width(times[0], times[-1], bins)
    origin = times[0] // width
    count = times[-1] // width - origin + 1
    entries = [0] * count
    longest: list[Gap | None] = [None] * count
    gaps = [0] * len(GAP_EDGES_MS)
    spreads: list[list[Spread | None]] = [[None] * count for _ in fields]
    previous = None
    for time in times:
        place = time // width - origin
        entries[place] += 1
        if previous is not None:
            gap = time - previous
            gaps[bisect_right(GAP_EDGES_MS, gap) - 1] += 1
            best = longest[place]
            if best is None or gap > best.ms:
                longest[place] = Gap(time, gap)
        previous = time
    for column, into in zip(columns, spreads, strict=True):
        start = 0
        for place, many in enumerate(entries):
            values = [each for each in column[start : start + many] if each == each]
            start += many
            if values:
                into[place] = Spread(len(values), min(values), max(values), math.fsum(values))
    found = (
        Bin((origin + place) * width, entries[place], longest[place], tuple(each[place] for each in spreads))
        for place in range(count)
    )
    return Profile(len(times), times[0], times[-1], width, tuple(found), tuple(gaps), fields, is_whole)


def empty_profile(fields: tuple[str, ...] = ()) -> Profile:
    return Profile(0, 0, 0, 1000, (), (0,) * len(GAP_EDGES_MS), fields)
