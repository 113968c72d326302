"""The report on a stream, as far as it needs no server: what is computed, what is drawn, what is written."""

from __future__ import annotations

import itertools
import json
import random
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from streamd.cli.report import report
from streamd.report import Report, plots, profile, render_html, render_json, write_tables
from streamd.report import page as page_module
from streamd.report.drawing import Drawing, escape, series_colour
from streamd.report.field_numbers import find_number
from streamd.report.groups import (
    Ack,
    DeadLetter,
    GroupLag,
    GroupState,
    PendingEntry,
    Throughput,
    acks_between,
    throughput_between,
)
from streamd.report.plots import Series
from streamd.report.profile import GAP_EDGES_MS, Gap, bin_width
from streamd.report.records import record_fields, to_arrow

NASTY = "</text><script>alert('1')</script>&\x00\x1b\udcff"


def make_lag(**changed: object) -> GroupLag:
    values: dict[str, object] = {
        "stream": "s", "group": "g", "server": "streamd 1.0", "observed_ms": 10_000, "length": 100, "consumers": 1,
        "pending": 10, "entries_read": 50, "lag": 50, "is_lag_counted": False, "lag_s": 1.5, "behind_s": 1.0,
        "oldest_pending_s": 2.0, "last_delivered_id": "8000-0",
    }  # fmt: skip
    return GroupLag(**{**values, **changed})  # type: ignore[arg-type]


def make_pending(
    entry_id: str, observed_ms: int = 10_000, delivered_ms: int = 9_000, **changed: object
) -> PendingEntry:
    values: dict[str, object] = {
        "stream": "s", "group": "g", "consumer": "c", "id": entry_id, "observed_ms": observed_ms,
        "delivered_ms": delivered_ms, "deliveries": 1, "idle_s": (observed_ms - delivered_ms) / 1000,
        "delivery_latency_s": 0.5,
    }  # fmt: skip
    return PendingEntry(**{**values, **changed})  # type: ignore[arg-type]


def make_state(lag: GroupLag, *pending: PendingEntry, is_complete: bool = True) -> GroupState:
    return GroupState(lag, pending, is_complete)


def profile_of(times: list[int], *columns: list[float], bins: int = 120) -> profile.Profile:
    from array import array

    names = tuple(f"field {at}" for at in range(len(columns)))
    made = [array("d", column) for column in columns]
    return profile._profile_of(array("Q", times), made, names, bins, True)


def make_report(**changed: object) -> Report:
    lag = make_lag(group=NASTY)
    values: dict[str, object] = {
        "stream": NASTY, "server": "streamd 1.0", "made_ms": 1_700_000_000_000, "length": 3, "source": "read",
        "profile": profile_of([1000, 2000, 2500, 900_000], [1.0, 2.0, float("nan"), 4.0]),
        "states": (make_state(lag, make_pending("8000-0", group=NASTY, deliveries=9, consumer=NASTY)),),
        "lags": (make_lag(group=NASTY, observed_ms=9000), lag),
        "acks": (Ack("s", NASTY, "c", "7000-0", 1, 9000, 0.1, 0.2, 0.4),),
        "throughputs": (Throughput("s", NASTY, 10_000, 1.0, 4, 5, 2.0),),
        "dead_letters": (DeadLetter("s", NASTY, "c", "8000-0", 9, 1.0, False, ((b"f", b"<script>\xff"),)),),
        "above": 5,
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


# --- Looks ----------------------------------------------------------------------------------------------------------------


def test_an_entry_that_is_pending_no_longer_was_acknowledged_between_the_looks() -> None:
    before = make_state(make_lag(), make_pending("1-0"), make_pending("2-0"), make_pending("3-0"))
    after = make_state(make_lag(observed_ms=12_000), make_pending("2-0", observed_ms=12_000, delivered_ms=9_000))
    found = acks_between(before, after)
    assert [each.id for each in found] == ["1-0", "3-0"]
    assert (found[0].processing_min_s, found[0].processing_max_s, found[0].processing_s) == (1.0, 3.0, 2.0)


def test_what_a_look_did_not_reach_is_not_taken_for_acknowledged() -> None:
    before = make_state(make_lag(), make_pending("1-0"), make_pending("9-0"), make_pending("10-0"), is_complete=False)
    after = make_state(make_lag(), make_pending("2-0"), make_pending("9-1"), is_complete=False)
    assert [each.id for each in acks_between(before, after)] == ["1-0", "9-0"]
    assert acks_between(before, make_state(make_lag(), is_complete=False)) == []


def test_throughput_follows_from_what_was_read_and_what_is_pending() -> None:
    before, after = make_lag(), make_lag(observed_ms=12_000, entries_read=90, pending=20)
    (found,) = throughput_between(before, after)
    assert (found.seconds, found.read, found.acked) == (2.0, 40, 30)
    assert found.processing_s == pytest.approx(15 * 2.0 / 30)


def test_no_throughput_is_reported_a_group_recreated_or_never_counted() -> None:
    assert throughput_between(make_lag(), make_lag(observed_ms=12_000, entries_read=1)) == []
    assert throughput_between(make_lag(entries_read=None), make_lag(observed_ms=12_000)) == []
    assert throughput_between(make_lag(), make_lag(observed_ms=9_999)) == []
    assert throughput_between(make_lag(), make_lag())[0].seconds == 0.001
    untouched = make_lag(entries_read=None, last_delivered_id="0-0", pending=0)
    assert throughput_between(untouched, make_lag(observed_ms=12_000))[0].read == 50


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
        plots.time_plot("t", [Series(NASTY.replace("\x00", ""), [0, 10, 20, 30], [1, None, 3, 4], [0, None, 2, 3], [2, None, 4, 9])], unit="<u>"),
        plots.time_plot("t", [Series("a", [5], [0.0]), Series("b", [2**64 - 1], [-1e300])], unit="x", from_zero=False),
        plots.bars("b", ["<a>", "b"], {"x<": [1, 0], "y": [2, 5]}, unit="n", is_bad=[False, True]),
        plots.rows("r", ["<a>" * 30, "b"], [3, 0], ["3 <i>", "0"]),
    ]  # fmt: skip
    for svg in drawn:
        ElementTree.fromstring(svg)


def test_nothing_is_drawn_of_nothing() -> None:
    assert plots.time_plot("t", [Series("a", [], [])], unit="x") == ""
    assert plots.time_plot("t", [Series("a", [1], [None])], unit="x") == ""
    assert plots.bars("b", ["a"], {"x": [0]}, unit="n") == ""
    assert plots.rows("r", [], [], []) == ""


def test_a_line_is_broken_where_a_value_is_missing() -> None:
    svg = plots.time_plot("t", [Series("a", [0, 1, 2, 3, 4], [1, 2, None, 4, 5])], unit="x")
    assert svg.count("<polyline") == 2


def test_bars_stand_in_proportion() -> None:
    root = ElementTree.fromstring(plots.bars("b", ["a", "b"], {"x": [10, 40]}, unit="n"))
    heights = [float(each.get("height", "0")) for each in root if each.tag.endswith("rect")]
    assert heights[1] == pytest.approx(4 * heights[0], rel=0.01)


def test_rows_have_the_lengths_of_their_values_and_names_that_differ() -> None:
    names = [f"{'a-long-name-of-a-group-' * 5}{end}" for end in ("billing", "archive")]
    root = ElementTree.fromstring(plots.rows("r", names, [10, 40], ["10", "40"]))
    widths = [float(each.get("width", "0")) for each in root if each.tag.endswith("rect")]
    assert widths[1] == pytest.approx(4 * widths[0], rel=0.01)
    shown = [each.text or "" for each in root if each.tag.endswith("text")][::2]
    assert shown[0].endswith("billing")
    assert shown[1].endswith("archive")
    assert all(len(each) < 60 for each in shown)


def test_a_legend_has_whole_names_and_no_more_than_it_needs() -> None:
    assert plots.legend(["alone"]) == ""
    page = Page(plots.legend(["x" * 100, "<y>"]))
    assert page.words == "x" * 100 + "<y>"


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
    for caption in (
        "Rate",
        "Gaps between entries",
        "Lag in entries",
        "Lag in time",
        "Age:",
        "Delivery counts",
        "Processing:",
    ):
        assert caption in page.words, caption
    assert page.tags.count("svg") >= 9
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert not {"src", "href", "onload"} & {name for name, _ in page.attributes}
    assert "@import" not in text
    assert "url(" not in text


def test_the_page_shows_names_and_values_as_text() -> None:
    page = Page(render_html(make_report()))
    assert "alert('1')" in page.words
    assert "f=<script>\ufffd" in page.words


def test_the_page_of_an_empty_stream_says_so() -> None:
    page = Page(render_html(make_report(profile=profile.empty_profile(), states=(), lags=(), acks=(), throughputs=(), dead_letters=())))  # fmt: skip
    assert "There are none in this range." in page.words
    assert "svg" not in page.tags


def test_json_has_all_of_it() -> None:
    found = json.loads(render_json(make_report()))
    assert found["profile"]["entries"] == 4
    assert found["states"][0]["pending"][0]["deliveries"] == 9
    assert found["dead_letters"][0]["fields"] == [["f", "<script>\ufffd"]]


# --- Tables ---------------------------------------------------------------------------------------------------------------


def test_tables_keep_types_and_nulls(tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    paths = write_tables(make_report(), tmp_path / "new")
    assert sorted(path.name for path in tmp_path.joinpath("new").iterdir()) == sorted(path.name for path in paths)
    lags = pq.read_table(tmp_path / "new" / "groups.parquet").to_pylist()
    assert [each["lag"] for each in lags] == [50, 50]
    dead = pq.read_table(tmp_path / "new" / "dead_letters.parquet").to_pylist()
    assert dead[0]["fields"] == [{"field": b"f", "value": b"<script>\xff"}]
    bins = pq.read_table(tmp_path / "new" / "bins.parquet").to_pylist()
    assert sum(each["entries"] for each in bins) == 4


def test_a_table_of_no_records_has_its_columns() -> None:
    pytest.importorskip("pyarrow")
    table = to_arrow(GroupLag, [])
    assert table.num_rows == 0
    assert [str(table.schema.field(name).type) for name in ("stream", "lag", "is_lag_counted", "lag_s")] == [
        "string", "int64", "bool", "double",
    ]  # fmt: skip
    assert table.schema.field("lag").nullable
    assert not table.schema.field("stream").nullable


def test_a_record_becomes_fields_without_what_is_null() -> None:
    fields = record_fields(make_lag(lag=None))
    pairs = dict(zip(fields[::2], fields[1::2], strict=True))
    assert pairs[b"record"] == b"GroupLag"
    assert b"lag" not in pairs
    assert (pairs[b"is_lag_counted"], pairs[b"lag_s"]) == (b"0", b"1.5")


@pytest.mark.parametrize("option", ["fetchSze=3", "nothing=1"])
def test_an_option_that_is_not_there_is_refused(option: str) -> None:
    ran = CliRunner().invoke(report, ["readings", "--option", option])
    assert ran.exit_code == 2
    assert "unknown option" in ran.output
    assert ("did you mean fetchSize?" in ran.output) == (option == "fetchSze=3")
