"""IDs as numbers, points, durations and timestamps as users of the Spark source write them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamd.client.points import (
    MAX_ID,
    MIN_ID,
    format_entry_id,
    pack_id,
    parse_duration_ms,
    parse_entry_id,
    parse_point,
    parse_timestamp_ms,
    unpack_id,
)

NOW_MS = 1_700_000_000_000
HALVES = st.integers(0, 2**64 - 1)


@settings(deadline=None)
@given(HALVES, HALVES)
def test_an_id_survives_being_a_number(ms: int, seq: int) -> None:
    number = pack_id(ms, seq)
    assert unpack_id(number) == (ms, seq)
    assert parse_entry_id(format_entry_id(number)) == number


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("5-3", pack_id(5, 3), pack_id(5, 3)),
        ("5", pack_id(5, 0), pack_id(5, 2**64 - 1)),
        ("(5-3", pack_id(5, 4), pack_id(5, 2)),
        ("(5", pack_id(5, 1), pack_id(5, 2**64 - 2)),
        ("(5-0", pack_id(5, 1), pack_id(4, 2**64 - 1)),
        ("earliest", MIN_ID, MIN_ID),
        ("-", MIN_ID, MIN_ID),
        ("latest", MAX_ID, MAX_ID),
        ("$", MAX_ID, MAX_ID),
        ("+", MAX_ID, MAX_ID),
    ],
)
def test_points_are_inclusive_bounds(text: str, start: int, end: int) -> None:
    assert parse_point(text) == start
    assert parse_point(text, is_end=True) == end


@pytest.mark.parametrize(
    ("text", "is_end"), [("(0-0", True), (f"({format_entry_id(MAX_ID)}", False), ("x", False), ("", True)]
)
def test_points_that_leave_nothing_or_are_none_are_refused(text: str, is_end: bool) -> None:
    with pytest.raises(ValueError, match=r"no ID|not an entry ID"):
        parse_point(text, is_end=is_end)


@pytest.mark.parametrize(
    ("text", "ms"),
    [("1", 1), ("500ms", 500), ("10s", 10_000), ("1.5h", 5_400_000), ("2d12h", 216_000_000), ("5 minutes", 300_000),
     ("1 day 2 hours", 93_600_000), ("1w", 604_800_000), ("90 sec", 90_000)],
)  # fmt: skip
def test_durations(text: str, ms: int) -> None:
    assert parse_duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "h", "1x", "1h x", "-1h", "1 month"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration_ms(text)


@pytest.mark.parametrize(
    ("text", "ms"),
    [("now", NOW_MS), ("-1h", NOW_MS - 3_600_000), ("-90 s", NOW_MS - 90_000), ("1526919030474", 1526919030474),
     ("2018-05-21T16:10:30.474Z", 1526919030474), ("2018-05-21T18:10:30.474+02:00", 1526919030474),
     ("2018-05-21 16:10:30.474", 1526919030474), ("1970-01-02", 86_400_000), ("-10000w", 0)],
)  # fmt: skip
def test_timestamps(text: str, ms: int) -> None:
    assert parse_timestamp_ms(text, NOW_MS) == ms


@pytest.mark.parametrize("text", ["", "yesterday", "12:00", "-5", "2018-13-01"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a time"):
        parse_timestamp_ms(text, NOW_MS)
