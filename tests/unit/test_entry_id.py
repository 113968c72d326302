"""Entry IDs as text: what Redis takes for one, and how one is written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamd.entry_id import MAX_ID, MAX_PART, MIN_ID, format_id, parse_id

PART = st.integers(0, MAX_PART)

# Text, and the ID it stands for; None: not an ID. As a real Redis takes XGROUP SETID.
IDS: list[tuple[bytes, tuple[int, int] | None]] = [
    (b"1-1", (1, 1)),
    (b"0-0", MIN_ID),
    (b"1", (1, 0)),
    (b"01-002", (1, 2)),
    (b"+1-+2", (1, 2)),
    (b" 1- 2", (1, 2)),
    (b"\v1-\f2", (1, 2)),
    (b" +1", (1, 0)),
    (b"18446744073709551615-18446744073709551615", MAX_ID),
    (b"000000000018446744073709551615-0", (MAX_PART, 0)),
    (b"1-2\0", (1, 2)),
    (b"1\0-x", (1, 0)),
    (b"0" * 127, (0, 0)),
    (b"0" * 126 + b"1", (1, 0)),
    (b"0" * 128, None),
    (b"1" * 127, None),
    (b"", None),
    (b"-", None),
    (b"+", None),
    (b"$", None),
    (b"*", None),
    (b">", None),
    (b"1-", None),
    (b"-1", None),
    (b"1-*", None),
    (b"(1-1", None),
    (b"- 1", None),
    (b"1 -2", None),
    (b"1-2 ", None),
    (b"1-2\n", None),
    (b"18446744073709551616-0", None),
    (b"0-18446744073709551616", None),
    (b"99999999999999999999-0", None),
    (b"1-2-3", None),
    (b"0x1-0", None),
    (b"1.0-0", None),
    (b"1_0-1", None),
    (b"++1-1", None),
    (b"+ 1-1", None),
    (b"-0-1", None),
    (b"--1", None),
    (b"1--2", None),
    (b"1-+", None),
    (b"\0", None),
    (b"1-\0", None),
    (b"\xa01-1", None),
    (b"\xd9\xa1-1", None),
    (b"abc", None),
]


@pytest.mark.parametrize(("text", "parsed"), IDS)
def test_a_text_is_the_id_that_redis_takes_it_for(text: bytes, parsed: tuple[int, int] | None) -> None:
    assert parse_id(text) == parsed


@pytest.mark.parametrize("missing", [0, 7, MAX_PART])
def test_an_incomplete_id_gets_the_missing_sequence_number(missing: int) -> None:
    assert parse_id(b"5", missing) == (5, missing)
    assert parse_id(b"5-1", missing) == (5, 1)
    assert parse_id(b"5-", missing) is None


@given(ms=PART, seq=PART)
def test_what_is_formatted_parses_to_the_same_id(ms: int, seq: int) -> None:
    assert format_id(ms, seq) == f"{ms}-{seq}".encode()
    assert parse_id(format_id(ms, seq)) == (ms, seq)


def test_ids_compare_as_tuples() -> None:
    assert MIN_ID < (0, 1) < (1, 0) < (1, MAX_PART) < (2, 0) < MAX_ID
