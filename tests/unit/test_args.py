"""Arguments of requests: integers, entry IDs and option words, read by compiled code."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamd.core import args
from streamd.entry_id import MAX_PART, parse_id
from streamd.errors import InvalidIDError, NotIntegerError

CANONICAL = re.compile(rb"0|-?[1-9][0-9]*")


def slow_integer(text: bytes) -> int | None:
    if CANONICAL.fullmatch(text) is None or not -(2**63) <= int(text) < 2**63:
        return None
    return int(text)


@pytest.mark.parametrize("number", [0, 1, -1, 9, 10, -10, 2**31, 2**63 - 1, -(2**63), 10**18, -(10**18)])
def test_an_integer_is_read(number: int) -> None:
    assert args.integer(b"%d" % number) == number


@pytest.mark.parametrize(
    "text",
    [
        b"", b"-", b"+1", b"01", b"-0", b"-01", b"00", b" 1", b"1 ", b"1\n", b"1\0", b"1.0", b"1e3", b"0x10", b"a", b"1a",
        b"--1", b"1_0", b"\xd9\xa1", b"9223372036854775808", b"-9223372036854775809", b"18446744073709551616",
        b"18446744073709551615", b"99999999999999999999", b"100000000000000000000", b"-99999999999999999999",
    ],
)  # fmt: skip
def test_what_is_not_a_canonical_integer_is_refused(text: bytes) -> None:
    with pytest.raises(NotIntegerError, match=r"^ERR value is not an integer or out of range$"):
        args.integer(text)


_near_integers = st.one_of(
    st.integers(-(2**64) - 5, 2**64 + 5).map(lambda n: b"%d" % n),
    st.text("0123456789-+ ", max_size=22).map(str.encode),
)


@given(text=_near_integers)
@example(text=b"-9223372036854775808")
def test_integers_are_read_as_by_the_twin(text: bytes) -> None:
    want = slow_integer(text)
    if want is None:
        with pytest.raises(NotIntegerError, match="ERR value is not an integer or out of range"):
            args.integer(text)
    else:
        assert args.integer(text) == want


_part = st.one_of(
    st.integers(0, MAX_PART + 3).map(str),
    st.integers(10**17, 10**20).map(str),
    st.text("0123456789+ ", max_size=23),
)
_near_ids = st.one_of(
    st.tuples(_part, _part).map(lambda parts: "-".join(parts).encode()),
    _part.map(str.encode),
    st.text("0123456789-+ \0", max_size=50).map(str.encode),
)


@given(text=_near_ids, missing=st.sampled_from([0, MAX_PART]))
@example(text=b"9999999999999999999-9999999999999999999", missing=0)
@example(text=b"10000000000000000000-18446744073709551615", missing=0)
def test_ids_are_read_by_the_rule(text: bytes, missing: int) -> None:
    want = parse_id(text, missing)
    if want is None:
        with pytest.raises(InvalidIDError, match=r"^ERR Invalid stream ID specified as stream command argument$"):
            args.stream_id(text, missing)
    else:
        assert args.stream_id(text, missing) == want


@pytest.mark.parametrize(
    ("text", "same"),
    [
        (b"MAXLEN", True), (b"maxlen", True), (b"MaxLen", True), (b"maxle", False), (b"maxlenx", False), (b"", False),
        (b"m\0xlen", False), (b"maxlen\0", False), (b"MAX\x0cEN", False), (b"maxl\x85n", False), (b"maxlem", False),
    ],
)  # fmt: skip
def test_option_words_are_compared_without_regard_to_case(text: bytes, same: bool) -> None:
    assert args.is_option(text, b"MAXLEN") is same


def test_only_letters_have_two_cases() -> None:
    for c in range(256):
        text = bytes((c,))
        assert args.is_option(text, b"{") is (c == ord("{"))
        assert args.is_option(text, b"[") is (c == ord("["))
        assert args.is_option(text, b"A") is (text in (b"a", b"A"))
    assert args.word(b"maxLen~\xe9") == b"MAXLEN~\xe9"
