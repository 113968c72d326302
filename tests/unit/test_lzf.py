"""LZF: what was compressed comes back, and no bytes bring the decoder out of its block."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.compiled import compiled

lzf = compiled("lzf")
compress, expand = lzf.compress, lzf.expand

repetitive = st.lists(st.sampled_from([b"a", b"b", b"abc", b"\0" * 9, b"0123456789" * 40]), max_size=60).map(b"".join)
anything = st.one_of(st.binary(max_size=2000), repetitive)


def expand_plainly(data: bytes) -> bytes:
    """The decoder as its format is written down."""
    out = bytearray()
    at = 0
    while at < len(data):
        control = data[at]
        at += 1
        if control < 32:
            out += data[at : at + control + 1]
            at += control + 1
            continue
        length = control >> 5
        if length == 7:
            length += data[at]
            at += 1
        back = ((control & 31) << 8 | data[at]) + 1
        at += 1
        for _ in range(length + 2):
            out.append(out[-back])
    return bytes(out)


@given(anything)
def test_what_was_compressed_comes_back(data: bytes) -> None:
    packed = compress(data, len(data) + len(data) // 32 + 8)
    assert packed is not None
    assert expand_plainly(packed) == data
    assert expand(packed, len(data)) == data


@pytest.mark.parametrize("size", [4, 264, 265, 266, 8191, 8192, 8193, 100_000])
def test_long_runs_and_far_matches(size: int) -> None:
    block = random.Random(size).randbytes(size)
    for data in (b"x" * size, block + block, block + b"y" * size + block):
        packed = compress(data, 2 * len(data) + 8)
        assert packed is not None
        assert expand(packed, len(data)) == data


@given(anything, st.integers(0, 2000))
def test_the_room_is_kept_to(data: bytes, room: int) -> None:
    packed = compress(data, room)
    assert packed is None or len(packed) <= room


def test_what_repeats_becomes_small() -> None:
    packed = compress(b"temperature=19.8;" * 100)
    assert packed is not None
    assert len(packed) < 60


def test_what_does_not_repeat_is_refused() -> None:
    assert compress(random.Random(0).randbytes(5000)) is None


@given(st.binary(max_size=200), st.integers(0, 3000))
def test_any_bytes_are_decoded_or_refused(data: bytes, expected: int) -> None:
    out = expand(data, expected)
    if out is not None:
        assert out == expand_plainly(data)


@given(anything, st.integers(-3, 3).filter(bool))
def test_another_size_is_refused(data: bytes, more: int) -> None:
    packed = compress(data, len(data) * 2 + 8)
    assert packed is not None
    if len(data) + more >= 0:
        assert expand(packed, len(data) + more) is None


@pytest.mark.parametrize(
    "data",
    [b"\x05abc", b"\x20\x00", b"\x00a\x20\x01", b"\x00a\xe0", b"\x00a\xe0\x00", b"\x00a\x20", b"\x00a\xff\xff\xff"],
    ids=["literals cut off", "back from the start", "too far back", "no length", "no offset", "no offset 2", "too far"],
)
def test_damage_is_refused(data: bytes) -> None:
    for expected in (0, 1, 4, 10, 12, 300):
        assert expand(data, expected) is None
