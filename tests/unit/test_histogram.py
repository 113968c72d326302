"""Histogram, against a list of all values."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamd.core.histogram import BOUNDS_US, Histogram

BOUNDS = [
    1, 2, 4, 8, 16, 33, 66, 132, 264, 528, 1056, 2113, 4227, 8454, 16908, 33816, 67633, 135266, 270532, 541065, 1073741,
]  # fmt: skip
"""Those of LATENCY HISTOGRAM, us, as a real Redis has them."""


def test_the_bounds_are_told() -> None:
    assert BOUNDS_US == BOUNDS


def made(values: list[int]) -> Histogram:
    histogram = Histogram()
    for us in values:
        histogram.add(us)
    return histogram


def bucket_ns(us: int) -> tuple[int, int]:
    """The least and greatest value of the bucket that a duration falls into, in ns."""
    ns = min(max(us * 1000, 1), 1_000_000_000)
    unit = 1 << max(0, ns.bit_length() - 8)
    return ns // unit * unit, ns // unit * unit + unit - 1


durations = st.one_of(
    st.integers(0, 300),
    st.integers(0, 2_000_000),
    st.sampled_from([*BOUNDS, 127, 128, 255, 256, 1023, 1024, 2**40, -5]),
)


@given(st.lists(durations, min_size=1, max_size=60), st.floats(0, 100))
def test_percentiles_against_the_sorted_values(values: list[int], percentile: float) -> None:
    histogram = made(values)
    histogram.check_invariants()
    at = max(1, math.floor(percentile / 100 * len(values) + 0.5))
    low, high = bucket_ns(sorted(values)[at - 1])
    assert histogram.percentile_us(percentile) * 1000 == pytest.approx(low if percentile == 0 else high)


@given(st.lists(durations, max_size=60))
def test_cumulative_counts_against_the_sorted_values(values: list[int]) -> None:
    histogram = made(values)
    expected: list[tuple[int, int]] = []
    for level, bound in enumerate(BOUNDS):
        last_ns = bucket_of(1024 << level) if level < 20 else (1 << 30) - 1
        count = sum(min(max(us * 1000, 1), 1_000_000_000) <= last_ns for us in values)
        if count > (expected[-1][1] if expected else 0):
            expected.append((bound, count))
    assert histogram.cumulative() == expected
    assert histogram.count == len(values)


def bucket_of(ns: int) -> int:
    """The greatest value in the bucket of a number of ns."""
    return ns | ((1 << max(0, ns.bit_length() - 8)) - 1)


def test_nothing_recorded() -> None:
    histogram = Histogram()
    assert histogram.count == 0
    assert histogram.cumulative() == []
    assert histogram.percentile_us(50) == 0
    assert histogram.memory == 0
    histogram.check_invariants()


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0, "0.001"),
        (1, "1.003"),
        (8, "8.031"),
        (11, "11.007"),
        (85, "85.503"),
        (20_100, "20185.087"),
        (1_100_000, "1002438.655"),
    ],
)
def test_values_as_redis_shows_them(us: int, text: str) -> None:
    assert f"{made([us]).percentile_us(50):.3f}" == text


def test_memory_is_taken_for_what_occurs() -> None:
    assert made([3] * 1000).memory == 1024
    assert made([1, 1000, 100_000]).memory == 3 * 1024
    assert made(list(range(2_000_000))).memory <= 24 * 1024
