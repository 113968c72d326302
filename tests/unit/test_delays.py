"""What the latency test says about delays that are known."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from benchmarks.delays import Delays, draw, histogram_lines, show_ms

MS = 1_000_000


def test_a_percentile_is_the_shortest_delay_that_so_many_messages_do_not_exceed() -> None:
    delays = Delays.of(range(1000, 0, -1))
    assert [delays.percentile(share) for share in (0, 0.001, 0.5, 0.99, 0.999, 1)] == [1, 1, 500, 990, 999, 1000]
    assert delays.figures() == [500, 990, 999, 1000]


def test_a_single_delay_is_every_percentile() -> None:
    assert Delays.of([7]).figures() == [7, 7, 7, 7]


def test_rounds_are_pooled() -> None:
    assert Delays.of([3, 1], [2]).ordered == [1, 2, 3]


def test_the_histogram_has_a_line_for_each_millisecond_in_which_there_were_any() -> None:
    delays = Delays.of([0] * 7411 + [MS] * 2500 + [2 * MS - 1] * 80 + [5 * MS] * 9)
    assert histogram_lines(delays) == [
        "Processed between 0 and 1 ms -> 74.11%",
        "Processed between 1 and 2 ms -> 25.80%",
        "Processed between 5 and 6 ms -> 0.09%",
    ]


def test_long_delays_share_lines() -> None:
    delays = Delays.of(ms * MS for ms in (99, 100, 199, 200, 999, 1000, 1999, 20_000))
    assert [line.split(" ->")[0].removeprefix("Processed between ") for line in histogram_lines(delays)] == [
        "99 and 100 ms", "100 and 200 ms", "200 and 300 ms", "900 and 1000 ms", "1000 and 2000 ms", "20000 and 30000 ms"
    ]  # fmt: skip


def test_rounding_claims_neither_all_nor_nothing() -> None:
    delays = Delays.of([0] * 99_999 + [MS])
    assert histogram_lines(delays) == [
        "Processed between 0 and 1 ms -> >99.99%",
        "Processed between 1 and 2 ms -> <0.01%",
    ]
    assert histogram_lines(Delays.of([1])) == ["Processed between 0 and 1 ms -> 100.00%"]


@pytest.mark.parametrize(
    ("ns", "shown"), [(0, "0.000"), (74_499, "0.074"), (12_345_678, "12.3"), (1_234_567_890, "1,235")]
)
def test_milliseconds_are_as_exact_as_they_need_to_be(ns: int, shown: str) -> None:
    assert show_ms(ns) == shown


def test_the_picture_has_a_curve_for_each_server_in_each_panel_and_says_its_percentiles() -> None:
    known = {"a & b": Delays.of(range(MS, 2 * MS, 1000)), "one": Delays.of([5]), "none": Delays.of([0, 0])}
    svg = draw("A title <with> signs", {"new": known, "pending": {"one": Delays.of([MS] * 10)}}, ["a note"])
    root = ET.fromstring(svg)
    space = "{http://www.w3.org/2000/svg}"
    curves = root.findall(f"{space}polyline")
    assert len(curves) == 4
    said = curves[0].find(f"{space}title")
    assert said is not None
    assert said.text == "a & b, ms: p50 1.499, p99 1.989, p99.9 1.998, longest 1.999"
    for curve in curves:
        for corner in curve.attrib["points"].split():
            across, down = map(float, corner.split(","))
            assert 0 <= across <= 760
            assert 0 <= down <= float(root.attrib["height"])
