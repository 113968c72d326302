"""What INFO tells about the last seconds, sampled at times that the test sets."""

from __future__ import annotations

import pytest

from streamd.observe.rates import Rate, RecentMost


def test_a_rate_is_the_change_over_the_last_sixteen_steps() -> None:
    rate = Rate()
    assert rate.per_second() == 0.0
    rate.sample(100.0, 7)
    assert rate.per_second() == 0.0
    rate.sample(100.5, 17)
    assert rate.per_second() == 20.0
    for step in range(1, 40):
        rate.sample(100.5 + step, 17 + step * step)
        oldest = max(step - 16, -1)
        time, value = (100.0, 7) if oldest < 0 else (100.5 + oldest, 17 + oldest * oldest)
        assert rate.per_second() == pytest.approx((17 + step * step - value) / (100.5 + step - time))


def test_a_counter_that_went_back_and_a_clock_that_stands_give_no_rate() -> None:
    rate = Rate()
    rate.sample(1.0, 10)
    rate.sample(2.0, 5)
    assert rate.per_second() == 0.0
    still = Rate()
    still.sample(1.0, 1)
    still.sample(1.0, 9)
    assert still.per_second() == 0.0


def test_the_most_is_that_of_the_last_eight_seconds() -> None:
    recent = RecentMost()
    assert recent.most() == 0
    for now, value, most in (
        (50.0, 3, 3),
        (50.9, 9, 9),
        (51.0, 4, 9),
        (57.9, 1, 9),
        (58.0, 2, 4),
        (59.0, 0, 2),
        (90.0, 1, 1),
    ):
        recent.sample(now, value)
        assert recent.most() == most


def test_a_smaller_value_of_the_same_second_takes_nothing_away() -> None:
    recent = RecentMost()
    recent.sample(3.1, 5)
    recent.sample(3.2, 1)
    assert recent.most() == 5
