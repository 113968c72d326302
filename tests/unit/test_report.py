"""The report on a stream, as far as it needs no server: what is computed, what is drawn, what is written."""

from __future__ import annotations

import dataclasses
import itertools
import json
import random
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from streamd.cli.report import report
from streamd.report import Report, plots, profile, render_html, render_json
from streamd.report import page as page_module
from streamd.report.drawing import Drawing, escape, series_colour
from streamd.report.field_numbers import find_number
from streamd.report.plots import Series
from streamd.report.profile import GAP_EDGES_MS, Gap, bin_width

NASTY = "</text><script>alert('1')</script>&\x00\x1b\udcff"


def profile_of(times: list[int], *columns: list[float], bins: int = 120) -> profile.Profile:
    from array import array

    names = tuple(f"field {at}" for at in range(len(columns)))
    made = [array("d", column) for column in columns]
    return profile._profile_of(array("Q", times), made, names, is_whole=True, bins=bins)


def make_report(**changed: object) -> Report:
    found = profile_of([1000, 2000, 2500, 900_000], [1.0, 2.0, float("nan"), 4.0])
    values: dict[str, object] = {
        "stream": NASTY, "server": "streamd 1.0", "made_ms": 1_700_000_000_000, "length": 3, "source": "read",
        "profile": dataclasses.replace(found, fields=(NASTY,)),
    }  # fmt: skip
    return Report(**{**values, **changed})  # type: ignore[arg-type]


# --- Numbers and words ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "number"),
    [(b"1", 1.0), (b"-.5", -0.5), (b"+2.", 2.0), (b"1e3", 1000.0), (b"1E-2", 0.01)],
)
def test_decimal_notation_is_a_number(value: bytes, number: float) -> None:
    assert find_number(value) == number


@pytest.mark.parametrize("value", [b"", b"nan", b"inf", b"1_000", b"0x1", b"1d", b" 1", b"1\n", b"1e999", "٣".encode()])
def test_nothing_else_is_a_number(value: bytes) -> None:
    assert find_number(value) is None


def test_a_duration_is_reported_in_the_unit_that_suits_it() -> None:
    assert [plots.duration(each) for each in (0, 0.02, 1.5, 90, 7200, 172_800, -5)] == [
        "0 ms", "20 ms", "1.5 s", "1.5 min", "2 h", "2 d", "-5 s",
    ]  # fmt: skip


def test_a_moment_beyond_all_dates_is_reported_as_a_number() -> None:
    assert plots.when(2**64 - 1) == f"{2**64 - 1} ms"
    assert plots.when(0, 86_400_000) == "1970-01-01"
    assert plots.when(1_714_564_800_123) == "12:00:00.123"


def test_a_picture_may_be_a_file_of_its_own() -> None:
    picture = Drawing(100, 50)
    picture.text(1, 2, NASTY, kind="title")
    picture.bar(0, 0, 10, 10, NASTY, colour="c0")
    picture.dot(5, 5, 3, kind="ring")
    picture.curve([(0, 0), (1, 1)], "a <curve>", colour=series_colour(7))
    root = ElementTree.fromstring(picture.file(NASTY))
    assert (root.get("width"), root.get("height"), root.get("viewBox")) == ("100", "50", "0 0 100 50")
    tags = [each.tag.partition("}")[2] for each in root]
    assert tags == ["style", "text", "rect", "circle", "polyline"]
    assert root[4].get("style") == "stroke:var(--c1)"
    assert "width" not in ElementTree.fromstring(picture.svg("t")).attrib, "on a page it is as wide as its place"


def test_ticks_are_round_and_inside() -> None:
    assert plots.ticks(0, 10) == [0, 5, 10]
    assert plots.ticks(-1, 1) == [-1, -0.5, 0, 0.5, 1]
    assert plots.ticks(3, 3) == [3]


def test_what_no_page_may_hold_is_escaped() -> None:
    assert escape(NASTY) == "&lt;/text&gt;&lt;script&gt;alert(&#x27;1&#x27;)&lt;/script&gt;&amp;□□□"
    assert escape("é中🙂") == "é中🙂"


# --- Profiles -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_a_profile_counts_every_entry_and_every_gap_once(seed: int) -> None:
    chance = random.Random(seed)
    times, now = [], chance.randrange(2**41)
    for _ in range(500):
        now += int(chance.expovariate(1) * chance.choice([0, 1, 300, 40_000]))
        times.append(now)
    found = profile_of(times, [float(each % 7) for each in times], bins=50)
    assert sum(each.entries for each in found.bins) == found.entries == 500
    assert sum(found.gaps) == 499
    assert 1 <= len(found.bins) <= 50
    assert found.bins[0].start_ms <= times[0] < found.bins[0].start_ms + found.bin_ms
    assert found.bins[-1].start_ms <= times[-1] < found.bins[-1].start_ms + found.bin_ms
    for at, each in enumerate(found.bins):
        assert each.start_ms == found.bins[0].start_ms + at * found.bin_ms
        own = [ms for ms in times if each.start_ms <= ms < each.start_ms + found.bin_ms]
        assert each.entries == len(own)
        numbers = each.numbers[0]
        assert (numbers.count if numbers else 0) == len(own)
        if numbers:
            assert (numbers.low, numbers.high) == (min(ms % 7 for ms in own), max(ms % 7 for ms in own))
    longest = max(b - a for a, b in itertools.pairwise(times))
    assert found.longest_gaps[0].ms == longest
    for at, count in enumerate(found.gaps):
        upper = GAP_EDGES_MS[at + 1] if at + 1 < len(GAP_EDGES_MS) else 2**64
        assert count == sum(GAP_EDGES_MS[at] <= b - a < upper for a, b in itertools.pairwise(times))


def test_one_entry_makes_one_bin() -> None:
    found = profile_of([5])
    assert (found.entries, len(found.bins), sum(found.gaps), found.longest_gaps) == (1, 1, 0, [])


def test_a_gap_belongs_to_the_bin_of_the_later_entry() -> None:
    found = profile_of([0, 10_000_000])
    assert found.bins[0].longest_gap is None
    assert found.bins[-1].longest_gap == Gap(10_000_000, 10_000_000)


@pytest.mark.parametrize("span", [0, 1, 119, 120, 10_000, 3_600_000, 86_400_000, 50 * 365 * 86_400_000, 2**60])
@pytest.mark.parametrize("first", [0, 1, 86_399_999, 1_714_564_800_123])
def test_bins_are_never_too_many(first: int, span: int) -> None:
    width = bin_width(first, first + span, 120)
    assert (first + span) // width - first // width + 1 <= 120


# --- Plots and pages ------------------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """Collects tags and text, and sees that what is opened is closed."""

    VOID = frozenset({"meta"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.open: list[str] = []
        self.words = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


def test_a_plot_is_well_formed_whatever_its_labels_are() -> None:
    drawn = [
        plots.time_plot("t", Series(NASTY.replace("\x00", ""), [0, 10, 20, 30], [1, None, 3, 4], [0, None, 2, 3], [2, None, 4, 9]), unit="<u>"),
        plots.time_plot("t", Series("a", [5, 2**64 - 1], [0.0, -1e300]), unit="x", from_zero=False),
        plots.bars("b", ["<a>", "b"], [1, 5], ["x<", "y"], unit="n"),
    ]  # fmt: skip
    for svg in drawn:
        ElementTree.fromstring(svg)


def test_nothing_is_drawn_of_nothing() -> None:
    assert plots.time_plot("t", Series("a", [], []), unit="x") == ""
    assert plots.time_plot("t", Series("a", [1], [None]), unit="x") == ""
    assert plots.bars("b", ["a"], [0], ["x"], unit="n") == ""


def test_a_line_is_broken_where_a_value_is_missing() -> None:
    svg = plots.time_plot("t", Series("a", [0, 1, 2, 3, 4], [1, 2, None, 4, 5]), unit="x")
    assert svg.count("<polyline") == 2


def test_bars_stand_in_proportion() -> None:
    root = ElementTree.fromstring(plots.bars("b", ["a", "b"], [10, 40], ["x", "y"], unit="n"))
    heights = [float(each.get("height", "0")) for each in root if each.tag.endswith("rect")]
    assert heights[1] == pytest.approx(4 * heights[0], rel=0.01)


# --- The first and the last bin --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [0, 1, 400, 700, 999])
def test_a_steady_rate_is_a_straight_line(first: int) -> None:
    """An entry each 10 ms, in bins of a second, of which the first and the last are covered in part."""
    found = profile_of([*range(first, 9_000 - first // 2, 10)], bins=10)
    assert found.bin_ms == 1000
    rates = [each for each in page_module._rates(found) if each is not None]
    assert rates == pytest.approx([100] * len(rates), rel=0.02)
    assert len(rates) >= 7


def test_a_single_entry_at_the_end_is_no_spike() -> None:
    found = profile_of([*range(0, 9_000, 100), 9_001], bins=10)
    assert found.bin_ms == 1000
    assert page_module._rates(found) == [10] * 9 + [None]


def test_one_entry_has_no_rate() -> None:
    assert page_module._rates(profile_of([5])) == [None]
    assert page_module._rates(profile_of([5, 6, 7])) == [1000, 1000, None]


def test_the_longest_gaps_have_dates() -> None:
    day_ms = 86_400_000
    text = render_html(make_report(profile=profile_of([1_700_000_000_000, 1_700_000_000_000 + 3 * day_ms])))
    assert "2023-11-14 22:13:20" in text
    assert "2023-11-17 22:13:20" in text


def test_the_page_holds_all_plots_and_needs_nothing_else() -> None:
    text = render_html(make_report())
    page = Page(text)
    assert page.open == []
    for caption in ("Rate", "Gaps between entries", "Numeric fields"):
        assert caption in page.words, caption
    assert page.tags.count("svg") == 3
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert not {"src", "href", "onload"} & {name for name, _ in page.attributes}
    assert "@import" not in text
    assert "url(" not in text


def test_the_page_shows_names_and_values_as_text() -> None:
    page = Page(render_html(make_report()))
    assert "alert('1')" in page.words


def test_the_page_of_an_empty_stream_says_so() -> None:
    page = Page(render_html(make_report(profile=profile.empty_profile())))
    assert "There are none in this range." in page.words
    assert "svg" not in page.tags


def test_json_has_all_of_it() -> None:
    found = json.loads(render_json(make_report()))
    assert found["profile"]["entries"] == 4
    assert found["profile"]["bins"][0]["numbers"][0]["low"] == 1
    assert found["stream"] == found["profile"]["fields"][0] == NASTY.replace("\udcff", "\ufffd")


@pytest.mark.parametrize("option", ["fetchSze=3", "nothing=1"])
def test_an_option_that_is_not_there_is_refused(option: str) -> None:
    ran = CliRunner().invoke(report, ["readings", "--option", option])
    assert ran.exit_code == 2
    assert "unknown option" in ran.output
    assert ("did you mean fetchSize?" in ran.output) == (option == "fetchSze=3")
